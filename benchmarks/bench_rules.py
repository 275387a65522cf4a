"""What rule files cost: a thousand rules on tool calls; ten, and 221 patterns, on a stream. CPU time, best of several rounds.

python benchmarks/bench_rules.py [--quick]
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from pydoc_data.topics import topics

from beforehand import Agent, Limits, tool
from beforehand.messages import Options, Request
from beforehand.rules import load_rules
from beforehand.testing import FunctionModel, text, tool_call

ROOT, SIZE = Path(__file__).parent.parent, 20
TOKENS = "the token is in the secret store and the password for the api key is set by the user in the auth header "
CODE = (
    'config.token = get_token("GITHUB_TOKEN")\npassword = os.environ["DB_PASSWORD"]  # secret\n'
    "client = Client(api_key=settings.api_key, secret=settings.secret)\n"
)
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
    """The rules, from a file, and how long that took. `rules` may be what makes them in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        rules = rules(folder) if callable(rules) else rules
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


def asked(chunks):
    return FunctionModel(lambda request: text("", chunks=chunks))


async def the_wire(hooks, chunks):
    """What the model alone costs: its events are taken and nothing is done with them."""
    model = asked(chunks)
    began = time.process_time()
    async for _ in model.stream(Request("", (), (), Options())):
        pass
    return (time.process_time() - began) * 1e3


async def a_stream(hooks, chunks):
    agent = Agent(model=asked(chunks), hooks=hooks, listeners=[lambda event: None])
    began = time.process_time()
    await agent.run("go")
    return (time.process_time() - began) * 1e3


def cut(whole, count):
    whole = (whole * (count * SIZE // len(whole) + 1))[: count * SIZE]
    return [whole[i : i + SIZE] for i in range(0, len(whole), SIZE)]


def secrets(folder):
    """The 221 patterns of gitleaks as the TOML file that a rule names."""
    lines = []
    for entry in json.loads((ROOT / "tests" / "data" / "gitleaks.json").read_text()):
        kept = {"id": entry["id"], "regex": entry["regex"].replace(r"\Z", r"\z"), "keywords": entry["keywords"]}
        kept |= {name: entry[name] for name in ("secretGroup", "entropy") if entry[name] is not None}
        lines += ["[[rules]]", *[f"{name} = {json.dumps(value)}" for name, value in kept.items()]]
    (Path(folder) / "gitleaks.cfg").write_text("\n".join(lines))
    return [{"target": "stream", "patternsFrom": "gitleaks.cfg", "actions": [{"type": "interrupt"}]}]


async def best(rounds, measure, *args):
    return min([await measure(*args) for _ in range(rounds)])


async def tool_calls(rounds, calls):
    base = 0.0
    print(f"{'tool calls':<48} {'µs a call':>10} {'above none':>11} {'load ms':>9}")
    for name, rules in SETS.items():
        found, load = loaded(rules)
        took = await best(rounds, a_turn, found.hooks, calls)
        base = base or took
        print(f"{name:<48} {took:>10.1f} {took - base:>11.1f} {load:>9.0f}")


async def streams(rounds):
    prose = "\n".join(topics.values())[:100_000]
    words = "the quick brown fox jumps over lazy dogs and so on it goes with more words here "
    ten = [{"target": "stream", "regex": f"sk{i}-[A-Za-z0-9]+"} for i in range(10)]
    interrupt, replace = {"type": "interrupt"}, {"type": "replace", "with": "*"}
    rows = [
        ("no rule", words, lambda folder: [], "12 ms"),
        ("10 rules that interrupt", words, lambda folder: [{**rule, "actions": [interrupt]} for rule in ten], "25 ms"),
        ("10 rules that replace", words, lambda folder: [{**rule, "actions": [replace]} for rule in ten], "25 ms"),
        ("221 secret patterns, Python's documentation", prose, secrets, "80 ms"),
        ("221 secret patterns, prose about tokens", TOKENS, secrets, ""),
        ("221 secret patterns, code about tokens", CODE, secrets, ""),
    ]
    heads = f"{'ms':>10} {'above wire':>11} {'µs a chunk':>11} {'at 500':>9} {'ratio':>7}  bound"
    print(f"\n{'4,000 chunks of 20 characters':<48} {heads}")
    for name, whole, written, bound in rows:
        found, _ = loaded(written)
        chunks, few = cut(whole, 4000), cut(whole, 500)
        wire = await best(rounds, the_wire, (), chunks)
        took, less = await best(rounds, a_stream, found.hooks, chunks), await best(3 * rounds, a_stream, found.hooks, few)
        each, early = took / 4, less / 0.5
        print(f"{name:<48} {took:>10.1f} {took - wire:>11.1f} {each:>11.2f} {early:>9.2f} {each / early:>7.2f}  {bound}")


async def main():
    rounds, calls = (2, 50) if "--quick" in sys.argv else (7, 200)
    await tool_calls(rounds, calls)
    await streams(rounds)


if __name__ == "__main__":
    asyncio.run(main())
