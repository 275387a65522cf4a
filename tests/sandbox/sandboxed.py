"""Running one lambda in a test, and looking at the processes of this one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from beforehand.sandbox import BridgeRefused, Outcome, SandboxLimits, Source, call

ROOMY = SandboxLimits(wall_time=60)
"""For lambdas that are to succeed on a machine that is busy."""


async def no_bridge(method: str, argument: Any) -> Any:
    raise BridgeRefused("NOT_FOUND", f"adf.{method} does not exist here")


class Awaited:
    """The bridge of a call that others wait for."""

    awaited = True

    async def __call__(self, method: str, argument: Any) -> Any:
        raise NotImplementedError


async def run(source: str, argument: Any = None, *, language: str = "py", limits: SandboxLimits = ROOMY, bridge: Any = no_bridge,
              function: str = "main", signal: Any = None) -> Outcome:  # fmt: skip
    return await call(Source(f"lib/x.{language}", source), function, argument, limits=limits, bridge=bridge, signal=signal)


CALLS_THE_BRIDGE = {
    "py": "async def main(a):\n    await adf.fs_read({})",
    "ts": "export async function main() { await adf.fs_read({}) }",
}


async def spare_after_a_call(language: str) -> int:
    """The process that waits for the next call, once the one that did this call is gone. None may be waiting before."""
    before, used = children(), set[int]()

    async def bridge(method: str, argument: Any) -> None:
        used.update(children() - before)

    await run(CALLS_THE_BRIDGE[language], language=language, bridge=bridge)
    async with asyncio.timeout(30):
        while len(here := children() - before) != 1 or here == used:  # noqa: ASYNC110 - a process that is collected sets no event
            await asyncio.sleep(0.005)
    return here.pop()


def children() -> set[int]:
    """The processes this one has started that are not gone, zombies included."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= {int(pid) for pid in (task / "children").read_text().split()}
        except FileNotFoundError:  # a thread that has just ended
            continue
    return found


async def until_gone(before: set[int]) -> None:
    """Return once every process started since is gone. Killed ones are collected by other threads, so it looks again."""
    async with asyncio.timeout(30):
        while children() - before:  # noqa: ASYNC110 - a process that is collected sets no event
            await asyncio.sleep(0.005)
