"""Sixteen weaknesses of another agent core, by number: what must come out right here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Ask, Block, Deny, End, FrozenError, Hook, HookFailed, Interrupt, Limits, Replace, Request, Steer,
    ToolContext, ToolMessage, UserMessage, tool,
)  # fmt: skip
from beforehand.testing import FunctionModel, ScriptedModel, finish, text, tool_call

from field.entries import Colour, Enter, say


@tool
async def echo(x: str = "a") -> str:
    return x


def message_of(result: Any) -> ToolMessage:
    """The first tool result of a run."""
    return next(m for m in result.messages if isinstance(m, ToolMessage))


# --- W1 -------------------------------------------------------------------------------------------


async def test_w1_a_listener_cannot_change_what_runs_by_editing_what_it_hears() -> None:
    ran: list[Any] = []
    refused: list[type[BaseException]] = []

    @tool
    async def pay(order: dict[str, Any]) -> str:
        ran.append(order)
        return "paid"

    def edit(event: Any) -> None:
        try:
            event.args["order"]["amount"] = 0
        except TypeError as error:
            refused.append(type(error))
            raise

    model = ScriptedModel([tool_call("pay", {"order": {"amount": 100}}), text("end")])
    talk = Agent(model=model, tools=[pay]).conversation()
    talk.on("tool_execution_start", edit)
    result = await talk.run("go")

    assert refused == [FrozenError]
    assert ran == [{"amount": 100}]
    assert result.messages[1].tool_calls[0].args == {"order": {"amount": 100}}  # type: ignore[union-attr]


async def test_w1_a_tool_that_edits_its_arguments_edits_its_own_copy(enter: Enter, colour: Colour) -> None:
    seen: list[Any] = []

    @tool
    async def pay(order: dict[str, Any]) -> str:
        order["amount"] = 0
        return "paid"

    model = ScriptedModel([tool_call("pay", {"order": {"amount": 100}}), text("end")])
    after = Hook(seam="after_tool_call", fn=colour(lambda outcome: seen.append(outcome.args["order"]["amount"])))
    result = await enter(Agent(model=model, tools=[pay], hooks=[after]))

    assert seen == [100]
    assert result.messages[1].tool_calls[0].args == {"order": {"amount": 100}}  # type: ignore[union-attr]


# --- W2 -------------------------------------------------------------------------------------------


async def test_w2_a_sub_agent_runs_under_the_hooks_of_whoever_called_it(enter: Enter, colour: Colour) -> None:
    child = ScriptedModel([tool_call("echo", {"x": "secret"}), text("child end")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    redact = Hook(seam="after_tool_call", fn=colour(lambda o: Replace(content=o.text.replace("secret", "***"))))
    await enter(Agent(model=model, tools=[Agent(model=child, tools=[echo]).as_tool("helper", "Helps.")], hooks=[redact]))

    assert child.requests[1].messages[-1].text == "***"


async def test_w2_only_an_explicit_waiver_lets_a_sub_agent_run_without_them(enter: Enter, colour: Colour) -> None:
    child = ScriptedModel([tool_call("echo", {"x": "secret"}), text("child end")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    gate = Hook(seam="before_tool_call", fn=colour(lambda c: Block("no")), tools=("echo",))
    helper = Agent(model=child, tools=[echo]).as_tool("helper", "Helps.", inherit=False)
    await enter(Agent(model=model, tools=[helper], hooks=[gate]))

    assert child.requests[1].messages[-1].text == "secret"


# --- W3 -------------------------------------------------------------------------------------------


async def test_w3_steering_never_lets_a_result_past_redaction(enter: Enter, colour: Colour) -> None:
    hooks = [
        Hook(seam="before_tool_call", fn=colour(lambda c: Steer("ask me first") if c.args["x"] == "steer" else None)),
        Hook(seam="after_tool_call", fn=colour(lambda o: Replace(content=o.text.replace("secret", "***")))),
    ]
    calls = [tool_call("echo", {"x": x}) for x in ("secret", "steer", "late")]
    model = ScriptedModel([calls, text("end")])
    await enter(Agent(model=model, tools=[echo], hooks=hooks, tool_mode="sequential"))

    first, steered, cancelled = model.requests[1].messages[-3:]
    assert first.text == "***"
    assert steered.text == "ask me first"
    assert cancelled.text.startswith("Cancelled")
    assert "secret" not in repr([m for m in model.requests[1].messages if m.role == "tool"])


async def test_w3_a_sibling_that_steering_cancels_has_not_run(enter: Enter) -> None:
    ran: list[str] = []

    @tool
    async def work(x: str) -> str:
        ran.append(x)
        return x

    gate = Hook(seam="before_tool_call", fn=lambda c: Steer("no") if c.args["x"] == "b" else None)
    model = ScriptedModel([[tool_call("work", {"x": x}) for x in ("a", "b", "c")], text("end")])
    result = await enter(Agent(model=model, tools=[work], hooks=[gate]))

    assert ran == []
    assert [m.is_error for m in result.messages if m.role == "tool"] == [True, True, True]


# --- W4 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call", "after_tool_call"])
async def test_w4_a_hook_that_raises_at_a_tool_costs_that_call_and_not_the_run(
    seam: str, mode: str, enter: Enter, colour: Colour
) -> None:
    def break_at_the_second(context: Any) -> None:
        if context.args["x"] == "2":
            raise RuntimeError("policy crashed")

    model = ScriptedModel([[tool_call("echo", {"x": x}) for x in "123"], text("end")])
    hook = Hook(seam=seam, fn=colour(break_at_the_second))
    result = await enter(Agent(model=model, tools=[echo], hooks=[hook], tool_mode=mode))

    one, two, three = model.requests[1].messages[-3:]
    assert (one.text, three.text) == ("1", "3")
    assert two.is_error  # type: ignore[union-attr]
    assert "policy crashed" in two.text
    assert result.stop_reason == "completed"


@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call", "after_tool_call", "on_message"])
async def test_w4_a_hook_failure_that_ends_the_run_leaves_no_call_without_a_result_and_no_sibling_running(
    seam: str, mode: str, enter: Enter
) -> None:
    under_way = 0

    @tool
    async def work(x: str) -> str:
        nonlocal under_way
        under_way += 1
        await asyncio.sleep(0)
        under_way -= 1
        return x

    def fail(context: Any) -> None:
        if seam != "on_message" or context.origin == "tool":
            raise RuntimeError("policy crashed")

    model = ScriptedModel([[tool_call("work", {"x": x}) for x in "123"], text("end")])
    result = await enter(Agent(model=model, tools=[work], hooks=[Hook(seam=seam, fn=fail, on_error="abort")], tool_mode=mode))

    assert isinstance(result.error, HookFailed)
    assert len(model.requests) == 1
    assert under_way == 0
    calls = next(m for m in result.messages if m.role == "assistant" and m.tool_calls).tool_calls
    results = [m for m in result.messages if isinstance(m, ToolMessage)]
    assert [m.tool_call_id for m in results] == [call.id for call in calls]


# --- W5 -------------------------------------------------------------------------------------------


def hide_echo(call: Any) -> Replace:
    request: Request = call.request
    return Replace(request=Request(request.system, request.messages, (), request.options))


async def test_w5_a_hidden_tool_still_runs_through_the_gates(enter: Enter, colour: Colour) -> None:
    asked: list[str] = []
    hooks = [
        Hook(seam="before_provider_call", fn=colour(hide_echo)),
        Hook(seam="before_tool_call", fn=colour(lambda c: asked.append(c.name))),
    ]
    model = ScriptedModel([tool_call("echo", {"x": "ran"}), text("end")])
    await enter(Agent(model=model, tools=[echo], hooks=hooks))

    assert model.requests[0].tools == ()
    assert asked == ["echo"]
    assert model.requests[1].messages[-1].text == "ran"


async def test_w5_a_gate_that_refuses_a_hidden_tool_is_obeyed(enter: Enter, colour: Colour) -> None:
    def refuse_hidden(call: Any) -> Block:
        return Block("that tool was not offered")

    hooks = [Hook(seam="before_provider_call", fn=colour(hide_echo)), Hook(seam="before_tool_call", fn=colour(refuse_hidden))]
    model = ScriptedModel([tool_call("echo"), text("end")])
    await enter(Agent(model=model, tools=[echo], hooks=hooks))

    assert model.requests[1].messages[-1].text == "that tool was not offered"


async def test_w5_a_tool_that_a_hook_only_announces_cannot_run(enter: Enter, colour: Colour) -> None:
    def announce(call: Any) -> Replace:
        request: Request = call.request
        invented = type(request.tools[0])("format_disk", "Formats.", request.tools[0].parameters)
        return Replace(request=Request(request.system, request.messages, (*request.tools, invented), request.options))

    model = ScriptedModel([tool_call("format_disk"), text("end")])
    await enter(Agent(model=model, tools=[echo], hooks=[Hook(seam="before_provider_call", fn=colour(announce))]))

    assert "format_disk" in [t.name for t in model.requests[0].tools]
    assert "not enabled" in model.requests[1].messages[-1].text


# --- W6 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seam", ["prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "authorize_request"]
)
async def test_w6_a_hook_cannot_edit_the_history_in_place(seam: str, enter: Enter) -> None:
    def messages_of(context: Any) -> Any:
        carrier = context.context if seam == "prepare_request" else getattr(context, "request", context)
        return carrier.messages

    attempts: list[str] = []

    def edit(context: Any) -> None:
        messages = messages_of(context)
        for name, attempt in {
            "append": lambda: messages.append(UserMessage("smuggled")),
            "assign an item": lambda: messages.__setitem__(0, UserMessage("smuggled")),
            "assign a field": lambda: setattr(messages[0], "content", "smuggled"),
            "assign messages": lambda: setattr(context, "messages", []),
        }.items():
            with pytest.raises((TypeError, AttributeError)):
                attempt()
            attempts.append(name)

    model = ScriptedModel([text("one")])
    result = await enter(Agent(model=model, hooks=[Hook(seam=seam, fn=edit)]))

    assert len(attempts) == 4
    assert [m.text for m in model.requests[0].messages] == ["go"]
    assert [m.text for m in result.messages] == ["go", "one"]


async def test_w6_what_a_hook_puts_into_one_request_is_in_that_request_only(colour: Colour) -> None:
    def add_once(call: Any) -> Replace | None:
        request: Request = call.request
        if len(model.requests):
            return None
        return Replace(
            request=Request(request.system, (*request.messages, UserMessage("just now")), request.tools, request.options)
        )

    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model, hooks=[Hook(seam="before_provider_call", fn=colour(add_once))]).conversation()
    await talk.run("a")
    await talk.run("b")

    assert [[m.text for m in r.messages] for r in model.requests] == [["a", "just now"], ["a", "one", "b"]]
    assert [m.text for m in talk.messages] == ["a", "one", "b", "two"]


# --- W7 -------------------------------------------------------------------------------------------


async def test_w7_input_output_reasoning_and_results_can_all_be_redacted_before_anyone_sees_them(colour: Colour) -> None:
    def clean(text: str) -> str:
        return text.replace("secret", "***")

    def redact_message(incoming: Any) -> Replace | None:
        return Replace(message=UserMessage(clean(incoming.message.text))) if incoming.origin == "prompt" else None

    def redact_chunk(chunk: Any) -> Replace:
        safe = clean(chunk.pending)
        return Replace(text=safe, hold=0 if chunk.final else min(5, len(safe)))

    hooks = [
        Hook(seam="on_chunk", fn=colour(redact_chunk)),
        Hook(seam="on_message", fn=colour(redact_message)),
        Hook(seam="after_tool_call", fn=colour(lambda o: Replace(content=clean(o.text)))),
    ]
    model = ScriptedModel([[text("", chunks=["my sec", "ret is out"]), tool_call("echo", {"x": "x"})], text("end")])

    @tool(name="echo")
    async def leak(x: str) -> str:
        return "the secret"

    talk = Agent(model=model, tools=[leak], hooks=hooks).conversation()
    streamed = [event async for event in talk.stream("tell me the secret")]

    assert "secret" not in repr(streamed)
    assert "secret" not in repr(list(talk.messages))
    assert "secret" not in repr(model.requests)
    assert [m.text for m in talk.messages] == ["tell me the ***", "my *** is out", "the ***", "end"]


# --- W8 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_w8_the_turn_limit_is_a_stop_reason_of_its_own_and_every_call_has_its_result(limit: int, enter: Enter) -> None:
    model = FunctionModel(lambda request: tool_call("echo"))
    result = await enter(Agent(model=model, tools=[echo], limits=Limits(max_turns=limit)))

    assert result.stop_reason == "max_turns"
    assert result.turns == limit == len(model.requests)
    assert [m.role for m in result.messages] == ["user", *["assistant", "tool"] * limit]


async def test_w8_a_run_that_needs_exactly_as_many_turns_as_it_may_is_completed(enter: Enter) -> None:
    model = ScriptedModel([tool_call("echo"), text("end")])
    result = await enter(Agent(model=model, tools=[echo], limits=Limits(max_turns=2)))

    assert (result.stop_reason, result.text) == ("completed", "end")


# --- W9, W10 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "refusal"])
async def test_w9_a_call_is_run_whatever_reason_the_reply_ended_with(reason: Any, mode: str, enter: Enter) -> None:
    model = ScriptedModel([[tool_call("echo", {"x": "ran"}), finish(reason)], text("end")])
    result = await enter(Agent(model=model, tools=[echo], tool_mode=mode))

    assert message_of(result).text == "ran"
    assert result.text == "end"


@pytest.mark.parametrize("arguments", ['{"x": "del', "", "{}", '{"x": "whole"}'], ids=["cut", "none", "empty", "whole"])
async def test_w10_a_call_in_a_reply_cut_at_its_length_is_never_run(
    arguments: str, mode: str, enter: Enter, colour: Colour
) -> None:
    asked: list[Any] = []

    @tool
    async def remove(x: str = "everything") -> str:
        raise AssertionError("the body ran")

    gate = Hook(seam="before_tool_call", fn=colour(asked.append))
    model = ScriptedModel([[tool_call("remove", arguments), finish("length")], text("end")])
    result = await enter(Agent(model=model, tools=[remove], hooks=[gate], tool_mode=mode))

    assert asked == []
    assert message_of(result).is_error
    assert "cut" in message_of(result).text
    assert (result.stop_reason, len(model.requests)) == ("completed", 2)


# --- W11 ------------------------------------------------------------------------------------------


async def test_w11_a_hook_has_a_time_limit_where_one_is_set(enter: Enter) -> None:
    async def hang(call: Any) -> None:
        await asyncio.Event().wait()

    model = ScriptedModel([tool_call("echo"), text("end")])
    agent = Agent(model=model, tools=[echo], hooks=[Hook(seam="before_tool_call", fn=hang, timeout=0.01)])

    assert "gave no answer within 0.01 s" in message_of(await enter(agent)).text


async def test_w11_the_limits_set_one_for_every_hook(enter: Enter) -> None:
    async def hang(call: Any) -> None:
        await asyncio.Event().wait()

    model = ScriptedModel([tool_call("echo"), text("end")])
    agent = Agent(model=model, tools=[echo], hooks=[Hook(seam="before_tool_call", fn=hang)], limits=Limits(hook_timeout=0.01))

    assert "gave no answer within 0.01 s" in message_of(await enter(agent)).text


async def test_w11_an_abort_reaches_a_hook_that_hangs(mode: str) -> None:
    asked = asyncio.Event()

    async def hang(call: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    model = ScriptedModel([[tool_call("echo"), tool_call("echo")]])
    hooks = [Hook(seam="before_tool_call", fn=hang)]
    talk = Agent(model=model, tools=[echo], hooks=hooks, tool_mode=mode, limits=Limits(abort_grace=0.01)).conversation()
    running = asyncio.create_task(talk.run("go"))
    await asked.wait()
    talk.abort()
    result = await running

    assert result.stop_reason == "aborted"
    assert [m.text for m in result.messages if m.role == "tool"] == ["Operation aborted"] * 2


# --- W12 ------------------------------------------------------------------------------------------


async def test_w12_at_most_one_booking_holds_for_several_calls_at_once(mode: str, enter: Enter, colour: Colour) -> None:
    booked: list[int] = []

    @tool
    async def book(train: int) -> str:
        booked.append(train)
        return f"booked {train}"

    def at_most_one(call: Any) -> Block | None:
        return Block("one booking a run") if any(c.name == "book" for c in call.run.calls) else None

    model = ScriptedModel([[tool_call("book", {"train": n}) for n in (1, 2, 3)], tool_call("book", {"train": 4}), text("end")])
    gate = Hook(seam="before_tool_call", fn=colour(at_most_one))
    await enter(Agent(model=model, tools=[book], hooks=[gate], tool_mode=mode))

    assert booked == [1]


async def test_w12_gates_are_asked_one_after_the_other_even_if_they_wait(mode: str, enter: Enter) -> None:
    steps: list[str] = []

    async def slow(call: Any) -> None:
        steps.append(f"begin {call.args['x']}")
        await asyncio.sleep(0)
        steps.append(f"end {call.args['x']}")

    model = ScriptedModel([[tool_call("echo", {"x": x}) for x in "123"], text("end")])
    await enter(Agent(model=model, tools=[echo], hooks=[Hook(seam="before_tool_call", fn=slow)], tool_mode=mode))

    assert steps == [f"{edge} {x}" for x in "123" for edge in ("begin", "end")]


# --- W13 ------------------------------------------------------------------------------------------

PARTIAL: dict[str, tuple[str, Any]] = {
    "a_dict_as_request": ("before_provider_call", lambda c: {"messages": [], "system_prompt": ""}),
    "a_dict_inside_replace": ("before_provider_call", lambda c: Replace(request={"messages": []})),
    "replace_without_a_field": ("before_provider_call", lambda c: Replace()),
    "the_field_of_another_seam": ("before_provider_call", lambda c: Replace(content="x")),
    "messages_that_are_dicts": ("transform_context", lambda c: Replace(messages=[{"role": "user", "content": "x"}])),
    "messages_as_text": ("transform_context", lambda c: Replace(messages="x")),
    "a_key_that_is_no_text": ("get_api_key", lambda c: Replace(key=42)),
    "a_model_that_is_none": ("prepare_request", lambda c: Replace(model=None)),
    "an_unknown_thinking_level": ("prepare_request", lambda c: Replace(thinking_level="extreme")),  # type: ignore[arg-type]
    "an_answer_that_is_no_reply": ("authorize_request", lambda c: Answer(42)),
    "true_at_a_gate": ("authorize_request", lambda c: True),
    "a_block_at_a_shape_seam": ("transform_context", lambda c: Block("x")),
}


@pytest.mark.parametrize("how", list(PARTIAL))
async def test_w13_an_incomplete_or_wrong_return_is_an_error_that_names_the_hook_and_nothing_leaves(
    how: str, enter: Enter, colour: Colour
) -> None:
    seam, fn = PARTIAL[how]
    model = ScriptedModel([text("never")])
    result = await enter(Agent(model=model, hooks=[Hook(seam=seam, fn=colour(fn), name="half_done")]))

    assert model.requests == []
    assert isinstance(result.error, HookFailed)
    assert (result.error.hook, result.error.seam) == ("half_done", seam)
    assert "half_done" in str(result.error)
    assert result.stop_reason == "error"


async def test_w13_returning_nothing_changes_nothing_at_every_request_seam(enter: Enter, colour: Colour) -> None:
    names = ("prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "get_api_key", "authorize_request")
    model = ScriptedModel([text("end")])
    hooks = [Hook(seam=name, fn=colour(lambda context: None)) for name in names]
    await enter(Agent(model=model, hooks=hooks, instructions="Be brief."))

    assert model.requests[0].system == "Be brief."
    assert [m.text for m in model.requests[0].messages] == ["go"]


# --- W14 ------------------------------------------------------------------------------------------


async def test_w14_the_end_of_a_call_says_whether_it_ran_was_refused_or_was_made_up(mode: str) -> None:
    @tool
    async def work(what: str) -> str:
        if what == "fail":
            raise ValueError("broken")
        return what

    verdicts = {"block": Block("no"), "mock": Answer("made up"), "decline": Ask("May it?")}
    gate = Hook(seam="before_tool_call", fn=lambda c: verdicts.get(c.args["what"]))
    calls = [tool_call("work", {"what": what}) for what in ("run", "fail", "block", "mock", "decline")]
    model = ScriptedModel([[*calls, tool_call("work", {"how": 1}), tool_call("werk")], text("end")])
    talk = Agent(model=model, tools=[work], hooks=[gate], tool_mode=mode, on_ask=lambda p: Deny("no")).conversation()
    ends: dict[str, Any] = {}
    talk.on("tool_execution_end", lambda e: ends.__setitem__(e.call_id, (e.outcome, e.is_error)))
    await talk.run("go")

    calls_made = talk.messages[1].tool_calls  # type: ignore[union-attr]
    assert [ends[call.id] for call in calls_made] == [
        ("ran", False), ("failed", True), ("blocked", True), ("answered", False), ("blocked", True), ("invalid", True),
        ("not_found", True),
    ]  # fmt: skip


# --- W15 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", range(1, 12))
async def test_w15_compaction_never_parts_a_call_from_its_result(keep: int) -> None:
    script: list[Any] = []
    for n in range(3):
        script += [
            [tool_call("echo", {"x": f"{n}a"}), tool_call("echo", {"x": f"{n}b"})],
            tool_call("echo", {"x": f"{n}c"}),
            text(f"{n}"),
        ]
    model = ScriptedModel([*script, text("SUMMARY"), text("after")])
    talk = Agent(model=model, tools=[echo]).conversation()
    for n in range(3):
        await talk.run(f"prompt {n}")

    before = talk.messages
    done = await talk.compact(keep=keep)
    await talk.run("and now?")

    assert done.messages is not None
    assert (*done.removed, *done.messages[1:]) == tuple(before)  # the first of the new ones is the summary
    sent = model.requests[-1].messages
    calls = [call.id for m in sent if m.role == "assistant" for call in m.tool_calls]
    assert [m.tool_call_id for m in sent if m.role == "tool"] == calls
    assert "SUMMARY" in sent[0].text


async def test_w15_compaction_asks_a_hook_first_and_touches_nothing_if_that_refuses(colour: Colour) -> None:
    seen: list[Any] = []

    def refuse(compaction: Any) -> Block:
        seen.append(([m.text for m in compaction.messages], [m.text for m in compaction.kept]))
        return Block("keep it all")

    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model, hooks=[Hook(seam="before_compaction", fn=colour(refuse))]).conversation()
    await talk.run("a")
    await talk.run("b")
    done = await talk.compact(keep=2)

    assert seen == [(["a", "one"], ["b", "two"])]
    assert (done.messages, done.reason) == (None, "keep it all")
    assert [m.text for m in talk.messages] == ["a", "one", "b", "two"]
    assert len(model.requests) == 2


async def test_w15_a_single_prompt_with_many_tool_rounds_can_be_compacted_too() -> None:
    model = ScriptedModel([*[tool_call("echo")] * 20, text("done"), text("SUMMARY"), text("after")])
    talk = Agent(model=model, tools=[echo]).conversation()
    await talk.run("a long job")
    before = len(talk.messages)
    done = await talk.compact(keep=4)
    await talk.run("and now?")

    assert done.messages is not None
    assert before == 42
    sent = model.requests[-1].messages
    assert len(sent) < 12
    calls = [call.id for m in sent if m.role == "assistant" for call in m.tool_calls]
    assert [m.tool_call_id for m in sent if m.role == "tool"] == calls


# --- W16 ------------------------------------------------------------------------------------------


async def test_w16_a_violation_refuses_one_call_and_ends_the_run_only_where_somebody_says_so(
    enter: Enter, colour: Colour
) -> None:
    soft = Hook(seam="before_tool_call", fn=colour(lambda c: Block("not that") if c.args["x"] == "bad" else None))
    hard = Hook(
        seam="finish_turn", fn=colour(lambda t: End("violation") if any(r.text == "not that" for r in t.tool_results) else None)
    )
    script = [[tool_call("echo", {"x": "bad"}), tool_call("echo", {"x": "good"})], text("end")]

    gentle = await enter(Agent(model=ScriptedModel(script), tools=[echo], hooks=[soft]))
    strict = await enter(Agent(model=ScriptedModel(script), tools=[echo], hooks=[soft, hard]))
    at_once = await enter(Agent(model=ScriptedModel(script), tools=[echo], hooks=[
        Hook(seam="before_tool_call", fn=colour(lambda c: Interrupt("violation") if c.args["x"] == "bad" else None)),
    ]))  # fmt: skip

    assert (gentle.stop_reason, gentle.text) == ("completed", "end")
    assert [m.text for m in gentle.messages if m.role == "tool"] == ["not that", "good"]
    assert (strict.stop_reason, strict.reason) == ("ended", "violation")
    assert (at_once.stop_reason, at_once.reason) == ("interrupted", "violation")


@pytest.mark.parametrize("argument", ["path", "file", "destination", "q"])
@pytest.mark.parametrize("nested", [False, True], ids=["direct", "nested"])
async def test_w16_a_path_rule_sees_every_path_whatever_its_argument_is_called(
    argument: str, nested: bool, tmp_path: Path, enter: Enter
) -> None:
    (tmp_path / "sub").mkdir()

    @tool(name="touch", prepare_arguments=lambda raw: {"path": next(iter(raw.values()), None)})
    async def by_any_name(path: Path) -> str:
        raise AssertionError("the body ran")

    @tool
    async def script(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("touch", {argument: f"{tmp_path}/sub/../.env"})).text)

    def no_env(call: Any) -> Block | None:
        return Block("not .env") if any(Path(str(value)).name == ".env" for value in call.args.values()) else None

    model = ScriptedModel(
        [tool_call("script") if nested else tool_call("touch", {argument: f"{tmp_path}/sub/../.env"}), text("end")]
    )
    gate = Hook(seam="before_tool_call", fn=no_env, tools=("touch",))
    await enter(Agent(model=model, tools=[by_any_name, script], hooks=[gate]))

    assert model.requests[1].messages[-1].text == "not .env"


async def test_w16_a_gate_sees_the_whole_command_and_not_a_prefix_of_it(enter: Enter, colour: Colour) -> None:
    ran: list[str] = []

    @tool
    async def shell(command: str) -> str:
        ran.append(command)
        return "ok"

    allowed = {"ls", "git status"}
    gate = Hook(
        seam="before_tool_call", fn=colour(lambda c: None if c.args["command"] in allowed else Block("only ls and git status"))
    )
    commands = ["ls", "ls ; rm -rf /", "git status", "git status && rm x"]
    model = ScriptedModel([[tool_call("shell", {"command": c}) for c in commands], text("end")])
    result = await enter(Agent(model=model, tools=[shell], hooks=[gate]))

    assert ran == ["ls", "git status"]
    assert [m.is_error for m in result.messages if m.role == "tool"] == [False, True, False, True]


async def test_w16_a_budget_ends_the_run_with_its_own_reason_and_not_with_an_exception(colour: Colour) -> None:
    def budget(turn: Any) -> End | None:
        return End("two turns are enough") if turn.number > 2 else None

    model = FunctionModel(lambda request: tool_call("echo"))
    talk = Agent(model=model, tools=[echo], hooks=[Hook(seam="before_turn", fn=colour(budget))]).conversation()
    result = await say(talk, "go", streamed=True)

    assert (result.stop_reason, result.reason, result.turns) == ("ended", "two turns are enough", 2)
