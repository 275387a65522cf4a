"""What a project file can say, block by block. `config` reads these; the parts that act on them take them from here."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .frozen import Frozen
from .limits import Limits

MAX_TIMEOUT_MS = 300_000
MAX_LOOPS = 16
MAX_TARGETS = 64

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
LoopName: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}\Z")]
"""Small letters, digits, `_` and `-`, at most 32 of them. "main" is the loop that always exists."""
TimeoutMs: TypeAlias = Annotated[int, Meta(ge=1_000, le=MAX_TIMEOUT_MS)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Unbounded: TypeAlias = Literal["none"]
"""Lifts a bound; TOML has no null."""

Scope = Literal["all", "main", "loops"]


class PreLlmHook(Frozen, kw_only=True):
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

    def timeout(self, limits: LimitSettings) -> float:
        """Seconds one call may take."""
        longest = min(limits.execution_timeout_ms, MAX_TIMEOUT_MS)
        return (longest if self.timeout_ms is None else min(self.timeout_ms, longest)) / 1000


class LimitSettings(Frozen, kw_only=True):
    """The bounds of runs and lambdas. `"none"` lifts a bound; a field that is left out keeps the default of `Limits`."""

    execution_timeout_ms: Positive = 60_000
    """The longest a lambda may take; nothing takes more than 300,000."""
    max_turns: Positive | Unbounded | None = None
    max_resends: Count | Unbounded | None = None
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
        given = {name: getattr(self, name) for name in Limits.__struct_fields__}
        return Limits(**{name: None if value == "none" else value for name, value in given.items() if value is not None})


class CodeExecution(Frozen, kw_only=True):
    """Which methods of the `adf` bridge are on. One that is off answers `DISABLED`, whatever `[[tools]]` say."""

    model_invoke: bool = True
    sys_lambda: bool = True
    task_resolve: bool = True
    loop_inject: bool = True
    emit_event: bool = True
    authorize_file: bool = True
    restricted_methods: tuple[Text, ...] = ("task_resolve",)
    """Methods that only authorised code may call. A list that is given replaces this one."""


class Recovery(Frozen, kw_only=True):
    """What happens after a failed call: so many attempts more, each after twice the wait, give or take a fifth."""

    auto_retry: bool = True
    max_attempts: Count = 5
    base_delay_ms: Count = 15_000
    max_delay_ms: Count = 300_000


class ContextSettings(Frozen, kw_only=True):
    """When history is compacted: at so many tokens. `"none"`: never by itself."""

    compact_threshold: Positive | Unbounded = 100_000


class LoopSettings(Frozen, kw_only=True):
    """An inner loop: a stream of turns with a history of its own. `tools` names those it may use, of the enabled ones."""

    name: LoopName
    instructions: str = ""
    tools: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    model: Text | None = None
    """`None`: the agent's."""
    enabled: bool = True


class ToolSettings(Frozen, kw_only=True):
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


class ProjectSettings(Frozen, kw_only=True):
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
    recovery: Recovery = Recovery()
    context: ContextSettings = ContextSettings()
    loops: Annotated[tuple[LoopSettings, ...], Meta(max_length=MAX_LOOPS)] = ()
    tools: tuple[ToolSettings, ...] = ()

    def tool(self, name: str) -> ToolSettings:
        """What is said about this tool: one that is not named is enabled, visible and not restricted."""
        return next((t for t in self.tools if t.name == name), ToolSettings(name=name))

    def loop(self, name: str) -> LoopSettings | None:
        return next((loop for loop in self.loops if loop.name == name), None)


def to_dict(settings: Frozen) -> dict[str, object]:
    """Settings as plain data, such as `adf.sys_get_config` shows."""
    plain: dict[str, object] = msgspec.to_builtins(settings)
    return plain
