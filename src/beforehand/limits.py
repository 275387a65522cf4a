"""The bounds of a run, in one place, and how patiently a failed one is taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from .errors import ConfigError
from .frozen import Frozen


class Limits(Frozen, kw_only=True):
    """`None` lifts a bound. Times are in seconds unless the name says otherwise."""

    max_turns: int | None = 50
    max_resends: int | None = 3
    max_resends_per_hook: int | None = 3
    """Of those, how many one hook (or one rule of a file) may ask for."""
    max_hold: int | None = 4096
    """Characters one `on_chunk` hook may keep back."""
    abort_grace: float | None = 5.0
    """How long a running tool or hook may go on after an abort."""
    slow_hook_ms: float | None = 100.0
    hook_timeout: float | None = None
    """For hooks that name no timeout of their own. Sync hooks then run in a thread."""
    tool_timeout: float | None = None
    context_tokens: int | None = None
    """The model's window. A larger request, as estimated after every hook, is not sent."""
    compact_at: int | None = None
    """Tokens, as estimated, from which on old messages are summarised before a request. `None`: never by itself."""
    execution_timeout_ms: float | None = 60_000
    """The longest a `pre_llm_hook` may take; 300,000 is the most that counts."""
    max_result_chars: int | None = None
    """A longer tool result is cut, and says so."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise ConfigError(f"Limits.{name} is {value!r}: expected a number of at least 0, or None for no limit")
        if self.max_turns is not None and self.max_turns < 1:
            raise ConfigError(f"Limits.max_turns is {self.max_turns!r}: expected at least 1, or None for no limit")

    def with_(self, **changes: float | None) -> Limits:
        """A copy with some bounds changed."""
        return msgspec.structs.replace(self, **changes)


def _drawn() -> float:
    import random  # deferred: it costs every import of the package, and serves only those who try again

    return random.random()  # noqa: S311 - spreads attempts, and keeps no secret


class Recovery(Frozen, kw_only=True):
    """What follows a failed turn. An agent without one ends the run, and nothing else.

    With one, a failure of the run's own kind (a hook's, a request that cannot be made) leaves a row in the history that
    the model reads at its next turn: "[Turn error] ...". With `auto_retry` the turn is then tried again, at most
    `max_attempts` times in a row, after `base_delay_ms`, doubled each time up to `max_delay_ms`, and off by up to `jitter`
    (a share of the delay) either way. `sleep` (seconds) and `random` are there to be replaced in tests.
    """

    auto_retry: bool = True
    max_attempts: int = 5
    base_delay_ms: float = 15_000
    max_delay_ms: float = 300_000
    jitter: float = 0.2
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    random: Callable[[], float] = _drawn

    def __post_init__(self) -> None:
        if not isinstance(self.auto_retry, bool):
            raise ConfigError(f"Recovery.auto_retry is {self.auto_retry!r}: expected True or False")
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int) or self.max_attempts < 0:
            raise ConfigError(f"Recovery.max_attempts is {self.max_attempts!r}: expected a whole number of at least 0")
        for name, most in (("base_delay_ms", float("inf")), ("max_delay_ms", float("inf")), ("jitter", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most or value == float("inf"):
                up_to = "" if most == float("inf") else f", at most {most}"
                raise ConfigError(f"Recovery.{name} is {value!r}: expected a number of at least 0{up_to}")

    def delay(self, attempt: int) -> float:
        """Seconds to wait before attempt number `attempt` (from 1)."""
        wait = min(self.base_delay_ms * 2.0 ** min(attempt - 1, 60), self.max_delay_ms)
        return wait * (1 + self.jitter * (2 * self.random() - 1)) / 1e3
