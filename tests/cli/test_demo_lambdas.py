"""`beforehand demo lambdas` shows hooks in sandboxes at work, and that nothing passes when they break."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent
from beforehand.cli import lambdas_story as story
from beforehand.testing import ScriptedModel
from beforehand.workspace import Lambda
from cli.command import beforehand


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One telling, without a network: whatever would leave this machine goes nowhere."""
    nowhere = "http://127.0.0.1:9"
    place = tmp_path_factory.mktemp("demo")
    return beforehand("demo", "lambdas", cwd=place, http_proxy=nowhere, https_proxy=nowhere, OPENAI_API_KEY="sk-mine")


@pytest.fixture
def acts(told: subprocess.CompletedProcess[str]) -> tuple[str, str, str]:
    _, first, second, third = re.split(r"^== Act \d.*==$", told.stdout, flags=re.MULTILINE)
    return first, second, third


def test_it_needs_no_key_and_no_network(told: subprocess.CompletedProcess[str]) -> None:
    assert (told.returncode, told.stderr) == (0, "")


def test_both_lambdas_decide_and_what_one_wrote_is_in_its_record(acts: tuple[str, str, str]) -> None:
    first = acts[0]
    assert first.count("pre_llm_hook                 before_provider_call: Replace") == 3
    assert "wrote: the note goes with a request of main)" in first
    assert f"lib/seats.py:gate            before_tool_call: Block: {story.REASON}" in first
    assert "lib/seats.py:gate            before_tool_call: lets it pass" in first
    assert "Booked: train 305, tourist class" in first
    assert "first class, coach" not in first


def test_the_requests_carry_the_note_and_the_conversation_does_not(acts: tuple[str, str, str]) -> None:
    assert "The endpoint received 3 requests, 3 of them with the note; of the conversation's 6 messages 0 hold it." in acts[0]


def test_a_gate_that_fails_lets_no_booking_pass_and_the_run_goes_on(acts: tuple[str, str, str]) -> None:
    second = acts[1]
    failed = second.index("lib/seats.py:gate            before_tool_call: failed: raised LambdaRaised: lib/seats.py:2: ")
    assert "NOT_FOUND: there is no file 'rules/first-class.txt'" in second[failed:]
    assert "the tool runs\n" not in second
    assert "Booked" not in second
    assert "run ends                     completed" in second


def test_a_lambda_before_the_request_that_never_ends_lets_no_request_leave(acts: tuple[str, str, str]) -> None:
    third = acts[2]
    assert "pre_llm_hook                 before_provider_call: failed: raised LambdaTimedOut" in third
    assert "The endpoint received 0 requests" in third
    assert "run ends                     error" in third


def test_without_deno_it_says_what_is_missing_and_tells_nothing(tmp_path: Path) -> None:
    """As where the extra is not installed: its package cannot be imported."""
    code = (
        "import sys\nsys.modules['deno'] = None\nsys.argv = ['beforehand', 'demo', 'lambdas']\n"
        "from beforehand.cli import main\nmain()\n"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (2, "")
    assert 'TypeScript and JavaScript lambdas need Deno: install the extra "js" of beforehand' in told.stderr
    assert told.stderr.startswith("error: ")
    assert told.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["lamdas"], "there is no demonstration 'lamdas': expected lambdas, or nothing for the first one"),
        (["lambdas", "--local"], "--local goes without demo lambdas: give one of them"),
    ],
)
def test_what_it_cannot_tell_it_refuses(run_here: Callable[..., Any], args: list[str], why: str) -> None:
    printed = run_here("demo", *args)
    assert (printed.code, printed.err) == (2, f"error: {why}\n")


def test_it_can_be_drawn(run_here: Callable[..., Any], tmp_path: Path) -> None:
    picture = tmp_path / "lambdas.svg"
    assert run_here("demo", "lambdas", "--svg", str(picture)).code == 0
    assert "lib/seats.py" in picture.read_text(encoding="utf-8")


def test_a_trace_shows_what_a_lambda_wrote(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def main(turn):\n    print('one', 'two')\n    return {'type': 'end', 'reason': 'enough'}\n")
    journal = str(tmp_path / "runs.db")

    async def ended() -> str:
        gate = Lambda("x.py", seam="before_turn", workspace=tmp_path, timeout=60)
        async with Agent(model=ScriptedModel([]), hooks=[gate], journal=journal) as agent:
            return (await agent.run("go")).run_id

    told = beforehand("trace", asyncio.run(ended()), "--journal", journal, cwd=tmp_path)
    assert "wrote: one two)" in told.stdout
