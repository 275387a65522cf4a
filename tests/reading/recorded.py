"""Recorded runs to look at, and journals as a process leaves them that dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beforehand import Agent, Ask, Block, Replace, ToolContext, hook, tool
from beforehand.journal import Journal
from beforehand.testing import ScriptedModel, text, tool_call


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}, account 12-34"


@tool(replay="safe")
async def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


@hook.before_tool_call(tools=["pay"])
def not_too_much(call: Any) -> Block | Ask | None:
    if call.args["amount"] > 900:
        return Block("more than anybody may pay")
    return Ask(f"Pay {call.args['amount']}?", options=("yes", "no")) if call.args["amount"] > 100 else None


@hook.before_tool_call
def watches(call: Any) -> None:
    """Decides nothing."""


@hook.after_tool_call(tools=["pay"])
def no_accounts(outcome: Any) -> Replace:
    return Replace(content=outcome.text.replace("12-34", "***"))


@hook.prepare_tool_call(tools=["pay"])
def at_most_five_hundred(draft: Any) -> Replace | None:
    return Replace(args={"amount": 500}) if 500 < draft.args["amount"] <= 900 else None


HOOKS = (not_too_much, watches, no_accounts, at_most_five_hundred)


def pays(amount: int, call_id: str = "p1") -> Any:
    return tool_call("pay", {"amount": amount}, id=call_id)


def looks(at: str, call_id: str = "l1") -> Any:
    return tool_call("look", {"at": at}, id=call_id)


def teller(path: Path | Journal, *replies: Any, **options: Any) -> Agent:
    """An agent that pays, with its hooks."""
    settings = {"name": "teller", "tools": [pay, look], "hooks": HOOKS, **options}
    return Agent(model=ScriptedModel(list(replies)), journal=path, **settings)


def with_sub_agent(path: Path | Journal, outer: list[Any], inner: list[Any], hooks: Any = (not_too_much,)) -> Agent:
    """An agent whose tool `sub` is another agent, which pays."""
    child = Agent(model=ScriptedModel(inner), tools=[pay], hooks=hooks, name="child")
    return Agent(
        model=ScriptedModel(outer), tools=[child.as_tool("sub", "A helper."), pay], hooks=hooks, name="parent", journal=path
    )


def cut(journal: Journal, run_id: str, path: Path, after: str, nth: int = 1) -> Journal:
    """The journal of a process that died right after the `nth` record of the kind `after` was written."""
    records = journal.records(run_id)
    end = [record.n for record in records if record.kind == after][nth - 1]
    copied = Journal(path)
    first, *rest = [(record.kind, record.at, record.body) for record in records[:end]]
    head = copied.open_run(run_id, first)
    if rest:
        copied.append(head, rest)
    return copied


__all__ = ["cut", "look", "looks", "pay", "pays", "teller", "text", "with_sub_agent"]


@tool
async def count(ctx: ToolContext) -> str:
    """Count, and tell how far it has come."""
    ctx.update("half")
    return "all"


@hook.after_tool_call
def half_is_no_result(outcome: Any) -> Replace | None:
    return Replace(content="some") if outcome.partial else None


async def counted(path: Path) -> Journal:
    """The journal of a run in which a hook had something to say about a tool's progress, and nothing about its result."""
    journal = Journal(path)
    model = ScriptedModel([tool_call("count", {}, id="c1"), text("Done.")])
    talk = Agent(model=model, tools=[count], hooks=[half_is_no_result], journal=journal).conversation()
    talk.on("tool_execution_update", lambda event: None)
    await talk.run("go", run_id="r")
    return journal
