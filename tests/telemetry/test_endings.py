"""However a run ends, its spans end, and say how."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from beforehand import (
    Agent, Approve, Ask, Block, Conversation, Deny, End, Hook, HookFailed, Interrupt, Limits, RunResult, ServerError, hook, tool,
)  # fmt: skip
from beforehand.errors import BeforehandError
from beforehand.events import TurnStart
from beforehand.observer import RunBegin, RunEnd
from beforehand.testing import FunctionModel, ScriptedModel, cut, delay, error, finish, text, tool_call

from telemetry.spans import Recorder, attributes, decisions, id_of, status


@tool
async def work() -> str:
    return "worked"


def hooked(seam: str, verdict: Any) -> list[Hook]:
    return [Hook(seam=seam, fn=lambda context: verdict, name="guard")]


FINE, DOWN = ("UNSET", None, None), ("ERROR", "ServerError", "ServerError: down")
CALLS = [tool_call("work"), text("end")]

ENDINGS: dict[str, tuple[Any, list[Hook], str, Any, Any]] = {
    # script and hooks; then the stop reason, the status of the run (and its last turn) and that of the last request
    "completed": (CALLS, [], "completed", FINE, FINE),
    "ended": (CALLS, hooked("finish_turn", End("enough")), "ended", FINE, FINE),
    "max_turns": ([tool_call("work")] * 2, [], "max_turns", FINE, FINE),
    "length": ([[text("half"), finish("length")]], [], "length", FINE, FINE),
    "blocked": ([], hooked("authorize_request", Block("closed")), "blocked", ("ERROR", "blocked", "closed"), None),
    "interrupted": (
        [text("rude")], hooked("on_chunk", Interrupt("rude")), "interrupted", ("ERROR", "interrupted", "rude"),
        ("ERROR", "interrupted", None),
    ),
    "judged": (
        [text("rude")],
        [Hook(seam="on_message", fn=lambda said: Interrupt("rude") if said.origin == "model" else None, name="guard")],
        "interrupted", ("ERROR", "interrupted", "rude"), FINE,
    ),
    "model": ([error("down")], [], "error", DOWN, DOWN),
    "cut": (
        [[text("ha"), cut()]], [], "error",
        ("ERROR", "NetworkError", "NetworkError: the reply of scripted ended without a stop reason: it was cut"),
        ("ERROR", "interrupted", None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ENDINGS)
async def test_a_run_and_its_last_turn_and_request_say_how_they_ended(recorder: Recorder, how: str) -> None:
    script, hooks, stop_reason, expected, chat = ENDINGS[how]
    agent = Agent(
        model=ScriptedModel(script), tools=[work], hooks=hooks, limits=Limits(max_turns=2), listeners=[recorder.listener()]
    )
    result = await agent.run("go", check=False)

    run = recorder.one("invoke_agent agent")
    assert result.stop_reason == attributes(run)["beforehand.run.stop_reason"] == stop_reason
    assert status(run) == status(recorder.named("turn")[-1]) == expected
    assert [status(span) for span in recorder.named("chat scripted")][-1:] == ([] if chat is None else [chat])
    assert all(status(turn) == FINE for turn in recorder.named("turn")[:-1])


async def test_a_run_in_another_loop_says_so_and_its_last_turn_how_it_ended(recorder: Recorder) -> None:
    class Inner(Conversation):
        def _new_run(self, *args: Any) -> Any:
            run = super()._new_run(*args)
            run.loop = "poet"
            return run

    agent = Agent(model=ScriptedModel([error("down")]), listeners=[recorder.listener()])
    await Inner(agent.plan, (), agent._listeners).run("go", check=False)

    assert recorder.tree() == [("invoke_agent agent", [("turn", [("chat scripted", [])])])]
    assert {attributes(span).get("beforehand.loop") for span in recorder.spans if "chat" not in span.name} == {"poet"}
    assert status(recorder.one("turn")) == DOWN


async def test_a_failing_hook_that_ends_the_run_is_named(recorder: Recorder) -> None:
    agent = Agent(model=ScriptedModel(), hooks=hooked("before_turn", 42), listeners=[recorder.listener()])
    with pytest.raises(HookFailed):
        await agent.run("go")

    kind, failed, description = status(recorder.one("invoke_agent agent"))
    assert (kind, failed) == ("ERROR", "HookFailed")
    assert "'guard' at before_turn" in str(description)


@pytest.mark.parametrize("verdict", [Block("not now"), 42])
async def test_a_run_that_never_began_is_a_span_with_the_decision(recorder: Recorder, verdict: Any) -> None:
    agent = Agent(model=ScriptedModel(), hooks=hooked("before_run", verdict), listeners=[recorder.listener()])
    result = await agent.run("go", check=False)

    (run,) = recorder.spans
    assert attributes(run)["beforehand.run.stop_reason"] == result.stop_reason
    assert status(run)[0] == "ERROR"
    assert [event["beforehand.decision.seam"] for event in decisions([run])] == ["before_run"]


async def test_what_a_foreign_model_raises_is_named_and_not_quoted_on_the_request(recorder: Recorder) -> None:
    def breaks(request: Any) -> Any:
        raise ValueError("with a secret")

    result = await Agent(model=FunctionModel(breaks), listeners=[recorder.listener()]).run("go", check=False)
    assert result.stop_reason == "error"
    assert status(recorder.one("chat function")) == ("ERROR", "ValueError", None)
    assert status(recorder.one("invoke_agent agent"))[1] == "ModelError"


# --- aborted -------------------------------------------------------------------------------------


async def aborted(recorder: Recorder, model: FunctionModel, *tools: Any) -> RunResult:
    talk = Agent(model=model, tools=tools, listeners=[recorder.listener()], limits=Limits(abort_grace=0.01)).conversation()
    waiting = asyncio.Event()
    model_or_tool_waits[:] = [waiting]
    run = asyncio.ensure_future(talk.run("go"))
    await waiting.wait()
    talk.abort("enough")
    return await run


model_or_tool_waits: list[asyncio.Event] = []


async def hang(*_: Any) -> Any:
    model_or_tool_waits[0].set()
    await asyncio.Event().wait()


async def test_a_request_that_was_aborted_before_anything_came_is_there(recorder: Recorder) -> None:
    result = await aborted(recorder, FunctionModel(hang))

    assert result.stop_reason == "aborted"
    assert [name for name, _ in recorder.tree()] == ["invoke_agent agent"]
    assert status(recorder.one("chat function")) == ("ERROR", "aborted", None)
    assert status(recorder.one("invoke_agent agent")) == status(recorder.one("turn")) == ("ERROR", "aborted", "enough")


async def test_an_abort_inside_a_tool_ends_its_call(recorder: Recorder) -> None:
    @tool
    async def hangs() -> str:
        return str(await hang())

    await aborted(recorder, ScriptedModel([[tool_call("hangs"), tool_call("work")]]), hangs, work)

    assert status(recorder.one("execute_tool hangs")) == ("ERROR", "aborted", None)
    assert attributes(recorder.one("execute_tool work"))["beforehand.tool.outcome"] == "ran"
    assert status(recorder.one("invoke_agent agent")) == ("ERROR", "aborted", "enough")


async def test_an_aborted_compaction_says_so(recorder: Recorder) -> None:
    waiting = asyncio.Event()

    def answer(request: Any) -> Any:
        if "Summarise" not in request.system:
            return text("hello")
        waiting.set()
        return [delay(3600)]

    talk = Agent(model=FunctionModel(answer), listeners=[recorder.listener()]).conversation()
    await talk.run("go")
    compacting = asyncio.ensure_future(talk.compact(keep=0))
    await waiting.wait()
    talk.abort()
    assert (await compacting).reason == "aborted"
    assert status(recorder.one("compact agent"))[:2] == ("ERROR", "aborted")


async def test_a_failed_compaction_says_with_what(recorder: Recorder) -> None:
    talk = Agent(model=ScriptedModel([text("hello"), error("down")]), listeners=[recorder.listener()]).conversation()
    await talk.run("go")
    with pytest.raises(ServerError):
        await talk.compact(keep=0)
    assert status(recorder.one("compact agent"))[:2] == ("ERROR", "ServerError")


async def test_a_reply_that_a_hook_cut_to_ask_again_says_so_in_a_run_that_is_fine(recorder: Recorder) -> None:
    cuts = [Interrupt("rude", resend=True)]
    hooks = [Hook(seam="on_chunk", fn=lambda chunk: cuts.pop() if cuts else None, name="guard")]
    agent = Agent(model=ScriptedModel([text("rude"), text("polite")]), hooks=hooks, listeners=[recorder.listener()])
    assert (await agent.run("go")).text == "polite"

    first, second = recorder.named("chat scripted")
    assert [status(first), status(second)] == [("ERROR", "interrupted", None), FINE]
    assert (first.end_time or 0) <= (second.start_time or 0)
    assert status(recorder.one("invoke_agent agent")) == FINE


def test_a_stream_that_is_dropped_when_its_event_loop_is_gone_ends_every_span(recorder: Recorder) -> None:
    streams = [Agent(model=ScriptedModel([text("hello")]), listeners=[recorder.listener()]).stream("go")]

    async def read_a_little() -> None:
        async for event in streams[0]:
            if event.type == "message_update":
                return

    asyncio.run(read_a_little())
    assert recorder.open == ["invoke_agent agent", "turn", "chat scripted"]
    streams.clear()
    gc.collect()

    assert status(recorder.one("invoke_agent agent")) == ("ERROR", "GeneratorExit", None)
    assert status(recorder.one("chat scripted")) == ("ERROR", "GeneratorExit", None)


@pytest.mark.parametrize("after", range(1, 12))
async def test_a_stream_left_by_break_ends_every_span(recorder: Recorder, after: int) -> None:
    model = ScriptedModel([[text("I ", ["I", " "]), tool_call("work")], text("end")])
    agent = Agent(model=model, tools=[work], listeners=[recorder.listener()])
    talk = agent.conversation()
    seen = 0
    async for _ in talk.stream("go"):
        seen += 1
        if seen == after:
            break
    await talk.run("are you there?", check=False)  # waits for the run that was left

    left = recorder.named("invoke_agent agent")[0]
    assert status(left) == ("ERROR", "aborted", "the reader of the stream left")
    assert len(recorder.tree()) == 2


# --- torn down -----------------------------------------------------------------------------------


async def test_a_run_that_is_cancelled_from_outside_ends_every_span(recorder: Recorder) -> None:
    model_or_tool_waits[:] = [asyncio.Event()]

    @tool
    async def hangs() -> str:
        return str(await hang())

    run = asyncio.ensure_future(
        Agent(model=ScriptedModel([tool_call("hangs")]), tools=[hangs], listeners=[recorder.listener()]).run("go")
    )
    await model_or_tool_waits[0].wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert status(recorder.one("invoke_agent agent")) == ("ERROR", "CancelledError", None)
    assert status(recorder.one("execute_tool hangs"))[0] == "ERROR"
    assert attributes(recorder.one("execute_tool hangs"))["beforehand.tool.outcome"] == "uncertain"


async def test_a_request_that_is_cancelled_from_outside_ends_too(recorder: Recorder) -> None:
    model_or_tool_waits[:] = [asyncio.Event()]
    run = asyncio.ensure_future(Agent(model=FunctionModel(hang), listeners=[recorder.listener()]).run("go"))
    await model_or_tool_waits[0].wait()
    run.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await run
    assert status(recorder.one("chat function"))[:2] == ("ERROR", "aborted")


async def test_what_the_caller_is_handling_meanwhile_is_not_the_runs_error(recorder: Recorder) -> None:
    agent = Agent(model=ScriptedModel([text("one"), text("two")]), listeners=[recorder.listener()])
    talk = agent.conversation()
    try:
        raise KeyError("the caller's")
    except KeyError:
        await talk.run("go")
        assert (await talk.compact(keep=0)).messages is not None
    assert [status(span) for span in recorder.spans if span.parent is None] == [FINE, FINE]


async def test_a_busy_talk_makes_no_span(recorder: Recorder) -> None:
    talk = Agent(model=ScriptedModel([text("one")]), listeners=[recorder.listener()]).conversation()

    async def second(event: Any) -> None:
        with pytest.raises(BeforehandError, match="already processing"):
            await talk.run("again")

    talk.on("turn_start", second)
    await talk.run("go")
    assert len(recorder.named("invoke_agent agent")) == 1


# --- suspended -----------------------------------------------------------------------------------


@hook.before_tool_call(tools=["send"])
def ask(call: Any) -> Ask:
    return Ask("may it?")


@tool
async def send(n: int = 0) -> str:
    return "sent"


def asking(recorder: Recorder, *rest: Any, **options: Any) -> Agent:
    calls = [tool_call("work", id="c0"), tool_call("send", id="c1"), tool_call("send", id="c2")]
    return Agent(
        model=ScriptedModel([calls, *rest]), tools=[work, send], hooks=[ask], listeners=[recorder.listener(**options)], name="a"
    )


async def test_a_suspended_run_ends_its_spans_and_goes_on_in_new_ones_that_link_to_them(recorder: Recorder) -> None:
    talk = asking(recorder, text("end"), capture_content=True).conversation()
    await talk.run("go")
    assert recorder.open == []
    waited = recorder.one("invoke_agent a")
    assert attributes(waited)["beforehand.run.stop_reason"] == "suspended"
    assert status(waited) == status(recorder.call("c1")) == FINE
    assert attributes(recorder.call("c1"))["beforehand.tool.outcome"] == "pending"
    assert attributes(recorder.call("c1"))["beforehand.tool.decided_by"] == "ask"

    await talk.resume({"c1": Approve(), "c2": Deny("no")})
    _, went_on = recorder.named("invoke_agent a")
    assert [link.context.span_id for link in went_on.links] == [id_of(waited)]
    assert attributes(went_on)["beforehand.run.resumed"] is True
    assert attributes(went_on)["beforehand.run.id"] == attributes(waited)["beforehand.run.id"]
    sends = [attributes(span) for span in recorder.named("execute_tool send")]
    assert [span["beforehand.tool.outcome"] for span in sends] == ["pending", "pending", "blocked", "ran"]
    assert [span.get("beforehand.tool.reason") for span in sends] == [None, None, "no", None]
    below = ("turn", [("execute_tool send", []), ("execute_tool send", [])])
    assert recorder.tree()[1] == ("invoke_agent a", [below, ("turn", [("chat scripted", [])])])
    assert [attributes(turn)["beforehand.turn.number"] for turn in recorder.named("turn")] == [1, 1, 2]


async def test_each_part_of_a_suspended_run_has_the_usage_of_that_part(recorder: Recorder) -> None:
    from beforehand import Usage

    calls = [tool_call("send", id="c1"), finish(usage=Usage(10, 1))]
    agent = Agent(
        model=ScriptedModel([calls, [text("end"), finish(usage=Usage(20, 2))]]), tools=[send], hooks=[ask],
        listeners=[recorder.listener()], name="a",
    )  # fmt: skip
    talk = agent.conversation()
    await talk.run("go")
    await talk.resume({"c1": Approve()})
    assert [attributes(span)["gen_ai.usage.input_tokens"] for span in recorder.named("invoke_agent a")] == [10, 20]


async def test_a_sub_agent_that_waits_goes_on_under_the_call_that_goes_on(recorder: Recorder) -> None:
    child = Agent(model=ScriptedModel([tool_call("send", id="c1"), text("sent")]), tools=[send], hooks=[ask], name="child")
    model = ScriptedModel([tool_call("ask", {"prompt": "x"}, id="c1"), text("end")])
    listener = recorder.listener()
    agent = Agent(model=model, tools=[child.as_tool("ask", "Asks.")], listeners=[listener], name="boss")
    talk = agent.conversation()
    result = await talk.run("go")
    result = await talk.resume({result.pending[0].call_id: Approve()})

    assert result.text == "end"
    sent = ("invoke_agent child", [("turn", [("execute_tool send", [])]), ("turn", [("chat scripted", [])])])
    went_on = [("turn", [("execute_tool ask", [sent])]), ("turn", [("chat scripted", [])])]
    assert recorder.tree()[1] == ("invoke_agent boss", went_on)
    assert [len(span.links) for span in recorder.named("invoke_agent child")] == [0, 1]


async def test_calls_that_nobody_answered_are_refused_in_sight(recorder: Recorder) -> None:
    talk = asking(recorder, text("end")).conversation()
    await talk.run("go")
    await talk.run("something else")

    outcomes = [attributes(span)["beforehand.tool.outcome"] for span in recorder.named("execute_tool send")]
    assert outcomes == ["pending", "pending", "blocked", "blocked"]
    assert "Nobody approved" in attributes(recorder.named("execute_tool send")[2])["beforehand.tool.reason"]
    assert len(recorder.named("invoke_agent a")) == 3


async def test_a_run_that_goes_on_before_another_listener_has_its_spans_without_a_link(recorder: Recorder) -> None:
    agent = Agent(
        model=ScriptedModel([tool_call("send", id="c1"), text("end")]), tools=[send], hooks=[ask], name="a"
    )  # fmt: skip
    talk = agent.conversation()
    await talk.run("go")
    talk.subscribe(recorder.listener())
    await talk.resume({"c1": Approve()})

    below = [("turn", [("execute_tool send", [])]), ("turn", [("chat scripted", [])])]
    assert recorder.tree() == [("invoke_agent a", below)]
    assert recorder.one("invoke_agent a").links == ()


async def test_only_so_many_suspended_runs_are_remembered(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    from beforehand.otel import KEPT

    listener = recorder.listener()
    agent = Agent(
        model=FunctionModel(lambda request: tool_call("send", id="c1") if len(request.messages) == 1 else text("end")),
        tools=[send], hooks=[ask], listeners=[listener], name="a",
    )  # fmt: skip
    first = agent.conversation()
    await first.run("go")
    for _ in range(KEPT):
        await agent.run("go")
    await first.resume({"c1": Approve()})
    assert recorder.named("invoke_agent a")[-1].links == ()


async def test_a_run_that_goes_on_with_a_new_turn_has_that_turn_only(recorder: Recorder) -> None:
    trace = recorder.listener().begin(RunBegin(run_id="r", agent="a", model="m", provider="p", conversation_id="c", resumed=True))
    assert trace is not None
    trace.hear(TurnStart(run_id="r", turn=3, number=3))
    trace.ends(RunEnd(stop_reason="completed"))
    assert recorder.tree() == [("invoke_agent a", [("turn", [])])]
