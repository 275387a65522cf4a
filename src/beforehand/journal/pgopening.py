"""How a journal in PostgreSQL is reached, made, recognised, and refused."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator
from typing import Any

from ..errors import ConfigError, JournalError, JournalUnreadable
from .pgtotal import facts_of
from .total import TOTAL, Sums, is_key, no_key, seal_of_facts, wrong_key

FORMATS = (1, 2)
"""Of the tables, not of the records in them. Since 2 a signed journal has totals."""

SCHEMES = ("postgresql://", "postgres://")

_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS beforehand;
CREATE TABLE IF NOT EXISTS beforehand.journal (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), format integer NOT NULL, signed boolean NOT NULL, opened bigint NOT NULL,
    head bytea NOT NULL, seal bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS beforehand.runs (
    id bigint PRIMARY KEY, run_id text NOT NULL UNIQUE, parent text, records bigint NOT NULL, head bytea NOT NULL,
    seal bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS beforehand.records (
    run bigint NOT NULL, n bigint NOT NULL, at bigint NOT NULL, kind text NOT NULL, body bytea NOT NULL, hash bytea NOT NULL,
    PRIMARY KEY (run, n)
);
CREATE TABLE IF NOT EXISTS beforehand.totals (slot integer PRIMARY KEY, value bytea NOT NULL);
CREATE INDEX IF NOT EXISTS records_answers ON beforehand.records (run, n) WHERE kind IN ('answer', 'settled');
CREATE INDEX IF NOT EXISTS runs_parent ON beforehand.runs (parent) WHERE parent IS NOT NULL;
"""

_MAKING = 0x62666D6B
"""The advisory lock under which the tables are made: several processes may find an empty database at once."""


def is_postgres(where: Any) -> bool:
    """Whether a place names a PostgreSQL database rather than a file."""
    return isinstance(where, str) and where.startswith(SCHEMES)


def psycopg() -> Any:
    """The driver, loaded when it is first needed. `ConfigError` without the extra."""
    try:
        return importlib.import_module("psycopg")
    except ImportError:
        raise ConfigError('a journal in PostgreSQL needs psycopg: install the extra "durable" of beforehand') from None


def shown(url: str) -> str:
    """A database's address as messages show it: without its password. `ConfigError` for what is no address.

    A sign in the password that parts an address would make the rest of it a host or a database, and without a host the password
    would be a port: those are shown.
    """
    before, at, after = url.partition("://")[2].partition("@")
    try:
        if "@" in after or (at and ("/" in before or "?" in before)):
            raise psycopg().ProgrammingError
        parts = psycopg().conninfo.conninfo_to_dict(url)
        ports = str(parts.get("port") or "").split(",")
        if not all([not port or (port.isdecimal() and len(port) < 6 and int(port) < 1 << 16) for port in ports]):
            raise psycopg().ProgrammingError
    except psycopg().Error:
        raise ConfigError(
            "the database URL cannot be read: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE "
            "(write special characters in the password as %XX)"
        ) from None
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host') or 'localhost'}{port}/{parts.get('dbname') or ''}"


def connect(url: str) -> Any:
    """A connection on which every statement is a transaction. Raises `JournalError` in one line, without the password.

    Both ends look whether the other one is there, so that what a machine without power or network held comes free.
    """
    try:
        given = psycopg().conninfo.conninfo_to_dict(url)
        more = {name: value for name, value in _CONNECTION.items() if name not in given}
        db = psycopg().connect(url, autocommit=True, client_encoding="utf8", **more)
        try:
            _check_encoding(db, url)
            db.execute(_SETTINGS)
        except BaseException:
            db.close()
            raise
        return db
    except psycopg().Error as error:
        raise unreachable(url, error) from None


_CONNECTION = {
    "connect_timeout": 10, "application_name": "beforehand", "keepalives_idle": 10, "keepalives_interval": 5,
    "keepalives_count": 3, "tcp_user_timeout": 30_000,
}  # fmt: skip

_SETTINGS = """
SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '25s', false),
set_config('default_transaction_isolation', 'read committed', false)
"""
"""The server's own settings would let it wait for hours. A database may want more isolation of its applications: then it
would refuse statements of ours for what others write meanwhile, and ours look for that themselves.
"""


def _check_encoding(db: Any, url: str) -> None:
    """A database holds any text, or none of it: a prompt must not fail for one sign. SQL_ASCII takes bytes as they are."""
    encoding = db.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise JournalError(
            f"the database {shown(url)} cannot be used: its encoding {encoding} does not hold every text; make one with "
            "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


class Unreachable(JournalError):
    """The database cannot be reached for now."""

    temporary = True


def unreachable(url: str, error: Any) -> JournalError:
    """Why a database does not take us. What waiting cannot cure is no `Unreachable`."""
    words = " ".join(str(error).split())
    where = shown(url)
    for needle, why in (
        ("password authentication failed", "the user or the password is wrong"),
        ("no password supplied", "it wants a password, and none was given"),
        ("does not exist", words[words.rfind("FATAL:") + 6 :].strip() if "FATAL:" in words else words),
        ("no pg_hba.conf entry", "it does not take connections of this user from here"),
    ):
        if needle in words:
            return JournalError(f"the database {where} cannot be used: {why}")
    if (wrong := _BAD_OPTION.search(words)) is not None:
        return JournalError(f"the database {where} cannot be used: {wrong[0]}")
    if passes(error):
        return lost(where, error)
    return JournalError(f"the database {where} cannot be used: {said(error)}")


_BAD_OPTION = re.compile(r'invalid (port number|\w+ value)[: ].*')
"""What the driver's library says of an option before it looks for a server."""


def passes(error: Any) -> bool:
    """Whether it may go by itself: the connection was lost, or the server is full, stopping or starting.

    What it says of a statement (there is no such table, no right to it, no such value) stays so.
    """
    state = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg().OperationalError) if state is None else state[:2] in _PASSING


_PASSING = frozenset({"08", "25", "40", "53", "55", "57", "58"})
"""Classes of the server's errors that pass: connections, a standby that only reads, conflicts, resources, locks, operators."""


def lost(where: str, error: Any) -> Unreachable:
    """The connection is gone, or was not made."""
    words = said(error)
    reason = words.partition("failed: ")[2].rpartition("failed: ")[2] or words
    for hint in (" Is the server running", " This probably means"):
        reason = reason.partition(hint)[0]
    return Unreachable(f"the database {where} cannot be reached ({reason})")


def said(error: Any) -> str:
    """What a statement failed with, in one line and without what it was to write."""
    return " ".join(str(getattr(getattr(error, "diag", None), "message_primary", None) or error).split())


def prepare(db: Any, where: str, key: bytes | None, readonly: bool) -> None:
    """Make the tables if need be, and make sure that they are ours. Raises `JournalUnreadable`, `Unreachable`."""
    with _usable(where):
        found = _found(db)
        if found is None and not readonly:
            _create(db, key)
            found = _found(db)
    if found is None:
        raise JournalUnreadable(f"there is no journal in {where}: no run has been recorded in it")
    version, signed = found
    if version not in FORMATS:
        newer = isinstance(version, int) and version > FORMATS[-1]
        hint = "a newer version of beforehand wrote it: use that one" if newer else "it is damaged"
        raise JournalUnreadable(f"{where} has journal format {version!r}, and this version reads up to {FORMATS[-1]}: {hint}")
    if signed and key is None and not readonly:
        raise JournalUnreadable(no_key(where))
    if not signed and key is not None:
        raise JournalUnreadable(f"{where} is not signed, but a key was given: a key is chosen when a journal is made")
    if key is not None and not readonly:
        with _usable(where):
            right = is_key(key, *_signed(db))
        if not right:
            raise JournalUnreadable(wrong_key(where))


@contextlib.contextmanager
def _usable(where: str) -> Iterator[None]:
    try:
        yield
    except psycopg().Error as problem:
        if passes(problem):
            raise lost(where, problem) from None
        raise JournalUnreadable(f"the journal {where} cannot be used: {said(problem)}") from None


def _found(db: Any) -> tuple[int | None, bool] | None:
    """The format, and whether it is signed. `None` where there is no journal; no format where somebody has taken that away."""
    (there,) = db.execute("SELECT to_regclass('beforehand.journal') IS NOT NULL").fetchone()
    row = db.execute("SELECT format, signed FROM beforehand.journal").fetchone() if there else None
    return None if not there else (None, False) if row is None else (row[0], row[1])


def _signed(db: Any) -> tuple[dict[str, Any], tuple[Any, ...] | None]:
    """What stands beside the chain, and the end of the run opened last, as of one moment: others may be writing."""
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        facts = facts_of(db)
        last = db.execute("SELECT run_id, records, head, seal FROM beforehand.runs ORDER BY id DESC LIMIT 1").fetchone()
    return facts, last


def _create(db: Any, key: bytes | None) -> None:
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
        # Asked of the tables: amid a transaction `to_regclass` may still answer as it did before that.
        there = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'beforehand' AND tablename = 'journal')"
        if db.execute(there).fetchone()[0]:  # somebody was quicker, and may be writing: to make it again would wait for him,
            return  # and he for us
        db.execute(_SCHEMA)
        db.execute(
            "INSERT INTO beforehand.journal (format, signed, opened, head, seal) VALUES (%s, %s, 0, '', %s) "
            "ON CONFLICT DO NOTHING",
            (FORMATS[-1], key is not None, seal_of_facts(key, {} if key is None else {TOTAL: Sums((), b"")}, 0, b"")),
        )
        if key is not None:
            db.execute("INSERT INTO beforehand.totals (slot, value) VALUES (-1, '') ON CONFLICT DO NOTHING")
