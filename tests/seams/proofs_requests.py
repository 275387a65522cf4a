"""Proofs for the seams of a request: 3 to 8."""

from __future__ import annotations

from typing import Any

import msgspec

from beforehand import Answer, Block, Context, CustomMessage, Queue, Replace, Resend, UserMessage
from beforehand.testing import ScriptedModel, text, tool_call
from seams.proofs import proves
from seams.stage import CALL_THEN_TEXT, ONLY_TEXT, at, first, play

OTHER = UserMessage("Other")
THREE = [tool_call("look", {"n": 1}), tool_call("look", {"n": 2}), text("The end.")]
TALK = [("user", "Begin"), ("assistant", ""), ("tool", "saw 1"), ("assistant", ""), ("tool", "saw 2"), ("assistant", "The end.")]


# --- 3 -------------------------------------------------------------------------------------------


@proves("prepare_request", "Replace.context")
async def requests_are_made_from_another_context_from_now_on() -> None:
    def change(plan: Any) -> Replace:
        return Replace(context=Context("Be brief.", (OTHER,), plan.context.tools))

    control = await play(replies=THREE, instructions="Be good.")
    hooked = await play(first("prepare_request", change), replies=THREE, instructions="Be good.")
    assert [r.system for r in control.model.requests] == ["Be good."] * 3
    assert [r.system for r in hooked.model.requests] == ["Be brief."] * 3
    assert hooked.asked(0) == [("user", "Other")]
    assert hooked.asked(1) == [("user", "Other"), ("assistant", ""), ("tool", "saw 1")]
    assert (control.history, hooked.history) == (TALK, TALK), "what is stored is not touched"


@proves("prepare_request", "Replace.model")
async def another_model_is_asked_from_now_on() -> None:
    other = ScriptedModel(CALL_THEN_TEXT)
    control, hooked = await play(), await play(first("prepare_request", Replace(model=other)))
    assert control.requests == 2
    assert (hooked.requests, len(other.requests), hooked.result.text) == (0, 2, "All done.")


@proves("prepare_request", "Replace.thinking_level")
async def the_model_thinks_harder_from_now_on() -> None:
    control, hooked = await play(), await play(first("prepare_request", Replace(thinking_level="high")))
    assert [r.options.thinking_level for r in control.model.requests] == ["off", "off"]
    assert [r.options.thinking_level for r in hooked.model.requests] == ["high", "high"]


@proves("prepare_request", "Replace.once")
async def a_change_for_once_is_gone_at_the_next_request() -> None:
    other = ScriptedModel([tool_call("look", {"n": 1})])

    def change(plan: Any) -> Replace:
        return Replace(context=Context("Be brief.", (OTHER,), plan.context.tools), thinking_level="high", model=other, once=True)

    def change_for_good(plan: Any) -> Replace:
        return msgspec.structs.replace(change(plan), once=False)

    control = await play(first("prepare_request", change_for_good), replies=[text("The end.")])
    assert (len(other.requests), control.requests) == (2, 0), "without once it stays"
    other.requests.clear()
    hooked = await play(first("prepare_request", change), replies=[text("The end.")], instructions="Be good.")
    assert (len(other.requests), other.requests[0].system, other.requests[0].options.thinking_level) == (1, "Be brief.", "high")
    assert (hooked.requests, hooked.model.requests[0].system, hooked.model.requests[0].options.thinking_level) == (
        1,
        "Be good.",
        "off",
    )
    assert hooked.asked(0) == [("user", "Begin"), ("assistant", ""), ("tool", "saw 1")]


# --- 4 and 5 -------------------------------------------------------------------------------------


@proves("transform_context", "Replace.messages")
async def one_request_carries_other_messages() -> None:
    control, hooked = await play(), await play(first("transform_context", Replace(messages=[OTHER])))
    assert (control.asked(0), hooked.asked(0)) == ([("user", "Begin")], [("user", "Other")])
    assert hooked.asked(1) == control.asked(1), "the next request is as ever"
    assert hooked.history == control.history, "and nothing of it is stored"


@proves("convert_to_llm", "Replace.messages")
async def a_custom_message_becomes_one_that_the_model_knows() -> None:
    def convert(view: Any) -> Replace:
        return Replace(messages=[UserMessage(f"A note: {m.text}") if isinstance(m, CustomMessage) else m for m in view.messages])

    prompt = [CustomMessage("note", "Mind the gap."), UserMessage("Begin")]
    control, hooked = await play(prompt=prompt), await play(at("convert_to_llm", convert), prompt=prompt)
    assert control.asked(0) == [("user", "Begin")], "without a hook it is dropped"
    assert hooked.asked(0) == [("user", "A note: Mind the gap."), ("user", "Begin")]
    assert hooked.history == control.history, "and it is stored as it was"


# --- 6 and 7 -------------------------------------------------------------------------------------


@proves("before_provider_call", "Replace.request")
async def another_request_is_sent_in_full() -> None:
    def change(call: Any) -> Replace:
        options = msgspec.structs.replace(call.request.options, temperature=0.5)
        return Replace(
            request=msgspec.structs.replace(call.request, system="Be brief.", messages=(OTHER,), tools=(), options=options)
        )

    control, hooked = await play(), await play(first("before_provider_call", change))
    assert (control.asked(0), len(control.model.requests[0].tools)) == ([("user", "Begin")], 1)
    sent = hooked.model.requests[0]
    assert (sent.system, hooked.asked(0), sent.tools, sent.options.temperature) == ("Be brief.", [("user", "Other")], (), 0.5)
    later = hooked.model.requests[1]
    assert (later.system, hooked.asked(1), len(later.tools)) == ("", control.asked(1), 1), "the next request is as ever"
    assert hooked.history == control.history


@proves("get_api_key", "Replace.key")
async def the_request_goes_with_this_key() -> None:
    keys = iter(["first", "second"])
    control, hooked = await play(), await play(at("get_api_key", lambda _: Replace(key=next(keys))))
    assert control.model.keys == [None, None]
    assert hooked.model.keys == ["first", "second"], "asked anew for each request"


# --- 8 -------------------------------------------------------------------------------------------


@proves("authorize_request", "Block")
async def no_request_leaves() -> None:
    control, hooked = await play(), await play(at("authorize_request", Block("Not today.")))
    assert (control.requests, control.result.stop_reason) == (2, "completed")
    assert (hooked.requests, hooked.bodies) == (0, [])
    assert (hooked.result.stop_reason, hooked.result.reason) == ("blocked", "Not today.")
    user, record = hooked.talk.messages
    assert (user.text, record.text, record.stop_reason) == ("Begin", "", "error")
    assert "Not today." in record.error
    again = await hooked.talk.run("Again", check=False)
    assert (again.stop_reason, hooked.requests) == ("blocked", 0)


@proves("authorize_request", "Answer")
async def the_hook_replies_and_nothing_leaves() -> None:
    control, hooked = (
        await play(replies=ONLY_TEXT),
        await play(at("authorize_request", Answer("From the hook.")), replies=ONLY_TEXT),
    )
    assert (control.requests, control.shown, control.result.text) == (1, "All done.", "All done.")
    assert (hooked.requests, hooked.shown, hooked.result.text) == (0, "From the hook.", "From the hook.")
    assert (hooked.history[-1], hooked.talk.messages[-1].origin) == (("assistant", "From the hook."), "hook")
    assert (hooked.result.stop_reason, hooked.result.usage.total_tokens) == ("completed", 0)


@proves("authorize_request", "Queue")
async def a_message_queued_about_a_request_is_in_the_next_one() -> None:
    control, hooked = await play(), await play(first("authorize_request", Queue("A note.")))
    assert hooked.asked(0) == control.asked(0), "the request that was judged is the one that leaves"
    assert hooked.asked(1) == [*control.asked(1), ("assistant", "A note.")]


@proves("authorize_request", "Resend")
async def the_reply_is_kept_and_the_model_asked_once_more() -> None:
    replies = [*ONLY_TEXT, text("The end.")]
    control, hooked = await play(replies=replies), await play(first("authorize_request", Resend()), replies=replies)
    assert control.requests == 1
    assert (hooked.requests, hooked.asked(1)) == (2, [("user", "Begin"), ("assistant", "All done.")])
    assert hooked.result.text == "The end."
