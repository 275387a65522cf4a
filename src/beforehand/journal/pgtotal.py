"""The total of a signed journal in PostgreSQL: one row for each session that writes at the same time.

A row for all would be waited for by all. A session takes a row that no other one has (a lock says so), and makes one where there
is none. The row -1 holds how far all of them had come when a run was begun last; the journal's seal covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .pgjobs import TOTAL_LOCK, Plan, columns, counted
from .total import TOTAL, Sum, Sums, added, seal_of_facts, unpacked_sum

LEAST = -1


class PgTotal:
    """The row of one session. Of a journal without totals, or unsigned, it does nothing."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        self._slot: int | None = None
        self._value = b""

    def begin(self, db: Any) -> None:
        """Take a row for this session."""
        self._slot = None
        if self._key is None or not is_kept(db):
            return
        free = next((slot for slot, _ in sums_of(db).rows if _lock(db, slot)), None)
        self._slot = self._made(db) if free is None else free
        (self._value,) = db.execute("SELECT value FROM beforehand.totals WHERE slot = %s", (self._slot,)).fetchone()

    def _made(self, db: Any) -> int:
        with db.transaction():
            opened, head, sealed = db.execute("SELECT opened, head, seal FROM beforehand.journal FOR UPDATE").fetchone()
            kept = {TOTAL: sums_of(db)}
            right = sealed == seal_of_facts(self._key, kept, opened, head)
            slot = max([slot for slot, _ in kept[TOTAL].rows], default=-1) + 1
            values = (slot, Sum(0, bytes(32)).packed(self._key, slot))
            db.execute("INSERT INTO beforehand.totals (slot, value) VALUES (%s, %b)", values)
            if right:
                kept = self.come_to(db)
                db.execute("UPDATE beforehand.journal SET seal = %b", (seal_of_facts(self._key, kept, opened, head),))
            _lock(db, slot)
        return slot

    def facts(self, db: Any) -> dict[str, Any]:
        """What the journal's seal covers of it. The caller has locked the journal's row."""
        return {} if self._slot is None else {TOTAL: sums_of(db)}

    def come_to(self, db: Any) -> dict[str, Any]:
        """Write down how far all rows have come. Returns what the journal's seal must cover then."""
        if self._slot is None and not is_kept(db):
            return {}
        least = sums_of(db).came_to(self._key)
        db.execute("UPDATE beforehand.totals SET value = %b WHERE slot = %s", (least, LEAST))
        return {TOTAL: Sums((), least)}

    def put(self, db: Any, statement: str, plans: Sequence[Plan]) -> list[int]:
        """Write the plans whose run has not moved on, and count them. Returns the runs that were written to."""
        if self._slot is None:
            moved, _ = db.execute(statement, columns(plans)).fetchone()
        elif len(plans) == 1:
            value = self._with(plans)
            moved, _ = db.execute(counted(statement), [*columns(plans), value, self._slot, self._value]).fetchone()
            self._value = value if moved else self._value
        else:
            with db.pipeline(), db.transaction():
                moved, _ = db.execute(statement, columns(plans)).fetchone()
                value = self._with([plan for plan in plans if plan.head.row in moved])
                db.execute(_SET, (value, self._slot, self._value))
            self._value = value
        return list(moved)

    def begun(self, db: Any, seals: Sequence[bytes]) -> bytes:
        """Count the first records of runs, in this transaction. Returns what to give `settle`."""
        value = self._more(len(seals), seals, ())
        if self._slot is not None:
            db.execute(_SET, (value, self._slot, self._value))
        return value

    def settle(self, value: bytes) -> None:
        """The transaction is over, and has written this."""
        self._value = value

    def _with(self, plans: Sequence[Plan]) -> bytes:
        records = sum([len(plan.rows) for plan in plans])
        return self._more(records, [plan.seal for plan in plans], [plan.old_seal for plan in plans])

    def _more(self, records: int, come: Sequence[bytes], gone: Sequence[bytes]) -> bytes:
        """The value with so many records more, and with these seals for those. One that is not right stays as it is."""
        now = None if self._slot is None else unpacked_sum(self._key, self._slot, self._value)
        if self._slot is None or now is None:
            return self._value
        return Sum(now.records + records, added([now.seals, *come], gone)).packed(self._key, self._slot)


_SET = "UPDATE beforehand.totals SET value = %b WHERE slot = %s AND value = %b"


def is_kept(db: Any) -> bool:
    """Whether a signed journal has totals. Those of older versions have none."""
    (there,) = db.execute("SELECT to_regclass('beforehand.totals') IS NOT NULL").fetchone()
    return bool(there)


def facts_of(db: Any) -> dict[str, Any]:
    """What stands beside the chain."""
    opened, head, sealed, signed = db.execute("SELECT opened, head, seal, signed FROM beforehand.journal").fetchone()
    facts = {"opened": opened, "head": head, "seal": sealed, "signed": signed}
    return {**facts, TOTAL: sums_of(db)} if signed and is_kept(db) else facts


def sums_of(db: Any) -> Sums:
    rows = db.execute("SELECT slot, value FROM beforehand.totals ORDER BY slot").fetchall()
    least = [value for slot, value in rows if slot == LEAST]
    return Sums([(slot, value) for slot, value in rows if slot != LEAST], least[0] if least else b"")


def _lock(db: Any, slot: int) -> bool:
    return bool(db.execute("SELECT pg_try_advisory_lock(%s, %s)", (TOTAL_LOCK, slot)).fetchone()[0])
