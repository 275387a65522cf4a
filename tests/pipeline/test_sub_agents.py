"""A sub-agent as a tool: what its caller's model reads, what it costs, and how its runs are bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import (
    Agent, Ask, Block, End, Hook, Interrupt, Limits, Price, ToolContext, ToolMessage, ToolResult, Usage, tool,
)  # fmt: skip
from beforehand.testing import FunctionModel, ScriptedModel, error, finish, text, tool_call


@tool
async def work() -> str:
    return "worked"


def hook(seam: str, verdict: Any) -> Hook:
    return Hook(seam=seam, fn=lambda context: verdict)


ENDINGS: dict[str, tuple[Any, list[Hook], bool, list[str]]] = {
    # how the child ends: (its script, its hooks, is_error, what its caller's model reads of it)
    "completed": ([text("helped")], [], False, ["helped"]),
    "silent": ([text("")], [], False, [""]),
    "ended": ([text("helped")], [hook("finish_turn", End("enough"))], False, ["helped"]),
    "blocked": ([], [hook("authorize_request", Block("closed"))], True, ["blocked", "closed"]),
    "interrupted": ([text("helped")], [hook("on_chunk", Interrupt("rude"))], True, ["interrupted", "rude"]),
    "max_turns": ([tool_call("work")] * 3, [], True, ["max_turns"]),
    "length": ([[text("half"), finish("length")]], [], True, ["length", "half"]),
    "error": ([error("down")], [], True, ["error", "down"]),
    "hook_failed": ([], [hook("before_turn", 42)], True, ["error", "before_turn"]),
}


@pytest.mark.parametrize("how", list(ENDINGS))
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_the_caller_reads_what_the_sub_agent_said_or_why_it_said_nothing(how: str, mode: str) -> None:
    script, hooks, is_error, told = ENDINGS[how]
    child = Agent(model=ScriptedModel(script), tools=[work], hooks=hooks, limits=Limits(max_turns=2))
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    result = await Agent(model=model, tools=[child.as_tool("helper", "Helps.")], tool_mode=mode).run("go")

    read = model.requests[1].messages[-1]
    assert isinstance(read, ToolMessage)
    assert read.is_error is is_error
    assert all(part in read.text for part in told)
    assert result.text == "end"


async def test_the_sub_agent_has_a_talk_of_its_own_for_each_call() -> None:
    child_model = ScriptedModel([text("one"), text("two")])
    helper = Agent(model=child_model, instructions="Help.").as_tool("helper", "Helps.")
    model = ScriptedModel([tool_call("helper", {"prompt": "first"}), tool_call("helper", {"prompt": "second"}), text("end")])
    result = await Agent(model=model, tools=[helper], instructions="Lead.").run("go")

    assert [(r.system, [m.text for m in r.messages]) for r in child_model.requests] == [
        ("Help.", ["first"]),
        ("Help.", ["second"]),
    ]
    assert [m.text for m in result.messages if m.role == "tool"] == ["one", "two"]
    assert all(r.system == "Lead." for r in model.requests)


async def test_sub_agents_of_one_reply_work_at_the_same_time() -> None:
    together = asyncio.Barrier(2)

    async def answer(request: Any) -> Any:
        await together.wait()
        return text("met")

    helper = Agent(model=FunctionModel(answer)).as_tool("helper", "Helps.")
    model = ScriptedModel([[tool_call("helper", {"prompt": "a"}), tool_call("helper", {"prompt": "b"})], text("end")])
    result = await Agent(model=model, tools=[helper]).run("go")

    assert [m.text for m in result.messages if m.role == "tool"] == ["met", "met"]


async def test_what_a_sub_agent_uses_and_costs_counts_for_its_caller_once() -> None:
    def spend(name: str, *replies: Any) -> ScriptedModel:
        return ScriptedModel([[reply, finish(usage=Usage(100, 10))] for reply in replies], name=name)

    prices = {"small": Price(10_000, 0), "large": Price(100_000, 0)}
    child = Agent(model=spend("small", tool_call("work"), text("helped")), tools=[work], prices=prices)
    model = spend("large", tool_call("helper", {"prompt": "go"}), text("end"))
    seen: list[Any] = []
    budget = Hook(seam="before_turn", fn=lambda turn: seen.append((turn.run.usage.input_tokens, round(turn.run.cost, 6))))
    result = await Agent(model=model, tools=[child.as_tool("helper", "Helps.")], hooks=[budget], prices=prices).run("go")

    assert (result.usage.input_tokens, result.usage.output_tokens) == (400, 40)
    assert result.cost == pytest.approx(22)
    assert seen == [(0, 0), (300, 12)]


async def test_a_sub_agent_that_waited_for_a_person_is_counted_once_too() -> None:
    child_model = ScriptedModel([[tool_call("work"), finish(usage=Usage(100, 0))], [text("helped"), finish(usage=Usage(100, 0))]])
    child = Agent(model=child_model, tools=[work])
    approval = Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"), tools=("work",))
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    talk = Agent(model=model, tools=[child.as_tool("helper", "Helps.")], hooks=[approval]).conversation()
    suspended = await talk.run("go")
    result = await talk.resume({})

    assert suspended.stop_reason == "suspended"
    assert result.usage.input_tokens == 200


async def test_a_sub_agents_own_result_never_ends_its_callers_run() -> None:
    @tool
    async def stop() -> ToolResult:
        return ToolResult("stopped", terminate=True)

    child = Agent(model=ScriptedModel([tool_call("stop")]), tools=[stop])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    result = await Agent(model=model, tools=[child.as_tool("helper", "Helps.")]).run("go")

    assert result.text == "end"


async def test_each_agent_has_its_own_limits() -> None:
    child_model = FunctionModel(lambda request: tool_call("work"))
    child = Agent(model=child_model, tools=[work], limits=Limits(max_turns=4))
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    result = await Agent(model=model, tools=[child.as_tool("helper", "Helps.")], limits=Limits(max_turns=2)).run("go")

    assert (len(child_model.requests), result.stop_reason, result.turns) == (4, "completed", 2)


async def test_a_sub_agent_answers_its_questions_with_its_own_handler_or_else_its_callers() -> None:
    asked: list[str] = []

    def handler(name: str) -> Any:
        return lambda pending: asked.append(name)

    approval = Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"))
    for own in (handler("child's"), None):
        child = Agent(model=ScriptedModel([tool_call("work"), text("helped")]), tools=[work], hooks=[approval], on_ask=own)
        model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
        await Agent(model=model, tools=[child.as_tool("helper", "Helps.")], on_ask=handler("caller's")).run("go")

    assert asked == ["child's", "caller's"]


async def test_a_time_limit_on_the_delegation_stops_the_sub_agent() -> None:
    stopped = asyncio.Event()

    async def never(request: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    helper = Agent(model=FunctionModel(never)).as_tool("helper", "Helps.")
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    result = await Agent(model=model, tools=[helper], limits=Limits(tool_timeout=0.01)).run("go")

    assert "within 0.01 s" in model.requests[1].messages[-1].text
    await stopped.wait()
    assert result.text == "end"


async def test_a_sub_agent_can_be_called_from_inside_a_tool_and_refused_there() -> None:
    @tool
    async def script(ctx: ToolContext) -> str:
        answer = await ctx.call_tool("helper", {"prompt": "go"})
        return f"{answer.outcome}: {answer.text}"

    child = Agent(model=ScriptedModel([text("helped")]))
    model = ScriptedModel([tool_call("script"), text("end")])
    await Agent(model=model, tools=[script, child.as_tool("helper", "Helps.")]).run("go")

    assert model.requests[1].messages[-1].text == "ran: helped"


@pytest.mark.parametrize("args", [{}, {"prompt": ""}, {"prompt": 42}, {"prompt": ["a"]}, {"prompt": "a", "x": 1}], ids=repr)
async def test_the_argument_of_a_delegation_is_checked_like_any_other(args: Any) -> None:
    child_model = ScriptedModel([text("helped")])
    model = ScriptedModel([tool_call("helper", args), text("end")])
    await Agent(model=model, tools=[Agent(model=child_model).as_tool("helper", "Helps.")]).run("go")

    read = model.requests[1].messages[-1]
    assert isinstance(read, ToolMessage)
    assert read.is_error is (child_model.requests == [])
    assert (child_model.requests == []) is (args in ({}, {"prompt": ["a"]}, {"prompt": "a", "x": 1}))
