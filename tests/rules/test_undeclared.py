"""A decision that counts for nothing is never ignored: it is refused with the hook, the seam and what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import (
    Answer, Ask, AssistantMessage, Block, Context, CustomMessage, End, Hold, HookFailed, Interrupt, Options, Queue, Replace, Request, Steer, Text,
    ToolCall, ToolMessage, ToolSpec, UserMessage,
)  # fmt: skip
from beforehand.validity import invalid_request
from seams.refusals import REFUSALS
from seams.stage import ONLY_TEXT, at, play

# --- good decisions with wrong values ------------------------------------------------------------

WRONG_VALUES: dict[str, tuple[str, Any]] = {
    # what is wrong: the seam and the decision
    "messages that are no list": ("before_run", Replace(messages="Other")),
    "a list with something else": ("before_run", Replace(messages=[{"role": "user", "content": "Other"}])),
    "a reason that is no text": ("before_run", Block({"text": "No."})),  # type: ignore[arg-type]
    "a reason at the end that is no text": ("before_turn", End(7)),  # type: ignore[arg-type]
    "a context of data": ("prepare_request", Replace(context={"system": "Other"})),
    "a model of no known name": ("prepare_request", Replace(model="nobody:gpt")),
    "a model that is none": ("prepare_request", Replace(model=42)),
    "a thinking level that is none": ("prepare_request", Replace(thinking_level="hard")),  # type: ignore[arg-type]
    "once without anything": ("prepare_request", Replace(once=True)),
    "once that is no truth value": ("prepare_request", Replace(thinking_level="high", once="yes")),  # type: ignore[arg-type]
    "nothing to replace": ("transform_context", Replace()),
    "a message of data": ("transform_context", Replace(messages=[("user", "Other")])),
    "a request of data": ("before_provider_call", Replace(request={"messages": []})),
    "a key of bytes": ("get_api_key", Replace(key=b"other")),
    "an answer that is no reply": ("authorize_request", Answer({"text": "Other"})),
    "an answer of nothing": ("authorize_request", Answer(None)),
    "a hold of text": ("on_chunk", Hold("all")),  # type: ignore[arg-type]
    "a hold of less than nothing": ("on_chunk", Hold(-1)),
    "a hold of a truth value": ("on_chunk", Hold(True)),
    "a text that is none": ("on_chunk", Replace(text=None)),  # type: ignore[arg-type]
    "a hold without text": ("on_chunk", Replace(hold=1)),
    "an interrupt that keeps something else": ("on_chunk", Interrupt("Halt.", keep="all")),  # type: ignore[arg-type]
    "an interrupt that resends maybe": ("on_chunk", Interrupt("Halt.", resend="maybe")),  # type: ignore[arg-type]
    "a message of another role": ("on_message", Replace(message=ToolMessage("c1", "look", "Other"))),
    "a message that is text": ("on_message", Replace(message="Other")),
    "arguments that are no object": ("prepare_tool_call", Replace(args=[1])),
    "arguments that the tool does not take": ("prepare_tool_call", Replace(args={"n": "many"})),
    "arguments of numbers": ("prepare_tool_call", Replace(args={1: 2})),
    "a block for no reason of text": ("before_tool_call", Block(7)),  # type: ignore[arg-type]
    "a block that terminates perhaps": ("before_tool_call", Block("No.", terminate="perhaps")),  # type: ignore[arg-type]
    "a question that is none": ("before_tool_call", Ask(None)),  # type: ignore[arg-type]
    "options that are one text": ("before_tool_call", Ask("May it?", options="yes")),  # type: ignore[arg-type]
    "feedback that is none": ("before_tool_call", Steer(None)),  # type: ignore[arg-type]
    "an answer that cannot be a result": ("before_tool_call", Answer(object())),
    "content that is data": ("after_tool_call", Replace(content={"text": "Other"})),
    "content of nothing": ("after_tool_call", Replace(content=None)),
    "an error that is text": ("after_tool_call", Replace(is_error="yes")),  # type: ignore[arg-type]
    "usage that is a number": ("after_tool_call", Replace(usage=7)),
    "a termination that is text": ("after_tool_call", Replace(terminate="yes")),  # type: ignore[arg-type]
    "messages to add that are text": ("prepare_next_turn", Replace(add_messages="Other")),
    "an empty summary": ("before_compaction", Answer("")),
    "a summary that is data": ("before_compaction", Answer({"text": "Other"})),
    "a queued number": ("before_tool_call", Queue(7)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", WRONG_VALUES)
async def test_a_decision_with_a_wrong_value_lets_nothing_pass_and_the_message_says_what_was_expected(what: str) -> None:
    seam, decision = WRONG_VALUES[what]
    for watched in (True, False):
        _, said = await REFUSALS[seam](at(seam, decision), watched)
        assert "guard" in said
        assert len(said) > len("guard") + len(seam) + 20


def test_a_field_that_no_decision_has_cannot_even_be_written() -> None:
    with pytest.raises(TypeError, match="arguments"):
        Replace(arguments={})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="why"):
        Block(why="No.")  # type: ignore[call-arg]


async def test_a_misspelt_field_in_a_hook_fails_closed() -> None:
    def guard(call: Any) -> Block:
        return Block(resaon="No.")  # type: ignore[call-arg]

    stage = await play(at("before_tool_call", guard))
    assert (stage.bodies, stage.results[0].is_error) == ([], True)
    assert "resaon" in stage.results[0].text


async def test_a_decision_of_a_class_of_ones_own_is_refused() -> None:
    class Allow(Block):
        """Looks like a decision, and nobody has declared it."""

    stage = await play(at("before_tool_call", Allow()))
    assert (stage.bodies, stage.results[0].is_error) == ([], True)


@pytest.mark.parametrize("nested", [[[Block("No.")]], [None], [Block("No."), None], {Block: "No."}, {"No."}, iter([Block("No.")]), (x for x in [Block("No.")])], ids=str)
async def test_decisions_in_something_else_than_a_list_or_tuple_are_refused(nested: Any) -> None:
    stage = await play(at("before_tool_call", nested))
    assert (stage.bodies, stage.results[0].is_error) == ([], True)
    assert "guard" in stage.results[0].text
    control = await play(at("before_tool_call", (Block("No."),)))
    assert control.results[0].text == "No."


# --- requests that no endpoint could take --------------------------------------------------------


def call(id: str) -> AssistantMessage:
    return AssistantMessage((ToolCall(id, "look", '{"n": 1}'),))


def result(id: str) -> ToolMessage:
    return ToolMessage(id, "look", "saw 1")


SPEC = ToolSpec("look", "Look.", {})  # type: ignore[arg-type]
ASK = UserMessage("Other")

INVALID: dict[str, Any] = {
    "a system text that is none": Request(None, (ASK,)),  # type: ignore[arg-type]
    "messages that are text": Request("", "Other"),  # type: ignore[arg-type]
    "a message of data": Request("", ({"role": "user"},)),  # type: ignore[arg-type]
    "a custom message": Request("", (CustomMessage("note", "Mind."),)),
    "content of data": Request("", (UserMessage({"text": "Other"}),)),  # type: ignore[arg-type]
    "a part of data": Request("", (UserMessage(({"text": "Other"},)),)),  # type: ignore[arg-type]
    "a call in a user message": Request("", (UserMessage((ToolCall("c1", "look"),)),)),  # type: ignore[arg-type]
    "a text part without text": Request("", (UserMessage((Text(None),)),)),  # type: ignore[arg-type]
    "a call left open": Request("", (ASK, call("c1"))),
    "a message between a call and its result": Request("", (ASK, call("c1"), ASK, result("c1"))),
    "a result without a call": Request("", (ASK, result("c1"))),
    "a result before its call": Request("", (ASK, result("c1"), call("c1"))),
    "two calls of one id": Request("", (ASK, call("c1"), result("c1"), call("c1"), result("c1"))),
    "two results of one call": Request("", (ASK, call("c1"), result("c1"), result("c1"))),
    "two tools of one name": Request("", (ASK,), (SPEC, SPEC)),
    "a tool that is none": Request("", (ASK,), ("look",)),  # type: ignore[arg-type]
    "a temperature out of range": Request("", (ASK,), (), Options(temperature=3.0)),
    "a temperature that is no number": Request("", (ASK,), (), Options(temperature=float("nan"))),
    "no tokens at all": Request("", (ASK,), (), Options(max_tokens=0)),
    "an unknown thinking level": Request("", (ASK,), (), Options(thinking_level="hard")),  # type: ignore[arg-type]
    "a choice of a tool it has not": Request("", (ASK,), (), Options(tool_choice="look")),
    "a parameter that JSON cannot hold": Request("", (ASK,), (), Options(provider_params={"a": float("inf")})),  # type: ignore[arg-type]
    "a parameter of an object": Request("", (ASK,), (), Options(provider_params={"a": object()})),  # type: ignore[arg-type]
    "options of data": Request("", (ASK,), (), {"temperature": 1}),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", INVALID)
async def test_a_request_that_no_endpoint_could_take_does_not_leave(what: str) -> None:
    stage = await play(at("before_provider_call", Replace(request=INVALID[what])))
    assert isinstance(stage.result.error, HookFailed)
    assert (stage.requests, stage.result.error.hook) == (0, "guard")
    assert "cannot be sent" in str(stage.result.error)


async def test_a_request_that_is_complete_and_valid_leaves() -> None:
    whole = Request("Be good.", (ASK, call("c1"), result("c1"), ASK), (SPEC,), Options(temperature=1.0, tool_choice="look"))
    stage = await play(at("before_provider_call", Replace(request=whole)), replies=ONLY_TEXT)
    assert (stage.model.requests, stage.result.stop_reason) == ([whole], "completed")


@pytest.mark.parametrize("seam", ["transform_context", "convert_to_llm", "prepare_request"])
@pytest.mark.parametrize("what", ["a call left open", "a result without a call", "a custom message"])
async def test_messages_that_no_endpoint_could_take_do_not_leave_whichever_hook_made_them(seam: str, what: str) -> None:
    messages = INVALID[what].messages

    def change(context: Any) -> Replace:
        if seam == "prepare_request":
            return Replace(context=Context("", messages, ()))
        return Replace(messages=messages)

    stage = await play(at(seam, change), replies=ONLY_TEXT)
    assert [why for request in stage.model.requests if (why := invalid_request(request))] == []

