"""DBOS, behind the few things that are asked of it: queue a run, hand it out, hand it out again, say how it stands.

Everything that touches `dbos` is here. It is loaded when an engine is first used: that takes a second.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from ..errors import ConfigError, JournalError, UsageError
from ..frozen import Frozen
from ..journal.pgopening import connect, is_postgres, shown, unreachable
from ..journal.pgwriter import SILENT_SECONDS
from ..journal.queued import WORKFLOW
from .limits import QueueLimits

APPLICATION = "beforehand"
VERSION = "beforehand-1"
"""Of the workflow, which never changes: what changes in an agent is told by the journal (`RunChanged`, a warning)."""

POLL_SECONDS = 0.25
GOING = ("ENQUEUED", "DELAYED", "PENDING")
FAILED = ("ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")

Body = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
Turn = Callable[[str], AbstractContextManager[bool]]

_body: Body | None = None
_registered = False
_guard = threading.Lock()


class Status(Frozen):
    """How a workflow stands."""

    id: str
    state: str
    executor: str
    error: str | None
    work: dict[str, Any] | None


def dbos() -> Any:
    """The library. `ConfigError` without the extra."""
    try:
        return importlib.import_module("dbos")
    except ImportError:
        raise ConfigError('the engine needs DBOS: install the extra "durable" of beforehand') from None


def queue_of(agent: str) -> str:
    return f"beforehand:{agent}"


class Client:
    """What any process may ask: a worker, or one that only submits."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: Any = None
        self._lock = threading.Lock()

    @property
    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                library = dbos()
                _quiet()
                try:
                    if is_postgres(self._url):
                        connect(self._url).close()  # DBOS would make a database that is not there
                    library.DBOS.migrate(self._url)
                    self._made = library.DBOSClient(
                        system_database_url=self._url, serializer=library.DBOSPortableJSONSerializer(),
                        application_name=APPLICATION, retry_connection_errors=False, system_database_pool_size=2,
                        sys_db_idle_transaction_timeout_sec=SILENT_SECONDS,
                    )  # fmt: skip
                except Exception as error:
                    raise _as_error(self._url, error) from None
            return self._made

    def _ask(self, work: Callable[[Any], Any]) -> Any:
        client = self._client
        try:
            return work(client)
        except Exception as error:
            raise _as_error(self._url, error) from None

    def enqueue(self, agent: str, workflow_id: str, work: dict[str, Any]) -> bool:
        """Queue work. False if there is a workflow of this id already: nothing changes then."""
        options = {
            "workflow_name": WORKFLOW, "queue_name": queue_of(agent), "workflow_id": workflow_id, "app_version": VERSION,
            "workflow_id_reuse_policy": "reject",
        }  # fmt: skip
        in_use = dbos().error.DBOSWorkflowIDInUseError

        def put(client: Any) -> bool:
            try:
                client.enqueue(options, work)
            except in_use:
                return False
            return True

        return bool(self._ask(put))

    def known_agents(self) -> list[str]:
        """The agents that a worker has served."""
        queues = self._ask(lambda client: client.list_queues())
        return [q.name.partition(":")[2] for q in queues if q.name.startswith(queue_of(""))]

    def of_run(self, run_id: str) -> list[Status]:
        """The workflows that have carried a run, in the order in which they were queued."""
        later = self._statuses(workflow_id_prefix=f"{run_id}#", name=WORKFLOW)
        return [
            *self._statuses(workflow_ids=[run_id], name=WORKFLOW),
            *[status for status in later if status.id.startswith(f"{run_id}#")],  # to SQLite "a" begins like "A"
        ]

    def pending(self) -> list[Status]:
        """The workflows that some worker carries, or carried when it died."""
        return self._statuses(status="PENDING", name=WORKFLOW, load_input=False, load_output=False)

    def _statuses(self, **query: Any) -> list[Status]:
        rows = self._ask(lambda client: client.list_workflows(**query))
        return [
            Status(
                row.workflow_id, row.status, row.executor_id or "", None if row.error is None else str(row.error),
                row.input["args"][0] if row.input else None,
            )
            for row in rows
        ]  # fmt: skip

    def hand_out_again(self, workflow_id: str, executor: str) -> bool:
        """Put a workflow back in its queue, if this executor still has it. DBOS recovers only its own executor's by itself."""
        return bool(self._ask(lambda c: c._sys_db.reenqueue_for_recovery(workflow_id, [executor], queue_of(""))))

    def close(self) -> None:
        with self._lock:
            if self._made is not None:
                self._made.destroy()
            self._made = None


class Workers:
    """DBOS in this process, which runs workflows. One at a time: DBOS is the process's."""

    def __init__(self, url: str, executor: str, turn: Turn | None = None) -> None:
        """With a `turn`, work is taken from a queue (by its name) only by whoever has it."""
        self._url, self._executor, self._turn = url, executor, turn

    def launch(self, body: Body, agents: list[str]) -> None:
        """Take work from the queues of these agents, on the event loop that runs now."""
        global _body
        library = dbos()
        if _body is not None or importlib.import_module("dbos._dbos")._dbos_global_instance is not None:
            raise UsageError("this process runs workflows of DBOS already: a worker needs a process of its own")
        _quiet()
        _register(library)
        config = {
            "name": APPLICATION, "system_database_url": self._url, "executor_id": self._executor, "application_version": VERSION,
            "serializer": library.DBOSPortableJSONSerializer(), "log_level": "CRITICAL", "use_listen_notify": True,
            "max_executor_threads": 64, "sys_db_idle_transaction_timeout_sec": SILENT_SECONDS,
        }  # fmt: skip
        _body = body
        try:
            library.DBOS(config=config)
            library.DBOS.listen_queues([queue_of(agent) for agent in agents])
            library.DBOS.launch()
            if self._turn is not None:
                _take_in_turn(self._turn)  # its threads look into the queues only after a moment
        except Exception as error:
            _body = None
            library.DBOS.destroy()
            raise _as_error(self._url, error) from None

    def register(self, agents: list[str], limits: QueueLimits) -> None:
        """Write down the limits of these agents' queues: those of the worker that started last count."""
        rate = None if limits.rate is None else {"limit": limits.rate[0], "period": limits.rate[1]}
        worker = limits.worker_concurrency
        if limits.concurrency is not None and worker is not None:
            worker = min(worker, limits.concurrency)
        try:
            for agent in agents:
                dbos().DBOS.register_queue(
                    queue_of(agent), worker_concurrency=worker, global_concurrency=limits.concurrency, limiter=rate,
                    polling_interval_sec=POLL_SECONDS, on_conflict="always_update",
                )  # fmt: skip
        except Exception as error:
            raise _as_error(self._url, error) from None

    def stop_taking(self) -> None:
        """Take no more work. What goes on goes on."""
        for event in importlib.import_module("dbos._dbos")._get_dbos_instance().background_thread_stop_events:
            event.set()

    def destroy(self) -> None:
        global _body
        _body = None
        dbos().DBOS.destroy()


def _register(library: Any) -> None:
    """Tell DBOS of the workflow, once in a process."""
    global _registered
    with _guard:
        if _registered:
            return
        _registered = True

        @library.DBOS.workflow(name=WORKFLOW)  # type: ignore[untyped-decorator,unused-ignore]
        async def carry(work: dict[str, Any]) -> dict[str, Any]:
            assert _body is not None
            return await _body(library.DBOS.workflow_id, work)


def _take_in_turn(turn: Turn) -> None:
    """Let DBOS take work of a queue with limits over all workers only in this worker's turn, else nothing, until it looks again.

    In SQLite it counts what goes on before its transaction begins: two workers that count at once would pass every limit.
    """
    system = importlib.import_module("dbos._dbos")._get_dbos_instance()._sys_db
    take = system.start_queued_workflows

    def in_turn(queue: Any, *args: Any, **options: Any) -> Any:
        if queue._concurrency is None and queue._limiter is None:
            return take(queue, *args, **options)  # there is nothing to count: a worker that is stopped in its turn stops no other
        with turn(queue.name) as mine:
            return take(queue, *args, **options) if mine else ([], None)

    system.start_queued_workflows = in_turn


def _quiet() -> None:
    """What goes wrong is said once, by us, in a line. Who uses DBOS too keeps the level that they have set."""
    for name in ("dbos", "sqlalchemy.pool"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)


def _as_error(url: str, error: Exception) -> Exception:
    """An error of the database in one line, without its password."""
    if isinstance(error, JournalError | ConfigError | UsageError):
        return error
    if is_postgres(url) and getattr(error, "orig", None) is not None:
        return unreachable(url, error.orig)  # type: ignore[attr-defined]
    # What the library adds shows the statement, and what was to be written with it: a prompt may be among that.
    said = " ".join(str(getattr(error, "orig", None) or error).split())
    return JournalError(f"the queue of runs {shown(url) if is_postgres(url) else url} could not be used: {said}")
