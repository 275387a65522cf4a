"""What the pipeline does with a call is the same whichever way the call came about."""

from __future__ import annotations

import pytest

from pipeline.paths import PATHS


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    """One of the ways a call can come about, for `call_through`."""
    path: str = request.param
    return path
