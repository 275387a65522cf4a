"""`beforehand check`: are these rule files right, and what does each rule become?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from beforehand.frozen import Frozen
from beforehand.hooks.hook import Hook
from beforehand.seams import BY_NAME

from . import schema
from .load import Off, read_rules
from .problems import Problem
from .rule import NOTES, OBSERVING, Rule
from .ruleset import RuleSet

REPLACES = {
    "on_chunk": "text",
    "on_message": "message",
    "prepare_tool_call": "args",
    "after_tool_call": "content",
    "before_run": "messages",
}
DECISIONS: dict[type, dict[str, str]] = {
    schema.InterruptAction: dict.fromkeys(("on_chunk", "on_message", "before_tool_call", "after_tool_call"), "Interrupt"),
    schema.BlockAction: dict.fromkeys(("before_tool_call", "authorize_request", "before_run"), "Block"),
    schema.AnswerAction: dict.fromkeys(("before_tool_call", "authorize_request"), "Answer"),
    schema.AskAction: {"before_tool_call": "Ask"},
    schema.EndAction: dict.fromkeys(("before_turn", "finish_turn"), "End"),
    schema.ReplaceAction: {seam: f"Replace({field}=)" for seam, field in REPLACES.items()},
    schema.HideTools: {"before_provider_call": "Replace(request=)", "before_tool_call": "Block"},
    schema.UseModel: {"prepare_request": "Replace(model=)"},
    schema.SetOptions: {"before_provider_call": "Replace(request=)"},
}
"""Which decision of a seam each action is."""


class Compiled(Frozen):
    """One rule, and for each seam it stands at (number and name) what it does there."""

    file: str
    line: int
    label: str
    target: str
    seams: tuple[tuple[int, str, tuple[str, ...]], ...]
    enabled: bool = True

    def __str__(self) -> str:
        name = f" {self.label!r}" if self.label else ""
        if not self.enabled:
            return f"{self.file}:{self.line}:{name} {self.target}: disabled"
        seams = "; ".join([f"{number} {seam}: {', '.join(does) or 'nothing'}" for number, seam, does in self.seams])
        return f"{self.file}:{self.line}:{name} {self.target} → {seams}"


class CheckReport(Frozen):
    """What checking came to. `ok` if the files can be loaded; `str()` is what the command prints."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    rules: tuple[Compiled, ...]
    files: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        lines = [str(rule) for rule in self.rules]
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [f"error: {problem}" for problem in self.problems]
        if self.ok:
            lines.append(f"{_count(len(self.rules), 'rule')} in {_count(len(self.files), 'file')}, nothing wrong")
        else:
            lines.append(f"{_count(len(self.problems), 'mistake')}: nothing would be loaded")
        return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def check(paths: Sequence[str | Path]) -> CheckReport:
    """Read rule files and say everything there is to say about them. Never raises for what is in them."""
    loaded = read_rules(paths)
    compiled = [_compiled(rule) for rule in loaded.rules]
    compiled += [Compiled(off.file, off.line, off.label, off.target, (), enabled=False) for off in loaded.disabled]
    compiled.sort(key=lambda c: (loaded.files.index(c.file), c.line))
    warnings = [*loaded.warnings, *_same_labels(loaded.rules)]
    return CheckReport(tuple(loaded.problems), tuple(warnings), tuple(compiled), tuple(loaded.files))


def _compiled(rule: Rule) -> Compiled:
    hooks = RuleSet([rule]).hooks
    seams = tuple([(BY_NAME[hook.seam].number, hook.seam, _does(rule, hook, i == 0)) for i, hook in enumerate(hooks)])
    return Compiled(rule.file, rule.line, rule.label, rule.target, seams)


def _does(rule: Rule, hook: Hook, first: bool) -> tuple[str, ...]:
    """What the rule's actions are at this hook."""
    found: list[str] = []
    for action in rule.actions:
        kind = type(action)
        decision = None if hook.seam == "on_message" and rule.target == "tool" else DECISIONS.get(kind, {}).get(hook.seam)
        if kind in OBSERVING and (first or _observes_again(rule, hook)):
            decision = (
                str(action.__struct_config__.tag) if kind in NOTES else "Queue" if kind is schema.QueueMessage else "Resend"
            )
        if decision is not None and decision not in found:
            found.append(decision)
    return tuple(found)


def _observes_again(rule: Rule, hook: Hook) -> bool:
    """At the end of a stream, about a call that never reached its tool, and at the gate of requests."""
    return hook.seam == "authorize_request" or (hook.seam == "on_message" and rule.target in ("stream", "tool"))


def _same_labels(rules: Sequence[Rule]) -> list[Problem]:
    first: dict[str, Rule] = {}
    found = []
    for rule in rules:
        if rule.label and first.setdefault(rule.label, rule) is not rule:
            why = f"{first[rule.label].where} has the label {rule.label!r} too: they are told apart by file and line"
            found.append(Problem(rule.file, rule.line, 1, "label", why))
    return found


__all__ = ["CheckReport", "Compiled", "Off", "check"]
