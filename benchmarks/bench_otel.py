"""What OpenTelemetry costs a turn with one tool call: µs of CPU time, best of several interleaved rounds.

    python benchmarks/bench_otel.py [--quick]

A turn makes three spans (turn, chat, execute_tool), and a run one more. "thrown away" is the SDK with a processor that
drops what it is given: what an exporter adds depends on the exporter. "one decision" has a hook that blocks every call.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from beforehand import Agent, Block, Hook, Limits, tool
from beforehand.otel import OpenTelemetry
from beforehand.testing import FunctionModel, text, tool_call

TURNS = 50


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def reply(request: Any) -> Any:
    done = len(request.messages) // 2
    return text("end") if done == TURNS else tool_call("add", {"a": done, "b": 1}, id=f"call_{done}")


def agent(*listeners: Any, hooks: Any = ()) -> Agent:
    limits = Limits(max_turns=None)
    return Agent(model=FunctionModel(reply), tools=[add], hooks=hooks, listeners=listeners, limits=limits)


def kept() -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    return provider


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rounds instead of fifteen")
    rounds = 3 if parser.parse_args().quick else 15
    block = Hook(seam="before_tool_call", fn=lambda call: Block("no"), name="block")
    agents = {
        "nobody listens": agent(),
        "a listener that does nothing": agent(lambda event: None),
        "OpenTelemetry, no SDK": agent(OpenTelemetry()),
        "OpenTelemetry, not sampled": agent(OpenTelemetry(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False))),
        "OpenTelemetry, thrown away": agent(OpenTelemetry(kept())),
        "... with the content": agent(OpenTelemetry(kept(), capture_content=True)),
        "one decision, nobody listens": agent(hooks=[block]),
        "one decision, thrown away": agent(OpenTelemetry(kept()), hooks=[block]),
    }
    best = dict.fromkeys(agents, float("inf"))
    for _ in range(rounds):
        for name, one in agents.items():
            began = time.process_time()
            asyncio.run(one.run("go"))
            best[name] = min(best[name], (time.process_time() - began) / TURNS * 1e6)
            one.plan.model.requests.clear()
    print("µs a turn".rjust(40), "above nobody".rjust(14))
    for name, cost in best.items():
        base = best["one decision, nobody listens" if name.startswith("one decision") else "nobody listens"]
        print(name.ljust(30), f"{cost:9.1f}", f"{cost - base:14.1f}")


if __name__ == "__main__":
    main()
