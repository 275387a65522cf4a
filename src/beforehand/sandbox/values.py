"""Values that a lambda hands over, measured before anything large is made of them.

What is short can be long to make: two million empty lists are four megabytes of text, and a list that holds one list twice,
which holds one list twice, and so on, is a handful of objects and more text than there is memory.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

MAX_NESTED = 250_000
"""Lists and objects in one JSON text. To make so many takes a tenth of a second."""
MAX_HANDED = 50_000
"""Lists, objects and fields of objects that one bridge call hands over: they pass validation, hooks, digests and the journal,
which takes ten times as long as to make them."""
MAX_VALUES = 250_000
"""Values that one bridge call hands over. One in a list takes a fifth of the time of a field."""
DEEPEST = 300
"""Values inside values that a lambda hands the bridge. Further down Monty says `<deeply nested>` instead."""

_HANDED = "lists, objects and fields of objects"
_decode = msgspec.json.Decoder().decode
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def decode_json(text: bytes) -> Any:
    """The value of JSON text. Raises `msgspec.DecodeError` that says what is wrong with it, or `RecursionError`."""
    if len(text) > MAX_NESTED and (count := _nested(text)) > MAX_NESTED:
        raise msgspec.DecodeError(f"{count:,} lists and objects, more than {MAX_NESTED:,}")
    try:
        return _decode(text)
    except msgspec.DecodeError as error:
        if isinstance(error, msgspec.ValidationError) or not _HALF.search(text):
            raise
        raise msgspec.DecodeError(f"a text that seems to end inside a character, half of a surrogate pair ({error})") from None


def decode_handed(text: bytes) -> Any:
    """The value that a bridge call hands over as JSON text. Raises as `decode_json` does.

    What it may hold at most is less than for a result, which is read once: the event loop is to go on with what others do.
    """
    brackets = text.count(b"[") + text.count(b"{")
    if brackets + text.count(b":") > MAX_HANDED or text.count(b",") >= MAX_VALUES:
        outside = _outside_texts(text)
        if (count := outside.count(b"[") + outside.count(b"{") + outside.count(b":")) > MAX_HANDED:
            raise msgspec.DecodeError(f"{count:,} {_HANDED}, more than {MAX_HANDED:,}")
        if (count := outside.count(b",") + 1) > MAX_VALUES:
            raise msgspec.DecodeError(f"{count:,} values, more than {MAX_VALUES:,}")
    value = decode_json(text)
    if brackets > DEEPEST:  # how deep the decoder goes differs between interpreters
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Raise `RecursionError` for too many values inside values."""
    level = [value]
    for _ in range(DEEPEST):
        inside = [holder.values() if type(holder) is dict else holder for holder in level]
        level = [item for items in inside for item in items if type(item) is list or type(item) is dict]
        if not level:
            return
    raise RecursionError(f"nested more than {DEEPEST} deep")


def _nested(text: bytes) -> int:
    """How many lists and objects there are. Brackets in texts count only in a first look."""
    count = text.count(b"[") + text.count(b"{")
    if count <= MAX_NESTED:
        return count
    outside = _outside_texts(text)
    return outside.count(b"[") + outside.count(b"{")


def _outside_texts(text: bytes) -> bytes:
    """JSON text without what stands in its texts."""
    return b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])


def least_size(value: Any, most: int) -> int:
    """Bytes that the JSON text of a value has at least; looked at no further than `most`.

    What is held many times is looked at once for each depth, and counted as often as it would be written. Raises
    `ValueError` for more of them than a bridge call may hand over, `RecursionError` for too deep ones.
    """
    size = nested = 0
    level: dict[int, tuple[Any, int]] = {0: ([value], 1)}
    for _ in range(DEEPEST):
        inner: dict[int, tuple[Any, int]] = {}
        for holder, times in level.values():
            is_dict = isinstance(holder, dict)
            nested += times * (1 + len(holder)) if is_dict else times
            size += times * len(holder)
            if nested > MAX_HANDED + 1:
                raise ValueError(f"more than {MAX_HANDED:,} {_HANDED}")
            if size > most:
                return size
            own, items = 0, holder
            if is_dict:
                own, items = sum([len(key) for key in holder if type(key) is str]), holder.values()
            for item in items:
                kind = type(item)
                if kind is str or kind is bytes:
                    own += len(item)
                elif kind is int:
                    own += item.bit_length() // 4
                elif isinstance(item, _HOLDERS):
                    before = inner.get(id(item))
                    inner[id(item)] = item, times + (before[1] if before else 0)
            size += times * own
        if size > most or not inner:
            return size
        level = inner
    raise RecursionError(f"nested more than {DEEPEST} deep")


_HOLDERS = (dict, list, tuple, set, frozenset)
