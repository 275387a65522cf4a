"""What a session that writes to a journal in PostgreSQL holds: the right to go on with runs, and the sign that a worker lives.

They are advisory locks of that very session, and so lost with it. A new one takes back what nobody else has taken meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..errors import RunBusy, UnknownRun
from .pgjobs import RUN_LOCK, WORKER_LOCK, Call, Hold, Job

HOLD_AGAIN_SECONDS = 5.0
"""How long, once the database is back, it may take until the old session's locks are free."""


class Locks:
    """`held` are the locks with what they are of. Of everything else the thread that writes is asked: by the jobs made here."""

    def __init__(self, where: str) -> None:
        self.held: dict[tuple[int, int], str] = {}
        self.lost: set[int] = set()
        """Rows of runs that somebody else may go on with by now, though they are held here."""
        self._reached: dict[int, int] = {}
        """How many records the runs held here have, by row, as far as this process has written them."""
        self._where = where
        self._missing: set[tuple[int, int]] = set()
        """Locks that could not be taken back, and are tried again."""
        self._let_go: set[tuple[int, int]] = set()
        """What is held only until the job is done by which it is given back."""
        self._wanted: set[Job] = set()
        """Jobs by which somebody waits for a lease."""

    @property
    def in_use(self) -> bool:
        """Whether something is held that nobody has said to give back, or waited for. From any thread."""
        return bool(self._wanted or set(self.held) - self._let_go)

    def wanted(self, job: Job) -> None:
        """Somebody waits for a lease from now on. From any thread."""
        self._wanted.add(job)
        job.future.add_done_callback(lambda _: self._wanted.discard(job))

    # --- jobs ---

    def hold(self, run_id: str) -> Hold:
        """A job that takes a run's lease and gives its row."""

        def take(db: Any) -> int:
            found = db.execute("SELECT id FROM beforehand.runs WHERE run_id = %s", (run_id,)).fetchone()
            if found is None:
                raise UnknownRun(f"no run {run_id!r} is recorded in {self._where}")
            if (RUN_LOCK, found[0]) in self.held:
                raise RunBusy(f"run {run_id} is going on in this process: wait for it, or use its result")
            if not self.take(db, RUN_LOCK, found[0], run_id):
                raise RunBusy(f"run {run_id} is going on in another process: wait for it, or use its result")
            self.lost.discard(found[0])
            return int(found[0])

        return Hold(take)

    def lock_worker(self, number: int, name: str) -> Call:
        """A job that takes the lock by which others see that a worker lives."""
        return Call(lambda db: self.take(db, WORKER_LOCK, number, name))

    def give_back(self, kind: int, number: int, name: str) -> Call:
        """A job that gives back a lock, if it is still held for this run or worker."""

        def give(db: Any) -> None:
            self._let_go.discard((kind, number))
            if self.held.get((kind, number)) != name:
                return
            del self.held[kind, number]
            db.execute("SELECT pg_advisory_unlock(%s, %s)", (kind, number))
            if kind == RUN_LOCK:
                self.lost.discard(number)
                self._reached.pop(number, None)

        if self.held.get((kind, number)) == name:
            self._let_go.add((kind, number))
        return Call(give)

    # --- for the thread that writes ---

    def take(self, db: Any, kind: int, number: int, name: str) -> bool:
        """Take a lock, if nobody else has it."""
        taken = _lock(db, kind, number)
        if taken:
            self.held[kind, number] = name
        return taken

    def drop(self, db: Any, row: int) -> None:
        """Give back a run's lease that was taken for somebody who does not wait any more."""
        del self.held[RUN_LOCK, row]
        self._reached.pop(row, None)
        db.execute("SELECT pg_advisory_unlock(%s, %s)", (RUN_LOCK, row))

    def reached(self, row: int, records: int) -> None:
        """A run has so many records now, all of which are known here."""
        if (RUN_LOCK, row) in self.held:
            self._reached[row] = records

    def take_missing(self, db: Any) -> None:
        self._missing -= {lock for lock in self._missing if lock not in self.held or _lock(db, *lock)}

    def lose(self) -> None:
        """There is no session any more: every run may be somebody else's."""
        self.lost.update(number for kind, number in self.held if kind == RUN_LOCK)

    def take_back(self, db: Any) -> None:
        """Take every lock again, in a new session."""
        outer = self._look_up_runs(db)
        missing = {(kind, number) for kind, number in self.held if kind != RUN_LOCK or number not in self.lost}
        deadline = time.monotonic() + HOLD_AGAIN_SECONDS
        while missing:
            missing = self._not_taken(db, missing, outer)
            if time.monotonic() > deadline:
                break
            if missing:
                time.sleep(0.1)
        self.lost.update(number for kind, number in missing if kind == RUN_LOCK)
        self._missing = {lock for lock in missing if lock[0] != RUN_LOCK}
        self._lose_what_went_on(db, outer)

    def _not_taken(self, db: Any, missing: set[tuple[int, int]], outer: Mapping[int, str | None]) -> set[tuple[int, int]]:
        """Take what is free of these, and give the rest. A run inside another one is taken only with that: who has the outer one
        goes on with both.
        """
        away = {self.held[RUN_LOCK, number] for number in self.lost if (RUN_LOCK, number) in self.held}
        left = set()
        for kind, number in sorted(missing, key=lambda lock: len(self.held[lock])):  # what is inside has the longer id
            if (kind == RUN_LOCK and outer[number] in away) or not _lock(db, kind, number):
                left.add((kind, number))
                away.add(self.held[kind, number])
        return left

    def _lose_what_went_on(self, db: Any, outer: Mapping[int, str | None]) -> None:
        """A run that was free may be one that somebody else has gone on with, and left again, without going into what is inside
        it here: that would go on with what he takes for over. (Who has nothing inside notices as he writes to the run.)
        """
        around = set(outer.values())
        known = [(row, n) for row, n in self._reached.items() if self.held[RUN_LOCK, row] in around and row not in self.lost]
        if not known:
            return
        query = """
            SELECT DISTINCT run FROM beforehand.records JOIN unnest(%s::bigint[], %s::bigint[]) AS known (row, records)
            ON run = row AND n > known.records WHERE kind = 'resumed'"""
        gone = {row for (row,) in db.execute(query, [list(column) for column in zip(*known, strict=True)]).fetchall()}
        away = {self.held[RUN_LOCK, row] for row in gone}
        for row in sorted(outer, key=lambda row: len(self.held[RUN_LOCK, row])):  # what is inside has the longer id
            if row not in self.lost and (row in gone or outer[row] in away):
                away.add(self.held[RUN_LOCK, row])
                self.lost.add(row)
                db.execute("SELECT pg_advisory_unlock(%s, %s)", (RUN_LOCK, row))

    def _look_up_runs(self, db: Any) -> dict[int, str | None]:
        """The runs that those held are inside of, by row. A server that lost its last commits gives their rows to other runs:
        those are forgotten.
        """
        rows = [number for kind, number in self.held if kind == RUN_LOCK]
        query = "SELECT id, run_id, parent FROM beforehand.runs WHERE id = ANY(%s)"
        found = {(row, run_id): parent for row, run_id, parent in db.execute(query, (rows,)).fetchall()} if rows else {}
        for number in rows:
            if (number, self.held[RUN_LOCK, number]) not in found:
                del self.held[RUN_LOCK, number]
                self.lost.discard(number)
                self._reached.pop(number, None)
        return {row: parent for (row, _), parent in found.items()}


def _lock(db: Any, kind: int, number: int) -> bool:
    return bool(db.execute("SELECT pg_try_advisory_lock(%s, %s)", (kind, number)).fetchone()[0])
