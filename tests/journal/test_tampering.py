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

from beforehand import Agent, Approve, Ask, Hook, ToolResult, tool
from beforehand.answering import answer_waiting, settle_call
from beforehand.durable import load
from beforehand.errors import JournalError, JournalUnreadable
from beforehand.journal import Journal, verify
from beforehand.journal.chain import Record, link
from beforehand.journal.steps import steps
from beforehand.journal.verify import Fault
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call

from journal.cutting import all_records, cut

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
        return [(fault.run_id, fault.n) for fault in self.said()]

    def said(self) -> list[Fault]:
        journal = Journal(self.path, key=self.key, readonly=True)
        faults = verify(journal)
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


@pytest.mark.parametrize(
    "change", ["DELETE FROM journal WHERE name = 'signed'", "UPDATE journal SET value = NULL WHERE name = 'signed'"]
)  # fmt: skip
def test_a_journal_that_does_not_say_whether_it_is_signed_is_refused(copy: Copy, change: str) -> None:
    copy.change((change, ()))
    for readonly in (True, False):
        with pytest.raises(JournalUnreadable, match="does not say whether it is signed"):
            _ = Journal(copy.path, key=copy.key, readonly=readonly).db


@pytest.mark.parametrize(
    "damage", [lambda page: bytes(len(page)), lambda page: page.replace(b"r1", b"r9")], ids=["gone", "changed"]
)  # fmt: skip
def test_a_run_that_is_there_and_no_longer_found_by_its_id_is_missed(copy: Copy, damage: Any) -> None:
    """Every record is as it was written. What tells by its id where a run stands is not."""
    db = sqlite3.connect(copy.path)
    (number,) = db.execute("SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = 'runs'").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    with copy.path.open("r+b") as file:
        file.seek((number - 1) * size)
        page = file.read(size)
        file.seek((number - 1) * size)
        file.write(damage(page))
    assert copy.faults() == [(None, None)]
    assert "the journal: the file is damaged" in str(copy.said()[0])


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
    copy.change((f"UPDATE records SET body = CAST('{{}}' AS BLOB) {ONE}", (2, 7)))
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


def test_a_wrong_key_is_one_fault_that_says_so(copy: Copy) -> None:
    if copy.key is None:
        with pytest.raises(JournalUnreadable, match="not signed"):
            Journal(copy.path, key=KEY).runs()
    else:
        copy.key = b"another key, guessed by somebody"
        assert list(map(str, copy.said())) == [
            "the journal: nothing in it is signed with this key: give the one it was made with, or all was changed"
        ]
        copy.key = None
        assert copy.faults() == [(None, None)]


@pytest.mark.parametrize("wrong", [b"another key, guessed by somebody", b"one more such thing"])
@pytest.mark.parametrize("runs", [0, 1])
def test_nothing_is_written_with_another_key(tmp_path: Path, wrong: bytes, runs: int) -> None:
    """It would make the journal look changed for those who have the right one."""
    journal = Journal(tmp_path / "runs.db", key=KEY)
    for n in range(runs):
        journal.open_run(f"R{n}", ("run", 1, b"{}"))
    assert len(journal.runs()) == runs
    with pytest.raises(JournalUnreadable, match="signed with another key"):
        Journal(tmp_path / "runs.db", key=wrong).open_run("S", ("run", 1, b"{}"))
    journal.close()
    again = Journal(tmp_path / "runs.db", key=KEY)
    again.open_run("S", ("run", 1, b"{}"))
    assert verify(again) == []
    again.close()


def test_somebody_who_has_changed_a_seal_keeps_nobody_from_writing(tmp_path: Path) -> None:
    for change in ("UPDATE journal SET value = x'00' WHERE name IN ('seal', 'total')", "UPDATE runs SET seal = x'00'"):
        path = tmp_path / f"{len(change)}.db"
        journal = Journal(path, key=KEY)
        journal.open_run("R", ("run", 1, b"{}"))
        journal.close()
        change_file(path, change)
        journal.open_run("S", ("run", 1, b"{}"))
        assert verify(journal)
        journal.close()


@pytest.mark.parametrize("column", ["body", "hash"])
def test_a_record_that_is_made_to_have_no_hash_is_named_itself(copy: Copy, column: str) -> None:
    copy.change(
        (f"UPDATE records SET hash = X'' {ONE}", (2, 7)), (f"UPDATE records SET {column} = CAST({column} AS TEXT) {ONE}", (2, 7))
    )
    assert copy.faults() == [("r1", 7)]


def put_back(path: Path, run_id: str, end: tuple[Any, ...]) -> None:
    """One run as it was when its end was `end` (records, head, seal): what it recorded since is gone."""
    db = sqlite3.connect(path)
    with db:
        (row,) = db.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        db.execute("DELETE FROM records WHERE id >> 32 = ? AND id & 0xFFFFFFFF > ?", (row, end[0]))
        db.execute("UPDATE runs SET records = ?, head = ?, seal = ? WHERE id = ?", (*end, row))
    db.close()


@pytest.mark.parametrize("at", range(2, 6))
@pytest.mark.parametrize("goes_on", [False, True])
def test_with_a_key_a_run_cannot_be_put_back_with_the_seal_it_had_then(tmp_path: Path, at: int, goes_on: bool) -> None:
    path = tmp_path / "runs.db"
    journal = Journal(path, durability="normal", key=KEY)
    head, other = [journal.open_run(name, ("run", 1, b"{}")) for name in ("R", "S")]
    journal.append(head, [("note", n, b"{}") for n in range(2, at + 1)])
    found = journal.head("R")
    journal.append(head, [("answer", 9, b"{}"), ("resumed", 9, b"{}")])
    put_back(path, "R", (found.records, found.hash, found.seal))
    if goes_on:  # and nothing that is written later hides it
        journal.append(other, [("note", 9, b"{}")])
        journal.open_run("T", ("run", 1, b"{}"))
        with pytest.raises(JournalError, match="no longer"):
            journal.append(head, [("intent", 9, b"{}")])
    faults = verify(journal)
    assert [(fault.run_id, fault.n) for fault in faults] == [(None, None)]
    assert "put back" in str(faults[0])
    journal.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE journal SET value = x'00' WHERE name = 'total'", "DELETE FROM journal WHERE name = 'total'",
        "UPDATE journal SET value = 4 WHERE name = 'total'",
        "UPDATE journal SET value = CAST(x'0000000000000002' || substr(value, 9) AS BLOB) WHERE name = 'total'",
    ],
)  # fmt: skip
def test_with_a_key_what_tells_how_many_records_there_are_stays_wrong_once_it_was_changed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "runs.db"
    journal = Journal(path, durability="normal", key=KEY)
    head = journal.open_run("R", ("run", 1, b"{}"))
    change_file(path, change)
    for _ in range(2):
        assert verify(journal)
        journal.append(head, [("note", 9, b"{}")])
        journal.open_run(f"S{head.records}", ("run", 1, b"{}"))
    assert verify(journal)
    journal.close()


def test_with_a_key_runs_that_were_taken_off_stay_missed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = Journal(path, durability="normal", key=KEY)
    for name in ("R", "S"):
        journal.open_run(name, ("run", 1, b"{}"))
    change_file(
        path, "DELETE FROM runs WHERE run_id = 'S'", "DELETE FROM records WHERE id >> 32 = 2",
        "UPDATE journal SET value = 1 WHERE name = 'opened'",
        "UPDATE journal SET value = (SELECT hash FROM records WHERE id >> 32 = 1) WHERE name = 'head'",
    )  # fmt: skip
    assert verify(journal)
    journal.open_run("T", ("run", 1, b"{}"))
    assert verify(journal)
    journal.close()


def test_with_a_key_a_run_does_not_go_on_after_records_that_were_put_in(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = Journal(path, durability="normal", key=KEY)
    head = journal.open_run("R", ("run", 1, b"{}"))
    behind(path, "note", b"{}", b"h" * 32)
    change_file(path, "UPDATE runs SET records = 2, head = (SELECT hash FROM records WHERE id = (1 << 32) + 2)")
    with pytest.raises(JournalError, match="were changed: the run stopped before its next effect"):
        journal.append(head, [("intent", 9, b"{}")])
    journal.close()


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
        "UPDATE records SET body = '{}' WHERE id = (SELECT max(id) FROM records)",
        "UPDATE records SET body = '{}', hash = x'00' WHERE id = (SELECT max(id) FROM records)",
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


async def killed_while_paying(path: Path, key: bytes | None) -> tuple[list[int], Agent]:
    """A run whose last record is the intent of a call that may not be repeated, and an agent to go on with it."""
    paid: list[int] = []

    @tool
    async def pay() -> str:
        paid.append(1)
        return "paid"

    model = FunctionModel(lambda r: text("end") if r.messages[-1].role == "tool" else tool_call("pay", id="c"))
    agent = Agent(model=model, tools=[pay], journal=Journal(path.with_name("whole.db"), key=key))
    await agent.run("go", run_id="R")
    await agent.aclose()
    records = all_records(path.with_name("whole.db"))
    intent = next(r.n for r in records if r.kind == "intent")
    cut(records[:intent], {"R": None}, path, key=key).close()
    return paid, agent.replace(journal=Journal(path, key=key))


def change_file(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


LAST = "WHERE id = (SELECT max(id) FROM records)"


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "signed"])
@pytest.mark.parametrize("change", ["body = '{}'", "body = x'7b'", "body = '{}', hash = x'00'", "kind = 'note', body = '{}'"])
async def test_a_last_record_that_was_changed_is_not_dropped(tmp_path: Path, key: bytes | None, change: str) -> None:
    path = tmp_path / "runs.db"
    paid, agent = await killed_while_paying(path, key)
    change_file(path, f"UPDATE records SET {change} {LAST}")
    before = all_records(path)
    for _ in range(2):
        with pytest.raises(JournalUnreadable, match=rf"^run R, record {len(before)} was changed: .* cannot be trusted \(.*\)$"):
            await agent.resume("R")
        assert [(fault.run_id, fault.n) for fault in verify(agent.plan.journal)] == [("R", len(before))]
    assert (all_records(path), paid) == (before, [1])
    await agent.aclose()


def behind(path: Path, kind: str, body: bytes, hash: bytes) -> None:
    """Put a record behind the end of the only run, as a disk leaves it that lost the page with the end."""
    db = sqlite3.connect(path)
    with db:
        (last,) = db.execute("SELECT max(id) FROM records").fetchone()
        db.execute("INSERT INTO records (id, at, kind, body, hash) VALUES (?, 5, ?, ?, ?)", (last + 1, kind, body, hash))
    db.close()


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "signed"])
@pytest.mark.parametrize("by", ["resume", "settle"])
async def test_a_torn_record_behind_the_end_is_dropped_and_that_is_said_and_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: bytes | None, by: str
) -> None:
    path = tmp_path / "runs.db"
    paid, agent = await killed_while_paying(path, key)
    whole = all_records(path)
    behind(path, "ruling", b'{"seam":"finish_tu', b"h" * 32)
    behind(path, "request", b"\0" * 9, b"")
    assert verify(agent.plan.journal)
    if by == "settle":
        await settle_call(agent.plan.journal, "R", "c", ToolResult("It is paid."), by="ann")
    result = await agent.resume("R")
    assert (result.text, paid) == ("end", [1])
    assert "run R: 2 damaged records behind its end" in caplog.text
    assert verify(agent.plan.journal) == []
    records = agent.plan.journal.records("R")
    assert records[: len(whole)] == whole
    note = records[len(whole)]
    assert (note.kind, note.data["verdict"]) == ("note", "Dropped")
    assert f"2 damaged records behind its end (record {len(whole)})" in note.data["reason"]
    assert [d.verdict for d in (await agent.resume("R")).decisions] == ["Dropped", *["Uncertain"] * (by == "resume")]
    assert "Dropped" in [step.data["verdict"] for step in steps(records) if step.kind == "note"]
    await agent.aclose()


@pytest.mark.parametrize("kind", ["intent", "answer", "settled"])
async def test_what_a_tool_or_a_person_may_have_done_is_never_dropped(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "runs.db"
    paid, agent = await killed_while_paying(path, None)
    behind(path, kind, b'{"tu', b"h" * 32)
    before = all_records(path)
    with pytest.raises(JournalUnreadable, match=r"stands behind the end that was written down .* cannot be trusted"):
        await agent.resume("R")
    assert (all_records(path), paid) == (before, [1])
    await agent.aclose()


async def test_a_whole_record_behind_the_end_is_not_torn(resumable: tuple[Path, Agent]) -> None:
    path, agent = resumable
    end = "(SELECT hash FROM records WHERE id = (1 << 32) + runs.records - 1)"
    change_file(path, f"UPDATE runs SET records = records - 1, head = {end}")
    before = all_records(path)
    with pytest.raises(JournalUnreadable, match=r"stands behind the end that was written down .* cannot be trusted"):
        await agent.resume("R")
    assert all_records(path) == before
    await agent.aclose()


async def test_who_may_only_read_passes_over_what_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    _, agent = await killed_while_paying(path, None)
    before = all_records(path)
    behind(path, "ruling", b'{"seam":"finish_tu', b"h" * 32)
    reader = Journal(path, readonly=True)
    assert load(reader, "R").head.records == len(before)
    reader.close()
    await agent.aclose()


# --- nor after runs whose records were changed ----------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "signed"])
async def test_a_run_is_not_resumed_after_an_earlier_one_that_was_changed(tmp_path: Path, key: bytes | None) -> None:
    path = tmp_path / "runs.db"
    model = ScriptedModel([text("ok"), text("still ok"), tool_call("pay", id="c"), text("end")])

    @tool
    async def pay() -> str:
        return "paid"

    ask = Hook(seam="before_tool_call", fn=lambda call: Ask("Pay?"))
    agent = Agent(model=model, tools=[pay], hooks=[ask], journal=Journal(path, key=key))
    talk = agent.conversation()
    await talk.run("pay only Ann", run_id="Y")
    await talk.run("really", run_id="Z")
    await talk.run("now", run_id="A")
    change_file(path, "UPDATE records SET body = replace(CAST(body AS TEXT), 'pay only Ann', 'pay only Bob') WHERE id >> 32 = 1")
    with pytest.raises(JournalUnreadable, match=r"run Y, record \d+ was changed: the run cannot be trusted"):
        await agent.resume("A", {"c": Approve()})
    assert len(model.requests) == 3
    await agent.aclose()


@pytest.mark.parametrize("changed", ["R", "R/h"])
async def test_what_a_person_says_does_not_sign_a_run_that_was_changed(tmp_path: Path, changed: str) -> None:
    """Not the one that asked, and not those around it."""

    @tool
    async def pay() -> str:
        raise NotImplementedError

    asks = Hook(seam="before_tool_call", fn=lambda call: Ask("sure?") if call.name == "pay" else None, name="asks")
    inner = Agent(model=ScriptedModel([tool_call("pay", id="p")]), tools=[pay], hooks=[asks])
    path = tmp_path / "runs.db"
    outer = Agent(
        model=ScriptedModel([tool_call("helper", {"prompt": "go"}, id="h")]), tools=[inner.as_tool("helper", "Helps.")],
        journal=path, journal_key=KEY,
    )  # fmt: skip
    async with outer:
        assert (await outer.run("go", run_id="R")).stop_reason == "suspended"
        change_file(
            path, f"DELETE FROM records WHERE id = (SELECT (id << 32) + records FROM runs WHERE run_id = '{changed}')",
            f"UPDATE runs SET records = records - 1, head = (SELECT hash FROM records WHERE records.id = (runs.id << 32) + "
            f"runs.records - 1) WHERE run_id = '{changed}'",
        )  # fmt: skip
        before = verify(outer.plan.journal)
        assert [fault.run_id for fault in before] == [changed]
        with pytest.raises(JournalUnreadable, match=f"run {changed}"):
            await answer_waiting(outer.plan.journal, "R", "h/p", Approve(), by="ann")
        assert verify(outer.plan.journal) == before
