"""What hooks say about a lambda's question, and what that leads to, counts once, wherever the process ends."""

from __future__ import annotations

import asyncio
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


@pytest.mark.parametrize("seam", ["prepare_next_turn", "finish_turn", "before_turn"])
async def test_messages_about_a_call_and_about_a_question_beside_it_keep_their_order(tmp_path: Path, seam: str) -> None:
    """Of a lambda's call that is on record, what was queued comes back as the lambda that made it is asked again."""
    place = workspace(tmp_path, "pass")
    gate = another(place, "gate", "await adf.pay(amount=1)", seam)
    tells = another(place, "tells", f"{ASKS}\nawait adf.loop_inject(content='about the call')", "after_tool_call", tools=("pay",))
    said = Queue("about the question")
    judge = Hook(seam="authorize_request", fn=lambda c: said if c.kind == "direct" else None, name="judge", where="here")

    def agent(path: Path) -> Agent:
        world = World(path)
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=[gate, tells, judge], journal=world.journal)

    async with agent(tmp_path / "whole.db") as whole:
        told = [m.text for m in (await whole.run("go", run_id="R")).messages]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    paid = next(k for k, r in enumerate(records, 1) if r.kind == "outcome" and "lambda" in r.data["call"])
    cut(records[:paid], of, tmp_path / "0.db").close()
    for n in range(2):
        async with agent(tmp_path / f"{n}.db") as again:
            assert [m.text for m in (await again.resume("R")).messages] == told
        records, of = all_records(tmp_path / f"{n}.db"), parents(tmp_path / f"{n}.db")
        cut(records[:-1], of, tmp_path / f"{n + 1}.db").close()


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


async def test_what_is_said_of_a_request_is_not_said_of_the_question_that_is_asked_about_it(tmp_path: Path) -> None:
    """A lambda at 8 asks the model, and another hook at 8 judges both the request and the question."""
    place = workspace(tmp_path, "pass")
    judge = Hook(seam="authorize_request", fn=lambda c: Queue(f"about the {c.kind}"), name="judge", where="here")
    gate = another(place, "gate", f"if c['kind'] != 'direct':\n    {ASKS}", "authorize_request", order=1)

    def make(world: World) -> Agent:
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=[judge, gate], journal=world.journal)

    async with make(World(tmp_path / "whole.db")) as agent:
        whole = await agent.run("go", run_id="R")
    assert [sum(m.text == f"about the {kind}" for m in whole.messages) for kind in ("turn", "direct")] == [3, 3]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    rulings = [r.data for r in records if r.kind == "ruling" and r.data["seam"] == "authorize_request"]
    assert [[e["message"] for e in data["effects"]] for data in rulings] == [["about the direct"], ["about the turn"]] * 3
    for k in [k for k, r in enumerate(records, 1) if r.kind in ("ruling", "direct", "request", "reply")]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        async with make(World(tmp_path / f"{k}.db")) as agent:
            again = await agent.resume("R")
        assert sorted(m.text for m in again.messages) == sorted(m.text for m in whole.messages), f"cut after record {k}"
        assert len(again.decisions) == len(whole.decisions), f"cut after record {k}"


async def test_what_is_said_of_questions_side_by_side_is_said_of_each(tmp_path: Path) -> None:
    place = workspace(tmp_path, "pass")
    asked = ", ".join(f"adf.model_invoke(prompt='{name}', system='Aside.')" for name in "AB")
    gate = another(place, "gate", f"import asyncio\nawait asyncio.gather({asked})", "transform_context")

    def make(world: World, both: bool) -> Agent:
        heard = {name: asyncio.Event() for name in "AB"}

        def judge(c: Any) -> Any:
            return Queue(f"about {c.request.messages[-1].text}") if c.kind == "direct" else None

        async def waits(c: Any) -> None:
            """Until both have been judged, where both are asked."""
            if c.kind == "direct" and both:
                heard[c.request.messages[-1].text].set()
                await asyncio.gather(*[event.wait() for event in heard.values()])

        hooks = [
            Hook(seam="authorize_request", fn=fn, name=fn.__name__, where="here", order=order)
            for order, fn in enumerate((judge, waits))
        ]
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=[*hooks, gate], journal=world.journal)

    async with make(World(tmp_path / "whole.db"), True) as agent:
        whole = await agent.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    rulings = [r.data for r in records if r.kind == "ruling" and "beside" in r.data]
    assert len(rulings) == 6
    assert all(len(data["effects"]) == len(data["decisions"]) == 1 for data in rulings)
    for k in [k for k, r in enumerate(records, 1) if r.kind == "direct"]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        async with make(World(tmp_path / f"{k}.db"), False) as agent:
            again = await agent.resume("R")
        assert sorted(m.text for m in again.messages) == sorted(m.text for m in whole.messages), f"cut after record {k}"


async def test_the_word_of_a_new_gate_stands_that_has_asked_the_model_itself(tmp_path: Path) -> None:
    """The process ends as soon as the refusal is on record. The request does not leave in the next one."""
    place = workspace(tmp_path, "pass")
    judge = Hook(seam="authorize_request", fn=lambda c: None, name="judge", where="here")
    refuses = f"if c['kind'] != 'direct':\n    {ASKS}\n    return {{'type': 'block', 'reason': 'no'}}"
    new = another(place, "new", refuses, "authorize_request", order=1)

    async def go_on(name: str) -> tuple[Any, list[Any]]:
        world = World(tmp_path / f"{name}.db")
        async with Agent(model=FunctionModel(reply), tools=tools(world), hooks=[judge, new], journal=world.journal) as agent:
            return await agent.resume("R"), [r for r in agent.plan.model.requests if r.system != "Aside."]

    world = World(tmp_path / "whole.db")
    async with Agent(model=FunctionModel(reply), tools=tools(world), hooks=[judge], journal=world.journal) as agent:
        await agent.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    passed = next(k for k, r in enumerate(records, 1) if r.kind == "ruling")
    cut(records[:passed], parents(tmp_path / "whole.db"), tmp_path / "joined.db").close()
    result, left = await go_on("joined")
    assert (result.stop_reason, left) == ("blocked", [])
    records = all_records(tmp_path / "joined.db")
    for k in range(passed + 1, len(records) + 1):
        cut(records[:k], parents(tmp_path / "joined.db"), tmp_path / f"{k}.db").close()
        result, left = await go_on(f"{k}")
        assert (result.stop_reason, left) == ("blocked", []), f"cut after record {k}"
