"""What hooks get: one frozen context for each seam, built only when a hook listens. `seams.py` says when."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

from .errors import FrozenError
from .events import ChunkKind, Outcome
from .frozen import Frozen, FrozenDict, canonical
from .history import HistoryView, digest_messages, estimate_tokens
from .limits import Limits
from .messages import AssistantMessage, Content, Message, Origin, Request, ThinkingLevel, ToolMessage, Usage, text_of
from .signals import AbortSignal

Cause = Literal["tools", "steering", "follow_up", "continue"]
RequestKind = Literal["turn", "compaction", "direct"]


def digest_of(value: Any) -> str:
    """SHA-256, in hex, of `value` as canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def request_value(request: Request) -> Any:
    """A request as plain data, to take a digest of: its messages stand for themselves by their own digest."""
    return {
        "system": request.system, "messages": digest_messages(request.messages), "tools": request.tools,
        "options": request.options,
    }  # fmt: skip


class RunInfo:
    """What a hook or a tool may know of its run: a read-only view that is always current.

    `calls` are the tool calls let through so far, `elapsed` is in seconds, `cost` in the currency of the price table
    (0.0 without one), `signal` is set by an abort, `deps` is what the caller passed as `run(..., deps=)`.
    """

    __slots__ = ("_run", "parent_call_id")
    _run: Any
    parent_call_id: str | None

    def __init__(self, run: Any, parent_call_id: str | None) -> None:
        object.__setattr__(self, "_run", run)
        object.__setattr__(self, "parent_call_id", parent_call_id)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenError(f"RunInfo.{name} is frozen")

    @property
    def run_id(self) -> str:
        return self._run.run_id  # type: ignore[no-any-return]

    @property
    def loop(self) -> str:
        return self._run.loop  # type: ignore[no-any-return]

    @property
    def turn(self) -> int:
        return self._run.turn  # type: ignore[no-any-return]

    @property
    def usage(self) -> Usage:
        return self._run.usage  # type: ignore[no-any-return]

    @property
    def elapsed(self) -> float:
        return self._run.elapsed  # type: ignore[no-any-return]

    @property
    def cost(self) -> float:
        return self._run.cost  # type: ignore[no-any-return]

    @property
    def deps(self) -> Any:
        return self._run.deps

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        return tuple([CallRecord(call.id, call.name, call.outcome) for call in self._run.calls.values()])

    @property
    def limits(self) -> Limits:
        return self._run.limits  # type: ignore[no-any-return]

    @property
    def signal(self) -> AbortSignal:
        return self._run.signal  # type: ignore[no-any-return]


class CallRecord(Frozen):
    """One tool call of the run so far. `outcome` is `None` while it is under way."""

    call_id: str
    name: str
    outcome: Outcome | None = None


class Context(Frozen):
    """What requests of this run are made from: system text, messages and the tools that may run."""

    system: str
    messages: Sequence[Message]
    tools: tuple[Any, ...]


class Seen(Frozen):
    """Root of what hooks get. `run` describes the run."""

    run: RunInfo


class RunStart(Seen):
    messages: tuple[Message, ...]
    history: HistoryView


class TurnStart(Seen):
    number: int
    history: HistoryView
    incoming: tuple[Message, ...]


class RequestPlan(Seen):
    context: Context
    model: Any
    thinking_level: ThinkingLevel


class MessagesView(Seen):
    messages: Sequence[Message]
    model: Any

    def estimate_tokens(self) -> int:
        """About four characters a token. O(1) for an untouched history."""
        return estimate_tokens(self.messages)


class ProviderCall(Seen):
    request: Request
    model: Any
    enabled_tools: tuple[str, ...]


class KeyRequest(Seen):
    provider: str
    endpoint: str


class OutgoingRequest(Seen):
    request: Request
    endpoint: str
    model: Any
    kind: RequestKind

    @property
    def digest(self) -> str:
        """SHA-256 of the request as canonical JSON."""
        return digest_of(request_value(self.request))


class Chunk(Seen):
    """`pending` is this channel's text that this hook has not released yet, `delta` what is new in it.

    `released` counts the characters this hook has let pass; `final` says that no more will come.
    """

    kind: ChunkKind
    delta: str
    pending: str
    released: int
    final: bool
    message_id: str
    call_id: str | None = None


class IncomingMessage(Seen):
    message: Message
    origin: Origin
    released_chars: int
    history: HistoryView


class CallDraft(Seen):
    """A call on its way to the gates. `args` are validated and canonical, `raw_args` what the model wrote."""

    name: str
    tool: Any
    args: FrozenDict
    raw_args: str
    call_id: str
    message: AssistantMessage | None
    context: Sequence[Message]
    batch: tuple[str, ...]


class PendingCall(CallDraft, kw_only=True):
    """A call as it will run. `original_args` are the model's, before any hook changed them."""

    original_args: FrozenDict

    @property
    def args_digest(self) -> str:
        """SHA-256 of the final arguments as canonical JSON: what an approval is bound to."""
        return digest_of(self.args)


class CallOutcome(Seen, kw_only=True):
    call: PendingCall
    outcome: Outcome
    content: Content
    details: Any = None
    structured_content: Any = None
    is_error: bool = False
    usage: Usage | None = None
    terminate: bool = False
    duration: float = 0.0
    partial: bool = False

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def args(self) -> FrozenDict:
        return self.call.args

    @property
    def call_id(self) -> str:
        return self.call.call_id


class FinishedTurn(Seen):
    """`message` is `None` when the turn ended before a reply was stored."""

    number: int
    message: AssistantMessage | None
    tool_results: tuple[ToolMessage, ...]
    context: Context
    new_messages: Sequence[Message]


class NextTurn(FinishedTurn, kw_only=True):
    cause: Cause
    model: Any
    thinking_level: ThinkingLevel
    add_messages: tuple[Message, ...] = ()


class Compaction(Seen):
    """`messages` would be replaced by a summary, `kept` would stay. Sizes are estimated tokens."""

    messages: tuple[Message, ...]
    kept: tuple[Message, ...]
    tokens: int
    threshold: int | None
