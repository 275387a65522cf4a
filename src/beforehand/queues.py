"""A conversation's waiting messages."""

from __future__ import annotations

from .messages import Message


class Queues:
    """A conversation's waiting messages. A message leaves its queue when the history holds it, not before."""

    __slots__ = ("follow_up", "follow_up_mode", "steering", "steering_mode")

    def __init__(self, steering_mode: str = "one-at-a-time", follow_up_mode: str = "one-at-a-time") -> None:
        self.steering: list[Message] = []  # lists: a deque takes 760 bytes, and a queue here is short
        self.follow_up: list[Message] = []
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
                    return
