"""Which hooks a run has: checked when an agent is made, sorted once, found by seam, loop and tool without searching."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from ..errors import HookDefinitionError
from ..seams import BY_NAME
from .hook import Hook, check_signature

logger = logging.getLogger("beforehand")


class HookSet:
    """An immutable set of hooks for one loop, in the order they are asked: `order`, then registration, `final` ones last."""

    __slots__ = ("_by_seam", "_by_tool", "hooks", "loop")

    def __init__(self, hooks: Iterable[Hook] = (), loop: str = "main") -> None:
        self.hooks = tuple(dict.fromkeys(hooks))  # one Hook object is asked once, however often it is given
        self.loop = loop
        here = [h for h in self.hooks if h.loops is None or any(fnmatchcase(loop, glob) for glob in h.loops)]
        here.sort(key=lambda h: (h.final, h.order))
        self._by_seam: dict[str, tuple[Hook, ...]] = {name: tuple(h for h in here if h.seam == name) for name in BY_NAME}
        self._by_tool: dict[tuple[str, str], tuple[Hook, ...]] = {}

    def at(self, seam: str) -> tuple[Hook, ...]:
        return self._by_seam[seam]

    def at_tool(self, seam: str, tool: str) -> tuple[Hook, ...]:
        """The hooks at a seam about tool calls that apply to this tool."""
        hooks = self._by_seam[seam]
        if not hooks:
            return hooks
        found = self._by_tool.get((seam, tool))
        if found is None:
            found = tuple(h for h in hooks if not h.tools or any(fnmatchcase(tool, glob) for glob in h.tools))
            self._by_tool[seam, tool] = found
        return found

    def for_loop(self, loop: str) -> HookSet:
        return self if loop == self.loop else HookSet(self.hooks, loop)

    def inheriting(self, parent: HookSet) -> HookSet:
        """This set for a sub-agent: its parent's hooks at 8 to 13 come first, whatever their order."""
        inherited = [h for h in parent.hooks if h.spec.inherited and (h.loops is None or any(fnmatchcase(parent.loop, g) for g in h.loops))]
        if not inherited:
            return self
        child = HookSet(self.hooks, self.loop)
        family = HookSet([h if h.loops is None else h for h in inherited], parent.loop)
        for seam in BY_NAME:
            first = family.at(seam)
            child._by_seam[seam] = (*first, *(h for h in child._by_seam[seam] if h not in first))
        child.hooks = (*family.hooks, *(h for h in self.hooks if h not in family.hooks))
        return child


def collect(items: Iterable[Any]) -> list[Hook]:
    """The hooks among `items`: Hook values, and objects whose attributes are hooks. All are checked before any is used."""
    found: list[Hook] = []
    for item in items:
        if isinstance(item, Hook):
            found.append(item)
        elif not isinstance(item, type) and (own := _hooks_of(item)):
            found.extend(own)
        else:
            kind = getattr(item, "__name__", None) or type(item).__name__
            raise HookDefinitionError(
                f"hooks=[... {kind} ...] is not a hook: decorate it with @hook.<seam>, for example @hook.before_tool_call, or build a Hook(...)"
            )
    for hook in found:
        check_signature(hook)
        if hook.on_error != "closed":
            logger.info("hook %r at %s (%s) fails %s", hook.name, hook.seam, hook.where, hook.on_error)
    return found


def _hooks_of(item: Any) -> list[Hook]:
    """The decorated methods of an object, in the order they are written."""
    names = [name for cls in reversed(type(item).__mro__) for name, value in vars(cls).items() if isinstance(value, Hook)]
    return [getattr(item, name) for name in dict.fromkeys(names)]
