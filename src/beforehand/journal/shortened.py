"""What is left of a conversation whose old messages became a summary, told by where those are that are on record anyway."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..messages import Message
from .codec import message_of
from .details import kept

Place = list[int] | Message
"""Messages from one number up to another, or one that stands nowhere else: a summary."""


def write_shortened(whole: Iterable[Message], left: Iterable[Message], removed: Iterable[Message]) -> dict[str, list[Place]]:
    """`whole` is the history before, and all that the run has added to it."""
    numbers = {id(message): number for number, message in enumerate(whole)}
    return {"left": _places(left, numbers), "removed": _places(removed, numbers)}


def _places(messages: Iterable[Message], numbers: dict[int, int]) -> list[Place]:
    places: list[Place] = []
    for message in messages:
        number = numbers.get(id(message))
        last = places[-1] if places else None
        if number is None:
            places.append(kept(message))
        elif isinstance(last, list) and last[1] == number:
            last[1] = number + 1
        else:
            places.append([number, number + 1])
    return places


def read_shortened(data: dict[str, Any], whole: Sequence[Message]) -> tuple[list[Message], tuple[Message, ...]]:
    """What is left, and what was removed."""
    return _messages(data["left"], whole), tuple(_messages(data["removed"], whole))


def _messages(places: list[Any], whole: Sequence[Message]) -> list[Message]:
    found: list[Message] = []
    for place in places:
        found += whole[slice(*place)] if isinstance(place, list) else [message_of(place)]
    return found
