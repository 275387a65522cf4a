"""Every example is a script that runs offline, says something and complains about nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAYS = {
    "another_process.py": "In the booking system: ['305 first']",
    "approval.py": "asked_later: Booked: train 305, tourist class.",
    "audit.py": '"verdict":"Block","reason":"Book tourist instead."',
    "budget.py": "seconds: ended after 0 turns",
    "from_scratch.py": "You are on your way: train 305, tourist class, for Ana Ruiz, DNI ***",
    "rag.py": "And a bicycle? -> Bicycles travel on regional trains only",
    "redaction.py": "shown:  Ana is on the list: her number is ***, seat 31C.",
    "routing.py": "large, thinking high: Train 305.",
    "with_beforehand.py": "You are on your way: train 305, tourist class, for Ana Ruiz, DNI ***",
}
"""What each script prints, among other things."""


@pytest.mark.parametrize("script", SAYS)
def test_an_example_runs_as_a_script(script: str) -> None:
    command = [sys.executable, "-W", "error", f"examples/{script}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    assert SAYS[script] in done.stdout


def test_no_script_is_left_out() -> None:
    scripts = {path.name for path in (ROOT / "examples").glob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
    assert scripts == set(SAYS)
