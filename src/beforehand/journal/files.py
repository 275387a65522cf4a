"""Whether a journal's file is still the one that was opened: what is written to a deleted one is kept by nobody."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import JournalError


class Files:
    """The file and its log (`-wal`), as they are right after opening. Both stay as long as somebody has the journal open."""

    closed = False
    """To be set before it is closed: SQLite takes the log away then."""

    def __init__(self, path: Path) -> None:
        log = path.with_name(path.name + "-wal")
        self._known = [(str(file), known) for file in (path, log) if (known := _identity(file)) is not None]

    def check(self) -> None:
        """Raises `JournalError` if one of them was deleted since, or another file was put in its place."""
        for file, known in self._known:
            found = _identity(file)
            if found != known and not self.closed:
                what = "is gone" if found is None else "is another file now"
                raise JournalError(f"the journal's file {file} {what}: the run stopped before its next effect")


def _identity(file: str | Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
