"""What goes into a sandbox, what comes out, and what can go wrong. The same for every language.

    SandboxError                    the call gave no result; `.console` holds what the lambda had written
    ├── LambdaMissing               no such function in the file
    ├── LambdaUnsupported           something the language of lambdas lacks: construct, line, way out
    ├── LambdaRaised                the lambda's own exception, or a file that is no program
    ├── LambdaTimedOut              over its wall time
    ├── LambdaOutOfMemory           over its memory, or its stack
    ├── LambdaResultTooLarge        over the size of a result
    ├── LambdaTooManyCalls          over the number of bridge calls
    ├── LambdaTooManyInside         over the number of lambdas that one outermost call may lead to, or too deep
    ├── LambdaNotStarted            no worker could be started: the program cannot be run, there is no room for more
    └── LambdaBroken                the worker ended, or said what is not in the protocol
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from ..errors import BeforehandError, ConfigError
from ..frozen import Frozen
from ..messages import clean
from .values import decode_json as decode_json

JSON: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, or lists and dicts of them."""

Bridge: TypeAlias = Callable[[str, JSON], Awaitable[JSON]]
"""The only way out of a sandbox: called with a method's name and its one argument.

It may have `methods`, names of its own that a lambda finds, and may be `awaited`: by other calls, which have places while they
wait, so that this one needs none of theirs.
"""

METHODS = (
    "fs_read", "fs_write", "fs_list", "fs_delete", "sys_lambda", "sys_get_meta", "sys_set_meta", "sys_delete_meta",
    "sys_get_config", "emit_event", "model_invoke", "loop_inject", "task_resolve", "authorize_file",
)  # fmt: skip
"""The bridge methods every lambda can name. A bridge answers `NOT_FOUND` for those it does not have."""

PYTHON = (".py",)
SCRIPT = (".ts", ".js")


class SandboxError(BeforehandError):
    """A lambda gave no result. The text is one line; `line` is in the file at `path`, `None` where nobody knows it."""

    exit_code = 4
    console = ""

    def __init__(self, message: str, *, path: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.path, self.line = path, line


class LambdaMissing(SandboxError):
    """The file has no function of this name."""


class LambdaUnsupported(SandboxError):
    """The file uses something that lambdas cannot."""


class LambdaRaised(SandboxError):
    """The lambda raised an exception."""


class LambdaTimedOut(SandboxError, TimeoutError):
    """The lambda took longer than `SandboxLimits.wall_time`."""


class LambdaOutOfMemory(SandboxError):
    """The lambda needed more than `SandboxLimits.memory`, or nested its calls too deeply."""


class LambdaResultTooLarge(SandboxError):
    """The result, or what was handed to the bridge, has more than `SandboxLimits.output` bytes of JSON."""


class LambdaTooManyCalls(SandboxError):
    """The lambda called the bridge more than `SandboxLimits.suspensions` times."""


class LambdaTooManyInside(SandboxError):
    """The outermost lambda has led to as many others as its `SandboxLimits.suspensions`, or this one would be too deep."""


class LambdaNotStarted(SandboxError, OSError):
    """There was no worker to run it: its program cannot be started, or the system has no room for another process."""


class LambdaBroken(SandboxError):
    """The worker ended without a result, or said something that is not in the protocol."""


class BridgeRefused(Exception):
    """A bridge call was refused. The lambda may catch it: it reads `code` and the text."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {clean(message)}")
        self.code, self.message = code, clean(message)


class Source(Frozen, gc=False):
    """The file that holds a lambda: its path inside the workspace, which decides the language, and its text."""

    path: str
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.endswith(PYTHON)

    @property
    def is_script(self) -> bool:
        return self.path.endswith(SCRIPT)


class SandboxLimits(Frozen, kw_only=True, gc=False):
    """The bounds of one call. None of them can be lifted."""

    wall_time: float = 5.0
    """Seconds, the lambda's bridge calls included."""
    memory: int = 64 * 2**20
    """Bytes of the lambda's heap."""
    output: int = 4 * 2**20
    """Bytes of the JSON text of the result, and of what one bridge call hands over or gets back."""
    suspensions: int = 100
    """Bridge calls; and of an outermost call, the lambdas that it may lead to in all."""
    console: int = 16_384
    """Characters of console text that are kept."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ConfigError(f"SandboxLimits.{name} is {value!r}: expected a number above 0; a lambda always has limits")


class Console:
    """What a lambda wrote: the first characters, up to a limit, and how many more there were. Never part of a result."""

    __slots__ = ("_left", "_pieces", "dropped")

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._pieces: list[str] = []
        self.dropped = 0

    def write(self, text: str) -> None:
        kept = text[: self._left]
        if kept:
            self._pieces.append(kept)
            self._left -= len(kept)
        self.dropped += len(text) - len(kept)

    @property
    def text(self) -> str:
        written = "".join(self._pieces)
        return f"{written}\n[{self.dropped} more characters]" if self.dropped else written


class Outcome(Frozen):
    """What the function returned, what it wrote, the seconds it took, and the bytes that it returned as JSON."""

    value: JSON
    console: str
    duration: float
    size: int


class Progress:
    """The bridge calls of one lambda that are not answered: the methods of those that have begun, and how many wait."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way: list[str] = []
        self.waiting = 0

    @property
    def text(self) -> str:
        """What a lambda waited for when its time was over."""
        if not self.under_way:
            return ""
        first = f"adf.{self.under_way[0][:50]}"
        said = f"{first} was" if len(self.under_way) == 1 else f"{len(self.under_way)} bridge calls ({first} first) were"
        return f", while {said} under way" + (f" and {self.waiting} more waited for their turn" if self.waiting else "")


class Job(Frozen):
    """One call, as a worker gets it. `argument` is JSON text."""

    source: Source
    function: str
    argument: str
    limits: SandboxLimits
    bridge: Bridge
    console: Console
    calls: Progress = msgspec.field(default_factory=Progress)

    def error(self, kind: type[SandboxError], what: str, line: int | None = None) -> SandboxError:
        """One line about this lambda: where, then what."""
        path = self.source.path
        where = f"{path}:{line}" if line else f"{path}:{self.function}"
        return kind(f"{where}: {one_line(what)}", path=path, line=line)


_NAMED = re.compile(r"\badf\.([A-Za-z]\w*)", re.ASCII)
MAX_NAMED = 200


def methods_of(job: Job) -> tuple[str, ...]:
    """The names a lambda finds in `adf`: the standard ones, those its bridge has, and any other that it uses, so that a call
    of what is not there is a refusal with a code like every other."""
    used = list(dict.fromkeys(_NAMED.findall(job.source.text)))[:MAX_NAMED]
    return tuple(dict.fromkeys((*METHODS, *getattr(job.bridge, "methods", ()), *used)))


def too_large(job: Job, size: int, what: str = "returned") -> SandboxError:
    return job.error(LambdaResultTooLarge, f"{what} {size:,} bytes of JSON, more than {job.limits.output:,}")


def answer_json(value: JSON, most: int) -> bytes:
    """What a bridge call gave, as JSON text. Raises `BridgeRefused` for what is no JSON, or too much of it."""
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BridgeRefused("INTERNAL_ERROR", f"the answer is none that JSON can hold: {error}") from None
    if len(text) > most:
        raise BridgeRefused("LIMIT", f"the answer has {len(text):,} bytes of JSON, more than {most:,}")
    return text


def no_memory(job: Job, what: str, line: int | None = None) -> SandboxError:
    handed = len(job.argument) / 2**20
    said = f"; it was handed {handed:.1f} MB" if handed >= 1 else ""
    return job.error(LambdaOutOfMemory, f"needed more {what}{said}", line)


def too_deep(job: Job, line: int | None = None) -> SandboxError:
    return job.error(LambdaOutOfMemory, "nested its calls, or its result, too deeply", line)


def timed_out(job: Job) -> SandboxError:
    return job.error(LambdaTimedOut, f"gave no answer within {job.limits.wall_time:g} s{job.calls.text}")


def one_line(text: str, most: int = 500) -> str:
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 3] + "..."
