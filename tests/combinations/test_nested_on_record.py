"""Sub-agents that recover, summarise and have loops, inside recorded runs; what a project file adds to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beforehand import Agent, Hook, Limits, Loop, NetworkError, Text, ToolContext, UserMessage, tool
from beforehand.messages import Audio, Video
from beforehand.journal import Journal
from beforehand.testing import FunctionModel, error, text, tool_call

from combinations.cuts import World, every_cut
from journal.cutting import all_records, cut, parents


def say_turn(run: Any) -> str:
    return f"turn {run.turn}"


def turn_of(request: Any) -> int:
    return int(request.system.rpartition("turn ")[2])


async def test_a_sub_agent_that_recovers_and_summarises_goes_on_from_its_record(tmp_path: Path) -> None:
    def inside(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            return text("SUMMARY")
        turn = turn_of(request)
        return error("down") if turn == 2 else tool_call("work", {"x": turn}, id=f"w{turn}") if turn < 6 else text("inside")

    def broken(context: Any) -> None:
        if context.run.turn == 3:
            raise RuntimeError("broken in turn 3")

    def make(world: World) -> Agent:
        @tool
        async def work(ctx: ToolContext, x: int) -> str:
            world.effects.append(ctx.idempotency_key)
            return "x" * 900

        child = Agent(
            model=FunctionModel(inside), tools=[work], instructions=["Be brief.", say_turn], limits=Limits(compact_at=600),
            recovery=world.recovery(), hooks=[Hook(seam="before_provider_call", fn=broken, name="broken", where="here")],
            loops=[Loop("aside", instructions="aside", tools=["loop_*"])],
        )  # fmt: skip

        def outside(request: Any) -> Any:
            turn = turn_of(request)
            return error("down") if turn == 1 else tool_call("child", {"prompt": "go"}, id="c") if turn == 2 else text("outside")

        return Agent(
            model=FunctionModel(outside), tools=[child.as_tool("child", "Helps.")], instructions=["Be brief.", say_turn],
            journal=world.journal, recovery=world.recovery(),
        )  # fmt: skip

    whole, records = await every_cut(tmp_path, make)
    assert whole.text == "outside"
    assert {"compacted", "turn_error_retry_scheduled", "provider_retry_scheduled"} <= {d.verdict for d in whole.decisions}
    assert {r.run_id for r in records if r.kind == "retried"} == {"R", "R/c"}


async def test_the_failures_of_earlier_runs_count_when_a_run_of_that_talk_goes_on(tmp_path: Path) -> None:
    def make(world: World) -> Agent:
        model = FunctionModel(lambda request: error(NetworkError("down")))
        return Agent(model=model, journal=world.journal, recovery=world.recovery(max_attempts=3))

    world = World(tmp_path / "whole.db")
    talk = make(world).conversation()
    await talk.run("one", run_id="R1", check=False)
    await talk.run("two", run_id="R2", check=False)
    told = [d.verdict for d in talk.result.decisions]
    assert told == ["recovery_exhausted"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    at = next(i for i, r in enumerate(records) if r.run_id == "R2" and r.kind == "request")
    cut(records[: at + 1], of, tmp_path / "cut.db").close()
    again = World(tmp_path / "cut.db")
    result = await make(again).resume("R2", check=False)
    assert [d.verdict for d in result.decisions] == told
    assert again.seconds == []


async def test_a_journal_that_cannot_be_written_is_not_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path / "runs.db")

    def gone(context: Any) -> None:
        world.journal.db.execute("DROP TABLE IF EXISTS records")

    agent = Agent(
        model=FunctionModel(lambda r: text("never")), journal=world.journal, recovery=world.recovery(),
        hooks=[Hook(seam="before_provider_call", fn=gone, name="gone")],
    )  # fmt: skip
    result = await agent.run("go", check=False)
    assert type(result.error).__name__ == "JournalError"
    assert world.seconds == []
    assert agent.plan.model.requests == []


async def test_the_owner_of_a_project_forbids_what_the_tool_allows(tmp_path: Path) -> None:
    (tmp_path / "beforehand.toml").write_text('[[tools]]\nname = "look"\nreplay = "never"\n')
    effects: list[str] = []

    @tool(replay="safe")
    async def look(ctx: ToolContext) -> str:
        effects.append(ctx.idempotency_key)
        return "seen"

    def make(path: Path) -> Agent:
        model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else tool_call("look", id="c"))
        return Agent.from_project(
            tmp_path / "beforehand.toml", tools=[look], model=model, journal=Journal(path, durability="normal")
        )

    await make(tmp_path / "whole.db").run([UserMessage("go")], run_id="R")
    records = all_records(tmp_path / "whole.db")
    intent = next(i for i, r in enumerate(records) if r.kind == "intent")
    assert (records[intent].data["replay"], records[intent].data["by"]) == ("never", "owner")
    cut(records[: intent + 1], {"R": None}, tmp_path / "cut.db").close()
    effects.clear()
    result = await make(tmp_path / "cut.db").resume("R")
    assert effects == []
    assert [d.verdict for d in result.decisions] == ["Uncertain"]


async def test_sound_and_film_survive_failures_summaries_and_cuts(tmp_path: Path) -> None:
    def make(world: World) -> Agent:
        def reply(request: Any) -> Any:
            if request.system.startswith("Summarise"):
                return text("SUMMARY")
            turn = turn_of(request)
            kinds = ",".join(type(p).__name__ for m in request.messages if type(m.content) is tuple for p in m.content)
            return error("down") if turn == 1 else tool_call("look", id=f"l{turn}") if turn < 5 else text(kinds or "none left")

        @tool
        async def look(ctx: ToolContext) -> str:
            world.effects.append(ctx.idempotency_key)
            return "x" * 1200

        return Agent(
            model=FunctionModel(reply), tools=[look], instructions=["Be brief.", say_turn], journal=world.journal,
            recovery=world.recovery(), limits=Limits(compact_at=2600),
        )  # fmt: skip

    prompt = [UserMessage((Text("hear"), Audio("UklGRg=="), Video("https://example.org/a.mp4")))]
    whole, _ = await every_cut(tmp_path, make, prompt)
    assert "compacted" in {d.verdict for d in whole.decisions}
    assert whole.messages[0] == prompt[0]


async def test_the_hook_of_a_project_is_not_asked_again_about_a_recorded_request(tmp_path: Path) -> None:
    from beforehand.sandbox import close_spares

    (tmp_path / "agent" / "lib").mkdir(parents=True)
    policy = tmp_path / "agent" / "lib" / "policy.py"
    policy.write_text(
        "async def transform(c):\n"
        "    await adf.loop_inject(content='by policy') if len(c['request']['messages']) == 1 else None\n"
        "    return c['request']\n"
    )
    (tmp_path / "beforehand.toml").write_text('workspace = "agent"\n[pre_llm_hook]\nsource = "lib/policy.py:transform"\n')

    def make(world: World) -> Agent:
        @tool
        async def look(ctx: ToolContext) -> str:
            world.effects.append(ctx.idempotency_key)
            return "seen"

        def reply(request: Any) -> Any:
            seen = [m.text for m in request.messages if m.role == "user"]
            return text(str(seen)) if any(m.role == "tool" for m in request.messages) else tool_call("look", id="c")

        return Agent.from_project(
            tmp_path / "beforehand.toml", tools=[look], model=FunctionModel(reply), journal=world.journal,
            recovery=world.recovery(),
        )  # fmt: skip

    try:
        whole, _ = await every_cut(tmp_path, make)
        assert whole.text == "['go', 'by policy']"
    finally:
        await close_spares()


async def test_code_that_a_tool_runs_queues_its_message_once(tmp_path: Path) -> None:
    from beforehand.sandbox import close_spares
    from beforehand.workspace import Workspace, code_tools

    (tmp_path / "agent" / "lib").mkdir(parents=True)
    (tmp_path / "agent" / "lib" / "x.py").write_text("async def main(a):\n    return await adf.loop_inject(content='by code')\n")

    def make(world: World) -> Agent:
        tools, hooks = code_tools(Workspace(tmp_path / "agent"))

        def reply(request: Any) -> Any:
            seen = [m.text for m in request.messages if m.role == "user"]
            run = any(m.role == "tool" for m in request.messages)
            return text(str(seen)) if run else tool_call("sys_lambda", {"source": "lib/x.py:main"}, id="c")

        return Agent(
            model=FunctionModel(reply), tools=tools, hooks=hooks, journal=world.journal, recovery=world.recovery()
        )

    try:
        whole, _ = await every_cut(tmp_path, make)
        assert whole.text == "['go', 'by code']"
    finally:
        await close_spares()
