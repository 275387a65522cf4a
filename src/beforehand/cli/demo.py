"""`beforehand demo`: the train story over real HTTP on this machine. No network, no key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..agent import Agent
from ..errors import UsageError
from ..decisions import Approve, HumanAnswer, PendingApproval
from ..hooks.hook import Hook
from ..limits import Limits
from ..models.base import Model
from ..results import RunResult
from . import story
from .loopback import loopback
from .printer import Printer
from .terminal import refuse_together
from .timeline import LEGEND, Timeline, answered_row

if TYPE_CHECKING:
    from rich.console import Console

POLICY = (
    "There are two hooks. The first is asked before a tool runs, and refuses first class. "
    "The second is asked before the model reads a result, and blanks identity numbers."
)
MANAGER = "The same story, but the first hook asks a manager instead of refusing. The run waits for the answer."
SCRIPTED = "The travel assistant runs against a scripted model, over real HTTP on this machine: no network, no key."
LOCAL = (
    "The travel assistant runs on a real model on this machine: SmolLM2 with 135 million parameters. It is far too small to be\n"
    "trusted: a grammar forces the form of its calls, one hook offers it one step at a time, another speaks in its place at the\n"
    "end, where it would make things up. The two hooks are the same. What it asks for is its own choice."
)


class Act(NamedTuple):
    """One telling of the story: its title, what it is about, and which hook is asked before a tool runs."""

    title: str
    about: str
    gate: Hook


ACTS = (
    Act("Act 1: first class is refused", POLICY, story.first_class_is_refused),
    Act("Act 2: a manager is asked", MANAGER, story.first_class_needs_a_manager),
)


STORIES = ("lambdas",)
"""What can be told beside the story that is told when nothing is named."""


async def show(console: Console | None, svg: Path | None, local: bool, which: str | None = None) -> None:
    """Play a story to `console` (plain text without one), and draw it into the file `svg`. Raises `UsageError`."""
    if which is not None and which not in STORIES:
        raise UsageError(f"there is no demonstration {which!r}: expected {' or '.join(STORIES)}, or nothing for the first one")
    if local:
        refuse_together("--local", {f"demo {which}": which is not None})
        from ..models.local_llama import LocalLlama

        await play_local(Printer(console), LocalLlama())
        return
    tell = play
    if which is not None:
        from .lambdas_demo import play as tell
    if svg is not None:
        from .picture import drawing

        with drawing(svg) as canvas:
            await tell(Printer(canvas))
        return
    await tell(Printer(console))


async def play(printer: Printer) -> list[RunResult]:
    """Both acts with the scripted model. What each came to."""
    _opening(printer, SCRIPTED)
    results = []
    for act in ACTS:
        async with loopback(story.reply_to) as endpoint:
            # The empty key means none: one of the environment is not sent anywhere here.
            model = {"model": f"openai:{story.MODEL}", "base_url": endpoint.base_url, "api_key": ""}
            results.append(await perform(printer, act, model))
        leaked = sum(1 for body in endpoint.received if story.DNI.search(body))
        received = len(endpoint.received)
        printer.line(f"The endpoint received {received} requests, {leaked} of them with an identity number.", "bold")
    return results


async def play_local(printer: Printer, model: Model) -> list[RunResult]:
    """Both acts with a real model on this machine."""
    from .small import one_step_at_a_time, the_tool_speaks_for_itself

    _opening(printer, LOCAL)
    hooks = (one_step_at_a_time, the_tool_speaks_for_itself)
    return [await perform(printer, act, {"model": model}, hooks) for act in ACTS]


async def perform(printer: Printer, act: Act, model: Mapping[str, Any], hooks: Sequence[Hook] = ()) -> RunResult:
    """One act, told while it happens."""
    printer.heading(act.title, act.about)
    timeline = Timeline()
    async with make_agent(act, timeline, model, hooks) as agent:
        talk = agent.conversation()
        async for event in talk.stream(story.PROMPT):
            timeline(event)
            for row in timeline.take():
                printer.show(row)
    result = talk.result
    if result is None:
        raise RuntimeError("a stream that came to its end leaves a result")
    printer.line()
    printer.line(f"Decisions on record: {', '.join(f'{d.verdict} by {d.hook}' for d in result.decisions)}.", "bold")
    return result


def make_agent(act: Act, timeline: Timeline, model: Mapping[str, Any], hooks: Sequence[Hook] = ()) -> Agent:
    """The agent of the story with its two hooks, and `hooks` before them. `model` says which, and where."""

    def manager(question: PendingApproval) -> HumanAnswer:
        answer = Approve()
        timeline.add(answered_row("manager", question, answer))
        return answer

    own = [watched(act.gate, timeline), watched(story.identity_numbers_stay_here, timeline)]
    return Agent(
        **model, instructions=story.INSTRUCTIONS, tools=[story.find_trains, story.book_ticket], hooks=[*hooks, *own],
        on_ask=manager, limits=Limits(max_turns=8), name="travel assistant",
    )  # fmt: skip


def watched(hook: Hook, timeline: Timeline) -> Hook:
    """The same hook; that it let something pass becomes a row too."""

    def fn(context: Any) -> Any:
        decision = hook(context)
        if decision is None:
            timeline.passed(hook.name, hook.seam, context.call_id)
        return decision

    return msgspec.structs.replace(hook, fn=fn)


def _opening(printer: Printer, text: str) -> None:
    printer.line(text)
    printer.line(LEGEND, "dim")
