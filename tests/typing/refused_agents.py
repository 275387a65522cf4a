"""Slips with agents, hooks and results that must not type-check. mypy reports the complaints that no longer come.

Nothing here ever runs.
"""

from __future__ import annotations

from beforehand import Agent, Approve, Block, Hook, Limits, RunResult, ToolContext, hook, tool
from beforehand.seams import PendingCall


def guard(call: PendingCall) -> Block | None:
    call.args = {}  # type: ignore[misc,assignment]
    call.run.turn = 3  # type: ignore[misc]
    return None


def registered_wrongly() -> None:
    hook.before_tool_call(tols=["book"])  # type: ignore[call-overload]
    hook.before_tool_call(on_error="ignore")  # type: ignore[call-overload]
    hook.before_tool_call(order="first")  # type: ignore[call-overload]
    Hook("before_tool_call", guard)  # type: ignore[call-arg]
    tool(mode="serial")  # type: ignore[call-overload]
    tool(timeouts=3)  # type: ignore[call-overload]


def made_wrongly() -> None:
    Agent("openai:name")  # type: ignore[call-arg]
    Agent(model=3)  # type: ignore[arg-type]
    Agent(model="openai:name", max_turns=3)  # type: ignore[call-arg]
    Agent(model="openai:name", limits={"max_turns": 3})  # type: ignore[arg-type]
    Agent(model="openai:name", thinking_level="very")  # type: ignore[arg-type]


async def used_wrongly(agent: Agent, result: RunResult, ctx: ToolContext[int]) -> None:
    agent.run("Hi")  # type: ignore[unused-coroutine]
    await agent.run("Hi", max_turns=3)  # type: ignore[call-arg]
    await agent.run(3)  # type: ignore[arg-type]
    result.text = "changed"  # type: ignore[misc]
    print(result.stop_reason == "done")  # type: ignore[comparison-overlap]
    await agent.conversation().resume({"c1": True})  # type: ignore[dict-item]
    await agent.conversation().resume([Approve()])  # type: ignore[arg-type]
    ctx.deps.upper()  # type: ignore[attr-defined]
    Limits().max_turns = 4  # type: ignore[misc]
