"""A log for whoever has to answer for it: what was decided, by which hook, on what, and what could still be taken back.

    python examples/audit.py [--log FILE]

Listeners observe; they cannot change a run, and a listener that fails does not disturb it. Every decision is a record
already, so the log only writes them down: one line of JSON each.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Literal, TextIO

import msgspec

from beforehand import Agent, Block, Event, Hook, Replace, Tool, hook, tool
from beforehand.events import AgentEnd, DecisionMade, ToolExecutionEnd
from beforehand.seams import CallOutcome, PendingCall
from beforehand.testing import ScriptedModel, text, tool_call


class Audit:
    """A listener that writes what matters as JSON lines."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def __call__(self, event: Event) -> None:
        if isinstance(event, DecisionMade):
            self.write("decision", msgspec.to_builtins(event.record))
        elif isinstance(event, ToolExecutionEnd):
            self.write("call", {"run_id": event.run_id, "call_id": event.call_id, "name": event.name, "outcome": event.outcome})
        elif isinstance(event, AgentEnd):
            self.write("end", {"run_id": event.run_id, "stop_reason": event.stop_reason})

    def write(self, kind: str, fields: dict[str, Any]) -> None:
        self.out.write(msgspec.json.encode({"kind": kind, **fields}).decode() + "\n")


@tool
async def book_ticket(train: int, seat_class: Literal["first", "tourist"]) -> str:
    """Book one seat on a train."""
    return f"Booked: train {train}, {seat_class} class, for identity number 30.123.456"


@hook.before_tool_call(tools=["book_ticket"])
def first_class_is_refused(call: PendingCall) -> Block | None:
    return Block("Book tourist instead.") if call.args["seat_class"] == "first" else None


@hook.after_tool_call
def identity_numbers_stay_here(outcome: CallOutcome) -> Replace:
    return Replace(content=outcome.text.replace("30.123.456", "***"))


def make_agent(model: ScriptedModel, audit: Audit) -> Agent:
    tools: list[Tool] = [book_ticket]
    hooks: list[Hook] = [first_class_is_refused, identity_numbers_stay_here]
    return Agent(model=model, tools=tools, hooks=hooks, listeners=[audit])


def script() -> ScriptedModel:
    return ScriptedModel([
        tool_call("book_ticket", {"train": 305, "seat_class": "first"}),
        tool_call("book_ticket", {"train": 305, "seat_class": "tourist"}),
        text("Booked in tourist class."),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", help="the file to append to; without it the lines are printed")
    args = parser.parse_args()
    if args.log is None:
        make_agent(script(), Audit(sys.stdout)).run_sync("The most comfortable seat, please.")
        return
    with open(args.log, "a", encoding="utf-8") as out:
        make_agent(script(), Audit(out)).run_sync("The most comfortable seat, please.")


if __name__ == "__main__":
    main()
