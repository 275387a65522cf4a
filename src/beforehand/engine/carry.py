"""What a worker does with a run it is handed: begin it, or go on with it from the journal, until it is over or waits."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, JournalError, RunBusy, UsageError
from ..innerloops import supervise
from ..journal import Store
from ..journal.codec import message_of

logger = logging.getLogger("beforehand")

RETRY_SECONDS = 1.0
"""About how long to wait before a run is tried again: its lease is somebody else's, or its journal was lost."""


STUBBORN_SECONDS = 10.0
"""How long a run that was cut off may take to end, before the worker ends without it."""


class Carried:
    """One run in this worker. `talk` is the conversation it happens in, `task` what to cancel to stop it."""

    def __init__(self, workflow_id: str) -> None:
        self.workflow_id = workflow_id
        self.talk: Any = None
        self.task: Any = None

    @property
    def calls_under_way(self) -> bool:
        """Whether a tool is running whose outcome is not recorded yet, in the run or in a loop that it has woken."""
        runs = [] if self.talk is None else self.talk._going_on()
        return any([run.journal is not None and run.journal.under_way for run in runs])


class Carrier:
    """Carries runs for the agents it knows."""

    def __init__(self, agents: Mapping[str, Any], journal: Store, deps: Any, strict: bool) -> None:
        self.agents, self._journal, self._deps, self._strict = agents, journal, deps, strict
        self.carried: set[Carried] = set()
        self.stopping = False

    async def carry(self, workflow_id: str, work: dict[str, Any]) -> dict[str, Any]:
        """The workflow. Whoever else carries the same run, this gives the same: what the journal says of its end."""
        run_id, name = work["run_id"], work["agent"]
        agent = self.agents.get(name)
        if agent is None:
            raise ConfigError(f"this worker has no agent {name!r}: it has {', '.join(self.agents)}")
        going = Carried(workflow_id)
        self.carried.add(going)
        try:
            while True:
                if self.stopping:
                    await asyncio.Event().wait()  # it is handed out again
                going.talk = agent.conversation()
                going.task = asyncio.ensure_future(self._attempt(going.talk, work))
                try:
                    return {"stop_reason": await going.task}
                except asyncio.CancelledError:
                    if not self.stopping:
                        raise
                    continue
                except RunBusy:
                    pass  # whoever has it may end it, or die
                except JournalError as error:
                    logger.warning("run %s is tried again: %s", run_id, error)
                except Exception as error:
                    logger.error("run %s cannot be carried on: %s", run_id, error)
                    raise
                await asyncio.sleep(RETRY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - so that not all try at once
        finally:
            self.carried.discard(going)

    async def put_aside(self, grace: float) -> None:
        """Stop every run as soon as none of its tools is running, at the latest after `grace` seconds. Be `stopping` before."""
        deadline = time.monotonic() + grace
        told: set[Any] = set()
        while going := [carried for carried in self.carried if carried.task is not None and not carried.task.done()]:
            late = time.monotonic() - deadline
            for carried in going:
                if carried.task not in told and (late > 0 or not carried.calls_under_way):
                    told.add(carried.task)
                    carried.task.cancel()
            if late > STUBBORN_SECONDS:
                logger.warning("%d runs do not let themselves be stopped", len(going))
                return
            await asyncio.sleep(0.02)

    def workflows(self) -> set[str]:
        """The ids of the workflows it carries. From any thread."""
        return {going.workflow_id for going in list(self.carried)}

    async def _attempt(self, talk: Any, work: dict[str, Any]) -> str:
        """Why the run stopped. Raises `JournalError` where the journal is why."""
        run_id, result = work["run_id"], None
        prompts = [message_of(message) for message in work["prompt"] or ()]
        if work["prompt"] is not None:
            try:
                result = await supervise(talk, talk.run(prompts, run_id=run_id, check=False, deps=self._deps))
            except UsageError:
                if not await self._journal.reading(self._journal.has, run_id):
                    raise
        if result is None:
            end = await self._journal.reading(end_after, self._journal, run_id, work["after"])
            if end is not None:
                return str(end["stop_reason"])
            going = talk.resume_recorded(run_id, check=False, deps=self._deps, strict=self._strict, prompts=prompts)
            result = await supervise(talk, going)
        if isinstance(result.error, JournalError):
            raise result.error
        return str(result.stop_reason)


def end_after(journal: Store, run_id: str, after: int) -> dict[str, Any] | None:
    """How a run has ended since it had so many records. One that ended in an error is not tried again for having been handed out
    twice.
    """
    head = journal.head(run_id)
    last = journal.records(run_id, after=max(after, head.records - 1))
    return last[-1].data if last and last[-1].kind == "end" else None
