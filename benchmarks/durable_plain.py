"""A worker of plain DBOS with the same steps: one for each request, one for each tool call. The database comes as argument."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from dbos import DBOS, DBOSPortableJSONSerializer

TURNS = 4
QUEUE = "plain"


@DBOS.step(name="request")
async def request(n: int) -> dict[str, Any]:
    if n == TURNS:
        return {"role": "assistant", "content": "done"}
    return {"role": "assistant", "tool_calls": [{"id": f"c{n}", "name": "add", "args": {"a": n, "b": 1}}]}


@DBOS.step(name="tool")
async def add(a: int, b: int) -> int:
    return a + b


@DBOS.workflow(name="plain")
async def run(prompt: str) -> str:
    history: list[Any] = [prompt]
    while True:
        message = await request(sum(isinstance(m, int) for m in history))
        history.append(message)
        if "tool_calls" not in message:
            return str(message["content"])
        for call in message["tool_calls"]:
            history.append(await add(**call["args"]))


async def main(url: str, concurrency: int) -> None:
    DBOS(config={
        "name": "beforehand", "system_database_url": url, "executor_id": f"plain-{os.getpid()}", "application_version": "plain",
        "serializer": DBOSPortableJSONSerializer(), "log_level": "ERROR", "max_executor_threads": 64,
    })  # fmt: skip
    DBOS.listen_queues([QUEUE])
    DBOS.launch()
    await DBOS.register_queue_async(QUEUE, worker_concurrency=concurrency, polling_interval_sec=0.25, on_conflict="always_update")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
