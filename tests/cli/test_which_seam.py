"""docs/which-seam.md takes a reader to the right seam, and its examples are hooks that work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, CustomMessage, Hook, UserMessage, tool
from beforehand.seams import SEAMS
from beforehand.testing import ScriptedModel, text, tool_call

PAGE = (Path(__file__).parent.parent.parent / "docs" / "which-seam.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| .+? \| (\d+) \[`(\w+)`\]\(#([\w-]+)\) \| (.+?) \|$", PAGE, re.MULTILINE)
SECTIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def hooks_of(section: str) -> list[Hook]:
    """The hooks that the example of a section defines."""
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL):
        exec(compile(block, section, "exec"), namespace)  # noqa: S102 - an example is there to be run
    return [value for value in namespace.values() if isinstance(value, Hook)]


def test_the_table_has_every_seam_once_in_its_order_and_says_what_comes_right_after() -> None:
    assert [(int(number), name) for number, name, _, _ in ROWS] == [(spec.number, spec.name) for spec in SEAMS]
    bold = {name: reason.strip("*") for _, name, _, reason in ROWS if reason.startswith("**")}
    assert bold == {spec.name: spec.irreversible for spec in SEAMS if spec.irreversible}


def test_each_row_leads_to_a_section_whose_example_is_a_hook_at_that_seam() -> None:
    sections = {anchor(heading): heading for heading in SECTIONS}
    assert [target for _, _, target, _ in ROWS] == list(sections)
    for _, seam, target, _ in ROWS:
        assert [hook.seam for hook in hooks_of(sections[target])] == [seam]


@tool
async def book_ticket(train: int, seat_class: str) -> str:
    """Book a seat."""
    return f"booked {seat_class} for DNI 1.2.3"


@tool
async def search(query: str, limit: int = 10) -> str:
    """Search."""
    return f"{limit} results"


async def run(section: str, *responses: Any, prompt: Any = "go", deps: Any = None) -> tuple[Any, ScriptedModel]:
    """A run with the hook of that section; its result, and the model with what it was asked."""
    model = ScriptedModel([*responses, text("done"), text("done")])
    agent = Agent(model=model, tools=[book_ticket, search], hooks=hooks_of(section))
    return await agent.run(prompt, deps=deps, check=False), model


async def test_the_example_that_refuses_a_prompt() -> None:
    result, model = await run("May this prompt start anything?", deps="night")
    assert (result.stop_reason, model.requests) == ("blocked", [])


async def test_the_example_that_adds_a_notice_sends_it_and_stores_it_not() -> None:
    result, model = await run("What does the model see?")
    assert "platform 4" in model.requests[0].messages[-1].text
    assert not any("platform 4" in message.text for message in result.messages)


async def test_the_example_that_converts_own_records() -> None:
    _, model = await run("How do own records become messages?", prompt=[CustomMessage("note", "late train"), UserMessage("go")])
    assert [message.text for message in model.requests[0].messages] == ["Note: late train", "go"]


async def test_the_example_that_hides_a_tool_does_so_for_one_turn() -> None:
    _, model = await run("Which tools does the model know of?", tool_call("search", {"query": "x"}))
    assert [[tool.name for tool in request.tools] for request in model.requests] == [["search"], ["book_ticket", "search"]]


async def test_the_example_that_gives_a_key() -> None:
    _, model = await run("Which key?", deps={"key": "sk-tenant"})
    assert model.keys == ["sk-tenant"]


async def test_the_example_that_keeps_a_request_in_the_house() -> None:
    result, model = await run("May this leave the house?", prompt="SECRET plans")
    assert (result.stop_reason, model.requests) == ("blocked", [])


async def test_the_example_that_keeps_text_from_being_seen() -> None:
    section = "May anybody see this text?"
    result, _ = await run(section, text("", chunks=["The name is BLUE", "BIRD."]))
    assert result.stop_reason == "interrupted"
    result, _ = await run(section, text("", chunks=["The name is BLUE", "BELL."]))
    assert (result.stop_reason, result.text) == ("completed", "The name is BLUEBELL.")


async def test_the_example_that_changes_what_is_kept() -> None:
    result, model = await run("May this message be kept?", prompt="my card is 4111 1111 1111 1111")
    assert model.requests[0].messages[0].text == result.messages[0].text == "(a card number was removed)"


async def test_the_example_that_bounds_an_argument() -> None:
    result, _ = await run("With which arguments?", tool_call("search", {"query": "x", "limit": 500}))
    assert result.messages[2].text == "10 results"


@pytest.mark.parametrize(("train", "stop_reason"), [(99, "suspended"), (305, "completed")])
async def test_the_example_that_guards_a_tool_asks_or_refuses(train: int, stop_reason: str) -> None:
    result, _ = await run("May this tool run?", tool_call("book_ticket", {"train": train, "seat_class": "first"}))
    assert result.stop_reason == stop_reason
    assert len(result.pending) == (train == 99)
    assert not any("booked" in message.text for message in result.messages)


async def test_the_example_that_redacts_a_result() -> None:
    result, model = await run("What does the model learn?", tool_call("book_ticket", {"train": 1, "seat_class": "first"}))
    assert result.messages[2].text == model.requests[1].messages[-1].text == "booked first for DNI ***"


async def test_the_example_that_asks_for_more_work() -> None:
    result, model = await run("Is the work done?", text("All is well."), text("Now the tests pass."))
    assert result.text == "Now the tests pass."
    assert model.requests[1].messages[-1].text == "I have not run the tests yet."


async def test_the_other_examples_are_accepted_by_an_agent() -> None:
    for section in SECTIONS:
        agent = Agent(model=ScriptedModel([text("done")] * 5), hooks=hooks_of(section))
        result = await agent.run("hi", deps={"key": "k"})
        assert result.stop_reason == "completed", section
