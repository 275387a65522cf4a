"""The recorded cases that bind us: as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rulefiles.player import CASES, expected, outcome, play

BINDING = [name for name, case in CASES.items() if not case["quirk"]]


def test_all_cases_are_here_and_most_intentions_among_the_binding_ones() -> None:
    assert len(CASES) == 62
    assert len(BINDING) == 28
    assert sum(name.startswith("intent-") for name in BINDING) == 8


@pytest.mark.parametrize("name", BINDING)
async def test_a_binding_case_comes_out_as_written(name: str, tmp_path: Path) -> None:
    case = CASES[name]

    played = await play(case, tmp_path / "hooks")

    assert outcome(played, expected(case)) == expected(case)
