"""What a run comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .decisions import PendingApproval
from .errors import RunError
from .events import DecisionRecord, StopReason
from .frozen import Frozen
from .messages import AssistantMessage, Message, Usage
from .state import RunState


class RunResult(Frozen, kw_only=True):
    """The result of one run.

    `text` is the last reply's text, `messages` are all that the run added to the history, `pending` the calls that wait
    for a person (`stop_reason == "suspended"`), `reason` says why the run stopped where a hook or a limit stopped it.
    `cost` is in the currency of the price table, `removed` are the messages whose place a summary has taken. `shadow` has a
    `Difference` for each value that the hooks in the shadow would have decided otherwise.
    """

    text: str
    messages: Sequence[Message]
    stop_reason: StopReason
    usage: Usage
    decisions: tuple[DecisionRecord, ...]
    error: RunError | None
    pending: tuple[PendingApproval, ...]
    run_id: str
    turns: int
    cost: float
    reason: str | None
    removed: tuple[Message, ...] = ()
    shadow: tuple[Any, ...] = ()


def result_of(run: RunState) -> RunResult:
    messages = tuple(run.history.view(run.first_message))
    return RunResult(
        text=text_of_run(messages), messages=messages, usage=run.usage,
        stop_reason=run.stop_reason or "completed",
        decisions=tuple(run.decisions), error=run.error, pending=run.pending, run_id=run.run_id, turns=run.turn, cost=run.cost,
        reason=run.reason, removed=run.removed, shadow=() if run.shadow is None else tuple(run.shadow.differences),
    )  # fmt: skip


def text_of_run(messages: Sequence[Message]) -> str:
    """The text of the last reply among a run's messages."""
    last = next((m for m in reversed(messages) if isinstance(m, AssistantMessage) and _is_reply(m)), None)
    return last.text if last is not None else ""


def _is_reply(message: AssistantMessage) -> bool:
    """Whether the model said this, or a hook in its place at seam 8; not a queued message, nor a record of a failure."""
    return message.origin != "hook" or (bool(message.id) and message.stop_reason != "error")
