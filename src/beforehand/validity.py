"""Is this a request that an endpoint could take? Asked of every request that a hook made."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from .frozen import freeze, surely_json
from .history import HistoryView
from .messages import (
    MESSAGE_TYPES, THINKING_LEVELS, AssistantMessage, CustomMessage, Options, Request, ToolCall, ToolMessage, ToolSpec,
    clean, sealed,
)  # fmt: skip


def invalid_request(request: Any) -> str | None:
    """What is wrong with `request`, in one line, or `None`."""
    if not isinstance(request.system, str):
        return f"its system text is a {type(request.system).__name__}"
    return invalid_messages(request.messages) or _tools(request.tools) or _options(request)


def sealed_request(request: Request) -> Request:
    """The same request, with nothing in it that could still be changed. Only for requests that are valid."""
    messages = request.messages if isinstance(request.messages, HistoryView) else tuple([sealed(m) for m in request.messages])
    tools = tuple([msgspec.structs.replace(tool, parameters=freeze(tool.parameters)) for tool in request.tools])
    return Request(clean(request.system), messages, tools, request.options.sealed())


def invalid_messages(messages: Any, sealed_already: bool = False) -> str | None:
    """What is wrong with a list of messages that a request is to carry, in one line, or `None`."""
    if not isinstance(messages, HistoryView | list | tuple):
        return f"its messages are a {type(messages).__name__}, not a list"
    if isinstance(messages, HistoryView) and messages.is_sound:
        return None
    open_calls: dict[str, str] = {}
    seen: set[str] = set()
    for i, message in enumerate(messages):
        kind = type(message)
        why = None
        if kind is ToolMessage:
            if open_calls.pop(message.tool_call_id, None) is None:
                why = f"is a result for {message.tool_call_id!r}, which no open call before it has"
        elif kind not in _KINDS:
            why = f"is a {kind.__name__}, not a message"
        elif kind is CustomMessage:
            why = "is a custom message: convert or drop it"
        elif open_calls:
            why = f"comes before the result of call {next(iter(open_calls))!r}"
        why = why or (None if sealed_already else _unsealable(message))
        if why is None and kind is AssistantMessage:
            why = _take_calls(message, seen, open_calls)
        if why is not None:
            return f"message {i} {why}"
    return f"call {next(iter(open_calls))!r} has no result" if open_calls else None


_KINDS = frozenset(MESSAGE_TYPES)


def _unsealable(message: Any) -> str | None:
    try:
        sealed(message)
    except ValueError as error:
        return str(error)
    return None


def _take_calls(message: AssistantMessage, seen: set[str], open_calls: dict[str, str]) -> str | None:
    for part in message.content:
        if type(part) is ToolCall:
            if part.id in seen:
                return f"uses the call id {part.id!r} a second time"
            seen.add(part.id)
            open_calls[part.id] = part.name
    return None


def _tools(tools: Any) -> str | None:
    names: set[str] = set()
    for tool in tools:
        if not isinstance(tool, ToolSpec):
            return f"its tools hold a {type(tool).__name__}, not a ToolSpec"
        if tool.name in names:
            return f"it has two tools named {tool.name!r}"
        names.add(tool.name)
    return None


_RANGES = {"max_tokens": (1, None), "temperature": (0, 2), "top_p": (0, 1)}


def _options(request: Any) -> str | None:
    return invalid_options(request.options, {tool.name for tool in request.tools})


def invalid_options(options: Any, tools: Collection[str]) -> str | None:
    """What is wrong with `Options` for a request with tools of these names, in one line, or `None`."""
    if not isinstance(options, Options):
        return f"the options are a {type(options).__name__}, not Options"
    for name, (low, high) in _RANGES.items():
        value = getattr(options, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return f"the option {name} is {value!r}, not a finite number"
        if value < low or (high is not None and value > high):
            return f"the option {name} is {value!r}, outside {low} to {high if high is not None else 'any number'}"
    if options.thinking_level not in THINKING_LEVELS:
        return f"the option thinking_level is {options.thinking_level!r}: expected one of {', '.join(THINKING_LEVELS)}"
    choice = options.tool_choice
    if choice is not None and choice not in ("auto", "none", "required") and choice not in tools:
        return f"the option tool_choice names {choice!r}, which is none of its tools"
    return None if surely_json(options.provider_params) else _not_json(options.provider_params, "provider_params")


def _not_json(value: Any, path: str) -> str | None:
    if value is None or isinstance(value, str | bool | int):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path} is {value!r}, which JSON cannot hold"
    if isinstance(value, Mapping):
        for key, item in value.items():
            why = f"{path} has the key {key!r}, not a string" if not isinstance(key, str) else _not_json(item, f"{path}.{key}")
            if why:
                return why
        return None
    if isinstance(value, list | tuple):
        return next((why for i, item in enumerate(value) if (why := _not_json(item, f"{path}[{i}]"))), None)
    return f"{path} is a {type(value).__name__}, which JSON cannot hold"
