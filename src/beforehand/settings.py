"""What a project file can say, block by block. `config` reads these; the parts that act on them take them from here."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .errors import ConfigError
from .frozen import Frozen
from .limits import Limits, Recovery

MAX_TIMEOUT_MS = 300_000
MAX_LOOPS = 16
MAX_TARGETS = 64
CODE_TOOLS = ("sys_lambda", "sys_code")
"""Tools with which the model runs code in the workspace. They are off unless a project file declares them."""
LOOP_TOOLS = ("loop_send", "loop_list")
"""Tools with which loops reach each other. An agent with loops has them."""

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
LoopName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$",
        extra={"expected": "a loop's name (at most 32 of a-z, 0-9, _ and -, the first a letter or a digit)"},
    ),
]
"""Of an inner loop. "main" is the loop that always exists."""
TimeoutMs: TypeAlias = Annotated[int, Meta(ge=1_000, le=MAX_TIMEOUT_MS)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Unbounded: TypeAlias = Literal["none"]
"""Lifts a bound; TOML has no null."""

Scope = Literal["all", "main", "loops"]

_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)


def split_source(text: object) -> tuple[str, str]:
    """Path and function of "lib/x.py:gate". Without a function it is `main`. Raises `ConfigError`."""
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f'a lambda is named by its file and function, such as "lib/x.py:gate", not {text!r}')
    text = text.strip()
    path, colon, function = text.rpartition(":")
    if not colon or not _IDENTIFIER.match(function):
        path, function = text, "main"
    if not path.endswith((".py", ".ts", ".js")):
        raise ConfigError(f"{text!r} names no lambda: its file must end in .py, .ts or .js")
    return path, function


class PreLlmHook(Frozen, kw_only=True, forbid_unknown_fields=True):
    """A lambda that makes the request of every conversational call, just before it is sent.

    `source` is a file in the workspace and a function in it: "lib/policy.ts:transform"; without a function `main`.
    `loops` and `include_main` belong to the scope "loops" alone.
    """

    source: Text
    scope: Scope = "all"
    loops: Annotated[tuple[LoopName, ...], Meta(min_length=1, max_length=MAX_TARGETS)] = ()
    include_main: bool = False
    timeout_ms: TimeoutMs | None = None

    def selects(self, loop: str) -> bool:
        """Whether the hook runs in this loop."""
        if self.scope == "loops":
            return self.include_main if loop == "main" else loop in self.loops
        return self.scope == "all" or loop == "main"

    def timeout(self, limits: Limits) -> float:
        """Seconds one call may take."""
        bounds = (self.timeout_ms, limits.execution_timeout_ms, MAX_TIMEOUT_MS)
        return min([bound for bound in bounds if bound is not None]) / 1000


class LimitSettings(Frozen, kw_only=True, forbid_unknown_fields=True):
    """The bounds of runs and lambdas. `"none"` lifts a bound; a field that is left out keeps the default of `Limits`."""

    execution_timeout_ms: Positive = 60_000
    """The longest a `pre_llm_hook` may take. 300,000 is the most that counts."""
    max_turns: Positive | Unbounded | None = None
    max_resends: Count | Unbounded | None = None
    max_resends_per_hook: Count | Unbounded | None = None
    max_hold: Count | Unbounded | None = None
    """Characters."""
    abort_grace: Seconds | Unbounded | None = None
    """Seconds, like the next two timeouts."""
    slow_hook_ms: Seconds | Unbounded | None = None
    hook_timeout: Seconds | Unbounded | None = None
    tool_timeout: Seconds | Unbounded | None = None
    context_tokens: Positive | Unbounded | None = None
    max_result_chars: Positive | Unbounded | None = None

    def of_runs(self) -> Limits:
        """The bounds of a run."""
        given: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        return Limits(**{name: None if value == "none" else value for name, value in given.items() if value is not None})


class CodeExecution(Frozen, kw_only=True, forbid_unknown_fields=True):
    """Which methods of the `adf` bridge are on. One that is off answers `DISABLED`, whatever `[[tools]]` say."""

    model_invoke: bool = True
    sys_lambda: bool = True
    task_resolve: bool = True
    loop_inject: bool = True
    emit_event: bool = True
    authorize_file: bool = True
    restricted_methods: tuple[Text, ...] = ("task_resolve",)
    """Methods that only authorised code may call. A list that is given replaces this one."""


class RecoverySettings(Frozen, kw_only=True, forbid_unknown_fields=True):
    """What happens after a failed call: so many attempts more, each after twice the wait, give or take a fifth."""

    auto_retry: bool = True
    max_attempts: Count = 5
    base_delay_ms: Count = 15_000
    max_delay_ms: Count = 300_000

    def of_runs(self) -> Recovery:
        """What follows a failed turn."""
        return Recovery(**{name: getattr(self, name) for name in self.__struct_fields__})


class ContextSettings(Frozen, kw_only=True, forbid_unknown_fields=True):
    """When history is compacted: at so many tokens. `"none"`: never by itself."""

    compact_threshold: Positive | Unbounded = 100_000

    @property
    def tokens(self) -> int | None:
        return None if self.compact_threshold == "none" else self.compact_threshold


class LoopSettings(Frozen, kw_only=True, forbid_unknown_fields=True):
    """An inner loop: a stream of turns with a history of its own.

    `tools` names those it may use (globs will do), of the enabled ones that are not restricted. `instructions` and `model`
    are the agent's unless given. `description` is what other loops are told about it.
    """

    name: LoopName
    description: str = ""
    instructions: str = ""
    tools: Annotated[tuple[Text, ...], Meta(max_length=64)] = LOOP_TOOLS
    model: Text | None = None
    enabled: bool = True


class ToolSettings(Frozen, kw_only=True, forbid_unknown_fields=True):
    """What the owner says about a tool.

    | enabled | restricted | the model | authorised code | other code |
    |---------|------------|-----------|-----------------|------------|
    | no      | no         | off       | off             | off        |
    | no      | yes        | off       | free            | off        |
    | yes     | no         | free      | free            | free       |
    | yes     | yes        | approval  | free            | refused    |
    """

    name: Text
    enabled: bool = True
    visible: bool = True
    """Whether the model is shown the tool. One that is hidden still runs if it is called."""
    restricted: bool = False
    replay: Literal["never"] | None = None
    """"never": a call whose outcome is unknown is not run again, whatever the tool says. Nothing here can allow it."""


GRANTED: ContextVar[str | None] = ContextVar("beforehand_granted", default=None)
"""The id of the call that authorised code is making just now: nobody is asked about a restricted tool then. It says nothing
about calls that come out of that one."""


class ProjectSettings(Frozen, kw_only=True, forbid_unknown_fields=True):
    """A whole project file. Paths are relative to the file."""

    model: Text | None = None
    """Such as "openai:NAME"."""
    base_url: Text | None = None
    instructions: str = ""
    hooks_dir: Text | None = None
    """A folder of rule files. It wins over the environment."""
    workspace: Text | None = None
    """The folder that holds lambdas."""
    pre_llm_hook: PreLlmHook | None = None
    limits: LimitSettings = LimitSettings()
    code_execution: CodeExecution = CodeExecution()
    recovery: RecoverySettings = RecoverySettings()
    context: ContextSettings = ContextSettings()
    loops: Annotated[tuple[LoopSettings, ...], Meta(max_length=MAX_LOOPS)] = ()
    tools: tuple[ToolSettings, ...] = ()

    def limits_of_runs(self) -> Limits:
        """The bounds of a run, with the threshold at which its history is compacted."""
        return self.limits.of_runs().with_(compact_at=self.context.tokens)

    def tool(self, name: str) -> ToolSettings | None:
        """What is said about this tool. `None`, nothing: then it is enabled, visible and not restricted."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def loop(self, name: str) -> LoopSettings | None:
        return next((loop for loop in self.loops if loop.name == name), None)


def to_dict(settings: Frozen) -> dict[str, object]:
    """Settings as plain data, such as `adf.sys_get_config` shows."""
    plain: dict[str, object] = msgspec.to_builtins(settings)
    return plain
