"""What is recorded of one call, and what a run that goes on is told of it. Of calls everything is kept: they run side by side."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ..decisions import HumanAnswer
from ..messages import Message
from ..tools import ToolResult
from .codec import read_answer, result_of
from .fingerprint import may_be_new
from .hookqueue import HookQueue
from .recalled import PastRuling
from .withheld import not_run, who_answered

SAID = ("decisions", "effects", "heard", "lambdas", "among")
"""The parts of a ruling that another one about the same adds to."""


class PastCall(msgspec.Struct):
    """What is recorded of one call. `inner` are the ids of the calls made inside it, `notes` what the core said about it."""

    rulings: dict[str, deque[dict[str, Any]]] = {}
    intent: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None
    asks: list[dict[str, Any]] = []
    answers: deque[dict[str, Any]] = msgspec.field(default_factory=deque)
    settled: dict[str, Any] | None = None
    inner: list[str] = []
    notes: list[dict[str, Any]] = []
    progress: list[dict[str, Any]] = []
    """What hooks have decided about its progress, since its body began last."""
    edits: int = 0
    """How often a person has changed it. Each time the hooks are asked anew."""

    @property
    def name(self) -> str | None:
        """The tool's name, where it is known."""
        decided = [ruling for rulings in self.rulings.values() for ruling in rulings]
        return next((data["name"] for data in (self.intent, self.outcome, *self.asks, *decided) if data and "name" in data), None)

    @property
    def first_said(self) -> dict[str, Any]:
        """The first record that says who made it, where code did; else the first there is."""
        said = [*([] if self.intent is None else [self.intent]), *[data for rulings in self.rulings.values() for data in rulings]]
        return next((data for data in said if "lambda" in data), said[0] if said else {})

    def unshaped(self, number: int = 0) -> dict[str, Any] | None:
        """What the arguments were once they were valid, before hooks shaped them, as far as that is on record.

        After each edit by a person the hooks are asked again: `number` says in which of these rounds. To be asked before the
        rulings are gone over.
        """
        gate = self.ruling("before_tool_call", number)
        shaping = next((data for data in self.rulings.get("prepare_tool_call", ()) if data["round"] == number), {})
        if "args" in shaping:
            return shaping["args"]  # type: ignore[no-any-return]
        first = [gate.get("original_args"), *[asked["original_args"] for asked in self.asks[:1]]] if number == 0 else []
        later = [] if "changes" in shaping else [gate.get("args"), self.intent["args"] if self.intent and not number else None]
        return next((args for args in [*first, *later] if args is not None), None)

    def ruling(self, seam: str, number: int) -> dict[str, Any]:
        rulings = self.rulings.get(seam, ())
        return rulings[number] if number < len(rulings) else {}

    def begins(self, data: dict[str, Any]) -> None:
        """Its body begins, or does so again: what is told of its progress is judged anew then."""
        self.intent, self.progress = data, []

    def answered(self, data: dict[str, Any]) -> None:
        """A person has said something about it."""
        self.answers.append(data)
        self.edits += data["answer"]["is"] == "Edit"

    def ruled(self, data: dict[str, Any]) -> None:
        """The hooks of a seam have been asked about it. Shapers may be new since a person was asked: their first ruling is about
        what the person made of it, then."""
        data["round"] = self.edits
        rulings = self.rulings.get(data["seam"])
        if not rulings:
            self.rulings[data["seam"]] = deque([data])
            return
        last, args = rulings[-1], data.get("args")
        lost = next((n for n, then in enumerate(rulings) if who_answered(then) and args in (None, then.get("args"))), None)
        if "joins" in data and "again" not in data:
            if "over" in last:
                rulings.pop()  # some that were new had failed, and have been asked again
            self._name_lambdas(joined := rulings[data["joins"]])
            join(joined, data)
        elif "joins" not in data and lost is not None:
            rulings[lost] = data  # its hooks have been asked again since then
        elif "over" in last:
            rulings[-1] = data  # so have these
        else:
            rulings.append(data)

    def _name_lambdas(self, ruling: dict[str, Any]) -> None:
        """An older record says how many lambdas there had been by a ruling. Those that join it are added by their numbers."""
        if isinstance(upto := ruling.get("lambdas"), int):
            counts = [then.get("lambdas", 0) for rulings in self.rulings.values() for then in rulings if then is not ruling]
            before = max([count for count in counts if isinstance(count, int) and count <= upto], default=0)
            ruling["lambdas"] = [*range(before + 1, upto + 1)]

    def settle(self, data: dict[str, Any]) -> None:
        """A person has said what became of it. That a lambda has been told that this is not known counts no more."""
        self.settled, self.outcome = data, None
        self.rulings.pop("after_tool_call", None)

    def forget_decisions(self) -> None:
        """They were about another call. What people have answered is bound to what they were shown."""
        self.rulings.clear()
        self.asks.clear()
        self.edits = 0


def join(ruling: dict[str, Any], data: dict[str, Any]) -> None:
    """Hooks that were new had their say beside those before."""
    if isinstance(upto := ruling.get("lambdas"), int):  # an older record: so many had been asked by then
        ruling["lambdas"] = [*range(1, upto + 1)]
    ruling.update({name: [*ruling.get(name, ()), *data[name]] for name in SAID if name in data})
    for name in ("fired", "changes"):
        if name in data:
            ruling[name] = {**ruling.get(name, {}), **data[name]}
    ruling["hooks"] = list((Counter(ruling["hooks"]) | Counter(data["hooks"])).elements())


def new_beside(ruling: dict[str, Any], hooks: Sequence[Any]) -> list[Any]:
    """Those of these hooks that were not there when the others had their say."""
    more = Counter([hook.name for hook in hooks]) - Counter(ruling["hooks"])
    return [hook for hook in hooks if hook.name in more or may_be_new(ruling["among"], hook)]


class RecallOfCalls:
    """The part of a run's past that is asked for by call."""

    def __init__(self, past: Any) -> None:
        self.past = past
        self.from_hooks = HookQueue()
        self._used: dict[str, dict[str, Any]] = {}
        """What gates had said about calls, by call, where it has been used."""
        self._edits: Counter[str] = Counter()
        """How often people have changed a call, as far as it has been gone over."""
        self._joins: dict[str | None, int] = {}
        """Beside which of a call's rulings hooks have their say now that are new. On the run's own line there is one."""

    def past_call(self, call_id: str) -> PastCall | None:
        return None if self.past is None else self.past.calls.get(call_id)

    def past_ruling_of_call(self, run: Any, seam: str, call_id: str) -> dict[str, Any] | None:
        call = self.past_call(call_id)
        if call is None:
            return None
        rulings = call.rulings.get(seam)
        while rulings and (seam != "prepare_tool_call" or rulings[0]["round"] <= self._edits[call_id]):
            data = rulings.popleft()
            if "over" in data and (call.outcome is not None or (call.intent is not None and seam != "after_tool_call")):
                continue  # hooks that had failed were gone when it began, or was settled
            if call.outcome is not None or not (answered := who_answered(data)):
                if seam == "before_tool_call" and "again" not in data:
                    self._used[call_id] = data
                return data
            if gone := answered - run.hooks.names_at("before_tool_call"):
                return not_run(data, min(gone))
            break  # what follows is about what a person made of the call
        # A hook that is new since then comes too late for a call that has begun, and a shaper for one that gates have ruled on.
        over = call.outcome is not None or (call.intent is not None and seam != "after_tool_call")
        return {} if over or (seam == "prepare_tool_call" and call.rulings.get("before_tool_call")) else None

    def has_begun(self, call_id: str) -> None:
        """The call is gone over as one that has begun: whatever people had made of it by then."""
        if (call := self.past_call(call_id)) is not None:
            self._edits[call_id] = call.edits

    def not_asked(self, call: Any, hooks: Sequence[Any]) -> list[Any]:
        """Those of these gates that were not there when others ruled on a call, which has not begun.

        Of more hooks of one name than there were, nobody can say which is new: all of them. Those that nobody has named are told
        by what they are.
        """
        if not self._used:
            return []
        past, used = self.past_call(call.id), self._used.pop(call.id, None)
        if past is None or used is None or past.intent is not None or past.outcome is not None:
            return []
        if any(["over" not in ruling for ruling in past.rulings["before_tool_call"]]):
            return []  # a person has changed the call since
        past.rulings["before_tool_call"].clear()
        return new_beside(used, hooks)

    def joins(self, call: Any) -> None:
        """Gates that are new are asked about a call now: their ruling has its place beside the one on record."""
        self._joins[call.id] = call.edits

    def past_queue(self, call: PastCall) -> list[Message]:
        """The messages that code queued which a tool ran."""
        return [self.from_hooks.read(effect).message for effect in (call.outcome or {}).get("queued", ())]  # type: ignore[attr-defined]

    def past_progress(self, run: Any, call: PastCall, call_id: str) -> PastRuling:
        """What hooks had decided about the progress of a call whose body does not run again."""
        told = [("after_tool_call", call_id, data) for data in call.progress]
        decided, effects = self._said(run, told)  # type: ignore[attr-defined]
        return PastRuling({}, [], effects, decided)

    def settlement(self, call_id: str) -> ToolResult | None:
        """What a person has said about a call whose outcome was not known."""
        call = self.past_call(call_id)
        return result_of(call.settled["result"]) if call is not None and call.settled is not None else None

    def past_answer(self, call_id: str, args_digest: str) -> HumanAnswer | None:
        """What a person has answered about this call with these arguments."""
        call = self.past_call(call_id)
        while call is not None and call.answers:
            data = call.answers.popleft()
            if data.get("digest") == args_digest:
                self._edits[call_id] += data["answer"]["is"] == "Edit"
                return read_answer(data["answer"])
        return None
