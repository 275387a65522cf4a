"""The one session through which a process writes to its journal in PostgreSQL, in a thread of its own.

What several runs want written while one commit is under way goes into the next together. Leases are advisory locks of the
same session: when the connection dies, the right to go on with a run and the means to write to it are lost together, so
that nobody who has been robbed can still act.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import JournalError, RunBusy, UnknownRun
from .chain import Record, link, seal
from .pgjobs import APPEND, OPEN, RUN_LOCK, TELL, WORKER_LOCK, Append, Call, Job, Opening, PgHead, Plan, columns, taken
from .opening import RunExists
from .pgopening import connect, prepare, psycopg, said, shown

logger = logging.getLogger("beforehand")

RETRY_SECONDS = 60.0
"""How long a journal that was lost is tried again before the runs that wait for it fail."""

HOLD_AGAIN_SECONDS = 5.0
"""How long, once it is back, it may take until the old session's locks are free."""

BATCH = 256


class Writer:
    """Jobs are done in the order in which they are put. After `close` there are none."""

    def __init__(self, url: str, key: bytes | None, durability: str) -> None:
        self.pid = os.getpid()
        self.held: dict[tuple[int, int], str] = {}
        """The locks of this session, with what they are of."""
        self._url, self._key, self._durability = url, key, durability
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._db: Any = None
        self._lost: set[int] = set()
        self._error: type[Exception] = psycopg().Error
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="beforehand:journal", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> Future[Any]:
        self._jobs.put(job)
        return job.future

    def close(self) -> None:
        """Finish what was put, and give the connection back, with every lock. A database that is away is not waited for."""
        self._closing.set()
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # --- the thread ---

    def _work(self) -> None:
        going = True
        while going:
            jobs = [self._jobs.get()]
            while len(jobs) < BATCH and not self._jobs.empty():
                jobs.append(self._jobs.get())
            if None in jobs:
                going = False
            for kind, same in itertools.groupby([job for job in jobs if job is not None], type):
                together = list(same)
                for part in [[job] for job in together] if kind is Call else [together]:
                    self._do(part)
        if self._db is not None:
            self._db.close()

    def _do(self, jobs: list[Any]) -> None:
        """Do jobs of one kind. Whatever happens, each of them hears of it."""
        try:
            if self._db is None:
                self._db = self._connect()
            if isinstance(jobs[0], Append):
                self._append(jobs)
            elif isinstance(jobs[0], Opening):
                self._begin(jobs)
            else:
                jobs[0].done(self._again(lambda: jobs[0].fn(self._db)))
        except Exception as error:
            why = self._as_error(error)
            for job in jobs:
                if not job.future.done():
                    job.fail(why)

    def _as_error(self, error: Exception) -> Exception:
        if not isinstance(error, self._error):
            return error
        return JournalError(
            f"the journal {shown(self._url)} could not be written ({said(error)}): the run stopped before its next effect"
        )

    # --- the connection ---

    def _connect(self) -> Any:
        db = connect(self._url)
        try:
            prepare(db, shown(self._url), self._key, readonly=False)
            db.execute(f"SET synchronous_commit = {'on' if self._durability == 'full' else 'off'}")
        except BaseException:
            db.close()
            raise
        return db

    def _again(self, work: Callable[[], Any]) -> Any:
        """Do it, and once more from the start if the connection is lost on the way."""
        while True:
            try:
                return work()
            except self._error:
                if not self._db.closed and not self._db.broken:
                    raise
                self._reconnect()

    def _reconnect(self) -> None:
        """Reach the database again, and take back every lock. Raises `JournalError` when it stays away."""
        self._db.close()
        deadline, pause, told = time.monotonic() + RETRY_SECONDS, 0.1, False
        while True:
            try:
                self._db = self._connect()
                break
            except JournalError as error:
                if not told:
                    logger.warning("%s; trying again for %d s", error, RETRY_SECONDS)
                    told = True
                if time.monotonic() > deadline or not error.temporary or self._closing.is_set():
                    self._lost.update(number for kind, number in self.held if kind == RUN_LOCK)
                    raise
                self._closing.wait(pause)
                pause = min(pause * 2, 2.0)
        if told:
            logger.warning("the database %s is back", shown(self._url))
        missing = {(kind, number) for kind, number in self.held if kind != RUN_LOCK or number not in self._lost}
        deadline = time.monotonic() + HOLD_AGAIN_SECONDS
        while missing:
            missing -= {lock for lock in missing if self._lock(*lock)}
            if time.monotonic() > deadline:
                break
            if missing:
                time.sleep(0.1)
        self._lost.update(number for kind, number in missing if kind == RUN_LOCK)

    def _lock(self, kind: int, number: int) -> bool:
        return bool(self._db.execute("SELECT pg_try_advisory_lock(%s, %s)", (kind, number)).fetchone()[0])

    # --- locks ---

    def hold(self, run_id: str) -> Call:
        """A job that takes a run's lease and gives its row."""

        def take(db: Any) -> int:
            found = db.execute("SELECT id FROM beforehand.runs WHERE run_id = %s", (run_id,)).fetchone()
            if found is None:
                raise UnknownRun(f"no run {run_id!r} is recorded in {shown(self._url)}")
            if (RUN_LOCK, found[0]) in self.held:
                raise RunBusy(f"run {run_id} is going on in this process: wait for it, or use its result")
            if not self._lock(RUN_LOCK, found[0]):
                raise RunBusy(f"run {run_id} is going on in another process: wait for it, or use its result")
            self._lost.discard(found[0])
            self.held[RUN_LOCK, found[0]] = run_id
            return int(found[0])

        return Call(take)

    def lock_worker(self, number: int, name: str) -> Call:
        """A job that takes the lock by which others see that a worker lives."""

        def take(_: Any) -> bool:
            taken = self._lock(WORKER_LOCK, number)
            if taken:
                self.held[WORKER_LOCK, number] = name
            return taken

        return Call(take)

    def give_back(self, kind: int, number: int) -> Call:
        def give(db: Any) -> None:
            if self.held.pop((kind, number), None) is not None:
                db.execute("SELECT pg_advisory_unlock(%s, %s)", (kind, number))
            if kind == RUN_LOCK:
                self._lost.discard(number)

        return Call(give)

    # --- writing ---

    def _begin(self, jobs: list[Opening]) -> None:
        """Begin runs together; where that fails, one by one, so that only the one at fault fails."""
        try:
            self._again(lambda: self._open(jobs))
        except (self._error, ValueError):  # ValueError: what the driver cannot write, such as a NUL
            if len(jobs) == 1:
                raise
            for job in jobs:
                self._do([job])

    def _open(self, jobs: list[Opening]) -> None:
        """Begin runs, in one transaction: the chain over the first records of runs has one end."""
        db = self._db
        ids = [job.run_id for job in jobs]
        made: list[tuple[Opening, PgHead]] = []
        with db.transaction():
            with db.pipeline():
                facts = db.execute("SELECT opened, head, seal FROM beforehand.journal FOR UPDATE")
                there = db.execute("SELECT run_id FROM beforehand.runs WHERE run_id = ANY(%s)", (ids,))
                opened, before, sealed = facts.fetchone()
                known = {run_id for (run_id,) in there.fetchall()}
            rows, locks = [], {}
            untouched = sealed == seal(self._key, opened, before)
            for job in jobs:
                if job.run_id in known:
                    continue
                known.add(job.run_id)
                opened += 1
                kind, at, body = job.entry
                before = link(before, Record(job.run_id, 1, at, kind, body), self._key)
                head = PgHead(opened, job.run_id, 1, before)
                made.append((job, head))
                rows.append((opened, job.run_id, job.parent, before, seal(self._key, job.run_id, 1, before), at, kind, body))
            if rows:
                end = (opened, before, seal(self._key, opened, before) if untouched else sealed)  # a broken seal stays broken
                taken_ids, taken_locks = db.execute(OPEN, (*map(list, zip(*rows, strict=True)), *end)).fetchone()
                locks = dict(zip(taken_ids, taken_locks, strict=True))
        for job, head in made:
            assert locks[head.row]  # a new row: nobody can have held it
            self.held[RUN_LOCK, head.row] = job.run_id
            job.done(head)
        for job in jobs:
            if not job.future.done():
                job.fail(RunExists(job.run_id))

    def _append(self, jobs: list[Append]) -> None:
        waiting = jobs
        while waiting:
            plans: dict[int, Plan] = {}
            later = []
            for job in waiting:
                head = job.head
                if head.failed is not None or head.row in self._lost:
                    job.fail(head.failed or taken(head))
                elif (plan := plans.setdefault(head.row, Plan(head))).head is head:
                    plan.jobs.append(job)
                else:
                    later.append(job)
            if plans := {row: plan for row, plan in plans.items() if plan.jobs}:
                later = self._send(list(plans.values())) + later
            waiting = later

    def _send(self, plans: list[Plan]) -> list[Append]:
        """Write these plans in one transaction. Those whose run had moved on come back, to be tried again."""
        for plan in plans:
            plan.chain(self._key)
        statement = TELL if any([plan.answers for plan in plans]) else APPEND
        try:
            moved, _ = self._db.execute(statement, columns(plans)).fetchone()
        except self._error:
            if not self._db.closed and not self._db.broken:
                if len(plans) == 1:
                    raise
                return [job for plan in plans for job in self._alone(plan)]
            self._reconnect()
            moved = []  # it may have been written all the same: that is looked up
        again: list[Append] = []
        for plan in plans:
            if plan.head.row in moved or self._written(plan):
                plan.settle()
            else:
                again += [job for job in plan.jobs if not job.future.done()]
        return again

    def _alone(self, plan: Plan) -> list[Append]:
        """One plan of several that could not be written together: only the one at fault fails."""
        try:
            return self._send([plan])
        except self._error as error:
            for job in plan.jobs:
                job.fail(self._as_error(error))
            return []

    def _written(self, plan: Plan) -> bool:
        """A plan did not apply: whether it had been written before. Else its head is moved to where the run's end is now."""
        head = plan.head

        def look() -> tuple[Any, Any, Any]:
            ours = self._db.execute("SELECT hash FROM beforehand.records WHERE run = %s AND n = %s", (head.row, plan.count))
            new = self._db.execute("SELECT kind FROM beforehand.records WHERE run = %s AND n > %s", (head.row, head.records))
            end = self._db.execute("SELECT records, head, seal FROM beforehand.runs WHERE id = %s", (head.row,))
            return ours.fetchone(), new.fetchall(), end.fetchone()

        ours, new, end = self._again(look)
        if end is None:
            error = JournalError(f"the records of run {head.run_id} are no longer in {shown(self._url)}")
        elif ours is not None and ours[0] == plan.end:
            return True
        elif head.row in self._lost or ((RUN_LOCK, head.row) in self.held and ("resumed",) in new):
            error = taken(head)
        else:
            *there, sealed = end
            if sealed == seal(self._key, head.run_id, *there):
                head.records, head.hash = there
                return False
            error = JournalError(f"the records of run {head.run_id} were changed: the run stopped before its next effect")
        for job in plan.jobs:
            job.fail(error)
        return False
