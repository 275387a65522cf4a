"""A user's code type-checks strictly against the installed package, and slips are found before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@pytest.mark.parametrize("file", ["accepted.py", "refused.py"])
def test_the_type_checker_agrees_with(file: str) -> None:
    # Errors inside the package itself are `make check`'s business.
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", str(HERE / file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
