"""A rule made ready: its filters compiled, its templates parsed, its firings counted."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from beforehand.decisions import Answer, Ask, Block, Decision, End, Interrupt, Queue, Resend, Verdict
from beforehand.frozen import canonical
from beforehand.hooks.hook import Hook
from beforehand.messages import AssistantMessage, Message, Text, Thinking, ToolCall, ToolMessage, UserMessage
from beforehand.seams import BY_NAME
from beforehand.stream.patterns import Match

from . import schema
from .match import ArgumentTest, Finder, groups_of, map_strings
from .templates import Template, as_text, dump
from .voice import Voice, say

NOTES: tuple[type, ...] = (schema.Log, schema.Warn, schema.Info, schema.Debug)


class Counter:
    """How often a rule has fired in all runs of an agent, and how often it may. A reload hands it on if the rule stays."""

    __slots__ = ("fired", "limit", "unrecorded")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.fired = 0
        self.unrecorded: dict[tuple[str, str], int] = {}
        """How often about what is not decided on record yet, by run and by what it was about. Records about all else leave that
        out, and should the run go on it is asked about again.
        """

    def spent(self) -> bool:
        return self.limit is not None and self.fired >= self.limit


class Rule:
    """One enabled rule of a file. `position` counts the rules of its file from 0, `line` is where it begins."""

    def __init__(
        self, definition: schema.RuleDefinition, file: str, line: int, position: int, *, finder: Finder | None,
        tests: Sequence[ArgumentTest] = (), voice: Voice = say,
    ) -> None:  # fmt: skip
        self.definition = definition
        self.file, self.line, self.position = file, line, position
        self.label = definition.label
        self.target: str = str(definition.__struct_config__.tag)
        self.event: str = getattr(definition, "event", "")
        self.where = f"{file}:{line}"
        self.name = self.label or f"{file.replace(chr(92), '/').rpartition('/')[2]}#{position}"
        self.finder, self.tests, self.voice = finder, tuple(tests), voice
        if definition.timeout_ms is not UNSET:
            for each in [finder, *[test.finder for test in tests]]:
                if each is not None:
                    each.patience = definition.timeout_ms / 1000
        self.counter = Counter(None if definition.max_triggers is UNSET else definition.max_triggers)
        self.actions: tuple[Any, ...] = definition.actions or (schema.Log(),)  # type: ignore[attr-defined]
        source = definition.patterns_from
        self.sources = () if source is UNSET else (Path(file).parent / source,)
        self.base: dict[str, Any] = {"label": self.label, "target": self.target}

    def fresh(self, voice: Voice) -> Rule:
        """This rule with its counter at zero and another voice."""
        return Rule(self.definition, self.file, self.line, self.position, finder=self.finder, tests=self.tests, voice=voice)

    @cached_property
    def _says(self) -> str:
        return canonical([self.definition, () if self.finder is None else self.finder.rules]).decode(errors="replace")

    def fingerprint(self) -> str:
        """What the rule says, wherever it stands: a run that goes on notices if that has changed."""
        return self._says

    @property
    def reason(self) -> str:
        """What an interrupt by this rule says."""
        return f"rule {self.name!r} ({self.where})"

    @property
    def guards(self) -> bool:
        """Whether the rule does more than to write, to queue a message or to have the request sent again."""
        return any([not isinstance(action, OBSERVING) for action in self.actions])

    def of_type(self, *kinds: type) -> list[Any]:
        return [action for action in self.actions if isinstance(action, kinds)]

    def hook(self, seam: str, fn: Callable[[Any], Any], tools: tuple[str, ...] = (), *, kind: type[Hook] = Hook) -> Hook:
        """This rule at a seam. `kind` is another one where others of the same order and policy stand there with it."""
        d = self.definition
        return kind(
            seam=seam, fn=fn, name=self.name, tools=tools, loops=None if d.loops is UNSET else d.loops, order=d.order,
            timeout=None if d.timeout_ms is UNSET else d.timeout_ms / 1000, on_error=d.on_error, where=self.where,
        )  # fmt: skip

    def variables(self, more: Mapping[str, Any], match: Match | bool | None = None) -> dict[str, Any]:
        """What the templates of this rule can show."""
        found = {**self.base, **more}
        if isinstance(match, Match):
            found.update(groups_of(match))
        return found

    def count(self, seam: str, context: Any) -> None:
        """The rule has fired at a seam about this."""
        counter = self.counter
        if counter.limit is not None and ((run := context.run._run).journal is not None or run.plan.recovery is not None):
            what = run.run_id, context.call_id if BY_NAME[seam].by_tool else run.question or seam
            counter.unrecorded[what] = counter.unrecorded.get(what, 0) + 1
        counter.fired += 1  # last: this may be a thread, and whoever writes a record meanwhile must not count it as decided


# --- actions -------------------------------------------------------------------------------------

Act = Callable[[Mapping[str, Any]], Sequence[Decision]]
"""Does one action for these variables: returns what it decides, which is nothing for those that only write."""


def acts_of(rule: Rule, kinds: Sequence[type]) -> list[Act]:
    """The actions of these kinds, in the order they are written, ready to run."""
    return [_MAKERS[type(action)](rule, action) for action in rule.actions if type(action) in kinds]


def run_acts(acts: Sequence[Act], variables: Mapping[str, Any]) -> list[Decision]:
    return [decision for act in acts for decision in act(variables)]


def settle(seam: str, decisions: Sequence[Decision]) -> list[Decision] | None:
    """What one hook may return: of several verdicts the strongest; wishes to resend combine by OR."""
    verdict: Verdict | None = None
    effects: list[Decision] = []
    resend = False
    ranks = BY_NAME[seam].ranks
    for decision in decisions:
        if not isinstance(decision, Verdict):
            effects.append(decision)
            continue
        resend = resend or getattr(decision, "resend", False)
        if verdict is None or _rank(ranks, decision) < _rank(ranks, verdict):
            verdict = decision
    if isinstance(verdict, Interrupt) and resend:
        verdict = msgspec.structs.replace(verdict, resend=True)
    return ([] if verdict is None else [verdict]) + effects or None


def _rank(ranks: tuple[type, ...], verdict: Verdict) -> int:
    return ranks.index(type(verdict)) if type(verdict) in ranks else len(ranks)


def _message_template(action: Any) -> Template | None:
    return None if action.message is UNSET else Template(action.message)


def _fill(template: Template | None, variables: Mapping[str, Any]) -> str:
    return dump(variables) if template is None else template.fill(variables)


def _make_log(rule: Rule, action: Any) -> Act:
    template, kind = _message_template(action), str(action.__struct_config__.tag)

    def act(variables: Mapping[str, Any]) -> Sequence[Decision]:
        rule.voice(kind, _fill(template, variables), rule.where)
        return ()

    return act


_numbers = itertools.count(1)


def queued(role: str, text: str) -> list[Message]:
    """A message for the queue. A tool's message comes with the call it answers, or no endpoint would take it."""
    if role == "user":
        return [UserMessage(text, origin="hook")]
    if role == "reasoning":
        return [AssistantMessage((Thinking(text),), origin="hook")]
    if role == "tool":
        call_id = f"inject-{time.time_ns() // 1_000_000}-{next(_numbers)}"
        call = AssistantMessage((ToolCall(call_id, "inject", "{}"),), "tool_calls", origin="hook")
        return [call, ToolMessage(call_id, "inject", text, origin="hook")]
    return [AssistantMessage((Text(text),), origin="hook")]


def _make_queue(rule: Rule, action: schema.QueueMessage) -> Act:
    template = _message_template(action)
    return lambda variables: [Queue(message) for message in queued(action.role, _fill(template, variables))]


def _make_resend(rule: Rule, action: schema.QueueResend) -> Act:
    return lambda variables: (Resend(),)


def _make_interrupt(rule: Rule, action: schema.InterruptAction) -> Act:
    verdict = Interrupt(rule.reason, resend=action.resend)
    return lambda variables: (verdict,)


def _optional(text: Any) -> Callable[[Mapping[str, Any]], str | None]:
    if text is UNSET:
        return lambda variables: None
    return Template(text).fill


def _make_block(rule: Rule, action: schema.BlockAction) -> Act:
    reason = _optional(action.reason)
    return lambda variables: (Block(reason(variables), action.terminate),)


def _make_end(rule: Rule, action: schema.EndAction) -> Act:
    reason = _optional(action.reason)
    return lambda variables: (End(reason(variables)),)


def _make_ask(rule: Rule, action: schema.AskAction) -> Act:
    prompt = Template(action.prompt)
    return lambda variables: (Ask(prompt.fill(variables)),)


def filler(value: Any) -> Callable[[Mapping[str, Any]], Any]:
    """A JSON value with templates in its strings. One that is nothing but a variable gives that variable's value."""
    if isinstance(value, str):
        template = Template(value)
        if len(template.variables) == 1 and template.text == f"{{{{{template.variables[0]}}}}}":
            name = template.variables[0]
            return lambda variables: variables.get(name, value)
        return template.fill
    return lambda variables: map_strings(value, lambda text: Template(text).fill(variables))


def _make_answer(rule: Rule, action: schema.AnswerAction) -> Act:
    fill = filler(action.result)
    if rule.target == "request":
        return lambda variables: (Answer(as_text(fill(variables))),)
    return lambda variables: (Answer(fill(variables)),)


_MAKERS: dict[type, Callable[[Rule, Any], Act]] = {
    schema.Log: _make_log, schema.Info: _make_log, schema.Warn: _make_log, schema.Debug: _make_log,
    schema.QueueMessage: _make_queue, schema.QueueResend: _make_resend, schema.InterruptAction: _make_interrupt,
    schema.BlockAction: _make_block, schema.EndAction: _make_end, schema.AskAction: _make_ask, schema.AnswerAction: _make_answer,
}  # fmt: skip

OBSERVING: tuple[type, ...] = (*NOTES, schema.QueueMessage, schema.QueueResend)
"""Actions that leave the value as it is."""


class Memory:
    """The last things that were remembered, so that a rule with actions at several seams fires once for one call or request."""

    __slots__ = ("_items", "_most")

    def __init__(self, most: int = 4096) -> None:
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._most = most

    def put(self, key: Hashable, value: Any) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._most:
            self._items.popitem(last=False)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def get(self, key: Hashable) -> Any:
        return self._items.get(key)

    def pop(self, key: Hashable) -> Any:
        return self._items.pop(key, None)
