"""What a commit has left in SQLite's log that never came to be whole: its process ended as it wrote, or the disk lost power.

SQLite passes over it without a word, so it is looked for before something else is written in its place.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

COUNT = "INSERT INTO journal VALUES ('unfinished', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
"""Counts how often something was found."""

WHY = "as the end of a process, a full disk or a loss of power leaves it"

_HEADER, _FRAME_HEADER = 32, 24
_MAGIC = (0x377F0682, 0x377F0683)


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def fold(path: Path) -> int | None:
    """Move what is whole in the log into the file. Returns how many frames of it are; `None` if that cannot be said now."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as db:
            busy, frames, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.OperationalError:  # locked, or the disk is full
        return None
    return None if busy or frames < 0 else int(frames)


def drop(log: Path, frames: int) -> bool:
    """Take away what of this log stands behind its first `frames` that are whole. Whether there was something. Nobody may be
    writing meanwhile: who reads it reads what is whole.

    Where it stayed, whoever opens the journal next would find what is not written over by then, and tell of it again.
    """
    end = _end_of_whole(log, frames)
    if end is None:
        return False
    with contextlib.suppress(OSError):  # it is told again, then
        os.truncate(log, end)
    return True


def _end_of_whole(log: Path, frames: int) -> int | None:
    """Where what is whole ends, in a log that has something unfinished behind that.

    A log that was begun anew still has frames of the one before behind its own: those bear another mark. Zeros are where
    the disk had room for what did not come.
    """
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = file.read(_HEADER)
        step = _FRAME_HEADER + int.from_bytes(header[8:12], "big")
        if int.from_bytes(header[:4], "big") not in _MAGIC or step == _FRAME_HEADER:
            return 0 if size > 0 else None
        end = _HEADER + frames * step
        for at in range(end, size, step):
            file.seek(at)
            found = file.read(_FRAME_HEADER)
            if len(found) < 16 or found[8:16] == header[16:24] or not any(found):
                return end
    return None
