"""What a recorded lambda did through its bridge: the calls it made and the questions it asked, which are not done again.

A lambda is known by its prefix: `lambda_1`, `lambda_2`, ... of the run, of the tool call or of the question it is about, and
`update_1`, ... where it is about progress of a call. A run that goes on counts them as the recorded run did, or the second
lambda would be given what the first one got. Where another one is asked before it by now, it keeps the number that it had:
the calls on record say who made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..messages import Usage
from .codec import read, result_of


def prefix_of(about: str | None, number: int, kind: str = "lambda") -> str:
    """How the calls of a lambda begin; `about` is the call that it is about, if it is about one."""
    return f"{kind}_{number}" if about is None else f"{about}/{kind}_{number}"


class Makers:
    """Who had made the calls on record, by how they begin: the lambdas that the run has not come to again."""

    def __init__(self, calls: Mapping[str, Any]) -> None:
        self._left: dict[str, str] = {}
        for call_id, call in calls.items():
            if call.intent is not None and "lambda" in call.intent:
                self._left.setdefault(call_id.rpartition("/")[0], call.intent["lambda"])

    def number(self, about: str | None, kind: str, maker: str, counted: int) -> int:
        """That of a lambda which is asked now: the one that it had, else the next after those `counted` that is nobody else's."""
        around = prefix_of(about, 0, kind)[:-1]
        for prefix, who in self._left.items():
            if who == maker and prefix.startswith(around) and prefix[len(around) :].isdecimal():
                self.come_to(prefix)
                return int(prefix[len(around) :])
        while f"{around}{counted + 1}" in self._left:
            counted += 1
        return counted + 1

    def come_to(self, prefix: str) -> None:
        self._left.pop(prefix, None)


def lambdas_so_far(run: Any, call_id: str | None) -> int:
    """How many lambdas have been asked about a call, or on the run's own line."""
    counted: dict[str | None, int] = run.lambdas or {}
    return counted.get(run.parent_call_id if call_id is None else call_id, 0)


def recall_lambdas(run: Any, recall: Any, about: str | None, data: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Count the lambdas of a recorded ruling, and what they did. Returns the rulings about their calls: seam, call, data.

    Those about a call's result have been asked about its progress before.
    """
    upto: int = data["lambdas"]
    counted = run.lambdas = run.lambdas or {}
    first = counted.get(about, 0) + 1
    counted[about] = max(upto, first - 1)
    result = data.get("seam") == "after_tool_call"
    holder = recall.past.calls.get(about) if result and about is not None else None
    updates = [inner for inner in holder.inner if inner.startswith(f"{about}/update_")] if holder is not None else []
    prefixes = [*updates, *[prefix_of(about, n) for n in data.get("numbers", range(first, upto + 1))]]
    return [ruling for prefix in prefixes for ruling in _did(run, recall, prefix)]


def _did(run: Any, recall: Any, prefix: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    past = recall.past
    recall.makers.come_to(prefix)
    for by, answer in past.beside.items():
        if by.startswith(f"{prefix}/ask_"):
            spent(run, answer)
    holder = past.calls.get(prefix)
    for call_id in () if holder is None else holder.inner:
        call = past.calls[call_id]
        if call.outcome is not None:
            _count(run, call)
        for seam, rulings in call.rulings.items():
            yield from ((seam, call_id, data) for data in rulings)
        yield from _did(run, recall, call_id)


def _count(run: Any, call: Any) -> None:
    assert call.outcome is not None
    run.tools_run += call.intent is not None and call.outcome["outcome"] != "invalid"
    usage = result_of(call.outcome["result"]).usage
    if usage is not None:
        run.add_usage(usage, "")


def spent(run: Any, answer: dict[str, Any]) -> None:
    """A question beside the conversation was sent, and cost this."""
    run.requests_sent += 1
    if "usage" in answer:
        run.add_usage(read(answer["usage"], Usage), answer["model"])
