"""What listeners hear, in which order, and that nothing they do is felt by the run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from beforehand import Agent, AssistantMessage, Block, Event, Hook, Queue, ToolContext, ToolResult, UserMessage, tool
from beforehand.errors import ConfigError, FrozenError
from beforehand.events import EVENT_TYPES, OPT_IN
from beforehand.models.base import CallInfo, Finish, Model, TextDelta
from beforehand.testing import ScriptedModel, error, text, thinking, tool_call


@tool
async def work(n: int = 0) -> ToolResult:
    return ToolResult("worked", details={"n": n})


def story() -> ScriptedModel:
    return ScriptedModel([[thinking("hm"), text("", chunks=["I ", "will"]), tool_call("work", {"n": 1}, id="c")], text("end")])


async def test_the_order_of_events_is_the_order_of_what_happens() -> None:
    heard: list[Any] = []
    talk = Agent(model=story(), tools=[work]).conversation()
    talk.subscribe(heard.append)
    await talk.run("go")

    assert [e.type for e in heard] == [
        "agent_start",
        "turn_start", "message_start", "message_end", "message_start", "message_update", "message_update", "message_update",
        "message_update", "message_end", "tool_execution_start", "tool_execution_end", "message_start", "message_end", "turn_end",
        "turn_start", "message_start", "message_update", "message_end", "turn_end",
        "agent_end",
    ]  # fmt: skip


async def test_every_event_has_the_common_fields_and_its_own() -> None:
    heard: dict[str, Any] = {}
    talk = Agent(
        model=story(), tools=[work], hooks=[Hook(seam="before_tool_call", fn=lambda c: Queue("note"), name="noter")]
    ).conversation()
    talk.subscribe(lambda e: heard.setdefault(e.type, e))
    result = await talk.run("go", run_id="the run")

    assert {(e.run_id, e.loop, e.parent_call_id) for e in heard.values()} == {("the run", "main", None)}
    assert (heard["agent_start"].turn, heard["turn_start"].turn, heard["turn_start"].number) == (0, 1, 1)
    assert (heard["message_start"].message, heard["message_start"].origin) == (UserMessage("go"), "prompt")
    assert (heard["message_end"].message, heard["message_end"].origin) == (UserMessage("go"), "prompt")
    update = heard["message_update"]
    assert (update.kind, update.delta, update.message_id) == ("thinking", "hm", result.messages[1].id)  # type: ignore[union-attr]
    start, end = heard["tool_execution_start"], heard["tool_execution_end"]
    assert (start.call_id, start.name, start.args) == ("c", "work", {"n": 1})
    assert (end.call_id, end.name, end.outcome, end.is_error) == ("c", "work", "ran", False)
    assert (end.result.text, end.result.details) == ("worked", {"n": 1})
    assert (heard["decision"].record.hook, heard["decision"].record.effects) == ("noter", ("Queue",))
    assert heard["turn_end"].message.text == "I will"
    assert [m.text for m in heard["turn_end"].tool_results] == ["worked"]
    assert heard["agent_end"].messages == result.messages
    assert heard["agent_end"].stop_reason == "completed"


async def test_updates_say_their_kind_and_a_calls_arguments_come_in_one_piece() -> None:
    heard: list[Any] = []
    talk = Agent(model=story(), tools=[work]).conversation()
    talk.on("message_update", lambda e: heard.append((e.kind, e.delta, e.call_id)))
    await talk.run("go")

    assert heard == [
        ("thinking", "hm", None), ("text", "I ", None), ("text", "will", None),
        ("tool_call", '{"n":1}', "c"), ("text", "end", None),
    ]  # fmt: skip


async def test_a_streamed_reply_begins_empty_and_ends_whole() -> None:
    heard: list[Any] = []
    talk = Agent(model=ScriptedModel([text("whole")])).conversation()
    for name in ("message_start", "message_end"):
        talk.on(name, lambda e: heard.append(e.message) if e.origin == "model" else None)
    await talk.run("go")

    begun, ended = heard
    assert isinstance(begun, AssistantMessage)
    assert (begun.content, begun.id) == ((), ended.id)
    assert ended.text == "whole"


async def test_when_an_event_says_that_a_message_is_in_the_history_it_is() -> None:
    heard: list[Any] = []
    talk = Agent(model=story(), tools=[work]).conversation()
    talk.on("message_start", lambda e: heard.append(("start", len(talk.messages))))
    talk.on("message_end", lambda e: heard.append(("end", talk.messages[-1] == e.message)))
    await talk.run("go")

    assert heard == [
        ("start", 0),
        ("end", True),
        ("start", 1),
        ("end", True),
        ("start", 2),
        ("end", True),
        ("start", 3),
        ("end", True),
    ]


async def test_the_last_event_has_the_messages_of_this_run_only() -> None:
    heard: list[Any] = []
    talk = Agent(model=ScriptedModel([text("one"), text("two")])).conversation()
    talk.on("agent_end", lambda e: heard.append([m.text for m in e.messages]))
    await talk.run("a")
    await talk.run("b")

    assert heard == [["a", "one"], ["b", "two"]]


@pytest.mark.parametrize("how", ["error", "blocked"])
async def test_a_run_that_failed_has_all_its_events_too(how: str) -> None:
    heard: list[str] = []
    hooks = [Hook(seam="authorize_request", fn=lambda r: Block("no"))] if how == "blocked" else []
    talk = Agent(model=ScriptedModel([error("down")]), hooks=hooks).conversation()
    talk.subscribe(lambda e: heard.append(e.type))
    await talk.run("go", check=False)

    assert heard[-4:] == ["message_start", "message_end", "turn_end", "agent_end"]
    assert heard.count("agent_end") == heard.count("turn_end") == 1


# --- listening ------------------------------------------------------------------------------------


async def test_listeners_are_called_in_order_of_subscription_and_awaited_one_by_one() -> None:
    steps: list[str] = []

    async def slow(event: Any) -> None:
        steps.append("slow begins")
        await asyncio.sleep(0)
        steps.append("slow ends")

    talk = Agent(
        model=ScriptedModel([text("one")]), listeners=[lambda e: steps.append("agent's") if e.type == "turn_start" else None]
    ).conversation()
    talk.on("turn_start", slow)
    talk.on("turn_start", lambda e: steps.append("last"))
    await talk.run("go")

    assert steps == ["agent's", "slow begins", "slow ends", "last"]


async def test_a_run_is_over_only_when_the_listeners_of_its_last_event_are() -> None:
    seen: list[Any] = []

    async def slow(event: Any) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append(talk.is_running)

    talk = Agent(model=ScriptedModel([text("one")])).conversation()
    talk.on("agent_end", slow)
    await talk.run("go")

    assert seen == [True]
    assert not talk.is_running


async def test_unsubscribing_ends_it_and_may_be_done_twice_or_while_events_are_delivered() -> None:
    heard: list[str] = []

    def once(event: Any) -> None:
        heard.append(event.type)
        end_of_once()

    talk = Agent(model=ScriptedModel([text("one"), text("two")])).conversation()
    end_of_once = talk.subscribe(once)
    end_of_named = talk.on("turn_end", lambda e: heard.append("named"))
    await talk.run("go")
    end_of_once()
    end_of_named()
    end_of_named()
    await talk.run("again")

    assert heard == ["agent_start", "named"]


async def test_one_listener_subscribed_twice_hears_twice_and_each_ends_by_itself() -> None:
    heard: list[str] = []
    talk = Agent(model=ScriptedModel([text("one"), text("two")])).conversation()

    def listener(event: Any) -> None:
        heard.append(event.type)

    talk.on("turn_start", listener)
    end = talk.on("turn_start", listener)
    await talk.run("go")
    end()
    await talk.run("again")

    assert heard == ["turn_start"] * 3


async def test_listeners_of_an_agent_hear_every_talk_and_listeners_of_a_talk_only_theirs() -> None:
    everywhere: list[str] = []
    here: list[str] = []
    agent = Agent(model=ScriptedModel([text("one"), text("two")]), listeners=[lambda e: everywhere.append(e.run_id)])
    talk, other = agent.conversation(), agent.conversation()
    talk.subscribe(lambda e: here.append(e.run_id))
    await talk.run("go", run_id="a")
    await other.run("go", run_id="b")

    assert set(everywhere) == {"a", "b"}
    assert set(here) == {"a"}


@pytest.mark.parametrize("name", ["tool_end", "", "message-end", "agent_started", "custom"])
def test_an_unknown_event_name_is_refused_with_a_hint(name: str) -> None:
    talk = Agent(model=ScriptedModel()).conversation()
    with pytest.raises(ConfigError, match="there is no event") as caught:
        talk.on(name, print)
    assert "did you mean" in str(caught.value) or "the events are" in str(caught.value)


@pytest.mark.parametrize("name", [*EVENT_TYPES, "custom.mine"])
def test_every_known_event_and_custom_ones_can_be_listened_to(name: str) -> None:
    talk = Agent(model=ScriptedModel()).conversation()
    talk.on(name, print)()


@pytest.mark.parametrize("listener", [None, 42, "print"], ids=repr)
def test_a_listener_must_be_callable(listener: Any) -> None:
    talk = Agent(model=ScriptedModel()).conversation()
    with pytest.raises(ConfigError, match="callable"):
        talk.subscribe(listener)
    with pytest.raises(ConfigError, match="callable"):
        talk.on("turn_start", listener)
    with pytest.raises(ConfigError, match="callable"):
        Agent(model=ScriptedModel(), listeners=[listener])


# --- failing listeners ----------------------------------------------------------------------------


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    "problem", [RuntimeError("broken"), asyncio.CancelledError("mine"), Odd("odd")], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize(
    "name",
    [n for n in EVENT_TYPES if n not in OPT_IN and n not in ("message_retracted", "tool_execution_update", "compacted")],
)
async def test_a_listener_that_fails_is_logged_and_the_run_never_feels_it(
    name: str, problem: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    after: list[str] = []

    def fail(event: Any) -> None:
        raise problem

    talk = Agent(model=story(), tools=[work], hooks=[Hook(seam="before_tool_call", fn=lambda c: Queue("note"))]).conversation()
    talk.on(name, fail)
    talk.on(name, lambda e: after.append(e.type))
    with caplog.at_level(logging.ERROR, logger="beforehand"):
        result = await talk.run("go")

    assert result.stop_reason == "completed"
    assert result.text == "end"
    assert after
    assert any(name in record.getMessage() for record in caplog.records)


async def test_a_listener_that_starts_a_run_of_its_own_talk_gets_the_error_and_the_run_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def greedy(event: Any) -> None:
        await talk.run("me too")

    talk = Agent(model=ScriptedModel([text("one")])).conversation()
    talk.on("turn_start", greedy)
    result = await talk.run("go")

    assert result.text == "one"
    assert "already processing" in caplog.text


async def test_events_are_frozen_all_the_way_down() -> None:
    refused: list[str] = []

    def edit(event: Any) -> None:
        for attempt in (
            lambda: setattr(event, "run_id", "x"), lambda: event.args.update(n=9), lambda: event.result.details.clear(),
            lambda: event.messages.append(1), lambda: setattr(event.message, "content", "x"),
        ):  # fmt: skip
            try:
                attempt()
            except FrozenError:
                refused.append(event.type)
            except AttributeError:
                pass

    talk = Agent(model=story(), tools=[work]).conversation()
    talk.subscribe(edit)
    result = await talk.run("go")

    assert [m.text for m in result.messages] == ["go", "I will", "worked", "end"]
    assert {"tool_execution_start", "tool_execution_end", "message_end", "agent_start"} <= set(refused)


# --- opt-in events --------------------------------------------------------------------------------


class Wired(Model):
    """Says what goes over its wire, if somebody watches."""

    name, provider, endpoint = "wired", "scripted", "http://localhost/v1"

    async def stream(self, request: Any, call: CallInfo = CallInfo()) -> Any:  # noqa: B008
        if call.observe is not None:
            call.observe(
                "request_sent", {"endpoint": self.endpoint, "model": self.name, "body": {"messages": len(request.messages)}}
            )
            call.observe("response_received", {"status": 200})
        yield TextDelta("one")
        if call.observe is not None:
            call.observe("provider_event", {"data": {"raw": True}})
        yield Finish("stop")


async def test_opt_in_events_are_heard_by_name_only_and_in_order() -> None:
    everything: list[Event] = []
    named: list[Any] = []
    talk = Agent(model=Wired()).conversation()
    talk.subscribe(everything.append)
    await talk.run("go")
    for name in OPT_IN:
        talk.on(name, named.append)
    await talk.run("go")

    assert not {e.type for e in everything} & OPT_IN
    assert [e.type for e in named] == ["request_sent", "response_received", "provider_event"]
    assert named[0].body == {"messages": 3}
    assert all(e.run_id for e in named)


async def test_nobody_watching_the_wire_means_the_model_is_not_asked_to_report() -> None:
    asked: list[Any] = []

    class Curious(Wired):
        async def stream(self, request: Any, call: CallInfo = CallInfo()) -> Any:  # noqa: B008
            asked.append(call.observe)
            async for event in super().stream(request, call):
                yield event

    talk = Agent(model=Curious()).conversation()
    talk.subscribe(lambda e: None)
    await talk.run("go")

    assert asked == [None]


async def test_a_stream_includes_opt_in_events_that_are_named() -> None:
    talk = Agent(model=Wired()).conversation()
    plain = [e.type async for e in talk.stream("go")]
    named = [e.type async for e in talk.stream("go", events=["request_sent", "provider_event"])]

    assert not set(plain) & OPT_IN
    assert set(named) & OPT_IN == {"request_sent", "provider_event"}
    assert named.index("request_sent") < named.index("message_update")


async def test_nested_and_inner_events_say_inside_which_call_they_happened() -> None:
    @tool
    async def script(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("work", {})).text)

    child = Agent(model=ScriptedModel([text("helped")])).as_tool("helper", "Helps.", events=True)
    model = ScriptedModel([[tool_call("script", id="s"), tool_call("helper", {"prompt": "go"}, id="h")], text("end")])
    talk = Agent(model=model, tools=[work, script, child], tool_mode="sequential").conversation()
    heard: list[Any] = []
    talk.subscribe(lambda e: heard.append((e.type, e.parent_call_id)))
    await talk.run("go")

    assert ("tool_execution_end", "s") in heard
    assert ("agent_end", "h") in heard
    assert heard[-1] == ("agent_end", None)
