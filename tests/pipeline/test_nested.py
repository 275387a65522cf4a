"""A call from inside a tool: the same pipeline, its own events, and a result instead of an exception."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Deny, Edit, Hook, HookFailed, Interrupt, Limits, Replace, Steer, ToolContext,
    ToolResult, tool,
)  # fmt: skip
from beforehand.testing import ScriptedModel, text, tool_call


@tool
async def work(n: int = 1, how: str = "run") -> ToolResult:
    if how == "fail":
        raise ValueError("broken")
    return ToolResult(f"worked {n}", details={"n": n}, structured_content={"n": n}, terminate=True)


def script(body: Any) -> Any:
    """A tool whose body is `body(ctx)`."""

    async def script(ctx: ToolContext) -> Any:
        return await body(ctx)

    return tool(script)


async def run_script(body: Any, hooks: Any = (), tools: Any = (work,), **options: Any) -> Any:
    """Run `body(ctx)` inside a tool call with the id "outer"; returns the run's result, its model and its tool events."""
    model = ScriptedModel([tool_call("script", id="outer"), text("end")])
    talk = Agent(model=model, tools=[*tools, script(body)], hooks=hooks, **options).conversation()
    events: list[Any] = []
    for name in ("tool_execution_start", "tool_execution_end"):
        talk.on(name, events.append)
    return await talk.run("go", check=False), model, events


async def test_a_nested_call_returns_the_whole_result() -> None:
    got: list[Any] = []

    async def body(ctx: ToolContext) -> str:
        got.append(await ctx.call_tool("work", {"n": "7"}))
        return "done"

    result, model, _ = await run_script(body)

    (inner,) = got
    assert (inner.text, inner.details, inner.structured_content) == ("worked 7", {"n": 7}, {"n": 7})
    assert (inner.outcome, inner.is_error, inner.call_id) == ("ran", False, "outer/1")
    assert result.text == "end", "a nested result never ends the run, whatever it says"
    assert len(model.requests) == 2


async def test_nested_calls_have_events_with_their_parents_id_and_no_messages() -> None:
    async def inner(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("work", {})).text)

    async def body(ctx: ToolContext) -> str:
        await ctx.call_tool("work", {})
        return str((await ctx.call_tool("inner", {})).text)

    result, _model, events = await run_script(body, tools=[work, tool(name="inner")(inner)])

    assert [(e.type.removeprefix("tool_execution_"), e.name, e.call_id, e.parent_call_id) for e in events] == [
        ("start", "script", "outer", None),
        ("start", "work", "outer/1", "outer"),
        ("end", "work", "outer/1", "outer"),
        ("start", "inner", "outer/2", "outer"),
        ("start", "work", "outer/2/1", "outer/2"),
        ("end", "work", "outer/2/1", "outer/2"),
        ("end", "inner", "outer/2", "outer"),
        ("end", "script", "outer", None),
    ]
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]


REFUSALS: list[tuple[str, Any, str, str, bool]] = [
    # name, verdict at 12, outcome, text, is_error
    ("work", Block("no"), "blocked", "no", True),
    ("work", Steer("elsewhere"), "steered", "elsewhere", True),
    ("work", Answer("made up"), "answered", "made up", False),
    ("nobody", None, "not_found", "Tool nobody not found", True),
    ("work:bad", None, "invalid", "n", True),
    ("work:fail", None, "failed", "ValueError: broken", True),
    ("work", Ask("May it?"), "blocked", "May it?", True),
]


@pytest.mark.parametrize(("name", "verdict", "outcome", "told", "is_error"), REFUSALS, ids=[f"{r[0]}-{r[2]}" for r in REFUSALS])
async def test_a_nested_call_that_does_not_run_is_a_result_and_no_exception(
    name: str, verdict: Any, outcome: str, told: str, is_error: bool
) -> None:
    got: list[Any] = []
    args = {"work:bad": {"n": "x"}, "work:fail": {"how": "fail"}}.get(name, {})

    async def body(ctx: ToolContext) -> str:
        got.append(await ctx.call_tool(name.partition(":")[0], args))
        return "went on"

    _result, model, events = await run_script(body, [Hook(seam="before_tool_call", fn=lambda c: verdict, tools=("work",))])

    (inner,) = got
    assert (inner.outcome, inner.is_error) == (outcome, is_error)
    assert told in inner.text
    assert model.requests[1].messages[-1].text == "went on"
    assert [e.outcome for e in events if e.type == "tool_execution_end"] == [outcome, "ran"]


@pytest.mark.parametrize(("answer", "outcome", "told"), [
    (Approve(), "ran", "worked 1"), (Deny("no"), "blocked", "no"), (Edit({"n": 5}), "ran", "worked 5"),
    (None, "blocked", "Nobody approved"),
], ids=repr)  # fmt: skip
async def test_a_nested_call_asks_the_person_who_can_be_asked(answer: Any, outcome: str, told: str) -> None:
    got: list[Any] = []
    shown: list[Any] = []

    async def body(ctx: ToolContext) -> str:
        got.append(await ctx.call_tool("work", {}))
        return "went on"

    async def on_ask(pending: Any) -> Any:
        shown.append((pending.call_id, pending.parent_call_id, pending.name, dict(pending.args)))
        return answer

    hooks = [Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"), tools=("work",))]
    result, _model, _ = await run_script(body, hooks, on_ask=on_ask)

    assert shown == [("outer/1", "outer", "work", {"n": 1, "how": "run"})]
    assert got[0].outcome == outcome
    assert told in got[0].text
    assert result.text == "end"


async def test_nested_results_pass_seam_13() -> None:
    got: list[Any] = []

    async def body(ctx: ToolContext) -> str:
        got.append((await ctx.call_tool("work", {})).text)
        return "done"

    await run_script(body, [Hook(seam="after_tool_call", fn=lambda o: Replace(content=o.text.upper()), tools=("work",))])

    assert got == ["WORKED 1"]


async def test_nested_calls_may_run_at_the_same_time_and_keep_their_results_apart() -> None:
    together = asyncio.Barrier(3)

    @tool
    async def meet(n: int) -> str:
        await together.wait()
        return str(n)

    async def body(ctx: ToolContext) -> str:
        results = await asyncio.gather(*[ctx.call_tool("meet", {"n": n}) for n in range(3)])
        return " ".join([f"{r.call_id}={r.text}" for r in results])

    _, model, events = await run_script(body, tools=[meet])

    assert model.requests[1].messages[-1].text == "outer/1=0 outer/2=1 outer/3=2"
    assert len({e.call_id for e in events}) == 4


async def test_nested_calls_are_counted_among_the_calls_of_the_run() -> None:
    seen: list[Any] = []

    async def body(ctx: ToolContext) -> str:
        await ctx.call_tool("work", {})
        await ctx.call_tool("work", {})
        return "done"

    hooks = [Hook(seam="before_tool_call", fn=lambda c: seen.append(sum(r.name == "work" for r in c.run.calls)), tools=("work",))]
    await run_script(body, hooks)

    assert seen == [0, 1]


CIRCULAR: dict[str, Any] = {}
CIRCULAR["n"] = CIRCULAR


@pytest.mark.parametrize(
    "args",
    [None, [1], "x", 42, {"n": object()}, {"n": float("nan")}, {("n",): 1}, CIRCULAR],
    ids=["none", "list", "text", "number", "object", "nan", "tuple_key", "circular"],
)
async def test_nested_arguments_that_are_no_object_are_a_refusal_too(args: Any) -> None:
    got: list[Any] = []

    async def body(ctx: ToolContext) -> str:
        got.append(await ctx.call_tool("work", args))
        return "went on"

    _, model, _ = await run_script(body)

    assert [(r.outcome, r.is_error) for r in got] == [("invalid", True)]
    assert model.requests[1].messages[-1].text == "went on"


async def test_nested_arguments_may_be_given_as_json_text() -> None:
    async def body(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("work", '{"n": 3}')).text)  # type: ignore[arg-type]

    _, model, _ = await run_script(body)

    assert model.requests[1].messages[-1].text == "worked 3"


@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call", "after_tool_call"])
@pytest.mark.parametrize("swallowed", [False, True], ids=["returned", "swallowed"])
async def test_a_hook_that_aborts_the_run_does_so_from_a_nested_call_too(seam: str, swallowed: bool) -> None:
    def fail(context: Any) -> None:
        raise RuntimeError("policy is down")

    async def body(ctx: ToolContext) -> str:
        inner = await ctx.call_tool("work", {})
        return "nothing happened" if swallowed else str(inner.text)

    result, model, _ = await run_script(body, [Hook(seam=seam, fn=fail, tools=("work",), on_error="abort")])

    assert isinstance(result.error, HookFailed)
    assert len(model.requests) == 1
    assert result.messages[-2].role == "tool"


async def test_an_interrupt_at_a_nested_call_ends_the_run() -> None:
    async def body(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("work", {})).outcome)

    result, model, _ = await run_script(body, [Hook(seam="before_tool_call", fn=lambda c: Interrupt("enough"), tools=("work",))])

    assert (result.stop_reason, result.reason, len(model.requests)) == ("interrupted", "enough", 1)
    assert result.messages[-1].text == "blocked"


@pytest.mark.parametrize("where", ["gate", "body", "after"])
async def test_every_announced_call_is_concluded_when_an_abort_cuts_a_nested_one(where: str) -> None:
    reached = asyncio.Event()

    async def hang(context: Any = None) -> Any:
        reached.set()
        await asyncio.Event().wait()

    @tool
    async def inner() -> str:
        if where == "body":
            await hang()
        return "inner"

    async def body(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("inner", {})).outcome)

    seam = {"gate": "before_tool_call", "after": "after_tool_call"}.get(where)
    hooks = [Hook(seam=seam, fn=hang, tools=("inner",))] if seam else []
    model = ScriptedModel([tool_call("script", id="outer")])
    talk = Agent(model=model, tools=[inner, script(body)], hooks=hooks, limits=Limits(abort_grace=0.01)).conversation()
    announced: list[str] = []
    concluded: list[str] = []
    talk.on("tool_execution_start", lambda e: announced.append(e.call_id))
    talk.on("tool_execution_end", lambda e: concluded.append(e.call_id))
    running = asyncio.create_task(talk.run("go"))
    await reached.wait()
    talk.abort()
    result = await running

    assert result.stop_reason == "aborted"
    assert sorted(concluded) == sorted(announced) == ["outer", "outer/1"]


async def test_a_nested_call_after_an_abort_does_not_run() -> None:
    ran: list[int] = []

    @tool
    async def inner() -> str:
        ran.append(1)
        return "inner"

    got: list[Any] = []

    async def body(ctx: ToolContext) -> str:
        talk.abort()
        got.append(await ctx.call_tool("inner", {}))
        return "done"

    model = ScriptedModel([tool_call("script", id="outer")])
    talk = Agent(model=model, tools=[inner, script(body)]).conversation()
    result = await talk.run("go")

    assert ran == []
    assert [r.outcome for r in got] == ["aborted"]
    assert (result.stop_reason, result.messages[-1].text) == ("aborted", "done")


async def test_a_nested_call_made_after_its_parent_is_done_is_refused_or_runs_through_the_gates() -> None:
    asked: list[str] = []
    contexts: list[ToolContext] = []

    async def body(ctx: ToolContext) -> str:
        contexts.append(ctx)
        return "done"

    await run_script(body, [Hook(seam="before_tool_call", fn=lambda c: asked.append(c.name))])
    late = await contexts[0].call_tool("work", {})

    assert late.outcome != "ran" or asked[-1] == "work"


@pytest.mark.parametrize("heard", [False, True])
async def test_an_abort_reaches_a_tool_that_waits_after_a_nested_call_that_had_to_wait(heard: bool) -> None:
    waiting = asyncio.Event()

    @tool
    async def pause() -> str:
        """Let others work."""
        await asyncio.sleep(0)
        return "done"

    @tool
    async def outer(ctx: ToolContext) -> None:
        """Call another, then wait for ever."""
        await ctx.call_tool("pause", {})
        waiting.set()
        await asyncio.Event().wait()

    agent = Agent(
        model=ScriptedModel([tool_call("outer"), text("end")]), tools=[pause, outer], limits=Limits(abort_grace=0),
        listeners=[lambda event: None] if heard else [],
    )  # fmt: skip
    talk = agent.conversation()
    running = asyncio.ensure_future(talk.run("go"))
    await waiting.wait()
    talk.abort()
    result = await asyncio.wait_for(running, 30)
    assert result.stop_reason == "aborted"
    assert [message.outcome for message in result.messages if message.role == "tool"] == ["aborted"]
