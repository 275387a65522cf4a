"""What `[[tools]]` make of an agent's tools: which there are, which the model is shown, which need a person's approval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ..decisions import Ask, Replace
from ..documents.problems import did_you_mean
from ..errors import ConfigError
from ..hooks.hook import Hook
from ..settings import CODE_TOOLS, GRANTED, LOOP_TOOLS
from ..tools import Tool
from .project import Project

RUNTIME_TOOLS = (*CODE_TOOLS, *LOOP_TOOLS)
"""Tools the runtime brings itself. Declaring one switches it on."""

FIRST = -1000
"""The model's view is settled before anybody else shapes the request."""


class Owned(NamedTuple):
    """The tools that are left, those that only authorised code may call, and hooks that keep to what is said about them."""

    tools: tuple[Tool, ...]
    registry: tuple[Tool, ...]
    hooks: list[Hook]


def owned_tools(project: Project, tools: Sequence[Tool]) -> Owned:
    """Raises `ConfigError`."""
    by_name = {tool.name: tool for tool in tools}
    for i, said in enumerate(project.settings.tools):
        if said.name not in by_name and said.name not in RUNTIME_TOOLS:
            given = ", ".join([name for name in by_name if name not in RUNTIME_TOOLS])
            have = given or "none (give them as tools=, or with --tools)"
            hint = did_you_mean(said.name, by_name) or f": the agent has {have}"
            raise ConfigError(str(project.problem(("tools", i, "name"), f"there is no tool {said.name!r}{hint}")))
    kept = tuple([_lowered(project, tool) for tool in tools if _enabled(project, tool.name)])
    withheld = frozenset([said.name for said in project.settings.tools if said.restricted and not said.enabled])
    held = [tool for tool in tools if tool.name in withheld]
    return Owned(kept, tuple(held), [*_hiding(project), *_asking(project)])


def _enabled(project: Project, name: str) -> bool:
    said = project.settings.tool(name)
    return said is None or said.enabled


def _lowered(project: Project, tool: Tool) -> Tool:
    said = project.settings.tool(tool.name)
    return tool if said is None or said.replay is None else msgspec.structs.replace(tool, replay=said.replay)


def _hiding(project: Project) -> list[Hook]:
    hidden = frozenset([tool.name for tool in project.settings.tools if tool.enabled and not tool.visible])
    if not hidden:
        return []

    def hide_tools(call: Any) -> Replace | None:
        shown = tuple([spec for spec in call.request.tools if spec.name not in hidden])
        if len(shown) == len(call.request.tools):
            return None
        return Replace(request=msgspec.structs.replace(call.request, tools=shown))

    where = project.where("tools")
    return [Hook(seam="before_provider_call", fn=hide_tools, name="tools.visible", order=FIRST, where=where)]


def _asking(project: Project) -> list[Hook]:
    names = [tool.name for tool in project.settings.tools if tool.enabled and tool.restricted]
    if not names:
        return []

    def ask_first(call: Any) -> Ask | None:
        return None if GRANTED.get() == call.call_id else Ask(f"{call.name} is restricted: may it run?")

    globs = tuple([_literal(name) for name in names])
    return [Hook(seam="before_tool_call", fn=ask_first, name="tools.restricted", tools=globs, where=project.where("tools"))]


def _literal(name: str) -> str:
    """A glob that means this name alone."""
    return "".join([f"[{c}]" if c in "*?[" else c for c in name])
