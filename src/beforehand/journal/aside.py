"""What a recorded lambda did through its bridge: the calls it made and the questions it asked, which are not done again.

A lambda is known by its prefix: `lambda_1`, `lambda_2`, ... of the run, of the tool call or of the question it is about, and
`update_1`, ... where it is about progress of a call. A run that goes on counts them as the recorded run did, or the second
lambda would be given what the first one got.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..messages import Usage
from .codec import read, result_of
from .past import Past
from .pastcalls import PastCall


def prefix_of(about: str | None, number: int) -> str:
    """How the calls of a lambda begin; `about` is the call that it is about, if it is about one."""
    return f"lambda_{number}" if about is None else f"{about}/lambda_{number}"


def lambdas_so_far(run: Any, call_id: str | None) -> int:
    """How many lambdas have been asked about a call, or on the run's own line."""
    counted: dict[str | None, int] = run.lambdas or {}
    return counted.get(run.parent_call_id if call_id is None else call_id, 0)


def recall_lambdas(
    run: Any, past: Past, about: str | None, upto: int, result: bool = False
) -> list[tuple[str, str, dict[str, Any]]]:  # fmt: skip
    """Count the lambdas of a recorded ruling, and what they did. Returns the rulings about their calls: seam, call, data.

    Those about a call's `result` have been asked about its progress before.
    """
    counted = run.lambdas = run.lambdas or {}
    first = counted.get(about, 0) + 1
    counted[about] = max(upto, first - 1)
    holder = past.calls.get(about) if result and about is not None else None
    updates = [inner for inner in holder.inner if inner.startswith(f"{about}/update_")] if holder is not None else []
    prefixes = [*updates, *[prefix_of(about, n) for n in range(first, upto + 1)]]
    return [ruling for prefix in prefixes for ruling in _did(run, past, prefix)]


def _did(run: Any, past: Past, prefix: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
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
        yield from _did(run, past, call_id)


def _count(run: Any, call: PastCall) -> None:
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
