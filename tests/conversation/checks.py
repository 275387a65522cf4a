"""What must hold of a history at any time, and of a talk after anything that went wrong."""

from __future__ import annotations

from collections.abc import Sequence

from beforehand import Conversation, Message
from beforehand.testing import ScriptedModel, text


def assert_valid(messages: Sequence[Message]) -> None:
    """Every call has exactly one result, right behind the reply that asked for it, in the order of the calls."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert waiting, f"a result for {message.tool_call_id} that nobody waits for"
            assert message.tool_call_id == waiting.pop(0)
            continue
        assert waiting == [], f"no result for {waiting}"
        if message.role == "assistant":
            waiting = [call.id for call in message.tool_calls]
    assert waiting == [], f"no result for {waiting}"


async def assert_continuable(talk: Conversation, model: ScriptedModel) -> None:
    """Nothing runs any more, the history is valid, and the next prompt gets an answer."""
    assert not talk.is_running
    assert_valid(talk.messages)
    model.responses = [*model.responses[: len(model.requests)], *[text("still here")] * 9]
    talk.clear_queues()
    result = await talk.run("are you there?")
    assert result.stop_reason == "completed"
    assert result.text == "still here"
    assert_valid(model.requests[-1].messages)
