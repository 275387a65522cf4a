"""Retrieval: passages that fit the question travel with the request, and never enter the history.

    python examples/rag.py

Seam 4 says what this one request carries. So passages do not pile up turn after turn, and the next question gets its own.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter

from chosen import chosen

from beforehand import Agent, Hook, Model, Replace, Request, UserMessage, hook
from beforehand.seams import MessagesView
from beforehand.testing import FunctionModel, text

HANDBOOK = [
    "Dogs travel free of charge if they fit under the seat. Larger dogs need a ticket in tourist class.",
    "A ticket can be changed without a fee until the evening before the journey.",
    "First class has a quiet coach. It is the coach behind the engine.",
    "Bicycles travel on regional trains only, in the last coach.",
    "If a train is more than an hour late, half the fare is paid back on request.",
]


class Index:
    """A small text index: passages ranked by the words they share with a question, rare words counting more."""

    def __init__(self, passages: list[str]) -> None:
        self.passages = [(passage, self.words(passage)) for passage in passages]
        spread = Counter(word for _, words in self.passages for word in words)
        self.weight = {word: math.log(len(passages) / n) for word, n in spread.items()}

    @staticmethod
    def words(sentence: str) -> set[str]:
        return {word.rstrip("s") for word in re.findall(r"\w+", sentence.lower())}

    def best(self, question: str, most: int = 2) -> list[str]:
        asked = self.words(question)
        scored = [(sum(self.weight[word] for word in words & asked), passage) for passage, words in self.passages]
        return [passage for score, passage in sorted(scored, reverse=True)[:most] if score > 1]


def from_the(index: Index) -> Hook:
    @hook.transform_context
    def passages(view: MessagesView) -> Replace | None:
        position = max((i for i, m in enumerate(view.messages) if isinstance(m, UserMessage)), default=None)
        if position is None:
            return None
        found = index.best(view.messages[position].text)
        if not found:
            return None
        note = UserMessage("From the handbook:\n" + "\n".join(f"- {passage}" for passage in found))
        return Replace(messages=[*view.messages[:position], note, *view.messages[position:]])

    return passages


def make_agent(model: str | Model, base_url: str | None = None, passages: list[str] = HANDBOOK) -> Agent:
    instructions = "Answer from the handbook. Say so if it holds no answer."
    return Agent(model=model, base_url=base_url, instructions=instructions, hooks=[from_the(Index(passages))])


def reader() -> FunctionModel:
    """A model that reads out what it was given."""

    def reply(request: Request) -> object:
        notes = [m.text for m in request.messages if m.text.startswith("From the handbook")]
        return text(notes[-1].split("\n- ")[1] if notes else "The handbook does not say.")

    return FunctionModel(reply)


async def demonstrate(model: str | Model, base_url: str | None = None) -> None:
    async with make_agent(model, base_url) as agent:
        talk = agent.conversation()
        for question in ("May my dog come along?", "And a bicycle?", "Who built the station?"):
            print(f"{question} -> {(await talk.run(question)).text}")
        print(f"The history holds {len(talk.messages)} messages: {[m.role for m in talk.messages]}")


def main() -> None:
    asyncio.run(demonstrate(*chosen(reader())))


if __name__ == "__main__":
    main()
