"""When a hook fails in the middle of something, what was let pass before stays, and nothing more of it goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from beforehand import Hook, HookFailed, Replace, ToolContext, tool
from beforehand.testing import text, thinking, tool_call
from seams.refusals import BEGUN
from seams.stage import ONLY_TEXT, Stage, at, play


def down(_: Any) -> None:
    raise OSError("the policy service is down")


def only_first(call: Any) -> None:
    if call.args["n"] == 1:
        raise OSError("the policy service is down")


async def test_text_let_pass_before_the_failure_is_kept_and_nothing_after_it() -> None:
    def guard(chunk: Any) -> None:
        if "1234" in chunk.pending:
            raise OSError("the policy service is down")

    stage = await play(Hook(seam="on_chunk", fn=guard), replies=[text("", chunks=["My PIN ", "is 1234, ", "keep it."])])
    assert isinstance(stage.result.error, HookFailed)
    assert stage.shown == "My PIN "
    assert (stage.history[-1], stage.talk.messages[-1].stop_reason) == (("assistant", "My PIN "), "error")


async def test_text_held_back_when_the_failure_comes_is_dropped() -> None:
    def guard(chunk: Any) -> Any:
        if chunk.final:
            raise OSError("the policy service is down")
        return Replace(text=chunk.pending, hold=len(chunk.pending))

    stage = await play(Hook(seam="on_chunk", fn=guard), replies=ONLY_TEXT)
    assert isinstance(stage.result.error, HookFailed)
    assert (stage.shown, [m for m in stage.history if m[1]]) == ("", BEGUN)


@pytest.mark.parametrize("kind", ["text", "thinking", "tool_call"])
async def test_a_failure_in_any_channel_lets_no_call_run(kind: str) -> None:
    def guard(chunk: Any) -> None:
        if chunk.kind == kind:
            raise OSError("the policy service is down")

    reply = [thinking("Hm."), text("Let me look."), tool_call("look", {"n": 1})]
    control = await play(replies=[reply, text("All done.")])
    stage = await play(Hook(seam="on_chunk", fn=guard), replies=[reply, text("All done.")])
    assert control.bodies == [1]
    assert (stage.bodies, stage.requests, stage.result.stop_reason) == ([], 1, "error")
    assert isinstance(stage.result.error, HookFailed)


@pytest.mark.parametrize("hold", [True, False])
async def test_a_reply_whose_message_hook_fails_is_in_no_history_and_in_no_later_request(hold: bool) -> None:
    failing = first_reply_fails()
    stage = Stage(Hook(seam="on_message", fn=failing, hold=hold), replies=[text("My PIN is 1234."), text("All done.")])
    await stage.run()
    assert isinstance(stage.result.error, HookFailed)
    assert "1234" not in str(stage.history), "the history would hold what nobody let pass"
    assert "1234" not in stage.shown
    await stage.run("Again")
    assert (stage.result.text, "1234" in str(stage.asked(-1))) == ("All done.", False)


def first_reply_fails() -> Callable[[Any], None]:
    failed: list[None] = []

    def guard(incoming: Any) -> None:
        if incoming.origin == "model" and not failed:
            failed.append(None)
            raise OSError("the policy service is down")

    return guard


async def test_a_tool_result_whose_message_hook_fails_is_withheld_and_the_call_still_answered() -> None:
    def guard(incoming: Any) -> None:
        if incoming.origin == "tool":
            raise OSError("the policy service is down")

    stage = await play(Hook(seam="on_message", fn=guard))
    assert isinstance(stage.result.error, HookFailed)
    assert (stage.bodies, stage.requests) == ([1], 1)
    [result] = stage.results
    assert (result.is_error, "saw 1" in str(result)) == (True, False)


async def test_a_failure_about_one_call_leaves_its_siblings_alone() -> None:
    two = [[tool_call("look", {"n": 1}), tool_call("look", {"n": 2})], text("All done.")]
    stage = await play(at("before_tool_call", only_first), replies=two)
    assert (stage.bodies, stage.result.stop_reason) == ([2], "completed")
    assert [r.is_error for r in stage.results] == [True, False]


@pytest.mark.parametrize("seam", ["before_turn", "on_message", "finish_turn", "after_turn", "prepare_next_turn"])
async def test_a_steering_message_is_not_lost_when_a_hook_fails(seam: str) -> None:
    down: list[None] = []

    def guard(context: Any) -> None:
        if seam == "on_message" and context.origin != "steer":
            return
        if down:
            raise OSError("the policy service is down")

    def looks(n: int) -> str:
        stage.talk.steer("Steered")
        down.append(None)
        return "saw 1"

    stage = Stage(Hook(seam=seam, fn=guard), looks=looks)
    await stage.run()
    assert isinstance(stage.result.error, HookFailed)
    assert [m.text for m in stage.talk.queued] == ["Steered"]
    down.clear()
    await stage.run("Again")
    assert [m for m in stage.history if m[1] == "Steered"] == [("user", "Steered")]


async def test_streamed_progress_is_withheld_when_the_hook_that_must_see_it_fails() -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        ctx.update("PIN 1234")
        await asyncio.sleep(0)
        return "worked"

    def guard(outcome: Any) -> None:
        if outcome.partial:
            raise OSError("the policy service is down")

    replies = [tool_call("work"), text("All done.")]
    control = await play(tools=[work], replies=replies)
    stage = await play(at("after_tool_call", guard), tools=[work], replies=replies)
    assert [e.partial.text for e in control.heard("tool_execution_update")] == ["PIN 1234"]
    assert (stage.heard("tool_execution_update"), stage.results[0].text) == ([], "worked")


async def test_a_failure_about_a_nested_call_refuses_it_and_its_parent_reads_why() -> None:
    heard: list[Any] = []

    @tool
    async def outer(ctx: ToolContext) -> str:
        heard.append(await ctx.call_tool("look", {"n": 1}))
        return "went on"

    guard = Hook(seam="before_tool_call", fn=down, tools=("look",), name="guard")
    stage = await play(guard, tools=[outer], replies=[tool_call("outer"), text("All done.")])
    assert (stage.bodies, heard[0].is_error, heard[0].outcome, stage.results[0].text) == ([], True, "blocked", "went on")
    assert "the policy service is down" in heard[0].text


async def test_a_failure_about_a_nested_call_that_aborts_ends_the_run() -> None:
    @tool
    async def outer(ctx: ToolContext) -> str:
        await ctx.call_tool("look", {"n": 1})
        return "went on"

    guard = Hook(seam="before_tool_call", fn=down, tools=("look",), on_error="abort", name="guard")
    stage = await play(guard, tools=[outer], replies=[tool_call("outer"), text("All done.")])
    assert isinstance(stage.result.error, HookFailed)
    assert (stage.bodies, stage.requests, len(stage.results)) == ([], 1, 1)
