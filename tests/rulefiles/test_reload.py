"""Hot reload: validated first, swapped whole, runs in flight keep their rules, a broken edit changes nothing and says so."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, ConfigError
from beforehand.rules import RuleSet, Watcher
from beforehand.testing import FunctionModel, text
from rulefiles.kit import Said


def write(folder: Path, *labels: str, name: str = "r.json", **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    action = {"type": "log", "message": "{{label}}"}
    file.write_text(
        json.dumps([{"target": "chat", "roles": ["user"], "label": label, "actions": [action], **more} for label in labels])
    )
    return file


async def test_an_edit_is_taken_by_the_next_run_and_not_by_one_under_way(tmp_path: Path) -> None:
    write(tmp_path, "old")
    said = Said()
    watcher = Watcher([tmp_path], voice=said)
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def reply(request: Any) -> Any:
        entered.set()
        await go_on.wait()
        return text("ok")

    def agent() -> Agent:
        return Agent(model=FunctionModel(reply), hooks=watcher.current.hooks)

    talk = agent().conversation()
    under_way = asyncio.create_task(talk.run("one"))
    await entered.wait()
    talk.follow_up("two")
    write(tmp_path, "new")
    assert watcher.reload()
    go_on.set()
    await under_way
    await agent().run("three")

    assert said.texts == ["old", "old", "new"]


def test_a_broken_edit_keeps_the_old_rules_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path, "old")
    refused: list[ConfigError] = []
    changed: list[RuleSet] = []
    watcher = Watcher([tmp_path], on_refused=refused.append, on_change=changed.append)
    before = watcher.current
    write(tmp_path, "fine", name="a.json")
    file.write_text('[{"target": "chat", "rols": []}]')

    with caplog.at_level(logging.ERROR, "beforehand.rules"):
        assert not watcher.reload()

    assert watcher.current is before
    assert changed == []
    assert f"{file}:1:21: [0].rols: unknown field 'rols', did you mean 'roles'?" in str(refused[0])
    assert "the rules stay as they were" in caplog.text
    assert str(file) in caplog.text

    write(tmp_path, "mended")
    assert watcher.reload()
    assert [about["label"] for about in watcher.current.describe()] == ["fine", "mended"]
    assert changed == [watcher.current]


def test_a_folder_that_vanishes_is_a_broken_edit_too(tmp_path: Path) -> None:
    file = write(tmp_path / "hooks", "old")
    watcher = Watcher([tmp_path / "hooks"])
    file.unlink()
    (tmp_path / "hooks").rmdir()
    assert not watcher.reload()
    assert [about["label"] for about in watcher.current.describe()] == ["old"]


async def test_rules_that_stay_the_same_go_on_counting_and_the_others_begin_anew(tmp_path: Path) -> None:
    write(tmp_path, "kept", maxTriggers=1)
    write(tmp_path, "edited", name="s.json", maxTriggers=1)
    said = Said()
    watcher = Watcher([tmp_path], voice=said)

    async def ask() -> None:
        await Agent(model=FunctionModel(lambda request: text("ok")), hooks=watcher.current.hooks).run("go")

    await ask()
    write(tmp_path, "edited", name="s.json", maxTriggers=2)
    watcher.reload()
    await ask()

    assert said.texts == ["kept", "edited", "edited"]
    assert [(about["label"], about["state"]) for about in watcher.current.describe()] == [("kept", "spent"), ("edited", "active")]


def test_the_same_rule_twice_keeps_two_counts(tmp_path: Path) -> None:
    write(tmp_path, "x", "x", maxTriggers=9)
    watcher = Watcher([tmp_path])
    watcher.current.rules[0].counter.fired, watcher.current.rules[1].counter.fired = 1, 2
    watcher.reload()
    assert [about["firings"] for about in watcher.current.describe()] == [1, 2]


@pytest.mark.parametrize("edit", ["in place", "another file in its place", "a new file"])
async def test_a_change_on_disk_is_noticed(edit: str, tmp_path: Path) -> None:
    folder = tmp_path / "hooks"
    file = write(folder, "old")
    changed: asyncio.Queue[list[str]] = asyncio.Queue()
    watcher = Watcher([folder], on_change=lambda rules: changed.put_nowait([about["label"] for about in rules.describe()]))
    watching = asyncio.create_task(watcher.run())
    await watcher.started.wait()

    if edit == "in place":
        write(folder, "new")
    elif edit == "a new file":
        write(folder, "new", name="n.json")
    else:
        write(tmp_path / "elsewhere", "new").replace(file)
    labels = await asyncio.wait_for(changed.get(), 30)

    watcher.stop()
    await watching
    assert labels[0 if edit != "a new file" else -1] in ("new", "old")
    assert "new" in labels


@pytest.mark.parametrize("edit", ["behind a link", "another link in its place", "another folder behind the link"])
async def test_a_change_behind_a_link_is_noticed(edit: str, tmp_path: Path) -> None:
    """The last is how containers get configuration that may change: links into a folder that is exchanged as a whole."""
    for version in ("old", "new"):
        write(tmp_path / version, version)
    (folder := tmp_path / "hooks").mkdir()
    (data := tmp_path / "data").symlink_to("old")
    (rules := folder / "r.json").symlink_to(data / "r.json")
    changed: asyncio.Queue[RuleSet] = asyncio.Queue()
    watcher = Watcher([folder], on_change=changed.put_nowait)
    watching = asyncio.create_task(watcher.run())
    await watcher.started.wait()

    link = tmp_path / "next"
    if edit == "behind a link":
        write(tmp_path / "old", "new")
    elif edit == "another link in its place":
        link.symlink_to(tmp_path / "new" / "r.json")
        link.replace(rules)
    else:
        link.symlink_to("new")
        link.replace(data)
    fresh = await asyncio.wait_for(changed.get(), 30)

    watcher.stop()
    await watching
    assert [about["label"] for about in fresh.describe()] == ["new"]


async def test_a_single_file_is_watched_and_its_neighbours_do_not_matter(tmp_path: Path) -> None:
    file = write(tmp_path, "old")
    neighbour = write(tmp_path, "other", name="z.json")
    changed: asyncio.Queue[RuleSet] = asyncio.Queue()
    watcher = Watcher([file], on_change=changed.put_nowait)
    watching = asyncio.create_task(watcher.run())
    await watcher.started.wait()

    neighbour.write_text("nonsense")
    write(tmp_path, "new")
    rules = await asyncio.wait_for(changed.get(), 30)

    watcher.stop()
    await watching
    assert [about["label"] for about in rules.describe()] == ["new"]


async def test_a_watcher_that_is_stopped_before_it_began_does_not_begin(tmp_path: Path) -> None:
    write(tmp_path, "old")
    watcher = Watcher([tmp_path])
    watching = asyncio.ensure_future(watcher.run())
    watcher.stop()
    await asyncio.wait_for(watching, 30)
    assert not watcher.started.is_set()


async def test_an_agent_takes_an_edit_while_it_watches(tmp_path: Path) -> None:
    write(tmp_path, "old")
    agent = Agent(model=FunctionModel(lambda request: text("ok")), hooks=[str(tmp_path)])
    async with agent.watch_rules():
        assert [about["label"] for about in agent.get_json_hooks()] == ["old"]
        await agent.run("go")


@pytest.mark.parametrize("edit", [True, False])
async def test_edited_patterns_are_loaded_anew_like_edited_rules(edit: bool, tmp_path: Path) -> None:
    patterns = tmp_path / "elsewhere" / "gitleaks.toml"
    patterns.parent.mkdir()
    patterns.write_text("[[rules]]\nid = 'a'\nregex = 'a'")
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / "r.json").write_text(json.dumps({"target": "chat", "patternsFrom": "../elsewhere/gitleaks.toml"}))
    changed: asyncio.Queue[RuleSet] = asyncio.Queue()
    watcher = Watcher([folder], on_change=changed.put_nowait)
    watching = asyncio.create_task(watcher.run())
    await watcher.started.wait()

    if edit:
        patterns.write_text("[[rules]]\nid = 'b'\nregex = 'b'")
    else:
        (patterns.parent / "other.toml").write_text("nonsense")
        (folder / "r.json").write_text(json.dumps({"target": "run"}))
    rules = await asyncio.wait_for(changed.get(), 30)

    watcher.stop()
    await watching
    if edit:
        assert [pattern.id for pattern in rules.rules[0].finder.rules] == ["b"]  # type: ignore[union-attr]
    else:
        assert [about["target"] for about in rules.describe()] == ["run"]


async def test_patterns_that_an_edit_brings_in_are_watched_from_then_on(tmp_path: Path) -> None:
    patterns = tmp_path / "elsewhere" / "gitleaks.toml"
    patterns.parent.mkdir()
    patterns.write_text("[[rules]]\nid = 'a'\nregex = 'a'")
    folder = tmp_path / "hooks"
    write(folder, "old")
    changed: asyncio.Queue[RuleSet] = asyncio.Queue()
    watcher = Watcher([folder], on_change=changed.put_nowait)
    watching = asyncio.create_task(watcher.run())
    await watcher.started.wait()

    (folder / "r.json").write_text(json.dumps({"target": "chat", "patternsFrom": "../elsewhere/gitleaks.toml"}))
    await asyncio.wait_for(changed.get(), 30)
    await watcher.started.wait()
    patterns.write_text("[[rules]]\nid = 'b'\nregex = 'b'")
    rules = await asyncio.wait_for(changed.get(), 30)

    watcher.stop()
    await watching
    assert [pattern.id for pattern in rules.rules[0].finder.rules] == ["b"]  # type: ignore[union-attr]
