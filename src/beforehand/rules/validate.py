"""Does a value have the form of a type? Finds every mistake, where msgspec would stop at the first.

It walks what msgspec knows of the types in `schema.py`, so those stay the one description of the format.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import msgspec.inspect as types

from . import schema
from .places import Path
from .problems import did_you_mean, listed, shown

Found = list[tuple[Path, str]]


def mistakes(rule: Any, path: Path) -> Found:
    """What is wrong with the form of one rule."""
    found: Found = []
    _check(_rules(), rule, path, found)
    return found


@cache
def _rules() -> types.Type:
    return types.type_info(schema.AnyRule)


def _check(kind: types.Type, value: Any, path: Path, found: Found) -> None:
    match kind:
        case types.Metadata():
            _check(kind.type, value, path, found)
        case types.AnyType():
            _check_any(value, path, found)
        case types.UnionType():
            _check_tagged(kind, value, path, found)
        case types.StructType():
            _check_struct(kind, value, path, found)
        case types.VarTupleType():
            _check_list(kind, value, path, found)
        case types.DictType():
            if not isinstance(value, dict):
                found.append((path, f"expected an object, got {shown(value)}"))
            else:
                for name, item in value.items():
                    _check(kind.value_type, item, (*path, name), found)
        case types.LiteralType():
            if value not in kind.values or isinstance(value, bool):
                found.append(
                    (path, f"{shown(value)} is not one of {listed(kind.values)}{did_you_mean(value, map(str, kind.values))}")
                )
        case _:
            _check_plain(kind, value, path, found)


def _check_plain(kind: types.Type, value: Any, path: Path, found: Found) -> None:
    match kind:
        case types.StrType():
            if not isinstance(value, str):
                found.append((path, f"expected a string, got {shown(value)}"))
            elif kind.min_length and not value:
                found.append((path, "expected a string that is not empty: leave the field out if there is nothing to say"))
            elif not _encodable(value):
                found.append((path, "the string holds half a character (a lone surrogate)"))
        case types.BoolType():
            if not isinstance(value, bool):
                found.append((path, f"expected true or false, got {shown(value)}"))
        case types.IntType() | types.FloatType():
            whole = isinstance(kind, types.IntType)
            fits = isinstance(value, int) if whole else isinstance(value, int | float) and math.isfinite(value)
            low, high = kind.ge, kind.le
            if isinstance(value, bool) or not fits or (low is not None and value < low) or (high is not None and value > high):
                found.append((path, f"expected {_number(whole, low, high)}, got {shown(value)}"))
            elif abs(value) >= 1 << 63:
                found.append((path, "the number is too large"))
        case _:  # pragma: no cover - the types in schema.py are made of the above
            raise TypeError(f"no check for {kind}")


def _number(whole: bool, low: float | None, high: float | None) -> str:
    name = "a whole number" if whole else "a number"
    if low is None:
        return name
    return f"{name} of at least {low}" if high is None else f"{name} from {low} to {high}"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_any(value: Any, path: Path, found: Found) -> None:
    if isinstance(value, str):
        _check_plain(types.StrType(), value, path, found)
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_any(item, (*path, name), found)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_any(item, (*path, i), found)


def _check_list(kind: types.VarTupleType, value: Any, path: Path, found: Found) -> None:
    if not isinstance(value, list):
        found.append((path, f"expected a list, got {shown(value)}" + (": put it in [ ]" if isinstance(value, str) else "")))
        return
    if kind.min_length and not value:
        found.append((path, "expected a list that is not empty: leave the field out if it should not count"))
    for i, item in enumerate(value):
        _check(kind.item_type, item, (*path, i), found)


def _check_tagged(kind: types.UnionType, value: Any, path: Path, found: Found) -> None:
    members = {str(member.tag): member for member in kind.types if isinstance(member, types.StructType)}
    field = next(iter(members.values())).tag_field or ""
    noun = "rule" if field == "target" else "action"
    if not isinstance(value, dict):
        found.append(
            (path, f"expected {'an' if noun == 'action' else 'a'} {noun} (an object with {field!r}), got {shown(value)}")
        )
        return
    if field not in value:
        names = listed(members)
        near = did_you_mean(field, [name for name in value if isinstance(name, str)])
        hint = f" (there is {near.split(chr(39))[1]!r})" if near else ""
        found.append((path, f"the field {field!r} is missing{hint}: expected one of {names}"))
        return
    tag = value[field]
    member = members.get(tag) if isinstance(tag, str) else None
    if member is not None:
        _check_struct(member, value, path, found)
    elif noun == "action" and isinstance(tag, str) and tag in action_targets():
        found.append(
            (
                (*path, field),
                f"{tag!r} decides nothing here: no seam of this target takes it; it is allowed at "
                f"{', '.join(action_targets()[tag])}",
            )
        )
    else:
        hint = did_you_mean(tag, members if noun == "rule" else action_targets())
        choices = f"{hint} Expected" if hint else ": expected"
        found.append(
            ((*path, field), f"there is no {noun if noun == 'action' else field} {shown(tag)}{choices} one of {listed(members)}")
        )


def _check_struct(kind: types.StructType, value: Any, path: Path, found: Found) -> None:
    if not isinstance(value, dict):
        found.append((path, f"expected an object, got {shown(value)}"))
        return
    fields = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        if name in fields:
            _check(fields[name].type, item, (*path, name), found)
        elif name != kind.tag_field:
            found.append(((*path, name), _unknown(kind, name, fields)))
    for name, field in fields.items():
        if field.required and name not in value:
            found.append((path, f"the field {name!r} is missing"))


def _unknown(kind: types.StructType, name: str, fields: dict[str, Any]) -> str:
    """A field that this struct does not have: perhaps another one has it, perhaps it is misspelt."""
    owners = _owners(kind.tag_field or "").get(name)
    if owners and kind.tag not in owners:
        return f"{name!r} is a field of {_noun(kind)} {' and '.join(sorted(owners))}, not of {kind.tag}"
    known = [*([kind.tag_field] if kind.tag_field else []), *fields]
    hint = did_you_mean(name, known)
    of = f"of {_noun(kind)} {kind.tag}" if kind.tag_field else "here"
    return f"unknown field {name!r}{hint}" + ("" if hint else f": the fields {of} are {', '.join(known)}")


def _noun(kind: types.StructType) -> str:
    return "target" if kind.tag_field == "target" else "action"


@cache
def _owners(tag_field: str) -> dict[str, set[str]]:
    """For the fields of all targets, or of all actions: who has them."""
    if not tag_field:
        return {}
    union = types.type_info(schema.AnyRule if tag_field == "target" else schema.AnyAction)
    owners: dict[str, set[str]] = {}
    for member in union.types:  # type: ignore[attr-defined]
        for field in member.fields:
            owners.setdefault(field.encode_name, set()).add(str(member.tag))
    return owners


@cache
def action_targets() -> dict[str, list[str]]:
    """For each action the targets that take it, with the event where only one of them does."""
    found: dict[str, list[str]] = {}
    for target, rule in schema.RULES.items():
        info = types.type_info(rule)
        actions = next(f.type for f in info.fields if f.encode_name == "actions").item_type  # type: ignore[attr-defined]
        events = [event for of, event in schema.EVENT_ACTIONS if of == target]
        for member in actions.types:
            tag = str(member.tag)
            taking = [event for event in events if allowed(target, event, tag)]
            names = [target] if taking == events else [f"{target} ({event})" for event in taking]
            found.setdefault(tag, []).extend(names)
    return found


_EVERYWHERE = frozenset({"log", "warn", "info", "debug"})
_QUEUES = frozenset({"queue-message", "queue-resend"})


def allowed(target: str, event: str, action: str) -> bool:
    """Whether this event of a target takes an action."""
    if action in _EVERYWHERE or (target == "tool" and action in _QUEUES):
        return True
    return action in schema.EVENT_ACTIONS[target, event]
