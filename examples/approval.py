"""First class needs a manager: refused by policy, asked while the run waits, or asked while the run is put aside.

    python examples/approval.py

All three decide at seam 12, the last moment at which the ticket is not booked yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from chosen import chosen

from beforehand import Agent, Approve, Ask, Block, Deny, Edit, Hook, Model, PendingApproval, Request, ToolMessage, hook, tool
from beforehand.seams import PendingCall
from beforehand.testing import FunctionModel, text, tool_call

Manager = Callable[[PendingApproval], Approve | Deny | Edit]

PROMPT = "Book me the most comfortable seat on train 305."
booked: list[str] = []
"""What the booking system holds: the effect that nobody takes back."""


@tool
async def book_ticket(train: int, seat_class: Literal["first", "tourist"]) -> str:
    """Book one seat on a train."""
    booked.append(seat_class)
    return f"Booked: train {train}, {seat_class} class."


@hook.before_tool_call(tools=["book_ticket"])
def first_class_is_refused(call: PendingCall) -> Block | None:
    if call.args["seat_class"] == "first":
        return Block("First class needs a manager's approval. Book tourist instead.")
    return None


@hook.before_tool_call(tools=["book_ticket"])
def first_class_needs_a_manager(call: PendingCall) -> Ask | None:
    if call.args["seat_class"] == "first":
        return Ask(f"May train {call.args['train']} be booked in first class?", options=("yes", "no", "tourist instead"))
    return None


def make_agent(model: str | Model, base_url: str | None, gate: Hook, manager: Manager | None = None) -> Agent:
    return Agent(model=model, base_url=base_url, tools=[book_ticket], hooks=[gate], on_ask=manager)


# --- three ways ----------------------------------------------------------------------------------


async def refused(model: str | Model, base_url: str | None = None) -> str:
    """Nobody is asked. The model reads the reason, and books what it may."""
    return (await make_agent(model, base_url, first_class_is_refused).run(PROMPT)).text


def says_yes(question: PendingApproval) -> Approve:
    print(f"  manager: {question.prompt} {dict(question.args)} -> yes")
    return Approve()


async def asked_at_once(model: str | Model, base_url: str | None = None, manager: Manager = says_yes) -> str:
    """`on_ask` answers while the run waits: a prompt, a chat message, a web page. It may be async."""
    return (await make_agent(model, base_url, first_class_needs_a_manager, manager).run(PROMPT)).text


async def asked_later(model: str | Model, base_url: str | None = None) -> str:
    """Without `on_ask` the run is suspended. It goes on, in this process, once the answers are there."""
    talk = make_agent(model, base_url, first_class_needs_a_manager).conversation()
    result = await talk.run(PROMPT)
    while result.pending:
        answers = {question.call_id: Edit({**question.args, "seat_class": "tourist"}) for question in result.pending}
        print(f"  waiting for {[question.prompt for question in result.pending]}: the manager changes the class")
        result = await talk.resume(answers=answers)
    return result.text


def wants_first() -> FunctionModel:
    """A model that tries first class, then does as it is told."""

    def reply(request: Request) -> object:
        last = request.messages[-1]
        if isinstance(last, ToolMessage) and not last.is_error:
            return text(last.text.split("\n")[0])
        return tool_call("book_ticket", {"train": 305, "seat_class": "tourist" if isinstance(last, ToolMessage) else "first"})

    return FunctionModel(reply)


def main() -> None:
    model, base_url = chosen(wants_first())
    for way in (refused, asked_at_once, asked_later):
        booked.clear()
        print(f"{way.__name__}: {asyncio.run(way(model, base_url))}")
        print(f"  in the booking system: {booked}")


if __name__ == "__main__":
    main()
