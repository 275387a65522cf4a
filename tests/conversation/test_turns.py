"""Between the turns: who decides whether another follows, and what sticks from one to the next."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import (
    Agent, AssistantMessage, Context, Continue, CustomMessage, End, Hook, HookFailed, Image, Options, Price, Replace,
    SystemMessage, Text, ToolResult, Usage, UserMessage, tool,
)  # fmt: skip
from beforehand.errors import ConfigError
from beforehand.messages import THINKING_LEVELS
from beforehand.testing import FunctionModel, ScriptedModel, error, finish, text, tool_call


@tool
async def work() -> str:
    return "worked"


@tool
async def stop() -> ToolResult:
    return ToolResult("stopped", terminate=True)


# --- finish_turn ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [text("one"), tool_call("work"), tool_call("stop")], ids=["text", "tool", "terminating_tool"])
async def test_end_stops_the_run_after_this_turn_and_leaves_the_queues_alone(reply: Any) -> None:
    model = ScriptedModel([reply, text("never")])
    talk = Agent(model=model, tools=[work, stop], hooks=[Hook(seam="finish_turn", fn=lambda t: End("enough"))]).conversation()
    talk.steer("taken with the prompt")
    talk.steer("left")
    talk.follow_up("left too")
    result = await talk.run("go")

    assert (result.stop_reason, result.reason, len(model.requests)) == ("ended", "enough", 1)
    assert [m.text for m in talk.queued] == ["left", "left too"]
    if reply.__class__.__name__ == "CallTool":
        assert talk.messages[-1].role == "tool"


@pytest.mark.parametrize("what", ["nothing", "tools", "steering", "follow_up"])
async def test_continue_makes_sure_of_one_more_request_and_asks_for_no_second_one(what: str) -> None:
    said: list[bool] = []

    def go_on(turn: Any) -> Continue | None:
        if said:
            return None
        said.append(True)
        if what in ("steering", "follow_up"):
            getattr(talk, "steer" if what == "steering" else what)("a word")
        return Continue()

    causes: list[str] = []
    hooks = [Hook(seam="finish_turn", fn=go_on), Hook(seam="prepare_next_turn", fn=lambda t: causes.append(t.cause))]
    model = ScriptedModel([tool_call("work") if what == "tools" else text("one"), text("two"), text("never")])
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation()
    result = await talk.run("go")

    assert len(model.requests) == 2
    assert (result.stop_reason, result.text) == ("completed", "two")
    assert causes == [{"nothing": "continue"}.get(what, what)]


async def test_continue_after_a_terminating_tool_asks_the_model_once_more() -> None:
    said: list[Continue] = [Continue()]
    hooks = [Hook(seam="finish_turn", fn=lambda t: said.pop() if said else None)]
    model = ScriptedModel([tool_call("stop"), text("two")])
    result = await Agent(model=model, tools=[stop], hooks=hooks).run("go")

    assert [m.text for m in result.messages] == ["go", "", "stopped", "two"]


async def test_a_context_only_turn_is_sent_with_the_reply_as_its_last_message() -> None:
    said: list[Continue] = [Continue()]
    model = ScriptedModel([text("one"), text("two")])
    await Agent(model=model, hooks=[Hook(seam="finish_turn", fn=lambda t: said.pop() if said else None)]).run("go")

    assert [m.text for m in model.requests[1].messages] == ["go", "one"]


@pytest.mark.parametrize("order", [[End("enough"), Continue()], [Continue(), End("enough")]], ids=["end_first", "continue_first"])
async def test_end_outranks_continue_in_every_order(order: list[Any]) -> None:
    hooks = [Hook(seam="finish_turn", fn=lambda t, verdict=verdict: verdict) for verdict in order]  # type: ignore[misc]
    model = ScriptedModel([text("one"), text("never")])
    result = await Agent(model=model, hooks=hooks).run("go")

    assert (result.stop_reason, len(model.requests)) == ("ended", 1)


async def test_continue_does_not_revive_a_failed_turn() -> None:
    model = ScriptedModel([error("down"), text("never")])
    result = await Agent(model=model, hooks=[Hook(seam="finish_turn", fn=lambda t: Continue())]).run("go", check=False)

    assert (result.stop_reason, len(model.requests)) == ("error", 1)


async def test_hooks_at_a_turns_end_see_the_turn_the_results_and_the_whole_run() -> None:
    seen: list[Any] = []

    def note(turn: Any) -> None:
        seen.append((
            turn.number, turn.message.text, [r.text for r in turn.tool_results], [m.text for m in turn.new_messages],
            [m.text for m in turn.context.messages], [t.name for t in turn.context.tools],
        ))  # fmt: skip

    hooks = [Hook(seam=seam, fn=note) for seam in ("finish_turn", "after_turn")]
    model = ScriptedModel([[text("a"), tool_call("work")], text("b")])
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation([UserMessage("earlier")])
    await talk.run("go")

    first = (1, "a", ["worked"], ["go", "a", "worked"], ["earlier", "go", "a", "worked"], ["work"])
    second = (2, "b", [], ["go", "a", "worked", "b"], ["earlier", "go", "a", "worked", "b"], ["work"])
    assert seen == [first, first, second, second]


# --- prepare_next_turn ----------------------------------------------------------------------------


async def test_it_is_asked_between_two_turns_only() -> None:
    seen: list[Any] = []
    hooks = [Hook(seam="prepare_next_turn", fn=lambda t: seen.append((t.number, t.cause)))]
    model = ScriptedModel([tool_call("work"), text("two"), text("three"), text("four")])
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation()
    talk.follow_up("and then")
    await talk.run("go")
    await talk.run("again")

    assert seen == [(1, "tools"), (2, "follow_up")]


async def test_messages_a_hook_adds_enter_the_next_turn_before_queued_ones_and_those_of_several_hooks_in_order() -> None:
    hooks = [
        Hook(
            seam="prepare_next_turn",
            fn=lambda t: Replace(add_messages=[UserMessage("from the first"), CustomMessage("k", "note")]),
        ),
        Hook(seam="prepare_next_turn", fn=lambda t: Replace(add_messages=(UserMessage("from the second"),))),
    ]
    model = ScriptedModel([tool_call("work"), text("end")])
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation()
    talk.on("tool_execution_end", lambda e: talk.steer("from a person"))
    result = await talk.run("go")

    added = ["from the first", "note", "from the second", "from a person"]
    assert [m.text for m in result.messages] == ["go", "", "worked", *added, "end"]
    assert [m.text for m in model.requests[1].messages][-3:] == ["from the first", "from the second", "from a person"]


async def test_added_messages_pass_the_message_hooks_and_the_gate_before_the_turn() -> None:
    seen: list[Any] = []
    hooks = [
        Hook(seam="prepare_next_turn", fn=lambda t: Replace(add_messages=[UserMessage("added")])),
        Hook(seam="before_turn", fn=lambda t: seen.append([m.text for m in t.incoming])),
        Hook(seam="on_message", fn=lambda m: Replace(message=UserMessage("changed")) if m.message.text == "added" else None),
    ]
    model = ScriptedModel([tool_call("work"), text("end")])
    await Agent(model=model, tools=[work], hooks=hooks).run("go")

    assert seen == [["go"], ["added"]]
    assert model.requests[1].messages[-1].text == "changed"


@pytest.mark.parametrize("seam", ["prepare_request", "prepare_next_turn"])
async def test_a_context_put_in_place_stays_for_the_run_and_grows_with_it_and_is_gone_with_it(seam: str) -> None:
    def fresh(context: Any) -> Replace | None:
        if done:
            return None
        done.append(True)
        return Replace(context=Context("Be terse.", (UserMessage("fresh"),), context.context.tools))

    done: list[bool] = []
    model = ScriptedModel([tool_call("work"), tool_call("work"), text("end"), text("next run")])
    talk = Agent(model=model, tools=[work], instructions="Be kind.", hooks=[Hook(seam=seam, fn=fresh)]).conversation()
    await talk.run("go")
    await talk.run("again")

    swapped = ["fresh", "", "worked", "", "worked"] if seam == "prepare_request" else ["fresh", "", "worked"]
    assert [m.text for m in model.requests[2].messages] == swapped
    assert [r.system for r in model.requests][1:] == ["Be terse.", "Be terse.", "Be kind."]
    assert [m.text for m in model.requests[3].messages] == ["go", "", "worked", "", "worked", "end", "again"]
    assert [m.text for m in talk.messages][:6] == ["go", "", "worked", "", "worked", "end"]


@pytest.mark.parametrize("once", [False, True])
async def test_tools_a_hook_brings_in_can_run_in_the_turns_they_are_offered_in(once: bool) -> None:
    @tool
    async def extra() -> str:
        return "extra ran"

    def bring(plan: Any) -> Replace | None:
        if model.requests:
            return None
        return Replace(context=Context(plan.context.system, plan.context.messages, (*plan.context.tools, extra)), once=once)

    model = ScriptedModel([tool_call("extra"), tool_call("extra"), text("end")])
    result = await Agent(model=model, tools=[work], hooks=[Hook(seam="prepare_request", fn=bring)]).run("go")

    assert [[t.name for t in r.tools] for r in model.requests][:2] == [["work", "extra"], ["work"] if once else ["work", "extra"]]
    first, second = [m.text for m in result.messages if m.role == "tool"]
    assert first == "extra ran"
    assert (second == "extra ran") is not once


async def test_tools_a_hook_takes_away_cannot_run_from_then_on() -> None:
    def take_away(turn: Any) -> Replace:
        return Replace(context=Context("", turn.context.messages, ()))

    model = ScriptedModel([tool_call("work"), tool_call("work"), text("end")])
    result = await Agent(model=model, tools=[work], hooks=[Hook(seam="prepare_next_turn", fn=take_away)]).run("go")

    first, second = [m.text for m in result.messages if m.role == "tool"]
    assert first == "worked"
    assert "not found" in second


@pytest.mark.parametrize("seam", ["prepare_request", "prepare_next_turn"])
async def test_a_model_swapped_by_a_hook_is_named_and_priced_as_itself(seam: str) -> None:
    other = ScriptedModel([[text("o"), finish(usage=Usage(1_000_000, 0))]], name="other")

    def swap(context: Any) -> Replace | None:
        return Replace(model=other) if seam == "prepare_next_turn" or len(main.requests) else None

    main = ScriptedModel([[tool_call("work"), finish(usage=Usage(1_000_000, 0))]], name="main")
    agent = Agent(model=main, tools=[work], hooks=[Hook(seam=seam, fn=swap)], prices={"main": Price(1, 1), "other": Price(10, 1)})
    result = await agent.run("go")

    assert [m.model for m in result.messages if isinstance(m, AssistantMessage)] == ["main", "other"]
    assert result.cost == pytest.approx(11)


async def test_a_model_for_one_request_is_named_and_priced_as_itself() -> None:
    other = ScriptedModel([[text("o"), finish(usage=Usage(1_000_000, 0))]], name="other")
    hooks = [Hook(seam="prepare_request", fn=lambda plan: Replace(model=other, thinking_level="high", once=True))]
    agent = Agent(model=ScriptedModel(name="main"), hooks=hooks, prices={"main": Price(1, 1), "other": Price(10, 1)})
    result = await agent.run("go")

    reply = result.messages[-1]
    assert (reply.model, reply.thinking_level) == ("other", "high")  # type: ignore[union-attr]
    assert result.cost == pytest.approx(10)


async def test_a_hook_can_replace_one_field_and_leave_the_rest() -> None:
    hooks = [
        Hook(seam="prepare_request", fn=lambda plan: Replace(thinking_level="low")),
        Hook(
            seam="prepare_request",
            fn=lambda plan: Replace(context=Context("Be terse.", plan.context.messages, plan.context.tools)),
        ),
    ]
    model = ScriptedModel([text("end")])
    await Agent(model=model, tools=[work], instructions="Be kind.", hooks=hooks).run("go")

    (request,) = model.requests
    assert (request.system, request.options.thinking_level, [t.name for t in request.tools]) == ("Be terse.", "low", ["work"])


# --- thinking levels ------------------------------------------------------------------------------


@pytest.mark.parametrize("level", THINKING_LEVELS)
@pytest.mark.parametrize("way", ["agent", "options", "hook", "between_turns"])
async def test_a_thinking_level_is_in_the_request_and_on_the_reply(level: Any, way: str) -> None:
    hooks = {
        "hook": [Hook(seam="prepare_request", fn=lambda plan: Replace(thinking_level=level))],
        "between_turns": [Hook(seam="prepare_next_turn", fn=lambda turn: Replace(thinking_level=level))],
    }.get(way, [])
    model = ScriptedModel([tool_call("work"), text("end")])
    agent = Agent(
        model=model, tools=[work], hooks=hooks, thinking_level=level if way == "agent" else None,
        options=Options(thinking_level=level) if way == "options" else Options(),
    )  # fmt: skip
    result = await agent.run("go")

    assert model.requests[1].options.thinking_level == level
    assert result.messages[-1].thinking_level == level  # type: ignore[union-attr]


def test_an_unknown_thinking_level_is_refused_when_the_agent_is_made() -> None:
    with pytest.raises(ConfigError, match="must be one of off, minimal"):
        Agent(model=ScriptedModel(), thinking_level="extreme")  # type: ignore[arg-type]


# --- custom messages, prompts, instructions -------------------------------------------------------


async def test_a_custom_message_is_kept_and_heard_and_not_sent() -> None:
    model = ScriptedModel([text("one"), text("two")])
    talk = Agent(model=model).conversation()
    heard: list[Any] = []
    talk.on("message_end", lambda e: heard.append(e.message.role))
    await talk.run([CustomMessage("bookmark", "here", details={"page": 7}), UserMessage("go")])
    await talk.run("again")

    assert heard[0] == "custom"
    assert talk.messages[0].details == {"page": 7}  # type: ignore[union-attr]
    assert [[m.text for m in r.messages] for r in model.requests] == [["go"], ["go", "one", "again"]]


async def test_a_hook_decides_what_a_custom_message_is_for_the_model() -> None:
    def convert(view: Any) -> Replace:
        return Replace(
            messages=[UserMessage(f"[{m.kind}] {m.text}") if isinstance(m, CustomMessage) else m for m in view.messages]
        )

    model = ScriptedModel([text("one")])
    talk = Agent(model=model, hooks=[Hook(seam="convert_to_llm", fn=convert)]).conversation()
    await talk.run([CustomMessage("bookmark", "here"), UserMessage("go")])

    assert [m.text for m in model.requests[0].messages] == ["[bookmark] here", "go"]
    assert talk.messages[0].role == "custom"


@pytest.mark.parametrize("seam", ["transform_context", "convert_to_llm"])
async def test_a_hook_that_only_looks_does_not_let_a_custom_message_out(seam: str) -> None:
    seen: list[int] = []
    model = ScriptedModel([text("one")])
    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=lambda view: seen.append(len(view.messages)))]).conversation()
    await talk.run([CustomMessage("bookmark", "here"), UserMessage("go")])

    assert seen == [2]
    assert [m.text for m in model.requests[0].messages] == ["go"]


async def test_a_conversion_that_hands_a_custom_message_on_as_it_is_lets_nothing_out() -> None:
    model = ScriptedModel([text("never")])
    convert = Hook(seam="convert_to_llm", fn=lambda view: Replace(messages=view.messages), name="lazy")
    talk = Agent(model=model, hooks=[convert]).conversation()
    result = await talk.run([CustomMessage("bookmark", "here"), UserMessage("go")], check=False)

    assert model.requests == []
    assert isinstance(result.error, HookFailed)
    assert result.error.hook == "lazy"
    assert "custom" in str(result.error)


async def test_a_custom_message_that_a_hook_leaves_in_is_dropped_like_any_other() -> None:
    model = ScriptedModel([text("one")])
    hooks = [Hook(seam="transform_context", fn=lambda view: Replace(messages=[CustomMessage("k", "x"), *view.messages]))]
    await Agent(model=model, hooks=hooks).run("go")

    assert [m.text for m in model.requests[0].messages] == ["go"]


PROMPTS: list[tuple[Any, list[Any]]] = [
    ("hello", [UserMessage("hello")]),
    (UserMessage("hello"), [UserMessage("hello")]),
    (
        [Text("look:"), Image(url="http://localhost/cat.png")],
        [UserMessage((Text("look:"), Image(url="http://localhost/cat.png")))],
    ),
    ([SystemMessage("rules"), UserMessage("hello")], [SystemMessage("rules"), UserMessage("hello")]),
    ((UserMessage("a"), UserMessage("b")), [UserMessage("a"), UserMessage("b")]),
    ([], []),
]


@pytest.mark.parametrize(("prompt", "messages"), PROMPTS, ids=lambda v: type(v).__name__)
async def test_a_prompt_is_text_a_message_parts_or_messages(prompt: Any, messages: list[Any]) -> None:
    model = ScriptedModel([text("one")])
    await Agent(model=model).run(prompt)

    assert list(model.requests[0].messages) == messages


@pytest.mark.parametrize("prompt", [42, None, {"role": "user"}, [42], ["hello"], [UserMessage("a"), "b"]], ids=repr)
async def test_any_other_prompt_is_refused_before_anything_happens(prompt: Any) -> None:
    model = ScriptedModel([text("one")])
    talk = Agent(model=model).conversation()
    with pytest.raises(ConfigError, match="message"):
        await talk.run(prompt)

    assert (list(talk.messages), model.requests, talk.is_running) == ([], [], False)


async def test_dynamic_instructions_are_asked_for_each_request_and_follow_the_fixed_ones() -> None:
    def turn(run: Any) -> str:
        return f"This is turn {run.turn}."

    async def deps(run: Any) -> str:
        return f"You serve {run.deps}."

    model = ScriptedModel([tool_call("work"), text("end")])
    await Agent(model=model, tools=[work], instructions=["Be kind.", turn, deps]).run("go", deps="Ana")

    assert [r.system for r in model.requests] == [f"Be kind.\n\nThis is turn {n}.\n\nYou serve Ana." for n in (1, 2)]


async def test_what_a_run_captures_at_its_start_does_not_change_under_it() -> None:
    order: list[str] = []

    def choose(request: Any) -> Any:
        order.append(request.system)
        return tool_call("work") if len(order) < 3 else text("end")

    agent = Agent(model=FunctionModel(choose), tools=[work], instructions="first")
    talk = agent.conversation()
    changed: list[Any] = []
    talk.on("turn_start", lambda e: changed.append(agent.replace(instructions="second")))
    await talk.run("go")

    assert order == ["first", "first", "first"]
    with pytest.raises(TypeError):
        agent.plan = changed[0].plan
