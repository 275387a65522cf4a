"""Rule files as documents: read, decoded and parsed by the kind they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path as FilePath

from beforehand.documents.files import read_utf8
from beforehand.documents.json_places import read_json
from beforehand.documents.places import Document, Malformed, Place
from beforehand.documents.toml_places import read_toml
from beforehand.documents.yaml_places import read_yaml


def _toml(text: str) -> Document:
    """One rule, or with `[[rules]]` several. Raises `Malformed`."""
    document = read_toml(text)
    value = document.value
    if list(value) == ["rules"] and isinstance(value["rules"], list):
        places = {path[1:]: place for path, place in document.places.items() if path[:1] == ("rules",)}
        return Document(value["rules"], places)
    return document


READERS: dict[str, Callable[[str], Document]] = {".json": read_json, ".yaml": read_yaml, ".yml": read_yaml, ".toml": _toml}

SUFFIXES = tuple(READERS)


def read_document(file: FilePath) -> Document:
    """Read a rule file. Raises `Malformed`."""
    if file.is_dir():
        raise Malformed(Place(1, 1), f"this is a folder, though its name ends in {file.suffix}: folders in a folder are not read")
    return READERS[file.suffix](read_utf8(file))
