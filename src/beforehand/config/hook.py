"""`pre_llm_hook` as a hook: asked before every conversational request, run where its block says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ConfigError
from ..frozen import Frozen
from ..hooks.check import Refused
from ..hooks.hook import Hook
from ..limits import Limits
from ..tools import Tool
from ..settings import MAX_TIMEOUT_MS, PreLlmHook, ProjectSettings, to_dict
from ..state import RunState
from .block import NAME, read_block
from .live import LiveProject
from .project import Project

if TYPE_CHECKING:
    from ..workspace import Workspace

ORDER = 1
"""After the other hooks that shape the request, wherever they were registered. One with a higher order has the last word."""

LONGEST = MAX_TIMEOUT_MS / 1000 + 5
"""Seconds after which the dispatcher gives the hook up. Its lambda has a time limit of its own, which is never longer."""

HIDDEN = ("base_url", "hooks_dir", "workspace")
"""What `adf.sys_get_config` does not show: where things are outside of the workspace."""


class Now(Frozen):
    """What counts for one request."""

    block: PreLlmHook | None
    limits: Limits
    workspace: Callable[[], Workspace]


def fixed_hook(block: Any, workspace: Any, limits: Limits, live: LiveNow | None = None) -> Hook:
    """The hook of `Agent(pre_llm_hook=...)`, in the `live` workspace of its project, if it has one. Raises `ConfigError` for
    what can never work."""
    hook = read_block(block)
    if live is not None:
        function = PreLlmFunction(lambda: msgspec.structs.replace(live(), block=hook))
    elif workspace is None:
        raise ConfigError(f"{NAME}= needs workspace=, the folder that its lambda {hook.source!r} is in")
    else:
        from ..workspace import Workspace

        place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
        now = Now(hook, limits, lambda: place)
        function = PreLlmFunction(lambda: now)
    function.check()
    return Hook(seam="before_provider_call", fn=function, name=NAME, order=ORDER, where=hook.source, timeout=LONGEST)


def live_hook(project: Project, limits: Limits, live: LiveNow) -> Hook:
    """The hook of a project, whatever its file says when a request is due. Raises `ConfigError` for what cannot work now."""
    function = PreLlmFunction(live)
    if project.settings.pre_llm_hook is not None:
        try:
            function.check()
        except ConfigError as error:
            raise ConfigError(str(project.problem((NAME, "source"), str(error)))) from None
    return Hook(
        seam="before_provider_call", fn=function, name=NAME, order=ORDER, where=project.where(NAME), timeout=LONGEST
    )


class LiveNow:
    """What the project file says. The workspace is made when it is needed, and kept while the settings stay the same.

    `workspace` is one that was handed over, or the folder that counts instead of the file's; `on_ask` answers for the agent.
    `limits` are the agent's: they count instead of the file's if they are not the file's.
    """

    def __init__(
        self, project: Project, workspace: Workspace | Path | str | None = None, on_ask: Any = None, limits: Limits | None = None
    ) -> None:
        self._registry: Sequence[Tool] = ()
        self._given, self._on_ask = workspace, on_ask
        self._limits = None if limits == project.settings.limits_of_runs() else limits
        self._live = LiveProject(project)
        self._first = project.path("workspace")
        self._project: Project | None = None
        self._now: Now | None = None

    def keep_for_code(self, tools: Sequence[Tool]) -> None:
        """Tools that authorised code alone may call."""
        self._registry, self._now = tools, None

    def __call__(self) -> Now:
        project = self._live.current()
        if self._now is None or project is not self._project:
            made: list[Workspace] = []

            def workspace() -> Workspace:
                if not made:
                    made.append(self._workspace(project))
                return made[0]

            limits = self._limits or project.settings.limits_of_runs()
            self._project, self._now = project, Now(project.settings.pre_llm_hook, limits, workspace)
        return self._now

    def _workspace(self, project: Project) -> Workspace:
        from ..workspace import Approvals, Gates, Workspace

        if isinstance(self._given, Workspace):
            return self._given
        own = self._given is not None and self._given != self._first
        folder = self._given if own else project.path("workspace")
        if folder is None:
            raise ConfigError(str(project.problem((), "the field 'workspace' is missing: the folder that holds lambdas")))
        settings = project.settings
        gates = Gates.of(settings.code_execution, settings.tools, self._registry)
        approvals = self._on_ask if isinstance(self._on_ask, Approvals) else None
        return Workspace(folder, config=visible_config(settings), gates=gates, approvals=approvals)


def visible_config(settings: ProjectSettings) -> Mapping[str, Any]:
    """The settings as a lambda may read them."""
    return {name: value for name, value in to_dict(settings).items() if name not in HIDDEN}


class PreLlmFunction:
    """What the dispatcher calls. Whatever is wrong, also with a block that is for other loops, is a failure of the hook."""

    __name__ = NAME

    def __init__(self, now: Callable[[], Now]) -> None:
        self.now = now
        self._made_for: tuple[Now, float] | None = None
        self._lambda: Hook | None = None

    @property
    def known_as(self) -> str:
        """What its lambda is known as, as far as it has been asked."""
        return "" if self._lambda is None else self._lambda.fn.known_as  # type: ignore[attr-defined]

    async def __call__(self, call: Any) -> Any:
        try:
            now = self.now()
            if now.block is None or not now.block.selects(call.run.loop):
                return None
            made = self._lambda_of(now, call.run._run)
        except ConfigError as error:
            raise Refused(f"cannot be used: {' '.join(str(error).split())}") from None
        try:
            return await made.fn(call)
        except ImportError as error:
            raise Refused(f"failed: nothing here can run {now.block.source}: the package {error.name} is missing") from None

    def applies(self) -> tuple[tuple[str, ...] | None, float | None]:
        """The loops it runs in as things are now, `None` for all, and the seconds it may take."""
        now = self.now()
        if now.block is None:
            return (), None
        main = ("main",) if now.block.selects("main") else ()
        return None if now.block.scope == "all" else (*main, *now.block.loops), now.block.timeout(now.limits)

    def check(self) -> None:
        """Raises `ConfigError` if there is no such lambda now, or nothing that could run it."""
        self._lambda_of(self.now(), None)

    def _lambda_of(self, now: Now, run: RunState | None) -> Hook:
        """The lambda of a block, with no more time than the agent's limits leave it, and those that one run was given."""
        assert now.block is not None
        timeout = now.block.timeout(now.limits)
        if run is not None and run.limits is not run.plan.limits:
            timeout = min(timeout, now.block.timeout(run.limits))
        if self._lambda is None or (now, timeout) != self._made_for:
            from ..workspace import Lambda

            source = now.block.source
            self._lambda = Lambda(source, seam="before_provider_call", workspace=now.workspace(), timeout=timeout)
            self._made_for = now, timeout
        return self._lambda

    async def close_with_agent(self) -> None:
        """`Agent.aclose` ends the workers that calls of the lambda have left waiting."""
        if self._lambda is not None:
            from ..sandbox import close_spares

            await close_spares()
