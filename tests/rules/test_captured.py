"""What a run is made of is taken when it starts, and what its caller hands in reaches every hook and tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import Agent, Block, FrozenError, Hook, Limits, Replace, ToolContext, tool
from beforehand.seams import BY_NAME
from beforehand.testing import ScriptedModel, text, tool_call
from seams.refusals import OLD
from seams.stage import Stage

LONG = 5
"""How long a late hook waits, in seconds, before a limit that does not hold is noticed."""


async def test_an_agent_is_not_changed_by_changing_what_it_was_made_from() -> None:
    hooks: list[Any] = []
    tools: list[Any] = []
    model = ScriptedModel([tool_call("look", {"n": 1}), text("Done.")])
    agent = Agent(model=model, hooks=hooks, tools=tools)
    hooks.append(Hook(seam="authorize_request", fn=lambda _: Block("No.")))

    @tool
    async def look(n: int) -> str:
        return "saw"

    tools.append(look)
    result = await agent.run("Begin")
    assert (len(model.requests), result.stop_reason, "not found" in result.messages[2].text) == (2, "completed", True)


async def test_a_run_under_way_keeps_its_hooks_while_its_owner_makes_another_agent() -> None:
    """`replace` makes a new plan; conversations begun with the old one never see it."""
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def looks(n: int) -> str:
        under_way.set()
        await go_on.wait()
        return f"saw {n}"

    stage = Stage(looks=looks)
    running = asyncio.ensure_future(stage.run())
    await under_way.wait()
    strict = stage.agent.replace(hooks=[Hook(seam="authorize_request", fn=lambda _: Block("No."))])
    go_on.set()
    await running
    assert (stage.result.stop_reason, stage.requests) == ("completed", 2)
    assert (await strict.run("Begin")).stop_reason == "blocked"
    assert stage.agent.hooks == ()


@pytest.mark.parametrize("name", ["plan", "hooks", "new_name"])
def test_an_agent_cannot_be_changed(name: str) -> None:
    agent = Agent(model=ScriptedModel([]))
    with pytest.raises((FrozenError, AttributeError)):
        setattr(agent, name, ())


async def test_a_change_that_a_hook_makes_for_the_run_ends_with_the_run() -> None:
    other = ScriptedModel([text("From the other.")])
    asked: list[None] = []
    switch = Hook(
        seam="prepare_request",
        fn=lambda _: asked.append(None) or Replace(model=other, thinking_level="high") if not asked else None,
    )
    stage = Stage(switch, replies=[text("From the first.")])
    await stage.run()
    await stage.run("Again")
    assert (len(other.requests), stage.requests, stage.result.text) == (1, 1, "From the first.")
    assert stage.model.requests[0].options.thinking_level == "off"


@pytest.mark.parametrize("seam", BY_NAME)
async def test_what_the_caller_hands_in_reaches_a_hook_at_every_seam(seam: str) -> None:
    deps = object()
    got: list[Any] = []
    stage = Stage(
        Hook(seam=seam, fn=lambda context: got.append(context.run.deps)),
        messages=OLD,
        replies=[*Stage().model.responses, text("A summary.")],
    )
    await stage.run(deps=deps)
    if seam == "before_compaction":
        await stage.talk.compact(keep=2, deps=deps)
    assert got
    assert all(each is deps for each in got)


async def test_what_the_caller_hands_in_reaches_tools_nested_calls_and_sub_agents() -> None:
    deps = object()
    got: list[tuple[str, Any]] = []

    @tool
    async def inner(ctx: ToolContext) -> str:
        got.append(("inner", ctx.deps))
        return "inner"

    @tool
    async def outer(ctx: ToolContext) -> str:
        got.append(("outer", ctx.deps))
        await ctx.call_tool("inner", {})
        return "outer"

    child = Agent(model=ScriptedModel([tool_call("inner"), text("Done.")]), tools=[inner]).as_tool("child", "Works.")
    agent = Agent(
        model=ScriptedModel([[tool_call("outer"), tool_call("child", {"prompt": "Work."})], text("Done.")]),
        tools=[outer, inner, child],
    )
    await agent.run("Begin", deps=deps)
    assert sorted(name for name, _ in got) == ["inner", "inner", "outer"]
    assert all(each is deps for _, each in got)


async def test_one_run_may_have_its_own_limits_and_the_next_has_the_agents() -> None:
    replies = [tool_call("look", {"n": 1})] * 4
    stage = Stage(replies=replies, limits=Limits(max_turns=3))
    await stage.run(limits=Limits(max_turns=1))
    assert (stage.result.stop_reason, stage.requests) == ("max_turns", 1)
    await stage.run("Again")
    assert (stage.result.stop_reason, stage.requests) == ("max_turns", 4)


async def test_two_conversations_of_one_agent_share_nothing_but_the_plan() -> None:
    model = ScriptedModel([text("One."), text("Two.")])
    agent = Agent(model=model)
    one, two = agent.conversation(), agent.conversation()
    await one.run("First")
    await two.run("Second")
    assert [[m.text for m in talk.messages] for talk in (one, two)] == [["First", "One."], ["Second", "Two."]]


async def test_a_time_limit_for_all_hooks_holds_for_those_that_name_none() -> None:
    async def late(_: Any) -> None:
        async with asyncio.timeout(LONG):
            await asyncio.Event().wait()

    stage = await Stage(Hook(seam="before_tool_call", fn=late, name="guard"), limits=Limits(hook_timeout=0.01)).run()
    assert (stage.bodies, stage.results[0].is_error) == ([], True)
    assert "guard" in stage.results[0].text
