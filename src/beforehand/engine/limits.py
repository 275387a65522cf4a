"""How many runs of an agent go on at once."""

from __future__ import annotations

from ..errors import ConfigError
from ..frozen import Frozen


class QueueLimits(Frozen, kw_only=True):
    """Limits for the runs of each agent. `None` lifts one.

    `concurrency`: how many go on at once over all workers. `worker_concurrency`: how many in one worker. `rate`: how many may
    start in how many seconds, over all workers. A run that waits for a person does not count.
    """

    concurrency: int | None = None
    worker_concurrency: int | None = 50
    rate: tuple[int, float] | None = None

    def checked(self) -> QueueLimits:
        """Itself. Raises `ConfigError` for what can never work."""
        for name in ("concurrency", "worker_concurrency"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"QueueLimits({name}={value!r}): expected a number of runs, at least 1, or None")
        if self.rate is not None:
            try:
                number, seconds = self.rate
                right = number >= 1 and seconds > 0
            except (TypeError, ValueError):
                right = False
            if not right:
                raise ConfigError(f"QueueLimits(rate={self.rate!r}): expected (runs, seconds), such as (100, 60)")
        return self
