"""YAML files with the place of everything in them. Only what JSON could say too: no anchors, tags, dates or sets."""

from __future__ import annotations

import math
import re
from typing import Any

from .places import TOO_DEEP, Document, Malformed, Path, Place

_DEPTH = 100
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_NAMES = {
    "timestamp": "a date",
    "int": "a number in another notation",
    "float": "a number in another notation",
    "binary": "bytes",
}
_TRUE = ("true", "yes", "on")


def read_yaml(text: str) -> Document:
    """Raises `Malformed`."""
    node = _compose(text)
    if node is None:
        return Document(None, {(): Place(1, 1)})
    reader = _Reader()
    value = reader.value(node, ())
    return Document(value, reader.places, tuple(reader.twice))


def _compose(text: str) -> Any:
    import yaml

    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        raise Malformed(
            _place_of(text, error.position), f"this is not YAML: the character U+{_code(error.character):04X} may not stand in it"
        ) from None
    try:
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        raise Malformed(place, f"this is not YAML: {error.problem or error.context or 'it cannot be read'}") from None
    except RecursionError:
        raise Malformed(_now(loader), TOO_DEEP) from None
    except Exception as error:  # the library lets some mistakes, such as impossible escapes, out as they happen
        raise Malformed(_now(loader), f"this is not YAML: {error}") from None
    finally:
        loader.dispose()


def _now(loader: Any) -> Place:
    mark = loader.get_mark()
    return Place(mark.line + 1, mark.column + 1)


def _place_of(text: str, offset: int) -> Place:
    before = text[:offset]
    return Place(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(character)


class _Reader:
    """Turns YAML nodes into plain values, noting where they stand."""

    def __init__(self) -> None:
        self.places: dict[Path, Place] = {}
        self.twice: list[tuple[Path, Place]] = []
        self._seen: set[int] = set()

    def value(self, node: Any, path: Path) -> Any:
        place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
        self.places.setdefault(path, place)
        if id(node) in self._seen:
            raise Malformed(place, "rule files take no anchors and aliases: write it out")
        self._seen.add(id(node))
        if len(path) > _DEPTH:
            raise Malformed(place, TOO_DEEP)
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind == "map" and node.id == "mapping":
            return self._mapping(node, path)
        if kind == "seq" and node.id == "sequence":
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        if node.id == "scalar":
            return _scalar(kind, node.value, place)
        raise Malformed(place, f"rule files take no {node.tag}: write plain values")

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in node.value:
            place = Place(key.start_mark.line + 1, key.start_mark.column + 1)
            if key.id != "scalar":
                raise Malformed(place, "a field name must be a string")
            if key.tag == "tag:yaml.org,2002:merge":
                raise Malformed(place, "rule files take no merge keys (<<): write the fields out")
            inner = (*path, key.value)
            if key.value in found:
                self.twice.append((inner, place))
            self.places.setdefault(inner, place)
            found[key.value] = self.value(item, inner)
        return found


def _scalar(kind: str, text: str, place: Place) -> Any:
    if kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in _TRUE
    if kind == "int" and _INTEGER.fullmatch(text) and len(text) < 4000:
        return int(text)
    if kind == "float":
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    what = _NAMES.get(kind, kind)
    raise Malformed(place, f"YAML reads {text[:40]!r} as {what}, which is not taken here: put it in quotes to make it a string")
