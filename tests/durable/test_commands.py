"""`beforehand worker` and `beforehand submit` as processes, and the commands of docs/durable.md."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
from contextlib import closing
from pathlib import Path

import pytest
from cli.command import beforehand
from docs.pages import ROOT, blocks_of
from durable.cluster import PASSWORD, Cluster
from durable.cutting import line_to
from durable.files import on_files
from durable.workers import SERVED, Worker

from beforehand import Agent, Approve
from beforehand.engine import Engine
from beforehand.engine.place import Place
from beforehand.engine.workflows import queue_of
from beforehand.errors import JournalError, RunError
from beforehand.journal import open_journal, verify
from beforehand.testing import ScriptedModel, text

KEY = "0123456789abcdef"
PAGE = ROOT / "docs" / "durable.md"


def saved(folder: Path) -> None:
    """The files that the page tells its reader to write."""
    for block in blocks_of(PAGE):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")


class TestThePage:
    async def test_its_commands_do_what_it_says(self, url, tmp_path):
        saved(tmp_path)
        commands = [line for block in blocks_of(PAGE) if block.language == "sh" for line in block.text.splitlines()]
        assert [line.split()[:2] for line in commands] == [
            ["pip", "install"], ["export", "BEFOREHAND_DATABASE_URL=postgresql://USER:PASSWORD@HOST:5432/DATABASE"],
            ["beforehand", "worker"], ["beforehand", "submit"], ["beforehand", "submit"],
        ]  # fmt: skip
        worker = await asyncio.to_thread(Worker(url, tmp_path / "none", agents=tmp_path / "agents.py").ready)
        done = []
        for line in commands[3:]:
            [prompt] = re.findall(r'"(.*?)"', line)
            words = line.replace(f'"{prompt}"', "PROMPT").split()[1:]
            words = [prompt if word == "PROMPT" else word for word in words]
            done.append(await asyncio.to_thread(beforehand, *words, BEFOREHAND_DATABASE_URL=url))
        first, second = done
        assert (first.returncode, first.stdout) == (0, "refund-7\n")
        assert (second.returncode, second.stdout) == (9, "")
        assert "run refund-8 waits: call call_1 (refund): Refund order-8?" in second.stderr
        assert "answer with `beforehand approvals --answer refund-8 call_1 approve --journal postgresql://" in second.stderr
        async with Engine(url) as engine:
            for number in (7, 8):
                await engine.answer(f"refund-{number}", {"call_1": Approve()})
                assert (await engine.result(f"refund-{number}", timeout=150)).text == f"order-{number} is refunded"
        assert await asyncio.to_thread(worker.stop) == 0


class TestWorker:
    async def test_a_worker_waits_for_its_database_survives_its_restart_and_stops_without_it(self, tmp_path):
        from durable.cluster import cluster

        with cluster() as own:
            url = own.url()
            own.stop("immediate")
            worker = Worker(url, tmp_path / "effects")
            line = await asyncio.to_thread(worker.says, "waiting:")
            assert line.startswith(f"waiting: the database postgresql://tester@127.0.0.1:{own.port}/test1 cannot be reached (")
            own.start()
            await asyncio.to_thread(worker.ready)
            async with Engine(url) as engine:
                await engine.submit("waiter", "gate", run_id="r")
                effects = tmp_path / "effects"
                async with asyncio.timeout(60):
                    while not effects.exists():  # noqa: ASYNC110 - another process makes it
                        await asyncio.sleep(0.02)
                own.stop("immediate")
                (tmp_path / "gate").touch()
                await asyncio.to_thread(worker.says, "trying again for 60 s")
                own.start()
                assert (await engine.result("r", timeout=90)).text == "it is there"
            assert [line.split()[2] for line in effects.read_text().splitlines()] == ["began", "ended"]
            journal = open_journal(url, readonly=True)
            assert await asyncio.to_thread(verify, journal) == []
            journal.close()
            own.stop("immediate")
            assert await asyncio.to_thread(worker.stop) == 0  # nor does it wait for a database to stop
            assert not [line for line in worker.lines if "Traceback" in line], worker.lines

    @pytest.mark.parametrize("carries", [False, True])
    async def test_a_worker_stops_although_its_database_says_nothing_any_more(self, url, tmp_path, carries):
        effects = tmp_path / "effects"
        with line_to(url) as (through, line):
            worker = await asyncio.to_thread(Worker(through, effects, "--grace", "0").ready)
            if carries:
                async with Engine(url) as engine:
                    await engine.submit("waiter", "gate", run_id="r")
                    async with asyncio.timeout(150):
                        while not effects.exists():  # noqa: ASYNC110 - another process makes it
                            await asyncio.sleep(0.02)
            line.silent = True
            worker.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(worker.says, "the database does not answer: others will find its runs by themselves", 150)
            assert await asyncio.to_thread(worker.process.wait, 60) == 0

    async def test_a_signed_journal_is_served_with_its_key(self, url, tmp_path):
        options = ("--key-env", "THE_KEY")
        worker = await asyncio.to_thread(Worker(url, tmp_path / "effects", *options, TEST_TURNS="1", THE_KEY=KEY).ready)
        words = ("submit", "worker", "go", "--wait", *options)
        done = await asyncio.to_thread(beforehand, *words, BEFOREHAND_DATABASE_URL=url, THE_KEY=KEY)
        assert (done.returncode, done.stdout) == (0, "done after 1 turns and 2 results\n"), done.stderr
        assert await asyncio.to_thread(worker.stop) == 0
        with closing(open_journal(url, readonly=True, key=KEY.encode())) as journal:
            assert journal.signed and await asyncio.to_thread(verify, journal) == []

    async def test_a_strict_worker_goes_on_with_no_run_whose_guard_has_changed(self, url, tmp_path):
        effects, changed = tmp_path / "effects", tmp_path / "changed.py"
        changed.write_text(SERVED.read_text().replace('Ask(f"Pay {call.args[\'n\']}?")', "None"))
        async with Engine(url) as engine:
            worker = await asyncio.to_thread(Worker(url, effects).ready)
            await engine.submit("asker", "go", run_id="r")
            assert (await engine.result("r", timeout=150)).stop_reason == "suspended"
            assert await asyncio.to_thread(worker.stop) == 0
            worker = await asyncio.to_thread(Worker(url, effects, "--strict", agents=changed).ready)
            await engine.answer("r", {"call": Approve()})
            with pytest.raises(RunError, match=r"run r cannot go on as it began: hook ask at before_tool_call has changed"):
                await engine.result("r", timeout=150)
            await asyncio.to_thread(worker.says, "hook ask at before_tool_call has changed")
            assert await asyncio.to_thread(worker.stop) == 0
            assert not effects.exists()
            worker = await asyncio.to_thread(Worker(url, effects, agents=changed).ready)
            await engine.resume("r")
            assert (await engine.result("r", timeout=150)).text == "paid 7"
            await asyncio.to_thread(worker.says, "goes on, but not as it began: hook ask at before_tool_call has changed")
            assert await asyncio.to_thread(worker.stop) == 0

    async def test_the_limit_of_the_command_line_holds_over_two_workers(self, url, tmp_path):
        effects = tmp_path / "effects"
        workers = [await asyncio.to_thread(Worker(url, effects, "--queue-concurrency", "1", TEST_PAUSE="0").ready) for _ in "12"]
        async with Engine(url) as engine:
            ids = [await engine.submit("worker", "go") for _ in range(4)]
            for run_id in ids:
                assert (await engine.result(run_id, timeout=90)).text == "done after 10 turns and 20 results"
        runs = [line.split()[0] for line in effects.read_text().splitlines()]
        changes = sum(a != b for a, b in itertools.pairwise(runs))
        assert changes == 3  # one after the other
        for worker in workers:
            assert await asyncio.to_thread(worker.stop) == 0

    @on_files
    async def test_it_holds_over_workers_that_look_into_a_file_at_once(self, tmp_path):
        url, effects = f"sqlite:///{tmp_path}/runs.db", tmp_path / "effects"
        options = ("--queue-concurrency", "1")
        workers = [await asyncio.to_thread(Worker(url, effects, *options).ready) for _ in "123"]
        async with Engine(url) as engine:
            ids = [await engine.submit("dozer", "0.2") for _ in range(16)]  # each end is a moment at which all may take the next
            for run_id in ids:
                assert (await engine.result(run_id, timeout=150)).text == "awake"
        assert [line.split()[2] for line in effects.read_text().splitlines()] == ["began", "ended"] * 16  # one after the other
        for worker in workers:
            assert await asyncio.to_thread(worker.stop) == 0

    @on_files
    async def test_where_nothing_is_to_be_counted_no_worker_waits_for_another_one_that_looks(self, tmp_path):
        url, effects = f"sqlite:///{tmp_path}/runs.db", tmp_path / "effects"
        worker = await asyncio.to_thread(Worker(url, effects).ready)
        with Place(url).turn(queue_of("dozer")) as stopped:  # as one that is stopped while it looks
            assert stopped
            async with Engine(url) as engine:
                assert (await engine.result(await engine.submit("dozer", "0"), timeout=150)).text == "awake"
        assert await asyncio.to_thread(worker.stop) == 0


class TestSubmittedRuns:
    @pytest.mark.parametrize("where", ["a database", pytest.param("a file", marks=on_files)])
    async def test_what_no_worker_has_taken_is_told_and_can_be_withdrawn(self, where, tmp_path, request):
        url = f"sqlite:///{tmp_path}/runs.db" if where == "a file" else request.getfixturevalue("url")

        async def told(*options: str) -> str:
            done = await asyncio.to_thread(beforehand, "runs", "--journal", url, *options)
            assert done.returncode == 0, done.stderr
            return str(done.stderr).strip()

        async with Engine(url) as engine:
            for run_id in ("one two", "r2"):
                await engine.submit("dozer", "0", run_id=run_id)
            note = "note: 2 submitted, not taken by a worker yet: 'one two' (for dozer), r2 (for dozer)"
            assert (await told(), await told("--json"), await told("--state", "error")) == (note, note, "")
            withdrawing = [block.text for block in blocks_of(PAGE) if "cancel_workflow" in block.text]
            queue = f"sqlite:///{tmp_path}/runs-queue.db" if where == "a file" else url
            code = withdrawing[0].replace("refund-9", "r2").replace('os.environ["BEFOREHAND_DATABASE_URL"]', repr(queue))
            exec(code, {})  # noqa: S102 - our own page
            assert await told() == "note: 1 submitted, not taken by a worker yet: 'one two' (for dozer)"
            worker = await asyncio.to_thread(Worker(url, tmp_path / "effects").ready)
            assert (await engine.result("one two", timeout=150)).text == "awake"
            assert await told() == ""
            with pytest.raises(RunError, match="run r2 could not be carried on: cancelled"):
                await engine.result("r2", timeout=150)
            assert await asyncio.to_thread(worker.stop) == 0
            await engine.resume("r2")
            assert await told() == "note: 1 submitted, not taken by a worker yet: r2 (for dozer)"
            async with Agent(model=ScriptedModel([text("Hello.")]), journal=url) as agent:
                await agent.run("go", run_id="known")
            await engine.submit("dozer", "go", run_id="known")  # recorded, so it is in the table
            for number in range(11):
                await engine.submit("dozer", "0", run_id=f"n{number}")
            assert (await told()).startswith("note: 12 submitted, ") and (await told()).endswith("n8 (for dozer) and 2 more")

    def test_who_may_only_read_the_journal_is_shown_that(self, url, postgres: Cluster):
        assert beforehand("submit", "a", "go", BEFOREHAND_DATABASE_URL=url).returncode == 0
        postgres.execute("CREATE ROLE reading LOGIN PASSWORD 'secret'", "postgres")
        rights = "GRANT USAGE ON SCHEMA beforehand TO reading; GRANT SELECT ON ALL TABLES IN SCHEMA beforehand TO reading"
        postgres.execute(rights, url.rpartition("/")[2])
        done = beforehand("runs", "--journal", f"postgresql://reading:secret@{url.rpartition('@')[2]}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "No run is recorded.\n", "")


class TestRecordedRuns:
    async def test_the_commands_about_recorded_runs_take_a_database_and_an_answer_wakes_the_run(self, url, tmp_path):
        worker = await asyncio.to_thread(Worker(url, tmp_path / "effects").ready)

        async def said(*words: str) -> str:
            done = await asyncio.to_thread(beforehand, *words)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            return done.stdout

        async with Engine(url) as engine:
            await engine.submit("asker", "go", run_id="r")
            assert (await engine.result("r", timeout=150)).stop_reason == "suspended"
            assert "Pay 7?" in await said("approvals", "--journal", url, "--plain")
            assert "call is approved" in await said("approvals", "--journal", url, "--answer", "r", "call", "approve")
            assert (await engine.result("r", timeout=150)).text == "paid 7"
        assert "r" in await said("runs", "--journal", url, "--plain")
        assert "paid 7" in await said("trace", "r", "--journal", url, "--plain")
        assert "paid 7" in await said("export", "r", "--journal", url)
        assert "as it was written" in await said("verify", url)
        assert await asyncio.to_thread(worker.stop) == 0


class TestWrong:
    """One line on stderr, the exit code, no traceback and no password."""

    def said(self, code: int, *words: str, **environment: str) -> str:
        done = beforehand(*words, **environment)
        assert done.returncode == code, done.stderr
        assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
        assert PASSWORD not in done.stderr and "p%40ss" not in done.stderr and "secret" not in done.stderr
        return done.stderr.strip()

    def test_no_database(self):
        said = self.said(2, "worker", "--agents", str(SERVED))
        assert said.startswith("error: which database? Give --database-url, or set BEFOREHAND_DATABASE_URL")

    @pytest.mark.parametrize("where", ["mysql://me:secret@localhost/x", "runs.db", "sqlite:///"])
    def test_a_database_of_another_kind(self, where):
        said = self.said(2, "submit", "a", "go", "--database-url", where)
        assert said == "error: the database URL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE or sqlite:///PATH"

    def test_a_url_that_cannot_be_read(self):
        said = self.said(2, "submit", "a", "go", "--database-url", "postgresql://a:secret@:b:c/%")
        assert "cannot be read: expected postgresql://" in said

    def test_a_server_that_is_not_there(self):
        said = self.said(JournalError.exit_code, "submit", "a", "go", "--database-url", "postgresql://me:secret@127.0.0.1:1/runs")
        assert said.startswith("error: the database postgresql://me@127.0.0.1:1/runs cannot be reached (")

    def test_a_wrong_password(self, url):
        for words in (("submit", "a", "go"), ("worker", "--agents", str(SERVED))):
            said = self.said(JournalError.exit_code, *words, BEFOREHAND_DATABASE_URL=url.replace("a%20secret", "wrong"))
            assert said.endswith("cannot be used: the user or the password is wrong")

    @pytest.mark.parametrize(
        ("option", "why"),
        [
            ("sslmode=sometimes", 'invalid sslmode value: "sometimes"'),
            ("keepalives_idle=x", 'invalid integer value "x" for connection option "keepalives_idle"'),
        ],
    )
    def test_what_no_waiting_cures_in_a_url_is_not_waited_for(self, option, why):
        for words in (("submit", "a", "go"), ("worker", "--agents", str(SERVED))):
            said = self.said(JournalError.exit_code, *words, "--database-url", f"postgresql://me:secret@127.0.0.1/runs?{option}")
            assert said.endswith(f"cannot be used: {why}")

    def test_a_port_that_is_none_may_be_a_password_and_is_not_shown(self):
        for words in (("submit", "a", "go"), ("worker", "--agents", str(SERVED))):
            said = self.said(2, *words, "--database-url", "postgresql://me:secret@127.0.0.1/runs?port=99999")
            assert said.startswith("error: the database URL cannot be read: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")

    @on_files
    def test_a_file_in_a_folder_that_is_not_there(self, tmp_path):
        for words in (("submit", "a", "go"), ("worker", "--agents", str(SERVED))):
            said = self.said(2, *words, "--database-url", f"sqlite:///{tmp_path}/no/runs.db")
            assert said.endswith(f"/no/runs.db cannot be made: there is no folder {tmp_path}/no")

    @on_files
    def test_a_queue_that_cannot_be_used_is_named_without_what_was_to_be_written(self, tmp_path):
        (tmp_path / "runs-queue.db").write_text("This is no database, " * 100)
        said = self.said(JournalError.exit_code, "submit", "a", "go", "--database-url", f"sqlite:///{tmp_path}/runs.db")
        where = f"sqlite:///{tmp_path}/runs-queue.db"
        assert said == f"error: the queue of runs {where} could not be used: file is not a database"

    @pytest.mark.parametrize("grace", ["nan", "inf"])
    def test_a_grace_that_is_no_time(self, grace):
        words = ("worker", "--agents", str(SERVED), "--grace", grace, "--database-url", "sqlite:///x.db")
        assert self.said(2, *words) == f"error: --grace {grace} is no number of seconds: expected one such as 10"

    def test_a_user_without_rights_does_not_wait_for_them(self, url, postgres: Cluster):
        with closing(open_journal(url)) as journal:
            journal.ids()
        tables = "ALL ON ALL TABLES IN SCHEMA beforehand TO poor; GRANT SELECT ON ALL TABLES IN SCHEMA dbos TO poor"
        postgres.execute("CREATE ROLE poor LOGIN PASSWORD 'secret'", "postgres")
        postgres.execute(f"GRANT USAGE ON SCHEMA beforehand, dbos TO poor; GRANT {tables}", url.rpartition("/")[2])
        theirs = f"postgresql://poor:secret@{url.rpartition('@')[2]}"
        for words in (("submit", "a", "go"), ("worker", "--agents", str(SERVED))):
            said = self.said(JournalError.exit_code, *words, BEFOREHAND_DATABASE_URL=theirs)
            assert "cannot be used: permission denied for table" in said

    def test_no_agents_in_the_file(self, tmp_path):
        (tmp_path / "empty.py").write_text("x = 1\n")
        for name, what in (("empty.py", "defines no agents"), ("none.py", "there is no file"), ("x.txt", "is not a Python file")):
            assert what in self.said(2, "worker", "--agents", str(tmp_path / name), BEFOREHAND_DATABASE_URL="sqlite:///x.db")

    def test_the_extra_is_not_installed(self, tmp_path):
        (tmp_path / "dbos.py").write_text("raise ImportError('no dbos here')\n")
        path = f"{tmp_path}:{ROOT / 'src'}"
        said = self.said(2, "submit", "a", "go", "--database-url", "sqlite:///x.db", PYTHONPATH=path)
        assert said == 'error: this command needs DBOS and psycopg: install the extra "durable" of beforehand'

    @on_files
    def test_a_run_id_that_no_worker_could_carry(self, tmp_path):
        said = self.said(2, "submit", "a", "go", "--run-id", "a\u202e\nb", BEFOREHAND_DATABASE_URL=f"sqlite:///{tmp_path}/x.db")
        assert said == r"error: run_id='a\u202e\nb': expected a text of printable characters"

    def test_an_agent_nobody_has_served_is_a_note_and_the_run_waits(self, url):
        done = beforehand("submit", "clerc", "go", "--json", "--run-id", "r", BEFOREHAND_DATABASE_URL=url)
        assert (done.returncode, json.loads(done.stdout)) == (0, {"run_id": "r"})
        assert done.stderr.strip() == "note: no worker has served an agent 'clerc' yet, so the run waits for one"

    def test_another_prompt_under_the_same_id(self, url):
        assert beforehand("submit", "a", "go", "--run-id", "r", BEFOREHAND_DATABASE_URL=url).returncode == 0
        done = beforehand("submit", "a", "stop", "--run-id", "r", BEFOREHAND_DATABASE_URL=url)
        assert done.returncode == 2 and "with another agent or prompt was submitted before" in done.stderr
        assert "Traceback" not in done.stderr


def test_agents_may_also_be_variables_of_the_file(tmp_path: Path) -> None:
    from beforehand.cli.worker import agents_in_file

    file = tmp_path / "two.py"
    file.write_text(
        "from beforehand import Agent\nfrom beforehand.testing import ScriptedModel\n"
        "one = Agent(model=ScriptedModel([]))\n_hidden = one\ntwo = one.replace(name='other')\n"
    )
    assert list(agents_in_file(file)) == ["one", "two"]


def test_the_cluster_is_a_private_one(postgres: Cluster) -> None:
    assert postgres.execute("SHOW listen_addresses", "postgres") == [("127.0.0.1",)]
    assert postgres.execute("SHOW unix_socket_directories", "postgres") == [("",)]
