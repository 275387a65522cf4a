"""Waiting for user code that may never give up: it can be left behind, running on in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any

logger = logging.getLogger("beforehand")


class Rest:
    """The rest of a coroutine that has been started and waits for `awaited`.

    Awaiting it costs no task. A cancellation is passed on to the coroutine; if one arrives while `give_up()` is true, the
    coroutine has outlived an earlier one: it is left behind, and the await raises CancelledError.
    """

    __slots__ = ("_awaited", "_body", "_give_up", "_thrown")

    def __init__(
        self, body: Coroutine[Any, Any, Any], awaited: Any, give_up: Callable[[], bool], thrown: BaseException | None = None
    ) -> None:
        self._body, self._awaited, self._give_up, self._thrown = body, awaited, give_up, thrown

    def __await__(self) -> Generator[Any, Any, Any]:
        body, awaited, thrown = self._body, self._awaited, self._thrown
        while True:
            if thrown is None:
                try:
                    yield awaited
                except GeneratorExit:
                    body.close()
                    raise
                except BaseException as error:
                    thrown = error
            if isinstance(thrown, asyncio.CancelledError) and self._give_up():
                leave_behind(body, thrown)
                raise thrown
            try:
                awaited = body.send(None) if thrown is None else body.throw(thrown)
            except StopIteration as done:
                return done.value
            thrown = None


def leave_behind(body: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    """Let a coroutine run on by itself, beginning with this exception. Nobody waits for what it gives."""

    async def go_on() -> None:
        await Rest(body, None, lambda: False, thrown)

    forget(asyncio.ensure_future(go_on()))


def forget(future: asyncio.Future[Any]) -> None:
    """Nobody will look at this result: its failure is no news either."""
    future.add_done_callback(lambda f: f.cancelled() or f.exception())


class _Raised:
    """What a contained body raised."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def contained(awaitable: Any) -> asyncio.Future[Any]:
    """User code in a task of its own. `result_of` gives what it returned, or raises what it raised.

    A task that ends with SystemExit, or any BaseException of the user's own, would tear the event loop down.
    """

    async def run() -> Any:
        try:
            return await awaitable
        except (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            return _Raised(error)

    return asyncio.ensure_future(run())


def result_of(future: asyncio.Future[Any]) -> Any:
    """The result of a finished future, contained or not."""
    result = future.result()
    if type(result) is _Raised:
        raise result.error
    return result


def in_thread(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
    """Run a sync function in a daemon thread of its own.

    Not in the event loop's pool: one hook or tool that never returns would hold a place there for ever, and would keep
    the process from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: Any, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(fn, *args, **kwargs)
        except StopIteration as stop:  # cannot be put into a future
            error = RuntimeError(f"raised StopIteration: {stop}")
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:  # the loop is gone, and with it whoever asked
            logger.debug("an answer of %r came after its event loop was closed", fn)

    threading.Thread(target=work, name=f"beforehand:{getattr(fn, '__name__', 'call')}", daemon=True).start()
    return future
