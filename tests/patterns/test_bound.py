"""What happens when more than `max_hold` characters would have to be kept back."""

from __future__ import annotations

import pytest
from hypothesis import given
from patterns.random_rules import MORE, Reader, cuts, pieces, read, rewritten, sets, texts

from beforehand.errors import ConfigError
from beforehand.stream.patterns import Match, PatternSet, Rule, rewrite

TOKEN = Rule("sk-[A-Za-z0-9]+", "token")
KEY = Rule(r"(?s)-----BEGIN KEY-----.*?-----END KEY-----", "key")


def fed(rules: list[Rule], text: str, size: int, max_hold: int) -> Reader:
    return read(PatternSet(rules, max_hold=max_hold), text, [size])


def test_the_rule_that_is_still_open_at_the_bound_is_reported() -> None:
    reader = Reader(PatternSet([TOKEN], max_hold=10))
    reader.feed("a sk-1234567")
    assert reader.matches == []
    reader.feed("8")
    assert reader.matches == [Match(TOKEN, 0, 2, 13, (2, 13), "sk-12345678", forced=True)]
    assert (reader.shown, reader.scanner.pending) == ("a <0:sk-12345678>", "")


def test_a_match_as_long_as_the_bound_is_not_forced() -> None:
    reader = fed([TOKEN], "a sk-1234567 b", 1, 10)
    assert (reader.shown, reader.matches[0].forced) == ("a <0:sk-1234567> b", False)


def test_a_reader_who_refuses_has_shown_nothing_of_the_replaced_part() -> None:
    scanner = PatternSet([KEY], max_hold=40).scanner()
    shown = ""
    for piece in pieces("Here: -----BEGIN KEY-----" + "x" * 100 + "-----END KEY-----", [7]):
        released, matches = rewrite(scanner, piece, replace=lambda match: match.text)
        if matches:
            break
        shown += released
    assert shown == "Here: "
    assert matches[0].forced


def test_a_match_that_goes_on_after_the_bound_comes_in_parts_and_nothing_of_it_is_shown() -> None:
    text = "Here: -----BEGIN KEY-----" + "x" * 100 + "-----END KEY----- and more"
    reader = fed([KEY], text, 5, 40)
    assert [m.forced for m in reader.matches] == [True, True, True, False]
    assert [m.start for m in reader.matches] == [6, 6, 6, 6]
    assert "".join(text[m.span[0] : m.span[1]] for m in reader.matches) == text[6:142]
    assert reader.shown.startswith("Here: <0:")
    assert reader.shown.endswith("> and more")


def test_when_it_turns_out_to_be_none_the_rest_is_read_afresh() -> None:
    rule = Rule(r"Q[a-z]+!", "shout")
    reader = fed([rule, TOKEN], "Q" + "a" * 25 + "? sk-1 b", 1, 10)
    assert [(m.rule.id, m.text, m.forced) for m in reader.matches] == [
        ("shout", "Q" + "a" * 10, True),
        ("shout", "Q" + "a" * 21, True),
        ("token", "sk-1", False),
    ]
    assert reader.shown == rewritten(reader.text, reader.matches)
    assert reader.shown.endswith("aaaa? <1:sk-1> b")


def test_a_forced_match_is_given_up_in_the_end() -> None:
    reader = fed([KEY], "-----BEGIN KEY-----" + "x" * 1000, 5, 40)
    assert all(m.forced for m in reader.matches)
    assert 15 * 40 <= reader.matches[-1].end <= 16 * 40
    assert reader.shown.endswith("x" * 200)


def test_only_the_replaced_group_counts_towards_the_bound() -> None:
    rule = Rule(r"Q_[a-z ]*: (\d+)", group=1)
    reader = fed([rule], "Q_" + "some words " * 5 + ": 123. ", 1, 60)
    assert reader.shown == "Q_" + "some words " * 5 + ": <0:" + reader.matches[0].text + ">. "
    assert not reader.matches[0].forced


def test_what_is_kept_back_is_not_let_go_because_the_text_before_it_is_long() -> None:
    rule = Rule(r"Q_[a-z ]*: (\d+)", group=1)
    reader = fed([rule], "Q_" + "some words " * 4 + ": " + "1" * 55 + ". ", 1, 60)
    assert reader.matches[0].span == (48, 103)


def test_a_match_that_begins_too_far_back_is_not_found() -> None:
    reader = fed([Rule(r"Q_[a-z ]*: (\d+)", group=1)], "Q_" + "some words " * 10 + ": 123. ", 1, 60)
    assert reader.matches == []


def test_a_match_that_only_waits_for_one_from_further_left_is_taken_at_the_bound() -> None:
    rules = [Rule(r"Q_(?:(\d)|Z)", "near", group=1), Rule(r"_1[a-z ]*!", "far")]
    for size in (1, 20, 100):
        reader = fed(rules, "Q_1 some words and more", size, 12)
        assert next((m.rule.id, m.text, m.forced) for m in reader.matches) == ("near", "Q_1", False)
    reader = fed(rules, "Q_1 some words!", 1, 22)
    assert [(m.rule.id, m.forced) for m in reader.matches] == [("far", False)]


def test_a_rule_that_waits_from_further_left_is_forced_at_the_bound_and_covers_what_is_in_it() -> None:
    rules = [Rule(r"(Q_[\w ]*): \d+", "far", group=1), Rule(r"Z_\d", "near")]
    reader = fed(rules, "Q_ some Z_1 other: 12", 1, 22)
    assert [(m.rule.id, m.forced) for m in reader.matches] == [("far", False)]
    reader = fed(rules, "Q_ some Z_1 other, and more Z_2", 1, 12)
    assert next((m.rule.id, m.forced, m.span) for m in reader.matches) == ("far", True, (0, 13))


def test_a_group_that_is_too_long_is_forced_from_its_start() -> None:
    reader = fed([Rule(r"Q_: (\d+)", group=1)], "a Q_: 123456789012 b", 1, 10)
    first, last = reader.matches
    assert (first.forced, first.start, first.span) == (True, 2, (6, 17))
    assert (last.forced, last.start, last.span) == (False, 2, (17, 18))


def test_when_the_replaced_group_was_over_by_then_no_more_is_replaced() -> None:
    reader = fed([Rule(r"Q_(\d+)[a-z]*!", group=1)], "Q_123" + "a" * 15 + "! b", 1, 10)
    assert [(m.span, m.forced) for m in reader.matches] == [((2, 13), True)]
    assert reader.shown == "Q_<0:Q_123aaaaaaaa>aaaaaaa! b"


def test_the_beginning_of_an_alarm_can_reach_the_bound_too() -> None:
    mail = Rule(r"[a-z0-9]+@[a-z0-9]+\.[a-z]{2,}", "mail")
    reader = fed([TOKEN, mail], "x " + "a" * 30 + " ok", 4, 10)
    assert {(m.rule.id, m.forced) for m in reader.matches} == {("mail", True)}
    assert reader.shown.endswith(" ok")


def test_of_two_rules_open_at_the_bound_the_first_is_reported() -> None:
    reader = fed([Rule("Q_[a-z]+!", "one"), Rule("Q_[a-z]+", "two")], "Q_" + "a" * 20, 1, 10)
    assert reader.matches[0].rule.id == "one"


def test_a_large_piece_that_is_decided_is_not_forced() -> None:
    scanner = PatternSet([TOKEN], max_hold=10).scanner()
    matches, hold = scanner.feed("sk-" + "1" * 100 + " b")
    assert ([m.forced for m in matches], hold) == ([False], 0)


@MORE
@given(sets(max_hold=8), texts, cuts)
def test_what_is_shown_at_the_bound_is_the_text_with_the_reported_parts_rewritten(
    patterns: PatternSet, text: str, sizes: list[int]
) -> None:
    reader = read(patterns, text * 3, sizes)
    assert reader.shown == rewritten(reader.text, reader.matches)


@pytest.mark.parametrize("max_hold", [0, -1])
def test_a_bound_that_leaves_no_room_is_refused(max_hold: int) -> None:
    with pytest.raises(ConfigError, match="max_hold"):
        PatternSet([TOKEN], max_hold=max_hold)
