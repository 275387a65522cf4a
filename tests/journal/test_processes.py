"""One file, several writers: tasks, agents, processes, forks; and files that cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, Hook, ToolContext, tool
from beforehand.errors import ConfigError, JournalError, JournalUnreadable, RunBusy, UnknownAnswer, UnknownRun, UsageError
from beforehand.journal import Journal, verify
from beforehand.journal.buffer import Buffer
from beforehand.journal.layout import FILE_FORMAT
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call

SAY = [text("one"), text("two"), text("three")]


def talker(path: Path, replies: list[Any] | None = None, **options: Any) -> Agent:
    return Agent(model=ScriptedModel(replies or SAY), journal=Journal(path, durability="normal"), **options)


def python(code: str, *args: object, flags: tuple[str, ...] = (), **options: Any) -> subprocess.CompletedProcess[str]:
    """A program of its own."""
    words = [sys.executable, *flags, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, **options)


# --- who may go on --------------------------------------------------------------------------------

DEPLOY = """
    import asyncio, sys
    from pathlib import Path
    from beforehand import Agent, Approve, Ask, Hook, ToolContext, tool
    from beforehand.errors import BeforehandError
    from beforehand.testing import ScriptedModel, text

    @tool
    async def deploy(ctx: ToolContext) -> str:
        with open(sys.argv[2], "a") as file:
            file.write("deployed\\n")
        return "deployed"

    gate = Hook(seam="before_tool_call", fn=lambda call: Ask("Deploy?"), name="gate")
    agent = Agent(model=ScriptedModel([text("done")]), tools=[deploy], hooks=[gate], journal=sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(asyncio.run(agent.resume("R", {"c": Approve()})).text)
    except BeforehandError as error:
        print(type(error).__name__)
"""


async def waiting(path: Path, effects: list[str]) -> Agent:
    @tool
    async def deploy(ctx: ToolContext) -> str:
        effects.append("deployed")
        await asyncio.sleep(0)
        return "deployed"

    gate = Hook(seam="before_tool_call", fn=lambda call: Ask("Deploy?"), name="gate")
    model = FunctionModel(lambda request: text("done") if request.messages[-1].role == "tool" else tool_call("deploy", id="c"))
    agent = Agent(model=model, tools=[deploy], hooks=[gate], journal=path)
    result = await agent.run("go", run_id="R")
    assert result.stop_reason == "suspended"
    return agent


@pytest.mark.parametrize("agents", ["one agent", "an agent each"])
async def test_twenty_tasks_that_approve_one_call_run_it_once(tmp_path: Path, agents: str) -> None:
    effects: list[str] = []
    first = await waiting(tmp_path / "runs.db", effects)
    all_of_them = [first] * 20 if agents == "one agent" else [first.replace(journal=tmp_path / "runs.db") for _ in range(20)]
    came = await asyncio.gather(*[a.resume("R", {"c": Approve()}) for a in all_of_them], return_exceptions=True)
    assert effects == ["deployed"]
    assert [c.text for c in came if not isinstance(c, BaseException)] == ["done"]
    assert {type(c) for c in came if isinstance(c, BaseException)} <= {RunBusy, UnknownAnswer}
    assert verify(first.plan.journal) == []
    for agent in {id(a): a for a in (first, *all_of_them)}.values():
        await agent.aclose()


async def test_processes_that_approve_one_call_run_it_once(tmp_path: Path) -> None:
    agent = await waiting(tmp_path / "runs.db", [])
    await agent.aclose()
    effects = tmp_path / "effects.txt"
    command = [sys.executable, "-c", textwrap.dedent(DEPLOY), str(tmp_path / "runs.db"), str(effects)]
    programs = [await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(6)]
    for program in programs:
        assert program.stdout is not None
        await program.stdout.readline()
    said = [out.decode().strip() for out, _ in await asyncio.gather(*[p.communicate(b"go\n") for p in programs])]
    assert effects.read_text() == "deployed\n"
    assert said.count("done") == 1
    assert set(said) <= {"done", "RunBusy", "UnknownAnswer"}
    assert verify(Journal(tmp_path / "runs.db", readonly=True)) == []


async def test_a_run_that_goes_on_cannot_be_resumed_by_anybody_else(tmp_path: Path) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> Any:
        inside.set()
        await go.wait()
        return text("done")

    agent = Agent(model=FunctionModel(slow), journal=tmp_path / "runs.db")
    going = asyncio.create_task(agent.run("go", run_id="R"))
    await inside.wait()
    with pytest.raises(RunBusy, match="in this process"):
        await agent.resume("R")
    with pytest.raises(RunBusy, match="in this process"):
        await agent.replace(journal=tmp_path / "runs.db").resume("R")
    code = """
        import asyncio, sys
        from beforehand import Agent
        from beforehand.testing import ScriptedModel
        asyncio.run(Agent(model=ScriptedModel([]), journal=sys.argv[1]).resume("R"))
    """
    other = await asyncio.to_thread(python, code, tmp_path / "runs.db")
    assert "RunBusy: run R is going on in another process" in other.stderr
    await agent.aclose()  # of a file in use: the run goes on
    with pytest.raises(RunBusy):
        await agent.resume("R")
    go.set()
    assert (await going).text == "done"
    assert (await agent.resume("R")).text == "done"
    await agent.aclose()


async def test_two_agents_and_a_hundred_runs_share_one_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db", durability="normal")
    other = Journal(tmp_path / "runs.db", durability="normal")
    agents = [Agent(model=FunctionModel(lambda request: text("hello")), journal=j) for j in (journal, journal, other)]
    results = await asyncio.gather(*[agents[n % 3].run(f"{n}", run_id=f"R{n}") for n in range(100)])
    assert [r.text for r in results] == ["hello"] * 100
    assert {row.run_id for row in journal.runs()} == {f"R{n}" for n in range(100)}
    assert verify(journal) == []
    for agent in agents:
        await agent.aclose()


async def test_a_closed_journal_is_opened_again_when_it_is_used(tmp_path: Path) -> None:
    agent = talker(tmp_path / "runs.db")
    await agent.run("a", run_id="A")
    await agent.aclose()
    await agent.run("b", run_id="B")
    assert {row.run_id for row in agent.plan.journal.runs()} == {"A", "B"}
    await agent.aclose()


async def test_an_id_is_used_once(tmp_path: Path) -> None:
    agent = talker(tmp_path / "runs.db")
    await agent.run("a", run_id="A")
    with pytest.raises(UsageError, match=r"a run 'A' is in .* already"):
        await agent.run("b", run_id="A")
    await agent.aclose()


@pytest.mark.parametrize("run_id", ["a b", "ü", "a;'--", "..", "%s", "*", "A" * 500, "0"])
async def test_any_printable_name_may_be_a_run(tmp_path: Path, run_id: str) -> None:
    agent = talker(tmp_path / "runs.db")
    await agent.run("a", run_id=run_id)
    assert (await agent.resume(run_id)).text == "one"
    await agent.aclose()


@pytest.mark.parametrize("run_id", ["", "a/b", "a\nb", "a\0b", "\ud800"])
async def test_a_name_that_no_run_can_have_is_refused(tmp_path: Path, run_id: str) -> None:
    agent = talker(tmp_path / "runs.db")
    with pytest.raises(UsageError, match="run_id="):
        await agent.run("a", run_id=run_id)
    with pytest.raises(UnknownRun):
        await agent.resume(run_id)
    await agent.aclose()


# --- the event loop -------------------------------------------------------------------------------


async def test_the_event_loop_goes_on_while_another_process_holds_the_file(tmp_path: Path) -> None:
    agent = Agent(model=FunctionModel(lambda request: text("hello")), journal=tmp_path / "runs.db")
    await agent.run("first", run_id="A")
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    runs = [asyncio.create_task(agent.run("go")) for _ in range(5)]
    for _ in range(200):  # each of these is a turn of the event loop: if one of them waited for the file, it would wait for ever
        await asyncio.sleep(0)
    assert not any(run.done() for run in runs)
    other.execute("COMMIT")
    other.close()
    assert [r.text for r in await asyncio.gather(*runs)] == ["hello"] * 5
    await agent.aclose()


@pytest.mark.parametrize("before", ["the request leaves", "its bodies run"])
async def test_nothing_leaves_or_begins_after_an_abort_that_comes_as_the_file_is_waited_for(tmp_path: Path, before: str) -> None:
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    waits, ran = asyncio.Event(), []

    def hold(context: Any) -> None:
        if not waits.is_set():
            other.execute("BEGIN IMMEDIATE")
            waits.set()

    @tool
    async def act(n: int) -> str:
        ran.append(n)
        return "done"

    @tool
    def act_too(n: int) -> str:
        ran.append(n)
        return "done"

    calls = [tool_call("act", {"n": 1}, id="a"), tool_call("act_too", {"n": 2}, id="b")]
    model = ScriptedModel([calls, text("never")])
    seam = "authorize_request" if before == "the request leaves" else "before_tool_call"
    agent = Agent(model=model, tools=[act, act_too], hooks=[Hook(seam=seam, fn=hold)], journal=tmp_path / "runs.db")
    talk = agent.conversation()
    going = asyncio.create_task(talk.run("go", run_id="R"))
    await waits.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    talk.abort()
    other.execute("COMMIT")
    other.close()
    result = await going
    assert (result.stop_reason, ran, len(model.requests)) == ("aborted", [], int(before == "its bodies run"))
    journal = agent.plan.journal
    records = journal.records("R")
    assert [r.data["outcome"] for r in records if r.kind == "outcome"] == ["aborted"] * (2 * len(model.requests))
    assert (records[-1].kind, records[-1].data["stop_reason"], verify(journal)) == ("end", "aborted", [])
    assert (await agent.resume("R")).stop_reason == "aborted"
    assert (await talk.run("And now?")).text == "never"  # nobody has used this reply up
    await agent.aclose()


async def test_records_are_written_in_the_order_in_which_they_were_put_down(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db", durability="normal")
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    for turn in range(20):
        buffer = Buffer(journal, journal.open_run(f"R{turn}", ("run", 1, b"{}")))
        other.execute("BEGIN IMMEDIATE")
        buffer.add("note", 0)
        first = asyncio.create_task(buffer.write())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not first.done(), "it waits until the other process has written"
        buffer.add("note", 1)
        other.execute("COMMIT")
        await asyncio.sleep(0)  # now it would be written with the next turn of the event loop
        buffer.add("note", 2)
        second = asyncio.create_task(buffer.write(durable=True))
        buffer.add("note", 3)
        await asyncio.gather(first, second)
        await buffer.write_if_possible()
        assert [r.data for r in journal.records(f"R{turn}")[1:]] == [0, 1, 2, 3]
    assert verify(journal) == []
    other.close()
    journal.close()


def test_what_waits_for_another_process_is_written_though_the_event_loop_ends(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db", durability="normal")
    head = journal.open_run("R", ("run", 1, b"{}"))
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    over = threading.Event()

    def let_go() -> None:
        over.wait()
        other.execute("COMMIT")

    thread = threading.Thread(target=let_go)
    thread.start()

    async def main() -> None:
        going = asyncio.create_task(journal.write(head, [("note", 2, b"{}")]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not going.done()
        over.set()

    asyncio.run(main())
    assert [r.kind for r in journal.records("R")] == ["run", "note"]
    thread.join()
    other.close()
    journal.close()


def test_what_waits_for_another_process_holds_up_nothing_else_that_ends_with_the_event_loop(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db", durability="normal")
    heads = [journal.open_run(run_id, ("run", 1, b"{}")) for run_id in "ABC"]
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def tidies_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            other.execute("COMMIT")

    async def main() -> None:
        under_way = [asyncio.create_task(journal.write(head, [("note", 2, b"{}")])) for head in heads]
        under_way.append(asyncio.create_task(tidies_up()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in under_way)

    asyncio.run(main())
    assert [[r.kind for r in journal.records(run_id)] for run_id in "ABC"] == [["run", "note"]] * 3
    other.close()
    journal.close()


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_the_event_loop_never_waits_for_the_disk(tmp_path: Path, durability: str) -> None:
    """Every fsync of the process is in another thread, SQLite's own too: making, opening, intents, folding, ends, closing."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed, and nothing else sees the fsyncs that SQLite makes")
    code = """
        import asyncio, os, sys
        from beforehand import Agent, Limits, tool
        from beforehand.journal import Journal
        from beforehand.testing import FunctionModel, text, tool_call
        @tool
        async def add(a: int) -> int:
            return a
        def reply(request):
            n = sum(message.role == "tool" for message in request.messages)
            return text("x") if n == 60 else tool_call("add", {"a": n})
        async def main():
            journal = Journal(sys.argv[1], durability=sys.argv[2])
            agent = Agent(model=FunctionModel(reply), tools=[add], journal=journal, limits=Limits(max_turns=None))
            for _ in range(30):  # thousands of commits: the log is folded into the file, and begun anew
                await agent.run("go")
            print(os.path.getsize(sys.argv[1]))
            await agent.aclose()
            await agent.run("and once more")  # opens the file again, whose log is empty
            await agent.aclose()
        print(os.getpid(), flush=True)
        asyncio.run(main())
    """
    program = await asyncio.to_thread(
        subprocess.run,
        ["strace", "-f", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o", str(tmp_path / "calls"), sys.executable, "-c",
         textwrap.dedent(code), str(tmp_path / "runs.db"), durability],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert program.returncode == 0, program.stderr
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines() if "sync(" in line]
    main, folded = program.stdout.split()
    assert calls and int(folded) > 100_000
    assert [line for line in calls if line[0] == main] == []


async def test_the_event_loop_goes_on_while_a_thread_of_its_own_holds_the_connection(tmp_path: Path) -> None:
    """As the one does that folds the log into the file, while it waits for the disk."""
    journal = Journal(tmp_path / "runs.db")
    await journal.ready()
    held, go, waited = threading.Event(), threading.Event(), []

    def hold() -> None:
        with journal._lock:
            held.set()
            waited.append(go.wait(10))

    thread = threading.Thread(target=hold)
    thread.start()
    await asyncio.to_thread(held.wait)
    beginning = asyncio.ensure_future(journal.begin("R", ("run", 1, b"{}")))
    await asyncio.sleep(0)
    go.set()
    head, lease = await beginning
    lease.release()
    assert (head.records, waited) == (1, [True])
    await asyncio.to_thread(thread.join)
    journal.close()


async def test_calls_that_wait_for_the_disk_at_once_share_the_wait(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db")
    heads = [journal.open_run(f"R{n}", ("run", 1, b"{}")) for n in range(50)]
    synced = 0
    real, started, go = os.fsync, threading.Event(), threading.Event()

    def held(file: int) -> None:
        nonlocal synced
        synced += 1
        started.set()
        go.wait()
        real(file)

    os.fsync = held  # the operating system's, not ours
    try:

        async def one(head: Any) -> None:
            journal.append(head, [("note", 2, b"{}")])
            await journal.sync()

        going = [asyncio.create_task(one(head)) for head in heads]
        await asyncio.to_thread(started.wait)
        go.set()
        await asyncio.gather(*going)
    finally:
        os.fsync = real
    assert synced <= 4  # the file and its folder, and once more for those that came while it was under way
    journal.close()


async def test_hundreds_of_runs_that_wait_for_the_disk_come_to_their_end(tmp_path: Path) -> None:
    @tool
    async def add(a: int) -> int:
        return a

    def reply(request: Any) -> Any:
        n = sum(m.role == "tool" for m in request.messages)
        return text("done") if n == 3 else tool_call("add", {"a": n})

    agent = Agent(model=FunctionModel(reply), tools=[add], journal=tmp_path / "runs.db")
    results = await asyncio.gather(*[agent.run("go") for _ in range(300)])
    assert [r.text for r in results] == ["done"] * 300
    assert verify(agent.plan.journal) == []
    await agent.aclose()


# --- forks and folders ----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not say which files are open")
async def test_after_the_disk_has_failed_once_nothing_is_taken_for_written_that_may_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux tells of it once, and calls what it could not write written from then on."""
    path, sync, failing = tmp_path / "runs.db", os.fsync, [True]

    def fsync(fd: int) -> None:
        if failing and os.readlink(f"/proc/self/fd/{fd}").endswith("-wal"):
            failing.clear()
            raise OSError(errno.EIO, "Input/output error")
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    async with Agent(model=ScriptedModel(SAY), journal=path) as agent:
        with pytest.raises(JournalError, match="could not be brought to the disk: Input/output error"):
            await agent.run("go", run_id="A")
        assert (await agent.run("go", run_id="B")).stop_reason == "completed"
        file = sqlite3.connect(f"file:{path}?immutable=1", uri=True)  # without its log
        assert {run_id for (run_id,) in file.execute("SELECT run_id FROM runs")} == {"A", "B"}
        file.close()
        assert verify(agent.plan.journal) == []


def test_a_fork_uses_a_connection_of_its_own(tmp_path: Path) -> None:
    code = """
        import asyncio, os, sys
        from beforehand import Agent
        from beforehand.testing import FunctionModel, text
        agent = Agent(model=FunctionModel(lambda request: text("hello")), journal=sys.argv[1])
        asyncio.run(agent.run("a", run_id="parent"))
        child = os.fork()
        name = "child" if child == 0 else "parent again"
        print(asyncio.run(agent.run("b", run_id=name)).text, flush=True)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    """
    done = python(code, tmp_path / "runs.db")
    assert (done.stdout.count("hello"), done.stderr) == (2, "")
    journal = Journal(tmp_path / "runs.db", readonly=True)
    assert {row.run_id for row in journal.runs()} == {"parent", "child", "parent again"}
    assert verify(journal) == []
    journal.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not say which files are open")
def test_a_journal_that_nobody_closes_is_closed_when_it_goes_out_of_scope(tmp_path: Path) -> None:
    code = """
        import asyncio, contextlib, gc, os, sys, threading
        from beforehand import Agent
        from beforehand.testing import FunctionModel, text

        def record():
            agent = Agent(model=FunctionModel(lambda request: text("hello")), journal=sys.argv[1])
            asyncio.run(agent.run("a"))
            assert {"runs.db", "runs.db-wal", "runs.db-shm", "runs.db-locks"} == still_open()
            return agent

        def still_open():
            found = set()
            for number in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    found.add(os.path.basename(os.readlink(f"/proc/self/fd/{number}")).removesuffix(" (deleted)"))
            return {name for name in found if name.startswith("runs.db")}

        agents = [record()]
        agents.append(agents)  # a cycle, which another thread collects
        del agents
        other = threading.Thread(target=gc.collect)
        other.start()
        other.join()
        assert not still_open(), still_open()

        agent = record()
        child = os.fork()
        if child == 0:  # has not used its parent's journal, and lets go of it
            del agent
            gc.collect()
            os._exit(0 if "runs.db-shm" in still_open() else 1)
        assert os.waitpid(child, 0)[1] == 0
        asyncio.run(agent.run("b"))  # and the end of the process finds it open
    """
    done = python(code, tmp_path / "runs.db", flags=("-W", "error"))
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_relative_path_means_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    agent = Agent(model=ScriptedModel(SAY), journal="runs.db")
    monkeypatch.chdir(tmp_path / "other")
    await agent.run("a", run_id="A")
    await agent.aclose()
    assert (tmp_path / "runs.db").exists()
    assert list((tmp_path / "other").iterdir()) == []


# --- files that are no journal --------------------------------------------------------------------


def a_database(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE users (name)")
    db.commit()
    db.close()


def a_newer_journal(path: Path) -> None:
    journal = Journal(path)
    journal.open_run("R", ("run", 1, b"{}"))
    journal.close()
    db = sqlite3.connect(path)
    db.execute("UPDATE journal SET value = ? WHERE name = 'format'", (FILE_FORMAT + 1,))
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_database, "database of something else"), (a_newer_journal, "a newer version of beforehand wrote it"),
        (lambda path: path.write_text("hello" * 1000), "not a journal"), (lambda path: path.mkdir(), "cannot be opened"),
        (lambda path: path.symlink_to(path.parent / "nowhere" / "x"), "cannot be opened"),
        (os.mkfifo, "cannot be opened"),
    ],
    ids=["a database", "a newer journal", "a text", "a folder", "a dead link", "a pipe"],
)  # fmt: skip
async def test_what_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path, make: Any, why: str) -> None:
    path = tmp_path / "runs.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    agent = talker(path)
    with pytest.raises(JournalUnreadable, match=why) as caught:
        await agent.run("go")
    assert "\n" not in str(caught.value)
    assert agent.plan.model.requests == []
    assert (path.read_bytes() if path.is_file() else None) == before
    await agent.aclose()


async def test_a_path_that_utf_8_cannot_express_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9 #1%20?.db"
    async with talker(path) as agent:
        await agent.run("go", run_id="R")
        assert verify(agent.plan.journal) == []
    assert b"caf\xe9 #1%20?.db" in os.listdir(os.fsencode(tmp_path))
    assert [run.run_id for run in Journal(path, readonly=True).runs()] == ["R"]


async def test_a_run_that_cannot_begin_its_record_ends_with_that_error(tmp_path: Path) -> None:
    async with talker(tmp_path / "runs.db") as agent:
        talk = agent.conversation()
        await talk.run("one", run_id="A")
        (tmp_path / "runs.db").unlink()
        result = await talk.run("two", check=False)
        assert isinstance(result.error, JournalError)
        assert (result.stop_reason, result.error.result, result.messages) == ("error", result, ())
        with pytest.raises(JournalError, match="is gone"):
            await talk.run("three")
        assert [m.text for m in talk.messages if m.role == "user"] == ["one"]
        assert len(agent.plan.model.requests) == 1


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalUnreadable, match="there is no folder"):
        await talker(tmp_path / "nowhere" / "runs.db").run("go")


async def test_a_journal_opened_to_be_read_writes_nothing(tmp_path: Path) -> None:
    agent = talker(tmp_path / "runs.db")
    await agent.run("a", run_id="A")
    await agent.aclose()
    reader = Journal(tmp_path / "runs.db", readonly=True)
    assert [row.run_id for row in reader.runs()] == ["A"]
    with pytest.raises(JournalError, match="read only"):
        await Agent(model=ScriptedModel(SAY), journal=reader).run("b")
    with pytest.raises(JournalUnreadable, match="there is no journal"):
        Journal(tmp_path / "none.db", readonly=True).runs()
    reader.close()


async def test_many_readers_see_whole_runs_while_one_writes(tmp_path: Path) -> None:
    agent = Agent(model=FunctionModel(lambda request: text("hello")), journal=Journal(tmp_path / "runs.db", durability="normal"))
    await agent.run("a", run_id="R0")
    stop = threading.Event()

    def read() -> list[Any]:
        found: list[Any] = []
        while not stop.is_set():
            found += verify(Journal(tmp_path / "runs.db", readonly=True))
        return found

    readers = [asyncio.create_task(asyncio.to_thread(read)) for _ in range(3)]
    for n in range(1, 30):
        await agent.run("go", run_id=f"R{n}")
    stop.set()
    assert await asyncio.gather(*readers) == [[], [], []]
    await agent.aclose()


def test_a_thread_that_reads_sees_what_is_written_and_no_half_of_it(tmp_path: Path) -> None:
    """The time of a record is asked for amid the transaction, when the run's new end is written down and the record is not."""
    journal = Journal(tmp_path / "runs.db", durability="normal")
    head = journal.open_run("R", ("run", 1, b"{}"))
    seen: list[tuple[int, list[str]]] = []

    def look() -> None:
        seen.append((journal.head("R").records, [record.kind for record in journal.records("R")]))

    class Time(int):
        def __conform__(self, protocol: object) -> int:
            other = threading.Thread(target=look)
            other.start()
            other.join()
            return int(self)

    journal.append(head, [("note", Time(2), b"{}")])
    look()
    assert seen == [(1, ["run"]), (2, ["run", "note"])]
    journal.close()


def test_what_was_just_written_is_read_also_while_a_thread_still_reads(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db", durability="normal")
    for n in range(1000):
        journal.open_run(f"old{n}", ("run", 1, b"{}"))
    begun, stop = threading.Event(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            journal.runs()
            begun.set()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    begun.wait()
    seen = []
    for n in range(100):
        head = journal.open_run(f"new{n}", ("run", 1, b"{}"))
        journal.append(head, [("note", 2, b"{}")])
        seen.append(journal.has(f"new{n}") and len(journal.records(f"new{n}")))
    journal.close()  # whoever reads goes on reading
    stop.set()
    for thread in readers:
        thread.join()
    assert seen == [2] * 100
    assert len(journal.runs()) == 1100
    journal.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_journal_may_be_closed_while_threads_read_it(tmp_path: Path, readonly: bool) -> None:
    """By somebody else who has it. SQLite ends the process that closes a connection over which it reads."""
    with contextlib.closing(Journal(tmp_path / "runs.db", durability="normal")) as made:
        for n in range(300):
            made.open_run(f"R{n}", ("run", 1, b"{}"))
    journal, stop, found = Journal(tmp_path / "runs.db", durability="normal", readonly=readonly), threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            try:
                found.add(len(journal.runs()))
            except JournalError as error:
                found.add(str(error))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    for _ in range(50):
        journal.close()
        journal.has("R0")
    stop.set()
    for thread in readers:
        thread.join()
    journal.close()
    assert found == {300}


async def test_who_waits_for_the_disk_is_not_disturbed_by_who_closes_the_journal(tmp_path: Path) -> None:
    journal, goes_on = Journal(tmp_path / "runs.db"), threading.Event()
    head, lease = await journal.begin("R", ("run", 1, b"{}"))
    with ThreadPoolExecutor(1) as one:
        asyncio.get_running_loop().set_default_executor(one)
        one.submit(goes_on.wait)
        writing = asyncio.create_task(journal.write(head, [("note", 2, b"{}")], durable=True))
        await asyncio.sleep(0)  # it is written, and the thread that waits for the disk has not come to it
        journal.close()
        goes_on.set()
        await writing
        lease.release()
        assert [record.kind for record in journal.records("R")] == ["run", "note"]
        journal.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the files that a process has open are counted in /proc")
def test_threads_that_have_read_at_once_leave_no_file_open(tmp_path: Path) -> None:
    def opened() -> int:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum([os.readlink(link).startswith(str(tmp_path)) for link in links if os.path.lexists(link)])

    journal = Journal(tmp_path / "runs.db", durability="normal")
    for n in range(300):
        journal.open_run(f"R{n}", ("run", 1, b"{}"))
    at_once = threading.Barrier(20)

    def read() -> None:
        at_once.wait()
        for _ in range(3):
            assert len(journal.runs()) == 300

    readers = [threading.Thread(target=read) for _ in range(20)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join()
    assert opened()
    journal.close()
    assert opened() == 0


# --- the disk is full -----------------------------------------------------------------------------

FULL = """
    import asyncio, resource, signal, sys
    from beforehand import Agent, Limits, tool
    from beforehand.errors import JournalError
    from beforehand.journal import Journal
    from beforehand.testing import FunctionModel, tool_call

    effects = 0

    @tool
    async def work(note: str) -> str:
        global effects
        effects += 1
        return "x" * 1000

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    model = FunctionModel(lambda request: tool_call("work", {"note": "y" * 500}))
    agent = Agent(model=model, tools=[work], journal=Journal(sys.argv[1], durability=sys.argv[3]), limits=Limits(max_turns=None))
    result = asyncio.run(agent.run("go", run_id="R", check=False))
    assert result.stop_reason == "error" and isinstance(result.error, JournalError), result
    print(effects, result.error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit on the size of files there")
@pytest.mark.parametrize("limit", [120_000, 123_457, 131_072, 150_001, 200_000])
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_disk_that_fills_up_stops_the_run_before_its_next_effect(tmp_path: Path, limit: int, durability: str) -> None:
    done = python(FULL, tmp_path / "runs.db", limit, durability)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    effects, _, error = done.stdout.strip().partition(" ")
    assert "could not be written" in error
    assert "before its next effect" in error
    assert "\n" not in error
    journal = Journal(tmp_path / "runs.db", readonly=True)
    assert verify(journal) == []
    intents = [r for r in journal.records("R") if r.kind == "intent"]
    assert int(effects) == len(intents), "every effect has its intent on record, and what has none did not happen"
    journal.close()


ON_A_FULL_DISK = """
    import asyncio, os, sys
    from pathlib import Path
    from beforehand import Agent, Limits, tool
    from beforehand.errors import JournalError
    from beforehand.journal import Journal, verify
    from beforehand.testing import FunctionModel, text, tool_call

    folder, durability = Path(sys.argv[1]), sys.argv[2]
    effects, enough = 0, False

    @tool
    async def work(note: str) -> str:
        global effects
        effects += 1
        return "x" * 1000

    def reply(request):
        return text("done") if enough else tool_call("work", {"note": "y" * 500})

    def make():
        journal = Journal(folder / "runs.db", durability=durability)
        return Agent(model=FunctionModel(reply), tools=[work], journal=journal, limits=Limits(max_turns=None))

    def intents():
        journal = Journal(folder / "runs.db", readonly=True)
        assert verify(journal) == [], verify(journal)
        found = sum(record.kind == "intent" for record in journal.records("R"))
        journal.close()
        return found

    (folder / "ballast").write_bytes(bytes(100_000))
    agent = make()
    result = asyncio.run(agent.run("go", run_id="R", check=False))
    assert result.stop_reason == "error" and isinstance(result.error, JournalError), result
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    assert free < 20_000, f"{free} bytes are free"
    print(effects, intents(), result.error)
    (folder / "ballast").unlink()
    asyncio.run(agent.aclose())
    assert not (folder / "runs.db-wal").exists(), "closed, though somebody has the error: the last one out takes the log along"
    enough = True
    print(asyncio.run(make().resume("R")).text, intents() == effects)
"""


NOBODY_HAS_IT_OPEN = """
    import asyncio, contextlib, os, sys
    from pathlib import Path
    from beforehand import Agent
    from beforehand.journal import Journal, verify
    from beforehand.testing import ScriptedModel, text

    path = Path(sys.argv[1], "runs.db")

    async def run(run_id, leave=False):
        agent = Agent(model=ScriptedModel([text("one")]), journal=path)
        result = await agent.run("go", run_id=run_id, check=False)
        if not leave:
            await agent.aclose()
        return result

    if sys.argv[2] == "killed" and os.fork() == 0:
        asyncio.run(run("R", leave=True))
        os._exit(0)
    elif sys.argv[2] == "killed":
        os.wait()
        path.with_name("runs.db-shm").unlink()
    else:
        asyncio.run(run("R"))
    with contextlib.suppress(OSError), path.with_name("ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(512))
    journal = Journal(path, readonly=True)
    print(verify(journal), journal.records("R")[-1].kind)
    journal.close()
    print(asyncio.run(run("S")).error)
"""


def small_disk(folder: Path, size: str, code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A program that has a file system of this size at `folder`, which nobody else sees and which goes with it."""
    folder.mkdir()
    inside = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", inside, "sh", size, str(folder)]
    command += [sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def why_no_small_disk(folder: Path) -> str | None:
    """Why this process may not mount a file system of its own, if it may not."""
    if shutil.which("unshare") is None:
        return "there is no program unshare"
    tried = small_disk(folder, "64k", "")
    return None if tried.returncode == 0 else " ".join(tried.stderr.split())


@pytest.mark.parametrize("size", ["300k", "333k", "400k", "512k"])
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_file_system_that_is_really_full_does_too_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, size: str, durability: str
) -> None:
    if (why := why_no_small_disk(tmp_path / "tried")) is not None:
        pytest.skip(f"NOT TESTED: a full file system, because none may be mounted here ({why})")
    done = small_disk(tmp_path / "disk", size, ON_A_FULL_DISK, str(tmp_path / "disk"), durability)
    assert (done.returncode, done.stderr) == (0, "")
    full, after = done.stdout.splitlines()
    effects, intents, error = full.split(" ", 2)
    assert error.endswith("runs.db could not be written (the disk is full): the run stopped before its next effect")
    assert int(effects) == int(intents) > 0
    assert after == "done True"


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_on_a_full_file_system_a_journal_that_nobody_has_open_is_readable(tmp_path: Path, ended: str) -> None:
    if (why := why_no_small_disk(tmp_path / "tried")) is not None:
        pytest.skip(f"NOT TESTED: a full file system, because none may be mounted here ({why})")
    done = small_disk(tmp_path / "disk", "512k", NOBODY_HAS_IT_OPEN, str(tmp_path / "disk"), ended)
    assert (done.returncode, done.stderr) == (0, "")
    read, error = done.stdout.splitlines()
    assert read == "[] end"
    assert error.endswith("runs.db could not be written (the disk is full): the run stopped before its next effect")


@pytest.mark.parametrize("said", [{"journal_raw": True}, {"journal_key": b"0123456789abcdef"}, {"durability": "normal"}])
def test_how_a_journal_is_kept_is_said_where_it_is_made(said: dict[str, Any], tmp_path: Path) -> None:
    for journal in (None, Journal(tmp_path / "runs.db")):
        with pytest.raises(ConfigError, match="journal_key= and journal_raw= go with"):
            Agent(model=ScriptedModel([]), journal=journal, **said)
    Agent(model=ScriptedModel([]), journal=tmp_path / "runs.db", **said)
