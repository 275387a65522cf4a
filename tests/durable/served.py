"""The agents that the workers of these tests serve (`beforehand worker --agents served.py`)."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from beforehand import Agent, Ask, Limits, Loop, ToolContext, hook, tool
from beforehand.testing import FunctionModel, text, tool_call

EFFECTS = Path(os.environ.get("TEST_EFFECTS", "/dev/null"))
TURNS = int(os.environ.get("TEST_TURNS", "10"))
PAUSE = float(os.environ.get("TEST_PAUSE", "0"))
"""How long a call takes, in seconds."""


def effect(ctx: ToolContext, what: str) -> None:
    """Something that cannot be taken back, and that outlives this process."""
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{ctx.run.run_id} {ctx.call_id} {what} {os.getpid()}\n".encode())
    os.close(file)


@tool
async def pay(ctx: ToolContext, n: int) -> str:
    """Pay."""
    effect(ctx, "pay")
    await asyncio.sleep(PAUSE)
    return f"paid {n}"


@tool(replay="safe")
async def look(ctx: ToolContext, n: int) -> str:
    """Look."""
    effect(ctx, "look")
    await asyncio.sleep(PAUSE)
    return f"saw {n}"


@tool
async def wait(ctx: ToolContext, name: str) -> str:
    """Say that it runs, then wait until a file is there."""
    effect(ctx, "began")
    gate = EFFECTS.with_name(name)
    while not gate.exists():  # noqa: ASYNC110 - it is made by another process
        await asyncio.sleep(0.01)
    effect(ctx, "ended")
    return "it is there"


@tool
async def doze(ctx: ToolContext, seconds: float) -> str:
    """Hold up the whole worker."""
    effect(ctx, "began")
    time.sleep(seconds)  # noqa: ASYNC251 - that is what this is for
    effect(ctx, "ended")
    return "awake"


def turns(request):
    """Ten turns (unless the environment says otherwise) of one call that must not be repeated and one that may be."""
    n = sum(message.role == "assistant" for message in request.messages)
    if n == TURNS:
        return text(f"done after {n} turns and {sum(m.role == 'tool' for m in request.messages)} results")
    return [tool_call("pay", {"n": n}, id=f"pay{n}"), tool_call("look", {"n": n}, id=f"look{n}")]


def once(name: str, argument: str):
    """A model that makes one call with the prompt as its argument, then says what came of it."""

    def answer(request):
        last = request.messages[-1]
        if last.role == "tool":
            return text(last.text)
        return tool_call(name, {argument: last.text if argument == "name" else float(last.text)}, id="call")

    return FunctionModel(answer)


def paying(request):
    last = request.messages[-1]
    return text(last.text) if last.role == "tool" else tool_call("pay", {"n": 7}, id="call")


def sending(request):
    last = request.messages[-1]
    return text("sent") if last.role == "tool" else tool_call("loop_send", {"to": "reader", "message": last.text})


def reading(request):
    last = request.messages[-1]
    name = last.text.removeprefix("[from loop:main] ")
    return text(last.text) if last.role == "tool" else tool_call("wait", {"name": name}, id="call")


reader = Loop("reader", tools=["wait"], model=FunctionModel(reading))


@hook.before_tool_call
def ask(call):
    return Ask(f"Pay {call.args['n']}?")


agents = {
    "worker": Agent(model=FunctionModel(turns), tools=[pay, look], limits=Limits(max_turns=None)),
    "waiter": Agent(model=once("wait", "name"), tools=[wait]),
    "dozer": Agent(model=once("doze", "seconds"), tools=[doze]),
    "sender": Agent(model=FunctionModel(sending), tools=[wait], loops=[reader]),
    "asker": Agent(model=FunctionModel(paying), tools=[pay], hooks=[ask]),
}
