"""Folders of workers: one for each, in memory where there is such a place, thrown away with it.

A process keeps its workers' folders in one of its own, which it holds locked. What a process that was killed has left
behind is held by nobody, so the next one that needs a folder throws it away.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl

    def _lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

else:

    def _lock(fd: int) -> bool:
        return False


_PREFIX = "beforehand-workers-"
_MEMORY = "/dev/shm"  # noqa: S108 - folders of our own are made in it, whose names nobody can guess
"""Nothing of a worker is to reach a disk."""
_SETTLED = 60.0
"""Seconds after which a folder that nobody holds has lost its process. Before that, it may be about to be locked."""

_home: tuple[int, str] | None = None
"""The folder of this process, and the process's id: a fork makes one of its own."""


def new_folder() -> str:
    """A new folder for one worker."""
    return tempfile.mkdtemp(dir=_own())


def _own() -> str:
    global _home
    pid = os.getpid()
    if _home is None or _home[0] != pid or not os.path.isdir(_home[1]):
        place = _MEMORY if os.access(_MEMORY, os.W_OK) else tempfile.gettempdir()
        sweep(place)
        made = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        if sys.platform != "win32":
            _lock(os.open(made, os.O_RDONLY))  # held until the process ends, however it ends
        atexit.register(_leave, pid, made)
        _home = pid, made
    return _home[1]


def _leave(pid: int, folder: str) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(place: str, settled: float = _SETTLED) -> None:
    """Throw away the folders of this user's processes that are no more, if they were made so many seconds ago."""
    if sys.platform == "win32":
        return
    for folder in Path(place).glob(f"{_PREFIX}*"):
        try:
            there = folder.lstat()
            if there.st_uid != os.getuid() or time.time() - there.st_ctime < settled:
                continue
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _lock(fd):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)
