"""A run as an iterator of events: the run goes on only while its reader asks for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from beforehand import (
    Agent, Block, ConversationBusy, Hook, HookFailed, Limits, Loop, Model, Request, RunError, ServerError, ToolContext, tool,
)  # fmt: skip
from beforehand.models.base import CallInfo, Finish, ModelEvent, TextDelta
from beforehand.testing import ScriptedModel, error, text, tool_call

from conversation.checks import assert_continuable, assert_valid


class Desk:
    """A tool that leaves a trace of having run."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    @tool
    async def work(self, n: int) -> str:
        self.ran.append(n)
        return f"worked {n}"


def script() -> list[Any]:
    return [
        [text("", chunks=["I ", "will"]), tool_call("work", {"n": 1}, id="1"), tool_call("work", {"n": 2}, id="2")],
        text("end"),
    ]


EVENTS = [
    "agent_start", "turn_start", "message_start", "message_end", "message_start", "message_update", "message_update",
    "message_update", "message_update", "message_end", "tool_execution_start", "tool_execution_start", "tool_execution_end",
    "tool_execution_end", "message_start", "message_end", "message_start", "message_end", "turn_end", "turn_start",
    "message_start", "message_update", "message_end", "turn_end", "agent_end",
]  # fmt: skip


async def test_the_events_of_a_stream_are_those_of_a_run() -> None:
    heard: list[Any] = []
    agent = Agent(model=ScriptedModel(script()), tools=[Desk().work])
    talk = agent.conversation()
    talk.subscribe(heard.append)
    await talk.run("go", run_id="r")
    from_agent = [e async for e in agent.replace(model=ScriptedModel(script())).stream("go", run_id="r")]
    from_talk = [e async for e in agent.replace(model=ScriptedModel(script())).conversation().stream("go", run_id="r")]

    assert [e.type for e in heard] == EVENTS
    assert from_agent == from_talk == heard


async def test_a_stream_takes_what_a_run_takes() -> None:
    seen: list[Any] = []
    hooks = [Hook(seam="before_run", fn=lambda start: seen.append((start.run.run_id, start.run.deps)))]
    agent = Agent(model=ScriptedModel([text("one")]), hooks=hooks)
    ends = [e async for e in agent.stream("go", run_id="r", deps="d", limits=Limits(max_turns=1)) if e.type == "agent_end"]

    assert seen == [("r", "d")]
    assert ends[0].run_id == "r"


async def test_the_result_is_with_the_talk_when_the_stream_is_over() -> None:
    talk = Agent(model=ScriptedModel([text("one")])).conversation()
    assert talk.result is None
    async for _ in talk.stream("go"):
        assert talk.is_running

    assert talk.result is not None
    assert (talk.result.text, talk.is_running) == ("one", False)


@pytest.mark.parametrize("loops", [(), (Loop("aside", "Wait."),)], ids=["alone", "with loops"])
async def test_the_result_is_with_the_stream_when_it_is_over(loops: tuple[Loop, ...]) -> None:
    stream = Agent(model=ScriptedModel([text("one")]), loops=loops).stream("go")
    async for _ in stream:
        assert stream.result is None

    assert stream.result is not None
    assert (stream.result.text, stream.result.stop_reason) == ("one", "completed")


async def test_a_stream_that_was_left_has_a_result_and_one_that_failed_has_it_with_its_error() -> None:
    failed, left = (Agent(model=ScriptedModel([error("down")])).stream("go") for _ in range(2))
    with pytest.raises(RunError, match="down") as caught:
        [event async for event in failed]
    await anext(left)
    await left.aclose()
    assert (failed.result, left.result.stop_reason if left.result else None) == (None, "aborted")
    assert caught.value.result.stop_reason == "error"


# --- leaving --------------------------------------------------------------------------------------


async def leave_by_break(events: AsyncIterator[Any], after: int) -> None:
    """Leave as people do: nothing closes the iterator but Python itself."""
    seen = 0
    async for _ in events:
        seen += 1
        if seen == after:
            break


async def leave_by_exception(events: AsyncIterator[Any], after: int) -> None:
    async def read() -> None:
        seen = 0
        async with aclosing(events):  # type: ignore[type-var]
            async for _ in events:
                seen += 1
                if seen == after:
                    raise LookupError

    with pytest.raises(LookupError):
        await read()


async def leave_by_aclose(events: AsyncIterator[Any], after: int) -> None:
    for _ in range(after):
        await anext(events)
    await events.aclose()  # type: ignore[attr-defined]


WAYS = {"break": leave_by_break, "exception": leave_by_exception, "aclose": leave_by_aclose}


@pytest.mark.parametrize("after", range(1, len(EVENTS)), ids=lambda n: f"{n}-{EVENTS[n - 1]}")
@pytest.mark.parametrize("way", list(WAYS))
async def test_leaving_a_stream_at_any_event_aborts_the_run_there(way: str, after: int) -> None:
    model, desk = ScriptedModel(script()), Desk()
    talk = Agent(model=model, tools=[desk.work]).conversation()
    heard: list[str] = []
    talk.subscribe(lambda e: heard.append(e.type))

    await WAYS[way](talk.stream("go"), after)
    await talk.wait_for_idle()

    assert talk.result is not None
    over = EVENTS[after - 1] == "turn_end" and after == len(EVENTS) - 1
    assert talk.result.stop_reason == "aborted" or over
    requests = 0 if after <= 4 else 1 if after <= 20 else 2
    assert len(model.requests) == requests, "nothing leaves behind the reader's back"
    first_end = EVENTS.index("tool_execution_end") + 1
    assert desk.ran == ([] if after < first_end else [1, 2]), "a call that was only announced does not run"
    assert heard[-1] == "agent_end"
    await assert_continuable(talk, model)


async def test_a_tool_that_was_announced_does_not_run_if_the_reader_leaves_there() -> None:
    desk = Desk()
    talk = Agent(model=ScriptedModel([tool_call("work", {"n": 1}), text("never")]), tools=[desk.work]).conversation()
    async for event in talk.stream("go"):
        if event.type == "tool_execution_start":
            break
    await talk.wait_for_idle()

    assert desk.ran == []
    assert [m.text for m in talk.messages] == ["go", "", "Operation aborted"]


async def test_leaving_a_stream_of_an_agent_reaches_a_running_tool() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def long(ctx: ToolContext) -> str:
        ctx.update("begun")
        started.set()
        await ctx.signal.wait()
        stopped.set()
        return "stopped"

    async for event in Agent(model=ScriptedModel([tool_call("long"), text("never")]), tools=[long]).stream("go"):
        if event.type == "tool_execution_update":
            break
    await stopped.wait()

    assert started.is_set()


@pytest.mark.parametrize("following", ["run", "stream", "compact"])
async def test_what_follows_a_stream_that_was_left_waits_for_its_end(following: str) -> None:
    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model).conversation()
    async for event in talk.stream("go"):
        if event.type == "message_update":
            break
    if following == "run":
        await talk.run("again")
    elif following == "stream":
        async for _ in talk.stream("again"):
            pass
    else:
        await talk.compact(keep=0)

    assert_valid(talk.messages)
    if following == "compact":
        assert len(talk.messages) == 1
    else:
        assert [m.text for m in talk.messages] == ["go", "one", "again", "two"]


async def test_an_iterator_that_was_never_started_has_done_nothing() -> None:
    model = ScriptedModel([text("one")])
    talk = Agent(model=model).conversation()
    events = talk.stream("never read")
    await events.aclose()  # type: ignore[attr-defined]

    assert (model.requests, list(talk.messages), talk.is_running) == ([], [], False)
    assert (await talk.run("go")).text == "one"


async def test_after_the_last_event_there_is_nothing_to_abort() -> None:
    talk = Agent(model=ScriptedModel([text("one")])).conversation()
    async for event in talk.stream("go"):
        if event.type == "agent_end":
            break
    await talk.wait_for_idle()

    assert talk.result is not None
    assert talk.result.stop_reason == "completed"


# --- errors ---------------------------------------------------------------------------------------


async def test_an_error_of_the_run_is_raised_at_the_end_after_every_event() -> None:
    heard: list[str] = []

    async def read() -> None:
        async for event in Agent(model=ScriptedModel([error("down")])).stream("go"):
            heard.append(event.type)

    with pytest.raises(ServerError, match="down") as caught:
        await read()

    assert heard[-2:] == ["turn_end", "agent_end"]
    assert caught.value.result.stop_reason == "error"


async def test_a_failing_hook_is_raised_at_the_end_of_a_stream_too() -> None:
    heard: list[str] = []
    hooks = [Hook(seam="finish_turn", fn=lambda turn: 42)]

    async def read() -> None:
        async for event in Agent(model=ScriptedModel([text("one")]), hooks=hooks).stream("go"):
            heard.append(event.type)

    with pytest.raises(HookFailed):
        await read()

    assert heard[-1] == "agent_end"


async def test_a_run_that_was_blocked_before_it_began_is_an_empty_stream() -> None:
    hooks = [Hook(seam="before_run", fn=lambda start: Block("closed"))]
    talk = Agent(model=ScriptedModel(), hooks=hooks).conversation()

    assert [e.type async for e in talk.stream("go") if e.type != "decision"] == []
    assert talk.result is not None
    assert talk.result.stop_reason == "blocked"


async def test_a_busy_talk_says_so_at_the_first_event_asked_for() -> None:
    talk = Agent(model=ScriptedModel([text("one")])).conversation()
    first = talk.stream("go")
    await anext(first)
    with pytest.raises(ConversationBusy):
        await anext(talk.stream("me too"))
    rest = [e.type async for e in first]

    assert rest[-1] == "agent_end"


# --- back-pressure --------------------------------------------------------------------------------


class Counting(Model):
    """Counts the chunks it was asked for."""

    def __init__(self, chunks: int) -> None:
        self.name, self.chunks, self.produced = "counting", chunks, 0

    async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
        for n in range(self.chunks):
            self.produced += 1
            yield TextDelta(f"{n} ")
        yield Finish("stop")


async def test_a_slow_reader_slows_the_model_down() -> None:
    model = Counting(50)
    read = 0
    async for event in Agent(model=model).stream("go"):
        if event.type == "message_update":
            read += 1
            for _ in range(5):  # a model that ran ahead would do so here
                await asyncio.sleep(0)
            assert model.produced == read

    assert read == 50


async def test_nothing_happens_while_the_reader_does_something_else() -> None:
    steps: list[str] = []
    hooks = [Hook(seam=seam, fn=lambda context, seam=seam: steps.append(seam)) for seam in ("before_tool_call", "finish_turn")]  # type: ignore[misc]
    desk = Desk()
    talk = Agent(model=ScriptedModel(script()), tools=[desk.work], hooks=hooks).conversation()
    async for event in talk.stream("go"):
        before = (list(steps), list(desk.ran), len(talk.messages))
        for _ in range(5):
            await asyncio.sleep(0)
        if event.type not in ("tool_execution_end", "tool_execution_update"):  # bodies run in tasks of their own
            assert (list(steps), list(desk.ran), len(talk.messages)) == before

    assert desk.ran == [1, 2]


async def test_a_reader_may_steer_abort_and_look_between_two_events() -> None:
    talk = Agent(model=ScriptedModel([text("one"), text("two"), text("never")])).conversation()
    async for event in talk.stream("go"):
        if event.type == "message_end" and event.origin == "model":
            if event.message.text == "one":
                talk.steer("go on")
            else:
                talk.abort()

    assert [m.text for m in talk.messages] == ["go", "one", "go on", "two"]
    assert talk.result is not None
    assert talk.result.stop_reason == "aborted"


async def test_two_streams_of_one_agent_can_be_read_in_turns() -> None:
    agent = Agent(model=Counting(3))
    one, two = agent.stream("a"), agent.stream("b")
    texts: dict[str, list[str]] = {"one": [], "two": []}
    for _ in range(20):
        for name, events in (("one", one), ("two", two)):
            event: Any = await anext(events, None)
            if event is not None and event.type == "message_update":
                texts[name].append(event.delta)

    assert texts == {"one": ["0 ", "1 ", "2 "], "two": ["0 ", "1 ", "2 "]}


async def test_a_stream_may_be_read_from_different_tasks() -> None:
    desk = Desk()
    events = Agent(model=ScriptedModel(script()), tools=[desk.work]).stream("go")
    types: list[str] = []
    while True:
        event: Any = await asyncio.create_task(anext(events, None))  # type: ignore[arg-type]
        if event is None:
            break
        types.append(event.type)

    assert types == EVENTS
    assert desk.ran == [1, 2]


async def test_an_abort_reaches_the_task_that_reads_now_and_not_the_one_that_read_first() -> None:
    reached = asyncio.Event()

    class Hanging(ScriptedModel):
        async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
            async for event in super().stream(request, call):
                yield event
                if len(self.requests) == 1:
                    reached.set()
                    await asyncio.Event().wait()

    model = Hanging([text("I will")])
    talk = Agent(model=model).conversation()
    events = talk.stream("go")
    await asyncio.create_task(anext(events))  # type: ignore[arg-type]

    async def rest() -> list[str]:
        return [event.type async for event in events]

    reading = asyncio.create_task(rest())
    await reached.wait()
    talk.abort()

    assert (await reading)[-1] == "agent_end"
    assert talk.result is not None
    assert talk.result.stop_reason == "aborted"
    await assert_continuable(talk, model)


# --- cancelling the reader ------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["in_the_model", "in_a_tool", "in_the_loop_body"])
async def test_cancelling_the_reader_stops_the_run_and_leaves_a_valid_talk(where: str) -> None:
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    @tool
    async def work(n: int) -> str:
        if where == "in_a_tool":
            await hang()
        return "worked"

    class Slow(ScriptedModel):
        async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
            async for event in super().stream(request, call):
                yield event
                if where == "in_the_model" and len(self.requests) == 1:
                    await hang()

    model = Slow(script())
    talk = Agent(model=model, tools=[work]).conversation()

    async def read() -> None:
        async with aclosing(talk.stream("go")) as events:  # type: ignore[type-var]
            async for event in events:
                if where == "in_the_loop_body" and event.type == "tool_execution_start":
                    await hang()

    reading = asyncio.create_task(read())
    await reached.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert not talk.is_running
    assert_valid(talk.messages)
    assert len(model.requests) == 1
    await assert_continuable(talk, model)


async def test_a_time_limit_around_a_stream_is_a_timeout_error() -> None:
    limits: list[asyncio.Timeout] = []

    class Never(ScriptedModel):
        async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
            if not self.requests:
                self.requests.append(request)
                limits[0].reschedule(asyncio.get_running_loop().time())  # time is up now
                await asyncio.Event().wait()
            async for event in super().stream(request, call):
                yield event

    model = Never()
    talk = Agent(model=model).conversation()

    async def read() -> None:
        async with asyncio.timeout(None) as limit:
            limits.append(limit)
            async for _ in talk.stream("go"):
                pass

    with pytest.raises(TimeoutError):
        await read()

    await assert_continuable(talk, model)
