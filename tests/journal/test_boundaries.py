"""What another process can read at the moment at which something leaves: whatever led to it is written by then."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from beforehand import Agent, Approve, Ask, Deny, Hook, tool
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text, tool_call


def kinds(path: Path) -> list[str]:
    """What a reader finds of the run, whose records fit each other at any moment."""
    reader = Journal(path, readonly=True)
    found = [record.kind for record in reader.records("R")]
    faults = verify(reader)
    reader.close()
    assert faults == []
    return found


async def test_a_request_and_a_body_find_everything_before_them_on_record(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    seen: list[tuple[str, list[str]]] = []

    @tool
    def pay(n: int) -> str:
        """Pay a bill."""
        seen.append(("body", kinds(path)))
        return "paid"

    def model(request: Any) -> Any:
        seen.append(("request", kinds(path)))
        return tool_call("pay", {"n": 1}, id="c1") if len(seen) == 1 else text("done")

    agent = Agent(model=FunctionModel(model), tools=[pay], journal=Journal(path, durability="normal"))
    await agent.run("go", run_id="R")

    first = ["run", "turn", "message", "request"]
    intent = [*first, "message", "reply", "intent"]
    second = [*intent, "outcome", "message", "turn", "request"]
    assert seen == [("request", first), ("body", intent), ("request", second)]
    assert kinds(path) == [*second, "message", "reply", "end"]
    await agent.aclose()


async def test_what_nobody_waits_for_is_written_while_the_run_waits(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    quick_is_over = asyncio.Event()
    seen: list[list[str]] = []

    @tool
    async def quick() -> str:
        """End at once."""
        quick_is_over.set()
        return "quick"

    @tool
    async def slow() -> str:
        """Wait until the other one's outcome can be read."""
        await quick_is_over.wait()
        while "outcome" not in (found := kinds(path)):  # noqa: ASYNC110 - nobody tells the reader of a file
            await asyncio.sleep(0)
        seen.append(found)
        return "slow"

    def model(request: Any) -> Any:
        if len(request.messages) > 1:
            return text("done")
        return [tool_call("slow", {}, id="c1"), tool_call("quick", {}, id="c2")]

    agent = Agent(model=FunctionModel(model), tools=[quick, slow], journal=Journal(path, durability="normal"))
    async with asyncio.timeout(30):
        await agent.run("go", run_id="R")
    assert seen[0].count("intent") == 2
    assert seen[0].count("outcome") == 1
    await agent.aclose()


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the records of the run that were written when its log was last brought to the disk."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not say which files are open")
    there: list[str] = []
    sync = os.fsync

    def fsync(fd: int) -> None:
        log = os.readlink(f"/proc/self/fd/{fd}").endswith("-wal")
        found = kinds(tmp_path / "runs.db") if log else there
        sync(fd)
        there[:] = found

    monkeypatch.setattr(os, "fsync", fsync)  # the operating system's, not ours
    return there


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_what_is_on_the_disk_when_it_matters(
    tmp_path: Path, on_disk: list[str], durability: Literal["full", "normal"]
) -> None:
    """With "full" an intent before its body, what the run waits for, an answer before it counts, and the end."""
    seen: list[tuple[str, list[str]]] = []

    def note(what: str) -> str:
        seen.append((what, [*on_disk]))
        return what

    look = tool(lambda: note("look"), name="look", description="Look.")
    pay = tool(lambda: note("pay"), name="pay", description="Pay.")
    ask = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?"), tools=["pay"], name="ask")

    def model(request: Any) -> Any:
        results = [m for m in request.messages if m.role == "tool"]
        if results:
            note(f"request {len(results)}")
        return [[tool_call("look", id="a"), tool_call("pay", id="b")], [], tool_call("pay", id="c"), text("done")][len(results)]

    journal = Journal(tmp_path / "runs.db", durability=durability)
    async with Agent(model=FunctionModel(model), tools=[look, pay], hooks=[ask], journal=journal) as agent:
        for answers in ({}, {"b": Approve()}, {"c": Deny("no")}):
            result = await (agent.resume("R", answers=answers) if answers else agent.run("go", run_id="R"))
            note(result.stop_reason)
    assert [what for what, _ in seen] == ["look", "suspended", "pay", "request 2", "suspended", "request 3", "completed"]
    last = [found[-1] if found else None for _, found in seen]
    if durability == "full":
        assert last == ["intent", "suspended", "intent", "intent", "suspended", "answer", "end"]
        assert "answer" in seen[2][1]
    else:
        assert last == [None] * 7
