"""A run as a timeline: what was seen (event), who decided (hook), what ran (code), and whom we asked (person).

`Timeline` turns events into rows; `Printer` shows rows, with rich or as plain lines. Nothing here decides anything:
a timeline is a listener, and reads what the events and the decision records say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ..decisions import HumanAnswer, PendingApproval
from ..events import (
    AgentEnd, CustomEvent, DecisionMade, DecisionRecord, Event, Irreversible, MessageEnd, MessageRetracted, RequestSent,
    ResponseReceived, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, TurnStart,
)  # fmt: skip
from ..frozen import Frozen
from ..messages import AssistantMessage, ToolMessage, text_of
from ..seams import BY_NAME

Kind = Literal["turn", "event", "hook", "code", "person", "wire"]
Tone = Literal["plain", "refused", "changed", "ok", "quiet"]

RAN = frozenset({"ran", "failed", "timed_out"})
"""Outcomes of a call whose body ran."""

TONES: dict[str, Tone] = {
    "Block": "refused", "Interrupt": "refused", "Drop": "refused", "End": "refused", "Steer": "refused", "failed": "refused",
    "failed_open": "refused", "Ask": "changed", "Replace": "changed", "Answer": "changed", "Hold": "changed",
}  # fmt: skip


class Row(Frozen):
    """One line of the timeline. `note` is the small print below it."""

    kind: Kind
    title: str
    text: str = ""
    note: str = ""
    tone: Tone = "plain"


class Timeline:
    """A listener that hands each row to `show`, in the order things happened.

    With `says=False` the model's own text is left out, for where it is shown elsewhere.
    """

    def __init__(self, show: Callable[[Row], None], *, says: bool = True) -> None:
        self._show, self._says = show, says
        self._calls: dict[str, str] = {}
        self._started: set[str] = set()
        self._outcomes: dict[str, str] = {}
        self._after: dict[str, list[Row]] = {}
        self._makers: dict[type, Callable[[Any], None]] = {
            TurnStart: self._turn, MessageEnd: self._message, MessageRetracted: self._retracted, ToolExecutionStart: self._asked,
            ToolExecutionUpdate: self._update, ToolExecutionEnd: self._ended, DecisionMade: self._decision, AgentEnd: self._end,
            RequestSent: self._sent, ResponseReceived: self._received, CustomEvent: self._custom,
        }  # fmt: skip

    def __call__(self, event: Event) -> None:
        make = self._makers.get(type(event))
        if make is not None:
            make(event)

    def passed(self, hook: str, seam: str, call_id: str | None) -> None:
        """A hook was asked and had nothing against it. Runs keep no record of that; who wants the row says so."""
        self._hook_row(seam, call_id, Row("hook", hook, f"{seam}: lets it pass", tone="ok"))

    def answered(self, who: str, question: PendingApproval, answer: HumanAnswer) -> None:
        """A person spoke about a call."""
        what = {"Approve": "approved", "Deny": "declined", "Edit": "approved, with other arguments"}[type(answer).__name__]
        reason = getattr(answer, "reason", None)
        self._show(Row("person", who, f"“{question.prompt}” {what}{f': {reason}' if reason else ''}", "", "changed"))

    # --- events ---

    def _turn(self, event: TurnStart) -> None:
        loop = "" if event.loop == "main" else f" of {event.loop}"
        self._show(Row("turn", f"turn {event.number}{loop}"))

    def _message(self, event: MessageEnd) -> None:
        message = event.message
        if isinstance(message, ToolMessage):
            outcome = self._outcomes.get(message.tool_call_id, "ran")
            title = "model reads" if outcome == "ran" else f"model reads ({outcome})"
            self._show(Row("event", title, message.text, tone="refused" if message.is_error else "ok"))
        elif isinstance(message, AssistantMessage):
            if message.error:
                self._show(Row("event", message.stop_reason, message.error, tone="refused"))
            elif message.text and (self._says or event.origin != "model"):
                self._show(Row("event", "model says" if event.origin == "model" else f"{event.origin} says", message.text))
        elif event.origin != "prompt" or self._says:
            title = "user says" if event.origin == "prompt" else f"{event.origin} adds"
            self._show(Row("event", title, text_of(message.content)))

    def _retracted(self, event: MessageRetracted) -> None:
        self._show(Row("event", "taken back", f"{event.chars} characters shown no longer count", tone="refused"))

    def _asked(self, event: ToolExecutionStart) -> None:
        self._calls[event.call_id] = call = f"{event.name}({_arguments(event.args)})"
        if event.parent_call_id is None:
            title = "model asks for"
        else:
            title = f"{self._calls.get(event.parent_call_id, 'a tool').partition('(')[0]} asks for"
            self._body_runs(event.parent_call_id)
        self._show(Row("event", title, call))

    def _update(self, event: ToolExecutionUpdate) -> None:
        self._body_runs(event.call_id)
        partial = event.partial
        self._show(Row("event", f"{event.name} reports", text_of(getattr(partial, "content", str(partial))), tone="quiet"))

    def _ended(self, event: ToolExecutionEnd) -> None:
        if event.outcome in RAN:
            self._body_runs(event.call_id)
        for row in self._after.pop(event.call_id, ()):
            self._show(row)
        self._outcomes[event.call_id] = event.outcome
        if event.parent_call_id is not None:  # the model never reads it: the tool does
            title = "the tool reads" if event.outcome == "ran" else f"the tool reads ({event.outcome})"
            self._show(Row("event", title, text_of(event.result.content), tone="refused" if event.is_error else "ok"))

    def _body_runs(self, call_id: str) -> None:
        """The row for a body, once, before anything that came out of it."""
        if call_id not in self._started:
            self._started.add(call_id)
            self._show(Row("code", self._calls.get(call_id, call_id).partition("(")[0], "the tool runs"))

    def _decision(self, event: DecisionMade) -> None:
        record = event.record
        self._hook_row(record.seam, record.call_id, _decision_row(record))

    def _hook_row(self, seam: str, call_id: str | None, row: Row) -> None:
        # What a hook says after the body is shown after the body, which has no event of its own.
        if seam == "after_tool_call" and call_id is not None:
            self._after.setdefault(call_id, []).append(row)
        else:
            self._show(row)

    def _sent(self, event: RequestSent) -> None:
        self._show(Row("wire", "request", f"{event.model} at {event.endpoint}: {len(msgspec.json.encode(event.body))} bytes", tone="quiet"))

    def _received(self, event: ResponseReceived) -> None:
        self._show(Row("wire", "response", f"status {event.status}", tone="quiet"))

    def _custom(self, event: CustomEvent) -> None:
        self._show(Row("event", event.name, "" if event.data is None else str(event.data)))

    def _end(self, event: AgentEnd) -> None:
        self._show(Row("event", "run ends", event.stop_reason, tone="ok" if event.stop_reason == "completed" else "refused"))


def _decision_row(record: DecisionRecord) -> Row:
    verdict = {"failed": "failed", "failed_open": "failed, let pass"}.get(record.verdict, record.verdict)
    effects = [e for e in record.effects if e not in record.verdict]
    said = f"{verdict}{''.join(f' + {e}' for e in effects)}"
    text = f"{record.seam}: {said}{f': {record.reason}' if record.reason else ''}"
    return Row("hook", record.hook, text, _small_print(record.seam, record.reversible), TONES.get(record.verdict, "plain"))


def _small_print(seam: str, done: Irreversible) -> str:
    """What the hook was still in time for, and what it was too late for."""
    spec = BY_NAME.get(seam)
    in_time = f"in time: before {spec.irreversible}; " if spec is not None and spec.irreversible else ""
    return f"{in_time}already done: {counted(done)}"


def counted(done: Irreversible) -> str:
    """What could not be taken back any more, in words."""
    return ", ".join((
        _many(done.requests_sent, "request", "sent"),
        _many(done.characters_released, "character", "shown"),
        _many(done.tools_run, "tool", "run"),
    ))  # fmt: skip


def _many(number: int, noun: str, what: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'} {what}"


def _arguments(args: Any) -> str:
    return ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in args.items())
