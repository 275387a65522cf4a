"""The law of streams: what a reader sees is the whole text with the rules applied, however the text was cut."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import Hook
from beforehand.stream.patterns import PatternSet
from beforehand.stream.patterns import Rule as Pattern
from beforehand.testing import text
from rulefiles.kit import Said, rules_of, run

PATTERNS = ["ab", "a+", "a+b?", "(a|b)c", "c$", "^a", r"\bb", "ab|abc", "b[ac]*c", "[ab]{2,4}", "c(?P<x>a*)b", " "]
ACTIONS = ["observe", "replace", "refuse"]

rule_lists = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.sampled_from(PATTERNS), st.sampled_from(["", "X", "ab"])), max_size=4
)
texts = st.text("abc ", max_size=24)


def definition(kind: str, pattern: str, replacement: str, number: int) -> dict[str, Any]:
    action = {
        "observe": {"type": "log", "message": f"{number}:{{{{match}}}}"},
        "replace": {"type": "replace", "with": replacement},
        "refuse": {"type": "interrupt"},
    }[kind]
    return {"target": "stream", "chunks": ["content"], "regex": pattern, "actions": [action]}


def applied(rules: list[tuple[str, str, str]], whole: str) -> tuple[str | None, list[str]]:
    """The rules on a text that is there as a whole: the text (`None`: refused), and what observers saw."""
    seen: list[str] = []
    groups: list[list[tuple[int, tuple[str, str, str]]]] = []
    for number, rule in enumerate(rules):
        if groups and rule[0] != "observe" and groups[-1][0][1][0] == rule[0]:
            groups[-1].append((number, rule))
        else:
            groups.append([(number, rule)])
    for group in groups:
        matches = PatternSet([Pattern(rule[1]) for _, rule in group]).scan_whole(whole)
        kind = group[0][1][0]
        if kind == "observe":
            seen += [f"{group[0][0]}:{match.text}" for match in matches]
        elif kind == "refuse" and matches:
            return None, seen
        elif kind == "replace":
            at, parts = 0, []
            for match in matches:
                parts += [whole[at : match.start], group[match.index][1][2]]
                at = match.end
            whole = "".join(parts) + whole[at:]
    return whole, seen


def cut(whole: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(whole), *[place for place in places if place < len(whole)]})
    return [whole[low:high] for low, high in pairwise(edges)]


@given(rules=rule_lists, whole=texts, places=st.lists(st.integers(0, 24), max_size=12))
def test_what_is_shown_and_stored_is_the_whole_text_with_the_rules_applied(
    rules: list[tuple[str, str, str]], whole: str, places: list[int]
) -> None:
    said = Said()
    with tempfile.TemporaryDirectory() as folder:
        loaded = rules_of(Path(folder), *[definition(*rule, number) for number, rule in enumerate(rules)], voice=said)
    wanted, seen = applied(rules, whole)

    result, _, screen = asyncio.run(run(loaded, [text("", chunks=cut(whole, places))]))

    if wanted is None:
        assert result.stop_reason == "interrupted"
        assert len(result.messages) == 1
        assert screen.text == ""
    else:
        assert result.text == wanted
        assert screen.text == wanted
        assert "".join(screen.ever) == wanted
        assert sorted(said.texts) == sorted(seen)


@given(rules=rule_lists, whole=texts, places=st.lists(st.integers(0, 24), max_size=12))
def test_whatever_the_cut_the_whole_reply_in_one_piece_comes_out_the_same(
    rules: list[tuple[str, str, str]], whole: str, places: list[int]
) -> None:
    definitions = [definition(*rule, number) for number, rule in enumerate(rules)]
    with tempfile.TemporaryDirectory() as folder:
        once, _, _ = asyncio.run(run(rules_of(Path(folder), *definitions), [text(whole)]))
        pieces, _, _ = asyncio.run(run(rules_of(Path(folder), *definitions), [text("", chunks=cut(whole, places))]))

    assert (pieces.text, pieces.stop_reason) == (once.text, once.stop_reason)


MORE_RULES: list[dict[str, Any]] = [
    {"actions": [{"type": "log", "message": "{{text}}"}]},
    {"maxTriggers": 1, "actions": [{"type": "replace", "with": "{{text}}{{text}}"}]},
    {"regex": "a+b", "maxTriggers": 1, "actions": [{"type": "replace", "with": "({{match}} in {{text}})"}]},
    {"regex": "c", "maxTriggers": 2, "actions": [{"type": "log", "message": "{{match}} in {{text}}"}]},
    {"regex": "bcb", "maxTriggers": 1, "actions": [{"type": "interrupt"}]},
    {"regex": "[ab]{2,}", "order": 1, "actions": [{"type": "replace", "with": "-"}]},
    {"regex": "b.*c", "order": -1, "actions": [{"type": "queue-message", "message": "{{match}}"}]},
]


@given(
    rules=rule_lists, more=st.lists(st.sampled_from(MORE_RULES), max_size=3), whole=texts,
    places=st.lists(st.integers(0, 24), max_size=12),
)  # fmt: skip
def test_a_stage_that_tells_early_when_it_has_nothing_to_say_does_what_one_does_that_is_always_asked(
    rules: list[tuple[str, str, str]], more: list[dict[str, Any]], whole: str, places: list[int]
) -> None:
    definitions = [definition(*rule, number) for number, rule in enumerate(rules)]
    definitions += [{"target": "stream", "chunks": ["content"], **rule} for rule in more]
    outcomes = []
    for always_asked in (False, True):
        said = Said()
        with tempfile.TemporaryDirectory() as folder:
            loaded = rules_of(Path(folder), *definitions, voice=said)
        hooks = loaded.hooks
        if always_asked:
            hooks = tuple([Hook(seam="on_chunk", fn=h.fn, order=h.order) if h.seam == "on_chunk" else h for h in hooks])
        result, _, screen = asyncio.run(run(hooks, [text("", chunks=cut(whole, places))]))
        messages = [(message.role, message.text) for message in result.messages]
        firings = [about["firings"] for about in loaded.describe()]
        outcomes.append((result.stop_reason, messages, screen.ever, screen.retracted, said.lines, firings))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("replacement", ["", "***"])
async def test_a_match_longer_than_can_be_kept_back_is_replaced_once_and_never_shown(
    size: int, replacement: str, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, {"target": "stream", "regex": "sk-[a-z]+", "actions": [{"type": "replace", "with": replacement}]})
    secret = "sk-" + "a" * 9000
    whole = f"the key {secret} is long"

    result, _, screen = await run(rules, [text("", chunks=[whole[i : i + size] for i in range(0, len(whole), size)])])

    assert result.text == f"the key {replacement} is long"
    assert "".join(screen.ever) == result.text
    assert rules.describe()[0]["firings"] == 1
