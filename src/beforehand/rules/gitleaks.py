"""Secret patterns from a gitleaks configuration (TOML): id, regex, keywords, secretGroup, entropy and allow lists."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

from beforehand.stream.patterns import Match, PatternError, Rule
from beforehand.stream.patterns import PatternSet

from .documents import read_utf8
from .places import Document, Malformed, Place
from .toml_places import read_toml

Allows = Callable[[str, str], bool]
"""Whether a secret (and the match it stands in) is on a list of those that are no secrets."""


def read_gitleaks(file: FilePath) -> tuple[list[Rule], Callable[[Match], bool] | None, list[str]]:
    """The patterns of a gitleaks file, what decides whether a match counts, and notes about what could not be used.

    Raises `Malformed`.
    """
    document = read_toml(read_utf8(file), lift=False)
    entries = document.value.get("rules")
    if not isinstance(entries, list) or not entries:
        raise Malformed(Place(1, 1), "this is no gitleaks configuration: it has no [[rules]]")
    rules: list[Rule] = []
    notes: list[str] = []
    checks: dict[str, _Check] = {}
    shared = _allow_lists(document, document.value, ())
    for i, entry in enumerate(entries):
        path = ("rules", i)
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            raise Malformed(document.place(path), "a gitleaks rule needs an 'id'")
        if "regex" not in entry:
            notes.append(f"the gitleaks rule {entry['id']!r} is about file names, which no text has: it is left out")
            continue
        rules.append(_rule(document, entry, path))
        checks[entry["id"]] = _Check(_number(document, entry, path, "entropy"), [*shared, *_allow_lists(document, entry, path)])
    if not rules:
        raise Malformed(Place(1, 1), "this gitleaks configuration has no rule with a regex")
    return rules, lambda match: checks[match.rule.id].accepts(match), notes


def _rule(document: Document, entry: dict[str, Any], path: tuple[str | int, ...]) -> Rule:
    group = entry.get("secretGroup", 0)
    keywords = entry.get("keywords", [])
    if not isinstance(entry["regex"], str):
        raise Malformed(document.place((*path, "regex")), "'regex' must be a string")
    if isinstance(group, bool) or not isinstance(group, int):
        raise Malformed(document.place((*path, "secretGroup")), "'secretGroup' must be a whole number")
    if not isinstance(keywords, list) or not all(isinstance(word, str) for word in keywords):
        raise Malformed(document.place((*path, "keywords")), "'keywords' must be a list of strings")
    # Without a secretGroup, gitleaks takes the first group that is not empty.
    rule = Rule(entry["regex"], entry["id"], tuple(keywords), group or _first_groups(entry["regex"]))
    try:
        PatternSet([rule])
    except PatternError as error:
        raise Malformed(document.place((*path, "regex")), f"rule {entry['id']!r}: {error}") from None
    return rule


def _first_groups(pattern: str) -> int | tuple[int, ...]:
    from beforehand.stream.regex import Group, Node, parse, reshape  # noqa: F401

    try:
        count = _groups(parse(pattern))
    except PatternError:
        return 0
    return tuple(range(1, count + 1)) or 0


def _groups(node: Any) -> int:
    inner = getattr(node, "items", None) or ([node.item] if hasattr(node, "item") else [])
    return sum([_groups(item) for item in inner]) + hasattr(node, "number")


def _number(document: Document, entry: dict[str, Any], path: tuple[str | int, ...], name: str) -> float:
    value = entry.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(document.place((*path, name)), f"{name!r} must be a number")
    return float(value)


class _Check:
    """Whether a match of one rule counts."""

    def __init__(self, entropy: float, allowed: list[Allows]) -> None:
        self._entropy, self._allowed = entropy, allowed

    def accepts(self, match: Match) -> bool:
        low, high = match.span
        secret = match.text[low - match.start : high - match.start]
        if self._entropy and entropy(secret) <= self._entropy:
            return False
        return not any(allows(secret, match.text) for allows in self._allowed)


def entropy(text: str) -> float:
    """Shannon's, in bits per character."""
    size = len(text)
    return -sum([n / size * math.log2(n / size) for n in Counter(text).values()]) if size else 0.0


def _allow_lists(document: Document, entry: dict[str, Any], path: tuple[str | int, ...]) -> list[Allows]:
    lists: list[Allows] = []
    for name in ("allowlist", "allowlists"):
        value = entry.get(name, [])
        if name in entry and path == () and isinstance(value, dict | list):
            value = [item for item in ([value] if isinstance(value, dict) else value) if not (isinstance(item, dict) and item.get("targetRules"))]
        for item in [value] if isinstance(value, dict) else value:
            if not isinstance(item, dict):
                raise Malformed(document.place((*path, name)), f"{name!r} must be a table")
            lists.append(_allow_list(document, item, (*path, name)))
    return lists


def _allow_list(document: Document, item: dict[str, Any], path: tuple[str | int, ...]) -> Allows:
    patterns = item.get("regexes", [])
    words = [word.lower() for word in item.get("stopwords", []) if isinstance(word, str)]
    target = item.get("regexTarget", "secret")
    try:
        finders = [PatternSet([Rule(pattern)]) for pattern in patterns]
    except PatternError as error:
        raise Malformed(document.place((*path, "regexes")), str(error)) from None
    # Conditions on paths and commits never hold for a text: with AND such a list allows nothing.
    both = str(item.get("condition", "OR")).upper() in ("AND", "&&")
    impossible = both and bool(item.get("paths") or item.get("commits"))

    def allows(secret: str, whole: str) -> bool:
        if impossible:
            return False
        text = secret if target == "secret" else whole
        by_pattern = any(finder.scan_whole(text) for finder in finders)
        by_word = any(word in secret.lower() for word in words)
        given = [answer for answer, there in ((by_pattern, finders), (by_word, words)) if there]
        return bool(given) and (all(given) if both else any(given))

    return allows
