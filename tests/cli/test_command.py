"""The command as a whole: it starts quickly, says what it can do, and knows its version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import beforehand as package
from cli.command import beforehand, endpoint, says


def test_the_version_is_the_package_s(run_here: Callable[..., Any]) -> None:
    told = run_here("--version")
    assert (told.code, told.out) == (0, f"beforehand {package.__version__}\n")


def test_without_arguments_it_shows_what_it_can_do(tmp_path: Path) -> None:
    told = beforehand(cwd=tmp_path)
    shown = told.stdout + told.stderr
    assert all(f"\n  {command} " in shown for command in ("demo", "run", "hooks", "seams"))


@pytest.mark.parametrize("command", ["demo", "run", "hooks", "seams"])
def test_each_command_has_help(run_here: Callable[..., Any], command: str) -> None:
    told = run_here(command, "--help")
    assert told.code == 0
    assert f"Usage: beforehand {command} " in told.out
    assert "--debug" in told.out


def test_the_exit_codes_are_told(run_here: Callable[..., Any]) -> None:
    assert "9 it stopped before it was done" in " ".join(run_here("run", "--help").out.split())


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from beforehand.cli import main\n"
        "sys.argv = ['beforehand', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "print(sorted({'aiohttp', 'rich', 're2', 'jsonschema_rs', 'cyllama'} & set(sys.modules)))\n"
    )
    told = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.splitlines()[-1] == "[]"


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_stop(tmp_path: Path) -> None:
    told = beforehand("demo", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (told.returncode, told.stderr) == (0, "")
    assert "first class needs a manager?s approval" in told.stdout


def test_json_is_utf_8_whatever_the_terminal_knows(tmp_path: Path) -> None:
    with endpoint(says("Zürich ✓")) as server:
        args = ("run", "hi", "--model", "openai:m", "--base-url", server.url, "--json")
        told = beforehand(*args, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert told.returncode == 0
    assert "Zürich ✓" in told.stdout
