"""The lambdas that one outermost call leads to: how many there may be in all, and how many at once.

A lambda that calls lambdas that call lambdas would otherwise be bounded by nothing but its time, and each has a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar

from .contract import Job, LambdaTooManyInside

MAX_DEPTH = 8
"""Calls inside calls, the outermost included."""
AT_ONCE = 8
"""Calls under way at once that an outermost call has made; half as many at each further depth, and at least one."""


class Family:
    """One outermost call and all the calls inside it. It may lead to as many as `SandboxLimits.suspensions` says."""

    def __init__(self, most: int, whole: Family | None = None) -> None:
        self._whole = whole
        """Of a part with places of its own: the family that it counts in."""
        self._left = self._most = most
        # One for each depth: whoever waits holds a place and needs one further down, so that nobody waits for himself.
        self._places = [asyncio.Semaphore(max(AT_ONCE >> depth, 1)) for depth in range(MAX_DEPTH - 1)]
        self._over = False

    @property
    def over(self) -> bool:
        return (self._whole or self)._over

    def end(self) -> None:
        """The outermost call has ended."""
        self._over = True

    def apart(self) -> Family:
        """What a call leads to that those inside wait for: it needs none of their places either."""
        return Family(self._most, self._whole or self)

    @asynccontextmanager
    async def place(self, job: Job, depth: int, awaited: bool = False) -> AsyncIterator[None]:
        """A place for a call at this depth, when one is free. Raises `LambdaTooManyInside`.

        One that is `awaited` by those who hold the places takes none.
        """
        if depth >= MAX_DEPTH:
            raise job.error(LambdaTooManyInside, f"was not called: lambdas call lambdas at most {MAX_DEPTH} deep")
        whole = self._whole or self
        if not whole._left:
            why = f"the outermost lambda has led to {self._most} others, which is as many as it may"
            raise job.error(LambdaTooManyInside, f"was not called: {why}")
        whole._left -= 1
        async with nullcontext() if awaited else self._places[depth - 1]:
            yield


inside: ContextVar[tuple[Family, int] | None] = ContextVar("beforehand_lambda", default=None)
"""The family of the call that this code works for, and its depth in it."""


def family_here() -> tuple[Family, int] | None:
    """The family that a call made here belongs to, and its depth. `None`: it is an outermost one.

    What a lambda has set going and left behind, such as a tool's own task, no longer works for it once the family is over.
    """
    here = inside.get()
    return None if here is None or here[0].over else (here[0], here[1] + 1)
