"""The tables of docs/journal.md are what the code says. `python tests/docs/test_journal_page.py` writes them anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from beforehand.journal.chain import KINDS
from beforehand.journal.reading import STATES
from beforehand.journal.steps import STEPS

PAGE = Path(__file__).parents[2] / "docs" / "journal.md"

TABLES = {
    "kinds": ("kind", "says", KINDS),
    "states": ("state", "means", STATES),
    "steps": ("kind", "fields", STEPS),
}


def table(first: str, second: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {first} | {second} |", "|---|---|", *[f"| `{name}` | {text} |" for name, text in rows.items()]]
    return "\n".join(lines)


def fresh(page: str) -> str:
    """The page with its tables as they should be."""
    for name, (first, second, rows) in TABLES.items():
        before, opening, rest = page.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        assert opening and closing, f"docs/journal.md has no place for the table {name!r}"
        page = f"{before}{opening}{table(first, second, rows)}\n{closing}{after}"
    return page


def test_the_tables_of_the_page_are_fresh() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == fresh(page), "run: python tests/docs/test_journal_page.py"


if __name__ == "__main__":
    PAGE.write_text(fresh(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
