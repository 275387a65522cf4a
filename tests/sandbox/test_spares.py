"""As many workers wait for calls as there were calls at once of late, and none for longer than a while."""

import asyncio
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from pipeline.virtual_time import in_virtual_time
from sandbox.sandboxed import CALLS_THE_BRIDGE, children, run, spare_after_a_call, until_gone

from beforehand.sandbox import close_spares
from beforehand.sandbox.spares import MOMENT, PAUSE, SPARE_TIME, Spares

MOST = 8


class Idle:
    """What a pool needs to know of a worker that nobody uses."""

    alive = True

    async def start(self, spare):
        raise AssertionError("spares are started by whoever makes them")

    async def run(self, job):
        raise AssertionError("nobody took this one")

    def kill(self): ...

    async def aclose(self): ...


class Pool:
    """Spares that cost nothing, counted."""

    def __init__(self):
        self.starts = []
        self.discarded = []
        self.spares = Spares(self._start, self.discarded.append, MOST)

    async def _start(self):
        self.starts.append(asyncio.get_running_loop().time())
        return Idle()

    @property
    def waiting(self):
        return len(self.starts) - len(self.discarded)

    def calls_at_once(self, count):
        with ExitStack() as calls:
            for _ in range(count):
                calls.enter_context(self.spares.call())


def test_as_many_are_started_as_there_were_calls_at_once_one_after_the_other():
    async def go():
        pool = Pool()
        pool.calls_at_once(5)
        await asyncio.sleep(SPARE_TIME / 2)
        return pool

    pool = in_virtual_time(go())
    assert pool.waiting == 5
    assert [b - a for a, b in zip(pool.starts, pool.starts[1:], strict=False)] == [pytest.approx(PAUSE)] * 4


def test_the_first_is_started_when_whoever_waited_for_the_call_has_gone_on():
    async def go():
        pool = Pool()
        pool.calls_at_once(1)
        await asyncio.sleep(MOMENT / 2)
        early = pool.waiting
        await asyncio.sleep(MOMENT)
        return early, pool.waiting

    assert in_virtual_time(go()) == (0, 1)


def test_there_are_never_more_than_the_most():
    async def go():
        pool = Pool()
        pool.calls_at_once(10 * MOST)
        await asyncio.sleep(SPARE_TIME / 2)
        return pool.waiting

    assert in_virtual_time(go()) == MOST


def test_none_is_started_while_as_many_calls_are_under_way_as_ever():
    async def go():
        pool = Pool()
        with pool.spares.call(), pool.spares.call():
            for _ in range(20):
                pool.calls_at_once(1)
                with pool.spares.call():
                    await asyncio.sleep(PAUSE)
            await asyncio.sleep(3 * PAUSE)
            busy = pool.waiting
        await asyncio.sleep(1)
        return busy, pool.waiting

    assert in_virtual_time(go()) == (1, 3)


def test_one_that_nobody_took_is_ended_and_a_quiet_pool_starts_none_in_its_place():
    async def go():
        pool = Pool()
        pool.calls_at_once(4)
        await asyncio.sleep(SPARE_TIME - 1)
        before = len(pool.discarded)
        await asyncio.sleep(10 * SPARE_TIME)
        return before, len(pool.discarded), len(pool.starts)

    assert in_virtual_time(go()) == (0, 4, 4)


def test_calls_that_come_singly_after_many_at_once_end_up_with_one_spare():
    async def go():
        pool = Pool()
        taken = []
        pool.calls_at_once(6)
        for _ in range(int(4 * SPARE_TIME)):
            await asyncio.sleep(1)
            with pool.spares.call():
                taken.append(pool.spares.take())
        await asyncio.sleep(1)
        return pool.waiting - len(taken), None in taken

    assert in_virtual_time(go()) == (1, False)


def test_all_are_given_up_with_what_was_to_be_started():
    async def go():
        pool = Pool()
        pool.calls_at_once(6)
        await asyncio.sleep(2.5 * PAUSE)
        given = pool.spares.give_up()
        await asyncio.sleep(1)
        pool.calls_at_once(1)
        await asyncio.sleep(1)
        return len(given), len(pool.starts), pool.spares.take() is not None, pool.spares.take() is None

    assert in_virtual_time(go()) == (3, 4, True, True)


@pytest.mark.parametrize("language", ["py", "ts"])
async def test_calls_at_once_find_the_workers_of_the_calls_at_once_before(language):
    """Real processes: those that served the second three are those that waited after the first three."""

    async def three_at_once():
        before, here, all_here = children(), 0, asyncio.Event()

        async def bridge(method, argument):
            nonlocal here
            here += 1
            if here == 3:
                all_here.set()
            await all_here.wait()

        calls = [asyncio.ensure_future(run(CALLS_THE_BRIDGE[language], language=language, bridge=bridge)) for _ in range(3)]
        await all_here.wait()
        started = children() - before
        await asyncio.gather(*calls)
        return started

    alone = children()
    used = await three_at_once()
    assert len(used) == 3
    async with asyncio.timeout(30):
        while len(children() - alone - used) != 3:  # noqa: ASYNC110 - a process that is collected sets no event
            await asyncio.sleep(0.005)
    assert await three_at_once() == set()


NOTHING = {"py": "def main(a):\n    return 1", "ts": "export function main() { return 1 }"}


async def settled() -> None:
    """Return once what this event loop was asked for so far has been tried."""
    await asyncio.sleep(MOMENT)
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.skipif(sys.platform != "linux", reason="bounds of processes")
async def test_a_spare_that_could_not_start_fails_no_call():
    """There are no descriptors for a moment, while a spare is about to start."""
    import resource

    await close_spares()
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    await run(NOTHING["ts"], language="ts")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
    try:
        await settled()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    assert (await run(NOTHING["ts"], language="ts")).value == 1


@pytest.mark.parametrize("language", ["py", "ts"])
async def test_a_spare_that_somebody_cancelled_fails_no_call(language):
    await close_spares()
    await run(NOTHING[language], language=language)
    here = asyncio.all_tasks()
    async with asyncio.timeout(30):
        while not asyncio.all_tasks() - here:  # noqa: ASYNC110 - until it is asked to start, and before it does
            await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await settled()
    assert (await run(NOTHING[language], language=language)).value == 1


@pytest.mark.parametrize("language", ["py", "ts"])
async def test_spares_end_though_whoever_ends_them_is_cancelled(language):
    await close_spares()
    before = children()
    await spare_after_a_call(language)
    closing = asyncio.ensure_future(close_spares())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await until_gone(before)


FORKS = """
import asyncio, os
from beforehand.errors import ConfigError
from beforehand.sandbox import SandboxLimits, Source, call

async def bridge(method, argument): ...

def ran():
    source = Source("x.py", "def main(a):\\n    return 1")
    return asyncio.run(call(source, "main", None, limits=SandboxLimits(wall_time=20), bridge=bridge)).value

assert ran() == 1
child = os.fork()
if not child:
    try:
        ran()
    except ConfigError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert ran() == 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_says_at_once_that_it_cannot_run_python_lambdas():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.startswith("Python lambdas cannot run in a process that was forked"), done
