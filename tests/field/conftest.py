"""Each field case is tried through every entry and, where a hook is involved, in every colour of callable."""

from __future__ import annotations

import pytest

from field.entries import COLOURS, ENTRIES, Colour, Enter


@pytest.fixture(params=list(ENTRIES))
def enter(request: pytest.FixtureRequest) -> Enter:
    """`await enter(agent)` runs it and returns the result, whichever way it was started."""
    return ENTRIES[request.param]


@pytest.fixture(params=list(COLOURS))
def colour(request: pytest.FixtureRequest) -> Colour:
    """`colour(fn)` is the hook function `fn` as a sync function, an async one, or an object with an async `__call__`."""
    return COLOURS[request.param]


@pytest.fixture(params=["parallel", "sequential"])
def mode(request: pytest.FixtureRequest) -> str:
    """How an agent runs the calls of one reply."""
    mode: str = request.param
    return mode
