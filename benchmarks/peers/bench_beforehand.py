"""beforehand in the peer harness: FunctionModel in-process, OpenAIChat over HTTP, hooks at 6 (or 3), 12 and 13."""

import asyncio

from beforehand import Agent, Hook, Limits, tool
from beforehand.models.openai_chat import OpenAIChat
from beforehand.testing import FunctionModel, text, tool_call
from benchlib import main, step, tick


class Bench:
    def __init__(self, mode, turns, hooks, base_url, latency, chunks, variant):
        self.mode = mode
        final = text("word " * chunks)

        if latency:

            async def fn(request):
                tick()
                await asyncio.sleep(latency)
                last = request.messages[-1]
                a = step(last.content if last.role == "tool" else None, turns)
                return final if a is None else tool_call("add", {"a": a, "b": 1}, id=f"call_{a}")
        else:

            def fn(request):
                tick()
                last = request.messages[-1]
                a = step(last.content if last.role == "tool" else None, turns)
                return final if a is None else tool_call("add", {"a": a, "b": 1}, id=f"call_{a}")

        @tool
        async def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        async def before_model(context):
            self.hook_calls += 1

        async def before_tool(call):
            self.hook_calls += 1

        async def after_tool(outcome):
            self.hook_calls += 1

        made = [
            Hook(seam=seam, fn=fn_, name=f"{seam}-{i}")
            for seam, fn_ in (
                ("prepare_request", before_model),
                ("before_tool_call", before_tool),
                ("after_tool_call", after_tool),
            )
            for i in range(hooks)
        ]
        model = (
            FunctionModel(fn) if mode == "inproc" else OpenAIChat("fake", base_url=base_url, api_key="x", stream=mode == "stream")
        )
        self.model = model
        self.agent = Agent(model=model, instructions="You add.", tools=[add], hooks=made, limits=Limits(max_turns=None))

    async def run(self):
        if self.mode == "inproc":
            self.model.requests.clear()
            self.model.keys.clear()
        if self.mode != "stream":
            return (await self.agent.run("go")).text
        shown = ""
        async for event in self.agent.stream("go"):
            if event.type == "message_update" and event.kind == "text":
                shown += event.delta
        return shown

    async def close(self):
        await self.agent.aclose()


if __name__ == "__main__":
    main("beforehand", Bench)
