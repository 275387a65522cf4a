"""From chunks to model events: text, reasoning, refusals, usage, and how a reply ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from beforehand.errors import InvalidResponse, ModelError, NetworkError, RateLimited, ServerError
from beforehand.messages import NO_USAGE, Usage
from beforehand.models.base import Finish, TextDelta, ThinkingDelta, ToolCallDelta
from beforehand.models.openai_reply import MAX_REPLY_BYTES, StreamReader, WholeReader
from wire.endpoint import call, delta, feed, place, read, read_outcome, read_whole, sse, whole


def test_text_comes_piece_by_piece_and_ends_with_a_finish() -> None:
    assert read(sse(delta("", role="assistant"), delta("Hel"), delta("lo"), delta(finish="stop"))) == [
        TextDelta("Hel"),
        TextDelta("lo"),
        Finish("stop", NO_USAGE),
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_thinking_under_both_its_names(field: str) -> None:
    events = read(sse(delta(**{field: "hm"}), delta("x", **{field: "ok"}), delta(finish="stop")))
    assert events == [ThinkingDelta("hm"), ThinkingDelta("ok"), TextDelta("x"), Finish("stop")]


def test_reasoning_sent_under_both_names_at_once_is_taken_once() -> None:
    assert read_outcome(delta(reasoning="hm", reasoning_content="hm"), delta("x", finish="stop")).thinking == "hm"


def test_a_refusal_is_text_and_the_reason_to_stop() -> None:
    outcome = read_outcome(delta(refusal="I can"), delta(refusal="not."), delta(finish="stop"))
    assert outcome.text == "I cannot."
    assert outcome.finish == Finish("refusal")


def test_content_may_be_a_list_of_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        "b",
        {"type": "refusal", "refusal": "c"},
        {"type": "something else"},
        7,
    ]
    outcome = read_outcome(delta(content=parts), delta(finish="stop"))  # type: ignore[arg-type]
    assert (outcome.thinking, outcome.text) == ("hm", "abc")
    assert outcome.finish == Finish("refusal")


def test_unknown_fields_and_chunks_without_choices_are_ignored() -> None:
    odd: list[Any] = [
        {"choices": [], "prompt_filter_results": [{"x": 1}]},
        {"type": "ping"},
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"delta": None, "logprobs": {"content": [1, {"a": []}]}}]},
        {"choices": "none", "usage": None},
        {"choices": [7]},
        [],
        17,
        None,
        delta("x", audio={"id": "a"}, function_call={"name": "old"}),
        "",
    ]
    outcome = read_outcome(*[*odd, delta(finish="stop")])
    assert outcome == ("x", "", [], Finish("stop"))


def test_usage_is_taken_from_the_chunk_without_choices() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0, "cache_write_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 12, "audio_tokens": 0},
    }
    outcome = read_outcome(delta("x"), delta(finish="stop"), {"choices": [], "usage": usage})
    assert outcome.finish == Finish("stop", Usage(100, 20, 64, 8, 12))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5}, Usage(5)),
        ({"prompt_tokens": "5", "completion_tokens": 2.0}, Usage(5, 2)),
        ({"prompt_tokens": 5, "prompt_cache_hit_tokens": 3, "prompt_tokens_details": None}, Usage(5, 0, 3)),
        ({"prompt_tokens": None, "completion_tokens": "many", "completion_tokens_details": 3}, NO_USAGE),
        ("none", NO_USAGE),
    ],
)
def test_usage_may_be_incomplete_or_oddly_typed(usage: Any, expected: Usage) -> None:
    assert read_outcome(delta("x", finish="stop"), {"choices": [], "usage": usage}).finish == Finish("stop", expected)


def test_the_last_of_several_running_usages_counts() -> None:
    chunks = [{**delta(str(n)), "usage": {"prompt_tokens": 9, "completion_tokens": n}} for n in range(4)]
    assert read_outcome(*chunks, delta(finish="stop")).finish == Finish("stop", Usage(9, 3))


@pytest.mark.parametrize(
    ("reason", "with_call", "expected"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool_calls"),
        ("tool_calls", True, "tool_calls"),
        ("tool_calls", False, "stop"),
        ("function_call", True, "tool_calls"),
        ("length", False, "length"),
        ("length", True, "length"),
        ("max_tokens", False, "length"),
        ("content_filter", False, "refusal"),
        ("eos", False, "stop"),
        (None, False, "stop"),
        (None, True, "tool_calls"),
        (7, False, "stop"),
    ],
)
def test_finish_reasons_become_stop_reasons(reason: Any, with_call: bool, expected: str) -> None:
    calls = [delta(tool_calls=[call(index=0, id="a", name="f", arguments="{}")])] if with_call else []
    finish = read_outcome(delta("x"), *calls, delta(finish=reason)).finish
    assert finish is not None
    assert finish.stop_reason == expected


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_a_reply_the_server_gave_up_on_is_no_complete_reply(reason: str) -> None:
    with pytest.raises(ServerError, match=f"broke off its reply.*'{reason}'"):
        read(sse(delta("x"), delta(finish=reason)))


def test_a_stream_without_done_is_complete_if_it_had_a_finish_reason() -> None:
    assert read_outcome(delta("x"), delta(finish="stop"), done=False) == ("x", "", [], Finish("stop"))
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    assert read_outcome(delta("x", finish="length"), usage, done=False).finish == Finish("length", Usage(1, 2))


def test_the_last_event_needs_no_blank_line() -> None:
    assert read(sse(delta("x"), delta(finish="stop"))[:-2]) == [TextDelta("x"), Finish("stop")]
    assert read(sse(delta("x"), delta(finish="stop"), done=False)[:-1]) == [TextDelta("x"), Finish("stop")]


@pytest.mark.parametrize("sent", [b"", b": ping\n\n", sse(delta("x"), done=False), sse(delta("x"), delta("y"), done=False)[:-20]])
def test_a_stream_that_ends_before_its_reply_was_cut(sent: bytes) -> None:
    with pytest.raises(NetworkError, match="the connection was cut before the reply was complete"):
        read(sent)


def test_what_comes_after_done_is_not_read() -> None:
    assert read(sse(delta("x", finish="stop")) + b"data: {broken\n\n") == [TextDelta("x"), Finish("stop")]


def test_done_may_have_spaces_around_it() -> None:
    assert read(sse(delta("x", finish="stop"), done=False) + b"data:  [DONE] \n\n")[-1] == Finish("stop")


def test_what_came_before_a_broken_chunk_is_kept() -> None:
    reader = StreamReader(place(), 200)
    assert reader.feed(sse(delta("x"), "{broken", delta("y"))) == [TextDelta("x")]
    assert reader.failure is not None
    assert reader.done


@pytest.mark.parametrize(
    ("chunk", "what"),
    [
        (b"{broken", "something that is not JSON"),
        (b'{"choices":[{"delta":{"content":"\xff\xfe"}}]}', "bytes that are not UTF-8"),
        (b"<html>oops</html>", "a web page"),
        (b"[" * 100_000, "something that is not JSON"),
    ],
)
def test_a_chunk_that_is_not_json_is_named_with_its_beginning(chunk: bytes, what: str) -> None:
    with pytest.raises(InvalidResponse, match=what) as raised:
        read(sse(delta("x"), done=False) + b"data: " + chunk + b"\n\n")
    message = str(raised.value)
    assert "http://127.0.0.1:1/v1/chat/completions answered 200" in message
    assert chunk[:6].decode("utf-8", "replace") in message
    assert "\n" not in message
    assert len(message) < 500


@pytest.mark.parametrize(
    "report",
    [
        {"error": {"message": "no\ncapacity", "type": "server_error", "code": None}},
        {"error": "no\ncapacity"},
        {"error": {"message": "no\ncapacity", "code": 503}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]},
        {"object": "error", "message": "no\ncapacity", "type": "InternalServerError", "code": 500},
        {"detail": "no\ncapacity"},
    ],
)
def test_an_error_inside_a_stream_is_raised_as_one_line(report: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match=r"reported an error in its reply.*: no capacity; ") as raised:
        read(sse(delta("x"), report))
    assert raised.value.status == 200


def test_an_error_event_is_an_error_whatever_it_holds() -> None:
    with pytest.raises(ServerError, match="overloaded"):
        read(b'event: error\ndata: {"message": "overloaded"}\n\n')
    with pytest.raises(ServerError, match="no capacity"):
        read(b"event: error\ndata: no capacity\n\n")
    with pytest.raises(ServerError, match="no capacity"):
        read(b"event: error\ndata: no capacity")


def test_an_error_inside_a_stream_is_classified_by_its_code() -> None:
    with pytest.raises(RateLimited):
        read(sse({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}))
    with pytest.raises(RateLimited):
        read(sse({"error": {"message": "slow down", "code": 429}}))


def test_a_character_cut_into_its_surrogates_is_put_together() -> None:
    halves = [r'{"choices":[{"delta":{"content":"a\ud83d"}}]}', r'{"choices":[{"delta":{"content":"\ude00b"}}]}']
    assert read_outcome(*halves, delta(finish="stop")).text == "a\N{GRINNING FACE}b"
    assert read_outcome(halves[0], delta(finish="stop")).text == "a\ufffd"
    assert read_outcome(halves[1], delta(finish="stop")).text == "\ufffdb"


def test_a_whole_reply_gives_the_same_deltas_in_one_piece() -> None:
    message = {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "hm",
        "refusal": None,
        "tool_calls": [call(id="a", name="f", arguments='{"x":1}'), call(id="b", name="f", arguments="")],
    }
    body = whole(message, "tool_calls", usage={"prompt_tokens": 3, "completion_tokens": 4})
    assert read_whole(body) == [
        ThinkingDelta("hm"),
        TextDelta("Hello"),
        ToolCallDelta(0, "a", "f", '{"x":1}'),
        ToolCallDelta(1, "b", "f", "{}"),
        Finish("tool_calls", Usage(3, 4)),
    ]


def test_a_whole_reply_may_be_oddly_typed() -> None:
    message = {"content": [{"type": "text", "text": "a"}], "tool_calls": [call(id=5, name="f", arguments={"x": 1})]}
    assert read_whole(whole(message)) == [TextDelta("a"), ToolCallDelta(0, "5", "f", '{"x": 1}'), Finish("tool_calls")]


def test_a_byte_order_mark_before_a_whole_reply_does_no_harm() -> None:
    assert read_whole(b"\xef\xbb\xbf" + json.dumps(whole({"content": "a"})).encode())[0] == TextDelta("a")


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", r"an empty body \(application/json\): nothing"),
        (b" \n", "an empty body"),
        (b"<!doctype html><title>Login</title>", "a web page instead of JSON"),
        (b'{"choices":', "something that is not JSON"),
        (b"\xff\xfe\x00", "bytes that are not UTF-8"),
        (b"[1, 2]", "JSON that is not a chat completion"),
        (b'{"choices": []}', "JSON that is not a chat completion"),
        (b'{"usage": {"prompt_tokens": 1}}', "JSON that is not a chat completion"),
    ],
)
def test_a_whole_body_that_is_no_reply_is_named(body: bytes, what: str) -> None:
    with pytest.raises(InvalidResponse, match=what) as raised:
        read_whole(body)
    assert raised.value.status == 200


def test_an_error_in_a_whole_body_is_raised() -> None:
    with pytest.raises(ServerError, match=r"\[server_error\]: no capacity"):
        read_whole({"error": {"message": "no capacity", "type": "server_error"}})


def test_an_event_without_an_end_is_not_kept_for_ever() -> None:
    reader = StreamReader(place(), 200)
    feed(reader, [b"data: ", *[b"x" * (1024 * 1024)] * 65])
    assert reader.failure is not None
    assert "an event longer than" in str(reader.failure.error)


def test_a_body_without_an_end_is_not_read_for_ever() -> None:
    reader = WholeReader(place(), 200)
    piece = b" " * (1024 * 1024)
    feed(reader, [piece] * (MAX_REPLY_BYTES // len(piece) + 1))
    assert reader.failure is not None
    assert isinstance(reader.failure.error, InvalidResponse)


@pytest.mark.parametrize("depth", range(800, 1_000, 3))
def test_nesting_near_the_bound_of_the_decoders_is_an_error_and_no_crash(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    piece = f'{{"choices":[{{"delta":{{"tool_calls":[{{"function":{{"name":"f","arguments":{nested}}}}}]}}}}]}}'
    for text in (piece, f'{{"error":{nested}}}', f'{{"error":{{"message":{nested}}}}}', f'{{"choices":[],"x":{nested}}}'):
        reader = StreamReader(place(), 200, watch=lambda data: place("secret").secrets.hide_in(data))
        feed(reader, [sse(text)])
        assert reader.failure is None or isinstance(reader.failure.error, ModelError)


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_nesting_without_end_is_an_error_and_no_crash(opening: str) -> None:
    for text in (
        '{"error":' + opening * 50_000,
        '{"choices":[{"delta":{"tool_calls":' + opening * 50_000,
    ):
        with pytest.raises((InvalidResponse, ServerError, NetworkError)):
            read(sse(text, done=False))
