"""Links lead somewhere, and commands that a page names exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import typer.main

from beforehand.cli.app import app

from .pages import PAGES, ROOT, name_of, prose_of

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """The anchors that a reader's browser knows of a page: headings in lower case, without punctuation."""
    plain = (re.sub(r"[^\w\- ]", "", m["text"].lower()) for m in HEADING.finditer(prose_of(page)))
    return frozenset(text.strip().replace(" ", "-") for text in plain)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    dead = []
    for match in LINK.finditer(prose_of(page)):
        path, _, anchor = match["target"].partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            dead.append(match["target"])
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_of_ours_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:src|tests|docs|examples|benchmarks|requirements)/[\w./-]+)`", prose_of(page))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_that_a_page_names_is_in_the_makefile(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make (?:-k )?([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_that_a_page_names_exists(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    source = page.read_text(encoding="utf-8").replace("\\\n", " ")
    wrong = []
    for line in re.findall(r"(?:^|`|/)beforehand ((?:[a-z]+)(?: [^`\n]*)?)", source, re.MULTILINE):
        name, *rest = line.split(" ", 1)
        known = {option for p in commands[name].params for option in p.opts} if name in commands else set()
        wrong += [line] if name not in commands or not set(re.findall(r"(--[a-z-]+)", " ".join(rest))) <= known else []
    assert wrong == []
