"""What is no answer does not count as one, and leaves the question open."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, UsageError, hook, tool
from beforehand.testing import ScriptedModel, text, tool_call


@tool
async def pay() -> str:
    """Pay."""
    return "paid"


@hook.before_tool_call
def policy(call: Any) -> Ask:
    return Ask("Pay?")


@pytest.mark.parametrize("said", [True, "approve", Approve, None])
async def test_a_question_stays_open_after_what_is_no_answer(said: Any) -> None:
    talk = Agent(model=ScriptedModel([tool_call("pay", id="c1"), text("Done.")]), tools=[pay], hooks=[policy]).conversation()
    await talk.run("go")
    with pytest.raises(UsageError, match=r"an answer is Approve\(\), Deny\(...\) or Edit\(...\), not a "):
        await talk.resume({"c1": said})
    assert (await talk.resume({"c1": Approve()})).stop_reason == "completed"
    assert talk.messages[2].text == "paid"
