"""What configures a function besides its code, as far as that can be told and is the same in every process.

Counted is what is plain and cannot be changed in place: a list, a dict or any other object is taken for state, which goes on
changing while a run does. Nothing here calls code of the user's, but a `fingerprint` with which an object speaks for itself.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
import pathlib
import re
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from types import BuiltinFunctionType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from ..frozen import FrozenDict, FrozenList

MAX_DEPTH, MAX_VALUES = 20, 20_000
"""How deep is looked, and at how many values: of what is larger nothing is told."""

SHOWN = frozenset({type(None), type(...), bool, float, complex, range, date, timedelta, Decimal, Fraction, UUID})
"""Types whose `repr` says all, and is nobody's code."""

SECRETS = re.compile("key|token|secret|passw|passphrase|credential|auth", re.IGNORECASE)
"""Names of texts that are left out: not even a digest of a key is recorded, and a new key is no other hook."""

MADE_BY = frozenset({"__init__", "__new__", "__post_init__", "__setstate__"})
"""The methods that give an object what it is made with. What others assign is state."""


def configuration(fn: Any) -> bytes:
    """In a few bytes: what the code of a function, a method, a partial or an object with `__call__` is configured with."""
    try:
        return _Look().called(fn)
    except (_TooMuch, RecursionError):
        return b"large"


@functools.lru_cache(4096)
def code_bytes(code: CodeType) -> bytes:
    """A function's code, without where it stands."""
    constants = [code_bytes(c) if isinstance(c, CodeType) else _constant(c).encode() for c in code.co_consts]
    return b"\n".join([code.co_code, *constants, repr(code.co_names).encode()])


def said_by(item: Any) -> Any:
    """What an object says of itself with an attribute or method `fingerprint`, if it has one."""
    said = has(item, "fingerprint")
    return said() if callable(said) else said


def has(item: Any, name: str) -> Any:
    """An attribute that is there, `None` if it is not: no property, and nothing that `__getattr__` makes up."""
    if type(item) in (FunctionType, MethodType, functools.partial):
        return getattr(item, name, None)
    for cls in type(item).__mro__:
        if name in vars(cls):
            return None if type(vars(cls)[name]) is property else getattr(item, name, None)
    held = _attribute(item, name)
    return None if held is MISSING else held


def _constant(value: Any) -> str:
    """A constant of code as `repr` shows it, but for the order in sets, which is another one in each process."""
    if type(value) is frozenset:
        return f"frozenset({{{', '.join(sorted(map(_constant, value)))}}})"
    if type(value) is tuple:
        return f"({', '.join(map(_constant, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


class _TooMuch(Exception):
    """More than anybody would configure a function with."""


class _Look:
    """One look at a function."""

    def __init__(self) -> None:
        self.left = MAX_VALUES
        self.within: list[int] = []

    def called(self, fn: Any) -> bytes:
        """What is called itself: its own object counts, by what that was made with."""
        kind = type(fn)
        if kind is FunctionType:
            return self.value(fn)
        if kind is MethodType:
            return _short(b"method", self.called(fn.__func__), self.made(fn.__self__))
        if issubclass(kind, functools.partial):
            return _short(b"partial", self.called(fn.func), *self.each(fn.args), *self.named(fn.keywords))
        call = next((vars(cls)["__call__"] for cls in kind.__mro__ if "__call__" in vars(cls)), None)
        return _short(b"object", self.value(call) if type(call) is FunctionType else b"", self.made(fn))

    def value(self, value: Any) -> bytes:
        self.left -= 1
        if self.left < 0 or len(self.within) > MAX_DEPTH:
            raise _TooMuch
        if id(value) in self.within:
            return b"again"
        self.within.append(id(value))
        try:
            return _short(type(value).__qualname__.encode(), *self._parts(value, type(value)))
        finally:
            self.within.pop()

    def each(self, values: Any) -> list[bytes]:
        return [self.value(value) for value in values]

    def named(self, values: Any) -> list[bytes]:
        """Named values, in the order of their names."""
        pairs = sorted([(str(name), value) for name, value in values.items()], key=lambda pair: pair[0])
        return [_short(name.encode(), self.value(value)) for name, value in pairs if not _is_secret(name, value)]

    def _parts(self, value: Any, kind: type) -> Iterator[bytes]:
        """What tells a value from others of its type: nothing, of what may change in place."""
        if kind in SHOWN:
            yield repr(value).encode()
        elif kind is int:
            yield hex(value).encode()
        elif kind is str:
            yield value.encode("utf-8", "surrogatepass")
        elif kind is bytes:
            yield value
        elif issubclass(kind, tuple):
            yield from self.each(tuple.__iter__(value))
        elif kind is frozenset:
            yield from sorted(self.each(value))
        elif kind is FrozenList:
            yield from self.each(value)
        elif kind is FrozenDict:
            yield from self.named(value)
        elif kind is re.Pattern:
            yield from self.each((value.pattern, value.flags))
        elif issubclass(kind, pathlib.PurePath) and kind.__module__.partition(".")[0] == "pathlib":
            yield str(value).encode("utf-8", "surrogateescape")
        elif kind is FunctionType:
            yield from self._function(value)
        elif kind is MethodType:
            yield self.value(value.__func__)
        elif issubclass(kind, functools.partial):
            yield from [self.value(value.func), *self.each(value.args), *self.named(value.keywords)]
        elif issubclass(kind, type) or kind is BuiltinFunctionType:
            yield value.__qualname__.encode()
        else:
            yield from self._object(value, kind)

    def _object(self, value: Any, kind: type) -> Iterator[bytes]:
        if (said := said_by(value)) is not None:
            yield str(said).encode()
        elif issubclass(kind, enum.Enum):
            yield from [_attribute(value, "_name_").encode(), self.value(_attribute(value, "_value_"))]
        elif fields := _frozen_fields(kind):
            yield from self.named({name: _attribute(value, name) for name in fields})

    def _function(self, fn: FunctionType) -> Iterator[bytes]:
        code = fn.__code__
        yield code_bytes(code)
        yield from self.each(fn.__defaults__ or ())
        yield b"|"
        yield from self.named(fn.__kwdefaults__ or {})
        stored = _stored(code, "STORE_DEREF", "STORE_GLOBAL")
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
            if name not in stored:  # with `nonlocal` it is a counter, or something like it
                yield self._cell(name, cell)
        yield b"|"
        constants = {n: fn.__globals__[n] for n in _names(code) if n.isupper() and n in fn.__globals__ and n not in stored}
        yield from self.named(constants)

    def _cell(self, name: str, cell: Any) -> bytes:
        try:
            value = cell.cell_contents
        except ValueError:  # nothing is in it yet
            return b""
        if _is_secret(name, value):
            return b""
        return self.made(value) if name == "self" else self.value(value)

    def made(self, item: Any) -> bytes:
        """The object whose code it is: what its `__init__` was given and kept under that name, and what its class fixes."""
        kind = item if issubclass(type(item), type) else type(item)
        if kind is not item and said_by(item) is not None:
            return self.value(item)
        known = _known.get(kind)
        if known is None:
            known = _known[kind] = _Class(kind)
        found = {}
        for cls in known.bases:
            for name, value in vars(cls).items():
                if not name.startswith("__") and _is_plain(value) and name not in known.changed:
                    found[name] = value
        if kind is not item:
            for name in known.given:
                if (value := _attribute(item, name)) is not MISSING:
                    found[name] = value
        return _short(kind.__qualname__.encode(), *self.named(found))


# --- reading without running anything ------------------------------------------------------------

MISSING = object()


def _short(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join([b"%d:%b" % (len(part), part) for part in parts])).digest()


def _attribute(item: Any, name: str) -> Any:
    """What an object holds under a name: in its dict or in a slot, and no property."""
    for cls in type(item).__mro__:
        found = cls.__dict__
        if "__dict__" in found and type(found["__dict__"]) is GetSetDescriptorType:
            held = found["__dict__"].__get__(item)
            if name in held:
                return held[name]
        if name in found and type(found[name]) is MemberDescriptorType:
            try:
                return found[name].__get__(item)
            except AttributeError:
                return MISSING
    return MISSING


class _Class:
    """What is known of a type for good: its bases, what its methods change, where `__init__` may have kept what it was given."""

    def __init__(self, kind: type) -> None:
        self.bases = [cls for cls in reversed(kind.__mro__) if cls.__module__ not in ("builtins", "typing", "abc")]
        self.changed = _changed_by_methods(self.bases)
        held = [
            name for given in _given(kind)
            for name in (given, f"_{given}", *[f"_{cls.__name__.lstrip('_')}__{given}" for cls in self.bases])
        ]  # fmt: skip
        self.given = [name for name in held if name not in self.changed]


_known: WeakKeyDictionary[type, _Class] = WeakKeyDictionary()


def _given(kind: type) -> tuple[str, ...]:
    """The names of what an object of this type is made with."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    init = inspect.getattr_static(kind, "__init__", None)
    if type(init) is not FunctionType:
        return ()
    code = init.__code__
    return code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]


def _frozen_fields(kind: type) -> tuple[str, ...]:
    """The fields of a frozen struct or dataclass."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__ if kind.__struct_config__.frozen else ()
    params = inspect.getattr_static(kind, "__dataclass_params__", None)
    return tuple(inspect.getattr_static(kind, "__dataclass_fields__")) if params is not None and params.frozen else ()


def _is_secret(name: str, value: Any) -> bool:
    return type(value) in (str, bytes) and SECRETS.search(name) is not None


def _is_plain(value: Any) -> bool:
    kind = type(value)
    return kind in SHOWN or kind in (int, str, bytes, tuple, frozenset, re.Pattern) or issubclass(kind, enum.Enum)


def _changed_by_methods(classes: list[type]) -> frozenset[str]:
    """The attributes that methods assign, other than those that make an object."""
    functions = [fn for cls in classes for name, value in vars(cls).items() if name not in MADE_BY for fn in _behind(value)]
    return frozenset().union(*[_stored(fn.__code__, "STORE_ATTR", "DELETE_ATTR") for fn in functions])


def _behind(value: Any) -> Iterator[FunctionType]:
    """The functions behind what stands in a class: methods, decorated ones too, properties, hooks and tools."""
    kind = type(value)
    if kind is FunctionType:
        yield value
        yield from _behind(value.__dict__.get("__wrapped__"))
    elif issubclass(kind, staticmethod | classmethod):
        yield from _behind(value.__func__)
    elif kind is property:
        for part in (value.fget, value.fset, value.fdel):
            yield from _behind(part)
    elif kind is functools.cached_property:
        yield from _behind(value.func)
    elif issubclass(kind, msgspec.Struct):
        for field in ("fn", "unguarded"):
            yield from _behind(_attribute(value, field))


@functools.lru_cache(4096)
def _stored(code: CodeType, *kinds: str) -> frozenset[str]:
    """The names that code assigns with such instructions."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in kinds}
    return frozenset(names).union(*[_stored(inner, *kinds) for inner in code.co_consts if isinstance(inner, CodeType)])


@functools.lru_cache(4096)
def _names(code: CodeType) -> frozenset[str]:
    """The names that code looks up elsewhere."""
    return frozenset(code.co_names).union(*[_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)])
