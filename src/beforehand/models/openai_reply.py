"""From the bytes of an OpenAI-compatible reply to model events, independent of how the network cut them.

Three readers with one shape, so that the adapter has a single loop: `feed(bytes)` and `close()` (the clean end of the
body) give events, `done` says that nothing more is needed, `failure` holds what to raise after those events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ServerError
from ..messages import NO_USAGE, MessageStop
from .base import Finish, ModelEvent, TextDelta, ThinkingDelta
from .http import Failure, cut
from .openai_calls import CallAssembler
from .openai_chunks import NOT_JSON, Chunk, Delta, WireUsage, decode_chunk, lenient_chunk, loads, why_not_json
from .openai_errors import Place, from_payload, from_status, is_error, not_a_reply
from .openai_wire import UNDECODABLE, mend_surrogates
from .sse import EventDecoder, EventTooLong

Watch = Callable[[Any], None]
"""Called with each decoded chunk or reply, before its events."""

MAX_REPLY_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 256 * 1024
_KEPT = 4096  # first bytes of a body, kept for an error message
_BROKEN = ("error", "abort", "insufficient_system_resource")  # reasons for which servers end a reply they did not complete
_LENGTH = ("length", "max_tokens", "model_length")
_NO_DELTA = Delta()


class ReplyReader:
    """What the readers share: from chunks to events, and how a reply ends."""

    def __init__(self, place: Place, status: int, content_type: str = "", watch: Watch | None = None) -> None:
        self.done = False
        self.failure: Failure | None = None
        self._place, self._status, self._type, self._watch = place, status, content_type, watch
        self._calls = CallAssembler()
        self._reason: str | None = None
        self._refused = False
        self._usage: WireUsage | None = None
        self._half = ""  # the first half of a surrogate pair that a server cut in two

    def feed(self, data: bytes) -> list[ModelEvent]:
        """The events that `data` completes."""
        raise NotImplementedError

    def close(self) -> list[ModelEvent]:
        """The events left at the clean end of the body. Sets `done`."""
        raise NotImplementedError

    def _fail(self, failure: Failure) -> None:
        self.failure, self.done = failure, True

    def _not_a_reply(self, body: bytes, why: str) -> None:
        self._fail(not_a_reply(self._place, self._status, self._type, body, why))

    def _take(self, data: bytes, events: list[ModelEvent]) -> Chunk | None:
        """Append the events of one chunk to `events`. `None` if it is not JSON."""
        try:
            chunk = decode_chunk(data)
        except UNDECODABLE:
            lenient = lenient_chunk(data)
            if lenient is None:
                return None
            chunk = self._mended(lenient)
        if self._watch is not None:
            self._watch(loads(data))
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.error or not chunk.choices:
            self._without_choices(chunk, data)
            return chunk
        for choice in chunk.choices:
            self._delta(choice.delta or choice.message or _NO_DELTA, events, choice.delta is None)
            if choice.finish_reason:
                self._reason = choice.finish_reason
        return chunk

    def _without_choices(self, chunk: Chunk, data: bytes) -> None:
        if chunk.error or chunk.usage is None:
            payload = loads(data)
            if is_error(payload):
                self._fail(from_payload(self._place, payload, self._status))

    def _delta(self, delta: Delta, events: list[ModelEvent], whole: bool) -> None:
        thinking = delta.reasoning_content or delta.reasoning  # some servers send both names with the same text
        if thinking:
            events.append(ThinkingDelta(thinking))
        if delta.content:
            events.append(TextDelta(delta.content))
        if delta.refusal:
            self._refused = True
            events.append(TextDelta(delta.refusal))
        if delta.tool_calls:
            self._calls.take(delta.tool_calls, events, whole)

    def _mended(self, chunk: Chunk) -> Chunk:
        """`chunk` without surrogates. A character whose halves came in two chunks is put together in the second."""
        for choice in chunk.choices or ():
            delta = choice.delta or choice.message or Delta()
            text = self._half + (delta.content or "")
            self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
            delta.content = mend_surrogates(text.removesuffix(self._half))
            for name in ("reasoning_content", "reasoning", "refusal"):
                setattr(delta, name, mend_surrogates(getattr(delta, name) or ""))
            for call in delta.tool_calls or ():
                call.id = call.id and mend_surrogates(call.id)
                if call.function is not None:
                    call.function.name = mend_surrogates(call.function.name or "")
                    call.function.arguments = mend_surrogates(call.function.arguments or "")
        return chunk

    def _finish(self, events: list[ModelEvent]) -> None:
        """The reply is complete: flush what was held back, and say why it ended."""
        self.done = True
        if self._reason in _BROKEN:
            line = f"{self._place.endpoint} broke off its reply with the reason {self._reason!r}; try again later"
            self._fail(Failure(ServerError(line, status=self._status), True))
            return
        if self._half:
            events.append(TextDelta("\ufffd"))
        self._calls.close(events, cut=self._reason in _LENGTH)
        events.append(Finish(self._stop_reason(), NO_USAGE if self._usage is None else self._usage.usage()))

    def _stop_reason(self) -> MessageStop:
        if self._refused or self._reason == "content_filter":
            return "refusal"
        if self._reason in _LENGTH:
            return "length"
        return "tool_calls" if self._calls.count else "stop"


class StreamReader(ReplyReader):
    """Reads a reply that comes as server-sent events."""

    def __init__(self, place: Place, status: int, content_type: str = "", watch: Watch | None = None) -> None:
        super().__init__(place, status, content_type, watch)
        self._events = EventDecoder()
        self._first = b""
        self._seen = False  # an event has come

    def feed(self, data: bytes) -> list[ModelEvent]:
        if not self._seen and len(self._first) < _KEPT:
            self._first += data[:_KEPT]
        events: list[ModelEvent] = []
        try:
            received = self._events.feed(data)
        except EventTooLong as error:
            self._not_a_reply(self._first, str(error))
            return events
        for name, text in received:
            self._seen = True
            if name == "error":
                self._reported(text)
            elif self._take(text, events) is None and not self._ended(text, events) and text.strip():
                self._not_a_reply(text, why_not_json(text))
            if self.done:
                break
        return events

    def close(self) -> list[ModelEvent]:
        """A body that ends cleanly without `[DONE]` is complete if a finish reason had come, else it was cut."""
        events: list[ModelEvent] = []
        for name, text in self._events.close():
            self._seen = True
            if name == "error":
                self._reported(text)
            elif not self._ended(text, events):
                self._take(text, events)  # no JSON: the line was cut inside this chunk, which is said below
        if self.done:
            return events
        if self._reason is not None:
            self._finish(events)
        elif not self._seen and self._first.strip() and not self._first.startswith(b":"):  # comments alone are a stream
            self._not_a_reply(self._first, why_not_json(self._first, self._type, "an event stream"))
        else:
            self._fail(cut(self._place.endpoint))
        return events

    def _ended(self, text: bytes, events: list[ModelEvent]) -> bool:
        if text.strip() != b"[DONE]":
            return False
        self._finish(events)
        return True

    def _reported(self, text: bytes) -> None:
        payload = loads(text)
        if self._watch is not None and payload is not NOT_JSON:
            self._watch(payload)
        said = text.decode("utf-8", "replace") if payload is NOT_JSON else payload
        self._fail(from_payload(self._place, said, self._status))


class WholeReader(ReplyReader):
    """Reads a reply that comes as one JSON body."""

    def __init__(self, place: Place, status: int, content_type: str = "", watch: Watch | None = None) -> None:
        super().__init__(place, status, content_type, watch)
        self._body: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[ModelEvent]:
        self._body.append(data)
        self._size += len(data)
        if self._size > MAX_REPLY_BYTES:
            self._not_a_reply(self._body[0], f"more than {MAX_REPLY_BYTES} bytes")
        return []

    def close(self) -> list[ModelEvent]:
        self.done = True
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        events: list[ModelEvent] = []
        if not body.strip():
            self._not_a_reply(body, "an empty body")
            return events
        chunk = self._take(body, events)
        if chunk is None:
            self._not_a_reply(body, why_not_json(body, self._type))
        elif self.failure is None:
            if chunk.choices:
                self._finish(events)
            else:
                self._not_a_reply(body, "JSON that is not a chat completion")
        return events


class RefusalReader(ReplyReader):
    """Reads the body of an answer with an error status. `wait` is what the endpoint asked for, in seconds."""

    def __init__(self, place: Place, status: int, headers: Mapping[str, str], wait: float | None) -> None:
        super().__init__(place, status)
        self._headers, self._wait = headers, wait
        self._body = b""

    def feed(self, data: bytes) -> list[ModelEvent]:
        self._body += data
        return self.close() if len(self._body) > MAX_ERROR_BYTES else []

    def close(self) -> list[ModelEvent]:
        self._fail(from_status(self._place, self._status, self._headers, self._body, self._wait))
        return []
