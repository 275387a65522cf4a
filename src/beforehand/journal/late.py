"""Records that have to wait until somebody else has written."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..errors import JournalError
from .opening import BUSY_SECONDS, JournalBusy

T = TypeVar("T")

_PAUSE, _LONGEST_PAUSE = 0.002, 0.05
"""Seconds between two tries: the longer somebody writes, the more."""


async def when_free(change: Callable[[], T]) -> T:
    """What `change` comes to, as soon as nobody else writes. Raises its last `JournalBusy` after `BUSY_SECONDS`.

    It is tried in the event loop. A thread gets the interpreter back after each statement only when the loop lets go of it,
    and holds the journal meanwhile: with many runs they would all come to wait for each other in threads.
    """
    until, pause = time.monotonic() + BUSY_SECONDS, _PAUSE
    while True:
        try:
            return change()
        except JournalBusy:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


class Late:
    """Records of one run, in the order in which they were put down. `append` writes some of them, and waits for nobody.

    While there are any, nothing may be added to the run past them.
    """

    def __init__(self, append: Callable[[Sequence[Any]], None]) -> None:
        self.entries: list[Any] = []
        self._append = append
        self._going: asyncio.Future[None] | None = None

    async def written(self) -> None:
        """Return once there are none left. Raises what writing them raised."""
        while self.entries:
            if self._going is None or self._going.done():
                self._going = asyncio.ensure_future(self._write())
                self._going.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waits raises it
            await asyncio.shield(self._going)

    async def _write(self) -> None:
        try:
            await when_free(self._write_all)
        except asyncio.CancelledError:  # the event loop ends, once what is under way has: others wait as well, and all at once
            with contextlib.suppress(JournalError):
                await when_free(self._write_all)
            raise

    def _write_all(self) -> None:
        if self.entries:
            self._append(self.entries)
            self.entries.clear()
