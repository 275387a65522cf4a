"""What all commands share: one clear line for what goes wrong, the exit code, and what a terminal can do."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import msgspec
import typer

from ..errors import BeforehandError, UsageError

if TYPE_CHECKING:
    from ..decisions import PendingApproval
    from ..journal.store import Store
    from rich.console import Console

STOPPED = 9
"""Exit code of a run that stopped before it was done: blocked, suspended, out of turns."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
URL_FROM = "BEFOREHAND_DATABASE_URL"
"""The environment variable that names the database of the engine."""


_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What makes a terminal do something else than show text: escape sequences, marks that turn the order of text round, and text
that nobody sees. What joins the parts of letters and pictures is not among it."""


def safe(text: str) -> str:
    """`text` as a terminal may show it, whoever wrote it: what is no text is shown as an escape. Lines and tabs stay."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escaped, text)


def word(text: str) -> str:
    """`text` as one word of a command that a person may type, whoever wrote it."""
    return shlex.quote(safe(text))


def print_json(lines: Iterable[bytes]) -> None:
    """Lines of encoded JSON on stdout. Every command that speaks JSON does it here, to a terminal as to a pipe.

    They stay the same JSON: what a terminal would take for orders stands in it as escapes. UTF-8, whatever the terminal speaks.
    """
    out = sys.stdout.buffer
    waiting: list[bytes] = []
    for line in lines:
        waiting.append(_safe_json(line))
        if len(waiting) >= 500:
            out.write(b"\n".join(waiting) + b"\n")
            waiting = []
    if waiting:
        out.write(b"\n".join(waiting) + b"\n")
    out.flush()


def json_line(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """`value` as encoded JSON, even if it holds text that UTF-8 cannot express: halves of characters are escapes."""
    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)).encode()


def _safe_json(line: bytes) -> bytes:
    if line.isascii() and b"\x7f" not in line:
        return line
    return _UNSAFE.sub(_as_json, line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def _as_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """Ends the process for an error of the body: one line on stderr, the error's exit code, a traceback only to debug."""
    try:
        with _log_to_stderr(debug):
            yield
    except typer.Exit:
        raise
    except BeforehandError as error:
        problems = getattr(error, "problems", ())  # of a file: a line for each, as `check` shows them
        for problem in problems[:-1]:
            complain(f"error: {problem}")
        _fail(str(problems[-1] if problems else error), error.exit_code, debug)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED, debug)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 1, debug)
    except Exception as error:
        hint = "" if debug else " (a defect of this command: --debug shows where)"
        _fail(f"unexpected {type(error).__name__}: {error}{hint}", 1, debug)


def _fail(message: str, code: int, debug: bool) -> NoReturn:
    if debug:
        import traceback

        traceback.print_exc()
    complain(f"error: {message}")
    sys.exit(code)


def refuse_together(option: str, others: Mapping[str, bool]) -> None:
    """Options that say different things. Raises `UsageError`."""
    for name, given in others.items():
        if given:
            raise UsageError(f"{option} goes without {name}: give one of them")


def journal_option(journal: Store) -> str:
    """What tells the next command of the journal, where it is not the one that commands look for, and of its key."""
    where = "" if journal.path == Path("runs.db").absolute() else f" --journal {word(str(journal.path))}"
    return where if journal.key is None else f"{where} --key-env NAME"


def to_resume(run_id: str, journal: Store) -> str:
    """How a person goes on with a run."""
    options = "--project, --tools, --hooks and --base-url"
    return f"`beforehand resume {word(run_id)}{journal_option(journal)}` with the {options} it began with"


def to_answer(run_id: str, pending: Sequence[PendingApproval], journal: Store) -> str:
    """How a person answers the first of the calls that wait in a run."""
    call_id = pending[0].call_id
    command = f"`beforehand approvals --answer {word(run_id)} {word(call_id)} approve{journal_option(journal)}`"
    return f"answer with {command}" if len(pending) == 1 else f"{len(pending)} calls wait: answer the first with {command}"


def complain(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    print(safe(" ".join(message.split())), file=sys.stderr, flush=True)


class _OneLine(logging.Formatter):
    """Log records without their tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {type(error).__name__}: {error}" if error is not None else ""
        return " ".join(f"{record.levelname.lower()}: {record.getMessage()}{why}".split())


@contextmanager
def _log_to_stderr(debug: bool) -> Iterator[None]:
    """Warnings of the package (a slow hook, a failing listener) as lines on stderr."""
    logger = logging.getLogger("beforehand")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s") if debug else _OneLine())
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def console_for(out: IO[str], plain: bool) -> Console | None:
    """A rich console for `out`, or `None` where plain text is wanted: asked for, or not a terminal."""
    if plain or not out.isatty():
        return None
    from rich.console import Console

    return Console(file=out)
