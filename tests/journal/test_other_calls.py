"""A call that is not the one on record in its place gets nothing that was recorded about that: no result, and no decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, Block, Hook, Replace, RunResult, ToolContext, tool
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records, cut, parents

HOOKS: dict[str, list[Hook]] = {
    "a gate": [],
    "a shaper": [Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={**c.args, "most": 50}), tools=["pay"], name="most")],
    "a shaper that lets it be": [Hook(seam="prepare_tool_call", fn=lambda c: None, tools=["pay"], name="most")],
}


class Process:
    """A safe tool pays whom the world says. `asked` are those about whom the gate was asked, `paid` those who were paid."""

    def __init__(self, path: Path, to: str, hooks: list[Hook], verdict: Any = None, name: str = "pay") -> None:
        self.asked: list[str] = []
        self.paid: list[str] = []

        @tool(replay="safe")
        async def script(ctx: ToolContext) -> str:
            return (await ctx.call_tool(name, {"to": to})).text

        @tool
        async def pay(to: str, most: int = 100) -> str:
            self.paid.append(to)
            return f"paid {to}"

        @tool
        async def give(to: str) -> str:
            self.paid.append(to)
            return f"gave {to}"

        def gate(call: Any) -> Any:
            self.asked.append(call.args["to"])
            return Block("never mallory") if call.args["to"] == "mallory" else verdict

        model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else tool_call("script", id="s"))
        self.journal = Journal(path, durability="normal")
        every = [*hooks, Hook(seam="before_tool_call", fn=gate, tools=["pay", "give"])]
        self.agent = Agent(model=model, tools=[pay, give, script], hooks=every, journal=self.journal)


def said(result: RunResult) -> str:
    return next(m.text for m in result.messages if m.role == "tool")


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("name", ["pay", "give"])
async def test_a_repeated_tool_that_makes_another_call_gets_nothing_of_the_one_on_record(
    tmp_path: Path, hooks: str, name: str
) -> None:
    whole = Process(tmp_path / "whole.db", "ann", HOOKS[hooks])
    await whole.agent.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    over = next(k for k, r in enumerate(records, 1) if r.kind == "outcome" and r.data["call"] == "s")
    begun = next(k for k, r in enumerate(records, 1) if r.kind == "intent" and r.data["call"] == "s/1")
    for k in range(1, over):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        later = Process(tmp_path / f"{k}.db", "mallory", HOOKS[hooks], name=name)
        result = await later.agent.resume("R")
        assert later.paid == []
        if k < begun:
            assert (said(result), later.asked) == ("never mallory", ["mallory"]), k
        else:
            assert said(result).startswith(f"Not run: this call of {name} is not the one that is on record"), k
        assert verify(later.journal) == []
        await later.agent.aclose()


async def test_a_call_that_is_made_in_place_of_one_that_waited_passes_every_gate(tmp_path: Path) -> None:
    first = Process(tmp_path / "runs.db", "ann", [], Ask("May it?"))
    assert (await first.agent.run("go", run_id="R")).stop_reason == "suspended"
    later = Process(tmp_path / "runs.db", "mallory", [], Ask("May it?"))
    result = await later.agent.resume("R", {"s/1": Approve()})
    assert (said(result), later.asked, later.paid) == ("never mallory", ["mallory"], [])


async def test_a_call_that_is_made_in_place_of_one_that_waited_is_asked_about_and_then_on_record_itself(tmp_path: Path) -> None:
    first = Process(tmp_path / "runs.db", "ann", [], Ask("May it?"))
    await first.agent.run("go", run_id="R")
    second = Process(tmp_path / "runs.db", "bob", [], Ask("May it?"))
    result = await second.agent.resume("R", {"s/1": Approve()})
    assert [p.args["to"] for p in result.pending] == ["bob"]
    assert second.asked == ["bob"]
    third = Process(tmp_path / "runs.db", "bob", [], Ask("May it?"))
    assert said(await third.agent.resume("R", {"s/1": Approve()})) == "paid bob"
    assert (third.asked, third.paid) == ([], ["bob"])

    records, of = all_records(tmp_path / "runs.db"), parents(tmp_path / "runs.db")
    for k in range(next(k for k, r in enumerate(records, 1) if r.data.get("verdict") == "Changed"), len(records)):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = Process(tmp_path / f"{k}.db", "bob", [], Ask("May it?"))
        result = await again.agent.resume("R")
        begun = [r for r in records[:k] if r.kind == "intent" and r.data["call"] == "s/1"]
        assert not (begun and again.paid), k
        assert [r.data.get("verdict") for r in again.journal.records("R")].count("Changed") == 1, k
        if any(r.kind == "outcome" and r.data["call"] == "s/1" for r in records[:k]):
            assert said(result) == "paid bob", k
        await again.agent.aclose()


async def test_a_waiting_call_whose_path_leads_elsewhere_now_passes_every_gate(tmp_path: Path) -> None:
    (tmp_path / "harmless").write_text("a")
    (tmp_path / "secret").write_text("b")
    (tmp_path / "link").symlink_to(tmp_path / "harmless")
    read = []

    def make() -> Agent:
        @tool
        async def read_file(path: Path) -> str:
            read.append(path.name)
            return "its text"

        gates = [
            Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"), name="ask"),
            Hook(seam="before_tool_call", fn=lambda c: Block("secret") if "secret" in str(c.args["path"]) else None, name="gate"),
        ]
        call = tool_call("read_file", {"path": str(tmp_path / "link")}, id="c")
        model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else call)
        return Agent(model=model, tools=[read_file], hooks=gates, journal=Journal(tmp_path / "runs.db", durability="normal"))

    (pending,) = (await make().run("go", run_id="R")).pending
    assert str(pending.args["path"]).endswith("harmless")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert (said(await make().resume("R", {"c": Approve()})), read) == ("secret", [])
