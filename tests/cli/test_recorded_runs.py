"""Recorded runs on the command line: run, look, answer, settle, resume; each command a process of its own or like one."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shlex
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Ask, CustomMessage, hook, tool
from beforehand.cli.run import close_report
from beforehand.journal import Journal
from beforehand.testing import ScriptedModel, error, tool_call
from cli.command import COMMAND, beforehand, calls, endpoint, says
from reading.recorded import cut, look, looks, pay, pays, teller, text, with_sub_agent

Run = Callable[..., Any]

TOOLS = '''
from pathlib import Path
from beforehand import tool

@tool
async def book(seat: str) -> str:
    """Book a seat."""
    with Path("booked.txt").open("a") as file:
        file.write(seat + "\\n")
    return f"booked {seat}"
'''
ASK = """
from beforehand import Ask, hook

@hook.before_tool_call
def needs_a_person(call):
    if call.args["seat"] == "first":
        return Ask("Book first class?", options=["yes", "no"])
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with tools and hooks in it."""
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "ask.py").write_text(ASK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


WITH = ("--model", "openai:m", "--tools", "tools.py", "--hooks", "ask.py")


def record(agent: Agent, prompt: str = "go", run_id: str = "r1") -> Journal:
    """Do one run. Its journal, closed."""

    async def once() -> None:
        await agent.run(prompt, run_id=run_id, check=False)
        await agent.aclose()

    asyncio.run(once())
    return agent.plan.journal


def one_run_id(run_here: Run) -> str:
    return str(json.loads(run_here("runs", "--json").out)["run_id"])


# --- from the question to the end, over four processes ---------------------------------------------


def test_a_run_waits_in_the_journal_until_somebody_answers_and_somebody_resumes(here: Path, run_here: Run) -> None:
    with endpoint(calls("book", seat="first"), says("Booked.")) as server:
        asked = beforehand("run", "Book", *WITH, "--base-url", server.url, "--journal", "runs.db", cwd=here)
        assert asked.returncode == 9
        assert "stopped (suspended)" in asked.stderr
        run_id = one_run_id(run_here)
        assert f"beforehand approvals --answer {run_id} call_1 approve`, then `beforehand resume {run_id}`" in asked.stderr

        waiting = run_here("approvals")
        assert f"{run_id} call_1\n" in waiting.out
        assert "needs_a_person asks: Book first class?" in waiting.out
        assert 'would run: book {"seat":"first"}' in waiting.out

        answered = run_here("approvals", "--answer", run_id[:6], "call_1", "approve")
        assert (answered.code, answered.err) == (0, "")
        assert run_here("approvals").out == "Nothing waits for a person.\n"
        assert "suspended (answered: resume it)" in run_here("runs").out
        assert not (here / "booked.txt").exists()

        resumed = beforehand("resume", run_id[:6], *WITH, "--base-url", server.url, cwd=here)
        assert (resumed.returncode, resumed.stdout) == (0, "Booked.\n"), resumed.stderr
    assert (here / "booked.txt").read_text() == "first\n"
    assert "completed" in run_here("runs").out
    assert run_here("verify").code == 0
    assert len(server.requests) == 2


@pytest.mark.usefixtures("here")
def test_resume_takes_answers_with_it(here: Path, run_here: Run) -> None:
    with endpoint(calls("book", seat="first"), says("Then not.")) as server:
        at = ("--base-url", server.url)
        run_here("run", "Book", *WITH, *at, "--journal", "runs.db")
        run_id = one_run_id(run_here)
        wrong = run_here("resume", run_id, *WITH, *at, "--answer", "call_9=approve")
        assert (wrong.code, wrong.err) == (2, f"error: no call 'call_9' of run {run_id} is waiting; waiting are call_1\n")
        still = run_here("resume", run_id, *WITH, *at)
        assert still.code == 9
        assert "waiting for a person: book" in still.err
        done = run_here("resume", run_id, *WITH, *at, "--answer", "call_1=deny too dear")
    assert (done.code, done.out) == (0, "Then not.\n")
    assert server.requests[-1]["messages"][-1]["content"] == "too dear"
    assert not (here / "booked.txt").exists()


@pytest.mark.usefixtures("here")
def test_a_finished_run_gives_its_recorded_text_and_asks_nobody(run_here: Run) -> None:
    with endpoint(says("Hello.")) as server:
        run_here("run", "Hi", "--model", "openai:m", "--base-url", server.url, "--journal", "runs.db")
        again = run_here("resume", one_run_id(run_here), "--base-url", server.url)
    assert (again.code, again.out) == (0, "Hello.\n")
    assert len(server.requests) == 1


@pytest.mark.usefixtures("here")
def test_a_finished_run_of_a_model_of_ones_own_needs_none(run_here: Run) -> None:
    Agent(model=ScriptedModel([text("Hello.")]), journal="runs.db").run_sync("Hi", run_id="R")
    Agent(model=ScriptedModel([error("down")]), journal="runs.db").run_sync("Hi", run_id="S", check=False)
    again = run_here("resume", "R")
    assert (again.code, again.out) == (0, "Hello.\n")
    refused = run_here("resume", "S")
    assert refused.code == 2
    assert "give --model" in refused.err


@pytest.mark.usefixtures("here")
def test_strict_refuses_where_hooks_are_not_as_they_were(run_here: Run) -> None:
    with endpoint(calls("book", seat="first"), says("Booked.")) as server:
        at = ("--base-url", server.url)
        run_here("run", "Book", *WITH, *at, "--journal", "runs.db")
        run_id = one_run_id(run_here)
        without = ("--model", "openai:m", "--tools", "tools.py", *at, "--answer", "call_1=approve")
        refused = run_here("resume", run_id, "--strict", *without)
        assert refused.code == 2
        assert "hook needs_a_person at before_tool_call is gone" in refused.err
        assert "call_1" in run_here("approvals").out, "its answer did not count"
        warned = run_here("resume", run_id, "--anyway", *without)
    assert (warned.code, warned.out) == (0, "Booked.\n")
    assert "goes on, but not as it began" in warned.err
    assert "but not as it began: hook needs_a_person at before_tool_call is gone" in run_here("trace", run_id).out


def test_a_run_does_not_lose_its_guards_by_a_forgotten_option(here: Path, run_here: Run) -> None:
    with endpoint(calls("book", seat="first"), says("Booked.")) as server:
        at = ("--base-url", server.url)
        run_here("run", "Book", *WITH, *at, "--journal", "runs.db")
        run_id = one_run_id(run_here)
        run_here("approvals", "--answer", run_id, "call_1", "approve")
        told = run_here("resume", run_id, *at)
        assert told.code == 2
        assert "began with what is not here: tool book; hook needs_a_person at before_tool_call" in told.err
        assert "--hooks" in told.err
        assert told.err.count("\n") == 1
        assert run_here("resume", run_id, *WITH, *at).code == 0
    assert (here / "booked.txt").read_text() == "first\n"


@pytest.mark.usefixtures("here")
def test_a_conversation_is_not_sent_to_another_endpoint_than_before_unless_somebody_says_so(run_here: Run) -> None:
    with endpoint(calls("book", seat="first"), says("Booked.")) as server:
        run_here("run", "Book", *WITH, "--base-url", server.url, "--journal", "runs.db")
        run_id = one_run_id(run_here)
        told = run_here("resume", run_id, *WITH, "--answer", "call_1=approve")
        assert told.code == 2
        assert f"was sent to {server.url}" in told.err
        assert "would now go to https://api.openai.com" in told.err
        assert "call_1" in run_here("approvals").out  # nothing was answered either
        assert len(server.requests) == 1


@pytest.mark.usefixtures("here")
def test_a_run_of_a_project_goes_on_with_its_project(here: Path, run_here: Run) -> None:
    (here / "rules").mkdir()
    rule = {"label": "ask", "target": "tool", "event": "before", "actions": [{"type": "ask", "prompt": "Book it?"}]}
    (here / "rules" / "ask.json").write_text(json.dumps(rule))
    with endpoint(calls("book", seat="first"), says("Booked.")) as server:
        (here / "beforehand.toml").write_text(f'model = "openai:m"\nbase_url = "{server.url}"\nhooks_dir = "rules"\n')
        given = ("--project", ".", "--tools", "tools.py")
        run_here("run", "Book", *given, "--journal", "runs.db")
        done = run_here("resume", one_run_id(run_here), *given, "--answer", "call_1=approve")
    assert (done.code, done.out) == (0, "Booked.\n"), done.err
    assert (here / "booked.txt").read_text() == "first\n"


def test_what_to_do_next_names_a_journal_that_commands_would_not_find(here: Path, run_here: Run) -> None:
    with endpoint(calls("book", seat="first")) as server:
        asked = run_here("run", "Book", *WITH, "--base-url", server.url, "--journal", "other.db")
    assert f"--journal {here / 'other.db'}` with the --project, --tools, --hooks and --base-url it began with" in asked.err


# --- looking -------------------------------------------------------------------------------------


@pytest.fixture
def journal(here: Path) -> Journal:
    """The run "r1" in runs.db: one payment, one that was refused, one that is changed and waits."""
    script = ([pays(5), looks("a")], pays(901, "p2"), pays(800, "p3"))
    return record(teller(here / "runs.db", *script), "Pay them all, please")


@pytest.mark.usefixtures("journal")
def test_runs_are_listed(run_here: Run) -> None:
    told = run_here("runs")
    head, line = told.out.splitlines()
    assert head.split() == ["run", "begun", "agent", "state", "turns", "calls", "prompt"]
    assert line.startswith("r1 ")
    assert "teller  suspended (1 waiting)  3      3      Pay them all, please" in line


@pytest.mark.usefixtures("journal")
def test_a_trace_tells_who_decided_what_ran_and_what_was_done_by_then(run_here: Run) -> None:
    told = run_here("trace", "r")
    assert told.code == 0
    lines = [" ".join(line.split()[2:]) if line[:1] == " " else line for line in told.out.splitlines()]
    text = "\n".join(lines)
    for expected in (
        "event model asks for pay(amount=5) [p1]",
        "hook let it pass before_tool_call: not_too_much, watches [p1]",
        "code pay runs pay(amount=5) [p1]",
        "hook no_accounts after_tool_call: Replace content [p1]",
        "code pay ran: paid 5, account *** [p1]",
        "hook not_too_much before_tool_call: Block: more than anybody may pay [p2]",
        "code pay blocked by not_too_much: more than anybody may pay [p2]",
        "hook at_most_five_hundred prepare_tool_call: Replace args [p3]",
        "person not_too_much asks “Pay 500?” pay(amount=500) [p3]",
        "event run waits for a person p3",
    ):
        assert expected in text
    assert "(still ahead: the tool runs; done: 2 requests, 2 tool runs; took " in told.out
    assert 'the model wrote {"amount":800}' in told.out
    assert "never run again (the tool's word); key r1:p1" in told.out


@pytest.mark.usefixtures("journal")
def test_a_trace_as_json_has_one_object_a_line(run_here: Run) -> None:
    steps = [json.loads(line) for line in run_here("trace", "r1", "--json").out.splitlines()]
    assert steps[0]["kind"] == "run"
    assert all({"n", "at", "seconds", "kind", "turn"} <= set(step) for step in steps)
    (blocked,) = [step for step in steps if step.get("verdict") == "Block"]
    assert (blocked["hook"], blocked["call"], blocked["done"]["tools"]) == ("not_too_much", "p2", 2)


@pytest.mark.usefixtures("journal")
def test_hooks_are_told_apart_by_what_they_did(run_here: Run) -> None:
    told = run_here("trace", "--hooks")
    (watches,) = [line for line in told.out.splitlines() if "watches" in line]
    assert "never decided: if it only watches, make it a listener" in watches
    (gate,) = [
        json.loads(line) for line in run_here("trace", "r1", "--hooks", "--json").out.splitlines() if "not_too_much" in line
    ]
    assert (gate["calls"], gate["verdicts"]) == (3, {"Block": 1, "Ask": 1})
    assert gate["p50"] <= gate["p95"]


def test_a_long_text_is_cut_unless_all_of_it_is_asked_for(here: Path, run_here: Run) -> None:
    record(teller(here / "runs.db", text("x" * 5000)))
    assert "x ... (4400 more characters: --full)" in run_here("trace", "r1").out
    assert "x" * 5000 in run_here("trace", "r1", "--full").out


def test_a_call_whose_process_is_gone_is_named_at_the_end_of_the_trace(here: Path, run_here: Run) -> None:
    whole = record(teller(here / "whole.db", pays(5), text("Done.")))
    cut(whole, "r1", here / "runs.db", "intent").close()
    assert run_here("trace", "r1").out.splitlines()[-1].startswith("pay [p1]: no outcome is on record")
    listed = run_here("approvals")
    assert 'outcome not known: pay {"amount":5}' in listed.out
    (data,) = map(json.loads, run_here("approvals", "--json").out.splitlines())
    assert (data["waits_for"], data["call_id"], data["key"]) == ("settlement", "p1", "r1:p1")


@pytest.mark.usefixtures("journal")
def test_an_export_is_what_a_request_would_hold_and_try_reads_it(here: Path, run_here: Run) -> None:
    told = run_here("export", "r1", "-o", "talk.jsonl")
    assert (told.code, told.out, told.err) == (0, "", "")
    messages = [json.loads(line) for line in (here / "talk.jsonl").read_text().splitlines()]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "pay", "arguments": '{"amount":5}'}
    assert messages[2] == {"role": "tool", "tool_call_id": "p1", "content": "paid 5, account ***"}
    rules = '{"hooks": [{"type": "chat", "pattern": "please", "replacement": "!"}]}'
    (here / "rules.json").write_text(rules)
    assert run_here("try", "rules.json", "--on", "talk.jsonl").code in (0, 2)


def test_an_export_holds_the_history_before_the_run(here: Path, run_here: Run) -> None:
    agent = teller(here / "runs.db", text("one"), text("two"))

    async def talk() -> None:
        conversation = agent.conversation([CustomMessage("note", "for us alone")])
        await conversation.run("first", run_id="a")
        await conversation.run("second", run_id="b")
        await agent.aclose()

    asyncio.run(talk())
    told = run_here("export", "b")
    assert [json.loads(line)["content"] for line in told.out.splitlines()] == ["first", "one", "second", "two"]
    assert told.err.startswith("note: 1 messages are left out")


def test_an_export_begins_with_the_instructions_where_they_are_on_record(here: Path, run_here: Run) -> None:
    whole = record(Agent(model=ScriptedModel([text("Hello.")]), journal=here / "whole.db"), "Hi")
    first, *rest = [(r.kind, r.at, r.body) for r in whole.records("r1")]
    journal = Journal(here / "runs.db")
    start = json.dumps({**json.loads(first[2]), "system": "Be kind."}).encode()
    journal.append(journal.open_run("r1", (first[0], first[1], start)), rest)
    journal.close()
    messages = [json.loads(line) for line in run_here("export", "r1").out.splitlines()]
    assert [(m["role"], m["content"]) for m in messages] == [("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello.")]


@pytest.mark.usefixtures("journal")
def test_raw_records_are_the_chain_itself(here: Path, run_here: Run) -> None:
    from beforehand.journal.chain import Record, link

    run_here("export", "r1", "--raw", "-o", "raw.jsonl")
    before = b""
    for line in (here / "raw.jsonl").read_bytes().splitlines():
        body = line.partition(b'"body":')[2][:-1]
        record = json.loads(line)
        before = link(before, Record(record["run_id"], record["n"], record["at"], record["kind"], body))
        assert before.hex() == record["hash"]


def test_sub_agents_stand_below_and_are_pointed_to(here: Path, run_here: Run) -> None:
    script = [tool_call("sub", {"prompt": "help"}, id="s1")]
    record(with_sub_agent(here / "runs.db", script, [pays(200)]))
    assert "\n  r1/s1 " in run_here("runs").out
    assert "beforehand trace r1/s1" in run_here("trace", "r1").out
    assert "inside the call" in run_here("trace", "r1/s1").out
    assert run_here("approvals").out.count("would run") == 1


# --- settling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "is_error"), [("--result", False), ("--failed", True)])
def test_a_person_settles_what_became_of_a_call(here: Path, run_here: Run, option: str, is_error: bool) -> None:
    whole = record(teller(here / "whole.db", pays(5), text("Done.")))
    cut(whole, "r1", here / "runs.db", "intent").close()
    told = run_here("settle", "r1", "p1", option, "says the bank")
    assert (told.code, told.err) == (0, "")
    last = Journal(here / "runs.db", readonly=True).records("r1")[-1]
    assert (last.kind, last.data["result"]["content"], last.data["result"]["is_error"]) == ("settled", "says the bank", is_error)
    again = run_here("settle", "r1", "p1", option, "says the bank")
    assert (again.code, again.err) == (2, "error: call p1 of run r1 has been settled already\n")


# --- verify --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("journal")
def test_a_changed_record_is_named(run_here: Run) -> None:
    assert run_here("verify", "runs.db").out.startswith("1 run, ")
    with sqlite3.connect("runs.db") as db:
        db.execute("UPDATE records SET body = CAST(replace(CAST(body AS TEXT), '901', '100') AS BLOB) WHERE kind = 'message'")
    db.close()
    told = run_here("verify", "runs.db")
    assert told.code == 1
    assert told.out.startswith("run r1, record ")
    assert told.out.count("\n") == 1


def test_a_signed_journal_is_checked_with_its_key(here: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHT", "a key of many letters")
    monkeypatch.setenv("WRONG", "another key, as long")
    record(teller(Journal(here / "runs.db", key=b"a key of many letters"), text("Hello.")))
    assert (run_here("verify").code, run_here("verify", "--key-env", "WRONG").code) == (1, 1)
    assert "cannot be checked without its key (--key-env NAME)" in run_here("verify").out
    right = run_here("verify", "--key-env", "RIGHT")
    assert (right.code, right.out) == (0, f"1 run, {Journal(here / 'runs.db', readonly=True).head('r1').records} records: "
                                          "signed, and every record is as it was written.\n")  # fmt: skip
    assert run_here("runs").code == 0
    assert "many letters" not in right.out + right.err + run_here("verify").out


def test_a_signed_journal_is_put_to_other_hooks_with_its_key(here: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHT", "a key of many letters")
    record(teller(Journal(here / "runs.db", key=b"a key of many letters"), [looks("there")], text("Done.")))
    (here / "rules.json").write_text(json.dumps([NO_LOOKS]))
    told = run_here("backtest", "--hooks", "rules.json", "--key-env", "RIGHT", "--expect-no-change")
    assert told.code == 1 and "newly blocked: 1" in told.out, told.err
    keyless = run_here("backtest", "--hooks", "rules.json")
    assert (keyless.code, keyless.out) == (2, "")
    assert "runs.db is signed: give the key it was made with (--key-env NAME on the command line)" in keyless.err


def test_a_signed_journals_next_command_is_told_with_its_key(
    here: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("RIGHT", "a key of many letters")
    monkeypatch.setenv("SHORT", "a key")
    with endpoint(calls("book", seat="first")) as server:
        waits = run_here("run", "Book", *WITH, "--base-url", server.url, "--journal", "runs.db", "--key-env", "RIGHT")
    assert "approve --key-env NAME`" in waits.err
    answer = ("approvals", "--answer", one_run_id(run_here), "call_1", "approve")

    short = run_here(*answer, "--key-env", "SHORT")
    told = run_here(*answer, "--key-env", "RIGHT")

    assert (short.code, short.out) == (2, "")
    assert "--key-env SHORT: a journal's key has at least 16 bytes, and this variable holds fewer" in short.err
    assert "--key-env NAME` with the" in told.out


# --- what is written wrongly ------------------------------------------------------------------------


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trace", "zz"), "no run 'zz' is recorded in runs.db: `beforehand runs` lists them"),
        (("trace",), "trace needs the id of a run (`beforehand runs` lists them), or --hooks"),
        (("export", "r2"), "no run 'r2' is recorded in runs.db: `beforehand runs` lists them"),
        (("runs", "--journal", "no.db"), "there is no journal no.db"),
        (("runs", "--journal", "tools.py"), "tools.py is not a journal that can be read: file is not a database"),
        (("runs", "--state", "complete"), "--state 'complete' is none: did you mean completed?"),
        (("runs", "--since", "yesterday"), "--since 'yesterday' is no time"),
        (("approvals", "r1"), "approvals 'r1': to answer, write --answer RUN CALL"),
        (("approvals", "--answer", "r1", "p3"), "--answer needs RUN CALL and approve, deny [REASON], or edit JSON"),
        (("approvals", "--answer", "r1", "p3", "yes"), "'yes' is no answer: expected approve, deny [REASON], or edit JSON"),
        (("approvals", "--answer", "r1", "p3", "approve", "it"), "approve takes nothing more, and 'it' was given"),
        (("approvals", "--answer", "r1", "p3", "edit", "{"), "edit needs the arguments as a JSON object"),
        (("approvals", "--answer", "r1", "p3", "edit", "[1]"), "edit needs the arguments as a JSON object, not '[1]'"),
        (("approvals", "--answer", "r1", "p1", "approve"), "no call 'p1' of run r1 is waiting; waiting are p3"),
        (
            ("approvals", "--answer", "r1", "p3", "approve", "--key-env", "NONE"),
            "--key-env NONE: the environment has no such variable",
        ),
        (("settle", "r1", "p1"), "say what became of the call: either --result TEXT or --failed TEXT"),
        (("settle", "r1", "p1", "--result", "x"), "call p1 of run r1 has an outcome: ran"),
        (("settle", "r1", "p3", "--result", "x"), "no call 'p3' of run r1 has begun"),
        (("settle", "r1", "p3", "--result", "x", "--journal", "no.db"), "there is no journal no.db"),
        (("resume", "r1", "--answer", "p3"), "--answer 'p3': expected CALL=approve, CALL=deny REASON or CALL=edit JSON"),
        (("resume", "r1", "--answer", "p3=deny", "--answer", "p3=approve"), "--answer names call 'p3' twice"),
        (("resume", "r1"), "no adapter for model 'scripted:scripted'"),
    ],
)
def test_what_is_written_wrongly_gets_one_line(here: Path, run_here: Run, words: tuple[str, ...], said: str) -> None:
    told = run_here(*words)
    assert told.code == 2
    assert told.err.replace(f"{here}{os.sep}", "").startswith(f"error: {said}"), told.err
    assert told.err.count("\n") == 1


@pytest.mark.usefixtures("here")
def test_to_look_makes_no_file(here: Path, run_here: Run) -> None:
    before = sorted(path.name for path in here.iterdir())
    for words in (
        ("runs",),
        ("trace", "r"),
        ("verify",),
        ("approvals",),
        ("export", "r"),
        ("approvals", "--answer", "r", "c", "deny"),
    ):
        assert run_here(*words).code == 2
    assert sorted(path.name for path in here.iterdir()) == before


# --- hostile text ----------------------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r\x08un\u200bseen\ufeff\U000e0041\U000e0101"
STEERING = {"\x1b", "\x07", "\x9b", "\u202e", "\r", "\x08", "\u200b", "\ufeff", "\U000e0041", "\U000e0101"}
NO_LOOKS = {
    "label": "no looks", "target": "tool", "event": "before", "tools": ["look"], "actions": [{"type": "block", "reason": "no"}]
}  # fmt: skip


def test_what_a_model_or_a_tool_writes_cannot_steer_the_terminal(here: Path, run_here: Run) -> None:
    @tool(name="look")
    async def look_evil(at: str) -> str:
        """Look."""
        return f"saw {EVIL}"

    script = ([looks(EVIL, EVIL), pays(200)], text("Done."))
    record(teller(here / "runs.db", *script, tools=[look_evil, pay], name=f"agent {EVIL}"), f"hello {EVIL}", run_id="r")
    for words in (("runs",), ("trace", "r"), ("trace", "--hooks"), ("approvals",), ("runs", "--json"), ("trace", "r", "--json")):
        told = run_here(*words)
        assert told.code == 0, told.err
        assert STEERING & set(told.out) == set(), words
    for words in (("export", "r"), ("export", "r", "--raw"), ("approvals", "--json"), ("trace", "--hooks", "--json")):
        told = run_here(*words)
        assert told.code == 0 and not STEERING & set(told.out), words
        assert all([json.loads(line) for line in told.out.splitlines()]), words
    assert json.loads(run_here("export", "r").out.splitlines()[0])["content"] == f"hello {EVIL}"
    assert r"hello \x1b]0;owned\x07" in run_here("runs").out
    (here / "rules.json").write_text(json.dumps([NO_LOOKS]))
    for options in ((), ("--json",)):
        told = run_here("backtest", "--hooks", "rules.json", *options)
        assert told.code == 0 and "owned" in told.out and not STEERING & set(told.out), told.err
    refused = run_here("trace", f"x{EVIL}")
    assert not STEERING & set(refused.err)


def test_a_person_who_answers_sees_what_would_not_be_seen(here: Path, run_here: Run) -> None:
    hidden = "".join([chr(0xE0000 + ord(letter)) for letter in "--force"]) + "\u034f\u3164\uffa0"
    asks = hook.before_tool_call(lambda call: Ask("May it?"))
    agent = Agent(model=ScriptedModel([looks(f"here{hidden}")]), tools=[look], hooks=[asks], journal=here / "runs.db")
    record(agent, "go", run_id="r")
    told = run_here("approvals")
    assert r"here\U000e002d\U000e002d\U000e0066" in told.out and r"\u034f\u3164\uffa0" in told.out
    assert json.loads(run_here("approvals", "--json").out)["pending"]["args"]["at"] == f"here{hidden}"


def test_what_a_person_is_told_to_type_can_be_typed(here: Path, run_here: Run) -> None:
    """Ids are whoever gave them; a shell takes each for one word, and does nothing else about it."""
    run_id, call_id, name = "the  trip; $(id)", "c1  'x'; $(id)", "my runs.db"
    asks = hook.before_tool_call(lambda call: Ask("May it?"))
    model = ScriptedModel([tool_call("look", {"at": "x"}, id=call_id), text("seen")])
    record(Agent(model=model, tools=[look], hooks=[asks], journal=here / name), "go", run_id=run_id)
    shown = run_here("approvals", "--journal", name).out.splitlines()[0]
    assert shlex.split(shown) == [run_id, call_id]
    told = run_here("approvals", "--journal", name, "--answer", *shlex.split(shown), "approve")
    assert told.code == 0, told.err
    command = shlex.split(told.out.partition("`")[2].rpartition("`")[0])
    assert command == ["beforehand", "resume", run_id, "--journal", str(here / name)]


def test_of_several_calls_the_command_that_is_told_answers_the_first(
    here: Path, run_here: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = hook.before_tool_call(lambda call: Ask("May it?"))
    both = [tool_call("look", {"at": "x"}, id="it's 1"), tool_call("look", {"at": "y"}, id="c2")]
    agent = Agent(model=ScriptedModel([both]), tools=[look], hooks=[asks], journal=here / "my runs.db")

    async def once() -> None:
        result = await agent.run("go", run_id="the trip", check=False)
        assert close_report(result, agent.plan.journal) == 9
        await agent.aclose()

    asyncio.run(once())
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("2 calls wait: answer the first with `beforehand approvals ")
    assert run_here(*shlex.split(said.split("`")[1])[1:]).out.startswith("it's 1 is approved. ")
    [left] = [json.loads(line) for line in run_here("approvals", "--journal", "my runs.db", "--json").out.splitlines()]
    assert left["call_id"] == "c2"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words", [("runs",), ("approvals",), ("verify",), ("approvals", "--answer", "r", "c", "approve"), ("resume", "r")]
)
def test_who_has_a_database_of_the_engine_and_no_file_is_told_where_to_look(
    run_here: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("BEFOREHAND_DATABASE_URL", raising=False)
    assert "--journal" not in run_here(*words).err
    monkeypatch.setenv("BEFOREHAND_DATABASE_URL", "postgresql://ann:secret@db/runs")
    told = run_here(*words)
    assert "no journal" in told.err and "BEFOREHAND_DATABASE_URL is for `worker` and `submit`; to see its runs give" in told.err
    assert "secret" not in told.err
    if words in (("runs",), ("approvals",)):
        assert "BEFOREHAND_DATABASE_URL" not in run_here(*words, "--journal", "no.db").err


def test_the_run_inside_a_call_is_named_so_that_it_can_be_typed(here: Path, run_here: Run) -> None:
    inner = Agent(model=ScriptedModel([text("found")]), name="finder")
    model = ScriptedModel([tool_call("find", {"prompt": "x"}, id="c; $(id)"), text("done")])
    record(Agent(model=model, tools=[inner.as_tool("find", "Find.")], journal=here / "runs.db"), "go", run_id="r")
    (line,) = [line for line in run_here("trace", "r").out.splitlines() if "its own run" in line]
    command = shlex.split(line.partition("its own run")[2])
    assert command == ["beforehand", "trace", "r/c; $(id)"]
    assert run_here(*command[1:]).code == 0


def test_a_conversation_is_not_written_over_its_journal(here: Path, run_here: Run) -> None:
    record(Agent(model=ScriptedModel([text("x")]), journal=here / "runs.db"), run_id="r")
    (here / "link.jsonl").symlink_to("runs.db")
    (here / "same.jsonl").hardlink_to(here / "runs.db")
    for out in ("runs.db", "link.jsonl", "same.jsonl", "runs.db-wal", "runs.db-locks"):
        told = run_here("export", "r", "-o", out)
        assert (told.code, told.err.count("\n")) == (2, 1)
        assert f"-o {out} is the journal itself" in told.err
    assert run_here("verify").code == 0


def test_an_id_that_is_no_text_names_no_run(here: Path, run_here: Run) -> None:
    record(Agent(model=ScriptedModel([text("x")]), journal=here / "runs.db"))
    for words in (("trace", "r\udcff"), ("export", "r\udcff"), ("trace", "--hooks", "r\udcff")):
        told = run_here(*words)
        assert (told.code, told.err.count("\n")) == (2, 1)
        assert "no run 'r\\udcff' is recorded" in told.err


def test_a_list_of_no_runs_says_so(here: Path, run_here: Run) -> None:
    record(Agent(model=ScriptedModel([text("x")]), journal=here / "runs.db"))
    assert run_here("runs", "--state", "error").out == "No run is like that.\n"
    assert run_here("runs", "--since", "1h").out.count("\n") == 2
    assert run_here("runs", "--since", "2999-01-01").out == "No run is like that.\n"
    assert run_here("trace", "--hooks").out == "No hook was registered in 1 runs.\n"


# --- at a terminal -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "code", "answer"),
    [(b"y\n", 0, "Approve"), (b"n\nToo dear.\n", 0, "Deny"), (None, 130, None)],
    ids=["yes", "no", "ctrl-c"],
)
def test_resume_asks_whoever_sits_there_and_after_ctrl_c_the_question_stays(
    here: Path, run_here: Run, typed: bytes | None, code: int, answer: str | None
) -> None:
    with endpoint(calls("book", seat="first"), says("As you say.")) as server:
        at = ("--base-url", server.url)
        run_here("run", "Book", *WITH, *at, "--journal", "runs.db")
        keyboard, end = pty.openpty()
        command = [*COMMAND, "resume", one_run_id(run_here), *WITH, *at]
        with subprocess.Popen(command, cwd=here, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as going:
            os.close(end)
            assert going.stderr is not None
            seen = b""
            while b"[e]dit:" not in seen:
                piece = os.read(going.stderr.fileno(), 4096)
                assert piece, seen
                seen += piece
            if typed is None:
                going.send_signal(signal.SIGINT)
            else:
                os.write(keyboard, typed)
            going.communicate(timeout=60)
        os.close(keyboard)
    records = Journal(here / "runs.db", readonly=True).records(one_run_id(run_here))
    assert [r.data["answer"]["is"] for r in records if r.kind == "answer"] == ([] if answer is None else [answer])
    assert ("completed" if answer else "suspended (1 waiting)") in run_here("runs").out
    assert going.returncode == code


# --- rare steps --------------------------------------------------------------------------------------

DIFFERENCE = {
    "kind": "newly_blocked", "seam": "before_tool_call", "run_id": "r1", "loop": "main", "turn": 1, "call_id": "c",
    "decided": "let pass", "would": "Block(no)", "hook": "strict", "where": "r.py:2", "about": "", "digest": "d",
}  # fmt: skip
START = {
    "agent": "a", "model": "m", "provider": "p", "tools": {}, "hooks": {}, "prompts": [],
    "base": {"after": "before"}, "parent_call": "c0", "queued": [{"role": "user", "content": "early"}],
}  # fmt: skip
USAGE = {"input_tokens": 1, "output_tokens": 2}
END = {"stop_reason": "ended", "turns": 1, "calls": 1, "usage": USAGE, "cost": 0.5}


def said(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [], "stop_reason": "stop", "usage": USAGE, "origin": "model", **fields}


DECISION = {"hook": "g", "where": "f.py:1", "verdict": "Drop", "duration": 0.25, "reversible": [1, 5, 0]}


@pytest.mark.parametrize(
    ("kind", "body", "row"),
    [
        ("run", None, "event inside the call c0"),
        ("run", None, "event follows the run before"),
        ("run", None, "event waiting already early"),
        ("queued", {"number": 1, "message": {"role": "user", "content": "hurry", "origin": "follow_up"}},
         "event follow-up waits hurry"),
        ("cleared", {"numbers": [1, 2]}, "event queues cleared 2 messages taken out again"),
        ("released", {"message": "r-1", "kind": "text", "text": "Hel", "chars": 3}, "event shown 3 characters of text: Hel"),
        ("retracted", {"message": "r-1", "chars": 3}, "event taken back 3 characters shown no longer count"),
        ("message", said(content=[{"type": "thinking", "text": "hm"}]), "event model thinks hm"),
        ("message", said(content=[{"type": "text", "text": "Hel"}], stop_reason="aborted"), "event model says (aborted) Hel"),
        ("message", said(error="down", stop_reason="error"), "event reply failed (error) down"),
        ("message", {"role": "user", "content": [{"type": "image"}], "origin": "steer"}, "event steer adds [image]"),
        ("reply", {"turn": 1, "error": {"type": "ServerError", "text": "down"}}, "event request failed ServerError: down"),
        ("reply", {"turn": 1, "interrupt": {"reason": "enough"}}, "event reply interrupted enough"),
        ("reply", {"turn": 1, "aborted": True}, "event reply cut the run was aborted"),
        ("reply", {"turn": 1, "decisions": [DECISION]}, "hook g on_chunk: Drop"),
        ("reply", {"turn": 1, "decisions": [DECISION]}, "done: 1 request, 5 characters; took 250.0 ms; f.py:1)"),
        ("took", {"took": [{"role": "user", "content": "wait"}]}, 'event took took: ["wait"]'),
        ("direct", {"kind": "compaction", "text": "short"}, "event model gives the summary short"),
        ("direct", {"kind": "direct", "error": {"type": "ServerError", "text": "down"}}, "event no answer ServerError: down"),
        ("retried", {"verdict": "image_retry", "reason": "once", "failures": 2, "last": None},
         "event turn is tried again after 2 failures in a row"),
        ("shadow", DIFFERENCE, "hook in the shadow before_tool_call: newly blocked: Block(no), not let pass [c] (by strict"),
        ("compacting", {"messages": 2, "tokens": 9}, "event compacting messages: 2, tokens: 9"),
        ("withdrawn", {"why": "a new prompt"}, "event withdrawn why: a new prompt"),
        ("note", {"verdict": "Repeated", "reason": "again"}, "event core: Repeated again"),
        ("settled", {"call": "c", "result": {"content": "yes"}, "by": "ann"}, "person ann says what became of it: yes [c]"),
        ("failed", {"type": "HookFailed", "text": "it broke"}, "event run fails HookFailed: it broke"),
        ("end", {**END, "reason": "enough"}, "event run ends ended: enough"),
        ("end", END, "(1 turn, 1 call, 1 tokens in, 2 out, cost 0.5)"),
        ("later", {"what": "a newer kind"}, "event later what: a newer kind"),
    ],
)  # fmt: skip
def test_rare_steps_have_their_rows_too(here: Path, run_here: Run, kind: str, body: dict[str, Any] | None, row: str) -> None:
    journal = Journal(here / "runs.db")
    head = journal.open_run("r1", ("run", 1, json.dumps(START).encode()))
    if body is not None:
        journal.append(head, [(kind, 2, json.dumps(body).encode())])
    journal.close()
    told = run_here("trace", "r1")
    assert row in " ".join(told.out.split()), told.out + told.err


@pytest.mark.parametrize("kind", ["shadow", "later"])
def test_what_is_recorded_never_changes_what_a_step_is(here: Path, run_here: Run, kind: str) -> None:
    journal = Journal(here / "runs.db")
    head = journal.open_run("r1", ("run", 1, json.dumps({**START, "loop": "research"}).encode()))
    journal.append(head, [(kind, 2, json.dumps(DIFFERENCE).encode())])
    journal.close()

    begins, step = [json.loads(line) for line in run_here("trace", "r1", "--json").out.splitlines()]

    assert (step["n"], step["kind"], step["seam"], step["would"]) == (2, kind, "before_tool_call", "Block(no)")
    assert step.get("difference") == ("newly_blocked" if kind == "shadow" else None)
    assert begins["loop"] == "research"
    assert "agent a, in its loop research, on" in run_here("trace", "r1").out


def test_a_journal_may_be_named_as_workers_name_it(here: Path, run_here: Run) -> None:
    with endpoint(calls("book", seat="first")) as server:
        run_here("run", "Book", *WITH, "--base-url", server.url, "--journal", "runs.db")
    run_id = one_run_id(run_here)
    assert run_id in run_here("runs", "--journal", "sqlite:///runs.db").out
    told = run_here("approvals", "--journal", f"sqlite:///{here}/runs.db", "--answer", run_id, "call_1", "approve")
    assert (told.code, told.err) == (0, "")
    assert run_here("approvals", "--journal", "sqlite:///no.db", "--answer", run_id, "call_1", "deny").code == 2
