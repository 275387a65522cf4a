"""Many lines at once: timelines and tables of what is on record, in colour on a terminal, without a library's help.

A record may have ten thousand lines, which a library that lays out each of them shows only after many seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, UTC

from ..errors import ConfigError
from .printer import TITLE_WIDTH
from .terminal import json_line, print_json, safe
from .timeline import Kind, Row, Tone

KIND_CODES: dict[Kind, str] = {"event": "36", "hook": "1;35", "code": "1;34", "person": "1;33", "wire": "2", "turn": "1"}
TONE_CODES: dict[Tone, str] = {"plain": "", "refused": "31", "changed": "33", "ok": "32", "quiet": "2"}
TEXT_CHARS = 600
"""So much of a text is shown, unless somebody wants all of it."""


class Lines:
    """Writes lines to stdout, whose reader may be a person at a terminal, a pipe or a file."""

    def __init__(self, plain: bool, full: bool = False) -> None:
        self.colour = not plain and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._full = full
        self._lines: list[str] = []

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.flush()

    def add(self, line: str = "") -> None:
        self._lines.append(line)
        if len(self._lines) >= 500:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            sys.stdout.write("\n".join(self._lines) + "\n")
            sys.stdout.flush()
            self._lines = []

    def painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    def row(self, place: str, row: Row) -> None:
        """A row of a timeline. `place` stands in front of it."""
        if row.kind == "turn":
            self.add()
            self.add(self.painted(f"-- {safe(row.title)} --", KIND_CODES["turn"]))
            return
        kind = self.painted(f"{row.kind:<6}", KIND_CODES[row.kind])
        text = self.painted(self.one_line(row.text), TONE_CODES[row.tone])
        self.add(f"{place}  {kind} {self.one_line(row.title):<{TITLE_WIDTH}} {text}".rstrip())
        if row.note:
            indent = " " * (len(place) + TITLE_WIDTH + 10)
            self.add(self.painted(f"{indent}({self.one_line(row.note)})", "2"))

    def one_line(self, text: str) -> str:
        if len(text) <= TEXT_CHARS and text.isascii() and text.isprintable() and "  " not in text:
            return text.strip()  # as nearly all of them: there is nothing to join, to escape or to cut
        cut = "" if self._full or len(text) <= TEXT_CHARS else f" ... ({len(text) - TEXT_CHARS} more characters: --full)"
        return safe(" ".join((text[:TEXT_CHARS] if cut else text).split())) + cut

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], codes: Sequence[str], indents: Sequence[int] = ()
    ) -> None:
        """Columns as wide as their longest cell. `codes` colour the rows, `indents` move their first cells in."""
        cells = [[self.one_line(cell) for cell in row] for row in rows]
        for row, indent in zip(cells, indents, strict=False):
            row[0] = "  " * indent + row[0]
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        self.add(self.painted(_padded(columns, widths), "1"))
        for row, code in zip(cells, codes, strict=True):
            self.add(self.painted(_padded(row, widths), code))


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join([f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)]).rstrip()


def json_lines(values: Iterable[object]) -> None:
    """Each value as one line of JSON on stdout."""
    print_json(map(json_line, values))


# --- times ---------------------------------------------------------------------------------------


def local_time(at: int) -> str:
    """Microseconds since 1970 as a local date and time."""
    return datetime.fromtimestamp(at / 1e6).strftime("%Y-%m-%d %H:%M:%S")


def moment(text: str | None) -> int:
    """What `--since` says, in microseconds since 1970: "2h", "30m", "7d", or a date with or without a time."""
    if text is None:
        return 0
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    number, unit = text[:-1], text[-1:]
    try:
        if unit in units and number.isascii() and number.isdigit():
            when = datetime.now(UTC) - timedelta(seconds=int(number) * units[unit])
        else:
            when = datetime.fromisoformat(text)
        return int(when.timestamp() * 1e6)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--since {text!r} is no time: write 2h, 30m, 7d, or a date such as 2026-05-31 or 2026-05-31T14:00"
        ) from None


def seconds_text(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
