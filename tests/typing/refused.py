"""Code that must not type-check. Each line names its complaint; mypy reports the ones that no longer come.

Nothing here ever runs.
"""

from __future__ import annotations

from beforehand.decisions import Block, Interrupt, Replace
from beforehand.limits import Limits
from beforehand.messages import AssistantMessage, Text, ToolCall


def guard(call: ToolCall) -> Block | None:
    return {"block": True}  # type: ignore[return-value]


def misspelt() -> None:
    Block(raeson="no")  # type: ignore[call-arg]
    Replace(contents="***")  # type: ignore[call-arg]
    Limits(max_turn=3)  # type: ignore[call-arg]


def misplaced() -> None:
    Replace("a new text")  # type: ignore[call-arg]
    Interrupt(keep="some")  # type: ignore[arg-type]
    AssistantMessage(stop_reason="done")  # type: ignore[arg-type]


def edited_in_place(message: AssistantMessage, text: Text, limits: Limits) -> None:
    text.text = "changed"  # type: ignore[misc]
    message.content = ()  # type: ignore[misc]
    limits.max_turns = None  # type: ignore[misc]
