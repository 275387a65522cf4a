"""A journal cut short, as a process leaves it that dies: every run with the records that were written by then."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from beforehand.journal import Journal, Record
from beforehand.journal.layout import FILE_FORMAT, LAYOUTS

Line = tuple[str, Record]
"""A record and the run it belongs to, in the order in which they were put down."""


def all_records(path: Path) -> list[Record]:
    """Every record of a journal, in the order in which they were put down."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        found = []
        for run, run_id in db.execute("SELECT id, run_id FROM runs").fetchall():
            latest = 0
            for n, at, *rest in db.execute(LAYOUTS[FILE_FORMAT].every, {"run": run}):
                latest = max(latest, at)  # a clock may be set back, the order within a run may not change
                found.append((latest, run, n, Record(run_id, n, at, *rest)))
    db.close()
    return [record for *_, record in sorted(found, key=lambda item: item[:3])]


def parents(path: Path) -> dict[str, str | None]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        found = dict(db.execute("SELECT run_id, parent FROM runs"))
    db.close()
    return found


def cut(records: list[Record], of: dict[str, str | None], path: Path, **options: Any) -> Journal:
    """A journal at `path` that holds these records and no more. Close it before another process or agent uses the file."""
    journal = Journal(path, durability="normal", **options)
    heads: dict[str, Any] = {}
    at = 0
    while at < len(records):
        first = records[at]
        if first.n == 1:
            heads[first.run_id] = journal.open_run(first.run_id, (first.kind, first.at, first.body), of[first.run_id])
            at += 1
            continue
        end = at
        while end < len(records) and records[end].run_id == first.run_id and records[end].n > 1:
            end += 1
        journal.append(heads[first.run_id], [(r.kind, r.at, r.body) for r in records[at:end]])
        at = end
    return journal


def done_by(records: list[Record]) -> tuple[set[str], set[str]]:
    """The idempotency keys of the calls with an intent, and those of the calls with an outcome."""
    begun = {r.data["key"] for r in records if r.kind == "intent"}
    over = {f"{r.run_id}:{r.data['call']}" for r in records if r.kind == "outcome"}
    return begun, over & begun


def uncertain(records: list[Record], replay: str = "never") -> set[str]:
    """The idempotency keys of the calls that had begun and have no outcome."""
    _, over = done_by(records)
    return {r.data["key"] for r in records if r.kind == "intent" and r.data["replay"] == replay} - over


def replies_of(records: list[Record], run_id: str) -> int:
    """How many requests of a run have been answered for good."""
    sent, answered = False, 0
    for record in records:
        if record.run_id != run_id:
            continue
        if record.kind == "request":
            sent = True
        elif record.kind == "direct":
            answered, sent = answered + 1, False
        elif record.kind == "reply":
            answered += sent and "error" not in record.data
            sent = False
    return answered


def _fails_a_call(record: Record) -> bool:
    """Whether a hook failed before a call, and the run with it: it is asked again, and what the call comes to may be another."""
    data = record.data
    return record.kind == "ruling" and "failed" in data and data["seam"] != "after_tool_call" and "/" not in data.get("call", "/")


def settled_rulings(records: list[Record]) -> Counter[tuple[str, str, int, str | None]]:
    """What hooks need not be asked any more: run, seam, turn and call of every ruling that still counts."""
    kept: list[tuple[str, str, int, str | None]] = []
    over = {(r.run_id, r.data["call"]) for r in records if r.kind == "outcome"}
    open_since: dict[str, int] = {}
    for record in records:
        if record.kind == "ruling" and not record.data.get("again"):
            data = record.data
            heard = [v for v, *_ in data.get("heard", ())]
            counts = not any(v["is"] in ("Block", "Interrupt", "Steer") for v in heard)
            if counts and any(v.get("withheld") for v in heard) and (record.run_id, data["call"]) not in over:
                continue  # an answer that is not on record
            kept.append((record.run_id, data["seam"], data["turn"], data.get("call")))
            said = {v["is"] for v, *_ in data.get("heard", ())}
            if data["seam"] == "authorize_request" and said == {"Answer"}:  # a hook's answer is a reply like any other
                open_since[record.run_id] = len(kept)
        elif record.kind == "failed" or _fails_a_call(record):
            open_since.setdefault(record.run_id, len(kept))
        elif record.kind == "request":
            open_since[record.run_id] = len(kept)
        elif record.kind in ("reply", "direct") and "error" not in record.data:
            open_since.pop(record.run_id, None)
    lost = [what for run_id, since in open_since.items() for what in kept[since:] if what[0] == run_id and what[3] is None]
    return Counter(kept) - Counter(lost)
