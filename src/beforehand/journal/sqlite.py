"""The journal in a SQLite file: one writer at a time, any number of readers and processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, Literal, TypeAlias

from ..errors import ConfigError, JournalError
from .body import encode as encode
from .chain import chained, seal
from .lease import Lease, leases_at
from .opening import BEGIN_LOG, BUSY_SECONDS, JournalBusy, RunExists, as_error, open_database, open_log, write_again
from .connection import Connection
from .contents import SqliteContents
from .files import Files
from .late import Late, when_free
from .layout import Layout
from .queries import Head as Head
from .queries import P, Queries, T
from .queries import RunRow as RunRow
from .readers import Readers
from .torn import drop_torn
from .total import Total, seal_of_facts

Durability = Literal["full", "normal"]
DURABILITIES = ("full", "normal")

FOLD_COMMITS = 1000
"""After about so many commits SQLite's log is folded into the file, in a thread."""

_PAUSE = 0.005
"""Seconds between two tries to write, in a thread that waits for another process."""

Change: TypeAlias = Callable[Concatenate[sqlite3.Cursor, P], T]

Entry = tuple[str, int, bytes]
"""What is to be recorded: kind, time in microseconds, body as JSON."""


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Journal(Queries):
    """A journal in the SQLite file `path`, made when it is first used.

    `durability="full"` waits for the disk (fsync, off the event loop) at intents, approvals and the ends of runs; `"normal"`
    survives the end of the process, not of the machine. `key` signs the records. `raw=True` also keeps what a tool gave
    before the hooks at 13, and what people said before those at 1 and 10. `readonly=True` never makes or changes a file.
    Raises `JournalUnreadable` for a file that is no journal, or one of a newer version.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, durability: Durability = "full", key: bytes | None = None, raw: bool = False,
        readonly: bool = False,
    ) -> None:  # fmt: skip
        if durability not in DURABILITIES:
            raise ConfigError(f'durability={durability!r} must be "full" or "normal"')
        if key is not None and (not isinstance(key, bytes) or len(key) < 16):
            raise ConfigError("the journal's key must be bytes, at least 16 of them")
        self.path = Path(os.path.realpath(path))  # SQLite names what is beside the file after it, not after a link to it
        self.durability, self.raw, self.readonly = durability, raw, readonly
        self._key = key
        self._total = None if key is None else Total(key)
        self._leases = leases_at(self.path)
        self._pid = 0
        self._begin()

    def _begin(self) -> None:
        """Nothing is open yet: of a new journal, and of one that a fork has brought into another process."""
        self._lock = threading.RLock()
        self._db: Connection | None = None
        self._readers: Readers | None = None
        self._writer: sqlite3.Cursor | None = None  # every change is made with this one: a cursor for each statement costs more
        self._layout: Layout  # both once it is open
        self._files: Files
        self._folding = False
        self._commits = self._folded = 0
        self._syncing = threading.Lock()
        self._wal: int | None = None
        self._durable = 0
        self._unsure = False  # whether an fsync has failed
        self._syncs: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}

    def __repr__(self) -> str:
        signed = ", signed" if self._key is not None else ""
        return f"Journal({str(self.path)!r}, durability={self.durability!r}{signed})"

    # --- the file ---

    @property
    def db(self) -> sqlite3.Connection:
        """The connection over which this process writes. A fork gets one of its own."""
        self._after_fork()
        if self._db is None:
            with self._lock:
                if self._db is None:
                    with self._leases.opening() as alone:
                        db, reader, self._layout = open_database(self.path, self._key, self.readonly, alone)
                        for one in {db, reader}:
                            self._leases.opened()
                            one.when_closed = self._leases.closed
                    self._files = Files(self.path)
                    self._readers = Readers(reader, self.path, self.readonly, self._leases)
                    self._db = db  # last: who finds it does not wait
        return self._db

    @property
    def readers(self) -> Readers:
        """The connections to read over. Over the writer's another thread would see what is not committed."""
        _ = self.db  # they are open then
        readers = self._readers
        return self.readers if readers is None else readers  # they were closed just now

    @property
    def layout(self) -> Layout:
        _ = self.db  # is open then
        return self._layout

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            self._begin()
            self._pid = os.getpid()

    async def ready(self) -> None:
        """Have the file open. Making one waits for the disk, so that is done in a thread."""
        if self._db is None or self._pid != os.getpid():
            await asyncio.to_thread(lambda: self.db)

    @property
    def signed(self) -> bool:
        """Whether its records carry HMACs."""
        return bool(self._rows("SELECT value FROM journal WHERE name = 'signed'")[0][0])

    @property
    def key(self) -> bytes | None:
        return self._key

    def close(self) -> None:
        """Close the file. It is opened again when it is next used. Waits for the disk."""
        if self._pid != os.getpid():
            return
        with self._lock, self._syncing:
            if self._wal is not None:
                os.close(self._wal)
            if self._writer is not None:
                self._writer.close()  # while it has a statement, such as one that failed, SQLite keeps the file open
            readers, db = self._readers, self._db
            self._db = self._readers = self._writer = self._wal = None
            if readers is not None:
                self._files.closed = True
                readers.close()
            if db is not None and not self.readonly:  # else it is one of those
                db.close()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if (wal := getattr(self, "_wal", None)) is not None:  # the connection closes itself
            close(wal)

    # --- writing ---

    def _commit(self, wait: float, change: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `change` does, as one transaction.

        Raises `JournalBusy` if another process writes for longer than `wait` seconds, else `JournalError`. Whoever waits holds
        nothing meanwhile: neither the connection nor our own lock, which the event loop needs.
        """
        if self.readonly:
            raise JournalError(f"the journal {self.path} was opened to be read only")
        until = time.monotonic() + wait
        while not (db := self._try_to_write(wait)):
            if time.monotonic() >= until:
                raise JournalBusy(f"the journal {self.path} is being written by another process")
            time.sleep(_PAUSE)
        try:
            result = change(db, *args, **kwargs)
            db.execute("COMMIT")
            self._commits += 1
            return result
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise as_error(self.path, error) from None
            raise
        finally:
            self._lock.release()

    def _try_to_write(self, wait: float) -> sqlite3.Cursor | None:
        """Begin a transaction, with our lock held, unless somebody else is writing."""
        self._after_fork()
        if not self._lock.acquire(blocking=wait > 0):  # whoever holds it may be waiting for the disk
            return None
        try:
            if self._writer is None:
                self._writer = self.db.cursor()
            return self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._lock.release()
            failure = as_error(self.path, error)
            if isinstance(failure, JournalBusy):
                return None
            raise failure from None
        except BaseException:
            self._lock.release()
            raise

    def open_run(self, run_id: str, entry: Entry, parent: str | None = None, wait: float = BUSY_SECONDS) -> Head:
        """Begin the records of a run. Raises `RunExists` if there is one of this id."""
        return self._commit(wait, self._open_run, run_id, entry, parent)

    def _open_run(self, db: sqlite3.Cursor, run_id: str, entry: Entry, parent: str | None) -> Head:
        kind, at, body = entry
        if db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone():
            raise RunExists(run_id)
        facts = dict(db.execute("SELECT name, value FROM journal"))
        opened, before = facts["opened"], facts["head"]
        head = chained(before, self._key, run_id, 1, at, kind, body)
        row = db.execute(
            "INSERT INTO runs (run_id, parent, records, head, seal) VALUES (?, ?, 1, ?, ?)",
            (run_id, parent, head, seal(self._key, run_id, 1, head)),
        ).lastrowid
        assert row is not None
        db.execute(self._layout.insert, (row, 1, at, kind, body, head))
        sealed = facts["seal"]
        if sealed == seal_of_facts(self._key, facts, opened, before):
            sealed = seal_of_facts(self._key, facts, opened + 1, head)
        moved = ((opened + 1, "opened"), (head, "head"), (sealed, "seal"))
        db.executemany("UPDATE journal SET value = ? WHERE name = ?", moved)
        if self._total is not None:
            self._total.add(db, 1)
        return Head(row, run_id, 1, head)

    def append(self, head: Head, entries: Sequence[Entry], wait: float = BUSY_SECONDS) -> None:
        """Add records to a run, all or none, and move `head` on. Others may have added to it meanwhile."""
        if wait == 0 and head.late is not None and head.late.entries:
            raise JournalBusy(f"the journal {self.path} is being written by another process")
        self._append_to(head, entries, wait)

    def _append_to(self, head: Head, entries: Sequence[Entry], wait: float) -> None:
        head.records, head.hash = self._commit(wait, self._append, head, entries)

    def _append(self, db: sqlite3.Cursor, head: Head, entries: Sequence[Entry]) -> tuple[int, bytes]:
        rows, end = self._chained(head, entries)
        if not self._move(db, head, rows, end):
            found = db.execute("SELECT records, head, seal FROM runs WHERE id = ?", (head.row,)).fetchone()
            if found is None or found[0] < head.records:
                raise JournalError(f"the records of run {head.run_id} are no longer in {self.path}")
            *end_now, sealed = found
            if sealed != seal(self._key, head.run_id, *end_now):
                raise JournalError(f"the records of run {head.run_id} were changed: the run stopped before its next effect")
            head.records, head.hash = end_now
            rows, end = self._chained(head, entries)
            self._move(db, head, rows, end)
        db.executemany(self._layout.insert, rows)
        if self._total is not None:
            self._total.add(db, len(rows))
        return rows[-1][1], end

    def _chained(self, head: Head, entries: Sequence[Entry]) -> tuple[list[tuple[Any, ...]], bytes]:
        run_id, row, key, before = head.run_id, head.row, self._key, head.hash
        rows = []
        for n, (kind, at, body) in enumerate(entries, head.records + 1):
            before = chained(before, key, run_id, n, at, kind, body)
            rows.append((row, n, at, kind, body, before))
        return rows, before

    def _move(self, db: sqlite3.Cursor, head: Head, rows: list[tuple[Any, ...]], end: bytes) -> bool:
        """Write down where the chain ends now. False if it did not end where `head` says, and nothing was written."""
        count = rows[-1][1]
        values = (count, end, seal(self._key, head.run_id, count, end), head.row, head.records, head.hash)
        query = "UPDATE runs SET records = ?, head = ?, seal = ? WHERE id = ? AND records = ? AND head = ?"
        return db.execute(query, values).rowcount == 1

    def drop_torn(self, head: Head) -> str | None:
        """Take away what a loss of power has left behind a run's end, and record that. Returns what was said of it."""
        return None if self.readonly else self._commit(BUSY_SECONDS, self._drop_torn, head)

    def _drop_torn(self, db: sqlite3.Cursor, head: Head) -> str | None:
        note = drop_torn(db, self._layout, self._key, head)
        if note is None:
            return None
        self._append(db, head, [("note", now(), encode(note))])
        return str(note["reason"])

    async def begin(self, run_id: str, entry: Entry, parent: str | None = None) -> tuple[Head, Lease]:
        """`open_run` that never holds up the event loop. The run is held as well."""
        head = await when_free(lambda: self.open_run(run_id, entry, parent, wait=0))
        self._files.check()
        return head, self.lease(run_id, head.row)

    async def write(self, head: Head, entries: Sequence[Entry], durable: bool = False) -> None:
        """`append` that never holds up the event loop: if somebody else is writing, it is tried again.

        Records of a run are written in the order in which they came. With `durable` it then waits for the disk, as far as the
        journal is asked to.
        """
        if entries:
            try:
                self.append(head, entries, wait=0)
            except JournalBusy:
                head.late = head.late or Late(lambda some: self._append_to(head, some, 0))
                head.late.entries += entries
        if head.late is not None:
            await head.late.written()
        self._files.check()
        if durable:
            await self.sync()

    async def sync(self) -> None:
        """Wait until what was written is on the disk, if `durability` is "full". The wait is in a thread.

        Calls that wait at the same time share one: it is begun after the last of them has written.
        """
        if self.durability == "full":
            written, loop = self._commits, asyncio.get_running_loop()
            while self._durable < written:
                going = self._syncs.get(loop)
                if going is None or going.done():
                    going = self._syncs[loop] = asyncio.ensure_future(asyncio.to_thread(self._fsync))
                    going.add_done_callback(lambda done: self._synced(loop, done))
                await asyncio.shield(going)
        self._fold()

    def _synced(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        if self._syncs.get(loop) is done:
            del self._syncs[loop]
        if not done.cancelled():
            done.exception()  # those who wait raise it; if nobody does any more, nobody is told

    def _fsync(self) -> None:
        with self._syncing:
            written, closed = self._commits, self._db is None
            try:
                if self._unsure:
                    write_again(self.path, self._leases)
                if self._wal is None:
                    self._wal = open_log(self.path)
                os.fsync(self._wal)
            except OSError as error:
                # When SQLite closes the file, it waits for the disk, and then there is no log.
                if not closed or not isinstance(error, FileNotFoundError):
                    self._unsure = True
                    raise JournalError(f"the journal {self.path} could not be brought to the disk: {error.strerror}") from None
            self._durable, self._unsure = written, False

    def _fold(self) -> None:
        """Move the log into the file when it has grown, in a thread: that waits for the disk."""
        if self._commits >= self._folded + FOLD_COMMITS and not self._folding:
            self._folding, self._folded = True, self._commits
            threading.Thread(target=self._fold_now, name="beforehand:journal", daemon=True).start()

    def _fold_now(self) -> None:
        self._leases.opened()
        try:
            with contextlib.closing(_beside(self.path)) as db, contextlib.closing(_beside(self.path)) as reader:
                reader.execute("BEGIN")
                reader.execute("SELECT 1 FROM journal").fetchone()  # while somebody reads the log, nobody begins it anew
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # most of it, while others write
                with self._lock:
                    reader.execute("COMMIT")
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    # The first to write into the emptied log waits for the disk: it is us, and not the event loop.
                    db.execute(BEGIN_LOG)
        except sqlite3.Error:
            pass  # another time
        finally:
            self._folding = False
            self._leases.closed()

    def contents(self) -> SqliteContents:
        """Everything in it at this moment."""
        return SqliteContents(Journal(self.path, key=self._key, readonly=True))

    # --- who may go on with a run ---

    def is_going_on(self, run_id: str) -> bool:
        """Whether somebody on this machine goes on with a run right now."""
        return self._leases.is_held(self.head(run_id).row)

    async def hold(self, run_id: str) -> Lease:
        """`lease`, by the run's id. Raises `UnknownRun` too."""
        return self.lease(run_id, self.head(run_id).row)

    def lease(self, run_id: str, row: int) -> Lease:
        """The right to go on with a run, for one holder at a time on this machine. Raises `RunBusy`."""
        return self._leases.take(run_id, row)


def _beside(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None)
