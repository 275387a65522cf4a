"""Recorded conversations and streams, read back for `beforehand try`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from beforehand.errors import ConfigError
from beforehand.messages import AssistantMessage, Message, SystemMessage, Text, Thinking, ToolCall, ToolMessage, UserMessage

from .providers import Delta, read_stream


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
        try:
            messages = _messages(value, names)
        except _NotRead as error:
            raise ConfigError(f"{path}:{number}: {error}") from None
        for message in messages:
            if isinstance(message, AssistantMessage):
                names.update({call.id: call.name for call in message.tool_calls})
            steps.append(Step(f"line {number}", message, _pieces(message)))
    return steps


class _NotRead(ValueError):
    """A line is no message in a form that is read."""


def _messages(value: Any, names: dict[str, str]) -> list[Message]:
    """A message in our own form, or in that of a request to OpenAI (chat completions) or Anthropic, whose results are parts."""
    role, content = (value.get("role"), value.get("content")) if isinstance(value, dict) else (None, None)
    if role == "custom":  # never sent, and no rule is asked about it
        return []
    parts = _parts(content)
    text = "".join([str(part.get("text", "")) for part in parts if part.get("type") in _TEXTS])
    if role in ("system", "developer"):
        return [SystemMessage(text)]
    if role == "user":
        results = [part for part in parts if part.get("type") == "tool_result"]
        found: list[Message] = [_result(part, part.get("tool_use_id"), _text_of(part.get("content")), names) for part in results]
        return found + [UserMessage(text)] if text or not found else found
    if role == "tool":
        return [_result(value, value.get("tool_call_id"), text, names)]
    if role != "assistant":
        raise _NotRead("expected a message with 'role' (system, user, assistant, tool) and 'content'")
    made: list[Any] = []
    thinking = value.get("reasoning_content") or "".join(
        [str(part.get("thinking") or part.get("text") or "") for part in parts if part.get("type") == "thinking"]
    )
    if thinking:
        made.append(Thinking(str(thinking)))
    if text:
        made.append(Text(text))
    made += _calls(value, parts)
    return [AssistantMessage(tuple(made), "tool_calls" if any(isinstance(p, ToolCall) for p in made) else "stop")]


_TEXTS = ("text", "input_text", "output_text")
_READ = (*_TEXTS, "thinking", "redacted_thinking", "tool_call", "tool_use", "tool_result")
_PICTURES = ("image", "image_url", "input_image")
"""Rules look at text: a picture is passed over."""


def _parts(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, dict) else part
        if kind not in _READ and kind not in _PICTURES:
            known = ", ".join(_READ)
            raise _NotRead(f"a part of 'content' is {kind!r}, which is not read: expected a string, or parts of type {known}")
    return list(content)


def _text_of(content: Any) -> str:
    return "".join([str(part.get("text", "")) for part in _parts(content) if part.get("type") in _TEXTS])


def _result(value: dict[str, Any], call_id: Any, text: str, names: dict[str, str]) -> ToolMessage:
    name = value.get("tool_name") or value.get("name") or names.get(str(call_id or ""), "")
    return ToolMessage(str(call_id or ""), str(name), text, is_error=value.get("is_error") is True)


def _calls(value: dict[str, Any], parts: list[dict[str, Any]]) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for part in parts:
        if part.get("type") in ("tool_call", "tool_use"):
            calls.append(_call(part.get("id"), part.get("name"), part.get("arguments", part.get("input")), len(calls)))
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
    found = read_stream(path, data)
    parts: list[Any] = []
    for kind, cls in (("thinking", Thinking), ("text", Text)):
        whole = "".join([text for of, text, _ in found.deltas if of == kind])
        if whole:
            parts.append(cls(whole))
    for call_id, name in found.names.items():
        arguments = "".join([text for _, text, of in found.deltas if of == call_id])
        parts.append(ToolCall(call_id, name, arguments or "{}"))
    return Step(path.name, AssistantMessage(tuple(parts), "tool_calls" if found.names else "stop"), found.deltas)
