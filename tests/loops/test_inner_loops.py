"""Inner loops: streams of turns beside main, with a history, tools and hooks of their own, and messages between them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, Approve, Ask, Block, Hook, Limits, Loop, Model, Options, Queue, Replace, RunError, ToolDefinitionError,
    UsageError, hook, tool,
)  # fmt: skip
from beforehand.errors import ConfigError
from beforehand.innerloops import MAX_HOPS, derive, loop_tools
from beforehand.testing import FunctionModel, ScriptedModel, error, text, tool_call

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@tool
async def search(query: str) -> str:
    """Search."""
    RAN.append(f"search {query}")
    return "found"


@tool
async def search_mail(query: str) -> str:
    """Search the mail."""
    RAN.append(f"mail {query}")
    return "mail"


@tool
async def pay(amount: int) -> str:
    """Pay."""
    RAN.append(f"pay {amount}")
    return "paid"


TOOLS = [search, search_mail, pay]


def send(to: str, message: str = "look", **more: Any) -> Any:
    return tool_call("loop_send", {"to": to, "message": message, **more})


def by_loop(scripts: dict[str, list[Any]]) -> FunctionModel:
    """A model that is asked by several loops: each has instructions that begin with its name, and a script."""
    left = {name: list(replies) for name, replies in scripts.items()}

    def reply(request: Any) -> Any:
        name = request.system.partition(":")[0] or "main"
        return left[name].pop(0)

    return FunctionModel(reply)


def loop(name: str, **more: Any) -> Loop:
    return Loop(name, instructions=f"{name}: work.", **more)


def said(talk: Any) -> list[str]:
    return [m.text for m in talk.messages]


# --- a loop of its own ---------------------------------------------------------------------------


async def test_an_inner_loop_has_its_own_history_instructions_tools_and_model() -> None:
    mains, its = ScriptedModel([text("main says")]), ScriptedModel([text("one"), text("two")])
    agent = Agent(
        model=mains, instructions="Be kind.", tools=TOOLS,
        loops=[Loop("researcher", instructions="Find out.", tools=["search"], model=its)],
    )  # fmt: skip
    await agent.run("hi")
    researcher = agent.loop("researcher")
    await researcher.run("look")
    await agent.loop("researcher").run("again")

    assert agent.loop("researcher") is researcher
    assert said(researcher) == ["look", "one", "again", "two"]
    assert [r.system for r in its.requests] == ["Find out."] * 2
    assert [t.name for t in its.requests[0].tools] == ["search"]
    assert [m.text for m in mains.requests[0].messages] == ["hi"]
    assert [t.name for t in mains.requests[0].tools] == ["search", "search_mail", "pay", "loop_send", "loop_list"]


async def test_without_instructions_or_a_model_a_loop_has_the_agents_and_its_tools_are_for_messages() -> None:
    model = ScriptedModel([text("hello")])
    await Agent(model=model, instructions="Be kind.", tools=TOOLS, loops=[Loop("helper")]).loop("helper").run("hi")
    assert model.requests[0].system == "Be kind."
    assert [t.name for t in model.requests[0].tools] == ["loop_send", "loop_list"]


async def test_instructions_can_be_functions_of_the_run() -> None:
    model = ScriptedModel([text("hello")])
    made = Loop("helper", instructions=["Fixed.", lambda run: f"You are {run.loop}."])
    await Agent(model=model, loops=[made]).loop("helper").run("hi")
    assert model.requests[0].system == "Fixed.\n\nYou are helper."


@pytest.mark.parametrize(
    ("names", "granted"),
    [
        (["search"], ["search"]), (["search*"], ["search", "search_mail"]),
        (["*"], ["loop_send", "loop_list", "search", "search_mail"]),
        (["search", "loop_list"], ["loop_list", "search"]), ([], []), (["pay", "search"], ["search"]),
    ],
)  # fmt: skip
def test_tools_are_the_listed_ones_that_the_agent_has_without_the_restricted(names: list[str], granted: list[str]) -> None:
    plan = msgspec.structs.replace(Agent(model=ScriptedModel(), tools=TOOLS).plan, restricted=frozenset({"pay"}))
    assert [t.name for t in derive(plan, Loop("helper", tools=names)).tools] == granted


async def test_a_tool_that_is_not_on_the_list_is_not_found_there_and_runs_in_main() -> None:
    scripts = {"main": [tool_call("pay", {"amount": 1}), text("end")], "helper": [tool_call("pay", {"amount": 2}), text("end")]}
    agent = Agent(model=by_loop(scripts), tools=TOOLS, loops=[loop("helper", tools=["search"])])
    await agent.run("hi")
    result = await agent.loop("helper").run("hi")
    assert RAN == ["pay 1"]
    assert result.messages[2].text.startswith("Tool pay not found.")


async def test_a_tool_of_a_loop_cannot_call_one_that_is_not_on_the_list() -> None:
    from beforehand import ToolContext

    @tool
    async def plan(ctx: ToolContext) -> str:
        """Plan."""
        done = await ctx.call_tool("pay", {"amount": 3})
        return f"{done.outcome}"

    scripts = {"helper": [tool_call("plan"), text("end")]}
    agent = Agent(model=by_loop(scripts), tools=[*TOOLS, plan], loops=[loop("helper", tools=["plan"])])
    result = await agent.loop("helper").run("hi")
    assert (result.messages[2].text, RAN) == ("not_found", [])


async def test_a_hook_that_shows_another_tool_to_a_loop_does_not_grant_it() -> None:
    @hook.before_provider_call(loops=["helper"])
    def show(call: Any) -> Replace:
        return Replace(request=msgspec.structs.replace(call.request, tools=(*call.request.tools, pay.spec)))

    model = by_loop({"helper": [tool_call("pay", {"amount": 4}), text("end")]})
    agent = Agent(model=model, tools=TOOLS, hooks=[show], loops=[loop("helper", tools=["search"])])
    await agent.loop("helper").run("hi")
    assert [t.name for t in model.requests[0].tools] == ["search", "pay"]
    assert RAN == []


async def test_events_records_and_contexts_carry_the_loops_name() -> None:
    heard: list[Any] = []
    seen: list[str] = []

    @hook.before_tool_call
    def gate(call: Any) -> Block:
        seen.append(call.run.loop)
        return Block("no")

    scripts = {
        "main": [tool_call("pay", {"amount": 1}), text("end")],
        "helper": [tool_call("search", {"query": "x"}), text("end")],
    }
    agent = Agent(
        model=by_loop(scripts), tools=TOOLS, hooks=[gate], loops=[loop("helper", tools=["search"])], listeners=[heard.append]
    )
    main = await agent.run("hi")
    inner = await agent.loop("helper").run("hi")
    assert seen == ["main", "helper"]
    assert ({d.loop for d in main.decisions}, {d.loop for d in inner.decisions}) == ({"main"}, {"helper"})
    assert {(e.run_id, e.loop) for e in heard} == {(main.run_id, "main"), (inner.run_id, "helper")}


async def test_loops_work_at_the_same_time() -> None:
    inside: list[str] = []
    both = asyncio.Event()

    async def reply(request: Any) -> Any:
        inside.append(request.system)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return text(f"{request.system} done")

    agent = Agent(model=FunctionModel(reply), loops=[Loop("a", "A"), Loop("b", "B")])
    results = await asyncio.gather(agent.loop("a").run("go"), agent.loop("b").run("go"))
    assert [r.text for r in results] == ["A done", "B done"]


async def test_two_talks_with_one_agent_never_meet_in_a_loop() -> None:
    agent = Agent(model=FunctionModel(lambda request: text("ok")), loops=[Loop("notes", "Take notes.")])
    ours, theirs = agent.conversation(), agent.conversation()
    await ours.loop("notes").run("our secret")
    assert said(theirs.loop("notes")) == []
    assert said(agent.loop("notes")) == []
    assert ours.loop("notes") is ours.loop("notes")


# --- hooks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loops", "asked"),
    [
        (None, ["main", "a", "b"]), (["main"], ["main"]), (["a"], ["a"]), (["main", "b"], ["main", "b"]), (["later"], ["later"]),
        (["*"], ["main", "a", "b", "later"]),
    ],
)  # fmt: skip
async def test_a_hook_is_asked_in_the_loops_it_names_also_in_those_that_come_later(loops: Any, asked: list[str]) -> None:
    seen: list[str] = []
    note = Hook(seam="before_provider_call", fn=lambda c: seen.append(c.run.loop), loops=loops)
    agent = Agent(model=FunctionModel(lambda r: text("ok")), hooks=[note], loops=[Loop("a", "A"), Loop("b", "B")])
    await agent.run("hi")
    await agent.loop("a").run("hi")
    await agent.loop("b").run("hi")
    await agent.loop(Loop("later", "L")).run("hi")
    assert seen == [*asked, *(["later"] if loops is None else [])]


async def test_a_gate_for_every_loop_holds_in_inner_ones() -> None:
    gate = Hook(seam="before_tool_call", fn=lambda c: Block("never"))
    agent = Agent(
        model=by_loop({"helper": [tool_call("search", {"query": "x"}), text("end")]}), tools=TOOLS, hooks=[gate],
        loops=[loop("helper", tools=["search"])],
    )  # fmt: skip
    result = await agent.loop("helper").run("hi")
    assert (RAN, result.messages[2].text) == ([], "never")


async def test_what_a_sub_agents_caller_guards_holds_in_the_sub_agents_own_loops() -> None:
    child = Agent(
        model=by_loop({"main": [send("helper"), text("sent")], "helper": [tool_call("pay", {"amount": 1}), text("end")]}),
        tools=TOOLS, loops=[loop("helper", tools=["pay"])],
    )  # fmt: skip
    gate = hook.before_tool_call(tools=["pay"], loops=["main"])(lambda c: Block("not here"))
    asked: list[str] = []
    watch = hook.before_tool_call(lambda c: asked.append(c.name))
    parent = Agent(
        model=ScriptedModel([tool_call("delegate", {"prompt": "pay"}), text("end")]), hooks=[gate, watch],
        tools=[child.as_tool("delegate", "Delegate.")],
    )  # fmt: skip
    await parent.run("go")
    assert RAN == []
    assert asked == ["delegate", "loop_send", "pay"]


async def test_the_hooks_of_a_loop_are_those_the_agent_has_when_the_run_starts() -> None:
    agent = Agent(model=FunctionModel(lambda r: text("ok")), loops=[Loop("a", "A")])
    talk = agent.loop("a")
    first = talk.plan.hooks.current
    assert talk.plan.hooks.current is first
    agent.plan.hooks.current = Agent(
        model=ScriptedModel(), hooks=[Hook(seam="before_run", fn=lambda s: Block("new"), loops=["a"])]
    ).plan.hooks.current
    assert (await talk.run("hi")).reason == "new"


# --- nobody to ask -------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", [None, lambda pending: Approve()], ids=["no handler", "a handler"])
async def test_an_ask_in_an_inner_loop_is_a_refusal_that_says_why(handler: Any) -> None:
    ask = Hook(seam="before_tool_call", fn=lambda c: Ask("Really?"))
    scripts = {"helper": [tool_call("pay", {"amount": 9}), text("end")]}
    agent = Agent(model=by_loop(scripts), tools=TOOLS, hooks=[ask], on_ask=handler, loops=[loop("helper", tools=["pay"])])
    result = await agent.loop("helper").run("hi")
    assert (result.stop_reason, RAN) == ("completed", [])
    assert "an inner loop has nobody to ask" in result.messages[2].text
    assert "Really?" in result.messages[2].text


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_sub_agent_inside_an_inner_loop_has_nobody_to_ask_either(depth: int) -> None:
    asked: list[Any] = []

    def approve(pending: Any) -> Approve:
        asked.append(pending)
        return Approve()

    agent = Agent(
        model=ScriptedModel([tool_call("pay", {"amount": 9}), text("end")]), tools=[pay], on_ask=approve,
        hooks=[Hook(seam="before_tool_call", fn=lambda c: Ask("Really?") if c.name == "pay" else None)],
    )  # fmt: skip
    for _ in range(depth):
        agent = Agent(
            model=ScriptedModel([tool_call("delegate", {"prompt": "pay"}), text("end")]), on_ask=approve,
            tools=[agent.as_tool("delegate", "Delegate.")], loops=[Loop("helper", "H", tools=["delegate"])],
        )  # fmt: skip
    await agent.loop("helper").run("go")
    assert (RAN, asked) == ([], [])


# --- messages between loops ----------------------------------------------------------------------


async def test_a_message_wakes_a_loop_once_and_says_whom_it_is_from() -> None:
    model = by_loop({"main": [send("helper", "find x"), text("sent")], "helper": [text("on it")]})
    talk = Agent(model=model, loops=[loop("helper")]).conversation()
    result = await talk.run("go")
    await talk.wait_for_loops()
    assert said(talk.loop("helper")) == ["[from loop:main] find x", "on it"]
    assert result.messages[2].text == "helper is woken and reads the message now."
    assert talk.loop("helper").queued == ()


async def test_an_agents_run_lets_what_it_has_woken_come_to_an_end() -> None:
    model = by_loop(
        {"main": [send("helper", "find x"), text("sent")], "helper": [tool_call("search", {"query": "x"}), text("end")]}
    )
    agent = Agent(model=model, tools=TOOLS, loops=[loop("helper", tools=["search"])])
    assert (await agent.run("go")).text == "sent"
    assert RAN == ["search x"]


async def test_an_agents_stream_does_so_too() -> None:
    model = by_loop(
        {"main": [send("helper", "find x"), text("sent")], "helper": [tool_call("search", {"query": "x"}), text("end")]}
    )
    agent = Agent(model=model, tools=TOOLS, loops=[loop("helper", tools=["search"])])
    async for _ in agent.stream("go"):
        pass
    assert RAN == ["search x"]


async def test_leaving_an_agents_stream_stops_what_it_has_woken() -> None:
    working, gone = asyncio.Event(), asyncio.Event()

    async def reply(request: Any) -> Any:
        if not request.system:
            return text("sent") if request.messages[-1].role == "tool" else send("helper")
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    stream = Agent(model=FunctionModel(reply), loops=[loop("helper")]).stream("go")
    async for event in stream:
        if event.type == "tool_execution_end":
            await working.wait()
            break
    await stream.aclose()
    assert gone.is_set()


def test_run_sync_does_so_too() -> None:
    model = by_loop(
        {"main": [send("helper", "find x"), text("sent")], "helper": [tool_call("search", {"query": "x"}), text("end")]}
    )
    assert Agent(model=model, tools=TOOLS, loops=[loop("helper", tools=["search"])]).run_sync("go").text == "sent"
    assert RAN == ["search x"]


async def test_a_message_that_wakes_nobody_is_read_when_the_loop_works_next() -> None:
    model = by_loop({"main": [send("helper", "for later", wake=False), text("sent")], "helper": [text("read")]})
    talk = Agent(model=model, loops=[loop("helper")]).conversation()
    result = await talk.run("go")
    await talk.wait_for_loops()
    helper = talk.loop("helper")
    assert said(helper) == []
    assert result.messages[2].text == "The message waits until helper works next."
    await helper.run("now")
    assert said(helper) == ["now", "[from loop:main] for later", "read"]


@pytest.mark.parametrize("wake", [True, False])
async def test_a_loop_that_is_at_work_reads_the_message_before_its_next_request_and_no_run_is_added(wake: bool) -> None:
    at_work, sent = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        at_work.set()
        await sent.wait()
        return "waited"

    runs: list[str] = []
    model = by_loop({"main": [send("helper", "hurry", wake=wake), text("sent")], "helper": [tool_call("wait"), text("end")]})
    agent = Agent(
        model=model, tools=[wait], loops=[loop("helper", tools=["wait"])],
        listeners=[lambda e: runs.append(e.loop) if e.type == "agent_start" else None],
    )  # fmt: skip
    talk = agent.conversation()
    helper = asyncio.ensure_future(talk.loop("helper").run("begin"))
    await at_work.wait()
    result = await talk.run("go")
    sent.set()
    await helper
    await talk.wait_for_loops()
    assert result.messages[2].text == "helper is at work and reads the message next."
    assert said(talk.loop("helper")) == ["begin", "", "waited", "[from loop:main] hurry", "end"]
    assert runs == ["helper", "main"]


async def test_a_message_that_comes_after_the_last_request_of_a_run_gets_a_turn_of_its_own() -> None:
    ending, sent = asyncio.Event(), asyncio.Event()

    async def linger(event: Any) -> None:
        if event.type == "agent_end" and event.loop == "helper":
            ending.set()
            await sent.wait()

    model = by_loop({"main": [send("helper", "one more"), text("sent")], "helper": [text("first"), text("second")]})
    talk = Agent(model=model, loops=[loop("helper")], listeners=[linger]).conversation()
    helper = asyncio.ensure_future(talk.loop("helper").run("begin"))
    await ending.wait()
    result = await talk.run("go")
    sent.set()
    assert (await helper).text == "first"
    await talk.wait_for_loops()
    assert result.messages[2].text == "helper is at work and reads the message next."
    assert said(talk.loop("helper")) == ["begin", "first", "[from loop:main] one more", "second"]


async def test_an_inner_loop_answers_main_which_takes_another_turn() -> None:
    model = by_loop({
        "main": [send("helper", "find x"), text("sent"), text("thanks")],
        "helper": [send("main", "x is 42"), text("done")],
    })  # fmt: skip
    talk = Agent(model=model, loops=[loop("helper")]).conversation()
    await talk.run("go")
    await talk.wait_for_loops()
    assert said(talk).count("[from loop:helper] x is 42") == 1
    assert len(model.requests) == 5 if said(talk)[-1] == "thanks" else 4  # read by the run under way, or by one of its own
    assert talk.queued == ()


async def test_several_messages_are_each_read_exactly_once() -> None:
    model = FunctionModel(
        lambda r: (
            [send("helper", f"m{n}") for n in range(20)]
            if r.system == "" and r.messages[-1].text == "go"
            else text("ok")
        )
    )  # fmt: skip
    talk = Agent(model=model, loops=[loop("helper")]).conversation()
    await talk.run("go")
    await talk.wait_for_loops()
    read = [t for t in said(talk.loop("helper")) if t.startswith("[from loop:main]")]
    assert sorted(read) == sorted(f"[from loop:main] m{n}" for n in range(20))
    assert talk.loop("helper").queued == ()


async def test_a_message_does_not_take_away_what_a_person_has_yet_to_decide() -> None:
    ask = Hook(seam="before_tool_call", fn=lambda c: Ask("Pay?") if c.name == "pay" else None)
    model = by_loop(
        {"main": [tool_call("pay", {"amount": 5}, id="p"), text("end")], "helper": [send("main", "psst"), text("end")]}
    )
    talk = Agent(model=model, tools=TOOLS, hooks=[ask], loops=[loop("helper")]).conversation()
    await talk.run("go")
    result = await talk.loop("helper").run("tell main")
    await talk.wait_for_loops()
    assert "waiting for a person" in result.messages[2].text
    assert [p.name for p in talk.pending] == ["pay"]
    await talk.resume({"p": Approve()})
    assert RAN == ["pay 5"]
    assert "[from loop:helper] psst" in said(talk)


async def test_nor_if_it_begins_to_wait_for_a_person_while_the_message_is_under_way() -> None:
    at_work, sent = asyncio.Event(), asyncio.Event()

    @hook.before_tool_call(loops=["main"])
    async def ask(call: Any) -> Ask:
        at_work.set()
        await sent.wait()
        return Ask("Pay?")

    model = by_loop(
        {"main": [tool_call("pay", {"amount": 5}, id="p"), text("end")], "helper": [send("main", "psst"), text("end")]}
    )
    talk = Agent(model=model, tools=TOOLS, hooks=[ask], loops=[loop("helper")]).conversation()
    running = asyncio.ensure_future(talk.run("go"))
    await at_work.wait()
    await talk.loop("helper").run("tell main")
    sent.set()
    assert (await running).stop_reason == "suspended"
    await talk.wait_for_loops()
    assert [p.name for p in talk.pending] == ["pay"]
    await talk.resume({"p": Approve()})
    assert RAN == ["pay 5"]
    assert said(talk).count("[from loop:helper] psst") == 1


async def test_two_loops_that_wake_each_other_come_to_rest() -> None:
    def reply(request: Any) -> Any:
        name = request.system.partition(":")[0]
        if request.messages[-1].role == "tool":
            return text("sent")
        return send("b" if name == "a" else "a", "your turn")

    model = FunctionModel(reply)
    talk = Agent(model=model, loops=[loop("a"), loop("b")]).conversation()
    await talk.loop("a").run("begin")
    await talk.wait_for_loops()
    rounds = sum(m.text.startswith("[from loop") for name in "ab" for m in talk.loop(name).messages)
    assert rounds == MAX_HOPS
    assert sum(len(talk.loop(name).queued) for name in "ab") == 1, "the last message waits, and wakes nobody"


async def test_a_loop_at_work_counts_the_message_that_reaches_it_as_one_more_in_the_row() -> None:
    at_work, go = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        at_work.set()
        await go.wait()
        return "waited"

    model = by_loop({"a": [text("ok")], "b": [tool_call("wait"), text("ok")]})
    talk = Agent(model=model, tools=[wait], loops=[loop("a"), loop("b", tools=["wait"])]).conversation()
    running = asyncio.ensure_future(talk.loop("b").run("begin"))
    await at_work.wait()
    sender = talk.loop("a")._new_run(None, None, None)
    sender.place.hops = 5
    talk._group().send(sender, "b", "hello", True)
    assert talk.loop("b")._running.place.hops == 6  # type: ignore[union-attr]
    go.set()
    await running


async def test_a_message_passes_the_gates_of_the_sender_and_of_the_reader() -> None:
    gate = hook.before_tool_call(tools=["loop_send"])(lambda c: Block("no talking") if "secret" in c.args["message"] else None)

    @hook.on_message(loops=["helper"])
    def redact(incoming: Any) -> Replace | None:
        if incoming.origin != "steer":
            return None
        return Replace(message=msgspec.structs.replace(incoming.message, content=incoming.message.text.replace("x", "*")))

    model = by_loop({"main": [[send("helper", "the secret"), send("helper", "find x")], text("sent")], "helper": [text("ok")]})
    talk = Agent(model=model, hooks=[gate, redact], loops=[loop("helper")]).conversation()
    result = await talk.run("go")
    await talk.wait_for_loops()
    assert result.messages[2].text == "no talking"
    assert said(talk.loop("helper")) == ["[from loop:main] find *", "ok"]


@pytest.mark.parametrize(
    ("to", "message", "complaint"),
    [
        ("nobody", "x", "there is no inner loop 'nobody'"), ("main", "x", "does not send messages to itself"),
        ("helper", " ", "1 to 16000 characters"), ("helper", "x" * 16_001, "1 to 16000 characters"),
    ],
)  # fmt: skip
async def test_a_message_that_cannot_be_sent_is_an_error_the_model_reads(to: str, message: str, complaint: str) -> None:
    talk = Agent(model=by_loop({"main": [send(to, message), text("end")]}), loops=[loop("helper")]).conversation()
    result = await talk.run("go")
    assert result.messages[2].is_error
    assert complaint in result.messages[2].text
    assert said(talk.loop("helper")) == []


async def test_without_loops_the_tools_for_them_say_so() -> None:
    model = ScriptedModel([[send("helper"), tool_call("loop_list")], text("end")])
    result = await Agent(model=model, tools=loop_tools()).run("go")
    assert [m.text for m in result.messages[2:4]] == ["There are no other loops here.", "[]"]


async def test_the_agents_own_loops_have_no_main() -> None:
    agent = Agent(model=by_loop({"a": [send("main"), send("b"), text("end")], "b": [text("ok")]}), loops=[loop("a"), loop("b")])
    result = await agent.loop("a").run("go")
    await agent.loop("a").wait_for_loops()
    assert "there is no main conversation here" in result.messages[2].text
    assert said(agent.loop("b")) == ["[from loop:a] look", "ok"]


async def test_a_loop_made_while_main_runs_can_reach_it() -> None:
    made: list[Any] = []

    @tool
    async def hire() -> str:
        """Hire a helper and let it work."""
        made.append(talk.loop(loop("new")))
        await made[0].run("begin")
        return "hired"

    model = by_loop({"main": [tool_call("hire"), text("end")], "new": [send("main", "hello"), text("done")]})
    talk = Agent(model=model, tools=[hire]).conversation()
    await talk.run("go")
    await talk.wait_for_loops()
    assert said(talk) == ["go", "", "hired", "[from loop:new] hello", "end"]


async def test_the_list_of_loops_says_what_each_is_for_and_what_waits() -> None:
    made = [Loop("helper", "H", description="Finds things."), Loop("idle", "I")]
    model = FunctionModel(lambda r: tool_call("loop_list") if r.messages[-1].text == "go" else text("ok"))
    talk = Agent(model=model, loops=made).conversation()
    talk.loop("helper").steer("wait")
    result = await talk.run("go")
    assert msgspec.json.decode(result.messages[2].text) == [
        {"name": "main", "description": "", "running": True, "queued": 0},
        {"name": "helper", "description": "Finds things.", "running": False, "queued": 1},
        {"name": "idle", "description": "", "running": False, "queued": 0},
    ]


async def test_a_loop_that_was_woken_and_fails_is_logged_and_the_message_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    model = by_loop({"main": [send("helper"), text("sent")], "helper": [error("down")]})
    talk = Agent(model=model, loops=[loop("helper")]).conversation()
    with caplog.at_level(logging.WARNING, logger="beforehand"):
        assert (await talk.run("go")).text == "sent"
        await talk.wait_for_loops()
    assert "loop helper, woken by a message, failed: down" in caplog.text
    assert "[from loop:main] look" in said(talk.loop("helper"))


async def test_the_callers_data_goes_with_a_message() -> None:
    seen: list[Any] = []
    note = Hook(seam="before_provider_call", fn=lambda c: seen.append((c.run.loop, c.run.deps)))
    talk = Agent(
        model=by_loop({"main": [send("helper"), text("sent")], "helper": [text("ok")]}), hooks=[note], loops=[loop("helper")]
    ).conversation()
    await talk.run("go", deps="d")
    await talk.wait_for_loops()
    assert set(seen) == {("main", "d"), ("helper", "d")}


async def test_what_a_message_has_woken_can_be_stopped_and_is_stopped_with_the_run_that_waits_for_it() -> None:
    working, gone = asyncio.Event(), asyncio.Event()

    async def reply(request: Any) -> Any:
        if not request.system:
            return text("sent") if request.messages[-1].role == "tool" else send("helper")
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    agent = Agent(model=FunctionModel(reply), loops=[loop("helper")])
    talk = agent.conversation()
    await talk.run("go")
    await working.wait()
    talk.stop_loops()
    await talk.wait_for_loops()
    assert gone.is_set()
    assert not talk.loop("helper").is_running

    working.clear()
    gone.clear()
    running = asyncio.ensure_future(agent.run("go"))
    await working.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone.wait()


async def test_cancelling_a_run_at_work_cancels_what_it_has_woken() -> None:
    both, gone = asyncio.Event(), asyncio.Event()
    at_work: list[str] = []

    async def reply(request: Any) -> Any:
        if not request.system and request.messages[-1].role != "tool":
            return send("helper")
        at_work.append(request.system)
        if len(at_work) == 2:
            both.set()
        try:
            await asyncio.Event().wait()
        finally:
            if request.system:
                gone.set()

    running = asyncio.ensure_future(Agent(model=FunctionModel(reply), loops=[loop("helper")]).run("go"))
    await both.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone.wait()


async def test_a_run_that_fails_lets_what_it_has_woken_come_to_an_end() -> None:
    model = by_loop({"main": [send("helper"), error("down")], "helper": [tool_call("search", {"query": "x"}), text("end")]})
    agent = Agent(model=model, tools=TOOLS, loops=[loop("helper", tools=["search"])])
    with pytest.raises(RunError, match="down"):
        await agent.run("go")
    assert RAN == ["search x"]


async def test_an_abort_of_the_caller_reaches_the_loops_that_its_sub_agent_has_woken() -> None:
    working, gone = asyncio.Event(), asyncio.Event()

    async def reply(request: Any) -> Any:
        if not request.system:
            return text("sent") if request.messages[-1].role == "tool" else send("helper")
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    child = Agent(model=FunctionModel(reply), loops=[loop("helper")])
    talk = Agent(
        model=ScriptedModel([tool_call("delegate", {"prompt": "x"})]),
        tools=[child.as_tool("delegate", "Delegate.")],
        limits=Limits(abort_grace=None),
    ).conversation()
    running = asyncio.ensure_future(talk.run("go"))
    await working.wait()
    talk.abort()
    assert (await running).stop_reason == "aborted"
    assert gone.is_set()


# --- what can never work -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["main", "Main", "", "-x", "a" * 33, "a b", "é", 7, None])
def test_a_name_that_no_loop_can_have_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="a loop's name has"):
        Loop(name)


@pytest.mark.parametrize("name", ["a", "0", "a-b_c", "a" * 32])
def test_a_name_that_a_loop_can_have_is_taken(name: str) -> None:
    assert Loop(name).name == name


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"tools": "search"}, "tools= takes a list"), ({"tools": [search]}, "which is no name of a tool"),
        ({"tools": [""]}, "no name"),
        ({"instructions": 7}, "instructions hold a int"), ({"description": None}, "is no text"),
    ],
)  # fmt: skip
def test_a_loop_that_can_never_work_is_refused_when_it_is_made(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Loop("helper", **wrong)


@pytest.mark.parametrize(
    ("loops", "complaint"),
    [
        ([Loop("a", tools=["serch"])], "loop 'a': tools= names 'serch'.*did you mean 'search'"),
        ([Loop("a", tools=["git_*"])], "tools= names 'git_\\*'"), ([Loop("a", model="opnai:x")], "did you mean"),
        ([Loop("a", model=7)], "model=7 must be a name"), ([Loop("a"), Loop("a")], "two loops are named 'a'"),
        (["a"], "expected Loop"),
        ([Loop(f"l{n}") for n in range(17)], "at most 16"), ("a", "loops= takes a list"),
    ],
)  # fmt: skip
def test_an_agent_with_loops_that_can_never_work_is_refused_when_it_is_made(loops: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Agent(model=ScriptedModel(), tools=TOOLS, loops=loops)


def test_a_tool_of_ones_own_cannot_take_the_name_of_a_loop_tool() -> None:
    @tool
    async def loop_send() -> str:
        """Mine."""
        return ""

    with pytest.raises(ToolDefinitionError, match="two tools are named 'loop_send'"):
        Agent(model=ScriptedModel(), tools=[loop_send], loops=[Loop("a")])
    assert [t.name for t in Agent(model=ScriptedModel(), tools=[loop_send]).plan.tools] == ["loop_send"]


def test_loops_can_be_made_at_run_time_up_to_sixteen() -> None:
    agent = Agent(model=ScriptedModel(), loops=[Loop("declared")])
    for n in range(15):
        agent.loop(Loop(f"l{n}"))
    with pytest.raises(ConfigError, match="16 inner loops already"):
        agent.loop(Loop("one-more"))
    assert agent.loop("l3") is agent.loop(Loop("l3"))
    assert agent.loop("declared") is agent.loop(Loop("declared"))
    with pytest.raises(ConfigError, match="already, and it is another"):
        agent.loop(Loop("l3", "Other instructions."))
    with pytest.raises(ConfigError, match="already, and it is another"):
        agent.loop(Loop("declared", "Other instructions."))


@pytest.mark.parametrize(
    ("which", "complaint"),
    [("helpr", "the loops are helper"), ("main", "main is the conversation itself"), (7, "expected a name")],
)
def test_a_loop_that_is_not_there_is_an_error_that_says_what_is(which: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Agent(model=ScriptedModel(), loops=[Loop("helper")]).loop(which)


def test_loops_have_no_loops() -> None:
    agent = Agent(model=ScriptedModel(), loops=[Loop("helper")])
    with pytest.raises(UsageError, match="no loops of their own"):
        agent.loop("helper").loop(Loop("inner"))


def test_a_changed_agent_keeps_its_loops() -> None:
    agent = Agent(model=ScriptedModel(), loops=[Loop("helper")]).replace(options=Options(temperature=0))
    assert repr(agent.loop("helper")) == "<inner loop 'helper', 0 messages>"


# --- beside other things -------------------------------------------------------------------------


async def test_an_inner_loop_is_steered_aborted_compacted_and_streamed_like_any_talk() -> None:
    model = ScriptedModel([text("one"), text("two"), text("SUMMARY")])
    talk = Agent(model=model, loops=[Loop("helper")]).loop("helper")
    talk.steer("first this")
    kinds = {(e.type, e.loop) async for e in talk.stream("hi")}
    assert ("agent_end", "helper") in kinds
    assert talk.messages[1].text == "first this"
    await talk.run("more")
    done = await talk.compact(keep=0)
    assert len(done.removed) == 5


async def test_limits_of_the_agent_hold_in_its_loops() -> None:
    model = FunctionModel(lambda r: tool_call("search", {"query": "x"}))
    agent = Agent(model=model, tools=TOOLS, limits=Limits(max_turns=3), loops=[Loop("helper", tools=["search"])])
    assert (await agent.loop("helper").run("hi")).stop_reason == "max_turns"
    assert len(model.requests) == 3


async def test_what_a_hook_queues_in_a_loop_stays_in_that_loop() -> None:
    note = Hook(seam="on_message", fn=lambda i: Queue("remember") if i.origin == "prompt" else None, loops=["helper"])
    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model, hooks=[note], loops=[Loop("helper")]).conversation()
    await talk.loop("helper").run("hi")
    await talk.run("hi")
    assert said(talk) == ["hi", "two"]
    assert said(talk.loop("helper")) == ["hi", "remember", "one"]


class Closing(Model):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def test_closing_an_agent_closes_the_models_of_its_loops_once() -> None:
    one, other, by_name = Closing(), Closing(), Closing()
    async with Agent(model=one, loops=[Loop("a", model=other), Loop("b", model=other), Loop("c", model=one)]) as agent:
        agent.loop(Loop("d", model=other))
        agent.plan.resolved["openai:small"] = by_name
        agent.loop(Loop("e", model="openai:small"))
    assert (one.closed, other.closed, by_name.closed) == (1, 1, 1)
