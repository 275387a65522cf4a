"""Fresh workers: every call has one of its own, which is killed when the call ends, however it ends.

Workers belong to an event loop and end with it, those that wait for a call (`spares`) as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator
from time import perf_counter
from functools import partial
from typing import Any

import msgspec

from ..errors import Aborted, ConfigError
from ..signals import AbortSignal
from .contract import (
    JSON, Bridge, Console, Job, LambdaRaised, Outcome, SandboxError, SandboxLimits, Source, decode_json, timed_out,
    too_deep,
)  # fmt: skip
from .family import Family, family_here, inside
from .spares import MOMENT, Spares, Worker

MAX_WORKERS = 64
"""Calls under way at once on one event loop, and as many that others wait for; the rest waits, on its own time. Calls made by
calls count in `family`."""
MAX_SPARES = 128
"""Workers of one language that wait for calls. More than there are at once: a burst is served from what waits, and those that
wait for their place find a worker too. One that waits holds some 9 MB of its own if it is Deno's."""


async def call(
    source: Source, function: str, argument: JSON, *, limits: SandboxLimits, bridge: Bridge, signal: AbortSignal | None = None,
    console: Console | None = None, until: float | None = None,
) -> Outcome:  # fmt: skip
    """Run one function of a file in a worker of its own.

    `argument` is a JSON value, or `bytes` that hold its JSON text. Raises a `SandboxError` when there is no result, and
    `Aborted` when `signal` was set; a cancellation kills the worker as well. `console` is where text goes at once, `until`
    the event loop's time at which the call is late already.
    """
    if console is None:
        console = Console(limits.console)
    text = argument if isinstance(argument, bytes) else msgspec.json.encode(argument)
    job = Job(source, function, text.decode(), limits, bridge, console)
    began = perf_counter()
    try:
        returned = await _in_time(job, signal, until)
        try:
            value = decode_json(returned)
        except RecursionError:
            raise too_deep(job) from None
        except msgspec.DecodeError as error:
            raise job.error(LambdaRaised, f"returned what JSON cannot hold: {error}") from None
    except SandboxError as error:
        error.console = console.text
        raise
    return Outcome(value, console.text, perf_counter() - began, len(returned))


async def _in_time(job: Job, signal: AbortSignal | None, until: float | None) -> bytes:
    """The result as JSON text, from a worker that is killed before this returns or raises."""
    if signal is not None and signal.aborted:
        raise Aborted(signal.reason or "aborted")
    work = asyncio.ensure_future(_pool().run(job))
    take_back = signal.on_abort(lambda: _cancel(work)) if signal is not None else _nothing
    try:
        left = job.limits.wall_time if until is None else max(until - asyncio.get_running_loop().time(), 0)
        done, _ = await asyncio.wait({work}, timeout=left)
        if not done:
            raise timed_out(job)
        if work.cancelled() and signal is not None and signal.aborted:
            raise Aborted(signal.reason or "aborted while a lambda was running")
        return work.result()
    finally:
        take_back()
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
        if not work.cancelled():
            work.exception()


def _nothing() -> None: ...


def _cancel(work: asyncio.Future[Any]) -> None:
    work.cancel()


class _Pool:
    """The workers of one event loop."""

    def __init__(self) -> None:
        self._spares = {
            language: Spares(partial(_started, language, spare=True), self._discard, MAX_SPARES)
            for language in ("python", "script")
        }
        self._closing: set[asyncio.Future[Any]] = set()
        self._free, self._free_awaited = asyncio.Semaphore(MAX_WORKERS), asyncio.Semaphore(MAX_WORKERS)
        self._keeper = self._keep()
        self._kept = False

    async def _keep(self) -> AsyncGenerator[None, None]:
        """`asyncio.run` closes the generators of its loop before the loop: the place to end what still waits."""
        try:
            yield
        finally:
            await self.close()

    async def run(self, job: Job) -> bytes:
        """The result of a job, as JSON text."""
        if not self._kept:
            self._kept = True
            await anext(self._keeper)
        language, awaited = _language(job.source), getattr(job.bridge, "awaited", False)
        with self._spares[language].call():
            here = family_here()
            if here is not None:  # it must not wait for those that wait for it
                family, depth = here
                async with family.place(job, depth, awaited):
                    inside.set((family.apart() if awaited else family, depth))
                    return await self._run(language, job)
            async with self._free_awaited if awaited else self._free:
                family = Family(job.limits.suspensions)
                inside.set((family, 0))  # in the context of the task that does this call, and of what its bridge does
                try:
                    return await self._run(language, job)
                finally:
                    family.end()

    async def _run(self, language: str, job: Job) -> bytes:
        worker = await self._take(language)
        try:
            return await worker.run(job)
        finally:
            worker.kill()
            self._close_later(worker)

    async def _take(self, language: str) -> Worker:
        while (spare := self._spares[language].take()) is not None:
            await self._wait_for(spare)
            if spare.cancelled() or spare.exception() is not None:
                continue  # what kept it from starting may be over: a worker that is started now says so if it is not
            if (worker := spare.result()).alive:
                return worker
            self._close_later(worker)
        started = asyncio.ensure_future(_started(language, spare=False))
        await self._wait_for(started)
        return started.result()

    async def _wait_for(self, worker: asyncio.Future[Worker]) -> None:
        """Until it has started, or cannot."""
        try:
            await asyncio.wait({worker})
        except asyncio.CancelledError:
            self._discard(worker)
            raise

    def _discard(self, worker: asyncio.Future[Worker]) -> None:
        """End a worker that nobody will use, started or not."""
        self._closing.add(worker)
        worker.add_done_callback(self._close_unused)
        worker.cancel()

    def _close_unused(self, spare: asyncio.Future[Worker]) -> None:
        self._closing.discard(spare)
        if not spare.cancelled() and spare.exception() is None:
            self._close_later(spare.result())

    def _close_later(self, worker: Worker) -> None:
        task = asyncio.ensure_future(_close(worker))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End every spare, and wait until every worker that was killed is gone. They end even if this is cancelled."""
        for spares in self._spares.values():
            for spare in spares.give_up():
                self._discard(spare)
        while self._closing:
            await asyncio.wait(set(self._closing))


_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = weakref.WeakKeyDictionary()
"""A pool leads to its event loop, so neither goes by itself: those of loops closed by hand go when there is a new one."""


def _pool() -> _Pool:
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        for other in [ref() for ref in _pools.keyrefs()]:
            if other is not None and other.is_closed():
                _pools.pop(other, None)
        pool = _pools[loop] = _Pool()
    return pool


async def close_spares() -> None:
    """End the workers that wait for calls on this event loop. The next call starts fresh ones."""
    pool = _pools.get(asyncio.get_running_loop())
    if pool is not None:
        await pool.close()


def _language(source: Source) -> str:
    if source.is_python:
        return "python"
    if source.is_script:
        return "script"
    raise ConfigError(f"{source.path} is no lambda: its name must end in .py, .ts or .js")


def check_language(source: Source) -> None:
    """Raise `ConfigError` when nothing here can run this file."""
    if _language(source) == "script":
        from .deno import binary

        binary()


async def _close(worker: Worker) -> None:
    """Free what is left of it, in a moment."""
    with contextlib.suppress(asyncio.CancelledError):  # the event loop ends
        await asyncio.sleep(MOMENT)
    await worker.aclose()


async def _started(language: str, *, spare: bool) -> Worker:
    """A worker that waits for its job, for some time if it is a spare. What it needs is imported here, on first use."""
    worker: Any
    if language == "python":
        from .monty import MontyWorker

        worker = MontyWorker()
    else:
        from .deno import DenoWorker

        worker = DenoWorker()
    try:
        await worker.start(spare)
    except BaseException:
        await worker.aclose()
        raise
    return worker  # type: ignore[no-any-return]


__all__ = ["MAX_WORKERS", "Worker", "call", "check_language", "close_spares"]
