"""Who is who among lambdas when a run goes on: what is on record of one that is gone is nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, Hook
from beforehand.testing import FunctionModel

from combinations.cuts import World
from combinations.test_lambdas_on_record import another, reply, tools, workspace
from journal.cutting import all_records, cut, done_by, parents

pytestmark = pytest.mark.usefixtures("no_spares_are_left")


def agent_of(world: World, *hooks: Any, **more: Any) -> Agent:
    return Agent(model=FunctionModel(reply), tools=tools(world), hooks=list(hooks), journal=world.journal, **more)


@pytest.mark.parametrize("amount", [3, 4])
@pytest.mark.parametrize("seam", ["before_provider_call", "transform_context"])
async def test_one_that_is_left_is_not_taken_for_one_that_is_gone(tmp_path: Path, seam: str, amount: int) -> None:
    """Both were there when the process ended. The one that is left makes each of its calls once; nobody else's counts for it."""
    place = workspace(tmp_path, "pass")
    last = "return c['request']" if seam == "before_provider_call" else "return None"
    gone = another(place, "gone", f"await adf.pay(amount={amount})\n{last}", seam)
    left = another(place, "left", f"await adf.pay(amount=3)\n{last}", seam)
    async with agent_of(World(tmp_path / "whole.db"), gone, left) as agent:
        await agent.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    mine = [r.data["key"] for r in records if r.kind == "intent" and "left.py" in r.data.get("lambda", "")]
    for k in [k for k, r in enumerate(records, 1) if "gone.py" in r.data.get("lambda", "") or r.kind == "outcome"]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        for _ in range(2):
            again = World(tmp_path / f"{k}.db")
            async with agent_of(again, left) as agent:
                result = await agent.resume("R", check=False)
            assert result.error is None, f"cut after record {k}: {result.error}"
        paid = [r for r in all_records(tmp_path / f"{k}.db") if r.kind == "intent" and "left.py" in r.data.get("lambda", "")]
        assert len(paid) == len(mine) == 3, f"cut after record {k}"


async def test_one_under_another_name_is_taken_for_the_one_that_it_was_though_others_are_new(tmp_path: Path) -> None:
    place, seam = workspace(tmp_path, "pass"), "transform_context"
    old, looks = another(place, "old", "await adf.pay(amount=3)", seam), another(place, "looks", "return None", seam)
    async with agent_of(World(tmp_path / "whole.db"), looks, old) as agent:
        await agent.run("go", run_id="R")
    renamed, new = another(place, "renamed", "await adf.pay(amount=3)", seam), another(place, "new", "return None", seam)
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in [k for k, r in enumerate(records, 1) if r.kind == "outcome" and "/" in r.data["call"]]:
        for name, hooks in {"alone": [looks, renamed], "beside": [looks, new, renamed]}.items():
            cut(records[:k], of, tmp_path / f"{name}{k}.db").close()
            again = World(tmp_path / f"{name}{k}.db")
            async with agent_of(again, *hooks) as agent:
                await agent.resume("R", check=False)
            assert not {*again.effects} & done_by(records[:k])[0], f"cut after record {k}: paid twice"


@pytest.mark.parametrize("who", ["back", "new"])
async def test_what_was_done_in_an_earlier_turn_says_nothing_of_a_later_one(tmp_path: Path, who: str) -> None:
    """The lambda that had paid is away when the run goes on, and is back in a later turn, or another one is there."""
    place, seam = workspace(tmp_path, "pass"), "transform_context"
    old, new = (another(place, name, f"await adf.pay(amount={n})", seam) for name, n in (("old", 3), ("new", 4)))
    async with agent_of(World(tmp_path / "whole.db"), old) as agent:
        await agent.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    paid = next(k for k, r in enumerate(records, 1) if r.kind == "outcome")
    cut(records[:paid], of, tmp_path / "away.db").close()
    async with agent_of(World(tmp_path / "away.db")) as agent:
        await agent.resume("R")
    records, of = all_records(tmp_path / "away.db"), parents(tmp_path / "away.db")
    second = next(k for k, r in enumerate(records, 1) if r.kind == "turn" and r.data["number"] == 2)
    cut(records[:second], of, tmp_path / "later.db").close()
    again = World(tmp_path / "later.db")
    async with agent_of(again, old if who == "back" else new) as agent:
        result = await agent.resume("R", check=False)
    assert result.error is None
    assert sum("lambda" in key for key in again.effects) == 2, "one in each turn that it was there for"


async def test_a_yes_is_for_the_call_of_the_lambda_that_was_asked_about(tmp_path: Path) -> None:
    place, seam = workspace(tmp_path, "pass"), "transform_context"
    old, new = (another(place, name, "await adf.pay(amount=3)", seam) for name in ("old", "new"))
    asks = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?"), tools=("pay",), name="asks", where="here")
    asked: list[str] = []

    async def yes(pending: Any) -> Approve:
        asked.append(pending.call_id)
        return Approve()

    async with agent_of(World(tmp_path / "whole.db"), old, asks, on_ask=yes) as agent:
        await agent.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    answered = next(k for k, r in enumerate(records, 1) if r.kind == "answer")
    cut(records[:answered], of, tmp_path / "cut.db").close()
    asked.clear()
    again = World(tmp_path / "cut.db")
    async with agent_of(again, new, old, asks, on_ask=yes) as agent:
        await agent.resume("R")
    first = [r.data for r in all_records(tmp_path / "cut.db") if r.kind == "intent" and "lambda" in r.data][:2]
    assert [data["lambda"].partition(":")[0] for data in first] == ["lib/new.py", "lib/old.py"]
    assert [first[0]["call"] in asked, first[1]["call"] in asked] == [True, False]
