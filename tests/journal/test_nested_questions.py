"""Questions inside a tool that makes several calls at once (F38, F41, F47): the run waits, whatever its body makes of that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, Deny, Edit, Hook, Queue, RunResult, ToolContext, UserMessage, tool
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records, cut, done_by, parents

Body = Callable[[ToolContext], Awaitable[str]]

CALLS: list[tuple[str, dict[str, Any]]] = [("transfer", {"amount": 5}), ("slow", {}), ("transfer", {"amount": 6})]


async def gathered(ctx: ToolContext) -> str:
    return " ".join([r.text for r in await asyncio.gather(*[ctx.call_tool(*call) for call in CALLS])])


async def gathered_with_what_was_raised(ctx: ToolContext) -> str:
    results = await asyncio.gather(*[ctx.call_tool(*call) for call in CALLS], return_exceptions=True)
    return " ".join([getattr(r, "text", repr(r)) for r in results])


async def in_a_group(ctx: ToolContext) -> str:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.call_tool(*call)) for call in CALLS]
    return " ".join([task.result().text for task in tasks])


async def catching_everything(ctx: ToolContext) -> str:
    said = []
    for call in CALLS:
        try:
            said.append((await ctx.call_tool(*call)).text)
        except BaseException as error:
            said.append(type(error).__name__)
    return " ".join(said)


BODIES: list[Body] = [gathered, gathered_with_what_was_raised, in_a_group, catching_everything]


class Process:
    """An agent whose safe tool has this body. `did` are the effects of the other tools, by key."""

    def __init__(self, path: Path, body: Body, timeout: float | None = None) -> None:
        self.did: list[str] = []

        @tool
        async def transfer(ctx: ToolContext, amount: int) -> str:
            self.did.append(ctx.idempotency_key)
            return f"sent {amount}"

        @tool
        async def slow(ctx: ToolContext) -> str:
            self.did.append(ctx.idempotency_key)
            for _ in range(20):
                await asyncio.sleep(0)
            return "slow"

        script = tool(name="script", description="Calls others.", replay="safe", timeout=timeout)(body)
        model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else tool_call("script", id="s"))
        gate = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?"), tools=["transfer"], name="gate")
        self.journal = Journal(path, durability="normal")
        self.agent = Agent(model=model, tools=[transfer, slow, script], hooks=[gate], journal=self.journal)


def said(result: RunResult) -> list[str]:
    return [m.text for m in result.messages if m.role == "tool"]


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("body", BODIES)
async def test_a_tool_that_makes_calls_at_once_waits_for_all_questions_and_keeps_the_other_results(
    tmp_path: Path, body: Body, timeout: float | None
) -> None:
    first = Process(tmp_path / "runs.db", body, timeout)
    result = await first.agent.run("go", run_id="R")
    assert (result.stop_reason, [p.call_id for p in result.pending], said(result)) == ("suspended", ["s/1", "s/3"], [])
    assert first.did == ["R:s/2"]

    second = Process(tmp_path / "runs.db", body, timeout)
    result = await second.agent.resume("R", {"s/1": Approve(), "s/3": Deny("not six")})
    assert (result.stop_reason, said(result)) == ("completed", ["sent 5 slow not six"])
    assert second.did == ["R:s/1"]
    outcomes = Counter(r.data["call"] for r in second.journal.records("R") if r.kind == "outcome")
    assert outcomes == {"s/1": 1, "s/2": 1, "s/3": 1, "s": 1}
    assert second.journal.records("R")[-1].kind == "end"


ANSWERS: dict[str, Any] = {"s/1": Approve(), "s/3": Edit({"amount": 7})}


@pytest.mark.parametrize("body", BODIES)
async def test_such_a_run_cut_after_any_record_asks_and_does_nothing_twice(tmp_path: Path, body: Body) -> None:
    whole = Process(tmp_path / "whole.db", body)
    await whole.agent.run("go", run_id="R")
    expected = said(await whole.agent.resume("R", ANSWERS))
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in range(1, len(records)):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        begun, over = done_by([r for r in records[:k] if r.kind != "intent" or r.data["replay"] == "never"])
        process = Process(tmp_path / f"{k}.db", body)
        result = await process.agent.resume("R")
        if result.pending:
            result = await process.agent.resume("R", {p.call_id: ANSWERS[p.call_id] for p in result.pending})
        assert result.stop_reason == "completed", k
        assert not begun & set(process.did), k
        assert len(process.did) == len(set(process.did)), k
        assert said(result) == expected or begun - over, k
        assert verify(process.journal) == [], k


async def test_what_hooks_decided_about_a_call_that_a_person_edited_is_gone_over_whole(tmp_path: Path) -> None:
    """They were asked about it twice, and each time one of them had something to say beside it."""

    async def one(ctx: ToolContext) -> str:
        return (await ctx.call_tool("transfer", {"amount": 5})).text

    def process(path: Path) -> Process:
        made = Process(path, one)
        says = Hook(seam="before_tool_call", fn=lambda call: Queue(UserMessage(f"{call.args}")), tools=["transfer"], name="says")
        once = FunctionModel(lambda r: text("done") if any(m.role == "tool" for m in r.messages) else tool_call("script", id="s"))
        made.agent = made.agent.replace(model=once, hooks=[*made.agent.plan.hooks.current.hooks, says])
        return made

    whole = process(tmp_path / "whole.db")
    await whole.agent.run("go", run_id="R")
    result = await whole.agent.resume("R", {"s/1": Edit({"amount": 7})})
    assert sum(m.origin == "hook" for m in result.messages) == 2
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    over = next(r.n for r in records if r.kind == "outcome" and r.data["call"] == "s")
    for k in range(over, len(records)):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = process(tmp_path / f"{k}.db")
        came = await again.agent.resume("R")
        assert came.messages == result.messages, k
        assert len(came.decisions) == len(result.decisions), k
        await again.agent.aclose()


async def test_a_tool_that_has_ended_makes_no_more_calls(tmp_path: Path) -> None:
    go_on, late = asyncio.Event(), []

    async def body(ctx: ToolContext) -> str:
        async def afterwards() -> Any:
            await go_on.wait()
            return await ctx.call_tool("slow", {})

        late.append(asyncio.create_task(afterwards()))
        return "ended"

    process = Process(tmp_path / "runs.db", body)
    assert said(await process.agent.run("go", run_id="R")) == ["ended"]
    go_on.set()
    result = await late[0]
    assert (result.outcome, result.text, process.did) == ("cancelled", "Not run: script has ended.", [])
    assert process.journal.records("R")[-1].kind == "end"
