"""Secret patterns from a gitleaks configuration (TOML): id, regex, keywords, secretGroup, entropy and allow lists."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

from beforehand.documents.files import read_utf8
from beforehand.documents.places import Document, Malformed, Path, Place
from beforehand.documents.toml_places import read_toml
from beforehand.frozen import Frozen
from beforehand.stream.patterns import Match, PatternError, PatternSet, Rule
from beforehand.stream.regex import parse

Allows = Callable[[str, str], bool]
"""Whether a secret (and the match it stands in) is on a list of those that are no secrets."""


class Secrets(Frozen):
    """What a gitleaks file has: the patterns, whether a match counts, notes about what could not be used."""

    file: str
    rules: tuple[Rule, ...]
    accept: Callable[[Match], bool]
    notes: tuple[str, ...]
    places: dict[str, Place]

    def explain(self, error: PatternError) -> str:
        """A pattern that RE2 does not take, with the rule and the line it stands in."""
        rule = next((rule for rule in self.rules if rule.pattern == error.pattern), self.rules[0])
        place = self.places[rule.id]
        nearest = f": {error.nearest}" if error.nearest else ""
        return f"{self.file}:{place.line}:{place.column}: rule {rule.id!r}: RE2 refuses {error.construct}{nearest}"


def read_gitleaks(file: FilePath) -> Secrets:
    """Read a gitleaks configuration. Raises `Malformed`."""
    document = read_toml(read_utf8(file))
    entries = document.value.get("rules")
    if not isinstance(entries, list) or not entries:
        raise Malformed(Place(1, 1), "this is no gitleaks configuration: it has no [[rules]]")
    rules: list[Rule] = []
    notes: list[str] = []
    checks: dict[str, _Check] = {}
    places: dict[str, Place] = {}
    shared = _allow_lists(document, document.value, ())
    for i, entry in enumerate(entries):
        path = ("rules", i)
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            raise Malformed(document.place(path), "a gitleaks rule needs an 'id'")
        name = entry["id"]
        if "regex" not in entry:
            notes.append(f"the gitleaks rule {name!r} is about file names, which no text has: it is left out")
            continue
        if name in checks:
            raise Malformed(document.place(path), f"a second gitleaks rule has the id {name!r}")
        rules.append(_rule(document, entry, path))
        checks[name] = _Check(_number(document, entry, path, "entropy"), [*shared, *_allow_lists(document, entry, path)])
        places[name] = document.place((*path, "regex"))
    if not rules:
        raise Malformed(Place(1, 1), "this gitleaks configuration has no rule with a regex")
    return Secrets(str(file), tuple(rules), lambda match: checks[match.rule.id].accepts(match), tuple(notes), places)


def _rule(document: Document, entry: dict[str, Any], path: Path) -> Rule:
    group = entry.get("secretGroup", 0)
    keywords = entry.get("keywords", [])
    if not isinstance(entry["regex"], str):
        raise Malformed(document.place((*path, "regex")), "'regex' must be a string")
    if isinstance(group, bool) or not isinstance(group, int):
        raise Malformed(document.place((*path, "secretGroup")), "'secretGroup' must be a whole number")
    if not isinstance(keywords, list) or not all(isinstance(word, str) for word in keywords):
        raise Malformed(document.place((*path, "keywords")), "'keywords' must be a list of strings")
    # Without a secretGroup, gitleaks takes the first group that is not empty.
    return Rule(entry["regex"], entry["id"], tuple(keywords), group or _all_groups(entry["regex"]))


def _all_groups(pattern: str) -> int | tuple[int, ...]:
    try:
        count = _groups(parse(pattern))
    except PatternError:  # said when it is compiled
        return 0
    return tuple(range(1, count + 1)) or 0


def _groups(node: Any) -> int:
    inner = getattr(node, "items", None) or ([node.item] if hasattr(node, "item") else [])
    return sum([_groups(item) for item in inner]) + hasattr(node, "number")


def _number(document: Document, entry: dict[str, Any], path: Path, name: str) -> float:
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


def _allow_lists(document: Document, entry: dict[str, Any], path: Path) -> list[Allows]:
    lists: list[Allows] = []
    for name in ("allowlist", "allowlists"):
        value = entry.get(name, [])
        if name in entry and path == () and isinstance(value, dict | list):
            value = [
                item
                for item in ([value] if isinstance(value, dict) else value)
                if not (isinstance(item, dict) and item.get("targetRules"))
            ]
        for item in [value] if isinstance(value, dict) else value:
            if not isinstance(item, dict):
                raise Malformed(document.place((*path, name)), f"{name!r} must be a table")
            lists.append(_allow_list(document, item, (*path, name)))
    return lists


def _allow_list(document: Document, item: dict[str, Any], path: Path) -> Allows:
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
