"""Code that only has to type-check: what a reader of the documentation would write. Nothing here ever runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from beforehand.decisions import Block, Decision, Queue, Replace, Resend, Verdict
from beforehand.errors import BeforehandError, ModelError, RateLimited, RunError
from beforehand.limits import Limits
from beforehand.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage, UserMessage


def guard(call: ToolCall) -> Block | None:
    """A hook that refuses some calls."""
    if call.name == "delete":
        return Block("deleting is off", terminate=True)
    return None


async def guard_and_tell(call: ToolCall) -> Sequence[Decision]:
    """A hook that gives a verdict and has effects."""
    return [Block("not now"), Queue("The call was refused."), Queue(UserMessage("Try a smaller one.")), Resend()]


def redact(message: ToolMessage) -> Verdict | None:
    """A hook that replaces a value; a field left out keeps what is there, `None` sets it to nothing."""
    return Replace(content=message.text.replace("secret", "***"), details=None)


def read(message: Message) -> str:
    """A message is told apart by its type."""
    if isinstance(message, AssistantMessage):
        assert_type(message.tool_calls, list[ToolCall])
        return message.text + message.thinking
    if isinstance(message, UserMessage):
        return message.text
    return message.role


def explain(error: BeforehandError) -> tuple[int, float | None]:
    """An error is told apart by its type, and says more than its text."""
    match error:
        case RateLimited():
            return error.exit_code, error.retry_after
        case ModelError(status=int()) | RunError():
            return error.exit_code, None
        case _:
            return 1, None


LIMITS = Limits(max_turns=10, hook_timeout=None)
assert_type(LIMITS.max_turns, int | None)
assert_type(Text("hello").text, str)
