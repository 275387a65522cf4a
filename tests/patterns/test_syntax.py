"""Patterns are read as RE2 reads them, and what RE2 refuses is named, with what to write instead."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given
from patterns.random_rules import MORE, accepted, patterns, texts

from beforehand.stream.patterns import PatternError, PatternSet, Rule
from beforehand.stream.regex import parse, show


@MORE
@given(patterns, texts)
def test_a_pattern_read_and_printed_matches_the_same(pattern: str, text: str) -> None:
    printed = re2.compile(show(parse(pattern)))
    original = re2.compile(pattern)
    assert [(m.span(), m.groups()) for m in printed.finditer(text)] == [(m.span(), m.groups()) for m in original.finditer(text)]
    assert printed.groupindex == original.groupindex


TAKEN = [
    r"(?<n>a)(?P<m>b)", "a{,5}", "a{1", "{", r"\Qa.b\E+", r"\Qab", r"a\Q\E*", "[[:word:]]", "[[:^alpha:]x]", "[]a]",
    "[^]a]", "[-a]", "[a-]", r"[\]]", r"[\d-z]", "[[.a.]]", "[[:alpha]", r"[\pL\x{3b1}]",
    r"\pN\p{Greek}\p{^Greek}\PN\P{Lu}", "(?i)", "(?:)", "()", "(|)", "(|a)*", "a|", "a||b", r"\08", r"\12", r"\1234",
    r"\x41\x{1F600}", r"\_\-\"\ ", r"\a\f\n\r\t\v", "(?U)a+b+?", "(?i-s:.)", "(?-i)a", "(?s)a(?-s).", "a(?i)b|c",
    "(?:a(?i)b)c", "a(?i)*", "^*", r"\b+", r"\z?", "x{0}", "a{1000}", "a{2,}{", "x??", "x{2}?", "(?m)^a$", "ä[ö-ü]",
]  # fmt: skip


TEXTS = ["", "a", "ab", "aab", "A\nb", "abcABC", "a{,5}", "aa.b.b", "]-[.a.]^:", "π5 λx", "\n", "a\nb\na", "äö", '_-" \0', "xxxx"]


@pytest.mark.parametrize("pattern", TAKEN)
def test_what_re2_takes_is_taken_and_means_the_same(pattern: str) -> None:
    original, printed = re2.compile(pattern), re2.compile(show(parse(pattern)))
    assert printed.groups == original.groups
    for text in TEXTS:
        assert [m.span() for m in printed.finditer(text)] == [m.span() for m in original.finditer(text)], text


REFUSED = [
    ("a(?=b)", 1, "look-ahead", "group"),
    ("a(?!b)", 1, "negative look-ahead", "group"),
    ("(?<=a)b", 0, "look-behind", "group"),
    ("(?<!a)b", 0, "negative look-behind", "group"),
    (r"(a)\1", 3, "back-reference", "repeat what the group holds"),
    (r"(?P<n>a)(?P=n)", 8, "back-reference", "repeat"),
    ("(?<n>a)(?P<n>b)", 7, "second group with the name 'n'", "name of its own"),
    (r"(?<n>a)\k<n>", 7, "back-reference", "repeat"),
    ("a*+", 2, "possessive", "without the last +"),
    ("a{2}+", 4, "possessive", "without the last +"),
    ("(?>a)", 0, "atomic", "(?:...)"),
    ("a**", 2, "repetition of a repetition", "(?:...)"),
    ("a{2}{3}", 4, "repetition of a repetition", "(?:...)"),
    ("x{1001}", 1, "limit of 1000", "{1000,}"),
    ("x{1,2000}", 1, "limit of 1000", "{1000,}"),
    ("x{3,2}", 1, "ends below its start", ""),
    ("*a", 0, "nothing to repeat", r"\*"),
    ("a|+", 2, "nothing to repeat", r"\+"),
    ("a(b", 1, "never closed", r"\("),
    ("a)b", 1, "too many", r"\)"),
    ("[ab", 0, "never closed", r"\["),
    ("(?x)a b", 0, "unknown kind", "flags i, m, s and U"),
    ("(?#note)a", 0, "comment", "leave it out"),
    ("(?(1)a|b)", 0, "conditional", "|"),
    ("(?|a|b)", 0, "branch reset", "(?:"),
    ("(?'n'a)", 0, "quotes", "(?P<name>"),
    ("(?R)", 0, "recursion", ""),
    ("(?1)", 0, "recursion", ""),
    ("(?&n)", 0, "recursion", ""),
    (r"a\Z", 1, r"\Z", r"\z"),
    (r"\Ga", 0, r"\G", r"\\"),
    (r"\u00e9", 0, r"\u", r"\x{...}"),
    (r"\h", 0, r"\h", r"[ \t]"),
    (r"\R", 0, r"\R", r"\r\n"),
    (r"\C", 0, "byte", "."),
    ("a\\", 1, "nothing after it", r"\\"),
    (r"\é", 0, r"\é", ""),
    ("(" * 101 + ")" * 101, 100, "more than 100 deep", ""),
    # These only RE2 knows; it says where.
    (r"\p{Klingon}", 0, "RE2 says", ""),
    ("[b-a]", 1, "RE2 says", ""),
    (r"[a\Z]", 2, "RE2 says", ""),
    ("(?:(?:a{100}){100})", None, "multiply", "{n,}"),
    (r"(?:(?:\pL{100}){10}){1}" * 40, None, "too large", "shorten"),
]


@pytest.mark.parametrize(("pattern", "position", "construct", "nearest"), REFUSED)
def test_a_refusal_names_the_construct_its_place_and_what_works(
    pattern: str, position: int | None, construct: str, nearest: str
) -> None:
    with pytest.raises(PatternError) as refused:
        PatternSet([Rule("fine"), Rule(pattern)])
    error = refused.value
    assert (error.pattern, error.position) == (pattern, position)
    assert construct in error.construct
    assert nearest in error.nearest
    assert construct in str(error)
    assert error.exit_code == 2


TAKEN_BY_RE2 = (r"\C", "(?<n>a)(?P<n>b)")
"""A byte of a character, and a name that would stand for the first of its groups alone."""


@pytest.mark.parametrize("pattern", [p for p, *_ in REFUSED if p not in TAKEN_BY_RE2 and not p.startswith("((")])
def test_nothing_is_refused_that_re2_would_take(pattern: str) -> None:
    assert not accepted(pattern)


@pytest.mark.parametrize("group", [2, -1, "name", (1, 5)])
def test_a_group_that_does_not_exist_is_refused(group: int | str | tuple[int | str, ...]) -> None:
    with pytest.raises(PatternError, match="there is no group"):
        PatternSet([Rule("a(b)", group=group)])
