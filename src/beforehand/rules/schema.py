"""What may stand in a rule file: these types load the format, and the JSON Schema is generated from them.

A rule is one of the targets below; `target` says which, and each has its own filters and actions. Where a target has
several events, the actions that only some of them take are checked in `load.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from beforehand.frozen import Frozen

Role = Literal["user", "assistant", "tool", "reasoning", "system"]
QueueRole = Literal["user", "assistant", "tool", "reasoning"]
ChunkType = Literal["content", "reasoning", "tool_call_delta", "finish"]
ToolEvent = Literal["before", "after", "error"]
TurnEvent = Literal["before", "after"]

Name = Annotated[str, Meta(min_length=1)]
Pattern = Annotated[str, Meta(min_length=1, description="a regular expression in RE2 syntax, found anywhere in the text")]
Template = Annotated[str, Meta(description="text with {{variable}} placeholders")]
Count = Annotated[int, Meta(ge=0)]


class Written(Frozen, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Root of everything that is written in a rule file."""


# --- actions -------------------------------------------------------------------------------------


class Action(Written, tag_field="type"):
    """What a rule does when it fires. Actions run in the order they are written."""


class Log(Action, tag="log"):
    """Write a line to the logger `beforehand.rules`, at level INFO."""

    message: Template | UnsetType = UNSET


class Warn(Action, tag="warn"):
    """Write a line to the logger `beforehand.rules`, at level WARNING."""

    message: Template | UnsetType = UNSET


class Info(Action, tag="info"):
    """Write a line to the logger `beforehand.rules`, at level INFO."""

    message: Template | UnsetType = UNSET


class Debug(Action, tag="debug"):
    """Write a line to the logger `beforehand.rules`, at level DEBUG."""

    message: Template | UnsetType = UNSET


class InterruptAction(Action, tag="interrupt"):
    """Stop the reply under way and store nothing of it. `resend` asks the model again."""

    resend: bool = False


class QueueMessage(Action, tag="queue-message"):
    """Put a message before the next request. It has the origin "hook"."""

    role: QueueRole = "assistant"
    message: Template | UnsetType = UNSET


class QueueResend(Action, tag="queue-resend"):
    """Ask the model once more after this reply, with whatever is queued."""


class BlockAction(Action, tag="block"):
    """Refuse: the tool does not run, the request is not sent, the run does not begin. Who asked reads the reason."""

    reason: Template | UnsetType = UNSET
    terminate: bool = False


class AnswerAction(Action, tag="answer"):
    """Give the tool's result, or the model's reply, without running or asking it."""

    result: Any


class AskAction(Action, tag="ask"):
    """Let a person decide whether the tool runs."""

    prompt: Template


class ReplaceAction(Action, tag="replace"):
    """Put `with` in the place of what the rule matched, or of the whole where it has no regex. `argument` is a tool's."""

    with_: Any = msgspec.field(name="with")
    argument: Name | UnsetType = UNSET


class HideTools(Action, tag="hide-tools"):
    """Leave these tools (names or globs) out of the request, and block them."""

    tools: Annotated[tuple[Name, ...], Meta(min_length=1)]


class UseModel(Action, tag="use-model"):
    """Ask this model instead, for this request."""

    model: Name


class OptionValues(Written, rename=None):
    """Options of a request. What is left out stays as it is."""

    max_tokens: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    temperature: Annotated[float, Meta(ge=0, le=2)] | UnsetType = UNSET
    top_p: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    thinking_level: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"] | UnsetType = UNSET
    tool_choice: Name | UnsetType = UNSET
    stop: tuple[str, ...] | UnsetType = UNSET
    provider_params: dict[str, Any] | UnsetType = UNSET


class SetOptions(Action, tag="set-options"):
    """Change options of this request."""

    options: OptionValues


class EndAction(Action, tag="end"):
    """End the run here."""

    reason: Template | UnsetType = UNSET


ChatAction: TypeAlias = Log | Warn | Info | Debug | InterruptAction | QueueMessage | QueueResend | ReplaceAction
StreamAction: TypeAlias = ChatAction
ToolAction: TypeAlias = (
    Log
    | Warn
    | Info
    | Debug
    | InterruptAction
    | QueueMessage
    | QueueResend
    | ReplaceAction
    | BlockAction
    | AnswerAction
    | AskAction
)
RequestAction: TypeAlias = (
    Log | Warn | Info | Debug | QueueMessage | QueueResend | BlockAction | AnswerAction | HideTools | UseModel | SetOptions
)
TurnAction: TypeAlias = Log | Warn | Info | Debug | QueueMessage | QueueResend | EndAction
RunAction: TypeAlias = Log | Warn | Info | Debug | BlockAction | ReplaceAction


# --- filters -------------------------------------------------------------------------------------


class ArgumentFilter(Written):
    """What the value at a JSON pointer must be. All conditions that are given must hold; a value that is not there fits none."""

    regex: Pattern | UnsetType = UNSET
    equals: Any = UNSET
    min: float | UnsetType = UNSET
    max: float | UnsetType = UNSET


class RuleDefinition(Written, tag_field="target"):
    """What every rule may say."""

    label: str = ""
    enabled: bool = True
    regex: Pattern | UnsetType = UNSET
    patterns_from: Name | UnsetType = UNSET
    max_triggers: Count | UnsetType = UNSET
    loops: Annotated[tuple[Name, ...], Meta(min_length=1)] | UnsetType = UNSET
    order: int = 0
    timeout_ms: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    on_error: Literal["closed", "open", "abort"] = "closed"


class ChatRule(RuleDefinition, tag="chat"):
    """About every message of a conversation but those that hooks queued."""

    roles: tuple[Role, ...] = ()
    actions: tuple[ChatAction, ...] = ()


class StreamRule(RuleDefinition, tag="stream"):
    """About the text of a reply while it arrives."""

    chunks: tuple[ChunkType, ...] = ()
    actions: tuple[StreamAction, ...] = ()


class ToolRule(RuleDefinition, tag="tool"):
    """About a tool call: before it runs, after it has run, or when it failed."""

    tools: tuple[Name, ...] = ()
    event: ToolEvent = "after"
    args: dict[str, ArgumentFilter] = msgspec.field(default_factory=dict)
    actions: tuple[ToolAction, ...] = ()


class RequestRule(RuleDefinition, tag="request"):
    """About every request before it leaves."""

    actions: tuple[RequestAction, ...] = ()


class TurnRule(RuleDefinition, tag="turn"):
    """About every turn: before it begins, or after it has ended."""

    event: TurnEvent = "after"
    actions: tuple[TurnAction, ...] = ()


class RunRule(RuleDefinition, tag="run"):
    """About a run before it begins."""

    actions: tuple[RunAction, ...] = ()


AnyRule: TypeAlias = ChatRule | StreamRule | ToolRule | RequestRule | TurnRule | RunRule
AnyAction: TypeAlias = ToolAction | RequestAction | EndAction

RULES: dict[str, type[RuleDefinition]] = {
    "chat": ChatRule, "stream": StreamRule, "tool": ToolRule, "request": RequestRule, "turn": TurnRule, "run": RunRule,
}  # fmt: skip

EVENT_ACTIONS: dict[tuple[str, str], frozenset[str]] = {
    ("tool", "before"): frozenset({"block", "answer", "ask", "interrupt", "replace"}),
    ("tool", "after"): frozenset({"interrupt", "replace"}),
    ("tool", "error"): frozenset({"interrupt", "replace"}),
    ("turn", "before"): frozenset({"end"}),
    ("turn", "after"): frozenset({"end", "queue-message", "queue-resend"}),
}
"""For targets with events, the actions beside log, warn, info and debug (and, about tools, the two that queue)."""
