"""A slow line to a server: what the server says arrives once the event loop of the test has turned."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlsplit

TURNS = 3
"""How often the event loop must turn before the next piece comes through."""

PATIENCE = 10.0
"""Seconds after which a loop that does not turn is taken for one that waits for this very piece."""


class Relay:
    """Passes bytes on between a port of its own and the server's. `blocked` is 1 if the event loop waited for a piece."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._turned = threading.Condition()
        self._turns = 0
        self.pieces = self.blocked = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._begin(self._accept)

    def _begin(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self._sockets.append(here)
                there = socket.create_connection(self._server)
                self._sockets.append(there)
                self._begin(self._pass, here, there, False)
                self._begin(self._pass, there, here, True)

    def _pass(self, source: socket.socket, target: socket.socket, slowly: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if slowly:
                    self._wait_for_the_loop()
                target.sendall(piece)
        for side in (source, target):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def _wait_for_the_loop(self) -> None:
        with self._turned:
            self.pieces += 1
            until = self._turns + TURNS
            if not self.blocked:  # the test has failed then, and need not be slow about it
                self.blocked += not self._turned.wait_for(lambda: self._closed or self._turns >= until, PATIENCE)

    async def turn(self) -> None:
        """Count the turns of the event loop, for ever."""
        while True:
            with self._turned:
                self._turns += 1
                self._turned.notify_all()
            await asyncio.sleep(0)

    def close(self) -> None:
        """End every thread, then close what they have opened."""
        with self._turned:
            self._closed = True
            self._turned.notify_all()
        self._end_sockets()  # which wakes the thread that accepts: after it there are no more of either
        self._threads[0].join()
        self._end_sockets()
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def _end_sockets(self) -> None:
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _open(url: str) -> Iterator[Relay]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    relay = Relay(parts.hostname, parts.port)
    try:
        yield relay
    finally:
        relay.close()


@contextlib.asynccontextmanager
async def slow_line(url: str) -> AsyncIterator[tuple[str, Relay]]:
    """The address of a slow line to the database `url`, and the line."""
    with _open(url) as relay:
        turning = asyncio.create_task(relay.turn())
        try:
            yield url.replace(f":{urlsplit(url).port}/", f":{relay.port}/"), relay
        finally:
            turning.cancel()
