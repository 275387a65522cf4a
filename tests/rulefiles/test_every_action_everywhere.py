"""Every action at every target: it does there what it says, or loading refuses it and says where it is allowed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent,
    Answer,
    Approve,
    AssistantMessage,
    Block,
    Options,
    PendingApproval,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    hook,
    tool,
)
from beforehand.rules import RuleFileError
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call
from rulefiles.kit import Rule, Said, rules_of, run

CELLS: dict[str, Rule] = {
    "chat": {"target": "chat", "roles": ["assistant"]},
    "stream": {"target": "stream", "chunks": ["content"]},
    "tool before": {"target": "tool", "event": "before"},
    "tool after": {"target": "tool"},
    "tool error": {"target": "tool", "event": "error"},
    "request": {"target": "request"},
    "turn before": {"target": "turn", "event": "before"},
    "turn after": {"target": "turn"},
    "run": {"target": "run"},
}
ACTIONS: dict[str, dict[str, Any]] = {
    "log": {"message": "said"},
    "warn": {"message": "said"},
    "info": {"message": "said"},
    "debug": {"message": "said"},
    "interrupt": {},
    "queue-message": {"role": "user", "message": "queued"},
    "queue-resend": {},
    "block": {"reason": "because"},
    "answer": {"result": "answered"},
    "ask": {"prompt": "may it?"},
    "replace": {"with": "***"},
    "hide-tools": {"tools": ["fet*"]},
    "use-model": {"model": "openai:other"},
    "set-options": {"options": {"temperature": 0.25}},
    "end": {"reason": "enough"},
}

Proof = Callable[[Rule, Path], Awaitable[None]]
PROOFS: dict[tuple[str, str], Proof] = {}


def proves(action: str, *cells: str) -> Callable[[Any], Any]:
    def keep(fn: Any) -> Any:
        for cell in cells:
            PROOFS[cell, action] = fn
        return fn

    return keep


class Site:
    """A tool that notes its calls, in a run of two replies: a call of it, then text."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool
        async def fetch(url: str) -> str:
            """Fetch a page."""
            self.ran.append(url)
            if url == "bad":
                raise ValueError("no such page")
            return "PAGE BODY"

        self.fetch = fetch

    async def run(self, rule: Rule, folder: Path, said: Said | None = None, extra: Any = (), **more: Any) -> Any:
        url = "bad" if rule.get("event") == "error" else "good"
        script = [tool_call("fetch", {"url": url}, id="c1"), text("done"), text("again"), text("more")]
        rules = rules_of(folder, rule, voice=said)
        more.setdefault("tools", [self.fetch])
        return await run([*rules.hooks, *extra], script, **more)


ALL = tuple(CELLS)


@proves("log", *ALL)
@proves("warn", *ALL)
@proves("info", *ALL)
@proves("debug", *ALL)
async def logs(rule: Rule, folder: Path) -> None:
    said = Said()
    result, model, _ = await Site().run(rule, folder, said)
    kind = rule["actions"][0]["type"]
    assert said.lines
    assert set(said.lines) == {(kind, "said")}
    assert result.stop_reason == "completed"
    assert len(model.requests) == 2


@proves("interrupt", "chat", "stream")
async def an_interrupted_reply_is_not_stored(rule: Rule, folder: Path) -> None:
    result, _, screen = await run(rules_of(folder, rule), [text("hello")])
    assert result.stop_reason == "interrupted"
    assert [message.role for message in result.messages] == ["user"]
    assert screen.text == ""


@proves("interrupt", "tool before")
async def an_interrupted_call_does_not_run(rule: Rule, folder: Path) -> None:
    site = Site()
    result, model, _ = await site.run(rule, folder)
    assert site.ran == []
    assert result.stop_reason == "interrupted"
    assert len(model.requests) == 1


@proves("interrupt", "tool after", "tool error")
async def an_interrupt_after_a_call_ends_the_run(rule: Rule, folder: Path) -> None:
    site = Site()
    result, model, _ = await site.run(rule, folder)
    assert len(site.ran) == 1
    assert result.stop_reason == "interrupted"
    assert len(model.requests) == 1


@proves("queue-message", "tool before", "tool after", "tool error")
async def a_message_queued_by_a_call_is_in_the_next_request(rule: Rule, folder: Path) -> None:
    _, model, _ = await Site().run(rule, folder)
    queued = model.requests[1].messages[-1]
    assert (queued.role, queued.origin, queued.text) == ("user", "hook", "queued")


@proves("queue-message", "chat", "stream", "request", "turn after")
async def a_message_no_request_takes_is_stored_at_the_end(rule: Rule, folder: Path) -> None:
    result, model, _ = await run(rules_of(folder, rule), [text("one")])
    assert len(model.requests) == 1
    assert [(message.role, message.origin, message.text) for message in result.messages] == [
        ("user", "prompt", "go"),
        ("assistant", "model", "one"),
        ("user", "hook", "queued"),
    ]


@proves("queue-resend", "chat", "stream", "request", "turn after")
async def a_resend_keeps_the_reply_and_asks_once_more(rule: Rule, folder: Path) -> None:
    result, model, _ = await run(rules_of(folder, {**rule, "maxTriggers": 1}), [text("one"), text("two")])
    assert [message.text for message in result.messages] == ["go", "one", "two"]
    assert [message.text for message in model.requests[1].messages] == ["go", "one"]


@proves("queue-resend", "tool before", "tool after", "tool error")
async def a_resend_by_a_call_asks_once_more_though_the_tool_wants_to_end(rule: Rule, folder: Path) -> None:
    @tool
    async def last() -> ToolResult:
        """Ends the turn."""
        return ToolResult("done", is_error=rule.get("event") == "error", terminate=True)

    rules = rules_of(folder, rule)
    _, alone, _ = await run([], [tool_call("last"), text("more")], tools=[last])
    _, model, _ = await run(rules, [tool_call("last"), text("more")], tools=[last])
    assert (len(alone.requests), len(model.requests)) == (1, 2)


@proves("block", "tool before")
async def a_blocked_call_does_not_run_and_the_model_reads_why(rule: Rule, folder: Path) -> None:
    site = Site()
    _, model, _ = await site.run(rule, folder)
    assert site.ran == []
    assert model.requests[1].messages[-1].text == "because"


@proves("block", "request")
async def a_blocked_request_is_not_sent(rule: Rule, folder: Path) -> None:
    result, model, _ = await run(rules_of(folder, rule), [text("hello")], check=False)
    assert model.requests == []
    assert result.stop_reason == "blocked"
    assert result.reason == "because"


@proves("block", "run")
async def a_blocked_run_stores_nothing(rule: Rule, folder: Path) -> None:
    result, model, _ = await run(rules_of(folder, rule), [text("hello")], check=False)
    assert model.requests == []
    assert result.stop_reason == "blocked"
    assert list(result.messages) == []


@proves("answer", "tool before")
async def an_answer_is_the_result_and_the_tool_does_not_run(rule: Rule, folder: Path) -> None:
    site = Site()
    _, model, _ = await site.run(rule, folder)
    assert site.ran == []
    last = model.requests[1].messages[-1]
    assert (last.text, last.is_error) == ("answered", False)


@proves("answer", "request")
async def an_answer_is_the_reply_and_nothing_is_sent(rule: Rule, folder: Path) -> None:
    result, model, _ = await run(rules_of(folder, rule), [text("hello")])
    assert model.requests == []
    assert result.text == "answered"


@proves("ask", "tool before")
async def a_person_is_asked(rule: Rule, folder: Path) -> None:
    site, asked = Site(), []

    def on_ask(pending: PendingApproval) -> Approve:
        asked.append(pending.prompt)
        return Approve()

    await site.run(rule, folder, on_ask=on_ask)
    assert asked == ["may it?"]
    assert site.ran == ["good"]


@proves("replace", "chat", "stream")
async def a_replaced_text_is_shown_stored_and_sent(rule: Rule, folder: Path) -> None:
    model_reply = [text("my secret is out")]
    result, _, screen = await run(rules_of(folder, {**rule, "regex": "secret"}), model_reply)
    assert result.text == "my *** is out"
    assert screen.text == "my *** is out"
    assert result.messages[-1].text == "my *** is out"


@proves("replace", "tool before")
async def a_replaced_argument_is_what_the_tool_gets(rule: Rule, folder: Path) -> None:
    site = Site()
    rule["actions"][0]["argument"] = "url"
    await site.run(rule, folder)
    assert site.ran == ["***"]


@proves("replace", "tool after")
async def a_replaced_result_is_what_the_model_reads(rule: Rule, folder: Path) -> None:
    _, model, _ = await Site().run({**rule, "regex": "BODY"}, folder)
    assert model.requests[1].messages[-1].text == "PAGE ***"


@proves("replace", "tool error")
async def a_replaced_error_is_what_the_model_reads(rule: Rule, folder: Path) -> None:
    _, model, _ = await Site().run({**rule, "regex": "no such"}, folder)
    last = model.requests[1].messages[-1]
    assert (last.text, last.is_error) == ("ValueError: *** page", True)


@proves("replace", "run")
async def a_replaced_prompt_is_what_the_model_reads(rule: Rule, folder: Path) -> None:
    result, model, _ = await run(rules_of(folder, {**rule, "regex": "secret"}), [text("ok")], "a secret prompt")
    assert model.requests[0].messages[0].text == "a *** prompt"
    assert result.messages[0].text == "a *** prompt"


@proves("hide-tools", "request")
async def a_hidden_tool_is_not_offered_and_does_not_run(rule: Rule, folder: Path) -> None:
    site = Site()
    _, model, _ = await site.run(rule, folder)
    assert [tool.name for tool in model.requests[0].tools] == []
    assert site.ran == []
    assert model.requests[1].messages[-1].text == "The tool fetch is not available here."


@proves("use-model", "request")
async def another_model_is_asked(rule: Rule, folder: Path) -> None:
    asked = []

    @hook.authorize_request
    def note(request: Any) -> Block:
        asked.append(request.model.name)
        return Block("seen")

    await run([*rules_of(folder, rule).hooks, note], [text("hello")], check=False, base_url=None)
    assert asked == ["other"]


@proves("set-options", "request")
async def options_are_changed_and_the_others_stay(rule: Rule, folder: Path) -> None:
    _, model, _ = await run(rules_of(folder, rule), [text("hello")], options=Options(max_tokens=7))
    assert model.requests[0].options == Options(max_tokens=7, temperature=0.25)


@proves("end", "turn before")
async def the_run_ends_before_a_turn(rule: Rule, folder: Path) -> None:
    result, model, _ = await run(rules_of(folder, rule), [text("hello")])
    assert model.requests == []
    assert (result.stop_reason, result.reason) == ("ended", "enough")


@proves("end", "turn after")
async def the_run_ends_after_a_turn(rule: Rule, folder: Path) -> None:
    site = Site()
    result, model, _ = await site.run(rule, folder)
    assert site.ran == ["good"]
    assert len(model.requests) == 1
    assert (result.stop_reason, result.reason) == ("ended", "enough")


def written(cell: str, action: str) -> Rule:
    return {**CELLS[cell], "label": "the-rule", "actions": [{"type": action, **ACTIONS[action]}]}


@pytest.mark.parametrize(("cell", "action"), sorted(PROOFS))
async def test_an_allowed_action_does_what_it_says(cell: str, action: str, tmp_path: Path) -> None:
    await PROOFS[cell, action](written(cell, action), tmp_path)


REFUSED = [(cell, action) for cell in CELLS for action in ACTIONS if (cell, action) not in PROOFS]


@pytest.mark.parametrize(("cell", "action"), REFUSED)
def test_an_action_that_no_seam_takes_is_refused_with_the_targets_that_do(cell: str, action: str, tmp_path: Path) -> None:
    with pytest.raises(RuleFileError) as refused:
        rules_of(tmp_path, written(cell, action))

    (problem,) = refused.value.problems
    taking = {name for name, of in PROOFS if of == action}
    said = problem.message.partition("it is allowed at ")[2]
    assert problem.field == "[0].actions[0].type"
    assert repr(action) in problem.message
    targets = {part.partition(" ")[0] for part in taking}
    assert {part.strip().partition(" ")[0] for part in said.split(",")} == targets


def test_every_action_has_a_cell_and_the_table_is_whole() -> None:
    assert {action for _, action in PROOFS} == set(ACTIONS)
    assert len(PROOFS) + len(REFUSED) == len(CELLS) * len(ACTIONS) == 135


@pytest.mark.parametrize("action", ["log", "warn", "info", "debug"])
async def test_log_actions_go_to_the_logger_at_their_level(action: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from beforehand.rules import load_rules
    from rulefiles.kit import write_rules

    rules = load_rules([write_rules(tmp_path, written("chat", action))])
    with caplog.at_level(logging.DEBUG, "beforehand.rules"):
        await run(rules, [text("hello")])

    levels = {"log": logging.INFO, "info": logging.INFO, "warn": logging.WARNING, "debug": logging.DEBUG}
    assert [(r.name, r.levelno, r.getMessage()) for r in caplog.records if r.name == "beforehand.rules"] == [
        ("beforehand.rules", levels[action], "said")
    ]


@pytest.mark.parametrize(
    ("role", "kinds"),
    [
        ("user", [UserMessage]),
        ("assistant", [AssistantMessage]),
        ("reasoning", [AssistantMessage]),
        ("tool", [AssistantMessage, ToolMessage]),
    ],
)
async def test_a_message_is_queued_in_each_role(role: str, kinds: list[type], tmp_path: Path) -> None:
    rule = {
        "target": "chat",
        "roles": ["user"],
        "actions": [{"type": "queue-message", "role": role, "message": "note {{content}}"}],
    }

    result, model, _ = await run(rules_of(tmp_path, rule), [text("ok")], "hi")

    queued = [message for message in result.messages if message.origin == "hook"]
    assert [type(message) for message in queued] == kinds
    last = queued[-1]
    assert (last.thinking if role == "reasoning" else last.text) == "note hi"
    assert list(model.requests[0].messages[1:]) == queued


async def test_queued_tool_messages_answer_calls_of_their_own_and_no_id_is_used_twice(tmp_path: Path) -> None:
    action = {"type": "queue-message", "role": "tool", "message": "synthetic"}
    rule = {"target": "chat", "roles": ["user"], "actions": [action, action, action]}

    result, _, _ = await run(rules_of(tmp_path, rule), [text("ok")], "hi")

    calls = [call.id for message in result.messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    results = [message.tool_call_id for message in result.messages if isinstance(message, ToolMessage)]
    assert len(set(calls)) == 3
    assert results == calls
    assert all(call_id.startswith("inject-") and call_id.count("-") == 2 for call_id in calls)


async def test_a_hidden_tool_is_blocked_in_a_sub_agent_too(tmp_path: Path) -> None:
    site = Site()
    child = Agent(model=ScriptedModel([tool_call("fetch", {"url": "x"}), text("I tried")]), tools=[site.fetch])
    rules = rules_of(tmp_path, written("request", "hide-tools"))
    result, _, _ = await run(rules, [tool_call("ask", {"prompt": "go"}), text("done")], tools=[child.as_tool("ask", "Ask.")])
    assert site.ran == []
    assert result.text == "done"


async def test_a_conditional_rule_hides_tools_only_in_the_requests_it_is_about(tmp_path: Path) -> None:
    site = Site()
    rule = {**written("request", "hide-tools"), "regex": "careful"}
    agent = Agent(
        model=(
            model := ScriptedModel([tool_call("fetch", {"url": "a"}), text("1"), tool_call("fetch", {"url": "b"}), text("2")])
        ),
        tools=[site.fetch],
        hooks=rules_of(tmp_path, rule).hooks,
    )
    await agent.run("go on")
    await agent.run("be careful")
    assert site.ran == ["a"]
    assert [len(request.tools) for request in model.requests] == [1, 1, 0, 0]


async def test_another_model_is_for_the_request_at_hand_and_not_for_the_rest_of_the_run(tmp_path: Path) -> None:
    asked = []

    @hook.authorize_request
    def note(request: Any) -> Answer:
        asked.append(request.model.name)
        call = AssistantMessage((ToolCall("c1", "fetch", '{"url": "x"}'),), "tool_calls")
        return Answer(call if len(asked) == 1 else "done")

    rules = rules_of(tmp_path, {**written("request", "use-model"), "maxTriggers": 1})
    await run([*rules.hooks, note], [], tools=[Site().fetch])
    assert asked == ["other", "scripted"]


async def test_a_run_that_bears_the_name_of_another_is_judged_anew(tmp_path: Path) -> None:
    rule = {
        "target": "request",
        "regex": "careful",
        "actions": [{"type": "set-options", "options": {"temperature": 0}}, {"type": "block"}],
    }
    model = FunctionModel(lambda request: text("ok"))
    agent = Agent(model=model, hooks=rules_of(tmp_path, rule).hooks)
    blocked = await agent.run("be careful", run_id="same", check=False)
    fine = await agent.run("go on", run_id="same")
    assert (blocked.stop_reason, fine.text) == ("blocked", "ok")
    assert [request.options.temperature for request in model.requests] == [None]


async def test_a_request_rule_with_actions_at_several_seams_fires_once_for_a_request(tmp_path: Path) -> None:
    said = Said()
    actions = [{"type": "set-options", "options": {"temperature": 0}}, {"type": "log", "message": "{{match}} {{kind}}"}]
    rules = rules_of(tmp_path, {"target": "request", "regex": "go", "maxTriggers": 1, "actions": actions}, voice=said)
    model = FunctionModel(lambda request: text("ok"))
    agent = Agent(model=model, hooks=rules.hooks)
    await agent.run("go")
    await agent.run("go")
    assert said.texts == ["go turn"]
    assert [request.options.temperature for request in model.requests] == [0, None]
