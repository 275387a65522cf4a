"""The right to go on with a run: one holder at a time, given back by the operating system when its process dies."""

from __future__ import annotations

import os
import struct
import sys
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from ..errors import RunBusy

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows, where a journal serves one process
    fcntl = None  # type: ignore[assignment]

class Leases:
    """Locks on the bytes of one file: a run's row in the journal is its byte. Made by `leases_at`, once for each file.

    The system gives locks to a process, whichever of its threads, tasks and journals asks, does not tell it of its own, and
    takes all of them back when it closes the file once. So those of one process are told apart here.
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

    def is_held(self, row: int) -> bool:
        """Whether somebody goes on with the run of this row, in this process or another one. Takes nothing."""
        with self._guard:
            if row in self._held and self._pid == os.getpid():
                return True
            return fcntl is not None and _locked_elsewhere(self._path, row)

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


# --- looking without taking ----------------------------------------------------------------------

_looking: dict[Path, int] = {}
"""Files opened to look at their locks. They stay open: closing one would give back the locks this process has on that file."""

_DARWIN = sys.platform == "darwin"
_FLOCK = "qqihh" if _DARWIN else "hhqqi"  # start, length, process, type, from where; elsewhere the last two come first


def _locked_elsewhere(path: Path, row: int) -> bool:
    file = _looking.get(path)
    if file is None:
        try:
            file = _looking[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # nobody has ever taken a lease
            return False
    kind, start = fcntl.F_RDLCK, os.SEEK_SET
    wanted = struct.pack(_FLOCK, *((row, 1, 0, kind, start) if _DARWIN else (kind, start, row, 1, 0)))
    found = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, wanted))
    return bool(found[3 if _DARWIN else 0] != fcntl.F_UNLCK)
