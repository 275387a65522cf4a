"""Real worker processes, to be started, stopped and killed."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

SERVED = Path(__file__).with_name("served.py")


class Worker:
    """`beforehand worker` on a database. `lines` are what it has said."""

    started: ClassVar[list[Worker]] = []

    def __init__(self, url: str, effects: Path, *options: str, agents: Path = SERVED, **environment: str) -> None:
        self.lines: list[str] = []
        self._heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "beforehand", "worker", "--agents", str(agents), *options],
            env={**os.environ, "BEFOREHAND_DATABASE_URL": url, "TEST_EFFECTS": str(effects), **environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(self)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self.lines.append(line.rstrip())
                self._heard.put(line)
        self._heard.put(None)

    def says(self, what: str, seconds: float = 60) -> str:
        """Wait for a line that holds this."""
        while (line := self._heard.get(timeout=seconds)) is not None:
            if what in line:
                return line
        raise AssertionError(f"the worker ended ({self.process.wait()}) without saying {what!r}: {self.lines}")

    def ready(self) -> Worker:
        self.says("carries runs of")
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)
