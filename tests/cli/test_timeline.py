"""The timeline shows what happened, in the order it happened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from beforehand import Agent, Block, Drop, Interrupt, Queue, Replace, ToolContext, hook, tool
from beforehand.cli.printer import Printer
from beforehand.cli.timeline import Row, Timeline
from beforehand.events import CustomEvent, MessageRetracted, ToolExecutionEnd, ToolExecutionStart
from beforehand.frozen import FrozenDict
from beforehand.testing import ScriptedModel, error, text, thinking, tool_call
from beforehand.tools import ToolResult


async def rows_of(*responses: Any, tools: Sequence[Any] = (), hooks: Sequence[Any] = (), streamed: bool = False) -> list[Row]:
    """The rows of a run with this script."""
    timeline = Timeline(streamed=streamed)
    agent = Agent(model=ScriptedModel([*responses, text("done")]), tools=tools, hooks=hooks, listeners=[timeline])
    await agent.run("go", check=False)
    return timeline.take()


def told(rows: list[Row]) -> list[str]:
    return [f"{row.kind}: {row.title}: {row.text}".removesuffix(": ") for row in rows]


@tool
async def inner(name: str) -> str:
    """Say hello."""
    return f"hello {name}"


@tool
async def outer(ctx: ToolContext) -> str:
    """Let another tool say hello."""
    ctx.update("half way")
    return (await ctx.call_tool("inner", {"name": "Ana"})).content


@hook.before_tool_call(tools=["inner"])
def no_inner(call: Any) -> Block:
    return Block("not inside")


@hook.after_tool_call(tools=["inner"])
def louder(outcome: Any) -> Replace:
    return Replace(content=outcome.text.upper())


async def test_a_nested_call_stands_inside_the_tool_that_made_it() -> None:
    rows = told(await rows_of(tool_call("outer"), tools=[outer, inner], hooks=[louder]))
    assert rows[2:-2] == [
        "event: model asks for: outer()",
        "code: outer: the tool runs",
        "event: outer reports: half way",
        'event: outer asks for: inner(name="Ana")',
        "code: inner: the tool runs",
        "hook: louder: after_tool_call: Replace",
        "event: the tool reads: HELLO ANA",
        "event: model reads: HELLO ANA",
        "turn: turn 2",
    ]


async def test_a_refused_nested_call_has_no_row_of_code() -> None:
    rows = told(await rows_of(tool_call("outer"), tools=[outer, inner], hooks=[no_inner]))
    assert "hook: no_inner: before_tool_call: Block: not inside" in rows
    assert "event: the tool reads (blocked): not inside" in rows
    assert "code: inner: the tool runs" not in rows


async def test_what_a_hook_says_after_the_body_follows_the_body_in_a_parallel_batch_too() -> None:
    second_ran = asyncio.Event()

    @tool
    async def first() -> str:
        """Wait for the second."""
        await second_ran.wait()
        return "one"

    @tool
    async def second() -> str:
        """Go ahead."""
        second_ran.set()
        return "two"

    @hook.after_tool_call
    def seen(outcome: Any) -> Replace:
        return Replace(details="seen")

    batch = [tool_call("first"), tool_call("second")]
    rows = [(row.kind, row.title) for row in await rows_of(batch, tools=[first, second], hooks=[seen])]
    bodies = [i for i, row in enumerate(rows) if row[0] == "code"]
    assert [rows[i + 1] for i in bodies] == [("hook", "seen"), ("hook", "seen")]
    assert {rows[i][1] for i in bodies} == {"first", "second"}


async def test_reasoning_a_failed_reply_and_queued_messages_have_rows() -> None:
    @hook.after_tool_call
    def remind(outcome: Any) -> Queue:
        return Queue("Mind the gap.")

    replies = [thinking("Hm."), tool_call("inner", {"name": "B"})], error("out of steam")
    rows = told(await rows_of(*replies, tools=[inner], hooks=[remind]))
    assert "event: model thinks: Hm." in rows
    assert "hook: remind: after_tool_call: Queue" in rows
    assert "event: hook says: Mind the gap." in rows
    assert "event: reply failed (error): out of steam" in rows
    assert rows[-1] == "event: run ends: error"


async def test_text_taken_back_has_a_row() -> None:
    @hook.on_message
    def no(incoming: Any) -> Interrupt | None:
        return Interrupt("Not that.") if incoming.origin == "model" else None

    rows = told(await rows_of(text("Yes."), hooks=[no]))
    assert "event: taken back: 4 characters shown no longer count" in rows


async def test_where_text_is_streamed_it_has_no_row_and_neither_has_the_end() -> None:
    assert told(await rows_of(text("Hi."), streamed=True)) == ["turn: turn 1"]


async def test_text_that_no_stream_showed_has_a_row_all_the_same() -> None:
    @hook.after_tool_call
    def remind(outcome: Any) -> Queue:
        return Queue("Mind the gap.")

    rows = told(await rows_of(tool_call("inner", {"name": "B"}), tools=[inner], hooks=[remind], streamed=True))
    assert "event: hook says: Mind the gap." in rows
    assert not any("done" in row for row in rows)


async def test_a_hook_that_failed_and_was_let_pass_is_told_from_one_that_was_not() -> None:
    @hook.before_tool_call(on_error="open")
    def lenient(call: Any) -> None:
        raise ValueError("oops")

    @hook.before_tool_call(order=1)
    def strict(call: Any) -> None:
        raise ValueError("oops")

    rows = await rows_of(tool_call("inner", {"name": "B"}), tools=[inner], hooks=[lenient, strict])
    assert "hook: lenient: before_tool_call: failed, let pass: raised ValueError: oops" in told(rows)
    assert "hook: strict: before_tool_call: failed: raised ValueError: oops" in told(rows)
    assert all(row.tone == "refused" for row in rows if row.kind == "hook")


async def test_a_dropped_piece_of_text_says_that_nobody_saw_it() -> None:
    @hook.on_chunk
    def hush(chunk: Any) -> Drop:
        return Drop()

    rows = await rows_of(text("psst"), hooks=[hush])
    row = next(row for row in rows if row.title == "hush")
    assert row.note == "still ahead: text is shown; done: 1 request"


def test_an_application_s_own_events_and_the_loop_s_name_are_shown() -> None:
    from beforehand.events import TurnStart

    timeline = Timeline()
    timeline(TurnStart(run_id="r", loop="checker", turn=2, number=2))
    timeline(CustomEvent(run_id="r", name="custom.note", data="late"))
    timeline(CustomEvent(run_id="r", name="custom.tick"))
    timeline(MessageRetracted(run_id="r", message_id="m", chars=3))
    assert told(timeline.take())[:3] == ["turn: turn 2 of checker", "event: custom.note: late", "event: custom.tick"]
    assert timeline.take() == []


def test_markup_in_a_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    Printer(Console(width=80, color_system=None)).show(Row("event", "[bold]title", "[red]text[/red]"))
    assert capsys.readouterr().out.split() == ["event", "[bold]title", "[red]text[/red]"]


def test_plain_rows_are_one_line_each_and_the_small_print_another(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(None).show(Row("hook", "gate", "two\nlines", "small print"))
    assert capsys.readouterr().out.splitlines() == ["hook   gate                         two lines", " " * 36 + "(small print)"]


def a_call(call_id: str, name: str, parent: str | None = None) -> ToolExecutionStart:
    fields: Any = {"run_id": "r", "turn": 1, "loop": "main", "parent_call_id": parent}
    return ToolExecutionStart(call_id=call_id, name=name, args=FrozenDict(), **fields)


def an_end(call_id: str, name: str, outcome: str, parent: str | None = None) -> ToolExecutionEnd:
    return ToolExecutionEnd(
        run_id="r", turn=1, loop="main", parent_call_id=parent, call_id=call_id, name=name, result=ToolResult("-"),
        outcome=outcome, is_error=outcome != "ran",
    )  # fmt: skip


def test_a_call_that_a_gate_makes_is_no_sign_that_the_call_it_judges_runs() -> None:
    timeline = Timeline()
    timeline(a_call("c1", "book"))
    timeline(a_call("c1/lambda_1/1", "find", "c1"))
    timeline(an_end("c1/lambda_1/1", "find", "ran", "c1"))
    timeline(an_end("c1", "book", "blocked"))
    assert told(timeline.take()) == [
        "event: model asks for: book()", "event: code about book asks for: find()", "code: find: the tool runs",
        "event: the code reads: -",
    ]  # fmt: skip


def test_a_call_that_code_makes_about_no_call_names_no_tool() -> None:
    timeline = Timeline()
    timeline(a_call("lambda_1/1", "find", "lambda_1"))
    assert told(timeline.take()) == ["event: code asks for: find()"]


def test_a_body_whose_call_was_announced_before_is_shown_by_its_name() -> None:
    timeline = Timeline()
    timeline(an_end("c3", "book", "ran"))
    assert told(timeline.take()) == ["code: book: the tool runs"]
