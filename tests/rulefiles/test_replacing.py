"""What `replace` changes, in values that are more than one piece of text, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Image, Text, ToolResult, UserMessage, tool
from beforehand.testing import ScriptedModel, text, thinking, tool_call
from rulefiles.kit import Rule, Said, rules_of, run

COVER = {"type": "replace", "with": "***"}
PICTURE = Image(data="aGk=")


def cover(**more: Any) -> Rule:
    return {"regex": "secret", "actions": [COVER], **more}


async def test_a_message_in_parts_is_covered_across_them_and_its_images_stay(tmp_path: Path) -> None:
    model = ScriptedModel([text("ok")])
    agent = Agent(model=model, hooks=rules_of(tmp_path, cover(target="chat", roles=["user"])).hooks)
    result = await agent.run(UserMessage((Text("my sec"), PICTURE, Text("ret is out"))))
    assert result.messages[0].content == (Text("my *** is out"), PICTURE)


async def test_parts_without_a_match_stay_as_they_are(tmp_path: Path) -> None:
    parts = (Text("my "), PICTURE, Text("thing"))
    agent = Agent(model=ScriptedModel([text("ok")]), hooks=rules_of(tmp_path, cover(target="chat")).hooks)
    assert (await agent.run(UserMessage(parts))).messages[0].content == parts


@pytest.mark.parametrize(
    ("roles", "reasoning", "answer"),
    [(["reasoning"], "the ***", "a secret"), (["assistant"], "the secret", "a ***"), ([], "the ***", "a ***")],
)
async def test_a_reply_and_its_reasoning_are_two_messages_to_a_rule(
    roles: list[str], reasoning: str, answer: str, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, cover(target="chat", roles=roles))
    result, _, screen = await run(rules, [[thinking("the secret"), text("a secret")]])
    reply = result.messages[-1]
    assert (reply.thinking, reply.text) == (reasoning, answer)
    assert screen.text == reasoning + answer
    assert rules.describe()[0]["firings"] == (2 if not roles else 1)


async def test_without_a_pattern_the_whole_is_replaced(tmp_path: Path) -> None:
    @tool
    async def look() -> ToolResult:
        """Look."""
        return ToolResult("text", structured_content={"raw": "text"})

    rules = rules_of(
        tmp_path,
        {"target": "chat", "roles": ["user"], "actions": [{"type": "replace", "with": "<{{content}}>"}]},
        {"target": "run", "actions": [{"type": "replace", "with": "[{{content}}]"}]},
        {"target": "stream", "chunks": ["content"], "actions": [{"type": "replace", "with": "({{text}})"}]},
        {"target": "tool", "actions": [{"type": "replace", "with": "{{name}}: {{result}}"}]},
    )
    result, _, screen = await run(rules, [tool_call("look"), text("", chunks=["a", "b"])], "hi", tools=[look])
    assert [message.text for message in result.messages] == ["<[hi]>", "", "look: text", "(a)(b)"]
    assert screen.ever == ["(a)", "(b)"]


async def test_a_result_in_parts_is_covered_across_them(tmp_path: Path) -> None:
    @tool
    async def look() -> ToolResult:
        """Look."""
        return ToolResult((Text("a sec"), PICTURE, Text("ret")))

    result, _, _ = await run(rules_of(tmp_path, cover(target="tool")), [tool_call("look"), text("ok")], tools=[look])
    assert result.messages[2].content == (Text("a ***"), PICTURE)


async def test_what_only_the_structured_result_holds_is_found_there(tmp_path: Path) -> None:
    seen: list[Any] = []

    @tool
    async def look() -> ToolResult:
        """Look."""
        return ToolResult("nothing", structured_content={"key": ["a secret", 5]})

    def watch(event: Any) -> None:
        if event.type == "tool_execution_end":
            seen.append((event.result.text, event.result.structured_content))

    hooks = rules_of(tmp_path, cover(target="tool")).hooks
    await Agent(model=ScriptedModel([tool_call("look"), text("ok")]), tools=[look], hooks=hooks, listeners=[watch]).run("go")
    assert seen == [("nothing", {"key": ["a ***", 5]})]


ran: list[Any] = []


@tool
async def post(body: dict[str, Any], to: str = "you") -> str:
    """Post."""
    ran.append((body, to))
    return "posted"


@pytest.mark.parametrize(
    ("rule", "body", "to"),
    [
        (
            {"actions": [{"type": "replace", "argument": "/body/list/1", "with": {"n": 1}}]},
            {"list": ["a secret", {"n": 1}], "x": "secret"},
            "secret",
        ),
        (
            {"actions": [{"type": "replace", "argument": "/body/new", "with": 5}]},
            {"list": ["a secret", 2], "x": "secret", "new": 5},
            "secret",
        ),
        (
            {"actions": [{"type": "replace", "argument": "/body/gone/deep", "with": 5}]},
            {"list": ["a secret", 2], "x": "secret"},
            "secret",
        ),
        (
            {"actions": [{"type": "replace", "argument": "/body/list/9", "with": 5}]},
            {"list": ["a secret", 2], "x": "secret"},
            "secret",
        ),
        ({"regex": "secret", "actions": [{**COVER, "argument": "/body/list"}]}, {"list": ["a ***", 2], "x": "secret"}, "secret"),
        (
            {"regex": "secret", "actions": [{**COVER, "argument": "/body/gone"}]},
            {"list": ["a secret", 2], "x": "secret"},
            "secret",
        ),
        ({"regex": "secret", "actions": [COVER]}, {"list": ["a ***", 2], "x": "***"}, "***"),
        (
            {"actions": [{"type": "replace", "argument": "to", "with": "{{name}}"}]},
            {"list": ["a secret", 2], "x": "secret"},
            "post",
        ),
    ],
)
async def test_an_argument_is_named_or_pointed_at(rule: Rule, body: dict[str, Any], to: str, tmp_path: Path) -> None:
    ran.clear()
    call = tool_call("post", {"body": {"list": ["a secret", 2], "x": "secret"}, "to": "secret"})
    await run(rules_of(tmp_path, {"target": "tool", "event": "before", **rule}), [call, text("ok")], tools=[post])
    assert ran == [(body, to)]


async def test_a_rule_may_change_a_call_and_then_have_a_person_asked_about_it(tmp_path: Path) -> None:
    ran.clear()
    said = Said()
    actions = [
        {"type": "replace", "argument": "to", "with": "me"},
        {"type": "ask", "prompt": "send {{args}}?"},
        {"type": "log", "message": "asked"},
    ]
    rules = rules_of(
        tmp_path, {"target": "tool", "event": "before", "args": {"/to": {"equals": "all"}}, "actions": actions}, voice=said
    )
    calls = [tool_call("post", {"body": {}, "to": "all"}, id="c1"), tool_call("post", {"body": {}}, id="c2")]

    result, _, _ = await run(rules, [calls, text("ok")], tools=[post])

    assert result.stop_reason == "suspended"
    (pending,) = result.pending
    assert (pending.call_id, pending.args, pending.original_args["to"]) == ("c1", {"body": {}, "to": "me"}, "all")
    assert pending.prompt == 'send {"body":{},"to":"all"}?'
    assert said.texts == ["asked"]
    assert rules.describe()[0]["firings"] == 1


async def test_an_error_rule_looks_at_arguments_and_tools_of_calls_that_never_ran(tmp_path: Path) -> None:
    said = Said()
    log = [{"type": "log", "message": "{{label}}: {{name}}"}]
    rules = rules_of(
        tmp_path,
        {"target": "tool", "event": "error", "label": "args", "args": {"/n": {"min": 5}}, "actions": log},
        {"target": "tool", "event": "error", "label": "tools", "tools": ["no*"], "actions": log},
        {"target": "tool", "event": "error", "label": "text", "regex": "not found", "actions": log},
        voice=said,
    )
    calls = [tool_call("nobody", {"n": 5}), tool_call("none", {"n": 4}), tool_call("post", {"body": 5})]
    await run(rules, [calls, text("ok")], tools=[post])
    assert said.texts == ["args: nobody", "tools: nobody", "text: nobody", "tools: none", "text: none"]


async def test_a_result_rule_looks_at_the_arguments_too(tmp_path: Path) -> None:
    said = Said()
    rule = {"target": "tool", "args": {"/to": {"equals": "a"}}, "actions": [{"type": "log", "message": "{{args}}"}]}
    calls = [tool_call("post", {"body": {}, "to": to}) for to in ("a", "b")]
    await run(rules_of(tmp_path, rule, voice=said), [calls, text("ok")], tools=[post])
    assert said.texts == ['{"body":{},"to":"a"}']
