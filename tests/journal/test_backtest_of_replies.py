"""Replies and results are on record as hooks left them: what other hooks would have made of them, as far as that can be known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, Block, Drop, End, Hook, Interrupt, Queue, Recovery, Replace, Resend, Text, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.backtest import Backtest, backtest
from beforehand.errors import HookFailed
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal
from beforehand.testing import ScriptedModel, cut, error, text, tool_call

from cli.command import beforehand


@tool
def pay(amount: int) -> str:
    return f"paid {amount}"


def appended(context: Any) -> Replace:
    return Replace(message=msgspec.structs.replace(context.message, content=(Text(context.message.text + " (checked)"),)))


def of_model(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda context: fn(context) if context.origin == "model" and not context.message.tool_calls else None


def of_text(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda chunk: fn(chunk) if chunk.kind == "text" and chunk.final else None


def first(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda context: fn(context) if context.run.turn == 2 else None


CASES: dict[str, tuple[Hook, str]] = {
    "10 queues": (hook.on_message(of_model(lambda m: Queue("hm"))), "effects_differ"),
    "10 resends": (hook.on_message(first(of_model(lambda m: Resend()))), "effects_differ"),
    "10 appends": (hook.on_message(of_model(appended)), "rewritten_differently"),
    "10 interrupts": (hook.on_message(of_model(lambda m: Interrupt("no"))), "newly_allowed"),
    "10 interrupts and keeps": (hook.on_message(of_model(lambda m: Interrupt("no", keep="aborted"))), "newly_allowed"),
    "10 has it made anew": (hook.on_message(first(of_model(lambda m: Interrupt("no", resend=True)))), "newly_allowed"),
    "10 fails": (hook.on_message(of_model(lambda m: m.nothing)), "newly_allowed"),
    "9 appends": (hook.on_chunk(of_text(lambda c: Replace(text=c.pending + "!"))), "rewritten_differently"),
    "9 drops": (hook.on_chunk(of_text(lambda c: Drop())), "rewritten_differently"),
    "9 resends": (hook.on_chunk(first(of_text(lambda c: Resend()))), "effects_differ"),
    "9 interrupts": (hook.on_chunk(of_text(lambda c: Interrupt("no"))), "newly_allowed"),
    "9 interrupts and keeps": (hook.on_chunk(of_text(lambda c: Interrupt("no", keep="aborted"))), "newly_allowed"),
    "9 fails": (hook.on_chunk(of_text(lambda c: c.nothing)), "newly_allowed"),
    "13 appends": (hook.after_tool_call(lambda o: Replace(content=o.text + " (checked)")), "rewritten_differently"),
    "13 turns round": (hook.after_tool_call(lambda o: Replace(is_error=not o.is_error)), "rewritten_differently"),
    "13 interrupts": (hook.after_tool_call(lambda o: Interrupt("no")), "newly_allowed"),
    "13 fails": (hook.after_tool_call(lambda o: o.nothing), "newly_allowed"),
    "13 fails over this one": (hook.after_tool_call(lambda o: o.nothing if o.text == "paid 3" else None), "newly_allowed"),
    "10 appends to the prompt": (
        hook.on_message(lambda m: appended(m) if m.origin == "prompt" else None), "rewritten_differently"
    ),
}


async def recorded(path: Path, *hooks: Hook, **options: Any) -> Journal:
    turns = [tool_call("pay", {"amount": 3}, id="c1"), text("done"), text("again"), text("end")]
    agent = Agent(model=ScriptedModel(turns), tools=[pay], hooks=hooks, journal=path, durability="normal", **options)
    await agent.run("go", run_id="r1", check=False)
    return agent.plan.journal  # type: ignore[no-any-return]


async def put(journal: Journal, *hooks: Hook) -> Backtest:
    report = await backtest(journal, lambda loop: HookSet(hooks, loop))
    assert report.unreadable == ()
    return report


@pytest.mark.parametrize("case", CASES)
async def test_the_same_hook_changes_nothing_and_its_absence_what_it_did(case: str, tmp_path: Path) -> None:
    mine, kind = CASES[case]
    journal = await recorded(tmp_path / "runs.db", mine)

    same, without = await put(journal, mine), await put(journal)

    assert (same.differences, same.unknown) == ((), 0)
    assert {(d.kind, d.seam) for d in without.differences} == {(kind, mine.seam)}
    assert {d.would for d in without.differences} == {"let pass"}


async def test_pieces_are_not_judged_anew_by_what_the_same_hooks_made_of_the_whole(tmp_path: Path) -> None:
    never = hook.on_chunk(of_text(lambda c: Interrupt("no") if "checked" in c.pending else None))
    mine = [never, hook.on_message(of_model(appended))]
    journal = await recorded(tmp_path / "runs.db", *mine)
    assert (await put(journal, *mine)).differences == ()


async def test_what_the_same_hooks_say_at_the_end_of_a_text_is_not_said_of_one_that_was_cut(tmp_path: Path) -> None:
    whole = hook.on_chunk(of_text(lambda c: None if c.pending.endswith(".") else Interrupt("half a sentence")))
    agent = Agent(model=ScriptedModel([[text("I will"), cut()]]), hooks=[whole], journal=tmp_path / "runs.db")
    result = await agent.run("go", check=False)
    assert (result.stop_reason, result.messages[-1].text) == ("error", "I will")
    assert (await put(agent.plan.journal, whole)).differences == ()


@pytest.mark.parametrize("others", [0, 1])
async def test_a_turn_that_was_ended_over_a_prompt_that_is_on_no_record_is_judged_as_it_was(tmp_path: Path, others: int) -> None:
    ends = hook.before_turn(lambda t: End("no") if any(m.text == "go" for m in t.incoming) else None)
    other = hook.before_turn(lambda t: None)
    judges = hook.on_message(lambda m: None)
    journal = await recorded(tmp_path / "runs.db", ends, judges)

    same, changed = await put(journal, ends, judges), await put(journal, *[other] * others, judges)

    assert (same.differences, same.unknown) == ((), 0)
    assert ([d.kind for d in changed.differences], changed.unknown) == (["newly_allowed"] * (1 - others), others)


async def test_a_hook_at_2_is_asked_about_what_waited_when_the_run_ended(tmp_path: Path) -> None:
    @tool
    async def work() -> str:
        talk.steer("please stop")
        return "worked"

    stops = hook.before_turn(lambda t: End("as they wish") if any(m.text == "please stop" for m in t.incoming) else None)
    agent = Agent(model=ScriptedModel([tool_call("work")]), tools=[work], hooks=[stops], journal=tmp_path / "runs.db")
    talk = agent.conversation()
    assert (await talk.run("go")).stop_reason == "ended"

    assert (await put(agent.plan.journal, stops)).differences == ()
    otherwise = hook.before_turn(lambda t: End("another word") if any("stop" in m.text for m in t.incoming) else None)
    assert [d.kind for d in (await put(agent.plan.journal, otherwise)).differences] == ["refused_differently"]


@pytest.mark.parametrize("most", [2, 7])
async def test_a_turn_that_was_tried_again_is_told_as_it_was(tmp_path: Path, most: int) -> None:
    async def at_once(seconds: float) -> None:
        """Nobody waits."""

    fails = iter([True])
    broken = hook.before_provider_call(lambda c: c.nothing if next(fails, False) else None)
    upper = hook.transform_context(lambda c: Replace(messages=[UserMessage(m.text.upper()) for m in c.messages]))
    journal = await recorded(tmp_path / "runs.db", broken, upper, recovery=Recovery(max_attempts=most, sleep=at_once))

    report = await put(journal, upper)

    assert report.values > 4
    assert [(d.kind, d.seam) for d in report.differences] == [("newly_allowed", "before_provider_call")]


async def test_a_refusal_by_the_tool_itself_is_read_as_it_was(tmp_path: Path) -> None:
    short = hook.transform_context(lambda c: Replace(messages=[UserMessage(m.text[:90]) for m in c.messages]))
    model = ScriptedModel([tool_call("pay", {"amount": "much"}), text("done")])
    agent = Agent(model=model, tools=[pay], hooks=[short], journal=tmp_path / "runs.db")
    await agent.run("go")
    assert "expected an integer" in model.requests[1].messages[-1].text
    assert (await put(agent.plan.journal, short)).differences == ()


async def test_no_gate_is_asked_about_a_call_that_was_aborted_before_it_came_so_far(tmp_path: Path) -> None:
    agent = Agent(model=ScriptedModel([tool_call("pay", {"amount": 3})]), tools=[pay], journal=tmp_path / "runs.db")
    talk = agent.conversation()
    talk.on("message_end", lambda event: talk.abort() if event.message.role == "assistant" else None)
    result = await talk.run("go")
    assert (result.stop_reason, result.messages[-1].outcome) == ("aborted", "aborted")
    assert (await put(agent.plan.journal, hook.before_tool_call(lambda call: Block("new")))).differences == ()


async def test_a_sub_agents_own_hooks_at_replies_stand(tmp_path: Path) -> None:
    for number, (own, _) in enumerate(CASES.values()):
        child = Agent(model=ScriptedModel([text("child")]), hooks=[own], name="child")
        agent = Agent(
            model=ScriptedModel([tool_call("clerk", {"prompt": "go"}), text("done")]), tools=[child.as_tool("clerk", "Helps.")],
            journal=tmp_path / f"{number}.db", durability="normal",
        )  # fmt: skip
        await agent.run("go", run_id="r1")
        assert (await put(agent.plan.journal)).differences == ()


async def test_what_was_refused_and_is_nowhere_is_counted_where_others_would_be_asked(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", CASES["9 interrupts"][0])
    other = hook.on_chunk(of_text(lambda chunk: None))

    report = await put(journal, other)

    assert (report.differences, report.unknown) == ((), 1)
    journal.close()
    (tmp_path / "other.py").write_text("from beforehand import hook\n@hook.on_chunk\ndef other(chunk):\n    return None\n")
    shown = beforehand("backtest", "--journal", str(tmp_path / "runs.db"), "--hooks", str(tmp_path / "other.py"))
    assert "1 value was refused and is on no record" in shown.stdout
    as_json = beforehand("backtest", "--journal", str(tmp_path / "runs.db"), "--hooks", str(tmp_path / "other.py"), "--json")
    assert json.loads(as_json.stdout)["unknown"] == 1


async def test_another_hook_is_asked_about_a_reply_as_it_was_left(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", CASES["10 appends"][0])
    sees_the_mark = hook.on_message(of_model(lambda m: Interrupt("checked") if "(checked)" in m.message.text else None))

    report = await put(journal, sees_the_mark)

    assert [(d.kind, d.seam) for d in report.differences] == [("newly_blocked", "on_message")]


FAILING = ["before_run", "before_turn", "prepare_request", "convert_to_llm", "authorize_request", "before_tool_call"]


@pytest.mark.parametrize("seam", FAILING)
async def test_a_failure_that_ended_a_run_is_a_decision_like_another(seam: str, tmp_path: Path) -> None:
    def fails(context: Any) -> None:
        raise ValueError("down")

    broken = Hook(seam=seam, fn=fails, name="broken", on_error="abort", where="here")
    agent = Agent(model=ScriptedModel([tool_call("pay", {"amount": 1}), text("x")]), tools=[pay], hooks=[broken],
                  journal=tmp_path / "runs.db")  # fmt: skip
    with pytest.raises(HookFailed):
        await agent.run("go", run_id="r1")

    assert (await put(agent.plan.journal, broken)).differences == ()
    assert [(d.kind, d.seam) for d in (await put(agent.plan.journal)).differences] == [("newly_allowed", seam)]


async def test_the_turn_that_a_failed_request_ended_is_gone_over_too(tmp_path: Path) -> None:
    agent = Agent(model=ScriptedModel([error("down")]), journal=tmp_path / "runs.db")
    await agent.run("go", run_id="r1", check=False)
    ends = Hook(seam="finish_turn", fn=lambda turn: turn.nothing, name="ends", where="here")

    assert [(d.kind, d.seam) for d in (await put(agent.plan.journal, ends)).differences] == [("newly_blocked", "finish_turn")]


@pytest.mark.parametrize("end", ["completed", "max_turns", "interrupted", "aborted"])
async def test_the_last_turn_is_gone_over_to_its_end_and_none_after_it(end: str, tmp_path: Path) -> None:
    def stop(outcome: Any) -> Interrupt | None:
        if end == "aborted":
            talk.abort()
        return Interrupt("no") if end == "interrupted" else None

    agent = Agent(
        model=ScriptedModel([text("done") if end == "completed" else tool_call("pay", {"amount": 1}), text("never")]),
        tools=[pay], hooks=[hook.after_tool_call(stop)], journal=tmp_path / "runs.db",
    )  # fmt: skip
    talk = agent.conversation()
    result = await talk.run("go", run_id="r1", limits=agent.plan.limits.with_(max_turns=1 if end == "max_turns" else 9))
    assert result.stop_reason == end
    talk.steer("for the next run")
    seen: list[tuple[str, str]] = []
    watches = [
        Hook(seam=seam, fn=lambda c, seam=seam: seen.append((seam, getattr(c, "origin", ""))), name=seam, where="here")
        for seam in ("before_turn", "before_provider_call", "on_message", "finish_turn")
    ]

    await put(agent.plan.journal, *watches)

    tool_result = [] if end == "completed" else [("on_message", "tool")]
    assert seen == [
        ("before_turn", ""), ("on_message", "prompt"), ("before_provider_call", ""), ("on_message", "model"), *tool_result,
        ("finish_turn", ""),
    ]  # fmt: skip


async def test_no_request_is_judged_that_never_came_so_far(tmp_path: Path) -> None:
    no_key = Hook(seam="get_api_key", fn=lambda request: request.nothing, name="no key", where="here")
    journal = await recorded(tmp_path / "runs.db", no_key)
    blocks = Hook(seam="authorize_request", fn=lambda request: Block("no"), name="blocks", where="here")

    assert (await put(journal, blocks)).differences == ()


async def test_hooks_that_save_are_not_asked_by_what_only_watches(tmp_path: Path) -> None:
    saved: list[int] = []
    saves = hook.after_turn(lambda turn: saved.append(turn.number))
    journal = await recorded(tmp_path / "runs.db", shadow_hooks=[saves])

    await put(journal, saves)

    assert saved == []


async def test_effects_at_the_pieces_of_a_reply_are_compared_live_too(tmp_path: Path) -> None:
    agent = Agent(model=ScriptedModel([text("done")]), shadow_hooks=[hook.on_chunk(lambda c: Queue("note") if c.final else None)])
    result = await agent.run("go")
    assert [(d.kind, d.seam, d.would) for d in result.shadow] == [("effects_differ", "on_chunk", "Queue")]


async def test_a_failure_at_a_piece_of_a_reply_is_compared_live_too() -> None:
    fails = hook.on_chunk(lambda chunk: chunk.nothing)
    for shadow, found in ((hook.on_chunk(lambda chunk: None), [("newly_allowed", "on_chunk", "shown")]), (fails, [])):
        agent = Agent(model=ScriptedModel([text("done")]), hooks=[fails], shadow_hooks=[shadow])
        result = await agent.run("go", check=False)
        assert [(d.kind, d.seam, d.would) for d in result.shadow] == found
