"""The event decoder: bytes to events, wherever they were cut."""

from __future__ import annotations

import pytest

from beforehand.models.sse import MAX_EVENT_BYTES, Event, EventDecoder, EventTooLong


def decode(*pieces: bytes, max_bytes: int = MAX_EVENT_BYTES) -> list[Event]:
    decoder = EventDecoder(max_bytes)
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_lines_end_in_all_three_ways_and_cuts_do_not_matter(end: bytes) -> None:
    lines = [b": a comment", b"event: first", b"data: one", b"data: two", b"id: 7", b"retry: 3", b"", b"data:three", b"", b""]
    data = end.join(lines)
    expected = [("first", b"one\ntwo"), ("", b"three")]
    assert decode(data) == expected
    for cut in range(len(data) + 1):
        assert decode(data[:cut], data[cut:]) == expected, cut
    assert decode(*[data[i : i + 1] for i in range(len(data))]) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: 0\n\ndata: x data: y\n\n", [("", b"0"), ("", b"x data: y")]),
        (b"data: 0\n\n: x data: y\n\n", [("", b"0")]),
        (b"data: 0\n\ndata: x\rdata: y\n\n", [("", b"0"), ("", b"x\ny")]),
        (b"data: 0\n\nevent: e\ndata: x\n\n", [("", b"0"), ("e", b"x")]),
        (b"data: 0\n\ndata: x\ndata: y\n\n", [("", b"0"), ("", b"x\ny")]),
        (b"data: 0\r\n\r\ndata: x\n\n\ndata: y\n\n", [("", b"0"), ("", b"x"), ("", b"y")]),
    ],
)
def test_a_piece_that_looks_like_a_whole_event_is_taken_for_one_only_between_events(data: bytes, expected: list[Event]) -> None:
    for first in range(len(data)):
        for second in range(first, len(data)):
            assert decode(data[:first], data[first:second], data[second:]) == expected, (first, second)


def test_an_event_comes_as_soon_as_its_blank_line_is_there() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\n") == [("", b"a")]
    assert decoder.feed(b"data: b\r") == []
    assert decoder.feed(b"\n\r") == [("", b"b")]
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\ndata: c\n\n") == [("", b"c")]


@pytest.mark.parametrize("cut", range(5))
def test_a_byte_order_mark_at_the_start_is_dropped_even_when_cut(cut: int) -> None:
    data = b"\xef\xbb\xbfdata: a\n\n"
    assert decode(data[:cut], data[cut:]) == [("", b"a")]
    assert decode(data[:-2]) == [("", b"a")]


def test_only_one_space_after_the_colon_belongs_to_the_format() -> None:
    assert decode(b"data:  a \n\n") == [("", b" a ")]
    assert decode(b"data:\ta\n\n") == [("", b"\ta")]


def test_a_field_without_a_colon_is_empty_and_an_unknown_one_is_skipped() -> None:
    assert decode(b"data\ndata: a\n\n") == [("", b"\na")]
    assert decode(b"datum: a\n data: b\n\n") == []
    assert decode(b"event: x\n\ndata: a\n\n") == [("", b"a")]


def test_an_event_without_its_blank_line_is_given_at_the_end() -> None:
    assert decode(b"data: a\n\ndata: b\n") == [("", b"a"), ("", b"b")]
    assert decode(b"event: error\ndata: b") == [("error", b"b")]


def test_an_event_without_an_end_does_not_grow_for_ever() -> None:
    for endless in (b"data: x", b"data: x\n"):
        with pytest.raises(EventTooLong):
            decode(*[endless] * 100, max_bytes=100)
    assert len(decode(*[b"data: x\n\n: ping\n\n"] * 1_000, max_bytes=100)) == 1_000  # many are no long one
