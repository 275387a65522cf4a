"""Everything in the journal in a SQLite file at one moment, to check it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from .layout import Layout


class SqliteContents:
    """A journal at one moment, to check it. `reader` is its own, and closed with it: the one in use goes on."""

    error: type[Exception] = sqlite3.Error

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._db: sqlite3.Connection = reader.db
        self._layout: Layout = reader.layout
        self._db.execute("BEGIN")

    def facts(self) -> dict[str, Any]:
        return dict(self._db.execute("SELECT name, value FROM journal"))

    def runs(self) -> list[tuple[int, str, int, bytes, bytes, str | None]]:
        return self._db.execute("SELECT id, run_id, records, head, seal, parent FROM runs ORDER BY id").fetchall()

    def records(self, row: int) -> Iterator[tuple[int, int, str, bytes, bytes]]:
        return self._db.execute(self._layout.every, {"run": row})

    def strays(self) -> int:
        known = {row for row, *_ in self.runs()}
        return sum(run not in known for (run,) in self._db.execute(self._layout.owners))

    def unsound(self) -> str | None:
        (said,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        return None if said == "ok" else self.damage(said)

    def damage(self, error: Any) -> str:
        return f"the file is damaged: {error}"

    def close(self) -> None:
        self._reader.close()
