"""Hooks at 10 and 17 that are new when a run goes on: they are asked about what others let pass, while it has not happened."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import Agent, Answer, Block, Hook, HookFailed, Interrupt, Limits, Queue, Replace, UserMessage, tool
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records, cut

CARD = "card 4111"


def says(seam: Any, name: str, said: Any, asked: list[str]) -> Hook:
    """One that decides this whenever it is asked: a decision, or a function of what it is asked about."""

    def decide(context: Any) -> Any:
        asked.append(name)
        if isinstance(said, Exception):
            raise said
        return said(context) if callable(said) else said

    return Hook(seam=seam, fn=decide, name=name)


class Desk:
    """An agent whose model asks for `look` as long as its summary does not say that it has, and what the model was sent."""

    def __init__(self, path: Path, *hooks: Hook, **options: Any) -> None:
        self.sent: list[list[str]] = []

        @tool
        async def look() -> str:
            return f"{CARD} {'x' * 2000}"

        def reply(request: Any) -> Any:
            if request.system.startswith("Summarise"):
                self.sent.append(["the summary"])
                return text("what was said")
            self.sent.append([message.text for message in request.messages])
            return text("done") if any(m.role == "tool" for m in request.messages) else tool_call("look", {}, id="c")

        self.agent = Agent(
            model=FunctionModel(reply), tools=[look], hooks=hooks, journal=Journal(path, durability="normal", raw=True), **options
        )

    async def __aenter__(self) -> Desk:
        return self

    async def __aexit__(self, *_: object) -> None:
        assert verify(self.agent.plan.journal) == []
        await self.agent.aclose()


def covered(context: Any) -> Any:
    message = context.message
    if message.role == "assistant" or "4111" not in message.text:
        return None
    return Replace(message=msgspec.structs.replace(message, content="covered"))


async def told_and_not_stored(path: Path, role: str) -> None:
    """The process ends while a listener is told of a message of this role that the hooks at 10 have let pass."""
    told = asyncio.Event()

    async def listen(event: Any) -> None:
        if event.type == "message_start" and event.message.role == role:
            told.set()
            await asyncio.Event().wait()

    async with Desk(path, says("on_message", "old", None, []), listeners=[listen]) as desk:
        going = asyncio.ensure_future(desk.agent.run(CARD, run_id="R"))
        await told.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
    assert all_records(path)[-1].data["seam"] == "on_message"


@pytest.mark.parametrize("role", ["user", "tool"])
async def test_a_new_hook_is_asked_about_a_message_that_is_not_stored(tmp_path: Path, role: str) -> None:
    await told_and_not_stored(tmp_path / "runs.db", role)
    asked: list[str] = []
    began = len(all_records(tmp_path / "runs.db"))
    new = says("on_message", "new", covered, asked)
    async with Desk(tmp_path / "runs.db", new, says("on_message", "old", None, asked)) as desk:
        whole = await desk.agent.resume("R")
    assert (asked[:1], asked.count("new") - asked.count("old")) == (["new"], 1)
    assert [m.text for m in whole.messages if m.role == role] == ["covered"]
    assert not any(said.startswith(CARD) for said in desk.sent[-1][1 if role == "tool" else 0 :])
    records = all_records(tmp_path / "runs.db")
    for length in range(began + 2, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        async with Desk(tmp_path / f"{length}.db", says("on_message", "old", None, [])) as desk:
            again = await desk.agent.resume("R")
        assert [m.text for m in again.messages if m.role == role] == ["covered"], length


@pytest.mark.parametrize(("said", "stop"), [(Interrupt("no"), "interrupted"), ([Queue(UserMessage("noted"))], "completed")])
async def test_what_a_new_hook_says_of_a_message_that_is_not_stored_counts_once(tmp_path: Path, said: Any, stop: str) -> None:
    await told_and_not_stored(tmp_path / "runs.db", "tool")

    def about_results(context: Any) -> Any:
        return said if context.message.role == "tool" else None

    async with Desk(tmp_path / "runs.db", says("on_message", "new", about_results, [])) as desk:
        whole = await desk.agent.resume("R")
    assert whole.stop_reason == stop
    assert [m.text for m in whole.messages].count("noted") == (stop == "completed")
    records = all_records(tmp_path / "runs.db")
    ruled = next(r.n for r in records if r.data.get("hooks") == ["new"])
    for length in range(ruled, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        async with Desk(tmp_path / f"{length}.db", says("on_message", "new", about_results, [])) as desk:
            assert (await desk.agent.resume("R")).messages == whole.messages, length


async def test_a_new_hook_is_not_asked_about_what_is_stored(tmp_path: Path) -> None:
    async with Desk(tmp_path / "whole.db", says("on_message", "old", None, [])) as desk:
        await desk.agent.run(CARD, run_id="R")
    records = all_records(tmp_path / "whole.db")
    for length in [record.n for record in records if record.kind == "message"]:
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        seen: list[Any] = []
        new = Hook(seam="on_message", fn=lambda context, seen=seen: seen.append(context.message), name="new")
        async with Desk(tmp_path / f"{length}.db", says("on_message", "old", None, []), new) as desk:
            result = await desk.agent.resume("R")
        stored = [record for record in records[:length] if record.kind == "message"]
        if stored[-1].data.get("role") != "assistant":  # a reply without its end is asked for again
            assert seen == list(result.messages[len(stored) :]), length


async def cut_amid_a_summary(path: Path, hooks: list[Hook]) -> tuple[list[Any], int]:
    """The records of a run that died while the model made the summary, and where they end."""
    async with Desk(path, *hooks, limits=Limits(compact_at=400)) as desk:
        await desk.agent.run("y" * 2000, run_id="R")
    records = all_records(path)
    return records, next(r.n for r in records if r.kind == "request" and r.data["kind"] == "compaction")


@pytest.mark.parametrize(
    ("said", "summary"), [(Block("kept by law"), 0), (Answer("short"), 0), (RuntimeError("broken"), 0), (None, 1)]
)
async def test_a_new_hook_is_asked_about_messages_that_are_to_become_a_summary(tmp_path: Path, said: Any, summary: int) -> None:
    old = says("before_compaction", "old", None, [])
    records, end = await cut_amid_a_summary(tmp_path / "whole.db", [old])
    for length in (end - 1, end):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        asked: list[str] = []
        new = says("before_compaction", "new", said, asked)
        async with Desk(tmp_path / f"{length}.db", new, old, limits=Limits(compact_at=400)) as desk:
            whole = await desk.agent.resume("R")
        assert (asked[:1], desk.sent.count(["the summary"])) == (["new"], summary), length
        assert bool(whole.removed) == (said is None or isinstance(said, Answer)), length
        after = all_records(tmp_path / f"{length}.db")
        for again in range(next(r.n for r in after if r.data.get("hooks") == ["new"]), len(after)):
            cut(after[:again], {"R": None}, tmp_path / f"{length}.{again}.db").close()
            async with Desk(tmp_path / f"{length}.{again}.db", old, new, limits=Limits(compact_at=400)) as desk:
                assert (await desk.agent.resume("R")).messages == whole.messages, (length, again)


async def test_a_new_hook_is_not_asked_about_a_summary_that_has_come(tmp_path: Path) -> None:
    old = says("before_compaction", "old", None, [])
    records, end = await cut_amid_a_summary(tmp_path / "whole.db", [old])
    asked: list[str] = []
    cut(records[: end + 1], {"R": None}, tmp_path / "runs.db").close()
    new = says("before_compaction", "new", Block("no"), asked)
    async with Desk(tmp_path / "runs.db", old, new, limits=Limits(compact_at=400)) as desk:
        assert (await desk.agent.resume("R")).removed
    assert asked == []


async def test_a_new_hook_that_fails_over_a_message_that_is_not_stored_is_asked_again(tmp_path: Path) -> None:
    await told_and_not_stored(tmp_path / "runs.db", "user")
    asked: list[str] = []
    old = says("on_message", "old", None, [])
    async with Desk(tmp_path / "runs.db", old, says("on_message", "new", OSError("x"), asked)) as desk:
        with pytest.raises(HookFailed):
            await desk.agent.resume("R")
    assert (asked, desk.sent) == (["new"], [])
    async with Desk(tmp_path / "runs.db", old, says("on_message", "new", covered, asked)) as desk:
        result = await desk.agent.resume("R")
    assert (result.text, result.messages[0].text, desk.sent[0]) == ("done", "covered", ["covered"])
