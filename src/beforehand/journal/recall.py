"""What the journal tells a run that goes on: what has been decided, replied and done already.

`line` are the records on the run's own line that are still to be gone over, in order. What is known of calls is in
`pastcalls.py`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ..decisions import Effect, Interrupt
from ..events import DecisionRecord
from ..messages import NO_USAGE, Message, Usage
from ..queues import Queues
from ..seams import SEAMS
from ..tools import ToolResult
from .aside import Names, Told, recall_lambdas, recall_question, spent
from .codec import message_of, read, read_changes, read_decision, read_error, read_verdict, result_of
from .firings import Firings
from .past import BEFORE_ANSWER, Item, Past
from .pastcalls import RecallOfCalls, new_beside
from .recalled import PastAnswer, PastReply, PastRuling
from .withheld import Intake

_NOTHING: deque[Item] = deque()

AFTER_TAKING = frozenset(spec.name for spec in SEAMS if 3 <= spec.number <= 9 or spec.name == "before_compaction")
"""Seams that come once a turn has taken in what it takes."""

SHAPES_REQUEST = frozenset(spec.name for spec in SEAMS if 3 <= spec.number <= 6)

JOINED = frozenset({"authorize_request", "on_message", "before_compaction"})
"""Seams on the run's own line at which hooks that are new are asked about what others had let pass, while it has not happened."""

ENDS_TURN = frozenset({"before_turn", "authorize_request"})
"""Seams at which a refusal means that the request never leaves, so that nobody new is asked about it."""

TELLING = frozenset({"changes", "heard", "effects", "notes", "decisions", "lambdas", "fired", "again", "failed"})
"""The parts of a recorded ruling that make it more than that its hooks were asked. Most have none."""


class Recall(RecallOfCalls):
    """A run's recorded past, while the run goes over it. `live` says that the record has ended."""

    past: Past | None

    rehearsal = False
    """Whether the run only goes over its past, so that other hooks can be asked about it."""

    def __init__(self, past: Past | None) -> None:
        super().__init__(past)
        self.live = past is None
        self.names = Names(past)
        self.intake = Intake()
        self.inside: Mapping[str, list[DecisionRecord]] = {}
        """What was decided in the runs of sub-agents, by the call in which they were made."""
        self.firings = Firings()
        self._asked_again: tuple[str, int] | None = None
        """The seam on the run's own line whose hooks are asked anew, because the record cannot say what they decided, and where
        that ruling stands on the line, from its end."""
        self._noted = True
        """Whether it is on record what came of the summary that is being made."""
        self._let_go: dict[str, Any] | None = None
        """What hooks had said of what is to happen now: the request that is to leave, the message that is to be stored."""
        self._summing = False
        """Whether one is, that is on record."""
        self._left: list[Message] = []
        self._numbered: dict[int, tuple[int, Message]] = {}
        self._requeued = False

    @property
    def will_be_heard(self) -> bool:
        """Whether there are listeners, who hear of nothing while the run goes over its past."""
        return False

    @property
    def line(self) -> deque[Item]:
        """What is still to be gone over on the run's own line."""
        return _NOTHING if self.live or self.past is None else self.past.line

    def _next(self, kind: str) -> dict[str, Any] | None:
        """The next record on the run's own line, if it is of this kind. Rulings nobody asks for any more are passed over then."""
        line = self.line
        for place, item in enumerate(line):
            if item.kind == kind:
                for _ in range(place + 1):
                    line.popleft()
                return item.data
            if item.kind != "ruling":
                return None
        return None

    def refill(self, run: Any) -> None:
        """Put the messages that the next recorded turn took from the queues back into them, and no others.

        Where no recorded turn takes anything more, everything that waits is in the queues again.
        """
        self.from_hooks.arrange(run.hook_queue)
        if self.live or self._requeued:
            return
        for queue in (run.queues.steering, run.queues.follow_up):
            self._left += queue  # what the turn before took, and did not come to
            queue.clear()
        began = False
        to_judge: float = math.inf  # how many messages hooks have yet to judge before the first turn looks into the queues
        taken: list[int | None] = []
        for item in self.line:
            if item.kind == "turn" and began:
                return  # an interrupt ended the attempt, and what the next turn took had not come by then
            if item.kind in ("turn", "took"):
                self._put_back(run.queues, item.data)
                if item.kind == "took" or item.data["cause"] is not None:
                    return  # others take all they take as they begin
                began, taken = True, item.data.get("queued", taken)
                to_judge = item.data.get("incoming", to_judge)
            elif item.kind == "failed" and not began:
                self._put_back(run.queues, item.data)
                return
            elif item.kind != "ruling" or item.data["seam"] in AFTER_TAKING:
                return
            elif began and item.data["seam"] == "on_message":
                interrupted = any([verdict["is"] == "Interrupt" for verdict, *_ in item.data.get("heard", ())])
                to_judge = -1 if interrupted else to_judge - 1
        if to_judge < 0:
            return  # an interrupt, or what a hook queued: the turn had looked into the queues by then, and they were empty
        self._requeued = True
        self.requeue(run, taken)

    def taken_in(self, run: Any) -> None:
        """The turn has taken in what it began with, and goes on with what hooks have queued about that."""
        self.intake.over()
        self.from_hooks.arrange(run.hook_queue)

    def _put_back(self, queues: Queues, data: dict[str, Any]) -> None:
        for written, number in zip_longest(data.get("took", ()), data.get("queued", ())):
            if number is not None and any([self._number_of(m) == number for m in (*queues.steering, *queues.follow_up)]):
                continue  # the turn has it already, and a hook interrupted it before it came to this one
            message = self._queued(number, written)
            left = next((m for m in self._left if (m == message if number is None else self._number_of(m) == number)), None)
            if left is not None:
                self._left = [m for m in self._left if m is not left]
                message = left  # the turn before, which failed, has it still
            if number is not None:
                self._numbered[id(message)] = number, message
            (queues.steering if message.origin == "steer" else queues.follow_up).append(message)

    def _queued(self, number: int | None, written: dict[str, Any]) -> Message:
        """A message that a turn took from the queues."""
        assert self.past is not None
        return message_of(self.past.queued.get(number, written) if number else written)

    def _number_of(self, message: Message) -> int | None:
        number, _ = self._numbered.get(id(message), (None, None))
        return number

    def is_recorded_prompt(self, message: Message) -> bool:
        """Whether this is a prompt of a run that goes on: one that came out of a queue is in none any more."""
        return self.past is not None and self._number_of(message) is None and self.intake.is_prompt(message)

    def past_cause(self) -> str | None:
        """Why the turn that is next on record follows, if one is: what waited then may have been taken back since."""
        for item in self.line:
            if item.kind == "turn" or "cause" in item.data:
                return item.data["cause"]  # type: ignore[no-any-return]
            if item.kind != "ruling":
                break
        return None

    def requeue(self, run: Any, taken: Sequence[int | None] = ()) -> None:
        """Nothing more: what waited is not asked for where nothing goes on."""

    # --- rulings ---

    def is_answered(self) -> bool:
        """Whether it is on record what came of the request that is being prepared: its reply, a refusal, a failure, a summary."""
        if self._summing and self._noted:
            return True
        return any(item.is_answer for item in self.line)  # the line may be long

    def _answer(self) -> str | None:
        """How the request that is being prepared was answered: with a "reply", or "direct"."""
        after = next((item.kind for item in self.line if item.kind not in BEFORE_ANSWER), None)
        return after if after in ("reply", "direct") else None

    def past_ruling(self, run: Any, seam: str, call_id: str | None) -> PastRuling | None:
        """What the hooks of this seam decided about this, if they have been asked."""
        if call_id is not None:
            data = self.past_ruling_of_call(run, seam, call_id)
        else:
            data = self._past_ruling_on_line(run, seam, len(run.history) - run.first_message)
        again = data is not None and data.get("again") and "failed" not in data
        if call_id is None:
            self._asked_again = (seam, len(self.line) + 1) if again and "over" not in data else None  # type: ignore[operator]
        if data is None or (again and not self.line):
            return None
        if TELLING.isdisjoint(data):
            return PastRuling({}, [], [], [])
        inside, queued = self._said(run, self._lambdas(run, call_id, data))  # rules count on from what they fired there
        decided, effects = self._said(run, [(seam, call_id, data)])
        return self._as_ruled(run, data, effects + queued, decided + inside)

    def _said(self, run: Any, rulings: Iterable[Told]) -> tuple[list[DecisionRecord], list[Effect]]:
        """What was decided and queued in these rulings. Rules that fired have fired."""
        decided: list[DecisionRecord] = []
        effects: list[Effect] = []
        for seam, call_id, data in rulings:
            if data.get("fired"):
                self._restore_counts(run, data["fired"])
            around = {"run_id": run.run_id, "loop": run.loop, "turn": run.turn, "seam": seam, "call_id": call_id}
            decided += [read_decision(said, **around) for said in (*data.get("notes", ()), *data.get("decisions", ()))]
            effects += [self.from_hooks.read(effect) for effect in data.get("effects", ())]
        return decided, effects

    def _as_ruled(self, run: Any, data: dict[str, Any], effects: list[Effect], decided: list[DecisionRecord]) -> PastRuling:
        return PastRuling(
            read_changes(data.get("changes", {}), run),
            [(read_verdict(v), v_hook, v_where) for v, v_hook, v_where in data.get("heard", ())],
            effects, decided,
            data.get("again", False), read_error(data["failed"]) if "failed" in data else None,
        )

    def _lambdas(self, run: Any, about: str | None, data: dict[str, Any]) -> list[Told]:
        """The rulings about what lambdas did who had a say in this one. Those that are asked again do it over."""
        if "lambdas" not in data:
            return []
        if data.get("again") and "failed" not in data and not (data["seam"] == "get_api_key" and self.is_answered()):
            return []
        assert self.past is not None
        about = run.parent_call_id if about is None else about
        return recall_lambdas(run, self, about, data["lambdas"], data.get("seam") == "after_tool_call")

    def _past_ruling_on_line(self, run: Any, seam: str, stored: int) -> dict[str, Any] | None:
        """The ruling of this seam that comes next, where so many messages have been `stored` by now."""
        line = self.line
        for place, item in enumerate(line):
            if item.kind != "ruling":
                return {}  # its hooks are new since then: what comes after this is recorded already
            if item.data["seam"] == seam:
                if seam == "on_message" and item.before > stored:
                    return {}  # about a later message: hooks at 10 were there again, and they were not for this one
                for _ in range(place + 1):
                    line.popleft()
                self._let_go = item.data if seam in JOINED else None
                return item.data
        # Rulings alone do not say that this is past: an abort may have come before them. What they have refused does.
        refused = any([item.data["seam"] in ENDS_TURN and item.data.get("heard") for item in line])
        kept = seam in SHAPES_REQUEST and any([self._stays(run, item.data) for item in line])
        return {} if refused or kept or (seam == "on_message" and self._is_stored()) else None

    def _stays(self, run: Any, data: dict[str, Any]) -> bool:
        """Whether somebody has changed the request who is not there any more, and would not do so again."""
        if data["seam"] not in SHAPES_REQUEST or "changes" not in data:
            return False
        by = {decision["hook"] for decision in data.get("decisions", ()) if decision["verdict"] == "Replace"}
        return not by <= run.hooks.names_at(data["seam"])

    def not_asked_on_line(self, seam: str, hooks: Sequence[Any]) -> list[Any]:
        """Those of these hooks that were not there when others let pass what happens now; or had failed over it then."""
        ruling, self._let_go = self._let_go, None
        if ruling is None or ruling["seam"] != seam or ruling.get("heard") or self.rehearsal:
            return []
        failed = bool(self.line) and "joins" in (then := self.line[0].data) and then["seam"] == seam
        over = bool(self.line) or self._is_stored() if seam == "on_message" else self.is_answered()
        new = new_beside(ruling, hooks) if failed or not over else []
        if new:
            self._joins[None] = 0
        elif failed:  # whoever had failed is gone
            self.line.popleft()
        return new

    def _is_stored(self) -> bool:
        """Whether the message that is to be stored next is on record."""
        return False

    def _restore_counts(self, run: Any, fired: dict[str, int]) -> None:
        self.firings.restore(run, fired)

    def past_outcome(self, run: Any, call_id: str) -> tuple[str, ToolResult] | None:
        """What became of a call, and the result as the model reads it."""
        call = self.past_call(call_id)
        if call is None or call.outcome is None:
            return None
        self.count_outcome(run, call.outcome)
        return call.outcome["outcome"], result_of(call.outcome["result"])

    def count_outcome(self, run: Any, outcome: dict[str, Any]) -> None:
        """What a call has cost that is over, and which rules have fired in it."""
        if "spent" in outcome:
            run.usage_cost += outcome["spent"]
        else:  # an older record: what the run had cost by then
            run.usage_cost = max(run.usage_cost, outcome["cost"])
        if outcome.get("fired"):
            self._restore_counts(run, outcome["fired"])

    # --- requests ---

    def past_text(self) -> str | None:
        """What dynamic instructions gave for the request that is being prepared."""
        return _text_of(self._next("instructions"))

    def past_reply(self, run: Any) -> PastReply | None:
        """The reply to the request that would leave now, if it is recorded."""
        if self._answer() != "reply":
            return None
        line, judged, told = self.line, [], len(run.decisions)
        while line[0].kind != "reply":
            judged.append(line.popleft())
        item = line.popleft()
        data = item.data
        self._decided(run, "on_chunk", data)
        for before in judged:  # seam 10 about this reply, and what the core mended in it
            if before.kind in ("ruling", "note"):
                self._decided(run, before.data["seam"], before.data)
        ruled = next((i.data for i in reversed(judged) if self.rehearsal and i.data.get("seam") == "on_message"), None)
        interrupt = data.get("interrupt")
        return PastReply(
            item.message, None if interrupt is None else read(interrupt, Interrupt), data.get("aborted", False),
            [message_of(m) for m in data.get("queue", ())], data.get("resend", False),
            tuple([(name, where) for name, where in data.get("askers", ())]), data.get("released", 0),
            None if data.get("error") is None else read_error(data["error"]),
            read(data["usage"], Usage) if "usage" in data else NO_USAGE, data.get("model", ""),
            made := run.decisions[told:],
            None if ruled is None else self._as_ruled(run, ruled, [], [d for d in made if d.seam == "on_message"]),
        )  # fmt: skip

    def _decided(self, run: Any, seam: str, data: dict[str, Any]) -> None:
        """Decisions that count without anything that asks for them again."""
        if data.get("fired"):
            self._restore_counts(run, data["fired"])
        run.decisions += self._said(run, self._lambdas(run, None, data))[0]
        around = {"run_id": run.run_id, "loop": run.loop, "turn": run.turn, "seam": seam, "call_id": data.get("call")}
        run.decisions += [read_decision(decision, **around) for decision in data.get("decisions", ())]

    def past_direct(self, run: Any) -> str | None:
        """The recorded answer to a request beside the conversation, which counts as sent and paid for."""
        if self._answer() != "direct":
            return None
        self._next("request")
        data = self._next("direct")
        assert data is not None
        spent(run, data)
        return _text_of(data)

    def past_aside(self, run: Any, by: str, model: str, digest: str) -> PastAnswer | None:
        """The recorded answer to this question of a lambda, which a process asked that ended before the lambda did."""
        data = None if self.past is None else self.past.beside.get(by)
        if data is None or (data["model"], data["digest"]) != (model, digest):
            return None
        assert self.past is not None
        decided, effects = self._said(run, recall_question(run, self, by))
        error = read_error(data["error"]) if "error" in data else None
        return PastAnswer(data.get("text", ""), error, PastRuling({}, [], effects, decided))

    def past_asides(self, prefix: str) -> dict[str, tuple[str, str]]:
        """The questions of this lambda that have been answered, by who asked: the model's name and the request's digest."""
        beside = {} if self.past is None else self.past.beside
        return {by: (data["model"], data["digest"]) for by, data in beside.items() if by.rpartition("/ask_")[0] == prefix}

    def past_compaction(self) -> tuple[int, int] | None:
        """How many messages were to become a summary before the request that is being prepared, and its tokens without that.

        (0, 0) if there was to be none; `None` if nothing is recorded about it.
        """
        if not self.line:
            return None
        data = self._next("compacting")
        self._noted, self._summing = data is None or "noted" in data, data is not None
        return (0, 0) if data is None else (data["messages"], data["tokens"])

    def past_failure(self) -> bool:
        """Whether it is on record that the run fails here, and was tried again."""
        return self._next("failed") is not None

    def past_retry(self, run: Any) -> dict[str, Any] | None:
        """Whether the failed turn was tried again, and how that was announced."""
        data = self._next("retried")
        if data is not None and data.get("fired"):
            self._restore_counts(run, data["fired"])
        return data


def _text_of(data: dict[str, Any] | None) -> str | None:
    """A recorded text. Raises how it failed, where it did."""
    if data is not None and "error" in data:
        raise read_error(data["error"])
    return None if data is None else data["text"]
