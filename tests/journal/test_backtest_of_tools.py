"""Hooks that look at tools, or give a call other arguments, are put to the tools as they were when a run was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import Agent, Block, Context, Hook, Interrupt, Replace, hook, tool
from beforehand.backtest import Backtest, backtest
from beforehand.frozen import freeze
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal
from beforehand.testing import ScriptedModel, text, tool_call


@tool
def pay(amount: int, to: str = "Ada") -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


def at_most_five(context: Any) -> Replace:
    def changed(spec: Any) -> Any:
        properties = {**spec.parameters["properties"], "amount": {"type": "integer", "maximum": 5}}
        return msgspec.structs.replace(spec, parameters=freeze({**spec.parameters, "properties": properties}))

    return Replace(request=msgspec.structs.replace(context.request, tools=tuple([changed(t) for t in context.request.tools])))


LOOKS = {
    "another system": hook.before_provider_call(lambda c: Replace(request=msgspec.structs.replace(c.request, system="new"))),
    "another schema": hook.before_provider_call(at_most_five),
    "reads the schema at 6": hook.before_provider_call(lambda c: c.request.tools[0].parameters["properties"]["amount"] and None),
    "reads the description at 8": hook.authorize_request(
        lambda c: None if all([spec.description == "Pay somebody." for spec in c.request.tools]) else Block("undescribed")
    ),
    "chooses tools by their descriptions": hook.prepare_request(
        lambda p: Replace(context=Context("", p.context.messages, tuple([t for t in p.context.tools if "Pay" in t.description])))
    ),
    "reads the schema at 12": hook.before_tool_call(lambda c: None if "to" in c.tool.parameters["properties"] else Block("no")),
    "gives text for a number": hook.prepare_tool_call(lambda d: Replace(args={"amount": "7"})),
    "gives what the tool does not take": hook.prepare_tool_call(lambda d: Replace(args={"amount": "seven"})),
    "gives what is new to the tool": hook.prepare_tool_call(lambda d: Replace(args={"amount": 7, "from": "Bob"})),
}  # fmt: skip


async def recorded(path: Path, *hooks: Hook) -> Journal:
    """Two runs of one conversation: the second follows the first."""
    turns = [tool_call("pay", {"amount": 3}, id="c1"), text("done")]
    agent = Agent(model=ScriptedModel(turns * 2), tools=[pay], hooks=hooks, journal=path, durability="normal")
    talk = agent.conversation()
    await talk.run("go", run_id="r1")
    await talk.run("and again", run_id="r2")
    return agent.plan.journal  # type: ignore[no-any-return]


async def put(journal: Journal, *hooks: Hook, **options: Any) -> Backtest:
    report = await backtest(journal, lambda loop: HookSet(hooks, loop), **options)
    assert report.unreadable == ()
    return report


@pytest.mark.parametrize("case", LOOKS)
async def test_the_same_hook_changes_nothing(case: str, tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", LOOKS[case])
    assert (await put(journal, LOOKS[case])).differences == ()
    assert (await put(journal, LOOKS[case], run_ids=["r2"])).differences == ()


async def test_arguments_given_anew_are_judged_by_the_tool(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db")

    async def found(case: str) -> list[tuple[str, str]]:
        return [(d.kind, d.would.partition("(")[0]) for d in (await put(journal, LOOKS[case], run_ids=["r1"])).differences]

    assert await found("gives text for a number") == [("rewritten_differently", "Replace")]
    assert await found("gives what the tool does not take") == [("newly_blocked", "Block")]
    assert await found("gives what is new to the tool") == [("newly_blocked", "Block")]


async def test_tools_are_on_record_once_for_a_conversation(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db")
    first, second = (journal.first(run_id).data for run_id in ("r1", "r2"))
    assert [spec["name"] for spec in first["specs"]] == ["pay"]
    assert "specs" not in second


async def test_of_an_older_record_tools_are_known_by_name(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db")
    older = Journal(tmp_path / "older.db", durability="normal")
    first, *rest = [(r.kind, r.at, r.body) for r in journal.records("r1")]
    start = msgspec.json.decode(first[2])
    del start["specs"]
    older.append(older.open_run("r1", (*first[:2], msgspec.json.encode(start))), rest)

    assert (await put(older, LOOKS["gives text for a number"])).counts["rewritten_differently"] == 1
    assert (await put(older)).differences == ()


async def test_a_call_that_an_abort_came_before_makes_no_tool_known(tmp_path: Path) -> None:
    one = hook.authorize_request(lambda o: None if len(o.request.tools) == 1 else Block("another tool"))
    read = hook.on_message(lambda m: Interrupt("looked up") if "not found" in m.message.text else None)
    hooks = [one, read]

    @tool(mode="sequential")
    def stop() -> str:
        """Stop."""
        talk.abort()
        return "stopped"

    replies = [text("yes"), [tool_call("stop", id="c1"), tool_call("unheard_of", id="c2")]]
    agent = Agent(model=ScriptedModel(replies), tools=[stop], hooks=hooks, journal=tmp_path / "runs.db", durability="normal")
    talk = agent.conversation()
    talk.follow_up("and now?")
    result = await talk.run("go")
    assert [m.outcome for m in result.messages if m.role == "tool"] == ["ran", "aborted"]

    assert (await put(agent.plan.journal, *hooks)).differences == ()
