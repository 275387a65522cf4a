"""Who calls the bridge: the run, and the hook or the tool whose code it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from ..calls import Call, nested_call
from ..contexts import digest_of, request_value
from ..errors import RunError, Stop
from ..events import DecisionMade
from ..intents import has_begun, is_on_record, replay_policy, stands_in_the_way
from ..messages import Request, clean
from ..models.base import Model
from ..sandbox import BridgeRefused
from ..seams import BY_NAME
from ..shadow import WATCHING
from ..state import RunState
from ..tools import Tool
from ..waits import within

logger = logging.getLogger("beforehand.lambdas")

MAX_DEPTH = 8
"""Lambdas inside lambdas, and calls inside calls."""

TURNS_TO_STOP = 10
"""Turns of the event loop in which something that was cancelled can stop before it counts as left behind: what stops at all
needs one for each task inside it."""

PATIENCE = 1.0
"""Seconds in which code that nothing is under way for makes its next call. Only calls that cannot begin wait for that."""

Result = TypeVar("Result")

_leaving: set[asyncio.Future[Any]] = set()
"""What its caller no longer waits for."""


def known_as(name: str, seam: str) -> str:
    """What tells a lambda from others in a record. They have numbers there, and some may be gone or new when it is read."""
    return f"{name} at {seam}"


def _leads_to(run: RunState, call_id: str | None) -> tuple[Any, ...]:
    """The chain that a call comes from. Its progress is judged wherever events are told, which may be far from there."""
    call = run.calls.get(call_id) if call_id is not None else None
    while call is not None and not call.within:
        call = run.calls.get(call.parent_id) if call.parent_id is not None else None
    return within.get() if call is None else call.within


class OnRecord(Exception):
    """Raised by work that was cancelled and has said itself what became of it."""


class Errand:
    """One thing that a lambda has the run do. Called, it says whether the lambda has left: nothing may begin for it then.

    It needs saying beside the cancellation, which a handler or a hook can swallow, and which waits for the event loop: a run
    that its caller cancels is over before this gets to the lambda's calls.
    """

    __slots__ = ("_deadline", "_run", "left")

    def __init__(self, run: RunState, deadline: float) -> None:
        self._run, self._deadline = run, deadline
        self.left = False

    def __call__(self) -> bool:
        return self.left or self._run.over or asyncio.get_running_loop().time() >= self._deadline


class Caller:
    """One hook at work, or one tool that runs code. `asking` is its function, `call_id` the tool call it is about.

    `deadline` is the event loop's time at which it has to be done, `failure` a failure inside it that must end the run.
    `update` says that it is about progress of the call.
    """

    def __init__(
        self, run: RunState, asking: Any, *, name: str, where: str, seam: str, call_id: str | None, deadline: float,
        update: bool = False,
    ) -> None:  # fmt: skip
        self.run, self.asking, self.name, self.where, self.seam, self.call_id = run, asking, name, where, seam, call_id
        spec = BY_NAME.get(seam)
        self.question = None if spec is None or spec.by_tool else run.question
        self.about = self.question or call_id
        self.known_as = known_as(name, seam)
        self.id = self._numbered("update" if update else "lambda")
        self.prefix = self.id if self.about is None else f"{self.about}/{self.id}"
        self._chain = _leads_to(run, call_id) if update else within.get()
        self.deadline, self.update = deadline, update
        self.failure: RunError | None = None
        self._under_way: dict[asyncio.Future[Any], str] = {}
        self._stopped: set[asyncio.Future[Any]] = set()
        self._made: set[str] = set()
        self._news: asyncio.Future[None] | None = None

    def _numbered(self, kind: str) -> str:
        """Its name. A run that goes on after a crash has to give each the name that it had, and asks some of them only:
        so each is counted among those of its own kind, and who acts in no way is not counted."""
        if WATCHING.get() is not None:
            return f"{kind}_0"
        run = self.run
        if run.journal is not None:
            number, self.known_as = run.journal.names.number(run, self.about, kind, self.known_as)
            return f"{kind}_{number}"
        counted, stem = run.lambdas or {}, kind if self.about is None else f"{self.about}/{kind}"
        counted[stem] = counted.get(stem, 0) + 1
        run.lambdas = counted
        return f"{kind}_{counted[stem]}"

    @property
    def parent_id(self) -> str:
        """What calls made here name as their parent: what it is about, else the hook itself."""
        return self.about or self.id

    async def next_call(self, tool: Tool, args: Mapping[str, Any]) -> Call:
        """A call made here. If it is on record it is that one, whatever came before it then: calls side by side come in any
        order. Raises `BridgeRefused` where another is on record that may be this one, and is not made again."""
        made = self._made
        again = (self._call(call_id, tool, args) for call_id in self._recorded() if call_id not in made)
        call = next((one for one in again if is_on_record(self.run, one)), None)
        while call is None:
            numbered = (f"{self.prefix}/{n}" for n in count(1))
            free = next(call_id for call_id in numbered if call_id not in made and not has_begun(self.run, call_id))
            new = self._call(free, tool, args)
            why = stands_in_the_way(self.run, new, [call_id for call_id in self._recorded() if call_id not in made])
            if why is None:
                call = new
            elif not await self._goes_on():
                await self.note("NotRun", why)
                raise BridgeRefused("TOOL_ERROR", why)
        made.add(call.id)
        self._tell_waiting()
        return call

    async def _goes_on(self) -> bool:
        """Return once another call has been made here, or has ended: of calls side by side those on record may be yet to come.
        False if none is under way, and none comes for a while."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        news = self._news
        await asyncio.wait({news}, timeout=None if self._under_way else PATIENCE)
        return news.done()

    def _tell_waiting(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    def _call(self, call_id: str, tool: Tool, args: Mapping[str, Any]) -> Call:
        call = nested_call(call_id, tool.name, args, self.parent_id)
        call.tool, call.made_by = tool, self.known_as
        return call

    def _recorded(self) -> Sequence[str]:
        """The calls that are on record as made by this caller, by a process that has ended."""
        holder = None if self.run.journal is None else self.run.journal.past_call(self.prefix)
        return () if holder is None else holder.inner

    def next_ask(self, request: Request, model: Model) -> str:
        """Who asks the model: this caller, for the nth time. What has been answered before keeps its number, as calls do."""
        journal, made = self.run.journal, self._made
        answered: dict[str, tuple[str, str]] = {} if journal is None else journal.past_asides(self.prefix)
        this = (model.name, digest_of(request_value(request))) if answered else None
        asked = (f"{self.prefix}/ask_{n}" for n in count(1))
        again = (by for by, was in answered.items() if was == this and by not in made)
        by = next(again, None) or next(by for by in asked if by not in made and by not in answered)
        made.add(by)
        return by

    def enter(self) -> tuple[Any, ...]:
        """The chain with this caller in it. Raises `BridgeRefused` where it would go round, or too deep."""
        chain = self._chain
        if any(one is self.asking for one in chain):
            raise BridgeRefused(
                "CIRCULAR_CALL",
                f"{self.name} was asked about something that it has caused itself, and calls again: let its own calls pass "
                "first (run.parent_call_id), or confine it with tools=",
            )
        if len(chain) >= MAX_DEPTH:
            raise BridgeRefused("LIMIT", f"calls inside calls go at most {MAX_DEPTH} deep")
        return (*chain, self.asking)

    @property
    def acted(self) -> bool:
        """Whether a call made here may have taken effect that must not be made again."""
        begun = [call for call in self.run.calls.values() if call.id.startswith(f"{self.prefix}/") and call.tool is not None]
        before = [self.run.journal.past_call(call_id).intent for call_id in self._recorded()]
        return any(replay_policy(self.run, call)[0] == "never" for call in begun) or any(
            intent is not None and intent["replay"] == "never" for intent in before
        )

    def errand(self) -> Errand:
        return Errand(self.run, self.deadline)

    async def do(self, work: Coroutine[Any, Any, Result], what: str, errand: Errand) -> Result:
        """Do something with the run, in a task of its own. When the lambda ends first, the task is cancelled and left behind.

        What becomes of it then is recorded.
        """
        try:
            if self.run.aborted:
                raise BridgeRefused("INVALID_STATE", f"{what} was not begun: the run was aborted")
            chain = self.enter()
        except BridgeRefused:
            work.close()
            raise
        task = asyncio.ensure_future(self._aside(work, chain))
        self._under_way[task] = what
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            errand.left = True
            task.cancel()
            leaving = asyncio.ensure_future(self._record_end(task, what))
            _leaving.add(leaving)
            leaving.add_done_callback(_leaving.discard)
            raise
        self._under_way.pop(task, None)
        self._tell_waiting()
        try:
            return task.result()
        except Stop as error:
            raise BridgeRefused("INVALID_STATE", str(error)) from None
        except OnRecord:  # a tool that cancels its own task
            raise BridgeRefused("TOOL_ERROR", f"{what} was cancelled") from None

    async def _aside(self, work: Coroutine[Any, Any, Result], chain: tuple[Any, ...]) -> Result:
        within.set(chain)
        with self.run.work_aside():
            return await work

    async def _record_end(self, task: asyncio.Future[Any], what: str) -> None:
        await asyncio.wait({task})
        self._under_way.pop(task, None)
        if task.cancelled():
            await self.note("Cut", f"{what} was cancelled because {self.ended}")
        elif not isinstance(task.exception(), OnRecord):
            how = "finished" if task.exception() is None else "failed"
            await self.note("Late", f"{what} {how} although {self.ended}; what it gave was discarded")

    def stopped(self) -> None:
        """The work in this task was cancelled and has stopped: what is left is to tell what became of it."""
        task = asyncio.current_task()
        assert task is not None
        self._under_way.pop(task, None)
        self._stopped.add(task)

    async def leave(self) -> None:
        """The caller's code has ended, and what it had begun is being cancelled. What does not stop is recorded now, because
        the run may be over before it does."""
        try:
            for _ in range(TURNS_TO_STOP):
                if not self._under_way:
                    break
                await asyncio.sleep(0)
            if self._stopped:
                await asyncio.wait(self._stopped)
        finally:
            for what in list(self._under_way.values()):
                await self.note("LeftBehind", f"{what} goes on although {self.ended}. What it does is not known.")

    @property
    def ended(self) -> str:
        """Why something that was under way has to stop."""
        return "the run was aborted" if self.run.aborted else "the lambda had ended"

    async def note(self, verdict: str, reason: str, call_id: str | None = None) -> None:
        """Write down what is no decision and has to be known all the same."""
        if WATCHING.get() is not None:
            return
        run = self.run
        parent = self.call_id if call_id else run.parent_call_id
        entry = run.note(
            verdict, clean(reason[:500]), call_id or self.call_id,
            hook=self.name, where=self.where, seam=self.seam, parent_call_id=parent,
        )  # fmt: skip
        logger.info("%s at %s: %s: %s", self.name, self.seam, verdict, entry.reason)
        if run.events.takers["decision"]:
            with run.work_aside():
                await run.emit(DecisionMade(record=entry, **run.event_fields(entry.parent_call_id)))
