"""Runs put together at random that depend on nothing but what is asked: the same questions get the same answers.

So a run that was cut anywhere and resumed must come to what it would have come to without the cut.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from beforehand import (
    Agent, Answer, Approve, Ask, AssistantMessage, Block, Continue, CustomMessage, Deny, Drop, Edit, End, Hold, Hook, Image,
    Interrupt, Limits, Price, Queue, Replace, Resend, RunResult, Steer, Text, ToolCall, ToolContext, ToolResult, Usage,
    UserMessage, tool,
)  # fmt: skip
from beforehand.journal import Journal, Record
from beforehand.seams import SEAMS
from beforehand.testing import FunctionModel, ScriptedModel, error, finish, text, thinking, tool_call

from journal.cutting import replies_of

KEY = "sk-0123456789abcdefABCDEF-never-written"
PIXEL = Image("aVZCT1I=")


def rewritten(context: Any, content: Any) -> Replace:
    return Replace(message=msgspec.structs.replace(context.message, content=content))


# What a hook may do, by name: plain values, or functions of what it is asked about.
VERDICTS: dict[str, list[Any]] = {
    "before_run": [Block("no"), Replace(messages=[UserMessage("another prompt"), CustomMessage("memo", "a", {"a": [1]})])],
    "before_turn": [End("no")],
    "prepare_request": [
        Replace(thinking_level="high"), Replace(thinking_level="high", once=True),
        lambda c: Replace(context=msgspec.structs.replace(c.context, system="another system")),
        lambda c: Replace(context=msgspec.structs.replace(c.context, messages=[*c.context.messages, UserMessage("note")])),
        lambda c: Replace(context=msgspec.structs.replace(c.context, messages=[UserMessage("only this")]), once=True),
        lambda c: Replace(context=msgspec.structs.replace(c.context, tools=c.context.tools[:2])),
    ],
    "transform_context": [
        Replace(messages=[UserMessage("another")]),
        lambda c: Replace(messages=[*c.messages, UserMessage("a note", origin="hook")]),
    ],
    "convert_to_llm": [
        lambda c: Replace(messages=[UserMessage("told") if isinstance(m, CustomMessage) else m for m in c.messages]),
    ],
    "before_provider_call": [lambda c: Replace(request=msgspec.structs.replace(c.request, system="as changed at 6"))],
    "get_api_key": [Replace(key=KEY)],
    "authorize_request": [
        Block("no"), Answer("made up"), Answer(AssistantMessage((Text("calls"), ToolCall("same", "work", '{"x": 5}')))),
    ],
    "on_chunk": [
        Hold(3), Drop(), Interrupt("no"), Interrupt("no", resend=True), Interrupt("no", keep="aborted"),
        lambda c: Replace(text=c.pending.upper()) if c.kind == "text" else None,
    ],
    "on_message": [
        Interrupt("no"), Interrupt("no", resend=True), Interrupt("no", keep="aborted"),
        lambda c: rewritten(c, "rewritten") if c.message.role in ("user", "tool") else None,
        lambda c: rewritten(c, (Text("new"), PIXEL)) if c.message.role == "user" else None,
        lambda c: Replace(message=msgspec.structs.replace(c.message, content=(*c.message.content, Text(" and more"))))
        if c.message.role == "assistant" else None,
    ],
    "prepare_tool_call": [Replace(args={"x": 1}), Replace(args={"x": "no number"})],
    "before_tool_call": [
        Block("no"), Block("no", terminate=True), Ask("May it?"), Ask("Really?", options=("yes", "no")), Steer("elsewhere"),
        Answer("made up"), Answer(ToolResult("made", details={"b": 2})), Interrupt("no"), Interrupt("no", resend=True),
    ],
    "after_tool_call": [
        Replace(content="rewritten"), Replace(details={"seen": [1, None]}), Replace(content=(Text("see"), PIXEL)),
        Replace(terminate=True), Interrupt("no"), Interrupt("no", resend=True), Replace(usage=Usage(1, 1)),
    ],
    "finish_turn": [End("no"), Continue()],
    "prepare_next_turn": [
        Replace(add_messages=[UserMessage("added")]), Replace(thinking_level="low"),
        lambda c: Replace(context=msgspec.structs.replace(c.context, system="later system")),
        lambda c: Replace(context=msgspec.structs.replace(c.context, messages=[*c.context.messages, UserMessage("kept in")])),
    ],
}  # fmt: skip
EFFECTS = [Queue("queued by a hook"), Queue(CustomMessage("memo", "n", {"n": 1})), Resend()]
SEAM_NAMES = [spec.name for spec in SEAMS if spec.name != "before_compaction"]
NUMBERS = {spec.name: spec.number for spec in SEAMS}


class Act(msgspec.Struct, frozen=True):
    """One hook, and what it does whenever it is asked in one turn (at 10: about one kind of message)."""

    seam: str
    turn: int
    choice: int
    effect: int | None
    role: str
    on_error: Any = "closed"

    def what(self, context: Any) -> Any:
        options = [*VERDICTS.get(self.seam, []), "raise", "nothing"]
        chosen = options[self.choice % len(options)]
        if chosen == "raise":
            raise RuntimeError("broken hook")
        if chosen == "nothing":
            chosen = None
        elif callable(chosen):
            chosen = chosen(context)
        if self.effect is not None and 8 <= NUMBERS[self.seam] <= 14:
            return [*([chosen] if chosen is not None else []), EFFECTS[self.effect % len(EFFECTS)]]
        return chosen


CALLS = ["work", "look", "fail", "stop", "picture", "script", "child", "nobody", "invalid", "slow"]


def call(name: str) -> Any:
    arguments: Any = {"child": {"prompt": "go"}, "invalid": {"x": "no number"}, "fail": {}, "stop": {}}.get(name, {"x": 3})
    return tool_call("work" if name == "invalid" else name, arguments, id="same")


REPLIES = st.one_of(
    st.just([text("hello "), text("there"), finish("stop", Usage(10, 3))]),
    st.just([thinking("hm"), text("hello")]),
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=3).map(lambda names: [text("I will"), *map(call, names)]),
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=2).map(lambda names: [*map(call, names), finish(None, Usage(5, 5))]),
    st.just([text("half"), call("work"), finish("length")]),
    st.just([text("half"), error("down")]),
)


class Story(msgspec.Struct, frozen=True):
    replies: list[Any]
    acts: list[Act]
    mode: str
    listened: bool
    inherit: bool
    dynamic: bool
    answers: list[Any]
    max_turns: int | None


ACTS = st.builds(
    Act, seam=st.sampled_from(SEAM_NAMES), turn=st.integers(0, 3), choice=st.integers(0, 10),
    effect=st.sampled_from([None, None, 0, 1, 2]), role=st.sampled_from(["user", "assistant", "tool", "custom"]),
    on_error=st.sampled_from(["closed", "open", "abort"]),
)  # fmt: skip
STORIES = st.builds(
    Story, replies=st.lists(REPLIES, min_size=1, max_size=4), acts=st.lists(ACTS, max_size=5),
    mode=st.sampled_from(["parallel", "sequential"]), listened=st.booleans(), inherit=st.booleans(), dynamic=st.booleans(),
    answers=st.lists(st.sampled_from([Approve(), Deny("no"), Edit({"x": 2}), Edit({"x": "no"}), None]), min_size=3, max_size=3),
    max_turns=st.sampled_from([2, 6]),
)  # fmt: skip


class Play:
    """A story in one process: the agent, what its tools did, whom it asked."""

    def __init__(self, story: Story, path: Path, before: list[Record], raw: bool = True) -> None:
        self.story = story
        self.asked: Counter[tuple[str, str, int, str | None]] = Counter()
        self.effects: list[str] = []
        self.counters: dict[int, Any] = {}
        replies = [*story.replies, *[text("end")] * 9]
        self.model = ScriptedModel(replies[replies_of(before, "R") :])
        self.agent = Agent(
            model=self.model, tools=self.tools(), hooks=[*map(self.hook, story.acts), *self.watchers()], tool_mode=story.mode,
            limits=Limits(max_turns=story.max_turns), journal=Journal(path, durability="normal", raw=raw),
            instructions=["Be brief.", self.instructions] if story.dynamic else "Be brief.",
            prices={"scripted": Price(1.0, 2.0)}, listeners=[lambda event: None] if story.listened else [],
        )  # fmt: skip

    def instructions(self, run: Any) -> str:
        return f"turn {run.turn}"

    def tools(self) -> list[Any]:
        def did(ctx: ToolContext) -> None:
            self.effects.append(ctx.idempotency_key)

        @tool
        async def work(ctx: ToolContext, x: int = 0) -> str:
            did(ctx)
            return f"worked {x}"

        @tool(replay="safe")
        async def look(ctx: ToolContext, x: int = 0) -> dict[str, Any]:
            did(ctx)
            return {"saw": x}

        @tool
        async def fail(ctx: ToolContext) -> str:
            did(ctx)
            raise ValueError("broken")

        @tool
        async def stop(ctx: ToolContext) -> ToolResult:
            did(ctx)
            return ToolResult("stopped", terminate=True, usage=Usage(2, 1))

        @tool(replay="safe")
        async def picture(ctx: ToolContext, x: int = 0) -> ToolResult:
            did(ctx)
            return ToolResult((Text("a picture"), PIXEL), details={"x": x})

        @tool
        async def slow(ctx: ToolContext, x: int = 0) -> str:
            did(ctx)
            for _ in range(3):
                await asyncio.sleep(0)
            return f"slowly {x}"

        @tool(replay="safe")
        async def script(ctx: ToolContext, x: int = 0) -> str:
            did(ctx)
            first = await ctx.call_tool("work", {"x": 7})
            second = await ctx.call_tool("look", {"x": 8})
            return f"{first.text} {second.text} {first.outcome}"

        grandchild = Agent(model=FunctionModel(_next_of([[call("work")], text("grandchild")])), tools=[work])
        child = Agent(
            model=FunctionModel(_next_of([[text("x"), call("work"), call("look")], [call("grand")], text("child")])),
            tools=[work, look, grandchild.as_tool("grand", "Helps.", inherit=self.story.inherit)],
        )
        return [work, look, fail, stop, picture, slow, script, child.as_tool("child", "Helps.", inherit=self.story.inherit)]

    def hook(self, act: Act) -> Hook:
        async def fn(context: Any) -> Any:
            if context.run.turn != act.turn or (act.seam == "on_message" and context.message.role != act.role):
                return None
            return act.what(context)

        return Hook(seam=act.seam, fn=fn, on_error=act.on_error, name=f"{act.seam} {act.turn} {act.choice}")

    def watchers(self) -> list[Hook]:
        return [Hook(seam=name, fn=self.watch(name), name=f"watch {name}", order=-1) for name in SEAM_NAMES]

    def watch(self, seam: str) -> Any:
        def fn(context: Any) -> None:
            call_id = getattr(context, "call_id", None) if 11 <= NUMBERS[seam] <= 13 else None
            self.asked[context.run.run_id, seam, context.run.turn, call_id] += 1
            if seam == "after_turn" and context.run.run_id == "R":
                seen = context.run._run.irreversible
                calls = sorted(context.run.calls, key=lambda call: call.call_id)  # those made side by side come in any order
                self.counters[context.run.turn] = (
                    seen.requests_sent, seen.characters_released, seen.tools_run, calls, context.run.usage, context.run.cost,
                )  # fmt: skip

        return fn

    def answers(self, result: RunResult) -> dict[str, Any]:
        given = {p.call_id: self.story.answers[len(p.call_id) % 3] for p in result.pending}
        return {call_id: answer for call_id, answer in given.items() if answer is not None}

    async def to_the_end(self, result: RunResult) -> RunResult:
        for _ in range(20):
            if result.stop_reason != "suspended":
                return result
            result = await self.agent.resume("R", self.answers(result), check=False)
        raise AssertionError("it asks for ever")

    async def begin(self) -> RunResult:
        prompts = [UserMessage("go"), CustomMessage("memo", "k", {"k": 1}), UserMessage((Text("see"), PIXEL))]
        return await self.to_the_end(await self.agent.run(prompts, run_id="R", check=False))

    async def go_on(self) -> RunResult:
        return await self.to_the_end(await self.agent.resume("R", check=False))


def _next_of(replies: list[Any]) -> Any:
    """A model whose reply depends on nothing but how far the conversation it is shown has come."""

    def reply(request: Any) -> Any:
        return replies[min(sum(m.role == "assistant" for m in request.messages), len(replies) - 1)]

    return reply


def came_to(result: RunResult) -> dict[str, Any]:
    """What must not depend on where a run was cut."""
    made = [msgspec.structs.replace(d, duration=0.0) for d in result.decisions if d.verdict != "Repeated"]
    made.sort(key=lambda d: d.run_id)  # sub-agents side by side end in any order
    decisions = [d for d in made if d.seam != "repair"], [d for d in made if d.seam == "repair"]
    return {
        "messages": list(result.messages), "text": result.text, "usage": result.usage, "cost": round(result.cost, 9),
        "stop_reason": result.stop_reason, "reason": result.reason, "turns": result.turns,
        "error": result.error and (type(result.error).__name__, str(result.error)), "decisions": decisions,
    }  # fmt: skip
