"""Agents, tools, conversations, streams and results as a strict user writes them. Nothing here ever runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

from beforehand import (
    Agent, Approve, Ask, Conversation, DecisionRecord, Deny, Edit, Event, HookFailed, Limits, Message, Model, ModelError, Options,
    PendingApproval, Price, RunError, RunInfo, RunResult, Tool, ToolContext, ToolResult, Usage, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.decisions import HumanAnswer
from beforehand.events import AgentEnd, DecisionMade, MessageUpdate, StopReason, ToolExecutionEnd
from beforehand.models.openai_chat import OpenAIChat, Retries, Timeouts
from beforehand.seams import PendingCall
from beforehand.testing import FunctionModel, ScriptedModel, cut, delay, error, finish, text, thinking, tool_call


@dataclass
class Deps:
    user: str


@tool
async def book_ticket(train: int, seat_class: Literal["first", "tourist"]) -> str:
    """Book one seat on a train."""
    return f"{train} {seat_class}"


@tool(name="find", timeout=5, mode="sequential", replay="safe", canonical={"to": str.title})
def find_trains(ctx: ToolContext[Deps], to: str) -> ToolResult:
    """Find trains."""
    assert_type(ctx.deps, Deps)
    assert_type(ctx.idempotency_key, str)
    ctx.update("half done")
    return ToolResult(to, details={"for": ctx.deps.user}, terminate=True)


@tool
async def both(ctx: ToolContext, to: str) -> str:
    """Find and book."""
    found = await ctx.call_tool("find", {"to": to})
    return "" if found.is_error else str(found.text)


assert_type(book_ticket, Tool)
assert_type(find_trains, Tool)


@hook.before_tool_call(tools=["book_ticket"])
def first_class_needs_a_manager(call: PendingCall) -> Ask | None:
    return Ask("First class?") if call.args["seat_class"] == "first" else None


async def manager(question: PendingApproval) -> HumanAnswer:
    match question.prompt:
        case "First class?":
            return Edit({**question.args, "seat_class": "tourist"})
        case _:
            return Approve()


def strict_manager(question: PendingApproval) -> Deny:
    return Deny(f"not {question.name}")


async def todays_date(run: RunInfo) -> str:
    return f"Today, in turn {run.turn}."


def listen(event: Event) -> None:
    match event:
        case MessageUpdate(kind="text"):
            assert_type(event.delta, str)
        case ToolExecutionEnd():
            assert_type(event.is_error, bool)
        case DecisionMade():
            assert_type(event.record, DecisionRecord)
        case AgentEnd():
            assert_type(event.stop_reason, StopReason)
        case _:
            assert_type(event.type, str)


MODEL: Model = OpenAIChat(
    "name", base_url="http://localhost:1/v1", api_key="", stream=False, timeouts=Timeouts(), retries=Retries(attempts=1)
)  # fmt: skip
SMALL = Agent(model="openai:name")
FULL = Agent(
    model="openai:name", base_url="http://localhost:1/v1", api_key="", instructions=["You book trains.", todays_date],
    tools=[book_ticket, find_trains, both, SMALL.as_tool("helper", "Helps.", inherit=False, events=True)],
    hooks=[first_class_needs_a_manager, "hooks.py", Path("more.py")],
    limits=Limits(max_turns=None, abort_grace=1), options=Options(temperature=0.5, max_tokens=100), thinking_level="low",
    tool_mode="sequential", listeners=[listen], on_ask=manager, prices={"name": Price(1.0, 2.0)}, name="clerk",
)  # fmt: skip
OTHER: Agent = FULL.replace(model=MODEL, base_url=None, on_ask=strict_manager)


async def use(agent: Agent) -> str:
    async with agent:
        result = await agent.run("Hi", deps=Deps("Ana"), limits=Limits(max_turns=1), run_id="r1", check=False)
        assert_type(result, RunResult)
        assert_type(result.usage, Usage)
        assert_type(result.decisions, tuple[DecisionRecord, ...])
        assert_type(result.pending, tuple[PendingApproval, ...])
        assert_type(result.messages, Sequence[Message])
        assert_type(result.stop_reason, StopReason)
        if isinstance(result.error, HookFailed):
            return result.error.hook
        if isinstance(result.error, ModelError | RunError):
            return str(result.error)
        return result.text


async def talk_on(agent: Agent) -> None:
    talk: Conversation = agent.conversation([UserMessage("Hi")], steering_mode="all")
    unsubscribe = talk.subscribe(listen)
    talk.on("tool_execution_end", listen)
    async for event in talk.stream("Hi", events=["request_sent"]):
        assert_type(event, Event)
        if isinstance(event, MessageUpdate):
            print(event.delta, end="")
    talk.steer("Stop after this.")
    talk.follow_up(UserMessage("And then?"))
    talk.abort("enough")
    await talk.wait_for_idle()
    await talk.continue_run(check=False)
    result = await talk.resume(answers={p.call_id: Approve() for p in talk.pending})
    assert_type(result.cost, float)
    await talk.compact(keep=4)
    unsubscribe()


def without_a_loop(agent: Agent) -> str:
    return agent.run_sync([UserMessage("Hi")], deps=None).text


def answer(request: Any) -> Any:
    return [thinking("hm", chunks=["h", "m"]), text("yes"), finish("stop", Usage(1, 2))]


SCRIPTED = ScriptedModel([text("a"), [tool_call("t", {"x": 1}, id="c1"), delay(0.1)], error("broken"), cut()], name="s")
ANSWERING: Model = FunctionModel(answer, context_tokens=1000)
assert_type(SCRIPTED.requests[0].system, str)
