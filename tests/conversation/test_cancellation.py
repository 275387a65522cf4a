"""The caller cancels, or his time limit passes: the run ends at once, the talk stays valid, nothing goes on behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, AssistantMessage, Hook, Limits, Request, ToolContext, ToolMessage, tool
from beforehand.models.base import CallInfo, ModelEvent, TextDelta
from beforehand.seams import SEAMS
from beforehand.testing import ScriptedModel, text, tool_call

from conversation.checks import assert_continuable, assert_valid

PLACES = [
    *[f"hook:{spec.name}" for spec in SEAMS if spec.name != "before_compaction"],
    *["model:before", "model:between", "tool", "nested_tool", "sub_agent", "on_ask", "listener", "instructions"],
]


class Trap:
    """Hangs at one place of a run, the first time it is reached."""

    def __init__(self, place: str, *, deaf: bool = False) -> None:
        self.place, self.deaf = place, deaf
        self.reached = asyncio.Event()

    async def at(self, place: str) -> None:
        if place != self.place or self.reached.is_set():
            return
        self.reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self.deaf:
                raise


def trapped(trap: Trap, *, listened: bool = True) -> tuple[Any, ScriptedModel, list[str]]:
    """A talk that passes every place in its first turn."""
    heard: list[str] = []

    class Slow(ScriptedModel):
        async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
            self.requests.append(request)
            await trap.at("model:before")
            self.requests.pop()
            async for event in super().stream(request, call):
                yield event
                if type(event) is TextDelta:
                    await trap.at("model:between")

    @tool
    async def work(ctx: ToolContext) -> str:
        await trap.at("tool")
        await ctx.call_tool("inner", {})
        await ctx.call_tool("child", {"prompt": "go"})
        return "worked"

    @tool
    async def inner() -> str:
        await trap.at("nested_tool")
        return "inner"

    @tool
    async def deepest() -> str:
        await trap.at("sub_agent")
        return "deepest"

    async def on_ask(pending: Any) -> Approve:
        await trap.at("on_ask")
        return Approve()

    async def instructions(run: Any) -> str:
        await trap.at("instructions")
        return "Be brief."

    def hook(seam: str) -> Hook:
        async def fn(context: Any) -> None:
            await trap.at(f"hook:{seam}")

        return Hook(seam=seam, fn=fn)

    child = Agent(model=ScriptedModel([tool_call("deepest"), text("child")]), tools=[deepest]).as_tool("child", "Helps.")
    seam = trap.place.removeprefix("hook:")
    hooks = [
        Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"), tools=("work",)),
        *([hook(seam)] if seam != trap.place else []),
    ]
    model = Slow([[text("I will"), tool_call("work"), tool_call("inner")], text("end")])
    talk = Agent(model=model, tools=[work, inner, child], hooks=hooks, on_ask=on_ask, instructions=instructions).conversation()

    async def listener(event: Any) -> None:
        heard.append(event.type)
        if event.type == "tool_execution_start":
            await trap.at("listener")

    if listened or trap.place == "listener":
        talk.subscribe(listener)
    return talk, model, heard


async def settle() -> None:
    """Let whatever was left behind have its say."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
async def test_cancelling_the_task_ends_the_run_wherever_it_is_and_the_talk_can_go_on(place: str, listened: bool) -> None:
    trap = Trap(place)
    talk, model, heard = trapped(trap, listened=listened)
    tasks_before = asyncio.all_tasks()
    running = asyncio.create_task(talk.run("go"))
    await trap.reached.wait()
    requests = len(model.requests)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    told = list(heard)
    await settle()

    assert not talk.is_running
    assert len(model.requests) == requests
    assert heard == told, "nothing is told of a run that is over"
    assert asyncio.all_tasks() == tasks_before
    assert_valid(talk.messages)
    await assert_continuable(talk, model)


async def test_a_reply_that_is_being_told_when_the_caller_cancels_is_in_the_talk_once() -> None:
    told = asyncio.Event()

    async def listener(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "assistant":
            told.set()
            await asyncio.Event().wait()

    @tool
    async def work() -> str:
        raise NotImplementedError

    talk = Agent(model=ScriptedModel([[text("I will"), tool_call("work")]]), tools=[work]).conversation()
    talk.subscribe(listener)
    running = asyncio.create_task(talk.run("go"))
    await told.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [(m.role, m.text) for m in talk.messages[:2]] == [("user", "go"), ("assistant", "I will")]
    assert [m.role for m in talk.messages[2:]] == ["tool"]
    assert_valid(talk.messages)


@pytest.mark.parametrize("place", PLACES)
async def test_a_time_limit_around_a_run_is_a_timeout_error_wherever_it_is(place: str) -> None:
    trap = Trap(place)
    talk, model, _ = trapped(trap)
    loop = asyncio.get_running_loop()

    async def run_in_time() -> None:
        async with asyncio.timeout(None) as limit:
            over = asyncio.create_task(trap.reached.wait())
            over.add_done_callback(lambda _: limit.reschedule(loop.time()))  # time is up as soon as it hangs there
            await talk.run("go")

    with pytest.raises(TimeoutError):
        await run_in_time()
    await assert_continuable(talk, model)


@pytest.mark.parametrize("place", ["tool", "nested_tool", "sub_agent"])
@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
async def test_a_tool_that_swallows_the_cancellation_does_not_keep_the_run_alive(place: str, listened: bool) -> None:
    trap = Trap(place, deaf=True)
    talk, model, heard = trapped(trap, listened=listened)
    running = asyncio.create_task(talk.run("go"))
    await trap.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    told, stored = list(heard), list(talk.messages)
    await settle()

    assert len(model.requests) == 1
    assert heard == told
    assert list(talk.messages) == stored
    assert_valid(talk.messages)
    await assert_continuable(talk, model)


async def test_the_result_of_a_cancelled_call_says_that_nobody_knows_whether_it_ran() -> None:
    trap = Trap("tool")
    talk, _, _ = trapped(trap)
    running = asyncio.create_task(talk.run("go"))
    await trap.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    results = [m for m in talk.messages if isinstance(m, ToolMessage)]
    assert len(results) == 2
    assert results[0].is_error
    assert "not known" in results[0].text


async def test_what_was_shown_of_a_cancelled_reply_is_kept_and_marked() -> None:
    trap = Trap("model:between")
    talk, _, _ = trapped(trap)
    running = asyncio.create_task(talk.run("go"))
    await trap.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    reply = talk.messages[-1]
    assert isinstance(reply, AssistantMessage)
    assert (reply.text, reply.stop_reason) == ("I will", "aborted")


async def test_an_abort_and_a_cancellation_at_the_same_time_are_a_cancellation() -> None:
    trap = Trap("tool")
    talk, model, _ = trapped(trap)
    running = asyncio.create_task(talk.run("go"))
    await trap.reached.wait()
    talk.abort()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await assert_continuable(talk, model)


async def test_a_group_of_runs_is_cancelled_as_a_whole_when_one_fails() -> None:
    trap = Trap("tool")
    talk, model, _ = trapped(trap)

    async def fail() -> None:
        await trap.reached.wait()
        raise LookupError("elsewhere")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(talk.run("go"))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await both()

    assert [type(e) for e in caught.value.exceptions] == [LookupError]
    await assert_continuable(talk, model)


@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
async def test_a_run_made_while_tidying_up_after_a_cancellation_is_a_run_like_any_other(listened: bool) -> None:
    """Its task has been cancelled before, which is not meant for this run."""
    ready, results = asyncio.Event(), []

    @tool
    async def raises() -> str:
        raise asyncio.CancelledError("mine")

    @tool
    async def waits(ctx: ToolContext) -> str:
        talk.abort()
        await asyncio.Event().wait()
        return "late"

    model = ScriptedModel([tool_call("raises"), text("tidied up"), tool_call("waits"), text("never")])
    talk = Agent(model=model, tools=[raises, waits], limits=Limits(abort_grace=0.01)).conversation()
    if listened:
        talk.subscribe(lambda event: None)

    async def work() -> None:
        try:
            ready.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            results.append(await talk.run("tidy up"))
            results.append(await talk.run("and then"))

    working = asyncio.create_task(work())
    await ready.wait()
    working.cancel()
    await working

    assert [(r.stop_reason, r.text) for r in results] == [("completed", "tidied up"), ("aborted", "")]
    await assert_continuable(talk, model)


async def test_queued_messages_survive_a_cancellation() -> None:
    trap = Trap("tool")
    talk, _, _ = trapped(trap)
    running = asyncio.create_task(talk.run("go"))
    await trap.reached.wait()
    talk.steer("steered")
    talk.follow_up("followed")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert [m.text for m in talk.queued] == ["steered", "followed"]


async def test_a_hook_that_fails_just_as_its_run_is_cancelled_leaves_no_failure_that_nobody_has_looked_at() -> None:
    trouble: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: trouble.append(context["message"]))
    running: list[asyncio.Task[Any]] = []

    async def fail(context: Any) -> None:
        running.pop().cancel()
        raise ValueError("gone")

    agent = Agent(model=ScriptedModel([text("end")]), hooks=[Hook(seam="before_turn", fn=fail, timeout=3600)])
    running.append(asyncio.create_task(agent.run("go")))
    await asyncio.wait({*running})
    await asyncio.sleep(0)
    gc.collect()

    assert trouble == []


@pytest.mark.parametrize("heard", [False, True])
async def test_a_tool_that_fails_just_as_its_run_is_cancelled_leaves_no_failure_that_nobody_has_looked_at(heard: bool) -> None:
    trouble: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: trouble.append(context["message"]))
    running: list[asyncio.Task[Any]] = []

    @tool(timeout=3600)
    async def fail() -> None:
        running.pop().cancel()
        raise ValueError("gone")

    talk = Agent(model=ScriptedModel([tool_call("fail"), text("end")]), tools=[fail]).conversation()
    if heard:
        talk.subscribe(lambda event: None)
    running.append(asyncio.create_task(talk.run("go")))
    await asyncio.wait({*running})
    await asyncio.sleep(0)
    gc.collect()

    assert trouble == []
