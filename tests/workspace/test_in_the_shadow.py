"""A lambda among the hooks in the shadow, or put to a past run, does nothing: it may read its workspace, and that is all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Block, Hook, ToolContext, tool
from beforehand.backtest import backtest
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal
from beforehand.testing import FunctionModel, text, tool_call
from beforehand.workspace import Lambda, Workspace

ACTS = {
    "pay": "amount=3",
    "model_invoke": "prompt='Which?'",
    "loop_inject": "content='injected'",
    "fs_write": "path='new.txt', content='written'",
    "fs_delete": "path='kept.txt'",
    "sys_set_meta": "key='k', value='v'",
    "sys_delete_meta": "key='k'",
    "emit_event": "event_type='custom.seen'",
    "task_resolve": "task_id='c1', action='approve'",
}
READS = {"fs_read": "path='kept.txt'", "fs_list": "", "sys_get_meta": "key='k'", "sys_get_config": ""}
SEAMS = ["before_tool_call", "transform_context", "on_chunk"]

told: list[Any] = []
paid: list[int] = []


@tool
async def pay(amount: int) -> str:
    paid.append(amount)
    return "paid"


@tool
async def work() -> str:
    return "worked"


def reply(request: Any) -> Any:
    told.append([message.text for message in request.messages])
    return text("done") if any(message.role == "tool" for message in request.messages) else tool_call("work", {}, id="c1")


def gate_that(place: Path, method: str, given: str, seam: str) -> tuple[Any, list[str]]:
    """A lambda that makes this call, and what is told of the events of its workspace."""
    (place / "kept.txt").write_text("kept")
    (place / "lib" / "gate.py").write_text(f"async def gate(c):\n    await adf.{method}({given})\n    return None\n")
    events: list[str] = []
    workspace = Workspace(place, on_event=lambda name, payload: events.append(name))
    workspace.change_meta(lambda meta: meta.update(k="before"))
    tools = ("work",) if seam == "before_tool_call" else ()
    return Lambda("lib/gate.py:gate", seam=seam, workspace=workspace, timeout=60, name="gate", tools=tools), events


def files(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seam", SEAMS)
@pytest.mark.parametrize("method", ACTS)
async def test_it_has_no_effect(place: Path, tmp_path: Path, method: str, seam: str) -> None:
    gate, events = gate_that(place, method, ACTS[method], seam)
    before = files(place)
    told.clear()
    paid.clear()
    agent = Agent(model=FunctionModel(reply), tools=[pay, work], shadow_hooks=[gate], journal=tmp_path / "runs.db")

    result = await agent.run("go", run_id="r")
    report = await backtest(agent.plan.journal, lambda loop: HookSet([gate], loop))

    assert (result.text, paid, events, files(place)) == ("done", [], [], before)
    assert told == [["go"], ["go", "", "worked"]]
    assert [message.text for message in result.messages] == ["go", "", "worked", "done"]
    assert result.decisions == ()
    for found in (result.shadow, report.differences):
        assert {(d.kind, d.seam) for d in found} == {("newly_blocked", seam)}
    assert f"adf.{method} was not called: this hook is in the shadow" in report.differences[0].would
    await agent.aclose()


@pytest.mark.parametrize("method", READS)
async def test_it_may_read(place: Path, tmp_path: Path, method: str) -> None:
    gate, _ = gate_that(place, method, READS[method], "before_tool_call")
    agent = Agent(model=FunctionModel(reply), tools=[pay, work], shadow_hooks=[gate], journal=tmp_path / "runs.db")

    result = await agent.run("go", run_id="r")
    report = await backtest(agent.plan.journal, lambda loop: HookSet([gate], loop))

    assert (result.shadow, report.differences) == ((), ())
    await agent.aclose()


def limit(name: str, amount: int) -> Hook:
    def block(call: Any) -> Block | None:
        return Block(name) if call.args["amount"] == amount else None

    return Hook(seam="before_tool_call", tools=("pay",), fn=block, name=name, where="here")


@pytest.mark.parametrize("seam", ["before_tool_call", "transform_context"])
async def test_what_a_lambda_did_in_a_past_run_is_put_to_other_hooks(place: Path, tmp_path: Path, seam: str) -> None:
    lines = ["async def gate(c):", "    await adf.pay(amount=3)", "    try:", "        await adf.pay(amount=4)"]
    (place / "lib" / "gate.py").write_text("\n".join([*lines, "    except Exception: pass"]))
    tools = ("work",) if seam == "before_tool_call" else ()
    gate = Lambda("lib/gate.py:gate", seam=seam, workspace=place, timeout=60, name="gate", tools=tools)
    journal = tmp_path / "runs.db"
    agent = Agent(model=FunctionModel(reply), tools=[pay, work], hooks=[gate, limit("no four", 4)], journal=journal)
    await agent.run("go", run_id="r")
    paid.clear()

    same = await backtest(agent.plan.journal, lambda loop: HookSet([gate, limit("no four", 4)], loop))
    other = await backtest(agent.plan.journal, lambda loop: HookSet([limit("no three", 3)], loop))

    assert (same.differences, same.unreadable, paid) == ((), (), [])
    by = ["c1/lambda_1"] if seam == "before_tool_call" else ["lambda_1", "lambda_2"]
    found = [(d.kind, d.call_id, d.turn) for d in other.differences]
    assert found == [
        (kind, f"{lambda_id}/{n}", turn)
        for turn, lambda_id in enumerate(by, 1) for n, kind in ((1, "newly_blocked"), (2, "newly_allowed"))
    ]  # fmt: skip
    await agent.aclose()


async def test_a_call_of_a_lambda_that_was_cut_off_is_put_to_other_hooks_too(place: Path, tmp_path: Path) -> None:
    (place / "lib" / "gate.py").write_text("async def gate(c):\n    await adf.pay(amount=3)\n")
    gate = Lambda("lib/gate.py:gate", seam="before_tool_call", workspace=place, timeout=60, name="gate", tools=["work"])
    agent = Agent(model=FunctionModel(reply), tools=[pay, work], hooks=[gate], journal=tmp_path / "runs.db")
    await agent.run("go", run_id="r")
    records = agent.plan.journal.records("r")
    begins = next(n for n, r in enumerate(records, 1) if r.kind == "intent" and r.data["name"] == "pay")
    first, *rest = [(r.kind, r.at, r.body) for r in records[:begins]]
    cut = Journal(tmp_path / "cut.db")
    cut.append(cut.open_run("r", first), rest)

    report = await backtest(cut, lambda loop: HookSet([gate, limit("no three", 3)], loop))

    assert [(d.kind, d.call_id) for d in report.differences] == [("newly_blocked", "c1/lambda_1/1")]
    cut.close()
    await agent.aclose()


async def test_a_call_that_a_model_has_named_like_a_lambda_is_judged_once(tmp_path: Path) -> None:
    @tool
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call_tool("pay", {"amount": 4})).text  # type: ignore[no-any-return]

    asks = FunctionModel(lambda request: text("done") if len(request.messages) > 1 else tool_call("outer", {}, id="lambda_1"))
    agent = Agent(model=asks, tools=[pay, outer], hooks=[limit("no four", 4)], journal=tmp_path / "runs.db")
    await agent.run("go", run_id="r")

    report = await backtest(agent.plan.journal, lambda loop: HookSet([limit("no four", 4)], loop))

    assert (report.differences, report.values) == ((), 2)
