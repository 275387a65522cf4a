"""What a project file adds to an agent: its hook, what it says about tools, and the tools of the runtime that it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConfigError
from ..hooks.hook import Hook
from ..limits import Limits
from ..settings import CODE_TOOLS, MAX_TIMEOUT_MS
from ..tools import Tool
from .hook import LiveNow, fixed_hook, live_hook
from .project import Project
from .tools import owned_tools

if TYPE_CHECKING:
    from ..workspace import CodeTools


class Parts(NamedTuple):
    """The tools that are left or were added, and hooks that come after those the agent was given."""

    tools: tuple[Tool, ...]
    hooks: list[Hook]


def project_parts(
    project: Project, tools: Sequence[Tool], loop_tools: Sequence[Tool], limits: Limits, given: Mapping[str, Any]
) -> Parts:
    """`given` are the arguments of `Agent` that count instead of the file: `pre_llm_hook`, `workspace`, and `on_ask`.

    Raises `ConfigError`.
    """
    live = LiveNow(project, given["workspace"], given["on_ask"], limits)
    have = {tool.name for tool in tools}
    declared = [said.name for said in project.settings.tools if said.name not in have]
    brought = [tool for tool in loop_tools if tool.name in declared]
    asking: tuple[Hook, ...] = ()
    if any(name in CODE_TOOLS for name in declared):
        code = _code_tools(project, live)
        brought += [tool for tool in code.tools if tool.name in declared]
        asking = code.hooks if "sys_lambda" in declared else ()
    owned = owned_tools(project, [*tools, *brought])
    live.keep_for_code(owned.registry)
    block = given["pre_llm_hook"]
    hook = live_hook(project, limits, live) if block is None else fixed_hook(block, None, limits, live)
    return Parts(owned.tools, [*asking, *owned.hooks, hook])


def check_parts(project: Project) -> None:
    """Raises `ConfigError` if the hook of a project, or its tools that run code, cannot work."""
    live, limits = LiveNow(project), project.settings.limits.of_runs()
    live_hook(project, limits, live)
    if any(said.name in CODE_TOOLS for said in project.settings.tools):
        _code_tools(project, live)


def _code_tools(project: Project, live: LiveNow) -> CodeTools:
    """Tools that run in the workspace as the project file has it at the time. Raises `ConfigError` if there is none now."""
    from ..sandbox import SandboxLimits
    from ..workspace import Workspace
    from ..workspace.codetools import live_code_tools

    def where() -> tuple[Workspace, SandboxLimits]:
        now = live()
        most = min(now.limits.execution_timeout_ms or MAX_TIMEOUT_MS, MAX_TIMEOUT_MS)
        return now.workspace(), SandboxLimits(wall_time=most / 1000)

    try:
        where()
    except ConfigError:
        place = next(i for i, said in enumerate(project.settings.tools) if said.name in CODE_TOOLS)
        name = project.settings.tools[place].name
        why = f"{name!r} runs code in a workspace, and the field 'workspace' is missing: in which folder?"
        raise ConfigError(str(project.problem(("tools", place, "name"), why))) from None
    return live_code_tools(where)
