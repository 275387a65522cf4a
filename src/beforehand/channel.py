"""What anybody may do with a conversation while it is at work: send messages, abort, wait, listen, look."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator

from .decisions import PendingApproval
from .emitter import Emitter, Listener
from .errors import ConfigError, ConversationBusy
from .history import History, HistoryView
from .messages import Message
from .observer import Observer
from .prompts import checked, queued
from .queues import Queues
from .state import RunState

_MODES = ("one-at-a-time", "all")


class Channel:
    """The side of a conversation that is open at all times. `Conversation` is the one that runs."""

    def __init__(
        self, messages: Iterable[Message], listeners: Emitter | None, steering_mode: str, follow_up_mode: str, id: str | None
    ) -> None:
        for name, mode in (("steering_mode", steering_mode), ("follow_up_mode", follow_up_mode)):
            if mode not in _MODES:
                raise ConfigError(f'{name}={mode!r} must be "one-at-a-time" or "all"')
        if id is not None and (not isinstance(id, str) or not id):
            raise ConfigError(f"id={id!r} must be a text that is not empty")
        self._id = id
        self._history = History(checked(messages))
        self._queues = Queues(steering_mode, follow_up_mode)
        self._listeners = listeners
        self._events = Emitter(parent=listeners)
        self._running: RunState | None = None
        self._suspended: RunState | None = None
        self._idle: asyncio.Event | None = None  # made when somebody waits

    # --- while it runs ---

    def steer(self, message: str | Message) -> None:
        """Put a message before the run's next request; the calls under way are finished first."""
        self._queue(self._queues.steering, queued(message, "steer"))

    def follow_up(self, message: str | Message) -> None:
        """Put a message after everything the run would do by itself."""
        self._queue(self._queues.follow_up, queued(message, "follow_up"))

    def abort(self, reason: str | None = None) -> None:
        """Stop the run under way. Nothing more leaves; history stays valid; queued messages stay queued. No-op when idle."""
        if self._running is not None:
            self._running.abort(reason)

    async def wait_for_idle(self) -> None:
        """Return once no run is under way."""
        if self._running is not None:
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    # --- looking ---

    @property
    def id(self) -> str:
        if self._id is None:
            self._id = os.urandom(16).hex()
        return self._id

    @property
    def messages(self) -> HistoryView:
        return self._history.view()

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person, if the last run is suspended."""
        return self._suspended.pending if self._suspended is not None else ()

    @property
    def queued(self) -> tuple[Message, ...]:
        """What waits in the queues, steering first."""
        return (*self._queues.steering, *self._queues.follow_up)

    def clear_queues(self) -> None:
        if self._running is not None and self._running.journal is not None:
            self._running.journal.waiting.clear()
        self._queues.steering.clear()
        self._queues.follow_up.clear()

    def subscribe(self, listener: Listener | Observer) -> Callable[[], None]:
        """Hear every event of this conversation (opt-in ones by name, with `on`). Returns a function that ends it."""
        return self._events.subscribe(listener)

    def on(self, name: str, listener: Listener) -> Callable[[], None]:
        """Hear events of one type. An unknown name is a `ConfigError`. Returns a function that ends it."""
        return self._events.on(name, listener)

    # --- inside ---

    def _queue(self, queue: list[Message], message: Message) -> None:
        queue.append(message)
        if self._running is not None and self._running.journal is not None:
            self._running.journal.waiting.note(message)

    def _free(self) -> None:
        """Raise `ConversationBusy` while a run is under way."""
        if self._running is not None:
            raise ConversationBusy(
                "this conversation is already processing a prompt: use steer() or follow_up() to queue messages, or "
                "wait_for_idle() first"
            )

    @contextlib.contextmanager
    def _coming(self, run: RunState) -> Iterator[None]:
        """The run is under way before it begins, while the journal is waited for: an abort counts, and no other one begins."""
        self._free()
        self._running = run
        try:
            yield
        except BaseException:
            self._is_idle()
            raise

    def _is_idle(self) -> None:
        """The run is over: tell those who wait."""
        self._running = None
        if self._idle is not None:
            self._idle.set()
            self._idle = None
