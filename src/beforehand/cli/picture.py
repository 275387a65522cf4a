"""The timeline as a picture: an SVG that rich draws, self-contained and the same each time."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 118
_FOREIGN_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


@contextmanager
def drawing(path: Path) -> Iterator[Console]:
    """A console of which everything shown ends up in the picture `path`."""
    from rich.console import Console

    canvas = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    yield canvas
    # Without the fonts that rich would have a viewer fetch from elsewhere; any monospaced one does.
    path.write_text(_FOREIGN_FONTS.sub("", canvas.export_svg(title="beforehand demo", unique_id="timeline")), encoding="utf-8")
