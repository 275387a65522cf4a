"""Text files, read the one way they may be written."""

from __future__ import annotations

from pathlib import Path as FilePath

from .places import Malformed, Place


def read_utf8(file: FilePath) -> str:
    """The text of a file. Raises `Malformed` if it cannot be read, or is not UTF-8 without a byte order mark."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise Malformed(Place(1, 1), f"the file cannot be read: {error.strerror or error}") from None
    if data.startswith(b"\xef\xbb\xbf"):
        raise Malformed(Place(1, 1), "the file begins with a byte order mark: save it as UTF-8 without one")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = Place(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        raise Malformed(place, "the file is not UTF-8 here") from None
