"""A tool that says who reached it, for tests of the ways to a tool's body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beforehand import Agent, Hook, Tool, tool
from beforehand.testing import ScriptedModel, text, tool_call

END = text("The end.")


class Reached:
    """A tool `look` that writes down who reached its body, and agents that know it."""

    def __init__(self) -> None:
        self.bodies: list[int] = []

        @tool
        async def look(n: int) -> str:
            """Look at something."""
            self.bodies.append(n)
            return f"saw {n}"

        self.look = look

    def agent(self, replies: Sequence[Any], *hooks: Hook, tools: Sequence[Tool] = (), **agent: Any) -> Agent:
        return Agent(model=ScriptedModel(replies), tools=[*tools, self.look], hooks=hooks, **agent)


LOOK = tool_call("look", {"n": 1})


def delegate(name: str) -> Any:
    return tool_call(name, {"prompt": "Look."})
