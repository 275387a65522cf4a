"""Whatever hooks decide, wherever and in whatever order: a run ends, its history stays valid, and it holds what was shown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from beforehand import Approve, AssistantMessage, Deny, Edit, Hold, Hook, Limits, Replace, Text, ToolCall, ToolContext, tool
from beforehand.seams import BY_NAME
from beforehand.testing import ScriptedModel, cut, error, finish, text, thinking, tool_call
from beforehand.validity import invalid_request
from seams.cells import BY_SEAM, CELLS, COLUMNS, DECLARED
from seams.stage import Stage

REPLIES = (
    text("", chunks=["All ", "done."]),
    tool_call("look", {"n": 1}),
    tool_call("look", {"n": "many"}),
    tool_call("lock", {"n": 1}),
    [thinking("Hm."), text("Let me look."), tool_call("look", {"n": 1}), tool_call("look", {"n": 2})],
    [tool_call("outer"), tool_call("look", {"n": 3})],
    [tool_call("child", {"prompt": "Look."}), tool_call("look", {"n": 4})],
    [text("Cut sh"), tool_call("look", {"n": 1}), finish("length")],
    [text("It fails"), error("down")],
    [text("It breaks"), cut()],
)


@tool
async def outer(ctx: ToolContext) -> str:
    """Look twice."""
    results = [await ctx.call_tool("look", {"n": n}) for n in (7, 8)]
    return ", ".join(result.text for result in results)


def raises(context: Any) -> None:
    raise OSError("the policy service is down")


def aborts(context: Any) -> None:
    context.run.deps.talk.abort()


def steers(context: Any) -> None:
    context.run.deps.talk.steer("Steered.")


def follows_up(context: Any) -> None:
    context.run.deps.talk.follow_up("Followed.")


def rewrites(incoming: Any) -> Replace:
    message = incoming.message
    if isinstance(message, AssistantMessage):
        return Replace(message=msgspec.structs.replace(message, content=(Text("Rewritten."), *message.tool_calls)))
    return Replace(message=msgspec.structs.replace(message, content="Rewritten."))


def writes_calls(incoming: Any) -> Replace | None:
    calls = (ToolCall("same", "look", '{"n": 1}'), ToolCall("same", "look", '{"n": 2}'))
    return Replace(message=AssistantMessage(calls)) if isinstance(incoming.message, AssistantMessage) else None


OTHERS: dict[str, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    **dict.fromkeys(BY_NAME, (("raises", raises), ("aborts", aborts), ("steers", steers), ("follows up", follows_up))),
    "on_chunk": (
        ("raises", raises),
        ("aborts", aborts),
        ("shouts", lambda chunk: Replace(text=chunk.pending.upper())),
        ("holds half", lambda chunk: Replace(text=chunk.pending, hold=len(chunk.pending) // 2)),
        ("holds all", lambda chunk: Hold(len(chunk.pending))),
    ),
    "on_message": (("raises", raises), ("aborts", aborts), ("rewrites", rewrites), ("writes calls", writes_calls)),
}
"""What a hook may do beside returning one of the columns, for each seam."""


def deciding(seam: str, column: str, turns: tuple[bool, ...], **options: Any) -> Hook:
    """A hook that decides where `turns`, taken round and round, says so."""
    asked: list[None] = []
    other = dict(OTHERS[seam]).get(column)

    def fn(context: Any) -> Any:
        asked.append(None)
        if not turns[(len(asked) - 1) % len(turns)]:
            return None
        return other(context) if other is not None else (COLUMNS.get(column) or BY_SEAM[seam][column])()

    return Hook(seam=seam, fn=fn, name=f"{column} at {seam}", **options)


DECIDING = st.builds(
    lambda cell, turns, order, on_error, hold: deciding(
        *cell, tuple(turns), order=order, on_error=on_error, hold=hold and cell[0] == "on_message"
    ),
    st.one_of(
        st.sampled_from(sorted(DECLARED)),
        st.sampled_from([(seam, column) for seam, others in OTHERS.items() for column, _ in others]),
        st.sampled_from(CELLS),
    ),
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.integers(-1, 1),
    st.sampled_from(["closed", "closed", "open", "abort"]),
    st.booleans(),
)
ANSWERS: tuple[Callable[[], Any], ...] = (Approve, Deny, lambda: Edit({"n": 5}), lambda: Edit({"n": "many"}))


async def act(
    hooks: list[Hook], replies: list[Any], answers: list[Callable[[], Any]], mode: str, watched: bool, streams: bool
) -> Stage:
    limits = Limits(max_turns=6, max_resends=2)
    child = ScriptedModel([tool_call("outer"), text("The child is done.")] * 6)
    looking = Stage(replies=(), tools=[outer]).agent.replace(model=child)
    tools = [outer, looking.as_tool("child", "Looks.")]
    stage = Stage(*hooks, replies=replies, tools=tools, tool_mode=mode, watched=watched, limits=limits)
    stage.model.streams = streams
    await stage.run(deps=stage)
    for answer in answers:
        if not stage.result.pending:
            break
        stage.result = await stage.talk.resume({p.call_id: answer() for p in stage.result.pending}, check=False)
    await stage.run("Again", deps=stage)
    stage.model.requests += child.requests  # those of a sub-agent must be valid too
    return stage


@given(
    st.lists(DECIDING, max_size=5),
    st.lists(st.sampled_from(REPLIES), min_size=12, max_size=12),
    st.lists(st.sampled_from(ANSWERS), max_size=3),
    st.sampled_from(["parallel", "sequential"]),
    st.booleans(),
    st.booleans(),
)
def test_whatever_hooks_decide_the_history_stays_valid_and_the_reader_saw_what_it_holds(
    hooks: list[Hook], replies: list[Any], answers: list[Callable[[], Any]], mode: str, watched: bool, streams: bool
) -> None:
    logging.getLogger("beforehand").setLevel(logging.CRITICAL)
    try:
        stage = asyncio.run(act(hooks, replies, answers, mode, watched, streams))
    finally:
        logging.getLogger("beforehand").setLevel(logging.NOTSET)
    assert [why for request in stage.model.requests if (why := invalid_request(request))] == []
    check_calls(stage)
    if watched:
        check_screen(stage)


def check_calls(stage: Stage) -> None:
    """Every call has one result, right behind its reply and in order; only those that still wait for a person have none."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in stage.talk.messages:
        if message.role == "tool":
            assert waiting, "a result that no call asked for"
            assert waiting.pop(0) == message.tool_call_id
            continue
        assert waiting == [], "a call without its result"
        waiting = [call.id for call in getattr(message, "tool_calls", ())]
        assert not seen.intersection(waiting)
        assert len(set(waiting)) == len(waiting)
        seen.update(waiting)
    assert bool(waiting) is (stage.result.stop_reason == "suspended")


def check_screen(stage: Stage) -> None:
    """What somebody has on the screen, message by message, is what the history holds of it."""
    screen: dict[str, str] = {}
    for event in stage.events:
        if event.type == "message_update" and event.kind == "text":
            screen[event.message_id] = screen.get(event.message_id, "") + event.delta
        elif event.type == "message_retracted":
            screen[event.message_id] = ""
    stored = {m.id: m.text for m in stage.talk.messages if isinstance(m, AssistantMessage) and m.id}
    assert {key: shown for key, shown in screen.items() if shown} == {key: kept for key, kept in stored.items() if kept}
