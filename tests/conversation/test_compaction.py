"""Compaction on demand: a summary takes the place of old messages, behind seam 17 and seam 8, or nothing changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, AssistantMessage, BeforehandError, Block, CustomMessage, Hook, HookFailed, Limits,
    RequestBlocked, RunError, ServerError, Text, ToolCall, ToolMessage, UsageError, UserMessage, tool,
)  # fmt: skip
from beforehand.testing import FunctionModel, ScriptedModel, cut, error, finish, text, tool_call

from conversation.checks import assert_valid

PAST = [
    UserMessage("one"), AssistantMessage((Text("first"),)), UserMessage("two"), AssistantMessage((Text("second"),)),
    UserMessage("three"), AssistantMessage((Text("third"),)),
]  # fmt: skip
TEXTS = [m.text for m in PAST]


async def test_a_summary_takes_the_place_of_old_messages_and_the_talk_goes_on_from_it() -> None:
    model = ScriptedModel([text("SUMMARY"), text("fourth")])
    talk = Agent(model=model).conversation(PAST)
    done = await talk.compact(keep=2)
    await talk.run("four")

    assert [m.text for m in done.removed] == TEXTS[:4]
    assert "SUMMARY" in talk.messages[0].text
    assert [m.text for m in talk.messages][1:] == ["three", "third", "four", "fourth"]
    assert [m.role for m in talk.messages] == ["user", "user", "assistant", "user", "assistant"]
    assert talk.messages[0].origin == "hook"
    assert list(model.requests[1].messages) == list(talk.messages)[:-1]


async def test_the_summary_request_shows_the_model_what_will_go_and_no_tools() -> None:
    @tool
    async def work() -> str:
        return "worked"

    past = [
        UserMessage("one"),
        AssistantMessage((ToolCall("c", "work", '{"a":1}'),), "tool_calls"),
        ToolMessage("c", "work", "worked"),
    ]
    model = ScriptedModel([text("SUMMARY")])
    talk = Agent(model=model, tools=[work], instructions="Be kind.").conversation([*past, *PAST])
    await talk.compact(keep=6)

    (request,) = model.requests
    said = request.messages[0].text
    assert request.tools == ()
    assert "Be kind." not in request.system
    for part in ("one", "work", '{"a":1}', "worked"):
        assert part in said
    assert "three" not in said


@pytest.mark.parametrize("keep", [6, 7, 100])
async def test_where_there_is_nothing_old_enough_nothing_happens(keep: int) -> None:
    model = ScriptedModel([text("never")])
    talk = Agent(model=model).conversation(PAST)
    done = await talk.compact(keep=keep)

    assert done.messages is None
    assert done.reason
    assert (model.requests, [m.text for m in talk.messages]) == ([], TEXTS)


@pytest.mark.parametrize("keep", [-1, -100])
async def test_a_negative_number_of_messages_to_keep_is_refused(keep: int) -> None:
    talk = Agent(model=ScriptedModel([text("never")])).conversation(PAST)
    with pytest.raises(UsageError):
        await talk.compact(keep=keep)

    assert [m.text for m in talk.messages] == TEXTS


async def test_everything_may_go() -> None:
    talk = Agent(model=ScriptedModel([text("SUMMARY")])).conversation(PAST)
    await talk.compact(keep=0)

    (only,) = talk.messages
    assert "SUMMARY" in only.text


async def test_a_second_compaction_includes_the_first_summary() -> None:
    model = ScriptedModel([text("FIRST"), text("fourth"), text("SECOND")])
    talk = Agent(model=model).conversation(PAST)
    await talk.compact(keep=2)
    await talk.run("four")
    await talk.compact(keep=2)

    assert "FIRST" in model.requests[2].messages[0].text
    assert "SECOND" in talk.messages[0].text
    assert [m.text for m in talk.messages][1:] == ["four", "fourth"]


# --- what the hook at 17 may do -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_hook_can_write_the_summary_itself_and_then_no_request_leaves(kind: str) -> None:
    async def answer(compaction: Any) -> Answer:
        return Answer("MINE: " + ", ".join(m.text for m in compaction.messages))

    def sync_answer(compaction: Any) -> Answer:
        return Answer("MINE: " + ", ".join(m.text for m in compaction.messages))

    model = ScriptedModel([text("never")])
    hooks = [Hook(seam="before_compaction", fn=answer if kind == "async" else sync_answer)]
    talk = Agent(model=model, hooks=hooks).conversation(PAST)
    await talk.compact(keep=2)

    assert model.requests == []
    assert "MINE: one, first, two, second" in talk.messages[0].text


async def test_a_hook_sees_what_would_go_what_would_stay_and_how_much_it_is() -> None:
    seen: list[Any] = []

    def note(compaction: Any) -> None:
        seen.append(
            ([m.text for m in compaction.messages], [m.text for m in compaction.kept], compaction.tokens > 0, compaction.run.deps)
        )

    talk = Agent(model=ScriptedModel([text("S")]), hooks=[Hook(seam="before_compaction", fn=note)]).conversation(PAST)
    await talk.compact(keep=2, deps="d")

    assert seen == [(TEXTS[:4], TEXTS[4:], True, "d")]


@pytest.mark.parametrize("order", ["block_first", "answer_first"])
async def test_a_block_outranks_an_answer_and_keeps_the_history(order: str) -> None:
    hooks = [
        Hook(seam="before_compaction", fn=lambda c: Block("keep it")),
        Hook(seam="before_compaction", fn=lambda c: Answer("mine")),
    ]
    model = ScriptedModel([text("never")])
    talk = Agent(model=model, hooks=hooks if order == "block_first" else hooks[::-1]).conversation(PAST)
    done = await talk.compact(keep=2)

    assert (done.messages, done.reason) == (None, "keep it")
    assert (model.requests, [m.text for m in talk.messages]) == ([], TEXTS)


def fail(context: Any) -> None:
    raise RuntimeError("broken")


FAILURES: dict[str, tuple[list[Hook], Any]] = {
    "hook_raises": ([Hook(seam="before_compaction", fn=fail)], text("never")),
    "hook_returns_nonsense": ([Hook(seam="before_compaction", fn=lambda c: "a summary")], text("never")),
    "hook_aborts_on_failure": ([Hook(seam="before_compaction", fn=fail, on_error="abort")], text("never")),
    "request_is_blocked": ([Hook(seam="authorize_request", fn=lambda r: Block("not this"))], text("never")),
    "gate_fails": ([Hook(seam="authorize_request", fn=fail)], text("never")),
    "model_fails": ([], error("down")),
    "model_fails_half_way": ([], [text("half a summ"), error("down")]),
    "line_is_cut": ([], [text("half a summ"), cut()]),
    "summary_is_cut_by_its_length": ([], [text("half a summ"), finish("length")]),
    "model_declines": ([], [text("I cannot help with that."), finish("refusal")]),
    "model_calls_a_tool": ([], [text("First I look."), tool_call("look")]),
    "summary_is_empty": ([], text("  ")),
    "answer_is_empty": ([Hook(seam="before_compaction", fn=lambda c: Answer(""))], text("never")),
}


@pytest.mark.parametrize("how", list(FAILURES))
async def test_whatever_goes_wrong_the_history_stays_and_the_talk_goes_on(how: str) -> None:
    hooks, reply = FAILURES[how]
    model = ScriptedModel([reply])
    talk = Agent(model=model, hooks=hooks).conversation(PAST)
    try:
        done = await talk.compact(keep=2)
        told = done.reason if done.messages is None else None
    except BeforehandError as error:
        told = str(error)

    assert told, "nothing was replaced, and somebody is told why"
    assert [m.text for m in talk.messages] == TEXTS
    assert not talk.is_running
    if reply == text("never"):
        assert model.requests == []


async def test_what_went_wrong_is_an_error_of_its_kind() -> None:
    with pytest.raises(ServerError, match="down"):
        await Agent(model=ScriptedModel([error("down")])).conversation(PAST).compact(keep=2)
    blocked = Hook(seam="authorize_request", fn=lambda r: Block("not this"))
    with pytest.raises(RequestBlocked, match="not this"):
        await Agent(model=ScriptedModel(), hooks=[blocked]).conversation(PAST).compact(keep=2)
    with pytest.raises(HookFailed, match="broken"):
        await Agent(model=ScriptedModel(), hooks=[Hook(seam="authorize_request", fn=fail)]).conversation(PAST).compact(keep=2)
    assert issubclass(RequestBlocked, RunError)


async def test_the_summary_request_passes_the_gate_with_its_kind_and_skips_the_shapers() -> None:
    seen: list[Any] = []

    def note(seam: str) -> Hook:
        return Hook(seam=seam, fn=lambda context: seen.append((seam, getattr(context, "kind", None))))

    seams = (
        "before_run", "before_turn", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call",
        "authorize_request", "on_chunk", "on_message", "finish_turn", "after_turn",
    )  # fmt: skip
    talk = Agent(model=ScriptedModel([text("S")]), hooks=[note(seam) for seam in seams]).conversation(PAST)
    await talk.compact(keep=2)

    assert seen == [("authorize_request", "compaction")]


async def test_the_gate_can_answer_for_the_model() -> None:
    model = ScriptedModel([text("never")])
    hooks = [Hook(seam="authorize_request", fn=lambda r: Answer("FROM THE CACHE"))]
    talk = Agent(model=model, hooks=hooks).conversation(PAST)
    await talk.compact(keep=2)

    assert model.requests == []
    assert "FROM THE CACHE" in talk.messages[0].text


# --- where it cuts --------------------------------------------------------------------------------


def call(n: int) -> list[Any]:
    ids = [f"c{n}a", f"c{n}b"]
    return [
        UserMessage(f"u{n}"), AssistantMessage(tuple([ToolCall(i, "work", "{}") for i in ids]), "tool_calls"),
        *[ToolMessage(i, "work", "worked") for i in ids], AssistantMessage((Text(f"a{n}"),)), CustomMessage("k", f"note {n}"),
    ]  # fmt: skip


@pytest.mark.parametrize("keep", range(1, 18))
async def test_a_call_and_its_results_stay_together_wherever_the_cut_falls(keep: int) -> None:
    past = [m for n in range(3) for m in call(n)]
    talk = Agent(model=ScriptedModel([text("S"), text("end")])).conversation(past)
    done = await talk.compact(keep=keep)
    await talk.run("and now?")

    if done.messages is not None:
        assert len(done.removed) + len(done.messages) - 1 == len(past)
        assert [*done.removed, *done.messages[1:]] == past
    assert_valid(talk.messages)


@pytest.mark.parametrize("said", [UserMessage("meanwhile"), CustomMessage("note", "meanwhile")], ids=["a person", "a record"])
@pytest.mark.parametrize("keep", range(1, 9))
async def test_a_result_that_comes_later_stays_with_its_call_too(keep: int, said: Any) -> None:
    """A result belongs to the last call of its id: the earlier one, which has none, may go."""
    calls = [AssistantMessage((ToolCall(name, "t", "{}"),), "tool_calls") for name in ("a", "b", "a")]
    late = [*calls[:1], said, *calls[1:], said, ToolMessage("a", "t", "for a"), said, ToolMessage("b", "t", "for b")]
    model = ScriptedModel([text("SUMMARY"), text("done")])
    talk = Agent(model=model).conversation([*PAST, *late])
    await talk.compact(keep=keep)
    await talk.run("go on")

    sent = [m for m in model.requests[-1].messages if m.role == "tool"]
    assert {m.text for m in sent} >= {"for a", "for b"}
    assert_valid(list(model.requests[-1].messages))


@pytest.mark.parametrize("keep", range(1, 5))
async def test_calls_of_one_reply_with_one_id_keep_their_results(keep: int) -> None:
    twice = AssistantMessage((ToolCall("a", "t", "{}"), ToolCall("a", "t", "{}")), "tool_calls")
    model = ScriptedModel([text("SUMMARY"), text("done")])
    results = ToolMessage("a", "t", "1"), ToolMessage("a", "t", "2")
    talk = Agent(model=model).conversation([*PAST, twice, *results, UserMessage("?")])
    await talk.compact(keep=keep)
    await talk.run("go on")

    sent = [m.text for m in model.requests[-1].messages if m.role == "tool"]
    assert sent[-2:] == (["1", "2"] if keep > 1 else [])
    assert_valid(list(model.requests[-1].messages))


# --- beside other work ----------------------------------------------------------------------------


async def test_the_time_of_a_compaction_counts_as_busy() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(request: Any) -> Any:
        asked.set()
        await go.wait()
        return text("SUMMARY")

    talk = Agent(model=FunctionModel(answer)).conversation(PAST)
    compacting = asyncio.create_task(talk.compact(keep=2))
    await asked.wait()
    assert talk.is_running
    with pytest.raises(UsageError, match="already"):
        await talk.run("me too")
    go.set()
    await compacting

    assert "SUMMARY" in talk.messages[0].text


@pytest.mark.parametrize("where", ["in_the_hook", "in_the_gate", "while_the_model_answers", "while_the_hook_hangs"])
async def test_an_aborted_compaction_sends_nothing_more_and_keeps_the_history(where: str) -> None:
    reached = asyncio.Event()

    async def reach(context: Any = None) -> Any:
        reached.set()
        await asyncio.Event().wait()

    model = FunctionModel(reach) if where == "while_the_model_answers" else FunctionModel(lambda request: text("never"))
    hooks = {
        "in_the_hook": [Hook(seam="before_compaction", fn=lambda c: talk.abort())],
        "in_the_gate": [Hook(seam="authorize_request", fn=lambda r: talk.abort())],
        "while_the_hook_hangs": [Hook(seam="before_compaction", fn=reach)],
    }.get(where, [])
    talk = Agent(model=model, hooks=hooks, limits=Limits(abort_grace=0.01)).conversation(PAST)
    compacting = asyncio.create_task(talk.compact(keep=2))
    if where.startswith("while"):
        await reached.wait()
        talk.abort()
    done = await compacting

    assert (done.messages, done.reason) == (None, "aborted")
    assert len(model.requests) == (1 if where == "while_the_model_answers" else 0)
    assert [m.text for m in talk.messages] == TEXTS
    assert not talk.is_running


async def test_cancelling_a_compaction_keeps_the_history() -> None:
    asked = asyncio.Event()

    async def never(request: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    talk = Agent(model=FunctionModel(never)).conversation(PAST)
    compacting = asyncio.create_task(talk.compact(keep=2))
    await asked.wait()
    compacting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await compacting

    assert [m.text for m in talk.messages] == TEXTS
    assert not talk.is_running


async def test_a_talk_that_waits_for_a_person_is_not_compacted_under_him() -> None:
    @tool
    async def pay() -> str:
        return "paid"

    hooks = [Hook(seam="before_tool_call", fn=lambda c: Ask("Pay?"))]
    model = ScriptedModel([tool_call("pay", id="c"), text("end")])
    talk = Agent(model=model, tools=[pay], hooks=hooks).conversation(PAST)
    await talk.run("pay")
    with pytest.raises(UsageError):
        await talk.compact(keep=2)
    await talk.resume({"c": Approve()})

    assert [m.text for m in talk.messages][-4:] == ["pay", "", "paid", "end"]
    assert_valid(talk.messages)


async def test_what_was_removed_is_handed_back_and_earlier_views_stay_whole() -> None:
    talk = Agent(model=ScriptedModel([text("S")])).conversation(PAST)
    before = talk.messages
    done = await talk.compact(keep=2)

    assert list(before) == PAST
    assert list(done.removed) == PAST[:4]
