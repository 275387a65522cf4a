"""Whatever hooks, tools, models and people do when a run that was cut goes on: nothing is done, asked or said twice, or lost."""

from __future__ import annotations

import pytest

from journal.worlds import WIDE, life

WENT_WRONG = [
    *[125, 145, 219, 231, 272, 284, 326, 410, 443, 490, 537, 553, 571, 580, 647, 720, 743, 777, 880, 917, 966],
    *[1088, 1095, 1246, 1447, 1522, 1547, 1675, 1717, 2333, 2340, 3496, 3749, 4426, 5393, 6737, 20862, 20865, 20995, 50220],
]
"""Worlds in which something was wrong once."""


@pytest.mark.parametrize("seed", [*range(20, 36), *range(WIDE, WIDE + 8), *WENT_WRONG])
def test_a_run_that_is_cut_goes_on_right_in_a_world_where_everybody_decides_anew(seed: int) -> None:
    assert life(seed) == []
