"""What a failure, an abort or the end of a process leaves half done: it is done anew, nobody is passed over, and none of it
stands in the record twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, Answer, Ask, Block, Continue, End, Hook, HookFailed, Interrupt, Limits, Queue, Recovery, Replace, Steer,
    ToolContext, UserMessage, tool,
)  # fmt: skip
from beforehand.errors import RunChanged, RunError
from beforehand.journal import Journal, Record, verify
from beforehand.testing import FunctionModel, error, text, tool_call

from journal.cutting import all_records, cut

SEAMS = (
    "before_turn", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "get_api_key",
    "authorize_request", "on_message", "finish_turn", "after_turn", "prepare_next_turn",
)  # fmt: skip
KEY = "sk-0123456789abcdef"


def journal(path: Path) -> Journal:
    return Journal(path, durability="normal", raw=True)


def after_calls(request: Any) -> Any:
    done = any(message.role == "tool" for message in request.messages)
    return text("done") if done else [tool_call("look", {"n": n}, id=f"c{n}") for n in (1, 2)]


def agent_at(path: Path, *hooks: Hook, **options: Any) -> Agent:
    @tool(replay="safe")
    async def look(n: int) -> str:
        return f"saw {n}"

    options.setdefault("model", FunctionModel(after_calls))
    return Agent(tools=[look], hooks=hooks, journal=journal(path), **options)


def cut_after(whole: Path, last: Callable[[Record], bool]) -> Path:
    """A journal that ends with the first record of which this holds, beside the whole one."""
    records = all_records(whole)
    return cut_at(whole, next(place for place, record in enumerate(records, 1) if last(record)))


def cut_at(whole: Path, length: int) -> Path:
    path = whole.with_name(f"{whole.stem}-{length}.db")
    cut(all_records(whole)[:length], {"R": None}, path).close()
    return path


async def resumed(agent: Agent) -> Any:
    """What its run comes to when it goes on, which is what its record then says, in another process too."""
    async with agent:
        result = await agent.resume("R", check=False)
        assert verify(agent.plan.journal) == []
        if result.error is None and result.stop_reason != "suspended":
            again = await agent.resume("R")
            assert (again.messages, again.text) == (result.messages, result.text)
        return result


def rewritten(message: Any) -> Replace:
    return Replace(message=msgspec.structs.replace(message, content=message.text.upper()))


def patient() -> Recovery:
    async def sleep(seconds: float) -> None:
        """Nobody waits here."""

    return Recovery(sleep=sleep)


# --- nobody is passed over ------------------------------------------------------------------------


def watchers(asked: list[str], seams: tuple[str, ...] = SEAMS) -> list[Hook]:
    return [Hook(seam=seam, fn=lambda context, seam=seam: asked.append(seam), name=seam) for seam in seams]


async def test_a_hook_that_is_gone_hides_no_other_one(tmp_path: Path) -> None:
    """What it decided last stands at the end of the record, and nothing of what the others are asked about has happened yet."""
    whole: list[str] = []
    async with agent_at(tmp_path / "whole.db", *watchers(whole)) as agent:
        await agent.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    rulings = [r for r in records if r.kind == "ruling" and r.data["seam"] in SEAMS]
    assert {r.data["seam"] for r in rulings} == set(SEAMS)
    for ruling in rulings:
        gone, asked = ruling.data["seam"], list[str]()
        path = cut_at(tmp_path / "whole.db", ruling.n)
        there = tuple(seam for seam in SEAMS if seam != gone)
        await resumed(agent_at(path, *watchers(asked, there)))
        before = Counter(r.data["seam"] for r in rulings if r.n <= ruling.n)
        missing = Counter(seam for seam in whole if seam != gone) - before - Counter(asked)
        assert not missing, f"without the hook at {gone}, from record {ruling.n}: not asked are {missing}"


@pytest.mark.parametrize("aborted_in", ["before_turn", "on_message", "prepare_request", "before_provider_call"])
async def test_what_closed_an_aborted_turn_hides_no_hook(tmp_path: Path, aborted_in: str) -> None:
    """The process ends while the hooks at 14 and 15 are at work, before the abort is on record."""
    asked: list[str] = []
    async with agent_at(tmp_path / "whole.db") as agent:
        talk = agent.replace(hooks=[
            *watchers(asked), Hook(seam=aborted_in, fn=lambda context: talk.abort("enough"), name="brake"),
        ]).conversation()  # fmt: skip
        assert (await talk.run("go", run_id="R")).stop_reason == "aborted"
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("seam") == "after_turn")
    asked.clear()
    brake = Hook(seam=aborted_in, fn=lambda context: None, name="brake")
    assert (await resumed(agent_at(path, *watchers(asked), brake))).text == "done"
    for seam in ("authorize_request", "finish_turn", "after_turn"):
        assert asked.count(seam) == 2, f"{seam} is asked about both requests and turns"


async def test_a_hook_at_10_that_is_new_is_asked_about_no_message_that_is_in_the_history(tmp_path: Path) -> None:
    async with agent_at(tmp_path / "whole.db") as agent:
        whole = await agent.run([UserMessage("go"), UserMessage("now")], run_id="R")
    records = all_records(tmp_path / "whole.db")
    for record in records[1:-1]:
        seen: list[Any] = []
        new = Hook(seam="on_message", fn=lambda incoming, seen=seen: seen.append(incoming.message), name="new")
        result = await resumed(agent_at(cut_at(tmp_path / "whole.db", record.n), new))
        assert [m.text for m in result.messages] == [m.text for m in whole.messages]
        there = sum(r.kind == "message" and r.data.get("role") != "assistant" for r in records if r.n <= record.n)
        assert len([m for m in seen if m.role != "assistant"]) == 4 - there, record.kind


# --- what failed is done anew ---------------------------------------------------------------------


@pytest.mark.parametrize("recovery", [False, True])
async def test_dynamic_instructions_that_failed_are_asked_again(tmp_path: Path, recovery: bool) -> None:
    down = True

    def who(run: Any) -> str:
        if down:
            raise ConnectionError("the directory is down")
        return "You are talking to Ann."

    model = FunctionModel(lambda request: text(request.system))
    options = {"model": model, "instructions": ["Be brief.", who], "recovery": patient() if recovery else None}
    async with agent_at(tmp_path / "runs.db", **options) as agent:
        with pytest.raises(RunError, match="the directory is down"):
            await agent.run("hello", run_id="R")
        with pytest.raises(RunError, match="the directory is down"):
            await agent.resume("R")
    down = False
    assert "talking to Ann" in (await resumed(agent_at(tmp_path / "runs.db", **options))).text


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call"])
async def test_what_a_hook_says_of_a_call_after_it_has_failed_is_what_counts(tmp_path: Path, seam: str, mode: Any) -> None:
    """With on_error="abort" the run has ended with that; the call was refused then, and the one beside it has run."""
    broken = True
    asked: list[str] = []

    def gate(call: Any) -> Any:
        asked.append(call.call_id)
        if broken and call.call_id == "c1":
            raise OSError("the list of addresses is not there")
        return Queue(UserMessage("by the way")) if call.call_id == "c2" else None

    hooks = [Hook(seam=seam, fn=gate, name="gate", on_error="abort"), Hook(seam="on_message", fn=lambda incoming: None)]
    async with agent_at(tmp_path / "whole.db", *hooks, tool_mode=mode) as agent:
        failed = await agent.run("go", run_id="R", check=False)
        assert isinstance(failed.error, HookFailed)
    records, length = all_records(tmp_path / "whole.db"), len(all_records(tmp_path / "whole.db"))
    broken = False
    begun = next(r.n for r in records if r.kind == "outcome")
    for place in range(begun, length + 1):
        asked.clear()
        result = await resumed(agent_at(cut_at(tmp_path / "whole.db", place), *hooks, tool_mode=mode))
        assert [m.text for m in result.messages if m.role == "tool"] == ["saw 1", "saw 2"], place
        assert [m.text for m in result.messages if m.origin == "hook"] == ["by the way"], place
        assert asked.count("c1") == 1, place
    path = tmp_path / f"whole-{length}.db"
    for record in all_records(path)[length:-1]:  # and a process that ends after that has gone past it too
        asked.clear()
        result = await resumed(agent_at(cut_at(path, record.n), *hooks, tool_mode=mode))
        assert [m.text for m in result.messages if m.role == "tool"] == ["saw 1", "saw 2"], record.n
        assert [m.text for m in result.messages if m.origin == "hook"] == ["by the way"], record.n


async def test_a_key_that_failed_when_it_was_asked_for_again_is_where_the_run_goes_on(tmp_path: Path) -> None:
    """The process ended while the request for a summary was out, and the run went on without one."""
    failing = False

    def key(asked: Any) -> Any:
        nonlocal failing
        if failing:
            failing = False
            raise ConnectionError("the vault is down")
        return Replace(key=KEY)

    def reply(request: Any) -> Any:
        if request.system.startswith("Summarise"):
            return text("a summary")
        done = sum(m.role == "tool" for m in request.messages)
        return text("done") if done == 4 or "Summary" in request.messages[0].text else tool_call("look", {"n": done})

    hooks = [Hook(seam=seam, fn=fn, name=seam) for seam, fn in (("get_api_key", key), ("authorize_request", lambda out: None))]
    options: dict[str, Any] = {"model": FunctionModel(reply), "limits": Limits(compact_at=60)}
    async with agent_at(tmp_path / "whole.db", *hooks, **options) as agent:
        await agent.run("word " * 60, run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "request" and r.data["kind"] == "compaction")
    length = len(all_records(path))
    failing = True
    assert (await resumed(agent_at(path, *hooks, **options))).text == "done"
    for record in all_records(path)[length:-1]:
        assert (await resumed(agent_at(cut_at(path, record.n), *hooks, **options))).text == "done", record.n


async def test_a_hook_that_no_record_can_speak_for_fails_as_itself(tmp_path: Path) -> None:
    """It gives a model, so it is asked at every resume. That it fails then says nothing about the code of the run."""
    asked = 0
    fails = 0

    def pick(plan: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == fails:
            raise ConnectionError("the list of models is not there")
        return Replace(model=FunctionModel(after_calls))

    gates: list[str] = []
    hooks = [Hook(seam="prepare_request", fn=pick, name="pick"), *watchers(gates, ("finish_turn", "authorize_request"))]
    async with agent_at(tmp_path / "whole.db", *hooks) as agent:
        await agent.run("go", run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "reply")
    asked, fails = 0, 1
    async with agent_at(path, *hooks) as agent:
        with pytest.raises(HookFailed, match="the list of models is not there"):
            await agent.resume("R")
    gates.clear()
    assert (await resumed(agent_at(path, *hooks))).text == "done"
    assert gates == ["finish_turn", "authorize_request", "finish_turn"]


async def test_a_hook_that_was_cut_by_an_abort_is_asked_once_more_and_not_at_each_resume(tmp_path: Path) -> None:
    asked = 0

    def guard(incoming: Any) -> Any:
        nonlocal asked
        if incoming.message.text == "second":
            asked += 1
            if asked == 1:
                talk.abort("enough")
                raise ConnectionError("cut off")
            return Queue(UserMessage("by the way"))
        return None

    hooks = [Hook(seam="on_message", fn=guard, name="guard"), *watchers([], ("finish_turn", "after_turn"))]
    async with agent_at(tmp_path / "whole.db", *hooks) as agent:
        talk = agent.conversation()
        prompts = [UserMessage("go"), UserMessage("second")]
        assert (await talk.run(prompts, run_id="R")).stop_reason == "aborted"
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("seam") == "after_turn")
    length = len(all_records(path))
    result = await resumed(agent_at(path, *hooks))
    assert ([m.text for m in result.messages].count("by the way"), asked) == (1, 2)
    for record in all_records(path)[length + 1 : -1]:
        again = await resumed(agent_at(cut_at(path, record.n), *hooks))
        assert [m.text for m in again.messages] == [m.text for m in result.messages], record.n
        assert asked == 2, record.n


async def test_a_run_that_is_aborted_while_a_failed_turn_is_closed_is_over(tmp_path: Path) -> None:
    def brake(turn: Any) -> None:
        talk.abort("enough")
        raise ConnectionError("cut off")

    model = FunctionModel(lambda request: error("down"))
    async with agent_at(tmp_path / "runs.db", Hook(seam="finish_turn", fn=brake, name="brake"), model=model) as agent:
        talk = agent.conversation()
        result = await talk.run("go", run_id="R")
        assert (result.stop_reason, result.error) == ("aborted", None)
        assert (await agent.resume("R")).messages == result.messages


# --- nothing stands twice -------------------------------------------------------------------------


async def test_a_hooks_answer_whose_end_is_not_on_record_stands_once(tmp_path: Path) -> None:
    """The process ends while somebody reads the message."""
    hooks = [
        Hook(seam="authorize_request", fn=lambda out: Answer("from the cache") if out.run.turn == 1 else None, name="cache"),
        Hook(seam="finish_turn", fn=lambda turn: Continue() if turn.number == 1 else None, name="on"),
    ]
    model = FunctionModel(lambda request: text("done"))
    async with agent_at(tmp_path / "whole.db", *hooks, model=model) as agent:
        whole = await agent.run("go", run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("role") == "assistant")
    length = len(all_records(path))
    result = await resumed(agent_at(path, *hooks, model=model))
    assert [m.text for m in result.messages] == [m.text for m in whole.messages] == ["go", "from the cache", "done"]
    for record in all_records(path)[length:-1]:
        again = await resumed(agent_at(cut_at(path, record.n), *hooks, model=model))
        assert again.messages == result.messages, record.n


async def test_a_message_that_a_turn_had_twice_on_record_is_said_once(tmp_path: Path) -> None:
    """An attempt that was to take it in was interrupted over another one, and polled the queue once more."""
    broken = True

    @tool
    async def look(ctx: ToolContext, n: int) -> str:
        for said in ("first", "second"):
            talk.steer(said)
        return f"saw {n}"

    def guard(incoming: Any) -> Any:
        return Interrupt("not that") if incoming.message.text == "first" else None

    def fails_once(turn: Any) -> None:
        nonlocal broken
        if turn.number == 2 and broken:
            broken = False
            raise OSError("not there")

    hooks = [Hook(seam="on_message", fn=guard, name="guard"), Hook(seam="before_turn", fn=fails_once, name="once")]
    agent = Agent(
        model=FunctionModel(after_calls), tools=[look], hooks=hooks, journal=journal(tmp_path / "whole.db"), recovery=patient(),
    )  # fmt: skip
    async with agent:
        talk = agent.conversation(steering_mode="all")
        whole = await talk.run("go", run_id="R", check=False)
        assert whole.stop_reason == "interrupted"
        waits = [m.text for m in talk.queued]
        assert waits.count("second") == 2
    records = all_records(tmp_path / "whole.db")
    assert "took" in {r.kind for r in records}
    path = cut_at(tmp_path / "whole.db", len(records) - 1)
    async with agent.replace(journal=journal(path), hooks=[hooks[1], Hook(seam="on_message", fn=guard, name="guard")]) as again:
        talk = again.conversation()
        await talk.resume_recorded("R")
        assert [m.text for m in talk.queued] == waits


async def test_what_a_hook_had_queued_stays_in_the_history_when_the_hook_is_gone(tmp_path: Path) -> None:
    def tells(incoming: Any) -> Any:
        return Queue(UserMessage("by the way")) if incoming.message.text == "go" else None

    async with agent_at(tmp_path / "whole.db", Hook(seam="on_message", fn=tells, name="tells")) as agent:
        await agent.run("go", run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("content") == "by the way")
    result = await resumed(agent_at(path))
    assert [m.text for m in result.messages] == ["go", "by the way", "", "saw 1", "saw 2", "done"]


@pytest.mark.parametrize(
    ("seam", "decision"),
    [
        ("before_run", Block("no")),
        ("before_turn", End("enough")),
        ("prepare_request", lambda c: Replace(context=msgspec.structs.replace(c.context, system="another"))),
        ("authorize_request", Block("no")), ("authorize_request", Answer("made up")),
        ("on_message", Interrupt("not that")), ("on_message", Interrupt("no", resend=True)), ("on_message", Queue("a note")),
        ("finish_turn", End()), ("finish_turn", Continue()),
        ("prepare_next_turn", Replace(add_messages=[UserMessage("added")])),
        ("before_compaction", Answer("short")), ("before_compaction", Block("no")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("time", [1, 2])
async def test_what_a_hook_had_decided_stands_when_the_hook_is_gone(tmp_path: Path, seam: Any, decision: Any, time: int) -> None:
    """Wherever the process ends after that, and though there is no other hook at this seam."""
    asked = 0

    def decides(context: Any) -> Any:
        nonlocal asked
        asked += 1
        return None if asked != time else decision(context) if callable(decision) else decision

    def makes(path: Path, *hooks: Hook) -> Agent:
        model = FunctionModel(lambda request: text("short") if request.system.startswith("Summ") else after_calls(request))
        return agent_at(path, *hooks, model=model, limits=Limits(compact_at=60 if seam == "before_compaction" else None))

    def seen(agent: Agent) -> list[tuple[str, list[str]]]:
        return [(request.system, [m.text for m in request.messages]) for request in agent.plan.model.requests]

    async with makes(tmp_path / "whole.db", Hook(seam=seam, fn=decides, name="decides")) as agent:
        whole = await agent.run([UserMessage("word " * 60), UserMessage("go")], run_id="R")
        sent = seen(agent)
    records = all_records(tmp_path / "whole.db")
    ruled = [r.n for r in records if r.kind == "ruling" and r.data.get("decisions")]
    for length in range(ruled[0] if ruled else len(records), len(records)):
        agent = makes(cut_at(tmp_path / "whole.db", length))
        result = await resumed(agent)
        assert (result.messages, result.stop_reason) == (whole.messages, whole.stop_reason), f"cut after record {length}"
        again = seen(agent)
        assert again == sent[len(sent) - len(again) :]


async def test_nobody_is_asked_again_because_a_hook_before_it_has_been_gone_for_long(tmp_path: Path) -> None:
    asked: list[str] = []
    shapes, sees = watchers(asked, ("prepare_request", "transform_context"))
    async with agent_at(tmp_path / "whole.db", shapes, sees) as agent:
        await agent.run("go", run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "turn" and r.data["number"] == 2)
    await resumed(agent_at(path, sees))
    again = cut_after(path, lambda r: r.data.get("seam") == "transform_context" and r.data["turn"] == 2)
    asked.clear()
    assert (await resumed(agent_at(again, sees))).text == "done"
    assert asked == []


@pytest.mark.parametrize(("seam", "refusal"), [("before_turn", End("no")), ("authorize_request", Block("no"))])
async def test_what_hooks_had_refused_stands_though_others_are_new(tmp_path: Path, seam: Any, refusal: Any) -> None:
    """They would be asked first, and then those that had refused it once more, who may decide otherwise by now, or be gone."""

    def refuses(context: Any) -> Any:
        return refusal if context.run.calls else None

    hook = Hook(seam=seam, fn=refuses, name="refuses")
    async with agent_at(tmp_path / "whole.db", hook) as agent:
        whole = await agent.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    first = next(r.n for r in records if r.kind == "ruling" and "heard" in r.data)
    before = SEAMS[: SEAMS.index(seam)] if seam != "before_turn" else ("prepare_next_turn",)
    for there in (hook, Hook(seam=seam, fn=lambda context: None, name="refuses"), None):
        for length in range(first, len(records)):
            path = tmp_path / f"{length} {there is hook} {there is None}.db"
            cut(records[:length], {"R": None}, path).close()
            asked: list[str] = []
            new = watchers(asked, before)
            result = await resumed(agent_at(path, *new, *([] if there is None else [there])))
            assert (result.stop_reason, result.messages) == (whole.stop_reason, whole.messages)
            assert asked == []


@pytest.mark.parametrize("new_at", ["prepare_request", "transform_context"])
async def test_what_a_hook_that_is_gone_had_changed_leaves_as_it_made_it(tmp_path: Path, new_at: Any) -> None:
    def shortens(call: Any) -> Any:
        return Replace(request=msgspec.structs.replace(call.request, system="short"))

    async with agent_at(tmp_path / "whole.db", Hook(seam="before_provider_call", fn=shortens, name="shortens")) as agent:
        await agent.run("go", run_id="R")
    for length in [r.n for r in all_records(tmp_path / "whole.db") if r.kind in ("ruling", "request") and r.data["turn"] == 1]:
        asked: list[str] = []
        again = agent_at(cut_at(tmp_path / "whole.db", length), *watchers(asked, (new_at,)))
        assert (await resumed(again)).text == "done"
        assert [request.system for request in again.plan.model.requests] == ["short", again.plan.system]
        assert asked == [new_at], "about the second request"


@pytest.mark.parametrize("broken", [False, True])
async def test_what_a_hook_at_10_says_of_one_message_is_not_taken_for_what_it_says_of_another(
    tmp_path: Path, broken: bool
) -> None:  # fmt: skip
    """It was not there when the messages before came, and is there when the run goes on, twice."""

    def guard(incoming: Any) -> Any:
        judged.append(incoming.message.text)
        if incoming.message.text == "saw 1" and broken:
            raise RuntimeError("broken")
        return rewritten(incoming.message) if incoming.message.role == "tool" else None

    judged: list[str] = []
    new = Hook(seam="on_message", fn=guard, name="guard")
    async with agent_at(tmp_path / "whole.db") as agent:
        await agent.run([UserMessage("go"), UserMessage("now")], run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "outcome")
    began = len(all_records(path))
    result = await resumed(agent_at(path, new))
    if broken:
        assert result.error is not None
        broken = False
        result = await resumed(agent_at(path, new))
    expected = ["go", "now", "", "SAW 1", "SAW 2", "done"]
    assert [m.text for m in result.messages] == expected
    for record in all_records(path)[began:-1]:
        judged.clear()
        again = await resumed(agent_at(cut_at(path, record.n), new))
        assert [m.text for m in again.messages] == expected, record.n
        assert not {"go", "now"} & set(judged)


@pytest.mark.parametrize(
    ("seam", "fails_at", "decision"),
    [
        ("before_turn", 2, End("no")), ("prepare_next_turn", 1, Replace(add_messages=[UserMessage("added")])),
        ("authorize_request", 2, Block("no")), ("on_message", 3, None),
    ],
)  # fmt: skip
async def test_a_hook_that_had_failed_was_away_and_is_back_is_not_asked_about_what_is_past(
    tmp_path: Path, seam: Any, fails_at: int, decision: Any
) -> None:
    """The run has gone on without it, over that which it had failed about."""
    asked = 0

    def fails(context: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == fails_at:
            raise RuntimeError("broken")

    path = tmp_path / "whole.db"
    async with agent_at(path, Hook(seam=seam, fn=fails, name="hook")) as agent:
        assert (await agent.run("go", run_id="R", check=False)).error is not None
    began = len(all_records(path))
    whole = await resumed(agent_at(path))
    assert [m.text for m in whole.messages] == ["go", "", "saw 1", "saw 2", "done"]
    past = {"on_message": "message", "authorize_request": "reply"}.get(seam, "request")  # a request without reply leaves again
    records = all_records(path)
    for length in range(next(r.n for r in records[began:] if r.kind == past), len(records)):
        result = await resumed(agent_at(cut_at(path, length), Hook(seam=seam, fn=lambda context: decision, name="hook")))
        assert (result.messages, result.stop_reason) == (whole.messages, whole.stop_reason), length


async def test_a_run_that_does_not_go_as_it_is_recorded_has_not_failed(tmp_path: Path) -> None:
    """Nothing is added to its record, and nothing is tried again: with what it began with it still goes on."""
    tells = Hook(seam="on_message", fn=lambda c: Queue(UserMessage("a note")) if c.message.text == "go" else None, name="tells")
    async with agent_at(tmp_path / "whole.db", tells, recovery=patient()) as agent:
        whole = await agent.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    end = next(r.n for r in records if r.kind == "outcome")
    told = [msgspec.structs.replace(r, body=r.body.replace(b'"effects":[{', b'"others":[{')) for r in records[:end]]
    cut(told, {"R": None}, tmp_path / "other.db").close()
    async with agent_at(tmp_path / "other.db", tells, recovery=patient()) as agent:
        with pytest.raises(RunChanged, match="where the record has a user message there is now a assistant one"):
            await agent.resume("R")
    assert [r.kind for r in all_records(tmp_path / "other.db")[end:]] == ["resumed"]
    assert (await resumed(agent_at(cut_at(tmp_path / "whole.db", end), tells, recovery=patient()))).messages == whole.messages


@pytest.mark.parametrize("kind", ["turn", "compaction"])
async def test_what_a_hook_queued_beside_another_one_that_failed_is_said(tmp_path: Path, kind: str) -> None:
    """The run went on in spite of the failure: the turn was tried again, or there was no summary."""

    def tells(out: Any) -> Any:
        return Queue(UserMessage("a note")) if out.kind == kind and not failed else None

    def fails(out: Any) -> None:
        if out.kind == kind and not failed:
            failed.append(True)
            raise RuntimeError("broken")

    failed: list[bool] = []
    hooks = [Hook(seam="authorize_request", fn=fn, name=fn.__name__) for fn in (tells, fails)]
    options: dict[str, Any] = {"recovery": patient(), "limits": Limits(compact_at=60 if kind == "compaction" else None)}
    async with agent_at(tmp_path / "whole.db", *hooks, **options) as agent:
        whole = await agent.run([UserMessage("word " * 60), UserMessage("go")], run_id="R")
    assert [m.text for m in whole.messages].count("a note") == 1
    records = all_records(tmp_path / "whole.db")
    survived = "retried" if kind == "turn" else "note"
    for length in range(next(r.n for r in records if r.kind == survived), len(records)):
        assert (await resumed(agent_at(cut_at(tmp_path / "whole.db", length), *hooks, **options))).messages == whole.messages


# --- answers for calls, which wait for the hooks at 13 to be on record ---------------------------


@tool
async def pay(ctx: ToolContext) -> str:
    ctx.deps.append(ctx.idempotency_key)
    return "paid"


def payer(path: Path, *gates: Any) -> Agent:
    """What it answers for calls is put to a hook at 13 first."""

    def replies(request: Any) -> Any:
        return text("done") if any(m.role == "tool" for m in request.messages) else tool_call("pay", {}, id="c")

    model = FunctionModel(replies)
    hooks = [Hook(seam="before_tool_call", fn=gate, name=gate.__name__) for gate in gates]
    sees = Hook(seam="after_tool_call", fn=lambda outcome: None, name="sees")
    return Agent(model=model, tools=[pay], hooks=[*hooks, sees], journal=Journal(path, durability="normal"))


def mocks(call: Any) -> Any:
    return [Answer("as if paid"), Queue(UserMessage("a note"))]


def looks(call: Any) -> None:
    """Decides nothing."""


async def told(agent: Agent) -> tuple[list[str], list[str]]:
    """What the model is told when the run goes on, and what was paid meanwhile."""
    paid: list[str] = []
    async with agent:
        result = await agent.resume("R", deps=paid)
        assert (await agent.resume("R")).messages == result.messages
    return [m.text for m in result.messages[2:]], paid


@pytest.mark.parametrize("gates", [(), (looks,)])
async def test_a_call_that_a_hook_answered_does_not_run_when_the_hook_is_gone(tmp_path: Path, gates: Any) -> None:
    async with payer(tmp_path / "whole.db", mocks, looks) as whole:
        await whole.run("go", run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("seam") == "before_tool_call")
    said, paid = await told(payer(path, *gates))
    assert said[0].startswith("Not run: hook 'mocks' had answered for this call, what it gave is not on record")
    assert paid == []


@pytest.mark.parametrize("refusal", [Block("no"), Interrupt("no", resend=True), Steer("elsewhere")])
async def test_an_answer_that_is_not_on_record_does_not_hide_a_refusal_beside_it(tmp_path: Path, refusal: Any) -> None:
    def refuses(call: Any) -> Any:
        return refusal

    async with payer(tmp_path / "whole.db", mocks, refuses) as whole:
        was = await whole.run("go", run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("seam") == "before_tool_call")
    assert await told(payer(path, looks)) == ([m.text for m in was.messages[2:]], [])


async def test_a_question_beside_an_answer_that_is_not_on_record_is_not_lost_with_the_hook_that_asked(tmp_path: Path) -> None:
    """All are asked again, and the one who answered says nothing by now: then nobody would have let it pass."""

    def asks(call: Any) -> Any:
        return Ask("May it?")

    def passes(call: Any) -> None:
        """What `mocks` says by now."""

    passes.__name__ = "mocks"
    async with payer(tmp_path / "whole.db", mocks, asks) as whole:
        await whole.run("go", run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("seam") == "before_tool_call")
    said, paid = await told(payer(path, passes))
    assert said[0].startswith("Not run: hook 'asks' had asked a person about this call, an answer beside that is not on record")
    assert paid == []


async def test_what_a_hook_says_once_its_answer_was_lost_is_all_that_counts(tmp_path: Path) -> None:
    def passes(call: Any) -> None:
        """What `mocks` says by now."""

    passes.__name__ = "mocks"
    async with payer(tmp_path / "whole.db", mocks) as whole:
        await whole.run("go", run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("seam") == "before_tool_call")
    began = len(all_records(path))
    assert await told(payer(path, passes)) == (["paid", "done"], ["R:c"])
    records = all_records(path)
    for length in range(next(r.n for r in records[began:] if r.kind == "outcome"), len(records)):
        assert await told(payer(cut_at(path, length), passes)) == (["paid", "done"], [])


# --- somebody has the prompt still ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("seam", "refusal"), [("before_run", Block("no")), ("before_turn", End("no")), ("on_message", Interrupt("no"))]
)
async def test_what_hooks_had_refused_stands_for_whoever_tells_the_prompt_again(
    tmp_path: Path, seam: Any, refusal: Any
) -> None:  # fmt: skip
    """A worker does, and the caller of a sub-agent: what hooks at 1 had made of it is not on record."""
    asked: list[str] = []

    def shapes(start: Any) -> Any:
        asked.append("before_run")
        return Replace(messages=[UserMessage("another")])

    def refuses(context: Any) -> Any:
        asked.append(seam)
        return refusal

    def agent(path: Path) -> Agent:
        looks = Hook(seam="on_message", fn=lambda incoming: None, name="looks")
        hooks = [Hook(seam="before_run", fn=shapes, name="shapes"), Hook(seam=seam, fn=refuses, name="refuses"), looks]
        return Agent(model=FunctionModel(after_calls), hooks=hooks, journal=Journal(path, durability="normal"))

    async with agent(tmp_path / "whole.db") as first:
        whole = await first.run("go", run_id="R")
    path = cut_at(tmp_path / "whole.db", len(all_records(tmp_path / "whole.db")) - 1)
    asked.clear()
    async with agent(path) as again:
        result = await again.conversation().resume_recorded("R", prompts=[UserMessage("go")])
    assert (result.stop_reason, result.messages, asked) == (whole.stop_reason, whole.messages, [])


async def test_what_an_aborted_run_put_into_its_history_last_stands_once(tmp_path: Path) -> None:
    """No request took what a hook had queued. The process ends before the run is over on record."""

    def tells(call: Any) -> Any:
        return Queue(UserMessage("by the way")) if call.call_id == "c1" else None

    def brake(turn: Any) -> None:
        if braking:
            talk.abort("enough")

    braking = [True]
    hooks = [Hook(seam="before_tool_call", fn=tells, name="tells"), Hook(seam="after_turn", fn=brake, name="brake")]
    hooks.append(Hook(seam="on_message", fn=lambda incoming: None, name="reads"))
    async with agent_at(tmp_path / "whole.db", *hooks) as agent:
        talk = agent.conversation()
        assert (await talk.run("go", run_id="R")).stop_reason == "aborted"
    path = cut_after(tmp_path / "whole.db", lambda r: r.data.get("content") == "by the way")
    braking.clear()
    length = len(all_records(path))
    result = await resumed(agent_at(path, *hooks))
    assert [m.text for m in result.messages] == ["go", "", "saw 1", "saw 2", "by the way", "done"]
    for record in all_records(path)[length:-1]:
        assert (await resumed(agent_at(cut_at(path, record.n), *hooks))).messages == result.messages, record.n


async def test_what_a_turn_takes_in_is_said_though_the_queues_were_cleared_meanwhile(tmp_path: Path) -> None:
    """An attempt has it, and a hook at 10 judges it when the queues are cleared and the process ends."""
    broken = [True]

    def judges(incoming: Any) -> None:
        if incoming.message.origin != "follow_up":
            return
        if broken:
            broken.clear()
            raise OSError("not there")
        talk.clear_queues()

    hooks = [Hook(seam="on_message", fn=judges, name="judges")]
    async with agent_at(tmp_path / "whole.db", *hooks, recovery=patient()) as agent:
        talk = agent.conversation()
        talk.follow_up("and this")
        whole = await talk.run("go", run_id="R")
    assert [m.text for m in whole.messages].count("and this") == 1
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "cleared")
    while (length := len(all_records(path))) < len(all_records(tmp_path / "whole.db")):
        async with agent_at(path, *hooks, recovery=patient()) as again:
            talk = again.conversation()
            assert (await talk.resume_recorded("R")).messages == whole.messages, length
        path = cut_at(tmp_path / "whole.db", length + 1)


async def test_a_turn_that_was_interrupted_over_its_prompt_does_not_take_what_came_after_it(tmp_path: Path) -> None:
    def guard(incoming: Any) -> Any:
        return Interrupt("not that", resend=True) if incoming.message.text == "second" else None

    def more(turn: Any) -> None:
        if turn.number == 1:
            talk.steer("and this")

    hooks = [Hook(seam="on_message", fn=guard, name="guard"), Hook(seam="finish_turn", fn=more, name="more")]
    async with agent_at(tmp_path / "whole.db", *hooks) as agent:
        talk = agent.conversation()
        whole = await talk.run([UserMessage("go"), UserMessage("second")], run_id="R")
    assert [m.text for m in whole.messages] == ["go", "and this", "", "saw 1", "saw 2", "done"]
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "reply")
    length = len(all_records(path))
    assert (await resumed(agent_at(path, *hooks))).messages == whole.messages
    for record in all_records(path)[length:-1]:
        assert (await resumed(agent_at(cut_at(path, record.n), *hooks))).messages == whole.messages, record.n


async def test_what_a_hook_at_1_made_of_the_prompts_stands_when_the_hook_is_gone(tmp_path: Path) -> None:
    shapes = Hook(seam="before_run", fn=lambda start: Replace(messages=[UserMessage("one prompt")]), name="shapes")
    async with agent_at(tmp_path / "whole.db", shapes) as agent:
        talk = agent.conversation()
        talk.steer("and this")
        whole = await talk.run([UserMessage("go"), UserMessage("now")], run_id="R")
    assert [m.text for m in whole.messages][:2] == ["one prompt", "and this"]
    for record in all_records(tmp_path / "whole.db")[1:-1]:
        assert (await resumed(agent_at(cut_at(tmp_path / "whole.db", record.n)))).messages == whole.messages, record.n


async def test_nobody_is_asked_for_the_key_of_a_request_that_is_past(tmp_path: Path) -> None:
    """One for a summary was refused, and dynamic instructions stand between it and the request that left then."""
    asked: list[int] = []

    def shut(out: Any) -> Any:
        return Block("no summaries") if out.kind == "compaction" else None

    def key(wanted: Any) -> Any:
        asked.append(wanted.run.turn)
        return Replace(key=KEY)

    hooks = [Hook(seam="get_api_key", fn=key, name="key"), Hook(seam="authorize_request", fn=shut, name="shut")]
    options: dict[str, Any] = {"limits": Limits(compact_at=60), "instructions": ["Be brief.", lambda run: f"turn {run.turn}"]}
    async with agent_at(tmp_path / "whole.db", *hooks, **options) as agent:
        await agent.run([UserMessage("word " * 60), UserMessage("go")], run_id="R")
    assert asked == [1, 1, 2, 2]
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "turn" and r.data["number"] == 2)
    asked.clear()
    assert (await resumed(agent_at(path, *hooks, **options))).text == "done"
    assert asked == [2, 2]


async def test_nobody_is_asked_for_the_key_of_a_summary_that_a_hook_gave(tmp_path: Path) -> None:
    asked: list[int] = []

    def key(wanted: Any) -> None:
        asked.append(wanted.run.turn)
        if broken:
            raise RuntimeError("broken")

    def gives(out: Any) -> Any:
        return Answer("short") if out.kind == "compaction" else None

    broken = False
    hooks = [
        Hook(seam="get_api_key", fn=key, name="key", on_error="abort"), Hook(seam="authorize_request", fn=gives, name="gives"),
    ]  # fmt: skip
    options: dict[str, Any] = {"limits": Limits(compact_at=60), "instructions": ["Be brief.", lambda run: f"turn {run.turn}"]}
    async with agent_at(tmp_path / "whole.db", *hooks, **options) as agent:
        whole = await agent.run([UserMessage("word " * 60), UserMessage("go")], run_id="R")
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "instructions")
    asked.clear()
    broken = True
    async with agent_at(path, *hooks, **options) as agent:
        assert (await agent.resume("R", check=False)).error is not None
    assert asked == [1], "the request that is to leave"
    broken = False
    assert (await resumed(agent_at(path, *hooks, **options))).text == whole.text


async def test_nobody_is_asked_for_the_key_of_a_request_that_never_left(tmp_path: Path) -> None:
    """A hook at 8 failed about it, and the turn was tried again."""
    asked: list[int] = []

    def key(wanted: Any) -> Any:
        asked.append(wanted.run.turn)
        return Replace(key=KEY)

    def fails(out: Any) -> None:
        if out.run.turn == 1:
            raise RuntimeError("broken")

    hooks = [Hook(seam="get_api_key", fn=key, name="key"), Hook(seam="authorize_request", fn=fails, name="fails")]
    async with agent_at(tmp_path / "whole.db", *hooks, recovery=patient()) as agent:
        whole = await agent.run("go", run_id="R")
    assert asked == [1, 2, 3]
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "retried")
    asked.clear()
    assert (await resumed(agent_at(path, *hooks, recovery=patient()))).messages == whole.messages
    assert asked == [2, 3]


@pytest.mark.parametrize(("about_it", "seam"), [(Interrupt("not that", resend=True), "finish_turn"), (None, "authorize_request")])
async def test_a_turn_that_has_what_a_hook_queued_does_not_take_what_came_after_it(
    tmp_path: Path, about_it: Interrupt | None, seam: str
) -> None:
    """What hooks at 10 said of the one message is not taken for what they say of the other."""
    asked: list[str] = []

    def guard(incoming: Any) -> Any:
        asked.append(incoming.message.text)
        return {"go": Queue("a note"), "a note": about_it}.get(incoming.message.text)

    def more(context: Any) -> None:
        if not said:
            said.append("and this")
            talk.steer("and this")

    said: list[str] = []
    hooks = [Hook(seam="on_message", fn=guard, name="guard"), Hook(seam=seam, fn=more, name="more")]  # type: ignore[arg-type]
    async with agent_at(tmp_path / "whole.db", *hooks) as agent:
        talk = agent.conversation()
        whole = await talk.run("go", run_id="R")
    assert "and this" in [m.text for m in whole.messages]
    path = cut_after(tmp_path / "whole.db", lambda r: r.kind == "queued" and r.data["message"].get("content") == "and this")
    length = len(all_records(path))
    asked.clear()
    assert (await resumed(agent_at(path, *hooks))).messages == whole.messages
    assert "and this" in asked
    for record in all_records(tmp_path / "whole.db")[length:-1]:
        assert (await resumed(agent_at(cut_at(tmp_path / "whole.db", record.n), *hooks))).messages == whole.messages, record.n
