"""Field cases F13, F14, F18, F25: a refusal holds, reaches the model with its reason, and comes before the request."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Ask, AssistantMessage, Block, Continue, Deny, End, Hook, Interrupt, Queue, Replace, Resend, Steer,
    ToolCall, ToolContext, hook, tool,
)  # fmt: skip
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call

from field.entries import Colour, Enter, say

CALL = AssistantMessage((ToolCall("sneaked", "deploy", "{}"),))

# Whatever other hooks may want in favour of the call, at the seam where they would say it.
IN_FAVOUR: dict[str, tuple[str, Any]] = {
    "answers_in_its_place": ("before_tool_call", lambda c: Answer("deployed")),
    "asks_a_person": ("before_tool_call", lambda c: Ask("Deploy?")),
    "steers": ("before_tool_call", lambda c: Steer("deploy it")),
    "interrupts": ("before_tool_call", lambda c: Interrupt("done")),
    "asks_for_a_resend": ("before_tool_call", lambda c: Resend()),
    "queues_the_call_again": ("before_tool_call", lambda c: Queue(CALL)),
    "changes_the_arguments": ("prepare_tool_call", lambda c: Replace(args={"target": "prod"})),
    "rewrites_results": ("after_tool_call", lambda o: Replace(content="deployed", is_error=False)),
    "says_go_on": ("finish_turn", lambda t: Continue() if t.number == 1 else None),
    "adds_the_call_to_the_next_turn": ("prepare_next_turn", lambda t: Replace(add_messages=[CALL])),
    "shows_the_model_another_history": ("transform_context", lambda v: Replace(messages=v.messages)),
}


@pytest.mark.parametrize("order", ["refusal_first", "refusal_last"])
@pytest.mark.parametrize("other", list(IN_FAVOUR))
async def test_f13_a_rejected_call_never_runs_whatever_other_hooks_say(
    other: str, order: str, mode: str, enter: Enter, colour: Colour
) -> None:
    ran = []
    asked = []

    @tool
    async def deploy(target: str = "staging") -> str:
        ran.append(target)
        return "deployed"

    refusal = Hook(seam="before_tool_call", fn=colour(lambda c: Block("not on a Friday")), name="friday")
    seam, fn = IN_FAVOUR[other]
    favour = Hook(seam=seam, fn=colour(fn), name="favour")
    model = FunctionModel(lambda request: tool_call("deploy") if len(model.requests) == 1 else text("as you wish"))
    agent = Agent(
        model=model, tools=[deploy], tool_mode=mode, on_ask=asked.append,
        hooks=[refusal, favour] if order == "refusal_first" else [favour, refusal],
    )  # fmt: skip

    result = await enter(agent)

    assert ran == []
    assert asked == []
    assert result.error is None
    refused = next(m for m in result.messages if m.role == "tool")
    assert refused.is_error
    assert refused.text == "not on a Friday"
    assert any(d.hook == "friday" and d.verdict == "Block" for d in result.decisions)


@pytest.mark.parametrize("other", ["answers_in_its_place", "steers", "says_go_on", "rewrites_results", "asks_for_a_resend"])
async def test_f13_a_call_that_a_person_declined_never_runs_whatever_hooks_say(other: str, mode: str, enter: Enter) -> None:
    ran = []

    @tool
    async def deploy(target: str = "staging") -> str:
        ran.append(target)
        return "deployed"

    @hook.before_tool_call
    def approval(call: Any) -> Ask:
        return Ask("Deploy?")

    seam, fn = IN_FAVOUR[other]
    model = FunctionModel(lambda request: tool_call("deploy") if len(model.requests) == 1 else text("as you wish"))
    agent = Agent(
        model=model, tools=[deploy], tool_mode=mode, on_ask=lambda pending: Deny("not today"),
        hooks=[approval, Hook(seam=seam, fn=fn, name="favour")],
    )  # fmt: skip

    result = await enter(agent)

    assert ran == []
    assert [m.text for m in result.messages if m.role == "tool"] == ["not today"]


async def test_f13_a_call_that_a_hook_slips_into_a_reply_passes_the_gates_like_any_other(enter: Enter, colour: Colour) -> None:
    ran = []

    @tool
    async def deploy() -> str:
        ran.append("deploy")
        return "deployed"

    def slip_in(incoming: Any) -> Replace | None:
        if incoming.origin == "model" and not incoming.message.tool_calls and incoming.message.text == "hello":
            return Replace(message=AssistantMessage((ToolCall("x", "deploy", "{}"),), "tool_calls"))
        return None

    gate = Hook(seam="before_tool_call", fn=colour(lambda c: Block("no")), name="gate")
    model = ScriptedModel([text("hello"), text("end")])
    result = await enter(Agent(model=model, tools=[deploy], hooks=[Hook(seam="on_message", fn=colour(slip_in)), gate]))

    assert ran == []
    assert [m.text for m in result.messages if m.role == "tool"] == ["no"]


@pytest.mark.parametrize("allowed", [[], [1], [0, 2], [0, 1, 2]], ids=str)
async def test_f14_the_executor_gets_no_rejected_call_and_history_has_a_result_for_each(
    allowed: list[int], mode: str, enter: Enter, colour: Colour
) -> None:
    ran = []

    @tool
    async def remove(n: int) -> str:
        ran.append(n)
        return f"removed {n}"

    gate = Hook(seam="before_tool_call", fn=colour(lambda c: None if c.args["n"] in allowed else Block(f"keep {c.args['n']}")))
    model = ScriptedModel([[tool_call("remove", {"n": n}, id=f"c{n}") for n in range(3)], text("done")])
    result = await enter(Agent(model=model, tools=[remove], hooks=[gate], tool_mode=mode))

    assert sorted(ran) == allowed
    results = [m for m in result.messages if m.role == "tool"]
    assert [(m.tool_call_id, m.is_error, m.text) for m in results] == [
        (f"c{n}", n not in allowed, f"removed {n}" if n in allowed else f"keep {n}") for n in range(3)
    ]
    assert list(model.requests[1].messages[-3:]) == results


REASONED: dict[str, Any] = {
    "block": lambda c: Block("use staging"),
    "steer": lambda c: Steer("use staging"),
    "interrupt": lambda c: Interrupt("use staging", resend=True),
    "answer": lambda c: Answer("use staging"),
    "ask_declined": lambda c: Ask("May it?"),
}


@pytest.mark.parametrize("way", list(REASONED))
async def test_f18_the_model_reads_the_reason_however_a_call_was_refused(
    way: str, mode: str, enter: Enter, colour: Colour
) -> None:
    @tool
    async def deploy() -> str:
        raise AssertionError("the body ran")

    model = ScriptedModel([tool_call("deploy"), text("staging then")])
    agent = Agent(
        model=model, tools=[deploy], tool_mode=mode, hooks=[Hook(seam="before_tool_call", fn=colour(REASONED[way]))],
        on_ask=lambda pending: Deny("use staging"),
    )  # fmt: skip

    await enter(agent)

    told = model.requests[1].messages[-1]
    assert told.role == "tool"
    assert "use staging" in told.text


async def test_f18_a_refused_nested_call_gives_its_reason_to_the_tool_that_made_it(enter: Enter, colour: Colour) -> None:
    @tool
    async def deploy() -> str:
        raise AssertionError("the body ran")

    @tool
    async def release(ctx: ToolContext) -> str:
        inner = await ctx.call_tool("deploy", {})
        return f"{inner.outcome}, {inner.is_error}: {inner.text}"

    gate = Hook(seam="before_tool_call", fn=colour(lambda c: Block("use staging")), tools=("deploy",))
    model = ScriptedModel([tool_call("release"), text("ok")])
    await enter(Agent(model=model, tools=[deploy, release], hooks=[gate]))

    assert model.requests[1].messages[-1].text == "blocked, True: use staging"


async def test_f18_a_block_without_a_reason_says_at_least_that_it_was_a_block(enter: Enter) -> None:
    @tool
    async def deploy() -> str:
        raise AssertionError("the body ran")

    model = ScriptedModel([tool_call("deploy"), text("ok")])
    await enter(Agent(model=model, tools=[deploy], hooks=[Hook(seam="before_tool_call", fn=lambda c: Block())]))

    assert model.requests[1].messages[-1].text == "Tool execution was blocked"


STOPS: dict[str, tuple[str, Any, str]] = {
    "block_at_before_run": ("before_run", lambda s: Block("closed"), "blocked"),
    "end_at_before_turn": ("before_turn", lambda t: End("closed"), "ended"),
    "block_at_authorize_request": ("authorize_request", lambda r: Block("closed"), "blocked"),
    "interrupt_at_on_message": ("on_message", lambda m: Interrupt("closed"), "interrupted"),
}


@pytest.mark.parametrize("way", list(STOPS))
async def test_f25_a_stop_before_the_model_means_that_no_request_leaves(way: str, enter: Enter, colour: Colour) -> None:
    seam, fn, stop_reason = STOPS[way]
    model = ScriptedModel([text("never")])

    result = await enter(Agent(model=model, hooks=[Hook(seam=seam, fn=colour(fn))]))

    assert model.requests == []
    assert (result.stop_reason, result.reason) == (stop_reason, "closed")


def test_f25_a_stop_before_the_model_holds_in_run_sync_too(colour: Colour) -> None:
    model = ScriptedModel([text("never")])
    agent = Agent(model=model, hooks=[Hook(seam="authorize_request", fn=colour(lambda r: Block("closed")))])

    assert agent.run_sync("go").stop_reason == "blocked"
    assert model.requests == []


BEFORE_THE_REQUEST = [
    "before_run", "before_turn", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "get_api_key",
    "authorize_request", "on_message",
]  # fmt: skip


@pytest.mark.parametrize("seam", BEFORE_THE_REQUEST)
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_f25_an_abort_in_a_hook_means_that_no_request_leaves(seam: str, streamed: bool, colour: Colour) -> None:
    model = ScriptedModel([text("never")])
    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=colour(lambda context: talk.abort()))]).conversation()

    result = await say(talk, "go", streamed=streamed)

    assert model.requests == []
    assert result.stop_reason == "aborted"
