"""The slow part of validation: repair scalars that a model wrote in the wrong type, and word everything else.

msgspec stops at its first error and words it for programmers. This walks the same types once more, only after msgspec
has refused, and finds them all.
"""

from __future__ import annotations

import decimal
import math
import uuid
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import inspect as mi

from .values import Enough, Problems, decode_custom, encode, in_order, is_path, show

_LEAVES: dict[type[mi.Type], tuple[Any, str]] = {
    mi.NoneType: (None, "null"),
    mi.BoolType: (bool, "true or false"),
    mi.IntType: (int, "an integer"),
    mi.FloatType: (float, "a number"),
    mi.StrType: (str, "a string"),
    mi.BytesType: (bytes, "base64 text"),
    mi.ByteArrayType: (bytearray, "base64 text"),
    mi.MemoryViewType: (memoryview, "base64 text"),
    mi.DateTimeType: (datetime, "a date and time such as 2024-05-01T12:00:00Z"),
    mi.DateType: (date, "a date such as 2024-05-01"),
    mi.TimeType: (time, "a time such as 12:00:00"),
    mi.TimeDeltaType: (timedelta, "a duration such as P1DT2H"),
    mi.UUIDType: (uuid.UUID, "a UUID"),
    mi.DecimalType: (decimal.Decimal, "a decimal number"),
}
_BOUNDS = {
    "gt": "greater than {}",
    "ge": "of at least {}",
    "lt": "less than {}",
    "le": "of at most {}",
    "multiple_of": "that is a multiple of {}",
    "min_length": "of length {} or more",
    "max_length": "of length {} or less",
    "pattern": "matching {}",
}
_Object: TypeAlias = mi.StructType | mi.DataclassType | mi.TypedDictType
_Array: TypeAlias = mi.ListType | mi.SetType | mi.FrozenSetType | mi.VarTupleType | mi.TupleType | mi.NamedTupleType


def bare(kind: Any) -> Any:
    """The type itself, without what `Annotated` says about it."""
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    return kind


def mend(value: Any, kind: Any, path: str, problems: Problems, coerce: bool = True) -> Any:
    """`value` with its scalars brought to the type `kind` describes; what does not fit is added to `problems`.

    Without `coerce` nothing is repaired: the walk then only says whether the value fits as it stands.
    """
    kind = bare(kind)
    if isinstance(kind, mi.AnyType):
        return value
    for types, walk in _WALKS:
        if isinstance(kind, types):
            return walk(value, kind, path, problems, coerce)
    return _leaf(value, kind, path, problems, coerce)


def sort_sets(value: Any, kind: Any) -> Any:
    """JSON `value` with the lists that stand for sets sorted."""
    kind = bare(kind)
    if isinstance(kind, mi.UnionType):
        fitting = [m for m in kind.types if _same_shape(value, m)]
        if len(fitting) > 1 and isinstance(value, dict):
            fitting = _by_tag(value, fitting, "", Problems())
        return sort_sets(value, fitting[0]) if fitting else value
    if isinstance(value, list | tuple):
        items = [sort_sets(v, k) for v, k in zip(value, _item_kinds(kind, len(value)), strict=False)]
        return in_order(items) if isinstance(kind, mi.SetType | mi.FrozenSetType) else items
    if isinstance(kind, mi.DictType):
        return {k: sort_sets(v, kind.value_type) for k, v in value.items()}
    if isinstance(kind, _Object):
        kinds = {f.encode_name: f.type for f in kind.fields}
        return {k: sort_sets(v, kinds[k]) if k in kinds else v for k, v in value.items()}
    return value


def describe(kind: Any) -> str:
    """What a value of this type is, in words for a model."""
    kind = bare(kind)
    if isinstance(kind, mi.UnionType):
        return _either([describe(k) for k in kind.types])
    if isinstance(kind, mi.LiteralType | mi.EnumType):
        return _either([show(v) for v in _choices(kind)])
    if isinstance(kind, mi.CustomType):
        return "a path" if is_path(kind.cls) else "an object"
    if isinstance(kind, _Array) or (isinstance(kind, mi.StructType) and kind.array_like):
        words = "a list"
    elif isinstance(kind, _Object | mi.DictType):
        words = "an object"
    else:
        words = _LEAVES.get(type(kind), (None, "a value"))[1]
    bounds = [text.format(v) for f, text in _BOUNDS.items() if (v := getattr(kind, f, None)) is not None]
    if getattr(kind, "tz", None) is not None:
        bounds.append("with a time zone" if kind.tz else "without a time zone")
    return " ".join([words, " and ".join(bounds)]).strip()


def _either(words: Sequence[str]) -> str:
    unique = list(dict.fromkeys(words))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"


def _choices(kind: mi.LiteralType | mi.EnumType) -> list[Any]:
    # Literals come in msgspec's own order, which puts null first and is otherwise as good as any.
    return [m.value for m in kind.cls] if isinstance(kind, mi.EnumType) else list(kind.values)


def _expected(value: Any, kind: Any, path: str, problems: Problems) -> Any:
    problems.append((path, f"expected {describe(kind)}, got {show(value)}"))
    return value


def _leaf(value: Any, kind: Any, path: str, problems: Problems, coerce: bool) -> Any:
    hint = _LEAVES[type(kind)][0]
    if coerce and hint is str and isinstance(value, int | float):
        value = encode(value).decode()
    limits = {f: v for f in (*_BOUNDS, "tz") if (v := getattr(kind, f, None)) is not None}
    if limits:
        hint = Annotated[hint, msgspec.Meta(**limits)]
    # A number for a time is refused: msgspec would take the year in "2024" for seconds after 1970.
    converted = _converted(value, hint, coerce and not isinstance(kind, mi.DateTimeType | mi.TimeDeltaType))
    if converted is _FAILED or (isinstance(converted, float | decimal.Decimal) and not math.isfinite(converted)):
        return _expected(value, kind, path, problems)
    return value


def _choice(value: Any, kind: Any, path: str, problems: Problems, coerce: bool) -> Any:
    hint: Any = kind.cls if isinstance(kind, mi.EnumType) else Literal[kind.values]
    for attempt in [value, encode(value).decode()] if coerce and isinstance(value, int | float) else [value]:
        if _converted(attempt, hint, coerce) is not _FAILED:
            return attempt
    return _expected(value, kind, path, problems)


_FAILED = object()


def _converted(value: Any, hint: Any, coerce: bool) -> Any:
    try:
        return msgspec.convert(value, hint, strict=not coerce)
    except Exception:  # an enum's `_missing_` is the user's code; whatever the reason, this is not the value expected
        return _FAILED


def _union(value: Any, kind: mi.UnionType, path: str, problems: Problems, coerce: bool) -> Any:
    """The first member that fits as it stands, else the first that fits after coercion: "5" stays text if text is allowed."""
    members = [m for m in kind.types if _same_shape(value, m)]
    if len(members) > 1 and isinstance(value, dict):
        members = _by_tag(value, members, path, problems)
        if not members:
            return value
    found = Problems()
    for coercing in (False, True) if coerce else (False,):
        for member in members:
            found = Problems()
            try:
                mended = mend(value, member, path, found, coercing)
            except Enough:
                continue
            if not found:
                return mended
    if len(members) == 1 and isinstance(value, dict | list):
        problems.extend(found)  # the only member it can have meant, so its own words say more
        return value
    return _expected(value, kind, path, problems)


def _same_shape(value: Any, kind: Any) -> bool:
    kind = bare(kind)
    if isinstance(kind, mi.AnyType | mi.CustomType):
        return True
    array = isinstance(kind, _Array) or (isinstance(kind, mi.StructType) and kind.array_like)
    return array == isinstance(value, list | tuple) and (not array and isinstance(kind, _Object | mi.DictType)) == isinstance(
        value, dict
    )


def _by_tag(value: dict[str, Any], members: list[Any], path: str, problems: Problems) -> list[Any]:
    """Of several structs, the one the value's tag names. msgspec allows several only if they have different tags."""
    field = members[0].tag_field
    chosen = [m for m in members if field in value and m.tag == value[field]]
    if not chosen:
        got = f", got {show(value[field])}" if field in value else ", which is missing"
        problems.append((f"{path}.{field}", f"expected {_either([show(m.tag) for m in members])}{got}"))
    return chosen


def _object(value: Any, kind: Any, path: str, problems: Problems, coerce: bool) -> Any:
    if getattr(kind, "array_like", False):
        return _array(value, kind, path, problems, coerce)
    if not isinstance(value, dict):
        return _expected(value, kind, path, problems)
    before, prefix = len(problems), f"{path}." if path else ""
    fields = {f.encode_name: f for f in kind.fields}
    tag = getattr(kind, "tag_field", None)
    mended: dict[str, Any] = {}
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            if name == tag and item != kind.tag:
                problems.append((prefix + name, f"expected {show(kind.tag)}, got {show(item)}"))
            elif name != tag and getattr(kind, "forbid_unknown_fields", False):
                problems.append((prefix + name, f"unknown (expected {_either(list(fields))})" if fields else "unknown"))
            mended[name] = item
        elif not (coerce and item is None and not field.required and not _takes_null(field.type)):
            mended[name] = mend(item, field.type, prefix + name, problems, coerce)
    problems.extend((prefix + n, "missing") for n, f in fields.items() if f.required and n not in value)
    if len(problems) == before and hasattr(getattr(kind, "cls", None), "__post_init__"):
        _construct(mended, kind.cls, path, problems)
    return mended


def _takes_null(kind: Any) -> bool:
    found = Problems()
    mend(None, kind, "", found, coerce=False)
    return not found


def _construct(value: Any, cls: Any, path: str, problems: Problems) -> None:
    """Run the type's own `__post_init__` checks, so that their errors are among those reported."""
    try:
        msgspec.convert(value, cls, strict=False, str_keys=True, dec_hook=decode_custom)
    except Exception as error:  # user code may raise anything
        problems.append((path, str(error).partition(" - at `")[0] or type(error).__name__))


def _array(value: Any, kind: Any, path: str, problems: Problems, coerce: bool) -> Any:
    if not isinstance(value, list):
        return _expected(value, kind, path, problems)
    kinds = _item_kinds(kind, len(value))
    low, high = getattr(kind, "min_length", None) or 0, getattr(kind, "max_length", None)
    if isinstance(kind, mi.TupleType):
        low = high = len(kinds)
    elif isinstance(kind, mi.NamedTupleType | mi.StructType):
        low, high = sum(f.required for f in kind.fields), len(kinds)
    if len(value) < low or (high is not None and len(value) > high):
        wanted = f"{low}" if low == high else f"at least {low}" if len(value) < low else f"at most {high}"
        problems.append((path, f"expected {wanted} items, got {len(value)}"))
        return value
    return [mend(v, k, f"{path}[{i}]", problems, coerce) for i, (v, k) in enumerate(zip(value, kinds, strict=False))]


def _item_kinds(kind: Any, length: int) -> list[Any]:
    if isinstance(kind, mi.TupleType):
        return list(kind.item_types)
    if isinstance(kind, mi.NamedTupleType | mi.StructType):
        return [f.type for f in kind.fields]
    return [getattr(kind, "item_type", kind)] * length


def _dict(value: Any, kind: mi.DictType, path: str, problems: Problems, coerce: bool) -> Any:
    low, high = kind.min_length or 0, kind.max_length
    if not isinstance(value, dict):
        return _expected(value, kind, path, problems)
    if len(value) < low or (high is not None and len(value) > high):
        wanted = f"at least {low}" if len(value) < low else f"at most {high}"
        problems.append((path, f"expected {wanted} entries, got {len(value)}"))
    mended = {}
    for name, item in value.items():
        found = Problems()
        mend(name, kind.key_type, "", found)
        inside = f"{path}.{name}"
        problems.extend((inside, f"as a name, {message}") for _, message in found)
        mended[name] = mend(item, kind.value_type, inside, problems, coerce)
    return mended


def _custom(value: Any, kind: mi.CustomType, path: str, problems: Problems, coerce: bool) -> Any:
    try:
        decode_custom(kind.cls, value)
    except Exception as error:  # pydantic's error lists them all; a validator of the user's may raise anything
        if is_path(kind.cls) or not hasattr(error, "errors"):
            return _expected(value, kind, path, problems)
        for item in error.errors(include_url=False, include_context=False):
            place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in item["loc"])
            message = "missing" if item["type"] == "missing" else f"{_lowered(item['msg'])}, got {show(item['input'])}"
            problems.append(((path + place).lstrip("."), message))
    return value


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


_Walk: TypeAlias = Callable[[Any, Any, str, Problems, bool], Any]
_WALKS: tuple[tuple[Any, _Walk], ...] = (
    (mi.UnionType, _union),
    (_Object, _object),
    (_Array, _array),
    (mi.DictType, _dict),
    (mi.LiteralType | mi.EnumType, _choice),
    (mi.CustomType, _custom),
)
