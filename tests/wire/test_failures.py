"""What can go wrong on the wire, as one typed error with one clear line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beforehand.errors import (
    AuthenticationError,
    BadRequest,
    ContextTooLong,
    InvalidResponse,
    ModelError,
    NetworkError,
    RateLimited,
    ServerError,
    ToolMismatch,
)
from beforehand.models.base import ModelEvent, TextDelta
from beforehand.models.http import Retries, Timeouts
from beforehand.models.openai_chat import OpenAIChat
from wire.endpoint import ASK, HELLO, Endpoint, Line, Naps, answer, collect, delta, hang_up, silence, sse, stream, whole

MakeModel = Callable[..., OpenAIChat]


async def failure(model: OpenAIChat) -> ModelError:
    """What asking `model` raises: one line that begins with its endpoint, and nothing chained to it."""
    with pytest.raises(ModelError) as raised:
        await collect(model.stream(ASK))
    error = raised.value
    assert str(error).startswith(model.endpoint)
    assert str(error).isprintable()
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


# -- statuses


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (400, BadRequest, "the request needs changing"),
        (401, AuthenticationError, "check the key"),
        (402, BadRequest, ""),
        (403, AuthenticationError, "check the key"),
        (404, BadRequest, "check base_url and the model name 'm'"),
        (405, BadRequest, ""),
        (408, BadRequest, ""),
        (409, BadRequest, ""),
        (413, ContextTooLong, "shorten or compact"),
        (422, BadRequest, ""),
        (429, RateLimited, "wait"),
        (500, ServerError, "try again later"),
        (503, ServerError, "try again later"),
        (529, ServerError, "try again later"),
    ],
)
async def test_each_status_has_its_error(
    endpoint: Endpoint, make_model: MakeModel, status: int, kind: type[ModelError], hint: str
) -> None:
    endpoint.script(answer({"error": {"message": "because\n of this", "type": None, "code": None}}, status))
    error = await failure(make_model())
    assert type(error) is kind
    assert error.status == status
    assert f"answered {status}: because of this; " in str(error)
    assert hint in str(error)


REQUEST = "invalid_request_error"


@pytest.mark.parametrize(
    ("status", "report", "kind"),
    [
        (400, {"message": "x", "code": "context_length_exceeded"}, ContextTooLong),
        (400, {"message": "x", "type": "exceed_context_size_error", "code": 400}, ContextTooLong),
        (422, {"message": "x", "code": "context_length_exceeded"}, ContextTooLong),
        (400, {"message": "This model's maximum context length is 8192 tokens"}, ContextTooLong),
        (400, {"message": "maximum context length is 9", "type": "invalid_request_error", "code": None}, ContextTooLong),
        (400, {"message": "no tool may be called 'context length'", "code": "invalid_function_name"}, BadRequest),
        (400, {"message": "The token count exceeds", "code": 400, "status": "INVALID_ARGUMENT"}, ContextTooLong),
        (400, {"message": "maximum context length", "type": "invalid_request_error", "code": "3051"}, ContextTooLong),
        (429, {"message": "maximum context length", "code": None}, RateLimited),
        (400, {"message": "x", "code": "invalid_api_key"}, AuthenticationError),
        (400, {"message": "context_length_exceeded", "code": "other"}, BadRequest),
        (429, {"message": "x", "code": "insufficient_quota"}, RateLimited),
        (400, {"message": "messages with role 'tool' must be a response to ...", "type": REQUEST, "code": None}, ToolMismatch),
        (400, {"message": "... 'tool_calls' must be followed by ...", "type": REQUEST, "code": REQUEST}, ToolMismatch),
        (400, {"message": '... with role "tool" must ...', "type": REQUEST, "code": "invalid_parameter_error"}, ToolMismatch),
        (400, {"message": "Not the same number of function calls and responses", "type": REQUEST}, ToolMismatch),
        (400, {"message": "... number of function response parts ...", "code": 400, "status": "INVALID_ARGUMENT"}, ToolMismatch),
        (422, {"message": "tool_use ids were found without tool_result blocks", "type": REQUEST}, ToolMismatch),
        (400, {"message": "tool_calls", "code": "model_overloaded_or_so"}, BadRequest),
        (500, {"message": "tool_call_id", "code": None}, ServerError),
    ],
)
async def test_codes_are_read_before_texts(
    endpoint: Endpoint, make_model: MakeModel, status: int, report: dict[str, Any], kind: type[ModelError]
) -> None:
    endpoint.script(answer({"error": report}, status))
    error = await failure(make_model())
    assert type(error) is kind
    assert error.status == status


@pytest.mark.parametrize(("code", "lasting"), [("insufficient_quota", True), ("rate_limit_exceeded", False)])
async def test_a_quota_that_is_used_up_is_marked_as_lasting(
    endpoint: Endpoint, make_model: MakeModel, code: str, lasting: bool
) -> None:  # fmt: skip
    endpoint.script(answer({"error": {"message": "x", "code": code}}, 429))
    assert (await failure(make_model(retries=Retries(attempts=1)))).lasting is lasting


@pytest.mark.parametrize(
    "body",
    [
        {"error": "because"},
        {"message": "because"},
        {"detail": "because"},
        {"detail": [{"msg": "because"}]},
        [{"error": {"message": "because"}}],
        {"error": {"message": {"why": "because"}}},
        {"error": {"reason": "because"}},
        "because",
        b"because",
        b"<html><body>because</body></html>",
        b"\xff\xfe because",
    ],
)
async def test_an_explanation_is_found_in_any_shape(endpoint: Endpoint, make_model: MakeModel, body: Any) -> None:
    endpoint.script(answer(body, 400, content_type="text/plain"))
    assert "because" in str(await failure(make_model()))


async def test_a_long_explanation_is_cut_and_none_is_said_to_be_none(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer(b"x" * 300_000, 400), answer(b"", 400))
    assert f"{'x' * 200}...; " in str(await failure(make_model()))
    assert "answered 400: no explanation; " in str(await failure(make_model()))


async def test_an_error_status_counts_even_if_its_explanation_is_cut(endpoint: Endpoint, make_model: MakeModel) -> None:
    async def cut_explanation(line: Line) -> bool:
        await line.head(401, content_length="1000")
        line.writer.write(b'{"error": ')
        await line.writer.drain()
        return False

    endpoint.script(cut_explanation)
    assert isinstance(await failure(make_model()), AuthenticationError)


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("https://other.invalid:8443/v2?token=secret", "redirects to other.invalid;"),
        ("http://user:secret@other.invalid/", "redirects to other.invalid;"),
        ("/v2/chat", "redirects to 127.0.0.1;"),
        ("", "redirects without saying where;"),
        ("http://[", "redirects without saying where;"),
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_names_only_the_host(
    endpoint: Endpoint, make_model: MakeModel, location: str, where: str, status: int
) -> None:
    endpoint.script(answer(b"", status, location=location))
    error = await failure(make_model())
    assert type(error) is BadRequest
    assert where in str(error)
    assert "secret" not in str(error)
    assert len(endpoint.requests) == 1


# -- answers that are no replies


@pytest.mark.parametrize(
    ("body", "content_type", "what"),
    [
        (b"<html>\n<title>Sign in</title></html>", "text/html", r"a web page.*\(text/html\): <html> <title>Sign in"),
        (b"", "application/json", "an empty body"),
        (b"{", "application/json", "something that is not JSON"),
        (b"\xff\xfe\xfd", "application/json", "bytes that are not UTF-8"),
        (b"hello", "text/plain", r"something that is not an event stream \(text/plain\): hello"),
        (b"data: {\n\n", "text/event-stream", "something that is not JSON"),
    ],
)
async def test_what_is_no_reply_is_named_with_its_type_and_beginning(
    endpoint: Endpoint, make_model: MakeModel, body: bytes, content_type: str, what: str
) -> None:
    endpoint.script(answer(body, content_type=content_type))
    error = await failure(make_model())
    assert type(error) is InvalidResponse
    assert error.status == 200
    assert "answered 200 with " in str(error)
    with pytest.raises(InvalidResponse, match=what):
        raise error
    assert len(endpoint.requests) == 1


async def test_a_success_without_a_body_is_no_reply(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer(b"", 204))
    assert isinstance(await failure(make_model(stream=False)), InvalidResponse)


async def test_an_error_report_inside_a_success_is_an_error(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer({"error": {"message": "no such model", "type": "invalid_request_error"}}))
    assert isinstance(await failure(make_model(stream=False)), BadRequest)
    assert isinstance(await failure(make_model()), BadRequest)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_cannot_be_decompressed_is_named(endpoint: Endpoint, make_model: MakeModel, encoding: str) -> None:
    endpoint.script(stream(HELLO, content_encoding=encoding))
    error = await failure(make_model())
    assert type(error) is InvalidResponse
    assert "cannot be decompressed" in str(error)


@pytest.mark.parametrize("sent", [b"HELLO\r\n\r\n", b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n\r\n"])
async def test_an_answer_that_is_not_http_is_named(endpoint: Endpoint, make_model: MakeModel, sent: bytes) -> None:
    async def nonsense(line: Line) -> bool:
        line.writer.write(sent)
        await line.writer.drain()
        return False

    endpoint.script(nonsense)
    error = await failure(make_model())
    assert type(error) is InvalidResponse
    assert "not HTTP" in str(error)


# -- the network


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


async def test_an_endpoint_that_is_not_there_is_a_network_error(make_model: MakeModel) -> None:
    error = await failure(make_model(base_url=f"http://127.0.0.1:{free_port()}/v1"))
    assert type(error) is NetworkError
    assert "check that it runs and that base_url is right" in str(error)
    assert error.status is None


async def test_a_host_name_that_nobody_knows_is_a_network_error(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    error = await failure(make_model(base_url="http://nowhere.invalid/v1"))
    assert type(error) is NetworkError
    assert "the host name was not found" in str(error)


async def test_a_port_that_does_not_speak_tls_is_a_network_error_and_not_tried_again(make_model: MakeModel, naps: Naps) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(make_model(base_url=f"https://127.0.0.1:{port}/v1"))
    assert type(error) is NetworkError
    assert "no secure connection" in str(error)
    assert naps == []


async def test_a_certificate_that_nobody_vouches_for_is_a_network_error_and_not_tried_again(
    secure_endpoint: Endpoint, make_model: MakeModel, naps: Naps
) -> None:
    error = await failure(make_model(base_url=secure_endpoint.url))
    assert type(error) is NetworkError
    assert "no secure connection; check the certificate" in str(error)
    assert secure_endpoint.requests == []
    assert naps == []


@pytest.mark.parametrize(
    "cut",
    [
        hang_up,
        stream(end=False),
        stream(b": ping\n\n", end=False),
        stream(sse(delta("a"), done=False)[:-30], end=False),
        stream(sse(delta("a"), done=False)[:-30]),
        answer(b"", content_type="text/event-stream"),
    ],
)
async def test_a_cut_before_anything_was_said_is_a_network_error(endpoint: Endpoint, make_model: MakeModel, cut: Any) -> None:
    endpoint.script(cut)
    error = await failure(make_model())
    assert type(error) is NetworkError
    assert "the connection was cut before the reply was complete" in str(error)


@pytest.mark.parametrize("end", [True, False])
async def test_a_cut_in_the_middle_is_a_network_error_after_what_came(
    endpoint: Endpoint, make_model: MakeModel, end: bool
) -> None:
    received = asyncio.Event()

    async def half(line: Line) -> bool:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked")
        await line.event(delta("a"))
        await received.wait()
        if end:
            await line.end()
        return False

    endpoint.script(half)
    events: list[ModelEvent] = []
    with pytest.raises(NetworkError, match="the connection was cut"):
        await collect(make_model().stream(ASK), events, received)
    assert events == [TextDelta("a")]
    assert len(endpoint.requests) == 1


async def test_a_whole_reply_shorter_than_announced_was_cut(endpoint: Endpoint, make_model: MakeModel) -> None:
    async def short(line: Line) -> bool:
        await line.head(content_type="application/json", content_length="1000")
        line.writer.write(b'{"choices": [')
        await line.writer.drain()
        return False

    endpoint.script(short)
    assert "the connection was cut" in str(await failure(make_model(stream=False)))


async def test_a_connection_that_is_reset_was_cut(endpoint: Endpoint, make_model: MakeModel) -> None:
    async def reset(line: Line) -> bool:
        line.writer.transport.abort()
        return False

    endpoint.script(reset)
    assert type(await failure(make_model())) is NetworkError


# -- time limits: they are short here, and end in errors instead of waiting for anything


@pytest.mark.parametrize("limit", [{"first_byte": 0.05}, {"total": 0.05}])
async def test_an_endpoint_that_says_nothing_is_left_and_not_asked_again(
    endpoint: Endpoint, make_model: MakeModel, naps: Naps, limit: dict[str, float]
) -> None:
    endpoint.script(silence)
    error = await failure(make_model(timeouts=Timeouts(**limit)))
    assert type(error) is NetworkError
    assert "0.05 s" in str(error)
    assert naps == []


async def falls_silent(line: Line) -> bool:
    await line.head(content_type="text/event-stream", transfer_encoding="chunked")
    await line.event(delta("a"))
    await line.gone()
    return False


@pytest.mark.parametrize("limit", [{"between_chunks": 0.05}, {"total": 0.05}])
async def test_an_endpoint_that_falls_silent_is_left(endpoint: Endpoint, make_model: MakeModel, limit: dict[str, float]) -> None:
    endpoint.script(falls_silent)
    events: list[ModelEvent] = []
    with pytest.raises(NetworkError, match="too long a silence"):
        await collect(make_model(timeouts=Timeouts(**limit)).stream(ASK), events)
    assert events == [TextDelta("a")] or "total" in limit  # which may have passed before, on a busy machine


async def test_the_first_byte_may_take_longer_than_the_next_ones(endpoint: Endpoint, make_model: MakeModel) -> None:
    begun, other_has_failed = asyncio.Event(), asyncio.Event()

    async def slow_start(line: Line) -> None:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked")  # which is no first byte of a reply
        begun.set()
        await other_has_failed.wait()
        await line.chunk(HELLO)
        await line.end()

    endpoint.script(slow_start, falls_silent)
    model = make_model(timeouts=Timeouts(first_byte=20, between_chunks=0.05))
    slow = asyncio.create_task(collect(model.stream(ASK)))
    await begun.wait()
    with pytest.raises(NetworkError):  # so more than the limit between chunks has passed
        await collect(model.stream(ASK))
    other_has_failed.set()
    assert len(await slow) == 3


async def test_a_connection_that_does_not_come_about_is_left(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    model = make_model(base_url="http://slow.invalid/v1", timeouts=Timeouts(connect=0.05), retries=Retries(attempts=1))
    error = await failure(model)
    assert type(error) is NetworkError
    assert "no connection within 0.05 s" in str(error)


# -- proxies


async def test_a_proxy_that_is_not_there_is_a_network_error(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:secret@127.0.0.1:{free_port()}")
    error = await failure(make_model(base_url="http://model.invalid/v1"))
    assert type(error) is NetworkError
    assert "secret" not in str(error)


@pytest.mark.parametrize(("status", "attempts"), [(407, 1), (503, 3)])
async def test_a_proxy_that_refuses_the_tunnel_is_a_network_error(
    endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, status: int, attempts: int
) -> None:
    monkeypatch.setenv("https_proxy", f"http://user:secret@127.0.0.1:{endpoint.port}")
    endpoint.script(answer(b"", status))
    error = await failure(make_model(base_url="https://model.invalid/v1"))
    assert type(error) is NetworkError
    assert error.status == status
    assert f"the proxy answered {status}" in str(error)
    assert "secret" not in str(error)
    assert [received.target for received in endpoint.requests] == ["model.invalid:443"] * attempts


# -- anything at all


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), framed=st.booleans(), streaming=st.booleans())
async def test_random_bytes_over_http_raise_nothing_but_model_errors(
    endpoint: Endpoint, make_model: MakeModel, data: bytes, framed: bool, streaming: bool
) -> None:
    async def unframed(line: Line) -> bool:
        line.writer.write(data)
        await line.writer.drain()
        return False

    endpoint.script(answer(data) if framed else unframed)
    with pytest.raises(ModelError):
        await collect(make_model(stream=streaming).stream(ASK))


async def test_a_whole_reply_follows_a_failure_on_the_same_model(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer(b"", 400), answer(whole({"content": "a"})))
    model = make_model()
    await failure(model)
    assert (await collect(model.stream(ASK)))[0] == TextDelta("a")
