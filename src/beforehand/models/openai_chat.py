"""Models behind an OpenAI-compatible chat completions endpoint, spoken to directly over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ..errors import ConfigError
from ..frozen import EMPTY_DICT
from ..messages import Request
from .base import NO_CALL_INFO, CallInfo, Model, ModelEvent, Observe
from .http import (
    Failure,
    HiddenText,
    Retries,
    Secrets,
    Sessions,
    Timeouts,
    checked_base_url,
    checked_headers,
    checked_key,
    is_secret_header,
    key_problem,
    retry_after,
    secret_values,
    transport_errors,
    transport_failure,
)
from .openai_errors import Place
from .openai_reply import RefusalReader, ReplyReader, StreamReader, WholeReader
from .openai_wire import BodyWriter

if TYPE_CHECKING:
    import aiohttp
    from multidict import CIMultiDict

__all__ = ["OpenAIChat", "Retries", "Timeouts"]

KEY_VARIABLE = "OPENAI_API_KEY"
_LARGE_BODY = 1_000_000  # bytes; above, aiohttp wants a file-like body, which it sends in pieces
_DEFAULT_TIMEOUTS = Timeouts()
_DEFAULT_RETRIES = Retries()
_UNSEEN_HEADERS = ("set-cookie", "authorization", "proxy-authorization")
_SETTLE = 0.1  # seconds a finished reply may take to end its body, so that the connection can be used again


class OpenAIChat(Model):
    """A model that answers `POST {base_url}/chat/completions`.

    `name` is what the endpoint calls the model. The key of a request is the one a hook gave, else `api_key`, else the
    environment variable OPENAI_API_KEY at the moment of the request; `""` means none, and then no header is sent.
    `headers` are sent with every request. With `stream=False` the reply comes in one piece, as the same deltas.

    `Options.max_tokens` is sent as `max_completion_tokens` to api.openai.com and as `max_tokens` elsewhere, which is
    the name other servers know. Proxies come from the environment and are read when a connection pool is opened.

    Raises `ConfigError` for arguments that can never work. A pickled model has no key and no connections: it reads the
    environment where it is unpickled.
    """

    provider = "openai"

    def __init__(
        self,
        name: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        stream: bool = True,
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
        retries: Retries = _DEFAULT_RETRIES,
        headers: Mapping[str, str] = EMPTY_DICT,
        context_tokens: int | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError("a model needs a name, as its endpoint calls it")
        if not isinstance(base_url, str) or not isinstance(api_key, str | None):
            raise ConfigError("base_url and api_key must be text")
        if problem := key_problem(api_key or ""):
            raise ConfigError(problem)
        self.name = name
        self.base_url = checked_base_url(base_url)
        self.endpoint = self.base_url + "/chat/completions"
        self.context_tokens = context_tokens
        self.streams = stream
        self.timeouts, self.retries = timeouts, retries
        self._api_key = None if api_key is None else HiddenText(api_key)
        self._headers = checked_headers(headers)
        self._own_authorization = any(header.lower() == "authorization" for header in self._headers)
        official = urlsplit(self.endpoint).hostname == "api.openai.com"
        limit_field = "max_completion_tokens" if official else "max_tokens"
        self._body = BodyWriter(name, streaming=stream, limit_field=limit_field)
        self._sessions = Sessions(timeouts, self.endpoint)
        self._prepared: tuple[HiddenText, CIMultiDict[str], Place] | None = None

    async def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`. Tries again as `retries` says, with the same bytes, and never after something was yielded."""
        headers, place = self._prepare(self._key(call))
        body = self._body.write(request)
        attempt = 1
        while True:
            started = yielded = False
            response = reader = None
            try:
                response = await self._post(body, headers, place, call.observe)
                reader = self._reader(response, place, call.observe)
                while not reader.done:
                    data = await response.content.readany()
                    if not started:
                        started = True
                        self._expect_more(response)
                    for event in reader.feed(data) if data else reader.close():
                        yielded = True
                        yield event
                failure = reader.failure
                if failure is None:
                    await _settle(response)
                    return
            except transport_errors() as error:
                failure = self._transport_failure(error, place, reader)
            finally:
                if response is not None:
                    response.close()
            wait = self.retries.wait(attempt, failure.error) if failure.again and not yielded else None
            if wait is None:
                # Not inside the except clause: a chained transport error would carry the request's headers along.
                raise failure.error
            attempt += 1
            await self.retries.sleep(wait)

    async def aclose(self) -> None:
        """Close the connections of this event loop, and those of loops running in other threads."""
        await self._sessions.aclose()

    def _key(self, call: CallInfo) -> HiddenText:
        if call.key is not None:
            return checked_key(call.key, "a get_api_key hook")
        if self._api_key is not None:
            return self._api_key
        if self._own_authorization:
            return HiddenText("")
        return checked_key(os.environ.get(KEY_VARIABLE, ""), f"the environment variable {KEY_VARIABLE}")

    def _prepare(self, key: HiddenText) -> tuple[CIMultiDict[str], Place]:
        """The headers for `key`, and what error messages need to know. Kept until another key comes."""
        prepared = self._prepared
        if prepared is None or prepared[0] != key:
            from multidict import CIMultiDict

            headers = CIMultiDict({"User-Agent": "beforehand", **self._headers})
            headers["Content-Type"] = "application/json"
            headers["Accept"] = "text/event-stream" if self.streams else "application/json"
            if key:
                headers["Authorization"] = HiddenText(f"Bearer {key}")
            place = Place(self.endpoint, self.name, Secrets([key, *secret_values(self._headers)]))
            prepared = self._prepared = (key, headers, place)
        return prepared[1], prepared[2]

    async def _post(
        self, body: bytes, headers: CIMultiDict[str], place: Place, observe: Observe | None
    ) -> aiohttp.ClientResponse:
        session = await self._sessions.get()
        if observe is not None:
            shown = place.secrets.hide_in(msgspec.json.decode(body))
            observe("request_sent", {"endpoint": self.endpoint, "model": self.name, "body": shown})
        data = body if len(body) < _LARGE_BODY else BytesIO(body)
        response = await session.post(self._sessions.url, data=data, headers=headers, allow_redirects=False)
        if observe is not None:
            kept = {k: v for k, v in response.headers.items() if k.lower() not in _UNSEEN_HEADERS}
            observe("response_received", {"status": response.status, "headers": place.secrets.hide_in(kept)})
        return response

    def _reader(self, response: aiohttp.ClientResponse, place: Place, observe: Observe | None) -> ReplyReader:
        status, headers = response.status, response.headers
        if not 200 <= status < 300:
            return RefusalReader(place, status, headers, retry_after(headers, self.retries.clock()))
        watch = None
        if observe is not None:

            def watch(data: Any) -> None:
                observe("provider_event", {"data": place.secrets.hide_in(data)})

        content_type = headers.get("Content-Type", "")
        if "event-stream" in content_type.lower() or (self.streams and "json" not in content_type.lower()):
            return StreamReader(place, status, content_type, watch)
        return WholeReader(place, status, content_type, watch)  # some servers answer a request for a stream so

    def _expect_more(self, response: aiohttp.ClientResponse) -> None:
        """The first byte is there: from now on silence is measured against the other limit."""
        connection = response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = self.timeouts.between_chunks
            connection.protocol.start_timeout()

    def _transport_failure(self, error: Exception, place: Place, reader: ReplyReader | None) -> Failure:
        if isinstance(reader, RefusalReader):  # the status said it all, even if its explanation was cut
            reader.close()
            if reader.failure is not None:
                return reader.failure
        return transport_failure(error, self.endpoint, self.timeouts, place.secrets)

    def __getstate__(self) -> dict[str, Any]:
        """Constructor arguments without anything secret."""
        return {
            "name": self.name,
            "base_url": self.base_url,
            "stream": self.streams,
            "timeouts": self.timeouts,
            "retries": self.retries,
            "headers": {name: value for name, value in self._headers.items() if not is_secret_header(name)},
            "context_tokens": self.context_tokens,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __copy__(self) -> OpenAIChat:
        return self  # a model is shared; a copy by way of the pickled state would lose its key

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenAIChat:
        return self


async def _settle(response: aiohttp.ClientResponse) -> None:
    """Read to the end of a complete reply's body, which lets the connection be used again, if that takes no time."""
    if response.closed:
        return
    try:
        async with asyncio.timeout(_SETTLE):
            while await response.content.readany():
                pass
    except transport_errors():  # a TimeoutError is one
        pass
