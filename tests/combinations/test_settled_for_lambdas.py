"""A person says what became of a lambda's call, after the lambda has been told that this is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Hook, UsageError
from beforehand.answering import settle_call
from beforehand.journal.reading import uncertain
from beforehand.testing import FunctionModel
from beforehand.tools import ToolResult

from combinations.cuts import World
from combinations.test_lambdas_on_record import another, reply, tools, workspace
from journal.cutting import all_records, cut, parents

pytestmark = pytest.mark.usefixtures("no_spares_are_left")

FAILS = "await adf.pay(amount=3)"
GOES_ON = "try:\n    await adf.pay(amount=3)\nexcept Exception:\n    pass"


def cut_while_it_pays(folder: Path, body: str, seam: str, *more: Any) -> Any:
    """What makes an agent whose process ended while its lambda paid, and what the model and hooks at 13 read."""
    only = ("work",) if seam == "before_tool_call" else ()
    payer, read = another(workspace(folder, "pass"), "payer", f"{body}\nreturn None", seam, tools=only), []
    watch = Hook(seam="after_tool_call", fn=lambda o: read.append(str(o.content)), tools=("pay",), name="watch", where="here")

    def agent(world: World) -> Agent:
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=[payer, watch, *more], journal=world.journal)

    return agent, read


async def died(folder: Path, agent: Any) -> tuple[Path, str]:
    async with agent(World(folder / "whole.db")) as whole:
        await whole.run("go", run_id="R")
    records = all_records(folder / "whole.db")
    begun = next(k for k, r in enumerate(records, 1) if r.kind == "intent" and "lambda" in r.data)
    cut(records[:begun], parents(folder / "whole.db"), folder / "cut.db").close()
    return folder / "cut.db", records[begun - 1].data["call"]


async def resumed(place: Path, agent: Any) -> tuple[Any, list[str]]:
    world = World(place)
    async with agent(world) as again:
        return await again.resume("R", check=False), world.effects


async def test_a_lambda_that_fails_over_not_knowing_is_given_what_a_person_says(tmp_path: Path) -> None:
    agent, read = cut_while_it_pays(tmp_path, FAILS, "transform_context")
    place, call = await died(tmp_path, agent)
    failed, _ = await resumed(place, agent)
    assert "not known" in str(failed.error)
    read.clear()
    assert [(lost.run_id, lost.call_id) for lost in uncertain(World(place).journal)] == [("R", call)]
    await settle_call(World(place).journal, "R", call, ToolResult("Paid: it is in the books."), "ann")
    assert uncertain(World(place).journal) == []
    with pytest.raises(UsageError, match="has been settled already"):
        await settle_call(World(place).journal, "R", call, ToolResult("Paid."), "bob")
    done, effects = await resumed(place, agent)
    assert (done.stop_reason, f"R:{call}" in effects) == ("completed", False)
    assert read[0] == "Paid: it is in the books.", "hooks at 13 judge it like any result"


@pytest.mark.parametrize(("seam", "body"), [("transform_context", GOES_ON), ("before_tool_call", FAILS)])
async def test_one_that_has_decided_without_knowing_is_not_told_any_more(tmp_path: Path, seam: str, body: str) -> None:
    """It went on, or the call that it was asked about was refused since it failed."""
    agent, _ = cut_while_it_pays(tmp_path, body, seam)
    place, call = await died(tmp_path, agent)
    done, effects = await resumed(place, agent)
    assert (done.stop_reason, f"R:{call}" in effects) == ("completed", False)
    with pytest.raises(UsageError, match="uncertain"):
        await settle_call(World(place).journal, "R", call, ToolResult("Paid."), "ann")


@pytest.mark.parametrize("seam", ["transform_context", "before_provider_call"])
async def test_it_is_told_where_a_hook_failed_at_its_seam_and_not_where_one_failed_later(tmp_path: Path, seam: str) -> None:
    """At its own seam its decision did not count, so it makes the call again."""
    broken = [False]

    def breaks(context: Any) -> None:
        if broken[0]:
            raise ValueError("broken")

    more = Hook(seam=seam, fn=breaks, name="breaks", order=9, where="here")
    agent, read = cut_while_it_pays(tmp_path, GOES_ON, "transform_context", more)
    place, call = await died(tmp_path, agent)
    broken[0] = True
    failed, _ = await resumed(place, agent)
    assert "broken" in str(failed.error)
    broken[0] = False
    read.clear()
    if seam == "before_provider_call":
        with pytest.raises(UsageError, match="uncertain"):
            await settle_call(World(place).journal, "R", call, ToolResult("Paid."), "ann")
    else:
        await settle_call(World(place).journal, "R", call, ToolResult("Paid."), "ann")
    done, effects = await resumed(place, agent)
    assert (done.stop_reason, f"R:{call}" in effects) == ("completed", False)
    assert ("Paid." in read) == (seam == "transform_context")


@pytest.mark.parametrize(
    ("seam", "later", "is_told"),
    [
        ("on_chunk", "finish_turn", False), ("get_api_key", "finish_turn", False), ("get_api_key", "authorize_request", True),
        ("authorize_request", "transform_context", False),
    ],
)  # fmt: skip
async def test_one_whose_word_is_on_record_with_a_reply_or_an_answer_is_not_told_any_more(
    tmp_path: Path, seam: str, later: str, is_told: bool
) -> None:
    """What it was asked for is past: the reply is there, or the answer to the question of another lambda."""
    broken = [False]

    def breaks(context: Any) -> None:
        if broken[0]:
            raise ValueError("broken")

    hooks = [Hook(seam=later, fn=breaks, name="breaks", order=9, where="here")]
    if seam == "authorize_request":
        asks = "await adf.model_invoke(prompt='Which?', system='Aside.')"
        hooks.append(another(workspace(tmp_path, "pass"), "asks", asks, "transform_context"))
    agent, read = cut_while_it_pays(tmp_path, GOES_ON, seam, *hooks)
    place, call = await died(tmp_path, agent)
    assert ("ask" in call) == (seam == "authorize_request")
    broken[0] = True
    failed, _ = await resumed(place, agent)
    assert "broken" in str(failed.error)
    broken[0] = False
    read.clear()
    assert [lost.call_id for lost in uncertain(World(place).journal)] == ([call] if is_told else [])
    if is_told:
        await settle_call(World(place).journal, "R", call, ToolResult("Paid."), "ann")
    else:
        with pytest.raises(UsageError, match="uncertain"):
            await settle_call(World(place).journal, "R", call, ToolResult("Paid."), "ann")
    done, effects = await resumed(place, agent)
    assert (done.stop_reason, f"R:{call}" in effects) == ("completed", False)
    assert ("Paid." in read) == is_told
