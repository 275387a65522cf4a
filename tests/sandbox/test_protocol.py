"""A worker that shares its standard output with a lambda: what is a message, and what is text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.sandbox.protocol import BadFrame, Decoder, Frame, FrameTooLarge, new_token, to_worker

TOKEN = "0123456789abcdef0123456789abcdef"


def frame(kind: str, payload: bytes, token: str = TOKEN) -> bytes:
    return f"{token}{kind}{len(payload):08x}".encode() + payload


def split(found):
    """The stray text, joined, and the messages."""
    return b"".join(item for item in found if isinstance(item, bytes)), [item for item in found if isinstance(item, Frame)]


ignorant = st.binary(max_size=60).filter(lambda text: TOKEN[:4].encode() not in text)
"""Text of someone who does not know the token."""


@given(
    st.lists(st.one_of(ignorant, st.tuples(st.sampled_from("RECL"), st.binary(max_size=60))), max_size=8),
    st.integers(1, 50),
)
def test_messages_between_text_are_found_however_the_bytes_arrive(parts, piece):
    stream = b"".join(part if isinstance(part, bytes) else frame(*part) for part in parts)
    decoder, found = Decoder(TOKEN, 1000), []
    for start in range(0, len(stream), piece):
        found += decoder.feed(stream[start : start + piece])
    text, frames = split([*found, decoder.rest()])

    assert frames == [Frame(kind.encode(), payload) for kind, payload in (p for p in parts if isinstance(p, tuple))]
    assert text == b"".join(part for part in parts if isinstance(part, bytes))


def test_a_frame_made_without_the_token_is_text():
    forged = frame("R", b'{"type":"block"}', token=new_token())
    text, frames = split(Decoder(TOKEN, 1000).feed(forged + frame("R", b"null")))
    assert text == forged
    assert frames == [Frame(b"R", b"null")]


def test_a_frame_inside_the_payload_of_another_is_payload():
    inner = frame("R", b"1")
    _, frames = split(Decoder(TOKEN, 1000).feed(frame("L", inner) + frame("R", b"2")))
    assert frames == [Frame(b"L", inner), Frame(b"R", b"2")]


def test_the_length_is_refused_before_the_bytes_arrive():
    with pytest.raises(FrameTooLarge) as caught:
        Decoder(TOKEN, 10).feed(f"{TOKEN}R{2**31:08x}".encode())
    assert (caught.value.kind, caught.value.size) == (b"R", 2**31)


@pytest.mark.parametrize("header", ["X00000001", "R0000000g", "R-0000001", "R+0000001", "R 0000001", "R0x000001"])
def test_a_header_that_is_none_breaks_the_stream(header):
    with pytest.raises(BadFrame):
        Decoder(TOKEN, 10).feed((TOKEN + header + "1").encode())


def test_stray_text_is_passed_on_at_once_and_not_kept():
    decoder = Decoder(TOKEN, 1000)
    passed = sum(len(item) for _ in range(100) for item in decoder.feed(b"x" * 1000))
    assert passed >= 100_000 - len(TOKEN)
    assert len(decoder.rest()) < len(TOKEN)


def test_a_piece_of_a_frame_at_the_end_is_not_shown_as_text():
    decoder = Decoder(TOKEN, 1000)
    assert decoder.feed(frame("R", b"12345")[:-1]) == []
    assert decoder.rest() == b""


def test_no_two_calls_have_the_same_token():
    assert len({new_token() for _ in range(1000)}) == 1000


def test_messages_to_a_worker_begin_with_their_length():
    assert to_worker({"id": 1}) == b"\x00\x00\x00\x08" + b'{"id":1}'
