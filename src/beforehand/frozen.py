"""Values that cannot be changed: what every hook, listener and result is handed.

JSON-shaped data becomes `FrozenDict` and `FrozenList`: real dicts and lists to read, compare and
serialise, which raise `FrozenError` (a `TypeError`) on any attempt to write.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, NoReturn, dataclass_transform

import msgspec

from .errors import FrozenError


def _refuse_field(self: object, name: str, *_: object) -> NoReturn:
    raise FrozenError(f"{type(self).__name__}.{name} is frozen: return a decision instead of editing in place")


class _FrozenMeta(msgspec.StructMeta):
    """Gives every frozen struct our message: msgspec's own is a bare AttributeError, which reads like a typing slip."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> None:
        super().__init__(name, bases, namespace)
        cls.__setattr__ = cls.__delattr__ = _refuse_field  # type: ignore[method-assign,assignment]


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Frozen(msgspec.Struct, metaclass=_FrozenMeta, frozen=True):
    """A struct whose fields cannot be assigned. `msgspec.structs.replace` makes changed copies."""


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise FrozenError(f"this {type(self).__bases__[0].__name__} is frozen: return a decision instead of editing in place")


class FrozenDict(dict[str, Any]):
    """A dict that refuses every write. `thaw` gives an ordinary one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {k: copy.deepcopy(v, memo) for k, v in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (dict(self),)


class FrozenList(list[Any]):
    """A list that refuses every write. `thaw` gives an ordinary one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [copy.deepcopy(v, memo) for v in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (list(self),)


EMPTY_DICT = FrozenDict()


def freeze(value: Any) -> Any:
    """JSON-shaped data, frozen all the way down. Other values are returned as they are."""
    kind = type(value)
    if kind is str or kind is int or value is None or kind is bool or kind is float:
        return value
    if kind is FrozenDict or kind is FrozenList:
        return value
    if kind is dict or isinstance(value, Mapping):  # asking for an abstract class takes longer than all the rest
        return FrozenDict({k: freeze(v) for k, v in value.items()}) if value else EMPTY_DICT
    if kind is list:
        return FrozenList([freeze(v) for v in value])
    if kind is tuple:
        return tuple([freeze(v) for v in value])
    return value


def thaw(value: Any) -> Any:
    """An ordinary, writable copy of frozen data."""
    if isinstance(value, Mapping):
        return {k: thaw(v) for k, v in value.items()}
    if isinstance(value, list):
        return [thaw(v) for v in value]
    return value


_ATOMS: frozenset[type] = frozenset({str, int, bool, type(None)})


def surely_json(value: Any) -> bool:
    """Whether JSON can hold this, told fast: one look at most things, however many they are.

    False where that takes a closer look, such as at a subclass, or at what is nested very deeply or in itself.
    """
    try:
        return value is None or type(value) in _ATOMS or _all_json(value)
    except RecursionError:
        return False


def _all_json(value: Any) -> bool:
    kind = type(value)
    if kind is dict or kind is FrozenDict:
        if not all([type(key) is str for key in value]):
            return False
        value = value.values()
    elif kind is not list and kind is not FrozenList:
        return kind is float and math.isfinite(value)
    if not value or set(map(type, value)) <= _ATOMS:
        return True
    return all([type(item) in _ATOMS or _all_json(item) for item in value])


_sorted_json = msgspec.json.Encoder(order="sorted", enc_hook=str).encode


def canonical(value: Any) -> bytes:
    """`value` as canonical JSON (sorted keys), or its `repr` where JSON cannot hold it. Never fails."""
    try:
        return _sorted_json(value)
    except Exception:
        try:
            return repr(value).encode("utf-8", "backslashreplace")
        except Exception:  # a value of user code that cannot even be shown
            return type(value).__name__.encode()
