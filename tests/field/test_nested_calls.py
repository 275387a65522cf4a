"""Field cases F28, F29: a call made by code inside a tool meets the same rules as one the model asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, Block, Deny, Hook, PendingApproval, ToolContext, tool
from beforehand.testing import ScriptedModel, text, tool_call

from field.entries import Colour, Enter


def read_file(path: Path) -> str:
    """Read a file."""
    return path.read_text()


async def run_code(ctx: ToolContext, path: str) -> str:
    """Stands for a code cell: what it does with tools goes through `ctx`."""
    inner = await ctx.call_tool("read_file", {"path": path})
    return f"cell got {inner.outcome}: {inner.text}"


@pytest.mark.parametrize("written", ["{}/secrets.env", "{}/sub/../secrets.env", "{}/link"], ids=["plain", "dotted", "symlink"])
@pytest.mark.parametrize("way", ["direct", "from_code"])
async def test_f28_a_denied_read_is_denied_directly_and_from_code(
    way: str, written: str, tmp_path: Path, enter: Enter, colour: Colour
) -> None:
    secret = tmp_path / "secrets.env"
    secret.write_text("KEY=1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(secret)
    seen: list[Any] = []

    def deny(call: Any) -> Block | None:
        seen.append(call.run.parent_call_id)
        return Block("secrets stay closed") if Path(call.args["path"]) == secret.resolve() else None

    name = "read_file" if way == "direct" else "run_code"
    model = ScriptedModel([tool_call(name, {"path": written.format(tmp_path)}, id="cell"), text("ok")])
    gate = Hook(seam="before_tool_call", fn=colour(deny), tools=("read_file",))
    result = await enter(Agent(model=model, tools=[read_file, run_code], hooks=[gate]))

    told = model.requests[1].messages[-1].text
    assert "KEY=1" not in told
    assert "secrets stay closed" in told
    assert seen == [None if way == "direct" else "cell"]
    (record,) = result.decisions
    assert record.parent_call_id == (None if way == "direct" else "cell")


async def test_f28_a_read_that_is_not_denied_works_directly_and_from_code(tmp_path: Path, enter: Enter, colour: Colour) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("milk")
    gate = Hook(
        seam="before_tool_call", fn=colour(lambda c: Block("no") if "secret" in c.args["path"] else None), tools=("read_file",)
    )
    path = {"path": str(notes)}
    model = ScriptedModel([tool_call("read_file", path), tool_call("run_code", path), text("ok")])
    await enter(Agent(model=model, tools=[read_file, run_code], hooks=[gate]))

    assert model.requests[1].messages[-1].text == "milk"
    assert model.requests[2].messages[-1].text == "cell got ran: milk"


POLICIES: dict[str, tuple[Any, Any, str, int]] = {
    "allow": (lambda c: None, None, "ran: deployed", 0),
    "deny": (lambda c: Block("not here"), None, "blocked: not here", 0),
    "ask_approved": (lambda c: Ask("Deploy?"), Approve(), "ran: deployed", 1),
    "ask_declined": (lambda c: Ask("Deploy?"), Deny("not now"), "blocked: not now", 1),
}


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("way", ["direct", "nested", "nested_twice"])
async def test_f29_allow_ask_and_deny_mean_the_same_for_a_nested_call_and_a_person_is_asked_once(
    policy: str, way: str, enter: Enter, colour: Colour
) -> None:
    rule, answer, expected, prompts = POLICIES[policy]
    asked: list[PendingApproval] = []

    @tool
    async def deploy() -> str:
        return "deployed"

    @tool
    async def script(ctx: ToolContext) -> str:
        inner = await ctx.call_tool("deploy", {})
        return f"{inner.outcome}: {inner.text}"

    @tool
    async def outer_script(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("script", {})).text)

    def on_ask(pending: PendingApproval) -> Any:
        asked.append(pending)
        return answer

    name = {"direct": "deploy", "nested": "script", "nested_twice": "outer_script"}[way]
    model = ScriptedModel([tool_call(name), text("ok")])
    gate = Hook(seam="before_tool_call", fn=colour(rule), tools=("deploy",))
    await enter(Agent(model=model, tools=[deploy, script, outer_script], hooks=[gate], on_ask=on_ask))

    told = model.requests[1].messages[-1].text
    assert told == (expected.partition(": ")[2] if way == "direct" else expected)
    assert len(asked) == prompts


async def test_f29_a_nested_call_that_needs_a_person_is_refused_with_that_reason_where_nobody_can_be_asked(
    enter: Enter, colour: Colour
) -> None:
    ran = []

    @tool
    async def deploy() -> str:
        ran.append(1)
        return "deployed"

    @tool
    async def script(ctx: ToolContext) -> str:
        inner = await ctx.call_tool("deploy", {})
        return f"{inner.outcome}: {inner.text}"

    model = ScriptedModel([tool_call("script"), text("ok")])
    gate = Hook(seam="before_tool_call", fn=colour(lambda c: Ask("Deploy to production?")), tools=("deploy",))
    result = await enter(Agent(model=model, tools=[deploy, script], hooks=[gate]))

    assert ran == []
    told = model.requests[1].messages[-1].text
    assert told.startswith("blocked: ")
    assert "Deploy to production?" in told
    assert result.stop_reason == "completed"


async def test_f29_a_sub_agent_started_by_a_nested_call_cannot_wait_for_a_person_either(enter: Enter) -> None:
    ran = []

    @tool
    async def deploy() -> str:
        ran.append(1)
        return "deployed"

    @tool
    async def script(ctx: ToolContext) -> str:
        inner = await ctx.call_tool("helper", {"prompt": "go"})
        return f"{inner.outcome}: {inner.text}"

    child = ScriptedModel([tool_call("deploy"), text("child gave up")])
    helper = Agent(model=child, tools=[deploy]).as_tool("helper", "Helps.")
    model = ScriptedModel([tool_call("script"), text("ok")])
    gate = Hook(seam="before_tool_call", fn=lambda c: Ask("Deploy?"), tools=("deploy",))
    result = await enter(Agent(model=model, tools=[script, helper], hooks=[gate]))

    assert ran == []
    assert result.stop_reason == "completed"
    assert not model.requests[1].messages[-1].text.startswith("pending")
