"""`Hook`, the one door: Python functions, rule files and lambdas all become values of this type."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypedDict, Unpack, overload

import msgspec

from ..errors import HookDefinitionError, nearest
from ..frozen import Frozen
from ..messages import storable
from ..seams import BY_NAME, SeamSpec

OnError = Literal["closed", "open", "abort"]

UNSEEN = "(shadow)"
"""Where the place holders are "defined" that make a run come past seams at which it has no hooks. Nobody is told of them."""


class Hook(Frozen, kw_only=True, eq=False):
    """A callable bound to a seam.

    `fn` takes the seam's context and returns (or, if async, is awaited for) `None`, a decision, or a sequence of them.
    `tools` and `loops` are globs that confine it; `timeout` is in seconds; `where` is file:line of its definition.
    `on_error` says what a failure means: "closed" (never lets pass), "open" (lets pass, recorded) or "abort" (ends the run).
    """

    seam: str
    fn: Callable[[Any], Any]
    name: str = ""
    tools: tuple[str, ...] = ()
    loops: tuple[str, ...] | None = None
    order: float = 0
    timeout: float | None = None
    on_error: OnError = "closed"
    final: bool = False
    hold: bool = False
    where: str = ""
    bound: tuple[Hook, Any] | None = None
    """For a method: the hook as decorated, and the object. Set by attribute access."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", storable(self.name or name_of(self.fn)))
        msgspec.structs.force_setattr(self, "where", storable(self.where or where_of(self.fn)))
        msgspec.structs.force_setattr(self, "tools", () if self.tools is None else _globs(self, "tools", self.tools))
        if self.loops is not None:
            msgspec.structs.force_setattr(self, "loops", _globs(self, "loops", self.loops))
        _check_options(self)

    @property
    def spec(self) -> SeamSpec:
        return BY_NAME[self.seam]

    @property
    def is_async(self) -> bool:
        return is_async_callable(self.fn)

    def __call__(self, *args: Any) -> Any:
        """Call the function itself, for unit tests. Inside a run only the dispatcher does."""
        return self.fn(*args)

    def __get__(self, instance: Any, owner: type | None = None) -> Hook:
        """A hook decorated in a class body: `obj.method` is the hook bound to `obj`."""
        if instance is None:
            return self
        return msgspec.structs.replace(self, fn=self.fn.__get__(instance, owner), bound=(self, instance))

    @property
    def identity(self) -> tuple[int, int]:
        """Equal for what counts as one Hook object: itself, or one decorated method of one object."""
        return (id(self), 0) if self.bound is None else (id(self.bound[0]), id(self.bound[1]))


def is_async_callable(fn: Any) -> bool:
    """Whether calling `fn` gives an awaitable: functions, methods, partials and objects with an async `__call__`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def name_of(fn: Any) -> str:
    """A name people recognise: the function's, or that of the callable object's class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


def where_of(fn: Any) -> str:
    """file:line of the definition, relative to the working directory where that is shorter."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    code = getattr(inspect.unwrap(fn) if callable(fn) else fn, "__code__", None)
    if code is None:
        code = getattr(getattr(type(fn), "__call__", None), "__code__", None)  # noqa: B004 - not asking whether it is callable
    if code is None:
        return "built-in"
    path = code.co_filename
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return f"{path if relative.startswith('..') else relative}:{code.co_firstlineno}"


def _globs(hook: Hook, field: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable) or not all(isinstance(g, str) for g in value):
        raise _bad(hook, f'{field}={value!r} must be a list of names or globs, such as {field}=["book_*"]')
    return tuple(value)


def _bad(hook: Hook, why: str) -> HookDefinitionError:
    return HookDefinitionError(f"hook {hook.name!r} ({hook.where}): {why}")


def unknown_seam(name: str) -> HookDefinitionError:
    near = nearest(name, BY_NAME)
    hint = f"did you mean {near!r}?" if near else f"the seams are {', '.join(BY_NAME)}"
    return HookDefinitionError(f"there is no seam {name!r}: {hint}")


def _check_options(hook: Hook) -> None:
    if hook.seam not in BY_NAME:
        raise _bad(hook, str(unknown_seam(hook.seam)))
    spec = hook.spec
    if isinstance(hook.fn, Hook):
        raise _bad(
            hook, f"{hook.fn.name!r} is a hook at {hook.fn.seam} already: one decorator per function, or Hook(seam=..., fn=it.fn)"
        )
    if isinstance(hook.fn, staticmethod | classmethod):
        raise _bad(hook, f"write @{type(hook.fn).__name__} above the hook decorator, not below it")
    if not callable(hook.fn):
        raise _bad(hook, f"expected something callable, got {type(hook.fn).__name__}")
    if hook.on_error not in ("closed", "open", "abort"):
        raise _bad(hook, f'on_error={hook.on_error!r} must be "closed", "open" or "abort"')
    if isinstance(hook.order, bool) or not isinstance(hook.order, int | float) or hook.order != hook.order:
        raise _bad(hook, f"order={hook.order!r} must be a number")
    if hook.timeout is not None and (
        isinstance(hook.timeout, bool) or not isinstance(hook.timeout, int | float) or not hook.timeout > 0
    ):
        raise _bad(hook, f"timeout={hook.timeout!r} must be a number of seconds above 0, or None")
    if hook.tools and not spec.by_tool:
        raise _bad(
            hook,
            f"tools= confines hooks at prepare_tool_call, before_tool_call and after_tool_call; {hook.seam} is about no tool",
        )
    if hook.hold and hook.seam != "on_message":
        raise _bad(hook, "hold=True delays what on_message judges; it means nothing elsewhere")
    if hook.final and "gate" not in spec.kind:
        raise _bad(hook, f"final=True hooks judge the final value and may not replace it, but {hook.seam} only replaces")


def check_signature(hook: Hook) -> None:
    """Raise unless the hook can be called with one positional argument. Asked when an agent is made, methods bound."""
    try:
        signature = inspect.signature(hook.fn)
    except (TypeError, ValueError):  # built-ins without a signature
        return
    try:
        signature.bind(object())
    except TypeError:
        form = f"def {name_of(hook.fn)}({_CONTEXT_NAMES.get(hook.seam, 'context')}): ..."
        raise _bad(
            hook, f"takes {signature}, but is called with one argument, the {hook.spec.context.__name__}: write {form}"
        ) from None


_CONTEXT_NAMES = {
    "before_run": "start", "before_turn": "turn", "on_chunk": "chunk", "on_message": "incoming", "prepare_tool_call": "call",
    "before_tool_call": "call", "after_tool_call": "outcome", "finish_turn": "turn", "after_turn": "turn",
}  # fmt: skip


class HookOptions(TypedDict, total=False):
    """What every decorator takes; `hold` only at on_message. `Hook` says what they mean."""

    tools: Iterable[str]
    loops: Iterable[str] | None
    order: float
    timeout: float | None
    on_error: OnError
    final: bool
    name: str | None
    hold: bool


class SeamDecorator:
    """`@hook.<seam>`, with or without options."""

    __slots__ = ("seam",)

    def __init__(self, seam: str) -> None:
        self.seam = seam

    @overload
    def __call__(self, fn: Callable[..., Any], /) -> Hook: ...
    @overload
    def __call__(self, /, **options: Unpack[HookOptions]) -> Callable[[Callable[..., Any]], Hook]: ...
    def __call__(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if fn is not None:
            return Hook(seam=self.seam, fn=fn)
        unknown = options.keys() - HookOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(HookOptions.__annotations__)
            raise HookDefinitionError(
                f"@hook.{self.seam} has no option {sorted(unknown)[0]!r}; it takes {known} (hold at on_message)"
            )
        options["name"] = options.get("name") or ""
        return lambda function: Hook(seam=self.seam, fn=function, **options)


class Hooks:
    """The decorators, one for each seam."""

    before_run = SeamDecorator("before_run")
    before_turn = SeamDecorator("before_turn")
    prepare_request = SeamDecorator("prepare_request")
    transform_context = SeamDecorator("transform_context")
    convert_to_llm = SeamDecorator("convert_to_llm")
    before_provider_call = SeamDecorator("before_provider_call")
    get_api_key = SeamDecorator("get_api_key")
    authorize_request = SeamDecorator("authorize_request")
    on_chunk = SeamDecorator("on_chunk")
    on_message = SeamDecorator("on_message")
    prepare_tool_call = SeamDecorator("prepare_tool_call")
    before_tool_call = SeamDecorator("before_tool_call")
    after_tool_call = SeamDecorator("after_tool_call")
    finish_turn = SeamDecorator("finish_turn")
    after_turn = SeamDecorator("after_turn")
    prepare_next_turn = SeamDecorator("prepare_next_turn")
    before_compaction = SeamDecorator("before_compaction")

    def __getattr__(self, name: str) -> SeamDecorator:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unknown_seam(name)


hook = Hooks()
