"""A run as a timeline: what was seen (event), who decided (hook), what ran (code), and who was asked (person).

`Timeline` turns events into rows, a `Printer` shows them. Nothing here decides anything: a timeline reads what the
events and the decision records in them say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from ..decisions import HumanAnswer, PendingApproval
from ..events import (
    AgentEnd, CustomEvent, DecisionMade, DecisionRecord, Event, Irreversible, MessageEnd, MessageRetracted, MessageUpdate,
    RequestSent, ResponseReceived, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, TurnStart,
)  # fmt: skip
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


LEGEND = (
    "event: what listeners see   hook: your functions that decide   code: your tools   person: who was asked\n"
    "done: what no decision could take back any more when the hook spoke: requests sent, characters shown, tool runs begun"
)
"""What the words of a row mean."""

MAX_WRITTEN = 200
"""So much of what a lambda has written to its console is shown."""


_BY_LAMBDA = re.compile(r"(?:^|/)(?:lambda|update)_\d+/\d+$")
"""The end of a call's id that a lambda has made, which may be asked about its parent before or after that has run."""

LAMBDA_TOOL = "sys_lambda"
"""The tool whose body is a lambda."""


class Row(NamedTuple):
    """One line of the timeline. `note` is the small print below it."""

    kind: Kind
    title: str
    text: str = ""
    note: str = ""
    tone: Tone = "plain"


class Timeline:
    """Gathers the rows of what it is told, in the order things happened, until somebody takes them.

    Showing them is left to the reader of the events, outside of the run: a closed terminal must not fail a hook.
    With `streamed=True` somebody else shows text as it arrives, and why the run ended: those have no row.
    """

    def __init__(self, *, streamed: bool = False) -> None:
        self._rows: list[Row] = []
        self._streamed = streamed
        self._seen: set[str] = set()
        self._calls: dict[str, str] = {}
        self._started: set[str] = set()
        self._by_code: set[str] = set()
        self._outcomes: dict[str, str] = {}
        self._after: dict[str, list[Row]] = {}
        self._makers: dict[type, Callable[[Any], None]] = {
            TurnStart: self._turn, MessageUpdate: self._text, MessageEnd: self._message, MessageRetracted: self._retracted,
            ToolExecutionStart: self._asked, ToolExecutionUpdate: self._update, ToolExecutionEnd: self._ended,
            DecisionMade: self._decision, AgentEnd: self._end, RequestSent: self._sent, ResponseReceived: self._received,
            CustomEvent: self._custom,
        }  # fmt: skip

    def __call__(self, event: Event) -> None:
        make = self._makers.get(type(event))
        if make is not None:
            make(event)

    def add(self, row: Row) -> None:
        """A row that no event tells of."""
        self._rows.append(row)

    def take(self) -> list[Row]:
        """The rows since the last time."""
        rows, self._rows = self._rows, []
        return rows

    def passed(self, hook: str, seam: str, call_id: str | None) -> None:
        """A hook was asked and had nothing against it. Runs keep no record of that; who wants the row says so."""
        self._hook_row(seam, call_id, Row("hook", hook, f"{seam}: lets it pass", tone="ok"))

    # --- events ---

    def _turn(self, event: TurnStart) -> None:
        loop = "" if event.loop == "main" else f" of {event.loop}"
        self.add(Row("turn", f"turn {event.number}{loop}"))

    def _text(self, event: MessageUpdate) -> None:
        if self._streamed and event.kind == "text":
            self._seen.add(event.message_id)

    def _message(self, event: MessageEnd) -> None:
        message = event.message
        if isinstance(message, ToolMessage):
            outcome = self._outcomes.get(message.tool_call_id, "ran")
            title = "model reads" if outcome == "ran" else f"model reads ({outcome})"
            self.add(Row("event", title, message.text, tone="refused" if message.is_error else "ok"))
        elif isinstance(message, AssistantMessage):
            if message.thinking:
                self.add(Row("event", "model thinks", message.thinking, tone="quiet"))
            if message.error and not self._streamed:
                self.add(Row("event", f"reply failed ({message.stop_reason})", message.error, tone="refused"))
            elif not message.error and message.text and message.id not in self._seen:
                self.add(Row("event", f"{event.origin} says", message.text))
        elif event.origin != "prompt" or not self._streamed:
            title = "user says" if event.origin == "prompt" else f"{event.origin} adds"
            self.add(Row("event", title, text_of(message.content)))

    def _retracted(self, event: MessageRetracted) -> None:
        self.add(Row("event", "taken back", f"{event.chars} characters shown no longer count", tone="refused"))

    def _asked(self, event: ToolExecutionStart) -> None:
        self._calls[event.call_id] = call = f"{event.name}({_arguments(event.args)})"
        if event.parent_call_id is None:
            title = "model asks for"
        else:
            name = self._calls.get(event.parent_call_id, "").partition("(")[0]
            if _BY_LAMBDA.search(event.call_id) and name != LAMBDA_TOOL:  # no sign that the body runs: it may be a gate
                title = f"code about {name} asks for" if name else "code asks for"
                self._by_code.add(event.call_id)
            else:
                title = f"{name or 'a tool'} asks for"
                self._body_runs(event.parent_call_id, name or "a tool")
        self.add(Row("event", title, call))

    def _update(self, event: ToolExecutionUpdate) -> None:
        self._body_runs(event.call_id, event.name)
        partial = event.partial
        self.add(Row("event", f"{event.name} reports", text_of(getattr(partial, "content", str(partial))), tone="quiet"))

    def _ended(self, event: ToolExecutionEnd) -> None:
        if event.outcome in RAN:
            self._body_runs(event.call_id, event.name)
        for row in self._after.pop(event.call_id, ()):
            self.add(row)
        self._outcomes[event.call_id] = event.outcome
        if event.parent_call_id is not None:  # the model never reads it: the tool does
            reader = "the code" if event.call_id in self._by_code else "the tool"
            title = f"{reader} reads" if event.outcome == "ran" else f"{reader} reads ({event.outcome})"
            self.add(Row("event", title, text_of(event.result.content), tone="refused" if event.is_error else "ok"))

    def _body_runs(self, call_id: str, name: str) -> None:
        """The row for a body, once, before anything that came out of it."""
        if call_id not in self._started:
            self._started.add(call_id)
            self.add(Row("code", name, "the tool runs"))

    def _decision(self, event: DecisionMade) -> None:
        record = event.record
        self._hook_row(record.seam, record.call_id, _decision_row(record))

    def _hook_row(self, seam: str, call_id: str | None, row: Row) -> None:
        # What a hook says after the body is shown after the body, which has no event of its own.
        if seam == "after_tool_call" and call_id is not None:
            self._after.setdefault(call_id, []).append(row)
        else:
            self.add(row)

    def _sent(self, event: RequestSent) -> None:
        size = len(msgspec.json.encode(event.body))
        self.add(Row("wire", "request", f"{size} bytes for {event.model} at {event.endpoint}", tone="quiet"))

    def _received(self, event: ResponseReceived) -> None:
        self.add(Row("wire", "response", f"status {event.status}", tone="quiet"))

    def _custom(self, event: CustomEvent) -> None:
        self.add(Row("event", event.name, "" if event.data is None else str(event.data)))

    def _end(self, event: AgentEnd) -> None:
        for rows in self._after.values():  # of calls that never came to an end
            self._rows += rows
        if not self._streamed:
            self.add(Row("event", "run ends", event.stop_reason, tone="ok" if event.stop_reason == "completed" else "refused"))


def answered_row(who: str, question: PendingApproval, answer: HumanAnswer) -> Row:
    """A person spoke about a call."""
    what = {"Approve": "approved", "Deny": "declined", "Edit": "approved with other arguments"}[type(answer).__name__]
    reason = getattr(answer, "reason", None)
    said = f"{what}: {reason}" if reason else what
    return Row("person", who, f"“{question.prompt}” {said}", tone="refused" if what == "declined" else "changed")


def _decision_row(record: DecisionRecord) -> Row:
    verdict = {"failed": "failed", "failed_open": "failed, let pass"}.get(record.verdict, record.verdict)
    effects = [e for e in record.effects if e not in record.verdict]
    said = f"{verdict}{''.join(f' + {e}' for e in effects)}"
    text = f"{record.seam}: {said}{f': {record.reason}' if record.reason else ''}"
    note = _small_print(record.seam, record.reversible)
    if record.console:
        note += f"; wrote: {written(record.console)}"
    return Row("hook", record.hook, text, note, TONES.get(record.verdict, "plain"))


def written(console: str) -> str:
    """What a lambda wrote to its console, shortened to one line."""
    return " ".join(console.split())[:MAX_WRITTEN]


def _small_print(seam: str, done: Irreversible) -> str:
    """What the hook was in time for, and what it was too late for."""
    spec = BY_NAME.get(seam)
    ahead = f"still ahead: {spec.irreversible}; " if spec is not None and spec.irreversible else ""
    return f"{ahead}done: {counted(done)}"


def counted(done: Irreversible) -> str:
    """What could not be taken back any more, in words."""
    counts = ((done.requests_sent, "request"), (done.characters_released, "character"), (done.tools_run, "tool run"))
    return ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in counts if number) or "nothing"


def _arguments(args: Any) -> str:
    return ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in args.items())
