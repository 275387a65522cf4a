"""The append-only history, and views of it that cost nothing to make."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NoReturn, overload

from .errors import FrozenError
from .frozen import canonical
from .messages import AssistantMessage, CustomMessage, Message, Text, Thinking, ToolCall, ToolMessage, is_sendable


def size_of(message: Message) -> int:
    """Characters of a message that a model would be sent; an image, a sound or a film counts as 4,000."""
    total = 16
    content = message.content
    if isinstance(content, str):
        return total + len(content)
    for part in content:
        kind = type(part)
        if kind is Text:
            total += len(part.text)  # type: ignore[union-attr]
        elif kind is ToolCall:
            total += len(part.arguments) + len(part.name)  # type: ignore[union-attr]
        elif kind is Thinking:
            total += len(part.text) + len(part.signature or "")  # type: ignore[union-attr]
        else:
            total += 4000
    return total


def estimate_tokens(messages: Sequence[Message]) -> int:
    """About four characters a token."""
    if isinstance(messages, HistoryView):
        return messages.size() // 4
    return sum([size_of(m) for m in messages]) // 4


class HistoryView(Sequence[Message]):
    """A history as it was at one moment, or the end of one: an O(1) view that never changes."""

    __slots__ = ("_history", "_start", "_stop")
    _history: History
    _start: int
    _stop: int

    def __init__(self, history: History, stop: int, start: int = 0) -> None:
        _set_history(self, history)
        _set_stop(self, stop)
        _set_start(self, start)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenError(f"HistoryView.{name} is frozen: return a decision instead of editing in place")

    @property
    def all_sendable(self) -> bool:
        """Whether a model can be told every one of these messages. May be False without need for an older view."""
        return self._history.unsendable == 0

    @property
    def is_sound(self) -> bool:
        """Whether every call has its result right after it, and every message can be sent, as far as it has counted."""
        history = self._history
        return not (history.unsendable or history.open_calls or history.orphans or self._start)

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if not isinstance(index, slice):
            at = index + (self._start if index >= 0 else self._stop)
            if not self._start <= at < self._stop:
                raise IndexError("message index out of range")
            return self._history._items[at]
        items, start = self._history._items, self._start
        low, high, step = index.indices(self._stop - start)
        if step == 1:
            return tuple(items[start + low : start + high])
        return tuple([items[start + i] for i in range(low, high, step)])

    def __iter__(self) -> Iterator[Message]:
        return islice(iter(self._history._items), self._start, self._stop)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, HistoryView) and other._history is self._history:
            return (self._start, self._stop) == (other._start, other._stop) or (not self and not other)
        if isinstance(other, HistoryView | tuple | list):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"HistoryView({list(self)!r})"

    def encoded(self, codec: Callable[[Message], bytes]) -> list[bytes]:
        """Each message through `codec`, which runs once per message and codec for the life of the history."""
        done = self._history.encoded(codec, self._stop)
        return done[self._start :] if self._start else done

    def size(self) -> int:
        """Characters in all, each message measured once for the life of the history."""
        return self._history.size(self._stop) - (self._history.size(self._start) if self._start else 0)

    def digest(self) -> str:
        """SHA-256 over the messages, each taken in once for the life of the history."""
        return self._history.digest(self._stop) if not self._start else digest_messages(tuple(self))


_new = object.__new__
# The slots themselves, past `__setattr__`: a view is made for every request.
_set_history, _set_stop, _set_start = (vars(HistoryView)[name].__set__ for name in ("_history", "_stop", "_start"))


def digest_messages(messages: Sequence[Message]) -> str:
    """SHA-256, in hex, over messages: each one's canonical JSON, chained to the digest of those before it."""
    if isinstance(messages, HistoryView):
        return messages.digest()
    digest = b""
    for message in messages:
        digest = _chained(digest, message)
    return digest.hex()


def _chained(before: bytes, message: Message) -> bytes:
    return hashlib.sha256(before + canonical(message)).digest()


class History:
    """An append-only list of messages.

    It counts, while appending, what would otherwise have to be searched for: messages that default conversion drops
    (`unsendable`), calls still without a result (`open_calls`), results that stand at no call of theirs and calls whose id
    another call has had (`orphans`), and the call ids in use.
    """

    __slots__ = ("_digests", "_encoded", "_items", "_sizes", "_suffixes", "call_ids", "open_calls", "orphans", "unsendable")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._items: list[Message] = []
        self._encoded: dict[Callable[[Message], bytes], list[bytes]] = {}
        self._sizes: list[int] = [0]
        self._digests: list[bytes] = []
        self._suffixes: dict[str, int] = {}
        self.call_ids: set[str] = set()
        self.open_calls: dict[str, ToolCall] = {}
        self.unsendable = self.orphans = 0
        for message in messages:
            self.append(message)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Message:
        return self._items[index]

    def append(self, message: Message) -> None:
        kind = type(message)
        if kind is ToolMessage:
            if self.open_calls.pop(message.tool_call_id, None) is None:  # type: ignore[union-attr]
                self.orphans += 1
            self._items.append(message)
            return
        if self.open_calls:
            self.orphans += 1  # the results that are due here will come too late, if they come
        if kind is AssistantMessage:
            for part in message.content:
                if type(part) is ToolCall:
                    if part.id in self.call_ids:
                        self.orphans += 1
                    self.call_ids.add(part.id)
                    self.open_calls[part.id] = part
            if not message.content and not is_sendable(message):
                self.unsendable += 1
        elif kind is CustomMessage:
            self.unsendable += 1
        self._items.append(message)

    def next_suffix(self, call_id: str) -> int:
        """The next number to tell a repeated call id apart with. Never twice the same, so that nothing is searched for."""
        number = self._suffixes[call_id] = self._suffixes.get(call_id, 1) + 1
        return number

    def view(self, start: int = 0) -> HistoryView:
        """What it holds now, from `start` on."""
        view: HistoryView = _new(HistoryView)
        _set_history(view, self)
        _set_stop(view, len(self._items))
        _set_start(view, start)
        return view

    def encoded(self, codec: Callable[[Message], bytes], length: int) -> list[bytes]:
        done = self._encoded.get(codec)
        if done is None:
            done = self._encoded[codec] = []
        for message in self._items[len(done) : length]:
            done.append(codec(message))
        return done if len(done) == length else done[:length]

    def size(self, length: int) -> int:
        sizes = self._sizes
        for message in self._items[len(sizes) - 1 : length]:
            sizes.append(sizes[-1] + size_of(message))
        return sizes[length]

    def digest(self, length: int) -> str:
        digests = self._digests
        for message in self._items[len(digests) : length]:
            digests.append(_chained(digests[-1] if digests else b"", message))
        return digests[length - 1].hex() if length else ""
