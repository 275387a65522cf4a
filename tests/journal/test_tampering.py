"""A journal that was changed by somebody: `verify` finds it and names the first record that is not as it was written."""

# ruff: noqa: S608 - the statements are put together here

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beforehand import Agent
from beforehand.errors import JournalUnreadable
from beforehand.journal import Journal, verify
from beforehand.journal.chain import Record, link
from beforehand.testing import ScriptedModel, text

KEY = b"a key of thirty-two bytes, or so"
RUNS, RECORDS = 4, 250


@pytest.fixture(scope="module", params=[None, KEY], ids=["plain", "signed"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes | None]:
    """A journal of a thousand records in four runs."""
    path = tmp_path_factory.mktemp("journal") / "runs.db"
    journal = Journal(path, durability="normal", key=request.param)
    for run in range(RUNS):
        head = journal.open_run(f"r{run}", ("run", 1, b"{}"))
        journal.append(head, [("note", n, b'{"n":%d}' % n) for n in range(RECORDS - 1)])
    assert verify(journal) == []
    journal.close()
    return path, request.param


class Copy:
    """A copy of a journal, changed behind its back."""

    def __init__(self, written: tuple[Path, bytes | None], folder: Path) -> None:
        self.path, self.key = folder / "copy.db", written[1]
        shutil.copy(written[0], self.path)

    def change(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        db = sqlite3.connect(self.path)
        with db:
            for query, values in statements:
                db.execute(query, values)
        db.close()

    def faults(self) -> list[tuple[str | None, int | None]]:
        journal = Journal(self.path, key=self.key, readonly=True)
        faults = [(fault.run_id, fault.n) for fault in verify(journal)]
        journal.close()
        return faults


@pytest.fixture
def copy(written: tuple[Path, bytes | None], tmp_path: Path) -> Copy:
    return Copy(written, tmp_path)


ONE = "WHERE id = (? << 32) + ?"
"""The record of a run (its row) with a number."""

NUMBERS = st.integers(1, RECORDS)
ROWS = st.integers(1, RUNS)
FRESH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)


@given(
    row=ROWS, n=NUMBERS, at=st.integers(0, 10_000), bit=st.integers(0, 7), column=st.sampled_from(["body", "hash", "kind", "at"])
)
@FRESH
def test_a_flipped_bit_is_found_where_it_is(
    written: tuple[Path, bytes | None], tmp_path: Path, row: int, n: int, at: int, bit: int, column: str
) -> None:
    copy = Copy(written, tmp_path)
    db = sqlite3.connect(copy.path)
    (value,) = db.execute(f"SELECT {column} FROM records {ONE}", (row, n)).fetchone()
    db.close()
    if column == "at":
        new: Any = value ^ (1 << bit)
    elif column == "kind":
        new = value + "x"
    else:
        new = bytearray(value)
        new[at % len(new)] ^= 1 << bit
    copy.change((f"UPDATE records SET {column} = ? {ONE}", (new, row, n)))
    assert copy.faults()[0] == (f"r{row - 1}", n)


@given(row=ROWS, n=NUMBERS)
@FRESH
def test_a_dropped_record_is_found(written: tuple[Path, bytes | None], tmp_path: Path, row: int, n: int) -> None:
    copy = Copy(written, tmp_path)
    copy.change((f"DELETE FROM records {ONE}", (row, n)))
    assert copy.faults()[0] == (f"r{row - 1}", n)


@given(row=ROWS, n=NUMBERS)
@FRESH
def test_a_dropped_record_is_found_if_the_later_ones_move_up(
    written: tuple[Path, bytes | None], tmp_path: Path, row: int, n: int
) -> None:
    copy = Copy(written, tmp_path)
    copy.change(
        (f"DELETE FROM records {ONE}", (row, n)),
        ("UPDATE records SET id = -id WHERE id >> 32 = ? AND id & 0xFFFFFFFF > ?", (row, n)),
        ("UPDATE records SET id = -id - 1 WHERE id < 0", ()),
    )
    assert copy.faults()[0] == (f"r{row - 1}", n)


@given(row=ROWS, pair=st.lists(NUMBERS, min_size=2, max_size=2, unique=True))
@FRESH
def test_swapped_records_are_found(written: tuple[Path, bytes | None], tmp_path: Path, row: int, pair: list[int]) -> None:
    copy = Copy(written, tmp_path)
    a, b = sorted(pair)
    copy.change(
        (f"UPDATE records SET id = -1 {ONE}", (row, a)),
        (f"UPDATE records SET id = (? << 32) + ? {ONE}", (row, a, row, b)),
        ("UPDATE records SET id = (? << 32) + ? WHERE id = -1", (row, b)),
    )
    assert copy.faults()[0] == (f"r{row - 1}", a)


@given(row=ROWS, n=st.integers(2, RECORDS + 1))
@FRESH
def test_an_inserted_record_is_found(written: tuple[Path, bytes | None], tmp_path: Path, row: int, n: int) -> None:
    copy = Copy(written, tmp_path)
    copy.change(
        ("UPDATE records SET id = -id WHERE id >> 32 = ? AND id & 0xFFFFFFFF >= ?", (row, n)),
        ("UPDATE records SET id = -id + 1 WHERE id < 0", ()),
        ("INSERT INTO records (id, at, kind, body, hash) VALUES ((? << 32) + ?, 5, 'note', '{}', ?)", (row, n, b"h" * 32)),
    )
    assert copy.faults()[0] == (f"r{row - 1}", n)


@given(rows=st.lists(ROWS, min_size=2, max_size=2, unique=True), n=NUMBERS)
@FRESH
def test_records_exchanged_between_runs_are_found(
    written: tuple[Path, bytes | None], tmp_path: Path, rows: list[int], n: int
) -> None:
    copy = Copy(written, tmp_path)
    a, b = sorted(rows)
    copy.change(
        (f"UPDATE records SET id = -1 {ONE}", (a, n)),
        (f"UPDATE records SET id = (? << 32) + ? {ONE}", (a, n, b, n)),
        ("UPDATE records SET id = (? << 32) + ? WHERE id = -1", (b, n)),
    )
    assert copy.faults()[0] == (f"r{a - 1}", n)


@pytest.mark.parametrize("row", range(1, RUNS + 1))
def test_a_whole_run_that_is_gone_is_missed(copy: Copy, row: int) -> None:
    copy.change(("DELETE FROM records WHERE id >> 32 = ?", (row,)), ("DELETE FROM runs WHERE id = ?", (row,)))
    assert copy.faults()


@pytest.mark.parametrize("row", range(1, RUNS + 1))
def test_records_whose_run_is_gone_are_found(copy: Copy, row: int) -> None:
    copy.change(("DELETE FROM runs WHERE id = ?", (row,)))
    assert copy.faults()


def test_runs_that_have_changed_places_are_found(copy: Copy) -> None:
    copy.change(
        ("UPDATE runs SET id = -1 WHERE id = 2", ()), ("UPDATE runs SET id = 2 WHERE id = 3", ()),
        ("UPDATE runs SET id = 3 WHERE id = -1", ()),
        ("UPDATE records SET id = -id WHERE id >> 32 = 2", ()), ("UPDATE records SET id = id - (1 << 32) WHERE id >> 32 = 3", ()),
        ("UPDATE records SET id = -id + (1 << 32) WHERE id < 0", ()),
    )  # fmt: skip
    assert copy.faults()[0] == ("r2", 1)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET records = records - 1 WHERE id = 2", "UPDATE runs SET records = records + 1 WHERE id = 2",
        "UPDATE runs SET head = x'00' WHERE id = 2", "UPDATE runs SET run_id = 'other' WHERE id = 2",
        "UPDATE journal SET value = value - 1 WHERE name = 'opened'", "UPDATE journal SET value = x'00' WHERE name = 'head'",
        "UPDATE runs SET parent = 'r0' WHERE id = 2", "DELETE FROM journal WHERE name = 'opened'",
        "DELETE FROM journal WHERE name = 'head'", "DELETE FROM journal WHERE name = 'seal'",
    ],
)  # fmt: skip
def test_what_stands_beside_the_chain_cannot_be_changed_unnoticed(copy: Copy, change: str) -> None:
    copy.change((change, ()))
    assert copy.faults()


# --- somebody who can compute hashes, and has no key ----------------------------------------------


def chain_anew(copy: Copy, key: bytes | None) -> None:
    """Give every record and whatever stands beside it the hash that fits, as somebody would with this key."""
    db = sqlite3.connect(copy.path)
    before = b""
    with db:
        for row, run_id in db.execute("SELECT id, run_id FROM runs ORDER BY id").fetchall():
            last, first = before, b""
            rows = db.execute("SELECT id, at, kind, body FROM records WHERE id >> 32 = ? ORDER BY id", (row,)).fetchall()
            for place, at, kind, body in rows:
                last = link(last, Record(run_id, place & 0xFFFFFFFF, at, kind, body), key)
                first = first or last
                db.execute("UPDATE records SET hash = ? WHERE id = ?", (last, place))
            db.execute("UPDATE runs SET records = ?, head = ? WHERE id = ?", (len(rows), last, row))
            before = first
        db.execute("UPDATE journal SET value = ? WHERE name = 'head'", (before,))
    db.close()


def test_with_a_key_even_a_whole_new_chain_is_found(copy: Copy) -> None:
    copy.change((f"UPDATE records SET body = '{{}}' {ONE}", (2, 7)))
    chain_anew(copy, None if copy.key is None else b"another key, guessed by somebody")
    assert bool(copy.faults()) is (copy.key is not None), "without a key a chain can be computed by anybody"


def test_with_a_key_an_end_that_was_cut_off_cannot_be_hidden(copy: Copy) -> None:
    if copy.key is None:
        return
    db = sqlite3.connect(copy.path)
    (end,) = db.execute(f"SELECT hash FROM records {ONE}", (2, 100)).fetchone()
    db.close()
    copy.change(
        ("DELETE FROM records WHERE id >> 32 = 2 AND id & 0xFFFFFFFF > 100", ()),
        ("UPDATE runs SET records = 100, head = ? WHERE id = 2", (end,))
    )
    assert copy.faults() == [("r1", 100)]


def test_the_wrong_key_makes_every_run_wrong(copy: Copy) -> None:
    if copy.key is None:
        with pytest.raises(JournalUnreadable, match="not signed"):
            Journal(copy.path, key=KEY).runs()
    else:
        copy.key = b"another key, guessed by somebody"
        assert [run for run, _ in copy.faults() if run] == [f"r{n}" for n in range(RUNS)]
        copy.key = None
        assert copy.faults() == [(None, None)]


# --- a run is not resumed from records that were changed ------------------------------------------


@pytest.fixture
def resumable(tmp_path: Path) -> tuple[Path, Agent]:
    path = tmp_path / "runs.db"
    agent = Agent(model=ScriptedModel([text("one"), text("two")]), journal=Journal(path, durability="normal"))
    agent.run_sync("go", run_id="R")
    return path, agent


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET body = '{}' WHERE id = (1 << 32) + 2", "DELETE FROM records WHERE id = (1 << 32) + 2",
        "UPDATE records SET kind = 'x' WHERE id = (1 << 32) + 3",
        "DELETE FROM records WHERE id = (SELECT max(id) FROM records)", "UPDATE runs SET records = records - 1",
    ],
)  # fmt: skip
async def test_a_run_whose_records_were_changed_is_not_resumed(resumable: tuple[Path, Agent], change: str) -> None:
    path, agent = resumable
    db = sqlite3.connect(path)
    with db:
        db.execute(change)
    db.close()
    with pytest.raises(JournalUnreadable, match="cannot be trusted"):
        await agent.resume("R")
    await agent.aclose()


async def test_a_last_record_that_was_torn_is_dropped_and_that_is_said(
    resumable: tuple[Path, Agent], caplog: pytest.LogCaptureFixture
) -> None:
    path, agent = resumable
    db = sqlite3.connect(path)
    with db:
        db.execute("UPDATE records SET body = substr(body, 1, 9) WHERE id = (SELECT max(id) FROM records)")
    db.close()
    result = await agent.resume("R")
    assert (result.text, result.stop_reason) == ("one", "completed")
    assert "its last record" in caplog.text
    assert verify(Journal(path, readonly=True)) == []
    await agent.aclose()
