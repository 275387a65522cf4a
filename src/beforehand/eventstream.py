"""A run as an async iterator of events.

The run is not a task racing ahead of its reader: it goes on only while the reader waits for the next event. So nothing
happens behind the reader's back (leaving the loop at `tool_execution_start` keeps the tool from running), a slow reader
slows the model down, and an event costs no trip through the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from .events import Event


class _Handoff:
    """Awaited by the run where it emits: passes the event up to whoever drives the run."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event

    def __await__(self) -> Generator[Any, None, None]:
        yield self


class EventStream:
    """Drives the coroutine of a run from event to event.

    `hand_over` is the listener to subscribe for the run. `on_step` is called with the task that drives it now.
    """

    def __init__(self, on_step: Callable[[asyncio.Task[Any] | None], None]) -> None:
        self._on_step = on_step
        self._run: Coroutine[Any, Any, Any] | None = None
        self._discard = False
        self.ended = False

    def start(self, run: Coroutine[Any, Any, Any]) -> None:
        self._run = run

    def hand_over(self, event: Event) -> _Handoff | None:
        return None if self._discard else _Handoff(event)

    async def next(self) -> Event | None:
        """The next event, `None` at the end. Raises what the run raises."""
        self._on_step(asyncio.current_task())
        return await _Step(self)

    async def finish(self) -> None:
        """Let the run come to its end without a reader."""
        self._discard = True
        while not self.ended:
            await self.next()

    def close(self) -> None:
        if self._run is not None:
            self._run.close()


class _Step:
    """Awaits for the run whatever it awaits, until it hands over an event or ends."""

    __slots__ = ("_stream",)

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    def __await__(self) -> Generator[Any, Any, Event | None]:
        stream = self._stream
        run = stream._run
        assert run is not None
        thrown: BaseException | None = None
        while True:
            try:
                awaited = run.send(None) if thrown is None else run.throw(thrown)
            except StopIteration:
                stream.ended = True
                return None
            except BaseException:
                stream.ended = True
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
