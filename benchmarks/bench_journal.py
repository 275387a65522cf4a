"""What the journal costs: a turn with one tool call, with and without it, and how fast a long run goes on from its record."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beforehand import Agent, Hook, Limits, tool
from beforehand.journal import Journal
from beforehand.seams import SEAMS
from beforehand.testing import ScriptedModel, text, tool_call

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


def script(turns: int) -> list[Any]:
    return [*[tool_call("add", {"a": i, "b": 1}, id=f"c{i}") for i in range(turns)], text("done")]


def agent(model: Any, **options: Any) -> Agent:
    return Agent(model=model, tools=[add], limits=Limits(max_turns=None), **options)


def cpu(make: Callable[[int], Agent], rounds: int = 5) -> float:
    """CPU time of one turn, in microseconds: the best of several runs of a thousand."""
    best = float("inf")
    for number in range(rounds):
        one = make(number)
        began = time.process_time()
        asyncio.run(one.run("go", run_id=f"r{number}"))
        best = min(best, time.process_time() - began)
    return best / TURNS * 1e6


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
        off = cpu(lambda n: agent(ScriptedModel(script(TURNS))))
        normal = cpu(lambda n: agent(ScriptedModel(script(TURNS)), journal=Journal(folder / f"n{n}.db", durability="normal")))
        print(f"turn, journal off       {off:8.1f} µs CPU")
        print(f'turn, "normal"          {normal:8.1f} µs CPU, {normal - off:.1f} above off (bound 150)')
        full = agent(ScriptedModel(script(200)), journal=folder / "full.db")
        began = time.perf_counter()
        asyncio.run(full.run("go"))
        took = (time.perf_counter() - began) / 200
        print(f'turn, "full"            {took * 1e6:8.0f} µs wall; one fsync here takes {fsync_seconds(folder) * 1e6:.0f} µs')
        journal = Journal(folder / "n0.db", durability="normal")
        began = time.perf_counter()
        asyncio.run(agent(ScriptedModel([]), journal=journal).resume("r0"))
        print(f"result of a finished run of {TURNS} turns  {time.perf_counter() - began:.3f} s")
        cut = _without_end(journal, folder / "cut.db")
        took = asyncio.run(resumed(agent(ScriptedModel([text("done")]), journal=cut)))
        print(f"resume of a run of {TURNS} turns           {took:.3f} s (bound 0.5)")
        replies = [*[tool_call("read", {"a": i, "b": 1}, id=f"c{i}") for i in range(TURNS)], text("done")]
        hooked: dict[str, Any] = {"tools": [read], "hooks": HOOKS}
        big = Journal(folder / "big.db", durability="normal")
        asyncio.run(agent(ScriptedModel(replies), journal=big).replace(**hooked).run("go", run_id="r0"))
        cut = _without_end(big, folder / "bigcut.db")
        took = asyncio.run(resumed(agent(ScriptedModel([text("done")]), journal=cut).replace(**hooked)))
        print(f"the same with hooks at every seam and results of 20 KB  {took:.3f} s (bound 0.5)")
        many(folder)


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
                await asyncio.sleep(0)
                longest = max(longest, time.perf_counter() - before)

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
