"""Text files, read the one way they may be written, and written by one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path as FilePath

from .places import Malformed, Place


LARGEST = 16 << 20
"""Bytes of a file that somebody may have written."""


def read_utf8(file: FilePath) -> str:
    """The text of a file. Raises `Malformed` if it cannot be read, or is not UTF-8 without a byte order mark."""
    try:
        if file.exists() and not file.is_dir() and not file.is_file():  # reading it might never come to an end
            raise Malformed(Place(1, 1), "this is no regular file: a pipe or a device is not read")
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except OSError as error:
        raise Malformed(Place(1, 1), f"the file cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise Malformed(Place(1, 1), f"the file is larger than {LARGEST >> 20} MiB: no rule file is, and no project file")
    if data.startswith(b"\xef\xbb\xbf"):
        raise Malformed(Place(1, 1), "the file begins with a byte order mark: save it as UTF-8 without one")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = Place(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        raise Malformed(place, "the file is not UTF-8 here") from None


LONGEST_NAP = 0.05
"""Seconds between two looks at a lock that somebody else holds."""

_whose_turn: ContextVar[FilePath | None] = ContextVar("beforehand_whose_turn", default=None)
"""The folder that the code at work is the only writer of already."""


@contextlib.contextmanager
def only_writer(folder: FilePath) -> Iterator[None]:
    """One at a time, of all processes that write files of this folder and wait here for their turn."""
    if _whose_turn.get() == folder:
        yield
        return
    with _lock_of(folder) as lock:
        lock(False)
        yield


@contextlib.asynccontextmanager
async def in_turn(folder: FilePath) -> AsyncIterator[None]:
    """`only_writer` on an event loop, which goes on while this waits: whoever holds the lock may have been stopped, or hang.
    A cancellation ends the waiting. What is done in here awaits nothing."""
    nap = 0.001
    with _lock_of(folder) as lock:
        while not lock(True):
            await asyncio.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP)
        before = _whose_turn.set(folder)
        try:
            yield
        finally:
            _whose_turn.reset(before)


@contextlib.contextmanager
def _lock_of(folder: FilePath) -> Iterator[Callable[[bool], bool]]:
    """Takes the lock, at once or not at all if that is asked for, and says whether it has it. Let go at the end."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - where there is no such lock the last writer wins
        yield lambda at_once: True
        return

    def take(at_once: bool) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB if at_once else fcntl.LOCK_EX)
        except BlockingIOError:
            return False
        return True

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield take
    finally:
        os.close(fd)
