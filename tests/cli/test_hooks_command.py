"""`beforehand hooks` lists what is registered as one agent would ask it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RULES = '''
from beforehand import Block, hook

@hook.after_tool_call(on_error="open", timeout=0.5)
def redact(outcome): ...

@hook.before_tool_call(tools=["book_*"], order=5)
def late(call): ...

@hook.before_tool_call(tools=["book_*", "pay"], loops=["main"])
def early(call): ...

@hook.before_run(final=True, on_error="abort")
def budget(start): ...

@hook.before_run(order=9)
def shaper(start): ...

@hook.on_message(hold=True)
def calm(incoming): ...
'''


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(RULES)
    return "rules.py"


def test_hooks_are_listed_in_the_order_they_are_asked_with_their_place(run_here: Callable[..., Any], rules: str) -> None:
    printed = run_here("hooks", "--hooks", rules)
    assert printed.code == 0
    assert [line.split("  ") for line in printed.out.splitlines()] == [
        ["1 before_run", "shaper", "9", "all", "closed: lets nothing pass", "rules.py:16"],
        ["1 before_run", "budget", "0, final", "all", "ABORT: ends the run", "rules.py:13"],
        ["10 on_message", "calm", "0, holds text", "all", "closed: lets nothing pass", "rules.py:19"],
        ["12 before_tool_call", "early", "0", "tools book_*, pay; loops main", "closed: lets nothing pass", "rules.py:10"],
        ["12 before_tool_call", "late", "5", "tools book_*", "closed: lets nothing pass", "rules.py:7"],
        ["13 after_tool_call", "redact", "0", "all", "OPEN: lets it pass, recorded; timeout 0.5 s", "rules.py:4"],
    ]


def test_a_policy_other_than_closed_stands_out(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from beforehand.cli.listing import list_hooks

    list_hooks((Path(rules),), (), Console(force_terminal=True, width=200, color_system="standard"))
    out = capsys.readouterr().out
    assert "\x1b[1;31mOPEN: lets it pass" in out
    assert "\x1b[1;31mABORT: ends the run" in out
    assert "\x1b[1;31mclosed" not in out


def test_without_files_it_says_what_to_do(run_here: Callable[..., Any]) -> None:
    assert run_here("hooks").out == "No hooks: name the files that hold them, as in `beforehand hooks --hooks FILE.py`.\n"


def test_a_sub_agent_that_the_hooks_do_not_govern_is_listed(run_here: Callable[..., Any], rules: str, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "from beforehand import Agent\n"
        "from beforehand.testing import ScriptedModel\n"
        "agent = Agent(model=ScriptedModel([]))\n"
        "governed = agent.as_tool('governed', 'Asks another agent.')\n"
        "free = agent.as_tool('free', 'Asks another agent.', inherit=False)\n"
    )
    out = run_here("hooks", "--hooks", rules, "--tools", "tools.py").out
    assert "NOT INHERITED: sub-agent free (" in out
    assert "governed (" not in out


OBJECT = """
from beforehand import hook

@hook.before_turn
def plain(turn): ...

class Policy:
    @hook.before_tool_call(tools=["pay"])
    def method(self, call): ...
"""


def test_the_methods_of_an_object_in_a_file_are_hooks(run_here: Callable[..., Any], rules: str) -> None:
    Path(rules).write_text(f"{OBJECT}\npolicy = Policy()\n")
    printed = run_here("hooks", "--hooks", rules)
    assert [line.split("  ")[1] for line in printed.out.splitlines()] == ["plain", "method"]


def test_a_class_whose_hooks_nobody_would_ask_is_refused(run_here: Callable[..., Any], rules: str) -> None:
    Path(rules).write_text(OBJECT)
    printed = run_here("hooks", "--hooks", rules)
    assert printed.code == 2
    assert printed.err == "error: rules.py: no object of Policy is there, so its hooks would never be asked: make one\n"


def test_a_hook_for_a_tool_that_is_none_of_those_given_is_named(
    run_here: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text('from beforehand import tool\n@tool\ndef pay() -> str:\n    """Pay."""\n    return ""\n')
    text = "from beforehand import hook\n@hook.before_tool_call(tools=['{}', 'p*'])\ndef cap(call): ...\n"
    (tmp_path / "h.py").write_text(text.format("pya"))
    said = "NO SUCH TOOL: cap (h.py:2) is for pya, which is none of the tools given: did you mean pay?"
    assert run_here("hooks", "--hooks", "h.py", "--tools", "tools.py").out.splitlines()[-1] == said
    (tmp_path / "glob.py").write_text(text.format("book_*"))
    told = run_here("hooks", "--hooks", "glob.py", "--tools", "tools.py").out.splitlines()[-1]
    assert told == "NO SUCH TOOL: cap (glob.py:2) is for book_*, which is none of the tools given"
    assert "NO SUCH TOOL" not in run_here("hooks", "--hooks", "h.py").out
    (tmp_path / "right.py").write_text(text.format("pay"))
    assert "NO SUCH TOOL" not in run_here("hooks", "--hooks", "right.py", "--tools", "tools.py").out


def test_a_rule_for_a_tool_that_is_none_of_those_given_is_named_once_also_among_many(
    run_here: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text('from beforehand import tool\n@tool\ndef pay() -> str:\n    """Pay."""\n    return ""\n')
    block = {"type": "block", "reason": "No."}
    rules = [
        {"target": "tool", "event": "before", "label": "both\x07", "tools": ["book_*"],  # at 11 and at 12
         "actions": [{"type": "replace", "argument": "at", "with": "x"}, block]},
        *[{"target": "tool", "event": "before", "label": f"p{n}", "tools": ["p*"], "actions": [block]} for n in range(20)],
        {"target": "tool", "event": "before", "label": "cap\x1b[2J\nit", "tools": ["pya"], "actions": [block]},
        {"target": "tool", "event": "before", "label": "all", "actions": [block]},
        {"target": "request", "label": "hide", "actions": [{"type": "hide-tools", "tools": ["pay", "pax"]}]},
    ]  # fmt: skip
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    told = run_here("hooks", "--hooks", "rules.json", "--tools", "tools.py")
    assert [line for line in told.out.splitlines() if "NO SUCH" in line] == [
        "NO SUCH TOOL: both\\x07 (rules.json:1) is for book_*, which is none of the tools given",
        "NO SUCH TOOL: cap\\x1b[2J it (rules.json:1) is for pya, which is none of the tools given: did you mean pay?",
        "NO SUCH TOOL: hide (rules.json:1) is for pax, which is none of the tools given: did you mean pay?",
    ]
    assert not {"\x1b", "\x07"} & set(told.out)
