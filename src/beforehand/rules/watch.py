"""Hot reload: rule files are read again when they change. Validated first, swapped whole; a broken edit changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from beforehand.errors import ConfigError

from .documents import SUFFIXES
from .ruleset import RuleSet, load_rules
from .voice import Voice, say

logger = logging.getLogger("beforehand.rules")

OnChange = Callable[[RuleSet], None]
OnRefused = Callable[[ConfigError], None]


class Watcher:
    """Keeps `current` the rules that stand in `paths`.

    Runs take `current` when they start and keep it. `on_change` gets each new set, `on_refused` the mistakes of an edit
    that was not taken; those are logged too. Rules that an edit leaves as they are go on counting where they were.
    """

    def __init__(
        self, paths: Sequence[str | Path], current: RuleSet | None = None, *, on_change: OnChange | None = None,
        on_refused: OnRefused | None = None, voice: Voice = say,
    ) -> None:  # fmt: skip
        self.paths = tuple([Path(path) for path in paths])
        self.current = load_rules(self.paths, voice) if current is None else current
        self._on_change, self._on_refused, self._voice = on_change, on_refused, voice
        self._state = self._look()
        self._stop = asyncio.Event()
        self.started = asyncio.Event()

    def reload(self) -> bool:
        """Read the files now. False, and nothing changes, if they cannot be loaded."""
        try:
            fresh = load_rules(self.paths, self._voice)
        except ConfigError as error:
            logger.error("the rules stay as they were, because the edit has mistakes:\n%s", error)
            if self._on_refused is not None:
                self._on_refused(error)
            return False
        fresh.take_counts(self.current)
        self.current = fresh
        logger.info("%d rules loaded anew from %s", len(fresh.rules), ", ".join([str(path) for path in self.paths]))
        if self._on_change is not None:
            self._on_change(fresh)
        return True

    async def run(self) -> None:
        """Watch until `stop`, or until the task is cancelled. `started` is set once no change is missed any more."""
        from watchfiles import awatch

        while not self._stop.is_set():
            folders = self._folders()
            changes = awatch(
                *folders, watch_filter=None, recursive=False, stop_event=self._stop, rust_timeout=200, yield_on_timeout=True
            )
            async for found in changes:
                if not self.started.is_set():
                    self.started.set()
                state = self._look()  # changes behind a link are told of by nobody
                if state != self._state or any(self._concerns(Path(path)) for _, path in found):
                    sources = self._sources()
                    self.reload()
                    self._state = state if self._sources() == sources else self._look()
                    if self._folders() != folders:
                        self.started.clear()
                        break  # a rule that came in takes its patterns from somewhere else
        self.started.clear()
        self._stop.clear()

    def stop(self) -> None:
        """End `run`, also if it is just about to begin."""
        self._stop.set()

    def _look(self) -> frozenset[tuple[object, ...]]:
        """What tells whether a rule file, or one it takes patterns from, was edited or exchanged, itself or behind a link."""
        files = set(self._sources())
        for path in self.paths:
            with contextlib.suppress(OSError):
                files |= {file for file in path.iterdir() if file.suffix in SUFFIXES} if path.is_dir() else {path}
        found: set[tuple[object, ...]] = set()
        for file in files:
            try:
                about = file.stat()
                found.add((file, os.path.realpath(file), about.st_mtime_ns, about.st_size, about.st_ino))
            except OSError:
                found.add((file,))
        return frozenset(found)

    def _sources(self) -> set[Path]:
        """The files that rules take patterns from."""
        return {source.resolve() for rule in self.current.rules for source in rule.sources}

    def _folders(self) -> set[Path]:
        """What is watched: folders, for editors put a new file in the place of the old one."""
        places = {path if path.is_dir() else path.parent for path in self.paths}
        return {folder for folder in places | {source.parent for source in self._sources()} if folder.is_dir()}

    def _concerns(self, path: Path) -> bool:
        path = path.resolve()
        given = [p.resolve() for p in self.paths]
        return path in given or path in self._sources() or (path.suffix in SUFFIXES and path.parent in given)
