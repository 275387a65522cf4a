"""Messages in the JSON that the semantic conventions prescribe for captured content."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ..messages import (
    AssistantMessage, Audio, Content, Message, Request, Text, Thinking, ToolCall, ToolMessage, Video, clean, text_of,
)  # fmt: skip

_FINISH = {"tool_calls": "tool_call", "refusal": "content_filter", "aborted": "error"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


def as_json(value: Any) -> str:
    """JSON text. What JSON does not know goes in as its text."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:  # half a character is an escape
        return json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=str))
    except Exception:  # a key that is no string: content is a courtesy, and never an error
        return _encode(clean(repr(value))).decode()


def request_content(request: Request) -> dict[str, str]:
    """Instructions, messages and tools of a request, as it leaves."""
    found = {"gen_ai.input.messages": as_json([_message(message) for message in request.messages])}
    if request.system:
        found["gen_ai.system_instructions"] = as_json([{"type": "text", "content": clean(request.system)}])
    if request.tools:
        found["gen_ai.tool.definitions"] = as_json([
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in request.tools
        ])  # fmt: skip
    return found


def reply_content(message: AssistantMessage) -> dict[str, str]:
    """A reply, as the hooks let it pass."""
    reason = _FINISH.get(message.stop_reason, message.stop_reason)
    return {"gen_ai.output.messages": as_json([{**_message(message), "finish_reason": reason}])}


def result_content(content: Content) -> dict[str, str]:
    """A result, as whoever asked for it reads it."""
    return {"gen_ai.tool.call.result": as_json(_content(content))}


def _message(message: Message) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        return {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": message.tool_call_id, "response": _content(message.content)}],
        }
    content = getattr(message, "content", "")
    parts = [{"type": "text", "content": clean(content)}] if isinstance(content, str) else [_part(part) for part in content]
    return {"role": message.role, "parts": parts}


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return clean(content)
    return clean(text_of(content)) if all(isinstance(part, Text) for part in content) else [_part(part) for part in content]


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "content": clean(part.text)}
    if isinstance(part, Thinking):
        return {"type": "reasoning", "content": clean(part.text)}
    if isinstance(part, ToolCall):
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.args}
    if isinstance(part, Audio):
        return _blob("audio", f"audio/{part.format}", part.data)
    modality = "video" if isinstance(part, Video) else "image"
    if part.url is None:
        return _blob(modality, part.media_type, part.data or "")
    kind, comma, data = part.url.partition(";base64,")
    if comma and kind.startswith("data:"):
        return _blob(modality, kind.removeprefix("data:"), data)
    return {"type": "uri", "modality": modality, "uri": clean(part.url)}


def _blob(modality: str, mime_type: str, data: str) -> dict[str, Any]:
    return {"type": "blob", "modality": modality, "mime_type": clean(mime_type), "content": data}
