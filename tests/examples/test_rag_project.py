"""The example of retrieval in a sandbox. Its two hooks are those of the format's own guide, byte for byte."""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, HookFailed, Loop, tool
from beforehand.sandbox import close_spares
from beforehand.testing import FunctionModel, text, tool_call

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "rag_project"
GUIDE = {
    "two-tools.ts": "93be12ac10edd258550cb6ef7a6f65f56624ae7181595b55c391532e613d856d",
    "request-policy.ts": "b082bc95bb00bf9e5e62bbc26b279b3305dd2fd5f05ab5d9f849f8f3e9801e96",
}
DOGS = (
    "From the handbook:\n- Dogs travel free of charge if they fit under the seat. Larger dogs need a ticket in tourist class."
)
LANGUAGES = {
    "ts": ("lib/request-policy.ts", "lib/fast-rag.ts", "enrichMessages"),
    "py": ("lib/request_policy.py", "lib/fast_rag.py", "enrich_messages"),
}
both = pytest.mark.parametrize("language", LANGUAGES)
QUESTION = "May my dogs come along?"


@pytest.fixture(autouse=True)
async def no_spares_are_left() -> Any:
    yield
    await close_spares()


class Clerk:
    """The example in a folder of its own, with its hook in one of the languages."""

    def __init__(self, folder: Path, search: Any, language: str) -> None:
        shutil.copytree(PROJECT, folder)
        source, self.retrieval, self.function = LANGUAGES[language]
        said = (folder / "beforehand.toml").read_text().replace("lib/request-policy.ts:transform", f"{source}:transform", 1)
        (folder / "beforehand.toml").write_text(said + "\n[recovery]\nauto_retry = false\n")
        self.folder, self.search, self.language = folder, search, language
        self.model = FunctionModel(lambda request: text("Yes."))

    def agent(self, **more: Any) -> Agent:
        tools = [self.search.search_notes, *more.pop("tools", ())]
        return Agent.from_project(self.folder, model=self.model, tools=tools, **more)

    def says(self, py: str, ts: str) -> None:
        """Another retrieval lambda, with this body."""
        head = f"{self.function}(args)"
        body = f"def {head}:\n    {py}\n" if self.language == "py" else f"export function {head} {{ {ts} }}"
        (self.folder / "agent" / self.retrieval).write_text(body)


@pytest.fixture
def clerk(tmp_path: Path, example: Callable[[str], Any]) -> Callable[[str], Clerk]:
    return lambda language: Clerk(tmp_path / "project", example("rag_project.search"), language)


@pytest.mark.parametrize("name", GUIDE)
def test_the_hooks_are_those_of_the_guide_byte_for_byte(name: str) -> None:
    assert hashlib.sha256((PROJECT / "agent" / "lib" / name).read_bytes()).hexdigest() == GUIDE[name]


@both
async def test_the_model_reads_the_notes_and_the_history_holds_none(
    clerk: Callable[[str], Clerk], language: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the retrieval lambda writes to the console is in the log, and spoils nothing."""
    asked = clerk(language)
    with caplog.at_level(logging.INFO, logger="beforehand.lambdas"):
        talk = asked.agent().conversation()
        await talk.run(QUESTION)
    (request,) = asked.model.requests
    assert [m.text for m in request.messages] == [DOGS, QUESTION]
    assert request.tools == ()
    assert [m.text for m in talk.messages] == [QUESTION, "Yes."]
    assert "1 notes for main" in caplog.text


@both
async def test_each_request_has_the_notes_of_its_own_question_also_after_a_tool(
    clerk: Callable[[str], Clerk], language: str
) -> None:
    @tool
    async def look_up(train: int) -> str:
        """Look a train up."""
        return "It leaves at eight. Bicycles: none."

    asked = clerk(language)
    asked.model = FunctionModel(
        lambda r: tool_call("look_up", {"train": 3}) if r.messages[-1].text == "And my bicycle?" else text("Yes.")
    )
    talk = asked.agent(tools=[look_up]).conversation()
    for question in (QUESTION, "And my bicycle?"):
        await talk.run(question)
    notes = [[m.text.splitlines()[1][:8] for m in r.messages if m.text.startswith("From the")] for r in asked.model.requests]
    assert notes == [["- Dogs t"], ["- Bicycl"], ["- Bicycl"]]
    assert not any(m.text.startswith("From the") for m in talk.messages)


@both
async def test_inner_loops_retrieve_too_if_they_may_search(clerk: Callable[[str], Clerk], language: str) -> None:
    asked = clerk(language)
    agent = asked.agent(loops=[Loop("reader", tools=["search_notes"]), Loop("writer")])
    await agent.loop("reader").run(QUESTION)
    assert asked.model.requests[0].messages[0].text == DOGS
    with pytest.raises(HookFailed, match=r"NOT_FOUND.*'search_notes'"):
        await agent.loop("writer").run(QUESTION)
    assert len(asked.model.requests) == 1


FAILURES = {
    "the lambda is not there": (None, "NOT_FOUND: there is no lambda"),
    "it raises": (("raise ValueError('no index')", "throw new Error('no index')"), "no index"),
    "it returns nothing": (("pass", ""), "(not subscriptable|of undefined|of null|reading 'messages')"),
    "it returns text": (("return 'x'", "return 'x'"), "(must be integers|\\$.messages must be a list)"),
    "it returns no messages": (("return {'messages': []}", "return {messages: []}"), r"\$.messages must be a list with at least"),
    "it returns what is no message": (("return {'messages': ['x']}", "return {messages: ['x']}"), r"\$.messages\[0\]"),
    "it never ends": (("while True:\n        pass", "for (;;) {}"), "gave no answer within 1 s"),
}


@both
@pytest.mark.parametrize("failure", FAILURES)
async def test_when_retrieval_fails_no_request_leaves(clerk: Callable[[str], Clerk], language: str, failure: str) -> None:
    asked = clerk(language)
    body, why = FAILURES[failure]
    if body is None:
        (asked.folder / "agent" / asked.retrieval).unlink()
    else:
        asked.says(*body)
    if failure == "it never ends":
        file = asked.folder / "beforehand.toml"
        file.write_text(file.read_text().replace("timeout_ms = 5000", "timeout_ms = 1000"))
    talk = asked.agent().conversation()
    with pytest.raises(HookFailed) as failed:
        await talk.run(QUESTION)
    assert re.search(why, str(failed.value)), str(failed.value)
    assert asked.model.requests == []
    assert talk.messages[0].text == QUESTION
    assert talk.messages[1].text.startswith("[Turn error] ")


@both
async def test_when_the_index_is_broken_no_request_leaves(
    clerk: Callable[[str], Clerk], language: str, example: Callable[[str], Any]
) -> None:
    asked = clerk(language)
    asked.search.index().execute("DROP TABLE notes")
    with pytest.raises(HookFailed, match=r"TOOL_ERROR: .*no such table: notes"):
        await asked.agent().run(QUESTION)
    assert asked.model.requests == []


async def test_the_other_hook_of_the_guide_shows_two_tools_and_takes_none_away(clerk: Callable[[str], Clerk]) -> None:
    @tool
    async def fs_read(path: str) -> str:
        """Read a file."""
        return ""

    @tool
    async def fs_write(path: str) -> str:
        """Write a file."""
        return ""

    @tool
    async def drop_table(name: str) -> str:
        """Drop a table."""
        return f"dropped {name}"

    asked = clerk("ts")
    file = asked.folder / "beforehand.toml"
    file.write_text(file.read_text().replace("lib/request-policy.ts", "lib/two-tools.ts"))
    drop = tool_call("drop_table", {"name": "x"})
    asked.model = FunctionModel(lambda r: drop if r.messages[-1].role == "user" else text("Yes."))
    result = await asked.agent(tools=[drop_table, fs_read, fs_write]).run("go")
    assert [[t.name for t in request.tools] for request in asked.model.requests] == [["fs_read", "fs_write"]] * 2
    assert [m.text for m in result.messages if m.role == "tool"] == ["dropped x"]


def test_it_has_no_mistake() -> None:
    command = [sys.executable, "-m", "beforehand", "check", "examples/rag_project"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
