"""A hook that raises, is late or returns nonsense never lets pass what it guards, whatever the way in which it fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from beforehand import Block, Hook, HookFailed, Replace
from beforehand.errors import Aborted, Stop
from beforehand.seams import BY_NAME
from beforehand.testing import text, tool_call
from beforehand.validity import invalid_request
from seams.refusals import OLD, REFUSALS, let_pass
from seams.stage import CALL_THEN_TEXT, Stage, at, play

SEAMS = list(BY_NAME)
BY_CALL = ["prepare_tool_call", "before_tool_call", "after_tool_call"]
SHORT = 0.01
"""A time limit in seconds, for hooks that never answer in time."""
LONG = 5
"""How long such a hook waits, in seconds, before a limit that does not hold is noticed."""


def raises(error: BaseException | type[BaseException]) -> Callable[[Any], Any]:
    def fail(_: Any) -> None:
        raise error

    return fail


def raises_async(error: BaseException | type[BaseException]) -> Callable[[Any], Any]:
    async def fail(_: Any) -> None:
        raise error

    return fail


class Leaving(BaseException):
    """Not an error, not one of our signals."""


class BadAwaitable:
    def __await__(self) -> Any:
        raise OSError("the policy service is down")


WAYS: dict[str, Callable[[Any], Any]] = {
    "an exception": raises(OSError("the policy service is down")),
    "an exception, async": raises_async(OSError("the policy service is down")),
    "an awaitable that raises": lambda _: BadAwaitable(),
    "StopIteration": raises(StopIteration("the policy service is down")),
    "StopAsyncIteration, async": raises_async(StopAsyncIteration("the policy service is down")),
    "a cancellation of its own": raises(asyncio.CancelledError("the policy service is down")),
    "a cancellation of its own, async": raises_async(asyncio.CancelledError("the policy service is down")),
    "a signal": raises(Stop("the policy service is down")),
    "a signal, async": raises_async(Aborted("the policy service is down")),
    "an exit": raises(SystemExit("the policy service is down")),
    "an exit, async": raises_async(SystemExit("the policy service is down")),
    "an assertion": raises(AssertionError("the policy service is down")),
    "what is no Exception": raises(Leaving("the policy service is down")),
    "what is no Exception, async": raises_async(Leaving("the policy service is down")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seam", SEAMS)
async def test_a_hook_that_raises_lets_nothing_pass(seam: str, way: str) -> None:
    told = "raised" if seam == "get_api_key" else "the policy service is down"  # what is raised about a key may hold the key
    for watched in (True, False):
        stage, said = await REFUSALS[seam](Hook(seam=seam, fn=WAYS[way], name="guard"), watched)
        assert "guard" in said
        assert told in said
        if seam != "before_compaction":
            assert {(d.hook, d.seam, d.verdict, d.on_error) for d in stage.result.decisions} == {
                ("guard", seam, "failed", "closed")
            }
            assert told in str(stage.result.decisions[0].reason)


@pytest.mark.parametrize("seam", SEAMS)
async def test_an_async_hook_that_is_late_lets_nothing_pass(seam: str) -> None:
    async def guard(_: Any) -> None:
        async with asyncio.timeout(LONG):
            await asyncio.Event().wait()

    _, said = await REFUSALS[seam](Hook(seam=seam, fn=guard, timeout=SHORT), True)
    assert "guard" in said
    assert f"{SHORT:g} s" in said


@pytest.mark.parametrize("seam", SEAMS)
async def test_a_sync_hook_that_is_late_lets_nothing_pass_and_its_late_answer_changes_nothing(seam: str) -> None:
    let_go = threading.Event()
    threads: list[threading.Thread] = []

    def guard(_: Any) -> None:
        threads.append(threading.current_thread())
        let_go.wait(LONG)

    stage, said = await REFUSALS[seam](Hook(seam=seam, fn=guard, timeout=SHORT), True)
    before = (list(stage.talk.messages), stage.requests, len(stage.events), stage.bodies)
    let_go.set()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert "guard" in said
    assert threads
    assert (list(stage.talk.messages), stage.requests, len(stage.events), stage.bodies) == before


async def test_a_late_async_hook_that_does_not_take_its_cancellation_is_left_behind() -> None:
    let_go, ended = asyncio.Event(), asyncio.Event()

    async def guard(_: Any) -> Replace:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return Replace(args={"n": 2})

    stage = await play(Hook(seam="prepare_tool_call", fn=guard, timeout=SHORT))
    let_go.set()
    await ended.wait()
    assert (stage.bodies, stage.results[0].is_error, stage.result.stop_reason) == ([], True, "completed")


@pytest.mark.parametrize("seam", SEAMS)
async def test_a_hook_in_time_is_heard_with_a_time_limit_too(seam: str) -> None:
    """The control of the two before: a time limit alone refuses nothing."""

    await let_pass(seam, Hook(seam=seam, fn=lambda _: None, timeout=60, name="guard"))
    await let_pass(seam, Hook(seam=seam, fn=says_nothing, timeout=60, name="guard"))


async def says_nothing(_: Any) -> None:
    return None


@pytest.mark.parametrize("seam", SEAMS)
async def test_after_a_failure_the_conversation_goes_on(seam: str) -> None:
    down = [True]

    def guard(_: Any) -> None:
        if down:
            raise OSError("the policy service is down")

    stage, _ = await REFUSALS[seam](Hook(seam=seam, fn=guard), True)
    down.clear()
    stage.model.responses = [*stage.model.responses[: stage.requests], *CALL_THEN_TEXT]
    before = stage.requests
    await stage.run("Again")
    assert (stage.result.stop_reason, stage.result.text) == ("completed", "All done.")
    assert stage.requests == before + 2
    assert [why for request in stage.model.requests if (why := invalid_request(request))] == []
    assert stage.asked(-2)[-1] == ("user", "Again")


# --- on_error ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["an exception", "an exception, async", "a cancellation of its own", "a signal"])
@pytest.mark.parametrize("seam", SEAMS)
async def test_a_hook_that_fails_open_lets_everything_pass(seam: str, way: str) -> None:
    await let_pass(seam, Hook(seam=seam, fn=WAYS[way], on_error="open"))


@pytest.mark.parametrize("seam", SEAMS)
async def test_nonsense_from_a_hook_that_fails_open_lets_everything_pass(seam: str) -> None:
    await let_pass(seam, at(seam, {"block": True}, on_error="open"))


@pytest.mark.parametrize("seam", [s for s in SEAMS if s != "before_compaction"])
async def test_a_failure_that_was_let_pass_is_on_record(seam: str) -> None:
    stage = await play(Hook(seam=seam, fn=WAYS["an exception"], on_error="open", name="guard"))
    records = [d for d in stage.result.decisions if d.hook == "guard"]
    assert records
    assert {(d.seam, d.verdict, d.on_error) for d in records} == {(seam, "failed_open", "open")}
    assert ("raised OSError" if seam == "get_api_key" else "the policy service is down") in str(records[0].reason)


async def test_a_late_hook_that_fails_open_lets_pass_and_its_late_refusal_is_discarded() -> None:
    let_go = threading.Event()
    threads: list[threading.Thread] = []

    def guard(_: Any) -> Block:
        threads.append(threading.current_thread())
        let_go.wait(LONG)
        return Block("Too late.")

    stage = await play(Hook(seam="before_tool_call", fn=guard, timeout=SHORT, on_error="open"))
    let_go.set()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert (stage.bodies, stage.results[0].text, stage.result.stop_reason) == ([1], "saw 1", "completed")
    assert [d.verdict for d in stage.result.decisions] == ["failed_open"]


async def test_a_late_replacement_is_discarded() -> None:
    let_go = threading.Event()

    def guard(_: Any) -> Replace:
        let_go.wait(LONG)
        return Replace(args={"n": 2})

    stage = await play(Hook(seam="prepare_tool_call", fn=guard, timeout=SHORT, on_error="open"))
    let_go.set()
    assert stage.bodies == [1]


@pytest.mark.parametrize("seam", [s for s in SEAMS if s not in (*BY_CALL, "before_compaction")])
async def test_a_failure_that_aborts_is_the_same_where_a_closed_one_ends_the_run(seam: str) -> None:
    await REFUSALS[seam](Hook(seam=seam, fn=WAYS["an exception"], on_error="abort", name="guard"), True)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("seam", BY_CALL)
async def test_a_failure_about_a_call_that_aborts_ends_the_run_with_every_call_answered(seam: str, watched: bool) -> None:
    two = [[tool_call("look", {"n": 1}), tool_call("look", {"n": 2})], text("All done.")]
    stage = await play(at(seam, only_first, on_error="abort"), replies=two, watched=watched)
    assert isinstance(stage.result.error, HookFailed)
    assert (stage.result.error.hook, stage.result.error.seam, stage.result.stop_reason, stage.requests) == (
        "guard",
        seam,
        "error",
        1,
    )
    assert [r.tool_call_id for r in stage.results] == [c.id for c in stage.talk.messages[1].tool_calls]
    assert stage.results[0].is_error
    assert "saw 1" not in stage.results[0].text
    assert 1 not in stage.bodies or seam == "after_tool_call"


def only_first(context: Any) -> None:
    call = getattr(context, "call", context)
    if call.args["n"] == 1:
        raise OSError("the policy service is down")


async def test_a_compaction_whose_hook_aborts_raises_and_compacts_nothing() -> None:
    stage = Stage(
        Hook(seam="before_compaction", fn=WAYS["an exception"], on_error="abort", name="guard"),
        messages=OLD,
        replies=[text("A summary.")],
    )
    with pytest.raises(HookFailed, match="guard"):
        await stage.talk.compact(keep=2)
    assert (stage.requests, list(stage.talk.messages)) == (0, OLD)
    assert not stage.talk.is_running


# --- somebody wants to leave -----------------------------------------------------------------------


@pytest.mark.parametrize("seam", SEAMS)
async def test_an_interrupt_from_the_keyboard_goes_through_and_still_lets_nothing_pass(seam: str) -> None:
    pressed: list[None] = []

    def guard(_: Any) -> None:
        if not pressed:
            pressed.append(None)
            raise KeyboardInterrupt

    stage = Stage(Hook(seam=seam, fn=guard), messages=OLD if seam == "before_compaction" else (), watched=False)
    with pytest.raises(KeyboardInterrupt):
        await (stage.talk.compact(keep=2) if seam == "before_compaction" else stage.run())
    number = BY_NAME[seam].number
    assert (stage.requests, stage.bodies) == (int(9 <= number <= 16 and seam != "on_message"), [1] if 13 <= number <= 16 else [])
    calls = [call.id for m in stage.talk.messages for call in getattr(m, "tool_calls", ())]
    assert [r.tool_call_id for r in stage.results] == calls, "every call has its result"
    assert "saw 1" not in str(stage.history) or number > 13
    assert not stage.talk.is_running
    stage.model.responses = [*stage.model.responses[: stage.requests], *CALL_THEN_TEXT]
    await stage.run("Again")
    assert (stage.result.stop_reason, stage.result.text) == ("completed", "All done.")
