"""One call on its way through the pipeline, and what the calls of one reply have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

import msgspec

from .decisions import Ask, PendingApproval
from .errors import RunError, Stop
from .events import Outcome
from .frozen import EMPTY_DICT, FrozenDict
from .history import History, HistoryView
from .messages import AssistantMessage, Content, Image, Text, ToolCall, clean, text_of
from .seams import PendingCall
from .tools import Tool, ToolResult


class Suspend(Stop):
    """Raised by a tool body that waits for a person (a sub-agent's): `resume(answers)` goes on with it."""

    def __init__(self, pending: Sequence[PendingApproval], resume: Any) -> None:
        super().__init__("waiting for a person")
        self.pending, self.resume = tuple(pending), resume


class RecordEnds(Stop):
    """The record has no more to say about what is gone over: a run, or one of its calls."""


_NOTHING = ToolResult()


class Call(msgspec.Struct, eq=False):
    """One call on its way through the pipeline. `outcome` is `None` until it is settled.

    `args` are the validated arguments, `None` where nobody looks at them; `asked` is the question a person must answer,
    `rest` what the other hooks said;
    `resume_with` replaces the body of a call that waited for a person inside; `failure` must end the run; `recalled` says
    that outcome and result are those on record, `compared` that the record was asked whether it has begun before. The result
    of a `whole` call is not shortened: code reads it. `left` says whether the code that made the call has ended, or the code
    around that; `begun` whether the body has; `inside` are the calls that it makes; `within` the hooks and tools whose code has
    led to it, where code made it, and `made_by` the lambda that did. `spent` is what a sub-agent that it ran has cost.
    """

    part: ToolCall
    id: str
    name: str
    parent_id: str | None = None
    message: AssistantMessage | None = None
    tool: Tool | None = None
    args: FrozenDict | None = None
    original_args: FrozenDict = EMPTY_DICT
    context: PendingCall | None = None
    outcome: Outcome | None = None
    result: ToolResult = _NOTHING
    duration: float = 0.0
    asked: Ask | None = None
    asked_by: str = ""
    rest: Any = None
    edits: int = 0
    failure: RunError | None = None
    suspended: Suspend | None = None
    resume_with: Callable[[], Awaitable[Any]] | None = None
    updates_open: bool = False
    concluded: bool = False
    recalled: bool = False
    compared: bool = False
    whole: bool = False
    left: Callable[[], bool] | None = None
    begun: bool = False
    inside: Inside | None = None
    within: tuple[Any, ...] = ()
    made_by: str = ""
    spent: float = 0.0

    @classmethod
    def of(cls, part: ToolCall, message: AssistantMessage | None, parent_id: str | None = None) -> Call:
        """A call of this reply, or one made inside it by the call `parent_id`."""
        return cls(part, part.id, part.name, parent_id, message)

    @property
    def final_args(self) -> FrozenDict:
        """The arguments with which it runs, complete: where nobody looked at them, the body alone has seen them so."""
        assert self.tool is not None
        return self.tool.validate(self.part.arguments) if self.args is None else self.args

    def settle(self, outcome: Outcome, text: str, terminate: bool = False) -> None:
        """This call will not run: the model reads `text` as an error."""
        self.outcome = outcome
        self.result = ToolResult(clean(text), is_error=True, terminate=terminate)

    def waits_inside(self, suspend: Suspend) -> None:
        """A person must answer something before the body of this call can go on."""
        self.suspended, self.outcome = suspend, "pending"
        self.result = ToolResult("Waiting for a person's approval.", is_error=True)

    def raise_if_left(self) -> None:
        """Nobody waits for this call any more, so it must not begin, whoever has swallowed the cancellation that said so."""
        if self.left is not None and self.left():
            raise asyncio.CancelledError

    def pending(self) -> tuple[PendingApproval, ...]:
        """What a person is asked about this call."""
        if self.suspended is not None:
            return self.suspended.pending
        assert self.asked is not None and self.args is not None and self.context is not None
        return (
            PendingApproval(
                call_id=self.id, name=self.name, args=self.args, prompt=self.asked.prompt, options=self.asked.options,
                original_args=self.original_args, args_digest=self.context.args_digest, hook=self.asked_by,
                parent_call_id=self.context.run.parent_call_id,
            ),
        )  # fmt: skip


class Inside:
    """The calls that one body makes, perhaps several at once. `waiting` are the questions that people must answer in them.

    Whatever the body makes of that, its own call waits then: a task group wraps what ends its tasks, and code that catches
    everything catches the signal to wait too.
    """

    __slots__ = ("_all_done", "_going", "made", "waiting")

    def __init__(self) -> None:
        self.made = 0
        self.waiting: list[PendingApproval] = []
        self._going = 0
        self._all_done: list[asyncio.Future[None]] = []

    def begin(self) -> None:
        self._going += 1
        self.made += 1

    def end(self) -> None:
        self._going -= 1
        if not self._going:
            for done in self._all_done:
                if not done.done():
                    done.set_result(None)
            self._all_done.clear()

    async def suspend(self, pending: Sequence[PendingApproval]) -> NoReturn:
        """Wait for a person, once the calls beside this one have come to their results."""
        self.waiting += pending
        await asyncio.sleep(0)  # those that are to go on beside it may be yet to begin
        while self._going:
            done = asyncio.get_running_loop().create_future()
            self._all_done.append(done)
            await done
        raise Suspend(self.waiting, None)  # the body is run again once a person has answered


class Batch(msgspec.Struct, eq=False):
    """What the calls of one reply have in common. `steered_by` names the call at which a hook steered away.

    `context` and `names` are only made when a hook wants to see them.
    """

    message: AssistantMessage | None
    history: History
    length: int
    lone: str = ""
    steered_by: str | None = None

    @property
    def context(self) -> HistoryView:
        """The messages as they were when the batch began."""
        return HistoryView(self.history, self.length)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.lone,) if self.lone or self.message is None else tuple([call.name for call in self.message.tool_calls])


def nested_call(call_id: str, name: str, args: Any, parent_id: str, message: AssistantMessage | None = None) -> Call:
    """A call that code has made, with arguments as JSON text or as what JSON can be made of."""
    import json

    try:
        arguments = args if isinstance(args, str) else json.dumps(args, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        arguments = json.dumps(f"no JSON: {error}")  # refused below, like anything else that is no object
    return Call.of(ToolCall(call_id, name, arguments), message, parent_id)


class NestedResult(ToolResult, kw_only=True):
    """What `ctx.call_tool` returns: the result, what became of the call, and its id."""

    outcome: Outcome
    call_id: str


def shortened(content: Content, limit: int) -> Content:
    """Content with at most `limit` characters of text, and a note that says so."""
    note = f"\n[cut: {len(text_of(content)) - limit} characters left out]"
    if isinstance(content, str):
        return content[:limit] + note
    parts: list[Text | Image] = []
    for part in content:
        if isinstance(part, Text):
            part = Text(part.text[:limit])
            limit -= len(part.text)
        parts.append(part)
    return (*parts, Text(note))


def say_edited(call: Call) -> ToolResult:
    """A result that says that a person changed the call, whatever became of it then."""
    import json  # deferred: it costs every start, and serves the rarest of calls

    used = json.dumps(call.args, ensure_ascii=False)
    note = f"[A person changed the arguments of this call on purpose, to {used}. Do not repeat the original call.]"
    content = call.result.content
    if isinstance(content, str):
        return msgspec.structs.replace(call.result, content=f"{content}\n{note}" if content else note)
    return msgspec.structs.replace(call.result, content=(*content, Text(note)))
