"""A seam's context and decisions as JSON, both derived from `SEAMS`.

A decision is an object with its name, in small letters, as `type`, and its fields beside it:

    {"type": "block", "reason": "First class needs a manager's approval."}
    {"type": "replace", "args": {"seat_class": "tourist"}}

A lambda returns null, one of them, or a list of them. One that its seam does not declare is refused like any other
hook's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from ..contexts import RunInfo
from ..decisions import Decision, Queue, Replace
from ..history import HistoryView
from ..hooks.check import Refused
from ..messages import AssistantMessage, Content, Message, Usage, clean_all
from ..models.base import Model
from ..seams import Context, SeamSpec, Seen
from ..tools import Tool

# --- the context ---------------------------------------------------------------------------------

def _encode_message(message: Message) -> bytes:
    """One message. The history keeps what this gives, so a message is encoded once however often it is shown."""
    return _json(message)


def _plain(value: Any) -> Any:
    """What JSON has no form for, in one."""
    if isinstance(value, HistoryView):
        return [msgspec.Raw(text) for text in value.encoded(_encode_message)]
    if isinstance(value, Model):
        return value.name
    if isinstance(value, RunInfo):
        return {
            "run_id": value.run_id, "parent_call_id": value.parent_call_id, "loop": value.loop, "turn": value.turn,
            "elapsed": value.elapsed, "cost": value.cost, "usage": value.usage, "calls": value.calls,
        }  # fmt: skip
    try:
        return str(value)
    except Exception:  # a value of user code that cannot even be shown
        return type(value).__name__


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def _json(value: Any) -> bytes:
    """A value as JSON text. Half characters, which names of files can have, are shown as escapes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(clean_all(msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)))


def context_json(spec: SeamSpec, context: Seen) -> bytes:
    """The context of a seam as JSON text: its fields, and the seam's name."""
    return _json({"seam": spec.name, **_fields(context)})


def _fields(value: Seen) -> dict[str, Any]:
    return {name: _shown(getattr(value, name)) for name in _names(type(value))}


@cache
def _names(context: type[Seen]) -> tuple[str, ...]:
    """The fields of a context, then what it works out of them."""
    return (*context.__struct_fields__, *[name for name in dir(context) if isinstance(getattr(context, name), property)])


def _shown(value: Any) -> Any:
    """A field's value with every tool in it as the model knows it, without its function."""
    if isinstance(value, Tool):
        return {"name": value.name, "description": value.description, "parameters": value.parameters}
    if isinstance(value, Context):
        return {"system": value.system, "messages": value.messages, "tools": [_shown(tool) for tool in value.tools]}
    return _fields(value) if isinstance(value, Seen) else value


# --- decisions -----------------------------------------------------------------------------------

MAX_DECISIONS = 100
"""Of one call. Each `Queue` is a message, about which the same lambda may be asked again."""


def decisions_of(spec: SeamSpec, context: Seen, returned: Any) -> list[Decision] | None:
    """What a lambda returned, as decisions. Raises `Refused`. Whether their values will do is checked by the dispatcher."""
    if returned is None:
        return None
    items = returned if isinstance(returned, list) else [returned]
    if len(items) > MAX_DECISIONS:
        raise Refused(f"returned {len(items):,} decisions, more than {MAX_DECISIONS}")
    return [_decision(spec, context, item) for item in items]


def forms(spec: SeamSpec) -> list[str]:
    """What a lambda may return at a seam, as one writes it."""
    shown = {name: [f'"type": "{name}"', *(f'"{field}"' for field in fields)] for name, (_, fields) in _declared(spec).items()}
    return ["{" + ", ".join(items) + "}" for items in shown.values()]


def _declared(spec: SeamSpec) -> dict[str, tuple[type[Decision], tuple[str, ...]]]:
    """The decisions of a seam by their JSON name, with their fields."""
    kinds: tuple[type[Decision], ...] = (*spec.verdicts, *spec.effects)
    replaced = spec.verdicts.get(Replace, ())
    return {kind.__name__.lower(): (kind, replaced if kind is Replace else kind.__struct_fields__) for kind in kinds}


def _decision(spec: SeamSpec, context: Seen, item: Any) -> Decision:
    declared = _declared(spec)
    name = item.get("type") if isinstance(item, dict) else None
    if not isinstance(name, str) or name not in declared:
        given = "a value" if spec.value is None else _short(item)
        may = f"null, {', '.join(forms(spec))}" if declared else "nothing but null"
        raise Refused(f"returned {given}, but a lambda at {spec.name} may return {may}")
    kind, allowed = declared[name]
    fields = {key: value for key, value in item.items() if key != "type"}
    unknown = [key for key in fields if key not in allowed]
    if unknown:
        takes = f"it takes {', '.join(allowed)}" if allowed else "it takes no fields"
        raise Refused(f"returned {name!r} with the field {unknown[0]!r}, but at {spec.name} {takes}")
    if kind is Replace:
        return Replace(**{key: _FIELDS.get(key, _as_given)(f"{name}.{key}", value, context) for key, value in fields.items()})
    if kind is Queue and isinstance(fields.get("message"), dict):
        return Queue(_typed(Message)(f"{name}.message", fields["message"], context))
    if spec.name == "authorize_request" and isinstance(fields.get("value"), dict):
        fields["value"] = _typed(AssistantMessage)(f"{name}.value", fields["value"], context)
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise Refused(f"returned {name!r} that cannot be used: {error}") from None


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."


Reader = Callable[[str, Any, Any], Any]
"""Turns a field's JSON into the value `Replace` takes, given where it stands and the context of the call."""


def _as_given(where: str, value: Any, context: Any) -> Any:
    return value


def _typed(kind: Any) -> Reader:
    def read(where: str, value: Any, context: Any) -> Any:
        try:
            found = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise Refused(f"returned {where} that cannot be used: {error}") from None
        surplus = _surplus(value, msgspec.to_builtins(found, enc_hook=str), where)
        if surplus:
            raise Refused(f"returned {surplus}, which does not exist")
        return found

    return read


def _surplus(given: Any, built: Any, where: str) -> str | None:
    """The path of a key that was given and meant nothing."""
    if isinstance(given, dict) and isinstance(built, Mapping):
        for key, value in given.items():
            if key not in built:
                return f"{where}.{key}"
            if found := _surplus(value, built[key], f"{where}.{key}"):
                return found
    elif isinstance(given, list) and isinstance(built, list | tuple):
        for i, (one, other) in enumerate(zip(given, built, strict=False)):
            if found := _surplus(one, other, f"{where}[{i}]"):
                return found
    return None


_messages = _typed(tuple[Message, ...])


def _context(where: str, value: Any, context: Any) -> Any:
    """A context whose tools are named. Those not named are gone; what is left out stays as it is."""
    old: Context = context.context
    if not isinstance(value, dict) or not value.keys() <= {"system", "messages", "tools"}:
        raise Refused(f"returned {where} that is no object of system, messages and tools")
    messages, tools = old.messages, old.tools
    if "messages" in value:
        messages = _messages(f"{where}.messages", value["messages"], context)
    if "tools" in value:
        by_name = {tool.name: tool for tool in old.tools}
        names = [item.get("name") if isinstance(item, dict) else item for item in _list(where, value["tools"])]
        for name in names:
            if not isinstance(name, str) or name not in by_name:
                there = ", ".join(by_name) or "none"
                raise Refused(f"returned {where}.tools with {name!r}: it can only keep tools that are there: {there}")
        tools = tuple(by_name[name] for name in names)
    return Context(value.get("system", old.system), messages, tools)


def _list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(f"returned {where}.tools that is no list")
    return value


def _model(where: str, value: Any, context: Any) -> Any:
    """A model by its name. The name that was shown is the model there is, which its name alone need not lead to."""
    there = getattr(context, "model", None)
    return there if isinstance(there, Model) and there.name == value else value


_FIELDS: dict[str, Reader] = {
    "model": _model,
    "messages": _messages,
    "add_messages": _messages,
    "message": _typed(Message),
    "content": _typed(Content),
    "usage": _typed(Usage | None),
    "context": _context,
}
"""The fields of `Replace` whose JSON is not the value itself."""
