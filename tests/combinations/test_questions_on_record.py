"""What hooks say about a lambda's question, and what that leads to, counts once, wherever the process ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Block, Hook, Queue
from beforehand.testing import FunctionModel

from combinations.cuts import World, every_cut
from combinations.test_lambdas_on_record import another, reply, tools, workspace
from journal.cutting import all_records, cut, parents

pytestmark = pytest.mark.usefixtures("no_spares_are_left")

ASKS = "await adf.model_invoke(prompt='Which?', system='Aside.')"


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("by", ["hook", "lambda"])
async def test_a_message_that_is_queued_about_a_question_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, refused: bool
) -> None:
    monkeypatch.setenv("EVERY_CUT", "1")
    place = workspace(tmp_path, "pass")
    gate = another(place, "gate", f"try:\n    {ASKS}\nexcept Exception:\n    pass", "transform_context")
    told = "await adf.loop_inject(content='noted')\n    return {'type': 'block', 'reason': 'no'}"
    told = told if refused else told.partition("\n")[0]
    if by == "lambda":
        judge = another(place, "judge", f"if c['kind'] == 'direct':\n    {told}", "authorize_request")
    else:
        said = [Block("no"), Queue("noted")] if refused else [Queue("noted")]
        judge = Hook(seam="authorize_request", fn=lambda c: said if c.kind == "direct" else None, name="judge", where="here")

    def make(world: World) -> Agent:
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=[gate, judge], journal=world.journal)

    whole, _ = await every_cut(tmp_path, make)
    assert whole.stop_reason == "completed"
    assert sum(m.text == "noted" for m in whole.messages) == 3


@pytest.mark.parametrize("seam", ["get_api_key", "authorize_request"])
async def test_what_is_asked_and_paid_about_a_question_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seam: str
) -> None:
    monkeypatch.setenv("EVERY_CUT", "1")
    place = workspace(tmp_path, "pass")
    gate = another(place, "gate", f"{ASKS}\nawait adf.pay(amount=5)", "transform_context")
    first = "if c['kind'] != 'direct':\n    return None\n" if seam == "authorize_request" else ""
    judge = another(place, "judge", f"{first}await adf.pay(amount=1)\n{ASKS}", seam)

    def make(world: World) -> Agent:
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=[gate, judge], journal=world.journal)

    whole, _ = await every_cut(tmp_path, make)
    assert whole.stop_reason == "completed", whole.error


async def test_a_rule_that_has_fired_about_a_lambdas_call_fires_as_often_as_it_may(tmp_path: Path) -> None:
    place = workspace(tmp_path, "pass")
    gate = another(place, "gate", "try:\n    await adf.pay(amount=3)\nexcept Exception:\n    pass", "transform_context")
    rule: dict[str, Any] = {"target": "tool", "event": "before", "tools": ["pay"], "regex": "3", "maxTriggers": 1}
    rule["actions"] = [{"type": "block", "reason": "not the first time"}]
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.json").write_text(json.dumps([rule]))

    def make(world: World) -> Agent:
        rules: list[Any] = [tmp_path / "rules", gate]
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=rules, journal=world.journal)

    world = World(tmp_path / "whole.db")
    async with make(world) as agent:
        await agent.run("go", run_id="R")
    paid = [key for key in world.effects if "lambda" in key]
    assert paid == ["R:lambda_2/1", "R:lambda_3/1"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in [k for k, r in enumerate(records, 1) if r.kind in ("ruling", "request", "reply", "turn")]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        async with make(again) as agent:
            await agent.resume("R")
        begun = [r.data["key"] for r in records[:k] if r.kind == "intent"]
        assert [key for key in again.effects if "lambda" in key] == [key for key in paid if key not in begun], f"cut after {k}"
