"""An OpenAI-compatible endpoint on 127.0.0.1 for the demonstration: a scripted model behind real HTTP and real streaming."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

Reply = Callable[[list[dict[str, Any]]], dict[str, Any]]
"""Takes the messages of a request, gives the assistant message that answers it."""

PIECE = 12
"""Characters a streamed piece has, so that every reply comes in several."""


class Loopback:
    """Answers `POST /v1/chat/completions` with what `reply` says, as a stream of events. Keeps each body it received."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.received: list[str] = []
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while body := await _body_of(reader):
                self.received.append(body)
                await _send(writer, self.reply(json.loads(body)["messages"]))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()


@asynccontextmanager
async def loopback(reply: Reply) -> AsyncIterator[Loopback]:
    """A running endpoint; `base_url` says where."""
    endpoint = Loopback(reply)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(endpoint.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    endpoint.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        with _no_proxy("127.0.0.1"):
            yield endpoint
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _no_proxy(host: str) -> Iterator[None]:
    """A proxy of the environment is not asked for this machine itself: it could not reach it."""
    before = os.environ.get("no_proxy")
    os.environ["no_proxy"] = ",".join(filter(None, (host, before or os.environ.get("NO_PROXY"))))
    try:
        yield
    finally:
        if before is None:
            del os.environ["no_proxy"]
        else:
            os.environ["no_proxy"] = before


async def _body_of(reader: asyncio.StreamReader) -> str:
    """The body of the next request; empty when the client has closed the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return ""
    fields = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    length = next((int(value) for name, _, value in fields if name.lower() == "content-length"), 0)
    return (await reader.readexactly(length)).decode()


async def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for data in (*map(json.dumps, _chunks(message)), "[DONE]"):
        event = f"data: {data}\n\n".encode()
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _chunks(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole message in the pieces an endpoint streams it in."""
    calls = message.get("tool_calls", [])
    for piece in _pieces(message["content"]):
        yield _chunk({"content": piece})
    for index, call in enumerate(calls):
        function = call["function"]
        yield _chunk({"tool_calls": [{**call, "index": index, "function": {"name": function["name"], "arguments": ""}}]})
        for piece in _pieces(function["arguments"]):
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _chunk({}, finish="tool_calls" if calls else "stop")


def _pieces(text: str) -> list[str]:
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
