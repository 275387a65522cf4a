"""What a resumed run finds again, and what it does about calls whose outcome nobody knows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent, Approve, Ask, Block, CustomMessage, Hook, HookFailed, Limits, Queue, Replace, RunResult, ToolContext, ToolResult,
    UserMessage, tool,
)  # fmt: skip
from beforehand.errors import ConfigError, JournalError, NetworkError, RunChanged, UnknownRun
from beforehand.journal import Journal, Record, verify
from beforehand.journal.steps import steps
from beforehand.testing import FunctionModel, ScriptedModel, error, text, tool_call

from journal.cutting import all_records, cut, parents


def journal(path: Path) -> Journal:
    return Journal(path, durability="normal")


def after_call(request: Any) -> Any:
    return text("done") if request.messages[-1].role == "tool" else tool_call("work", {"n": 1}, id="c")


def worker(path: Path, keys: list[str], replay: Any = "never", **options: Any) -> Agent:
    @tool(replay=replay)
    async def work(ctx: ToolContext, n: int) -> str:
        keys.append(ctx.idempotency_key)
        return f"worked {n}"

    return Agent(model=FunctionModel(after_call), tools=[work], journal=journal(path), **options)


async def killed_in_the_tool(folder: Path, **options: Any) -> tuple[Path, str]:
    """A journal that ends with an intent; the idempotency key of that call."""
    keys: list[str] = []
    agent = worker(folder / "whole.db", keys, **options)
    await agent.run("go", run_id="R")
    await agent.aclose()
    records = all_records(folder / "whole.db")
    end = next(r.n for r in records if r.kind == "intent")
    cut(records[:end], {"R": None}, folder / "cut.db").close()
    return folder / "cut.db", keys[0]


def tool_messages(result: RunResult) -> list[Any]:
    return [m for m in result.messages if m.role == "tool"]


# --- F61 and replay -------------------------------------------------------------------------------


async def test_f61_a_call_cut_by_the_end_of_its_process_is_not_run_again_and_the_model_is_told_so(tmp_path: Path) -> None:
    path, _ = await killed_in_the_tool(tmp_path)
    keys: list[str] = []
    agent = worker(path, keys)
    result = await agent.resume("R")
    (message,) = tool_messages(result)
    assert (keys, message.is_error, message.outcome) == ([], True, "uncertain")
    assert "Whether it took effect is not known" in message.text
    for blame in ("user", "cancel", "success"):
        assert blame not in message.text.lower()
    assert result.text == "done"
    assert [d.verdict for d in result.decisions] == ["Uncertain"]
    again = await agent.resume("R")
    assert list(again.messages) == list(result.messages)
    assert keys == []


async def test_a_safe_call_runs_again_with_the_same_id_and_key(tmp_path: Path) -> None:
    path, key = await killed_in_the_tool(tmp_path, replay="safe")
    keys: list[str] = []
    result = await worker(path, keys, replay="safe").resume("R")
    assert keys == [key]
    assert tool_messages(result)[0].text == "worked 1"
    intents = [r.data for r in all_records(path) if r.kind == "intent"]
    assert [(i["call"], i["key"], i["by"]) for i in intents] == [("c", key, "tool")] * 2


@pytest.mark.parametrize("hooks", [[], [Hook(seam="before_tool_call", fn=lambda call: None, name="gate")]])
async def test_a_safe_call_runs_again_whose_arguments_the_tool_completes(tmp_path: Path, hooks: list[Hook]) -> None:
    """Whoever looked at them then or looks now: an agent without hooks decodes them in the body alone."""
    ran: list[Any] = []

    @tool(replay="safe")
    async def work(n: int, unit: str = "km") -> str:
        ran.append((n, unit))
        return "worked"

    def reply(request: Any) -> Any:
        return text("done") if request.messages[-1].role == "tool" else tool_call("work", {"n": "1"}, id="c")

    agent = Agent(model=FunctionModel(reply), tools=[work])
    first = agent.replace(journal=journal(tmp_path / "whole.db"))
    await first.run("go", run_id="R")
    await first.aclose()
    records = all_records(tmp_path / "whole.db")
    (begun,) = [r for r in records if r.kind == "intent"]
    assert begun.data["args"] == {"n": 1, "unit": "km"}
    cut(records[: begun.n], {"R": None}, tmp_path / "cut.db").close()
    async with agent.replace(journal=journal(tmp_path / "cut.db"), hooks=hooks) as second:
        result = await second.resume("R")
    assert (ran, [m.text for m in tool_messages(result)]) == ([(1, "km")] * 2, ["worked"])


async def test_a_tool_that_was_safe_then_and_is_not_now_does_not_run_again(tmp_path: Path) -> None:
    path, _ = await killed_in_the_tool(tmp_path, replay="safe")
    keys: list[str] = []
    await worker(path, keys, replay="never").resume("R")
    assert keys == []


@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call", "after_tool_call"])
async def test_no_hook_can_make_a_call_that_may_not_be_repeated_run_again(tmp_path: Path, seam: str) -> None:
    path, _ = await killed_in_the_tool(tmp_path)
    keys: list[str] = []
    what = {"prepare_tool_call": Replace(args={"n": 2}), "after_tool_call": Replace(content="it did work", is_error=False)}.get(
        seam
    )
    agent = worker(path, keys, hooks=[Hook(seam=seam, fn=lambda c: what, name="new")])
    result = await agent.resume("R")
    assert keys == []
    assert tool_messages(result)[0].outcome == "uncertain"


async def test_a_call_that_a_person_has_settled_gets_that_result(tmp_path: Path) -> None:
    path, _ = await killed_in_the_tool(tmp_path)
    store = journal(path)
    store.append(store.head("R"), [("settled", 1, json.dumps({"call": "c", "result": {"content": "it did"}}).encode())])
    store.close()
    keys: list[str] = []
    result = await worker(path, keys).resume("R")
    assert (keys, tool_messages(result)[0].text) == ([], "it did")


async def test_a_repeated_tool_that_makes_other_calls_gets_none_of_the_recorded_results(tmp_path: Path) -> None:
    """A body that is not the same twice: its first call was `pay`, and is `look` when it runs again."""
    did: list[str] = []

    def agent(path: Path, first: str) -> Agent:
        @tool
        async def pay(n: int) -> str:
            did.append("pay")
            return "paid"

        @tool
        async def look(n: int) -> str:
            did.append("look")
            return "seen"

        @tool(replay="safe")
        async def work(ctx: ToolContext, n: int) -> str:
            return (await ctx.call_tool(first, {"n": n})).text

        return Agent(model=FunctionModel(after_call), tools=[pay, look, work], journal=journal(path))

    first = agent(tmp_path / "whole.db", "pay")
    await first.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    end = next(r.n for r in records if r.kind == "outcome")
    cut(records[:end], {"R": None}, tmp_path / "cut.db").close()
    result = await agent(tmp_path / "cut.db", "look").resume("R")
    assert did == ["pay"]
    assert "is not the one that is on record in its place, which was pay" in tool_messages(result)[0].text


# --- calls cut short whose tool is another one now -------------------------------------------------


def today(what: str, keys: list[str], replay: Any = "never") -> list[Any]:
    """What has become of `work(n: int)` by the time the run goes on."""

    async def gone_on(ctx: ToolContext, **given: Any) -> str:
        keys.append(ctx.idempotency_key)
        return "worked again"

    async def more(ctx: ToolContext, n: int, to: str) -> str:
        return await gone_on(ctx)

    async def default(ctx: ToolContext, n: int, currency: str = "EUR") -> str:
        return await gone_on(ctx)

    async def other_type(ctx: ToolContext, n: str) -> str:
        return await gone_on(ctx)

    async def same(ctx: ToolContext, n: int) -> str:
        return await gone_on(ctx)

    if what == "gone":
        return []
    body = {"renamed": same, "more": more, "default": default, "other type": other_type}[what]
    return [tool(name="work2" if what == "renamed" else "work", description="Works.", replay=replay)(body)]


CHANGES = ["gone", "renamed", "more", "default", "other type"]


@pytest.mark.parametrize("replay", ["never", "safe"])
@pytest.mark.parametrize("what", CHANGES)
async def test_a_call_that_had_begun_is_told_as_uncertain_whatever_has_become_of_its_tool(
    tmp_path: Path, what: str, replay: Any
) -> None:
    path, _ = await killed_in_the_tool(tmp_path, replay=replay)
    keys: list[str] = []
    agent = Agent(model=FunctionModel(after_call), tools=today(what, keys, replay), journal=journal(path))
    result = await agent.resume("R")
    (message,) = tool_messages(result)
    assert (keys, message.outcome, message.is_error) == ([], "uncertain", True)
    assert "Whether it took effect is not known" in message.text
    assert "work2" not in message.text
    assert [d.verdict for d in result.decisions] == ["Uncertain"]
    assert verify(agent.plan.journal) == []


def settled(path: Path, content: str) -> None:
    store = journal(path)
    store.append(store.head("R"), [("settled", 1, json.dumps({"call": "c", "result": {"content": content}}).encode())])
    store.close()


@pytest.mark.parametrize("replay", ["never", "safe"])
@pytest.mark.parametrize("what", CHANGES)
async def test_what_a_person_has_said_of_a_call_counts_whatever_has_become_of_its_tool(
    tmp_path: Path, what: str, replay: Any
) -> None:
    path, _ = await killed_in_the_tool(tmp_path, replay=replay)
    settled(path, "it did, receipt 7")
    keys: list[str] = []
    agent = Agent(model=FunctionModel(after_call), tools=today(what, keys, replay), journal=journal(path))
    (message,) = tool_messages(await agent.resume("R"))
    assert (keys, message.outcome, message.text) == ([], "ran", "it did, receipt 7")


@pytest.mark.parametrize("what", ["gone", "more"])
async def test_hooks_see_the_result_of_a_settled_call_whose_tool_is_gone(tmp_path: Path, what: str) -> None:
    path, _ = await killed_in_the_tool(tmp_path)
    settled(path, "it did, secret 7")
    seen: list[Any] = []

    def hide(outcome: Any) -> Replace:
        seen.append((outcome.name, dict(outcome.args), outcome.call_id, outcome.outcome, outcome.text))
        return Replace(content="it did, ****")

    hooks = [Hook(seam="after_tool_call", fn=hide, tools=["work"], name="hide")]
    agent = Agent(model=FunctionModel(after_call), tools=today(what, []), journal=journal(path), hooks=hooks)
    assert tool_messages(await agent.resume("R"))[0].text == "it did, ****"
    assert seen == [("work", {"n": 1}, "c", "ran", "it did, secret 7")]


@pytest.mark.parametrize("what", CHANGES)
async def test_a_call_that_is_over_has_its_recorded_result_whatever_has_become_of_its_tool(tmp_path: Path, what: str) -> None:
    path = await interrupted(tmp_path, [], "outcome")
    keys: list[str] = []
    agent = Agent(model=FunctionModel(after_call), tools=today(what, keys), journal=journal(path))
    (message,) = tool_messages(await agent.resume("R"))
    assert (keys, message.outcome, message.text) == ([], "ran", "worked 1")


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("said", [None, "it did"])
async def test_a_call_inside_a_repeated_tool_is_told_as_uncertain_or_settled_too(
    tmp_path: Path, what: str, said: str | None
) -> None:
    def agent(path: Path, tools: list[Any]) -> Agent:
        @tool(replay="safe")
        async def outer(ctx: ToolContext) -> str:
            return (await ctx.call_tool("work", {"n": 1})).text

        model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else tool_call("outer", id="o"))
        return Agent(model=model, tools=[outer, *tools], journal=journal(path))

    whole = agent(tmp_path / "whole.db", worker(tmp_path / "unused.db", []).plan.tools)
    await whole.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    end = next(r.n for r in records if r.kind == "intent" and r.data["call"] == "o/1")
    store = cut(records[:end], {"R": None}, tmp_path / "cut.db")
    if said is not None:
        body = json.dumps({"call": "o/1", "result": {"content": said}}).encode()
        store.append(store.head("R"), [("settled", 1, body)])
    store.close()
    keys: list[str] = []
    (message,) = tool_messages(await agent(tmp_path / "cut.db", today(what, keys)).resume("R"))
    assert keys == []
    assert message.text == said or (said is None and "Whether it took effect is not known" in message.text)


async def test_nobody_is_asked_again_about_a_call_that_had_begun_though_its_tool_takes_more_now(tmp_path: Path) -> None:
    asked: list[Any] = []

    def approve(pending: Any) -> Approve:
        asked.append(dict(pending.args))
        return Approve()

    hooks = [Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"), name="ask")]
    path, _ = await killed_in_the_tool(tmp_path, replay="safe", hooks=hooks, on_ask=approve)
    asked.clear()
    keys: list[str] = []
    agent = Agent(
        model=FunctionModel(after_call), tools=today("default", keys, "safe"), journal=journal(path), hooks=hooks, on_ask=approve
    )
    (message,) = tool_messages(await agent.resume("R"))
    assert (asked, keys, message.outcome) == ([], [], "uncertain")


async def test_an_abort_does_not_hide_that_a_call_had_begun(tmp_path: Path) -> None:
    """Two calls were running when the process ended; the run is aborted as soon as it says so of the first."""

    def agent(path: Path, keys: list[str], **options: Any) -> Agent:
        @tool
        async def pay(ctx: ToolContext) -> str:
            keys.append(ctx.idempotency_key)
            for _ in range(3):
                await asyncio.sleep(0)
            return "paid"

        @tool(replay="safe")
        async def look(ctx: ToolContext) -> str:
            keys.append(ctx.idempotency_key)
            return "seen"

        def reply(request: Any) -> Any:
            done = request.messages[-1].role == "tool"
            return text("done") if done else [tool_call("pay", id="p"), tool_call("look", id="l")]

        return Agent(model=FunctionModel(reply), tools=[pay, look], journal=journal(path), **options)

    await agent(tmp_path / "whole.db", []).run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    begun = [r.n for r in records if r.kind == "intent"]
    assert not [r for r in records[: begun[1]] if r.kind == "outcome"]
    cut(records[: begun[1]], {"R": None}, tmp_path / "cut.db").close()
    keys: list[str] = []
    abort = Hook(seam="after_tool_call", fn=lambda o: talk.abort("enough"), tools=["pay"], name="abort")
    talk = agent(tmp_path / "cut.db", keys, hooks=[abort]).conversation()
    result = await talk.resume_recorded("R", check=False)
    assert (keys, result.stop_reason) == ([], "aborted")
    assert "Whether it took effect is not known" in {m.tool_call_id: m.text for m in tool_messages(result)}["l"]


@pytest.mark.parametrize("said", [None, "it did"])
async def test_a_tool_that_may_be_repeated_now_and_might_not_then_does_not_run_again(tmp_path: Path, said: str | None) -> None:
    path, _ = await killed_in_the_tool(tmp_path, replay="never")
    if said is not None:
        settled(path, said)
    keys: list[str] = []
    result = await worker(path, keys, replay="safe").resume("R")
    assert keys == []
    assert tool_messages(result)[0].outcome == ("uncertain" if said is None else "ran")
    told = [d.reason for d in result.decisions if d.verdict == "Uncertain"]
    assert said or "it began as one that may not be run twice" in str(told)
    begins = [step.data for step in steps(journal(path).records("R")) if step.kind == "begins"]
    assert [(b["replay"], b["by"]) for b in begins] == [("never", "tool")]


# --- what has changed since -----------------------------------------------------------------------


async def interrupted(folder: Path, hooks: list[Hook], kind: str, **options: Any) -> Path:
    """A journal that ends with the first record of this kind."""
    agent = worker(folder / "whole.db", [], hooks=hooks, **options)
    await agent.run("go", run_id="R", check=False)
    records = all_records(folder / "whole.db")
    cut(records[: next(r.n for r in records if r.kind == kind)], {"R": None}, folder / "cut.db").close()
    return folder / "cut.db"


async def test_what_a_hook_that_is_gone_now_has_blocked_stays_blocked(tmp_path: Path) -> None:
    block = Hook(seam="before_tool_call", fn=lambda c: Block("never on a Friday"), name="fridays")
    agent = worker(tmp_path / "whole.db", [], hooks=[block])
    await agent.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    end = next(r.n for r in records if r.kind == "ruling" and r.data["seam"] == "before_tool_call")
    cut(records[:end], {"R": None}, tmp_path / "cut.db").close()
    keys: list[str] = []
    result = await worker(tmp_path / "cut.db", keys).resume("R")
    assert (keys, tool_messages(result)[0].text) == ([], "never on a Friday")


async def test_what_a_hook_that_is_gone_now_took_out_of_a_message_stays_out(tmp_path: Path) -> None:
    redact = Hook(
        seam="on_message", name="redact",
        fn=lambda c: Replace(message=UserMessage("my card is ****")) if c.message.role == "user" else None,
    )  # fmt: skip
    path = await interrupted(tmp_path, [redact], "request")
    agent = worker(path, [])
    result = await agent.resume("R")
    assert result.messages[0].text == "my card is ****"
    assert agent.plan.model.requests[0].messages[0].text == "my card is ****"


async def test_changes_are_named_and_strict_refuses_them_all(tmp_path: Path) -> None:
    path = await interrupted(tmp_path, [], "request")
    new = Hook(seam="on_message", fn=lambda c: None, name="new")

    @tool
    async def work(ctx: ToolContext, n: int) -> str:
        """Another body."""
        return "else"

    @tool
    async def more() -> str:
        return ""

    agent = Agent(model=FunctionModel(after_call), tools=[work, more], hooks=[new], journal=journal(path))
    with pytest.raises(RunChanged, match="tool more is new; tool work has changed; hook new at on_message is new"):
        await agent.resume("R", strict=True)
    assert (await agent.resume("R")).text == "done"
    (resumed,) = [r.data for r in all_records(path) if r.kind == "resumed"]
    assert resumed["changed"] == ["tool more is new", "tool work has changed", "hook new at on_message is new"]


async def test_a_hook_that_gave_what_no_record_can_hold_is_asked_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def route(plan: Any) -> Any:
        asked.append("route")
        return Replace(model=FunctionModel(lambda r: text("from another model"), name="other"))

    hooks = [Hook(seam="prepare_request", fn=route, name="route")]
    path = await interrupted(tmp_path, hooks, "request")
    asked.clear()
    agent = worker(path, [], hooks=hooks)
    assert (await agent.resume("R")).text == "from another model"
    assert asked == ["route"]
    assert agent.plan.model.requests == []


# --- counters of rules ----------------------------------------------------------------------------


ONCE_A_TURN = [
    "before_turn", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "authorize_request",
]  # fmt: skip


@pytest.mark.parametrize("seam", ["before_run", "prepare_next_turn", *ONCE_A_TURN])
async def test_a_hook_that_answers_when_it_is_asked_again_is_not_asked_a_third_time(tmp_path: Path, seam: str) -> None:
    """However often the run fails for other reasons after that."""
    asked: list[int] = []
    down = [True, True, False]

    def fails_once(context: Any) -> None:
        asked.append(context.run.turn)
        if len(asked) == 1:
            raise RuntimeError("broken")

    def answer(request: Any) -> Any:
        if any(m.role == "tool" for m in request.messages):
            if down.pop(0):
                raise NetworkError("the line is down")
            return text("done")
        return tool_call("work", {"n": 1}, id="c1")

    hooks = [Hook(seam=seam, fn=fails_once, name="fails once")]
    agent = worker(tmp_path / "r.db", [], hooks=hooks).replace(model=FunctionModel(answer))
    agent = agent.replace(journal=Journal(tmp_path / "r.db", durability="normal", raw=True))
    assert isinstance((await agent.run("go", run_id="R", check=False)).error, HookFailed)
    for _ in range(2):
        assert isinstance((await agent.resume("R", check=False)).error, NetworkError)
    assert (await agent.resume("R")).text == "done"
    assert len(asked) == (3 if seam in ONCE_A_TURN else 2)
    await agent.aclose()


async def test_rules_that_have_fired_often_enough_do_not_fire_again_after_a_resume(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    rule = {
        "target": "chat", "label": "twice", "roles": ["tool"], "regex": "worked", "maxTriggers": 2,
        "actions": [{"type": "queue-message", "role": "user", "message": "remember"}],
    }  # fmt: skip
    (tmp_path / "rules" / "a.json").write_text(json.dumps([rule]))

    def four_times(request: Any) -> Any:
        n = sum(m.role == "tool" for m in request.messages)
        return text("done") if n == 4 else tool_call("work", {"n": n}, id=f"c{n}")

    def agent(path: Path) -> Agent:
        return worker(path, [], hooks=[tmp_path / "rules"]).replace(model=FunctionModel(four_times))

    def remembered(result: RunResult) -> int:
        return sum(m.text == "remember" for m in result.messages)

    assert remembered(await agent(tmp_path / "whole.db").run("go", run_id="R")) == 2
    records = all_records(tmp_path / "whole.db")
    judged = next(i for i, r in enumerate(records) if r.kind == "message")
    for end in [i for i, r in enumerate(records) if r.kind in ("request", "reply", "turn", "outcome") and i > judged]:
        cut(records[: end + 1], {"R": None}, tmp_path / f"{end}.db").close()
        again = agent(tmp_path / f"{end}.db")
        result = await again.resume("R")
        uncertain = sum(m.outcome == "uncertain" for m in tool_messages(result))
        assert remembered(result) == 2
        assert uncertain == 0
        assert [rule["firings"] for rule in again.get_json_hooks()] == [2]


# --- the conversation around it -------------------------------------------------------------------


async def test_the_runs_of_a_conversation_are_resumed_with_what_came_before_them(tmp_path: Path) -> None:
    def counting(request: Any) -> Any:
        return text(f"{sum(m.role == 'user' for m in request.messages)} prompts")

    agent = Agent(model=FunctionModel(counting), journal=journal(tmp_path / "whole.db"))
    talk = agent.conversation([UserMessage("before all"), CustomMessage("memo", "m")])
    for n in range(3):
        await talk.run(f"prompt {n}", run_id=f"R{n}")
    whole = list(talk.messages)
    records = all_records(tmp_path / "whole.db")
    last = next(i for i, r in enumerate(records) if r.run_id == "R2" and r.kind == "request")
    cut(records[: last + 1], parents(tmp_path / "whole.db"), tmp_path / "cut.db").close()
    again = agent.replace(journal=journal(tmp_path / "cut.db")).conversation()
    assert (await again.resume_recorded("R2")).text == "4 prompts"
    assert list(again.messages) == whole
    assert (await again.run("and on", run_id="R3")).text == "5 prompts"


async def test_a_compacted_conversation_is_recorded_as_it_is_now(tmp_path: Path) -> None:
    model = FunctionModel(lambda r: text("the summary" if "Summarise" in r.system else f"{len(r.messages)} messages"))
    agent = Agent(model=model, journal=journal(tmp_path / "runs.db"))
    talk = agent.conversation()
    await talk.run("one", run_id="R0")
    await talk.compact(keep=1)  # one message is replaced by one
    await talk.run("two", run_id="R1")
    again = agent.conversation()
    await again.resume_recorded("R1")
    assert [m.text for m in again.messages] == [m.text for m in talk.messages]
    assert "the summary" in again.messages[0].text


async def test_what_is_said_while_a_run_goes_over_its_past_comes_after_it(tmp_path: Path) -> None:
    path, _ = await killed_in_the_tool(tmp_path, replay="safe")
    talk = worker(path, [], replay="safe").conversation()
    talk.steer("and be quick")
    result = await talk.resume_recorded("R")
    assert [m.text for m in result.messages][:4] == ["go", "", "worked 1", "and be quick"]
    assert verify(talk.plan.journal) == []


async def test_a_listener_hears_a_resumed_run_from_where_its_record_ends(tmp_path: Path) -> None:
    path, _ = await killed_in_the_tool(tmp_path, replay="safe")
    told = [event.type async for event in worker(path, [], replay="safe").stream_resume("R")]
    assert told[0] == "agent_start"
    assert told[-1] == "agent_end"
    assert told.count("tool_execution_end") == 1
    assert "turn_start" in told, "of the second turn"
    assert told.count("turn_start") == 1


@pytest.mark.parametrize("ends_with", ["reply", "intent"])
async def test_the_first_tool_of_a_run_that_goes_on_is_heard_of_while_it_runs(tmp_path: Path, ends_with: str) -> None:
    heard = asyncio.Event()

    def make(path: Path) -> Agent:
        @tool(replay="safe")
        async def work(ctx: ToolContext, n: int) -> str:
            ctx.update("half")
            await heard.wait()
            return f"worked {n}"

        return Agent(model=FunctionModel(after_call), tools=[work], journal=journal(path))

    heard.set()
    await make(tmp_path / "whole.db").run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    cut(records[: next(r.n for r in records if r.kind == ends_with)], {"R": None}, tmp_path / "cut.db").close()
    heard.clear()
    talk = make(tmp_path / "cut.db").conversation()
    talk.on("tool_execution_update", lambda event: heard.set())
    assert (await talk.resume_recorded("R")).text == "done"


async def test_a_run_whose_record_only_lacks_its_end_still_tells_its_listeners_that_it_ended(tmp_path: Path) -> None:
    await worker(tmp_path / "whole.db", []).run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    cut(records[:-1], {"R": None}, tmp_path / "cut.db").close()
    keys: list[str] = []
    told = [event.type async for event in worker(tmp_path / "cut.db", keys).stream_resume("R")]
    assert told == ["agent_start", "agent_end"]
    assert keys == []


async def test_a_run_that_ended_in_an_error_tries_again_only_what_failed(tmp_path: Path) -> None:
    down = True

    def reply(request: Any) -> Any:
        if request.messages[-1].role != "tool":
            return tool_call("work", {"n": 1}, id="c")
        return [text("half of"), error("down")] if down else text("done")

    keys: list[str] = []
    agent = worker(tmp_path / "runs.db", keys).replace(model=FunctionModel(reply))
    for _ in range(3):
        result = await (agent.run("go", run_id="R", check=False) if not keys else agent.resume("R", check=False))
        assert result.stop_reason == "error"
        assert len(result.messages) == 4
    down = False
    result = await agent.resume("R")
    assert (result.text, len(keys), len(result.messages)) == ("done", 1, 4)
    assert verify(agent.plan.journal) == []


async def test_a_hook_that_failed_is_asked_again_and_the_rest_is_not(tmp_path: Path) -> None:
    broken = True
    asked: list[int] = []

    def finish(turn: Any) -> None:
        asked.append(turn.number)
        if broken and turn.number == 2:
            raise RuntimeError("no")

    keys: list[str] = []
    agent = worker(tmp_path / "runs.db", keys, hooks=[Hook(seam="finish_turn", fn=finish, name="finish")])
    with pytest.raises(HookFailed):
        await agent.run("go", run_id="R")
    broken = False
    result = await agent.resume("R")
    assert (result.text, asked, len(keys)) == ("done", [1, 2, 2], 1)


@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call"])
async def test_a_hook_that_failed_is_asked_again_though_other_hooks_have_decided_since(tmp_path: Path, seam: str) -> None:
    asked: list[str] = []

    def gate(call: Any) -> None:
        asked.append(call.call_id)
        if len(asked) == 1:
            raise OSError("the list of addresses is not there")

    hooks = [Hook(seam=seam, fn=gate, on_error="abort"), Hook(seam="on_message", fn=lambda context: None)]
    agent = worker(tmp_path / "whole.db", [], hooks=hooks)
    failed = await agent.run("go", run_id="R", check=False)
    assert isinstance(failed.error, HookFailed)
    assert (await agent.resume("R")).text == "done"
    assert asked == ["c", "c"]
    await agent.aclose()

    records = all_records(tmp_path / "whole.db")
    resumed = next(i for i, r in enumerate(records) if r.kind == "resumed")
    for end in range(resumed + 1, len(records)):  # and a process that ends after that has gone past it too
        cut(records[:end], {"R": None}, tmp_path / f"{end}.db").close()
        again = worker(tmp_path / f"{end}.db", [], hooks=hooks)
        assert (await again.resume("R")).text == "done"
        await again.aclose()


async def test_a_hook_that_was_cut_short_is_asked_once_more_and_not_at_each_resume(tmp_path: Path) -> None:
    """The run was cancelled while it was asked."""
    asked: list[str] = []
    going: list[asyncio.Task[Any]] = []

    async def gate(call: Any) -> Any:
        asked.append(call.call_id)
        if len(asked) == 1:
            going[0].cancel()
            await asyncio.sleep(0)
        return [Queue(UserMessage("by the way")), Ask("May it?")]

    hooks = [Hook(seam="before_tool_call", fn=gate, name="gate")]
    call = tool_call("work", {"n": 1}, id="c")
    once = FunctionModel(lambda r: text("done") if any(m.role == "tool" for m in r.messages) else call)
    agent = worker(tmp_path / "runs.db", [], hooks=hooks).replace(model=once)
    going.append(asyncio.ensure_future(agent.run("go", run_id="R")))
    with pytest.raises(asyncio.CancelledError):
        await going[0]
    assert (await agent.resume("R")).stop_reason == "suspended"
    result = await agent.resume("R", {"c": Approve()})
    assert (asked, result.text) == (["c", "c"], "done")
    assert [m.text for m in result.messages if m.origin == "hook"] == ["by the way"]
    assert (await agent.resume("R")).messages == result.messages
    await agent.aclose()


@pytest.mark.parametrize("fails_at", ["a", "b"])
async def test_a_result_over_which_a_hook_failed_is_judged_anew_and_stands_once(tmp_path: Path, fails_at: str) -> None:
    keys: list[str] = []
    broken = [True]

    def guard(incoming: Any) -> None:
        if broken[0] and getattr(incoming.message, "tool_call_id", "") == fails_at:
            raise OSError("the list of addresses is not there")

    def agent(path: Path) -> Agent:
        @tool
        async def work(ctx: ToolContext) -> str:
            keys.append(ctx.idempotency_key)
            return f"worked {ctx.call_id}"

        calls = [tool_call("work", id="a"), tool_call("work", id="b")]
        model = FunctionModel(lambda r: text("done") if any(m.role == "tool" for m in r.messages) else calls)
        hooks = [Hook(seam="on_message", fn=guard, name="guard")]
        return Agent(model=model, tools=[work], hooks=hooks, journal=Journal(path, durability="normal"))

    first = agent(tmp_path / "whole.db")
    assert isinstance((await first.run("go", run_id="R", check=False)).error, HookFailed)
    broken[0] = False
    result = await first.resume("R")
    assert [m.text for m in result.messages] == ["go", "", "worked a", "worked b", "done"]
    assert (await first.resume("R")).messages == result.messages
    assert verify(first.plan.journal) == []
    await first.aclose()
    records = all_records(tmp_path / "whole.db")
    broken_since = next(r.n for r in records if r.kind == "ruling" and "failed" in r.data)
    for end in range(broken_since, len(records)):
        cut(records[:end], {"R": None}, tmp_path / f"{end}.db").close()
        again = agent(tmp_path / f"{end}.db")
        assert (await again.resume("R")).messages == result.messages, end
        await again.aclose()
    assert keys == ["R:a", "R:b"]


async def test_limits_and_results_with_usage_survive(tmp_path: Path) -> None:
    agent = worker(tmp_path / "whole.db", [])
    whole = await agent.run("go", run_id="R", limits=Limits(max_turns=1))
    assert whole.stop_reason == "max_turns"
    records = all_records(tmp_path / "whole.db")
    cut(records[:-1], {"R": None}, tmp_path / "cut.db").close()
    again = await worker(tmp_path / "cut.db", []).resume("R")
    assert (again.stop_reason, again.reason) == ("max_turns", whole.reason)


async def test_an_unknown_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownRun, match="no run 'R'"):
        await worker(tmp_path / "runs.db", []).resume("R")
    with pytest.raises(ConfigError, match="keeps no journal"):
        await Agent(model=ScriptedModel([])).resume("R")


# --- a journal that fails -------------------------------------------------------------------------


class Failing(Journal):
    """A journal whose file takes no more records after the first of a kind."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(path, durability="normal")
        self.kind = kind

    def append(self, head: Any, entries: Any, wait: float = 1.0) -> None:
        if any(kind == self.kind for kind, _, _ in entries):
            raise JournalError("the journal could not be written (the disk is full): the run stopped before its next effect")
        super().append(head, entries, wait)


@pytest.mark.parametrize("kind", ["request", "intent", "outcome", "turn", "reply", "end"])
@pytest.mark.parametrize("check", [True, False])
async def test_an_effect_that_cannot_be_recorded_does_not_happen(tmp_path: Path, kind: str, check: bool) -> None:
    keys: list[str] = []
    agent = worker(tmp_path / "x.db", keys).replace(journal=Failing(tmp_path / "runs.db", kind))
    if check:
        with pytest.raises(JournalError, match="the disk is full") as caught:
            await agent.run("go", run_id="R")
        result = caught.value.result
    else:
        result = await agent.run("go", run_id="R", check=False)
        assert isinstance(result.error, JournalError)
    assert result.stop_reason == "error"
    assert len(keys) == (kind in ("outcome", "end"))
    assert len(agent.plan.model.requests) == {"request": 0, "turn": 0, "end": 2}.get(kind, 1)
    again = worker(tmp_path / "runs.db", keys)
    resumed = await again.resume("R")
    assert resumed.stop_reason == "completed"
    assert len(keys) == 1
    assert verify(again.plan.journal) == []


def test_kinds_of_records_are_those_that_are_documented(tmp_path: Path) -> None:
    assert Record("R", 1, 0, "run", b"{}").data == {}
    assert ToolResult("x").text == "x"
