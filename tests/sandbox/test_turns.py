"""How many of a lambda's bridge calls are under way at once, and what of its calls and answers the host keeps."""

import asyncio
import re

import pytest
from sandbox.sandboxed import ROOMY, run

from beforehand.sandbox import BridgeRefused, Console, LambdaOutOfMemory, LambdaRaised, LambdaTimedOut, SandboxLimits, Source
from beforehand.sandbox.contract import Job
from beforehand.sandbox.monty import MontyWorker
from beforehand.sandbox.turns import AT_ONCE, Turns

both = pytest.mark.parametrize("language", ["py", "ts"])


def all_at_once(language, count, argument="n"):
    """A lambda that makes so many calls before it reads an answer, and returns what they gave."""
    if language == "py":
        calls = f"[adf.fs_read({argument}) for n in range({count})]"
        return f"import asyncio\nasync def main(a):\n    return await asyncio.gather(*{calls})"
    return f"export const main = (a) => Promise.all(Array.from({{length: {count}}}, (_, n) => adf.fs_read({argument})))"


@both
async def test_few_calls_are_under_way_at_once_and_the_others_follow_in_order(language):
    begun, open_, full = [], asyncio.Event(), asyncio.Event()
    under_way = most = 0

    async def bridge(method, argument):
        nonlocal under_way, most
        begun.append(argument)
        under_way += 1
        most = max(most, under_way)
        if under_way == AT_ONCE:
            full.set()
        await open_.wait()
        under_way -= 1
        return argument

    running = asyncio.ensure_future(run(all_at_once(language, 30), language=language, bridge=bridge))
    await full.wait()
    assert begun == list(range(AT_ONCE))
    open_.set()
    assert (await running).value == list(range(30))
    assert (begun, most) == (list(range(30)), AT_ONCE)


async def test_a_script_that_takes_no_answer_gets_no_more_of_them():
    made = []

    async def bridge(method, argument):
        made.append(argument)
        return "x" * 1_000_000

    source = "export function main() { for (let n = 0; n < 90; n++) adf.fs_read(n).catch(() => 0); for (;;); }"
    with pytest.raises(LambdaTimedOut):
        await run(source, language="ts", bridge=bridge, limits=SandboxLimits(wall_time=2))
    assert len(made) <= 1


async def test_python_gets_large_answers_as_it_takes_them():
    made = []

    async def bridge(method, argument):
        made.append(argument)
        return "x" * 3_900_000

    with pytest.raises(LambdaOutOfMemory):
        await run(all_at_once("py", 90), bridge=bridge)
    assert len(made) < 30  # its heap holds 16


MIXED = """
import asyncio
first = adf.fs_read(0)
await adf.fs_read(1)
await asyncio.gather(first, adf.fs_read(2))
async def two():
    await adf.fs_read(3)
    return len(await adf.fs_read(4))
async def failing():
    raise ValueError('enough')
async def main(a):
    left, one, other = adf.fs_read(5), adf.fs_read(6), adf.fs_read(7)
    await adf.fs_read(8)
    await adf.fs_read(9)
    got = [len(await other), len(await one)]
    try:
        await asyncio.gather(adf.fs_read(10), failing(), adf.fs_read(11))
    except ValueError:
        pass
    return got + [len(await adf.fs_read(12))] + await asyncio.gather(two(), two(), two())
"""


async def test_python_is_never_stuck_on_answers_however_it_waits_for_them():
    async def bridge(method, argument):
        return "x" * 1_000_000

    assert (await run(MIXED, bridge=bridge)).value == [1_000_000] * 6


@both
async def test_what_unanswered_calls_hand_over_is_bounded_in_sum(language):
    made = []

    async def bridge(method, argument):
        made.append(len(argument))
        await asyncio.Event().wait()

    text = "'x' * 900" if language == "py" else "'x'.repeat(900)"
    limits = SandboxLimits(wall_time=60, output=1_000)
    with pytest.raises(LambdaRaised, match="LIMIT: the calls not answered yet hold more than 8,000 bytes"):
        await run(all_at_once(language, 30, text), language=language, bridge=bridge, limits=limits)
    assert len(made) == AT_ONCE


# --- after the kill ---


def job_for(bridge):
    return Job(Source("x.py", ""), "main", "null", ROOMY, bridge, Console(100))


async def test_a_call_that_python_had_made_before_its_worker_was_killed_does_not_begin_after():
    made = []

    async def bridge(method, argument):
        made.append(method)

    worker = MontyWorker()
    await worker.start(spare=False)
    try:
        worker.kill()
        # The interpreter's thread may have put this down for the event loop already.
        with pytest.raises(BridgeRefused, match="the lambda had ended"):
            await worker.bridge_call(job_for(bridge), "fs_write", (), {"path": "x"})
    finally:
        await worker.aclose()
    assert made == []


async def test_what_waits_for_its_turn_when_the_worker_is_killed_never_begins():
    made, turns, full = [], Turns(), asyncio.Event()

    async def bridge(method, argument):
        made.append(argument)
        if len(made) == AT_ONCE:
            full.set()
        await asyncio.Event().wait()

    job = job_for(bridge)
    calls = [turns.start(turns.call(job, "fs_write", b"%d" % n)) for n in range(AT_ONCE + 3)]
    await full.wait()
    late = turns.start(turns.call(job, "fs_write", b"99"))
    turns.close()
    ends = await asyncio.gather(*calls, late, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends)
    assert made == list(range(AT_ONCE))


@both
async def test_a_late_lambda_is_told_what_it_waited_for(language):
    async def never(method, argument):
        await asyncio.Event().wait()

    limits = SandboxLimits(wall_time=3)
    for count, told in (
        (1, "while adf.fs_read was under way"),
        (10, f"while {AT_ONCE} bridge calls (adf.fs_read first) were under way and {10 - AT_ONCE} more waited for their turn"),
    ):
        with pytest.raises(LambdaTimedOut, match=re.escape(f"gave no answer within 3 s, {told}") + "$"):
            await run(all_at_once(language, count), language=language, bridge=never, limits=limits)
