"""Target `tool`: rules about tool calls, before they run, after they have run, and when they failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from beforehand.decisions import Decision, Interrupt, Replace
from beforehand.frozen import thaw
from beforehand.hooks.hook import Hook
from beforehand.messages import AssistantMessage, Text, ToolMessage
from beforehand.seams import CallDraft, CallOutcome, IncomingMessage
from beforehand.stream.patterns import Match

from . import schema
from .match import Finder, at_pointer, map_strings, pointer_steps, strings_in
from .rule import OBSERVING, Memory, Rule, acts_of, filler, run_acts, settle
from .templates import Template

VERDICTS = (schema.BlockAction, schema.AnswerAction, schema.AskAction, schema.InterruptAction)

_CLASS_NAME = re.compile(r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception): ")
_NEVER_REACHED_A_TOOL = ("invalid", "not_found")


def tool_hooks(rule: Rule) -> list[Hook]:
    """A rule with target `tool`, at the seams that its event and its actions need."""
    tools: tuple[str, ...] = rule.definition.tools  # type: ignore[attr-defined]
    if rule.event == "before":
        if not rule.of_type(schema.ReplaceAction):
            return [rule.hook("before_tool_call", Gate(rule), tools)]
        shaper = Shaper(rule)
        hooks = [rule.hook("prepare_tool_call", shaper, tools)]
        return hooks + [rule.hook("before_tool_call", shaper.gate, tools)] if rule.of_type(*VERDICTS) else hooks
    hooks = [rule.hook("after_tool_call", After(rule), tools)]
    if rule.event == "error" and rule.of_type(*OBSERVING):
        hooks.append(rule.hook("on_message", Refused(rule)))
    return hooks


def arguments_match(rule: Rule, args: Mapping[str, Any]) -> Match | bool:
    """Whether the entries of `args` all hold: the first match of their patterns, or just that they do."""
    found: Match | bool = True
    for test in rule.tests:
        fits = test.fits(args)
        if fits is False:
            return False
        if found is True:
            found = fits
    return found


def _before(rule: Rule, args: Mapping[str, Any]) -> Match | bool:
    """Whether a rule is about a call with these arguments. Its `regex` looks at every string in them."""
    found = arguments_match(rule, args) if rule.tests else True
    if rule.finder is None or found is False:
        return found
    return next((match for text in strings_in(args) if (match := rule.finder.first(text))), False)


class Gate:
    """A rule that judges a call and leaves its arguments alone."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._acts = acts_of(rule, (*OBSERVING, *VERDICTS))
        self._quick = not rule.tests and rule.finder is None

    def __call__(self, call: CallDraft) -> list[Decision] | None:
        rule = self.rule
        found = True if self._quick else _before(rule, call.args)
        if found is False or rule.counter.spent():
            return None
        rule.count("before_tool_call", call)
        variables = rule.variables({"event": "before", "name": call.name, "args": call.args}, found)
        return settle("before_tool_call", run_acts(self._acts, variables))


class Shaper:
    """A rule that changes arguments. If it judges the call as well, `gate` does so for the calls that fired it.

    Where that is not known, it asks for itself: the run has gone on since, or the rule is new. What it decided then is on record.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._notes = acts_of(rule, OBSERVING)
        self._verdicts = acts_of(rule, VERDICTS)
        self._fired = Memory()
        self._replaces = rule.of_type(schema.ReplaceAction)

    def __call__(self, call: CallDraft) -> list[Decision] | None:
        variables = self._fires(call)
        if self._verdicts:
            self._fired.put((call.run.run_id, call.call_id), variables)
        if variables is None:
            return None
        args = call.args
        for action in self._replaces:
            args = self._changed(args, action, variables)
        decisions = run_acts(self._notes, variables)
        return ([Replace(args=args)] if args is not call.args or self._verdicts else []) + decisions or None

    def _fires(self, call: CallDraft) -> dict[str, Any] | None:
        """The variables, if it does for this call."""
        rule = self.rule
        found = _before(rule, call.args)
        if found is False or rule.counter.spent():
            return None
        rule.count("prepare_tool_call", call)
        return self._variables(call, found)

    def _variables(self, call: CallDraft, found: Match | bool) -> dict[str, Any]:
        return self.rule.variables({"event": "before", "name": call.name, "args": call.args}, found)

    def gate(self, call: CallDraft) -> list[Decision] | None:
        key, name = (call.run.run_id, call.call_id), self.rule.name
        if key in self._fired:
            variables = self._fired.pop(key)
        elif any([d.hook == name and d.seam == "prepare_tool_call" and d.call_id == key[1] for d in call.run._run.decisions]):
            variables = self._variables(call, _before(self.rule, call.args))
        else:
            variables = self._fires(call)
        return None if variables is None else settle("before_tool_call", run_acts(self._verdicts, variables))

    def _changed(self, args: Mapping[str, Any], action: schema.ReplaceAction, variables: dict[str, Any]) -> Any:
        finder = self.rule.finder
        fill = filler(action.with_)
        if finder is None:
            return _with_argument(args, str(action.argument), fill(variables))
        template = Template(action.with_)

        def change(text: str) -> str:
            return finder.replace(text, lambda match: template.fill(self.rule.variables(variables, match)))

        if action.argument is msgspec.UNSET:
            return map_strings(args, change)
        steps = argument_steps(action.argument)
        old = at_pointer(args, steps)
        new = map_strings(old, change)
        return args if new == old else _with_argument(args, action.argument, new)


def argument_steps(argument: str) -> tuple[str, ...]:
    """The way to an argument: its name, or a JSON pointer to something in it. Raises `ValueError`."""
    return pointer_steps(argument) if argument.startswith("/") else (argument,)


def _with_argument(args: Mapping[str, Any], argument: str, value: Any) -> Any:
    """The arguments with another value at a place. What does not exist is only made at the top."""
    steps = argument_steps(argument)
    new = thaw(args)
    inner = new if len(steps) == 1 else at_pointer(new, steps[:-1])
    last = steps[-1]
    if isinstance(inner, dict):
        inner[last] = value
    elif isinstance(inner, list) and last.isdigit() and int(last) < len(inner):
        inner[int(last)] = value
    else:
        return args
    return new


class After:
    """A rule about the result of a call, or about its failure."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._on_error = rule.event == "error"
        self._acts = acts_of(rule, (*OBSERVING, schema.InterruptAction))
        self._verdicts = acts_of(rule, (schema.InterruptAction,))
        self._replaces = [Template(action.with_) for action in rule.of_type(schema.ReplaceAction)]

    def __call__(self, outcome: CallOutcome) -> list[Decision] | None:
        rule = self.rule
        if outcome.is_error is not self._on_error:
            return None
        if rule.tests and not arguments_match(rule, outcome.args):
            return None
        found = None if rule.finder is None else _in_result(rule.finder, outcome)
        if found is False or rule.counter.spent():
            return None
        shared = {"event": rule.event, "name": outcome.name, "args": outcome.args, **_result_of(outcome, self._on_error)}
        variables = rule.variables(shared, found)
        if outcome.partial:  # progress, not the result: it is covered up where the result would be, and nothing is counted
            decisions = run_acts(self._verdicts, variables)
        else:
            rule.count("after_tool_call", outcome)
            decisions = run_acts(self._acts, variables)
        if self._replaces and not any(isinstance(d, Interrupt) for d in decisions):
            decisions.append(self._replaced(outcome, shared))
        return settle("after_tool_call", decisions)

    def _replaced(self, outcome: CallOutcome, shared: dict[str, Any]) -> Replace:
        rule = self.rule
        content, details, structured = outcome.content, outcome.details, outcome.structured_content
        for template in self._replaces:
            if rule.finder is None:
                content, structured = template.fill(rule.variables(shared)), None
                continue
            finder = rule.finder

            def change(text: str, template: Template = template, finder: Any = finder) -> str:
                return str(finder.replace(text, lambda match: template.fill(rule.variables(shared, match))))

            content = change(content) if isinstance(content, str) else _joined(content, change)
            details, structured = map_strings(details, change), map_strings(structured, change)
        return Replace(content=content, details=details, structured_content=structured)


def _joined(content: Any, change: Any) -> Any:
    """Content in parts with its text changed, as one piece if it changed."""
    old = "".join([part.text for part in content if isinstance(part, Text)])
    new = change(old)
    return content if new == old else (Text(new), *[part for part in content if not isinstance(part, Text)])


def _in_result(finder: Finder, outcome: CallOutcome) -> Match | bool:
    match = finder.first(outcome.text)
    if match is None and outcome.structured_content is not None:
        match = next((m for text in strings_in(outcome.structured_content) if (m := finder.first(text))), None)
    return match or False


def _result_of(outcome: CallOutcome, failed: bool) -> dict[str, Any]:
    text = outcome.text
    if failed:
        return {"error": error_text(text)}
    return {"result": outcome.structured_content if not text and outcome.structured_content is not None else text}


def error_text(text: str) -> str:
    """What went wrong, without the name of the exception in front of it."""
    found = _CLASS_NAME.match(text)
    return text[found.end() :] if found else text


class Refused:
    """An `error` rule for the calls that never reached a tool: an unknown name, arguments that do not fit."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._acts = acts_of(rule, OBSERVING)
        self._tools: tuple[str, ...] = rule.definition.tools  # type: ignore[attr-defined]

    def __call__(self, context: IncomingMessage) -> list[Decision] | None:
        message, rule = context.message, self.rule
        if not isinstance(message, ToolMessage) or context.origin != "tool":
            return None
        name, text = message.tool_name, message.text
        if message.outcome not in _NEVER_REACHED_A_TOOL:
            return None
        if self._tools and not any(fnmatchcase(name, glob) for glob in self._tools):
            return None
        args = _raw_arguments(context)
        if rule.tests and not arguments_match(rule, args):
            return None
        match = None if rule.finder is None else rule.finder.first(text)
        if (rule.finder is not None and match is None) or rule.counter.spent():
            return None
        rule.count("on_message", context)
        variables = rule.variables({"event": "error", "name": name, "args": args, "error": error_text(text)}, match)
        return settle("on_message", run_acts(self._acts, variables))


def _raw_arguments(context: IncomingMessage) -> Mapping[str, Any]:
    """The arguments of the call a tool message answers, as far as they could be read."""
    for message in reversed(context.history):
        if isinstance(message, AssistantMessage):
            wanted = getattr(context.message, "tool_call_id", "")
            return next((call.args for call in message.tool_calls if call.id == wanted), {})
    return {}
