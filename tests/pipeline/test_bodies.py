"""Bodies: what they return and raise, where they run, how long they may take, and what they are handed."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import threading
from typing import Any

import msgspec
import pytest

from beforehand import Agent, Hook, Image, Limits, Replace, Text, ToolContext, ToolMessage, ToolResult, Usage, tool
from beforehand.testing import ScriptedModel, text, tool_call

from pipeline.paths import call_through
from pipeline.virtual_time import in_virtual_time

# --- what they return -----------------------------------------------------------------------------


class Seat(msgspec.Struct):
    train: int
    tags: list[str]


@dataclasses.dataclass
class Stop:
    city: str


PIXEL = Image(data="AAAA")

RESULTS: list[tuple[Any, Any, Any]] = [
    # returned, content the model reads, structured content
    ("text", "text", None),
    ("", "", None),
    (None, "", None),
    (42, "42", None),
    (True, "true", None),
    (1.5, "1.5", None),
    ({"a": [1, {"b": None}]}, '{"a":[1,{"b":null}]}', {"a": [1, {"b": None}]}),
    ([1, 2], "[1,2]", [1, 2]),
    ([], "[]", []),
    ((1, "x"), '[1,"x"]', [1, "x"]),
    (Seat(7, ["window"]), '{"train":7,"tags":["window"]}', {"train": 7, "tags": ["window"]}),
    ([Stop("Bilbao")], '[{"city":"Bilbao"}]', [{"city": "Bilbao"}]),
    (Text("part"), (Text("part"),), None),
    (PIXEL, (PIXEL,), None),
    ([Text("look:"), PIXEL], (Text("look:"), PIXEL), None),
    (ToolResult("whole"), "whole", None),
    (ToolResult([Text("a"), PIXEL]), (Text("a"), PIXEL), None),  # type: ignore[arg-type]
    (ToolResult("t", structured_content={"x": Seat(1, [])}), "t", {"x": {"train": 1, "tags": []}}),
    (float("nan"), "null", None),
]


@pytest.mark.parametrize(("returned", "content", "structured"), RESULTS, ids=repr)
async def test_what_a_body_returns_becomes_a_result(returned: Any, content: Any, structured: Any, path: str) -> None:
    async def body() -> Any:
        return returned

    end = await call_through(path, "body", {}, [tool(body)])

    assert (end.outcome, end.is_error) == ("ran", False)
    assert end.result.content == content
    assert end.result.structured_content == structured


@pytest.mark.parametrize(
    "returned", [object(), {"a": object()}, b"bytes", {1, object()}, lambda: None], ids=lambda v: type(v).__name__
)
async def test_a_value_that_no_model_can_read_fails_the_call_and_says_what_may_be_returned(returned: Any, path: str) -> None:
    async def body() -> Any:
        return returned

    end = await call_through(path, "body", {}, [tool(body)])

    assert (end.outcome, end.is_error) == ("failed", True)
    assert "return text" in end.result.text


async def test_details_are_for_people_and_stay_with_the_stored_message(path: str) -> None:
    async def body() -> ToolResult:
        return ToolResult("seen by the model", details={"rows": [1, 2]})

    end = await call_through(path, "body", {}, [tool(body)])

    assert end.result.details == {"rows": [1, 2]}
    with pytest.raises(TypeError):
        end.result.details["rows"].append(3)


async def test_details_and_usage_are_stored_with_the_message_and_usage_is_counted() -> None:
    async def body() -> ToolResult:
        return ToolResult("ok", details={"n": 1}, usage=Usage(10, 5))

    result = await Agent(model=ScriptedModel([tool_call("body"), text("end")]), tools=[tool(body)]).run("go")

    stored = next(m for m in result.messages if isinstance(m, ToolMessage))
    assert (stored.details, stored.usage) == ({"n": 1}, Usage(10, 5))
    assert (result.usage.input_tokens, result.usage.output_tokens) == (10, 5)


@pytest.mark.parametrize(
    "details", [{(1, 2): "x"}, {"o": object()}, {1, 2}, {"n": float("inf")}], ids=["keys", "object", "set", "inf"]
)
async def test_details_that_no_json_can_hold_never_harm_the_run_even_if_a_hook_decides_about_them(
    details: Any, path: str
) -> None:
    async def body() -> ToolResult:
        return ToolResult("ok", details=details)

    hook = Hook(seam="after_tool_call", fn=lambda o: Replace(content="rewritten"), tools=("body",))
    end = await call_through(path, "body", {}, [tool(body)], [hook])

    assert (end.outcome, end.result.text) == ("ran", "rewritten")


# --- what they raise ------------------------------------------------------------------------------


class Odd(BaseException):
    """Not an Exception."""


class Silent(Exception):
    def __str__(self) -> str:
        return ""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be shown")


RAISED: list[tuple[BaseException, str]] = [
    (ValueError("broken"), "ValueError: broken"),
    (Silent(), "Silent"),
    (KeyError("x"), "KeyError"),
    (StopIteration("x"), "StopIteration"),
    (StopAsyncIteration("x"), "StopAsyncIteration"),
    (asyncio.CancelledError("mine"), "CancelledError"),
    (TimeoutError("mine"), "TimeoutError"),
    (SystemExit(3), "SystemExit: 3"),
    (Odd("odd"), "Odd: odd"),
    (RecursionError("deep"), "RecursionError"),
    (ExceptionGroup("several", [ValueError("a"), KeyError("b")]), "several"),
    (BaseExceptionGroup("several", [Odd("a")]), "several"),
    (AssertionError("no"), "AssertionError: no"),
    (Unprintable(), "Unprintable"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "told"), RAISED, ids=[type(e).__name__ for e, _ in RAISED])
@pytest.mark.parametrize("kind", ["async", "sync", "async_timeout"])
@pytest.mark.parametrize("listened", [False, True], ids=["unheard", "heard"])
async def test_whatever_a_body_raises_is_the_result_of_that_call_and_the_run_goes_on(
    error: BaseException, told: str, kind: str, listened: bool
) -> None:
    async def raises() -> str:
        raise error

    def raises_in_a_thread() -> str:
        raise error

    body = raises_in_a_thread if kind == "sync" else raises
    made = tool(name="body", timeout=30 if kind == "async_timeout" else None)(body)
    model = ScriptedModel([[tool_call("body"), tool_call("body")], text("end")])
    talk = Agent(model=model, tools=[made]).conversation()
    ends: list[str] = []
    if listened:
        talk.on("tool_execution_end", lambda e: ends.append(e.outcome))
    result = await talk.run("go")

    results = [m for m in result.messages if isinstance(m, ToolMessage)]
    assert [m.is_error for m in results] == [True, True]
    assert all(told in m.text for m in results)
    assert result.text == "end"
    assert ends == (["failed", "failed"] if listened else [])


async def test_a_body_that_raises_is_seen_by_hooks_like_one_that_reports_an_error(path: str) -> None:
    seen: list[Any] = []

    async def body() -> str:
        raise ValueError("DNI 12345678Z is wrong")

    def redact(outcome: Any) -> Replace:
        seen.append((outcome.outcome, outcome.is_error))
        return Replace(content=outcome.text.replace("12345678Z", "***"))

    end = await call_through(path, "body", {}, [tool(body)], [Hook(seam="after_tool_call", fn=redact, tools=("body",))])

    assert seen == [("failed", True)]
    assert end.result.text == "ValueError: DNI *** is wrong"


async def test_a_keyboard_interrupt_is_the_programs_and_leaves_a_valid_history() -> None:
    def body() -> str:
        raise KeyboardInterrupt

    model = ScriptedModel([tool_call("body"), text("end")])
    talk = Agent(model=model, tools=[tool(body)]).conversation()
    try:
        await talk.run("go")
    except KeyboardInterrupt:
        pass

    assert not talk.is_running
    assert talk.messages[2].role == "tool"


# --- where they run -------------------------------------------------------------------------------


async def test_a_sync_body_runs_in_a_thread_and_the_loop_stays_free() -> None:
    proceed = threading.Event()
    threads: list[Any] = []

    @tool
    def blocking() -> str:
        threads.append(threading.current_thread())
        assert proceed.wait(30)
        return "done"

    @tool
    async def releases() -> str:
        proceed.set()
        return "released"

    model = ScriptedModel([[tool_call("blocking"), tool_call("releases")], text("end")])
    result = await Agent(model=model, tools=[blocking, releases]).run("go")

    assert [m.text for m in result.messages if m.role == "tool"] == ["done", "released"]
    assert threads[0] is not threading.main_thread()


async def test_sync_bodies_of_one_reply_run_at_the_same_time() -> None:
    together = threading.Barrier(3)

    @tool
    def meet() -> str:
        together.wait(30)
        return "met"

    model = ScriptedModel([[tool_call("meet") for _ in range(3)], text("end")])
    result = await Agent(model=model, tools=[meet]).run("go")

    assert [m.text for m in result.messages if m.role == "tool"] == ["met"] * 3


async def test_bodies_see_the_context_variables_of_the_caller() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @tool
    def in_a_thread() -> str:
        return variable.get()

    @tool
    async def in_a_task() -> str:
        return variable.get()

    variable.set("set by the caller")
    model = ScriptedModel([[tool_call("in_a_thread"), tool_call("in_a_task")], text("end")])
    result = await Agent(model=model, tools=[in_a_thread, in_a_task]).run("go")

    assert [m.text for m in result.messages if m.role == "tool"] == ["set by the caller"] * 2


class Station:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool
    async def board(self, train: int) -> str:
        return f"{self.name} {train}"

    @tool
    def leave(self, ctx: ToolContext, train: int) -> str:
        return f"{ctx.tool_name} {self.name} {train}"


class Caller:
    async def __call__(self, train: int) -> str:
        return f"called {train}"


def add(a: int, b: int) -> int:
    return a + b


async def test_methods_callable_objects_and_partials_are_bodies_too() -> None:
    station = Station("Abando")
    tools = [station.board, station.leave, tool(name="caller")(Caller()), tool(name="plus_one")(functools.partial(add, 1))]
    calls = [
        tool_call("board", {"train": 7}), tool_call("leave", {"train": 8}), tool_call("caller", {"train": 9}),
        tool_call("plus_one", {"b": 1}),
    ]  # fmt: skip
    result = await Agent(model=ScriptedModel([calls, text("end")]), tools=tools).run("go")

    assert [m.text for m in result.messages if m.role == "tool"] == ["Abando 7", "leave Abando 8", "called 9", "2"]


async def test_a_tool_is_not_called_around_its_gates_by_accident() -> None:
    @tool
    async def pay() -> str:
        return "paid"

    with pytest.raises(TypeError, match="unguarded"):
        pay()
    assert await pay.unguarded() == "paid"


# --- how long they may take -----------------------------------------------------------------------


@pytest.mark.parametrize("set_by", ["tool", "limits", "tool_over_limits"])
def test_an_async_body_that_takes_too_long_is_cancelled_and_the_model_is_told(set_by: str) -> None:
    cancelled: list[bool] = []

    async def slow() -> str:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return "late"

    limit = {"tool": 5.0, "limits": None, "tool_over_limits": 5.0}[set_by]
    limits = Limits(tool_timeout={"tool": None, "limits": 5.0, "tool_over_limits": 1000.0}[set_by])
    model = ScriptedModel([tool_call("slow"), text("end")])
    result = in_virtual_time(Agent(model=model, tools=[tool(timeout=limit)(slow)], limits=limits).run("go"))

    stored = next(m for m in result.messages if m.role == "tool")
    assert stored.is_error
    assert "within 5 s" in stored.text
    assert cancelled == [True]
    assert result.text == "end"


def test_a_body_that_is_in_time_is_not_touched() -> None:
    async def slow() -> str:
        await asyncio.sleep(599)
        return "in time"

    model = ScriptedModel([tool_call("slow"), text("end")])
    result = in_virtual_time(Agent(model=model, tools=[tool(timeout=600)(slow)]).run("go"))

    assert result.messages[2].text == "in time"


async def test_a_sync_body_that_takes_too_long_is_left_behind_and_its_late_result_is_discarded() -> None:
    release, returned = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def slow() -> str:
        assert release.wait(30)
        returned.set()
        return "late"

    model = ScriptedModel([tool_call("slow"), text("end"), text("again")])
    talk = Agent(model=model, tools=[slow]).conversation()
    ends: list[Any] = []
    talk.on("tool_execution_end", lambda e: ends.append(e.outcome))
    await talk.run("go")
    release.set()
    assert await asyncio.to_thread(returned.wait, 30)
    await talk.run("and now?")

    assert ends == ["timed_out"]
    assert "late" not in [m.text for m in talk.messages]


async def test_a_body_that_returns_after_its_time_although_it_was_cancelled_is_discarded() -> None:
    let_go, returned = asyncio.Event(), asyncio.Event()

    @tool(timeout=0.01)
    async def deaf() -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        returned.set()
        return "late"

    model = ScriptedModel([tool_call("deaf"), text("end")])
    talk = Agent(model=model, tools=[deaf]).conversation()
    result = await talk.run("go")
    let_go.set()
    await returned.wait()

    assert result.text == "end"
    assert "within 0.01 s" in talk.messages[2].text
    assert "late" not in [m.text for m in talk.messages]


async def test_an_async_body_in_a_sync_wrapper_has_as_long_as_any_other() -> None:
    ended = asyncio.Event()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "late"

    @tool(timeout=0.01)
    @functools.wraps(work)
    def wrapped() -> Any:
        return work()

    model = ScriptedModel([tool_call("work"), text("end")])
    talk = Agent(model=model, tools=[wrapped]).conversation()
    ends: list[Any] = []
    talk.on("tool_execution_end", lambda e: ends.append(e.outcome))
    await talk.run("go")

    assert ends == ["timed_out"]
    assert "within 0.01 s" in talk.messages[2].text
    await ended.wait()


async def test_a_timeout_of_one_call_leaves_its_siblings_alone() -> None:
    timed_out = asyncio.Event()

    @tool(timeout=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "late"

    @tool
    async def patient() -> str:
        await timed_out.wait()
        return "patient"

    model = ScriptedModel([[tool_call("slow"), tool_call("patient")], text("end")])
    talk = Agent(model=model, tools=[slow, patient]).conversation()
    talk.on("tool_execution_end", lambda e: timed_out.set())
    result = await talk.run("go")

    assert [m.text == "patient" for m in result.messages if m.role == "tool"] == [False, True]


# --- what they are handed -------------------------------------------------------------------------


async def test_deps_reach_every_hook_and_every_tool_and_are_the_callers_own_object() -> None:
    seen: list[Any] = []
    deps = object()

    @tool
    async def body(ctx: ToolContext) -> str:
        seen.append(("tool", ctx.deps))
        return "done"

    def note(seam: str) -> Hook:
        return Hook(seam=seam, fn=lambda context: seen.append((seam, context.run.deps)))

    seams = ("before_run", "before_turn", "prepare_request", "authorize_request", "on_chunk", "before_tool_call", "after_turn")
    agent = Agent(model=ScriptedModel([tool_call("body"), text("end")]), tools=[body], hooks=[note(seam) for seam in seams])
    await agent.run("go", deps=deps)

    assert {name for name, _ in seen} == {"tool", *seams}
    assert all(given is deps for _, given in seen)


async def test_deps_reach_nested_calls_and_sub_agents(path: str) -> None:
    seen: list[Any] = []

    @tool
    async def body(ctx: ToolContext) -> str:
        seen.append(ctx.deps)
        return "done"

    @tool
    async def script(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("body", {})).text)

    child = Agent(model=ScriptedModel([tool_call("body"), text("end")]), tools=[body]).as_tool("child", "Helps.")
    name, args = {"nested": ("script", {}), "sub_agent": ("child", {"prompt": "go"})}.get(path, ("body", {}))
    agent = Agent(model=ScriptedModel([tool_call(name, args), text("end")]), tools=[body, script, child])
    await agent.run("go", deps="the deps")

    assert seen == ["the deps"]


async def test_each_run_has_deps_of_its_own() -> None:
    seen: list[Any] = []

    @tool
    async def body(ctx: ToolContext) -> str:
        seen.append(ctx.deps)
        return "done"

    model = ScriptedModel([tool_call("body"), text("end"), tool_call("body"), text("end")])
    talk = Agent(model=model, tools=[body]).conversation()
    await talk.run("one", deps=1)
    await talk.run("two")

    assert seen == [1, None]


async def test_the_idempotency_key_is_one_for_each_call_and_the_same_for_each_attempt_at_it() -> None:
    keys: list[str] = []

    @tool
    async def pay(ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        return "paid"

    @tool
    async def script(ctx: ToolContext) -> str:
        await ctx.call_tool("pay", {})
        await ctx.call_tool("pay", {})
        return "done"

    def agent() -> Agent:
        script_ = [[tool_call("pay", id="1"), tool_call("pay", id="2")], tool_call("script", id="3"), text("end")]
        return Agent(model=ScriptedModel(script_), tools=[pay, script])

    await agent().run("go", run_id="the run")
    first = list(keys)
    keys.clear()
    await agent().run("go", run_id="the run")
    again = list(keys)
    keys.clear()
    await agent().run("go", run_id="another run")

    assert len(set(first)) == 4
    assert again == first
    assert set(keys).isdisjoint(first)


async def test_a_body_knows_its_call_its_name_and_its_run() -> None:
    seen: list[Any] = []

    @tool(name="named")
    async def body(ctx: ToolContext) -> str:
        seen.append((ctx.call_id, ctx.tool_name, ctx.run.run_id, ctx.run.turn, ctx.signal.aborted))
        return "done"

    await Agent(model=ScriptedModel([tool_call("named", id="c"), text("end")]), tools=[body]).run("go", run_id="r")

    assert seen == [("c", "named", "r", 1, False)]
