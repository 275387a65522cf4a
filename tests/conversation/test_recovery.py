"""What follows a failed turn: told apart by the type of the error, a row the model reads, and a bounded number of attempts."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from beforehand import (
    Agent, AssistantMessage, AuthenticationError, BadRequest, ConfigError, ContextTooLong, Hook, HookFailed, Image, Interrupt,
    Limits, Message, NetworkError, Options, RateLimited, Recovery, Replace, RequestTooLarge, Resend, RunError, ServerError, Text,
    ToolCall, ToolMessage, ToolMismatch, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.testing import FunctionModel, ScriptedModel, error, text, tool_call

from conversation.checks import assert_valid


class Waits:
    """Sleeps without sleeping, and remembers for how many seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def recovery(self, **changes: Any) -> Recovery:
        return Recovery(**{"jitter": 0, "sleep": self, **changes})


def failing(times: int, why: str = "broken", seam: str = "before_provider_call", **options: Any) -> Hook:
    """A hook that fails so often, each time with another text, then lets everything pass."""
    calls = []

    def fail(context: Any) -> None:
        calls.append(context)
        if len(calls) <= times:
            raise RuntimeError(f"{why} {len(calls)}")

    made = Hook(seam=seam, fn=fail, name="fail", **options)
    fail.__dict__["calls"] = calls
    return made


def calls_of(made: Hook) -> list[Any]:
    return made.fn.__dict__["calls"]


def rows(messages: Any) -> list[str]:
    return [m.text for m in messages if m.text.startswith("[Turn error]")]


def verdicts(result: Any) -> list[str]:
    return [d.verdict for d in result.decisions if d.seam == "recovery"]


# --- the row -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_failed_hook_leaves_one_row_that_the_model_reads_at_the_next_turn(kind: str) -> None:
    calls = []

    def fail(call: Any) -> None:
        calls.append(call)
        if len(calls) == 1:
            raise RuntimeError("the policy service is down")

    async def afail(call: Any) -> None:
        fail(call)

    past = [UserMessage((Text("look"), Image(url="http://127.0.0.1/p.png"))), AssistantMessage((Text("seen"),))]
    model = ScriptedModel([text("hello again")])
    hooks = [Hook(seam="before_provider_call", fn=fail if kind == "sync" else afail)]
    talk = Agent(model=model, hooks=hooks, recovery=Recovery(auto_retry=False)).conversation(past)
    with pytest.raises(HookFailed, match="policy service") as caught:
        await talk.run("hi")

    assert model.requests == []
    assert list(talk.messages[:3]) == [*past, UserMessage("hi")]
    (row,) = talk.messages[3:]
    assert (row.role, row.origin) == ("user", "hook")
    assert row.text.startswith("[Turn error] hook ")
    assert "the policy service is down" in row.text
    assert caught.value.result.messages[-1] == row
    await talk.run("and now?")
    assert [m.text for m in model.requests[0].messages][-3:] == ["hi", row.text, "and now?"]


async def test_without_a_recovery_a_failure_is_a_record_that_is_never_sent() -> None:
    talk = Agent(model=ScriptedModel([text("hello")]), hooks=[failing(1)]).conversation()
    with pytest.raises(HookFailed):
        await talk.run("hi")
    last = talk.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.content) == ("error", ())


async def test_the_row_holds_two_thousand_characters_of_the_error() -> None:
    agent = Agent(model=ScriptedModel(), hooks=[failing(9, "x" * 5000)], recovery=Recovery(auto_retry=False))
    result = await agent.run("hi", check=False)
    assert len(result.messages[-1].text) == len("[Turn error] ") + 2000


async def test_the_row_is_an_event_like_any_message() -> None:
    heard = []
    agent = Agent(model=ScriptedModel(), hooks=[failing(9)], recovery=Recovery(auto_retry=False), listeners=[heard.append])
    result = await agent.run("hi", check=False)
    kinds = [e.type for e in heard if getattr(e, "message", None) == result.messages[-1]]
    assert kinds == ["message_start", "message_end"]
    assert [e.record.verdict for e in heard if e.type == "decision"] == ["failed"]
    assert [e.type for e in heard][-2:] == ["turn_end", "agent_end"]


async def test_a_hook_at_10_judges_the_row_and_what_it_changes_is_what_the_history_holds() -> None:
    @hook.on_message
    def redact(incoming: Any) -> Replace | None:
        if "s3cret" in incoming.message.text:
            return Replace(message=UserMessage(incoming.message.text.replace("s3cret", "***"), origin="hook"))
        return None

    agent = Agent(model=ScriptedModel(), hooks=[failing(9, "s3cret"), redact], recovery=Recovery(auto_retry=False))
    result = await agent.run("hi", check=False)
    assert "*** 1" in rows(result.messages)[0]


@pytest.mark.parametrize("how", ["interrupts", "fails"])
async def test_a_row_that_may_not_stand_becomes_a_record_that_is_never_sent(how: str) -> None:
    @hook.on_message
    def guard(incoming: Any) -> Interrupt | None:
        if incoming.origin == "prompt":
            return None
        if how == "fails":
            raise RuntimeError("broken too")
        return Interrupt("not this")

    agent = Agent(model=ScriptedModel(), hooks=[failing(9), guard], recovery=Recovery(auto_retry=False))
    result = await agent.run("hi", check=False)
    last = result.messages[-1]
    assert rows(result.messages) == []
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.content) == ("error", ())
    assert "broken 1" in str(last.error)


async def test_a_blocked_request_stays_a_record_with_a_recovery_too() -> None:
    from beforehand import Block

    blocked = Hook(seam="authorize_request", fn=lambda r: Block("not today"))
    waits = Waits()
    result = await Agent(model=ScriptedModel(), hooks=[blocked], recovery=waits.recovery()).run("hi")
    assert (result.stop_reason, rows(result.messages), waits.seconds) == ("blocked", [], [])


RETRIED = (
    "before_turn", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "get_api_key",
    "authorize_request", "on_chunk", "on_message",
)  # fmt: skip


# --- trying again --------------------------------------------------------------------------------


async def test_a_failed_hook_is_asked_again_after_the_delay_and_then_the_request_leaves_once() -> None:
    waits, model, fails = Waits(), ScriptedModel([text("hello")]), failing(1)
    result = await Agent(model=model, hooks=[fails], recovery=waits.recovery(max_attempts=1)).run("hi")

    assert (result.text, result.stop_reason, result.error) == ("hello", "completed", None)
    assert len(model.requests) == 1
    assert waits.seconds == [15.0]
    assert verdicts(result) == ["turn_error_retry_scheduled"]
    assert [m.text for m in result.messages].count("hi") == 1
    seen = [m.text for m in calls_of(fails)[1].request.messages]
    assert seen[0] == "hi"
    assert seen[1].startswith("[Turn error] hook 'fail'")
    assert seen[2].startswith("[Turn error] structural recovery retry 1 of 1")
    assert "provider error" not in str(seen)


async def test_delays_double_up_to_the_longest_and_the_last_failure_is_raised_after_them() -> None:
    waits = Waits()
    agent = Agent(model=ScriptedModel(), hooks=[failing(99)], recovery=waits.recovery(max_delay_ms=100_000))
    result = await agent.run("hi", check=False)

    assert waits.seconds == [15.0, 30.0, 60.0, 100.0, 100.0]
    assert isinstance(result.error, HookFailed)
    assert "broken 6" in str(result.error)
    assert verdicts(result) == ["turn_error_retry_scheduled"] * 5 + ["recovery_exhausted"]
    assert len(rows(result.messages)) == 6 + 5
    with pytest.raises(HookFailed):
        await agent.run("hi")


@pytest.mark.parametrize(("drawn", "seconds"), [(0.0, 12.0), (0.5, 15.0), (1.0, 18.0)])
async def test_delays_are_off_by_a_fifth_at_most_either_way(drawn: float, seconds: float) -> None:
    waits = Waits()
    recovery = Recovery(sleep=waits, random=lambda: drawn, max_attempts=1)
    await Agent(model=ScriptedModel([text("hello")]), hooks=[failing(1)], recovery=recovery).run("hi")
    assert waits.seconds == [pytest.approx(seconds)]


async def test_auto_retry_off_means_a_row_and_no_second_attempt() -> None:
    waits, fails = Waits(), failing(1)
    result = await Agent(model=ScriptedModel([text("never")]), hooks=[fails], recovery=waits.recovery(auto_retry=False)).run(
        "hi", check=False
    )
    assert (len(calls_of(fails)), waits.seconds, len(rows(result.messages))) == (1, [], 1)


async def test_failures_in_a_row_are_counted_over_runs_and_a_reply_ends_the_row() -> None:
    waits, fails = Waits(), failing(4)
    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model, hooks=[fails], recovery=waits.recovery(max_attempts=2)).conversation()
    await talk.run("a", check=False)  # three failures: two attempts
    assert len(waits.seconds) == 2
    await talk.run("b", check=False)  # the fourth, none left
    assert len(waits.seconds) == 2
    assert (await talk.run("c")).text == "one"
    calls_of(fails).clear()  # it fails four times more, but a reply came in between
    await talk.run("d", check=False)
    assert len(waits.seconds) == 4


async def test_a_reply_between_two_failures_of_one_run_starts_the_count_anew() -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    waits, turns = Waits(), []

    def every_second(call: Any) -> None:
        turns.append(call)
        if len(turns) % 2:
            raise RuntimeError(f"broken {len(turns)}")

    model = ScriptedModel([tool_call("work"), tool_call("work"), tool_call("work"), text("end")])
    hooks = [Hook(seam="before_provider_call", fn=every_second)]
    result = await Agent(model=model, tools=[work], hooks=hooks, recovery=waits.recovery(max_attempts=1)).run("go")
    assert result.text == "end"
    assert waits.seconds == [15.0] * 4
    assert_valid(result.messages)


@pytest.mark.parametrize("seam", RETRIED[:-2])
async def test_the_same_failure_on_the_same_input_is_not_tried_five_times(seam: str, caplog: pytest.LogCaptureFixture) -> None:
    waits, asked = Waits(), []

    def fn(context: Any) -> None:
        asked.append(context)
        raise KeyError("policy")

    wrong = Hook(seam=seam, fn=fn)
    with caplog.at_level(logging.WARNING, logger="beforehand"):
        result = await Agent(model=ScriptedModel(), hooks=[wrong], recovery=waits.recovery()).run("hi", check=False)
    assert len(asked) == 2
    assert waits.seconds == [15.0]
    assert verdicts(result) == ["turn_error_retry_scheduled", "recovery_stopped"]
    assert "the same input gave the same error again" in str(result.decisions[-1].reason)
    assert "recovery_stopped" in caplog.text


@pytest.mark.parametrize("seam", ["on_chunk", "on_message"])
@pytest.mark.parametrize("reply", [text("hello"), [text("Let me look."), tool_call("look", {"at": "a"})]], ids=["text", "call"])
async def test_the_same_failure_over_the_same_reply_is_not_paid_for_five_times(seam: str, reply: Any) -> None:
    def fn(context: Any) -> None:
        if seam == "on_chunk" or context.origin == "model":
            raise KeyError("policy")

    model = FunctionModel(lambda request: reply)
    agent = Agent(model=model, hooks=[Hook(seam=seam, fn=fn)], recovery=Waits().recovery())
    result = await agent.run("hi", check=False)
    assert len(model.requests) == 2
    assert verdicts(result) == ["turn_error_retry_scheduled", "recovery_stopped"]


async def test_a_refusal_of_the_same_request_is_the_same_whatever_id_the_endpoint_gives_it() -> None:
    def refuse(request: Any) -> Any:
        return error(BadRequest(f"no such parameter (request id: req_{len(model.requests)}f3)", status=400))

    model = FunctionModel(refuse)
    result = await Agent(model=model, recovery=Waits().recovery()).run("hi", check=False)
    assert len(model.requests) == 2
    assert verdicts(result) == ["turn_error_retry_scheduled", "recovery_stopped"]


@pytest.mark.parametrize("origin", ["hook", "prompt"])
async def test_a_row_that_a_hook_at_10_wrote_anew_is_one_row_and_no_new_input(origin: Any) -> None:
    @hook.on_message
    def plainer(incoming: Any) -> Replace | None:
        return Replace(message=UserMessage("Something went wrong.", origin=origin)) if incoming.origin == "hook" else None

    @hook.before_provider_call
    def wrong(call: Any) -> None:
        raise KeyError("policy")

    result = await Agent(model=ScriptedModel(), hooks=[plainer, wrong], recovery=Waits().recovery()).run("hi", check=False)
    assert verdicts(result) == ["turn_error_retry_scheduled", "recovery_stopped"]
    assert [m.text for m in result.messages] == ["hi", *["Something went wrong."] * 3]


async def test_the_same_failure_on_another_input_is_tried_on() -> None:
    waits, count = Waits(), iter(range(99))

    @hook.transform_context(order=-1)
    def differs(view: Any) -> Replace:
        return Replace(messages=(*view.messages, UserMessage(f"attempt {next(count)}")))

    @hook.before_provider_call
    def wrong(call: Any) -> None:
        raise KeyError("policy")

    result = await Agent(model=ScriptedModel(), hooks=[differs, wrong], recovery=waits.recovery()).run("hi", check=False)
    assert len(waits.seconds) == 5
    assert verdicts(result)[-1] == "recovery_exhausted"


@pytest.mark.parametrize("passing", [TimeoutError("slow"), ConnectionError("refused")], ids=repr)
async def test_where_time_or_a_network_plays_a_part_the_same_failure_is_tried_on(passing: Exception) -> None:
    waits = Waits()

    @hook.before_provider_call
    def index(call: Any) -> None:
        raise passing

    result = await Agent(model=ScriptedModel(), hooks=[index], recovery=waits.recovery()).run("hi", check=False)
    assert len(waits.seconds) == 5
    assert verdicts(result)[-1] == "recovery_exhausted"


async def test_a_hook_that_gives_no_answer_in_time_is_tried_on() -> None:
    waits = Waits()

    @hook.before_provider_call(timeout=0.01)
    async def hangs(call: Any) -> None:
        await asyncio.Event().wait()

    result = await Agent(model=ScriptedModel(), hooks=[hangs], recovery=waits.recovery(max_attempts=2)).run("hi", check=False)
    assert len(waits.seconds) == 2
    assert verdicts(result)[-1] == "recovery_exhausted"


@pytest.mark.parametrize("seam", RETRIED)
async def test_a_failure_at_any_seam_on_the_way_to_a_reply_is_tried_again_and_no_message_is_lost_or_doubled(seam: str) -> None:
    waits = Waits()
    model = ScriptedModel([text("hello")] * 2)
    result = await Agent(model=model, hooks=[failing(1, seam=seam)], recovery=waits.recovery()).run("hi")
    said = [m.text for m in result.messages]
    assert (result.stop_reason, said[-1], said.count("hi"), len(waits.seconds)) == ("completed", "hello", 1, 1)
    assert_valid(result.messages)


async def test_a_failure_between_two_turns_goes_on_with_the_tools_results() -> None:
    ran = []

    @tool
    async def work() -> str:
        """Work."""
        ran.append("body")
        return "worked"

    model = ScriptedModel([tool_call("work", id="c"), text("end")])
    hooks = [failing(1, seam="prepare_next_turn")]
    result = await Agent(model=model, tools=[work], hooks=hooks, recovery=Waits().recovery()).run("go")
    assert (result.text, ran) == ("end", ["body"])
    assert_valid(result.messages)


async def test_a_hook_that_failed_between_two_turns_is_asked_again_and_no_request_leaves_without_it() -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    waits, asked = Waits(), []

    @hook.prepare_next_turn
    def to_the_private_model(turn: Any) -> None:
        asked.append((turn.cause, turn.message.tool_calls[0].name, [m.text for m in turn.tool_results]))
        raise RuntimeError(f"broken {len(asked)}")

    model = ScriptedModel([tool_call("work"), text("never")])
    agent = Agent(model=model, tools=[work], hooks=[to_the_private_model], recovery=waits.recovery(max_attempts=2))
    result = await agent.run("go", check=False)
    assert (result.stop_reason, len(model.requests)) == ("error", 1)
    assert asked == [("tools", "work", ["worked"])] * 3


async def test_after_a_failure_over_a_tools_result_seam_16_is_asked_before_the_next_attempt() -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    @hook.on_message
    def broken(incoming: Any) -> None:
        if incoming.origin == "tool":
            raise RuntimeError("broken")

    asked: list[Any] = []

    @hook.prepare_next_turn
    def between(turn: Any) -> None:
        asked.append((turn.cause, [m.text[:22] for m in turn.tool_results]))

    model = ScriptedModel([tool_call("work"), text("end")])
    result = await Agent(model=model, tools=[work], hooks=[broken, between], recovery=Waits().recovery()).run("go")
    assert (result.text, asked) == ("end", [("tools", ["The result is withheld"])])


IS_FOR: dict[str, Any] = {
    "before_turn": lambda turn: turn.number == 2,
    "on_message": lambda incoming: incoming.message.text == "and then?",
    "before_provider_call": lambda call: call.request.messages[-1].text == "and then?",
}


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize("seam", IS_FOR)
async def test_the_next_attempt_begins_with_the_message_that_the_failed_turn_was_for(seam: str, queue: str) -> None:
    failed: list[Any] = []

    def fails_once(context: Any) -> None:
        if IS_FOR[seam](context) and not failed:
            failed.append(context)
            raise RuntimeError("broken")

    def reply(request: Any) -> Any:
        if len(model.requests) == 1:
            getattr(talk, queue)("and then?")
        return text("hello")

    model = FunctionModel(reply)
    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=fails_once)], recovery=Waits().recovery()).conversation()
    await talk.run("hi")
    assert len(model.requests) == 2
    assert [m.text for m in model.requests[1].messages].count("and then?") == 1
    assert (len(failed), talk.queued) == (1, ())


async def test_what_is_taken_out_of_the_queue_while_the_run_waits_is_not_in_the_next_attempt() -> None:
    async def cleared(seconds: float) -> None:
        talk.clear_queues()

    @hook.before_turn
    def fails_once(turn: Any) -> None:
        if turn.number == 2:
            raise RuntimeError("broken")

    model = ScriptedModel([text("hello"), text("fine")])
    talk = Agent(model=model, hooks=[fails_once], recovery=Recovery(sleep=cleared)).conversation()
    talk.follow_up("never mind")
    await talk.run("hi", check=False)
    assert "never mind" not in [m.text for request in model.requests for m in request.messages]


@pytest.mark.parametrize("seam", ["finish_turn", "after_turn"])
async def test_where_the_reply_stands_already_nothing_is_asked_again(seam: str) -> None:
    waits, model = Waits(), ScriptedModel([text("hello"), text("never")])
    result = await Agent(model=model, hooks=[failing(9, seam=seam)], recovery=waits.recovery()).run("hi", check=False)
    assert (len(model.requests), waits.seconds, len(rows(result.messages))) == (1, [], 1)
    assert isinstance(result.error, HookFailed)


@pytest.mark.parametrize("seam", ["before_provider_call", "before_tool_call"])
async def test_a_hook_that_wants_the_run_to_end_has_its_way(seam: str) -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    waits = Waits()
    hooks = [failing(9, seam=seam, on_error="abort")]
    model = ScriptedModel([tool_call("work"), text("never")])
    result = await Agent(model=model, tools=[work], hooks=hooks, recovery=waits.recovery()).run("hi", check=False)
    assert isinstance(result.error, HookFailed)
    assert (waits.seconds, len(rows(result.messages))) == ([], 1)


async def test_attempts_count_as_turns() -> None:
    waits = Waits()
    agent = Agent(model=ScriptedModel(), hooks=[failing(9)], recovery=waits.recovery(), limits=Limits(max_turns=2))
    result = await agent.run("hi", check=False)
    assert (result.turns, len(waits.seconds)) == (2, 1)
    assert verdicts(result)[-1] == "recovery_stopped"


async def test_an_abort_ends_the_waiting_at_once() -> None:
    waiting = asyncio.Event()

    async def forever(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    model = ScriptedModel([text("never")])
    talk = Agent(
        model=model, hooks=[failing(1)], recovery=Recovery(sleep=forever), limits=Limits(abort_grace=None)
    ).conversation()
    running = asyncio.ensure_future(talk.run("hi"))
    await waiting.wait()
    talk.abort()
    result = await running
    assert (result.stop_reason, result.error, model.requests) == ("aborted", None, [])
    assert len(rows(talk.messages)) == 1


async def test_an_abort_before_the_waiting_begins_ends_the_run_too() -> None:
    waits = Waits()
    talk = Agent(model=ScriptedModel(), hooks=[failing(1)], recovery=waits.recovery()).conversation()
    talk.on("decision", lambda e: talk.abort() if e.record.seam == "recovery" else None)
    result = await talk.run("hi", check=False)
    assert (result.stop_reason, result.error, waits.seconds) == ("aborted", None, [])


async def test_a_talk_whose_turn_failed_can_be_continued_without_a_prompt() -> None:
    model = ScriptedModel([text("hello")])
    talk = Agent(model=model, hooks=[failing(1)], recovery=Recovery(auto_retry=False)).conversation()
    await talk.run("hi", check=False)
    assert (await talk.continue_run()).text == "hello"
    assert [m.text[:12] for m in model.requests[0].messages] == ["hi", "[Turn error]"]


async def test_cancelling_a_run_that_waits_cancels_it() -> None:
    waiting = asyncio.Event()

    async def forever(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    talk = Agent(model=ScriptedModel(), hooks=[failing(1)], recovery=Recovery(sleep=forever)).conversation()
    running = asyncio.ensure_future(talk.run("hi"))
    await waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not talk.is_running


async def test_what_a_person_says_while_the_run_waits_is_in_the_next_attempt() -> None:
    async def steer(seconds: float) -> None:
        talk.steer("use the other index")

    model = ScriptedModel([text("hello")])
    talk = Agent(model=model, hooks=[failing(1)], recovery=Recovery(sleep=steer)).conversation()
    await talk.run("hi")
    assert model.requests[0].messages[-1].text == "use the other index"


async def test_also_where_the_run_goes_on_with_what_was_queued() -> None:
    async def steer(seconds: float) -> None:
        talk.steer("use the other index")

    model = ScriptedModel([text("hello")])
    agent = Agent(model=model, hooks=[failing(1)], recovery=Recovery(sleep=steer))
    talk = agent.conversation([UserMessage("hi"), AssistantMessage((Text("yes?"),))])
    talk.follow_up("go on")
    await talk.continue_run()
    assert [m.text for m in model.requests[0].messages][-1] == "use the other index"


async def test_a_wish_to_ask_again_that_came_before_a_failure_is_not_granted_after_it() -> None:
    wishes = iter([Resend(), None, None])
    hooks = [Hook(seam="authorize_request", fn=lambda r: next(wishes)), failing(1, seam="authorize_request")]
    model = ScriptedModel([text("hello"), text("never")])
    await Agent(model=model, hooks=hooks, recovery=Waits().recovery()).run("hi")
    assert len(model.requests) == 1


async def test_a_stream_shows_the_attempts_as_turns_of_one_run() -> None:
    agent = Agent(model=ScriptedModel([text("hello")]), hooks=[failing(1)], recovery=Waits().recovery())
    stream = agent.stream("hi")
    kinds = [event.type async for event in stream]
    assert (kinds.count("agent_start"), kinds.count("turn_start"), kinds.count("agent_end")) == (1, 2, 1)
    assert kinds.count("decision") == 2  # the failure, and that it will be tried again


# --- the kinds of failure ------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [ServerError("down"), NetworkError("cut"), RateLimited("slow down")], ids=repr)
async def test_an_outage_is_waited_for_and_the_model_is_told_nothing_of_it(problem: Any) -> None:
    waits, model = Waits(), ScriptedModel([error(problem), error(problem), text("hello")])
    result = await Agent(model=model, recovery=waits.recovery()).run("hi")
    assert (result.text, waits.seconds, rows(result.messages)) == ("hello", [15.0, 30.0], [])
    assert verdicts(result) == ["provider_retry_scheduled"] * 2
    assert [[m.text for m in request.messages] for request in model.requests] == [["hi"]] * 3


async def test_an_endpoint_that_asks_for_patience_gets_it_up_to_the_longest_delay() -> None:
    waits, model = Waits(), ScriptedModel([error(RateLimited("slow down", retry_after=42)), text("hello")])
    await Agent(model=model, recovery=waits.recovery()).run("hi")
    assert waits.seconds == [42]
    waits, model = Waits(), ScriptedModel([error(RateLimited("slow down", retry_after=301)), text("never")])
    result = await Agent(model=model, recovery=waits.recovery()).run("hi", check=False)
    assert (waits.seconds, verdicts(result)) == ([], ["recovery_stopped"])


async def test_text_that_was_shown_is_not_said_twice() -> None:
    waits, model = Waits(), ScriptedModel([[text("hel"), error("cut")], text("never")])
    result = await Agent(model=model, recovery=waits.recovery()).run("hi", check=False)
    assert (len(model.requests), waits.seconds, verdicts(result)) == (1, [], ["recovery_stopped"])
    assert isinstance(result.error, ServerError)


async def test_a_refused_key_is_not_tried_again_and_nothing_is_said_to_the_model() -> None:
    waits, model = Waits(), ScriptedModel([error(AuthenticationError("no")), text("never")])
    result = await Agent(model=model, recovery=waits.recovery()).run("hi", check=False)
    assert isinstance(result.error, AuthenticationError)
    assert (len(model.requests), waits.seconds, rows(result.messages), verdicts(result)) == (1, [], [], [])


async def test_a_quota_that_is_used_up_is_not_waited_for() -> None:
    problem = RateLimited("the quota is used up")
    problem.lasting = True
    waits, model = Waits(), ScriptedModel([error(problem), text("never")])
    result = await Agent(model=model, recovery=waits.recovery()).run("hi", check=False)
    assert (result.error, waits.seconds, verdicts(result)) == (problem, [], [])


async def test_a_refused_request_with_images_is_tried_once_without_them_and_the_history_keeps_them() -> None:
    waits = Waits()
    model = ScriptedModel([error(BadRequest("no")), text("blind")])
    picture = UserMessage((Text("what is it?"), Image(url="http://127.0.0.1/p.png")))
    talk = Agent(model=model, recovery=waits.recovery()).conversation()
    result = await talk.run(picture)
    assert (result.text, waits.seconds, verdicts(result)) == ("blind", [], ["image_retry"])
    assert not any(isinstance(part, Image) for m in model.requests[1].messages for part in m.content)
    assert "an image was left out" in model.requests[1].messages[0].text
    assert talk.messages[0] == picture


async def test_a_request_refused_without_its_images_too_is_a_failure_of_its_own() -> None:
    waits = Waits()
    model = ScriptedModel([error(BadRequest("no")), error(BadRequest("no")), error(BadRequest("no")), text("never")])
    picture = UserMessage((Text("what is it?"), Image(url="http://127.0.0.1/p.png")))
    result = await Agent(model=model, recovery=waits.recovery()).run(picture, check=False)
    assert isinstance(result.error, BadRequest)
    assert len(model.requests) == 3
    assert verdicts(result) == ["image_retry", "turn_error_retry_scheduled", "recovery_stopped"]


async def test_new_images_in_the_same_run_are_not_left_out_once_more() -> None:
    @tool
    async def draw() -> Image:
        """Draw."""
        return Image(data="AAAA")

    waits = Waits()
    model = ScriptedModel([error(BadRequest("a")), tool_call("draw"), error(BadRequest("b")), text("never")])
    picture = UserMessage((Text("what is it?"), Image(url="http://127.0.0.1/p.png")))
    agent = Agent(model=model, tools=[draw], recovery=waits.recovery(max_attempts=0))
    result = await agent.run(picture, check=False)
    assert verdicts(result) == ["image_retry", "recovery_exhausted"]


@tool
async def trains(day: str) -> str:
    """Trains."""
    return f"305 on {day}"


@pytest.mark.parametrize("images", [False, True])
async def test_refused_calls_are_told_once_as_text_and_the_history_keeps_them(images: bool) -> None:
    waits = Waits()
    past: list[Message] = [UserMessage((Text("look"), Image(url="http://127.0.0.1/p.png")))] if images else []
    asks = [tool_call("trains", {"day": "Friday"}, id="a"), tool_call("trains", {"day": "sunday"}, id="b")]
    model = ScriptedModel([[text("I look."), *asks], error(ToolMismatch("unmatched")), text("Train 305.")])
    talk = Agent(model=model, tools=[trains], recovery=waits.recovery()).conversation(past)
    result = await talk.run("Which train?")

    assert (result.text, waits.seconds, verdicts(result)) == ("Train 305.", [], ["tool_mismatch_retry"])
    *asked, told, notice = model.requests[2].messages
    assert asked == [*past, UserMessage("Which train?")], "no image is left out: this is not what was refused"
    assert isinstance(told, AssistantMessage)
    assert (told.tool_calls, told.stop_reason) == ([], "stop")
    assert told.text.splitlines() == [
        'I look.[called trains (a) with {"day":"Friday"}][called trains (b) with {"day":"sunday"}]',
        "[trains (a) returned: 305 on Friday]",
        "[trains (b) returned: 305 on sunday]",
    ]
    assert (notice.role, notice.origin) == ("user", "hook")
    assert notice.text.startswith("[Turn error]")
    assert [m.role for m in talk.messages[len(past) :]] == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    assert_valid(talk.messages)


@pytest.mark.parametrize("first", ["image", "tool_mismatch"])
async def test_pictures_and_calls_that_are_refused_one_after_the_other_are_each_left_out_once(first: str) -> None:
    """Which of them is tried is told by the error, not by what the request holds."""
    waits = Waits()
    refusals = {"image": error(BadRequest("no")), "tool_mismatch": error(ToolMismatch("no"))}
    order = [first, *(kind for kind in refusals if kind != first)]
    model = ScriptedModel([tool_call("trains", {"day": "Friday"}), *(refusals[kind] for kind in order), text("Train 305.")])
    picture = UserMessage((Text("where to?"), Image(url="http://127.0.0.1/p.png")))
    talk = Agent(model=model, tools=[trains], recovery=waits.recovery()).conversation()
    result = await talk.run(picture)

    assert (result.text, waits.seconds, verdicts(result)) == ("Train 305.", [], [f"{kind}_retry" for kind in order])
    without = {"image": [False, False, True, True], "tool_mismatch": [False, False, False, True]}[first]
    shown = [any(isinstance(part, Image) for m in request.messages for part in m.content) for request in model.requests]
    assert shown == [not gone for gone in without]
    assert not any(m.role == "tool" for m in model.requests[-1].messages)
    assert talk.messages[0] == picture


async def test_calls_refused_again_are_a_failure_of_its_own() -> None:
    waits = Waits()
    again = [tool_call("trains", {"day": "x"}), error(ToolMismatch("b")), text("never")]
    model = ScriptedModel([tool_call("trains", {"day": "Friday"}), error(ToolMismatch("a")), *again])
    agent = Agent(model=model, tools=[trains], recovery=waits.recovery(max_attempts=0))
    result = await agent.run("Which train?", check=False)
    assert isinstance(result.error, ToolMismatch)
    assert verdicts(result) == ["tool_mismatch_retry", "recovery_exhausted"]


async def test_a_mismatch_without_a_call_is_a_failure_like_any_other() -> None:
    waits = Waits()
    model = ScriptedModel([error(ToolMismatch("a")), text("hello")])
    result = await Agent(model=model, recovery=waits.recovery()).run("hi")
    assert verdicts(result) == ["turn_error_retry_scheduled"]


async def test_a_mismatch_is_left_alone_where_nothing_is_tried_again() -> None:
    model = ScriptedModel([tool_call("trains", {"day": "Friday"}), error(ToolMismatch("a")), text("never")])
    agent = Agent(model=model, tools=[trains], recovery=Recovery(auto_retry=False))
    result = await agent.run("Which train?", check=False)
    assert (len(model.requests), verdicts(result)) == (2, [])


@pytest.mark.parametrize("problem", [ContextTooLong("no"), RequestTooLarge("no")], ids=repr)
async def test_what_only_a_shorter_request_can_help_is_not_tried_again(problem: RunError) -> None:
    waits = Waits()
    model = FunctionModel(lambda request: (_ for _ in ()).throw(problem))
    result = await Agent(model=model, recovery=waits.recovery()).run("hi", check=False)
    assert result.error is problem
    assert (waits.seconds, verdicts(result), len(rows(result.messages))) == ([], ["recovery_stopped"], 1)


WORDS = ["invalid api key", "401 unauthorized", "tool_result mismatch", "image_url is invalid", "timeout", "rate limit, retry"]


@pytest.mark.parametrize("words", WORDS)
async def test_what_a_hook_says_leads_to_no_recovery_but_its_own(words: str, caplog: pytest.LogCaptureFixture) -> None:
    past = [
        UserMessage((Text("look"), Image(url="http://127.0.0.1/p.png"))),
        AssistantMessage((ToolCall("c", "work"),), "tool_calls"), ToolMessage("c", "work", "worked"),
        AssistantMessage((Text("seen"),)),
    ]  # fmt: skip
    waits, model = Waits(), ScriptedModel([text("hello")])
    fails = failing(1, words)
    talk = Agent(model=model, hooks=[fails], recovery=waits.recovery()).conversation(past)
    with caplog.at_level(logging.WARNING, logger="beforehand"):
        result = await talk.run("hi")
    assert verdicts(result) == ["turn_error_retry_scheduled"]
    assert list(talk.messages[:4]) == past
    assert list(model.requests[0].messages[:4]) == past
    assert "provider_retry" not in caplog.text
    assert "image_retry" not in caplog.text


async def test_an_error_of_the_providers_type_raised_by_a_hook_is_the_hooks() -> None:
    waits = Waits()

    @hook.before_provider_call
    def wrong(call: Any) -> None:
        raise AuthenticationError("no")

    result = await Agent(model=ScriptedModel(), hooks=[wrong], recovery=waits.recovery()).run("hi", check=False)
    assert isinstance(result.error, HookFailed)
    assert verdicts(result) == ["turn_error_retry_scheduled", "recovery_stopped"]


async def test_a_failed_hook_keeps_nothing_of_what_it_was_asked_about() -> None:
    result = await Agent(model=ScriptedModel(), hooks=[failing(9)], recovery=Waits().recovery()).run("hi", check=False)
    assert isinstance(result.error, HookFailed)
    assert result.error.judged is None


# --- what can never work -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"auto_retry": 1}, {"max_attempts": -1}, {"max_attempts": 1.5}, {"max_attempts": True}, {"base_delay_ms": -1},
        {"base_delay_ms": "1"}, {"max_delay_ms": float("inf")}, {"max_delay_ms": float("nan")}, {"jitter": 1.1}, {"jitter": None},
    ],
    ids=repr,
)  # fmt: skip
def test_a_recovery_that_can_never_work_is_refused_when_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"Recovery.{next(iter(wrong))} is"):
        Recovery(**wrong)


def test_an_agent_takes_a_recovery_or_none() -> None:
    with pytest.raises(ConfigError, match="recovery=True must be a Recovery"):
        Agent(model=ScriptedModel(), recovery=True)  # type: ignore[arg-type]
    kept = Agent(model=ScriptedModel(), recovery=Recovery(max_attempts=2)).replace(options=Options())
    assert kept.plan.recovery is not None
    assert kept.plan.recovery.max_attempts == 2
