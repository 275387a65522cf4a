"""JSON files with the place of everything in them. msgspec says what is valid; here a valid text is only walked for places."""

from __future__ import annotations

import re

import msgspec

from .places import TOO_DEEP, Document, Lines, Malformed, Path, Place

_TOKEN = re.compile(r'[ \t\n\r]*(?:("(?:[^"\\]|\\.)*")|([\[\]{},:])|([^\s\[\]{},:"]+))')
_SIGN = re.compile(r'[\[\]{},:"\n]')
_WORD = re.compile(r"\s*")
_BYTE = re.compile(r" \(byte (\d+)\)$")


def read_json(text: str) -> Document:
    """Raises `Malformed`."""
    data = text.encode()
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise _malformed_json(str(error), data, text) from None
    except RecursionError:
        raise Malformed(Place(1, 1), TOO_DEEP) from None
    places, twice = locate_json(text)
    return Document(value, places, tuple(twice))


def _malformed_json(said: str, data: bytes, text: str) -> Malformed:
    found = _BYTE.search(said)
    offset = len(data[: int(found[1])].decode("utf-8", "ignore")) if found else len(text)
    if found and "trailing" in said:
        offset -= 1
    if "invalid character" in said:  # a misspelt word or number is pointed at where it begins
        offset = _WORD.match(text, _SIGN.sub("\0", text[:offset]).rfind("\0") + 1).end()  # type: ignore[union-attr]
    why = said[: found.start()] if found else said
    why = why.removeprefix("JSON is malformed: ").partition(" - at `$")[0]
    if why == "Input data was truncated":
        why = "the text ends too early" if text.strip() else "the file is empty"
    return Malformed(Lines(text).place(offset), f"this is not JSON: {why}")


class _Open:
    """An object or a list while its members are read: the name or number of the one that comes next."""

    __slots__ = ("key", "names", "path")

    def __init__(self, path: Path, is_object: bool) -> None:
        self.path = path
        self.names: set[str] | None = set() if is_object else None
        self.key: str | int | None = None if is_object else 0


def locate_json(text: str) -> tuple[dict[Path, Place], list[tuple[Path, Place]]]:
    """The place of every member of a valid JSON text: that of its name in an object, of the value itself in a list."""
    lines = Lines(text)
    places: dict[Path, Place] = {}
    twice: list[tuple[Path, Place]] = []
    stack: list[_Open] = []
    for token in _TOKEN.finditer(text):
        kind = token.lastindex or 0
        start, sign = token.start(kind), token[kind]
        inner = stack[-1] if stack else None
        if sign in ("}", "]"):
            stack.pop()
        elif sign == "," and inner is not None:
            inner.key = None if inner.names is not None else inner.key + 1  # type: ignore[operator]
        elif sign == ":":
            pass
        elif kind == 1 and inner is not None and inner.names is not None and inner.key is None:
            name: str = msgspec.json.decode(sign)
            inner.key = name
            path = (*inner.path, name)
            if name in inner.names:
                twice.append((path, lines.place(start)))
            inner.names.add(name)
            places.setdefault(path, lines.place(start))
        else:
            path = () if inner is None else (*inner.path, inner.key)  # type: ignore[arg-type]
            places.setdefault(path, lines.place(start))
            if sign in ("{", "["):
                stack.append(_Open(path, sign == "{"))
    return places, twice
