"""The `adf` bridge: what a lambda can reach, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ..errors import BeforehandError
from ..frozen import Frozen, thaw
from ..sandbox import BridgeRefused, Console, LambdaMissing, SandboxError, SandboxLimits, call
from ..signals import AbortSignal
from .files import Workspace, split_source
from .paths import PathRefused

MAX_DEPTH = 8

Step = tuple[str, str]
"""A lambda under way: its file and function."""


class Bridge(Frozen):
    """The bridge of one call. `chain` holds the lambdas that lead to it, so two calls side by side are no cycle."""

    workspace: Workspace
    limits: SandboxLimits
    chain: tuple[Step, ...]
    console: Console
    signal: AbortSignal | None
    deadline: float
    """The event loop's time at which the outermost lambda has to be done."""

    async def __call__(self, method: str, argument: Any) -> Any:
        handler = _HANDLERS.get(method)
        if handler is None:
            raise BridgeRefused("NOT_FOUND", f"adf.{method} does not exist here")
        if not isinstance(argument, Mapping):
            raise BridgeRefused("INVALID_INPUT", f"adf.{method} takes one object, not a {type(argument).__name__}")
        required, optional, run = handler
        missing = [name for name in required if name not in argument]
        unknown = [name for name in argument if name not in required and name not in optional]
        if missing or unknown:
            what = f"needs {missing[0]!r}" if missing else f"has no {unknown[0]!r}"
            takes = ", ".join([*required, *(f"{name}?" for name in optional)])
            raise BridgeRefused("INVALID_INPUT", f"adf.{method} {what}; it takes {takes or 'nothing'}")
        try:
            return await run(self, argument)
        except PathRefused as error:
            raise BridgeRefused("INVALID_INPUT", str(error)) from None
        except FileNotFoundError:
            raise BridgeRefused("NOT_FOUND", f"there is no file {argument.get('path')!r}") from None
        except OSError as error:
            raise BridgeRefused("WRITE_ERROR", f"adf.{method}: {error.strerror or type(error).__name__}") from None


def _text(argument: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = argument.get(name, default)
    if not isinstance(value, str):
        raise BridgeRefused("INVALID_INPUT", f"{name!r} must be a text, not {value!r}"[:200])
    return value


# --- files ---


async def _fs_read(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    path = _text(argument, "path")
    data = bridge.workspace.read(path)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BridgeRefused("INVALID_INPUT", f"{path!r} is no text in UTF-8") from None
    first, last = argument.get("start_line"), argument.get("end_line")
    for name, line in (("start_line", first), ("end_line", last)):
        if line is not None and (isinstance(line, bool) or not isinstance(line, int) or line < 1):
            raise BridgeRefused("INVALID_INPUT", f"{name!r} must be a line number, at least 1")
    if first is not None or last is not None:
        text = "".join(text.splitlines(keepends=True)[(first or 1) - 1 : last])
    return {"path": path, "content": text, "size": len(data)}


async def _fs_list(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    prefix = _text(argument, "prefix", "")
    return [{"path": path, "size": size} for path, size in bridge.workspace.folder.files() if path.startswith(prefix)]


def _changeable(bridge: Bridge, path: str) -> None:
    real = bridge.workspace.folder.resolve(path)
    if not bridge.workspace.code_writable and any(p.endswith((".py", ".ts", ".js")) for p in (path, *real[-1:])):
        raise BridgeRefused("PROTECTION_DENIED", f"{path!r} can hold lambdas, and a lambda cannot change what runs")


async def _fs_write(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    path, mode = _text(argument, "path"), _text(argument, "mode", "write")
    _changeable(bridge, path)
    if mode == "write":
        text = _text(argument, "content")
    elif mode == "append":
        try:
            text = bridge.workspace.read(path).decode() + _text(argument, "content")
        except FileNotFoundError:
            text = _text(argument, "content")
    elif mode == "edit":
        text = _edited(bridge.workspace.read(path).decode(), argument.get("edits"))
    else:
        raise BridgeRefused("INVALID_INPUT", f"mode is {mode!r}: expected write, append or edit")
    data = text.encode("utf-8", "backslashreplace")
    bridge.workspace.write(path, data)
    return {"path": path, "size": len(data)}


def _edited(text: str, edits: Any) -> str:
    """Every edit made, or none."""
    if not isinstance(edits, list) or not edits:
        raise BridgeRefused("INVALID_INPUT", "edits must be a list of {old_text, new_text}")
    for i, edit in enumerate(edits):
        if not isinstance(edit, Mapping) or edit.keys() != {"old_text", "new_text"}:
            raise BridgeRefused("INVALID_INPUT", f"edits[{i}] must be an object of old_text and new_text")
        old, new = _text(edit, "old_text"), _text(edit, "new_text")
        if not old or text.count(old) != 1:
            raise BridgeRefused("INVALID_INPUT", f"edits[{i}]: old_text occurs {text.count(old) if old else 0} times, not once")
        text = text.replace(old, new)
    return text


async def _fs_delete(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    path = _text(argument, "path")
    _changeable(bridge, path)
    bridge.workspace.folder.remove(path)
    return {"path": path, "deleted": True}


# --- values ---


async def _get_meta(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    meta = bridge.workspace.get_meta()
    return meta if "key" not in argument else meta.get(_text(argument, "key"))


async def _set_meta(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    key = _text(argument, "key")
    if ("value" in argument) == ("delta" in argument):
        raise BridgeRefused("INVALID_INPUT", "adf.sys_set_meta takes a value or a delta")

    def change(meta: dict[str, Any]) -> Any:
        if "value" in argument:
            meta[key] = argument["value"]
            return meta[key]
        old, delta = meta.get(key, 0), argument["delta"]
        if any(isinstance(n, bool) or not isinstance(n, int | float) for n in (old, delta)):
            raise BridgeRefused("INVALID_INPUT", f"a delta adds to a number, but {key!r} or the delta is none")
        meta[key] = old + delta
        return meta[key]

    return bridge.workspace.change_meta(change)


async def _delete_meta(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    key = _text(argument, "key")
    return bridge.workspace.change_meta(lambda meta: meta.pop(key, _ABSENT) is not _ABSENT)


_ABSENT = object()


async def _get_config(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    config = thaw(bridge.workspace.config)
    if "section" not in argument:
        return config
    section = _text(argument, "section")
    if section not in config:
        raise BridgeRefused("NOT_FOUND", f"the configuration has no section {section!r}")
    return config[section]


async def _emit_event(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    name = _text(argument, "event_type")
    if not name.startswith("custom.") or len(name) > 200:
        raise BridgeRefused("INVALID_INPUT", f"event_type is {name[:200]!r}: expected one that begins with \"custom.\"")
    if bridge.workspace.on_event is None:
        raise BridgeRefused("DISABLED", "nothing here takes a lambda's events")
    bridge.workspace.on_event(name, argument.get("payload"))
    return {"event_type": name}


# --- lambdas ---


async def _sys_lambda(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    if not bridge.workspace.sys_lambda:
        raise BridgeRefused("DISABLED", "adf.sys_lambda is switched off")
    try:
        path, function = split_source(argument["source"])
    except BeforehandError as error:
        raise BridgeRefused("INVALID_INPUT", str(error)) from None
    real = "/".join(bridge.workspace.folder.resolve(path))
    step = (real, function)
    if step in bridge.chain:
        way = " -> ".join(f"{p}:{f}" for p, f in (*bridge.chain, step))
        raise BridgeRefused("CIRCULAR_CALL", f"these lambdas call each other in a ring: {way}")
    if len(bridge.chain) >= MAX_DEPTH:
        raise BridgeRefused("LIMIT", f"lambdas call lambdas at most {MAX_DEPTH} deep")
    try:
        source = bridge.workspace.source(path)
    except FileNotFoundError:
        raise BridgeRefused("NOT_FOUND", f"there is no lambda {path!r}") from None
    left = bridge.deadline - asyncio.get_running_loop().time()
    limits = msgspec.structs.replace(bridge.limits, wall_time=max(left, 0.001))
    inner = msgspec.structs.replace(bridge, chain=(*bridge.chain, step), limits=limits)
    try:
        outcome = await call(
            source, function, argument.get("args", {}), limits=limits, bridge=inner, signal=bridge.signal, console=bridge.console
        )
    except LambdaMissing as error:
        raise BridgeRefused("NOT_FOUND", str(error)) from None
    except SandboxError as error:
        raise BridgeRefused("FN_ERROR", str(error)) from None
    return outcome.value


Handler = tuple[tuple[str, ...], tuple[str, ...], Callable[[Bridge, Mapping[str, Any]], Awaitable[Any]]]

_HANDLERS: dict[str, Handler] = {
    "fs_read": (("path",), ("start_line", "end_line"), _fs_read),
    "fs_list": ((), ("prefix",), _fs_list),
    "fs_write": (("path",), ("mode", "content", "edits"), _fs_write),
    "fs_delete": (("path",), (), _fs_delete),
    "sys_lambda": (("source",), ("args",), _sys_lambda),
    "sys_get_meta": ((), ("key",), _get_meta),
    "sys_set_meta": (("key",), ("value", "delta"), _set_meta),
    "sys_delete_meta": (("key",), (), _delete_meta),
    "sys_get_config": ((), ("section",), _get_config),
    "emit_event": (("event_type",), ("payload",), _emit_event),
}
"""Each method: what it needs, what it may be given, and what does it."""
