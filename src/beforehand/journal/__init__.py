"""The journal: what a run decided and did, durable before it matters, so that nothing is done or decided twice."""

from __future__ import annotations

import os
import re
from typing import Any

from ..errors import ConfigError
from .chain import FORMAT, Record
from .pgopening import is_postgres
from .postgres import PostgresJournal
from .sqlite import Journal
from .store import Store
from .verify import Fault, verify


def open_journal(where: Any, **options: Any) -> Store:
    """The journal at a place: in PostgreSQL for a URL that begins with postgresql://, else in the SQLite file of this path.

    A file may also be named as workers name it, sqlite:///PATH.
    """
    return PostgresJournal(where, **options) if is_postgres(where) else Journal(file_of(where), **options)


def file_of(where: Any) -> Any:
    """The path in sqlite:///PATH; anything else as it is. Raises `ConfigError` for the address of some database.

    Taken for a file it would be shown in messages, with its password.
    """
    path = where.removeprefix("sqlite:///") if isinstance(where, str) else where
    if path is where and isinstance(where, str | os.PathLike) and _ADDRESS.match(os.fspath(where)):
        raise ConfigError("a journal is the path of a file, sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    return path


_ADDRESS = re.compile(r"[\s'\"]*[a-z][a-z0-9+.-]+:/|.*(://|\bpassword\s*=)", re.IGNORECASE | re.DOTALL)


__all__ = ["FORMAT", "Fault", "Journal", "PostgresJournal", "Record", "Store", "file_of", "open_journal", "verify"]
