"""Every decision, effect and failure is a record that says who decided what, where, why, and what could still be undone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from beforehand import (
    Answer, Block, Continue, DecisionRecord, Hold, Hook, Queue, Replace, Resend, ToolContext, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.events import Irreversible
from beforehand.seams import BY_NAME
from beforehand.testing import text, tool_call
from seams.cells import BY_SEAM, COLUMNS, DECLARED
from seams.refusals import OLD
from seams.stage import ONLY_TEXT, Stage, at, first, play

SECRET = "sk-very-secret"
LONG = 5
"""How long a late hook waits, in seconds, before a limit that does not hold is noticed."""


def only(stage: Stage) -> DecisionRecord:
    """The one record of a run."""
    [record] = stage.result.decisions
    return record


async def test_a_record_says_which_hook_decided_what_where_and_why() -> None:
    @hook.before_tool_call(name="the guard")
    def guard(call: Any) -> Block:
        return Block("Not today.")

    record = only(await Stage(guard).run(run_id="the-run"))
    assert (record.hook, record.seam, record.verdict, record.reason) == ("the guard", "before_tool_call", "Block", "Not today.")
    assert record.where.endswith(f"test_records.py:{guard.fn.__code__.co_firstlineno}")
    assert (record.run_id, record.loop, record.turn, record.parent_call_id) == ("the-run", "main", 1, None)
    assert record.call_id is not None
    assert record.duration >= 0
    assert (record.effects, record.on_error) == ((), "closed")


async def test_a_hook_that_says_nothing_leaves_no_record() -> None:
    hooks = [at(seam, None) for seam in BY_NAME]
    stage = await play(*hooks, *[at(seam, lambda _: []) for seam in BY_NAME])
    assert (stage.result.stop_reason, stage.result.decisions, stage.heard("decision")) == ("completed", (), [])


@pytest.mark.parametrize(("seam", "column"), sorted(DECLARED - {("on_chunk", "Hold")}), ids=str)
async def test_every_declared_decision_is_recorded_under_its_name(seam: str, column: str) -> None:
    make = COLUMNS.get(column) or BY_SEAM[seam][column]
    decision = make()
    if column == "Replace.once":
        decision = Replace(thinking_level="high", once=True)
    if column == "Replace.message":
        decision = Replace(message=UserMessage("Other"))
    records: list[DecisionRecord] = []
    stage = Stage(
        first(seam, decision),
        messages=OLD if seam == "before_compaction" else (),
        replies=[tool_call("look", {"n": 1}), *[text("Done.")] * 3],
    )
    stage.talk.on("decision", lambda event: records.append(event.record))
    if seam == "before_compaction":
        await stage.talk.compact(keep=2)
    else:
        await stage.run()
        assert list(stage.result.decisions) == records, "listeners are told the same"
    [record] = records
    assert (record.hook, record.seam, record.verdict, record.reason) == (
        "guard", seam, type(decision).__name__, reason_of(decision),
    )  # fmt: skip
    assert record.effects == ((type(decision).__name__,) if isinstance(decision, Queue | Resend) else ())


def reason_of(decision: Any) -> str | None:
    """What a decision itself gives as its reason: Block, End, Interrupt, Steer and Ask do."""
    texts = (getattr(decision, field, None) for field in ("reason", "feedback", "prompt"))
    return next((text for text in texts if text is not None), None)


async def test_holding_text_back_decides_nothing_yet_and_leaves_no_record() -> None:
    stage = await play(at("on_chunk", Hold(2)), replies=ONLY_TEXT)
    assert (stage.result.decisions, stage.shown) == ((), "All done.")
    assert only(await play(first("on_chunk", [Hold(2), Queue("A note.")]), replies=ONLY_TEXT)).effects == ("Queue",)


async def test_effects_beside_a_verdict_are_on_its_record_and_alone_they_are_one() -> None:
    both = only(await play(first("before_tool_call", [Answer("Answered."), Queue("A note."), Resend()])))
    assert (both.verdict, both.effects) == ("Answer", ("Queue", "Resend"))
    alone = only(await play(first("before_tool_call", [Queue("A note."), Resend()])))
    assert (alone.verdict, alone.effects) == ("Queue+Resend", ("Queue", "Resend"))


async def test_a_decision_about_a_nested_call_says_inside_which_call_it_was_made() -> None:
    @tool
    async def outer(ctx: ToolContext) -> str:
        return str((await ctx.call_tool("look", {"n": 1})).text)

    guard = at("before_tool_call", Block("Not today."), tools=("look",))
    stage = await play(guard, tools=[outer], replies=[tool_call("outer"), text("All done.")])
    outer_id = stage.results[0].tool_call_id
    record = only(stage)
    assert (record.parent_call_id, record.turn) == (outer_id, 1)
    assert record.call_id not in (None, outer_id)
    assert [e.parent_call_id for e in stage.heard("decision")] == [outer_id]


# --- what could still be undone ------------------------------------------------------------------


async def test_a_record_says_what_was_irreversible_when_the_hook_spoke() -> None:
    """Each hook spoke once about the last reply, or when its seam was first passed: the counts grow along the run."""
    at_seam: dict[str, Irreversible] = {}
    replies = [[text("Let me look."), tool_call("look", {"n": 1})], text("All done.")]
    decisions: dict[str, Any] = {
        "before_run": Replace(messages=[UserMessage("Begin")]), "prepare_request": Replace(thinking_level="high"),
        "authorize_request": Queue("One."), "on_chunk": Replace(text="Let me look."), "before_tool_call": Queue("Two."),
        "after_tool_call": Replace(is_error=False),
        "finish_turn": Queue("Three."),
    }  # fmt: skip
    stage = await play(*[first(seam, decision) for seam, decision in decisions.items()], replies=replies)
    for record in stage.result.decisions:
        at_seam[record.seam] = record.reversible
    arguments = len('{"n":1}')
    shown = len("Let me look.")
    assert at_seam == {
        "before_run": Irreversible(0, 0, 0),
        "prepare_request": Irreversible(0, 0, 0),
        "authorize_request": Irreversible(0, 0, 0),
        "on_chunk": Irreversible(1, 0, 0),
        "before_tool_call": Irreversible(1, shown + arguments, 0),
        "after_tool_call": Irreversible(1, shown + arguments, 1),
        "finish_turn": Irreversible(1, shown + arguments, 1),
    }


async def test_what_was_held_back_or_refused_does_not_count_as_irreversible() -> None:
    held = at("on_chunk", lambda chunk: None if chunk.final else Hold(len(chunk.pending)))
    judge = Hook(seam="on_message", fn=lambda m: Queue("A note.") if m.origin == "model" else None, hold=True)
    stage = await play(held, judge, replies=ONLY_TEXT)
    assert [d.reversible for d in stage.result.decisions if d.seam == "on_message"] == [Irreversible(1, 0, 0)]
    blocked = await play(at("before_tool_call", Block("No.")), first("finish_turn", Queue("A note.")))
    assert blocked.result.decisions[-1].reversible.tools_run == 0


async def test_tools_and_requests_of_later_turns_are_counted_on() -> None:
    replies = [tool_call("look", {"n": 1}), tool_call("look", {"n": 2}), text("Done.")]
    stage = await play(at("finish_turn", Queue("A note.")), replies=replies)
    counts = [(d.turn, d.reversible.requests_sent, d.reversible.tools_run) for d in stage.result.decisions]
    assert counts == [(1, 1, 1), (2, 2, 2), (3, 3, 2)]


# --- digests -------------------------------------------------------------------------------------


async def test_the_digest_is_that_of_the_judged_value() -> None:
    seen: list[str] = []

    def gate(call: Any) -> Block:
        seen.append(call.args_digest)
        return Block("No.")

    one = only(await play(at("before_tool_call", gate)))
    same = only(await play(at("before_tool_call", gate)))
    other = only(await play(at("before_tool_call", gate), replies=[tool_call("look", {"n": 2}), text("Done.")]))
    assert [one.digest, same.digest, other.digest] == seen
    assert one.digest == same.digest != other.digest
    assert len(one.digest or "") == 64


async def test_the_digest_of_a_request_is_that_of_the_request_as_it_would_leave() -> None:
    seen: list[str] = []

    def gate(outgoing: Any) -> Block:
        seen.append(outgoing.digest)
        return Block("No.")

    one = only(await play(at("authorize_request", gate)))
    [_, other] = (
        await play(at("authorize_request", gate), first("transform_context", Replace(messages=[UserMessage("Other")])))
    ).result.decisions[-2:]
    assert [one.digest, other.digest] == seen
    assert one.digest != other.digest


@pytest.mark.parametrize("seam", [name for name in BY_NAME if name not in ("get_api_key", "before_compaction")])
async def test_every_record_but_that_of_a_key_has_a_digest(seam: str) -> None:
    stage = await play(at(seam, {"block": True}, on_error="open"))
    assert stage.result.decisions
    for record in stage.result.decisions:
        assert len(record.digest or "") == 64


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_error", "verdict"), [("closed", "failed"), ("abort", "failed"), ("open", "failed_open")])
async def test_a_failure_is_recorded_with_its_policy(on_error: Any, verdict: str, caplog: Any) -> None:
    def down(_: Any) -> None:
        raise OSError("the policy service is down")

    with caplog.at_level(logging.WARNING, "beforehand"):
        record = only(await play(at("before_tool_call", down, on_error=on_error)))
    assert (record.verdict, record.on_error, record.seam) == (verdict, on_error, "before_tool_call")
    assert record.reason == "raised OSError: the policy service is down"
    assert ("guard" in caplog.text) is (on_error == "open"), "only what was let pass in spite of a failure needs a warning"


async def test_a_late_hook_and_nonsense_are_recorded_with_what_was_wrong() -> None:
    async def late(_: Any) -> None:
        async with asyncio.timeout(LONG):
            await asyncio.Event().wait()

    assert "0.01" in str(only(await play(Hook(seam="before_tool_call", fn=late, timeout=0.01))).reason)
    assert "may return" in str(only(await play(at("before_tool_call", {"block": True}))).reason)


# --- keys ----------------------------------------------------------------------------------------


async def test_no_key_is_in_any_record_event_result_or_text() -> None:
    stage = await play(at("get_api_key", Replace(key=SECRET)))
    assert stage.model.keys == [SECRET, SECRET], "the key was used"
    records = [d for d in stage.result.decisions if d.seam == "get_api_key"]
    assert [(d.verdict, d.digest) for d in records] == [("Replace", None)] * 2
    assert SECRET not in repr(stage.result) + repr(stage.events) + repr(stage.talk.messages) + repr(Replace(key=SECRET))


WRONG_KEYS: dict[str, Callable[[str], Any]] = {
    "text": lambda key: key,
    "bytes": lambda key: key.encode(),
    "a dict": lambda key: {"key": key},
    "a list": lambda key: [key],
    "two replacements": lambda key: [Replace(key=key), Replace(key=key)],
    "a field too many": lambda key: Replace(key=key, model=key),
    "a replacement of bytes": lambda key: Replace(key=key.encode()),
    "an effect": lambda key: Queue(key),
    "a refusal": lambda key: Block(key),
}


@pytest.mark.parametrize("secret", [SECRET, "opensesame"], ids=["looks like a key", "looks like a word"])
@pytest.mark.parametrize("what", WRONG_KEYS)
async def test_no_key_is_in_what_is_said_about_a_wrong_return_value(what: str, secret: str, caplog: Any) -> None:
    wrong = WRONG_KEYS[what](secret)
    with caplog.at_level(logging.DEBUG, "beforehand"):
        stage = await play(at("get_api_key", lambda _: wrong))
        opened = await play(at("get_api_key", lambda _: wrong, on_error="open"))
    assert (stage.requests, opened.requests, opened.model.keys) == (0, 2, [None, None])
    for part in (stage, opened):
        assert secret not in repr(part.result) + repr(part.events) + repr(part.talk.messages) + str(part.result.error)
    assert secret not in caplog.text


async def test_a_hook_that_raises_the_key_does_not_get_it_recorded(caplog: Any) -> None:
    def leaky(_: Any) -> None:
        raise OSError(f"the vault does not take {SECRET}")

    with caplog.at_level(logging.DEBUG, "beforehand"):
        closed, opened = await play(at("get_api_key", leaky)), await play(at("get_api_key", leaky, on_error="open"))
    assert (closed.requests, opened.requests) == (0, 2)
    for stage in (closed, opened):
        assert "OSError" in str(stage.result.decisions[0].reason)
        assert SECRET not in repr(stage.result) + repr(stage.events) + repr(stage.talk.messages) + str(stage.result.error)
    assert SECRET not in caplog.text


# --- as data -------------------------------------------------------------------------------------


async def test_records_come_in_the_order_of_the_decisions() -> None:
    seams = ["before_run", "prepare_request", "authorize_request", "before_tool_call", "after_tool_call", "finish_turn"]
    decisions = [
        Replace(messages=[UserMessage("x")]),
        Replace(thinking_level="high"),
        Queue("a"),
        Answer("b"),
        Replace(is_error=True),
        Continue(),
    ]
    stage = await play(*[first(seam, d) for seam, d in zip(seams, decisions, strict=True)])
    assert [d.seam for d in stage.result.decisions] == seams
    assert [e.record for e in stage.heard("decision")] == list(stage.result.decisions)


async def test_a_record_can_be_written_as_json() -> None:
    record = only(await play(at("before_tool_call", Block("Not today."))))
    data = json.loads(msgspec.json.encode(record))
    assert (data["hook"], data["verdict"], data["reversible"]["requests_sent"]) == ("guard", "Block", 1)
