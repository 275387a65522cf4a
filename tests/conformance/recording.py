"""The recordings: one JSON file for each scenario, as a value that a test can edit a copy of."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).with_name("pi")

Entry = dict[str, Any]


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a scenario, in the recordings' form: recorded by pi, or by our own run of it."""

    trace: list[Entry]
    requests: list[Entry]
    transcript: list[Entry]
    tool_runs: dict[str, int]
    final_state: Entry


class Recording(Outcome, kw_only=True):
    """One scenario: what was set up and done (`options` to `drive`), and what pi made of it.

    `compare` says how traces are to be compared, `not_normative` which part of this one binds nobody.
    """

    name: str
    description: str
    compare: str
    options: Entry
    script: list[Entry]
    tools: list[Entry]
    hooks: list[str]
    drive: str
    initial_messages: list[Entry]
    not_normative: str | None = None

    def error_texts(self) -> set[str]:
        """The texts of exceptions in this scenario: what was thrown, and what a refused call was told."""
        said = " ".join([*self.hooks, *[tool["behaviour"] for tool in self.tools]])
        thrown = re.findall(r"(?:Error\(|throws the string |rejects )'([^']*)'", said)
        failed = [turn[key] for turn in self.script for key in ("error", "throw_sync", "reject") if key in turn]
        refused = [entry["error"] for entry in self.trace if "settled" in entry and "error" in entry]
        return {*thrown, *failed, *refused}


NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


@cache
def _read(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def load(name: str) -> Recording:
    """A recording, fresh each time. A field this runner does not know is an error, not ignored."""
    raw = copy.deepcopy(_read(name))
    for about in ("meta", "defaults"):
        del raw[about]
    return msgspec.convert(raw, Recording, strict=True)
