"""Which firings of rules with a limit are on record: those about what is decided on record, and no other.

What is asked anew when a run goes on, because no record says what came of it, must find its rules as they were. So a record
says how often rules have fired only for what it settles itself, or what was settled before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .past import BEFORE_CALLS
from .withheld import who_answered


class Firings:
    """How often the rules of one run's agent have fired, as far as its record tells."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._failed = False
        """Whether a failure has come that is undone should the run go on, with what is decided on the run's own line after it."""

    def restore(self, run: Any, fired: Mapping[str, int]) -> None:
        """So it stands on record: rules go on counting from there."""
        self._told.update(fired)
        if run.plan.hooks.rules is not None:
            run.plan.hooks.rules.restore_counts(fired)

    def told(self, run: Any, *decided: str | None) -> dict[str, dict[str, int]]:
        """What a record adds about rules that have fired since the one before. From now on what was `decided` counts: a call, a
        lambda's question, what a seam was asked about; `None` stands for all there was."""
        rules = run.plan.hooks.rules
        if rules is None:
            return {}
        for about in decided:
            rules.recorded(run.run_id, about)
        new = {key: n for key, n in rules.counts().items() if n != self._told.get(key, 0)}
        self._told.update(new)
        return {"fired": new} if new else {}

    def with_ruling(self, run: Any, ruling: dict[str, Any], about: str | None, in_reply: bool) -> dict[str, dict[str, int]]:
        """For a ruling `about` a call or a lambda's question, or on the run's own line. One `in_reply` counts with the reply."""
        seam, call_id, on_line = ruling["seam"], ruling.get("call"), about is None
        if ("failed" in ruling or "over" in ruling) and (
            on_line or (call_id is not None and "/" not in call_id and seam in BEFORE_CALLS)
        ):
            self._failed = True
        anew = "again" in ruling or who_answered(ruling) or (on_line and (self._failed or in_reply))
        return self.told(run, *() if anew else (seam if on_line else about,))

    def with_reply(self, run: Any, failed: bool) -> dict[str, dict[str, int]]:
        """For a reply that is complete, or has failed."""
        self._failed = self._failed or failed
        return self.told(run, *() if self._failed else ("on_chunk", "on_message"))

    def with_retry(self, run: Any) -> dict[str, dict[str, int]]:
        """For a turn that is tried again: what rules have fired about the one that failed counts, but for what was taken back."""
        self._failed = False
        return self.told(run, None)

    def with_outcome(self, run: Any, call: Any) -> dict[str, dict[str, int]]:
        """For a call that is over, with what fired inside it, in a sub-agent. Where hooks failed, they are asked again."""
        anew = call.failure is not None and call.outcome == "blocked"
        return self.told(run, *() if anew else (call.id,))
