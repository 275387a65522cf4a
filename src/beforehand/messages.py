"""What a conversation is made of: frozen parts, messages and requests, and the append-only history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Literal, TypeAlias, overload

import msgspec

from .frozen import EMPTY_DICT, Frozen, FrozenDict, freeze

Origin = Literal["prompt", "model", "tool", "steer", "follow_up", "hook"]
Role = Literal["system", "user", "assistant", "tool", "custom"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
MessageStop = Literal["stop", "tool_calls", "length", "refusal", "error", "aborted"]
THINKING_LEVELS: tuple[str, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")

_decode_json = msgspec.json.Decoder().decode


# --- parts ---------------------------------------------------------------------------------------


class Text(Frozen, tag_field="type", tag="text", gc=False):
    """A piece of visible text."""

    text: str


class Thinking(Frozen, tag_field="type", tag="thinking", gc=False):
    """A piece of the model's reasoning. `signature` is the provider's proof of it, kept for resending."""

    text: str
    signature: str | None = None


class Image(Frozen, tag_field="type", tag="image", gc=False):
    """An image: `data` is base64, or `url` points to it."""

    data: str | None = None
    url: str | None = None
    media_type: str = "image/png"


class ToolCall(Frozen, tag_field="type", tag="tool_call", gc=False):
    """A call the model asked for. `arguments` is the JSON text as it came; `args` is its frozen decoding."""

    id: str
    name: str
    arguments: str = "{}"

    @property
    def args(self) -> FrozenDict:
        """The decoded arguments: empty when `arguments` is not a JSON object."""
        try:
            value = _decode_json(self.arguments)
        except msgspec.DecodeError:
            return EMPTY_DICT
        return freeze(value) if isinstance(value, dict) else EMPTY_DICT


Part: TypeAlias = Text | Thinking | ToolCall | Image
Content: TypeAlias = str | tuple[Text | Image, ...]


def text_of(content: str | Sequence[Any]) -> str:
    """The visible text of a message's content, parts joined without a separator."""
    if isinstance(content, str):
        return content
    return "".join([p.text for p in content if type(p) is Text])


# --- usage ---------------------------------------------------------------------------------------


class Usage(Frozen, gc=False):
    """Tokens of one reply, or a sum of several."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


NO_USAGE = Usage()


class Price(Frozen, gc=False):
    """What a model costs, in your currency per million tokens. Cached tokens cost as input unless given."""

    input: float
    output: float
    cache_read: float | None = None

    def of(self, usage: Usage) -> float:
        """The cost of `usage`."""
        cached = usage.cache_read_tokens
        cache_price = self.input if self.cache_read is None else self.cache_read
        return ((usage.input_tokens - cached) * self.input + cached * cache_price + usage.output_tokens * self.output) / 1e6


# --- messages ------------------------------------------------------------------------------------


class SystemMessage(Frozen, tag_field="role", tag="system", gc=False):
    """A system message inside the history. The agent's own instructions travel as `Request.system`."""

    content: str
    origin: Origin = "prompt"
    role: ClassVar[Role] = "system"

    @property
    def text(self) -> str:
        return self.content


class UserMessage(Frozen, tag_field="role", tag="user", gc=False):
    """What a person (or a hook, in a person's name) says."""

    content: Content
    origin: Origin = "prompt"
    role: ClassVar[Role] = "user"

    @property
    def text(self) -> str:
        return text_of(self.content)


class AssistantMessage(Frozen, tag_field="role", tag="assistant", gc=False):
    """One reply of the model.

    `stop_reason` "error" marks a failed or blocked request (`error` says why) and "aborted" a reply cut by an abort
    or an interrupt; the content is what had been released by then. Such a record without content is never sent.
    """

    content: tuple[Part, ...] = ()
    stop_reason: MessageStop = "stop"
    usage: Usage = NO_USAGE
    model: str = ""
    provider: str = ""
    id: str = ""
    thinking_level: ThinkingLevel = "off"
    error: str | None = None
    origin: Origin = "model"
    role: ClassVar[Role] = "assistant"

    @property
    def text(self) -> str:
        return "".join([p.text for p in self.content if type(p) is Text])

    @property
    def thinking(self) -> str:
        return "".join([p.text for p in self.content if type(p) is Thinking])

    @property
    def tool_calls(self) -> list[ToolCall]:
        return [p for p in self.content if type(p) is ToolCall]


class ToolMessage(Frozen, tag_field="role", tag="tool", gc=False):
    """The one result of one call, as the model reads it. `details` is for people and programs, never sent."""

    tool_call_id: str
    tool_name: str
    content: Content
    is_error: bool = False
    details: Any = None
    usage: Usage | None = None
    origin: Origin = "tool"
    role: ClassVar[Role] = "tool"

    @property
    def text(self) -> str:
        return text_of(self.content)


class CustomMessage(Frozen, tag_field="role", tag="custom", gc=False):
    """An application's own record in the history. Dropped before a request unless a hook at 5 converts it."""

    kind: str
    content: Content = ""
    details: Any = None
    origin: Origin = "prompt"
    role: ClassVar[Role] = "custom"

    @property
    def text(self) -> str:
        return text_of(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage | CustomMessage
MESSAGE_TYPES: tuple[type, ...] = (SystemMessage, UserMessage, AssistantMessage, ToolMessage, CustomMessage)


def is_sendable(message: Message) -> bool:
    """False for what default conversion drops: custom messages, and failed or aborted replies without content."""
    if type(message) is AssistantMessage:
        return bool(message.content) or message.stop_reason not in ("error", "aborted")
    return type(message) is not CustomMessage


def sealed(message: Message) -> Message:
    """The message with nothing in it that could still be changed. Asked of every message that comes from outside.

    Raises `ValueError`, completing "the message ...", for content that its role cannot hold.
    """
    content = message.content
    kind = type(message)
    if type(content) is not str:
        if not isinstance(content, list | tuple) or kind is SystemMessage:
            raise ValueError(f"has a {type(content).__name__} as content")
        allowed = (Text, Thinking, ToolCall, Image) if kind is AssistantMessage else (Text, Image)
        for part in content:
            if not isinstance(part, allowed):
                raise ValueError(f"has a {type(part).__name__} in its content, which a {message.role} message cannot hold")
        if type(content) is not tuple:
            message = msgspec.structs.replace(message, content=tuple(content))
    elif kind is AssistantMessage:
        message = msgspec.structs.replace(message, content=(Text(content),) if content else ())
    if (kind is ToolMessage or kind is CustomMessage) and message.details is not None:  # type: ignore[union-attr]
        message = msgspec.structs.replace(message, details=freeze(message.details))  # type: ignore[union-attr]
    return message


# --- requests ------------------------------------------------------------------------------------


class ToolSpec(Frozen, gc=False):
    """A tool as the model is told about it. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: FrozenDict


class Options(Frozen, gc=False):
    """How the model should answer. `None` leaves the provider's default.

    `provider_params` go into the request body last, for what has no name here; they can never replace messages,
    tools, stream or authentication.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    thinking_level: ThinkingLevel = "off"
    tool_choice: str | None = None
    stop: tuple[str, ...] = ()
    provider_params: FrozenDict = EMPTY_DICT


    def sealed(self) -> Options:
        """The same, with nothing in it that could still be changed."""
        return msgspec.structs.replace(self, stop=tuple(self.stop), provider_params=freeze(self.provider_params))


class Request(Frozen, gc=False):
    """Exactly what a model is asked."""

    system: str
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    options: Options = Options()

    def sealed(self) -> Request:
        """The same, with nothing in it that could still be changed. Raises `ValueError` as `sealed` does."""
        messages = self.messages if isinstance(self.messages, HistoryView) else tuple([sealed(m) for m in self.messages])
        tools = tuple([msgspec.structs.replace(tool, parameters=freeze(tool.parameters)) for tool in self.tools])
        return Request(self.system, messages, tools, self.options.sealed())


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


# --- history -------------------------------------------------------------------------------------


class HistoryView(Sequence[Message]):
    """A history as it was at one moment: an O(1) view that never changes."""

    __slots__ = ("_history", "_length", "all_sendable")

    def __init__(self, history: History, length: int) -> None:
        self._history = history
        self._length = length
        self.all_sendable = history.unsendable == 0

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
    (`unsendable`), calls still without a result (`open_calls`), results of calls nobody made (`orphans`), and the call ids in use.
    """

    __slots__ = ("_encoded", "_items", "_sizes", "call_ids", "open_calls", "orphans", "unsendable")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._items: list[Message] = []
        self._encoded: dict[Callable[[Message], bytes], list[bytes]] = {}
        self._sizes: list[int] = [0]
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
            for part in message.content:  # type: ignore[union-attr]
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
