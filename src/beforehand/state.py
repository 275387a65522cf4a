"""What one run knows, and nothing that decides: the plan it was started with and where it has got to."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from .decisions import Interrupt, PendingApproval
from .emitter import Emitter
from .errors import RunError
from .events import EVENT_TYPES, DecisionMade, DecisionRecord, Event, Irreversible, StopReason
from .frozen import freeze
from .history import History
from .limits import Limits
from .messages import NO_USAGE, Message, ThinkingLevel, ToolSpec, Usage
from .plan import Plan
from .queues import Queues
from .seams import Context, RunInfo
from .signals import AbortSignal
from .tools import Tool
from .waits import IDLE, Waits


Put = Event | asyncio.Future[None] | Callable[[], Awaitable[Event | None]]
"""What is put down for delivery: an event, one that hooks have a say in, or who waits until here."""


class _Shaping:
    """An event that hooks are asked about. What they do meanwhile has events too, which do not wait for this one."""

    def __init__(self, run: RunState) -> None:
        self.run, self.over = run, False
        self.outbox: list[Put] = []


_shaping: ContextVar[_Shaping | None] = ContextVar("beforehand_shaping", default=None)
"""The event whose hooks have the code at work here done."""

Asker = tuple[str, str]
"""A hook that wants the model to be asked again: its name, and where it is defined."""


class RunState(Waits):
    """The state of one run. The functions in `loop`, `toolcall` and their neighbours work on it."""

    __slots__ = (
        "_info", "advertised", "announced", "askers", "attempts", "calls", "characters_released", "compact_at", "context",
        "decisions", "deps", "enabled", "error", "events", "first_message", "history", "hook_queue", "hooks", "id_prefix",
        "interrupt", "journal", "lambdas", "lasting", "lease", "loop", "messages_made", "model", "observed", "options", "outbox",
        "parent_call_id", "parent_run_id", "pending", "place", "plan", "poll_first", "queues", "reason", "removed",
        "requests_sent", "resend", "resends", "resent", "run_id", "sequential", "shadow", "slow_hook", "started", "stop_reason",
        "store", "strict", "suspension", "system", "thinking_level", "tool_specs", "tools", "tools_run", "turn", "unprepared",
        "usage", "usage_cost",
    )  # fmt: skip
    attempts: Any
    """The conversation's failures in a row. Set only where the plan has a recovery."""
    place: Any
    """Where the run is among its loops. Set only where there are some."""
    waits_for: Callable[[Any, Any], Awaitable[Any]] | None = None
    """How the answer of a hook without a timeout is awaited, if not without end. Only hooks in the shadow are hurried."""

    def __init__(self, plan: Plan, history: History, events: Emitter, queues: Queues) -> None:
        super().__init__()
        self.plan, self.history, self.events, self.queues = plan, history, events, queues
        self.hooks = plan.hooks.current
        self.context = history
        self.store: Callable[[Message], None] = history.append
        self.journal: Any = None
        self.shadow: Any = None
        self.lease: Any = None
        self.use_limits(plan.limits)
        self.set_id(os.urandom(16).hex())
        self.loop = "main"
        self.turn = 0
        self.parent_call_id: str | None = None
        self.parent_run_id: str | None = None
        self.model = plan.model
        self.options = plan.options
        self.thinking_level: ThinkingLevel = plan.options.thinking_level
        self.system = plan.system
        self.use_tools(plan.tools)
        self.deps: Any = None
        self._info: RunInfo | None = None
        self.observed: Any = None
        self.started = time.perf_counter()
        self.usage: Usage = NO_USAGE
        self.usage_cost = 0.0
        self.decisions: list[DecisionRecord] = []
        self.calls: dict[str, Any] = {}
        self.announced: list[Any] = []
        """The calls that listeners have heard the beginning of."""
        self.first_message = len(history)
        self.lasting: History | None = None
        self.removed: tuple[Message, ...] = ()
        self.messages_made = 0
        self.lambdas: dict[str, int] | None = None
        """How many lambdas have been at work, by how their names begin."""
        self.requests_sent = self.characters_released = self.tools_run = 0
        self.hook_queue: list[Message] = []
        self.poll_first = True
        self.resend = False
        self.resends = 0
        self.askers: tuple[Asker, ...] = ()
        self.resent: dict[Asker, int] | None = None
        self.interrupt: Interrupt | None = None
        self.unprepared: Any = None
        """A turn whose reply stands and that seam 16 has not let another follow: it is asked before the run is tried again."""
        self.stop_reason: StopReason | None = None
        self.reason: str | None = None
        self.error: RunError | None = None
        self.suspension: Any = None
        self.strict = False
        """Whether it goes on from its record only with the tools and hooks that it began with, once it is answered, too."""
        self.pending: tuple[PendingApproval, ...] = ()
        self.outbox: list[Put] = []

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
        self.outbox = []
        self.reset_waiting()

    # --- what hooks read through RunInfo ---

    @property
    def info(self) -> RunInfo:
        """Made when somebody asks: a run that knows itself is a cycle, which waits for the garbage collector."""
        if self._info is None:
            self._info = RunInfo(self, self.parent_call_id)
        return self._info

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
        self.advertised: frozenset[str] = frozenset()
        """Tools that hooks have shown to the model, and that are not enabled."""
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

        self.store = store if self.journal is None else self.journal.storing(store)

    def start_from(self, history: History) -> None:
        """This is the history now: the conversation has gone on since this run was made."""
        self.history = self.context = history
        self.store = history.append
        self.first_message = len(history)

    def note(
        self, verdict: str, reason: str, call_id: str | None = None, recorded: bool = False, **by: str | None
    ) -> DecisionRecord:  # fmt: skip
        """Record something that the core itself mended, or that happened on behalf of a hook (`by`: fields of its record).

        What is `recorded` is in the journal already, and a run that goes on tells it again.
        """
        where = {"hook": "beforehand", "where": "core", "seam": "repair", **by}
        entry = DecisionRecord(
            verdict=verdict, reason=reason, digest=None, duration=0.0, reversible=self.irreversible, run_id=self.run_id,
            loop=self.loop, turn=self.turn, call_id=call_id, **where,  # type: ignore[arg-type]
        )  # fmt: skip
        self.decisions.append(entry)
        if self.journal is not None and not recorded:
            self.journal.note(entry)
        if self.observed is not None:
            self.observed.noted(self, DecisionMade(record=entry, **self.event_fields()))
        return entry

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
        """Deliver an event. For tool bodies, and for code that works for a hook, which run in tasks of their own, the run's own
        task delivers, in order: listeners are awaited there, and are not cut when such a task is cancelled."""
        if self.over:  # a late result of something that was left behind
            return
        if (self.batching or self.is_aside) and asyncio.current_task() is not self.task:
            outbox = self._outbox_here()
            outbox.append(event)
            if self.batching or self.wake is not None:  # else left behind: the run waits for something else
                delivered = asyncio.get_running_loop().create_future()
                outbox.append(delivered)
                self.wake_up()
                await delivered
        else:
            await self.deliver()
            await self._tell(event)

    @property
    def is_shaping(self) -> bool:
        """Whether the code at work here is asked about an event, or works for those who are."""
        shaping = _shaping.get()
        return shaping is not None and shaping.run is self and not shaping.over

    def report(self, make: Callable[[], Awaitable[Event | None]]) -> None:
        """Put down an event that hooks have a say in."""
        self._outbox_here().append(make)
        self.wake_up()

    async def deliver(self) -> None:
        """Deliver what has been put down for delivery: events, events still to be made, and those who wait until here."""
        outbox = self._outbox_here()
        while outbox:
            item = outbox.pop(0)
            if isinstance(item, asyncio.Future):
                if not item.done():
                    item.set_result(None)
                continue
            event = item if isinstance(item, Event) else await self._shaped(item)
            if event is not None:
                await self._tell(event)

    async def _tell(self, event: Event) -> None:
        """Call the listeners. The reader of a stream is one, and may go on in another task, where nothing says what is shaped."""
        shaping = _shaping.get()
        await self.events.emit(event)
        if _shaping.get() is not shaping:
            _shaping.set(shaping)

    async def deliver_until(self, work: asyncio.Future[Any], seconds: float) -> None:
        """Wait for a hook, at most so long. What it does meanwhile is told, if this is the run's own task."""
        if asyncio.current_task() is not self.task:
            await asyncio.wait({work}, timeout=seconds)
            return
        loop, outbox, wake = asyncio.get_running_loop(), self._outbox_here(), self.wake
        end = loop.time() + seconds
        try:
            while not work.done() and (left := end - loop.time()) > 0:
                self.wake = loop.create_future()
                if not outbox:
                    await asyncio.wait({work, self.wake}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                scope, self.scope = self.scope, IDLE  # an abort cuts no listener
                before = loop.time()
                await self.deliver()
                end += loop.time() - before  # what listeners take is not the hook's time
                self.scope = scope
        finally:
            self.wake = wake

    def _outbox_here(self) -> list[Put]:
        """Where the code at work puts events down: for those who are asked about an event it is a place of their own."""
        shaping = _shaping.get()
        return self.outbox if shaping is None or shaping.run is not self or shaping.over else shaping.outbox

    async def _shaped(self, make: Callable[[], Awaitable[Event | None]]) -> Event | None:
        """An event that hooks have a say in."""
        outer, shaping = _shaping.get(), _Shaping(self)
        _shaping.set(shaping)
        try:
            return await make()
        finally:
            _shaping.set(outer)
            shaping.over = True
            self._outbox_here().extend(shaping.outbox)

    def wire_event(self, name: str, fields: dict[str, Any]) -> None:
        """An opt-in event from the model adapter. Delivered in order, before the next thing the run does."""
        frozen = {field: freeze(value) for field, value in fields.items()}
        self.outbox.append(EVENT_TYPES[name](**frozen, **self.event_fields()))
