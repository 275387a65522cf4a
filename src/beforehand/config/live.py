"""A project file that may change while the agent is at work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path as FilePath

from ..errors import ConfigError
from .project import Project, read_project, shown_path, text_of

SETTLED_NS = 2_000_000_000
"""Only a file last written so long ago is known to be the one that was read, if it looks the same: clocks of file systems
are coarse, and two writes within one tick leave the same time."""


class LiveProject:
    """The project as its file says now. There is no watcher: whoever asks has the file looked at."""

    def __init__(self, project: Project, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock` tells the time in nanoseconds since 1970, as file systems do."""
        self.file: FilePath = project.file
        self._clock = clock
        self._project = project
        self._seen: tuple[int, ...] | None = None
        self._text: str | None = None

    def current(self) -> Project:
        """The same object for as long as the file says the same. `ConfigError` while the file cannot be used."""
        try:
            found = os.stat(self.file)
        except OSError as error:
            self._seen = self._text = None
            raise ConfigError(f"the project file {shown_path(self.file)} cannot be read: {error.strerror}") from None
        looks = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
        if looks == self._seen:
            return self._project
        self._seen = None
        known, self._text = self._text, None  # in case of a mistake
        text = text_of(self.file)
        if text != known:
            self._project = read_project(self.file, text)
        self._text = text
        if self._clock() - max(found.st_mtime_ns, found.st_ctime_ns) > SETTLED_NS:
            self._seen = looks
        return self._project
