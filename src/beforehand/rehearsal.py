"""What stands in for an agent where a recorded run is gone over again: its journal only remembers, its model is absent, and its
tools know what they made of the arguments they were given.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

from .calls import Call, RecordEnds, nested_call
from .errors import Aborted
from .frozen import EMPTY_DICT, FrozenDict, freeze, thaw
from .hooks.registry import HookSet
from .journal.codec import message_of, result_of
from .journal.past import BEFORE_CALLS, Past
from .journal.pastcalls import PastCall
from .journal.recall import Recall
from .journal.recalled import PastReply, PastRuling
from .limits import Limits, Recovery
from .messages import AssistantMessage, Options, Request, ToolSpec
from .models.base import NO_CALL_INFO, CallInfo, Model, ModelEvent
from .plan import AROUND, HookSource, Plan
from .schema import JsonSchema, Rejected, read_object, to_json
from .tools import Tool, ToolResult

LAMBDA = re.compile(r"(?:lambda|update)_\d+")
"""How a lambda at work is named within its run, or within what it is about."""


LAST = frozenset({"on_message", "finish_turn"})
"""Seams that come after the last record on the line of a run that is over."""


class Rehearsal(Recall):
    """A journal that only remembers. Where a run would go on by itself, `RecordEnds` stops it."""

    rehearsal = True

    def __init__(self, past: Past, depth: int = 0) -> None:
        """`depth` is 1 for the run of a sub-agent, 2 for that of a sub-agent's sub-agent, and so on."""
        super().__init__(past)
        self._waiting = past.waiting()
        self.added_to: set[str] = set()
        """The calls whose result hooks at 13 had seen without what the core adds to it then."""
        self._around = AROUND * depth
        self._first_counts = dict.fromkeys(self._outermost(past.fired), 0) | self._outermost(past.start.get("fired", {}))
        self._counts_now = dict(self._first_counts)
        self.counts = self._counts_now
        """How often each rule with a limit had fired, as far as the record tells, before what is gone over now."""

    def _outermost(self, fired: dict[str, int]) -> dict[str, int]:
        """Of these counts those of the rules of the agent that nobody called, which are not a sub-agent's own."""
        found = {key.removeprefix(self._around): n for key, n in fired.items() if key.startswith(self._around)}
        return {key: n for key, n in found.items() if not key.startswith(AROUND)}

    def _restore_counts(self, run: Any, fired: dict[str, int]) -> None:
        for key, n in self._outermost(fired).items():
            self._counts_now[key] = max(n, self._counts_now.get(key, 0))  # calls are gone over as asked, not as they ended

    def past_ruling(self, run: Any, seam: str, call_id: str | None) -> PastRuling | None:
        self.counts = dict(self._counts_now)
        if call_id is not None and self._was_aborted_before(seam, call_id):
            raise Aborted("aborted before its hooks were asked")
        return super().past_ruling(run, seam, call_id)

    def past_ruling_of_call(self, run: Any, seam: str, call_id: str) -> dict[str, Any] | None:
        data = super().past_ruling_of_call(run, seam, call_id)
        if data and "fired_before" in data:  # calls of one reply end in any order
            before = data["fired_before"]
            ends = {key: bisect_right(grown, before, key=itemgetter(0)) for key, grown in self._grown.items()}
            self.counts = self._first_counts | {key: self._grown[key][end - 1][1] for key, end in ends.items() if end}
            self._came_by(data)
        return data

    def _came_by(self, data: dict[str, Any]) -> None:
        """Nobody has decided anything about it: what rules have fired since the ruling before, they fired elsewhere by then."""
        if not data.get("decisions"):
            self.counts = self.counts | self._outermost(data.get("fired", {}))

    @cached_property
    def _grown(self) -> dict[str, list[tuple[int, int]]]:
        """Each count as it grew: the how-manieth firing on record that was, and how often the rule had fired then."""
        found: dict[str, list[tuple[int, int]]] = {}
        for number, fired in enumerate(() if self.past is None else self.past.firings, 1):
            for key, n in self._outermost(fired).items():
                found.setdefault(key, []).append((number, n))
        return found

    def _was_aborted_before(self, seam: str, call_id: str) -> bool:
        """Whether a call was aborted before it came to this seam."""
        call = self.past_call(call_id)
        if call is None or call.intent is not None or call.outcome is None or seam not in BEFORE_CALLS:
            return False
        return call.outcome["outcome"] == "aborted" and not call.rulings.get(seam)

    def past_reply(self, run: Any) -> PastReply | None:
        self.counts = dict(self._counts_now)
        reply = super().past_reply(run)
        if reply is not None and not reply.decisions:
            self.counts = dict(self._counts_now)
        return reply

    def begin(self, run: Any) -> None:
        run.journal = self
        self.refill(run)

    def requeue(self, run: Any, taken: Sequence[int | None] = ()) -> None:
        """What no turn took was in the queues, and hooks at 2 saw it."""
        for number, written in self._waiting.items():
            if number not in taken:
                message = message_of(written)
                (run.queues.steering if message.origin == "steer" else run.queues.follow_up).append(message)

    async def go_live(self, run: Any) -> None:
        raise RecordEnds

    def _past_ruling_on_line(self, run: Any, seam: str, stored: int) -> dict[str, Any] | None:
        found = super()._past_ruling_on_line(run, seam, stored)
        if found:
            self._came_by(found)
        if found is None and self.line:
            return {}  # nobody was asked then, and rulings follow
        if found is None and seam in LAST and self.past is not None and self.past.end is not None:
            return {}  # nobody was asked then, so there is no record of it
        return found

    async def failed(self, run: Any, error: Exception, *_: Any) -> None:
        if not self.past_failure():
            raise RecordEnds

    def past_retry(self, run: Any) -> dict[str, Any]:
        again = super().past_retry(run)
        if again is None:
            raise RecordEnds
        return again

    def past_outcome(self, run: Any, call_id: str) -> tuple[str, ToolResult] | None:
        """What became of a call, with what its body gave before the hooks at 13, if that was kept."""
        call = self.past_call(call_id)
        if call is not None and call.outcome is not None and "raw" in call.outcome:
            call.outcome["read"], call.outcome["result"] = call.outcome["result"], call.outcome.pop("raw")
        return super().past_outcome(run, call_id)

    def finished(self, call: Call, limit: int | None) -> None:
        """The result of a call is on record with what the core adds to it: that a person has changed it, or that it was cut."""
        if call.edits or (limit is not None and len(call.result.text) > limit):
            self.added_to.add(call.id)
        call.edits = 0

    def outcome(self, run: Any, call: Call, raw: ToolResult | None) -> None:
        """A call is settled. What the model has read stands, since that is what came next."""
        past = self.past_call(call.id)
        if past is not None and past.outcome is not None and call.outcome != "pending":
            call.outcome = past.outcome["outcome"]
            call.result = result_of(past.outcome.get("read", past.outcome["result"]))

    def inner_calls(self, call_id: str) -> list[tuple[str, str, Any]]:
        """The calls made inside this one: id, tool, arguments as they were before hooks shaped them."""
        found = []
        outer = self.past_call(call_id)
        for inner_id in outer.inner if outer is not None else ():
            call = self.past_call(inner_id)
            if call is not None and call.name is not None and (known := _args_of(call)) is not None:
                found.append((inner_id, call.name, known))
        return found

    def storing(self, store: Any) -> Any:
        return store

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Nothing is written."""

    decided = ruled = ruled_again = receiving = note = text = direct = released = _nothing
    compacting = retracted = ask = replied = retried = ends = _nothing

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
        known = call.unshaped(number)
        if known is not None:
            self.made[text] = freeze(known)
            self.defaults |= {name: value for name, value in known.items() if name not in _object(text)}
        elif call.outcome is not None and call.outcome["outcome"] == "invalid" and not call.ruling("before_tool_call", number):
            self.made[text] = None
        elif number == 0 and call.intent is not None:  # an older record, which has them as hooks at 11 had shaped them
            self.made[text] = freeze({**call.intent["args"], **_object(text)})


def calls_of_lambdas(past: Past) -> list[tuple[int, Call]]:
    """The calls that lambdas have made through their bridge, each with its turn: no lambda makes them now."""
    found = []
    for call_id, call in past.calls.items():
        by = call_id.rpartition("/")[0]
        about, _, name = by.rpartition("/")
        a_call = by not in past.calls or past.calls[by].name is not None  # a model may name its own calls like that
        known = call.outcome or call.intent
        if LAMBDA.fullmatch(name) and not a_call and known is not None and (args := _args_of(call)) is not None:
            found.append((known["turn"], nested_call(call_id, known["name"], args, about or by)))
    return found


def plan_of(past: Past, specs: Mapping[str, ToolSpec]) -> Plan:
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
        found = call.intent is not None or call.rulings or (call.outcome or {}).get("outcome") == "invalid"
        if not name or (name not in accepted and not found):  # nobody knows that tool: it was not found, or nobody looked for it
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


def _args_of(call: PastCall) -> dict[str, Any] | None:
    """The arguments with which code has made a call, as near to those as the record comes."""
    known = call.unshaped()
    return call.intent["args"] if known is None and call.intent is not None else known


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
