"""What a watched run does for its observers. Nothing here is called for a run that nobody watches."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from time import perf_counter
from typing import Any, Literal

from .calls import Call
from .draft import Outgoing
from .emitter import Emitter
from .events import DecisionMade
from .messages import NO_USAGE
from .models.base import Finish, ModelEvent
from .observer import CallBegin, Leave, Observer, RequestBegin, RequestEnd, RunBegin, RunEnd, RunObserver, tell
from .state import RunState


class Observed:
    """Those who watch one run, until it is over."""

    __slots__ = ("_events", "_outer", "_unwatch", "by")

    def __init__(self, events: Emitter, by: tuple[RunObserver, ...]) -> None:
        self.by, self._events = by, events
        watching = [tell(_watch, events, observer) for observer in by]
        self._unwatch: list[Callable[[], None]] = [unwatch for unwatch in watching if unwatch is not None]
        self._outer = sys.exception()  # what the caller is handling just now ends no run of ours

    def end(self, run: RunState) -> None:
        raised = sys.exception()
        error = run.error or (None if raised is self._outer else raised)
        stop_reason = run.stop_reason or ("aborted" if run.aborted else None)
        reason = run.reason or (run.signal.reason if stop_reason == "aborted" else None)
        end = RunEnd(stop_reason=stop_reason, reason=reason, error=error, turns=run.turn, usage=run.usage, cost=run.usage_cost)
        for unwatch in self._unwatch:
            unwatch()
        for observer in self.by:
            tell(observer.ends, end)

    def noted(self, run: RunState, event: DecisionMade) -> None:
        """What the core itself mended, which listeners find in the result."""
        for observer in self.by if run.events is self._events else ():
            if event.type in observer.events:
                tell(observer.hear, event)

    def enter(self, method: str, *args: Any) -> list[Leave]:
        entered = [tell(getattr(observer, method), *args) for observer in self.by]
        return [leave for leave in reversed(entered) if leave is not None]


def _watch(events: Emitter, observer: RunObserver) -> Callable[[], None]:
    return events.watch(observer.hear, observer.events)


def _begin(observer: Observer, facts: RunBegin) -> RunObserver | None:
    made = observer.begin(facts)
    if made is not None and not isinstance(made, RunObserver):
        raise TypeError(f"{type(observer).__name__}.begin() returned a {type(made).__name__}: expected a RunObserver or None")
    return made


def begin(
    run: RunState, events: Emitter, conversation_id: str, kind: Literal["run", "compaction"] = "run", *, resumed: bool
) -> None:
    """Tell the observers that a run begins, or goes on. `events` are the talk's."""
    facts = RunBegin(
        run_id=run.run_id, kind=kind, agent=run.plan.name, model=run.model.name, provider=run.model.provider,
        conversation_id=conversation_id, loop=run.loop, parent_call_id=run.parent_call_id, resumed=resumed,
        usage=run.usage, cost=run.usage_cost,
    )  # fmt: skip
    watching = [tell(_begin, observer, facts) for observer in events.observers]
    run.observed = Observed(events, tuple([observer for observer in watching if observer is not None]))


def end(run: RunState) -> None:
    """Tell the observers that the run is over, however it came to that. Waits for nothing."""
    observed, run.observed = run.observed, None
    observed.end(run)


def entered(run: RunState, call: Call) -> list[Leave]:
    """Put around a tool's body what the observers want around it. `left` takes it back."""
    begin = CallBegin(loop=run.loop, turn=run.turn, call_id=call.id, name=call.name, args=call.args)
    entered: list[Leave] = run.observed.enter("enter_call", begin)
    return entered


def left(leaves: list[Leave]) -> None:
    for leave in leaves:
        tell(leave)


class WatchedStream:
    """The stream of a reply, whose beginning and end the observers are told."""

    def __init__(self, run: RunState, outgoing: Outgoing, kind: str) -> None:
        self._observed: Observed = run.observed
        self._outgoing, self._number = outgoing, run.requests_sent
        self._stream: AsyncIterator[ModelEvent] | None = None
        self._finish: Finish | None = None
        self._waited: float | None = None
        self._ended = False
        model = outgoing.model
        begin = RequestBegin(
            number=self._number, kind=kind, loop=run.loop, turn=run.turn, model=model.name, provider=model.provider,
            endpoint=model.endpoint, streams=model.streams, request=outgoing.request,
        )  # fmt: skip
        for observer in self._observed.by:
            tell(observer.request_begins, begin)
        self._began = perf_counter()

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> ModelEvent:
        leaves: list[Leave] = []
        try:
            if self._stream is None:  # the adapter sends it while its first piece is waited for
                leaves = self._observed.enter("enter_request", self._number)
                self._stream = aiter(self._outgoing.model.stream(self._outgoing.request, self._outgoing.info))
            event = await anext(self._stream)
        except StopAsyncIteration:
            self._end()
            raise
        except BaseException as error:
            self._end(error)
            raise
        finally:
            left(leaves)
        if self._waited is None:
            self._waited = perf_counter() - self._began
        if type(event) is Finish:
            self._finish = event
        return event

    async def aclose(self) -> None:
        self._end()
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()

    def _end(self, error: BaseException | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        finish = self._finish
        end = RequestEnd(
            number=self._number, stop_reason=None if finish is None else finish.stop_reason,
            usage=NO_USAGE if finish is None else finish.usage, error=error, cut=finish is None and error is None,
            waited=self._waited,
        )  # fmt: skip
        for observer in self._observed.by:
            tell(observer.request_ends, end)
