"""What each hook did over many rulings: how often it was asked, how long it took, what it decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil

import msgspec

from ..frozen import Frozen
from ..seams import BY_NAME
from .chain import Record
from .pastrecords import MALFORMED, unreadable
from .steps import silent

LISTENER = "never decided: if it only watches, make it a listener, which nothing waits for"
NOT_ASKED = "never asked"


class HookTally(Frozen, kw_only=True):
    """One hook at one seam. `p50` and `p95` are in seconds, `None` where nothing was timed.

    `calls` counts how often it was asked. At `on_chunk` and about a call's progress, where a record of each piece would
    be longer than what it is of, it counts how often the hook decided.
    """

    hook: str
    seam: str
    where: str | None
    calls: int
    p50: float | None
    p95: float | None
    verdicts: dict[str, int]

    @property
    def advice(self) -> str | None:
        """What its owner may want to know."""
        if self.verdicts or self.seam in ("on_chunk", "after_turn"):
            return None
        return LISTENER if self.calls else NOT_ASKED


class _Hook(msgspec.Struct):
    where: str | None = None
    calls: int = 0
    times: list[float] = []
    verdicts: Counter[str] = msgspec.field(default_factory=Counter)


def tally(records: Iterable[Record]) -> list[HookTally]:
    """Every hook that the runs of these records had, by seam, the most asked first."""
    hooks: dict[tuple[str, str], _Hook] = {}
    for record in records:
        try:
            _take(hooks, record)
        except MALFORMED as error:
            raise unreadable(record, error) from None
    found = [
        HookTally(
            hook=name, seam=seam, where=made.where, calls=made.calls, p50=_quantile(made.times, 0.5),
            p95=_quantile(made.times, 0.95), verdicts=dict(made.verdicts.most_common()),
        )
        for (seam, name), made in hooks.items()
    ]  # fmt: skip
    return sorted(found, key=lambda t: (BY_NAME[t.seam].number if t.seam in BY_NAME else 99, -t.calls, t.hook))


def _take(hooks: dict[tuple[str, str], _Hook], record: Record) -> None:
    if record.kind == "run":
        for name in record.data["hooks"]:
            hook, _, seam = name.rpartition(" at ")
            _of(hooks, seam, hook.rpartition(" (")[0] if _numbered(hook) else hook)
    elif record.kind == "ruling":
        _count(hooks, record)
    elif record.kind == "reply":
        for decision in record.data.get("decisions", ()):
            made = _of(hooks, decision.get("seam", "on_chunk"), decision["hook"])
            made.calls += 1
            made.times.append(float(decision["duration"]))
            _decided(made, decision)


def _of(hooks: dict[tuple[str, str], _Hook], seam: str, name: str) -> _Hook:
    if not isinstance(seam, str) or not isinstance(name, str):
        raise TypeError("the name of a hook or of its seam is no text")
    return hooks.setdefault((seam, name), _Hook())


def _count(hooks: dict[tuple[str, str], _Hook], record: Record) -> None:
    data = record.data
    seam, names, took = data["seam"], data["hooks"], data.get("took", ())
    decisions = data.get("decisions", ())
    for place, name in enumerate(names[: len(names) - len(silent(data)[1])]):
        made = _of(hooks, seam, name)
        made.calls += 1
        if place < len(took):
            made.times.append(took[place] / 1e6)
    for decision in decisions:
        made = _of(hooks, seam, decision["hook"])
        _decided(made, decision)
        if data.get("partial"):
            made.calls += 1
            made.times.append(float(decision["duration"]))
        elif decision["verdict"] == "failed" and len(took) < len(names) and decision is decisions[-1]:
            made.times.append(float(decision["duration"]))  # it ended the run, and was not timed


def _decided(made: _Hook, decision: dict[str, object]) -> None:
    made.where = str(decision["where"])
    made.verdicts[str(decision["verdict"])] += 1


def _numbered(hook: str) -> bool:
    """Whether a fingerprint's name says that it is the second of its name: "gate (2)"."""
    return hook.endswith(")") and hook.rpartition(" (")[2][:-1].isdigit()


def _quantile(times: Sequence[float], part: float) -> float | None:
    if not times:
        return None
    ordered = sorted(times)
    return ordered[ceil(part * len(ordered)) - 1]
