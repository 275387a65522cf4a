"""The journal in a PostgreSQL database: any number of processes on any number of machines, one of them going on with a run."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar, cast

from ..errors import ConfigError, JournalError, JournalUnreadable, RunBusy, UnknownRun
from .chain import Record
from .pgjobs import IS_HELD, RUN_LOCK, Append, Job, Opening, PgHead
from .pgopening import connect, lost, passes, prepare, psycopg, said, shown
from .pgtotal import facts_of
from .pgwriter import RETRY_SECONDS, Writer
from .queries import Head, RunRow, no_start, run_row
from .sqlite import DURABILITIES, Durability, Entry
from .torn import cut_off

GIVEN_BACK = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.0)
"""A lease is given back a moment after the end is recorded: how long to wait for that, in seconds, again and again."""

logger = logging.getLogger("beforehand")

NO_RIGHT = "42501"
"""The server's code for what a role may not do."""

P = ParamSpec("P")
T = TypeVar("T")


class PostgresJournal:
    """A journal in the database `url` (postgresql://USER:PASSWORD@HOST:PORT/DATABASE), in the schema `beforehand`.

    The tables are made when it is first used. The options are as in `Journal`; with `durability="normal"` the server does
    not wait for its disk. A database that goes away is waited for, a minute long. Raises `ConfigError` for a bad URL,
    `JournalError` if the database cannot be reached, `JournalUnreadable` if what is in it is no journal of ours.
    """

    def __init__(
        self, url: str, *, durability: Durability = "full", key: bytes | None = None, raw: bool = False, readonly: bool = False
    ) -> None:
        if durability not in DURABILITIES:
            raise ConfigError(f'durability={durability!r} must be "full" or "normal"')
        if key is not None and (not isinstance(key, bytes) or len(key) < 16):
            raise ConfigError("the journal's key must be bytes, at least 16 of them")
        self.path = shown(url)
        self.durability, self.raw, self.readonly = durability, raw, readonly
        self._url, self._key = url, key
        self._begin()

    def _begin(self) -> None:
        """Nothing is open yet: of a new journal, and of one that a fork has brought into another process."""
        self._pid = os.getpid()
        self._guard = threading.RLock()
        """Held by a thread that reads, for as long as the server takes: the event loop must never want it."""
        self._making = threading.Lock()
        self._reader: Any = None
        self._writing: Writer | None = None

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def __repr__(self) -> str:
        signed = ", signed" if self._key is not None else ""
        return f"PostgresJournal({self.path!r}, durability={self.durability!r}{signed})"

    @property
    def key(self) -> bytes | None:
        return self._key

    @property
    def signed(self) -> bool:
        """Whether its records carry HMACs."""
        return bool(self._one("SELECT signed FROM beforehand.journal")[0])

    @property
    def writer(self) -> Writer:
        """The session that writes. A fork gets one of its own."""
        if self.readonly:
            raise JournalError(f"the journal {self.path} was opened to be read only")
        self._after_fork()
        while (writer := self._writing) is None or writer.closed:
            with self._making:
                if self._writing is writer:
                    self._writing = Writer(self._url, self._key, self.durability)
        return writer

    def close(self) -> None:
        """Close the connections, unless a run still goes on, or begins. They are opened again when they are next needed."""
        self._after_fork()
        with self._guard:
            if self._reader is not None:
                self._reader.close()
            self._reader = None
            writer = self._writing
            if writer is not None and writer.close():
                with self._making:  # who has written meanwhile has made another
                    self._writing = None if self._writing is writer else self._writing

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:  # as the interpreter ends, `os` may be gone
        if getattr(self, "_pid", None) != getpid():
            return
        if self._reader is not None:
            self._reader.close()  # who still waited for an answer when it was closed has opened it again
        if self._writing is not None:
            self._writing.close(wait=False)  # no run goes on: it would have the journal

    # --- writing ---

    async def ready(self) -> None:
        """A connection is made where it does not hold up the event loop: in the thread that writes."""

    async def begin(self, run_id: str, entry: Entry, parent: str | None = None) -> tuple[Head, PgLease]:
        writer, head = await self._leased(run_id, lambda _: Opening(run_id, entry, parent))
        return head, PgLease(writer, head.row, run_id)

    async def hold(self, run_id: str) -> PgLease:
        for pause in GIVEN_BACK:
            try:
                writer, row = await self._leased(run_id, lambda writer: writer.locks.hold(run_id))
                return PgLease(writer, row, run_id)
            except RunBusy:
                if not pause or not await asyncio.to_thread(self._is_over, run_id):
                    raise
            await asyncio.sleep(pause)
        raise AssertionError

    async def _leased(self, run_id: str, job: Callable[[Writer], Job]) -> tuple[Writer, Any]:
        """What a job gives that takes a run's lease, and from whom. Whoever is cancelled meanwhile does not keep it."""
        writer, future = self._put(job)
        try:
            return writer, await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel() and future.exception() is None:  # else the writer sees that nobody waits
                row = future.result()
                PgLease(writer, row.row if isinstance(row, Head) else row, run_id).release()
            raise

    def _put(self, job: Callable[[Writer], Job]) -> tuple[Writer, Future[Any]]:
        """Have a job done by the session that writes, whoever closes it meanwhile."""
        while True:
            writer = self.writer
            made = job(writer)
            if writer.takes(made):
                return writer, made.future

    def _is_over(self, run_id: str) -> bool:
        return self.records(run_id, after=self.head(run_id).records - 1)[-1].kind in ("end", "suspended")

    def append(self, head: Head, entries: Sequence[Entry], wait: float = 30.0) -> None:
        """Add records to a run. With `wait=0` this only puts them in line: what goes wrong then fails the next `write`."""
        mine = cast(PgHead, head)
        if mine.failed is not None:
            raise mine.failed
        mine.last = self._put(lambda _: Append(mine, entries))[1]
        if wait:
            mine.last.result()

    async def write(self, head: Head, entries: Sequence[Entry], durable: bool = False) -> None:
        mine = cast(PgHead, head)
        if entries:
            self.append(mine, entries, wait=0)
        if (last := mine.last) is not None:
            # Those before it were written before it. It is written also where nobody waits any more: others' records are in it.
            try:
                await asyncio.shield(asyncio.wrap_future(last))
            finally:
                mine.last = None if mine.last is last else mine.last
        if mine.failed is not None:
            raise mine.failed

    # --- reading ---

    async def reading(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A database that was reached before and goes away is waited for, as by who writes."""
        was_there = self._reader is not None or (self._writing is not None and self._writing.reached)
        deadline, pause = time.monotonic() + RETRY_SECONDS * was_there, 0.1
        while True:
            try:
                return await asyncio.to_thread(fn, *args, **kwargs)
            except JournalError as error:
                if not error.temporary or time.monotonic() > deadline:
                    raise
                if pause == 0.1:
                    logger.warning("%s; trying again for %d s", error, RETRY_SECONDS)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _all(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Rows, over the connection that reads: once more if it was lost meanwhile."""
        self._after_fork()
        for attempt in (1, 2):
            with self._guard:
                if self._reader is None or self._reader.closed:
                    self._reader = self._connected(self.readonly)
                try:
                    return cast("list[Any]", self._reader.execute(query, values).fetchall())
                except psycopg().Error as error:
                    if attempt == 2 or not self._reader.broken:
                        if passes(error):
                            raise lost(self.path, error) from None
                        raise JournalUnreadable(f"the journal {self.path} cannot be read: {said(error)}") from None
        raise AssertionError

    def _one(self, query: str, values: Sequence[Any] = ()) -> Any:
        return next(iter(self._all(query, values)), None)

    def head(self, run_id: str) -> Head:
        """Where the records of a run end. Raises `UnknownRun`."""
        found = self._one("SELECT id, records, head, seal FROM beforehand.runs WHERE run_id = %s", (run_id,))
        if found is None:
            raise UnknownRun(f"no run {run_id!r} is recorded in {self.path}")
        return PgHead(row=found[0], run_id=run_id, records=found[1], hash=found[2], seal=found[3])

    def before_run(self, row: int) -> bytes:
        """The hash that the first record of a run follows: of the first record of the run opened before it."""
        query = "SELECT hash FROM beforehand.records WHERE n = 1 AND run = (SELECT max(id) FROM beforehand.runs WHERE id < %s)"
        found = self._one(query, (row,))
        return found[0] if found else b""

    def has(self, run_id: str) -> bool:
        """Whether a run of this id is recorded."""
        return self._one("SELECT 1 FROM beforehand.runs WHERE run_id = %s", (run_id,)) is not None

    def records(self, run_id: str, after: int = 0) -> list[Record]:
        """The records of a run, in order, from the one after `after` on. Raises `UnknownRun`."""
        query = """
            SELECT runs.id, n, at, kind, body, hash FROM beforehand.runs
            LEFT JOIN beforehand.records r ON r.run = runs.id AND n > %s WHERE run_id = %s ORDER BY n"""
        rows = self._all(query, (after, run_id))
        if not rows:
            raise UnknownRun(f"no run {run_id!r} is recorded in {self.path}")
        return [Record(run_id, *row[1:]) for row in rows if row[1] is not None]

    def first(self, run_id: str) -> Record:
        """The record of a run's start, alone. Raises `UnknownRun`, `JournalUnreadable` if it is not there."""
        query = """
            SELECT n, at, kind, body, hash FROM beforehand.runs
            LEFT JOIN beforehand.records r ON r.run = runs.id AND n = 1 WHERE run_id = %s"""
        row = self._one(query, (run_id,))
        if row is None:
            raise UnknownRun(f"no run {run_id!r} is recorded in {self.path}")
        if row[0] is None:
            raise no_start(run_id)
        return Record(run_id, *row)

    def runs(self, parent: str | None = "") -> list[RunRow]:
        """The runs, oldest first. With `parent`, those made inside calls of that run; with `None`, those inside none."""
        where, values = ("", ()) if parent == "" else ("WHERE runs.parent IS NOT DISTINCT FROM %s", (parent,))
        query = f"""
            SELECT run_id, parent, records, a.at, a.kind, a.body, a.hash, b.at, b.kind, b.body, b.hash
            FROM beforehand.runs LEFT JOIN beforehand.records a ON a.run = runs.id AND a.n = 1
            LEFT JOIN beforehand.records b ON b.run = runs.id AND b.n = runs.records {where} ORDER BY runs.id"""  # noqa: S608 - ours
        return list(map(run_row, self._all(query, values)))

    def ids(self, beginning: str = "") -> list[str]:
        """The ids of the runs that begin so, oldest first."""
        query = "SELECT run_id FROM beforehand.runs WHERE starts_with(run_id, %s) ORDER BY id"
        return [run_id for (run_id,) in self._all(query, (beginning,))]

    def children(self, run_id: str) -> frozenset[str]:
        """The ids of the runs made inside calls of this one."""
        return frozenset([child for (child,) in self._all("SELECT run_id FROM beforehand.runs WHERE parent = %s", (run_id,))])

    def is_going_on(self, run_id: str) -> bool:
        """Whether some process goes on with a run right now. Takes nothing."""
        return self._one(IS_HELD, (RUN_LOCK, self.head(run_id).row)) is not None

    def answered(self) -> list[tuple[str, int]]:
        query = """
            SELECT run_id, runs.records FROM beforehand.records r JOIN beforehand.runs ON runs.id = r.run AND runs.records = r.n
            WHERE r.kind IN ('answer', 'settled') AND runs.parent IS NULL ORDER BY runs.id"""
        return [(run_id, records) for run_id, records in self._all(query)]

    def drop_torn(self, head: Head) -> str | None:
        """A server does not leave half a commit behind: what stands behind the end was put there."""
        raise cut_off(head.run_id, head.records + 1, head.records)

    def contents(self) -> PgContents:
        """Everything in it at this moment."""
        db = self._connected(readonly=True)
        try:
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except psycopg().Error as error:
            db.close()
            raise lost(self.path, error) from None
        return PgContents(db, self.path)

    def _connected(self, readonly: bool) -> Any:
        db = connect(self._url)
        try:
            prepare(db, self.path, self._key, readonly)
        except BaseException:
            db.close()
            raise
        return db


class PgContents:
    """A journal at one moment, to check it. Close it."""

    def __init__(self, db: Any, path: str) -> None:
        self._db, self._path, self.error = db, path, psycopg().Error

    def facts(self) -> dict[str, Any]:
        return facts_of(self._db)

    def runs(self) -> list[tuple[int, str, int, bytes, bytes, str | None]]:
        rows = self._db.execute("SELECT id, run_id, records, head, seal, parent FROM beforehand.runs ORDER BY id")
        return cast("list[tuple[int, str, int, bytes, bytes, str | None]]", rows.fetchall())

    def records(self, row: int) -> Any:
        query = "SELECT n, at, kind, body, hash FROM beforehand.records WHERE run = %s ORDER BY n"
        return self._db.execute(query, (row,))

    def strays(self) -> int:
        query = """
            SELECT count(DISTINCT run) FROM beforehand.records
            WHERE NOT EXISTS (SELECT 1 FROM beforehand.runs WHERE id = records.run)"""
        return int(self._db.execute(query).fetchone()[0])

    def unsound(self) -> None:
        """The server sees to its indexes."""

    def damage(self, error: Any) -> str:
        if passes(error):
            raise lost(self._path, error) from None
        if error.sqlstate == NO_RIGHT:
            raise JournalUnreadable(f"the journal {self._path} cannot be read: {said(error)}") from None
        return f"it is damaged: {said(error)}"

    def close(self) -> None:
        self._db.close()


class PgLease:
    """Held until `release`, or until the session ends."""

    def __init__(self, writer: Writer, row: int, run_id: str) -> None:
        self._writer, self._row, self._run_id = writer, row, run_id

    def release(self) -> None:
        self._writer.put(self._writer.locks.give_back(RUN_LOCK, self._row, self._run_id))
