"""The one session through which a process writes to its journal in PostgreSQL, in a thread of its own.

What several runs want written while one commit is under way goes into the next together. Leases are advisory locks of the
same session: when the connection dies, the right to go on with a run and the means to write to it are lost together, so
that nobody who has been robbed can still act.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import JournalError, JournalUnreadable
from .chain import Record, link, seal
from .pgjobs import APPEND, OPEN, RUN_LOCK, TELL, Append, Call, Job, Opening, PgHead, Plan, taken
from .pglocks import Locks
from .opening import RunExists
from .pgtotal import PgTotal
from .pgopening import connect, lost, passes, prepare, psycopg, said, shown
from .total import seal_of_facts

logger = logging.getLogger("beforehand")

RETRY_SECONDS = 60.0
"""How long a journal that was lost is tried again before the runs that wait for it fail."""

BEAT_SECONDS = 1.0
"""How often a session that holds something is looked at while nothing is written: when it is gone, its locks are anybody's."""

SILENT_SECONDS = 5
"""How long a session may say nothing amid a transaction before the server ends it: all who begin a run wait for who begins one,
and a process that was stopped there would hold them up for as long as it is.
"""

BATCH = 256


class Writer:
    """Jobs are done in the order in which they are put. After `close` there are none."""

    def __init__(self, url: str, key: bytes | None, durability: str) -> None:
        self.reached = False  # whether the database was there once
        self.locks = Locks(shown(url))
        self._url, self._key, self._durability = url, key, durability
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._db: Any = None
        self._total = PgTotal(key)
        self._session: Any = None
        """Process and start of the session, by which the server knows it."""
        self._error: type[Exception] = psycopg().Error
        self._closing = threading.Event()
        self._door = threading.RLock()  # a journal that goes out of scope closes it at any moment, also amid what is below
        self._thread = threading.Thread(target=self._work, name="beforehand:journal", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    def takes(self, job: Job) -> bool:
        """Have a job done. False if it comes after the end."""
        with self._door:
            if self.closed:
                return False
            if job.takes_lease:
                self.locks.wanted(job)
            self._jobs.put(job)
        return True

    def put(self, job: Job) -> Future[Any]:
        """The same, where one that comes after the end fails."""
        if not self.takes(job):
            job.fail(JournalError(f"the journal {shown(self._url)} was closed"))
        return job.future

    def close(self, wait: bool = True) -> bool:
        """Finish what was put, and give the connection back, with every lock. A database that is away is not waited for.

        False, and nothing is closed, while a run goes on or begins; who does not `wait` for it knows that none does.
        """
        with self._door:
            if wait and self.locks.in_use:
                return False
            self._closing.set()
            self._jobs.put(None)
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()
        return True

    # --- the thread ---

    def _work(self) -> None:
        going = True
        while going:
            try:
                jobs = [self._jobs.get(timeout=BEAT_SECONDS if self.locks.held else None)]
            except queue.Empty:
                self._beat()
                continue
            while len(jobs) < BATCH and not self._jobs.empty():
                jobs.append(self._jobs.get())
            if None in jobs:
                going = False
            for kind, same in itertools.groupby([job for job in jobs if job is not None], type):
                together = list(same)
                for part in [[job] for job in together] if issubclass(kind, Call) else [together]:
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
                value = self._again(lambda: jobs[0].fn(self._db))
                self._told(jobs[0], value, value)
        except Exception as error:
            why = self._as_error(error)
            for job in jobs:
                if not job.future.done():
                    job.fail(why)

    def _told(self, job: Job, value: Any, row: int) -> None:
        """Say what a job gave. A lease that nobody waits for any more is given back."""
        if not job.done(value) and job.takes_lease:
            with contextlib.suppress(self._error):  # lost with the session
                self.locks.drop(self._db, row)

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
            db.execute(f"SET idle_in_transaction_session_timeout = '{SILENT_SECONDS}s'")
            prepare(db, shown(self._url), self._key, readonly=False)
            db.execute(f"SET synchronous_commit = {'on' if self._durability == 'full' else 'off'}")
            self._total.begin(db)
            self._session = db.execute(
                "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            ).fetchone()
        except BaseException as error:
            db.close()
            if isinstance(error, self._error):
                raise (lost(shown(self._url), error) if passes(error) else self._as_error(error)) from None
            raise
        self.reached = True
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

    def _beat(self) -> None:
        """See that the session is there. One that was lost is made anew, before others take its locks for free."""
        try:
            self._db.execute("SELECT 1")
            self.locks.take_missing(self._db)
        except self._error:
            if self._db.closed or self._db.broken:
                with contextlib.suppress(JournalError, JournalUnreadable):  # the next beat tries again, or who writes
                    self._connect_again()

    def _reconnect(self) -> None:
        """Reach the database again, and take back every lock. Raises `JournalError` when it stays away."""
        deadline, pause, told = time.monotonic() + RETRY_SECONDS, 0.1, False
        while True:
            try:
                self._connect_again()
                break
            except JournalError as error:
                if not told:
                    logger.warning("%s; trying again for %d s", error, RETRY_SECONDS)
                    told = True
                if time.monotonic() > deadline or not error.temporary or self._closing.is_set():
                    self.locks.lose()
                    raise
                self._closing.wait(pause)
                pause = min(pause * 2, 2.0)
        if told:
            logger.warning("the database %s is back", shown(self._url))

    def _connect_again(self) -> None:
        """A new session, with the locks of the old one. Raises `JournalError`."""
        self._db.close()
        old = self._session
        self._db = self._connect()
        try:
            # Where only this side knows that it is over, the server would keep it, and its locks, for a while.
            self._db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s", old)
            self.locks.take_back(self._db)
        except self._error as error:
            self._db.close()
            raise (lost(shown(self._url), error) if passes(error) else self._as_error(error)) from None

    # --- writing ---

    def _begin(self, jobs: list[Opening]) -> None:
        """Begin runs together; where that fails, one by one, so that only the one at fault fails."""
        tries = itertools.count()
        try:
            self._again(lambda: self._open(jobs if not next(tries) else [job for job in jobs if not self._has_begun(job)]))
        except (self._error, ValueError):  # ValueError: what the driver cannot write, such as a NUL
            if len(jobs) == 1:
                raise
            for job in jobs:
                self._do([job])

    def _has_begun(self, job: Opening) -> bool:
        """Whether the run is there as this was to begin it: the connection was lost before the server said so."""
        query = """
            SELECT runs.id, hash FROM beforehand.runs JOIN beforehand.records r ON r.run = runs.id AND n = 1
            WHERE run_id = %s AND records = 1 AND kind = %s AND at = %s AND body = %b"""
        found = self._db.execute(query, (job.run_id, *job.entry)).fetchone()
        if found is None or not self.locks.take(self._db, RUN_LOCK, found[0], job.run_id):
            return False
        self._told(job, PgHead(found[0], job.run_id, 1, found[1]), found[0])
        return True

    def _open(self, jobs: list[Opening]) -> None:
        """Begin runs, in one transaction: the chain over the first records of runs has one end."""
        db = self._db
        ids = [job.run_id for job in jobs]
        made: list[tuple[Opening, PgHead]] = []
        with db.transaction():
            # No pipeline: in one the server does not see that it waits for us, and would let all others wait with it.
            opened, before, sealed = db.execute("SELECT opened, head, seal FROM beforehand.journal FOR UPDATE").fetchone()
            there = db.execute("SELECT run_id FROM beforehand.runs WHERE run_id = ANY(%s)", (ids,))
            known = {run_id for (run_id,) in there.fetchall()}
            # What is not right stays so, to be seen.
            right = sealed == seal_of_facts(self._key, self._total.facts(db), opened, before)
            rows, locks, total = [], {}, b""
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
                if right:
                    sealed = seal_of_facts(self._key, self._total.come_to(db), opened, before)
                end = (opened, before, sealed)
                taken_ids, taken_locks = db.execute(OPEN, (*map(list, zip(*rows, strict=True)), *end)).fetchone()
                locks = dict(zip(taken_ids, taken_locks, strict=True))
                total = self._total.begun(db, [row[4] for row in rows])
        if rows:
            self._total.settle(total)
        for job, head in made:
            assert locks[head.row]  # a new row: nobody can have held it
            self.locks.held[RUN_LOCK, head.row] = job.run_id
            self._told(job, head, head.row)
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
                if head.failed is not None or head.row in self.locks.lost:
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
            moved = self._total.put(self._db, statement, plans)
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
                self.locks.reached(plan.head.row, plan.count)
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
            query = "SELECT records, head, seal FROM beforehand.runs WHERE id = %s AND run_id = %s"
            end = self._db.execute(query, (head.row, head.run_id))
            return ours.fetchone(), new.fetchall(), end.fetchone()

        ours, new, end = self._again(look)
        if end is None or end[0] < head.records:
            error = JournalError(f"the records of run {head.run_id} are no longer in {shown(self._url)}")
        elif end[2] != seal(self._key, head.run_id, *end[:2]):
            error = JournalError(f"the records of run {head.run_id} were changed: the run stopped before its next effect")
        elif ours is not None and ours[0] == plan.end:
            return True
        elif head.row in self.locks.lost or ((RUN_LOCK, head.row) in self.locks.held and ("resumed",) in new):
            error = taken(head)
        else:
            head.records, head.hash = end[:2]
            return False
        for job in plan.jobs:
            job.fail(error)
        return False
