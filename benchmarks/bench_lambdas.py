"""What a lambda costs: a 20 KB request, two bridge calls, a fresh worker for every call.

    python benchmarks/bench_lambdas.py [calls]

Wall time, because most of it is spent in another process: p50 and p95 of single calls, one after the other, and the
time of 100 at once. `spare` is a call that finds a worker waiting, `cold` one that has to start its own; `again` is a
hundred that come when a hundred have come before. The processor time shows what 100 at once must cost: they cannot be done
sooner than it takes divided by the cores. `an empty file` is Deno itself with our flags and environment and nothing to do,
which no cold lambda can be faster than. In brackets: at the pace of the machine that the bounds were stated for (`pace.py`).
Give the machine some quiet.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from beforehand import Request, ToolSpec, UserMessage
from beforehand.frozen import freeze
from beforehand.sandbox.deno import ENVIRONMENT, FLAGS, binary
from beforehand.sandbox import SandboxLimits, Source, call, close_spares
from beforehand.workspace.codec import from_adf, request_json

from pace import Paced

LIMITS = SandboxLimits(wall_time=60)
PYTHON = Source(
    "lib/policy.py",
    """
async def transform(input):
    request = input["request"]
    await adf.sys_set_meta(key="seen", value=len(request["messages"]))
    note = await adf.fs_read(path="policy.txt")
    return {**request, "system": request["system"] + note["content"]}
""",
)
SCRIPT = Source(
    "lib/policy.ts",
    """
export async function transform({ request, loop }: { request: any, loop: { name: string } }) {
  await adf.sys_set_meta({ key: "seen", value: request.messages.length })
  const note = await adf.fs_read({ path: "policy.txt" })
  return { ...request, system: request.system + note.content }
}
""",
)


async def bridge(method: str, argument: object) -> object:
    return {"path": "policy.txt", "content": "Be kind."}


def request() -> Request:
    messages = tuple(UserMessage(f"Question {n}: " + "lorem ipsum dolor sit amet " * 17) for n in range(36))
    return Request(
        "Be brief.", messages, (ToolSpec("find", "Finds.", freeze({"type": "object", "properties": {"n": {"type": "integer"}}})),)
    )


async def once(source: Source, original: Request) -> float:
    """Seconds of one whole hook call: encoding, sandbox, checking what came back."""
    began = perf_counter()
    argument = b'{"request":' + request_json(original) + b',"loop":{"name":"main"}}'
    outcome = await call(source, "transform", argument, limits=LIMITS, bridge=bridge)
    from_adf(outcome.value, original)
    return perf_counter() - began


async def settle() -> None:
    """Let the spare that the last call has started get ready."""
    await asyncio.sleep(0.15)


async def measure(source: Source, calls: int, *, spare: bool) -> Paced:
    original, times = request(), Paced()
    await once(source, original)
    for _ in range(calls):
        if spare:
            await settle()
        else:
            await close_spares()
        times.begin()
        times.end(await once(source, original))
    await close_spares()
    return times


async def at_once(source: Source, count: int) -> tuple[Paced, Paced]:
    """Seconds for so many calls at once: the first time, when one spare waits, and once the pool knows that so many may come."""
    original, first, again = request(), Paced(), Paced()
    await once(source, original)
    for pause, took in ((0.15, first), (12.0, again)):
        await asyncio.sleep(pause)
        took.begin()
        began = perf_counter()
        await asyncio.gather(*[once(source, original) for _ in range(count)])
        took.end(perf_counter() - began)
    await close_spares()
    return first, again


def processor_time() -> float:
    """Seconds that this process and those it has seen end have used."""
    return sum(os.times()[:4])


def empty_file(count: int) -> tuple[float, float]:
    """Wall time of `deno run` on an empty file, in ms: the median of one by one; and processor time of one."""
    times, before = [], processor_time()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        Path(folder, "empty.js").touch()
        for _ in range(count):
            began = perf_counter()
            subprocess.run([binary(), *FLAGS, "empty.js"], cwd=folder, env={"HOME": folder, **ENVIRONMENT}, check=True)
            times.append(perf_counter() - began)
    return sorted(times)[count // 2] * 1e3, (processor_time() - before) / count * 1e3


async def main(calls: int) -> None:
    size = len(request_json(request()))
    print(
        f"request {size:,} bytes of JSON, 2 bridge calls, {calls} calls each; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    for name, source in (("Python", PYTHON), ("TypeScript", SCRIPT)):
        for spare in (True, False):
            times = await measure(source, calls, spare=spare)
            in_order = sorted(times.measured)
            p50, p95 = in_order[len(in_order) // 2], in_order[int(len(in_order) * 0.95)]
            label = f"{name}, {'spare' if spare else 'cold'}"
            print(
                f"{label:18}  p50 {p50 * 1e3:7.1f} ms ({times.at_reference * 1e3:.1f})   p95 {p95 * 1e3:7.1f} ms   "
                f"best {times.best * 1e3:6.1f} ms"
            )
    for name, source in (("Python", PYTHON), ("TypeScript", SCRIPT)):
        before = processor_time()
        first, again = await at_once(source, 100)
        await asyncio.sleep(0.2)  # until the last processes have been collected
        print(
            f"{name + ', 100 at once':24}  {first.best:6.2f} s ({first.at_reference:.2f})   "
            f"again {again.best:5.2f} s ({again.at_reference:.2f})   "
            f"processor time of both {processor_time() - before:5.2f} s"
        )
    wall, processor = empty_file(20)
    print(f"an empty file in Deno     p50 {wall:5.1f} ms   processor time {processor:5.1f} ms, for 100 {processor / 10:.2f} s")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
