"""Call ids: results are matched by id, so two calls never share one; and replies cut at their length run nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from beforehand import Agent, AssistantMessage, Context, Hook, Replace, ToolCall, ToolContext, ToolMessage, UserMessage, tool
from beforehand.testing import ScriptedModel, finish, text, tool_call


@tool
async def echo(x: str) -> str:
    return x


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize(
    "ids", [["c", "c"], ["c", "c", "c"], ["c", "d", "c", "d"], ["c-2", "c", "c"], ["c", "c-2", "c"]], ids="+".join
)
async def test_calls_of_one_reply_with_the_same_id_are_told_apart_and_each_has_its_own_result(ids: list[str], mode: str) -> None:
    calls = [tool_call("echo", {"x": str(n)}, id=call_id) for n, call_id in enumerate(ids)]
    model = ScriptedModel([calls, text("end")])
    result = await Agent(model=model, tools=[echo], tool_mode=mode).run("go")

    made = result.messages[1].tool_calls  # type: ignore[union-attr]
    results = [m for m in result.messages if isinstance(m, ToolMessage)]
    assert len({call.id for call in made}) == len(ids)
    assert [call.id.startswith(given) for call, given in zip(made, ids, strict=True)] == [True] * len(ids)
    assert [m.tool_call_id for m in results] == [call.id for call in made]
    assert [m.text for m in results] == [str(n) for n in range(len(ids))]
    repaired = [d for d in result.decisions if d.verdict == "Renamed"]
    assert len(repaired) == len(ids) - len(set(ids)) or "c-2" in ids
    assert repaired
    assert all("already in use" in str(d.reason) for d in repaired)


async def test_an_id_from_an_earlier_turn_is_not_used_again() -> None:
    model = ScriptedModel([tool_call("echo", {"x": "1"}, id="c"), tool_call("echo", {"x": "2"}, id="c"), text("end")])
    result = await Agent(model=model, tools=[echo]).run("go")

    ids = [call.id for m in result.messages if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert ids == ["c", "c-2"]
    assert [m.tool_call_id for m in model.requests[2].messages if isinstance(m, ToolMessage)] == ids


async def test_an_id_from_an_earlier_run_or_from_the_history_given_is_not_used_again() -> None:
    past = [UserMessage("a"), AssistantMessage((ToolCall("c", "echo", "{}"),), "tool_calls"), ToolMessage("c", "echo", "old")]
    model = ScriptedModel(
        [tool_call("echo", {"x": "1"}, id="c"), text("end"), tool_call("echo", {"x": "2"}, id="c"), text("end")]
    )
    talk = Agent(model=model, tools=[echo]).conversation(past)
    await talk.run("b")
    await talk.run("c")

    ids = [call.id for m in talk.messages if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert ids == ["c", "c-2", "c-3"]


async def test_an_id_of_the_history_is_not_used_again_after_a_hook_has_put_another_context_in_place() -> None:
    def fresh(turn: Any) -> Replace:
        return Replace(context=Context("", (UserMessage("fresh"),), turn.context.tools))

    model = ScriptedModel([tool_call("echo", {"x": "1"}, id="c"), tool_call("echo", {"x": "2"}, id="c"), text("end")])
    hooks = [Hook(seam="prepare_next_turn", fn=fresh)]
    result = await Agent(model=model, tools=[echo], hooks=hooks).run("go")

    ids = [call.id for m in result.messages if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert len(set(ids)) == 2


async def test_calls_without_an_id_get_one_each_and_nothing_is_said_about_it() -> None:
    model = ScriptedModel(
        [[tool_call("echo", {"x": "1"}), tool_call("echo", {"x": "2"})], tool_call("echo", {"x": "3"}), text("end")]
    )
    result = await Agent(model=model, tools=[echo]).run("go")

    ids = [call.id for m in result.messages if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert len(set(ids)) == 3
    assert all(ids)
    assert result.decisions == ()


async def test_hooks_events_and_context_speak_of_the_new_id() -> None:
    seen: list[Any] = []

    @tool
    async def who(ctx: ToolContext) -> str:
        return ctx.call_id

    hooks = [Hook(seam="before_tool_call", fn=lambda c: seen.append(c.call_id))]
    talk = Agent(
        model=ScriptedModel([[tool_call("who", id="c"), tool_call("who", id="c")], text("end")]), tools=[who], hooks=hooks
    ).conversation()
    talk.on("tool_execution_end", lambda e: seen.append((e.call_id, e.result.text)))
    await talk.run("go")

    assert seen == ["c", "c-2", ("c", "c"), ("c-2", "c-2")]


# --- replies cut at their length ------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_a_cut_reply_runs_none_of_its_calls_and_the_model_may_ask_again(mode: str) -> None:
    ran: list[str] = []

    @tool
    async def work(x: str) -> str:
        ran.append(x)
        return x

    cut = [tool_call("work", {"x": "whole"}, id="1"), tool_call("work", '{"x": "ha', id="2"), finish("length")]
    model = ScriptedModel([cut, tool_call("work", {"x": "again"}), text("end")])
    talk = Agent(model=model, tools=[work], tool_mode=mode).conversation()
    events: list[Any] = []
    talk.on("tool_execution_start", lambda e: events.append(("start", e.call_id)))
    talk.on("tool_execution_end", lambda e: events.append((e.outcome, e.call_id)))
    result = await talk.run("go")

    assert ran == ["again"]
    assert events[:4] == [("start", "1"), ("truncated", "1"), ("start", "2"), ("truncated", "2")]
    told = [m for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert all(m.is_error and "not run" in m.text and "work" in m.text for m in told)
    assert [m.tool_call_id for m in told] == ["1", "2"]
    assert (result.stop_reason, result.text) == ("completed", "end")


async def test_a_cut_reply_without_calls_ends_the_run_with_a_reason_of_its_own() -> None:
    model = ScriptedModel([[text("half a sen"), finish("length")]])
    result = await Agent(model=model).run("go")

    assert (result.stop_reason, result.text, len(model.requests)) == ("length", "half a sen", 1)


async def test_a_cut_reply_never_terminates_a_run_through_its_calls() -> None:
    hooks = [Hook(seam="after_tool_call", fn=lambda o: Replace(terminate=True))]
    model = ScriptedModel([[tool_call("echo", {"x": "1"}), finish("length")], text("end")])
    result = await Agent(model=model, tools=[echo], hooks=hooks).run("go")

    assert result.text == "end"


async def test_waiting_bodies_of_calls_with_one_id_are_not_confused() -> None:
    gates = {"first": asyncio.Event(), "second": asyncio.Event()}

    @tool
    async def wait(which: str) -> str:
        await gates[which].wait()
        return which

    calls = [tool_call("wait", {"which": which}, id="c") for which in gates]
    talk = Agent(model=ScriptedModel([calls, text("end")]), tools=[wait]).conversation()
    ends: list[Any] = []
    talk.on("tool_execution_end", lambda e: (ends.append((e.call_id, e.result.text)), gates["first"].set()))
    running = asyncio.create_task(talk.run("go"))
    gates["second"].set()
    await running

    assert ends == [("c-2", "second"), ("c", "first")]


@pytest.mark.parametrize(
    "changed", [{"tool_call_id": "other"}, {"tool_name": "other"}, {"origin": "prompt"}], ids=lambda c: next(iter(c))
)
async def test_a_hook_may_rewrite_a_stored_result_but_not_whose_result_it_is(changed: dict[str, Any]) -> None:
    def rewrite(incoming: Any) -> Replace | None:
        if incoming.origin != "tool":
            return None
        return Replace(message=msgspec.structs.replace(incoming.message, content="rewritten", **changed))

    model = ScriptedModel([tool_call("echo", {"x": "1"}, id="c"), text("end")])
    await Agent(model=model, tools=[echo], hooks=[Hook(seam="on_message", fn=rewrite)]).run("go")

    stored = model.requests[1].messages[-1]
    assert isinstance(stored, ToolMessage)
    assert (stored.tool_call_id, stored.tool_name, stored.text) == ("c", "echo", "rewritten")
