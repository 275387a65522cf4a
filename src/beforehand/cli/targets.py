"""`beforehand targets`: in which loops the `pre_llm_hook` of a project runs, shown and edited as rows."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from ..config import read_project
from ..config.edit import write_hook
from ..config.project import shown_path
from ..config.targets import Draft, Targets, add, described, draft_of, remove
from ..documents.files import only_writer
from ..errors import ConfigError, nearest
from ..settings import split_source
from ..workspace.paths import Folder, PathRefused
from .terminal import complain

ACTIONS = ("add", "remove", "all", "set")


def edit_targets(project: Path, action: str | None, names: tuple[str, ...], source: str | None, timeout: str | None) -> None:
    """Do one edit, or none, then print the rows. Raises `ConfigError`, and has written nothing then."""
    found = read_project(project)
    if action is not None or source is not None or timeout is not None:
        with only_writer(found.file.resolve().parent):
            found = read_project(project)  # as those have left it who were quicker
            draft = draft_of(found.settings.pre_llm_hook)
            if action is not None:
                draft = msgspec.structs.replace(draft, targets=_edited(draft.targets, action, names))
            if source is not None:
                draft = msgspec.structs.replace(draft, source=source)
            if timeout is not None:
                draft = msgspec.structs.replace(draft, timeout_ms=_timeout(timeout))
            _write(found.file, draft, found.path("workspace"))
        found = read_project(project)
    for line in described(found.settings):
        print(line)


def _edited(targets: Targets, action: str, names: tuple[str, ...]) -> Targets:
    if action not in ACTIONS:
        near = nearest(action, ACTIONS)
        raise ConfigError(f"there is no edit {action!r}: " + (f"did you mean {near!r}?" if near else f"use {', '.join(ACTIONS)}"))
    if action == "all":
        if names:
            raise ConfigError(f'"all" goes with no other row, so not with {names[0]!r}')
        return Targets(everywhere=True)
    if not names:
        raise ConfigError(f"`targets {action}` needs a name: main, or an inner loop that exists or is to come")
    if action == "set":
        return add(Targets(), names)
    return (add if action == "add" else remove)(targets, names)


def _timeout(text: str) -> int | str | None:
    """`None` takes the time limit out. What is no number is the draft's mistake."""
    if text in ("", "none"):
        return None
    return int(text) if _PLAIN.match(text) else text


_PLAIN = re.compile(r"-?[0-9]{1,9}\Z")
"""`int` takes more than people write: 5_000, digits of other scripts, spaces around."""


def _write(file: Path, draft: Draft, workspace: Path | None) -> None:
    hook = draft.hook()
    if workspace is None:
        raise ConfigError(f"{shown_path(file)}: the field 'workspace' is missing: the folder that holds the hook's lambda")
    path, _ = split_source(hook.source)
    try:
        Folder(workspace).resolve(path)
    except PathRefused as error:
        raise ConfigError(f"pre_llm_hook.source: {error}") from None
    write_hook(file, hook)
    if not (workspace / path).is_file():
        where = shown_path(workspace)
        complain(f"note: there is no file {path} in {where} yet; until there is, no request leaves where the hook runs")
