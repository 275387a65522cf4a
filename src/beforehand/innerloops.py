"""Inner loops: named streams of turns beside `main`, each with a history of its own.

An inner loop is a conversation. What makes it one of an agent's loops: its tools are those on its list and no others, it
is asked about by the agent's hooks under its own name, it has nobody to ask for an approval, and the model can send
messages from loop to loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from .conversation import Conversation
from .decisions import Deny, PendingApproval
from .emitter import Emitter
from .errors import ConfigError, ConversationBusy, UsageError, nearest
from .hooks.registry import HookSet
from .limits import Limits
from .messages import UserMessage, clean
from .models.base import Model
from .plan import HookSource, Loop, Plan, read_instructions
from .results import RunResult
from .settings import CODE_TOOLS
from .state import RunState
from .tools import Tool, ToolContext, ToolResult, tool
from .waits import within

logger = logging.getLogger("beforehand")

MAX_LOOPS = 16
MAX_HOPS = 16
"""How often a run that a message has woken may wake another, and that one another: no more, or two loops would never rest."""
MAX_MESSAGE = 16_000
NOTHING: frozenset[str] = frozenset()


def no_channel(pending: PendingApproval) -> Deny:
    """The answer to every question in an inner loop."""
    return Deny(f"This call needs a person's approval ({pending.prompt}), and an inner loop has nobody to ask: it was not run.")


class LoopHooks(HookSource):
    """An agent's hooks as one inner loop has them. Made when they are first wanted, and again when the agent's change."""

    __slots__ = ("_agents", "_loop", "_of", "_set")

    def __init__(self, agents: HookSource, loop: str) -> None:
        self._agents, self._loop = agents, loop
        self._of: Any = None
        self._set: HookSet | None = None
        self.compose = None

    @property
    def current(self) -> Any:
        whole: HookSet = self._agents.current
        if self._set is None or self._of is not whole:
            self._of, self._set = whole, whole.for_loop(self._loop)
        return self._set

    @property
    def rules(self) -> Any:
        return self._agents.rules


def derive(plan: Plan, loop: Loop) -> Plan:
    """The plan of an agent's inner loop. Raises a `ConfigError` for a loop that can never work."""
    if not isinstance(loop, Loop):
        raise ConfigError(f'loops=[... {loop!r} ...]: expected Loop("name", ...)')
    model = plan.model
    if loop.model is not None:
        model = plan.resolve_model(loop.model) if isinstance(loop.model, str) else loop.model
        if not isinstance(model, Model):
            raise ConfigError(f'loop {loop.name!r}: model={loop.model!r} must be a name such as "openai:NAME" or a Model')
    system, dynamic = (plan.system, plan.dynamic) if not loop.instructions else read_instructions(loop.instructions)
    return msgspec.structs.replace(
        plan, model=model, system=system, dynamic=dynamic, tools=_granted(plan, loop), loops=(),
        hooks=LoopHooks(plan.hooks, loop.name), on_ask=no_channel,
        shadow=None if plan.shadow is None else LoopHooks(plan.shadow, loop.name),
    )  # fmt: skip


def _granted(plan: Plan, loop: Loop) -> tuple[Tool, ...]:
    """The agent's tools that are on the loop's list, without those that need a person. One that its owner has switched off
    may stand on the list, and is not there."""
    off = frozenset([said.name for said in plan.project.tools if not said.enabled]) if plan.project is not None else NOTHING
    have = {made.name: made for made in (*loop_tools(), *plan.tools) if made.name not in off}
    for entry in loop.tools:
        if not any(fnmatchcase(name, entry) for name in (*have, *plan.restricted, *off)):
            near = nearest(entry, have)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(have)}"
            if entry in CODE_TOOLS:
                hint = f"declare it in [[tools]], or give the agent code_tools(workspace), which has {entry}"
            raise ConfigError(f"loop {loop.name!r}: tools= names {entry!r}, which no tool of the agent is called; {hint}")
    listed = [made for name, made in have.items() if any(fnmatchcase(name, entry) for entry in loop.tools)]
    left_out = [made.name for made in listed if made.name in plan.restricted]
    if left_out:
        logger.info("loop %r does not get %s: restricted tools are for main alone", loop.name, ", ".join(left_out))
    return tuple([made for made in listed if made.name not in plan.restricted])


class Place(msgspec.Struct, eq=False):
    """Where a run is among its loops, and through how many messages it was woken."""

    loops: Loops
    hops: int = 0


class InnerLoop(Conversation):
    """One inner loop. A conversation like any other, whose runs carry its name."""

    def __init__(self, loops: Loops, loop: Loop, plan: Plan, listeners: Emitter | None) -> None:
        super().__init__(plan, (), listeners)
        self._loops = loops
        self.definition = loop
        self.name = loop.name

    def __repr__(self) -> str:
        return f"<inner loop {self.name!r}, {len(self.messages)} messages>"

    def loop(self, which: str | Loop) -> Conversation:
        raise UsageError(f"inner loops have no loops of their own: ask the conversation or the agent, not loop {self.name!r}")

    def _new_run(self, run_id: str | None, deps: Any, limits: Limits | None) -> RunState:
        run = super()._new_run(run_id, deps, limits)
        run.loop = self.name
        return run


class Loops:
    """The loops that know each other: those of one conversation, or an agent's own, which have no `main`."""

    def __init__(self, plan: Plan, listeners: Emitter | None, main: Conversation | None = None) -> None:
        self._plan, self._listeners, self._main = plan, listeners, main
        self._inner: dict[str, InnerLoop] = {}
        self._wakers: set[asyncio.Task[None]] = set()

    def open(self, which: str | Loop) -> InnerLoop:
        """The loop of this name, always the same one, or a new one. `ConfigError` for an unknown name or a second definition."""
        name = which.name if isinstance(which, Loop) else which
        if not isinstance(name, str):
            raise ConfigError(f"loop({name!r}): expected a name, or a Loop(...) to make one")
        declared = next((loop for loop in self._plan.loops if loop.name == name), None)
        there = self._inner.get(name)
        known = there.definition if there is not None else declared
        if isinstance(which, Loop):
            if known is not None and known != which:
                raise ConfigError(f"there is a loop {name!r} already, and it is another: give the new one its own name")
            known = which
        if known is None:
            names = self.names()
            why = "main is the conversation itself" if name == "main" else f"the loops are {', '.join(names) or 'none'}"
            raise ConfigError(f"there is no inner loop {name!r}: {why}")
        if there is None:
            if name not in self.names() and len(self.names()) >= MAX_LOOPS:
                raise ConfigError(f"there are {MAX_LOOPS} inner loops already, and no more than that: {name!r} is not made")
            there = self._inner[name] = InnerLoop(self, known, derive(self._plan, known), self._listeners)
        return there

    def place(self) -> Place:
        """Where a run of one of these loops is."""
        return Place(self)

    def names(self) -> list[str]:
        """Every inner loop, declared or made."""
        return list(dict.fromkeys([*(loop.name for loop in self._plan.loops), *self._inner]))

    def opened(self) -> list[InnerLoop]:
        """The inner loops that somebody has asked for, or written to."""
        return list(self._inner.values())

    def models(self) -> list[Any]:
        """The models that loops were given as such, and not by name."""
        known = [*self._plan.loops, *(made.definition for made in self._inner.values())]
        return [loop.model for loop in known if isinstance(loop.model, Model)]

    def describe(self) -> list[dict[str, Any]]:
        """Every loop, for the model."""
        loops = [] if self._main is None else [_described("main", "", self._main)]
        for name in self.names():
            made = self._inner.get(name)
            known = made.definition if made is not None else next(loop for loop in self._plan.loops if loop.name == name)
            loops.append(_described(name, known.description, made))
        return loops

    def send(self, run: RunState, to: str, text: str, wake: bool) -> str:
        """Put a message into another loop's queue, once. Says what will become of it; raises `ConfigError`."""
        if to == run.loop:
            raise ConfigError("a loop does not send messages to itself")
        if to == "main" and self._main is None:
            raise ConfigError("there is no main conversation here")
        target: Conversation = self._main if to == "main" and self._main is not None else self.open(to)
        hops = _hops_of(run) + 1
        target.steer(UserMessage(f"[from loop:{run.loop}] {clean(text)}"))
        if target.pending:
            return f"The message waits: {to} is waiting for a person, and reads it afterwards."
        going = target._running
        if wake and hops <= MAX_HOPS:
            if going is not None:
                going.place = Place(self, max(_hops_of(going), hops))
            self._wake(target, to, run.deps, hops)
        elif going is None:
            why = f": loops have woken each other {MAX_HOPS} times in a row" if wake else ""
            return f"The message waits until {to} works next{why}."
        return f"{to} is woken and reads the message now." if going is None else f"{to} is at work and reads the message next."

    def _wake(self, target: Conversation, name: str, deps: Any, hops: int) -> None:
        """See to it that the message that waits last is read."""
        message = target._queues.steering[-1]
        task = asyncio.get_running_loop().create_task(_take_up(target, name, message, deps, Place(self, hops)))
        self._wakers.add(task)
        task.add_done_callback(self._wakers.discard)

    async def settle(self) -> None:
        """Return once nothing that was woken is at work any more."""
        while self._wakers:
            await asyncio.wait(set(self._wakers))

    def stop(self) -> None:
        """Cancel the runs that messages have woken. What waits in queues stays there."""
        for task in set(self._wakers):
            task.cancel()


async def _take_up(talk: Conversation, name: str, message: Any, deps: Any, place: Place) -> None:
    """One run for a message, unless a run under way takes it first."""
    within.set(())  # whoever sent it waits for nothing of this, and may call here again
    while any(waiting is message for waiting in talk._queues.steering):
        if talk.is_running:
            await talk.wait_for_idle()
            continue
        if talk.pending:
            return  # a new run would refuse what a person has yet to decide; the message is read when it goes on
        run = talk._new_run(None, deps, None)
        run.place = place
        try:
            result = await talk._start(talk._queues.next_steering(), False, run)
        except ConversationBusy:  # somebody else was quicker
            continue
        if result.error is not None:
            logger.warning("loop %s, woken by a message, failed: %s", name, result.error)
        return


def _described(name: str, description: str, talk: Conversation | None) -> dict[str, Any]:
    return {
        "name": name, "description": description, "running": talk is not None and talk.is_running,
        "queued": 0 if talk is None else len(talk.queued),
    }  # fmt: skip


async def supervise(talk: Conversation, going: Awaitable[RunResult]) -> RunResult:
    """Let a run and everything that it has woken come to an end. Aborting or cancelling it ends both."""
    try:
        try:
            result = await going
        except Exception:
            await talk.wait_for_loops()
            raise
        if result.stop_reason == "aborted":
            talk.stop_loops()
        await talk.wait_for_loops()
        return result
    except asyncio.CancelledError:
        talk.stop_loops()
        raise


# --- for the model -------------------------------------------------------------------------------


@functools.cache
def loop_tools() -> tuple[Tool, ...]:
    """The tools with which the model reaches other loops."""

    @tool
    async def loop_send(ctx: ToolContext, to: str, message: str, wake: bool = True) -> ToolResult:
        """Send a message to another loop of this agent; loop_list names them. It reads the message at its next request.

        If it is not at work, wake=true makes it work now; wake=false leaves the message until it works next. The answer
        does not come back with this call: the other loop may send one with loop_send.
        """
        run: RunState = ctx.run._run
        loops = _loops_of(run)
        if loops is None:
            return ToolResult("There are no other loops here.", is_error=True)
        if not message.strip() or len(message) > MAX_MESSAGE:
            return ToolResult(f"A message has 1 to {MAX_MESSAGE} characters, not {len(message)}.", is_error=True)
        try:
            return ToolResult(loops.send(run, to, message, wake))
        except ConfigError as error:
            return ToolResult(f"Nothing was sent: {error}.", is_error=True)

    @tool
    async def loop_list(ctx: ToolContext) -> ToolResult:
        """List the loops of this agent: name, what each is for, whether it is at work, how many messages wait for it."""
        loops = _loops_of(ctx.run._run)
        described = [] if loops is None else loops.describe()
        return ToolResult(msgspec.json.encode(described).decode(), structured_content=described)

    return loop_send, loop_list


def _hops_of(run: RunState) -> int:
    place: Place | None = getattr(run, "place", None)
    return 0 if place is None else place.hops


def _loops_of(run: RunState) -> Loops | None:
    place: Place | None = getattr(run, "place", None)
    return None if place is None else place.loops
