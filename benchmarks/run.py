"""What beforehand costs, beside a hand-written floor, in one run on one machine.

    python benchmarks/run.py [--quick] [--only turn,hooks,...]

All figures are CPU time (user and system, all threads) of the process that does the work, best of several interleaved
rounds, except where they say memory or wall. Each part runs in a process of its own.
"""

import argparse
import asyncio
import gc
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PARTS = ("turn", "hooks", "growth", "http", "stream", "concurrency", "import")


def cpu():
    return time.process_time()


async def cost(work, seconds):
    """Best CPU time of one call of `work`, in µs, over rounds that together take about `seconds`."""
    await work()
    best, until, count = float("inf"), cpu() + seconds, 1
    while cpu() < until:
        began = cpu()
        for _ in range(count):
            await work()
        took = cpu() - began
        if took < 0.01:
            count *= 2
            continue
        best = min(best, took / count)
    return best * 1e6


async def beside(ours, floor, seconds, rounds=3):
    """Both costs, measured in turns so that a drift of the machine meets both."""
    a, b = [], []
    for _ in range(rounds):
        a.append(await cost(ours, seconds / rounds))
        b.append(await cost(floor, seconds / rounds))
    return min(a), min(b)


def agent(model, hooks=(), **options):
    from beforehand import Agent, Limits, tool

    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return Agent(model=model, instructions="You add.", tools=[add], hooks=hooks, limits=Limits(max_turns=None), **options)


def scripted(turns, final, latency=0.0, tick=None):
    from beforehand.testing import FunctionModel, text, tool_call

    said = text(final)

    def reply(request):
        if tick is not None:
            tick()
        last = request.messages[-1]
        done = int(last.content) if last.role == "tool" else 0
        return said if done >= turns - 1 else tool_call("add", {"a": done, "b": 1}, id=f"call_{done}")

    async def slow(request):
        await asyncio.sleep(latency)
        return reply(request)

    return FunctionModel(slow if latency else reply)


def fresh(model, run):
    """A test model keeps every request; a benchmark must not measure that."""

    async def work():
        model.requests.clear()
        model.keys.clear()
        return await run()

    return work


# --- the parts -----------------------------------------------------------------------------------


async def turn(seconds):
    import floor

    model = scripted(20, "word " * 20)
    ours = agent(model)
    by_hand = floor.Loop(floor.in_process(20, "word " * 20))
    a, b = await beside(fresh(model, lambda: ours.run("go")), by_hand.run, seconds)
    return [row("in-process turn with one tool call, no hooks", a / 20, b / 20, "µs", "4.5x the floor (10 µs beside 2.2)")]


async def hooks(seconds):
    import floor

    from beforehand import Hook

    async def nothing(context):
        return None

    def many(count):
        seams = ("prepare_request", "before_tool_call", "after_tool_call")
        return [Hook(seam=seam, fn=nothing, name=f"{seam}-{i}") for seam in seams for i in range(count)]

    calls = 20 + 19 + 19
    ours, by_hand = {}, {}
    for count in (1, 20):
        model = scripted(20, "word " * 20)
        one = agent(model, many(count))
        loop = floor.Loop(floor.in_process(20, "word " * 20), [nothing] * count)
        ours[count], by_hand[count] = await beside(fresh(model, lambda one=one: one.run("go")), loop.run, seconds / 2)
    a, b = ((x[20] - x[1]) / (19 * calls) for x in (ours, by_hand))
    return [row("each further no-op hook call", a, b, "µs", "3.1x the floor (0.25 µs beside 0.08)")]


async def growth(seconds):
    def at(ticks, number):
        span = max(4, number // 20)
        around = [b - a for a, b in itertools.pairwise(ticks)][number - span : number + span]
        return sum(around) / len(around) * 1e6

    rows = []
    ratios = []
    for _ in range(3 if seconds < 1 else 7):
        ticks = []
        model = scripted(1051, "done", tick=lambda ticks=ticks: ticks.append(cpu()))
        await agent(model).run("go")
        ratios.append((at(ticks, 1000) / at(ticks, 10), at(ticks, 1000), at(ticks, 10)))
    _, late, early = sorted(ratios)[len(ratios) // 2]
    rows.append(row("turn 1,000 against turn 10", late, early, "µs", "1.3x"))
    return rows


class Served:
    """The scripted endpoint, in a process of its own."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, str(HERE / "endpoint.py")], stdout=subprocess.PIPE, text=True)
        return f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


async def http(seconds):
    import aiohttp
    import floor

    from beforehand.models.openai_chat import OpenAIChat

    with Served() as url:
        async with aiohttp.ClientSession() as session:
            ours = agent(OpenAIChat("fake", base_url=f"{url}/20/20", api_key="x", stream=False))
            by_hand = floor.Loop(floor.over_http(session, f"{url}/20/20/chat/completions", stream=False))
            a, b = await beside(lambda: ours.run("go"), by_hand.run, seconds)
            await ours.aclose()
    return [row("HTTP turn, not streamed", a / 20, b / 20, "µs", "1.5x")]


async def stream(seconds):
    import aiohttp
    import floor

    from beforehand import Hook
    from beforehand.models.openai_chat import OpenAIChat

    async def read(one):
        async for _ in one.stream("go"):
            pass

    rows = []
    with Served() as url:
        async with aiohttp.ClientSession() as session:
            for label, made, bound in (
                ("streamed chunk, burst", (), "2x"),
                ("streamed chunk, burst, one on_chunk hook", (Hook(seam="on_chunk", fn=lambda chunk: None),), "3x"),
            ):
                totals = []
                for chunks in (1, 401):
                    ours = agent(OpenAIChat("fake", base_url=f"{url}/1/{chunks}", api_key="x"), made)
                    by_hand = floor.Loop(floor.over_http(session, f"{url}/1/{chunks}/chat/completions", stream=True))
                    totals.append(await beside(lambda ours=ours: read(ours), by_hand.run, seconds / 2))
                    await ours.aclose()
                (a1, b1), (a2, b2) = totals
                rows.append(row(label, (a2 - a1) / 400, (b2 - b1) / 400, "µs", bound))
    return rows


async def concurrency(seconds):
    import floor

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def many(run, count=1000):
        gc.collect()
        memory, wall = peak(), time.perf_counter()
        await asyncio.gather(*[run() for _ in range(count)])
        return time.perf_counter() - wall, (peak() - memory) / count

    async def wait():
        await asyncio.sleep(0.05)

    by_hand = floor.Loop(floor.in_process(5, "word " * 20, wait))
    ours = agent(scripted(5, "word " * 20, latency=0.05))
    await ours.run("go")
    a, memory = await many(lambda: ours.run("go"))
    b, _ = await many(by_hand.run)
    return [
        row("1,000 concurrent 5-turn runs, 50 ms model (wall)", a, b, "s", "0.40 s"),
        row("  their memory, each", memory, None, "KB", "14 KB"),
    ]


async def imports(seconds):
    def child(code):
        counted = code + """
import resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sorted({m.partition('.')[0] for m in sys.modules}))
"""
        best, modules = float("inf"), set()
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # byte code is kept
        env["PYTHONPATH"] = str(HERE.parent / "src")  # the tree that this file stands in
        for _ in range(7):
            began = time.perf_counter()
            out = subprocess.run([sys.executable, "-c", counted], capture_output=True, text=True, check=True, env=env)
            best = min(best, time.perf_counter() - began)
            modules = set(out.stdout.split()[1:])
        return best * 1e3, modules

    bare, _ = child("pass")
    base, _ = child("import msgspec, asyncio")
    ours, modules = child("import beforehand")
    third_party = sorted(
        m for m in modules - set(sys.stdlib_module_names) if not m.startswith("_") and m not in ("beforehand", "sitecustomize")
    )
    return [
        row("import beforehand (wall, whole process)", ours, bare, "ms", "80 ms"),
        row("  import msgspec and asyncio alone", base, bare, "ms", ""),
        {"what": f"  third-party modules loaded: {', '.join(third_party)}", "bound": "msgspec only"},
    ]


def row(what, ours, floor, unit, bound):
    return {"what": what, "ours": ours, "floor": floor, "unit": unit, "bound": bound}


# --- all of them ---------------------------------------------------------------------------------


def show(rows):
    for r in rows:
        if "ours" not in r:
            print(f"{r['what']:52} {'':26} {r['bound']}")
            continue
        floor = "" if r["floor"] is None else f"{r['floor']:9.3f}"
        ratio = "" if not r["floor"] else f"{r['ours'] / r['floor']:7.2f}x"
        print(f"{r['what']:52} {r['ours']:9.3f} {floor:>9} {ratio:>8} {r['unit']:3} {r['bound']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short rounds, for a first look")
    parser.add_argument("--only", default=",".join(PARTS), help=f"which parts, of {', '.join(PARTS)}")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    seconds = 0.6 if options.quick else 4.0
    if options.part:
        sys.path.insert(0, str(HERE))
        work = {"import": imports}.get(options.part) or globals()[options.part]
        print(json.dumps(asyncio.run(work(seconds))))
        return
    print(f"{'':52} {'ours':>9} {'floor':>9} {'ratio':>8}     bound", flush=True)
    for part in options.only.split(","):
        if part not in PARTS:
            parser.error(f"there is no part {part!r}: the parts are {', '.join(PARTS)}")
        out = subprocess.run(
            [sys.executable, __file__, "--part", part, *(["--quick"] if options.quick else [])], stdout=subprocess.PIPE, text=True
        )
        if out.returncode:
            sys.exit(out.returncode)
        show(json.loads(out.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
