"""The secret rules of gitleaks over streams: no secret gets out, and prose is not slowed down."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from patterns.random_rules import Reader, pieces, read, rewritten
from patterns.secret_rules import DATA, RULES, all_rules, with_secret

from beforehand.stream.patterns import PatternSet, Rule

by_id = pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])


@by_id
def test_no_character_of_a_secret_is_shown_wherever_it_is_cut(rule: Rule) -> None:
    patterns, text, match = with_secret(rule)
    expected = patterns.scan_whole(text)
    for cut in range(max(0, match.start - 2), min(len(text), match.end + 3)):
        reader = Reader(patterns)
        reader.feed(text[:cut])
        assert reader.safe <= match.span[0] or reader.matches[:1] == [match], cut
        reader.feed(text[cut:])
        reader.feed("", True)
        assert reader.matches == expected, cut
        assert reader.shown == rewritten(text, expected)


@by_id
def test_nor_when_it_comes_letter_by_letter_past_all_rules(rule: Rule) -> None:
    _, text, _ = with_secret(rule)
    patterns = all_rules()
    reader, expected = read(patterns, text, [1]), patterns.scan_whole(text)
    assert expected
    assert reader.matches == expected
    assert reader.shown == rewritten(text, expected)


def test_what_leads_up_to_a_secret_is_shown_at_once() -> None:
    rule = next(rule for rule in RULES if rule.id == "adafruit-api-key")
    reader = Reader(PatternSet([rule]))
    reader.feed('my_adafruit_key = "')
    assert reader.shown == 'my_adafruit_key = "'
    reader.feed("0123456789abcdef0123456789abcdef")
    assert reader.shown == 'my_adafruit_key = "'
    reader.feed('"')
    assert reader.shown.endswith(reader.matches[0].text + '>"')


PROSE = """\
A reader who watches text arrive should not be able to tell whether anybody is checking it. Most sentences, after all,
hold nothing that has to be hidden: they talk about tokens, keys and passwords without giving any away. You could, for
example, use curl to ask a server for its data: it answers, and the answer is shown. The secret of good prose is that
nothing in it looks like a secret; the key is to write words, not strings. In section 2 of the guide (see
https://example.org/guide?page=3) the authors mention Facebook, Twitter and Stripe, give 15 reasons, and conclude:
"access is granted, rights are checked, and credentials stay where they are."

- First, read the 2024 report, then the api reference, and then the code.
- Second, note that risk-averse people ask twice - at 10:30 and again at 11:45.
- Third, don't panic; most decisions can be taken back, and those that cannot deserve a second look.

Internationalisation and telecommunications are long words. Straßenbahnhaltestelle is one too, and so is 東京特許許可局. Emoji,
too: 🙂🚀.
"""


@pytest.mark.parametrize("seed", range(6))
def test_clean_prose_is_shown_at_most_one_word_late(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # the same on every run
    reader = Reader(all_rules())
    for piece in pieces(PROSE * 2, [rng.randint(1, 25) for _ in range(50)]):
        reader.feed(piece)
        assert len(reader.scanner.pending.split()) <= 1, reader.scanner.pending
    reader.feed("", True)
    assert (reader.matches, reader.shown) == ([], PROSE * 2)


def texts_of(event: Any) -> Iterator[str]:
    """The text in one event of a recorded reply, arguments of tool calls included."""
    for choice in event.get("choices", ()):
        yield choice["delta"].get("content") or ""
        yield from (call["function"].get("arguments", "") for call in choice["delta"].get("tool_calls", ()))
    yield from (event.get("delta", {}).get(kind) or "" for kind in ("text", "thinking", "partial_json"))
    for candidate in event.get("candidates", ()):
        yield from (part.get("text", "") for part in candidate.get("content", {}).get("parts", ()))


def recorded(name: str) -> str:
    lines = (DATA / "streams" / name).read_text(encoding="utf-8").splitlines()
    events = [json.loads(line[5:]) for line in lines if line.startswith("data:") and "[DONE]" not in line]
    return "".join([text for event in events for text in texts_of(event)])


KINDS = ("openai-chat", "anthropic", "google")
RECORDED = [path.name for kind in KINDS for path in sorted((DATA / "streams").glob(f"{kind}-*.sse"))]


@pytest.mark.parametrize("name", RECORDED)
def test_a_clean_recorded_stream_passes_unchanged_however_it_is_cut(name: str) -> None:
    text = recorded(name)
    assert text
    for seed in range(5):
        rng = random.Random(seed)  # noqa: S311  # the same on every run
        reader = read(all_rules(), text, [rng.randint(1, 40) for _ in range(30)])
        assert (reader.matches, reader.shown) == ([], text)
