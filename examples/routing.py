"""A small model answers, until the work turns out to be hard: then a large one takes over.

    python examples/routing.py

Seam 3 is asked before each request. What it sets stays for the rest of the run; `once=True` would confine it to one request.
"""

from __future__ import annotations

import argparse

from beforehand import Agent, AssistantMessage, Hook, Model, Replace, ToolMessage, hook, tool
from beforehand.seams import RequestPlan
from beforehand.testing import ScriptedModel, text, tool_call


def hard_work_goes_to(large: str | Model) -> Hook:
    """A hook made by a function: `large` is a model, or a name such as "openai:NAME" on the agent's own endpoint."""

    @hook.prepare_request
    def route(plan: RequestPlan) -> Replace | None:
        failed = [m for m in plan.context.messages if isinstance(m, ToolMessage) and m.is_error]
        if failed and plan.model is not large:
            return Replace(model=large, thinking_level="high")
        return None

    return route


@tool
async def find_trains(to: str) -> str:
    """List the trains to a destination."""
    if to != "Mar del Plata":
        raise LookupError(f"there is no station {to!r}; write the name in full")
    return "Train 305, Friday 08:10"


def make_agent(small: str | Model, large: str | Model, base_url: str | None = None) -> Agent:
    return Agent(model=small, base_url=base_url, tools=[find_trains], hooks=[hard_work_goes_to(large)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="such as openai:NAME; without it scripted models answer, offline")
    parser.add_argument("--large", help="the model for hard work, on the same endpoint")
    parser.add_argument("--base-url")
    args = parser.parse_args()
    small: str | Model = args.model or ScriptedModel([tool_call("find_trains", {"to": "mdp"})], name="small")
    scripted = ScriptedModel([tool_call("find_trains", {"to": "Mar del Plata"}), text("Train 305.")], name="large")
    large: str | Model = args.large or args.model or scripted
    result = make_agent(small, large, args.base_url).run_sync("Which train goes to mdp?")
    for message in result.messages:
        if isinstance(message, AssistantMessage):
            print(f"{message.model}, thinking {message.thinking_level}: {message.text or 'asks for a tool'}")
        else:
            print(f"{message.role}: {message.text}")


if __name__ == "__main__":
    main()
