"""Lambdas that call lambdas: how many one outermost call may lead to, at once and in all."""

import asyncio

import pytest
from sandbox.sandboxed import Awaited, run

from beforehand.sandbox import LambdaRaised, SandboxLimits
from beforehand.sandbox.family import AT_ONCE, MAX_DEPTH


def calling(count, method):
    """A lambda that calls its bridge so often at once, and keeps what each call gave, or was refused with."""
    return f"""
import asyncio
async def one():
    try:
        return await adf.{method}()
    except Exception as error:
        return str(error)
async def main(a):
    return await asyncio.gather(*[one() for n in range({count})])
"""


async def test_a_tree_of_calls_is_narrower_the_deeper_it_is_and_every_call_has_its_turn():
    under_way = most = 0
    full = asyncio.Event()

    async def leaf(method, argument):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == AT_ONCE // 2:
            full.set()
        await full.wait()
        under_way -= 1
        return 1

    async def branch(method, argument):
        return (await run(calling(1, "fs_read"), bridge=leaf)).value

    async def trunk(method, argument):
        return (await run(calling(3, "fs_read"), bridge=branch)).value

    assert (await run(calling(5, "fs_read"), bridge=trunk)).value == [[[1]] * 3] * 5
    assert most == AT_ONCE // 2


async def test_a_call_that_those_inside_wait_for_needs_none_of_their_places_nor_does_what_it_calls():
    full, told = asyncio.Event(), asyncio.get_running_loop().create_future()
    waiting, judging = [], []

    class Asks(Awaited):
        async def __call__(self, method, argument):
            return (await run("def main(a):\n    return 1")).value

    async def judge():
        await full.wait()
        told.set_result((await run("async def main(a):\n    return await adf.fs_list()", bridge=Asks())).value)

    async def leaf(method, argument):
        waiting.append(method)
        if len(waiting) == AT_ONCE // 2:
            full.set()
        return await told

    async def branch(method, argument):
        return (await run(calling(1, "fs_read"), bridge=leaf)).value

    async def trunk(method, argument):
        if not judging:
            judging.append(asyncio.ensure_future(judge()))
        return (await run(calling(1, "fs_read"), bridge=branch)).value

    assert (await run(calling(AT_ONCE, "fs_read"), bridge=trunk)).value == [[[1]]] * AT_ONCE
    await judging[0]


async def test_one_call_leads_to_so_many_others_in_all():
    inner = []

    async def leaf(method, argument):
        inner.append(method)

    async def branch(method, argument):
        return (await run("async def main(a):\n    return await adf.fs_list()", bridge=leaf)).value

    async def trunk(method, argument):
        return (await run(calling(3, "fs_read"), bridge=branch)).value

    limits = SandboxLimits(wall_time=60, suspensions=5)
    (first, second) = (await run(calling(2, "fs_read"), bridge=trunk, limits=limits)).value
    assert len(inner) == 3  # and the two that called them
    refused = [answer for answer in first + second if answer is not None]
    assert len(refused) == 3
    assert all("the outermost lambda has led to 5 others" in text for text in refused)


async def test_what_one_call_has_used_up_another_has_not():
    async def branch(method, argument):
        return (await run("def main(a):\n    return 1")).value

    limits = SandboxLimits(wall_time=60, suspensions=2)
    for _ in range(3):
        assert (await run(calling(2, "fs_read"), bridge=branch, limits=limits)).value == [1, 1]


async def test_a_task_that_a_call_has_left_behind_makes_outermost_calls():
    left = []

    async def bridge(method, argument):
        left.append(asyncio.ensure_future(later()))

    async def later():
        await ended.wait()
        return [(await run("def main(a):\n    return 1")).value for _ in range(3)]

    ended = asyncio.Event()
    await run(calling(1, "fs_read"), bridge=bridge, limits=SandboxLimits(wall_time=60, suspensions=1))
    ended.set()
    assert await left[0] == [1, 1, 1]


async def test_calls_inside_calls_go_so_deep():
    depth = 0

    async def bridge(method, argument):
        nonlocal depth
        depth += 1
        return (await run("async def main(a):\n    return await adf.fs_read()", bridge=bridge)).value

    with pytest.raises(LambdaRaised, match=f"lambdas call lambdas at most {MAX_DEPTH} deep"):
        await bridge("", None)
    assert depth == MAX_DEPTH + 1  # the last one was refused
