"""The journal in a SQLite file: one writer at a time, any number of readers and processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec

from ..errors import ConfigError, JournalError, UnknownRun
from .chain import Record, link, seal
from .lease import Lease, Leases
from .opening import BUSY_SECONDS, JournalBusy, RunExists, as_error, open_database

P = ParamSpec("P")
T = TypeVar("T")

Durability = Literal["full", "normal"]
DURABILITIES = ("full", "normal")

FOLD_COMMITS = 1000
"""After about so many commits SQLite's log is folded into the file, in a thread."""

Entry = tuple[str, int, bytes]
"""What is to be recorded: kind, time in microseconds, body as JSON."""


class Head(msgspec.Struct):
    """Where a run's chain ends: its row, the number of its records, the hash of the last."""

    row: int
    run_id: str
    records: int
    hash: bytes


class RunRow(msgspec.Struct, frozen=True):
    """One run as a list shows it: its first and its last record."""

    run_id: str
    parent: str | None
    records: int
    first: Record
    last: Record


def encode(value: Any) -> bytes:
    """A record's body. What JSON cannot hold becomes its text."""
    return _encode(value)


_encode = msgspec.json.Encoder(enc_hook=lambda value: str(value)).encode


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Journal:
    """A journal in the SQLite file `path`, made when it is first used.

    `durability="full"` waits for the disk (fsync, off the event loop) at intents, approvals and the ends of runs; `"normal"`
    survives the end of the process, not of the machine. `key` signs the records. `raw=True` also keeps what a tool gave
    before the hooks at 13. `readonly=True` never makes or changes a file. Raises `JournalUnreadable` for a file that is
    no journal, or one of a newer version.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, durability: Durability = "full", key: bytes | None = None, raw: bool = False,
        readonly: bool = False,
    ) -> None:  # fmt: skip
        if durability not in DURABILITIES:
            raise ConfigError(f'durability={durability!r} must be "full" or "normal"')
        if key is not None and (not isinstance(key, bytes) or len(key) < 16):
            raise ConfigError("the journal's key must be bytes, at least 16 of them")
        self.path = Path(path)
        self.durability, self.raw, self.readonly = durability, raw, readonly
        self._key = key
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._leases = Leases(self.path.with_name(self.path.name + "-locks"))
        self._wal: int | None = None
        self._pid = 0
        self._folding = False
        self._commits = 0
        self._wait = -1.0

    def __repr__(self) -> str:
        signed = ", signed" if self._key is not None else ""
        return f"Journal({str(self.path)!r}, durability={self.durability!r}{signed})"

    # --- the file ---

    @property
    def db(self) -> sqlite3.Connection:
        """The connection of this process. A fork gets one of its own."""
        if self._db is None or self._pid != os.getpid():
            with self._lock:
                if self._db is None or self._pid != os.getpid():
                    self._db, self._wal, self._pid = open_database(self.path, self._key, self.readonly), None, os.getpid()
        return self._db

    @property
    def signed(self) -> bool:
        """Whether its records carry HMACs."""
        return bool(self.db.execute("SELECT value FROM journal WHERE name = 'signed'").fetchone()[0])

    @property
    def key(self) -> bytes | None:
        return self._key

    def close(self) -> None:
        """Close the file. It is opened again when it is next used."""
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                if self._wal is not None:
                    os.close(self._wal)
                self._db.close()
            self._db = self._wal = None
            self._leases.close()

    # --- writing ---

    @contextlib.contextmanager
    def _writing(self, wait: float) -> Iterator[sqlite3.Connection]:
        """One transaction. Raises `_Busy` if another process writes for longer than `wait` seconds, else `JournalError`."""
        if self.readonly:
            raise JournalError(f"the journal {self.path} was opened to be read only")
        with self._lock:
            db = self.db
            try:
                if wait != self._wait:
                    db.execute(f"PRAGMA busy_timeout = {int(wait * 1000)}")
                    self._wait = wait
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                raise as_error(self.path, error) from None
            try:
                yield db
                db.execute("COMMIT")
                self._commits += 1
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise as_error(self.path, error) from None
                raise

    def open_run(self, run_id: str, entry: Entry, parent: str | None = None, wait: float = BUSY_SECONDS) -> Head:
        """Begin the records of a run. Raises `RunExists` if there is one of this id."""
        kind, at, body = entry
        with self._writing(wait) as db:
            if db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone():
                raise RunExists(run_id)
            facts = dict(db.execute("SELECT name, value FROM journal"))
            opened, before = facts["opened"], facts["head"]
            record = Record(run_id, 1, at, kind, body)
            head = link(before, record, self._key)
            row = db.execute(
                "INSERT INTO runs (run_id, parent, records, head, seal) VALUES (?, ?, 1, ?, ?)",
                (run_id, parent, head, seal(self._key, run_id, 1, head)),
            ).lastrowid
            assert row is not None
            db.execute(_INSERT, (row, 1, at, kind, body, head))
            moved = ((opened + 1, "opened"), (head, "head"), (seal(self._key, opened + 1, head), "seal"))
            db.executemany("UPDATE journal SET value = ? WHERE name = ?", moved)
        return Head(row, run_id, 1, head)

    def append(self, head: Head, entries: Sequence[Entry], wait: float = BUSY_SECONDS) -> None:
        """Add records to a run, all or none, and move `head` on. Others may have added to it meanwhile."""
        with self._writing(wait) as db:
            rows, end = self._chained(head, entries)
            if not self._move(db, head, rows, end):
                found = db.execute("SELECT records, head FROM runs WHERE id = ?", (head.row,)).fetchone()
                if found is None:
                    raise JournalError(f"the records of run {head.run_id} are no longer in {self.path}")
                head.records, head.hash = found
                rows, end = self._chained(head, entries)
                self._move(db, head, rows, end)
            db.executemany(_INSERT, rows)
        head.records, head.hash = rows[-1][1], end

    def _chained(self, head: Head, entries: Sequence[Entry]) -> tuple[list[tuple[Any, ...]], bytes]:
        count, before, rows = head.records, head.hash, []
        for kind, at, body in entries:
            count += 1
            before = link(before, Record(head.run_id, count, at, kind, body), self._key)
            rows.append((head.row, count, at, kind, body, before))
        return rows, before

    def _move(self, db: sqlite3.Connection, head: Head, rows: list[tuple[Any, ...]], end: bytes) -> bool:
        """Write down where the chain ends now. False if it did not end where `head` says, and nothing was written."""
        count = rows[-1][1]
        values = (count, end, seal(self._key, head.run_id, count, end), head.row, head.records, head.hash)
        query = "UPDATE runs SET records = ?, head = ?, seal = ? WHERE id = ? AND records = ? AND head = ?"
        return db.execute(query, values).rowcount == 1

    def drop_last(self, head: Head) -> None:
        """Take away the last record of a run, which is damaged."""
        with self._writing(BUSY_SECONDS) as db:
            last = head.records
            db.execute("DELETE FROM records WHERE run = ? AND n = ?", (head.row, last))
            before = db.execute("SELECT hash FROM records WHERE run = ? AND n = ?", (head.row, last - 1)).fetchone()[0]
            db.execute(
                "UPDATE runs SET records = ?, head = ?, seal = ? WHERE id = ?",
                (last - 1, before, seal(self._key, head.run_id, last - 1, before), head.row),
            )
        head.records, head.hash = last - 1, before

    async def begin(self, run_id: str, entry: Entry, parent: str | None = None) -> tuple[Head, Lease]:
        """`open_run` that never holds up the event loop. The run is held as well."""
        try:
            head = self.open_run(run_id, entry, parent, wait=0)
        except JournalBusy:
            head = await asyncio.to_thread(self.open_run, run_id, entry, parent)
        return head, self.lease(run_id, head.row)

    async def write(self, head: Head, entries: Sequence[Entry], durable: bool = False) -> None:
        """`append` that never holds up the event loop: if another process is writing, the wait is in a thread.

        With `durable` it then waits for the disk, as far as the journal is asked to.
        """
        if entries:
            try:
                self.append(head, entries, wait=0)
            except JournalBusy:
                await asyncio.to_thread(self.append, head, entries)
        if durable:
            await self.sync()

    async def sync(self) -> None:
        """Wait until what was written is on the disk, if `durability` is "full". The wait is in a thread."""
        if self.durability == "full":
            try:
                await asyncio.to_thread(os.fsync, self._wal_file())
            except OSError as error:
                raise JournalError(f"the journal {self.path} could not be brought to the disk: {error.strerror}") from None
        self._fold()

    def _wal_file(self) -> int:
        with self._lock:
            if self._wal is None:
                wal = self.path.with_name(self.path.name + "-wal")
                self._wal = os.open(wal, os.O_RDWR)
                if os.name == "posix":  # the name of a new file is durable with its folder only
                    folder = os.open(self.path.parent, os.O_RDONLY)
                    os.fsync(folder)
                    os.close(folder)
            return self._wal

    def _fold(self) -> None:
        """Move the log into the file when it has grown, in a thread: that waits for the disk."""
        if self._commits >= FOLD_COMMITS and not self._folding:
            self._folding, self._commits = True, 0
            threading.Thread(target=self._fold_now, name="beforehand:journal", daemon=True).start()

    def _fold_now(self) -> None:
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=0)) as db:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            pass  # another time
        finally:
            self._folding = False

    # --- reading ---

    def head(self, run_id: str) -> Head:
        """Where the records of a run end. Raises `UnknownRun`."""
        found = self.db.execute("SELECT id, records, head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if found is None:
            raise UnknownRun(f"no run {run_id!r} is recorded in {self.path}")
        return Head(found[0], run_id, found[1], found[2])

    def before_run(self, row: int) -> bytes:
        """The hash that the first record of a run follows: of the first record of the run opened before it."""
        query = "SELECT hash FROM records WHERE n = 1 AND run = (SELECT max(id) FROM runs WHERE id < ?)"
        found = self.db.execute(query, (row,)).fetchone()
        return found[0] if found else b""

    def has(self, run_id: str) -> bool:
        """Whether a run of this id is recorded."""
        return self.db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is not None

    def records(self, run_id: str, after: int = 0) -> list[Record]:
        """The records of a run, in order, from the one after `after` on. Raises `UnknownRun`."""
        head = self.head(run_id)
        query = "SELECT n, at, kind, body, hash FROM records WHERE run = ? AND n > ? ORDER BY n"
        rows = self.db.execute(query, (head.row, after))
        return [Record(run_id, *row) for row in rows]

    def runs(self, parent: str | None = "") -> list[RunRow]:
        """The runs, oldest first. With `parent`, those made inside calls of that run; with `None`, those inside none."""
        where, values = ("", ()) if parent == "" else ("WHERE runs.parent IS ?", (parent,))
        query = f"""
            SELECT run_id, parent, records, a.n, a.at, a.kind, a.body, a.hash, b.n, b.at, b.kind, b.body, b.hash
            FROM runs JOIN records a ON a.run = runs.id AND a.n = 1 JOIN records b ON b.run = runs.id AND b.n = runs.records
            {where} ORDER BY runs.id"""  # noqa: S608 - nothing of it comes from outside
        return [
            RunRow(row[0], row[1], row[2], Record(row[0], *row[3:8]), Record(row[0], *row[8:13]))
            for row in self.db.execute(query, values)
        ]

    async def reading(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads from this journal. A file is read at once."""
        return fn(*args, **kwargs)

    def answered(self) -> list[tuple[str, int]]:
        """The runs, inside none, whose last record is a person's answer: nobody has gone on with them. With their length."""
        query = """
            SELECT run_id, records FROM runs JOIN records r ON r.run = runs.id AND r.n = runs.records
            WHERE r.kind = 'answer' AND runs.parent IS NULL ORDER BY runs.id"""
        return list(self.db.execute(query))

    def contents(self) -> SqliteContents:
        """Everything in it at this moment."""
        return SqliteContents(Journal(self.path, key=self._key, readonly=True))

    # --- who may go on with a run ---

    async def hold(self, run_id: str) -> Lease:
        """`lease`, by the run's id. Raises `UnknownRun` too."""
        return self.lease(run_id, self.head(run_id).row)

    def lease(self, run_id: str, row: int) -> Lease:
        """The right to go on with a run, for one holder at a time on this machine. Raises `RunBusy`."""
        return self._leases.take(run_id, row)


class SqliteContents:
    """A journal at one moment, to check it. `reader` is its own, and closed with it: the one in use goes on."""

    def __init__(self, reader: Journal) -> None:
        self._reader, self._db = reader, reader.db
        self._db.execute("BEGIN")

    def facts(self) -> dict[str, Any]:
        return dict(self._db.execute("SELECT name, value FROM journal"))

    def runs(self) -> list[tuple[int, str, int, bytes, bytes, str | None]]:
        return self._db.execute("SELECT id, run_id, records, head, seal, parent FROM runs ORDER BY id").fetchall()

    def records(self, row: int) -> Iterator[tuple[int, int, str, bytes, bytes]]:
        return self._db.execute("SELECT n, at, kind, body, hash FROM records WHERE run = ? ORDER BY n", (row,))

    def strays(self) -> int:
        known = {row for row, *_ in self.runs()}
        return sum(run not in known for (run,) in self._db.execute("SELECT DISTINCT run FROM records"))

    def close(self) -> None:
        self._reader.close()


_INSERT = "INSERT INTO records (run, n, at, kind, body, hash) VALUES (?, ?, ?, ?, ?, ?)"
