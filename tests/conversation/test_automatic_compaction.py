"""Compaction by itself: before a request that would be too long, within the run, and never at the cost of a message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, AssistantMessage, BadRequest, Block, ConfigError, Context, Hook, HookFailed, Image, Limits,
    Replace, RequestTooLarge, Text, ToolCall, ToolMessage, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.history import estimate_tokens
from beforehand.testing import FunctionModel, cut, error, finish, text, tool_call

from conversation.checks import assert_valid

PAST = [m for n in range(8) for m in (UserMessage(f"question {n} " + "x" * 400), AssistantMessage((Text(f"answer {n}"),)))]
"""About 950 tokens."""
AT = Limits(compact_at=600)


def verdicts(result: Any) -> list[str]:
    return [d.verdict for d in result.decisions if d.seam == "compaction"]


def summarises(answer: Any = "SUMMARY", then: Any = "done") -> FunctionModel:
    """A model that gives summaries to those who ask for one, and answers everything else."""

    def reply(request: Any) -> Any:
        said = answer if request.system.startswith("Summarise") else then
        return text(said) if isinstance(said, str) else said

    return FunctionModel(reply)


def of_kind(model: FunctionModel) -> list[str]:
    return ["summary" if r.system.startswith("Summarise") else "turn" for r in model.requests]


# --- when it happens, and what is left -----------------------------------------------------------


async def test_old_messages_become_a_summary_before_a_request_that_would_be_too_long() -> None:
    model = summarises()
    talk = Agent(model=model, limits=AT).conversation(PAST)
    result = await talk.run("and now?")

    assert of_kind(model) == ["summary", "turn"]
    sent = model.requests[1].messages
    assert "SUMMARY" in sent[0].text
    assert sent[-1].text == "and now?"
    assert estimate_tokens(sent) < 600
    assert list(talk.messages[:-1]) == list(sent)
    assert [m.text for m in result.messages] == ["and now?", "done"]
    assert verdicts(result) == ["compacted"]


async def test_what_was_removed_is_in_the_result_and_in_the_event() -> None:
    heard = []
    talk = Agent(model=summarises(), limits=AT).conversation(PAST)
    talk.on("compacted", heard.append)
    before = talk.messages
    result = await talk.run("and now?")

    kept = [m for m in talk.messages if m in PAST]
    assert kept
    assert [*result.removed, *kept] == PAST
    (event,) = heard
    assert (event.removed, event.kept, event.message) == (result.removed, len(kept) + 1, talk.messages[0])
    assert event.tokens == estimate_tokens(result.removed)
    assert list(before) == PAST


@pytest.mark.parametrize("limits", [Limits(), Limits(compact_at=10_000)], ids=["no threshold", "below it"])
async def test_below_the_threshold_or_without_one_nothing_happens(limits: Limits) -> None:
    model = summarises()
    result = await Agent(model=model, limits=limits).conversation(PAST).run("and now?")
    assert (of_kind(model), verdicts(result), result.removed) == (["turn"], [], ())


async def test_instructions_tools_and_the_room_for_an_answer_count() -> None:
    limits = Limits(compact_at=1200)
    for changes, expected in (({}, ["turn"]), ({"instructions": "y" * 2000}, ["summary", "turn"])):
        model = summarises()
        await Agent(model=model, limits=limits, **changes).conversation(PAST).run("and now?")  # type: ignore[arg-type]
        assert of_kind(model) == expected


async def test_a_run_that_grows_too_long_over_its_tools_is_compacted_on_the_way() -> None:
    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return f"page {page} " + "z" * 800

    def reply(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            return text("SUMMARY")
        done = sum(m.role == "assistant" for m in request.messages)
        asked.append(done)
        return tool_call("read", {"page": len(asked)}, id=f"c{len(asked)}") if len(asked) < 9 else text("done")

    asked: list[int] = []
    model = FunctionModel(reply)
    talk = Agent(model=model, tools=[read], limits=AT).conversation()
    result = await talk.run("read it all")

    assert result.text == "done"
    assert verdicts(result).count("compacted") >= 2
    for request in model.requests:
        if not request.system.startswith("Summarise"):
            assert estimate_tokens(request.messages) < 600 + 250  # one page more than the threshold, at most
            assert_valid(request.messages)
    assert len(result.messages) == 1 + 8 * 2 + 1, "what the run added, all of it"
    assert [m.text.split()[1] for m in result.messages if m.role == "tool"] == [str(n) for n in range(1, 9)]
    assert len(talk.messages) < len(result.messages)
    assert_valid(talk.messages)


async def test_the_next_run_goes_on_from_the_summary() -> None:
    model = summarises()
    talk = Agent(model=model, limits=AT).conversation(PAST)
    await talk.run("one")
    await talk.run("two")
    assert of_kind(model) == ["summary", "turn", "turn"]
    assert [m.text for m in model.requests[2].messages[-3:]] == ["one", "done", "two"]
    assert "SUMMARY" in model.requests[2].messages[0].text


@pytest.mark.parametrize("results", [1, 2, 5])
async def test_a_call_and_its_results_stay_together(results: int) -> None:
    ids = [f"c{i}" for i in range(results)]
    batch = [
        AssistantMessage(tuple([ToolCall(i, "work", "{}") for i in ids]), "tool_calls"),
        *[ToolMessage(i, "work", "w" * 500) for i in ids],
    ]  # fmt: skip
    model = summarises()
    talk = Agent(model=model, limits=AT).conversation([*PAST, *batch])
    await talk.continue_run()
    assert [m for m in model.requests[1].messages if m.role == "tool"] == batch[1:]
    assert_valid(model.requests[1].messages)


# --- where it is asked ---------------------------------------------------------------------------


async def test_the_seams_of_a_compaction_come_before_those_of_the_request() -> None:
    seen: list[Any] = []

    def note(seam: str) -> Hook:
        return Hook(seam=seam, fn=lambda c: seen.append((seam, getattr(c, "kind", None) or getattr(c, "threshold", None))))

    seams = (
        "before_turn", "before_compaction", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call",
        "authorize_request",
    )  # fmt: skip
    await Agent(model=summarises(), hooks=[note(s) for s in seams], limits=AT).conversation(PAST).run("and now?")
    assert seen == [
        ("before_turn", None), ("before_compaction", 600), ("authorize_request", "compaction"), ("prepare_request", None),
        ("transform_context", None), ("convert_to_llm", None), ("before_provider_call", None), ("authorize_request", "turn"),
    ]  # fmt: skip


async def test_a_hook_at_17_writes_the_summary_or_forbids_it() -> None:
    model = summarises()
    talk = Agent(model=model, hooks=[Hook(seam="before_compaction", fn=lambda c: Answer("MINE"))], limits=AT).conversation(PAST)
    await talk.run("and now?")
    assert of_kind(model) == ["turn"]
    assert "MINE" in talk.messages[0].text

    model = summarises()
    talk = Agent(model=model, hooks=[Hook(seam="before_compaction", fn=lambda c: Block("keep it"))], limits=AT).conversation(PAST)
    result = await talk.run("and now?")
    assert of_kind(model) == ["turn"]
    assert list(talk.messages[: len(PAST)]) == PAST
    assert "keep it" in str(result.decisions[-1].reason)


# --- nothing is lost -----------------------------------------------------------------------------


def fail(context: Any) -> None:
    raise RuntimeError("broken")


def only_compactions(request: Any) -> Any:
    return Block("not this") if request.kind == "compaction" else None


def fail_at_compactions(request: Any) -> None:
    if request.kind == "compaction":
        raise RuntimeError("broken")


FAILURES: dict[str, tuple[list[Hook], Any]] = {
    "model_fails": ([], error("down")),
    "model_fails_half_way": ([], [text("half"), error("down")]),
    "model_refuses": ([], error(BadRequest("no"))),
    "line_is_cut": ([], [text("half"), cut()]),
    "summary_is_cut_by_its_length": ([], [text("half"), finish("length")]),
    "model_declines": ([], [text("I cannot help with that."), finish("refusal")]),
    "summary_is_empty": ([], " "),
    "gate_blocks": ([Hook(seam="authorize_request", fn=only_compactions)], "never"),
    "gate_fails": ([Hook(seam="authorize_request", fn=fail_at_compactions)], "never"),
    "hook_fails": ([Hook(seam="before_compaction", fn=fail)], "never"),
    "hook_answers_nothing": ([Hook(seam="before_compaction", fn=lambda c: Answer(""))], "never"),
}


@pytest.mark.parametrize("how", list(FAILURES))
async def test_whatever_goes_wrong_the_messages_stay_and_the_run_goes_on(how: str) -> None:
    hooks, answer = FAILURES[how]
    model = summarises(answer)
    talk = Agent(model=model, hooks=hooks, limits=AT).conversation(PAST)
    result = await talk.run("and now?")

    assert result.text == "done"
    assert list(talk.messages[: len(PAST)]) == PAST
    assert list(model.requests[-1].messages) == [*PAST, UserMessage("and now?")]
    assert verdicts(result) == ["failed"]
    assert result.removed == ()
    (record,) = [d for d in result.decisions if d.seam == "compaction"]
    assert "not compacted: " in str(record.reason)


async def test_an_adapter_that_breaks_is_no_reason_to_lose_the_run() -> None:
    def reply(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            raise KeyError("adapter")
        return text("done")

    result = await Agent(model=FunctionModel(reply), limits=AT).conversation(PAST).run("and now?")
    assert (result.text, verdicts(result)) == ("done", ["failed"])


async def test_a_request_that_no_longer_fits_fails_as_it_would_without_a_compaction() -> None:
    model = summarises(error("down"))
    talk = Agent(model=model, limits=Limits(compact_at=600, context_tokens=700)).conversation(PAST)
    with pytest.raises(RequestTooLarge):
        await talk.run("and now?")
    assert of_kind(model) == ["summary"]
    assert list(talk.messages[: len(PAST)]) == PAST


async def test_a_failed_compaction_is_not_tried_again_at_every_turn() -> None:
    @tool
    async def read() -> str:
        """Read a little."""
        return "z" * 100

    def reply(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            return error("down")
        turns.append(request)
        return tool_call("read", id=f"c{len(turns)}") if len(turns) < 12 else text("done")

    turns: list[Any] = []
    model = FunctionModel(reply)
    result = await Agent(model=model, tools=[read], limits=AT).conversation(PAST).run("go")
    grown = estimate_tokens(model.requests[-1].messages) - 950
    assert 1 < of_kind(model).count("summary") <= 1 + grown // 150, "once for each quarter of the threshold"
    assert verdicts(result) == ["failed"] * of_kind(model).count("summary")


async def test_where_the_newest_messages_alone_are_too_long_no_summary_is_asked_for() -> None:
    model = summarises()
    talk = Agent(model=model, limits=AT).conversation()
    result = await talk.run("x" * 4000)
    assert (of_kind(model), verdicts(result)) == (["turn"], ["failed"])
    assert "too little to make a difference" in str(result.decisions[-1].reason)


@pytest.mark.parametrize("seam", ["before_compaction", "authorize_request"])
async def test_a_hook_that_wants_the_run_to_end_has_its_way(seam: str) -> None:
    model = summarises()
    fn = fail if seam == "before_compaction" else fail_at_compactions
    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=fn, on_error="abort")], limits=AT).conversation(PAST)
    with pytest.raises(HookFailed):
        await talk.run("and now?")
    assert model.requests == []
    assert list(talk.messages[: len(PAST)]) == PAST


@pytest.mark.parametrize("where", ["in_the_hook", "while_the_model_answers"])
async def test_an_abort_while_a_summary_is_made_ends_the_run_and_keeps_the_messages(where: str) -> None:
    reached = asyncio.Event()

    async def hang(context: Any = None) -> Any:
        reached.set()
        await asyncio.Event().wait()

    hooks = [Hook(seam="before_compaction", fn=hang)] if where == "in_the_hook" else []
    model = FunctionModel(hang)
    talk = Agent(model=model, hooks=hooks, limits=Limits(compact_at=600, abort_grace=0.01)).conversation(PAST)
    running = asyncio.ensure_future(talk.run("and now?"))
    await reached.wait()
    talk.abort()
    result = await running
    assert (result.stop_reason, result.removed) == ("aborted", ())
    assert len(model.requests) == (where != "in_the_hook")
    assert list(talk.messages) == [*PAST, UserMessage("and now?")]


async def test_a_hook_that_aborts_instead_of_deciding_is_no_failed_compaction() -> None:
    model = summarises()
    hooks = [Hook(seam="before_compaction", fn=lambda c: talk.abort())]
    talk = Agent(model=model, hooks=hooks, limits=AT).conversation(PAST)
    result = await talk.run("and now?")
    assert (result.stop_reason, verdicts(result), model.requests) == ("aborted", [], [])


async def test_cancelling_the_run_while_a_summary_is_made_keeps_the_messages() -> None:
    reached = asyncio.Event()

    async def hang(request: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    talk = Agent(model=FunctionModel(hang), limits=AT).conversation(PAST)
    running = asyncio.ensure_future(talk.run("and now?"))
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(talk.messages) == [*PAST, UserMessage("and now?")]


# --- beside other things -------------------------------------------------------------------------


async def test_what_a_hook_put_in_place_of_the_history_is_shortened_for_the_run_and_the_history_is_not() -> None:
    other = [UserMessage(f"other {n} " + "y" * 400) for n in range(8)]

    @hook.prepare_next_turn
    def elsewhere(turn: Any) -> Replace:
        return Replace(context=Context("", tuple(other), turn.context.tools))

    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    def reply(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            return text("SUMMARY")
        return tool_call("work", id="c") if request.messages[-1].text == "go" else text("done")

    model = FunctionModel(reply)
    talk = Agent(model=model, tools=[work], hooks=[elsewhere], limits=AT).conversation()
    result = await talk.run("go")
    assert of_kind(model) == ["turn", "summary", "turn"]
    assert "SUMMARY" in model.requests[2].messages[0].text
    assert [m.text for m in talk.messages] == ["go", "", "worked", "done"]
    assert result.removed == ()


async def test_a_context_that_a_hook_replaces_after_a_compaction_leaves_the_shortened_history_complete() -> None:
    @hook.prepare_request
    def shorter(plan: Any) -> Replace:
        messages = tuple(plan.context.messages)[-1:]
        return Replace(context=Context(plan.context.system, messages, plan.context.tools))

    talk = Agent(model=summarises(), hooks=[shorter], limits=AT).conversation(PAST)
    await talk.run("and now?")
    assert "SUMMARY" in talk.messages[0].text
    assert [m.text for m in talk.messages[-2:]] == ["and now?", "done"]


async def test_a_run_that_waits_for_a_person_after_a_compaction_goes_on_from_it() -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    def reply(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            return text("SUMMARY")
        return text("done") if request.messages[-1].role == "tool" else tool_call("pay", id="c")

    hooks = [Hook(seam="before_tool_call", fn=lambda c: Ask("Pay?"))]
    talk = Agent(model=FunctionModel(reply), tools=[pay], hooks=hooks, limits=AT).conversation(PAST)
    assert (await talk.run("pay")).stop_reason == "suspended"
    assert "SUMMARY" in talk.messages[0].text
    result = await talk.resume({"c": Approve()})
    assert [m.text for m in talk.messages[-4:]] == ["pay", "", "paid", "done"]
    assert [m.text for m in result.messages] == ["pay", "", "paid", "done"]
    assert_valid(talk.messages)


async def test_a_stream_made_before_a_compaction_and_read_after_it_belongs_to_the_talk() -> None:
    talk = Agent(model=summarises(), limits=AT).conversation(PAST)
    later = talk.stream("later")
    await talk.run("and now?")
    async for _ in later:
        pass
    assert [m.text for m in talk.messages[-4:]] == ["and now?", "done", "later", "done"]
    assert [m.text for m in talk.result.messages] == ["later", "done"]  # type: ignore[union-attr]


async def test_a_summary_request_fits_the_models_window() -> None:
    seen: list[int] = []

    def reply(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            seen.append(len(request.messages[0].text))
            return text("SUMMARY")
        return text("done")

    past = [UserMessage("q " + "x" * 20_000), *PAST, UserMessage((Text("see"), Image(url="http://127.0.0.1/p.png")))]
    talk = Agent(model=FunctionModel(reply), limits=Limits(compact_at=2000, context_tokens=2500)).conversation(past)
    await talk.run("and now?")
    assert seen
    assert seen[0] <= 2500 * 3


@pytest.mark.parametrize("wrong", [-1, "many", True, float("nan")])
def test_a_threshold_is_a_number_of_tokens(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"Limits\.compact_at is"):
        Limits(compact_at=wrong)
