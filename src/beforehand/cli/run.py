"""`beforehand run`: one prompt on a real endpoint. Text to stdout as it comes, what happened and who decided to stderr."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..agent import Agent
from ..assembly import tools_in_file
from ..conversation import Conversation
from ..errors import ConfigError, RunError
from ..events import Event, MessageEnd, MessageRetracted, MessageUpdate
from ..eventstream import EventStream
from ..results import RunResult
from .asking import Asker
from .printer import Printer
from .terminal import INTERRUPTED, STOPPED, complain, console_for, json_line, print_json, safe, to_answer, to_resume
from .timeline import Row, Timeline, Tone

if TYPE_CHECKING:
    from ..journal.store import Store

WIRE = ("request_sent", "response_received")


class Job(NamedTuple):
    """What the command line asked for."""

    prompt: str
    model: str | None
    base_url: str | None = None
    hooks: tuple[Path, ...] = ()
    tools: tuple[Path, ...] = ()
    instructions: str | None = None
    max_turns: int | None = None
    as_json: bool = False
    wire: bool = False
    plain: bool = False
    project: Path | None = None
    journal: Any = None
    """The `Journal` in which the run is recorded, if it is."""


Begin = Callable[[Conversation, Asker, Sequence[str]], Awaitable[EventStream]]
"""What begins the run: given the talk, who can be asked, and the opt-in events to be included."""


async def run_job(job: Job) -> int:
    """Do it. Returns the exit code of a run that did not fail; raises what made it fail."""

    async def begin(talk: Conversation, asker: Asker, events: Sequence[str]) -> EventStream:
        return talk.stream(job.prompt, events=events)

    return await play(job, begin)


async def play(job: Job, begin: Begin, recorded: str | None = None) -> int:
    """Show the run that `begin` begins (in the loop that the `recorded` one is of), as it happens. Returns its exit code."""
    out = JsonLines() if job.as_json else Screen(job.plain)
    stopping = asyncio.Event()
    asker = Asker(out.timeline, stopping)
    async with agent_for(job, asker) as agent:
        main = agent.conversation()
        talk = main if recorded is None else await main.of_recorded(recorded)
        wire = () if not job.wire else (*WIRE, "provider_event") if job.as_json else WIRE
        with _ctrl_c(talk, stopping), rule_lines(out.timeline):
            try:
                async for event in await begin(talk, asker, wire):
                    out.event(event)
                await main.wait_for_loops()
            except RunError:
                out.close()
                raise
        out.close()
        if talk.result is None:
            return STOPPED
        out.end(talk.result)
        return close_report(talk.result, job.journal)


def agent_for(job: Job, asker: Asker) -> Agent:
    """The agent of the command line. What it names counts instead of what the project file says; hooks and tools add up."""
    given = {"model": job.model, "base_url": job.base_url, "instructions": job.instructions, "journal": job.journal}
    more: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    more["tools"] = [tool for path in job.tools for tool in tools_in_file(path)]
    more["hooks"] = job.hooks
    more["on_ask"] = asker if job.journal is None or asker.can_ask else None  # a recorded run can wait for somebody else
    if job.project is None:
        if job.model is None:
            raise ConfigError("no model: give --model openai:NAME, or --project with a project file that names one")
        agent = Agent(**more)
    else:
        agent = Agent.from_project(job.project, **more)
    return agent if job.max_turns is None else agent.replace(limits=agent.plan.limits.with_(max_turns=job.max_turns))


def close_report(result: RunResult, journal: Store | None = None) -> int:
    """Say on stderr why the run stopped, where it did not simply end. Returns the exit code.

    `journal` is where the run is on record, if it is.
    """
    if result.stop_reason in ("completed", "ended", "length"):
        if result.stop_reason == "length":
            complain("note: the last reply was cut by the model's length limit")
        return 0
    if result.stop_reason == "aborted":
        complain("interrupted: nothing more was sent")
        return INTERRUPTED
    complain(f"stopped ({result.stop_reason}){f': {result.reason}' if result.reason else ''}")
    for pending in result.pending:
        args = msgspec.json.encode(pending.args).decode()
        complain(f"waiting for a person: {pending.name} {args}, asked by {pending.hook}: {pending.prompt} [{pending.call_id}]")
    if result.pending and journal is not None:
        complain(f"{to_answer(result.run_id, result.pending, journal)}, then {to_resume(result.run_id, journal)}")
    return STOPPED


@contextmanager
def _ctrl_c(talk: Conversation, stopping: asyncio.Event) -> Iterator[None]:
    """Ctrl-C aborts the run, which leaves everything in order; a second one does not wait for that."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def stop() -> None:
        if stopping.is_set() and task is not None:
            task.cancel()
        stopping.set()
        talk.abort("Ctrl-C")

    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except NotImplementedError:  # on Windows Ctrl-C cancels the task, and the conversation copes with that too
        yield
        return
    try:
        yield
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class RuleLines(logging.Handler):
    """What rule files log, as rows of the timeline."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def emit(self, record: logging.LogRecord) -> None:
        tone: Tone = "refused" if record.levelno >= logging.WARNING else "plain"
        title = f"rule {record.levelname.lower()}"
        self._timeline.add(Row("hook", title, record.getMessage(), getattr(record, "rule", ""), tone))


@contextmanager
def rule_lines(timeline: Timeline) -> Iterator[None]:
    logger, handler = logging.getLogger("beforehand.rules"), RuleLines(timeline)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class Screen:
    """For people and pipes: the model's text on stdout and nothing else there, the timeline on stderr."""

    def __init__(self, plain: bool) -> None:
        self.timeline = Timeline(streamed=True)
        self._printer = Printer(console_for(sys.stderr, plain), sys.stderr)
        self._turn: Row | None = None
        self._mid_line = self._heard = self._rows = False
        self._safe = sys.stdout.isatty()

    def event(self, event: Event) -> None:
        self._heard = True
        if isinstance(event, MessageUpdate) and event.kind == "text" and event.parent_call_id is None:
            self._head()
            sys.stdout.write(safe(event.delta) if self._safe else event.delta)
            sys.stdout.flush()
            self._mid_line = not event.delta.endswith("\n")
        elif isinstance(event, MessageRetracted | MessageEnd):
            self.close()
        self.timeline(event)
        for row in self.timeline.take():
            self._show(row)

    def _show(self, row: Row) -> None:
        if row.kind == "turn":
            self._turn = row
            return
        self.close()
        self._rows = True
        self._head()
        self._printer.show(row)

    def _head(self) -> None:
        """The heading of the turn that begins, above its text. While there was nothing but talk it needs none."""
        if self._turn is not None and self._rows:
            self.close()
            self._printer.show(self._turn)
        self._turn = None

    def close(self) -> None:
        """End the line of text under way, if there is one."""
        if self._mid_line:
            self._mid_line = False
            sys.stdout.write("\n")
            sys.stdout.flush()

    def end(self, result: RunResult) -> None:
        """The text of a run that was over before, of which nothing was to be heard."""
        if not self._heard and result.text:
            print(safe(result.text) if self._safe else result.text)


class JsonLines:
    """For programs: each event as one line of JSON on stdout."""

    def __init__(self) -> None:
        self.timeline = Timeline()  # takes what people are told, and shows it to nobody

    def event(self, event: Event) -> None:
        print_json([as_json(event)])

    def close(self) -> None:
        pass

    def end(self, result: RunResult) -> None:
        pass


def as_json(event: Event) -> bytes:
    """An event as one line of JSON, its `type` first."""
    fields = {"type": event.type, **{name: getattr(event, name) for name in event.__struct_fields__}}
    return json_line(fields, _shown)


def _shown(value: Any) -> Any:
    """What an application put into an event and JSON does not know."""
    return list(value) if isinstance(value, set | frozenset) else repr(value)
