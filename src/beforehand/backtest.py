"""What other hooks would have changed: a set of hooks is put to the recorded values of past runs.

Each run goes over its past again, with the recorded decisions, replies and results; no model is asked and no tool runs. At
every gate and shape seam the other hooks get the value that was there, as hooks in the shadow. What follows on a changed
decision is not known: the record is played on as it is.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from .calls import Call
from .comparing import KINDS
from .durable import Recorded, each_hook, load
from .emitter import Emitter
from .errors import BeforehandError, Stop
from .frozen import EMPTY_DICT, Frozen, FrozenDict, freeze, thaw
from .history import History
from .hooks.registry import HookSet
from .journal.codec import read
from .journal.fingerprint import same_at
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
from .schema import JsonSchema, Rejected, read_object, to_json
from .seams import BY_NAME
from .shadow import Difference, Shadow
from .state import RunState
from .toolcall import nested_call, run_nested
from .tools import Tool, ToolResult


LAMBDA = re.compile(r"lambda_\d+")
"""How a lambda at work is named within its run, or the call that it is about."""


class Backtest(Frozen, kw_only=True):
    """What a backtest came to. `unreadable` are runs that could not be gone over, each with the reason."""

    runs: int
    values: int
    """How many recorded values the hooks were asked about."""
    differences: tuple[Difference, ...]
    unreadable: tuple[str, ...] = ()
    unknown: int = 0
    """How many replies were refused that are on no record, so that what other hooks make of them is not known."""

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
    values = unknown = 0
    for number, row in enumerate(rows, 1):
        try:
            recorded = await journal.reading(load, journal, row.run_id, go_on=False)
            before = await journal.reading(recorded.before)
            specs = _specs_of(row, known)
            shadow = await _go_over(recorded, before, specs, *_hooks_of(row, known, hooks))
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


async def _go_over(
    recorded: Recorded, before: Sequence[Message], specs: Mapping[str, ToolSpec], hooks: HookSet, own: frozenset[str] | None
) -> Shadow:  # fmt: skip
    past = recorded.past
    loop = past.start["loop"]
    history = History(before)
    queues = Queues(*past.start["queue_modes"])
    run = RunState(_plan(past, specs), history, Emitter(), queues)
    run.set_id(recorded.run_id)
    run.loop = loop
    run.poll_first = past.start["poll_first"]
    run.use_limits(recorded.limits.with_(max_result_chars=None, slow_hook_ms=None, context_tokens=None))
    run.attempts = Attempts()
    run.shadow = Shadow(hooks, again=True, own=own, same=_same_hooks(past, hooks, own))
    run.hooks = run.shadow.visiting(HookSet((), loop), _seams_asked(past))
    Rehearsal(past).begin(run)
    calls = _calls_of_lambdas(past)
    with suppress(RecordEnds):
        await run_loop(run, recorded.prompts)
    for turn, call in calls:
        run.turn = turn
        with suppress(RecordEnds):
            await run_nested(run, call)
    return run.shadow  # type: ignore[no-any-return]


def _calls_of_lambdas(past: Past) -> list[tuple[int, Call]]:
    """The calls that lambdas have made through their bridge, each with its turn: no lambda makes them now."""
    found = []
    for call_id, call in past.calls.items():
        by = call_id.rpartition("/")[0]
        about, _, name = by.rpartition("/")
        a_call = by not in past.calls or past.calls[by].outcome is not None  # a model may name its own calls like that
        if LAMBDA.fullmatch(name) and not a_call and call.outcome is not None and (args := _args_of(call)) is not None:
            found.append((call.outcome["turn"], nested_call(call_id, call.outcome["name"], args, about or by)))
    return found


def _same_hooks(past: Past, hooks: HookSet, own: frozenset[str] | None) -> frozenset[str]:
    """The seams at which a run had these very hooks."""
    then = {name: mark for name, mark in past.start["hooks"].items() if name not in (own or ())}
    return same_at(then, each_hook(hooks))


def _seams_asked(past: Past) -> set[str]:
    on_line = {item.data["seam"] for item in past.line if item.kind == "ruling"}
    return on_line.union(*[call.rulings for call in past.calls.values()])


# --- what stands in for an agent ------------------------------------------------------------------


class RecordEnds(Stop):
    """The record has no more to say about this run."""


LAST = frozenset({"on_message", "finish_turn"})
"""Seams that come after the last record on the line of a run that is over."""


class Rehearsal(Recall):
    """A journal that only remembers. Where a run would go on by itself, `RecordEnds` stops it."""

    rehearsal = True

    def begin(self, run: Any) -> None:
        run.journal = self
        self.refill(run)

    async def go_live(self, run: Any) -> None:
        raise RecordEnds

    def _past_ruling_on_line(self, seam: str) -> dict[str, Any] | None:
        found = super()._past_ruling_on_line(seam)
        if found is None and seam in LAST and self.past is not None and self.past.end is not None:
            return {}  # nobody was asked then, so there is no record of it
        return found

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
            if (known := _args_of(call)) is not None:
                found.append((inner_id, call.outcome["name"], known))
        return found

    def storing(self, store: Any) -> Any:
        return store

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Nothing is written."""

    decided = ruled = ruled_again = receiving = note = text = direct = released = _nothing
    compacting = retracted = outcome = ask = replied = retried = _nothing

    def turn(self, run: Any, cause: str | None, incoming: Sequence[Any]) -> None:
        if self._next("turn") is None:
            raise RecordEnds

    def took(self, messages: Sequence[Any]) -> None:
        self._next("took")


class Absent(Model):
    """The model of a recorded run, which nobody asks any more."""

    def __init__(self, provider: str, name: str) -> None:
        self.provider, self.name = provider, name

    def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncIterator[ModelEvent]:
        raise RecordEnds


class _Accepted:
    """A schema that knows what was made of each text of arguments; any other is judged by the tool's `spec`.

    Of an older record, which does not have that, it knows what arguments that are left out come to, and takes the rest.
    """

    def __init__(self, spec: ToolSpec | None = None) -> None:
        self.spec = spec
        self.parameters: dict[str, Any] = {"type": "object"} if spec is None else thaw(spec.parameters)
        self.made: dict[str, FrozenDict | None] = {}
        self.defaults: dict[str, Any] = {}

    def check(self) -> None:
        """Nothing is known that could be wrong."""

    def accept(self, text: str) -> FrozenDict:
        if text not in self.made:
            return FrozenDict(freeze({**self.defaults, **read_object(text)})) if self.spec is None else self._judge.accept(text)
        found = self.made[text]
        if found is None:
            raise Rejected([("", "were refused")])
        return found

    @cached_property
    def _judge(self) -> JsonSchema:
        return JsonSchema(self.parameters, self.parameters.get("properties", {}).keys(), frozenset(), frozenset(), open=True)

    def decode(self, args: Any) -> dict[str, Any]:
        return dict(args)

    def learn(self, text: str, call: PastCall, number: int = 0) -> None:
        """What became of `text` in one round of a call: the first, or the one after a person has edited it so often."""
        known = _known_args(call, number)
        if known is not None:
            self.made[text] = freeze(known)
            self.defaults |= {name: value for name, value in known.items() if name not in _object(text)}
        elif call.outcome is not None and call.outcome["outcome"] == "invalid" and not _round(call, "before_tool_call", number):
            self.made[text] = None
        elif number == 0 and call.intent is not None:  # an older record, which has them as hooks at 11 had shaped them
            self.made[text] = freeze({**call.intent["args"], **_object(text)})


def _plan(past: Past, specs: Mapping[str, ToolSpec]) -> Plan:
    start = past.start
    return Plan(
        model=Absent(start["provider"], start["model"]), system=start["system"],
        dynamic=(lambda _: "",) if any(item.kind == "instructions" for item in past.line) else (), tools=_tools(past, specs),
        hooks=HookSource(HookSet()), limits=Limits(), options=Options(), tool_mode=start["tool_mode"], prices={}, on_ask=None,
        resolve_model=lambda name: Absent(*name.split(":", 1)), resolved={}, name=start["agent"],
        recovery=Recovery() if any(item.kind == "retried" for item in past.line) else None,
    )  # fmt: skip


def _tools(past: Past, specs: Mapping[str, ToolSpec]) -> tuple[Tool, ...]:
    """The run's tools, as far as they can be known: their specs, and what they made of each call's arguments."""
    raw = {
        part.id: part
        for item in past.line if isinstance(item.message, AssistantMessage)
        for part in item.message.tool_calls
    }  # fmt: skip
    accepted = {name: _Accepted(specs.get(name)) for name in past.start["tools"]}
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
        for shaping in call.rulings.get("prepare_tool_call", ()):
            if (made := shaping.get("changes", {}).get("args")) is not None:
                schema.made.setdefault(to_json(made), freeze(made))
    return tuple([_tool(name, schema) for name, schema in accepted.items()])


def _known_args(call: PastCall, number: int = 0) -> dict[str, Any] | None:
    """What a call's arguments were once they were valid, before hooks shaped them, as far as that is on record.

    After each edit by a person the hooks are asked again: `number` says in which of these rounds.
    """
    shaping, gate = (_round(call, seam, number) for seam in ("prepare_tool_call", "before_tool_call"))
    if "args" in shaping:
        return shaping["args"]  # type: ignore[no-any-return]
    first = [gate.get("original_args"), *[asked["original_args"] for asked in call.asks[:1]]] if number == 0 else []
    unshaped = [] if "changes" in shaping else [gate.get("args"), call.intent["args"] if call.intent and not number else None]
    return next((args for args in [*first, *unshaped] if args is not None), None)


def _args_of(call: PastCall) -> dict[str, Any] | None:
    """The arguments with which code has made a call, as near to those as the record comes."""
    known = _known_args(call)
    return call.intent["args"] if known is None and call.intent is not None else known


def _round(call: PastCall, seam: str, number: int) -> dict[str, Any]:
    rulings = call.rulings.get(seam, ())
    return rulings[number] if number < len(rulings) else {}


def _object(text: str) -> dict[str, Any]:
    """The arguments that a text holds, before anything is known of what the tool takes."""
    try:
        return read_object(text)
    except Rejected:
        return {}


def _tool(name: str, schema: _Accepted) -> Tool:
    spec = schema.spec or ToolSpec(name, "", EMPTY_DICT)
    return Tool(
        name=name, description=spec.description, parameters=spec.parameters, spec=spec, unguarded=_no_body,
        where="recorded", is_async=True, takes_context=False, direct=False, _schema=schema,
    )  # fmt: skip


async def _no_body(**_: Any) -> Any:
    raise RecordEnds
