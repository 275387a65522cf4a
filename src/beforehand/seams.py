"""THE page: every seam of a run, what a hook gets there and what it may return.

A seam stands in front of something that cannot be taken back. *Shape* seams may replace a value, *gate* seams judge
the final one; shape comes before gate, so whatever a gate allowed is exactly what happens. Decorators, checks, the
matrix test, the JSON codec and the generated documentation all come from `SEAMS` at the end of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from .contexts import (
    CallDraft, CallOutcome, CallRecord, Cause, Chunk, Compaction, Context, FinishedTurn, IncomingMessage, KeyRequest,
    MessagesView, NextTurn, OutgoingRequest, PendingCall, ProviderCall, RequestKind, RequestPlan, RunInfo, RunStart, Seen,
    TurnStart, digest_of, request_value,
)  # fmt: skip
from .decisions import (
    Answer, Ask, Block, Continue, Drop, Effect, End, Hold, Interrupt, Queue, Replace, Resend, Steer, Verdict,
)  # fmt: skip
from .frozen import Frozen
from .history import digest_messages

Kind = Literal["shape", "gate", "shape+gate", "save"]

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
        shown = [
            f"Replace({', '.join(f'{f}=' for f in fields)})" if v is Replace else _SHAPES[v]
            for v, fields in self.verdicts.items()
        ]
        return shown + [_SHAPES[e] for e in self.effects]


_SHAPES: dict[type, str] = {
    Block: "Block(reason)", End: "End(reason)", Answer: "Answer(value)", Hold: "Hold(n)", Drop: "Drop()",
    Interrupt: "Interrupt(reason, resend=, keep=)", Ask: "Ask(prompt, options=)", Steer: "Steer(feedback)",
    Continue: "Continue()", Queue: "Queue(message)", Resend: "Resend()",
}  # fmt: skip


def _messages(context: Any) -> Any:
    return digest_messages(context.messages)


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
        number=6, name="before_provider_call", kind="shape", context=ProviderCall, value=lambda c: request_value(c.request),
        verdicts={Replace: ("request",)},
        when="before every request: the complete request",
    ),
    SeamSpec(
        number=7, name="get_api_key", kind="shape", context=KeyRequest, value=None,
        verdicts={Replace: ("key",)},
        when="before every request: the key for it",
    ),
    SeamSpec(
        number=8, name="authorize_request", kind="gate", context=OutgoingRequest, value=lambda c: request_value(c.request),
        verdicts={Block: (), Answer: ()}, ranks=(Block, Answer),
        when="before every request, also compaction and direct ones", irreversible="the request leaves",
    ),
    SeamSpec(
        number=9, name="on_chunk", kind="shape+gate", context=Chunk, value=lambda c: c.pending,
        verdicts={Replace: ("text", "hold"), Hold: (), Drop: (), Interrupt: ()},
        ranks=(Interrupt, Drop, Hold), stops=(Interrupt, Drop),
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

__all__ = [
    "BY_NAME", "SEAMS", "CallDraft", "CallOutcome", "CallRecord", "Cause", "Chunk", "Compaction", "Context", "FinishedTurn",
    "IncomingMessage", "KeyRequest", "MessagesView", "NextTurn", "OutgoingRequest", "PendingCall", "ProviderCall", "RequestKind",
    "RequestPlan", "RunInfo", "RunStart", "SeamSpec", "Seen", "TurnStart", "digest_of",
]  # fmt: skip
