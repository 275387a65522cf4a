"""The part of the bridge that reaches the workspace: files, values, the configuration, events."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import StringIO
from typing import Any, Protocol

from ..detach import in_thread
from ..documents.files import in_turn
from ..errors import ConfigError
from ..frozen import surely_json, thaw
from ..sandbox import BridgeRefused
from .authority import LAMBDA_SUFFIXES
from .files import Workspace


class Place(Protocol):
    """A workspace, and whether the code that uses it is authorised."""

    @property
    def workspace(self) -> Workspace: ...
    @property
    def authorized(self) -> bool: ...


def text_of(argument: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = argument.get(name, default)
    if not isinstance(value, str):
        raise BridgeRefused("INVALID_INPUT", f"{name!r} must be a text, not {value!r}"[:200])
    return value


# --- files ---


def _decoded(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BridgeRefused("INVALID_INPUT", f"{path!r} is no text in UTF-8") from None


async def fs_read(place: Place, argument: Mapping[str, Any]) -> Any:
    path = text_of(argument, "path")
    data = place.workspace.read(path)
    text = _decoded(path, data)
    first, last = argument.get("start_line"), argument.get("end_line")
    for name, line in (("start_line", first), ("end_line", last)):
        if line is not None and (isinstance(line, bool) or not isinstance(line, int) or line < 1):
            raise BridgeRefused("INVALID_INPUT", f"{name!r} must be a line number, at least 1")
    if first is not None or last is not None:
        text = "".join(list(StringIO(text, newline="\n"))[(first or 1) - 1 : last])  # lines as editors count them, and no others
    authority = place.workspace.authority
    standing = {"protection": authority.protection(path), "authorized": authority.is_authorized(path, data)}
    return {"path": path, "content": text, "size": len(data), **standing}


async def fs_list(place: Place, argument: Mapping[str, Any]) -> Any:
    prefix = text_of(argument, "prefix", "")
    found = await in_thread(list, place.workspace.folder.files())  # a folder may hold any number of files
    return [{"path": path, "size": size} for path, size in found if path.startswith(prefix)]


def _changeable(place: Place, path: str, *, delete: bool = False) -> None:
    real = place.workspace.folder.resolve(path)
    if not place.workspace.code_writable and any(p.lower().endswith(LAMBDA_SUFFIXES) for p in (path, *real[-1:])):
        raise BridgeRefused("PROTECTION_DENIED", f"{path!r} can hold lambdas, and a lambda cannot change what runs")
    if place.authorized:
        return
    protection = place.workspace.authority.protection(path)
    if protection == "read_only" or (delete and protection == "no_delete"):
        raise BridgeRefused("PROTECTION_DENIED", f"{path!r} is protected ({protection}); authorised code may change it")


async def fs_write(place: Place, argument: Mapping[str, Any]) -> Any:
    path, mode = text_of(argument, "path"), text_of(argument, "mode", "write")
    _changeable(place, path)
    if mode not in ("write", "append", "edit"):
        raise BridgeRefused("INVALID_INPUT", f"mode is {mode!r}: expected write, append or edit")
    workspace, before, text = place.workspace, b"", ""
    if mode == "edit":
        before = workspace.read(path)
        text = await _edit(_decoded(path, before), argument.get("edits"))
        _changeable(place, path)
    else:
        text = text_of(argument, "content")
    async with in_turn(workspace.folder.root):
        if mode == "append":
            with suppress(FileNotFoundError):
                text = _decoded(path, workspace.read(path)) + text
        elif mode == "edit" and workspace.read(path) != before:
            raise BridgeRefused("INVALID_STATE", f"{path!r} was changed while it was edited: read it again")
        data = text.encode("utf-8", "backslashreplace")
        workspace.write(path, data)
    return {"path": path, "size": len(data)}


_QUICK = 1_000_000
"""Characters that edits may have to look through on the event loop. More are looked through in a thread."""


async def _edit(text: str, edits: Any) -> str:
    """Every edit made, or none."""
    if not isinstance(edits, list) or not edits:
        raise BridgeRefused("INVALID_INPUT", "edits must be a list of {old_text, new_text}")
    if len(text) * len(edits) <= _QUICK:
        return _edited(text, edits, [])
    given_up: list[bool] = []
    try:
        return await in_thread(_edited, text, edits, given_up)  # type: ignore[no-any-return]
    finally:
        given_up.append(True)  # nobody waits any more: the lambda has ended


def _edited(text: str, edits: list[Any], given_up: list[bool]) -> str:
    for i, edit in enumerate(edits):
        if given_up:
            break
        if not isinstance(edit, Mapping) or edit.keys() != {"old_text", "new_text"}:
            raise BridgeRefused("INVALID_INPUT", f"edits[{i}] must be an object of old_text and new_text")
        old, new = text_of(edit, "old_text"), text_of(edit, "new_text")
        if not old or text.count(old) != 1:
            raise BridgeRefused("INVALID_INPUT", f"edits[{i}]: old_text occurs {text.count(old) if old else 0} times, not once")
        text = text.replace(old, new)
    return text


async def fs_delete(place: Place, argument: Mapping[str, Any]) -> Any:
    path = text_of(argument, "path")
    _changeable(place, path, delete=True)
    place.workspace.folder.remove(path)
    return {"path": path, "deleted": True}


# --- values ---


async def get_meta(place: Place, argument: Mapping[str, Any]) -> Any:
    meta = place.workspace.get_meta()
    return meta if "key" not in argument else meta.get(text_of(argument, "key"))


async def set_meta(place: Place, argument: Mapping[str, Any]) -> Any:
    key = text_of(argument, "key")
    if ("value" in argument) == ("delta" in argument):
        raise BridgeRefused("INVALID_INPUT", "adf.sys_set_meta takes a value or a delta")

    def change(meta: dict[str, Any]) -> Any:
        if "value" in argument:
            if not surely_json(argument["value"]):
                raise BridgeRefused("INVALID_INPUT", "'value' holds what JSON cannot (NaN, Infinity), or too deep a nesting")
            meta[key] = argument["value"]
            return meta[key]
        old, delta = meta.get(key, 0), argument["delta"]
        if any(isinstance(n, bool) or not isinstance(n, int | float) for n in (old, delta)):
            raise BridgeRefused("INVALID_INPUT", f"a delta adds to a number, but {key!r} or the delta is none")
        meta[key] = _sum(old, delta)
        return meta[key]

    return await _changed(place, change)


def _sum(old: float, delta: float) -> float:
    try:
        total = old + delta
        if math.isfinite(total):  # for the others the file would say null
            return total
    except OverflowError:  # a whole number that no float can hold
        pass
    raise BridgeRefused("INVALID_INPUT", "the delta makes it no number, or a larger one than JSON is sure to hold")


async def _changed(place: Place, change: Callable[[dict[str, Any]], Any]) -> Any:
    async with in_turn(place.workspace.folder.root):
        return place.workspace.change_meta(change)


async def delete_meta(place: Place, argument: Mapping[str, Any]) -> Any:
    key = text_of(argument, "key")
    return await _changed(place, lambda meta: meta.pop(key, _ABSENT) is not _ABSENT)


_ABSENT = object()


async def get_config(place: Place, argument: Mapping[str, Any]) -> Any:
    config = thaw(place.workspace.config)
    if "section" not in argument:
        return config
    section = text_of(argument, "section")
    if section not in config:
        raise BridgeRefused("NOT_FOUND", f"the configuration has no section {section!r}")
    return config[section]


def event_name(argument: Mapping[str, Any]) -> str:
    name = text_of(argument, "event_type")
    if not name.startswith("custom.") or len(name) > 200:
        raise BridgeRefused("INVALID_INPUT", f'event_type is {name[:200]!r}: expected one that begins with "custom."')
    return name


async def authorize_file(place: Place, argument: Mapping[str, Any]) -> Any:
    path, authority = text_of(argument, "path"), place.workspace.authority
    try:
        async with in_turn(authority.file.parent):
            return {"path": path, "sha256": authority.authorize(path)}
    except ConfigError as error:
        raise BridgeRefused("INVALID_INPUT", str(error)) from None
