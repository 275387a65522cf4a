"""Delivers events to listeners: in order, one at a time, and never with a consequence for the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from .errors import ConfigError, nearest
from .events import EVENT_TYPES, OPT_IN, Event
from .observer import Observer

logger = logging.getLogger("beforehand")

Listener: TypeAlias = Callable[[Any], Awaitable[Any] | Any]


def _callable(listener: Listener) -> Listener:
    if not callable(listener):
        raise ConfigError(f"a listener must be callable, not {type(listener).__name__}")
    return listener


_NOBODY: dict[str, tuple[Listener, ...]] = dict.fromkeys(EVENT_TYPES, ())


class Emitter:
    """Who listens to what. `takers[type]` is empty when nobody does, so that the event need not be built.

    `heard` says whether anybody listens to anything, `watches_wire` whether to the opt-in events. `observers` are those of
    the listeners, the parent's and the given ones, each once: they watch the runs that begin from now on.
    """

    __slots__ = ("_all", "_first", "_named", "heard", "observers", "takers", "watches_wire")

    def __init__(
        self, listeners: Iterable[Listener | Observer] = (), parent: Emitter | None = None, observers: Iterable[Observer] = ()
    ) -> None:
        given = tuple(listeners)
        self._all: list[Listener] = [_callable(listener) for listener in given if not isinstance(listener, Observer)]
        own = [listener for listener in given if isinstance(listener, Observer)]
        self.observers: tuple[Observer, ...] = tuple(
            dict.fromkeys([*observers, *(parent.observers if parent is not None else ()), *own])
        )
        self._first: dict[str, list[Listener]] = {}
        self._named: dict[str, list[Listener]] = {}
        self.takers: dict[str, tuple[Listener, ...]]
        self.heard: bool
        if not self._all and (parent is None or not parent.heard):
            self.takers, self.heard, self.watches_wire = _NOBODY, False, False
        else:
            if parent is not None:
                self._all[:0] = parent._all
                self._named = {name: list(fns) for name, fns in parent._named.items()}
            self._rebuild()

    def _rebuild(self) -> None:
        self.takers = {}
        everything = tuple(self._all)
        for name in EVENT_TYPES:
            heard = () if name in OPT_IN else everything
            self.takers[name] = (*self._first.get(name, ()), *heard, *self._named.get(name, ()))
        for name in self._named:
            if name not in EVENT_TYPES:
                self.takers[name] = (*everything, *self._named[name])
        self.heard = bool(self._all or any(self._named.values()) or any(self._first.values()))
        self.watches_wire = any(self.takers[name] for name in OPT_IN)

    def subscribe(self, listener: Listener | Observer) -> Callable[[], None]:
        """Hear every event but the opt-in ones. Returns a function that ends it."""
        if isinstance(listener, Observer):
            return self._observe(listener)
        return self._add(self._all, listener)

    def _observe(self, observer: Observer) -> Callable[[], None]:
        self.observers = tuple(dict.fromkeys([*self.observers, observer]))

        def unsubscribe() -> None:
            self.observers = tuple([other for other in self.observers if other is not observer])

        return unsubscribe

    def watch(self, hear: Listener, names: Iterable[str]) -> Callable[[], None]:
        """Hear the events of these types before any listener does. Returns a function that ends it."""
        lists = [self._first.setdefault(name, []) for name in names]
        for listeners in lists:
            listeners.append(hear)
        self._rebuild()

        def unwatch() -> None:
            for listeners in lists:
                listeners.remove(hear)
            self._rebuild()

        return unwatch

    def on(self, name: str, listener: Listener) -> Callable[[], None]:
        """Hear the events of one type. An unknown type is a `ConfigError`. Returns a function that ends it."""
        if name not in EVENT_TYPES and not name.startswith("custom."):
            near = nearest(name, EVENT_TYPES)
            hint = f"did you mean {near!r}?" if near else f"the events are {', '.join(EVENT_TYPES)} and custom.*"
            raise ConfigError(f"there is no event {name!r}: {hint}")
        return self._add(self._named.setdefault(name, []), listener)

    def _add(self, where: list[Listener], listener: Listener) -> Callable[[], None]:
        where.append(_callable(listener))
        self._rebuild()
        done = False

        def unsubscribe() -> None:
            nonlocal done
            if not done:
                done = True
                where.remove(listener)
                self._rebuild()

        return unsubscribe

    async def emit(self, event: Event) -> None:
        """Call every taker of this event, in order of subscription. What they raise is logged."""
        takers = self.takers.get(event.type)
        for listener in tuple(self._all) if takers is None else takers:
            try:
                returned = listener(event)
                if returned is not None and hasattr(returned, "__await__"):
                    await returned
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise  # somebody cancels the run
                logger.exception("a listener failed on %s; the run goes on", event.type)
