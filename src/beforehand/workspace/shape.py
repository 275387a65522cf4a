"""What a request in the format's shape has to look like: each check raises `Malformed`, which names the JSON path."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..frozen import surely_json


class Malformed(Exception):
    """What is wrong, and where."""


def an_object(value: Any, where: str, keys: Sequence[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{where} must be an object" + (f" of {', '.join(keys)}" if keys else ""))
    unknown = [key for key in value if key not in keys] if keys is not None else ()
    if unknown:
        raise Malformed(f"{where}.{unknown[0]} does not belong there: {where} has {', '.join(keys or ())}")
    return value


def a_string(value: Mapping[str, Any], key: str, where: str, *, filled: bool = False) -> str:
    found = value.get(key)
    if not isinstance(found, str) or (filled and not found):
        raise Malformed(f"{where}.{key} must be a string{' that is not empty' if filled else ''}")
    return found


def check_json(value: Any, where: str) -> None:
    if not surely_json(value):
        _find_no_json(value, where, ())


def _find_no_json(value: Any, where: str, inside: tuple[int, ...]) -> None:
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
            _find_no_json(item, f"{where}.{key}", (*inside, id(value)))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _find_no_json(item, f"{where}[{i}]", (*inside, id(value)))
    else:
        raise Malformed(f"{where} is a {type(value).__name__}, which JSON cannot hold")


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


# --- messages ---

_ROLES = {
    "text": ("user", "assistant"), "thinking": ("assistant",), "tool_use": ("assistant",), "tool_result": ("user",),
    "image_url": ("user",), "video_url": ("user",), "input_audio": ("user",),
}  # fmt: skip


def check_message(message: Any, where: str, is_misfit: Callable[[Any], bool]) -> None:
    """`is_misfit` knows blocks that were shown though the format has no place for them. They may come back as they were."""
    an_object(message, where)
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise Malformed(f'{where}.role is {role!r}: expected "user" or "assistant"')
    content = message.get("content")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Malformed(f"{where}.content must be a string or a list of blocks")
    for i, block in enumerate(content):
        if not is_misfit(block):
            _check_block(block, role, f"{where}.content[{i}]")


def _check_block(block: Any, role: str, where: str) -> None:
    kind = an_object(block, where).get("type")
    roles = _ROLES.get(kind) if isinstance(kind, str) else None
    if roles is None:
        raise Malformed(f"{where}.type is {kind!r}: expected one of {', '.join(_ROLES)}")
    if role not in roles:
        raise Malformed(f"{where} is a {kind} block, which a message of the {role} cannot hold")
    if kind in ("text", "thinking"):
        a_string(block, kind, where)
    elif kind == "tool_use":
        a_string(block, "id", where, filled=True)
        a_string(block, "name", where, filled=True)
        if not isinstance(block.get("input", {}), dict):
            raise Malformed(f"{where}.input must be an object")
    elif kind == "tool_result":
        a_string(block, "tool_use_id", where, filled=True)
        a_string(block, "content", where)
        if not isinstance(block.get("is_error", False), bool):
            raise Malformed(f"{where}.is_error must be true or false")
    else:
        inner = an_object(block.get(kind), f"{where}.{kind}")
        for field in ("data", "format") if kind == "input_audio" else ("url",):
            a_string(inner, field, f"{where}.{kind}")


def check_pairs(messages: list[Any]) -> dict[str, str]:
    """An id is used once; a result belongs to an earlier use that is still open; none stays open.

    Returns the name of the tool that each id calls. A result need not stand next to its use.
    """
    names: dict[str, str] = {}
    open_uses: dict[str, str] = {}
    for i, message in enumerate(messages):
        for j, block in enumerate(message["content"] if isinstance(message["content"], list) else ()):
            if block["type"] == "tool_use":
                where = f"$.messages[{i}].content[{j}]"
                if block["id"] in names:
                    raise Malformed(f"{where}.id: {block['id']!r} is used a second time")
                names[block["id"]] = block["name"]
                open_uses[block["id"]] = where
            elif block["type"] == "tool_result" and open_uses.pop(block["tool_use_id"], None) is None:
                where = f"$.messages[{i}].content[{j}].tool_use_id"
                raise Malformed(f"{where}: {block['tool_use_id']!r} is no earlier tool_use that waits for its result")
    if open_uses:
        use, where = next(iter(open_uses.items()))
        raise Malformed(f"{where}: the tool_use {use!r} has no result")
    return names


# --- options ---

_RUNTIME = "stays with the runtime"
_SAID_ELSEWHERE = {
    "messages": "say it with $.messages", "system": "say it with $.system",
    "tools": "say it with $.tools", "functions": "say it with $.tools",
    "max_tokens": "say it with $.options.maxTokens", "max_completion_tokens": "say it with $.options.maxTokens",
    "temperature": "say it with $.options.temperature", "top_p": "say it with $.options.topP",
    "reasoning_effort": "say it with $.options.reasoning",
    "stop": _RUNTIME, "tool_choice": _RUNTIME, "function_call": _RUNTIME, "model": _RUNTIME, "n": _RUNTIME, "stream": _RUNTIME,
    "stream_options": _RUNTIME, "authorization": _RUNTIME, "api_key": _RUNTIME, "api-key": _RUNTIME,
}  # fmt: skip
"""What no lambda sets as a parameter of the provider: there it would count instead of what has been checked, or of what the
owner has said."""


def check_params(params: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Parameters for the provider. Those that are `kept` as the owner has them are the owner's affair."""
    for name in params:
        why = _SAID_ELSEWHERE.get(name.lower())
        if why is not None and name not in kept:
            raise Malformed(f"$.options.providerParams.{name} cannot be set there: {why}")
