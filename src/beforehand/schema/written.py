"""Schemas written out as JSON Schema: scalars are coerced by what the schema says, then jsonschema-rs judges.

jsonschema-rs is loaded when the first such tool is checked or called, never before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from ..frozen import FrozenDict, thaw
from .values import Enough, Problems, Rejected, encode, read_object, seal, show

_WORDS = {
    "integer": "an integer", "number": "a number", "string": "a string", "boolean": "true or false",
    "null": "null", "object": "an object", "array": "a list",
}  # fmt: skip
_EXPECTED = {
    "minimum": "a number of at least {limit}",
    "maximum": "a number of at most {limit}",
    "exclusiveMinimum": "a number greater than {limit}",
    "exclusiveMaximum": "a number less than {limit}",
    "multipleOf": "a multiple of {multiple_of}",
    "minLength": "text of length {limit} or more",
    "maxLength": "text of length {limit} or less",
    "minItems": "{limit} items or more",
    "maxItems": "{limit} items or fewer",
    "minProperties": "{limit} entries or more",
    "maxProperties": "{limit} entries or fewer",
    "pattern": "text matching {pattern}",
    "format": "text in the format {format}",
    "uniqueItems": "items that all differ",
}
_LARGE = 50_000
"""Characters of arguments from which on one error is enough."""
_LONGEST = 160
"""Longer messages of jsonschema-rs quote whole values."""


class JsonSchema:
    """A `Schema` around a JSON Schema object.

    `names` are the body's parameters; it must get those in `needed`, and others only if it is `open` (has `**kwargs`), but
    never one in `reserved`. Raises TypeError for what can be seen without loading jsonschema-rs; `check` looks at the rest.
    """

    def __init__(self, schema: Any, names: Set[str], needed: Set[str], reserved: Set[str], open: bool) -> None:
        if not isinstance(schema, Mapping):
            raise TypeError(f"has parameters that are no JSON Schema: expected a dict, not {type(schema).__name__}")
        self.parameters: dict[str, Any] = msgspec.json.decode(encode(thaw(schema)))
        if self.parameters.get("type") != "object":
            raise TypeError(f'has parameters without "type": "object" (it is {show(self.parameters.get("type"))})')
        properties = self.parameters.get("properties", {})
        if not isinstance(properties, dict):
            raise TypeError(f'has parameters whose "properties" are {show(properties)}: expected an object')
        self._names, self._needed, self._reserved, self._open = names, needed, reserved, open
        surplus = sorted(name for name in properties if not self._is_taken(name))
        if surplus:
            raise TypeError(f"has a body without a parameter for {', '.join(map(repr, surplus))} of its JSON Schema")

    def _is_taken(self, name: str) -> bool:
        return name in self._names or (self._open and name not in self._reserved)

    def check(self) -> None:
        self._validator  # noqa: B018 - compiling is the check; it raises ValueError

    def accept(self, text: str) -> FrozenDict:
        args = _coerce(read_object(text), self.parameters, self.parameters)
        problems = Problems()
        with suppress(Enough):
            for error in self._errors(args, len(text)):
                problems.extend(_explain(error, args))
            reported = {path for path, _ in problems}
            problems.extend((n, "unknown") for n in args if n not in reported and not self._is_taken(n))
            problems.extend((n, "missing") for n in sorted(self._needed) if n not in args and n not in reported)
        if problems:
            raise Rejected(problems)
        sealed: FrozenDict = seal(args)
        return sealed

    def decode(self, args: Mapping[str, Any]) -> dict[str, Any]:
        fresh: dict[str, Any] = thaw(args)
        return fresh

    def _errors(self, args: Any, size: int) -> Iterable[Any]:
        """What the schema says against the arguments. Of those that are large only the first: the library finds all or one."""
        if size <= _LARGE:
            found: Iterable[Any] = self._validator.iter_errors(args)
            return found
        try:
            self._validator.validate(args)
        except ValueError as error:
            return [error]
        return ()

    @cached_property
    def _validator(self) -> Any:
        import jsonschema_rs  # deferred: only tools with a written schema need it

        try:
            return jsonschema_rs.validator_for(self.parameters, retriever=_refuse_remote)
        except jsonschema_rs.ValidationError as error:
            place = "/".join(map(str, error.instance_path))
            raise ValueError(f"{error.message}{f' (at {place})' if place else ''}") from None


def _refuse_remote(uri: str) -> Any:
    raise ValueError(f"{uri} is elsewhere: checking arguments must not send requests, write it out under $defs")


# --- coercion ------------------------------------------------------------------------------------


def _coerce(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    """`value` with scalars brought to the types the schema names, and the defaults of absent properties filled in."""
    if not isinstance(schema, dict):
        return value
    if "$ref" in schema:
        value = _coerce(value, _resolve(schema["$ref"], root), root)
    for part in schema.get("allOf", ()):
        value = _coerce(value, part, root)
    value = _coerce_scalar(value, _types(schema, root))
    if isinstance(value, dict):
        return _coerce_object(value, schema, root)
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        rest = schema.get("items")
        return [_coerce(v, first[i] if i < len(first) else rest, root) for i, v in enumerate(value)]
    return value


def _coerce_object(value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    properties, required, rest = schema.get("properties", {}), schema.get("required", ()), schema.get("additionalProperties")
    defaults = {n: p["default"] for n, p in properties.items() if isinstance(p, dict) and "default" in p}
    coerced = {}
    for name, item in {**{n: d for n, d in defaults.items() if n not in value}, **value}.items():
        part = properties.get(name, rest)
        if item is None and name in properties and not _takes_null(part, root):
            # A model's way to leave an optional argument out, and an author's to say that there is no default.
            if defaults.get(name) is not None:
                coerced[name] = defaults[name]
                continue
            if name not in required:
                continue
        coerced[name] = _coerce(item, part, root)
    return coerced


def _coerce_scalar(value: Any, types: Set[str]) -> Any:
    if not types or value is None or isinstance(value, dict | list):
        return value
    if _fits(value, types):
        # JSON Schema takes 5.0 for an integer, but a body that asked for one should not get a float.
        return int(value) if isinstance(value, float) and "number" not in types else value
    if isinstance(value, str):
        return _from_text(value, types)
    if "boolean" in types and value in (0, 1):
        return bool(value)
    return encode(value).decode() if "string" in types else value


def _from_text(value: str, types: Set[str]) -> Any:
    """The same texts count as numbers and truth values as for type hints."""
    for name, hint in (("boolean", bool), ("integer", int), ("number", int | float)):
        if name in types:
            try:
                converted: Any = msgspec.convert(value, hint, strict=False)
            except msgspec.ValidationError:
                continue
            if not isinstance(converted, float) or math.isfinite(converted):
                return converted
    return value


def _fits(value: Any, types: Set[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, int | float):
        return "number" in types or ("integer" in types and (isinstance(value, int) or value.is_integer()))
    return "string" in types


def _types(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types a schema names: its own, else those of its alternatives taken together. Empty if it names none."""
    if not isinstance(schema, dict):
        return frozenset()
    own = schema.get("type")
    if own is not None:
        return frozenset([own]) if isinstance(own, str) else frozenset(own)
    if "$ref" in schema:
        return _types(_resolve(schema["$ref"], root), root)
    for part in schema.get("allOf", ()):
        if found := _types(part, root):
            return found
    parts = [_types(part, root) for key in ("anyOf", "oneOf") for part in schema.get(key, ())]
    return frozenset().union(*parts) if all(parts) else frozenset()


def _takes_null(schema: Any, root: Mapping[str, Any]) -> bool:
    types = _types(schema, root)
    return not types or "null" in types


def _resolve(ref: Any, root: Mapping[str, Any]) -> Any:
    """What a reference inside the document points to; nothing where it does not, which `check` reports."""
    node: Any = root
    for step in str(ref).removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, dict) else None
    return node


# --- wording -------------------------------------------------------------------------------------


def _explain(error: Any, args: Any) -> list[tuple[str, str]]:
    kind, got = error.kind, show(error.instance)
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path).lstrip(".")
    prefix = f"{path}." if path else ""
    if kind.name == "required":
        return [(prefix + kind.property, "missing")]
    if kind.name in ("additionalProperties", "unevaluatedProperties"):
        return [(prefix + name, "unknown") for name in kind.unexpected]
    if kind.name == "falseSchema":
        if error.schema_path[-1:] != ["additionalProperties"]:
            return [(path, "unknown")]
        for step in error.instance_path:
            args = args[step]
        return [(prefix + name, "unknown") for name in args]  # where nothing is allowed, the library names nothing
    if kind.name == "type":
        return [(path, f"expected {_any_of(kind.types)}, got {got}")]
    if kind.name == "enum":
        return [(path, f"expected {' or '.join(show(v) for v in kind.options)}, got {got}")]
    if kind.name == "const":
        return [(path, f"expected {show(kind.expected_value)}, got {got}")]
    if kind.name in ("anyOf", "oneOfNotValid", "oneOf"):
        return [(path, _alternatives(kind, got))]
    if kind.name in _EXPECTED:
        return [(path, f"expected {_EXPECTED[kind.name].format(**kind.as_dict())}, got {got}")]
    if len(error.message) <= _LONGEST:
        return [(path, error.message)]
    return [(path, f"does not satisfy {kind.name!r} of the schema, got {got}")]


def _any_of(types: list[str]) -> str:
    return " or ".join(_WORDS.get(t, t) for t in sorted(types, key="null".__eq__))


def _alternatives(kind: Any, got: str) -> str:
    branches = [[e.kind for e in branch] for branch in getattr(kind, "context", ())]
    if branches and all(len(b) == 1 and b[0].name == "type" for b in branches):
        return f"expected {_any_of([t for (k,) in branches for t in k.types])}, got {got}"
    return f"fits none, or more than one, of the forms the schema allows, got {got}"
