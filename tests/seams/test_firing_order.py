"""The order in which a run passes its seams, its events and its tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import AssistantMessage, Continue, CustomMessage, Hook, Text, ToolContext, UserMessage, tool
from beforehand.seams import SEAMS
from beforehand.testing import text, tool_call
from seams.stage import Stage

REQUEST = ["prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "get_api_key", "authorize_request"]
MESSAGE = ["on_message", "message_start", "message_end"]


def staged(note: Any = None, **stage: Any) -> tuple[Stage, list[str]]:
    """A stage whose every seam and event is written down, in order."""
    log: list[str] = []

    def hooked(seam: str) -> Hook:
        def passed(context: Any) -> None:
            # A stage of the stream is also asked when nothing new has come; that is not a chunk.
            if seam != "on_chunk" or context.delta:
                log.append(seam if note is None else note(seam, context))

        return Hook(seam=seam, fn=passed)

    made = Stage(*[hooked(spec.name) for spec in SEAMS], **stage)
    made.talk.subscribe(lambda event: log.append(event.type))
    return made, log


async def test_a_run_of_two_turns_and_one_tool_passes_every_seam_and_event_in_this_order() -> None:
    stage, log = staged(looks=lambda n: log.append("the tool runs"))
    await stage.run()
    assert log == [
        "before_run", "agent_start",
        # the first turn: a call
        "before_turn", "turn_start", *MESSAGE,
        *REQUEST, "message_start", "on_chunk", "message_update", "on_message", "message_end",
        "tool_execution_start", "prepare_tool_call", "before_tool_call", "the tool runs", "after_tool_call", "tool_execution_end",
        *MESSAGE,
        "finish_turn", "turn_end", "after_turn",
        # the second turn: text in two chunks
        "prepare_next_turn", "before_turn", "turn_start",
        *REQUEST, "message_start", "on_chunk", "message_update", "on_chunk", "message_update", "on_message", "message_end",
        "finish_turn", "turn_end", "after_turn",
        "agent_end",
    ]  # fmt: skip


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "in one piece"])
async def test_a_text_that_comes_in_one_piece_passes_its_chunk_seam_once_with_all_of_it(streams: bool) -> None:
    chunks: list[tuple[str, bool]] = []
    stage = Stage(
        Hook(seam="on_chunk", fn=lambda chunk: chunks.append((chunk.pending, chunk.final))),
        replies=[text("", chunks=["All ", "done."])],
    )
    stage.model.streams = streams
    await stage.run()
    assert chunks == ([("All ", False), ("done.", False), ("", True)] if streams else [("All done.", True)])
    assert stage.shown == "All done."


async def test_the_history_holds_a_message_only_once_its_seam_has_let_it_pass() -> None:
    held: dict[str, list[bool]] = {"on_message": [], "message_start": [], "message_end": []}

    def look_up(name: str, message: Any) -> None:
        held[name].append(any(m is message for m in stage.talk.messages))

    stage = Stage(Hook(seam="on_message", fn=lambda incoming: look_up("on_message", incoming.message)))
    stage.talk.on("message_start", lambda event: look_up("message_start", event.message))
    stage.talk.on("message_end", lambda event: look_up("message_end", event.message))
    await stage.run()
    assert held == {"on_message": [False] * 4, "message_start": [False] * 4, "message_end": [True] * 4}


async def test_calls_of_one_reply_are_judged_one_by_one_then_run_together_and_stored_in_source_order() -> None:
    second_runs = asyncio.Event()

    async def looks(n: int) -> str:
        log.append(f"body {n}")
        if n == 2:
            second_runs.set()
        await second_runs.wait()
        return f"saw {n}"

    stage, log = staged(
        lambda seam, context: f"{seam} {context.args['n']}" if "tool_call" in seam else seam,
        looks=looks,
        replies=[[tool_call("look", {"n": 1}), tool_call("look", {"n": 2})], text("All done.")],
    )
    await stage.run()
    begin, end = log.index("tool_execution_start"), log.index("finish_turn")
    judged, ran = log[begin : begin + 6], log[begin + 6 : end]
    assert judged == [
        "tool_execution_start", "prepare_tool_call 1", "before_tool_call 1",
        "tool_execution_start", "prepare_tool_call 2", "before_tool_call 2",
    ]  # fmt: skip
    assert ran[:2] == ["body 1", "body 2"], "the first did not end before the second had begun"
    assert ran[-6:] == MESSAGE * 2
    assert [r.text for r in stage.results] == ["saw 1", "saw 2"]
    assert [r.tool_call_id for r in stage.results] == [c.id for c in stage.talk.messages[1].tool_calls]


async def test_slow_gates_of_calls_that_run_together_are_still_asked_one_by_one() -> None:
    log: list[str] = []

    async def gate(call: Any) -> None:
        log.append(f"in {call.args['n']}")
        await asyncio.sleep(0)
        log.append(f"out {call.args['n']}")

    two = [[tool_call("look", {"n": 1}), tool_call("look", {"n": 2})], text("All done.")]
    await Stage(Hook(seam="before_tool_call", fn=gate), replies=two, looks=lambda n: log.append(f"body {n}")).run()
    assert log == ["in 1", "out 1", "in 2", "out 2", "body 1", "body 2"]


async def test_calls_in_sequence_each_pass_every_seam_before_the_next_begins() -> None:
    stage, log = staged(
        looks=lambda n: log.append("the tool runs"),
        replies=[[tool_call("look", {"n": 1}), tool_call("look", {"n": 2})], text("All done.")],
        tool_mode="sequential",
    )
    await stage.run()
    begin, end = log.index("tool_execution_start"), log.index("finish_turn")
    one = [
        "tool_execution_start",
        "prepare_tool_call",
        "before_tool_call",
        "the tool runs",
        "after_tool_call",
        "tool_execution_end",
        *MESSAGE,
    ]
    assert log[begin:end] == one * 2


async def test_a_nested_call_passes_its_seams_inside_its_parents_body() -> None:
    @tool
    async def outer(ctx: ToolContext) -> str:
        result = await ctx.call_tool("look", {"n": 1})
        return f"it {result.text}"

    stage, log = staged(
        lambda seam, context: f"{seam} {context.name}" if "tool_call" in seam else seam,
        tools=[outer], replies=[tool_call("outer"), text("All done.")],
    )  # fmt: skip
    await stage.run()
    begin, end = log.index("tool_execution_start"), log.index("finish_turn")
    assert log[begin:end] == [
        "tool_execution_start", "prepare_tool_call outer", "before_tool_call outer",
        "tool_execution_start", "prepare_tool_call look", "before_tool_call look", "after_tool_call look", "tool_execution_end",
        "after_tool_call outer", "tool_execution_end", *MESSAGE,
    ]  # fmt: skip
    assert [e.parent_call_id for e in stage.heard("tool_execution_start")] == [None, stage.results[0].tool_call_id]


@pytest.mark.parametrize("cause", ["tools", "steering", "follow_up", "continue"])
async def test_the_seam_between_turns_is_passed_only_if_another_turn_follows_and_says_why(cause: str) -> None:
    causes: list[str] = []
    replies = [tool_call("look", {"n": 1}) if cause == "tools" else text("One."), text("Two.")]

    def settle(turn: Any) -> Any:
        if turn.number == 1 and cause == "steering":
            stage.talk.steer("Steered")
        if turn.number == 1 and cause == "follow_up":
            stage.talk.follow_up("Followed")
        return Continue() if turn.number == 1 and cause == "continue" else None

    stage = Stage(
        Hook(seam="finish_turn", fn=settle),
        Hook(seam="prepare_next_turn", fn=lambda turn: causes.append(turn.cause)),
        replies=replies,
    )
    await stage.run()
    assert (stage.requests, causes) == (2, [cause]), "between the two turns, and not after the second"


async def test_a_compaction_passes_its_own_seam_and_the_two_of_a_direct_request() -> None:
    kinds: list[str] = []
    talk = [UserMessage("one"), AssistantMessage((Text("two"),)), UserMessage("three"), AssistantMessage((Text("four"),))]
    stage, log = staged(
        lambda seam, context: kinds.append(context.kind) or seam if seam == "authorize_request" else seam,
        messages=talk, replies=[text("A summary.")],
    )  # fmt: skip
    await stage.talk.compact(keep=2)
    assert log == ["before_compaction", "get_api_key", "authorize_request", "compacted"]
    assert (kinds, stage.requests) == (["compaction"], 1)


async def test_every_message_passes_its_seam_whoever_it_is_from() -> None:
    origins: list[tuple[str, str]] = []

    def settle(turn: Any) -> None:
        if turn.number == 1:
            stage.talk.steer("Steered")
        if turn.number == 2:
            stage.talk.follow_up("Followed")

    stage = Stage(
        Hook(seam="on_message", fn=lambda incoming: origins.append((incoming.origin, incoming.message.role))),
        Hook(seam="finish_turn", fn=settle),
        replies=[tool_call("look", {"n": 1}), text("Two."), text("Three.")],
    )
    await stage.run([CustomMessage("note", "Mind the gap."), UserMessage("Begin")])
    assert origins == [
        ("prompt", "custom"), ("prompt", "user"), ("model", "assistant"), ("tool", "tool"),
        ("steer", "user"), ("model", "assistant"), ("follow_up", "user"), ("model", "assistant"),
    ]  # fmt: skip
