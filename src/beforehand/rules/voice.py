"""Where log actions write: the logger `beforehand.rules`."""

from __future__ import annotations

import logging
import sys
from typing import Protocol

logger = logging.getLogger("beforehand.rules")

LEVELS = {"log": logging.INFO, "info": logging.INFO, "warn": logging.WARNING, "debug": logging.DEBUG}


class Voice(Protocol):
    """Says what a log action has to say. `action` is the action's type, `where` the rule's file and line."""

    def __call__(self, action: str, text: str, where: str) -> None: ...


class _Stderr(logging.Handler):
    """Writes to whatever stderr is at the time, which tests and programs like to exchange."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)  # noqa: T201 - the application configured no logging
        except Exception:
            self.handleError(record)


_last_resort = _Stderr()


def say(action: str, text: str, where: str) -> None:
    """Log a line. Where the application configured no logging, it goes to stderr, whatever its level.

    Like `logging.lastResort`, that handler is never added to a logger, so nothing is written twice once the application
    does configure it.
    """
    level = LEVELS[action]
    if logger.hasHandlers():
        if logger.isEnabledFor(level):
            logger.log(level, "%s", text, extra={"rule": where})
    elif not logger.disabled and logger.manager.disable < level and level >= logger.level:
        record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (text,), None, extra={"rule": where})
        _last_resort.handle(record)
