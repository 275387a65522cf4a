"""Workers that are started before their call comes, because a start takes time.

There are as many as there were calls at once of late, since as many may come again: an agent whose five tool calls each
pass a lambda finds five. The first is started when a call has ended, the others little by little, so that they take hardly
any processor from the calls under way. One for which no call comes is ended after a while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from .contract import Job

SPARE_TIME = 60.0
"""Seconds a spare waits for a call. How many calls there were at once is remembered for as long, and for twice that at most."""
MOMENT = 0.01
"""Seconds from the end of a call to what is done because of it: a spare is started, what is left of its worker is freed. Whoever
waits for the result goes on first; and a start beside a process that is just ending takes several times as long."""
PAUSE = 0.1
"""Seconds from the start of one spare to that of the next."""


class Worker(Protocol):
    """One process, for one call."""

    @property
    def alive(self) -> bool: ...
    async def start(self, spare: bool) -> None: ...
    async def run(self, job: Job) -> bytes: ...
    def kill(self) -> None: ...
    async def aclose(self) -> None: ...


class Spares:
    """The spares of one language on one event loop: what `start` gives, at most `most`. `discard` ends one nobody took."""

    def __init__(
        self, start: Callable[[], Awaitable[Worker]], discard: Callable[[asyncio.Future[Worker]], None], most: int
    ) -> None:
        self._start, self._discard, self._most = start, discard, most
        self._waiting: deque[tuple[float, asyncio.Future[Worker]]] = deque()
        """Each with the event loop's time at which it has waited long enough, the oldest first."""
        self._filling: asyncio.TimerHandle | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._calls = self._peak = self._peak_before = 0
        self._turn = _now() + SPARE_TIME
        """When `_peak` becomes `_peak_before`."""

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around a call, from when it waits for its place on: so many there are at once."""
        self._calls += 1
        self._remembered()
        try:
            yield
        finally:
            self._calls -= 1
            if self._filling is None:
                self._filling = asyncio.get_running_loop().call_later(MOMENT, self._fill)

    def take(self) -> asyncio.Future[Worker] | None:
        """The spare that has waited longest. It may still be starting, or have died."""
        return self._waiting.popleft()[1] if self._waiting else None

    def give_up(self) -> list[asyncio.Future[Worker]]:
        """All the spares, for the caller to end. How many calls there were is forgotten."""
        for timer in (self._filling, self._ending):
            if timer is not None:
                timer.cancel()
        self._filling = self._ending = None
        self._peak = self._peak_before = self._calls
        spares = [spare for _, spare in self._waiting]
        self._waiting.clear()
        return spares

    def _remembered(self) -> int:
        """How many calls there were at once of late."""
        now = _now()
        if now >= self._turn:
            self._peak_before = self._peak if now < self._turn + SPARE_TIME else 0
            self._peak, self._turn = 0, now + SPARE_TIME
        self._peak = max(self._peak, self._calls)
        return max(self._peak, self._peak_before)

    def _fill(self) -> None:
        """Start one if there are too few, and look again in a moment."""
        self._filling = None
        # A call under way is one of those that there were at once, and has its worker.
        if len(self._waiting) >= min(self._remembered(), self._most) - self._calls:
            return
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + SPARE_TIME, asyncio.ensure_future(self._start())))
        self._filling = loop.call_later(PAUSE, self._fill)
        if self._ending is None:
            self._ending = loop.call_later(SPARE_TIME, self._end_old)

    def _end_old(self) -> None:
        """End the spares that have waited long enough. This alone outlives a spare that was taken, so that it can be freed."""
        while self._waiting and self._waiting[0][0] <= _now():
            self._discard(self._waiting.popleft()[1])
        self._ending = asyncio.get_running_loop().call_at(self._waiting[0][0], self._end_old) if self._waiting else None


def _now() -> float:
    return asyncio.get_running_loop().time()
