"""RE2 syntax as a small tree: read it, reshape it, print it again.

RE2 says whether a text holds a match. It cannot say whether a text could grow into one, so the
matcher in `patterns` builds further patterns from the tree. What has a width of one character (a
letter, a class, `.`) is an `Atom` and stays as it was written, so nothing here knows what a class holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from ..errors import ConfigError
from ..frozen import Frozen


class PatternError(ConfigError):
    """A pattern that RE2 does not take.

    `pattern`, `position` (character offset, `None` where only RE2 complained), `construct` (what it
    is called) and `nearest` (what to write in its place, or an empty string).
    """

    def __init__(self, pattern: str, position: int | None, construct: str, nearest: str = "") -> None:
        at = "" if position is None else f" at character {position} ({pattern[position : position + 12]!r})"
        super().__init__(f"pattern {pattern!r}: {construct}{at}" + (f"; {nearest}" if nearest else ""))
        self.pattern, self.position, self.construct, self.nearest = pattern, position, construct, nearest


class Atom(Frozen, frozen=True):
    """Exactly one character. `text` is a pattern that stands on its own."""

    text: str


class Look(Frozen, frozen=True):
    """No character: a condition on the place. `ahead` when the next character (or the end) decides it."""

    text: str
    ahead: bool


class Seq(Frozen, frozen=True):
    """One after the other. An empty one matches the empty text."""

    items: tuple[Node, ...]


class Alt(Frozen, frozen=True):
    """The first that leads to a match."""

    items: tuple[Node, ...]


class Repeat(Frozen, frozen=True):
    """`low` to `high` times (`None`: no limit), as often as possible or, not `greedy`, as seldom."""

    item: Node
    low: int
    high: int | None
    greedy: bool


class Group(Frozen, frozen=True):
    """A capturing group."""

    item: Node
    number: int
    name: str | None


Node = Atom | Look | Seq | Alt | Repeat | Group
EMPTY = Seq(())


def show(node: Node, *, capture: bool = True) -> str:
    """The tree as an RE2 pattern. Without `capture` its groups only group, which RE2 matches several times faster."""
    match node:
        case Atom(text) | Look(text):
            return text
        case Seq(items):
            return "".join([f"(?:{show(x, capture=capture)})" if isinstance(x, Alt) else show(x, capture=capture) for x in items])
        case Alt(items):
            return "|".join([show(x, capture=capture) for x in items])
        case Group(item, _, name):
            opening = "(?:" if not capture else f"(?P<{name}>" if name else "("
            return f"{opening}{show(item, capture=capture)})"
        case Repeat(item, low, high, greedy):
            inner = show(item, capture=capture)
            count = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
            if count is None:
                count = f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
            return (inner if isinstance(item, Atom | Group) else f"(?:{inner})") + count + ("" if greedy else "?")


def reshape(node: Node, leaf: Callable[[Atom | Look], Node]) -> Node:
    """The same tree with every leaf replaced by `leaf(it)`."""
    match node:
        case Atom() | Look():
            return leaf(node)
        case Seq(items):
            return Seq(tuple([reshape(x, leaf) for x in items]))
        case Alt(items):
            return Alt(tuple([reshape(x, leaf) for x in items]))
        case Group(item, number, name):
            return Group(reshape(item, leaf), number, name)
        case Repeat(item, low, high, greedy):
            return Repeat(reshape(item, leaf), low, high, greedy)


def parse(pattern: str) -> Node:
    """The tree of an RE2 pattern. Raises `PatternError` for what RE2 would refuse, naming it.

    What it takes is checked for shape only (a class name that does not exist passes): RE2 has the last word.
    """
    reader = _Reader(pattern)
    node = reader.alternation("")
    if reader.at < len(pattern):
        reader.refuse("a closing parenthesis too many", r"a literal one is written \)")
    return node


DEEPEST = 100
"""Trees are walked by recursion. RE2 itself gives up at 1000."""

_ROUND = "RE2 has none: match the text around it too, and name the part to replace with a group"
_ATOMIC = "RE2 never goes back, so the plain form costs nothing: write {}"
_GROUPS = (
    ("?=", "a look-ahead", _ROUND),
    ("?!", "a negative look-ahead", _ROUND),
    ("?<=", "a look-behind", _ROUND),
    ("?<!", "a negative look-behind", _ROUND),
    ("?>", "an atomic group", _ATOMIC.format("(?:...)")),
    ("?#", "a comment", "leave it out"),
    ("?(", "a conditional", "write both cases with |"),
    ("?|", "a branch reset", "write (?:...|...)"),
    ("?'", "a group name in quotes", "write (?P<name>...)"),
    ("?P=", "a back-reference", "RE2 has none: repeat what the group holds"),
    ("?P>", "a recursion", "RE2 has none"),
    ("?R", "a recursion", "RE2 has none"),
    ("?&", "a recursion", "RE2 has none"),
)
_ESCAPES = {
    "k": ("a back-reference", "RE2 has none: repeat what the group holds"),
    "g": ("a back-reference", "RE2 has none: repeat what the group holds"),
    "Z": (r"\Z", r"RE2 calls the end of the text \z"),
    "C": (r"\C, a single byte", "it would cut a character in two: write ."),
    "h": (r"\h", r"write [ \t]"),
    "R": (r"\R", r"write (?:\r\n|\n|\r)"),
    "N": (r"\N", r"write [^\n]"),
    "u": (r"\u", r"write \x{...}"),
    "U": (r"\U", r"write \x{...}"),
    "e": (r"\e", r"write \x1b"),
    "c": (r"\c", r"write \x{...}"),
}
_LOOKS = {"A": Look(r"\A", False), "z": Look(r"\z", True), "b": Look(r"\b", True), "B": Look(r"\B", True)}
_COUNT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAME = re.compile(r"\?P?<(\w+)>")
_ESCAPE = re.compile(
    r"\\(?:[pP](?:\{\^?\w+\}|\w)"  # a class of Unicode
    r"|x(?:\{[0-9A-Fa-f]+\}|[0-9A-Fa-f]{2})|0[0-7]{0,2}|[1-7][0-7]{1,2}"  # a character by its number
    r"|[^\w]|_|[dDsSwWafnrtv])",
    re.ASCII,
)
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\[pP]\{\^?\w+\}|\\x\{[0-9A-Fa-f]+\}|\\.|[^\]\\])*\]", re.DOTALL)


class _Reader:
    """One pass over a pattern. `flags` are the letters in force: `i`, `m`, `s` and `U`."""

    def __init__(self, pattern: str) -> None:
        self.text, self.at, self.groups, self.depth = pattern, 0, 0, 0
        self.names: set[str] = set()

    def refuse(self, construct: str, nearest: str = "", *, at: int | None = None) -> NoReturn:
        raise PatternError(self.text, self.at if at is None else at, construct, nearest)

    def alternation(self, flags: str) -> Node:
        """Up to the end of the group or of the pattern, whose sign is left unread."""
        branches: list[list[Node]] = [[]]
        repeated = False
        while self.at < len(self.text) and self.text[self.at] != ")":
            sign = self.text[self.at]
            if sign == "|":
                self.at += 1
                branches.append([])
            elif count := self.count():
                repeated = self.repeat(branches[-1], count, flags, repeated)
                continue
            elif self.text.startswith(r"\Q", self.at):
                self.quoted(branches[-1], flags)
            elif sign == "(" and (change := _FLAGS.match(self.text, self.at + 1)) and change[3] == ")":
                flags = _changed(flags, change)
                self.at = change.end()
            else:
                branches[-1].append(self.group(flags) if sign == "(" else self.single(flags))
            repeated = False
        sequences = tuple([items[0] if len(items) == 1 else Seq(tuple(items)) for items in branches])
        return sequences[0] if len(sequences) == 1 else Alt(sequences)

    def count(self) -> tuple[int, int | None, int] | None:
        """A repetition sign here: lowest, highest, and where it ends."""
        sign = self.text[self.at]
        if sign in "*+?":
            return int(sign == "+"), 1 if sign == "?" else None, self.at + 1
        found = _COUNT.match(self.text, self.at)
        if found is None:
            return None
        low = int(found[1])
        return low, low if not found[2] else int(found[3]) if found[3] else None, found.end()

    def repeat(self, items: list[Node], count: tuple[int, int | None, int], flags: str, repeated: bool) -> bool:
        low, high, end = count
        sign = self.text[self.at : end]
        if repeated and sign == "+":
            self.refuse("a possessive repetition", _ATOMIC.format("it without the last +"))
        if repeated:
            self.refuse("a repetition of a repetition", "put the first in (?:...)")
        if not items:
            self.refuse(f"nothing to repeat before {sign}", f"a literal one is written \\{sign[0]}")
        if low > 1000 or (high or 0) > 1000:
            self.refuse(f"the repeat {sign} is above RE2's limit of 1000", "an open end ({1000,}) is allowed")
        if high is not None and low > high:
            self.refuse(f"the repeat {sign} ends below its start")
        lazy = self.text.startswith("?", end)
        items[-1] = Repeat(items[-1], low, high, lazy == ("U" in flags))
        self.at = end + lazy
        return True

    def quoted(self, items: list[Node], flags: str) -> None:
        r"""\Q...\E: letters that stand for themselves. An unclosed one reaches to the end."""
        end = self.text.find(r"\E", self.at + 2)
        stop = len(self.text) if end < 0 else end
        items.extend([_literal(letter, flags) for letter in self.text[self.at + 2 : stop]])
        self.at = min(stop + 2, len(self.text))

    def group(self, flags: str) -> Node:
        start = self.at
        self.at += 1
        number, name = None, None
        if not self.text.startswith("?", self.at):
            self.groups += 1
            number = self.groups
        elif change := _FLAGS.match(self.text, self.at):
            flags = _changed(flags, change)
            self.at = change.end()
        elif named := _NAME.match(self.text, self.at):
            self.groups += 1
            number, name = self.groups, named[1]
            if name in self.names:
                self.refuse(f"a second group with the name {name!r}", "give each group a name of its own", at=start)
            self.names.add(name)
            self.at = named.end()
        else:
            self.refuse_group(start)
        self.depth += 1
        if self.depth > DEEPEST:
            self.refuse(f"groups inside groups, more than {DEEPEST} deep", at=start)
        item = self.alternation(flags)
        if self.at >= len(self.text):
            self.refuse("a parenthesis that is never closed", r"a literal one is written \(", at=start)
        self.depth -= 1
        self.at += 1
        return item if number is None else Group(item, number, name)

    def refuse_group(self, start: int) -> NoReturn:
        for sign, construct, nearest in _GROUPS:
            if self.text.startswith(sign, self.at):
                self.refuse(construct, nearest, at=start)
        if self.text[self.at + 1 : self.at + 2].isdigit():
            self.refuse("a recursion", "RE2 has none", at=start)
        self.refuse("a group of an unknown kind", "RE2 knows (...), (?:...), (?P<name>...) and the flags i, m, s and U", at=start)

    def single(self, flags: str) -> Node:
        """One letter, class, escape or condition."""
        sign = self.text[self.at]
        if sign == "\\":
            return self.escape(flags)
        if sign == "[":
            found = _CLASS.match(self.text, self.at)
            if found is None:
                self.refuse("a class that is never closed", r"a literal bracket is written \[")
            self.at = found.end()
            return _atom(found[0], flags)
        self.at += 1
        if sign == ".":
            return Atom("(?s:.)" if "s" in flags else ".")
        if sign == "^":
            return Look("(?m:^)", False) if "m" in flags else Look(r"\A", False)
        if sign == "$":
            return Look("(?m:$)", True) if "m" in flags else Look(r"\z", True)
        return _literal(sign, flags)

    def escape(self, flags: str) -> Node:
        letter = self.text[self.at + 1 : self.at + 2]
        if look := _LOOKS.get(letter):
            self.at += 2
            return look
        found = _ESCAPE.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            return _atom(found[0], flags)
        if letter in _ESCAPES:
            self.refuse(*_ESCAPES[letter])
        if letter.isdigit():
            self.refuse("a back-reference", "RE2 has none: repeat what the group holds")
        unknown = rf"\{letter}, which RE2 does not know" if letter else r"a \ with nothing after it"
        return self.refuse(unknown, r"a literal \ is written \\")


def _changed(flags: str, change: re.Match[str]) -> str:
    return "".join(sorted((set(flags) | set(change[1])) - set(change[2] or "")))


def _atom(text: str, flags: str) -> Atom:
    return Atom(f"(?i:{text})" if "i" in flags else text)


def _literal(letter: str, flags: str) -> Atom:
    if "i" in flags and letter.lower() != letter.upper():
        return Atom(f"(?i:{letter})")
    return Atom(letter if letter.isalnum() or ord(letter) > 127 else f"\\x{{{ord(letter):x}}}")
