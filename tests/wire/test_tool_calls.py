"""Tool calls in all the shapes in which servers cut them."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand.models.base import Finish, ToolCallDelta
from wire.endpoint import call, delta, read, read_outcome, sse

CallOf = tuple[str | None, str, str]


def calls_of(*pieces: dict[str, Any] | list[dict[str, Any]]) -> list[CallOf]:
    """The calls that come of these pieces, one chunk each (or a list of pieces in one chunk)."""
    chunks = [delta(tool_calls=piece if isinstance(piece, list) else [piece]) for piece in pieces]
    outcome = read_outcome(*chunks, delta(finish="tool_calls"))
    assert outcome.finish == Finish("tool_calls")
    return outcome.calls


def test_the_first_delta_of_a_call_has_its_id_and_whole_name() -> None:
    chunks = [
        delta(tool_calls=[call(index=0, id="a", name="add", arguments="")]),
        delta(tool_calls=[call(index=0, arguments='{"a"')]),
        delta(tool_calls=[call(index=0, arguments=":1}")]),
        delta(finish="tool_calls"),
    ]
    assert read(sse(*chunks)) == [
        ToolCallDelta(0, "a", "add", '{"a"'),
        ToolCallDelta(0, None, None, ":1}"),
        Finish("tool_calls"),
    ]


def test_a_call_is_announced_at_the_latest_when_the_next_one_begins() -> None:
    chunks = [
        delta(tool_calls=[call(index=0, id="a", name="now", arguments="")]),
        delta(tool_calls=[call(index=1, id="b", name="add", arguments="")]),
    ]
    assert read(sse(*chunks)) == [
        ToolCallDelta(0, "a", "now", ""),
        ToolCallDelta(0, None, None, "{}"),
        ToolCallDelta(1, "b", "add", "{}"),
        Finish("tool_calls"),
    ]


def test_interleaved_calls_are_kept_apart_by_their_index() -> None:
    assert calls_of(
        call(index=0, id="a", name="add", arguments='{"a":'),
        call(index=1, id="b", name="mul", arguments='{"b":'),
        call(index=0, arguments="1}"),
        call(index=1, arguments="2}"),
    ) == [("a", "add", '{"a":1}'), ("b", "mul", '{"b":2}')]


def test_indexes_may_begin_anywhere_and_have_gaps() -> None:
    assert calls_of(call(index=7, id="a", name="add", arguments="{}"), call(index=3, id="b", name="mul", arguments="{}")) == [
        ("a", "add", "{}"),
        ("b", "mul", "{}"),
    ]


def test_parallel_calls_may_come_in_one_chunk() -> None:
    both = [call(index=0, id="a", name="add", arguments='{"a":1}'), call(index=1, id="b", name="add", arguments='{"a":2}')]
    assert calls_of(both) == [("a", "add", '{"a":1}'), ("b", "add", '{"a":2}')]


def test_parallel_calls_without_index_are_told_apart_by_place_and_id() -> None:
    both = [call(id="a", name="add", arguments='{"a":1}'), call(id="b", name="add", arguments='{"a":2}')]
    expected = [("a", "add", '{"a":1}'), ("b", "add", '{"a":2}')]
    assert calls_of(both) == expected
    assert calls_of(*both) == expected


def test_calls_without_index_and_id_are_told_apart_by_their_names() -> None:
    both = [call(name="add", arguments='{"a":1}'), call(name="add", arguments='{"a":2}')]
    expected = [(None, "add", '{"a":1}'), (None, "add", '{"a":2}')]
    assert calls_of(both) == expected
    assert calls_of(*both) == expected
    assert calls_of(call(name="now"), call(name="add", arguments="{}")) == [(None, "now", "{}"), (None, "add", "{}")]


def test_pieces_without_index_and_name_continue_the_last_call() -> None:
    pieces = [call(id="a", name="add", arguments='{"a"'), call(arguments=":1"), call(id="a", arguments="}")]
    assert calls_of(*pieces) == [("a", "add", '{"a":1}')]


def test_pieces_without_index_are_given_to_the_call_of_their_id() -> None:
    assert calls_of(
        call(id="a", name="add", arguments="{"),
        call(id="b", name="mul", arguments="{"),
        call(id="a", arguments="}"),
        call(id="b", arguments="}"),
    ) == [("a", "add", "{}"), ("b", "mul", "{}")]


def test_the_name_repeated_with_every_piece_makes_no_new_call() -> None:
    pieces = [call(name="add", arguments='{"a"'), call(name="add", arguments=":1}")]
    assert calls_of(*pieces) == [(None, "add", '{"a":1}')]
    assert calls_of(*[{**piece, "index": 0} for piece in pieces]) == [(None, "add", '{"a":1}')]


def test_several_calls_numbered_zero_are_told_apart_by_their_ids() -> None:
    assert calls_of(
        call(index=0, id="a", name="add", arguments='{"a":1}'),
        call(index=0, id="b", name="add", arguments='{"a":2}'),
    ) == [("a", "add", '{"a":1}'), ("b", "add", '{"a":2}')]


def test_an_id_that_changes_without_a_name_is_the_same_call() -> None:
    pieces = [call(index=0, id="x1", name="add", arguments='{"a"'), call(index=0, id="x2", arguments=":1}")]
    assert calls_of(*pieces) == [("x1", "add", '{"a":1}')]


def test_the_id_may_be_missing_empty_repeated_or_late() -> None:
    assert calls_of(call(index=0, name="add", arguments="{}")) == [(None, "add", "{}")]
    assert calls_of(call(index=0, id="", name="add", arguments="{}")) == [(None, "add", "{}")]
    repeated = [call(index=0, id="a", name="add", arguments="{"), call(index=0, id="a", arguments="}")]
    assert calls_of(*repeated) == [("a", "add", "{}")]
    late = [call(index=0, name="add", arguments="{"), call(index=0, id="a", arguments="}")]
    assert calls_of(*late) == [("a", "add", "{}")]
    assert calls_of(call(name="add", arguments="{"), call(id="a", arguments="}")) == [("a", "add", "{}")]


def test_a_name_may_come_in_pieces() -> None:
    pieces = [call(index=0, id="a", name="get_"), call(index=0, name="weather"), call(index=0, arguments="{}")]
    assert calls_of(*pieces) == [("a", "get_weather", "{}")]


def test_arguments_may_come_before_the_name() -> None:
    assert calls_of(call(index=0, arguments='{"a":'), call(index=0, name="add", arguments="1}")) == [(None, "add", '{"a":1}')]


def test_a_call_that_never_gets_a_name_has_an_empty_one() -> None:
    assert calls_of(call(index=0, id="a", arguments="{}")) == [("a", "", "{}")]
    assert calls_of([{"index": 0, "id": "a"}]) == [("a", "", "{}")]


def test_arguments_may_be_an_object_in_place_of_its_text() -> None:
    assert calls_of(call(index=0, id="a", name="add", arguments={"a": 1, "b": "ä"})) == [("a", "add", '{"a": 1, "b": "ä"}')]


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_call_without_arguments_has_an_empty_object(nothing: str | None) -> None:
    assert calls_of(call(index=0, id="a", name="now", arguments=nothing)) == [("a", "now", "{}")]


def test_a_call_cut_by_the_length_limit_is_left_as_it_was_cut() -> None:
    chunk = delta(tool_calls=[call(index=0, id="a", name="add", arguments="")])
    outcome = read_outcome(chunk, delta(finish="length"))
    assert outcome.calls == [("a", "add", "")]
    assert outcome.finish == Finish("length")


def test_oddly_typed_pieces_are_understood_or_left_out() -> None:
    pieces: list[Any] = [
        {"index": "0", "id": 5, "function": {"name": "add", "arguments": None}},
        7,
        {"index": 0, "function": "x"},
    ]
    assert calls_of(pieces, [{"index": 0.0, "function": {"arguments": "{}"}}]) == [("5", "add", "{}")]
