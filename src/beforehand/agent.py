"""`Agent`: an immutable plan, safe to share between any number of conversations."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import UNSET, UnsetType

from .assembly import listed, make_plan, project_arguments, watch
from .conversation import Conversation
from .decisions import HumanAnswer
from .emitter import Emitter, Listener
from .errors import ConfigError, FrozenError, UsageError
from .eventstream import EventStream, FoundStream
from .hooks.hook import Hook
from .innerloops import Loops, supervise
from .limits import Limits, Recovery
from .messages import Message, Options, Price, ThinkingLevel
from .models.base import Model
from .observer import Observer
from .results import RunResult
from .plan import Instructions, Loop, OnAsk, Plan
from .prompts import Prompt
from .settings import PreLlmHook
from .subagent import delegate
from .tools import Tool

if TYPE_CHECKING:
    from pathlib import Path

    from .config import Project
    from .workspace import Workspace

_LIMITS, _OPTIONS = Limits(), Options()  # frozen, so that all agents may share them


class Agent:
    """A model with instructions, tools, hooks and limits. Nothing about it changes after it is made.

    `model` is a name such as "openai:gpt-4o-mini" (with `base_url` for any compatible endpoint) or a `Model`. `instructions`
    are text, or text and functions of the run whose text is appended for each request. `hooks` are hooks, objects with
    decorated methods, or paths: of Python files, rule files, or folders of rule files. Without a path for rules, the folder
    that BEFOREHAND_HOOKS_DIR (or LLM_CHAT_HOOKS_DIR) names is loaded. `on_ask` answers `Ask` while the run waits; without it
    the run suspends. `prices` by model name make `run.cost`. `recovery` says what follows a failed turn; without one the run
    ends. `None` is none; where nothing is said, an agent with a `pre_llm_hook` has `Recovery(auto_retry=False)`, so that the
    model can read that the hook failed. `loops` are its inner loops. `journal` is the path of a file in which every run is
    recorded, so that `resume` can go on with it; `durability`, `journal_key` and `journal_raw` are as in
    `beforehand.journal.Journal`. `shadow_hooks` are the hooks you may want to have instead: they are asked and never obeyed,
    and what they would have decided otherwise is in `result.shadow`. `pre_llm_hook` is a block such as
    `{"source": "lib/policy.ts:transform", "scope": "main"}`: a lambda in the folder `workspace` that makes each conversational
    request. `project` is what `from_project` has read. Raises a `ConfigError` for anything that can never work.
    """

    __slots__ = ("_listeners", "_loops", "_settings", "plan")
    plan: Plan
    _listeners: Emitter
    _loops: Loops
    _settings: dict[str, Any]

    def __init__(
        self,
        *,
        model: str | Model,
        base_url: str | None = None,
        api_key: str | None = None,
        instructions: str | Instructions | list[str | Instructions] = "",
        tools: Iterable[Tool | Callable[..., Any]] = (),
        hooks: Iterable[Hook | Any] = (),
        limits: Limits = _LIMITS,
        options: Options = _OPTIONS,
        thinking_level: ThinkingLevel | None = None,
        tool_mode: str = "parallel",
        listeners: Iterable[Listener | Observer] = (),
        on_ask: OnAsk | None = None,
        prices: Mapping[str, Price] | None = None,
        recovery: Recovery | UnsetType | None = UNSET,
        loops: Iterable[Loop] = (),
        name: str = "agent",
        journal: Any = None,
        durability: str = "full",
        journal_key: bytes | None = None,
        journal_raw: bool = False,
        shadow_hooks: Iterable[Hook | Any] = (),
        workspace: str | Path | Workspace | None = None,
        pre_llm_hook: Mapping[str, Any] | PreLlmHook | None = None,
        project: Project | None = None,
    ) -> None:
        settings: dict[str, Any] = {
            "limits": limits, "options": options, "thinking_level": thinking_level, "tool_mode": tool_mode, "on_ask": on_ask,
            "prices": prices, "recovery": recovery, "name": name, "journal": journal, "durability": durability,
            "journal_key": journal_key, "journal_raw": journal_raw, "shadow_hooks": shadow_hooks, "workspace": workspace,
            "pre_llm_hook": pre_llm_hook, "project": project,
        }  # fmt: skip
        settings["loops"] = tuple(listed(loops, "loops"))
        tools, hooks = tuple(listed(tools, "tools")), tuple(listed(hooks, "hooks"))
        listeners = tuple(listed(listeners, "listeners"))
        plan = make_plan(
            model=model,
            base_url=base_url,
            api_key=api_key,
            instructions=instructions,
            tools=tools,
            hooks=hooks,
            settings=settings,
        )
        keep = {
            "model": model, "base_url": base_url, "api_key": api_key, "instructions": instructions, "tools": tools,
            "hooks": hooks, "listeners": listeners, **settings,
        }  # fmt: skip
        heard = Emitter(listeners)
        for slot, value in (("plan", plan), ("_listeners", heard), ("_settings", keep), ("_loops", Loops(plan, heard))):
            object.__setattr__(self, slot, value)

    @classmethod
    def from_project(
        cls, path: str | Path, *, tools: Iterable[Tool | Callable[..., Any]] = (), hooks: Iterable[Hook | Any] = (), **more: Any
    ) -> Agent:
        """The agent a project file describes; `path` is the file, or a folder that has one.

        `tools` and `hooks` are code, which no file holds; the file's rules come after `hooks`. `more` are arguments of
        `Agent` that count instead of what the file says. An edit of `pre_llm_hook` counts from the next request on, all
        else when the agent is made. Raises `ConfigError`: every mistake with its line.
        """
        arguments = {**project_arguments(path, tools, hooks), **more}
        if arguments["model"] is None:
            raise ConfigError(f'{path}: the field \'model\' is missing: write model = "openai:NAME", or pass model=')
        if not isinstance(arguments["model"], str) and "base_url" not in more:
            arguments["base_url"] = None  # a model that is passed has its own
        return cls(**arguments)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenError(f"an Agent does not change: make another with agent.replace({name}=...)")

    def __repr__(self) -> str:
        plan = self.plan
        tools, hooks = [tool.name for tool in plan.tools], [hook.name for hook in self.hooks]
        return f"Agent({plan.name!r}, model={plan.model!r}, {tools=}, {hooks=})"

    def replace(self, **changes: Any) -> Agent:
        """Another agent that differs in these arguments."""
        return Agent(**{**self._settings, **changes})

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Every hook, in the order of registration."""
        return self.plan.hooks.current.hooks  # type: ignore[no-any-return]

    def get_json_hooks(self) -> list[dict[str, Any]]:
        """The rules loaded from rule files: label, target, source file and line, state ("active" or "spent"), firings."""
        rules = self.plan.hooks.rules
        return [] if rules is None else rules.describe()

    @contextlib.asynccontextmanager
    async def watch_rules(self) -> AsyncIterator[None]:
        """While this is open, edited rule files are loaded anew.

        Runs that start afterwards take the new set, runs in flight keep theirs. An edit with a mistake changes nothing and
        is logged. `ConfigError` if this agent has no rule files.
        """
        watcher = watch(self)
        task = asyncio.ensure_future(watcher.run())
        try:
            yield
        finally:
            watcher.stop()
            await task

    # --- running ---

    def conversation(
        self,
        messages: Iterable[Message] = (),
        *,
        steering_mode: str = "one-at-a-time",
        follow_up_mode: str = "one-at-a-time",
        id: str | None = None,
    ) -> Conversation:
        """A talk with its own history and queues. The modes say how many queued messages one turn takes: one, or "all".

        `id` names the talk in traces.
        """
        return Conversation(self.plan, messages, self._listeners, steering_mode, follow_up_mode, id)

    def loop(self, which: str | Loop) -> Conversation:
        """The agent's inner loop of this name: a talk of its own, the same one each time. A `Loop` makes one.

        A conversation has loops of its own (`talk.loop`), so that two talks with one agent never meet in a loop.
        """
        return self._loops.open(which)

    async def run(
        self, prompt: Prompt, *, check: bool = True, run_id: str | None = None, deps: Any = None, limits: Limits | None = None
    ) -> RunResult:
        """Answer one prompt, in a conversation of its own.

        Raises a `RunError` with `.result` when the run ends in an error, unless `check=False`: then it is `result.error`.
        """
        talk = self.conversation()
        going = talk.run(prompt, check=check, run_id=run_id, deps=deps, limits=limits)
        return await (supervise(talk, going) if self.plan.loops else going)

    def run_sync(
        self, prompt: Prompt, *, check: bool = True, run_id: str | None = None, deps: Any = None, limits: Limits | None = None
    ) -> RunResult:
        """`run` for code without an event loop. Closes its own connections, and no other loop's."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UsageError("run_sync() was called inside a running event loop: use `await agent.run(...)` there")

        async def once() -> RunResult:
            try:
                return await self.run(prompt, check=check, run_id=run_id, deps=deps, limits=limits)
            finally:
                await self.aclose()

        return asyncio.run(once())

    async def resume(
        self, run_id: str, answers: Mapping[str, HumanAnswer] | None = None, *, check: bool = True, deps: Any = None,
        strict: bool = False,
    ) -> RunResult:  # fmt: skip
        """Go on with a run from the journal, in this process or another one than it began in.

        What is recorded is not done again: hooks are not asked twice, replies not paid twice, finished tools not run twice.
        `answers` by call id are a person's; a waiting call without one is refused, but with `answers=None` it stays open,
        or is put to `on_ask`.
        A finished run gives its recorded result. One that ended in an error tries again what failed. If tools or hooks have
        changed since it began, that is logged, or with `strict=True` a `RunChanged` error. Raises `UnknownRun`, `RunBusy`.
        A run of an inner loop goes on in a loop of that name.
        """
        talk = self.conversation()
        where = await talk.of_recorded(run_id)
        going = where.resume_recorded(run_id, answers, check=check, deps=deps, strict=strict)
        return await (supervise(talk, going) if self.plan.loops else going)

    def stream_resume(
        self, run_id: str, answers: Mapping[str, HumanAnswer] | None = None, *, deps: Any = None, strict: bool = False,
        events: Iterable[str] = (),
    ) -> EventStream:  # fmt: skip
        """`resume` as an async iterator of events, from where the record ends."""
        talk = self.conversation()
        around = functools.partial(supervise, talk) if self.plan.loops else None

        async def find() -> EventStream:
            where = await talk.of_recorded(run_id)
            return where.stream_recorded(run_id, answers, deps=deps, strict=strict, events=events, around=around)

        return FoundStream(find)

    def stream(
        self,
        prompt: Prompt,
        *,
        run_id: str | None = None,
        deps: Any = None,
        limits: Limits | None = None,
        events: Iterable[str] = (),
    ) -> EventStream:
        """`run` as an async iterator of events. Leaving the loop aborts the run; its error is raised at the end."""
        talk = self.conversation()
        around = functools.partial(supervise, talk) if self.plan.loops else None
        return talk.stream(prompt, run_id=run_id, deps=deps, limits=limits, events=events, around=around)

    def as_tool(self, name: str, description: str, *, inherit: bool = True, events: bool = False) -> Tool:
        """This agent as a tool with one argument, `prompt`.

        The calling agent's hooks at 8 to 13 govern it too, before its own; `inherit=False` waives that. `events=True`
        passes its events on to the caller's listeners, with `parent_call_id` set.
        """
        return delegate(self, name, description, inherit=inherit, events=events)

    # --- closing ---

    async def aclose(self) -> None:
        """Close the models' connections, the journal, and what hooks and tools keep waiting. It can be used again afterwards."""
        models = dict.fromkeys([self.plan.model, *self.plan.resolved.values(), *self._loops.models()])
        parts = [hook.fn for hook in self.hooks] + [getattr(tool.unguarded, "__self__", None) for tool in self.plan.tools]
        closes = {close for part in parts if (close := getattr(part, "close_with_agent", None)) is not None}
        async with contextlib.AsyncExitStack() as closing:  # what cannot be closed leaves nothing else open
            if self.plan.journal is not None:
                closing.push_async_callback(asyncio.to_thread, self.plan.journal.close)
            for close in [*closes, *[model.aclose for model in reversed(models)]]:
                closing.push_async_callback(close)

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


__all__ = ["Agent", "Plan"]
