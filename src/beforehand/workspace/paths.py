"""Paths that stay inside a folder, and files opened without following anything out of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from ..errors import BeforehandError

PRIVATE = ".beforehand"
"""What the workspace keeps for itself. No lambda sees it."""

AUTHORITY = ".authority.json"
"""How the names of files end that say what is authorised. They lie beside a workspace, which may be in another one."""

MAX_PATH = 1_024
"""Characters of a path. To look at each of a million names would hold up everything else, and no system has such a path."""


class PathRefused(BeforehandError):
    """A path that leads out of the workspace, or to something that is no plain file."""

    exit_code = 2


def parts_of(path: object) -> tuple[str, ...]:
    """The names along a relative path. Raises `PathRefused` for any other."""
    if not isinstance(path, str) or not path.strip():
        raise PathRefused(f"a path is a text such as \"lib/x.py\", not {path!r}")
    if len(path) > MAX_PATH:
        raise PathRefused(f"the path {path[:100]!r}... has {len(path):,} characters, more than {MAX_PATH:,}")
    shown = path if len(path) <= 200 else path[:197] + "..."
    if "\0" in path or "\\" in path:
        raise PathRefused(f"the path {shown!r} has a character that paths here cannot have")
    if path.startswith(("/", "~")) or (len(path) > 1 and path[1] == ":"):
        raise PathRefused(f"the path {shown!r} is absolute: paths begin at the workspace")
    parts = tuple(part for part in PurePosixPath(path).parts if part != ".")
    if ".." in parts:
        raise PathRefused(f"the path {shown!r} has a `..`: paths stay inside the workspace")
    if _is_ours(parts):
        raise PathRefused(f"the path {shown!r} belongs to the runtime")
    return parts


def _is_ours(parts: tuple[str, ...]) -> bool:
    return bool(parts) and (parts[0] == PRIVATE or parts[-1].endswith(AUTHORITY))


class Folder:
    """A folder that nothing leads out of.

    A symlink inside it is followed while it stays inside. The resolved path is then opened name by name without
    following any link, so that one put there in the meantime leads nowhere.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()

    def resolve(self, path: object) -> tuple[str, ...]:
        """The names along the real path. It need not exist. Raises `PathRefused`."""
        real = Path(os.path.realpath(self.root.joinpath(*parts_of(path))))
        try:
            parts = real.relative_to(self.root).parts
        except ValueError:
            raise PathRefused(f"the path {path!r} leads out of the workspace through a symlink") from None
        if _is_ours(parts):
            raise PathRefused(f"the path {path!r} belongs to the runtime")
        return parts

    @contextmanager
    def opened(self, path: object, flags: int) -> Iterator[int]:
        """A descriptor of a plain file. `OSError` as `os.open` raises it."""
        parts = self.resolve(path)
        if not parts:
            raise IsADirectoryError(f"{path!r} is the workspace itself")
        with self._opened(parts, flags) as fd:
            yield fd

    @contextmanager
    def _opened(self, parts: tuple[str, ...], flags: int) -> Iterator[int]:
        with self._parent(parts, make=bool(flags & os.O_CREAT)) as folder:
            fd = os.open(parts[-1], flags | _PLAIN, 0o644, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise PathRefused(f"{'/'.join(parts)!r} is no plain file")
                yield fd
            finally:
                os.close(fd)

    def read_own(self, name: str, most: int) -> bytes:
        """What the workspace keeps for itself under this name."""
        with self._opened((PRIVATE, name), os.O_RDONLY) as fd, os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise PathRefused(f"the workspace's {name} has more than {most:,} bytes")
        return data

    def replace_own(self, name: str, data: bytes) -> None:
        self._replace((PRIVATE, name), data)

    def remove(self, path: object) -> None:
        """Delete a file (a symlink itself, not what it leads to)."""
        parts = parts_of(path)
        if not parts:
            raise IsADirectoryError(f"{path!r} is the workspace itself")
        above = self.resolve("/".join(parts[:-1])) if parts[:-1] else ()
        with self._parent((*above, parts[-1]), make=False) as folder:
            os.unlink(parts[-1], dir_fd=folder)

    def replace(self, path: object, data: bytes) -> None:
        """Write a whole file at once: readers see the old text or the new, never a part."""
        parts = self.resolve(path)
        if not parts:
            raise IsADirectoryError(f"{path!r} is the workspace itself")
        self._replace(parts, data)

    def _replace(self, parts: tuple[str, ...], data: bytes) -> None:
        with self._parent(parts, make=True) as folder:
            temporary = f".{parts[-1]}.{os.urandom(6).hex()}.new"  # as _UNFINISHED
            try:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o644, dir_fd=folder)
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                os.rename(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                try:
                    os.unlink(temporary, dir_fd=folder)
                except FileNotFoundError:
                    pass
                raise

    def files(self) -> Iterator[tuple[str, int]]:
        """Every plain file, as its path and size, in the order of their paths. Symlinks are not followed.

        What goes while this looks is left out, and so is what a write has not finished, and what no path here can name.
        """
        self._check_root()
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(f for f in folders if f != PRIVATE)
            for name in sorted(names):
                if _UNFINISHED.match(name):
                    continue
                full = os.path.join(folder, name)
                try:
                    found = os.lstat(full)
                    path = Path(full).relative_to(self.root).as_posix()
                    path.encode()
                except (OSError, UnicodeEncodeError):
                    continue
                if stat.S_ISREG(found.st_mode) and len(path) <= MAX_PATH:
                    yield path, found.st_size

    def _check_root(self) -> None:
        """Raise `PathRefused` if a link has been put in the place of this folder, or of one around it."""
        if os.path.realpath(self.root) != str(self.root):
            raise PathRefused("the workspace is not where it was: a symlink stands in its place")

    @contextmanager
    def _parent(self, parts: tuple[str, ...], *, make: bool) -> Iterator[int]:
        self._check_root()
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for part in parts[:-1]:
                if make:
                    try:
                        os.mkdir(part, dir_fd=fd)
                    except FileExistsError:
                        pass
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)


_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{12}\.new\Z", re.DOTALL)
"""Names of files that are being written, or were when a process was killed."""

_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Never through a link, never into a child process, and never waiting for the other end of a named pipe."""
