"""The bridge calls of one worker: each waits for its turn, and none begins once the worker has been killed.

A lambda can make all its calls at once and never read an answer. What that costs is the host's memory and its event loop,
so a call begins only when few are under way, and when the worker has taken what was answered before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from .contract import JSON, BridgeRefused, Job, LambdaTooManyCalls, Progress, SandboxError
from .values import decode_handed

AT_ONCE = 8
"""Calls of one lambda under way at once. The arguments of all that are unanswered may be as large as those of so many."""


class Turns:
    """Hands a worker's calls to its bridge, in the order they were made. Raises `BridgeRefused` like the bridge itself."""

    def __init__(self) -> None:
        self._door = asyncio.Lock()  # whoever is next holds it, so that nobody overtakes
        self._next: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._made = self._unanswered = 0
        self._untaken = self._closed = False

    def count(self, job: Job) -> SandboxError | None:
        """One more call; the error if it is one too many."""
        self._made += 1
        if self._made <= job.limits.suspensions:
            return None
        return job.error(LambdaTooManyCalls, f"made more than {job.limits.suspensions} bridge calls")

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task for a call, which `close` cancels."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def call(self, job: Job, method: str, argument: bytes, *, first: bool = False) -> JSON:
        """Call the bridge with an argument that is JSON text, when it is this call's turn. One that is `first` does not wait."""
        size, most = len(argument), AT_ONCE * job.limits.output
        self._raise_if_closed(method)
        if self._unanswered + size > most:
            raise BridgeRefused("LIMIT", f"the calls not answered yet hold more than {most:,} bytes of JSON: await some first")
        self._unanswered += size
        calls = job.calls
        try:
            if not first:
                calls.waiting += 1
                try:
                    await self._turn(calls)
                finally:
                    calls.waiting -= 1
            calls.under_way.append(method)
            try:
                self._raise_if_closed(method)
                return await job.bridge(method, _value(method, argument))
            finally:
                calls.under_way.remove(method)
        finally:
            self._unanswered -= size
            self._wake()

    async def _turn(self, calls: Progress) -> None:
        async with self._door:
            while self._untaken or len(calls.under_way) >= AT_ONCE:
                self._next = asyncio.get_running_loop().create_future()
                await self._next

    def _raise_if_closed(self, method: str) -> None:
        if self._closed:
            raise BridgeRefused("INVALID_STATE", f"adf.{method} was not called: the lambda had ended")

    def answers_taken(self, taken: bool) -> None:
        """Whether the worker has taken all it was answered. Until then no other call begins."""
        self._untaken = not taken
        self._wake()

    def close(self) -> None:
        """The worker is being killed: what is under way is cancelled, and nothing begins any more.

        The flag is needed beside the cancellation: a call may be on its way to this event loop, and no task yet.
        """
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def _wake(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)


def _value(method: str, argument: bytes) -> JSON:
    try:
        return decode_handed(argument)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BridgeRefused("INVALID_INPUT", f"adf.{method} was given what JSON cannot hold: {error}") from None
