"""What an agent is: everything a run captures when it starts."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from .contexts import RunInfo
from .decisions import HumanAnswer, PendingApproval
from .errors import ConfigError
from .frozen import Frozen
from .limits import Limits, Recovery
from .messages import Options, Price, clean
from .settings import LOOP_TOOLS, ProjectSettings
from .tools import Tool

OnAsk = Callable[[PendingApproval], Awaitable[HumanAnswer] | HumanAnswer]
Instructions = Callable[[RunInfo], Awaitable[str] | str]


AROUND = "around/"
"""Stands before the keys of rules that a sub-agent has from its caller: both may have loaded the same file."""


class HookSource:
    """Where an agent's hooks come from: a fixed set, unless rule files are watched.

    A run takes what is `current` when it starts. `rules` is the set of rules in it, `compose` makes a hook set with others.
    """

    __slots__ = ("compose", "current", "rules")

    def __init__(self, current: Any, rules: Any = None) -> None:
        self.current, self.rules = current, rules
        self.compose: Callable[[Any], Any] | None = None


_LOOP_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}").fullmatch


class Loop(Frozen):
    """An inner loop of an agent: a named stream of turns beside `main`, with a history of its own.

    `tools` are names or globs of the agent's tools; the loop has those and no others (`loop_send` and `loop_list`, which
    reach other loops, count like any). `instructions` and `model` are the agent's unless given. `description` is what
    other loops are told about it. Raises a `ConfigError` for what can never work.
    """

    name: str
    instructions: Any = ""
    tools: Sequence[str] = LOOP_TOOLS
    model: Any = None
    description: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name == "main" or not _LOOP_NAME(self.name):
            may = 'at most 32 of a-z, 0-9, "_" and "-", the first a letter or a digit, and not "main"'
            raise ConfigError(f"Loop({self.name!r}): a loop's name has {may}")
        if isinstance(self.tools, str) or not isinstance(self.tools, Sequence):
            raise ConfigError(f"Loop({self.name!r}): tools= takes a list of names or globs")
        for entry in self.tools:
            if not isinstance(entry, str) or not entry:
                raise ConfigError(f"Loop({self.name!r}): tools= holds {entry!r}, which is no name of a tool")
        if not isinstance(self.description, str):
            raise ConfigError(f"Loop({self.name!r}): description={self.description!r} is no text")
        msgspec.structs.force_setattr(self, "tools", tuple(self.tools))
        read_instructions(self.instructions)


def read_instructions(given: Any) -> tuple[str, tuple[Instructions, ...]]:
    """Fixed text and, in order, the functions whose text is appended for each request."""
    items: Sequence[Any] = given if isinstance(given, list | tuple) else (given,)
    fixed = [clean(item) for item in items if isinstance(item, str) and item]
    dynamic = []
    for item in items:
        if callable(item):
            dynamic.append(item)
        elif not isinstance(item, str):
            raise ConfigError(
                f"instructions hold a {type(item).__name__}: expected a string, or a function of the run that returns one"
            )
    return "\n\n".join(fixed), tuple(dynamic)


class Plan(Frozen, kw_only=True):
    """What an agent is: everything a run captures when it starts."""

    model: Any
    system: str
    dynamic: tuple[Instructions, ...]
    tools: tuple[Tool, ...]
    hooks: HookSource
    limits: Limits
    options: Options
    tool_mode: str
    prices: dict[str, Price]
    on_ask: OnAsk | None
    resolve_model: Callable[[str], Any]
    resolved: dict[str, Any]
    """The models that `resolve_model` has made, by name."""
    name: str = "agent"
    journal: Any = None
    shadow: Any = None
    """The hooks that are asked and never obeyed, a `HookSource`."""
    never_again: frozenset[str] = frozenset()
    """Tools whose calls the owner forbids to repeat, whatever the tool itself says."""
    recovery: Recovery | None = None
    loops: tuple[Loop, ...] = ()
    restricted: frozenset[str] = frozenset()
    """Names of tools that need a person's approval or code with authority: no inner loop has them."""
    open_loops: Callable[[Any], Any] | None = None
    """Makes the loops of a conversation."""
    project: ProjectSettings | None = None
    """What the project file said when the agent was made. `None` for an agent without one."""
