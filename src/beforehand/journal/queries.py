"""What can be asked of a journal in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from ..errors import JournalUnreadable, UnknownRun
from .chain import Record
from .late import Late
from .layout import Layout
from .readers import Readers

P = ParamSpec("P")
T = TypeVar("T")


class Head(msgspec.Struct):
    """Where a run's chain ends: its row, the number of its records, the hash of the last. `late` are records that wait."""

    row: int
    run_id: str
    records: int
    hash: bytes
    seal: bytes = b""
    late: Late | None = None


class RunRow(msgspec.Struct, frozen=True):
    """One run as a list shows it: its first and its last record. One that is not there has no kind and no body."""

    run_id: str
    parent: str | None
    records: int
    first: Record
    last: Record

    def check(self) -> None:
        """Raises `JournalUnreadable` if one of the two is not there."""
        if not self.first.kind:
            raise no_start(self.run_id)
        if not self.last.kind:
            raise JournalUnreadable(f"run {self.run_id} has no record {self.records}, which was its last")


def run_row(found: Sequence[Any]) -> RunRow:
    """A row from id, parent and number of records, and what was found of the first and last: time, kind, body, hash, or NULLs."""
    (run_id, parent, records), first, last = found[:3], found[3:7], found[7:]
    at = next((one[0] for one in (first, last) if one[0] is not None), 0)
    ends = [(at, "", b"", b"") if one[0] is None else one for one in (first, last)]
    return RunRow(run_id, parent, records, Record(run_id, 1, *ends[0]), Record(run_id, records, *ends[1]))


def no_start(run_id: str) -> JournalUnreadable:
    return JournalUnreadable(f"run {run_id} has no record of its start")


class Queries:
    """The reading half of `Journal`, which may be used while others write."""

    path: Path

    @property
    def readers(self) -> Readers:
        raise NotImplementedError

    @property
    def layout(self) -> Layout:
        """How this file's records are asked for."""
        raise NotImplementedError

    def _rows(self, query: str, *values: Any, **named: Any) -> list[Any]:
        try:
            while (found := self.readers.rows(query, named or values)) is None:
                pass  # they were closed just now, and are opened again
            return found
        except UnicodeEncodeError:
            return []  # a name that SQLite cannot hold names nothing
        except sqlite3.Error as error:
            raise JournalUnreadable(f"the journal {self.path} cannot be read: {error}") from None

    def head(self, run_id: str) -> Head:
        """Where the records of a run end. Raises `UnknownRun`."""
        found = self._rows("SELECT id, records, head, seal FROM runs WHERE run_id = ?", run_id)
        if not found:
            raise UnknownRun(f"no run {run_id!r} is recorded in {self.path}")
        row, count, end, sealed = found[0]
        return Head(row, run_id, count, end, sealed)

    def before_run(self, row: int) -> bytes:
        """The hash that the first record of a run follows: of the first record of the run opened before it."""
        found = self._rows(self.layout.before, row)
        return found[0][0] if found else b""

    def has(self, run_id: str) -> bool:
        """Whether a run of this id is recorded."""
        return bool(self._rows("SELECT 1 FROM runs WHERE run_id = ?", run_id))

    def children(self, run_id: str) -> frozenset[str]:
        """The ids of the runs made inside calls of this one."""
        query = "SELECT run_id FROM runs WHERE run_id > ? AND run_id < ? AND parent = ?"  # their ids begin with its own
        return frozenset([found for (found,) in self._rows(query, f"{run_id}/", f"{run_id}0", run_id)])

    def records(self, run_id: str, after: int = 0) -> list[Record]:
        """The records of a run, in order, from the one after `after` on. Raises `UnknownRun`."""
        head = self.head(run_id)
        return [Record(run_id, *row) for row in self._rows(self.layout.after, run=head.row, n=after)]

    def first(self, run_id: str) -> Record:
        """The record of a run's start, alone. Raises `UnknownRun`, `JournalUnreadable` if it is not there."""
        for row in self._rows(self.layout.first, self.head(run_id).row):
            return Record(run_id, *row)
        raise no_start(run_id)

    def runs(self, parent: str | None = "") -> list[RunRow]:
        """The runs, oldest first. With `parent`, those made inside calls of that run; with `None`, those inside none."""
        where, values = ("", ()) if parent == "" else ("WHERE runs.parent IS ?", (parent,))
        return list(map(run_row, self._rows(f"{self.layout.ends} {where} ORDER BY runs.id", *values)))

    def ids(self, beginning: str = "") -> list[str]:
        """The ids of the runs that begin so, oldest first."""
        query = "SELECT run_id FROM runs WHERE substr(run_id, 1, ?) = ? ORDER BY id"
        return [run_id for (run_id,) in self._rows(query, len(beginning), beginning)]

    async def reading(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads from this journal. A file is read at once."""
        return fn(*args, **kwargs)

    def answered(self) -> list[tuple[str, int]]:
        """The runs, inside none, whose last record is what a person said: nobody has gone on with them. With their length."""
        return self._rows(f"{self.layout.last} WHERE b.kind IN ('answer', 'settled') AND runs.parent IS NULL ORDER BY runs.id")
