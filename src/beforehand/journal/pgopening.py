"""How a journal in PostgreSQL is reached, made, recognised, and refused."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import ConfigError, JournalError, JournalUnreadable
from .chain import FORMAT, seal
from .total import is_key, wrong_key

SCHEMES = ("postgresql://", "postgres://")
CONNECT_SECONDS = 10

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
        raise ConfigError('a journal in PostgreSQL needs an extra: pip install "beforehand[durable]"') from None


def shown(url: str) -> str:
    """A database's address as messages show it: without its password. `ConfigError` for what is no address."""
    try:
        parts = psycopg().conninfo.conninfo_to_dict(url)
    except psycopg().Error:
        raise ConfigError(
            "the database URL cannot be read: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE "
            "(write special characters in the password as %XX)"
        ) from None
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host') or 'localhost'}{port}/{parts.get('dbname') or ''}"


def connect(url: str) -> Any:
    """A connection on which every statement is a transaction. Raises `JournalError` in one line, without the password."""
    try:
        return psycopg().connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="beforehand")
    except psycopg().Error as error:
        raise unreachable(url, error) from None


class Unreachable(JournalError):
    """The database cannot be reached for now."""

    temporary = True


def unreachable(url: str, error: Exception) -> JournalError:
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
    reason = words.partition("failed: ")[2].rpartition("failed: ")[2] or words
    for hint in (" Is the server running", " This probably means"):
        reason = reason.partition(hint)[0]
    return Unreachable(f"the database {where} cannot be reached ({reason})")


def said(error: Any) -> str:
    """What a statement failed with, in one line and without what it was to write."""
    return " ".join(str(getattr(error.diag, "message_primary", None) or error).split())


def prepare(db: Any, where: str, key: bytes | None, readonly: bool) -> None:
    """Make the tables if need be, and make sure that they are ours. Raises `JournalUnreadable`."""
    error = psycopg().Error
    try:
        found = _found(db)
        if found is None and not readonly:
            _create(db, key)
            found = _found(db)
    except error as problem:
        raise JournalUnreadable(f"the journal {where} cannot be used: {said(problem)}") from None
    if found is None:
        raise JournalUnreadable(f"there is no journal in {where}: no run has been recorded in it")
    version, signed, facts, last = found
    if version != FORMAT:
        newer = isinstance(version, int) and version > FORMAT
        hint = "a newer version of beforehand wrote it: use that one" if newer else "it is damaged"
        raise JournalUnreadable(f"{where} has journal format {version!r}, and this version reads {FORMAT}: {hint}")
    if signed and key is None and not readonly:
        raise JournalUnreadable(f"{where} is signed: give the key it was made with")
    if not signed and key is not None:
        raise JournalUnreadable(f"{where} is not signed, but a key was given: a key is chosen when a journal is made")
    if signed and key is not None and not readonly and not is_key(key, facts, last):
        raise JournalUnreadable(wrong_key(where))


def _found(db: Any) -> tuple[int, bool, dict[str, Any], tuple[Any, ...] | None] | None:
    """Its format, whether it is signed, what stands beside the chain, and the end of the run opened last."""
    (there,) = db.execute("SELECT to_regclass('beforehand.journal') IS NOT NULL").fetchone()
    row = db.execute("SELECT format, signed, opened, head, seal FROM beforehand.journal").fetchone() if there else None
    if row is None:
        return None
    last = db.execute("SELECT run_id, records, head, seal FROM beforehand.runs ORDER BY id DESC LIMIT 1").fetchone()
    return row[0], row[1], dict(zip(("opened", "head", "seal"), row[2:], strict=True)), last


def _create(db: Any, key: bytes | None) -> None:
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
        db.execute(_SCHEMA)
        db.execute(
            "INSERT INTO beforehand.journal (format, signed, opened, head, seal) VALUES (%s, %s, 0, '', %s) "
            "ON CONFLICT DO NOTHING",
            (FORMAT, key is not None, seal(key, 0, b"")),
        )
