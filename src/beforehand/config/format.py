"""The JSON Schema of project files, generated from the settings, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from ..settings import ProjectSettings

TITLE = "beforehand project file"


def project_json_schema() -> dict[str, Any]:
    """What the form of the fields allows. What goes together with what (the scope and its loops) only loading can tell."""
    schema = msgspec.json.schema(ProjectSettings)
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": TITLE, **schema}
    return msgspec.json.decode(msgspec.json.encode(whole))  # type: ignore[no-any-return]  # defaults are tuples otherwise
