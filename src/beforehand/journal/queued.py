"""Which submitted runs no worker has taken yet, for whoever may only look: nothing is made, as a client of DBOS would."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from .pgopening import connect, is_postgres, psycopg
from .readonly import connect_readonly
from .store import Store

WORKFLOW = "beforehand.run"
"""What carries a run, as DBOS knows it."""

WAIT_SECONDS = 5.0

_IN_POSTGRES = """
SELECT workflow_uuid, queue_name FROM dbos.workflow_status WHERE status = 'ENQUEUED' AND name = %s ORDER BY created_at"""
_IN_FILE = "SELECT workflow_uuid, queue_name FROM workflow_status WHERE status = 'ENQUEUED' AND name = ? ORDER BY created_at"


def untaken(journal: Store, where: str) -> list[tuple[str, str]]:
    """The ids of runs that are queued and not recorded, and the agents they are for, in the order they were submitted.

    `where` is the journal's address, its password included. None where there is no queue, or where it may not be read.
    """
    rows = _in_postgres(where) if is_postgres(where) else _in_file(queue_file(journal.path))
    recorded = frozenset(journal.ids()) if rows else ()
    found = {workflow.partition("#")[0]: queue.partition(":")[2] for workflow, queue in rows}  # "RUN#...": queued once more
    return [(run_id, agent) for run_id, agent in found.items() if run_id not in recorded]


def queue_file(journal: Path) -> Path:
    """The file that holds the queue, beside that of the journal."""
    return journal.with_name(journal.stem + "-queue" + (journal.suffix or ".db"))


def _in_postgres(url: str) -> list[tuple[str, str]]:
    with contextlib.closing(connect(url)) as db, contextlib.suppress(psycopg().Error):
        return list(db.execute(_IN_POSTGRES, (WORKFLOW,)).fetchall())
    return []


def _in_file(path: Path) -> list[tuple[str, str]]:
    with contextlib.suppress(sqlite3.Error, OSError):
        if path.is_file():
            with contextlib.closing(connect_readonly(path, WAIT_SECONDS)) as db:
                return list(db.execute(_IN_FILE, (WORKFLOW,)).fetchall())
    return []
