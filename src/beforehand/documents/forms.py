"""Does a value have the form of a type? Finds every mistake, where msgspec would stop at the first.

It walks what msgspec knows of the types, so those stay the one description of a format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec.inspect as types

from .places import Path
from .problems import did_you_mean, listed, shown

Found = list[tuple[Path, str]]

Special = Callable[["Check", types.Type, Any, Path], bool]
"""Checks the values of some types in its own words. Says whether it did."""


class Check:
    """One walk through a value. `found` has each mistake with the way to it."""

    def __init__(self, special: Special | None = None) -> None:
        self.found: Found = []
        self._special = special

    def wrong(self, path: Path, why: str) -> None:
        self.found.append((path, why))

    def value(self, kind: types.Type, value: Any, path: Path) -> None:
        if self._special is not None and self._special(self, kind, value, path):
            return
        match kind:
            case types.Metadata():
                self._described(kind, value, path)
            case types.AnyType():
                self._any(value, path)
            case types.UnionType():
                self._union(kind, value, path)
            case types.StructType():
                self.struct(kind, value, path)
            case types.VarTupleType():
                self._list(kind, value, path)
            case types.DictType():
                if not isinstance(value, dict):
                    self.wrong(path, f"expected an object, got {shown(value)}")
                else:
                    for name, item in value.items():
                        self.value(kind.value_type, item, (*path, name))
            case types.LiteralType():
                if value not in kind.values or isinstance(value, bool):
                    hint = did_you_mean(value, map(str, kind.values))
                    self.wrong(path, f"{shown(value)} is not one of {listed(kind.values)}{hint}")
            case _:
                self._plain(kind, value, path)

    def _described(self, kind: types.Metadata, value: Any, path: Path) -> None:
        """A type with a description of its own is called by that."""
        name = (kind.extra or {}).get("expected")
        if name is None or plain_mistake(kind.type, value) is None:
            self.value(kind.type, value, path)
        else:
            self.wrong(path, f"expected {name}, got {shown(value)}")

    def _union(self, kind: types.UnionType, value: Any, path: Path) -> None:
        """Several forms of which one will do. A field that may be left out has `None` for that, and no null in a file."""
        members = [member for member in kind.types if not isinstance(member, types.NoneType)]
        if value is None:
            self.wrong(path, f"expected {_any_of(members)}, got null: leave the field out to say nothing")
        elif len(members) == 1:
            self.value(members[0], value, path)
        elif all(plain_mistake(member, value) is not None for member in members):
            self.wrong(path, f"expected {_any_of(members)}, got {shown(value)}")

    def _plain(self, kind: types.Type, value: Any, path: Path) -> None:
        why = plain_mistake(kind, value)
        if why is not None:
            self.wrong(path, why)

    def _any(self, value: Any, path: Path) -> None:
        if isinstance(value, str):
            self._plain(types.StrType(), value, path)
        elif isinstance(value, dict):
            for name, item in value.items():
                self._any(item, (*path, name))
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self._any(item, (*path, i))

    def _list(self, kind: types.VarTupleType, value: Any, path: Path) -> None:
        if not isinstance(value, list):
            self.wrong(path, f"expected a list, got {shown(value)}" + (": put it in [ ]" if isinstance(value, str) else ""))
            return
        if kind.min_length and not value:
            self.wrong(path, "expected a list that is not empty: leave the field out if it should not count")
        if kind.max_length is not None and len(value) > kind.max_length:
            self.wrong(path, f"expected at most {kind.max_length} of them, got {len(value)}")
        for i, item in enumerate(value):
            self.value(kind.item_type, item, (*path, i))

    def struct(self, kind: types.StructType, value: Any, path: Path, unknown: Callable[[str], str] | None = None) -> None:
        """`unknown` words the mistake of a field that does not exist."""
        if not isinstance(value, dict):
            self.wrong(path, f"expected an object, got {shown(value)}")
            return
        fields = {field.encode_name: field for field in kind.fields}
        for name, item in value.items():
            if name in fields:
                self.value(fields[name].type, item, (*path, name))
            elif name != kind.tag_field:
                self.wrong((*path, name), _unknown(name, list(fields)) if unknown is None else unknown(name))
        for name, field in fields.items():
            if field.required and name not in value:
                self.wrong(path, f"the field {name!r} is missing")


def _unknown(name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known)
    return f"unknown field {name!r}{hint}" + ("" if hint else f": the fields here are {', '.join(known)}")


def plain_mistake(kind: types.Type, value: Any) -> str | None:
    """What is wrong with a string, a number, a truth value or one of a few words. `None` if nothing is."""
    match kind:
        case types.Metadata():
            return plain_mistake(kind.type, value)
        case types.LiteralType():
            return None if value in kind.values and not isinstance(value, bool) else f"expected {listed(kind.values)}"
        case types.StrType():
            return _string(kind, value)
        case types.BoolType():
            return None if isinstance(value, bool) else f"expected true or false, got {shown(value)}"
        case types.IntType() | types.FloatType():
            return _number(kind, value)
        case _:  # pragma: no cover - formats here are made of the above
            raise TypeError(f"no check for {kind}")


def _string(kind: types.StrType, value: Any) -> str | None:
    if not isinstance(value, str):
        return f"expected a string, got {shown(value)}"
    if kind.min_length and not value:
        return "expected a string that is not empty: leave the field out if there is nothing to say"
    if kind.pattern is not None and not re.fullmatch(kind.pattern, value):  # `$` alone would let a last newline pass
        return f"expected a string that matches {kind.pattern}, got {shown(value)}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "the string holds half a character (a lone surrogate)"
    return None


def _number(kind: types.IntType | types.FloatType, value: Any) -> str | None:
    whole = isinstance(kind, types.IntType)
    fits = isinstance(value, int) or (not whole and isinstance(value, float) and math.isfinite(value))
    low, high = kind.ge, kind.le
    if isinstance(value, bool) or not fits or (low is not None and value < low) or (high is not None and value > high):
        return f"expected {_range(whole, low, high)}, got {shown(value)}"
    return "the number is too large" if abs(value) >= 1 << 63 else None


def _range(whole: bool, low: float | None, high: float | None) -> str:
    name = "a whole number" if whole else "a number"
    if low is None:
        return name
    return f"{name} of at least {low}" if high is None else f"{name} from {low} to {high}"


def form_of(kind: types.Type) -> str:
    """What a type takes, in words: "a whole number of at least 1"."""
    match kind:
        case types.Metadata():
            return str((kind.extra or {}).get("expected") or form_of(kind.type))
        case types.UnionType():
            return _any_of([member for member in kind.types if not isinstance(member, types.NoneType)])
        case types.LiteralType():
            return " or ".join([f'"{value}"' for value in kind.values])
        case types.StrType():
            return "a string"
        case types.BoolType():
            return "true or false"
        case types.IntType() | types.FloatType():
            return _range(isinstance(kind, types.IntType), kind.ge, kind.le)
        case types.VarTupleType():
            return f"a list, each {form_of(kind.item_type)}"
        case _:
            return "an object"


def _any_of(members: list[types.Type]) -> str:
    return " or ".join([form_of(member) for member in members])
