"""Which runs a journal holds, and how each stands."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beforehand import Approve, Interrupt, Limits, UnknownRun, UsageError, hook
from beforehand.backtest import backtest
from beforehand.errors import ServerError
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal
from beforehand.journal.reading import STATES, find_run, in_families, summaries, waiting
from beforehand.testing import error, tool_call
from reading.recorded import cut, looks, pays, teller, text, with_sub_agent

HOLD = """
import sys
from beforehand.journal import Journal
journal = Journal(sys.argv[1])
lease = journal.lease("r", journal.head("r").row)
print("held", flush=True)
sys.stdin.read()
"""


def only(journal: Journal) -> Any:
    (summary,) = summaries(journal)
    return summary


async def test_a_run_that_came_to_its_end(tmp_path: Path) -> None:
    agent = teller(tmp_path / "runs.db", looks("a"), pays(5), text("Done."))
    await agent.run("Look at a,\n then pay 5.", run_id="r")
    run = only(agent.plan.journal)
    assert (run.state, run.agent, run.prompt, run.turns, run.calls) == ("completed", "teller", "Look at a, then pay 5.", 3, 2)
    assert run.last >= run.started > 0


async def test_a_prompt_that_no_hook_has_let_pass_is_said_to_be_withheld(tmp_path: Path) -> None:
    @hook.on_message
    def judge(message: Any) -> Any:
        return Interrupt("no cards") if message.origin == "prompt" else None

    agent = teller(tmp_path / "runs.db", text("Done.")).replace(hooks=[judge])
    await agent.run("card 4111 1111 1111 1111")
    assert (only(agent.plan.journal).prompt, only(agent.plan.journal).state) == ("[withheld]", "ended")


async def test_a_run_that_a_limit_stopped(tmp_path: Path) -> None:
    agent = teller(tmp_path / "runs.db", looks("a"), limits=Limits(max_turns=1))
    await agent.run("go")
    run = only(agent.plan.journal)
    assert (run.state, run.why) == ("ended", "max_turns: 1 turns were made")


async def test_a_run_that_failed_says_why(tmp_path: Path) -> None:
    agent = teller(tmp_path / "runs.db", error(ServerError("the endpoint is down")))
    await agent.run("go", check=False)
    run = only(agent.plan.journal)
    assert (run.state, run.why) == ("error", "the endpoint is down")


async def test_a_run_that_waits_counts_what_nobody_has_answered(tmp_path: Path) -> None:
    agent = teller(tmp_path / "runs.db", [pays(200), pays(300, "p2"), looks("a")])
    await agent.run("go", run_id="r")
    run = only(agent.plan.journal)
    assert (run.state, run.waiting, run.calls) == ("suspended", 2, 1)


async def test_a_resumed_run_counts_every_call_once(tmp_path: Path) -> None:
    agent = teller(tmp_path / "runs.db", [pays(200), looks("a")], text("Done."))
    await agent.run("go", run_id="r")
    await agent.resume("r", {"p1": Approve()})
    run = only(agent.plan.journal)
    assert (run.state, run.calls, run.turns) == ("completed", 2, 2)


async def test_a_run_whose_process_is_gone_is_unfinished(tmp_path: Path) -> None:
    agent = teller(tmp_path / "whole.db", looks("a"), text("Done."))
    await agent.run("go", run_id="r")
    run = only(cut(agent.plan.journal, "r", tmp_path / "cut.db", "outcome"))
    assert (run.state, run.turns, run.calls) == ("unfinished", 1, 1)


async def test_a_run_that_this_process_goes_on_with_is_running(tmp_path: Path) -> None:
    agent = teller(tmp_path / "whole.db", looks("a"), text("Done."))
    await agent.run("go", run_id="r")
    journal = cut(agent.plan.journal, "r", tmp_path / "cut.db", "outcome")
    lease = journal.lease("r", journal.head("r").row)
    states = [only(journal).state, only(Journal(tmp_path / "cut.db", readonly=True)).state]
    lease.release()
    assert states == ["running", "running"]
    assert only(journal).state == "unfinished"


def test_a_run_that_another_process_goes_on_with_is_running(tmp_path: Path) -> None:
    agent = teller(tmp_path / "whole.db", looks("a"), text("Done."))
    asyncio.run(agent.run("go", run_id="r"))
    path = tmp_path / "cut.db"
    cut(agent.plan.journal, "r", path, "outcome").close()
    reader = Journal(path, readonly=True)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert only(reader).state == "running"
        other.kill()
    assert only(reader).state == "unfinished"


def test_to_look_at_a_run_takes_nothing_from_who_wants_to_go_on_with_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db")
    journal.open_run("r", ("run", 1, b"{}"))
    assert not journal.is_going_on("r")
    journal.lease("r", journal.head("r").row).release()
    held = journal.lease("r", journal.head("r").row)
    assert journal.is_going_on("r")
    held.release()


async def test_runs_made_inside_calls_stand_below_the_run_whose_calls_these_are(tmp_path: Path) -> None:
    agent = with_sub_agent(tmp_path / "runs.db", [_sub("s1"), text("a"), _sub("s2"), text("b")], [text("x"), text("y")])
    await agent.run("first", run_id="one")
    await agent.run("second", run_id="two")
    families = [(depth, run.run_id) for depth, run in in_families(summaries(agent.plan.journal))]
    assert families == [(0, "one"), (1, "one/s1"), (0, "two"), (1, "two/s2")]


def _sub(call_id: str) -> Any:
    return tool_call("sub", {"prompt": "help"}, id=call_id)


async def test_runs_are_chosen_by_state_and_by_when_they_began(tmp_path: Path) -> None:
    agent = teller(tmp_path / "runs.db", text("a"), pays(200), text("c"))
    for name in "abc":
        await agent.run(name, run_id=name)
    journal = agent.plan.journal
    assert [run.run_id for run in summaries(journal, states=["suspended"])] == ["b"]
    began = summaries(journal)[1].started
    assert [run.run_id for run in summaries(journal, since=began)] == ["b", "c"]


def test_records_that_cannot_be_read_are_a_state_and_no_end_of_the_list(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db")
    journal.open_run("bad", ("run", 1, b"[]"))
    journal.open_run("half", ("run", 1, b'{"agent": "a", "prompts": []}'))
    assert [(run.run_id, run.state) for run in summaries(journal)] == [("bad", "unreadable"), ("half", "unfinished")]


@pytest.mark.parametrize("gone", ["first", "last"])
async def test_a_run_whose_first_or_last_record_is_gone_stays_in_the_lists(
    gone: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = teller(tmp_path / "runs.db", pays(200), pays(300))
    await agent.run("go", run_id="r")
    await agent.run("go", run_id="s")
    await agent.aclose()
    with sqlite3.connect(tmp_path / "runs.db") as db:
        end = "1" if gone == "first" else "(SELECT records FROM runs WHERE id = 2)"
        db.execute(f"DELETE FROM records WHERE id = (2 << 32) + {end}")  # noqa: S608 - ours
    db.close()
    journal = Journal(tmp_path / "runs.db", readonly=True)
    assert [(run.run_id, run.state) for run in summaries(journal)] == [("r", "suspended"), ("s", "unreadable")]
    assert [question.run_id for question in waiting(journal)] == ["r"]
    assert "run s cannot be read" in caplog.text
    report = await backtest(journal, lambda loop: HookSet((), loop))
    assert (report.runs, len(report.unreadable)) == (1, 1)
    assert report.unreadable[0].startswith("run s: ")


def test_every_state_is_explained() -> None:
    from typing import get_args

    from beforehand.journal.reading import State

    assert set(STATES) == set(get_args(State))


# --- naming a run --------------------------------------------------------------------------------


def named(path: Path, *names: str) -> Journal:
    journal = Journal(path / "runs.db")
    for name in names:
        journal.open_run(name, ("run", 1, b"{}"))
    return journal


def test_the_beginning_of_an_id_is_enough_where_only_one_run_begins_so(tmp_path: Path) -> None:
    journal = named(tmp_path, "abc", "abc/c1", "abd", "xyz", "xyz/c1")
    assert find_run(journal, "x") == "xyz"
    assert find_run(journal, "abc") == "abc"
    assert find_run(journal, "abc/") == "abc/c1"
    assert find_run(journal, "abd") == "abd"
    with pytest.raises(UnknownRun, match="no run"):
        find_run(journal, "\udcff")


def test_two_runs_that_begin_so_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^2 runs begin with 'ab' \(abc, abd\): write more of the id$"):
        find_run(named(tmp_path, "abc", "abc/c1", "abd"), "ab")


def test_an_unknown_run_suggests_the_nearest(tmp_path: Path) -> None:
    journal = named(tmp_path, "deploy-1")
    with pytest.raises(UnknownRun, match=r"no run 'deplay-1' is recorded in .*: did you mean deploy-1"):
        find_run(journal, "deplay-1")
    with pytest.raises(UnknownRun, match="`beforehand runs` lists them"):
        find_run(journal, "%")
    with pytest.raises(UsageError, match="names no run"):
        find_run(journal, "")
