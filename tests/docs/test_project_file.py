"""What docs/project-file.md says about the fields of a project file is what the settings are."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import msgspec.inspect as types
import pytest

from beforehand import settings
from beforehand.documents.forms import form_of

from .pages import ROOT

PAGE = (ROOT / "docs" / "project-file.md").read_text(encoding="utf-8")
BLOCKS = {
    "Fields": settings.ProjectSettings, "[pre_llm_hook]": settings.PreLlmHook, "[limits]": settings.LimitSettings,
    "[code_execution]": settings.CodeExecution, "[recovery]": settings.RecoverySettings,
    "[context]": settings.ContextSettings, "[[loops]]": settings.LoopSettings, "[[tools]]": settings.ToolSettings,
}  # fmt: skip


def rows_of(title: str) -> list[tuple[str, str, str]]:
    section = re.search(rf"^##+ `?{re.escape(title)}`?\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    return re.findall(r"^\| `(\w+)` \| ([^|]+?) \| ?([^|]*?) \|", section[1], re.MULTILINE)


def default_of(field: types.Field) -> str:
    if field.required:
        return "must be given"
    value: Any = msgspec.to_builtins(field.default)
    silent = value is None or value == "" or value == () or isinstance(field.default, msgspec.Struct)
    return "" if silent else f"`{value if isinstance(value, str) else json.dumps(value)}`"


@pytest.mark.parametrize("title", BLOCKS)
def test_every_field_is_in_its_table_with_its_form_and_default(title: str) -> None:
    info = types.type_info(BLOCKS[title])
    assert isinstance(info, types.StructType)
    assert rows_of(title) == [(f.encode_name, form_of(f.type), default_of(f)) for f in info.fields]


def test_the_table_of_tools_is_that_of_the_settings() -> None:
    table = re.compile(r"^ *\| (yes|no) +\| (yes|no) +\| (.+?) +\| (.+?) +\| (.+?) +\|$", re.MULTILINE)
    said = table.findall(settings.ToolSettings.__doc__ or "")
    assert len(said) == 4
    assert [tuple(cell.replace("asks a person", "approval") for cell in row) for row in table.findall(PAGE)] == said
