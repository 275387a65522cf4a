"""What listeners see. Events observe: a listener gets a frozen value and its failure is never felt by the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from .frozen import EMPTY_DICT, Frozen, FrozenDict
from .messages import Message, Origin

Outcome = Literal[
    "ran", "answered", "blocked", "steered", "cancelled", "invalid", "not_found",
    "truncated", "aborted", "timed_out", "failed", "uncertain", "pending",
]  # fmt: skip
ChunkKind = Literal["text", "thinking", "tool_call"]
StopReason = Literal[
    "completed", "ended", "blocked", "interrupted", "aborted", "suspended", "max_turns", "resend_limit", "length", "error",
]  # fmt: skip


class Event(Frozen, kw_only=True):
    """Common to all events. `parent_call_id` is the tool call inside which this happened, if any."""

    run_id: str
    loop: str = "main"
    turn: int = 0
    parent_call_id: str | None = None
    type: ClassVar[str] = ""


class AgentStart(Event):
    type: ClassVar[str] = "agent_start"


class TurnStart(Event):
    type: ClassVar[str] = "turn_start"
    number: int


class MessageStart(Event):
    """A message begins. For a streamed reply it is still empty."""

    type: ClassVar[str] = "message_start"
    message: Message
    origin: Origin


class MessageUpdate(Event):
    """Text that every hook has let pass: append `delta`. A tool call's arguments come as one delta."""

    type: ClassVar[str] = "message_update"
    message_id: str
    kind: ChunkKind
    delta: str
    call_id: str | None = None


class MessageRetracted(Event):
    """The `chars` characters of this message that were shown no longer count."""

    type: ClassVar[str] = "message_retracted"
    message_id: str
    chars: int


class MessageEnd(Event):
    """The message is in the history, in this form."""

    type: ClassVar[str] = "message_end"
    message: Message
    origin: Origin


class ToolExecutionStart(Event):
    """A call is announced, with its raw arguments. It has not run, and may never run."""

    type: ClassVar[str] = "tool_execution_start"
    call_id: str
    name: str
    args: FrozenDict


class ToolExecutionUpdate(Event):
    type: ClassVar[str] = "tool_execution_update"
    call_id: str
    name: str
    partial: Any


class ToolExecutionEnd(Event):
    """`outcome` says what became of the call, `result` is what the model will read (a `ToolResult`)."""

    type: ClassVar[str] = "tool_execution_end"
    call_id: str
    name: str
    result: Any
    outcome: Outcome
    is_error: bool


class DecisionMade(Event):
    """A hook decided, failed, or was let pass in spite of failing: a `DecisionRecord`."""

    type: ClassVar[str] = "decision"
    record: DecisionRecord


class TurnEnd(Event):
    type: ClassVar[str] = "turn_end"
    message: Message | None
    tool_results: Sequence[Message]


class AgentEnd(Event):
    """The run is over. `messages` are all that it added to the history."""

    type: ClassVar[str] = "agent_end"
    messages: Sequence[Message]
    stop_reason: StopReason


class HistoryCompacted(Event):
    """A summary, `message`, has taken the place of the messages `removed`, about `tokens` long. `kept` stayed behind it."""

    type: ClassVar[str] = "compacted"
    message: Message
    removed: Sequence[Message]
    kept: int
    tokens: int


class RequestSent(Event):
    """Opt-in: a request left. Carries no key."""

    type: ClassVar[str] = "request_sent"
    endpoint: str
    model: str
    body: Any


class ResponseReceived(Event):
    """Opt-in: the endpoint answered with these headers."""

    type: ClassVar[str] = "response_received"
    status: int
    headers: FrozenDict = EMPTY_DICT


class ProviderEvent(Event):
    """Opt-in: one raw event of the provider's stream."""

    type: ClassVar[str] = "provider_event"
    data: Any


class CustomEvent(Event):
    """An application's own event; `name` begins with "custom."."""

    name: str
    data: Any = None

    @property
    def type(self) -> str:  # type: ignore[override]
        return self.name


class Irreversible(Frozen, gc=False):
    """What could no longer be taken back at some moment of a run."""

    requests_sent: int = 0
    characters_released: int = 0
    tools_run: int = 0


class DecisionRecord(Frozen, kw_only=True):
    """One decision of one hook.

    `verdict` is the decision's name, "failed" (the hook failed and `on_error` closed or aborted) or "failed_open".
    `digest` is the SHA-256 of the judged value as canonical JSON; `duration` is in seconds; `reversible` is what had
    already become irreversible when the hook spoke. `console` is what a lambda wrote meanwhile, shortened.
    """

    hook: str
    where: str
    seam: str
    verdict: str
    reason: str | None
    digest: str | None
    duration: float
    reversible: Irreversible
    run_id: str
    loop: str = "main"
    turn: int = 0
    call_id: str | None = None
    parent_call_id: str | None = None
    effects: tuple[str, ...] = ()
    on_error: str = "closed"
    console: str | None = None


EVENT_TYPES: dict[str, type[Event]] = {
    cls.type: cls
    for cls in (
        AgentStart, TurnStart, MessageStart, MessageUpdate, MessageRetracted, MessageEnd, ToolExecutionStart,
        ToolExecutionUpdate, ToolExecutionEnd, DecisionMade, TurnEnd, AgentEnd, HistoryCompacted, RequestSent,
        ResponseReceived, ProviderEvent,
    )
}  # fmt: skip

OPT_IN: frozenset[str] = frozenset({"request_sent", "response_received", "provider_event"})
"""Delivered only to listeners that name them."""
