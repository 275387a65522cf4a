"""A set of rules that was loaded as a whole, as the hooks an agent takes."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from beforehand.contexts import digest_of
from beforehand.errors import ConfigError
from beforehand.hooks.hook import Hook

from .bundle import ENOUGH, bundled
from .calls import Gate, tool_hooks
from .chats import MessageRule, chat_rule, finish_rule
from .load import load_list
from .problems import Problem
from .requests import request_hooks, run_hooks, turn_hooks
from .rule import Rule
from .streams import has_finish, stage_hooks
from .voice import Voice, logger, say

ENVIRONMENT = ("BEFOREHAND_HOOKS_DIR", "LLM_CHAT_HOOKS_DIR")


class RuleSet:
    """Rules in order (file name, then position) and the hooks they became. Its counters are all that changes about it."""

    def __init__(self, rules: Sequence[Rule], paths: Sequence[Path] = (), warnings: Sequence[Problem] = ()) -> None:
        self.rules = tuple(rules)
        self.paths = tuple(paths)
        self.warnings = tuple(warnings)
        _name_apart(self.rules)
        self.hooks: tuple[Hook, ...] = tuple(_hooks(self.rules))
        self._limited = tuple(_told_apart([rule for rule in self.rules if rule.counter.limit is not None], _on_record).items())

    def describe(self) -> list[dict[str, Any]]:
        """What is loaded: label, target, source file and line, state ("active", or "spent" by `maxTriggers`), firings."""
        return [
            {
                "label": rule.label, "target": rule.target, "file": rule.file, "line": rule.line,
                "state": "spent" if rule.counter.spent() else "active", "firings": rule.counter.fired,
            }
            for rule in self.rules
        ]  # fmt: skip

    def counts(self) -> dict[str, int]:
        """How often each rule with `maxTriggers` has fired, by what tells it apart: file name, label and what it says. What is
        not `recorded` yet is left out.
        """
        return {key: rule.counter.fired - sum(rule.counter.unrecorded.values()) for key, rule in self._limited}

    def recorded(self, run_id: str, about: str | None = None) -> None:
        """What rules have decided in a run about this, and inside it, is on record from now on: about a call or a lambda's
        question (its id), or what a seam was asked about; or about all there was.
        """
        for _, rule in self._limited:
            if there := rule.counter.unrecorded:
                for what in list(there):  # a rule in a thread may fire meanwhile
                    if what[0] == run_id and (about is None or _is_in(what[1], about)):
                        del there[what]

    def taken_back(self, run_id: str, guards: bool = False) -> None:
        """A run goes on, and those inside it: what was not decided on record is asked about again, and did not count.

        Where a turn is tried again, that is so of `guards` alone: what others have said and queued about the failed one stays.
        """
        for _, rule in self._limited:
            if guards and not rule.guards:
                continue
            for what in list(rule.counter.unrecorded):
                if _is_in(what[0], run_id):
                    rule.counter.fired -= rule.counter.unrecorded.pop(what)

    def restore_counts(self, counts: Mapping[str, int]) -> None:
        """Go on counting from here, where that is more than was counted in this process."""
        for key, rule in self._limited:
            rule.counter.fired = max(rule.counter.fired, counts.get(key, 0))

    def set_counts(self, counts: Mapping[str, int]) -> None:
        """Go on counting from exactly here, for the rules that are named."""
        for key, rule in self._limited:
            if key in counts:
                rule.counter.fired = counts[key]
                rule.counter.unrecorded.clear()

    def fresh(self, voice: Voice) -> RuleSet:
        """The same rules with counters at zero, which say what they have to say through another voice."""
        return RuleSet([rule.fresh(voice) for rule in self.rules], self.paths, self.warnings)

    def take_counts(self, before: RuleSet) -> None:
        """Go on counting where another set stands, for the rules that are the same in both."""
        counters = {key: rule.counter for key, rule in _told_apart(before.rules, _here).items()}
        for key, rule in _told_apart(self.rules, _here).items():
            rule.counter = counters.get(key, rule.counter)

    def __repr__(self) -> str:
        return f"RuleSet({len(self.rules)} rules from {[str(path) for path in self.paths]})"


def _is_in(inner: str, outer: str) -> bool:
    """Whether this is the id of the same run or call, or of one inside it."""
    return f"{inner}/".startswith(f"{outer}/")


def _name_apart(rules: Sequence[Rule]) -> None:
    """Number those that have the name of one before them: a run that goes on knows by names which rule had decided something."""
    names: set[str] = set()
    times: Counter[str] = Counter()
    for rule in rules:
        name = given = rule.name
        while name in names:
            times[given] += 1
            name = f"{given} ({times[given] + 1})"
        names.add(name)
        rule.name = name


def _told_apart(rules: Iterable[Rule], by: Callable[[Rule], str]) -> dict[str, Rule]:
    """Rules by what they have of their own, and by how many before them have the same."""
    found: dict[str, Rule] = {}
    times: Counter[str] = Counter()
    for rule in rules:
        what = by(rule)
        times[what] += 1
        found[f"{what}:{times[what]}"] = rule
    return found


def _on_record(rule: Rule) -> str:
    """A rule as another process knows it, where its file may be in another folder, and stand at another place in its file."""
    return f"{Path(rule.file).name}:{rule.label}:{digest_of(rule.fingerprint())[:16]}"


def _here(rule: Rule) -> str:
    return f"{rule.file}:{msgspec.json.encode(rule.definition).decode()}"


def load_rules(paths: Sequence[str | Path], voice: Voice = say) -> RuleSet:
    """Load rule files and folders of them. Raises `RuleFileError` with every mistake; then nothing is loaded.

    What does no harm, and is probably not meant, is logged as a warning.
    """
    rules, warnings = load_list(paths, voice)
    for warning in warnings:
        logger.warning("%s", warning)
    return RuleSet(rules, [Path(path) for path in paths], warnings)


def rules_folder(configured: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder rules are loaded from: the configured one, else the environment's. `ConfigError` if it is not there."""
    environ = os.environ if environ is None else environ
    source, given = "hooks_dir", "" if configured is None else str(configured).strip()
    for name in ENVIRONMENT:
        if not given:
            source, given = name, environ.get(name, "").strip()
    if not given:
        return None
    folder = Path(given)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise ConfigError(f"{source} names the folder {folder}, which {what}: rule files were expected there")
    return folder


def _hooks(rules: Sequence[Rule]) -> list[Hook]:
    """The hooks of all rules. Those about the end of a reply come before those about messages: it ends before it is stored."""
    ordered = sorted(rules, key=lambda rule: rule.definition.order)
    hooks = stage_hooks([rule for rule in ordered if rule.target == "stream"])
    ends = [finish_rule(rule) for rule in ordered if rule.target == "stream" and has_finish(rule)]
    chats = [chat_rule(rule) for rule in ordered if rule.target == "chat"]
    hooks += [each.rule.hook("on_message", each) for each in _in_company([*ends, *chats])]
    makers = {"tool": tool_hooks, "request": request_hooks, "turn": turn_hooks, "run": run_hooks}
    for rule in ordered:
        if rule.target in makers:
            hooks += makers[rule.target](rule)
    return _bundled(hooks)


def _bundled(hooks: list[Hook]) -> list[Hook]:
    """The same hooks, with many neighbours that only judge calls as one group."""
    found: list[Hook] = []
    for kind, group in itertools.groupby(hooks, _kind_of_gate):
        neighbours = list(group)
        found += [bundled(neighbours)] if kind is not None and len(neighbours) >= ENOUGH else neighbours
    return found


def _kind_of_gate(hook: Hook) -> Any:
    """What neighbours in a group have in common, policy included, as that is listed. `None` for what judges no calls."""
    return (hook.order, hook.loops, hook.on_error) if isinstance(hook.fn, Gate) else None


def _in_company(rules: list[MessageRule]) -> list[MessageRule]:
    """Tell each rule at `on_message` which others of the set are asked after it."""
    asked = sorted(rules, key=lambda each: each.rule.definition.order)
    for number, each in enumerate(asked):
        each.others = tuple(asked[number + 1 :])
    return asked
