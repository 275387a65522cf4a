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
DEEPEST = 300
"""Values inside values that a lambda hands the bridge. Further down Monty says `<deeply nested>` instead."""

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


def _nested(text: bytes) -> int:
    """How many lists and objects there are. Brackets in texts count only in a first look."""
    count = text.count(b"[") + text.count(b"{")
    if count <= MAX_NESTED:
        return count
    outside = b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    return outside.count(b"[") + outside.count(b"{")


def least_size(value: Any, most: int) -> int:
    """Bytes that the JSON text of a value has at least; looked at no further than `most`.

    What is held many times is looked at once for each depth, and counted as often as it would be written. Raises
    `ValueError` for too many lists and objects, `RecursionError` for too deep ones.
    """
    size = nested = 0
    level: dict[int, tuple[Any, int]] = {0: ([value], 1)}
    for _ in range(DEEPEST):
        inner: dict[int, tuple[Any, int]] = {}
        for holder, times in level.values():
            nested += times
            size += times * len(holder)
            if nested > MAX_NESTED + 1:
                raise ValueError(f"more than {MAX_NESTED:,} lists and objects")
            if size > most:
                return size
            own, items = 0, holder
            if isinstance(holder, dict):
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
