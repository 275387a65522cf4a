"""Runs whose old messages became a summary: whoever resumes one that is over gets what the live run gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, AssistantMessage, Conversation, Deny, Hook, Limits, Text, UserMessage, tool,
)  # fmt: skip
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text, tool_call

PAST = [m for n in range(8) for m in (UserMessage(f"question {n} " + "x" * 400), AssistantMessage((Text(f"answer {n}"),)))]


@tool
async def read(n: int) -> str:
    """Read a page."""
    return f"page {n} " + "z" * 900


class Reader:
    """Summarises, reads four pages for a prompt that says so, and is done."""

    page = 4

    def reply(self, request: Any) -> Any:
        if request.system.startswith("Summarise"):
            return text("SUMMARY")
        if request.messages[-1].origin == "prompt":
            self.page = 0 if "read" in request.messages[-1].text else 4
        if self.page == 4:
            return text("done")
        self.page += 1
        return tool_call("read", {"n": self.page - 1}, id=f"r{self.page - 1}")


def make(path: Path, **options: Any) -> Agent:
    limits = Limits(compact_at=600, max_turns=12)
    model = FunctionModel(Reader().reply)
    return Agent(model=model, tools=[read], limits=limits, journal=Journal(path, durability="normal"), **options)


async def resumed(path: Path, run_id: str, **options: Any) -> tuple[Any, Conversation]:
    agent = make(path, **options)
    talk = agent.conversation()
    result = await talk.resume_recorded(run_id)
    assert agent.plan.model.requests == []  # type: ignore[attr-defined]
    assert verify(agent.plan.journal) == []
    await agent.aclose()
    return result, talk


async def alike(live: Any, talk: Conversation, path: Path, **options: Any) -> None:
    result, again = await resumed(path, live.run_id, **options)
    assert result.messages == live.messages
    assert (result.removed, result.text, result.decisions) == (live.removed, live.text, live.decisions)
    assert list(again.messages) == list(talk.messages)


@pytest.mark.parametrize("hooked", [False, True])
async def test_a_finished_run_gives_what_was_left_and_what_was_removed(tmp_path: Path, hooked: bool) -> None:
    hooks = [Hook(seam="before_compaction", fn=lambda c: Answer("SHORT"), name="short")] if hooked else []
    talk = make(tmp_path / "r.db", hooks=hooks).conversation(PAST)
    live = await talk.run("and now? short")
    assert live.removed and len(talk.messages) < len(PAST)
    await alike(live, talk, tmp_path / "r.db", hooks=hooks)


async def test_a_run_that_was_shortened_again_and_again_does_too(tmp_path: Path) -> None:
    talk = make(tmp_path / "r.db").conversation(PAST)
    live = await talk.run("read it all")
    summaries = [m for m in live.removed if "SUMMARY" in m.text]
    assert summaries, "a summary that was summarised itself is among what was removed"
    await alike(live, talk, tmp_path / "r.db")


async def test_the_runs_of_one_talk_follow_each_other_shortened_or_not(tmp_path: Path) -> None:
    talk = make(tmp_path / "r.db").conversation()
    lives = []
    for prompt in ("short one", "read it all", "short two", "short three"):
        lives.append((await talk.run(prompt), list(talk.messages)))
    assert [bool(live.removed) for live, _ in lives].count(True) >= 1
    for live, messages in lives:
        result, again = await resumed(tmp_path / "r.db", live.run_id)
        assert (result.removed, list(again.messages)) == (live.removed, messages)


async def test_a_talk_goes_on_from_what_was_left(tmp_path: Path) -> None:
    talk = make(tmp_path / "r.db").conversation(PAST)
    live = await talk.run("and now? short")
    await talk.plan.journal.reading(talk.plan.journal.close)
    agent = make(tmp_path / "r.db")
    again = agent.conversation()
    await again.resume_recorded(live.run_id)
    await again.run("more, short")
    (request,) = agent.plan.model.requests  # type: ignore[attr-defined]
    assert "SUMMARY" in request.messages[0].text
    await alike(again.result, again, tmp_path / "r.db")


def gate() -> Hook:
    return Hook(seam="before_tool_call", fn=lambda call: Ask("May it?") if call.args["n"] == 3 else None, name="gate")


@pytest.mark.parametrize("answer", [Approve(), Deny("no")])
async def test_so_does_one_that_waited_for_a_person(tmp_path: Path, answer: Any) -> None:
    talk = make(tmp_path / "r.db", hooks=[gate()]).conversation(PAST)
    waiting = await talk.run("read it all")
    assert waiting.stop_reason == "suspended" and waiting.removed
    await alike(waiting, talk, tmp_path / "r.db", hooks=[gate()])
    live = await talk.resume({waiting.pending[0].call_id: answer})
    assert live.stop_reason == "completed"
    await alike(live, talk, tmp_path / "r.db", hooks=[gate()])


async def test_so_do_one_that_a_new_prompt_came_to_and_the_run_of_that_prompt(tmp_path: Path) -> None:
    talk = make(tmp_path / "r.db", hooks=[gate()]).conversation(PAST)
    waiting = await talk.run("read it all")
    assert waiting.removed
    live = await talk.run("never mind, short")
    await alike(live, talk, tmp_path / "r.db", hooks=[gate()])
    old, _ = await resumed(tmp_path / "r.db", waiting.run_id, hooks=[gate()])
    assert (old.stop_reason, old.removed) == ("ended", waiting.removed)


async def test_the_record_does_not_hold_the_messages_once_more(tmp_path: Path) -> None:
    agent = make(tmp_path / "r.db")
    await agent.conversation(PAST).run("and now? short", run_id="R")
    end = agent.plan.journal.records("R")[-1]
    assert end.kind == "end" and len(end.body) < 700
    (removed,) = end.data["shortened"]["removed"]
    summary, kept = end.data["shortened"]["left"]
    assert removed == [0, kept[0]] and "SUMMARY" in summary["content"]
    await agent.aclose()
