"""Rules that may fire only so often count in a backtest as they had counted when the runs were recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, tool
from beforehand.assembly import load_hooks
from beforehand.backtest import Backtest, backtest
from beforehand.events import ToolExecutionEnd
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call


@tool
def pay(amount: int) -> str:
    return f"paid {amount}"


def rules(folder: Path, label: str = "once", to: str = "pay", **more: object) -> Path:
    actions = [{"type": "block", "reason": label}]
    folder.mkdir(exist_ok=True)
    rule = {"target": "tool", "label": label, "event": "before", "tools": [to], "maxTriggers": 1, "actions": actions, **more}
    (folder / "rules.json").write_text(json.dumps([rule]))
    return folder


async def put(journal: Journal, folder: Path, run_ids: Sequence[str] | None = None) -> Backtest:
    source = load_hooks([folder], shadow=True)
    report = await backtest(
        journal, lambda loop: HookSet(source.current.hooks, loop), rules=source.rules, run_ids=run_ids
    )  # fmt: skip
    assert report.unreadable == ()
    return report


def pays_twice(folder: Path, journal: Path) -> Agent:
    calls = [tool_call("pay", {"amount": 1}, id="c1"), tool_call("pay", {"amount": 2}, id="c2")]
    model = FunctionModel(lambda request: text("done") if request.messages[-1].role == "tool" else calls)
    return Agent(model=model, tools=[pay], hooks=[folder], journal=journal)


async def test_each_agent_had_counted_for_itself_and_over_its_runs(tmp_path: Path) -> None:
    folder, path = rules(tmp_path / "rules"), tmp_path / "runs.db"
    for runs in (("r1", "r2"), ("r3",)):
        async with pays_twice(folder, path) as agent:
            for run_id in runs:
                await agent.run("go", run_id=run_id)

    journal = Journal(path)
    assert (await put(journal, folder)).differences == ()
    for run_id in ("r1", "r2", "r3"):
        assert (await put(journal, folder, [run_id])).differences == ()
    assert [d.run_id for d in (await put(journal, rules(tmp_path / "none", to="look"))).differences] == ["r1", "r3"]


async def test_a_rule_that_is_on_no_record_begins_anew_in_each_run(tmp_path: Path) -> None:
    folder, path = rules(tmp_path / "rules", to="look"), tmp_path / "runs.db"
    async with pays_twice(folder, path) as agent:
        await agent.run("go", run_id="r1")
        await agent.run("go", run_id="r2")

    report = await put(Journal(path), rules(tmp_path / "new", label="new"))

    assert [(d.kind, d.run_id, d.call_id) for d in report.differences] == [
        ("newly_blocked", "r1", "c1"), ("newly_blocked", "r2", "c1"),
    ]  # fmt: skip


@pytest.mark.parametrize("own", [True, False], ids=["with rules of its own", ""])
async def test_a_rule_that_fires_in_a_sub_agent_has_fired_for_its_parent(own: bool, tmp_path: Path) -> None:
    folder = rules(tmp_path / "rules")
    child = Agent(
        model=ScriptedModel([tool_call("pay", {"amount": 1}), tool_call("pay", {"amount": 3}), text("paid")]), tools=[pay],
        hooks=[rules(tmp_path / "own", label="own")] if own else [],
    )  # fmt: skip
    turns = [tool_call("clerk", {"prompt": "pay"}), tool_call("pay", {"amount": 2}), text("done")]
    agent = Agent(
        model=ScriptedModel(turns), tools=[pay, child.as_tool("clerk", "Pays.")], hooks=[folder], journal=tmp_path / "runs.db"
    )  # fmt: skip
    result = await agent.run("go", run_id="r1")
    assert [d.reason for d in result.decisions if d.verdict == "Block"] == ["once", "own"][: 1 + own]

    assert (await put(agent.plan.journal, folder)).differences == ()


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("action", [{"type": "queue-message", "role": "user", "message": "so"}, {"type": "interrupt"}])
async def test_calls_of_one_reply_may_have_ended_in_another_order(most: int, action: dict[str, str], tmp_path: Path) -> None:
    folder = rules(tmp_path / "rules", event="after", actions=[action], maxTriggers=most)
    judged = asyncio.Event()

    @tool(name="pay")
    async def pays(amount: int) -> str:
        if amount == 0:  # asked for first, and ends when the hooks have ruled on the others
            await judged.wait()
        return f"paid {amount}"

    def heard(event: ToolExecutionEnd) -> None:
        if event.call_id == "c2":
            judged.set()

    calls = [tool_call("pay", {"amount": n}, id=f"c{n}") for n in range(3)]
    model = ScriptedModel([calls, tool_call("pay", {"amount": 9}, id="c9"), text("done")])
    async with Agent(model=model, tools=[pays], hooks=[folder], journal=tmp_path / "runs.db") as agent:
        talk = agent.conversation()
        talk.on("tool_execution_end", heard)
        result = await talk.run("go", check=False)
    assert [d.call_id for d in result.decisions] == ["c1", "c2"][:most]

    assert (await put(Journal(tmp_path / "runs.db"), folder)).differences == ()


RULES_OF_SECRETS = {
    "call": {"target": "tool", "event": "before", "tools": ["look"], "actions": [{"type": "block", "reason": "no"}]},
    "result": {"target": "tool", "event": "after", "regex": "secret", "actions": [{"type": "replace", "with": "***"}]},
    "message": {"target": "chat", "regex": "secret", "actions": [{"type": "replace", "with": "***"}]},
    "stream": {"target": "stream", "regex": "secret", "actions": [{"type": "replace", "with": "***"}]},
}


@pytest.mark.parametrize("kind", RULES_OF_SECRETS)
async def test_a_rule_that_sub_agents_side_by_side_have_used_up_had_fired_by_then(kind: str, tmp_path: Path) -> None:
    """What they come to is judged once more in the caller's run, and one of them had made the rule fire for the other one."""
    (tmp_path / "rules").mkdir()
    rule = {"label": "few", "maxTriggers": 2, **RULES_OF_SECRETS[kind]}
    (tmp_path / "rules" / "rules.json").write_text(json.dumps([rule]))

    @tool
    async def look() -> str:
        return "a secret"

    def looks(request: Any) -> Any:
        result = request.messages[-1]
        two = [tool_call("look", {}, id=id) for id in ("l1", "l2")]
        return text(f"a secret: {result.text}") if result.role == "tool" else two

    child = Agent(model=FunctionModel(looks), tools=[look]).as_tool("clerk", "Looks.")
    calls = [*[tool_call("clerk", {"prompt": "look"}, id=id) for id in "ABC"], tool_call("look", {}, id="l")]
    model = FunctionModel(lambda request: text("a secret") if request.messages[-1].role == "tool" else calls)
    async with Agent(model=model, tools=[look, child], hooks=[tmp_path / "rules"], journal=tmp_path / "runs.db") as agent:
        await agent.run("go", run_id="r1")
        await agent.run("go", run_id="r2")
        assert [rule["firings"] for rule in agent.get_json_hooks()] == [2]

    report = await put(Journal(tmp_path / "runs.db"), tmp_path / "rules")
    assert report.differences == ()
