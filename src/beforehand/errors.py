"""Every error this package raises, and the exit code a command ends with.

    BeforehandError                      1
    ├── ConfigError                      2   something was written down wrongly; nothing ran
    │   ├── HookDefinitionError              a hook that can never work: seam, signature, option
    │   ├── ToolDefinitionError              a tool that can never work: type hints, name, schema
    │   ├── UnknownModel                     a model name nobody can load
    │   ├── PatternError                     (stream.regex) a pattern RE2 does not take
    │   ├── RuleFileError                    (rules.problems) every mistake of a rule file, with file, line and field
    │   └── ProjectFileError                 (config.project) every mistake of a project file, likewise
    ├── UsageError                       2   a call at the wrong moment
    │   ├── ConversationBusy                 one conversation, two runs at once
    │   ├── NothingToContinue                `continue_run` or `resume` without anything waiting
    │   └── UnknownAnswer                    an answer for a call nobody asked about
    ├── UnknownRun                       2   no record of a run with this id
    ├── RunBusy                          2   this run is going on somewhere else
    ├── RunChanged                       2   tools or hooks are not those the run was started with, and that was forbidden
    ├── JournalUnreadable                2   a file that is no journal, a newer one, or one that was changed
    ├── InvalidArguments                 1   (schema.values) a call's arguments; the model reads it, nobody catches it
    ├── SandboxError                     1   (sandbox.contract) a lambda failed, or its sandbox did
    ├── PathRefused                      1   (workspace.paths) a path that leads out of the workspace
    └── RunError                         3   a run ended with stop reason "error"; `.result` holds it
        ├── HookFailed                   4   a hook raised, timed out or returned nonsense
        ├── RequestTooLarge              5   the request would not fit the model's window
        ├── RequestBlocked               4   a gate refused a request beside the conversation (a summary)
        ├── JournalError                 10  the journal could not be written; nothing more was done
        └── ModelError                   5   the model endpoint failed
            ├── AuthenticationError      6       it refused the key
            ├── RateLimited              7       `.retry_after` in seconds, where it said so
            ├── ContextTooLong           5       it found the request too long
            ├── BadRequest               5       it refused the request
            │   └── ToolMismatch         5       it found calls without results, or results without calls
            ├── ServerError              5       it failed (5xx)
            ├── NetworkError             8       it could not be reached, or the line was cut
            └── InvalidResponse          5       it answered with something that is not a reply

Stopping is not an error: abort and suspension travel as `Stop` signals, which derive from
`BaseException`, so that a broad `except Exception` in a hook or a tool cannot swallow them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class BeforehandError(Exception):
    """The root of the tree."""

    exit_code = 1


class ConfigError(BeforehandError):
    """Something was written down wrongly. Raised before anything runs."""

    exit_code = 2


class HookDefinitionError(ConfigError):
    """A hook that can never work: unknown seam, wrong signature, impossible option."""


class ToolDefinitionError(ConfigError):
    """A tool that can never work: missing type hints, duplicate name, broken schema."""


class UnknownModel(ConfigError):
    """A model name that no adapter answers to."""


class UsageError(BeforehandError):
    """A call at the wrong moment."""

    exit_code = 2


class ConversationBusy(UsageError):
    """A conversation does one run at a time."""


class NothingToContinue(UsageError):
    """Nothing is waiting to be continued or resumed."""


class UnknownAnswer(UsageError):
    """An answer names a call that is not waiting for one."""


class UnknownRun(BeforehandError):
    """No record of a run with this id."""

    exit_code = 2


class RunBusy(BeforehandError):
    """A run is going on in another task or process. One at a time goes on with it."""

    exit_code = 2


class RunChanged(BeforehandError):
    """The tools or hooks of an agent differ from those a recorded run was started with, and `strict=True` was asked for."""

    exit_code = 2


class JournalUnreadable(BeforehandError):
    """A file that is no journal, one of a newer format, or one whose records are not as they were written."""

    exit_code = 2


class RunError(BeforehandError):
    """A run ended with stop reason "error".

    `result` is the `RunResult` up to that point: its history is valid and can be continued.
    """

    exit_code = 3
    result: Any = None


class HookFailed(RunError):
    """A hook raised, timed out or returned nonsense, and its failure had to end the run.

    Attributes: `hook` (its name), `seam`, `where` (file:line of its definition), `why`.
    """

    exit_code = 4
    judged: Any = None  # the context it was asked about, while a recovery compares it with the next one's
    acted: bool = False  # its code had called tools by then that must not be called again

    def __init__(self, hook: str, seam: str, where: str, why: str) -> None:
        super().__init__(f"hook {hook!r} at {seam} ({where}) {why}")
        self.hook, self.seam, self.where, self.why = hook, seam, where, why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.hook, self.seam, self.where, self.why)


class RequestTooLarge(RunError):
    """The request, after every hook, would not fit the model's context window (tokens, estimated)."""

    exit_code = 5


class RequestBlocked(RunError):
    """A hook at `authorize_request` refused a request that belongs to no turn, such as a summary."""

    exit_code = 4


class JournalError(RunError):
    """The journal could not be written. The run stopped before its next effect; what is recorded stays readable."""

    exit_code = 10
    temporary = False


class ModelError(RunError):
    """The model endpoint failed. `status` is the HTTP status, where there was one; `lasting`: waiting will not help."""

    exit_code = 5
    lasting = False

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class AuthenticationError(ModelError):
    """The endpoint refused the key (401, 403)."""

    exit_code = 6


class RateLimited(ModelError):
    """Too many requests (429). `retry_after` is in seconds, `None` where the endpoint did not say."""

    exit_code = 7


class ContextTooLong(ModelError):
    """The endpoint found the request longer than its window."""


class BadRequest(ModelError):
    """The endpoint refused the request as malformed or unsupported (other 4xx)."""


class ToolMismatch(BadRequest):
    """The endpoint found that the request's tool calls and results do not match."""


class ServerError(ModelError):
    """The endpoint failed (5xx), or reported a failure inside a reply."""


class NetworkError(ModelError):
    """The endpoint could not be reached, a time limit passed, or the connection was cut."""

    exit_code = 8


class InvalidResponse(ModelError):
    """The endpoint answered, but not with a reply of its protocol."""


class FrozenError(TypeError, AttributeError):
    """An attempt to change a frozen value. Hooks return a decision instead of editing in place."""


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The name that somebody who wrote `given` may have meant."""
    import difflib  # deferred: it costs every import of the package, and serves only mistakes

    return next(iter(difflib.get_close_matches(given, list(known), 1)), None)


def describe(error: BaseException) -> str:
    """ "Type: text" of an exception made by user code, whose text may itself be broken, or hold half characters."""
    try:
        text = str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Stop(BaseException):
    """Root of the signals that stop work without being errors. Never caught by `except Exception`."""


class Aborted(Stop):
    """The run was aborted while this was under way."""
