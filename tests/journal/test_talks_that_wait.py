"""A talk that takes up a recorded run which waits for a person: it waits as the talk did in which the run was begun."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent, Approve, Ask, Block, Conversation, ConversationBusy, Deny, Edit, Hook, NothingToContinue, PendingApproval, Price,
    RunChanged, RunResult, ToolContext, UnknownAnswer, Usage, UsageError, tool,
)  # fmt: skip
from beforehand.answering import answer_waiting
from beforehand.decisions import HumanAnswer
from beforehand.journal import Journal, verify
from beforehand.journal.reading import summaries, waiting
from beforehand.testing import FunctionModel, finish, text, tool_call

from journal.cutting import all_records, cut, parents

GATE = Hook(seam="before_tool_call", fn=lambda call: Ask(f"May {call.args['to']} be paid?"), tools=["pay"], name="gate")
COST, PRICES = finish(usage=Usage(10, 5)), {"function": Price(input=1e6, output=1e6)}


class Shop:
    """One process: an agent whose model pays whom the last prompt names, by the way that is given."""

    def __init__(self, path: Path, way: str = "itself", hooks: tuple[Hook, ...] = (GATE,), **options: Any) -> None:
        self.paid: list[str] = []

        @tool
        async def pay(to: str) -> str:
            self.paid.append(to)
            return f"paid {to}"

        @tool(replay="safe")
        async def within(ctx: ToolContext, to: str) -> str:
            return (await ctx.call_tool("pay", {"to": to})).text

        def clerk(request: Any) -> Any:
            last = request.messages[-1]
            return [text(last.text) if last.role == "tool" else tool_call("pay", {"to": last.text}, id="p"), COST]

        def says(request: Any) -> Any:
            last = request.messages[-1]
            if last.role != "user":
                return [text(f"then: {last.text}"), COST]
            names = last.text.split()
            if way == "sub-agent":
                return [*[tool_call("clerk", {"prompt": name}, id=f"c-{name}") for name in names], COST]
            return [*[tool_call("pay" if way == "itself" else "within", {"to": name}, id=f"c-{name}") for name in names], COST]

        helper = Agent(model=FunctionModel(clerk), tools=[pay], prices=PRICES).as_tool("clerk", "Pays.")
        journal = Journal(path, durability="normal")
        self.agent = Agent(
            model=FunctionModel(says), tools=[pay, within, helper], hooks=list(hooks), journal=journal, prices=PRICES, **options
        )  # fmt: skip

    async def waiting_talk(self, prompt: str = "ann bob") -> tuple[Conversation, RunResult]:
        talk = self.agent.conversation()
        return talk, await talk.run(prompt, run_id="R")

    async def taken_up(self) -> tuple[Conversation, RunResult]:
        talk = self.agent.conversation()
        return talk, await talk.resume_recorded("R")


def told(talk: Conversation) -> list[str]:
    return [message.text for message in talk.messages if message.role == "tool"]


def open_calls(talk: Conversation) -> set[str]:
    asked = {call.id for message in talk.messages if message.role == "assistant" for call in message.tool_calls}
    return asked - {message.tool_call_id for message in talk.messages if message.role == "tool"}


WAYS = ("itself", "within", "sub-agent")


@pytest.mark.parametrize("way", WAYS)
async def test_the_result_of_a_run_that_waits_is_the_same_from_its_record(tmp_path: Path, way: str) -> None:
    """What it has used up and cost included, which counts once however often somebody looks."""
    path = tmp_path / "runs.db"
    _, before = await Shop(path, way).waiting_talk()
    replies = 3 if way == "sub-agent" else 1
    assert before.cost == replies * 15
    assert (await Shop(path, way).taken_up())[1] == before == (await Shop(path, way).agent.resume("R"))
    after = await Shop(path, way).agent.resume("R", {pending.call_id: Approve() for pending in before.pending})
    assert after.cost == (6 if way == "sub-agent" else 2) * 15


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_a_talk_that_takes_up_a_waiting_run_goes_on_with_its_answers(tmp_path: Path, way: str, streamed: bool) -> None:
    path = tmp_path / "runs.db"
    _, before = await Shop(path, way).waiting_talk()
    shop = Shop(path, way)
    talk, result = await shop.taken_up()
    assert (result.stop_reason, talk.pending) == ("suspended", result.pending)
    ann, bob = [pending.call_id for pending in talk.pending]
    assert [ann, bob] == [pending.call_id for pending in before.pending]
    with pytest.raises(UnknownAnswer, match="'nobody' is waiting"):
        await talk.resume({"nobody": Approve()})
    answers: dict[str, HumanAnswer] = {ann: Deny("not her"), bob: Edit({"to": "eve"})}
    if streamed:
        async for _ in talk.stream_resume(answers):
            pass
    else:
        await talk.resume(answers)
    assert talk.result is not None
    assert (talk.result.stop_reason, shop.paid, talk.pending, open_calls(talk)) == ("completed", ["eve"], (), set())
    with pytest.raises(NothingToContinue):
        await talk.resume({})


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_a_new_prompt_refuses_what_a_run_taken_up_waits_for(tmp_path: Path, way: str, streamed: bool) -> None:
    path = tmp_path / "runs.db"
    _, before = await Shop(path, way).waiting_talk()
    shop = Shop(path, way)
    talk, _ = await shop.taken_up()
    if streamed:
        async for _ in talk.stream("carl", run_id="S"):
            pass
    else:
        await talk.run("carl", run_id="S")
    assert told(talk)[:2] == ["Nobody approved this call: it was not run."] * 2
    assert open_calls(talk) == {"c-carl"}
    journal = Journal(path, durability="normal")
    for pending in before.pending:  # it is settled: nobody can let it run any more
        with pytest.raises(UnknownAnswer):
            await answer_waiting(journal, "R", pending.call_id, Approve(), by="ann")
    assert {run.run_id: run.state for run in summaries(journal) if run.parent is None} == {"R": "ended", "S": "suspended"}
    journal.close()
    later = Shop(path, way)
    again = later.agent.conversation()
    await again.resume_recorded("S")
    await again.resume({pending.call_id: Approve() for pending in again.pending})
    assert (later.paid, told(again)[:2], open_calls(again)) == (["carl"], told(talk)[:2], set())
    assert verify(later.agent.plan.journal) == []


async def test_a_new_prompt_does_not_give_up_what_was_answered_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await Shop(path).waiting_talk()
    shop = Shop(path)
    talk, _ = await shop.taken_up()
    await answer_waiting(shop.agent.plan.journal, "R", "c-ann", Approve(), by="ann")
    with pytest.raises(UsageError, match="answered or gone on with elsewhere"):
        await talk.run("carl")
    await talk.resume({})
    assert (shop.paid, told(talk)) == (["ann"], ["paid ann", "Nobody approved this call: it was not run."])
    assert (await talk.run("carl")).stop_reason == "suspended"


async def test_a_run_whose_calls_a_new_hook_refuses_is_over_before_the_new_prompt_counts(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await Shop(path).waiting_talk()
    strict = Hook(seam="before_tool_call", fn=lambda call: Block("no more payments"), name="strict")
    shop = Shop(path, hooks=(GATE, strict))
    talk, _ = await shop.taken_up()
    await talk.run("carl")
    assert (shop.paid, open_calls(talk)) == ([], set())
    assert len(told(talk)) == 3


@pytest.mark.parametrize("way", WAYS)
async def test_a_handler_in_another_process_is_asked_about_what_waits(tmp_path: Path, way: str) -> None:
    path = tmp_path / "runs.db"
    await Shop(path, way).waiting_talk()
    asked: list[str] = []

    async def handler(pending: PendingApproval) -> HumanAnswer:
        asked.append(pending.args["to"])
        return Approve() if pending.args["to"] == "ann" else Deny("not him")

    shop = Shop(path, way, on_ask=handler)
    result = await shop.agent.resume("R")
    assert (result.stop_reason, sorted(asked), shop.paid) == ("completed", ["ann", "bob"], ["ann"])
    assert waiting(shop.agent.plan.journal) == []


async def test_answers_count_before_a_handler_is_asked_and_none_is_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await Shop(path).waiting_talk()
    shop = Shop(path, on_ask=lambda pending: pytest.fail("nobody is to be asked"))
    await shop.agent.resume("R", {"c-bob": Approve()})
    assert shop.paid == ["bob"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_was_not_quite_given_up_goes_on_as_if_it_had_waited_all_the_time(tmp_path: Path, way: str) -> None:
    """The process ended while a new prompt refused what waited. The refusals that are on record by then say nothing any more."""
    whole = tmp_path / "whole.db"
    talk, before = await Shop(whole, way).waiting_talk()
    await talk.run("carl", run_id="S")
    records, of = all_records(whole), parents(whole)
    of_run = [at for at, record in enumerate(records) if record.run_id == "R"]
    waited = next(at for at in of_run if records[at].kind == "suspended")
    ends = [at for at in of_run if waited <= at < of_run[-1]]
    assert [records[at].kind for at in ends][-1] == "withdrawn"
    for end in ends:
        path = tmp_path / f"{end}.db"
        cut(records[: end + 1], of, path).close()
        shop = Shop(path, way)
        again, result = await shop.taken_up()
        assert (result.stop_reason, told(again), len(again.messages)) == ("suspended", [], 2)
        await again.resume({pending.call_id: Approve() for pending in before.pending})
        assert (sorted(shop.paid), len(told(again)), open_calls(again)) == (["ann", "bob"], 2, set())
        recorded = (await shop.agent.resume("R")).messages
        assert recorded == tuple(again.messages)
        await again.run("dora", run_id="T")
        last = Shop(path, way)
        talk = last.agent.conversation()
        await talk.resume_recorded("T", {pending.call_id: Approve() for pending in again.pending})
        assert (last.paid, open_calls(talk)) == (["dora"], set())


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_run_that_is_taken_up_strictly_is_gone_on_with_strictly(tmp_path: Path, streamed: bool) -> None:
    path = tmp_path / "runs.db"
    await Shop(path).waiting_talk()
    shop = Shop(path, hooks=(GATE, Hook(seam="before_tool_call", fn=lambda call: None, name="new")))
    talk = shop.agent.conversation()
    assert (await talk.resume_recorded("R", strict=True)).stop_reason == "suspended"
    answers: dict[str, HumanAnswer] = {"c-ann": Approve()}
    for _ in range(2):
        with pytest.raises(RunChanged, match="hook new"):
            await (reads(talk, answers) if streamed else talk.resume(answers))
    assert shop.paid == []
    again = Shop(path).agent.conversation()
    await again.resume_recorded("R", strict=True)
    assert (await again.resume({"c-ann": Approve()})).stop_reason == "completed"
    assert (await again.run("carl")).stop_reason == "suspended"
    assert (await again.resume({"c-carl": Deny("no")})).stop_reason == "completed"


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process writes in the file: whoever needs it waits."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("COMMIT")
        other.close()


async def comes_to_wait(going: asyncio.Task[Any]) -> None:
    for _ in range(50):
        await asyncio.sleep(0)
    assert not going.done()


async def reads(talk: Conversation, answers: dict[str, HumanAnswer]) -> RunResult | None:
    async for _ in talk.stream_resume(answers):
        pass
    return talk.result


@pytest.mark.parametrize("how", ["resume_recorded", "resume", "stream_resume"])
@pytest.mark.parametrize("way", WAYS)
async def test_an_abort_counts_that_comes_while_the_record_of_a_run_is_waited_for(tmp_path: Path, way: str, how: str) -> None:
    path = tmp_path / "runs.db"
    _, before = await Shop(path, way).waiting_talk()
    answers: dict[str, HumanAnswer] = {pending.call_id: Approve() for pending in before.pending}
    shop = Shop(path, way)
    talk, _ = await shop.taken_up()
    with held(path):
        coming = {"resume_recorded": lambda: talk.resume_recorded("R", answers), "resume": lambda: talk.resume(answers)}
        going = asyncio.create_task(coming.get(how, lambda: reads(talk, answers))())
        await comes_to_wait(going)
        talk.abort("enough")
    assert ((await going).stop_reason, shop.paid, open_calls(talk)) == ("aborted", [], set())
    assert (await Shop(path, way).agent.resume("R")).stop_reason == "aborted"
    assert verify(shop.agent.plan.journal) == []
    assert (await talk.run("carl", run_id="S")).stop_reason == "suspended"


async def test_no_other_run_begins_in_a_talk_while_the_record_of_one_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await Shop(path).waiting_talk()
    shop = Shop(path)
    talk = shop.agent.conversation()
    with held(path):
        going = asyncio.create_task(talk.resume_recorded("R", {"c-ann": Approve()}))
        await comes_to_wait(going)
        with pytest.raises(ConversationBusy):
            await talk.run("carl")
        idle = asyncio.create_task(talk.wait_for_idle())
        await comes_to_wait(idle)
    assert ((await going).stop_reason, shop.paid) == ("completed", ["ann"])
    await idle
    assert (await Shop(path).agent.resume("R")).stop_reason == "completed"
    with pytest.raises(UnknownAnswer):
        await talk.resume_recorded("R", {"nobody": Approve()})
    await talk.wait_for_idle()


@pytest.mark.parametrize("taken_up", [False, True])
async def test_an_abort_counts_that_comes_while_a_new_prompt_refuses_what_waits(tmp_path: Path, taken_up: bool) -> None:
    path = tmp_path / "runs.db"
    shop = Shop(path)
    talk, _ = await shop.waiting_talk()
    if taken_up:
        shop = Shop(path)
        talk, _ = await shop.taken_up()
    with held(path):
        going = asyncio.create_task(talk.run("carl", run_id="S"))
        await comes_to_wait(going)
        with pytest.raises(ConversationBusy):
            await talk.run("dora")
        talk.abort()
    assert ((await going).stop_reason, shop.paid, open_calls(talk)) == ("aborted", [], set())
    journal = shop.agent.plan.journal
    assert ({run.run_id: run.state for run in summaries(journal)}, waiting(journal)) == ({"R": "ended", "S": "ended"}, [])
    assert [record.kind for record in journal.records("S")].count("request") == 0
    assert (await talk.run("dora")).stop_reason == "suspended"
