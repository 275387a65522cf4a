"""What other hooks would have changed: a set of hooks is put to the recorded values of past runs.

Each run goes over its past again, with the recorded decisions, replies and results; no model is asked and no tool runs. At
every gate and shape seam the other hooks get the value that was there, as hooks in the shadow. What follows on a changed
decision is not known: the record is played on as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from .durable import Recorded, load
from .emitter import Emitter
from .errors import BeforehandError, Stop
from .frozen import EMPTY_DICT, Frozen, FrozenDict, freeze
from .history import History
from .hooks.registry import HookSet
from .journal.past import Past, PastCall
from .journal.queries import RunRow
from .journal.recall import Recall
from .journal.store import Store
from .limits import Limits, Recovery
from .loop import run_loop
from .messages import AssistantMessage, Message, Options, Request, ToolSpec
from .models.base import NO_CALL_INFO, CallInfo, Model, ModelEvent
from .plan import HookSource, Plan
from .queues import Queues
from .recovery import Attempts
from .schema import Rejected, read_object, to_json
from .seams import BY_NAME
from .shadow import KINDS, Difference, Shadow
from .state import RunState
from .tools import Tool, ToolResult


class Backtest(Frozen, kw_only=True):
    """What a backtest came to. `unreadable` are runs that could not be gone over, each with the reason."""

    runs: int
    values: int
    """How many recorded values the hooks were asked about."""
    differences: tuple[Difference, ...]
    unreadable: tuple[str, ...] = ()

    def count(self, kind: str) -> int:
        return sum(difference.kind == kind for difference in self.differences)

    @property
    def counts(self) -> dict[str, int]:
        """How many differences of each kind."""
        return {kind: self.count(kind) for kind in KINDS}


async def backtest(
    journal: Store, hooks: Callable[[str], HookSet], *, since: int = 0, run_ids: Iterable[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Backtest:  # fmt: skip
    """Put `hooks` (a set for each loop's name) to the values of every recorded run, or of those named or begun `since`.

    A sub-agent's run has of them what it inherits of its parent's: those at 8 to 13. Its own are not asked again; what they
    decided stands.

    `since` is in microseconds since 1970; `progress` is told how many runs of how many are done.
    """
    wanted = None if run_ids is None else set(run_ids)
    known = {row.run_id: row for row in await journal.reading(journal.runs)}
    rows = [r for r in known.values() if r.first.at >= since and (wanted is None or r.run_id in wanted)]
    differences: list[Difference] = []
    unreadable: list[str] = []
    values = 0
    for number, row in enumerate(rows, 1):
        try:
            recorded = await journal.reading(load, journal, row.run_id)
            before = await journal.reading(recorded.before)
            shadow = await _go_over(recorded, before, *_hooks_of(row, known, hooks))
            differences += shadow.differences
            values += shadow.judged
        except (BeforehandError, LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
            unreadable.append(f"run {row.run_id}: {error}")
        if progress is not None:
            progress(number, len(rows))
    done = len(rows) - len(unreadable)
    return Backtest(runs=done, values=values, differences=tuple(differences), unreadable=tuple(unreadable))


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
    return around.inheriting(_hooks_of(outer, known, hooks)[0]), frozenset(named - inherited)


async def _go_over(recorded: Recorded, before: Sequence[Message], hooks: HookSet, own: frozenset[str] | None) -> Shadow:
    past = recorded.past
    loop = past.start["loop"]
    history = History(before)
    queues = Queues(*past.start["queue_modes"])
    run = RunState(_plan(past), history, Emitter(), queues)
    run.set_id(recorded.run_id)
    run.loop = loop
    run.poll_first = past.start["poll_first"]
    run.use_limits(recorded.limits.with_(max_result_chars=None, slow_hook_ms=None, context_tokens=None))
    run.attempts = Attempts()
    run.shadow = Shadow(hooks, again=True, own=own)
    run.hooks = run.shadow.visiting(HookSet((), loop), _seams_asked(past))
    Rehearsal(past).begin(run)
    try:
        await run_loop(run, recorded.prompts)
    except RecordEnds:
        pass
    return run.shadow  # type: ignore[no-any-return]


def _seams_asked(past: Past) -> set[str]:
    on_line = {item.data["seam"] for item in past.line if item.kind == "ruling"}
    return on_line.union(*[call.rulings for call in past.calls.values()])


# --- what stands in for an agent ------------------------------------------------------------------


class RecordEnds(Stop):
    """The record has no more to say about this run."""


class Rehearsal(Recall):
    """A journal that only remembers. Where a run would go on by itself, `RecordEnds` stops it."""

    rehearsal = True

    def begin(self, run: Any) -> None:
        run.journal = self
        self.refill(run)

    async def go_live(self, run: Any) -> None:
        raise RecordEnds

    async def failed(self, run: Any, error: Exception) -> None:
        if not self.past_failure():
            raise RecordEnds

    def past_retry(self) -> dict[str, Any]:
        again = super().past_retry()
        if again is None:
            raise RecordEnds
        return again

    def past_outcome(self, run: Any, call_id: str) -> tuple[str, ToolResult] | None:
        """What became of a call, with what its body gave before the hooks at 13, if that was kept."""
        call = self.past_call(call_id)
        if call is not None and call.outcome is not None and "raw" in call.outcome:
            call.outcome["result"] = call.outcome.pop("raw")
        return super().past_outcome(run, call_id)

    def inner_calls(self, call_id: str) -> list[tuple[str, str, Any]]:
        """The calls made inside this one: id, tool, arguments as they were before hooks shaped them."""
        found = []
        outer = self.past_call(call_id)
        for inner_id in outer.inner if outer is not None else ():
            call = self.past_call(inner_id)
            if call is None or call.outcome is None:
                continue
            known = call.unshaped()
            if known is None and call.intent is not None:
                known = call.intent["args"]
            if known is not None:
                found.append((inner_id, call.outcome["name"], known))
        return found

    def storing(self, store: Any) -> Any:
        return store

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Nothing is written."""

    decided = ruled = ruled_again = receiving = note = text = direct = released = _nothing
    compacting = retracted = outcome = ask = replied = retried = _nothing

    def turn(self, run: Any, cause: str | None, incoming: Sequence[Any]) -> None:
        self._next("turn")

    def took(self, messages: Sequence[Any]) -> None:
        self._next("took")


class Absent(Model):
    """The model of a recorded run, which nobody asks any more."""

    def __init__(self, provider: str, name: str) -> None:
        self.provider, self.name = provider, name

    def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncIterator[ModelEvent]:
        raise RecordEnds


class _Accepted:
    """A schema that knows what was made of each text of arguments, and what arguments that are left out come to."""

    parameters: dict[str, Any] = {"type": "object"}  # noqa: RUF012 - never changed

    def __init__(self) -> None:
        self.made: dict[str, FrozenDict | None] = {}
        self.defaults: dict[str, Any] = {}

    def check(self) -> None:
        """Nothing is known that could be wrong."""

    def accept(self, text: str) -> FrozenDict:
        if text not in self.made:
            return FrozenDict(freeze({**self.defaults, **read_object(text)}))
        found = self.made[text]
        if found is None:
            raise Rejected([("", "were refused")])
        return found

    def decode(self, args: Any) -> dict[str, Any]:
        return dict(args)

    def learn(self, text: str, call: PastCall, number: int = 0) -> None:
        """What became of `text` in one round of a call: the first, or the one after a person has edited it so often."""
        known = call.unshaped(number)
        if known is not None:
            self.made[text] = freeze(known)
            self.defaults |= {name: value for name, value in known.items() if name not in _object(text)}
        elif call.outcome is not None and call.outcome["outcome"] == "invalid" and not call.ruling("before_tool_call", number):
            self.made[text] = None
        elif number == 0 and call.intent is not None:  # an older record, which has them as hooks at 11 had shaped them
            self.made[text] = freeze({**call.intent["args"], **_object(text)})


def _plan(past: Past) -> Plan:
    start = past.start
    return Plan(
        model=Absent(start["provider"], start["model"]), system=start["system"],
        dynamic=(lambda _: "",) if any(item.kind == "instructions" for item in past.line) else (), tools=_tools(past),
        hooks=HookSource(HookSet()), limits=Limits(), options=Options(), tool_mode=start["tool_mode"], prices={}, on_ask=None,
        resolve_model=lambda name: Absent(*name.split(":", 1)), resolved={}, name=start["agent"],
        recovery=Recovery() if any(item.kind == "retried" for item in past.line) else None,
    )  # fmt: skip


def _tools(past: Past) -> tuple[Tool, ...]:
    """The run's tools, as far as they can be known: their names, and what they made of each call's arguments."""
    raw = {
        part.id: part
        for item in past.line if isinstance(item.message, AssistantMessage)
        for part in item.message.tool_calls
    }  # fmt: skip
    accepted = {name: _Accepted() for name in past.start["tools"]}
    for call_id, call in past.calls.items():
        name = raw[call_id].name if call_id in raw else (call.intent or call.outcome or {}).get("name", "")
        if not name or (call.outcome is not None and call.outcome["outcome"] == "not_found"):
            continue
        schema = accepted.setdefault(name, _Accepted())
        if call_id in raw:
            schema.learn(to_json(raw[call_id].arguments), call)
        edits = [answer["answer"]["args"] for answer in call.answers if answer["answer"]["is"] == "Edit"]
        for number, args in enumerate(edits, 1):
            schema.learn(to_json(args), call, number)
    return tuple([_tool(name, schema) for name, schema in accepted.items()])


def _object(text: str) -> dict[str, Any]:
    """The arguments that a text holds, before anything is known of what the tool takes."""
    try:
        return read_object(text)
    except Rejected:
        return {}


def _tool(name: str, schema: _Accepted) -> Tool:
    return Tool(
        name=name, description="", parameters=EMPTY_DICT, spec=ToolSpec(name, "", EMPTY_DICT), unguarded=_no_body,
        where="recorded", is_async=True, takes_context=False, direct=False, _schema=schema,
    )  # fmt: skip


async def _no_body(**_: Any) -> Any:
    raise RecordEnds
