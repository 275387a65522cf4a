"""What the session that writes to a journal in PostgreSQL is asked to do, and the statements that do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from ..errors import JournalError
from .chain import Record, link, seal
from .queries import Head
from .sqlite import Entry

RUN_LOCK, WORKER_LOCK, TOTAL_LOCK = 0x62666C72, 0x62666C77, 0x62666C74
"""Classes of advisory locks: of runs by row, of workers by a hash of their id, of totals by slot."""

IS_HELD = """
SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = %s AND objid = %s
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
"""Whether anybody holds a lock (of a class, a number). Takes nothing."""

SAID = frozenset({"answer", "settled"})
"""Kinds of records by which a person lets a run go on."""


class PgHead(Head):
    """Where a run's chain ends, what was added last, and why nothing can be added any more."""

    seal: bytes = b""
    last: Any = None
    failed: JournalError | None = None


class Job:
    """Something to be done in the session; `future` gets what it gives."""

    __slots__ = ("future",)

    takes_lease = False

    def __init__(self) -> None:
        self.future: Future[Any] = Future()

    def done(self, value: Any) -> bool:
        """Say what it gave. False if nobody waits for it any more."""
        try:
            self.future.set_result(value)
        except InvalidStateError:
            return False
        return True

    def fail(self, error: Exception) -> None:
        try:
            self.future.set_exception(error)
        except InvalidStateError:
            pass


class Append(Job):
    """Add records to a run."""

    __slots__ = ("entries", "head")

    def __init__(self, head: PgHead, entries: Sequence[Entry]) -> None:
        super().__init__()
        self.head, self.entries = head, entries

    def fail(self, error: Exception) -> None:
        if self.head.failed is None and isinstance(error, JournalError):
            self.head.failed = error
        super().fail(error)


class Opening(Job):
    """Begin the records of a run, and take its lease."""

    __slots__ = ("entry", "parent", "run_id")

    takes_lease = True

    def __init__(self, run_id: str, entry: Entry, parent: str | None) -> None:
        super().__init__()
        self.run_id, self.entry, self.parent = run_id, entry, parent


class Call(Job):
    """Anything else: a function of the connection."""

    __slots__ = ("fn",)

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        super().__init__()
        self.fn = fn


class Hold(Call):
    """Take the lease of a run, and give its row."""

    __slots__ = ()

    takes_lease = True


class Plan:
    """The records to be added to one run, chained to where its end is believed to be."""

    def __init__(self, head: PgHead) -> None:
        self.head, self.jobs = head, list[Append]()
        self.rows: list[tuple[Any, ...]] = []
        self.count, self.end, self.seal, self.answers = 0, b"", b"", False
        self.old_seal = b""

    def chain(self, key: bytes | None) -> None:
        head = self.head
        self.count, self.end, self.rows = head.records, head.hash, []
        self.old_seal = seal(key, head.run_id, self.count, self.end)
        for job in self.jobs:
            for kind, at, body in job.entries:
                self.count += 1
                self.end = link(self.end, Record(head.run_id, self.count, at, kind, body), key)
                self.rows.append((head.row, self.count, at, kind, body, self.end))
                self.answers = self.answers or kind in SAID
        self.seal = seal(key, head.run_id, self.count, self.end)

    def settle(self) -> None:
        self.head.records, self.head.hash = self.count, self.end
        for job in self.jobs:
            job.done(None)


def columns(plans: Sequence[Plan]) -> list[list[Any]]:
    """The parameters of `APPEND`: columns of what moves, then columns of the records."""
    moves = [(p.head.row, p.head.records, p.head.hash, p.count, p.end, p.seal) for p in plans]
    rows = [row for plan in plans for row in plan.rows]
    return [*map(list, zip(*moves, strict=True)), *map(list, zip(*rows, strict=True))]


def taken(head: Head) -> JournalError:
    return JournalError(
        f"run {head.run_id} may be going on in another process, since the connection to its journal was lost: "
        "it stopped here before its next effect"
    )


OPEN = """
WITH given AS (
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %b::bytea[], %b::bytea[], %s::bigint[], %s::text[], %b::bytea[])
    AS g(id, run_id, parent, head, seal, at, kind, body)
), run AS (
    INSERT INTO beforehand.runs (id, run_id, parent, records, head, seal) SELECT id, run_id, parent, 1, head, seal FROM given
    RETURNING id
), record AS (
    INSERT INTO beforehand.records (run, n, at, kind, body, hash) SELECT id, 1, at, kind, body, head FROM given
), moved AS (
    UPDATE beforehand.journal SET opened = %s, head = %b, seal = %b
)
SELECT array_agg(id), array_agg(pg_try_advisory_lock(1650863218, id::int)) FROM run
""".replace("1650863218", str(RUN_LOCK))

APPEND = """
WITH moved AS (
    UPDATE beforehand.runs SET records = g.records, head = g.head, seal = g.seal
    FROM unnest(%s::bigint[], %s::bigint[], %b::bytea[], %s::bigint[], %b::bytea[], %b::bytea[])
    AS g(id, was, old, records, head, seal)
    WHERE runs.id = g.id AND runs.records = g.was AND runs.head = g.old RETURNING runs.id
), put AS (
    INSERT INTO beforehand.records (run, n, at, kind, body, hash)
    SELECT r.* FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %b::bytea[], %b::bytea[])
    AS r(run, n, at, kind, body, hash) JOIN moved ON moved.id = r.run
)
SELECT coalesce(array_agg(id), '{}'), 0 FROM moved
"""

TELL = APPEND.replace(", 0 FROM moved", ", pg_notify('beforehand', '') FROM moved")
"""The same, which also tells the workers that listen that a person has said something about a run."""


def counted(statement: str) -> str:
    """`APPEND` or `TELL` for one plan, which also sets a total if the plan is written: to a value, of a slot, from a value."""
    total = "UPDATE beforehand.totals SET value = %b WHERE slot = %s AND value = %b AND EXISTS (SELECT 1 FROM moved)"
    before, select, after = statement.rpartition("\nSELECT coalesce")
    return f"{before}, counted AS ({total}){select}{after}"
