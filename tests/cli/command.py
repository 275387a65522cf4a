"""The command as a process, as a user starts it, and a model endpoint on this machine for it to talk to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

KEY = "sk-test-abcdefghijklmnop0123456789"

COMMAND = [sys.executable, "-m", "beforehand"]


def beforehand(*args: str, cwd: Path | None = None, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with what it printed. Standard input is no terminal."""
    command, env = [*COMMAND, *args], {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, input=stdin, env=env, capture_output=True, text=True, timeout=60, check=False)


class Reply(NamedTuple):
    """What the endpoint answers."""

    body: bytes
    status: int = 200
    content_type: str = "text/event-stream"


def says(text: str) -> Reply:
    """A streamed reply that is all text."""
    return _stream({"content": text}, "stop")


def calls(name: str, text: str = "", **arguments: Any) -> Reply:
    """A streamed reply that asks for one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    delta = {"content": text, "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}
    return _stream(delta, "tool_calls")


def _stream(delta: dict[str, Any], finish: str) -> Reply:
    chunks = [{"choices": [{"index": 0, "delta": delta}]}, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]
    return Reply("".join(f"data: {data}\n\n" for data in [*map(json.dumps, chunks), "[DONE]"]).encode())


class Endpoint(NamedTuple):
    """A running endpoint: where it is and what it received."""

    url: str
    requests: list[dict[str, Any]]
    authorizations: list[str | None]


@contextmanager
def endpoint(*replies: Reply | Callable[[BaseHTTPRequestHandler], None]) -> Iterator[Endpoint]:
    """Answers with one reply after the other, the last one again and again. A function answers by itself."""
    waiting = list(replies)
    received = Endpoint("", [], [])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            received.authorizations.append(self.headers["Authorization"])
            reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if not isinstance(reply, Reply):
                reply(self)
                return
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield received._replace(url=f"http://127.0.0.1:{server.server_port}/v1")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
