"""Messages that hooks queue, when the process ends before a turn takes them: each is said once, in its order, and is judged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Block, Hook, Interrupt, Queue, Replace, ToolContext, UserMessage, tool
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records, cut, parents


def texts(result: Any) -> list[str]:
    return [m.text for m in result.messages if m.origin == "hook"]


async def resumed_at_each_record(path: Path, agent_on: Any, first: int = 1) -> list[tuple[int, Any]]:
    """The run, cut after each of its records, and resumed: where it was cut, and what it came to."""
    records, of = all_records(path), parents(path)
    found = []
    for end in range(first, len(records)):
        there = path.parent / f"{end}.db"
        cut(records[:end], of, there).close()
        agent = agent_on(there)
        found.append((end, await agent.resume("R", check=False)))
        assert verify(agent.plan.journal) == []
        await agent.aclose()
    return found


async def test_what_hooks_queued_about_calls_side_by_side_comes_in_the_order_in_which_they_queued_it(tmp_path: Path) -> None:
    """The first call of the reply is the last to be over, inside it too; the run that goes on finds it first."""
    judged: list[str] = []

    def agent_on(path: Path) -> Agent:
        over = {name: asyncio.Event() for name in ("two", "inner two")}

        @tool(replay="safe")
        async def work(ctx: ToolContext, name: str) -> str:
            if name == "one":
                await asyncio.gather(*[ctx.call_tool("work", {"name": inner}) for inner in ("inner one", "inner two")])
                await over["two"].wait()
            elif name == "inner one":
                await over["inner two"].wait()
            return name

        def speak(result: Any) -> Any:
            name = result.args["name"]
            if name in over:
                over[name].set()
            return Queue(UserMessage(f"about {name}"))

        def judge(incoming: Any) -> None:
            if incoming.message.origin == "hook":
                judged.append(incoming.message.text)

        def answer(request: Any) -> Any:
            if any(m.role == "tool" for m in request.messages):
                return text("done")
            return [tool_call("work", {"name": name}, id=name) for name in ("one", "two")]

        hooks = [Hook(seam="after_tool_call", fn=speak), Hook(seam="on_message", fn=judge)]
        return Agent(model=FunctionModel(answer), tools=[work], hooks=hooks, journal=Journal(path, durability="normal"))

    agent = agent_on(tmp_path / "whole.db")
    whole = texts(await agent.run("go", run_id="R"))
    await agent.aclose()
    assert whole == judged
    assert sorted(whole) == ["about inner one", "about inner two", "about one", "about two"]
    assert whole[-1] == "about one"
    records = all_records(tmp_path / "whole.db")
    over = next(r.n for r in records if r.kind == "message" and "of" in r.data)
    for end, result in await resumed_at_each_record(tmp_path / "whole.db", agent_on, over):
        assert texts(result) == whole, f"cut after record {end}"


async def test_what_hooks_queued_side_by_side_keeps_its_order_where_no_turn_takes_it(tmp_path: Path) -> None:
    def agent_on(path: Path) -> Agent:
        over = asyncio.Event()

        @tool
        async def work(name: str) -> str:
            if name == "one":
                await over.wait()
            return name

        def speak(result: Any) -> Any:
            over.set()
            return Queue(UserMessage(f"about {result.args['name']}")), Interrupt("enough")

        model = FunctionModel(lambda request: [tool_call("work", {"name": name}, id=name) for name in ("one", "two")])
        hooks = [Hook(seam="after_tool_call", fn=speak, name="speak")]
        return Agent(model=model, tools=[work], hooks=hooks, journal=Journal(path, durability="normal"))

    agent = agent_on(tmp_path / "whole.db")
    assert texts(await agent.run("go", run_id="R")) == ["about two", "about one"]
    await agent.aclose()
    records = all_records(tmp_path / "whole.db")
    over = next(r.n for r in records if r.kind == "message" and "of" in r.data)
    for end, result in await resumed_at_each_record(tmp_path / "whole.db", agent_on, over):
        assert texts(result) == ["about two", "about one"], f"cut after record {end}"


async def test_what_hooks_queued_before_an_end_that_never_came_waits_again(tmp_path: Path) -> None:
    """The run was about to end and put it into the history; it goes on otherwise, and a turn takes it, once and judged."""
    judged: list[str] = []

    def agent_on(path: Path) -> Agent:
        def speak(turn: Any) -> Any:
            return Queue(UserMessage("by the way")) if turn.run.turn == 1 else None

        def judge(incoming: Any) -> None:
            if incoming.message.origin == "hook":
                judged.append(incoming.message.text)

        def answer(request: Any) -> Any:
            return text(f"read {[m.text for m in request.messages if m.role == 'user']}")

        hooks = [Hook(seam="finish_turn", fn=speak), Hook(seam="on_message", fn=judge)]
        return Agent(model=FunctionModel(answer), hooks=hooks, journal=Journal(path, durability="normal"))

    agent = agent_on(tmp_path / "whole.db")
    assert texts(await agent.run("go", run_id="R")) == ["by the way"]
    await agent.aclose()
    assert judged == []  # no turn took it
    records = all_records(tmp_path / "whole.db")
    assert [r.kind for r in records[-2:]] == ["message", "end"]
    cut(records[:-1], parents(tmp_path / "whole.db"), tmp_path / "cut.db").close()

    agent = agent_on(tmp_path / "cut.db")
    talk = agent.conversation()
    talk.steer("and this")
    result = await talk.resume_recorded("R")
    assert [m.text for m in result.messages if m.role == "user"] == ["go", "by the way", "and this"]
    assert result.text == "read ['go', 'by the way', 'and this']"
    assert judged == ["by the way"]
    again = await agent.resume("R")
    assert [m.text for m in again.messages] == [m.text for m in result.messages]
    assert verify(agent.plan.journal) == []
    await agent.aclose()


@pytest.mark.parametrize("replay", ["safe", "never"])
@pytest.mark.parametrize("role", ["user", "assistant"])
async def test_what_hooks_queued_about_progress_comes_once_though_the_result_was_judged_before_it(
    tmp_path: Path, role: str, replay: Any
) -> None:
    """A body that runs again is judged again, and what was said about its progress then counts no more."""

    async def go(path: Path, resume: bool) -> Any:
        judged = asyncio.Event()
        if resume:
            judged.set()

        @tool(replay=replay)
        async def work(ctx: ToolContext) -> str:
            ctx.update("half")
            ctx.update("most")
            return "all"

        async def speak(result: Any) -> Any:
            if not result.partial:
                judged.set()
                return None
            await judged.wait()
            return Queue(UserMessage(f"saw {result.text}") if role == "user" else f"saw {result.text}")

        model = FunctionModel(lambda r: text("done") if len(r.messages) > 1 else tool_call("work", {}, id="c"))
        async with Agent(
            model=model, tools=[work], hooks=[Hook(seam="after_tool_call", fn=speak)], journal=Journal(path, durability="normal")
        ) as agent:
            talk = agent.conversation()
            talk.on("tool_execution_update", lambda event: None)
            result = await (talk.resume_recorded("R") if resume else talk.run("go", run_id="R"))
            assert verify(agent.plan.journal) == []
        return result

    whole = texts(await go(tmp_path / "whole.db", False))
    assert whole == ["saw half", "saw most"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    over = next(r.n for r in records if r.kind == "outcome")
    said = [r.n for r in records if r.data.get("effects")]
    assert said[0] > over
    for end in range(1, len(records)):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        result = await go(tmp_path / f"{end}.db", True)
        on_record = sum(n <= end for n in said)
        begun = end >= next(r.n for r in records if r.kind == "intent")
        again = not begun or (end < over and replay == "safe")
        assert texts(result) == (whole if again else whole[:on_record]), f"cut after record {end}"
        assert result.text == "done"


async def test_no_key_is_asked_for_a_request_that_was_refused(tmp_path: Path) -> None:
    asked: list[str] = []

    def agent_on(path: Path) -> Agent:
        def key(request: Any) -> Any:
            asked.append("key")
            if len(asked) > 1:
                raise RuntimeError("the vault is closed")
            return Replace(key="a key")

        def refuse(request: Any) -> Any:
            return Block("not this one")

        hooks = [Hook(seam="get_api_key", fn=key), Hook(seam="authorize_request", fn=refuse)]
        return Agent(model=FunctionModel(lambda _: text("never")), hooks=hooks, journal=Journal(path, durability="normal"))

    agent = agent_on(tmp_path / "whole.db")
    assert (await agent.run("go", run_id="R")).stop_reason == "blocked"
    await agent.aclose()
    records = all_records(tmp_path / "whole.db")
    refused = next(r.n for r in records if r.kind == "ruling" and r.data["seam"] == "authorize_request")
    for end, result in await resumed_at_each_record(tmp_path / "whole.db", agent_on, refused):
        assert (result.stop_reason, result.reason) == ("blocked", "not this one"), f"cut after record {end}"
    assert asked == ["key"]
