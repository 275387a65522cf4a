"""What is allowed in a rule and yet worth a second look. `beforehand check` prints it; nothing is refused for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from beforehand.decisions import DEFAULT_BLOCK_REASON
from beforehand.documents.places import Path

from . import schema
from .match import ArgumentTest, Finder
from .problems import did_you_mean
from .templates import COMMON, KNOWN, Template

Advice = Iterator[tuple[Path, str]]

_TEMPLATES = ("message", "reason", "prompt", "with_", "result")


def advise(definition: Any, written: Any, finder: Finder | None, tests: Sequence[ArgumentTest]) -> Advice:
    """Advice about one rule, also as it was `written`: the field, and what to think about."""
    target = str(definition.__struct_config__.tag)
    yield from _empty_lists(written)
    yield from _unknown_variables(
        definition, target, [*([finder] if finder is not None else []), *[t.finder for t in tests if t.finder]]
    )
    if definition.on_error == "open":
        yield ("onError",), "if this rule fails, what it guards is let pass (the record says so)"
    if target == "stream" and definition.regex is not UNSET and finder is not None and finder.may_be_empty:
        yield ("regex",), "the pattern also fits no text at all; on a stream such a match never counts"
    if definition.timeout_ms is not UNSET and target == "stream":
        yield ("timeoutMs",), "it does not count on a stream, where a rule works in linear time on a bounded text"
    for i, action in enumerate(definition.actions):
        if isinstance(action, schema.BlockAction) and action.reason is UNSET:
            yield ("actions", i), f"without a 'reason' the model only reads {DEFAULT_BLOCK_REASON!r}: say what to do instead"


def _empty_lists(written: Any) -> Advice:
    for name in ("roles", "chunks", "tools"):
        if written.get(name) == []:
            yield (name,), "an empty list means all of them: leave the field out to say so"


def _unknown_variables(definition: Any, target: str, finders: Sequence[Finder]) -> Advice:
    event = getattr(definition, "event", "")
    plain = {*COMMON, *KNOWN[target, event]}
    for i, action in enumerate(definition.actions):
        for field in _TEMPLATES:
            for text in _strings(getattr(action, field, UNSET)):
                for name in dict.fromkeys(Template(text).variables):
                    if name not in plain and name not in (known := plain.union(*[finder.variables for finder in finders])):
                        shown = "with" if field == "with_" else field
                        hint = did_you_mean(name, known) or f": this target has {', '.join(sorted(known))}"
                        yield ("actions", i, shown), f"there is no variable {{{{{name}}}}} here, it stays as it is written{hint}"


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
