"""One span event for each decision, on the span of what was decided about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Ask, Block, Continue, Deny, End, Hook, Interrupt, Queue, Replace, Steer, ToolContext, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.testing import ScriptedModel, text, tool_call

from telemetry.spans import Recorder, as_event, attributes, decisions, status


@tool
async def work(n: int = 0) -> str:
    return "worked"


@tool
async def outer(ctx: ToolContext) -> str:
    return (await ctx.call_tool("work", {})).text


def script() -> ScriptedModel:
    return ScriptedModel([[text("I will"), tool_call("work", id="c1")], *[text("end")] * 3])


def once(seam: str, decision: Any, when: Callable[[Any], bool] = lambda context: True) -> Hook:
    """A hook that decides the first time it is asked about what interests it."""
    left = [decision]
    return Hook(seam=seam, fn=lambda context: left.pop() if left and when(context) else None, name=f"at {seam}")


RUN, TURN, CHAT, CALL = "invoke_agent agent", "turn", "chat scripted", "execute_tool work"
PLACES: dict[str, tuple[Any, str]] = {
    "before_run": (Replace(messages=(UserMessage("other"),)), RUN),
    "before_turn": (End("enough"), RUN),
    "prepare_request": (Replace(thinking_level="low"), TURN),
    "transform_context": (Replace(messages=(UserMessage("other"),)), TURN),
    "authorize_request": (Block("closed"), TURN),
    "on_chunk": (Replace(text="We "), CHAT),
    "on_message": (Replace(message=UserMessage("other")), TURN),
    "prepare_tool_call": (Replace(args={"n": 1}), CALL),
    "before_tool_call": (Block("no"), CALL),
    "after_tool_call": (Replace(content="done"), CALL),
    "finish_turn": (Continue(), TURN),
    "prepare_next_turn": (Replace(add_messages=(UserMessage("and"),)), TURN),
}


@pytest.mark.parametrize("seam", PLACES)
async def test_a_decision_is_an_event_on_the_span_of_what_it_was_about(recorder: Recorder, seam: str) -> None:
    decision, place = PLACES[seam]
    agent = Agent(model=script(), tools=[work], hooks=[once(seam, decision)], listeners=[recorder.listener()])
    result = await agent.run("go", check=False)

    (record,) = result.decisions
    (said,) = decisions(recorder.spans)
    assert said.pop("span") == place
    assert {name: said[name] for name in as_event(record)} == as_event(record)


async def test_every_decision_of_a_run_is_an_event_and_in_the_order_they_were_made(recorder: Recorder) -> None:
    hooks = [once(seam, decision) for seam, (decision, _) in PLACES.items() if seam not in ("before_turn", "authorize_request")]
    hooks.append(once("before_tool_call", [Answer("mine"), Queue("note")]))
    result = await Agent(model=script(), tools=[work], hooks=hooks, listeners=[recorder.listener()]).run("go")

    said = decisions(recorder.spans)
    assert [event["beforehand.decision.seam"] for event in said] == [record.seam for record in result.decisions]
    assert len(said) == len(result.decisions) == len(hooks) - 1  # a refused call has no seam 13
    assert [event.get("beforehand.decision.effects") for event in said if "effects" in str(event)] == [("Queue",)]


async def test_what_was_already_irreversible_is_said(recorder: Recorder) -> None:
    gate = once("before_tool_call", Block("no"), lambda call: call.call_id == "c2")
    model = ScriptedModel([tool_call("work", id="c1"), [text("four"), tool_call("work", id="c2")], text("end")])
    await Agent(model=model, tools=[work], hooks=[gate], listeners=[recorder.listener()]).run("go")

    (said,) = decisions(recorder.spans)
    done = [said[f"beforehand.decision.reversible.{what}"] for what in ("requests_sent", "characters_released", "tools_run")]
    assert done == [2, 4, 1]


async def test_what_the_core_mends_is_an_event_too(recorder: Recorder) -> None:
    model = ScriptedModel([tool_call("work", id="c1"), tool_call("work", id="c1"), text("end")])
    result = await Agent(model=model, tools=[work], listeners=[recorder.listener()]).run("go")

    (record,), (said,) = result.decisions, decisions(recorder.spans)
    assert said.pop("span") == CHAT
    assert (said["beforehand.decision.seam"], said["beforehand.decision.verdict"]) == ("repair", "Renamed")
    assert {name: said[name] for name in as_event(record)} == as_event(record)


async def test_a_failing_hook_is_an_event_and_so_is_one_that_fails_open(recorder: Recorder) -> None:
    def breaks(context: Any) -> None:
        raise ValueError("broken")

    hooks = [
        Hook(seam="before_tool_call", fn=breaks, name="closed"),
        Hook(seam="after_turn", fn=breaks, name="open", on_error="open"),
    ]
    await Agent(model=script(), tools=[work], hooks=hooks, listeners=[recorder.listener()]).run("go")

    closed, opened, again = decisions(recorder.spans)
    assert closed["beforehand.decision.verdict"] == "failed"
    assert "beforehand.decision.on_error" not in closed
    assert (opened["beforehand.decision.verdict"], opened["beforehand.decision.on_error"]) == ("failed_open", "open")
    assert "ValueError: broken" in closed["beforehand.decision.reason"]
    assert again["span"] == "turn"


# --- who refused a call, and why -----------------------------------------------------------------


def deny(pending: Any) -> Deny:
    return Deny("not today")


REFUSALS: dict[str, tuple[Any, str, str, str]] = {
    # the decision: its outcome, the verdict that counted, what the model was told
    "block": (Block("never"), "blocked", "Block", "never"),
    "interrupt": (Interrupt("stop it"), "blocked", "Interrupt", "stop it"),
    "steer": (Steer("look first"), "steered", "Steer", "look first"),
    "denied": (Ask("may it?"), "blocked", "Ask", "not today"),
    "nonsense": (42, "blocked", "failed", "hook 'guard' failed"),
}


@pytest.mark.parametrize("how", REFUSALS)
async def test_a_call_that_was_refused_says_by_whom_and_why(recorder: Recorder, how: str) -> None:
    decision, outcome, verdict, told = REFUSALS[how]
    guard = Hook(seam="before_tool_call", fn=lambda call: decision, name="guard", tools=("work",))
    agent = Agent(model=script(), tools=[work], hooks=[guard], listeners=[recorder.listener()], on_ask=deny)
    await agent.run("go")

    call = recorder.one(CALL)
    said = attributes(call)
    assert said["beforehand.tool.outcome"] == outcome
    assert (said["beforehand.tool.decided_by"], said["beforehand.tool.verdict"]) == ("guard", verdict)
    assert told in said["beforehand.tool.reason"]
    assert status(call)[:2] == ("ERROR", outcome)


async def test_of_two_that_refuse_the_one_that_counted_is_named(recorder: Recorder) -> None:
    blocks = Hook(seam="before_tool_call", fn=lambda call: Block("never"), name="second")
    hooks = [once("before_tool_call", Steer("look first")), blocks]
    await Agent(model=script(), tools=[work], hooks=hooks, listeners=[recorder.listener()]).run("go")

    said = attributes(recorder.one(CALL))
    assert (said["beforehand.tool.decided_by"], said["beforehand.tool.reason"]) == ("second", "never")
    assert len(decisions([recorder.one(CALL)])) == 2


async def test_a_call_that_a_hook_answered_says_so_and_is_no_error(recorder: Recorder) -> None:
    await Agent(
        model=script(), tools=[work], hooks=[once("before_tool_call", Answer("mine"))], listeners=[recorder.listener()]
    ).run("go")  # fmt: skip

    call = recorder.one(CALL)
    assert attributes(call)["beforehand.tool.outcome"] == "answered"
    assert attributes(call)["beforehand.tool.decided_by"] == "at before_tool_call"
    assert status(call) == ("UNSET", None, None)


async def test_the_siblings_of_a_steered_call_are_cancelled_and_name_nobody(recorder: Recorder) -> None:
    @hook.before_tool_call
    def steers(call: Any) -> Steer | None:
        return Steer("look first") if call.call_id == "c2" else None

    model = ScriptedModel([[tool_call("work", id=f"c{n}") for n in (1, 2, 3)], text("end")])
    await Agent(model=model, tools=[work], hooks=[steers], listeners=[recorder.listener()]).run("go")

    outcomes = [attributes(recorder.call(f"c{n}"))["beforehand.tool.outcome"] for n in (1, 2, 3)]
    assert outcomes == ["cancelled", "steered", "cancelled"]
    assert "beforehand.tool.decided_by" not in attributes(recorder.call("c1"))
    assert "steered" in attributes(recorder.call("c3"))["beforehand.tool.reason"]


async def test_a_refusal_inside_a_tool_is_on_the_nested_call(recorder: Recorder) -> None:
    guard = Hook(seam="before_tool_call", fn=lambda call: Block("never"), name="guard", tools=("work",))
    model = ScriptedModel([tool_call("outer", id="c1"), text("end")])
    await Agent(model=model, tools=[outer, work], hooks=[guard], listeners=[recorder.listener()]).run("go")

    assert attributes(recorder.call("c1/1"))["beforehand.tool.decided_by"] == "guard"
    assert [event["span"] for event in decisions(recorder.spans)] == [CALL]
    assert status(recorder.one("execute_tool outer")) == ("UNSET", None, None)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (tool_call("wrok"), "not_found"),
        (tool_call("work", {"n": "many"}), "invalid"),
        (tool_call("breaks"), "failed"),
        (tool_call("hangs"), "timed_out"),
    ],
)
async def test_a_call_that_failed_says_how_and_not_with_what(recorder: Recorder, call: Any, kind: str) -> None:
    @tool
    async def breaks() -> str:
        raise ValueError("a secret")

    @tool(timeout=0.001)
    async def hangs() -> str:
        import asyncio

        await asyncio.Event().wait()
        return ""

    await Agent(model=ScriptedModel([call, text("end")]), tools=[work, breaks, hangs], listeners=[recorder.listener()]).run("go")

    (span,) = [span for span in recorder.spans if span.name.startswith("execute_tool")]
    assert status(span) == ("ERROR", kind, None)
    assert "a secret" not in recorder.text()
    assert "many" not in recorder.text()


async def test_a_result_that_a_hook_calls_an_error_is_one(recorder: Recorder) -> None:
    after = once("after_tool_call", Replace(is_error=True))
    await Agent(model=script(), tools=[work], hooks=[after], listeners=[recorder.listener()]).run("go")

    call = recorder.one(CALL)
    assert attributes(call)["beforehand.tool.outcome"] == "ran"
    assert status(call) == ("ERROR", "tool_error", None)
