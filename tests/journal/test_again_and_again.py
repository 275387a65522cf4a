"""A run that goes on twice: what hooks said, also of calls inside others, comes back each time as it did the first time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Block, Hook, Interrupt, Queue, RunResult, ToolContext, UserMessage, tool
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records, cut


def once(*calls: Any) -> FunctionModel:
    """A model that asks for these calls, and then is done."""
    return FunctionModel(lambda request: text("done") if any(m.role == "tool" for m in request.messages) else list(calls))


def agent_at(path: Path, *hooks: Hook) -> Agent:
    """One whose tool pays within another one, which may not be repeated."""

    @tool
    async def pay(to: str) -> str:
        return f"paid {to}"

    @tool
    async def script(ctx: ToolContext) -> str:
        return (await ctx.call_tool("pay", {"to": "ann"})).text

    journal = Journal(path, durability="normal")
    return Agent(model=once(tool_call("script", {}, id="s")), tools=[pay, script], hooks=hooks, journal=journal)


async def go_on(path: Path, *hooks: Hook) -> RunResult:
    agent = agent_at(path, *hooks)
    result = await agent.resume("R", check=False)
    assert verify(agent.plan.journal) == []
    await agent.aclose()
    return result


async def cut_from(path: Path, first: int, *hooks: Hook) -> AsyncIterator[tuple[int, RunResult]]:
    """What the run comes to, cut after each record from this one on."""
    records = all_records(path)
    for length in range(first, len(records)):
        cut(records[:length], {"R": None}, path.with_suffix(f".{length}")).close()
        yield length, await go_on(path.with_suffix(f".{length}"), *hooks)


async def begin(path: Path, *hooks: Hook) -> RunResult:
    agent = agent_at(path, *hooks)
    result = await agent.run("go", run_id="R", check=False)
    await agent.aclose()
    return result


def says(name: str, seam: Any, said: Any, **options: Any) -> Hook:
    return Hook(seam=seam, fn=lambda context: said, name=name, tools=["pay"], **options)


def fails(seam: Any) -> Hook:
    def broken(context: Any) -> None:
        raise RuntimeError("broken")

    return Hook(seam=seam, fn=broken, name="fails", tools=["pay"], on_error="abort")


NOTES = [Queue(UserMessage("noted"))]


async def test_an_interrupt_beside_a_block_interrupts_nothing_when_the_run_goes_on(tmp_path: Path) -> None:
    """It was about a call inside another, which is over: what both came to is what counts."""
    hooks = says("stops", "before_tool_call", Interrupt("stop")), says("refuses", "before_tool_call", Block("no"))
    whole = await begin(tmp_path / "runs.db", *hooks)
    assert (whole.stop_reason, whole.text) == ("completed", "done")
    over = next(r.n for r in all_records(tmp_path / "runs.db") if r.kind == "outcome" and r.data["call"] == "s")
    async for length, result in cut_from(tmp_path / "runs.db", over, *hooks):
        assert (result.stop_reason, result.messages) == (whole.stop_reason, whole.messages), length


async def test_what_a_hook_queued_about_a_call_inside_one_whose_outcome_is_not_known_is_said_once(tmp_path: Path) -> None:
    hook = says("notes", "before_tool_call", NOTES)
    await begin(tmp_path / "whole.db", hook)
    records = all_records(tmp_path / "whole.db")
    last = next(r.n for r in records if r.kind == "outcome" and r.data["call"] == "s/1")
    cut(records[:last], {"R": None}, tmp_path / "runs.db").close()
    whole = await go_on(tmp_path / "runs.db", hook)
    assert [m.text for m in whole.messages if m.role == "user"] == ["go", "noted"]
    async for length, result in cut_from(tmp_path / "runs.db", last, hook):
        assert result.error is None, length
        assert result.messages == whole.messages, length


@pytest.mark.parametrize("seam", ["before_tool_call", "after_tool_call"])
async def test_what_a_hook_queued_beside_one_that_failed_is_said_once(tmp_path: Path, seam: Any) -> None:
    """About a call that nobody is asked about any more, since it is inside one that is over."""
    broken = fails(seam)
    assert (await begin(tmp_path / "runs.db", says("notes", seam, NOTES), broken)).stop_reason == "error"
    first = len(all_records(tmp_path / "runs.db"))
    mended = says("notes", seam, NOTES), says("fails", seam, None, on_error="abort")
    whole = await go_on(tmp_path / "runs.db", *mended)
    assert (whole.stop_reason, sum(m.text == "noted" for m in whole.messages)) == ("completed", 1)
    async for length, result in cut_from(tmp_path / "runs.db", first, *mended):
        assert result.error is None, length
        assert result.messages == whole.messages, length
