"""Processes killed with SIGKILL and runs resumed by others: a sample of what `make crash` does at length."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not killed with SIGKILL there")
def test_runs_killed_at_any_moment_do_nothing_twice_and_come_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import crash_test

    figures = asyncio.run(crash_test.crash(20, seed=1, every_boundary=False))
    assert figures["runs"] == 20
    assert figures["killed"] >= 10
