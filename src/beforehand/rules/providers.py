"""Recorded streams of the providers whose shape is unmistakable, read as the pieces a reply came in.

Only what a model says counts: its text, its reasoning, the arguments of the calls it asks for. What a provider's own tools did
on the way (searches, code that it ran) is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from beforehand.errors import ConfigError
from beforehand.models.base import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from beforehand.models.http import Secrets
from beforehand.models.openai_errors import Place
from beforehand.models.openai_reply import StreamReader
from beforehand.models.sse import EventDecoder

Delta = tuple[str, str, str | None]
"""A piece of a reply: its kind (text, thinking, tool_call), the text, the id of the call."""

FORMATS = "OpenAI (chat completions or responses), Anthropic (messages) or Google (generateContent)"


class Recorded(msgspec.Struct):
    """One reply: its pieces in order, and the name of each call by id."""

    deltas: list[Delta] = []
    names: dict[str, str] = {}
    complete: bool = False

    def call(self, call_id: Any, name: Any) -> str:
        known = str(call_id or f"call_{len(self.names) + 1}")
        self.names[known] = self.names.get(known) or str(name or "")
        return known

    def add(self, kind: str, text: Any, call_id: str | None = None) -> None:
        if isinstance(text, str) and text:
            self.deltas.append((kind, text, call_id))


def read_stream(path: Path, data: bytes) -> Recorded:
    """The one reply of a `.sse` file. Raises `ConfigError` for what is no such stream, or not all of one."""
    events = list(_events(path, data))
    reader = next((reader for event in events if (reader := _reader_for(event)) is not None), None)
    if reader is None:
        raise ConfigError(f"{path}: expected a recorded stream of {FORMATS}, and this is none of them")
    if reader is _openai_chat:
        return _openai_chat(path, data)
    found = Recorded()
    for event in events:
        failed = _failure(event)
        if failed is not None:
            raise ConfigError(f"{path}: the recorded stream fails: {failed}")
        reader(event, found)
    if not found.complete:
        raise ConfigError(f"{path}: the recorded stream stops before its end: record a whole reply")
    return found


def _events(path: Path, data: bytes) -> Iterator[dict[str, Any]]:
    decoder = EventDecoder()
    for number, (_, text) in enumerate([*decoder.feed(data), *decoder.close()], 1):
        if text.strip() == b"[DONE]":
            continue
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"{path}: the data of event {number} is not JSON: {error}") from None
        if isinstance(value, dict):
            yield value


def _reader_for(event: dict[str, Any]) -> Callable[..., Any] | None:
    kind = event.get("type")
    if isinstance(event.get("choices"), list):
        return _openai_chat
    if isinstance(event.get("candidates"), list):
        return _google
    if isinstance(kind, str) and kind.startswith("response."):
        return _openai_responses
    return _anthropic if kind == "message_start" else None


def _failure(event: dict[str, Any]) -> str | None:
    error = event.get("error")
    if event.get("type") == "response.failed":
        error = _table(event, "response").get("error") or {}
    if event.get("type") != "error" and not isinstance(error, dict):
        return None
    said = error if isinstance(error, dict) else event
    return str(said.get("message") or said.get("type") or "it does not say why")


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def _openai_chat(path: Path, data: bytes) -> Recorded:
    """Read by the reader that real replies pass through."""
    reader = StreamReader(Place(str(path), "recorded", Secrets(())), 200)
    events: list[ModelEvent] = []
    for start in range(0, len(data), 4096):
        if not reader.done:
            events += reader.feed(data[start : start + 4096])
    if not reader.done:
        events += reader.close()
    if reader.failure is not None:
        raise ConfigError(f"{path}: this is no complete OpenAI-compatible stream: {reader.failure.error}")
    found = Recorded(complete=True)
    ids: dict[int, str] = {}
    for event in events:
        if isinstance(event, TextDelta):
            found.add("text", event.text)
        elif isinstance(event, ThinkingDelta):
            found.add("thinking", event.text)
        elif isinstance(event, ToolCallDelta):
            call_id = ids.setdefault(event.index, event.id or f"call_{event.index + 1}")
            found.call(call_id, event.name)
            found.add("tool_call", event.arguments, call_id)
    return found


def _openai_responses(event: dict[str, Any], found: Recorded) -> None:
    kind, item = event.get("type"), _table(event, "item")
    if kind == "response.output_item.added" and item.get("type") == "function_call":
        found.call(item.get("id"), item.get("name"))
    elif kind == "response.output_text.delta" or kind == "response.refusal.delta":
        found.add("text", event.get("delta"))
    elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        found.add("thinking", event.get("delta"))
    elif kind == "response.function_call_arguments.delta":
        found.add("tool_call", event.get("delta"), found.call(event.get("item_id"), None))
    elif kind in ("response.completed", "response.incomplete"):
        found.complete = True


def _anthropic(event: dict[str, Any], found: Recorded) -> None:
    kind, block, delta = event.get("type"), _table(event, "content_block"), _table(event, "delta")
    call = f"block_{event.get('index')}"
    if kind == "content_block_start" and block.get("type") == "tool_use":
        found.call(call, block.get("name"))
    elif kind == "content_block_start":
        found.add("text", block.get("text"))
    elif kind == "content_block_delta":
        found.add("text", delta.get("text"))
        found.add("thinking", delta.get("thinking"))
        if call in found.names:
            found.add("tool_call", delta.get("partial_json"), call)
    elif kind == "message_stop":
        found.complete = True


def _google(event: dict[str, Any], found: Recorded) -> None:
    for candidate in event.get("candidates") or ():
        if not isinstance(candidate, dict):
            continue
        parts = _table(candidate, "content").get("parts")
        for part in parts if isinstance(parts, list) else ():
            call = _table(part, "functionCall") if isinstance(part, dict) else {}
            if call:
                call_id = found.call(call.get("id"), call.get("name"))
                found.add("tool_call", msgspec.json.encode(call.get("args") or {}).decode(), call_id)
            elif isinstance(part, dict):
                found.add("thinking" if part.get("thought") is True else "text", part.get("text"))
        found.complete = found.complete or bool(candidate.get("finishReason"))
