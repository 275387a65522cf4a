"""The journal in PostgreSQL: the same records and guarantees as in a file, and what a network adds to what can go wrong."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from durable.cluster import PASSWORD, Cluster
from durable.cutting import line_to
from durable.relay import slow_line

from beforehand import Agent, Approve, Ask, Block, Hook, Loop, ToolContext, ToolResult, hook, tool
from beforehand.answering import answer_waiting, settle_call
from beforehand.backtest import backtest
from beforehand.errors import ConfigError, JournalError, JournalUnreadable, RunBusy, UnknownRun, UsageError
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal, PostgresJournal, open_journal, pgopening, verify
from beforehand.journal.chain import seal
from beforehand.journal.pgjobs import Call
from beforehand.journal.reading import summaries
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call

KEY = b"0123456789abcdef"


class Payer:
    """A tool whose effects are counted, and three turns that use it."""

    def __init__(self, url: str, during: Callable[[int], Any] = lambda n: None, turns: int = 3, **options: Any) -> None:
        self.paid: list[int] = []
        self._during, self._turns = during, turns

        @tool
        async def pay(n: int) -> str:
            """Pay."""
            self.paid.append(n)
            await asyncio.to_thread(self._during, n)
            return f"paid {n}"

        self.agent = Agent(model=FunctionModel(self.answer), tools=[pay], journal=url, **options)

    def answer(self, request: Any) -> Any:
        n = sum(message.role == "tool" for message in request.messages)
        return tool_call("pay", {"n": n}, id=f"c{n}") if n < self._turns else text("done")


END_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"""


BACK = """
    DELETE FROM beforehand.records WHERE run = 1 AND n > (SELECT records FROM public.runs WHERE id = 1);
    UPDATE beforehand.runs SET (records, head, seal) = (SELECT records, head, seal FROM public.runs WHERE id = 1) WHERE id = 1"""
"""Puts the first run back to what it was when the tables were copied, with the seal of then."""

LOSE_THE_LAST = """
    DELETE FROM beforehand.records WHERE run = 2; DELETE FROM beforehand.runs WHERE id = 2;
    UPDATE beforehand.journal SET (opened, head, seal) = (SELECT opened, head, seal FROM public.journal)"""
"""What a server that goes down has not kept of a run that it need not have kept."""

START, NOTE = ("run", 7, b'{"loop": "main"}'), ("note", 8, b"{}")

LEASES = """
    SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE datname = current_database() AND locktype = 'advisory' AND granted AND classid = 1650879602"""


def database(url: str) -> str:
    return url.rpartition("/")[2]


class TestSameAsInAFile:
    async def test_the_records_of_a_run_are_those_that_a_file_would_hold(self, empty_url, tmp_path):
        found = []
        for where in (empty_url, str(tmp_path / "runs.db")):
            payer = Payer(where)
            async with payer.agent:
                result = await payer.agent.run("go", run_id="r")
                journal = payer.agent.plan.journal
                records = await journal.reading(journal.records, "r")
                found.append([(r.n, r.kind) for r in records])
                again = await payer.agent.resume("r")
                assert (again.text, again.messages, again.decisions) == (result.text, result.messages, result.decisions)
                assert await journal.reading(verify, journal) == []
        assert found[0] == found[1]

    @pytest.mark.parametrize("kind", ["file", "postgres"])
    def test_the_first_record_of_a_run_can_be_read_alone(self, request, tmp_path, kind):
        journal = open_journal(tmp_path / "runs.db" if kind == "file" else request.getfixturevalue("empty_url"))
        entries = [("run", 7, b'{"loop": "main"}'), ("note", 8, b"{}")]
        head, lease = asyncio.run(journal.begin("r", entries[0]))
        asyncio.run(journal.write(head, entries[1:]))
        lease.release()
        assert journal.first("r") == journal.records("r")[0]
        with pytest.raises(UnknownRun, match="no run 'x' is recorded in"):
            journal.first("x")
        journal.close()

    async def test_a_run_goes_on_from_every_place_its_record_may_end_and_pays_nothing_twice(self, empty_url):
        whole = Payer(empty_url)
        await whole.agent.run("go", run_id="whole")
        journal = whole.agent.plan.journal
        records = await asyncio.to_thread(journal.records, "whole")
        for end in range(1, len(records)):
            entries = [(r.kind, r.at, r.body) for r in records[:end]]
            head, lease = await journal.begin(f"cut{end}", entries[0])
            await journal.write(head, entries[1:])
            lease.release()
            before = [r.data["call"] for r in records[:end] if r.kind == "intent"]
            payer = Payer(journal)
            result = await payer.agent.resume(f"cut{end}")
            assert result.text == "done"
            assert len(before) + len(payer.paid) == 3, end
        assert await asyncio.to_thread(verify, journal) == []
        await whole.agent.aclose()

    async def test_a_question_waits_in_the_database_and_a_subagent_has_a_run_of_its_own(self, empty_url):
        @hook.before_tool_call
        def ask(call):
            return Ask("sure?") if call.name == "pay" else None

        def agent() -> Agent:
            payer = Payer(empty_url, turns=1)
            inner = Agent(model=FunctionModel(payer.answer), tools=payer.agent.plan.tools, hooks=[ask])

            def delegating(request):
                last = request.messages[-1]
                return text(last.text) if last.role == "tool" else tool_call("helper", {"prompt": "p"}, id="h")

            return Agent(model=FunctionModel(delegating), tools=[inner.as_tool("helper", "Helps.")], journal=empty_url)

        async with agent() as one:
            waiting = await one.run("go", run_id="r")
            assert [p.call_id for p in waiting.pending] == ["h/c0"]
        async with agent() as other:
            assert (await other.resume("r", {"h/c0": Approve()})).text == "done"
            journal = other.plan.journal
            rows = await asyncio.to_thread(journal.runs)
            assert [(row.run_id, row.parent) for row in rows] == [("r", None), ("r/h", "r")]
            assert [row.run_id for row in await asyncio.to_thread(journal.runs, None)] == ["r"]
            assert [row.run_id for row in await asyncio.to_thread(journal.runs, "r")] == ["r/h"]
            assert await asyncio.to_thread(journal.children, "r") == {"r/h"}
            assert await asyncio.to_thread(journal.ids, "r/") == ["r/h"] and await asyncio.to_thread(journal.ids) == ["r", "r/h"]
            assert await asyncio.to_thread(verify, journal) == []

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("UPDATE beforehand.records SET at = at + 1 WHERE run = 1 AND n = 4", "run r, record 4: it was changed"),
            ("DELETE FROM beforehand.records WHERE run = 1 AND n = 4", "run r, record 4: it is missing"),
            ("DELETE FROM beforehand.records WHERE run = 1 AND n > 9", "run r, record 10: .* records were written, 9 are here"),
            ("UPDATE beforehand.records SET n = 1000 - n WHERE n IN (499, 501); UPDATE beforehand.runs SET records = 1",
             "records were written"),
            ("UPDATE beforehand.runs SET parent = 's' WHERE id = 1", "said to be a part of, 's', is not the one that it names"),
            ("DELETE FROM beforehand.runs WHERE id = 2", "2 runs were opened, 1 are here"),
            ("INSERT INTO beforehand.records VALUES (9, 1, 1, 'run', '{}', '')", "records of 1 runs that were never opened"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("key", [None, KEY])
    async def test_what_was_changed_is_found(self, empty_url, postgres: Cluster, change, said, key):
        payer = Payer(empty_url, journal_key=key)
        async with payer.agent:
            await payer.agent.run("go", run_id="r")
            await payer.agent.run("go", run_id="s")
        postgres.execute(change, database(empty_url))
        journal = open_journal(empty_url, readonly=True, key=key)
        faults = [str(fault) for fault in await asyncio.to_thread(verify, journal)]
        journal.close()
        assert any([re.search(said, fault) for fault in faults]), faults

    @pytest.mark.parametrize("gone", ["1", "(SELECT records FROM beforehand.runs WHERE id = 1)"], ids=["first", "last"])
    async def test_a_run_whose_first_or_last_record_is_gone_stays_in_the_list(self, empty_url, postgres: Cluster, gone):
        payer = Payer(empty_url)
        async with payer.agent:
            await payer.agent.run("go", run_id="r")
            await payer.agent.run("go", run_id="s")
            postgres.execute(f"DELETE FROM beforehand.records WHERE run = 1 AND n = {gone}", database(empty_url))  # noqa: S608
            found = await asyncio.to_thread(summaries, payer.agent.plan.journal)
        assert [(run.run_id, run.state) for run in found] == [("r", "unreadable"), ("s", "completed")]

    async def two_runs(self, url: str, postgres: Cluster) -> None:
        """Two signed runs, of different sessions. `then` has what was in the tables when the first was half done."""

        def during(n: int) -> None:
            if n == 1:
                for table in ("runs", "records", "totals", "journal"):
                    postgres.execute(f"CREATE TABLE public.{table} AS TABLE beforehand.{table}", database(url))

        first, second = Payer(url, during, journal_key=KEY), Payer(url, journal_key=KEY)
        async with first.agent, second.agent:
            await first.agent.run("go", run_id="r")
            await second.agent.run("go", run_id="s")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("", "records were written in all, "),
            ("UPDATE beforehand.totals SET value = (SELECT value FROM beforehand.totals WHERE slot = 1) WHERE slot = 0",
             "how many records were written was changed"),
            ("UPDATE beforehand.totals SET value = '' WHERE slot = 0", "how many records were written was changed"),
            ("DELETE FROM beforehand.totals WHERE slot = 0", "how many records were written was changed"),
            ("DELETE FROM beforehand.totals WHERE slot = -1", "the last run is not the one"),
            ("DROP TABLE beforehand.totals", "the last run is not the one"),
            ("UPDATE beforehand.journal SET format = 1; DROP TABLE beforehand.totals", "the last run is not the one"),
            ("UPDATE beforehand.totals SET value = t.value FROM public.totals t WHERE t.slot = totals.slot AND t.slot = 0",
             "how many records were written was put back"),
            ("UPDATE beforehand.totals SET value = t.value FROM public.totals t WHERE t.slot = totals.slot",
             "the last run is not the one"),
        ],
    )  # fmt: skip
    async def test_a_signed_run_that_was_put_back_to_what_it_was_earlier_is_found(
        self, empty_url, postgres: Cluster, change, said
    ):
        await self.two_runs(empty_url, postgres)
        journal = open_journal(empty_url, readonly=True, key=KEY)
        assert await asyncio.to_thread(verify, journal) == []
        postgres.execute(f"{BACK}; {change}", database(empty_url))
        [fault] = await asyncio.to_thread(verify, journal)
        journal.close()
        assert fault.run_id is None and said in fault.why

    async def test_what_is_not_right_is_not_made_right_by_who_writes_next(self, empty_url, postgres: Cluster):
        await self.two_runs(empty_url, postgres)
        for wrong in (BACK, "UPDATE beforehand.journal SET seal = ''", "UPDATE beforehand.totals SET value = '' WHERE slot = 0"):
            postgres.execute(wrong, database(empty_url))
        one, two = Payer(empty_url, journal_key=KEY), Payer(empty_url, journal_key=KEY)
        async with one.agent, two.agent:
            await asyncio.gather(one.agent.run("go", run_id="t"), two.agent.run("go", run_id="u"))
            [fault] = await asyncio.to_thread(verify, one.agent.plan.journal)
        assert "the last run is not the one that was written down as the last" in fault.why

    @pytest.mark.parametrize("sealed", ["''", "seal"])
    async def test_a_run_that_is_cut_while_it_goes_on_stops_and_stays_cut(self, empty_url, postgres: Cluster, sealed):
        def cut(n: int) -> None:
            if n == 1:
                change = f"""
                    DELETE FROM beforehand.records WHERE n > 9; UPDATE beforehand.runs SET records = 9, seal = {sealed},
                    head = (SELECT hash FROM beforehand.records WHERE n = 9)"""  # noqa: S608 - ours
                postgres.execute(change, database(empty_url))

        payer = Payer(empty_url, cut, journal_key=KEY)
        async with payer.agent:
            with pytest.raises(JournalError, match="the records of run r are no longer in"):
                await payer.agent.run("go", run_id="r")
            assert payer.paid == [0, 1]
            assert await asyncio.to_thread(verify, payer.agent.plan.journal) != []

    async def test_records_that_another_one_seems_to_have_added_without_the_key_stop_the_run(self, empty_url, postgres: Cluster):
        def add(n: int) -> None:
            if n == 1:
                change = """
                    INSERT INTO beforehand.records SELECT run, 999, at, 'note', body, hash FROM beforehand.records WHERE n = 9;
                    UPDATE beforehand.runs SET records = 999"""
                postgres.execute(change, database(empty_url))

        payer = Payer(empty_url, add, journal_key=KEY)
        async with payer.agent:
            with pytest.raises(JournalError, match="the records of run r were changed: the run stopped"):
                await payer.agent.run("go", run_id="r")
            assert payer.paid == [0, 1]

    async def test_a_session_writes_in_a_row_that_no_other_one_has_any_more(self, empty_url, postgres: Cluster):
        for name in "abc":
            agent = Payer(empty_url, journal_key=KEY).agent
            await agent.run("go", run_id=name)
            async with asyncio.timeout(60):  # a lease is given back behind the run's back, and with one nothing is closed
                while await asyncio.to_thread(agent.plan.journal.is_going_on, name):
                    pass
            await agent.aclose()
        assert postgres.execute("SELECT slot FROM beforehand.totals", database(empty_url)) == [(-1,), (0,)]

    async def test_a_journal_from_before_there_were_totals_goes_on_without(self, empty_url, postgres: Cluster):
        journal = PostgresJournal(empty_url, key=KEY)
        await asyncio.to_thread(journal.ids)
        journal.close()
        old = seal(KEY, 0, b"").hex()
        postgres.execute(f"UPDATE beforehand.journal SET format = 1, seal = '\\x{old}'", database(empty_url))  # noqa: S608 - ours
        postgres.execute("DROP TABLE beforehand.totals", database(empty_url))
        async with Payer(empty_url, journal_key=KEY).agent as agent:
            await agent.run("go", run_id="r")
            assert await asyncio.to_thread(verify, agent.plan.journal) == []
            postgres.execute("UPDATE beforehand.journal SET opened = 7", database(empty_url))
            [fault] = await asyncio.to_thread(verify, agent.plan.journal)
            assert "7 runs were opened, 1 are here" in fault.why

    async def test_with_a_key_runs_that_were_taken_off_stay_missed(self, empty_url, postgres: Cluster):
        payer = Payer(empty_url, journal_key=KEY)
        async with payer.agent:
            for run_id in ("r", "s"):
                await payer.agent.run("go", run_id=run_id)
            postgres.execute(
                "DELETE FROM beforehand.records WHERE run = 2; DELETE FROM beforehand.runs WHERE id = 2; "
                "UPDATE beforehand.journal SET opened = 1, head = (SELECT hash FROM beforehand.records WHERE run = 1 AND n = 1)",
                database(empty_url),
            )
            assert await asyncio.to_thread(verify, payer.agent.plan.journal)
            await payer.agent.run("go", run_id="t")
            assert await asyncio.to_thread(verify, payer.agent.plan.journal)

    async def test_nothing_is_written_with_another_key(self, empty_url):
        async with Payer(empty_url, journal_key=KEY).agent as agent:
            await agent.run("go", run_id="r")
            async with Payer(empty_url, journal_key=b"another key, guessed").agent as other:
                with pytest.raises(JournalUnreadable, match="signed with another key"):
                    await other.run("go", run_id="s")
            assert await asyncio.to_thread(verify, agent.plan.journal) == []

    async def test_one_run_has_one_carrier(self, empty_url):
        going, go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def during(n: int) -> None:
            loop.call_soon_threadsafe(going.set)
            go.wait(60)

        payer, other = Payer(empty_url, during), Payer(empty_url)
        async with payer.agent, other.agent:
            task = asyncio.create_task(payer.agent.run("go", run_id="r"))
            await going.wait()
            with pytest.raises(RunBusy, match="in another process"):
                await other.agent.resume("r")
            with pytest.raises(RunBusy, match="in this process"):
                await payer.agent.resume("r")
            with pytest.raises(UsageError, match=r"a run 'r' is in postgresql://tester@127.0.0.1:.* already"):
                await other.agent.run("go", run_id="r")
            with pytest.raises(UnknownRun, match="no run 'x' is recorded in postgresql://"):
                await other.agent.resume("x")
            assert await asyncio.to_thread(other.agent.plan.journal.is_going_on, "r")
            go.set()
            assert (await task).text == "done"
            assert (await other.agent.resume("r")).text == "done"
            assert other.paid == []
            async with asyncio.timeout(60):  # a lease is given back behind the run's back
                while await asyncio.to_thread(other.agent.plan.journal.is_going_on, "r"):
                    pass

    @pytest.mark.parametrize("key", [None, KEY])
    @pytest.mark.parametrize("isolation", ["read committed", "serializable"])
    async def test_many_runs_in_several_sessions_make_one_chain(self, empty_url, postgres: Cluster, key, isolation):
        name = database(empty_url)
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'", name)
        agents = [Payer(empty_url, journal_key=key).agent for _ in range(3)]
        await asyncio.gather(*[agent.run("go", run_id=f"{a}-{n}") for a, agent in enumerate(agents) for n in range(30)])
        journal = agents[0].plan.journal
        assert await asyncio.to_thread(verify, journal) == []
        assert len(await asyncio.to_thread(journal.runs)) == 90
        for agent in agents:
            await agent.aclose()


def test_who_finds_the_database_empty_while_another_makes_the_journal_does_not_make_it_again(empty_url: str) -> None:
    """It would lock the tables in another order than who writes already, and one of them would fail."""
    said: list[str] = []
    with psycopg.connect(empty_url) as first, psycopg.connect(empty_url, autocommit=True) as second:
        second.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        first.execute("SELECT pg_advisory_xact_lock(%s)", (pgopening._MAKING,))
        making = threading.Thread(target=pgopening.prepare, args=(second, "here", KEY, False))
        making.start()
        waits = "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted"
        while first.execute(waits, (second.info.backend_pid,)).fetchone() is None:
            assert making.is_alive()
        pgopening._create(first, KEY)
        first.commit()
        making.join()
    assert said == []  # "relation already exists, skipping"


def with_helper(where: Any, paid: list[str], hooks: Any = ()) -> Agent:
    """Main asks a sub-agent, which pays; `side` is a loop that says one thing."""

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        paid.append(ctx.idempotency_key)
        return "paid"

    def paying(request: Any) -> Any:
        return text("it is paid") if request.messages[-1].role == "tool" else tool_call("pay", id="p")

    def asking(request: Any) -> Any:
        results = sum(message.role == "tool" for message in request.messages)
        return text("done") if results == 2 else tool_call("helper", {"prompt": "pay"}, id=f"h{results}")

    helper = Agent(model=FunctionModel(paying), tools=[pay], hooks=hooks).as_tool("helper", "Helps.")
    side = Loop("side", model=ScriptedModel([text("aside")] * 3))
    return Agent(model=FunctionModel(asking), tools=[helper], loops=[side], journal=where)


async def test_no_answer_follows_what_was_changed_in_the_run_of_a_subagent(empty_url: str, postgres: Cluster) -> None:
    @hook.before_tool_call(tools=["pay"])
    def ask(call):
        return Ask("sure?")

    paid: list[str] = []
    async with with_helper(PostgresJournal(empty_url, key=KEY), paid, hooks=[ask]) as agent:
        assert [p.call_id for p in (await agent.run("go", run_id="r")).pending] == ["h0/p"]
        postgres.execute("UPDATE beforehand.runs SET seal = '' WHERE run_id = 'r/h0'", database(empty_url))
        journal = agent.plan.journal
        for answering in (
            answer_waiting(journal, "r", "h0/p", Approve(), "ann"), agent.resume("r", answers={"h0/p": Approve()}),
        ):  # fmt: skip
            with pytest.raises(JournalUnreadable, match=r"run r/h0: .* cannot be trusted"):
                await answering
        [fault] = await asyncio.to_thread(verify, journal)
        assert fault.run_id == "r/h0" and paid == []


@pytest.mark.parametrize("has_written", [True, False])
async def test_a_journal_that_nobody_has_any_more_leaves_no_session_behind(empty_url: str, has_written: bool) -> None:
    """Such as one that was closed while a thread still waited for an answer, for which it was opened again."""
    journal = PostgresJournal(empty_url)
    ended = journal.writer._thread.join if has_written else int
    if has_written:
        (await journal.begin("r", START))[1].release()
    assert journal.ids() == (["r"] if has_written else [])
    session = journal._reader
    del journal
    gc.collect()
    assert session.closed
    await asyncio.to_thread(ended)


async def test_a_journal_that_is_closed_right_after_a_run_leaves_no_session_behind(empty_url: str) -> None:
    """What gives back the lease of the run is still in line then."""
    journal = PostgresJournal(empty_url)
    _, lease = await journal.begin("r", START)
    writer, goes_on = journal.writer, threading.Event()
    writer.put(Call(lambda db: goes_on.wait()))
    lease.release()
    assert not writer.locks.in_use
    goes_on.set()
    await asyncio.to_thread(journal.close)
    assert not writer._thread.is_alive()
    journal.close()


@pytest.mark.parametrize("when", ["in line", "at work", "done"])
@pytest.mark.parametrize("begins", [True, False])
async def test_who_is_cancelled_while_a_lease_is_taken_does_not_keep_it(empty_url: str, begins: bool, when: str) -> None:
    journal = PostgresJournal(empty_url)
    if not begins:
        (await journal.begin("r", START))[1].release()
    writer, goes_on = journal.writer, threading.Event()
    writer.put(Call(lambda db: goes_on.wait()))
    taking = asyncio.ensure_future(journal.begin("r", START) if begins else journal.hold("r"))
    await asyncio.sleep(0)  # it is in line then
    if when == "in line":
        taking.cancel()
        await asyncio.wait({taking})
    goes_on.set()
    if when == "done":
        writer.put(Call(lambda db: None)).result()  # the event loop does not turn, and nobody hears that it was taken
    taking.cancel()
    await asyncio.wait({taking})
    assert taking.cancelled()
    (await journal.hold("r")).release()
    await asyncio.to_thread(journal.close)


async def test_a_journal_that_is_closed_while_a_run_begins_is_closed_after_it(empty_url: str) -> None:
    """By another agent that keeps it as well: the run would go on without its lease."""
    journal, other = PostgresJournal(empty_url), PostgresJournal(empty_url)
    writer, goes_on = journal.writer, threading.Event()
    writer.put(Call(lambda db: goes_on.wait()))
    begins = asyncio.create_task(journal.begin("r", START))
    await asyncio.sleep(0)  # it is in line then
    closing = asyncio.create_task(asyncio.to_thread(journal.close))
    goes_on.set()
    _, lease = await begins
    await closing
    with pytest.raises(RunBusy):
        await other.hold("r")
    lease.release()
    await asyncio.to_thread(journal.close)
    (await other.hold("r")).release()
    other.close()


FORKS = """
    import os, sys, threading
    import psycopg
    from beforehand.journal import PostgresJournal

    journal = PostgresJournal(sys.argv[1])
    assert journal.ids() == []
    with psycopg.connect(sys.argv[1]) as other, psycopg.connect(sys.argv[1], autocommit=True) as looks:
        other.execute("LOCK TABLE beforehand.runs")
        reads = threading.Thread(target=journal.ids)
        reads.start()
        while looks.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:
            pass
        child = os.fork()
        if not child:
            print("the fork reads", journal.signed, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        other.rollback()
        reads.join()
    print("and so does this one", journal.ids(), flush=True)
    journal.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
async def test_a_fork_reads_while_a_thread_of_its_parent_does(empty_url: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FORKS), empty_url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "the fork reads False\nand so does this one []\n", done.stderr


class TestTheEventLoop:
    """A network may be slow, and nothing else in the process waits for it: the line brings no byte before the loop has turned."""

    async def recorded(self, url: str) -> int:
        """A run of each loop, and copies of the main one that end after each of its records. How many."""
        async with with_helper(url, []) as agent:
            await agent.run("go", run_id="r")
            await agent.loop("side").run("go", run_id="side")
            journal = agent.plan.journal
            records = await asyncio.to_thread(journal.records, "r")
            inside = await asyncio.to_thread(journal.records, "r/h0")
            for end in range(1, len(records)):
                for run_id, parent, kept in ((f"r{end}", None, records[:end]), (f"r{end}/h0", f"r{end}", inside)):
                    head, lease = await journal.begin(run_id, (kept[0].kind, kept[0].at, kept[0].body), parent)
                    await journal.write(head, [(r.kind, r.at, r.body) for r in kept[1:]])
                    lease.release()
        return len(records)

    async def test_it_goes_on_while_runs_are_looked_up_and_resumed(self, empty_url):
        count = await self.recorded(empty_url)
        async with slow_line(empty_url) as (url, line):
            paid: list[str] = []
            async with with_helper(url, paid) as agent:
                assert (await agent.resume("r")).text == "done"
                assert (await agent.resume("side")).text == "aside"
                assert [e.type async for e in agent.stream_resume("side")] == []
                for end in range(2, count, 3):
                    result = await agent.resume(f"r{end}")
                    assert result.text == "done"
                assert f"r{count - 2}" in [e.run_id async for e in agent.stream_resume(f"r{count - 2}")]
                with pytest.raises(UnknownRun):
                    await anext(agent.stream_resume("nobody"))
            assert paid and line.pieces > 100
            assert line.blocked == 0

    async def test_it_goes_on_while_a_person_answers_and_settles_and_others_look(self, empty_url):
        ask = Hook(seam="before_tool_call", fn=lambda call: Ask("sure?") if call.name == "pay" else None, name="ask")
        async with slow_line(empty_url) as (url, line):
            paid: list[str] = []
            async with with_helper(url, paid, [ask]) as agent:
                waiting = await agent.run("go", run_id="r")
                journal = agent.plan.journal
                await answer_waiting(journal, "r", waiting.pending[0].call_id, Approve(), by="ann")
                again = await agent.resume("r")
                assert (again.stop_reason, len(paid)) == ("suspended", 1)
                records = await asyncio.to_thread(journal.records, "r/h0")
                begun = next(record.n for record in records if record.kind == "intent")
                head, lease = await journal.begin("s", (records[0].kind, records[0].at, records[0].body))
                await journal.write(head, [(r.kind, r.at, r.body) for r in records[1:begun]])
                lease.release()
                await settle_call(journal, "s", "p", ToolResult("paid after all"), by="ann")
                report = await backtest(journal, lambda loop: HookSet((), loop), run_ids=["r", "r/h0"])
                assert report.runs == 2
            assert line.pieces > 50
            assert line.blocked == 0

    async def test_a_run_begins_while_another_thread_reads(self, empty_url):
        async with slow_line(empty_url) as (url, line):
            async with Payer(url).agent as agent:
                reading = asyncio.create_task(asyncio.to_thread(agent.plan.journal.has, "r"))
                while not line.pieces:  # noqa: ASYNC110 - another thread counts them
                    await asyncio.sleep(0)
                assert (await agent.run("go", run_id="r")).text == "done"  # the reader is far from connected
                await reading
            assert line.blocked == 0


class TestWhenTheDatabaseGoesAway:
    async def test_a_run_whose_session_is_ended_goes_on_in_another_one(self, empty_url, postgres: Cluster):
        payer = Payer(empty_url, lambda n: postgres.execute(END_SESSIONS, database(empty_url)))
        async with payer.agent:
            result = await payer.agent.run("go", run_id="r")
            assert (result.text, payer.paid) == ("done", [0, 1, 2])
            assert await asyncio.to_thread(verify, payer.agent.plan.journal) == []

    async def test_a_run_survives_a_restart_of_the_server(self, postgres: Cluster):
        url = postgres.url()

        def restart(n: int) -> None:
            if n == 1:
                postgres.stop("immediate")
                postgres.start()

        payer = Payer(url, restart)
        async with payer.agent:
            assert (await payer.agent.run("go", run_id="r")).text == "done"
            assert payer.paid == [0, 1, 2]
            assert await asyncio.to_thread(verify, payer.agent.plan.journal) == []

    @pytest.mark.parametrize("same", [False, True], ids=["another process", "the same"])
    async def test_a_run_that_the_server_lost_takes_nothing_from_the_run_that_has_its_row(self, empty_url, postgres, same):
        one = PostgresJournal(empty_url, durability="normal")
        (await one.begin("first", START))[1].release()
        postgres.execute("CREATE TABLE public.journal AS SELECT * FROM beforehand.journal", database(empty_url))
        gone, old_lease = await one.begin("gone", START)
        for statement in (LOSE_THE_LAST, END_SESSIONS):
            postgres.execute(statement, database(empty_url))
        (await one.hold("first")).release()  # the session is made anew

        other = one if same else PostgresJournal(empty_url, durability="normal")
        head, lease = await other.begin("new", START)

        assert head.row == gone.row
        with pytest.raises(JournalError, match="the records of run gone are no longer in"):
            await one.write(gone, [NOTE])
        old_lease.release()
        third = PostgresJournal(empty_url)
        with pytest.raises(RunBusy):
            await third.hold("new")
        await other.write(head, [NOTE])
        lease.release()
        assert await asyncio.to_thread(verify, other) == []
        assert [(r.n, r.kind) for r in await asyncio.to_thread(other.records, "new")] == [(1, "run"), (2, "note")]
        for journal in {one, other, third}:
            journal.writer.close()
            journal.close()

    async def test_a_connection_that_is_lost_again_when_it_is_first_used_is_made_once_more(self, empty_url):
        with line_to(empty_url) as (url, line):
            payer = Payer(url, lambda n: line.cut(doomed=2) if n == 1 else None)
            async with payer.agent:
                assert (await payer.agent.run("go", run_id="r")).text == "done"
                assert payer.paid == [0, 1, 2] and line.doomed == 0
                journal = payer.agent.plan.journal
                assert await asyncio.to_thread(verify, journal) == []
                line.cut(doomed=9)
                with pytest.raises(JournalError, match="cannot be reached") as raised:
                    await asyncio.to_thread(journal.runs)
                assert raised.value.temporary
                line.cut()

    @pytest.mark.parametrize("has_read", [True, False])
    async def test_who_reads_waits_for_a_database_that_goes_away(self, empty_url, caplog, has_read):
        with line_to(empty_url) as (url, line):
            payer = Payer(url)
            async with payer.agent:
                await payer.agent.run("go", run_id="r")
                journal = payer.agent.plan.journal
                if has_read:
                    assert await journal.reading(journal.has, "r")
                line.cut(doomed=1_000_000)
                reading = asyncio.create_task(journal.reading(journal.has, "s"))
                async with asyncio.timeout(60):
                    while "trying again for 60 s" not in caplog.text and not reading.done():  # noqa: ASYNC110 - a thread says it
                        await asyncio.sleep(0.02)
                line.doomed = 0
                assert await reading is False

    async def test_records_are_written_though_who_waited_for_the_database_was_cut_short(self, empty_url, caplog):
        with line_to(empty_url) as (url, line):
            journal = PostgresJournal(url)
            head, lease = await journal.begin("r", START)
            line.cut(doomed=1_000_000)
            writing = asyncio.create_task(journal.write(head, [NOTE, NOTE]))
            async with asyncio.timeout(60):
                while "trying again for 60 s" not in caplog.text:  # noqa: ASYNC110 - a thread says it
                    await asyncio.sleep(0.02)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            line.doomed = 0
            await journal.write(head, [NOTE])
            assert [r.n for r in await asyncio.to_thread(journal.records, "r")] == [1, 2, 3, 4]
            assert await asyncio.to_thread(verify, journal) == []
            lease.release()
            await asyncio.to_thread(journal.close)

    @pytest.mark.parametrize("key", [None, KEY])
    async def test_a_run_whose_beginning_was_written_as_the_connection_was_lost_has_begun(self, empty_url, key):
        with line_to(empty_url) as (url, line):
            payer = Payer(url, journal_key=key)
            async with payer.agent:
                await payer.agent.run("go", run_id="r")
                line.last_word = b"COMMIT"
                assert (await payer.agent.run("go", run_id="s")).text == "done"
                assert line.last_word is None
                with pytest.raises(UsageError, match="already"):
                    await payer.agent.run("go", run_id="s")
                journal = payer.agent.plan.journal
                assert await asyncio.to_thread(verify, journal) == []
                assert await asyncio.to_thread(journal.ids) == ["r", "s"]

    async def test_a_run_in_a_long_call_has_its_lease_back_before_anything_is_written(self, empty_url, postgres: Cluster):
        def lose(n: int) -> None:
            if n == 1:
                postgres.execute(END_SESSIONS, database(empty_url))
                patience = time.monotonic() + 30
                while not postgres.execute(LEASES, database(empty_url)) and time.monotonic() < patience:
                    time.sleep(0.05)
                back.append(postgres.execute(LEASES, database(empty_url)))

        back: list[Any] = []

        payer = Payer(empty_url, lose)
        async with payer.agent:
            assert (await payer.agent.run("go", run_id="r")).text == "done"
        assert back == [[(1,)]]

    @pytest.mark.parametrize("key", [None, KEY])
    async def test_a_process_that_is_stopped_as_it_begins_a_run_holds_up_no_other_one(self, empty_url, key):
        with line_to(empty_url) as (url, line):
            stopped, other = Payer(url, journal_key=key), Payer(empty_url, journal_key=key)
            async with stopped.agent, other.agent:
                await stopped.agent.run("go", run_id="r")
                line.held_at = b"opened"  # the end of the chain, which is locked by then
                begins = asyncio.create_task(stopped.agent.run("go", run_id="s"))
                assert await asyncio.to_thread(line.is_held.wait, 60)
                async with asyncio.timeout(60):
                    assert (await other.agent.run("go", run_id="t")).text == "done"
                line.goes_on.set()
                assert (await begins).text == "done"
                journal = other.agent.plan.journal
                assert await asyncio.to_thread(verify, journal) == []
                assert await asyncio.to_thread(journal.ids) == ["r", "t", "s"]

    async def test_each_end_looks_whether_the_other_is_there(self, empty_url):
        def look(db: Any) -> tuple[dict[str, str], int]:
            server = dict(db.execute("SELECT name, setting FROM pg_settings WHERE name ~ '^tcp_'").fetchall())
            line = socket.socket(fileno=os.dup(db.pgconn.socket))
            with line:
                return server, line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)

        journal = PostgresJournal(empty_url)
        server, client = await asyncio.to_thread(journal.writer.put(Call(look)).result)
        journal.close()
        assert server == {
            "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3", "tcp_user_timeout": "25000",
        }  # fmt: skip
        assert client == 10

    async def test_who_was_robbed_while_the_connection_was_lost_does_nothing_more(self, empty_url, postgres: Cluster):
        postgres.execute("CREATE ROLE robbed LOGIN SUPERUSER PASSWORD 'x'", "postgres")
        robber = Payer(empty_url)
        loop = asyncio.get_running_loop()
        others: list[Any] = []

        def rob(n: int) -> None:
            if n == 1:
                postgres.execute("ALTER ROLE robbed NOLOGIN", "postgres")
                postgres.execute(END_SESSIONS, database(empty_url))
                others.append(asyncio.run_coroutine_threadsafe(robber.agent.resume("r"), loop).result(60))
                postgres.execute("ALTER ROLE robbed LOGIN", "postgres")

        payer = Payer(f"postgresql://robbed:x@{empty_url.rpartition('@')[2]}", rob, turns=4)
        async with payer.agent, robber.agent:
            with pytest.raises(JournalError, match="may be going on in another process"):
                await payer.agent.run("go", run_id="r")
            assert payer.paid == [0, 1]  # and nothing after it was robbed
            assert robber.paid == [2]
            assert others[0].text == "done" and "not known" in others[0].messages[-4].text
            assert await asyncio.to_thread(verify, robber.agent.plan.journal) == []

    async def test_who_was_robbed_of_a_run_does_nothing_more_in_the_run_of_a_subagent(self, empty_url, postgres: Cluster):
        postgres.execute("CREATE ROLE parted LOGIN SUPERUSER PASSWORD 'x'", "postgres")
        robber, loop, leases = PostgresJournal(empty_url), asyncio.get_running_loop(), list[Any]()

        def rob(n: int) -> None:
            if n == 0:
                postgres.execute("ALTER ROLE parted NOLOGIN", "postgres")
                postgres.execute(END_SESSIONS, database(empty_url))
                leases.append(asyncio.run_coroutine_threadsafe(robber.hold("r"), loop).result(60))
                postgres.execute("ALTER ROLE parted LOGIN", "postgres")

        payer = Payer(empty_url, rob)
        child = payer.agent.replace(journal=None).as_tool("child", "A child.")
        where = f"postgresql://parted:x@{empty_url.rpartition('@')[2]}"
        asking = ScriptedModel([tool_call("child", {"prompt": "go"}, id="c"), text("done")])
        async with Agent(model=asking, tools=[child], journal=where) as agent:
            with pytest.raises(JournalError, match="may be going on in another process"):
                await agent.run("go", run_id="r")
            assert payer.paid == [0]
            leases[0].release()
            result = await agent.resume("r")  # as whoever has taken the run over does
            assert (result.text, result.messages[-2].text) == ("done", "done")
            assert payer.paid == [0, 1, 2]
            assert await asyncio.to_thread(verify, robber) == []
        robber.close()

    @pytest.mark.parametrize("levels", [1, 2])
    async def test_who_was_robbed_of_a_run_does_nothing_more_inside_it_though_it_is_over_and_free(
        self, empty_url, postgres: Cluster, levels: int
    ):
        """The other one has not gone into the sub-agent: to his model the call is one whose outcome is not known."""
        role = f"late{levels}"
        postgres.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'x'", "postgres")
        robber, loop, others = PostgresJournal(empty_url), asyncio.get_running_loop(), list[Any]()
        other = Agent(model=ScriptedModel([text("I do not know")]), journal=robber)

        def rob(n: int) -> None:
            if n == 0:
                postgres.execute(f"ALTER ROLE {role} NOLOGIN", "postgres")
                postgres.execute(END_SESSIONS, database(empty_url))
                others.append(asyncio.run_coroutine_threadsafe(other.resume("r"), loop).result(60))
                postgres.execute(f"ALTER ROLE {role} LOGIN", "postgres")

        payer = Payer(empty_url, rob)
        agent = payer.agent.replace(journal=None)
        for _ in range(levels):
            asking = ScriptedModel([tool_call("child", {"prompt": "go"}, id="c"), text("done")])
            agent = Agent(model=asking, tools=[agent.as_tool("child", "A child.")])
        async with agent.replace(journal=f"postgresql://{role}:x@{empty_url.rpartition('@')[2]}") as agent:
            with pytest.raises(JournalError, match="may be going on in another process"):
                await agent.run("go", run_id="r")
            assert payer.paid == [0]
            assert (others[0].text, others[0].messages[-2].is_error) == ("I do not know", True)
            assert not any([robber.is_going_on(run) for run in robber.ids()])
            assert await asyncio.to_thread(verify, robber) == []
        await other.aclose()

    async def test_no_tool_runs_whose_intent_could_not_be_written(self, empty_url, postgres: Cluster):
        spoilt: list[int] = []

        @hook.before_tool_call
        def spoil(call):
            if call.args["n"] == 1 and not spoilt:
                spoilt.append(1)
                postgres.execute("ALTER TABLE beforehand.records ADD CHECK (kind <> 'intent') NOT VALID", database(empty_url))

        payer = Payer(empty_url, hooks=[spoil])
        async with payer.agent:
            with pytest.raises(JournalError, match=r"could not be written .* the run stopped before its next effect"):
                await payer.agent.run("go", run_id="r")
            assert payer.paid == [0]
            postgres.execute("ALTER TABLE beforehand.records DROP CONSTRAINT records_kind_check", database(empty_url))
            assert (await payer.agent.resume("r")).text == "done"
            assert payer.paid == [0, 1, 2]

    @pytest.mark.parametrize("key", [None, KEY])
    async def test_of_runs_that_are_written_together_only_the_one_at_fault_fails(self, empty_url, postgres: Cluster, key):
        journal = PostgresJournal(empty_url, key=key)
        heads = []
        for name in ("a", "b", "c"):
            head, _ = await journal.begin(name, ("run", 1, b"{}"))
            heads.append(head)
        postgres.execute("INSERT INTO beforehand.records VALUES (2, 2, 1, 'note', '{}', '')", database(empty_url))
        for head in heads:
            journal.append(head, [("note", 1, b"{}")], wait=0)
        said = await asyncio.gather(*[journal.write(head, []) for head in heads], return_exceptions=True)
        assert [type(error) for error in said] == [type(None), JournalError, type(None)]
        with pytest.raises(JournalError):
            journal.append(heads[1], [("note", 1, b"{}")])
        faults = await asyncio.to_thread(verify, journal)
        assert [(fault.run_id, fault.n) for fault in faults] == [("b", 2)]


class TestOneClearLine:
    async def said(self, url: str, **options: Any) -> Exception:
        """What opening a journal there and running says."""
        agent = Agent(model=ScriptedModel([text("x")]), journal=url, **options)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - that is the question
            await agent.run("go")
        await agent.aclose()
        assert "\n" not in str(raised.value) and PASSWORD not in str(raised.value) and "p%40ss" not in str(raised.value)
        return raised.value

    async def test_a_wrong_password(self, empty_url):
        error = await self.said(empty_url.replace("a%20secret", "another"))
        assert isinstance(error, JournalError) and not error.temporary
        assert "the user or the password is wrong" in str(error)

    async def test_a_database_that_does_not_exist(self, postgres: Cluster):
        assert 'database "nowhere" does not exist' in str(await self.said(postgres.url_of("nowhere")))

    async def test_a_server_that_is_not_there(self):
        error = await self.said("postgresql://me:secret@127.0.0.1:1/runs")
        assert isinstance(error, JournalError) and error.temporary
        assert "the database postgresql://me@127.0.0.1:1/runs cannot be reached" in str(error)
        assert "Connection refused" in str(error)

    async def test_a_url_that_cannot_be_read(self):
        with pytest.raises(ConfigError, match="the database URL cannot be read") as raised:
            PostgresJournal("postgresql://me:sec ret@:x:y/%zz")
        assert "sec ret" not in str(raised.value)

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://me:sec@ret@127.0.0.1:1/runs", "postgresql://me:sec/ret@127.0.0.1:1/runs",
            "postgresql://me:sec?ret@127.0.0.1:1/runs", "postgresql://127.0.0.1:1/runs?user=me&password=sec@ret",
            "postgresql://me:secret/runs", "postgresql://me:20261130/runs", "postgresql://me:99999/runs",
        ],
    )  # fmt: skip
    def test_a_password_with_signs_that_part_an_address_is_shown_nowhere(self, url):
        with pytest.raises(ConfigError, match=r"write special characters in the password as %XX") as raised:
            PostgresJournal(url)
        said = str(raised.value).replace("special", "")
        assert not any([part in said for part in ("sec", "ret", "2026", "999")])

    @pytest.mark.parametrize(
        "where",
        [
            "postgresql+psycopg://me:secret@127.0.0.1:1/runs", "POSTGRESQL://me:secret@127.0.0.1/runs",
            " postgresql://me:secret@127.0.0.1/runs", "postgresql:/me:secret@127.0.0.1/runs",
            "'postgresql://me:secret@127.0.0.1/runs'", "BEFOREHAND_DATABASE_URL=postgresql://me:secret@127.0.0.1/runs",
            "host=127.0.0.1 user=me password=secret", Path("mysql://me:secret@127.0.0.1/runs"),
        ],
    )  # fmt: skip
    def test_an_address_is_not_taken_for_a_file(self, where):
        for opening in (open_journal, lambda where: Agent(model=ScriptedModel([]), journal=where)):
            with pytest.raises(ConfigError, match=r"a journal is the path of a file, .* or postgresql://USER") as raised:
                opening(where)
            assert "secret" not in str(raised.value)

    async def test_a_journal_of_a_newer_version(self, empty_url, postgres: Cluster):
        async with Payer(empty_url).agent as agent:
            await agent.run("go")
        postgres.execute("UPDATE beforehand.journal SET format = 99", database(empty_url))
        error = await self.said(empty_url)
        assert isinstance(error, JournalUnreadable) and "a newer version of beforehand wrote it" in str(error)

    async def test_a_key_that_does_not_fit(self, empty_url, postgres: Cluster):
        async with Payer(empty_url).agent as agent:
            await agent.run("go")
        assert "is not signed, but a key was given" in str(await self.said(empty_url, journal_key=KEY))
        signed = postgres.url()
        async with Payer(signed, journal_key=KEY).agent as agent:
            await agent.run("go")
        assert "is signed: give the key it was made with" in str(await self.said(signed))
        readonly = open_journal(signed, readonly=True)
        assert "cannot be checked without its key" in str((await asyncio.to_thread(verify, readonly))[0])
        readonly.close()

    async def test_a_journal_whose_format_is_gone(self, empty_url, postgres: Cluster):
        async with Payer(empty_url).agent as agent:
            await agent.run("go")
        postgres.execute("DELETE FROM beforehand.journal", database(empty_url))
        assert "has journal format None, and this version reads up to 2: it is damaged" in str(await self.said(empty_url))
        assert postgres.execute("SELECT 1 FROM beforehand.journal", database(empty_url)) == []

    @pytest.mark.parametrize(("encoding", "taken"), [("SQL_ASCII", True), ("LATIN1", False)])
    async def test_an_encoding_that_does_not_hold_every_text(self, postgres: Cluster, encoding, taken):
        name = f"in_{encoding.lower()}"
        made = f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        postgres.execute(made, "postgres")
        agent = Agent(model=ScriptedModel([text("schön \U0001f389")]), journal=postgres.url_of(name))
        async with agent:
            if not taken:
                with pytest.raises(JournalError, match="its encoding LATIN1 does not hold every text; make one with CREATE"):
                    await agent.run("go")
                return
            await agent.run("grüß dich", run_id="ü")
            assert [(run.run_id, run.prompt) for run in summaries(agent.plan.journal)] == [("ü", "grüß dich")]
            assert (await agent.resume("ü")).text == "schön \U0001f389"
            assert await asyncio.to_thread(verify, agent.plan.journal) == []

    async def test_verify_takes_nothing_for_damage_that_is_none(self, empty_url, postgres: Cluster):
        async with Payer(empty_url).agent as agent:
            await agent.run("go")
        name, role = database(empty_url), f"blind_{database(empty_url)}"
        tables = "beforehand.journal, beforehand.runs"
        postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA beforehand TO {role}", name)
        postgres.execute(f"GRANT SELECT ON {tables} TO {role}", name)
        theirs = f"postgresql://{role}:secret@{empty_url.rpartition('@')[2]}"
        for url, change, error, said in (
            (theirs, "", JournalUnreadable, "cannot be read: permission denied for table records"),
            (empty_url, END_SESSIONS, JournalError, "cannot be reached"),
        ):
            journal = open_journal(url, readonly=True)
            contents = journal.contents()
            postgres.execute(change, name)
            with pytest.raises(contents.error) as raised:
                list(contents.records(1))
            with pytest.raises(error, match=said):
                contents.damage(raised.value)
            contents.close()
            journal.close()
        postgres.execute("DROP TABLE beforehand.records", name)
        journal = open_journal(empty_url, readonly=True)
        assert list(map(str, await asyncio.to_thread(verify, journal))) == [
            'the journal: it is damaged: relation "beforehand.records" does not exist'
        ]
        journal.close()

    def test_tables_of_that_name_that_are_not_ours(self, empty_url, postgres: Cluster):
        postgres.execute("CREATE SCHEMA beforehand; CREATE TABLE beforehand.journal (x int)", database(empty_url))
        with pytest.raises(JournalUnreadable, match="cannot be used: column"):
            open_journal(empty_url).has("r")

    def test_reading_makes_nothing(self, empty_url, postgres: Cluster):
        journal = open_journal(empty_url, readonly=True)
        with pytest.raises(JournalUnreadable, match="there is no journal in postgresql://"):
            journal.runs()
        with pytest.raises(JournalError, match="to be read only"):
            assert isinstance(journal, PostgresJournal) and journal.writer
        assert postgres.execute("SELECT to_regclass('beforehand.journal')", database(empty_url)) == [(None,)]
        journal.close()

    @pytest.mark.parametrize("options", [{"durability": "some"}, {"key": b"short"}, {"key": "text of enough length"}])
    def test_options_that_can_never_work(self, options):
        with pytest.raises(ConfigError):
            PostgresJournal("postgresql://me@localhost/runs", **options)

    def test_its_repr_holds_no_password(self):
        shown = repr(PostgresJournal("postgresql://me:secret@localhost:5/runs", key=KEY))
        assert shown == "PostgresJournal('postgresql://me@localhost:5/runs', durability='full', signed)"

    def test_a_path_is_a_file(self, tmp_path):
        assert isinstance(open_journal(tmp_path / "x.db"), Journal)


LONG = "".join([hashlib.sha256(str(n).encode()).hexdigest() for n in range(100)])
"""An id that no index takes, and that cannot be compressed into one."""


class TestOddIds:
    async def test_a_run_that_cannot_be_begun_fails_alone_of_those_that_begin_with_it(self, empty_url):
        journal = open_journal(empty_url)
        entry = ("run", 1, b"{}")
        begun = [f"r{n}" for n in range(3)] + [LONG, "a\x00b", "a\ud800"] + [f"s{n}" for n in range(3)]
        in_line = threading.Event()
        blocker = journal.writer.put(Call(lambda db: in_line.wait(60)))  # what is put meanwhile goes into one batch
        going = [asyncio.ensure_future(journal.begin(run_id, entry)) for run_id in begun]
        await asyncio.sleep(0)
        in_line.set()
        came = await asyncio.gather(*going, return_exceptions=True)
        await asyncio.wrap_future(blocker)
        failed = {run_id for run_id, result in zip(begun, came, strict=True) if isinstance(result, Exception)}
        assert failed == {LONG, "a\x00b", "a\ud800"}
        assert await asyncio.to_thread(journal.ids) == ["r0", "r1", "r2", "s0", "s1", "s2"]
        assert await asyncio.to_thread(verify, journal) == []
        for result in came:
            if not isinstance(result, BaseException):
                result[1].release()
        journal.close()

    @pytest.mark.parametrize("wanted", ["a\x00b\ud800", LONG])
    async def test_a_subagent_runs_whatever_id_the_model_chose_for_its_call(self, empty_url, wanted):
        child = Agent(model=FunctionModel(lambda request: text("inside"))).as_tool("child", "c")

        def answer(request):
            last = request.messages[-1]
            return text(last.text) if last.role == "tool" else tool_call("child", {"prompt": "p"}, id=wanted)

        async with Agent(model=FunctionModel(answer), tools=[child], journal=empty_url) as agent:
            assert (await agent.run("go", run_id="r")).text == "inside"
            journal = agent.plan.journal
            assert len(await asyncio.to_thread(journal.children, "r")) == 1
            assert await asyncio.to_thread(verify, journal) == []

    async def test_text_with_half_characters_and_nul_is_recorded(self, empty_url):
        odd = "a\x00b\ud800"

        @hook.before_tool_call
        def refuses(call):
            return Block(odd)

        payer = Payer(empty_url, hooks=[refuses], turns=1)
        async with payer.agent:
            result = await payer.agent.run(odd, run_id="r")
            again = await payer.agent.resume("r")
        assert (result.stop_reason, again.messages, again.decisions) == ("completed", result.messages, result.decisions)
