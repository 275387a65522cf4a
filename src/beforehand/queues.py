"""A conversation's waiting messages."""

from __future__ import annotations

import msgspec

from .messages import AssistantMessage, Message, Text, clean


def from_hook(message: Message | str) -> Message:
    """What a hook has queued, as it enters the history."""
    if isinstance(message, str):
        return AssistantMessage((Text(clean(message)),), origin="hook")
    return message if message.origin == "hook" else msgspec.structs.replace(message, origin="hook")


class Queues:
    """A conversation's waiting messages. A message leaves its queue when the history holds it, not before."""

    __slots__ = ("follow_up", "follow_up_mode", "numbers", "steering", "steering_mode")

    def __init__(self, steering_mode: str = "one-at-a-time", follow_up_mode: str = "one-at-a-time") -> None:
        self.steering: list[Message] = []  # lists: a deque takes 760 bytes, and a queue here is short
        self.follow_up: list[Message] = []
        self.numbers: dict[int, tuple[str, int, Message]] | None = None
        """By identity, which run has a message on record, and under which number. Made when one has."""
        self.steering_mode = steering_mode
        self.follow_up_mode = follow_up_mode

    def next_steering(self) -> list[Message]:
        return self._head(self.steering, self.steering_mode)

    def next_follow_up(self) -> list[Message]:
        return self._head(self.follow_up, self.follow_up_mode)

    @staticmethod
    def _head(queue: list[Message], mode: str) -> list[Message]:
        return list(queue) if mode == "all" else [queue[0]] if queue else []

    def stored(self, message: Message) -> None:
        """Take out a message that the history now holds."""
        for queue in (self.steering, self.follow_up):
            for i, waiting in enumerate(queue):
                if waiting is message:
                    del queue[i]
                    if self.numbers is not None:
                        self.numbers.pop(id(message), None)
                    return

    def replace(self, waiting: Message, by: Message) -> None:
        """Put another message in the place of one that waits, and under its number."""
        for queue in (self.steering, self.follow_up):
            queue[:] = [by if message is waiting else message for message in queue]
        if self.numbers is not None and (found := self.numbers.pop(id(waiting), None)) is not None:
            self.numbers[id(by)] = *found[:2], by

    # --- for the record ---

    def number(self, message: Message, run_id: str, number: int) -> None:
        """This run has the message on record."""
        if self.numbers is None:
            self.numbers = {}
        self.numbers[id(message)] = run_id, number, message

    def number_in(self, run_id: str, message: Message) -> int | None:
        """The number under which a run has a message on record."""
        found = None if self.numbers is None else self.numbers.get(id(message))
        return found[1] if found is not None and found[0] == run_id else None

    def numbers_of(self, run_id: str) -> set[int]:
        """All that a run has on record, those of messages that wait no longer and were not stored too."""
        return {number for of, number, _ in (self.numbers or {}).values() if of == run_id}
