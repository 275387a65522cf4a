"""The `details` of results and messages, which programs read and no model: a journal gives them back as they were.

They may hold what JSON has no form for. Such a value is written as `{"~": its kind, "of": what it holds}`: numbers that are
not finite, tuples, sets, bytes, text with half characters, and dicts with other keys than text. Anything else that JSON does
not know (an object of the application's own) is held as its text.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from ..frozen import freeze
from ..messages import CustomMessage, Message, ToolMessage
from ..tools import ToolResult

TAG = "~"

T = TypeVar("T")


def kept(holder: T) -> T:
    """A result or a message, to be written: its details in a form that JSON holds."""
    if not isinstance(holder, ToolResult | ToolMessage | CustomMessage) or holder.details is None:
        return holder
    return msgspec.structs.replace(holder, details=write_details(holder.details))


def kept_all(messages: Iterable[Message]) -> list[Message]:
    return [kept(message) for message in messages]


def given_back(holder: T) -> T:
    """What `kept` wrote, once it has been read."""
    if not isinstance(holder, ToolResult | ToolMessage | CustomMessage) or holder.details is None:
        return holder
    return msgspec.structs.replace(holder, details=read_details(holder.details))


def _is_utf8(text: str) -> bool:
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_details(value: Any) -> Any:
    if isinstance(value, str):
        return value if _is_utf8(value) else {TAG: "text", "of": json.dumps(str.__str__(value))}
    if isinstance(value, float):
        return value if math.isfinite(value) else {TAG: "number", "of": repr(float(value))}
    if isinstance(value, bytes):
        return {TAG: "bytes", "of": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [write_details(inner) for inner in value]
    if isinstance(value, Mapping):
        if TAG not in value and all([type(k) is str and _is_utf8(k) for k in value]):
            return {key: write_details(inner) for key, inner in value.items()}
        return {TAG: "dict", "of": [[write_details(key), write_details(inner)] for key, inner in value.items()]}
    if type(value) in (tuple, set, frozenset):
        return {TAG: type(value).__name__, "of": [write_details(inner) for inner in value]}
    return value


def read_details(value: Any) -> Any:
    """What `write_details` wrote. Frozen, as details are."""
    return freeze(_read(value))


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {TAG, "of"} or value[TAG] not in _READERS:
        return {key: _read(inner) for key, inner in value.items()}
    return _READERS[value[TAG]](value["of"])


_READERS: dict[str, Any] = {
    "text": json.loads, "number": float, "bytes": base64.b64decode, "tuple": lambda of: tuple(_read(of)),
    "set": lambda of: set(_read(of)), "frozenset": lambda of: frozenset(_read(of)),
    "dict": lambda of: {_read(key): _read(inner) for key, inner in of},
}  # fmt: skip
