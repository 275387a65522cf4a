"""The abort signal that hooks, tools and sub-agents can watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from .errors import Aborted, FrozenError

logger = logging.getLogger("beforehand")


class AbortSignal:
    """Set once, when the run is aborted. `reason` says why, where someone said so."""

    __slots__ = ("_aborted", "_callbacks", "_event", "_reason")

    def __init__(self) -> None:
        self._aborted = False
        self._reason: str | None = None
        self._event: asyncio.Event | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def aborted(self) -> bool:
        return self._aborted

    @aborted.setter
    def aborted(self, value: bool) -> NoReturn:
        raise FrozenError("AbortSignal.aborted is frozen: only the run sets it")

    @property
    def reason(self) -> str | None:
        return self._reason

    @reason.setter
    def reason(self, value: str | None) -> NoReturn:
        raise FrozenError("AbortSignal.reason is frozen: only the run sets it")

    def set(self, reason: str | None = None) -> None:
        """Abort. Later calls change nothing."""
        if self._aborted:
            return
        self._aborted, self._reason = True, reason
        if self._event is not None:
            self._event.set()
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a callback of the abort signal failed; the abort goes on")

    async def wait(self) -> None:
        """Return once the run is aborted."""
        if self._event is None:
            self._event = asyncio.Event()
            if self.aborted:
                self._event.set()
        await self._event.wait()

    def on_abort(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` at the abort (at once if it has been). Returns a function that takes it back."""
        if self.aborted:
            callback()
            return lambda: None
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def raise_if_aborted(self) -> None:
        """For long loops in tools: raises `Aborted`, which no `except Exception` swallows."""
        if self.aborted:
            raise Aborted(self.reason or "aborted")
