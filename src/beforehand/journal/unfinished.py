"""What a commit has left in SQLite's log that never came to be whole: its process ended as it wrote, or the disk lost power.

SQLite passes over it without a word, so it is looked for before something else is written in its place.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

COUNT = "INSERT INTO journal VALUES ('unfinished', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
"""Counts how often something was found."""

WHY = "as the end of a process, a full disk or a loss of power leaves it"

_HEADER, _FRAME_HEADER = 32, 24
_MAGIC = (0x377F0682, 0x377F0683)


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def fold(path: Path) -> int | None:
    """Move what is whole in the log into the file. Returns how many frames of it are; `None` if somebody else is at it."""
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as db:
            busy, frames, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.OperationalError:  # locked, or the disk is full
        return None
    return None if busy else max(frames, 0)


def is_unfinished(log: Path, frames: int) -> bool:
    """Whether something of this log stands behind its first `frames` that are whole. Nobody may be writing meanwhile.

    A log that was begun anew still has frames of the one before behind its own: those bear another mark. Zeros are where
    the disk had room for what did not come.
    """
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = file.read(_HEADER)
        step = _FRAME_HEADER + int.from_bytes(header[8:12], "big")
        if int.from_bytes(header[:4], "big") not in _MAGIC or step == _FRAME_HEADER:
            return size > 0
        for at in range(_HEADER + frames * step, size, step):
            file.seek(at)
            found = file.read(_FRAME_HEADER)
            if len(found) < 16 or found[8:16] == header[16:24] or not any(found):
                return True
    return False
