"""Where in a file something stands: parsed texts with the line and column of every field in them."""

from __future__ import annotations

import bisect
import re
from typing import Any, NamedTuple

Path = tuple[str | int, ...]
"""A way into a document: field names and list positions."""

TOO_DEEP = "it is nested too deeply"


class Place(NamedTuple):
    """Both count from 1."""

    line: int
    column: int


class Document(NamedTuple):
    """A parsed file. `places` has every field and list item; `twice` those that stand there a second time."""

    value: Any
    places: dict[Path, Place]
    twice: tuple[tuple[Path, Place], ...] = ()

    def place(self, path: Path) -> Place:
        """Where `path` stands, or the nearest thing around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(1, 1))


class Malformed(Exception):
    """A text that is not valid JSON, YAML or TOML. `place` is where, `why` a sentence without the place."""

    def __init__(self, place: Place, why: str) -> None:
        super().__init__(why)
        self.place, self.why = place, why


class Lines:
    """Offsets in a text as places."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *[found.end() for found in re.finditer("\n", text)]]

    def place(self, offset: int) -> Place:
        line = bisect.bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)
