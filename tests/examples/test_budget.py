from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Load = Callable[[str], Any]


async def test_the_run_ends_when_its_turns_are_spent(example: Load) -> None:
    budget, model = example("budget"), example("budget").endless()
    result = await budget.make_agent(model, turns=3).run("Read on.")
    assert (result.stop_reason, result.reason) == ("ended", "the budget of 3 turns is spent")
    assert len(model.requests) == 3


async def test_no_request_leaves_when_the_time_is_over(example: Load) -> None:
    budget, model = example("budget"), example("budget").endless()
    result = await budget.make_agent(model, seconds=0).run("Read on.")
    assert (result.stop_reason, result.reason) == ("ended", "the budget of 0 seconds is spent")
    assert model.requests == []


@pytest.mark.parametrize("cost", [0.004, 0.01, 0.0133])
async def test_the_money_spent_never_passes_the_budget(example: Load, cost: float) -> None:
    budget, model = example("budget"), example("budget").endless()
    result = await budget.make_agent(model, cost=cost).run("Read on.")
    assert result.stop_reason == "blocked"
    assert cost - 0.004 < result.cost <= cost  # spent to its end, and not beyond: a request costs 0.0016
    assert len(model.requests) == round(result.cost / 0.0016)


async def test_a_model_without_a_price_is_not_asked(example: Load) -> None:
    budget, model = example("budget"), example("budget").endless()
    agent = budget.make_agent(model)
    model.name = "unheard-of"
    result = await agent.run("Read on.")
    assert (result.stop_reason, model.requests) == ("blocked", [])
    assert "no price is known for unheard-of" in result.reason
