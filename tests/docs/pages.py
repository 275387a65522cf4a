"""The pages people read, and the code blocks in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
LOCAL_ENDPOINT = "http://localhost:11434/v1"
"""The address the pages use for the reader's own endpoint."""

_FENCE = re.compile(
    r"(?:^<!-- (?:run: (?P<how>\w+)|file: (?P<file>[\w./-]+)) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A code block. `line` is that of its first line of code.

    A comment above it may say how it runs (`how`, else "run"), or of which `file` it is the content.
    """

    language: str
    text: str
    line: int
    how: str
    file: str | None


def blocks_of(page: Path) -> list[Block]:
    source = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["text"], source.count("\n", 0, m.start("text")) + 1, m["how"] or "run", m["file"])
        for m in _FENCE.finditer(source)
    ]


def prose_of(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
