"""An identity number that nobody is shown, nothing stores and no request carries.

    python examples/redaction.py

One rule in three places, because the number can come in three ways: in a prompt (seam 10), in a tool's result (13) and in the
model's own words (9), which arrive in pieces. Each time it is taken out before the step that cannot be taken back.
"""

from __future__ import annotations

import asyncio
import re

import msgspec
from chosen import chosen

from beforehand import Agent, Conversation, Model, Replace, UserMessage, hook, tool
from beforehand.events import MessageUpdate
from beforehand.seams import CallOutcome, Chunk, IncomingMessage
from beforehand.testing import ScriptedModel, text, tool_call

NUMBER = re.compile(r"\d{2}\.\d{3}\.\d{3}")
LENGTH = 10


def stamped(content: str) -> str:
    return NUMBER.sub("***", content)


@hook.on_message
def out_of_prompts(incoming: IncomingMessage) -> Replace | None:
    """Before the history holds what a person typed."""
    message = incoming.message
    if isinstance(message, UserMessage) and NUMBER.search(message.text):
        return Replace(message=msgspec.structs.replace(message, content=stamped(message.text)))
    return None


@hook.after_tool_call
def out_of_results(outcome: CallOutcome) -> Replace | None:
    """Before the model reads what a tool said. `details` may hold the number too, so they go."""
    return Replace(content=stamped(outcome.text), details=None) if NUMBER.search(outcome.text) else None


@hook.on_chunk
def out_of_the_stream(chunk: Chunk) -> Replace:
    """Before anybody sees what the model writes. What could be the beginning of a number waits for the next piece."""
    return Replace(text=stamped(chunk.pending), hold=LENGTH - 1)


@tool
async def find_passenger(name: str) -> str:
    """Look a passenger up."""
    return f"{name}, identity number 30.123.456"


def make_agent(model: str | Model, base_url: str | None = None) -> Agent:
    hooks = [out_of_prompts, out_of_results, out_of_the_stream]
    return Agent(model=model, base_url=base_url, tools=[find_passenger], hooks=hooks)


async def read(talk: Conversation, prompt: str) -> str:
    """Everything that a reader of the stream is shown."""
    shown = ""
    async for event in talk.stream(prompt):
        if isinstance(event, MessageUpdate) and event.kind == "text":
            shown += event.delta
    return shown


async def demonstrate(model: str | Model, base_url: str | None = None) -> None:
    async with make_agent(model, base_url) as agent:
        talk = agent.conversation()
        print("shown: ", await read(talk, "My number is 30.123.456. Is Ana Ruiz on the list?"))
        for message in talk.messages:
            print("stored:", message.role, "|", message.text)


def leaky() -> ScriptedModel:
    """A model that makes a number up, in awkward pieces."""
    return ScriptedModel([
        tool_call("find_passenger", {"name": "Ana Ruiz"}),
        text("", chunks=["Ana is on the list", ": her number is 30.", "987", ".65", "4, seat 31C."]),
    ])  # fmt: skip


def main() -> None:
    asyncio.run(demonstrate(*chosen(leaky())))


if __name__ == "__main__":
    main()
