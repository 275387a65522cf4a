"""What the spans of runs, requests and calls say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from beforehand import Agent, ConfigError, Options, Price, Replace, Request, ToolContext, ToolResult, Usage, hook, tool
from beforehand.models.base import NO_CALL_INFO, CallInfo, Finish, Model, ModelEvent, TextDelta
from beforehand.otel.attributes import MAX_NAME, MAX_TEXT
from beforehand.testing import ScriptedModel, finish, text, tool_call

from telemetry.spans import Recorder, attributes


@tool(description="Adds two numbers.")
async def add(a: int, b: int) -> int:
    return a + b


async def test_a_run_says_which_agent_worked_with_which_model_and_how_it_ended(recorder: Recorder) -> None:
    model = ScriptedModel([text("end")], name="small", provider="openai")
    agent = Agent(model=model, listeners=[recorder.listener()], name="clerk")
    await agent.conversation(id="talk 7").run("go", run_id="run 7")

    assert attributes(recorder.one("invoke_agent clerk")) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.agent.name": "clerk",
        "gen_ai.conversation.id": "talk 7",
        "beforehand.run.id": "run 7",
        "beforehand.run.turns": 1,
        "beforehand.run.stop_reason": "completed",
    }


async def test_a_request_says_what_was_asked_of_whom_and_what_came_back(recorder: Recorder) -> None:
    usage = Usage(100, 20, cache_read_tokens=60, cache_write_tokens=7, reasoning_tokens=5)
    model = ScriptedModel([[text("half"), finish("length", usage)]], name="small", provider="openai")
    options = Options(max_tokens=20, temperature=0.5, top_p=0.9, stop=("END",))
    await Agent(model=model, options=options, listeners=[recorder.listener()]).conversation(id="t").run("go")

    said = attributes(recorder.one("chat small"))
    assert said.pop("gen_ai.response.time_to_first_chunk") > 0
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.conversation.id": "t",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 20,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 7,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "beforehand.request.kind": "turn",
    }
    assert recorder.one("chat small").kind is SpanKind.INTERNAL  # it runs in this process


async def test_a_call_says_which_tool_and_what_became_of_it(recorder: Recorder) -> None:
    model = ScriptedModel([tool_call("add", {"a": 1, "b": 2}, id="c1"), text("end")])
    await Agent(model=model, tools=[add], listeners=[recorder.listener()]).run("go")

    assert attributes(recorder.one("execute_tool add")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Adds two numbers.",
        "beforehand.tool.outcome": "ran",
        "beforehand.tool.is_error": False,
    }


async def test_the_runs_of_one_talk_say_so(recorder: Recorder) -> None:
    agent = Agent(model=ScriptedModel([text("one"), text("two"), text("three")]), listeners=[recorder.listener()])
    talk = agent.conversation()
    await talk.run("a")
    await talk.run("b")
    await agent.run("c")

    ids = [attributes(span)["gen_ai.conversation.id"] for span in recorder.named("invoke_agent agent")]
    assert ids[:2] == [talk.id] * 2
    assert ids[2] != talk.id
    assert [attributes(span)["gen_ai.conversation.id"] for span in recorder.named("chat scripted")] == ids


@pytest.mark.parametrize("id", ["", 7])
def test_a_talks_id_is_a_text(id: Any) -> None:
    with pytest.raises(ConfigError, match="must be a text that is not empty"):
        Agent(model=ScriptedModel()).conversation(id=id)


async def test_another_model_for_one_request_is_the_one_the_request_names(recorder: Recorder) -> None:
    @hook.prepare_request
    def use_the_large_one(plan: Any) -> Replace:
        return Replace(model=ScriptedModel([text("end")], name="large"))

    await Agent(model=ScriptedModel(name="small"), hooks=[use_the_large_one], listeners=[recorder.listener()]).run("go")
    assert attributes(recorder.one("chat large"))["gen_ai.request.model"] == "large"
    assert attributes(recorder.one("invoke_agent agent"))["gen_ai.request.model"] == "small"


# --- usage and cost ------------------------------------------------------------------------------


async def test_a_runs_usage_and_cost_are_those_of_its_result(recorder: Recorder) -> None:
    @tool
    async def costly(ctx: ToolContext) -> ToolResult:
        return ToolResult("done", usage=Usage(7, 3))

    child = Agent(model=ScriptedModel([[text("x"), finish(usage=Usage(40, 4))]]), prices={"scripted": Price(1, 1)}, name="child")
    model = ScriptedModel([
        [tool_call("costly"), tool_call("ask", {"prompt": "x"}), finish(usage=Usage(10, 1))],
        [text("end"), finish(usage=Usage(20, 2))],
    ])  # fmt: skip
    agent = Agent(
        model=model, tools=[costly, child.as_tool("ask", "Asks.")], listeners=[recorder.listener()],
        prices={"scripted": Price(1, 1)}, name="boss",
    )  # fmt: skip
    result = await agent.run("go")

    said = attributes(recorder.one("invoke_agent boss"))
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (77, 10)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (77, 10)
    assert said["beforehand.run.cost"] == pytest.approx(result.cost)
    assert attributes(recorder.one("invoke_agent child"))["gen_ai.usage.input_tokens"] == 40


# --- what must not be said -----------------------------------------------------------------------


class Remote(Model):
    def __init__(self, endpoint: str) -> None:
        self.name, self.provider, self.endpoint = "remote", "openai", endpoint

    async def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncIterator[ModelEvent]:
        yield TextDelta("hello")
        yield Finish("stop")


@pytest.mark.parametrize(
    ("endpoint", "server"),
    [
        ("https://me:sk-secret@models.example:8443/v1/sk-secret?key=sk-secret#sk-secret", ("models.example", 8443)),
        ("https://models.example/v1", ("models.example", 443)),
        ("http://[::1]/v1", ("::1", 80)),
        ("http://models.example:notaport/", (None, None)),
        ("unix:/tmp/my.sock", (None, None)),
        ("http://[", (None, None)),
        ("", (None, None)),
    ],
)
async def test_of_an_endpoint_host_and_port_are_said(recorder: Recorder, endpoint: str, server: Any) -> None:
    @hook.get_api_key
    def key(request: Any) -> Replace:
        return Replace(key="sk-secret")

    options = Options(provider_params={"token": "sk-secret"})  # type: ignore[arg-type]
    listener = recorder.listener(capture_content=True)
    await Agent(model=Remote(endpoint), hooks=[key], options=options, listeners=[listener]).run("go")

    said = attributes(recorder.one("chat remote"))
    assert (said.get("server.address"), said.get("server.port")) == server
    assert "sk-secret" not in recorder.text()


async def test_names_and_reasons_that_a_model_or_a_hook_made_are_bounded_and_can_be_encoded(recorder: Recorder) -> None:
    name, call_id = "x\ud800" * 5_000, "c\udfff" * 5_000
    model = ScriptedModel([tool_call(name, id=call_id), text("end")])
    await Agent(model=model, tools=[add], listeners=[recorder.listener()], name="a" * 5_000).run("go")

    run, _, _, call, *_ = recorder.spans
    said = attributes(call)
    texts = [call.name, run.name, *[v for v in said.values() if isinstance(v, str)]]
    assert said["beforehand.tool.outcome"] == "not_found"
    for value in texts:
        value.encode()
        assert len(value) <= MAX_TEXT
    assert len(run.name) <= MAX_NAME + len("invoke_agent ")
