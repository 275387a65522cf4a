"""What can be seen in a hook's source before it ever runs: decisions its seam does not take, refusals without a reason.

Only what is plain is judged: a `return` of a decision (or of several) that names its class. Everything else is checked
when it happens.
"""

from __future__ import annotations

import ast
import functools
import inspect
import logging
import textwrap
import types
import typing
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import decisions
from ..decisions import Block, Decision, Effect, Replace, Verdict
from ..errors import HookDefinitionError
from .hook import Hook

logger = logging.getLogger("beforehand")

_ROOTS = (Decision, Verdict, Effect)
_NAMES = frozenset(name for name, value in vars(decisions).items() if isinstance(value, type) and issubclass(value, Decision))


class Seen(NamedTuple):
    """A decision that a function returns: its class, its keywords, whether it is given any argument, and the line."""

    kind: type[Decision]
    keywords: tuple[str, ...]
    empty: bool
    line: int


def check_visible(hook: Hook) -> None:
    """Raise for a return type the seam does not take; warn about what the source shows to go wrong.

    A `return` in the source may belong to another seam that shares the function, so it is no error by itself: it is
    refused when it happens.
    """
    spec = hook.spec
    forms = ", ".join(spec.forms()) or "nothing but None"
    declared = declared_decisions(hook.fn)
    if declared and not any(kind in spec.verdicts or kind in spec.effects for kind in declared):
        names = " or ".join(kind.__name__ for kind in declared)
        raise HookDefinitionError(
            f"hook {hook.name!r} ({hook.where}) says that it returns {names}, but a hook at {spec.name} may return {forms}"
        )
    file = hook.where.rpartition(":")[0]
    for seen in visible_decisions(hook.fn):
        name = seen.kind.__name__
        wrong = [k for k in seen.keywords if k not in spec.verdicts.get(Replace, ())] if seen.kind is Replace else []
        if (seen.kind not in spec.verdicts and seen.kind not in spec.effects) or wrong:
            shown = f"{name}({wrong[0]}=)" if wrong else name
            logger.warning(
                "hook %r (%s:%d) returns %s, which will be refused: a hook at %s may return %s",
                hook.name, file, seen.line, shown, spec.name, forms,
            )  # fmt: skip
        elif seen.kind is Block and seen.empty and spec.guards == "call":
            logger.warning(
                "hook %r (%s:%d) blocks without a reason: say why and what to do instead, or the model will only try again",
                hook.name, file, seen.line,
            )  # fmt: skip


def declared_decisions(fn: Any) -> tuple[type[Decision], ...]:
    """The decisions in a function's return annotation, as far as it names them."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        hint = typing.get_type_hints(fn).get("return")
    except Exception:  # what cannot be resolved cannot be seen
        return ()
    named = [hint, *typing.get_args(hint), *(inner for part in typing.get_args(hint) for inner in typing.get_args(part))]
    return tuple([kind for kind in named if isinstance(kind, type) and issubclass(kind, Decision) and kind not in _ROOTS])


def visible_decisions(fn: Any) -> tuple[Seen, ...]:
    """The decisions that can be seen in a function's `return` statements."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not isinstance(fn, types.FunctionType | types.MethodType):
        fn = getattr(type(fn), "__call__", None)  # noqa: B004 - not asking whether it is callable
    function = getattr(fn, "__func__", fn)
    code = getattr(function, "__code__", None)
    if code is None:
        return ()
    known = _known.get(code)
    if known is None:
        known = _known[code] = _look(function, code)
    return known


_known: weakref.WeakKeyDictionary[types.CodeType, tuple[Seen, ...]] = weakref.WeakKeyDictionary()


def _look(function: Any, code: types.CodeType) -> tuple[Seen, ...]:
    if not _NAMES & {name for known in _codes(code) for name in known.co_names}:
        return ()
    return tuple(_in_source(function))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _in_source(function: types.FunctionType) -> Iterator[Seen]:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for value in _returned(tree.body[0].body):
        for call in _calls(value):
            kind = _resolve(call.func, function)
            if isinstance(kind, type) and issubclass(kind, Decision):
                keywords = tuple(k.arg for k in call.keywords if k.arg is not None)
                empty = not call.args and not any(k.arg in (None, "reason") for k in call.keywords)
                yield Seen(kind, keywords, empty, first + call.lineno - 1)


def _returned(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """The values of the `return` statements of a body, not of functions inside it."""
    for statement in body:
        if isinstance(statement, ast.Return) and statement.value is not None:
            yield statement.value
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _returned(getattr(statement, field, []))
            for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
                yield from _returned(part.body)


def _calls(value: ast.expr) -> Iterator[ast.Call]:
    if isinstance(value, ast.Call):
        yield value
    elif isinstance(value, ast.IfExp):
        yield from _calls(value.body)
        yield from _calls(value.orelse)
    elif isinstance(value, ast.Tuple | ast.List):
        for item in value.elts:
            yield from _calls(item)


def _resolve(name: ast.expr, function: types.FunctionType) -> Any:
    if isinstance(name, ast.Name):
        return function.__globals__.get(name.id)
    if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name):
        return getattr(function.__globals__.get(name.value.id), name.attr, None)
    return None
