"""The train story of the demonstration: two tools, two hooks, a manager, and a model that follows a script.

The company has two rules: no first-class ticket without a manager's approval, and a passenger's identity number never
reaches the model. A prompt can ask for both; only the loop can make sure of them.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from ..decisions import Ask, Block, Replace
from ..hooks.hook import hook
from ..tools import tool

MODEL = "scripted"
PROMPT = "Book me the most comfortable seat to Mar del Plata on Friday."
INSTRUCTIONS = "You are the company's travel assistant. Look trains up before you book. Book one seat at most."
REASON = "Blocked by policy: first class needs a manager’s approval. Book tourist instead."  # noqa: RUF001 - a real apostrophe
DNI = re.compile(r"DNI [\d.]+")

TIMETABLE = "Train 305 to Mar del Plata, Friday 08:10: first class 48,000, tourist 27,000."
PASSENGER = "Ana Ruiz, DNI 30.123.456"
"""Made up. What the tools know of the passenger, and the model must not."""


# --- what the model may use ----------------------------------------------------------------------


@tool
async def find_trains(to: str, date: str) -> str:
    """List the trains to a destination on a date, with the fare for each class."""
    return f"{TIMETABLE} Asked for by {PASSENGER}"


@tool
async def book_ticket(train: int, seat_class: Literal["first", "tourist"]) -> str:
    """Book one seat on a train for the employee who is asking."""
    coach, seat = (1, "4A") if seat_class == "first" else (6, "31C")
    return f"Booked: train {train}, {seat_class} class, coach {coach}, seat {seat}, for {PASSENGER}"


# --- the hooks -----------------------------------------------------------------------------------


@hook.before_tool_call(tools=["book_ticket"])
def first_class_is_refused(call: Any) -> Block | None:
    """Before the tool runs: policy says no."""
    return Block(REASON) if call.args["seat_class"] == "first" else None


@hook.before_tool_call(tools=["book_ticket"])
def first_class_needs_a_manager(call: Any) -> Ask | None:
    """Before the tool runs: policy knows whom to ask."""
    if call.args["seat_class"] == "first":
        return Ask(f"May train {call.args['train']} be booked in first class?")
    return None


@hook.after_tool_call
def identity_numbers_stay_here(outcome: Any) -> Replace | None:
    """After the tool ran, before the model reads what it said."""
    stamped = DNI.sub("DNI ***", outcome.text)
    return Replace(content=stamped) if stamped != outcome.text else None


# --- a model that follows the script -------------------------------------------------------------


def reply_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The scripted model: looks at the last messages of the wire request and answers in the wire's own form."""
    last = messages[-1]
    if last["role"] != "tool":
        said = "I will look at the trains."
        return _asks(said, f"call_{len(messages)}", "find_trains", '{"to": "Mar del Plata", "date": "Friday"}')
    if last["content"].startswith("Booked: "):
        return {"role": "assistant", "content": f"You are on your way: {last['content'].removeprefix('Booked: ')}"}
    refused = "Book tourist instead" in last["content"]
    said, seat = ("Then tourist class.", "tourist") if refused else ("First class is the most comfortable.", "first")
    return _asks(said, f"call_{len(messages)}", "book_ticket", f'{{"train": 305, "seat_class": "{seat}"}}')


def _asks(said: str, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": said, "tool_calls": [call]}
