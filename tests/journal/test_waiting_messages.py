"""Messages that wait in the queues when the process ends: the run that goes on has each of them, once and in its place."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, Conversation, Hook, Interrupt, Loop, Recovery, Replace, ToolContext, UserMessage, tool
from beforehand.backtest import backtest
from beforehand.errors import NetworkError
from beforehand.hooks.registry import HookSet
from beforehand.journal import FORMAT, Journal, Record, verify
from beforehand.journal.pastrecords import read_past
from beforehand.messages import LOST, Message
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records, cut, parents

Does = Callable[[Conversation], Any]


class Talk:
    """A model that calls `work` in its first turns, a talk with it, and what the talk is told at each of its calls."""

    def __init__(self, path: Path, told: dict[int, Does] | None = None, *, calls: int = 3, **options: Any) -> None:
        modes = {name: options.pop(name) for name in ("steering_mode", "follow_up_mode") if name in options}
        self.talk: Conversation
        self.read: list[Message] = []

        @tool(replay="safe")
        async def work(ctx: ToolContext, n: int) -> str:
            if told and n in told:
                came = told[n](self.talk)
                if asyncio.iscoroutine(came):
                    await came
            return f"worked {n}"

        def answer(request: Any) -> Any:
            n = sum(m.role == "tool" for m in request.messages)
            self.read = list(request.messages)
            return text(f"read {[m.text for m in request.messages if m.origin in ORIGINS]}") if n == calls else [
                text("working"), tool_call("work", {"n": n}, id=f"c{n}")
            ]  # fmt: skip

        self.agent = Agent(
            model=options.pop("model", FunctionModel(answer)), tools=[work],
            journal=Journal(path, durability="normal", raw=options.pop("raw", False)), **options,
        )  # fmt: skip
        self.talk = self.agent.conversation(**modes)

    async def resume(self, run_id: str = "R", **options: Any) -> Any:
        return await self.talk.resume_recorded(run_id, **options)


ORIGINS = ("steer", "follow_up")


def said(messages: Any) -> list[str]:
    """What came through the queues, in the order of the history."""
    return [m.text for m in messages if m.origin in ORIGINS]


async def at_every_cut(tmp_path: Path, began: Talk, made: Callable[[Path], Talk], expected: list[str]) -> Counter[str]:
    """Cut the whole run after each record that tells of a message; resume it; count how far each message had come by then."""
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    assert verify(began.agent.plan.journal) == []
    await began.agent.aclose()
    seen: Counter[str] = Counter()
    for end in range(1, len(records)):
        kept = records[:end]
        known = [r.data["message"]["content"] for r in kept if r.kind == "queued"]
        known += [m["content"] for m in kept[0].data.get("queued", ())]
        gone = {n for r in kept if r.kind == "cleared" for n in r.data["numbers"]}
        path = tmp_path / f"{end}.db"
        cut(kept, of, path).close()
        again = made(path)
        result = await again.resume(check=False)
        came = said(again.talk.messages) + [m.text for m in again.talk.queued]
        where = f"cut after record {end} ({kept[-1].kind})"
        once = [name for name in expected if name in known or name in came]
        assert [name for name in came if name in known or name in expected] == once, f"{where}: {came}, {known}"
        assert [n for n, times in Counter(came).items() if times > 1] == [], f"{where}: {came}"
        assert result.stop_reason == "completed", where
        assert verify(again.agent.plan.journal) == [], where
        finished = await again.agent.resume("R")
        assert said(finished.messages) == [m for m in came if m in said(again.talk.messages)], where
        seen["queued"] += bool(known)
        seen["cleared"] += bool(gone)
        await again.agent.aclose()
    return seen


@pytest.mark.parametrize("mode", ["one-at-a-time", "all"])
async def test_what_waits_is_queued_again_wherever_the_record_ends(tmp_path: Path, mode: str) -> None:
    def say(*names: str) -> Does:
        def now(talk: Conversation) -> None:
            for name in names:
                (talk.follow_up if name.startswith("f") else talk.steer)(name)

        return now

    def made(path: Path, told: dict[int, Does] | None = None) -> Talk:
        return Talk(path, told, steering_mode=mode, follow_up_mode=mode)

    began = made(tmp_path / "whole.db", {0: say("s1", "f1", "s2"), 2: say("f2", "s3")})
    began.talk.steer("s0")
    result = await began.talk.run("go", run_id="R")
    expected = ["s0", "s1", "s2", "s3", "f1", "f2"]
    assert said(result.messages) == expected
    seen = await at_every_cut(tmp_path, began, made, expected)
    assert seen["queued"] > 10


async def test_a_message_that_waits_is_on_record_before_anything_else_happens(tmp_path: Path) -> None:
    """The process that is killed at this moment has it on record."""

    async def steered(talk: Conversation) -> None:
        talk.steer("now")
        await asyncio.sleep(0)
        kinds.append([r.kind for r in began.agent.plan.journal.records("R")][-1])

    kinds: list[str] = []
    began = Talk(tmp_path / "whole.db", {0: steered})
    await began.talk.run("go", run_id="R")
    assert kinds == ["queued"]
    await began.agent.aclose()


async def test_what_was_taken_out_again_stays_out(tmp_path: Path) -> None:
    def one(talk: Conversation) -> None:
        talk.follow_up("f1")
        talk.follow_up("f2")

    def two(talk: Conversation) -> None:
        talk.clear_queues()
        talk.follow_up("f3")

    began = Talk(tmp_path / "whole.db", {0: one, 1: two})
    assert said((await began.talk.run("go", run_id="R")).messages) == ["f3"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    (gone,) = [r for r in records if r.kind == "cleared"]
    assert gone.data == {"numbers": [1, 2]}
    await began.agent.aclose()
    for end, expected in ((gone.n - 1, ["f1", "f2"]), (gone.n, []), (gone.n + 1, ["f3"])):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        again = Talk(tmp_path / f"{end}.db")
        assert said((await again.resume()).messages) == expected
        await again.agent.aclose()


@pytest.mark.parametrize("mode", ["one-at-a-time", "all"])
@pytest.mark.parametrize("kind", ORIGINS)
@pytest.mark.parametrize("added", [False, True])
async def test_a_turn_whose_message_was_taken_back_before_it_began_is_gone_over_all_the_same(
    tmp_path: Path, kind: str, mode: Any, added: bool
) -> None:
    def make(path: Path) -> Talk:
        def take_back(turn: Any) -> Any:
            if turn.cause == "tools":
                return None
            made.talk.clear_queues()
            return Replace(add_messages=[UserMessage("added")]) if added else None

        def say(talk: Conversation) -> None:
            getattr(talk, kind)("one")
            getattr(talk, kind)("two")

        def close(outcome: Any) -> Any:
            return Replace(terminate=True)

        hooks = [Hook(seam="prepare_next_turn", fn=take_back), Hook(seam="after_tool_call", fn=close)]
        made = Talk(path, {0: say}, calls=1, hooks=hooks, steering_mode=mode, follow_up_mode=mode)
        return made

    began = make(tmp_path / "whole.db")
    whole = [m.text for m in (await began.talk.run("go", run_id="R")).messages]
    assert len(whole) == 4 + added
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    await began.agent.aclose()
    after = next(n for n, r in enumerate(records, 1) if r.data.get("seam") == "prepare_next_turn")
    for end in range(after, len(records)):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        again = make(tmp_path / f"{end}.db")
        assert [m.text for m in (await again.resume()).messages] == whole, records[end - 1].kind
        assert again.talk.queued == ()
        await again.agent.aclose()


@pytest.mark.parametrize("mode", ["one-at-a-time", "all"])
@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_a_repeated_tool_says_again_is_said_once(tmp_path: Path, mode: Any, in_thread: bool) -> None:
    """The rest stays: what others have said meanwhile, and what a tool said that does not run again."""

    class Many:
        def __init__(self, path: Path) -> None:
            def speak(tag: str) -> None:
                self.talk.steer(f"{tag} steers")
                self.talk.follow_up(f"{tag} follows")

            @tool(replay="safe")
            async def outer(ctx: ToolContext) -> str:
                speak("outer")
                await ctx.call_tool("never", {})
                await ctx.call_tool("again", {})
                self.talk.steer("outer steers later")
                return "outer"

            @tool
            async def never() -> str:
                speak("never")
                return "never"

            async def again_async() -> str:
                speak("again")
                return "again"

            def again_sync() -> str:
                speak("again")
                return "again"

            again = tool(name="again", description="", replay="safe")(again_sync if in_thread else again_async)
            call = tool_call("outer", id="c")
            model = FunctionModel(lambda r: text("end") if any(m.role == "tool" for m in r.messages) else call)
            self.store = Journal(path, durability="normal")
            self.agent = Agent(model=model, tools=[outer, never, again], journal=self.store)
            self.talk = self.agent.conversation(steering_mode=mode, follow_up_mode=mode)

    whole = Many(tmp_path / "whole.db")
    expected = Counter(said((await whole.talk.run("go", run_id="R")).messages))
    assert set(expected.values()) == {1}
    assert len(expected) == 7
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    await whole.agent.aclose()
    for end in range(1, len(records)):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        resumed = Many(tmp_path / f"{end}.db")
        came = Counter(said((await resumed.talk.resume_recorded("R")).messages))
        begun = {r.data["call"] for r in records[:end] if r.kind == "intent"}
        over = {r.data["call"] for r in records[:end] if r.kind == "outcome"}
        lost = {f"never {how}" for how in ("steers", "follows")} if "c/1" in begun - over else set()
        assert came.keys() | lost >= expected.keys(), end
        assert set(came.values()) == {1}, (end, came)
        assert verify(resumed.store) == []
        await resumed.agent.aclose()


async def test_what_a_repeated_tool_says_again_is_known_again_though_hooks_were_still_to_judge_it(tmp_path: Path) -> None:
    """Until a hook at 10 has let a message pass, what it says is on no record: the tool that says it again has it."""
    loud = Hook(seam="on_message", fn=lambda m: Replace(message=UserMessage(m.message.text.upper(), origin=m.message.origin))
                if m.message.role == "user" else None)  # fmt: skip

    def made(path: Path) -> Talk:
        return Talk(path, {0: lambda talk: (talk.steer("one"), talk.steer("two"))}, calls=1, hooks=[loud], steering_mode="all")

    whole = made(tmp_path / "whole.db")
    assert said((await whole.talk.run("go", run_id="R")).messages) == ["ONE", "TWO"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    await whole.agent.aclose()
    begun = next(i for i, record in enumerate(records) if record.kind == "message") + 1
    for end in range(begun, len(records)):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        resumed = made(tmp_path / f"{end}.db")
        over = any(r.kind == "outcome" for r in records[:end])  # then it does not say it again
        judged = sum(r.kind == "ruling" and r.data["turn"] == 2 and "decisions" in r.data for r in records[:end])
        expected = [*["ONE", "TWO"][:judged], *[LOST.upper()] * (2 - judged)] if over else ["ONE", "TWO"]
        assert said((await resumed.resume()).messages) == expected, end
        assert verify(resumed.agent.plan.journal) == []
        await resumed.agent.aclose()


async def test_what_a_waiting_tool_said_is_said_once_and_what_others_said_is_kept(tmp_path: Path) -> None:
    @tool
    async def pay() -> str:
        return "paid"

    @tool(replay="safe")
    async def script(ctx: ToolContext) -> str:
        talks[-1].steer("from the tool")
        return (await ctx.call_tool("pay", {})).text  # type: ignore[no-any-return]

    def make() -> Conversation:
        model = FunctionModel(lambda r: text("end") if any(m.role == "tool" for m in r.messages) else tool_call("script", id="s"))
        gate = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?"), tools=["pay"])
        store = Journal(tmp_path / "runs.db", durability="normal")
        talk = Agent(model=model, tools=[pay, script], hooks=[gate], journal=store).conversation(steering_mode="all")
        talks.append(talk)
        return talk

    talks: list[Conversation] = []
    talk = make()
    (pending,) = (await talk.run("go", run_id="R")).pending
    talk.steer("from a person")
    assert said((await talk.resume({pending.call_id: Approve()})).messages) == ["from the tool", "from a person"]


async def test_a_run_that_nobody_steers_has_no_record_of_it(tmp_path: Path) -> None:
    began = Talk(tmp_path / "whole.db")
    await began.talk.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    assert "queued" not in records[0].data
    assert {r.kind for r in records} & {"queued", "cleared"} == set()
    assert not any("queued" in r.data for r in records if r.kind in ("turn", "took"))
    await began.agent.aclose()


# --- one conversation, in the process where it began --------------------------------------------------


def gate() -> Hook:
    return Hook(seam="before_tool_call", fn=lambda call: Ask("May it?") if call.args["n"] == 1 else None, name="gate")


async def test_a_talk_that_still_has_its_messages_does_not_get_them_twice(tmp_path: Path) -> None:
    def say(talk: Conversation) -> None:
        talk.follow_up("first")
        talk.follow_up("second")

    talk = Talk(tmp_path / "r.db", {0: say}, hooks=[gate()]).talk
    waiting = await talk.run("go", run_id="R")
    assert (waiting.stop_reason, [m.text for m in talk.queued]) == ("suspended", ["first", "second"])
    talk.follow_up("third")  # nobody goes on with the run: it comes on record when somebody does
    result = await talk.resume({"c1": Approve()})
    assert said(result.messages) == ["first", "second", "third"]
    assert talk.queued == ()
    assert verify(talk.plan.journal) == []


async def test_what_a_talk_took_out_while_its_run_waited_is_not_queued_again(tmp_path: Path) -> None:
    talk = Talk(tmp_path / "r.db", {0: lambda t: t.follow_up("first")}, hooks=[gate()]).talk
    await talk.run("go", run_id="R")
    talk.clear_queues()
    talk.follow_up("second")
    assert said((await talk.resume({"c1": Approve()})).messages) == ["second"]
    assert [r.data for r in talk.plan.journal.records("R") if r.kind == "cleared"] == [{"numbers": [1]}]


async def test_what_another_process_has_taken_in_meanwhile_is_not_taken_in_again(tmp_path: Path) -> None:
    both = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?") if call.args["n"] in (1, 2) else None, name="gate")
    here = Talk(tmp_path / "r.db", {0: lambda t: t.steer("first")}, hooks=[gate()])
    there = Talk(tmp_path / "r.db", hooks=[both])
    here.talk.steer("before")
    here.talk.steer("other")
    await here.talk.run("go", run_id="R")
    assert [m.text for m in here.talk.queued] == ["first"]
    elsewhere = await there.resume(answers={"c1": Approve()})
    assert (elsewhere.stop_reason, said(there.talk.messages)) == ("suspended", ["before", "other", "first"])
    result = await here.talk.resume({})  # which declines c2
    assert said(result.messages) == ["before", "other", "first"]
    assert here.talk.queued == ()


async def test_what_a_run_left_waiting_is_on_record_with_the_next_run_of_the_talk(tmp_path: Path) -> None:
    began = Talk(tmp_path / "whole.db", {1: lambda t: (t.follow_up("later"), t.abort())})
    assert (await began.talk.run("go", run_id="A")).stop_reason == "aborted"
    began.talk.follow_up("and between")
    await began.talk.run("on", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    (start,) = [r for r in records if r.run_id == "R" and r.n == 1]
    assert [m["content"] for m in start.data["queued"]] == ["later", "and between"]
    await began.agent.aclose()
    place = records.index(start)
    cut(records[: place + 2], of, tmp_path / "cut.db").close()
    again = Talk(tmp_path / "cut.db")
    assert said((await again.resume()).messages) == ["later", "and between"]
    await again.agent.aclose()


async def test_a_queued_message_that_a_run_is_begun_with_is_its_prompt_and_nothing_else(tmp_path: Path) -> None:
    began = Talk(tmp_path / "whole.db", calls=0)
    await began.talk.run("go", run_id="A")
    began.talk.follow_up("more")
    began.talk.follow_up("yet more")
    result = await began.talk.continue_run()
    assert said(result.messages) == ["more", "yet more"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    of_run = [r for r in records if r.run_id == result.run_id]
    assert [m["content"] for m in of_run[0].data["prompts"]] == ["more"]
    assert [m["content"] for m in of_run[0].data["queued"]] == ["yet more"]
    await began.agent.aclose()
    for end in range(1, len(of_run)):
        cut([*[r for r in records if r.run_id == "A"], *of_run[:end]], of, tmp_path / f"{end}.db").close()
        again = Talk(tmp_path / f"{end}.db", calls=0)
        assert said((await again.resume(result.run_id)).messages) == ["more", "yet more"], end
        await again.agent.aclose()


async def test_what_comes_while_a_run_goes_over_its_past_waits_behind_what_waited(tmp_path: Path) -> None:
    began = Talk(tmp_path / "whole.db", {0: lambda t: t.follow_up("first")})
    await began.talk.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    await began.agent.aclose()
    end = next(r.n for r in records if r.kind == "queued")
    cut(records[:end], of, tmp_path / "cut.db").close()
    again = Talk(tmp_path / "cut.db")
    again.talk.follow_up("second")
    assert said((await again.resume()).messages) == ["first", "second"]
    await again.agent.aclose()


# --- failures, interrupts, other loops ----------------------------------------------------------------


async def test_messages_that_a_turn_took_and_did_not_come_to_still_wait(tmp_path: Path) -> None:
    """A hook keeps out the first of several that one turn takes; the others are for the turn after it."""

    def no(message: Any) -> Any:
        return Interrupt("no", resend=True) if message.message.text == "bad" else None

    def say(talk: Conversation) -> None:
        for name in ("bad", "good", "better"):
            talk.follow_up(name)

    def made(path: Path, told: dict[int, Does] | None = None) -> Talk:
        return Talk(path, told, calls=1, follow_up_mode="all", hooks=[Hook(seam="on_message", fn=no, name="no")], raw=True)

    began = made(tmp_path / "whole.db", {0: say})
    assert said((await began.talk.run("go", run_id="R")).messages) == ["good", "better"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    await began.agent.aclose()
    queued = max(r.n for r in records if r.kind == "queued")
    for end in range(queued, len(records)):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        again = made(tmp_path / f"{end}.db")
        result = await again.resume()
        assert (said(result.messages), again.talk.queued) == (["good", "better"], ()), f"{end} {records[end - 1].kind}"
        await again.agent.aclose()


async def test_what_comes_while_a_failed_turn_waits_to_be_tried_again(tmp_path: Path) -> None:
    def made(path: Path, failures: int = 0, say: bool = False) -> Talk:
        left = [failures]

        def answer(request: Any) -> Any:
            if left[0]:
                left[0] -= 1
                if say:
                    made_talk.talk.steer("quick")
                raise NetworkError("the line is down")
            return text("done")

        made_talk = Talk(path, model=FunctionModel(answer), recovery=Recovery(base_delay_ms=1, max_delay_ms=1))
        return made_talk

    began = made(tmp_path / "whole.db", 1, say=True)
    assert said((await began.talk.run("go", run_id="R")).messages) == ["quick"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    await began.agent.aclose()
    for end in range(next(r.n for r in records if r.kind == "queued"), len(records)):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        again = made(tmp_path / f"{end}.db")
        assert said((await again.resume()).messages) == ["quick"], f"{end} {records[end - 1].kind}"
        assert again.talk.queued == ()
        await again.agent.aclose()


async def test_a_message_to_a_sub_agent_waits_in_the_sub_agents_run(tmp_path: Path) -> None:
    """A loop of the sub-agent sends one to its main conversation."""

    def made(path: Path) -> Agent:
        def child(request: Any) -> Any:
            n = sum(m.role == "tool" for m in request.messages)
            return text(f"child read {said(request.messages)}") if n == 2 else tool_call("nudge", {"n": n}, id=f"n{n}")

        @tool
        async def nudge(ctx: ToolContext, n: int) -> str:
            if n == 0:
                ctx.run._run.place.loops.send(_Side(ctx.run._run), "main", "hurry", False)
            return "nudged"

        inner = Agent(model=FunctionModel(child), tools=[nudge], loops=[Loop("side")])

        def parent(request: Any) -> Any:
            last = request.messages[-1]
            return text(last.text) if last.role == "tool" else tool_call("helper", {"prompt": "p"}, id="h")

        helper = inner.as_tool("helper", "Helps.")
        return Agent(model=FunctionModel(parent), tools=[helper], journal=Journal(path, durability="normal"))

    async with made(tmp_path / "whole.db") as whole:
        expected = (await whole.run("go", run_id="R")).text
        assert "hurry" in expected
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    (place,) = [i for i, r in enumerate(records) if r.kind == "queued"]
    assert records[place].run_id == "R/h"
    for end in range(place + 1, len(records)):
        cut(records[:end], of, tmp_path / f"{end}.db").close()
        async with made(tmp_path / f"{end}.db") as again:
            assert (await again.resume("R")).text == expected, f"{end} {records[end - 1].kind}"
            assert verify(again.plan.journal) == []


class _Side:
    """Stands for a run of another loop, as far as sending a message goes."""

    def __init__(self, run: Any) -> None:
        self.loop, self.place, self.deps = "side", run.place, None


async def test_a_message_may_come_from_another_thread(tmp_path: Path) -> None:
    async def say(talk: Conversation) -> None:
        await asyncio.to_thread(talk.steer, "a mistake")
        await asyncio.sleep(0)
        await asyncio.to_thread(talk.clear_queues)
        await asyncio.to_thread(talk.steer, "from afar")

    began = Talk(tmp_path / "whole.db", {0: say})
    assert said((await began.talk.run("go", run_id="R")).messages) == ["from afar"]
    kept = [r for r in all_records(tmp_path / "whole.db") if r.kind in ("queued", "cleared")]
    assert [(r.kind, r.data.get("numbers")) for r in kept] == [("queued", None), ("cleared", [1]), ("queued", None)]
    assert kept[2].data["message"]["content"] == "from afar"
    await began.agent.aclose()


# --- who reads it -------------------------------------------------------------------------------------


async def test_a_backtest_goes_over_such_runs_whole_and_cut(tmp_path: Path) -> None:
    began = Talk(tmp_path / "whole.db", {0: lambda t: (t.steer("s"), t.follow_up("f")), 1: lambda t: t.follow_up("g")})
    await began.talk.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    await began.agent.aclose()
    for end in range(2, len(records) + 1):
        journal = cut(records[:end], of, tmp_path / f"{end}.db")
        report = await backtest(journal, lambda loop: HookSet((), loop))
        assert (report.runs, report.unreadable, report.differences) == (1, (), ()), end
        journal.close()


def test_a_reader_that_does_not_know_of_it_reads_the_rest() -> None:
    """The format is the same: who passes over the new records, as all kinds that it does not know, finds all it knew before."""
    assert FORMAT == 1
    start = b'{"agent": "a", "loop": "main", "prompts": [], "base": {"messages": []}}'
    turn = b'{"number": 2, "cause": "steering", "took": [{"role": "user", "content": "x", "origin": "steer"}], "queued": [1]}'
    records = [Record("R", 1, 1, "run", start), Record("R", 2, 2, "of the future", b'{"x": 1}'), Record("R", 3, 3, "turn", turn)]
    past = read_past(records)
    assert [item.kind for item in past.line] == ["turn"]
    assert past.line[0].data["took"][0]["content"] == "x"
