"""Many runs at once, whose calls and turns have the same ids."""

from __future__ import annotations

import asyncio
from typing import Any

from beforehand import Agent, tool
from beforehand.testing import FunctionModel, text, tool_call

from telemetry.spans import Recorder, attributes


def play(request: Any) -> Any:
    results = [message for message in request.messages if message.role == "tool"]
    if len(results) == 2:
        return text("end")
    return tool_call("echo", {"word": request.messages[0].text}, id=f"call_{len(results)}")


async def test_fifty_runs_at_once_are_fifty_whole_trees(recorder: Recorder) -> None:
    together = asyncio.Barrier(50)

    @tool
    async def echo(word: str) -> str:
        await together.wait()
        with recorder.tracer.start_as_current_span("inside", attributes={"word": word}):
            await asyncio.sleep(0)
        return word

    model = FunctionModel(play)
    listener = recorder.listener(capture_content=True)
    agent = Agent(model=model, tools=[echo], listeners=[listener])
    words = [f"word {n}" for n in range(50)]
    results = await asyncio.gather(*[agent.run(word, run_id=word) for word in words])

    assert {result.stop_reason for result in results} == {"completed"}
    called = ("turn", [("chat function", []), ("execute_tool echo", [("inside", [])])])
    assert recorder.tree() == [("invoke_agent agent", [called, called, ("turn", [("chat function", [])])])] * 50
    traces: dict[int, list[Any]] = {}
    for span in recorder.spans:
        assert span.context is not None
        traces.setdefault(span.context.trace_id, []).append(span)
    assert len(traces) == 50
    for spans in traces.values():
        (word,) = {attributes(span)["beforehand.run.id"] for span in spans if span.name.startswith("invoke")}
        assert {attributes(span)["word"] for span in spans if span.name == "inside"} == {word}
        results_told = {attributes(s)["gen_ai.tool.call.result"] for s in spans if s.name.startswith("execute")}
        assert results_told == {f'"{word}"'}
    assert len({attributes(span)["gen_ai.conversation.id"] for span in recorder.named("invoke_agent agent")}) == 50
