from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from beforehand.testing import ScriptedModel, text, thinking, tool_call

Load = Callable[[str], Any]

REPLY = "Numbers 30.987.654 and 11.222.33312.345.678, not 1.234.567 nor 30.98."


@pytest.mark.parametrize("cut", range(1, len(REPLY)))
async def test_stream_history_and_next_request_hold_the_same_text_however_the_reply_is_cut(example: Load, cut: int) -> None:
    redaction = example("redaction")
    whole = redaction.stamped(REPLY)
    assert whole == "Numbers *** and ******, not 1.234.567 nor 30.98."
    model = ScriptedModel([text("", chunks=[REPLY[:cut], REPLY[cut:]]), text("ok")])
    talk = redaction.make_agent(model).conversation()
    shown = await redaction.read(talk, "Hello")
    stored = talk.messages[-1].text
    await talk.run("Go on.")
    assert (shown, stored, model.requests[1].messages[1].text) == (whole, whole, whole)


async def test_character_by_character_is_no_way_round(example: Load) -> None:
    redaction = example("redaction")
    talk = redaction.make_agent(ScriptedModel([text("", chunks=list(REPLY))])).conversation()
    assert await redaction.read(talk, "Hello") == redaction.stamped(REPLY)


async def test_a_number_in_a_prompt_is_neither_stored_nor_sent(example: Load) -> None:
    redaction = example("redaction")
    model = ScriptedModel([text("ok")])
    talk = redaction.make_agent(model).conversation()
    await talk.run("I am 30.123.456")
    assert talk.messages[0].text == "I am ***"
    assert model.requests[0].messages[0].text == "I am ***"


async def test_a_number_in_a_result_is_neither_stored_nor_sent(example: Load) -> None:
    redaction = example("redaction")
    model = ScriptedModel([tool_call("find_passenger", {"name": "Ana"}), text("ok")])
    talk = redaction.make_agent(model).conversation()
    await talk.run("Who is it?")
    assert talk.messages[2].text == "Ana, identity number ***"
    assert model.requests[1].messages[-1].text == "Ana, identity number ***"


async def test_reasoning_and_the_arguments_of_calls_pass_the_same_rule(example: Load) -> None:
    redaction = example("redaction")
    model = ScriptedModel([
        [thinking("", chunks=["that is 30.1", "23.456"]), tool_call("find_passenger", "", chunks=['{"name": "30.12', '3.456"}'])],
        text("ok"),
    ])  # fmt: skip
    talk = redaction.make_agent(model).conversation()
    await talk.run("Who is it?")
    assert talk.messages[1].thinking == "that is ***"
    assert talk.messages[2].text == "***, identity number ***"
