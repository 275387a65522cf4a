"""Summaries in the middle of recorded runs: made once, on record, and gone over like anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Answer, Block, Hook, Limits, ToolContext, tool
from beforehand.testing import FunctionModel, error, text, tool_call

from combinations.cuts import World, every_cut
from journal.cutting import all_records, cut


def search(world: World) -> Any:
    @tool
    async def search(ctx: ToolContext, n: int) -> str:
        world.effects.append(ctx.idempotency_key)
        return f"found {n}: " + "x" * 800

    return search


def say_turn(run: Any) -> str:
    return f"turn {run.turn}"


def searching(turns: int = 6, summary: Any = "SUMMARY") -> FunctionModel:
    """A model that searches in each of its first turns, and makes summaries for those who ask for one."""

    def reply(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            return text(summary) if isinstance(summary, str) else summary
        turn = int(request.system.rpartition("turn ")[2])
        return tool_call("search", {"n": turn}, id=f"c{turn}") if turn < turns else text(f"{len(request.messages)} messages")

    return FunctionModel(reply)


def maker(model: Any = None, hooks: Any = (), **more: Any) -> Any:
    def make(world: World) -> Agent:
        settings = {"limits": Limits(compact_at=600), **more}
        return Agent(
            model=searching() if model is None else model(), tools=[search(world)], instructions=["Be brief.", say_turn],
            hooks=hooks, journal=world.journal, recovery=world.recovery(), **settings,
        )  # fmt: skip

    return make


def verdicts(result: Any) -> list[str]:
    return [d.verdict for d in result.decisions if d.seam == "compaction"]


async def test_a_summary_in_the_middle_of_a_run_is_made_once(tmp_path: Path) -> None:
    whole, records = await every_cut(tmp_path, maker())
    assert whole.stop_reason == "completed"
    assert verdicts(whole).count("compacted") >= 2
    assert sum(r.kind == "direct" for r in records) == verdicts(whole).count("compacted")


async def test_a_summary_that_failed_stays_failed_on_resume(tmp_path: Path) -> None:
    whole, _ = await every_cut(tmp_path, maker(lambda: searching(summary=error("down"))))
    assert whole.stop_reason == "completed"
    assert "failed" in verdicts(whole)
    assert "compacted" not in verdicts(whole)


async def test_a_summary_that_comes_out_empty_replaces_nothing_on_resume_either(tmp_path: Path) -> None:
    whole, _ = await every_cut(tmp_path, maker(lambda: searching(summary=" ")))
    assert "failed" in verdicts(whole)


def at(seam: str, what: Any, name: str = "h", **options: Any) -> Hook:
    return Hook(seam=seam, fn=what, name=name, **options)


def _broken(context: Any) -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize("hook", [
    at("before_compaction", lambda c: Answer("said by a hook")),
    at("before_compaction", lambda c: Block("not now")),
    at("before_compaction", lambda c: None),
    at("before_compaction", _broken),
    at("before_compaction", _broken, on_error="abort"),
    at("authorize_request", lambda c: Block("no summaries") if c.kind == "compaction" else None),
    at("authorize_request", lambda c: Answer("from eight") if c.kind == "compaction" else None),
    at("authorize_request", lambda c: _broken(c) if c.kind == "compaction" else None),
    at("get_api_key", lambda c: None),
], ids=["answers", "blocks", "lets pass", "fails", "fails hard", "gate blocks", "gate answers", "gate fails", "key"])  # fmt: skip
async def test_what_hooks_say_about_a_summary_holds_on_resume(tmp_path: Path, hook: Hook) -> None:
    whole, _ = await every_cut(tmp_path, maker(hooks=[hook]))
    assert verdicts(whole) or whole.stop_reason == "error"


async def test_a_summary_of_a_run_whose_turns_fail_as_well(tmp_path: Path) -> None:
    def shaky(context: Any) -> None:
        if context.run.turn in (3, 5):
            raise RuntimeError(f"broken in turn {context.run.turn}")

    whole, records = await every_cut(tmp_path, maker(hooks=[at("before_provider_call", shaky)]))
    assert "compacted" in verdicts(whole)
    assert sum(r.kind == "retried" for r in records) == 2


async def test_a_summary_that_replaces_one_message_by_one_is_what_the_next_run_began_with(tmp_path: Path) -> None:
    def make(path: Path) -> Agent:
        world = World(path)
        model = FunctionModel(lambda r: text("SUMMARY" if r.system.startswith("Summarise") else f"{len(r.messages)} sent"))
        return Agent(model=model, limits=Limits(compact_at=600), journal=world.journal)

    agent = make(tmp_path / "runs.db")
    talk = agent.conversation()
    await talk.run(["x" * 2600, "and a question"][0], run_id="R0", limits=Limits())
    await talk.run("one", run_id="R1")
    await talk.run("two", run_id="R2")
    said = [m.text for m in talk.messages]
    assert "SUMMARY" in said[0]
    again = agent.conversation()
    await again.resume_recorded("R2")
    assert [m.text for m in again.messages] == said


@pytest.mark.parametrize("seam", ["authorize_request", "before_compaction"])
async def test_a_hook_that_failed_over_a_summary_is_not_asked_again_once_the_run_has_gone_on(tmp_path: Path, seam: str) -> None:
    broken = [True]

    def fails(context: Any) -> None:
        if broken[0] and getattr(context, "kind", "compaction") == "compaction":
            raise OSError("the list of addresses is not there")

    make = maker(hooks=[Hook(seam=seam, fn=fails, name="fails")])
    world = World(tmp_path / "whole.db")
    agent = make(world)
    whole = await agent.run("go", run_id="R")
    assert set(verdicts(whole)) == {"failed"}
    await agent.aclose()
    broken[0] = False
    records = all_records(tmp_path / "whole.db")
    last = max(r.n for r in records if r.kind == "note" and r.data.get("seam") == "compaction")
    for end in range(last, len(records)):
        cut(records[:end], {"R": None}, tmp_path / f"{end}.db").close()
        again = make(World(tmp_path / f"{end}.db"))
        assert (await again.resume("R")).messages == whole.messages, end
        await again.aclose()
