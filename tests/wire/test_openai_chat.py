"""A whole model against a real HTTP endpoint: replies, early ends, observation, connections."""

from __future__ import annotations

import asyncio
import copy
import gzip
import os
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from beforehand.errors import ConfigError, NetworkError
from beforehand.history import History
from beforehand.messages import Image, UserMessage
from beforehand.models.base import CallInfo, Finish, TextDelta
from beforehand.models.http import Retries, Timeouts
from beforehand.models.openai_chat import OpenAIChat
from wire.endpoint import (
    ADD,
    ASK,
    CERTIFICATE,
    HELLO,
    KEY,
    STREAMS,
    Endpoint,
    Line,
    answer,
    collect,
    delta,
    outcome_of,
    read,
    request,
    sse,
    stream,
    whole,
)

MakeModel = Callable[..., OpenAIChat]
HELLO_EVENTS = [TextDelta("Hello"), TextDelta(", world"), Finish("stop")]


# -- replies


async def test_a_streamed_reply_comes_piece_by_piece(endpoint: Endpoint, make_model: MakeModel) -> None:
    assert await collect(make_model().stream(ASK)) == HELLO_EVENTS
    assert endpoint.requests[0].target == "/v1/chat/completions"
    assert endpoint.requests[0].json["stream"] is True


async def test_a_piece_is_yielded_before_the_next_is_sent(endpoint: Endpoint, make_model: MakeModel) -> None:
    seen = asyncio.Event()

    async def one_by_one(line: Line) -> None:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked")
        await line.event(delta("a"))
        await seen.wait()
        await line.chunk(sse(delta("b", finish="stop")))
        await line.end()

    endpoint.script(one_by_one)
    events = []
    async for event in make_model().stream(ASK):
        events.append(event)
        seen.set()
    assert events == [TextDelta("a"), TextDelta("b"), Finish("stop")]


async def test_without_streaming_the_reply_comes_in_one_piece(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer(whole({"content": "Hello"})))
    model = make_model(stream=False)
    assert model.streams is False
    assert await collect(model.stream(ASK)) == [TextDelta("Hello"), Finish("stop")]
    assert endpoint.requests[0].json["stream"] is False


async def test_a_server_that_does_not_stream_is_understood(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer(whole({"content": "Hello"})))
    assert await collect(make_model().stream(ASK)) == [TextDelta("Hello"), Finish("stop")]


async def test_a_server_that_always_streams_is_understood(endpoint: Endpoint, make_model: MakeModel) -> None:
    assert await collect(make_model(stream=False).stream(ASK)) == HELLO_EVENTS


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/octet-stream"])
async def test_a_stream_is_understood_under_a_wrong_name(
    endpoint: Endpoint, make_model: MakeModel, content_type: str | None
) -> None:
    endpoint.script(answer(HELLO, content_type=content_type))
    assert await collect(make_model().stream(ASK)) == HELLO_EVENTS


@pytest.mark.parametrize("name", ["openai-chat-text-1.sse", "openai-chat-tool-1.sse"])
async def test_a_recorded_stream_survives_any_cut_on_the_way(endpoint: Endpoint, make_model: MakeModel, name: str) -> None:
    data = (STREAMS / name).read_bytes()
    model = make_model()
    for size in (1, 7, 64, 333, 1_000, len(data)):
        endpoint.script(stream(*[data[i : i + size] for i in range(0, len(data), size)]))
        assert await collect(model.stream(ASK)) == read(data)


async def test_a_reply_whose_end_is_the_end_of_the_connection_is_complete(endpoint: Endpoint, make_model: MakeModel) -> None:
    async def until_closed(line: Line) -> bool:
        await line.head(content_type="text/event-stream", connection="close")
        line.writer.write(sse(delta("a", finish="stop"), done=False))
        await line.writer.drain()
        return False

    endpoint.script(until_closed)
    assert await collect(make_model().stream(ASK)) == [TextDelta("a"), Finish("stop")]


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_compressed_reply_is_read(
    endpoint: Endpoint, make_model: MakeModel, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    endpoint.script(stream(compress(HELLO), content_encoding=encoding))
    assert await collect(make_model().stream(ASK)) == HELLO_EVENTS
    assert encoding in endpoint.requests[0].headers["accept-encoding"]


async def test_a_history_and_its_tools_arrive(endpoint: Endpoint, make_model: MakeModel) -> None:
    asked = request(system="be brief", tools=(ADD,), temperature=0.5)
    history = History([UserMessage("one"), UserMessage("two")])
    await collect(make_model().stream(request(*history.view(), system="be brief", tools=(ADD,), temperature=0.5)))
    await collect(make_model().stream(asked))
    sent = endpoint.requests[0].json
    assert [message["content"] for message in sent["messages"]] == ["be brief", "one", "two"]
    assert (sent["tools"][0]["function"]["name"], sent["temperature"]) == ("add", 0.5)


async def test_a_large_request_is_sent_whole(endpoint: Endpoint, make_model: MakeModel) -> None:
    image = Image(data="A" * 3_000_000)
    assert await collect(make_model().stream(request(UserMessage((image,))))) == HELLO_EVENTS
    assert len(endpoint.requests[0].body) > 3_000_000
    assert endpoint.requests[0].json["messages"][0]["content"][0]["type"] == "image_url"


@pytest.mark.parametrize(
    ("base_url", "name"),
    [("https://api.openai.com/v1", "max_completion_tokens"), ("http://127.0.0.1/v1", "max_tokens")],
)
def test_the_bound_of_a_reply_has_the_name_the_endpoint_knows(base_url: str, name: str) -> None:
    assert name.encode() in OpenAIChat("m", base_url=base_url)._body.write(request(max_tokens=9))


# -- ending early


async def test_closing_the_iterator_closes_the_connection_within_one_chunk(endpoint: Endpoint, make_model: MakeModel) -> None:
    sent: list[int] = []
    gone = asyncio.Event()

    async def endless(line: Line) -> bool:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked")
        closed = asyncio.ensure_future(line.gone())
        while not closed.done():
            await line.event(delta(str(len(sent))))
            sent.append(1)
            await asyncio.wait({closed, asyncio.ensure_future(more.wait())}, return_when=asyncio.FIRST_COMPLETED)
            more.clear()
        gone.set()
        return False

    more = asyncio.Event()
    endpoint.script(endless)
    async with asyncio.timeout(10), aclosing(make_model().stream(ASK)) as events:
        received = 0
        async for _ in events:
            received += 1
            if received == 3:
                break
            more.set()
    async with asyncio.timeout(10):
        await gone.wait()
    assert len(sent) == 3


async def test_cancelling_the_consumer_closes_the_connection(endpoint: Endpoint, make_model: MakeModel) -> None:
    waiting, gone = asyncio.Event(), asyncio.Event()

    async def one_then_nothing(line: Line) -> bool:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked")
        await line.event(delta("a"))
        waiting.set()
        await line.gone()
        gone.set()
        return False

    endpoint.script(one_then_nothing)
    task = asyncio.create_task(collect(make_model().stream(ASK)))
    async with asyncio.timeout(10):
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone.wait()


async def test_a_reply_is_finished_even_if_the_server_keeps_the_line_open(endpoint: Endpoint, make_model: MakeModel) -> None:
    async def lingering(line: Line) -> bool:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked")
        await line.chunk(HELLO)
        await line.gone()
        return False

    endpoint.script(lingering)
    async with asyncio.timeout(10):
        assert await collect(make_model().stream(ASK)) == HELLO_EVENTS


# -- observation


async def test_whoever_watches_the_wire_sees_request_response_and_chunks(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(stream(HELLO, set_cookie="a=b", authorization=f"Bearer {KEY}", x_echo=f"key={KEY}", x_request_id="r1"))
    seen: list[tuple[str, dict[str, Any]]] = []
    call = CallInfo(observe=lambda kind, fields: seen.append((kind, fields)))
    await collect(make_model().stream(request(UserMessage(f"my key is {KEY}")), call))
    assert [kind for kind, _ in seen] == ["request_sent", "response_received"] + ["provider_event"] * 3
    assert seen[0][1]["endpoint"] == endpoint.url + "/chat/completions"
    assert seen[0][1]["model"] == "m"
    assert seen[0][1]["body"]["messages"] == [{"role": "user", "content": "my key is ***"}]
    headers = {name.lower(): value for name, value in seen[1][1]["headers"].items()}
    assert seen[1][1]["status"] == 200
    assert (headers["x-request-id"], headers["x-echo"]) == ("r1", "key=***")
    assert not {"set-cookie", "authorization"} & set(headers)
    assert seen[2][1]["data"] == delta("Hello")
    assert KEY not in repr(seen)


async def test_every_attempt_is_seen(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer({"error": "busy"}, 503), stream(HELLO))
    seen: list[str] = []
    await collect(make_model().stream(ASK, CallInfo(observe=lambda kind, fields: seen.append(f"{kind} {fields.get('status')}"))))
    assert seen[:4] == ["request_sent None", "response_received 503", "request_sent None", "response_received 200"]


# -- connections


async def test_a_connection_is_used_again(endpoint: Endpoint, make_model: MakeModel) -> None:
    model = make_model()
    for _ in range(3):
        assert await collect(model.stream(ASK)) == HELLO_EVENTS
    assert endpoint.connections == 1


async def test_many_requests_at_once_have_a_connection_each(endpoint: Endpoint, make_model: MakeModel) -> None:
    arrived, all_there = [], asyncio.Event()

    async def together(line: Line) -> None:
        arrived.append(1)
        if len(arrived) == 200:
            all_there.set()
        await all_there.wait()
        await stream(HELLO)(line)

    endpoint.script(together)
    model = make_model()
    async with asyncio.timeout(30):
        replies = await asyncio.gather(*[collect(model.stream(ASK)) for _ in range(200)])
    assert all(reply == HELLO_EVENTS for reply in replies)


async def test_a_closed_model_can_be_used_again(endpoint: Endpoint, make_model: MakeModel) -> None:
    model = make_model()
    await collect(model.stream(ASK))
    await model.aclose()
    await model.aclose()
    assert await collect(model.stream(ASK)) == HELLO_EVENTS
    assert endpoint.connections == 2


async def test_a_connection_whose_body_ends_a_little_after_the_reply_is_used_again(
    endpoint: Endpoint, make_model: MakeModel
) -> None:
    finished = asyncio.Event()

    async def late_end(line: Line) -> None:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked")
        await line.chunk(HELLO)
        await finished.wait()
        await line.end()

    endpoint.script(late_end)
    model = make_model()
    for _ in range(3):
        finished.clear()
        assert await collect(model.stream(ASK), signal=finished) == HELLO_EVENTS
    assert endpoint.connections == 1


async def test_no_cookie_is_kept(endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{endpoint.port}")  # cookies of bare addresses would not be kept anyway
    endpoint.script(stream(HELLO, set_cookie="a=b"))
    model = make_model(base_url="http://model.invalid/v1")
    await collect(model.stream(ASK))
    await collect(model.stream(ASK))
    assert "cookie" not in endpoint.requests[1].headers


async def test_one_model_serves_loops_in_several_threads(endpoint: Endpoint, make_model: MakeModel) -> None:
    model = make_model()
    assert await collect(model.stream(ASK)) == HELLO_EVENTS
    assert await asyncio.to_thread(lambda: asyncio.run(collect(model.stream(ASK)))) == HELLO_EVENTS
    assert await collect(model.stream(ASK)) == HELLO_EVENTS
    assert endpoint.connections == 2


async def test_closing_leaves_alone_what_a_loop_in_another_thread_has_open(endpoint: Endpoint, make_model: MakeModel) -> None:
    model = make_model()
    loop, (used, closed) = asyncio.get_running_loop(), (asyncio.Event(), asyncio.Event())

    async def elsewhere() -> None:
        await collect(model.stream(ASK))
        session = await model._sessions.get()
        loop.call_soon_threadsafe(used.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(closed.wait(), loop))
        assert not session.closed

    async with asyncio.timeout(10):
        other = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
        await used.wait()
        await model.aclose()
        closed.set()
        await other


LEFT_OPEN = """
import asyncio, gc, sys
from beforehand.messages import Request, UserMessage
from beforehand.models.openai_chat import OpenAIChat

model = OpenAIChat("m", base_url=sys.argv[1], api_key="")

async def ask():
    async for event in model.stream(Request("", (UserMessage("hi"),))):
        pass

def run(how):
    if how == "run":
        asyncio.run(ask())
    else:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask())
        loop.close()

for how in sys.argv[2].split(","):
    run(how)
    gc.collect()
if sys.argv[3] == "drop":
    del model
gc.collect()
print("done")
"""


async def leave_open(endpoint: Endpoint, how: str, end: str) -> None:
    """Asks from a program of its own, in loops that end in these ways, and checks that it has nothing to complain about."""
    command = [sys.executable, "-W", "error", "-c", LEFT_OPEN, endpoint.url, how, end]
    environment = {**os.environ, "SSL_CERT_FILE": str(CERTIFICATE)}
    done = await asyncio.to_thread(
        lambda: subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize("how", ["run", "close", "run,run,close,run", "close,close"])
@pytest.mark.parametrize("end", ["drop", "exit"])
async def test_a_model_that_is_never_closed_leaves_no_warning(endpoint: Endpoint, how: str, end: str) -> None:
    await leave_open(endpoint, how, end)
    assert len(endpoint.requests) == how.count(",") + 1


@pytest.mark.parametrize("how", ["run", "close,run,close"])
async def test_a_secure_connection_that_is_never_closed_leaves_no_warning(secure_endpoint: Endpoint, how: str) -> None:
    await leave_open(secure_endpoint, how, "drop")
    assert len(secure_endpoint.requests) == how.count(",") + 1


def test_importing_and_making_a_model_does_not_load_the_client() -> None:
    code = """
import sys
from beforehand.models.openai_chat import OpenAIChat
OpenAIChat("m")
assert not {"aiohttp", "yarl", "multidict"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- proxies


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_a_proxy_of_the_environment_is_used(
    endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("http_proxy", f"{scheme}user:secret@127.0.0.1:{endpoint.port}")
    assert await collect(make_model(base_url="http://model.invalid/v1").stream(ASK)) == HELLO_EVENTS
    assert endpoint.requests[0].target == "http://model.invalid/v1/chat/completions"
    assert endpoint.requests[0].headers["proxy-authorization"].startswith("Basic ")


@pytest.mark.parametrize("no_proxy", ["127.0.0.1", "*", ""])
async def test_no_proxy_is_used_for_the_hosts_it_is_not_for(
    endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, no_proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", no_proxy or f"127.0.0.1:{endpoint.port}")
    assert await collect(make_model().stream(ASK)) == HELLO_EVENTS
    assert endpoint.requests[0].target == "/v1/chat/completions"


async def test_a_kind_of_proxy_that_is_not_supported_is_named(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://user:secret@127.0.0.1:1")
    with pytest.raises(NetworkError, match="socks5 proxy") as raised:
        await collect(make_model().stream(ASK))
    assert "secret" not in str(raised.value)


# -- construction


@pytest.mark.parametrize(
    ("base_url", "why"),
    [
        ("api.openai.com/v1", "needs a scheme and a host"),
        ("ftp://127.0.0.1/v1", "needs a scheme and a host"),
        ("http:///v1", "needs a scheme and a host"),
        ("http://a..b/v1", "needs a scheme and a host"),
        (f"http://{'a' * 64}/v1", "needs a scheme and a host"),
        ("http://127.0.0.1/v1?api-version=1", "no query"),
        ("http://127.0.0.1/v1#x", "no fragment"),
        ("http://127.0.0.1/v1?", "no query"),
        ("http://127.0.0.1/v 1", "no space"),
        ("http://127.0.0.1:many/v1", "not an address"),
        ("http://[::1/v1", "not an address"),
        (None, "must be text"),
        ("", "needs a scheme"),
    ],
)
def test_an_address_that_cannot_work_is_refused(base_url: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        OpenAIChat("m", base_url=base_url)


@pytest.mark.parametrize("userinfo", ["sk-secret", "user:sk-secret", ":sk-secret"])
def test_an_address_with_a_key_in_it_is_refused_without_showing_it(userinfo: str) -> None:
    with pytest.raises(ConfigError, match="api_key=") as raised:
        OpenAIChat("m", base_url=f"http://{userinfo}@127.0.0.1/v1")
    assert "secret" not in str(raised.value)


async def test_a_host_name_that_only_the_client_finds_wrong_is_named(make_model: MakeModel) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        await collect(make_model(base_url="http://\u00ad/v1").stream(ASK))


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"Content-Type": "text/plain"}},
        {"headers": {"x y": "z"}},
        {"headers": {"X-Key": "secret\n"}},
        {"headers": {"X-Key": "sécret"}},
        {"headers": {"X-Key": 5}},
    ],
)
def test_headers_that_cannot_be_sent_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        OpenAIChat("m", **wrong)
    assert next(iter(wrong["headers"])) in str(raised.value)
    assert "cret" not in str(raised.value)


def test_limits_and_names_that_make_no_sense_are_refused() -> None:
    for make in (
        lambda: OpenAIChat(""),
        lambda: OpenAIChat(None),  # type: ignore[arg-type]
        lambda: OpenAIChat("m", api_key=5),  # type: ignore[arg-type]
        lambda: Timeouts(first_byte=0),
        lambda: Timeouts(total=-1),
        lambda: Timeouts(connect=float("nan")),
        lambda: Retries(attempts=0),
        lambda: Retries(base=-1),
        lambda: Retries(max=-1),
    ):
        with pytest.raises(ConfigError):
            make()


async def test_headers_are_sent_with_every_request(endpoint: Endpoint, make_model: MakeModel) -> None:
    await collect(make_model(headers={"X-Team": "blue", "User-Agent": "mine"}).stream(ASK))
    assert endpoint.requests[0].headers["x-team"] == "blue"
    assert endpoint.requests[0].headers["user-agent"] == "mine"


def test_a_slash_at_the_end_of_the_address_does_no_harm() -> None:
    assert OpenAIChat("m", base_url="http://127.0.0.1/v1/").endpoint == "http://127.0.0.1/v1/chat/completions"


async def test_a_pickled_model_works_and_copies_are_the_model_itself(endpoint: Endpoint, make_model: MakeModel) -> None:
    model = make_model(headers={"X-Team": "blue"}, context_tokens=9, timeouts=Timeouts(connect=3), retries=Retries())
    assert copy.copy(model) is model
    assert copy.deepcopy(model) is model
    again = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    assert (again.name, again.endpoint, again.context_tokens, again.timeouts) == ("m", model.endpoint, 9, Timeouts(connect=3))
    assert outcome_of(await collect(again.stream(ASK))).text == "Hello, world"
    assert endpoint.requests[0].headers["x-team"] == "blue"
    await again.aclose()
