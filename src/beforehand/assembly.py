"""The one place where parts are put together: models by name, tools and hooks from what a user hands in.

Adapters are imported here, by name and on first use, so that the core loads none of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from .errors import ConfigError, HookDefinitionError, ToolDefinitionError, UnknownModel, nearest
from .hooks.hook import Hook
from .hooks.registry import HookSet, collect, hooks_of, methods_of
from .innerloops import MAX_LOOPS, Loops, derive, loop_tools
from .limits import Limits, Recovery
from .messages import THINKING_LEVELS, Options, Price, clean
from .models.base import Model
from .plan import HookSource, Loop, OnAsk, Plan, read_instructions
from .settings import LoopSettings
from .tools import Tool, tool
from .validity import invalid_options

if TYPE_CHECKING:
    from pathlib import Path

ADAPTERS: dict[str, tuple[str, str]] = {
    "openai": ("beforehand.models.openai_chat", "OpenAIChat"),
}
"""Prefix of a model name: the adapter that speaks to it."""


def load_model(model: Any, base_url: str | None = None, api_key: str | None = None) -> Model:
    """A model as it is, or the one a name such as "openai:gpt-4o-mini" stands for. `UnknownModel` says what is wrong."""
    if isinstance(model, Model):
        if base_url is not None or api_key is not None:
            raise ConfigError("base_url and api_key go with a model name; this model was made with its own")
        return model
    if not isinstance(model, str):
        raise UnknownModel(f'model={model!r} must be a name such as "openai:gpt-4o-mini" or a Model')
    prefix, colon, name = model.partition(":")
    if prefix not in ADAPTERS or not colon or not name:
        near = nearest(prefix, ADAPTERS)
        named = f'write "openai:{model}" if that is what an OpenAI-compatible endpoint calls it'
        hint = f'did you mean "{near}:{name or "MODEL"}"?' if near else named
        raise UnknownModel(f"no adapter for model {model!r}: {hint}")
    module, cls = ADAPTERS[prefix]
    options = {k: v for k, v in (("base_url", base_url), ("api_key", api_key)) if v is not None}
    made: Model = getattr(importlib.import_module(module), cls)(name, **options)
    return made


def make_plan(
    *, model: Any, base_url: str | None, api_key: str | None, instructions: Any, tools: Iterable[Any], hooks: Iterable[Any],
    settings: Mapping[str, Any],
) -> Plan:  # fmt: skip
    """Check everything, then make the plan. Raises a `ConfigError` that says what, where and what to do."""
    system, dynamic = read_instructions(instructions)
    limits, options = settings["limits"], settings["options"]
    if not isinstance(limits, Limits):
        raise ConfigError(f"limits={limits!r} must be a Limits(...)")
    if not isinstance(options, Options):
        raise ConfigError(f"options={options!r} must be an Options(...)")
    options = options.sealed()
    loops = tuple(listed(settings["loops"], "loops"))
    project = settings["project"]
    made, owned = _with_project(load_tools([*listed(tools, "tools"), *(loop_tools() if loops else ())]), limits, settings)
    if (why := invalid_options(options, {tool.name for tool in made})) is not None:
        raise ConfigError(f"options=...: {why}")
    level = settings["thinking_level"]
    if level is not None:
        if level not in THINKING_LEVELS:
            raise ConfigError(f"thinking_level={level!r} must be one of {', '.join(THINKING_LEVELS)}")
        options = Options(**{f: getattr(options, f) for f in options.__struct_fields__} | {"thinking_level": level})
    if settings["tool_mode"] not in ("parallel", "sequential"):
        raise ConfigError(f'tool_mode={settings["tool_mode"]!r} must be "parallel" or "sequential"')
    on_ask: OnAsk | None = settings["on_ask"]
    if on_ask is not None and not callable(on_ask):
        raise ConfigError(f"on_ask={on_ask!r} must be a function that takes a PendingApproval")
    recovery = settings["recovery"]
    if recovery is UNSET:  # a failure of the request's own lambda is told the model, and nothing is tried again unasked
        recovery = None if settings["pre_llm_hook"] is None else Recovery(auto_retry=False)
    if recovery is not None and not isinstance(recovery, Recovery):
        raise ConfigError(f"recovery={recovery!r} must be a Recovery(...), or None")
    prices = _prices(settings["prices"] or {})
    loaded = load_model(model, base_url, api_key)
    cache: dict[str, Model] = {}
    known, where = model, base_url
    if project is not None and not isinstance(model, str):  # other models are still where the file says
        known, where = project.settings.model, project.settings.base_url

    def resolve(name: str) -> Model:
        if name not in cache:
            same = isinstance(known, str) and known.partition(":")[0] == name.partition(":")[0]
            cache[name] = load_model(name, where if same else None, api_key if same else None)
        return cache[name]

    said = () if project is None else project.settings.tools
    plan = Plan(
        model=loaded, system=system, dynamic=dynamic, tools=made, hooks=load_hooks([*hooks, *owned]), limits=limits,
        options=options, tool_mode=settings["tool_mode"], prices=prices, on_ask=on_ask, resolve_model=resolve, resolved=cache,
        name=clean(str(settings["name"])), recovery=recovery, loops=loops, open_loops=open_loops, journal=load_journal(settings),
        shadow=load_hooks(settings["shadow_hooks"], shadow=True) if settings["shadow_hooks"] else None,
        project=None if project is None else project.settings, never_again=frozenset([t.name for t in said if t.replay]),
        restricted=frozenset([t.name for t in said if t.restricted]),
    )  # fmt: skip
    _check_loops(plan)
    return plan


def open_loops(talk: Any) -> Loops:
    """The loops of a conversation, which is their `main`."""
    return Loops(talk.plan, talk._listeners, talk)


def _check_loops(plan: Plan) -> None:
    """Every declared loop can work, and no two share a name."""
    seen: set[str] = set()
    for loop in plan.loops:
        derive(plan, loop)
        if loop.name in seen:
            raise ConfigError(f"two loops are named {loop.name!r}: give one another name")
        seen.add(loop.name)
    if len(seen) > MAX_LOOPS:
        raise ConfigError(f"loops= holds {len(seen)} loops: an agent has at most {MAX_LOOPS} inner ones")


def load_journal(settings: Mapping[str, Any]) -> Any:
    """The journal that `journal=` names, or as it was made. `None` without one: then nothing of it is imported."""
    given = settings["journal"]
    options = {"durability": settings["durability"], "key": settings["journal_key"], "raw": settings["journal_raw"]}
    said = options != {"durability": "full", "key": None, "raw": False}
    if given is None:
        if said:
            raise ConfigError('durability=, journal_key= and journal_raw= go with a journal: give journal="runs.db" too')
        return None
    journal = importlib.import_module("beforehand.journal")
    if isinstance(given, str | os.PathLike):
        return journal.open_journal(given, **options)
    if not isinstance(given, journal.Journal | journal.PostgresJournal):
        raise ConfigError(f"journal={given!r} must be the path of a file, a postgresql:// URL, or a Journal")
    if said:
        raise ConfigError("durability=, journal_key= and journal_raw= go with a path: a Journal takes them itself, as raw=True")
    return given


def _with_project(tools: tuple[Tool, ...], limits: Limits, settings: Mapping[str, Any]) -> tuple[tuple[Tool, ...], list[Hook]]:
    """The tools as a project file wants them, and its hooks; the lambda before each conversational request, file or not."""
    block, project, workspace = settings["pre_llm_hook"], settings["project"], settings["workspace"]
    if isinstance(workspace, str | os.PathLike) and not os.path.isdir(workspace):
        raise ConfigError(f"there is no folder {workspace}: a workspace is a folder that holds lambdas")
    if project is not None:
        parts = importlib.import_module("beforehand.config.parts").project_parts
        return parts(project, tools, loop_tools(), limits, settings)  # type: ignore[no-any-return]
    if block is None:
        return tools, []
    return tools, [importlib.import_module("beforehand.config.hook").fixed_hook(block, workspace, limits)]


def project_arguments(path: str | Path, tools: Iterable[Any], hooks: Iterable[Any]) -> dict[str, Any]:
    """A project file as arguments of `Agent`. Raises `ConfigError` (also `ProjectFileError`)."""
    config = importlib.import_module("beforehand.config.project")
    project = config.read_project(path)
    said, rules = project.settings, project.path("hooks_dir")
    return {
        "model": said.model, "base_url": said.base_url, "instructions": said.instructions,
        "limits": said.limits_of_runs(), "recovery": said.recovery.of_runs(),
        "loops": tuple([_loop_of(loop) for loop in said.loops if loop.enabled]),
        "tools": tuple(listed(tools, "tools")),
        "hooks": (*listed(hooks, "hooks"), *([] if rules is None else [config.shown_path(rules)])),
        "project": project, "workspace": project.path("workspace"),
    }  # fmt: skip


def _loop_of(said: LoopSettings) -> Loop:
    return Loop(said.name, description=said.description, instructions=said.instructions, tools=said.tools, model=said.model)


def _prices(given: Mapping[str, Any]) -> dict[str, Price]:
    """Prices by the name an endpoint calls a model. "openai:NAME" counts as NAME."""
    prices: dict[str, Price] = {}
    for name, price in given.items():
        if not isinstance(price, Price):
            raise ConfigError(f"prices[{name!r}] is {price!r}: expected Price(input=..., output=...), per million tokens")
        prefix, colon, rest = name.partition(":")
        prices[rest if colon and prefix in ADAPTERS else name] = price
    return prices


def listed(items: Any, what: str) -> Iterable[Any]:
    """`items`, if they are several. One alone where a list is due is a `ConfigError`."""
    if isinstance(items, str | os.PathLike | Hook | Tool) or not isinstance(items, Iterable):
        raise ConfigError(f"{what}= takes a list: write {what}=[...]")
    return items


def load_tools(tools: Iterable[Any]) -> tuple[Tool, ...]:
    """Tools as given; plain functions with type hints become tools. Two of one name are an error."""
    loaded: dict[str, Tool] = {}
    for item in listed(tools, "tools"):
        made = item if isinstance(item, Tool) else tool(item) if callable(item) else None
        if made is None:
            raise ToolDefinitionError(f"tools=[... {item!r} ...] is not a tool: decorate a function with @tool")
        made.check()
        if made.name in loaded:
            raise ToolDefinitionError(
                f"two tools are named {made.name!r}: {loaded[made.name].where} and {made.where}; give one another name="
            )
        loaded[made.name] = made
    return tuple(loaded.values())


def load_hooks(items: Iterable[Any], shadow: bool = False) -> HookSource:
    """Hooks as given; a path stands for the hooks of a Python file, or the rules of a rule file or folder.

    All rules make one set, which stands where the first of their paths is given. The environment's folder is used if no
    path is given for rules, and then comes last. For hooks in the `shadow` it is not used, and their rules log nothing.
    """
    before: list[Any] = []
    after: list[Any] = []
    paths: list[Path] = []
    for item in listed(items, "shadow_hooks" if shadow else "hooks"):
        place = after if paths else before
        if not isinstance(item, str | os.PathLike):
            place.append(item)
        elif (path := _path(item)).suffix == ".py":
            place += hooks_in_file(path)
        else:
            paths.append(path)
    if not shadow and not paths and any(os.environ.get(name) for name in RULES_FROM):
        folder = importlib.import_module("beforehand.rules").rules_folder(None, os.environ)
        paths = [folder] if folder is not None else []
    first, last = collect(before), collect(after)
    if not paths:
        return HookSource(HookSet(first))
    module = importlib.import_module("beforehand.rules")
    rules = module.load_rules(paths, _say_nothing) if shadow else module.load_rules(paths)
    source = HookSource(HookSet([*first, *rules.hooks, *last]), rules)
    source.compose = lambda new: HookSet([*first, *new.hooks, *last])
    return source


def _path(given: str | os.PathLike[str]) -> Path:
    from pathlib import Path  # deferred: with what it imports, 4 ms of every start

    return Path(given)


def _say_nothing(action: str, text: str, where: str) -> None:
    """The voice of rules in the shadow."""


RULES_FROM = ("BEFOREHAND_HOOKS_DIR", "LLM_CHAT_HOOKS_DIR")


def watch(agent: Any) -> Any:
    """A watcher that keeps an agent's rules as their files are."""
    source: HookSource = agent.plan.hooks
    if source.rules is None or source.compose is None:
        raise ConfigError("this agent has no rule files to watch: give their folder as hooks=[...]")
    compose = source.compose

    def changed(rules: Any) -> None:
        source.current, source.rules = compose(rules), rules

    return importlib.import_module("beforehand.rules").Watcher(source.rules.paths, source.rules, on_change=changed)


def hooks_in_file(path: Path) -> list[Hook]:
    """The hooks of a Python file, in the order it names them: `Hook` values, and objects whose methods are hooks."""
    module = load_file(path, "hooks")
    values = [value for value in vars(module).values() if not isinstance(value, ModuleType | type)]
    for name, value in vars(module).items():
        unused = isinstance(value, type) and value.__module__ == module.__name__ and methods_of(value)
        if unused and not any(isinstance(one, value) for one in values):
            raise HookDefinitionError(f"{path}: no object of {name} is there, so its hooks would never be asked: make one")
    found = [found for value in values for found in ([value] if isinstance(value, Hook) else hooks_of(value))]
    if not found:
        raise HookDefinitionError(f"{path} defines no hooks: decorate functions with @hook.<seam>")
    return list(dict.fromkeys(found))


def tools_in_file(path: Path) -> list[Tool]:
    """The `Tool` values a Python file defines."""
    module = load_file(path, "tools")
    found = [value for value in vars(module).values() if isinstance(value, Tool)]
    if not found:
        raise ToolDefinitionError(f"{path} defines no tools: decorate functions with @tool")
    return list(dict.fromkeys(found))


def load_file(path: Path, what: str) -> Any:
    """Import a Python file. What goes wrong there is a `ConfigError` with file and line."""
    if path.suffix != ".py":
        raise ConfigError(f"{path} is not a Python file: {what} come from .py files")
    if not path.is_file():
        raise ConfigError(f"there is no file {path}: {what} were expected there")
    name = f"beforehand_user_{path.stem}_{abs(hash(str(path.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # decorators look the module up to resolve type hints
    try:
        spec.loader.exec_module(module)
    except ConfigError as error:
        raise type(error)(f"{_line_of(error, path)}: {error}") from None
    except SyntaxError as error:
        raise ConfigError(
            f"{error.filename or path}:{error.lineno or 0}: {error.msg}: correct the file, then try again"
        ) from error
    except (Exception, SystemExit) as error:  # a file that ends the process would end it without an error
        said = ": ".join([type(error).__name__, *filter(None, [" ".join(str(error).split())])])
        raise ConfigError(f"{_line_of(error, path)}: {said}: the {what} file could not be imported") from error
    return module


def _line_of(error: BaseException, path: Path) -> str:
    """Where in the user's file an exception came from."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if _path(f.filename).resolve() == path.resolve()]
    return f"{path}:{lines[-1]}" if lines else str(path)
