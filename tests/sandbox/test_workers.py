"""A worker is fresh, serves one call, and is gone when the call has ended."""

import asyncio
import os
import subprocess
import sys

import pytest
from sandbox.sandboxed import ROOMY, Awaited, children, no_bridge, run, spare_after_a_call, until_gone

from beforehand.errors import Aborted
from beforehand.sandbox import Source, call, check_language, close_spares
from beforehand.sandbox.pool import MAX_WORKERS
from beforehand.signals import AbortSignal

both = pytest.mark.parametrize("language", ["py", "ts"])
WAITS = {"py": "async def main(a):\n    await adf.fs_read({})\n    await adf.fs_write({})", "ts": """
    export async function main() { await adf.fs_read({}); await adf.fs_write({}) }"""}  # fmt: skip


class Gate:
    """A bridge whose first call waits, and which knows what became of it."""

    def __init__(self) -> None:
        self.reached, self.open, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.methods = ()
        self.made: list[str] = []

    async def __call__(self, method, argument):
        self.made.append(method)
        self.reached.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@both
async def test_an_abort_ends_the_call_and_nothing_lands_later(language):
    gate, signal = Gate(), AbortSignal()
    under_way = asyncio.ensure_future(run(WAITS[language], language=language, bridge=gate, signal=signal))
    await gate.reached.wait()
    signal.set("enough")
    with pytest.raises(Aborted, match="enough"):
        await under_way
    gate.open.set()
    await gate.cancelled.wait()
    await close_spares()
    assert gate.made == ["fs_read"]


@both
async def test_a_cancellation_ends_the_call_and_its_process(language):
    before, gate = children(), Gate()
    under_way = asyncio.ensure_future(run(WAITS[language], language=language, bridge=gate))
    await gate.reached.wait()
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    await gate.cancelled.wait()
    await close_spares()
    await until_gone(before)


async def test_nothing_starts_after_an_abort():
    before, signal = children(), AbortSignal()
    signal.set()
    with pytest.raises(Aborted):
        await run("def main(a):\n    return 1", signal=signal)
    assert children() == before


@both
async def test_no_two_calls_share_a_process(language):
    source = "export function main() { return Deno.pid }" if language == "ts" else "def main(a):\n    return 1"
    pids = set()

    async def bridge(method, argument):
        pids.update(children() - known)

    known = children()
    if language == "py":
        source = "async def main(a):\n    await adf.fs_read({})"
        for _ in range(3):
            await run(source, bridge=bridge)
        assert len(pids) >= 3
    else:
        assert len({(await run(source, language="ts")).value for _ in range(3)}) == 3


@both
async def test_one_spare_waits_after_a_call_and_ends_on_request(language):
    before = children()
    await spare_after_a_call(language)
    await close_spares()
    await until_gone(before)


@both
async def test_many_calls_at_once_each_get_their_own_answer(language):
    source = "def main(a):\n    return a" if language == "py" else "export function main(a) { return a }"
    outcomes = await asyncio.gather(*[run(source, n, language=language) for n in range(12)])
    assert [o.value for o in outcomes] == list(range(12))


async def test_calls_made_by_calls_do_not_wait_for_those_that_wait_for_them():
    async def bridge(method, argument):
        return (await run("def main(a):\n    return 'inner'")).value

    outer = "async def main(a):\n    return await adf.sys_lambda({})"
    outcomes = await asyncio.gather(*[run(outer, bridge=bridge) for _ in range(MAX_WORKERS + 1)])
    assert {o.value for o in outcomes} == {"inner"}


async def test_a_call_that_those_at_work_wait_for_needs_none_of_their_places():
    full, told = asyncio.Event(), asyncio.get_running_loop().create_future()
    waiting = []

    async def bridge(method, argument):
        waiting.append(method)
        if len(waiting) == MAX_WORKERS:
            full.set()
        return await told

    outer = "async def main(a):\n    return await adf.sys_lambda({})"
    at_work = [asyncio.ensure_future(run(outer, bridge=bridge)) for _ in range(MAX_WORKERS)]
    await full.wait()
    told.set_result((await run("def main(a):\n    return 'judged'", bridge=Awaited())).value)
    assert {outcome.value for outcome in await asyncio.gather(*at_work)} == {"judged"}


def test_spares_end_with_their_event_loop():
    before = children()
    asyncio.run(run("export function main() {}", language="ts"))
    asyncio.run(run("def main(a):\n    pass"))
    asyncio.run(until_gone(before))


BY_HAND = """
import asyncio, gc, time
from pathlib import Path
from sandbox.sandboxed import children, run

async def leave_a_spare():
    await run("def main(a):\\n    pass")
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)

def is_at_work(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

for _ in range(3):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_a_spare())
    loop.close()
    del loop
asyncio.run(run("def main(a):\\n    pass"))
gc.collect()
while any(map(is_at_work, children())):
    time.sleep(0.005)
"""


def test_spares_end_with_event_loops_that_were_closed_by_hand():
    """Somebody who has a new event loop for each request, and gives it no end but `close`. In a process of its own, which
    collects the ended ones when it likes."""
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", BY_HAND], env=there, timeout=30, check=True)


RIGHT_AFTER = """
import asyncio, gc, os, time
from sandbox.sandboxed import run

def called(source, language):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(run(source, language=language))
    loop.close()

def files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

def both():
    called("export function main() {}", "ts")
    called("def main(a):\\n    pass", "py")

both()
first = files()
for _ in range(8):
    both()
while files() > first + 4:
    time.sleep(0.005)
"""


def test_an_event_loop_may_be_closed_by_hand_right_after_a_call():
    """What is left of the worker is freed a moment after the call, and this one has no moment more."""
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", RIGHT_AFTER], env=there, timeout=60, check=True, capture_output=True, text=True)
    assert "Error" not in ran.stderr, ran.stderr


async def test_an_argument_may_be_json_text():
    outcome = await call(Source("x.py", "def main(a):\n    return a"), "main", b'{"a": 1}', limits=ROOMY, bridge=no_bridge)
    assert outcome.value == {"a": 1}


@pytest.mark.parametrize("path", ["x.rb", "x", "x.tsx", "py"])
def test_a_file_of_another_language_is_refused(path):
    from beforehand import ConfigError

    with pytest.raises(ConfigError, match=r"must end in \.py, \.ts or \.js"):
        check_language(Source(path, ""))


async def test_a_spare_that_has_died_is_replaced_and_no_call_is_lost():
    await close_spares()
    spare = await spare_after_a_call("ts")
    os.kill(spare, 9)
    await asyncio.to_thread(os.waitid, os.P_PID, spare, os.WEXITED | os.WNOWAIT)
    assert (await run("export function main() { return 1 }", language="ts")).value == 1


DENO = {
    "is gone": "def find_deno_bin(): return '/nonexistent/deno'",
    "may not be run": "def find_deno_bin(): return __file__",
    "is not installed": "raise ImportError('deno')",
}
WITHOUT = """
import asyncio, os, sys
from beforehand import Agent
from beforehand.sandbox import SandboxError, SandboxLimits, Source, call, folders
from beforehand.testing import ScriptedModel, text
from beforehand.workspace import Lambda

async def main(folder):
    try:
        await call(Source("x.ts", ""), "main", None, limits=SandboxLimits(wall_time=20), bridge=None)
    except Exception as error:
        print(f"{type(error).__name__}, {isinstance(error, SandboxError)}: {error}")
    gate = Lambda("x.py", seam="before_run", workspace=folder, timeout=20)
    result = await Agent(model=ScriptedModel([text("never")]), hooks=[gate]).run("go", check=False)
    print(result.error)
    print(os.listdir(folders._own()))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("how", DENO)
def test_where_deno_cannot_be_started_a_call_says_so_and_leaves_nothing(tmp_path, how):
    (tmp_path / "stub" / "deno").mkdir(parents=True)
    (tmp_path / "stub" / "deno" / "__init__.py").write_text(DENO[how])
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "x.py").write_text("async def main(c):\n    await adf.sys_lambda(source='x.ts')")
    (tmp_path / "agent" / "x.ts").write_text("export function main() {}")
    there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "stub"), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, tmp_path / "agent"], env=there, capture_output=True, text=True, timeout=60, check=True
    )
    outermost, nested, left = done.stdout.splitlines()
    if how == "is not installed":
        said = 'TypeScript and JavaScript lambdas need Deno: install the extra "js" of beforehand'
        assert outermost == f"ConfigError, False: {said}"
        assert f"DISABLED: {said}" in nested
    else:
        assert outermost.startswith("LambdaNotStarted, True: Deno cannot be started (")
        assert "FN_ERROR: Deno cannot be started (" in nested
    assert left == "[]"
