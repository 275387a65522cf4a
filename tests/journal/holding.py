"""What must be true of a run that was cut and goes on, whatever hooks, tools, models and people do then."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from beforehand import Message, RunResult, ToolMessage, UserMessage
from beforehand.journal import Record, verify
from beforehand.journal.pastrecords import read_past
from beforehand.messages import LOST

from journal.cutting import all_records, done_by, settled_rulings
from journal.stories import NUMBERS

if TYPE_CHECKING:
    from journal.worlds import Process

GATE = "before_tool_call"
AT_CALLS = {"prepare_tool_call", "before_tool_call", "after_tool_call"}
ASKED_ONCE = AT_CALLS | {
    "before_run", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "prepare_next_turn",
    "before_compaction",
}  # fmt: skip
"""Where a decision on record stands. A hook at another seam is asked for each attempt, or for each piece."""

MARK = re.compile(r"\w+<[^>]*>")
"""Stands in every message that somebody queues, and in no other."""


def own(records: list[Record]) -> list[Record]:
    return [record for record in records if record.run_id == "R"]


def since_last_turn(records: list[Record]) -> list[Record]:
    line = own(records)
    return line[max((n for n, record in enumerate(line) if record.kind == "turn"), default=0) :]


def gates_passed_over(process: Process, run_id: str, call_id: str) -> Iterator[str]:
    """A call that begins has passed every gate of today, in this process or in one before, unless it had begun there."""
    said = [r for r in process.before if r.run_id == run_id and r.data.get("call") == call_id]
    if any(record.kind == "intent" for record in said):
        return
    asked = {name for record in said if record.data.get("seam") == GATE for name in record.data["hooks"]}
    for (run, seam, _, call), names in process.asked.items():
        if (run, seam, call) == (run_id, GATE, call_id):
            asked |= names
    gates = {hook.name for hook in process.hooks if hook.seam == GATE}
    yield from [f"{name} was not asked about {run_id}:{call_id}" for name in gates - asked]


def out_of_order(messages: Sequence[Message]) -> Iterator[str]:
    """A model is sent the results of a reply's calls, all of them and no others, right after that reply."""
    open_calls: list[str] = []
    for message in [*messages, UserMessage("the end")]:
        if not isinstance(message, ToolMessage):
            if open_calls:
                yield f"a request has no result of {open_calls}"
            open_calls = [call.id for call in getattr(message, "tool_calls", ())]
        elif message.tool_call_id in open_calls:
            open_calls.remove(message.tool_call_id)
        else:
            yield f"a request has a result of {message.tool_call_id} and no such call"


def done_again(process: Process) -> Iterator[str]:
    """What has an outcome is not done again, what may not be repeated is not begun again, and nothing is done twice at once.

    A hook that failed over a call and took the run with it is asked again, and then the call may be another.
    """
    before = process.before
    _, over = done_by(before)
    failed = {call_of(r) for r in before if r.kind == "ruling" and "failed" in r.data and r.data["seam"] in AT_CALLS}
    never = {r.data["key"] for r in before if r.kind == "intent" and r.data["replay"] == "never"}
    for key, times in Counter(process.effects).items():
        if times > 1 or key in never or (key in over and key not in failed):
            yield f"{key} was done again"


def asked_again(process: Process) -> Iterator[str]:
    """What hooks have decided is on record and stands, unless a person has changed the call since.

    A hook that is new and comes before them is asked first, and they are asked after it, if nothing has come of it yet. Whoever
    tells the prompts again has hooks asked about them whose words are not on record.
    """
    if process.tells_again and not any(r.kind == "message" or refusals(r.data) for r in own(process.before)):
        return
    edited = {call_of(r) for r in all_records(process.path) if r.kind == "answer"}
    settled = settled_rulings(process.before)
    settled -= Counter(after_new_ones(process))
    anew = {(r.run_id, r.data["turn"]) for r in process.before if r.kind == "ruling" and "instead" in r.data}
    for run_id, seam, turn, call in settled:
        if call is None and (run_id, turn) in anew:
            continue  # a hook that is asked each time had failed then, and what was said after it is over
        again = process.asked[run_id, seam, turn, call]
        if seam == "before_tool_call":  # new ones are asked beside those before
            again &= {name for r in process.before if call_of(r) == f"{run_id}:{call}" for name in r.data.get("hooks", ())}
        if seam in ASKED_ONCE and again and f"{run_id}:{call}" not in edited:
            yield f"hooks were asked again at {seam} in turn {turn} of {run_id}, call {call}"


PLACES = ["prepare_next_turn", "before_turn", "on_message", "before_compaction", *list(NUMBERS)[2:8]]
"""The seams before a request, in their order."""


def after_new_ones(process: Process) -> Iterator[tuple[str, str, int, str | None]]:
    """The rulings with which a run's own line ends, if there are hooks before them that had no say: nothing has come of them."""
    for run_id in {record.run_id for record in process.before}:
        line = read_past([record for record in process.before if record.run_id == run_id], go_on=True).line
        last = list(takewhile(lambda item: item.kind == "ruling", reversed(line)))
        asked = {(item.data["seam"], name) for item in last for name in item.data["hooks"]}
        until = max([PLACES.index(item.data["seam"]) for item in last if item.data["seam"] in PLACES], default=0)
        if any((hook.seam, hook.name) not in asked for hook in process.hooks if hook.seam in PLACES[:until]):
            yield from [(run_id, item.data["seam"], item.data["turn"], None) for item in last]


def call_of(record: Record) -> str:
    return f"{record.run_id}:{record.data.get('call')}"


def not_approved(records: list[Record]) -> Iterator[str]:
    """A call that a hook has asked about begins as a person has approved it, or as that person wrote it."""
    asks: dict[str, bool] = {}
    approved: defaultdict[str, list[Any]] = defaultdict(list)
    for record in records:
        data, call = record.data, call_of(record)
        if record.kind == "ruling" and data["seam"] == "before_tool_call" and not data.get("again"):
            asks[call] = any(verdict["is"] == "Ask" for verdict, *_ in data.get("heard", ()))
        elif record.kind == "answer":
            given = data["answer"]
            as_it_was = {"Approve": data["digest"], "Edit": given.get("args"), "Deny": None}[given["is"]]
            approved[call].append(as_it_was)
        elif record.kind != "intent" or not asks.get(call):
            continue
        elif data["digest"] not in approved[call] and data["args"] not in approved[call]:
            yield f"{call} began and nobody had approved it"


def refusals(ruling: dict[str, Any]) -> set[str]:
    """What stands in the way of what hooks were asked about, by the kind of verdict. A question does not."""
    return {verdict["is"] for verdict, *_ in ruling.get("heard", ())} - {"Ask"}


def not_let_pass(records: list[Record]) -> Iterator[str]:
    """What hooks have refused, on record, does not happen, whether they are still there or not; nor what a person has denied.

    Of a call what was said last counts: it is gated again once a person has changed it, and once it has become another.
    """
    standing: dict[Any, str] = {}
    for record in records:
        data, call = record.data, call_of(record)
        seam = data.get("seam") if record.kind == "ruling" and not data.get("again") else None
        if seam == "before_tool_call":
            standing[call] = f"hooks had refused {call}" if refusals(data) else ""
        elif seam in ("before_run", "before_turn") and refusals(data):
            standing["turn", record.run_id] = f"hooks at {seam} had ended {record.run_id}"
        elif seam == "authorize_request" and record.run_id == "R":
            standing["request", "R"] = "hooks at 8 had blocked a request" if refusals(data) else ""
        elif record.kind == "answer" and data["answer"]["is"] == "Deny":
            standing[call] = f"a person had denied {call}"
        elif record.kind == "settled":
            standing[call] = f"a person had settled {call}"
        elif record.kind == "note" and data["verdict"] == "Changed":
            standing.pop(call, None)
        elif record.kind in ("turn", "reply") or data.get("seam") == "compaction":  # another request is next
            standing.pop(("request", record.run_id), None)
        elif record.kind == "intent" and standing.get(call):
            yield f"{call} began though {standing[call]}"
        elif why := standing.get((record.kind, record.run_id)):
            yield f"a {record.kind} though {why}"


def began_unseen(process: Process, records: list[Record]) -> Iterator[str]:
    """No tool does anything whose intent is not on record."""
    intents = {record.data["key"] for record in records if record.kind == "intent"}
    yield from [f"{key} was done and has no intent" for key in process.effects if key not in intents]


def asked_twice(result: RunResult, records: list[Record]) -> Iterator[str]:
    """Nobody is asked again what a person has answered."""
    given = {(record.data["call"], record.data["digest"]) for record in own(records) if record.kind == "answer"}
    yield from [f"{p.call_id} waits though it was answered" for p in result.pending if (p.call_id, p.args_digest) in given]


def brief(messages: Sequence[Message]) -> list[tuple[str, str, str]]:
    return [(message.role, message.origin, message.text) for message in messages]


def wrong_history(process: Process, result: RunResult, records: list[Record]) -> Iterator[str]:
    """The run came to what is on record, and to what was on record when the process began; each call has one result."""
    came = brief(result.messages)
    if process.before:
        past = read_past(own(process.before), go_on=True)
        if past.end is None and came[: len(past.messages)] != brief(past.messages):
            yield "the run went on with other messages than were on record"
    if result.stop_reason != "error" and came != brief(read_past(own(records)).messages):
        yield "the run came to other messages than are on record"
    if result.stop_reason != "suspended" and not process.journal.is_full:
        calls = Counter(call.id for m in result.messages for call in getattr(m, "tool_calls", ()))
        if calls != Counter(m.tool_call_id for m in result.messages if isinstance(m, ToolMessage)):
            yield "a call has no result, or more than one"


def wrongly_said(process: Process, result: RunResult, records: list[Record]) -> Iterator[str]:
    """What people, tools and hooks say reaches the model once: it is in the history, or still waits.

    Except what a hook kept away, what `clear_queues` took back, and what a run had left waiting that was over already.
    """
    texts = [message.text for message in result.messages if message.role == "user"]
    for mark, times in Counter(mark for said in texts for mark in MARK.findall(said)).items():
        if times > 1:
            yield f"{mark} was said {times} times"
    if process.world.raw and any(LOST in said for said in texts):
        yield "a notice stands in the place of a message that is on record"
    was_over = process.before and read_past(own(process.before)).end is not None
    if result.stop_reason == "suspended" or process.journal.is_full or was_over:
        return
    now = read_past(own(records))
    known = {*texts, *process.world.judged, *[message.text for message in process.talk.queued]}
    for number, message in now.queued.items():
        for mark in MARK.findall(str(message.get("content"))) if number not in now.cleared else ():
            if not any(mark in said for said in known):
                yield f"{mark} was lost"


def whats_wrong(process: Process, result: RunResult | None) -> Iterator[str]:
    records = all_records(process.path)
    yield from process.wrong
    yield from done_again(process)
    yield from asked_again(process)
    yield from not_approved(records)
    yield from not_let_pass(records)
    yield from began_unseen(process, records)
    yield from map(str, verify(process.journal))
    if result is not None and records:
        yield from wrong_history(process, result, records)
        yield from asked_twice(result, records)
        yield from wrongly_said(process, result, records)
