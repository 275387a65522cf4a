"""Records that somebody wrote into are told, or refused with the record that is wrong. Nothing else happens."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand import Approve
from beforehand.cli.approvals import show_waiting
from beforehand.cli.trace import show_hooks, show_trace
from beforehand.errors import JournalUnreadable
from beforehand.journal import Journal
from beforehand.journal.reading import STATES, summaries
from reading.recorded import looks, pays, teller, text

ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@cache
def recorded() -> list[tuple[str, int, bytes]]:
    """The records of a run in which everything happens."""

    async def run(path: Path) -> list[tuple[str, int, bytes]]:
        agent = teller(path, [pays(5), looks("a")], [pays(901, "p2"), pays(800, "p3"), pays(200, "p4")], text("Done."))
        await agent.run("go", run_id="r")
        await agent.resume("r", {"p3": Approve()})
        records = agent.plan.journal.records("r")
        await agent.aclose()
        return [(r.kind, r.at, r.body) for r in records]

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder) / "r.db"))


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a JSON value something stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *[place for key, item in inner for place in places(item, (*at, key))]]


def put(value: Any, at: tuple[Any, ...], odd: Any) -> Any:
    if not at:
        return odd
    value[at[0]] = put(value[at[0]], at[1:], odd)
    return value


def refusal(look: Callable[[], None]) -> str:
    """What it refuses to show, and why."""
    try:
        look()
    except JournalUnreadable as error:
        return str(error)
    return ""


@settings(deadline=None, max_examples=150)
@given(st.data(), ODD, st.booleans())
def test_a_record_that_holds_anything_is_told_or_named(data: Any, odd: Any, cut: bool) -> None:
    records = list(recorded())
    number = data.draw(st.integers(0, len(records) - 1))
    kind, at, body = records[number]
    value = json.loads(body)
    records[number] = kind, at, json.dumps(put(value, data.draw(st.sampled_from(places(value))), odd)).encode()
    if cut:
        records = records[: number + 1]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "r.db", durability="normal")
        head = journal.open_run("r", records[0])
        if records[1:]:
            journal.append(head, records[1:])
        assert {run.state for run in summaries(journal)} <= set(STATES)
        show_waiting(journal, as_json=False, plain=True)
        for look in (
            lambda: show_trace(journal, "r", as_json=False, plain=True, full=True),
            lambda: show_trace(journal, "r", as_json=True, plain=True, full=True),
            lambda: show_hooks(journal, "r", since=0, as_json=False, plain=True),
        ):
            why = refusal(look)
            assert not why or why.startswith("run r, record ")
        journal.close()
