"""The right to go on with a run: one holder at a time, given back by the operating system when its process dies."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from ..errors import RunBusy

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows, where a journal serves one process
    fcntl = None  # type: ignore[assignment]


class Leases:
    """Locks on the bytes of one file: a run's row in the journal is its byte. They are the process's, so threads and tasks
    are told apart here.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: set[int] = set()
        self._guard = threading.Lock()
        self._file: int | None = None
        self._pid = 0

    def take(self, run_id: str, row: int) -> Lease:
        with self._guard:
            if self._pid != os.getpid():  # locks do not pass to a fork
                self._held, self._file, self._pid = set(), None, os.getpid()
            if row in self._held:
                raise RunBusy(f"run {run_id} is going on in this process: wait for it, or use its result")
            if fcntl is not None:
                if self._file is None:
                    self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, row)
                except OSError:
                    raise RunBusy(f"run {run_id} is going on in another process: wait for it, or use its result") from None
            self._held.add(row)
        return Lease(self, row)

    def give_back(self, row: int) -> None:
        with self._guard:
            if row in self._held and self._pid == os.getpid():
                self._held.discard(row)
                if fcntl is not None and self._file is not None:
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, row)

    def close(self) -> None:
        """Close the file, unless a run still goes on: closing it would give all locks back."""
        with self._guard:
            if self._file is not None and not self._held and self._pid == os.getpid():
                os.close(self._file)
                self._file = None


_ALL: WeakValueDictionary[str, Leases] = WeakValueDictionary()


def leases_at(path: Path) -> Leases:
    """The locks in one file, the same for everybody in this process: the operating system does not part them."""
    name = os.path.realpath(path)
    found = _ALL.get(name)
    if found is None:
        found = _ALL[name] = Leases(Path(name))
    return found


class Lease:
    """Held until `release`."""

    def __init__(self, leases: Leases, row: int) -> None:
        self._leases, self._row = leases, row

    def release(self) -> None:
        self._leases.give_back(self._row)
