"""What is recorded of a run, in the order in which the run will ask for it when it goes on.

The loop itself goes over its past again, with the recorded decisions, replies and results in the place of hooks, models
and tools. So there are two questions: what comes next on the run's own line (`line`: turns, rulings, replies), and what
is known of one call (`calls`), since calls of one reply run side by side.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from ..messages import Message
from .pastcalls import PastCall

FOR_CALLS = frozenset({"prepare_tool_call", "before_tool_call", "after_tool_call"})
BEFORE_CALLS = FOR_CALLS - {"after_tool_call"}

BEFORE_ANSWER = frozenset({"ruling", "note", "instructions", "request"})
"""What may stand between a request that is being prepared and its answer."""

INSIDE = "inside"
"""Stands among the decisions for those of a sub-agent's run, at the end of the call in which it was made."""


class Item(msgspec.Struct):
    """One record on the run's own line. Of a reply, `message` is what it stored. `before`: how many messages came first."""

    kind: str
    data: dict[str, Any]
    message: Message | None = None
    before: int = 0

    @property
    def is_answer(self) -> bool:
        """Whether it says what came of the request that was prepared before it. Hooks at 8 may have kept it from leaving."""
        refused = self.kind == "ruling" and self.data["seam"] == "authorize_request" and bool(self.data.get("heard"))
        return refused or self.kind not in BEFORE_ANSWER


class Past(msgspec.Struct):
    """Everything recorded of a run, read once.

    `shown` counts the characters that replies had shown which were cut or have failed, by message id: they count no more.
    """

    start: dict[str, Any]
    line: deque[Item]
    calls: dict[str, PastCall]
    messages: list[Message]
    end: dict[str, Any] | None = None
    suspended: dict[str, Any] | None = None
    answered: set[tuple[str, str]] = msgspec.field(default_factory=set)
    """What people have answered since then, by call and by the digest of what was asked."""
    shown: dict[str, int] = {}
    decisions: list[tuple[str, str | None, dict[str, Any]]] = []
    beside: dict[str, dict[str, Any]] = {}
    """The answers to questions that lambdas asked the model, by who asked."""
    judged: dict[str, dict[str, dict[str, Any]]] = {}
    """What hooks have decided about such questions, by who asked, and by seam."""
    fired: dict[str, int] = {}
    """How often rules with a limit had fired by its end."""
    firings: list[dict[str, int]] = []
    """The same, as it grew. A ruling about a call has `fired_before`: how many of these came first."""
    queued: dict[int, dict[str, Any]] = {}
    """The messages that came into the queues, by number."""
    queued_by: dict[int, str] = {}
    """The call whose body said it, of those that came from one, by number."""
    cleared: set[int] = msgspec.field(default_factory=set)
    """The numbers of those that were taken back."""
    prompts: list[Any] = []
    """What the first turn was to take in: the prompts, as hooks at 1 had shaped them."""

    def waiting(self) -> dict[int, dict[str, Any]]:
        """What has come into the queues and no turn has taken, by number. To be asked before the line is gone over."""
        took = {n for item in self.line if item.kind in ("turn", "took", "failed") for n in item.data.get("queued", ())}
        return {n: message for n, message in self.queued.items() if n not in took and n not in self.cleared}

    @property
    def suspended_calls(self) -> list[str]:
        """The calls that waited for a person when it was suspended, those of sub-agents too."""
        return [] if self.suspended is None else [pending["call_id"] for pending in self.suspended["pending"]]

    @property
    def pending(self) -> dict[str, dict[str, Any]]:
        """The questions that nobody has answered yet, by the id of their call."""
        waiting = {} if self.suspended is None else {p["call_id"]: p for p in self.suspended["pending"]}
        return {call_id: p for call_id, p in waiting.items() if (call_id, p["args_digest"]) not in self.answered}
