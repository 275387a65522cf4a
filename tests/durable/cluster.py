"""A PostgreSQL of our own: a private cluster on the loopback interface, in a temporary folder, run by an ordinary user."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

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


class Cluster:
    """`start`, `stop` and `kill` the server; `url()` of a new, empty database."""

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
        self._options = {
            "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": "", "max_connections": "200",
            "fsync": "on" if fsync else "off", "shared_buffers": "64MB",
        }  # fmt: skip
        self._server: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run([*self._who, str(self._bin / program), *arguments], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        settings = [part for name, value in self._options.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [*self._who, str(self._bin / "postgres"), "-D", str(self._data), *settings],
                stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip
        while not self._answers():
            assert self._server.poll() is None, (self._folder / "log").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url_of("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends every session and stops; SIGQUIT stops as if the power had gone."""
        assert self._server is not None
        self._server.send_signal(how)
        self._server.wait()

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
    with tempfile.TemporaryDirectory(prefix="beforehand-pg-", ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder), fsync)
        try:
            yield made
        finally:
            made.stop(signal.SIGQUIT)
