"""What each worker does beside its runs: take over those of dead ones, and wake those about which a person has spoken."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import BeforehandError
from .place import Place
from .workflows import FAILED, Client

logger = logging.getLogger("beforehand")

SWEEP_SECONDS = 3.0
"""About how often dead workers are looked for."""

GONE_SECONDS = 5.0
"""How long a worker must have given no sign of life: one whose database was away needs a moment to come back."""

LISTEN_SECONDS = 0.25
"""How soon a sweeper hears that it is to stop. Where there is no server to tell of answers, how often they are looked for."""


class Sweeper:
    """A thread. `carried` gives the workflows that this worker carries now; it is asked from the thread."""

    def __init__(self, place: Place, client: Client, worker: str, carried: Callable[[], set[str]]) -> None:
        self._place, self._client, self._worker, self._carried = place, client, worker, carried
        self._stop = threading.Event()
        self._woken: set[tuple[str, int]] = set()
        self._unclaimed: set[str] = set()
        self._silent: dict[str, float] = {}
        """Workers that give no sign of life, and since when."""
        self._thread = threading.Thread(target=self._run, name="beforehand:sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        told = False
        while not self._stop.is_set():
            db = None
            try:
                db = self._place.listen()
                self._sweep_on(db)
            except Exception as error:
                if not told and not self._stop.is_set():
                    why = str(error) if isinstance(error, BeforehandError) else f"{type(error).__name__}: {error}"
                    logger.warning("the sweep for runs of dead workers is tried again: %s", " ".join(why.split()))
                told = True
                self._stop.wait(random.uniform(0.5, 1.5))  # noqa: S311 - so that not all come at once
            finally:
                if db is not None:
                    db.close()

    def _sweep_on(self, db: Any) -> None:
        self.wake()
        due = time.monotonic() + random.uniform(0, SWEEP_SECONDS)  # noqa: S311
        while not self._stop.is_set():
            if self._heard(db):
                self.wake()
            if time.monotonic() >= due:
                self.wake()
                self.take_over(db)
                due = time.monotonic() + SWEEP_SECONDS * random.uniform(0.7, 1.3)  # noqa: S311

    def _heard(self, db: Any) -> bool:
        """Wait a moment. Whether there may be an answer."""
        if db is None:
            self._stop.wait(LISTEN_SECONDS)
            return True
        return any([True for _ in db.notifies(timeout=LISTEN_SECONDS, stop_after=1)])

    # --- the two things it does ---

    def wake(self) -> None:
        """Queue the runs about which a person has said something since they stopped."""
        for run_id, records in self._place.journal.answered():
            if (run_id, records) not in self._woken:
                go_on(self._client, run_id, records)
                self._woken.add((run_id, records))  # only now: what fails is tried again

    def take_over(self, db: Any) -> None:
        """Hand out again what dead workers had, and what this one lost before it began."""
        pending = self._client.pending()
        mine = {status.id for status in pending if status.executor == self._worker} - self._carried()
        for workflow in mine & self._unclaimed:  # seen twice: not only between two steps of being handed out
            self._client.hand_out_again(workflow, self._worker)
        self._unclaimed = mine
        silent, now = self._silent, time.monotonic()
        self._silent = {}
        for worker in {status.executor for status in pending} - {self._worker}:
            if not self._place.is_dead(worker, db):
                continue
            since = self._silent[worker] = silent.get(worker, now)
            if db is not None and now - since < GONE_SECONDS:
                continue
            # Others may do the same at once: each run is handed out by who is first.
            theirs = [status.id for status in pending if status.executor == worker]
            taken = sum(self._client.hand_out_again(workflow, worker) for workflow in theirs)
            if taken:
                logger.warning("worker %s is gone: %d of its runs go on elsewhere", worker, taken)


def go_on(client: Client, run_id: str, records: int, again: bool = False) -> bool:
    """Queue a run again, which has so many records (or 0, before it began). Once, whoever asks; with `again` also where that
    has failed. False for a run that was never submitted.
    """
    workflows = client.of_run(run_id)
    first = next(iter(workflows), None)
    if first is None or first.work is None:
        return False
    failed = [one for one in workflows if again and one.state in FAILED and one.work and one.work["after"] == records]
    workflow_id = f"{run_id}#{records}.{len(failed)}" if failed else f"{run_id}#{records}"
    prompt = None if records else first.work["prompt"]
    work = {"run_id": run_id, "agent": first.work["agent"], "prompt": prompt, "after": records}
    client.enqueue(work["agent"], workflow_id, work)
    return True
