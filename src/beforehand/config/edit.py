"""Writing a `pre_llm_hook` into a project file. Everything else in the file stays as it is written: comments, order, spaces."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path as FilePath
from typing import Any

from ..errors import ConfigError
from ..settings import PreLlmHook
from .block import NAME, block_of
from .project import read_project, shown_path


def write_hook(file: FilePath, hook: PreLlmHook) -> None:
    """Put the hook into the file. A file that cannot be read as a project is left alone: `ConfigError`."""
    read_project(file)
    data = file.read_bytes()
    text = data.decode()
    block = block_of(hook)
    wanted = {**_LOADERS[file.suffix](text), NAME: block}
    new = next((made for made in _edits(file.suffix, text, block) if _loaded(file.suffix, made) == wanted), None)
    if new is None:
        raise ConfigError(
            f"{shown_path(file)}: {NAME} is written in a way that cannot be edited here; "
            f"put this in its place: {json.dumps(block)}"
        )
    if "\r\n" in text and not re.search(r"(?<!\r)\n", text):
        new = re.sub(r"(?<!\r)\n", "\r\n", new)
    if file.read_bytes() != data:
        raise ConfigError(f"{shown_path(file)} was changed by somebody else in the meantime: nothing was written, try again")
    real = file.resolve()
    temporary = real.with_name(f".{real.name}.{os.urandom(6).hex()}.new")
    try:
        temporary.write_bytes(new.encode())
        temporary.chmod(real.stat().st_mode & 0o7777)
        temporary.replace(real)
    finally:
        temporary.unlink(missing_ok=True)


def _edits(suffix: str, text: str, block: dict[str, Any]) -> Iterator[str]:
    """The text with the block in it, done in one way after the other. Each is to be looked at before it is used."""
    if suffix == ".json":
        yield _edit_json(text, block)
        return
    for edit in (_edit_table, _new_table):
        try:
            yield edit(text, block)
        except Exception:  # noqa: S112 - a style of writing that tomlkit reads and cannot change
            continue


def _loaded(suffix: str, text: str) -> Any:
    try:
        return _LOADERS[suffix](text)
    except ValueError:
        return None


# --- TOML ----------------------------------------------------------------------------------------


def _edit_table(text: str, block: dict[str, Any]) -> str:
    """Field by field where they stand, so that comments between them stay."""
    import tomlkit

    document = tomlkit.parse(text)
    there = document[NAME]
    assert isinstance(there, MutableMapping)
    for name in [name for name in there if name not in block]:
        del there[name]
    for name, value in block.items():
        if there.get(name) != value:
            there[name] = value
    return tomlkit.dumps(document)


def _new_table(text: str, block: dict[str, Any]) -> str:
    """A table at the end, in the place of what there was."""
    import tomlkit

    document = tomlkit.parse(text)
    if NAME in document:
        document.remove(NAME)
    table = tomlkit.table()
    for name, value in block.items():
        table.add(name, value)
    document[NAME] = table
    return tomlkit.dumps(document)


# --- JSON ----------------------------------------------------------------------------------------

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


def _edit_json(text: str, block: dict[str, Any]) -> str:
    if json.loads(text).get(NAME) == block:
        return text
    unit, span = _layout(text)
    shown = json.dumps(block, ensure_ascii=False, indent=unit)
    if unit is not None:
        shown = shown.replace("\n", "\n" + unit)
    if span is not None:
        return text[: span[0]] + shown + text[span[1] :]
    closing = text.rindex("}")
    before = text[:closing].rstrip()
    comma = "" if before.endswith("{") else ","
    if unit is None:
        return f'{before}{comma}{" " if comma else ""}"{NAME}": {shown}{text[closing:]}'
    return f'{before}{comma}\n{unit}"{NAME}": {shown}\n{text[closing:]}'


def _layout(text: str) -> tuple[str | None, tuple[int, int] | None]:
    """Of a valid object: what a member is indented with (`None`: all is in one line), and where the hook's value stands."""
    unit: str | None = "  " if re.fullmatch(r"\s*\{\s*\}\s*", text) else None
    depth, start, span = 0, None, None
    tokens = list(_TOKEN.finditer(text))
    for i, token in enumerate(tokens):
        sign = token[0]
        if sign in "{[":
            depth += 1
        elif sign in "}]":
            depth -= 1
            if start is not None and span is None and depth == 1:
                span = start, token.end()
        elif depth == 1 and sign == ":":
            name = tokens[i - 1]
            indent = re.search(r"\n([ \t]+)\Z", text[: name.start()])
            unit = unit or (indent[1] if indent else None)
            if json.loads(name[0]) == NAME:
                start = tokens[i + 1].start()
    return unit, span


_LOADERS: dict[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": json.loads}
