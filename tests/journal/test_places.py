"""Where a journal's file is: reached by another name, tidied up around, deleted or replaced while it is in use."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Continue, Hook, tool
from beforehand.errors import JournalError, RunBusy
from beforehand.journal import Journal, verify
from beforehand.journal.reading import summaries
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there an open file cannot be deleted, nor linked by everybody")

RESUME = """
    import asyncio, sys
    from beforehand import Agent, tool
    from beforehand.journal import Journal
    from beforehand.testing import ScriptedModel, text

    @tool(replay="safe")
    async def work() -> str:
        print("worked", flush=True)
        return "ok"

    asyncio.run(Agent(model=ScriptedModel([text("end")]), tools=[work], journal=Journal(sys.argv[1])).resume("R"))
"""


async def elsewhere(path: Path) -> str:
    """What another process says that resumes the run R."""
    command = [sys.executable, "-c", textwrap.dedent(RESUME), str(path)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


class Working:
    """A run whose tool takes as long as the test wants."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.inside, self.go, self.worked = asyncio.Event(), asyncio.Event(), 0

        @tool(replay="safe")
        async def work() -> str:
            self.worked += 1
            self.inside.set()
            await self.go.wait()
            return "ok"

        model = FunctionModel(lambda r: text("end") if r.messages[-1].role == "tool" else tool_call("work", id="c"))
        self.agent = Agent(model=model, tools=[work], journal=Journal(path, **options))

    async def begin(self) -> None:
        self.run = asyncio.create_task(self.agent.run("go", run_id="R", check=False))
        await asyncio.wait({self.run, asyncio.create_task(self.inside.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert not self.run.done(), self.run.result()

    async def end(self) -> Any:
        self.go.set()
        result = await self.run
        await self.agent.aclose()
        return result


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """A link, in one folder, to the file that will be in another."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    path = tmp_path / "here" / "link.db"
    path.symlink_to(tmp_path / "there" / "runs.db")
    return path


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_a_journal_is_used_through_a_link_as_by_its_name(link: Path, durability: Any) -> None:
    working = Working(link, durability=durability)
    await working.begin()
    assert "RunBusy" in await elsewhere(link)
    assert "RunBusy" in await elsewhere(link.parent.parent / "there" / "runs.db")
    assert [run.state for run in summaries(Journal(link, readonly=True))] == ["running"]
    assert (await working.end()).text == "end"
    assert os.listdir(link.parent) == ["link.db"]
    assert working.worked == 1


async def test_who_goes_on_through_a_link_finds_who_goes_on_by_the_name(link: Path) -> None:
    working = Working(link.parent.parent / "there" / "runs.db")
    await working.begin()
    assert "RunBusy: run R is going on in another process" in await elsewhere(link)
    with pytest.raises(RunBusy, match="in this process"):
        await working.agent.replace(journal=link).resume("R")
    assert (await working.end()).text == "end"


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed meanwhile"])
async def test_a_run_is_held_though_the_file_with_its_lock_is_deleted(tmp_path: Path, closed: bool) -> None:
    path = tmp_path / "runs.db"
    working = Working(path)
    await working.begin()
    (tmp_path / "runs.db-locks").unlink()
    if closed:
        await working.agent.aclose()
        assert Journal(path, readonly=True).has("R")
        gc.collect()  # that one went out of scope, with the last connection
    for _ in range(2):  # the first to come makes the file anew
        assert "RunBusy: run R is going on in another process" in await elsewhere(path)
    assert [run.state for run in summaries(Journal(path, readonly=True))] == ["running"]
    assert (await working.end()).text == "end"
    assert (working.worked, verify(Journal(path, readonly=True))) == (1, [])
    assert "worked" not in await elsewhere(path), "it is free again, and over"


def test_a_lock_is_taken_in_the_file_that_is_there_now(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = Journal(path)
    leases = [first.lease(f"R{n}", first.open_run(f"R{n}", ("run", 1, b"{}")).row) for n in range(2)]
    (tmp_path / "runs.db-locks").unlink()
    leases.append(first.lease("R2", first.open_run("R2", ("run", 1, b"{}")).row))
    code = """
        import sys
        from beforehand.errors import RunBusy
        from beforehand.journal import Journal
        journal = Journal(sys.argv[1])
        for n in range(3):
            assert journal.is_going_on(f"R{n}")
            try:
                journal.lease(f"R{n}", journal.head(f"R{n}").row)
            except RunBusy:
                print(n)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.stderr) == (["0", "1", "2"], "")
    for lease in leases:
        lease.release()
    first.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this system does not say which files are open")
def test_a_closed_journal_leaves_no_file_open(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        files = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
        return sorted(os.path.basename(file) for file in files if file.startswith(str(tmp_path)))

    journal = Journal(tmp_path / "runs.db")
    head = journal.open_run("R", ("run", 1, b"{}"))
    lease = journal.lease("R", head.row)
    assert {"runs.db", "runs.db-locks"} <= set(open_files())
    journal.close()  # what holds the run stays, until it is given back and the journal is closed again
    assert open_files() == ["runs.db", "runs.db-locks"]
    lease.release()
    assert journal.has("R")
    journal.close()
    assert open_files() == []


# --- deleted while it is in use -------------------------------------------------------------------


def delete(folder: Path) -> None:
    for file in folder.glob("runs.db*"):
        file.unlink()


def delete_log(folder: Path) -> None:
    (folder / "runs.db-wal").unlink()


def replace(folder: Path) -> None:
    """As editors and tools that synchronise folders do: a copy, moved to where the file was."""
    shutil.copy(folder / "runs.db", folder / "copy")
    os.replace(folder / "copy", folder / "runs.db")


def put_back(folder: Path) -> None:
    os.replace(folder / "runs.db", folder / "away")
    os.replace(folder / "away", folder / "runs.db")


def doing(did: list[int], folder: Path, then: Any) -> Any:
    @tool
    async def work(n: int) -> str:
        did.append(n)
        if n == 1:
            then(folder)
        return "ok"

    replies = [tool_call("work", {"n": n}) for n in range(4)]
    return {"tools": [work], "model": ScriptedModel([*replies, text("end")])}


@pytest.mark.parametrize("durability", ["full", "normal"])
@pytest.mark.parametrize(
    ("then", "why"), [(delete, "runs.db is gone"), (delete_log, "runs.db-wal is gone"), (replace, "runs.db is another file now")]
)
async def test_a_journal_that_is_gone_stops_the_run_before_its_next_effect(
    tmp_path: Path, durability: Any, then: Any, why: str
) -> None:
    did: list[int] = []
    agent = Agent(**doing(did, tmp_path, then), journal=Journal(tmp_path / "runs.db", durability=durability))
    result = await agent.run("go", run_id="R", check=False)
    assert (result.stop_reason, did) == ("error", [0, 1])
    assert isinstance(result.error, JournalError)
    assert why in str(result.error)
    assert str(result.error).endswith("the run stopped before its next effect")
    with pytest.raises(JournalError, match=why):
        await agent.run("again", run_id="S")
    await agent.aclose()


@pytest.mark.parametrize("then", [delete, delete_log, replace])
async def test_no_request_leaves_either_once_a_journal_is_gone(tmp_path: Path, then: Any) -> None:
    """No tool is called, so nothing waits for the disk."""

    def reply(request: Any) -> Any:
        if len(model.requests) == 2:
            then(tmp_path)
        return text("on")

    model = FunctionModel(reply)
    on = Hook(seam="finish_turn", fn=lambda turn: Continue() if turn.number < 5 else None, name="on")
    async with Agent(model=model, hooks=[on], journal=tmp_path / "runs.db") as agent:
        result = await agent.run("go", run_id="R", check=False)
    assert isinstance(result.error, JournalError)
    assert len(model.requests) == 2


async def test_a_journal_that_was_put_back_is_the_same(tmp_path: Path) -> None:
    did: list[int] = []
    agent = Agent(**doing(did, tmp_path, put_back), journal=tmp_path / "runs.db")
    assert (await agent.run("go", run_id="R")).text == "end"
    assert did == [0, 1, 2, 3]
    await agent.aclose()
    assert verify(Journal(tmp_path / "runs.db", readonly=True)) == []


async def test_a_new_journal_is_made_where_one_was_deleted_and_closed(tmp_path: Path) -> None:
    agent = Agent(model=ScriptedModel([text("one"), text("two")]), journal=tmp_path / "runs.db")
    await agent.run("a", run_id="A")
    delete(tmp_path)
    await agent.aclose()
    await agent.run("b", run_id="B")
    assert [row.run_id for row in agent.plan.journal.runs()] == ["B"]
    await agent.aclose()
