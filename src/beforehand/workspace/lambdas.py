"""`Lambda`: a function in a workspace file as a hook. It runs in a sandbox and is trusted with nothing."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

import msgspec

from ..decisions import Decision, Interrupt
from ..detach import in_thread
from ..errors import ConfigError, HookDefinitionError, HookFailed
from ..hooks.check import EndsRun, Refused
from ..hooks.hook import Hook, HookOptions, unknown_seam
from ..sandbox import Console, SandboxError, SandboxLimits, call, check_language, close_spares
from ..seams import BY_NAME, ProviderCall, SeamSpec, Seen
from .bridge import Bridge
from .caller import Caller, known_as
from .codec import read_request, request_json
from .decisions import context_json, decisions_of
from .files import Workspace, split_source
from .paths import PathRefused

logger = logging.getLogger("beforehand.lambdas")

MAX_TIMEOUT = 300.0
GRACE = 1.0
"""Seconds that the dispatcher waits longer than the sandbox, which kills a late lambda, and then writes down what it had said
and what became of its calls."""

LARGE = 250_000
"""Bytes of JSON from which on what was returned is read in a thread: what comes from outside must not hold up the event loop."""


def Lambda(
    source: str, *, seam: str, workspace: str | Path | Workspace, limits: SandboxLimits | None = None,
    **options: Unpack[HookOptions],
) -> Hook:  # fmt: skip
    """A hook whose function is `source`, such as "lib/x.py:gate", in a workspace folder.

    `options` are those of `@hook.<seam>`; `timeout` (5 s, at most 300) is the wall time of one call. The function takes
    one JSON object and returns the seam's decisions as JSON; at `before_provider_call` it takes `{request, loop}` and
    returns the whole request. Raises `HookDefinitionError` for what can never work.
    """
    if seam not in BY_NAME:
        raise unknown_seam(seam)
    unknown = options.keys() - HookOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(HookOptions.__annotations__)
        raise HookDefinitionError(f"Lambda has no option {sorted(unknown)[0]!r}; it takes {known} and limits")
    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    bounds = limits or SandboxLimits()
    timeout = options.get("timeout")
    timeout = bounds.wall_time if timeout is None else timeout
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT:
        may = f"a number of seconds above 0, at most {MAX_TIMEOUT:g}"
        raise HookDefinitionError(f"lambda {source!r}: timeout={timeout!r} must be {may}")
    try:
        path, function = split_source(source)
        check_language(place.source(path))
    except (ConfigError, PathRefused) as error:
        raise HookDefinitionError(f"lambda {source!r}: {error}") from None
    except OSError as error:
        where = place.folder.root
        raise HookDefinitionError(f"lambda {source!r}: its file cannot be read in {where}: {error.strerror}") from None
    fn = LambdaFunction(BY_NAME[seam], place, path, function, msgspec.structs.replace(bounds, wall_time=float(timeout)))
    named: dict[str, Any] = {**options, "timeout": timeout, "name": options.get("name") or f"{path}:{function}"}
    return Hook(seam=seam, fn=fn, where=shown_path(place.folder.root / path), **named)


def shown_path(path: Path) -> str:
    """A path relative to the working directory where that is shorter, as other hooks' are shown."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


class _Said(list[Decision]):
    """Decisions, and what was written to the console meanwhile: it goes into their record and nowhere else."""

    def __init__(self, decisions: Iterable[Decision], console: str) -> None:
        super().__init__(decisions)
        self.console = console


def _call_id(context: Any) -> str | None:
    """The tool call that a seam is about."""
    return getattr(context, "call_id", None)


class LambdaFunction:
    """What the dispatcher calls: JSON in, one call in a sandbox, decisions out."""

    grace = GRACE

    def __init__(self, spec: SeamSpec, workspace: Workspace, path: str, function: str, limits: SandboxLimits) -> None:
        self.spec, self.workspace, self.path, self.function, self.limits = spec, workspace, path, function, limits
        self.__name__ = f"{path}:{function}"
        self.known_as = known_as(self.__name__, spec.name)

    async def __call__(self, context: Any) -> Any:
        deadline = asyncio.get_running_loop().time() + self.limits.wall_time
        console = Console(self.limits.console)
        caller = Caller(
            context.run._run, self, name=self.__name__, where=self.path, seam=self.spec.name, deadline=deadline,
            call_id=context.run.parent_call_id if not self.spec.by_tool else _call_id(context),
            update=getattr(context, "partial", False),
        )  # fmt: skip
        interrupt = caller.run.interrupt
        try:
            decided = await self._decide(context, caller, console, deadline)
        except Exception as error:
            self._end_run_if_a_call_said_so(caller, interrupt)
            error.acted = caller.acted  # type: ignore[attr-defined]
            if isinstance(error, Refused | SandboxError):
                error.console = self._written(console)  # type: ignore[union-attr]
            raise
        finally:
            await caller.leave()
            if written := self._written(console):
                logger.info("lambda %s:%s at %s wrote: %s", self.path, self.function, self.spec.name, written)
        self._end_run_if_a_call_said_so(caller, interrupt)
        return decided

    def _end_run_if_a_call_said_so(self, caller: Caller, before: Interrupt | None) -> None:
        """What other hooks decided about the calls of a lambda holds, whatever the lambda makes of it. Raises `EndsRun`."""
        now = caller.run.interrupt
        if caller.failure is None and now is not before and now is not None and not self.spec.by_tool:
            why = f"made a call that a hook interrupted: {now.reason or 'no reason given'}"
            caller.failure = HookFailed(self.__name__, self.spec.name, self.path, why)
        if caller.failure is not None:
            raise EndsRun(caller.failure)

    async def _decide(self, context: Any, caller: Caller, console: Console, deadline: float) -> Any:
        try:
            source = self.workspace.source(self.path)
            real = "/".join(self.workspace.folder.resolve(self.path))
        except (PathRefused, OSError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Refused(f"cannot run, because {self.path} cannot be read: {why}") from None
        signal, argument, limits = context.run.signal, self._argument(context), self.limits
        if signal.aborted:  # an abort ends what was at work when it came; about what it has left, this is asked like any hook
            signal = None
        if isinstance(context, ProviderCall) and (halves := len(argument) // -(-limits.output // 2)):
            # It returns what it was shown, however long that is. In large steps, for the bound stands in messages.
            limits = msgspec.structs.replace(limits, output=limits.output * (1 + halves))
        bridge = Bridge(
            self.workspace, limits, ((real, self.function),), console, signal, deadline, caller,
            self.workspace.is_authorized(real, source),
        )  # fmt: skip
        outcome = await call(
            source, self.function, argument, limits=limits, bridge=bridge, signal=signal, console=console, until=deadline,
        )  # fmt: skip
        if outcome.size > LARGE:
            decided = await in_thread(self._decided, context, outcome.value)
        else:
            decided = self._decided(context, outcome.value)
        written = self._written(console)
        return _Said([decided] if isinstance(decided, Decision) else decided or (), written) if written else decided

    def _written(self, console: Console) -> str:
        """What may be shown of it: nothing where the value is a key, which may be in it."""
        return console.text if self.spec.value is not None else ""

    async def close_with_agent(self) -> None:
        """`Agent.aclose` ends the workers that calls of this lambda have left waiting."""
        await close_spares()

    def _argument(self, context: Seen) -> bytes:
        if isinstance(context, ProviderCall):
            request = msgspec.Raw(request_json(context.request))
            return msgspec.json.encode({"request": request, "loop": {"name": context.run.loop}})
        return context_json(self.spec, context)

    def _decided(self, context: Seen, value: Any) -> Any:
        if isinstance(context, ProviderCall):
            return read_request(value, context.request)
        return decisions_of(self.spec, context, value)
