"""One call on its way through the pipeline, and what the calls of one reply have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .decisions import Ask, PendingApproval
from .errors import HookFailed, Stop
from .events import Outcome
from .frozen import EMPTY_DICT, FrozenDict
from .messages import AssistantMessage, Message, ToolCall
from .seams import PendingCall
from .tools import Tool, ToolResult


class Suspend(Stop):
    """Raised by a tool body that waits for a person (a sub-agent's): `resume(answers)` goes on with it."""

    def __init__(self, pending: Sequence[PendingApproval], resume: Any) -> None:
        super().__init__("waiting for a person")
        self.pending, self.resume = tuple(pending), resume


class Call:
    """One call on its way through the pipeline. `outcome` is `None` until it is settled."""

    __slots__ = (
        "args", "asked", "asked_by", "concluded", "context", "duration", "edited", "failure", "id", "name", "original_args", "outcome",
        "parent_id", "part", "result", "resume_with", "suspended", "tool", "updates_open",
    )  # fmt: skip

    def __init__(self, part: ToolCall, parent_id: str | None = None) -> None:
        self.part, self.parent_id = part, parent_id
        self.id, self.name = part.id, part.name
        self.tool: Tool | None = None
        self.args: FrozenDict | None = None
        self.original_args: FrozenDict = EMPTY_DICT
        self.context: PendingCall | None = None
        self.outcome: Outcome | None = None
        self.result: ToolResult = _NOTHING
        self.duration = 0.0
        self.asked: Ask | None = None
        self.asked_by = ""
        self.edited = False
        self.failure: HookFailed | None = None
        self.suspended: Suspend | None = None
        self.resume_with: Any = None
        self.updates_open = False
        self.concluded = False

    def settle(self, outcome: Outcome, text: str, terminate: bool = False) -> None:
        """This call will not run: the model reads `text` as an error."""
        self.outcome = outcome
        self.result = ToolResult(text, is_error=True, terminate=terminate)

    def pending(self) -> tuple[PendingApproval, ...]:
        """What a person is asked about this call."""
        if self.suspended is not None:
            return self.suspended.pending
        assert self.asked is not None and self.args is not None and self.context is not None
        return (
            PendingApproval(
                call_id=self.id, name=self.name, args=self.args, prompt=self.asked.prompt, options=self.asked.options,
                original_args=self.original_args, args_digest=self.context.args_digest, hook=self.asked_by, parent_call_id=self.parent_id,
            ),
        )  # fmt: skip


_NOTHING = ToolResult()


class Batch:
    """What the calls of one reply have in common."""

    __slots__ = ("context", "message", "names", "steered_by")

    def __init__(self, message: AssistantMessage | None, context: Sequence[Message], names: tuple[str, ...]) -> None:
        self.message, self.context, self.names = message, context, names
        self.steered_by: str | None = None


class NestedResult(ToolResult, kw_only=True):
    """What `ctx.call_tool` returns: the result, what became of the call, and its id."""

    outcome: Outcome
    call_id: str
