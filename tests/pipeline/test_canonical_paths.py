"""Gates, approvals and the body all see one form of a value, so that no spelling of a forbidden path gets through."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from beforehand import Agent, Ask, Block, Hook, Replace, Tool, tool
from beforehand.testing import ScriptedModel, text, tool_call

from pipeline.paths import call_through


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a `.env`, a folder `x`, and links to both."""
    here = tmp_path.resolve()
    (here / ".env").write_text("KEY=1")
    (here / "notes").write_text("milk")
    (here / "x").mkdir()
    (here / "link").symlink_to(here / ".env")
    (here / "chain").symlink_to(here / "link")
    (here / "y").symlink_to(here / "x")
    monkeypatch.chdir(here)
    return here


SPELLINGS = [".env", "./.env", "x/../.env", "link", "./x/../link", "chain", "y/../.env", "x//..//.env", "{}/.env", "{}/x/../link"]


def reader(seen: list[Any]) -> Tool:
    @tool
    def read(path: Path) -> str:
        seen.append(path)
        return path.read_text()

    return read


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_rule_on_the_real_path_stops_every_spelling_of_it(spelling: str, path: str, folder: Path) -> None:
    forbidden = str(folder / ".env")
    gate = Hook(seam="before_tool_call", fn=lambda c: Block("secret") if c.args["path"] == forbidden else None, tools=("read",))
    ran: list[Any] = []
    end = await call_through(path, "read", {"path": spelling.format(folder)}, [reader(ran)], [gate])

    assert (end.outcome, end.result.text) == ("blocked", "secret")
    assert ran == []


@pytest.mark.parametrize("spelling", ["notes", "./x/../notes", "{}/notes"])
async def test_gate_and_body_see_the_same_absolute_path(spelling: str, path: str, folder: Path) -> None:
    judged: list[Any] = []
    ran: list[Any] = []
    gate = Hook(seam="before_tool_call", fn=lambda c: judged.append(c.args["path"]), tools=("read",))
    end = await call_through(path, "read", {"path": spelling.format(folder)}, [reader(ran)], [gate])

    assert judged == [str(folder / "notes")]
    assert ran == [folder / "notes"]
    assert end.result.text == "milk"


async def test_the_body_gets_a_real_path_without_any_hook_too(path: str, folder: Path) -> None:
    ran: list[Any] = []
    await call_through(path, "read", {"path": "x/../notes"}, [reader(ran)])

    assert ran == [folder / "notes"]


async def test_a_link_that_changes_after_the_gate_does_not_change_what_the_body_opens(folder: Path) -> None:
    (folder / "moving").symlink_to(folder / "notes")
    ran: list[Any] = []

    def allow_and_swap(call: Any) -> None:
        os.unlink(folder / "moving")
        (folder / "moving").symlink_to(folder / ".env")

    model = ScriptedModel([tool_call("read", {"path": "moving"}), text("end")])
    gate = Hook(seam="before_tool_call", fn=allow_and_swap)
    await Agent(model=model, tools=[reader(ran)], hooks=[gate]).run("go")

    assert ran == [folder / "notes"]
    assert model.requests[1].messages[-1].text == "milk"


async def test_a_path_that_a_hook_writes_is_made_canonical_before_it_is_judged(path: str, folder: Path) -> None:
    forbidden = str(folder / ".env")
    hooks = [
        Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={"path": "y/../.env"}), tools=("read",)),
        Hook(seam="before_tool_call", fn=lambda c: Block("secret") if c.args["path"] == forbidden else None, tools=("read",)),
    ]
    end = await call_through(path, "read", {"path": "notes"}, [reader([])], hooks)

    assert end.result.text == "secret"


async def test_paths_inside_lists_and_structs_are_made_canonical(folder: Path) -> None:
    class Copy(msgspec.Struct):
        source: Path
        target: Path | None = None

    judged: list[Any] = []

    @tool
    async def copy(files: list[Copy], backups: dict[str, Path]) -> str:
        return f"{files[0].source} {backups['a']}"

    gate = Hook(seam="before_tool_call", fn=lambda c: judged.append((c.args["files"][0]["source"], c.args["backups"]["a"])))
    call = tool_call("copy", {"files": [{"source": "link"}], "backups": {"a": "x/../.env"}})
    model = ScriptedModel([call, text("end")])
    await Agent(model=model, tools=[copy], hooks=[gate]).run("go")

    real = str(folder / ".env")
    assert judged == [(real, real)]
    assert model.requests[1].messages[-1].text == f"{real} {real}"


async def test_a_tool_can_name_the_one_form_of_any_argument(path: str) -> None:
    judged: list[Any] = []

    @tool(canonical={"email": lambda value: value.strip().lower()})
    async def invite(email: Annotated[str, msgspec.Meta(min_length=1)]) -> str:
        return f"invited {email}"

    def judge(call: Any) -> Block | None:
        judged.append(call.args["email"])
        return Block("no") if call.args["email"] == "bob@x.org" else None

    gate = Hook(seam="before_tool_call", fn=judge, tools=("invite",))
    refused = await call_through(path, "invite", {"email": "  Bob@X.org "}, [invite], [gate])
    allowed = await call_through(path, "invite", {"email": "EVE@x.org"}, [invite], [gate])

    assert judged == ["bob@x.org", "eve@x.org"]
    assert refused.outcome == "blocked"
    assert allowed.result.text == "invited eve@x.org"


async def test_a_value_that_has_no_one_form_is_refused(path: str) -> None:
    def fail(value: str) -> str:
        raise ValueError("no such place")

    @tool(canonical={"place": fail})
    async def go(place: str) -> str:
        raise AssertionError("the body ran")

    end = await call_through(path, "go", {"place": "nowhere"}, [go])

    assert end.outcome == "invalid"
    assert "place" in end.result.text
    assert "no such place" in end.result.text


async def test_an_approval_shows_and_binds_the_canonical_value(folder: Path) -> None:
    asked = Hook(seam="before_tool_call", fn=lambda c: Ask(f"Read {c.args['path']}?"))
    pending = []
    for spelling in (".env", "y/../link"):
        model = ScriptedModel([tool_call("read", {"path": spelling})])
        result = await Agent(model=model, tools=[reader([])], hooks=[asked]).run("go")
        pending += result.pending

    assert pending[0].prompt == pending[1].prompt == f"Read {folder / '.env'}?"
    assert pending[0].args_digest == pending[1].args_digest != ""
