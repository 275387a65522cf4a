"""Reads a function's parameters: type hints, defaults, what its docstring says, and whether it takes a context."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

from .hints import REQUIRED, Param


class Signature(NamedTuple):
    """What calling a tool's body takes."""

    params: tuple[Param, ...]
    extra: Param | None
    """`**kwargs`, its hint a dict."""
    takes_context: bool
    reserved: frozenset[str]
    """Names that `**kwargs` may not hold, because the call or a partial settles them: the receiver, the context."""


def read_signature(body: Any, *, skip_first: bool, context: type, hints_needed: bool, frame: Any) -> Signature:
    """The parameters of `body`, without its receiver (`skip_first`) and without a first one annotated `context`.

    `frame` is the caller's, where the names in postponed annotations may be local. Raises TypeError with what to change.
    """
    try:
        found = list(inspect.signature(body).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise TypeError(f"has a signature that cannot be read: {error}") from None
    bound = _bound_by_name(body)
    found = [p for p in found[skip_first:] if p.name not in bound]
    scope = _Scope(body, frame, context)
    takes_context = bool(found) and scope.is_context(found[0])
    if takes_context and found[0].kind is found[0].KEYWORD_ONLY:
        raise TypeError(f"parameter {found[0].name!r} gets the context by position: move it before the `*`")
    docs = _param_docs(inspect.getdoc(underlying(body)) or "")
    params: list[Param] = []
    extra = None
    for parameter in found[takes_context:]:
        hint = _hint(parameter, scope, hints_needed)
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = Param(parameter.name, dict.__class_getitem__((str, hint)), {})
        else:
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            params.append(Param(parameter.name, hint, default, docs.get(parameter.name, "")))
    reserved = (bound | _named(body)) - {p.name for p in params}
    return Signature(tuple(params), extra, takes_context, frozenset(reserved))


def _hint(parameter: inspect.Parameter, scope: _Scope, needed: bool) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise TypeError(f"*{parameter.name} cannot be passed: a call has named arguments only, use a list parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"parameter {parameter.name!r} is positional-only: a call has named arguments only, remove the `/`")
    if scope.is_context(parameter):
        raise TypeError(f"parameter {parameter.name!r} takes the context: make it the first parameter")
    if not needed:
        return Any
    if parameter.annotation is not parameter.empty:
        return scope.resolve(parameter)
    if parameter.kind is parameter.VAR_KEYWORD:
        return Any
    raise TypeError(f"parameter {parameter.name!r} has no type hint: annotate it")


def stripped(body: Any) -> Any:
    """The function that runs when `body` is called: without partials and methods, and `__call__` of an object."""
    while True:
        if isinstance(body, functools.partial):
            body = body.func
        elif isinstance(body, classmethod | staticmethod | types.MethodType):
            body = body.__func__
        elif not hasattr(body, "__code__") and inspect.isfunction(call := inspect.getattr_static(type(body), "__call__", None)):
            body = call
        else:
            return body


def underlying(body: Any) -> Any:
    """The function somebody wrote: as `stripped`, and without what decorators wrapped around it."""
    while hasattr(body := stripped(body), "__wrapped__"):
        body = body.__wrapped__
    return body


def is_async(body: Any) -> bool:
    """Whether calling `body` gives a coroutine: functions, methods, partials, objects with an async `__call__`."""
    return inspect.iscoroutinefunction(stripped(body))


def is_generator(body: Any) -> bool:
    """Whether calling `body` gives a generator, sync or async."""
    function = stripped(body)
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def is_method(body: Any) -> bool:
    """Whether `body` is a function in a class, still waiting for its `self`: a first parameter so named, or without a hint."""
    inside = body.__qualname__.rpartition(".")[0] if inspect.isfunction(body) else ""
    if not inside or inside.endswith("<locals>"):
        return False
    first = next(iter(inspect.signature(body).parameters.values()), None)
    return first is not None and (first.annotation is first.empty or first.name in ("self", "cls"))


def name_of(body: Any) -> str:
    """The name a programmer would call `body` by."""
    while isinstance(body, functools.partial):
        body = body.func
    return str(getattr(body, "__name__", type(body).__name__))


def doc_of(body: Any) -> str:
    """The docstring's first paragraph before any section, on one line; a callable object's class may have it too."""
    target = body.func if isinstance(body, functools.partial) else body
    doc = underlying(target).__doc__ or (None if hasattr(target, "__code__") else type(target).__doc__) or ""
    return " ".join(_SECTION.split(inspect.cleandoc(doc), 1)[0].split())


def where_of(body: Any) -> str:
    """ "file:line" of the function somebody wrote; its type's name where there is no source."""
    code = getattr(underlying(body), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else f"{type(body).__module__}.{type(body).__qualname__}"


def caller(depth: int) -> Any:
    """The frame `depth` calls above whoever asks, for `read_signature`."""
    return sys._getframe(depth + 1)


def _named(body: Any) -> set[str]:
    """Every parameter of the function underneath that a keyword argument could reach."""
    code = getattr(underlying(body), "__code__", None)
    if code is None:
        return set()
    return set(code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount])


def _bound_by_name(body: Any) -> set[str]:
    """Keyword arguments a partial has settled. They stay the programmer's: the model neither sees nor sets them."""
    bound: set[str] = set()
    while isinstance(body, functools.partial):
        bound.update(body.keywords)
        body = body.func
    return bound


class _Scope:
    """Turns annotations into types, in the scope where the function was written."""

    def __init__(self, body: Any, frame: Any, context: type) -> None:
        function = underlying(body)
        self._globals = getattr(function, "__globals__", {})
        self._frame, self._function, self._context = frame, function, context
        self._written = re.compile(rf"(\w+\.)*{context.__name__}(\[.*\])?").fullmatch

    @functools.cached_property
    def _locals(self) -> dict[str, Any]:
        """What the enclosing functions and classes had defined, read from their frames: postponed annotations need it."""
        scope, frame = getattr(self._function, "__qualname__", "").rpartition(".")[0], self._frame
        found: dict[str, Any] = {}
        while scope and frame is not None:
            scope = scope.removesuffix(".<locals>")
            if frame.f_code.co_qualname == scope and frame.f_globals is self._globals:
                found = {**frame.f_locals, **found}
                scope = scope.rpartition(".")[0]
            frame = frame.f_back
        return {**found, **_closure(self._function)}

    def resolve(self, parameter: inspect.Parameter) -> Any:
        holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        try:
            hints = typing.get_type_hints(holder, self._globals, self._locals, include_extras=True)
        except NameError as error:
            raise TypeError(
                f"parameter {parameter.name!r}: the name {error.name!r} in its annotation cannot be found here; "
                "import it for real, not only for type checking"
            ) from None
        except Exception as error:  # an annotation is code and may raise anything
            raise TypeError(f"parameter {parameter.name!r}: its annotation cannot be read: {error}") from None
        return hints[parameter.name]

    def is_context(self, parameter: inspect.Parameter) -> bool:
        if parameter.annotation is parameter.empty:
            return False
        try:
            hint = self.resolve(parameter)
        except TypeError:
            # The name may have been imported for type checking only. Other failures are reported in their turn.
            return isinstance(parameter.annotation, str) and self._written(parameter.annotation.strip()) is not None
        if typing.get_origin(hint) is typing.Annotated:
            hint = hint.__origin__
        return hint is self._context or typing.get_origin(hint) is self._context


def _closure(function: Any) -> Mapping[str, Any]:
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    found = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


# --- docstrings ----------------------------------------------------------------------------------

_SECTION = re.compile(
    r"\n\s*\n|^(?:Args|Arguments|Parameters|Returns|Raises|Examples?):?[ \t]*$|^[ \t]*:\w+[^:\n]*:", re.MULTILINE
)
_FIELD = re.compile(r"^[ \t]*:param\s+(?:[^:\n]*\s)?\*{0,2}(\w+):[ \t]*(.*(?:\n[ \t]+(?!:).+)*)", re.MULTILINE)
_GOOGLE = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+.*(?:\n|\Z)|[ \t]*\n)+)", re.MULTILINE)
_GOOGLE_ENTRY = re.compile(r"^\*{0,2}(\w+)[ \t]*(?:\([^\n]*?\))?:[ \t]*(.*(?:\n[ \t]+.*)*)", re.MULTILINE)
_NUMPY = re.compile(r"^(?:Other )?Parameters[ \t]*\n-{3,}[ \t]*\n(.*?)(?=^[^\n]+\n-{3,}[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NUMPY_ENTRY = re.compile(r"^\*{0,2}(\w+)[ \t]*(?::[^\n]*)?\n((?:[ \t]+.*(?:\n|\Z))+)", re.MULTILINE)


def _param_docs(doc: str) -> dict[str, str]:
    """What a docstring in Google, NumPy or reST style says about each parameter."""
    found: dict[str, str] = {}
    entries = list(_FIELD.findall(doc))
    for section in _GOOGLE.findall(doc):
        entries += _GOOGLE_ENTRY.findall(inspect.cleandoc("\n" + section))
    for section in _NUMPY.findall(doc):
        entries += _NUMPY_ENTRY.findall(section)
    for name, text in entries:
        found.setdefault(name, " ".join(text.split()))
    return found
