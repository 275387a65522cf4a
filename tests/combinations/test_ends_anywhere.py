"""Aborted wherever it waits: a run that recovers, summarises and wakes loops ends, with its record and spans closed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from telemetry.spans import Recorder, id_of, parent_of

from beforehand import Agent, Approve, Ask, Hook, Limits, Loop, Model, Request, RunResult, ToolContext, tool
from beforehand.models.base import NO_CALL_INFO, CallInfo, Finish, ModelEvent
from beforehand.innerloops import supervise
from beforehand.journal import verify
from beforehand.messages import NO_USAGE
from beforehand.models.scripted import deltas
from beforehand.seams import SEAMS
from beforehand.testing import error, text, tool_call

from combinations.cuts import World, where_to_cut
from conversation.checks import assert_valid
from journal.cutting import all_records, cut, parents, uncertain

SEAM_NAMES = [spec.name for spec in SEAMS]


class Places:
    """Counts the places where a run waits for somebody else. At the chosen one it is aborted, and nobody answers any more."""

    def __init__(self, at: int = -1, hang: bool = True) -> None:
        self.at, self.hang = at, hang
        self.visited: list[str] = []
        self.talk: Any = None

    async def visit(self, name: str) -> None:
        self.visited.append(name)
        if len(self.visited) - 1 == self.at:
            self.talk.abort("enough")
            if self.hang:
                await asyncio.Event().wait()


class Waiting(Model):
    """A model that waits before it begins and between its pieces."""

    name, provider, streams = "waiting", "test", True

    def __init__(self, places: Places, reply: Any) -> None:
        self.places, self.reply = places, reply
        self.requests: list[Request] = []

    async def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        await self.places.visit("model")
        pieces: Any = deltas(self.reply(request))
        for piece in pieces:
            if hasattr(piece, "error"):
                raise piece.error
            await self.places.visit("piece")
            yield piece
        if type(pieces[-1]) is not Finish:
            yield Finish("stop", NO_USAGE)


def mains(request: Request) -> Any:
    if request.system.startswith("Summarise"):
        return text("SUMMARY")
    turn = int(request.system.rpartition("turn ")[2])
    return {
        1: [text("I work"), tool_call("work", {"n": 1}, id="a")],
        2: error("down"),
        3: tool_call("loop_send", {"to": "mail", "message": "look", "wake": True}, id="s"),
        4: tool_call("work", {"n": 4}, id="b"),
    }.get(turn, text("done"))  # fmt: skip


def mail(request: Request) -> Any:
    return text("mail is done")


def story(world: World, places: Places, recorder: Recorder | None = None, shadow: bool = True) -> Agent:
    @tool
    async def inner(ctx: ToolContext, n: int) -> str:
        world.effects.append(ctx.idempotency_key)
        await places.visit("inner")
        return "inner"

    @tool
    async def work(ctx: ToolContext, n: int) -> str:
        world.effects.append(ctx.idempotency_key)
        await places.visit("work")
        await ctx.call_tool("inner", {"n": n})
        return "x" * 2400

    def watch(seam: str) -> Hook:
        async def fn(context: Any) -> Any:
            await places.visit(seam)
            if seam == "before_provider_call" and context.run.turn == 4 and context.run.loop == "main":
                raise RuntimeError("broken in turn 4")
            return Ask("May it?") if seam == "before_tool_call" and context.name == "work" else None

        return Hook(seam=seam, fn=fn, name=f"watch {seam}", where="here")

    async def say_turn(run: Any) -> str:
        await places.visit("instructions")
        return f"turn {run.turn}"

    async def asked(pending: Any) -> Approve:
        await places.visit("person")
        return Approve()

    async def sleep(seconds: float) -> None:
        await places.visit("patience")

    async def shadowed(context: Any) -> None:
        await places.visit("shadow")

    return Agent(
        model=Waiting(places, mains), tools=[work, inner], instructions=["Be brief.", say_turn],
        hooks=[watch(seam) for seam in SEAM_NAMES], on_ask=asked, journal=world.journal, recovery=world.recovery(sleep=sleep),
        limits=Limits(compact_at=900, abort_grace=0.01, max_turns=9),
        loops=[Loop("mail", instructions="mail", tools=["loop_*"], model=Waiting(places, mail))],
        shadow_hooks=[Hook(seam=s, fn=shadowed, name="s") for s in ("before_tool_call", "authorize_request")] if shadow else (),
        listeners=[] if recorder is None else [recorder.listener()],
    )  # fmt: skip


async def play(agent: Agent, places: Places) -> RunResult:
    places.talk = talk = agent.conversation()
    result = await supervise(talk, talk.run("go", run_id="R", check=False))
    assert not talk.is_running
    assert_valid(talk.messages)
    return result


def assert_tree(recorder: Recorder) -> None:
    """Every span that began has ended, and stands under another one or is the root of a run."""
    assert recorder.open == []
    known = {id_of(span) for span in recorder.spans}
    for span in recorder.spans:
        parent = parent_of(span)
        assert parent in known or (parent is None and span.name.startswith("invoke_agent")), span.name


async def visited(tmp_path: Path) -> list[str]:
    places, recorder = Places(), Recorder()
    result = await play(story(World(tmp_path / "whole.db"), places, recorder), places)
    assert result.text == "done"
    assert {"compacted", "provider_retry_scheduled", "turn_error_retry_scheduled"} <= {d.verdict for d in result.decisions}
    assert {"patience", "person", "inner", "before_compaction", "shadow", "instructions"} <= set(places.visited)
    assert_tree(recorder)
    return places.visited


@pytest.mark.parametrize("hang", [True, False], ids=["hanging", "answering"])
async def test_an_abort_at_any_place_ends_the_run_with_its_record_and_spans_closed(tmp_path: Path, hang: bool) -> None:
    names = await visited(tmp_path)
    for at, name in enumerate(names):
        if at % 4 and not os.environ.get("EVERY_CUT"):
            continue
        world, places, recorder = World(tmp_path / f"{at}.db"), Places(at, hang), Recorder()
        agent = story(world, places, recorder)
        result = await play(agent, places)
        where = f"aborted at place {at}, {name}"
        in_main = result.stop_reason == "aborted"
        assert in_main or len(places.visited) > at + 1 or not hang, f"{where}: {result.stop_reason} {result.error}"
        assert_tree(recorder)
        assert verify(world.journal) == [], where
        ends = [r for r in all_records(tmp_path / f"{at}.db") if r.run_id == "R" and r.kind == "end"]
        assert len(ends) == 1, where
        assert ends[0].data["stop_reason"] == result.stop_reason, where
        if in_main:
            done = list(world.effects)
            again = await story(world, Places()).resume("R", check=False)
            assert again.stop_reason == "aborted", where
            assert list(again.messages) == list(result.messages), where
            assert world.effects == done, where
        await agent.aclose()


async def test_the_spans_of_a_resumed_run_are_a_tree_wherever_it_was_cut(tmp_path: Path) -> None:
    await visited(tmp_path)
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in where_to_cut(records):
        kept = records[:k]
        if not any(r.run_id == "R" for r in kept):
            continue
        cut(kept, of, tmp_path / f"{k}.db").close()
        world, recorder = World(tmp_path / f"{k}.db"), Recorder()
        agent = story(world, Places(), recorder)
        result = await agent.resume("R", check=False)
        assert result.stop_reason == "completed" or uncertain(kept), f"cut after {k}: {result.error}"
        assert_tree(recorder)
        assert verify(world.journal) == []
        await agent.aclose()


async def test_an_aborted_resume_closes_everything_too(tmp_path: Path) -> None:
    names = await visited(tmp_path)
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    cuts = [i + 1 for i, r in enumerate(records) if r.kind in ("retried", "compacting", "intent", "failed") and r.run_id == "R"]
    for k in cuts:
        for at in range(0, len(names), 31):
            path = tmp_path / f"{k}-{at}.db"
            cut(records[:k], of, path).close()
            world, places, recorder = World(path), Places(at), Recorder()
            agent = story(world, places, recorder)
            places.talk = talk = agent.conversation()
            result = await supervise(talk, talk.resume_recorded("R", check=False))
            assert (result.stop_reason == "aborted") == (len(places.visited) > at), (k, at, result.error)
            assert_valid(talk.messages)
            assert_tree(recorder)
            assert verify(world.journal) == []
            await agent.aclose()
