"""`beforehand demo`: the train story over real HTTP on this machine. No network, no key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..agent import Agent
from ..decisions import Approve, HumanAnswer, PendingApproval
from ..hooks.hook import Hook
from ..models.base import Model
from ..results import RunResult
from . import story
from .loopback import loopback
from .printer import Printer
from .timeline import Timeline

if TYPE_CHECKING:
    from rich.console import Console

POLICY = (
    "Two hooks are the booths on the line. The first stands before a tool runs and refuses first class. "
    "The second stands before the model reads a result and stamps identity numbers over."
)
MANAGER = "The same story, but the first booth asks a manager instead of refusing. The run waits for the answer."
KINDS = "event: what listeners see   hook: your functions that decide   code: your tools   person: whoever is asked"
SCRIPTED = "The travel assistant runs against a scripted model, over real HTTP on this machine: no network, no key."
LOCAL = (
    "The travel assistant runs on a real model on this machine: SmolLM2 with 135 million parameters. It is far too small to be\n"
    "trusted: a grammar forces the form of its calls, one hook offers it one step at a time, another speaks in its place at the\n"
    "end, where it would make things up. The booths are the same. What it asks for is its own choice."
)


class Act(NamedTuple):
    """One telling of the story: its title, what it is about, and who holds the first booth."""

    title: str
    about: str
    booth: Hook


ACTS = (
    Act("Act 1: first class is refused", POLICY, story.first_class_is_refused),
    Act("Act 2: a manager is asked", MANAGER, story.first_class_needs_a_manager),
)


async def show(console: Console | None, svg: Path | None, local: bool) -> None:
    """Play the story to `console` (plain text without one), and draw it into the file `svg`."""
    if local:
        from ..models.local_llama import LocalLlama

        await play_local(Printer(console), LocalLlama())
        return
    if svg is not None:
        from .picture import drawing

        with drawing(svg) as canvas:
            await play(Printer(canvas))
        return
    await play(Printer(console))


async def play(printer: Printer) -> list[RunResult]:
    """Both acts with the scripted model. What each came to."""
    _opening(printer, SCRIPTED)
    results = []
    for act in ACTS:
        printer.heading(act.title, act.about)
        async with loopback(story.reply_to) as endpoint:
            # The empty key means none: one of the environment is not sent anywhere here.
            agent = make_agent(act, Timeline(printer.show), model=f"openai:{story.MODEL}", base_url=endpoint.base_url, api_key="")
            async with agent:
                results.append(await agent.run(story.PROMPT))
            leaked = sum(1 for body in endpoint.received if story.DNI.search(body))
        printer.line()
        printer.line(f"The endpoint received {len(endpoint.received)} requests, {leaked} of them with an identity number.", "bold")
        _records(printer, results[-1])
    return results


async def play_local(printer: Printer, model: Model) -> list[RunResult]:
    """Both acts with a real model on this machine."""
    from .small import one_step_at_a_time, the_tool_speaks_for_itself

    _opening(printer, LOCAL)
    results = []
    for act in ACTS:
        printer.heading(act.title, act.about)
        hooks = (one_step_at_a_time, the_tool_speaks_for_itself)
        async with make_agent(act, Timeline(printer.show), hooks, model=model) as agent:
            results.append(await agent.run(story.PROMPT))
        printer.line()
        _records(printer, results[-1])
    return results


def make_agent(act: Act, timeline: Timeline, hooks: Sequence[Hook] = (), **model: Any) -> Agent:
    """The agent of the story with both booths held, and `hooks` before them."""

    def manager(question: PendingApproval) -> HumanAnswer:
        answer = Approve()
        timeline.answered("manager", question, answer)
        return answer

    booths = [watched(act.booth, timeline), watched(story.identity_numbers_stay_here, timeline)]
    return Agent(
        **model, instructions=story.INSTRUCTIONS, tools=[story.find_trains, story.book_ticket], hooks=[*hooks, *booths],
        listeners=[timeline], on_ask=manager, name="travel assistant",
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
    printer.line(KINDS, "dim")


def _records(printer: Printer, result: RunResult) -> None:
    printer.line(f"Decisions on record: {', '.join(f'{d.verdict} by {d.hook}' for d in result.decisions)}.", "bold")
