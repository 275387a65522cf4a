"""Time that passes only when nothing else can happen: minutes of waiting cost nothing, and no test depends on the machine.

The loop jumps to its next timer as soon as no callback is ready. Code in threads is not waited for, so tests with sync
tools and sync hooks with time limits use real time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits and nothing will ever happen: a deadlock")
        if timeout > 0:
            self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def in_virtual_time(test: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop of its own, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(test)
