"""The Agent Document Format's JSON shape of a request, to and from our messages.

    {system, messages: [{role, content, seq}], tools: [{name, description, input_schema}], options}

Messages there are of users and assistants only: a tool's result is a block of a user message. Each message carries
`seq`, its place in the request as it was shown. One that comes back as it was shown is the original message, with
everything that has no place in this shape (usage, details, the exact text of arguments); of one that was changed, the
original gives what the shape cannot express. Without `seq` a message is read as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ..decisions import Replace
from ..frozen import EMPTY_DICT, freeze
from ..hooks.check import Refused
from ..messages import (
    THINKING_LEVELS, AssistantMessage, Audio, Image, Message, Options, Request, SystemMessage, Text, Thinking, ToolCall,
    ToolMessage, ToolSpec, UserMessage, Video,
)  # fmt: skip
from .shape import Malformed, a_string, an_object, check_json, check_message, check_pairs, check_params, same

MAX_DEPTH = 100
"""Values inside values of a call's arguments. Of a call that has deeper ones, a lambda is shown none."""

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
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": _input(part)}
    if isinstance(part, Audio):
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
    if isinstance(part, Video):
        return {"type": "video_url", "video_url": {"url": part.url}}
    return {"type": "image_url", "image_url": {"url": _url(part)}}


def _input(call: ToolCall) -> Mapping[str, Any]:
    """The arguments, or nothing where they are none a tool could have taken: a model's mistake must not fail what follows."""
    text = call.arguments
    if text.count("[") + text.count("{") > MAX_DEPTH and _deeper(call.args, MAX_DEPTH):
        return EMPTY_DICT
    return call.args


def _deeper(value: Any, most: int) -> bool:
    """Whether there are values inside values further down than that."""
    level = [value]
    for _ in range(most):
        holders = [item.values() if isinstance(item, Mapping) else item for item in level if isinstance(item, Mapping | list)]
        level = [item for holder in holders for item in holder]
        if not level:
            return False
    return True


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


def from_adf(value: Any, original: Request) -> Request:
    """The checks stand in the order of the format's own; the first that fails is the one reported."""
    if value is None:
        raise Malformed("$ must be an object of system, messages, tools, options, and nothing was returned")
    request = an_object(value, "$", ("system", "messages", "tools", "options"))
    check_json(value, "$")
    system = a_string(request, "system", "$")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Malformed("$.messages must be a list with at least one message")
    shown = _Shown(original.messages)
    for i, message in enumerate(messages):
        check_message(message, f"$.messages[{i}]", partial(shown.is_misfit, message))
    names = check_pairs(messages)
    tools = _tools(request.get("tools"), original)
    options, dynamic = _read_options(request.get("options"), original.options)
    read = paired([made for message in messages for made in _read_message(message, shown, names)])
    return Request(f"{system}\n\n{dynamic}" if dynamic else system, tuple(read), tools, options)


def paired(messages: list[Message]) -> list[Message]:
    """Each result directly behind its call, as endpoints want it and the format does not: there it may come later.

    Results move up, in the order of the calls; nothing else changes its order. Only for messages whose calls and results
    belong together.
    """
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                break
            waiting.remove(message.tool_call_id)
        elif waiting:
            break
        elif isinstance(message, AssistantMessage):
            waiting = {call.id for call in message.tool_calls}
    else:
        return messages
    results = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
    ordered: list[Message] = []
    for message in messages:
        if not isinstance(message, ToolMessage):
            ordered.append(message)
        if isinstance(message, AssistantMessage):
            ordered += [results[call.id] for call in message.tool_calls]
    return ordered


class _Shown:
    """The messages as they were shown, each looked through once however many that come back name it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._forms: dict[int, dict[str, Any]] = {}
        self._parts: dict[int, dict[Any, Any]] = {}
        self._misfits: dict[int, dict[tuple[Any, ...], Any]] = {}
        self._results: dict[str, ToolMessage] = {}
        for message in messages:
            if isinstance(message, ToolMessage):
                self._results.setdefault(message.tool_call_id, message)

    def number(self, message: Any) -> int | None:
        """Which message this one was made from."""
        seq = message.get("seq") if isinstance(message, dict) else None
        if not isinstance(seq, int) or isinstance(seq, bool):
            return None
        return seq if 0 <= seq < len(self._messages) else None

    def base(self, number: int | None) -> Message | None:
        return None if number is None else self._messages[number]

    def form(self, number: int) -> dict[str, Any]:
        if number not in self._forms:
            self._forms[number] = _message(self._messages[number])
        return self._forms[number]

    def is_misfit(self, message: Any, block: Any) -> bool:
        """Whether this is an image the model has made, or a call it gave no name. They have no place in the format, yet were
        shown."""
        number = self.number(message)
        if number is None or not isinstance(base := self._messages[number], AssistantMessage):
            return False
        if number not in self._misfits:
            odd = [part for part in base.content if isinstance(part, Image) or (isinstance(part, ToolCall) and not part.name)]
            self._misfits[number] = {_mark(form): form for form in map(_block, odd)}
        try:
            return same(block, self._misfits[number].get(_mark(block)))
        except (KeyError, TypeError, AttributeError):  # anything may have come back
            return False

    def part(self, number: int | None, block: Mapping[str, Any]) -> Any:
        """The part that a block was made from, if it is unchanged."""
        content = () if number is None else self._messages[number].content
        if number is None or not content or isinstance(content, str):
            return None
        if number not in self._parts:
            found = self._parts[number] = {}
            for part in content:
                form = _block(part)
                found.setdefault(_mark(form), []).append((form, part))
        return next((part for form, part in self._parts[number].get(_mark(block), ()) if same(block, form)), None)

    def result(self, call_id: str) -> ToolMessage | None:
        return self._results.get(call_id)


def _mark(block: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells most blocks apart, and is the same for those that are the same."""
    kind = block["type"]
    if kind in ("text", "thinking"):
        return kind, block[kind], block.get("signature") if isinstance(block.get("signature"), str) else None, len(block)
    if kind == "tool_use":
        return kind, block["id"]
    return kind, block[kind].get("data" if kind == "input_audio" else "url")


# --- messages: reading ---


def _read_message(message: Mapping[str, Any], shown: _Shown, names: Mapping[str, str]) -> list[Message]:
    number = shown.number(message)
    base = shown.base(number)
    if base is not None and number is not None and same({k: v for k, v in message.items() if k != "seq"}, shown.form(number)):
        return [base]
    content = message["content"]
    if message["role"] == "assistant":
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if isinstance(base, AssistantMessage):
            return [msgspec.structs.replace(base, content=tuple([_part(block, shown, number) for block in blocks]))]
        calls = any(block["type"] == "tool_use" for block in blocks)
        parts = tuple([_part(block, shown, None) for block in blocks])
        return [AssistantMessage(parts, "tool_calls" if calls else "stop", origin="hook")]
    if isinstance(content, str):
        if isinstance(base, SystemMessage):
            return [msgspec.structs.replace(base, content=content)]
        return [UserMessage(content, origin=base.origin) if isinstance(base, UserMessage) else UserMessage(content)]
    if any(block["type"] == "tool_result" for block in content):
        return _results(content, shown, names)
    parts = tuple([_part(block, shown, number) for block in content])
    return [msgspec.structs.replace(base, content=parts) if isinstance(base, UserMessage) else UserMessage(parts)]


def _part(block: Mapping[str, Any], shown: _Shown, number: int | None) -> Any:
    """A block as a part: the one it was made from, where it is unchanged."""
    part = shown.part(number, block)
    if part is not None:
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


def _results(blocks: list[Any], shown: _Shown, names: Mapping[str, str]) -> list[Message]:
    """The results in a message, each with the images that stand behind it; then, as a message of the user, what else there is."""
    results: list[tuple[Mapping[str, Any], list[Image]]] = []
    others: list[Any] = []
    for block in blocks:
        if block["type"] == "tool_result":
            results.append((block, []))
        elif block["type"] == "image_url" and results:
            results[-1][1].append(_image(block["image_url"]["url"]))
        else:
            others.append(_part(block, shown, None))
    read: list[Message] = [_result(block, images, shown, names) for block, images in results]
    return [*read, UserMessage(tuple(others))] if others else read


def _result(block: Mapping[str, Any], images: list[Image], shown: _Shown, names: Mapping[str, str]) -> ToolMessage:
    call_id, text, is_error = block["tool_use_id"], block["content"], block.get("is_error", False)
    content: str | tuple[Text | Image, ...] = (Text(text), *images) if images else text
    base = shown.result(call_id)
    if base is not None:
        return msgspec.structs.replace(base, content=content, is_error=is_error)
    return ToolMessage(call_id, names[call_id], content, is_error, origin="hook")


# --- tools and options ---


def _tools(tools: Any, original: Request) -> tuple[ToolSpec, ...]:
    if not isinstance(tools, list):
        raise Malformed("$.tools must be a list")
    old = {tool.name: tool for tool in original.tools}
    found: dict[str, ToolSpec] = {}
    for i, tool in enumerate(tools):
        where = f"$.tools[{i}]"
        name = a_string(an_object(tool, where), "name", where, filled=True)
        if name in found:
            raise Malformed(f"{where}.name: two tools are named {name!r}")
        description = a_string(tool, "description", where)
        schema = an_object(tool.get("input_schema"), f"{where}.input_schema")
        base = old.get(name)
        unchanged = base is not None and base.description == description and same(schema, base.parameters)
        found[name] = base if base is not None and unchanged else ToolSpec(name, description, freeze(schema))
    return tuple(found.values())


def _read_options(value: Any, base: Options) -> tuple[Options, str]:
    """The options, and dynamic instructions, which belong to the system text here."""
    options = an_object(value, "$.options", OPTION_KEYS)
    for key in ("maxTokens", "thinkingBudget"):
        if key in options and (isinstance(options[key], bool) or not isinstance(options[key], int) or options[key] < 1):
            raise Malformed(f"$.options.{key} must be a whole number above 0")
    for key, most in (("temperature", 2), ("topP", 1)):
        number = options.get(key, 0)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= most:
            raise Malformed(f"$.options.{key} must be a number from 0 to {most}")
    dynamic = a_string(options, "dynamicInstructions", "$.options") if "dynamicInstructions" in options else ""
    reasoning = an_object(options.get("reasoning", {}), "$.options.reasoning", ("effort",))
    level = reasoning.get("effort", "off")
    if level not in THINKING_LEVELS:
        raise Malformed(f"$.options.reasoning.effort is {level!r}: expected one of {', '.join(THINKING_LEVELS)}")
    params = an_object(options.get("providerParams", {}), "$.options.providerParams")
    if "thinkingBudget" in options:
        raise Malformed("$.options.thinkingBudget cannot be sent: say how hard to think with $.options.reasoning.effort")
    check_params(params, {k: v for k, v in base.provider_params.items() if k in params and same(params[k], v)})
    kept = base.provider_params if same(params, base.provider_params) else freeze(params)
    changes = {"max_tokens": options.get("maxTokens"), "temperature": options.get("temperature"), "top_p": options.get("topP")}
    return msgspec.structs.replace(base, **changes, thinking_level=level, provider_params=kept), dynamic


__all__ = ["OPTION_KEYS", "from_adf", "read_request", "request_json", "same", "to_adf"]
