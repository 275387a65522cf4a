"""From a `Request` to the bytes of an OpenAI-compatible chat completion.

A message is encoded once, by `encode_message`, and kept by the history it belongs to; a body is those bytes joined.
What the protocol has no place for:

- reasoning is not sent back;
- a reply cut by an error or an abort is sent as its text, without calls that may be half written;
- images inside tool results and replies become the text `[image]`: the protocol takes text there;
- call arguments that are not a JSON object are sent as `{}`, since endpoints refuse anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import BadRequest
from ..history import HistoryView
from ..messages import (
    AssistantMessage, Audio, Image, Message, Options, Request, SystemMessage, Text, ToolCall, ToolMessage, ToolSpec,
    UserMessage, Video,
)  # fmt: skip

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode

UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding foreign JSON may raise. (Newer versions of msgspec derive their errors from ValueError.)"""

PROTECTED = {
    "messages": "hooks replace messages through the request",
    "tools": "hooks replace tools through the request",
    "functions": "the old name of tools",
    "stream": "set by OpenAIChat(stream=)",
    "stream_options": "set by OpenAIChat(stream=)",
    "model": "set by the model's name",
    "n": "a request has one reply",
    "authorization": "keys travel in a header",
    "api_key": "keys travel in a header",
    "api-key": "keys travel in a header",
}
"""What `provider_params` may not hold, and why."""

EFFORTS = {"minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "xhigh"}
"""Thinking levels as `reasoning_effort`. `off` sends nothing; `max` is the highest the protocol names."""


# --- messages ------------------------------------------------------------------------------------


def encode_text(text: str) -> bytes:
    """`text` as a JSON string. Surrogate halves are paired; a lone one, which has no UTF-8, becomes U+FFFD."""
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(mend_surrogates(text))


def mend_surrogates(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode_message(message: Message) -> bytes:
    """One message as JSON. Raises `BadRequest` for what cannot be sent.

    A module-level function on purpose: histories keep encodings by codec, so all models of this protocol share them.
    """
    kind = type(message)
    if kind is UserMessage:
        return b'{"role":"user","content":' + _user_content(message.content) + b"}"
    if kind is AssistantMessage:
        return _assistant(message)  # type: ignore[arg-type]
    if kind is ToolMessage:
        call_id = encode_text(message.tool_call_id)  # type: ignore[union-attr]
        return b'{"role":"tool","tool_call_id":' + call_id + b',"content":' + encode_text(_flat(message.content)) + b"}"
    if kind is SystemMessage:
        return encode_system(message.content)  # type: ignore[arg-type]
    name = f"custom message of kind {getattr(message, 'kind', '?')!r}" if message.role == "custom" else kind.__name__
    raise BadRequest(f"a {name} cannot be sent to a model: drop or convert it in a convert_to_llm hook")


def encode_system(text: str) -> bytes:
    return b'{"role":"system","content":' + encode_text(text) + b"}"


def _user_content(content: Any) -> bytes:
    if isinstance(content, str):
        return encode_text(content)
    if len(content) == 1 and type(content[0]) is Text:
        return encode_text(content[0].text)
    return b"[" + b",".join([_user_part(part) for part in content]) + b"]"


def _user_part(part: Any) -> bytes:
    if type(part) is Text:
        return b'{"type":"text","text":' + encode_text(part.text) + b"}"
    if type(part) is Image:
        if part.data is not None:
            url = f"data:{part.media_type};base64,{part.data}"
        elif part.url:
            url = part.url
        else:
            raise BadRequest("an image has neither data nor url: nothing to send")
        return b'{"type":"image_url","image_url":{"url":' + encode_text(url) + b"}}"
    if type(part) is Audio:
        audio = b'{"data":' + encode_text(part.data) + b',"format":' + encode_text(part.format) + b"}"
        return b'{"type":"input_audio","input_audio":' + audio + b"}"
    if type(part) is Video:  # not OpenAI's own, but what compatible endpoints that see films take
        return b'{"type":"video_url","video_url":{"url":' + encode_text(part.url) + b"}}"
    raise BadRequest(f"a {type(part).__name__} part cannot stand in a user message")


def _assistant(message: AssistantMessage) -> bytes:
    text = _flat(message.content)
    calls = [] if message.stop_reason in ("error", "aborted") else [p for p in message.content if type(p) is ToolCall]
    if not calls:
        return b'{"role":"assistant","content":' + encode_text(text) + b"}"
    content = encode_text(text) if text else b"null"
    return b'{"role":"assistant","content":' + content + b',"tool_calls":[' + b",".join([_call(c) for c in calls]) + b"]}"


def _call(call: ToolCall) -> bytes:
    try:
        _decode_object(call.arguments)
        arguments = call.arguments
    except UNDECODABLE:
        arguments = "{}"
    function = b'{"name":' + encode_text(call.name) + b',"arguments":' + encode_text(arguments) + b"}"
    return b'{"id":' + encode_text(call.id) + b',"type":"function","function":' + function + b"}"


def _flat(content: str | Sequence[Any]) -> str:
    if isinstance(content, str):
        return content
    return "".join([p.text if type(p) is Text else "[image]" for p in content if type(p) is Text or type(p) is Image])


# --- the body ------------------------------------------------------------------------------------


class BodyWriter:
    """Writes request bodies for one model.

    `streaming` asks for a stream with usage at its end; `limit_field` is what the endpoint calls the reply's bound.
    """

    def __init__(self, name: str, *, streaming: bool, limit_field: str) -> None:
        self._head = b'{"model":' + _encode(name) + b',"messages":['
        self._tail = b',"stream":true,"stream_options":{"include_usage":true}}' if streaming else b',"stream":false}'
        self._limit_field = limit_field
        # Tools and options stay the same objects from turn to turn; keyed by identity, so the objects are kept too.
        self._last: tuple[tuple[ToolSpec, ...], Options, bytes] | None = None

    def write(self, request: Request) -> bytes:
        """The body of `request`. Raises `BadRequest` naming what cannot be sent."""
        messages = request.messages
        if isinstance(messages, HistoryView):
            encoded = messages.encoded(encode_message)
        else:
            encoded = [encode_message(message) for message in messages]
        first = encode_system(request.system) + (b"," if encoded else b"") if request.system else b""
        last = self._last
        if last is not None and last[0] is request.tools and last[1] is request.options:
            rest = last[2]
        else:
            rest = self._rest(request.tools, request.options)
            self._last = (request.tools, request.options, rest)
        return b"".join((self._head, first, b",".join(encoded), rest))

    def _rest(self, tools: tuple[ToolSpec, ...], options: Options) -> bytes:
        fields = option_fields(options, [tool.name for tool in tools], self._limit_field)
        try:
            encoded = b"".join([b"," + _encode(name) + b":" + _encode(value) for name, value in fields.items()])
            specs = [
                {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
                for t in tools
            ]
            listed = b',"tools":' + _encode(specs) if specs else b""
        except (TypeError, *UNDECODABLE) as error:
            raise BadRequest(f"tools or provider_params hold something that is not JSON: {error}") from None
        return b"]" + listed + encoded + self._tail


def option_fields(options: Options, tool_names: Sequence[str], limit_field: str) -> dict[str, Any]:
    """`options` as fields of the body, `provider_params` last. Raises `BadRequest` naming what cannot be mapped."""
    fields: dict[str, Any] = {}
    if options.max_tokens is not None:
        fields[limit_field] = options.max_tokens
    if options.temperature is not None:
        fields["temperature"] = options.temperature
    if options.top_p is not None:
        fields["top_p"] = options.top_p
    if options.stop:
        fields["stop"] = list(options.stop)
    if options.thinking_level != "off":
        effort = EFFORTS.get(options.thinking_level)
        if effort is None:
            raise BadRequest(f"thinking_level {options.thinking_level!r} has no reasoning_effort; it knows {', '.join(EFFORTS)}")
        fields["reasoning_effort"] = effort
    if options.tool_choice is not None:
        fields |= _tool_choice(options.tool_choice, tool_names)
    return fields | _provider_params(options.provider_params)


def _tool_choice(choice: str, tool_names: Sequence[str]) -> dict[str, Any]:
    if choice in ("auto", "none"):
        return {"tool_choice": choice} if tool_names else {}  # without tools both mean what happens anyway
    if choice == "required" and tool_names:
        return {"tool_choice": choice}
    if choice in tool_names:
        return {"tool_choice": {"type": "function", "function": {"name": choice}}}
    known = ", ".join(["auto", "none", "required", *tool_names])
    raise BadRequest(f"tool_choice {choice!r} fits no tool of this request; known: {known}")


def _provider_params(params: Mapping[str, Any]) -> dict[str, Any]:
    for name in params:
        reason = PROTECTED.get(name.lower())
        if reason is not None:
            raise BadRequest(f"provider_params may not set {name!r}: {reason}")
    return dict(params)
