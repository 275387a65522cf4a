"""What a hook must not let pass when it fails, for each seam: the play is cut there, and nothing behind the seam happened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from beforehand import AssistantMessage, Hook, HookFailed, Text, UserMessage
from beforehand.testing import text
from seams.stage import ONLY_TEXT, Stage

OLD = [UserMessage("one"), AssistantMessage((Text("two"),)), UserMessage("three"), AssistantMessage((Text("four"),))]
BEGUN = [("user", "Begin")]
CALLED = [*BEGUN, ("assistant", ""), ("tool", "saw 1")]


class Refused(NamedTuple):
    """A play in which nothing got past the seam, and what was said about it."""

    stage: Stage
    said: str


Refusal = Callable[[Hook, bool], Awaitable[Refused]]
"""Plays with this hook, watched or not, and proves that nothing got past it."""


async def play(guard: Hook, watched: bool, **stage: object) -> Stage:
    return await Stage(guard, watched=watched, **stage).run()  # type: ignore[arg-type]


def failure(stage: Stage) -> str:
    """The error the run ended with."""
    assert isinstance(stage.result.error, HookFailed)
    assert stage.result.stop_reason == "error"
    return str(stage.result.error)


def kept(stage: Stage) -> list[tuple[str, str]]:
    """The history without the records of failures, which are never sent."""
    return [(m.role, m.text) for m in stage.talk.messages if getattr(m, "stop_reason", "") != "error" or m.text]


async def no_run(guard: Hook, watched: bool) -> Refused:
    stage = await play(guard, watched)
    assert (stage.requests, stage.history, stage.bodies) == (0, [], [])
    return Refused(stage, failure(stage))


async def no_turn(guard: Hook, watched: bool) -> Refused:
    stage = await play(guard, watched)
    assert (stage.requests, kept(stage), stage.bodies) == (0, [], [])
    return Refused(stage, failure(stage))


async def no_request(guard: Hook, watched: bool) -> Refused:
    stage = await play(guard, watched)
    assert (stage.requests, kept(stage), stage.bodies, stage.shown) == (0, BEGUN, [], "")
    return Refused(stage, failure(stage))


async def no_text(guard: Hook, watched: bool) -> Refused:
    stage = await play(guard, watched, replies=ONLY_TEXT)
    assert (stage.requests, kept(stage), stage.shown, stage.result.text) == (1, BEGUN, "", "")
    return Refused(stage, failure(stage))


async def no_message(guard: Hook, watched: bool) -> Refused:
    stage = await play(guard, watched)
    assert (stage.requests, kept(stage), stage.bodies) == (0, [], [])
    return Refused(stage, failure(stage))


async def no_body(guard: Hook, watched: bool) -> Refused:
    stage = await play(guard, watched)
    [result] = stage.results
    assert (stage.bodies, result.is_error, stage.requests) == ([], True, 2)
    assert stage.result.stop_reason == "completed", "the run goes on"
    assert stage.asked(1)[-1] == ("tool", result.text), "and the model reads why"
    return Refused(stage, result.text)


async def no_result(guard: Hook, watched: bool) -> Refused:
    stage = await play(guard, watched)
    [result] = stage.results
    assert (stage.bodies, result.is_error, stage.requests, stage.result.stop_reason) == ([1], True, 2, "completed")
    assert "saw 1" not in str([result, stage.model.requests[1].messages, stage.heard("tool_execution_end")])
    return Refused(stage, result.text)


async def no_next_turn(guard: Hook, watched: bool) -> Refused:
    stage = await play(guard, watched)
    assert (stage.requests, kept(stage), stage.bodies) == (1, CALLED, [1])
    return Refused(stage, failure(stage))


async def no_compaction(guard: Hook, watched: bool) -> Refused:
    stage = Stage(guard, messages=OLD, replies=[text("A summary.")], watched=watched)
    done = await stage.talk.compact(keep=2)
    assert (stage.requests, list(stage.talk.messages), done.messages) == (0, OLD, None)
    assert done.reason is not None
    return Refused(stage, done.reason)


REFUSALS: dict[str, Refusal] = {
    "before_run": no_run,
    "before_turn": no_turn,
    "prepare_request": no_request,
    "transform_context": no_request,
    "convert_to_llm": no_request,
    "before_provider_call": no_request,
    "get_api_key": no_request,
    "authorize_request": no_request,
    "on_chunk": no_text,
    "on_message": no_message,
    "prepare_tool_call": no_body,
    "before_tool_call": no_body,
    "after_tool_call": no_result,
    "finish_turn": no_next_turn,
    "after_turn": no_next_turn,
    "prepare_next_turn": no_next_turn,
    "before_compaction": no_compaction,
}


async def let_pass(seam: str, guard: Hook) -> None:
    """The same play with a hook that says nothing: everything that the refusals miss does happen."""
    if seam == "before_compaction":
        stage = Stage(guard, messages=OLD, replies=[text("A summary.")])
        await stage.talk.compact(keep=2)
        assert (stage.requests, stage.history[0][1].endswith("A summary."), len(stage.talk.messages)) == (1, True, 3)
        return
    stage = await Stage(guard).run()
    assert (stage.requests, stage.bodies, stage.shown, stage.result.stop_reason) == (2, [1], "All done.", "completed")
    assert stage.history == [*CALLED, ("assistant", "All done.")]
