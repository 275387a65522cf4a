"""A question is put in one process, answered in a second, and the work goes on in a third. Nothing is done twice.

    python examples/another_process.py

What passes from one to the next is a file, the journal. Between them days may go by.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from beforehand import Agent, Ask, Request, ToolMessage, hook, tool
from beforehand.seams import PendingCall
from beforehand.testing import FunctionModel, text, tool_call

JOURNAL, BOOKINGS = Path("runs.db"), Path("bookings.txt")


@tool
def book_ticket(train: int, seat_class: str) -> str:
    """Book one seat on a train."""
    with BOOKINGS.open("a") as bookings:
        bookings.write(f"{train} {seat_class}\n")
    return f"Booked: train {train}, {seat_class} class."


@hook.before_tool_call(tools=["book_ticket"])
def first_class_needs_a_manager(call: PendingCall) -> Ask | None:
    if call.args["seat_class"] == "first":
        return Ask(f"May train {call.args['train']} be booked in first class?")
    return None


def reply(request: Request) -> object:
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return text(last.text)
    return tool_call("book_ticket", {"train": 305, "seat_class": "first"}, id="c1")


def make_agent() -> Agent:
    return Agent(model=FunctionModel(reply), tools=[book_ticket], hooks=[first_class_needs_a_manager], journal=JOURNAL)


def start() -> None:
    result = make_agent().run_sync("Book me the most comfortable seat on train 305.", run_id="trip")
    print(f"{result.stop_reason}: {result.pending[0].prompt} [{result.pending[0].call_id}]")


async def go_on() -> None:
    async with make_agent() as agent:
        result = await agent.resume("trip")
        print(f"{result.stop_reason}: {result.text}")


def story() -> None:
    """Each line is a process of its own."""
    steps = (
        (__file__, "start"),
        ("-m", "beforehand", "approvals"),
        ("-m", "beforehand", "approvals", "--answer", "trip", "c1", "approve"),
        (__file__, "go-on"),
        ("-m", "beforehand", "trace", "trip"),
    )
    here = Path(__file__).resolve()
    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            print(f"$ {' '.join(['python', *step]).replace(__file__, here.name)}", flush=True)
            command = [sys.executable, *[str(here) if word == __file__ else word for word in step]]
            subprocess.run(command, cwd=folder, check=True)
        print(f"In the booking system: {(Path(folder) / BOOKINGS).read_text().splitlines()}")


def main() -> None:
    if sys.argv[1:] == ["start"]:
        start()
    elif sys.argv[1:] == ["go-on"]:
        import asyncio

        asyncio.run(go_on())
    else:
        story()


if __name__ == "__main__":
    main()
