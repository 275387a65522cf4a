"""The messages that wait in a conversation's queues while a run of it is on record: none is lost with the process.

Each has a number within the run. `queued` says that one came, `cleared` that some were taken back, and the `turn` or `took`
that took one names it. So what is left over is known when the run goes on, and is queued again, once: if the run goes on
where it was begun, the conversation still has the messages, and knows them by their numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from ..messages import LOST, Message
from ..queues import Queues
from .codec import message_of
from .past import Past
from .withheld import Keep, was_withheld

_body: ContextVar[tuple[str, str] | None] = ContextVar("_body", default=None)
"""The run and the call whose body runs here, of a run on record."""

PROMPT = 0
"""The number of a queued message that is a prompt of the run, and on record as such."""


def each(queues: Queues) -> Iterator[Message]:
    yield from queues.steering
    yield from queues.follow_up


def put(queues: Queues, message: Message) -> None:
    (queues.steering if message.origin == "steer" else queues.follow_up).append(message)


def begin_waiting(queues: Queues, run_id: str, prompts: Sequence[Message]) -> list[Message]:
    """What waits already when a run begins, to be put into its first record. Numbered from 1, without its prompts."""
    queues.numbers = None  # those of the run before
    if not queues.steering and not queues.follow_up:
        return []
    queued = [message for message in each(queues) if not any(message is prompt for prompt in prompts)]
    for message in each(queues):
        queues.number(message, run_id, PROMPT)
    for number, message in enumerate(queued, 1):
        queues.number(message, run_id, number)
    return queued


class Waiting:
    """Keeps the record of the queues of one conversation, for as long as one run of it goes on."""

    def __init__(
        self, queues: Queues, run_id: str, add: Callable[[str, Any], None], keep: Keep, past: Past | None
    ) -> None:  # fmt: skip
        self.queues, self._run_id, self._add, self._keep = queues, run_id, add, keep
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._again: list[Message] = []
        self._last = 0
        self._past = past
        self._said: dict[str, list[tuple[int, Message]]] = {}
        """What a call that runs again had said before, and has not said again yet."""
        self._around: dict[str, tuple[str, str] | None] = {}
        if past is None:
            self._last = max(self._numbers(each(queues)), default=0)
        elif past.queued or queues.steering or queues.follow_up:
            self._take_up(past)
        self.note()

    def _numbers(self, messages: Iterable[Message]) -> list[int]:
        return [number for message in messages if (number := self.number_of(message)) is not None]

    def number_of(self, message: Message) -> int | None:
        return self.queues.number_in(self._run_id, message)

    def here(self, number: int) -> Message | None:
        """The message of this number, if the conversation still has it."""
        return next((m for of, n, m in (self.queues.numbers or {}).values() if (of, n) == (self._run_id, number)), None)

    def _take_up(self, past: Past) -> None:
        """Of a run that goes on, what is to be queued again: not what the conversation has in its queues all the same.

        What it has and somebody else's process has taken is over; what it no longer has was taken back when no run went on.
        """
        self._last = max(past.queued, default=0)
        left = past.waiting()
        for queue in (self.queues.steering, self.queues.follow_up):
            queue[:] = [m for m in queue if (number := self.number_of(m)) is None or number in left]
        here = set(self._numbers(each(self.queues)))
        known = self.queues.numbers_of(self._run_id)
        gone = [number for number in left if number in known and number not in here]
        if gone:
            self._add("cleared", {"numbers": gone})
        for number, written in left.items():
            if number not in known:
                message = message_of(written)
                self.queues.number(message, self._run_id, number)
                self._again.append(message)

    def requeue(self, before: Iterable[Message]) -> None:
        """Queue again what is left over: from the record, and `before`, which its turns have left in the queues."""
        again = [*before, *self._again]
        if again:
            waiting = [*again, *each(self.queues)]
            self.queues.steering.clear()
            self.queues.follow_up.clear()
            for message in sorted(waiting, key=lambda m: self.number_of(m) or 0):
                put(self.queues, message)
        self._again = []

    # --- while it goes on ---

    def note(self, came: Message | None = None) -> None:
        """Record that `came` is in the queues, or all that is. From any thread: a tool may run in one."""
        if self._closed or not self._is_here(self.note, came):
            return
        by = None if came is None else self._speaker()
        if came is not None and by is not None and self._was_said(came, by):
            return
        for message in each(self.queues):
            if self.number_of(message) is None and (came is None or message is came):
                self._last += 1
                self.queues.number(message, self._run_id, self._last)
                self._add("queued", {"number": self._last, "message": self._keep(message), **({} if by is None else {"by": by})})

    def _speaker(self) -> str | None:
        """The call of this run whose body the code belongs to that speaks here."""
        run_id, call_id = _body.get() or ("", "")
        return call_id if run_id == self._run_id and call_id in self._around else None

    def begins(self, call_id: str) -> None:
        """The body of a call runs from here on: what it says is its own."""
        self._around[call_id] = _body.get()
        _body.set((self._run_id, call_id))

    def ended(self, call_id: str) -> None:
        if call_id in self._around:
            _body.set(self._around.pop(call_id))

    def repeats(self, call_id: str) -> None:
        """The body of a call runs again: what it says as it has said it before is on record already."""
        if self._past is not None and call_id in self._past.queued_by.values():
            of = [number for number, by in self._past.queued_by.items() if by == call_id]
            self._said[call_id] = [(number, message_of(self._past.queued[number])) for number in of]

    def _was_said(self, came: Message, by: str) -> bool:
        """Whether the body that runs again had said this. Then it waits already, or was taken back, and leaves the queue."""
        said = self._said.get(by, [])
        place = next((place for place, (number, message) in enumerate(said) if message == came or self._is_hidden(number)), None)
        if place is None:
            return False
        number, _ = said.pop(place)
        self.queues.stored(came)
        if (notice := self.here(number)) is not None and notice.text == LOST:  # now it is known again what was said
            self.queues.replace(notice, came)
        return True

    def _is_hidden(self, number: int) -> bool:
        """Whether what this message said cannot be compared: hooks were still to judge it when it came."""
        return self._past is not None and was_withheld(self._past.queued[number])

    def clear(self) -> None:
        """Everything is about to be taken out of the queues. From any thread."""
        numbers = [number for number in self._numbers([*self._again, *each(self.queues)]) if number != PROMPT]
        self._again = []
        for said in self._said.values():
            said[:] = [one for one in said if one[0] not in numbers]
        if numbers:
            self._cleared(numbers)

    def _cleared(self, numbers: list[int]) -> None:
        if not self._closed and self._is_here(self._cleared, numbers):
            self._add("cleared", {"numbers": numbers})

    def _is_here(self, otherwise: Callable[..., None], *given: Any) -> bool:
        """Whether this is the event loop's thread. If not, the loop does it soon."""
        try:
            if asyncio.get_running_loop() is self._loop:
                return True
        except RuntimeError:
            pass
        self._loop.call_soon_threadsafe(otherwise, *given)
        return False

    def close(self) -> None:
        """The run's record is about to end. What comes from now on is for the next one."""
        self._closed = True

    def taken_first(self, incoming: Sequence[Message], cause: str | None) -> dict[str, Any]:
        """What to record of the messages that a turn begins with: those from the queues.

        Without a cause they are the run's prompts, and what a turn that failed was to take.
        """
        queued = [m for m in incoming if m.origin in ("steer", "follow_up") and (cause is not None or self.number_of(m))]
        return self.taken(queued) if queued or cause is not None else {}

    def taken(self, messages: Sequence[Message]) -> dict[str, Any]:
        """What to record of messages that a turn takes."""
        taken: dict[str, Any] = {"took": [self._keep(message) for message in messages]}
        numbers = [self.number_of(message) for message in messages]
        if any(numbers):
            taken["queued"] = numbers
        return taken
