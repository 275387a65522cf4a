"""The secret rules of gitleaks as ours, and a secret for each."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import re2
from patterns.samples import sample

from beforehand.stream.patterns import Match, PatternSet, Rule
from beforehand.stream.regex import parse

DATA = Path(__file__).parent.parent / "data"

WHOLE = {"jwt-base64", "microsoft-teams-webhook"}
"""Their groups are pieces of the secret: all of it has to go."""


def secret_rule(entry: dict[str, Any]) -> Rule:
    r"""As gitleaks has it, the secret is the group it names, else the first group that took part. It was converted
    for Python's `re`, which calls the end of the text `\Z`."""
    pattern = entry["regex"].replace(r"\Z", r"\z")
    groups = tuple(range(1, re2.compile(pattern).groups + 1))
    group = entry["secretGroup"] or (0 if entry["id"] in WHOLE else groups or 0)
    return Rule(pattern, entry["id"], tuple(entry["keywords"]), group)


RULES = [secret_rule(entry) for entry in json.loads((DATA / "gitleaks.json").read_text())]


@cache
def all_rules() -> PatternSet:
    return PatternSet(RULES)


@cache
def with_secret(rule: Rule) -> tuple[PatternSet, str, Match]:
    """A set of this rule alone, a text with a secret for it, and the match it has to come to."""
    patterns = PatternSet([rule])
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311  # the same on every run
        text = f"About {rule.keywords[0]}, as asked: {sample(parse(rule.pattern), rng)} and so on."
        matches = patterns.scan_whole(text)
        if matches and matches[0].span[1] > len(rule.keywords[0]) + 18:
            return patterns, text, matches[0]
    raise AssertionError(f"no secret found for {rule.id}")
