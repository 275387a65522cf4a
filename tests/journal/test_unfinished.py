"""A commit of which not everything came to SQLite's log: it is dropped, and that is said."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from beforehand.cli.runs import verify_journal
from beforehand.journal import Journal, verify

KEY = b"a key of thirty-two bytes, or so"
HEADER, FRAME = 32, 24 + 2048
SAID = "what was written to it last is not whole"


class Left:
    """The file and its log as a process leaves them that is killed. `commits` are the frames that end one."""

    def __init__(self, path: Path, log: bytes) -> None:
        self.path, self.log = path, log
        places = range(HEADER, len(log), FRAME)
        self.commits = [n for n, at in enumerate(places, 1) if log[at + 4 : at + 8] != bytes(4)]

    def with_log(self, folder: Path, log: bytes) -> Path:
        path = folder / "runs.db"
        shutil.copy(self.path, path)
        path.with_name("runs.db-wal").write_bytes(log)
        return path


@pytest.fixture(scope="module", params=[None, KEY], ids=["plain", "signed"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Left, bytes | None]]:
    folder = tmp_path_factory.mktemp("left")
    journal = Journal(folder / "runs.db", durability="normal", key=request.param)
    head = journal.open_run("R", ("run", 1, b"{}"))
    for n in range(6):
        journal.append(head, [("note", n, b'{"n":%d}' % n)])
    shutil.copy(folder / "runs.db", folder / "copy.db")
    yield Left(folder / "copy.db", (folder / "runs.db-wal").read_bytes()), request.param
    journal.close()


def notes_in(path: Path, key: bytes | None) -> int:
    """How many notes there are once somebody has opened it to write. What is there is as it was written, and goes on."""
    journal = Journal(path, durability="normal", key=key)
    head = journal.head("R")
    there = head.records - 1
    journal.append(head, [("note", 9, b"{}")])
    assert verify(journal) == []
    journal.close()
    return there


@pytest.mark.parametrize("part", [4, 20, 24, 1000, FRAME - 1])
def test_a_commit_that_was_cut_is_dropped_and_that_is_said(
    left: tuple[Left, bytes | None], part: int, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    whole, key = left
    for end in range(whole.commits[1], whole.commits[-1]):
        caplog.clear()
        path = whole.with_log(tmp_path, whole.log[: HEADER + end * FRAME + part])
        notes = notes_in(path, key)
        assert notes == sum(last <= end for last in whole.commits) - 2, "those of whole commits, after the file and the run"
        assert SAID in caplog.text
        caplog.clear()
        assert notes_in(path, key) == notes + 1
        assert SAID not in caplog.text, "once"
        reader = Journal(path, key=key, readonly=True)
        assert verify_journal(reader) == 0
        reader.close()
        assert "1 time what was being written was not whole" in capsys.readouterr().out


def test_what_came_to_the_disk_in_another_order_is_dropped_from_the_gap_on(
    left: tuple[Left, bytes | None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, key = left
    for gap in range(whole.commits[1], whole.commits[-1]):
        for lost in (slice(0, FRAME), slice(24, FRAME)):  # all of a frame, or only what it carries
            caplog.clear()
            log = bytearray(whole.log)
            at = HEADER + gap * FRAME
            log[at + lost.start : at + lost.stop] = bytes(lost.stop - lost.start)
            path = whole.with_log(tmp_path, bytes(log))
            assert notes_in(path, key) == sum(last <= gap for last in whole.commits) - 2
            assert SAID in caplog.text


def test_nothing_is_said_where_every_commit_is_whole(
    left: tuple[Left, bytes | None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, key = left
    for commit in whole.commits[1:]:
        notes_in(whole.with_log(tmp_path, whole.log[: HEADER + commit * FRAME]), key)
    assert SAID not in caplog.text


def test_nothing_is_said_of_what_an_earlier_log_has_left_behind_the_one_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, log = tmp_path / "first.db", tmp_path / "first.db-wal"
    first = Journal(path, durability="normal")
    head = first.open_run("R", ("run", 1, b"{}"))
    for n in range(50):
        first.append(head, [("note", n, b"{}")])
    long = log.stat().st_size
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    first.append(head, [("note", 50, b"{}")])
    assert log.stat().st_size == long, "begun anew, and as long as it was"
    shutil.copy(path, tmp_path / "runs.db")
    shutil.copy(log, tmp_path / "runs.db-wal")
    assert notes_in(tmp_path / "runs.db", None) == 51
    assert SAID not in caplog.text
    first.close()


def test_who_finds_it_in_use_says_nothing_of_what_is_being_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those who have it open see to it, and what stands behind the end of the log may be on its way."""
    first = Journal(tmp_path / "runs.db", durability="normal")
    first.open_run("R", ("run", 1, b"{}"))
    with (tmp_path / "runs.db-wal").open("ab") as log:
        log.write(bytes(FRAME))
    second = Journal(tmp_path / "runs.db", durability="normal")
    assert second.head("R").records == 1
    first.close()
    second.close()
    assert SAID not in caplog.text


def test_a_log_without_its_beginning_is_all_lost_and_that_is_said(
    left: tuple[Left, bytes | None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, key = left
    for log in (bytes(HEADER) + whole.log[HEADER:], whole.log[:HEADER] + bytes(FRAME) + whole.log[HEADER + FRAME :]):
        caplog.clear()
        journal = Journal(whole.with_log(tmp_path, log), key=key)
        assert journal.runs() == []
        assert SAID in caplog.text
        journal.close()


@pytest.mark.parametrize("behind", ["the rest of it", "zeros"])
def test_it_is_told_once_though_who_told_of_it_is_killed(
    left: tuple[Left, bytes | None], behind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What such a one has written is shorter than what was left there."""
    whole, key = left
    at = HEADER + whole.commits[1] * FRAME
    lost = bytearray(whole.log)
    lost[at:] = bytes(FRAME) + (whole.log[at + FRAME :] if behind == "the rest of it" else bytes(20 * FRAME))
    path, again = whole.with_log(tmp_path, bytes(lost)), tmp_path / "again"
    for times in range(3):
        journal = Journal(path, durability="normal", key=key)
        head = journal.head("R") if journal.has("R") else journal.open_run("R", ("run", 1, b"{}"))
        journal.append(head, [("note", 9, b"{}")])
        again.mkdir(exist_ok=True)
        copies = [shutil.copy(file, again) for file in (path, path.with_name("runs.db-wal"))]  # as if it were killed now
        assert (SAID in caplog.text) == (times == 0)
        caplog.clear()
        assert verify(journal) == []
        with closing(journal.contents()) as contents:
            assert contents.facts()["unfinished"] == 1
        journal.close()
        for copy in copies:
            shutil.move(copy, tmp_path / Path(copy).name)


@pytest.mark.parametrize("count", ["many", b"1", -1, 2.5, None])
def test_a_count_that_somebody_has_changed_is_not_told(tmp_path: Path, count: object, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(tmp_path / "runs.db")
    journal.open_run("R", ("run", 1, b"{}"))
    journal.db.execute("INSERT INTO journal VALUES ('unfinished', ?)", (count,))
    assert verify_journal(journal) == 0
    assert "not whole" not in capsys.readouterr().out
    journal.close()
