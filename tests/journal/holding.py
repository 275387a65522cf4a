"""What must be true of a run that was cut and goes on, whatever hooks, tools, models and people do then."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from beforehand import Message, RunResult, ToolMessage, UserMessage
from beforehand.journal import Record, verify
from beforehand.journal.past import read_past
from beforehand.messages import LOST

from journal.cutting import all_records, done_by, settled_rulings

if TYPE_CHECKING:
    from journal.worlds import Process

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
    """What hooks have decided is on record and stands, unless a person has changed the call since."""
    edited = {call_of(r) for r in all_records(process.path) if r.kind == "answer"}
    for run_id, seam, turn, call in settled_rulings(process.before):
        if seam in ASKED_ONCE and process.asked[run_id, seam, turn, call] and f"{run_id}:{call}" not in edited:
            yield f"hooks were asked again at {seam} in turn {turn} of {run_id}, call {call}"


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
    if result.stop_reason != "suspended":
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
    if result.stop_reason == "suspended" or (process.before and read_past(own(process.before)).end is not None):
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
    yield from map(str, verify(process.journal))
    if result is not None:
        yield from wrong_history(process, result, records)
        yield from wrongly_said(process, result, records)
