"""A workspace: a folder with lambdas and what they work on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..documents.files import only_writer
from ..errors import ConfigError
from ..frozen import FrozenDict, freeze
from ..sandbox import Source
from ..settings import split_source as split_source
from .authority import Authority
from .gates import Gates
from .paths import Folder, PathRefused

MAX_SOURCE = 1_000_000
MAX_FILE = 5_000_000
MAX_META = 1_000_000
_META = "meta.json"


class Workspace:
    """A folder, the values lambdas keep (`meta`), and what they may know of the configuration.

    `on_event(name, payload)` is called for each `emit_event`; without it that method is `DISABLED`. `gates` say which
    methods and tools are open, `approvals` hold the questions that `task_resolve` may answer; both may be exchanged while
    runs go on. `authority` says which files the owner has authorised: by default what lies beside the folder.
    A lambda cannot write files that hold lambdas, or it could lift the guards beside it; `code_writable=True` lets it.
    Everything here is bounded: a file has at most 5 MB, the values of `meta` 1 MB in all.
    """

    def __init__(
        self, root: str | Path, *, config: Mapping[str, Any] | None = None, on_event: Callable[[str, Any], None] | None = None,
        gates: Gates | None = None, approvals: Any = None, authority: Authority | None = None, code_writable: bool = False,
    ) -> None:  # fmt: skip
        self.folder = Folder(root)
        if not self.folder.root.is_dir():
            raise ConfigError(f"there is no folder {root}: a workspace is a folder that holds lambdas")
        self.config: FrozenDict = freeze(dict(config or {}))
        self.on_event = on_event
        self.gates = gates or Gates.of()
        self.approvals = approvals
        self.authority = authority or Authority(self.folder)
        self.code_writable = code_writable

    def __repr__(self) -> str:
        return f"Workspace({str(self.folder.root)!r})"

    def source(self, path: str) -> Source:
        """A lambda's file as it is now. Raises `PathRefused` or `OSError`."""
        try:
            return Source(path, self.read(path, MAX_SOURCE).decode())
        except UnicodeDecodeError:
            raise PathRefused(f"{path} is no text in UTF-8") from None

    def is_authorized(self, path: str, source: Source) -> bool:
        """Whether the owner has authorised exactly this text at this path."""
        return self.authority.is_authorized(path, source.text.encode())

    # --- files ---

    def read(self, path: object, most: int = MAX_FILE) -> bytes:
        with self.folder.opened(path, os.O_RDONLY) as fd:
            size = os.fstat(fd).st_size
            if size > most:
                raise PathRefused(f"{path!r} has {size:,} bytes, more than {most:,}")
            with os.fdopen(os.dup(fd), "rb") as file:
                data = file.read(most + 1)
        if len(data) > most:
            raise PathRefused(f"{path!r} has more than {most:,} bytes")
        return data

    def write(self, path: object, data: bytes) -> None:
        if len(data) > MAX_FILE:
            raise PathRefused(f"{path!r} would have {len(data):,} bytes, more than {MAX_FILE:,}")
        self.folder.replace(path, data)

    # --- meta ---

    def get_meta(self) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(self.folder.read_own(_META, MAX_META))
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            raise PathRefused(f"the workspace's meta.json is no JSON: {error}") from None
        return found if isinstance(found, dict) else {}

    def change_meta(self, change: Callable[[dict[str, Any]], Any]) -> Any:
        """Let `change` edit the values, and store them. Returns what it returned."""
        with only_writer(self.folder.root):
            meta = self.get_meta()
            returned = change(meta)
            data = msgspec.json.encode(meta)
            if len(data) > MAX_META:
                raise PathRefused(f"the values of meta would have {len(data):,} bytes, more than {MAX_META:,}")
            self.folder.replace_own(_META, data)
        return returned
