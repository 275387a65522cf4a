"""Does a rule have the form of its target? What `forms` cannot say about types in general is said here."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec.inspect as types

from beforehand.documents.forms import Check, Found
from beforehand.documents.places import Path

from . import schema
from .problems import did_you_mean, listed, shown


def mistakes(rule: Any, path: Path) -> Found:
    """What is wrong with the form of one rule."""
    check = Check(_special)
    check.value(_rules(), rule, path)
    return check.found


@cache
def _rules() -> types.Type:
    return types.type_info(schema.AnyRule)


def _special(check: Check, kind: types.Type, value: Any, path: Path) -> bool:
    """Targets and actions, which are told apart by one of their fields."""
    if isinstance(kind, types.UnionType):
        _check_tagged(check, kind, value, path)
    elif isinstance(kind, types.StructType):
        check.struct(kind, value, path, lambda name: _unknown(kind, name))
    else:
        return False
    return True


def _check_tagged(check: Check, kind: types.UnionType, value: Any, path: Path) -> None:
    members = {str(member.tag): member for member in kind.types if isinstance(member, types.StructType)}
    field = next(iter(members.values())).tag_field or ""
    noun = "rule" if field == "target" else "action"
    if not isinstance(value, dict):
        check.wrong(path, f"expected {'an' if noun == 'action' else 'a'} {noun} (an object with {field!r}), got {shown(value)}")
        return
    if field not in value:
        names = listed(members)
        near = did_you_mean(field, [name for name in value if isinstance(name, str)])
        hint = f" (there is {near.split(chr(39))[1]!r})" if near else ""
        check.wrong(path, f"the field {field!r} is missing{hint}: expected one of {names}")
        return
    tag = value[field]
    member = members.get(tag) if isinstance(tag, str) else None
    if member is not None:
        check.value(member, value, path)
    elif noun == "action" and isinstance(tag, str) and tag in action_targets():
        check.wrong(
            (*path, field),
            f"{tag!r} decides nothing here: no seam of this target takes it; it is allowed at "
            f"{', '.join(action_targets()[tag])}",
        )
    else:
        hint = did_you_mean(tag, members if noun == "rule" else action_targets())
        choices = f"{hint} Expected" if hint else ": expected"
        check.wrong(
            (*path, field), f"there is no {noun if noun == 'action' else field} {shown(tag)}{choices} one of {listed(members)}"
        )


def _unknown(kind: types.StructType, name: str) -> str:
    """A field that this struct does not have: perhaps another one has it, perhaps it is misspelt."""
    owners = _owners(kind.tag_field or "").get(name)
    if owners and kind.tag not in owners:
        return f"{name!r} is a field of {_noun(kind)} {' and '.join(sorted(owners))}, not of {kind.tag}"
    known = [*([kind.tag_field] if kind.tag_field else []), *[field.encode_name for field in kind.fields]]
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
