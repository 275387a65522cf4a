"""What people say about a run from another process: it is recorded once, bound to what they were shown, and then counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Deny, Edit, ToolContext, UnknownAnswer, UsageError, hook, tool
from beforehand.answering import answer_waiting, hold_waiting, settle_call
from beforehand.durable import record_answer
from beforehand.errors import RunBusy
from beforehand.journal import Journal, verify
from beforehand.journal.reading import uncertain, waiting
from beforehand.testing import ScriptedModel, tool_call
from beforehand.tools import ToolResult
from reading.recorded import cut, look, looks, not_too_much, pay, pays, teller, text, with_sub_agent

SUB = tool_call("sub", {"prompt": "help"}, id="s1")


async def suspended(path: Path, *calls: Any) -> Journal:
    """A journal with the run "r", which waits for a person."""
    agent = teller(path, list(calls) or [pays(200)])
    assert (await agent.run("go", run_id="r")).stop_reason == "suspended"
    await agent.aclose()
    return Journal(path)


async def test_every_call_that_waits_is_listed_with_what_would_run(tmp_path: Path) -> None:
    journal = await suspended(tmp_path / "r.db", pays(200), pays(800, "p2"), looks("a"), pays(901, "p3"))
    found = waiting(journal)
    assert [(w.run_id, w.call_id, w.pending.args) for w in found] == [("r", "p1", {"amount": 200}), ("r", "p2", {"amount": 500})]
    assert (found[1].pending.original_args, found[1].pending.hook) == ({"amount": 800}, "not_too_much")
    assert found[1].pending.options == ("yes", "no")
    assert len(found[1].pending.args_digest) == 64


@pytest.mark.parametrize(
    ("answer", "reads"),
    [
        (Approve(), "paid 200, account ***"), (Deny("not now"), "not now"),
        (Edit({"amount": 7}), "paid 7, account ***\n[A person changed"),
    ],
)  # fmt: skip
async def test_an_answer_counts_when_somebody_resumes(tmp_path: Path, answer: Any, reads: str) -> None:
    journal = await suspended(tmp_path / "r.db")
    await answer_waiting(journal, "r", "p1", answer, "ann")
    assert waiting(journal) == []
    journal.close()
    result = await teller(tmp_path / "r.db", text("Done.")).resume("r")
    assert result.stop_reason == "completed"
    assert next(m.text for m in result.messages if m.role == "tool").startswith(reads)
    assert verify(Journal(tmp_path / "r.db")) == []


async def test_an_edit_that_the_tool_does_not_take_is_refused_where_it_would_run(tmp_path: Path) -> None:
    journal = await suspended(tmp_path / "r.db")
    await answer_waiting(journal, "r", "p1", Edit({"amount": "much"}), "ann")
    result = await teller(tmp_path / "r.db", text("Done.")).resume("r")
    assert "arguments that the tool does not take" in next(m.text for m in result.messages if m.role == "tool")


async def test_a_call_is_answered_once(tmp_path: Path) -> None:
    journal = await suspended(tmp_path / "r.db")
    await answer_waiting(journal, "r", "p1", Deny(), "ann")
    with pytest.raises(UnknownAnswer, match=r"^call p1 of run r has been answered already \(deny, by ann\)$"):
        await answer_waiting(journal, "r", "p1", Approve(), "bob")
    assert [record.kind for record in journal.records("r")].count("answer") == 1


async def test_two_who_answer_at_once_do_not_both_count(tmp_path: Path) -> None:
    await suspended(tmp_path / "r.db")

    def say(answer: Any) -> str:
        try:
            asyncio.run(answer_waiting(Journal(tmp_path / "r.db"), "r", "p1", answer, "x"))
        except (UnknownAnswer, RunBusy) as error:
            return type(error).__name__
        return "recorded"

    said = await asyncio.gather(*[asyncio.to_thread(say, answer) for answer in (Approve(), Deny(), Approve())])
    assert said.count("recorded") == 1
    assert [record.kind for record in Journal(tmp_path / "r.db").records("r")].count("answer") == 1


async def test_who_answers_while_another_one_does_waits_for_him(tmp_path: Path) -> None:
    journal = await suspended(tmp_path / "r.db", pays(200), pays(300, "p2"))
    digests = {w.call_id: w.pending.args_digest for w in waiting(journal)}
    lease = await hold_waiting(journal, "r")  # what the first one does, up to its middle
    await record_answer(journal, "r", "p1", digests["p1"], Approve(), "ann")
    answering = asyncio.create_task(answer_waiting(Journal(tmp_path / "r.db"), "r", "p2", Deny("no"), "bob"))
    assert not (await asyncio.wait({answering}, timeout=0.1))[0]
    lease.release()
    await answering
    assert waiting(journal) == []


async def test_a_call_that_does_not_wait_cannot_be_answered(tmp_path: Path) -> None:
    journal = await suspended(tmp_path / "r.db", pays(200), looks("a"))
    for call_id in ("l1", "nobody"):
        with pytest.raises(UnknownAnswer, match=f"no call '{call_id}' of run r is waiting; waiting are p1"):
            await answer_waiting(journal, "r", call_id, Approve(), "ann")


async def test_a_run_that_is_going_on_takes_no_answer_from_outside(tmp_path: Path) -> None:
    journal = await suspended(tmp_path / "r.db")
    lease = journal.lease("r", journal.head("r").row)
    with pytest.raises(RunBusy, match="run r is going on"):
        await answer_waiting(journal, "r", "p1", Approve(), "ann")
    lease.release()
    assert len(waiting(journal)) == 1


async def test_one_answer_of_two_leaves_the_other_waiting(tmp_path: Path) -> None:
    journal = await suspended(tmp_path / "r.db", pays(200), pays(300, "p2"))
    await answer_waiting(journal, "r", "p2", Approve(), "ann")
    assert [w.call_id for w in waiting(journal)] == ["p1"]
    journal.close()
    result = await teller(tmp_path / "r.db", text("Done.")).resume("r")
    assert (result.stop_reason, [p.call_id for p in result.pending]) == ("suspended", ["p1"])


# --- sub-agents ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("run_id", "call_id"), [("r", "s1/p1"), ("r/s1", "p1")])
async def test_a_sub_agents_question_can_be_answered_by_either_name(tmp_path: Path, run_id: str, call_id: str) -> None:
    agent = with_sub_agent(tmp_path / "r.db", [SUB], [pays(200)])
    await agent.run("go", run_id="r")
    await agent.aclose()
    journal = Journal(tmp_path / "r.db")
    assert [(w.run_id, w.call_id) for w in waiting(journal)] == [("r", "s1/p1")]
    assert await answer_waiting(journal, run_id, call_id, Approve(), "ann") == "r"
    assert waiting(journal) == []
    with pytest.raises(UnknownAnswer, match="answered already"):
        await answer_waiting(journal, run_id, call_id, Approve(), "ann")
    journal.close()
    result = await with_sub_agent(tmp_path / "r.db", [text("outer done")], [text("inner done")]).resume("r")
    assert (result.stop_reason, result.text) == ("completed", "outer done")


@pytest.mark.parametrize("from_outside", [True, False])
async def test_a_question_two_sub_agents_deep_is_answered_for_all_runs_around_it(tmp_path: Path, from_outside: bool) -> None:
    def nested(outer: Any, middle: Any, inner: Any) -> Agent:
        low = Agent(model=ScriptedModel([inner]), tools=[pay], hooks=[not_too_much])
        mid = Agent(model=ScriptedModel([middle]), tools=[low.as_tool("low", "Low.")])
        return Agent(model=ScriptedModel([outer]), tools=[mid.as_tool("mid", "Mid.")], journal=tmp_path / "r.db")

    start = nested(tool_call("mid", {"prompt": "x"}, id="m"), tool_call("low", {"prompt": "y"}, id="l"), pays(200))
    await start.run("go", run_id="r")
    await start.aclose()
    answers = None
    if from_outside:
        await answer_waiting(Journal(tmp_path / "r.db"), "r/m/l", "p1", Approve(), "ann")
    else:
        answers = {"m/l/p1": Approve()}
    result = await nested(text("top done"), text("mid done"), text("low done")).resume("r", answers)
    assert (result.stop_reason, result.text) == ("completed", "top done")


async def test_a_question_whose_outer_run_has_not_noticed_it_is_answered_in_the_inner_one(tmp_path: Path) -> None:
    """The process ended after the sub-agent was suspended, and before its parent was."""
    agent = with_sub_agent(tmp_path / "whole.db", [SUB], [pays(200)])
    await agent.run("go", run_id="r")
    whole = agent.plan.journal
    journal = cut(whole, "r", tmp_path / "cut.db", "intent")
    cut_inner(whole, journal)
    assert [(w.run_id, w.call_id) for w in waiting(journal)] == [("r/s1", "p1")]
    assert await answer_waiting(journal, "r/s1", "p1", Approve(), "ann") == "r/s1"
    journal.close()
    result = await with_sub_agent(tmp_path / "cut.db", [text("outer done")], [text("inner done")]).resume("r")
    assert result.text == "outer done"


def cut_inner(whole: Journal, journal: Journal) -> None:
    first, *rest = [(record.kind, record.at, record.body) for record in whole.records("r/s1")]
    journal.append(journal.open_run("r/s1", first, "r"), rest)


# --- calls that were cut short -------------------------------------------------------------------


async def died(path: Path, *calls: Any, **options: Any) -> Journal:
    """A journal of a process that died while the first of these calls was running."""
    agent = teller(path / "whole.db", list(calls), text("Done."), **options)
    await agent.run("go", run_id="r")
    return cut(agent.plan.journal, "r", path / "r.db", "intent")


async def test_a_call_that_was_running_when_the_process_ended_is_listed(tmp_path: Path) -> None:
    journal = await died(tmp_path, pays(5))
    (lost,) = uncertain(journal)
    assert (lost.run_id, lost.call_id, lost.name, lost.args, lost.key) == ("r", "p1", "pay", {"amount": 5}, "r:p1")
    assert waiting(journal) == []


async def test_a_safe_call_needs_nobody(tmp_path: Path) -> None:
    assert uncertain(await died(tmp_path, looks("a"))) == []


async def test_a_call_of_a_run_that_goes_on_is_not_lost(tmp_path: Path) -> None:
    journal = await died(tmp_path, pays(5))
    lease = journal.lease("r", journal.head("r").row)
    assert uncertain(journal) == []
    lease.release()


@pytest.mark.parametrize(
    ("result", "reads", "outcome"),
    [
        (ToolResult("paid, says the bank"), "paid, says the bank", "ran"),
        (ToolResult("the bank knows nothing of it", is_error=True), "the bank knows nothing of it", "failed"),
    ],
)
async def test_what_a_person_says_becomes_the_outcome_and_the_tool_does_not_run(
    tmp_path: Path, result: ToolResult, reads: str, outcome: str
) -> None:
    journal = await died(tmp_path, pays(5), hooks=())
    await settle_call(journal, "r", "p1", result, "ann")
    assert uncertain(journal) == []
    journal.close()
    ran = []

    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        ran.append(amount)
        return "paid again"

    done = await teller(tmp_path / "r.db", text("Done."), tools=[pay, look], hooks=()).resume("r")
    (said,) = [m for m in done.messages if m.role == "tool"]
    assert (said.text, said.outcome, ran) == (reads, outcome, [])
    assert verify(Journal(tmp_path / "r.db")) == []


async def test_without_a_settlement_hooks_at_13_see_that_the_outcome_is_uncertain(tmp_path: Path) -> None:
    seen = []

    @hook.after_tool_call
    def look_at(outcome: Any) -> None:
        seen.append((outcome.outcome, outcome.is_error))

    await died(tmp_path, pays(5), hooks=())
    await teller(tmp_path / "r.db", text("Done."), hooks=[look_at]).resume("r")
    assert seen == [("uncertain", True)]


@pytest.mark.parametrize(
    ("call_id", "why"),
    [
        ("p1", "call p1 of run r has an outcome: ran"), ("nobody", "no call 'nobody' of run r has begun"),
        ("p2", "no call 'p2' of run r has begun"),
    ],
)  # fmt: skip
async def test_only_a_call_without_an_outcome_can_be_settled(tmp_path: Path, call_id: str, why: str) -> None:
    agent = teller(tmp_path / "r.db", [pays(5), pays(901, "p2")], text("Done."))
    await agent.run("go", run_id="r")
    journal = agent.plan.journal
    for held in (False, True):  # for a moment after its end a run is still held by whoever went on with it
        lease = journal.lease("r", journal.head("r").row) if held else None
        with pytest.raises(UsageError, match=why):
            await settle_call(journal, "r", call_id, ToolResult("x"), "ann")
        if lease is not None:
            lease.release()


async def test_a_call_is_settled_once_and_not_while_the_run_goes_on(tmp_path: Path) -> None:
    journal = await died(tmp_path, pays(5))
    lease = journal.lease("r", journal.head("r").row)
    with pytest.raises(RunBusy):
        await settle_call(journal, "r", "p1", ToolResult("x"), "ann")
    lease.release()
    await settle_call(journal, "r", "p1", ToolResult("x"), "ann")
    with pytest.raises(UsageError, match="call p1 of run r has been settled already"):
        await settle_call(journal, "r", "p1", ToolResult("y"), "bob")


@pytest.mark.parametrize(("run_id", "call_id"), [("r", "s1/p1"), ("r/s1", "p1")])
async def test_a_sub_agents_call_is_settled_by_either_name_and_the_outer_run_is_the_one_to_resume(
    tmp_path: Path, run_id: str, call_id: str
) -> None:
    whole = with_sub_agent(tmp_path / "whole.db", [SUB, text("Done.")], [pays(5), text("Paid.")])
    await whole.run("go", run_id="r")
    journal = Journal(tmp_path / "r.db")
    for name, parent, last in (("r", None, "intent"), ("r/s1", "r", "intent")):
        records = whole.plan.journal.records(name)
        end = next(record.n for record in records if record.kind == last)
        head = journal.open_run(name, (records[0].kind, records[0].at, records[0].body), parent)
        journal.append(head, [(record.kind, record.at, record.body) for record in records[1:end]])
    (lost,) = uncertain(journal)
    assert (lost.run_id, lost.call_id) == ("r/s1", "p1")
    lease = journal.lease("r", journal.head("r").row)
    with pytest.raises(RunBusy):
        await settle_call(journal, run_id, call_id, ToolResult("x"), "ann")
    lease.release()
    assert await settle_call(journal, run_id, call_id, ToolResult("paid, says the bank"), "ann") == "r"
    told = [(name, journal.records(name)[-1].kind, journal.records(name)[-1].data["call"]) for name in ("r", "r/s1")]
    assert told == [("r", "settled", "s1/p1"), ("r/s1", "settled", "p1")]
    assert [run_id for run_id, _ in journal.answered()] == ["r"]
    journal.close()
    again = with_sub_agent(tmp_path / "r.db", [text("Done.")], [text("Paid.")])
    assert (await again.resume("r")).text == "Done."
    (said,) = [r.data for r in again.plan.journal.records("r/s1") if r.kind == "outcome"]
    assert (said["outcome"], said["result"]["content"]) == ("ran", "paid, says the bank")
    assert verify(Journal(tmp_path / "r.db")) == []


async def test_a_call_that_waits_inside_is_answered_not_settled(tmp_path: Path) -> None:
    agent = with_sub_agent(tmp_path / "r.db", [SUB], [pays(200)])
    await agent.run("go", run_id="r")
    with pytest.raises(UsageError, match="waits for a person inside: answer that"):
        await settle_call(agent.plan.journal, "r", "s1", ToolResult("x"), "ann")


async def test_tools_and_hooks_can_read_the_key_that_stays_the_same(tmp_path: Path) -> None:
    keys = []

    @tool(replay="safe")
    async def keyed(ctx: ToolContext) -> str:
        """Do it."""
        keys.append(ctx.idempotency_key)
        return "done"

    def agent(path: Path, *replies: Any) -> Agent:
        return Agent(model=ScriptedModel(list(replies)), tools=[keyed], journal=path)

    first = agent(tmp_path / "whole.db", tool_call("keyed", id="k1"), text("Done."))
    await first.run("go", run_id="r")
    cut(first.plan.journal, "r", tmp_path / "r.db", "intent").close()
    await agent(tmp_path / "r.db", text("Done.")).resume("r")
    assert keys == ["r:k1", "r:k1"]


async def test_an_answer_about_one_run_is_none_about_another(tmp_path: Path) -> None:
    """Both ask about a call of the same id with the same arguments, and one process reads both."""
    one, other = await suspended(tmp_path / "one.db"), await suspended(tmp_path / "other.db")
    await answer_waiting(one, "r", "p1", Approve(), "ann")
    assert (waiting(one), len(waiting(other))) == ([], 1)
    other.close()
    assert (await teller(tmp_path / "other.db").resume("r")).stop_reason == "suspended"
