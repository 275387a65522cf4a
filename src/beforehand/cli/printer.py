"""Shows timeline rows: with rich on a terminal or in a picture, or as plain lines of text."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

from .terminal import safe
from .timeline import Row

if TYPE_CHECKING:
    from rich.console import Console

KIND_STYLES = {"event": "cyan", "hook": "bold magenta", "code": "bold blue", "person": "bold yellow", "wire": "dim"}
TONE_STYLES = {"plain": "", "refused": "red", "changed": "yellow", "ok": "green", "quiet": "dim"}
TITLE_WIDTH = 28


class Printer:
    """Prints rows as they come. `console` is `None` for plain text: no colours, no boxes, no wrapping."""

    def __init__(self, console: Console | None, out: IO[str] | None = None) -> None:
        self.console, self.out = console, out if out is not None else sys.stdout

    def heading(self, title: str, text: str = "") -> None:
        """Opens a part of the story."""
        if self.console is None:
            self.line(f"\n== {title} ==")
        else:
            from rich.panel import Panel
            from rich.text import Text

            self.console.print()
            self.console.print(Panel(Text(text), title=Text(title, "bold"), title_align="left", border_style="cyan"))
            return
        if text:
            self.line(text)

    def line(self, text: str = "", style: str = "") -> None:
        if self.console is None:
            print(text, file=self.out, flush=True)
        else:
            from rich.text import Text

            self.console.print(Text(text, style))

    def show(self, row: Row) -> None:
        row = row._replace(title=safe(row.title), text=safe(row.text), note=safe(row.note))
        if self.console is None:
            self._plain(row)
        else:
            self._rich(self.console, row)

    def _plain(self, row: Row) -> None:
        if row.kind == "turn":
            self.line(f"\n-- {row.title} --")
            return
        self.line(f"{row.kind:<6} {row.title:<{TITLE_WIDTH}} {one_line(row.text)}".rstrip())
        if row.note:
            self.line(f"{'':<6} {'':<{TITLE_WIDTH}} ({row.note})")

    def _rich(self, console: Console, row: Row) -> None:
        from rich.rule import Rule
        from rich.table import Table
        from rich.text import Text

        if row.kind == "turn":
            console.print(Rule(Text(row.title, "bold"), align="left", style="dim", characters="─"))
            return
        grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
        grid.add_column(width=6)
        grid.add_column(width=TITLE_WIDTH, overflow="fold")
        grid.add_column(ratio=1, overflow="fold")
        text = Text().append(row.text, TONE_STYLES[row.tone])
        if row.note:
            text.append(f"\n{row.note}", "dim")
        grid.add_row(Text(row.kind, KIND_STYLES[row.kind]), Text(row.title, "bold" if row.kind != "wire" else "dim"), text)
        console.print(grid)


def one_line(text: str) -> str:
    return " ".join(text.split())
