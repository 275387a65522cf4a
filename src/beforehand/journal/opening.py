"""How a journal's file is made, recognised, and refused."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import JournalError, JournalUnreadable
from .connection import Connection, connect
from .layout import FILE_FORMAT, LAYOUTS, TABLE, Layout
from .lease import Leases
from .readonly import connect_readonly
from .total import TOTAL, is_key, no_key, packed, seal_of_facts, wrong_key
from .unfinished import COUNT, WHY, drop, fold, log_of

logger = logging.getLogger("beforehand")

BUSY_SECONDS = 30.0
"""How long a write waits for another process's, away from the event loop."""

BEGIN_LOG = "INSERT INTO journal VALUES ('logs', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
"""Counts the logs. The first write to an empty log waits for the disk: this one does, wherever that holds nobody up. It has to
change something: SQLite writes nothing where a value stays as it is."""

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS journal (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, parent TEXT, records INTEGER NOT NULL, head BLOB NOT NULL,
    seal BLOB NOT NULL
);
{TABLE}"""


def open_database(path: Path, key: bytes | None, readonly: bool, alone: bool) -> tuple[Connection, Connection, Layout]:
    """A connection to write to the journal `path`, made if need be, one to read it, and its layout.

    With `readonly` they are the same one. `alone` says that nobody else has it open: then what those have left is looked at who
    had it open last. Raises `JournalUnreadable` for anything that is no journal.
    """
    try:
        if readonly and not path.is_file():
            raise JournalUnreadable(f"there is no journal {path}")
        if not path.parent.is_dir():
            raise JournalUnreadable(f"the journal {path} cannot be opened: there is no folder {path.parent}")
        if readonly:
            db = connect_readonly(path, BUSY_SECONDS)
        else:
            db = connect(_address(path, "rwc"), BUSY_SECONDS)
    except sqlite3.OperationalError as error:
        raise JournalUnreadable(f"the journal {path} cannot be opened: {error}") from None
    except sqlite3.DatabaseError as error:
        raise JournalUnreadable(f"{path} is not a journal that can be read: {error}") from None
    except OSError as error:
        raise JournalUnreadable(f"the journal {path} cannot be read: {error.strerror or error}") from None
    try:
        layout = _prepare(db, path, key, readonly, alone)
        db.execute("PRAGMA busy_timeout = 0")  # from now on a wait would hold the connection: `Journal` waits without it
        reader = db if readonly else open_reader(path, readonly, BUSY_SECONDS)
    except sqlite3.DatabaseError as error:
        db.close()
        name = getattr(error, "sqlite_errorname", "")
        if not readonly and name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):  # it is the disk, not the file
            raise as_error(path, error) from None
        raise JournalUnreadable(f"{path} is not a journal that can be read: {error}") from None
    except BaseException:
        db.close()
        raise
    return db, reader, layout


def open_reader(path: Path, readonly: bool, wait: float = 0) -> Connection:
    """One more connection to read a journal that is open. Who closes theirs just now keeps others out for a moment: it waits so
    many seconds for that. Raises `sqlite3.Error`, `OSError`.
    """
    if readonly:
        return connect_readonly(path, wait)
    db = connect(_address(path, "rw"), wait)
    db.execute("SELECT 1 FROM sqlite_master").fetchone()  # opens what is beside it
    db.execute("PRAGMA busy_timeout = 0")
    return db


def _address(path: Path, mode: str) -> str:
    return f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"


def _prepare(db: sqlite3.Connection, path: Path, key: bytes | None, readonly: bool, alone: bool) -> Layout:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "journal" not in tables:
        raise JournalUnreadable(f"{path} is a database of something else (it has {min(tables)!r}), not a journal")
    if not tables and readonly:
        raise JournalUnreadable(f"{path} is empty: no run has been recorded in it")
    if not readonly:
        db.execute("PRAGMA page_size = 2048")  # of a new file: a commit writes whole pages, and ours are small
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # `Journal.sync` waits for the disk, off the event loop
        db.execute("PRAGMA wal_autocheckpoint = 0")  # folding waits for the disk too, so that is done in a thread
        if not tables:
            _first_write(db, path, alone)
            _create(db, key)
    found = db.execute("SELECT value FROM journal WHERE name = 'format'").fetchone()
    version = found[0] if found else None
    layout = LAYOUTS.get(version)
    if layout is None:
        newer = isinstance(version, int) and version > FILE_FORMAT
        hint = "a newer version of beforehand wrote it: use that one" if newer else "it is damaged"
        raise JournalUnreadable(f"{path} has journal format {version!r}, and this version reads up to {FILE_FORMAT}: {hint}")
    said = db.execute("SELECT value FROM journal WHERE name = 'signed'").fetchone()
    if said is None or said[0] not in (0, 1):
        raise JournalUnreadable(f"{path} does not say whether it is signed: it is damaged")
    (signed,) = said
    if signed and key is None and not readonly:
        raise JournalUnreadable(no_key(path))
    if not signed and key is not None:
        raise JournalUnreadable(f"{path} is not signed, but a key was given: a key is chosen when a journal is made")
    if signed and key is not None and not readonly:
        last = db.execute("SELECT run_id, records, head, seal FROM runs ORDER BY id DESC LIMIT 1").fetchone()
        if not is_key(key, dict(db.execute("SELECT name, value FROM journal")), last):
            raise JournalUnreadable(wrong_key(path))
    if tables and not readonly:
        with contextlib.suppress(sqlite3.OperationalError):  # a full disk: whoever writes says so
            _first_write(db, path, alone, BEGIN_LOG)
    return layout


def _first_write(db: sqlite3.Connection, path: Path, alone: bool, *statements: str) -> None:
    """Begin to write. What was left unfinished in the log is told, and counted, before it is written over."""
    log = log_of(path)
    used = alone and log.exists() and log.stat().st_size > 0
    db.execute("BEGIN IMMEDIATE")
    try:
        if used and (frames := fold(path)) is not None and drop(log, frames):
            logger.warning("the journal %s: what was written to it last is not whole, %s: dropped", path, WHY)
            statements = (COUNT, *statements) if statements else ()
        for statement in statements:
            db.execute(statement)
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _create(db: sqlite3.Connection, key: bytes | None) -> None:
    db.execute("BEGIN IMMEDIATE")  # several processes may open a new file at once
    try:
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        facts: dict[str, Any] = {"format": FILE_FORMAT, "signed": int(key is not None), "opened": 0, "head": b""}
        if key is not None:
            facts[TOTAL] = packed(key, 0)
        facts["seal"] = seal_of_facts(key, facts, 0, b"")
        db.executemany("INSERT OR IGNORE INTO journal VALUES (?, ?)", facts.items())
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def open_log(path: Path) -> int:
    """The journal's log, to bring it to the disk. Raises `OSError`."""
    if os.name == "posix":  # the name of a new file is durable with its folder only
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    return os.open(log_of(path), os.O_RDWR)


def write_again(path: Path, leases: Leases) -> None:
    """Bring to the disk what an fsync could not. Raises `OSError`.

    The system tells of that once, and may take for written what is not. The log still holds it for whoever reads it now, so
    it is written into the file from there, and a new log is begun.
    """
    leases.opened()
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise OSError(errno.EBUSY, "others are reading it")
            db.execute(BEGIN_LOG)
    except sqlite3.Error as error:
        raise OSError(errno.EIO, str(error)) from None
    finally:
        leases.closed()


# --- what goes wrong -----------------------------------------------------------------------------


class JournalBusy(JournalError):
    """Another process is writing."""

    temporary = True


class RunExists(Exception):
    """A run of this id is recorded already."""


def as_error(path: Path, error: sqlite3.Error) -> JournalError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return JournalBusy(f"the journal {path} is being written by another process")
    why = {
        "SQLITE_FULL": "the disk is full", "SQLITE_IOERR_SHMSIZE": "the disk is full", "SQLITE_READONLY": "it may not be written",
        "SQLITE_CANTOPEN": "it cannot be opened",
    }.get(name) or str(error)  # fmt: skip
    return JournalError(f"the journal {path} could not be written ({why}): the run stopped before its next effect")
