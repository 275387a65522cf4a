"""An agent loop with five hooks, from scratch: the standard library and nothing else.

    python examples/from_scratch.py [--base-url http://localhost:11434/v1 --model NAME]

It fits on a page, and it works. `with_beforehand.py` beside it does the same with this package. What this page leaves out is
what the package is for: several hooks at one place and who of them wins, hooks that fail or hang, values that a hook changes
behind the others' backs, calls side by side, streaming, aborts, retries, wrong arguments, sub-agents, and a record of it all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import urllib.request
from collections.abc import Callable
from typing import Any

from train_endpoint import endpoint

PROMPT = "Book me the most comfortable seat to Mar del Plata."
Messages = list[dict[str, Any]]


# --- the loop ------------------------------------------------------------------------------------


class Hooks:
    """The five places where the loop lets your code in. Override what you need."""

    def before_turn(self, number: int) -> bool:
        """False ends the run."""
        return True

    def before_provider_call(self, messages: Messages) -> Messages:
        """The messages to send."""
        return messages

    def before_tool_call(self, name: str, args: dict[str, Any]) -> str | None:
        """A reason refuses the call; the model reads it."""
        return None

    def after_tool_call(self, name: str, output: str) -> str:
        """What the model reads of a result."""
        return output

    def after_turn(self, number: int, messages: Messages) -> None:
        """Save progress."""


def ask(base_url: str, model: str, messages: Messages, tools: list[dict[str, Any]]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    body = json.dumps({"model": model, "messages": messages, "tools": tools}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        message: dict[str, Any] = json.load(response)["choices"][0]["message"]
    return message


def run(
    prompt: str, base_url: str, model: str, tools: dict[str, Callable[..., str]], schemas: list[dict[str, Any]], hooks: Hooks
) -> str:
    messages: Messages = [{"role": "user", "content": prompt}]
    number = 0
    while True:
        number += 1
        if not hooks.before_turn(number):
            return "(stopped)"
        reply = ask(base_url, model, hooks.before_provider_call(messages), schemas)
        messages.append(reply)
        for call in reply.get("tool_calls", []):
            name, args = call["function"]["name"], json.loads(call["function"]["arguments"])
            output = hooks.before_tool_call(name, args)
            if output is None:
                try:
                    output = hooks.after_tool_call(name, tools[name](**args))
                except Exception as error:
                    output = f"{type(error).__name__}: {error}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        hooks.after_turn(number, messages)
        if not reply.get("tool_calls"):
            return reply["content"] or ""


# --- the company's rules -------------------------------------------------------------------------

booked: list[str] = []
saved: list[str] = []


class Rules(Hooks):
    def before_turn(self, number: int) -> bool:
        return number <= 10

    def before_provider_call(self, messages: Messages) -> Messages:
        return [{"role": "system", "content": "You book trains.\n\nPlatform 4 is closed today."}, *messages]

    def before_tool_call(self, name: str, args: dict[str, Any]) -> str | None:
        if name == "book_ticket" and args["seat_class"] == "first":
            return "First class needs a manager's approval. Book tourist instead."
        return None

    def after_tool_call(self, name: str, output: str) -> str:
        return re.sub(r"DNI [\d.]+", "DNI ***", output)

    def after_turn(self, number: int, messages: Messages) -> None:
        saved[:] = [message["role"] for message in messages]


def find_trains(to: str) -> str:
    return f"Train 305 to {to}: first or tourist class."


def book_ticket(train: int, seat_class: str) -> str:
    booked.append(seat_class)
    return f"Booked: train {train}, {seat_class} class, for Ana Ruiz, DNI 30.123.456"


def schema(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


SCHEMAS = [
    schema("find_trains", "List the trains to a destination.", to={"type": "string"}),
    schema(
        "book_ticket", "Book one seat on a train.", train={"type": "integer"},
        seat_class={"type": "string", "enum": ["first", "tourist"]},
    ),
]  # fmt: skip


def book(base_url: str, model: str) -> str:
    return run(PROMPT, base_url, model, {"find_trains": find_trains, "book_ticket": book_ticket}, SCHEMAS, Rules())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", help="an OpenAI-compatible endpoint; without it one is started on this machine")
    parser.add_argument("--model", default="scripted")
    args = parser.parse_args()
    if args.base_url:
        print(book(args.base_url, args.model))
    else:
        with endpoint() as here:
            print(book(here.base_url, args.model))
    print("booked:", booked, "saved:", saved)


if __name__ == "__main__":
    main()
