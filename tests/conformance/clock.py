"""An event loop whose time is not the world's: when nothing is left to do, it jumps to the next timer.

The recordings hold tools that sleep for 500 ms and aborts 20 ms after some event. Here they cost nothing, and their order
is that of the numbers and not of the machine's load.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Value = TypeVar("Value")


class Stuck(Exception):
    """Nothing can happen any more, and the scenario is not over."""


class JumpingSelector(selectors.DefaultSelector):
    """Does not wait: the time that a wait would have taken is added to `now`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Stuck("every task waits for something that nobody will do")
        self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


def run(scenario: Coroutine[Any, Any, Value]) -> Value:
    """Run a scenario to its end, without waiting. Raises `Stuck` if it would never end."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(scenario)
