"""The block `pre_llm_hook`: what it may hold, and what its fields mean together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect as types

from ..documents.forms import Check, Found
from ..documents.places import Path
from ..documents.problems import field_name
from ..errors import ConfigError
from ..settings import PreLlmHook, split_source

NAME = "pre_llm_hook"


def read_block(value: Any) -> PreLlmHook:
    """A block written in Python. Raises `ConfigError` with every mistake in it."""
    if isinstance(value, PreLlmHook):
        value = block_of(value)
    elif isinstance(value, Mapping):
        value = {name: list(item) if isinstance(item, tuple) else item for name, item in value.items()}
    found = block_mistakes(value, (NAME,))
    if found:
        raise ConfigError("; ".join([f"{field_name(path)}: {why}" for path, why in found]))
    return as_block(value)


def as_block(value: Mapping[str, Any]) -> PreLlmHook:
    """A block without mistakes as settings."""
    return msgspec.convert({**value, "source": value["source"].strip()}, PreLlmHook)


def block_mistakes(value: Any, path: Path) -> Found:
    """Everything that is wrong with a block, whichever loops it is for."""
    check = Check()
    check.value(_type(), value, path)
    return check.found or meaning(value, path)


@cache
def _type() -> types.Type:
    return types.type_info(PreLlmHook)


def meaning(block: Mapping[str, Any], path: Path) -> Found:
    """What the form of the fields does not say."""
    from ..workspace.paths import PathRefused, parts_of  # deferred: a project without such a block needs none of it

    found: Found = []
    try:
        parts_of(split_source(block["source"])[0])
    except (ConfigError, PathRefused) as error:
        found.append(((*path, "source"), str(error)))
    scope, loops = block.get("scope", "all"), block.get("loops")
    if scope != "loops":
        for name in ("loops", "include_main"):
            if name in block:
                found.append(((*path, name), f'{name!r} goes with scope = "loops", and the scope here is "{scope}"'))
        return found
    if loops is None:
        found.append((path, "the field 'loops' is missing: the scope \"loops\" names at least one inner loop"))
    for i, name in enumerate(loops or ()):
        if name == "main":
            why = "'main' is no inner loop: take it out and write include_main = true"
        elif name in loops[:i]:  # type: ignore[index]
            why = f"{name!r} is in the list already"
        else:
            continue
        found.append(((*path, "loops", i), why))
    return found


def block_of(hook: PreLlmHook) -> dict[str, Any]:
    """A hook as it is written in a file: nothing that goes without saying, and the scope always said."""
    block: dict[str, Any] = {"source": hook.source, "scope": hook.scope}
    if hook.scope == "loops" or hook.loops:
        block["loops"] = list(hook.loops)
    if hook.include_main:
        block["include_main"] = True
    if hook.timeout_ms is not None:
        block["timeout_ms"] = hook.timeout_ms
    return block
