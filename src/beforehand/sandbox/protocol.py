"""How the host and a worker that shares its standard output with a lambda tell their messages from the lambda's text.

To the worker: four bytes with the length, then JSON. Nobody else writes there.

From the worker: the token of this call (32 hex digits, made by the host for one call and kept by the worker where the
lambda cannot reach it), one letter for the kind, eight hex digits with the length, then the payload. Whatever stands
between such frames is text the lambda wrote straight to its standard output; without the token it can never begin one.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import msgspec

RESULT, ERROR, CALL, LOG = b"R", b"E", b"C", b"L"
KINDS = RESULT + ERROR + CALL + LOG
TOKEN_LENGTH = 32
_HEADER = 1 + 8


class Frame(NamedTuple):
    """One message of a worker. `payload` is JSON text, or plain text for a log."""

    kind: bytes
    payload: bytes


class FrameTooLarge(Exception):
    """A frame announced more than is allowed. `kind` and `size` say what and how much."""

    def __init__(self, kind: bytes, size: int) -> None:
        super().__init__(f"a frame of {size} bytes")
        self.kind, self.size = kind, size


class BadFrame(Exception):
    """A frame with the right token that is none."""


def new_token() -> str:
    return secrets.token_hex(TOKEN_LENGTH // 2)


def to_worker(message: object) -> bytes:
    """A message for the worker, framed."""
    body = msgspec.json.encode(message)
    return len(body).to_bytes(4, "big") + body


class Decoder:
    """Takes a worker's output apart as it comes: `bytes` are stray text, `Frame`s are messages.

    At most one frame of `most` bytes is kept back; stray text is passed on at once.
    """

    def __init__(self, token: str, most: int) -> None:
        self._token = token.encode()
        self._most = most
        self._buffer = bytearray()
        self._wanted = 0

    def feed(self, data: bytes) -> list[bytes | Frame]:
        """What these bytes complete. Raises `FrameTooLarge` or `BadFrame`, after which the stream means nothing."""
        buffer = self._buffer
        buffer += data
        found: list[bytes | Frame] = []
        if len(buffer) < self._wanted:
            return found  # the rest of a long frame, which need not be looked for again
        while True:
            self._wanted = 0
            at = buffer.find(self._token)
            if at < 0:
                stray = max(len(buffer) - len(self._token) + 1, 0)
                if stray:
                    found.append(bytes(buffer[:stray]))
                    del buffer[:stray]
                return found
            if at:
                found.append(bytes(buffer[:at]))
                del buffer[:at]
            frame = self._frame()
            if frame is None:
                return found
            found.append(frame)

    def rest(self) -> bytes:
        """What is left at the end: stray text, or a piece of a frame."""
        left, self._buffer = bytes(self._buffer), bytearray()
        return b"" if left.startswith(self._token) else left

    def _frame(self) -> Frame | None:
        """The frame at the start of the buffer, once it is complete."""
        buffer, start = self._buffer, len(self._token)
        body = start + _HEADER
        if len(buffer) < body:
            return None
        kind, digits = bytes(buffer[start : start + 1]), bytes(buffer[start + 1 : body])
        if kind not in KINDS or digits.strip(b"0123456789abcdef"):
            raise BadFrame(f"kind {kind!r}, length {digits!r}")
        size = int(digits, 16)
        if size > self._most:
            raise FrameTooLarge(kind, size)
        if len(buffer) < body + size:
            self._wanted = body + size
            return None
        payload = bytes(buffer[body : body + size])
        del buffer[: body + size]
        return Frame(kind, payload)
