"""`beforehand run`: one prompt on a real endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Ask, Deny, Edit, PendingApproval, hook, tool
from beforehand.cli.asking import Asker
from beforehand.cli.run import as_json, close_report
from beforehand.cli.timeline import Timeline
from beforehand.events import CustomEvent
from beforehand.frozen import FrozenDict
from beforehand.testing import ScriptedModel, tool_call
from cli.command import COMMAND, KEY, beforehand, calls, endpoint, says

TOOLS = '''
from pathlib import Path
from beforehand import tool

@tool
async def book(seat: str) -> str:
    """Book a seat."""
    Path("booked.txt").write_text(seat)
    return f"booked {seat}, DNI 1.2.3"
'''
REDACT = '''
import re
from beforehand import Replace, hook

@hook.after_tool_call
def redact(outcome):
    return Replace(content=re.sub(r"DNI [\\d.]+", "DNI ***", outcome.text))
'''
ASK = '''
from beforehand import Ask, hook

@hook.before_tool_call
def needs_a_person(call):
    if call.args["seat"] == "first":
        return Ask("Book first class?", options=["yes", "no"])
'''

BOOK = ("run", "Book", "--model", "openai:m", "--tools", "tools.py")
Run = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with these tools and hooks in it."""
    for name, text in (("tools.py", TOOLS), ("redact.py", REDACT), ("ask.py", ASK)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("files")
def test_the_text_goes_to_stdout_and_everything_else_to_stderr(run_here: Run) -> None:
    with endpoint(calls("book", "Just a moment.", seat="4A"), says("You have 4A.")) as server:
        told = run_here(*BOOK, "--base-url", server.url, "--hooks", "redact.py")
    assert told.code == 0
    assert told.out == "Just a moment.\nYou have 4A.\n"
    assert 'model asks for               book(seat="4A")' in told.err
    assert "redact                       after_tool_call: Replace" in told.err
    assert "model reads                  booked 4A, DNI ***" in told.err
    assert "1.2.3" not in told.err
    assert server.requests[1]["messages"][-1]["content"] == "booked 4A, DNI ***"


def test_talk_alone_leaves_stderr_empty() -> None:
    with endpoint(says("Hello there.")) as server:
        told = beforehand("run", "Hi", "--model", "openai:m", "--base-url", server.url, "--instructions", "Be kind.")
    assert (told.returncode, told.stdout, told.stderr) == (0, "Hello there.\n", "")
    assert [message["content"] for message in server.requests[0]["messages"]] == ["Be kind.", "Hi"]


def test_a_dash_reads_the_prompt_from_standard_input() -> None:
    with endpoint(says("Read.")) as server:
        beforehand("run", "-", "--model", "openai:m", "--base-url", server.url, stdin="a long\nprompt")
    assert server.requests[0]["messages"][-1]["content"] == "a long\nprompt"


@pytest.mark.usefixtures("files")
def test_json_prints_each_event_as_one_line_and_nothing_else(run_here: Run) -> None:
    with endpoint(calls("book", seat="4A"), says("You have 4A.")) as server:
        told = run_here(*BOOK, "--base-url", server.url, "--hooks", "redact.py", "--json")
    assert (told.code, told.err) == (0, "")
    events = [json.loads(line) for line in told.out.splitlines()]
    assert events[0]["type"] == "agent_start"
    assert events[-1]["type"] == "agent_end"
    ended = next(event for event in events if event["type"] == "tool_execution_end")
    assert (ended["outcome"], ended["is_error"], ended["result"]["content"]) == ("ran", False, "booked 4A, DNI ***")
    decision = next(event for event in events if event["type"] == "decision")["record"]
    assert (decision["hook"], decision["seam"], decision["verdict"]) == ("redact", "after_tool_call", "Replace")
    assert decision["reversible"]["tools_run"] == 1
    reply = [event["message"] for event in events if event["type"] == "message_end"][-1]
    assert (reply["role"], reply["content"]) == ("assistant", [{"type": "text", "text": "You have 4A."}])


@pytest.mark.parametrize("form", ["--json", "--plain"])
def test_no_key_is_shown_even_when_the_wire_is(run_here: Run, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with endpoint(says("Fine.")) as server:
        told = run_here("run", "Hi", "--model", "openai:m", "--base-url", server.url, "--wire", form)
    assert server.authorizations == [f"Bearer {KEY}"]
    assert KEY not in told.out + told.err
    if form == "--json":
        types = {json.loads(line)["type"] for line in told.out.splitlines()}
        assert {"request_sent", "response_received", "provider_event"} <= types
    else:
        assert f"for m at {server.url}/chat/completions" in told.err
        assert "status 200" in told.err


def test_what_json_does_not_know_is_shown_and_breaks_nothing() -> None:
    odd = {"set": {1}, "object": object(), "bytes": b"x", "nan": float("nan")}
    event = json.loads(as_json(CustomEvent(run_id="r", name="custom.odd", data=odd)))
    assert event["type"] == "custom.odd"
    assert event["data"]["set"] == [1]
    assert event["data"]["object"].startswith("<object object")


def test_an_event_with_half_a_character_is_still_a_line_of_json() -> None:
    event = json.loads(as_json(CustomEvent(run_id="r", name="custom.odd", data={"name": "a\ud800b"})))
    assert event["data"] == {"name": "a\ud800b"}


def test_events_as_json_cannot_steer_the_terminal(run_here: Run) -> None:
    with endpoint(says("a\x9b31m\u202eb")) as server:
        told = run_here("run", "Hi", "--model", "openai:m", "--base-url", server.url, "--json")
    assert told.code == 0 and not {"\x9b", "\u202e"} & set(told.out)
    assert "a\x9b31m\u202eb" in {json.loads(line).get("delta") for line in told.out.splitlines()}


@pytest.mark.usefixtures("files")
def test_a_run_out_of_turns_says_so_and_ends_with_code_9(run_here: Run) -> None:
    with endpoint(calls("book", seat="4A")) as server:
        told = run_here(*BOOK, "--base-url", server.url, "--max-turns", "2")
    assert told.code == 9
    assert told.err.splitlines()[-1].startswith("stopped (max_turns)")
    assert len(server.requests) == 2


def test_a_refused_request_says_who_and_why_and_ends_with_code_9(run_here: Run, files: Path) -> None:
    rule = "from beforehand import Block, hook\n@hook.authorize_request\ndef budget(request):\n    return Block('Spent.')\n"
    (files / "budget.py").write_text(rule)
    with endpoint(says("never")) as server:
        told = run_here(*BOOK, "--base-url", server.url, "--hooks", "budget.py")
    assert (told.code, told.out, server.requests) == (9, "", [])
    assert "budget                       authorize_request: Block: Spent." in told.err
    assert "still ahead: the request leaves; done: nothing" in told.err
    assert told.err.splitlines()[-1] == "stopped (blocked): Spent."


def test_without_a_terminal_a_question_is_refused_and_the_timeline_says_so(run_here: Run, files: Path) -> None:
    with endpoint(calls("book", seat="first"), says("Not booked.")) as server:
        told = run_here(*BOOK, "--base-url", server.url, "--hooks", "ask.py")
    assert told.code == 0
    refusal = "Nobody could be asked: standard input is not a terminal."
    assert f"person nobody                       “Book first class?” declined: {refusal}" in told.err
    assert server.requests[1]["messages"][-1]["content"] == refusal
    assert not (files / "booked.txt").exists()


# --- on a terminal ---


RUN, ARGUMENTS = "run it? [y]es, [n]o, [e]dit: ", "arguments as JSON: "


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input is a terminal; what is written here is typed there."""
    typed_at, end = pty.openpty()
    with open(end) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        yield typed_at
    os.close(typed_at)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y\n", Approve()),
        ("YES\n", Approve()),
        ("n\n|\n", Deny(None)),
        ("n\n|Too dear.\n", Deny("Too dear.")),
        ("maybe\n|no\n|\n", Deny(None)),
        ('e\n|{"seat": "tourist"}\n', Edit({"seat": "tourist"})),
        ("e\n|tourist\n|y\n", Approve()),
        ("\x04", Deny("Nobody approved this call: it was not run.")),
    ],
)
async def test_a_person_answers_by_typing(keyboard: int, capsys: pytest.CaptureFixture[str], typed: str, answer: object) -> None:
    question = PendingApproval(
        call_id="c1", name="book", args=FrozenDict(seat="first"), prompt="First class?", options=("yes", "no"), hook="gate"
    )
    timeline = Timeline()
    asking = asyncio.ensure_future(Asker(timeline, asyncio.Event())(question))
    for line in typed.split("|"):
        os.write(keyboard, line.encode())
    assert await asking == answer
    shown = capsys.readouterr().err
    assert 'gate asks: First class?\n  book {"seat":"first"}\n  options: yes, no\n' in shown
    assert [row.title for row in timeline.take()] == ["you"]


async def test_a_question_is_given_up_when_the_run_is_stopped(keyboard: int) -> None:
    stopping = asyncio.Event()
    question = PendingApproval(call_id="c1", name="book", args=FrozenDict(), prompt="First class?")
    asking = asyncio.ensure_future(Asker(Timeline(), stopping)(question))
    asyncio.get_running_loop().call_soon(stopping.set)
    assert await asking == Deny("Nobody approved this call: it was not run.")
    os.write(keyboard, b"\n")  # lets go of the thread that still reads


class Terminal:
    """A run whose standard input is a terminal: answers each question of the run with the next line."""

    def __init__(self, cwd: Path, *args: str) -> None:
        self.keyboard, end = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, "run", "Book", *args], cwd=cwd, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        os.close(end)
        self.seen, self.waited = "", 0

    def wait_for(self, text: str) -> None:
        """Read stderr until `text` comes, after what was waited for before."""
        while text not in self.seen[self.waited :]:
            piece = os.read(self.process.stderr.fileno(), 4096)
            assert piece, f"{text!r} never came: {self.seen}"
            self.seen += piece.decode()
        self.waited = self.seen.index(text, self.waited) + len(text)

    def type(self, line: str) -> None:
        os.write(self.keyboard, line.encode())

    def end(self) -> int:
        """The exit code, once all output is read."""
        self.seen += self.process.stderr.read().decode()
        code = self.process.wait(timeout=60)
        for pipe in (self.process.stderr, self.process.stdout):
            pipe.close()
        os.close(self.keyboard)
        return code


def test_a_run_waits_at_the_terminal_for_a_person(files: Path) -> None:
    with endpoint(calls("book", seat="first"), says("Done.")) as server:
        run = Terminal(files, "--model", "openai:m", "--base-url", server.url, "--tools", "tools.py", "--hooks", "ask.py")
        for prompt, line in ((RUN, "e\n"), (ARGUMENTS, '{"seat": "tourist"}\n')):
            run.wait_for(prompt)
            assert not (files / "booked.txt").exists()
            run.type(line)
        assert run.end() == 0
    assert (files / "booked.txt").read_text() == "tourist"
    assert "needs_a_person asks: Book first class?" in run.seen
    assert "person you                          “Book first class?” approved with other arguments" in run.seen
    assert "booked tourist" in server.requests[1]["messages"][-1]["content"]


def stalls(gone: threading.Event) -> object:
    """An answer that begins and never ends; `gone` is set when the client has closed the connection."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(b'data: {"choices": [{"index": 0, "delta": {"content": "Once upon"}}]}\n\n')
        handler.wfile.flush()
        handler.connection.recv(1)
        gone.set()

    return answer


def test_ctrl_c_ends_the_run_cleanly_with_code_130_and_closes_the_connection(tmp_path: Path) -> None:
    gone = threading.Event()
    with endpoint(stalls(gone)) as server:
        run = Terminal(tmp_path, "--model", "openai:m", "--base-url", server.url)
        said = os.read(run.process.stdout.fileno(), 9)
        run.process.send_signal(signal.SIGINT)
        assert gone.wait(30)
        assert run.end() == 130
    assert said == b"Once upon"
    assert run.seen == "interrupted: nothing more was sent\n"


def test_ctrl_c_at_a_question_refuses_and_ends_at_once(files: Path) -> None:
    with endpoint(calls("book", seat="first"), says("never")) as server:
        run = Terminal(files, "--model", "openai:m", "--base-url", server.url, "--tools", "tools.py", "--hooks", "ask.py")
        run.wait_for(RUN)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130
        assert len(server.requests) == 1
    assert not (files / "booked.txt").exists()
    assert "Traceback" not in run.seen


async def test_a_suspended_run_lists_the_calls_that_wait(capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    async def book(seat: str) -> str:
        """Book a seat."""
        return "booked"

    @hook.before_tool_call
    def needs_a_person(call: object) -> Ask:
        return Ask("Book it?")

    agent = Agent(model=ScriptedModel([tool_call("book", {"seat": "4A"}, id="c1")]), tools=[book], hooks=[needs_a_person])
    assert close_report(await agent.run("go")) == 9
    stopped, waiting = capsys.readouterr().err.splitlines()
    assert stopped == "stopped (suspended)"
    assert waiting == 'waiting for a person: book {"seat":"4A"}, asked by needs_a_person: Book it? [c1]'


def test_the_heading_of_a_turn_stands_above_its_text(tmp_path: Path) -> None:
    tools = 'from beforehand import tool\n\n@tool\nasync def look() -> str:\n    """Look."""\n    return "seen"\n'
    (tmp_path / "tools.py").write_text(tools)
    with endpoint(calls("look", text="I look."), says("I saw.")) as server:
        command = [*COMMAND, "run", "Look", "--model", "openai:m", "--base-url", server.url, "--tools", "tools.py"]
        told = subprocess.run(
            command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60, check=True,
        )  # fmt: skip
    lines = [line for line in told.stdout.splitlines() if line.startswith(("I ", "--", "code"))]
    assert [line[:6] for line in lines] == ["I look", "code  ", "-- tur", "I saw."]
