"""What a journal tells those who did not run anything: which runs there are, how they stand, and what waits for a person."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ..decisions import PendingApproval
from ..errors import HookFailed, JournalUnreadable, UnknownRun, UsageError, nearest
from ..frozen import Frozen, FrozenDict
from .aside import is_made_again
from .chain import Record
from .codec import read
from .past import Past
from .pastrecords import MALFORMED, read_past
from .queries import RunRow
from .store import Store
from .withheld import is_withheld

State = Literal["running", "completed", "ended", "suspended", "error", "unfinished", "unreadable"]
STATES: dict[str, str] = {
    "running": "a process goes on with it right now",
    "completed": "it came to its natural end",
    "ended": "something stopped it: a hook, a limit, an abort",
    "suspended": "it waits for a person, or for somebody to resume it with what a person answered",
    "error": "it failed; resuming it tries again what failed",
    "unfinished": "its process is gone: nobody goes on with it, and it has no end. It can be resumed",
    "unreadable": "its records cannot be read: see `beforehand verify`",
}
"""How a run can stand."""

PROMPT_CHARS = 200

logger = logging.getLogger("beforehand")


class RunSummary(Frozen, kw_only=True):
    """One run in a list. Times are in microseconds since 1970 (UTC).

    `prompt` is the beginning of what it was asked, `calls` how many tool calls have an outcome, `waiting` how many questions
    nobody has answered yet, `why` the stop reason or the error. `parent` is the run in one of whose calls it was made.
    """

    run_id: str
    parent: str | None
    agent: str
    prompt: str
    state: State
    started: int
    last: int
    turns: int
    calls: int
    records: int
    waiting: int = 0
    why: str | None = None


class Waiting(Frozen):
    """A question that nobody has answered. `call_id` is the id under which the run `run_id` takes the answer."""

    run_id: str
    pending: PendingApproval
    asked: int
    """When, in microseconds since 1970."""

    @property
    def call_id(self) -> str:
        return self.pending.call_id


class Uncertain(Frozen):
    """A call that had begun when its process ended: whether it took effect is not known. Nobody has settled it yet."""

    run_id: str
    call_id: str
    name: str
    args: FrozenDict
    replay: str
    key: str
    begun: int


# --- which runs there are ------------------------------------------------------------------------


class _Start(msgspec.Struct):
    agent: str
    prompts: list[dict[str, Any]]


class _Error(msgspec.Struct):
    type: str
    text: str


class _End(msgspec.Struct):
    stop_reason: str
    turns: int
    reason: str | None = None
    error: _Error | None = None
    calls: int = 0
    prompt: str = ""


_start = msgspec.json.Decoder(_Start).decode
_end = msgspec.json.Decoder(_End).decode


def summaries(journal: Store, *, states: Iterable[str] = (), since: int = 0) -> list[RunSummary]:
    """The runs, oldest first: of these states (all, if none is named), begun at `since` (microseconds since 1970) or later."""
    wanted = frozenset(states)
    found = [summary_of(journal, row) for row in journal.runs() if row.first.at >= since]
    return [summary for summary in found if not wanted or summary.state in wanted]


def summary_of(journal: Store, row: RunRow) -> RunSummary:
    """How one run stands. Of one that is over, only its first and last record are looked at."""
    facts: dict[str, Any] = {"agent": "?", "prompt": "", "turns": 0, "calls": 0}
    try:
        row.check()
        start = _start(row.first.body)
        facts |= {"agent": start.agent, "prompt": _beginning(start.prompts)}
        found = _ended(_end(row.last.body)) if row.last.kind == "end" else _not_ended(journal, row.run_id)
        facts |= found if found.get("prompt") else {**found, "prompt": facts["prompt"]}
    except (JournalUnreadable, *MALFORMED) as error:
        facts |= {"state": "unreadable", "why": str(error)}
    return RunSummary(run_id=row.run_id, parent=row.parent, started=row.first.at, last=row.last.at, records=row.records, **facts)


def _ended(end: _End) -> dict[str, Any]:
    state = end.stop_reason if end.stop_reason in ("completed", "error") else "ended"
    why = end.error.text if end.error is not None else end.reason
    if state == "ended":
        why = end.stop_reason if why is None else f"{end.stop_reason}: {why}"
    return {"state": state, "turns": end.turns, "calls": end.calls, "why": why, "prompt": _words(end.prompt)}


def _not_ended(journal: Store, run_id: str) -> dict[str, Any]:
    going_on = journal.is_going_on(run_id)  # before its records are read: what ends it is recorded while it still goes on
    past = read_past(journal.records(run_id))
    if past.end is not None:  # it has ended since the list was made
        return _ended(msgspec.convert(past.end, _End))
    turns = sum(1 for item in past.line if item.kind == "turn")
    facts = {
        "turns": turns, "calls": sum(1 for call in past.calls.values() if call.outcome is not None),
        "prompt": _beginning(past.prompts),
    }  # fmt: skip
    if going_on:
        return {**facts, "state": "running"}
    if past.suspended is not None:
        return {**facts, "state": "suspended", "waiting": len(past.pending)}
    return {**facts, "state": "unfinished"}


def _beginning(prompts: list[dict[str, Any]]) -> str:
    """The first words of the first prompt that has any."""
    for message in prompts:
        content = "[withheld]" if is_withheld(message) else message.get("content")
        if isinstance(content, list):
            content = "".join([str(part.get("text", "")) for part in content if isinstance(part, dict)])
        if content:
            return _words(str(content))
    return ""


def _words(text: str) -> str:
    return " ".join(text[: PROMPT_CHARS * 2].split())[:PROMPT_CHARS]


def in_families(runs: list[RunSummary]) -> list[tuple[int, RunSummary]]:
    """Each run with its depth: below a run those made inside its calls. A run whose parent is not among them has depth 0."""
    known = {run.run_id for run in runs}
    below: dict[str | None, list[RunSummary]] = {}
    for run in runs:
        below.setdefault(run.parent if run.parent in known else None, []).append(run)
    ordered: list[tuple[int, RunSummary]] = []
    waiting = [(0, run) for run in reversed(below.get(None, []))]
    while waiting:
        depth, run = waiting.pop()
        ordered.append((depth, run))
        waiting += [(depth + 1, child) for child in reversed(below.get(run.run_id, []))]
    return ordered


def find_run(journal: Store, beginning: str) -> str:
    """The id of the one run that begins so. A run made inside another one's call counts only where its parent does not.

    Raises `UnknownRun`, or `UsageError` where several do.
    """
    if not beginning:
        raise UsageError("an empty text names no run")
    found = journal.ids(beginning)
    if beginning in found:
        return beginning
    outer = [run_id for run_id in found if not any(run_id.startswith(f"{other}/") for other in found)]
    if len(outer) == 1:
        return outer[0]
    if outer:
        some = ", ".join(outer[:3]) + (", ..." if len(outer) > 3 else "")
        raise UsageError(f"{len(outer)} runs begin with {beginning!r} ({some}): write more of the id")
    near = nearest(beginning, journal.ids()[-1000:])
    hint = f"did you mean {near}?" if near else "`beforehand runs` lists them"
    raise UnknownRun(f"no run {beginning!r} is recorded in {journal.path}: {hint}")


# --- what waits for a person ---------------------------------------------------------------------


def waiting(journal: Store) -> list[Waiting]:
    """Every question that nobody has answered, oldest run first. A sub-agent's is named by the outermost run that waits."""
    return needs_people(journal)[0]


def uncertain(journal: Store) -> list[Uncertain]:
    """Every call whose process ended while it ran, and that is not run again by itself."""
    return needs_people(journal)[1]


def needs_people(journal: Store) -> tuple[list[Waiting], list[Uncertain]]:
    """Everything that waits for a person: questions, and calls that only a person can say the outcome of.

    A run that cannot be read is logged, and left out.
    """
    questions: dict[tuple[str, str], Waiting] = {}
    lost: list[Uncertain] = []
    inside: set[tuple[str, str]] = set()
    for row in journal.runs():
        if not _may_need_people(row) or journal.is_going_on(row.run_id):
            continue
        try:
            row.check()
            records = journal.records(row.run_id)
            past = read_past(records)
            found = [] if past.suspended is None else _questions(row, past)
            begun = [] if past.suspended is not None else _lost(row.run_id, past, records)
            if (found or begun) and is_given_up(journal, row.run_id):
                continue
            lost += begun
        except (JournalUnreadable, *MALFORMED) as error:
            logger.warning("run %s cannot be read (`beforehand verify` says more): %s", row.run_id, error)
            continue
        for question in found:
            questions[question.run_id, question.call_id] = question
            inside.update(_as_known_inside(question))
    return [question for place, question in questions.items() if place not in inside], lost


def _may_need_people(row: RunRow) -> bool:
    """Whether a run may wait for a person. One that has failed does where a lambda failed over a call that was cut short."""
    if row.last.kind != "end":
        return True
    try:
        error = _end(row.last.body).error
    except msgspec.MsgspecError:
        return False
    return error is not None and error.type == HookFailed.__name__


def is_given_up(journal: Store, run_id: str) -> bool:
    """Whether the call is over in which this run was made, or the run around it: nobody goes on with it then."""
    call_id = journal.first(run_id).data.get("parent_call")
    around = run_id.removesuffix(f"/{call_id}") if call_id is not None else run_id
    if around == run_id or not journal.has(around):
        return False
    past = read_past(journal.records(around))
    call = past.calls.get(call_id)
    over = (past.end is not None and past.end.get("error") is None) or (call is not None and call.outcome is not None)
    return over or is_given_up(journal, around)


def _questions(row: RunRow, past: Past) -> list[Waiting]:
    asked = row.last.at if row.last.kind == "suspended" else row.first.at
    return [Waiting(row.run_id, read(written, PendingApproval), asked) for written in past.pending.values()]


def _as_known_inside(question: Waiting) -> list[tuple[str, str]]:
    """The same question, as the runs inside the calls know it."""
    places = []
    run_id, inner = question.run_id, question.call_id
    while (place := inner.find("/")) >= 0:
        run_id, inner = f"{run_id}/{inner[:place]}", inner[place + 1 :]
        places.append((run_id, inner))
    return places


def _lost(run_id: str, past: Past, records: list[Record]) -> list[Uncertain]:
    begun = {record.data["call"]: record.at for record in records if record.kind == "intent"}
    open_calls = [] if past.end is not None else [call for call in past.calls.values() if call.outcome is None]
    told = [name for name, call in past.calls.items() if call.outcome is not None and call.outcome["outcome"] == "uncertain"]
    if told:  # by a lambda that makes it again
        again = read_past(records, go_on=True)
        open_calls += [again.calls[name] for name in told if is_made_again(again, name)]
    return [
        read({**intent, "run_id": run_id, "call_id": intent["call"], "begun": begun[intent["call"]]}, Uncertain)
        for intent in [call.intent for call in open_calls if call.settled is None]
        if intent is not None and intent["replay"] != "safe"
    ]
