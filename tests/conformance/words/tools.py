"""What the recordings say about how tools behave, as code. A behaviour that nobody has written down here is a `KeyError`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from beforehand import ToolContext, ToolResult

if TYPE_CHECKING:
    from conformance.runner import Scenario

Body = Callable[["Scenario", ToolContext, dict[str, Any]], Awaitable[Any]]


def gives(value: Any) -> Body:
    async def body(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> Any:
        return value

    return body


def raises(text: str) -> Body:
    async def body(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> Any:
        raise RuntimeError(text)

    return body


def sleeps(milliseconds: int, text: str) -> Body:
    async def body(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> Any:
        await asyncio.sleep(milliseconds / 1000)
        return text

    return body


def sleeps_until_aborted(milliseconds: int, text: str) -> Body:
    async def body(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> Any:
        try:
            await asyncio.wait_for(ctx.signal.wait(), milliseconds / 1000)
        except TimeoutError:
            return text
        raise RuntimeError("sleep aborted")

    return body


def reports(name: str, first: int, second: int, end: int) -> Body:
    """Two progress reports and the result, each at its millisecond."""

    async def body(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> Any:
        await asyncio.sleep(first / 1000)
        ctx.update(f"{name}-1")
        await asyncio.sleep((second - first) / 1000)
        ctx.update(f"{name}-2")
        await asyncio.sleep((end - second) / 1000)
        return name

    return body


async def _one_nested_call(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> str:
    inner = await ctx.call_tool(args["name"], args["args"])
    return json.dumps({"isError": inner.is_error, "text": inner.text, "id": inner.call_id}, separators=(",", ":"))


async def _three_failures(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> ToolResult:
    if ctx.call_id == "c1":
        raise RuntimeError("disk full")
    if ctx.call_id == "c2":
        raise RuntimeError("plain")
    return ToolResult("soft fail", details={"code": 7}, is_error=True)


async def _steers(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> str:
    scenario.steer("S1")
    scenario.steer("S2")
    return "wrote"


async def _starts_another_run(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> str:
    await scenario.prompt("x")
    await scenario.go_on()
    return "wrote"


async def changes_tools(scenario: Scenario, ctx: ToolContext, args: dict[str, Any]) -> str:
    scenario.use(tools=[scenario.added_tool()])
    return "wrote"


SAYS = re.compile(r"returns (?:text )?'([^']*)'")
SLEEPS = re.compile(r"sleeps (\d+) ms, returns '([^']*)'")
SLEEPS_UNTIL_ABORTED = re.compile(r"sleeps (\d+) ms honouring the signal \(rejects 'sleep aborted' on abort\), returns '([^']*)'")
REPORTS = re.compile(r"(t\d): update at (\d+) ms and (\d+) ms, then returns '\1' at (\d+) ms")
RAISES = re.compile(r"throws Error\('([^']*)'\)")

BODIES: dict[str, Body] = {
    "returns text 'wrote' with terminate:true": gives(ToolResult("wrote", terminate=True)),
    "runs one nested call through runToolCall(name=params.name, args=params.args) and returns a JSON text of {isError, text}": (
        _one_nested_call
    ),
    "c1 throws Error('disk full'); c2 throws the string 'plain'; c3 returns text 'soft fail', details {code:7}, isError true": (
        _three_failures
    ),
    "calls steer('S1') and steer('S2') while running, returns 'wrote'": _steers,
    "prepareArguments: {file:F} -> {path:F}; throws Error('bad shape') when args has 'boom'; returns 'ok'": gives("ok"),
    "while running calls prompt('x'), continue() and reset() on the agent, recording the errors": _starts_another_run,
    "returns {}": gives(ToolResult()),
    "returns undefined": gives(None),
}


def body_of(behaviour: str) -> Body:
    """The body of a tool that behaves like this."""
    if behaviour in BODIES:
        return BODIES[behaviour]
    if found := SAYS.fullmatch(behaviour):
        return gives(found[1])
    if found := SLEEPS.fullmatch(behaviour):
        return sleeps(int(found[1]), found[2])
    if found := SLEEPS_UNTIL_ABORTED.fullmatch(behaviour):
        return sleeps_until_aborted(int(found[1]), found[2])
    if found := REPORTS.fullmatch(behaviour):
        return reports(found[1], int(found[2]), int(found[3]), int(found[4]))
    if found := RAISES.fullmatch(behaviour):
        return raises(found[1])
    raise KeyError(behaviour)


def reshape(raw: dict[str, Any]) -> dict[str, Any]:
    """The shim of the recorded tool that has one."""
    if "boom" in raw:
        raise RuntimeError("bad shape")
    return {"path": raw["file"]}
