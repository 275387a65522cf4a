"""What another process can read at the moment at which something leaves: whatever led to it is written by then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from beforehand import Agent, tool
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
