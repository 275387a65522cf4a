"""Call ids: results are matched by id, so two calls never share one; and replies cut at their length run nothing."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import (
    Agent, Approve, Ask, AssistantMessage, Context, Deny, Hook, Replace, ToolCall, ToolContext, ToolMessage, UserMessage, tool,
)  # fmt: skip
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, ScriptedModel, finish, text, tool_call


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


# --- ids that a model means ill with --------------------------------------------------------------

HOSTILE = st.one_of(
    st.sampled_from(
        ["x", "x/1", "x/1-2", "x_1", "x_1-2", "x-2", "x-2/1", "1", "1-2", "1/1", "/", "//", "/x", "x/", "-2", "", "lambda_1",
         "lambda_1/1", "call_1_1", "call_1_2", "c\u00e4", "ca\u0308", "\ud800", "\\ud800", "\x00", "\u202e", "\u2044"]
    ),
    st.text("x1/-_2", max_size=5),
)  # fmt: skip
CALLS = st.lists(st.tuples(HOSTILE, st.booleans()), min_size=1, max_size=5)
"""The ids of a reply's calls, and of which of them a sub-agent is called."""


def delegating(replies: list[list[tuple[str, bool]]], written: bool, did: list[int], journal: Any) -> Agent:
    """An agent with a sub-agent in a sub-agent, each asking for calls with these ids. A person is asked about every `pay`."""

    @tool
    async def pay(n: int) -> str:
        did.append(n)
        return "paid"

    numbers = iter(range(1000))
    inner: Agent | None = None
    for ids in reversed(replies):

        def reply(request: Any, ids: Any = ids, below: bool = inner is not None) -> Any:
            if request.messages[-1].role == "tool":
                return text("end")
            return [tool_call("down", {"prompt": "go"}, id=i) if down and below else tool_call("pay", {"n": next(numbers)}, id=i)
                    for i, down in ids]  # fmt: skip

        def rename(incoming: Any, ids: Any = ids) -> Replace | None:
            if incoming.message.role != "assistant" or not incoming.message.tool_calls:
                return None
            calls = [
                msgspec.structs.replace(c, id=i if i and i.isprintable() else "-")
                for c, (i, _) in zip(incoming.message.tool_calls, ids, strict=True)
            ]
            return Replace(message=msgspec.structs.replace(incoming.message, content=tuple(calls)))

        hooks = [Hook(seam="before_tool_call", fn=lambda c: Ask("May it?") if c.name == "pay" else None, name="ask")]
        hooks += [Hook(seam="on_message", fn=rename, name="rename")] if written else []
        tools = [pay] + ([inner.as_tool("down", "Helps.", inherit=False)] if inner is not None else [])
        inner = Agent(model=FunctionModel(reply), tools=tools, hooks=hooks, journal=journal if ids is replies[0] else None)
    assert inner is not None
    return inner


@given(st.lists(CALLS, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_no_two_calls_that_wait_have_one_id_and_an_answer_is_for_the_call_it_was_given_about(
    replies: list[list[tuple[str, bool]]], recorded: bool, written: bool
) -> None:
    async def story(folder: str) -> None:
        did: list[int] = []
        journal = Journal(Path(folder) / "runs.db", durability="normal") if recorded else None
        agent = delegating(replies, written, did, journal)
        talk = agent.conversation()
        result = await talk.run("go", **({"run_id": "R"} if recorded else {}))
        rounds: list[int] = []
        while result.stop_reason == "suspended":
            asked = {p.call_id: p.args["n"] for p in result.pending}
            assert len(asked) == len(result.pending)
            rounds += asked.values()
            answers: Any = {call_id: Approve() if n % 2 else Deny("no") for call_id, n in asked.items()}
            result = await (agent.resume("R", answers) if recorded else talk.resume(answers))
        assert result.stop_reason == "completed"
        assert len(set(rounds)) == len(rounds), "nothing is asked twice"
        assert sorted(did) == sorted(n for n in rounds if n % 2)
        if journal is not None:
            assert verify(journal) == []
        await agent.aclose()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(story(folder))


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_repeated_id_with_a_slash_is_not_taken_for_a_call_inside_a_sub_agent(tmp_path: Path, recorded: bool) -> None:
    did: list[int] = []

    @tool
    async def pay(n: int) -> str:
        did.append(n)
        return "paid"

    ask = Hook(seam="before_tool_call", fn=lambda c: Ask("May it?") if c.name == "pay" else None, name="ask")
    inside = [tool_call("pay", {"n": 1_000_000}, id="1-2")]
    outside = [tool_call("helper", {"prompt": "go"}, id="x"), *(tool_call("pay", {"n": n}, id="x/1") for n in (1, 2))]
    child, model = [
        FunctionModel(lambda r, known=known: text("end") if r.messages[-1].role == "tool" else known)
        for known in (inside, outside)
    ]
    helper = Agent(model=child, tools=[pay]).as_tool("helper", "Helps.")
    agent = Agent(model=model, tools=[pay, helper], hooks=[ask], journal=Journal(tmp_path / "runs.db") if recorded else None)
    talk = agent.conversation()
    result = await talk.run("go")
    assert [p.call_id for p in result.pending] == ["x/1-2", "x_1", "x_1-2"]
    answers: Any = {p.call_id: Approve() if p.args["n"] < 10 else Deny("too much") for p in result.pending}
    result = await talk.resume(answers)
    assert (result.stop_reason, did) == ("completed", [1, 2])
    await agent.aclose()


async def test_an_id_that_a_runs_lambdas_go_by_is_given_to_no_call() -> None:
    model = ScriptedModel([tool_call("echo", {"x": "1"}, id="lambda_1"), text("end")])
    result = await Agent(model=model, tools=[echo]).run("go")

    assert [m.tool_call_id for m in result.messages if isinstance(m, ToolMessage)] == ["lambda_1-2"]
    assert [(d.verdict, "is kept for lambdas" in str(d.reason)) for d in result.decisions] == [("Renamed", True)]


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
