"""Recorded streams, and any other, decode to the same events however the network cuts them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.errors import ModelError
from beforehand.messages import Usage
from beforehand.models.base import Finish, TextDelta, ThinkingDelta, ToolCallDelta
from beforehand.models.openai_reply import RefusalReader, StreamReader, WholeReader
from wire.endpoint import STREAMS, Outcome, call, delta, feed, outcome_of, place, read, sse, whole

CAPITAL = Outcome("The capital of Mexico is Mexico City.", "", [], Finish("stop", Usage(14, 8)))
LOOKUPS = Outcome(
    "",
    "",
    [("call_3rqTYrA6H21AYUaRGP4F66oq", "get_country", "{}"), ("call_Xw9XMKBJU48kAAd78WgIswDx", "get_product_name", "{}")],
    Finish("tool_calls", Usage(364, 40)),
)
RECORDED = {
    "openai-chat-text-1.sse": CAPITAL,
    "openai-chat-text-2.sse": CAPITAL,
    "openai-chat-text-3.sse": CAPITAL,
    "openai-chat-tool-1.sse": LOOKUPS,
    "openai-chat-tool-2.sse": LOOKUPS,
    "openai-chat-tool-3.sse": LOOKUPS,
}


def test_every_recorded_stream_is_tested() -> None:
    assert {path.name for path in STREAMS.glob("openai-chat-*.sse")} == set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_decodes_to_its_reply(name: str) -> None:
    assert outcome_of(read((STREAMS / name).read_bytes())) == RECORDED[name]


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_cut_at_any_byte_decodes_to_the_same_events(name: str) -> None:
    data = (STREAMS / name).read_bytes()
    expected = read(data)
    for cut in range(len(data) + 1):
        assert read(data[:cut], data[cut:]) == expected, cut
    assert read(*[data[i : i + 1] for i in range(len(data))]) == expected


@pytest.mark.parametrize("end", [b"\r\n", b"\r"], ids=["crlf", "cr"])
@pytest.mark.parametrize("name", ["openai-chat-text-1.sse", "openai-chat-tool-1.sse"])
def test_a_recorded_stream_with_other_line_ends_decodes_to_the_same_events(name: str, end: bytes) -> None:
    data = (STREAMS / name).read_bytes()
    other = data.replace(b"\n", end)
    for cut in range(0, len(other), 7):
        assert read(other[:cut], other[cut:]) == read(data), cut


TEXT = st.text(max_size=12)
PIECE = st.builds(
    lambda index, call_id, name, arguments: call(
        index=index,
        id=call_id,
        name=name,
        arguments=arguments,
    ),
    st.none() | st.integers(0, 3),
    st.none() | st.sampled_from(["a", "b", ""]),
    st.none() | st.sampled_from(["add", "mul", ""]),
    st.none() | st.sampled_from(["", "{", "}", '"x":1', "{}"]) | st.just({"x": 1}),
)
CHUNK = st.one_of(
    st.builds(delta, TEXT),
    st.builds(lambda text: delta(reasoning=text), TEXT),
    st.builds(lambda text: delta(refusal=text), TEXT),
    st.builds(lambda pieces: delta(tool_calls=pieces), st.lists(PIECE, max_size=3)),
    st.builds(lambda parts: delta(content=parts), st.lists(TEXT | st.builds(lambda t: {"type": "text", "text": t}, TEXT))),
    st.builds(lambda reason: delta(finish=reason), st.sampled_from(["stop", "length", "tool_calls", "content_filter", "odd"])),
    st.builds(lambda n: {"choices": [], "usage": {"prompt_tokens": n}}, st.integers(0, 9)),
    st.just({"error": {"message": "no", "code": "server_error"}}),
    st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A stream of plausible and odd chunks, with comments, names and any line ends."""
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    lines: list[str] = []
    for chunk in draw(st.lists(CHUNK, max_size=8)):
        lines += draw(st.sampled_from([[], [": ping", ""], ["id: 1"], ["event: message"]]))
        text = json.dumps(chunk, ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1)))
        lines += [f"data:{draw(st.sampled_from(['', ' ']))}{line}" for line in text.split("\n")] + [""]
    lines += draw(st.sampled_from([[], ["data: [DONE]", ""]]))
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return (bom + end.join([*lines, ""])).encode("utf-8", "replace")


def decoded(*pieces: bytes) -> tuple[list[Any], str | None]:
    reader = StreamReader(place(), 200)
    events = feed(reader, pieces)
    return events, None if reader.failure is None else str(reader.failure.error)


@given(streams(), st.lists(st.integers(0, 2_000), max_size=6))
def test_any_stream_cut_anywhere_decodes_to_the_same_events_and_failure(data: bytes, cuts: list[int]) -> None:
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert decoded(*[data[a:b] for a, b in pairwise(marks)]) == decoded(data)
    assert decoded(*[data[i : i + 1] for i in range(len(data))]) == decoded(data)


@given(streams())
def test_any_stream_keeps_the_contract_of_deltas(data: bytes) -> None:
    reader = StreamReader(place(), 200)
    events = feed(reader, [data])
    outcome = outcome_of(events)  # checks that calls are numbered as they begin and named first
    assert all(isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta | Finish) for event in events)
    assert not any(isinstance(event, TextDelta | ThinkingDelta) and not event.text for event in events)
    assert (outcome.finish is None) == (reader.failure is not None)
    assert outcome.finish is None or isinstance(events[-1], Finish)
    if outcome.finish is not None and outcome.finish.stop_reason == "tool_calls":
        assert outcome.calls


RECORDING = (STREAMS / "openai-chat-tool-1.sse").read_bytes()
MUTATION = st.tuples(st.integers(0, len(RECORDING) - 1), st.integers(0, 40), st.binary(max_size=6))


@given(st.lists(st.binary(max_size=200) | st.sampled_from([b"data: ", b"\n\n", b"event: error\n", b"[DONE]"]), max_size=10))
def test_random_bytes_raise_nothing_but_model_errors(pieces: list[bytes]) -> None:
    for reader in (
        StreamReader(place(), 200, "text/event-stream"),
        WholeReader(place(), 200, "application/json"),
        RefusalReader(place(), 400, {}, None),
    ):
        feed(reader, pieces)
        assert reader.failure is None or isinstance(reader.failure.error, ModelError)


@given(st.lists(MUTATION, min_size=1, max_size=5))
def test_damaged_recordings_raise_nothing_but_model_errors(mutations: list[tuple[int, int, bytes]]) -> None:
    data = RECORDING
    for at, removed, put in mutations:
        data = data[:at] + put + data[at + removed :]
    reader = StreamReader(place(), 200)
    feed(reader, [data])
    assert reader.failure is None or isinstance(reader.failure.error, ModelError)


@given(CHUNK)
def test_any_json_as_a_whole_reply_raises_nothing_but_model_errors(value: Any) -> None:
    for body in (value, whole({"content": value}), whole({"tool_calls": value}), whole({}, usage=value), {"error": value}):
        reader = WholeReader(place(), 200)
        feed(reader, [json.dumps(body).encode()])
        assert reader.failure is None or isinstance(reader.failure.error, ModelError)


@given(st.integers(300, 599), CHUNK | st.builds(lambda value: {"error": value}, CHUNK), st.dictionaries(TEXT, TEXT))
def test_any_error_answer_becomes_one_line(status: int, body: Any, headers: dict[str, str]) -> None:
    reader = RefusalReader(place(), status, headers, None)
    feed(reader, [json.dumps(body).encode()])
    assert reader.failure is not None
    message = str(reader.failure.error)
    assert message.isprintable()
    assert len(message) < 1_000
    assert message.startswith(f"http://127.0.0.1:1/v1/chat/completions answered {status}")


def test_the_events_of_a_stream_with_all_kinds_of_deltas() -> None:
    data = sse(delta(reasoning="r"), delta("t"), delta(tool_calls=[call(index=0, id="a", name="f", arguments="{}")]))
    assert read(data) == [ThinkingDelta("r"), TextDelta("t"), ToolCallDelta(0, "a", "f", "{}"), Finish("tool_calls")]
