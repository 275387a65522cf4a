"""A line to a server that can be cut, all at once or as soon as a new connection is used for the first time, and held up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

QUERIES = b"QP"
"""What a client's message begins with that is more than making itself known."""


class Line:
    """Passes bytes on between a port of its own and the server's, until it is `cut`."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._opened: list[socket.socket] = [self._listener]
        self._guard = threading.Lock()
        self.doomed = 0
        """So many new connections are cut when they are first used."""
        self.last_word: bytes | None = None
        """Cut, once, instead of passing on what the server says with these bytes in it."""
        self.held_at: bytes | None = None
        """Held up, once, from when the server says something with these bytes in it until it `goes_on`: as if we were stopped."""
        self.silent = False
        """Whether everything is held up that the server says, as if it were stopped."""
        self.is_held, self.goes_on = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self, doomed: int = 0) -> None:
        """Cut every connection, and the next `doomed` ones when they are first used."""
        with self._guard:
            self.doomed = doomed
            cut, self._sockets = self._sockets, []
        for one in cut:
            _end(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._server)
                with self._guard:
                    self._sockets += [here, there]
                    self._opened += [here, there]
                for source, target, asks in ((here, there, True), (there, here, False)):
                    thread = threading.Thread(target=self._pass, args=(source, target, asks), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pass(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        unused = asks
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if unused and piece[:1] in QUERIES and self._is_doomed():
                    break
                if not asks and self.last_word is not None and self.last_word in piece:
                    self.last_word = None
                    break
                if not asks and (self.silent or (self.held_at is not None and self.held_at in piece)):
                    self.held_at = None
                    self.is_held.set()
                    self.goes_on.wait()
                unused = unused and piece[:1] not in QUERIES
                target.sendall(piece)
        _end(source)
        _end(target)

    def _is_doomed(self) -> bool:
        with self._guard:
            doomed = self.doomed > 0
            self.doomed -= doomed
            return doomed

    def close(self) -> None:
        self.goes_on.set()
        _end(self._listener)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for one in self._opened:
            one.close()


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def line_to(url: str) -> Iterator[tuple[str, Line]]:
    """The address of a line to the database `url`, and the line."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    line = Line(parts.hostname, parts.port)
    try:
        yield url.replace(f":{parts.port}/", f":{line.port}/"), line
    finally:
        line.close()
