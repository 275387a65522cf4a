"""What the journal costs: a turn with one tool call, with and without it, and how fast a long run goes on from its record.

What has a bound is told as it was measured, and in brackets at the pace of the machine that the bound was stated for (`pace.py`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beforehand import Agent, Hook, Limits, hook, tool
from beforehand.journal import Journal
from beforehand.seams import SEAMS
from beforehand.testing import ScriptedModel, text, tool_call

from pace import Paced

TURNS = 1000


@tool(replay="safe")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(replay="safe")
async def read(a: int, b: int) -> str:
    """Read a page of 20 KB."""
    return f"{a} " * (20_000 // (len(str(a)) + 1))


HOOKS = [Hook(seam=spec.name, fn=lambda seen: None, name=f"hook at {spec.name}") for spec in SEAMS]


@hook.before_tool_call
def watch(call: Any) -> None:
    """Decides nothing."""


def script(turns: int) -> list[Any]:
    return [*[tool_call("add", {"a": i, "b": 1}, id=f"c{i}") for i in range(turns)], text("done")]


def agent(model: Any, **options: Any) -> Agent:
    return Agent(model=model, tools=[add], limits=Limits(max_turns=None), **options)


def cpu(one: Agent, run_id: str) -> float:
    """CPU time of a turn in a run of a thousand, in microseconds: that of all threads, until those that fold the log are done."""
    gc.collect()  # what earlier runs have left is not this one's
    began = time.process_time()
    asyncio.run(one.run("go", run_id=run_id))
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    return (time.process_time() - began) / TURNS * 1e6


def beside_each_other(folder: Path, rounds: int = 20) -> None:
    """A turn without the journal and with it, in turns: what else the machine does hits both."""
    off, normal, above = Paced(), Paced(), Paced()
    for number in range(rounds):
        for paced in (off, normal, above):
            paced.begin()
        off.end(cpu(agent(ScriptedModel(script(TURNS))), f"r{number}"))
        journal = Journal(folder / f"n{number}.db", durability="normal")
        normal.end(cpu(agent(ScriptedModel(script(TURNS)), journal=journal), f"r{number}"))
        above.end(normal.measured[-1] - off.measured[-1])
        journal.close()
    print(f"turn, journal off       {off.best:8.1f} µs CPU, the best of {rounds} runs of {TURNS} ({off.at_reference:.1f})")
    print(
        f'turn, "normal"          {normal.best:8.1f} µs CPU, {normal.best - off.best:.1f} above off '
        f"({above.at_reference:.1f} in the median of neighbouring runs; bound 150)"
    )


def fsync_seconds(folder: Path) -> float:
    """What one fsync of 12 KB costs on this disk (median of 50)."""
    took = []
    with (folder / "probe").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 12288)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return sorted(took)[25]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        beside_each_other(folder)
        full = agent(ScriptedModel(script(200)), journal=folder / "full.db")
        began = time.perf_counter()
        asyncio.run(full.run("go"))
        took = (time.perf_counter() - began) / 200
        print(f'turn, "full"            {took * 1e6:8.0f} µs wall; one fsync here takes {fsync_seconds(folder) * 1e6:.0f} µs')
        journal = Journal(folder / "n0.db", durability="normal")
        began = time.perf_counter()
        asyncio.run(agent(ScriptedModel([]), journal=journal).resume("r0"))
        print(f"result of a finished run of {TURNS} turns  {time.perf_counter() - began:.3f} s")
        goes_on(f"resume of a run of {TURNS} turns", journal, folder)
        replies = [*[tool_call("read", {"a": i, "b": 1}, id=f"c{i}") for i in range(TURNS)], text("done")]
        hooked: dict[str, Any] = {"tools": [read], "hooks": HOOKS}
        big = Journal(folder / "big.db", durability="normal")
        asyncio.run(agent(ScriptedModel(replies), journal=big).replace(**hooked).run("go", run_id="r0"))
        goes_on("the same with hooks at every seam and results of 20 KB", big, folder, **hooked)
        many(folder)
        reading(folder)


def goes_on(what: str, journal: Journal, folder: Path, times: int = 5, **options: Any) -> None:
    """Resume a run without its end, so many times."""
    paced = Paced()
    for number in range(times):
        cut = _without_end(journal, folder / f"cut-{journal.path.stem}-{number}.db")
        paced.begin()
        paced.end(asyncio.run(resumed(agent(ScriptedModel([text("done")]), journal=cut).replace(**options))))
        cut.close()
    print(f"{what:<54}  {paced.best:.3f} s, the best of {times} ({paced.at_reference:.3f}; bound 0.5)")


async def resumed(one: Agent) -> float:
    """Seconds. Measured inside: at its end `asyncio.run` makes a text of the whole result, for nobody."""
    began = time.perf_counter()
    await one.resume("r0")
    return time.perf_counter() - began


def many(folder: Path, runs: int = 1000, turns: int = 5) -> None:
    """So many runs at once in one event loop, with and without the journal, and the longest time that the loop stood still."""

    async def all_at_once(make: Callable[[], Agent]) -> tuple[float, float]:
        agents = [make() for _ in range(runs)]
        longest, over = 0.0, False

        async def watch() -> None:
            nonlocal longest
            while not over:
                before = time.perf_counter()
                await asyncio.sleep(0.001)  # one that never rests would keep the threads that write from theirs
                longest = max(longest, time.perf_counter() - before - 0.001)

        watcher = asyncio.create_task(watch())
        began = time.perf_counter()
        await asyncio.gather(*[one.run("go") for one in agents])
        took, over = time.perf_counter() - began, True
        await watcher
        return took, longest

    print(f"{runs} runs of {turns} turns at once:")
    for name, options in (
        ("journal off", {}), ("normal", {"durability": "normal"}), ("full", {"durability": "full"}),
    ):  # fmt: skip
        journal = Journal(folder / f"many-{name}.db", **options) if options else None  # type: ignore[arg-type]
        took, longest = asyncio.run(all_at_once(lambda j=journal: agent(ScriptedModel(script(turns)), journal=j)))  # type: ignore[misc]
        each = took / runs / turns * 1e6
        print(f"  {name:12} {took:6.2f} s, {each:6.0f} µs a turn; the longest turn of the event loop {longest:.3f} s")


def command(*words: str) -> tuple[Paced, Paced]:
    """Seconds that a process takes from start to end, and seconds of CPU, of seven."""
    wall, cpu = Paced(), Paced()
    for _ in range(7):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
        wall.end(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.end(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return wall, cpu


def reading(folder: Path) -> None:
    """What it takes to look: each command as a process, less the start of Python itself."""
    path = folder / "long.db"
    turns = 10_000 // 8  # records a turn
    one = agent(ScriptedModel(script(turns)), journal=Journal(path, durability="normal"), hooks=[watch])
    asyncio.run(one.run("go", run_id="long"))
    records = one.plan.journal.head("long").records
    one.plan.journal.close()
    many = Journal(folder / "many.db", durability="normal")
    start, end = one.plan.journal.records("long")[0], one.plan.journal.records("long")[-1]
    for number in range(10_000):
        many.append(many.open_run(f"run-{number}", (start.kind, start.at, start.body)), [(end.kind, end.at, end.body)])
    many.close()
    python = command("-c", "pass")
    print(f"Python itself takes {python[0].best:.3f} s to start and end ({python[1].best:.3f} CPU); above that take:")
    for name, words, bound in (
        ("import beforehand", ("-c", "import beforehand"), ""),
        ("beforehand --version", ("-m", "beforehand", "--version"), ""),
        (f"trace of {records} records", ("-m", "beforehand", "trace", "long", "--journal", str(path)), "; bound 0.3"),
        ("  the same as JSON", ("-m", "beforehand", "trace", "long", "--json", "--journal", str(path)), ""),
        ("  its hooks", ("-m", "beforehand", "trace", "long", "--hooks", "--journal", str(path)), ""),
        ("list of 10,000 runs", ("-m", "beforehand", "runs", "--journal", str(folder / "many.db")), ""),
    ):
        took = command(*words)
        wall, cpu = (whole.best - start.best for whole, start in zip(took, python, strict=True))
        at_reference = took[0].at_reference - python[0].at_reference
        print(f"  {name:<40} {wall:.3f} s ({at_reference:.3f}{bound}), {cpu:.3f} CPU")


def _without_end(journal: Journal, path: Path) -> Journal:
    """The same run as a process leaves it that dies before its last request."""
    records = journal.records("r0")
    last = max(i for i, record in enumerate(records) if record.kind == "request")
    first, *rest = [(r.kind, r.at, r.body) for r in records[:last]]
    cut = Journal(path, durability="normal")
    cut.append(cut.open_run("r0", first), rest)
    return cut


if __name__ == "__main__":
    main()
