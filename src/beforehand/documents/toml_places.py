"""TOML files with the place of everything in them. tomllib says what a text means; here it is only walked for places."""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from typing import Any

from .places import TOO_DEEP, Document, Lines, Malformed, Path, Place

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
_OTHER = re.compile(r"[^,\]}\n#]+")


def read_toml(text: str) -> Document:
    """Raises `Malformed`."""
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise Malformed(Place(1, 1), TOO_DEEP) from None
    except ValueError as error:
        said = str(error)
        found = _AT.search(said)
        end = Lines(text).place(len(text))
        place = Place(int(found[1]), int(found[2])) if found and found[1] else end
        if "integer string conversion" in said:
            raise Malformed(Place(1, 1), "this is not TOML: a number is too large") from None
        raise Malformed(place, f"this is not TOML: {said[: found.start()] if found else said}") from None
    walker = _Walker(text)
    walker.document()
    document = Document(value, walker.places)
    _refuse_foreign(value, (), document)
    return document


def _refuse_foreign(value: Any, path: Path, document: Document) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            _refuse_foreign(item, (*path, name), document)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _refuse_foreign(item, (*path, i), document)
    elif isinstance(value, datetime.date | datetime.time):
        raise Malformed(
            document.place(path), f"{value} is a date or a time, which is not taken here: put it in quotes to make it a string"
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise Malformed(document.place(path), f"{value} is no finite number")


class _Walker:
    """Goes through a valid text once and notes where each key stands."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.places: dict[Path, Place] = {(): Place(1, 1)}
        self._lines = Lines(text)
        self._counts: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self.text.startswith("[", self.at):
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _note(self, path: Path, start: int) -> None:
        self.places.setdefault(path, self._lines.place(start))

    def _header(self) -> Path:
        start = self.at
        several = self.text.startswith("[[", start)
        self.at += 2 if several else 1
        path = self._into((), keys := self._key())
        if several:
            base = (*self._into((), keys[:-1]), keys[-1])
            number = self._counts[base] = self._counts.get(base, -1) + 1
            self._note(base, start)
            path = (*base, number)
        self._note(path, start)
        self.at += 2 if several else 1
        return path

    def _into(self, path: Path, keys: list[str]) -> Path:
        """A dotted key as a path: through the last item of an array of tables."""
        for key in keys:
            path = (*path, key)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _key(self) -> list[str]:
        keys = []
        while True:
            self._skip(_SPACE)
            found = _STRING.match(self.text, self.at) or _BARE.match(self.text, self.at)
            if found is None:
                raise Malformed(self._lines.place(self.at), "this is not TOML: a key was expected")
            self.at = found.end()
            keys.append(found[0] if found[0][0] not in "\"'" else str(next(iter(tomllib.loads(f"{found[0]}=0")))))
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return keys
            self.at += 1

    def _pair(self, table: Path) -> None:
        self._skip(_SPACE)
        start = self.at
        keys = self._key()
        path = table
        for key in keys:
            path = (*path, key)
            self._note(path, start)
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: Path) -> None:
        sign = self.text[self.at : self.at + 1]
        if sign in ('"', "'") and sign:
            self._skip(_STRING)
        elif sign == "[":
            self._items(path)
        elif sign == "{":
            self._members(path)
        else:
            self._skip(_OTHER)

    def _items(self, path: Path) -> None:
        self.at += 1
        number = 0
        while True:
            self._skip(_BLANK)
            if self.text[self.at : self.at + 1] in ("]", ""):
                break
            self._note((*path, number), self.at)
            self._value((*path, number))
            number += 1
            self._skip(_BLANK)
            if self.text.startswith(",", self.at):
                self.at += 1
        self.at += 1

    def _members(self, path: Path) -> None:
        self.at += 1
        while True:
            self._skip(_BLANK)
            if self.text[self.at : self.at + 1] in ("}", ""):
                break
            self._pair(path)
            self._skip(_BLANK)
            if self.text.startswith(",", self.at):
                self.at += 1
        self.at += 1
