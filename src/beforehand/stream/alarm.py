"""For each pattern a short piece that all its matches hold, rare enough to be looked for in everything.

Rarity is counted in bits: 10 means that in ordinary text about one place in a thousand fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ..frozen import Frozen

from .engine import share_of_prose
from .prefix import add, avoidable, most_of, parts, passed, width
from .regex import Alt, Atom, Group, Look, Node, Repeat, Seq

RARE = 18.0
"""How rare (in bits, per character of ordinary text) an alarm should be before we stop making it longer."""

SURE = 40.0
"""The same for an alarm that is not kept back, so that its length costs the reader nothing."""

SLACK = 6.0
"""How much less rare it may be if that keeps it from being of any length."""

SHARP, MORE = 3.0, 40.0
"""A letter (at least so rare) is added beyond that, up to so many bits: a row of letters costs little memory."""

PLAIN = 1.0
"""Half of all characters fit: what is less rare than this does not make an alarm any rarer."""

WEAK = 8.0
"""Below this an alarm goes off all the time, and looking at every chunk is cheaper."""

LONG = 300
"""An alarm of more atoms than this is not worth its memory."""


class Alarm(Frozen, frozen=True):
    """A piece of text that every match holds.

    `rarity` in bits. `lead`: the most characters between the start of a match and the piece. `early`:
    the piece begins where the part to keep back begins (it has to be kept back while incomplete);
    otherwise it ends before that part. `length`: its most characters; `reach`: the most from the start of
    a match to the end of the piece.
    """

    node: Node
    rarity: float
    lead: int | None
    early: bool

    @property
    def length(self) -> int | None:
        return width(self.node)[1]

    @property
    def reach(self) -> int | None:
        return add(self.lead, self.length)

    @property
    def weak(self) -> bool:
        return self.rarity < WEAK or _atoms(self.node) > LONG


def alarm(node: Node, groups: frozenset[int]) -> Alarm:
    """The best alarm for a pattern of which `groups` are kept back."""
    match node:
        case Group(item, number, _) if number not in groups:
            return alarm(item, groups)
        case Alt(items) if not avoidable(node, groups):
            each = [alarm(x, groups) for x in items]
            lead, early = most_of(x.lead for x in each), any(x.early for x in each)
            return Alarm(Alt(tuple([x.node for x in each])), _either(x.rarity for x in each), lead, early)
    cut = parts(node, groups)
    first, rarity, _ = _head(cut.rest, RARE)
    if cut.whole:
        return Alarm(first, rarity, 0, True)
    ahead = tuple(passed(node, groups))
    best = Alarm(first, rarity, cut.lead[1], True)
    for start, stop in _runs(ahead):
        run, _, _ = _head(Seq(ahead[start:stop]), SURE)
        rare = _rarity(run)
        if rare > best.rarity or (best.early and rare >= RARE):
            best = Alarm(run, rare, width(Seq(ahead[:start]))[1], False)
    return best


def _runs(items: tuple[Node, ...]) -> Iterator[tuple[int, int]]:
    """The stretches of `items` that are not just anything, nor of any length."""
    start = 0
    for at, x in enumerate((*items, None)):
        if x is None or width(x)[1] is None or (_rarity(x) < PLAIN and not isinstance(x, Look)):
            if at > start:
                yield start, at
            start = at + 1


def _head(node: Node, enough: float) -> tuple[Node, float, bool]:
    """A first part of `node` that is rare enough, its rarity, and whether that is all of `node`."""
    match node:
        case Atom() | Look():
            return node, _rarity(node), True
        case Group(item):
            return _head(item, enough)
        case Seq(items):
            taken: list[Node] = []
            rarity, all_of_it = 0.0, True
            for x in items:
                letter = isinstance(x, Atom) and _rarity(x) >= SHARP and rarity < enough + MORE
                if not all_of_it or (rarity >= enough and not letter):
                    return Seq(tuple(taken)), rarity, False
                first, more, all_of_it = _head(x, enough - rarity)
                taken.append(first)
                rarity += more
            return Seq(tuple(taken)), rarity, all_of_it
        case Alt(items):
            heads = [_head(x, enough + math.log2(len(items))) for x in items]
            rarity = _either(rare for _, rare, _ in heads)
            if rarity >= enough or all(complete for _, _, complete in heads):
                return Alt(tuple([first for first, _, _ in heads])), rarity, all(complete for _, _, complete in heads)
            return node, _rarity(node), True
        case Repeat(item, low, high, greedy):
            each = _rarity(item)
            if low and each >= enough:
                return (*_head(item, enough)[:2], False)
            if high is None and each * low >= enough - SLACK:
                return Repeat(item, low, low, greedy), each * low, False
            if each * low >= enough:
                times = math.ceil(enough / each)
                return Repeat(item, times, times, greedy), each * times, False
            return node, each * low, True


def _rarity(node: Node) -> float:
    """Bits: 10 means that in ordinary text about one place in a thousand matches."""
    match node:
        case Atom(text):
            return _atom_rarity(text)
        case Look():
            return 0.0
        case Group(item):
            return _rarity(item)
        case Seq(items):
            return sum(map(_rarity, items))
        case Alt(items):
            return _either(map(_rarity, items))
        case Repeat(item, low):
            return _rarity(item) * low


@lru_cache(4096)
def _atom_rarity(text: str) -> float:
    return -math.log2(share_of_prose(text))


def _either(rarities: Iterable[float]) -> float:
    total = sum(2.0**-r for r in rarities)
    return -math.log2(total) if 0.0 < total < 1.0 else 0.0


def _atoms(node: Node) -> int:
    match node:
        case Atom():
            return 1
        case Look():
            return 0
        case Group(item):
            return _atoms(item)
        case Seq(items) | Alt(items):
            return sum(map(_atoms, items))
        case Repeat(item, low, high):
            return _atoms(item) * (high or low or 1)
