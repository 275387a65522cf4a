"""A model endpoint on 127.0.0.1 that answers as a test says, and what the tests of this folder say often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from beforehand.frozen import freeze
from beforehand.messages import Options, Request, ToolSpec, UserMessage
from beforehand.models.base import Finish, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from beforehand.models.http import Secrets
from beforehand.models.openai_errors import Place
from beforehand.models.openai_reply import ReplyReader, StreamReader, WholeReader

STREAMS = Path(__file__).parent.parent / "data" / "streams"
CERTIFICATE = Path(__file__).parent / "self_signed.pem"
"""For 127.0.0.1, with its own key: made for these tests, of use to nobody."""
KEY = "sk-Test-0123456789AbCdEf"
ASK = Request(system="", messages=(UserMessage("hi"),))
ADD = ToolSpec("add", "Adds.", freeze({"type": "object", "properties": {"a": {"type": "integer"}}}))


# -- what a server sends


def delta(content: str | None = None, *, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    if content is not None:
        fields["content"] = content
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(**piece: Any) -> dict[str, Any]:
    """One piece of a tool call; `name` and `arguments` go into its `function`."""
    function = {name: piece.pop(name) for name in ("name", "arguments") if name in piece}
    return {**piece, "type": "function", "function": function}


def whole(message: Mapping[str, Any], finish: str | None = "stop", **fields: Any) -> dict[str, Any]:
    """A reply in one piece."""
    return {"object": "chat.completion", "choices": [{"index": 0, "message": dict(message), "finish_reason": finish}], **fields}


def sse(*chunks: Any, done: bool = True) -> bytes:
    """Chunks as a stream of events; texts are sent as they are."""
    texts = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return "".join(f"data: {text}\n\n" for text in [*texts, *(["[DONE]"] if done else [])]).encode()


HELLO = sse(delta("Hello"), delta(", world"), delta(finish="stop"))


# -- what the client made of it


class Outcome(NamedTuple):
    """A whole reply."""

    text: str
    thinking: str
    calls: list[tuple[str | None, str, str]]
    finish: Finish | None


def outcome_of(events: Iterable[ModelEvent]) -> Outcome:
    """Puts deltas together as their contract says: id and name come first, arguments in pieces."""
    text, thinking, finish = "", "", None
    calls: dict[int, list[Any]] = {}
    for event in events:
        match event:
            case TextDelta():
                text += event.text
            case ThinkingDelta():
                thinking += event.text
            case ToolCallDelta():
                if event.index not in calls:
                    assert event.index == len(calls)
                    assert event.name is not None
                    calls[event.index] = [event.id, event.name, ""]
                elif event.id is not None:
                    calls[event.index][0] = event.id
                calls[event.index][2] += event.arguments
            case Finish():
                assert finish is None
                finish = event
    return Outcome(text, thinking, [tuple(c) for c in calls.values()], finish)


def place(*secrets: str) -> Place:
    return Place("http://127.0.0.1:1/v1/chat/completions", "m", Secrets(secrets))


def feed(reader: ReplyReader, pieces: Iterable[bytes]) -> list[ModelEvent]:
    """All events of `pieces` followed by the clean end of the body."""
    events: list[ModelEvent] = []
    for piece in pieces:
        if reader.done:
            break
        events += reader.feed(piece)
    if not reader.done:
        events += reader.close()
    assert reader.done
    return events


def read(*pieces: bytes) -> list[ModelEvent]:
    """The events of a stream. Raises what the reply failed with."""
    reader = StreamReader(place(), 200)
    events = feed(reader, pieces)
    if reader.failure is not None:
        raise reader.failure.error
    return events


def read_outcome(*chunks: Any, done: bool = True) -> Outcome:
    return outcome_of(read(sse(*chunks, done=done)))


def read_whole(body: Any) -> list[ModelEvent]:
    """The events of a reply in one piece. Raises what it failed with."""
    reader = WholeReader(place(), 200, "application/json")
    events = feed(reader, [body if isinstance(body, bytes) else json.dumps(body).encode()])
    if reader.failure is not None:
        raise reader.failure.error
    return events


async def collect(
    stream: AsyncIterator[ModelEvent], into: list[ModelEvent] | None = None, signal: asyncio.Event | None = None
) -> list[ModelEvent]:
    """All events, in `into` also those before a failure; each one sets `signal`."""
    events = [] if into is None else into
    async for event in stream:
        events.append(event)
        if signal is not None:
            signal.set()
    return events


def request(*messages: Any, system: str = "", tools: tuple[ToolSpec, ...] = (), **options: Any) -> Request:
    return Request(system, messages or (UserMessage("hi"),), tools, Options(**options))


class Naps(list[float]):
    """A `sleep` that takes no time and remembers what it was asked for."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


# -- the server


class Received(NamedTuple):
    """A request as it arrived."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Line(NamedTuple):
    """One connection, as a scripted answer sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self, status: int = 200, /, **headers: str) -> None:
        fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.writer.write(f"HTTP/1.1 {status} Scripted\r\n{fields}\r\n".encode())
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """One chunk of a chunked body, in a packet of its own."""
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    async def event(self, *chunks: Any) -> None:
        await self.chunk(sse(*chunks, done=False))

    async def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def gone(self) -> None:
        """Returns when the client has closed the connection."""
        try:
            while await self.reader.read(1024):
                pass
        except ConnectionError:
            pass


Answer = Callable[[Line], Awaitable[object]]
"""Answers one request. Returning False closes the connection."""


def answer(body: Any, status: int = 200, content_type: str | None = "application/json", **headers: str) -> Answer:
    """A body with its length: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def send(line: Line) -> None:
        named = {} if content_type is None else {"content_type": content_type}
        await line.head(status, **{"content_length": str(len(data)), **named, **headers})
        line.writer.write(data)
        await line.writer.drain()

    return send


def stream(*pieces: bytes, end: bool = True, **headers: str) -> Answer:
    """An event stream, each piece a chunk of its own. Without `end` the connection is cut after the last."""

    async def send(line: Line) -> bool:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked", **headers)
        for piece in pieces:
            await line.chunk(piece)
        if end:
            await line.end()
        return end

    return send


async def hang_up(line: Line) -> bool:
    """Closes the connection instead of answering."""
    return False


async def silence(line: Line) -> bool:
    """Never answers."""
    await line.gone()
    return False


class Endpoint:
    """Answers each request with the next of `answers`; the last one stays."""

    def __init__(self, scheme: str = "http") -> None:
        self.scheme = scheme
        self.answers: list[Answer] = [stream(HELLO)]
        self.requests: list[Received] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    def script(self, *answers: Answer) -> None:
        self.answers = list(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await _receive(reader))
                scripted = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if await scripted(Line(reader, writer)) is False:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _receive(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return Received(head[0].split(" ")[1], headers, await reader.readexactly(int(headers.get("content-length", "0"))))
