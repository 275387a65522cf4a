"""JSON values in and out, the two errors of this package, and the custom types: paths and pydantic models."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..errors import BeforehandError
from ..frozen import FrozenDict, FrozenList

MAX_PROBLEMS = 1_000
"""Errors that are looked for. A million wrong items would take seconds, and say no more."""


class Enough(Exception):
    """There are as many problems as are looked for."""


class Problems(list[tuple[str, str]]):
    """Each is (path, message), such as ("passengers[1].age", "missing"); the path is "" for the arguments as a whole.

    Adding the last that is looked for raises `Enough`.
    """

    def append(self, problem: tuple[str, str], /) -> None:
        super().append(problem)
        if len(self) >= MAX_PROBLEMS:
            raise Enough

    def extend(self, problems: Iterable[tuple[str, str]], /) -> None:
        for problem in problems:
            self.append(problem)


_SHOWN = 60
"""Characters of a value in a message."""
_LISTED = 50
"""Errors in the text; the rest adds nothing a model could use."""
_RECEIVED = 20_000
"""Characters of the arguments in the text: a model knows what it has sent."""
encode = msgspec.json.encode
_decode_any = msgspec.json.Decoder().decode


class InvalidArguments(BeforehandError):
    """The arguments of a call do not fit the tool. The text is written for the model: what is wrong, and what it sent.

    Attributes: `tool` (its name), `errors` (tuples of (path, message): all of them, or the first thousand), `received` (the
    arguments as they came).
    """

    def __init__(self, tool: str, errors: Sequence[tuple[str, str]], received: Any) -> None:
        lines = [f"  - {path}: {message}" if path else f"  - {message}" for path, message in errors[:_LISTED]]
        if len(errors) > _LISTED:
            lines.append(f"  - and {'at least ' if len(errors) >= MAX_PROBLEMS else ''}{len(errors) - _LISTED} more")
        head = f'Validation failed for tool "{tool}":'
        super().__init__(sendable("\n".join([head, *lines, "", "Received arguments:", _pretty(received)])))
        self.tool, self.errors, self.received = tool, tuple(errors), received


class Rejected(Exception):
    """What is wrong with some arguments, before it is known which tool they were for. `Tool` makes it `InvalidArguments`."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__(problems)
        self.problems = problems


class Schema(Protocol):
    """What a `Tool` needs from either kind of schema."""

    parameters: dict[str, Any]

    def check(self) -> None:
        """Raise ValueError if the schema itself is broken."""

    def accept(self, text: str) -> FrozenDict:
        """The final arguments for this JSON text: coerced, complete, JSON-shaped, deeply frozen. Raises `Rejected`."""

    def decode(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Accepted arguments as fresh Python values for the body."""


# --- JSON ----------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """`value` in JSON types (datetimes, structs, models and the like in their JSON form). TypeError if it has none."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_custom)


def to_json(arguments: Any) -> str:
    """The JSON text of arguments: the text a model sent ("" means none), or a mapping that a program wrote.

    Raises `Rejected` for what JSON cannot express.
    """
    if isinstance(arguments, bytes):
        arguments = arguments.decode()
    if isinstance(arguments, str):
        return arguments if arguments and not arguments.isspace() else "{}"
    if not isinstance(arguments, Mapping):
        raise Rejected([("", f"expected an object with the arguments, got {show(arguments)}")])
    return encode(seal(plain(dict(arguments)))).decode()


def read_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in `text`. Raises `Rejected`."""
    try:
        value = _decode_any(text)
    except RecursionError:
        raise Rejected([("", "nested too deeply")]) from None
    except msgspec.ValidationError as error:  # well-formed, but a number is beyond what can be held
        raise Rejected([("", str(error).partition(" - at ")[0].lower())]) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Rejected([("", f"not valid JSON: {str(error).removeprefix('JSON is malformed: ')}")]) from None
    if not isinstance(value, dict):
        raise Rejected([("", f"expected an object with the arguments, got {show(value)}")])
    return value


def seal(value: Any) -> Any:
    """JSON data, deeply frozen, with tuples as lists. `Rejected` for numbers JSON does not have: they would become null."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise Rejected([("", f"contains {value}, which is not a JSON number")])
    if isinstance(value, dict):
        return FrozenDict({k: v if type(v) in _ATOMS else seal(v) for k, v in value.items()})
    return FrozenList([v if type(v) in _ATOMS else seal(v) for v in value])


_ATOMS: frozenset[type] = frozenset({str, int, bool, type(None)})
"""What most values are. There may be millions: those are not worth a call each."""


def in_order(items: list[Any]) -> list[Any]:
    """The JSON values of a set, sorted: sets have no order, and equal arguments need equal JSON."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=encode)


def sendable(text: str) -> str:
    """Exactly a `str`, which UTF-8 can express: lone surrogates, which no request could carry, are shown as escapes."""
    return str.__str__(text) if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def show(value: Any) -> str:
    """`value` as short JSON text for a message."""
    try:
        text = encode(value, enc_hook=encode_custom).decode()
    except Exception:  # a message about bad data must not fail on that data
        text = _safe_repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _pretty(received: Any) -> str:
    text = _formatted(received)
    left_out = len(text) - _RECEIVED
    return text if left_out <= 0 else f"{text[:_RECEIVED]}\n[cut: {left_out} characters left out]"


def _formatted(received: Any) -> str:
    try:
        text = received if isinstance(received, str) else encode(received, enc_hook=encode_custom).decode()
        return msgspec.json.format(text, indent=2)
    except Exception:  # text that is no JSON is shown as it came
        return received if isinstance(received, str) else _safe_repr(received)


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # too deep, too large, or an object that cannot show itself
        return object.__repr__(value)


# --- values msgspec does not know ----------------------------------------------------------------


def is_model(cls: Any) -> bool:
    """Whether `cls` is a pydantic model. Asked by attribute, so that we never import pydantic."""
    return hasattr(cls, "model_validate_json") and hasattr(cls, "model_json_schema")


def is_path(cls: Any) -> bool:
    """Whether `cls` is one of pathlib's classes. Never imports pathlib: where nobody has, no such class is at hand."""
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and isinstance(cls, type) and issubclass(cls, pathlib.PurePath)


def decode_custom(cls: Any, value: Any) -> Any:
    """A path or model from JSON data, as it stands: what the gates saw is what the body gets."""
    if is_path(cls):
        return cls(value)
    return cls.model_validate_json(encode(value))  # JSON mode: a strict model still takes a date from a string


def decode_resolving(cls: Any, value: Any) -> Any:
    """As `decode_custom`, with paths made absolute and free of symbolic links."""
    decoded = decode_custom(cls, value)
    return cls(_real(decoded)) if is_path(cls) else decoded


MAX_PATH = 4_096
"""Characters of a path: no system has longer ones, and to look at each of a million names takes hours."""


def _real(path: Any) -> str:
    if len(str(path)) > MAX_PATH:
        raise ValueError(f"a path has at most {MAX_PATH:,} characters")
    try:
        return str(os.path.realpath(path))
    except ValueError:  # worded differently by each version of Python
        raise ValueError("a path cannot hold a null character") from None


def encode_custom(value: Any) -> Any:
    """The JSON form of what msgspec cannot encode. TypeError if there is none."""
    if is_path(type(value)):
        return str(value)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def encode_resolving(value: Any) -> Any:
    """As `encode_custom`, with the paths inside models resolved too, and their sets sorted."""
    if not is_model(type(value)):
        return encode_custom(value)
    from pydantic_core import to_jsonable_python  # deferred: a model is at hand, so its library is loaded already

    def encoded(value: Any) -> Any:
        if is_path(type(value)):
            return _real(value)
        if isinstance(value, dict):
            return {k: encoded(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [encoded(v) for v in value]
        if isinstance(value, set | frozenset):
            return in_order([encoded(v) for v in value])
        return to_jsonable_python(value)

    # Dumped to Python values, in which paths can still be told from text.
    return encoded(value.model_dump(by_alias=True))
