"""What a recorded lambda did through its bridge: the calls it made and the questions it asked, which are not done again.

A lambda is known by its prefix: `lambda_1`, `lambda_2`, ... of the run, of the tool call or of the question it is about, and
`update_1`, ... where it is about progress of a call. A run that goes on gives each the number that it had, or one would be
given what another one got.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from ..messages import Usage
from .codec import read, result_of
from .fingerprint import were_there
from .past import Past
from .pastcalls import PastCall


_PREFIX = re.compile(r"((?:.*/)?(?:lambda|update))_(\d+)", re.DOTALL).fullmatch
_TIMES = re.compile(r" \(\d+\)$")

Told = tuple[str, str | None, dict[str, Any]]
"""A ruling: its seam, the call it is about, and what is recorded of it."""


class _Then(NamedTuple):
    """What is on record of a lambda that acted: what it was known as, in which turn that was, and the hooks there were."""

    by: str | None
    turn: int | None
    hooks: dict[str, str]

    def may_be(self, this: str, hooks: Sequence[Any]) -> bool:
        """Whether the lambda that is known as `this` may be the same, under another name: of those that there are now nobody else
        is, its seam is the same, and it was not there beside it then."""
        was = _TIMES.sub("", self.by or "")
        if not was:
            return True
        if was.rpartition(" at ")[2] != this.rpartition(" at ")[2] or was in [_known_as(hook) for hook in hooks]:
            return False
        return this not in [_known_as(hook) for hook in were_there(self.hooks, hooks)]


def _known_as(hook: Any) -> str | None:
    known = getattr(hook.fn, "known_as", None)
    return known if isinstance(known, str) else None


class Names:
    """The names of lambdas that were at work when a process ended. Whoever is at work again gets the one that it had, also
    where others have come or gone beside it: else it would do again what it has done.
    """

    def __init__(self, past: Past | None) -> None:
        self._known: dict[str, dict[int, _Then]] = {}
        """Who had which number, by what a name begins with."""
        self._taken: set[tuple[str, int]] = set()
        """The numbers of those that have been asked again, or gone over."""
        self._asked: dict[str | None, list[int]] = {}
        """The numbers of those that have been asked since the last ruling, by what it will be about."""
        self._times: dict[str, Counter[str]] = {}
        """How often each has been asked since then. Some act only later than the first time, and leave nothing before."""
        self._known_as: dict[str, str] = {}
        """What those are known as that have been asked."""
        for name, call in () if past is None else past.calls.items():
            if "/" in name and (found := _PREFIX(name.rpartition("/")[0])) is not None:
                numbers, number = self._known.setdefault(found[1], {}), int(found[2])
                said = past.beside.get(name) or call.first_said  # type: ignore[union-attr]
                if number not in numbers or numbers[number].by is None:
                    numbers[number] = _Then(said.get("lambda"), said.get("turn"), said.get("among", [{}])[0])

    def number(self, run: Any, about: str | None, kind: str, known_as: str) -> tuple[int, str]:
        """The number of the lambda that is asked now, and what it is known as in the record.

        One that is not there any more is known by its number and its seam, for its file may have another name by now. What was
        done in another turn was done about something else.
        """
        stem = prefix_of(about, kind)
        times = self._times.setdefault(stem, Counter())
        times[known_as] += 1
        this = known_as if times[known_as] == 1 else f"{known_as} ({times[known_as]})"
        known = self._known.get(stem)
        if known is None:
            number: int = (run.lambdas or {}).get(stem, 0) + 1
        else:
            left = {n: then for n, then in known.items() if (stem, n) not in self._taken and then.turn in (None, run.turn)}
            own = [n for n, then in left.items() if then.by == this]
            free = (n for n in count(1) if n not in known or (n in left and left[n].may_be(known_as, run.hooks.hooks)))
            number = min(own) if own else next(n for n in free if (stem, n) not in self._taken)
        self._known_as[f"{stem}_{number}"] = this
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

    def maker(self, call_id: str) -> str | None:
        """What the lambda is known as that makes this call, if one does."""
        return self._known_as.get(call_id.rpartition("/")[0])


def prefix_of(about: str | None, kind: str = "lambda") -> str:
    """How the names of lambdas begin that are about this call or question, or about neither; a number follows."""
    return kind if about is None else f"{about}/{kind}"


def is_made_again(past: Past, call_id: str) -> bool:
    """Whether this call was made by a lambda that has decided nothing since: it makes it again when the run goes on."""
    if (past.end is not None and past.end.get("error") is None) or _PREFIX(call_id.rpartition("/")[0]) is None:
        return False
    heard = _heard(past)
    while call_id := call_id.rpartition("/")[0]:
        around = past.calls.get(call_id)
        if call_id in heard or call_id in past.beside or (around is not None and around.outcome is not None):
            return False
    return True


def _heard(past: Past) -> set[str]:
    """The lambdas that had a say in what is on record for good. Those that give keys are asked again until there is an answer."""
    answered = max([place for place, item in enumerate(past.line) if item.is_answer], default=-1)
    on_line = [(item.data, place < answered) for place, item in enumerate(past.line) if item.kind in ("ruling", "reply")]
    of_calls = [(data, False) for call in past.calls.values() for rulings in call.rulings.values() for data in rulings]
    heard: set[str] = set()
    for data, over in on_line + of_calls:
        if "lambdas" in data and ("again" not in data or "failed" in data or (over and data["seam"] == "get_api_key")):
            said, about = data["lambdas"], data.get("call") or past.start.get("parent_call")
            heard |= {f"{prefix_of(about)}_{n}" for n in (range(1, said + 1) if isinstance(said, int) else said)}
    return heard


def recall_lambdas(
    run: Any, recall: Any, about: str | None, said: Sequence[int] | int, result: bool = False
) -> list[Told]:  # fmt: skip
    """Count the lambdas of a recorded ruling, and what they did. Returns the rulings about that: seam, call, data.

    The record has `said` their numbers; an older one, how many there had been by then. Those about a call's `result` have been
    asked about its progress before.
    """
    past, stem = recall.past, prefix_of(about)
    numbers = range((run.lambdas or {}).get(stem, 0) + 1, said + 1) if isinstance(said, int) else said
    recall.names.come_to(run, about, numbers)
    holder = past.calls.get(about) if result and about is not None else None
    updates = [inner for inner in holder.inner if inner.startswith(f"{about}/update_")] if holder is not None else []
    prefixes = [*updates, *[f"{stem}_{n}" for n in numbers]]
    return [ruling for prefix in prefixes for ruling in _did(run, recall, prefix)]


def recall_question(run: Any, recall: Any, by: str) -> Iterator[Told]:
    """Count a lambda's question, and what lambdas did that were asked about it. Yields what was ruled about it and about that."""
    past = recall.past
    if by in past.beside:
        spent(run, past.beside[by])
    yield from ((seam, None, data) for seam, data in past.judged.get(by, {}).items())
    for prefix in past.calls[by].inner:
        yield from _did(run, recall, prefix)


def _did(run: Any, recall: Any, prefix: str) -> Iterator[Told]:
    holder = recall.past.calls.get(prefix)
    for call_id in () if holder is None else holder.inner:
        if call_id.startswith(f"{prefix}/ask_"):
            yield from recall_question(run, recall, call_id)
            continue
        call = recall.past.calls[call_id]
        if call.outcome is not None:
            _count(run, recall, call_id, call)
            yield "lambda", call_id, {"notes": call.notes, "effects": call.outcome.get("queued", ())}
        yield from (("after_tool_call", call_id, data) for data in call.progress)
        for seam, rulings in call.rulings.items():
            yield from ((seam, call_id, data) for data in rulings)
        yield from _did(run, recall, call_id)


def _count(run: Any, recall: Any, call_id: str, call: PastCall) -> None:
    """Count a call that is over, and what was decided in the run of a sub-agent that it ran."""
    assert call.outcome is not None
    run.tools_run += call.intent is not None and call.outcome["outcome"] != "invalid"
    usage = result_of(call.outcome["result"]).usage
    if usage is not None:
        run.add_usage(usage, "")
    recall.count_outcome(run, call.outcome)
    run.decisions += [decision for decision in recall.inside.get(call_id, ()) if decision not in run.decisions]


def spent(run: Any, answer: dict[str, Any]) -> None:
    """A question beside the conversation was sent, and cost this."""
    run.requests_sent += 1
    if "usage" in answer:
        run.add_usage(read(answer["usage"], Usage), answer["model"])
