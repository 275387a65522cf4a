"""What tools and hooks are, in a few bytes: a run that goes on says what has changed since it began."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from ..frozen import canonical

_known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def of_tool(tool: Any) -> str:
    """Of what the model is told about a tool, and of its code."""
    return _remembered(tool, lambda: _short(canonical([tool.spec, tool.replay, tool.mode]), _code(tool.unguarded)))


def of_hook(hook: Any) -> str:
    """Of where and how a hook is registered, and of its code."""
    facts = [hook.seam, hook.name, hook.tools, hook.loops, hook.order, hook.on_error, hook.final, hook.hold]
    return _remembered(hook, lambda: _short(canonical(facts), _code(hook.fn)))


def _remembered(item: Any, make: Any) -> str:
    try:
        found = _known.get(item)
        if found is None:
            found = _known[item] = make()
    except TypeError:  # it takes no weak reference
        found = make()
    return str(found)


def _short(*parts: bytes) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:16]


def _code(fn: Any) -> bytes:
    """The code of a function, of a method, or of an object's `__call__`. Objects with a `fingerprint` say it themselves."""
    if (said := getattr(fn, "fingerprint", None)) is not None:
        return str(said() if callable(said) else said).encode()
    inner = getattr(fn, "__func__", None) or getattr(fn, "__wrapped__", None) or getattr(fn, "func", None) or fn
    if not isinstance(inner, FunctionType):
        inner = getattr(type(inner), "__call__", inner)  # noqa: B004 - the code behind it is what is wanted
    code = getattr(inner, "__code__", None)
    return _bytes_of(code) if code is not None else type(fn).__qualname__.encode()


def _bytes_of(code: CodeType) -> bytes:
    constants = [_bytes_of(c) if isinstance(c, CodeType) else repr(c).encode() for c in code.co_consts]
    return b"\n".join([code.co_code, *constants, repr(code.co_names).encode()])


def differences(then: dict[str, Any], tools: Iterable[Any], hooks: Sequence[Any]) -> list[str]:
    """What of the recorded tools and hooks is not as it was, one clause each."""
    return [
        *_compare("tool", then["tools"], {tool.name: of_tool(tool) for tool in tools}),
        *_compare("hook", then["hooks"], prints_of(hooks)),
    ]


def prints_of(hooks: Sequence[Any]) -> dict[str, str]:
    """The fingerprints of hooks by seam and name, numbered where a name occurs twice at a seam."""
    prints: dict[str, str] = {}
    for hook in hooks:
        name, number = f"{hook.name} at {hook.seam}", 2
        while name in prints:
            name, number = f"{hook.name} ({number}) at {hook.seam}", number + 1
        prints[name] = of_hook(hook)
    return prints


def _compare(what: str, then: dict[str, str], today: dict[str, str]) -> list[str]:
    gone = [f"{what} {name} is gone" for name in then if name not in today]
    new = [f"{what} {name} is new" for name in today if name not in then]
    changed = [f"{what} {name} has changed" for name, mark in then.items() if name in today and today[name] != mark]
    return gone + new + changed
