"""The few calls we make of RE2, on bytes of UTF-8.

The module `re2` searches through a generator and a match object: 1.4 µs a call. What it calls
underneath returns the spans at once in 0.6 µs, and a stream makes two calls a chunk, so we call that.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import cache
from typing import Any

Spans = list[tuple[int, int]]
Search = Callable[[bytes, int, int], tuple[int, int]]
"""`search(data, low, high)`: the leftmost match that starts at `low` or later in `data[:high]`, or (-1, -1).
What is before `low` and after `high` is seen by the conditions on the place, not matched."""

MEMORY = 8 << 20
"""What RE2 allows a pattern by default: its program, and the states it remembers of it."""

MORE_MEMORY, LARGE = 8 * MEMORY, 2500
"""For a program of more steps than `LARGE`. In too little memory RE2 forgets its states before the next chunk can use
them, and works them out anew each time: 2 ms a chunk instead of 0.2 for the largest of the secret rules. A pattern we
derive is at most five times as long as the one we were given, so it always fits in here."""


NEVER = float("inf")


class TooSlow(Exception):
    """The search through one text took longer than it may."""


class Refused(Exception):
    """RE2 does not take the pattern. The text is RE2's."""


def encode(text: str) -> bytes:
    """UTF-8, also of the half characters (lone surrogates) that a carelessly cut stream brings."""
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def back(data: bytes, end: int, characters: int) -> bytes:
    """At least that many characters before `end`, or all there are; the first one is whole."""
    start = max(0, end - 4 * characters)
    while start < end and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:end]


@cache
def _re2() -> Any:
    import re2

    return re2


def _options(memory: int) -> Any:
    options = _re2().Options()
    options.log_errors = False  # it would write to our stderr
    options.max_mem = memory
    return options


def _compile(pattern: str, memory: int) -> Any:
    re2 = _re2()
    try:
        return re2.compile(encode(pattern), _options(memory))._regexp
    except re2.error as failed:
        said = failed.args[0] if failed.args else ""
        raise Refused(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None


def search(pattern: str) -> Search:
    """Finds a pattern anywhere. One without capturing groups, or it is several times slower."""
    try:
        compiled = _compile(pattern, MEMORY)
    except Refused:
        compiled = None
    if compiled is None or compiled.ProgramSize() > LARGE:
        compiled = _compile(pattern, MORE_MEMORY)
    find, anywhere = compiled.Match, _re2()._re2.RE2.Anchor.UNANCHORED

    def run(data: bytes, low: int, high: int) -> tuple[int, int]:
        return find(anywhere, data, low, high)[0]  # type: ignore[no-any-return]  # re2 has no types

    return run


class Captures:
    """A pattern with its groups. Raises `Refused`."""

    def __init__(self, pattern: str) -> None:
        compiled = _compile(pattern, MEMORY)
        self._find, self._here = compiled.Match, _re2()._re2.RE2.Anchor.ANCHOR_START
        self.count: int = compiled.NumberOfCapturingGroups()
        self.names: dict[str, int] = {name.decode(): number for name, number in compiled.NamedCapturingGroups()}

    def spans(self, data: bytes, start: int, high: int) -> Spans:
        """The match at `start` and its groups, (-1, -1) for those that took no part."""
        return self._find(self._here, data, start, high)  # type: ignore[no-any-return]  # re2 has no types


def which(patterns: list[str]) -> Callable[[bytes], list[int]]:
    """Which of the patterns match at the very start of a text: an empty list for none, or when RE2 ran out of memory."""
    re2 = _re2()
    found = re2.Set.MatchSet(_options(MORE_MEMORY))
    for pattern in patterns:
        found.Add(encode(pattern))
    try:
        found.Compile()
    except re2.error:  # too many for one automaton
        return lambda _: []
    return found._set.Match  # type: ignore[no-any-return]  # re2 has no types


_LETTERS = " etaoinshrdlucmfwgypbvkxjqz.,\n"
_SHARES = (170, 100, 75, 65, 62, 57, 57, 53, 50, 49, 35, 33, 23, 23, 20, 18, 18, 16, 16, 15, 12, 8, 6, 2, 1, 1, 1, 8, 8, 10)
_OTHERS = string.digits + string.ascii_uppercase + string.punctuation + "\t\ré中"
_PROSE = {encode(x): n for x, n in (*zip(_OTHERS, [3] * len(_OTHERS), strict=True), *zip(_LETTERS, _SHARES, strict=True))}


def share_of_prose(atom: str) -> float:
    """How much of ordinary text (letters at their usual frequency) a pattern of one character fits: above 0, up to 1."""
    find = search(atom)
    hit = sum([share for letter, share in _PROSE.items() if find(letter, 0, len(letter))[0] == 0])
    return max(hit, 0.5) / sum(_PROSE.values())
