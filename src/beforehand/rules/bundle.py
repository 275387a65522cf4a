"""Many rules about calls, asked as one: an index tells which of them a call can concern at all.

A hook costs a microsecond or two to ask, so a thousand of them would cost more than many a tool. From `ENOUGH` on,
neighbouring rules that judge calls (target `tool`, event `before`) with one order, policy and loops become one hook.
If several of them refuse one call, the strongest refusal counts and is the one on record.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from beforehand.decisions import Decision, Verdict
from beforehand.hooks.hook import Hook
from beforehand.seams import BY_NAME, PendingCall
from beforehand.stream import engine
from beforehand.stream.regex import parse, show

from .calls import Gate
from .match import MISSING, ArgumentTest, strings_in
from .rule import Rule, RulesHook, settle

ENOUGH = 16
"""So many neighbours are cheaper as one hook."""

BLOCK = 32
"""So many patterns are looked for at once, to see which of them need a look of their own."""

_RANKS = BY_NAME["before_tool_call"].ranks


def bundled(gates: Sequence[Gate]) -> Hook:
    """One hook for rules that are neighbours."""
    tools: Sequence[tuple[str, ...]] = [gate.rule.definition.tools for gate in gates]  # type: ignore[attr-defined]
    confined = tuple(dict.fromkeys([name for names in tools for name in names])) if all(tools) else ()
    first = gates[0].rule
    return first.hook("before_tool_call", Bundle(gates), confined, kind=RulesHook)


class Bundle:
    """The rules of a `RulesHook`. `speaking` is the one whose verdict counts, while the dispatcher listens."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self.gates = tuple(gates)
        self.name = f"{len(gates)} rules"
        self.where = f"{gates[0].rule.where} and {len(gates) - 1} more"
        self.speaking: Rule | None = None
        self._indexes: dict[str, Index] = {}

    def __call__(self, call: PendingCall) -> list[Decision] | None:
        self.speaking = None
        index = self._indexes.get(call.name)
        if index is None:
            index = self._indexes[call.name] = Index([gate for gate in self.gates if _is_about(gate.rule, call.name)])
        decisions: list[Decision] = []
        winner: Rule | None = None
        best = len(_RANKS)
        for gate in index.candidates(call.args):
            self.speaking = gate.rule  # should it fail, it is the one that failed
            for decision in gate(call) or ():
                decisions.append(decision)
                rank = _RANKS.index(type(decision)) if isinstance(decision, Verdict) else len(_RANKS)
                if winner is None or rank < best:
                    winner, best = gate.rule, rank
        self.speaking = winner
        return settle("before_tool_call", decisions)


def _is_about(rule: Rule, tool: str) -> bool:
    tools: tuple[str, ...] = rule.definition.tools  # type: ignore[attr-defined]
    return not tools or any(fnmatchcase(tool, glob) for glob in tools)


class Index:
    """Finds the rules that a call with some arguments may concern: by value, by range, by pattern; the others always."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)
        self._always: list[int] = []
        self._values: dict[ArgumentTest, dict[Any, list[int]]] = {}
        self._ranges: dict[ArgumentTest, list[tuple[float, int]]] = {}
        patterns: dict[ArgumentTest | None, list[tuple[str, int]]] = {}
        places: dict[str, ArgumentTest] = {}
        for number, gate in enumerate(self._gates):
            self._file(number, gate.rule, places, patterns)
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

    def candidates(self, args: Mapping[str, Any]) -> Sequence[Gate]:
        """In the order of the rules."""
        found = list(self._always)
        for test, values in self._values.items():
            value = test.value(args)
            if value is not MISSING and not isinstance(value, Mapping | list | tuple):
                found += values.get(value, ())
        for test, ranges in self._ranges.items():
            value = test.value(args)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found += [number for _, number in ranges[: bisect.bisect_right(ranges, (value, len(self._gates)))]]
        for place, sieve in self._patterns:
            value = args if place is None else place.value(args)
            if value is not MISSING:
                found += sieve.numbers((value,) if isinstance(value, str) else strings_in(value))
        if not found:
            return ()
        return [self._gates[number] for number in sorted(set(found))]


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
