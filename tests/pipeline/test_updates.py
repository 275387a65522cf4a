"""What a tool shows while it runs passes seam 13 like its result, and ends with it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from beforehand import Agent, Block, Hook, Interrupt, Limits, Replace, Text, ToolContext, ToolResult, tool
from beforehand.testing import ScriptedModel, text, tool_call


@tool
async def count(ctx: ToolContext) -> str:
    """Shows three steps, one of them secret."""
    ctx.update("step 1")
    await asyncio.sleep(0)
    ctx.update({"secret": 2})
    ctx.update("step 3")
    return "done"


def hear(talk: Any) -> list[Any]:
    heard: list[Any] = []
    talk.on("tool_execution_update", lambda e: heard.append(e.partial.text))
    talk.on("tool_execution_end", lambda e: heard.append(f"end: {e.result.text}"))
    return heard


async def test_updates_are_heard_in_order_before_the_end() -> None:
    talk = Agent(model=ScriptedModel([tool_call("count"), text("end")]), tools=[count]).conversation()
    heard = hear(talk)
    result = await talk.run("go")

    assert heard == ["step 1", '{"secret":2}', "step 3", "end: done"]
    assert "step" not in repr(list(result.messages))


async def test_an_update_says_which_call_it_is_from() -> None:
    talk = Agent(
        model=ScriptedModel([[tool_call("count", id="a"), tool_call("count", id="b")], text("end")]), tools=[count]
    ).conversation()
    heard: list[Any] = []
    talk.on("tool_execution_update", lambda e: heard.append((e.call_id, e.name, e.partial.text)))
    await talk.run("go")

    for call_id in "ab":
        assert [t for i, _, t in heard if i == call_id] == ["step 1", '{"secret":2}', "step 3"]
    assert {name for _, name, _ in heard} == {"count"}


async def test_updates_pass_the_hooks_at_13_marked_as_partial() -> None:
    seen: list[Any] = []

    def redact(outcome: Any) -> Replace | None:
        seen.append((outcome.partial, outcome.text))
        return Replace(content="***") if "secret" in outcome.text else None

    hooks = [Hook(seam="after_tool_call", fn=redact)]
    talk = Agent(model=ScriptedModel([tool_call("count"), text("end")]), tools=[count], hooks=hooks).conversation()
    heard = hear(talk)
    await talk.run("go")

    assert heard == ["step 1", "***", "step 3", "end: done"]
    assert [shown for partial, shown in seen if partial] == ["step 1", '{"secret":2}', "step 3"]
    assert [shown for partial, shown in seen if not partial] == ["done"]


@pytest.mark.parametrize("how", ["raises", "interrupts", "returns_nonsense", "fails_open"])
async def test_an_update_that_a_hook_refuses_or_cannot_check_is_withheld(how: str) -> None:
    def check(outcome: Any) -> Any:
        if not outcome.partial or "secret" not in outcome.text:
            return None
        if how == "interrupts":
            return Interrupt("no")
        if how == "returns_nonsense":
            return Block("no")
        raise RuntimeError("cannot check")

    hooks = [Hook(seam="after_tool_call", fn=check, on_error="open" if how == "fails_open" else "closed")]
    talk = Agent(model=ScriptedModel([tool_call("count"), text("end")]), tools=[count], hooks=hooks).conversation()
    heard = hear(talk)
    result = await talk.run("go")

    assert heard == ["step 1", *(['{"secret":2}'] if how == "fails_open" else []), "step 3", "end: done"]
    assert result.messages[2].text == "done"


async def test_a_hook_for_another_tool_has_no_say_in_updates() -> None:
    def fail(outcome: Any) -> None:
        raise RuntimeError("asked about the wrong tool")

    hooks = [Hook(seam="after_tool_call", fn=fail, tools=("other",))]
    talk = Agent(model=ScriptedModel([tool_call("count"), text("end")]), tools=[count], hooks=hooks).conversation()
    heard = hear(talk)
    await talk.run("go")

    assert heard[0] == "step 1"


async def test_an_update_after_the_result_is_ignored_even_while_a_sibling_runs() -> None:
    finished, late = asyncio.Event(), asyncio.Event()
    contexts: list[ToolContext] = []

    @tool
    async def quick(ctx: ToolContext) -> str:
        contexts.append(ctx)
        return "quick"

    @tool
    async def slow() -> str:
        await finished.wait()
        contexts[0].update("too late")
        for _ in range(5):
            await asyncio.sleep(0)
        late.set()
        return "slow"

    talk = Agent(model=ScriptedModel([[tool_call("quick"), tool_call("slow")], text("end")]), tools=[quick, slow]).conversation()
    heard = hear(talk)
    talk.on("tool_execution_end", lambda e: finished.set())
    await talk.run("go")
    contexts[0].update("much too late")
    await asyncio.sleep(0)

    assert late.is_set()
    assert heard == ["end: quick", "end: slow"]


async def test_updates_after_a_timeout_are_ignored() -> None:
    over, said = asyncio.Event(), asyncio.Event()

    @tool(timeout=0.01)
    async def slow(ctx: ToolContext) -> str:
        ctx.update("in time")
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
            ctx.update("while being cancelled")
            said.set()
        return "late"

    talk = Agent(model=ScriptedModel([tool_call("slow"), text("end")]), tools=[slow]).conversation()
    heard = hear(talk)
    await talk.run("go")
    await said.wait()

    assert heard[0] == "in time"
    assert "while being cancelled" not in heard


async def test_a_sync_tool_shows_its_progress_from_its_thread_in_order() -> None:
    threads: list[str] = []

    @tool
    def work(ctx: ToolContext) -> str:
        threads.append(threading.current_thread().name)
        for n in range(50):
            ctx.update(f"step {n}")
        return "done"

    talk = Agent(model=ScriptedModel([tool_call("work"), text("end")]), tools=[work]).conversation()
    heard = hear(talk)
    await talk.run("go")

    assert threads != [threading.main_thread().name]
    assert heard == [f"step {n}" for n in range(50)] + ["end: done"]


@pytest.mark.parametrize("partial", [object(), {1: object()}, b"bytes", float("nan")], ids=["object", "nested", "bytes", "nan"])
async def test_an_update_that_is_no_result_never_harms_the_run(partial: Any) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        try:
            ctx.update(partial)
        except TypeError:
            return "told at once"
        await asyncio.sleep(0)
        return "done"

    model = ScriptedModel([tool_call("work"), text("end")])
    talk = Agent(model=model, tools=[work]).conversation()
    hear(talk)
    result = await talk.run("go")

    assert result.text == "end"
    assert model.requests[1].messages[-1].text in ("done", "told at once")


@pytest.mark.parametrize("partial", ["text", None, 42, ToolResult("r", details={"n": 1}), [Text("a"), Text("b")]], ids=repr)
async def test_an_update_may_be_whatever_a_body_may_return(partial: Any) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        ctx.update(partial)
        return "done"

    talk = Agent(model=ScriptedModel([tool_call("work"), text("end")]), tools=[work]).conversation()
    heard: list[Any] = []
    talk.on("tool_execution_update", heard.append)
    await talk.run("go")

    assert len(heard) == 1
    assert isinstance(heard[0].partial, ToolResult)


async def test_nobody_listening_means_no_hook_is_asked_about_updates() -> None:
    seen: list[bool] = []
    hooks = [Hook(seam="after_tool_call", fn=lambda o: seen.append(o.partial))]
    await Agent(model=ScriptedModel([tool_call("count"), text("end")]), tools=[count], hooks=hooks, limits=Limits()).run("go")

    assert seen == [False]


async def test_updates_of_a_nested_call_carry_its_parent() -> None:
    @tool
    async def script(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("count", {})).text)

    talk = Agent(model=ScriptedModel([tool_call("script", id="outer"), text("end")]), tools=[count, script]).conversation()
    heard: list[Any] = []
    talk.on("tool_execution_update", lambda e: heard.append((e.parent_call_id, e.partial.text)))
    await talk.run("go")

    assert heard == [("outer", "step 1"), ("outer", '{"secret":2}'), ("outer", "step 3")]


async def test_updates_reach_the_reader_of_a_stream() -> None:
    talk = Agent(model=ScriptedModel([tool_call("count"), text("end")]), tools=[count]).conversation()
    streamed = [e.partial.text async for e in talk.stream("go") if e.type == "tool_execution_update"]

    assert streamed == ["step 1", '{"secret":2}', "step 3"]


async def test_updates_that_a_hook_decides_about_reach_a_stream_that_is_read_from_different_tasks() -> None:
    def redact(outcome: Any) -> Replace | None:
        return Replace(content="***") if outcome.partial else None

    hooks = [Hook(seam="after_tool_call", fn=redact)]
    talk = Agent(model=ScriptedModel([tool_call("count"), text("end")]), tools=[count], hooks=hooks).conversation()
    events, streamed = talk.stream("go"), []
    while (event := await asyncio.create_task(anext(events, None))) is not None:  # type: ignore[arg-type]
        if event.type in ("decision", "tool_execution_update", "tool_execution_end"):
            streamed.append(event.type)

    assert streamed == ["decision", "tool_execution_update"] * 3 + ["tool_execution_end"]


async def test_what_waits_to_be_judged_when_a_run_is_aborted_is_withheld() -> None:
    asked, told = [], []

    def judge(outcome: Any) -> None:
        asked.append((outcome.text, outcome.partial))
        talk.abort()

    talk = Agent(
        model=ScriptedModel([tool_call("count"), text("end")]), tools=[count], hooks=[Hook(seam="after_tool_call", fn=judge)]
    ).conversation()
    talk.on("tool_execution_update", lambda event: told.append(event.partial.text))
    assert (await talk.run("go")).stop_reason == "aborted"
    assert [text for text, partial in asked if partial] == told == ["step 1"]


@pytest.mark.parametrize("timeout", [None, 3600])
async def test_an_abort_reaches_a_hook_that_is_asked_about_an_update(timeout: float | None) -> None:
    asked, heard = asyncio.Event(), []

    async def ponder(outcome: Any) -> None:
        if outcome.partial:
            asked.set()
            await asyncio.Event().wait()

    @tool
    async def wait(ctx: ToolContext) -> None:
        ctx.update("waiting")
        await asyncio.Event().wait()

    agent = Agent(
        model=ScriptedModel([tool_call("wait"), text("end")]), tools=[wait],
        hooks=[Hook(seam="after_tool_call", fn=ponder, timeout=timeout)], limits=Limits(abort_grace=0.01),
    )  # fmt: skip
    talk = agent.conversation()
    talk.on("tool_execution_update", lambda e: heard.append(e.type))
    talk.on("tool_execution_end", lambda e: heard.append(e.outcome))
    async with asyncio.timeout(60):
        running = asyncio.create_task(talk.run("go"))
        await asked.wait()
        talk.abort()
        result = await running

    assert result.stop_reason == "aborted"
    assert heard == ["aborted"]
