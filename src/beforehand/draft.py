"""A reply while it arrives, before anything of it is history."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from .decisions import Interrupt
from .errors import InvalidResponse, ModelError, RunError
from .events import ChunkKind
from .ids import short_id
from .keys import hidden, of_address, of_environment, place_of
from .messages import (
    NO_USAGE,
    AssistantMessage,
    MessageStop,
    Origin,
    Part,
    Request,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    Usage,
    clean,
)
from .models.base import CallInfo, Model
from .state import RunState


E = TypeVar("E", bound=Exception)


class OpenCall(msgspec.Struct, eq=False, gc=False):
    """A tool call while its arguments arrive: `shown` are the pieces the guard has let pass."""

    id: str
    name: str
    shown: list[str] = []


class Outgoing(msgspec.Struct, eq=False, gc=False):
    """A request on its way: what is asked, of which model, with which key.

    `whole` says that the reply comes in one piece, `origin` whose words it will be.
    """

    request: Request
    model: Model
    info: CallInfo
    thinking_level: ThinkingLevel = "off"
    whole: bool = False
    origin: Origin = "model"


def without_keys(error: E, by: Outgoing) -> E | ModelError:
    """A model's failure as it may be told: without the key that went with the request, and those in the model's address.

    Our own adapter sees to that itself; this is for any other.
    """
    where = by.model.endpoint
    try:
        said = str(error)
    except Exception:  # then it says nothing
        return error
    text = hidden(said.replace(where, place_of(where)) if where else said, [by.info.key, *of_address(where), *of_environment()])
    if text == said:
        return error
    error.args = (text,)
    return error if str(error) == text else ModelError(text)


class Draft(msgspec.Struct, eq=False, gc=False):
    """A reply while it arrives: its parts in order, and how it ended.

    `released` counts the characters shown; `withheld` gathers those that wait for a hook with `hold=True`; `raw` says that
    the parts are as the model sent them, because nobody has been asked about them yet.
    """

    id: str
    by: Outgoing
    raw: bool = False
    parts: list[tuple[str, Any]] = []
    calls: dict[int, OpenCall] = {}
    signature: str | None = None
    stop_reason: MessageStop | None = None
    usage: Usage = NO_USAGE
    started: bool = False
    released: int = 0
    withheld: list[tuple[ChunkKind, str, str | None]] | None = None

    def add(self, kind: str, text: str) -> None:
        if type(text) is not str:
            raise InvalidResponse(f"the model {self.by.model!r} sent a {type(text).__name__} where text is due")
        if self.parts and self.parts[-1][0] == kind:
            self.parts[-1][1].append(text)
        else:
            self.parts.append((kind, [text]))

    def add_last(self, kind: str, text: str) -> None:
        """Text that was kept back until the end goes where the text before it is, though other parts have come since."""
        for of, pieces in reversed(self.parts):
            if of == kind:
                pieces.append(text)
                return
        self.add(kind, text)

    def count(self, run: RunState, kind: str, text: str) -> None:
        """This text has been shown."""
        self.released += len(text)
        run.characters_released += len(text)
        if run.journal is not None:
            run.journal.released(self.id, kind, text)

    def content(self, with_calls: bool) -> tuple[Part, ...]:
        content: list[Part] = []
        for kind, value in () if self.raw else self.parts:
            if kind == "call":
                if with_calls:
                    content.append(ToolCall(value.id, value.name, clean("".join(value.shown)) or "{}"))
            elif kind == "text":
                content.append(Text(clean("".join(value))))
            elif kind == "thinking":
                content.append(Thinking(clean("".join(value)), self.signature))
            else:
                content.append(value)
        return tuple(content)

    def message(self, stop_reason: MessageStop, error: str | None = None) -> AssistantMessage:
        content = self.content(stop_reason != "error" and stop_reason != "aborted")
        by = self.by
        return AssistantMessage(
            content, stop_reason, self.usage, by.model.name, by.model.provider, self.id, by.thinking_level, error, by.origin
        )


class Reply(msgspec.Struct, eq=False):
    """What came of a request. `message` is what the history holds (`None`: nothing), `error` why it failed.

    `wasted` is what a whole reply has cost of which nothing was kept, and `model` who gave it.
    """

    message: AssistantMessage | None
    interrupt: Interrupt | None = None
    error: RunError | None = None
    aborted: bool = False
    wasted: Usage = NO_USAGE
    model: str = ""


_OF_CODE = re.compile(r"lambda_\d+").fullmatch
"""What a run calls its lambdas: the calls they make are named after them, as those inside a call are after it."""


def free_id(run: RunState, wanted: str, here: Collection[str]) -> str:
    """A call's id, with a suffix if it is already in use: results, records and approvals are matched by id."""
    wanted = _plain_id(run, wanted)
    free = name = wanted.replace("/", "_")  # the slash is ours: it parts a call from those inside it
    while free in run.history.call_ids or free in run.context.call_ids or free in here or _OF_CODE(free):
        free = f"{name}-{run.history.next_suffix(name)}"
    if free != wanted:
        run.note("Renamed", f"call id {wanted!r} {_why_not(wanted)}, so this call is {free!r}", free)
    return free


def _why_not(wanted: str) -> str:
    if "/" in wanted:
        return "holds a slash"
    return "is kept for lambdas" if _OF_CODE(wanted) else "is already in use"


def with_free_ids(run: RunState, message: AssistantMessage) -> AssistantMessage:
    """A reply whose calls a hook has written."""
    here: list[str] = []
    content: list[Part] = []
    for part in message.content:
        if isinstance(part, ToolCall):
            part = ToolCall(free_id(run, part.id, here), clean(part.name), clean(part.arguments))
            here.append(part.id)
        content.append(part)
    return msgspec.structs.replace(message, content=tuple(content))


def _plain_id(run: RunState, wanted: str) -> str:
    """A call's id that a store can hold as part of a run's: the model may choose any."""
    plain = short_id(wanted)
    if plain != wanted:
        shown = wanted if len(wanted) <= 40 else f"{wanted[:40]}..."
        run.note("Renamed", f"call id {clean(shown)!r} is too long or not printable, so this call is {plain!r}", plain)
    return plain
