"""What rule files cost: a thousand rules on tool calls, ten on a stream. CPU time, best of several rounds.

python benchmarks/bench_rules.py [--quick]
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from beforehand import Agent, Limits, tool
from beforehand.rules import load_rules
from beforehand.testing import FunctionModel, text, tool_call

BLOCK = {"type": "block", "reason": "no"}


def each(condition, **more):
    """A thousand rules, each with its own condition on the argument `path`."""
    return [
        {"target": "tool", "event": "before", "args": {"/path": condition(i)}, "actions": [BLOCK], **more} for i in range(1000)
    ]


SETS = {
    "no rule": [],
    "1,000 rules, each about a tool of its own": [
        {**rule, "tools": [f"tool_{i}"]} for i, rule in enumerate(each(lambda i: {"regex": f"secret{i}"}))
    ],
    "1,000 rules, 10 of them about this tool": [
        {**rule, "tools": ["read" if i % 100 == 0 else f"tool_{i}"]}
        for i, rule in enumerate(each(lambda i: {"regex": f"secret{i}"}))
    ],
    "1,000 rules about all tools: values": each(lambda i: {"equals": f"/secret/{i}"}),
    "1,000 rules about all tools: ranges": each(lambda i: {"min": i}),
    "1,000 rules about all tools: patterns": each(lambda i: {"regex": f"^/secret/{i}$"}),
    "1,000 rules about all tools: patterns anywhere": [
        {"target": "tool", "event": "before", "regex": f"sk-{i}-[a-z]+", "actions": [BLOCK]} for i in range(1000)
    ],
}


def loaded(rules):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.json").write_text(json.dumps(rules))
        began = time.process_time()
        found = load_rules([folder])
        return found, (time.process_time() - began) * 1e3


@tool
async def read(path: str) -> str:
    """Read a file."""
    return path


async def a_turn(hooks, calls):
    """CPU time of a run with so many tool calls, in µs a call."""

    def reply(request):
        done = sum(message.role == "tool" for message in request.messages)
        return text("done") if done >= calls else tool_call("read", {"path": "/home/notes.txt"})

    agent = Agent(model=FunctionModel(reply), tools=[read], hooks=hooks, limits=Limits(max_turns=None, slow_hook_ms=None))
    began = time.process_time()
    await agent.run("go")
    return (time.process_time() - began) / calls * 1e6


async def a_stream(hooks, chunks):
    agent = Agent(model=FunctionModel(lambda request: text("", chunks=chunks)), hooks=hooks, listeners=[lambda event: None])
    began = time.process_time()
    await agent.run("go")
    return (time.process_time() - began) * 1e3


async def best(rounds, measure, *args):
    return min([await measure(*args) for _ in range(rounds)])


async def main():
    rounds, calls = (2, 50) if "--quick" in sys.argv else (7, 200)
    base = 0.0
    print(f"{'tool calls':<48} {'µs a call':>10} {'above none':>11} {'load ms':>9}")
    for name, rules in SETS.items():
        found, load = loaded(rules)
        took = await best(rounds, a_turn, found.hooks, calls)
        base = base or took
        print(f"{name:<48} {took:>10.1f} {took - base:>11.1f} {load:>9.0f}")
    words = "the quick brown fox jumps over lazy dogs and so on it goes with more words here "
    whole = (words * 1100)[:80_000]
    chunks = [whole[i : i + 20] for i in range(0, len(whole), 20)]
    ten = {f"r{i}": {"target": "stream", "regex": f"sk{i}-[A-Za-z0-9]+"} for i in range(10)}
    base = 0.0
    print(f"\n{'4,000 chunks of 20 characters':<48} {'ms':>10} {'above none':>11}")
    for name, action in (
        ("no rule", None),
        ("10 rules that interrupt", {"type": "interrupt"}),
        ("10 rules that replace", {"type": "replace", "with": "*"}),
    ):
        found, _ = loaded([] if action is None else [{**rule, "actions": [action]} for rule in ten.values()])
        took = await best(rounds, a_stream, found.hooks, chunks)
        base = base or took
        print(f"{name:<48} {took:>10.1f} {took - base:>11.1f}")


if __name__ == "__main__":
    asyncio.run(main())
