"""What another process can read at the moment at which something leaves: whatever led to it is written by then."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from beforehand import Agent, Approve, Ask, Hook, tool
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call


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


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not say which files are open")
@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_what_is_on_the_disk_when_it_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Literal["full", "normal"]
) -> None:
    """With "full" an intent before its body, what the run waits for, an answer before it counts, and the end; else nothing."""
    path, sync = tmp_path / "runs.db", os.fsync
    on_disk: list[str] = []
    seen: list[tuple[str, list[str]]] = []

    def fsync(fd: int) -> None:
        log = os.readlink(f"/proc/self/fd/{fd}").endswith("-wal")
        found = kinds(path) if log else on_disk
        sync(fd)
        on_disk[:] = found

    @tool
    def look() -> str:
        """Look."""
        seen.append(("look", [*on_disk]))
        return "seen"

    @tool
    def pay() -> str:
        """Pay."""
        seen.append(("pay", [*on_disk]))
        return "paid"

    ask = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?"), tools=["pay"], name="ask")

    def agent(*replies: Any) -> Agent[Any]:
        return Agent(
            model=ScriptedModel(list(replies)), tools=[look, pay], hooks=[ask], journal=Journal(path, durability=durability)
        )

    async with agent(tool_call("look", id="c1"), tool_call("pay", id="c2")) as first:
        monkeypatch.setattr(os, "fsync", fsync)  # the operating system's, not ours
        assert (await first.run("go", run_id="R")).stop_reason == "suspended"
        seen.append(("suspended", [*on_disk]))
        monkeypatch.undo()
    async with agent(text("done")) as second:
        monkeypatch.setattr(os, "fsync", fsync)
        assert (await second.resume("R", answers={"c2": Approve()})).text == "done"
        seen.append(("over", [*on_disk]))
        monkeypatch.undo()

    assert [what for what, _ in seen] == ["look", "suspended", "pay", "over"]
    if durability == "normal":
        assert [found for _, found in seen] == [[]] * 4
    else:
        assert [found[-1] for _, found in seen] == ["intent", "suspended", "intent", "end"]
        assert "answer" in dict(seen)["pay"]
