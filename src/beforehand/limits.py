"""The numeric bounds of a run, in one place."""

from __future__ import annotations

import msgspec

from .errors import ConfigError
from .frozen import Frozen


class Limits(Frozen, kw_only=True):
    """`None` lifts a bound. Times are in seconds unless the name says otherwise."""

    max_turns: int | None = 50
    max_resends: int | None = 3
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
    execution_timeout_ms: float | None = 60_000
    """The longest a `pre_llm_hook` may take; 300,000 is the most that counts."""
    max_result_chars: int | None = None
    """A longer tool result is cut, and says so."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
                raise ConfigError(f"Limits.{name} is {value!r}: expected a number of at least 0, or None for no limit")
        if self.max_turns is not None and self.max_turns < 1:
            raise ConfigError(f"Limits.max_turns is {self.max_turns!r}: expected at least 1, or None for no limit")

    def with_(self, **changes: float | None) -> Limits:
        """A copy with some bounds changed."""
        return msgspec.structs.replace(self, **changes)
