"""The `adf` bridge: what a lambda can reach, and nothing else.

Every call goes the same way: forged privileges are taken out, then the gates are asked in a fixed order, then the method or
the tool runs with the authority of the file that calls. Names of the bridge win over tools of the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ..errors import BeforehandError, ConfigError
from ..events import CustomEvent
from ..frozen import Frozen, freeze
from ..sandbox import BridgeRefused, Console, LambdaMissing, LambdaTooManyInside, SandboxError, SandboxLimits, call
from ..shadow import WATCHING
from ..signals import AbortSignal
from . import methods, reach
from .caller import MAX_DEPTH, Caller
from .files import Workspace, split_source
from .gates import EXCLUDED, FLAGS, SWITCHED, Gates
from .paths import PathRefused

HARMLESS = frozenset({"fs_read", "fs_list", "sys_lambda", "sys_get_meta", "sys_get_config"})
"""What a hook in the shadow may call: none of it leaves anything behind."""

Step = tuple[str, str]
"""A lambda under way: its file and function."""


class Bridge(Frozen):
    """The bridge of one call of one file. `chain` holds the lambdas that lead to it, so two calls side by side are no cycle.

    `authorized` is the standing of this file alone: a lambda it calls has a bridge of its own. Without a `caller` there is
    no run to reach. A hook's `sys_lambda` is `private` to it; code that the model runs has it as the run has that tool.
    """

    workspace: Workspace
    limits: SandboxLimits
    chain: tuple[Step, ...]
    console: Console
    signal: AbortSignal | None
    deadline: float
    """The event loop's time at which the outermost lambda has to be done."""
    caller: Caller | None = None
    authorized: bool = False
    private: bool = True

    @property
    def gates(self) -> Gates:
        return self.workspace.gates

    @property
    def methods(self) -> tuple[str, ...]:
        """The names in `adf` beside the bridge's own."""
        return (*EXCLUDED, *reach.tool_names(self.caller, self.gates))

    @property
    def awaited(self) -> bool:
        """Whether lambdas at work may wait for this one: what a run has to tell it tells in order, and this judges some of it."""
        return len(self.chain) == 1 and self.caller is not None and self.caller.update

    async def __call__(self, method: str, argument: Any) -> Any:
        if self.signal is not None and self.signal.aborted:
            raise BridgeRefused("INVALID_STATE", f"adf.{method} was not called: the run was aborted")
        if asyncio.get_running_loop().time() >= self.deadline:  # a busy event loop may come late to its timers
            raise BridgeRefused("INVALID_STATE", f"adf.{method} was not called: the lambda's time was over")
        if not isinstance(argument, Mapping):
            raise BridgeRefused("INVALID_INPUT", f"adf.{method} takes one object, not a {type(argument).__name__}")
        if (watch := WATCHING.get()) is not None and method not in HARMLESS:
            watch.refused = True
            raise BridgeRefused("DISABLED", f"adf.{method} was not called: this hook is in the shadow, and may not act")
        if not FLAGS.isdisjoint(argument):
            argument = await self._without_flags(method, argument)
        gates = self.gates
        gates.check_method(method, self.authorized)
        handler = _HANDLERS.get(method)
        if handler is None and self.caller is None:
            raise BridgeRefused("NOT_FOUND", f"adf.{method} does not exist here")
        if handler is not None and method not in SWITCHED:
            gates.check_tool(method, self.authorized)
        if method == "sys_lambda" and not self.private and self.caller is not None:
            reach.find_tool(self.caller, gates, method, self.authorized)
        if argument.get("_async"):
            raise BridgeRefused("INVALID_INPUT", f"adf.{method}: _async is not possible, a lambda's calls end with it: await it")
        if not isinstance(argument.get("_full", False), bool):
            raise BridgeRefused("INVALID_INPUT", "_full must be true or false")
        argument = {key: value for key, value in argument.items() if key != "_async"}
        if handler is None:
            assert self.caller is not None
            return await reach.call_tool(self.caller, gates, method, argument, self.authorized)
        argument.pop("_full", None)  # nothing the bridge's own methods give is shortened
        return await self._run(method, handler, argument)

    async def _run(self, method: str, handler: Handler, argument: Mapping[str, Any]) -> Any:
        required, optional, run = handler
        missing = [name for name in required if name not in argument]
        unknown = [name for name in argument if name not in required and name not in optional]
        if missing or unknown:
            what = f"needs {missing[0]!r}" if missing else f"has no {unknown[0]!r}"
            takes = ", ".join([*required, *(f"{name}?" for name in optional)])
            raise BridgeRefused("INVALID_INPUT", f"adf.{method} {what}; it takes {takes or 'nothing'}"[:300])
        try:
            return await run(self, argument)
        except PathRefused as error:
            raise BridgeRefused("INVALID_INPUT", str(error)) from None
        except FileNotFoundError:
            raise BridgeRefused("NOT_FOUND", f"there is no file {argument.get('path')!r}") from None
        except OSError as error:
            raise BridgeRefused("WRITE_ERROR", f"adf.{method}: {error.strerror or type(error).__name__}") from None

    async def _without_flags(self, method: str, argument: Mapping[str, Any]) -> Mapping[str, Any]:
        claimed = ", ".join(sorted(FLAGS & argument.keys()))
        if self.caller is not None and not self.authorized:
            await self.caller.note("Stripped", f"{self.chain[-1][0]} claimed {claimed} at adf.{method}, which nobody can")
        return {key: value for key, value in argument.items() if key not in FLAGS}


# --- what reaches the run ------------------------------------------------------------------------


def _caller(bridge: Bridge, method: str) -> Caller:
    if bridge.caller is None:
        raise BridgeRefused("DISABLED", f"adf.{method} needs a run, and there is none here")
    return bridge.caller


async def _model_invoke(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    return await reach.model_invoke(_caller(bridge, "model_invoke"), argument)


async def _loop_inject(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    return await reach.loop_inject(_caller(bridge, "loop_inject"), argument, bridge.gates)


async def _task_resolve(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    return await reach.task_resolve(_caller(bridge, "task_resolve"), bridge.workspace.approvals, argument)


async def _emit_event(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    name, payload = methods.event_name(argument), argument.get("payload")
    run = None if bridge.caller is None else bridge.caller.run
    if bridge.workspace.on_event is None and run is None:
        raise BridgeRefused("DISABLED", "nothing here takes a lambda's events")
    if bridge.workspace.on_event is not None:
        bridge.workspace.on_event(name, payload)
    if run is not None and run.events.heard:
        with run.work_aside():
            await run.emit(CustomEvent(name=name, data=freeze(payload), **run.event_fields()))
    return {"event_type": name}


# --- lambdas -------------------------------------------------------------------------------------


async def _sys_lambda(bridge: Bridge, argument: Mapping[str, Any]) -> Any:
    try:
        path, function = split_source(argument["source"])
    except BeforehandError as error:
        raise BridgeRefused("INVALID_INPUT", str(error)) from None
    workspace = bridge.workspace
    real = "/".join(workspace.folder.resolve(path))
    step = (real, function)
    if step in bridge.chain:
        way = " -> ".join(f"{p}:{f}" for p, f in (*bridge.chain, step))
        raise BridgeRefused("CIRCULAR_CALL", f"these lambdas call each other in a ring: {way}")
    if len(bridge.chain) >= MAX_DEPTH:
        raise BridgeRefused("LIMIT", f"lambdas call lambdas at most {MAX_DEPTH} deep")
    try:
        source = workspace.source(path)
    except FileNotFoundError:
        raise BridgeRefused("NOT_FOUND", f"there is no lambda {path!r}") from None
    authorized = workspace.is_authorized(real, source)
    if authorized and not bridge.authorized:
        why = f"{path!r} is authorised, and {bridge.chain[-1][0]!r}, which calls it, is not"
        raise BridgeRefused("REQUIRES_AUTHORIZED_CALLER", why)
    left = bridge.deadline - asyncio.get_running_loop().time()
    limits = msgspec.structs.replace(bridge.limits, wall_time=max(left, 0.001))
    inner = msgspec.structs.replace(bridge, chain=(*bridge.chain, step), limits=limits, authorized=authorized)
    try:
        outcome = await call(
            source, function, argument.get("args", {}), limits=limits, bridge=inner, signal=bridge.signal, console=bridge.console
        )
    except ConfigError as error:  # what would run it is not installed
        raise BridgeRefused("DISABLED", str(error)) from None
    except LambdaMissing as error:
        raise BridgeRefused("NOT_FOUND", str(error)) from None
    except LambdaTooManyInside as error:
        raise BridgeRefused("LIMIT", str(error)) from None
    except SandboxError as error:
        raise BridgeRefused("FN_ERROR", str(error)) from None
    return outcome.value


Handler = tuple[tuple[str, ...], tuple[str, ...], Callable[[Any, Mapping[str, Any]], Awaitable[Any]]]

_HANDLERS: dict[str, Handler] = {
    "fs_read": (("path",), ("start_line", "end_line"), methods.fs_read),
    "fs_list": ((), ("prefix",), methods.fs_list),
    "fs_write": (("path",), ("mode", "content", "edits"), methods.fs_write),
    "fs_delete": (("path",), (), methods.fs_delete),
    "authorize_file": (("path",), (), methods.authorize_file),
    "sys_lambda": (("source",), ("args",), _sys_lambda),
    "sys_get_meta": ((), ("key",), methods.get_meta),
    "sys_set_meta": (("key",), ("value", "delta"), methods.set_meta),
    "sys_delete_meta": (("key",), (), methods.delete_meta),
    "sys_get_config": ((), ("section",), methods.get_config),
    "emit_event": (("event_type",), ("payload",), _emit_event),
    "model_invoke": (
        (), ("messages", "prompt", "system", "model", "max_tokens", "temperature", "top_p", "provider_params"), _model_invoke,
    ),
    "loop_inject": (("content",), ("role", "category", "key"), _loop_inject),
    "task_resolve": (("task_id", "action"), ("reason", "modified_args"), _task_resolve),
}  # fmt: skip
"""Each method: what it needs, what it may be given, and what does it."""

__all__ = ["Bridge", "Step"]
