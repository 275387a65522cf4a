"""A user's code type-checks strictly against the installed package, and slips are found before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from beforehand.seams import BY_NAME

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


CASES = sorted(path.name for path in HERE.glob("[ar]*.py"))


def complaints(*files: Path) -> str:
    # Errors inside the package itself are `make check`'s business.
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", *map(str, files)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "examples")])
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "MYPYPATH": path}, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("file", CASES)
def test_the_type_checker_agrees_with(file: str) -> None:
    assert complaints(HERE / file) == ""


def test_the_type_checker_agrees_with_the_examples() -> None:
    assert complaints(*sorted((ROOT / "examples").glob("*.py"))) == ""


def test_every_seam_has_a_hook_without_and_with_options_among_the_accepted() -> None:
    source = (HERE / "accepted_seams.py").read_text(encoding="utf-8")
    for name in BY_NAME:
        assert f"@hook.{name}\n" in source
        assert f"@hook.{name}(" in source
