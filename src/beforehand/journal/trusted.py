"""A run's records, and the history it began with, as those may use them who go on from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import JournalUnreadable
from ..messages import Message
from .chain import Record, seal
from .codec import message_of
from .pastrecords import check_chain, read_past
from .queries import Head
from .store import Store


def trusted(journal: Store, head: Head, records: Sequence[Record]) -> Sequence[Record]:
    """A run's records up to `head`. Raises `JournalUnreadable` if they are not as they were written."""
    records = records[: head.records]
    wrong = check_chain(records, journal.before_run(head.row), journal.key)
    if wrong is not None:
        raise JournalUnreadable(f"run {head.run_id}, record {wrong} was changed: the run cannot be trusted (`beforehand verify`)")
    if not records or (len(records), records[-1].hash) != (head.records, head.hash) or head.seal != _seal_of(journal, head):
        raise JournalUnreadable(
            f"run {head.run_id}: {head.records} records were written and do not end as these {len(records)} do: the run cannot "
            "be trusted (`beforehand verify`)"
        )
    return records


def _seal_of(journal: Store, head: Head) -> bytes:
    return seal(journal.key, head.run_id, head.records, head.hash)


def history_before(journal: Store, start: Mapping[str, Any], checked: bool = False) -> list[Message]:
    """The history that a run began with, put together from the runs of its conversation before it.

    Who goes on from it has their records `checked`: raises `JournalUnreadable` if they are not as they were written.
    """
    earlier: list[list[Message]] = []
    base = start["base"]
    while "after" in base:
        head, records = journal.head(base["after"]), journal.records(base["after"])
        past = read_past(trusted(journal, head, records) if checked else records)
        if len(past.messages) != base["added"]:
            raise JournalUnreadable(f"run {base['after']} has gone on since: the runs after it can no longer be resumed")
        earlier.append(past.messages)
        base = past.start["base"]
    earlier.append([message_of(m) for m in base["messages"]])
    return [message for messages in reversed(earlier) for message in messages]
