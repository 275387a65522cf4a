"""The order of the messages that hooks queue. Calls side by side, and lambdas' calls, are not gone over in the order in which
they spoke, so each message is on record with a number."""

from __future__ import annotations

from typing import Any

from ..decisions import Effect, Queue
from ..messages import Message
from ..queues import from_hook
from .codec import read_effect, write_effect


class HookQueue:
    """Numbers what hooks queue, and puts what comes back from the record into its order."""

    def __init__(self) -> None:
        self._last = 0
        self._read: dict[int, tuple[int, Message]] = {}
        """The messages that came from the record, by identity, each with its number."""

    def write(self, effect: Effect) -> dict[str, Any]:
        """What is recorded of an effect. To be asked as it happens."""
        written = write_effect(effect)
        if isinstance(effect, Queue):
            self._last += 1
            written["nth"] = self._last
        return written

    def read(self, written: dict[str, Any]) -> Effect:
        effect = read_effect(written)
        if isinstance(effect, Queue) and (nth := written.get("nth")) is not None:
            effect = Queue(from_hook(effect.message))
            self._read[id(effect.message)] = nth, effect.message  # type: ignore[assignment]
            self._last = max(self._last, nth)
        return effect

    def arrange(self, queue: list[Message]) -> None:
        """Put those that came from the record in the order in which they were queued. Others keep their places."""
        if self._read and len(queue) > 1:
            numbered = sorted([self._read[id(m)] for m in queue if id(m) in self._read], key=lambda read: read[0])
            places = [place for place, message in enumerate(queue) if id(message) in self._read]
            for place, (_, message) in zip(places, numbered, strict=True):
                queue[place] = message
