"""The connections over which a journal's file is read: one for each read that goes on.

As long as a read goes on, all that is read over its connection is of the moment at which it began. Two threads that shared one
would not see what the process has written since then.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import JournalError
from .connection import Connection
from .files import Files
from .lease import Leases
from .opening import open_reader

KEPT = 4
"""How many stay open for the next reads."""


class Readers:
    """`first` is there from the beginning: whoever deletes or replaces the file takes nothing from those who read it.

    None is closed while somebody reads over it: that would end the process.
    """

    def __init__(self, first: Connection, path: Path, readonly: bool, leases: Leases) -> None:
        self._first, self._path, self._readonly, self._leases = first, path, readonly, leases
        self._files = Files(path)
        self._guard = threading.Lock()
        self._free = [first]
        self._reads = Counter[Connection]()
        """How many go on over those that are not free."""
        self._closed = False

    def rows(self, query: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Any] | None:
        """What a query finds. `None` once they are closed. Raises `sqlite3.Error`."""
        with self._guard:
            if self._closed:
                return None
            db = self._free.pop() if self._free else self._another()
            self._reads[db] += 1
        try:
            return db.execute(query, values).fetchall()
        finally:
            with self._guard:
                self._reads[db] -= 1
                if not self._reads[db]:
                    del self._reads[db]
                    self._put_back(db)

    def _another(self) -> Connection:
        if self._first.unchanging:
            return self._first
        try:
            db = open_reader(self._path, self._readonly)
            self._files.check()
        except (sqlite3.Error, OSError, JournalError):  # the file is gone, or no more can be open: rather an earlier moment
            return self._first
        self._leases.opened()
        db.when_closed = self._leases.closed
        return db

    def _put_back(self, db: Connection) -> None:
        if self._closed or (db is not self._first and len(self._free) >= KEPT):
            db.close()
        else:
            self._free.append(db)

    def close(self) -> None:
        """Close those that nobody reads over. The others are closed as soon as nobody does."""
        with self._guard:
            self._closed = True
            while self._free:
                self._free.pop().close()
