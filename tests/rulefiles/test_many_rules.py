"""Many rules about calls are one group of hooks, and nobody can tell but the clock."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from beforehand import Agent, Approve, Hook, ToolContext, tool
from beforehand.hooks.group import HookGroup, narrowed
from beforehand.rules import RuleSet
from beforehand.rules.bundle import ENOUGH
from beforehand.testing import ScriptedModel, text, tool_call
from rulefiles.kit import Rule, Said, rules_of, run

BLOCK = {"type": "block", "reason": "{{label}} says no"}


def about(label: str, *actions: dict[str, Any], **more: Any) -> Rule:
    return {"target": "tool", "event": "before", "label": label, **more, "actions": list(actions) or [BLOCK]}


def filler(count: int = ENOUGH) -> list[Rule]:
    """Rules that never fire."""
    return [about(f"filler{i}", args={"/path": {"equals": f"/never/{i}"}}) for i in range(count)]


def gates(rules: RuleSet) -> int:
    return sum(hook.seam == "before_tool_call" for hook in rules.hooks)


def test_many_neighbours_are_one_group_and_few_are_not(tmp_path: Path) -> None:
    assert gates(rules_of(tmp_path, *filler())) == 1
    assert gates(rules_of(tmp_path, *filler(ENOUGH - 1))) == ENOUGH - 1
    apart = [about("x", order=1), about("y", order=1), about("z", loops=["main"]), about("w", onError="open")]
    assert gates(rules_of(tmp_path, *filler(), *apart)) == 5
    together = [about("x", timeoutMs=50), about("y", {"type": "ask", "prompt": "?"})]
    assert gates(rules_of(tmp_path, *filler(), *together)) == 1


def test_a_group_is_listed_with_the_policy_of_its_rules(tmp_path: Path) -> None:
    (group,) = rules_of(tmp_path, *[about(f"r{n}", onError="open") for n in range(ENOUGH)]).hooks
    assert group.on_error == "open"


def test_a_bundle_is_confined_to_tools_if_all_of_its_rules_are(tmp_path: Path) -> None:
    named = [about(f"r{i}", tools=[f"tool_{i % 2}", "x*"]) for i in range(ENOUGH)]
    assert rules_of(tmp_path, *named).hooks[0].tools == ("tool_0", "x*", "tool_1")
    assert rules_of(tmp_path, *named, about("all")).hooks[0].tools == ()


@tool
async def read(path: str = "", amount: float = 0, flag: bool = False) -> str:
    """Read."""
    return "content"


async def test_the_record_names_the_rule_that_decided(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, *filler(), about("the one", args={"/path": {"regex": r"\.env$"}}), *filler())
    (hook,) = rules.hooks
    assert (hook.name, hook.where) == (f"{2 * ENOUGH + 1} rules", f"{tmp_path / 'rules.json'}:2 and {2 * ENOUGH} more")

    result, model, _ = await run(
        rules, [[tool_call("read", {"path": "a/.env"}), tool_call("read", {"path": "b"})], text("done")], tools=[read]
    )

    (record,) = result.decisions
    assert (record.hook, record.where, record.verdict, record.reason) == (
        "the one",
        f"{tmp_path / 'rules.json'}:{ENOUGH + 2}",
        "Block",
        "the one says no",
    )
    assert [message.text for message in model.requests[1].messages[-2:]] == ["the one says no", "content"]


async def test_the_strongest_refusal_of_several_rules_counts_and_all_of_them_fire_and_are_on_record(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(
        tmp_path,
        *filler(),
        about("stop", {"type": "interrupt"}),
        about("note", {"type": "log", "message": "{{name}}"}),
        about("first"),
        about("second"),
        voice=said,
    )
    result, model, _ = await run(rules, [tool_call("read"), text("done")], tools=[read])
    assert model.requests[1].messages[-1].text == "first says no"
    assert [(record.hook, record.verdict, record.reason) for record in result.decisions] == [
        ("stop", "Interrupt", f"rule 'stop' ({tmp_path / 'rules.json'}:{ENOUGH + 2})"),
        ("first", "Block", "first says no"),
        ("second", "Block", "second says no"),
    ]
    assert said.texts == ["read"]
    assert {about["label"] for about in rules.describe() if about["firings"]} == {"stop", "note", "first", "second"}


async def test_a_group_that_cannot_tell_which_rules_are_concerned_has_all_of_them_asked(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, *filler(), about("the one"))
    (group,) = rules.hooks
    assert isinstance(group, HookGroup)

    def broken(call: Any) -> Any:
        raise RuntimeError("no index")

    result, _, _ = await run([structs.replace(group, concerned=broken)], [tool_call("read"), text("done")], tools=[read])
    assert [record.hook for record in result.decisions] == ["the one"]


async def test_a_group_that_is_taken_for_a_hook_gives_the_strongest_of_its_decisions(tmp_path: Path) -> None:
    (group,) = rules_of(tmp_path, *filler(), about("stop", {"type": "interrupt"}), about("no")).hooks
    alone = Hook(seam="before_tool_call", fn=group.fn, name="group")
    result, model, _ = await run([alone], [tool_call("read"), text("done")], tools=[read])
    assert model.requests[1].messages[-1].text == "no says no"
    assert [(record.hook, record.verdict) for record in result.decisions] == [("group", "Block")]


async def test_a_person_is_asked_by_a_rule_among_many_and_cannot_lift_what_another_one_refuses(tmp_path: Path) -> None:
    asks = about("ask", {"type": "ask", "prompt": "May it read {{args}}?"})
    calls = [[tool_call("read", {"path": "a"}), tool_call("read", {"path": "/etc"})], text("done")]
    rules = rules_of(tmp_path, *filler(), asks, about("no", args={"/path": {"regex": "^/etc"}}))
    asked: list[str] = []

    def approve(pending: Any) -> Approve:
        asked.append(pending.prompt)
        return Approve()

    _, model, _ = await run(rules, calls, tools=[read], on_ask=approve)
    assert asked == ['May it read {"path":"a","amount":0.0,"flag":false}?']
    assert [message.text for message in model.requests[1].messages[-2:]] == ["content", "no says no"]


async def test_many_rules_of_a_parent_judge_the_calls_of_its_sub_agents_and_of_its_tools(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, *filler(), about("no", tools=["read"]))
    child_model = ScriptedModel([tool_call("read", {"path": "a"}), text("child done")])
    child = Agent(model=child_model, tools=[read], name="child")

    @tool
    async def outer(ctx: ToolContext) -> str:
        """Read through another tool."""
        return str((await ctx.call_tool("read", {"path": "b"})).outcome)

    script = [[tool_call("child", {"prompt": "go"}), tool_call("outer")], text("done")]
    _, model, _ = await run(rules, script, tools=[child.as_tool("child", "A helper."), outer, read])
    assert child_model.requests[1].messages[-1].text == "no says no"
    assert model.requests[1].messages[-1].text == "blocked"


CONDITIONS: list[dict[str, Any]] = [
    {"args": {"/path": {"equals": "/a"}}},
    {"args": {"/path": {"equals": 1}}},
    {"args": {"/path": {"equals": True}}},
    {"args": {"/path": {"equals": None}}},
    {"args": {"/path": {"equals": ["/a"]}}},
    {"args": {"/path": {"regex": "^/a"}}},
    {"args": {"/path": {"regex": "a$|b"}}},
    {"args": {"/path": {"regex": "(?i)B"}}},
    {"args": {"/amount": {"min": 1}}},
    {"args": {"/amount": {"max": 2}}},
    {"args": {"/amount": {"min": 1, "max": 1}}},
    {"args": {"/amount": {"equals": 1.0}}},
    {"args": {"/amount": {"min": 0}, "/path": {"regex": "a"}}},
    {"args": {"/deep/0/x": {"equals": "y"}}},
    {"args": {"": {"regex": "y"}}},
    {"args": {"/deep": {"regex": "y"}}},
    {"regex": "y"},
    {"regex": "^$"},
    {"regex": "/a", "args": {"/amount": {"max": 1}}},
    {},
    {"tools": ["re*"]},
    {"tools": ["other"]},
    {"maxTriggers": 1},
    {"maxTriggers": 0},
]
values = st.one_of(
    st.none(), st.booleans(), st.sampled_from([0, 1, 1.0, 2, "/a", "/ab", "b", "y", "", ["/a"], {"x": "y"}, [{"x": "y"}]])
)
arguments = st.dictionaries(st.sampled_from(["path", "amount", "deep", "y"]), values, max_size=3)


class Call:
    run = SimpleNamespace(_run=SimpleNamespace(journal=None, plan=SimpleNamespace(recovery=None)))

    def __init__(self, name: str, args: dict[str, Any]) -> None:
        self.name, self.args = name, args


@given(
    chosen=st.lists(st.sampled_from(range(len(CONDITIONS))), min_size=1, max_size=8),
    calls=st.lists(st.tuples(st.sampled_from(["read", "other"]), arguments), max_size=5),
)
def test_a_bundle_decides_what_its_rules_decide_one_by_one(chosen: list[int], calls: list[tuple[str, dict[str, Any]]]) -> None:
    definitions = [about(f"r{n}", {"type": "interrupt"} if c % 3 == 0 else BLOCK, **CONDITIONS[c]) for n, c in enumerate(chosen)]
    with tempfile.TemporaryDirectory() as folder:
        alone = rules_of(Path(folder), *definitions)
        together = rules_of(Path(folder), *definitions, *filler())
    (group,) = together.hooks
    assert isinstance(group, HookGroup)
    for name, args in calls:
        call = Call(name, args)
        wanted = [
            decision
            for single in alone.hooks
            if not single.tools or name in single.tools or (name == "read" and "re*" in single.tools)
            for decision in single.fn(call) or ()
        ]
        asked = narrowed([group], call)
        assert [hook.where for hook in asked] == [hook.where for hook in group.members if hook in asked]
        assert [getattr(decision, "reason", None) and type(decision) for hook in asked for decision in hook.fn(call) or ()] == [
            type(decision) for decision in wanted
        ]
    firings = [about["firings"] for about in together.describe()]
    assert firings[: len(chosen)] == [about["firings"] for about in alone.describe()]
    assert not any(firings[len(chosen) :])
