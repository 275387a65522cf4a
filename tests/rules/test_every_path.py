"""There is no way to a tool's body, or out to a model, that does not lead through the gates."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, AssistantMessage, Block, Context, Edit, Hook, NothingToContinue, Replace, ToolCall,
    ToolContext, UserMessage, tool,
)  # fmt: skip
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call
from rules.reached import END, LOOK, Reached, delegate
from seams.stage import Stage

Path = Callable[[Reached, Sequence[Hook]], Awaitable[Any]]
"""Leads to `look` with n=1, once. Returns something with the messages of the run."""

PATHS: dict[str, Path] = {}


def path(name: str) -> Callable[[Path], Path]:
    def enter(walk: Path) -> Path:
        PATHS[name] = walk
        return walk

    return enter


@path("a call of the model")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    return await reached.agent([LOOK, END], *hooks).run("Begin")


@path("a parallel batch")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    @tool
    async def other() -> str:
        return "other"

    return await reached.agent([[tool_call("other"), LOOK, tool_call("other")], END], *hooks, tools=[other]).run("Begin")


@path("a batch in sequence")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    @tool
    async def other() -> str:
        return "other"

    return await reached.agent([[tool_call("other"), LOOK], END], *hooks, tools=[other], tool_mode="sequential").run("Begin")


@path("a streamed run of an agent")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    events = [event async for event in reached.agent([[text("Let me look."), LOOK], END], *hooks).stream("Begin")]
    return events[-1]


@path("a streamed run of a conversation")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    talk = reached.agent([LOOK, END], *hooks).conversation()
    async for _event in talk.stream("Begin"):
        pass
    assert talk.result is not None
    return talk.result


@path("arguments in many pieces")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    return await reached.agent([tool_call("look", chunks=['{"n', '": ', "1}"]), END], *hooks).run("Begin")


@path("a reply in one piece")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    agent = reached.agent([LOOK, END], *hooks)
    agent.plan.model.streams = False
    return await agent.run("Begin")


@path("an answer in the model's place")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    calls = AssistantMessage((ToolCall("c1", "look", '{"n": 1}'),))
    mock = Hook(seam="authorize_request", fn=lambda out: Answer(calls) if len(out.request.messages) == 1 else None)
    return await reached.agent([END], mock, *hooks).run("Begin")


@path("a nested call")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    return await reached.agent([tool_call("outer", {"name": "look"}), END], *hooks, tools=[outer]).run("Begin")


@path("a nested call in a nested call")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    @tool
    async def outermost(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("outer", {"name": "look"})).text)

    return await reached.agent([tool_call("outermost"), END], *hooks, tools=[outer, outermost]).run("Begin")


@tool
async def outer(ctx: ToolContext, name: str) -> str:
    return str((await ctx.call_tool(name, {"n": 1})).text)


@path("a sub-agent")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    child = reached.agent([LOOK, text("The child is done.")]).as_tool("child", "Looks.")
    return await Agent(model=ScriptedModel([delegate("child"), END]), tools=[child], hooks=hooks).run("Begin")


@path("a sub-agent of a sub-agent")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    grand_child = reached.agent([LOOK, text("The grandchild is done.")]).as_tool("grand_child", "Looks.")
    child = Agent(model=ScriptedModel([delegate("grand_child"), text("The child is done.")]), tools=[grand_child]).as_tool(
        "child", "Delegates."
    )
    return await Agent(model=ScriptedModel([delegate("child"), END]), tools=[child], hooks=hooks).run("Begin")


@path("a nested call in a sub-agent")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    child = reached.agent([tool_call("outer", {"name": "look"}), text("The child is done.")], tools=[outer]).as_tool(
        "child", "Looks."
    )
    return await Agent(model=ScriptedModel([delegate("child"), END]), tools=[child], hooks=hooks).run("Begin")


@path("a sub-agent started by a nested call")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    child = reached.agent([LOOK, text("The child is done.")]).as_tool("child", "Looks.")

    @tool
    async def start(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("child", {"prompt": "Look."})).text)

    return await Agent(model=ScriptedModel([tool_call("start"), END]), tools=[child, start], hooks=hooks).run("Begin")


@path("a sub-agent that is its own guard")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    """The child has the hooks of its parent among its own: they are asked once all the same."""
    child = reached.agent([LOOK, text("The child is done.")], *hooks).as_tool("child", "Looks.")
    return await Agent(model=ScriptedModel([delegate("child"), END]), tools=[child], hooks=hooks).run("Begin")


@path("a call that a person let pass")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    return await reached.agent([LOOK, END], asks_once(), *hooks, on_ask=lambda pending: Approve()).run("Begin")


@path("a call that a person changed")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    return await reached.agent(
        [tool_call("look", {"n": 2}), END], asks_once(), *hooks, on_ask=lambda pending: Edit({"n": 1})
    ).run("Begin")


@path("a resumed run")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    talk = reached.agent([[tool_call("look", {"n": 2}), LOOK], END], asks_about(2), *hooks).conversation()
    waiting = await talk.run("Begin")
    if not waiting.pending:
        return waiting
    return await talk.resume({waiting.pending[0].call_id: Approve()})


@path("a run resumed with other arguments")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    talk = reached.agent([tool_call("look", {"n": 2}), END], asks_about(2), *hooks).conversation()
    waiting = await talk.run("Begin")
    return await talk.resume({p.call_id: Edit({"n": 1}) for p in waiting.pending})


@path("a turn after a resumed one")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    talk = reached.agent([tool_call("look", {"n": 2}), LOOK, END], asks_about(2), *hooks).conversation()
    waiting = await talk.run("Begin")
    return await talk.resume({p.call_id: Approve() for p in waiting.pending})


@path("a streamed resumption")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    talk = reached.agent([tool_call("look", {"n": 2}), LOOK, END], asks_about(2), *hooks).conversation()
    waiting = await talk.run("Begin")
    if waiting.pending:
        await drained(talk.stream_resume({p.call_id: Approve() for p in waiting.pending}))
    return talk.result


@path("a resumed sub-agent")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    child = reached.agent([tool_call("look", {"n": 2}), LOOK, text("The child is done.")], asks_about(2)).as_tool(
        "child", "Looks."
    )
    talk = Agent(model=ScriptedModel([delegate("child"), END]), tools=[child], hooks=hooks).conversation()
    waiting = await talk.run("Begin")
    return await talk.resume({p.call_id: Approve() for p in waiting.pending})


@path("sub-agents side by side")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    one = reached.agent([LOOK, text("One is done.")]).as_tool("one", "Looks.")
    two = reached.agent([tool_call("look", {"n": 2}), text("Two is done.")]).as_tool("two", "Looks.")
    return await Agent(model=ScriptedModel([[delegate("one"), delegate("two")], END]), tools=[one, two], hooks=hooks).run("Begin")


@path("a continued run")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    talk = reached.agent([LOOK, END], *hooks).conversation([UserMessage("Begin")])
    return await talk.continue_run()


@path("a tool hidden from the model")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    hide = Hook(seam="before_provider_call", fn=lambda call: Replace(request=msgspec.structs.replace(call.request, tools=())))
    agent = reached.agent([LOOK, END], hide, *hooks)
    result = await agent.run("Begin")
    assert {request.tools for request in agent.plan.model.requests} <= {()}
    return result


@path("a tool that a hook brought along")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    add = Hook(seam="prepare_request", fn=lambda plan: Replace(context=Context("", plan.context.messages, (reached.look,))))
    return await Agent(model=ScriptedModel([LOOK, END]), hooks=[add, *hooks]).run("Begin")


@path("a call with a model of another class")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    replies = iter([LOOK, END])
    return await Agent(model=FunctionModel(lambda request: next(replies)), tools=[reached.look], hooks=hooks).run("Begin")


def asks_once() -> Hook:
    asked: list[None] = []
    return Hook(seam="before_tool_call", fn=lambda call: asked.append(None) or Ask("May it?") if not asked else None)


def asks_about(n: int) -> Hook:
    return Hook(seam="before_tool_call", fn=lambda call: Ask("May it?") if call.args["n"] == n else None)


def judging(seam: str, asked: list[int], decision: Any) -> Hook:
    """Judges each call of `look` with n=1, and counts how often it was asked."""

    def judge(context: Any) -> Any:
        call = getattr(context, "call", context)
        if call.args["n"] != 1:
            return None
        asked.append(call.args["n"])
        return decision

    return Hook(seam=seam, fn=judge, tools=("look",), name="judge")


@pytest.mark.parametrize("name", PATHS)
async def test_a_refused_call_reaches_no_body_whatever_its_path(name: str) -> None:
    asked: list[int] = []
    control = Reached()
    await PATHS[name](control, [judging("before_tool_call", [], None)])
    assert control.bodies.count(1) == 1, "the control: the path leads to the body"
    reached = Reached()
    await PATHS[name](reached, [judging("before_tool_call", asked, Block("Not this."))])
    assert (1 in reached.bodies, asked) == (False, [1]), "asked exactly once"


@pytest.mark.parametrize("name", PATHS)
async def test_a_failing_gate_lets_no_call_pass_whatever_its_path(name: str) -> None:
    def down(call: Any) -> None:
        if call.args["n"] == 1:
            raise OSError("the policy service is down")

    reached = Reached()
    await PATHS[name](reached, [Hook(seam="before_tool_call", fn=down, tools=("look",))])
    assert 1 not in reached.bodies


@pytest.mark.parametrize("name", PATHS)
async def test_arguments_are_shaped_and_results_redacted_whatever_the_path(name: str) -> None:
    shaped: list[int] = []
    redacted: list[int] = []
    reached = Reached()
    hooks = [judging("prepare_tool_call", shaped, Replace(args={"n": 7})), Hook(
        seam="after_tool_call", fn=lambda outcome: redacted.append(outcome.args["n"]) or Replace(content="***"), tools=("look",),
    )]  # fmt: skip
    result = await PATHS[name](reached, hooks)
    assert (1 in reached.bodies, 7 in reached.bodies, shaped, 7 in redacted) == (False, True, [1], True)
    assert "saw 7" not in str(result.messages)


@pytest.mark.parametrize("name", PATHS)
async def test_no_request_leaves_on_any_path_when_the_first_gate_refuses(name: str) -> None:
    reached = Reached()
    with contextlib.suppress(NothingToContinue):  # a path that waits for a person never gets that far
        await PATHS[name](reached, [Hook(seam="authorize_request", fn=lambda _: Block("Nothing leaves."))])
    assert reached.bodies == []


ENTRIES: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "run": lambda talk: talk.run("Begin"),
    "run without a prompt": lambda talk: talk.run([]),
    "continue_run": lambda talk: talk.continue_run(),
    "stream": lambda talk: drained(talk.stream("Begin")),
}


async def drained(events: Any) -> list[Any]:
    return [event async for event in events]


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_run_that_may_not_begin_does_not_begin_by_any_entry(entry: str) -> None:
    started: list[Any] = []
    control = Stage(Hook(seam="before_run", fn=started.append), messages=[UserMessage("Before.")])
    await ENTRIES[entry](control.talk)
    stage = Stage(Hook(seam="before_run", fn=lambda _: Block("Not today.")), messages=[UserMessage("Before.")])
    await ENTRIES[entry](stage.talk)
    assert (control.requests, len(started)) == (2, 1)
    assert [m.text for m in started[0].history] == ["Before."]
    assert (stage.requests, stage.history, stage.talk.result.stop_reason) == (0, [("user", "Before.")], "blocked")


# --- tools as objects ----------------------------------------------------------------------------


async def test_a_tool_cannot_be_called_and_says_how_to() -> None:
    reached = Reached()
    with pytest.raises(TypeError, match="is not called directly"):
        reached.look(n=1)
    with pytest.raises(TypeError, match="unguarded"):
        reached.look(1)
    assert reached.bodies == []
    assert await reached.look.unguarded(n=1) == "saw 1"
    assert reached.bodies == [1], "the named way round"


async def test_a_nested_call_of_an_unknown_or_ill_formed_kind_is_a_result_and_no_exception() -> None:
    heard: list[Any] = []

    @tool
    async def tries(ctx: ToolContext) -> str:
        heard.append(await ctx.call_tool("lock", {"n": 1}))
        heard.append(await ctx.call_tool("look", {"n": "many"}))
        heard.append(await ctx.call_tool("look", {"n": 1}))
        return "tried"

    reached = Reached()
    await reached.agent([tool_call("tries"), END], tools=[tries]).run("Begin")
    assert [(r.is_error, r.outcome) for r in heard] == [(True, "not_found"), (True, "invalid"), (False, "ran")]
    assert reached.bodies == [1]
