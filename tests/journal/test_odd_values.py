"""What is put on record may hold anything: halves of characters, objects that raise when shown, and details no JSON holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Ask, Block, CustomMessage, End, Hook, Interrupt, Queue, Replace, Request, Steer, ToolResult, UserMessage, tool,
)  # fmt: skip
from beforehand.journal import Journal, verify
from beforehand.models.base import CallInfo, Finish, Model, ModelEvent, TextDelta
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records
from pipeline.virtual_time import in_virtual_time

HALF = "a\ud800b\x1b[31m\x00\u202e"
"""A file's name, as a folder on this machine may hold it, and what a terminal would take for orders."""


@tool
async def look(x: Any = None) -> str:
    return "ok"


def gives(value: Any) -> Any:
    @tool
    async def look(x: Any = None) -> Any:
        return value

    return look


def raising(error: Exception) -> Any:
    def fn(context: Any) -> Any:
        raise error

    return fn


def at(seam: str, decision: Any, name: str = "h") -> dict[str, Any]:
    return {"hooks": [Hook(seam=seam, fn=lambda c: decision, name=name)]}


def agent(journal: Path | None, *, says: str = "end", id: str = "c", named: str = "look", **options: Any) -> Agent:
    def answer(request: Request) -> Any:
        return text(says) if request.messages[-1].role == "tool" else tool_call(named, {}, id=id)

    return Agent(model=FunctionModel(answer), journal=journal, **{"tools": [look], **options})


CASES: dict[str, dict[str, Any]] = {
    "the model's text": {"says": HALF},
    "the id of a call": {"id": HALF},
    "the name of a call": {"named": HALF},
    "the reason of Block": at("before_tool_call", Block(HALF)),
    "the text of Ask": at("before_tool_call", Ask(HALF, options=(HALF,))),
    "the text of Steer": at("before_tool_call", Steer(HALF)),
    "the reason of End": at("finish_turn", End(HALF)),
    "the reason of Interrupt": at("on_chunk", Interrupt(HALF)),
    "a queued text": at("before_tool_call", [Queue(HALF)]),
    "a hook's answer": at("before_tool_call", Answer({"k": HALF})),
    "a hook's name": at("before_tool_call", Block("no"), name=HALF),
    "a hook's error": {"hooks": [Hook(seam="before_tool_call", fn=raising(ValueError(HALF)), name="h")]},
    "a tool's details": {"tools": [gives(ToolResult("x", details={HALF: HALF}))]},
    "details by a hook": at("after_tool_call", Replace(details={HALF: [HALF]})),
    "details of a prompt": {"prompt": [UserMessage("go"), CustomMessage("memo", HALF, {"k": HALF})]},
    "instructions": {"instructions": HALF},
    "instructions by a function": {"instructions": lambda run: HALF},
    "the agent's name": {"name": HALF},
}


@pytest.mark.parametrize("case", CASES)
async def test_a_run_with_half_characters_goes_as_without_a_journal_and_comes_back_as_it_was(case: str, tmp_path: Path) -> None:
    options = dict(CASES[case])
    prompt = options.pop("prompt", "go")
    plain = await agent(None, **options).run(prompt, check=False)
    async with agent(tmp_path / "runs.db", **options) as recorded:
        result = await recorded.run(prompt, run_id="R", check=False)
        again = await recorded.resume("R", check=False)
        assert verify(recorded.plan.journal) == []
    assert (result.stop_reason, str(result.error)) == (plain.stop_reason, str(plain.error))
    assert (again.messages, again.decisions, again.text) == (result.messages, result.decisions, result.text)


class Broken:
    """An object of somebody's that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.mark.parametrize("where", ["details", "error"])
async def test_an_object_that_raises_when_it_is_shown_costs_no_outcome(where: str, tmp_path: Path) -> None:
    done: list[str] = []

    @tool
    async def look(x: Any = None) -> Any:
        done.append("done")
        if where == "error":
            raise ValueError(Broken())
        return ToolResult("x", details={"k": Broken()})

    async with agent(tmp_path / "runs.db", tools=[look]) as recorded:
        result = await recorded.run("go", run_id="R")
    assert (result.stop_reason, result.text, done) == ("completed", "end", ["done"])
    (outcome,) = [r.data for r in all_records(tmp_path / "runs.db") if r.kind == "outcome"]
    if where == "details":
        assert outcome["result"]["details"] == {"k": "<Broken>"}


def test_shown_text_with_half_characters_is_recorded_while_its_reply_comes_in(tmp_path: Path) -> None:
    class Slow(Model):
        name, provider, endpoint, context_tokens = "slow", "scripted", "in-process", None

        async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
            for _ in range(4):
                yield TextDelta("a\ud800")
                await asyncio.sleep(0.2)
            yield Finish("stop")

    async def go() -> None:
        trouble: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: trouble.append(context))
        journal = Journal(tmp_path / "runs.db", durability="normal")
        assert list(journal.runs()) == []
        talk = Agent(model=Slow(), journal=journal).conversation()
        talk.on("message_update", lambda e: None)
        assert (await talk.run("go", run_id="R")).text == "a\\ud800" * 4
        journal.close()
        assert trouble == []

    in_virtual_time(go())
    released = [r.data["text"] for r in all_records(tmp_path / "runs.db") if r.kind == "released"]
    assert released and "".join(released).startswith("a\\ud800")


# --- details -----------------------------------------------------------------------------------------

DETAILS: dict[str, Any] = {
    "plain": {"a": [1, 2.5, "x", None, True], "b": {}},
    "not finite": [float("inf"), float("-inf"), float("nan")],
    "a set": {"k": {1}, "f": frozenset(["x"])},
    "tuples": {"k": (1, (2, 3), [])},
    "other keys": {(1, 2): 3, 4: "four", None: 0, True: 1},
    "bytes": b"\x00\xff",
    "half characters": {"\ud800": "\udfff"},
    "a big number": 2**70,
    "what looks like ours": {"~": "set", "of": [1]},
    "what looks a little like ours": {"~": [{"~": 1}], "k": (1,)},
}


@pytest.mark.parametrize("case", DETAILS)
@pytest.mark.parametrize("by", ["tool", "hook", "prompt"])
async def test_details_come_back_as_they_were(case: str, by: str, tmp_path: Path) -> None:
    details = DETAILS[case]
    options = at("after_tool_call", Replace(details=details)) if by == "hook" else {}
    if by == "tool":
        options = {"tools": [gives(ToolResult("x", details=details))]}
    prompt: Any = [UserMessage("go"), CustomMessage("memo", "", details)] if by == "prompt" else "go"
    async with agent(tmp_path / "runs.db", **options) as recorded:
        result = await recorded.run(prompt, run_id="R")
        again = await recorded.resume("R")
    held = [message for message in again.messages if getattr(message, "details", None) is not None]
    if by == "prompt":
        held = [message for message in recorded_prompts(tmp_path / "runs.db") if isinstance(message, CustomMessage)]
    else:
        assert repr(again.messages) == repr(result.messages)
    assert [repr(message.details) for message in held] == [repr(details)]


def recorded_prompts(path: Path) -> list[Any]:
    from beforehand.durable import load

    return load(Journal(path, readonly=True), "R").prompts


# --- ids that a model chooses ------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [("x" * 6000, "x" * 5999 + "y"), ("a\x00b", "a\nb"), ("é\u202e", "é\u2066"), ("é" * 500, "ü")])
async def test_the_id_of_a_call_can_name_a_run_whatever_the_model_chose(ids: tuple[str, str], tmp_path: Path) -> None:
    asked: list[str] = []

    def inner(request: Request) -> Any:
        asked.append(request.messages[-1].text)  # type: ignore[union-attr]
        return text("inside")

    child = Agent(model=FunctionModel(inner)).as_tool("child", "c")

    def answer(request: Request) -> Any:
        if request.messages[-1].role == "tool":
            return text("end")
        return [tool_call("child", {"prompt": f"p{n}"}, id=wanted) for n, wanted in enumerate(ids)]

    async with Agent(model=FunctionModel(answer), tools=[child], journal=tmp_path / "runs.db") as outer:
        result = await outer.run("go", run_id="R")
        runs = outer.plan.journal.ids("R/")
    assert result.text == "end" and sorted(asked) == ["p0", "p1"]
    calls = [call.id for message in result.messages if message.role == "assistant" for call in message.tool_calls]
    assert len(set(calls)) == 2 and {f"R/{call}" for call in calls} == set(runs)
    assert all([call.isprintable() and len(call.encode()) <= 128 for call in calls])
    assert [m.tool_call_id for m in result.messages if m.role == "tool"] == calls
    renamed = [d for d in result.decisions if d.verdict == "Renamed"]
    assert len(renamed) == len([1 for wanted, call in zip(ids, calls, strict=True) if wanted != call])


async def test_a_hook_may_be_called_what_the_record_leaves_out(tmp_path: Path) -> None:
    """That a hook fails closed goes without saying; that it is called so does not."""
    shut = at("before_tool_call", Block("closed"), name="closed")
    async with agent(tmp_path / "runs.db", **shut) as shop:
        (decision,) = (await shop.run("go", run_id="R")).decisions
        (recorded,) = (await shop.resume("R")).decisions
    assert (recorded.hook, recorded.reason, recorded.on_error) == ("closed", "closed", "closed")
    assert recorded == decision
