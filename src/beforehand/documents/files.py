"""Text files, read the one way they may be written, and written by one at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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


@contextlib.contextmanager
def only_writer(folder: FilePath) -> Iterator[None]:
    """One at a time, of all processes that write files of this folder and wait here for their turn."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - where there is no such lock the last writer wins
        yield
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
