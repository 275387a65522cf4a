"""The command as a whole: it starts quickly, says what it can do, and knows its version."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

import beforehand as package
from beforehand.cli.app import app
from beforehand.cli.overview import EXAMPLES, GROUPS
from cli.command import beforehand, endpoint, says


def test_the_version_is_the_package_s(run_here: Callable[..., Any]) -> None:
    told = run_here("--version")
    assert (told.code, told.out) == (0, f"beforehand {package.__version__}\n")


def test_without_arguments_it_shows_what_it_can_do(tmp_path: Path) -> None:
    told = beforehand(cwd=tmp_path)
    shown = told.stdout + told.stderr
    assert all(f"\n  {command} " in shown for command in ("demo", "run", "hooks", "seams"))


COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "schema"])
def test_each_command_has_help_with_an_example(run_here: Callable[..., Any], command: str) -> None:
    told = run_here(command, "--help")
    assert told.code == 0
    assert f"Usage: beforehand {command} " in told.out
    assert "--debug" in told.out
    assert f"Examples:\n    beforehand {command}" in told.out


def test_every_command_stands_under_a_heading_in_a_line_of_its_own(run_here: Callable[..., Any]) -> None:
    told = run_here("--help").out
    assert sorted(name for lines in GROUPS.values() for name in lines) == COMMANDS
    for heading, lines in GROUPS.items():
        assert f"\n{heading}:\n" in told
        for name, text in lines.items():
            assert re.search(rf"^  {name} +{re.escape(text)}$", told, re.MULTILINE)
    assert "\nMore:" not in told


def test_the_examples_name_options_that_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, lines in EXAMPLES.items():
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r" (--?[a-z][a-z-]*)", " ".join(lines))) <= known


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
