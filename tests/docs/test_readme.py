"""What the README says about the seams is what `seams.py` says."""

from __future__ import annotations

import re

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


def test_what_the_code_imports_from_the_package_is_public() -> None:
    code = "\n".join(block.text for block in blocks_of(ROOT / "README.md") if block.language == "python")
    lines = re.findall(r"^from beforehand import (.+)$", code, re.MULTILINE)
    names = {name.strip() for line in lines for name in line.split(",")}
    assert names
    assert names <= set(beforehand.__all__)
