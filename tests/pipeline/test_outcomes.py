"""What can become of a call, when seam 13 is asked about it, and what the model and listeners are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Deny, Edit, Hook, Interrupt, Limits, Replace, Steer, Text, ToolContext, ToolResult,
    UsageError, tool,
)  # fmt: skip
from beforehand.decisions import HumanAnswer
from beforehand.testing import ScriptedModel, finish, text, tool_call

from pipeline.paths import call_through


@tool(timeout=0.01)
async def work(ctx: ToolContext, how: str) -> ToolResult | str:
    """Ends in the way it is told."""
    if how == "fail":
        raise ValueError("broken")
    if how == "report_an_error":
        return ToolResult("it says it failed", is_error=True, details={"code": 7})
    if how == "hang":
        await asyncio.Event().wait()
    return "the body's result"


GATE: dict[str, Any] = {
    "block": Block("no"), "steer": Steer("do something else"), "answer": Answer("made up"), "interrupt": Interrupt("stop"),
    "answer_with_an_error": Answer(ToolResult("made up failure", is_error=True)),
}  # fmt: skip

# how: (outcome, is_error, seam 13 is asked, the body was entered)
TABLE: dict[str, tuple[str, bool, bool]] = {
    "run": ("ran", False, True),
    "fail": ("failed", True, True),
    "report_an_error": ("failed", True, True),
    "hang": ("timed_out", True, True),
    "answer": ("answered", False, True),
    "answer_with_an_error": ("answered", True, True),
    "block": ("blocked", True, False),
    "interrupt": ("blocked", True, False),
    "steer": ("steered", True, False),
}


@pytest.mark.parametrize("how", list(TABLE))
async def test_seam_13_is_asked_about_what_ran_failed_timed_out_or_was_answered_and_nothing_else(how: str, path: str) -> None:
    outcome, is_error, asked = TABLE[how]
    seen: list[Any] = []
    hooks = [
        Hook(seam="before_tool_call", fn=lambda c: GATE.get(c.args["how"]), tools=("work",)),
        Hook(seam="after_tool_call", fn=lambda o: seen.append((o.outcome, o.is_error, o.partial)), tools=("work",)),
    ]
    end = await call_through(path, "work", {"how": how}, [work], hooks)

    assert (end.outcome, end.is_error) == (outcome, is_error)
    assert seen == ([(outcome, is_error, False)] if asked else [])


@pytest.mark.parametrize("how", [how for how, row in TABLE.items() if row[2]])
async def test_what_seam_13_returns_is_what_the_model_reads_whatever_the_outcome(how: str) -> None:
    replaced = Replace(content="rewritten", details={"by": "hook"}, is_error=not TABLE[how][1])
    hooks = [
        Hook(seam="before_tool_call", fn=lambda c: GATE.get(c.args["how"])),
        Hook(seam="after_tool_call", fn=lambda o: replaced),
    ]
    model = ScriptedModel([tool_call("work", {"how": how}), text("end")])
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation()
    ends: list[Any] = []
    talk.on("tool_execution_end", ends.append)
    await talk.run("go")

    told = model.requests[1].messages[-1]
    assert (told.text, told.details, told.is_error) == ("rewritten", {"by": "hook"}, not TABLE[how][1])  # type: ignore[union-attr]
    assert [(e.result.text, e.outcome) for e in ends] == [("rewritten", TABLE[how][0])]


@pytest.mark.parametrize("how", [how for how, row in TABLE.items() if row[2]])
async def test_a_seam_13_hook_that_fails_withholds_the_result_whatever_the_outcome(how: str) -> None:
    def fail(outcome: Any) -> None:
        raise RuntimeError("cannot check")

    hooks = [
        Hook(seam="before_tool_call", fn=lambda c: GATE.get(c.args["how"])),
        Hook(seam="after_tool_call", fn=fail, name="check"),
    ]
    model = ScriptedModel([tool_call("work", {"how": how}), text("end")])
    await Agent(model=model, tools=[work], hooks=hooks).run("go")

    told = model.requests[1].messages[-1]
    assert told.is_error  # type: ignore[union-attr]
    assert "withheld" in told.text
    assert "check" in told.text
    for hidden in ("the body's result", "it says it failed", "made up", "broken"):
        assert hidden not in told.text


# --- every outcome, with the text the model reads -------------------------------------------------


async def outcome_of(calls: list[Any], hooks: list[Hook], **options: Any) -> list[tuple[str, str, bool]]:
    """Outcome, text and error flag of each call of one reply."""
    talk = Agent(model=ScriptedModel([calls, text("end")]), tools=[work], hooks=hooks, **options).conversation()
    ends: dict[str, Any] = {}
    talk.on("tool_execution_end", lambda e: ends.__setitem__(e.call_id, e))
    await talk.run("go")
    made = talk.messages[1].tool_calls  # type: ignore[union-attr]
    return [(ends[call.id].outcome, ends[call.id].result.text, ends[call.id].is_error) for call in made]


def gate(call: Any) -> Any:
    return {**GATE, "ask": Ask("May it?")}.get(call.args["how"])


REST = [
    # calls of one reply, expected outcome of the last one, part of what the model reads
    ([tool_call("wrok", {"how": "run"})], "not_found", "Did you mean work?"),
    ([tool_call("work", {})], "invalid", "how"),
    ([tool_call("work", '{"how": "ru'), finish("length")], "truncated", "cut at its length limit"),
    ([tool_call("work", {"how": "steer"}), tool_call("work", {"how": "run"})], "cancelled", "work"),
    ([tool_call("work", {"how": "hang"})], "timed_out", "0.01 s"),
    ([tool_call("work", {"how": "fail"})], "failed", "ValueError: broken"),
    ([tool_call("work", {"how": "run"})], "ran", "the body's result"),
    ([tool_call("work", {"how": "ask"})], "pending", "Waiting for a person"),
]


@pytest.mark.parametrize(("calls", "outcome", "told"), REST, ids=[row[1] for row in REST])
async def test_the_outcome_of_a_call_and_its_text_say_the_same(calls: list[Any], outcome: str, told: str) -> None:
    ended = await outcome_of(calls, [Hook(seam="before_tool_call", fn=gate)])

    assert ended[-1][0] == outcome
    assert told in ended[-1][1]
    assert ended[-1][2] is (outcome != "ran")


async def test_a_call_of_an_aborted_run_is_aborted() -> None:
    hooks = [Hook(seam="before_tool_call", fn=lambda c: talk.abort())]
    talk = Agent(model=ScriptedModel([tool_call("work", {"how": "run"})]), tools=[work], hooks=hooks).conversation()
    ends: list[Any] = []
    talk.on("tool_execution_end", ends.append)
    await talk.run("go")

    assert [(e.outcome, e.result.text, e.is_error) for e in ends] == [("aborted", "Operation aborted", True)]


ANSWERS = [
    (Approve(), "ran", "the body's result"),
    (Deny("not today"), "blocked", "not today"),
    (Deny(), "blocked", "declined"),
    (Edit({"how": "fail"}), "failed", "ValueError: broken"),
    (Edit({"how": 1, "x": 2}), "invalid", "changed this call"),
    (Edit({"how": "block"}), "blocked", "no"),
    (None, "blocked", "Nobody approved"),
    ("yes", "blocked", "str"),
    (True, "blocked", "bool"),
]


@pytest.mark.parametrize(("answer", "outcome", "told"), ANSWERS, ids=repr)
@pytest.mark.parametrize("inline", [False, True], ids=["resumed", "on_ask"])
async def test_a_persons_answer_settles_a_waiting_call_and_anything_else_from_a_handler_refuses_it(
    answer: Any, outcome: str, told: str, inline: bool
) -> None:
    hooks = [Hook(seam="before_tool_call", fn=gate)]
    model = ScriptedModel([tool_call("work", {"how": "ask"}), text("end")])
    talk = Agent(model=model, tools=[work], hooks=hooks, on_ask=(lambda pending: answer) if inline else None).conversation()
    ends: list[Any] = []
    talk.on("tool_execution_end", ends.append)
    result = await talk.run("go")
    if not inline:
        assert [e.outcome for e in ends] == ["pending"]
        (pending,) = result.pending
        if not isinstance(answer, HumanAnswer):  # whoever calls is told, and the question stays open
            with pytest.raises(UsageError, match=r"an answer is Approve\(\), Deny\(...\) or Edit\(...\), not a "):
                await talk.resume({pending.call_id: answer})
            assert talk.pending == result.pending
            return
        result = await talk.resume({pending.call_id: answer})

    assert ends[-1].outcome == outcome
    assert told in ends[-1].result.text
    assert told in model.requests[1].messages[-1].text
    assert result.text == "end"


async def test_an_edited_call_tells_the_model_that_a_person_changed_it_on_purpose() -> None:
    model = ScriptedModel([tool_call("work", {"how": "ask"}), text("end")])
    agent = Agent(
        model=model, tools=[work], hooks=[Hook(seam="before_tool_call", fn=gate)], on_ask=lambda p: Edit({"how": "run"})
    )
    await agent.run("go")

    told = model.requests[1].messages[-1].text
    assert told.startswith("the body's result")
    assert '{"how": "run"}' in told
    assert "on purpose" in told


# --- verdicts that change more than their own call ------------------------------------------------


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_steer_cancels_the_siblings_that_have_not_run(position: int, mode: str) -> None:
    calls = [tool_call("work", {"how": "steer" if n == position else "run"}) for n in range(3)]
    ended = await outcome_of(calls, [Hook(seam="before_tool_call", fn=gate)], tool_mode=mode)

    before = "ran" if mode == "sequential" else "cancelled"
    assert [outcome for outcome, _, _ in ended] == [before] * position + ["steered"] + ["cancelled"] * (2 - position)
    assert ended[position][1] == "do something else"
    assert all("work" in told for outcome, told, _ in ended if outcome == "cancelled")


async def test_steer_leaves_what_was_already_decided_as_it_is() -> None:
    calls = [tool_call("work", {"how": how}) for how in ("block", "answer", "steer")]
    ended = await outcome_of(calls, [Hook(seam="before_tool_call", fn=gate)])

    assert [outcome for outcome, _, _ in ended] == ["blocked", "answered", "steered"]


async def test_after_steer_the_model_is_asked_again_and_reads_the_feedback() -> None:
    model = ScriptedModel([tool_call("work", {"how": "steer"}), text("something else then")])
    result = await Agent(model=model, tools=[work], hooks=[Hook(seam="before_tool_call", fn=gate)]).run("go")

    assert model.requests[1].messages[-1].text == "do something else"
    assert result.text == "something else then"


ANSWER_VALUES: list[tuple[Any, str]] = [
    ("text", "text"), (None, ""), (42, "42"), ({"a": [1, 2]}, '{"a":[1,2]}'), ([1, 2], "[1,2]"), (True, "true"),
    (ToolResult("whole", details={"x": 1}), "whole"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "told"), ANSWER_VALUES, ids=repr)
async def test_an_answer_is_read_like_what_a_body_returns(value: Any, told: str, path: str) -> None:
    hook = Hook(seam="before_tool_call", fn=lambda c: Answer(value), tools=("work",))
    end = await call_through(path, "work", {"how": "run"}, [work], [hook])

    assert (end.outcome, end.result.text, end.is_error) == ("answered", told, False)


async def test_an_answer_that_is_no_result_refuses_the_call_and_names_the_hook() -> None:
    hook = Hook(seam="before_tool_call", fn=lambda c: Answer(object()), name="mocker")
    ((outcome, told, is_error),) = await outcome_of([tool_call("work", {"how": "run"})], [hook])

    assert (outcome, is_error) == ("blocked", True)
    assert "mocker" in told


@pytest.mark.parametrize("lower", ["steer", "answer"])
@pytest.mark.parametrize("inline", [False, True], ids=["resumed", "on_ask"])
async def test_a_persons_approval_lifts_the_question_and_no_other_hooks_verdict(lower: str, inline: bool) -> None:
    @tool
    async def deploy() -> str:
        raise AssertionError("the body ran")

    hooks = [
        Hook(seam="before_tool_call", fn=lambda c: Ask("May it?")),
        Hook(seam="before_tool_call", fn=lambda c: GATE[lower]),
    ]
    model = ScriptedModel([tool_call("deploy"), text("end")])
    talk = Agent(model=model, tools=[deploy], hooks=hooks, on_ask=(lambda pending: Approve()) if inline else None).conversation()
    result = await talk.run("go")
    if not inline:
        await talk.resume({result.pending[0].call_id: Approve()})

    assert model.requests[1].messages[-1].text in ("do something else", "made up")


@pytest.mark.parametrize("seam", ["before_tool_call", "after_tool_call"])
async def test_interrupt_ends_the_run_once_every_call_of_the_batch_has_its_result(seam: str) -> None:
    def interrupt(context: Any) -> Interrupt | None:
        return Interrupt("enough") if context.args["how"] == "fail" else None

    model = ScriptedModel([[tool_call("work", {"how": how}) for how in ("run", "fail", "run")], text("never")])
    result = await Agent(model=model, tools=[work], hooks=[Hook(seam=seam, fn=interrupt)]).run("go")

    assert (result.stop_reason, result.reason, len(model.requests)) == ("interrupted", "enough", 1)
    texts = [m.text for m in result.messages if m.role == "tool"]
    assert texts == ["the body's result", "enough" if seam == "before_tool_call" else "ValueError: broken", "the body's result"]


@pytest.mark.parametrize("seam", ["before_tool_call", "after_tool_call"])
async def test_interrupt_with_resend_asks_the_model_once_more(seam: str) -> None:
    hook = Hook(seam=seam, fn=lambda context: Interrupt("again", resend=True))
    model = ScriptedModel([tool_call("work", {"how": "run"}), text("end")])
    result = await Agent(model=model, tools=[work], hooks=[hook]).run("go")

    assert (result.stop_reason, result.text) == ("completed", "end")


# --- what the core itself does to results ---------------------------------------------------------


async def test_a_long_result_is_cut_and_says_so(path: str) -> None:
    @tool
    async def read() -> str:
        return "x" * 500

    end = await call_through(path, "read", {}, [read], limits=Limits(max_result_chars=100))

    assert end.result.text.startswith("x" * 100 + "\n[cut: 400")
    assert end.result.text.count("x") == 100


async def test_a_long_result_made_of_parts_is_cut_too() -> None:
    @tool
    async def read() -> ToolResult:
        return ToolResult((Text("x" * 80), Text("y" * 80)))

    model = ScriptedModel([tool_call("read"), text("end")])
    await Agent(model=model, tools=[read], limits=Limits(max_result_chars=100)).run("go")

    told = model.requests[1].messages[-1].text
    assert (told.count("x"), told.count("y")) == (80, 20)
    assert "[cut: 60" in told


async def test_a_result_of_exactly_the_allowed_length_is_left_alone() -> None:
    @tool
    async def read() -> str:
        return "x" * 100

    model = ScriptedModel([tool_call("read"), text("end")])
    await Agent(model=model, tools=[read], limits=Limits(max_result_chars=100)).run("go")

    assert model.requests[1].messages[-1].text == "x" * 100


async def test_a_result_that_a_hook_shortened_is_not_cut_again() -> None:
    @tool
    async def read() -> str:
        return "x" * 500

    hook = Hook(seam="after_tool_call", fn=lambda o: Replace(content=o.text[:50]))
    model = ScriptedModel([tool_call("read"), text("end")])
    await Agent(model=model, tools=[read], hooks=[hook], limits=Limits(max_result_chars=100)).run("go")

    assert model.requests[1].messages[-1].text == "x" * 50


async def test_replacing_the_text_drops_the_structured_form_that_would_still_hold_what_was_taken_out() -> None:
    @tool
    async def read() -> dict[str, str]:
        return {"dni": "12345678Z"}

    hooks = [Hook(seam="after_tool_call", fn=lambda o: Replace(content=o.text.replace("12345678Z", "***")))]
    talk = Agent(model=ScriptedModel([tool_call("read"), text("end")]), tools=[read], hooks=hooks).conversation()
    ends: list[Any] = []
    talk.on("tool_execution_end", ends.append)
    await talk.run("go")

    assert ends[0].result.text == '{"dni":"***"}'
    assert ends[0].result.structured_content is None
    assert "12345678Z" not in repr(ends)


async def test_fields_a_hook_leaves_out_stay_and_fields_it_sets_to_none_go() -> None:
    @tool
    async def read() -> ToolResult:
        return ToolResult("text", details={"a": 1}, structured_content={"b": 2}, is_error=True)

    seen: list[Any] = []

    def change(outcome: Any) -> Replace:
        return Replace(details=None)

    hooks = [
        Hook(seam="after_tool_call", fn=change),
        Hook(seam="after_tool_call", fn=lambda o: seen.append((o.content, o.details, o.structured_content, o.is_error))),
    ]
    await Agent(model=ScriptedModel([tool_call("read"), text("end")]), tools=[read], hooks=hooks).run("go")

    assert seen == [("text", None, {"b": 2}, True)]
