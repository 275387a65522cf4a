"""What a refused request is tried again with: its messages without images, or with their tool calls told as text.

Neither changes the history: the run makes its requests from these messages, and the conversation keeps the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from .messages import AssistantMessage, Image, Message, Part, Text, ToolCall, ToolMessage

LEFT_OUT = "[an image was left out: the endpoint refused the request that held it]"


def has_image(message: Message) -> bool:
    return type(message.content) is tuple and any(type(part) is Image for part in message.content)


def has_call(message: Message) -> bool:
    """Whether this is one side of a tool call."""
    return type(message) is ToolMessage or (type(message) is AssistantMessage and bool(message.tool_calls))


def without_images(messages: Iterable[Message]) -> list[Message]:
    """The messages with a line of text for each image."""
    return [_blind(message) if has_image(message) else message for message in messages]


def _blind(message: Message) -> Message:
    parts = tuple([Text(LEFT_OUT) if type(part) is Image else part for part in message.content])
    return msgspec.structs.replace(message, content=parts)


def calls_as_text(messages: Sequence[Message]) -> list[Message]:
    """The messages with every call and its result told by the reply that made it, so that nothing is left to match.

    The results stay in the assistant's role: what a tool returned must not read as if a person had said it. Replies that
    come to stand next to each other become one, since some endpoints take no two in a row.
    """
    told: list[Message] = []
    for message in messages:
        if type(message) is ToolMessage:
            message = AssistantMessage(_result(message), origin="hook")
        elif type(message) is AssistantMessage and message.tool_calls:
            message = msgspec.structs.replace(message, content=_told(message), stop_reason="stop")
        before = told[-1] if told else None
        if type(message) is AssistantMessage and message.content and type(before) is AssistantMessage and before.content:
            told[-1] = msgspec.structs.replace(before, content=(*before.content, Text("\n"), *message.content))
        else:
            told.append(message)
    return told


def _told(message: AssistantMessage) -> tuple[Part, ...]:
    called = "[called {0.name} ({0.id}) with {0.arguments}]"
    return tuple([Text(called.format(part)) if type(part) is ToolCall else part for part in message.content])


def _result(message: ToolMessage) -> tuple[Part, ...]:
    head = f"[{message.tool_name} ({message.tool_call_id}) {'failed' if message.is_error else 'returned'}: "
    content = (Text(message.content),) if isinstance(message.content, str) else message.content
    return Text(head), *content, Text("]")
