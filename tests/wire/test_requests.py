"""What is sent: messages, tools and options as the body of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from beforehand import Agent, ConfigError
from beforehand.errors import BadRequest
from beforehand.frozen import freeze
from beforehand.history import History
from beforehand.messages import (
    THINKING_LEVELS,
    AssistantMessage,
    Audio,
    CustomMessage,
    Image,
    Message,
    Options,
    Request,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    Video,
)
from beforehand.models.openai_wire import PROTECTED, BodyWriter, encode_message, option_fields
from beforehand.testing import ScriptedModel
from wire.endpoint import ADD, request

PIXEL = "iVBORw0KGgo="


def encoded(message: Message) -> Any:
    return json.loads(encode_message(message))


def body(asked: Request, *, streaming: bool = True, limit_field: str = "max_tokens") -> Any:
    return json.loads(BodyWriter("m", streaming=streaming, limit_field=limit_field).write(asked))


def fields(**options: Any) -> dict[str, Any]:
    return option_fields(Options(**options), ["add"], "max_tokens")


# -- messages


def test_a_user_message_is_its_text() -> None:
    assert encoded(UserMessage('say "ü"\n')) == {"role": "user", "content": 'say "ü"\n'}
    assert encoded(UserMessage((Text("hi"),))) == {"role": "user", "content": "hi"}


def test_user_images_are_sent_as_data_or_as_their_address() -> None:
    message = UserMessage((Text("look"), Image(data=PIXEL, media_type="image/gif"), Image(url="http://127.0.0.1/a.png")))
    assert encoded(message)["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}},
    ]


def test_sounds_and_films_of_the_user_are_sent() -> None:
    message = UserMessage((Text("listen"), Audio("aGk=", "mp3"), Video("http://127.0.0.1/a.mp4")))
    assert encoded(message)["content"] == [
        {"type": "text", "text": "listen"},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
        {"type": "video_url", "video_url": {"url": "http://127.0.0.1/a.mp4"}},
    ]


@pytest.mark.parametrize("part", [Audio(b"x"), Video(None), Audio("x", 3)])  # type: ignore[arg-type]
def test_a_sound_or_film_that_is_no_text_is_refused_before_it_is_stored(part: Audio | Video) -> None:
    with pytest.raises(ConfigError, match="not text"):
        Agent(model=ScriptedModel([])).conversation([UserMessage((part,))])


def test_a_tool_result_holds_no_sound() -> None:
    with pytest.raises(ConfigError, match="has a Audio in its content, which a tool message cannot hold"):
        Agent(model=ScriptedModel([])).conversation([ToolMessage("c", "t", (Audio("x"),))])  # type: ignore[arg-type]


def test_an_image_without_data_and_address_is_refused() -> None:
    with pytest.raises(BadRequest, match="neither data nor url"):
        encode_message(UserMessage((Text("look"), Image())))


def test_an_assistant_message_is_its_text_without_its_thinking() -> None:
    message = AssistantMessage((Thinking("hm", "signed"), Text("a"), Text("b"), Image(data=PIXEL)))
    assert encoded(message) == {"role": "assistant", "content": "ab[image]"}
    assert encoded(AssistantMessage((Thinking("hm"),))) == {"role": "assistant", "content": ""}


def test_tool_calls_are_sent_with_their_arguments_as_they_came() -> None:
    message = AssistantMessage((ToolCall("a", "add", '{ "x":1.0 }'), ToolCall("b", "now")), stop_reason="tool_calls")
    assert encoded(message) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{ "x":1.0 }'}},
            {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
    }
    assert encoded(AssistantMessage((Text("so"), ToolCall("a", "add"))))["content"] == "so"


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "nonsense", "[" * 100_000])
def test_arguments_that_are_no_json_object_are_sent_as_an_empty_one(arguments: str) -> None:
    sent = encoded(AssistantMessage((ToolCall("a", "add", arguments),)))
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
def test_of_a_reply_that_was_broken_off_only_the_text_is_sent(stop_reason: Any) -> None:
    message = AssistantMessage((Text("half a"), ToolCall("a", "add", '{"x')), stop_reason=stop_reason)
    assert encoded(message) == {"role": "assistant", "content": "half a"}


def test_a_tool_result_is_its_text_with_images_named() -> None:
    content = (Text("here: "), Image(data=PIXEL))
    expected = {"role": "tool", "tool_call_id": "a", "content": "here: [image]"}
    assert encoded(ToolMessage("a", "shot", content, is_error=True, details={"x": object()})) == expected


def test_a_system_message_inside_the_history_is_sent_as_one() -> None:
    assert encoded(SystemMessage("be brief")) == {"role": "system", "content": "be brief"}


def test_a_custom_message_is_refused_with_the_hook_that_converts_it() -> None:
    with pytest.raises(BadRequest, match=r"custom message of kind 'note'.*convert_to_llm"):
        encode_message(CustomMessage("note", "x"))


def test_a_part_that_cannot_stand_in_a_user_message_is_named() -> None:
    with pytest.raises(BadRequest, match="a Thinking part cannot stand in a user message"):
        encode_message(UserMessage((Text("a"), Thinking("b"))))  # type: ignore[arg-type]


def test_text_that_has_no_utf8_is_mended() -> None:
    assert encoded(UserMessage("a\ud83d\ude00b\udcffc")) == {"role": "user", "content": "a\N{GRINNING FACE}b\ufffdc"}


# -- the body


def test_a_streaming_body_asks_for_usage() -> None:
    assert body(request()) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert body(request(), streaming=False)["stream"] is False
    assert "stream_options" not in body(request(), streaming=False)


def test_the_system_text_comes_first_and_is_left_out_when_empty() -> None:
    assert body(request(system="be brief"))["messages"][0] == {"role": "system", "content": "be brief"}
    assert len(body(request(system=""))["messages"]) == 1
    assert body(Request("only", ()))["messages"] == [{"role": "system", "content": "only"}]
    assert body(Request("", ()))["messages"] == []


def test_tools_are_functions_with_their_schema() -> None:
    assert body(request(tools=(ADD,)))["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": dict(ADD.parameters)}}
    ]


def test_a_history_is_encoded_once_for_all_models() -> None:
    history = History([UserMessage("one")])
    first = BodyWriter("m", streaming=True, limit_field="max_tokens").write(Request("", history.view()))
    kept = history.view().encoded(encode_message)[0]
    history.append(AssistantMessage((Text("two"),)))
    writer = BodyWriter("other", streaming=True, limit_field="max_tokens")
    assert [m["content"] for m in json.loads(writer.write(Request("", history.view())))["messages"]] == ["one", "two"]
    assert history.view().encoded(encode_message)[0] is kept
    assert [m["content"] for m in json.loads(first)["messages"]] == ["one"]


def test_changed_tools_and_options_are_noticed_and_unchanged_ones_reused() -> None:
    writer = BodyWriter("m", streaming=True, limit_field="max_tokens")
    warm, tools = Options(temperature=0.5), (ADD,)
    asked = [(), Options()], [(), warm], [tools, warm], [tools, Options()], [tools, warm]
    bodies = [json.loads(writer.write(Request("", (UserMessage("hi"),), *which))) for which in asked]  # type: ignore[arg-type]
    assert [("tools" in b, "temperature" in b) for b in bodies] == [(bool(t), o is warm) for t, o in asked]


# -- options


def test_options_have_their_names_on_the_wire() -> None:
    assert fields(max_tokens=9, temperature=0, top_p=0.5, stop=("a", "b")) == {
        "max_tokens": 9,
        "temperature": 0,
        "top_p": 0.5,
        "stop": ["a", "b"],
    }
    assert fields() == {}
    assert body(request(max_tokens=9), limit_field="max_completion_tokens")["max_completion_tokens"] == 9


@pytest.mark.parametrize("level", THINKING_LEVELS)
def test_each_thinking_level_is_an_effort_or_nothing(level: Any) -> None:
    expected = {"off": {}, "max": {"reasoning_effort": "xhigh"}}.get(level, {"reasoning_effort": level})
    assert fields(thinking_level=level) == expected


def test_a_thinking_level_that_cannot_be_mapped_is_named() -> None:
    with pytest.raises(BadRequest, match="thinking_level 'enormous'"):
        fields(thinking_level="enormous")


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_tool_choice_words_are_sent_as_they_are(choice: str) -> None:
    assert fields(tool_choice=choice) == {"tool_choice": choice}


def test_a_tool_as_choice_is_sent_as_that_function() -> None:
    assert fields(tool_choice="add") == {"tool_choice": {"type": "function", "function": {"name": "add"}}}


def test_a_choice_that_fits_no_tool_is_named() -> None:
    with pytest.raises(BadRequest, match=r"tool_choice 'mul' fits no tool.*auto, none, required, add"):
        fields(tool_choice="mul")
    with pytest.raises(BadRequest, match="tool_choice 'required' fits no tool"):
        option_fields(Options(tool_choice="required"), [], "max_tokens")
    assert option_fields(Options(tool_choice="auto"), [], "max_tokens") == {}


def test_provider_params_are_merged_last() -> None:
    params = freeze({"temperature": 1, "seed": 7, "logit_bias": {"1": 2}})
    assert fields(temperature=0, provider_params=params) == {"temperature": 1, "seed": 7, "logit_bias": {"1": 2}}
    sent = body(request(provider_params=params))
    assert (sent["seed"], sent["logit_bias"]) == (7, {"1": 2})


@pytest.mark.parametrize("name", [*PROTECTED, "Authorization"])
def test_provider_params_never_replace_what_the_gates_have_seen(name: str) -> None:
    with pytest.raises(BadRequest, match=f"provider_params may not set '{name}'"):
        fields(provider_params=freeze({name: True}))


def test_what_is_no_json_is_refused() -> None:
    for value in (object(), "\ud800"):
        with pytest.raises(BadRequest, match="not JSON"):
            body(request(provider_params=freeze({"x": value})))
    with pytest.raises(BadRequest, match="not JSON"):
        body(request(tools=(ToolSpec("add", "Adds.", freeze({"x": {1, 2}, "y": object()})),)))
