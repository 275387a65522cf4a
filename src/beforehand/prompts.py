"""What a caller says to an agent, as messages: checked, and with nothing in them that could still be changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from .errors import ConfigError
from .history import HistoryView
from .messages import MESSAGE_TYPES, Audio, Image, Message, Text, UserMessage, Video, clean, sealed

Prompt: TypeAlias = str | Message | Sequence[Message | Text | Image | Audio | Video]


def as_messages(prompt: Any) -> list[Message]:
    """A prompt as messages: a string, a message, parts of one user message, or a list of messages."""
    if isinstance(prompt, str):
        return [UserMessage(clean(prompt))]
    if isinstance(prompt, MESSAGE_TYPES):
        return checked([prompt])
    if isinstance(prompt, list | tuple | HistoryView):
        if prompt and all(isinstance(part, Text | Image | Audio | Video) for part in prompt):
            return checked([UserMessage(tuple(prompt))])  # type: ignore[arg-type]
        return checked(prompt)
    raise ConfigError(f"a prompt is a string, a message, or a list of them, not {type(prompt).__name__}")


def checked(messages: Iterable[Any]) -> list[Message]:
    checked = list(messages)
    for i, message in enumerate(checked):
        if not isinstance(message, MESSAGE_TYPES):
            raise ConfigError(f"messages[{i}] is a {type(message).__name__}: expected a message such as UserMessage(...)")
        try:
            checked[i] = sealed(message)  # type: ignore[arg-type]
        except ValueError as error:
            raise ConfigError(f"messages[{i}] {error}") from None
    return checked


def queued(message: str | Message, origin: Any) -> Message:
    if isinstance(message, str):
        return UserMessage(clean(message), origin=origin)
    if not isinstance(message, MESSAGE_TYPES):
        raise ConfigError(f"cannot queue a {type(message).__name__}: expected a string or a message")
    return msgspec.structs.replace(checked([message])[0], origin=origin)
