"""Project files, read strictly: every mistake at once, each with its line, and nothing of a file that has one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import msgspec
import msgspec.inspect as types

from ..documents.files import read_utf8
from ..documents.forms import Check, Found
from ..documents.json_places import read_json
from ..documents.places import Document, Malformed, Path
from ..documents.problems import Problem, did_you_mean, field_name
from ..documents.toml_places import read_toml
from ..errors import ConfigError
from ..frozen import Frozen
from ..settings import ProjectSettings
from .block import NAME, as_block, meaning

FILES = ("beforehand.toml", "beforehand.json")

_READERS: dict[str, Callable[[str], Document]] = {".toml": read_toml, ".json": read_json}


class ProjectFileError(ConfigError):
    """A project file that cannot be used. Nothing of it was. `problems` has every mistake that was found."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        head = "" if len(problems) == 1 else f"{len(problems)} mistakes in the project file, so nothing of it counts:\n"
        super().__init__(head + "\n".join([str(problem) for problem in problems]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems,)


class Project(Frozen):
    """A project file and what it says."""

    file: FilePath
    settings: ProjectSettings
    document: Document

    def path(self, name: str) -> FilePath | None:
        """The file or folder that a field names, relative to the project file."""
        given = getattr(self.settings, name)
        return None if given is None else self.file.parent / given

    def where(self, *path: str | int) -> str:
        """file:line of a field."""
        return f"{shown_path(self.file)}:{self.document.place(path).line}"

    def problem(self, path: Path, why: str) -> Problem:
        return _problem(self.file, self.document, path, why)


def find_project(path: str | FilePath) -> FilePath:
    """The project file at `path`: itself, or the one in a folder. Raises `ConfigError`."""
    given = FilePath(path)
    if given.is_dir():
        there = [given / name for name in FILES if (given / name).exists()]
        if len(there) > 1:
            raise ConfigError(f"{given} has both {' and '.join(FILES)}: name the one that counts, or take the other away")
        if not there:
            raise ConfigError(f"there is no project file in {given}: expected {' or '.join(FILES)}")
        return there[0]
    if given.suffix not in _READERS and (given.suffix or given.exists()):
        raise ConfigError(f"{given} is no project file: its name must end in {' or '.join(_READERS)}")
    if not given.exists():
        raise ConfigError(f"there is no project file {given}")
    return given


def is_project(path: FilePath) -> bool:
    """Whether this looks like a project: the file by its name, or a folder that has one."""
    return path.name in FILES or (path.is_dir() and any((path / name).exists() for name in FILES))


def read_project(path: str | FilePath, text: str | None = None) -> Project:
    """Read a project file, or the one in a folder. Raises `ProjectFileError`, or `ConfigError` if there is none.

    `text` is what the file says, for those who have read it already.
    """
    file = find_project(path).absolute()  # it stays the same file, wherever the process goes
    text = text_of(file) if text is None else text
    try:
        document = _READERS[file.suffix](text)
    except Malformed as error:
        raise _malformed(file, error) from None
    problems = [
        Problem(shown_path(file), place.line, place.column, field_name(again), "the field stands here a second time")
        for again, place in document.twice
    ]
    found = _mistakes(document.value, file)
    problems += [_problem(file, document, where, why + _about_toml(file, document.value, where)) for where, why in found]
    if problems:
        raise ProjectFileError(tuple(problems))
    given = dict(document.value)
    if NAME in given:
        given[NAME] = as_block(given[NAME])
    return Project(file, msgspec.convert(given, ProjectSettings), document)


def text_of(file: FilePath) -> str:
    """What a project file says. Raises `ProjectFileError`."""
    try:
        return read_utf8(file)
    except Malformed as error:
        raise _malformed(file, error) from None


def _malformed(file: FilePath, error: Malformed) -> ProjectFileError:
    return ProjectFileError((Problem(shown_path(file), error.place.line, error.place.column, "", error.why),))


def _problem(file: FilePath, document: Document, path: Path, why: str) -> Problem:
    place = document.place(path)
    return Problem(shown_path(file), place.line, place.column, field_name(path), why)


def shown_path(path: FilePath) -> str:
    """A path relative to the working directory where that is shorter."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


# --- what is wrong -------------------------------------------------------------------------------


def _mistakes(value: Any, file: FilePath) -> Found:
    check = Check()
    check.value(_type(), value, ())
    wrong = {path[0] for path, _ in check.found if path}
    if not isinstance(value, dict):
        return check.found
    for name, look in _MEANINGS.items():
        if name in value and name not in wrong:
            check.found += look(value[name], (name,))
    check.found += _paths({name: item for name, item in value.items() if name not in wrong}, file)
    return check.found


def _about_toml(file: FilePath, value: Any, path: Path) -> str:
    """What those run into who have written little TOML: one bracket for a list of tables, a field below the wrong table."""
    if file.suffix != ".toml":
        return ""
    if path in (("loops",), ("tools",)) and isinstance(value[path[0]], dict):
        return f": write [[{path[0]}]], with two brackets, above each of them"
    if len(path) == 2 and path[1] in ProjectSettings.__struct_fields__ and path[1] not in ("loops", "tools"):
        return f"; {path[1]!r} belongs to the whole file: write it above the first [table]"
    return ""


@cache
def _type() -> types.Type:
    return types.type_info(ProjectSettings)


def _code_execution(value: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    methods = value.get("restricted_methods")
    if not methods:
        return
    from ..sandbox.contract import METHODS  # deferred: only a project with lambdas needs it

    for i, name in enumerate(methods):
        if name not in METHODS:
            hint = did_you_mean(name, METHODS) or f": expected some of {', '.join(METHODS)}"
            yield (*path, "restricted_methods", i), f"the bridge has no method {name!r}{hint}"


def _recovery(value: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    defaults = ProjectSettings().recovery
    base, most = value.get("base_delay_ms", defaults.base_delay_ms), value.get("max_delay_ms", defaults.max_delay_ms)
    if base > most:
        name = "base_delay_ms" if "base_delay_ms" in value else "max_delay_ms"
        yield (*path, name), f"the first wait (base_delay_ms, {base}) is longer than the longest (max_delay_ms, {most})"


def _loops(value: list[dict[str, Any]], path: Path) -> Iterator[tuple[Path, str]]:
    yield from _named_twice(value, path, "loop")
    for i, loop in enumerate(value):
        if loop["name"] == "main":
            yield (*path, i, "name"), '"main" always exists and is not declared: an inner loop needs another name'
        tools = loop.get("tools", [])
        for j, tool in enumerate(tools):
            if tool in tools[:j]:
                yield (*path, i, "tools", j), f"{tool!r} is in the list already"


def _tools(value: list[dict[str, Any]], path: Path) -> Iterator[tuple[Path, str]]:
    return _named_twice(value, path, "tool")


def _named_twice(value: list[dict[str, Any]], path: Path, what: str) -> Iterator[tuple[Path, str]]:
    names = [item["name"] for item in value]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield (*path, i, "name"), f"the {what} {name!r} is declared above already"


_MEANINGS: dict[str, Callable[[Any, Path], Any]] = {
    NAME: meaning, "code_execution": _code_execution, "recovery": _recovery, "loops": _loops, "tools": _tools,
}  # fmt: skip


def _paths(value: Mapping[str, Any], file: FilePath) -> Iterator[tuple[Path, str]]:
    """Folders must be there, and nothing that says what may run may lie where lambdas can write."""
    if "base_url" in value and "model" not in value:
        yield ("base_url",), 'it is where the model is, and no model is named here: write model = "openai:NAME" beside it'
    if NAME in value and "workspace" not in value:
        yield (NAME,), "the field 'workspace' is missing beside it: in which folder is its lambda?"
    folders = {name: file.parent / value[name] for name in ("workspace", "hooks_dir") if name in value}
    for name, folder in folders.items():
        if not _is_folder(folder):
            yield (name,), f"there is no folder {value[name]!r} in {shown_path(file.parent)}"
    folders = {name: folder.resolve() for name, folder in folders.items() if _is_folder(folder)}
    root = folders.get("workspace")
    if root is None:
        return
    if file.resolve().is_relative_to(root):
        yield ("workspace",), "this project file lies in it, where lambdas can write: give the workspace a folder of its own"
    if "hooks_dir" in folders and folders["hooks_dir"].is_relative_to(root):
        yield ("hooks_dir",), "it lies in the workspace, where lambdas can write: rules belong outside of it"


def _is_folder(path: FilePath) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name no file can have
        return False
