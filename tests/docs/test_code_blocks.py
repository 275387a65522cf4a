"""The Python code in the README and the docs runs, and what it asserts holds.

The blocks of a page run one after another and share their names. A comment right above a block says otherwise:
`<!-- run: compile -->` has it compiled only, `<!-- run: endpoint -->` puts a loopback endpoint in the place of the reader's own,
`<!-- file: NAME -->` saves it under that name for the blocks that follow.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from durable.files import on_files

from .pages import LOCAL_ENDPOINT, PAGES, ROOT, Block, blocks_of, name_of

WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks_of(page))]
TO_RUN = [pytest.param(page, marks=on_files if page.name == "durable.md" else ()) for page in WITH_CODE]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from train_endpoint import endpoint

    with endpoint() as there:
        yield there
    sys.modules.pop("train_endpoint")


def compiled(page: Path, block: Block, base_url: str) -> types.CodeType:
    """A block with the line numbers of its page, so that a traceback leads there."""
    text = block.text.replace(LOCAL_ENDPOINT, base_url) if block.how == "endpoint" else block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile("\n" * (block.line - 1) + text, str(page), "exec", flags, dont_inherit=True)


@pytest.mark.parametrize("page", TO_RUN, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, endpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with asyncio.Runner() as runner:
        for block in blocks_of(page):
            if block.file is not None:
                (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            if block.language != "python":
                continue
            code = compiled(page, block, endpoint.base_url)
            if block.how == "compile":
                continue
            going = eval(code, vars(module))  # noqa: S307 - our own pages
            if inspect.iscoroutine(going):
                runner.run(going)


def test_nearly_all_blocks_really_run() -> None:
    hows = [block.how for page in WITH_CODE for block in blocks_of(page) if block.language == "python"]
    assert set(hows) <= {"run", "compile", "endpoint"}
    assert hows.count("compile") <= 3
    assert hows.count("endpoint") >= 1
