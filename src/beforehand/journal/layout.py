"""Where a record stands in a journal's file, and every statement that depends on it.

A commit writes whole pages, so the fewer it touches the less it costs. Since format 2 a record's row id is made of its
run's row and its number: the records of a run stand together, and no index is needed to find them. Format 1 numbered all
records as they came and had an index of runs and numbers beside them. A file of that format is read and gone on with.
"""

# ruff: noqa: S608 - what the statements are put together from stands here too

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..frozen import Frozen

FILE_FORMAT = 2
"""The format of new files. A file of a newer one is refused."""

TABLE = """
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL, hash BLOB NOT NULL
);
"""
"""In format 2. `id` holds the row of the run in its upper 32 bits, the number of the record in the lower."""


class Layout(Frozen):
    """The statements about records, in one format."""

    insert: str
    """Adds a record. Takes its run (the row), n, at, kind, body, hash."""
    every: str
    """The n, at, kind, body and hash of every record of `:run`, in order."""
    after: str
    """The same for the records after number `:n`."""
    first: str
    """The same for the first record. Takes the run."""
    delete: str
    """Takes a record away, by its run and n."""
    before: str
    """The hash of the first record of the run before this one (its row)."""
    ends: str
    """The id, parent and number of records of runs; at, kind, body and hash of the first record (`a`) and of the last (`b`).

    They are NULL where it is not there."""
    last: str
    """The id and number of records of runs, with the last record as `b`."""
    owners: str
    """The runs (rows) that have records."""


def _layout(insert: str, run: str, n: str, one: Callable[[str, str, str], str], every: str, after: str) -> Layout:
    """`one` is the condition for one record, in a table of this name, by what gives its run and its number."""
    wanted = f"SELECT {n}, at, kind, body, hash FROM records WHERE"
    first, last = one("a", "runs.id", "1"), one("b", "runs.id", "runs.records")
    return Layout(
        insert=insert,
        every=f"{wanted} {every}",
        after=f"{wanted} {after}",
        first=f"{wanted} {one('records', '?', '1')}",
        delete=f"DELETE FROM records WHERE {one('records', '?', '?')}",
        before=f"SELECT hash FROM records WHERE {one('records', '(SELECT max(id) FROM runs WHERE id < ?)', '1')}",
        ends="SELECT run_id, parent, records, a.at, a.kind, a.body, a.hash, b.at, b.kind, b.body, b.hash "
        f"FROM runs LEFT JOIN records a ON {first} LEFT JOIN records b ON {last}",
        last=f"SELECT run_id, records FROM runs JOIN records b ON {last}",
        owners=f"SELECT DISTINCT {run} FROM records",
    )


LAYOUTS: Mapping[object, Layout] = {
    1: _layout(
        insert="INSERT INTO records (run, n, at, kind, body, hash) VALUES (?, ?, ?, ?, ?, ?)", run="run", n="n",
        one=lambda table, run, n: f"{table}.run = {run} AND {table}.n = {n}",
        every="run = :run ORDER BY n", after="run = :run AND n > :n ORDER BY n",
    ),
    2: _layout(
        insert="INSERT INTO records (id, at, kind, body, hash) VALUES ((? << 32) + ?, ?, ?, ?, ?)",
        run="id >> 32", n="id & 0xFFFFFFFF",
        one=lambda table, run, n: f"{table}.id = ({run} << 32) + {n}",
        every="id >= :run << 32 AND id < (:run + 1) << 32 ORDER BY id",
        after="id > (:run << 32) + :n AND id < (:run + 1) << 32 ORDER BY id",
    ),
}  # fmt: skip
"""By the format of the file."""
