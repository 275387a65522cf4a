"""`Engine`: submit runs, wait for them, answer their questions; and carry them, in any number of processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from ..agent import Agent
from ..answering import hold_waiting, last_kind, outermost
from ..decisions import HumanAnswer
from ..durable import Recorded, load, record_answer, recorded_result
from ..errors import ConfigError, JournalError, RunError, UnknownAnswer, UnknownRun, UsageError
from ..ids import MAX_RUN_ID, run_id_problem
from ..journal.details import kept_all
from ..journal.pastrecords import read_past
from ..journal.pgjobs import SAID
from ..journal.sqlite import encode
from ..journal.trusted import trusted
from ..journal.withheld import was_withheld
from ..prompts import Prompt, as_messages
from ..results import RunResult
from .carry import Carrier
from .limits import QueueLimits
from .place import Place
from .sweeper import Sweeper, go_on
from .workflows import FAILED, GOING, Client, Workers

logger = logging.getLogger("beforehand")

_LIMITS = QueueLimits()

DESTROY_SECONDS = 15.0
"""How long the threads of DBOS may take to end. Without their database they wait much longer."""

OVER = ("end", "suspended")
"""What is recorded last of a run that is over, or waits for a person."""

AWAY_SECONDS = 60.0
"""How long who waits for a result without a timeout waits for a database that is away."""


class Engine:
    """Runs that any number of workers carry. `database_url` is postgresql://..., or sqlite:///PATH for one machine.

    Without `agents` it submits, waits and answers; `start` makes the process a worker for these agents (by the names under
    which they are submitted), with `deps` for their hooks and tools. The agents' runs are recorded in this database, so they
    have no journal of their own; `durability`, `journal_key` and `journal_raw` are as in `Agent`. With `strict` the worker goes
    on with no run whose tools or hooks have changed since it began: such a run could not be carried on, see `resume`.
    """

    def __init__(
        self, database_url: str, agents: Mapping[str, Agent] | None = None, *, limits: QueueLimits = _LIMITS, deps: Any = None,
        durability: str = "full", journal_key: bytes | None = None, journal_raw: bool = False, strict: bool = False,
    ) -> None:  # fmt: skip
        self.place = Place(database_url, durability=durability, key=journal_key, raw=journal_raw)
        self.journal = self.place.journal
        self.limits = limits.checked()
        self.worker_id = _some_id()
        self._client = Client(self.place.dbos_url)
        self._carrier = Carrier(_with_journal(agents or {}, self.journal), self.journal, deps, strict)
        self._workers: Workers | None = None
        self._sweeper: Sweeper | None = None

    # --- from anywhere ---

    async def submit(self, agent: str, prompt: Prompt, *, run_id: str | None = None) -> str:
        """Queue a run of the agent of this name, and return its id. It is durable when this returns.

        Submitting the same again under the same id changes nothing; something else under that id is a `UsageError`.
        """
        if not isinstance(agent, str) or not agent:
            raise ConfigError(f"submit({agent!r}, ...): expected the name of an agent")
        run_id = uuid.uuid4().hex if run_id is None else run_id
        if not isinstance(run_id, str) or not run_id.strip() or "#" in run_id or "/" in run_id:
            raise ConfigError(f"run_id={run_id!r}: expected a text without '#' and '/'")
        if (why := run_id_problem(run_id)) is not None:
            raise ConfigError(f"run_id={run_id!r}{why}")
        if (size := len(run_id.encode())) > MAX_RUN_ID:
            raise ConfigError(f"run_id={run_id[:20] + '...'!r} has {size} bytes: expected at most {MAX_RUN_ID}")
        prompts = msgspec.json.decode(encode(kept_all(as_messages(prompt))))
        work = {"run_id": run_id, "agent": agent, "prompt": prompts, "after": 0}
        await asyncio.to_thread(self._submit, run_id, work)
        return run_id

    def _submit(self, run_id: str, work: dict[str, Any]) -> None:
        # The journal is asked first: nothing is queued where it refuses, such as with a wrong key.
        recorded = self.journal.first(run_id) if self.journal.has(run_id) else None
        if self._client.enqueue(work["agent"], run_id, work):
            if recorded is not None and not _may_be(recorded.data["prompts"], work["prompt"]):
                logger.warning("run %s was recorded before it was submitted: it goes on as it began", run_id)
            return
        before = next(iter(self._client.of_run(run_id)), None)
        if before is None or before.work is None or {**before.work, "after": 0} != work:
            raise UsageError(f"a run {run_id!r} with another agent or prompt was submitted before: take another run_id")

    async def served(self) -> list[str]:
        """The names of the agents that a worker has served."""
        return await asyncio.to_thread(self._client.known_agents)

    async def result(self, run_id: str, *, check: bool = True, timeout: float | None = None) -> RunResult:
        """What came of a run, once it is over or waits for a person. As `Agent.run`, this raises its error if `check`.

        A database that goes away is waited for: until the timeout, without one for a minute. Raises `UnknownRun`; `RunError` if
        it could not be carried; `TimeoutError` after `timeout` seconds; `JournalError` where the database stays away.
        """
        async with asyncio.timeout(timeout):
            pause, looked, reached, told = 0.02, 0.0, time.monotonic(), False
            while True:
                now, result = time.monotonic(), None
                try:
                    result = await asyncio.to_thread(self._look, run_id, now - looked > 1.0)
                    looked, reached, told = now if now - looked > 1.0 else looked, now, False
                except JournalError as error:
                    if not error.temporary or (timeout is None and now - reached > AWAY_SECONDS):
                        raise
                    if not told:
                        logger.warning("%s; what comes of run %s is waited for", error, run_id)
                    told = True
                if result is not None:
                    if check and result.error is not None:
                        result.error.result = result
                        raise result.error
                    return result
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.5)

    def _look(self, run_id: str, thoroughly: bool) -> RunResult | None:
        """The result, if there is one; `thoroughly` raises if there will be none."""
        result = self._recorded_result(run_id)
        if result is None and thoroughly:
            self._check_carried(run_id)
        return result

    def _recorded_result(self, run_id: str) -> RunResult | None:
        """The result, if the run is over or waits."""
        try:
            if last_kind(self.journal, run_id) not in OVER:
                return None
        except UnknownRun:
            return None
        head = self.journal.head(run_id)
        records = trusted(self.journal, head, self.journal.records(run_id))
        if records[-1].kind not in OVER:
            return None
        recorded = Recorded(self.journal, head, read_past(records), run_id)
        result = recorded_result(recorded, recorded.left()[1])
        if result.error is not None:
            going = any([status.state in GOING for status in self._client.of_run(run_id)])
            if going or self.journal.head(run_id).records != head.records:
                return None  # it is tried again, or its worker has not told the queue yet
        return result

    def _check_carried(self, run_id: str) -> None:
        """Raise if nothing will come of a run."""
        workflows = self._client.of_run(run_id)
        if not workflows and not self.journal.has(run_id):
            raise UnknownRun(f"no run {run_id!r} was submitted to {self.journal.path}")
        failed = [status for status in workflows if status.state in FAILED]
        if failed and len(failed) == len([s for s in workflows if s.state != "SUCCESS"]):
            records = self.journal.head(run_id).records if self.journal.has(run_id) else 0
            tried = any([s.work and s.work["after"] == records for s in failed])
            if records and not tried and last_kind(self.journal, run_id) in SAID:
                return  # a worker is about to take it up
            said = failed[-1].error or failed[-1].state.lower().replace("_", " ")
            raise RunError(f"run {run_id} could not be carried on: {said}")

    async def answer(self, run_id: str, answers: Mapping[str, HumanAnswer], *, by: str = "engine") -> None:
        """Record what a person answered about waiting calls, by call id; a worker goes on with the run at once.

        The calls of a sub-agent may be named by its own run or by the outer one. Calls without an answer go on waiting. Raises
        `UnknownAnswer` for a call that does not wait, `UnknownRun`, `RunBusy`.
        """
        places = {call_id: await self.journal.reading(outermost, self.journal, run_id, call_id) for call_id in answers}
        inside, run_id = run_id, next((run for run, _ in places.values() if run != run_id), run_id)
        answers = {places[call_id][1] if run_id != inside else call_id: answer for call_id, answer in answers.items()}
        lease = await hold_waiting(self.journal, run_id)
        try:
            recorded = await self.journal.reading(load, self.journal, run_id)
            pending = recorded.past.pending
            for call_id, answer in answers.items():
                if call_id not in pending:
                    waiting = f"waiting are {', '.join(pending)}" if pending else "none is waiting"
                    raise UnknownAnswer(f"no call {call_id!r} of run {run_id} is waiting; {waiting}")
                if not isinstance(answer, HumanAnswer):
                    raise UsageError(f"an answer is Approve(), Deny(...) or Edit(...), not a {type(answer).__name__}")
            for call_id, answer in answers.items():
                await record_answer(self.journal, run_id, call_id, pending[call_id]["args_digest"], answer, by)
        finally:
            lease.release()

    async def resume(self, run_id: str) -> None:
        """Let a worker go on with a run that ended in an error, or could not be carried on. Asking twice is asking once."""

        def ask() -> None:
            records = self.journal.head(run_id).records if self.journal.has(run_id) else 0
            if not go_on(self._client, run_id, records, again=True):
                raise UnknownRun(f"run {run_id!r} was not submitted to {self.journal.path}: resume it with agent.resume(...)")

        await asyncio.to_thread(ask)

    # --- a worker ---

    async def start(self) -> None:
        """Carry runs from now on, in this event loop, until `stop`. Raises `ConfigError`, `JournalError`."""
        agents = list(self._carrier.agents)
        if not agents:
            raise ConfigError('a worker needs agents: Engine(database_url, agents={"name": agent})')
        if self._workers is not None:
            raise UsageError("this engine carries runs already")
        self._carrier.stopping = False
        self.worker_id = _some_id()
        while not await asyncio.to_thread(self.place.come_alive, self.worker_id):
            self.worker_id = _some_id()
        try:
            await asyncio.to_thread(self._client.known_agents)  # makes the tables
            workers = Workers(self.place.dbos_url, self.worker_id, None if self.place.shared else self.place.turn)
            workers.launch(self._carrier.carry, agents)
        except BaseException:
            await asyncio.to_thread(self.place.die, self.worker_id)
            raise
        self._workers = workers
        try:
            await asyncio.to_thread(workers.register, agents, self.limits)
        except BaseException:
            await self.stop(0)
            raise
        self._sweeper = Sweeper(self.place, self._client, self.worker_id, self._carrier.workflows)
        self._sweeper.start()

    async def stop(self, grace: float = 10.0) -> None:
        """Take no more work, and let others go on with what is under way.

        A run stops as soon as none of its tools is running; after `grace` seconds it stops all the same, and what became of
        its running calls is not known.
        """
        workers, self._workers = self._workers, None
        if workers is None:
            return
        self._carrier.stopping = True
        workers.stop_taking()
        await self._carrier.put_aside(grace)
        left = self._carrier.workflows()
        if self._sweeper is not None:
            await asyncio.to_thread(self._sweeper.stop)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(workers.destroy), DESTROY_SECONDS)
        try:
            for workflow in left:
                await asyncio.to_thread(self._client.hand_out_again, workflow, self.worker_id)
        except JournalError as error:
            logger.warning("other workers will find the runs of this one by themselves: %s", error)
        await asyncio.to_thread(self.place.die, self.worker_id)

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents that it carries runs of."""
        return tuple(self._carrier.agents)

    @property
    def carrying(self) -> int:
        """How many runs this worker carries now."""
        return len(self._carrier.carried)

    async def aclose(self) -> None:
        """Stop carrying, and close every connection and what the agents keep waiting."""
        async with contextlib.AsyncExitStack() as closing:  # what cannot be closed leaves nothing else open
            closing.push_async_callback(asyncio.to_thread, self.journal.close)
            closing.push_async_callback(asyncio.to_thread, self._client.close)
            for agent in reversed(list(self._carrier.agents.values())):
                closing.push_async_callback(agent.aclose)
            await self.stop()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _may_be(recorded: list[Any], prompts: list[Any]) -> bool:
    """Whether the prompts on record may have been these: of some it is not known, since hooks judge them."""
    return len(recorded) == len(prompts) and all(
        [was_withheld(there) or there == prompt for there, prompt in zip(recorded, prompts, strict=True)]
    )


def _some_id() -> str:
    """A worker's id. No two are alike, so that none is taken for one that is gone."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _with_journal(agents: Mapping[str, Agent], journal: Any) -> dict[str, Agent]:
    """The agents, which record in the engine's journal."""
    made: dict[str, Agent] = {}
    for name, agent in agents.items():
        if not isinstance(agent, Agent):
            raise ConfigError(f"agents[{name!r}] is a {type(agent).__name__}: expected an Agent")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"agents[{name!r}]: an agent's name is a text")
        if agent.plan.journal is not None:
            raise ConfigError(f"agent {name!r} has a journal of its own: make it without journal=, the engine keeps one for all")
        made[name] = agent.replace(journal=journal)
    return made
