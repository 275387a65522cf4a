"""A sub-agent is governed by the hooks of the one that called it, and by its own after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from beforehand import Agent, Answer, Block, Drop, Hook, Interrupt, Replace, RunResult, hook
from beforehand.seams import BY_NAME
from beforehand.testing import ScriptedModel, text
from rules.reached import LOOK, Reached, delegate


class Family:
    """A parent, its sub-agent and the sub-agent's own, with their models. Only the youngest has the tool."""

    def __init__(self, *parents: Hook, children: Sequence[Hook] = (), inherit: bool = True) -> None:
        self.reached = Reached()
        self.models = [
            ScriptedModel([delegate("child"), text("The parent is done.")]),
            ScriptedModel([delegate("grand_child"), text("The child is done.")]),
            ScriptedModel([LOOK, text("The grandchild is done.")]),
        ]
        grand_child = Agent(model=self.models[2], tools=[self.reached.look], hooks=children, instructions="grandchild")
        child = Agent(model=self.models[1], tools=[grand_child.as_tool("grand_child", "Looks.")], instructions="child")
        self.parent = Agent(
            model=self.models[0],
            tools=[child.as_tool("child", "Delegates.", inherit=inherit)],
            hooks=parents,
            instructions="parent",
        )

    async def run(self) -> RunResult:
        return await self.parent.run("Begin", check=False)

    @property
    def requests(self) -> list[int]:
        return [len(model.requests) for model in self.models]


async def test_without_hooks_the_whole_family_works() -> None:
    """The control of the tests below."""
    family = Family()
    result = await family.run()
    assert (family.requests, family.reached.bodies, result.text) == ([2, 2, 2], [1], "The parent is done.")


async def test_a_parents_gate_of_requests_holds_for_its_grandchildren() -> None:
    family = Family(
        Hook(seam="authorize_request", fn=lambda out: Block("Not you.") if out.request.system == "grandchild" else None)
    )
    result = await family.run()
    assert (family.requests, family.reached.bodies) == ([2, 2, 0], [])
    assert result.stop_reason == "completed"
    assert "Not you." in family.models[1].requests[1].messages[-1].text, "and the one who asked is told why"


async def test_a_parents_gate_of_text_holds_for_its_grandchildren() -> None:
    family = Family(Hook(seam="on_chunk", fn=lambda chunk: Drop() if "grandchild" in chunk.pending else None))
    await family.run()
    assert family.requests == [2, 2, 2]
    assert "grandchild" not in str([m.text for m in family.models[1].requests[1].messages])


async def test_a_parents_gate_of_messages_holds_for_its_grandchildren() -> None:
    family = Family(Hook(seam="on_message", fn=lambda m: Interrupt("Not this.") if "grandchild is" in m.message.text else None))
    result = await family.run()
    assert "The grandchild is done." not in str([m.text for m in family.models[1].requests[1].messages])
    assert result.stop_reason == "completed"


async def test_a_parents_shapers_of_calls_and_results_hold_for_its_grandchildren() -> None:
    family = Family(
        Hook(seam="prepare_tool_call", fn=lambda call: Replace(args={"n": 7}) if call.name == "look" else None),
        Hook(seam="after_tool_call", fn=lambda outcome: Replace(content="***") if outcome.name == "look" else None),
    )
    await family.run()
    assert family.reached.bodies == [7]
    assert family.models[2].requests[1].messages[-1].text == "***"


@pytest.mark.parametrize("seam", [s.name for s in BY_NAME.values() if s.number not in range(8, 14)])
async def test_a_parents_other_hooks_are_its_own(seam: str) -> None:
    loops: list[Any] = []
    family = Family(Hook(seam=seam, fn=lambda context: loops.append(context.run.run_id)))
    result = await family.run()
    assert set(loops) == ({result.run_id} if seam != "before_compaction" else set())
    assert family.requests == [2, 2, 2]


@pytest.mark.parametrize("seam", [s.name for s in BY_NAME.values() if s.number in range(8, 14)])
async def test_a_parents_hooks_are_asked_before_a_childs_whatever_their_order(seam: str) -> None:
    asked: dict[str, list[str]] = {}

    def says(name: str, order: int) -> Hook:
        return Hook(seam=seam, fn=lambda context: asked.setdefault(context.run.run_id, []).append(name), order=order)

    family = Family(says("parent", 10), children=[says("child", -10)])
    await family.run()
    [at_home] = [names for names in asked.values() if "child" in names]
    assert at_home == ["parent", "child"] * at_home.count("child"), "about each thing, in the run of the grandchild"
    assert len(asked) == 3, "the parent's hook is asked in every run of the family"


async def test_a_childs_hook_cannot_lift_what_its_parent_refuses() -> None:
    mock = Hook(seam="before_tool_call", fn=lambda _: Answer("Mocked."), order=-10)
    deny = Hook(seam="before_tool_call", fn=lambda call: Block("Denied.") if call.name == "look" else None, order=10)
    family = Family(deny, children=[mock])
    await family.run()
    assert family.reached.bodies == []
    assert family.models[2].requests[1].messages[-1].text == "Denied."
    alone = Family(children=[mock])
    await alone.run()
    assert alone.models[2].requests[1].messages[-1].text == "Mocked."


async def test_a_gate_may_keep_a_sub_agent_from_starting() -> None:
    family = Family(Hook(seam="before_tool_call", fn=lambda call: Block("Do it yourself."), tools=("child",)))
    await family.run()
    assert family.requests == [2, 0, 0]
    assert family.models[0].requests[1].messages[-1].text == "Do it yourself."


async def test_a_sub_agent_gets_the_prompt_that_a_hook_made_of_it() -> None:
    family = Family(Hook(seam="prepare_tool_call", fn=lambda call: Replace(args={"prompt": "Be careful."}), tools=("child",)))
    await family.run()
    assert family.models[1].requests[0].messages[0].text == "Be careful."


@pytest.mark.parametrize("inherit", [True, False])
async def test_a_child_that_does_not_inherit_is_governed_by_its_own_hooks_only(inherit: bool) -> None:
    family = Family(Hook(seam="before_tool_call", fn=lambda call: Block("Denied."), tools=("look",)), inherit=inherit)
    await family.run()
    assert family.reached.bodies == ([] if inherit else [1])


async def test_what_a_child_waived_its_own_children_cannot_get_back_from_the_grandparent() -> None:
    family = Family(
        Hook(seam="before_tool_call", fn=lambda call: Block("Denied."), tools=("look",)), inherit=False,
        children=[Hook(seam="before_tool_call", fn=lambda call: Block("Denied at home."), tools=("look",))],
    )  # fmt: skip
    await family.run()
    assert family.reached.bodies == []
    assert family.models[2].requests[1].messages[-1].text == "Denied at home."


async def test_one_hook_in_parent_and_child_is_asked_once_about_each_thing() -> None:
    asked: list[str] = []

    @hook.before_tool_call
    def watch(call: Any) -> None:
        asked.append(call.name)

    await Family(watch, children=[watch]).run()
    assert asked == ["child", "grand_child", "look"]


async def test_decisions_inside_a_sub_agent_are_on_the_parents_record() -> None:
    family = Family(Hook(seam="before_tool_call", fn=lambda call: Block("Denied."), tools=("look",), name="guard"))
    result = await family.run()
    assert [(d.hook, d.verdict, d.reason) for d in result.decisions] == [("guard", "Block", "Denied.")]
    assert result.decisions[0].run_id != result.run_id
    assert result.decisions[0].parent_call_id is not None
