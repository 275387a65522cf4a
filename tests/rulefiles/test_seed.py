"""The seed's own page: its minimal example as a program, and every definition on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beforehand.rules import load_rules
from beforehand.testing import text, tool_call
from rulefiles.kit import Said, rules_of, run

MINIMAL = {"target": "stream", "chunks": ["content"], "actions": [{"type": "log", "message": "[stream] {{text}}"}]}

PROGRAM = """
from beforehand import Agent
from beforehand.testing import ScriptedModel, text

model = ScriptedModel([text("", chunks=["Hello", " World", "!"])])
print(Agent(model=model).run_sync("hi").text)
"""


def program(folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "hooks").mkdir()
    (folder / "hooks" / "watch-content.json").write_text(json.dumps(MINIMAL))
    return subprocess.run(
        [sys.executable, "-c", before + PROGRAM],
        cwd=folder,
        env={"LLM_CHAT_HOOKS_DIR": "./hooks", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_minimal_example_prints_as_its_page_says(tmp_path: Path) -> None:
    done = program(tmp_path)
    assert done.stderr == "[stream] Hello\n[stream]  World\n[stream] !\n"
    assert done.stdout == "Hello World!\n"


def test_where_logging_is_configured_the_application_decides_what_is_printed(tmp_path: Path) -> None:
    done = program(tmp_path, "import logging; logging.basicConfig(level='INFO', format='%(levelname)s %(name)s %(message)s')\n")
    assert done.stderr.splitlines()[0] == "INFO beforehand.rules [stream] Hello"
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    "before",
    [
        "import logging; logging.basicConfig(level='WARNING')\n",
        "import logging; logging.getLogger('beforehand.rules').setLevel('WARNING')\n",
        "import logging; logging.disable(logging.INFO)\n",
        "import logging; logging.getLogger('beforehand').addHandler(logging.NullHandler())\n",
    ],
)
def test_a_level_or_a_handler_of_the_application_is_respected(before: str, tmp_path: Path) -> None:
    assert program(tmp_path, before).stderr == ""


PAGE: dict[str, Any] = {
    "watch-content": MINIMAL,
    "warn-on-error": {
        "label": "warn-on-error",
        "target": "chat",
        "roles": ["assistant"],
        "regex": "error|Error|warning",
        "actions": [{"type": "warn", "message": "[{{role}}] {{content}}"}],
    },
    "watch-thinking": {
        "label": "watch-thinking",
        "target": "stream",
        "chunks": ["reasoning"],
        "actions": [{"type": "log", "message": "🧠 {{text}}"}],
    },
    "track-fetch": {
        "label": "track-fetch",
        "target": "tool",
        "tools": ["fetch_page"],
        "event": "after",
        "actions": [{"type": "log", "message": "fetch_page returned {{result}}"}],
    },
    "alert-failure": {
        "label": "alert-failure",
        "target": "tool",
        "event": "error",
        "actions": [{"type": "warn", "message": "Tool {{name}} failed: {{error}}"}],
    },
    "stop-on-secret": {
        "label": "stop-on-secret",
        "target": "stream",
        "chunks": ["content"],
        "regex": "api_key|password|secret",
        "actions": [{"type": "interrupt"}],
    },
    "retry-on-error": {
        "label": "retry-on-error",
        "target": "stream",
        "chunks": ["content"],
        "regex": "error|Error",
        "actions": [{"type": "interrupt", "resend": True}],
    },
    "correct-and-retry": {
        "label": "correct-and-retry",
        "target": "chat",
        "roles": ["assistant"],
        "regex": "I don't know|I'm not sure",
        "actions": [
            {"type": "queue-message", "role": "user", "message": "Please try to answer the question."},
            {"type": "interrupt", "resend": True},
        ],
    },
    "queue-and-resend": {
        "label": "queue-and-resend",
        "target": "chat",
        "roles": ["assistant"],
        "regex": "I don't know",
        "actions": [{"type": "queue-message", "role": "user", "message": "Try again."}, {"type": "queue-resend"}],
    },
    "full-cycle": {
        "label": "full-cycle",
        "target": "chat",
        "roles": ["assistant"],
        "regex": "I don't know",
        "actions": [
            {"type": "log", "message": "Triggered retry for: {{content}}"},
            {"type": "queue-message", "role": "user", "message": "Please try again."},
            {"type": "interrupt", "resend": True},
        ],
    },
    "several": [
        {"label": "log-stream", "target": "stream", "actions": [{"type": "log", "message": "{{text}}"}]},
        {
            "label": "log-errors",
            "target": "chat",
            "roles": ["assistant"],
            "regex": "error",
            "actions": [{"type": "warn", "message": "{{content}}"}],
        },
    ],
}


def test_every_definition_of_the_page_loads_verbatim(tmp_path: Path) -> None:
    for name, definition in PAGE.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(definition, ensure_ascii=False), encoding="utf-8")
    rules = load_rules([tmp_path])
    assert len(rules.describe()) == 12
    assert rules.warnings == ()


async def test_the_full_cycle_logs_queues_interrupts_and_asks_again_in_that_order(tmp_path: Path) -> None:
    said = Said()
    result, model, screen = await run(rules_of(tmp_path, PAGE["full-cycle"], voice=said), [text("I don't know"), text("42")], "q")
    assert said.texts == ["Triggered retry for: I don't know"]
    assert [message.text for message in model.requests[1].messages] == ["q", "Please try again."]
    assert [message.text for message in result.messages] == ["q", "Please try again.", "42"]
    assert screen.retracted == [len("I don't know")]
    assert screen.text == "42"


async def test_retry_on_error_ends_at_the_limit_with_a_stop_reason_that_says_so(tmp_path: Path) -> None:
    result, model, _ = await run(rules_of(tmp_path, PAGE["retry-on-error"]), [text("error")] * 9)
    assert result.stop_reason == "resend_limit"
    assert result.reason == "3 resends were made, the most a run may have (Limits.max_resends)"
    assert {len(request.messages) for request in model.requests} == {1}


async def test_the_definitions_work_together(tmp_path: Path) -> None:
    from beforehand import tool

    @tool
    async def fetch_page() -> str:
        """Fetch."""
        return "PAGE"

    said = Said()
    definitions = [PAGE["track-fetch"], PAGE["alert-failure"], PAGE["warn-on-error"], PAGE["stop-on-secret"]]
    replies = [[tool_call("fetch_page"), tool_call("gone")], text("an Error here")]
    await run(rules_of(tmp_path, *definitions, voice=said), replies, tools=[fetch_page])
    assert said.lines == [
        ("log", "fetch_page returned PAGE"),
        ("warn", "Tool gone failed: Tool gone not found."),
        ("warn", "[assistant] an Error here"),
    ]
