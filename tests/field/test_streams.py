"""Field cases F01, F03, F05, F07: what readers of a stream get, and that streaming changes nothing else."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from beforehand import Agent, AssistantMessage, Block, Event, Hook, Interrupt, Replace, Text, Thinking, tool
from beforehand.testing import ScriptedModel, text, thinking, tool_call

from field.entries import Colour, Enter

SAID = "mail bob@example.com now"
ADDRESS = re.compile(r"[\w.]+@[\w.]+")


def redact(chunk: Any) -> Replace:
    """Redacts addresses. The last word is kept back until it is over, because it may become one."""
    end = len(chunk.pending) if chunk.final else chunk.pending.rfind(" ") + 1
    over, last_word = chunk.pending[:end], chunk.pending[end:]
    return Replace(text=ADDRESS.sub("[address]", over) + last_word, hold=len(last_word))


CUTS = [[SAID[:i], SAID[i:]] for i in range(1, len(SAID))]


@pytest.mark.parametrize("chunks", [*CUTS, list(SAID), [SAID]], ids=lambda chunks: "|".join(chunks)[:40])
async def test_f01_no_reader_ever_gets_what_a_chunk_hook_takes_out_however_the_text_is_cut(
    chunks: list[str], colour: Colour
) -> None:
    model = ScriptedModel([text("", chunks=chunks), text("end")])
    talk = Agent(model=model, hooks=[Hook(seam="on_chunk", fn=colour(redact))]).conversation()
    heard: list[Event] = []
    talk.subscribe(heard.append)

    streamed = [event async for event in talk.stream("go")]
    first = talk.result
    await talk.run("again")

    assert first is not None
    safe = "mail [address] now"
    assert "".join(e.delta for e in streamed if e.type == "message_update") == safe
    assert "".join(e.delta for e in heard[: len(streamed)] if e.type == "message_update") == safe
    assert first.text == safe
    assert talk.messages[1].text == safe
    assert model.requests[1].messages[1].text == safe
    for everything in (streamed, heard, first.messages, list(talk.messages), model.requests[1]):
        assert "bob@" not in repr(everything)
        assert "example" not in repr(everything)


@pytest.mark.parametrize("chunks", [[SAID], ["mail bob", "@exam", "ple.com now"], list(SAID)], ids=len)
async def test_f01_the_same_text_comes_out_of_every_entry(chunks: list[str], enter: Enter, colour: Colour) -> None:
    model = ScriptedModel([text("", chunks=chunks)])
    result = await enter(Agent(model=model, hooks=[Hook(seam="on_chunk", fn=colour(redact))]))

    assert result.text == "mail [address] now"
    assert result.messages[-1].text == "mail [address] now"


async def test_f01_reasoning_is_guarded_like_text() -> None:
    model = ScriptedModel([[thinking("", chunks=list(SAID)), text("done")]])
    talk = Agent(model=model, hooks=[Hook(seam="on_chunk", fn=redact)]).conversation()

    streamed = [event async for event in talk.stream("go")]

    assert "".join(e.delta for e in streamed if e.type == "message_update" and e.kind == "thinking") == "mail [address] now"
    assert talk.messages[1].content[0] == Thinking("mail [address] now")  # type: ignore[union-attr]
    assert "bob@" not in repr(streamed)


async def test_f01_arguments_of_a_call_are_guarded_before_anyone_reads_or_runs_them(enter: Enter, colour: Colour) -> None:
    sent: list[str] = []

    @tool
    async def send(to: str) -> str:
        sent.append(to)
        return "sent"

    def redact_arguments(chunk: Any) -> Any:
        return redact(chunk) if chunk.kind == "tool_call" else None

    arguments = '{"to": "bob@example.com"}'
    model = ScriptedModel([tool_call("send", arguments, chunks=list(arguments)), text("end")])
    result = await enter(Agent(model=model, tools=[send], hooks=[Hook(seam="on_chunk", fn=colour(redact_arguments))]))

    assert sent == ["[address]"]
    assert "bob@" not in repr(list(result.messages))


async def test_f01_two_hooks_compose_in_order_and_neither_sees_what_the_first_took_out() -> None:
    seen: list[str] = []

    def shout(chunk: Any) -> Replace:
        seen.append(chunk.pending)
        return Replace(text=chunk.pending.upper())

    model = ScriptedModel([text("", chunks=list(SAID))])
    hooks = [Hook(seam="on_chunk", fn=redact), Hook(seam="on_chunk", fn=shout)]
    result = await Agent(model=model, hooks=hooks).run("go")

    assert result.text == "MAIL [ADDRESS] NOW"
    assert "".join(seen) == "mail [address] now"


# --- F03 ------------------------------------------------------------------------------------------


@tool
async def lookup(city: str) -> str:
    return f"{city}: rain"


def weather_model() -> ScriptedModel:
    calls = [tool_call("lookup", {"city": c}, id=c) for c in ("Bilbao", "Oviedo")]
    return ScriptedModel([[thinking("hm"), text("", chunks=["Let ", "me ", "look"]), *calls], text("rain")])


async def run_and_listen(entry: str, listen: str) -> list[Event]:
    heard: list[Event] = []
    agent = Agent(model=weather_model(), tools=[lookup], listeners=[heard.append] if listen == "agent" else [])
    talk = agent.conversation()
    if listen == "subscribe":
        talk.subscribe(heard.append)
    if listen == "on":
        for name in {e.type for e in await run_and_listen("run", "agent")}:
            talk.on(name, heard.append)
    if entry == "run":
        await talk.run("weather?", run_id="same")
    elif entry == "stream":
        async for event in talk.stream("weather?", run_id="same"):
            if listen == "read":
                heard.append(event)
    elif entry == "agent.run":
        await agent.run("weather?", run_id="same")
    else:
        async for event in agent.stream("weather?", run_id="same"):
            if listen == "read":
                heard.append(event)
    return heard


WATCHED = [
    ("run", "agent"), ("run", "subscribe"), ("run", "on"), ("stream", "agent"), ("stream", "subscribe"), ("stream", "on"),
    ("stream", "read"), ("agent.run", "agent"), ("agent.stream", "agent"), ("agent.stream", "read"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "listen"), WATCHED)
async def test_f03_an_observer_hears_the_same_events_in_the_same_order_whatever_the_entry(entry: str, listen: str) -> None:
    expected = await run_and_listen("run", "subscribe")

    assert await run_and_listen(entry, listen) == expected
    assert [e.type for e in expected].count("message_update") == 7
    assert expected[0].type == "agent_start"
    assert expected[-1].type == "agent_end"


@pytest.mark.parametrize("seam", ["on_chunk", "on_message", "before_tool_call", "after_turn"])
async def test_f03_a_hook_is_called_equally_often_whatever_the_entry(seam: str, enter: Enter, colour: Colour) -> None:
    calls: list[Any] = []
    agent = Agent(model=weather_model(), tools=[lookup], hooks=[Hook(seam=seam, fn=colour(calls.append))])
    await enter(agent)

    # text in three chunks and its end, reasoning and its end, two calls' arguments and their ends, the answer and its end
    expected = {"on_chunk": 4 + 2 + 4 + 2, "on_message": 5, "before_tool_call": 2, "after_turn": 2}
    assert len(calls) == expected[seam]


# --- F05 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seam", ["before_run", "authorize_request", "on_message"])
async def test_f05_not_one_byte_of_an_answer_is_shown_before_a_slow_input_guard_has_spoken(seam: str) -> None:
    asked, verdict = asyncio.Event(), asyncio.Event()

    async def guard(context: Any) -> Block | Interrupt:
        asked.set()
        await verdict.wait()
        return Interrupt("no") if seam == "on_message" else Block("no")

    model = ScriptedModel([text("", chunks=["fast ", "answer"])])
    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=guard)]).conversation()
    shown: list[Event] = []
    talk.on("message_update", shown.append)
    running = asyncio.create_task(talk.run("go"))
    await asked.wait()
    for _ in range(20):  # a model that ran ahead would have answered by now
        await asyncio.sleep(0)
    assert (model.requests, shown) == ([], [])
    verdict.set()
    result = await running

    assert (model.requests, shown) == ([], [])
    assert result.text == ""


async def test_f05_text_that_a_late_verdict_takes_back_is_retracted_in_so_many_words(colour: Colour) -> None:
    def late(incoming: Any) -> Interrupt | None:
        return Interrupt("no") if incoming.origin == "model" else None

    model = ScriptedModel([text("", chunks=["fast ", "answer"])])
    talk = Agent(model=model, hooks=[Hook(seam="on_message", fn=colour(late))]).conversation()
    streamed = [event async for event in talk.stream("go")]

    shown = [e for e in streamed if e.type == "message_update"]
    (retracted,) = [e for e in streamed if e.type == "message_retracted"]
    assert retracted.message_id == shown[0].message_id
    assert retracted.chars == sum(len(e.delta) for e in shown) == len("fast answer")
    assert [m.text for m in talk.messages] == ["go"]
    assert talk.result is not None
    assert (talk.result.stop_reason, talk.result.text) == ("interrupted", "")


async def test_f05_a_holding_guard_shows_nothing_until_it_has_judged_the_whole_answer(colour: Colour) -> None:
    def late(incoming: Any) -> Interrupt | None:
        return Interrupt("no") if "answer" in incoming.message.text else None

    model = ScriptedModel([text("", chunks=["fast ", "answer"])])
    talk = Agent(model=model, hooks=[Hook(seam="on_message", fn=colour(late), hold=True)]).conversation()
    streamed = [event async for event in talk.stream("go")]

    assert [e for e in streamed if e.type == "message_update"] == []
    assert [e.chars for e in streamed if e.type == "message_retracted"] in ([], [0])


@pytest.mark.parametrize("hold", [False, True], ids=["shown", "held"])
async def test_f05_a_reply_rewritten_after_it_was_shown_is_taken_back_and_shown_anew(hold: bool, colour: Colour) -> None:
    def rewrite(incoming: Any) -> Replace | None:
        if incoming.origin != "model":
            return None
        clean = ADDRESS.sub("[address]", incoming.message.text)
        return Replace(message=AssistantMessage((Text(clean),), id=incoming.message.id))

    model = ScriptedModel([text("", chunks=list(SAID)), text("end")])
    talk = Agent(model=model, hooks=[Hook(seam="on_message", fn=colour(rewrite), hold=hold)]).conversation()
    shown = ""
    async for event in talk.stream("go"):
        if event.type == "message_update":
            shown += event.delta
        elif event.type == "message_retracted":
            assert event.chars == len(shown)
            assert not hold
            shown = ""
    await talk.run("again")

    assert shown == talk.messages[1].text == model.requests[1].messages[1].text == "mail [address] now"


# --- F07 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_f07_a_hook_that_only_measures_leaves_the_stream_a_stream_and_sees_the_reply_once(
    streamed: bool, colour: Colour
) -> None:
    started: list[float] = []
    finished: list[tuple[float, str]] = []

    def before(call: Any) -> None:
        started.append(time.perf_counter())

    def after(incoming: Any) -> None:
        if incoming.origin == "model":
            finished.append((time.perf_counter(), incoming.message.text))

    model = ScriptedModel([text("", chunks=["a", "b", "c"])])
    hooks = [Hook(seam="before_provider_call", fn=colour(before)), Hook(seam="on_message", fn=colour(after))]
    talk = Agent(model=model, hooks=hooks).conversation()
    events: list[Any] = []
    talk.subscribe(events.append)
    if streamed:
        read = [event async for event in talk.stream("go")]
        assert read == events
    else:
        await talk.run("go")

    assert [e.delta for e in events if e.type == "message_update"] == ["a", "b", "c"]
    assert len(started) == 1
    assert [reply for _, reply in finished] == ["abc"]
    assert started[0] <= finished[0][0]
