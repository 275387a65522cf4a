"""What a reader sees is the whole text with the rules applied, however it was cut; and never more than that."""

from __future__ import annotations

from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from patterns.random_rules import MORE, Reader, cuts, pieces, read, rewritten, rules, sets, texts

from beforehand.errors import UsageError
from beforehand.frozen import FrozenDict
from beforehand.stream.patterns import Match, PatternSet, Rule


@MORE
@given(sets(), st.lists(st.tuples(texts, cuts, st.booleans()), min_size=1, max_size=4))
def test_a_text_in_pieces_comes_to_the_same_as_the_whole(patterns: PatternSet, cases: list[tuple[str, list[int], bool]]) -> None:
    for text, sizes, close_with_last in cases:
        reader = read(patterns, text, sizes, close_with_last=close_with_last)
        expected = patterns.scan_whole(text)
        assert reader.matches == expected
        assert reader.shown == rewritten(text, expected)


@MORE
@given(sets(), st.lists(texts, min_size=8, max_size=8), cuts)
def test_it_does_so_in_long_texts_too(patterns: PatternSet, texts: list[str], sizes: list[int]) -> None:
    text = "".join(texts) * 12
    reader = read(patterns, text, sizes)
    assert any(m.forced for m in reader.matches) or reader.matches == patterns.scan_whole(text)


def found_by_hand(rule: Rule, pattern: Any, text: str, low: int) -> Any:
    """The first match from `low` on that counts, and the part it replaces, tried place by place with RE2's own public face."""
    for at in range(low, len(text) + 1):
        found = pattern.match(text, at)
        words = [w.lower() in text[: found.end()].lower() for w in rule.keywords] if found else []
        if found and found.end() > at and (any(words) or not words):
            groups = rule.group if isinstance(rule.group, tuple) else (rule.group,)
            return found, next((found.span(g) for g in groups if found.end(g) > found.start(g)), found.span())
    return None


@MORE
@given(st.lists(rules(), min_size=1, max_size=3), texts)
def test_of_the_parts_to_replace_the_leftmost_wins_and_of_those_that_of_the_earliest_rule(rules: list[Rule], text: str) -> None:
    compiled = [re2.compile(rule.pattern) for rule in rules]
    expected: list[tuple[int, tuple[int, int], tuple[int, int], tuple[str | None, ...]]] = []
    candidates = [found_by_hand(rule, pattern, text, 0) for rule, pattern in zip(rules, compiled, strict=True)]
    while any(candidates):
        index = min([i for i, one in enumerate(candidates) if one], key=lambda i: (candidates[i][1][0], i))
        match, part = candidates[index]
        expected.append((index, match.span(), part, match.groups()))
        for i, one in enumerate(candidates):
            if one and one[1][0] < part[1]:
                candidates[i] = found_by_hand(rules[i], compiled[i], text, part[1])
    assert [(m.index, (m.start, m.end), m.span, m.groups) for m in PatternSet(rules).scan_whole(text)] == expected


@MORE
@given(st.lists(rules(), min_size=1, max_size=4), texts)
def test_no_rule_hides_what_another_one_would_replace(rules: list[Rule], text: str) -> None:
    """What a rule finds first when it is alone is touched by a replacement, whatever rules stand beside it."""
    replaced = [match.span for match in PatternSet(rules).scan_whole(text)]
    for rule in rules:
        for match in PatternSet([rule]).scan_whole(text)[:1]:
            assert any(low < match.span[1] and match.span[0] < high for low, high in replaced)


@MORE
@given(sets(max_hold=8), texts)
def test_a_text_in_one_piece_comes_to_the_same_whatever_its_length(patterns: PatternSet, text: str) -> None:
    matches, hold = patterns.scanner().feed(text * 2, True)
    assert (matches, hold) == (patterns.scan_whole(text * 2), 0)


def show(patterns: PatternSet, *parts: str) -> list[str]:
    """What is shown after each piece, and after the end."""
    reader, shown = Reader(patterns), []
    for part in parts:
        before = len(reader.shown)
        reader.feed(part)
        shown.append(reader.shown[before:])
    before = len(reader.shown)
    reader.feed("", True)
    return [*shown, reader.shown[before:]]


KEY = PatternSet([Rule("sk-[A-Za-z0-9]+")])


def test_text_that_cannot_match_leaves_with_the_chunk_that_brought_it() -> None:
    assert show(KEY, "hello ", "world. ", "risk-", "free") == ["hello ", "world. ", "ri", "", "<0:sk-free>"]
    assert show(PatternSet([Rule(r"\bsk-[A-Za-z0-9]+")]), "hello ", "risk-", "free") == ["hello ", "risk-", "free", ""]


def test_a_match_without_an_end_is_kept_back_until_it_ends() -> None:
    assert show(KEY, "a sk-1", "23", "45 b") == ["a ", "", "<0:sk-12345> b", ""]


def test_a_secret_split_over_chunks_is_one_secret() -> None:
    assert show(KEY, *"a sk-12!") == ["a", " ", "", "", "", "", "", "<0:sk-12>!", ""]


def test_what_is_before_the_replaced_group_is_shown_while_the_group_is_kept_back() -> None:
    patterns = PatternSet([Rule(r"""(?i)[\w.-]{0,50}?api_key\s*=\s*["']([a-z0-9]{8,})["']""", group=1)])
    shown = show(patterns, "set my_api", "_key", ' = "', "s3cr", "3t99", '" now')
    assert shown == ["set my_api", "_key", ' = "', "", "", '<0:my_api_key = "s3cr3t99">" now', ""]


def test_a_group_by_name_is_replaced() -> None:
    patterns = PatternSet([Rule(r"user=(?P<user>\w+)", group="user")])
    assert show(patterns, "user=", "bob ") == ["user=", "<0:user=bob> ", ""]


def test_of_several_groups_the_first_that_took_part_is_replaced() -> None:
    patterns = PatternSet([Rule(r"key: (?:'([^']+)'|(\w+))", group=(1, 2))])
    assert show(patterns, "key: 'a b' ", "key: ab ") == ["key: '<0:key: 'a b'>' ", "key: <0:key: ab> ", ""]


def test_a_group_that_took_no_part_stands_for_the_whole_match() -> None:
    patterns = PatternSet([Rule(r"Q_(?:(\d)|Z)", group=1)])
    assert show(patterns, "a Q", "_Z Q_1") == ["a ", "<0:Q_Z> Q_<0:Q_1>", ""]


@pytest.mark.parametrize(
    ("pattern", "parts", "expected"),
    [
        (r"ZQ$", ("ZQ", "!"), ["", "ZQ!", ""]),
        (r"ZQ$", ("ZQ",), ["", "<0:ZQ>"]),
        (r"ZQ\z", ("ZQ", "\n"), ["", "ZQ\n", ""]),
        (r"(?m)ZQ$", ("ZQ", "\n"), ["", "<0:ZQ>\n", ""]),
        (r"^ZQ", ("x", "ZQ"), ["x", "ZQ", ""]),
        (r"^ZQ", ("Z", "Q"), ["", "<0:ZQ>", ""]),
        (r"(?m)^ZQ", ("x\n", "ZQ"), ["x\n", "<0:ZQ>", ""]),
        (r"\AZQ", ("\n", "ZQ"), ["\n", "ZQ", ""]),
        (r"\bZQ\b", ("a ZQ", "!"), ["a ", "<0:ZQ>!", ""]),
        (r"\bZQ\b", ("a ZQ", "s"), ["a ", "ZQs", ""]),
        (r"\bZQ\b", ("a", "ZQ "), ["a", "ZQ ", ""]),
        (r"ZQ\B", ("ZQ", "s"), ["", "<0:ZQ>s", ""]),
        (r"ZQ\B", ("ZQ",), ["", "ZQ"]),
        (r"(ZQ\d+)(?:['\s]|$)", ("ZQ1", "2' "), ["", "<0:ZQ12'> ", ""]),
        (r"(ZQ\d+)(?:['\s]|$)", ("ZQ1", "2"), ["", "", "<0:ZQ12>"]),
        (r"(?i)zq_", ("zQ", "_"), ["", "<0:zQ_>", ""]),
        (r"Q.*Z", ("QZ", "QZ", "\n"), ["", "", "<0:QZQZ>\n", ""]),
        (r"Q.*?Z", ("QZ", "QZ", "\n"), ["<0:QZ>", "<0:QZ>", "\n", ""]),
        (r"(?s)Q_.{3,}?_Q", ("Q_", "ab\n", "_Q_Q"), ["", "", "<0:Q_ab\n_Q>_", "Q"]),
        (r"QZ|QZ_", ("QZ", "_"), ["<0:QZ>", "_", ""]),
        (r"QZ_|QZ", ("QZ", "_"), ["", "<0:QZ_>", ""]),
        (r"(?:QZ){2,3}", ("QZQZ", "Q", "Z"), ["", "", "<0:QZQZQZ>", ""]),
        (r"😀é+", ("x😀", "éé", "!"), ["x", "", "<0:😀éé>!", ""]),
        (r"Q", ("\ud83d", "\ude00Q"), ["\ud83d", "\ude00<0:Q>", ""]),
        (r"\pL{2}\d", ("äö", "1"), ["", "<0:äö1>", ""]),
        (r"\Q[.]\E+", ("[.", "]]"), ["", "", "<0:[.]]>"]),
        (r"Z*", ("aZ", "Zb"), ["a", "<0:ZZ>b", ""]),
        (r"Z*?", ("aZ", "Zb"), ["aZ", "Zb", ""]),
    ],
)
def test_places_preferences_and_characters_mean_what_they_mean_in_the_whole(
    pattern: str, parts: tuple[str, ...], expected: list[str]
) -> None:
    assert show(PatternSet([Rule(pattern)]), *parts) == expected


def test_the_leftmost_match_wins_though_it_is_decided_later() -> None:
    patterns = PatternSet([Rule("Z_"), Rule("QZ_Q")])
    assert show(patterns, "QZ_", "Q") == ["", "<1:QZ_Q>", ""]
    assert show(patterns, "QZ_", "Z") == ["", "Q<0:Z_>", "Z"]


def test_what_is_around_the_replaced_group_is_searched_by_other_rules() -> None:
    patterns = PatternSet([Rule(r"key=(\w+), pin=\d+", group=1), Rule(r"pin=(\d+)", group=1), Rule(r"\bsk-\w+ key", group=0)])
    text = "key=abc, pin=1234!"
    for size in (1, 4, 100):
        assert read(patterns, text, [size]).shown == "key=<0:key=abc, pin=1234>, pin=<1:pin=1234>!"
    before = PatternSet([Rule(r"\w+ token=(\w+)", group=1), Rule(r"Z[0-9]+")])
    for size in (1, 4, 100):
        assert read(before, "Z12 token=abc.", [size]).shown == "<1:Z12> token=<0:Z12 token=abc>."


def test_the_earlier_rule_wins_a_tie_though_it_is_decided_later() -> None:
    patterns = PatternSet([Rule("QZ_Q"), Rule("QZ")])
    assert show(patterns, "QZ", "_Q") == ["", "<0:QZ_Q>", ""]
    assert show(patterns, "QZ", "!") == ["", "<1:QZ>!", ""]


def test_a_rule_whose_alarm_is_still_to_come_may_win_from_further_left() -> None:
    patterns = PatternSet([Rule("QZ_"), Rule(r"\w{4}_azure")])
    assert show(patterns, "x QZ_", "_azure ") == ["x <0:QZ_>", "_azure ", ""]
    assert show(patterns, "x eQZ_", "_azure ") == ["x ", "<1:eQZ__azure> ", ""]
    assert show(patterns, "x eQZ_", " ") == ["x ", "e<0:QZ_> ", ""]


def test_a_match_counts_only_with_a_keyword_in_it_or_shortly_before() -> None:
    patterns = PatternSet([Rule(r"\b[0-9a-f]{8}\b", keywords=("TOKEN", "secret_"))], max_hold=50)
    assert show(patterns, "commit deadbeef, ", "Token deadbeef.") == ["commit deadbeef, ", "Token <0:deadbeef>.", ""]
    assert show(patterns, "token " + "x " * 20, "deadbeef.") == ["token " + "x " * 20, "deadbeef.", ""]


def test_offsets_count_characters_from_the_start_of_the_text() -> None:
    patterns = PatternSet([Rule(r"(?P<name>é)=(\w)(\d)?", "pair", group=2)])
    text = "😀 ä é=b. " * 300
    reader = read(patterns, text, [7])
    assert reader.matches == patterns.scan_whole(text)
    assert reader.matches[299] == Match(
        patterns.rules[0], 0, 2695, 2698, (2697, 2698), "é=b", ("é", "b", None), FrozenDict(name="é")
    )
    assert all(text[m.start : m.end] == m.text for m in reader.matches)


def test_a_text_that_has_ended_takes_no_more() -> None:
    scanner = KEY.scanner()
    scanner.feed("sk-1", True)
    with pytest.raises(UsageError, match="new scanner"):
        scanner.feed("2")


def test_without_rules_everything_passes() -> None:
    assert show(PatternSet([]), "sk-1", "é") == ["sk-1", "é", ""]
    assert PatternSet([]).scan_whole("sk-1") == []


def test_streams_of_one_set_know_nothing_of_each_other() -> None:
    one, other = Reader(KEY), Reader(KEY)
    one.feed("sk-12")
    other.feed("34 sk-5")
    one.feed(" ")
    assert (one.shown, other.shown) == ("<0:sk-12> ", "34 ")


def test_pieces_put_together_are_the_text() -> None:
    assert pieces("abcdef", [1, 2]) == ["a", "bc", "d", "ef"]
