"""What the core adds to a result after the hooks at 13 (that it was cut, or that a person has changed the call) is not theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, Block, Edit, Hook, Interrupt, Limits, Queue, Replace, hook, tool
from beforehand.backtest import Backtest, backtest
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal
from beforehand.testing import ScriptedModel, text, tool_call


@tool
def read(page: str) -> str:
    """Read a page."""
    if page == "torn":
        raise ValueError("the page is torn from side to side")
    return f"{page}: " + 30 * "a" + " END"


@hook.before_tool_call(tools=["read"])
def asks(call: Any) -> Ask | None:
    return Ask("May it?") if call.args["page"] == "secret" else None


def not_whole(text: str) -> bool:
    return "cut:" in text or "A person changed" in text


LOOKS = {
    "replaces": hook.after_tool_call(lambda o: Replace(content="not whole") if not_whole(o.text) else None),
    "replaces, and it is cut": hook.after_tool_call(lambda o: Replace(content=f"again {o.text}") if "END" in o.text else None),
    "interrupts": hook.after_tool_call(lambda o: Interrupt("not whole") if not_whole(o.text) else None),
    "fails": hook.after_tool_call(lambda o: 1 / 0 if not_whole(o.text) else None),  # type: ignore[arg-type,return-value]
    "queues": hook.after_tool_call(lambda o: Queue("not whole") if not_whole(o.text) else None),
    "sees what is stored": hook.on_message(
        lambda m: None if m.message.role != "tool" or not_whole(m.message.text) else Interrupt("whole")
    ),
    "sees what leaves": hook.authorize_request(
        lambda o: Block("whole") if [m for m in o.request.messages if m.role == "tool" and not not_whole(m.text)] else None
    ),
}  # fmt: skip


async def recorded(path: Path, hooks: list[Hook], raw: bool) -> Journal:
    calls = [tool_call("read", {"page": page}, id=page) for page in ("long", "torn", "secret")]
    calls += [tool_call("read", {"side": 1}, id="invalid"), tool_call("write_it_down_in_the_large_book", {}, id="unknown")]
    async with Agent(
        model=ScriptedModel([calls, text("done")]), tools=[read], hooks=hooks, limits=Limits(max_result_chars=20),
        journal=path, durability="normal", journal_raw=raw,
    ) as agent:  # fmt: skip
        result = await agent.run("go", run_id="r1", check=False)
        assert result.stop_reason == "suspended"
        await agent.resume("r1", {"secret": Edit({"page": "public"})}, check=False)
    return Journal(path)


async def put(journal: Journal, *hooks: Hook) -> Backtest:
    report = await backtest(journal, lambda loop: HookSet(hooks, loop))
    assert report.unreadable == ()
    return report


@pytest.mark.parametrize("raw", [False, True], ids=["as read", "raw"])
@pytest.mark.parametrize("case", LOOKS)
async def test_the_same_hooks_change_nothing(case: str, raw: bool, tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", [asks, LOOKS[case]], raw)
    report = await put(journal, asks, LOOKS[case])
    assert (report.differences, report.unknown) == ((), 0)


@pytest.mark.parametrize(("raw", "touched"), [(False, ["long", "torn", "secret"]), (True, [])], ids=["as read", "raw"])
async def test_other_hooks_see_a_result_as_the_journal_keeps_it(raw: bool, touched: list[str], tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", [asks], raw)
    report = await put(journal, asks, LOOKS["queues"])
    assert [(d.kind, d.call_id) for d in report.differences] == [("effects_differ", call) for call in touched]


async def test_what_an_edited_call_came_to_is_no_difference_without_a_limit(tmp_path: Path) -> None:
    path, hooks = tmp_path / "runs.db", [asks, LOOKS["replaces"]]
    model = ScriptedModel([tool_call("read", {"page": "secret"}, id="c1"), text("done")])
    async with Agent(model=model, tools=[read], hooks=hooks, journal=path) as agent:
        await agent.run("go", run_id="r1")
        await agent.resume("r1", {"c1": Edit({"page": "public"})})
    assert (await put(Journal(path), *hooks)).differences == ()


async def test_a_difference_names_the_hook_whose_word_counts(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", [asks], raw=True)
    no = Hook(seam="before_tool_call", fn=lambda call: Block("no"), name="no", tools=["read"])
    later = Hook(seam="before_tool_call", fn=lambda call: Ask("sure?"), name="later", tools=["read"])
    upper = Hook(seam="after_tool_call", fn=lambda o: Replace(content=o.text.upper()), name="upper")
    also = Hook(seam="after_tool_call", fn=lambda o: Queue("seen"), name="also")

    report = await put(journal, asks, no, later, upper, also)

    assert {(d.kind, d.seam, d.hook) for d in report.differences} == {
        ("newly_blocked", "before_tool_call", "no"), ("refused_differently", "before_tool_call", "no"),
        ("rewritten_differently", "after_tool_call", "upper"),
    }  # fmt: skip


async def test_a_hook_in_the_shadow_that_counts_is_named_too() -> None:
    no = Hook(seam="before_tool_call", fn=lambda call: Block("no"), name="no")
    later = Hook(seam="before_tool_call", fn=lambda call: Ask("sure?"), name="later")
    model = ScriptedModel([tool_call("read", {"page": "long"}), text("done")])
    result = await Agent(model=model, tools=[read], shadow_hooks=[no, later], on_ask=lambda _: Approve()).run("go")
    assert [(d.hook, d.would) for d in result.shadow] == [("no", "Block(no)")]
