"""What a run asks of its journal, wherever that is kept: the interface that every kind of journal has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from .chain import Record
from .queries import Head, RunRow
from .sqlite import Entry

P = ParamSpec("P")
T = TypeVar("T")


class Held(Protocol):
    """The right to go on with a run, until it is given back."""

    def release(self) -> None: ...


class Contents(Protocol):
    """Everything in a journal at one moment, to check it."""

    error: type[Exception]
    """What reading it raises where it is damaged."""

    def facts(self) -> dict[str, Any]:
        """What stands beside the chain: the number of runs `opened`, the `head` of the last, its `seal`; if it is `signed`."""

    def runs(self) -> list[tuple[int, str, int, bytes, bytes, str | None]]:
        """Row, id, number of records, hash of the last, seal and parent of each run, in the order of opening."""

    def records(self, row: int) -> Any:
        """Number, time, kind, body and hash of each record of a run, in order."""

    def strays(self) -> int:
        """How many runs have records and were never opened."""

    def unsound(self) -> str | None:
        """What is wrong with how the records are kept and found, though each is as it was written."""

    def damage(self, error: Any) -> str:
        """What an `error` says of the journal. Raises what is no fault of it: it cannot be reached, or is not ours to read."""

    def close(self) -> None: ...


class Store(Protocol):
    """A journal. Coroutines are for the event loop and never hold it up; the other functions may wait for a network.

    `path` names it in messages, `raw` says whether what a tool gave before the hooks at 13 is kept too, and
    what people said before those at 1 and 10.
    """

    raw: bool

    @property
    def path(self) -> Any: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def signed(self) -> bool: ...

    async def ready(self) -> None:
        """Open it, before something is asked of it that must not wait. Raises `JournalUnreadable`."""

    async def begin(self, run_id: str, entry: Entry, parent: str | None = None) -> tuple[Head, Held]:
        """Begin the records of a run, and hold it. Raises `RunExists`, `JournalError`."""

    async def hold(self, run_id: str) -> Held:
        """The right to go on with a run, for one holder at a time. Raises `UnknownRun`, `RunBusy`."""

    def append(self, head: Head, entries: Sequence[Entry], wait: float = ...) -> None:
        """Add records to a run, all or none. With `wait=0` it does not wait: what fails then fails the next `write`."""

    async def write(self, head: Head, entries: Sequence[Entry], durable: bool = False) -> None:
        """Return once these records and all before them are written, with `durable` on the disk. Raises `JournalError`."""

    async def reading(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads from this journal, where it may wait."""

    def head(self, run_id: str) -> Head: ...
    def before_run(self, row: int) -> bytes: ...
    def has(self, run_id: str) -> bool: ...
    def children(self, run_id: str) -> frozenset[str]: ...
    def records(self, run_id: str, after: int = 0) -> list[Record]: ...
    def first(self, run_id: str) -> Record:
        """The record of a run's start, alone. Raises `UnknownRun`, `JournalUnreadable` if it is not there."""

    def runs(self, parent: str | None = "") -> list[RunRow]: ...
    def ids(self, beginning: str = "") -> list[str]: ...
    def is_going_on(self, run_id: str) -> bool: ...
    def answered(self) -> list[tuple[str, int]]:
        """The runs, inside none, whose last record is what a person said: nobody has gone on with them. With their length."""

    def drop_torn(self, head: Head) -> str | None:
        """Take away what a loss of power has left behind a run's end, and record that. Returns what was said of it.

        Raises `JournalUnreadable` for what stands there and is no such thing.
        """

    def contents(self) -> Contents: ...
    def close(self) -> None: ...
