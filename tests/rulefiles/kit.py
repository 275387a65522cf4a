"""What the tests of rule files share: rules written down, loaded, and an agent run with them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from beforehand import Agent, RunResult
from beforehand.rules import RuleSet, load_rules
from beforehand.testing import ScriptedModel

Rule = dict[str, Any]


def write_rules(folder: Path, *rules: Rule, name: str = "rules.json") -> Path:
    """A rule file with these rules, each on a line of its own, from the second on."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text("[\n" + ",\n".join([json.dumps(rule, ensure_ascii=False) for rule in rules]) + "\n]", encoding="utf-8")
    return file


class Said:
    """A voice that remembers: what log actions would have written, as (action, text)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, action: str, text: str, where: str) -> None:
        self.lines.append((action, text))

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.lines]


def rules_of(folder: Path, *rules: Rule, voice: Any = None) -> RuleSet:
    """These rules, loaded from a file."""
    return load_rules([write_rules(folder, *rules)], voice or Said())


class Screen:
    """A reader of the event stream: what is on the screen, and everything that was ever shown."""

    def __init__(self) -> None:
        self.text = ""
        self.ever: list[str] = []
        self.retracted: list[int] = []
        self.arguments: list[str] = []

    def __call__(self, event: Any) -> None:
        if event.type == "message_update" and event.kind == "tool_call":
            self.arguments.append(event.delta)
        elif event.type == "message_update":
            self.text += event.delta
            self.ever.append(event.delta)
        elif event.type == "message_retracted":
            self.retracted.append(event.chars)
            self.text = ""
        elif event.type == "message_start" and event.origin == "model":
            self.text = ""


async def run(
    rules: RuleSet | Iterable[Any], responses: Sequence[Any], prompt: str = "go", *, tools: Iterable[Any] = (), **more: Any
) -> tuple[RunResult, ScriptedModel, Screen]:
    """Run an agent with these rules on a scripted model."""
    model = ScriptedModel(responses)
    screen = Screen()
    hooks = rules.hooks if isinstance(rules, RuleSet) else tuple(rules)
    check = more.pop("check", True)
    agent = Agent(model=model, tools=tools, hooks=hooks, listeners=[screen], **more)
    return await agent.run(prompt, check=check), model, screen


LOGGER = logging.getLogger("beforehand.rules")
