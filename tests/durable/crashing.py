"""Workers killed at random moments, and what must be true of their runs all the same.

    python tests/durable/crashing.py --runs 100 --kills 100 --seed 1

starts a PostgreSQL of its own, submits the runs (ten turns, each with a call that must not be repeated and one that may be),
kills one of three workers so many times, starts it anew each time, and reports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from durable.cluster import cluster
from durable.workers import Worker

from beforehand.engine import Engine
from beforehand.journal import open_journal, verify


def killing(url: str, effects: Path, kills: int, seed: int, pause: float, done: threading.Event) -> int:
    """Keep three workers going, and kill each at a random moment of its work, until `kills` have died. How many have."""
    guard, killed = threading.Lock(), [0]

    def keep(number: int) -> None:
        chance = random.Random(seed * 1000 + number)  # noqa: S311
        while not done.is_set():
            worker = Worker(url, effects, "--worker-concurrency", "3", TEST_PAUSE=str(pause)).ready()
            while f" {worker.process.pid}\n" not in effects.read_text() and not done.is_set():
                done.wait(0.02)
            with guard:
                dies = killed[0] < kills
                killed[0] += dies and not done.is_set()
            done.wait(chance.uniform(0, 1.5) if dies else None)
            if dies and not done.is_set():
                worker.kill()
            else:
                assert worker.stop() == 0, worker.lines

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    done.wait()
    for thread in threads:
        thread.join()
    return killed[0]


async def crash(url: str, folder: Path, runs: int, kills: int, seed: int, pause: float = 0.1) -> dict[str, Any]:
    """Submit, kill, wait for every run; then what became of them."""
    effects, done = folder / "effects", threading.Event()
    effects.touch()
    killer = asyncio.create_task(asyncio.to_thread(killing, url, effects, kills, seed, pause, done))
    began = time.monotonic()
    try:
        async with Engine(url) as engine:
            ids = [await engine.submit("worker", f"run {n}", run_id=f"run-{n}") for n in range(runs)]
            texts = [(await engine.result(run_id, timeout=900)).text for run_id in ids]
    finally:
        done.set()
        killed = await killer
    return {**report(url, effects, texts), "kills": killed, "seconds": round(time.monotonic() - began, 1)}


def report(url: str, effects: Path, texts: list[str]) -> dict[str, Any]:
    """Figures; all under "wrong" must be nothing."""
    journal = open_journal(url, readonly=True)
    done = Counter(tuple(line.split()[:3]) for line in effects.read_text().splitlines())
    wrong: list[str] = [str(fault) for fault in verify(journal)]
    wrong += [f"{run} {call}: paid {n} times" for (run, call, what), n in done.items() if what == "pay" and n > 1]
    outcomes: Counter[str] = Counter()
    resumed = 0
    for row in journal.runs():
        records = journal.records(row.run_id)
        resumed += sum(record.kind == "resumed" for record in records)
        of_call = Counter(record.data["call"] for record in records if record.kind == "outcome")
        wrong += [f"{row.run_id} {call}: {n} outcomes" for call, n in of_call.items() if n > 1]
        for record in records:
            if record.kind == "outcome":
                data = record.data
                outcomes[data["outcome"]] += 1
                if data["outcome"] == "ran" and not done[row.run_id, data["call"], data["name"]]:
                    wrong.append(f"{row.run_id} {data['call']}: recorded as done, and it was not")
        if records[-1].kind != "end":
            wrong.append(f"{row.run_id}: lost")
    wrong += [f"said {text!r}" for text in texts if text != "done after 10 turns and 20 results"]
    repeated = sum(n - 1 for (_, _, what), n in done.items() if what == "look")
    journal.close()
    return {
        "runs": len(texts), "wrong": wrong, "outcomes": dict(outcomes), "resumed": resumed, "safe calls repeated": repeated
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("runs", 100), ("kills", 100), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--pause", type=float, default=0.6, help="seconds that each call takes")
    options = parser.parse_args()
    with cluster(fsync=True) as made, tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(crash(made.url(), Path(folder), options.runs, options.kills, options.seed, options.pause))))


if __name__ == "__main__":
    main()
