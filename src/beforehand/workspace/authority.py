"""Which files of a workspace the owner has authorised, and which are protected.

Authority belongs to a path and a content: the SHA-256 of what the owner looked at. Any write, from anywhere, takes it away.
It is written down in `FOLDER.authority.json` beside the workspace `FOLDER`, never inside it, so that neither a lambda nor
whoever may write the folder can grant it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ..documents.files import only_writer
from ..errors import ConfigError
from ..frozen import Frozen
from .paths import AUTHORITY, Folder

logger = logging.getLogger("beforehand.lambdas")

Protection = Literal["none", "no_delete", "read_only"]
PROTECTIONS: tuple[Protection, ...] = ("none", "no_delete", "read_only")
LAMBDA_SUFFIXES = (".py", ".ts", ".js")
MAX_FILE = 5_000_000

State = Literal["authorized", "changed", "gone", ""]


class Entry(Frozen, omit_defaults=True, forbid_unknown_fields=True):
    """What is written down about one file."""

    sha256: str = ""
    protection: Protection = "none"


class _Book(Frozen, forbid_unknown_fields=True):
    files: dict[str, Entry] = msgspec.field(default_factory=dict)


class Standing(Frozen):
    """One file of the list. `state` is about its authority: "" if it was never given."""

    path: str
    state: State
    protection: Protection


class Authority:
    """The authority over one workspace folder. It is read anew whenever its file has changed.

    A file that cannot be read grants nothing and protects everything; the methods that write raise `ConfigError` then.
    Paths are those of the workspace, and raise `PathRefused` where they lead out of it.
    """

    def __init__(self, folder: str | Path | Folder) -> None:
        self.folder = folder if isinstance(folder, Folder) else Folder(folder)
        root = self.folder.root
        if not root.is_dir():
            raise ConfigError(f"there is no folder {folder}: authority is about the files of a workspace")
        if root.parent == root:
            raise ConfigError(f"{root} has no folder around it, where authority over it could be written down")
        self.file = root.parent / f"{root.name}{AUTHORITY}"
        self._seen: tuple[int, ...] | None = None
        self._book: _Book | None = None

    def __repr__(self) -> str:
        return f"Authority({str(self.folder.root)!r})"

    # --- asking ---

    def is_authorized(self, path: str, content: bytes) -> bool:
        """Whether the owner has authorised this content at this path."""
        book = self._current()
        entry = None if book is None else book.files.get(self._key(path))
        return entry is not None and bool(entry.sha256) and hmac.compare_digest(entry.sha256, _digest(content))

    def protection(self, path: str) -> Protection:
        """What may not be done to a file: "none" forbids nothing, "no_delete" deleting, "read_only" writing as well."""
        book = self._current()
        if book is None:
            return "read_only"
        key = self._key(path)
        entry = book.files.get(key)
        if entry is not None and entry.protection != "none":
            return entry.protection
        return self._by_another_name(book, key)

    def entries(self) -> tuple[Standing, ...]:
        """Every file there is something about, in the order of the paths."""
        book = self._loaded()
        return tuple([Standing(path, self._state(path, e), e.protection) for path, e in sorted(book.files.items())])

    # --- deciding ---

    def authorize(self, path: str) -> str:
        """Authorise a file as it is now. Returns the SHA-256 of what was authorised. `OSError` if it cannot be read."""
        return self.authorize_all([path])[0]

    def authorize_all(self, paths: Sequence[str]) -> list[str]:
        """Authorise several files, or none of them. Returns the SHA-256 of each."""
        digests: dict[str, str] = {}
        for path in paths:
            key = self._key(path)
            if not key.endswith(LAMBDA_SUFFIXES):
                raise ConfigError(f"{path!r} holds no lambda ({', '.join(LAMBDA_SUFFIXES)}), and authority is for code alone")
            digests[key] = _digest(self._read(path))
        self._change({key: {"sha256": digest} for key, digest in digests.items()})
        return [digests[self._key(path)] for path in paths]

    def revoke(self, path: str) -> bool:
        """Take a file's authority away. Returns whether it had been given any. The file need not exist."""
        key = self._key(path)
        with only_writer(self.file.parent):
            book = self._loaded()
            entry = book.files.get(key)
            if entry is None or not entry.sha256:
                return False
            self._store(book, {key: msgspec.structs.replace(entry, sha256="")})
        return True

    def protect(self, path: str, protection: Protection) -> None:
        """Protect a file. `FileNotFoundError` if there is none, unless its protection is lifted."""
        self.protect_all([path], protection)

    def protect_all(self, paths: Sequence[str], protection: Protection) -> None:
        """Protect several files, or none of them."""
        if protection not in PROTECTIONS:
            raise ConfigError(f"the protection is {protection!r}: expected {', '.join(PROTECTIONS)}")
        for path in paths if protection != "none" else ():
            with self.folder.opened(path, os.O_RDONLY):
                pass
        self._change({self._key(path): {"protection": protection} for path in paths})

    # --- the book ---

    def _key(self, path: str) -> str:
        return "/".join(self.folder.resolve(path))

    def _read(self, path: str) -> bytes:
        with self.folder.opened(path, os.O_RDONLY) as fd, os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise ConfigError(f"{path!r} has more than {MAX_FILE:,} bytes")
        return data

    def _state(self, path: str, entry: Entry) -> State:
        if not entry.sha256:
            return ""
        try:
            return "authorized" if self.is_authorized(path, self._read(path)) else "changed"
        except (ConfigError, OSError):
            return "gone"

    def _by_another_name(self, book: _Book, key: str) -> Protection:
        """The protection of a file that is reached by a name that is not written down: other letters, a hard link."""
        guarded = [(path, entry) for path, entry in book.files.items() if entry.protection != "none"]
        if not guarded:
            return "none"
        try:
            this = os.lstat(self.folder.root / key)
        except OSError:
            return "none"
        if not stat.S_ISREG(this.st_mode):
            return "none"
        for path, entry in guarded:
            with contextlib.suppress(OSError):
                if os.path.samestat(this, os.lstat(self.folder.root / path)):
                    return entry.protection
        return "none"

    def _current(self) -> _Book | None:
        """The book, `None` if it cannot be read."""
        try:
            return self._loaded()
        except ConfigError as error:
            logger.warning("%s; until it is corrected no file is authorised and every file is read-only", error)
            return None

    def _loaded(self) -> _Book:
        try:
            found = os.stat(self.file)
            seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
            if self._book is None or seen != self._seen:
                self._book, self._seen = msgspec.json.decode(self.file.read_bytes(), type=_Book), seen
        except FileNotFoundError:
            self._book, self._seen = _Book(), None
        except OSError as error:
            raise ConfigError(f"{self.file}: it cannot be read: {error.strerror}") from None
        except msgspec.MsgspecError as error:
            self._book = None
            raise ConfigError(f"{self.file}: it does not hold what `beforehand authorize` writes: {error}") from None
        return self._book

    def _change(self, changes: Mapping[str, Mapping[str, str]]) -> None:
        with only_writer(self.file.parent):
            book = self._loaded()
            new = {key: msgspec.structs.replace(book.files.get(key, Entry()), **said) for key, said in changes.items()}
            self._store(book, new)

    def _store(self, book: _Book, entries: Mapping[str, Entry]) -> None:
        files = {key: entry for key, entry in {**book.files, **entries}.items() if entry != Entry()}
        data = msgspec.json.format(msgspec.json.encode(_Book(dict(sorted(files.items()))), order="sorted"), indent=2)
        temporary = self.file.with_name(f".{self.file.name}.{os.urandom(6).hex()}.new")
        try:
            temporary.write_bytes(data + b"\n")
            temporary.replace(self.file)
        except OSError as error:
            raise ConfigError(f"{self.file}: it cannot be written: {error.strerror}") from None
        finally:
            temporary.unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
