"""Runs that are tried again and keep a journal: the record goes over what failed, and nobody waits twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent, BadRequest, Conversation, Hook, Image, Interrupt, Limits, Recovery, Replace, RunResult, Text, ToolContext, ToolMessage,
    ToolMismatch, Usage, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.journal import Journal, verify
from beforehand.messages import LOST
from beforehand.testing import FunctionModel, error, finish, text, tool_call

from combinations.cuts import World, every_cut
from journal.cutting import all_records, cut

RETRIED = [
    "before_turn", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "get_api_key",
    "authorize_request", "on_chunk", "on_message", "prepare_next_turn",
]  # fmt: skip


def work(world: World) -> Any:
    @tool
    async def work(ctx: ToolContext, x: int = 0) -> str:
        world.effects.append(ctx.idempotency_key)
        return f"worked {x}"

    return work


def say_turn(run: Any) -> str:
    return f"turn {run.turn}"


def by_turn(replies: dict[int, Any]) -> FunctionModel:
    """A model whose reply depends on nothing but the turn, which the instructions tell."""
    return FunctionModel(lambda request: replies.get(int(request.system.rpartition("turn ")[2]), text("done")))


def fails_in(turns: set[int], seam: str, **options: Any) -> Hook:
    def fn(context: Any) -> None:
        told = sum(m.text.startswith("[Turn error]") for m in context.run._run.history.view())
        if context.run.turn in turns and not (seam in ("before_turn", "prepare_next_turn") and told):
            raise RuntimeError(f"broken in turn {context.run.turn}")

    return Hook(seam=seam, fn=fn, name="fails", on_error="closed", **options)


@pytest.mark.parametrize("seam", RETRIED)
async def test_a_hook_that_failed_and_was_asked_again_is_not_asked_a_third_time_on_resume(tmp_path: Path, seam: str) -> None:
    def make(world: World) -> Agent:
        return Agent(
            model=by_turn({1: tool_call("work", {"x": 1}, id="a"), 2: tool_call("work", {"x": 2}, id="b")}),
            tools=[work(world)], instructions=["Be brief.", say_turn], hooks=[fails_in({2}, seam)],
            journal=world.journal, recovery=world.recovery(), limits=Limits(max_turns=6),
        )  # fmt: skip

    whole, records = await every_cut(tmp_path, make)
    assert whole.stop_reason == "completed"
    assert any(r.kind == "retried" for r in records)


async def test_what_16_said_before_an_attempt_is_part_of_the_past(tmp_path: Path) -> None:
    def make(world: World) -> Agent:
        @hook.on_message
        def fails(incoming: Any) -> None:
            if incoming.origin == "tool" and incoming.run.turn == 2:
                raise RuntimeError("broken")

        @hook.prepare_next_turn
        def adds(turn: Any) -> Replace:
            return Replace(add_messages=(UserMessage(f"after turn {turn.number}"),))

        return Agent(
            model=by_turn({1: tool_call("work", {"x": 1}, id="a"), 2: tool_call("work", {"x": 2}, id="b")}),
            tools=[work(world)], instructions=["Be brief.", say_turn], hooks=[fails, adds], journal=world.journal,
            recovery=world.recovery(),
        )  # fmt: skip

    whole, _ = await every_cut(tmp_path, make)
    assert [m.text for m in whole.messages if m.text.startswith("after")] == ["after turn 1", "after turn 2"]


async def test_requests_that_failed_for_a_while_are_part_of_the_past(tmp_path: Path) -> None:
    def make(world: World) -> Agent:
        down = error("down")
        return Agent(
            model=by_turn({1: down, 2: tool_call("work", {"x": 1}, id="a"), 3: down, 4: down}), tools=[work(world)],
            instructions=["Be brief.", say_turn], journal=world.journal, recovery=world.recovery(),
        )  # fmt: skip

    whole, records = await every_cut(tmp_path, make)
    assert whole.text == "done"
    assert sum(r.kind == "retried" for r in records) == 3


async def test_instructions_that_failed_are_part_of_the_past(tmp_path: Path) -> None:
    def make(world: World) -> Agent:
        def shaky(run: Any) -> str:
            if run.turn in (1, 3):
                raise RuntimeError(f"no instructions in turn {run.turn}")
            return f"turn {run.turn}"

        return Agent(
            model=by_turn({2: tool_call("work", {"x": 1}, id="a")}), tools=[work(world)], instructions=["Be brief.", shaky],
            journal=world.journal, recovery=world.recovery(),
        )  # fmt: skip

    whole, records = await every_cut(tmp_path, make)
    assert whole.text == "done"
    assert sum(r.kind == "retried" for r in records) == 2


async def test_a_run_that_gives_up_is_resumed_where_it_gave_up(tmp_path: Path) -> None:
    def make(world: World) -> Agent:
        return Agent(
            model=by_turn({1: tool_call("work", {"x": 1}, id="a")}), tools=[work(world)], instructions=["Be brief.", say_turn],
            hooks=[fails_in({2, 3, 4, 5}, "before_provider_call")], journal=world.journal,
            recovery=world.recovery(max_attempts=2),
        )  # fmt: skip

    whole, _ = await every_cut(tmp_path, make)
    assert whole.stop_reason == "error"


async def test_an_image_that_is_refused_is_left_out_on_resume_too(tmp_path: Path) -> None:
    def make(world: World) -> Agent:
        def reply(request: Any) -> Any:
            if any(type(m.content) is tuple and any(type(p) is Image for p in m.content) for m in request.messages):
                return error(BadRequest("no images here"))
            return text("without")

        return Agent(model=FunctionModel(reply), journal=world.journal, recovery=world.recovery())

    whole, _ = await every_cut(tmp_path, make, [UserMessage((Text("see"), Image("aVZCT1I=")))])
    assert whole.text == "without"


@pytest.mark.parametrize("keep", ["nothing", "aborted"])
async def test_what_a_refused_reply_has_cost_is_on_record(tmp_path: Path, keep: Any) -> None:
    @hook.on_message
    def refuse(incoming: Any) -> Interrupt | None:
        return Interrupt("no", resend=True, keep=keep) if "reply 1" in incoming.message.text else None

    def make(world: World) -> Agent:
        model = by_turn({1: [text("reply 1"), finish(usage=Usage(7, 3))], 2: tool_call("work", {"x": 1}, id="a")})
        return Agent(
            model=model, tools=[work(world)], hooks=[refuse], instructions=["Be brief.", say_turn], journal=world.journal
        )

    whole, _ = await every_cut(tmp_path, make)
    assert whole.usage == Usage(7, 3)


async def test_calls_that_are_refused_are_told_as_text_on_resume_too(tmp_path: Path) -> None:
    def make(world: World) -> Agent:
        def reply(request: Any) -> Any:
            if any(type(m) is ToolMessage for m in request.messages):
                return error(ToolMismatch("messages with role 'tool' must follow"))
            if "[work (a) " in "".join(m.text for m in request.messages):
                return text("done")
            return tool_call("work", {"x": 1}, id="a")

        return Agent(model=FunctionModel(reply), tools=[work(world)], journal=world.journal, recovery=world.recovery())

    whole, _ = await every_cut(tmp_path, make)
    assert whole.text == "done"


# --- what was to be taken in when the turn failed ----------------------------------------------------


def tells(message: Any) -> Replace | None:
    """Rewrites our own rows about failures, as a hook does that takes secrets out of them."""
    if not message.message.text.startswith("[Turn error]"):
        return None
    return Replace(message=UserMessage(f"row {len(message.history)}", origin=message.origin))


@pytest.mark.parametrize("seam", ["before_turn", "before_provider_call"])
async def test_a_row_that_a_hook_wrote_anew_is_known_again(tmp_path: Path, seam: str) -> None:
    def make(world: World) -> Agent:
        def fails(context: Any) -> None:
            if context.run.turn in (1, 2) and not (seam == "before_turn" and len(context.run._run.history) != 3):
                raise RuntimeError(f"broken in turn {context.run.turn}")

        return Agent(
            model=by_turn({1: tool_call("work", {"x": 1}, id="a")} if seam == "before_turn" else {3: error("down")}),
            tools=[work(world)], instructions=["Be brief.", say_turn], journal=world.journal, recovery=world.recovery(),
            hooks=[Hook(seam=seam, fn=fails, name="fails"), Hook(seam="on_message", fn=tells, name="tells")],
        )  # fmt: skip

    whole, _ = await every_cut(tmp_path, make)
    assert whole.text == "done"


class Steered:
    """A tool that says things to its conversation, and a hook that fails at the turn that is to take them."""

    def __init__(self, path: Path, seam: str, queue: str, mode: str, raw: bool) -> None:
        @tool(replay="safe")
        async def say() -> str:
            for words in ("first", "second"):
                (self.talk.steer if queue == "steer" else self.talk.follow_up)(words)
            return "said"

        def fails(context: Any) -> None:
            run = context.run._run
            told = sum(m.text.startswith("[Turn error]") for m in run.history.view())
            due = context.message.text == "first" if seam == "on_message" else [*run.queues.steering, *run.queues.follow_up]
            if due and told < 2:
                raise RuntimeError(f"broken, as {told} rows say")

        def answer(request: Any) -> Any:
            said = any(m.role == "tool" for m in request.messages)
            return text(f"{len(request.messages)}") if said else tool_call("say", id="c")

        async def at_once(seconds: float) -> None:
            await asyncio.sleep(0)

        self.journal = Journal(path, durability="normal", raw=raw)
        self.agent = Agent(
            model=FunctionModel(answer), tools=[say], hooks=[Hook(seam=seam, fn=fails, name="fails")], journal=self.journal,
            recovery=Recovery(sleep=at_once),
        )  # fmt: skip
        self.talk: Conversation = self.agent.conversation(steering_mode=mode, follow_up_mode=mode)

    async def resume(self) -> RunResult:
        return await self.talk.resume_recorded("R")


@pytest.mark.parametrize("mode", ["one-at-a-time", "all"])
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize("seam", ["before_turn", "on_message"])
@pytest.mark.parametrize("raw", [False, True])
async def test_a_queued_message_whose_turn_failed_is_taken_in_once_and_in_its_place(
    tmp_path: Path, seam: str, queue: str, mode: str, raw: bool
) -> None:
    began = Steered(tmp_path / "whole.db", seam, queue, mode, raw)
    whole = await began.talk.run("go", run_id="R")
    assert [m.text for m in whole.messages if m.origin == queue] == ["first", "second"]
    records = all_records(tmp_path / "whole.db")
    assert any(r.kind == "retried" for r in records)
    await began.agent.aclose()
    first = next(r.n for r in records if r.kind == "queued")
    for end in range(first, len(records)):
        where = f"cut after record {end} ({records[end - 1].kind})"
        cut(records[:end], {"R": None}, tmp_path / f"{end}.db").close()
        again = Steered(tmp_path / f"{end}.db", seam, queue, mode, raw)
        result = await again.resume()
        if LOST not in [m.text for m in result.messages]:
            assert result.messages == whole.messages, where
        assert len([m for m in result.messages if m.origin == queue]) == 2, where
        assert again.talk.queued == (), where
        assert verify(again.journal) == [], where
        assert (await again.agent.resume("R")).messages == result.messages
        await again.agent.aclose()


async def test_a_prompt_that_was_let_pass_in_a_new_attempt_is_on_record(tmp_path: Path) -> None:
    def agent(path: Path) -> Agent:
        def fails(message: Any) -> None:
            if message.message.text == "second" and not any(m.text.startswith("[Turn error]") for m in message.history):
                raise RuntimeError("broken")

        return Agent(
            model=FunctionModel(lambda r: text("done")), hooks=[Hook(seam="on_message", fn=fails, name="fails")],
            journal=Journal(path, durability="normal"), recovery=Recovery(base_delay_ms=0),
        )  # fmt: skip

    began = agent(tmp_path / "whole.db")
    whole = await began.run([UserMessage("first"), UserMessage("second")], run_id="R")
    await began.aclose()
    records = all_records(tmp_path / "whole.db")
    second = next(r.n for r in records if r.kind == "message" and r.data["content"] == "second")
    for end in range(second, len(records)):
        cut(records[:end], {"R": None}, tmp_path / f"{end}.db").close()
        again = agent(tmp_path / f"{end}.db")
        assert (await again.resume("R")).messages == whole.messages
        await again.aclose()


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize("seam", ["before_turn", "on_message"])
async def test_a_run_that_began_with_a_queued_message_has_it_in_each_attempt(tmp_path: Path, seam: str, queue: str) -> None:
    """As the runs of inner loops do that a message has woken."""

    def agent(path: Path) -> Agent:
        def fails(context: Any) -> None:
            told = sum(m.text.startswith("[Turn error]") for m in context.history)
            if told < 2 and (context.message if seam == "on_message" else context.incoming[0]).text == "queued":
                raise RuntimeError(f"broken, as {told} rows say")

        return Agent(
            model=FunctionModel(lambda r: text(f"{len(r.messages)}")), hooks=[Hook(seam=seam, fn=fails, name="fails")],
            journal=Journal(path, durability="normal", raw=True), recovery=Recovery(base_delay_ms=0, jitter=0),
        )  # fmt: skip

    first = agent(tmp_path / "whole.db")
    talk = first.conversation()
    await talk.run("go", run_id="A")
    for words in ("queued", "queued after it"):
        (talk.steer if queue == "steer" else talk.follow_up)(words)
    whole = await talk.continue_run()
    assert [m.text for m in whole.messages if m.origin == queue] == ["queued", "queued after it"]
    await first.aclose()
    records = all_records(tmp_path / "whole.db")
    began = next(n for n, r in enumerate(records, 1) if r.run_id == whole.run_id)
    for end in range(began, len(records)):
        cut(records[:end], {"A": None, whole.run_id: None}, tmp_path / f"{end}.db").close()
        again = agent(tmp_path / f"{end}.db")
        assert (await again.resume(whole.run_id)).messages == whole.messages, f"cut after record {end} ({records[end - 1].kind})"
        await again.aclose()
