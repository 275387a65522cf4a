"""Every test here ends with no span left open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from telemetry.spans import Recorder


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    assert recorder.open == []
