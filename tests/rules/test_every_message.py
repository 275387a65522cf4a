"""No message is held by the history, and sent with later requests, that its seam has not let pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from beforehand import AssistantMessage, Hook, Interrupt, Replace, Text, ToolCall
from beforehand.testing import cut, error, finish, text, tool_call
from seams.stage import Stage, at, play

PIECES = ("My PIN ", "is 1234, ", "keep it.")
SAID = text("", chunks=PIECES)


def abort_at_the_last_piece(stage: Stage) -> None:
    def watch(event: Any) -> None:
        if event.type == "message_update" and event.delta == PIECES[1]:
            stage.talk.abort()

    stage.talk.subscribe(watch)


def interrupting(chunk: Any) -> Any:
    return Interrupt("Halt.", keep="aborted") if chunk.delta == PIECES[2] else None


ENDS: dict[str, tuple[Any, str]] = {
    # how the reply ends: the response and the reason the run stopped
    "complete": ([SAID], "completed"),
    "a failure of the endpoint": ([text("", chunks=PIECES[:2]), error("down")], "error"),
    "a stream cut off": ([text("", chunks=PIECES[:2]), cut()], "error"),
    "its length limit": ([SAID, finish("length")], "length"),
    "an abort": ([SAID], "aborted"),
    "an interrupt that keeps it": ([SAID], "interrupted"),
}


async def ended(end: str, *hooks: Hook) -> Stage:
    reply, reason = ENDS[end]
    chunks = [at("on_chunk", interrupting)] if end == "an interrupt that keeps it" else []
    stage = Stage(*hooks, *chunks, replies=[reply, text("The end.")])
    if end == "an abort":
        abort_at_the_last_piece(stage)
    await stage.run()
    assert stage.result.stop_reason == reason
    return stage


def mask(incoming: Any) -> Replace | None:
    message = incoming.message
    if "1234" not in message.text:
        return None
    return Replace(message=msgspec.structs.replace(message, content=(Text(message.text.replace("1234", "****")),)))


def refuse(incoming: Any) -> Interrupt | None:
    return Interrupt("Not this.") if "1234" in incoming.message.text else None


def fail(incoming: Any) -> None:
    if "1234" in incoming.message.text:
        raise OSError("the policy service is down")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("judge", [mask, refuse, fail])
async def test_a_reply_is_judged_before_it_is_stored_however_it_ended(end: str, judge: Callable[[Any], Any]) -> None:
    control = await ended(end)
    await control.run("Again")
    assert "is 1234, " in control.history[1][1], "the control: what was shown is kept"
    reply, _ = ENDS[end]
    chunks = [at("on_chunk", interrupting)] if end == "an interrupt that keeps it" else []
    stage = Stage(at("on_message", judge), *chunks, replies=[reply, text("The end.")])
    if end == "an abort":
        abort_at_the_last_piece(stage)
    await stage.run()
    assert "1234" not in str(stage.history) + stage.shown + stage.result.text
    await stage.run("Again")
    assert stage.result.text == "The end."
    assert "1234" not in str(stage.asked(-1))
    assert ("****" in str(stage.history)) is (judge is mask), "what was masked is kept, what was refused is not"


async def test_a_reply_that_was_cut_says_so_to_its_judge_and_in_the_history() -> None:
    heard: list[Any] = []
    stage = await ended(
        "a failure of the endpoint",
        at("on_message", lambda incoming: heard.append(incoming.message.stop_reason) if incoming.origin == "model" else None),
    )
    assert heard == ["error"]
    kept = [m for m in stage.talk.messages if isinstance(m, AssistantMessage)]
    assert [(m.text, m.stop_reason) for m in kept] == [("My PIN is 1234, ", "error")]


@pytest.mark.parametrize("end", [end for end in ENDS if end not in ("complete", "its length limit")])
async def test_calls_that_a_hook_writes_into_a_reply_that_was_cut_are_not_stored(end: str) -> None:
    """They could not run any more, and a call without a result is one that no endpoint takes."""
    written = AssistantMessage((Text("Rewritten."), ToolCall("c1", "look", '{"n": 1}')))
    stage = await ended(end, at("on_message", lambda m: Replace(message=written) if m.origin == "model" else None))
    kept = stage.talk.messages[-1]
    assert isinstance(kept, AssistantMessage)
    assert (kept.text, kept.tool_calls, stage.bodies) == ("Rewritten.", [], [])
    assert kept.stop_reason in ("error", "aborted"), "and it still says that it was cut"


async def test_the_calls_of_a_reply_that_failed_do_not_run() -> None:
    stage = await play(replies=[[text("Let me look."), tool_call("look", {"n": 1}), error("down")], text("The end.")])
    assert (stage.bodies, stage.result.stop_reason, stage.history[-1]) == ([], "error", ("assistant", "Let me look."))
