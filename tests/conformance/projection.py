"""Our messages, results and requests in the form of the recordings. What may be projected is in `pi/README.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from beforehand import AssistantMessage, CustomMessage, Message, Request, ToolMessage, ToolResult
from beforehand.messages import ThinkingLevel

Entry = dict[str, Any]

STOPS = {"tool_calls": "toolUse"}


def stop_of(message: AssistantMessage) -> str:
    return STOPS.get(message.stop_reason, message.stop_reason)


def role_of(message: Message) -> str:
    """The role; an application's own kind of message counts as one."""
    if isinstance(message, CustomMessage):
        return message.kind
    return "toolResult" if isinstance(message, ToolMessage) else message.role


def roles(messages: Iterable[Message]) -> list[str]:
    """Roles as pi lists them: its system prompt is the first message."""
    return ["system", *[role_of(message) for message in messages]]


def label(message: Message | None) -> str | None:
    """The short form in which turns and runs list their messages."""
    if isinstance(message, AssistantMessage):
        return f"assistant:{stop_of(message)}"
    if isinstance(message, ToolMessage):
        return f"toolResult:{message.tool_call_id}" + (":error" if message.is_error else "")
    return None if message is None else role_of(message)


def labels(messages: Iterable[Message]) -> list[str | None]:
    return [label(message) for message in messages]


def whole(message: Message) -> Entry:
    """A message with all that is recorded of it."""
    entry: Entry = {"role": role_of(message), "text": message.text}
    if isinstance(message, AssistantMessage):
        entry |= {"stopReason": stop_of(message), "model": message.model}
        if message.thinking:
            entry["thinking"] = message.thinking
        if message.tool_calls:
            entry["tool_calls"] = [{"id": call.id, "name": call.name, "args": call.args} for call in message.tool_calls]
        if message.error is not None:
            entry["errorMessage"] = message.error
        if message.origin == "model":  # pi does not stamp the records that it makes itself
            entry["thinkingLevel"] = message.thinking_level
    elif isinstance(message, ToolMessage):
        entry |= {"toolCallId": message.tool_call_id, "toolName": message.tool_name, "isError": message.is_error}
        if message.details:
            entry["details"] = message.details
    return entry


def begun(message: Message) -> Entry:
    """A message at its `message_start`: a reply that streams has nothing yet, and no stop reason."""
    if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
        return {"role": "assistant", "text": message.text, "stopReason": "pending", "model": message.model}
    return whole(message)


def result(of: ToolResult | Any) -> Entry:
    """A tool's result. Whether it is an error stands beside it."""
    entry: Entry = {"text": of.text}
    if of.details:
        entry["details"] = of.details
    if getattr(of, "terminate", False):
        entry["terminate"] = True
    return entry


def leading(system: str, tools: Sequence[Any]) -> Entry:
    """System text and tool declarations as the system message that pi keeps them in."""
    entry: Entry = {"role": "system", "text": system}
    if tools:
        entry["toolsAdded"] = [tool.name for tool in tools]
    return entry


def reasoning(level: ThinkingLevel) -> str | None:
    return None if level == "off" else level


def request(number: int, model: Any, sent: Request, key: str | None) -> Entry:
    return {
        "call": number,
        "model": model.name,
        "provider": model.provider,
        "reasoning": reasoning(sent.options.thinking_level),
        "apiKey": key,
        "messages": [leading(sent.system, sent.tools), *map(whole, sent.messages)],
    }
