"""Many rules about calls as one group of hooks: an index tells which of them a call can concern at all.

From `ENOUGH` on, neighbouring rules that judge calls (target `tool`, event `before`) with one order, policy and loops
become a group. Those that the index names are asked one by one, so that each leaves a record of its own.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from beforehand.decisions import Decision
from beforehand.hooks.group import HookGroup
from beforehand.hooks.hook import Hook
from beforehand.seams import PendingCall
from beforehand.stream import engine
from beforehand.stream.regex import parse, show

from .calls import Gate
from .match import MISSING, ArgumentTest, strings_in
from .rule import Rule, settle

ENOUGH = 16
"""So many neighbours are cheaper as one hook."""

BLOCK = 32
"""So many patterns are looked for at once, to see which of them need a look of their own."""


def bundled(hooks: Sequence[Hook]) -> HookGroup:
    """The hooks of rules that are neighbours, each a `Gate`, as a group."""
    first = hooks[0]
    confined = tuple(dict.fromkeys([glob for hook in hooks for glob in hook.tools])) if all(hook.tools for hook in hooks) else ()
    bundle = Bundle(hooks)
    return HookGroup(
        seam=first.seam, fn=bundle.judge, name=f"{len(hooks)} rules", where=f"{first.where} and {len(hooks) - 1} more",
        tools=confined, loops=first.loops, order=first.order, on_error=first.on_error,
        members=tuple(hooks), concerned=bundle,
    )  # fmt: skip


class Bundle:
    """Tells which rules of a group a call can concern. It keeps an index for each tool that is called."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = tuple(hooks)
        self._indexes: dict[str, Index] = {}

    def __call__(self, call: PendingCall) -> Sequence[Hook]:
        index = self._indexes.get(call.name)
        if index is None:
            index = self._indexes[call.name] = Index([hook for hook in self._hooks if _is_about(hook, call.name)])
        return index.candidates(call.args)

    def judge(self, call: PendingCall) -> list[Decision] | None:
        """What the rules come to together."""
        return settle("before_tool_call", [decision for hook in self(call) for decision in hook.fn(call) or ()])


def _is_about(hook: Hook, tool: str) -> bool:
    return not hook.tools or any(fnmatchcase(tool, glob) for glob in hook.tools)


class Index:
    """Finds the rules that a call with some arguments may concern: by value, by range, by pattern; the others always."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = tuple(hooks)
        self._always: list[int] = []
        self._values: dict[ArgumentTest, dict[Any, list[int]]] = {}
        self._ranges: dict[ArgumentTest, list[tuple[float, int]]] = {}
        patterns: dict[ArgumentTest | None, list[tuple[str, int]]] = {}
        places: dict[str, ArgumentTest] = {}
        for number, hook in enumerate(self._hooks):
            self._file(number, cast(Gate, hook.fn).rule, places, patterns)
        for ranges in self._ranges.values():
            ranges.sort()
        self._patterns = [(test, Sieve(found)) for test, found in patterns.items()]

    def _file(
        self, number: int, rule: Rule, places: dict[str, ArgumentTest], patterns: dict[ArgumentTest | None, list[tuple[str, int]]]
    ) -> None:
        """Put a rule where the first of its conditions that an index can use would find it."""
        for test in rule.tests:
            place = places.setdefault(test.pointer, test)
            if test.equals is not MISSING and not isinstance(test.equals, dict | list):
                self._values.setdefault(place, {}).setdefault(test.equals, []).append(number)
                return
            if test.finder is not None:
                patterns.setdefault(place, []).extend([(pattern.pattern, number) for pattern in test.finder.rules])
                return
            if test.ranged:
                self._ranges.setdefault(place, []).append((test.low, number))
                return
        if rule.finder is not None:
            patterns.setdefault(None, []).extend([(pattern.pattern, number) for pattern in rule.finder.rules])
        else:
            self._always.append(number)

    def candidates(self, args: Mapping[str, Any]) -> Sequence[Hook]:
        """In the order of the rules."""
        found = list(self._always)
        for test, values in self._values.items():
            value = test.value(args)
            if value is not MISSING and not isinstance(value, Mapping | list | tuple):
                found += values.get(value, ())
        for test, ranges in self._ranges.items():
            value = test.value(args)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found += [number for _, number in ranges[: bisect.bisect_right(ranges, (value, len(self._hooks)))]]
        for place, sieve in self._patterns:
            value = args if place is None else place.value(args)
            if value is not MISSING:
                found += sieve.numbers((value,) if isinstance(value, str) else strings_in(value))
        if not found:
            return ()
        return [self._hooks[number] for number in sorted(set(found))]


class Sieve:
    """Many patterns, of which few match. One search tells that none of them does."""

    def __init__(self, patterns: Sequence[tuple[str, int]]) -> None:
        parts = [(show(parse(pattern), capture=False), number) for pattern, number in patterns]
        self._all = _any(parts)
        blocks = [parts[i : i + BLOCK] for i in range(0, len(parts), BLOCK)]
        self._blocks = [(_any(block), [number for _, number in block]) for block in blocks]

    def numbers(self, texts: Iterator[str] | Sequence[str]) -> list[int]:
        """The rules that may match one of the texts, in blocks."""
        found: list[int] = []
        for text in texts:
            data = engine.encode(text)
            end = len(data)
            if self._all is None or self._all(data, 0, end)[0] >= 0:
                for search, numbers in self._blocks:
                    if search is None or search(data, 0, end)[0] >= 0:
                        found += numbers
        return found


def _any(parts: Sequence[tuple[str, int]]) -> engine.Search | None:
    """A search for any of these patterns, `None` if that is too large for RE2: then each is looked for."""
    try:
        return engine.search("|".join([f"(?:{pattern})" for pattern, _ in parts]))
    except engine.Refused:
        return None
