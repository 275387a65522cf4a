"""Fixtures of the wire tests: an endpoint on this machine, and models that ask it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from beforehand.models.http import Retries
from beforehand.models.openai_chat import OpenAIChat
from wire.endpoint import CERTIFICATE, KEY, Endpoint, Naps


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    """A scripted endpoint. What still answers at the end is cancelled."""
    endpoint = Endpoint("http" if tls is None else "https")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await endpoint.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    endpoint.port = server.sockets[0].getsockname()[1]
    yield endpoint
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """An endpoint on this machine."""
    async with serving() as endpoint:
        yield endpoint


@pytest.fixture
async def secure_endpoint() -> AsyncIterator[Endpoint]:
    """The same over TLS, with a certificate that nobody trusts who was not told to."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    async with serving(context) as endpoint:
        yield endpoint


@pytest.fixture
def naps() -> Naps:
    """What the models of `make_model` slept."""
    return Naps()


@pytest.fixture
async def make_model(endpoint: Endpoint, naps: Naps) -> AsyncIterator[Callable[..., OpenAIChat]]:
    """Makes models that ask the scripted endpoint, wait in no time, and are closed when the test ends."""
    made: list[OpenAIChat] = []

    def make(**options: Any) -> OpenAIChat:
        options = {"base_url": endpoint.url, "api_key": KEY, "retries": Retries(sleep=naps, random=lambda: 1.0), **options}
        made.append(OpenAIChat("m", **options))
        return made[-1]

    yield make
    for model in made:
        await model.aclose()
