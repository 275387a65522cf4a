"""When a request is sent again, after what wait, and when not."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from beforehand.errors import BadRequest, ModelError, NetworkError, RateLimited, ServerError
from beforehand.models.base import Finish, TextDelta
from beforehand.models.http import Retries, retry_after
from beforehand.models.openai_chat import OpenAIChat
from wire.endpoint import ASK, HELLO, Endpoint, Naps, answer, collect, delta, hang_up, request, sse, stream

MakeModel = Callable[..., OpenAIChat]
HELLO_EVENTS = [TextDelta("Hello"), TextDelta(", world"), Finish("stop")]
NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    "first",
    [
        hang_up,
        stream(end=False),
        stream(b": waiting\n\n", end=False),
        stream(sse(delta("", role="assistant"), done=False), end=False),
        stream(sse({"error": {"message": "busy", "code": "server_error"}})),
        stream(sse({"error": {"message": "busy", "code": 429}})),
        answer({"error": {"message": "busy", "type": "overloaded_error"}}),
        answer(b"", 408),
        answer(b"", 409),
        answer(b"", 429),
        answer(b"", 500),
        answer(b"", 503),
        answer(b"", 400, x_should_retry="true"),
    ],
)
async def test_what_may_pass_is_asked_again_with_identical_bytes(endpoint: Endpoint, make_model: MakeModel, first: Any) -> None:
    endpoint.script(first, first, stream(HELLO))
    assert await collect(make_model().stream(request(temperature=0.5))) == HELLO_EVENTS
    assert len(endpoint.requests) == 3
    assert len({received.body for received in endpoint.requests}) == 1


@pytest.mark.parametrize(
    "first",
    [
        answer(b"", 400),
        answer(b"", 401),
        answer(b"", 404),
        answer(b"", 413),
        answer(b"", 302),
        answer(b"<html>", content_type="text/html"),
        answer({"error": {"message": "x", "code": "insufficient_quota"}}, 429),
        answer({"error": {"message": "x", "type": "insufficient_quota"}}, 429, x_should_retry="true"),
        answer({"error": {"message": "x", "code": "context_length_exceeded"}}, 400, x_should_retry="true"),
        answer(b"", 503, x_should_retry="false"),
        stream(sse({"error": {"message": "x", "code": "invalid_api_key"}})),
        stream(sse("{broken")),
    ],
)
async def test_what_does_not_pass_is_not_asked_again(endpoint: Endpoint, make_model: MakeModel, naps: Naps, first: Any) -> None:
    endpoint.script(first)
    with pytest.raises(ModelError):
        await collect(make_model().stream(ASK))
    assert len(endpoint.requests) == 1
    assert naps == []


@pytest.mark.parametrize(
    "rest",
    [
        stream(sse(delta("a"), done=False), end=False),
        stream(sse(delta("a"), {"error": {"message": "busy", "code": "server_error"}})),
        stream(sse(delta("a"), delta(finish="error"))),
        stream(sse(delta(reasoning="a"), done=False)),
    ],
)
async def test_nothing_is_asked_again_once_something_was_yielded(endpoint: Endpoint, make_model: MakeModel, rest: Any) -> None:
    endpoint.script(rest)
    with pytest.raises((NetworkError, ServerError)):
        await collect(make_model().stream(ASK))
    assert len(endpoint.requests) == 1


async def test_waits_double_up_to_their_bound(endpoint: Endpoint, make_model: MakeModel, naps: Naps) -> None:
    endpoint.script(answer(b"", 503))
    retries = Retries(attempts=6, base=1, max=5, jitter=False, sleep=naps)
    with pytest.raises(ServerError):
        await collect(make_model(retries=retries).stream(ASK))
    assert naps == [1, 2, 4, 5, 5]
    assert len(endpoint.requests) == 6


async def test_jitter_shortens_a_wait_by_up_to_half(endpoint: Endpoint, make_model: MakeModel, naps: Naps) -> None:
    endpoint.script(answer(b"", 503))
    numbers = iter([0.0, 0.5])
    retries = Retries(base=1, sleep=naps, random=lambda: next(numbers))
    with pytest.raises(ServerError):
        await collect(make_model(retries=retries).stream(ASK))
    assert naps == [0.5, 1.5]


async def test_one_attempt_means_one(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(hang_up)
    with pytest.raises(NetworkError):
        await collect(make_model(retries=Retries(attempts=1)).stream(ASK))
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": formatdate(NOW + 12, usegmt=True)}, 12.0),
        ({"retry_after": formatdate(NOW - 12, usegmt=True)}, 0.0),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after_ms": "soon", "retry_after": "7"}, 7.0),
        ({"retry_after": "soon"}, 1.0),
        ({"retry_after": "inf"}, 1.0),
        ({"retry_after": "nan"}, 1.0),
        ({}, 1.0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_the_endpoint_says_how_long_to_wait(
    endpoint: Endpoint, make_model: MakeModel, naps: Naps, headers: dict[str, str], wait: float, status: int
) -> None:
    endpoint.script(answer(b"", status, **headers), stream(HELLO))
    retries = Retries(base=1, jitter=False, sleep=naps, clock=lambda: NOW)
    assert await collect(make_model(retries=retries).stream(ASK)) == HELLO_EVENTS
    assert naps == [wait]


async def test_a_wait_beyond_the_bound_is_the_callers_business(endpoint: Endpoint, make_model: MakeModel, naps: Naps) -> None:
    endpoint.script(answer(b"", 429, retry_after="31"))
    with pytest.raises(RateLimited) as raised:
        await collect(make_model().stream(ASK))
    assert raised.value.retry_after == 31
    assert naps == []


async def test_the_last_failure_is_the_one_raised(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer(b"", 503), hang_up, answer({"error": "enough"}, 400))
    with pytest.raises(BadRequest, match="enough"):
        await collect(make_model().stream(ASK))


async def test_a_large_body_is_sent_again_whole(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer(b"", 503), stream(HELLO))
    await collect(make_model().stream(request(system="x" * 2_000_000)))
    first, second = endpoint.requests
    assert first.body == second.body
    assert len(first.body) > 2_000_000


def test_no_header_no_wait() -> None:
    assert retry_after({}, NOW) is None
