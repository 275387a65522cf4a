"""Each field case is tried through every entry and, where a hook is involved, in every colour of callable.

- `enter`: `await enter(agent)` runs it and returns the result, whichever way it was started.
- `colour`: `colour(fn)` is the hook function `fn` as a sync function, an async one, or an object with an async `__call__`.
- `mode`: how an agent runs the calls of one reply.
"""

from __future__ import annotations

import pytest

from field.entries import COLOURS, ENTRIES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Entries and colours are told apart by different code, so a test with both takes them in pairs, not in every combination."""
    wanted = metafunc.fixturenames
    if "enter" in wanted and "colour" in wanted:
        pairs = list(zip(ENTRIES.items(), COLOURS.items(), strict=True))
        values = [(enter, colour) for (_, enter), (_, colour) in pairs]
        metafunc.parametrize(("enter", "colour"), values, ids=[f"{entry}-{colour}" for (entry, _), (colour, _) in pairs])
    elif "enter" in wanted:
        metafunc.parametrize("enter", ENTRIES.values(), ids=list(ENTRIES))
    elif "colour" in wanted:
        metafunc.parametrize("colour", COLOURS.values(), ids=list(COLOURS))
    if "mode" in wanted:
        metafunc.parametrize("mode", ["parallel", "sequential"])
