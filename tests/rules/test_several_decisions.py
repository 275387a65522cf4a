"""Shapers chain field by field, final hooks judge what came of it, and a hook may give one verdict and any number of effects."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from beforehand import Answer, Block, Context, Hook, HookFailed, Interrupt, Limits, Queue, Replace, Resend, Steer, UserMessage
from beforehand.decisions import Verdict
from beforehand.seams import BY_NAME
from beforehand.testing import ScriptedModel, text, tool_call
from seams.stage import ONLY_TEXT, play


def saying(seam: str, *decisions: Any, final: bool = False) -> list[Hook]:
    """One hook for each decision."""
    return [Hook(seam=seam, fn=lambda _, d=d: d, final=final) for d in decisions]


# --- shapers chain -------------------------------------------------------------------------------


async def test_a_shaper_sees_what_the_one_before_made_and_the_gate_what_the_last_made() -> None:
    seen: list[int] = []

    def plus_one(call: Any) -> Replace:
        seen.append(call.args["n"])
        return Replace(args={"n": call.args["n"] + 1})

    judged: list[tuple[int, int]] = []
    stage = await play(
        *[Hook(seam="prepare_tool_call", fn=plus_one) for _ in range(3)],
        Hook(seam="before_tool_call", fn=lambda call: judged.append((call.args["n"], call.original_args["n"]))),
    )
    assert (seen, judged, stage.bodies) == ([1, 2, 3], [(4, 1)], [4])


async def test_a_field_left_out_keeps_what_an_earlier_shaper_set_and_none_sets_it_to_nothing() -> None:
    seen: list[tuple[Any, Any, Any]] = []

    def look(outcome: Any) -> None:
        seen.append((outcome.content, outcome.details, outcome.is_error))

    def after(decision: Any) -> Hook:
        return Hook(seam="after_tool_call", fn=lambda _: decision)

    watch = Hook(seam="after_tool_call", fn=look)
    stage = await play(
        after(Replace(content="one", details={"d": 1})),
        watch,
        after(Replace(is_error=True)),
        Hook(seam="after_tool_call", fn=look),
        after(Replace(details=None)),
    )
    assert seen == [("one", {"d": 1}, False), ("one", {"d": 1}, True)]
    [result] = stage.results
    assert (result.text, result.details, result.is_error) == ("one", None, True)


async def test_later_shapers_of_a_request_chain_too() -> None:
    other = ScriptedModel([text("From the other.")])

    def change(name: str, **fields: Any) -> Hook:
        return Hook(seam="prepare_request", fn=lambda _: Replace(**fields), name=name)

    def be_brief(plan: Any) -> Replace:
        return Replace(context=Context(f"{plan.context.system} And brief.", plan.context.messages, ()))

    seen: list[tuple[str, str, str]] = []
    stage = await play(
        change("model", model=other), change("level", thinking_level="high"),
        Hook(seam="prepare_request", fn=be_brief),
        Hook(seam="prepare_request", fn=lambda plan: seen.append((plan.model.name, plan.thinking_level, plan.context.system))),
        instructions="Be good.",
    )  # fmt: skip
    assert seen == [(other.name, "high", "Be good. And brief.")]
    [request] = other.requests
    assert (stage.requests, request.system, request.options.thinking_level, request.tools) == (
        0,
        "Be good. And brief.",
        "high",
        (),
    )


async def test_shapers_of_messages_and_prompts_chain() -> None:
    def add(seam: str, word: str) -> Hook:
        return Hook(seam=seam, fn=lambda c: Replace(messages=[*c.messages, UserMessage(word)]))

    stage = await play(
        add("before_run", "a"),
        add("before_run", "b"),
        add("transform_context", "c"),
        add("transform_context", "d"),
        add("convert_to_llm", "e"),
    )
    assert [t for _, t in stage.asked(0)] == ["Begin", "a", "b", "c", "d", "e"]
    assert [t for _, t in stage.history[:3]] == ["Begin", "a", "b"]


async def test_messages_that_several_hooks_add_to_the_next_turn_all_come() -> None:
    def add(word: str) -> Hook:
        return Hook(seam="prepare_next_turn", fn=lambda _: Replace(add_messages=[UserMessage(word)]))

    stage = await play(add("a"), add("b"))
    assert [t for _, t in stage.asked(1)][-2:] == ["a", "b"]


async def test_the_last_of_several_keys_is_used() -> None:
    stage = await play(*saying("get_api_key", Replace(key="one"), Replace(key="two"), None), replies=ONLY_TEXT)
    assert stage.model.keys == ["two"]


async def test_changed_arguments_are_validated_after_every_hook() -> None:
    """The second hook gets what the tool's schema made of the first one's arguments, or is not asked at all."""
    seen: list[Any] = []
    coerced = await play(
        Hook(seam="prepare_tool_call", fn=lambda _: Replace(args={"n": "7"})),
        Hook(seam="prepare_tool_call", fn=lambda call: seen.append(call.args)),
    )
    assert (seen, coerced.bodies) == ([{"n": 7}], [7])
    refused = await play(Hook(seam="prepare_tool_call", fn=lambda _: Replace(args={"n": "seven"}), name="guard"))
    assert (refused.bodies, refused.results[0].is_error) == ([], True)
    assert "guard" in refused.results[0].text


# --- final ---------------------------------------------------------------------------------------


async def test_a_final_hook_runs_after_all_shapers_whatever_its_order_and_place() -> None:
    seen: list[str] = []
    shaper = Hook(seam="before_run", fn=lambda _: Replace(messages=[UserMessage("Shaped")]), order=5)
    judge = Hook(seam="before_run", fn=lambda start: seen.append(start.messages[0].text), order=-5, final=True)
    await play(judge, shaper)
    assert seen == ["Shaped"]
    plain = Hook(seam="before_run", fn=lambda start: seen.append(start.messages[0].text), order=-5)
    await play(plain, shaper)
    assert seen == ["Shaped", "Begin"]


async def test_a_final_hook_judges_text_after_every_stage_has_shaped_it() -> None:
    seen: list[str] = []
    judge = Hook(seam="on_chunk", fn=lambda chunk: seen.append(chunk.delta) if chunk.delta else None, order=-5, final=True)
    shaper = Hook(seam="on_chunk", fn=lambda chunk: Replace(text=chunk.pending.upper()))
    stage = await play(judge, shaper, replies=ONLY_TEXT)
    assert (seen, stage.shown) == (["ALL ", "DONE."], "ALL DONE.")


@pytest.mark.parametrize("seam", [s.name for s in BY_NAME.values() if s.kind == "shape+gate" and Replace in s.verdicts])
async def test_a_final_hook_may_not_replace(seam: str) -> None:
    decision = {
        "before_run": Replace(messages=[UserMessage("Other")]),
        "on_chunk": Replace(text="Other"),
        "on_message": Replace(message=UserMessage("Other")),
    }
    control = await play(*saying(seam, decision[seam]) if seam != "on_message" else [], replies=ONLY_TEXT)
    stage = await play(*saying(seam, decision[seam], final=True), replies=ONLY_TEXT)
    assert control.result.error is None
    assert isinstance(stage.result.error, HookFailed)
    assert "final" in str(stage.result.error)
    assert "Other" not in str(stage.history) + stage.shown


@pytest.mark.parametrize(
    ("seam", "refusal"), [("before_run", Block("No.")), ("on_chunk", Interrupt("No.")), ("on_message", Interrupt("No."))]
)
async def test_a_final_hook_may_refuse(seam: str, refusal: Verdict) -> None:
    stage = await play(*saying(seam, refusal, final=True), replies=ONLY_TEXT)
    assert stage.result.stop_reason in ("blocked", "interrupted")
    assert stage.shown == stage.result.text == ""


# --- several decisions from one hook -------------------------------------------------------------


@pytest.mark.parametrize("wrap", [list, tuple])
async def test_a_hook_may_give_a_verdict_and_any_number_of_effects(wrap: Any) -> None:
    decisions = wrap([Queue("First."), Block("Blocked.", terminate=True), Queue("Second."), Resend(), Resend()])
    stage = await play(Hook(seam="before_tool_call", fn=lambda _: decisions, name="guard"))
    assert (stage.bodies, stage.results[0].text, stage.requests) == ([], "Blocked.", 2), (
        "resends combine: one more request, not two"
    )
    assert stage.asked(1)[-2:] == [("assistant", "First."), ("assistant", "Second.")]
    [record] = [d for d in stage.result.decisions if d.hook == "guard"]
    assert (record.verdict, record.effects) == ("Block", ("Queue", "Queue", "Resend", "Resend"))


@pytest.mark.parametrize(
    "two", [[Block("One."), Block("Two.")], [Answer("One."), Block("Two.")], [Steer("One."), Queue("Note."), Answer("Two.")]]
)
async def test_two_verdicts_of_one_hook_are_refused(two: list[Any]) -> None:
    stage = await play(Hook(seam="before_tool_call", fn=lambda _: two, name="guard"))
    assert (stage.bodies, stage.results[0].is_error) == ([], True)
    assert "guard" in stage.results[0].text
    assert "two verdicts" in stage.results[0].text
    assert stage.asked(1)[-1][0] == "tool", "and none of its effects happen"


async def test_of_a_hooks_effects_none_happens_if_its_verdict_is_refused() -> None:
    stage = await play(Hook(seam="prepare_tool_call", fn=lambda _: [Queue("A note."), Resend(), Replace(args={"n": "seven"})]))
    assert (stage.bodies, stage.result.stop_reason) == ([], "completed")
    assert ("assistant", "A note.") not in stage.history
    assert stage.requests == 2


async def test_effects_of_all_hooks_happen_even_of_those_whose_verdict_did_not_count() -> None:
    stage = await play(
        Hook(seam="before_tool_call", fn=lambda _: [Answer("Answered."), Queue("From the weaker.")]),
        Hook(seam="before_tool_call", fn=lambda _: [Block("Blocked."), Queue("From the stronger.")]),
    )
    assert stage.results[0].text == "Blocked."
    assert [t for _, t in stage.asked(1)][-2:] == ["From the weaker.", "From the stronger."]


async def test_a_resend_that_one_hook_wants_is_not_undone_by_an_interrupt_of_another_that_does_not() -> None:
    for hooks in permutations([Resend(), Interrupt("Halt.")]):
        stage = await play(*saying("before_tool_call", *hooks))
        assert (stage.bodies, stage.requests, stage.result.stop_reason) == ([], 2, "completed")
    control = await play(*saying("before_tool_call", Interrupt("Halt.")))
    assert (control.requests, control.result.stop_reason) == (1, "interrupted")


async def test_of_two_interrupts_one_that_wants_a_resend_is_enough() -> None:
    for hooks in permutations([Interrupt("One.", resend=True), Interrupt("Two.")]):
        stage = await play(*saying("before_tool_call", *hooks))
        assert (stage.bodies, stage.requests) == ([], 2)


@pytest.mark.parametrize(
    ("seam", "decision"),
    [
        ("on_chunk", Interrupt("Again.", resend=True)),
        ("on_message", Interrupt("Again.", resend=True)),
        ("before_tool_call", Interrupt("Again.", resend=True)),
        ("authorize_request", Resend()),
        ("finish_turn", Resend()),
    ],
)
async def test_hooks_that_always_want_to_hear_more_are_stopped_at_the_limit(seam: str, decision: Any) -> None:
    reply = tool_call("look", {"n": 1}) if seam == "before_tool_call" else text("Hm.")
    hook = Hook(seam=seam, fn=lambda c: decision if getattr(c, "origin", "model") == "model" else None)
    stage = await play(hook, replies=[reply] * 10, limits=Limits(max_resends=2))
    assert (stage.requests, stage.result.stop_reason, stage.result.error) == (3, "resend_limit", None)
    unlimited = await play(hook, replies=[reply] * 10, limits=Limits(max_resends=None, max_resends_per_hook=None, max_turns=8))
    assert (unlimited.requests, unlimited.result.stop_reason) == (8, "max_turns")


async def test_calls_of_one_reply_are_refused_one_by_one() -> None:
    two = [[tool_call("look", {"n": 1}), tool_call("look", {"n": 2})], text("All done.")]
    stage = await play(
        Hook(seam="before_tool_call", fn=lambda call: Block("Not this.") if call.args["n"] == 1 else None), replies=two
    )
    assert (stage.bodies, [r.text for r in stage.results]) == ([2], ["Not this.", "saw 2"])


# --- what effects come to ------------------------------------------------------------------------


@pytest.mark.parametrize("seam", [spec.name for spec in BY_NAME.values() if spec.effects and not spec.by_tool])
async def test_what_is_still_queued_when_a_run_ends_is_stored_then_without_a_request(seam: str) -> None:
    note = Hook(
        seam=seam,
        fn=lambda c: Queue("A note.") if getattr(c, "origin", "model") == "model" and not getattr(c, "final", 0) else None,
    )
    stage = await play(note, replies=[text("All done.")])
    assert (stage.requests, stage.history) == (1, [("user", "Begin"), ("assistant", "All done."), ("assistant", "A note.")])
    assert (stage.talk.messages[-1].origin, stage.result.text) == ("hook", "All done."), "what a hook says is not the result"
    stage.model.responses.append(text("The end."))
    await stage.run("Again")
    assert stage.asked(1)[2] == ("assistant", "A note.")


async def test_a_queued_message_keeps_its_role_and_comes_from_a_hook() -> None:
    stage = await play(Hook(seam="before_tool_call", fn=lambda _: Queue(UserMessage("Mind the gap.", origin="prompt"))))
    assert stage.asked(1)[-1] == ("user", "Mind the gap.")
    assert stage.talk.messages[3].origin == "hook"


async def test_a_wish_to_resend_is_satisfied_by_the_request_that_follows_the_tools() -> None:
    stage = await play(Hook(seam="before_tool_call", fn=lambda _: Resend()))
    assert (stage.bodies, stage.requests, stage.result.stop_reason) == ([1], 2, "completed")


async def test_wishes_of_several_hooks_to_resend_come_to_one_more_request() -> None:
    stage = await play(*[first_reply(Resend()) for _ in range(3)], replies=[text("One."), text("Two."), text("Three.")])
    assert (stage.requests, stage.result.text) == (2, "Two.")


def first_reply(decision: Any) -> Hook:
    """Decides about the end of the first turn."""
    return Hook(seam="finish_turn", fn=lambda turn: decision if turn.number == 1 else None)
