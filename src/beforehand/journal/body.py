"""A record's body as JSON. That never fails: what has happened is put on record, whatever strange text it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..messages import clean


def encode(value: Any) -> bytes:
    """A record's body. What JSON cannot hold becomes its text; what is no text for UTF-8, such as half a character, an escape."""
    try:
        return _encode(value)
    except Exception:  # such a text, or an object that cannot even show itself
        return _encode(_storable(value))


_encode = msgspec.json.Encoder(enc_hook=lambda value: str(value)).encode


def _storable(value: Any) -> Any:
    """The same with nothing in it that cannot be encoded."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_key(key): _storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_storable(inner) for inner in value]
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        fields = {} if config.tag_field is None else {config.tag_field: config.tag}
        return {**fields, **{name: _storable(getattr(value, name)) for name in value.__struct_fields__}}
    try:
        return msgspec.Raw(_encode(value))
    except Exception:
        return text_of(value)


def _key(key: Any) -> str:
    try:
        return clean(next(iter(msgspec.json.decode(_encode({key: None})))))
    except Exception:
        return text_of(key)


def text_of(value: Any) -> str:
    """The text of any object: of one that raises instead, the name of its type."""
    try:
        return clean(str(value))
    except Exception:
        return f"<{type(value).__name__}>"
