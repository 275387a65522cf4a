"""Many hooks at one seam as one entry of a hook set, of which only those are asked that a value can concern.

Asking a hook costs a fraction of a microsecond even if it has nothing to say, so a thousand of them would cost more than
many a tool. A group narrows them down first. Those that are left are asked like any other hooks, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .hook import Hook


class HookGroup(Hook, kw_only=True, eq=False):
    """Neighbours at one seam, with the same order, policy (`on_error`) and loops.

    `concerned` returns those of `members` that a context can concern, in their order. It may name too many, never too few.
    `fn` asks them itself, for whoever takes a group for a hook: then the strongest of their decisions stands for all.
    """

    members: tuple[Hook, ...]
    concerned: Callable[[Any], Sequence[Hook]]


def each_of(hooks: Iterable[Hook]) -> list[Hook]:
    """`hooks` one by one: each group replaced by all of its members."""
    return [one for hook in hooks for one in (hook.members if isinstance(hook, HookGroup) else (hook,))]


def narrowed(hooks: Sequence[Hook], context: Any) -> list[Hook]:
    """`hooks` with each group replaced by its members that `context` can concern; by all of them, should that fail."""
    found: list[Hook] = []
    for hook in hooks:
        if not isinstance(hook, HookGroup):
            found.append(hook)
            continue
        try:
            found += hook.concerned(context)
        except Exception:
            found += hook.members
    return found
