"""The index of the handbook: SQLite's full-text search over the notes in the workspace."""

from __future__ import annotations

import atexit
import re
import sqlite3
from functools import cache
from pathlib import Path

from beforehand import tool

NOTES = Path(__file__).parent / "agent" / "notes"


@cache
def index() -> sqlite3.Connection:
    """Made when it is first needed, in memory. It stays as long as the process."""
    db = sqlite3.connect(":memory:", check_same_thread=False)
    atexit.register(db.close)
    db.execute("CREATE VIRTUAL TABLE notes USING fts5(path, content, tokenize = 'porter')")
    files = [(file.name, file.read_text(encoding="utf-8").strip()) for file in sorted(NOTES.glob("*.txt"))]
    db.executemany("INSERT INTO notes VALUES (?, ?)", files)
    return db


@tool(replay="safe")
async def search_notes(question: str, most: int = 2) -> list[dict[str, str]]:
    """Find the notes that share a word of four letters or more with a question, the best first."""
    words = re.findall(r"\w{4,}", question)
    if not words:
        return []
    query = " OR ".join(f'"{word}"' for word in words)
    rows = index().execute("SELECT path, content FROM notes WHERE content MATCH ? ORDER BY rank LIMIT ?", (query, most))
    return [{"path": path, "content": content} for path, content in rows]
