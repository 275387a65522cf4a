"""Patterns for text that is still arriving, built from the tree of the pattern they serve.

`frontier` answers "what would this pattern do here, if more text came?". Each leaf of the pattern may
also match nothing at the end of the text, so that a path which runs out of text goes through instead
of failing; the order of preference among the paths stays that of the pattern. The path RE2 then
chooses is either a real match, which no further text can change, or one that is still waiting.

`alarm` and `Parts` keep the cost down: a short piece that every match holds, to look for in
everything, and the piece from which a match must be kept back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache, reduce

from ..frozen import Frozen

from .engine import share_of_prose
from .regex import EMPTY, Alt, Atom, Group, Look, Node, Repeat, Seq, reshape

Width = tuple[int, int | None]
"""The fewest and the most characters (`None`: no limit)."""

NOTHING: Width = (0, 0)

END = b"\0"
r"""Put after the text for `frontier` patterns: a path that waits takes it too, so its match ends one further on.
A text that holds this character itself is no different from others, since only `END` followed by `\z` counts."""

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


def frontier(node: Node, *, marked: bool = True) -> Node:
    """The pattern with an exit at the end of the text at each leaf. `marked`: the exit takes `END`."""
    leave = rf"{END.decode()}?\z" if marked else r"\z"

    def leaf(x: Atom | Look) -> Node:
        # What looks back has been decided by the time the text ends, so it holds nobody up there: only those who left skip it.
        return Atom(rf"(?:\z|{x.text})" if isinstance(x, Look) and not x.ahead else f"(?:{leave}|{x.text})")

    return reshape(node, leaf)


def knotted(node: Node) -> bool:
    """Whether something that may be empty is repeated without limit, as in `(a*)*`.

    In what order RE2 tries the ways through such a knot depends on details that `frontier` and leaving out the
    groups change. So there nothing counts as decided before every way is closed, and the groups stay.
    """
    match node:
        case Repeat(item, _, high):
            return (high is None and width(item)[0] == 0) or knotted(item)
        case Group(item):
            return knotted(item)
        case Seq(items) | Alt(items):
            return any(knotted(x) for x in items)
        case Atom() | Look():
            return False


class Parts(Frozen, frozen=True):
    """A pattern cut where the part to keep back can begin.

    `whole`: at the start of the match itself. Otherwise `began` is a `frontier` pattern which only
    matches once the text before that part is complete, and `rest` the pattern from that part on.
    `lead` is the width of what is before it.
    """

    whole: bool
    began: Node
    rest: Node
    lead: Width


def parts(node: Node, groups: frozenset[int]) -> Parts:
    """`node` cut at the first of `groups`. Where a match can do without them, all of it is kept back."""
    lead = NOTHING if _avoidable(node, groups) else _lead(node, groups)
    if lead == NOTHING:
        return Parts(True, frontier(node), node, lead)
    return Parts(False, _began(node, groups), _rest(node, groups), lead)


def _holds(node: Node, groups: frozenset[int]) -> bool:
    match node:
        case Group(item, number, _):
            return number in groups or _holds(item, groups)
        case Seq(items) | Alt(items):
            return any(_holds(x, groups) for x in items)
        case Repeat(item):
            return _holds(item, groups)
        case Atom() | Look():
            return False


def _avoidable(node: Node, groups: frozenset[int]) -> bool:
    """Whether a match may leave all the groups out, or empty."""
    match node:
        case Group(item, number, _):
            return width(item)[0] == 0 if number in groups else _avoidable(item, groups)
        case Seq(items):
            return all(_avoidable(x, groups) for x in items)
        case Alt(items):
            return any(_avoidable(x, groups) for x in items)
        case Repeat(item, low):
            return low == 0 or _avoidable(item, groups)
        case Atom() | Look():
            return True


def _cut(items: tuple[Node, ...], groups: frozenset[int]) -> int:
    return next(i for i, x in enumerate(items) if _holds(x, groups))


def _rest(node: Node, groups: frozenset[int]) -> Node:
    match node:
        case Group(item, number, _) if number not in groups and not _avoidable(item, groups):
            return _rest(item, groups)
        case Seq(items):
            at = _cut(items, groups)
            return Seq((_rest(items[at], groups), *items[at + 1 :]))
        case Alt(items) if not _avoidable(node, groups):
            return Alt(tuple([_rest(x, groups) for x in items]))
        case _:
            return node


def _began(node: Node, groups: frozenset[int]) -> Node:
    match node:
        case Group(item, number, _) if number not in groups and not _avoidable(item, groups):
            return _began(item, groups)
        case Seq(items):
            at = _cut(items, groups)
            return Seq((*items[:at], _began(items[at], groups), *[frontier(x) for x in items[at + 1 :]]))
        case Alt(items) if not _avoidable(node, groups):
            return Alt(tuple([_began(x, groups) for x in items]))
        case _:
            return frontier(node)


def _lead(node: Node, groups: frozenset[int]) -> Width:
    match node:
        case Group(item, number, _) if number not in groups and not _avoidable(item, groups):
            return _lead(item, groups)
        case Seq(items):
            at = _cut(items, groups)
            return _after(width(Seq(items[:at])), _lead(items[at], groups))
        case Alt(items) if not _avoidable(node, groups):
            return _either_width(_lead(x, groups) for x in items)
        case _:
            return NOTHING


def width(node: Node) -> Width:
    """Of what it can match."""
    match node:
        case Atom():
            return 1, 1
        case Look():
            return NOTHING
        case Group(item):
            return width(item)
        case Seq(items):
            return reduce(_after, map(width, items), NOTHING)
        case Alt(items):
            return _either_width(map(width, items))
        case Repeat(item, low, limit):
            least, most = width(item)
            if most == 0 or limit == 0:
                return NOTHING
            return least * low, None if most is None or limit is None else most * limit


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _after(first: Width, second: Width) -> Width:
    return first[0] + second[0], _add(first[1], second[1])


def _either_width(widths: Iterable[Width]) -> Width:
    known = list(widths)
    return min(least for least, _ in known), _most(most for _, most in known)


def _most(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else max(n for n in known if n is not None)


class Alarm(Frozen, frozen=True):
    """A piece of text that every match holds.

    `rarity` in bits. `lead`: the most characters between the start of a match and the piece. `early`:
    the piece begins where the part to keep back begins (it has to be kept back while incomplete);
    otherwise it ends before that part. `length`: its most characters; `reach`: the most from the start of
    a match to the end of the piece. `before`: what a match has to pass before it, `None` where that is not one sequence.
    """

    node: Node
    rarity: float
    lead: int | None
    early: bool
    before: Node | None

    @property
    def length(self) -> int | None:
        return width(self.node)[1]

    @property
    def reach(self) -> int | None:
        return _add(self.lead, self.length)

    @property
    def weak(self) -> bool:
        return self.rarity < WEAK or _atoms(self.node) > LONG


def alarm(node: Node, groups: frozenset[int]) -> Alarm:
    """The best alarm for a pattern of which `groups` are kept back."""
    match node:
        case Group(item, number, _) if number not in groups:
            return alarm(item, groups)
        case Alt(items) if not _avoidable(node, groups):
            each = [alarm(x, groups) for x in items]
            lead, early = _most(x.lead for x in each), any(x.early for x in each)
            before = EMPTY if lead == 0 else None
            return Alarm(Alt(tuple([x.node for x in each])), _either(x.rarity for x in each), lead, early, before)
    cut = parts(node, groups)
    first, rarity, _ = _head(cut.rest, RARE)
    if cut.whole:
        return Alarm(first, rarity, 0, True, EMPTY)
    passed = tuple(_before(node, groups))
    lead = cut.lead[1]
    best = Alarm(first, rarity, lead, True, Seq(passed) if width(Seq(passed))[1] == lead is not None else None)
    for start, stop in _runs(passed):
        run, _, _ = _head(Seq(passed[start:stop]), SURE)
        rare, before = _rarity(run), Seq(passed[:start])
        if rare > best.rarity or (best.early and rare >= RARE):
            best = Alarm(run, rare, width(before)[1], False, before)
    return best


def _before(node: Node, groups: frozenset[int]) -> Iterator[Node]:
    """What every match has to pass, one after the other, before the part that is kept back."""
    match node:
        case Group(item, number, _) if number not in groups and not _avoidable(item, groups):
            yield from _before(item, groups)
        case Seq(items):
            at = _cut(items, groups)
            for x in items[:at]:
                yield from _flat(x)
            yield from _before(items[at], groups)


def _flat(node: Node) -> Iterator[Node]:
    match node:
        case Seq(items):
            for x in items:
                yield from _flat(x)
        case Group(item):
            yield from _flat(item)
        case _:
            yield node


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


def without_looks(node: Node) -> Node:
    """The pattern without its conditions on the place, for text that is taken out of its surroundings."""
    return reshape(node, lambda x: EMPTY if isinstance(x, Look) else x)
