"""Records of one run that have been put down and are not written yet."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ..errors import JournalError
from .queries import Head
from .sqlite import Entry, encode, now
from .store import Store

AGAIN_SECONDS = 0.02
"""While another process writes, what nobody waits for is tried again this often."""


class Buffer:
    """Gathers records, so that what is decided in one go is one commit. After a write has failed it takes no more."""

    def __init__(self, journal: Store, head: Head) -> None:
        self.journal, self.head = journal, head
        self.broken: JournalError | None = None
        self._entries: list[Entry] = []
        self._due = False

    def add(self, kind: str, body: Any) -> None:
        """Put a record down. It is written before the run waits for anything, or by `write`."""
        if self.broken is not None:
            return
        self._entries.append((kind, now(), encode(body)))
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._due = False
        if self._entries and self.broken is None:  # else there would be a gap before them
            try:
                self.journal.append(self.head, self._entries, wait=0)
                self._entries = []
            except JournalError as error:
                if error.temporary:
                    self._due = True
                    asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._flush)
                else:
                    self.broken = error

    async def write(self, durable: bool = False) -> None:
        """Write what was put down. With `durable`, wait for the disk as far as the journal is asked to. Raises `JournalError`."""
        if self.broken is not None:
            raise JournalError(str(self.broken))
        entries, self._entries = self._entries, []
        try:
            await self.journal.write(self.head, entries, durable)
        except JournalError as error:
            self.broken = error
            raise

    async def write_if_possible(self) -> None:
        """Write what was put down. If that fails, the next `write` says so."""
        with contextlib.suppress(JournalError):
            await self.write()
