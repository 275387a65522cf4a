"""The calls of one reply: in parallel or one by one, in which order what happens, and who ends the run."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from beforehand import Agent, Answer, Block, Context, Hook, Replace, ToolContext, ToolResult, tool
from beforehand.testing import ScriptedModel, text, tool_call


def log_events(talk: Any, steps: list[str]) -> None:
    talk.on("tool_execution_start", lambda e: steps.append(f"start {e.call_id}"))
    talk.on("tool_execution_end", lambda e: steps.append(f"end {e.call_id}"))
    talk.on("message_end", lambda e: steps.append(f"stored {e.message.tool_call_id}") if e.origin == "tool" else None)


async def test_parallel_bodies_run_at_the_same_time_and_results_keep_the_order_of_the_calls() -> None:
    steps: list[str] = []
    both_inside = asyncio.Barrier(3)
    turns = {"1": asyncio.Event(), "2": asyncio.Event(), "3": asyncio.Event()}
    turns["3"].set()

    @tool
    async def work(ctx: ToolContext) -> str:
        steps.append(f"body {ctx.call_id}")
        await both_inside.wait()  # passes only if all three bodies are inside at once
        await turns[ctx.call_id].wait()
        return ctx.call_id

    gate = Hook(seam="before_tool_call", fn=lambda c: steps.append(f"gate {c.call_id}"))
    model = ScriptedModel([[tool_call("work", id=n) for n in "123"], text("end")])
    talk = Agent(model=model, tools=[work], hooks=[gate]).conversation()
    log_events(talk, steps)
    talk.on("tool_execution_end", lambda e: turns[{"3": "1", "1": "2", "2": "2"}[e.call_id]].set())  # 3, then 1, then 2

    result = await talk.run("go")

    assert steps == [
        "start 1", "gate 1", "start 2", "gate 2", "start 3", "gate 3", "body 1", "body 2", "body 3",
        "end 3", "end 1", "end 2", "stored 1", "stored 2", "stored 3",
    ]  # fmt: skip
    assert [m.text for m in result.messages if m.role == "tool"] == ["1", "2", "3"]


@pytest.mark.parametrize("by", ["agent", "every_tool", "one_tool"])
async def test_sequential_calls_finish_one_after_the_other_and_are_stored_at_once(by: str) -> None:
    steps: list[str] = []

    async def body(ctx: ToolContext) -> str:
        steps.append(f"body {ctx.call_id}")
        await asyncio.sleep(0)
        return ctx.call_id

    alone = tool(name="alone", mode="sequential")(body)
    free = tool(name="free", mode="parallel")(body) if by != "every_tool" else tool(name="free", mode="sequential")(body)
    names = {"agent": ["free", "free"], "every_tool": ["alone", "free"], "one_tool": ["free", "alone"]}[by]
    gate = Hook(seam="before_tool_call", fn=lambda c: steps.append(f"gate {c.call_id}"))
    model = ScriptedModel([[tool_call(name, id=n) for name, n in zip(names, "12", strict=True)], text("end")])
    mode = "sequential" if by == "agent" else "parallel"
    talk = Agent(model=model, tools=[alone, free], hooks=[gate], tool_mode=mode).conversation()
    log_events(talk, steps)

    await talk.run("go")

    assert steps == [
        step.format(n) for n in "12" for step in ("start {}", "gate {}", "body {}", "end {}", "stored {}")
    ]  # fmt: skip


async def test_a_sequential_tool_that_a_hook_brings_in_for_one_request_is_sequential_too() -> None:
    steps: list[str] = []

    @tool(mode="sequential")
    async def alone(n: int) -> str:
        steps.append(f"begin {n}")
        await asyncio.sleep(0)
        steps.append(f"end {n}")
        return "done"

    def bring(plan: Any) -> Replace | None:
        return None if model.requests else Replace(context=Context("", plan.context.messages, (alone,)), once=True)

    model = ScriptedModel([[tool_call("alone", {"n": n}) for n in (1, 2)], text("end")])
    await Agent(model=model, hooks=[Hook(seam="prepare_request", fn=bring)]).run("go")

    assert steps == ["begin 1", "end 1", "begin 2", "end 2"]


async def test_a_sequential_tool_that_is_not_called_does_not_slow_down_the_others() -> None:
    all_inside = asyncio.Barrier(2)

    @tool
    async def free() -> str:
        await all_inside.wait()
        return "done"

    @tool(mode="sequential")
    async def alone() -> str:
        return "done"

    model = ScriptedModel([[tool_call("free"), tool_call("free")], text("end")])
    result = await Agent(model=model, tools=[free, alone]).run("go")

    assert [m.text for m in result.messages if m.role == "tool"] == ["done", "done"]


async def test_a_sequential_gate_sees_what_became_of_the_calls_before_it() -> None:
    seen: list[Any] = []

    @tool
    async def work() -> str:
        return "done"

    gate = Hook(seam="before_tool_call", fn=lambda c: seen.append([(r.call_id, r.outcome) for r in c.run.calls]))
    model = ScriptedModel([[tool_call("work", id=n) for n in "123"], text("end")])
    await Agent(model=model, tools=[work], hooks=[gate], tool_mode="sequential").run("go")

    assert seen == [[], [("1", "ran")], [("1", "ran"), ("2", "ran")]]


async def test_a_call_that_will_not_run_is_concluded_before_the_next_is_announced() -> None:
    steps: list[str] = []

    @tool
    async def work(n: int) -> str:
        steps.append(f"body {n}")
        return "done"

    gate = Hook(seam="before_tool_call", fn=lambda c: Block("no") if c.args["n"] == 2 else None)
    calls = [
        tool_call("work", {"n": 1}, id="1"),
        tool_call("work", {"n": 2}, id="2"),
        tool_call("werk", id="3"),
        tool_call("work", {"n": 4}, id="4"),
    ]
    talk = Agent(model=ScriptedModel([calls, text("end")]), tools=[work], hooks=[gate]).conversation()
    log_events(talk, steps)
    await talk.run("go")

    assert steps[:8] == ["start 1", "start 2", "end 2", "start 3", "end 3", "start 4", "body 1", "body 4"]
    assert steps[-4:] == ["stored 1", "stored 2", "stored 3", "stored 4"]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_gates_know_the_batch_they_are_part_of(mode: str) -> None:
    seen: list[Any] = []

    @tool
    async def work(n: int) -> str:
        return "done"

    gate = Hook(seam="before_tool_call", fn=lambda c: seen.append((c.call_id, tuple(c.batch), len(c.context))))
    model = ScriptedModel([[tool_call("work", {"n": n}, id=str(n)) for n in (1, 2)], text("end")])
    await Agent(model=model, tools=[work], hooks=[gate], tool_mode=mode).run("go")

    # The context of a batch is the history up to its reply; results of the same batch are not in it.
    assert seen == [("1", ("work", "work"), 2), ("2", ("work", "work"), 2)]


# --- terminate ------------------------------------------------------------------------------------

WAYS: dict[str, bool] = {
    # how a call ends: whether its result asks for no further request
    "runs": False, "terminates": True, "fails": False, "fails_terminating": True, "blocked": False, "blocked_terminating": True,
    "unknown": False, "invalid": False, "answered_terminating": True, "set_by_13": True, "cleared_by_13": False,
}  # fmt: skip


def call_for(way: str) -> Any:
    if way == "unknown":
        return tool_call("nobody")
    return tool_call("work", {"way": 42} if way == "invalid" else {"way": way})


@tool(parameters={"type": "object", "properties": {"way": {"enum": [w for w in WAYS if w != "invalid"]}}, "required": ["way"]})
async def work(way: str) -> ToolResult:
    if way == "fails":
        raise ValueError("broken")
    return ToolResult(
        way, is_error=way == "fails_terminating", terminate=way in ("terminates", "fails_terminating", "cleared_by_13")
    )


def gate_for(call: Any) -> Any:
    return {
        "blocked": Block("no"), "blocked_terminating": Block("no", terminate=True),
        "answered_terminating": Answer(ToolResult("made up", terminate=True)),
    }.get(call.args["way"])  # fmt: skip


def after_for(outcome: Any) -> Any:
    return {"set_by_13": Replace(terminate=True), "cleared_by_13": Replace(terminate=None)}.get(outcome.args["way"])


HOOKS = [Hook(seam="before_tool_call", fn=gate_for), Hook(seam="after_tool_call", fn=after_for)]


@pytest.mark.parametrize("ways", [*itertools.product(WAYS), *itertools.combinations(WAYS, 2)], ids="+".join)
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_the_automatic_follow_up_ends_only_if_every_result_of_the_batch_asks_for_it(
    ways: tuple[str, ...], mode: str
) -> None:
    model = ScriptedModel([[call_for(way) for way in ways], text("asked again")])
    result = await Agent(model=model, tools=[work], hooks=HOOKS, tool_mode=mode).run("go")

    expected = 1 if all(WAYS[way] for way in ways) else 2
    assert len(model.requests) == expected
    assert len([m for m in result.messages if m.role == "tool"]) == len(ways)
    assert result.stop_reason == "completed"


async def test_every_call_has_exactly_one_result_in_a_batch_of_all_kinds() -> None:
    model = ScriptedModel([[call_for(way) for way in WAYS], text("end")])
    result = await Agent(model=model, tools=[work], hooks=HOOKS).run("go")

    calls = result.messages[1].tool_calls  # type: ignore[union-attr]
    assert [m.tool_call_id for m in result.messages if m.role == "tool"] == [call.id for call in calls]
    assert len(calls) == len(WAYS)


async def test_many_calls_at_once_are_all_inside_together() -> None:
    inside = asyncio.Barrier(200)

    @tool
    async def wait_for_all(n: int) -> str:
        await inside.wait()
        return str(n)

    model = ScriptedModel([[tool_call("wait_for_all", {"n": n}) for n in range(200)], text("end")])
    result = await Agent(model=model, tools=[wait_for_all]).run("go")

    assert [m.text for m in result.messages if m.role == "tool"] == [str(n) for n in range(200)]
