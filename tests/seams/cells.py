"""Every cell of (seam x what a hook may think of returning), read off the seams themselves.

`CELLS` pairs each seam with each column. A column is one decision: each field of `Replace`, each form of the others,
and things that are no decision at all. Whether a cell is declared is what the seam says, never what this file says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beforehand import (
    Answer, Approve, Ask, Block, Context, Continue, Deny, Drop, Edit, End, Hold, Interrupt, Queue, Replace, Request, Resend,
    Steer, Usage, UserMessage,
)  # fmt: skip
from beforehand.decisions import Effect, Verdict
from beforehand.seams import SEAMS, SeamSpec
from beforehand.testing import ScriptedModel

OTHER = UserMessage("Other")

FIELDS: dict[str, Callable[[], Replace]] = {
    "messages": lambda: Replace(messages=[OTHER]),
    "context": lambda: Replace(context=Context("Other", (OTHER,), ())),
    "model": lambda: Replace(model=ScriptedModel([])),
    "thinking_level": lambda: Replace(thinking_level="high"),
    "once": lambda: Replace(once=True),
    "request": lambda: Replace(request=Request("Other", (OTHER,))),
    "key": lambda: Replace(key="other"),
    "text": lambda: Replace(text="Other"),
    "hold": lambda: Replace(text="Other", hold=1),
    "message": lambda: Replace(message=OTHER),
    "args": lambda: Replace(args={"n": 2}),
    "content": lambda: Replace(content="Other"),
    "details": lambda: Replace(details={"other": True}),
    "structured_content": lambda: Replace(structured_content={"other": True}),
    "is_error": lambda: Replace(is_error=True),
    "usage": lambda: Replace(usage=Usage(1, 1)),
    "terminate": lambda: Replace(terminate=True),
    "add_messages": lambda: Replace(add_messages=[OTHER]),
}
"""A good value for each field of `Replace`: where the field is refused, it is not for its value."""

VERDICTS: dict[type[Verdict], dict[str, Callable[[], Any]]] = {
    Block: {"Block": lambda: Block("Not today.")},
    Answer: {"Answer": lambda: Answer("Answered.")},
    Ask: {"Ask": lambda: Ask("May it?")},
    Steer: {"Steer": lambda: Steer("Go left.")},
    Interrupt: {
        "Interrupt(keep nothing)": lambda: Interrupt("Halt."),
        "Interrupt(keep aborted)": lambda: Interrupt("Halt.", keep="aborted"),
        "Interrupt(resend)": lambda: Interrupt("Halt.", resend=True),
    },
    Hold: {"Hold": lambda: Hold(2)},
    Drop: {"Drop": lambda: Drop()},
    End: {"End": lambda: End("Enough.")},
    Continue: {"Continue": lambda: Continue()},
}

BY_SEAM: dict[str, dict[str, Callable[[], Any]]] = {
    "before_tool_call": {"Block(terminate)": lambda: Block("Not today.", terminate=True)},
}
"""Forms that mean something of their own at one seam only."""

EFFECTS: dict[type[Effect], dict[str, Callable[[], Any]]] = {
    Queue: {"Queue": lambda: Queue("A note.")},
    Resend: {"Resend": lambda: Resend()},
}

NONSENSE: dict[str, Callable[[], Any]] = {
    "True": lambda: True,
    "False": lambda: False,
    "a dict": lambda: {"block": True},
    "a string": lambda: "block",
    "an object": lambda: object(),
    "the class Block": lambda: Block,
    "a list with a string": lambda: ["block"],
    "Approve": lambda: Approve(),
    "Deny": lambda: Deny("No."),
    "Edit": lambda: Edit({"n": 2}),
}
"""What is no decision of any seam: truth values, data, and a person's answers."""

DECISIONS: dict[str, Callable[[], Any]] = {
    **{f"Replace.{field}": make for field, make in FIELDS.items()},
    **{column: make for forms in (*VERDICTS.values(), *EFFECTS.values()) for column, make in forms.items()},
}
COLUMNS: dict[str, Callable[[], Any]] = DECISIONS | NONSENSE


def declared_columns(spec: SeamSpec) -> set[str]:
    """The columns that this seam declares."""
    columns = {f"Replace.{field}" for field in spec.verdicts.get(Replace, ())}
    for kind in spec.verdicts:
        columns |= VERDICTS.get(kind, {}).keys()
    for effect in spec.effects:
        columns |= EFFECTS[effect].keys()
    return columns | BY_SEAM.get(spec.name, {}).keys()


DECLARED: frozenset[tuple[str, str]] = frozenset((spec.name, column) for spec in SEAMS for column in declared_columns(spec))

CELLS: tuple[tuple[str, str], ...] = tuple(
    (spec.name, column) for spec in SEAMS for column in (*COLUMNS, *BY_SEAM.get(spec.name, ()))
)
