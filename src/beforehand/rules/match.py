"""The filters of rules: a text that holds a pattern, a tool argument that has a value."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from time import perf_counter
from typing import Any

import msgspec

from beforehand.frozen import FrozenDict
from beforehand.stream import engine
from beforehand.stream.patterns import Match, PatternSet, Rule
from beforehand.stream.regex import parse, show

from .schema import ArgumentFilter

Accept = Callable[[Match], bool]
"""Whether a match that was found counts: a secret may have to look random, or not to be on a list of examples."""

UNLIMITED = 1 << 20
"""Characters a pattern set keeps back at most where the run sets no limit."""

MAX_HOLD = 4096

PATIENCE = 5.0
"""Seconds that the search through one text may take: the time limit of a rule that names none. Nearly every search takes
microseconds, and all of them time that grows with the text; so the clock is looked at between searches, without a thread."""

SOME = 4
"""So many patterns are found faster by way of their alarms."""


class TooSlow(Exception):
    """The search through a text was given up, so that the rule has failed."""


class Finder:
    """What a rule's `regex`, or its set of patterns, finds in a text. Immutable and shared.

    Raises `PatternError` for a pattern that RE2 does not take.
    """

    def __init__(self, rules: Sequence[Rule], accept: Accept | None = None, patience: float = PATIENCE) -> None:
        self.rules, self.patience = tuple(rules), patience
        self.accept = accept
        self._single = _Single(self.rules[0].pattern) if len(self.rules) == 1 and self._is_plain(self.rules[0]) else None
        self._sets: dict[int, PatternSet] = {}
        if self._single is None:
            self.patterns(MAX_HOLD)  # finds mistakes in the patterns now

    def _is_plain(self, rule: Rule) -> bool:
        return self.accept is None and not rule.keywords and rule.group == 0

    @classmethod
    def of(cls, pattern: str) -> Finder:
        return cls([Rule(pattern)])

    @cached_property
    def variables(self) -> frozenset[str]:
        """The template variables that a match brings."""
        names = {"match"} | ({"rule"} if any(rule.id for rule in self.rules) else set())
        for rule in self.rules:
            groups = engine.Captures(show(parse(rule.pattern)))
            names.update([f"match_{n}" for n in range(1, groups.count + 1)], [f"match_{name}" for name in groups.names])
        return frozenset(names)

    @cached_property
    def may_be_empty(self) -> bool:
        """Whether it finds something in an empty text."""
        return self._single is not None and self._single.match("", self.rules[0]) is not None

    def patterns(self, max_hold: int | None) -> PatternSet:
        """The patterns made ready for streams that keep back at most so many characters."""
        hold = UNLIMITED if max_hold is None else max(1, min(max_hold, UNLIMITED))
        if hold not in self._sets:
            made = copy.copy(next(iter(self._sets.values()), None)) or PatternSet(self.rules, max_hold=hold)
            made.max_hold = hold  # the compiled patterns are the same whatever the bound, and dear to make
            self._sets[hold] = made
        return self._sets[hold]

    def first(self, text: str) -> Match | None:
        """The first match in a text that is complete."""
        if self._single is not None:
            return self._single.match(text, self.rules[0])
        return next(self.all(text), None)

    def all(self, text: str) -> Iterator[Match]:
        """The matches in a text that is complete, from left to right, but those that match nothing."""
        patterns = self.patterns(MAX_HOLD)
        try:
            if len(self.rules) >= SOME:
                matches, _ = patterns.scanner(self.patience).feed(text, True)
            else:
                matches = patterns.scan_whole(text, perf_counter() + self.patience)
        except engine.TooSlow as error:
            raise TooSlow(f"{error} took longer than {self.patience:g} s in a text of {len(text)} characters") from None
        for match in matches:
            if self.accept is None or self.accept(match):
                yield match

    def replace(self, text: str, replacement: Callable[[Match], str]) -> str:
        """The text with every match rewritten."""
        at, parts = 0, []
        for match in self.all(text):
            parts += [text[at : match.span[0]], replacement(match)]
            at = match.span[1]
        return "".join(parts) + text[at:] if parts else text


class _Single:
    """One pattern, asked whether a text holds it. Also an empty match counts, as `^$` is about empty messages."""

    def __init__(self, pattern: str) -> None:
        node = parse(pattern)
        try:
            self._captures = engine.Captures(show(node))
        except engine.Refused:
            PatternSet([Rule(pattern)])  # says it better
            raise
        self._groups = bool(self._captures.count)
        self._search = engine.search(show(node, capture=False))

    def match(self, text: str, rule: Rule) -> Match | None:
        data = engine.encode(text)
        start, stop = self._search(data, 0, len(data))
        if start < 0:
            return None
        texts: list[str | None] = [engine.decode(data[start:stop])]
        if self._groups:
            spans = self._captures.spans(data, start, len(data))
            texts = [engine.decode(data[low:high]) if low >= 0 else None for low, high in spans]
        first = len(engine.decode(data[:start]))
        end = first + len(texts[0] or "")
        named = FrozenDict({name: texts[number] for name, number in self._captures.names.items()})
        return Match(rule, 0, first, end, (first, end), texts[0] or "", tuple(texts[1:]), named)


def groups_of(match: Match) -> dict[str, str]:
    """The template variables of a match: itself, its numbered groups and its named ones."""
    found = {"match": match.text}
    for number, text in enumerate(match.groups, 1):
        if text is not None:
            found[f"match_{number}"] = text
    for name, text in match.named.items():
        if text is not None:
            found[f"match_{name}"] = text
    if match.rule.id:
        found["rule"] = match.rule.id
    return found


# --- tool arguments ------------------------------------------------------------------------------


def pointer_steps(pointer: str) -> tuple[str, ...]:
    """The steps of a JSON pointer (RFC 6901). Raises `ValueError` saying what is wrong with it."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is no JSON pointer: write '/{pointer}'")
    steps = []
    for step in pointer.split("/")[1:]:
        if "~" in step.replace("~0", "").replace("~1", ""):
            raise ValueError(f"{pointer!r} is no JSON pointer: write ~ as ~0 and / inside a name as ~1")
        steps.append(step.replace("~1", "/").replace("~0", "~"))
    return tuple(steps)


MISSING = object()
"""What stands at a pointer that leads nowhere."""


def at_pointer(value: Any, steps: tuple[str, ...]) -> Any:
    """What stands at a JSON pointer, or `MISSING`."""
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step, MISSING)
        elif isinstance(value, list | tuple):
            index = int(step) if step.isascii() and step.isdigit() and (step == "0" or step[0] != "0") and len(step) < 10 else -1
            value = value[index] if 0 <= index < len(value) else MISSING
        else:
            return MISSING
    return value


def strings_in(value: Any) -> Iterator[str]:
    """Every string in a JSON value, however deep, and the names of objects. Numbers count as they are written."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(reversed(list(item.values())))
            yield from item
        elif isinstance(item, list | tuple):
            stack.extend(reversed(item))
        elif item is not None and isinstance(item, bool | int | float):
            yield msgspec.json.encode(item).decode()


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string in it changed. Names of objects stay, and so does what is no JSON."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: map_strings(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple([map_strings(item, change) for item in value])
    return value


class ArgumentTest:
    """One entry of `args`: what the value at a pointer must be."""

    def __init__(self, pointer: str, condition: ArgumentFilter, finder: Finder | None) -> None:
        self.pointer = pointer
        self._steps = pointer_steps(pointer)
        self._name = self._steps[0] if len(self._steps) == 1 else None
        self.finder = finder
        self.equals = MISSING if condition.equals is msgspec.UNSET else condition.equals
        self.low = -math.inf if condition.min is msgspec.UNSET else condition.min
        self.high = math.inf if condition.max is msgspec.UNSET else condition.max
        self.ranged = condition.min is not msgspec.UNSET or condition.max is not msgspec.UNSET

    def value(self, args: Mapping[str, Any]) -> Any:
        """What stands there, or `MISSING`."""
        return args.get(self._name, MISSING) if self._name is not None else at_pointer(args, self._steps)

    def fits(self, args: Mapping[str, Any]) -> Match | bool:
        """The match of its regex, or whether the conditions hold."""
        value = self.value(args)
        if value is MISSING:
            return False
        if self.equals is not MISSING and not same_json(value, self.equals):
            return False
        if self.ranged and (isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high):
            return False
        finder = self.finder
        if finder is None:
            return True
        if isinstance(value, str):
            return finder.first(value) or False
        return next((match for text in strings_in(value) if (match := finder.first(text))), False)


def same_json(one: Any, other: Any) -> bool:
    """Equal as JSON: numbers by value, but never a number and a truth value."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_json(item, other[name]) for name, item in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same_json(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)
