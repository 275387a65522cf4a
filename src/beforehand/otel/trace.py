"""The spans of one run.

    invoke_agent NAME
      turn
        chat MODEL               one for each request that leaves
        execute_tool NAME        one for each call, whatever became of it
          execute_tool NAME      a call made inside it
          invoke_agent NAME      a sub-agent's run

Every decision is an event on the span it was about. A span ends when its work did; some are closed a little later,
with the time of their end, because what is said about them comes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import Any, ClassVar

from opentelemetry import context as contexts
from opentelemetry.trace import (
    Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer, get_current_span, set_span_in_context,
)  # fmt: skip

from ..errors import BeforehandError
from ..events import DecisionMade, DecisionRecord, Event, MessageEnd, ToolExecutionEnd, ToolExecutionStart, TurnEnd, TurnStart
from ..messages import AssistantMessage, ToolMessage, ToolSpec
from ..observer import CallBegin, Leave, RequestBegin, RequestEnd, RunBegin, RunEnd, RunObserver
from .attributes import (
    FAILED_STOPS, MAX_TEXT, decision_attributes, error_text, error_type, outcome_attributes, reply_attributes,
    request_attributes, run_attributes, run_end_attributes, short, tool_attributes,
)  # fmt: skip
from .content import as_json, reply_content, request_content, result_content


class _Call:
    """A tool call's span, and the decisions about it."""

    __slots__ = ("rulings", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.rulings: list[DecisionRecord] = []


class _Chat:
    """A request's span. `ended` is when its reply was complete."""

    __slots__ = ("ended", "loop", "of_turn", "span")

    def __init__(self, span: Span, loop: str, of_turn: bool) -> None:
        self.span, self.loop, self.of_turn = span, loop, of_turn
        self.ended: int | None = None

    def close(self) -> None:
        self.span.end(self.ended)


class RunTrace(RunObserver):
    """Turns what happens in one run into spans.

    `_unread` are calls that are over, whose results the history does not hold yet.
    """

    events: ClassVar[frozenset[str]] = frozenset(
        {"turn_start", "turn_end", "message_end", "tool_execution_start", "tool_execution_end", "decision"}
    )

    def __init__(
        self, tracer: Tracer, run: RunBegin, capture: bool, before: SpanContext | None, keep: Callable[[str, SpanContext], None]
    ) -> None:
        self._tracer, self._run, self._capture, self._keep = tracer, run, capture, keep
        self._turns: dict[str, tuple[Span, int | None]] = {}
        self._calls: dict[tuple[str, str], _Call] = {}
        self._chats: dict[int, _Chat] = {}
        self._unread: dict[tuple[str, str], tuple[Span, int]] = {}
        self._tools: tuple[ToolSpec, ...] = ()
        self._hear: dict[str, Callable[[Any], None]] = {
            "turn_start": self._turn_start, "turn_end": self._turn_end, "message_end": self._message_end,
            "tool_execution_start": self._tool_start, "tool_execution_end": self._tool_end, "decision": self._decision,
        }  # fmt: skip
        attributes = run_attributes(run)
        self._span = tracer.start_span(
            f"{attributes['gen_ai.operation.name']} {attributes['gen_ai.agent.name']}",
            attributes=attributes,
            links=[Link(before)] if before is not None else None,
        )

    @property
    def exists(self) -> bool:
        """False without an SDK: then there is no trace, and nothing to do for it."""
        return self._span.get_span_context().is_valid

    def hear(self, event: Event) -> None:
        if event.run_id != self._run.run_id:  # a sub-agent's, passed on: its own trace has it
            return
        if type(event) is not TurnStart:
            self._go_on(event.loop, event.turn)
        self._hear[event.type](event)

    # --- turns ---

    def _turn_start(self, event: TurnStart) -> None:
        self._close_turn(event.loop)
        self._begin_turn(event.loop, event.number)

    def _go_on(self, loop: str, turn: int) -> None:
        """Begin the turn that a resumed run goes on with: it was announced before the run waited."""
        if self._run.resumed and turn and not self._turns:
            self._begin_turn(loop, turn, resumed=True)

    def _begin_turn(self, loop: str, number: int, resumed: bool = False) -> None:
        attributes: dict[str, Any] = {"beforehand.turn.number": number, "beforehand.loop": short(loop)}
        if resumed:
            attributes["beforehand.turn.resumed"] = True
        self._turns[loop] = self._begin(self._span, "turn", attributes), None

    def _turn_end(self, event: TurnEnd) -> None:
        turn = self._turns.get(event.loop)
        if turn is not None:
            self._turns[event.loop] = turn[0], time_ns()

    def _close_turn(self, loop: str) -> None:
        self._close_chats(loop)
        turn = self._turns.pop(loop, None)
        if turn is not None:
            turn[0].end(turn[1])

    def _begin(self, parent: Span, name: str, attributes: dict[str, Any], kind: SpanKind = SpanKind.INTERNAL) -> Span:
        return self._tracer.start_span(name, context=set_span_in_context(parent), kind=kind, attributes=attributes)

    def _around(self, loop: str) -> Span:
        """The span of what is under way in a loop: its turn, else the run."""
        turn = self._turns.get(loop)
        return self._span if turn is None else turn[0]

    # --- requests ---

    def request_begins(self, begin: RequestBegin) -> None:
        self._go_on(begin.loop, begin.turn)
        of_turn = begin.kind == "turn"
        if of_turn:
            self._close_chats(begin.loop)
            self._tools = begin.request.tools
        span = self._begin(
            self._around(begin.loop) if of_turn else self._current(begin.loop),
            f"chat {short(begin.model)}",
            request_attributes(begin, self._run.conversation_id),
            SpanKind.INTERNAL if begin.endpoint == "in-process" else SpanKind.CLIENT,
        )
        if self._capture and span.is_recording():
            span.set_attributes(request_content(begin.request))
        self._chats[begin.number] = _Chat(span, begin.loop, of_turn)

    def _current(self, loop: str) -> Span:
        """Where a request beside the conversation comes from: the tool body that makes it, else what is under way."""
        current = get_current_span()
        return current if any(call.span is current for call in self._calls.values()) else self._around(loop)

    def enter_request(self, number: int) -> Leave | None:
        chat = self._chats.get(number)
        return None if chat is None else _enter(chat.span)

    def request_ends(self, end: RequestEnd) -> None:
        chat = self._chats.get(end.number)
        if chat is None:
            return
        chat.ended = time_ns()
        chat.span.set_attributes(reply_attributes(end))
        if isinstance(end.error, Exception):
            _failed(chat.span, error_type(end.error), _text(end.error))
        elif end.error is not None:
            _failed(chat.span, "aborted")
        elif end.cut:
            _failed(chat.span, "interrupted")
        if not chat.of_turn:
            self._chats.pop(end.number).close()

    def _message_end(self, event: MessageEnd) -> None:
        message = event.message
        if isinstance(message, ToolMessage):
            self._read(event.loop, message.tool_call_id, message)
        elif event.origin == "model" and isinstance(message, AssistantMessage):
            if self._capture:
                for chat in self._chats.values():
                    if chat.of_turn and chat.loop == event.loop:
                        chat.span.set_attributes(reply_content(message))
            self._close_chats(event.loop)

    def _close_chats(self, loop: str) -> None:
        for number, chat in tuple(self._chats.items()):
            if chat.of_turn and chat.loop == loop:
                self._chats.pop(number).close()

    # --- tool calls ---

    def _tool_start(self, event: ToolExecutionStart) -> None:
        call = self._begin_call(event.loop, event.call_id, event.name)
        if self._capture:
            call.span.set_attribute("gen_ai.tool.call.arguments", as_json(event.args))

    def _begin_call(self, loop: str, call_id: str, name: str) -> _Call:
        outer = self._calls.get((loop, call_id.rpartition("/")[0]))
        description = next((tool.description for tool in self._tools if tool.name == name), None)
        span = self._begin(
            self._around(loop) if outer is None else outer.span,
            f"execute_tool {short(name)}",
            tool_attributes(name, call_id, description),
        )
        call = self._calls[loop, call_id] = _Call(span)
        return call

    def enter_call(self, begin: CallBegin) -> Leave | None:
        self._go_on(begin.loop, begin.turn)
        call = self._calls.get((begin.loop, begin.call_id)) or self._begin_call(begin.loop, begin.call_id, begin.name)
        if self._capture and begin.args is not None:  # what the hooks at 11 made of them, and a person
            call.span.set_attribute("gen_ai.tool.call.arguments", as_json(begin.args))
        return _enter(call.span)

    def _tool_end(self, event: ToolExecutionEnd) -> None:
        key = event.loop, event.call_id
        call = self._calls.pop(key, None) or self._begin_call(event.loop, event.call_id, event.name)
        self._calls.pop(key, None)
        span = call.span
        span.set_attributes(outcome_attributes(event, call.rulings))
        if event.is_error and event.outcome != "pending":
            _failed(span, "tool_error" if event.outcome in ("ran", "answered") else event.outcome)
        if not self._capture or event.outcome == "pending":
            span.end()
        elif "/" in event.call_id:  # made inside another: only the tool reads its result
            span.set_attributes(result_content(event.result.content))
            span.end()
        else:  # hooks at 10 still have a say in what the model will read
            self._unread[key] = span, time_ns()

    def _read(self, loop: str, call_id: str, message: ToolMessage | None) -> None:
        span, ended = self._unread.pop((loop, call_id), (None, 0))
        if span is not None:
            if message is not None:
                span.set_attributes(result_content(message.content))
            span.end(ended)

    # --- decisions ---

    def _decision(self, event: DecisionMade) -> None:
        record = event.record
        call = self._calls.get((event.loop, record.call_id)) if record.call_id is not None else None
        if call is not None:
            call.rulings.append(record)
        span = call.span if call is not None else self._judged(record)
        span.add_event("beforehand.decision", decision_attributes(record))

    def _judged(self, record: DecisionRecord) -> Span:
        """What a decision about no call was about: the reply that arrives, the turn, or the run."""
        if record.seam in ("on_chunk", "repair"):
            for chat in self._chats.values():
                if chat.of_turn and chat.loop == record.loop:
                    return chat.span
        return self._around(record.loop)

    # --- the end ---

    def ends(self, end: RunEnd) -> None:
        kind, text = _failure(end)
        for call in reversed(self._calls.values()):  # the run was torn down, and nobody knows what they did
            call.span.set_attribute("beforehand.tool.outcome", "uncertain")
            _failed(call.span, kind or "uncertain")
            call.span.end()
        for key in tuple(self._unread):
            self._read(*key, None)
        for chat in self._chats.values():
            if chat.ended is None:
                _failed(chat.span, kind or "interrupted")
            chat.close()
        self._chats.clear()
        if kind is not None and self._run.loop in self._turns:
            _failed(self._turns[self._run.loop][0], kind, text)
        for loop in tuple(self._turns):
            self._close_turn(loop)
        span = self._span
        span.set_attributes(run_end_attributes(self._run, end))
        if kind is not None:
            _failed(span, kind, text)
        span.end()
        if end.stop_reason == "suspended":
            self._keep(self._run.run_id, span.get_span_context())


def _enter(span: Span) -> Leave:
    """Make this span the current one in the running task."""
    token = contexts.attach(set_span_in_context(span))
    return lambda: contexts.detach(token)


def _failed(span: Span, kind: str, text: str | None = None) -> None:
    span.set_attribute("error.type", short(kind))
    span.set_status(Status(StatusCode.ERROR, text))


def _text(error: BaseException) -> str | None:
    """An error's text, if we wrote it: what comes from elsewhere may hold anything."""
    return error_text(error) if isinstance(error, BeforehandError) else None


def _failure(end: RunEnd) -> tuple[str | None, str | None]:
    """Type and text of what made a run fail, `None` if it did not."""
    if end.error is not None and end.stop_reason in (None, "error"):
        return error_type(end.error), _text(end.error)
    if end.stop_reason in FAILED_STOPS:
        return end.stop_reason, short(end.reason, MAX_TEXT) if end.reason else None
    return None, None
