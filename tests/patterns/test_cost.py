"""Cost grows with the text and not faster: counted in bytes given to RE2, not in time."""

from __future__ import annotations

import tracemalloc

import pytest
from patterns.random_rules import pieces
from patterns.secret_rules import all_rules
from patterns.test_secrets import PROSE

from beforehand.rules.match import Finder
from beforehand.rules.match import TooSlow as GivenUp
from beforehand.stream.engine import TooSlow
from beforehand.stream.patterns import PatternSet, Rule


def work(patterns: PatternSet, text: str, size: int, *, after: int = 0) -> float:
    """Bytes examined for each byte of a text, once `after` characters of it have passed."""
    scanner = patterns.scanner()
    for piece in pieces(text[:after], [size]):
        scanner.feed(piece)
    before = scanner.examined
    for piece in pieces(text[after:], [size]):
        scanner.feed(piece)
    return (scanner.examined - before) / len(text[after:].encode())


ENGLISH = "".join([c for c in PROSE if c.isascii()])


def text_of(chunks: int, unit: str) -> str:
    return (unit * (chunks * 20 // len(unit) + 1))[: chunks * 20]


@pytest.mark.parametrize("unit", [ENGLISH, PROSE, "curl example " * 40, "-----", "sk-ant-", "0123456789abcdef", "token = "])
def test_a_chunk_late_in_the_stream_costs_what_an_early_one_does(unit: str) -> None:
    patterns = all_rules()
    early, late = [work(patterns, text_of(chunks, unit), 20, after=20 * (chunks - 500)) for chunks in (1000, 4000)]
    assert late <= 1.1 * early + 1


def test_clean_prose_is_examined_a_few_times_over() -> None:
    assert work(all_rules(), text_of(1000, ENGLISH), 20) < 50
    assert work(PatternSet([Rule("sk-[a-z0-9]{20}"), Rule(r"\b\d{3}-\d{2}-\d{4}\b")]), text_of(1000, ENGLISH), 20) < 4


def test_an_open_match_costs_no_more_than_the_bound_for_each_chunk() -> None:
    patterns = PatternSet([Rule(r"Q_[a-z ]*"), Rule(r"~[a-z ]*(Z)", group=1)], max_hold=200)
    assert work(patterns, "Q_" + "a " * 4000, 4) < 3000 / 4
    assert work(patterns, "~_ ~" + "a " * 4000, 4) < 3000 / 4


def test_what_is_kept_in_memory_stays_bounded() -> None:
    scanner = PatternSet([Rule(r"~[a-z ]*(Z)", group=1), Rule("Q", keywords=("a",))], max_hold=200).scanner()
    tracemalloc.start()
    try:
        for _ in range(200):
            scanner.feed("~aaaaaaaa ")
        early, _ = tracemalloc.get_traced_memory()
        for _ in range(4000):
            scanner.feed("~aaaaaaaa ")
        late, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert late - early < 5_000


def test_an_alarm_that_may_begin_at_every_letter_is_not_looked_for_at_every_letter() -> None:
    patterns = PatternSet([Rule(r"[a-z0-9]+@[a-z0-9]+\.[a-z]{2,}")])
    text = "a" * 4000 + "@b.c "
    assert work(patterns, text * 10, len(text)) < 30


WORST = "a" * 20_000
"""Each place of it is one where these rules could match."""


@pytest.mark.parametrize("rule", [Rule("[a-z]+", keywords=("zzz",)), Rule("(?:a*b)?")], ids=["keyword", "empty"])
def test_a_search_that_takes_too_long_is_given_up(rule: Rule) -> None:
    patterns = PatternSet([rule])
    with pytest.raises(TooSlow):
        patterns.scan_whole(WORST + " zzz", until=0.0)
    with pytest.raises(TooSlow):
        patterns.scanner(patience=0.0).feed(WORST + " zzz", True)
    with pytest.raises(TooSlow):
        patterns.scanner(patience=0.0).feed(WORST + " zzz" + WORST)
    for count in (1, 5):
        with pytest.raises(GivenUp, match="took longer than 0 s in a text of 20004 characters"):
            next(Finder([rule] * count, patience=0.0).all(WORST + " zzz"))


def test_a_rule_whose_keyword_is_nowhere_is_not_tried_at_every_place() -> None:
    rule = Rule("[a-z]+", keywords=("zzz",))
    assert PatternSet([rule]).scanner(patience=0.0).feed(WORST, True) == ([], 0)  # it never came to look at the clock
