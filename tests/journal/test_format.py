"""How records stand in the file: those of older versions are read and gone on with, and no question looks at all of them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, tool
from beforehand.journal import Journal, Record, verify
from beforehand.journal.chain import seal
from beforehand.journal.layout import FILE_FORMAT
from beforehand.journal.reading import summaries
from beforehand.testing import ScriptedModel, text, tool_call

from journal.cutting import all_records, cut

KEY = b"a key of thirty-two bytes, or so"

FORMAT_1 = """
CREATE TABLE journal (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, parent TEXT, records INTEGER NOT NULL, head BLOB NOT NULL,
    seal BLOB NOT NULL
);
CREATE TABLE records (
    seq INTEGER PRIMARY KEY, run INTEGER NOT NULL, n INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,
    body BLOB NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX records_of_run ON records (run, n);
"""


def file_of_format_1(path: Path, key: bytes | None = None) -> Path:
    """An empty journal as the first version made it."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(FORMAT_1)
    with db:
        facts = {"format": 1, "signed": int(key is not None), "opened": 0, "head": b"", "seal": seal(key, 0, b"")}
        db.executemany("INSERT INTO journal VALUES (?, ?)", facts.items())
    db.close()
    return path


def change(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    with db:
        assert db.execute(statement).rowcount > 0
    db.close()


def payer(journal: Any, paid: list[int], *replies: Any) -> Agent:
    @tool
    def pay(n: int) -> str:
        """Pay a bill."""
        paid.append(n)
        return f"paid {n}"

    return Agent(model=ScriptedModel(list(replies)), tools=[pay], journal=journal)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "signed"])
async def test_a_run_of_an_older_file_is_gone_on_with_in_it(tmp_path: Path, key: bytes | None) -> None:
    paid: list[int] = []
    whole = payer(tmp_path / "whole.db", paid, tool_call("pay", {"n": 1}, id="c1"), text("Paid."))
    await whole.run("Pay the bill.", run_id="R")
    await whole.aclose()
    records = all_records(tmp_path / "whole.db")
    outcome = next(r.n for r in records if r.kind == "outcome")
    path = file_of_format_1(tmp_path / "old.db", key)
    cut(records[:outcome], {"R": None}, path, key=key).close()

    journal = Journal(path, durability="normal", key=key)
    again = payer(journal, paid, tool_call("pay", {"n": 2}, id="c2"), text("Both are paid."), text("No."))
    result = await again.resume("R")
    await again.run("Is anything left?", run_id="S")

    assert (result.text, paid) == ("Both are paid.", [1, 2])
    assert verify(journal) == []
    assert [(run.run_id, run.state) for run in summaries(journal)] == [("R", "completed"), ("S", "completed")]
    assert [r.n for r in journal.records("R")] == list(range(1, journal.head("R").records + 1))
    assert [r.n for r in journal.records("R", after=5)][:2] == [6, 7]
    assert journal.db.execute("SELECT value FROM journal WHERE name = 'format'").fetchone() == (1,)
    await again.aclose()


@pytest.mark.parametrize(
    ("statement", "run_id", "n"),
    [
        ("UPDATE records SET at = at + 1 WHERE run = 1 AND n = 2", "R0", 2),
        ("UPDATE records SET n = n + 9 WHERE run = 1 AND n = 3", "R0", 3),
        ("DELETE FROM records WHERE run = 1 AND n = 2", "R0", 2), ("DELETE FROM records WHERE run = 2 AND n = 4", "R1", 4),
        ("INSERT INTO records VALUES (99, 2, 5, 5, 'note', x'7b7d', x'00')", "R1", 5),
        ("UPDATE records SET run = 9 WHERE run = 2 AND n = 4", "R1", 4),
    ],
)  # fmt: skip
def test_what_was_changed_in_an_older_file_is_found(tmp_path: Path, statement: str, run_id: str, n: int) -> None:
    path = file_of_format_1(tmp_path / "old.db")
    records = [Record(run, n, 5, "note" if n > 1 else "run", b"{}") for run in ("R0", "R1") for n in range(1, 5)]
    cut(records, {"R0": None, "R1": None}, path).close()
    change(path, statement)
    faults = verify(Journal(path, readonly=True))
    assert (faults[0].run_id, faults[0].n) == (run_id, n)


def test_runs_that_are_written_side_by_side_keep_their_records_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db", durability="normal")
    heads = [journal.open_run(f"R{run}", ("run", 1, b"{}")) for run in range(20)]
    for step in range(30):
        for run, head in enumerate(heads):
            body = b'{"run":%d,"text":"%s"}' % (run, b"x" * (step * run))
            journal.append(head, [("note", step, body)] * (run % 3 + 1))
    assert verify(journal) == []
    for run, head in enumerate(heads):
        records = journal.records(head.run_id)
        assert [r.n for r in records] == list(range(1, 30 * (run % 3 + 1) + 2))
        assert {r.data["run"] for r in records[1:]} == {run}
        assert journal.records(head.run_id, after=head.records) == []
    journal.close()


def test_a_record_after_the_last_that_a_run_can_have_is_not_one_of_the_next_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db", durability="normal")
    for run in range(2):
        journal.append(journal.open_run(f"R{run}", ("run", 1, b"{}")), [("note", 2, b"{}")])
    journal.db.execute("INSERT INTO records VALUES ((1 << 32) + 0xFFFFFFFF, 5, 'note', '{}', x'00')")
    journal.db.execute("INSERT INTO records VALUES (7 << 32, 5, 'note', '{}', x'00')")
    assert [r.n for r in journal.records("R1")] == [1, 2]
    assert [str(fault) for fault in verify(journal)] == [
        "run R0, record 3: it is missing (the next that is here is 4294967295)",
        "the journal: there are records of 1 runs that were never opened",
    ]
    journal.close()


@pytest.mark.parametrize("version", [1, FILE_FORMAT])
def test_no_question_looks_at_all_records(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.db"
    journal = Journal(file_of_format_1(path) if version == 1 else path, durability="normal")
    head = journal.open_run("R", ("run", 1, b"{}"))
    asked: list[str] = []
    reading = Journal(path, readonly=True)
    for one in (journal, reading):
        one.db.set_trace_callback(asked.append)
    journal.append(head, [("note", 2, b"{}"), ("answer", 3, b"{}")])
    reading.records("R")
    reading.before_run(head.row)
    reading.runs()
    reading.runs(None)
    assert reading.answered() == [("R", 3)]
    journal.drop_torn(head)
    reading.close()
    journal.db.set_trace_callback(None)
    queries = [query for query in asked if re.search(r"\brecords\b", query)]
    assert len(queries) >= 8
    for query in queries:
        plan = [row[3] for row in journal.db.execute(f"EXPLAIN QUERY PLAN {query}")]
        assert not [step for step in plan if re.match(r"SCAN (records|a|b)\b", step) or "TEMP" in step], (query, plan)
    journal.close()
