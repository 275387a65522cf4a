"""The files that the README hands to the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Load = Callable[[str], Any]
ROOT = Path(__file__).parents[2]


def beforehand(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "beforehand", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


FILES = ("--tools", "examples/train_tools.py", "--hooks", "examples/train_hooks.py")


def test_tools_and_hooks_from_files_do_their_work_on_a_real_endpoint(example: Load) -> None:
    with example("train_endpoint").endpoint() as there:
        where = ("--model", "openai:scripted", "--base-url", there.base_url)
        done = beforehand("run", "Book me the most comfortable seat.", *where, *FILES, "--max-turns", "3")
        timetable, refusal = [m["content"] for m in there.received[-1]["messages"] if m["role"] == "tool"]
    assert timetable.endswith("Asked for by Ana Ruiz, DNI ***")
    assert refusal == "Nobody could be asked: standard input is not a terminal."
    assert "May train 305 be booked in first class?" in done.stderr
    assert done.returncode == 9  # the clerk insists, so it stops before it is done


def test_the_hooks_of_the_file_are_listed_with_where_they_are(example: Load) -> None:
    done = beforehand("hooks", *FILES)
    assert done.returncode == 0
    assert "first_class_needs_a_manager" in done.stdout
    assert "examples/train_hooks.py" in done.stdout
