"""What each hook did: how often it was asked, how long it took, what it decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from beforehand import Agent, hook
from beforehand.journal import Record
from beforehand.journal.tally import HookTally, tally
from beforehand.testing import ScriptedModel
from reading.recorded import counted, looks, pays, teller, text


async def tallied(agent: Agent, **options: Any) -> dict[str, HookTally]:
    await agent.run("go", run_id="r", **options)
    return {one.hook: one for one in tally(agent.plan.journal.records("r"))}


async def test_hooks_are_counted_where_they_decide_and_where_they_do_not(tmp_path: Path) -> None:
    found = await tallied(teller(tmp_path / "r.db", [pays(5), looks("a")], pays(901, "p2"), text("Done.")))
    assert (found["not_too_much"].calls, found["not_too_much"].verdicts) == (2, {"Block": 1})
    assert (found["watches"].calls, found["watches"].verdicts) == (3, {})
    assert (found["no_accounts"].calls, found["no_accounts"].verdicts) == (1, {"Replace": 1})


async def test_a_hook_that_never_decides_is_told_to_be_a_listener(tmp_path: Path) -> None:
    found = await tallied(teller(tmp_path / "r.db", pays(5), text("Done.")))
    assert "listener" in (found["watches"].advice or "")
    assert found["no_accounts"].advice is None


async def test_a_hook_that_was_never_asked_is_listed(tmp_path: Path) -> None:
    found = await tallied(teller(tmp_path / "r.db", text("Done.")))
    assert (found["no_accounts"].calls, found["no_accounts"].p50, found["no_accounts"].advice) == (0, None, "never asked")


async def test_hooks_that_decide_nothing_are_timed_too(tmp_path: Path) -> None:
    @hook.before_turn
    def slow(turn: Any) -> None:
        sum(range(200_000))

    @hook.before_turn
    def quick(turn: Any) -> None: ...

    agent = Agent(model=ScriptedModel([text("Done.")]), hooks=[slow, quick], journal=tmp_path / "r.db")
    found = await tallied(agent)
    assert found["slow"].p50 is not None and found["quick"].p50 is not None
    assert found["slow"].p50 > found["quick"].p50
    assert found["slow"].p95 == found["slow"].p50


def test_half_of_the_times_are_at_most_the_median() -> None:
    def asked(took: int, n: int) -> Record:
        body = msgspec.json.encode({"seam": "before_turn", "hooks": ["watches"], "took": [took]})
        return Record("r", n, 0, "ruling", body)

    for times, median, late in [([1, 9], 1, 9), ([1, 2, 9], 2, 9), ([*range(1, 101)], 50, 95)]:
        (found,) = tally([asked(took, n) for n, took in enumerate(times, 1)])
        assert (found.p50, found.p95) == (median / 1e6, late / 1e6)


async def test_a_hook_that_failed_counts_as_asked_and_timed(tmp_path: Path) -> None:
    @hook.before_turn
    def breaks(turn: Any) -> None:
        raise ValueError("broken")

    agent = Agent(model=ScriptedModel([text("Done.")]), hooks=[breaks], journal=tmp_path / "r.db")
    found = await tallied(agent, check=False)
    assert (found["breaks"].calls, found["breaks"].verdicts) == (1, {"failed": 1})
    assert found["breaks"].p50 is not None


async def test_two_hooks_of_one_name_at_a_seam_are_one_line(tmp_path: Path) -> None:
    def make() -> Any:
        @hook.before_turn
        def gate(turn: Any) -> None: ...

        return gate

    agent = Agent(model=ScriptedModel([text("Done.")]), hooks=[make(), make()], journal=tmp_path / "r.db")
    await agent.run("go", run_id="r")
    (one,) = tally(agent.plan.journal.records("r"))
    assert (one.hook, one.calls) == ("gate", 2)


async def test_a_hook_that_decided_about_progress_was_asked_about_it(tmp_path: Path) -> None:
    (one,) = tally((await counted(tmp_path / "r.db")).records("r"))
    assert (one.calls, one.verdicts) == (2, {"Replace": 1})
