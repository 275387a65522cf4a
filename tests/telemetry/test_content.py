"""Prompts, replies, arguments and results: only when asked for, and as the hooks let them pass."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, Approve, Ask, Audio, Edit, Image, Replace, Text, ToolContext, ToolMessage, ToolResult, UserMessage, Video, hook, tool,
)  # fmt: skip
from beforehand.testing import ScriptedModel, text, thinking, tool_call

from telemetry.spans import Recorder, attributes

SECRETS = ("prompt-secret", "system-secret", "reply-secret", "argument-secret", "result-secret", "thought-secret")


@tool
async def look(what: str) -> ToolResult:
    return ToolResult("result-secret", structured_content={"a": "result-secret"})


def agent(recorder: Recorder, capture: bool, *hooks: Any) -> Agent:
    model = ScriptedModel([
        [thinking("thought-secret"), tool_call("look", {"what": "argument-secret"}, id="c1")], text("reply-secret"),
    ])  # fmt: skip
    return Agent(
        model=model, tools=[look], instructions="system-secret", hooks=hooks,
        listeners=[recorder.listener(capture_content=capture)],
    )  # fmt: skip


def said(recorder: Recorder, name: str, key: str, number: int = 0) -> Any:
    return json.loads(attributes(recorder.named(name)[number])[f"gen_ai.{key}"])


async def test_nothing_of_it_is_recorded_unless_asked_for(recorder: Recorder) -> None:
    await agent(recorder, False).run("prompt-secret")
    assert [secret for secret in SECRETS if secret in recorder.text()] == []


async def test_all_of_it_is_recorded_when_asked_for(recorder: Recorder) -> None:
    await agent(recorder, True).run("prompt-secret")

    assert said(recorder, "chat scripted", "system_instructions") == [{"type": "text", "content": "system-secret"}]
    asked = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"what": "argument-secret"}}
    thought = {"type": "reasoning", "content": "thought-secret"}
    assert said(recorder, "chat scripted", "output.messages") == [
        {"role": "assistant", "parts": [thought, asked], "finish_reason": "tool_call"}
    ]
    assert said(recorder, "chat scripted", "input.messages", 1) == [
        {"role": "user", "parts": [{"type": "text", "content": "prompt-secret"}]},
        {"role": "assistant", "parts": [thought, asked]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "result-secret"}]},
    ]
    assert said(recorder, "chat scripted", "output.messages", 1)[0]["finish_reason"] == "stop"
    (definition,) = said(recorder, "chat scripted", "tool.definitions")
    assert (definition["type"], definition["name"]) == ("function", "look")
    assert said(recorder, "execute_tool look", "tool.call.arguments") == {"what": "argument-secret"}
    assert said(recorder, "execute_tool look", "tool.call.result") == "result-secret"


@hook.on_chunk
def hide_in_the_reply(chunk: Any) -> Replace | None:
    return Replace(text="***") if chunk.kind == "text" and "secret" in chunk.pending else None


@hook.after_tool_call
def hide_in_the_result(outcome: Any) -> Replace:
    return Replace(content="***")


@hook.on_message
def hide_in_the_message(incoming: Any) -> Replace | None:
    if isinstance(incoming.message, ToolMessage):
        return Replace(message=msgspec.structs.replace(incoming.message, content="***"))
    return None


@pytest.mark.parametrize("hides", [hide_in_the_result, hide_in_the_message])
async def test_what_a_hook_took_out_is_not_recorded(recorder: Recorder, hides: Any) -> None:
    await agent(recorder, True, hides, hide_in_the_reply).run("go")

    assert said(recorder, "execute_tool look", "tool.call.result") == "***"
    assert said(recorder, "chat scripted", "output.messages", 1)[0]["parts"] == [{"type": "text", "content": "***"}]
    for secret in ("result-secret", "reply-secret"):
        assert secret not in recorder.text()


@pytest.mark.parametrize("who", ["hook", "person"])
async def test_the_arguments_are_those_that_the_tool_was_given(recorder: Recorder, who: str) -> None:
    @hook.prepare_tool_call
    def rewrite(call: Any) -> Replace:
        return Replace(args={"what": "rewritten"})

    @hook.before_tool_call
    def ask(call: Any) -> Ask:
        return Ask("may it?")

    model = ScriptedModel([tool_call("look", {"what": "x"}), text("end")])
    await Agent(
        model=model, tools=[look], hooks=[rewrite if who == "hook" else ask],
        on_ask=lambda pending: Edit({"what": "rewritten"}) if pending.args["what"] == "x" else Approve(),
        listeners=[recorder.listener(capture_content=True)],
    ).run("go")  # fmt: skip
    assert said(recorder, "execute_tool look", "tool.call.arguments") == {"what": "rewritten"}


async def test_a_nested_calls_result_is_what_the_tool_read(recorder: Recorder) -> None:
    @tool
    async def outer(ctx: ToolContext) -> str:
        await ctx.call_tool("look", {"what": "x"})
        return "outer"

    model = ScriptedModel([tool_call("outer"), text("end")])
    await Agent(model=model, tools=[outer, look], listeners=[recorder.listener(capture_content=True)]).run("go")
    assert said(recorder, "execute_tool look", "tool.call.result") == "result-secret"
    assert said(recorder, "execute_tool outer", "tool.call.result") == "outer"


async def test_images_and_lone_surrogates_are_recorded_as_what_they_are(recorder: Recorder) -> None:
    @tool
    async def draw() -> ToolResult:
        return ToolResult((Text("here"), Image(data="aGk=")))

    model = ScriptedModel([tool_call("draw"), text("end")])
    parts = (Text("look"), Image(url="https://example/x.png"))
    listener = recorder.listener(capture_content=True)
    await Agent(model=model, tools=[draw], instructions="a\ud800", listeners=[listener]).run(UserMessage(parts))

    assert said(recorder, "chat scripted", "input.messages")[0]["parts"] == [
        {"type": "text", "content": "look"},
        {"type": "uri", "modality": "image", "uri": "https://example/x.png"},
    ]
    assert said(recorder, "chat scripted", "system_instructions") == [{"type": "text", "content": "a\\ud800"}]
    assert said(recorder, "execute_tool draw", "tool.call.result") == [
        {"type": "text", "content": "here"},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aGk="},
    ]


async def test_a_description_that_json_cannot_express_is_recorded_all_the_same(recorder: Recorder) -> None:
    @tool(description="Looks.\ud800")
    async def odd() -> str:
        return ""

    agent = Agent(model=ScriptedModel([text("end")]), tools=[odd], listeners=[recorder.listener(capture_content=True)])
    await agent.run("go")
    (definition,) = said(recorder, "chat scripted", "tool.definitions")
    assert (definition["name"], definition["description"]) == ("odd", "Looks.\ud800")


async def test_sounds_films_and_pictures_are_parts_like_others(recorder: Recorder) -> None:
    content = (
        Text("see"), Audio("aGk=", format="mp3"), Video("https://example.org/a.mp4"), Video("data:video/webm;base64,aGk="),
        Image(data="aGk=", media_type="image/gif"), Image(url="data:image/png;base64,aGk="),
    )  # fmt: skip
    await Agent(model=ScriptedModel([text("ok")]), listeners=[recorder.listener(capture_content=True)]).run(UserMessage(content))

    (message,) = said(recorder, "chat scripted", "input.messages")
    assert message["parts"] == [
        {"type": "text", "content": "see"},
        {"type": "blob", "modality": "audio", "mime_type": "audio/mp3", "content": "aGk="},
        {"type": "uri", "modality": "video", "uri": "https://example.org/a.mp4"},
        {"type": "blob", "modality": "video", "mime_type": "video/webm", "content": "aGk="},
        {"type": "blob", "modality": "image", "mime_type": "image/gif", "content": "aGk="},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aGk="},
    ]
