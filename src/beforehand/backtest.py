"""What other hooks would have changed: a set of hooks is put to the recorded values of past runs.

Each run goes over its past again, with the recorded decisions, replies and results; no model is asked and no tool runs. At
every gate and shape seam the other hooks get the value that was there, as hooks in the shadow. What follows on a changed
decision is not known: the record is played on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from .calls import RecordEnds
from .comparing import KINDS
from .durable import Recorded, each_hook, load
from .emitter import Emitter
from .errors import BeforehandError, JournalUnreadable
from .frozen import Frozen
from .history import History
from .hooks.registry import HookSet
from .journal.codec import read
from .journal.fingerprint import same_at
from .journal.past import Past
from .journal.queries import RunRow
from .journal.store import Store
from .journal.total import no_key, wrong_key
from .journal.verify import has_another_key
from .loop import run_loop
from .messages import Message, ToolSpec
from .queues import Queues
from .recovery import Attempts
from .rehearsal import Rehearsal, calls_of_lambdas, plan_of
from .seams import BY_NAME
from .shadow import Difference, Shadow
from .state import RunState
from .toolcall import run_nested


class Backtest(Frozen, kw_only=True):
    """What a backtest came to. `unreadable` are runs that could not be gone over, each with the reason."""

    runs: int
    values: int
    """How many recorded values the hooks were asked about."""
    differences: tuple[Difference, ...]
    unreadable: tuple[str, ...] = ()
    unknown: int = 0
    """How many values were refused that are on no record (replies, prompts, results), so that what other hooks make of them is
    not known."""

    def count(self, kind: str) -> int:
        return sum(difference.kind == kind for difference in self.differences)

    @property
    def counts(self) -> dict[str, int]:
        """How many differences of each kind."""
        return {kind: self.count(kind) for kind in KINDS}


async def backtest(
    journal: Store, hooks: Callable[[str], HookSet], *, since: int = 0, run_ids: Iterable[str] | None = None,
    progress: Callable[[int, int], None] | None = None, rules: Any = None,
) -> Backtest:  # fmt: skip
    """Put `hooks` (a set for each loop's name) to the values of every recorded run, or of those named or begun `since`.

    A sub-agent's run has of them what it inherits of its parent's: those at 8 to 13. Its own are not asked again; what they
    decided stands.

    `since` is in microseconds since 1970; `progress` is told how many runs of how many are done. `rules` is the set of rules
    among the hooks: those with a limit have fired in a run as often as its record says, and never before it if it says nothing.
    Of a signed journal nothing can be trusted without its key, or with another one: `JournalUnreadable`.
    """
    if journal.key is None and await journal.reading(lambda: journal.signed):
        raise JournalUnreadable(no_key(journal.path))
    if await journal.reading(has_another_key, journal):
        raise JournalUnreadable(wrong_key(journal.path))
    wanted = None if run_ids is None else set(run_ids)
    known = {row.run_id: row for row in await journal.reading(journal.runs)}
    rows = [r for r in known.values() if r.first.at >= since and (wanted is None or r.run_id in wanted)]
    differences: list[Difference] = []
    unreadable: list[str] = []
    values = unknown = 0
    for number, row in enumerate(rows, 1):
        try:
            recorded = await journal.reading(load, journal, row.run_id, go_on=False)
            before = await journal.reading(recorded.before)
            if rules is not None:
                rules.set_counts(dict.fromkeys(rules.counts(), 0))
            theirs, own = _hooks_of(row, known, hooks)
            shadow = Shadow(theirs, again=True, own=own, same=_same_hooks(recorded.past, theirs, own), rules=rules)
            rehearsal = Rehearsal(recorded.past, depth=_depth(row, known))
            await _go_over(recorded, before, shadow, rehearsal, _specs_of(row, known))
            differences += shadow.differences
            values += shadow.judged
            unknown += shadow.unknown
        except (BeforehandError, LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
            unreadable.append(f"run {row.run_id}: {error}")
        if progress is not None:
            progress(number, len(rows))
    done = len(rows) - len(unreadable)
    return Backtest(
        runs=done, values=values, differences=tuple(differences), unreadable=tuple(unreadable), unknown=unknown
    )  # fmt: skip


def _hooks_of(row: RunRow, known: Mapping[str, RunRow], hooks: Callable[[str], HookSet]) -> tuple[HookSet, frozenset[str] | None]:
    """The hooks that a run would have had, and of a sub-agent's run also the names of those that it had of itself."""
    start = row.first.data
    if "parent_call" not in start:
        return hooks(start["loop"]), None
    around, named = HookSet((), start["loop"]), set(start["hooks"])
    outer = known.get(row.run_id.removesuffix(f"/{start['parent_call']}"))
    if outer is None:
        return around.inheriting(hooks("main")), frozenset()
    inherited = {name for name in outer.first.data["hooks"] if BY_NAME[name.rpartition(" at ")[2]].inherited}
    if inherited and not inherited & named:  # it was given to its parent with inherit=False
        return around, frozenset(named)
    theirs, own = _hooks_of(outer, known, hooks)
    return around.inheriting(theirs), frozenset(named - inherited) | (own or frozenset())


def _specs_of(row: RunRow, known: Mapping[str, RunRow]) -> dict[str, ToolSpec]:
    """The tools of a run as a model was told of them: with the first run of its conversation. An older record has none."""
    start = first = row.first.data
    while "specs" not in first and first["base"].get("after") in known:
        first = known[first["base"]["after"]].first.data
    if first["tools"] != start["tools"]:
        return {}
    return {spec.name: spec for spec in read(first.get("specs", ()), tuple[ToolSpec, ...])}


def _depth(row: RunRow, known: Mapping[str, RunRow]) -> int:
    return 0 if row.parent is None or row.parent not in known else 1 + _depth(known[row.parent], known)


async def _go_over(
    recorded: Recorded, before: Sequence[Message], shadow: Shadow, rehearsal: Rehearsal, specs: Mapping[str, ToolSpec]
) -> None:  # fmt: skip
    past = recorded.past
    loop = past.start["loop"]
    history = History(before)
    queues = Queues(*past.start["queue_modes"])
    run = RunState(plan_of(past, specs), history, Emitter(), queues)
    run.set_id(recorded.run_id)
    run.loop = loop
    run.poll_first = past.start["poll_first"]
    run.use_limits(recorded.limits.with_(slow_hook_ms=None, context_tokens=None))
    run.attempts = Attempts()
    run.shadow = shadow
    run.hooks = shadow.visiting(HookSet((), loop), _seams_asked(past))
    rehearsal.begin(run)
    calls = calls_of_lambdas(past)
    with suppress(RecordEnds):
        await run_loop(run, recorded.prompts)
    for turn, call in calls:
        run.turn = turn
        with suppress(RecordEnds):
            await run_nested(run, call)


def _same_hooks(past: Past, hooks: HookSet, own: frozenset[str] | None) -> frozenset[str]:
    """The seams at which a run had these very hooks."""
    then = {name: mark for name, mark in past.start["hooks"].items() if name not in (own or ())}
    return same_at(then, each_hook(hooks))


def _seams_asked(past: Past) -> set[str]:
    on_line = {item.data["seam"] for item in past.line if item.kind == "ruling"}
    return on_line.union(*[call.rulings for call in past.calls.values()])
