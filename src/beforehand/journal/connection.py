"""A connection to a journal's file, which is closed at the latest when nobody has it any more."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any

_OF_PARENTS: list[sqlite3.Connection] = []
"""What forks have inherited. SQLite forbids them to use it, and even to close it."""


class Connection(sqlite3.Connection):
    """Closes itself when it goes out of scope, with the journal that nobody has closed. Python 3.13 warns of others.

    Whichever thread lets go of it does that: no other one can be using it then.
    """

    when_closed: Callable[[], None] | None = None
    unchanging = False  # whether all that is ever read over it is of one moment
    _opened_by = 0  # of one that could not be opened

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._opened_by = os.getpid()

    def close(self) -> None:
        super().close()
        told, self.when_closed = self.when_closed, None
        if told is not None:
            told()

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:  # as the interpreter ends, `os` may be gone
        if self._opened_by == getpid():
            self.close()
        elif self._opened_by:
            _OF_PARENTS.append(self)


def connect(where: str, timeout: float) -> Connection:
    """Open a database by its URI, for any thread. Transactions begin only where one is begun."""
    return sqlite3.connect(
        where, timeout=timeout, isolation_level=None, check_same_thread=False, factory=Connection, uri=True
    )  # fmt: skip
