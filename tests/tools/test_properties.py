"""Properties that hold for all arguments: validation is stable, two ways to the body agree, and nothing else is raised."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from beforehand.tools import InvalidArguments, Tool, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Passenger(msgspec.Struct):
    name: str
    age: Annotated[int, Meta(ge=0)] = 30
    friend: Passenger | None = None


@dataclass
class Leg:
    train: str
    stops: list[int | str]


@tool
def numbers(a: int, b: float = 1.5, c: bool = False, d: int | None = None) -> None: ...
@tool
def words(a: str, b: int | str = "x", c: Literal["a", "b", 1] = "a", d: Colour = Colour.RED) -> None: ...
@tool
def nested(a: list[Passenger], b: dict[str, Leg] | None = None, c: set[str] = set(), d: tuple[int, str] = (1, "a")) -> None: ...  # noqa: B006
@tool
def loose(a: Any, b: dict[str, Any] = {}, c: list[float | str | None] = []) -> None: ...  # noqa: B006
@tool
def moments(a: datetime, b: Decimal = Decimal(1)) -> None: ...


@tool(parameters={"type": "object", "properties": {
    "a": {"type": "integer"}, "b": {"type": ["string", "null"], "default": "x"},
    "c": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "boolean"}]}}, "d": {"$ref": "#/properties/c"},
}})  # fmt: skip
def written(**rest: Any) -> None: ...


DIRECT = [numbers, words, nested, loose, moments]
ALL = [*DIRECT, written]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5)
    | st.sampled_from(
        ["5", "-1", "1.0", "true", "False", "null", "nan", "inf", "a", "b", "red", "2024-05-01T12:00:00Z", "1e5", ""]
    )
)
keys = st.sampled_from(["a", "b", "c", "d", "name", "age", "friend", "train", "stops"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
passengers = st.fixed_dictionaries({"name": scalars}, optional={"age": scalars, "friend": values})
arguments = st.dictionaries(keys, values | st.lists(passengers, max_size=2), max_size=5)


def attempt(check: Any, sent: Any) -> tuple[Any, InvalidArguments | None]:
    """What the check gives, or the refusal. Any other exception fails the test."""
    try:
        return check(sent), None
    except InvalidArguments as refusal:
        return None, refusal


@pytest.mark.parametrize("made", ALL, ids=lambda t: t.name)
@given(sent=arguments)
def test_validating_twice_changes_nothing(made: Tool, sent: dict[str, Any]) -> None:
    args, refusal = attempt(made.validate, json.dumps(sent))
    if refusal is None:
        assert made.validate(args) == args
        assert made.validate(json.dumps(args)) == args
        assert json.loads(json.dumps(args, allow_nan=False)) == args


@pytest.mark.parametrize("made", DIRECT, ids=lambda t: t.name)
@given(sent=arguments)
def test_both_ways_to_the_body_give_the_same(made: Tool, sent: dict[str, Any]) -> None:
    text = json.dumps(sent)
    assert made.direct
    args, refusal = attempt(made.validate, text)
    values, same_refusal = attempt(made.kwargs_from_json, text)
    assert str(refusal) == str(same_refusal)
    if refusal is None:
        assert made.kwargs(args) == values
        assert made.validate(sent) == args, "a mapping means the same as its text"


@pytest.mark.parametrize("made", ALL, ids=lambda t: t.name)
@given(sent=arguments)
def test_whatever_is_refused_is_refused_with_a_reason_that_can_be_sent(made: Tool, sent: dict[str, Any]) -> None:
    _, refusal = attempt(made.validate, sent)
    if refusal is not None:
        assert refusal.errors
        assert all(message for _, message in refusal.errors)
        assert len(set(refusal.errors)) == len(refusal.errors)
        str(refusal).encode()


fragments = st.lists(
    st.sampled_from(
        ['{"a":', *'}[],:"', "\\ud800", "\\u006e", "nan", "NaN", "1e999", "9" * 30, "null", "true", "a", "\x00", "\ud800"]
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("made", ALL, ids=lambda t: t.name)
@given(sent=st.text() | st.binary() | fragments | fragments.map(lambda f: '{"a": [' + f))
def test_no_text_and_no_bytes_raise_anything_but_invalid_arguments(made: Tool, sent: Any) -> None:
    for check in (made.validate, made.kwargs_from_json):
        got, refusal = attempt(check, sent)
        assert isinstance(got, dict) != (refusal is not None)
        str(refusal).encode()


anything = st.recursive(
    scalars
    | st.floats()
    | st.text(st.characters())
    | st.binary(max_size=3)
    | st.builds(object)
    | st.integers(10**5000, 10**5001),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=2) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("made", ALL, ids=lambda t: t.name)
@given(sent=anything | st.dictionaries(keys, anything, max_size=3))
def test_no_python_value_raises_anything_but_invalid_arguments(made: Tool, sent: Any) -> None:
    got, refusal = attempt(made.validate, sent)
    assert isinstance(got, dict) != (refusal is not None)
    str(refusal).encode()
