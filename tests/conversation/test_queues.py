"""Steering and follow-ups: when a queued message is taken, in which order, and that none is ever lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from beforehand import (
    Agent, Approve, Ask, AssistantMessage, CustomMessage, End, Hook, Interrupt, Request, SystemMessage, Text, ToolContext,
    ToolResult, UserMessage, tool,
)  # fmt: skip
from beforehand.errors import ConfigError
from beforehand.models.base import CallInfo, ModelEvent
from beforehand.testing import ScriptedModel, text, tool_call

# Moments of the first turn, and whether the first request has been made by then.
BEFORE_THE_FIRST_POLL = [
    "idle", "hook:before_run", "hook:before_turn", "hook:on_message:prompt", "event:agent_start", "event:turn_start",
    "event:message_start:prompt", "event:message_end:prompt",
]  # fmt: skip
AFTER_THE_FIRST_POLL = [
    "hook:prepare_request", "hook:transform_context", "hook:convert_to_llm", "hook:before_provider_call", "hook:get_api_key",
    "hook:authorize_request", "model", "hook:on_chunk", "event:message_update", "event:message_start:model",
    "hook:on_message:model", "event:message_end:model", "event:tool_execution_start", "hook:prepare_tool_call",
    "hook:before_tool_call", "on_ask", "tool", "hook:after_tool_call", "event:tool_execution_end", "hook:on_message:tool",
    "event:message_end:tool", "hook:finish_turn", "event:turn_end", "hook:after_turn", "hook:prepare_next_turn",
]  # fmt: skip


class Moment:
    """Does something once, at one moment of a run."""

    def __init__(self, name: str, act: Any) -> None:
        self.kind, _, rest = name.partition(":")
        self.which, _, self.origin = rest.partition(":")
        self.act, self.done = act, False

    def at(self, kind: str, context: Any = None) -> None:
        if self.kind == kind and not self.done and self.origin in ("", getattr(context, "origin", None)):
            self.done = True
            self.act()


def talk_with(moment: Moment, script: list[Any], **modes: Any) -> tuple[Any, ScriptedModel]:
    """A talk whose first turn passes every moment: a reply with text and a call that a person is asked about."""

    class Watched(ScriptedModel):
        async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
            async for event in super().stream(request, call):
                moment.at("model")
                yield event

    @tool
    async def work(ctx: ToolContext) -> str:
        moment.at("tool")
        return "done"

    def on_ask(pending: Any) -> Approve:
        moment.at("on_ask")
        return Approve()

    hooks = [Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"), order=-1)]
    if moment.kind == "hook":
        hooks.append(Hook(seam=moment.which, fn=lambda context: moment.at("hook", context)))
    model = Watched(script)
    talk = Agent(model=model, tools=[work], hooks=hooks, on_ask=on_ask).conversation(**modes)
    if moment.kind == "event":
        talk.on(moment.which, lambda event: moment.at("event", event))
    return talk, model


SCRIPT = [[text("I will"), tool_call("work")], text("one"), text("two"), text("three"), text("four")]


@pytest.mark.parametrize("name", [*BEFORE_THE_FIRST_POLL, *AFTER_THE_FIRST_POLL])
async def test_steering_is_in_the_very_next_request_that_is_prepared_whenever_it_was_said(name: str) -> None:
    moment = Moment(name, lambda: talk.steer("psst"))
    talk, model = talk_with(moment, SCRIPT)
    moment.at("idle")
    result = await talk.run("go")

    assert moment.done
    first = 0 if name in BEFORE_THE_FIRST_POLL else 1
    assert [[m.text for m in r.messages].count("psst") for r in model.requests] == [int(n >= first) for n in range(2)]
    assert [m.text for m in result.messages].count("psst") == 1
    assert next(m for m in result.messages if m.text == "psst").origin == "steer"
    expected = ["go", "psst", "I will", "done", "one"] if first == 0 else ["go", "I will", "done", "psst", "one"]
    assert [m.text for m in result.messages] == expected
    assert talk.queued == ()


@pytest.mark.parametrize("name", [*BEFORE_THE_FIRST_POLL, *AFTER_THE_FIRST_POLL])
async def test_a_follow_up_waits_until_the_run_would_have_ended_whenever_it_was_said(name: str) -> None:
    moment = Moment(name, lambda: talk.follow_up("and then"))
    talk, _ = talk_with(moment, SCRIPT)
    moment.at("idle")
    result = await talk.run("go")

    assert moment.done
    assert [m.text for m in result.messages] == ["go", "I will", "done", "one", "and then", "two"]
    assert next(m for m in result.messages if m.text == "and then").origin == "follow_up"
    assert talk.queued == ()


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize("name", ["hook:finish_turn", "hook:after_turn", "event:turn_end", "hook:on_message:model"])
async def test_a_message_queued_in_the_last_turn_makes_another_one(name: str, queue: str) -> None:
    moment = Moment(name, lambda: getattr(talk, queue)("one more"))
    talk, _ = talk_with(moment, [text("one"), text("two")])
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "one", "one more", "two"]


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_a_message_queued_when_the_run_is_over_waits_for_the_next_run(queue: str) -> None:
    moment = Moment("event:agent_end", lambda: getattr(talk, queue)("for next time"))
    talk, model = talk_with(moment, [text("one"), text("two"), text("three")])
    await talk.run("go")

    assert [m.text for m in talk.queued] == ["for next time"]
    assert len(model.requests) == 1
    result = await talk.run("again")
    expected = ["again", "for next time", "two"] if queue == "steer" else ["again", "two", "for next time", "three"]
    assert [m.text for m in result.messages] == expected


# --- modes ----------------------------------------------------------------------------------------

MODES = {
    # (steering mode, follow-up mode): what each request ends with
    ("one-at-a-time", "one-at-a-time"): [["go", "s1"], ["s2"], ["s3"], ["f1"], ["f2"], ["f3"]],
    ("all", "one-at-a-time"): [["go", "s1", "s2", "s3"], ["f1"], ["f2"], ["f3"]],
    ("one-at-a-time", "all"): [["go", "s1"], ["s2"], ["s3"], ["f1", "f2", "f3"]],
    ("all", "all"): [["go", "s1", "s2", "s3"], ["f1", "f2", "f3"]],
}


@pytest.mark.parametrize(("modes", "expected"), MODES.items(), ids=lambda v: "+".join(v) if isinstance(v, tuple) else "")
async def test_the_modes_say_how_many_queued_messages_one_turn_takes(modes: Any, expected: list[list[str]]) -> None:
    model = ScriptedModel([text(f"reply {n}") for n in range(9)])
    talk = Agent(model=model).conversation(steering_mode=modes[0], follow_up_mode=modes[1])
    for n in "123":
        talk.steer(f"s{n}")
        talk.follow_up(f"f{n}")
    await talk.run("go")

    sent = [[m.text for m in r.messages] for r in model.requests]
    assert [request[-len(ending) :] for request, ending in zip(sent, expected, strict=True)] == expected


async def test_steering_always_comes_before_follow_ups() -> None:
    model = ScriptedModel([text("one"), text("two"), text("three")])
    talk = Agent(model=model).conversation()
    talk.follow_up("later")
    talk.on("turn_end", lambda e: talk.steer("first") if len(model.requests) == 1 else None)
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "one", "first", "two", "later", "three"]


async def test_a_word_said_while_a_follow_up_is_about_to_be_taken_goes_first_and_the_follow_up_stays() -> None:
    hooks = [Hook(seam="prepare_next_turn", fn=lambda t: talk.steer("wait") if t.cause == "follow_up" and not said else None)]
    said: list[str] = []
    model = ScriptedModel([text("one"), text("two"), text("three")])
    talk = Agent(model=model, hooks=hooks).conversation()
    talk.follow_up("later")
    talk.on("message_end", lambda e: said.append(e.message.text) if e.origin == "steer" else None)
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "one", "wait", "two", "later", "three"]


async def test_all_calls_of_a_turn_run_before_steering_is_taken() -> None:
    @tool
    async def work(n: int) -> str:
        talk.steer("stop") if n == 1 else None
        return str(n)

    model = ScriptedModel([[tool_call("work", {"n": n}) for n in (1, 2, 3)], text("stopped")])
    talk = Agent(model=model, tools=[work]).conversation()
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "", "1", "2", "3", "stop", "stopped"]


# --- what may be queued ---------------------------------------------------------------------------

QUEUED = [
    "text", UserMessage("text"), AssistantMessage((Text("text"),)), SystemMessage("text"), CustomMessage("note", "text"),
]  # fmt: skip


@pytest.mark.parametrize("message", QUEUED, ids=lambda m: m if isinstance(m, str) else m.role)
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_any_message_can_be_queued_and_keeps_its_role(message: Any, queue: str) -> None:
    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model).conversation()
    getattr(talk, queue)(message)
    result = await talk.run("go")

    (stored,) = [m for m in result.messages if m.text == "text"]
    assert stored.role == ("user" if isinstance(message, str) else message.role)
    assert stored.origin == queue


@pytest.mark.parametrize("message", [42, None, {"role": "user"}, ["text"]], ids=repr)
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
def test_what_is_no_message_cannot_be_queued(message: Any, queue: str) -> None:
    talk = Agent(model=ScriptedModel()).conversation()
    with pytest.raises(ConfigError, match="expected a string or a message"):
        getattr(talk, queue)(message)
    assert talk.queued == ()


def test_an_unknown_mode_is_refused() -> None:
    agent = Agent(model=ScriptedModel())
    with pytest.raises(ConfigError, match="one-at-a-time"):
        agent.conversation(steering_mode="some")
    with pytest.raises(ConfigError, match="follow_up_mode"):
        agent.conversation(follow_up_mode="")


# --- how messages leave the queue -----------------------------------------------------------------


async def test_queues_can_be_looked_at_and_cleared() -> None:
    model = ScriptedModel([text("one")])
    talk = Agent(model=model).conversation()
    talk.follow_up("later")
    talk.steer("now")
    assert [m.text for m in talk.queued] == ["now", "later"]
    talk.clear_queues()
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "one"]


async def test_the_same_message_queued_twice_is_taken_twice() -> None:
    model = ScriptedModel([text("one"), text("two"), text("three")])
    talk = Agent(model=model).conversation()
    message = UserMessage("again")
    talk.steer(message)
    talk.steer(message)
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "again", "one", "again", "two"]


async def test_a_turn_that_a_hook_did_not_begin_leaves_the_queues_alone() -> None:
    hooks = [Hook(seam="before_turn", fn=lambda t: End("no more") if t.number == 2 else None)]
    model = ScriptedModel([text("one")])
    talk = Agent(model=model, hooks=hooks).conversation()
    talk.follow_up("later")
    result = await talk.run("go")

    assert result.stop_reason == "ended"
    assert [m.text for m in talk.queued] == ["later"]


async def test_a_hook_sees_what_is_about_to_come_in_before_the_turn_begins() -> None:
    seen: list[Any] = []
    hooks = [Hook(seam="before_turn", fn=lambda t: seen.append([m.text for m in t.incoming]))]
    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model, hooks=hooks).conversation()
    talk.follow_up("later")
    await talk.run("go")

    assert seen == [["go"], ["later"]]


async def test_a_queued_message_that_a_hook_keeps_out_is_gone_and_ends_the_turn() -> None:
    hooks = [Hook(seam="on_message", fn=lambda m: Interrupt("rude") if m.origin == "steer" else None)]
    model = ScriptedModel([text("never")])
    talk = Agent(model=model, hooks=hooks).conversation()
    talk.steer("you fool")
    result = await talk.run("go")

    assert (result.stop_reason, result.reason) == ("interrupted", "rude")
    assert [m.text for m in talk.messages] == ["go"]
    assert (talk.queued, model.requests) == ((), [])


async def test_the_batch_behind_a_message_that_failed_stays_queued() -> None:
    def fail(incoming: Any) -> None:
        if incoming.message.text == "two":
            raise RuntimeError("broken")

    model = ScriptedModel([text("never")])
    talk = Agent(model=model, hooks=[Hook(seam="on_message", fn=fail)]).conversation(steering_mode="all")
    for word in ("one", "two", "three"):
        talk.steer(word)
    await talk.run("go", check=False)

    assert [m.text for m in talk.messages][:2] == ["go", "one"]
    assert [m.text for m in talk.queued] == ["two", "three"]


async def test_a_terminating_tool_does_not_keep_a_follow_up_from_being_taken() -> None:
    @tool
    async def stop() -> ToolResult:
        return ToolResult("stopped", terminate=True)

    model = ScriptedModel([tool_call("stop"), text("two")])
    talk = Agent(model=model, tools=[stop]).conversation()
    talk.follow_up("later")
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "", "stopped", "later", "two"]
