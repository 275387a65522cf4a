"""Where a key comes from, and all the places where it must not be seen."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from beforehand.errors import AuthenticationError, ConfigError, ModelError
from beforehand.models.base import NO_CALL_INFO, CallInfo
from beforehand.models.http import HiddenText, Retries, Secrets
from beforehand.models.openai_chat import OpenAIChat
from wire.endpoint import ASK, KEY, Endpoint, answer, collect, delta, hang_up, sse, stream

MakeModel = Callable[..., OpenAIChat]
ODD_KEY = "sk/Test+0123456789=/"


async def sent_key(endpoint: Endpoint, model: OpenAIChat, call: CallInfo = NO_CALL_INFO) -> str | None:
    await collect(model.stream(ASK, call))
    return endpoint.requests[-1].headers.get("authorization")


async def test_a_hook_goes_before_the_constructor_and_that_before_the_environment(
    endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    assert await sent_key(endpoint, make_model(api_key="given"), CallInfo("from-hook")) == "Bearer from-hook"
    assert await sent_key(endpoint, make_model(api_key="given")) == "Bearer given"
    assert await sent_key(endpoint, make_model(api_key=None)) == "Bearer from-environment"


async def test_the_environment_is_read_at_each_request(
    endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(api_key=None)
    assert await sent_key(endpoint, model) is None
    for key in ("one", "two"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert await sent_key(endpoint, model) == f"Bearer {key}"


async def test_an_empty_key_means_none(endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    assert await sent_key(endpoint, make_model(api_key="")) is None
    assert await sent_key(endpoint, make_model(api_key="given"), CallInfo("")) is None


async def test_an_own_authorization_header_stands_unless_a_key_is_given(
    endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    own = {"authorization": "Basic abcd"}
    assert await sent_key(endpoint, make_model(api_key=None, headers=own)) == "Basic abcd"
    assert await sent_key(endpoint, make_model(api_key=None, headers=own), CallInfo("from-hook")) == "Bearer from-hook"


async def test_no_key_is_taken_from_a_file_nobody_named(
    endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert await sent_key(endpoint, make_model(api_key=None)) is None


@pytest.mark.parametrize("key", ["sk-abc\n", "sk\r\nX-Evil: 1", "sk abc", "sk-äöü", "sk-\x00", "\ufeffsk-abc", "sk-\u200b"])
async def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(
    endpoint: Endpoint, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    with pytest.raises(ConfigError, match="at position") as at_once:
        OpenAIChat("m", api_key=key)
    with pytest.raises(AuthenticationError, match="get_api_key hook") as from_hook:
        await collect(make_model().stream(ASK, CallInfo(key)))
    messages = [str(at_once.value), str(from_hook.value)]
    if "\x00" not in key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(AuthenticationError, match="OPENAI_API_KEY") as from_environment:
            await collect(make_model(api_key=None).stream(ASK))
        messages.append(str(from_environment.value))
    assert not any("sk" in message or "Evil" in message for message in messages)
    assert endpoint.requests == []


def echoes(key: str) -> list[Any]:
    """Answers that give a key back in one way or another."""
    escaped = json.dumps({"error": {"message": f"bad key {key}"}}).replace("/", "\\/").encode()
    return [
        answer({"error": {"message": f"Incorrect API key provided: {key}.", "code": key}}, 401),
        answer({"error": {"message": f"{'x' * 190}{key}"}}, 400),
        answer(f"<html>Bearer {key}</html>".encode(), 502, content_type="text/html"),
        answer(f"key={quote(key, safe='')}".encode(), 400),
        answer(escaped, 400),
        answer({"message": {"headers": {"Authorization": f"Bearer {key}"}}}, 500),
        answer(f"{{ {key}".encode()),
        answer(escaped[:-1]),
        answer(key.encode(), content_type=f"text/html; {key}"),
        answer(b"", 302, location=f"http://{key}.invalid/"),
        stream(sse({"error": {"message": key, "code": f"x_{key}"}})),
        stream(sse({"error": key})),
        stream(f"event: error\ndata: {key}\n\n".encode()),
        stream(sse(f"{{{key}")),
        stream(sse(delta(finish="error"), delta(key))),
        hang_up,
    ]


@pytest.mark.parametrize("key", [KEY, ODD_KEY])
@pytest.mark.parametrize("number", range(len(echoes(KEY))))
async def test_a_key_that_the_endpoint_gives_back_is_hidden(
    endpoint: Endpoint, make_model: MakeModel, caplog: pytest.LogCaptureFixture, key: str, number: int
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint.script(echoes(key)[number])
    seen: list[Any] = []
    call = CallInfo(key, observe=lambda kind, fields: seen.append((kind, fields)))
    with pytest.raises(ModelError) as raised:
        await collect(make_model(api_key=None).stream(ASK, call))
    error = raised.value
    shown = [str(error), repr(error), repr(call), "".join(traceback.format_exception(error)), caplog.text, repr(seen)]
    for text in shown:
        for form in (key, quote(key, safe=""), key.replace("/", "\\/")):
            assert form.lower() not in text.lower()
            assert form[:12].lower() not in text.lower()  # nor its beginning, where a message was cut


async def test_a_mask_made_by_the_endpoint_is_left_readable(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer({"error": {"message": "Incorrect API key provided: sk-Te***CdEf."}}, 401))
    with pytest.raises(AuthenticationError, match=r"sk-Te\*\*\*CdEf"):
        await collect(make_model().stream(ASK))


async def test_credentials_in_other_headers_are_hidden_too(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer({"error": {"message": "bad key azure-secret or basic-secret for team blue-team"}}, 401))
    headers = {"api-key": "azure-secret", "X-Auth-Token": "Basic basic-secret", "X-Team": "blue-team"}
    with pytest.raises(AuthenticationError, match=r"bad key \*\*\* or \*\*\* for team blue-team"):
        await collect(make_model(headers=headers).stream(ASK))


async def test_a_placeholder_for_a_key_garbles_no_message(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer({"error": {"message": "an example"}}, 400))
    with pytest.raises(ModelError, match="an example"):
        await collect(make_model(api_key="x").stream(ASK))


async def test_the_locals_of_a_traceback_do_not_show_the_key(endpoint: Endpoint, make_model: MakeModel) -> None:
    endpoint.script(answer(b"", 400))
    with pytest.raises(ModelError) as raised:
        await collect(make_model().stream(ASK))
    frames = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    text = "".join(frames.format())
    assert "headers = " in text
    assert KEY not in text


async def test_a_pickled_model_has_no_key(endpoint: Endpoint, make_model: MakeModel) -> None:
    model = make_model(headers={"api-key": "azure-secret", "X-Team": "blue"}, retries=Retries())
    await collect(model.stream(ASK))
    data = pickle.dumps(model)
    assert KEY.encode() not in data
    assert b"azure-secret" not in data
    again = pickle.loads(data)  # noqa: S301 - our own bytes
    assert await sent_key(endpoint, again) is None
    await again.aclose()


def test_no_repr_shows_a_key() -> None:
    model = OpenAIChat("m", api_key=KEY)
    assert KEY not in repr(model)
    assert KEY not in repr(vars(model))
    assert KEY not in repr(Secrets([KEY]))
    assert repr(HiddenText(KEY)) == "'***'"
    assert HiddenText(KEY) == KEY


def test_hiding_goes_as_deep_as_a_value_does() -> None:
    secrets = Secrets([KEY])
    assert secrets.hide_in({KEY: [f"a{KEY}b", 1, None, {"x": KEY}]}) == {"***": ["a***b", 1, None, {"x": "***"}]}
    deep: Any = KEY
    for _ in range(100_000):
        deep = [deep]
    assert KEY not in str(secrets.hide_in(deep))


async def test_concurrent_requests_keep_their_own_keys(endpoint: Endpoint, make_model: MakeModel) -> None:
    model = make_model()
    await asyncio.gather(*[collect(model.stream(ASK, CallInfo(f"key-{n}"))) for n in range(20)])
    assert sorted(r.headers["authorization"] for r in endpoint.requests) == sorted(f"Bearer key-{n}" for n in range(20))
