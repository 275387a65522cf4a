"""What other systems get wrong, each beside a control that shows the same thing done right."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import Agent, Answer, Block, Hook, Replace, ToolContext, hook, tool
from beforehand.testing import ScriptedModel, text, tool_call
from seams.stage import Stage, play


async def test_a_guard_that_raises_refuses_the_call_and_the_run_goes_on_with_the_reason_on_record() -> None:
    @hook.before_tool_call
    def guard(call: Any) -> None:
        raise ConnectionError("the policy service is down")

    @hook.before_tool_call
    def working(call: Any) -> None: ...

    stage, control = await play(guard), await play(working)
    assert control.bodies == [1]
    assert (stage.bodies, stage.requests, stage.result.stop_reason, stage.result.text) == ([], 2, "completed", "All done.")
    assert "the policy service is down" in stage.asked(1)[-1][1]
    [record] = stage.result.decisions
    assert (record.hook, record.verdict, "the policy service is down" in str(record.reason)) == ("guard", "failed", True)


async def test_an_async_callable_object_is_a_guard_like_any_other() -> None:
    class Guard:
        def __init__(self, most: int) -> None:
            self.most = most

        async def __call__(self, call: Any) -> Block | None:
            return Block(f"At most {self.most}.") if call.args["n"] > self.most else None

    stage = await play(hook.before_tool_call(Guard(0)))
    control = await play(hook.before_tool_call(Guard(1)))
    assert control.bodies == [1], "it was awaited, and let pass"
    assert (stage.bodies, stage.results[0].text) == ([], "At most 0.")


@pytest.mark.parametrize(
    "said", [{"block": True}, {"block": True, "reason": "No."}, {"action": "deny"}, {"decision": "block"}, False, "deny"], ids=str
)
async def test_a_guard_that_returns_what_another_system_would_take_refuses_the_call_and_says_what_is_right_here(
    said: Any,
) -> None:
    stage, control = (
        await play(Hook(seam="before_tool_call", fn=lambda _: said, name="guard")),
        await play(Hook(seam="before_tool_call", fn=lambda _: None)),
    )
    assert control.bodies == [1]
    assert (stage.bodies, stage.results[0].is_error) == ([], True)
    for part in ("guard", "before_tool_call", "Block(reason)"):
        assert part in stage.results[0].text


async def test_a_hook_that_sets_text_where_a_number_is_due_is_refused_to_the_model_and_the_tool_does_not_run() -> None:
    def setting(n: Any) -> Hook:
        return Hook(seam="prepare_tool_call", fn=lambda call: Replace(args={"n": n}), name="shaper")

    stage, control = await play(setting("twelve")), await play(setting(12))
    assert (control.bodies, control.asked(1)[-1]) == ([12], ("tool", "saw 12"))
    assert (stage.bodies, stage.requests, stage.results[0].is_error) == ([], 2, True)
    assert "shaper" in stage.asked(1)[-1][1]
    assert "n" in stage.asked(1)[-1][1]


@pytest.mark.parametrize("orders", [(0, 0), (1, 0), (0, 1)], ids=["as registered", "the mock later", "the deny later"])
@pytest.mark.parametrize("mock_first", [True, False], ids=["mock then deny", "deny then mock"])
async def test_a_mock_never_hides_a_deny(mock_first: bool, orders: tuple[int, int]) -> None:
    mock = Hook(seam="before_tool_call", fn=lambda _: Answer("Mocked."), order=orders[0])
    deny = Hook(seam="before_tool_call", fn=lambda _: Block("Denied."), order=orders[1])
    stage, control = await play(*((mock, deny) if mock_first else (deny, mock))), await play(mock)
    assert (control.bodies, control.results[0].text, control.results[0].is_error) == ([], "Mocked.", False)
    assert (stage.bodies, stage.results[0].text, stage.results[0].is_error) == ([], "Denied.", True)
    assert {d.verdict for d in stage.result.decisions} == {"Answer", "Block"}, "both were heard"


@pytest.mark.parametrize("denied", [True, False])
async def test_a_deny_holds_for_nested_calls(denied: bool) -> None:
    heard: list[Any] = []

    @tool
    async def outer(ctx: ToolContext) -> str:
        heard.append(await ctx.call_tool("look", {"n": 1}))
        return f"heard {heard[0].text}"

    deny = Hook(seam="before_tool_call", fn=lambda call: Block("Denied.") if denied else None, tools=("look",))
    stage = await play(deny, tools=[outer], replies=[tool_call("outer"), text("All done.")])
    assert stage.bodies == ([] if denied else [1])
    assert (heard[0].is_error, heard[0].outcome) == ((True, "blocked") if denied else (False, "ran"))
    assert stage.results[0].text == ("heard Denied." if denied else "heard saw 1"), "the parent went on and knows why"


@pytest.mark.parametrize("denied", [True, False])
async def test_a_deny_holds_for_the_calls_of_a_sub_agent(denied: bool) -> None:
    inner = Stage(replies=[tool_call("look", {"n": 1}), text("The child is done.")])
    deny = Hook(seam="before_tool_call", fn=lambda call: Block("Denied.") if denied else None, tools=("look",))
    model = ScriptedModel([tool_call("child", {"prompt": "Look."}), text("All done.")])
    result = await Agent(model=model, tools=[inner.agent.as_tool("child", "Looks.")], hooks=[deny]).run("Begin")
    assert inner.bodies == ([] if denied else [1])
    assert inner.asked(1)[-1] == ("tool", "Denied." if denied else "saw 1")
    assert (result.text, model.requests[1].messages[-1].text) == ("All done.", "The child is done.")
