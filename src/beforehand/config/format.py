"""The JSON Schema of project files, generated from the settings, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from ..settings import ProjectSettings

TITLE = "beforehand project file"


def project_json_schema() -> dict[str, Any]:
    """What the form of the fields allows. What goes together with what (the scope and its loops) only loading can tell."""
    schema = _without_null(msgspec.json.schema(ProjectSettings))
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": TITLE, **schema}
    return msgspec.json.decode(msgspec.json.encode(whole))  # type: ignore[no-any-return]  # defaults are tuples otherwise


def _without_null(schema: Any) -> Any:
    """A field that says nothing is left out of a file: null is a mistake there."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {k: _without_null(v) for k, v in schema.items() if v is not None}
    if "anyOf" in kept and len(kept["anyOf"]) == 1:
        kept |= kept.pop("anyOf")[0]
    return kept
