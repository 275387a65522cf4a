"""How many records a signed journal holds in all, signed: a run cannot be put back to what it was once, with the seal of then.

A seal that is not right is never made right again by whoever writes next: the fault stays to be seen.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from .chain import seal

TOTAL = "total"
"""The name it has in the table `journal`. Files of older versions have none."""


def packed(key: bytes | None, records: int) -> bytes:
    return records.to_bytes(8, "big") + seal(key, TOTAL, records)


def unpacked(key: bytes | None, value: Any) -> int | None:
    """The number that was packed, `None` if this is not what was written."""
    if not isinstance(value, bytes):
        return None
    records = int.from_bytes(value[:8], "big")
    return records if packed(key, records) == value else None


class Total:
    """The number in one file, for whoever writes there. What it was last is remembered: mostly nobody else has written since."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._records, self._value = 0, b""

    def add(self, db: sqlite3.Connection, more: int) -> None:
        """So many records were added, in this transaction."""
        if self._replace(db, more):
            return
        found = db.execute("SELECT value FROM journal WHERE name = 'total'").fetchone()
        if found is not None and (records := unpacked(self._key, found[0])) is not None:
            self._records, self._value = records, found[0]
            self._replace(db, more)

    def _replace(self, db: sqlite3.Connection, more: int) -> bool:
        records = self._records + more
        value = packed(self._key, records)
        if db.execute("UPDATE journal SET value = ? WHERE name = 'total' AND value = ?", (value, self._value)).rowcount != 1:
            return False
        self._records, self._value = records, value
        return True


def is_key(key: bytes, facts: dict[str, Any], last: tuple[Any, ...] | None) -> bool:
    """Whether a journal was signed with this key: nothing that is signed in it would fit to another one.

    `last` are the id, the number of records, the head and the seal of the run opened last. One of the seals is enough: what
    somebody has changed is for `verify` to find.
    """
    return (
        facts.get("seal") == seal_of_facts(key, facts, facts.get("opened"), facts.get("head"))
        or (TOTAL in facts and unpacked(key, facts[TOTAL]) is not None)
        or (last is not None and last[3] == seal(key, *last[:3]))
    )


def wrong_key(where: Any) -> str:
    return f"{where} is signed with another key: give the one it was made with (if this is it, see `beforehand verify`)"


def seal_of_facts(key: bytes | None, facts: dict[str, Any], opened: Any, head: Any) -> bytes:
    """The seal over how many runs were opened, which was the last, and whether there is a total."""
    return seal(key, opened, head, TOTAL) if TOTAL in facts else seal(key, opened, head)
