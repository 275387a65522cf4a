"""One story told in many processes: whole, and cut after each of its records and resumed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beforehand import Agent, Recovery, RunResult
from beforehand.journal import Journal, Record, verify

from journal.cutting import all_records, cut, done_by, parents, uncertain
from journal.stories import came_to


TELLING = frozenset({"failed", "retried", "compacting", "direct", "request", "intent", "outcome", "end"})


class World:
    """What one process did: the keys of the calls that took effect, the requests sent, the seconds waited."""

    def __init__(self, path: Path) -> None:
        self.journal = Journal(path, durability="normal", raw=True)  # a run goes on from its first record then
        self.effects: list[str] = []
        self.seconds: list[float] = []
        self.asked: Counter[str] = Counter()

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def recovery(self, **changes: Any) -> Recovery:
        return Recovery(**{"jitter": 0, "sleep": self.sleep, **changes})


Make = Callable[[World], Agent]


def sent(agent: Agent) -> int:
    return len(agent.plan.model.requests)


def answered(records: list[Record]) -> int:
    """How many requests have their answer on record, or a failure that the run has gone on after."""
    done, failed = 0, dict.fromkeys({r.run_id for r in records}, 0)
    for r in records:
        if r.kind == "direct" or (r.kind == "reply" and "error" not in r.data):
            done += 1
        elif r.kind == "reply":
            failed[r.run_id] = 1
        elif r.kind == "retried":
            done, failed[r.run_id] = done + failed[r.run_id], 0
    return done


def where_to_cut(records: list[Record]) -> list[int]:
    """After each record that something else hangs on, and some of the others; after all of them with EVERY_CUT=1."""
    chosen = os.environ.get("EVERY_CUT")
    return [k for k, r in enumerate(records, 1) if chosen or r.kind in TELLING or (k + len(records)) % 5 == 0]


async def every_cut(
    folder: Path, make: Make, prompt: Any = "go", run_id: str = "R"
) -> tuple[RunResult, list[Record]]:  # fmt: skip
    """Tell the story whole, then cut it after each record, resume, and compare. Returns what the whole came to."""
    world = World(folder / "whole.db")
    agent = make(world)
    whole = await agent.run(prompt, run_id=run_id, check=False)
    expected = came_to(whole)
    records, of = all_records(folder / "whole.db"), parents(folder / "whole.db")
    assert verify(world.journal) == []
    requests = sent(agent)
    await agent.aclose()
    for k in where_to_cut(records):
        kept = records[:k]
        if expected["error"] and any(r.kind == "end" and r.run_id == run_id for r in kept):
            continue  # what failed is tried again
        if not any(r.run_id == run_id for r in kept):
            continue
        cut(kept, of, folder / f"{k}.db").close()
        again = World(folder / f"{k}.db")
        resumed = make(again)
        where = f"cut after record {k}: {kept[-1].kind} {kept[-1].n} of {kept[-1].run_id} {kept[-1].body[:200]!r}"
        try:
            came = came_to(await resumed.resume(run_id, check=False))
        except Exception as error:
            raise AssertionError(f"{where}: {error!r}") from error
        _, over = done_by(kept)
        unknown = uncertain(kept)
        assert not [key for key in again.effects if key in over or key in unknown], f"{where}: done twice"
        if not unknown:
            assert len(again.effects) <= len(world.effects) - len(over & {*world.effects}), f"{where}: done again by another key"
            for name, value in expected.items():
                assert came[name] == value, f"{where}: {name}:\n{came[name]}\n{value}"
        known = answered([r for r in kept if r.run_id == run_id])
        assert unknown or known + sent(resumed) <= requests + (kept[-1].kind == "request"), f"{where}: asked again"
        waited = sum(r.kind == "retried" and r.data["verdict"] not in ("image_retry", "tool_mismatch_retry") for r in kept)
        assert len(again.seconds) <= len(world.seconds) - waited, f"{where}: waited again"
        assert verify(again.journal) == [], where
        await resumed.aclose()
    return whole, records
