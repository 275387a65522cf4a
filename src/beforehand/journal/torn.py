"""What a loss of power may leave behind a run's end: records of a commit of which not everything came to the disk.

SQLite writes a commit as a whole: a record and the end of its run's chain (`runs`) come to the file together, and the
checksums of its log rule out half a row. So a record that the end covers and that does not fit was changed, and nobody
goes on with such a run. Only a disk that lost what it had said to be safe can leave a record behind the end; if that is
half a record as well, it is torn, and dropped. One that is whole is not, and neither is one that matters to what happens
next: it may have been acted on.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from ..errors import JournalUnreadable
from .chain import Record, follows
from .layout import Layout
from .queries import Head

KEPT = frozenset({"intent", "answer", "settled"})
"""Kinds that are never dropped: a tool may have run, and a person has spoken."""


def drop_torn(db: sqlite3.Cursor, layout: Layout, key: bytes | None, head: Head) -> dict[str, Any] | None:
    """Take away the torn records behind a run's end, within a transaction. Returns the note to record in their place, if any.

    Raises `JournalUnreadable` for what stands there and is not torn.
    """
    records, before = db.execute("SELECT records, head FROM runs WHERE id = ?", (head.row,)).fetchone()
    behind = [Record(head.run_id, *row) for row in db.execute(layout.after, {"run": head.row, "n": records})]
    for record in behind:
        if record.kind in KEPT or follows(before, record, key):
            raise cut_off(head.run_id, record.n, records)
        before = record.hash
    for record in behind:
        db.execute(layout.delete, (head.row, record.n))
    if not behind:
        return None
    dropped = f"{len(behind)} damaged record{'s' * (len(behind) > 1)} behind its end (record {records})"
    return {
        "turn": 0, "call": None, "hook": "beforehand", "where": "core", "verdict": "Dropped", "duration": 0.0,
        "reason": f"{dropped}, as a loss of power may leave them: dropped", "reversible": [0, 0, 0],
    }  # fmt: skip


def cut_off(run_id: str, n: int, records: int) -> JournalUnreadable:
    return JournalUnreadable(
        f"run {run_id}, record {n} stands behind the end that was written down (record {records}): the run cannot be trusted "
        "(`beforehand verify`)"
    )
