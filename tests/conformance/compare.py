"""Is what we did what was recorded? The rules of comparison are those of `pi/README.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from conformance.recording import Entry, Outcome, Recording

FAILURE_RECORDS = ("assistant:error", "assistant:aborted")
NOT_FOUND = re.compile(r"Tool \S+ not found")
VALIDATION_MESSAGE = re.compile(r"^(  - [^:\n]+): .*$", re.MULTILINE)


def differences(recording: Recording, ours: Outcome) -> list[str]:
    """Every way in which our outcome is not the recorded one. Empty if there is none."""
    same = Comparison(recording)
    found: list[str] = []
    expected, actual = _without_framing(recording.trace), ours.trace
    if recording.compare == "total-order":
        found += same.entries("trace", expected, actual)
    else:
        assert recording.compare == "per-call-order", recording.compare
        found += _per_call(same, expected, actual)
    found += same.entries("requests", recording.requests, ours.requests)
    found += same.entries("transcript", recording.transcript, ours.transcript)
    found += same.values("tool_runs", recording.tool_runs, ours.tool_runs)
    found += same.values("final_state", recording.final_state, ours.final_state)
    return found


def _without_framing(trace: Iterable[Entry]) -> list[Entry]:
    """Our updates are the deltas; where a block of a reply starts and ends is not announced."""
    return [entry for entry in trace if "update" not in entry or entry["update"].endswith("_delta")]


class Says(str):
    """An expected text of our own wording: the actual one must hold each of these pieces."""

    pieces: tuple[str, ...]

    def __new__(cls, *pieces: str) -> Says:
        text = super().__new__(cls, " ... ".join(pieces))
        text.pieces = pieces
        return text


class Comparison:
    """Compares values, entry by entry; knows which texts of a scenario may have something of ours around them."""

    def __init__(self, recording: Recording) -> None:
        self.bare_texts = recording.error_texts()
        self.any_validation_message = "validation" in (recording.not_normative or "")

    def entries(self, where: str, expected: list[Entry], actual: list[Entry]) -> list[str]:
        """The first difference of two lists says it all: what follows is shifted."""
        for i in range(max(len(expected), len(actual))):
            if i >= len(actual):
                return [f"{where}[{i}] is missing: {json.dumps(expected[i])}"]
            if i >= len(expected):
                return [f"{where}[{i}] is too many: {json.dumps(actual[i])}"]
            if found := self.values(f"{where}[{i}]", expected[i], actual[i]):
                return [*found, f"    in {json.dumps(actual[i])}"]
        return []

    def values(self, where: str, expected: Any, actual: Any) -> list[str]:
        if isinstance(expected, dict) and isinstance(actual, dict):
            if expected.get("event") == "agent_end" and actual.get("event") == "agent_end":
                return self._agent_end(where, expected, actual)
            expected = _without_doubled_error_flag(expected)
            keys = sorted({*expected, *actual})
            return [d for key in keys for d in self.values(f"{where}.{key}", expected.get(key, ...), actual.get(key, ...))]
        if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
            return [d for i, (e, a) in enumerate(zip(expected, actual, strict=True)) for d in self.values(f"{where}[{i}]", e, a)]
        if isinstance(expected, str) and isinstance(actual, str):
            return [] if self._same_text(expected, actual) else [f"{where}: expected {expected!r}, got {actual!r}"]
        same = expected == actual and type(expected) is type(actual)
        return [] if same else [f"{where}: expected {expected!r}, got {actual!r}"]

    def _agent_end(self, where: str, expected: Entry, actual: Entry) -> list[str]:
        """After a failure pi lists only its record, we the whole run, which must be what was stored of it."""
        listed, stored = actual["messages"], actual["in_history"]
        if listed != stored:
            return [f"{where}: lists {listed}, but the history has {stored}"]
        if len(expected["messages"]) == 1 and expected["messages"][0] in FAILURE_RECORDS:
            listed = listed[-1:]
        return self.values(f"{where}.messages", expected["messages"], listed)

    def _same_text(self, expected: str, actual: str) -> bool:
        if isinstance(expected, Says):
            return all(piece in actual for piece in expected.pieces)
        if self.any_validation_message:
            expected, actual = VALIDATION_MESSAGE.sub(r"\1: ...", expected), VALIDATION_MESSAGE.sub(r"\1: ...", actual)
        if expected == actual:
            return True
        if expected in self.bare_texts or NOT_FOUND.fullmatch(expected):
            return expected in actual
        return expected.startswith('{"') and self._same_json(expected, actual)

    def _same_json(self, expected: str, actual: str) -> bool:
        """For the tool that returns another's result as JSON."""
        try:
            return not self.values("", json.loads(expected), json.loads(actual))
        except ValueError:
            return False


def _without_doubled_error_flag(entry: Entry) -> Entry:
    """pi's results say that they are errors a second time if it was the tool that said so."""
    result = entry.get("result")
    if isinstance(result, dict) and "isError" in result and result["isError"] == entry.get("isError"):
        return {**entry, "result": {key: value for key, value in result.items() if key != "isError"}}
    return entry


# --- a batch whose calls interleave as they like ---------------------------------------------------


def _per_call(same: Comparison, expected: list[Entry], actual: list[Entry]) -> list[str]:
    before, batch, after = _around_batch(expected)
    our_before, our_batch, our_after = _around_batch(actual)
    found = same.entries("trace before the batch", before, our_before) + same.entries("trace after the batch", after, our_after)
    calls, our_calls = _by_call(batch), _by_call(our_batch)
    found += same.values("calls of the batch", sorted(calls), sorted(our_calls))
    for call_id in calls:
        found += same.entries(f"trace of {call_id}", calls[call_id], our_calls.get(call_id, []))
    return found + same.entries("what precedes the bodies", _preflight(batch), _preflight(our_batch))


def _preflight(batch: list[Entry]) -> list[Entry]:
    """All that happens before the first body begins. It is done call by call, so its order counts."""
    return batch[: next((i for i, entry in enumerate(batch) if entry.get("phase") == "begin"), len(batch))]


def _kind(entry: Entry) -> Any:
    return entry.get("event") or entry.get("hook")


def _around_batch(trace: list[Entry]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """What precedes the first call's announcement, what lies between it and the last call's end, and what follows.

    Results are stored after the last end, so their order is part of what follows.
    """
    first = next(i for i, entry in enumerate(trace) if _kind(entry) == "tool_execution_start")
    last = max(i for i, entry in enumerate(trace) if _kind(entry) == "tool_execution_end")
    return trace[:first], trace[first : last + 1], trace[last + 1 :]


def _by_call(batch: list[Entry]) -> dict[str, list[Entry]]:
    """The entries of each call. What names no call belongs to the one before it, which did it."""
    calls: dict[str, list[Entry]] = {}
    call_id = ""
    for entry in batch:
        call_id = entry.get("id") or entry.get("at") or call_id
        pending = {"pending"} if _kind(entry) == "tool_execution_end" else set()  # whoever else is still under way
        calls.setdefault(call_id, []).append({key: value for key, value in entry.items() if key not in pending})
    return calls
