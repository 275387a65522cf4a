"""The connections over which a journal's file is read: one for each read that goes on.

As long as a read goes on, all that is read over its connection is of the moment at which it began. Two threads that shared one
would not see what the process has written since then.
"""

from __future__ import annotations

import contextlib
import sqlite3
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
    """`first` is there from the beginning: whoever deletes or replaces the file takes nothing from those who read it."""

    def __init__(self, first: Connection, path: Path, readonly: bool, leases: Leases) -> None:
        self._first, self._path, self._readonly, self._leases = first, path, readonly, leases
        self._files = Files(path)
        self._free = [first]
        self._closed = False

    def rows(self, query: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """What a query finds. Raises `sqlite3.Error`."""
        try:
            db = self._free.pop()
        except IndexError:
            db = self._another()
        try:
            return db.execute(query, values).fetchall()
        finally:
            if db is not self._first and len(self._free) >= KEPT:
                db.close()
            elif db not in self._free:
                self._free.append(db)
            if self._closed:
                self.close()

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

    def close(self) -> None:
        """Close those that nobody reads over. The others are closed as soon as nobody does."""
        self._closed = True
        with contextlib.suppress(IndexError):  # somebody else closes them, too
            while True:
                self._free.pop().close()
