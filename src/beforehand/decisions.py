"""What a hook may return, and what a person may answer.

A hook returns `None`, one decision, or a sequence of decisions: at most one verdict, which settles the value, and any
number of effects. Which verdict a seam takes is written in `seams.py`; any other is refused there.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET

from .frozen import EMPTY_DICT, Frozen, FrozenDict
from .messages import Message, ThinkingLevel

DEFAULT_BLOCK_REASON = "Tool execution was blocked"
"""What the model reads when a hook blocks a call and gives no reason."""


class Decision(Frozen, gc=False):
    """Root of verdicts and effects."""


class Verdict(Decision, gc=False):
    """Settles the value at a seam."""


class Effect(Decision, gc=False):
    """Makes something happen later, beside whatever verdict there is. Allowed at seams 8 to 14."""


# --- verdicts ------------------------------------------------------------------------------------


class Replace(Verdict, kw_only=True, gc=False):
    """Use another value. A field left out keeps what is there; a field given as `None` sets it to nothing.

    Which fields count depends on the seam. At `on_chunk`, `hold=n` keeps the last n characters of `text` pending.
    At `prepare_request`, `once=True` confines the change to this request; otherwise it stays for the run.
    """

    messages: Any = UNSET
    context: Any = UNSET
    model: Any = UNSET
    thinking_level: ThinkingLevel | msgspec.UnsetType = UNSET
    once: bool | msgspec.UnsetType = UNSET
    request: Any = UNSET
    key: Any = UNSET
    text: str | msgspec.UnsetType = UNSET
    hold: int | msgspec.UnsetType = UNSET
    message: Any = UNSET
    args: Any = UNSET
    content: Any = UNSET
    details: Any = UNSET
    structured_content: Any = UNSET
    is_error: bool | msgspec.UnsetType = UNSET
    usage: Any = UNSET
    terminate: bool | msgspec.UnsetType | None = UNSET
    add_messages: Any = UNSET

    def fields(self) -> dict[str, Any]:
        """The fields that were given."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}

    def __repr__(self) -> str:
        shown = {k: "***" if k == "key" else repr(v) for k, v in self.fields().items()}
        return f"Replace({', '.join(f'{k}={v}' for k, v in shown.items())})"

    def __rich_repr__(self) -> Any:
        yield from ((k, "***" if k == "key" else v) for k, v in self.fields().items())


class Block(Verdict, gc=False):
    """Refuse. The model (or the caller) reads `reason`, so say what to do instead.

    At `before_tool_call`, `terminate=True` asks for no further request; it counts if every result of the batch asks.
    """

    reason: str | None = None
    terminate: bool = False


class Answer(Verdict, gc=False):
    """Give the result oneself: the reply (8), the tool's result (12) or the summary (17). Nothing is sent or run."""

    value: Any


class Ask(Verdict, gc=False):
    """Let a human decide about this call. The run waits (`Agent(on_ask=...)`) or suspends (`result.pending`)."""

    prompt: str
    options: tuple[str, ...] = ()


class Steer(Verdict, gc=False):
    """Do not run this call nor its siblings that have not run; tell the model `feedback` instead."""

    feedback: str


class Interrupt(Verdict, gc=False):
    """Stop the reply under way. `keep="nothing"` stores none of it, `"aborted"` what was shown, so marked.

    `resend=True` asks the model again with the same history and whatever is queued.
    """

    reason: str | None = None
    resend: bool = False
    keep: Literal["nothing", "aborted"] = "nothing"


class Hold(Verdict, gc=False):
    """Show all of the pending text but its last `n` characters. At the end of a stream nothing can be held any more."""

    n: int


class Drop(Verdict, gc=False):
    """Throw the pending text away: nobody sees it, nothing stores it."""


class End(Verdict, gc=False):
    """End the run after this turn (14), or before this one (2)."""

    reason: str | None = None


class Continue(Verdict, gc=False):
    """Make sure that one more request follows."""


# --- effects -------------------------------------------------------------------------------------


class Queue(Effect, gc=False):
    """Put a message before the run's next request. A string becomes an assistant message of origin "hook"."""

    message: str | Message


class Resend(Effect, gc=False):
    """Ask the model once more after this reply (and its tools), with whatever is queued."""


# --- a person's answers to `Ask` -----------------------------------------------------------------


class Approve(Frozen, gc=False):
    """Run the call as shown."""


class Deny(Frozen, gc=False):
    """Do not run the call; the model reads the reason."""

    reason: str | None = None


class Edit(Frozen, gc=False):
    """Run the call with these arguments. They are validated and pass the gates again, and the model is told."""

    args: Any


HumanAnswer = Approve | Deny | Edit


class PendingApproval(Frozen):
    """A call that waits for a person: what was asked, and exactly what would run."""

    call_id: str
    name: str
    args: FrozenDict
    prompt: str
    options: tuple[str, ...] = ()
    original_args: FrozenDict = EMPTY_DICT
    args_digest: str = ""
    hook: str = ""
    parent_call_id: str | None = None
