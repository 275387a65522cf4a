"""What one run knows, and nothing that decides: the plan it was started with and where it has got to."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from .decisions import Interrupt, PendingApproval
from .emitter import Emitter
from .errors import RunError, Stop
from .events import EVENT_TYPES, DecisionRecord, Event, Irreversible, StopReason
from .frozen import freeze
from .history import History
from .limits import Limits
from .messages import NO_USAGE, Message, ThinkingLevel, ToolSpec, Usage
from .plan import Plan
from .queues import Queues
from .seams import Context, RunInfo
from .signals import AbortSignal
from .tools import Tool

# Where a run is waiting, which decides how an abort may reach it. Plain numbers: an enum's members cost a lookup each time.
IDLE: Final = 0
"""In our own code, or a listener's: it looks at the signal itself."""
STREAMING: Final = 1
"""For the model's next piece: cut at once."""
GUARDED: Final = 2
"""For a hook, a tool or a person: cut after `abort_grace`."""


class RunState:
    """The state of one run. The functions in `loop`, `toolcall` and their neighbours work on it."""

    __slots__ = (
        "abandon", "aborted", "batching", "calls", "cancelled", "cancelling", "cancels_before", "characters_released", "context",
        "decisions", "deps", "enabled", "error", "events", "first_message", "history", "hook_queue", "hooks", "id_prefix",
        "info", "interrupt", "limits", "loop", "messages_made", "model", "options", "outbox", "over", "own_cancels",
        "parent_call_id", "pending", "plan", "poll_first", "queues", "reason", "requests_sent", "resend", "resends",
        "run_id", "scope", "scope_serial", "sequential", "signal", "slow_hook", "started", "stop_reason", "store",
        "suspension", "system", "task", "tasks", "thinking_level", "thread", "tick", "tick_serial", "tool_specs", "tools",
        "tools_run", "turn", "usage", "usage_cost", "wake",
        "attempts", "compact_at", "lasting", "place", "removed",
    )  # fmt: skip
    attempts: Any
    """The conversation's failures in a row. Set only where the plan has a recovery."""
    place: Any
    """Where the run is among its loops. Set only where there are some."""

    def __init__(self, plan: Plan, history: History, events: Emitter, queues: Queues) -> None:
        self.plan, self.history, self.events, self.queues = plan, history, events, queues
        self.hooks = plan.hooks.current
        self.context = history
        self.store: Callable[[Message], None] = history.append
        self.use_limits(plan.limits)
        self.set_id(os.urandom(16).hex())
        self.loop = "main"
        self.turn = 0
        self.parent_call_id: str | None = None
        self.model = plan.model
        self.options = plan.options
        self.thinking_level: ThinkingLevel = plan.options.thinking_level
        self.system = plan.system
        self.use_tools(plan.tools)
        self.deps: Any = None
        self.info = RunInfo(self, None)
        self.signal, self.aborted = AbortSignal(), False
        self.started = time.perf_counter()
        self.usage: Usage = NO_USAGE
        self.usage_cost = 0.0
        self.decisions: list[DecisionRecord] = []
        self.calls: dict[str, Any] = {}
        self.first_message = len(history)
        self.lasting: History | None = None
        self.removed: tuple[Message, ...] = ()
        self.messages_made = 0
        self.requests_sent = self.characters_released = self.tools_run = 0
        self.hook_queue: list[Message] = []
        self.poll_first = True
        self.resend = False
        self.resends = 0
        self.interrupt: Interrupt | None = None
        self.stop_reason: StopReason | None = None
        self.reason: str | None = None
        self.error: RunError | None = None
        self.suspension: Any = None
        self.pending: tuple[PendingApproval, ...] = ()
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
        self.outbox: list[Event | asyncio.Future[None] | Callable[[], Awaitable[Event | None]]] = []
        self.wake: asyncio.Future[None] | None = None

    def set_id(self, run_id: str) -> None:
        self.run_id = run_id
        self.id_prefix = run_id[:12]

    def next_message_id(self) -> str:
        self.messages_made += 1
        return f"{self.id_prefix}-{self.messages_made}"

    def use_limits(self, limits: Limits) -> None:
        self.limits = limits
        self.compact_at = limits.compact_at
        self.slow_hook = float("inf") if limits.slow_hook_ms is None else limits.slow_hook_ms / 1e3

    def prepare_to_resume(self) -> None:
        """Go on after a suspension: same run, fresh signal."""
        self.signal, self.aborted = AbortSignal(), False
        self.stop_reason, self.suspension, self.pending = None, None, ()
        self.reset_waiting()

    # --- what hooks read through RunInfo ---

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    @property
    def cost(self) -> float:
        return self.usage_cost

    @property
    def irreversible(self) -> Irreversible:
        return Irreversible(self.requests_sent, self.characters_released, self.tools_run)

    # --- the working context ---

    def use_tools(self, tools: tuple[Tool, ...]) -> None:
        self.tools: dict[str, Tool] = {tool.name: tool for tool in tools}
        self.enabled = self.tools
        self.tool_specs: tuple[ToolSpec, ...] = tuple([tool.spec for tool in tools])
        self.sequential = self.plan.tool_mode == "sequential" or any([tool.mode == "sequential" for tool in tools])

    def enable(self, tools: dict[str, Tool]) -> None:
        """These tools may run in this turn: the run's own, unless a hook has brought others for one request."""
        self.enabled = tools
        self.sequential = self.plan.tool_mode == "sequential" or any([tool.mode == "sequential" for tool in tools.values()])

    def context_value(self) -> Context:
        return Context(self.system, self.context.view(), tuple(self.tools.values()))

    def use_context(self, context: Context) -> None:
        """Make requests from another context from now on. The stored history is not touched."""
        self.system = context.system
        if tuple(self.tools.values()) != tuple(context.tools):
            self.use_tools(tuple(context.tools))
        if context.messages != self.context.view():
            self.separate(context.messages)

    def separate(self, messages: Sequence[Message]) -> None:
        """From now on requests are made from these messages; what happens is added to them and to the history."""
        self.context = History(messages)
        self._store_in(self.history, self.lasting, self.context)

    def shorten(self, messages: Sequence[Message], removed: Sequence[Message]) -> None:
        """From now on requests are made from these messages, the summary of those `removed` among them.

        The conversation goes on from them too, unless the requests were made from something else than its history.
        `history` itself stays whole until the run is over: views of it, and what the run has added, do not change.
        """
        was_history = self.context is (self.history if self.lasting is None else self.lasting)
        self.separate(messages)
        if was_history:
            self.removed += tuple(removed)
            self.lasting = self.context
            self._store_in(self.history, self.lasting)

    def _store_in(self, *histories: History | None) -> None:
        appends = [history.append for history in histories if history is not None]

        def store(message: Message) -> None:
            for append in appends:
                append(message)

        self.store = store

    def start_from(self, history: History) -> None:
        """This is the history now: the conversation has gone on since this run was made."""
        self.history = self.context = history
        self.store = history.append
        self.first_message = len(history)

    def note(self, verdict: str, reason: str, call_id: str | None = None, seam: str = "repair") -> None:
        """Record something that the core itself mended, or decided in a hook's place."""
        self.decisions.append(DecisionRecord(
            hook="beforehand", where="core", seam=seam, verdict=verdict, reason=reason, digest=None, duration=0.0,
            reversible=self.irreversible, run_id=self.run_id, loop=self.loop, turn=self.turn, call_id=call_id,
        ))  # fmt: skip

    def add_usage(self, usage: Usage, model_name: str) -> None:
        if usage is NO_USAGE:
            return
        self.usage = usage if self.usage is NO_USAGE else self.usage + usage
        price = self.plan.prices.get(model_name)
        if price is not None:
            self.usage_cost += price.of(usage)

    def took(self, message: Message) -> None:
        """An incoming message has been dealt with, so it waits no longer."""
        for i, waiting in enumerate(self.hook_queue):
            if waiting is message:
                del self.hook_queue[i]
                return
        if self.queues.steering or self.queues.follow_up:
            self.queues.stored(message)

    def interrupted_by(self, verdict: Interrupt) -> None:
        """A hook wants the turn to end. The first gives the reason; wishes to resend combine by OR."""
        if self.interrupt is None:
            self.interrupt = verdict
        elif verdict.resend and not self.interrupt.resend:
            self.interrupt = msgspec.structs.replace(self.interrupt, resend=True)

    # --- events ---

    def event_fields(self, parent_call_id: str | None = None) -> dict[str, Any]:
        """The fields that every event has."""
        return {
            "run_id": self.run_id,
            "loop": self.loop,
            "turn": self.turn,
            "parent_call_id": parent_call_id or self.parent_call_id,
        }

    async def emit(self, event: Event) -> None:
        """Deliver an event. While tool bodies run in tasks of their own, the run's own task delivers for them, in order."""
        if self.over:  # a late result of something that was left behind
            return
        if self.batching and asyncio.current_task() is not self.task:
            delivered = asyncio.get_running_loop().create_future()
            self.outbox.extend((event, delivered))
            self.wake_up()
            await delivered
        else:
            await self.deliver()
            await self.events.emit(event)

    async def deliver(self) -> None:
        """Deliver what has been put down for delivery: events, events still to be made, and those who wait until here."""
        while self.outbox:
            item = self.outbox.pop(0)
            if isinstance(item, asyncio.Future):
                if not item.done():
                    item.set_result(None)
                continue
            event = item if isinstance(item, Event) else await item()
            if event is not None:
                await self.events.emit(event)

    def wire_event(self, name: str, fields: dict[str, Any]) -> None:
        """An opt-in event from the model adapter. Delivered in order, before the next thing the run does."""
        frozen = {field: freeze(value) for field, value in fields.items()}
        self.outbox.append(EVENT_TYPES[name](**frozen, **self.event_fields()))

    def wake_up(self, *_: object) -> None:
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    # --- abort ---

    def abort(self, reason: str | None = None) -> None:
        """Stop as soon as possible: a reply is cut at once, a tool or hook gets `abort_grace` seconds. From any thread."""
        if self.task is not None and threading.get_ident() != self.thread:
            self.task.get_loop().call_soon_threadsafe(self.abort, reason)
            return
        if self.aborted:
            return
        self.aborted = True
        self.signal.set(reason)
        if self.scope is STREAMING:
            self._cancel_task()
        elif self.limits.abort_grace is not None and self.task is not None:
            self.tick_serial = self.scope_serial
            self.tick = self.task.get_loop().call_later(self.limits.abort_grace, self._grace_over)

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
        elif self.scope is GUARDED and self.scope_serial == self.tick_serial:
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
        self.cancelling = False
        while self.own_cancels and self.task is not None:
            self.own_cancels -= 1
            self.task.uncancel()
        return self.task is not None and self.task.cancelling() <= self.cancels_before

    def enter_guarded(self, begun_before_abort: bool = False) -> None:
        """From here on an abort may cut what the run's task waits for, after the grace."""
        if not self.batching:
            self.scope = GUARDED
            self.scope_serial += 1
            if begun_before_abort and self.aborted:
                self.tick_serial = self.scope_serial

    def leave_guarded(self, scope: int = IDLE) -> None:
        if not self.batching:
            self.scope = scope

    def survived(self) -> None:
        """What was waited for answered in spite of our cancellation: nothing of it may be left in the task."""
        if self.own_cancels and not self.batching:
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
        task = asyncio.current_task()
        if task is self.task:
            return self._take_back_cancels()
        return task is not None and task.uncancel() == 0

    def cancelled_from_outside(self) -> bool:
        """After a CancelledError: does the caller cancel this run, or was the exception made by user code?"""
        task = asyncio.current_task()
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
