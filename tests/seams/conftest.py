"""The proofs assert in modules of their own: they too show what was compared when they fail."""

from __future__ import annotations

import sys

import pytest

if "seams.stage" not in sys.modules:
    pytest.register_assert_rewrite("seams")
