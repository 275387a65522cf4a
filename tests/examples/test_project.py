"""The example of a project file: rules, a lambda and a declared tool on a real endpoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECT = "examples/train_project"


def beforehand(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "beforehand", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_it_runs(example: Callable[[str], Any]) -> None:
    with example("train_endpoint").endpoint() as there:
        done = beforehand(
            "run", "Book me the most comfortable seat.", "--project", PROJECT, "--tools", "examples/train_tools.py",
            "--model", "openai:scripted", "--base-url", there.base_url,
        )  # fmt: skip
        systems = {body["messages"][0]["content"] for body in there.received}
    assert done.returncode == 0, done.stderr
    assert "You are on your way: train 305, tourist class" in done.stdout
    assert systems == {"You book trains.\n\nWhat is known:\nBicycles travel on regional trains only."}


def test_it_has_no_mistake() -> None:
    done = beforehand("check", PROJECT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "examples/train_project/beforehand.toml: model openai:MODEL" in done.stdout
