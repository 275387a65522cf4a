"""How much a signed journal holds in all, signed: a run cannot be put back to what it was once, with the seal of then.

A file counts its records. In PostgreSQL, where several write at once, each session counts in a row of its own (`pgtotal`) and
adds up the seals of its runs there: all rows together are what all runs together must be. Whoever begins a run seals how far
every row had come by then, so that no row can be put back to before that. A seal that is not right is never made right again by
whoever writes next: the fault stays to be seen.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from ..frozen import Frozen
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

    def add(self, db: sqlite3.Cursor, more: int) -> None:
        """So many records were added, in this transaction."""
        if self._replace(db, more):
            return
        found = db.execute("SELECT value FROM journal WHERE name = 'total'").fetchone()
        if found is not None and (records := unpacked(self._key, found[0])) is not None:
            self._records, self._value = records, found[0]
            self._replace(db, more)

    def _replace(self, db: sqlite3.Cursor, more: int) -> bool:
        records = self._records + more
        value = packed(self._key, records)
        if db.execute("UPDATE journal SET value = ? WHERE name = 'total' AND value = ?", (value, self._value)).rowcount != 1:
            return False
        self._records, self._value = records, value
        return True


def added(sums: Iterable[bytes], less: Iterable[bytes] = ()) -> bytes:
    """Seals as numbers, added up, less those of `less`. 32 bytes."""
    number = sum([int.from_bytes(one, "big") for one in sums]) - sum([int.from_bytes(one, "big") for one in less])
    return (number % (1 << 256)).to_bytes(32, "big")


class Sum(Frozen):
    """What one row says: how many records, and their runs' seals added up."""

    records: int
    seals: bytes

    def packed(self, key: bytes | None, slot: int) -> bytes:
        return self.records.to_bytes(8, "big") + self.seals + seal(key, TOTAL, slot, self.records, self.seals)


def unpacked_sum(key: bytes | None, slot: int, value: Any) -> Sum | None:
    """The sum that was packed, `None` if this is not what was written."""
    if not isinstance(value, bytes):
        return None
    found = Sum(int.from_bytes(value[:8], "big"), value[8:40])
    return found if found.packed(key, slot) == value else None


class Sums(Frozen):
    """The rows, by slot, and how many records each had when a run was begun last: 8 bytes for each."""

    rows: Sequence[tuple[int, Any]]
    least: bytes

    def came_to(self, key: bytes | None) -> bytes:
        """What `least` is to be now."""
        found = [unpacked_sum(key, slot, value) for slot, value in self.rows]
        return b"".join([(0 if one is None else one.records).to_bytes(8, "big") for one in found])

    def wrong(self, key: bytes | None, records: int, seals: Sequence[bytes]) -> str | None:
        sums = [unpacked_sum(key, slot, value) for slot, value in self.rows]
        right = [one for one in sums if one is not None]
        if len(right) < len(sums) or [slot for slot, _ in self.rows] != list(range(len(self.least) // 8)):
            return f"how many records were written was changed, {records} are here"
        written = sum([one.records for one in right])
        if written != records:
            return f"{written} records were written in all, {records} are here"
        least = [int.from_bytes(self.least[at : at + 8], "big") for at in range(0, len(self.least), 8)]
        if any([one.records < some for one, some in zip(right, least, strict=True)]):
            return "how many records were written was put back"
        return None if added([one.seals for one in right]) == added(seals) else "other records were written than are here"


def wrong_total(key: bytes | None, kept: Any, records: int, seals: Sequence[bytes]) -> str | None:
    """What is wrong with a total, where so many records and the runs of these seals are there."""
    if isinstance(kept, Sums):
        return kept.wrong(key, records, seals)
    written = unpacked(key, kept)
    if written is None:
        return f"how many records were written was changed, {records} are here"
    return None if written == records else f"{written} records were written in all, {records} are here"


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


def no_key(where: Any) -> str:
    return f"{where} is signed: give the key it was made with (--key-env NAME on the command line)"


def wrong_key(where: Any) -> str:
    return f"{where} is signed with another key: give the one it was made with (if this is it, see `beforehand verify`)"


def seal_of_facts(key: bytes | None, facts: dict[str, Any], opened: Any, head: Any) -> bytes:
    """The seal over how many runs were opened, which was the last, and whether there is a total, and how far it had come."""
    if TOTAL not in facts:
        return seal(key, opened, head)
    kept = facts[TOTAL]
    return seal(key, opened, head, TOTAL, kept.least) if isinstance(kept, Sums) else seal(key, opened, head, TOTAL)
