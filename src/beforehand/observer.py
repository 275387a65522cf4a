"""What watches runs from inside: the base classes of tracing.

A listener hears events. An observer is one that holds something open while a run goes on: it is told when a run begins
and is over (whatever ended it), of each request that leaves, and may put a context around a tool's body. Like a
listener it decides nothing, and what it raises is logged and never felt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

from .events import Event, StopReason
from .frozen import Frozen
from .messages import NO_USAGE, Request, Usage

logger = logging.getLogger("beforehand")

Leave: TypeAlias = Callable[[], Any]
"""Takes back what entering has set."""


class RunBegin(Frozen, kw_only=True):
    """A run begins, or goes on after a suspension: then `resumed` is set, and its turn is not announced again.

    `kind` is "compaction" where a conversation is compacted by hand, which is no run of turns. `usage` and `cost` are what
    the run had used before.
    """

    run_id: str
    kind: Literal["run", "compaction"] = "run"
    agent: str
    model: str
    provider: str
    conversation_id: str
    loop: str = "main"
    parent_call_id: str | None = None
    resumed: bool = False
    usage: Usage = NO_USAGE
    cost: float = 0.0


class RunEnd(Frozen, kw_only=True):
    """A run is over, or suspended. `stop_reason` is `None` if it was torn down (`error` says by what) or is no run of turns.

    `usage` and `cost` are those of the whole run.
    """

    stop_reason: StopReason | None
    reason: str | None = None
    error: BaseException | None = None
    turns: int = 0
    usage: Usage = NO_USAGE
    cost: float = 0.0


class RequestBegin(Frozen, kw_only=True):
    """A request leaves. `number` counts the requests of a run; `kind` is "turn", "compaction" or "direct"."""

    number: int
    kind: str
    loop: str
    turn: int
    model: str
    provider: str
    endpoint: str
    streams: bool
    request: Request


class RequestEnd(Frozen, kw_only=True):
    """The reply is complete, failed (`error`), or was closed by us before its end (`cut`).

    `stop_reason` and `usage` are what the model said; `waited` are the seconds until the first piece came.
    """

    number: int
    stop_reason: str | None = None
    usage: Usage = NO_USAGE
    error: BaseException | None = None
    cut: bool = False
    waited: float | None = None


class CallBegin(Frozen, kw_only=True):
    """A tool's body is about to run. `args` is `None` where the body decodes them itself.

    A call that waited for a person was announced in the part of the run before.
    """

    loop: str
    turn: int
    call_id: str
    name: str
    args: Any


class RunObserver:
    """Watches one run. `events` names the event types that `hear` is called with, before any listener."""

    events: ClassVar[frozenset[str]] = frozenset()

    def hear(self, event: Event) -> None:
        """An event of this run, or one that a sub-agent passes on."""

    def request_begins(self, begin: RequestBegin) -> None:
        """Called right before the request leaves."""

    def enter_request(self, number: int) -> Leave | None:
        """Called before the first piece of the reply is waited for, in the task that waits; left when it is there."""

    def request_ends(self, end: RequestEnd) -> None:
        """Called once for each request that began, unless the run is torn down first."""

    def enter_call(self, begin: CallBegin) -> Leave | None:
        """Called before a tool's body, in the task that runs it."""

    def ends(self, end: RunEnd) -> None:
        """The run is over. Called once, and nothing is called after it."""


class Observer:
    """Makes a `RunObserver` for each run. Given as one of the `listeners`; sub-agents' runs are watched too."""

    def begin(self, run: RunBegin) -> RunObserver | None:
        """A run begins. `None` leaves it unwatched."""
        raise NotImplementedError(f"{type(self).__name__} does not implement begin()")


def tell(method: Callable[..., Any], *args: Any) -> Any:
    """Call an observer. What it raises is logged, and `None` returned."""
    try:
        return method(*args)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:  # nobody cancels here: nothing was waited for
        logger.exception("%s failed; the run goes on", getattr(method, "__qualname__", method))
        return None
