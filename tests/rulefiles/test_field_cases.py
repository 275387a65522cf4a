"""Faults reported of other systems, as rule files meet them. The numbers are those of the list of field cases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Model, Replace, hook, tool
from beforehand.models.base import Finish, TextDelta
from beforehand.testing import ScriptedModel, text, thinking, tool_call
from rulefiles.kit import Screen, rules_of, run

ADDRESS = "bob@example.com"
NO_ADDRESSES = {"target": "stream", "regex": r"\w+@\w+(\.\w+)+", "actions": [{"type": "replace", "with": "<address>"}]}


@pytest.mark.parametrize("size", [1, 2, 5, 100])
async def test_f01_no_reader_ever_gets_what_is_redacted_and_all_of_them_agree(size: int, tmp_path: Path) -> None:
    whole = f"mail {ADDRESS} now"
    rules = rules_of(tmp_path, NO_ADDRESSES)
    model = ScriptedModel([text("", chunks=[whole[i : i + size] for i in range(0, len(whole), size)])] * 2)
    screen, events = Screen(), []
    agent = Agent(model=model, hooks=rules.hooks, listeners=[screen])

    async for event in agent.stream("go"):
        events.append(event)
    result = await agent.run("go")

    assert "bob" not in repr(events)
    assert "bob" not in "".join(screen.ever)
    assert {result.text, screen.text, result.messages[-1].text} == {"mail <address> now"}


def spoken(kind: str, whole: str, size: int) -> Any:
    """What the model says, in one of its channels."""
    chunks = [whole[i : i + size] for i in range(0, len(whole), size)]
    if kind == "call":
        return tool_call("note", chunks=chunks)
    return text("", chunks=chunks) if kind == "text" else thinking("", chunks=chunks)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("kind", ["text", "thinking", "call"])
@pytest.mark.parametrize("size", [1, 4, 100])
async def test_f01_is_so_in_every_channel_and_for_a_reply_in_one_piece(
    kind: str, streams: bool, size: int, tmp_path: Path
) -> None:
    noted: list[str] = []

    @tool
    async def note(body: str) -> str:
        """Write it down."""
        noted.append(body)
        return "noted"

    whole = f'{{"body": "mail {ADDRESS} now"}}' if kind == "call" else f"mail {ADDRESS} now"
    model = ScriptedModel([[spoken(kind, whole, size)], text("done")])
    model.streams = streams
    talk = Agent(model=model, hooks=rules_of(tmp_path, NO_ADDRESSES).hooks, tools=[note]).conversation()
    heard: list[Any] = []
    for event in ("message_update", "message_end", "tool_execution_start", "tool_execution_end", "turn_end", "agent_end"):
        talk.on(event, heard.append)

    result = await talk.run("go")
    await talk.run("again", check=False)

    told = repr([heard, result, list(talk.messages), model.requests])
    assert "bob" not in told
    assert "<address>" in told
    assert noted == (["mail <address> now"] if kind == "call" else [])


async def test_f01_the_address_is_not_in_the_next_request_either(tmp_path: Path) -> None:
    talk = Agent(
        model=(model := ScriptedModel([text(f"mail {ADDRESS}"), text("ok")])), hooks=rules_of(tmp_path, NO_ADDRESSES).hooks
    ).conversation()
    await talk.run("go")
    await talk.run("again")
    assert ADDRESS not in repr(model.requests[1])


async def test_f02_what_a_hook_asks_another_model_is_no_part_of_the_stream_and_passes_no_stream_rule(tmp_path: Path) -> None:
    inner = ScriptedModel([text("INTERNAL summary")])
    rules = rules_of(tmp_path, {"target": "stream", "regex": "INTERNAL", "actions": [{"type": "interrupt"}]})

    @hook.transform_context
    async def summarise(view: Any) -> Replace:
        await Agent(model=inner).run("summarise")
        return Replace(messages=view.messages)

    events = [event async for event in Agent(model=ScriptedModel([text("answer")]), hooks=[summarise, *rules.hooks]).stream("go")]
    assert len(inner.requests) == 1
    assert "INTERNAL" not in repr(events)
    assert rules.describe()[0]["firings"] == 0


@pytest.mark.parametrize("target", [{"target": "run"}, {"target": "chat", "roles": ["user"]}, {"target": "request"}])
async def test_f05_no_character_of_an_answer_is_out_before_the_verdict_on_the_question(
    target: dict[str, Any], tmp_path: Path
) -> None:
    judged = asyncio.Event()
    released: list[str] = []

    @hook.authorize_request(order=-1)
    async def slow_guard(request: Any) -> None:
        await asyncio.sleep(0)
        assert released == []
        judged.set()

    action = {"type": "interrupt"} if target["target"] == "chat" else {"type": "block", "reason": "denied"}
    rules = rules_of(tmp_path, {**target, "regex": "forbidden", "actions": [action]})
    model = ScriptedModel([text("", chunks=["fast ", "answer"])] * 2)

    def watch(event: Any) -> None:
        if event.type == "message_update":
            assert judged.is_set()
            released.append(event.delta)

    agent = Agent(model=model, hooks=[slow_guard, *rules.hooks], listeners=[watch])
    denied = await agent.run("a forbidden thing", check=False)
    assert (released, model.requests) == ([], [])
    assert denied.stop_reason in ("blocked", "interrupted")

    assert (await agent.run("a fine thing")).text == "fast answer"
    assert released == ["fast ", "answer"]


class OwnTokens(Model):
    """Somebody's own token generator, brought in through the front door."""

    name = "own"

    async def stream(self, request: Any, call: Any = None) -> AsyncIterator[Any]:
        for token in ("the ban", "ned word", " is here"):
            yield TextDelta(token)
        yield Finish("stop")


@pytest.mark.parametrize("whole", [False, True])
async def test_f11_a_token_generator_of_ones_own_passes_the_rules_like_any_model(whole: bool, tmp_path: Path) -> None:
    model = OwnTokens()
    model.streams = not whole
    rules = rules_of(tmp_path, {"target": "stream", "regex": "banned word", "actions": [{"type": "interrupt"}]})

    result = await Agent(model=model, hooks=rules.hooks).run("go")

    assert result.stop_reason == "interrupted"
    assert "ban" not in repr(result.messages)


async def test_f52_a_rule_can_be_tried_out_without_risk_and_the_record_says_that_nothing_was_checked(tmp_path: Path) -> None:
    ran: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    broken = {
        "target": "tool",
        "event": "before",
        "label": "clamp",
        "actions": [{"type": "replace", "argument": "amount", "with": "no number"}],
    }
    calls = [tool_call("pay", {"amount": 7}), text("done")]

    tried, _, _ = await run(rules_of(tmp_path, {**broken, "onError": "open"}), calls, tools=[pay])
    assert ran == [7]
    (record,) = tried.decisions
    assert (record.hook, record.verdict, record.on_error) == ("clamp", "failed_open", "open")

    closed, model, _ = await run(rules_of(tmp_path, broken), calls, tools=[pay])
    assert ran == [7]
    assert [record.verdict for record in closed.decisions] == ["failed"]
    assert "clamp" in model.requests[1].messages[-1].text

    aborted, _, _ = await run(rules_of(tmp_path, {**broken, "onError": "abort"}), calls, tools=[pay], check=False)
    assert aborted.stop_reason == "error"
    assert ran == [7]
