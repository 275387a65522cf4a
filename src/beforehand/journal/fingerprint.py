"""What tools and hooks are, in a few bytes: a run that goes on says what has changed since it began.

A fingerprint is of two parts, "code.configuration", and of three where a tool is an agent: "code.configuration.inside". Records
of older versions have the first alone, or the first two, and are compared by those.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from ..frozen import canonical
from .configured import code_bytes, configuration, has, said_by

NAMELESS = re.compile(r".*<lambda>|.*#\d+")
"""The names of hooks that nobody has named: of functions without a name, and of rules without a label, which tell their place."""


def of_tool(tool: Any) -> str:
    """Of what the model is told about a tool, of its code, and of what that is configured with."""
    told = canonical([tool.spec, tool.replay, tool.mode])
    repairs = [] if tool.prepare_arguments is None else [configuration(tool.prepare_arguments)]
    repairs += [name.encode() + configuration(tool.canonical[name]) for name in sorted(tool.canonical)]
    mark = f"{_short(told, _code(tool.unguarded))}.{_short(canonical(tool.timeout), configuration(tool.unguarded), *repairs)}"
    if (inside := has(tool.unguarded, "_inside")) is None:
        return mark
    tools, hooks = inside()
    return f"{mark}.{_short(canonical([{one.name: of_tool(one) for one in tools}, list(prints_of(hooks).items())]))}"


def of_hook(hook: Any) -> str:
    """Of where and how a hook is registered, of its code, and of what that is configured with."""
    facts = canonical([hook.seam, hook.name, hook.tools, hook.loops, hook.order, hook.on_error, hook.final, hook.hold])
    held = b"" if hook.spec.value is None else configuration(hook.fn)  # what gives keys may hold them
    return f"{_short(facts, _code(hook.fn))}.{_short(canonical(hook.timeout), held)}"


def _short(*parts: bytes) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:16]


def _code(fn: Any) -> bytes:
    """The code of a function, of a method, or of an object's `__call__`. Objects with a `fingerprint` say it themselves."""
    if (said := said_by(fn)) is not None:
        return str(said).encode()
    inner = next((inner for name in ("__func__", "__wrapped__", "func") if (inner := has(fn, name)) is not None), fn)
    if type(inner) is not FunctionType:
        inner = getattr(type(inner), "__call__", inner)  # noqa: B004 - the code behind it is what is wanted
    code = getattr(inner, "__code__", None)
    return code_bytes(code) if code is not None else type(fn).__qualname__.encode()


def differences(then: dict[str, Any], tools: Iterable[Any], hooks: Sequence[Any]) -> list[str]:
    """What of the recorded tools and hooks is not as it was, one clause each."""
    return [
        *_compare("tool", then["tools"], {tool.name: of_tool(tool) for tool in tools}),
        *_compare("hook", then["hooks"], prints_of(hooks)),
        *_moved(then["hooks"], hooks),
    ]


def prints_of(hooks: Sequence[Any]) -> dict[str, str]:
    """The fingerprints of hooks by seam and name, in their order, numbered where a name occurs twice at a seam."""
    return {name: of_hook(hook) for name, hook in _named(hooks).items()}


def may_be_new(then: Sequence[dict[str, str]], hook: Any) -> bool:
    """Whether a name that nobody gave tells nothing of this hook, and it is not as one that was there `then`, in any process."""
    if NAMELESS.fullmatch(hook.name) is None:
        return False
    now = of_hook(hook)
    return not any([_same(mark, now) for prints in then for mark in prints.values()])


def were_there(then: dict[str, str], hooks: Sequence[Any]) -> list[Any]:
    """Those of these hooks that were there `then`, just as they are. Of hooks at 7 that is not known: what they are made with is
    left out of their fingerprints.
    """
    marks = {*then.values()}
    return [hook for hook in hooks if hook.spec.value is not None and of_hook(hook) in marks]


def same_at(then: dict[str, str], hooks: Sequence[Any]) -> frozenset[str]:
    """The seams at which these hooks are those whose fingerprints were `then`, in the same order."""
    now: dict[str, list[tuple[str, str]]] = {}
    for name, mark in prints_of(hooks).items():
        now.setdefault(name.rpartition(" at ")[2], []).append((name, mark))
    was: dict[str, list[tuple[str, str]]] = {}
    for name, mark in then.items():
        was.setdefault(name.rpartition(" at ")[2], []).append((name, mark))
    return frozenset([
        seam for seam, marks in now.items()
        if [name for name, _ in marks] == [name for name, _ in was.get(seam, ())]
        and all([_same(a, b) for (_, a), (_, b) in zip(was[seam], marks, strict=True)])
    ])  # fmt: skip


def _named(hooks: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for hook in hooks:
        name, number = f"{hook.name} at {hook.seam}", 2
        while name in named:
            name, number = f"{hook.name} ({number}) at {hook.seam}", number + 1
        named[name] = hook
    return named


def _compare(what: str, then: dict[str, str], today: dict[str, str]) -> list[str]:
    gone = [f"{what} {name} is gone" for name in then if name not in today]
    new = [f"{what} {name} is new" for name in today if name not in then]
    changed = [f"{what} {name} has changed" for name, mark in then.items() if name in today and not _same(mark, today[name])]
    return gone + new + changed


def _same(then: str, today: str) -> bool:
    """Whether two fingerprints agree in what both tell."""
    return all(a == b for a, b in zip(then.split("."), today.split("."), strict=False))


def _moved(then: dict[str, str], hooks: Sequence[Any]) -> list[str]:
    """The seams whose hooks of one `order` are not asked in the sequence in which they were."""
    places: dict[tuple[Any, ...], list[str]] = {}
    for name, hook in _named(hooks).items():
        if name in then:
            places.setdefault((hook.seam, hook.order, hook.final), []).append(name)
    rank = {name: number for number, name in enumerate(then)}
    moved = [place[0] for place, names in places.items() if sorted(names, key=rank.__getitem__) != names]
    return [f"the hooks at {seam} are asked in another order" for seam in dict.fromkeys(moved)]
