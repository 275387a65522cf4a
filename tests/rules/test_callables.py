"""Whatever can be called with a context is called rightly, and what it gives is awaited if it must be."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import Any

import pytest

from beforehand import Block, Hook, Queue, hook
from seams.stage import Stage, play

NO = Block("Not today.")
TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")


def plain(_: Any) -> Block:
    return NO


async def asynchronous(_: Any) -> Block:
    await asyncio.sleep(0)
    return NO


async def nothing() -> None: ...


class Guards:
    def plain(self, _: Any) -> Block:
        return NO

    async def asynchronous(self, _: Any) -> Block:
        return NO

    @classmethod
    def of_class(cls, _: Any) -> Block:
        return NO

    @classmethod
    async def of_class_async(cls, _: Any) -> Block:
        return NO

    @staticmethod
    async def static_async(_: Any) -> Block:
        return NO


class Callable_:
    def __call__(self, _: Any) -> Block:
        return NO


class AsyncCallable:
    async def __call__(self, _: Any) -> Block:
        return NO


class Inherited(AsyncCallable):
    pass


class HidesItsColour:
    """A plain `__call__` that gives an awaitable which is no coroutine."""

    def __call__(self, _: Any) -> Awaitable[Block]:
        return Slow()


class Slow:
    def __await__(self) -> Generator[Any, None, Block]:
        yield from nothing().__await__()
        return NO


def partial_of(fn: Any) -> Any:
    return functools.partial(fn, "bound")


def takes_more(_bound: str, _: Any) -> Block:
    return NO


async def takes_more_async(_bound: str, _: Any) -> Block:
    return NO


def decorated(fn: Any) -> Any:
    """A decorator that does not know of coroutines, as most do not."""

    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def with_default(_: Any, strict: bool = True) -> Block:
    return NO


def with_anything(*args: Any, **kwargs: Any) -> Block:
    return NO


FORMS: dict[str, Callable[[Any], Any]] = {
    "a function": plain,
    "an async function": asynchronous,
    "a lambda": lambda _: NO,
    "a method": Guards().plain,
    "an async method": Guards().asynchronous,
    "a class method": Guards.of_class,
    "an async class method": Guards.of_class_async,
    "an async static method": Guards.static_async,
    "a partial": partial_of(takes_more),
    "a partial of an async function": partial_of(takes_more_async),
    "a partial of a partial": functools.partial(partial_of(takes_more_async)),
    "a partial of an async callable object": functools.partial(AsyncCallable()),
    "a callable object": Callable_(),
    "an async callable object": AsyncCallable(),
    "an async callable object whose class inherits it": Inherited(),
    "a callable object that gives an awaitable": HidesItsColour(),
    "a function that gives a coroutine": lambda context: asynchronous(context),
    "a decorated async function": decorated(asynchronous),
    "a function with an option": with_default,
    "a function that takes anything": with_anything,
}


@pytest.mark.parametrize("timeout", [None, 60], ids=["no time limit", "a time limit"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_guard_of_any_form_is_heard(form: str, timeout: float | None) -> None:
    """With a time limit, what is not known to be async is called in a thread, and what it gives awaited outside."""
    stage = await play(Hook(seam="before_tool_call", fn=FORMS[form], timeout=timeout))
    assert (stage.bodies, stage.results[0].text) == ([], "Not today.")
    control = await play(Hook(seam="before_tool_call", fn=lambda _: None, timeout=timeout))
    assert control.bodies == [1]


@pytest.mark.parametrize("form", FORMS)
def test_a_hook_of_any_form_has_a_name_and_a_place(form: str) -> None:
    made = Hook(seam="before_tool_call", fn=FORMS[form])
    assert made.name
    assert "test_callables.py:" in made.where


@pytest.mark.parametrize("timeout", [None, 60], ids=["no time limit", "a time limit"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_hook_sees_the_context_variables_of_the_run(timeout: float | None, is_async: bool) -> None:
    seen: list[str] = []

    async def look_async(_: Any) -> None:
        seen.append(TENANT.get())

    token = TENANT.set("acme")
    try:
        fn = look_async if is_async else lambda _: seen.append(TENANT.get())
        await play(Hook(seam="before_tool_call", fn=fn, timeout=timeout))
    finally:
        TENANT.reset(token)
    assert seen == ["acme"]


async def test_a_guard_may_give_a_task_that_it_started() -> None:
    stage = await play(Hook(seam="before_tool_call", fn=lambda context: asyncio.ensure_future(asynchronous(context))))
    assert (stage.bodies, stage.results[0].text) == ([], "Not today.")


async def test_sync_and_async_hooks_of_one_seam_are_asked_in_order() -> None:
    log: list[str] = []

    async def slow(_: Any) -> None:
        await asyncio.sleep(0)
        log.append("slow")

    await play(*[Hook(seam="before_tool_call", fn=fn) for fn in (slow, lambda _: log.append("quick"), slow)])
    assert log == ["slow", "quick", "slow"]


@pytest.mark.parametrize("seam", ["on_chunk", "on_message", "authorize_request", "before_run", "finish_turn"])
async def test_an_async_callable_object_is_awaited_at_other_seams_too(seam: str) -> None:
    class Notes:
        async def __call__(self, _: Any) -> list[Any]:
            heard.append(seam)
            return []

    heard: list[str] = []
    stage = await play(Hook(seam=seam, fn=Notes()))
    assert heard
    assert stage.result.stop_reason == "completed"


async def test_the_decorators_take_functions_methods_and_callable_objects_with_and_without_parentheses() -> None:
    class Both:
        @hook.before_tool_call
        def one(self, call: Any) -> Queue:
            return Queue(f"one {call.name}")

        @hook.before_tool_call(order=1)
        async def two(self, call: Any) -> Queue:
            return Queue(f"two {call.name}")

    @hook.before_tool_call
    async def three(call: Any) -> Queue:
        return Queue(f"three {call.name}")

    @hook.before_tool_call(name="four", order=2)
    def fourth(call: Any) -> Queue:
        return Queue(f"four {call.name}")

    five = hook.before_tool_call(order=3)(Five())
    stage = Stage(Both(), fourth, three, five)  # type: ignore[arg-type]
    await stage.run()
    assert [t for _, t in stage.asked(1)[3:]] == ["one look", "three look", "two look", "four look", "five look"]
    assert [d.hook for d in stage.result.decisions] == ["one", "three", "two", "four", "Five"]


class Five:
    async def __call__(self, call: Any) -> Queue:
        return Queue(f"five {call.name}")


async def test_a_decorated_method_knows_its_object() -> None:
    class Counting:
        def __init__(self, limit: int) -> None:
            self.limit = limit

        @hook.before_tool_call
        def judge(self, call: Any) -> Block | None:
            return Block(f"More than {self.limit}.") if call.args["n"] > self.limit else None

    assert (await play(Counting(1))).bodies == [1]  # type: ignore[arg-type]
    assert (await play(Counting(0))).results[0].text == "More than 0."  # type: ignore[arg-type]


async def test_a_decorated_method_of_one_object_is_one_hook_and_of_two_objects_two() -> None:
    class Watch:
        def __init__(self) -> None:
            self.asked = 0

        @hook.before_tool_call
        def watch(self, call: Any) -> None:
            self.asked += 1

    one, other = Watch(), Watch()
    await Stage(one, one.watch, one.watch, other).run()  # type: ignore[arg-type]
    assert (one.asked, other.asked) == (1, 1)


def test_a_hook_can_be_called_like_the_function_it_is_made_of() -> None:
    @hook.before_tool_call
    def judge(call: Any) -> Block | None:
        return NO if call == "this" else None

    assert (judge("this"), judge("that")) == (NO, None)


async def test_an_async_generator_is_no_hook() -> None:
    async def guard(_: Any) -> Any:
        yield NO

    stage = await play(Hook(seam="before_tool_call", fn=guard, name="guard"))
    assert (stage.bodies, stage.results[0].is_error) == ([], True)


async def test_a_coroutine_inside_what_an_async_hook_gives_is_refused() -> None:
    inner = asynchronous(None)

    async def guard(_: Any) -> Any:
        return inner

    stage = await play(Hook(seam="before_tool_call", fn=guard, name="guard"))
    inner.close()
    assert (stage.bodies, stage.results[0].is_error) == ([], True)
