"""Where the runs are kept: one database for the journal and for DBOS, or two SQLite files beside each other."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from ..errors import ConfigError, JournalError, RunBusy
from ..journal import Journal, PostgresJournal, Store
from ..journal.lease import Leases
from ..journal.pgjobs import IS_HELD, WORKER_LOCK
from ..journal.pgopening import connect, is_postgres, psycopg, shown
from ..journal.queued import queue_file

SQLITE = "sqlite:///"

TURNS = 1 << 32
"""Where the locks of who takes work begin, behind those of all workers."""

_OF_PATHS = "/\\:"
"""What may stand in a path, of the signs that have a meaning in an address."""


class Place:
    """A `database_url`: the journal in it, the URL for DBOS, and the signs of life of its workers.

    `postgresql://...` serves any number of machines, `sqlite:///PATH` one. Raises `ConfigError` for anything else,
    and where DBOS cannot use SQLite.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.journal: Store
        self.url = url
        if is_postgres(url):
            self.journal = PostgresJournal(url, **options)
            self.dbos_url = _as_dbos_reads_it(url)
        elif isinstance(url, str) and url.startswith(SQLITE) and url != SQLITE:
            _check_sqlite()
            self.journal = Journal(url.removeprefix(SQLITE), **options)
            path = self.journal.path  # whatever name it was reached by
            if not path.parent.is_dir():
                raise ConfigError(f"the database {SQLITE}{path} cannot be made: there is no folder {path.parent}")
            self.dbos_url = SQLITE + quote(str(queue_file(path)), safe=_OF_PATHS)
            self._leases = Leases(path.with_name(path.name + "-workers"))
        else:
            raise ConfigError("the database URL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE or sqlite:///PATH")
        self._mine: Any = None

    @property
    def shared(self) -> bool:
        """Whether it is a server, which other machines can reach."""
        return isinstance(self.journal, PostgresJournal)

    def come_alive(self, worker: str) -> bool:
        """Say that this worker lives, until `die` or the end of its process. False if its number is another one's."""
        if isinstance(self.journal, PostgresJournal):
            writer = self.journal.writer
            return bool(writer.put(writer.locks.lock_worker(number_of(worker), worker)).result())
        try:
            self._mine = self._leases.take(worker, number_of(worker))
        except RunBusy:
            return False
        return True

    def die(self, worker: str) -> None:
        if isinstance(self.journal, PostgresJournal):
            writer = self.journal.writer
            with contextlib.suppress(JournalError, TimeoutError):  # without its database it has no lock to give back
                writer.put(writer.locks.give_back(WORKER_LOCK, number_of(worker), worker)).result(5)
        elif self._mine is not None:
            self._mine.release()

    def is_dead(self, worker: str, db: Any) -> bool:
        """Whether a worker gives no sign of life. Takes nothing: who asks may be stopped at any moment. `db` is a connection of
        the caller's.
        """
        if db is None:
            return not self._leases.is_held(number_of(worker))
        return db.execute(IS_HELD, (WORKER_LOCK, number_of(worker))).fetchone() is None

    @contextlib.contextmanager
    def _taken(self, name: str, number: int) -> Iterator[bool]:
        """Whether a lock beside the file was free. While this is open, nobody else gets it."""
        try:
            lease = self._leases.take(name, number)
        except RunBusy:
            yield False
            return
        try:
            yield True
        finally:
            lease.release()

    def turn(self, queue: str) -> contextlib.AbstractContextManager[bool]:
        """Whether it is this worker's turn to take work from a queue. While this is open, no other one has it. For SQLite."""
        return self._taken(queue, TURNS + number_of(queue))

    def listen(self) -> Any:
        """A connection that hears of answers. `None` where there is nothing to listen to."""
        if not self.shared:
            return None
        db = connect(self.url)
        try:
            db.execute("LISTEN beforehand")
        except BaseException:
            db.close()
            raise
        return db


def _as_dbos_reads_it(url: str) -> str:
    """The same address for the library that DBOS connects with, which has another idea of several hosts.

    `ConfigError` where it names no database: DBOS would make one.
    """
    parts = psycopg().conninfo.conninfo_to_dict(url)
    database = parts.pop("dbname", None)
    if not database:
        raise ConfigError(f"{shown(url)} names no database: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    hosts = parts.get("host", "").count(",") + 1
    if "port" in parts and "," not in str(parts["port"]):
        parts["port"] = ",".join([str(parts["port"])] * hosts)
    who = [quote(str(parts.pop(name)), safe="") for name in ("user", "password") if name in parts] if "user" in parts else []
    query = urlencode({**parts, "client_encoding": "utf8"}, quote_via=quote)
    return f"postgresql://{':'.join(who)}{'@' if who else ''}/{quote(database, safe='')}?{query}"


def _check_sqlite() -> None:
    """From Python 3.12 on DBOS counts on `unixepoch('subsec')`, which older SQLites answer with NULL or do not have."""
    if sys.version_info >= (3, 12):
        with contextlib.closing(sqlite3.connect(":memory:")) as db, contextlib.suppress(sqlite3.OperationalError):
            if db.execute("SELECT unixepoch('subsec')").fetchone() != (None,):
                return
        raise ConfigError(
            f"the queue of runs cannot be in a SQLite file here: DBOS needs SQLite 3.42 or newer from Python 3.12 on, and this "
            f"Python has {sqlite3.sqlite_version}: use postgresql://..., or a Python with a newer SQLite"
        )


def number_of(worker: str) -> int:
    """The number under which a worker is locked."""
    return zlib.crc32(worker.encode()) >> 1
