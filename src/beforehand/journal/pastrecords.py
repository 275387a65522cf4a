"""What the records of a run amount to, read one after the other.

What a failure or the end of a process left half done is over, and with it what had been said on the way there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import JournalUnreadable
from ..messages import AssistantMessage, Message, ToolMessage
from ..seams import BY_NAME
from .chain import Record, chained
from .codec import message_of, result_of
from .past import BEFORE_CALLS, FOR_CALLS, INSIDE, Item, Past
from .pastcalls import PastCall, join
from .queries import no_start
from .withheld import find_message, find_prompts

LINE = frozenset({
    "turn", "took", "compacting", "instructions", "request", "reply", "direct", "ruling", "failed", "retried",
})  # fmt: skip
"""Kinds of records that stand on the run's own line."""

OF_CALLS = frozenset({"Uncertain", "Repeated"})
"""What the core says of a call that it finds under way. What else it says, it says again."""

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, AssertionError, RecursionError, msgspec.MsgspecError)
"""What a record raises whose body is not what its kind says."""


def unreadable(record: Record, error: Exception) -> JournalUnreadable:
    return JournalUnreadable(f"run {record.run_id}, record {record.n} ({record.kind}) cannot be read: {error}")


def check_chain(records: Sequence[Record], before: bytes, key: bytes | None) -> int | None:
    """The number of the first record that is not as it was written, `None` if all are. `before` is what the first follows."""
    for place, record in enumerate(records, records[0].n if records else 1):
        expected = chained(before, key, record.run_id, place, record.at, record.kind, record.body)
        if record.n != place or expected != record.hash or not expected:
            return place
        before = expected
    return None


def read_past(records: Sequence[Record], go_on: bool = False) -> Past:
    """A run's past from its records. Raises `JournalUnreadable` for records that do not make a run.

    With `go_on`, what a failure or the end of a process left half done is left out, because it will be done anew.
    """
    if not records or records[0].kind != "run":
        raise no_start(records[0].run_id if records else "?")
    reader = _Reader(records[0].data)
    for record in records[1:]:
        data = record.data
        try:
            reader.take(record.kind, data)
        except MALFORMED as error:
            raise unreadable(record, error) from None
    if go_on:
        reader.go_on()
    return reader.past


def _closes(kind: str, data: dict[str, Any]) -> bool:
    """Whether what follows this record on the line only closes the turn: it will be done anew.

    A hook has failed over a call or a result (what stands in its place, and what was said of those beside it, closes the
    batch), or was cut short; or dynamic instructions have failed.
    """
    if data.get("seam") in BEFORE_CALLS:
        return "failed" in data and "/" not in data["call"]  # what is inside another call has its place in that one's result
    if kind == "ruling":
        return "over" in data or ("failed" in data and data["seam"] == "on_message")
    return kind == "instructions" and "error" in data


class _Reader:
    """Takes one record after the other. What a failure left behind is forgotten: the run goes on from before it."""

    def __init__(self, start: dict[str, Any]) -> None:
        queued = dict(enumerate(start.get("queued", ()), 1))
        self.past = Past(start, deque(), {}, [], queued=queued, prompts=start["prompts"])
        self.hooks: dict[str, str] = start.get("hooks", {})
        """The fingerprints of those that there were in the process whose records are being read."""
        self.open_request: tuple[int, int] | None = None
        self.at_failure: tuple[int, int] | None = None
        """Where the line and the messages end that still count."""
        self.left: int | None = None
        """Where the messages begin that hooks had queued and no turn took, in a run that was about to end."""
        self.waits = (0, 0)
        """Where the line and the messages end in a run that waits. What follows refuses it, and counts once the run is over."""
        self.said_aside: list[tuple[str | None, dict[str, Any]]] = []
        """What hooks' own code has left to be known, until the ruling comes that it belongs to."""
        self.before_reply = 0
        """How many decisions had been made before the reply that is coming in."""
        self.gate = 0
        """Where the line ends with what hooks at 8 said last."""
        self.anew: Item | None = None
        """With what the line ended when the run last went on. It may be a ruling whose hooks are to be asked once more."""
        self.failing: list[dict[str, Any]] = []
        """Rulings in which a hook failed, and after which nothing was tried again yet."""
        self.taken_back = 0
        """How many characters of the reply that is coming in were retracted."""

    def take(self, kind: str, data: dict[str, Any]) -> None:
        past = self.past
        if kind == "ruling":
            data["fired_before"] = len(past.firings)
        if fired := data.get("fired"):
            past.fired.update(fired)
            past.firings.append(fired)
        if kind == "ruling":
            self._ruling(data)
        elif kind in LINE:
            self._line(kind, data)
        elif kind == "message":
            self._stored(kind, data)
        elif kind == "intent":
            data["among"] = [self.hooks]
            self._call(data["call"]).begins(data)
        elif kind == "outcome":
            self._call(data["call"]).outcome = data
            past.decisions.append((INSIDE, data["call"], data))
        elif kind == "ask":
            self._call(data["call_id"]).asks.append(data)
        elif kind == "answer":
            self._call(data["call"]).answered(data)
            past.answered.add((data["call"], data["digest"]))
        elif kind == "settled":
            self._call(data["call"]).settle(data)
        elif kind == "queued":
            past.queued[data["number"]] = data["message"]
            if "by" in data:
                past.queued_by[data["number"]] = data["by"]
        elif kind == "cleared":
            past.cleared.update(data["numbers"])
        elif kind == "released":
            past.shown[data["message"]] = past.shown.get(data["message"], 0) + data["chars"]
        elif kind == "retracted":
            past.shown.pop(data["message"], None)
            self.taken_back += data["chars"]
        elif kind == "note":
            self._note(data)
        elif kind == "suspended":
            past.suspended, past.answered = data, set()
            self.waits = len(past.line), len(past.messages)
        elif kind == "end":
            past.end, past.suspended, self.left = data, None, None
            if data.get("error") is None:  # an abort came after a failure, or in the middle of a request
                self.at_failure = self.open_request = None
        elif kind == "resumed":
            self._resumed(data)

    def _ruling(self, data: dict[str, Any]) -> None:
        past = self.past
        self._decisions(data)
        data["among"] = [self.hooks]
        if self.said_aside:
            self._take_notes(data)
        if data.get("partial"):
            self._call(data["call"]).progress.append(data)
            return
        if beside := data.get("beside"):  # about what a lambda asked, within another ruling
            if beside is not True and "failed" not in data and "over" not in data:
                self._call(beside)
                past.judged.setdefault(beside, {})[data["seam"]] = data
            return
        if "failed" in data:
            self.failing.append(data)
        find_prompts(past, data)
        if data["seam"] == "authorize_request":
            self.before_reply = len(past.decisions)
        if data["seam"] in FOR_CALLS:
            self._call(data["call"]).ruled(data)
            self._close("ruling", data)
        else:
            self._line("ruling", data)

    def _resumed(self, data: dict[str, Any]) -> None:
        past = self.past
        self.go_on()
        self.hooks = data.get("hooks", past.start.get("hooks", {}))
        past.end = past.suspended = None
        self.anew = past.line[-1] if past.line else None

    def _stored(self, kind: str, data: dict[str, Any]) -> None:
        past = self.past
        self._asked_anew(kind, data)
        if data.get("answer") and self.open_request is None:
            self.open_request = self.gate, len(past.messages)
        if data.get("left") and self.left is None:
            self.left = len(past.messages)
        past.messages.append(self._message(data))
        find_message(past, data)

    def _note(self, data: dict[str, Any]) -> None:
        """What the core says, and what hooks' own code leaves to be known."""
        past = self.past
        call_id, of, seam = data.pop("call", None), data.pop("of", None), data.pop("seam", "repair")
        past.decisions.append((seam, call_id, data))
        if seam == "compaction":
            self.failing = []  # the run has gone on without a summary
            if (asked := next((item for item in reversed(past.line) if item.kind == "compacting"), None)) is not None:
                asked.data["noted"] = True
        if seam in BY_NAME:
            self.said_aside.append((call_id, {**data, "seam": seam}))
        if call_id is not None and data["verdict"] == "Changed":
            self._call(call_id).forget_decisions()
        if call_id is not None and (data["verdict"] in OF_CALLS or seam == "lambda"):
            self._call(call_id).notes.append({**data, "seam": seam})
        if of == "reply":
            past.line.append(Item("note", {"seam": seam, "call": call_id, "decisions": [data]}))

    def _line(self, kind: str, data: dict[str, Any]) -> None:
        past = self.past
        if data.get("kind") == "direct":  # a question that a lambda asked, beside the run's own line
            if kind == "direct":
                by = data.get("by", "")
                data["among"] = [self.hooks]
                self._call(by)
                past.beside[by] = data
                asked = past.judged.pop(by, {})  # those that were asked in this process: another may have had other hooks
                past.judged[by] = {seam: said for seam, said in asked.items() if said["among"][0] is self.hooks}
            return
        item = Item(kind, data, before=len(past.messages))
        self._asked_anew(kind, data)
        if kind == "ruling" and data.get("instead") and not self._supersede(data["seam"], data["instead"]):
            return
        if "joins" in data and "again" not in data and past.line and past.line[-1].data.get("seam") == data["seam"]:
            join(past.line[-1].data, data)  # hooks that were new had their say beside those before
            return
        if kind == "request":
            self.open_request = len(past.line), len(past.messages)
            self.before_reply = len(past.decisions)
            self._shows_nothing()
        elif kind == "reply":
            data["stands"] = data.get("released", 0) - self.taken_back
            self._shows_nothing()
            judged = past.decisions[self.before_reply :]  # seam 10, which had its say after the pieces
            del past.decisions[self.before_reply :]
            self._decisions({**data, "seam": "on_chunk"})
            past.decisions += judged
            if data.get("error") is not None:  # on resume it is sent again, after what was decided before it
                self.at_failure = self.at_failure or self.open_request
            if data.get("stored"):
                item.message = past.messages[-1]
            self.open_request = None
        elif kind == "direct":
            self.open_request = None
        elif kind == "failed":
            self.at_failure = self.at_failure or (len(past.line), len(past.messages))
            self.open_request = None
        elif kind == "retried":  # the run has gone on after it, and goes over the failure as over anything else
            self.at_failure, self.failing = None, []
        past.line.append(item)
        if kind == "ruling" and data["seam"] == "authorize_request":
            self.gate = len(past.line)
        self._close(kind, data)

    def _asked_anew(self, kind: str, data: dict[str, Any]) -> None:
        """Hooks that are to be asked once more have been now, or are not there any more, and the run has gone on without them."""
        line, anew, self.anew = self.past.line, self.anew, None
        if line and "over" in (last := line[-1].data) and (
            line[-1] is anew or (kind == "ruling" and last["seam"] == data["seam"])
        ):  # fmt: skip
            line.pop()

    def _close(self, kind: str, data: dict[str, Any]) -> None:
        if self.open_request is None and _closes(kind, data):
            place = len(self.past.line) - (kind == "instructions")
            self.at_failure = self.at_failure or (place, len(self.past.messages))

    def _supersede(self, seam: str, place: int) -> bool:
        """Hooks were asked again and have failed: what was said from the ruling on that could not be used is over.

        It stands at this `place`, from the end of the line. False where something has come of it since: the process that asked
        them only went over its past.
        """
        line = self.past.line
        if place > len(line) or line[-place].data.get("seam") != seam or not line[-place].data.get("again"):
            return True
        if any(line[-n].kind != "ruling" for n in range(1, place)):
            return False
        for _ in range(place):
            line.pop()
        return True

    def _take_notes(self, data: dict[str, Any]) -> None:
        """Give a ruling the notes that the code of its hooks has made."""
        mine = [said for said in self.said_aside if said[1]["seam"] == data["seam"]]
        self.said_aside = [said for said in self.said_aside if said not in mine]
        if mine:
            data["notes"] = [{**note, "call_id": call_id} for call_id, note in mine]

    def _shows_nothing(self) -> None:
        self.past.shown.clear()
        self.taken_back = 0

    def go_on(self) -> None:
        """Forget what a failure closed, a request whose reply never came, and how a run that waits was not quite given up."""
        where = self.at_failure or self.open_request
        if self.past.suspended is not None:
            where = min(where or self.waits, self.waits)
        if where is not None:
            while len(self.past.line) > where[0]:
                item = self.past.line.pop()
                if item.kind == "reply" and isinstance(item.message, AssistantMessage) and item.data["stands"]:
                    self.past.shown[item.message.id] = item.data["stands"]
            del self.past.messages[where[1] :]
        if self.left is not None:  # they wait again: the end did not come
            del self.past.messages[self.left :]
        self.at_failure = self.open_request = self.left = None
        for ruling in self.failing:
            call = self._call(ruling["call"]) if ruling["seam"] in FOR_CALLS else None
            failed = ruling.pop("failed")
            if call is not None and ruling["seam"] in BEFORE_CALLS and not self._is_inside_one_that_is_over(ruling["call"]):
                call.outcome = None  # it has not begun, and what they say now counts
            if call is None or call.outcome is None:
                ruling["over"] = failed  # its hooks are asked again, whatever else was decided after it
            else:
                del ruling["again"]  # nobody is asked about it any more, and what others said beside it counts
        self.failing = []

    def _is_inside_one_that_is_over(self, call_id: str) -> bool:
        around = self.past.calls.get(call_id.rpartition("/")[0])
        return around is not None and around.outcome is not None

    def _call(self, call_id: str) -> PastCall:
        call = self.past.calls.get(call_id)
        if call is None:
            call = self.past.calls[call_id] = PastCall()
            if "/" in call_id:
                self._call(call_id.rpartition("/")[0]).inner.append(call_id)
        return call

    def _message(self, data: dict[str, Any]) -> Message:
        if "of" not in data:
            return message_of(data)
        outcome = self.past.calls[data["of"]].outcome
        assert outcome is not None
        result = result_of(outcome["result"])
        return ToolMessage(
            data["of"], outcome["name"], result.content, result.is_error, result.details, result.usage, "tool", outcome["outcome"]
        )

    def _decisions(self, data: dict[str, Any]) -> None:
        around = {"turn": data.get("turn", 0)}
        for decision in data.get("decisions", ()):
            self.past.decisions.append((data["seam"], data.get("call"), {**decision, **around}))
