"""What holds for every test: nothing of the caller's environment is seen, and nothing goes out to the network.

Fixtures live beside the tests that use them. Scripted models come from `beforehand.testing`, where users find them too.
"""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import settings

FOREIGN_ENVIRONMENT = re.compile(r"(?:https?|all|no|ftp)_proxy|(?:OPENAI|BEFOREHAND|LLM_CHAT|OTEL)_.*", re.IGNORECASE)
"""Names that would send a test elsewhere, or hand it somebody's key or settings. A test that needs one sets it itself."""

# HYPOTHESIS_PROFILE=thorough looks longer; CI repeats the same examples on every run, so that it never fails by luck.
settings.register_profile("default", max_examples=25, deadline=None)
settings.register_profile("ci", max_examples=25, deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("thorough", max_examples=2_000, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    for name in [name for name in os.environ if FOREIGN_ENVIRONMENT.fullmatch(name)]:
        del os.environ[name]
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))
