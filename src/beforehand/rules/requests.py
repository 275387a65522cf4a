"""Targets `request`, `turn` and `run`: rules about what leaves, and about whether to go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import UNSET

from beforehand.decisions import Block, Decision, Replace
from beforehand.frozen import freeze
from beforehand.hooks.hook import Hook
from beforehand.messages import AssistantMessage, CustomMessage, Message, Text, Thinking, ToolCall
from beforehand.seams import FinishedTurn, OutgoingRequest, PendingCall, ProviderCall, RequestPlan, RunStart, TurnStart
from beforehand.stream.patterns import Match

from . import schema
from .chats import rewritten
from .rule import NOTES, OBSERVING, Memory, Rule, acts_of, run_acts, settle
from .templates import Template

# --- requests ------------------------------------------------------------------------------------

AT_THE_GATE = (*OBSERVING, schema.BlockAction, schema.AnswerAction)


def request_hooks(rule: Rule) -> list[Hook]:
    """A rule with target `request`: its actions belong to the seams 3 (model), 6 (tools, options) and 8 (the rest)."""
    shared = RequestRule(rule)
    models, tools, options = rule.of_type(schema.UseModel), rule.of_type(schema.HideTools), rule.of_type(schema.SetOptions)
    hooks = []
    if models:
        hooks.append(rule.hook("prepare_request", shared.plan))
    if tools or options:
        hooks.append(rule.hook("before_provider_call", shared.shape))
    if rule.of_type(*AT_THE_GATE):
        hooks.append(rule.hook("authorize_request", shared.gate))
    if tools:
        hooks.append(
            rule.hook("before_tool_call", shared.block_hidden, tuple([name for action in tools for name in action.tools]))
        )
    return hooks


class RequestRule:
    """What the hooks of one request rule share: whether it has fired for the request of this turn.

    It is asked at its first seam, and the later ones go by that. The run of a sub-agent does not come to the first one of its
    caller's rule, so there the later ones ask for themselves.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._fired = Memory()
        self._acts = acts_of(rule, AT_THE_GATE)
        self._models = rule.of_type(schema.UseModel)
        self._hidden = tuple([name for action in rule.of_type(schema.HideTools) for name in action.tools])
        self._options = [_given(action.options) for action in rule.of_type(schema.SetOptions)]
        self._first = "plan" if self._models else "shape" if self._hidden or self._options else "gate"

    def plan(self, plan: RequestPlan) -> Replace | None:
        if self._ask("plan", plan, plan.context.system, plan.context.messages) is None:
            return None
        return Replace(model=self._models[-1].model, once=True)

    def shape(self, call: ProviderCall) -> Replace | None:
        request = call.request
        if self._ask("shape", call, request.system, request.messages) is None:
            return None
        if self._hidden:
            shown = tuple([tool for tool in request.tools if not self._hides(tool.name)])
            request = msgspec.structs.replace(request, tools=shown)
        for given in self._options:
            request = msgspec.structs.replace(request, options=msgspec.structs.replace(request.options, **given))
        return Replace(request=request)

    def gate(self, outgoing: OutgoingRequest) -> list[Decision] | None:
        stage = "gate" if outgoing.kind == "turn" else "alone"
        request = outgoing.request
        variables = self._ask(stage, outgoing, request.system, request.messages)
        if variables is None:
            return None
        variables = {**variables, "kind": outgoing.kind}
        return settle("authorize_request", run_acts(self._acts, variables))

    def block_hidden(self, call: PendingCall) -> Block | None:
        """A tool that was not offered does not run either, even if the model asks for it by heart."""
        rule, run = self.rule, call.run._run
        if rule.finder is not None or rule.counter.limit is not None:
            before = [message for message in call.context if message is not call.message]
            fired = self._known(call) if self._comes_first(run) else self._ask("call", call, run.system, before)
            if fired is None:
                return None
        return Block(f"The tool {call.name} is not available here.")

    def _hides(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self._hidden)

    def _ask(self, stage: str, context: Any, system: str, messages: Sequence[Message]) -> dict[str, Any] | None:
        """The variables, if the rule fires for this request."""
        if stage not in (self._first, "alone"):
            known = self._known(context, system, messages)
            if known is not None or _of(context) in self._fired:
                return known
        rule, variables = self.rule, None
        match = self._match(system, messages)
        if match is not None and not rule.counter.spent():
            rule.count(_SEAMS[stage], context)
            variables = self._variables(context, match)
        if stage != "alone":
            self._fired.put(_of(context), variables)
        return variables

    def _known(self, context: Any, system: str = "", messages: Sequence[Message] = ()) -> dict[str, Any] | None:
        """The variables, if it is known that the rule has fired. A run that goes on has what was decided before on record.

        Only where the rule has no first seam do the later ones tell: they are asked about summaries too.
        """
        name, run, key = self.rule.name, context.run._run, _of(context)
        if key not in self._fired:
            seams = (_SEAMS[self._first],) if self._comes_first(run) else _SEAMS.values()
            if any([d.hook == name and d.seam in seams and (d.run_id, d.turn) == key for d in run.decisions]):
                self._fired.put(key, self._variables(context, self._match(system, messages)))
        return self._fired.get(key)  # type: ignore[no-any-return]

    def _comes_first(self, run: Any) -> bool:
        """Whether this run asks the rule at its first seam."""
        asked = getattr(self, self._first)
        return any([hook.fn == asked for hook in getattr(run.hooks, _SEAMS[self._first])])

    def _match(self, system: str, messages: Sequence[Message]) -> Match | bool | None:
        finder = self.rule.finder
        if finder is None:
            return True
        return next((match for text in texts_of(system, messages) if (match := finder.first(text))), None)

    def _variables(self, context: Any, match: Match | bool | None) -> dict[str, Any]:
        model = getattr(context, "model", None)
        return self.rule.variables({"model": "" if model is None else model.name, "kind": "turn"}, match)


_SEAMS = {
    "plan": "prepare_request", "shape": "before_provider_call", "gate": "authorize_request", "alone": "authorize_request",
    "call": "before_tool_call",
}  # fmt: skip


def _of(context: Any) -> tuple[str, int]:
    """What tells one request from another."""
    return context.run.run_id, context.run.turn


def _given(options: schema.OptionValues) -> dict[str, Any]:
    """The fields of `Options` that a rule sets."""
    given = {name: value for name in options.__struct_fields__ if (value := getattr(options, name)) is not UNSET}
    if "provider_params" in given:
        given["provider_params"] = freeze(given["provider_params"])
    return given


def texts_of(system: str, messages: Sequence[Message]) -> Iterator[str]:
    """Every text in a request: the system text, what was said, reasoning, and the arguments of calls."""
    if system:
        yield system
    for message in messages:
        content = message.content
        if isinstance(content, str):
            yield content
            continue
        for part in content:
            if isinstance(part, Text | Thinking):
                yield part.text
            elif isinstance(part, ToolCall):
                yield part.arguments


# --- turns ---------------------------------------------------------------------------------------


def turn_hooks(rule: Rule) -> list[Hook]:
    """A rule with target `turn`, before one begins or after it has ended."""
    acts = acts_of(rule, (*OBSERVING, schema.EndAction))
    seam = "before_turn" if rule.event == "before" else "finish_turn"

    def before(turn: TurnStart) -> list[Decision] | None:
        return judge(turn, "\n".join([message.text for message in turn.incoming]))

    def after(turn: FinishedTurn) -> list[Decision] | None:
        return judge(turn, "" if turn.message is None else turn.message.text)

    def judge(turn: TurnStart | FinishedTurn, content: str) -> list[Decision] | None:
        match = None if rule.finder is None else rule.finder.first(content)
        if (rule.finder is not None and match is None) or rule.counter.spent():
            return None
        rule.count(seam, turn)
        shared = {"event": rule.event, "number": turn.number, "content": content}
        return settle(seam, run_acts(acts, rule.variables(shared, match)))

    return [rule.hook(seam, before if rule.event == "before" else after)]


# --- runs ----------------------------------------------------------------------------------------


def run_hooks(rule: Rule) -> list[Hook]:
    """A rule with target `run`: about what a run begins with."""
    acts = acts_of(rule, (*NOTES, schema.BlockAction))
    replaces = [Template(action.with_) for action in rule.of_type(schema.ReplaceAction)]

    def start(start: RunStart) -> list[Decision] | None:
        content = "\n".join([message.text for message in start.messages if not isinstance(message, CustomMessage)])
        match = None if rule.finder is None else rule.finder.first(content)
        if (rule.finder is not None and match is None) or rule.counter.spent():
            return None
        rule.count("before_run", start)
        variables = rule.variables({"content": content}, match)
        decisions = run_acts(acts, variables)
        messages = start.messages
        for template in replaces:
            messages = tuple([_rewritten(rule, message, template, variables) for message in messages])
        if messages != start.messages:
            decisions.append(Replace(messages=messages))
        return settle("before_run", decisions)

    return [rule.hook("before_run", start)]


def _rewritten(rule: Rule, message: Message, template: Template, variables: dict[str, Any]) -> Message:
    if isinstance(message, CustomMessage):
        return message

    def change(text: str) -> str:
        if rule.finder is None:
            return template.fill(variables)

        def replacement(match: Match) -> str:
            return template.fill(rule.variables(variables, match))

        return rule.finder.replace(text, replacement)

    return rewritten(message, "reasoning" if isinstance(message, AssistantMessage) and not message.text else message.role, change)
