"""A PostgreSQL of our own: a private cluster on the loopback interface, in a temporary folder, run by an ordinary user."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

PASSWORD = "a secret: p@ss/word"
QUOTED = "a%20secret%3A%20p%40ss%2Fword"


def programs() -> Path | None:
    """Where `initdb` and `postgres` are: on the path, or where Debian puts them (the newest)."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return versions[-1].parent if versions else None


def _as_somebody() -> list[str]:
    """PostgreSQL refuses to run as root: how to start it as somebody else then."""
    if os.getuid() != 0:
        return []
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    raise RuntimeError("neither a user postgres nor nobody is there to run PostgreSQL")


def _in_memory() -> str | None:
    """A folder in memory for what needs no disk, where there is plenty: the tests make some two gigabytes of databases."""
    there = Path("/dev/shm")
    return str(there) if there.is_dir() and shutil.disk_usage(there).free > 8 * 2**30 else None


class Cluster:
    """`start` and `stop` the server; `url()` of a new database."""

    def __init__(self, folder: Path, fsync: bool = False) -> None:
        bin_ = programs()
        assert bin_ is not None
        self._bin, self._who, self._folder = bin_, _as_somebody(), folder
        folder.chmod(0o777)
        folder = folder / "data"
        self._data = folder
        with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False) as file:
            file.write(PASSWORD)
        Path(file.name).chmod(0o644)
        options = ("-U", "tester", f"--pwfile={file.name}", "--auth=scram-sha-256", "--no-sync", "-E", "UTF8")
        self._run("initdb", "-D", str(folder), *options)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        settings = {
            "listen_addresses": "'127.0.0.1'", "port": self.port, "unix_socket_directories": "''", "max_connections": 200,
            "fsync": "on" if fsync else "off", "shared_buffers": "64MB",
        }  # fmt: skip
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self._databases = 0
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        with tempfile.TemporaryFile("w+") as said:  # no pipe: a server that goes on would hold it open
            command = [*self._who, str(self._bin / program), *arguments]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/")
            said.seek(0)
            assert done.returncode == 0, said.read()

    def start(self) -> None:
        # Not a child of this process: tests of sandboxes look at theirs.
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), "-l", str(self._data / "log"))

    def stop(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """End every session and stop; or "immediate", as if the power had gone."""
        self._run("pg_ctl", "stop", "-w", "-D", str(self._data), "-m", how)

    def url_of(self, database: str) -> str:
        return f"postgresql://tester:{QUOTED}@127.0.0.1:{self.port}/{database}"

    def url(self, template: str | None = None) -> str:
        """A new database: an empty one, or a copy of another."""
        self._databases += 1
        name = f"test{self._databases}"
        self.execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""), "postgres")
        return self.url_of(name)

    def execute(self, statement: str, database: str) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self.url_of(database), autocommit=True) as db:
            found = db.execute(statement)
            return found.fetchall() if found.description else []


@contextlib.contextmanager
def cluster(fsync: bool = False) -> Iterator[Cluster]:
    """A cluster for as long as this is open."""
    where = None if fsync else _in_memory()
    with tempfile.TemporaryDirectory(prefix="beforehand-pg-", dir=where, ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder), fsync)
        try:
            yield made
        finally:
            with contextlib.suppress(AssertionError):  # a test may have stopped it
                made.stop("immediate")
