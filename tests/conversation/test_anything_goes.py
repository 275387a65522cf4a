"""Whatever models, tools, hooks, people and callers do, in any combination, some things hold.

Each example is a story put together at random: what the model answers, what hooks do at which seam and when, how tools
behave, what a person answers. The rules at the end are those of the whole package.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import msgspec
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Continue, Deny, Drop, Edit, End, Hold, Hook, Interrupt, Limits, Queue, Recovery, Replace,
    Resend, RunError, RunResult, Steer, ToolContext, ToolResult, UserMessage, tool,
)  # fmt: skip
from beforehand.seams import SEAMS
from beforehand.testing import ScriptedModel, cut, error, finish, text, thinking, tool_call

from conversation.checks import assert_continuable, assert_valid
from pipeline.virtual_time import in_virtual_time

CALLS = ["work", "fail", "stop", "hang", "script", "child", "nobody", "invalid"]
SEAM_NAMES = [spec.name for spec in SEAMS]

VERDICTS: dict[str, list[Any]] = {
    "before_run": [Block("no")],
    "before_turn": [End("no")],
    "authorize_request": [Block("no"), Answer("made up")],
    "on_chunk": [Hold(3), Drop(), Interrupt("no"), Interrupt("no", resend=True), Interrupt("no", keep="aborted")],
    "on_message": [Interrupt("no"), Interrupt("no", resend=True)],
    "before_tool_call": [
        Block("no"), Block("no", terminate=True), Ask("May it?"), Steer("elsewhere"), Answer("made up"), Interrupt("no"),
        Interrupt("no", resend=True),
    ],
    "after_tool_call": [Replace(content="rewritten"), Replace(terminate=True), Interrupt("no"), Interrupt("no", resend=True)],
    "finish_turn": [End("no"), Continue()],
    "prepare_next_turn": [Replace(add_messages=[UserMessage("added")])],
    "prepare_tool_call": [Replace(args={"x": 1}), Replace(args={"x": "no number"})],
    "transform_context": [Replace(messages=[UserMessage("another")])],
    "before_compaction": [Block("no"), Answer("a hook's summary"), Answer("")],
}  # fmt: skip
EFFECTS = [Queue("queued by a hook"), Resend()]


class Act(msgspec.Struct, frozen=True):
    """One hook, and what it does when it is asked for the `nth` time."""

    seam: str
    nth: int
    what: Any
    on_error: Any = "closed"


@st.composite
def acts(draw: st.DrawFn) -> Act:
    seam = draw(st.sampled_from(SEAM_NAMES))
    number = next(spec.number for spec in SEAMS if spec.name == seam)
    choices = [*VERDICTS.get(seam, []), "raise", "nonsense", "abort", "cancel", "steer", "follow_up"]
    if 8 <= number <= 14:
        choices += [(effect,) for effect in EFFECTS]
        choices += [(verdict, effect) for verdict in VERDICTS.get(seam, []) for effect in EFFECTS]
    return Act(seam, draw(st.integers(0, 2)), draw(st.sampled_from(choices)), draw(st.sampled_from(["closed", "open", "abort"])))


def call(name: str) -> Any:
    arguments: Any = {"child": {"prompt": "go"}, "invalid": {"x": "no number"}}.get(name, {})
    return tool_call("work" if name == "invalid" else name, arguments, id="same")


REPLIES = st.one_of(
    st.just([text("hello "), text("there")]),
    st.just([thinking("hm"), text("hello")]),
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=3).map(lambda names: [text("I will"), *map(call, names)]),
    st.just([text("half"), call("work"), finish("length")]),
    st.just([text("half"), error("down")]),
    st.just([text("half"), call("work"), cut()]),
)


class Story(msgspec.Struct, frozen=True):
    replies: list[Any]
    acts: list[Act]
    mode: str
    streamed: bool
    leave_after: int | None
    listened: bool
    asked_inline: bool
    answers: list[Any]
    recovers: bool
    compacts: bool


STORIES = st.builds(
    Story,
    replies=st.lists(REPLIES, min_size=1, max_size=4),
    acts=st.lists(acts(), max_size=4),
    mode=st.sampled_from(["parallel", "sequential"]),
    streamed=st.booleans(),
    leave_after=st.one_of(st.none(), st.none(), st.integers(1, 30)),
    listened=st.booleans(),
    asked_inline=st.booleans(),
    answers=st.lists(st.sampled_from([Approve(), Deny("no"), Edit({"x": 2}), None, "new prompt"]), min_size=4, max_size=4),
    recovers=st.booleans(),
    compacts=st.booleans(),
)


class Stage:
    """A story on stage: the talk, and what can be seen of it."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.model = ScriptedModel([*story.replies, *[text("end")] * 9])
        self.events: list[Any] = []
        self.requests_at_the_abort: int | None = None
        self.said = self.given_up = 0
        self.over = self.cancelled = False
        self.caller: asyncio.Task[RunResult] | None = None
        self.answers = list(story.answers)
        agent = Agent(
            model=self.model, tools=self.tools(), hooks=[self.hook(act) for act in story.acts], tool_mode=story.mode,
            on_ask=(lambda pending: self.next_answer()) if story.asked_inline else None,
            limits=Limits(max_turns=6, abort_grace=1.0, compact_at=210 if story.compacts else None),
            recovery=Recovery(max_attempts=2) if story.recovers else None,
        )  # fmt: skip
        self.talk = agent.conversation()
        if story.listened:
            self.talk.subscribe(self.events.append)

    def next_answer(self) -> Any:
        answer = self.answers.pop(0) if self.answers else None
        return None if answer == "new prompt" else answer

    def tools(self) -> list[Any]:
        @tool
        async def work(x: int = 0) -> str:
            await asyncio.sleep(0)
            return f"worked {x}"

        @tool
        async def fail() -> str:
            raise ValueError("broken")

        @tool
        async def stop() -> ToolResult:
            return ToolResult("stopped", terminate=True)

        @tool(timeout=5)
        async def hang() -> str:
            await asyncio.Event().wait()
            return "late"

        @tool
        async def script(ctx: ToolContext) -> str:
            ctx.update("begun")
            return str((await ctx.call_tool("work", {"x": 7})).text)

        child = Agent(model=ScriptedModel([[tool_call("work", id="same"), text("x")], *[text("child")] * 9]), tools=[work])
        return [work, fail, stop, hang, script, child.as_tool("child", "Helps.", events=True)]

    def hook(self, act: Act) -> Hook:
        asked = -1

        async def fn(context: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked != act.nth or self.over:
                return None
            if act.what == "raise":
                raise RuntimeError("broken hook")
            if act.what == "nonsense":
                return {"block": True}
            if act.what == "abort":
                if self.talk.is_running and self.requests_at_the_abort is None:
                    self.requests_at_the_abort = len(self.model.requests)
                self.talk.abort()
                return None
            if act.what == "cancel":
                assert self.caller is not None
                self.caller.cancel()
                return None
            if act.what in ("steer", "follow_up"):
                self.said += 1
                getattr(self.talk, act.what)("said by a person")
                return None
            return list(act.what) if isinstance(act.what, tuple) else act.what

        return Hook(seam=act.seam, fn=fn, on_error=act.on_error, name=f"{act.seam} {act.nth}")

    async def say(self, prompt: str) -> RunResult:
        if not self.story.streamed:
            return await self.talk.run(prompt, check=False)
        read = 0
        try:
            async with aclosing(self.talk.stream(prompt)) as events:  # type: ignore[type-var]
                async for _ in events:
                    read += 1
                    if read == self.story.leave_after:
                        self.requests_at_the_abort = len(self.model.requests)
                        break
        except RunError:
            pass
        assert self.talk.result is not None
        return self.talk.result

    async def play(self) -> RunResult:
        """The story to its end: a run that waits gets its answers, or a new prompt instead."""
        result = await self.say("go")
        while result.stop_reason == "suspended":
            self.check_waiting(result)
            if self.answers and self.answers[0] == "new prompt":
                self.answers.pop(0)
                self.given_up += 1
                result = await self.say("never mind")
            else:
                answers = {pending.call_id: self.next_answer() for pending in result.pending}
                result = await self.talk.resume({k: v for k, v in answers.items() if v is not None}, check=False)
        return result

    def check_waiting(self, result: RunResult) -> None:
        ids = [pending.call_id for pending in result.pending]
        assert ids
        assert len(set(ids)) == len(ids)


def check_the_result(stage: Stage, result: RunResult) -> None:
    event(result.stop_reason)
    talk = stage.talk
    assert result == talk.result
    if not result.removed:
        assert list(result.messages) == list(talk.messages)[len(talk.messages) - len(result.messages) :]
    assert (result.error is not None) is (result.stop_reason == "error")


def check_the_rules(stage: Stage) -> None:
    talk, model, events = stage.talk, stage.model, stage.events
    assert not talk.is_running
    assert_valid(talk.messages)
    for request in model.requests:
        assert_valid(request.messages)
        ids = [c.id for m in request.messages if m.role == "assistant" for c in m.tool_calls]
        assert len(set(ids)) == len(ids)
    if stage.requests_at_the_abort is not None:
        assert len(model.requests) == stage.requests_at_the_abort, "nothing leaves after an abort"

    told = Counter(e.type for e in events)
    begun = {(e.run_id, e.call_id) for e in events if e.type == "tool_execution_start"}
    ended = Counter((e.run_id, e.call_id) for e in events if e.type == "tool_execution_end" and e.outcome != "pending")
    assert set(ended.values()) <= {1}
    if not stage.cancelled:  # a run that is cancelled by its caller says nothing more
        assert told["agent_start"] == told["agent_end"]
        assert told["turn_start"] <= told["turn_end"] + stage.given_up, "a turn that waited for nobody has no end"
        assert begun == set(ended)

    kept_out = any(
        act.seam == "on_message" and act.what not in ("steer", "follow_up", "abort", "cancel") for act in stage.story.acts
    )
    if not kept_out and not stage.story.compacts:
        queued = [m.text for m in talk.queued].count("said by a person")
        assert [m.text for m in talk.messages].count("said by a person") + queued == stage.said


@given(STORIES)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_whatever_happens_the_history_is_valid_and_the_talk_can_go_on(story: Story) -> None:
    stage = Stage(story)

    async def perform() -> None:
        tasks = asyncio.all_tasks()
        stage.caller = asyncio.create_task(stage.play())
        try:
            check_the_result(stage, await stage.caller)
        except asyncio.CancelledError:
            stage.cancelled = True
            event("cancelled")
        check_the_rules(stage)
        for _ in range(20):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == tasks, "nothing is left running"
        stage.over = True
        await assert_continuable(stage.talk, stage.model)

    in_virtual_time(perform())
