"""What a run that goes on is told of a recorded ruling, and of a recorded reply."""

from __future__ import annotations

from typing import Any

import msgspec

from ..decisions import Effect, Interrupt, Verdict
from ..errors import RunError
from ..events import DecisionRecord
from ..messages import Message, Usage


class PastRuling(msgspec.Struct):
    """A recorded ruling: the fields replaced, the refusals with the hooks they are from, effects and decisions."""

    changes: dict[str, Any]
    heard: list[tuple[Verdict, str, str]]
    effects: list[Effect]
    decisions: list[DecisionRecord]
    again: bool = False
    """It cannot be used: a hook failed, or gave what no record can hold. The hooks are asked again."""
    failed: RunError | None = None
    """How a hook failed, in a turn that was tried again afterwards."""


class PastReply(msgspec.Struct):
    """A recorded reply: what it stored, how it ended, and what hooks had asked for on the way."""

    message: Message | None
    interrupt: Interrupt | None
    aborted: bool
    queue: list[Message]
    resend: bool
    askers: tuple[tuple[str, str], ...]
    released: int
    error: RunError | None
    wasted: Usage
    model: str
    decisions: list[DecisionRecord] = []
    """What hooks had decided on the way."""
    ruling: PastRuling | None = None
    """What they made of the whole message. Only where other hooks are asked about it."""


class PastAnswer(msgspec.Struct):
    """How a question of a lambda was answered, or failed, and what hooks had decided about it and asked for."""

    text: str
    error: RunError | None
    ruling: PastRuling
