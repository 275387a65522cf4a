"""Rules with actions at several seams: each holds where the run does not come to the first of them, and when it goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Hook, Message, RunResult, tool
from beforehand.journal import Journal
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records, cut, parents

SHAPES: list[dict[str, Any]] = [
    {"type": "set-options", "options": {"temperature": 0}}, {"type": "hide-tools", "tools": ["none"]},
]  # fmt: skip
BLOCK = {"type": "block", "reason": "not this"}


def let_pass(seam: Any) -> Hook:
    """One that lets all pass: what stands before it is on record when it has been asked."""
    return Hook(seam=seam, fn=lambda context: None, name=f"passes {seam}")


class Shop:
    """An agent with these rules, what it sent and what it did. Its model asks for `deploy`; within a sub-agent, if it has one."""

    def __init__(self, folder: Path, rules: Sequence[Any], *hooks: Hook, inside: bool = False, name: str = "runs.db") -> None:
        self.sent: list[list[str]] = []
        self.done: list[int] = []
        (folder / "rules.json").write_text(json.dumps(rules))

        @tool
        async def deploy(x: int) -> str:
            self.done.append(x)
            return "deployed"

        def reply(request: Any) -> Any:
            self.sent.append([message.text for message in request.messages])
            asked = any(message.role == "tool" for message in request.messages)
            return text("done") if asked else tool_call("deploy", {"x": 1}, id="d")

        model = FunctionModel(reply)
        agent = Agent(model=model, tools=[deploy])
        if inside:
            outer = FunctionModel(
                lambda r: text("end") if any(m.role == "tool" for m in r.messages) else tool_call("child", {"prompt": "secret"})
            )
            agent = Agent(model=outer, tools=[agent.as_tool("child", "Helps.")])
        self.agent = agent.replace(hooks=[*hooks, folder / "rules.json"], journal=Journal(folder / name, durability="normal"))

    async def comes_to(self, run_id: str | None = None) -> RunResult:
        try:
            if run_id is not None:
                return await self.agent.resume(run_id)
            return await self.agent.run("go on with the secret", run_id="R")
        finally:
            await self.agent.aclose()


def results(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("action", "sent"), [(BLOCK, 0), ({"type": "answer", "result": "made up"}, 0)])
async def test_a_rule_that_shapes_requests_judges_those_of_a_sub_agent_too(
    tmp_path: Path, shape: Any, action: Any, sent: int
) -> None:
    """Sub-agents have the gates of their caller and not its shapers."""
    rule = {"target": "request", "regex": "^secret$", "actions": [shape, action]}
    shop = Shop(tmp_path, [rule], inside=True)
    await shop.comes_to()
    assert (len(shop.sent), shop.done) == (sent, [])


@pytest.mark.parametrize("more", [{"regex": "secret"}, {"maxTriggers": 5}, {}, {"regex": "nowhere"}])
async def test_a_tool_that_a_rule_hides_is_not_run_in_a_sub_agent_either(tmp_path: Path, more: dict[str, Any]) -> None:
    shop = Shop(tmp_path, [{"target": "request", **more, "actions": [{"type": "hide-tools", "tools": ["dep*"]}]}], inside=True)
    await shop.comes_to()
    assert shop.done == ([1] if more == {"regex": "nowhere"} else [])


@pytest.mark.parametrize("more", [{"regex": "secret"}, {"maxTriggers": 1}])
async def test_a_tool_that_was_hidden_does_not_run_when_the_run_goes_on(tmp_path: Path, more: dict[str, Any]) -> None:
    rules = [{"label": "hides", "target": "request", **more, "actions": [{"type": "hide-tools", "tools": ["dep*"]}]}]
    whole = Shop(tmp_path, rules)
    expected = await whole.comes_to()
    assert (results(expected.messages), whole.done) == (["The tool deploy is not available here."], [])
    records = all_records(tmp_path / "runs.db")
    for length in range(1, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        shop = Shop(tmp_path, rules, name=f"{length}.db")
        assert (results((await shop.comes_to("R")).messages), shop.done) == (results(expected.messages), []), length


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("more", [{"regex": "secret"}, {"maxTriggers": 1}])
async def test_a_rule_that_had_shaped_a_request_blocks_it_when_the_run_goes_on(
    tmp_path: Path, shape: Any, more: dict[str, Any]
) -> None:
    rules = [{"label": "both", "target": "request", **more, "actions": [shape, BLOCK]}]
    whole = Shop(tmp_path, rules, let_pass("get_api_key"))
    assert ((await whole.comes_to()).stop_reason, whole.sent) == ("blocked", [])
    records = all_records(tmp_path / "runs.db")
    for length in range(1, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        shop = Shop(tmp_path, rules, let_pass("get_api_key"), name=f"{length}.db")
        assert ((await shop.comes_to("R")).stop_reason, shop.sent) == ("blocked", []), length


async def test_a_new_rule_that_shapes_requests_blocks_one_that_is_sent_again(tmp_path: Path) -> None:
    hooks = [let_pass("before_provider_call"), let_pass("authorize_request")]
    await Shop(tmp_path, [], *hooks).comes_to()
    records = all_records(tmp_path / "runs.db")
    cut(records[: next(r.n for r in records if r.kind == "request")], {"R": None}, tmp_path / "again.db").close()
    rule = {"target": "request", "regex": "secret", "actions": [*SHAPES, BLOCK]}
    shop = Shop(tmp_path, [rule], *hooks, name="again.db")
    assert ((await shop.comes_to("R")).stop_reason, shop.sent) == ("blocked", [])


@pytest.mark.parametrize("value", [1, 7])
@pytest.mark.parametrize("more", [{}, {"args": {"/x": {"equals": 1}}}, {"maxTriggers": 1}])
async def test_a_rule_that_had_shaped_a_call_judges_it_when_the_run_goes_on(
    tmp_path: Path, value: int, more: dict[str, Any]
) -> None:
    replace = {"type": "replace", "argument": "x", "with": value}
    rules = [{"label": "both", "target": "tool", "event": "before", **more, "actions": [replace, BLOCK]}]
    whole = Shop(tmp_path, rules)
    assert (results((await whole.comes_to()).messages), whole.done) == (["not this"], [])
    records = all_records(tmp_path / "runs.db")
    shaped = next(r.n for r in records if r.data.get("seam") == "prepare_tool_call")
    for length in range(1, shaped + 2):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        shop = Shop(tmp_path, rules, name=f"{length}.db")
        assert (results((await shop.comes_to("R")).messages), shop.done) == (["not this"], []), length


@pytest.mark.parametrize("more", [[], [{"type": "queue-message", "role": "user", "message": "hidden"}]])
async def test_a_tool_that_was_hidden_in_a_sub_agent_stays_so_for_the_turn_when_the_run_goes_on(
    tmp_path: Path, more: list[dict[str, Any]]
) -> None:
    """A sub-agent does not come to the seam at which tools are hidden: the rule fires at a later one, once for the turn."""
    hides = {"type": "hide-tools", "tools": ["deploy"]}
    (tmp_path / "rules.json").write_text(
        json.dumps([{"label": "h", "target": "request", "regex": "^secret$", "maxTriggers": 1, "actions": [*more, hides]}])
    )
    done: list[int] = []

    @tool
    async def deploy(x: int) -> str:
        done.append(x)
        return "deployed"

    def inner(request: Any) -> Any:
        asked = any(message.role == "tool" for message in request.messages)
        return text("done") if asked else [tool_call("deploy", {"x": x}, id=f"d{x}") for x in (1, 2)]

    def outer(request: Any) -> Any:
        asked = any(message.role == "tool" for message in request.messages)
        return text("end") if asked else tool_call("child", {"prompt": "secret"})

    child = Agent(model=FunctionModel(inner), tools=[deploy]).as_tool("child", "Helps.")
    agent = Agent(model=FunctionModel(outer), tools=[child], hooks=[tmp_path / "rules.json"])
    async with agent.replace(journal=Journal(tmp_path / "runs.db", durability="normal")) as whole:
        await whole.run("go", run_id="R")
    records, of = all_records(tmp_path / "runs.db"), parents(tmp_path / "runs.db")
    for length in range(1, len(records)):
        cut(records[:length], of, tmp_path / f"{length}.db").close()
        async with agent.replace(journal=Journal(tmp_path / f"{length}.db", durability="normal")) as again:
            await again.resume("R")
        assert done == [], length
