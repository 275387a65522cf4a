"""A run as an async iterator of events.

The run is not a task racing ahead of its reader: it goes on only while the reader waits for the next event. So nothing
happens behind the reader's back (leaving the loop at `tool_execution_start` keeps the tool from running), a slow reader
slows the model down, and an event costs no trip through the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from .emitter import Emitter
from .events import Event
from .results import RunResult
from .state import RunState


class _Handoff:
    """Awaited by the run where it emits: passes the event up to whoever drives the run."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event

    def __await__(self) -> Generator[Any, None, None]:
        yield self


class _Line:
    """The listener of a stream. Apart from the stream, so that nothing but its reader holds that."""

    __slots__ = ("discard", "ended", "result")

    def __init__(self) -> None:
        self.discard = self.ended = False
        self.result: RunResult | None = None

    def hand_over(self, event: Event) -> _Handoff | None:
        return None if self.discard else _Handoff(event)


class EventStream:
    """The events of one run, in order. Leaving it aborts the run; `async with` makes sure that this happens at once.

    The run begins with the first event asked for. Its error, if it has one, is raised after the last event. `on_left`
    is called with the task that brings an abandoned run to its end.
    """

    def __init__(
        self, run: RunState, start: Callable[[], Coroutine[Any, Any, Any]], emitter: Emitter, names: tuple[str, ...],
        on_left: Callable[[asyncio.Task[None]], None],
    ) -> None:  # fmt: skip
        self._state, self._start, self._emitter, self._names, self._on_left = run, start, emitter, names, on_left
        self._run: Coroutine[Any, Any, Any] | None = None
        self._unsubscribe: list[Callable[[], None]] = []
        self._line = _Line()

    @property
    def result(self) -> RunResult | None:
        """What `run` would have returned, once the last event has come. `None` before, and after an error (which has it)."""
        return self._line.result

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._line.ended:
            raise StopAsyncIteration
        if self._run is None:
            emitter, listener = self._emitter, self._line.hand_over
            self._unsubscribe = [emitter.subscribe(listener), *[emitter.on(name, listener) for name in self._names]]
            self._run = self._start()
        event = await self._next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Abort the run, if it is not over, and let it come to its end."""
        if self._run is not None and not self._line.ended:
            self._state.abort(_LEFT)
            self._line.discard = True
            while not self._line.ended:
                await self._next()

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        """The reader left without a word, by `break` for instance."""
        if self._run is None or self._line.ended:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # nobody can bring it to its end any more
            with contextlib.suppress(RuntimeError):
                self._run.close()
            return
        self._state.abort(_LEFT)
        self._on_left(loop.create_task(self._finish_quietly()))

    async def _finish_quietly(self) -> None:
        with contextlib.suppress(Exception):
            await self.aclose()

    async def _next(self) -> Event | None:
        """The next event, `None` at the end. Raises what the run raises."""
        task = asyncio.current_task()
        if self._state.task is not None and self._state.task is not task:
            self._state.begin_in(task)
        assert self._run is not None
        try:
            return await _Step(self._run, self._line)
        finally:
            if self._line.ended:
                for unsubscribe in self._unsubscribe:
                    unsubscribe()


class FoundStream(EventStream):
    """The events of a run that is looked up first: `find` is awaited when the first event is asked for."""

    def __init__(self, find: Callable[[], Awaitable[EventStream]]) -> None:
        self._find: Callable[[], Awaitable[EventStream]] | None = find
        self._run, self._line = None, _Line()

    async def __anext__(self) -> Event:
        find, self._find = self._find, None
        if find is not None:
            try:
                found = await find()
            except BaseException:
                self._line.ended = True
                raise
            super().__init__(found._state, found._start, found._emitter, found._names, found._on_left)
        return await super().__anext__()


_LEFT = "the reader of the stream left"


class _Step:
    """Awaits for the run whatever it awaits, until it hands over an event or ends.

    It does not know the stream: what is thrown through here keeps this frame alive, and must not keep the stream alive.
    """

    __slots__ = ("_line", "_run")

    def __init__(self, run: Coroutine[Any, Any, Any], line: _Line) -> None:
        self._run, self._line = run, line

    def __await__(self) -> Generator[Any, Any, Event | None]:
        run, line = self._run, self._line
        thrown: BaseException | None = None
        while True:
            try:
                awaited = run.send(None) if thrown is None else run.throw(thrown)
            except StopIteration as stop:
                line.ended, line.result = True, stop.value
                return None
            except BaseException:
                line.ended = True
                raise
            thrown = None
            if type(awaited) is _Handoff:
                return awaited.event
            try:
                yield awaited
            except GeneratorExit:
                run.close()
                raise
            except BaseException as error:
                thrown = error
