"""Which hooks a run has: checked when an agent is made, sorted once, found by seam, loop and tool without searching."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..errors import HookDefinitionError
from ..seams import BY_NAME
from .group import HookGroup, each_of
from .hook import UNSEEN, Hook, check_signature
from .visible import check_visible

logger = logging.getLogger("beforehand")


class HookSet:
    """An immutable set of hooks for one loop, in the order they are asked: `order`, then registration, `final` ones last.

    Each seam is an attribute that holds its hooks, so that an unused seam costs one look. `grouped`: some stand for several.
    """

    __slots__ = ("_by_tool", "_inherited", "grouped", "hooks", "loop", *BY_NAME)

    def __init__(self, hooks: Iterable[Hook] = (), loop: str = "main", inherited: Iterable[Hook] = ()) -> None:
        """`inherited` hooks, a parent's, come first at their seams. One Hook object is asked once, however often given."""
        self._inherited = tuple(inherited)
        first = sorted(self._inherited, key=lambda h: h.order)
        own = sorted([h for h in _once(hooks, first) if _applies(h.loops, loop)], key=lambda h: h.order)
        self.hooks: tuple[Hook, ...] = tuple(_once([*self._inherited, *hooks]))
        self.loop = loop
        self.grouped = any([isinstance(hook, HookGroup) for hook in self.hooks])
        self._by_tool: dict[tuple[str, str], tuple[Hook, ...]] = {}
        here = sorted([*first, *own], key=lambda h: h.final)
        for name in BY_NAME:
            setattr(self, name, tuple(h for h in here if h.seam == name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> tuple[Hook, ...]: ...

    def for_tool(self, seam: str, tool: str) -> tuple[Hook, ...]:
        """The hooks at a seam about tool calls that apply to this tool."""
        hooks: tuple[Hook, ...] = getattr(self, seam)
        if not hooks:
            return hooks
        found = self._by_tool.get((seam, tool))
        if found is None:
            found = tuple(h for h in hooks if not h.tools or any(fnmatchcase(tool, glob) for glob in h.tools))
            self._by_tool[seam, tool] = found
        return found

    @property
    def inherited(self) -> tuple[Hook, ...]:
        """Those that are a parent's."""
        return self._inherited

    def for_loop(self, loop: str) -> HookSet:
        """This set for an inner loop: those of its hooks that apply there. What a parent has asked for stays."""
        return HookSet(self.hooks, loop, self._inherited)

    def names_at(self, seam: str) -> set[str]:
        """The names of the hooks at a seam, those in groups too."""
        return {hook.name for hook in each_of(getattr(self, seam))}

    def visiting(self, seams: Collection[str]) -> HookSet:
        """This set with a place holder at each of these seams at which it has no hook, so that a run comes past them."""
        empty = [name for name in BY_NAME if name in seams and not getattr(self, name)]
        holders = [Hook(seam=name, fn=_silent, name="nobody", where=UNSEEN) for name in empty]
        return HookSet([*self.hooks, *holders], self.loop, self._inherited) if holders else self

    def inheriting(self, parent: HookSet) -> HookSet:
        """This set for a sub-agent: its parent's hooks at 8 to 13 come first, whatever their order."""
        inherited = [h for h in parent.hooks if h.spec.inherited and _applies(h.loops, parent.loop)]
        return HookSet(self.hooks, self.loop, inherited) if inherited else self


def _silent(_: Any) -> None:
    """Decides nothing."""


def _once(hooks: Iterable[Hook], given: Iterable[Hook] = ()) -> list[Hook]:
    """Each hook once, in order, without those that are `given` already."""
    known = {hook.identity for hook in given}
    return [hook for hook in hooks if hook.identity not in known and not known.add(hook.identity)]  # type: ignore[func-returns-value]


def _applies(loops: tuple[str, ...] | None, loop: str) -> bool:
    return loops is None or any(fnmatchcase(loop, glob) for glob in loops)


def collect(items: Iterable[Any]) -> list[Hook]:
    """The hooks among `items`: Hook values, and objects whose attributes are hooks. All are checked before any is used."""
    found: list[Hook] = []
    for item in items:
        if isinstance(item, Hook):
            found.append(item)
        elif not isinstance(item, type) and (own := hooks_of(item)):
            found.extend(own)
        else:
            kind = getattr(item, "__name__", None) or type(item).__name__
            raise HookDefinitionError(
                f"hooks=[... {kind} ...] is not a hook: decorate it with @hook.<seam>, for example @hook.before_tool_call, "
                "or build a Hook(...)"
            )
    for hook in found:
        check_signature(hook)
        check_visible(hook)
        if hook.on_error != "closed":
            logger.info("hook %r at %s (%s) fails %s", hook.name, hook.seam, hook.where, hook.on_error)
    return found


def hooks_of(item: Any) -> list[Hook]:
    """The hooks among an object's attributes: decorated methods in the order they are written, then its own."""
    names = methods_of(type(item))
    names += [name for name, value in getattr(item, "__dict__", {}).items() if isinstance(value, Hook)]
    return [found for name in dict.fromkeys(names) if isinstance(found := getattr(item, name), Hook)]


def methods_of(cls: type) -> list[str]:
    """The names of a class's methods that are hooks, those of its bases first."""
    return [
        name
        for base in reversed(cls.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, Hook) or (isinstance(value, staticmethod | classmethod) and isinstance(value.__func__, Hook))
    ]
