"""Recorded conversations and streams, read back for `beforehand try`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from beforehand.errors import ConfigError
from beforehand.messages import AssistantMessage, Message, SystemMessage, Text, Thinking, ToolCall, ToolMessage, UserMessage
from beforehand.models.base import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from beforehand.models.http import Secrets
from beforehand.models.openai_errors import Place
from beforehand.models.openai_reply import StreamReader

Delta = tuple[str, str, str | None]
"""A piece of a reply: its kind (text, thinking, tool_call), the text, the id of the call."""


class Step(msgspec.Struct):
    """One message of a recording, as people find it (`line 3`), with the pieces a reply came in."""

    place: str
    message: Message
    deltas: Sequence[Delta] = ()


def read_recording(path: Path) -> list[Step]:
    """The messages of a `.jsonl` transcript, or the one reply of a `.sse` stream. Raises `ConfigError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: the recording cannot be read: {error.strerror or error}") from None
    if path.suffix == ".sse":
        return [_stream(path, data)]
    if path.suffix in (".jsonl", ".ndjson"):
        return _transcript(path, data)
    raise ConfigError(f"{path}: expected a transcript (.jsonl, one message a line) or a recorded stream (.sse)")


# --- transcripts ---------------------------------------------------------------------------------


def _transcript(path: Path, data: bytes) -> list[Step]:
    steps = []
    names: dict[str, str] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"{path}:{number}: this line is not JSON: {error}") from None
        if isinstance(value, dict) and "type" in value and "role" not in value:
            if value["type"] != "message_end":  # of the events that a run prints, these hold the finished messages
                continue
            value = value.get("message")
        message = _message(value, names)
        if message is None:
            raise ConfigError(f"{path}:{number}: expected a message with 'role' (system, user, assistant, tool) and 'content'")
        if isinstance(message, AssistantMessage):
            names.update({call.id: call.name for call in message.tool_calls})
        steps.append(Step(f"line {number}", message, _pieces(message)))
    return steps


def _message(value: Any, names: dict[str, str]) -> Message | None:
    """A message in our own form, or in that of a chat completion request."""
    if not isinstance(value, dict):
        return None
    role, content = value.get("role"), value.get("content")
    text = content if isinstance(content, str) else _text(content)
    if role in ("system", "developer"):
        return SystemMessage(text)
    if role == "user":
        return UserMessage(text)
    if role == "tool":
        call_id = str(value.get("tool_call_id", ""))
        name = value.get("tool_name") or value.get("name") or names.get(call_id, "")
        return ToolMessage(call_id, str(name), text, is_error=value.get("is_error") is True)
    if role != "assistant":
        return None
    parts: list[Any] = []
    thinking = value.get("reasoning_content") or _text(content, "thinking")
    if thinking:
        parts.append(Thinking(str(thinking)))
    if text:
        parts.append(Text(text))
    parts += _calls(value)
    return AssistantMessage(tuple(parts), "tool_calls" if any(isinstance(p, ToolCall) for p in parts) else "stop")


def _text(content: Any, kind: str = "text") -> str:
    if not isinstance(content, list):
        return ""
    return "".join([str(part.get("text", "")) for part in content if isinstance(part, dict) and part.get("type") == kind])


def _calls(value: dict[str, Any]) -> list[ToolCall]:
    calls: list[ToolCall] = []
    content = value.get("content")
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type") == "tool_call":
            calls.append(_call(part.get("id"), part.get("name"), part.get("arguments"), len(calls)))
    for call in value.get("tool_calls") or []:
        if isinstance(call, dict):
            function = call["function"] if isinstance(call.get("function"), dict) else call
            calls.append(_call(call.get("id"), function.get("name"), function.get("arguments"), len(calls)))
    return calls


def _call(call_id: Any, name: Any, arguments: Any, number: int) -> ToolCall:
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return ToolCall(str(call_id or f"call_{number + 1}"), str(name or ""), text)


def _pieces(message: Message) -> list[Delta]:
    """A reply of a transcript as a stream: nobody knows its chunks any more, so each part is one."""
    if not isinstance(message, AssistantMessage):
        return []
    found: list[Delta] = []
    for part in message.content:
        if isinstance(part, Text):
            found.append(("text", part.text, None))
        elif isinstance(part, Thinking):
            found.append(("thinking", part.text, None))
        elif isinstance(part, ToolCall):
            found.append(("tool_call", part.arguments, part.id))
    return found


# --- streams -------------------------------------------------------------------------------------


def _stream(path: Path, data: bytes) -> Step:
    reader = StreamReader(Place(str(path), "recorded", Secrets(())), 200)
    events: list[ModelEvent] = []
    for start in range(0, len(data), 4096):
        if not reader.done:
            events += reader.feed(data[start : start + 4096])
    if not reader.done:
        events += reader.close()
    if reader.failure is not None:
        raise ConfigError(f"{path}: this is no complete OpenAI-compatible stream: {reader.failure.error}")
    deltas: list[Delta] = []
    ids: dict[int, str] = {}
    names: dict[int, str] = {}
    for event in events:
        if isinstance(event, TextDelta):
            deltas.append(("text", event.text, None))
        elif isinstance(event, ThinkingDelta):
            deltas.append(("thinking", event.text, None))
        elif isinstance(event, ToolCallDelta):
            call_id = ids.setdefault(event.index, event.id or f"call_{event.index + 1}")
            names[event.index] = names.get(event.index) or event.name or ""
            if event.arguments:
                deltas.append(("tool_call", event.arguments, call_id))
    return Step(path.name, _assembled(deltas, ids, names), deltas)


def _assembled(deltas: Sequence[Delta], ids: dict[int, str], names: dict[int, str]) -> AssistantMessage:
    parts: list[Any] = []
    for kind, cls in (("thinking", Thinking), ("text", Text)):
        whole = "".join([text for of, text, _ in deltas if of == kind])
        if whole:
            parts.append(cls(whole))
    for index, call_id in ids.items():
        arguments = "".join([text for _, text, of in deltas if of == call_id])
        parts.append(ToolCall(call_id, names[index], arguments or "{}"))
    return AssistantMessage(tuple(parts), "tool_calls" if ids else "stop")
