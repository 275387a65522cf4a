from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beforehand.testing import ScriptedModel, text, tool_call

Load = Callable[[str], Any]


async def test_easy_work_stays_with_the_small_model(example: Load) -> None:
    small = ScriptedModel([tool_call("find_trains", {"to": "Mar del Plata"}), text("305")], name="small")
    large = ScriptedModel(name="large")
    assert (await example("routing").make_agent(small, large).run("When?")).text == "305"
    assert (len(small.requests), len(large.requests)) == (2, 0)


async def test_after_a_failure_the_large_model_does_the_rest(example: Load) -> None:
    small = ScriptedModel([tool_call("find_trains", {"to": "mdp"})], name="small")
    large = ScriptedModel([tool_call("find_trains", {"to": "Mar del Plata"}), text("305")], name="large")
    result = await example("routing").make_agent(small, large).run("When?")
    assert [m.model for m in result.messages if m.role == "assistant"] == ["small", "large", "large"]
    assert [request.options.thinking_level for request in large.requests] == ["high", "high"]
    assert large.requests[0].messages[-1].is_error
    assert len([d for d in result.decisions if d.verdict == "Replace"]) == 1  # it stays set for the run


async def test_the_next_run_begins_with_the_small_model_again(example: Load) -> None:
    small = ScriptedModel([tool_call("find_trains", {"to": "mdp"}), text("hello")], name="small")
    large = ScriptedModel([text("no such station")], name="large")
    agent = example("routing").make_agent(small, large)
    await agent.run("When?")
    assert (await agent.run("Hello")).text == "hello"
