"""Ways to start a run and colours of callables: field cases must hold for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from beforehand import Agent, Conversation, RunError, RunResult

Enter = Callable[..., Awaitable[RunResult]]
Colour = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


async def say(talk: Conversation, prompt: str, *, streamed: bool) -> RunResult:
    """Run a prompt in a conversation, with or without reading it as a stream. An error is in the result."""
    if not streamed:
        return await talk.run(prompt, check=False)
    with suppress(RunError):
        async for _ in talk.stream(prompt):
            pass
    assert talk.result is not None
    return talk.result


async def by_run(agent: Agent, prompt: str = "go") -> RunResult:
    return await agent.run(prompt, check=False)


async def by_conversation(agent: Agent, prompt: str = "go") -> RunResult:
    return await say(agent.conversation(), prompt, streamed=False)


async def by_stream(agent: Agent, prompt: str = "go") -> RunResult:
    return await say(agent.conversation(), prompt, streamed=True)


ENTRIES: dict[str, Enter] = {"run": by_run, "conversation": by_conversation, "stream": by_stream}


def sync(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return fn


def asynchronous(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def call(context: Any) -> Any:
        return fn(context)

    return call


class AsyncObject:
    """A callable object whose `__call__` is async: easily taken for a sync hook, and then never awaited."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    async def __call__(self, context: Any) -> Any:
        return self.fn(context)


COLOURS: dict[str, Colour] = {"sync": sync, "async": asynchronous, "async_object": AsyncObject}
