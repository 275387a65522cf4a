"""An OpenAI-compatible endpoint on this machine with a scripted travel clerk behind it. Standard library only.

    with endpoint() as there:
        ...  # talk to there.base_url; there.received holds the bodies of all requests
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def clerk(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The scripted model: looks trains up, tries first class, and does as it is told."""
    last = messages[-1]
    if last["role"] != "tool":
        return asking("I will look at the trains.", messages, "find_trains", {"to": "Mar del Plata"})
    if last["content"].startswith("Booked: "):
        return {"role": "assistant", "content": f"You are on your way: {last['content'].removeprefix('Booked: ')}"}
    seat_class = "tourist" if "Book tourist" in last["content"] else "first"
    return asking(f"I will take {seat_class} class.", messages, "book_ticket", {"train": 305, "seat_class": seat_class})


def asking(said: str, messages: list[dict[str, Any]], name: str, args: dict[str, Any]) -> dict[str, Any]:
    call = {"id": f"call_{len(messages)}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
    return {"role": "assistant", "content": said, "tool_calls": [call]}


class Endpoint(ThreadingHTTPServer):
    """Answers `POST /v1/chat/completions`, as a stream of events or in one piece, as the request asks."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[dict[str, Any]] = []
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received.append(body)
        message = clerk(body["messages"])
        finish = "tool_calls" if "tool_calls" in message else "stop"
        if body.get("stream"):
            calls = [{**call, "index": i} for i, call in enumerate(message.get("tool_calls", []))]
            delta = {**message, "tool_calls": calls} if calls else message
            chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            self.answer("text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
        else:
            choice = {"index": 0, "message": message, "finish_reason": finish}
            self.answer("application/json", json.dumps({"object": "chat.completion", "choices": [choice]}))

    def answer(self, content_type: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """A running endpoint. A proxy of the environment is not asked for it, since no proxy could reach this machine."""
    before = os.environ.get("no_proxy")
    os.environ["no_proxy"] = "127.0.0.1"
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        os.environ.pop("no_proxy")
        if before is not None:
            os.environ["no_proxy"] = before
