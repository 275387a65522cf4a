"""One thing that is wrong with a file, with its line and field, and the words for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..errors import nearest
from ..frozen import Frozen

from .places import Path


class Problem(Frozen):
    """One mistake, or with `check` one thing to think about. `line` and `column` count from 1."""

    file: str
    line: int
    column: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {f'{self.field}: ' if self.field else ''}{self.message}"


def field_name(path: Path) -> str:
    """A way into a document as people write it: `[1].actions[0].type`."""
    shown = "".join(
        [f"[{step}]" if isinstance(step, int) else f".{step}" if _PLAIN.fullmatch(step) else f"[{step!r}]" for step in path]
    )
    return shown.removeprefix(".")


_PLAIN = re.compile(r"[\w-]+")


def did_you_mean(given: Any, known: Iterable[str]) -> str:
    """A hint that ends a sentence, or nothing."""
    if not isinstance(given, str):
        return ""
    by_letters = {_letters(name): name for name in known}
    near = nearest(_letters(given), by_letters)
    return "" if near is None else f", did you mean {by_letters[near]!r}?"


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def listed(names: Iterable[Any]) -> str:
    return ", ".join([repr(name) if isinstance(name, str) else str(name) for name in names])


def shown(value: Any) -> str:
    """A value of a file in an error message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
