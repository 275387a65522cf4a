"""`beforehand demo lambdas`: hooks in sandboxes, one in TypeScript and one in Python, and what happens when they break."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..agent import Agent
from ..errors import HookFailed
from ..hooks.hook import Hook
from ..limits import Limits
from ..results import RunResult
from . import lambdas_story as story
from .loopback import Loopback, loopback
from .printer import Printer
from .story import INSTRUCTIONS, MODEL, PROMPT
from .timeline import LEGEND, Timeline

OPENING = (
    "The travel assistant again, over real HTTP on this machine: no network, no key. This time both hooks are lambdas: files\n"
    "in a workspace, each call in a sandbox of its own, from which nothing but that workspace can be reached.\n"
    "lib/company-note.ts puts a note into each request, lib/seats.py stands before the booking."
)


class Act(NamedTuple):
    """One telling: its title, what it is about, what befalls the workspace before it, and how long the first lambda may
    take."""

    title: str
    about: str
    befalls: Callable[[Path], object] = lambda workspace: None
    timeout_ms: int = 10_000


ACTS = (
    Act("Act 1: both lambdas do their work", "The note travels with each request. First class is refused."),
    Act(
        "Act 2: the rule of the gate is gone",
        "Somebody has deleted the file that lib/seats.py reads. It fails, and what it guards does not pass. The run goes on.",
        lambda workspace: (workspace / "rules" / "first-class.txt").unlink(),
    ),
    Act(
        "Act 3: the lambda before the request never ends",
        "Somebody has edited lib/company-note.ts. It is killed after a second, and no request leaves.",
        lambda workspace: (workspace / "lib" / "company-note.ts").write_text(story.RUNS_WILD, encoding="utf-8"),
        1_000,
    ),
)


async def play(printer: Printer) -> list[RunResult]:
    """All acts, each in a workspace of its own. What each came to. `HookDefinitionError` where nothing can run a lambda."""
    with tempfile.TemporaryDirectory(prefix="beforehand-") as folder:
        make_agent(_workspace(Path(folder)), ACTS[0], Timeline(), {"model": "openai:none", "api_key": ""})  # if not, at once
    printer.line(OPENING)
    printer.line(LEGEND, "dim")
    results = []
    for act in ACTS:
        with tempfile.TemporaryDirectory(prefix="beforehand-") as folder:
            workspace = _workspace(Path(folder))
            act.befalls(workspace)
            async with loopback(story.reply_to) as endpoint:
                results.append(await _perform(printer, act, workspace, endpoint))
    return results


async def _perform(printer: Printer, act: Act, workspace: Path, endpoint: Loopback) -> RunResult:
    """One act, told while it happens."""
    printer.heading(act.title, act.about)
    timeline = Timeline()
    model = {"model": f"openai:{MODEL}", "base_url": endpoint.base_url, "api_key": ""}
    async with make_agent(workspace, act, timeline, model) as agent:
        talk = agent.conversation()
        stream = talk.stream(PROMPT)
        try:
            async for event in stream:
                timeline(event)
                for row in timeline.take():
                    printer.show(row)
        except HookFailed:
            pass  # the rows have told it
    result = talk.result
    if result is None:
        raise RuntimeError("a stream that came to its end leaves a result")
    noted = sum(1 for body in endpoint.received if story.NOTE in body)
    kept = sum(1 for message in talk.messages if story.NOTE in message.text)
    printer.line()
    printer.line(f"Decisions on record: {', '.join(f'{d.verdict} by {d.hook}' for d in result.decisions)}.", "bold")
    printer.line(
        f"The endpoint received {len(endpoint.received)} requests, {noted} of them with the note; of the conversation's "
        f"{len(talk.messages)} messages {kept} hold it.", "bold",
    )  # fmt: skip
    return result


def make_agent(workspace: Path, act: Act, timeline: Timeline, model: dict[str, Any]) -> Agent:
    """The agent whose two hooks are lambdas in this workspace."""
    from ..workspace import Lambda, Workspace

    place = Workspace(workspace)
    gate = Lambda("lib/seats.py:gate", seam="before_tool_call", workspace=place, tools=["book_ticket"], timeout=10)
    note = {"source": "lib/company-note.ts:transform", "scope": "all", "timeout_ms": act.timeout_ms}
    return Agent(
        **model, instructions=INSTRUCTIONS, tools=[story.book_ticket], hooks=[watched(gate, timeline)], workspace=place,
        pre_llm_hook=note, limits=Limits(max_turns=8, slow_hook_ms=None), name="travel assistant",
    )  # fmt: skip


def watched(gate: Hook, timeline: Timeline) -> Hook:
    """The same lambda; that it let something pass becomes a row too."""
    function: Any = gate.fn

    async def fn(context: Any) -> Any:
        decision = await function(context)
        if not decision:
            timeline.passed(gate.name, gate.seam, context.call_id)
        return decision

    fn.close_with_agent = function.close_with_agent  # type: ignore[attr-defined]
    return msgspec.structs.replace(gate, fn=fn)


def _workspace(folder: Path) -> Path:
    """The folder `agent` in this one, with the files of the story."""
    for path, text in story.FILES.items():
        file = folder / "agent" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder / "agent"
