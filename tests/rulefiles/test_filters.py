"""Which events a rule is about: tools, arguments, roles, chunks, loops, patterns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beforehand import Hook, tool
from beforehand.decisions import Block
from beforehand.hooks.registry import HookSet
from beforehand.rules.match import ArgumentTest, Finder, same_json
from beforehand.rules.schema import ArgumentFilter
from beforehand.testing import text, thinking, tool_call
from rulefiles.kit import Said, rules_of, run

ARGS: dict[str, Any] = {
    "n": 5,
    "f": 2.5,
    "b": True,
    "s": "hello world",
    "none": None,
    "list": ["a", {"x": "deep secret"}, 7],
    "a/b": {"m~n": [10, 20]},
    "": "empty name",
}


@pytest.mark.parametrize(
    ("pointer", "condition", "fits"),
    [
        ("/n", {"equals": 5}, True),
        ("/n", {"equals": 5.0}, True),
        ("/n", {"equals": "5"}, False),
        ("/b", {"equals": True}, True),
        ("/b", {"equals": 1}, False),
        ("/none", {"equals": None}, True),
        ("/none", {"equals": 0}, False),
        ("/gone", {"equals": None}, False),
        ("/gone/deeper", {"regex": "a"}, False),
        ("/n/deeper", {"regex": "a"}, False),
        ("/n", {"min": 5}, True),
        ("/n", {"min": 5.01}, False),
        ("/n", {"max": 5}, True),
        ("/n", {"max": 4}, False),
        ("/f", {"min": 2, "max": 3}, True),
        ("/b", {"min": 0}, False),
        ("/s", {"min": 0}, False),
        ("/s", {"regex": "wor"}, True),
        ("/s", {"regex": "^wor"}, False),
        ("/s", {"regex": "hello", "equals": "hello world"}, True),
        ("/s", {"regex": "hello", "equals": "hello"}, False),
        ("/n", {"regex": "^5$"}, True),
        ("/b", {"regex": "^true$"}, True),
        ("/none", {"regex": "."}, False),
        ("/list", {"regex": "secret"}, True),
        ("/list", {"equals": ["a", {"x": "deep secret"}, 7.0]}, True),
        ("/list", {"equals": ["a", {"x": "deep secret"}]}, False),
        ("/list/1/x", {"regex": "^deep"}, True),
        ("/list/01", {"regex": "."}, False),
        ("/list/-", {"regex": "."}, False),
        ("/list/9", {"regex": "."}, False),
        ("/a~1b/m~0n/1", {"equals": 20}, True),
        ("/a~1b", {"equals": {"m~n": [10, 20]}}, True),
        ("/", {"equals": "empty name"}, True),
        ("", {"regex": "deep secret"}, True),
    ],
)
def test_a_value_at_a_pointer_is_what_it_must_be_or_not(pointer: str, condition: dict[str, Any], fits: bool) -> None:
    finder = Finder.of(condition["regex"]) if "regex" in condition else None
    assert bool(ArgumentTest(pointer, ArgumentFilter(**condition), finder).fits(ARGS)) is fits


def test_equality_of_json_never_takes_a_number_for_a_truth_value() -> None:
    assert same_json({"a": [1, None]}, {"a": [1.0, None]})
    assert not same_json({"a": [True]}, {"a": [1]})
    assert not same_json({"a": 1}, {"a": 1, "b": 2})


def recorder(name: str, ran: list[Any]) -> Any:
    @tool(name=name)
    async def body(path: Path = Path("x"), amount: int = 0) -> str:
        """Does nothing."""
        ran.append((name, str(path), amount))
        return "ok"

    return body


async def test_tools_are_named_or_globbed_and_the_others_run(tmp_path: Path) -> None:
    ran: list[Any] = []
    rules = rules_of(tmp_path, {"target": "tool", "event": "before", "tools": ["rm", "net_*"], "actions": [{"type": "block"}]})
    calls = [tool_call(name, {}) for name in ("rm", "net_get", "ls")]

    await run(rules, [calls, text("done")], tools=[recorder(name, ran) for name in ("rm", "net_get", "ls")])

    assert [name for name, _, _ in ran] == ["ls"]


@pytest.mark.parametrize("written", ["./.env", "sub/../.env", "link", "{cwd}/.env"])
async def test_argument_filters_see_the_canonical_value(written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / ".env").write_text("SECRET")
    os.symlink(tmp_path / ".env", tmp_path / "link")
    condition = {"/path": {"regex": r"/\.env$"}}
    rules = rules_of(
        tmp_path / "hooks",
        {"target": "tool", "event": "before", "args": condition, "actions": [{"type": "block", "reason": "no"}]},
    )

    reply = [tool_call("read", {"path": written.format(cwd=tmp_path)}), tool_call("read", {"path": "notes.txt"})]
    await run(rules, [reply, text("done")], tools=[recorder("read", ran)])

    assert ran == [("read", str(tmp_path / "notes.txt"), 0)]


async def test_all_conditions_on_arguments_must_hold(tmp_path: Path) -> None:
    ran: list[Any] = []
    condition = {"/amount": {"min": 100}, "/path": {"regex": "out"}}
    rules = rules_of(tmp_path, {"target": "tool", "event": "before", "args": condition, "actions": [{"type": "block"}]})
    calls = [tool_call("pay", {"amount": n, "path": p}) for n, p in ((100, "/out"), (99, "/out"), (100, "/in"))]

    await run(rules, [calls, text("done")], tools=[recorder("pay", ran)])

    assert [(path, amount) for _, path, amount in ran] == [("/out", 99), ("/in", 100)]


@pytest.mark.parametrize("arguments", [{"a": {"b": ["x", "my sk-12345 key"]}}, {"sk-12345": 1}, {"a": "sk-\u00e9 sk-12345"}])
async def test_the_regex_of_a_before_rule_looks_at_every_string_in_the_arguments(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    ran: list[Any] = []

    @tool
    async def post(body: dict[str, Any]) -> str:
        """Post something."""
        ran.append(body)
        return "ok"

    rule = {
        "target": "tool",
        "event": "before",
        "regex": r"sk-(\d+)",
        "actions": [{"type": "block", "reason": "found {{match}}, {{match_1}}"}],
    }
    _, model, _ = await run(rules_of(tmp_path, rule), [tool_call("post", {"body": arguments}), text("done")], tools=[post])

    assert ran == []
    assert model.requests[1].messages[-1].text == "found sk-12345, 12345"


async def test_a_secret_in_arguments_is_refused_before_the_effect_and_never_shown(tmp_path: Path) -> None:
    ran: list[Any] = []
    secret = "sk-" + "a1" * 12
    rules = rules_of(
        tmp_path,
        {
            "target": "tool",
            "event": "before",
            "regex": "sk-[a-z0-9]{20,}",
            "actions": [{"type": "block", "reason": "no keys in arguments"}],
        },
        {
            "target": "stream",
            "chunks": ["tool_call_delta"],
            "regex": "sk-[a-z0-9]{20,}",
            "actions": [{"type": "replace", "with": "[key]"}],
        },
    )
    pieces = ['{"path": "', *secret, '", "amount": 1}']

    only_gate, _, screen = await run(
        rules.hooks[1:], [tool_call("read", chunks=pieces), text("done")], tools=[recorder("read", ran)]
    )

    assert ran == []
    assert only_gate.messages[-2].text == "no keys in arguments"
    _, _, screen = await run(rules.hooks[:1], [tool_call("read", chunks=pieces), text("done")], tools=[recorder("read", ran)])
    assert screen.arguments == ['{"path": "[key]", "amount": 1}']
    assert secret not in str(ran)


@pytest.mark.parametrize(
    ("roles", "seen"),
    [
        (None, ["user:go", "reasoning:hm", "assistant:a", "tool:ok", "assistant:done"]),
        ([], ["user:go", "reasoning:hm", "assistant:a", "tool:ok", "assistant:done"]),
        (["user"], ["user:go"]),
        (["reasoning", "tool"], ["reasoning:hm", "tool:ok"]),
        (["assistant"], ["assistant:a", "assistant:done"]),
        (["system"], []),
    ],
)
async def test_chat_rules_are_about_the_roles_they_name(roles: list[str] | None, seen: list[str], tmp_path: Path) -> None:
    said, ran = Said(), []
    rule: dict[str, Any] = {"target": "chat", "actions": [{"type": "log", "message": "{{role}}:{{content}}"}]}
    if roles is not None:
        rule["roles"] = roles
    reply = [thinking("hm"), text("a"), tool_call("read", {})]

    await run(rules_of(tmp_path, rule, voice=said), [reply, text("done")], tools=[recorder("read", ran)])

    assert said.texts == seen


@pytest.mark.parametrize(
    ("chunks", "seen"),
    [
        (
            None,
            ["reasoning:h", "reasoning:m", "content:a", "tool_call_delta:{}", "finish:tool_calls", "content:done", "finish:stop"],
        ),
        (["finish"], ["finish:tool_calls", "finish:stop"]),
        (["reasoning"], ["reasoning:h", "reasoning:m"]),
        (["tool_call_delta", "finish"], ["tool_call_delta:{}", "finish:tool_calls", "finish:stop"]),
    ],
)
async def test_stream_rules_are_about_the_chunks_they_name(chunks: list[str] | None, seen: list[str], tmp_path: Path) -> None:
    said = Said()
    rule: dict[str, Any] = {"target": "stream", "actions": [{"type": "log", "message": "{{type}}:{{text}}{{finishReason}}"}]}
    if chunks is not None:
        rule["chunks"] = chunks
    reply = [thinking("", chunks=["h", "m"]), text("a"), tool_call("read", {})]

    await run(rules_of(tmp_path, rule, voice=said), [reply, text("done")], tools=[recorder("read", [])])

    assert [line.replace("{{text}}", "").replace("{{finishReason}}", "") for line in said.texts] == seen


def test_a_rule_applies_in_the_loops_it_names(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path, {"target": "chat", "loops": ["audit_*"]}, {"target": "stream", "loops": ["main"]}, {"target": "run"}
    )
    at = {loop: [hook.seam for hook in _asked(rules.hooks, loop)] for loop in ("main", "audit_1")}
    assert at == {"main": ["before_run", "on_chunk", "on_message"], "audit_1": ["before_run", "on_message"]}


def _asked(hooks: tuple[Hook, ...], loop: str) -> list[Hook]:
    chosen = HookSet(hooks, loop)
    return [hook for seam in ("before_run", "on_chunk", "on_message") for hook in getattr(chosen, seam)]


def test_order_timeout_and_failure_policy_are_those_of_the_hook(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path, {"target": "tool", "event": "before", "label": "x", "order": 5, "timeoutMs": 250, "onError": "abort"}
    )
    (hook,) = rules.hooks
    assert (hook.name, hook.order, hook.timeout, hook.on_error, hook.where) == (
        "x",
        5,
        0.25,
        "abort",
        f"{tmp_path / 'rules.json'}:2",
    )


async def test_rules_of_a_lower_order_come_first_whatever_their_place(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(
        tmp_path,
        {"target": "chat", "roles": ["user"], "label": "second", "actions": [{"type": "log", "message": "{{label}}"}]},
        {
            "target": "chat",
            "roles": ["user"],
            "label": "first",
            "order": -1,
            "actions": [{"type": "log", "message": "{{label}}"}],
        },
        voice=said,
    )
    await run(rules, [text("ok")])
    assert said.texts == ["first", "second"]


@pytest.mark.parametrize(("pattern", "fires"), [("^$", True), ("^.$", False), ("a*", True)])
async def test_a_pattern_may_be_about_an_empty_message(pattern: str, fires: bool, tmp_path: Path) -> None:
    said = Said()
    rule = {"target": "chat", "roles": ["tool"], "regex": pattern, "actions": [{"type": "log", "message": "empty"}]}

    @tool
    async def quiet() -> None:
        """Says nothing."""

    await run(rules_of(tmp_path, rule, voice=said), [tool_call("quiet"), text("ok")], tools=[quiet])
    assert said.texts == (["empty"] if fires else [])


async def test_a_request_rule_sees_the_whole_history_not_only_the_newest_message(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path, {"target": "request", "regex": "bob@example\\.com", "actions": [{"type": "block", "reason": "no addresses"}]}
    )
    from beforehand import Agent, AssistantMessage, Text, UserMessage
    from beforehand.testing import ScriptedModel

    model = ScriptedModel([text("hi")])
    history = [UserMessage("I am bob@example.com"), AssistantMessage((Text("hello"),))]
    result = await Agent(model=model, hooks=rules.hooks).conversation(history).run("harmless", check=False)
    assert model.requests == []
    assert (result.stop_reason, result.reason) == ("blocked", "no addresses")


def test_loading_rules_does_not_import_yaml_or_a_client_until_they_are_needed(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"target": "chat", "roles": ["user"]}')
    script = (
        "import sys; from beforehand.rules import load_rules; load_rules([sys.argv[1]]); "
        "print(sorted({'yaml', 're2', 'aiohttp', 'watchfiles'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_hook_of_a_rule_can_be_called_by_itself(tmp_path: Path) -> None:
    (hook,) = rules_of(
        tmp_path, {"target": "tool", "event": "before", "actions": [{"type": "block", "reason": "no {{name}}"}]}
    ).hooks

    class Call:
        name, args = "rm", {}

    assert hook(Call()) == [Block("no rm")]


def test_a_rule_has_the_time_limit_it_names_and_else_five_seconds(tmp_path: Path) -> None:
    condition = {"target": "tool", "event": "before", "regex": "a", "args": {"/x": {"regex": "b"}}, "actions": [{"type": "log"}]}
    for rule, seconds in ((condition, 5.0), ({**condition, "timeoutMs": 20000}, 20.0)):
        (loaded,) = rules_of(tmp_path, rule).rules
        assert loaded.finder is not None
        assert [finder.patience for finder in (loaded.finder, loaded.tests[0].finder) if finder] == [seconds, seconds]
