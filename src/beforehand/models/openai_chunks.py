"""The chunks of an OpenAI-compatible reply, decoded.

Structs name only what is used, so that the rest of a chunk is skipped without becoming objects. What does not fit them
is decoded once more, forgivingly, into the same structs: content in parts, arguments as objects, numbers as texts.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ..messages import Usage
from .openai_calls import WireCall, WireFunction
from .openai_wire import UNDECODABLE


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class WireUsage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None

    def usage(self) -> Usage:
        prompt = self.prompt_tokens_details or PromptDetails()
        completion = self.completion_tokens_details or CompletionDetails()
        return Usage(
            input_tokens=self.prompt_tokens or 0,
            output_tokens=self.completion_tokens or 0,
            cache_read_tokens=prompt.cached_tokens or self.prompt_cache_hit_tokens or 0,
            cache_write_tokens=prompt.cache_write_tokens or 0,
            reasoning_tokens=completion.reasoning_tokens or 0,
        )


class Delta(msgspec.Struct, gc=False):
    """A `delta`, or the `message` of a whole reply."""

    content: str | None = None
    tool_calls: list[WireCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    finish_reason: str | None = None
    message: Delta | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event of a stream, or a whole reply."""

    choices: list[Choice] | None = None
    usage: WireUsage | None = None
    error: Any = None


NOT_JSON: Any = object()
decode_chunk = msgspec.json.Decoder(Chunk).decode  # raises UNDECODABLE
_decode_any = msgspec.json.Decoder().decode


def loads(data: bytes) -> Any:
    """Decoded JSON, `NOT_JSON` if it is none. Takes what strict decoders refuse: lone surrogates, a byte order mark, NaN."""
    try:
        return _decode_any(data)
    except UNDECODABLE:
        pass
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UNDECODABLE:
        return NOT_JSON


def why_not_json(body: bytes, content_type: str = "", expected: str = "JSON") -> str:
    """What `body` is instead of JSON, for an error message."""
    if "html" in content_type.lower() or body.lstrip()[:1] == b"<":
        return f"a web page instead of {expected}"
    try:
        body.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":  # a sample may end inside a character
            return f"bytes that are not UTF-8 instead of {expected}"
    return f"something that is not {expected}"


def lenient_chunk(data: bytes) -> Chunk | None:
    """What can be made of a chunk whose types are not those of the protocol. `None` if it is not even JSON."""
    payload = loads(data)
    if payload is NOT_JSON:
        return None
    if not isinstance(payload, dict):
        return Chunk()
    choices = payload.get("choices")
    found = [choices] if isinstance(choices, dict) else choices if isinstance(choices, list) else []
    return Chunk([_choice(c) for c in found if isinstance(c, dict)], _usage(payload.get("usage")), payload.get("error"))


def _choice(value: dict[str, Any]) -> Choice:
    return Choice(_delta(value.get("delta")), _text_or_none(value.get("finish_reason")), _delta(value.get("message")))


def _delta(value: Any) -> Delta | None:
    if not isinstance(value, dict):
        return None
    delta = Delta()
    _content(value.get("content"), delta)
    for name in ("reasoning_content", "reasoning", "refusal"):
        if isinstance(value.get(name), str):
            setattr(delta, name, value[name])
    calls = value.get("tool_calls")
    if isinstance(calls, list):
        delta.tool_calls = [_call(c) for c in calls if isinstance(c, dict)]
    return delta


_FIELD_OF_PART = {"refusal": "refusal", "thinking": "reasoning_content", "reasoning": "reasoning_content"}


def _content(value: Any, delta: Delta) -> None:
    """Content as a text, a part or a list of parts."""
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, str):
            delta.content = (delta.content or "") + part
        elif isinstance(part, dict):
            name = _FIELD_OF_PART.get(str(part.get("type")), "content")
            text = _plain(part.get("text") or part.get("refusal") or part.get("thinking") or part.get("reasoning"))
            setattr(delta, name, (getattr(delta, name) or "") + text)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "".join([_text_or_none(part.get("text") if isinstance(part, dict) else part) or "" for part in value])
    return _text_or_none(value) or ""


def _call(value: dict[str, Any]) -> WireCall:
    function = value.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        try:
            arguments = json.dumps(arguments, ensure_ascii=False)
        except RecursionError:
            arguments = ""
    call_id = value.get("id")
    return WireCall(
        _number(value.get("index")),
        str(call_id) if isinstance(call_id, str | int) else None,
        WireFunction(_text_or_none(function.get("name")), arguments),
    )


def _usage(value: Any) -> WireUsage | None:
    if not isinstance(value, dict):
        return None
    prompt, completion = value.get("prompt_tokens_details"), value.get("completion_tokens_details")
    prompt = prompt if isinstance(prompt, dict) else {}
    completion = completion if isinstance(completion, dict) else {}
    return WireUsage(
        _number(value.get("prompt_tokens")),
        _number(value.get("completion_tokens")),
        _number(value.get("prompt_cache_hit_tokens")),
        PromptDetails(_number(prompt.get("cached_tokens")), _number(prompt.get("cache_write_tokens"))),
        CompletionDetails(_number(completion.get("reasoning_tokens"))),
    )


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        return None


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
