"""Worlds that are new in every process: what must hold of a run whatever hooks, tools, models and people do when it goes on.

    python tests/journal/worlds.py 0 1000

lives through the worlds with these seeds and prints what is wrong. A seed says which hooks there are and how much they do
(`World`). The run begins, is cut after any of its records, as a process leaves it that dies, and goes on in another process,
where hooks, tools, model and people decide anew (`Process`). So it need not come to what it would have come to without the
cut; what `holding.py` says must be true all the same. After some deaths nobody interferes any more, and the run has to end.

From seed `WIDE` on more changes from process to process (`World.around`): hooks are gone, new, in another order or fail in
another way; the journal is signed, or takes no more from some record on; people answer and settle while no process goes on; the
prompts are told again; a process stays and goes on itself; another one wants to go on at the same time; hooks steer and clear.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import msgspec

from beforehand import (
    Agent, Answer, Approve, Block, Deny, Edit, Hook, Limits, PendingApproval, Queue, Recovery, Replace, Request, RunResult,
    ToolContext, ToolResult, UserMessage, tool,
)  # fmt: skip
from beforehand.answering import answer_waiting, settle_call
from beforehand.errors import JournalError, RunBusy, UnknownAnswer, UnknownRun, UsageError
from beforehand.journal import Journal, Record
from beforehand.journal.pastrecords import read_past
from beforehand.journal.reading import needs_people
from beforehand.testing import FunctionModel, error, finish, text, tool_call

from journal.cutting import all_records, cut, parents
from journal.holding import AT_CALLS, brief, gates_passed_over, out_of_order, own, since_last_turn, whats_wrong
from journal.stories import NUMBERS, VERDICTS

OPTIONS: dict[str, list[Any]] = VERDICTS | {
    "before_run": [Replace(messages=[UserMessage("another prompt")]), lambda c: Replace(messages=list(c.messages))],
    "before_provider_call": [lambda c: Replace(request=msgspec.structs.replace(c.request, system=c.request.system + " at 6"))],
    "before_compaction": [Answer("short"), Answer("  "), Block("no")],
}

PROMPTS = [UserMessage("go"), UserMessage("and go on")]

WIDE = 1000
"""The first seed of the worlds in which more changes than what everybody decides."""

ROUNDS = 40
"""More processes than any world needs until its run has ended."""


class Filling(Journal):
    """A journal with room for so many more records."""

    room = 1_000_000

    @property
    def is_full(self) -> bool:
        return self.room < 0

    def append(self, head: Any, entries: Sequence[Any], wait: float = 30) -> None:
        self.needs(len(entries))
        super().append(head, entries, wait)

    def open_run(self, run_id: str, entry: Any, parent: str | None = None, wait: float = 30) -> Any:
        self.needs(1)
        return super().open_run(run_id, entry, parent, wait)

    def needs(self, records: int) -> None:
        self.room -= records
        if self.is_full:
            raise JournalError("there is no room for it")


class World:
    """What does not change from process to process: which hooks there are, and how likely anything is."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        dice = random.Random(f"world {seed}")  # noqa: S311  # the same every time
        self.seams = [seam for seam in NUMBERS if dice.random() < (0.85 if seam == "on_message" else 0.5)]
        self.on_error: dict[str, Any] = {seam: dice.choice(["closed"] * 6 + ["open", "abort"]) for seam in NUMBERS}
        self.hook_fails, self.hook_acts = dice.choice([0.02, 0.06, 0.12]), dice.choice([0.05, 0.15, 0.3])
        self.model_fails = dice.choice([0, 0.1, 0.25])
        self.somebody_speaks, self.somebody_clears = dice.choice([0, 0, 0.03, 0.08]), dice.choice([0, 0, 0, 0.01])
        self.cancelled = dice.choice([0, 0, 0, 0.01, 0.02])
        self.deaths = dice.randint(1, 4)
        self.raw = dice.random() < 0.5
        self.recovers, self.child_recovers = dice.random() < 0.7, dice.random() < 0.5
        self.inherits = dice.random() < 0.5
        self.dynamic = dice.random() < 0.5
        self.compact_at = dice.choice([None, None, 60, 150])
        self.max_turns = dice.choice([4, 8, 14])
        self.tool_mode = dice.choice(["parallel", "sequential"])
        self.queue_mode = dice.choice(["one-at-a-time", "all"])
        self.said_before = dice.choice([0, 0, 1, 2])
        self.judged: set[str] = set()
        """The texts that hooks at 10 have changed or kept away, in whatever process: the only thing that is added to."""
        self.alive: list[Process] = []
        """The one that goes on itself, if it stays."""
        self.around(random.Random(f"around world {seed}"), seed >= WIDE)  # noqa: S311

    def around(self, dice: random.Random, wide: bool) -> None:
        """What may change around the processes: nothing, unless it is a `wide` world."""

        def some(*likely: float) -> float:
            chosen = dice.choice(likely)
            return chosen if wide else 0

        self.hooks = [(seam, f"decides {seam}") for seam in self.seams]
        self.hooks += [(seam, f"decides {seam} too") for seam in self.seams if some(0, 0, 1)]
        self.hooks_change = some(0, 0.1, 0.3)
        self.hooks_speak, self.hooks_clear = some(0, 0.02, 0.05), some(0, 0, 0.01)
        self.key = b"a key of this world" if some(0, 1) else None
        self.fills = some(0, 0, 0.3)
        self.answered_elsewhere, self.settled = some(0, 0.7), some(0, 0.5)
        self.told_again = some(0, 0.3)
        self.stays = some(0, 0.5)
        self.rivals = some(0, 0.05)


class Process:
    """One process: an agent on the journal at `path`, which holds the records `before`, and what it was seen to do.

    In a `quiet` one nothing fails, nobody interferes, and the model has nothing more to do.
    """

    fingerprint = "the same program in every process"

    def __init__(self, world: World, number: int, path: Path, before: list[Record]) -> None:
        self.world, self.path, self.said = world, path, 0
        self.goes_on(number, before)
        self.journal = Filling(path, durability="normal", raw=world.raw, key=world.key)
        if self.comes(world.fills):
            self.journal.room = self.chance.randrange(80)
        self.hooks = self.hooks_here()
        self.agent = Agent(
            model=FunctionModel(self.model), tools=self.tools(), hooks=self.hooks,
            instructions=["Be.", self.instructions] if world.dynamic else "Be.", tool_mode=world.tool_mode,
            limits=Limits(max_turns=world.max_turns, compact_at=world.compact_at), journal=self.journal,
            recovery=self.recovery(world.recovers),
        )  # fmt: skip
        self.talk = self.agent.conversation(steering_mode=world.queue_mode, follow_up_mode=world.queue_mode)
        self.talk.subscribe(self.interfere)

    def goes_on(self, number: int, before: list[Record]) -> None:
        """From these records. Nothing was seen of it since."""
        self.number, self.before, self.quiet = number, before, number > self.world.deaths
        self.dice = random.Random(f"process {self.world.seed} {number}")  # noqa: S311
        self.chance = random.Random(f"around process {self.world.seed} {number}")  # noqa: S311
        self.going: asyncio.Task[RunResult] | None = None
        self.tells_again = False
        self.effects: list[str] = []
        self.asked: defaultdict[tuple[str, str, int, str | None], set[str]] = defaultdict(set)
        self.wrong: list[str] = []
        # How many requests may leave before hooks at 8 are asked again: those they were asked about that had not left.
        self.let_go = sum(r.kind == "ruling" and r.data["seam"] == "authorize_request" for r in since_last_turn(before))

    def happens(self, likely: float) -> bool:
        return not self.quiet and self.dice.random() < likely

    def comes(self, likely: float) -> bool:
        """The same for what happens around it."""
        return not self.quiet and self.chance.random() < likely

    def mark(self, word: str) -> str:
        """A text that nobody else says."""
        self.said += 1
        return f"{word}<{self.number}.{self.said}>"

    # --- the run ---

    async def live(self, answers: dict[str, Any] | None) -> RunResult | None:
        """What the run came to in this process. None when it was cancelled."""
        if not self.number:
            for n in range(self.world.said_before):
                (self.talk.steer if n % 2 else self.talk.follow_up)(self.mark("early"))
            going = self.talk.run(PROMPTS, run_id="R", check=False)
        else:
            if self.comes(self.world.somebody_speaks):
                self.talk.steer(self.mark("before"))
            self.tells_again = self.comes(self.world.told_again)
            prompts = PROMPTS if self.tells_again else ()
            going = self.talk.resume_recorded("R", answers, check=False, prompts=prompts)
        self.going = asyncio.ensure_future(going)
        try:
            return await self.going
        except asyncio.CancelledError:
            return None

    async def another(self) -> None:
        """Another process would go on with the run, while this one does."""
        other = Process(self.world, ROUNDS + self.number, self.path, self.before)
        try:
            await other.talk.resume_recorded("R")
            self.wrong.append("two processes went on at once")
        except RunBusy:
            pass
        finally:
            await other.agent.aclose()
        if other.effects or other.asked:
            self.wrong.append("something happened in a process that did not go on")

    # --- the people ---

    def interfere(self, event: Any) -> None:
        if self.happens(self.world.somebody_speaks):
            (self.talk.steer if self.dice.random() < 0.5 else self.talk.follow_up)(self.mark("aside"))
        if self.happens(self.world.somebody_clears):
            self.talk.clear_queues()
        if self.going is not None and self.happens(self.world.cancelled):
            going, self.going = self.going, None
            if self.dice.random() < 0.3:
                self.talk.abort("stop")
            else:
                going.cancel()

    def answers(self, pending: Sequence[PendingApproval]) -> dict[str, Any]:
        """Some have not answered yet when the run goes on."""
        return {p.call_id: self.answer(p) for p in pending if self.quiet or self.dice.random() < 0.8}

    def answer(self, asked: PendingApproval) -> Any:
        edited = {"prompt": "other"} if asked.name == "child" else {"x": self.dice.randrange(100)}
        return Approve() if self.quiet else self.dice.choice([Approve(), Approve(), Deny("no"), Edit(edited), Edit({"x": "no"})])

    # --- the model ---

    def model(self, request: Request) -> Any:
        if any(hook.seam == "authorize_request" for hook in self.hooks) and not self.let_go:
            self.wrong.append("a request left that no hook at 8 was asked about")
        self.let_go = max(0, self.let_go - 1)
        if request.system.startswith("Summarise"):
            return error("down") if self.happens(self.world.model_fails) else text("" if self.happens(0.1) else "a summary")
        return self.reply(request, ["work", "look", "fail", "say", "script", "gather", "clear", "child", "nobody"])

    def child_model(self, request: Request) -> Any:
        return self.reply(request, ["work", "look", "script"])

    def reply(self, request: Request, names: list[str]) -> Any:
        self.wrong += out_of_order(request.messages)
        if self.happens(self.world.model_fails):
            return [text("half"), error("down")] if self.dice.random() < 0.5 else error("down")
        if self.quiet or self.dice.random() < 0.25:
            return text(f"end {self.dice.random()}")
        if self.dice.random() < 0.05:
            return [text("cut"), finish("length")]
        return [text(f"I will {self.dice.random()}"), *[self.call(names) for _ in range(self.dice.choice([1, 1, 2, 3]))]]

    def call(self, names: list[str]) -> Any:
        name = self.dice.choice(names)
        arguments: dict[str, Any] = {"prompt": "go"} if name == "child" else {"x": "no" if self.happens(0.03) else 3}
        return tool_call(name, arguments, id=self.dice.choice(["same", f"c{self.dice.randrange(10**6)}"]))

    async def at_once(self, seconds: float) -> None:
        await asyncio.sleep(0)

    def recovery(self, recovers: bool) -> Recovery | None:
        return Recovery(jitter=0, sleep=self.at_once, max_attempts=3) if recovers else None

    def instructions(self, run: Any) -> str:
        if self.happens(self.world.hook_fails):
            raise RuntimeError("broken instructions")
        return f"turn {run.turn} in {self.number}"

    # --- the tools ---

    def did(self, ctx: ToolContext) -> None:
        run_id = ctx.run.run_id
        self.effects.append(ctx.idempotency_key)
        if run_id == "R" or self.world.inherits:
            self.wrong += gates_passed_over(self, run_id, ctx.call_id)

    def tools(self) -> list[Any]:
        @tool
        async def work(ctx: ToolContext, x: int = 0) -> str:
            self.did(ctx)
            await asyncio.sleep(0)
            return f"worked {x} in {self.number}"

        @tool(replay="safe")
        async def look(ctx: ToolContext, x: int = 0) -> str:
            self.did(ctx)
            await asyncio.sleep(0)
            return f"saw {self.dice.random()}"

        @tool
        async def fail(ctx: ToolContext, x: int = 0) -> str:
            self.did(ctx)
            raise ValueError("broken")

        @tool(replay="safe")
        async def say(ctx: ToolContext, x: int = 0) -> str:
            self.did(ctx)
            self.talk.steer(f"now<{ctx.idempotency_key}>")
            await asyncio.sleep(0)
            self.talk.follow_up(f"later<{ctx.idempotency_key}>")
            return "said"

        @tool(replay="safe")
        async def script(ctx: ToolContext, x: int = 0) -> str:
            self.did(ctx)
            first, then = await ctx.call_tool("work", {"x": 7}), await ctx.call_tool("look", {"x": 8})
            return f"{first.text} {then.text}"

        @tool(replay="safe")
        async def gather(ctx: ToolContext, x: int = 0) -> str:
            self.did(ctx)
            calls = [ctx.call_tool(name, {"x": n}) for n, name in enumerate(["work", "look", "script", "look"])]
            return " ".join(result.text for result in await asyncio.gather(*calls))

        @tool
        async def clear(ctx: ToolContext, x: int = 0) -> str:
            self.did(ctx)
            self.talk.clear_queues()
            return "cleared"

        model, recovery = FunctionModel(self.child_model), self.recovery(self.world.child_recovers)
        child = Agent(model=model, tools=[work, look, script], limits=Limits(max_turns=4), recovery=recovery)
        return [work, look, fail, say, script, gather, clear, child.as_tool("child", "Helps.", inherit=self.world.inherits)]

    # --- the hooks ---

    def hooks_here(self) -> list[Hook]:
        """Those of the world. In this process some may be missing, fail in another way, or be asked in another order."""
        here = []
        for seam, name in self.world.hooks:
            on_error = self.world.on_error[seam]
            if self.comes(self.world.hooks_change):
                on_error = self.chance.choice(["gone", "gone", "closed", "open", "abort"])
            if on_error != "gone":
                here.append(self.hook(seam, name, on_error))
        if self.comes(self.world.hooks_change):
            self.chance.shuffle(here)
        return here

    def hook(self, seam: str, name: str, on_error: Any) -> Hook:
        async def decide(context: Any) -> Any:
            run_id = context.run.run_id
            if not getattr(context, "partial", False):
                about = getattr(context, "call_id", None) if seam in AT_CALLS else None
                self.asked[run_id, seam, context.run.turn, about].add(name)
            if seam == "authorize_request" and run_id == "R":
                self.let_go = 1
            if self.dice.random() < 0.3:
                await asyncio.sleep(0)
            if self.comes(self.world.rivals):
                await self.another()
            if self.comes(self.world.hooks_speak):
                (self.talk.steer if self.chance.random() < 0.5 else self.talk.follow_up)(self.mark("hook"))
            if self.comes(self.world.hooks_clear):
                self.talk.clear_queues()
            if self.happens(self.world.hook_fails):
                raise RuntimeError(f"broken {seam} {self.dice.choice(['', self.dice.random()])}")
            chosen = self.verdict(seam, context) if self.happens(self.world.hook_acts) else None
            if seam == "on_message" and chosen is not None:
                self.world.judged.add(context.message.text)
            if 8 <= NUMBERS[seam] <= 14 and self.happens(0.03):
                chosen = [*([] if chosen is None else [chosen]), Queue(UserMessage(self.mark("queued")))]
            return chosen

        return Hook(seam=seam, fn=decide, name=name, on_error=on_error)

    def verdict(self, seam: str, context: Any) -> Any:
        chosen = self.dice.choice([*OPTIONS.get(seam, []), None])
        return chosen(context) if callable(chosen) else chosen


# --- the life of a world ---


async def not_the_same_again(world: World, number: int, path: Path, result: RunResult) -> AsyncIterator[str]:
    """A run that is over comes to the same when it is resumed, and nothing happens."""
    process = Process(world, number, path, all_records(path))
    again = await process.live(None)
    await process.agent.aclose()
    assert again is not None
    for name in ("text", "stop_reason", "usage", "turns"):
        if getattr(again, name) != getattr(result, name):
            yield f"{name} is another when it is resumed"
    if brief(again.messages) != brief(result.messages):
        yield "its messages are others when it is resumed"
    if process.effects or process.asked:
        yield "something happened though it was over"


async def elsewhere(process: Process, path: Path) -> AsyncIterator[str]:
    """While no process goes on, people say what they know from outside: whatever is listed can be said, once."""
    world, dice = process.world, process.chance
    journal = Journal(path, durability="normal", key=world.key)
    try:
        questions, lost = needs_people(journal)
        for question in questions:
            if process.comes(world.answered_elsewhere):
                place = question.run_id, question.pending.call_id
                await answer_waiting(journal, *place, process.answer(question.pending), "ann")
                for again in (place, (question.run_id, f"{place[1]}/no such call")):
                    try:
                        await answer_waiting(journal, *again, Approve(), "ann")
                        yield f"an answer about {again} was taken"
                    except UnknownAnswer:
                        pass
        for call in lost:
            if process.comes(world.settled):
                said = ToolResult(f"settled {call.call_id}", is_error=dice.random() < 0.5)
                await settle_call(journal, call.run_id, call.call_id, said, "ann")
                try:
                    await settle_call(journal, call.run_id, call.call_id, said, "ann")
                    yield f"{call.call_id} was settled twice"
                except UsageError:
                    pass
    finally:
        journal.close()


async def live(seed: int, folder: Path) -> list[str]:
    """What is wrong with the world of this seed, each with what had happened until then."""
    world, story = World(seed), list[str]()
    try:
        return [f"{seed}: {what} {story}" async for what in lived(world, folder, story)]
    except Exception as unexpected:
        return [f"{seed}: raised {unexpected!r} {story}"]
    finally:
        for process in world.alive:
            await process.agent.aclose()


async def lived(world: World, folder: Path, story: list[str]) -> AsyncIterator[str]:
    """One process after the other, until the run has ended or something is wrong."""
    fate = random.Random(f"fate {world.seed}")  # noqa: S311
    path, kept = folder / "0.db", list[Record]()
    answers: dict[str, Any] | None = None
    for number in range(ROUNDS):
        if world.alive:
            process = world.alive[0]
            process.goes_on(number, kept)
        else:
            process = Process(world, number, path, kept)
            world.alive.append(process)
        try:
            result = await process.live(answers)
        except UnknownRun:  # it was cut short before it was on record
            return
        except UsageError as refused:  # nobody had let its prompt pass, and nothing was done
            if "cannot go on" in str(refused) and not world.raw:
                return
            raise
        except JournalError:
            if not process.journal.is_full:
                raise
            result = None
        records = all_records(path)
        story.append(f"{len(kept)} to {len(records)}: {result.stop_reason if result else 'cancelled'}")
        for what in whats_wrong(process, result):
            yield what
            return
        is_cut = number < world.deaths and len(records) > len(kept) + 1 and fate.random() < 0.75
        if is_cut or not process.comes(world.stays) or process.journal.is_full:
            await world.alive.pop().agent.aclose()
        if is_cut:
            of, path = parents(path), folder / f"{number + 1}.db"
            cut(records[: fate.randint(len(kept) + 1, len(records))], of, path, key=world.key).close()
            kept = all_records(path)
            story.append(f"cut after {len(kept)}: {kept[-1].kind} of {kept[-1].run_id}")
        async for what in elsewhere(process, path):
            yield what
            return
        kept, answers = all_records(path), None
        if is_cut or result is None:
            continue
        if result.stop_reason == "suspended":
            waits = read_past(own(kept)).pending
            answers = {call_id: answer for call_id, answer in process.answers(result.pending).items() if call_id in waits}
        elif result.stop_reason != "error":
            async for what in not_the_same_again(world, ROUNDS + number, path, result):
                yield what
            return
    yield "it never ends"


def life(seed: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(live(seed, Path(folder)))


if __name__ == "__main__":
    logging.disable()
    for each in range(int(sys.argv[1]), int(sys.argv[2])):
        for what in life(each):
            print(what, flush=True)
