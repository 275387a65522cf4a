"""`Lambda`: a function in a workspace file as a hook. It runs in a sandbox and is trusted with nothing."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any, Unpack

import msgspec

from ..errors import ConfigError, HookDefinitionError
from ..hooks.check import Refused
from ..hooks.hook import Hook, HookOptions, unknown_seam
from ..sandbox import Console, SandboxLimits, call, check_language
from ..seams import BY_NAME, ProviderCall, SeamSpec, Seen
from .bridge import Bridge
from .codec import read_request, request_json
from .decisions import context_json, decisions_of
from .files import Workspace, split_source
from .paths import PathRefused

logger = logging.getLogger("beforehand.lambdas")

MAX_TIMEOUT = 300.0


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


class LambdaFunction:
    """What the dispatcher calls: JSON in, one call in a sandbox, decisions out."""

    def __init__(self, spec: SeamSpec, workspace: Workspace, path: str, function: str, limits: SandboxLimits) -> None:
        self.spec, self.workspace, self.path, self.function, self.limits = spec, workspace, path, function, limits
        self.__name__ = f"{path}:{function}"

    async def __call__(self, context: Any) -> Any:
        try:
            source = self.workspace.source(self.path)
        except (PathRefused, OSError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Refused(f"cannot run, because {self.path} cannot be read: {why}") from None
        signal = context.run.signal
        console = Console(self.limits.console)
        deadline = asyncio.get_running_loop().time() + self.limits.wall_time
        step = ("/".join(self.workspace.folder.resolve(self.path)), self.function)
        bridge = Bridge(self.workspace, self.limits, (step,), console, signal, deadline)
        try:
            outcome = await call(
                source, self.function, self._argument(context), limits=self.limits, bridge=bridge, signal=signal, console=console
            )
        finally:
            if console.text:
                logger.info("lambda %s:%s at %s wrote: %s", self.path, self.function, self.spec.name, console.text)
        return self._decided(context, outcome.value)

    def _argument(self, context: Seen) -> bytes:
        if isinstance(context, ProviderCall):
            request = msgspec.Raw(request_json(context.request))
            return msgspec.json.encode({"request": request, "loop": {"name": context.run.loop}})
        return context_json(self.spec, context)

    def _decided(self, context: Seen, value: Any) -> Any:
        if isinstance(context, ProviderCall):
            return read_request(value, context.request)
        return decisions_of(self.spec, context, value)
