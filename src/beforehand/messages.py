"""What a conversation is made of: frozen parts, messages and requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

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


class Audio(Frozen, tag_field="type", tag="audio", gc=False):
    """A sound in a message of the user: `data` is base64, `format` such as "wav" or "mp3"."""

    data: str
    format: str = "wav"


class Video(Frozen, tag_field="type", tag="video", gc=False):
    """A film in a message of the user: `url` points to it, or holds it as a `data:` URL."""

    url: str


class ToolCall(Frozen, tag_field="type", tag="tool_call", gc=False):
    """A call the model asked for. `arguments` is the JSON text as it came; `args` is its frozen decoding."""

    id: str
    name: str
    arguments: str = "{}"

    @property
    def args(self) -> FrozenDict:
        """The decoded arguments: empty when `arguments` is not a JSON object, or one that is nested too deeply to be read."""
        try:
            value = _decode_json(self.arguments)
            return freeze(value) if isinstance(value, dict) else EMPTY_DICT
        except (msgspec.DecodeError, RecursionError):
            return EMPTY_DICT


Part: TypeAlias = Text | Thinking | ToolCall | Image
Content: TypeAlias = str | tuple[Text | Image, ...]
UserContent: TypeAlias = str | tuple[Text | Image | Audio | Video, ...]


def clean(text: str) -> str:
    """Text that UTF-8 can express: lone surrogates, which no request could carry, become escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def clean_all(value: Any) -> Any:
    """Plain data with every text in it as `clean` has it, keys included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean_all(key): clean_all(item) for key, item in value.items()}
    return [clean_all(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else value


def storable(value: Any) -> Any:
    """A text, or what is none, as a journal can hold it: one that comes from a file's name may have half characters in it."""
    return clean(value) if isinstance(value, str) else value


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

    content: UserContent
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
    """The one result of one call, as the model reads it.

    `details` and `outcome` (what became of the call, as in `tool_execution_end`) are for people and programs, never sent.
    """

    tool_call_id: str
    tool_name: str
    content: Content
    is_error: bool = False
    details: Any = None
    usage: Usage | None = None
    origin: Origin = "tool"
    outcome: str | None = None
    role: ClassVar[Role] = "tool"

    @property
    def text(self) -> str:
        return text_of(self.content)


class CustomMessage(Frozen, tag_field="role", tag="custom", gc=False):
    """An application's own record in the history. Dropped before a request unless a hook at 5 converts it."""

    kind: str
    content: UserContent = ""
    details: Any = None
    origin: Origin = "prompt"
    role: ClassVar[Role] = "custom"

    @property
    def text(self) -> str:
        return text_of(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage | CustomMessage
MESSAGE_TYPES: tuple[type, ...] = (SystemMessage, UserMessage, AssistantMessage, ToolMessage, CustomMessage)


LOST = "[A message that is not on record: the process ended before the hooks had let it pass.]"
"""Stands for a queued message in a run that goes on, where hooks were still to judge it."""


def is_sendable(message: Message) -> bool:
    """False for what default conversion drops: custom messages, and failed or aborted replies without content."""
    if type(message) is AssistantMessage:
        return bool(message.content) or message.stop_reason not in ("error", "aborted")
    return type(message) is not CustomMessage


_TEXTS: dict[type, tuple[str, ...]] = {ToolCall: ("id", "name", "arguments"), Audio: ("data", "format"), Video: ("url",)}
"""Fields that must be text, or the part cannot be sent."""


def _part_problem(part: Part | Audio | Video) -> str | None:
    """What keeps a part from being sent."""
    if type(part) is Image:
        given = [value for value in (part.data, part.url) if value is not None]
        if len(given) != 1 or not isinstance(given[0], str):
            return "has an Image that needs either data (base64 text) or url (text)"
    for field in _TEXTS.get(type(part), ()):
        value = getattr(part, field)
        if not isinstance(value, str):
            return f"has a {type(part).__name__} whose {field} is a {type(value).__name__}, not text"
    if type(part) is ToolCall and not part.id:
        return "has a ToolCall without an id, which no result could name"
    return None


def sealed(message: Message) -> Message:
    """The message with nothing in it that could still be changed. Asked of every message that comes from outside.

    Raises `ValueError`, completing "the message ...", for content that its role cannot hold.
    """
    content = message.content
    kind = type(message)
    if type(content) is str:
        if not content.isascii():
            message = msgspec.structs.replace(message, content=clean(content))
    else:
        if not isinstance(content, list | tuple) or kind is SystemMessage:
            raise ValueError(f"has a {type(content).__name__} as content")
        allowed: tuple[type, ...] = (Text, Thinking, ToolCall, Image) if kind is AssistantMessage else (Text, Image)
        if kind is UserMessage or kind is CustomMessage:
            allowed = (*allowed, Audio, Video)
        for part in content:
            if not isinstance(part, allowed):
                raise ValueError(f"has a {type(part).__name__} in its content, which a {message.role} message cannot hold")
            if (why := _part_problem(part)) is not None:
                raise ValueError(why)
            if isinstance(part, Text | Thinking) and not isinstance(part.text, str):
                raise ValueError(f"has a {type(part).__name__} part whose text is a {type(part.text).__name__}")
        if type(content) is not tuple or any([isinstance(p, Text | Thinking) and not p.text.isascii() for p in content]):
            parts = [msgspec.structs.replace(p, text=clean(p.text)) if isinstance(p, Text | Thinking) else p for p in content]
            message = msgspec.structs.replace(message, content=tuple(parts))
    if kind is AssistantMessage and type(content) is str:
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
