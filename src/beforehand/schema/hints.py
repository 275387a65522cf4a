"""Schemas from type hints: a struct made by msgspec decodes, its types drive the slow part and the JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Optional

import msgspec
from msgspec import inspect as mi

from ..frozen import FrozenDict
from .mend import bare, mend, sort_sets
from .values import (
    Enough, Problems, Rejected, decode_custom, decode_resolving, encode, encode_resolving, is_model, is_path, plain, read_object,
    seal,
)  # fmt: skip

REQUIRED: Any = object()
"""The default of a parameter that has none."""

# What msgspec would turn from text into a float that JSON cannot express. Its letters may hide behind \u escapes.
_MAYBE_NONFINITE = re.compile(r"nan|inf|\\u", re.IGNORECASE).search


class Param(NamedTuple):
    """One parameter of a tool's body. `default` is `REQUIRED` or a Python value."""

    name: str
    hint: Any
    default: Any = REQUIRED
    description: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED


class HintSchema:
    """A `Schema` made from parameters with type hints. `extra` is `**kwargs`, `reserved` the names it may not hold.

    Raises TypeError, naming the parameter, for hints and defaults that have no JSON form.
    """

    def __init__(self, params: Sequence[Param], extra: Param | None = None, reserved: Set[str] = frozenset()) -> None:
        every = [*params, extra] if extra else list(params)
        fields = [_field(p) for p in every]
        kinds = [kind for field in fields for kind in field.kinds]
        try:
            model = msgspec.defstruct("Arguments", [f.define for f in fields], kw_only=True, forbid_unknown_fields=True)
        except (RuntimeError, TypeError, ValueError) as error:
            raise TypeError(f"a parameter name cannot be used: {error}") from None
        custom = any(isinstance(k, mi.CustomType) for k in kinds)
        self.direct = not custom and extra is None
        self._names, self._reserved = frozenset(p.name for p in params), reserved
        self._extra = extra.name if extra else None
        self._floats = any(isinstance(k, mi.FloatType | mi.DecimalType) for k in kinds)
        self._times = any(isinstance(k, mi.DateTimeType | mi.TimeDeltaType) for k in kinds)
        self._coerces = self._floats or self._times
        self._sets = any(isinstance(k, mi.SetType | mi.FrozenSetType) for k in kinds)
        self._kind = mi.type_info(model)
        self._read = msgspec.json.Decoder(model, strict=False, dec_hook=decode_resolving if custom else None).decode
        self._read_plain = msgspec.json.Decoder(model, strict=False, dec_hook=decode_custom if custom else None).decode
        self.parameters = _parameters(model, every, fields, self._extra)

    def check(self) -> None:
        """Nothing is left to check: whatever can be wrong raised at construction."""

    def accept(self, text: str) -> FrozenDict:
        folded = self._fold(text)
        if not self._lenient(text):
            try:
                return self._built(self._read(folded))
            except Exception:  # noqa: S110 - whatever went wrong, the slow part finds all of it and words it
                pass
        mended = self._mended(folded)
        try:
            return self._built(self._read(mended))
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$")
            raise Rejected([(path.rstrip("`").lstrip("."), message)]) from error

    def decode(self, args: Mapping[str, Any]) -> dict[str, Any]:
        text = encode(args)
        return self._unfold(msgspec.structs.asdict(self._read_plain(self._fold(text) if self._extra else text)))

    def decode_text(self, text: str) -> dict[str, Any] | None:
        """`decode(accept(text))` in one step, or `None` where that needs the long way. Only if `direct`."""
        if self._coerces and self._lenient(text):
            return None
        try:
            return msgspec.structs.asdict(self._read(text))
        except Exception:  # the long way words it
            return None

    def _lenient(self, text: str) -> bool:
        """Whether msgspec might coerce more than we allow, text to infinity or numbers to times. Then `mend` looks first."""
        return self._times or (self._floats and _MAYBE_NONFINITE(text) is not None)

    def _mended(self, text: str | bytes) -> bytes:
        problems, mended = Problems(), None
        with suppress(Enough):
            mended = mend(read_object(text), self._kind, "", problems)
        if problems:
            raise Rejected([(path.removeprefix(f"{self._extra}."), message) for path, message in problems])
        return encode(mended)

    def _built(self, model: Any) -> FrozenDict:
        built = msgspec.to_builtins(model, str_keys=True, enc_hook=encode_resolving)
        sealed: FrozenDict = seal(self._unfold(sort_sets(built, self._kind) if self._sets else built))
        return sealed

    def _fold(self, text: str | bytes) -> str | bytes:
        """With `**kwargs`, unknown arguments travel as one dict under its name, so that one struct holds everything."""
        if not self._extra:
            return text
        raw = read_object(text)
        rest = {name: raw.pop(name) for name in list(raw) if name not in self._names}
        if taken := self._reserved & rest.keys():
            raise Rejected([(name, "unknown") for name in sorted(taken)])
        return encode({**raw, self._extra: rest})

    def _unfold(self, values: dict[str, Any]) -> dict[str, Any]:
        if not self._extra:
            return values
        rest = values.pop(self._extra)
        return {**values, **rest}


class _Field(NamedTuple):
    """A parameter made ready: its struct field, every type inside its hint, and its default in JSON or `REQUIRED`."""

    define: Any
    kinds: list[mi.Type]
    default: Any


def _field(param: Param) -> _Field:
    name, hint, default, _ = param
    try:
        kinds = list(_walk(mi.type_info(hint), set()))
        for kind in kinds:
            _refuse(kind)
        if default is REQUIRED:
            return _Field((name, hint), kinds, REQUIRED)
        if default is msgspec.UNSET:
            return _Field((name, hint | msgspec.UnsetType, default), kinds, REQUIRED)
        if default is None and not any(isinstance(k, mi.NoneType | mi.AnyType) for k in _members(kinds[0])):
            hint = Optional[hint]  # noqa: UP045 - `hint | None` fails where the hint is a special form
        as_json = plain(default)
        seal(as_json)
        # Made anew for each call: no two share a default that can be changed, and a relative path means today's directory.
        make = partial(msgspec.convert, as_json, hint, strict=False, str_keys=True, dec_hook=decode_resolving)
        value = make()
    except Rejected as error:
        raise TypeError(f"parameter {name!r}: its default {error.problems[0][1]}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"parameter {name!r}: {' '.join(str(error).split())}") from None
    fixed = value is None or isinstance(value, str | int | float)
    return _Field((name, hint, value if fixed else msgspec.field(default_factory=make)), kinds, as_json)


def _walk(node: Any, seen: set[Any]) -> Iterator[mi.Type]:
    """Every type inside `node`, itself first. Recursive types are entered once."""
    if isinstance(node, tuple):
        for item in node:
            yield from _walk(item, seen)
        return
    if not isinstance(node, mi.Type | mi.Field):
        return
    if isinstance(node, mi.Type):
        yield node
        cls = getattr(node, "cls", None)
        if cls is not None and cls in seen:
            return
        seen.add(cls)
    for name in node.__struct_fields__:
        yield from _walk(getattr(node, name), seen)


def _refuse(kind: mi.Type) -> None:
    if isinstance(kind, mi.CustomType) and not (is_path(kind.cls) or is_model(kind.cls)):
        raise TypeError(f"{getattr(kind.cls, '__name__', kind.cls)} cannot be made from JSON")
    if isinstance(kind, mi.RawType | mi.ExtType):
        raise TypeError("raw and extension values cannot be checked")
    if isinstance(kind, mi.DataclassType) and hasattr(kind.cls, "__pydantic_validator__"):
        raise TypeError(f"{kind.cls.__name__} is a pydantic dataclass, whose checks would not run: make it a BaseModel")


def _members(kind: Any) -> tuple[Any, ...]:
    kind = bare(kind)
    return kind.types if isinstance(kind, mi.UnionType) else (kind,)


# --- the JSON Schema -----------------------------------------------------------------------------


def _parameters(model: Any, params: Sequence[Param], fields: Sequence[_Field], extra: str | None) -> dict[str, Any]:
    """The JSON Schema of the arguments, without references unless a type contains itself."""
    definitions: dict[str, Any] = {}

    def custom(cls: Any) -> dict[str, Any]:
        if is_path(cls):
            return {"type": "string"}
        schema: dict[str, Any] = cls.model_json_schema()
        definitions.update(schema.pop("$defs", {}))
        return schema

    (root,), components = msgspec.json.schema_components([model], schema_hook=custom)
    definitions = {**components, **definitions}
    kept: set[str] = set()
    schema: dict[str, Any] = _inline(root, definitions, (), kept)
    properties: dict[str, Any] = schema.get("properties", {})
    for param, field in zip(params, fields, strict=True):
        if param.description:
            properties[param.name].setdefault("description", param.description)
        if field.default is not REQUIRED:
            properties[param.name]["default"] = field.default
        if any(isinstance(k, mi.DateTimeType) for k in _members(field.kinds[0])):
            _name_format(properties[param.name])
    if extra:
        rest = properties.pop(extra)
        schema["additionalProperties"] = rest.get("additionalProperties", True)
    if not schema.get("required"):
        schema.pop("required", None)
    shared: dict[str, Any] = {}
    while missing := sorted(kept - shared.keys()):
        shared.update({name: _inline(definitions[name], definitions, (name,), kept) for name in missing})
    return {**schema, "$defs": shared} if shared else schema


def _name_format(schema: dict[str, Any]) -> None:
    """msgspec names no format where a time zone may be missing, and a model would not know what to write."""
    for part in (schema, *schema.get("anyOf", ())):
        if part.get("type") == "string":
            part["format"] = "date-time"


_REF = "#/$defs/"
_DATA = frozenset({"default", "enum", "const", "examples"})
# Titles cost tokens and repeat names; a discriminator points to definitions that are no longer there.
_LEFT_OUT = frozenset({"title", "discriminator"})


def _inline(node: Any, definitions: Mapping[str, Any], within: tuple[str, ...], kept: set[str]) -> Any:
    """`node` with references replaced by what they mean; one to a type it is inside of stays, and is noted in `kept`."""
    if isinstance(node, list):
        return [_inline(n, definitions, within, kept) for n in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if isinstance(ref, str):
        name = ref.removeprefix(_REF)
        if name in within:
            kept.add(name)
            return dict(node)
        beside = {k: v for k, v in node.items() if k != "$ref"}
        return _inline({**definitions[name], **beside}, definitions, (*within, name), kept)
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties":  # here the keys are names, which may be those of keywords
            result[key] = {n: _inline(v, definitions, within, kept) for n, v in value.items()}
        elif key in _DATA:
            result[key] = value
        elif key not in _LEFT_OUT:
            result[key] = _inline(value, definitions, within, kept)
    return result
