"""What an observer is told, and that nothing it does is felt by the run."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from beforehand import Agent, ConfigError, ToolContext, tool
from beforehand.observer import CallBegin, Observer, RequestBegin, RequestEnd, RunBegin, RunEnd, RunObserver
from beforehand.otel import OpenTelemetry
from beforehand.testing import ScriptedModel, text, tool_call


@tool
async def work() -> str:
    return "worked"


@tool
async def outer(ctx: ToolContext) -> str:
    return (await ctx.call_tool("work", {})).text


def agent(*listeners: Any) -> Agent:
    return Agent(model=ScriptedModel([tool_call("outer", id="c1"), text("end")]), tools=[work, outer], listeners=listeners)


class Notes(Observer):
    """Writes down what it is told. `fails` names the method that raises."""

    def __init__(self, fails: str = "") -> None:
        self.told: list[str] = []
        self.fails = fails

    def note(self, what: str) -> None:
        self.told.append(what)
        if what.partition(" ")[0] == self.fails:
            raise RuntimeError("an observer's own")

    def begin(self, run: RunBegin) -> RunObserver:
        self.note(f"begin {run.agent}")
        return Watch(self)


class Watch(RunObserver):
    events: ClassVar[frozenset[str]] = frozenset({"turn_start", "tool_execution_start"})

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def hear(self, event: Any) -> None:
        self.notes.note(f"hear {event.type}")

    def request_begins(self, begin: RequestBegin) -> None:
        self.notes.note(f"request_begins {begin.number} {begin.kind}")

    def enter_request(self, number: int) -> Callable[[], Any]:
        self.notes.note(f"enter_request {number}")
        return lambda: self.notes.note(f"leave_request {number}")

    def request_ends(self, end: RequestEnd) -> None:
        self.notes.note(f"request_ends {end.number} {end.stop_reason}")

    def enter_call(self, begin: CallBegin) -> Callable[[], Any]:
        self.notes.note(f"enter_call {begin.call_id}")
        return lambda: self.notes.note(f"leave_call {begin.call_id}")

    def ends(self, end: RunEnd) -> None:
        self.notes.note(f"ends {end.stop_reason}")


TOLD = [
    "begin agent",
    "hear turn_start", "request_begins 1 turn", "enter_request 1", "leave_request 1", "request_ends 1 tool_calls",
    "hear tool_execution_start", "enter_call c1",
    "hear tool_execution_start", "enter_call c1/1", "leave_call c1/1", "leave_call c1",
    "hear turn_start", "request_begins 2 turn", "enter_request 2", "leave_request 2", "request_ends 2 stop",
    "ends completed",
]  # fmt: skip


async def test_an_observer_is_told_of_everything_in_order() -> None:
    notes = Notes()
    await agent(notes).run("go")
    assert notes.told == TOLD


@pytest.mark.parametrize(
    "method",
    ["begin", "hear", "request_begins", "enter_request", "leave_request", "request_ends", "enter_call", "leave_call", "ends"],
)
async def test_an_observer_that_fails_is_logged_and_not_felt(method: str, caplog: pytest.LogCaptureFixture) -> None:
    notes, other = Notes(method), Notes()
    caplog.set_level(logging.ERROR, "beforehand")
    result = await agent(notes, other).run("go")

    assert (result.stop_reason, result.text) == ("completed", "end")
    assert other.told == TOLD
    assert "an observer's own" in caplog.text
    not_entered = method.replace("enter", "leave")  # there is nothing to take back
    expected = TOLD[:1] if method == "begin" else [told for told in TOLD if method == not_entered or not_entered not in told]
    assert notes.told == expected


async def test_an_observer_may_leave_a_run_unwatched() -> None:
    class Blind(Observer):
        def begin(self, run: RunBegin) -> None:
            return None

    assert (await agent(Blind()).run("go")).text == "end"


async def test_an_observer_that_makes_something_else_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Observer):
        def begin(self, run: RunBegin) -> Any:
            return self

    class Deaf(Observer):
        def begin(self, run: RunBegin) -> RunObserver:
            made = Watch(Notes())
            made.events = None  # type: ignore[assignment,misc]
            return made

    assert (await agent(Wrong(), Deaf()).run("go")).text == "end"
    assert "Wrong.begin() returned a Wrong: expected a RunObserver or None" in caplog.text
    assert "'NoneType' object is not iterable" in caplog.text


async def test_an_observer_without_begin_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    await agent(Observer()).run("go")
    assert "Observer does not implement begin()" in caplog.text


async def test_a_run_observer_need_not_care_about_anything() -> None:
    class Idle(Observer):
        def begin(self, run: RunBegin) -> RunObserver:
            return RunObserver()

    assert (await agent(Idle()).run("go")).text == "end"


async def test_one_talk_can_be_observed_until_one_says_so() -> None:
    notes, others = Notes(), Notes()
    model = ScriptedModel([text("one"), text("two"), text("three")])
    plan = Agent(model=model, listeners=[others])
    talk = plan.conversation()
    stop = talk.subscribe(notes)
    talk.subscribe(notes)  # once is enough
    await talk.run("a")
    stop()
    await talk.run("b")
    await plan.run("c")
    assert [what for what in notes.told if what.startswith("begin")] == ["begin agent"]
    assert [what for what in others.told if what.startswith("begin")] == ["begin agent"] * 3


async def test_after_the_run_nothing_is_left_of_an_observer() -> None:
    talk = agent(Notes()).conversation()
    await talk.run("go")
    assert not talk._events.heard
    assert not any(talk._events.takers.values())


async def test_a_span_processor_that_fails_does_not_reach_the_run() -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("broken")

        def on_end(self, span: Any) -> None:
            raise RuntimeError("broken")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    assert (await agent(OpenTelemetry(provider)).run("go")).text == "end"


# --- making one ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: OpenTelemetry("http://collector:4318"), "is a str: expected a TracerProvider, or None"),
        (lambda: OpenTelemetry(capture_content="yes"), "capture_content='yes'): expected True or False"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_work_is_refused_with_what_was_expected(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert words in str(caught.value)


def run_script(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_opentelemetry_one_line_says_what_to_install() -> None:
    script = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"  # as if it were not installed
        "from beforehand import ConfigError\n"
        "from beforehand.otel import OpenTelemetry\n"
        "try:\n    OpenTelemetry()\n"
        "except ConfigError as error:\n    print(error, error.__cause__)\n"
    )
    assert run_script(script) == 'tracing needs OpenTelemetry: install the extra "otel" of beforehand None'


def test_an_agent_without_it_loads_nothing_of_it() -> None:
    script = (
        "import asyncio, sys\n"
        "from beforehand import Agent\n"
        "from beforehand.testing import ScriptedModel, text\n"
        "asyncio.run(Agent(model=ScriptedModel([text('hi')])).run('go'))\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'beforehand.otel' in name])\n"
    )
    assert run_script(script) == "[]"


def test_without_the_sdk_it_watches_nothing() -> None:
    script = (
        "import sys\n"
        "from beforehand.observer import RunBegin\n"
        "from beforehand.otel import OpenTelemetry\n"
        "begin = RunBegin(run_id='r', agent='a', model='m', provider='p', conversation_id='c')\n"
        "print('opentelemetry.sdk' in sys.modules, OpenTelemetry().begin(begin))\n"
    )
    assert run_script(script) == "False None"
