"""What a recorded lambda did through its bridge: the calls it made and the questions it asked, which are not done again.

A lambda is known by its prefix: `lambda_1`, `lambda_2`, ... of the run, of the tool call or of the question it is about, and
`update_1`, ... where it is about progress of a call. A run that goes on gives each the number that it had, or one would be
given what another one got.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from typing import Any

from ..messages import Usage
from .codec import read, result_of
from .past import Past
from .pastcalls import PastCall


_PREFIX = re.compile(r"((?:.*/)?(?:lambda|update))_(\d+)", re.DOTALL).fullmatch
_TIMES = re.compile(r" \(\d+\)$")


class Names:
    """The names of lambdas that were at work when a process ended. Whoever is at work again gets the one that it had, also
    where others have come or gone beside it: else it would do again what it has done.
    """

    def __init__(self, past: Past | None) -> None:
        self._known: dict[str, dict[int, str | None]] = {}
        """Who had which number, by what a name begins with; `None` where that is not on record."""
        self._taken: set[tuple[str, int]] = set()
        """The numbers of those that have been asked again, or gone over."""
        self._asked: dict[str | None, list[int]] = {}
        """The numbers of those that have been asked since the last ruling, by what it will be about."""
        self._times: dict[str, Counter[str]] = {}
        """How often each has been asked since then. Some act only later than the first time, and leave nothing before."""
        acted = [] if past is None else [(call_id, call.intent) for call_id, call in past.calls.items()]
        for name, data in (*acted, *(() if past is None else past.beside.items())):
            if "/" in name and (found := _PREFIX(name.rpartition("/")[0])) is not None:
                numbers = self._known.setdefault(found[1], {})
                number = int(found[2])
                numbers[number] = numbers.get(number) or (data or {}).get("lambda") or None

    def number(
        self, run: Any, about: str | None, kind: str, known_as: str, here: Callable[[], Collection[str]]
    ) -> tuple[int, str]:
        """The number of the lambda that is asked now, and what it is known as in the record.

        `here` are those there are now: one that is not is known by its number and its seam, for its file may have another name
        by now.
        """
        stem = prefix_of(about, kind)
        times = self._times.setdefault(stem, Counter())
        times[known_as] += 1
        this = known_as if times[known_as] == 1 else f"{known_as} ({times[known_as]})"
        known = self._known.get(stem)
        if known is None:
            number: int = (run.lambdas or {}).get(stem, 0) + 1
        elif own := [n for n, by in known.items() if by == this and (stem, n) not in self._taken]:
            number = min(own)
        else:
            others = here()
            number = next(n for n in count(1) if (stem, n) not in self._taken and _may_be(known.get(n), known_as, others))
        if kind == "lambda":
            self._asked.setdefault(about, []).append(number)
        self.come_to(run, about, [number], kind)
        return number, this

    def come_to(self, run: Any, about: str | None, numbers: Sequence[int], kind: str = "lambda") -> None:
        """These are nobody else's from now on."""
        counted, stem = run.lambdas or {}, prefix_of(about, kind)
        counted[stem] = max([counted.get(stem, 0), *numbers])
        run.lambdas = counted
        if self._known:
            self._taken.update([(stem, number) for number in numbers])

    def ruled(self, run: Any, call_id: str | None) -> list[int]:
        """A ruling is on record now. Returns the numbers of the lambdas that had a say in it."""
        about = run.parent_call_id if call_id is None else call_id
        for kind in ("lambda", "update"):
            self._times.pop(prefix_of(about, kind), None)
        return self._asked.pop(about, [])


def _may_be(then: str | None, known_as: str, others: Collection[str]) -> bool:
    """Whether one that was known as this `then` may be the same, under another name: nobody else is, and its seam is the same."""
    was = _TIMES.sub("", then or "")
    return not was or (was not in others and was.rpartition(" at ")[2] == known_as.rpartition(" at ")[2])


def prefix_of(about: str | None, kind: str = "lambda") -> str:
    """How the names of lambdas begin that are about this call or question, or about neither; a number follows."""
    return kind if about is None else f"{about}/{kind}"


def recall_lambdas(
    run: Any, recall: Any, about: str | None, said: Sequence[int] | int, result: bool = False
) -> list[tuple[str, str, dict[str, Any]]]:  # fmt: skip
    """Count the lambdas of a recorded ruling, and what they did. Returns the rulings about their calls: seam, call, data.

    The record has `said` their numbers; an older one, how many there had been by then. Those about a call's `result` have been
    asked about its progress before.
    """
    past, stem = recall.past, prefix_of(about)
    numbers = range((run.lambdas or {}).get(stem, 0) + 1, said + 1) if isinstance(said, int) else said
    recall.names.come_to(run, about, numbers)
    holder = past.calls.get(about) if result and about is not None else None
    updates = [inner for inner in holder.inner if inner.startswith(f"{about}/update_")] if holder is not None else []
    prefixes = [*updates, *[f"{stem}_{n}" for n in numbers]]
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
