"""Runs per second on three workers, beside a plain DBOS workflow of the same steps.

All runs are queued first; then three workers start, on the same PostgreSQL (of this script's own, with fsync). Counted is
from when the first run is handed out until the last is done, by the database's clock. A run has five turns: five requests
to a model that answers at once, and four tool calls.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from durable.cluster import Cluster, cluster  # noqa: E402 - found by the line above

from beforehand.engine import Engine  # noqa: E402
from beforehand.journal import open_journal, verify  # noqa: E402

WORKERS = 3
CONCURRENCY = 50


def timed(made: Cluster, url: str, commands: list[list[str]], environment: dict[str, str], runs: int) -> float:
    """Runs per second, once these workers have done them all."""
    database = url.rpartition("/")[2]
    workers = [subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL) for command in commands]
    try:
        while True:
            query = "count(*), min(started_at_epoch_ms), max(updated_at) FROM dbos.workflow_status WHERE status = 'SUCCESS'"
            [(done, first, last)] = made.execute(f"SELECT {query}", database)
            if done == runs:
                return runs / (last - first) * 1000
            time.sleep(0.5)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


async def submit(url: str, runs: int) -> float:
    """Queue runs of ours. Seconds for each."""
    async with Engine(url) as engine:
        began = time.perf_counter()
        for n in range(runs):
            await engine.submit("bench", "go", run_id=f"r{n}")
        return (time.perf_counter() - began) / runs


def ours(made: Cluster, url: str, runs: int, also_steps: bool) -> float:
    asyncio.run(submit(url, runs))
    command = [sys.executable, "-m", "beforehand", "worker", "--agents", str(HERE / "durable_agents.py")]
    environment = {"BEFOREHAND_DATABASE_URL": url} | ({"BENCH_ALSO_STEPS": "1"} if also_steps else {})
    rate = timed(made, url, [[*command, "--worker-concurrency", str(CONCURRENCY)]] * WORKERS, environment, runs)
    journal = open_journal(url, readonly=True)
    assert not verify(journal) and all(row.last.kind == "end" for row in journal.runs())
    journal.close()
    return rate


def plain(made: Cluster, url: str, runs: int) -> float:
    from dbos import DBOSClient, DBOSPortableJSONSerializer

    client = DBOSClient(system_database_url=url, serializer=DBOSPortableJSONSerializer(), application_name="beforehand")
    for n in range(runs):
        client.enqueue({"workflow_name": "plain", "queue_name": "plain", "workflow_id": f"r{n}", "app_version": "plain"}, "go")
    client.destroy()
    return timed(made, url, [[sys.executable, str(HERE / "durable_plain.py"), url, str(CONCURRENCY)]] * WORKERS, {}, runs)


def main() -> None:
    from dbos import DBOS

    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"plain DBOS, a step each": [], "beforehand": [], "beforehand, a DBOS step each too": []}
    with cluster(fsync=True) as made:
        template = made.url()
        DBOS.migrate(template)
        for _ in range(options.rounds):  # in turns, so that what else the machine does meets all alike
            for name, measure in (
                ("plain DBOS, a step each", plain),
                ("beforehand", lambda *given: ours(*given, also_steps=False)),
                ("beforehand, a DBOS step each too", lambda *given: ours(*given, also_steps=True)),
            ):
                rates[name].append(measure(made, made.url(template.rpartition("/")[2]), options.runs))
                print(f"{name:34} {rates[name][-1]:7.1f} runs/s", flush=True)
    base = statistics.median(rates["plain DBOS, a step each"])
    print(f"\n{options.runs} runs of five turns on {WORKERS} workers, medians of {options.rounds}")
    for name, measured in rates.items():
        print(f"{name:34} {statistics.median(measured):7.1f} runs/s   {statistics.median(measured) / base:5.2f} x")


if __name__ == "__main__":
    main()
