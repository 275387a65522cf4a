"""What a run has cost, wherever its process ends: questions of lambdas, and sub-agents that they call, are counted once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Price, Usage, tool
from beforehand.testing import FunctionModel, finish, text, tool_call

from combinations.cuts import World, every_cut
from combinations.test_lambdas_on_record import another, reply, tools, workspace
from journal.cutting import all_records, cut, parents

pytestmark = pytest.mark.usefixtures("no_spares_are_left")

PRICES = {"function": Price(1000, 1000)}
DOES = {
    "asks": "await adf.model_invoke(prompt='Which?', system='Aside.')",
    "calls an agent": "await adf.helper(prompt='p')",
    "calls what is asked about": "await adf.pay(amount=1)",
}


@pytest.mark.parametrize("does", DOES)
@pytest.mark.parametrize("seam", ["transform_context", "before_tool_call", "after_tool_call"])
async def test_what_a_lambda_spends_is_counted_once(tmp_path: Path, seam: str, does: str) -> None:
    place = workspace(tmp_path, "pass")
    gate = another(place, "gate", DOES[does], seam, tools=("work",) if "tool" in seam else ())
    asks = another(place, "asks", DOES["asks"], "after_tool_call", tools=("pay",))

    def make(world: World) -> Agent:
        helper = Agent(model=FunctionModel(lambda r: [text("helped"), finish("stop", Usage(100, 10))]), prices=PRICES)
        return Agent(
            model=FunctionModel(reply), tools=[*tools(world), helper.as_tool("helper", "Helps.")], hooks=[gate, asks],
            journal=world.journal, prices=PRICES,
        )  # fmt: skip

    whole, _ = await every_cut(tmp_path, make)
    assert whole.stop_reason == "completed", whole.error
    assert round(whole.cost, 9) == round((whole.usage.input_tokens + whole.usage.output_tokens) / 1000, 9)


async def test_a_rule_that_fires_in_an_agent_that_a_lambda_calls_fires_as_often_as_it_may(tmp_path: Path) -> None:
    place = workspace(tmp_path, "pass")
    gate = another(place, "gate", DOES["calls an agent"], "transform_context")
    rule = {"target": "tool", "event": "before", "tools": ["send"], "regex": "5", "maxTriggers": 1}
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.json").write_text(json.dumps([{**rule, "actions": [{"type": "block", "reason": "once"}]}]))

    def make(world: World) -> Agent:
        @tool
        async def send(x: int) -> str:
            world.effects.append("sent")
            return "sent"

        def helps(request: Any) -> Any:
            return text("helped") if any(m.role == "tool" for m in request.messages) else tool_call("send", {"x": 5}, id="k")

        helper = Agent(model=FunctionModel(helps), tools=[send]).as_tool("helper", "Helps.")
        rules: list[Any] = [tmp_path / "rules", gate]
        return Agent(model=FunctionModel(reply), tools=[*tools(world), helper], hooks=rules, journal=world.journal)

    world = World(tmp_path / "whole.db")
    async with make(world) as agent:
        whole = await agent.run("go", run_id="R")
    assert world.effects.count("sent") == 2
    refused = [(d.run_id, d.hook) for d in whole.decisions if d.verdict == "Block"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in [k for k, r in enumerate(records, 1) if r.run_id == "R" and r.kind in ("ruling", "request", "reply", "turn")]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        async with make(again) as agent:
            result = await agent.resume("R")
        done = sum(r.kind == "intent" and r.data["name"] == "send" for r in records[:k])
        assert done + again.effects.count("sent") == 2, f"cut after record {k}"
        assert [(d.run_id, d.hook) for d in result.decisions if d.verdict == "Block"] == refused, f"cut after record {k}"
