"""What templates show, and that what they show is never looked at again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import Agent, ToolContext, ToolResult, tool
from beforehand.rules.templates import Template, dump
from beforehand.testing import ScriptedModel, text, thinking, tool_call
from rulefiles.kit import Said, rules_of, run


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{{a}}", "1"),
        ("{{ a }}", "{{ a }}"),
        ("{{a}", "{{a}"),
        ("{{{s}}}", "{x}"),
        ("{{gone}} {{s}}", "{{gone}} x"),
        ("{{a.b}} {{é}}", "{{a.b}} {{é}}"),
        ("{{o}}", '{"k":[1,null,"é"]}'),
        ("{{t}}{{n}}", "truenull"),
        ("{{again}}", "{{s}}"),
        ("{{toString}}", "{{toString}}"),
    ],
)
def test_a_template_is_filled_in_one_pass(template: str, filled: str) -> None:
    variables = {"a": 1, "s": "x", "o": {"k": [1, None, "é"]}, "t": True, "n": None, "again": "{{s}}"}
    assert Template(template).fill(variables) == filled


@given(values=st.dictionaries(st.from_regex(r"\A[a-z_0-9]{1,4}\Z"), st.text(max_size=6), max_size=3), before=st.text(max_size=5))
def test_inserted_text_is_never_expanded(values: dict[str, str], before: str) -> None:
    template = before.replace("{", "(") + "".join([f"<{{{{{name}}}}}>" for name in values])
    assert Template(template).fill(values) == before.replace("{", "(") + "".join([f"<{value}>" for value in values.values()])


def test_the_default_message_is_a_dump_of_what_there_is() -> None:
    assert (
        dump({"label": "", "target": "chat", "content": "{{label}}"})
        == '[json-hook] chat: {"label":"","target":"chat","content":"{{label}}"}'
    )


@tool
async def look_up(key: str) -> dict[str, Any]:
    """Look something up."""
    return {"found": key, "n": [1, 2]}


@tool
async def broken() -> str:
    """Fails."""
    raise LookupError("no: such thing")


@tool
async def sorry() -> ToolResult:
    """Says itself that it failed."""
    return ToolResult("Note: nothing here", is_error=True)


async def lines(folder: Path, rule: dict[str, Any], *replies: Any) -> list[str]:
    said = Said()
    await run(rules_of(folder, rule, voice=said), [*replies, text("done")], tools=[look_up, broken, sorry])
    return said.texts


def log(message: str) -> list[dict[str, str]]:
    return [{"type": "log", "message": message}]


async def test_a_result_that_is_an_object_prints_as_json(tmp_path: Path) -> None:
    rule = {"target": "tool", "actions": log("{{event}} {{name}} {{args}} {{result}} {{error}}")}
    said = await lines(tmp_path, rule, tool_call("look_up", {"key": "a"}))
    assert said == ['after look_up {"key":"a"} {"found":"a","n":[1,2]} {{error}}']


@pytest.mark.parametrize(("name", "error"), [("broken", "no: such thing"), ("sorry", "Note: nothing here")])
async def test_an_error_is_its_message_without_the_name_of_its_class(name: str, error: str, tmp_path: Path) -> None:
    assert await lines(
        tmp_path, {"target": "tool", "event": "error", "actions": log("{{error}}|{{result}}")}, tool_call(name)
    ) == [f"{error}|{{{{result}}}}"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (tool_call("gone", {"a": 1}), 'gone {"a":1}: Tool gone not found.'),
        (tool_call("look_up", {"kee": 5}), 'look_up {"kee":5}: Validation failed for tool "look_up":'),
        (tool_call("look_up", "{bad"), 'look_up {}: Validation failed for tool "look_up":'),
    ],
)
async def test_an_error_rule_also_hears_of_calls_that_never_reached_a_tool(call: Any, said: str, tmp_path: Path) -> None:
    (line,) = await lines(tmp_path, {"target": "tool", "event": "error", "actions": log("{{name}} {{args}}: {{error}}")}, call)
    assert line.startswith(said)


async def test_an_error_rule_hears_of_a_failure_once_and_of_a_refusal_by_a_rule_never(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(
        tmp_path,
        {"target": "tool", "event": "error", "actions": log("{{name}}")},
        {"target": "tool", "event": "before", "tools": ["look_up"], "actions": [{"type": "block", "reason": "no"}]},
        voice=said,
    )
    calls = [tool_call("broken"), tool_call("look_up", {"key": "a"}), tool_call("gone")]
    await run(rules, [calls, text("done")], tools=[look_up, broken])
    assert said.texts == ["broken", "gone"]


async def test_a_tool_that_speaks_like_the_pipeline_is_heard_once(tmp_path: Path) -> None:
    @tool
    async def mimic() -> ToolResult:
        """Fails with the words of another."""
        return ToolResult("Tool mimic not found.", is_error=True)

    said = Said()
    rules = rules_of(tmp_path, {"target": "tool", "event": "error", "actions": log("{{error}}")}, voice=said)
    await run(rules, [tool_call("mimic"), text("done")], tools=[mimic])
    assert said.texts == ["Tool mimic not found."]


async def test_a_match_and_its_groups_are_variables(tmp_path: Path) -> None:
    pattern = r"(?P<user>\w+)@(\w+)(\.org)?"
    rule = {
        "target": "stream",
        "regex": pattern,
        "actions": log("{{match}} {{match_1}} {{match_user}} {{match_2}} {{match_3}} {{match_4}}"),
    }
    said = await lines(tmp_path, rule, [text("", chunks=["to bo", "b@exam", "ple now"]), tool_call("broken")])
    assert said == ["bob@example bob bob example {{match_3}} {{match_4}}"]


async def test_the_text_of_a_stream_rule_is_the_current_chunk(tmp_path: Path) -> None:
    rule = {"target": "stream", "regex": "a+b", "actions": log("{{match}} in {{text}}")}
    assert (await lines(tmp_path, rule, [text("", chunks=["xa", "a", "by"]), tool_call("broken")]))[:1] == ["aab in by"]


async def test_the_variables_of_a_match_are_there_for_arguments_too(tmp_path: Path) -> None:
    rule = {"target": "tool", "event": "before", "args": {"/key": {"regex": "k(.)"}}, "actions": log("{{match}} {{match_1}}")}
    assert await lines(tmp_path, rule, tool_call("look_up", {"key": "xk7"})) == ["k7 7"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"target": "request"}, ['{"label":"","target":"request","model":"scripted","kind":"turn"}'] * 2),
        (
            {"target": "turn"},
            [
                '{"label":"","target":"turn","event":"after","number":1,"content":"hi"}',
                '{"label":"","target":"turn","event":"after","number":2,"content":"done"}',
            ],
        ),
        (
            {"target": "turn", "event": "before"},
            [
                '{"label":"","target":"turn","event":"before","number":1,"content":"go"}',
                '{"label":"","target":"turn","event":"before","number":2,"content":""}',
            ],
        ),
        ({"target": "run"}, ['{"label":"","target":"run","content":"go"}']),
        (
            {"target": "chat", "roles": ["reasoning"]},
            ['{"label":"","target":"chat","role":"reasoning","content":"hm","match":"hm"}'],
        ),
        (
            {"target": "tool", "event": "error"},
            ['{"label":"","target":"tool","event":"error","name":"broken","args":{},"error":"no: such thing"}'],
        ),
    ],
)
async def test_without_a_message_a_target_shows_what_it_has(rule: dict[str, Any], said: list[str], tmp_path: Path) -> None:
    found = await lines(tmp_path, rule, [thinking("hm"), text("hi"), tool_call("broken")])
    assert [line.partition(": ")[2] for line in found] == said


async def test_reasons_prompts_and_results_are_templates(tmp_path: Path) -> None:
    rule = {
        "target": "tool",
        "event": "before",
        "actions": [{"type": "answer", "result": {"echo": ["{{name}}", "{{args}}"], "n": 1}}],
    }
    _, model, _ = await run(rules_of(tmp_path, rule), [tool_call("look_up", {"key": "a"}), text("done")], tools=[look_up])
    assert model.requests[1].messages[-1].text == '{"echo":["look_up","{\\"key\\":\\"a\\"}"],"n":1}'


async def test_an_argument_may_be_replaced_by_a_value_of_any_kind(tmp_path: Path) -> None:
    ran: list[Any] = []

    @tool
    async def pay(amount: int, note: str = "") -> str:
        """Pay."""
        ran.append((amount, note))
        return "paid"

    rule = {
        "target": "tool",
        "event": "before",
        "args": {"/amount": {"min": 100}},
        "actions": [
            {"type": "replace", "argument": "amount", "with": 50},
            {"type": "replace", "argument": "/note", "with": "clamped from {{args}}"},
        ],
    }
    await run(
        rules_of(tmp_path, rule),
        [[tool_call("pay", {"amount": 500}), tool_call("pay", {"amount": 5})], text("done")],
        tools=[pay],
    )
    assert ran == [(50, 'clamped from {"amount":500,"note":""}'), (5, "")]


async def test_with_a_regex_only_the_match_in_the_argument_is_replaced(tmp_path: Path) -> None:
    ran: list[Any] = []

    @tool
    async def send(to: str, body: str) -> str:
        """Send."""
        ran.append((to, body))
        return "sent"

    secret = {"target": "tool", "event": "before", "regex": r"sk-\w+"}
    one = rules_of(tmp_path, {**secret, "actions": [{"type": "replace", "argument": "body", "with": "[{{match}}]"}]})
    everywhere = rules_of(tmp_path / "2", {**secret, "actions": [{"type": "replace", "with": "***"}]})
    call = tool_call("send", {"to": "sk-a", "body": "my sk-b and sk-c"})
    for rules in (one, everywhere):
        await run(rules, [call, text("done")], tools=[send])
    assert ran == [("sk-a", "my [sk-b] and [sk-c]"), ("***", "my *** and ***")]


async def test_progress_is_covered_up_like_the_result_and_neither_counted_nor_logged(tmp_path: Path) -> None:
    @tool
    async def work(ctx: ToolContext) -> ToolResult:
        """Reports on the way."""
        ctx.update("half of sk-1")
        await asyncio.sleep(0)
        return ToolResult("all of sk-2", details={"raw": ["sk-3", 4]}, structured_content={"key": "sk-4"})

    said, seen = Said(), []
    rule = {
        "target": "tool",
        "regex": r"sk-\d",
        "actions": [{"type": "replace", "with": "***"}, {"type": "log", "message": "{{match}}"}],
    }
    rules = rules_of(tmp_path, rule, voice=said)

    def watch(event: Any) -> None:
        if event.type == "tool_execution_update":
            seen.append(event.partial.text)
        elif event.type == "tool_execution_end":
            seen.append((event.result.text, event.result.details, event.result.structured_content))

    model = ScriptedModel([tool_call("work"), text("done")])
    await Agent(model=model, tools=[work], hooks=rules.hooks, listeners=[watch]).run("go")

    assert seen == ["half of ***", ("all of ***", {"raw": ["***", 4]}, {"key": "***"})]
    assert said.texts == ["sk-2"]
    assert rules.describe()[0]["firings"] == 1


async def test_progress_that_would_interrupt_is_withheld(tmp_path: Path) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        """Reports on the way."""
        ctx.update("a secret")
        ctx.update("fine")
        await asyncio.sleep(0)
        return "done"

    seen = []
    rules = rules_of(tmp_path, {"target": "tool", "regex": "secret", "actions": [{"type": "interrupt"}]})

    def watch(event: Any) -> None:
        if event.type == "tool_execution_update":
            seen.append(event.partial.text)

    model = ScriptedModel([tool_call("work"), text("done")])
    result = await Agent(model=model, tools=[work], hooks=rules.hooks, listeners=[watch]).run("go")
    assert (seen, result.stop_reason) == (["fine"], "completed")
