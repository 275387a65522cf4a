"""Whether a journal is as it was written."""

from __future__ import annotations

import contextlib

import msgspec

from ..frozen import Frozen
from .chain import KINDS, Record, follows, seal
from .store import Contents, Store
from .total import TOTAL, is_key, seal_of_facts, wrong_total


ANOTHER_KEY = "nothing in it is signed with this key: give the one it was made with, or all was changed"


class Fault(Frozen):
    """The first record that is not as it was written: its run (`None`: the journal itself), its number, what is wrong."""

    run_id: str | None
    n: int | None
    why: str

    def __str__(self) -> str:
        where = "the journal" if self.run_id is None else f"run {self.run_id}" + (f", record {self.n}" if self.n else "")
        return f"{where}: {self.why}"


def verify(journal: Store) -> list[Fault]:
    """Check every record against the chain. The first fault of each run, in the order in which the runs were opened.

    Without the key of a signed journal nothing can be checked: that is a fault too.
    """
    with contextlib.closing(journal.contents()) as contents:  # one moment of it
        try:
            if contents.facts()["signed"] and journal.key is None:
                return [Fault(None, None, "it is signed, and cannot be checked without its key (--key-env NAME)")]
            if _fits_not(contents, journal.key):
                return [Fault(None, None, ANOTHER_KEY)]
            return _check(contents, journal.key)
        except contents.error as error:
            return [Fault(None, None, contents.damage(error))]


def has_another_key(journal: Store) -> bool:
    """Whether a journal was signed, and none of it with the key that it was opened with."""
    with contextlib.closing(journal.contents()) as contents:
        try:
            return _fits_not(contents, journal.key)
        except contents.error:
            return False  # what is damaged tells of no key


def _fits_not(contents: Contents, key: bytes | None) -> bool:
    """Whether nothing that is signed fits the key. The facts nearly always tell; only where they do not each run is looked at."""
    if key is None or is_key(key, contents.facts(), None):
        return False
    return not any(sealed == seal(key, run_id, count, head) for _, run_id, count, head, sealed, _ in contents.runs())


def _check(contents: Contents, key: bytes | None) -> list[Fault]:
    facts = contents.facts()
    faults: list[Fault] = []
    before, opened, total = b"", 0, 0
    seals: list[bytes] = []
    for row, run_id, count, head, sealed, parent in contents.runs():
        opened += 1
        seals.append(sealed)
        fault, first, last, seen = _check_run(contents, row, run_id, before, key)
        total += seen
        if fault is None and seen != count:
            fault = Fault(run_id, min(seen, count) + 1, f"{count} records were written, {seen} are here")
        if fault is None and (last != head or sealed != seal(key, run_id, count, head)):
            fault = Fault(run_id, count, "the end of the chain is not the one that was written down beside it")
        if fault is None and parent != _parent(contents, row, run_id):
            fault = Fault(run_id, 1, f"the run it is said to be a part of, {parent!r}, is not the one that it names")
        if fault is not None:
            faults.append(fault)
        before = first  # a later run is judged by what stands here now, so that one fault is named once
    if opened != facts.get("opened"):
        faults.append(Fault(None, None, f"{facts.get('opened')} runs were opened, {opened} are here"))
    elif before != facts.get("head") or facts.get("seal") != seal_of_facts(key, facts, opened, before):
        faults.append(Fault(None, None, "the last run is not the one that was written down as the last"))
    if stray := contents.strays():
        faults.append(Fault(None, None, f"there are records of {stray} runs that were never opened"))
    if not faults and TOTAL in facts and (said := wrong_total(key, facts[TOTAL], total, seals)) is not None:
        faults.append(Fault(None, None, f"{said}: a run may have been put back to what it was earlier"))
    if not faults and (said := contents.unsound()) is not None:
        faults.append(Fault(None, None, said))
    return faults


def _parent(contents: Contents, row: int, run_id: str) -> str | None:
    """The run inside which this one was made, by its first record."""
    body = next(iter(contents.records(row)))[3]
    try:
        call_id = msgspec.json.decode(body).get("parent_call")
    except (msgspec.DecodeError, AttributeError):
        return run_id  # it names none that could be meant
    return None if call_id is None else run_id.removesuffix(f"/{call_id}")


def _check_run(
    contents: Contents, row: int, run_id: str, before: bytes, key: bytes | None
) -> tuple[Fault | None, bytes, bytes, int]:
    """The first fault of a run; the hashes of its first and last record, and how many there are."""
    first, seen = b"", 0
    fault: Fault | None = None
    for n, at, kind, body, found in contents.records(row):
        seen += 1
        if seen == 1:
            first = found
        if fault is None:
            if n != seen:
                fault = Fault(run_id, seen, f"it is missing (the next that is here is {n})")
            elif kind not in KINDS:
                fault = Fault(run_id, n, f"its kind {kind!r} is unknown")
            elif not follows(before, Record(run_id, n, at, kind, body, found), key):
                fault = Fault(run_id, n, "it was changed, moved or put in: its hash does not follow from the one before")
        before = found
    return fault, first, before, seen
