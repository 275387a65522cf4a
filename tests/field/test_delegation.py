"""Field cases F15, F17, F20, F36: a tool that starts a sub-agent is a tool like any other, and the same rules hold inside."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Deny, Edit, Hook, Interrupt, PendingApproval, Replace, Steer, Tool, ToolContext,
    tool,
)  # fmt: skip
from beforehand.testing import ScriptedModel, text, tool_call

from field.entries import Colour, Enter


def helper(model: ScriptedModel, tools: Any = (), hooks: Any = (), **options: Any) -> Tool:
    """A sub-agent as a tool."""
    return Agent(model=model, tools=tools, hooks=hooks).as_tool("helper", "Helps.", **options)


REFUSALS: dict[str, Any] = {
    "block": lambda c: Block("do it yourself"),
    "steer": lambda c: Steer("do it yourself"),
    "answer": lambda c: Answer("do it yourself"),
    "interrupt": lambda c: Interrupt("do it yourself", resend=True),
}


@pytest.mark.parametrize("way", list(REFUSALS))
async def test_f15_a_refused_delegation_never_starts_the_sub_agent(way: str, mode: str, enter: Enter, colour: Colour) -> None:
    child = ScriptedModel([text("never")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("I will")])
    gate = Hook(seam="before_tool_call", fn=colour(REFUSALS[way]), tools=("helper",))

    await enter(Agent(model=model, tools=[helper(child)], hooks=[gate], tool_mode=mode))

    assert child.requests == []
    assert "do it yourself" in model.requests[1].messages[-1].text


async def test_f15_a_refused_delegation_never_starts_from_inside_another_tool(enter: Enter, colour: Colour) -> None:
    child = ScriptedModel([text("never")])

    @tool
    async def outsource(ctx: ToolContext) -> str:
        answer = await ctx.call_tool("helper", {"prompt": "go"})
        return f"{answer.outcome}: {answer.text}"

    model = ScriptedModel([tool_call("outsource"), text("I will")])
    gate = Hook(seam="before_tool_call", fn=colour(lambda c: Block("do it yourself")), tools=("helper",))

    await enter(Agent(model=model, tools=[outsource, helper(child)], hooks=[gate]))

    assert child.requests == []
    assert model.requests[1].messages[-1].text == "blocked: do it yourself"


async def test_f15_a_refused_delegation_never_starts_from_inside_a_sub_agent(enter: Enter, colour: Colour) -> None:
    grandchild = ScriptedModel([text("never")])
    child = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("refused me")])
    middle = Agent(model=child, tools=[helper(grandchild)]).as_tool("middle", "Passes it on.")
    model = ScriptedModel([tool_call("middle", {"prompt": "go"}), text("end")])
    gate = Hook(seam="before_tool_call", fn=colour(lambda c: Block("do it yourself")), tools=("helper",))

    await enter(Agent(model=model, tools=[middle], hooks=[gate]))

    assert grandchild.requests == []
    assert child.requests[1].messages[-1].text == "do it yourself"


async def test_f15_the_same_delegation_starts_where_nobody_refuses(enter: Enter, colour: Colour) -> None:
    child = ScriptedModel([text("helped")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    gate = Hook(seam="before_tool_call", fn=colour(lambda c: Block("no")), tools=("other",))

    await enter(Agent(model=model, tools=[helper(child)], hooks=[gate]))

    assert [m.text for m in child.requests[0].messages] == ["go"]
    assert model.requests[1].messages[-1].text == "helped"


async def test_f17_a_sub_agent_gets_the_prompt_that_a_hook_wrote(mode: str, enter: Enter, colour: Colour) -> None:
    child = ScriptedModel([text("helped")])
    model = ScriptedModel([tool_call("helper", {"prompt": "book first class"}), text("end")])
    shaper = Hook(
        seam="prepare_tool_call", fn=colour(lambda c: Replace(args={"prompt": c.args["prompt"].replace("first", "tourist")}))
    )

    await enter(Agent(model=model, tools=[helper(child)], hooks=[shaper], tool_mode=mode))

    assert [m.text for m in child.requests[0].messages] == ["book tourist class"]


@pytest.mark.parametrize(
    "args", [{"prompt": {"a": 1}}, {}, {"prompt": "x", "mood": "good"}], ids=["wrong_type", "missing", "unknown"]
)
async def test_f17_arguments_the_delegation_cannot_take_are_refused_with_the_hooks_name(
    args: Any, enter: Enter, colour: Colour
) -> None:
    child = ScriptedModel([text("never")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("end")])
    shaper = Hook(seam="prepare_tool_call", fn=colour(lambda c: Replace(args=args)), name="rewriter")

    await enter(Agent(model=model, tools=[helper(child)], hooks=[shaper]))

    assert child.requests == []
    told = model.requests[1].messages[-1]
    assert told.is_error
    assert "rewriter" in told.text


async def test_f20_the_callers_hooks_see_every_call_inside_a_sub_agent_with_its_parent(enter: Enter, colour: Colour) -> None:
    seen: list[Any] = []

    @tool
    async def lookup(city: str) -> str:
        return f"{city}: rain"

    def note(seam: str) -> Hook:
        def fn(context: Any) -> None:
            seen.append((seam, getattr(context, "name", None), context.run.parent_call_id))

        return Hook(seam=seam, fn=colour(fn), name=seam)

    child = ScriptedModel([tool_call("lookup", {"city": "Bilbao"}, id="inner"), text("rain")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}, id="outer"), text("end")])
    seams = ("authorize_request", "prepare_tool_call", "before_tool_call", "after_tool_call")

    await enter(Agent(model=model, tools=[helper(child, [lookup])], hooks=[note(seam) for seam in seams]))

    assert seen == [
        ("authorize_request", None, None),
        ("prepare_tool_call", "helper", None),
        ("before_tool_call", "helper", None),
        ("authorize_request", None, "outer"),
        ("prepare_tool_call", "lookup", "outer"),
        ("before_tool_call", "lookup", "outer"),
        ("after_tool_call", "lookup", "outer"),
        ("authorize_request", None, "outer"),
        ("after_tool_call", "helper", None),
        ("authorize_request", None, None),
    ]


@pytest.mark.parametrize("opted_in", [False, True])
async def test_f20_a_listener_hears_a_sub_agent_only_if_it_opted_in_and_then_with_ids(opted_in: bool) -> None:
    @tool
    async def lookup() -> str:
        return "rain"

    child = ScriptedModel([tool_call("lookup", id="inner"), text("rain")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}, id="outer"), text("end")])
    talk = Agent(model=model, tools=[helper(child, [lookup], events=opted_in)]).conversation()
    heard: list[Any] = []
    talk.subscribe(heard.append)
    streamed = [event async for event in talk.stream("go")]

    assert streamed == heard
    inside = [e for e in heard if e.parent_call_id == "outer"]
    if not opted_in:
        assert inside == []
        return
    assert [e.type for e in inside][:2] == ["agent_start", "turn_start"]
    assert [e.type for e in inside][-2:] == ["turn_end", "agent_end"]
    assert [(e.call_id, e.name) for e in inside if e.type == "tool_execution_end"] == [("inner", "lookup")]
    ours = [e.type for e in heard]
    first, last = heard.index(inside[0]), heard.index(inside[-1])
    assert "tool_execution_start" in ours[:first]
    assert "tool_execution_end" in ours[last + 1 :]
    assert len({e.run_id for e in heard}) == 2


async def test_f20_decisions_inside_a_sub_agent_are_in_the_callers_records_with_the_parents_id(
    enter: Enter, colour: Colour
) -> None:
    @tool
    async def lookup() -> str:
        return "rain"

    child = ScriptedModel([tool_call("lookup", id="inner"), text("rain")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}, id="outer"), text("end")])
    gate = Hook(seam="before_tool_call", fn=colour(lambda c: Block("no")), tools=("lookup",), name="gate")

    result = await enter(Agent(model=model, tools=[helper(child, [lookup])], hooks=[gate]))

    assert [(d.hook, d.verdict, d.call_id, d.parent_call_id) for d in result.decisions] == [("gate", "Block", "inner", "outer")]


# --- F36: a person's three answers inside a sub-agent ---------------------------------------------

ANSWERS: dict[str, tuple[Any, list[str], str]] = {
    "approve": (Approve(), ["a@example.com"], "sent to a@example.com"),
    "deny": (Deny("not to them"), [], "not to them"),
    "edit": (Edit({"to": "b@example.com"}), ["b@example.com"], "sent to b@example.com"),
}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("asked_by", ["callers_hook", "sub_agents_hook"])
@pytest.mark.parametrize("answer", list(ANSWERS))
@pytest.mark.parametrize("inline", [False, True], ids=["suspended", "on_ask"])
async def test_f36_a_person_can_approve_deny_and_edit_a_call_inside_a_sub_agent(
    answer: str, asked_by: str, depth: int, inline: bool, mode: str, colour: Colour
) -> None:
    decision, expected_runs, expected_text = ANSWERS[answer]
    sent: list[str] = []
    shown: list[PendingApproval] = []

    @tool
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    def handler(pending: PendingApproval) -> Any:
        shown.append(pending)
        return decision

    approval = Hook(seam="before_tool_call", fn=colour(lambda c: Ask(f"Send to {c.args['to']}?")), tools=("send",))
    innermost = ScriptedModel([tool_call("send", {"to": "a@example.com"}), text("child is done")])
    inner = Agent(model=innermost, tools=[send], hooks=[approval] if asked_by == "sub_agents_hook" else [], tool_mode=mode)
    for level in range(depth - 1):
        passing_on = ScriptedModel([tool_call("helper", {"prompt": "go"}), text(f"level {level} is done")])
        inner = Agent(model=passing_on, tools=[inner.as_tool("helper", "Helps.")], tool_mode=mode)
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}, id="outer"), text("all done")])
    talk = Agent(
        model=model, tools=[inner.as_tool("helper", "Helps.")], tool_mode=mode, on_ask=handler if inline else None,
        hooks=[approval] if asked_by == "callers_hook" else [],
    ).conversation()  # fmt: skip

    result = await talk.run("go")
    if not inline:
        assert result.stop_reason == "suspended"
        assert sent == []
        shown += result.pending
        result = await talk.resume({shown[0].call_id: decision})

    assert [(p.name, dict(p.args), p.prompt) for p in shown] == [("send", {"to": "a@example.com"}, "Send to a@example.com?")]
    assert shown[0].parent_call_id is not None
    assert sent == expected_runs
    assert expected_text in innermost.requests[1].messages[-1].text
    assert result.stop_reason == "completed"
    assert result.text == "all done"
    assert len(model.requests) == 2


async def test_f36_an_edited_call_inside_a_sub_agent_passes_the_gates_again(colour: Colour) -> None:
    sent: list[str] = []

    @tool
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    hooks = [
        Hook(seam="before_tool_call", fn=colour(lambda c: Ask("Send?")), tools=("send",)),
        Hook(
            seam="before_tool_call",
            fn=colour(lambda c: Block("never to them") if "evil" in c.args["to"] else None),
            tools=("send",),
        ),
    ]
    child = ScriptedModel([tool_call("send", {"to": "a@example.com"}), text("child is done")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("all done")])
    talk = Agent(model=model, tools=[helper(child, [send])], hooks=hooks).conversation()

    suspended = await talk.run("go")
    await talk.resume({suspended.pending[0].call_id: Edit({"to": "evil@example.com"})})

    assert sent == []
    assert child.requests[1].messages[-1].text.startswith("never to them\n[A person changed the arguments")


async def test_f36_two_sub_agents_waiting_at_once_are_answered_one_by_one(colour: Colour) -> None:
    sent: list[str] = []

    @tool
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    def child(to: str, name: str) -> Tool:
        model = ScriptedModel([tool_call("send", {"to": to}, id="same"), text(f"{name} is done")])
        return Agent(model=model, tools=[send]).as_tool(name, "Helps.")

    approval = Hook(seam="before_tool_call", fn=colour(lambda c: Ask("Send?")), tools=("send",))
    model = ScriptedModel([[tool_call("one", {"prompt": "go"}), tool_call("two", {"prompt": "go"})], text("all done")])
    talk = Agent(model=model, tools=[child("a", "one"), child("b", "two")], hooks=[approval]).conversation()

    suspended = await talk.run("go")
    assert len({p.call_id for p in suspended.pending}) == 2, "a person must be able to tell the two calls apart"
    first, second = suspended.pending
    await talk.resume({first.call_id: Approve(), second.call_id: Deny("no")})

    assert sent == [first.args["to"]]


async def test_f36_a_call_inside_a_sub_agent_that_nobody_answers_is_refused_and_everything_goes_on() -> None:
    sent: list[str] = []

    @tool
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    approval = Hook(seam="before_tool_call", fn=lambda c: Ask("Send?"), tools=("send",))
    child = ScriptedModel([tool_call("send", {"to": "a"}), text("child is done")])
    model = ScriptedModel([tool_call("helper", {"prompt": "go"}), text("all done")])
    talk = Agent(model=model, tools=[helper(child, [send])], hooks=[approval]).conversation()

    await talk.run("go")
    result = await talk.resume({})

    assert sent == []
    assert "Nobody approved" in child.requests[1].messages[-1].text
    assert result.text == "all done"
