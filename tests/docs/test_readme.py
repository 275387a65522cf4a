"""What the README and the guide to hooks say about the seams is what `seams.py` says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import beforehand
from beforehand.seams import SEAMS, SeamSpec

from .pages import ROOT, blocks_of

README = (ROOT / "README.md").read_text(encoding="utf-8")


def decisions_of(spec: SeamSpec) -> set[str]:
    return {verdict.__name__ for verdict in spec.verdicts}


def test_the_table_has_every_seam_with_its_decisions_and_what_is_irreversible_after_it() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|[^|]+\|([^|]*)\|([^|]*)\|$", README, re.MULTILINE)
    shown = [(int(n), name, set(re.findall(r"`(\w+)`", may)), gone.strip(" *")) for n, name, may, gone in rows]
    assert shown == [(spec.number, spec.name, decisions_of(spec), spec.irreversible) for spec in SEAMS]


def seams_in(cell: str) -> set[int]:
    """The numbers in "1, 3 to 7, 9"."""
    spans = [[int(n) for n in re.findall(r"\d+", part)] for part in cell.split(",")]
    return {n for span in spans for n in range(span[0], span[-1] + 1)}


def test_the_guide_to_hooks_says_of_each_decision_at_which_seams_it_counts() -> None:
    guide = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    shown = {name: seams_in(at) for name, at in re.findall(r"^\| `([A-Z]\w+)\([^`]*\)` \| ([\d, to]+) \|", guide, re.MULTILINE)}
    declared: dict[str, set[int]] = {}
    for spec in SEAMS:
        for decision in (*spec.verdicts, *spec.effects):
            declared.setdefault(decision.__name__, set()).add(spec.number)
    assert shown == declared


def test_what_the_code_imports_from_the_package_is_public() -> None:
    code = "\n".join(block.text for block in blocks_of(ROOT / "README.md") if block.language == "python")
    lines = re.findall(r"^from beforehand import (.+)$", code, re.MULTILINE)
    names = {name.strip() for line in lines for name in line.split(",")}
    assert names
    assert names <= set(beforehand.__all__)


def test_the_first_example_works_by_copy_and_paste_and_prints_what_the_page_says(tmp_path: Path) -> None:
    code, printed = [block for block in blocks_of(ROOT / "README.md") if block.language in ("python", "text")][:2]
    (tmp_path / "train.py").write_text(code.text, encoding="utf-8")
    told = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (told.stdout, told.stderr) == (printed.text, "")
