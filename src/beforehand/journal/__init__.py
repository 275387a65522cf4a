"""The journal: what a run decided and did, durable before it matters, so that nothing is done or decided twice."""

from __future__ import annotations

from typing import Any

from .chain import FORMAT, Record
from .pgopening import is_postgres
from .postgres import PostgresJournal
from .sqlite import Journal
from .store import Store
from .verify import Fault, verify


def open_journal(where: Any, **options: Any) -> Store:
    """The journal at a place: in PostgreSQL for a URL that begins with postgresql://, else in the SQLite file of this path."""
    return PostgresJournal(where, **options) if is_postgres(where) else Journal(where, **options)


__all__ = ["FORMAT", "Fault", "Journal", "PostgresJournal", "Record", "Store", "open_journal", "verify"]
