"""How a run waits for others, and how an abort reaches it there: at once, after a grace, or not until it looks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from .errors import Stop
from .limits import Limits
from .signals import AbortSignal

# Where a run is waiting, which decides how an abort may reach it. Plain numbers: an enum's members cost a lookup each time.
IDLE: Final = 0
"""In our own code, or a listener's: it looks at the signal itself."""
STREAMING: Final = 1
"""For the model's next piece: cut at once."""
GUARDED: Final = 2
"""For a hook, a tool or a person: cut after `abort_grace`."""

_aside: ContextVar[Waits | None] = ContextVar("beforehand_aside", default=None)
"""The run for one of whose hooks this code works, in a task of its own, while the run's task waits for that hook."""

asking: ContextVar[tuple[Waits, str] | None] = ContextVar("beforehand_asking", default=None)
"""The run that a lambda asks the model in just now, beside the conversation, and which question of which lambda that is."""

within: ContextVar[tuple[Any, ...]] = ContextVar("beforehand_within", default=())
"""The hooks and tools whose own calls lead here. Calls side by side each have a chain of their own."""


class Waits:
    """The part of a run's state that is about waiting: in which task it is, for what, and how often it was cancelled."""

    __slots__ = (
        "abandon", "aborted", "aside", "batching", "cancelled", "cancelling", "cancels_before", "goes_over", "held",
        "limits", "over", "own_cancels", "scope", "scope_serial", "signal", "task", "tasks", "thread", "tick", "tick_serial",
        "wake",
    )  # fmt: skip
    aborted: bool
    limits: Limits
    signal: AbortSignal
    goes_over: bool
    """Whether it is still to go over what is on record of it. That has happened, whatever comes now."""
    held: tuple[str | None] | None
    """An abort that came meanwhile, with its reason."""

    def __init__(self) -> None:
        self.signal, self.aborted = AbortSignal(), False
        self.goes_over, self.held = False, None
        self.aside = 0  # never reset: what is left behind takes itself out
        self.reset_waiting()

    def reset_waiting(self) -> None:
        """Forget how the run was being waited for: it begins, or goes on after a suspension."""
        self.task: asyncio.Task[Any] | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.thread = 0
        self.scope: int = IDLE
        self.scope_serial = 0
        self.tick: asyncio.TimerHandle | None = None
        self.tick_serial = -1
        self.cancelling = False
        self.abandon = False
        self.cancelled = self.over = False
        self.cancels_before = self.own_cancels = 0
        self.batching = False
        self.wake: asyncio.Future[None] | None = None

    def wake_up(self, *_: object) -> None:
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def abort(self, reason: str | None = None) -> None:
        """Stop as soon as possible: a reply is cut at once, a tool or hook gets `abort_grace` seconds. From any thread."""
        if self.task is not None and threading.get_ident() != self.thread:
            self.task.get_loop().call_soon_threadsafe(self.abort, reason)
            return
        if self.aborted:
            return
        if self.goes_over:
            self.held = self.held or (reason,)
            return
        self.aborted = True
        self.signal.set(reason)
        if self.scope is STREAMING:
            self._cut_stream()
        if self.limits.abort_grace is not None and self.task is not None:  # hooks are asked about what was cut, too
            self.tick_serial = self.scope_serial
            self.tick = self.task.get_loop().call_later(self.limits.abort_grace, self._grace_over)

    def has_gone_over(self) -> None:
        """What is on record ends here: an abort that came meanwhile is one now."""
        self.goes_over = False
        if self.held is not None:
            self.abort(*self.held)

    def _cut_stream(self) -> None:
        """Cut what the model is waited for. Code of the model's own that aborts is cut where it waits, if it does."""
        if self.task is None:
            return
        loop = self.task.get_loop()
        if asyncio.current_task(loop) is not self.task:
            self._cancel_task()
        else:
            loop.call_soon(self._cut_if_streaming)

    def _cut_if_streaming(self) -> None:
        if self.scope is STREAMING:
            self._cancel_task()

    def _grace_over(self) -> None:
        """Cancel whatever has been waiting since the last look, then look again later."""
        if self.tasks:
            self.abandon = self.cancelling
            self.cancelling = True
            for task in self.tasks:
                task.cancel()
            self.wake_up()
        elif self.scope is STREAMING:
            self._cancel_task()
        if self.scope is GUARDED and self.scope_serial == self.tick_serial:
            if not self.tasks:
                self.abandon = self.own_cancels > 0  # it has been cancelled before, and waits on
            self._cancel_task()
        self.tick_serial = self.scope_serial
        if self.task is not None and self.limits.abort_grace is not None:
            self.tick = self.task.get_loop().call_later(max(self.limits.abort_grace, 0.05), self._grace_over)

    def _cancel_task(self) -> None:
        if self.task is not None:
            self.cancelling = True
            self.own_cancels += 1
            self.task.cancel()

    def _take_back_cancels(self) -> bool:
        """Undo our own cancellations of the run's task. True if none of the caller's is left."""
        self.cancelling = bool(self.tasks)  # what runs in tasks of its own has been cancelled with it
        while self.own_cancels and self.task is not None:
            self.own_cancels -= 1
            self.task.uncancel()
        return self.task is not None and self.task.cancelling() <= self.cancels_before

    def enter_guarded(self, begun_before_abort: bool = False) -> None:
        """From here on an abort may cut what the run's task waits for, after the grace."""
        if not self._elsewhere:
            self.scope = GUARDED
            self.scope_serial += 1
            if begun_before_abort and self.aborted:
                self.tick_serial = self.scope_serial

    def enter_streaming(self) -> None:
        """From here on an abort cuts what the run's task waits for at once."""
        if not self._elsewhere:
            self.scope = STREAMING

    def leave_guarded(self, scope: int = IDLE) -> None:
        if not self._elsewhere:
            self.scope = scope

    @property
    def _elsewhere(self) -> bool:
        """Whether the code that asks is in a task of its own: a tool's body, or what works for a hook."""
        return (self.batching and asyncio.current_task() is not self.task) or (self.aside > 0 and _aside.get() is self)

    @property
    def is_aside(self) -> bool:
        """Whether the code that asks works for a hook of this run, in a task of its own."""
        return self.aside > 0 and _aside.get() is self

    @property
    def question(self) -> str | None:
        """The question of a lambda that this code works on in this run, if it does: hooks are asked about that request too."""
        asked = asking.get()
        return asked[1] if asked is not None and asked[0] is self else None

    @contextmanager
    def work_aside(self) -> Iterator[None]:
        """For a task that calls tools or the model on behalf of a hook, which the run's own task waits for.

        What such a task waits for is not what the run waits for, and it ends by being cancelled, when the hook ends.
        """
        token = _aside.set(self)
        self.aside += 1
        try:
            yield
        finally:
            self.aside -= 1
            _aside.reset(token)

    def survived(self) -> None:
        """What was waited for answered in spite of our cancellation: nothing of it may be left in the task."""
        if self.own_cancels and not self._elsewhere:
            self._take_back_cancels()

    def came_too_late(self) -> bool:
        """Whether what has just answered did so only after an abort's grace was over."""
        if not self.aborted:
            return False
        task = asyncio.current_task()
        return self.own_cancels > 0 if task is self.task else task is not None and self.cancelling and task.cancelling() > 0

    def was_aborted_by(self, error: BaseException) -> bool:
        """Whether this exception is our own abort arriving, and not the caller's cancellation. Answers once a cancel."""
        if not self.aborted:
            return False
        if isinstance(error, Stop):
            return True
        if not isinstance(error, asyncio.CancelledError) or not self.cancelling:
            return False
        if self.is_aside:
            return False  # the hook has ended, and with it everything that was done for it
        task = asyncio.current_task()
        if task is self.task:
            return self._take_back_cancels()
        return task is not None and task.uncancel() == 0

    def cancelled_from_outside(self) -> bool:
        """After a CancelledError: does the caller cancel this run, or was the exception made by user code?"""
        task = asyncio.current_task()
        if task is not None and self.is_aside:
            return task.cancelling() > 0
        if task is None or task is not self.task:
            return self.cancelled
        return task.cancelling() > self.cancels_before

    def begin_in(self, task: asyncio.Task[Any] | None) -> None:
        """This task does the run now. Cancellations it has survived before are not meant for us."""
        self.task = task
        self.thread = threading.get_ident()
        self.cancels_before = task.cancelling() if task is not None else 0

    def finished(self) -> None:
        self.over = True
        if self.tick is not None:
            self.tick.cancel()
        self.task = None
