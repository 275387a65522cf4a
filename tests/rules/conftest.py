"""The stage of the seams is played on here too; its assertions show what was compared when they fail."""

from __future__ import annotations

import sys

import pytest

if "seams.stage" not in sys.modules:
    pytest.register_assert_rewrite("seams")
