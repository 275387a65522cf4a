"""The ways a call can come about. Whatever the way, it goes through the one pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from beforehand import Agent, Approve, Ask, Hook, Replace, RunResult, ToolContext, tool
from beforehand.events import ToolExecutionEnd
from beforehand.testing import ScriptedModel, text, tool_call

PATHS = ("parallel", "sequential", "streamed", "nested", "sub_agent", "resumed", "hidden")


async def call_through(
    path: str, name: str, args: Any, tools: Iterable[Any], hooks: Iterable[Hook] = (), **options: Any
) -> ToolExecutionEnd:
    """Make one call by `path` and return its last `tool_execution_end`."""
    hooks = [*hooks]
    call: Any = tool_call(name, args)
    if path == "nested":
        tools = [*tools, _script(name, args)]
        call = tool_call("script")
    elif path == "sub_agent":
        inner = Agent(model=ScriptedModel([call, text("inner end")]), tools=tools, **options)
        tools = [inner.as_tool("helper", "Helps.", events=True)]
        call = tool_call("helper", {"prompt": "go"})
    elif path == "hidden":
        hooks.append(Hook(seam="before_provider_call", fn=_hide_all))
    elif path == "resumed":
        hooks.append(Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"), name="approval"))
    mode = "sequential" if path == "sequential" else "parallel"
    model = ScriptedModel([call, text("end")])
    talk = Agent(model=model, tools=tools, hooks=hooks, tool_mode=mode, **options).conversation()
    ends: list[ToolExecutionEnd] = []
    talk.on("tool_execution_end", ends.append)
    if path == "streamed":
        async for _ in talk.stream("go"):
            pass
    else:
        result: RunResult = await talk.run("go")
        if result.stop_reason == "suspended":
            await talk.resume({pending.call_id: Approve() for pending in result.pending})
    return [end for end in ends if end.name == name][-1]


def _script(name: str, args: Any) -> Any:
    @tool
    async def script(ctx: ToolContext) -> str:
        return str((await ctx.call_tool(name, args)).text)

    return script


def _hide_all(call: Any) -> Replace:
    return Replace(request=msgspec.structs.replace(call.request, tools=()))
