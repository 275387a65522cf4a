"""Proofs for the seams of a reply and of messages: 9 and 10."""

from __future__ import annotations

from typing import Any

import msgspec

from beforehand import AssistantMessage, Drop, Hold, Interrupt, Queue, Replace, Resend, Text
from beforehand.testing import text
from seams.proofs import proves
from seams.stage import CALL_THEN_TEXT, ONLY_TEXT, at, first, play, when

SECRET = [text("", chunks=["My PIN ", "is 1234, ", "keep it."])]
WITH_SECRET = "My PIN is 1234, keep it."
AFTER = text("The end.")


# --- 9 -------------------------------------------------------------------------------------------


def everywhere(stage: Any) -> tuple[str, str, str]:
    """The text on the screen, in the history and in the result: they must always agree."""
    assert stage.shown == stage.history[-1][1] == stage.result.text
    return stage.shown


@proves("on_chunk", "Replace.text")
async def other_text_is_shown_and_stored() -> None:
    mask = at("on_chunk", lambda chunk: Replace(text=chunk.pending.replace("1234", "****")))
    control, hooked = await play(replies=SECRET), await play(mask, replies=SECRET)
    assert everywhere(control) == WITH_SECRET
    assert everywhere(hooked) == "My PIN is ****, keep it."


@proves("on_chunk", "Replace.hold")
async def the_end_of_the_new_text_is_held_until_more_is_known() -> None:
    """The secret is cut in two: only who holds back its first half can mask it."""
    replies = [text("", chunks=["My PIN is 12", "34, keep it."])]

    def mask(hold: int) -> Any:
        def guard(chunk: Any) -> Replace:
            masked = chunk.pending.replace("1234", "****")
            return Replace(text=masked, hold=min(hold, len(masked)))

        return at("on_chunk", guard)

    assert everywhere(await play(mask(0), replies=replies)) == "My PIN is 1234, keep it.", "held back nothing"
    hooked = await play(mask(3), replies=replies)
    assert everywhere(hooked) == "My PIN is ****, keep it."
    assert hooked.heard("message_update")[0].delta == "My PIN is"


@proves("on_chunk", "Hold")
async def text_is_shown_later_and_all_of_it_at_the_end() -> None:
    control, hooked = await play(replies=SECRET), await play(at("on_chunk", Hold(9)), replies=SECRET)
    assert [e.delta for e in control.heard("message_update")] == ["My PIN ", "is 1234, ", "keep it."]
    assert [e.delta for e in hooked.heard("message_update")] == ["My PIN ", "is 1234,", " keep it."]
    assert everywhere(hooked) == everywhere(control) == WITH_SECRET


@proves("on_chunk", "Drop")
async def the_pending_text_is_gone_for_everyone() -> None:
    hooked = await play(at("on_chunk", lambda chunk: Drop() if "1234" in chunk.pending else None), replies=SECRET)
    assert everywhere(await play(replies=SECRET)) == WITH_SECRET
    assert everywhere(hooked) == "My PIN keep it."


def stop_at_the_secret(decision: Interrupt) -> Any:
    return at("on_chunk", lambda chunk: decision if "1234" in chunk.delta else None)


@proves("on_chunk", "Interrupt(keep nothing)")
async def an_interrupted_reply_is_taken_back_and_not_stored() -> None:
    control, hooked = await play(replies=SECRET), await play(stop_at_the_secret(Interrupt("Halt.")), replies=SECRET)
    assert everywhere(control) == WITH_SECRET
    assert [e.delta for e in hooked.heard("message_update")] == ["My PIN "], "nothing from the secret on was shown"
    assert [e.chars for e in hooked.heard("message_retracted")] == [7]
    assert (hooked.shown, hooked.result.text, hooked.history) == ("", "", [("user", "Begin")])
    assert (hooked.result.stop_reason, hooked.result.reason, hooked.requests) == ("interrupted", "Halt.", 1)


@proves("on_chunk", "Interrupt(keep aborted)")
async def what_was_shown_is_stored_and_marked() -> None:
    control = await play(replies=SECRET)
    hooked = await play(stop_at_the_secret(Interrupt("Halt.", keep="aborted")), replies=SECRET)
    assert control.talk.messages[-1].stop_reason == "stop"
    assert hooked.shown == "My PIN "
    assert hooked.heard("message_retracted") == []
    assert (hooked.history[-1], hooked.talk.messages[-1].stop_reason) == (("assistant", "My PIN "), "aborted")
    assert hooked.result.stop_reason == "interrupted"


@proves("on_chunk", "Interrupt(resend)")
async def the_model_is_asked_again_with_the_same_history() -> None:
    replies = [*SECRET, AFTER]
    control, hooked = (
        await play(replies=replies),
        await play(stop_at_the_secret(Interrupt("Halt.", resend=True)), replies=replies),
    )
    assert control.requests == 1
    assert (hooked.requests, hooked.asked(1)) == (2, hooked.asked(0))
    assert (hooked.result.stop_reason, hooked.history) == ("completed", [("user", "Begin"), ("assistant", "The end.")])
    assert hooked.shown == "The end."


@proves("on_chunk", "Queue")
async def a_message_queued_about_text_is_in_the_next_request() -> None:
    note = at("on_chunk", lambda chunk: Queue("A note.") if chunk.kind == "tool_call" and chunk.delta else None)
    control, hooked = await play(), await play(note)
    assert hooked.asked(1) == [*control.asked(1), ("assistant", "A note.")]


@proves("on_chunk", "Resend")
async def the_finished_reply_is_kept_and_followed_by_another() -> None:
    replies = [*ONLY_TEXT, AFTER]
    control, hooked = await play(replies=replies), await play(first("on_chunk", Resend()), replies=replies)
    assert control.requests == 1
    assert (hooked.requests, hooked.asked(1)) == (2, [("user", "Begin"), ("assistant", "All done.")])
    assert hooked.result.text == "The end."


# --- 10 ------------------------------------------------------------------------------------------


def from_model(incoming: Any) -> bool:
    return bool(incoming.origin == "model")


def last_word(incoming: Any) -> bool:
    return from_model(incoming) and bool(incoming.message.text)


@proves("on_message", "Replace.message")
async def another_message_is_stored_whoever_it_is_from() -> None:
    def change(incoming: Any) -> Replace:
        message = incoming.message
        content = (
            (Text(message.text.upper()), *message.tool_calls) if isinstance(message, AssistantMessage) else message.text.upper()
        )
        return Replace(message=msgspec.structs.replace(message, content=content))

    control, hooked = await play(), await play(at("on_message", change))
    assert control.history == [("user", "Begin"), ("assistant", ""), ("tool", "saw 1"), ("assistant", "All done.")]
    assert hooked.history == [("user", "BEGIN"), ("assistant", ""), ("tool", "SAW 1"), ("assistant", "ALL DONE.")]
    assert hooked.asked(1) == hooked.history[:3]
    assert hooked.shown == hooked.result.text == "ALL DONE.", "what was shown before was taken back"
    assert [e.chars for e in hooked.heard("message_retracted")] == [9]


@proves("on_message", "Interrupt(keep nothing)")
async def the_message_stays_out_of_the_history() -> None:
    prompt = await play(at("on_message", Interrupt("Halt.")))
    assert (prompt.requests, prompt.history, prompt.result.stop_reason) == (0, [], "interrupted")
    reply = await play(at("on_message", when(from_model, Interrupt("Halt."))), replies=ONLY_TEXT)
    assert (reply.history, reply.shown, reply.result.text) == ([("user", "Begin")], "", "")
    assert (reply.result.stop_reason, reply.result.reason) == ("interrupted", "Halt.")
    result = await play(at("on_message", when(lambda incoming: incoming.origin == "tool", Interrupt("Halt."))))
    assert (result.requests, result.bodies, result.result.stop_reason) == (1, [1], "interrupted")
    [withheld] = result.results
    assert withheld.is_error, "a call without its result would make a history that cannot be sent"
    assert "saw 1" not in withheld.text
    control = await play()
    assert (control.requests, len(control.history), control.result.stop_reason) == (2, 4, "completed")


@proves("on_message", "Interrupt(keep aborted)")
async def the_reply_is_stored_and_marked() -> None:
    control = await play(replies=ONLY_TEXT)
    hooked = await play(at("on_message", when(from_model, Interrupt("Halt.", keep="aborted"))), replies=ONLY_TEXT)
    assert control.talk.messages[-1].stop_reason == "stop"
    assert (hooked.history[-1], hooked.talk.messages[-1].stop_reason) == (("assistant", "All done."), "aborted")
    assert (hooked.shown, hooked.result.stop_reason) == ("All done.", "interrupted")


@proves("on_message", "Interrupt(resend)")
async def the_model_is_asked_for_another_message() -> None:
    replies = [*ONLY_TEXT, AFTER]
    control = await play(replies=replies)
    hooked = await play(
        first("on_message", None),
        at("on_message", lambda m: Interrupt("Halt.", resend=True) if m.message.text == "All done." else None),
        replies=replies,
    )
    assert control.requests == 1
    assert (hooked.requests, hooked.asked(1)) == (2, [("user", "Begin")])
    assert (hooked.history, hooked.shown) == ([("user", "Begin"), ("assistant", "The end.")], "The end.")


@proves("on_message", "Queue")
async def a_message_queued_about_a_message_is_in_the_next_request() -> None:
    control = await play()
    about_reply = await play(at("on_message", lambda m: Queue("A note.") if from_model(m) and m.message.tool_calls else None))
    assert about_reply.asked(1) == [*control.asked(1), ("assistant", "A note.")]
    about_prompt = await play(first("on_message", Queue("A note.")))
    assert about_prompt.asked(0) == [*control.asked(0), ("assistant", "A note.")]


@proves("on_message", "Resend")
async def the_stored_reply_is_followed_by_another() -> None:
    replies = [*CALL_THEN_TEXT, AFTER]
    control = await play(replies=replies)
    hooked = await play(at("on_message", lambda m: Resend() if m.message.text == "All done." else None), replies=replies)
    assert control.requests == 2
    assert (hooked.requests, hooked.asked(2)[-1], hooked.result.text) == (3, ("assistant", "All done."), "The end.")
