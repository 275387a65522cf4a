"""Where the engine can keep its queue in a SQLite file, and what tests say where it cannot."""

from __future__ import annotations

import sqlite3
import sys

import pytest

CAN = sys.version_info < (3, 12) or sqlite3.sqlite_version_info >= (3, 42)

on_files = pytest.mark.skipif(
    not CAN,
    reason="NOT TESTED: the engine on SQLite files, because from Python 3.12 on it needs SQLite 3.42, "
    f"and this Python has {sqlite3.sqlite_version}",
)
