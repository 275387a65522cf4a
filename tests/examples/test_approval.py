from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from beforehand import Approve, Deny, Edit

Load = Callable[[str], Any]


async def test_first_class_is_refused_and_the_model_books_what_it_may(example: Load) -> None:
    approval = example("approval")
    model = approval.wants_first()
    assert await approval.refused(model) == "Booked: train 305, tourist class."
    assert approval.booked == ["tourist"]
    assert model.requests[1].messages[-1].text == "First class needs a manager's approval. Book tourist instead."


@pytest.mark.parametrize(
    ("answer", "booked"),
    [(Approve(), ["first"]), (Deny("Too dear."), ["tourist"]), (Edit({"train": 305, "seat_class": "tourist"}), ["tourist"])],
)
async def test_a_manager_who_is_asked_at_once_decides_what_is_booked(example: Load, answer: Any, booked: list[str]) -> None:
    approval = example("approval")
    asked = []

    def manager(question: Any) -> Any:
        asked.append((question.prompt, dict(question.args), list(approval.booked)))
        return answer

    await approval.asked_at_once(approval.wants_first(), manager=manager)
    assert asked == [("May train 305 be booked in first class?", {"train": 305, "seat_class": "first"}, [])]
    assert approval.booked == booked


async def test_a_run_put_aside_books_nothing_until_it_goes_on(example: Load) -> None:
    approval = example("approval")
    talk = approval.make_agent(approval.wants_first(), None, approval.first_class_needs_a_manager).conversation()
    waiting = await talk.run(approval.PROMPT)
    assert (waiting.stop_reason, approval.booked) == ("suspended", [])
    result = await talk.resume({waiting.pending[0].call_id: Approve()})
    assert (result.text, approval.booked) == ("Booked: train 305, first class.", ["first"])


async def test_a_manager_may_change_the_class_of_a_run_put_aside(example: Load) -> None:
    approval = example("approval")
    assert await approval.asked_later(approval.wants_first()) == "Booked: train 305, tourist class."
    assert approval.booked == ["tourist"]
