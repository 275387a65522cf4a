"""Bounds that the kernel keeps for a worker, whatever the code inside it does."""

from __future__ import annotations

import os
import sys

if sys.platform == "linux":
    import resource

    def bound(pid: int, *, data: int, cpu: float) -> None:
        """At most `data` bytes of private memory, `cpu` seconds of processor time and 16 MB in a file; no core file.

        The processor time ends a worker that outlives its host: a busy loop never notices that nobody reads any more.
        `RLIMIT_AS` is of no use, because engines reserve address space by the gigabyte.
        """
        seconds = int(cpu) + 2
        bounds = {resource.RLIMIT_DATA: data, resource.RLIMIT_CPU: seconds, resource.RLIMIT_FSIZE: 2**24, resource.RLIMIT_CORE: 0}
        for kind, value in bounds.items():
            try:
                resource.prlimit(pid, kind, (value, value))
            except ProcessLookupError:
                return  # it has ended; whoever waits for it says why

else:

    def bound(pid: int, *, data: int, cpu: float) -> None:
        """Only Linux can bound a running process. Elsewhere the engine's own limits and the wall time remain."""


def kill(pid: int) -> None:
    """End a process that may have ended."""
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
