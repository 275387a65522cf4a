"""Gates at 8 that are new when a run goes on: they are asked about a request that leaves now, whatever others have said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Answer, Block, Hook, HookFailed, Queue, UserMessage
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text

from journal.cutting import all_records, cut


class Talk:
    """An agent with these gates at 8, and how often its model was asked."""

    def __init__(self, path: Path, *gates: Hook) -> None:
        self.sent = 0

        def reply(request: Any) -> Any:
            self.sent += 1
            return text("done")

        self.agent = Agent(model=FunctionModel(reply), hooks=gates, journal=Journal(path, durability="normal"))

    async def __aenter__(self) -> Talk:
        return self

    async def __aexit__(self, *_: object) -> None:
        assert verify(self.agent.plan.journal) == []
        await self.agent.aclose()


def gate(name: str, said: Any, asked: list[str], **options: Any) -> Hook:
    def decide(request: Any) -> Any:
        asked.append(name)
        if isinstance(said, Exception):
            raise said
        return said

    return Hook(seam="authorize_request", fn=decide, name=name, **options)


async def in_flight(path: Path) -> None:
    """The process ends when the request has left and no reply has come."""
    async with Talk(path.with_suffix(".whole"), gate("old", None, [])) as talk:
        await talk.agent.run("go", run_id="R")
    records = all_records(path.with_suffix(".whole"))
    cut(records[: next(r.n for r in records if r.kind == "request")], {"R": None}, path).close()


@pytest.mark.parametrize(
    ("said", "stop", "sent"),
    [
        (Block("no"), "blocked", 0), (Answer("made up"), "completed", 0),
        ([Queue(UserMessage("noted"))], "completed", 1), (None, "completed", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
async def test_a_new_gate_is_asked_once_about_a_request_that_is_sent_again(
    tmp_path: Path, said: Any, stop: str, sent: int, first: bool
) -> None:
    await in_flight(tmp_path / "runs.db")
    began, asked = len(all_records(tmp_path / "runs.db")), list[str]()
    gates = [gate("old", None, asked), gate("new", said, asked)]
    gates = gates[::-1] if first else gates
    async with Talk(tmp_path / "runs.db", *gates) as talk:
        whole = await talk.agent.resume("R")
    assert (asked, whole.stop_reason, talk.sent) == (["new"], stop, sent)
    records = all_records(tmp_path / "runs.db")
    for length in range(began + 2, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        asked.clear()
        async with Talk(tmp_path / f"{length}.db", *gates) as talk:
            again = await talk.agent.resume("R")
        assert (again.messages, again.stop_reason, asked) == (whole.messages, stop, []), length
        async with Talk(tmp_path / f"{length}.db") as talk:
            assert (await talk.agent.resume("R")).messages == whole.messages, length


async def test_a_new_gate_that_fails_lets_no_request_leave_and_is_asked_again(tmp_path: Path) -> None:
    await in_flight(tmp_path / "runs.db")
    asked: list[str] = []
    async with Talk(tmp_path / "runs.db", gate("old", None, asked), gate("new", RuntimeError("broken"), asked)) as talk:
        with pytest.raises(HookFailed):
            await talk.agent.resume("R")
    assert (talk.sent, asked) == (0, ["new"])
    async with Talk(tmp_path / "runs.db", gate("old", None, asked), gate("new", Block("no"), asked)) as talk:
        assert (await talk.agent.resume("R")).stop_reason == "blocked"
    assert (talk.sent, asked) == (0, ["new", "new"])


async def test_what_a_new_gate_says_of_a_request_once_it_works_stands_when_the_process_ends_again(tmp_path: Path) -> None:
    await in_flight(tmp_path / "runs.db")
    asked: list[str] = []
    async with Talk(tmp_path / "runs.db", gate("old", None, asked), gate("new", RuntimeError("broken"), asked)) as talk:
        assert (await talk.agent.resume("R", check=False)).stop_reason == "error"
    gates = gate("old", None, asked), gate("new", Block("no"), asked)
    failed = len(all_records(tmp_path / "runs.db"))
    async with Talk(tmp_path / "runs.db", *gates) as talk:
        assert (await talk.agent.resume("R")).stop_reason == "blocked"
    records = all_records(tmp_path / "runs.db")
    said = next(r.n for r in records[failed:] if r.kind == "ruling")
    for length in range(said, len(records) + 1):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        asked.clear()
        async with Talk(tmp_path / f"{length}.db", *gates) as talk:
            assert (await talk.agent.resume("R")).stop_reason == "blocked", length
        assert (asked, talk.sent) == ([], 0), length


async def test_a_new_gate_that_failed_over_a_request_and_is_gone_is_not_asked_for(tmp_path: Path) -> None:
    await in_flight(tmp_path / "runs.db")
    asked: list[str] = []
    async with Talk(tmp_path / "runs.db", gate("old", None, asked), gate("new", RuntimeError("broken"), asked)) as talk:
        assert (await talk.agent.resume("R", check=False)).stop_reason == "error"
    async with Talk(tmp_path / "runs.db", gate("old", None, asked)) as talk:
        assert (await talk.agent.resume("R")).text == "done"
    assert (asked, talk.sent) == (["new"], 1)
