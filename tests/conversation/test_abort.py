"""An abort at every stage: nothing leaves any more, every call has a result, and the talk can go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from beforehand import (
    Agent, Approve, Ask, AssistantMessage, Continue, Hold, Hook, HookFailed, Limits, Queue, Replace, Request, Resend,
    ToolContext, ToolMessage, tool,
)  # fmt: skip
from beforehand.models.base import CallInfo, ModelEvent
from beforehand.seams import SEAMS
from beforehand.testing import FunctionModel, ScriptedModel, text, thinking, tool_call

from conversation.checks import assert_continuable, assert_valid

QUICK = Limits(abort_grace=0.01)
TALK = [[text("I will"), tool_call("work", {"n": 1}), tool_call("work", {"n": 2})], text("never")]
IN_A_RUN = [spec.name for spec in SEAMS if spec.name != "before_compaction"]
BEFORE_A_REPLY = IN_A_RUN[:8]


@tool
async def work(n: int) -> str:
    return f"done {n}"


async def run_and_abort(talk: Any, reached: asyncio.Event, reason: str | None = None) -> Any:
    """Start a run, abort it from outside once it has reached a place, return its result."""
    running = asyncio.create_task(talk.run("go"))
    await reached.wait()
    talk.abort(reason)
    return await running


def watch(talk: Any) -> list[str]:
    events: list[str] = []
    talk.subscribe(lambda e: events.append(e.type))
    return events


# --- in hooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seam", IN_A_RUN)
@pytest.mark.parametrize("how", ["from_the_hook", "from_outside_while_it_hangs"])
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_an_abort_in_a_hook_at_any_seam_lets_nothing_leave_and_leaves_a_valid_history(
    seam: str, how: str, mode: str
) -> None:
    reached = asyncio.Event()
    requests_at_the_abort: list[int] = []

    async def act(context: Any) -> None:
        if reached.is_set():
            return
        reached.set()
        requests_at_the_abort.append(len(model.requests))
        if how == "from_the_hook":
            talk.abort()
        else:
            await asyncio.Event().wait()

    model = ScriptedModel(TALK)
    hooks = [Hook(seam=seam, fn=act)]
    talk = Agent(model=model, tools=[work], hooks=hooks, tool_mode=mode, limits=QUICK).conversation()
    result = await run_and_abort(talk, reached)

    assert result.stop_reason == "aborted"
    assert result.error is None
    assert len(model.requests) == requests_at_the_abort[0]
    await assert_continuable(talk, model)


@pytest.mark.parametrize("seam", [name for name in IN_A_RUN if name not in ("before_run",)])
async def test_an_aborted_run_still_ends_its_turn_and_itself_and_saves_its_progress(seam: str) -> None:
    calls: list[str] = []
    hooks = [Hook(seam=seam, fn=lambda context: talk.abort())]
    for name in ("finish_turn", "after_turn", "prepare_next_turn"):
        hooks.append(Hook(seam=name, fn=lambda context, name=name: calls.append(name)))  # type: ignore[misc]
    model = ScriptedModel(TALK)
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation()
    events = watch(talk)
    await talk.run("go")

    assert events[-2:] == ["turn_end", "agent_end"]
    assert events.count("turn_end") == 1
    assert calls == ["finish_turn", "after_turn"] + (["prepare_next_turn"] if seam == "prepare_next_turn" else [])


@pytest.mark.parametrize("seam", ["before_turn", "on_message"])
async def test_after_an_abort_no_hook_prepares_a_request(seam: str) -> None:
    asked: list[str] = []
    hooks = [Hook(seam=seam, fn=lambda context: talk.abort())]
    for name in (
        "prepare_request",
        "transform_context",
        "convert_to_llm",
        "before_provider_call",
        "get_api_key",
        "authorize_request",
    ):
        hooks.append(Hook(seam=name, fn=lambda context, name=name: asked.append(name)))  # type: ignore[misc]
    model = ScriptedModel([text("never")])
    talk = Agent(model=model, hooks=hooks).conversation()
    result = await talk.run("go")

    assert (result.stop_reason, model.requests, asked) == ("aborted", [], [])


async def test_nothing_a_hook_says_makes_an_aborted_run_go_on() -> None:
    def after_the_abort(context: Any) -> Any:
        talk.abort()
        return [Continue(), Resend(), Queue("go on")]

    model = ScriptedModel([text("one"), text("never")])
    talk = Agent(model=model, hooks=[Hook(seam="finish_turn", fn=after_the_abort)]).conversation()
    result = await talk.run("go")

    assert (result.stop_reason, len(model.requests)) == ("aborted", 1)
    assert [m.text for m in talk.messages] == ["go", "one", "go on"]


async def test_progress_that_cannot_be_saved_fails_an_aborted_run_too() -> None:
    def fail(turn: Any) -> None:
        raise RuntimeError("could not be saved")

    model = ScriptedModel([text("never")])
    hooks = [Hook(seam="prepare_request", fn=lambda plan: talk.abort()), Hook(seam="after_turn", fn=fail)]
    talk = Agent(model=model, hooks=hooks).conversation()
    events = watch(talk)
    result = await talk.run("go", check=False)

    assert isinstance(result.error, HookFailed)
    assert (result.stop_reason, result.error.seam) == ("error", "after_turn")
    assert model.requests == []
    assert events[-1] == "agent_end"
    assert_valid(talk.messages)


async def test_a_hook_that_fails_because_of_the_abort_is_on_record_and_the_run_is_aborted() -> None:
    async def fail(turn: Any) -> None:
        raise ConnectionError("closed by the abort")

    model = ScriptedModel([text("never")])
    hooks = [Hook(seam="prepare_request", fn=lambda plan: talk.abort()), Hook(seam="finish_turn", fn=fail)]
    talk = Agent(model=model, hooks=hooks).conversation()
    events = watch(talk)
    result = await talk.run("go", check=False)

    assert (result.stop_reason, result.error) == ("aborted", None)
    assert [(d.seam, d.verdict) for d in result.decisions] == [("finish_turn", "failed")]
    assert events[-2:] == ["turn_end", "agent_end"]


# --- while the model answers ----------------------------------------------------------------------


class Hanging(ScriptedModel):
    """Hangs in the first reply behind its last event before the end, until it is closed."""

    def __init__(self, responses: Any, reached: asyncio.Event) -> None:
        super().__init__(responses)
        self.reached, self.closed = reached, False

    async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
        first = len(self.requests) == 0
        try:
            async for event in super().stream(request, call):
                if first and type(event).__name__ == "Finish":
                    self.reached.set()
                    await asyncio.Event().wait()
                yield event
        finally:
            self.closed = True


PARTIAL = {
    "nothing_yet": ([], []),
    "text": ([text("I wi")], ["I wi"]),
    "thinking": ([thinking("hm")], [""]),
    "text_and_a_call": ([text("I wi"), tool_call("work", {"n": 1})], ["I wi"]),
    "only_a_call": ([tool_call("work", {"n": 1})], []),
}


@pytest.mark.parametrize(("parts", "kept"), PARTIAL.values(), ids=list(PARTIAL))
@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
async def test_an_abort_in_a_reply_keeps_what_was_shown_marked_and_never_an_empty_record(
    parts: list[Any], kept: list[str], listened: bool
) -> None:
    reached = asyncio.Event()
    model = Hanging([parts], reached)
    talk = Agent(model=model, tools=[work]).conversation()
    events = watch(talk) if listened else []
    result = await run_and_abort(talk, reached)

    assert result.stop_reason == "aborted"
    assert model.closed
    replies = [m for m in talk.messages if isinstance(m, AssistantMessage)]
    assert [m.text for m in replies] == kept
    assert all(m.stop_reason == "aborted" and m.content and not m.tool_calls for m in replies)
    assert events.count("tool_execution_start") == 0
    assert (events[-2:] == ["turn_end", "agent_end"]) is listened
    await assert_continuable(talk, model)


@pytest.mark.parametrize("seam", ["on_message", "finish_turn", "after_turn"])
async def test_a_hook_that_hangs_over_a_reply_that_was_cut_has_the_grace_and_no_more(seam: str) -> None:
    asked: list[str] = []

    async def hang(context: Any) -> None:
        if seam != "on_message" or context.message.role == "assistant":
            asked.append(seam)
            await asyncio.Event().wait()

    reached = asyncio.Event()
    model = Hanging([[text("half")]], reached)
    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=hang)], limits=QUICK).conversation()
    result = await asyncio.wait_for(run_and_abort(talk, reached), 60)

    assert set(asked) == {seam}
    assert result.stop_reason == "aborted"


async def test_an_abort_before_the_first_byte_cuts_the_request_at_once() -> None:
    asked = asyncio.Event()

    async def never(request: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    model = FunctionModel(never)
    talk = Agent(model=model).conversation()  # the default grace: five seconds would be noticed
    result = await run_and_abort(talk, asked, "changed my mind")

    assert result.stop_reason == "aborted"
    assert [m.text for m in talk.messages] == ["go"]


async def test_text_that_a_hook_holds_back_at_the_abort_is_never_shown() -> None:
    reached = asyncio.Event()
    model = Hanging([text("", chunks=["safe ", "secret"])], reached)
    hooks = [Hook(seam="on_chunk", fn=lambda chunk: Hold(6))]
    talk = Agent(model=model, hooks=hooks).conversation()
    events: list[Any] = []
    talk.subscribe(events.append)
    await run_and_abort(talk, reached)

    assert "secret" not in repr(events)
    assert "secret" not in repr(list(talk.messages))
    assert talk.messages[1].text == "safe "


async def test_the_reason_given_is_with_the_signal_and_on_the_cut_reply() -> None:
    reached = asyncio.Event()
    signals: list[Any] = []
    model = Hanging([text("I wi")], reached)
    talk = Agent(model=model, hooks=[Hook(seam="finish_turn", fn=lambda t: signals.append(t.run.signal))]).conversation()
    await run_and_abort(talk, reached, "the user left")

    assert [(s.aborted, s.reason) for s in signals] == [(True, "the user left")]
    assert talk.messages[-1].error == "the user left"  # type: ignore[union-attr]


# --- while a tool runs ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync", "deaf", "deaf_sync", "cleans_up", "raises"])
@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_an_abort_in_a_tool_of_any_kind_gives_every_call_a_result(kind: str, listened: bool, mode: str) -> None:
    reached, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def listens(ctx: ToolContext) -> str:
        reached.set()
        await ctx.signal.wait()
        if kind == "raises":
            raise RuntimeError("stopped by the signal")
        return "stopped by the signal"

    async def deaf(ctx: ToolContext) -> str:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets that event")

    async def cleans_up(ctx: ToolContext) -> str:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
        raise AssertionError("nobody sets that event")

    def in_a_thread(ctx: ToolContext) -> str:
        stop = threading.Event()
        ctx.signal.on_abort(stop.set)
        loop.call_soon_threadsafe(reached.set)
        assert stop.wait(30)
        return "stopped by the signal"

    def deaf_in_a_thread(ctx: ToolContext) -> str:
        loop.call_soon_threadsafe(reached.set)
        assert release.wait(30)
        return "late"

    in_time = {"async": "ran", "sync": "ran", "raises": "failed"}
    bodies: dict[str, Any] = {
        "async": listens,
        "raises": listens,
        "deaf": deaf,
        "cleans_up": cleans_up,
        "sync": in_a_thread,
        "deaf_sync": deaf_in_a_thread,
    }
    model = ScriptedModel([[tool_call("body"), tool_call("work", {"n": 2})], text("never")])
    limits = Limits() if kind in in_time else QUICK
    talk = Agent(model=model, tools=[tool(name="body")(bodies[kind]), work], tool_mode=mode, limits=limits).conversation()
    outcomes: dict[str, str] = {}
    if listened:
        talk.on("tool_execution_end", lambda e: outcomes.__setitem__(e.name, e.outcome))
    result = await run_and_abort(talk, reached)
    release.set()

    assert result.stop_reason == "aborted"
    assert len(model.requests) == 1
    first, second = [m for m in talk.messages if isinstance(m, ToolMessage)]
    assert ("stopped by the signal" in first.text) is (kind in in_time)
    assert ("aborted" in first.text) is (kind not in in_time)
    assert second.text == ("done 2" if mode == "parallel" else "Operation aborted")
    if listened:
        assert outcomes == {"body": in_time.get(kind, "aborted"), "work": "ran" if mode == "parallel" else "aborted"}
    await assert_continuable(talk, model)


async def test_a_call_that_ended_in_time_passes_seam_13_although_the_run_is_aborted() -> None:
    reached = asyncio.Event()

    @tool
    async def listens(ctx: ToolContext) -> str:
        reached.set()
        await ctx.signal.wait()
        return "DNI 12345678Z"

    model = ScriptedModel([tool_call("listens")])
    hooks = [Hook(seam="after_tool_call", fn=lambda o: Replace(content=o.text.replace("12345678Z", "***")))]
    talk = Agent(model=model, tools=[listens], hooks=hooks).conversation()
    await run_and_abort(talk, reached)

    assert talk.messages[-1].text == "DNI ***"


async def test_a_call_that_was_cut_off_does_not_pass_seam_13() -> None:
    reached = asyncio.Event()
    asked: list[Any] = []

    @tool
    async def deaf() -> str:
        reached.set()
        await asyncio.Event().wait()
        return "late"

    model = ScriptedModel([tool_call("deaf")])
    talk = Agent(model=model, tools=[deaf], hooks=[Hook(seam="after_tool_call", fn=asked.append)], limits=QUICK).conversation()
    await run_and_abort(talk, reached)

    assert asked == []
    assert "not known" in talk.messages[-1].text


@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
async def test_a_body_that_swallows_its_cancellation_and_returns_after_the_grace_is_aborted(listened: bool) -> None:
    reached = asyncio.Event()

    @tool
    async def swallows() -> str:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "late"

    talk = Agent(model=ScriptedModel([tool_call("swallows")]), tools=[swallows], limits=QUICK).conversation()
    if listened:
        talk.subscribe(lambda e: None)
    await run_and_abort(talk, reached)

    assert "aborted" in talk.messages[-1].text
    assert "late" not in talk.messages[-1].text


async def test_an_abort_reaches_the_innermost_sub_agent() -> None:
    reached = asyncio.Event()
    inner_results: list[Any] = []

    @tool
    async def deaf() -> str:
        reached.set()
        await asyncio.Event().wait()
        return "late"

    child_model = ScriptedModel([tool_call("deaf"), text("never")])
    saved = Hook(seam="after_turn", fn=lambda t: inner_results.append([r.text for r in t.tool_results]))
    child = Agent(model=child_model, tools=[deaf], hooks=[saved], limits=QUICK).as_tool("child", "Helps.")
    model = ScriptedModel([tool_call("child", {"prompt": "go"}), text("never")])
    talk = Agent(model=model, tools=[child]).conversation()
    result = await run_and_abort(talk, reached)

    assert result.stop_reason == "aborted"
    assert (len(model.requests), len(child_model.requests)) == (1, 1)
    assert "aborted" in inner_results[0][0]
    await assert_continuable(talk, model)


# --- while a person is asked ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["from_the_handler", "while_it_waits", "sync_handler"])
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_an_abort_while_a_person_is_asked_runs_nothing(how: str, mode: str) -> None:
    reached = asyncio.Event()
    ran: list[int] = []

    @tool
    async def pay(n: int) -> str:
        ran.append(n)
        return "paid"

    async def handler(pending: Any) -> Approve:
        reached.set()
        if how == "while_it_waits":
            await asyncio.Event().wait()
        talk.abort()
        return Approve()

    def sync_handler(pending: Any) -> Approve:
        reached.set()
        talk.abort()
        return Approve()

    model = ScriptedModel([[tool_call("pay", {"n": n}) for n in (1, 2)], text("never")])
    hooks = [Hook(seam="before_tool_call", fn=lambda c: Ask("Pay?"))]
    on_ask: Any = sync_handler if how == "sync_handler" else handler
    talk = Agent(model=model, tools=[pay], hooks=hooks, on_ask=on_ask, tool_mode=mode, limits=QUICK).conversation()
    result = await run_and_abort(talk, reached)

    assert ran == []
    assert result.stop_reason == "aborted"
    assert [m.text for m in talk.messages if m.role == "tool"] == ["Operation aborted"] * 2
    await assert_continuable(talk, model)


# --- in listeners ---------------------------------------------------------------------------------

EVENTS = [
    "agent_start", "turn_start", "message_start", "message_update", "message_end", "tool_execution_start", "tool_execution_end",
    "decision", "turn_end",
]  # fmt: skip


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_abort_in_a_listener_of_any_event_lets_nothing_leave(name: str, kind: str) -> None:
    requests_at_the_abort: list[int] = []

    def listener(event: Any) -> None:
        if not requests_at_the_abort:
            requests_at_the_abort.append(len(model.requests))
            talk.abort()

    async def async_listener(event: Any) -> None:
        await asyncio.sleep(0)
        listener(event)

    model = ScriptedModel(TALK)
    hooks = [Hook(seam="prepare_tool_call", fn=lambda c: Queue("noted"))]  # makes a decision
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation()
    talk.on(name, listener if kind == "sync" else async_listener)
    result = await talk.run("go")

    assert result.stop_reason == "aborted"
    assert len(model.requests) == requests_at_the_abort[0]
    await assert_continuable(talk, model)


async def test_an_abort_when_the_run_is_over_comes_too_late_and_changes_nothing() -> None:
    model = ScriptedModel([text("one")])
    talk = Agent(model=model).conversation()
    talk.on("agent_end", lambda e: talk.abort())
    result = await talk.run("go")

    assert result.stop_reason == "completed"
    await assert_continuable(talk, model)


# --- other ----------------------------------------------------------------------------------------


async def test_an_abort_when_nothing_runs_does_nothing_to_the_next_run() -> None:
    talk = Agent(model=ScriptedModel([text("one")])).conversation()
    talk.abort("too early")
    result = await talk.run("go")

    assert (result.stop_reason, result.text) == ("completed", "one")


async def test_two_aborts_are_one_and_the_first_reason_counts() -> None:
    reached = asyncio.Event()
    model = Hanging([text("I wi")], reached)
    talk = Agent(model=model).conversation()
    running = asyncio.create_task(talk.run("go"))
    await reached.wait()
    talk.abort("first")
    talk.abort("second")
    await running

    assert talk.messages[-1].error == "first"  # type: ignore[union-attr]


async def test_queued_messages_stay_queued_through_an_abort_and_are_taken_by_the_next_run() -> None:
    reached = asyncio.Event()
    model = Hanging([text("I wi"), text("one"), text("two")], reached)
    talk = Agent(model=model).conversation()
    running = asyncio.create_task(talk.run("go"))
    await reached.wait()
    talk.steer("steered")
    talk.follow_up("followed")
    talk.abort()
    await running
    assert [m.text for m in talk.queued] == ["steered", "followed"]
    result = await talk.run("again")

    assert [m.text for m in result.messages] == ["again", "steered", "one", "followed", "two"]


async def test_an_aborted_run_neither_raises_nor_cancels_its_task() -> None:
    reached = asyncio.Event()
    model = Hanging([text("I wi")], reached)
    talk = Agent(model=model).conversation()
    states: list[Any] = []

    async def go() -> None:
        await talk.run("go")
        task = asyncio.current_task()
        assert task is not None
        states.append(task.cancelling())
        await asyncio.sleep(0)  # a cancellation left behind would strike here
        states.append("alive")

    running = asyncio.create_task(go())
    await reached.wait()
    talk.abort()
    await running

    assert states == [0, "alive"]


@pytest.mark.parametrize("place", ["hook", "tool", "on_ask", "instructions"])
@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
async def test_what_swallows_our_cancellation_leaves_none_behind_in_the_callers_task(place: str, listened: bool) -> None:
    reached = asyncio.Event()
    after: list[Any] = []

    async def swallow(here: str) -> None:
        if here == place and not reached.is_set():
            reached.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    async def ask(call: Any) -> Ask:
        await swallow("hook")
        return Ask("May it?")

    async def on_ask(pending: Any) -> Approve:
        await swallow("on_ask")
        return Approve()

    async def instructions(run: Any) -> str:
        await swallow("instructions")
        return "Be brief."

    @tool
    async def body() -> str:
        await swallow("tool")
        return "late"

    model = ScriptedModel([tool_call("body"), text("never")])
    hooks = [Hook(seam="before_tool_call", fn=ask)]
    agent = Agent(model=model, tools=[body], hooks=hooks, on_ask=on_ask, instructions=instructions, limits=QUICK)
    talk = agent.conversation()
    if listened:
        talk.subscribe(lambda event: None)

    async def go() -> None:
        after.append((await talk.run("go")).stop_reason)
        task = asyncio.current_task()
        assert task is not None
        after.append(task.cancelling())
        await asyncio.sleep(0)
        after.append("alive")

    running = asyncio.create_task(go())
    await reached.wait()
    talk.abort()
    await running

    assert after == ["aborted", 0, "alive"]
    await assert_continuable(talk, model)


async def test_an_abort_leaves_no_task_behind() -> None:
    reached = asyncio.Event()

    @tool
    async def deaf() -> str:
        reached.set()
        await asyncio.Event().wait()
        return "late"

    talk = Agent(model=ScriptedModel([[tool_call("deaf"), tool_call("deaf")]]), tools=[deaf], limits=QUICK).conversation()
    talk.subscribe(lambda e: None)
    before = asyncio.all_tasks()
    await run_and_abort(talk, reached)
    for _ in range(5):
        await asyncio.sleep(0)

    assert asyncio.all_tasks() == before
    assert_valid(talk.messages)


async def test_without_a_grace_a_tool_is_waited_for() -> None:
    reached, finish = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        reached.set()
        await finish.wait()
        return "took its time"

    talk = Agent(model=ScriptedModel([tool_call("slow")]), tools=[slow], limits=Limits(abort_grace=None)).conversation()
    running = asyncio.create_task(talk.run("go"))
    await reached.wait()
    talk.abort()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not running.done()
    finish.set()
    result = await running

    assert (result.stop_reason, talk.messages[-1].text) == ("aborted", "took its time")


@pytest.mark.parametrize("grace", [0, 0.01])
async def test_calls_in_a_body_that_is_left_behind_have_their_end_before_the_run_has_its_own(grace: float) -> None:
    begun, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                pass
        asyncio.current_task().add_done_callback(lambda _: ended.set())  # type: ignore[union-attr]
        return "landed"

    @tool
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call_tool("stubborn", {})).text

    agent = Agent(model=ScriptedModel([tool_call("outer", {}, id="c"), text("never")]), tools=[outer, stubborn])
    talk = agent.replace(limits=Limits(abort_grace=grace)).conversation()
    heard: list[tuple[str, ...]] = []
    talk.on("tool_execution_start", lambda e: heard.append(("start", e.call_id)))
    talk.on("tool_execution_end", lambda e: heard.append(("end", e.call_id, e.outcome)))
    talk.on("agent_end", lambda e: heard.append((e.stop_reason,)))
    assert (await run_and_abort(talk, begun)).stop_reason == "aborted"
    by_then = [*heard]
    go.set()
    await ended.wait()
    assert by_then == [("start", "c"), ("start", "c/1"), ("end", "c", "aborted"), ("end", "c/1", "aborted"), ("aborted",)]
    assert heard == by_then, "nothing is heard of what it gives"
