"""A journal is read while others write it, and by those who may not write it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from beforehand.errors import JournalUnreadable, RunBusy
from beforehand.journal import Journal
from beforehand.journal.reading import summaries
from reading.recorded import looks, teller, text

READ = """
import os, sys
from beforehand.journal import Journal
from beforehand.journal.reading import summaries
uid = int(sys.argv[2])
if uid:
    os.setgid(uid)
    os.setuid(uid)
journal = Journal(sys.argv[1], readonly=True)
print([(run.run_id, run.state, run.records) for run in summaries(journal)])
"""
WRITE = """
import sys
from beforehand.journal import Journal
journal = Journal(sys.argv[1], durability="normal")
head = journal.open_run("w", ("run", 1, b'{"agent":"a","prompts":[]}'))
n = 0
print("writing", flush=True)
while True:
    journal.append(head, [("instructions", 2, b'{"text":"x"}')])
"""
NOBODY = 65534


async def finished(path: Path) -> int:
    """Record a run. How many records it has."""
    agent = teller(path, looks("a"), text("Done."))
    await agent.run("go", run_id="r")
    count = agent.plan.journal.head("r").records
    await agent.aclose()
    return count


def test_reading_works_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        journal = Journal(path, readonly=True)
        seen = [len(journal.records("w"))]
        while len(seen) < 20:
            records = journal.records("w")
            assert [record.n for record in records] == list(range(1, len(records) + 1))
            if len(records) > seen[-1]:
                seen.append(len(records))
            assert [run.run_id for run in summaries(journal)] == ["w"]
        writer.kill()


def test_the_newest_records_are_read_from_the_log_of_a_process_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()
    assert (tmp_path / "runs.db-wal").stat().st_size > 0
    shutil.copy(path, tmp_path / "alone.db")
    with sqlite3.connect(tmp_path / "alone.db") as without_log:
        assert without_log.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    without_log.close()
    assert [run.run_id for run in summaries(Journal(path, readonly=True))] == ["w"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may look into: those of pytest are for its own user alone."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("left", ["nothing", "log and index", "log"])
async def test_who_may_not_write_the_file_nor_its_folder_reads_it(tmp_path: Path, open_folder: Path, left: str) -> None:
    """As another user where the tests run as root, whom no permission stops; else as the same one."""
    whole = tmp_path / "whole"
    whole.mkdir()
    count = await finished(whole / "runs.db")
    folder = open_folder / "locked"
    folder.mkdir()
    if left == "nothing":
        shutil.copy(whole / "runs.db", folder)
    else:
        journal = Journal(whole / "runs.db")
        journal.append(journal.head("r"), [("instructions", 2, b'{"text":"x"}')])  # stays in the log while it is open
        count += 1
        for suffix in ("", "-wal", "-shm") if left == "log and index" else ("", "-wal"):
            shutil.copy(whole / f"runs.db{suffix}", folder)
        journal.close()
    for file in folder.iterdir():
        file.chmod(0o444)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}
    folder.chmod(0o555)
    uid = NOBODY if os.getuid() == 0 else 0
    reads = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", READ, str(folder / "runs.db"), str(uid)],
        capture_output=True,
        text=True,
        check=False,
    )
    folder.chmod(0o755)
    assert f"('r', 'completed', {count})" in reads.stdout or f"('r', 'unfinished', {count})" in reads.stdout, reads.stderr
    assert {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")} == before


async def test_a_newer_format_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await finished(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE journal SET value = 99 WHERE name = 'format'")
    db.close()
    with pytest.raises(JournalUnreadable, match=r"format 99, and this version reads up to 2: a newer version .* wrote it"):
        summaries(Journal(path, readonly=True))


@pytest.mark.parametrize(
    ("content", "why"), [(b"no database at all, but text" * 99, "not a journal that can be read"), (b"", "is empty")]
)
def test_a_file_that_is_no_journal_is_refused_in_one_line(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(content)
    with pytest.raises(JournalUnreadable, match=why) as refused:
        summaries(Journal(path, readonly=True))
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == content


def test_a_folder_in_the_place_of_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalUnreadable, match="there is no journal"):
        summaries(Journal(tmp_path, readonly=True))


# --- leases --------------------------------------------------------------------------------------


def test_two_journals_on_one_file_in_one_process_do_not_both_go_on_with_a_run(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "runs.db"), Journal(tmp_path / "runs.db")
    row = one.open_run("r", ("run", 1, b"{}")).row
    lease = one.lease("r", row)
    with pytest.raises(RunBusy, match="in this process"):
        other.lease("r", row)
    lease.release()
    other.lease("r", row).release()


TAKE = """
import sys
from beforehand.errors import RunBusy
from beforehand.journal import Journal
journal = Journal(sys.argv[1])
try:
    journal.lease("r", journal.head("r").row)
except RunBusy:
    print("busy")
"""


def test_closing_another_journal_on_the_file_gives_no_lease_back(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    one, other = Journal(path), Journal(path)
    head = one.open_run("r", ("run", 1, b"{}"))
    second = one.open_run("s", ("run", 1, b"{}"))
    other.lease("s", second.row).release()
    lease = one.lease("r", head.row)
    other.close()
    taken = subprocess.run([sys.executable, "-c", TAKE, str(path)], capture_output=True, text=True, check=False)
    lease.release()
    assert (taken.stdout, taken.stderr) == ("busy\n", "")


def test_a_journal_in_a_folder_that_may_not_be_looked_into_is_refused_in_one_line(tmp_path: Path) -> None:
    """As another user where the tests run as root, whom no permission stops."""
    Journal(tmp_path / "runs.db").open_run("r", ("run", 1, b"{}"))
    tmp_path.chmod(0o000)
    uid = NOBODY if os.getuid() == 0 else 0
    refused = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "runs.db"), str(uid)], capture_output=True, text=True, check=False
    )
    tmp_path.chmod(0o700)
    assert refused.stderr.splitlines()[-1].endswith("runs.db cannot be read: Permission denied")
    assert "JournalUnreadable" in refused.stderr
