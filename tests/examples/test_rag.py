from __future__ import annotations

from collections.abc import Callable
from typing import Any

Load = Callable[[str], Any]


async def test_a_request_carries_the_passages_and_the_history_does_not(example: Load) -> None:
    rag = example("rag")
    model = rag.reader()
    talk = rag.make_agent(model).conversation()
    await talk.run("May my dog come along?")
    sent = [m.text for m in model.requests[0].messages]
    assert sent == [f"From the handbook:\n- {rag.HANDBOOK[0]}", "May my dog come along?"]
    assert [m.text for m in talk.messages] == ["May my dog come along?", rag.HANDBOOK[0]]


async def test_each_question_gets_its_own_passages_and_they_do_not_pile_up(example: Load) -> None:
    rag = example("rag")
    model = rag.reader()
    talk = rag.make_agent(model).conversation()
    for question in ("May my dog come along?", "And a bicycle?", "Is there a fee for a change?"):
        await talk.run(question)
    notes = [[m.text for m in request.messages if m.text.startswith("From the handbook")] for request in model.requests]
    assert [len(of_request) for of_request in notes] == [1, 1, 1]
    assert "Bicycles" in notes[1][0]
    assert "without a fee" in notes[2][0]
    assert len(talk.messages) == 6


async def test_a_question_the_handbook_does_not_answer_gets_no_passages(example: Load) -> None:
    rag = example("rag")
    model = rag.reader()
    assert (await rag.make_agent(model).run("Who built the station?")).text == "The handbook does not say."
    assert [m.text for m in model.requests[0].messages] == ["Who built the station?"]
