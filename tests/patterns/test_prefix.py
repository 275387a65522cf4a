"""What is built from a pattern sees every match coming."""

from __future__ import annotations

import re2
from hypothesis import assume, given
from hypothesis import strategies as st
from patterns.random_rules import MORE, patterns, texts

from beforehand.stream import engine
from beforehand.stream.alarm import alarm
from beforehand.stream.prefix import END, frontier, knotted, parts
from beforehand.stream.regex import parse, show


def spans(pattern: str, text: str) -> list[tuple[tuple[int, int], tuple[tuple[int, int], ...]]]:
    """Every match RE2 finds, empty ones left out, with its groups: byte positions."""
    compiled = re2.compile(pattern.encode())
    found = []
    for match in compiled.finditer(engine.encode(text)):
        if match.end() > match.start():
            found.append((match.span(), tuple([match.span(number) for number in range(1, compiled.groups + 1)])))
    return found


def anchored(pattern: str, data: bytes, start: int, high: int) -> tuple[int, int]:
    return engine.search(pattern)(data, start, high)


@MORE
@given(patterns, texts)
def test_the_frontier_holds_every_beginning_of_every_match(pattern: str, text: str) -> None:
    ahead = show(frontier(parse(pattern)), capture=False)
    assume(not knotted(parse(pattern)))
    data = engine.encode(text)
    for (start, stop), _ in spans(pattern, text):
        for cut in range(start + 1, stop):
            if data[cut] & 0xC0 == 0x80:
                continue
            assert anchored(ahead, data[:cut] + END, start, cut + 1) == (start, cut + 1), (text, cut)


@MORE
@given(patterns, texts, texts)
def test_what_the_frontier_calls_a_match_no_further_text_changes(pattern: str, text: str, more: str) -> None:
    node = parse(pattern)
    assume(not knotted(node))
    data, longer = engine.encode(text), engine.encode(text + more)
    start, stop = anchored(show(frontier(node), capture=False), data + END, 0, len(data) + 1)
    if stop <= len(data):
        assert anchored(pattern, longer, 0, len(longer)) == (start, stop)


@MORE
@given(patterns, texts)
def test_every_match_holds_its_alarm_and_what_is_kept_back(pattern: str, text: str) -> None:
    node = parse(pattern)
    groups = frozenset(range(1, re2.compile(pattern).groups + 1))
    data = engine.encode(text)
    for chosen in (frozenset[int](), groups):
        rings, cut = alarm(node, chosen), parts(node, chosen)
        for (start, stop), taken in spans(pattern, text):
            part = next((span for span in taken if span[1] > span[0]), (start, stop)) if chosen else (start, stop)
            place, _ = anchored(show(rings.node, capture=False), data, start, len(data))
            assert start <= place < stop
            assert rings.lead is None or place <= start + 4 * rings.lead
            if cut.whole:
                continue
            least, most = cut.lead
            assert least <= part[0] - start
            assert most is None or part[0] - start <= 4 * most
            for seen in range(part[0] + 1, stop):  # as soon as the first character of the part is there, so is its place
                if data[seen] & 0xC0 != 0x80:
                    assert 0 <= anchored(show(cut.began, capture=False), data[:seen] + END, start, seen + 1)[0] < seen
                    rest = show(frontier(cut.rest), capture=False)
                    assert anchored(rest, data[:seen] + END, start + least, seen + 1)[0] <= part[0]


def test_an_alarm_is_as_long_as_it_has_to_be() -> None:
    cases = {
        r"\bghp_[0-9a-zA-Z]{36}": r"\bghp\x{5f}",
        r"[a-z]+@[a-z]+\.com": r"[a-z]+\x{40}[a-z]+\.com",
        r"(?:sk|rk)_(?:test|live)_[a-z]{9}": r"(?:sk|rk)\x{5f}",
        r"\d{3}-\d{2}-\d{4}": r"\d{3}\x{2d}",
    }
    assert {pattern: show(alarm(parse(pattern), frozenset()).node, capture=False) for pattern in cases} == cases


def test_an_alarm_before_the_replaced_group_is_not_kept_back() -> None:
    rings = alarm(parse(r"[\w.-]{0,50}?(?i:stripe)[ \w]{0,20}=\s*([a-z0-9]{32})"), frozenset({1}))
    assert (rings.early, rings.lead) == (False, 50)
    assert show(rings.node) == "(?i:s)(?i:t)(?i:r)(?i:i)(?i:p)(?i:e)"


@given(st.sampled_from(["[a-z]", ".*", r"\s+", "(?:ab|)", "a*"]))
def test_a_pattern_without_anything_rare_has_a_weak_alarm(pattern: str) -> None:
    assert alarm(parse(pattern), frozenset()).weak
