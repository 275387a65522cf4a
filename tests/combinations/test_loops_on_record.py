"""Inner loops that keep a journal: a loop's run goes on as that loop's, and what it wakes is waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Block, Hook, Limits, Loop, ToolContext, UsageError, tool
from beforehand.errors import ConfigError
from beforehand.journal import verify
from beforehand.testing import FunctionModel, text, tool_call

from combinations.cuts import World
from journal.cutting import all_records, cut, parents, uncertain
from journal.stories import came_to


def tools(world: World) -> list[Any]:
    @tool
    async def look(ctx: ToolContext, n: int) -> str:
        world.effects.append(f"look {ctx.idempotency_key}")
        return f"saw {n}"

    @tool
    async def pay(ctx: ToolContext, n: int) -> str:
        world.effects.append(f"pay {ctx.idempotency_key}")
        return f"paid {n}"

    return [look, pay]


def only_in(loop: str, asked: list[str]) -> Hook:
    def fn(call: Any) -> None:
        asked.append(f"{call.run.loop} {call.name}")

    return Hook(seam="before_tool_call", fn=fn, name=f"only {loop}", loops=[loop], where="here")


def replies(request: Any) -> Any:
    """Both streams say what they are and what they have: it must not change on resume."""
    results = [m for m in request.messages if m.role == "tool"]
    have = ",".join(sorted(t.name for t in request.tools))
    name = request.system.partition(":")[0]
    if len(results) < 2:
        return tool_call("look", {"n": len(results)}, id=f"c{len(results)}")
    return text(f"{name} with {have}")


def agent_of(world: World, asked: list[str]) -> Agent:
    mains = FunctionModel(lambda request: text("main's model"))
    return Agent(
        model=mains, instructions="main: pay.", tools=tools(world), journal=world.journal,
        hooks=[only_in("main", asked), only_in("mail", asked)], recovery=world.recovery(), limits=Limits(max_turns=9),
        loops=[Loop("mail", instructions=["mail: look.", say_loop], tools=["look", "loop_*"], model=FunctionModel(replies))],
    )  # fmt: skip


def say_loop(run: Any) -> str:
    return f"loop {run.loop}"


async def test_a_run_of_an_inner_loop_goes_on_with_that_loops_tools_hooks_instructions_and_model(tmp_path: Path) -> None:
    world, asked = World(tmp_path / "whole.db"), []
    agent = agent_of(world, asked)
    expected = came_to(await agent.conversation().loop("mail").run("go", run_id="R"))
    assert expected["text"] == "mail with look,loop_list,loop_send"
    assert asked == ["mail look"] * 2
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in range(1, len(records) + 1):
        if uncertain(records[:k]):
            continue
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again, heard = World(tmp_path / f"{k}.db"), []
        resumed = agent_of(again, heard)
        assert came_to(await resumed.resume("R")) == expected, f"cut after {k}"
        assert not set(again.effects) & {f"look R:{r.data['call']}" for r in records[:k] if r.kind == "outcome"}
        assert set(heard) <= {"mail look"}
        assert verify(again.journal) == []


async def test_the_events_of_a_resumed_loop_carry_its_name(tmp_path: Path) -> None:
    world = World(tmp_path / "whole.db")
    await agent_of(world, []).conversation().loop("mail").run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    at = next(i for i, r in enumerate(records) if r.kind == "outcome")
    cut(records[: at + 1], {"R": None}, tmp_path / "cut.db").close()
    stream = agent_of(World(tmp_path / "cut.db"), []).stream_resume("R")
    events = [event async for event in stream]
    assert {event.loop for event in events} == {"mail"}
    assert events[-1].messages[-1].text == "mail with look,loop_list,loop_send"


async def test_a_loops_run_is_refused_by_a_conversation_that_is_not_that_loop(tmp_path: Path) -> None:
    world = World(tmp_path / "runs.db")
    agent = agent_of(world, [])
    talk = agent.conversation()
    await talk.loop("mail").run("go", run_id="R")
    await talk.run("hello", run_id="M")
    with pytest.raises(UsageError, match="loop 'mail'"):
        await agent.conversation().resume_recorded("R")
    with pytest.raises(UsageError, match="loop 'main'"):
        await agent.conversation().loop("mail").resume_recorded("M")
    assert (await agent.resume("M")).text == "main's model"


async def test_a_loop_that_is_gone_is_named_in_one_line(tmp_path: Path) -> None:
    world = World(tmp_path / "runs.db")
    await agent_of(world, []).conversation().loop("mail").run("go", run_id="R")
    with pytest.raises(ConfigError, match="there is no inner loop 'mail'"):
        await agent_of(world, []).replace(loops=()).resume("R")


# --- messages between loops ----------------------------------------------------------------------


def sender(world: World, note: dict[str, str]) -> Agent:
    """Main sends to mail, mail looks and answers main."""

    def mains(request: Any) -> Any:
        last = request.messages[-1]
        if last.role == "user" and last.text == "go":
            return tool_call("loop_send", {"to": "mail", "message": "look it up"}, id="s")
        return text("sent" if last.role == "tool" else f"heard: {last.text}")

    def mail(request: Any) -> Any:
        done = [m for m in request.messages if m.role == "tool"]
        if not done:
            return tool_call("look", {"n": 1}, id="l")
        if len(done) == 1:
            return tool_call("loop_send", {"to": "main", "message": f"it says {done[0].text}"}, id="a")
        note["mail"] = "done"
        return text("mail is done")

    return Agent(
        model=FunctionModel(mains), instructions="main", tools=[*tools(world)], journal=world.journal,
        loops=[Loop("mail", instructions="mail", tools=["look", "loop_send"], model=FunctionModel(mail))],
        hooks=(), recovery=world.recovery(),
    )  # fmt: skip


async def test_a_resumed_run_waits_for_the_loops_that_it_wakes(tmp_path: Path) -> None:
    world, note = World(tmp_path / "whole.db"), {}
    await sender(world, note).run("go", run_id="R")
    assert note == {"mail": "done"}
    records = [r for r in all_records(tmp_path / "whole.db") if r.run_id == "R"]
    at = next(i for i, r in enumerate(records) if r.kind == "reply")
    cut(records[: at + 1], {"R": None}, tmp_path / "cut.db").close()
    again, note = World(tmp_path / "cut.db"), {}
    await sender(again, note).resume("R")
    assert note == {"mail": "done"}
    assert len(again.effects) == 1
    at = next(i for i, r in enumerate(records) if r.kind == "outcome")
    cut(records[: at + 1], {"R": None}, tmp_path / "sent.db").close()
    again, note = World(tmp_path / "sent.db"), {}
    result = await sender(again, note).resume("R")
    assert (again.effects, note) == ([], {}), "the message has been sent already"
    assert result.stop_reason == "completed"


async def test_every_run_that_a_message_woke_goes_on_wherever_the_process_ended(tmp_path: Path) -> None:
    world, note = World(tmp_path / "whole.db"), {}
    await sender(world, note).run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    woken = [r.run_id for r in records if r.kind == "run" and r.data["loop"] == "mail"]
    assert len(woken) == 1
    for k in range(1, len(records) + 1):
        kept = records[:k]
        if not any(r.run_id == woken[0] for r in kept) or uncertain(kept):
            continue
        cut(kept, of, tmp_path / f"{k}.db").close()
        again, note = World(tmp_path / f"{k}.db"), {}
        result = await sender(again, note).resume(woken[0])
        assert result.text == "mail is done", f"cut after {k}"
        looked = any(r.kind == "outcome" and r.run_id == woken[0] and r.data["name"] == "look" for r in kept)
        assert len(again.effects) == (not looked)
        assert verify(again.journal) == []


async def test_a_backtest_of_a_loops_runs_asks_that_loops_hooks(tmp_path: Path) -> None:
    from beforehand.backtest import backtest
    from beforehand.hooks.registry import HookSet

    world = World(tmp_path / "runs.db")
    await agent_of(world, []).conversation().loop("mail").run("go", run_id="R")
    no = Hook(seam="before_tool_call", fn=lambda call: Block("never"), name="no", loops=["mail"])
    report = await backtest(world.journal, lambda loop: HookSet([no], loop))
    assert report.unreadable == ()
    assert [d.loop for d in report.differences] == ["mail", "mail"]
    elsewhere = Hook(seam="before_tool_call", fn=lambda call: Block("never"), name="no", loops=["main"])
    assert (await backtest(world.journal, lambda loop: HookSet([elsewhere], loop))).differences == ()
