"""Hooks in the shadow are asked about every value, and nothing they say has an effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import Agent, Approve, Ask, Block, Hook, Interrupt, Limits, Queue, Replace, Resend, UserMessage, hook, tool
from beforehand.backtest import backtest
from beforehand.hooks.registry import HookSet
from beforehand.seams import BY_NAME
from beforehand.testing import ScriptedModel, text, tool_call

ran: list[str] = []


@tool
def send(to: str) -> str:
    """Send it."""
    ran.append(to)
    return f"sent to {to}"


def turns() -> list[Any]:
    return [[tool_call("send", {"to": "Ada"}), tool_call("send", {"to": "Bob"})], text("all sent", chunks=["all ", "sent"])]


async def outcome(hooks: Any, shadow: Any, **options: Any) -> tuple[Any, ScriptedModel, list[str]]:
    ran.clear()
    model = ScriptedModel(turns())
    agent = Agent(model=model, tools=[send], hooks=hooks, shadow_hooks=shadow, **options)
    result = await agent.run("go", check=False)
    return result, model, sorted(ran)  # the two are sent at once


@hook.before_tool_call
def no_bob(call: Any) -> Block | None:
    return Block("not Bob") if call.args["to"] == "Bob" else None


@hook.on_chunk
def shout(chunk: Any) -> Replace | None:
    return Replace(text=chunk.pending.upper()) if chunk.kind == "text" else None


@hook.on_message
def more(message: Any) -> list[Any] | None:
    return [Queue("and Eve"), Resend()] if message.origin == "model" else None


@hook.before_run
def nothing_at_all(start: Any) -> Block:
    return Block("closed today")


@hook.authorize_request
def broken(request: Any) -> None:
    raise RuntimeError("cannot reach the policy")


@hook.on_chunk
def stop(chunk: Any) -> Interrupt | None:
    return Interrupt("enough") if "sent" in chunk.pending else None


@pytest.mark.parametrize("shadow", [no_bob, shout, more, nothing_at_all, broken, stop], ids=lambda h: h.name)
@pytest.mark.parametrize("journal", [False, True], ids=["without a journal", "with one"])
async def test_a_hook_in_the_shadow_changes_nothing_of_the_run(shadow: Hook, journal: bool, tmp_path: Path) -> None:
    plain, asked, did = await outcome([], [])

    options = {"journal": tmp_path / "runs.db", "durability": "normal"} if journal else {}
    result, also_asked, also_did = await outcome([], [shadow], **options)

    assert result.stop_reason == plain.stop_reason == "completed"
    assert [m.text for m in result.messages] == [m.text for m in plain.messages]
    assert did == also_did == ["Ada", "Bob"]
    sent, also_sent = ([[m.text for m in r.messages] for r in model.requests] for model in (asked, also_asked))
    assert sent == also_sent
    assert result.decisions == ()
    assert len(result.shadow) >= 1
    assert {d.hook for d in result.shadow} == {shadow.name}


async def test_what_would_have_been_different_is_on_the_result() -> None:
    result, _, _ = await outcome([], [no_bob, shout])

    blocked, rewritten = result.shadow
    assert (blocked.kind, blocked.seam, blocked.decided, blocked.would) == (
        "newly_blocked", "before_tool_call", "let pass", "Block(not Bob)",
    )  # fmt: skip
    assert '"Bob"' in blocked.about
    assert (rewritten.kind, rewritten.seam) == ("rewritten_differently", "on_chunk")
    assert (rewritten.decided, rewritten.would) == ("'all sent'", "'ALL SENT'")


async def test_hooks_that_agree_leave_nothing() -> None:
    result, _, did = await outcome([no_bob, shout], [no_bob, shout])

    assert result.shadow == ()
    assert did == ["Ada"]
    assert result.text == "ALL SENT"


async def test_a_refusal_that_the_shadow_does_not_know_would_be_newly_allowed() -> None:
    result, _, _ = await outcome([no_bob, stop], [shout])

    kinds = [(d.kind, d.seam) for d in result.shadow]
    assert ("newly_allowed", "before_tool_call") in kinds
    assert ("newly_allowed", "on_chunk") in kinds


async def test_differences_are_in_the_journal(tmp_path: Path) -> None:
    ran.clear()
    agent = Agent(
        model=ScriptedModel(turns()), tools=[send], shadow_hooks=[no_bob], journal=tmp_path / "runs.db", durability="normal"
    )
    await agent.run("go", run_id="r")

    (noted,) = [r.data for r in agent.plan.journal.records("r") if r.kind == "shadow"]
    assert (noted["kind"], noted["hook"], noted["would"]) == ("newly_blocked", "no_bob", "Block(not Bob)")


async def test_rules_in_the_shadow_log_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "rules.json").write_text(
        '[{"target": "tool", "event": "before", "actions": [{"type": "warn", "message": "a call"}]}]'
    )
    result, _, _ = await outcome([], [str(tmp_path / "rules.json")])
    assert result.stop_reason == "completed"
    assert "a call" not in caplog.text

    await outcome([str(tmp_path / "rules.json")], [])
    assert "a call" in caplog.text


# --- what is kept of it ---------------------------------------------------------------------------

SECRET = "4111-1111"


@tool
async def card(n: str) -> str:
    """Look up a card."""
    return f"card {n}{SECRET}"


def of_user(context: Any) -> Any:
    message = context.message
    return Replace(message=msgspec.structs.replace(message, content="***")) if message.role == "user" else None


def without(request: Any) -> Any:
    messages = [UserMessage("***") if m.role == "user" else m for m in request.messages]
    return msgspec.structs.replace(request, messages=tuple(messages), system="***")


TAKEN_OUT: list[tuple[str, Callable[[Any], Any]]] = [
    ("before_run", lambda c: Replace(messages=[UserMessage("***")])),
    ("prepare_request", lambda c: Replace(context=msgspec.structs.replace(c.context, system="***"))),
    ("transform_context", lambda c: Replace(messages=[UserMessage("***"), *c.messages[1:]])),
    ("before_provider_call", lambda c: Replace(request=without(c.request))),
    ("on_chunk", lambda c: Replace(text=c.pending.replace(SECRET, "***")) if SECRET in c.pending else None),
    ("on_message", of_user),
    ("prepare_tool_call", lambda c: Replace(args={"n": "***"})),
    ("after_tool_call", lambda c: Replace(content="***")),
]


@pytest.mark.parametrize("raises", [False, True], ids=["the shadow lets pass", "the shadow fails and quotes it"])
@pytest.mark.parametrize(("seam", "taken_out"), TAKEN_OUT, ids=[seam for seam, _ in TAKEN_OUT])
async def test_what_a_hook_took_out_is_not_in_the_record_of_a_difference(
    seam: str, taken_out: Callable[[Any], Any], raises: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def shadow(context: Any) -> None:
        if raises:
            int(f"{context} {SECRET}")  # a ValueError that quotes its argument

    caplog.set_level(logging.INFO, "beforehand")
    agent = Agent(
        model=ScriptedModel([[text(f"it is {SECRET}"), tool_call("card", {"n": SECRET}, id="c")], text("done")]), tools=[card],
        hooks=[Hook(seam=seam, fn=taken_out, name="redact")], shadow_hooks=[Hook(seam=seam, fn=shadow, name="new")],
        instructions=SECRET, journal=tmp_path / "runs.db", durability="normal",
    )  # fmt: skip
    result = await agent.run(SECRET, run_id="r")

    records = [r for r in agent.plan.journal.records("r") if r.kind == "shadow"]
    assert len(records) == len(result.shadow) >= 1
    assert not [r.body for r in records if SECRET.encode() in r.body]
    assert SECRET not in caplog.text
    for record, difference in zip(records, result.shadow, strict=True):
        kept = msgspec.structs.replace(difference, about="", decided=record.data["decided"], would=record.data["would"])
        assert msgspec.to_builtins(kept) == record.data
        assert ("ValueError" in kept.would) == raises
        assert (kept.digest is None) == (BY_NAME[seam].name == "on_chunk")


async def test_text_that_would_be_shown_otherwise_is_told_by_its_length_and_place(tmp_path: Path) -> None:
    redact = Hook(seam="on_chunk", fn=lambda c: Replace(text=c.pending.replace(SECRET, "***")), name="redact")
    agent = Agent(
        model=ScriptedModel([text(f"it is {SECRET}")]), hooks=[redact], shadow_hooks=[Hook(seam="on_chunk", fn=lambda c: None)],
        journal=tmp_path / "runs.db", durability="normal",
    )  # fmt: skip
    result = await agent.run("go", run_id="r")

    (noted,) = [r.data for r in agent.plan.journal.records("r") if r.kind == "shadow"]
    assert (noted["decided"], noted["would"]) == ("9 characters", "15 characters, others from 6 on")
    assert [(d.decided, d.would) for d in result.shadow] == [("'it is ***'", f"'it is {SECRET}'")]
    assert not [r.kind for r in agent.plan.journal.records("r") if SECRET.encode() in r.body]


# --- hooks that do not answer ---------------------------------------------------------------------


class Ahead:
    """The clock of the event loop, which a hook can put forward: whoever waits for a time has waited for it then."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        now, self.seconds = loop.time, 0.0
        loop.time = lambda: now() + self.seconds  # type: ignore[method-assign]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync, and hands over something to wait for"])
async def test_a_hook_in_the_shadow_that_never_answers_holds_up_nothing(sync: bool) -> None:
    clock, asked = Ahead(), []

    async def never(call: Any) -> None:
        asked.append(call)
        clock.seconds += 10
        await asyncio.Event().wait()

    fn = (lambda call: never(call)) if sync else never
    async with asyncio.timeout(60):
        result, _, did = await outcome([], [Hook(seam="before_tool_call", fn=fn, name="never")])

    assert (result.stop_reason, did, len(asked)) == ("completed", ["Ada", "Bob"], 2)
    late, late_again = result.shadow
    assert (late.kind, late.hook, late.would) == ("newly_blocked", "never", "Block(hook 'never' failed, so this was not let "
                                                  "pass: it gave no answer within 5 s)")  # fmt: skip
    assert "within 0.05 s" in late_again.would, "it is not waited for as long a second time"


@pytest.mark.parametrize(
    ("timeout", "limits"), [(0.01, Limits()), (None, Limits(hook_timeout=0.01))], ids=["its own", "the agent's"]
)
async def test_a_timeout_that_somebody_has_set_holds_for_the_shadow_too(timeout: float | None, limits: Limits) -> None:
    async def never(chunk: Any) -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        result, _, _ = await outcome([], [Hook(seam="on_chunk", fn=never, name="never", timeout=timeout)], limits=limits)

    assert result.text == "all sent"
    assert {(d.kind, "within 0.01 s" in d.would) for d in result.shadow} == {("newly_blocked", True)}


# --- sub-agents -----------------------------------------------------------------------------------


def refuses(name: str, to: str) -> Hook:
    return Hook(seam="before_tool_call", fn=lambda call: Block(name) if call.args.get("to") == to else None, name=name)


async def with_clerk(path: Path, hooks: Any, shadow: Any, *, own: Any = (), own_shadow: Any = (), inherit: bool = True) -> Any:
    """A run whose sub-agent sends to three people, with what the shadow had found by its end: live, and in a backtest."""
    calls = [tool_call("send", {"to": name}) for name in ("Ada", "Bob", "Eve")]
    child = Agent(model=ScriptedModel([calls, text("sent")]), tools=[send], hooks=own, shadow_hooks=own_shadow)
    agent = Agent(
        model=ScriptedModel([tool_call("clerk", {"prompt": "go"}, id="c1"), text("done")]), hooks=hooks, shadow_hooks=shadow,
        tools=[child.as_tool("clerk", "Sends.", inherit=inherit)], journal=path,
    )  # fmt: skip
    result = await agent.run("go", run_id="r")
    report = await backtest(agent.plan.journal, lambda loop: HookSet(shadow, loop))
    return [(d.kind, d.decided, d.would, d.run_id) for d in result.shadow], [
        (d.kind, d.decided, d.would, d.run_id) for d in report.differences
    ]


async def test_what_a_sub_agent_does_is_put_to_the_shadow_too(tmp_path: Path) -> None:
    first, second = refuses("no Ada", "Ada"), refuses("no Bob", "Bob")

    live, again = await with_clerk(tmp_path / "a.db", [first], [second], own=[refuses("no Eve", "Eve")])

    assert live == again == [
        ("newly_allowed", "Block(no Ada)", "let pass", "r/c1"), ("newly_blocked", "let pass", "Block(no Bob)", "r/c1"),
    ]  # fmt: skip


async def test_a_sub_agents_own_shadow_is_asked_beside_its_parents(tmp_path: Path) -> None:
    live, _ = await with_clerk(
        tmp_path / "a.db", [], [refuses("no Bob", "Bob")], own=[refuses("no Eve", "Eve")], own_shadow=[refuses("no Ada", "Ada")]
    )
    assert [(kind, would) for kind, _, would, _ in live] == [
        ("newly_blocked", "Block(no Ada)"), ("newly_blocked", "Block(no Bob)"), ("newly_allowed", "let pass"),
    ]  # fmt: skip


async def test_a_sub_agent_that_inherits_nothing_is_not_in_the_shadow(tmp_path: Path) -> None:
    assert await with_clerk(tmp_path / "a.db", [refuses("no Ada", "Ada")], [refuses("no Bob", "Bob")], inherit=False) == ([], [])


@pytest.mark.parametrize("own_shadow", [False, True])
async def test_what_an_agent_in_between_decides_stands_further_in(own_shadow: bool, tmp_path: Path) -> None:
    calls = [tool_call("send", {"to": name}) for name in ("Ada", "Bob")]
    inner = Agent(model=ScriptedModel([calls, text("sent")]), tools=[send], shadow_hooks=[refuses("no Eve", "Eve")] * own_shadow)
    middle = Agent(
        model=ScriptedModel([tool_call("inner", {"prompt": "go"}, id="c2"), text("done")]), hooks=[refuses("no Ada", "Ada")],
        tools=[inner.as_tool("inner", "Sends.")],
    )  # fmt: skip
    outer, shadow = [refuses("no Eve", "Eve")], [refuses("no Bob", "Bob")]
    agent = Agent(
        model=ScriptedModel([tool_call("middle", {"prompt": "go"}, id="c1"), text("done")]), hooks=outer, shadow_hooks=shadow,
        tools=[middle.as_tool("middle", "Has it sent.")], journal=tmp_path / "a.db",
    )  # fmt: skip

    result = await agent.run("go", run_id="r")

    wanted = [("newly_blocked", "Block(no Bob)", "r/c1/c2")]
    assert [(d.kind, d.would, d.run_id) for d in result.shadow] == wanted
    if not own_shadow:  # that one is not known to a backtest
        report = await backtest(agent.plan.journal, lambda loop: HookSet(shadow, loop))
        assert [(d.kind, d.would, d.run_id) for d in report.differences] == wanted
        assert (await backtest(agent.plan.journal, lambda loop: HookSet(outer, loop))).differences == ()


async def test_what_a_sub_agent_did_before_it_waited_is_told_once() -> None:
    asks = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?") if call.args.get("to") == "Bob" else None, name="asks")
    calls = [tool_call("send", {"to": name}) for name in ("Ada", "Bob")]
    child = Agent(model=ScriptedModel([calls, text("sent")]), tools=[send], hooks=[asks])
    agent = Agent(
        model=ScriptedModel([tool_call("clerk", {"prompt": "go"}, id="c1"), text("done")]),
        tools=[child.as_tool("clerk", "Sends.")], shadow_hooks=[refuses("no Ada", "Ada"), refuses("no Bob", "Bob")],
    )  # fmt: skip
    talk = agent.conversation()

    waiting = await talk.run("go", run_id="r")
    result = await talk.resume({pending.call_id: Approve() for pending in waiting.pending})

    assert result.stop_reason == "completed"
    assert [(d.kind, d.would) for d in result.shadow] == [
        ("newly_blocked", "Block(no Ada)"), ("refused_differently", "Block(no Bob)"),
    ]  # fmt: skip


async def test_gates_that_are_new_when_a_run_goes_on_are_compared_together_with_those_before(tmp_path: Path) -> None:
    asks = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?"), name="asks")

    async def told(hooks: list[Any], shadow: list[Any]) -> list[tuple[str, str | None]]:
        path = tmp_path / f"{len(shadow)}.db"
        first = Agent(model=ScriptedModel(turns()), tools=[send], hooks=[asks], shadow_hooks=[asks], journal=path)
        assert [p.args["to"] for p in (await first.run("go", run_id="R")).pending] == ["Ada", "Bob"]
        await first.aclose()
        again = Agent(model=ScriptedModel(turns()[1:]), tools=[send], hooks=hooks, shadow_hooks=shadow, journal=path)
        waits = [call.id for call in (await again.resume("R")).messages[-1].tool_calls]
        result = await again.resume("R", dict.fromkeys(waits, Approve()))
        await again.aclose()
        assert [m.text.partition(" ")[0] for m in result.messages if m.role == "tool"] == ["sent", "not"]
        return [(difference.kind, difference.would) for difference in result.shadow]

    assert await told([asks, no_bob], [asks, no_bob]) == []
    assert await told([asks, no_bob], [asks]) == [("refused_differently", "Ask(May it?)")]
