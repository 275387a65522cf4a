"""What a tool's body may return, and what becomes of it."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand.errors import FrozenError
from beforehand.frozen import FrozenDict, FrozenList
from beforehand.messages import Image, Text, Thinking, Usage
from beforehand.tools import ToolResult, as_result


class Seat(msgspec.Struct):
    name: str


@dataclass
class Leg:
    train: str
    day: date


class Colour(enum.StrEnum):
    RED = "red"


TEXT, IMAGE = Text("a"), Image(data="aGk=")

RESULTS: list[tuple[Any, Any, Any]] = [
    # returned, content, structured content
    ("hello", "hello", None),
    ("", "", None),
    (None, "", None),
    (Colour.RED, "red", None),
    (IMAGE, (IMAGE,), None),
    (TEXT, (TEXT,), None),
    ([TEXT, IMAGE], (TEXT, IMAGE), None),
    ((IMAGE,), (IMAGE,), None),
    (5, "5", None),
    (1.5, "1.5", None),
    (True, "true", None),
    (date(2024, 5, 1), '"2024-05-01"', None),
    ({"a": [1]}, '{"a":[1]}', {"a": [1]}),
    ({1: "a"}, '{"1":"a"}', {"1": "a"}),
    ([], "[]", []),
    ([1, "a"], '[1,"a"]', [1, "a"]),
    (["a", TEXT], '["a",{"type":"text","text":"a"}]', ["a", {"type": "text", "text": "a"}]),
    ((1, 2), "[1,2]", [1, 2]),
    (FrozenDict({"a": FrozenList([1])}), '{"a":[1]}', {"a": [1]}),
    (Seat("x"), '{"name":"x"}', {"name": "x"}),
    ([Leg("IC", date(2024, 5, 1))], '[{"train":"IC","day":"2024-05-01"}]', [{"train": "IC", "day": "2024-05-01"}]),
    ({"where": Path("/a")}, '{"where":"/a"}', {"where": "/a"}),
    ({"mean": math.nan}, '{"mean":null}', {"mean": None}),
]


@pytest.mark.parametrize(("returned", "content", "structured"), RESULTS, ids=[repr(r)[:40] for r, *_ in RESULTS])
def test_what_a_body_returns_becomes_content(returned: Any, content: Any, structured: Any) -> None:
    result = as_result(returned)
    assert result.content == content
    assert type(result.content) is type(content)
    assert result.structured_content == structured
    assert (result.is_error, result.terminate, result.usage, result.details) == (False, False, None, None)


def test_a_result_is_kept_with_its_parts_frozen() -> None:
    returned = ToolResult(
        [TEXT, IMAGE],  # type: ignore[arg-type]
        details={"rows": [1]},
        structured_content={"a": (1, Seat("x"))},
        is_error=True,
        terminate=True,
        usage=Usage(1, 2),
    )
    result = as_result(returned)
    assert result.content == (TEXT, IMAGE)
    assert type(result.content) is tuple
    assert result.structured_content == {"a": [1, {"name": "x"}]}
    assert (result.is_error, result.terminate, result.usage) == (True, True, Usage(1, 2))
    for change in (lambda: result.details["rows"].append(2), lambda: result.structured_content.clear()):
        with pytest.raises(FrozenError):
            change()


def test_a_result_may_have_one_part_as_its_content() -> None:
    assert as_result(ToolResult(IMAGE)).content == (IMAGE,)  # type: ignore[arg-type]


def test_the_text_of_a_result_is_its_visible_text() -> None:
    assert ToolResult("a").text == "a"
    assert ToolResult((Text("a"), IMAGE, Text("b"))).text == "ab"


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(FrozenError):
        ToolResult("a").content = "b"  # type: ignore[misc]


@pytest.mark.parametrize("wrap", [str, Text, lambda t: ToolResult(t), lambda t: ToolResult((Text(t),))])
def test_text_that_no_request_could_carry_is_shown_as_an_escape(wrap: Callable[[str], Any]) -> None:
    name = b"caf\xe9 \xc3\xa9".decode("utf-8", "surrogateescape")
    assert as_result(wrap(name)).text == "caf\\udce9 é"


LOOP: list[Any] = []
LOOP.append(LOOP)


def _generator() -> Any:
    yield 1


UNFIT: list[tuple[Any, str]] = [
    (b"abc", "returned bytes.*decode it to text, or make it an Image"),
    (bytearray(b"abc"), "returned bytearray"),
    (10**6000, "returned int, which is no result"),
    (object(), "returned object, which is no result.*return text, None, a ToolResult"),
    ({"a": object()}, "returned dict.*object has no JSON form"),
    ({(1, 2): 3}, "returned dict"),
    (_generator(), "returned generator"),
    (ValueError("x"), "returned ValueError"),
    (LOOP, "returned list"),
    (ToolResult(5), "its content holds int"),  # type: ignore[arg-type]
    (ToolResult([TEXT, "a"]), "its content holds str"),  # type: ignore[arg-type]
    (ToolResult((Thinking("a"),)), "its content holds Thinking"),  # type: ignore[arg-type]
    (ToolResult(details=LOOP), "returned ToolResult"),
    (ToolResult(structured_content=object()), "object has no JSON form"),
]


@pytest.mark.parametrize(("returned", "complaint"), UNFIT, ids=[c[:30] for _, c in UNFIT])
def test_what_has_no_json_form_is_refused_in_words(returned: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        as_result(returned)


def test_structured_content_says_what_the_text_says() -> None:
    result = as_result({"big": 2**70, "pair": (1, {"x"})})
    assert json.loads(result.text) == result.structured_content
