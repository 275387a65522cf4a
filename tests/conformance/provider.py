"""The recordings' fake provider, as a model of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from beforehand import Model, Request
from beforehand.errors import ServerError
from beforehand.models.base import NO_CALL_INFO, CallInfo, Finish, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta

STOPS: dict[str, Any] = {"toolUse": "tool_calls"}

OnCall = Callable[["RecordedModel", Request, CallInfo], None]


class Script:
    """The turns of a recording. All models of a scenario play from one script; `on_call` hears of every request."""

    def __init__(self, turns: list[dict[str, Any]], on_call: OnCall, never_ends: bool) -> None:
        self.turns, self.on_call, self.never_ends = turns, on_call, never_ends
        self.calls = 0

    def next(self) -> dict[str, Any]:
        self.calls += 1
        if self.calls > len(self.turns):
            return {"error": f"the script has no turn {self.calls}"}
        return self.turns[self.calls - 1]


class RecordedModel(Model):
    """Streams what the script says: a delta for each chunk, `chunk_ms` apart, and a failure where one is recorded.

    `throw_sync` fails while being called, `reject` before the first delta, both with something that is no `ModelError`.
    """

    def __init__(self, name: str, provider: str, script: Script) -> None:
        self.name, self.provider, self.script = name, provider, script

    def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncIterator[ModelEvent]:
        turn = self.script.next()
        self.script.on_call(self, request, call)
        if "throw_sync" in turn:
            raise RuntimeError(turn["throw_sync"])
        return self._play(turn)

    async def _play(self, turn: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        if "reject" in turn:
            raise RuntimeError(turn["reject"])
        if "error" in turn and turn.get("error_at") != "after_partial":
            raise ServerError(turn["error"])
        if self.script.never_ends:
            return
        if thinking := turn.get("thinking"):
            yield ThinkingDelta(thinking)
        for chunk in turn.get("chunks") or [text for text in [turn.get("text")] if text]:
            await asyncio.sleep(turn.get("chunk_ms", 0) / 1000)
            yield TextDelta(chunk)
        for index, wanted in enumerate(turn.get("tool_calls", [])):
            yield ToolCallDelta(index, wanted["id"], wanted["name"], json.dumps(wanted["args"], separators=(",", ":")))
        if "error" in turn:
            raise ServerError(turn["error"])
        yield Finish(STOPS.get(turn["stop"], turn["stop"]))
