"""The messages of a run that is on record: each enters the history once, whether it is recorded now or was then."""

from __future__ import annotations

from typing import Any

from ..errors import RunChanged
from ..messages import LOST, Message, ToolMessage
from ..tools import ToolResult
from .details import kept
from .past import Past
from .queries import Head
from .recall import Recall
from .withheld import beside


class Stored(Recall):
    """Records what enters the history of a run. While the run goes over its past, what is on record enters it."""

    add: Any
    """Puts a record down."""

    def __init__(self, past: Past | None, head: Head) -> None:
        super().__init__(past)
        self.head = head
        self._seen = 0
        """How many of the recorded messages the run has stored again."""
        self._results: dict[str, ToolResult] = {}
        self._receiving = self._answered = self._ending = False
        """Whether a reply comes in, whether it is a hook's in place of the model's, and whether the run ends."""
        self._released_before = 0
        """How many characters the run had shown before the reply."""

    def storing(self, store: Any) -> Any:
        """`store`, which also records the message."""

        def record(message: Message) -> None:
            if self._is_stored():
                message = self._again(message, self.past.messages[self._seen])  # type: ignore[union-attr]
            else:
                self._record(message)
            store(message)

        return record

    def _is_stored(self) -> bool:
        return self.past is not None and not self.live and self._seen < len(self.past.messages)

    def _take_over(self, run: Any) -> None:
        """What has entered the history on record, and nobody says any more, is in it all the same.

        A hook that had queued it may be gone, or the run was aborted then, and had put into the history what no request took.
        """
        while self._is_stored() and not isinstance(message := self.past.messages[self._seen], ToolMessage):  # type: ignore[union-attr]
            waiting = next((queued for queued in run.hook_queue if queued == message), None)
            run.hook_queue = [queued for queued in run.hook_queue if queued is not waiting]
            run.store(message)

    def _again(self, message: Message, recorded: Message) -> Message:
        """The message as it is on record: hooks or tools that have changed since then do not change what was."""
        same = message.role == recorded.role and getattr(message, "tool_call_id", "") == getattr(recorded, "tool_call_id", "")
        if not same:
            raise RunChanged(
                f"the run does not go as it is recorded: where the record has a {recorded.role} message there is now a "
                f"{message.role} one, so its tools or hooks are not those it began with"
            )
        self._seen += 1
        self.intake.stored(recorded)
        return recorded

    def _record(self, message: Message) -> None:
        if isinstance(message, ToolMessage):
            result = self._results.get(message.tool_call_id)
            if result is not None and result.content is message.content and result.details is message.details:
                self.add("message", {"of": message.tool_call_id})
                return
        if self.past is not None and message.text == LOST:
            self.intake.check(self.head.run_id, self.past)
        more = self.intake.stored(message)
        if self._answered:
            more["answer"] = 1  # no `request` says where it began
        if self._ending:
            more["left"] = 1
        self.add("message", beside(kept(message), more))

    def ends(self, run: Any) -> None:
        """What is stored from now on no turn has taken: should the process die before the end is on record, one still may."""
        self._ending = True
        self.from_hooks.arrange(run.hook_queue)

    def receiving(self, run: Any, sent: bool) -> None:
        """A reply comes in from now on, until `replied`: to a request that was `sent`, or a hook's in its place."""
        self._receiving, self._answered = True, not sent
        self._released_before = run.characters_released
