"""Plays a recorded case of the JSON hooks: its files in a folder, its script as the model, the outcome in its words."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from beforehand import Agent, AssistantMessage, Message, Tool, ToolMessage, hook, tool
from beforehand.messages import Thinking
from beforehand.rules import RuleSet, load_rules, rules_folder
from beforehand.testing import ScriptedModel, finish, text, thinking, tool_call

CASES: dict[str, dict[str, Any]] = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[1] / "conformance" / "jsonhooks" / "cases.json").read_text(encoding="utf-8"))
}

LEVELS = {"log": logging.INFO, "info": logging.INFO, "warn": logging.WARNING, "debug": logging.DEBUG}
ORIGINS = {"prompt": "user", "model": "model", "tool": "tool", "hook": "hook"}


class Error(Exception):
    """What a scripted tool throws, named as in the recordings."""


class Played(msgspec.Struct):
    """What came of a case, in the case's own words. `shown` is what listeners saw, one text a reply."""

    log: list[tuple[int, str]] = []
    requests: list[list[dict[str, Any]]] = []
    history: list[dict[str, Any]] = []
    resends: int = 0
    hooks: list[dict[str, Any]] = []
    tool_calls: dict[str, list[dict[str, Any]]] = {}
    stops: list[str] = []
    shown: list[str] = []
    messages: list[Message] = []


class Gathering(logging.Handler):
    """The lines that log actions wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))


def write(case: Mapping[str, Any], folder: Path) -> Path:
    """The case's hook files, in a folder."""
    folder.mkdir(exist_ok=True)
    for name, content in case["hook_files"].items():
        if isinstance(content, dict) and content.get("__dir"):
            (folder / name).mkdir()
        elif isinstance(content, dict) and "__raw" in content:
            (folder / name).write_text(content["__raw"], encoding="utf-8")
        else:
            (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
    return folder


def load(case: Mapping[str, Any], folder: Path) -> RuleSet:
    """The case's rules, found as an application finds them."""
    options = case.get("options", {})
    environ = {"LLM_CHAT_HOOKS_DIR": options["env_hooks_dir"]} if "env_hooks_dir" in options else {}
    found = rules_folder(write(case, folder), environ)
    assert found is not None
    return load_rules([found])


async def play(case: Mapping[str, Any], folder: Path) -> Played:
    """Load the case's files and say its user messages, one after the other."""
    rules = load(case, folder)
    played = Played()
    model = ScriptedModel(
        [_response(turn) for turn in case["script"]] + ([_response(case["script"][-1])] * 8 if case["script"] else [])
    )
    tools = [_tool(about, played.tool_calls.setdefault(about["name"], [])) for about in case.get("tools", [])]

    @hook.prepare_next_turn
    def count_resends(turn: Any) -> None:
        played.resends += turn.cause == "continue"

    def watch(event: Any) -> None:
        if event.type == "message_start" and event.origin == "model":
            played.shown.append("")
        elif event.type == "message_update" and event.kind == "text":
            played.shown[-1] += event.delta
        elif event.type == "message_retracted":
            played.shown[-1] = ""

    agent = Agent(model=model, tools=tools, hooks=[*rules.hooks, count_resends], listeners=[watch])
    log = Gathering()
    logger = logging.getLogger("beforehand.rules")
    logger.addHandler(log)
    logger.setLevel(logging.DEBUG)
    try:
        talk = agent.conversation()
        for said in case["user_messages"]:
            result = await talk.run(said)
            played.stops.append(result.stop_reason)
            if case.get("options", {}).get("between") == "chat.clear":
                talk = agent.conversation()
    finally:
        logger.removeHandler(log)
        logger.setLevel(logging.NOTSET)
    played.log = log.lines
    played.messages = list(talk.messages)
    played.history = [entry for message in talk.messages for entry in _stored(message)]
    played.requests = [[entry for message in request.messages for entry in _sent(message)] for request in model.requests]
    played.hooks = [{"label": about["label"], "target": about["target"]} for about in rules.describe()]
    return played


def _response(turn: Mapping[str, Any]) -> list[Any]:
    parts: list[Any] = []
    calls: dict[int, list[str]] = {}
    for chunk in turn["chunks"]:
        if isinstance(chunk, str):
            parts.append(text(chunk))
        elif chunk["type"] == "reasoning":
            parts.append(thinking(chunk["text"]))
        elif "id" in chunk:
            pieces = calls[chunk.get("index", 0)] = [chunk["arguments"]]
            parts.append((chunk, pieces))
        else:
            calls[chunk.get("index", 0)].append(chunk["arguments"])
    parts = [tool_call(p[0]["name"], id=p[0]["id"], chunks=p[1]) if isinstance(p, tuple) else p for p in parts]
    return [*parts, finish(turn.get("finish"))]


def _tool(about: Mapping[str, Any], received: list[dict[str, Any]]) -> Tool:
    async def body(url: str = "") -> str:
        received.append({"url": url})
        if "throws" in about:
            raise Error(about["throws"])
        return str(about["result"])

    return tool(name=about["name"], description="A scripted tool.")(body)


def _sent(message: Message) -> list[dict[str, Any]]:
    """A message as endpoints that take no reasoning get it."""
    entry: dict[str, Any] = {"role": message.role, "content": message.text}
    if isinstance(message, AssistantMessage):
        if all(isinstance(part, Thinking) for part in message.content):
            return []
        if message.tool_calls:
            entry["tool_calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
    if isinstance(message, ToolMessage):
        entry["tool_call_id"] = message.tool_call_id
    return [entry]


def _stored(message: Message) -> list[dict[str, Any]]:
    """A message as the recordings write histories: reasoning is an entry of its own."""
    origin = ORIGINS[message.origin]
    entries = []
    if isinstance(message, AssistantMessage):
        if message.thinking:
            entries.append({"role": "reasoning", "content": message.thinking, "origin": origin})
            if len(message.content) == 1:
                return entries
        entry = {"role": "assistant", "content": message.text, "origin": origin}
        if message.tool_calls:
            entry["tool_calls"] = [call.name for call in message.tool_calls]
        return [*entries, entry]
    entry = {"role": message.role, "content": message.text, "origin": origin}
    if isinstance(message, ToolMessage):
        entry["tool_call_id"] = message.tool_call_id
    return [entry]


PROJECTIONS: dict[str, Callable[[Played], Any]] = {
    "requests": lambda played: played.requests,
    "history": lambda played: played.history,
    "resends": lambda played: played.resends,
    "hooks": lambda played: played.hooks,
    "tool_calls": lambda played: played.tool_calls,
    "log": lambda played: played.log,
}
"""What of a case is compared. Its `stream` is what the model sent, which a case with a guard need not show."""


def expected(case: Mapping[str, Any]) -> dict[str, Any]:
    """The case's expectations, with levels as the standard library's."""
    found = {name: value for name, value in case["expect"].items() if name in PROJECTIONS}
    if "log" in found:
        found["log"] = [(LEVELS[level], line) for level, line in found["log"]]
    return found


def outcome(played: Played, names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: PROJECTIONS[name](played) for name in names}
