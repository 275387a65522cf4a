"""Patterns for text that is still arriving, built from the tree of the pattern they serve.

`frontier` answers "what would this pattern do here, if more text came?". Each leaf of the pattern may
also match nothing at the end of the text, so that a path which runs out of text goes through instead
of failing; the order of preference among the paths stays that of the pattern. The path RE2 then
chooses is either a real match, which no further text can change, or one that is still waiting.

`parts` cuts a pattern where the part that has to be kept back begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

from ..frozen import Frozen

from .regex import EMPTY, Alt, Atom, Group, Look, Node, Repeat, Seq, reshape

Width = tuple[int, int | None]
"""The fewest and the most characters (`None`: no limit)."""

NOTHING: Width = (0, 0)

END = b"\0"
r"""Put after the text for `frontier` patterns: a path that waits takes it too, so its match ends one further on.
A text that holds this character itself is no different from others, since only `END` followed by `\z` counts."""


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
    lead = NOTHING if avoidable(node, groups) else _lead(node, groups)
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


def avoidable(node: Node, groups: frozenset[int]) -> bool:
    """Whether a match may leave all the groups out, or empty."""
    match node:
        case Group(item, number, _):
            return width(item)[0] == 0 if number in groups else avoidable(item, groups)
        case Seq(items):
            return all(avoidable(x, groups) for x in items)
        case Alt(items):
            return any(avoidable(x, groups) for x in items)
        case Repeat(item, low):
            return low == 0 or avoidable(item, groups)
        case Atom() | Look():
            return True


def _cut(items: tuple[Node, ...], groups: frozenset[int]) -> int:
    return next(i for i, x in enumerate(items) if _holds(x, groups))


def _rest(node: Node, groups: frozenset[int]) -> Node:
    match node:
        case Group(item, number, _) if number not in groups and not avoidable(item, groups):
            return _rest(item, groups)
        case Seq(items):
            at = _cut(items, groups)
            return Seq((_rest(items[at], groups), *items[at + 1 :]))
        case Alt(items) if not avoidable(node, groups):
            return Alt(tuple([_rest(x, groups) for x in items]))
        case _:
            return node


def _began(node: Node, groups: frozenset[int]) -> Node:
    match node:
        case Group(item, number, _) if number not in groups and not avoidable(item, groups):
            return _began(item, groups)
        case Seq(items):
            at = _cut(items, groups)
            return Seq((*items[:at], _began(items[at], groups), *[frontier(x) for x in items[at + 1 :]]))
        case Alt(items) if not avoidable(node, groups):
            return Alt(tuple([_began(x, groups) for x in items]))
        case _:
            return frontier(node)


def passed(node: Node, groups: frozenset[int]) -> Iterator[Node]:
    """What every match has to pass, one after the other, before the part that is kept back."""
    match node:
        case Group(item, number, _) if number not in groups and not avoidable(item, groups):
            yield from passed(item, groups)
        case Seq(items):
            at = _cut(items, groups)
            for x in items[:at]:
                yield from _flat(x)
            yield from passed(items[at], groups)


def _flat(node: Node) -> Iterator[Node]:
    match node:
        case Seq(items):
            for x in items:
                yield from _flat(x)
        case Group(item):
            yield from _flat(item)
        case _:
            yield node


def _lead(node: Node, groups: frozenset[int]) -> Width:
    match node:
        case Group(item, number, _) if number not in groups and not avoidable(item, groups):
            return _lead(item, groups)
        case Seq(items):
            at = _cut(items, groups)
            return _after(width(Seq(items[:at])), _lead(items[at], groups))
        case Alt(items) if not avoidable(node, groups):
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


def add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _after(first: Width, second: Width) -> Width:
    return first[0] + second[0], add(first[1], second[1])


def _either_width(widths: Iterable[Width]) -> Width:
    known = list(widths)
    return min(least for least, _ in known), most_of(most for _, most in known)


def most_of(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else max(n for n in known if n is not None)


def without_looks(node: Node) -> Node:
    """The pattern without its conditions on the place, for text that is taken out of its surroundings."""
    return reshape(node, lambda x: EMPTY if isinstance(x, Look) else x)
