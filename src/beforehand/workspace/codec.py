"""The Agent Document Format's JSON shape of a request, to and from our messages.

    {system, messages: [{role, content, seq}], tools: [{name, description, input_schema}], options}

Messages there are of users and assistants only: a tool's result is a block of a user message. Each message carries
`seq`, its place in the request as it was shown. One that comes back as it was shown is the original message, with
everything that has no place in this shape (usage, details, the exact text of arguments); of one that was changed, the
original gives what the shape cannot express. Without `seq` a message is read as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..decisions import Replace
from ..frozen import freeze
from ..hooks.check import Refused
from ..messages import (
    THINKING_LEVELS, AssistantMessage, Audio, Image, Message, Options, Request, SystemMessage, Text, Thinking, ToolCall,
    ToolMessage, ToolSpec, UserMessage, Video,
)  # fmt: skip

OPTION_KEYS = ("maxTokens", "temperature", "topP", "thinkingBudget", "reasoning", "dynamicInstructions", "providerParams")

# --- out -----------------------------------------------------------------------------------------


def request_json(request: Request) -> bytes:
    """A request as JSON text in that shape."""
    return msgspec.json.encode(to_adf(request), enc_hook=str)


def to_adf(request: Request) -> dict[str, Any]:
    """A request as plain data in that shape."""
    return {
        "system": request.system,
        "messages": [{**_message(message), "seq": i} for i, message in enumerate(request.messages)],
        "tools": [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in request.tools],
        "options": _options(request.options),
    }


def _message(message: Message) -> dict[str, Any]:
    if isinstance(message, AssistantMessage):
        return {"role": "assistant", "content": [_block(part) for part in message.content]}
    if isinstance(message, ToolMessage):
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.text}
        if message.is_error:
            result["is_error"] = True
        images = [] if isinstance(message.content, str) else [_block(p) for p in message.content if isinstance(p, Image)]
        return {"role": "user", "content": [result, *images]}
    content = message.content
    return {"role": "user", "content": content if isinstance(content, str) else [_block(part) for part in content]}


def _block(part: Any) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Thinking):
        block = {"type": "thinking", "thinking": part.text}
        return {**block, "signature": part.signature} if part.signature is not None else block
    if isinstance(part, ToolCall):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.args}
    if isinstance(part, Audio):
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
    if isinstance(part, Video):
        return {"type": "video_url", "video_url": {"url": part.url}}
    return {"type": "image_url", "image_url": {"url": _url(part)}}


def _url(image: Image) -> str:
    return image.url if image.url is not None else f"data:{image.media_type};base64,{image.data or ''}"


def _options(options: Options) -> dict[str, Any]:
    shown = {
        "maxTokens": options.max_tokens, "temperature": options.temperature, "topP": options.top_p,
        "reasoning": None if options.thinking_level == "off" else {"effort": options.thinking_level},
        "providerParams": options.provider_params or None,
    }  # fmt: skip
    return {name: value for name, value in shown.items() if value is not None}


# --- in ------------------------------------------------------------------------------------------


def read_request(value: Any, original: Request) -> Replace:
    """The request a lambda returned in place of `original`. Raises `Refused`, which names the JSON path."""
    try:
        return Replace(request=from_adf(value, original))
    except Malformed as error:
        raise Refused(f"returned a request that cannot be sent: {error}") from None


class Malformed(Exception):
    """What is wrong, and where."""


def from_adf(value: Any, original: Request) -> Request:
    """The checks stand in the order of the format's own; the first that fails is the one reported."""
    request = _object(value, "$", ("system", "messages", "tools", "options"))
    _json_safe(value, "$")
    system = _string(request, "system", "$")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Malformed("$.messages must be a list with at least one message")
    for i, message in enumerate(messages):
        _check_message(message, f"$.messages[{i}]", original.messages)
    _check_pairs(messages)
    tools = _tools(request.get("tools"), original)
    options, dynamic = _read_options(request.get("options"), original.options)
    read = [made for message in messages for made in _read_message(message, original.messages, messages)]
    return Request(f"{system}\n\n{dynamic}" if dynamic else system, tuple(read), tools, options)


def _object(value: Any, where: str, keys: Sequence[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{where} must be an object" + (f" of {', '.join(keys)}" if keys else ""))
    unknown = [key for key in value if keys is not None and key not in keys]
    if unknown:
        raise Malformed(f"{where}.{unknown[0]} does not belong there: {where} has {', '.join(keys or ())}")
    return value


def _string(value: Mapping[str, Any], key: str, where: str, *, filled: bool = False) -> str:
    found = value.get(key)
    if not isinstance(found, str) or (filled and not found):
        raise Malformed(f"{where}.{key} must be a string{' that is not empty' if filled else ''}")
    return found


def _json_safe(value: Any, where: str, inside: tuple[int, ...] = ()) -> None:
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Malformed(f"{where} is {value!r}, which JSON cannot hold")
    elif id(value) in inside:
        raise Malformed(f"{where} contains itself")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Malformed(f"{where} has the key {key!r}, which is no string")
            _json_safe(item, f"{where}.{key}", (*inside, id(value)))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _json_safe(item, f"{where}[{i}]", (*inside, id(value)))
    else:
        raise Malformed(f"{where} is a {type(value).__name__}, which JSON cannot hold")


# --- messages: checks ---


def _check_message(message: Any, where: str, originals: Sequence[Message]) -> None:
    _object(message, where)
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise Malformed(f'{where}.role is {role!r}: expected "user" or "assistant"')
    content = message.get("content")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Malformed(f"{where}.content must be a string or a list of blocks")
    base = _base(message.get("seq"), originals)
    drawn = [_block(p) for p in base.content if isinstance(p, Image)] if isinstance(base, AssistantMessage) else []
    for i, block in enumerate(content):
        if block not in drawn:  # an image the model made has no place in the format, yet it was shown there
            _check_block(block, role, f"{where}.content[{i}]")


_ROLES = {
    "text": ("user", "assistant"), "thinking": ("assistant",), "tool_use": ("assistant",), "tool_result": ("user",),
    "image_url": ("user",), "video_url": ("user",), "input_audio": ("user",),
}  # fmt: skip


def _check_block(block: Any, role: str, where: str) -> None:
    kind = _object(block, where).get("type")
    roles = _ROLES.get(kind) if isinstance(kind, str) else None
    if roles is None:
        raise Malformed(f"{where}.type is {kind!r}: expected one of {', '.join(_ROLES)}")
    if role not in roles:
        raise Malformed(f"{where} is a {kind} block, which a message of the {role} cannot hold")
    if kind in ("text", "thinking"):
        _string(block, kind, where)
    elif kind == "tool_use":
        _string(block, "id", where, filled=True)
        _string(block, "name", where, filled=True)
        if not isinstance(block.get("input", {}), dict):
            raise Malformed(f"{where}.input must be an object")
    elif kind == "tool_result":
        _string(block, "tool_use_id", where, filled=True)
        _string(block, "content", where)
        if not isinstance(block.get("is_error", False), bool):
            raise Malformed(f"{where}.is_error must be true or false")
    else:
        inner = _object(block.get(kind), f"{where}.{kind}")
        for field in ("data", "format") if kind == "input_audio" else ("url",):
            _string(inner, field, f"{where}.{kind}")


def _check_pairs(messages: list[Any]) -> None:
    """An id is used once; a result belongs to an earlier use that is still open; none stays open."""
    seen: set[str] = set()
    open_uses: dict[str, str] = {}
    for i, message in enumerate(messages):
        for j, block in enumerate(message["content"] if isinstance(message["content"], list) else ()):
            where = f"$.messages[{i}].content[{j}]"
            if block["type"] == "tool_use":
                if block["id"] in seen:
                    raise Malformed(f"{where}.id: {block['id']!r} is used a second time")
                seen.add(block["id"])
                open_uses[block["id"]] = where
            elif block["type"] == "tool_result" and open_uses.pop(block["tool_use_id"], None) is None:
                raise Malformed(f"{where}.tool_use_id: {block['tool_use_id']!r} is no earlier tool_use that waits for its result")
    if open_uses:
        use, where = next(iter(open_uses.items()))
        raise Malformed(f"{where}: the tool_use {use!r} has no result")


# --- messages: reading ---


def _read_message(message: Mapping[str, Any], originals: Sequence[Message], messages: list[Any]) -> list[Message]:
    base = _base(message.get("seq"), originals)
    if base is not None and same({k: v for k, v in message.items() if k != "seq"}, _message(base)):
        return [base]
    content = message["content"]
    if message["role"] == "assistant":
        return [_assistant(content, base)]
    if isinstance(content, str):
        if isinstance(base, SystemMessage):
            return [msgspec.structs.replace(base, content=content)]
        return [UserMessage(content, origin=base.origin) if isinstance(base, UserMessage) else UserMessage(content)]
    if any(block["type"] == "tool_result" for block in content):
        return _results(content, originals, messages)
    parts = _parts(content, base)
    return [msgspec.structs.replace(base, content=parts) if isinstance(base, UserMessage) else UserMessage(parts)]


def _base(seq: Any, originals: Sequence[Message]) -> Message | None:
    """The message this one was made from."""
    whole = isinstance(seq, int) and not isinstance(seq, bool)
    return originals[seq] if whole and 0 <= seq < len(originals) else None


def _assistant(content: Any, base: Message | None) -> AssistantMessage:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(base, AssistantMessage):
        calls = any(block["type"] == "tool_use" for block in blocks)
        return AssistantMessage(tuple(_part(b, ()) for b in blocks), "tool_calls" if calls else "stop", origin="hook")
    return msgspec.structs.replace(base, content=tuple(_part(block, base.content) for block in blocks))


def _parts(blocks: Sequence[Mapping[str, Any]], base: Message | None) -> tuple[Any, ...]:
    old = getattr(base, "content", ())
    return tuple(_part(block, () if isinstance(old, str) else old) for block in blocks)


def _part(block: Mapping[str, Any], old: Sequence[Any]) -> Any:
    """A block as a part: the one it was made from, where it is unchanged."""
    for part in old:
        if same(block, _block(part)):
            return part
    kind = block["type"]
    if kind == "text":
        return Text(block["text"])
    if kind == "thinking":
        signature = block.get("signature")
        return Thinking(block["thinking"], signature if isinstance(signature, str) else None)
    if kind == "tool_use":
        return ToolCall(block["id"], block["name"], msgspec.json.encode(block.get("input", {})).decode())
    if kind == "input_audio":
        return Audio(block["input_audio"]["data"], block["input_audio"]["format"])
    return Video(block["video_url"]["url"]) if kind == "video_url" else _image(block["image_url"]["url"])


def _image(url: str) -> Image:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return Image(data=data, media_type=head[5:-7])
    return Image(url=url)


def _results(blocks: list[Any], originals: Sequence[Message], messages: list[Any]) -> list[Message]:
    """The results in a message, each with the images that stand behind it; then, as a message of the user, what stands before."""
    results: list[Message] = []
    leading: list[Any] = []
    for block in blocks:
        if block["type"] == "tool_result":
            results.append(_result(block, originals, messages))
        elif block["type"] == "image_url" and results:
            results[-1] = _with_image(results[-1], block)
        else:
            leading.append(block)
    return [*results, UserMessage(_parts(leading, None))] if leading else results


def _result(block: Mapping[str, Any], originals: Sequence[Message], messages: list[Any]) -> ToolMessage:
    call_id, content, is_error = block["tool_use_id"], block["content"], block.get("is_error", False)
    for message in originals:
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            return msgspec.structs.replace(message, content=content, is_error=is_error)
    uses = (b for m in messages if isinstance(m["content"], list) for b in m["content"] if b["type"] == "tool_use")
    name = next(b["name"] for b in uses if b["id"] == call_id)
    return ToolMessage(call_id, name, content, is_error, origin="hook")


def _with_image(message: Message, block: Mapping[str, Any]) -> ToolMessage:
    assert isinstance(message, ToolMessage)
    before = (Text(message.content),) if isinstance(message.content, str) else message.content
    return msgspec.structs.replace(message, content=(*before, _image(block["image_url"]["url"])))


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are one to JavaScript, whose numbers are all doubles."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or _double(one) == _double(other)
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return False


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


# --- tools and options ---


def _tools(tools: Any, original: Request) -> tuple[ToolSpec, ...]:
    if not isinstance(tools, list):
        raise Malformed("$.tools must be a list")
    old = {tool.name: tool for tool in original.tools}
    found: dict[str, ToolSpec] = {}
    for i, tool in enumerate(tools):
        where = f"$.tools[{i}]"
        name = _string(_object(tool, where), "name", where, filled=True)
        if name in found:
            raise Malformed(f"{where}.name: two tools are named {name!r}")
        description = _string(tool, "description", where)
        schema = _object(tool.get("input_schema"), f"{where}.input_schema")
        base = old.get(name)
        unchanged = base is not None and base.description == description and same(schema, base.parameters)
        found[name] = base if base is not None and unchanged else ToolSpec(name, description, freeze(schema))
    return tuple(found.values())


def _read_options(value: Any, base: Options) -> tuple[Options, str]:
    """The options, and dynamic instructions, which belong to the system text here."""
    options = _object(value, "$.options", OPTION_KEYS)
    for key in ("maxTokens", "thinkingBudget"):
        if key in options and (isinstance(options[key], bool) or not isinstance(options[key], int) or options[key] < 1):
            raise Malformed(f"$.options.{key} must be a whole number above 0")
    for key, most in (("temperature", 2), ("topP", 1)):
        number = options.get(key, 0)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= most:
            raise Malformed(f"$.options.{key} must be a number from 0 to {most}")
    dynamic = _string(options, "dynamicInstructions", "$.options") if "dynamicInstructions" in options else ""
    reasoning = _object(options.get("reasoning", {}), "$.options.reasoning", ("effort",))
    level = reasoning.get("effort", "off")
    if level not in THINKING_LEVELS:
        raise Malformed(f"$.options.reasoning.effort is {level!r}: expected one of {', '.join(THINKING_LEVELS)}")
    params = _object(options.get("providerParams", {}), "$.options.providerParams")
    if "thinkingBudget" in options:
        raise Malformed("$.options.thinkingBudget cannot be sent: say how hard to think with $.options.reasoning.effort")
    kept = base.provider_params if same(params, base.provider_params) else freeze(params)
    changes = {"max_tokens": options.get("maxTokens"), "temperature": options.get("temperature"), "top_p": options.get("topP")}
    return msgspec.structs.replace(base, **changes, thinking_level=level, provider_params=kept), dynamic


__all__ = ["OPTION_KEYS", "from_adf", "read_request", "request_json", "same", "to_adf"]
