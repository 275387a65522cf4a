"""Of several decisions the strongest counts, in whatever order the hooks stand, and nothing lifts a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import (
    Answer, Approve, Ask, AssistantMessage, Block, Continue, Drop, End, Hold, Hook, Interrupt, Replace, Steer, Text,
    UserMessage,
)  # fmt: skip
from beforehand.testing import text
from seams.refusals import OLD
from seams.stage import ONLY_TEXT, Stage, play


def saying(seam: str, *decisions: Any, final: bool = False) -> list[Hook]:
    """One hook for each decision, named after it."""
    return [Hook(seam=seam, fn=lambda _, d=d: d, name=name_of(d), final=final) for d in decisions]


def name_of(decision: Any) -> str:
    return f"says {decision!r}"


def orders(*decisions: Any) -> list[Any]:
    """Every order of two and of three of these decisions."""
    return [
        pytest.param(order, id=" ".join(type(d).__name__ for d in order)) for n in (2, 3) for order in permutations(decisions, n)
    ]


# --- 12 ------------------------------------------------------------------------------------------

GATE: tuple[Any, ...] = (
    Block("Blocked."),
    Interrupt("Interrupted."),
    Ask("Asked?"),
    Steer("Steered."),
    Answer("Answered."),
    None,
)
"""What a hook at the gate of a tool may say, strongest first. `None` is the weakest: it allows."""

GATE_OUTCOME: dict[type, tuple[str, str, str]] = {
    # the strongest: what became of the call, what the model was told, how the run ended
    Block: ("blocked", "Blocked.", "completed"),
    Interrupt: ("blocked", "Interrupted.", "interrupted"),
    Ask: ("pending", "", "suspended"),
    Steer: ("steered", "Steered.", "completed"),
    Answer: ("answered", "Answered.", "completed"),
    type(None): ("ran", "saw 1", "completed"),
}


async def gate_outcome(decisions: Sequence[Any]) -> tuple[str, str, str]:
    stage = await play(*saying("before_tool_call", *decisions))
    assert stage.bodies == ([1] if all(d is None for d in decisions) else [])
    return stage.outcomes[0], stage.results[0].text if stage.results else "", stage.result.stop_reason


@pytest.mark.parametrize("order", orders(*GATE))
async def test_at_the_gate_of_a_tool_the_strongest_decision_counts_in_every_order(order: tuple[Any, ...]) -> None:
    assert await gate_outcome(order) == GATE_OUTCOME[type(min(order, key=GATE.index))]


@given(st.lists(st.sampled_from(GATE), min_size=1, max_size=8))
def test_any_set_of_decisions_at_the_gate_comes_to_its_maximum(decisions: list[Any]) -> None:
    assert asyncio.run(gate_outcome(decisions)) == GATE_OUTCOME[type(min(decisions, key=GATE.index))]


@given(
    st.lists(st.tuples(st.sampled_from([*GATE, ValueError("down"), "nonsense"]), st.integers(-2, 2)), min_size=1, max_size=6),
    st.randoms(),
)
def test_no_decision_lifts_a_failure_or_a_block_whatever_the_orders(said: list[tuple[Any, int]], random: Any) -> None:
    def hook(decision: Any, order: int) -> Hook:
        def fn(_: Any) -> Any:
            if isinstance(decision, Exception):
                raise decision
            return decision

        return Hook(seam="before_tool_call", fn=fn, order=order)

    hooks = [hook(decision, order) for decision, order in said]
    random.shuffle(hooks)
    stage = asyncio.run(play(*hooks))
    refused = any(isinstance(d, Block | ValueError | str) for d, _ in said)
    allowed = all(d is None for d, _ in said)
    assert (stage.outcomes == ["blocked"]) or not refused
    assert (stage.bodies == [1]) is allowed


async def test_every_hook_at_the_gate_is_asked_and_every_reason_is_on_record() -> None:
    said = {"Block": "Blocked.", "Interrupt": "Interrupted.", "Ask": "Asked?", "Steer": "Steered.", "Answer": None}
    for order in permutations(GATE[:5]):
        stage = await play(*saying("before_tool_call", *order))
        assert [(d.hook, d.verdict) for d in stage.result.decisions] == [(name_of(d), type(d).__name__) for d in order]
        assert [d.reason for d in stage.result.decisions] == [said[type(d).__name__] for d in order]


@pytest.mark.parametrize("kind", [Block, Interrupt, Ask, Steer, Answer])
async def test_of_two_decisions_of_the_same_rank_the_first_by_order_gives_the_text(kind: Any) -> None:
    async def text_of(*hooks: Hook) -> str:
        stage = await play(*hooks)
        return stage.result.pending[0].prompt if stage.result.pending else stage.results[0].text

    def hook(reason: str, order: int = 0) -> Hook:
        return Hook(seam="before_tool_call", fn=lambda _: kind(reason), order=order)

    assert await text_of(hook("one"), hook("two")) == "one"
    assert await text_of(hook("two"), hook("one")) == "two"
    assert await text_of(hook("one", order=1), hook("two")) == "two"


async def test_a_failed_hook_is_as_strong_as_a_block() -> None:
    def down(_: Any) -> None:
        raise OSError("the policy service is down")

    failing = Hook(seam="before_tool_call", fn=down)
    for others in (GATE[1:], GATE[:0:-1]):
        stage = await play(*saying("before_tool_call", *others), failing)
        assert (stage.outcomes, stage.bodies) == (["blocked"], [])
        assert "the policy service is down" in stage.results[0].text


async def test_a_mock_is_no_way_around_a_refusal_and_a_refusal_no_way_to_lose_a_mock() -> None:
    """The refusal looks only at what it knows; the mock before or after it changes nothing. Without it, the mock counts."""
    deny, mock = Block("Denied."), Answer("Mocked.")
    assert (await gate_outcome([deny, mock]))[1] == (await gate_outcome([mock, deny]))[1] == "Denied."
    assert (await gate_outcome([None, mock]))[1] == "Mocked."


@pytest.mark.parametrize("resumed", [True, False], ids=["resumed", "answered at once"])
@pytest.mark.parametrize("order", [pytest.param(o, id=" ".join(type(d).__name__ for d in o)) for o in permutations(GATE[2:5], 2)])
async def test_a_person_who_approves_lifts_the_question_and_nothing_else(order: tuple[Any, ...], resumed: bool) -> None:
    stage = Stage(*saying("before_tool_call", *order), **({} if resumed else {"on_ask": lambda pending: Approve()}))
    await stage.run()
    if stage.result.pending:
        stage.result = await stage.talk.resume({p.call_id: Approve() for p in stage.result.pending})
    left = min((d for d in order if not isinstance(d, Ask)), key=GATE.index)
    assert (stage.outcomes[-1], stage.results[0].text, stage.result.stop_reason) == GATE_OUTCOME[type(left)]
    assert stage.bodies == []


async def test_a_person_who_approves_what_nobody_else_refuses_lets_it_run() -> None:
    """The control of the test before."""
    stage = await play(*saying("before_tool_call", GATE[2], None), on_ask=lambda pending: Approve())
    assert (stage.bodies, stage.outcomes) == ([1], ["ran"])


# --- 8 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", orders(Block("Blocked."), Answer("Answered."), None))
async def test_at_the_gate_of_a_request_a_block_counts_before_an_answer(order: tuple[Any, ...]) -> None:
    stage = await play(*saying("authorize_request", *order), replies=ONLY_TEXT)
    blocked = any(isinstance(d, Block) for d in order)
    answered = any(isinstance(d, Answer) for d in order)
    assert stage.requests == (0 if blocked or answered else 1)
    assert stage.result.stop_reason == ("blocked" if blocked else "completed")
    assert stage.shown == stage.result.text == ("" if blocked else "Answered." if answered else "All done.")
    assert [d.verdict for d in stage.result.decisions] == [type(d).__name__ for d in order if d is not None], "all were asked"


# --- 9 and 10 ------------------------------------------------------------------------------------

# At 9 and 10 hooks stand one behind the other: each judges what the one before let pass, and a refusal is final at once.


@pytest.mark.parametrize("order", orders(Interrupt("Interrupted."), Drop(), Replace(text="Other"), Hold(1), None))
async def test_of_decisions_about_text_an_interrupt_counts_before_a_drop_and_a_drop_before_a_replacement(
    order: tuple[Any, ...],
) -> None:
    """In one piece, so that every stage decides once about the whole text."""
    stage = Stage(*saying("on_chunk", *order), replies=ONLY_TEXT)
    stage.model.streams = False
    await stage.run()
    first_refusal = next((d for d in order if isinstance(d, Interrupt | Drop)), None)
    if isinstance(first_refusal, Interrupt):
        assert (stage.result.stop_reason, stage.shown, stage.history) == ("interrupted", "", [("user", "Begin")])
    elif first_refusal is not None:
        assert (stage.shown, stage.result.text) == ("", "")
    else:
        assert stage.shown == stage.result.text == ("Other" if any(isinstance(d, Replace) for d in order) else "All done.")


@pytest.mark.parametrize("order", list(permutations([Interrupt("Interrupted."), Replace(text="Other"), Drop(), None])))
async def test_no_stage_behind_a_refusal_sees_or_changes_the_text(order: tuple[Any, ...]) -> None:
    asked: list[Any] = []
    hooks = [Hook(seam="on_chunk", fn=lambda _, d=d: asked.append(d) or d) for d in order]
    stage = Stage(*hooks, replies=ONLY_TEXT)
    stage.model.streams = False
    await stage.run()
    end = next(i for i, d in enumerate(order) if isinstance(d, Interrupt | Drop))
    if isinstance(order[end], Interrupt):
        assert asked == list(order[: end + 1])
    assert stage.shown == ""


CHANGED = AssistantMessage((Text("Changed."),))


@pytest.mark.parametrize("order", orders(Interrupt("Interrupted."), Replace(message=CHANGED), None))
async def test_of_decisions_about_a_message_an_interrupt_counts_before_a_replacement(order: tuple[Any, ...]) -> None:
    hooks = [Hook(seam="on_message", fn=lambda m, d=d: d if m.origin == "model" else None) for d in order]
    stage = await play(*hooks, replies=ONLY_TEXT)
    if any(isinstance(d, Interrupt) for d in order):
        assert (stage.result.stop_reason, stage.history, stage.shown) == ("interrupted", [("user", "Begin")], "")
    else:
        assert stage.shown == stage.history[-1][1] == "Changed."


# --- 14, 1, 2 and 17 -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", orders(End("Ended."), Continue(), None))
async def test_at_the_end_of_a_turn_an_end_counts_before_a_wish_to_go_on(order: tuple[Any, ...]) -> None:
    hooks = [Hook(seam="finish_turn", fn=lambda turn, d=d: d if turn.number == 1 else None) for d in order]
    stage = await play(*hooks, replies=[*ONLY_TEXT, text("More.")])
    ended, goes_on = (any(isinstance(d, kind) for d in order) for kind in (End, Continue))
    assert stage.requests == (1 if ended or not goes_on else 2)
    assert stage.result.stop_reason == ("ended" if ended else "completed")
    assert [d.verdict for d in stage.result.decisions] == [type(d).__name__ for d in order if d is not None], "all were asked"


@pytest.mark.parametrize("order", orders(Block("Blocked."), Replace(messages=[UserMessage("Other")]), None))
async def test_a_run_that_one_hook_blocks_does_not_begin(order: tuple[Any, ...]) -> None:
    asked: list[Any] = []
    hooks = [Hook(seam="before_run", fn=lambda _, d=d: asked.append(d) or d) for d in order]
    stage = await play(*hooks, replies=ONLY_TEXT)
    blocked = next((i for i, d in enumerate(order) if isinstance(d, Block)), None)
    if blocked is None:
        assert (stage.requests, stage.history[0]) == (1, ("user", "Other"))
    else:
        assert (stage.requests, stage.history, stage.result.stop_reason, stage.result.reason) == (0, [], "blocked", "Blocked.")
        assert asked == list(order[: blocked + 1]), "final at once: nobody is asked any more"


@pytest.mark.parametrize("order", orders(End("Ended."), End("Again."), None))
async def test_of_two_ends_before_a_turn_the_first_gives_the_reason_and_both_are_on_record(order: tuple[Any, ...]) -> None:
    stage = await play(*saying("before_turn", *order))
    reasons = [d.reason for d in order if d is not None]
    assert (stage.requests, stage.result.stop_reason, stage.result.reason) == (0, "ended", reasons[0])
    assert [d.reason for d in stage.result.decisions] == reasons


@pytest.mark.parametrize("order", orders(Block("Blocked."), Answer("Answered."), None))
async def test_a_compaction_that_one_hook_blocks_does_not_happen(order: tuple[Any, ...]) -> None:
    stage = Stage(*saying("before_compaction", *order), messages=OLD, replies=[text("By the model.")])
    done = await stage.talk.compact(keep=2)
    if any(isinstance(d, Block) for d in order):
        assert (list(stage.talk.messages), done.reason, stage.requests) == (OLD, "Blocked.", 0)
    else:
        assert (stage.requests, stage.history[0][1].endswith("Answered.")) == (0, True)
