"""THE page: every seam of a run, what a hook gets there and what it may return.

A seam stands in front of something that cannot be taken back. *Shape* seams may replace a value, *gate* seams judge
the final one; shape comes before gate, so whatever a gate allowed is exactly what happens. Decorators, checks, the
matrix test, the JSON codec and the generated documentation all come from `SEAMS` at the end of this file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from .decisions import (
    Answer, Ask, Block, Continue, Drop, Effect, End, Hold, Interrupt, Queue, Replace, Resend, Steer, Verdict,
)  # fmt: skip
from .errors import FrozenError
from .events import ChunkKind, Outcome, StopReason
from .frozen import Frozen, FrozenDict
from .history import HistoryView, estimate_tokens
from .messages import AssistantMessage, Content, Message, Origin, Request, ThinkingLevel, ToolMessage, Usage, text_of  # fmt: skip
from .signals import AbortSignal

Kind = Literal["shape", "gate", "shape+gate", "save"]
Cause = Literal["tools", "steering", "follow_up", "continue"]
RequestKind = Literal["turn", "compaction", "direct"]

_sorted_json = msgspec.json.Encoder(order="sorted", enc_hook=str).encode


def digest_of(value: Any) -> str:
    """SHA-256, in hex, of `value` as canonical JSON (sorted keys), or of its `repr` where JSON cannot hold it."""
    try:
        text = _sorted_json(value)
    except (TypeError, ValueError, RecursionError, OverflowError):
        text = repr(value).encode("utf-8", "backslashreplace")
    return hashlib.sha256(text).hexdigest()


# --- what hooks get ------------------------------------------------------------------------------


class RunInfo:
    """What a hook or a tool may know of its run: a read-only view that is always current.

    `calls` are the tool calls let through so far, `elapsed` is in seconds, `cost` in the currency of the price table
    (0.0 without one), `signal` is set by an abort, `deps` is what the caller passed as `run(..., deps=)`.
    """

    __slots__ = ("_run", "parent_call_id")
    _run: Any
    parent_call_id: str | None

    def __init__(self, run: Any, parent_call_id: str | None) -> None:
        object.__setattr__(self, "_run", run)
        object.__setattr__(self, "parent_call_id", parent_call_id)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenError(f"RunInfo.{name} is frozen")

    @property
    def run_id(self) -> str:
        return self._run.run_id  # type: ignore[no-any-return]

    @property
    def loop(self) -> str:
        return self._run.loop  # type: ignore[no-any-return]

    @property
    def turn(self) -> int:
        return self._run.turn  # type: ignore[no-any-return]

    @property
    def usage(self) -> Usage:
        return self._run.usage  # type: ignore[no-any-return]

    @property
    def elapsed(self) -> float:
        return self._run.elapsed  # type: ignore[no-any-return]

    @property
    def cost(self) -> float:
        return self._run.cost  # type: ignore[no-any-return]

    @property
    def deps(self) -> Any:
        return self._run.deps

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        return tuple([CallRecord(call.id, call.name, call.outcome) for call in self._run.calls.values()])

    @property
    def signal(self) -> AbortSignal:
        return self._run.signal  # type: ignore[no-any-return]


class CallRecord(Frozen):
    """One tool call of the run so far. `outcome` is `None` while it is under way."""

    call_id: str
    name: str
    outcome: Outcome | None = None


class Context(Frozen):
    """What requests of this run are made from: system text, messages and the tools that may run."""

    system: str
    messages: Sequence[Message]
    tools: tuple[Any, ...]


class Seen(Frozen):
    """Root of what hooks get. `run` describes the run."""

    run: RunInfo


class RunStart(Seen):
    messages: tuple[Message, ...]
    history: HistoryView


class TurnStart(Seen):
    number: int
    history: HistoryView
    incoming: tuple[Message, ...]


class RequestPlan(Seen):
    context: Context
    model: Any
    thinking_level: ThinkingLevel


class MessagesView(Seen):
    messages: Sequence[Message]
    model: Any

    def estimate_tokens(self) -> int:
        """About four characters a token. O(1) for an untouched history."""
        return estimate_tokens(self.messages)


class ProviderCall(Seen):
    request: Request
    model: Any
    enabled_tools: tuple[str, ...]


class KeyRequest(Seen):
    provider: str
    endpoint: str


class OutgoingRequest(Seen):
    request: Request
    endpoint: str
    model: Any
    kind: RequestKind

    @property
    def digest(self) -> str:
        """SHA-256 of the request as canonical JSON."""
        return digest_of(_request_value(self.request))


class Chunk(Seen):
    """`pending` is this channel's text that this hook has not released yet, `delta` what is new in it.

    `released` counts the characters this hook has let pass; `final` says that no more will come.
    """

    kind: ChunkKind
    delta: str
    pending: str
    released: int
    final: bool
    message_id: str
    call_id: str | None = None


class IncomingMessage(Seen):
    message: Message
    origin: Origin
    released_chars: int
    history: HistoryView


class CallDraft(Seen):
    """A call on its way to the gates. `args` are validated and canonical, `raw_args` what the model wrote."""

    name: str
    tool: Any
    args: FrozenDict
    raw_args: str
    call_id: str
    message: AssistantMessage | None
    context: Sequence[Message]
    batch: tuple[str, ...]


class PendingCall(CallDraft, kw_only=True):
    """A call as it will run. `original_args` are the model's, before any hook changed them."""

    original_args: FrozenDict

    @property
    def args_digest(self) -> str:
        """SHA-256 of the final arguments as canonical JSON: what an approval is bound to."""
        return digest_of(self.args)


class CallOutcome(Seen, kw_only=True):
    call: PendingCall
    outcome: Outcome
    content: Content
    details: Any = None
    structured_content: Any = None
    is_error: bool = False
    usage: Usage | None = None
    terminate: bool = False
    duration: float = 0.0
    partial: bool = False

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def args(self) -> FrozenDict:
        return self.call.args

    @property
    def call_id(self) -> str:
        return self.call.call_id


class FinishedTurn(Seen):
    """`message` is `None` when the turn ended before a reply was stored."""

    number: int
    message: AssistantMessage | None
    tool_results: tuple[ToolMessage, ...]
    context: Context
    new_messages: tuple[Message, ...]


class NextTurn(FinishedTurn, kw_only=True):
    cause: Cause
    model: Any
    thinking_level: ThinkingLevel
    add_messages: tuple[Message, ...] = ()


class Compaction(Seen):
    """`messages` would be replaced by a summary, `kept` would stay. Sizes are estimated tokens."""

    messages: tuple[Message, ...]
    kept: tuple[Message, ...]
    tokens: int
    threshold: int | None


# --- the table -----------------------------------------------------------------------------------


class SeamSpec(Frozen, kw_only=True):
    """One seam. `verdicts` maps each declared verdict to the `Replace` fields it takes (empty for the others).

    `ranks` lists refusals strongest first; `stops` are those that are final at once. `guards` says what a failing hook
    must not let pass: the whole run, one call, or a compaction. `value` picks what a decision's digest is taken of.
    """

    number: int
    name: str
    kind: Kind
    context: type[Seen]
    verdicts: dict[type[Verdict], tuple[str, ...]]
    value: Callable[[Any], Any] | None
    guards: Literal["run", "call", "compaction"] = "run"
    ranks: tuple[type[Verdict], ...] = ()
    stops: tuple[type[Verdict], ...] = ()
    when: str = ""
    irreversible: str = ""

    @property
    def effects(self) -> tuple[type[Effect], ...]:
        return (Queue, Resend) if 8 <= self.number <= 14 else ()

    @property
    def by_tool(self) -> bool:
        """Whether hooks here may be confined to tools."""
        return 11 <= self.number <= 13

    @property
    def inherited(self) -> bool:
        """Whether sub-agents and inner loops pass their parent's hooks here."""
        return 8 <= self.number <= 13

    def forms(self) -> list[str]:
        """What a hook may return here, as one writes it."""
        shown = [f"Replace({', '.join(f'{f}=' for f in fields)})" if v is Replace else _SHAPES[v] for v, fields in self.verdicts.items()]
        return shown + [_SHAPES[e] for e in self.effects]


_SHAPES: dict[type, str] = {
    Block: "Block(reason)", End: "End(reason)", Answer: "Answer(value)", Hold: "Hold(n)", Drop: "Drop()",
    Interrupt: "Interrupt(reason, resend=, keep=)", Ask: "Ask(prompt, options=)", Steer: "Steer(feedback)",
    Continue: "Continue()", Queue: "Queue(message)", Resend: "Resend()",
}  # fmt: skip


def _request_value(request: Request) -> Any:
    return {"system": request.system, "messages": list(request.messages), "tools": request.tools, "options": request.options}


def _messages(context: Any) -> Any:
    return list(context.messages)


def _outcome_value(outcome: CallOutcome) -> Any:
    return [outcome.content, outcome.details, outcome.structured_content, outcome.is_error]


def _turn_value(turn: FinishedTurn) -> Any:
    return [turn.message, turn.tool_results]


_TURN_UPDATE = ("context", "model", "thinking_level")
_RESULT = ("content", "details", "structured_content", "is_error", "usage", "terminate")

SEAMS: tuple[SeamSpec, ...] = (
    SeamSpec(
        number=1, name="before_run", kind="shape+gate", context=RunStart, value=_messages,
        verdicts={Replace: ("messages",), Block: ()}, ranks=(Block,), stops=(Block,),
        when="once, before anything of the run",
    ),
    SeamSpec(
        number=2, name="before_turn", kind="gate", context=TurnStart, value=lambda c: list(c.incoming),
        verdicts={End: ()}, ranks=(End,),
        when="before every turn, before its messages enter the history",
    ),
    SeamSpec(
        number=3, name="prepare_request", kind="shape", context=RequestPlan, value=lambda c: c.context.system,
        verdicts={Replace: (*_TURN_UPDATE, "once")},
        when="before every request: which model, which context; stays for the run unless `once`",
    ),
    SeamSpec(
        number=4, name="transform_context", kind="shape", context=MessagesView, value=_messages,
        verdicts={Replace: ("messages",)},
        when="before every request: what this request carries, never stored",
    ),
    SeamSpec(
        number=5, name="convert_to_llm", kind="shape", context=MessagesView, value=_messages,
        verdicts={Replace: ("messages",)},
        when="before every request: turns custom messages into ones a model knows; without a hook they are dropped",
    ),
    SeamSpec(
        number=6, name="before_provider_call", kind="shape", context=ProviderCall, value=lambda c: _request_value(c.request),
        verdicts={Replace: ("request",)},
        when="before every request: the complete request",
    ),
    SeamSpec(
        number=7, name="get_api_key", kind="shape", context=KeyRequest, value=None,
        verdicts={Replace: ("key",)},
        when="before every request: the key for it",
    ),
    SeamSpec(
        number=8, name="authorize_request", kind="gate", context=OutgoingRequest, value=lambda c: _request_value(c.request),
        verdicts={Block: (), Answer: ()}, ranks=(Block, Answer),
        when="before every request, also compaction and direct ones", irreversible="the request leaves",
    ),
    SeamSpec(
        number=9, name="on_chunk", kind="shape+gate", context=Chunk, value=lambda c: c.pending,
        verdicts={Replace: ("text", "hold"), Hold: (), Drop: (), Interrupt: ()}, ranks=(Interrupt, Drop, Hold), stops=(Interrupt, Drop),
        when="for every piece of streamed text, reasoning or tool arguments", irreversible="text is shown",
    ),
    SeamSpec(
        number=10, name="on_message", kind="shape+gate", context=IncomingMessage, value=lambda c: c.message,
        verdicts={Replace: ("message",), Interrupt: ()}, ranks=(Interrupt,), stops=(Interrupt,),
        when="for every message, whoever it is from", irreversible="the history holds it",
    ),
    SeamSpec(
        number=11, name="prepare_tool_call", kind="shape", context=CallDraft, value=lambda c: c.args, guards="call",
        verdicts={Replace: ("args",)},
        when="for every tool call with valid arguments; new ones are validated again",
    ),
    SeamSpec(
        number=12, name="before_tool_call", kind="gate", context=PendingCall, value=lambda c: c.args, guards="call",
        verdicts={Block: (), Ask: (), Steer: (), Answer: (), Interrupt: ()}, ranks=(Block, Interrupt, Ask, Steer, Answer),
        when="for every tool call, with the arguments that will be used", irreversible="the tool runs",
    ),
    SeamSpec(
        number=13, name="after_tool_call", kind="shape", context=CallOutcome, value=_outcome_value, guards="call",
        verdicts={Replace: _RESULT, Interrupt: ()}, ranks=(Interrupt,),
        when="for every call that ran, failed, timed out or was answered", irreversible="the model will read it",
    ),
    SeamSpec(
        number=14, name="finish_turn", kind="gate", context=FinishedTurn, value=_turn_value,
        verdicts={End: (), Continue: ()}, ranks=(End, Continue),
        when="after every turn, also failed and aborted ones",
    ),
    SeamSpec(
        number=15, name="after_turn", kind="save", context=FinishedTurn, value=_turn_value,
        verdicts={},
        when="after every turn, once `turn_end` is out: save progress here",
    ),
    SeamSpec(
        number=16, name="prepare_next_turn", kind="shape", context=NextTurn, value=_turn_value,
        verdicts={Replace: (*_TURN_UPDATE, "add_messages")},
        when="between two turns, only if another follows",
    ),
    SeamSpec(
        number=17, name="before_compaction", kind="shape+gate", context=Compaction, value=_messages, guards="compaction",
        verdicts={Answer: (), Block: ()}, ranks=(Block, Answer), stops=(Block,),
        when="before old messages are replaced by a summary", irreversible="history is gone",
    ),
)  # fmt: skip

BY_NAME: dict[str, SeamSpec] = {spec.name: spec for spec in SEAMS}

__all__ = ["BY_NAME", "SEAMS", "CallRecord", "Context", "RunInfo", "SeamSpec", "Seen", "StopReason", "digest_of"]
