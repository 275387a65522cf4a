"""Records that have to wait until another process has written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any


class Late:
    """Records of one run, in the order in which they were put down. `append` writes some of them, in a thread.

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
                self._going = asyncio.ensure_future(asyncio.to_thread(self._write))
                self._going.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waits raises it
            await asyncio.shield(self._going)

    def _write(self) -> None:
        while self.entries:
            some = self.entries[:]  # more may be put down meanwhile
            self._append(some)
            del self.entries[: len(some)]
