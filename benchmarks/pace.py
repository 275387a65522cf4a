"""How fast this machine is at this moment, beside the one for which the bounds in milliseconds were stated.

There, a turn of the hand-written floor (`floor.py`, runs of twenty turns) took 2.2 µs of CPU time. Machines differ by a factor
of four in this, and one that others share does so within a second. So the floor is measured right before and right after
whatever has such a bound, and what was measured is told twice: as it was, and at the reference's pace.
"""

from __future__ import annotations

import gc
import statistics
import time

import floor

REFERENCE = 2.2
"""µs that a turn of the floor took on the machine of the bounds."""


def floor_turn(turns: int = 20, runs: int = 50) -> float:
    """µs of CPU that a turn of the floor takes now. Takes about 10 ms."""
    loop = floor.Loop(floor.in_process(turns, "word " * 20))
    gc.collect()
    began = time.process_time()
    for _ in range(runs):
        try:
            loop.run().send(None)  # nothing in it waits, so it needs no event loop
        except StopIteration:
            pass
    return (time.process_time() - began) / runs / turns * 1e6


class Paced:
    """Measurements of one thing, each with the pace that the machine had around it."""

    def __init__(self) -> None:
        self.measured: list[float] = []
        self._paces: list[float] = []
        self.begin()

    def begin(self) -> None:
        """What is measured begins now."""
        self._floor = floor_turn()

    def end(self, measured: float) -> None:
        """This came of it. The next one may begin without `begin`."""
        before, self._floor = self._floor, floor_turn()
        self.measured.append(measured)
        self._paces.append(REFERENCE * 2 / (before + self._floor))

    @property
    def best(self) -> float:
        """The least, as it was measured."""
        return min(self.measured)

    @property
    def at_reference(self) -> float:
        """The median at the reference's pace."""
        return statistics.median([measured * pace for measured, pace in zip(self.measured, self._paces, strict=True)])
