"""A journal's file opened to be read, by somebody who may not write it, nor the folder it is in.

A reader of a file in WAL mode needs the index beside it (`-shm`), and makes one where there is none. Who may not make it, or has
no room for it on a full disk, reads the file as one that nobody changes, or, if its log still holds the newest records, a copy
of both.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from .connection import Connection, connect


def connect_readonly(path: Path, timeout: float) -> Connection:
    """A connection that never changes `path`. Raises `sqlite3.Error` if it cannot be read, `OSError` if it cannot be copied."""
    db = _connect(path, "mode=ro", timeout)
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchone()  # the first look is what needs the index
        return db
    except sqlite3.OperationalError as error:
        db.close()
        if not error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR_SHM")):
            raise
    log = path.with_name(path.name + "-wal")
    if not log.exists() or log.stat().st_size == 0:
        db = _connect(path, "mode=ro&immutable=1", timeout)
    else:
        db = _copied(path, log, timeout)
    db.unchanging = True
    return db


def _connect(path: Path, how: str, timeout: float) -> Connection:
    where = f"file:{quote(os.fsencode(path.absolute()))}?{how}"
    return connect(where, timeout)


def _copied(path: Path, log: Path, timeout: float) -> Connection:
    """A copy in memory of the file with its log. No process has it open: that one would have left its index beside it."""
    with tempfile.TemporaryDirectory(prefix="beforehand-") as folder:
        copy = Path(folder) / "journal"
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name("journal-wal"))
        db = connect("file::memory:", timeout)
        with contextlib.closing(sqlite3.connect(copy)) as source:
            source.backup(db)
    return db
