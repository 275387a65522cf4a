"""Which spans there are, and which stands under which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

from beforehand import Agent, Answer, Hook, Request, ToolContext, UserMessage, hook, tool
from beforehand.direct import ask_directly
from beforehand.models.base import NO_CALL_INFO, CallInfo, Finish, Model, ModelEvent, TextDelta
from beforehand.testing import ScriptedModel, text, tool_call

from telemetry.spans import Recorder, attributes, id_of, parent_of


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
async def twice(ctx: ToolContext) -> str:
    first = await ctx.call_tool("add", {"a": 1, "b": 1})
    second = await ctx.call_tool("add", {"a": 2, "b": 2})
    return first.text + second.text


CHAT = ("chat scripted", [])
ADD = ("execute_tool add", [])


async def test_a_run_is_a_tree_of_turns_with_their_requests_and_calls(recorder: Recorder) -> None:
    model = ScriptedModel([
        [tool_call("add", {"a": 1, "b": 2}), tool_call("twice")], tool_call("add", {"a": 1, "b": 2}), text("end"),
    ])  # fmt: skip
    await Agent(model=model, tools=[add, twice], listeners=[recorder.listener()], name="adder").run("go")

    turns = [
        ("turn", [CHAT, ADD, ("execute_tool twice", [ADD, ADD])]),
        ("turn", [CHAT, ADD]),
        ("turn", [CHAT]),
    ]
    assert recorder.tree() == [("invoke_agent adder", turns)]
    assert [attributes(turn)["beforehand.turn.number"] for turn in recorder.named("turn")] == [1, 2, 3]
    assert len({span.context.trace_id for span in recorder.spans if span.context}) == 1


async def test_the_calls_of_a_sequential_batch_follow_one_another(recorder: Recorder) -> None:
    model = ScriptedModel([[tool_call("add", {"a": 1, "b": n}, id=f"c{n}") for n in range(3)], text("end")])
    await Agent(model=model, tools=[add], listeners=[recorder.listener()], tool_mode="sequential").run("go")

    ends = [span.end_time or 0 for span in recorder.named("execute_tool add")]
    begins = [span.start_time or 0 for span in recorder.named("execute_tool add")]
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))


async def test_a_turn_ends_before_the_next_begins_and_a_request_before_the_calls_it_asks_for(recorder: Recorder) -> None:
    model = ScriptedModel([tool_call("add", {"a": 1, "b": 2}), text("end")])
    await Agent(model=model, tools=[add], listeners=[recorder.listener(capture_content=True)]).run("go")

    first, second = recorder.named("turn")
    chat, call = recorder.named("chat scripted")[0], recorder.one("execute_tool add")
    moments = [first.start_time, chat.start_time, chat.end_time, call.start_time, call.end_time, first.end_time]
    assert [*moments, second.start_time] == sorted([*moments, second.start_time])  # type: ignore[type-var]


async def test_what_hooks_do_with_a_reply_or_between_turns_is_no_part_of_the_request_or_the_turn(recorder: Recorder) -> None:
    def marks(name: str, interested: Any = lambda context: True) -> Any:
        return lambda context: recorder.tracer.start_span(name).end() if interested(context) else None

    hooks = [
        Hook(seam="on_message", fn=marks("judging", lambda incoming: incoming.origin == "model"), name="judge"),
        Hook(seam="prepare_next_turn", fn=marks("between"), name="between"),
    ]
    model = ScriptedModel([tool_call("add", {"a": 1, "b": 2}), text("end")])
    await Agent(model=model, tools=[add], hooks=hooks, listeners=[recorder.listener()]).run("go")

    def first(name: str) -> Any:
        return recorder.named(name)[0]

    assert first("chat scripted").end_time <= first("judging").start_time
    assert first("turn").end_time <= first("between").start_time <= recorder.named("turn")[1].start_time


async def test_a_request_that_a_tool_makes_itself_stands_under_its_call(recorder: Recorder) -> None:
    @tool
    async def thinks(ctx: ToolContext) -> str:
        run: Any = ctx.run._run
        said = await ask_directly(run, Request("", (UserMessage("what?"),)), "direct")
        ended.extend(set(recorder.named("chat scripted")))
        return said

    ended: list[Any] = []
    model = ScriptedModel([tool_call("thinks"), text("that"), text("end")])
    await Agent(model=model, tools=[thinks], listeners=[recorder.listener()]).run("go")

    ((_, [(_, first), _]),) = recorder.tree()
    assert first == [CHAT, ("execute_tool thinks", [CHAT])]
    assert len(ended) == 2  # it was over when the tool went on
    assert [attributes(span)["beforehand.request.kind"] for span in recorder.named("chat scripted")] == ["turn", "direct", "turn"]


async def test_a_listener_hears_of_a_call_whose_span_has_begun(recorder: Recorder) -> None:
    heard: list[list[str]] = []
    model = ScriptedModel([tool_call("add", {"a": 1, "b": 2}), text("end")])
    talk = Agent(model=model, tools=[add], listeners=[lambda event: None, recorder.listener()]).conversation()
    talk.subscribe(lambda event: heard.append(recorder.open) if event.type == "tool_execution_start" else None)
    await talk.run("go")
    assert heard == [["invoke_agent agent", "turn", "execute_tool add"]]


# --- sub-agents ----------------------------------------------------------------------------------


def helper(name: str, *calls: Any, **options: Any) -> Agent:
    return Agent(model=ScriptedModel([*calls, text("helped")]), tools=[add], name=name, **options)


HELPED = [("turn", [CHAT, ADD]), ("turn", [CHAT])]


async def test_a_sub_agents_run_stands_under_the_call_that_made_it(recorder: Recorder) -> None:
    inner = helper("inner", tool_call("add", {"a": 1, "b": 1}, id="same"))
    middle = Agent(
        model=ScriptedModel([tool_call("ask", {"prompt": "x"}, id="same"), text("done")]),
        tools=[inner.as_tool("ask", "Asks.")],
        name="middle",
    )
    model = ScriptedModel([tool_call("ask", {"prompt": "x"}, id="same"), text("end")])
    await Agent(
        model=model, tools=[middle.as_tool("ask", "Asks.")], listeners=[recorder.listener()], name="outer"
    ).run("go")  # fmt: skip

    def asking(name: str, below: Any) -> Any:
        return (f"invoke_agent {name}", [("turn", [CHAT, ("execute_tool ask", [below])]), ("turn", [CHAT])])

    assert recorder.tree() == [asking("outer", asking("middle", ("invoke_agent inner", HELPED)))]
    assert [attributes(span).get("beforehand.parent_call_id") for span in recorder.spans if "invoke" in span.name] == [
        None, "same", "same",
    ]  # fmt: skip


async def test_sub_agents_at_work_at_once_stand_each_under_its_own_call(recorder: Recorder) -> None:
    calls = [tool_call(f"ask{n}", {"prompt": "x"}, id=f"c{n}") for n in range(5)]
    helpers = [helper(f"helper{n}", tool_call("add", {"a": n, "b": 1}, id="c1")).as_tool(f"ask{n}", "Asks.") for n in range(5)]
    model = ScriptedModel([calls, text("end")])
    await Agent(model=model, tools=helpers, listeners=[recorder.listener()], name="boss").run("go")

    ((_, [(_, first), _]),) = recorder.tree()
    assert first == [CHAT, *[(f"execute_tool ask{n}", [(f"invoke_agent helper{n}", HELPED)]) for n in range(5)]]


async def test_a_sub_agent_that_has_the_same_listener_and_passes_its_events_on_is_traced_once(recorder: Recorder) -> None:
    listener = recorder.listener()
    inner = helper("inner", tool_call("add", {"a": 1, "b": 1}), listeners=[listener])
    model = ScriptedModel([tool_call("ask", {"prompt": "x"}), text("end")])
    outer = Agent(model=model, tools=[inner.as_tool("ask", "Asks.", events=True)], listeners=[listener], name="outer")
    heard: list[str] = []
    talk = outer.conversation()
    talk.subscribe(lambda event: heard.append(event.run_id))
    await talk.run("go", run_id="outer run")

    asked = ("execute_tool ask", [("invoke_agent inner", HELPED)])
    assert recorder.tree() == [("invoke_agent outer", [("turn", [CHAT, asked]), ("turn", [CHAT])])]
    assert len(set(heard)) == 2  # the events of both runs did come by


# --- what user code does inside and outside -------------------------------------------------------


async def test_spans_made_in_a_tools_body_stand_under_its_call(recorder: Recorder) -> None:
    both = asyncio.Barrier(2)

    @tool
    async def waits(n: int) -> str:
        with recorder.tracer.start_as_current_span(f"before {n}"):
            await both.wait()
        with recorder.tracer.start_as_current_span(f"after {n}"):
            return "ok"

    @tool
    def in_a_thread() -> str:
        with recorder.tracer.start_as_current_span("threaded"):
            return "ok"

    @tool
    async def around(ctx: ToolContext) -> str:
        await ctx.call_tool("in_a_thread", {})
        with recorder.tracer.start_as_current_span("own"):
            return "ok"

    calls = [tool_call("waits", {"n": 1}), tool_call("waits", {"n": 2}), tool_call("around")]
    tools = [waits, in_a_thread, around]
    await Agent(model=ScriptedModel([calls, text("end")]), tools=tools, listeners=[recorder.listener()]).run("go")

    ((_, [(_, first), _]),) = recorder.tree()
    assert first == [
        CHAT,
        ("execute_tool waits", [("before 1", []), ("after 1", [])]),
        ("execute_tool waits", [("before 2", []), ("after 2", [])]),
        ("execute_tool around", [("execute_tool in_a_thread", [("threaded", [])]), ("own", [])]),
    ]


async def test_an_agent_that_a_tool_runs_by_hand_stands_under_the_call(recorder: Recorder) -> None:
    listener = recorder.listener()

    @tool
    def delegate() -> str:
        return helper("by hand", listeners=[listener]).run_sync("go").text

    model = ScriptedModel([tool_call("delegate"), text("end")])
    await Agent(model=model, tools=[delegate], listeners=[listener], name="boss").run("go")

    ((_, [(_, first), _]),) = recorder.tree()
    assert first == [CHAT, ("execute_tool delegate", [("invoke_agent by hand", [("turn", [CHAT])])])]


async def test_a_run_stands_under_its_callers_span_and_leaves_it_the_current_one(recorder: Recorder) -> None:
    agent = Agent(model=ScriptedModel([text("one"), text("two")]), listeners=[recorder.listener()])
    with recorder.tracer.start_as_current_span("request"):
        await agent.run("go")
        async for _ in agent.stream("again"):
            recorder.tracer.start_span("reader").end()

    ((name, below),) = recorder.tree()
    assert name == "request"
    assert [name for name, _ in below if name != "reader"] == ["invoke_agent agent", "invoke_agent agent"]
    assert {parent_of(span) for span in recorder.named("reader")} == {id_of(recorder.one("request"))}


class Instrumented(Model):
    """An adapter whose HTTP client makes spans of its own."""

    name, provider, endpoint = "wired", "openai", "https://models.example:8443/v1"

    def __init__(self, recorder: Recorder) -> None:
        self.tracer = recorder.tracer

    async def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncIterator[ModelEvent]:
        with self.tracer.start_as_current_span("POST"):
            await asyncio.sleep(0)
        yield TextDelta("hello")
        yield Finish("stop")


async def test_what_the_adapter_sends_stands_under_the_request(recorder: Recorder) -> None:
    await Agent(model=Instrumented(recorder), listeners=[recorder.listener()], name="a").run("go")

    assert recorder.tree() == [("invoke_agent a", [("turn", [("chat wired", [("POST", [])])])])]
    assert (recorder.one("chat wired").kind, recorder.one("invoke_agent a").kind) == (SpanKind.CLIENT, SpanKind.INTERNAL)


async def test_a_request_that_never_left_has_no_span(recorder: Recorder) -> None:
    @hook.authorize_request
    def from_the_cache(request: Any) -> Answer:
        return Answer("cached")

    await Agent(model=ScriptedModel(), hooks=[from_the_cache], listeners=[recorder.listener()], name="a").run("go")
    assert recorder.tree() == [("invoke_agent a", [("turn", [])])]


async def test_a_compaction_is_a_span_with_its_request(recorder: Recorder) -> None:
    model = ScriptedModel([text("one"), text("two"), text("summary")])
    talk = Agent(model=model, listeners=[recorder.listener()], name="a").conversation()
    await talk.run("a")
    await talk.run("b")
    await talk.compact(keep=1)

    assert recorder.tree()[2:] == [("compact a", [CHAT])]
    kinds = [attributes(span)["beforehand.request.kind"] for span in recorder.named("chat scripted")]
    assert kinds == ["turn", "turn", "compaction"]


async def test_without_anybody_to_record_it_a_run_is_what_it_was() -> None:
    from beforehand.otel import OpenTelemetry

    model = ScriptedModel([tool_call("add", {"a": 1, "b": 2}), text("end")])
    result = await Agent(model=model, tools=[add], listeners=[OpenTelemetry(), OpenTelemetry(TracerProvider())]).run("go")
    assert (result.stop_reason, result.messages[2].text) == ("completed", "3")
