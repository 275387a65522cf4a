"""Runs submitted to a PostgreSQL: carried once, whoever asks how often, and answered from anywhere."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from durable.cluster import Cluster
from durable.crashing import crash
from durable.cutting import line_to
from durable.files import CAN, on_files
from durable.workers import Worker

from beforehand import Agent, Approve, Ask, Deny, Edit, Hook, Loop, ToolResult, hook, tool
from beforehand.answering import hold_waiting, settle_call
from beforehand.durable import record_answer
from beforehand.engine import Engine, QueueLimits
from beforehand.errors import (
    ConfigError, JournalError, JournalUnreadable, RunBusy, RunError, UnknownAnswer, UnknownRun, UsageError,
)  # fmt: skip
from beforehand.journal import open_journal, verify
from beforehand.testing import FunctionModel, text, tool_call


NOT_REACHED = "postgresql://127.0.0.1:1/runs"
"""What is refused before the database is asked."""


def paying(request):
    last = request.messages[-1]
    return text(last.text) if last.role == "tool" else tool_call("pay", {"n": int(last.text)}, id="call")


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    file = tmp_path / "effects"
    file.touch()
    return file


def lines(effects: Path) -> list[str]:
    """Run, call and what happened, without the process."""
    return [" ".join(line.split()[:3]) for line in effects.read_text().splitlines()]


async def until(true) -> None:
    """Wait for what another process does. Workers that look for work at once keep each other waiting for up to a minute."""
    async with asyncio.timeout(150):
        while not true():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.02)


class TestInOneProcess:
    async def test_a_run_is_carried_and_its_result_is_what_the_journal_says(self, empty_url):
        done = []

        @tool
        def pay(n: int) -> str:
            """Pay."""
            done.append(n)
            return f"paid {n}"

        async with Engine(empty_url, {"payer": Agent(model=FunctionModel(paying), tools=[pay])}) as engine:
            await engine.start()
            run_id = await engine.submit("payer", "7")
            result = await engine.result(run_id, timeout=150)
            assert (result.text, result.stop_reason, done) == ("paid 7", "completed", [7])
            assert [r.kind for r in engine.journal.records(run_id)][-1] == "end"
            assert await asyncio.to_thread(verify, engine.journal) == []

    async def test_submitting_twice_is_submitting_once_and_another_prompt_under_that_id_is_refused(self, url):
        async with Engine(url) as engine:
            assert await engine.submit("payer", "7", run_id="mine") == "mine"
            assert await engine.submit("payer", "7", run_id="mine") == "mine"
            with pytest.raises(UsageError, match="run 'mine' with another agent or prompt was submitted before"):
                await engine.submit("payer", "8", run_id="mine")
            with pytest.raises(UsageError, match="take another run_id"):
                await engine.submit("other", "7", run_id="mine")

    async def test_a_worker_that_is_stopped_as_it_looks_for_work_keeps_it_from_others_for_some_seconds(self, url):
        """As long as the server lets a session say nothing amid the transaction in which it counts what goes on."""

        def look() -> str:
            from dbos._dbos import _get_dbos_instance

            with _get_dbos_instance()._sys_db.engine.connect() as db:
                return str(db.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar())

        async with Engine(url, {"payer": Agent(model=FunctionModel(paying))}) as engine:
            await engine.start()
            assert await asyncio.to_thread(look) == "5s"

    async def test_of_several_servers_the_one_that_answers_is_taken(self, url):
        port = url.rpartition("/")[0].rpartition(":")[2]
        several = url.replace(f"127.0.0.1:{port}", f"127.0.0.1:1,127.0.0.1:{port}")
        async with Engine(several, {"a": Agent(model=FunctionModel(lambda _: text("well")))}) as engine:
            await engine.start()
            await engine.submit("a", "go", run_id="r")
            assert (await engine.result("r", timeout=150)).text == "well"

    async def test_a_database_that_is_not_there_is_not_made(self, postgres: Cluster):
        async with Engine(postgres.url_of("nowhere")) as engine:
            with pytest.raises(JournalError, match='database "nowhere" does not exist'):
                await engine.submit("a", "go")
        with pytest.raises(ConfigError, match="names no database"):
            Engine(postgres.url_of(""))
        made = postgres.execute("SELECT datname FROM pg_database WHERE datname IN ('nowhere', 'None')", "postgres")
        assert made == []

    async def test_a_database_in_sql_ascii_holds_every_text(self, postgres: Cluster):
        create = "CREATE DATABASE queue_in_ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        postgres.execute(create, "postgres")
        agent = Agent(model=FunctionModel(lambda request: text(request.messages[-1].text)))
        async with Engine(postgres.url_of("queue_in_ascii"), {"ü": agent}) as engine:
            await engine.start()
            await engine.submit("ü", "grüß \U0001f389", run_id="ö")
            assert (await engine.result("ö", timeout=150)).text == "grüß \U0001f389"

    @pytest.mark.parametrize("key", [None, b"another key than that"])
    async def test_nothing_is_queued_where_the_journal_refuses(self, url, key):
        async with Engine(url, journal_key=b"0123456789abcdef") as right, Engine(url, journal_key=key) as wrong:
            await right.submit("a", "go", run_id="r")
            with pytest.raises(JournalUnreadable, match="signed"):
                await wrong.submit("a", "go", run_id="s")
            with pytest.raises(UnknownRun):
                await right.result("s", timeout=150)

    async def test_what_was_submitted_before_any_worker_came_waits_for_one(self, url):
        async with Engine(url) as early:
            await early.submit("payer", "7", run_id="early")
            assert await early.served() == []
            with pytest.raises(TimeoutError):
                await early.result("early", timeout=0.1)
            async with Engine(url, {"payer": Agent(model=FunctionModel(lambda _: text("late but here")))}) as engine:
                await engine.start()
                assert (await early.result("early", timeout=150)).text == "late but here"
                assert await early.served() == ["payer"]

    async def test_an_error_of_the_run_is_raised_and_a_resumed_run_tries_again_what_failed(self, url):
        broken = [True]

        @hook.authorize_request
        def gate(request):
            if broken[0]:
                raise ValueError("out of order")

        async with Engine(url, {"a": Agent(model=FunctionModel(lambda _: text("well")), hooks=[gate])}) as engine:
            await engine.start()
            await engine.submit("a", "go", run_id="r")
            with pytest.raises(RunError, match="out of order") as raised:
                await engine.result("r", timeout=150)
            assert raised.value.result.stop_reason == "error"
            broken[0] = False
            await engine.resume("r")
            await engine.resume("r")
            assert (await engine.result("r", timeout=150)).text == "well"

    async def test_who_waits_for_a_result_waits_for_a_database_that_goes_away_too(self, url, caplog):
        gate = asyncio.Event()

        @tool
        async def work() -> str:
            """Work."""
            await gate.wait()
            return "worked"

        def working(request):
            return text("over") if any(m.role == "tool" for m in request.messages) else tool_call("work", id="c")

        with line_to(url) as (theirs, line):
            async with Engine(url, {"a": Agent(model=FunctionModel(working), tools=[work])}) as engine, Engine(theirs) as asking:
                await engine.start()
                await asking.submit("a", "go", run_id="r")
                for timeout in (None, 60):
                    waiting = asyncio.create_task(asking.result("r", timeout=timeout))
                    said = len(caplog.messages)
                    line.cut(doomed=1_000_000)
                    await until(lambda said=said: any("comes of run r is waited for" in m for m in caplog.messages[said:]))
                    with pytest.raises(TimeoutError):
                        await asking.result("r", timeout=0.1)
                    line.doomed = 0
                    gate.set()
                    assert (await waiting).text == "over"

    async def test_a_message_that_waited_when_a_run_was_cut_off_is_taken_in_by_the_worker_that_goes_on(self, url):
        talks = []

        @tool
        def work() -> str:
            """Work."""
            if talks:
                talks[0].steer("hurry")
                talks[0].follow_up("thanks")
            return "worked"

        def working(request):
            return text("over") if any(m.role == "tool" for m in request.messages) else tool_call("work", id="c")

        agent = Agent(model=FunctionModel(working), tools=[work])
        async with Engine(url, {"a": agent}) as engine:
            talks.append(agent.replace(journal=engine.journal).conversation())
            whole = await talks[0].run("go", run_id="whole")
            expected = ["hurry", "thanks"]
            assert [m.text for m in whole.messages if m.origin in ("steer", "follow_up")] == expected
            records = await asyncio.to_thread(engine.journal.records, "whole")
            queued = [r.n for r in records if r.kind == "queued"]
            await engine.start()
            for end in range(queued[-1], len(records)):
                head, lease = await engine.journal.begin(f"r{end}", (records[0].kind, records[0].at, records[0].body))
                await engine.journal.write(head, [(r.kind, r.at, r.body) for r in records[1:end]])
                lease.release()
                await engine.submit("a", "go", run_id=f"r{end}")
                result = await engine.result(f"r{end}", timeout=150)
                assert [m.text for m in result.messages if m.origin in ("steer", "follow_up")] == expected, records[end - 1].kind
            assert await asyncio.to_thread(verify, engine.journal) == []

    async def test_no_more_than_the_limit_go_on_at_once(self, url):
        going, most = 0, 0

        @tool
        async def work(n: int) -> str:
            """Work."""
            nonlocal going, most
            going += 1
            most = max(most, going)
            for _ in range(20):
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            going -= 1
            return "done"

        def working(request):
            return text("over") if request.messages[-1].role == "tool" else tool_call("work", {"n": 1}, id="c")

        agent = Agent(model=FunctionModel(working), tools=[work])
        async with Engine(url, {"a": agent}, limits=QueueLimits(concurrency=2)) as engine:
            await engine.start()
            ids = [await engine.submit("a", "go") for _ in range(8)]
            assert {(await engine.result(run_id, timeout=150)).text for run_id in ids} == {"over"}
        assert most == 2

    async def test_a_question_is_answered_by_another_process_and_the_answer_is_the_message_that_wakes_the_run(self, url):
        asked = Agent(model=FunctionModel(paying), tools=[pay_for_real], hooks=[ask_first])
        async with Engine(url, {"asker": asked}) as engine, Engine(url) as elsewhere:
            await engine.start()
            for number, (answer, said) in enumerate(
                ((Approve(), "paid 7"), (Deny("too much"), "too much"), (Edit({"n": 3}), "paid 3"))
            ):
                run_id = await elsewhere.submit("asker", "7", run_id=f"run{number}")
                waiting = await elsewhere.result(run_id, timeout=150)
                assert (waiting.stop_reason, [p.call_id for p in waiting.pending]) == ("suspended", ["call"])
                with pytest.raises(UnknownAnswer, match=r"no call 'other' of run run\d is waiting; waiting are call"):
                    await elsewhere.answer(run_id, {"other": Approve()})
                await elsewhere.answer(run_id, {"call": answer}, by="boss")
                assert said in (await elsewhere.result(run_id, timeout=150)).text
                with pytest.raises(UnknownAnswer, match="none is waiting"):
                    await elsewhere.answer(run_id, {"call": answer})
                [told] = [r.data for r in engine.journal.records(run_id) if r.kind == "answer"]
                assert told["by"] == "boss"

    async def test_an_answer_wakes_the_run_even_if_the_queue_could_not_be_used_at_first(self, url, postgres: Cluster, caplog):
        database = url.rpartition("/")[2]
        agents = {"asker": Agent(model=FunctionModel(paying), tools=[pay_for_real], hooks=[ask_first])}
        async with Engine(url, agents) as engine, Engine(url) as elsewhere:
            await engine.start()
            await elsewhere.submit("asker", "7", run_id="r")
            await elsewhere.result("r", timeout=150)
            postgres.execute("ALTER TABLE dbos.workflow_status RENAME TO away", database)
            await elsewhere.answer("r", {"call": Approve()})
            await until(lambda: "the sweep for runs of dead workers is tried again" in caplog.text)
            postgres.execute("ALTER TABLE dbos.away RENAME TO workflow_status", database)
            assert (await elsewhere.result("r", timeout=150)).text == "paid 7"

    async def test_who_answers_while_another_one_does_waits_for_him(self, url):
        def both(request):
            if request.messages[-1].role == "tool":
                return text(" and ".join([message.text for message in request.messages if message.role == "tool"]))
            return [tool_call("pay", {"n": n}, id=f"c{n}") for n in (1, 2)]

        agents = {"asker": Agent(model=FunctionModel(both), tools=[pay_for_real], hooks=[ask_first])}
        async with Engine(url, agents) as engine, Engine(url) as other:
            await engine.start()
            await engine.submit("asker", "go", run_id="r")
            digests = {p.call_id: p.args_digest for p in (await engine.result("r", timeout=150)).pending}
            await engine.stop()
            lease = await hold_waiting(engine.journal, "r")  # what `answer` does, up to its middle
            await record_answer(engine.journal, "r", "c1", digests["c1"], Approve(), "ann")
            answering = asyncio.create_task(other.answer("r", {"c2": Deny("no")}))
            assert not (await asyncio.wait({answering}, timeout=0.5))[0]
            lease.release()
            await answering
            await engine.start()
            assert "no" in (await engine.result("r", timeout=150)).text

    async def test_a_question_of_a_subagent_is_answered_under_either_name(self, url):
        helper = Agent(model=FunctionModel(paying), tools=[pay_for_real], hooks=[ask_first])

        def delegating(request):
            last = request.messages[-1]
            return text(last.text) if last.role == "tool" else tool_call("helper", {"prompt": "7"}, id="h")

        outer = Agent(model=FunctionModel(delegating), tools=[helper.as_tool("helper", "Helps.")])
        async with Engine(url, {"outer": outer}) as engine:
            await engine.start()
            for run_id, named, call_id in (("r", "r", "h/call"), ("s", "s/h", "call")):
                await engine.submit("outer", "go", run_id=run_id)
                assert [p.call_id for p in (await engine.result(run_id, timeout=150)).pending] == ["h/call"]
                with pytest.raises(UnknownAnswer, match="no call 'other'"):
                    await engine.answer(named, {"other": Approve()})
                await engine.answer(named, {call_id: Approve()})
                assert (await engine.result(run_id, timeout=150)).text == "paid 7"

    async def test_a_run_that_waits_for_a_person_takes_nobodys_place(self, url):
        agents = {"asker": Agent(model=FunctionModel(paying), tools=[pay_for_real], hooks=[ask_first])}
        async with Engine(url, agents, limits=QueueLimits(concurrency=1)) as engine:
            await engine.start()
            for n in range(3):
                await engine.submit("asker", "7", run_id=f"run{n}")
            for n in range(3):
                assert (await engine.result(f"run{n}", timeout=150)).stop_reason == "suspended"
            await until(lambda: engine.carrying == 0)  # the worker is done with it a moment after it is on record

    async def test_what_nobody_submitted_is_unknown(self, url):
        async with Engine(url) as engine:
            for asking in (engine.result("nobody", timeout=150), engine.resume("nobody"), engine.answer("nobody", {})):
                with pytest.raises(UnknownRun, match="nobody"):
                    await asking

    async def test_a_changed_record_is_found_before_anything_of_it_counts(self, url, postgres: Cluster):
        async with Engine(url, {"asker": Agent(model=FunctionModel(paying), tools=[pay_for_real], hooks=[ask_first])}) as engine:
            await engine.start()
            await engine.submit("asker", "7", run_id="r")
            await engine.result("r", timeout=150)
            change = "UPDATE beforehand.records SET body = replace(encode(body, 'escape'), '7', '9')::bytea WHERE kind = 'ask'"
            postgres.execute(change, url.rpartition("/")[2])
            [fault] = await asyncio.to_thread(verify, engine.journal)
            assert fault.run_id == "r" and "it was changed" in fault.why
            with pytest.raises(Exception, match="was changed: the run cannot be trusted"):
                await engine.answer("r", {"call": Approve()})


@tool
def pay_for_real(n: int) -> str:
    """Pay."""
    return f"paid {n}"


pay_for_real = tool(name="pay")(pay_for_real.unguarded)


@hook.before_tool_call
def ask_first(call):
    return Ask("sure?")


class TestOnOneMachine:
    @on_files
    async def test_the_same_engine_runs_on_two_sqlite_files(self, tmp_path):
        where = f"sqlite:///{tmp_path / 'runs.db'}"
        agents = {"asker": Agent(model=FunctionModel(paying), tools=[pay_for_real], hooks=[ask_first])}
        async with Engine(where, agents) as engine:
            await engine.start()
            async with Engine(where) as elsewhere:
                await elsewhere.submit("asker", "7", run_id="r")
                assert (await elsewhere.result("r", timeout=150)).stop_reason == "suspended"
                await elsewhere.answer("r", {"call": Approve()})
                assert (await elsewhere.result("r", timeout=150)).text == "paid 7"
            assert verify(open_journal(tmp_path / "runs.db", readonly=True)) == []


    @on_files
    @pytest.mark.parametrize("name", ["a%20b.db", "a?mode=memory.db", "a b#c.db"])
    async def test_the_queue_is_beside_the_journal_whatever_that_is_called(self, tmp_path, name):
        async with Engine(f"sqlite:///{tmp_path / name}") as engine:
            await engine.submit("a", "go", run_id="r")
        assert (tmp_path / name.replace(".db", "-queue.db")).is_file()
        assert not (tmp_path / "a").exists()

    @on_files
    async def test_a_worker_that_stops_as_a_call_is_put_on_record_waits_for_that_call(self, tmp_path):
        other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
        reached, begins = asyncio.Event(), []

        @hook.before_tool_call
        def hold_the_file(call):
            other.execute("BEGIN IMMEDIATE")
            reached.set()

        @tool
        def pay(n: int) -> str:
            """Pay."""
            begins.append(n)
            return f"paid {n}"

        agents = {"payer": Agent(model=FunctionModel(paying), tools=[pay], hooks=[hold_the_file])}
        async with Engine(f"sqlite:///{tmp_path / 'runs.db'}", agents) as engine:
            await engine.start()
            await engine.submit("payer", "7", run_id="r")
            await asyncio.wait_for(reached.wait(), 150)
            for _ in range(50):  # until its intent waits for the file
                await asyncio.sleep(0)
            stopping = asyncio.create_task(engine.stop(grace=150))
            for _ in range(50):
                await asyncio.sleep(0)
            other.execute("COMMIT")
            other.close()
            await stopping
            records = [record for record in engine.journal.records("r") if record.kind in ("intent", "outcome")]
            assert begins == [7]
            assert [record.data.get("outcome", "began") for record in records] == ["began", "ran"]

    @on_files
    async def test_ids_that_differ_in_case_are_other_runs(self, tmp_path):
        def failing(request):
            raise RuntimeError("gone")

        async with Engine(f"sqlite:///{tmp_path / 'runs.db'}", {"a": Agent(model=FunctionModel(failing))}) as engine:
            await engine.start()
            for run_id in ("r", "R"):
                await engine.submit("a", "go", run_id=run_id)
                assert (await engine.result(run_id, check=False, timeout=150)).stop_reason == "error"
            await engine.stop()
            await engine.resume("R")  # and no worker is there to take it up
            assert (await engine.result("r", check=False, timeout=150)).stop_reason == "error"
            with pytest.raises(TimeoutError):
                await engine.result("R", check=False, timeout=0.01)

    @pytest.mark.skipif(CAN, reason="NOT TESTED: how a SQLite that is too old is refused, because this one is not")
    def test_a_sqlite_that_is_too_old_for_the_queue_is_refused_in_one_line(self, tmp_path):
        with pytest.raises(ConfigError) as caught:
            Engine(f"sqlite:///{tmp_path / 'runs.db'}")
        assert str(caught.value) == (
            "the queue of runs cannot be in a SQLite file here: DBOS needs SQLite 3.42 or newer from Python 3.12 on, and this "
            f"Python has {sqlite3.sqlite_version}: use postgresql://..., or a Python with a newer SQLite"
        )
        assert list(tmp_path.iterdir()) == []


class TestWorkers:
    async def test_workers_killed_at_random_moments_lose_no_run_and_repeat_nothing(self, url, tmp_path):
        seen = await crash(url, tmp_path, runs=8, kills=5, seed=7)
        assert (seen["wrong"], seen["runs"], seen["kills"]) == ([], 8, 5)
        assert seen["resumed"] > 0

    @pytest.mark.parametrize("kind", ["postgres", pytest.param("sqlite", marks=on_files)])
    async def test_a_call_cut_off_between_intent_and_outcome_is_not_made_again_by_the_worker_that_takes_over(
        self, kind, url, effects
    ):
        url = url if kind == "postgres" else f"sqlite:///{effects.with_name('runs.db')}"
        first = await asyncio.to_thread(Worker(url, effects).ready)
        async with Engine(url) as engine:
            await engine.submit("waiter", "gate", run_id="r")
            await until(lambda: lines(effects) == ["r call began"])
            second = await asyncio.to_thread(Worker(url, effects).ready)
            first.kill()
            result = await engine.result("r", timeout=150)
            assert "Whether it took effect is not known" in result.text
            assert lines(effects) == ["r call began"]
            with pytest.raises(UsageError, match="outcome: the run went on without knowing it, and told the model so"):
                await settle_call(engine.journal, "r", "call", ToolResult("it is paid"), by="ann")
            assert [r.data["outcome"] for r in engine.journal.records("r") if r.kind == "outcome"] == ["uncertain"]
            await until(lambda: any("1 of its runs go on elsewhere" in line for line in second.lines))
            assert await asyncio.to_thread(second.stop) == 0

    @pytest.mark.parametrize("kind", ["postgres", pytest.param("sqlite", marks=on_files)])
    async def test_a_run_that_was_given_up_is_taken_up_when_a_person_settles_its_call(
        self, kind, url, effects, postgres: Cluster
    ):
        where = url if kind == "postgres" else f"sqlite:///{effects.with_name('runs.db')}"
        first = await asyncio.to_thread(Worker(where, effects).ready)
        async with Engine(where) as engine:
            await engine.submit("waiter", "gate", run_id="r")
            await until(lambda: lines(effects) == ["r call began"])
            first.kill()
            given_up = "UPDATE {}workflow_status SET status = 'MAX_RECOVERY_ATTEMPTS_EXCEEDED' WHERE workflow_uuid = 'r'"
            if kind == "postgres":
                postgres.execute(given_up.format("dbos."), url.rpartition("/")[2])
            else:
                with closing(sqlite3.connect(effects.with_name("runs-queue.db"), isolation_level=None)) as db:
                    db.execute(given_up.format(""))
            second = await asyncio.to_thread(Worker(where, effects).ready)
            with pytest.raises(RunError, match="could not be carried on"):
                await engine.result("r", timeout=150)
            assert await settle_call(engine.journal, "r", "call", ToolResult("it was there"), by="ann") == "r"
            assert (await engine.result("r", timeout=150)).text == "it was there"
            assert lines(effects) == ["r call began"]
            await until(lambda: not engine.journal.is_going_on("r"))  # its worker gives it back a moment after its end
            with pytest.raises(UsageError, match="has an outcome: ran"):
                await settle_call(engine.journal, "r", "call", ToolResult("x"), by="ann")
            assert await asyncio.to_thread(second.stop) == 0

    async def test_a_slow_worker_is_not_robbed(self, url, effects):
        slow = await asyncio.to_thread(Worker(url, effects).ready)
        async with Engine(url) as engine:
            await engine.submit("waiter", "gate", run_id="r")
            await until(lambda: lines(effects) == ["r call began"])
            os.kill(slow.process.pid, signal.SIGSTOP)  # so slow that it does nothing at all
            dying = await asyncio.to_thread(Worker(url, effects).ready)
            await engine.submit("waiter", "other-gate", run_id="s")
            await until(lambda: "s call began" in lines(effects))
            other = await asyncio.to_thread(Worker(url, effects).ready)
            dying.kill()
            assert "not known" in (await engine.result("s", timeout=150)).text  # the other one sweeps, and has taken over
            with pytest.raises(RunBusy, match="run r is going on in another process"):
                await engine.answer("r", {})
            effects.with_name("gate").touch()
            os.kill(slow.process.pid, signal.SIGCONT)
            assert (await engine.result("r", timeout=150)).text == "it is there"
            assert [line for line in lines(effects) if line.startswith("r")] == ["r call began", "r call ended"]
            assert "resumed" not in [record.kind for record in engine.journal.records("r")]
        for worker in (slow, other):
            assert await asyncio.to_thread(worker.stop) == 0

    async def test_a_worker_in_a_long_call_is_not_robbed_when_every_session_ends(self, url, effects, postgres: Cluster):
        slow = await asyncio.to_thread(Worker(url, effects, "--worker-concurrency", "1").ready)
        async with Engine(url) as engine:
            await engine.submit("waiter", "gate", run_id="r")
            await until(lambda: lines(effects) == ["r call began"])
            dying = await asyncio.to_thread(Worker(url, effects, "--worker-concurrency", "1").ready)  # the last one's counts
            await engine.submit("waiter", "other-gate", run_id="s")
            await until(lambda: f"call began {dying.process.pid}" in effects.read_text())
            other = await asyncio.to_thread(Worker(url, effects).ready)
            dying.kill()
            end = """
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()"""
            postgres.execute(end, url.rpartition("/")[2])
            await until(lambda: any(["is gone" in line for worker in (slow, other) for line in worker.lines]))
            for gate in ("gate", "other-gate"):
                effects.with_name(gate).touch()
            assert (await engine.result("r", timeout=150)).text == "it is there"
            assert "resumed" not in [record.kind for record in engine.journal.records("r")]
        for worker in (slow, other):
            assert await asyncio.to_thread(worker.stop) == 0

    async def test_a_worker_that_is_stopped_as_it_hands_out_runs_holds_up_no_other_one(self, url, effects):
        idle = {"idle": Agent(model=FunctionModel(lambda _: text("well")))}
        with line_to(url) as (slow, line):
            async with Engine(slow, idle) as stopped, Engine(url) as engine:
                await stopped.start()
                dying = await asyncio.to_thread(Worker(url, effects).ready)
                await engine.submit("waiter", "gate", run_id="r")
                await until(lambda: lines(effects) == ["r call began"])
                line.held_at = b"UPDATE 1"  # what the server says as the run is handed out, and not committed yet
                dying.kill()
                try:
                    assert await asyncio.to_thread(line.is_held.wait, 150)
                    other = await asyncio.to_thread(Worker(url, effects).ready)
                    assert "not known" in (await engine.result("r", timeout=150)).text
                finally:
                    line.goes_on.set()
                assert await asyncio.to_thread(other.stop) == 0
        assert lines(effects) == ["r call began"]

    async def test_a_worker_told_to_stop_lets_its_tools_finish_and_others_go_on(self, url, effects):
        first = await asyncio.to_thread(Worker(url, effects, "--grace", "60").ready)
        async with Engine(url) as engine:
            await engine.submit("waiter", "gate", run_id="r")
            await until(lambda: lines(effects) == ["r call began"])
            first.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(first.says, "stopping: 1 runs go on elsewhere")
            effects.with_name("gate").touch()
            assert await asyncio.to_thread(first.process.wait, 60) == 0
            assert lines(effects) == ["r call began", "r call ended"]
            second = await asyncio.to_thread(Worker(url, effects).ready)
            assert (await engine.result("r", timeout=150)).text == "it is there"
            assert lines(effects) == ["r call began", "r call ended"]
            assert await asyncio.to_thread(second.stop) == 0

    async def test_a_worker_told_to_stop_lets_a_loop_that_its_run_has_woken_finish_too(self, url, effects):
        worker = await asyncio.to_thread(Worker(url, effects, "--grace", "60").ready)
        async with Engine(url) as engine:
            await engine.submit("sender", "gate", run_id="r")
            assert (await engine.result("r", timeout=150)).text == "sent"
            await until(lambda: "call began" in effects.read_text())
            worker.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(worker.says, "stopping: 1 runs go on elsewhere")
            effects.with_name("gate").touch()
            assert await asyncio.to_thread(worker.process.wait, 60) == 0
            assert [line.split()[2] for line in lines(effects)] == ["began", "ended"]

    async def test_a_tool_that_does_not_finish_in_time_is_cut_off_and_its_outcome_is_unknown(self, url, effects):
        first = await asyncio.to_thread(Worker(url, effects, "--grace", "0").ready)
        async with Engine(url) as engine:
            await engine.submit("waiter", "never", run_id="r")
            await until(lambda: lines(effects) == ["r call began"])
            assert await asyncio.to_thread(first.stop) == 0
            second = await asyncio.to_thread(Worker(url, effects).ready)
            assert "Whether it took effect is not known" in (await engine.result("r", timeout=150)).text
            assert lines(effects) == ["r call began"]
            assert await asyncio.to_thread(second.stop) == 0


class TestNotCarried:
    async def test_a_run_that_cannot_be_carried_says_why(self, url, postgres: Cluster):
        asked = Agent(model=FunctionModel(paying), tools=[pay_for_real], hooks=[ask_first])
        async with Engine(url, {"asker": asked}) as engine:
            await engine.start()
            await engine.submit("asker", "7", run_id="r")
            await engine.result("r", timeout=150)
            await engine.answer("r", {"call": Approve()})
            await engine.result("r", timeout=150)
            postgres.execute("UPDATE beforehand.records SET kind = 'note' WHERE kind = 'end'", url.rpartition("/")[2])
            await engine.resume("r")
            with pytest.raises(RunError, match=r"run r could not be carried on: .*was changed"):
                await engine.result("r", timeout=150)

    async def test_a_run_that_could_not_be_carried_is_tried_again_as_often_as_someone_asks(self, url, postgres: Cluster):
        broken, mended = [f"UPDATE beforehand.records SET at = at {change} 1 WHERE n = 1" for change in "+-"]  # noqa: S608 - ours
        database, works = url.rpartition("/")[2], False

        def model(_):
            if not works:
                raise RuntimeError("gone")
            return text("well")

        async with Engine(url, {"a": Agent(model=FunctionModel(model))}) as engine:
            await engine.start()
            await engine.submit("a", "go", run_id="r")
            await engine.result("r", check=False, timeout=150)
            postgres.execute(broken, database)
            failed = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'ERROR'"
            for times in (1, 2):
                await engine.resume("r")
                await engine.resume("r")
                await until(lambda times=times: postgres.execute(failed, database) == [(times,)])
                with pytest.raises(Exception, match="was changed"):
                    await engine.result("r", timeout=150)
            postgres.execute(mended, database)
            works = True
            await engine.resume("r")
            assert (await engine.result("r", timeout=150)).text == "well"

    async def test_a_run_that_failed_before_it_began_can_be_tried_again(self, url, postgres: Cluster):
        database = url.rpartition("/")[2]
        async with Engine(url, {"a": Agent(model=FunctionModel(lambda _: text("well")))}) as engine:
            await engine.submit("a", "go", run_id="r")
            postgres.execute("UPDATE dbos.workflow_input SET inputs = replace(inputs, 'content', 'contents')", database)
            await engine.start()
            with pytest.raises(RunError, match="run r could not be carried on"):
                await engine.result("r", timeout=150)
            postgres.execute("UPDATE dbos.workflow_input SET inputs = replace(inputs, 'contents', 'content')", database)
            await engine.resume("r")
            assert (await engine.result("r", timeout=150)).text == "well"

    async def test_what_a_worker_was_handed_and_never_began_is_handed_out_again(self, url, postgres: Cluster):
        async with Engine(url, {"a": Agent(model=FunctionModel(lambda _: text("well")))}) as engine:
            await engine.start()
            await engine.submit("ghost", "go", run_id="r")
            lost = f"""
                UPDATE dbos.workflow_input SET inputs = replace(inputs, 'ghost', 'a');
                UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = '{engine.worker_id}',
                queue_name = 'beforehand:a' WHERE workflow_uuid = 'r'"""  # noqa: S608
            postgres.execute(lost, url.rpartition("/")[2])
            assert (await engine.result("r", timeout=150)).text == "well"

    async def test_a_worker_that_could_not_begin_says_why_and_can_begin_later(self, url, postgres: Cluster):
        database = url.rpartition("/")[2]
        async with Engine(url, {"a": Agent(model=FunctionModel(lambda _: text("well")))}) as engine:
            await engine.submit("a", "go", run_id="r")
            postgres.execute("ALTER TABLE dbos.queues ADD CONSTRAINT never CHECK (name <> 'beforehand:a')", database)
            with pytest.raises(JournalError, match=r"cannot be used: new row .* violates check constraint") as raised:
                await engine.start()
            assert "\n" not in str(raised.value) and "INSERT" not in str(raised.value)
            postgres.execute("ALTER TABLE dbos.queues DROP CONSTRAINT never", database)
            await engine.start()
            assert (await engine.result("r", timeout=150)).text == "well"

    async def test_one_process_is_one_worker_and_can_begin_again(self, url):
        agents = {"a": Agent(model=FunctionModel(lambda _: text("well")))}
        async with Engine(url, agents) as one, Engine(url, agents) as other:
            await one.start()
            with pytest.raises(UsageError, match="a worker needs a process of its own"):
                await other.start()
            await one.stop()
            await one.start()
            assert (await other.result(await other.submit("a", "go"), timeout=150)).text == "well"


class TestWrongAgents:
    @pytest.mark.parametrize(
        ("agents", "said"),
        [
            ({"a": "gpt"}, r"agents\['a'\] is a str: expected an Agent"),
            ({"": Agent(model=FunctionModel(lambda _: text("")))}, "an agent's name is a text"),
            ({"a": Agent(model=FunctionModel(lambda _: text("")), journal="x.db")}, "agent 'a' has a journal of its own"),
        ],
    )
    def test_agents_are_checked_when_the_engine_is_made(self, agents, said):
        with pytest.raises(ConfigError, match=said):
            Engine(NOT_REACHED, agents)

    @pytest.mark.parametrize("breaks", [False, True])
    async def test_what_its_agents_keep_is_closed_with_it_whatever_cannot_be_closed(self, breaks):
        closed = []

        class Kept(FunctionModel):
            async def aclose(self) -> None:
                closed.append(self)
                if breaks:
                    raise RuntimeError("it does not close")

        class Gate:
            def __call__(self, call: object) -> None: ...

            async def close_with_agent(self) -> None:
                closed.append(self)

        model, of_loop, gate = Kept(paying), Kept(paying), Gate()
        hooks = [Hook(seam="before_tool_call", fn=gate, name="gate")]
        agent = Agent(model=model, loops=[Loop("reader", model=of_loop)], hooks=hooks)
        other = Kept(paying)
        with pytest.raises(RuntimeError, match="it does not close") if breaks else nullcontext():
            async with Engine(NOT_REACHED, {"a": agent, "b": Agent(model=other)}) as engine:
                writer = engine.journal.writer
        assert closed == [model, of_loop, gate, other]
        assert writer.closed

    @pytest.mark.parametrize(
        "limits", [{"concurrency": 0}, {"worker_concurrency": True}, {"rate": (1,)}, {"rate": (0, 1)}, {"rate": 5}]
    )
    def test_limits_that_can_never_work_are_refused(self, limits):
        with pytest.raises(ConfigError, match=r"QueueLimits\("):
            Engine(NOT_REACHED, limits=QueueLimits(**limits))

    @pytest.mark.parametrize("run_id", ["", "a/b", "a#1", 5])
    async def test_a_run_id_is_a_text_without_the_signs_that_have_a_meaning(self, run_id):
        with pytest.raises(ConfigError, match="expected a text without"):
            await Engine(NOT_REACHED).submit("a", "go", run_id=run_id)

    @pytest.mark.parametrize(
        ("run_id", "said"),
        [
            ("a\nb", "printable"), ("a\x00b", "printable"), ("\u202ea", "printable"), ("\ud800", "printable"),
            ("x" * 1001, "1001 bytes"), ("é" * 501, "1002 bytes"),
        ],
    )  # fmt: skip
    async def test_a_run_id_that_no_worker_could_carry_is_refused_at_once(self, run_id, said):
        with pytest.raises(ConfigError, match=said):
            await Engine(NOT_REACHED).submit("a", "go", run_id=run_id)

    async def test_an_engine_without_agents_carries_nothing(self):
        with pytest.raises(ConfigError, match="a worker needs agents"):
            await Engine(NOT_REACHED).start()
