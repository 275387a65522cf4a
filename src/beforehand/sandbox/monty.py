"""Python lambdas, in `pydantic-monty`: an interpreter without files, network, environment or processes, in its own process.

The argument and the result cross as JSON text, so that a value made by a lambda is never turned into host objects
before its size is known.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import math
import os
import re
import time
import weakref
from keyword import iskeyword
from typing import Any

import msgspec
import pydantic_monty as monty

from ..errors import ConfigError
from .contract import (
    BridgeRefused, Job, LambdaBroken, LambdaMissing, LambdaNotStarted, LambdaRaised, LambdaUnsupported, SandboxError, answer_json,
    methods_of, no_memory, one_line, timed_out, too_deep, too_large,
)  # fmt: skip
from .process import bound, kill
from .turns import Turns
from .values import least_size

_HEAD_ROOM = 256 * 2**20
"""Private memory of a worker beside the lambda's heap."""
_RECURSION = 400
_LARGE = 65_536
"""Bytes of an answer that has to be taken before the next call begins."""
_PREPARE = "import adf\n_beforehand_type, _beforehand_names = type, locals"
"""A lambda may have something of its own that it calls `type`. What is ours has names that nothing of a lambda has by chance."""
_CALL = """
import json as _beforehand_json
if '{function}' not in _beforehand_names(): raise NameError('{function}')
_beforehand_value = {function}(_beforehand_json.loads(_beforehand_argument))
if _beforehand_type(_beforehand_value).__name__ == 'coroutine': _beforehand_value = await _beforehand_value
_beforehand_json.dumps(_beforehand_value, ensure_ascii=False, allow_nan=False)
"""
_FILE = "<python-input-1>"
"""What Monty calls the second thing it is fed: the lambda's file."""


# Monty's own threads report what they have done to the event loop, and a thread that is still in Python when the interpreter
# ends takes the whole process down. By then nothing is under way; the last report gets the moment it needs to return.
atexit.register(time.sleep, 0.02)


_process: int | None = None
"""The process that uses Monty, whose threads a fork leaves behind: in the child, everything it is asked would wait for ever."""


class MontyWorker:
    """One process for one call. `start` it ahead of time, `run` a job, `kill` it."""

    def __init__(self) -> None:
        self._pool = monty.AsyncMonty(min_processes=1, max_processes=1)
        self._checkout: Any = None
        self._started: asyncio.Future[Any] | None = None
        self._pid: int | None = None
        self._calls = Turns()
        self._over: SandboxError | None = None
        self._waits_for_one = False
        """Whether the worker waits for the call it is making, and takes nothing else before its answer."""

    async def start(self, spare: bool) -> None:
        global _process
        _process = _process or os.getpid()
        if _process != os.getpid():
            raise ConfigError("Python lambdas cannot run in a process that was forked from one in which some have run: start it "
                              "in another way (multiprocessing's \"spawn\"), or run none before it is forked")  # fmt: skip
        # No task, and shielded: a start that is given up has to come to its end, or its process would stay as a zombie.
        self._started = asyncio.ensure_future(self._pool.__aenter__())
        try:
            await asyncio.shield(self._started)
        except RuntimeError as error:
            self._started = None
            raise LambdaNotStarted(one_line(str(error))) from None

    @property
    def alive(self) -> bool:
        return True  # the pool inside replaces a process that has ended

    async def run(self, job: Job) -> bytes:
        """The JSON text of what the lambda returned. Raises a `SandboxError`."""
        limits = job.limits
        self._checkout = self._pool.checkout(
            script_name=job.source.path,
            limits={
                "max_memory": limits.memory,
                "max_feed_duration_secs": limits.wall_time,
                "max_suspensions": limits.suspensions + 100,  # imports and names count there, calls are counted here
                "max_recursion_depth": _RECURSION,
                "max_total_sleep_secs": limits.wall_time,
            },
            os_policy={"sleep_system_max": math.inf},  # the bound is on all sleeps together, and none ends early in silence
            external_modules={"adf": _adf(self, job)},
        )
        try:
            session = await self._checkout.__aenter__()
            self._pid = self._checkout.worker_pid
            if self._pid is not None:
                bound(self._pid, data=limits.memory + _HEAD_ROOM, cpu=limits.wall_time)

            def write(stream: str, text: str) -> None:
                job.console.write(text)

            await session.feed_run(_PREPARE, print_callback=write)
            # Without a statement it would not be counted, and the numbers of what follows would be others.
            await self._fed(session.feed_start(job.source.text + "\nNone", print_callback=write, os=_wait))
            driver = _CALL.format(function=job.function)
            inputs = {"_beforehand_argument": job.argument}
            returned = await self._fed(session.feed_start(driver, inputs=inputs, print_callback=write, os=_wait))
        except monty.MontyError as error:
            raise self._over or _explained(job, error) from None
        if self._over is not None:  # which it may have caught
            raise self._over
        if not isinstance(returned, str):
            raise job.error(LambdaBroken, "its result did not arrive as JSON")
        result = returned.encode("utf-8", "backslashreplace")
        if len(result) > limits.output:
            raise too_large(job, len(result))
        return result

    async def _fed(self, beginning: Any) -> Any:
        """What a piece of code gives, step by step: the steps tell when the worker takes what it was answered."""
        step = await beginning
        while not isinstance(step, monty.MontyComplete):
            self._waits_for_one = isinstance(step, monty.AsyncFunctionSnapshot) and step.allow_eager_await
            if isinstance(step, monty.AsyncFutureSnapshot):
                self._calls.answers_taken(True)
            step = await step.resume_auto()
        return step.output

    def kill(self) -> None:
        """End the process and every bridge call under way."""
        self._calls.close()
        if self._pid is not None:
            kill(self._pid)
            self._pid = None

    async def aclose(self) -> None:
        """Free what is left of a worker, killed or never used."""
        self.kill()
        if self._checkout is not None:
            checkout, self._checkout = self._checkout, None
            await _to_its_end(checkout.__aexit__(None, None, None))
        if self._started is not None:
            await _to_its_end(self._started)
            await _to_its_end(self._pool.__aexit__(None, None, None))

    async def bridge_call(self, job: Job, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (too_many := self._calls.count(job)) is not None:
            self._over = too_many
            raise BridgeRefused("LIMIT", f"more than {job.limits.suspensions} bridge calls")
        if kwargs and not args:
            argument: Any = kwargs
        elif len(args) <= 1 and not kwargs:
            argument = args[0] if args else {}
        else:
            raise BridgeRefused("INVALID_INPUT", f"adf.{method} takes one object, or its fields as keywords")
        most = job.limits.output
        try:
            size = least_size(argument, most)
            text = msgspec.json.encode(argument) if size <= most else b""
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise BridgeRefused("INVALID_INPUT", f"adf.{method} was given what JSON cannot hold: {error}") from None
        if max(size, len(text)) > most:
            self._over = too_large(job, max(size, len(text)), "handed the bridge at least")
            raise BridgeRefused("LIMIT", f"adf.{method} was given more than {most:,} bytes")
        alone = self._waits_for_one
        value = await self._calls.start(self._calls.call(job, method, text, first=alone))
        if len(answer_json(value, most)) > _LARGE and not alone:
            self._calls.answers_taken(False)
        return value


def _wait(*, name: str, args: tuple[Any, ...], is_async: bool, **_: Any) -> Any:
    """The only thing that a lambda gets of the system while it is driven step by step: to sleep, as long as its time lasts."""
    if is_async and name.endswith("sleep"):
        return asyncio.sleep(args[0])
    return monty.NOT_HANDLED


async def _to_its_end(work: Any) -> None:
    """Wait for something that Monty does, even while we are being cancelled: at the end of an event loop everything is."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            break
    if cancelled is not None:
        raise cancelled
    future.result()


def _explained(job: Job, error: monty.MontyError) -> SandboxError:
    """The typed error that a failure inside the interpreter stands for."""
    if not isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        return job.error(LambdaBroken, f"its worker ended without a result ({one_line(str(error))})")
    inner = error.exception()
    frames = error.traceback()
    line = next((f.line for f in reversed(frames) if f.filename == _FILE), None)
    text = error.display("msg")
    if isinstance(error, monty.MontySyntaxError):
        return job.error(LambdaRaised, f"is no Python program: {text}", line)
    if isinstance(inner, MemoryError):
        return no_memory(job, f"than its {job.limits.memory:,} bytes of memory", line)
    if isinstance(inner, RecursionError):
        return too_deep(job, line)
    if isinstance(inner, TimeoutError) and not frames:
        return timed_out(job)
    return _of_the_file(job, inner, text, line, frames)


def _of_the_file(job: Job, inner: BaseException, text: str, line: int | None, frames: list[Any]) -> SandboxError:
    construct = None if line is None and isinstance(inner, NameError) else _lacking(inner, text)
    if construct is not None:
        return job.error(LambdaUnsupported, f"Python lambdas have no {_without_article(construct)}: {_way_out(construct)}", line)
    if isinstance(inner, ModuleNotFoundError):
        return job.error(LambdaUnsupported, f"{text}: lambdas import a part of the standard library and nothing else; "
                         "put the code into this file, or call another file with adf.sys_lambda", line)  # fmt: skip
    if isinstance(inner, ImportError):
        return job.error(LambdaUnsupported, f"{text}: lambdas cannot import their siblings; "
                         "put the code into this file, or call the other file with adf.sys_lambda", line)  # fmt: skip
    if line is None and isinstance(inner, NameError) and job.function in text:
        return job.error(LambdaMissing, f"has no function {job.function!r}")
    if line is None and ("JSON serializable" in text or "JSON compliant" in text):
        return job.error(LambdaRaised, f"returned what JSON cannot hold: {text}")
    if line is None and isinstance(inner, TypeError) and "not callable" in text:
        return job.error(LambdaMissing, f"{job.function!r} is no function")
    if isinstance(inner, TypeError) and len(frames) <= 1 and f"{job.function}()" in text:
        how = f"is called with one argument, an object: write def {job.function}(input): ..."
        return job.error(LambdaRaised, f"{how} ({text})", line)
    name = type(inner).__name__
    return job.error(LambdaRaised, f"raised {name}: {text}" if text else f"raised {name}", line)


def _lacking(inner: BaseException, text: str) -> str | None:
    """The construct of Python, or the part of its library, that the interpreter says it has not got."""
    if isinstance(inner, NotImplementedError):
        if "import *" in text:
            return "import *"
        if "does not yet support" in text:
            return text.partition("does not yet support ")[2]
    if isinstance(inner, NameError) and (name := _NAME.fullmatch(text)) and hasattr(builtins, name[1]):
        return f"{name[1]}()"
    if isinstance(inner, ImportError) and (found := _IMPORTED.match(text)):
        return f"{found[2]}.{found[1]}"
    if isinstance(inner, AttributeError) and (found := _ATTRIBUTE.fullmatch(text)) and found[1] != "adf":
        return f"{found[1]}.{found[2]}"
    if isinstance(inner, TypeError) and " is not yet supported" in text:
        return text.replace(" is not yet supported", "")
    return None


_NAME = re.compile(r"name '(\w+)' is not defined")
_IMPORTED = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")


def _without_article(construct: str) -> str:
    return construct.removeprefix("the ").removeprefix("a ")


_WAYS_OUT = {
    "inheritance": "use a plain class, a dataclass or functions",
    "yield": "build a list and return it",
    "'del'": "assign None, or use dict.pop",
    "global": "pass the value as an argument",
    "nonlocal": "return the value",
    "import *": "import the names that are used",
    "super()": "classes inherit nothing, so call the function that is meant by its name",
}


def _way_out(construct: str) -> str:
    return next((way for word, way in _WAYS_OUT.items() if word in construct), "write it with functions, dicts and lists") + \
        ", or write the lambda in TypeScript"  # fmt: skip


def _adf(worker: MontyWorker, job: Job) -> monty.ExternalModule:
    """The module `adf` of one call: every bridge method as an async function."""
    worker = weakref.proxy(worker)  # Monty holds on to this, where the garbage collector cannot see that the worker holds Monty

    def method(name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await worker.bridge_call(job, name, args, kwargs)

        return call

    return monty.ExternalModule({spelled: method(name) for spelled, name in _spelled(job).items()})


def _spelled(job: Job) -> dict[str, str]:
    """The names of the bridge as Python can write them: `get-weather` is `get_weather`, unless something is called that."""
    taken, found = frozenset(getattr(job.bridge, "methods", ())), dict[str, str]()
    for name in methods_of(job):
        spelled = name.replace("-", "_")  # the one character that names of tools may have and Python's may not
        if spelled.isidentifier() and not iskeyword(spelled) and (spelled == name or spelled not in taken):
            found.setdefault(spelled, name)
    return found
