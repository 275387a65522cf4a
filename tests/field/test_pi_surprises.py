"""Ten surprises of another agent core, by number: what this one decided."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import (
    Agent, AssistantMessage, Block, Context, Continue, Hook, HookFailed, Limits, ModelError, Replace, ServerError,
    ToolContext, ToolResult, UserMessage, tool,
)  # fmt: skip
from beforehand.testing import FunctionModel, ScriptedModel, error, finish, text, tool_call

from field.entries import Colour, Enter, say


@tool
async def echo(x: str = "a") -> str:
    return x


# --- 1: an abort in the middle of a batch ---------------------------------------------------------


@pytest.mark.parametrize("at", ["1", "2", "3"])
@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call", "after_tool_call"])
async def test_surprise_1_every_call_of_an_aborted_batch_is_announced_and_gets_a_result(
    seam: str, at: str, mode: str, colour: Colour
) -> None:
    model = ScriptedModel([[tool_call("echo", {"x": x}, id=x) for x in "123"]])
    hook = Hook(seam=seam, fn=colour(lambda context: talk.abort() if context.args["x"] == at else None))
    talk = Agent(model=model, tools=[echo], hooks=[hook], tool_mode=mode).conversation()
    seen: list[Any] = []
    talk.on("tool_execution_start", lambda e: seen.append(("start", e.call_id)))
    talk.on("tool_execution_end", lambda e: seen.append(("end", e.call_id)))

    result = await talk.run("go")

    assert sorted(seen) == [(edge, n) for edge in ("end", "start") for n in "123"]
    results = {m.tool_call_id: m for m in result.messages if m.role == "tool"}
    assert list(results) == ["1", "2", "3"]
    assert result.stop_reason == "aborted"
    if seam != "after_tool_call":
        assert [m.text for m in results.values() if int(m.tool_call_id) >= int(at)] == ["Operation aborted"] * (4 - int(at))
        assert all(m.is_error for m in results.values() if m.text == "Operation aborted")


# --- 2: no request after an abort -----------------------------------------------------------------


@pytest.mark.parametrize("moment", ["tool", "after_tool_call", "finish_turn", "after_turn", "prepare_next_turn", "before_turn"])
async def test_surprise_2_after_an_abort_in_or_behind_a_tool_the_model_is_not_asked_again(moment: str) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        if moment == "tool":
            talk.abort()
        return "done"

    def abort(context: Any) -> None:
        if model.requests:
            talk.abort()

    hooks = [] if moment == "tool" else [Hook(seam=moment, fn=abort)]
    model = ScriptedModel([tool_call("work"), text("never")])
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation()
    talk.steer("first word")
    talk.steer("left in the queue")

    result = await talk.run("go")

    assert result.stop_reason == "aborted"
    assert len(model.requests) == 1
    assert [m.text for m in talk.queued] == ["left in the queue"]
    assert [m.text for m in result.messages] == ["go", "first word", "", "done"]


# --- 3: steering is never lost --------------------------------------------------------------------


@pytest.mark.parametrize("seam", ["prepare_next_turn", "before_turn", "on_message", "prepare_request", "authorize_request"])
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_surprise_3_a_queued_word_is_in_the_history_or_still_queued_when_a_hook_fails(
    seam: str, queue: str, colour: Colour
) -> None:
    def fail(context: Any) -> None:
        if len(model.requests) == 1 and getattr(context, "origin", queue) == queue:
            raise RuntimeError("broken")

    model = ScriptedModel([text("one"), text("two"), text("three")])
    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=colour(fail))]).conversation()
    getattr(talk, queue)("do not lose me") if queue == "follow_up" else None
    if queue == "steer":
        talk.on(
            "message_end", lambda e: talk.steer("do not lose me") if e.origin == "model" and len(model.requests) == 1 else None
        )

    with pytest.raises(HookFailed):
        await talk.run("go")

    places = [m.text for m in talk.messages].count("do not lose me") + [m.text for m in talk.queued].count("do not lose me")
    assert places == 1


# --- 4: agent_end carries the whole run -----------------------------------------------------------


@pytest.mark.parametrize("how", ["completed", "hook_fails", "model_fails", "aborted"])
async def test_surprise_4_the_last_event_carries_every_message_of_the_run_however_it_ended(how: str) -> None:
    def fail(plan: Any) -> None:
        if len(model.requests) == 1:
            if how == "aborted":
                talk.abort()
            if how == "hook_fails":
                raise RuntimeError("broken")

    model = ScriptedModel([tool_call("echo"), error("down") if how == "model_fails" else text("end")])
    talk = Agent(model=model, tools=[echo], hooks=[Hook(seam="prepare_request", fn=fail)]).conversation([UserMessage("earlier")])
    ends: list[Any] = []
    talk.on("agent_end", ends.append)

    result = await talk.run("go", check=False)

    (end,) = ends
    assert list(end.messages) == list(result.messages) == list(talk.messages)[1:]
    assert [m.role for m in end.messages][:3] == ["user", "assistant", "tool"]
    assert end.stop_reason == result.stop_reason == {"completed": "completed", "aborted": "aborted"}.get(how, "error")


# --- 5: which hooks see a failed turn -------------------------------------------------------------


@pytest.mark.parametrize("how", ["model_fails", "model_is_cut", "prepare_request", "authorize_request", "on_message", "on_chunk"])
async def test_surprise_5_the_saving_hook_sees_a_failed_turn_once_whether_a_model_or_a_hook_failed(
    how: str, colour: Colour
) -> None:
    saved: list[Any] = []

    def fail(context: Any) -> None:
        if getattr(context, "origin", "model") == "model":
            raise RuntimeError("broken")

    hooks = [Hook(seam="after_turn", fn=colour(lambda turn: saved.append((turn.number, turn.message))))]
    if not how.startswith("model"):
        hooks.append(Hook(seam=how, fn=colour(fail)))
    script: dict[str, Any] = {"model_fails": [text("par"), error("down")], "model_is_cut": [text("par"), finish("error")]}
    model = ScriptedModel([script.get(how, text("fine"))])
    talk = Agent(model=model, hooks=hooks).conversation()
    turn_ends: list[Any] = []
    talk.on("turn_end", turn_ends.append)
    await talk.run("go", check=False)

    ((number, message),) = saved
    assert number == 1
    assert message.stop_reason == "error"
    assert [e.message for e in turn_ends] == [message]
    assert message == talk.messages[-1]


async def test_surprise_5_the_deciding_hook_is_asked_after_a_model_failure_but_cannot_undo_it(
    enter: Enter, colour: Colour
) -> None:
    asked: list[int] = []

    def decide(turn: Any) -> Continue:
        asked.append(turn.number)
        return Continue()

    model = ScriptedModel([error("down"), text("never")])
    result = await enter(Agent(model=model, hooks=[Hook(seam="finish_turn", fn=colour(decide))]))

    assert asked == [1]
    assert len(model.requests) == 1
    assert isinstance(result.error, ServerError)


# --- 6: an error is an error ----------------------------------------------------------------------


@pytest.mark.parametrize("seam", [
    "before_run", "before_turn", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "get_api_key",
    "authorize_request", "on_chunk", "on_message", "finish_turn", "after_turn",
])  # fmt: skip
@pytest.mark.parametrize("entry", ["run", "stream", "conversation"])
async def test_surprise_6_a_failing_hook_raises_at_the_caller_unless_he_says_otherwise(
    seam: str, entry: str, colour: Colour
) -> None:
    def fail(context: Any) -> None:
        raise RuntimeError("broken")

    agent = Agent(model=ScriptedModel([text("one")]), hooks=[Hook(seam=seam, fn=colour(fail), name="broken_hook")])
    talk = agent.conversation()

    async def go() -> None:
        if entry == "run":
            await agent.run("go")
        elif entry == "conversation":
            await talk.run("go")
        else:
            async for _ in agent.stream("go"):
                pass

    with pytest.raises(HookFailed, match="broken_hook") as caught:
        await go()
    quiet = await agent.replace(model=ScriptedModel([text("one")])).run("go", check=False)

    assert caught.value.result.stop_reason == quiet.stop_reason == "error"
    assert isinstance(quiet.error, HookFailed)
    assert quiet.error.seam == seam


async def test_surprise_6_a_failing_model_raises_at_the_caller_with_what_was_done_until_then() -> None:
    model = ScriptedModel([tool_call("echo", {"x": "done"}), error("down")])
    with pytest.raises(ModelError, match="down") as caught:
        await Agent(model=model, tools=[echo]).run("go")

    assert [m.text for m in caught.value.result.messages][:3] == ["go", "", "done"]


# --- 7: what sticks and what does not -------------------------------------------------------------


@pytest.mark.parametrize(
    ("once", "expected"), [(False, ["other", "other", "main", "main"]), (True, ["other", "main", "main", "main"])]
)
async def test_surprise_7_a_model_a_hook_chose_stays_for_the_run_unless_it_says_once(
    once: bool, expected: list[str], colour: Colour
) -> None:
    asked: list[str] = []

    def model(name: str) -> FunctionModel:
        def answer(request: Any) -> Any:
            asked.append(name)
            return tool_call("echo") if request.messages[-1].role == "user" else text("end")

        return FunctionModel(answer, name=name)

    def choose(plan: Any) -> Replace | None:
        return None if asked else Replace(model=other, once=once)

    other = model("other")
    talk = Agent(model=model("main"), tools=[echo], hooks=[Hook(seam="prepare_request", fn=colour(choose))]).conversation()
    await talk.run("first")
    await talk.run("second")

    assert asked == expected


@pytest.mark.parametrize(("once", "expected"), [(False, ["high", "high"]), (True, ["high", "off"])])
async def test_surprise_7_so_does_a_thinking_level(once: bool, expected: list[str], enter: Enter, colour: Colour) -> None:
    def choose(plan: Any) -> Replace | None:
        return None if model.requests else Replace(thinking_level="high", once=once)

    model = ScriptedModel([tool_call("echo"), text("end")])
    result = await enter(Agent(model=model, tools=[echo], hooks=[Hook(seam="prepare_request", fn=colour(choose))]))

    assert [r.options.thinking_level for r in model.requests] == expected
    assert [m.thinking_level for m in result.messages if isinstance(m, AssistantMessage)] == expected


# --- 8: tool declarations travel with the request -------------------------------------------------


@pytest.mark.parametrize("seam", ["prepare_request", "prepare_next_turn"])
async def test_surprise_8_a_context_a_hook_put_in_place_keeps_the_tools_and_needs_no_message_to_say_so(
    seam: str, colour: Colour
) -> None:
    def swap(context: Any) -> Replace | None:
        if context.run.turn == 1 and (seam == "prepare_next_turn" or not context.context.messages[-1].text.startswith("fresh")):
            return Replace(context=Context(context.context.system, (UserMessage("fresh start"),), context.context.tools))
        return None

    model = ScriptedModel([tool_call("echo"), text("end")])
    talk = Agent(model=model, tools=[echo], instructions="Be brief.", hooks=[Hook(seam=seam, fn=colour(swap))]).conversation()
    await talk.run("go")

    assert [[t.name for t in r.tools] for r in model.requests] == [["echo"], ["echo"]]
    assert [r.system for r in model.requests] == ["Be brief.", "Be brief."]
    assert all(m.role != "system" for r in model.requests for m in r.messages)
    swapped = model.requests[1 if seam == "prepare_next_turn" else 0].messages
    assert swapped[0].text == "fresh start"
    assert [m.text for m in talk.messages] == ["go", "", "a", "end"]


# --- 9: terminate and queued work -----------------------------------------------------------------


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_surprise_9_a_terminating_tool_ends_the_automatic_follow_up_and_not_what_is_queued(queue: str) -> None:
    @tool
    async def stop() -> ToolResult:
        getattr(talk, queue)("one more thing")
        return ToolResult("stopped", terminate=True)

    model = ScriptedModel([tool_call("stop"), text("the one more thing")])
    talk = Agent(model=model, tools=[stop]).conversation()
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "", "stopped", "one more thing", "the one more thing"]
    assert talk.queued == ()


async def test_surprise_9_without_queued_work_a_terminating_tool_ends_the_run(enter: Enter) -> None:
    @tool
    async def stop() -> ToolResult:
        return ToolResult("stopped", terminate=True)

    model = ScriptedModel([tool_call("stop"), text("never")])
    result = await enter(Agent(model=model, tools=[stop]))

    assert (result.stop_reason, len(model.requests)) == ("completed", 1)


# --- 10: partial replies with calls ---------------------------------------------------------------


@pytest.mark.parametrize("how", ["error", "abort", "abort_outside", "hook_fails"])
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_surprise_10_a_reply_that_was_cut_leaves_no_call_behind_that_nobody_answers(how: str, streamed: bool) -> None:
    ran: list[int] = []
    waits = asyncio.Event()

    @tool
    async def work() -> str:
        ran.append(1)
        return "done"

    class Hanging(ScriptedModel):
        async def stream(self, request: Any, call: Any = None) -> Any:
            async for event in super().stream(request, *([call] if call else [])):
                yield event
                if how == "abort_outside" and len(self.requests) == 1 and getattr(event, "name", None) == "work":
                    waits.set()
                    await asyncio.Event().wait()

    def react(chunk: Any) -> None:
        if chunk.kind == "tool_call" and len(model.requests) == 1:
            if how == "abort":
                talk.abort()
            if how == "hook_fails":
                raise RuntimeError("broken")

    part = [text("I will "), tool_call("work", "{", chunks=["{", "}"])]
    model = Hanging([[*part, error("down")] if how == "error" else part, text("fine")])
    talk = Agent(model=model, tools=[work], hooks=[Hook(seam="on_chunk", fn=react)]).conversation()
    running = asyncio.create_task(say(talk, "go", streamed=streamed))
    if how == "abort_outside":
        await waits.wait()
        talk.abort()
    first = await running
    second = await talk.run("go on")

    assert ran == []
    assert first.stop_reason == ("aborted" if how.startswith("abort") else "error")
    assert not any(m.tool_calls for m in talk.messages if isinstance(m, AssistantMessage))
    assert second.text == "fine"
    assert all(m.role != "tool" for m in model.requests[1].messages)


async def test_surprise_10_a_batch_cut_by_an_abort_is_answered_in_the_next_request() -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        talk.abort()
        return "done"

    model = ScriptedModel([[tool_call("work", id="1"), tool_call("work", id="2")], text("fine")])
    talk = Agent(model=model, tools=[work], tool_mode="sequential", limits=Limits(abort_grace=0.01)).conversation()
    await talk.run("go")
    await talk.run("go on")

    assert [(m.role, m.text) for m in model.requests[1].messages] == [
        ("user", "go"), ("assistant", ""), ("tool", "done"), ("tool", "Operation aborted"), ("user", "go on"),
    ]  # fmt: skip


async def test_a_positive_control_a_block_without_an_abort_lets_the_other_calls_run(mode: str, enter: Enter) -> None:
    gate = Hook(seam="before_tool_call", fn=lambda c: Block("no") if c.args["x"] == "2" else None)
    model = ScriptedModel([[tool_call("echo", {"x": x}) for x in "123"], text("end")])
    result = await enter(Agent(model=model, tools=[echo], hooks=[gate], tool_mode=mode))

    assert [m.text for m in result.messages if m.role == "tool"] == ["1", "no", "3"]
