"""What is left of a conversation whose old messages became a summary, told by where those are that are on record anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..messages import Message
from .codec import read_messages, write_messages


def write_shortened(whole: Sequence[Message], left: Sequence[Message], removed: Sequence[Message]) -> dict[str, list[Any]]:
    """`whole` is the history before, and all that the run has added to it."""
    return {"left": write_messages(left, whole), "removed": write_messages(removed, whole)}


def read_shortened(data: dict[str, Any], whole: Sequence[Message]) -> tuple[list[Message], tuple[Message, ...]]:
    """What is left, and what was removed."""
    return list(read_messages(data["left"], whole)), read_messages(data["removed"], whole)


def shortened_of(run: Any) -> dict[str, Any]:
    """What the conversation goes on from, where that is not all that was said."""
    if run.lasting is None:
        return {}
    return {"shortened": write_shortened(run.history.view(), run.lasting.view(), run.removed)}
