"""One run at a time, going on without a prompt, waiting for the end, and running without an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import (
    Agent, AssistantMessage, ConfigError, ConversationBusy, CustomMessage, FrozenError, Hook, Interrupt, Model, NothingToContinue,
    Price, SystemMessage, Text, ToolCall, ToolContext, ToolMessage, Usage, UsageError, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.testing import FunctionModel, ScriptedModel, error, finish, text, tool_call


class Gate:
    """A model that answers when it is let."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.model = FunctionModel(self.answer)

    async def answer(self, request: Any) -> Any:
        self.asked.set()
        await self.go.wait()
        return text("one")


@pytest.mark.parametrize("second", ["run", "stream", "continue_run", "resume", "compact"])
async def test_a_second_run_at_the_same_time_is_refused_and_the_first_goes_on(second: str) -> None:
    gate = Gate()
    talk = Agent(model=gate.model).conversation()
    running = asyncio.create_task(talk.run("go"))
    await gate.asked.wait()

    async def start() -> None:
        if second == "stream":
            async for _ in talk.stream("me too"):
                pass
        elif second == "run":
            await talk.run("me too")
        elif second == "resume":
            await talk.resume({})
        else:
            await getattr(talk, second)()

    with pytest.raises(ConversationBusy, match="already"):
        await start()
    gate.go.set()
    result = await running

    assert result.text == "one"
    assert [m.text for m in talk.messages] == ["go", "one"]


async def test_runs_of_one_talk_follow_one_another() -> None:
    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model).conversation()
    await talk.run("a")
    result = await talk.run("b")

    assert [m.text for m in model.requests[1].messages] == ["a", "one", "b"]
    assert [m.text for m in result.messages] == ["b", "two"]
    assert [m.text for m in talk.messages] == ["a", "one", "b", "two"]


async def test_talks_of_one_agent_do_not_know_of_each_other() -> None:
    agent = Agent(model=FunctionModel(lambda request: text(str(len(request.messages)))))
    results = await asyncio.gather(*[agent.conversation().run("go") for _ in range(20)], *[agent.run("go") for _ in range(20)])

    assert {result.text for result in results} == {"1"}
    assert len({result.run_id for result in results}) == 40


async def test_a_talk_can_begin_with_a_history() -> None:
    model = ScriptedModel([text("one")])
    past = [SystemMessage("rules"), UserMessage("a"), AssistantMessage((Text("b"),))]
    talk = Agent(model=model).conversation(past)
    result = await talk.run("c")

    assert [m.text for m in model.requests[0].messages] == ["rules", "a", "b", "c"]
    assert [m.text for m in result.messages] == ["c", "one"]


# --- waiting --------------------------------------------------------------------------------------


async def test_waiting_for_idle_returns_when_the_run_and_its_listeners_are_done() -> None:
    gate, order = Gate(), []
    talk = Agent(model=gate.model).conversation()

    async def slow(event: Any) -> None:
        await asyncio.sleep(0)
        order.append("listener")

    talk.on("agent_end", slow)
    running = asyncio.create_task(talk.run("go"))
    await gate.asked.wait()

    async def wait() -> None:
        await talk.wait_for_idle()
        order.append("idle")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert order == []
    gate.go.set()
    await asyncio.gather(running, waiting)

    assert order == ["listener", "idle"]


async def test_every_run_can_be_waited_for() -> None:
    order: list[str] = []
    gates = [Gate(), Gate()]
    answers = iter(gates)
    talk = Agent(model=FunctionModel(lambda request: next(answers).answer(request))).conversation()
    for number, gate in enumerate(gates):
        running = asyncio.create_task(talk.run("go"))
        await gate.asked.wait()
        waiting = asyncio.create_task(talk.wait_for_idle())
        waiting.add_done_callback(lambda _: order.append("idle"))
        for _ in range(5):
            await asyncio.sleep(0)
        order.append(f"let {number} go")
        gate.go.set()
        await asyncio.gather(running, waiting)

    assert order == ["let 0 go", "idle", "let 1 go", "idle"]


async def test_waiting_for_idle_returns_at_once_when_nothing_runs() -> None:
    talk = Agent(model=ScriptedModel([error("down")])).conversation()
    await talk.wait_for_idle()
    await talk.run("go", check=False)
    await talk.wait_for_idle()

    assert not talk.is_running


# --- going on without a prompt --------------------------------------------------------------------

ASKED = AssistantMessage((ToolCall("c", "work", "{}"),), "tool_calls")

CAN_GO_ON: dict[str, list[Any]] = {
    "user": [UserMessage("a")],
    "tool": [UserMessage("a"), ASKED, ToolMessage("c", "work", "worked")],
    "custom": [UserMessage("a"), AssistantMessage((Text("b"),)), CustomMessage("k", "x")],
    "user_behind_a_failed_reply": [UserMessage("a"), AssistantMessage((), "error", error="down")],
}


@pytest.mark.parametrize("tail", list(CAN_GO_ON))
async def test_a_history_that_waits_for_a_reply_can_be_continued_without_new_messages(tail: str) -> None:
    model = ScriptedModel([text("one")])
    talk = Agent(model=model).conversation(CAN_GO_ON[tail])
    heard: list[Any] = []
    talk.on("message_start", lambda e: heard.append(e.message.role))
    result = await talk.continue_run()

    assert heard == ["assistant"], "old messages are not told again"
    assert [m.text for m in result.messages] == ["one"]
    assert model.requests[0].messages[0].text == "a"


NOTHING: dict[str, list[Any]] = {
    "empty": [],
    "system": [SystemMessage("rules")],
    "assistant": [UserMessage("a"), AssistantMessage((Text("b"),))],
}


@pytest.mark.parametrize("tail", list(NOTHING))
async def test_where_nothing_waits_for_a_reply_there_is_nothing_to_continue(tail: str) -> None:
    model = ScriptedModel([text("never")])
    talk = Agent(model=model).conversation(NOTHING[tail])
    with pytest.raises(NothingToContinue, match=r"run\(prompt\)"):
        await talk.continue_run()

    assert (model.requests, len(talk.messages)) == ([], len(NOTHING[tail]))


async def test_behind_a_reply_queued_messages_are_what_is_continued_with() -> None:
    model = ScriptedModel([text("one"), text("two"), text("three")])
    talk = Agent(model=model).conversation(NOTHING["assistant"])
    talk.steer("s1")
    talk.steer("s2")
    talk.follow_up("f")
    result = await talk.continue_run()

    assert [m.text for m in result.messages] == ["s1", "one", "s2", "two", "f", "three"]
    assert talk.queued == ()


async def test_behind_a_reply_a_follow_up_is_taken_if_nothing_steers() -> None:
    model = ScriptedModel([text("one")])
    talk = Agent(model=model).conversation(NOTHING["assistant"])
    talk.follow_up("f")
    result = await talk.continue_run()

    assert [m.text for m in result.messages] == ["f", "one"]


async def test_queued_messages_are_untouched_where_there_is_nothing_to_continue() -> None:
    talk = Agent(model=ScriptedModel()).conversation()
    talk.follow_up("f")
    with pytest.raises(NothingToContinue):
        await talk.continue_run()

    assert [m.text for m in talk.queued] == ["f"]


async def test_a_failed_run_can_be_tried_again() -> None:
    model = ScriptedModel([error("down"), text("one")])
    talk = Agent(model=model).conversation()
    await talk.run("go", check=False)
    result = await talk.continue_run()

    assert result.text == "one"
    assert [[m.text for m in r.messages] for r in model.requests] == [["go"], ["go"]]


# --- without an event loop ------------------------------------------------------------------------


def test_run_sync_runs_and_closes_the_models_connections() -> None:
    closed: list[bool] = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(True)

    agent = Agent(model=Closing([text("one"), text("two"), error("down")]))

    assert agent.run_sync("go").text == "one"
    assert agent.run_sync("again").text == "two"
    assert agent.run_sync("and again", check=False).stop_reason == "error"
    assert closed == [True] * 3


def test_run_sync_takes_what_run_takes() -> None:
    seen: list[Any] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        seen.append((ctx.deps, ctx.run.run_id))
        return "worked"

    Agent(model=ScriptedModel([tool_call("work"), text("end")]), tools=[work]).run_sync("go", deps="d", run_id="r")

    assert seen == [("d", "r")]


async def test_run_sync_inside_a_running_loop_is_refused_with_what_to_do() -> None:
    model = ScriptedModel([text("never")])
    with pytest.raises(UsageError, match=r"await agent\.run"):
        Agent(model=model).run_sync("go")

    assert model.requests == []


async def test_an_agent_closes_its_models_connections_at_the_end_of_a_with_block() -> None:
    closed: list[bool] = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(True)

    async with Agent(model=Closing([text("one")])) as agent:
        await agent.run("go")
        assert closed == []

    assert closed == [True]


# --- an agent does not change ---------------------------------------------------------------------


def test_an_agent_is_a_plan_that_does_not_change() -> None:
    agent = Agent(model=ScriptedModel(name="first"), instructions="a")
    with pytest.raises(FrozenError, match="replace"):
        agent.plan = None  # type: ignore[misc]
    with pytest.raises(TypeError):
        agent.model = ScriptedModel()  # type: ignore[attr-defined]
    other = agent.replace(model=ScriptedModel(name="second"))

    assert (agent.plan.model.name, other.plan.model.name) == ("first", "second")
    assert isinstance(other.plan.model, Model)


async def test_the_history_of_a_talk_is_a_view_that_never_changes() -> None:
    talk = Agent(model=ScriptedModel([text("one")])).conversation()
    before = talk.messages
    await talk.run("go")

    assert len(before) == 0
    assert [m.text for m in talk.messages] == ["go", "one"]
    with pytest.raises((TypeError, AttributeError)):
        talk.messages[0] = UserMessage("smuggled")  # type: ignore[index]
    with pytest.raises(AttributeError):
        talk.messages.append(UserMessage("smuggled"))  # type: ignore[attr-defined]


async def test_usage_and_cost_are_the_runs_own() -> None:
    model = ScriptedModel(
        [[text("one"), finish(usage=Usage(1_000_000, 500_000))], [text("two"), finish(usage=Usage(1, 1))]], name="m"
    )
    talk = Agent(model=model, prices={"m": Price(2, 4)}).conversation()
    first = await talk.run("a")
    second = await talk.run("b")

    assert (first.usage, first.cost) == (Usage(1_000_000, 500_000), 4.0)
    assert second.usage == Usage(1, 1)


@pytest.mark.parametrize("keep", ["nothing", "aborted"])
async def test_a_reply_that_a_hook_lets_nobody_keep_has_been_paid_for(keep: Any) -> None:
    @hook.on_message
    def refuse(incoming: Any) -> Interrupt | None:
        return Interrupt("no", resend=True, keep=keep) if "one" in incoming.message.text else None

    said = [text("one"), finish(usage=Usage(1_000_000, 500_000))], [text("two"), finish(usage=Usage(1_000_000, 0))]
    model = ScriptedModel([*said], name="m")
    result = await Agent(model=model, hooks=[refuse], prices={"m": Price(2, 4)}).run("a")
    assert (result.text, result.usage, result.cost) == ("two", Usage(2_000_000, 500_000), 6.0)


async def test_hooks_see_usage_turn_and_calls_as_they_are_now() -> None:
    seen: list[Any] = []

    @tool
    async def work() -> str:
        return "worked"

    def note(plan: Any) -> None:
        run = plan.run
        seen.append((run.turn, run.usage.total_tokens, [(c.name, c.outcome) for c in run.calls], run.elapsed >= 0))

    model = ScriptedModel([[tool_call("work"), finish(usage=Usage(10, 5))], text("end")])
    await Agent(model=model, tools=[work], hooks=[Hook(seam="prepare_request", fn=note)]).run("go")

    assert seen == [(1, 0, [], True), (2, 15, [("work", "ran")], True)]


def test_a_call_without_an_id_is_refused_at_the_door() -> None:
    with pytest.raises(ConfigError, match=r"messages\[0\] has a ToolCall without an id"):
        Agent(model=ScriptedModel()).conversation([AssistantMessage((ToolCall("", "work"),), "tool_calls")])
