"""There is no way to a tool's body, or out to a model, that does not lead through the gates."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, AssistantMessage, Block, Context, Drop, Edit, Hook, Interrupt, Model, NothingToContinue, Replace, RequestBlocked,
    RunResult, Text, Tool, ToolCall,
    ToolContext, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.models.base import NO_CALL_INFO, Finish, TextDelta
from beforehand.seams import BY_NAME
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call
from seams.refusals import OLD
from seams.stage import Stage

END = text("The end.")


class Reached:
    """A tool `look` that writes down who reached its body, and agents that know it."""

    def __init__(self) -> None:
        self.bodies: list[int] = []

        @tool
        async def look(n: int) -> str:
            """Look at something."""
            self.bodies.append(n)
            return f"saw {n}"

        self.look = look

    def agent(self, replies: Sequence[Any], *hooks: Hook, tools: Sequence[Tool] = (), **agent: Any) -> Agent:
        return Agent(model=ScriptedModel(replies), tools=[*tools, self.look], hooks=hooks, **agent)


LOOK = tool_call("look", {"n": 1})

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
    child = Agent(model=ScriptedModel([delegate("grand_child"), text("The child is done.")]), tools=[grand_child]).as_tool("child", "Delegates.")
    return await Agent(model=ScriptedModel([delegate("child"), END]), tools=[child], hooks=hooks).run("Begin")


@path("a nested call in a sub-agent")
async def _(reached: Reached, hooks: Sequence[Hook]) -> Any:
    child = reached.agent([tool_call("outer", {"name": "look"}), text("The child is done.")], tools=[outer]).as_tool("child", "Looks.")
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
    return await reached.agent([tool_call("look", {"n": 2}), END], asks_once(), *hooks, on_ask=lambda pending: Edit({"n": 1})).run("Begin")


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


def delegate(name: str) -> Any:
    return tool_call(name, {"prompt": "Look."})


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


# --- sub-agents ----------------------------------------------------------------------------------


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
            model=self.models[0], tools=[child.as_tool("child", "Delegates.", inherit=inherit)], hooks=parents, instructions="parent"
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
    family = Family(Hook(seam="authorize_request", fn=lambda out: Block("Not you.") if out.request.system == "grandchild" else None))
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
    asked: list[str] = []

    def says(name: str, order: int) -> Hook:
        return Hook(seam=seam, fn=lambda context: asked.append(name) if context.run.parent_call_id else None, order=order)

    family = Family(says("parent", 10), children=[says("child", -10)])
    await family.run()
    assert "child" in asked
    assert [asked[i - 1] for i, name in enumerate(asked) if name == "child"] == ["parent"] * asked.count("child")


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


# --- requests ------------------------------------------------------------------------------------


async def test_every_request_passes_its_gate_and_says_of_which_kind_it_is() -> None:
    kinds: list[tuple[str, str]] = []
    watch = Hook(seam="authorize_request", fn=lambda out: kinds.append((out.kind, out.model.name)))
    stage = Stage(watch, messages=OLD, replies=[text("A summary."), text("All done.")])
    await stage.talk.compact(keep=2)
    await stage.run()
    assert kinds == [("compaction", "scripted"), ("turn", "scripted")]
    assert stage.requests == 2


async def test_a_compaction_whose_request_is_refused_loses_nothing() -> None:
    stage = Stage(Hook(seam="authorize_request", fn=lambda _: Block("Not today.")), messages=OLD, replies=[text("A summary.")])
    with pytest.raises(RequestBlocked, match=r"Not today\."):
        await stage.talk.compact(keep=2)
    assert (stage.requests, list(stage.talk.messages)) == (0, OLD)


async def test_a_compaction_whose_request_a_hook_answers_uses_its_summary() -> None:
    stage = Stage(Hook(seam="authorize_request", fn=lambda _: Answer("By the hook.")), messages=OLD, replies=[text("By the model.")])
    await stage.talk.compact(keep=2)
    assert (stage.requests, stage.history[0][1].endswith("By the hook.")) == (0, True)


async def test_a_model_class_of_ones_own_cannot_send_what_the_gate_refused() -> None:
    sent: list[Any] = []

    class Eager(Model):
        async def stream(self, request: Any, call: Any = NO_CALL_INFO) -> AsyncIterator[Any]:
            sent.append(request)
            yield TextDelta("Sent.")
            yield Finish()

    control = await Agent(model=Eager()).run("Begin")
    refused = await Agent(model=Eager(), hooks=[Hook(seam="authorize_request", fn=lambda _: Block("No."))]).run("Begin")
    assert (control.text, refused.text, refused.stop_reason, len(sent)) == ("Sent.", "", "blocked", 1)


async def test_a_hook_can_hide_a_tool_and_never_grant_one() -> None:
    """A tool that only the request tells of is no tool of the run."""
    reached = Reached()
    grant = Hook(seam="before_provider_call", fn=lambda call: Replace(request=msgspec.structs.replace(call.request, tools=(reached.look.spec,))))
    seen: list[Any] = []
    watch = Hook(seam="before_provider_call", fn=lambda call: seen.append(call.enabled_tools), order=1)
    agent = Agent(model=ScriptedModel([LOOK, END]), hooks=[grant, watch])
    result = await agent.run("Begin")
    assert reached.bodies == []
    assert "not found" in result.messages[2].text
    assert seen == [(), ()]


async def test_an_answer_in_the_models_place_passes_the_gates_of_text_and_messages() -> None:
    reply = AssistantMessage((Text("My PIN is 1234."),))
    chunks: list[tuple[str, bool]] = []
    stage = Stage(
        Hook(seam="authorize_request", fn=lambda _: Answer(reply)),
        Hook(seam="on_chunk", fn=lambda c: chunks.append((c.pending, c.final)) or Replace(text=c.pending.replace("1234", "****"))),
        Hook(seam="on_message", fn=lambda m: Replace(message=msgspec.structs.replace(m.message, content=(Text(m.message.text + "!"),)))
             if m.message.role == "assistant" else None),
    )  # fmt: skip
    await stage.run()
    assert chunks == [("My PIN is 1234.", True)]
    assert stage.shown == stage.result.text == "My PIN is ****.!"
