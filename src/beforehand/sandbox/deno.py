"""TypeScript and JavaScript lambdas, in Deno with every permission denied: one process for one call.

What Deno gives away without a permission is closed here: its storage and its caches live in `DENO_DIR`, which is no folder,
so there are none; memory outside the JavaScript heap is bounded by the kernel; standard output is shared with the lambda, so
the protocol has a token.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shutil
import signal
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError
from . import protocol
from .contract import (
    BridgeRefused, Job, LambdaBroken, LambdaMissing, LambdaNotStarted, LambdaRaised, LambdaUnsupported, SandboxError, answer_json,
    methods_of, no_memory, one_line, too_deep, too_large,
)  # fmt: skip
from .folders import new_folder
from .process import bound
from .turns import Turns

_WORKER = Path(__file__).with_name("worker.js")
_HEAP = 64
"""Megabytes of JavaScript heap. A worker is started before its call is known, so it is the same for every call."""
FLAGS = (
    "run", "--quiet", "--no-prompt", "--no-remote", "--no-npm", "--cached-only", "--no-config", "--no-lock", "--no-code-cache",
    "--deny-read", "--deny-write", "--deny-net", "--deny-env", "--deny-sys", "--deny-run", "--deny-ffi", "--deny-import",
    f"--v8-flags=--max-old-space-size={_HEAP},--disallow-code-generation-from-strings,--single-threaded,"
    "--no-enable-lazy-source-positions",  # or the first error makes V8 read every function that is under way once more
)  # fmt: skip
ENVIRONMENT = {
    "DENO_DIR": os.devnull, "DENO_EMIT_CACHE_MODE": "disable", "DENO_DISABLE_NODE_SHIM": "1", "DENO_NO_PACKAGE_JSON": "1",
    "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1", "MALLOC_TOP_PAD_": "1048576",
}  # fmt: skip
"""All a worker is told: to keep nothing and to look for nothing, and to ask the kernel for memory in large pieces, which is
cheaper. Its home is its folder, or it would look into the user's."""
_DATA = 640 * 2**20
"""Private memory of the whole process; Deno does not start with less than about 550 MB."""
_CPU = 320.0
_START_CPU = 2.0
"""Processor seconds: of one that waits for its call, and what a start may take of those of a call."""
_HIDDEN = (
    "localStorage", "sessionStorage", "caches", "Worker", "BroadcastChannel", "prompt", "alert", "confirm", "close", "navigator",
)  # fmt: skip
"""Globals without a use for a lambda. Their removal is tidiness: the walls are the permissions and `DENO_DIR`. But graphics
drivers need no permission, and `navigator` is the only way to them."""
_READ = 65_536


@cache
def binary() -> str:
    """Where Deno is. Raises `ConfigError` when it is not installed."""
    try:
        return str(importlib.import_module("deno").find_deno_bin())
    except (ImportError, FileNotFoundError):
        raise ConfigError('TypeScript and JavaScript lambdas need Deno: install the extra "js" of beforehand') from None


class DenoWorker:
    """One process for one call. `start` it ahead of time, `run` a job, `kill` it."""

    def __init__(self) -> None:
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._calls = Turns()
        self._buried: asyncio.Future[None] | None = None

    async def start(self, spare: bool) -> None:
        """Takes a few milliseconds of the event loop, which is what starting a process costs, and awaits nothing."""
        self._spawn("spare" if spare else "used")

    def _spawn(self, use: str) -> None:
        program = binary()
        try:
            self._folder = new_folder()
            self._process = subprocess.Popen(  # noqa: S603 - the program is ours and so is every argument
                [program, *FLAGS, str(_WORKER), use],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                bufsize=0, cwd=self._folder, start_new_session=True,
                env={"HOME": self._folder, **ENVIRONMENT},
            )  # fmt: skip
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise LambdaNotStarted(f"Deno cannot be started ({error.strerror}): {program}") from None
        bound(self._process.pid, data=_DATA, cpu=_CPU)
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def _stdin(self) -> int:
        assert self._process is not None and self._process.stdin is not None
        return self._process.stdin.fileno()

    @property
    def _stdout(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    async def run(self, job: Job) -> bytes:
        """The JSON text of what the lambda returned. Raises a `SandboxError`."""
        token = protocol.new_token()
        decoder = protocol.Decoder(token, max(job.limits.output, 65_536))
        result: asyncio.Future[bytes] = self._loop.create_future()
        if self._process is not None:  # so that one whose host has died does not work on for long
            cpu = min(_START_CPU + job.limits.wall_time * (os.cpu_count() or 1), _CPU)
            bound(self._process.pid, data=_DATA, cpu=cpu)
        self._loop.add_reader(self._stdout, self._read, job, decoder, result)
        self._send({
            "token": token, "source": job.source.text, "function": job.function, "argument": msgspec.Raw(job.argument),
            "methods": methods_of(job), "hidden": _HIDDEN, "console": job.limits.console,
            "type": "application/typescript" if job.source.path.endswith(".ts") else "application/javascript",
        })  # fmt: skip
        return await result

    def kill(self) -> None:
        """End the process with all its threads, and every bridge call under way."""
        self._calls.close()
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            return
        self._loop.remove_reader(self._stdout)
        self._loop.remove_writer(self._stdin)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        # No task: one would be cancelled, and the process left as a zombie, when the event loop is about to end.
        self._buried = self._loop.run_in_executor(None, self._bury)

    async def aclose(self) -> None:
        """Wait until the process is gone, and throw its folder away."""
        self.kill()
        if self._buried is not None:
            await asyncio.shield(self._buried)

    def _bury(self) -> None:
        if self._process is not None:
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- to the worker ---

    def _send(self, message: Any) -> None:
        idle = not self._unsent
        self._unsent += protocol.to_worker(message)
        if idle:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._stdin, self._unsent)]
        except BlockingIOError:
            self._calls.answers_taken(False)
            self._loop.add_writer(self._stdin, self._flush)
            return
        except BrokenPipeError:
            self._unsent.clear()  # it has ended; reading tells
        self._loop.remove_writer(self._stdin)
        self._calls.answers_taken(True)

    # --- from the worker ---

    def _read(self, job: Job, decoder: protocol.Decoder, result: asyncio.Future[bytes]) -> None:
        """One piece of output. Whatever it says, the result is set at most once."""
        if result.done():
            return
        try:
            data = os.read(self._stdout, _READ)
        except BlockingIOError:
            return
        try:
            if not data:
                job.console.write(decoder.rest().decode("utf-8", "replace"))
                self._loop.remove_reader(self._stdout)
                raise self._ended(job)
            for item in decoder.feed(data):
                if isinstance(item, bytes):
                    job.console.write(item.decode("utf-8", "replace"))
                elif item.kind == protocol.RESULT:
                    result.set_result(item.payload)
                    return
                else:
                    self._heard(job, item, result)
        except protocol.FrameTooLarge as error:
            what = "handed the bridge" if error.kind == protocol.CALL else "returned"
            result.set_exception(too_large(job, error.size, what))
        except (protocol.BadFrame, msgspec.DecodeError, RecursionError) as error:
            result.set_exception(job.error(LambdaBroken, f"its worker said what is not in the protocol ({error})"))
        except SandboxError as error:
            result.set_exception(error)

    def _heard(self, job: Job, frame: protocol.Frame, result: asyncio.Future[bytes]) -> None:
        if frame.kind == protocol.LOG:
            job.console.write(frame.payload.decode("utf-8", "replace"))
            return
        if frame.kind == protocol.ERROR:
            raise explained(job, _read_error(frame.payload))
        called, _, argument = frame.payload.partition(b"\n")
        message = _read_call(called)
        if (too_many := self._calls.count(job)) is not None:
            raise too_many
        _ = self._calls.start(self._bridge(job, message, argument, result))

    async def _bridge(self, job: Job, message: _Called, argument: bytes, result: asyncio.Future[bytes]) -> None:
        reply: dict[str, Any] = {"id": message.id}
        try:
            value = await self._calls.call(job, message.method, argument)
            reply["value"] = msgspec.Raw(answer_json(value, job.limits.output))
        except BridgeRefused as error:
            reply.update(code=error.code, message=error.message)
        except Exception as error:
            reply.update(code="INTERNAL_ERROR", message=one_line(f"{type(error).__name__}: {error}"))
        if not result.done():
            self._send(reply)

    def _ended(self, job: Job) -> SandboxError:
        """Why a worker that gave no result is gone."""
        said = job.console.text
        if "out of memory" in said or "memory allocation of" in said or "Cannot allocate memory" in said:
            return no_memory(job, f"than its memory ({_HEAP} MB of heap)")
        return job.error(LambdaBroken, "its worker ended without a result")


class _Called(msgspec.Struct):
    """Which bridge call it is, as the worker puts it. The argument stands behind, and is text until it is this call's turn:
    values take many times the room."""

    id: int
    method: str


class _Raised(msgspec.Struct):
    """An exception, as the worker puts it. `phase` is when: load, missing, run or result."""

    name: str
    message: str
    line: int | None
    phase: str


# Typed, because a lambda can change what the worker's JSON.stringify makes of any object.
_read_call = msgspec.json.Decoder(_Called).decode
_read_error = msgspec.json.Decoder(_Raised).decode


_FILE = re.compile(r"blob:null/[0-9a-f-]{36}")
"""The name that a file has in one worker. What is said of it says its own name: the same mistake has the same text each time."""


def explained(job: Job, raised: _Raised) -> SandboxError:
    """The typed error that an exception inside the worker stands for."""
    name, text, line, phase = raised.name, _FILE.sub(lambda _: job.source.path, raised.message), raised.line, raised.phase
    shown = f"{name}: {text}" if name else text
    first_line = text.partition("\n")[0]
    if phase == "missing":
        found = "has no function" if text == "undefined" else f"has a {text}, not a function, called"
        return job.error(LambdaMissing, f"{found} {job.function!r}")
    if "Maximum call stack size" in text:
        return too_deep(job, line)
    if name == "RangeError" and any(sign in text for sign in _NO_ROOM):
        return no_memory(job, f"memory than it may have ({text})", line)
    if phase == "result":
        return job.error(LambdaRaised, f"returned what JSON cannot hold: {text}")
    if any(sign in text for sign in _IMPORTS):
        return job.error(LambdaUnsupported, "lambdas import node: modules and nothing else; put the code into this file, "
                         f"or call another file with adf.sys_lambda ({first_line})", line)  # fmt: skip
    if phase == "load" and "SyntaxError" in shown:
        if line is not None and line > job.source.text.count("\n") + 1:  # it stumbled over the line that the worker adds
            return job.error(LambdaRaised, "is no program: a bracket, a text or a comment is not closed", line - 1)
        return job.error(LambdaRaised, f"is no program: {first_line.removeprefix('SyntaxError: ')}", line)
    return job.error(LambdaRaised, f"raised {shown}", line)


_NO_ROOM = ("allocation failed", "could not allocate", "Invalid array buffer length", "Invalid string length")
"""What V8 says when there is no more memory, or a value would be larger than it can be."""
_IMPORTS = (
    "relative URL with a cannot-be-a-base", "Relative import path", "not a dependency", "remote specifier", "npm specifier",
    "Requires import access", "JSR package",
)  # fmt: skip
"""What Deno says of an import that leads anywhere."""
