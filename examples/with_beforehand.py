"""The agent of `from_scratch.py`, with this package: the same five rules, the same endpoint, the same outcome.

    python examples/with_beforehand.py [--base-url http://localhost:11434/v1 --model openai:NAME]
"""

from __future__ import annotations

import argparse
import re
from typing import Literal

import msgspec
from train_endpoint import endpoint

from beforehand import Agent, Block, End, Replace, hook, tool
from beforehand.seams import CallOutcome, FinishedTurn, PendingCall, ProviderCall, TurnStart

PROMPT = "Book me the most comfortable seat to Mar del Plata."
booked: list[str] = []
saved: list[str] = []


@hook.before_turn
def ten_turns(turn: TurnStart) -> End | None:
    return End("ten turns are enough") if turn.number > 10 else None


@hook.before_provider_call
def notice(call: ProviderCall) -> Replace:
    system = f"{call.request.system}\n\nPlatform 4 is closed today."
    return Replace(request=msgspec.structs.replace(call.request, system=system))


@hook.before_tool_call(tools=["book_ticket"])
def first_class_needs_a_manager(call: PendingCall) -> Block | None:
    if call.args["seat_class"] == "first":
        return Block("First class needs a manager's approval. Book tourist instead.")
    return None


@hook.after_tool_call
def identity_numbers_stay_here(outcome: CallOutcome) -> Replace:
    return Replace(content=re.sub(r"DNI [\d.]+", "DNI ***", outcome.text))


@hook.after_turn
def save(turn: FinishedTurn) -> None:
    saved[:] = [message.role for message in turn.new_messages]


@tool
async def find_trains(to: str) -> str:
    """List the trains to a destination."""
    return f"Train 305 to {to}: first or tourist class."


@tool
async def book_ticket(train: int, seat_class: Literal["first", "tourist"]) -> str:
    """Book one seat on a train."""
    booked.append(seat_class)
    return f"Booked: train {train}, {seat_class} class, for Ana Ruiz, DNI 30.123.456"


def book(base_url: str, model: str) -> str:
    agent = Agent(
        model=model, base_url=base_url, instructions="You book trains.", tools=[find_trains, book_ticket],
        hooks=[ten_turns, notice, first_class_needs_a_manager, identity_numbers_stay_here, save],
    )  # fmt: skip
    return agent.run_sync(PROMPT).text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", help="an OpenAI-compatible endpoint; without it one is started on this machine")
    parser.add_argument("--model", default="openai:scripted")
    args = parser.parse_args()
    if args.base_url:
        print(book(args.base_url, args.model))
    else:
        with endpoint() as here:
            print(book(here.base_url, args.model))
    print("booked:", booked, "saved:", saved)


if __name__ == "__main__":
    main()
