"""The right to go on with a run: one holder at a time, given back by the operating system when its process dies."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakValueDictionary

from ..errors import JournalError, RunBusy

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows, where a journal serves one process
    fcntl = None  # type: ignore[assignment]

_SHARED = 0x40000002
"""A byte on which SQLite has a lock in each process that has the database open."""

IN_DATABASE = 1 << 40
"""Where in the database the locks begin: far behind anything that SQLite reads, writes or locks."""


class Leases:
    """Locks on bytes of the file `own`: a run's row in the journal is its byte. Made by `leases_at`, once for each journal.

    The system gives locks to a process, whichever of its threads, tasks and journals asks, does not tell it of its own, and
    takes all of them back when it closes the file once. So those of one process are told apart here.

    With `database` each lease is held twice, and whoever wants a run must get both: in `own`, which somebody who tidies up
    may delete, and in the database itself, with which the runs would be gone too.
    """

    def __init__(self, own: Path, database: Path | None = None) -> None:
        self._files = [_Locks(own, 0, os.O_CREAT), *([] if database is None else [_Locks(database, IN_DATABASE, 0)])]
        self._database = database
        self._guard = threading.RLock()  # a connection that goes out of scope says so at any moment, also amid what is below
        self._pid = 0
        self._begin()

    def _begin(self) -> None:
        self._held: set[int] = set()
        self._connections = 0
        for file in self._files:
            file.forget()

    def _after_fork(self) -> None:
        if self._pid != os.getpid():  # neither locks nor connections pass to a fork
            self._begin()
            self._pid = os.getpid()

    def take(self, run_id: str, row: int) -> Lease:
        with self._guard:
            self._after_fork()
            if row in self._held:
                raise RunBusy(f"run {run_id} is going on in this process: wait for it, or use its result")
            self._held.add(row)  # before it is locked: whoever locks again what is held may come in between
            try:
                if fcntl is not None and not all([file.lock(row, self._held) for file in self._files]):
                    raise RunBusy(f"run {run_id} is going on in another process: wait for it, or use its result")
            except BaseException:
                self._unlock(row)
                raise
        return Lease(self, row)

    def is_held(self, row: int) -> bool:
        """Whether somebody goes on with the run of this row, in this process or another one. Takes nothing."""
        with self._guard:
            if row in self._held and self._pid == os.getpid():
                return True
            return fcntl is not None and any([file.is_locked_elsewhere(row) for file in self._files])

    def give_back(self, row: int) -> None:
        with self._guard:
            if row in self._held and self._pid == os.getpid():
                self._unlock(row)

    def _unlock(self, row: int) -> None:
        self._held.discard(row)
        if fcntl is not None:
            for file in self._files:
                file.unlock(row)

    # SQLite gives back every lock on a database when this process closes its last connection, and so does the system when
    # this process closes the file once. So ours are taken again after the one, and the other waits until there is none.

    @contextlib.contextmanager
    def opening(self) -> Iterator[bool]:
        """Around the opening of a journal's first connections. Yields whether nobody has the database open, here or elsewhere."""
        with self._guard:
            self._after_fork()
            alone = not self._connections and not self._held and not _is_open_elsewhere(self._database)
            self._connections += 1  # from now on nobody else in this process asks that: it would lose the locks of these
        try:
            yield alone
        finally:
            self.closed()

    def opened(self) -> None:
        """This process has one more connection to the database."""
        with self._guard:
            self._after_fork()
            self._connections += 1
            self._lock_again()

    def closed(self) -> None:
        """One less. The files are closed with the last, unless a run still goes on."""
        with self._guard:
            self._after_fork()
            self._connections -= 1
            self._lock_again()
            if self._connections <= 0 and not self._held:
                for file in self._files:
                    file.close()

    def _lock_again(self) -> None:
        for file in self._files:
            file.lock_again(self._held)


class _Locks:
    """Locks on the bytes of one file, from byte `first` on."""

    def __init__(self, path: Path, first: int, flags: int) -> None:
        self._path, self._first, self._flags = path, first, flags
        self._file: int | None = None

    def forget(self) -> None:
        self._file = None

    def lock(self, row: int, held: set[int]) -> bool:
        """Lock a byte. If the file was deleted or replaced meanwhile, the new one is taken, with all that is `held`."""
        while True:
            if self._file is None:
                self._file = _opened(self._path, self._flags)
                self.lock_again(held)
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._first + row)
            except OSError:
                return False
            if _is_at(self._file, self._path):
                return True
            self._file = None  # left open: of a database, closing it gives back SQLite's locks as well

    def lock_again(self, rows: set[int]) -> None:
        if self._file is not None:
            for row in rows:
                with contextlib.suppress(OSError):
                    fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._first + row)

    def unlock(self, row: int) -> None:
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._first + row)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def is_locked_elsewhere(self, row: int) -> bool:
        file = _looking.get(self._path)
        if file is None or not _is_at(file, self._path):
            try:
                file = _looking[self._path] = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # nobody has ever taken a lease
                return False
        return _is_taken(file, self._first + row, fcntl.F_RDLCK)


def _is_taken(file: int, place: int, kind: int) -> bool:
    """Whether another process has a lock on a byte that keeps others from getting one of this kind."""
    start = os.SEEK_SET
    wanted = struct.pack(_FLOCK, *((place, 1, 0, kind, start) if _DARWIN else (kind, start, place, 1, 0)))
    found = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, wanted))
    return bool(found[3 if _DARWIN else 0] != fcntl.F_UNLCK)


def _is_open_elsewhere(database: Path | None) -> bool:
    """Whether another process has it open. Not to be asked while this one has: it would lose its locks."""
    if fcntl is None or database is None:
        return False
    try:
        file = os.open(database, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # no file at all, but a pipe, would have it wait
    except OSError:  # there is none yet
        return False
    try:
        return _is_taken(file, _SHARED, fcntl.F_WRLCK)
    finally:
        os.close(file)


def _opened(path: Path, flags: int) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
    except OSError as error:
        raise JournalError(f"the journal's file {path} cannot be locked: {error.strerror}") from None


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one that this path names."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except OSError:
        return False


_looking: dict[Path, int] = {}
"""Files opened to look at their locks. They stay open: closing one would give back the locks this process has on that file."""

_DARWIN = sys.platform == "darwin"
_FLOCK = "qqihh" if _DARWIN else "hhqqi"  # start, length, process, type, from where; elsewhere the last two come first

_ALL: WeakValueDictionary[Path, Leases] = WeakValueDictionary()


def leases_at(database: Path) -> Leases:
    """The locks of one journal, the same for everybody in this process: the operating system does not part them."""
    found = _ALL.get(database)
    if found is None:
        found = _ALL[database] = Leases(database.with_name(database.name + "-locks"), database)
    return found


class Lease:
    """Held until `release`."""

    def __init__(self, leases: Leases, row: int) -> None:
        self._leases, self._row = leases, row

    def release(self) -> None:
        self._leases.give_back(self._row)
