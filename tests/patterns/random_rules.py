"""Strategies for rules and texts that have something to do with each other, and the law they are put to."""

from __future__ import annotations

import re2
from hypothesis import settings
from hypothesis import strategies as st

from beforehand.stream.patterns import Match, PatternSet, Rule, Scanner, rewrite

MORE = settings(max_examples=8 * settings.default.max_examples)
"""These examples cost little, and the bugs they found turned up once in ten thousand."""

# Letters that are rare in prose make good alarms, common ones make bad ones: both kinds of rule have to come up.
LETTERS = ["Q", "Z", "_", "~", "e", "é", "0", "😀"]
ATOMS = [*LETTERS, "[QZ]", "[^Q]", "[^Z_]", ".", r"\w", r"\d", r"\W", "(?i:q)", "(?s:.)", r"\pL", "QZ", "~_", "Z_Q"]
PLACES = ["^", "$", r"\b", r"\B", "(?m:^)", "(?m:$)", r"\A", r"\z"]
COUNTS = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "{3,5}"]


def _larger(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(smaller, min_size=2, max_size=4).map("".join),
        st.lists(smaller, min_size=2, max_size=3).map(lambda xs: f"(?:{'|'.join(xs)})"),
        st.tuples(smaller, st.sampled_from(COUNTS), st.sampled_from(["", "?"])).map(lambda x: f"(?:{x[0]}){x[1]}{x[2]}"),
        smaller.map(lambda x: f"({x})"),
        st.tuples(smaller, st.sampled_from(PLACES)).map(lambda x: x[0] + x[1]),
        st.tuples(smaller, st.sampled_from(PLACES)).map(lambda x: x[1] + x[0]),
    )


def accepted(pattern: str) -> bool:
    """Whether RE2 takes it: random repeats inside repeats get too large."""
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error:
        return False
    return True


patterns = st.recursive(st.sampled_from(ATOMS), _larger, max_leaves=8).filter(accepted)
texts = st.text(alphabet="QQZZ__~~  \n\né😀eq0", max_size=40)
cuts = st.lists(st.integers(1, 12), min_size=1, max_size=20)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    pattern = draw(patterns)
    groups = re2.compile(pattern).groups
    group = draw(st.one_of(st.just(0), st.integers(0, groups), st.just(tuple(range(1, groups + 1)) or 0)))
    keywords = draw(st.sampled_from([(), (), (), ("z",), ("q_", "0")]))
    return Rule(pattern, keywords=keywords, group=group)


def sets(max_hold: int = 4096) -> st.SearchStrategy[PatternSet]:
    return st.lists(rules(), min_size=1, max_size=4).map(lambda rules: PatternSet(rules, max_hold=max_hold))


def pieces(text: str, sizes: list[int]) -> list[str]:
    """The text cut into pieces of these sizes, over and over."""
    found, at, turn = [], 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        found.append(text[at : at + size])
        at, turn = at + size, turn + 1
    return found


def marked(match: Match) -> str:
    return f"<{match.index}:{match.text}>"


def rewritten(text: str, matches: list[Match]) -> str:
    shown, at = [], 0
    for match in matches:
        shown += [text[at : match.span[0]], marked(match)]
        at = match.span[1]
    return "".join(shown) + text[at:]


class Reader:
    """Feeds a scanner, and fails as soon as something is shown that a later match replaces."""

    def __init__(self, patterns: PatternSet) -> None:
        self.scanner: Scanner = patterns.scanner()
        self.max_hold = patterns.max_hold
        self.shown, self.text = "", ""
        self.matches: list[Match] = []
        self.safe = 0  # how much of the text the reader has seen, in one form or another

    def feed(self, piece: str, final: bool = False) -> None:
        released, matches = rewrite(self.scanner, piece, final, replace=marked)
        self.text += piece
        for match in matches:
            assert match.span[0] >= self.safe, f"{match} replaces what was shown: {self.text[: self.safe]!r}"
        safe = self.scanner.position - len(self.scanner.pending)
        assert safe >= self.safe
        assert self.text[safe:] == self.scanner.pending
        assert len(self.scanner.pending) <= self.max_hold
        self.safe = safe
        self.shown += released
        self.matches += matches


def read(patterns: PatternSet, text: str, sizes: list[int], *, close_with_last: bool = False) -> Reader:
    reader = Reader(patterns)
    parts = pieces(text, sizes)
    for number, piece in enumerate(parts, 1):
        reader.feed(piece, close_with_last and number == len(parts))
    if not (close_with_last and parts):
        reader.feed("", True)
    return reader
