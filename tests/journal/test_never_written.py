"""What a journal does not hold: keys, and what hooks took out. And what it says of text that was shown and then lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Continue, CustomMessage, Hook, Interrupt, Options, Replace, Request, ToolContext,
    UserMessage, tool,
)  # fmt: skip
from beforehand.backtest import backtest
from beforehand.errors import AuthenticationError, RunError, UsageError
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal, Record, verify
from beforehand.journal.reading import summaries
from beforehand.journal.steps import steps
from beforehand.messages import LOST
from beforehand.models.base import CallInfo, Finish, Model, ModelEvent, TextDelta
from beforehand.testing import FunctionModel, ScriptedModel, error, text, tool_call

from journal.cutting import all_records, cut
from pipeline.virtual_time import in_virtual_time

KEY = "sk-0123456789abcdefABCDEF-never-written"


def every_byte(folder: Path) -> bytes:
    """The journal's file, its log and whatever else lies beside it."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


# --- keys -----------------------------------------------------------------------------------------


async def test_no_key_is_ever_written_wherever_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def failing(context: Any) -> Any:
        raise RuntimeError(f"the vault said {KEY}")

    gives = Hook(seam="get_api_key", fn=lambda c: Replace(key=KEY), name="gives")
    fails = Hook(seam="get_api_key", fn=failing, name="fails")
    opens = Hook(seam="get_api_key", fn=failing, name="opens", on_error="open")
    nowhere = {"model": "openai:gpt-4o-mini", "base_url": "http://127.0.0.1:9/v1"}
    for n, options in enumerate([
        {"model": ScriptedModel([text("hello")]), "hooks": [gives]}, {"model": ScriptedModel([text("hello")]), "hooks": [fails]},
        {"model": ScriptedModel([text("hello")]), "hooks": [opens]}, {**nowhere, "api_key": KEY}, nowhere,
        {**nowhere, "hooks": [gives]},
    ]):  # fmt: skip
        agent = Agent(**options, journal=tmp_path / "runs.db")
        await agent.run("go", run_id=f"R{n}", check=False)
        assert KEY.encode() not in every_byte(tmp_path)
        await agent.aclose()
    assert KEY.encode() not in every_byte(tmp_path)


class Echoes(Model):
    """Somebody's own adapter, whose failure repeats the key and the address. It fails as `raises` says."""

    name, provider, context_tokens = "echoes", "own", None
    endpoint = f"http://user:{KEY}-pass@127.0.0.1:9/v1?sig={KEY}-query"

    def __init__(self, raises: Callable[[str], Exception]) -> None:
        self.raises = raises

    async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
        raise self.raises(f"{self.endpoint} does not take {call.key}")
        yield Finish("stop")


@pytest.mark.parametrize("raises", [AuthenticationError, RuntimeError, lambda said: OSError(5, said)])
async def test_a_model_of_somebodys_own_that_repeats_its_key_puts_it_on_no_record(tmp_path: Path, raises: Any) -> None:
    gives = Hook(seam="get_api_key", fn=lambda c: Replace(key="hunter2!"), name="gives")
    async with Agent(model=Echoes(raises), hooks=[gives], journal=tmp_path / "runs.db") as agent:
        result = await agent.run("go", run_id="R", check=False)
    assert "does not take ***" in str(result.error) and "127.0.0.1:9/v1" in str(result.error)
    for secret in ("hunter2!", KEY):
        assert secret not in str(result.error)
        assert secret.encode() not in every_byte(tmp_path)


async def test_a_short_key_of_the_environment_is_hidden_in_the_error_of_a_hook_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "hunter2!")

    def failing(context: Any) -> Any:
        raise RuntimeError("the vault does not take hunter2! today")

    fails = Hook(seam="get_api_key", fn=failing, name="fails")
    async with Agent(model=ScriptedModel([text("x")]), hooks=[fails], journal=tmp_path / "runs.db") as agent:
        result = await agent.run("go", run_id="R", check=False)
    assert "the vault does not take *** today" in str(result.error)
    assert b"hunter2!" not in every_byte(tmp_path)


@pytest.mark.parametrize(
    ("params", "recorded"),
    [({"api_key": KEY}, False), ({"extra": [{"Authorization": f"Bearer {KEY}"}]}, False), ({"max_tokens": 5, "seed": 7}, True)],
)
async def test_a_key_among_the_parameters_is_on_no_record_and_the_hook_is_asked_again(
    tmp_path: Path, params: dict[str, Any], recorded: bool
) -> None:
    asked: list[str] = []

    def other_system(call: Any) -> Replace:
        asked.append("asked")
        return Replace(request=msgspec.structs.replace(call.request, system="s"))

    sees = Hook(seam="before_provider_call", fn=other_system, name="other_system")

    def agent(journal: Path, model: Any) -> Agent:
        return Agent(model=model, options=Options(provider_params=params), hooks=[sees], journal=journal)

    async with agent(tmp_path / "runs.db", ScriptedModel([text("x")])) as first:
        await first.run("go", run_id="R")
    assert KEY.encode() not in every_byte(tmp_path)
    records = all_records(tmp_path / "runs.db")
    last = max(r.n for r in records if r.kind == "ruling")
    cut(records[:last], {"R": None}, tmp_path / "cut.db").close()
    model = ScriptedModel([text("x")])
    async with agent(tmp_path / "cut.db", model) as again:
        await again.resume("R")
    assert model.requests[-1].system == "s"
    assert len(asked) == (1 if recorded else 2)


async def test_a_resumed_run_asks_for_its_key_again(tmp_path: Path) -> None:
    gives = Hook(seam="get_api_key", fn=lambda c: Replace(key=KEY), name="gives")
    call = tool_call("look", id="c")

    @tool(replay="safe")
    async def look() -> str:
        return "seen"

    first = Agent(model=ScriptedModel([call, text("x")]), tools=[look], hooks=[gives], journal=tmp_path / "whole.db")
    await first.run("go", run_id="R")
    await first.aclose()
    records = all_records(tmp_path / "whole.db")
    last = max(r.n for r in records if r.kind == "request")
    cut(records[: last - 1], {"R": None}, tmp_path / "cut.db").close()
    model = ScriptedModel([text("x")])
    again = first.replace(model=model, journal=tmp_path / "cut.db")
    assert (await again.resume("R")).text == "x"
    assert model.keys == [KEY]
    await again.aclose()


# --- what 13 took out -----------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [False, True])
async def test_what_a_hook_took_out_of_a_result_is_kept_only_if_that_is_asked_for(tmp_path: Path, raw: bool) -> None:
    @tool
    async def card(ctx: ToolContext) -> dict[str, str]:
        ctx.update("reading 4111-1111")
        return {"number": "4111-1111"}

    @tool(replay="safe")
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call_tool("card", {})).text

    redact = Hook(
        seam="after_tool_call", fn=lambda c: Replace(content=str(c.content).replace("4111-1111", "****")), name="redact"
    )
    model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else [tool_call("card"), tool_call("outer")])
    agent = Agent(model=model, tools=[card, outer], hooks=[redact], journal=tmp_path / "runs.db", journal_raw=raw)
    result = await agent.run("go", run_id="R")
    assert "4111" not in str(result.messages)
    assert (b"4111-1111" in every_byte(tmp_path)) is raw
    outcomes = [r.data for r in agent.plan.journal.records("R") if r.kind == "outcome"]
    assert all("4111-1111" not in str(o["result"]) for o in outcomes)
    assert any("4111-1111" in str(o.get("raw")) for o in outcomes) is raw
    await agent.aclose()


@pytest.mark.parametrize("raw", [False, True])
async def test_what_a_hook_answered_and_another_took_out_is_kept_only_if_that_is_asked_for(tmp_path: Path, raw: bool) -> None:
    asked: list[str] = []

    @tool
    async def card() -> str:
        raise NotImplementedError

    @tool(replay="safe")
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call_tool("card", {})).text

    def cache(call: Any) -> Any:
        asked.append(call.call_id)
        return Answer("4111-1111") if call.name == "card" else None

    hooks = [
        Hook(seam="before_tool_call", fn=cache, name="cache"),
        Hook(seam="after_tool_call", fn=lambda c: Replace(content=c.text.replace("4111-1111", "****")), name="redact"),
    ]

    def agent(path: Path) -> Agent:
        calls = [tool_call("card", id="a"), tool_call("outer", id="b")]
        model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else calls)
        return Agent(model=model, tools=[card, outer], hooks=hooks, journal=Journal(path, durability="normal", raw=raw))

    whole = agent(tmp_path / "runs.db")
    result = await whole.run("go", run_id="R")
    assert [m.text for m in result.messages if m.role == "tool"] == ["****", "****"]
    assert (b"4111-1111" in every_byte(tmp_path)) is raw
    assert (await backtest(whole.plan.journal, lambda loop: HookSet(hooks, loop))).differences == ()
    await whole.aclose()
    records = all_records(tmp_path / "runs.db")
    over = [r.n for r in records if r.kind == "outcome"]
    for end in range(1, len(records)):
        asked.clear()
        cut(records[:end], {"R": None}, tmp_path / f"{end}.db").close()
        again = agent(tmp_path / f"{end}.db")
        assert [m.text for m in (await again.resume("R")).messages if m.role == "tool"] == ["****", "****"]
        assert end < over[-1] or asked == []
        assert len(asked) == len({*asked})
        assert (b"4111-1111" in every_byte(tmp_path)) is raw
        assert (await again.resume("R")).messages == result.messages
        await again.aclose()


# --- what hooks took out of prompts ---------------------------------------------------------------

CARD = "4111-1111"


def masked(message: Any) -> Any:
    """Without the card number; `None` where there is none."""
    if message.role != "user" or CARD not in message.text:
        return None
    return msgspec.structs.replace(message, content=message.text.replace(CARD, "****"))


def mask(incoming: Any) -> Any:
    if "secret" in incoming.message.text:
        return Interrupt("no", resend=True)
    new = masked(incoming.message)
    return None if new is None else Replace(message=new)


def mask_all(start: Any) -> Any:
    return Replace(messages=[masked(message) or message for message in start.messages])


MASKS = Hook(seam="on_message", fn=mask, name="masks")
ADDS = Hook(seam="before_run", fn=lambda c: Replace(messages=[*c.messages, UserMessage("a note")]), name="adds")
MASKS_ALL = Hook(seam="before_run", fn=mask_all, name="masks all")
LOOKS = Hook(seam="before_run", fn=lambda c: None, name="looks")
REFUSES = Hook(seam="before_run", fn=lambda c: Block("no"), name="refuses")


def names(hooks: list[Hook]) -> str:
    return " and ".join(hook.name for hook in hooks)


class Told:
    """An agent whose only tool queues messages, and what its model read of people last."""

    def __init__(self, path: Path, hooks: Any, raw: bool = False) -> None:
        self.talk: Any = None
        self.read: list[str] = []

        @tool(replay="safe")
        async def work() -> str:
            self.talk.steer(f"steered {CARD}")
            self.talk.follow_up(f"secret {CARD}")
            self.talk.follow_up(f"followed {CARD}")
            return "worked"

        def answer(request: Any) -> Any:
            self.read = [m.text for m in request.messages if m.role == "user"]
            return text("done") if any(m.role == "tool" for m in request.messages) else tool_call("work")

        journal = Journal(path, durability="normal", raw=raw)
        self.agent = Agent(model=FunctionModel(answer), tools=[work], hooks=hooks, journal=journal)
        self.talk = self.agent.conversation()


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("hooks", [[MASKS], [MASKS, ADDS], [MASKS, LOOKS], [MASKS_ALL, MASKS]], ids=names)
async def test_what_hooks_took_out_of_what_people_said_is_kept_only_if_that_is_asked_for(
    tmp_path: Path, hooks: Any, raw: bool
) -> None:
    told = Told(tmp_path / "runs.db", hooks, raw)
    told.talk.steer(f"early {CARD}")
    await told.talk.run(f"card {CARD}", run_id="R")
    said = ["card ****", *(["a note"] if ADDS in hooks else []), "early ****", "steered ****", "followed ****"]
    assert told.read == said
    assert (CARD.encode() in every_byte(tmp_path)) is raw
    assert (b"secret" in every_byte(tmp_path)) is raw
    assert verify(told.agent.plan.journal) == []
    assert [run.prompt for run in summaries(told.agent.plan.journal)] == [f"card {CARD}" if raw else "card ****"]
    told_first = next(steps(told.agent.plan.journal.records("R"))).data
    assert told_first["prompts"] == [f"card {CARD}" if raw else "[withheld]"]
    await told.agent.aclose()
    records = all_records(tmp_path / "runs.db")
    for end in range([r.kind for r in records].index("request"), len(records)):
        path = tmp_path / f"{end}.db"
        cut(records[:end], {"R": None}, path, raw=raw).close()
        again = Told(path, hooks, raw)
        assert (await again.talk.resume_recorded("R")).text == "done"
        assert raw or {*again.read} <= {*said, LOST}
        assert verify(again.agent.plan.journal) == []
        assert (CARD.encode() in every_byte(tmp_path)) is raw
        await again.agent.aclose()


@pytest.mark.parametrize("hooks", [[MASKS_ALL], [REFUSES], [MASKS, REFUSES], [MASKS_ALL, REFUSES]], ids=names)
async def test_what_the_hooks_at_1_did_not_let_pass_is_not_recorded(tmp_path: Path, hooks: Any) -> None:
    agent = Agent(model=FunctionModel(lambda r: text("done")), hooks=hooks, journal=tmp_path / "runs.db")
    result = await agent.run([UserMessage(f"card {CARD}"), CustomMessage("memo", "k", {"n": CARD})][: 1 + len(hooks) // 2])
    assert CARD.encode() not in every_byte(tmp_path)
    assert await agent.resume(result.run_id) == result
    await agent.aclose()


async def test_a_prompt_that_a_process_has_not_come_to_is_said_again(tmp_path: Path) -> None:
    """Unless it is kept, or there is nobody to judge it."""
    cases = [(False, [MASKS], "message"), (False, [LOOKS], "ruling"), (True, [MASKS], ""), (False, [], "")]
    for raw, hooks, ends_before in cases:
        folder = tmp_path / f"{raw} {len(hooks)} {ends_before}"
        folder.mkdir()
        told = Told(folder / "runs.db", hooks, raw)
        await told.talk.run(f"card {CARD}", run_id="R")
        await told.agent.aclose()
        records = all_records(folder / "runs.db")
        first = next((i for i, r in enumerate(records) if r.kind == ends_before), 0)
        for end in range(1, len(records)):
            cut(records[:end], {"R": None}, folder / f"{end}.db", raw=raw).close()
            again = Told(folder / f"{end}.db", hooks, raw)
            if end <= first and not (records[end - 1].data.get("changes")):
                with pytest.raises(UsageError, match="Say it again"):
                    await again.talk.resume_recorded("R")
                assert verify(again.agent.plan.journal) == []
                assert [run.state for run in summaries(again.agent.plan.journal)] == ["unfinished"]
            else:
                assert (await again.talk.resume_recorded("R")).text == "done"
            await again.agent.aclose()


@pytest.mark.parametrize("hooks", [[MASKS], [MASKS, ADDS], [MASKS_ALL]], ids=names)
async def test_whoever_still_has_the_prompt_of_a_run_goes_on_with_it(tmp_path: Path, hooks: Any) -> None:
    """A worker has it, and the caller of a sub-agent."""
    prompt = UserMessage(f"card {CARD}")
    told = Told(tmp_path / "runs.db", hooks)
    result = await told.talk.run([prompt], run_id="R")
    await told.agent.aclose()
    records = all_records(tmp_path / "runs.db")
    for end in range(1, next(r.n for r in records if r.kind == "message")):
        path = tmp_path / f"{end}.db"
        cut(records[:end], {"R": None}, path).close()
        again = Told(path, hooks)
        came = await again.talk.resume_recorded("R", prompts=[prompt])
        assert [m.text for m in came.messages] == [m.text for m in result.messages]
        await again.agent.aclose()
        anew = all_records(path)
        first = next(r.n for r in anew if r.kind == "request")
        for later in range(first, len(anew)):
            cut(anew[:later], {"R": None}, tmp_path / f"{end} {later}.db").close()
            once_more = Told(tmp_path / f"{end} {later}.db", hooks)
            came = await once_more.talk.resume_recorded("R")
            assert (came.text, came.messages[0].text) == ("done", "card ****")
            await once_more.agent.aclose()
    assert f"card {CARD}".encode() not in every_byte(tmp_path)


async def test_of_a_queued_message_that_nobody_had_judged_the_model_is_told_that_it_was_lost(tmp_path: Path) -> None:
    told = Told(tmp_path / "runs.db", [MASKS])
    await told.talk.run("go", run_id="R")
    await told.agent.aclose()
    records = all_records(tmp_path / "runs.db")
    end = next(r.n for r in records if r.kind == "outcome")
    cut(records[:end], {"R": None}, tmp_path / "cut.db").close()
    again = Told(tmp_path / "cut.db", [MASKS])
    await again.talk.resume_recorded("R")
    assert again.read == ["go", LOST, LOST, LOST]
    await again.agent.aclose()


async def test_a_talk_that_still_has_a_queued_message_goes_on_with_it(tmp_path: Path) -> None:
    told = Told(tmp_path / "runs.db", [MASKS, Hook(seam="before_tool_call", fn=lambda c: Ask("May it?"), name="asks")])
    told.talk.follow_up(f"also {CARD}")
    assert (await told.talk.run("go", run_id="R")).stop_reason == "suspended"
    (call_id,) = [p.call_id for p in told.talk.result.pending]
    await told.talk.resume({call_id: Approve()})
    assert told.read == ["go", "steered ****", "also ****", "followed ****"]
    assert CARD.encode() not in every_byte(tmp_path)
    await told.agent.aclose()


async def test_other_hooks_are_put_to_what_stands_of_a_prompt(tmp_path: Path) -> None:
    def stars(incoming: Any) -> Any:
        return Interrupt("stars") if "**" in incoming.message.text else None

    other = HookSet((Hook(seam="on_message", fn=stars, name="stars"), Hook(seam="before_run", fn=lambda c: None, name="looks")))
    told = Told(tmp_path / "runs.db", [MASKS])
    await told.talk.run(f"card {CARD}", run_id="R")
    found = await backtest(told.agent.plan.journal, lambda loop: other)
    assert [(d.seam, d.kind) for d in found.differences][:2] == [("on_message", "newly_blocked")] * 2
    assert CARD not in str(found) and LOST not in str(found)
    await told.agent.aclose()


# --- text that was shown --------------------------------------------------------------------------


class Slow(Model):
    """Sends pieces that a test lets through one by one, in virtual time."""

    name, provider, endpoint, context_tokens = "slow", "scripted", "in-process", None

    def __init__(self, pieces: list[str], pause: float) -> None:
        self.pieces, self.pause = pieces, pause

    async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
        for piece in self.pieces:
            yield TextDelta(piece)
            await asyncio.sleep(self.pause)
        yield Finish("stop")


def opened(path: Path) -> Journal:
    """Virtual time does not wait for threads, so the file is open before it begins."""
    journal = Journal(path, durability="normal")
    assert list(journal.runs()) is not None
    return journal


def test_shown_text_is_recorded_in_pieces_of_a_quarter_of_a_second(tmp_path: Path) -> None:
    shown: list[str] = []

    async def go() -> None:
        agent = Agent(model=Slow(["ab"] * 50, 0.02), journal=opened(tmp_path / "runs.db"))
        talk = agent.conversation()
        talk.on("message_update", lambda e: shown.append(e.delta))
        await talk.run("go", run_id="R")
        agent.plan.journal.close()

    in_virtual_time(go())
    released = [r.data for r in all_records(tmp_path / "runs.db") if r.kind == "released"]
    assert "".join(shown) == "ab" * 50
    assert 3 <= len(released) <= 4, "a second of text"
    assert "".join(r["text"] for r in released) == ("ab" * 50)[: sum(r["chars"] for r in released)]


def test_after_a_death_in_the_middle_of_a_reply_what_was_shown_is_retracted_and_the_model_asked_again(tmp_path: Path) -> None:
    async def go() -> None:
        first = Agent(model=Slow(["ab"] * 50, 0.02), journal=opened(tmp_path / "whole.db"))
        talk = first.conversation()
        talk.on("message_update", lambda e: None)
        await talk.run("go", run_id="R")
        first.plan.journal.close()
        records = all_records(tmp_path / "whole.db")
        third = [r.n for r in records if r.kind == "released"][2]
        chars = sum(r.data["chars"] for r in records[:third] if r.kind == "released")
        cut(records[:third], {"R": None}, tmp_path / "cut.db").close()
        events: list[Any] = []
        again = Agent(model=ScriptedModel([text("anew")]), journal=opened(tmp_path / "cut.db"))
        async for event in again.stream_resume("R"):
            events.append(event)
        told = [e.type for e in events]
        assert told.index("message_retracted") < told.index("message_update")
        (retracted,) = [e for e in events if e.type == "message_retracted"]
        assert (retracted.message_id, retracted.chars) == (records[third - 1].data["message"], chars)
        written = [(r.kind, r.data) for r in again.plan.journal.records("R")[third:]]
        assert ("retracted", {"message": retracted.message_id, "chars": chars}) in written
        assert verify(again.plan.journal) == []
        assert (await again.resume("R")).text == "anew"
        again.plan.journal.close()

    in_virtual_time(go())


@pytest.mark.parametrize("reads", [False, True], ids=["listens", "reads the stream"])
async def test_a_reply_that_was_being_told_when_the_process_ended_is_on_record_and_not_asked_for_again(
    tmp_path: Path, reads: bool
) -> None:
    at_death: list[Record] = []

    def listener(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "assistant":
            at_death.extend(all_records(tmp_path / "whole.db"))

    first = Agent(model=ScriptedModel([text("the first answer")]), journal=opened(tmp_path / "whole.db"))
    if reads:
        async for event in first.stream("go", run_id="R"):
            listener(event)
    else:
        talk = first.conversation()
        talk.subscribe(listener)
        await talk.run("go", run_id="R")
    first.plan.journal.close()

    cut(at_death, {"R": None}, tmp_path / "cut.db").close()
    again = Agent(model=(model := ScriptedModel([text("another answer")])), journal=opened(tmp_path / "cut.db"))
    told = [event.type async for event in again.stream_resume("R")]
    assert (model.requests, "message_update" in told) == ([], False)
    assert (await again.resume("R")).text == "the first answer"
    again.plan.journal.close()


def test_what_was_shown_before_a_run_was_cancelled_is_retracted_when_it_goes_on(tmp_path: Path) -> None:
    shown: list[str] = []

    async def go() -> None:
        agent = Agent(model=Slow(["ab"] * 5, 0.02), journal=opened(tmp_path / "runs.db"))
        talk = agent.conversation()
        enough = asyncio.Event()
        talk.on("message_update", lambda e: (shown.append(e.delta), enough.set() if len(shown) == 3 else None))
        going = asyncio.ensure_future(talk.run("go", run_id="R"))
        await enough.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        events = [event async for event in agent.stream_resume("R")]
        assert [e.chars for e in events if e.type == "message_retracted"] == [len("".join(shown))]
        await asyncio.sleep(1)
        kinds = [r.kind for r in agent.plan.journal.records("R")]
        assert (kinds.count("released"), kinds.count("retracted"), kinds[-1]) == (1, 1, "end")
        agent.plan.journal.close()

    in_virtual_time(go())


async def test_what_was_shown_of_a_reply_that_failed_is_retracted_when_it_is_asked_for_again(tmp_path: Path) -> None:
    """Until then it stands, in the history and before the reader: only who goes on takes it out of the one."""
    half = [text("", ["half ", "a thought"]), error("the machine is down")]
    agent = Agent(model=ScriptedModel([text("one"), half, half, text("anew")]), journal=opened(tmp_path / "runs.db"))
    agent = agent.replace(hooks=[Hook(seam="finish_turn", fn=lambda turn: Continue() if turn.number == 1 else None, name="on")])
    with pytest.raises(RunError, match="the machine is down"):
        await agent.run("go", run_id="R")
    for attempt in range(2):
        events: list[Any] = []
        with pytest.raises(RunError) if attempt == 0 else contextlib.nullcontext():
            async for event in agent.stream_resume("R"):
                events.append(event)
        told = [e.type for e in events]
        (retracted,) = [e for e in events if e.type == "message_retracted"]
        assert (retracted.message_id, retracted.chars) == ("R-2", len("half a thought"))
        assert told.index("message_retracted") < told.index("message_update")
    assert [r.data for r in agent.plan.journal.records("R") if r.kind == "retracted"] == [{"message": "R-2", "chars": 14}] * 2
    assert [m.text for m in (await agent.resume("R")).messages] == ["go", "one", "anew"]
    agent.plan.journal.close()


async def test_what_was_retracted_before_a_reply_failed_is_not_retracted_again(tmp_path: Path) -> None:
    def broken(incoming: Any) -> None:
        if incoming.message.role == "assistant":
            raise OSError("the list of words is not there")

    agent = Agent(model=ScriptedModel([text("shown"), text("shown")]), journal=opened(tmp_path / "runs.db"))
    for _ in range(2):
        talk = agent.replace(hooks=[Hook(seam="on_message", fn=broken, name="judge")]).conversation()
        retracted: list[int] = []
        talk.on("message_retracted", lambda event, retracted=retracted: retracted.append(event.chars))
        if agent.plan.journal.has("R"):
            await talk.resume_recorded("R", check=False)
        else:
            await talk.run("go", run_id="R", check=False)
        assert retracted == [len("shown")]
    agent.plan.journal.close()


async def test_without_a_journal_nothing_of_it_is_imported(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = """
import asyncio, sys
from beforehand import Agent, tool
from beforehand.testing import ScriptedModel, text, tool_call
@tool
async def add(a: int) -> int:
    return a
asyncio.run(Agent(model=ScriptedModel([tool_call("add", {"a": 1}), text("x")]), tools=[add]).run("go"))
print([m for m in sys.modules if m.startswith(("beforehand.journal", "beforehand.durable", "sqlite3"))])
"""
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_an_error_of_the_provider_is_recorded_without_what_looks_like_a_key(tmp_path: Path) -> None:
    """An endpoint that echoes the key in its refusal."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(line for line in head.decode().split("\r\n") if line.lower().startswith("authorization")).split()[-1]
        body = f'{{"error": {{"message": "Incorrect API key provided: {key}"}}}}'.encode()
        writer.write(
            b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    agent = Agent(model="openai:x", base_url=url, api_key=KEY, journal=tmp_path / "runs.db")
    with pytest.raises(RunError, match="API key"):
        await agent.run("go", run_id="R")
    assert KEY.encode() not in every_byte(tmp_path)
    await agent.aclose()
    server.close()
