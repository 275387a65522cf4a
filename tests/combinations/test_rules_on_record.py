"""Rule files and a journal: limits on firings and on resends count across a resume, in groups of rules too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Hook, Interrupt, Limits, Resend, ToolContext, tool
from beforehand.testing import FunctionModel, error, text, tool_call

from combinations.cuts import World, every_cut
from journal.cutting import all_records, cut, parents


def work(world: World) -> Any:
    @tool
    async def work(ctx: ToolContext, x: int = 0) -> str:
        world.effects.append(ctx.idempotency_key)
        return f"worked {x}"

    return work


def say_turn(run: Any) -> str:
    return f"turn {run.turn}"


def working(turns: int, down: Any = ()) -> FunctionModel:
    def reply(request: Any) -> Any:
        turn = int(request.system.rpartition("turn ")[2])
        if turn in down:
            return error("down")
        return [text(f"I work {turn}"), tool_call("work", {"x": turn}, id=f"c{turn}")] if turn < turns else text("done")

    return FunctionModel(reply)


def rules(folder: Path, *written: dict[str, Any]) -> Path:
    (folder / "rules").mkdir(exist_ok=True)
    (folder / "rules" / "a.json").write_text(json.dumps(list(written)))
    return folder / "rules"


def queued(label: str) -> list[dict[str, Any]]:
    return [{"type": "queue-message", "role": "user", "message": f"remember {label}"}]


BLOCK = [{"type": "block", "reason": "no"}]
LIMITED: dict[str, dict[str, Any]] = {
    "tool": {"target": "tool", "event": "before", "regex": "x", "actions": BLOCK},
    "result": {"target": "tool", "event": "after", "regex": "worked", "actions": queued("result")},
    "reply": {"target": "chat", "roles": ["assistant"], "regex": "work", "actions": queued("reply")},
    "stream": {"target": "stream", "regex": "I work", "actions": [{"type": "replace", "with": "I do"}]},
    "request": {"target": "request", "actions": [{"type": "log", "message": "request"}]},
}


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a group"])
@pytest.mark.parametrize("kind", LIMITED)
async def test_a_rule_fires_as_often_as_it_may_however_often_the_run_is_cut(tmp_path: Path, kind: str, grouped: bool) -> None:
    rule = {**LIMITED[kind], "label": "limited", "maxTriggers": 2}
    fillers = [
        {"target": "tool", "event": "before", "label": f"f{n}", "args": {"/x": {"equals": 1000 + n}}, "actions": BLOCK}
        for n in range(20 if grouped else 0)
    ]
    folder = rules(tmp_path, *fillers, rule, *fillers)
    firings: list[int] = []

    def make(world: World) -> Agent:
        agent = Agent(
            model=working(6, down={3}), tools=[work(world)], instructions=["Be brief.", say_turn], hooks=[folder],
            journal=world.journal, recovery=world.recovery(), limits=Limits(max_turns=9),
        )  # fmt: skip
        close = agent.plan.model.aclose

        async def count() -> None:
            firings.extend(r["firings"] for r in agent.get_json_hooks() if r["label"] == "limited")
            await close()

        agent.plan.model.aclose = count
        return agent

    whole, _ = await every_cut(tmp_path, make)
    assert whole.stop_reason == "completed"
    assert firings[0] == 2
    assert set(firings) <= {0, 1, 2}, "a finished run counts nothing, a resumed one as often as it may"


@pytest.mark.parametrize("limits", [Limits(max_resends=2), Limits(max_resends_per_hook=2), Limits(max_resends=3)])
@pytest.mark.parametrize("seam", ["on_message", "after_tool_call", "before_tool_call", "finish_turn", "on_chunk"])
async def test_resends_are_counted_across_a_resume(tmp_path: Path, seam: str, limits: Limits) -> None:
    def fn(context: Any) -> Any:
        if seam == "finish_turn":
            return Resend()
        if seam == "on_message" and context.message.role != "assistant":
            return None
        return Interrupt("again", resend=True)

    def make(world: World) -> Agent:
        return Agent(
            model=working(9, down={2}), tools=[work(world)], instructions=["Be brief.", say_turn],
            hooks=[Hook(seam=seam, fn=fn, name="again", where="here")], journal=world.journal, recovery=world.recovery(),
            limits=limits,
        )  # fmt: skip

    whole, _ = await every_cut(tmp_path, make)
    assert whole.stop_reason == ("resend_limit" if seam != "finish_turn" else whole.stop_reason)


@pytest.mark.parametrize("whose", ["the caller's", "its own"])
async def test_a_rule_fires_inside_a_sub_agent_as_often_as_it_may_however_often_the_run_is_cut(
    tmp_path: Path, whose: str
) -> None:
    """Both have loaded a file of the same name, with a rule in the same place that has a limit of its own."""
    folders = {}
    for name, regex, most in (("outer", "x", 2), ("inner", "never", 9)) if whose == "the caller's" else (
        ("outer", "never", 9), ("inner", "x", 2)
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        rule = {"target": "tool", "event": "before", "regex": regex, "actions": BLOCK, "label": "limited", "maxTriggers": most}
        folders[name] = rules(tmp_path / name, rule)

    @tool(replay="safe")
    async def add(x: int) -> str:
        return f"worked {x}"

    def calling(request: Any) -> Any:
        n = sum(m.role == "tool" for m in request.messages)
        return text("done") if n == 4 else tool_call("add", {"x": n}, id=f"a{n}")

    def asking(request: Any) -> Any:
        return text("over") if request.messages[-1].role == "tool" else tool_call("helper", {"prompt": "go"}, id="h")

    def make(path: Path) -> Agent:
        helper = Agent(model=FunctionModel(calling), tools=[add], hooks=[folders["inner"]]).as_tool("helper", "Helps.")
        return Agent(model=FunctionModel(asking), tools=[helper], hooks=[folders["outer"]], journal=path, journal_raw=True)

    async with make(tmp_path / "whole.db") as whole:
        await whole.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for end in range(1, len(records)):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        async with make(tmp_path / f"{end}.db") as again:
            assert (await again.resume("R")).text == "over"
            inside = again.plan.journal.records("R/h")
            outcomes = [r.data["outcome"] for r in inside if r.kind == "outcome"]
            assert outcomes == ["blocked", "blocked", "ran", "ran"], f"{end}: {records[end - 1].kind}"
            if whose == "the caller's" and "R/h" in {r.run_id for r in records[:end]}:
                limit = [r["firings"] for r in again.get_json_hooks() if r["label"] == "limited"]
                over = any(r.run_id == "R" and r.kind == "end" for r in records[:end])
                assert limit == [2] or over, f"{end}: {records[end - 1].kind}"


@pytest.mark.parametrize("deep", [False, True], ids=["in a sub-agent", "in one of that"])
async def test_a_rule_of_a_sub_agent_fires_as_often_as_it_may_however_often_the_run_is_cut(tmp_path: Path, deep: bool) -> None:
    """It keeps two calls from running, and lets the third one pass, though those before are over."""
    folder = rules(tmp_path, {**LIMITED["tool"], "regex": "1", "label": "limited", "maxTriggers": 2})

    def once(name: str, args: dict[str, Any]) -> FunctionModel:
        calls = [tool_call(name, args, id="k")]
        return FunctionModel(lambda request: text("done") if any(m.role == "tool" for m in request.messages) else calls)

    def go_on(request: Any) -> Any:
        done = sum(m.role == "tool" for m in request.messages)
        return tool_call("sub", {"prompt": "p"}, id=f"c{done}") if done < 3 else text("done")

    def agent(world: World) -> Agent:
        inner = Agent(model=once("work", {"x": 1}), tools=[work(world)], hooks=[folder])
        if deep:
            inner = Agent(model=once("deeper", {"prompt": "p"}), tools=[inner.as_tool("deeper", "It works.")])
        return Agent(model=FunctionModel(go_on), tools=[inner.as_tool("sub", "It works.")], journal=world.journal)

    whole = World(tmp_path / "whole.db")
    assert (await agent(whole).run("go", run_id="R")).error is None
    assert len(whole.effects) == 1
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in [k for k, r in enumerate(records, 1) if r.kind == "outcome" and r.run_id == "R"]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        await agent(again).resume("R")
        begun = [r for r in all_records(tmp_path / f"{k}.db") if r.kind == "intent" and r.data["name"] == "work"]
        assert len(begun) == 1, f"cut after record {k}"


async def test_what_a_rule_fired_for_a_call_counts_from_when_that_is_on_record(tmp_path: Path) -> None:
    """Of two calls side by side one is decided, and the other is with a slow hook when the process ends: it is asked again."""
    limited = {"target": "tool", "event": "before", "tools": ["danger"], "label": "limited", "maxTriggers": 2, "actions": BLOCK}
    folder = rules(tmp_path, limited)
    ran: list[str] = []

    def agent(place: Path) -> Agent:
        fired, decided = asyncio.Event(), asyncio.Event()

        async def slow(call: Any) -> None:
            if call.call_id.endswith("/2"):
                fired.set()
                await decided.wait()
            else:
                await fired.wait()

        @tool(replay="safe")
        async def both(ctx: ToolContext) -> str:
            async def first() -> str:
                result = await ctx.call_tool("danger", {"q": "a"})
                decided.set()
                return result.text

            async def second() -> str:
                return (await ctx.call_tool("danger", {"q": "b"})).text

            calls = [asyncio.ensure_future(first()), asyncio.ensure_future(second())]
            return " ".join([await call for call in calls])

        @tool
        async def danger(q: str) -> str:
            ran.append(q)
            return "done"

        hooks = [folder, Hook(seam="before_tool_call", fn=slow, tools=("danger",), name="slow", order=9, where="here")]
        model = FunctionModel(lambda r: text("end") if any(m.role == "tool" for m in r.messages) else tool_call("both", {}))
        return Agent(model=model, tools=[both, danger], hooks=hooks, journal=World(place).journal)

    await agent(tmp_path / "whole.db").run("go", run_id="R")
    assert ran == []
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in range(2, len(records)):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        await agent(tmp_path / f"{k}.db").resume("R")
        assert ran == [], f"cut after record {k} ({records[k - 1].kind})"
