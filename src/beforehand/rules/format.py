"""The JSON Schema of rule files, generated from the types that load them, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from . import schema

TITLE = "beforehand rule file"


def rules_json_schema() -> dict[str, Any]:
    """One rule, or a list of them. What goes together with what beyond the form (patterns, pointers) only loading can tell."""
    (one,), components = msgspec.json.schema_components((schema.AnyRule,), ref_template="#/$defs/{name}")
    for name, rule in ((rule.__name__, rule) for rule in schema.RULES.values()):
        target = str(rule.__struct_config__.tag)
        conditions = [_condition(event, actions, rule) for (of, event), actions in schema.EVENT_ACTIONS.items() if of == target]
        if conditions:
            components[name]["allOf"] = conditions
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": TITLE,
        "anyOf": [one, {"type": "array", "items": one}],
        "$defs": components,
    }
    return msgspec.json.decode(msgspec.json.encode(whole))  # type: ignore[no-any-return]  # defaults are tuples otherwise


def _condition(event: str, actions: frozenset[str], rule: type) -> dict[str, Any]:
    """At this event only these actions."""
    always = ["log", "warn", "info", "debug", *(["queue-message", "queue-resend"] if rule is schema.ToolRule else [])]
    when: dict[str, Any] = {"properties": {"event": {"const": event}}}
    if event != "after":  # the default
        when["required"] = ["event"]
    return {
        "if": when,
        "then": {"properties": {"actions": {"items": {"properties": {"type": {"enum": sorted({*always, *actions})}}}}}},
    }
