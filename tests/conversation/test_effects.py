"""`Queue` and `Resend`, which any hook at 8 to 14 may return beside its verdict."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import (
    Agent, Answer, AssistantMessage, Block, Continue, CustomMessage, End, Hook, Interrupt, Limits, Queue, Replace, Resend,
    ToolResult, UserMessage, tool,
)  # fmt: skip
from beforehand.testing import ScriptedModel, error, text, tool_call

SEAMS = ["authorize_request", "on_chunk", "on_message", "prepare_tool_call", "before_tool_call", "after_tool_call", "finish_turn"]
AT_A_TOOL = ("prepare_tool_call", "before_tool_call", "after_tool_call")


@tool
async def work() -> str:
    return "worked"


@tool
async def stop() -> ToolResult:
    return ToolResult("stopped", terminate=True)


def once(seam: str, *decisions: Any, when: Any = lambda context: True) -> Hook:
    """A hook that returns `decisions` the first time `when` says so."""
    fired: list[bool] = []

    def fn(context: Any) -> Any:
        if fired or not when(context):
            return None
        fired.append(True)
        return list(decisions)

    return Hook(seam=seam, fn=fn, name="once")


# --- Queue ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seam", SEAMS)
async def test_what_a_hook_queues_is_in_the_next_request_of_the_run_and_only_once_in_the_history(seam: str) -> None:
    from_model = (lambda m: m.origin == "model") if seam == "on_message" else lambda context: True
    model = ScriptedModel([[text("I will"), tool_call("work")], tool_call("work"), text("end")])
    result = await Agent(model=model, tools=[work], hooks=[once(seam, Queue("a note"), when=from_model)]).run("go")

    sent = [[m.text for m in r.messages] for r in model.requests]
    assert [request.count("a note") for request in sent] == [0, 1, 1]
    assert sent[1] == ["go", "I will", "worked", "a note"]
    (note,) = [m for m in result.messages if m.text == "a note"]
    assert (note.role, note.origin) == ("assistant", "hook")


async def test_what_a_hook_queues_about_a_prompt_is_in_the_first_request() -> None:
    model = ScriptedModel([text("end")])
    await Agent(model=model, hooks=[once("on_message", Queue(UserMessage("a note")))]).run("go")

    assert [m.text for m in model.requests[0].messages] == ["go", "a note"]


QUEUED = [("a note", "assistant"), (UserMessage("a note"), "user"), (CustomMessage("k", "a note"), "custom")]


@pytest.mark.parametrize(("message", "role"), QUEUED, ids=[role for _, role in QUEUED])
async def test_a_queued_message_keeps_its_role_and_says_it_is_from_a_hook(message: Any, role: str) -> None:
    model = ScriptedModel([tool_call("work"), text("end")])
    result = await Agent(model=model, tools=[work], hooks=[once("before_tool_call", Queue(message))]).run("go")

    (note,) = [m for m in result.messages if m.text == "a note"]
    assert (note.role, note.origin) == (role, "hook")


@pytest.mark.parametrize("seam", SEAMS)
async def test_what_is_still_queued_when_a_run_ends_is_appended_without_a_request(seam: str) -> None:
    reply = tool_call("stop") if seam in AT_A_TOOL else text("one")
    from_model = (lambda m: m.origin == "model") if seam == "on_message" else lambda context: True
    model = ScriptedModel([reply, text("two")])
    talk = Agent(model=model, tools=[stop], hooks=[once(seam, Queue("a note"), when=from_model)]).conversation()
    ends: list[Any] = []
    talk.on("agent_end", ends.append)
    result = await talk.run("go")

    assert len(model.requests) == 1
    assert result.messages[-1].text == "a note"
    assert ends[0].messages[-1].text == "a note"
    assert result.text in ("", "one"), "what a hook queued is no reply"
    await talk.run("again")
    assert [m.text for m in model.requests[1].messages].count("a note") == 1


@pytest.mark.parametrize("how", ["blocked", "interrupted", "aborted", "error", "ended_before_the_turn", "hook_fails"])
async def test_what_is_queued_is_not_lost_however_the_run_ends(how: str) -> None:
    endings: dict[str, list[Hook]] = {
        "blocked": [once("authorize_request", Block("no"), when=lambda r: len(model.requests) == 1)],
        "interrupted": [once("on_chunk", Interrupt("no"), when=lambda c: len(model.requests) == 2)],
        "aborted": [once("prepare_request", when=lambda p: len(model.requests) == 1 and talk.abort())],
        "ended_before_the_turn": [once("before_turn", End("no"), when=lambda t: t.number == 2)],
        "hook_fails": [Hook(seam="prepare_next_turn", fn=lambda t: 42)],
    }
    model = ScriptedModel([tool_call("work"), error("down") if how == "error" else text("two")])
    hooks = [once("finish_turn", Queue("a note")), *endings.get(how, [])]
    talk = Agent(model=model, tools=[work], hooks=hooks).conversation()
    await talk.run("go", check=False)

    assert [m.text for m in talk.messages].count("a note") == 1


async def test_several_hooks_queue_in_the_order_they_are_asked_and_one_may_queue_twice() -> None:
    hooks = [once("finish_turn", Queue("1"), Queue("2")), once("finish_turn", Queue("3"), Continue())]
    model = ScriptedModel([text("one"), text("two")])
    result = await Agent(model=model, hooks=hooks).run("go")

    assert [m.text for m in result.messages] == ["go", "one", "1", "2", "3", "two"]


async def test_what_a_hook_queues_comes_before_what_people_queued() -> None:
    model = ScriptedModel([tool_call("work"), text("end")])
    talk = Agent(model=model, tools=[work], hooks=[once("before_tool_call", Queue("from a hook"))]).conversation()
    talk.on("tool_execution_start", lambda e: talk.steer("from a person"))
    await talk.run("go")

    assert [m.text for m in model.requests[1].messages][-2:] == ["from a hook", "from a person"]


async def test_a_queued_message_passes_the_message_hooks() -> None:
    hooks = [
        once("finish_turn", Queue("the secret"), Continue()),
        Hook(seam="on_message", fn=lambda m: Replace(message=AssistantMessage(origin="hook")) if m.origin == "hook" else None),
    ]
    model = ScriptedModel([text("one"), text("two")])
    await Agent(model=model, hooks=hooks).run("go")

    assert "secret" not in repr(model.requests)


async def test_a_decision_with_a_verdict_and_effects_does_both() -> None:
    model = ScriptedModel([tool_call("work"), text("end")])
    hooks = [once("before_tool_call", Block("no"), Queue("a note"))]
    result = await Agent(model=model, tools=[work], hooks=hooks).run("go")

    assert [m.text for m in result.messages] == ["go", "", "no", "a note", "end"]
    (record,) = result.decisions
    assert (record.verdict, record.effects) == ("Block", ("Queue",))


async def test_a_message_queued_with_an_interrupted_prompt_is_what_is_asked_instead() -> None:
    hooks = [once("on_message", Interrupt("rude", resend=True), Queue(UserMessage("say it nicely")))]
    model = ScriptedModel([text("end")])
    result = await Agent(model=model, hooks=hooks).run("you fool")

    assert [[m.text for m in r.messages] for r in model.requests] == [["say it nicely"]]
    assert [m.text for m in result.messages] == ["say it nicely", "end"]


# --- Resend ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seam", SEAMS)
async def test_resend_keeps_the_finished_reply_and_asks_once_more(seam: str) -> None:
    reply = tool_call("stop") if seam in AT_A_TOOL else text("one")
    model = ScriptedModel([reply, text("two")])
    result = await Agent(model=model, tools=[stop], hooks=[once(seam, Resend())]).run("go")

    assert len(model.requests) == 2
    assert result.text == "two"
    assert list(model.requests[1].messages) == list(result.messages)[:-1]
    assert [m.text for m in result.messages] == (["go", "", "stopped", "two"] if seam in AT_A_TOOL else ["go", "one", "two"])


@pytest.mark.parametrize("seam", SEAMS)
async def test_resend_runs_the_tools_of_the_reply_first_and_their_follow_up_is_the_resend(seam: str) -> None:
    model = ScriptedModel([[text("I will"), tool_call("work")], text("end")])
    result = await Agent(model=model, tools=[work], hooks=[once(seam, Resend())]).run("go")

    assert [m.text for m in result.messages] == ["go", "I will", "worked", "end"]


async def test_several_wishes_to_resend_are_one() -> None:
    hooks = [
        once("on_message", Resend(), when=lambda m: m.origin == "model"),
        once("finish_turn", Resend()),
        once("finish_turn", Resend()),
    ]
    model = ScriptedModel([text("one"), text("two")])
    result = await Agent(model=model, hooks=hooks, limits=Limits(max_resends=1)).run("go")

    assert (result.stop_reason, result.text) == ("completed", "two")


async def test_a_resend_takes_along_what_is_queued() -> None:
    model = ScriptedModel([text("one"), text("two")])
    await Agent(model=model, hooks=[once("finish_turn", Resend(), Queue(UserMessage("shorter please")))]).run("go")

    assert [m.text for m in model.requests[1].messages] == ["go", "one", "shorter please"]


@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.parametrize("way", ["resend", "interrupt"])
async def test_resends_are_limited_for_the_run(limit: int, way: str) -> None:
    always = {"resend": ("finish_turn", Resend()), "interrupt": ("on_chunk", Interrupt("bad", resend=True))}[way]
    model = ScriptedModel([text(f"reply {n}") for n in range(9)])
    hooks = [Hook(seam=always[0], fn=lambda context: always[1])]
    result = await Agent(model=model, hooks=hooks, limits=Limits(max_resends=limit)).run("go")

    assert result.stop_reason == "resend_limit"
    assert len(model.requests) == limit + 1
    assert [m.role for m in result.messages] == ["user"] + ["assistant"] * (limit + 1 if way == "resend" else 0)


NO_LIMIT = Limits(max_resends=None, max_resends_per_hook=None, max_turns=10)


async def test_one_hook_gets_no_more_resends_than_its_own_limit_and_the_reason_names_it() -> None:
    model = ScriptedModel([text(f"reply {n}") for n in range(20)])
    greedy = Hook(seam="finish_turn", fn=lambda turn: Resend(), name="greedy", where="rules.py:7")
    limits = Limits(max_resends=None, max_resends_per_hook=2)
    result = await Agent(model=model, hooks=[greedy, once("finish_turn", Resend())], limits=limits).run("go")

    assert (result.stop_reason, len(model.requests)) == ("resend_limit", 3)
    assert result.reason == (
        "2 resends were made for hook 'greedy' (rules.py:7), the most a hook may have (Limits.max_resends_per_hook)"
    )


async def test_a_hook_at_its_limit_does_not_take_another_ones_resend_away() -> None:
    model = ScriptedModel([text(f"reply {n}") for n in range(20)])
    greedy = Hook(seam="finish_turn", fn=lambda turn: Resend(), name="greedy")
    patient = Hook(seam="finish_turn", fn=lambda turn: Resend() if turn.number in (2, 3) else None, name="patient")
    limits = Limits(max_resends=None, max_resends_per_hook=1)
    result = await Agent(model=model, hooks=[greedy, patient], limits=limits).run("go")

    assert (result.stop_reason, len(model.requests)) == ("resend_limit", 3)
    assert result.reason is not None
    assert "'greedy'" in result.reason
    assert "'patient'" in result.reason


async def test_without_a_limit_only_the_turns_bound_the_resends() -> None:
    model = ScriptedModel([text(f"reply {n}") for n in range(20)])
    hooks = [Hook(seam="finish_turn", fn=lambda turn: Resend())]
    result = await Agent(model=model, hooks=hooks, limits=NO_LIMIT).run("go")

    assert (result.stop_reason, len(model.requests)) == ("max_turns", 10)


async def test_three_resends_are_the_default() -> None:
    model = ScriptedModel([text(f"reply {n}") for n in range(9)])
    result = await Agent(model=model, hooks=[Hook(seam="finish_turn", fn=lambda turn: Resend())]).run("go")

    assert (result.stop_reason, len(model.requests)) == ("resend_limit", 4)


@pytest.mark.parametrize("decisions", [(Block("no"), Resend()), (Resend(), Block("no"))], ids=["block_first", "resend_first"])
async def test_no_resend_lifts_a_blocked_request(decisions: Any) -> None:
    hooks = [Hook(seam="authorize_request", fn=lambda r: list(decisions))]
    model = ScriptedModel([text("never")])
    result = await Agent(model=model, hooks=hooks).run("go")

    assert (result.stop_reason, model.requests) == ("blocked", [])


async def test_end_outranks_a_resend() -> None:
    hooks = [once("on_message", Resend(), when=lambda m: m.origin == "model"), once("finish_turn", End("enough"))]
    model = ScriptedModel([text("one"), text("never")])
    result = await Agent(model=model, hooks=hooks).run("go")

    assert (result.stop_reason, len(model.requests)) == ("ended", 1)


async def test_a_resend_with_a_reply_of_the_hooks_own_asks_the_model_next() -> None:
    hooks = [once("authorize_request", Answer("made up"), Resend())]
    model = ScriptedModel([text("the model's")])
    result = await Agent(model=model, hooks=hooks).run("go")

    assert [m.text for m in result.messages] == ["go", "made up", "the model's"]
    assert len(model.requests) == 1


# --- Interrupt ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "kept"), [("nothing", []), ("aborted", ["safe "])])
@pytest.mark.parametrize("resend", [False, True])
async def test_an_interrupted_reply_is_kept_or_not_as_the_hook_says(keep: Any, kept: list[str], resend: bool) -> None:
    hooks = [once("on_chunk", Interrupt("bad", keep=keep, resend=resend), when=lambda c: "bad" in c.pending)]
    model = ScriptedModel([text("", chunks=["safe ", "bad"]), text("two")])
    result = await Agent(model=model, hooks=hooks).run("go")

    assert [m.text for m in result.messages] == ["go", *kept, *(["two"] if resend else [])]
    assert [m.stop_reason for m in result.messages[1 : 1 + len(kept)]] == ["aborted"] * len(kept)  # type: ignore[union-attr]
    assert result.stop_reason == ("completed" if resend else "interrupted")


@pytest.mark.parametrize(
    "seam", ["authorize_request", "on_chunk", "on_message", "before_tool_call", "after_tool_call", "finish_turn"]
)
async def test_effects_are_on_record_even_without_a_verdict(seam: str) -> None:
    model = ScriptedModel([tool_call("stop"), text("two")])
    result = await Agent(model=model, tools=[stop], hooks=[once(seam, Queue("a note"), Resend())]).run("go")

    (record,) = [d for d in result.decisions if d.hook == "once"]
    assert (record.seam, record.effects) == (seam, ("Queue", "Resend"))
