"""The append-only history, and views of it that cost nothing to make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import overload

from .messages import AssistantMessage, CustomMessage, Image, Message, ToolCall, ToolMessage, is_sendable


def size_of(message: Message) -> int:
    """Characters of a message that a model would read; an image counts as 4,000."""
    total = 16
    content = message.content
    if isinstance(content, str):
        return total + len(content)
    for part in content:
        if type(part) is ToolCall:
            total += len(part.arguments) + len(part.name)
        elif type(part) is Image:
            total += 4000
        else:
            total += len(part.text)  # type: ignore[union-attr]
    return total


def estimate_tokens(messages: Sequence[Message]) -> int:
    """About four characters a token."""
    if isinstance(messages, HistoryView):
        return messages.size() // 4
    return sum([size_of(m) for m in messages]) // 4


class HistoryView(Sequence[Message]):
    """A history as it was at one moment: an O(1) view that never changes."""

    __slots__ = ("_history", "_length")

    def __init__(self, history: History, length: int) -> None:
        self._history = history
        self._length = length

    @property
    def all_sendable(self) -> bool:
        """Whether a model can be told every one of these messages. May be False without need for an older view."""
        return self._history.unsendable == 0

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        items = self._history._items
        if isinstance(index, slice):
            return tuple([items[i] for i in range(*index.indices(self._length))])
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError("message index out of range")
        return items[index]

    def __iter__(self) -> Iterator[Message]:
        return islice(iter(self._history._items), self._length)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, HistoryView | tuple | list):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"HistoryView({list(self)!r})"

    def encoded(self, codec: Callable[[Message], bytes]) -> list[bytes]:
        """Each message through `codec`, which runs once per message and codec for the life of the history."""
        return self._history.encoded(codec, self._length)

    def size(self) -> int:
        """Characters in all, each message measured once for the life of the history."""
        return self._history.size(self._length)


class History:
    """An append-only list of messages.

    It counts, while appending, what would otherwise have to be searched for: messages that default conversion drops
    (`unsendable`), calls still without a result (`open_calls`), results of calls nobody made (`orphans`), and the call ids
    in use.
    """

    __slots__ = ("_encoded", "_items", "_sizes", "_suffixes", "call_ids", "open_calls", "orphans", "unsendable")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._items: list[Message] = []
        self._encoded: dict[Callable[[Message], bytes], list[bytes]] = {}
        self._sizes: list[int] = [0]
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
        if kind is AssistantMessage:
            for part in message.content:
                if type(part) is ToolCall:
                    self.call_ids.add(part.id)
                    self.open_calls[part.id] = part
            if not message.content and not is_sendable(message):
                self.unsendable += 1
        elif kind is ToolMessage:
            if self.open_calls.pop(message.tool_call_id, None) is None:  # type: ignore[union-attr]
                self.orphans += 1
        elif kind is CustomMessage:
            self.unsendable += 1
        self._items.append(message)

    def next_suffix(self, call_id: str) -> int:
        """The next number to tell a repeated call id apart with. Never twice the same, so that nothing is searched for."""
        number = self._suffixes[call_id] = self._suffixes.get(call_id, 1) + 1
        return number

    def view(self) -> HistoryView:
        return HistoryView(self, len(self._items))

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
