"""Runs that are killed with SIGKILL again and again, and resumed until they end: is anything done twice, or lost?

Each run has ten turns over real HTTP; every turn calls a tool that may never be repeated and one that may. What the tools
do is appended to a file of its own. The run is steered before it begins and while it goes on. Half of the runs die at a
random moment, the others right before or after one of the journal's commits, so that every boundary between two records is
met. `python benchmarks/crash_test.py [runs] [seed]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beforehand import Agent, Block, Conversation, Limits, Queue, Replace, ToolContext, hook, tool
from beforehand.backtest import backtest
from beforehand.cli.loopback import loopback
from beforehand.errors import UnknownRun
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal, verify

TURNS = 10
RUN = "run"
AT_ONCE = 4
LOADED = ["beforehand.durable", "beforehand.replies", "beforehand.models.http", "beforehand.models.openai_chat", "aiohttp"]
"""What a process loads when it begins to work. Loaded before it is forked, so that it dies of its work and not of imports."""

# --- the process that is killed ------------------------------------------------------------------


class Effects:
    """What the tools have done, in a file that survives them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, what: str, key: str) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{what} {key}\n".encode())
        os.fsync(file)
        os.close(file)

    def counts(self) -> Counter[tuple[str, str]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return Counter((what, key) for what, _, key in (line.partition(" ") for line in lines))


EARLY = "mind the pennies"
STEERED = {2: "the third bill is a big one", 8: "nearly there"}
FOLLOWS = {5: "file the bills", 8: "and close the book"}
"""What is said before the run begins, and when a bill is paid."""


def make_agent(folder: Path, base_url: str, journal: Journal, talks: Sequence[Conversation] = ()) -> Agent:
    effects = Effects(folder / "effects.txt")

    @tool
    def pay(ctx: ToolContext, n: int) -> str:
        effects.add("pay", ctx.idempotency_key)
        for talk in talks:
            if n in STEERED:
                talk.steer(STEERED[n])
            if n in FOLLOWS:
                talk.follow_up(FOLLOWS[n])
        return f"paid {n}, card 4111-1111"

    @tool(replay="safe")
    async def look(ctx: ToolContext, n: int) -> str:
        effects.add("look", ctx.idempotency_key)
        await asyncio.sleep(0)
        return f"saw {n}"

    @hook.before_tool_call
    def gate(call: Any) -> Any:
        return Block("not on page 7") if call.name == "look" and call.args["n"] == 7 else None

    @hook.after_tool_call(tools=["pay"])
    def redact(outcome: Any) -> Any:
        return Replace(content=outcome.text.replace("4111-1111", "****"))

    @hook.finish_turn
    def remind(turn: Any) -> Any:
        return Queue("half of it is done") if turn.number == 5 else None

    return Agent(
        model="openai:loopback", base_url=base_url, api_key="sk-loopback", tools=[pay, look], hooks=[gate, redact, remind],
        journal=journal, limits=Limits(max_turns=None),
    )  # fmt: skip


def work(folder: str, base_url: str, durability: Any, die_at: int | None, ready: Any) -> None:
    """Begin the run, or go on with it, and die before the `die_at`th BEGIN or COMMIT of the journal."""
    os.environ["no_proxy"] = "127.0.0.1"
    journal = Journal(Path(folder) / "runs.db", durability=durability)
    seen = 0

    def traced(statement: str) -> None:
        nonlocal seen
        if statement.startswith(("BEGIN", "COMMIT")):
            seen += 1
            if seen == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    journal.db.set_trace_callback(traced)

    async def go() -> None:
        talks: list[Conversation] = []
        agent = make_agent(Path(folder), base_url, journal, talks)
        talk = agent.conversation()
        talks.append(talk)
        ready.send(True)
        try:
            result = await talk.resume_recorded(RUN)
        except UnknownRun:
            talk.steer(EARLY)
            result = await talk.run("Pay the ten bills.", run_id=RUN)
        (Path(folder) / "said.txt").write_text("\n".join(m.text for m in talk.messages if m.role == "user"))
        (Path(folder) / "result.txt").write_text(f"{result.stop_reason}\n{result.text}")
        await agent.aclose()

    asyncio.run(go())
    ready.send(seen)


# --- the model -----------------------------------------------------------------------------------


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Depends on nothing but the conversation: a call of each tool per turn, then what has become of them."""
    turns = sum(bool(m.get("tool_calls")) for m in messages)
    if turns < TURNS:
        calls = [
            {"id": f"{name}{turns}", "type": "function", "function": {"name": name, "arguments": f'{{"n": {turns}}}'}}
            for name in ("pay", "look")
        ]
        return {"content": f"Bill number {turns} comes next, and I look at its page.", "tool_calls": calls}
    results = [m["content"] for m in messages if m["role"] == "tool"]
    paid, unknown = (sum(word in text for text in results) for word in ("paid", "not known"))
    blocked = sum("not on page" in text for text in results)
    return {"content": f"{paid} paid, {unknown} unknown, {blocked} blocked, {len(results)} results"}


# --- one run, from its start over all its deaths to its end --------------------------------------


class Deaths:
    """Starts processes that work on one run, and kills them."""

    def __init__(self, folder: Path, base_url: str, durability: str) -> None:
        self.folder, self.base_url, self.durability = folder, base_url, durability
        self.killed = self.started = 0
        self.took = self.boundaries = 0.0
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["crash_test", *LOADED])

    async def attempt(self, after: float | None = None, at: int | None = None) -> bool:
        """One process, killed after so many seconds or at this boundary. True if it came to its end."""
        here, there = self.context.Pipe(duplex=False)
        process = self.context.Process(target=work, args=(str(self.folder), self.base_url, self.durability, at, there))
        process.start()
        there.close()
        self.started += 1
        with contextlib.suppress(EOFError):
            await asyncio.to_thread(here.recv)
            began = time.perf_counter()
            if after is not None:
                await asyncio.sleep(after)
                process.kill()
            await asyncio.to_thread(process.join)
            self.took = time.perf_counter() - began
            self.boundaries = here.recv()
        await asyncio.to_thread(process.join)
        if process.exitcode not in (0, -signal.SIGKILL, 255):  # 255: killed before the server could say how it ended
            raise AssertionError(f"the process ended with exit code {process.exitcode}")
        self.killed += process.exitcode != 0
        here.close()
        return process.exitcode == 0


def check(folder: Path) -> Counter[str]:
    """What must hold at the end. Raises `AssertionError`."""
    stop_reason, text = (folder / "result.txt").read_text().split("\n", 1)
    assert stop_reason == "completed", stop_reason
    journal = Journal(folder / "runs.db", readonly=True)
    assert verify(journal) == [], verify(journal)
    records = journal.records(RUN)
    journal.close()
    effects = Effects(folder / "effects.txt").counts()
    outcomes = Counter(r.data["call"] for r in records if r.kind == "outcome")
    ended = {r.data["call"]: r.data["outcome"] for r in records if r.kind == "outcome"}
    calls = [f"{name}{n}" for n in range(TURNS) for name in ("pay", "look")]
    assert outcomes == Counter(calls), f"not every outcome is recorded once: {outcomes}"
    tally = Counter(ended.values())
    for n in range(TURNS):
        times, outcome = effects["pay", f"{RUN}:pay{n}"], ended[f"pay{n}"]
        assert times == 1 if outcome == "ran" else (outcome == "uncertain" and times <= 1), f"pay{n} {outcome}: {times} times"
        looked = effects["look", f"{RUN}:look{n}"]
        assert looked == 0 if n == 7 else (looked >= 1 and ended[f"look{n}"] == "ran"), f"look{n}: {looked} times"
        tally["repeated"] += looked > 1
    unknown = tally["uncertain"]
    assert text == f"{TURNS - unknown} paid, {unknown} unknown, 1 blocked, {2 * TURNS} results", text
    assert b"4111-1111" not in b"".join(r.body for r in records)
    said = Counter((folder / "said.txt").read_text().splitlines())
    assert said[EARLY] == 1, f"{EARLY!r} is there {said[EARLY]} times"
    on_record = Counter(r.data["message"]["content"] for r in records if r.kind == "queued")
    for told in (STEERED, FOLLOWS):
        for n, what in told.items():
            if ended[f"pay{n}"] == "ran":
                assert on_record[what] == 1, f"{what!r} is on record {on_record[what]} times"
            assert said[what] == on_record[what] <= 1, f"{what!r} is on record {on_record[what]} times, and there {said[what]}"
            tally["said"] += said[what]
    return tally


@hook.before_tool_call(tools=["look"])
def nothing_beyond_page_5(call: Any) -> Block | None:
    return Block("not beyond page 5") if call.args["n"] > 5 else None


async def check_backtest(folder: Path, base_url: str) -> None:
    """The run's own hooks would change nothing about it, and one more hook exactly what it is about."""
    journal = Journal(folder / "runs.db", readonly=True)
    hooks = make_agent(folder, base_url, journal).hooks
    for added, expected in (((), []), ((nothing_beyond_page_5,), ["look6", "look8", "look9"])):
        report = await backtest(journal, lambda loop, added=added: HookSet([*hooks, *added], loop))  # type: ignore[misc]
        assert not report.unreadable, report.unreadable
        changed = [(difference.kind, difference.call_id) for difference in report.differences]
        assert changed == [("newly_blocked", call_id) for call_id in expected], changed
    journal.close()


async def one(number: int, seed: int, base_url: str, at: int | None, seconds: float, boundaries: int) -> Counter[str]:
    """Kill a run at its first moment (`at`, or a random one), then at random ones until it ends. What happened on the way."""
    chance = random.Random(f"{seed}/{number}")
    with tempfile.TemporaryDirectory() as name:
        run = Deaths(Path(name), base_url, chance.choice(["full", "normal"]))
        ended = await run.attempt(at=at) if at is not None else await run.attempt(after=chance.uniform(0, seconds))
        if ended and at is None:  # it was over before its moment came: another run, an earlier moment
            return await one(number, seed, base_url, at, seconds * 0.8, boundaries)
        while not ended:
            if chance.random() < 0.5 or run.killed > 12:
                ended = await run.attempt()
            elif chance.random() < 0.5:
                ended = await run.attempt(at=chance.randint(1, boundaries))
            else:
                ended = await run.attempt(after=chance.uniform(0, seconds))
        tally = check(Path(name))
        await check_backtest(Path(name), base_url)
        return tally + Counter(killed=run.killed, processes=run.started, runs=1)


async def crash(runs: int, seed: int, every_boundary: bool = True, say: Any = lambda text: None) -> Counter[str]:
    """`runs` runs, and one more for each boundary that they would leave out."""
    async with loopback(reply) as endpoint:
        with tempfile.TemporaryDirectory() as name:
            whole = Deaths(Path(name), endpoint.base_url, "full")
            assert await whole.attempt()
            check(Path(name))
            seconds, boundaries = whole.took, int(whole.boundaries)
        say(f"one run without a death: {seconds:.2f} s, {boundaries} boundaries (each BEGIN and COMMIT)")
        places: list[int | None] = list(range(1, boundaries + 1))
        if not every_boundary:
            places = random.Random(seed).sample(places, runs // 2)
        moments = [*places, *[None] * max(runs - len(places), runs // 2)]
        gate, total = asyncio.Semaphore(AT_ONCE), Counter[str]()

        async def guarded(number: int, at: int | None) -> None:
            async with gate:
                try:
                    total.update(await one(number, seed, endpoint.base_url, at, seconds * 1.5, boundaries))
                except AssertionError as error:
                    raise AssertionError(
                        f"run {number} (seed {seed}, first death at {at or 'a random moment'}): {error}"
                    ) from error
            if total["runs"] % 50 == 0:
                say(f"{total['runs']} of {len(moments)} runs")

        async with asyncio.TaskGroup() as group:
            for number, at in enumerate(moments):
                group.create_task(guarded(number, at))
        return total


if __name__ == "__main__":
    import crash_test  # by its own name, under which the processes find it

    given = [int(value) for value in sys.argv[1:]]
    began = time.perf_counter()
    figures = asyncio.run(crash_test.crash(*(given or [300]), *([1] if len(given) < 2 else []), say=print))
    print(
        f"{figures['runs']} runs, {figures['processes']} processes, {figures['killed']} killed, "
        f"{time.perf_counter() - began:.0f} s"
    )
    print(
        f"calls: {figures['ran']} ran, {figures['uncertain']} uncertain, {figures['blocked']} blocked, "
        f"{figures['repeated']} repeated; {figures['said']} of {4 * figures['runs']} messages were queued in time, each of them "
        "is in the history once"
    )
    print("each `never` effect at most once, each outcome recorded once, final texts right, verify clean, 0 runs lost;")
    print("put to the same hooks again nothing changes, put to one more hook exactly the calls that it is about")
