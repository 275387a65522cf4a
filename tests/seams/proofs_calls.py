"""Proofs for the seams of a tool call: 11 to 13."""

from __future__ import annotations

from typing import Any

from beforehand import Answer, Approve, Ask, Block, Interrupt, Queue, Replace, Resend, Steer, ToolResult, Usage
from beforehand.testing import text, tool_call
from seams.proofs import proves
from seams.stage import CALL_THEN_TEXT, at, first, play, when

TWO_CALLS = [[tool_call("look", {"n": 1}), tool_call("look", {"n": 2})], text("All done.")]


def satisfied(n: int) -> ToolResult:
    """A result after which the model is not asked again by itself."""
    return ToolResult(f"saw {n}", terminate=True)


async def queues_at(seam: str) -> None:
    control, hooked = await play(), await play(at(seam, Queue("A note.")))
    assert control.asked(1) == [("user", "Begin"), ("assistant", ""), ("tool", "saw 1")]
    assert hooked.asked(1) == [*control.asked(1), ("assistant", "A note.")]
    assert hooked.bodies == [1], "an effect settles nothing: the call ran"


async def resends_at(seam: str) -> None:
    control, hooked = await play(looks=satisfied), await play(at(seam, Resend()), looks=satisfied)
    assert control.requests == 1
    assert (hooked.requests, hooked.bodies, hooked.result.text) == (2, [1], "All done.")


# --- 11 ------------------------------------------------------------------------------------------


@proves("prepare_tool_call", "Replace.args")
async def the_tool_gets_other_arguments() -> None:
    control, hooked = await play(), await play(at("prepare_tool_call", Replace(args={"n": 2})))
    assert (control.bodies, control.asked(1)[-1]) == ([1], ("tool", "saw 1"))
    assert (hooked.bodies, hooked.asked(1)[-1]) == ([2], ("tool", "saw 2"))


@proves("prepare_tool_call", "Queue")
async def a_message_queued_while_a_call_is_prepared_is_in_the_next_request() -> None:
    await queues_at("prepare_tool_call")


@proves("prepare_tool_call", "Resend")
async def preparing_a_call_may_ask_for_one_more_request() -> None:
    await resends_at("prepare_tool_call")


# --- 12 ------------------------------------------------------------------------------------------


@proves("before_tool_call", "Block")
async def the_tool_does_not_run_and_the_model_reads_why() -> None:
    control, hooked = await play(), await play(at("before_tool_call", Block("Not today.")))
    assert (control.bodies, control.results[0].text) == ([1], "saw 1")
    assert (hooked.bodies, hooked.outcomes, hooked.requests) == ([], ["blocked"], 2)
    assert (hooked.results[0].text, hooked.results[0].is_error) == ("Not today.", True)


@proves("before_tool_call", "Block(terminate)")
async def the_tool_does_not_run_and_the_model_is_not_asked_again() -> None:
    control = await play(at("before_tool_call", Block("Not today.")))
    hooked = await play(at("before_tool_call", Block("Not today.", terminate=True)))
    assert (control.bodies, control.requests) == ([], 2)
    assert (hooked.bodies, hooked.requests, hooked.result.stop_reason) == ([], 1, "completed")
    for n, other in ((1, 2), (2, 1)):
        one = await play(
            at("before_tool_call", when(lambda call, n=n: call.args["n"] == n, Block("No.", terminate=True))), replies=TWO_CALLS
        )
        assert (one.bodies, one.requests) == ([other], 2), "it counts only if every result of the batch asks for it"


@proves("before_tool_call", "Ask")
async def the_call_waits_for_a_person() -> None:
    control = await play()
    stage = await play(at("before_tool_call", Ask("May it?", options=("yes", "no"))))
    assert (control.bodies, control.result.stop_reason) == ([1], "completed")
    assert (stage.bodies, stage.requests, stage.result.stop_reason) == ([], 1, "suspended")
    [asked] = stage.result.pending
    assert (asked.name, asked.args, asked.prompt, tuple(asked.options), asked.hook) == (
        "look",
        {"n": 1},
        "May it?",
        ("yes", "no"),
        "guard",
    )
    await stage.talk.resume({asked.call_id: Approve()})
    assert (stage.bodies, stage.requests) == ([1], 2)


@proves("before_tool_call", "Steer")
async def the_call_and_its_siblings_do_not_run_and_the_model_reads_the_feedback() -> None:
    control, hooked = await play(replies=TWO_CALLS), await play(first("before_tool_call", Steer("Go left.")), replies=TWO_CALLS)
    assert control.bodies == [1, 2]
    assert (hooked.bodies, sorted(hooked.outcomes), hooked.requests) == ([], ["cancelled", "steered"], 2)
    assert hooked.results[0].text == "Go left."
    assert [r.is_error for r in hooked.results] == [True, True]


@proves("before_tool_call", "Answer")
async def the_hooks_result_stands_and_the_tool_does_not_run() -> None:
    control, hooked = await play(), await play(at("before_tool_call", Answer("Answered.")))
    assert (control.bodies, control.results[0].text) == ([1], "saw 1")
    assert (hooked.bodies, hooked.outcomes) == ([], ["answered"])
    assert (hooked.results[0].text, hooked.results[0].is_error, hooked.asked(1)[-1]) == (
        "Answered.",
        False,
        ("tool", "Answered."),
    )


async def interrupts_at_the_gate(keep: Any) -> None:
    control, hooked = await play(), await play(at("before_tool_call", Interrupt("Halt.", keep=keep)))
    assert (control.bodies, control.requests) == ([1], 2)
    assert (hooked.bodies, hooked.requests, hooked.result.stop_reason) == ([], 1, "interrupted")
    assert (hooked.results[0].text, hooked.results[0].is_error) == ("Halt.", True)


@proves("before_tool_call", "Interrupt(keep nothing)")
async def an_interrupt_at_the_gate_blocks_the_call_and_ends_the_turn() -> None:
    await interrupts_at_the_gate("nothing")


@proves("before_tool_call", "Interrupt(keep aborted)")
async def the_reply_was_stored_before_so_there_is_nothing_to_keep() -> None:
    await interrupts_at_the_gate("aborted")


@proves("before_tool_call", "Interrupt(resend)")
async def an_interrupt_at_the_gate_may_ask_the_model_again() -> None:
    control = await play(at("before_tool_call", Interrupt("Halt.")))
    hooked = await play(at("before_tool_call", Interrupt("Halt.", resend=True)))
    assert (control.bodies, control.requests) == ([], 1)
    assert (hooked.bodies, hooked.requests, hooked.result.stop_reason) == ([], 2, "completed")
    assert hooked.asked(1) == [("user", "Begin"), ("assistant", ""), ("tool", "Halt.")]


@proves("before_tool_call", "Queue")
async def a_message_queued_at_the_gate_is_in_the_next_request() -> None:
    await queues_at("before_tool_call")


@proves("before_tool_call", "Resend")
async def the_gate_may_ask_for_one_more_request() -> None:
    await resends_at("before_tool_call")


# --- 13 ------------------------------------------------------------------------------------------


def rich(n: int) -> ToolResult:
    return ToolResult(f"saw {n}", details={"n": n}, structured_content={"n": n}, usage=Usage(5, 5))


async def after(decision: Any) -> Any:
    return await play(at("after_tool_call", decision), looks=rich)


@proves("after_tool_call", "Replace.content")
async def the_model_reads_another_result() -> None:
    control, hooked = await play(looks=rich), await after(Replace(content="Other"))
    assert control.asked(1)[-1] == ("tool", "saw 1")
    assert (hooked.bodies, hooked.asked(1)[-1], hooked.results[0].text) == ([1], ("tool", "Other"), "Other")
    assert hooked.results[0].details == {"n": 1}, "what is left out keeps"
    assert hooked.heard("tool_execution_end")[0].result.structured_content is None, "or it would still hold what was taken out"


@proves("after_tool_call", "Replace.details")
async def programs_read_other_details() -> None:
    control, hooked = await play(looks=rich), await after(Replace(details={"n": "***"}))
    assert (control.results[0].details, hooked.results[0].details) == ({"n": 1}, {"n": "***"})
    assert (await after(Replace(details=None))).results[0].details is None, "None sets"
    assert hooked.results[0].text == "saw 1"


@proves("after_tool_call", "Replace.structured_content")
async def programs_read_another_structure() -> None:
    control, hooked = await play(looks=rich), await after(Replace(content="Other", structured_content={"n": "***"}))
    assert control.heard("tool_execution_end")[0].result.structured_content == {"n": 1}
    assert hooked.heard("tool_execution_end")[0].result.structured_content == {"n": "***"}


@proves("after_tool_call", "Replace.is_error")
async def the_result_counts_as_an_error() -> None:
    control, hooked = await play(looks=rich), await after(Replace(is_error=True))
    assert (control.results[0].is_error, hooked.results[0].is_error) == (False, True)
    assert hooked.heard("tool_execution_end")[0].is_error


@proves("after_tool_call", "Replace.usage")
async def the_call_is_billed_otherwise() -> None:
    control, hooked = await play(looks=rich), await after(Replace(usage=Usage(1, 1)))
    assert (control.results[0].usage, control.result.usage.total_tokens) == (Usage(5, 5), 10)
    assert (hooked.results[0].usage, hooked.result.usage.total_tokens) == (Usage(1, 1), 2)
    assert (await after(Replace(usage=None))).result.usage.total_tokens == 0, "None sets"


@proves("after_tool_call", "Replace.terminate")
async def the_model_is_not_asked_again() -> None:
    control, hooked = await play(looks=rich), await after(Replace(terminate=True))
    assert (control.requests, hooked.requests) == (2, 1)
    again = await play(at("after_tool_call", Replace(terminate=None)), looks=satisfied)
    assert (again.requests, (await play(looks=satisfied)).requests) == (2, 1), "None sets it to nothing"


async def interrupts_after_the_call(keep: Any) -> None:
    control = await play(replies=TWO_CALLS)
    hooked = await play(first("after_tool_call", Interrupt("Halt.", keep=keep)), replies=TWO_CALLS)
    assert (control.bodies, control.requests) == ([1, 2], 2)
    assert (hooked.bodies, hooked.requests, hooked.result.stop_reason, hooked.result.reason) == (
        [1, 2],
        1,
        "interrupted",
        "Halt.",
    )
    assert [(r.text, r.is_error) for r in hooked.results] == [("saw 1", False), ("saw 2", False)], "every call has its result"


@proves("after_tool_call", "Interrupt(keep nothing)")
async def an_interrupt_after_a_call_ends_the_turn_once_every_call_has_its_result() -> None:
    await interrupts_after_the_call("nothing")


@proves("after_tool_call", "Interrupt(keep aborted)")
async def the_reply_was_stored_long_before() -> None:
    await interrupts_after_the_call("aborted")


@proves("after_tool_call", "Interrupt(resend)")
async def an_interrupt_after_a_call_may_ask_the_model_again() -> None:
    replies = [tool_call("look", {"n": 1}), *CALL_THEN_TEXT[1:]]
    control = await play(at("after_tool_call", Interrupt("Halt.")), replies=replies)
    hooked = await play(at("after_tool_call", Interrupt("Halt.", resend=True)), replies=replies)
    assert (control.requests, control.result.stop_reason) == (1, "interrupted")
    assert (hooked.requests, hooked.result.stop_reason, hooked.asked(1)[-1]) == (2, "completed", ("tool", "saw 1"))


@proves("after_tool_call", "Queue")
async def a_message_queued_after_a_call_is_in_the_next_request() -> None:
    await queues_at("after_tool_call")


@proves("after_tool_call", "Resend")
async def the_end_of_a_call_may_ask_for_one_more_request() -> None:
    await resends_at("after_tool_call")
