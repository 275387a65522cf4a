"""Proofs for the seams of runs, turns and compaction: 1, 2, 14, 16 and 17."""

from __future__ import annotations

from beforehand import AssistantMessage, Block, Context, Continue, End, Queue, Replace, Resend, Text, UserMessage, Answer
from beforehand.testing import ScriptedModel, text, tool_call
from seams.proofs import proves
from seams.stage import CALL_THEN_TEXT, Stage, at, first, play, when

OTHER = UserMessage("Other")
END = text("The end.")
WHOLE = [("user", "Begin"), ("assistant", ""), ("tool", "saw 1"), ("assistant", "All done.")]


# --- 1 -------------------------------------------------------------------------------------------


@proves("before_run", "Replace.messages")
async def other_prompts_are_sent_and_stored() -> None:
    control, hooked = await play(), await play(at("before_run", Replace(messages=[OTHER])))
    assert (control.asked(0), control.history) == ([("user", "Begin")], WHOLE)
    assert (hooked.asked(0), hooked.history) == ([("user", "Other")], [("user", "Other"), *WHOLE[1:]])


@proves("before_run", "Block")
async def the_run_does_not_begin() -> None:
    control, hooked = await play(), await play(at("before_run", Block("Not today.")))
    assert (control.requests, control.result.stop_reason) == (2, "completed")
    assert (hooked.requests, hooked.history, hooked.events[1:]) == (0, [], [])
    assert (hooked.result.stop_reason, hooked.result.reason) == ("blocked", "Not today.")


# --- 2 -------------------------------------------------------------------------------------------


@proves("before_turn", "End")
async def the_run_ends_before_the_turn() -> None:
    control = await play()
    second = await play(at("before_turn", when(lambda turn: turn.number == 2, End("Enough."))))
    none = await play(at("before_turn", End("Enough.")))
    assert (control.requests, control.result.stop_reason) == (2, "completed")
    assert (second.requests, second.history, second.result.stop_reason, second.result.reason) == (
        1,
        WHOLE[:3],
        "ended",
        "Enough.",
    )
    assert (none.requests, none.history, none.result.stop_reason) == (0, [], "ended")


# --- 14 ------------------------------------------------------------------------------------------


@proves("finish_turn", "End")
async def no_turn_follows() -> None:
    control, hooked = await play(), await play(at("finish_turn", End("Enough.")))
    assert (control.requests, control.result.stop_reason) == (2, "completed")
    assert (hooked.requests, hooked.history, hooked.result.stop_reason, hooked.result.reason) == (
        1,
        WHOLE[:3],
        "ended",
        "Enough.",
    )


@proves("finish_turn", "Continue")
async def one_more_turn_follows() -> None:
    replies = [*CALL_THEN_TEXT, END]
    control = await play(replies=replies)
    hooked = await play(at("finish_turn", when(lambda turn: turn.number == 2, Continue())), replies=replies)
    assert (control.requests, control.result.text) == (2, "All done.")
    assert (hooked.requests, hooked.asked(2), hooked.result.text) == (3, WHOLE, "The end.")


@proves("finish_turn", "Queue")
async def a_message_queued_at_the_end_of_a_turn_is_in_the_next_request() -> None:
    control, hooked = await play(), await play(first("finish_turn", Queue("A note.")))
    assert control.asked(1) == WHOLE[:3]
    assert hooked.asked(1) == [*WHOLE[:3], ("assistant", "A note.")]
    assert hooked.talk.messages[3].origin == "hook"


@proves("finish_turn", "Resend")
async def the_model_is_asked_once_more_after_its_last_word() -> None:
    replies = [*CALL_THEN_TEXT, END]
    control = await play(replies=replies)
    hooked = await play(at("finish_turn", when(lambda turn: turn.number == 2, Resend())), replies=replies)
    assert control.requests == 2
    assert (hooked.requests, hooked.asked(2), hooked.result.text) == (3, WHOLE, "The end.")


# --- 16 ------------------------------------------------------------------------------------------

THREE = [tool_call("look", {"n": 1}), tool_call("look", {"n": 2}), text("The end.")]


@proves("prepare_next_turn", "Replace.context")
async def later_turns_are_made_from_another_context() -> None:
    def change(turn: object) -> Replace:
        return Replace(context=Context("Be brief.", (OTHER,), stage.agent.plan.tools))

    control = await play(replies=THREE, instructions="Be good.")
    stage = Stage(first("prepare_next_turn", change), replies=THREE, instructions="Be good.")
    await stage.run()
    assert [r.system for r in control.model.requests] == ["Be good."] * 3
    assert [r.system for r in stage.model.requests] == ["Be good.", "Be brief.", "Be brief."], "it stays for the run"
    assert stage.asked(1) == [("user", "Other")]
    assert stage.asked(2) == [("user", "Other"), ("assistant", ""), ("tool", "saw 2")]
    assert stage.history == control.history, "what is stored is not touched"


@proves("prepare_next_turn", "Replace.model")
async def later_turns_ask_another_model() -> None:
    other = ScriptedModel([tool_call("look", {"n": 2}), text("From the other.")])
    control, hooked = await play(replies=THREE), await play(first("prepare_next_turn", Replace(model=other)), replies=THREE)
    assert (control.requests, control.result.text) == (3, "The end.")
    assert (hooked.requests, len(other.requests), hooked.result.text) == (1, 2, "From the other.")


@proves("prepare_next_turn", "Replace.thinking_level")
async def later_turns_think_harder() -> None:
    control = await play(replies=THREE)
    hooked = await play(first("prepare_next_turn", Replace(thinking_level="high")), replies=THREE)
    assert [r.options.thinking_level for r in control.model.requests] == ["off"] * 3
    assert [r.options.thinking_level for r in hooked.model.requests] == ["off", "high", "high"]


@proves("prepare_next_turn", "Replace.add_messages")
async def the_next_turn_begins_with_the_hooks_messages_then_queued_ones() -> None:
    def steer(turn: object) -> None:
        stage.talk.steer("Steered.")

    control = await play()
    stage = Stage(
        first("after_turn", steer),
        first("finish_turn", Queue("Queued.")),
        at("prepare_next_turn", Replace(add_messages=[OTHER])),
    )
    await stage.run()
    assert control.asked(1) == WHOLE[:3]
    assert stage.asked(1) == [*WHOLE[:3], ("user", "Other"), ("assistant", "Queued."), ("user", "Steered.")]
    assert stage.history == [*stage.asked(1), ("assistant", "All done.")]


# --- 17 ------------------------------------------------------------------------------------------

OLD = [UserMessage("one"), AssistantMessage((Text("two"),)), UserMessage("three"), AssistantMessage((Text("four"),))]
SUMMARISED = [("user", "three"), ("assistant", "four")]


@proves("before_compaction", "Answer")
async def the_hooks_summary_replaces_what_is_old() -> None:
    control = Stage(messages=OLD, replies=[text("By the model.")])
    await control.talk.compact(keep=2)
    hooked = Stage(at("before_compaction", Answer("By the hook.")), messages=OLD, replies=[text("By the model.")])
    await hooked.talk.compact(keep=2)
    assert (control.requests, control.history[1:]) == (1, SUMMARISED)
    assert (hooked.requests, hooked.history[1:]) == (0, SUMMARISED)
    assert "By the model." in control.history[0][1]
    assert "By the hook." in hooked.history[0][1]


@proves("before_compaction", "Block")
async def nothing_is_compacted() -> None:
    control = Stage(messages=OLD, replies=[text("By the model.")])
    await control.talk.compact(keep=2)
    hooked = Stage(at("before_compaction", Block("Not today.")), messages=OLD, replies=[text("By the model.")])
    done = await hooked.talk.compact(keep=2)
    assert (control.requests, len(control.talk.messages)) == (1, 3)
    assert (hooked.requests, list(hooked.talk.messages)) == (0, OLD)
    assert (done.messages, done.reason) == (None, "Not today.")
