"""Why a run stopped: one word for each way, the same in the result, the last event and the exception."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Ask, Block, Drop, End, Hook, HookFailed, Image, Interrupt, InvalidResponse, Limits, Model, NetworkError,
    RateLimited, RequestTooLarge, Resend, RunError, ServerError, Text, ToolResult, tool,
)  # fmt: skip
from beforehand.models.base import Finish, ImageDelta, TextDelta
from beforehand.testing import FunctionModel, ScriptedModel, cut, error, finish, text, tool_call

from conversation.checks import assert_continuable


@tool
async def work() -> ToolResult:
    return ToolResult("worked", terminate=True)


def hook(seam: str, verdict: Any) -> Hook:
    return Hook(seam=seam, fn=lambda context: verdict)


ABORTING = Hook(seam="prepare_request", fn=lambda plan: plan.run.deps.abort())  # the talk is handed in as `deps`

TABLE: dict[str, tuple[Any, list[Hook], Limits, str, str | None]] = {
    # how: (script, hooks, limits, stop reason, reason)
    "a reply without calls": ([text("one")], [], Limits(), "completed", None),
    "every result terminates": ([tool_call("work")], [], Limits(), "completed", None),
    "a refusal by the model": ([[text("I cannot"), finish("refusal")]], [], Limits(), "completed", None),
    "a reply given by a hook": ([], [hook("authorize_request", Answer("made up"))], Limits(), "completed", None),
    "text dropped by a hook": ([text("one")], [hook("on_chunk", Drop())], Limits(), "completed", None),
    "End before a turn": ([], [hook("before_turn", End("closed"))], Limits(), "ended", "closed"),
    "End after a turn": ([text("one")], [hook("finish_turn", End("enough"))], Limits(), "ended", "enough"),
    "Block before the run": ([], [hook("before_run", Block("closed"))], Limits(), "blocked", "closed"),
    "Block of a request": ([], [hook("authorize_request", Block("closed"))], Limits(), "blocked", "closed"),
    "Interrupt of a chunk": ([text("one")], [hook("on_chunk", Interrupt("no"))], Limits(), "interrupted", "no"),
    "Interrupt of a message": ([text("one")], [hook("on_message", Interrupt("no"))], Limits(), "interrupted", "no"),
    "Interrupt of a call": ([tool_call("work")], [hook("before_tool_call", Interrupt("no"))], Limits(), "interrupted", "no"),
    "Interrupt of a result": ([tool_call("work")], [hook("after_tool_call", Interrupt("no"))], Limits(), "interrupted", "no"),
    "an abort": ([text("one")], [ABORTING], Limits(), "aborted", None),
    "a question to a person": ([tool_call("work")], [hook("before_tool_call", Ask("May it?"))], Limits(), "suspended", None),
    "too many turns": ([text("one")], [hook("finish_turn", Resend())], Limits(max_turns=1), "max_turns", "1 turns were made"),
    "too many resends": (
        [text("one")],
        [hook("finish_turn", Resend())],
        Limits(max_resends=0),
        "resend_limit",
        "0 resends were made, the most a run may have (Limits.max_resends)",
    ),
    "a reply cut at its length": ([[text("half"), finish("length")]], [], Limits(), "length", None),
    "a failing model": ([error("down")], [], Limits(), "error", None),
    "a reply cut by the network": ([[text("half"), cut()]], [], Limits(), "error", None),
    "a request too large": ([], [], Limits(context_tokens=0), "error", None),
    "a hook that returns nonsense": ([], [hook("authorize_request", 42)], Limits(), "error", None),
}


@pytest.mark.parametrize("how", list(TABLE))
async def test_each_way_to_stop_has_its_reason_in_result_event_and_exception(how: str) -> None:
    script, hooks, limits, stop_reason, reason = TABLE[how]
    model = ScriptedModel(script)
    talk = Agent(model=model, tools=[work], hooks=hooks, limits=limits).conversation()
    ends: list[Any] = []
    talk.on("agent_end", ends.append)
    try:
        result = await talk.run("a prompt that is long enough to be a token or two", deps=talk)
        raised = None
    except RunError as error:
        raised, result = error, error.result

    assert (result.stop_reason, result.reason) == (stop_reason, reason)
    assert (raised is not None) is (stop_reason == "error")
    assert result.error is raised
    assert [e.stop_reason for e in ends] == ([] if how == "Block before the run" else [stop_reason])
    assert talk.result == result
    assert not talk.is_running


@pytest.mark.parametrize("how", [how for how, row in TABLE.items() if row[3] != "suspended"])
async def test_after_each_way_to_stop_the_talk_can_go_on(how: str) -> None:
    script, hooks, limits, _, _ = TABLE[how]
    model = ScriptedModel(script)
    spent = False

    def once(hook: Hook) -> Hook:
        return Hook(seam=hook.seam, fn=lambda context: None if spent else hook.fn(context))

    talk = Agent(model=model, tools=[work], hooks=[once(h) for h in hooks]).conversation()
    await talk.run("a prompt that is long enough to be a token or two", check=False, limits=limits, deps=talk)
    spent = True
    await assert_continuable(talk, model)


async def test_every_stop_reason_is_in_the_table() -> None:
    assert {row[3] for row in TABLE.values()} == {
        "completed", "ended", "blocked", "interrupted", "aborted", "suspended", "max_turns", "resend_limit", "length", "error",
    }  # fmt: skip


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("problem", "kind"), [
    (error("down"), ServerError), (error(RateLimited("slow down", retry_after=3)), RateLimited), (cut(), NetworkError),
], ids=["server", "rate_limit", "cut"])  # fmt: skip
async def test_a_models_failure_is_on_record_and_the_record_is_never_sent(problem: Any, kind: type[RunError]) -> None:
    model = ScriptedModel([problem, text("better now")])
    talk = Agent(model=model).conversation()
    with pytest.raises(kind) as caught:
        await talk.run("go")
    result = await talk.run("again")

    record = talk.messages[1]
    assert (record.role, record.content) == ("assistant", ())
    assert (record.stop_reason, record.error) == ("error", str(caught.value))  # type: ignore[union-attr]
    assert [m.text for m in model.requests[1].messages] == ["go", "again"]
    assert result.text == "better now"


async def test_what_was_shown_before_a_failure_is_kept_and_sent_with_the_next_request() -> None:
    model = ScriptedModel([[text("half a sen"), error("down")], text("better now")])
    talk = Agent(model=model).conversation()
    first = await talk.run("go", check=False)
    await talk.run("again")

    assert first.text == "half a sen"
    assert talk.messages[1].stop_reason == "error"  # type: ignore[union-attr]
    assert [m.text for m in model.requests[1].messages] == ["go", "half a sen", "again"]


async def test_a_failing_hook_is_on_record_with_its_name_and_place() -> None:
    def broken(plan: Any) -> None:
        raise RuntimeError("the price list is gone")

    model = ScriptedModel([text("better now")])
    talk = Agent(model=model, hooks=[Hook(seam="prepare_request", fn=broken)]).conversation()
    with pytest.raises(HookFailed, match="the price list is gone") as caught:
        await talk.run("go")

    failure = caught.value
    assert (failure.hook, failure.seam) == ("broken", "prepare_request")
    assert "test_stop_reasons.py" in failure.where
    assert talk.messages[-1].error == str(failure)  # type: ignore[union-attr]
    assert isinstance(failure.__cause__, RuntimeError)


async def test_a_model_that_raises_something_of_its_own_is_a_typed_error_that_names_it() -> None:
    def broken(request: Any) -> Any:
        raise ZeroDivisionError("in the adapter")

    result = await Agent(model=FunctionModel(broken)).run("go", check=False)

    assert result.stop_reason == "error"
    assert "ZeroDivisionError: in the adapter" in str(result.error)


async def test_a_request_that_would_not_fit_is_not_sent_and_says_what_to_do() -> None:
    model = ScriptedModel([text("never")], context_tokens=10)
    talk = Agent(model=model).conversation()
    with pytest.raises(RequestTooLarge, match="compact"):
        await talk.run("x" * 400)

    assert model.requests == []


async def test_an_unchecked_error_is_returned_with_everything_that_was_done() -> None:
    model = ScriptedModel([[tool_call("go_on")], error("down")])

    @tool
    async def go_on() -> str:
        return "done"

    result = await Agent(model=model, tools=[go_on]).run("go", check=False)

    assert isinstance(result.error, ServerError)
    assert [m.text for m in result.messages] == ["go", "", "done", ""]
    assert result.turns == 2


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_instructions_that_raise_end_the_run_with_a_typed_error(kind: str) -> None:
    def broken(run: Any) -> str:
        raise LookupError("no instructions today")

    async def async_broken(run: Any) -> str:
        raise LookupError("no instructions today")

    model = ScriptedModel([text("never")])
    talk = Agent(model=model, instructions=["Be brief.", broken if kind == "sync" else async_broken]).conversation()
    ends: list[Any] = []
    talk.on("agent_end", ends.append)
    result = await talk.run("go", check=False)

    assert isinstance(result.error, RunError)
    assert "no instructions today" in str(result.error)
    assert (result.stop_reason, len(ends)) == ("error", 1)
    assert model.requests == []


async def test_instructions_that_give_no_text_are_an_error_that_names_them() -> None:
    def a_number(run: Any) -> Any:
        return 42

    model = ScriptedModel([text("never")])
    result = await Agent(model=model, instructions=["Be brief.", a_number]).run("go", check=False)

    assert isinstance(result.error, RunError)
    assert "a_number" in str(result.error)
    assert "int" in str(result.error)
    assert (result.stop_reason, model.requests) == ("error", [])


class Yielding(Model):
    """Yields what it is told to."""

    name, provider = "yielding", "scripted"

    def __init__(self, *events: Any) -> None:
        self.events = events

    async def stream(self, request: Any, call: Any = None) -> Any:
        for event in self.events:
            yield event


@pytest.mark.parametrize("junk", ["text", 42, None, {"text": "x"}, TextDelta(42), TextDelta(None)], ids=repr)  # type: ignore[arg-type]
async def test_a_model_that_yields_nonsense_is_a_typed_error_and_what_came_before_is_kept(junk: Any) -> None:
    talk = Agent(model=Yielding(TextDelta("half "), junk, Finish("stop"))).conversation()
    result = await talk.run("go", check=False)

    assert isinstance(result.error, InvalidResponse)
    assert [m.text for m in talk.messages] == ["go", "half "]


async def test_an_image_in_a_reply_is_part_of_it_and_of_the_next_request() -> None:
    image = Image(data="AAAA")
    model = Yielding(TextDelta("look: "), ImageDelta(image), TextDelta("nice"), Finish("stop"))
    talk = Agent(model=model).conversation()
    result = await talk.run("go")

    assert result.messages[-1].content == (Text("look: "), image, Text("nice"))


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_the_turn_limit_of_a_run_can_be_set_for_one_run(limit: int) -> None:
    @tool
    async def go_on() -> str:
        return "done"

    model = FunctionModel(lambda request: tool_call("go_on"))
    talk = Agent(model=model, tools=[go_on], limits=Limits(max_turns=3)).conversation()
    one = await talk.run("go", limits=Limits(max_turns=limit))
    two = await talk.run("go")

    assert (one.stop_reason, one.turns) == ("max_turns", limit)
    assert (two.stop_reason, two.turns) == ("max_turns", 3)


async def test_without_a_turn_limit_a_run_may_go_on() -> None:
    @tool
    async def go_on() -> str:
        return "done"

    model = FunctionModel(lambda request: tool_call("go_on") if len(model.requests) <= 120 else text("end"))
    result = await Agent(model=model, tools=[go_on], limits=Limits(max_turns=None)).run("go")

    assert (result.stop_reason, result.turns) == ("completed", 121)


async def test_a_queued_message_beyond_the_turn_limit_stays_queued() -> None:
    model = ScriptedModel([text("one")])
    talk = Agent(model=model, limits=Limits(max_turns=1)).conversation()
    talk.follow_up("later")
    result = await talk.run("go")

    assert result.stop_reason == "max_turns"
    assert [m.text for m in talk.queued] == ["later"]
