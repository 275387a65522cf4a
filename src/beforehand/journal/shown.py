"""Text that is shown while its reply still comes in, as the journal records it: now and then, and not piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

RELEASE_SECONDS = 0.25
"""Released text is recorded at most this often while a reply comes in."""


class Shown:
    """What was shown of the reply that comes in and is not on record yet. `add` puts a record down."""

    def __init__(self, add: Callable[[str, Any], None]) -> None:
        self._add = add
        self._pieces: dict[tuple[str, str], list[str]] = {}
        self._soon: asyncio.TimerHandle | None = None

    def released(self, message_id: str, kind: str, text: str) -> None:
        """Text was shown while its reply still comes in."""
        self._pieces.setdefault((message_id, kind), []).append(text)
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(RELEASE_SECONDS, self.record)

    def record(self) -> None:
        """Put down what is not yet."""
        self._stop()
        for (message_id, kind), pieces in self._pieces.items():
            text = "".join(pieces)
            self._add("released", {"message": message_id, "kind": kind, "text": text, "chars": len(text)})
        self._pieces.clear()

    def forget(self) -> None:
        """It is in the history now, or retracted."""
        self._pieces.clear()
        self._stop()

    def _stop(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
