"""What an agent is: everything a run captures when it starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .contexts import RunInfo
from .decisions import HumanAnswer, PendingApproval
from .frozen import Frozen
from .limits import Limits
from .messages import Options, Price
from .settings import ProjectSettings
from .tools import Tool

OnAsk = Callable[[PendingApproval], Awaitable[HumanAnswer] | HumanAnswer]
Instructions = Callable[[RunInfo], Awaitable[str] | str]


class HookSource:
    """Where an agent's hooks come from: a fixed set, unless rule files are watched.

    A run takes what is `current` when it starts. `rules` is the set of rules in it, `compose` makes a hook set with others.
    """

    __slots__ = ("compose", "current", "rules")

    def __init__(self, current: Any, rules: Any = None) -> None:
        self.current, self.rules = current, rules
        self.compose: Callable[[Any], Any] | None = None


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
    name: str = "agent"
    project: ProjectSettings | None = None
    """What the project file said when the agent was made. `None` for an agent without one."""
