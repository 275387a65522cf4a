"""The stream guard: a fold over stages. Text is shown only when every stage has let it pass.

Each `on_chunk` hook is one stage. It is handed the text that reached it and that it has not let pass yet (`pending`),
and says how much may go on to the next stage. What comes out of the last one is shown, stored and sent alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ..decisions import Drop, Hold, Interrupt
from ..errors import Stop
from ..seams import Chunk, RunInfo


class Interrupted(Stop):
    """A stage interrupts the reply. `verdict` is its `Interrupt`."""

    def __init__(self, verdict: Interrupt) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class Ruling(Protocol):
    """What asking one stage comes to."""

    @property
    def changes(self) -> dict[str, Any]: ...
    @property
    def verdict(self) -> Any: ...


class Watch(Protocol):
    """What a hook keeps about one channel, if it can tell cheaply that new text does not concern it."""

    def quiet(self, delta: str, pending: int) -> int | None:
        """How much to keep back, if there is nothing to decide about `delta`, which follows `pending` characters.

        `None`: the hook has to be asked. Whatever it decides it decides there, and it never raises here.
        """
        ...


Ask = Callable[[Any, Chunk], Awaitable[Ruling]]
Fail = Callable[[Any, Chunk, str], Awaitable[None]]


class _Stage:
    """One hook's place in one channel: what it keeps back, and how much it has let pass."""

    __slots__ = ("hook", "pending", "released", "watch")

    def __init__(self, hook: Any, watch: Watch | None) -> None:
        self.hook, self.watch = hook, watch
        self.pending = ""
        self.released = 0

    def passes(self, hold: int, text: str) -> str:
        """Keep back the last `hold` characters of what is pending and of `text`."""
        if self.pending:
            text = self.pending + text
        if hold:
            self.pending, text = text[-hold:], text[:-hold]
        elif self.pending:
            self.pending = ""
        self.released += len(text)
        return text


class _Channel:
    """The stages of one channel, and whether one of them has thrown text away."""

    __slots__ = ("dropped", "stages")

    def __init__(self, stages: list[_Stage]) -> None:
        self.stages = stages
        self.dropped = False


class Guard:
    """The stages of one message, for each of its channels (text, reasoning, each call's arguments).

    `ask` puts one chunk to one hook, `fail` treats a hook as failed: it raises, or returns if the hook fails open.
    """

    def __init__(
        self, hooks: Sequence[Any], run: RunInfo, message_id: str, *, ask: Ask, fail: Fail, max_hold: int | None
    ) -> None:
        self._hooks = hooks
        self._run = run
        self._message_id = message_id
        self._ask, self._fail = ask, fail
        self._max_hold = max_hold
        self._channels: dict[tuple[str, str | None], _Channel] = {}

    async def feed(self, kind: Any, delta: str, call_id: str | None = None, final: bool = False) -> str:
        """Pass new text of a channel through its stages; returns what may be shown now.

        Raises `Interrupted`, or `HookFailed` as the dispatcher does. After `final=True` the channel is closed.
        """
        channel = self._channels.get((kind, call_id)) or self._open(kind, call_id)
        text = delta
        for stage in channel.stages:
            if not text and not final:
                break
            if stage.watch is not None and not final:
                hold = stage.watch.quiet(text, len(stage.pending))
                if hold is not None:
                    if hold or stage.pending:
                        if self._max_hold is not None and hold > self._max_hold:
                            pending = stage.pending + text
                            chunk = Chunk(self._run, kind, text, pending, stage.released, False, self._message_id, call_id)
                            hold = await self._too_much(stage, chunk, hold)
                        text = stage.passes(hold, text)
                    else:
                        stage.released += len(text)
                    continue
            stage.pending += text
            chunk = Chunk(self._run, kind, text, stage.pending, stage.released, final, self._message_id, call_id)
            ruling = await self._ask(stage.hook, chunk)
            if ruling.verdict is None and not ruling.changes:
                text, stage.pending = stage.pending, ""
                stage.released += len(text)
            else:
                text = await self._pass(stage, chunk, channel, ruling)
        return text

    def _open(self, kind: Any, call_id: str | None) -> _Channel:
        stages = []
        for hook in self._hooks:
            watched = getattr(hook, "watch", None)
            stages.append(_Stage(hook, watched and watched(self._run, self._message_id, kind, call_id)))
        channel = self._channels[kind, call_id] = _Channel(stages)
        return channel

    async def _pass(self, stage: _Stage, chunk: Chunk, channel: _Channel, ruling: Ruling) -> str:
        """What a stage that has decided something lets pass."""
        verdict, pending = ruling.verdict, stage.pending
        hold = 0
        if verdict is not None:
            if type(verdict) is Interrupt:
                raise Interrupted(verdict)
            if type(verdict) is Drop:
                stage.pending, channel.dropped = "", True
                return ""
            if type(verdict) is Hold:
                hold = verdict.n
        if ruling.changes and not (channel.dropped and not pending):  # a drop counts before a replacement of nothing
            pending = ruling.changes.get("text", pending)
            hold = ruling.changes.get("hold", 0)
        if chunk.final:
            hold = 0  # nothing more will come that could turn it into something else
        elif self._max_hold is not None and min(hold, len(pending)) > self._max_hold:
            hold = await self._too_much(stage, chunk, min(hold, len(pending)))
        cut = max(0, len(pending) - hold)
        stage.pending = pending[cut:]
        stage.released += cut
        return pending[:cut]

    async def _too_much(self, stage: _Stage, chunk: Chunk, hold: int) -> int:
        """A stage that keeps back more than it may has failed. Should it fail open, it keeps back nothing."""
        await self._fail(stage.hook, chunk, f"holds back {hold} characters, more than max_hold={self._max_hold}")
        return 0

    def open_channels(self) -> list[tuple[str, str | None]]:
        """The channels that have had text, in order of appearance."""
        return list(self._channels)
