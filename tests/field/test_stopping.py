"""Field cases F58, F59, F60, F61, F63: stopping and steering a run that is under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from beforehand import (
    Agent, AssistantMessage, Context, CustomMessage, Hook, HookFailed, Interrupt, Limits, Message, Model, Replace, Request,
    Text, ToolCall, ToolContext, ToolMessage, UserMessage, tool,
)  # fmt: skip
from beforehand.models.base import CallInfo, ModelEvent, TextDelta
from beforehand.testing import ScriptedModel, text, tool_call

from conversation.checks import assert_continuable, assert_valid
from field.entries import Colour, Enter, say


# --- F58: the provider's stream ends with the run -------------------------------------------------


class Producer(Model):
    """Produces chunks for as long as anybody takes them."""

    def __init__(self) -> None:
        self.name = "producer"
        self.produced = 0
        self.closed = False

    async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
        try:
            while True:
                await asyncio.sleep(0)
                self.produced += 1
                yield TextDelta(f"chunk {self.produced} ")
        finally:
            self.closed = True


async def abort_from_a_listener(model: Producer) -> None:
    talk = Agent(model=model).conversation()
    talk.on("message_update", lambda e: talk.abort() if model.produced == 3 else None)
    assert (await talk.run("go")).stop_reason == "aborted"


async def abort_from_outside(model: Producer) -> None:
    third = asyncio.Event()
    talk = Agent(model=model).conversation()
    talk.on("message_update", lambda e: third.set() if model.produced == 3 else None)
    running = asyncio.create_task(talk.run("go"))
    await third.wait()
    talk.abort()
    produced = model.produced
    assert (await running).stop_reason == "aborted"
    assert model.produced <= produced + 1


async def leave_the_stream(model: Producer) -> None:
    events = Agent(model=model).stream("go")
    async for event in events:
        if event.type == "message_update" and model.produced == 3:
            break
    await events.aclose()  # type: ignore[attr-defined]


async def cancel_the_task(model: Producer) -> None:
    third = asyncio.Event()
    talk = Agent(model=model).conversation()
    talk.on("message_update", lambda e: third.set() if model.produced == 3 else None)
    running = asyncio.create_task(talk.run("go"))
    await third.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def interrupt_from_a_hook(model: Producer) -> None:
    hook = Hook(seam="on_chunk", fn=lambda c: Interrupt("enough") if model.produced == 3 else None)
    assert (await Agent(model=model, hooks=[hook]).run("go")).stop_reason == "interrupted"


async def fail_in_a_hook(model: Producer) -> None:
    def fail(chunk: Any) -> None:
        if model.produced == 3:
            raise ValueError("broken")

    with pytest.raises(HookFailed):
        await Agent(model=model, hooks=[Hook(seam="on_chunk", fn=fail)]).run("go")


WAYS_OUT = [abort_from_a_listener, abort_from_outside, leave_the_stream, cancel_the_task, interrupt_from_a_hook, fail_in_a_hook]


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way: way.__name__)
async def test_f58_a_stopped_run_closes_the_providers_stream_within_one_chunk(way_out: Any) -> None:
    model = Producer()

    await way_out(model)

    assert model.closed, "closed before the run was over, not by the garbage collector"
    assert 3 <= model.produced <= 4


# --- F59: an abort reaches a tool -----------------------------------------------------------------


@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
@pytest.mark.parametrize("kind", ["async", "sync", "nested", "sub_agent"])
async def test_f59_an_abort_sets_the_signal_of_a_running_tool_and_the_tool_can_end_by_itself(kind: str, listened: bool) -> None:
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    seen: list[Any] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        started.set()
        await ctx.signal.wait()
        return f"stopped early: {ctx.signal.aborted}"

    @tool
    def work_in_a_thread(ctx: ToolContext) -> str:
        stop = threading.Event()
        ctx.signal.on_abort(stop.set)
        loop.call_soon_threadsafe(started.set)
        assert stop.wait(30)
        return f"stopped early: {ctx.signal.aborted}"

    @tool
    async def script(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("work", {})).text)

    child = Agent(model=ScriptedModel([tool_call("work")]), tools=[work]).as_tool("helper", "Helps.")
    name, args = {
        "async": ("work", {}), "sync": ("work_in_a_thread", {}), "nested": ("script", {}),
        "sub_agent": ("helper", {"prompt": "go"}),
    }[kind]  # fmt: skip
    model = ScriptedModel([tool_call(name, args)])
    after = Hook(seam="after_tool_call", fn=lambda o: seen.append((o.name, o.outcome, o.text)))
    talk = Agent(model=model, tools=[work, work_in_a_thread, script, child], hooks=[after]).conversation()
    if listened:
        talk.subscribe(lambda event: None)

    running = asyncio.create_task(talk.run("go"))
    await started.wait()
    talk.abort("enough")
    result = await running

    assert (result.stop_reason, len(model.requests)) == ("aborted", 1)
    innermost = "work_in_a_thread" if kind == "sync" else "work"
    assert seen[0] == (innermost, "ran", "stopped early: True")
    assert_valid(talk.messages)


@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
@pytest.mark.parametrize("seam", ["finish_turn", "after_turn"])
async def test_f59_a_tool_that_ignores_the_signal_is_cut_off_and_hooks_see_that_it_was_aborted(
    seam: str, listened: bool, colour: Colour
) -> None:
    started, cleaned_up = asyncio.Event(), asyncio.Event()
    seen: list[Any] = []

    @tool
    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.set()
        raise AssertionError("nothing ever sets that event")

    model = ScriptedModel([tool_call("stubborn")])
    after = Hook(seam=seam, fn=colour(lambda turn: seen.append([r.text for r in turn.tool_results])))
    talk = Agent(model=model, tools=[stubborn], hooks=[after], limits=Limits(abort_grace=0.01)).conversation()
    ends: list[Any] = []
    if listened:
        talk.on("tool_execution_end", lambda e: ends.append(e.outcome))

    running = asyncio.create_task(talk.run("go"))
    await started.wait()
    talk.abort()
    result = await running

    assert result.stop_reason == "aborted"
    assert cleaned_up.is_set()
    assert len(seen) == 1
    assert "aborted" in seen[0][0]
    assert ends == (["aborted"] if listened else [])


@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
async def test_f59_a_tool_deaf_even_to_cancellation_does_not_hold_up_the_end_of_the_run(listened: bool) -> None:
    started, release, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def deaf() -> str:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        over.set()
        return "late"

    talk = Agent(model=ScriptedModel([tool_call("deaf")]), tools=[deaf], limits=Limits(abort_grace=0.01)).conversation()
    if listened:
        talk.subscribe(lambda event: None)
    running = asyncio.create_task(talk.run("go"))
    await started.wait()
    talk.abort()
    await asyncio.wait({running}, timeout=10)
    ended_by_itself = running.done()
    at_the_end = list(talk.messages)
    release.set()
    await over.wait()
    await running

    assert ended_by_itself
    assert "aborted" in at_the_end[-1].text
    assert list(talk.messages) == at_the_end


# --- F60: stop at any time ------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [
    "message_update", "tool_execution_start:1", "tool_execution_start:2", "tool_execution_end:1", "tool_execution_end:2",
    "message_start:tool", "message_end:tool", "turn_end", "message_end:prompt", "turn_start",
])  # fmt: skip
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_f60_a_stop_at_any_moment_leaves_a_valid_history_that_can_be_continued(
    moment: str, streamed: bool, mode: str
) -> None:
    @tool
    async def lookup(city: str) -> str:
        return f"{city}: rain"

    model = ScriptedModel([
        [text("", chunks=["Let me ", "look"]), *[tool_call("lookup", {"city": f"city {n}"}, id=n) for n in "12"]],
        text("rain"),
    ])  # fmt: skip
    talk = Agent(model=model, tools=[lookup], tool_mode=mode).conversation()
    kind, _, which = moment.partition(":")
    stopped: list[str] = []

    def stop(event: Any) -> None:
        if event.type == kind and which in ("", getattr(event, "call_id", None), getattr(event, "origin", None)) and not stopped:
            stopped.append(event.type)
            talk.abort()

    talk.subscribe(stop)
    result = await say(talk, "go", streamed=streamed)

    assert stopped
    assert result.stop_reason == "aborted"
    assert len(model.requests) <= 1
    await assert_continuable(talk, model)


@pytest.mark.parametrize("where", ["in_the_model_stream", "in_a_tool", "in_the_second_tool"])
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_f60_a_stop_from_outside_reaches_the_run_wherever_it_waits(where: str, streamed: bool, mode: str) -> None:
    waiting = asyncio.Event()

    @tool
    async def lookup(ctx: ToolContext, n: int) -> str:
        if (where, n) in (("in_a_tool", 1), ("in_the_second_tool", 2)):
            waiting.set()
            await ctx.signal.wait()
        return str(n)

    class Slow(ScriptedModel):
        async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
            async for event in super().stream(request, call):
                yield event
                if where == "in_the_model_stream" and type(event) is TextDelta and len(self.requests) == 1:
                    waiting.set()
                    await asyncio.Event().wait()

    calls = [tool_call("lookup", {"n": n}) for n in (1, 2, 3)]
    model = Slow([[text("Let me look"), *calls], text("done")])
    talk = Agent(model=model, tools=[lookup], tool_mode=mode).conversation()

    running = asyncio.create_task(say(talk, "go", streamed=streamed))
    await waiting.wait()
    talk.abort()
    result = await running

    assert result.stop_reason == "aborted"
    assert len(model.requests) == 1
    await assert_continuable(talk, model)


# --- F61: repair is neutral -----------------------------------------------------------------------

ASKED = AssistantMessage((ToolCall("1", "pay", '{"n": 1}'), ToolCall("2", "pay", '{"n": 2}')), "tool_calls")

INTERRUPTED: dict[str, tuple[list[Message], int]] = {
    "killed_in_the_first_tool": ([UserMessage("pay"), ASKED], 2),
    "killed_in_the_second_tool": ([UserMessage("pay"), ASKED, ToolMessage("1", "pay", "paid 1")], 1),
    "killed_before_the_first_was_written": ([UserMessage("pay"), ASKED, ToolMessage("2", "pay", "paid 2")], 1),
    "with_an_own_record_behind": ([UserMessage("pay"), ASKED, CustomMessage("crash", "at noon")], 2),
    "long_ago": ([UserMessage("pay"), ASKED, UserMessage("hello?"), AssistantMessage((Text("Yes?"),))], 2),
}


@pytest.mark.parametrize("how", list(INTERRUPTED))
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_f61_a_call_without_a_result_is_repaired_as_an_error_of_unknown_cause(how: str, streamed: bool) -> None:
    stored, missing = INTERRUPTED[how]
    ran: list[int] = []

    @tool
    async def pay(n: int) -> str:
        ran.append(n)
        return f"paid {n}"

    model = ScriptedModel([text("I do not know whether it was paid.")])
    talk = Agent(model=model, tools=[pay]).conversation(stored)
    result = await say(talk, "was it paid?", streamed=streamed)

    sent = [m for m in model.requests[0].messages if isinstance(m, ToolMessage)]
    repaired = [m for m in sent if not m.text.startswith("paid")]
    assert len(repaired) == missing
    assert len(sent) == 2
    for message in repaired:
        assert message.is_error
        assert "not known" in message.text
        for cause in ("cancel", "user", "abort", "success", "timed out"):
            assert cause not in message.text.lower()
    assert_results_follow_their_calls(model.requests[0].messages)
    assert ran == []
    assert [d.verdict for d in result.decisions] == ["Repaired"] * missing


PAID = ToolMessage("1", "pay", "paid 1"), ToolMessage("2", "pay", "paid 2")

SAID_MEANWHILE: dict[str, tuple[list[Message], list[str]]] = {
    "by_a_person": ([UserMessage("pay"), ASKED, UserMessage("and?"), *PAID], ["1", "2"]),
    "between_the_results": ([UserMessage("pay"), ASKED, PAID[0], UserMessage("and?"), PAID[1]], ["2"]),
    "by_a_person_and_the_model": (
        [UserMessage("pay"), ASKED, UserMessage("and?"), AssistantMessage((Text("Wait."),)), PAID[1], PAID[0]], ["2", "1"],
    ),
    "for_the_record": ([UserMessage("pay"), ASKED, CustomMessage("note", "at noon"), *PAID], ["1", "2"]),
}  # fmt: skip


@pytest.mark.parametrize("how", list(SAID_MEANWHILE))
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_a_result_stored_behind_what_was_said_meanwhile_is_still_the_calls_result(how: str, streamed: bool) -> None:
    stored, late = SAID_MEANWHILE[how]
    model = ScriptedModel([text("Both were paid."), text("Yes.")])
    talk = Agent(model=model).conversation(stored)
    first, second = await say(talk, "was it paid?", streamed=streamed), await say(talk, "sure?", streamed=streamed)

    for request in model.requests:
        assert sorted(m.text for m in request.messages if isinstance(m, ToolMessage)) == ["paid 1", "paid 2"]
        assert_results_follow_their_calls(request.messages)
    for result in (first, second):
        assert [(d.verdict, d.call_id) for d in result.decisions] == [("Repaired", call_id) for call_id in late]
    assert list(talk.messages[: len(stored)]) == stored


@pytest.mark.parametrize("before", [0, 1])
async def test_two_calls_of_one_reply_with_one_id_have_a_late_result_each(before: int) -> None:
    twice = AssistantMessage((ToolCall("1", "pay", '{"n": 1}'), ToolCall("1", "pay", '{"n": 2}')), "tool_calls")
    results = ToolMessage("1", "pay", "paid 1"), ToolMessage("1", "pay", "paid 2")
    model = ScriptedModel([text("Both were paid.")])
    stored = [UserMessage("pay"), twice, *results[:before], UserMessage("and?"), *results[before:]]
    await Agent(model=model).conversation(stored).run("x")
    assert [m.text for m in model.requests[0].messages if isinstance(m, ToolMessage)] == ["paid 1", "paid 2"]
    assert_results_follow_their_calls(model.requests[0].messages)


async def test_a_result_is_none_of_an_earlier_call_whose_id_was_used_again() -> None:
    once = AssistantMessage((ToolCall("1", "pay", '{"n": 1}'),), "tool_calls")
    model = ScriptedModel([text("I do not know about the first.")])
    stored = [UserMessage("pay"), once, UserMessage("and?"), once, UserMessage("?"), PAID[0]]
    await Agent(model=model).conversation(stored).run("x")
    sent = [m for m in model.requests[0].messages if isinstance(m, ToolMessage)]
    assert ["not known" in m.text for m in sent] == [True, False]
    assert_results_follow_their_calls(model.requests[0].messages)


def assert_results_follow_their_calls(messages: Sequence[Message]) -> None:
    """As every endpoint wants it: the results of a reply's calls stand right behind it, one for each."""
    waiting: set[str] = set()
    for message in messages:
        if message.role == "tool":
            waiting.remove(message.tool_call_id)
        else:
            assert waiting == set()
            waiting = {call.id for call in message.tool_calls} if message.role == "assistant" else set()
    assert waiting == set()


async def test_f61_a_result_that_answers_no_call_is_not_sent() -> None:
    model = ScriptedModel([text("fine")])
    talk = Agent(model=model).conversation([UserMessage("a"), ToolMessage("ghost", "pay", "paid")])
    await talk.run("go on")

    assert [m.text for m in model.requests[0].messages] == ["a", "go on"]


CUTTERS: dict[str, Any] = {
    "prepare_request": lambda plan: Replace(context=Context("", (UserMessage("pay"), ASKED), plan.context.tools)),
    "transform_context": lambda view: Replace(messages=[ASKED, UserMessage("go")]),
    "convert_to_llm": lambda view: Replace(messages=[ToolMessage("1", "pay", "paid 1"), UserMessage("go")]),
}


@pytest.mark.parametrize("seam", list(CUTTERS))
async def test_f61_a_hook_that_parts_a_call_from_its_result_never_gets_an_invalid_request_out(
    seam: str, enter: Enter, colour: Colour
) -> None:
    model = ScriptedModel([text("fine")])
    result = await enter(Agent(model=model, hooks=[Hook(seam=seam, fn=colour(CUTTERS[seam]), name="cutter")]))

    for request in model.requests:
        assert_results_follow_their_calls(request.messages)
    assert model.requests or (isinstance(result.error, HookFailed) and result.error.hook == "cutter")


# --- F63: a word in the middle of a turn ----------------------------------------------------------


@pytest.mark.parametrize("said", ["as_text", "as_a_message"])
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_f63_what_is_said_during_the_first_of_three_tools_is_in_the_next_request_and_no_result_is_lost(
    said: str, streamed: bool, mode: str
) -> None:
    first_runs, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def step(n: int) -> str:
        if n == 1:
            first_runs.set()
            await go_on.wait()
        return f"step {n} done"

    model = ScriptedModel([[tool_call("step", {"n": n}) for n in (1, 2, 3)], text("stopped")])
    talk = Agent(model=model, tools=[step], tool_mode=mode).conversation()

    running = asyncio.create_task(say(talk, "do the steps", streamed=streamed))
    await first_runs.wait()
    talk.steer("stop after this" if said == "as_text" else UserMessage("stop after this"))
    go_on.set()
    result = await running

    assert [m.text for m in model.requests[1].messages] == [
        "do the steps", "", "step 1 done", "step 2 done", "step 3 done", "stop after this",
    ]  # fmt: skip
    assert model.requests[1].messages[-1].role == "user"
    assert len(model.requests) == 2
    assert result.text == "stopped"
    assert talk.queued == ()


async def test_f63_several_words_keep_their_order_and_come_one_a_turn_by_default() -> None:
    @tool
    async def step() -> str:
        for word in ("one", "two", "three"):
            talk.steer(word)
        return "done"

    model = ScriptedModel([tool_call("step"), text("a"), text("b"), text("c")])
    talk = Agent(model=model, tools=[step]).conversation()
    await talk.run("go")

    assert [r.messages[-1].text for r in model.requests] == ["go", "one", "two", "three"]
