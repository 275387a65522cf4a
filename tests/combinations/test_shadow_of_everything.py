"""Hooks in the shadow change nothing and see each value once, in runs that fail, are tried again, summarised and resumed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Block, Hook, Limits, ToolContext, tool
from beforehand.backtest import backtest
from beforehand.hooks.registry import HookSet
from beforehand.seams import SEAMS
from beforehand.testing import FunctionModel, error, text, tool_call

from combinations.cuts import World
from journal.cutting import all_records, cut, parents, uncertain
from journal.stories import came_to

Seen = Counter[tuple[str, int, str | None]]
WATCHED = [spec.name for spec in SEAMS if spec.name not in ("on_chunk", "get_api_key", "after_turn")]


def watchers(seen: Seen) -> list[Hook]:
    def watch(seam: str) -> Any:
        def fn(context: Any) -> None:
            seen[seam, context.run.turn, getattr(context, "call_id", None)] += 1

        return Hook(seam=seam, fn=fn, name=f"watch {seam}", order=-1, where="here")

    return [watch(seam) for seam in WATCHED]


def say_turn(run: Any) -> str:
    return f"turn {run.turn}"


def reply(request: Any) -> Any:
    if request.system.startswith("Summarise"):
        return text("SUMMARY")
    turn = int(request.system.rpartition("turn ")[2])
    if turn == 3:
        return error("down")
    return tool_call("outer", {"n": turn}, id=f"c{turn}") if turn < 7 else text("done")


def fails(seam: str) -> Hook:
    def fn(context: Any) -> Any:
        if context.run.turn == 2:
            raise RuntimeError("broken in turn 2")

    return Hook(seam=seam, fn=fn, name="fails", where="here")


def agent_of(world: World, seen: Seen, journal: bool = True, failing: str = "before_provider_call", **more: Any) -> Agent:
    @tool
    async def inner(ctx: ToolContext, n: int) -> str:
        world.effects.append(ctx.idempotency_key)
        return f"inner {n}"

    @tool
    async def outer(ctx: ToolContext, n: int) -> str:
        world.effects.append(ctx.idempotency_key)
        first = await ctx.call_tool("inner", {"n": n})
        return first.text + " x" * 400

    return Agent(
        model=FunctionModel(reply), tools=[inner, outer], instructions=["Be brief.", say_turn],
        hooks=[*watchers(seen), fails(failing)], limits=Limits(compact_at=700), recovery=world.recovery(),
        journal=world.journal if journal else None, listeners=[lambda event: None], **more,
    )  # fmt: skip


SEAMS_THAT_FAIL = ["before_provider_call", "authorize_request", "prepare_request", "on_message", "before_tool_call"]


@pytest.mark.parametrize("failing", SEAMS_THAT_FAIL)
async def test_a_backtest_puts_each_recorded_value_once(tmp_path: Path, failing: str) -> None:
    world, seen, again = World(tmp_path / "runs.db"), Seen(), Seen()
    whole = await agent_of(world, seen, failing=failing).run("go", run_id="R")
    assert {d.verdict for d in whole.decisions} >= {"compacted", "failed", "provider_retry_scheduled"}
    effects = list(world.effects)
    seen = seen.copy()

    report = await backtest(world.journal, lambda loop: HookSet([*watchers(again), fails(failing)], loop))

    assert report.unreadable == ()
    if failing == "on_message":  # a reply that nobody let pass is not on record
        seen -= Counter({("on_message", 2, None): 1})
    assert again == seen
    assert report.differences == ()
    assert world.effects == effects


@pytest.mark.parametrize("failing", SEAMS_THAT_FAIL)
@pytest.mark.parametrize("journal", [True, False], ids=["recorded", "not recorded"])
async def test_hooks_in_the_shadow_see_what_the_hooks_see_once(tmp_path: Path, failing: str, journal: bool) -> None:
    plain = came_to(await agent_of(World(tmp_path / "a.db"), Seen(), journal, failing).run("go", run_id="R"))
    world, seen, aside = World(tmp_path / "b.db"), Seen(), Seen()
    shadow = [*watchers(aside), fails(failing)]

    result = await agent_of(world, seen, journal, failing, shadow_hooks=shadow).run("go", run_id="R")

    assert aside == seen
    assert result.shadow == ()
    assert came_to(result) == plain


async def test_a_failure_that_the_shadow_would_not_have_had_is_a_difference(tmp_path: Path) -> None:
    world = World(tmp_path / "a.db")
    result = await agent_of(world, Seen(), shadow_hooks=watchers(Seen())).run("go", run_id="R")
    assert [(d.kind, d.seam) for d in result.shadow] == [("newly_allowed", "before_provider_call")]
    report = await backtest(world.journal, lambda loop: HookSet(watchers(Seen()), loop))
    assert [(d.kind, d.seam) for d in report.differences] == [("newly_allowed", "before_provider_call")]


async def test_a_refusal_in_the_shadow_changes_nothing_wherever_the_run_is_cut(tmp_path: Path) -> None:
    def refusing(seen: Seen) -> list[Hook]:
        refused = [s for s in WATCHED if s in ("before_tool_call", "after_tool_call", "authorize_request", "before_compaction")]
        return [*watchers(seen), *[Hook(seam=s, fn=lambda c: Block("never"), name=f"no {s}") for s in refused]]

    world, aside = World(tmp_path / "whole.db"), Seen()
    agent = agent_of(world, Seen(), shadow_hooks=refusing(aside))
    expected = came_to(await agent.run("go", run_id="R"))
    assert expected["text"] == "done"
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in range(1, len(records), 5):
        if uncertain(records[:k]):
            continue
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        after = Seen()
        again = agent_of(World(tmp_path / f"{k}.db"), Seen(), shadow_hooks=refusing(after))
        came = came_to(await again.resume("R"))
        assert came["messages"] == expected["messages"]
        assert not after - aside, "a value that was put to the shadow once is not put to it again"
