"""What the workers of bench_durable.py carry: five turns, four of them with a tool call."""

from __future__ import annotations

import os
from typing import Any

from beforehand import Agent, tool
from beforehand.testing import FunctionModel, text, tool_call

TURNS = 4
ALSO_STEPS = bool(os.environ.get("BENCH_ALSO_STEPS"))
"""Each request and each tool call is a step of DBOS as well."""


async def step(name: str, work: Any, *arguments: Any) -> Any:
    from dbos import DBOS

    async def once(*_: Any) -> Any:
        return work(*arguments)

    return await DBOS.run_step_async({"name": name}, once)


def add(a: int, b: int) -> int:
    return a + b


@tool(name="add")
async def added(a: int, b: int) -> int:
    """Add two numbers."""
    return await step("tool", add, a, b) if ALSO_STEPS else add(a, b)


def reply(n: int) -> Any:
    return text("done") if n == TURNS else tool_call("add", {"a": n, "b": 1}, id=f"c{n}")


async def model(request: Any) -> Any:
    n = sum(message.role == "tool" for message in request.messages)
    if ALSO_STEPS:
        n = await step("request", int, n)
    return reply(n)


agents = {"bench": Agent(model=FunctionModel(model), tools=[added])}
