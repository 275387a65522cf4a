"""Texts with `{{variables}}` in them. One pass: what is put in is never looked at again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_VARIABLE = re.compile(r"\{\{([A-Za-z0-9_]+)\}\}")

Variables = Mapping[str, Any]

COMMON = ("label", "target")
KNOWN: dict[tuple[str, str], tuple[str, ...]] = {
    ("chat", ""): ("role", "content", "match"),
    ("stream", ""): ("type", "text", "toolCallId", "finishReason"),
    ("tool", "before"): ("event", "name", "args"),
    ("tool", "after"): ("event", "name", "args", "result"),
    ("tool", "error"): ("event", "name", "args", "error"),
    ("request", ""): ("model", "kind"),
    ("turn", "before"): ("event", "number", "content"),
    ("turn", "after"): ("event", "number", "content"),
    ("run", ""): ("content",),
}
"""The variables of each target and event, beside `COMMON` and those of a match."""


class Template:
    """A text to fill in. A variable that is not there stays as it was written."""

    __slots__ = ("_parts", "text", "variables")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = _VARIABLE.split(text)
        self.variables = tuple(self._parts[1::2])

    def fill(self, variables: Variables) -> str:
        if not self.variables:
            return self.text
        filled = list(self._parts)
        for i in range(1, len(filled), 2):
            name = filled[i]
            filled[i] = as_text(variables[name]) if name in variables else f"{{{{{name}}}}}"
        return "".join(filled)


def as_text(value: Any) -> str:
    """Strings as they are, everything else as compact JSON."""
    return value if isinstance(value, str) else to_json(value)


def to_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):
        return str(value)


def dump(variables: Variables) -> str:
    """The message of an action that has none: everything a template could show here."""
    label = variables.get("label")
    return f"[json-hook{f' {label}' if label else ''}] {variables['target']}: {to_json(dict(variables))}"
