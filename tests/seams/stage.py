"""A small stage for the tests of seams and rules: one agent, one tool, one talk, and all that can be seen from outside.

Unless told otherwise the play is: the user says "Begin", the model calls `look` with n=1, reads "saw 1", and says
"All done." in two chunks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from beforehand import Agent, Hook, Message, RunResult, ToolMessage, hook, tool
from beforehand.testing import ScriptedModel, text, tool_call

CALL_THEN_TEXT = (tool_call("look", {"n": 1}), text("", chunks=["All ", "done."]))
ONLY_TEXT = (text("", chunks=["All ", "done."]),)


class Stage:
    """An agent on stage. `bodies` are the arguments that reached the tool `look`, `events` what a listener heard."""

    def __init__(
        self,
        *hooks: Hook,
        replies: Sequence[Any] = CALL_THEN_TEXT,
        looks: Callable[[int], Any] = "saw {}".format,
        tools: Iterable[Any] = (),
        messages: Iterable[Message] = (),
        watched: bool = True,
        **agent: Any,
    ) -> None:
        self.bodies: list[int] = []
        self.events: list[Any] = []
        self.result: RunResult
        self.model = ScriptedModel(replies)

        @tool
        async def look(n: int) -> Any:
            """Look at something."""
            self.bodies.append(n)
            seen = looks(n)
            return await seen if inspect.isawaitable(seen) else seen

        self.look = look
        self.agent = Agent(model=self.model, tools=[look, *tools], hooks=hooks, **agent)
        self.talk = self.agent.conversation(messages)
        if watched:
            self.talk.subscribe(self.events.append)

    async def run(self, prompt: Any = "Begin", **options: Any) -> Stage:
        self.result = await self.talk.run(prompt, check=False, **options)
        return self

    # --- what the model was asked ---

    @property
    def requests(self) -> int:
        """How many requests the model received."""
        return len(self.model.requests)

    def asked(self, request: int) -> list[tuple[str, str]]:
        """What one request said: role and text of each message. Requests count from 0, and -1 is the last."""
        return said(self.model.requests[request].messages)

    # --- what was kept ---

    @property
    def history(self) -> list[tuple[str, str]]:
        return said(self.talk.messages)

    @property
    def results(self) -> list[ToolMessage]:
        """The tool results in the history."""
        return [m for m in self.talk.messages if isinstance(m, ToolMessage)]

    # --- what was shown ---

    @property
    def shown(self) -> str:
        """The text on the screen of somebody who appends what is shown and takes back what is retracted."""
        screen: dict[str, str] = {}
        for event in self.events:
            if event.type == "message_update" and event.kind == "text":
                screen[event.message_id] = screen.get(event.message_id, "") + event.delta
            elif event.type == "message_retracted":
                assert event.chars == len(screen.get(event.message_id, "")), "it retracts what was shown, no more and no less"
                screen[event.message_id] = ""
        return "".join(screen.values())

    def heard(self, kind: str) -> list[Any]:
        """The events of one type."""
        return [event for event in self.events if event.type == kind]

    @property
    def outcomes(self) -> list[str]:
        """What became of each call, in the order in which they ended."""
        return [event.outcome for event in self.heard("tool_execution_end")]


async def play(*hooks: Hook, prompt: Any = "Begin", **stage: Any) -> Stage:
    """The play, with these hooks."""
    return await Stage(*hooks, **stage).run(prompt)


def said(messages: Iterable[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


def at(seam: str, decision: Any, **options: Any) -> Hook:
    """A hook named "guard" that always returns `decision`; a function is called with the context and its value returned."""

    def guard(context: Any) -> Any:
        return decision(context) if inspect.isfunction(decision) else decision

    made: Hook = getattr(hook, seam)(name="guard", **options)(guard)
    return made


def first(seam: str, decision: Any, **options: Any) -> Hook:
    """Like `at`, but the hook decides only the first time it is asked."""
    asked: list[None] = []

    def once(context: Any) -> Any:
        asked.append(None)
        if len(asked) > 1:
            return None
        return decision(context) if inspect.isfunction(decision) else decision

    return at(seam, once, **options)


def when(condition: Callable[[Any], bool], decision: Any) -> Callable[[Any], Any]:
    """A decision for the contexts that fit."""
    return lambda context: decision if condition(context) else None
