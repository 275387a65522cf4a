"""From rule files to rules: strict, all mistakes at once, and all or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import msgspec
from msgspec import UNSET

from beforehand.documents.places import Document, Malformed, Path
from beforehand.stream.patterns import PatternError

from . import schema
from .advice import advise
from .calls import argument_steps
from .documents import SUFFIXES, read_document
from .gitleaks import read_gitleaks
from .match import ArgumentTest, Finder
from .problems import Problem, RuleFileError, field_name
from .rule import Rule
from .validate import action_targets, allowed, mistakes
from .voice import Voice, say


class Off(msgspec.Struct):
    """A rule that says `enabled: false`."""

    file: str
    line: int
    label: str
    target: str


class Loaded(msgspec.Struct):
    """What reading rule files came to. `rules` counts only if there are no `problems`. `warnings` do no harm."""

    rules: list[Rule] = []
    problems: list[Problem] = []
    warnings: list[Problem] = []
    disabled: list[Off] = []
    files: list[str] = []


def read_rules(paths: Sequence[str | FilePath], voice: Voice = say) -> Loaded:
    """Read every rule file at `paths`, files and folders (not what is in folders inside them)."""
    loaded = Loaded()
    for given in dict.fromkeys([str(p) for p in paths]):
        path = FilePath(given)
        if not given.strip():
            loaded.problems.append(Problem("''", 1, 1, "", "the path is empty: expected a rule file or a folder of them"))
        elif path.is_dir():
            found = len(loaded.files)
            unread = _read_folder(path, loaded, voice)
            if len(loaded.files) == found and any(problem.file.endswith(".py") for problem in unread):
                loaded.problems += unread  # somebody took this for a folder of hooks, and would go without them
            elif len(loaded.files) == found:
                why = f"there is no rule file in this folder: their names end in {', '.join(SUFFIXES)}"
                loaded.warnings += [*unread, Problem(str(path), 1, 1, "", why)]
            else:
                loaded.warnings += unread
        elif not path.exists():
            loaded.problems.append(Problem(str(path), 1, 1, "", "there is no such file or folder: rules were expected there"))
        elif path.suffix not in SUFFIXES:
            loaded.problems.append(Problem(str(path), 1, 1, "", f"rule files end in {', '.join(SUFFIXES)}"))
        else:
            _read_file(path, loaded, voice)
    return loaded


def _read_folder(path: FilePath, loaded: Loaded, voice: Voice) -> list[Problem]:
    """Read the rule files of a folder. Returns a word on each file there that looks like hooks and is not read."""
    unread = []
    for file in sorted(path.iterdir(), key=lambda f: f.name.encode("utf-16-be", "surrogatepass")):
        if file.suffix in SUFFIXES:
            _read_file(file, loaded, voice)
        elif file.suffix.lower() in SUFFIXES:
            why = f"this file is not read: its name would have to end in {file.suffix.lower()}"
            unread.append(Problem(str(file), 1, 1, "", why))
        elif file.suffix == ".py" and file.name != "__init__.py":
            why = "this file is not read: of a folder only rule files are, so name a Python file with hooks itself"
            unread.append(Problem(str(file), 1, 1, "", why))
    return unread


def load_list(paths: Sequence[str | FilePath], voice: Voice = say) -> tuple[list[Rule], list[Problem]]:
    """The rules, and warnings. Raises `RuleFileError` with every mistake in every file."""
    loaded = read_rules(paths, voice)
    if loaded.problems:
        raise RuleFileError(loaded.problems)
    return loaded.rules, loaded.warnings


def _read_file(file: FilePath, loaded: Loaded, voice: Voice) -> None:
    name = str(file)
    loaded.files.append(name)
    if not file.name.isprintable():
        why = "the name of this file holds characters that cannot be printed: rename it"
        loaded.problems.append(Problem(repr(name), 1, 1, "", why))
        return
    try:
        document = read_document(file)
    except Malformed as error:
        loaded.problems.append(Problem(name, error.place.line, error.place.column, "", error.why))
        return
    reading = _Reading(file, document, loaded, voice)
    reading.read()


class _Reading:
    """One file while its rules are checked and made ready."""

    def __init__(self, file: FilePath, document: Document, loaded: Loaded, voice: Voice) -> None:
        self.file, self.name = file, str(file)
        self.document, self.loaded, self.voice = document, loaded, voice

    def read(self) -> None:
        for again, place in self.document.twice:
            why = "the field stands here a second time"
            self.loaded.problems.append(Problem(self.name, place.line, place.column, field_name(again), why))
        value = self.document.value
        several = isinstance(value, list)
        for position, item in enumerate(value if several else [value]):
            path: Path = (position,) if several else ()
            found = mistakes(item, path)
            for where, why in found:
                self.wrong(where, why)
            if found:
                self._patterns(item, path)
                continue
            try:
                definition = msgspec.convert(item, schema.AnyRule)
            except msgspec.ValidationError as error:
                self.wrong(path, str(error))
                continue
            self._rule(definition, item, path, position)

    def _problem(self, path: Path, why: str) -> Problem:
        place = self.document.place(path)
        return Problem(self.name, place.line, place.column, field_name(path), why)

    def wrong(self, path: Path, why: str) -> None:
        self.loaded.problems.append(self._problem(path, why))

    def _rule(self, definition: Any, written: Any, path: Path, position: int) -> None:
        """What the form alone does not say: do patterns compile, do actions fit the event, do fields go together."""
        before = len(self.loaded.problems)
        finder = self._finder(definition, path)
        tests = self._tests(definition, path)
        self._actions(definition, path)
        if isinstance(definition, schema.StreamRule) and set(definition.chunks) == {"finish"} and _has_pattern(definition):
            self.wrong(
                (*path, "chunks"),
                "a finish chunk carries no text that a pattern could be found in: add 'content', or leave the pattern out",
            )
        if len(self.loaded.problems) != before:
            return
        for where, why in advise(definition, written, finder, tests):
            self.loaded.warnings.append(self._problem((*path, *where), why))
        line = self.document.place(path).line
        if not definition.enabled:
            self.loaded.disabled.append(Off(self.name, line, definition.label, str(definition.__struct_config__.tag)))
        else:
            self.loaded.rules.append(Rule(definition, self.name, line, position, finder=finder, tests=tests, voice=self.voice))

    # --- filters ---

    def _finder(self, definition: Any, path: Path) -> Finder | None:
        if definition.regex is not UNSET and definition.patterns_from is not UNSET:
            self.wrong((*path, "patternsFrom"), "a rule has either 'regex' or 'patternsFrom': write two rules")
        if definition.regex is not UNSET:
            return self._compiled(definition.regex, (*path, "regex"))
        if definition.patterns_from is UNSET:
            return None
        source = self.file.parent / definition.patterns_from
        where = (*path, "patternsFrom")
        try:
            secrets = read_gitleaks(source)
        except Malformed as error:
            self.wrong(where, f"{source}:{error.place.line}:{error.place.column}: {error.why}")
            return None
        self.loaded.warnings += [self._problem(where, note) for note in secrets.notes]
        try:
            return Finder(secrets.rules, secrets.accept)
        except PatternError as error:
            self.wrong(where, secrets.explain(error))
            return None

    def _compiled(self, pattern: str, where: Path) -> Finder | None:
        try:
            return Finder.of(pattern)
        except PatternError as error:
            at = (
                ""
                if error.position is None
                else f" at character {error.position + 1} ({error.pattern[error.position : error.position + 12]!r})"
            )
            nearest = f": {error.nearest}" if error.nearest else ""
            self.wrong(
                where,
                f"RE2 refuses {error.construct}{at}{nearest}" if at else f"RE2 refuses this pattern: {error.construct}{nearest}",
            )
            return None

    def _patterns(self, item: Any, path: Path) -> None:
        """The patterns of a rule whose form is wrong somewhere: their mistakes are to be heard of at once, too."""
        filters = item.get("args") if isinstance(item, dict) else None
        wheres: list[Path] = [("regex",), *[("args", name, "regex") for name in (filters if isinstance(filters, dict) else ())]]
        for where in wheres:
            value = item
            for step in where:
                value = value.get(step) if isinstance(value, dict) else None
            if isinstance(value, str) and value:
                self._compiled(value, (*path, *where))

    def _tests(self, definition: Any, path: Path) -> list[ArgumentTest]:
        tests = []
        for pointer, condition in getattr(definition, "args", {}).items():
            where = (*path, "args", pointer)
            low, high = condition.min, condition.max
            if all(value is UNSET for value in (condition.regex, condition.equals, low, high)):
                self.wrong(where, "expected a condition: 'regex', 'equals', 'min' or 'max'")
            if low is not UNSET and high is not UNSET and low > high:
                self.wrong((*where, "min"), f"no number is both at least {low:g} and at most {high:g}")
            finder = None if condition.regex is UNSET else self._compiled(condition.regex, (*where, "regex"))
            try:
                tests.append(ArgumentTest(pointer, condition, finder))
            except ValueError as error:
                self.wrong(where, str(error))
        return tests

    # --- actions ---

    def _actions(self, definition: Any, path: Path) -> None:
        target, event = str(definition.__struct_config__.tag), getattr(definition, "event", "")
        for i, action in enumerate(definition.actions):
            where = (*path, "actions", i)
            kind = str(action.__struct_config__.tag)
            if event and not allowed(target, event, kind):
                self.wrong(
                    (*where, "type"),
                    f"{kind!r} decides nothing at event {event!r}: it is allowed at {', '.join(action_targets()[kind])}",
                )
            elif isinstance(action, schema.ReplaceAction):
                self._replace(definition, action, where)
            elif isinstance(action, schema.AnswerAction) and target == "request" and not isinstance(action.result, str):
                self.wrong((*where, "result"), "the answer to a request is the model's reply: expected a string")

    def _replace(self, definition: Any, action: schema.ReplaceAction, where: Path) -> None:
        of_call = isinstance(definition, schema.ToolRule) and definition.event == "before"
        if action.argument is not UNSET:
            if not of_call:
                self.wrong(
                    (*where, "argument"), "only a tool call has arguments: 'argument' goes with target 'tool' and event 'before'"
                )
                return
            try:
                argument_steps(action.argument)
            except ValueError as error:
                self.wrong((*where, "argument"), str(error))
        elif of_call and not _has_pattern(definition):
            self.wrong(where, "the field 'argument' is missing: which argument is to be replaced?")
        whole_argument = of_call and not _has_pattern(definition)
        if not whole_argument and not isinstance(action.with_, str):
            self.wrong((*where, "with"), "expected a string")
        if isinstance(definition, schema.StreamRule) and set(definition.chunks) == {"finish"}:
            self.wrong((*where, "type"), "a finish chunk carries no text that could be replaced")


def _has_pattern(definition: Any) -> bool:
    return definition.regex is not UNSET or definition.patterns_from is not UNSET
