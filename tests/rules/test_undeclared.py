"""A decision that counts for nothing is never ignored: it is refused with the hook, the seam and what would be right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beforehand import (
    Answer, Ask, AssistantMessage, Block, Context, CustomMessage, End, Hold, HookFailed, Interrupt, Options, Queue, Replace,
    Request, Steer, Text, ToolCall, ToolMessage, ToolResult, ToolSpec, Usage, UserMessage, tool,
)  # fmt: skip
from beforehand.validity import invalid_request
from seams.refusals import REFUSALS
from seams.stage import ONLY_TEXT, at, first, play


@tool
async def look(n: int) -> str:
    """Look at something."""
    return f"saw {n}"


LOOK = look

# --- good decisions with wrong values ------------------------------------------------------------

WRONG_VALUES: dict[str, tuple[str, Any]] = {
    # what is wrong: the seam and the decision
    "messages that are no list": ("before_run", Replace(messages="Other")),
    "a list with something else": ("before_run", Replace(messages=[{"role": "user", "content": "Other"}])),
    "a reason that is no text": ("before_run", Block({"text": "No."})),  # type: ignore[arg-type]
    "a reason at the end that is no text": ("before_turn", End(7)),  # type: ignore[arg-type]
    "a context of data": ("prepare_request", Replace(context={"system": "Other"})),
    "a context whose tools are names": ("prepare_request", Replace(context=Context("", (UserMessage("Other"),), ("look",)))),
    "a context whose tools are none": ("prepare_request", Replace(context=Context("", (UserMessage("Other"),), None))),  # type: ignore[arg-type]
    "a context whose tools share a name": (
        "prepare_request",
        Replace(context=Context("", (UserMessage("Other"),), (LOOK, LOOK))),
    ),
    "a context whose system text is none": ("prepare_request", Replace(context=Context(None, (UserMessage("Other"),), ()))),  # type: ignore[arg-type]
    "a context whose messages are text": ("prepare_request", Replace(context=Context("", "Other", ()))),  # type: ignore[arg-type]
    "a context whose messages are data": ("prepare_request", Replace(context=Context("", ({"role": "user"},), ()))),  # type: ignore[arg-type]
    "a next context whose tools are names": (
        "prepare_next_turn",
        Replace(context=Context("", (UserMessage("Other"),), ("look",))),
    ),
    "a next context whose system text is none": ("prepare_next_turn", Replace(context=Context(None, (), ()))),  # type: ignore[arg-type]
    "a next model of no known name": ("prepare_next_turn", Replace(model="nobody:gpt")),
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


@pytest.mark.parametrize(
    "nested",
    [[[Block("No.")]], [None], [Block("No."), None], {Block: "No."}, {"No."}, iter([Block("No.")]), (x for x in [Block("No.")])],
    ids=lambda v: type(v).__name__,
)
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


# --- replies that a hook wrote -------------------------------------------------------------------


@pytest.mark.parametrize("taken", [False, True], ids=["twice in one reply", "used before"])
async def test_calls_that_a_hook_writes_into_a_reply_get_ids_of_their_own(taken: bool) -> None:
    earlier = [ASK, call("c1"), result("c1"), AssistantMessage((Text("Seen."),))] if taken else []
    calls = AssistantMessage((ToolCall("c1", "look", '{"n": 1}'), *(() if taken else (ToolCall("c1", "look", '{"n": 2}'),))))

    def write(incoming: Any) -> Replace | None:
        return Replace(message=calls) if incoming.origin == "model" and incoming.message.tool_calls else None

    stage = await play(at("on_message", write), messages=earlier)
    assert stage.bodies == ([1] if taken else [1, 2])
    assert [why for request in stage.model.requests if (why := invalid_request(request))] == []
    ids = [c.id for m in stage.talk.messages for c in getattr(m, "tool_calls", ())]
    assert len(ids) == len(set(ids)) == 2
    assert [r.tool_call_id for r in stage.results] == ids


async def test_calls_that_a_hook_takes_out_of_a_reply_do_not_run() -> None:
    def write(incoming: Any) -> Replace | None:
        return Replace(message=AssistantMessage((Text("No calls."),))) if incoming.origin == "model" else None

    stage = await play(at("on_message", write))
    assert (stage.bodies, stage.requests, stage.result.text) == ([], 1, "No calls.")


async def test_a_tool_result_that_a_hook_rewrites_still_answers_its_call() -> None:
    stage = await play(
        at("on_message", lambda m: Replace(message=ToolMessage("other", "other", "Other")) if m.origin == "tool" else None)
    )
    [rewritten] = stage.results
    assert (rewritten.tool_call_id, rewritten.tool_name, rewritten.text) == (
        stage.talk.messages[1].tool_calls[0].id,
        "look",
        "Other",
    )
    assert invalid_request(stage.model.requests[1]) is None


async def test_an_answer_that_says_it_was_cut_runs_no_tool() -> None:
    def cut(stop_reason: Any) -> Any:
        return Answer(AssistantMessage((ToolCall("c9", "look", '{"n": 9}'),), stop_reason))

    control, stage = (
        await play(first("authorize_request", cut("tool_calls"))),
        await play(first("authorize_request", cut("length"))),
    )
    assert (control.bodies[0], control.outcomes[0]) == (9, "ran")
    assert (9 in stage.bodies, stage.outcomes[0]) == (False, "truncated")


async def test_an_answer_is_billed_for_nothing() -> None:
    stage = await play(at("authorize_request", Answer(AssistantMessage((Text("Free."),), usage=Usage(10, 10)))))
    assert (stage.result.text, stage.result.usage.total_tokens, stage.talk.messages[-1].usage.total_tokens) == ("Free.", 0, 0)


# --- messages out of place -----------------------------------------------------------------------


@pytest.mark.parametrize("stray", [result("c9"), call("c9")], ids=["a result without a call", "a call without a result"])
@pytest.mark.parametrize("way", ["prompt", "history", "before_run", "prepare_next_turn", "Queue"])
async def test_a_message_out_of_place_is_mended_before_a_request_however_it_came_in(way: str, stray: Any) -> None:
    added = [stray, UserMessage("After it.")]
    stages = {
        "prompt": lambda: play(prompt=added),
        "history": lambda: play(messages=added),
        "before_run": lambda: play(at("before_run", Replace(messages=added))),
        "prepare_next_turn": lambda: play(at("prepare_next_turn", Replace(add_messages=added))),
        "Queue": lambda: play(first("before_tool_call", [Queue(m) for m in added])),
    }
    stage = await stages[way]()
    assert (stage.result.stop_reason, stage.bodies) == ("completed", [1])
    assert [why for request in stage.model.requests if (why := invalid_request(request))] == []
    assert ("user", "After it.") in stage.asked(1)


# --- values that nobody can read -----------------------------------------------------------------


class Unreadable:
    """Cannot be shown, compared or written down."""

    def __repr__(self) -> str:
        raise RuntimeError("nobody can read this")

    __str__ = __repr__


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nobody can read this")


@pytest.mark.parametrize(
    "said", [Unreadable(), Block(Unreadable()), [Unreadable()], {Unreadable(): 1}], ids=lambda value: type(value).__name__
)  # type: ignore[arg-type]
async def test_what_cannot_even_be_shown_is_refused_like_other_nonsense(said: Any) -> None:
    stage = await play(at("before_tool_call", said))
    assert (stage.bodies, stage.results[0].is_error, stage.result.stop_reason) == ([], True, "completed")
    assert "guard" in stage.results[0].text


async def test_an_exception_that_cannot_be_shown_is_a_failure_like_any_other() -> None:
    def guard(call: Any) -> None:
        raise UnreadableError

    stage = await play(at("before_tool_call", guard))
    assert (stage.bodies, stage.results[0].is_error, stage.result.stop_reason) == ([], True, "completed")
    assert "UnreadableError" in stage.results[0].text


@pytest.mark.parametrize(
    "details",
    [Unreadable(), {Unreadable(): 1}, {("a", 1): 2}, {1: 2, "a": 3}, {1, 2}, object(), b"x", float("nan")],
    ids=lambda v: type(v).__name__,
)
async def test_a_result_that_cannot_be_digested_does_not_hinder_a_decision_about_it(details: Any) -> None:
    def looks(n: int) -> ToolResult:
        return ToolResult(f"saw {n}", details=details)

    stage = await play(at("after_tool_call", Replace(content="Other")), looks=looks)
    assert (stage.bodies, stage.results[0].text, stage.results[0].is_error, stage.result.stop_reason) == (
        [1],
        "Other",
        False,
        "completed",
    )


LONE = "half of \ud83d"
"""Text with half of a character: no request that holds it can be encoded."""


@pytest.mark.parametrize(
    ("seam", "decision"),
    [
        ("before_run", Replace(messages=[UserMessage(LONE)])),
        ("prepare_request", Replace(context=Context(LONE, (UserMessage(LONE),), ()))),
        ("transform_context", Replace(messages=[UserMessage(LONE)])),
        ("before_provider_call", Replace(request=Request(LONE, (UserMessage((Text(LONE),)),)))),
        ("on_chunk", Replace(text=LONE)),
        ("on_message", lambda m: Replace(message=UserMessage(LONE)) if m.origin == "prompt" else None),
        ("authorize_request", Answer(LONE)),
        ("before_tool_call", Block(LONE)),
        ("before_tool_call", Steer(LONE)),
        ("before_tool_call", Answer(LONE)),
        ("before_tool_call", Interrupt(LONE)),
        ("before_tool_call", Queue(LONE)),
        ("after_tool_call", Replace(content=LONE)),
        ("after_tool_call", Replace(content=[Text(LONE)])),
        ("prepare_next_turn", Replace(add_messages=[UserMessage(LONE)])),
    ],
)
async def test_half_a_character_in_a_hooks_text_makes_no_later_request_impossible(seam: str, decision: Any) -> None:
    stage = await play(first(seam, decision) if not callable(decision) else at(seam, decision))
    await stage.run("Again")
    for request in stage.model.requests:
        msgspec.json.encode([request.system, list(request.messages)])
    msgspec.json.encode(list(stage.talk.messages))
    msgspec.json.encode(stage.result.decisions)


async def test_half_a_character_in_a_prompt_makes_no_request_impossible() -> None:
    stage = await play(prompt=[UserMessage(LONE), UserMessage((Text(LONE),))])
    for request in stage.model.requests:
        msgspec.json.encode(list(request.messages))
