"""The command inside this process, for tests that look at many outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from beforehand.cli import main


class Printed(NamedTuple):
    """What a command printed, and the exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Printed]:
    """Runs the command with these arguments."""

    def run(*args: str) -> Printed:
        monkeypatch.setattr(sys, "argv", ["beforehand", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Printed(int(ended.value.code or 0), captured.out, captured.err)

    return run
