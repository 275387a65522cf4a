"""From the arguments a model sent to those a gate judges and a body gets."""

from __future__ import annotations

import enum
import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta

from beforehand.errors import BeforehandError, FrozenError
from beforehand.frozen import FrozenDict, FrozenList
from beforehand.tools import InvalidArguments, Tool, ToolContext, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Passenger(msgspec.Struct):
    name: str
    age: int = 30


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: list[str] = []


class Crew(msgspec.Struct, tag=True):
    names: set[str]


class Pack(msgspec.Struct, tag=True):
    dogs: set[str]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 1


class Point(NamedTuple):
    x: int
    y: int = 0


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: int


class Options(TypedDict):
    depth: int
    note: NotRequired[str]


@dataclass(frozen=True)
class Step:
    n: int


@dataclass
class Leg:
    train: str
    stops: list[int]

    def __post_init__(self) -> None:
        if self.train == "none":
            raise ValueError("there is no such train")


def taking(hint: Any, **default: Any) -> Tool:
    """A tool with one argument `x` of this type."""

    def body(x: Any) -> None: ...

    body.__annotations__["x"] = hint
    if default:
        body.__defaults__ = (default["default"],)
    return tool(body)


def problems(made: Tool, arguments: Any) -> dict[str, str]:
    with pytest.raises(InvalidArguments) as caught:
        made.validate(arguments)
    return dict(caught.value.errors)


# --- coercion ------------------------------------------------------------------------------------

ID = "aaaaaaaa-1111-4111-8111-111111111111"
ACCEPTED: list[tuple[Any, Any, Any, Any]] = [
    # hint, as sent, as gates see it, as the body gets it
    (int, 5, 5, 5),
    (int, "5", 5, 5),
    (int, 5.0, 5, 5),
    (int, "-7", -7, -7),
    (int, 2**80, 2**80, 2**80),
    (float, 5, 5.0, 5.0),
    (float, "1.5", 1.5, 1.5),
    (bool, "true", True, True),
    (bool, "False", False, False),
    (bool, 1, True, True),
    (bool, 0, False, False),
    (str, 5, "5", "5"),
    (str, 5.5, "5.5", "5.5"),
    (str, True, "true", "true"),
    (str, "nan", "nan", "nan"),
    (int | None, "5", 5, 5),
    (int | None, None, None, None),
    (str | None, 5, "5", "5"),
    (int | str, "5", "5", "5"),
    (str | int, "5", "5", "5"),
    (int | str, 5, 5, 5),
    (int | str, True, "true", "true"),
    (float | str | None, "inf", "inf", "inf"),
    (bool | int, "true", True, True),
    (list[int], ["1", 2], [1, 2], [1, 2]),
    (list[str], [1, "2"], ["1", "2"], ["1", "2"]),
    (dict[str, int], {"a": "1"}, {"a": 1}, {"a": 1}),
    (dict[str, str], {"a": 1}, {"a": "1"}, {"a": "1"}),
    (dict[int, str], {"1": "a"}, {"1": "a"}, {1: "a"}),
    (dict[str, list[int | str]], {"a": ["5", 5]}, {"a": ["5", 5]}, {"a": ["5", 5]}),
    (set[str], ["b", "a", "b"], ["a", "b"], {"a", "b"}),
    (frozenset[int], ["2", 10, 1], [1, 2, 10], frozenset({1, 2, 10})),
    (set[Colour], ["red", "blue"], ["blue", "red"], {Colour.RED, Colour.BLUE}),
    (set[int | str], ["b", 1], ["b", 1], {"b", 1}),
    (set[Step], [{"n": "2"}, {"n": 1}], [{"n": 1}, {"n": 2}], {Step(1), Step(2)}),
    (dict[str, set[str]] | None, {"a": [*"hgfedcba"]}, {"a": [*"abcdefgh"]}, {"a": set("abcdefgh")}),
    (Annotated[list[Annotated[set[str], Meta(title="t")]], Meta(title="t")], [[*"hgfedcba"]], [[*"abcdefgh"]], [set("abcdefgh")]),
    (tuple[set[str], int], [[*"hgfedcba"], 1], [[*"abcdefgh"], 1], (set("abcdefgh"), 1)),
    (Crew | Pack, {"type": "Pack", "dogs": [*"hgfedcba"]}, {"type": "Pack", "dogs": [*"abcdefgh"]}, Pack(set("abcdefgh"))),
    (Crew | Pack, {"type": "Crew", "names": [*"hgfedcba"]}, {"type": "Crew", "names": [*"abcdefgh"]}, Crew(set("abcdefgh"))),
    (set[Any] | None, None, None, None),
    (tuple[int, str], ["1", 2], [1, "2"], (1, "2")),
    (tuple[int, ...], ["1"], [1], (1,)),
    (Literal["first", "tourist"], "first", "first", "first"),
    (Literal[1, 2], "1", 1, 1),
    (Literal["1", "2"], 1, "1", "1"),
    (Colour, "red", "red", Colour.RED),
    (Level, "2", 2, Level.HIGH),
    (Annotated[int, Meta(ge=1)], "1", 1, 1),
    (Annotated[str, Meta(max_length=2)], 12, "12", "12"),
    (datetime, "2024-05-01T12:00:00Z", "2024-05-01T12:00:00Z", datetime(2024, 5, 1, 12, tzinfo=UTC)),
    (date, "2024-05-01", "2024-05-01", date(2024, 5, 1)),
    (time, "12:30:00", "12:30:00", time(12, 30)),
    (timedelta, "P1D", "P1D", timedelta(days=1)),
    (Decimal, "1.10", "1.10", Decimal("1.10")),
    (UUID, ID.upper(), ID, UUID(ID)),
    (bytes, "aGk=", "aGk=", b"hi"),
    (Passenger, {"name": 1}, {"name": "1", "age": 30}, Passenger("1", 30)),
    (Passenger, {"name": "a", "age": None}, {"name": "a", "age": 30}, Passenger("a", 30)),
    (Passenger | None, {"name": 1}, {"name": "1", "age": 30}, Passenger("1", 30)),
    (list[Passenger], [{"name": "a", "age": "4"}], [{"name": "a", "age": 4}], [Passenger("a", 4)]),
    (Cat | Dog, {"type": "Cat", "lives": "9"}, {"type": "Cat", "lives": 9}, Cat(9)),
    (Cat | Dog, {"type": "Dog", "tricks": [1]}, {"type": "Dog", "tricks": ["1"]}, Dog(["1"])),
    (Point, ["1"], [1, 0], Point(1, 0)),
    (Pair, ["1", 2], [1, 2], Pair(1, 2)),
    (Options, {"depth": "1"}, {"depth": 1}, {"depth": 1}),
    (Options, {"depth": 1, "note": 2}, {"depth": 1, "note": "2"}, {"depth": 1, "note": "2"}),
    (Leg, {"train": 1, "stops": ["2"]}, {"train": "1", "stops": [2]}, Leg("1", [2])),
    (Any, {"a": [1, None, "x"]}, {"a": [1, None, "x"]}, {"a": [1, None, "x"]}),
    (dict, {"a": [1]}, {"a": [1]}, {"a": [1]}),
]  # fmt: skip


def named(table: list[Any]) -> list[str]:
    return [f"{i}-{str(hint)[:24]}" for i, (hint, *_) in enumerate(table)]


@pytest.mark.parametrize(("hint", "sent", "seen", "got"), ACCEPTED, ids=named(ACCEPTED))
def test_arguments_are_brought_to_their_types(hint: Any, sent: Any, seen: Any, got: Any) -> None:
    made = taking(hint)
    args = made.validate(json.dumps({"x": sent}))

    assert args == {"x": seen}
    assert type(args["x"]) in (type(seen), FrozenDict, FrozenList)
    assert made.validate({"x": sent}) == args, "a mapping is treated like the same JSON text"
    assert made.validate(args) == args
    value = made.kwargs(args)["x"]
    assert value == got
    assert type(value) is type(got)
    if made.direct:
        assert made.kwargs_from_json(json.dumps({"x": sent})) == {"x": got}


REFUSED: list[tuple[Any, Any, dict[str, str]]] = [
    (int, "five", {"x": 'expected an integer, got "five"'}),
    (int, 5.5, {"x": "expected an integer, got 5.5"}),
    (int, True, {"x": "expected an integer, got true"}),
    (int, None, {"x": "expected an integer, got null"}),
    (int, [1], {"x": "expected an integer, got [1]"}),
    (float, "nan", {"x": 'expected a number, got "nan"'}),
    (float, "-Infinity", {"x": 'expected a number, got "-Infinity"'}),
    (Decimal, "NaN", {"x": 'expected a decimal number, got "NaN"'}),
    (bool, "yes", {"x": 'expected true or false, got "yes"'}),
    (bool, 2, {"x": "expected true or false, got 2"}),
    (str, None, {"x": "expected a string, got null"}),
    (str, {}, {"x": "expected a string, got {}"}),
    (int | None, "x", {"x": 'expected an integer or null, got "x"'}),
    (int | list[int] | None, ["a"], {"x[0]": 'expected an integer, got "a"'}),
    (int | list[int] | None, {}, {"x": "expected an integer, a list or null, got {}"}),
    (list[int], "1,2", {"x": 'expected a list, got "1,2"'}),
    (list[int], ["a", 1, "b"], {"x[0]": 'expected an integer, got "a"', "x[2]": 'expected an integer, got "b"'}),
    (list[Annotated[int, Meta(description="d")]], ["a"], {"x[0]": 'expected an integer, got "a"'}),
    (Annotated[int, Meta(description="d")] | None, "a", {"x": 'expected an integer or null, got "a"'}),
    (list[float], ["nan", "x"], {"x[0]": 'expected a number, got "nan"', "x[1]": 'expected a number, got "x"'}),
    (Annotated[list[int], Meta(min_length=1, max_length=2)], [], {"x": "expected at least 1 items, got 0"}),
    (Annotated[list[int], Meta(max_length=2)], [1, 2, 3], {"x": "expected at most 2 items, got 3"}),
    (dict[str, int], [1], {"x": "expected an object, got [1]"}),
    (dict[str, int], {"a": "b", "c": 1, "d": None}, {
        "x.a": 'expected an integer, got "b"', "x.d": "expected an integer, got null"}),
    (int | list[int], "a", {"x": 'expected an integer or a list, got "a"'}),
    (Pair | None, ["a", 1], {"x[0]": 'expected an integer, got "a"'}),
    (Path | None, [], {"x": "expected a path, got []"}),
    (Path | None, 1, {"x": "expected a path or null, got 1"}),
    (Annotated[dict[str, int], Meta(min_length=1)], {}, {"x": "expected at least 1 entries, got 0"}),
    (Annotated[dict[str, int], Meta(min_length=1)], {"a": "b"}, {"x.a": 'expected an integer, got "b"'}),
    (Annotated[list[int], Meta(max_length=2)], ["a", 1], {"x[0]": 'expected an integer, got "a"'}),
    (Annotated[datetime, Meta(tz=False)], "2024-05-01T12:00:00Z", {
        "x": 'expected a date and time such as 2024-05-01T12:00:00Z without a time zone, got "2024-05-01T12:00:00Z"'}),
    (dict[int, int], {"a": 1}, {"x.a": 'as a name, expected an integer, got "a"'}),
    (Annotated[dict[str, int], Meta(max_length=1)], {"a": 1, "b": 2}, {"x": "expected at most 1 entries, got 2"}),
    (tuple[int, str], [1], {"x": "expected 2 items, got 1"}),
    (tuple[int, int], ["a", "b"], {"x[0]": 'expected an integer, got "a"', "x[1]": 'expected an integer, got "b"'}),
    (Literal["first", "tourist"], "business", {"x": 'expected "first" or "tourist", got "business"'}),
    (Colour, "green", {"x": 'expected "red" or "blue", got "green"'}),
    (Colour, 1, {"x": 'expected "red" or "blue", got 1'}),
    (Annotated[int, Meta(ge=1, lt=9)], 0, {"x": "expected an integer of at least 1 and less than 9, got 0"}),
    (Annotated[str, Meta(pattern="^a")], "b", {"x": 'expected a string matching ^a, got "b"'}),
    (Annotated[str, Meta(min_length=2)], "b", {"x": 'expected a string of length 2 or more, got "b"'}),
    (Annotated[datetime, Meta(tz=True)], "2024-05-01T12:00:00", {
        "x": 'expected a date and time such as 2024-05-01T12:00:00Z with a time zone, got "2024-05-01T12:00:00"'}),
    (datetime, "2024", {"x": 'expected a date and time such as 2024-05-01T12:00:00Z, got "2024"'}),
    (datetime, 2024, {"x": "expected a date and time such as 2024-05-01T12:00:00Z, got 2024"}),
    (timedelta, "5", {"x": 'expected a duration such as P1DT2H, got "5"'}),
    (bytes, "?", {"x": 'expected base64 text, got "?"'}),
    (Passenger, "Ann", {"x": 'expected an object, got "Ann"'}),
    (list[Passenger], [{"name": "a"}, {"age": "old"}], {"x[1].age": 'expected an integer, got "old"', "x[1].name": "missing"}),
    (Passenger | None, {"age": 1}, {"x.name": "missing"}),
    (Cat | Dog, {"lives": 1}, {"x.type": 'expected "Cat" or "Dog", which is missing'}),
    (Cat | Dog, {"type": "Cow"}, {"x.type": 'expected "Cat" or "Dog", got "Cow"'}),
    (Cat | Dog, {"type": "Cat", "lives": "many"}, {"x.lives": 'expected an integer, got "many"'}),
    (Cat | Dog, 1, {"x": "expected an object, got 1"}),
    (Cat, {"type": "Dog", "lives": 1}, {"x.type": 'expected "Cat", got "Dog"'}),
    (Strict, {"a": 1, "b": 2}, {"x.b": "unknown (expected a)"}),
    (Point, ["a", "b"], {"x[0]": 'expected an integer, got "a"', "x[1]": 'expected an integer, got "b"'}),
    (Point, [], {"x": "expected at least 1 items, got 0"}),
    (Pair, [1], {"x": "expected 2 items, got 1"}),
    (Pair, {"left": 1}, {"x": 'expected a list, got {"left":1}'}),
    (Options, {"note": []}, {"x.depth": "missing", "x.note": "expected a string, got []"}),
    (list[Leg], [{"train": "none", "stops": []}, {"train": "a", "stops": [None]}], {
        "x[0]": "there is no such train", "x[1].stops[0]": "expected an integer, got null"}),
    (Path, 1, {"x": "expected a path, got 1"}),
    (list[Path], ["a", None], {"x[1]": "expected a path, got null"}),
    (Path, "a\x00b", {"x": "a path cannot hold a null character"}),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "sent", "expected"), REFUSED, ids=named(REFUSED))
def test_everything_that_does_not_fit_is_reported_with_its_path(hint: Any, sent: Any, expected: dict[str, str]) -> None:
    made = taking(hint)
    assert problems(made, json.dumps({"x": sent})) == expected
    assert problems(made, {"x": sent}) == expected
    if made.direct:
        with pytest.raises(InvalidArguments) as caught:
            made.kwargs_from_json(json.dumps({"x": sent}))
        assert dict(caught.value.errors) == expected


@tool
def mixed(
    text: str,
    ratio: float = 0.5,
    price: Decimal = Decimal(1),
    when: datetime | None = None,
    code: Literal["5"] | int = 1,
    anything: Any = None,
    table: dict[str, float] | list[int] | None = None,
) -> None:
    """One argument of many kinds."""


def test_repairing_one_argument_leaves_the_others_as_they_are() -> None:
    sent = {
        "ratio": 1.5,
        "price": "2.50",
        "when": "2024-05-01T12:00:00Z",
        "code": 5,
        "anything": {"a": ["5", 5]},
        "table": {"a": 0.5},
    }
    assert mixed.validate({"text": 7, **sent}) == {"text": "7", **sent}
    assert problems(mixed, {"text": None, **sent}) == {"text": "expected a string, got null"}


@tool
def book(
    train: str,
    seat_class: Literal["first", "tourist"] = "first",
    passengers: list[Passenger] = [],  # noqa: B006 - defaults are copied
    *,
    when: datetime | None = None,
    window: bool = True,
) -> None:
    """Book seats."""


def test_the_text_of_the_error_is_written_for_the_model() -> None:
    sent = {"seat_class": "business", "passengers": [{"name": "Ann"}, {"age": 4}]}
    with pytest.raises(InvalidArguments) as caught:
        book.validate(json.dumps(sent))
    assert str(caught.value) == (
        'Validation failed for tool "book":\n'
        '  - seat_class: expected "first" or "tourist", got "business"\n'
        "  - passengers[1].name: missing\n"
        "  - train: missing\n"
        "\n"
        "Received arguments:\n" + json.dumps(sent, indent=2)
    )
    assert caught.value.tool == "book"
    assert caught.value.received == json.dumps(sent)
    assert isinstance(caught.value, BeforehandError)


def test_text_that_is_no_json_is_shown_as_it_came() -> None:
    with pytest.raises(InvalidArguments) as caught:
        taking(int).validate("{'x': 1}")
    head, _, rest = str(caught.value).partition("\n")
    assert head == 'Validation failed for tool "body":'
    assert rest.startswith("  - not valid JSON: ")
    assert rest.endswith("\n\nReceived arguments:\n{'x': 1}")


@tool(parameters={"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer"}}}})
def written(x: list[int]) -> None:
    """A tool whose schema is written out."""


@pytest.mark.parametrize("kind", [list[int], list[int | bool], dict[str, int], dict[int, int], list[int] | None])
def test_a_thousand_errors_are_enough(kind: Any) -> None:
    wrong = ["a"] * 5_000 if "list" in str(kind) else {f"k{n}": "a" for n in range(5_000)}
    with pytest.raises(InvalidArguments) as caught:
        taking(kind).validate({"x": wrong})
    assert len(caught.value.errors) == 1_000
    assert "\n  - and at least 950 more\n" in str(caught.value)


def test_a_thousand_unknown_names_are_enough() -> None:
    for one in (taking(int), written):
        with pytest.raises(InvalidArguments) as caught:
            one.validate({"x": 1} | {f"k{n}": "a" for n in range(5_000)})
        assert len(caught.value.errors) == 1_000


def test_many_scalars_in_the_wrong_type_are_still_repaired() -> None:
    items = ["1"] * 5_000
    for one in (taking(list[int] | None), written):
        assert one.validate({"x": items})["x"] == [1] * 5_000


def test_of_large_arguments_a_written_schema_says_the_first_error() -> None:
    with pytest.raises(InvalidArguments) as caught:
        written.validate({"x": ["a"] * 50_000})
    assert caught.value.errors == (("x[0]", 'expected an integer, got "a"'),)
    assert written.validate({"x": [1] * 50_000})["x"] == [1] * 50_000


def test_long_arguments_are_not_repeated_whole() -> None:
    sent = json.dumps({"x": "a" * 30_000})
    with pytest.raises(InvalidArguments) as caught:
        taking(int).validate(sent)
    assert str(caught.value).endswith("aaa\n[cut: 10013 characters left out]")
    assert caught.value.received == sent


def test_a_path_has_at_most_so_many_characters() -> None:
    assert taking(Path).validate({"x": "/a" * 2_048})
    with pytest.raises(InvalidArguments, match="a path has at most 4,096 characters"):
        taking(Path).validate({"x": "a/" * 1_000_000})


def test_a_long_list_of_errors_is_cut_in_the_text_but_not_in_the_error() -> None:
    with pytest.raises(InvalidArguments) as caught:
        taking(list[int]).validate({"x": ["a"] * 60})
    assert len(caught.value.errors) == 60
    assert "x[49]: " in str(caught.value)
    assert "x[50]: " not in str(caught.value)
    assert "  - and 10 more\n" in str(caught.value)


def test_a_long_value_is_cut_in_the_message() -> None:
    (message,) = problems(taking(int), {"x": "9" * 100 + "!"}).values()
    assert len(message) < 100
    assert message.endswith("...")


def test_left_out_arguments_get_their_defaults_and_null_leaves_one_out() -> None:
    complete: dict[str, Any] = {"train": "a", "seat_class": "first", "passengers": [], "when": None, "window": True}
    assert book.validate({"train": "a"}) == complete
    assert book.validate({"train": "a", "seat_class": None, "passengers": None, "when": None, "window": None}) == complete


def test_a_null_that_the_type_allows_stays_null() -> None:
    assert taking(int | None, default=5).validate('{"x": null}') == {"x": None}


def test_none_as_default_makes_null_acceptable() -> None:
    made = taking(int, default=None)
    assert made.validate("{}") == made.validate('{"x": null}') == {"x": None}
    assert made.kwargs_from_json("{}") == {"x": None}


@pytest.mark.parametrize("nothing", ["", "  \n", "{}", {}])
def test_nothing_sent_is_no_arguments(nothing: Any) -> None:
    made = taking(int, default=3)
    assert made.validate(nothing) == {"x": 3}


def test_an_unknown_argument_is_an_error_never_dropped() -> None:
    assert problems(taking(int), '{"x": 1, "y": 2}') == {"y": "unknown (expected x)"}

    @tool
    def nullary() -> None: ...

    assert problems(nullary, '{"y": 2}') == {"y": "unknown"}
    with pytest.raises(InvalidArguments, match="y: unknown"):
        nullary.kwargs_from_json('{"y": 2}')


def test_kwargs_take_the_rest_checked_by_their_hint() -> None:
    @tool
    def tag(name: str, **labels: int) -> None: ...

    args = tag.validate('{"name": 1, "a": "1", "labels": 2}')
    assert args == {"name": "1", "a": 1, "labels": 2}
    assert tag.validate(args) == args
    assert tag.kwargs(args) == {"name": "1", "a": 1, "labels": 2}
    assert not tag.direct
    assert tag.parameters["additionalProperties"] == {"type": "integer"}
    assert list(tag.parameters["properties"]) == ["name"]
    assert problems(tag, '{"a": "x"}') == {"a": 'expected an integer, got "x"', "name": "missing"}


def test_kwargs_without_a_hint_take_anything() -> None:
    @tool
    def tag(**labels) -> None: ...  # type: ignore[no-untyped-def]

    assert tag.parameters == {"type": "object", "properties": {}, "additionalProperties": True}
    assert tag.validate('{"a": [1]}') == {"a": [1]}


def test_kwargs_never_take_what_the_call_itself_passes() -> None:
    def fetch(ctx: ToolContext, path: str, root: str = "/", **rest: Any) -> None: ...

    class Shelf:
        @tool
        def put(self, **rest: Any) -> None: ...

    bound = tool(functools.partial(fetch, root="/safe"))
    assert problems(bound, '{"path": "a", "root": "/", "ctx": 1}') == {"root": "unknown", "ctx": "unknown"}
    assert problems(Shelf().put, '{"self": 1}') == {"self": "unknown"}
    assert bound.validate('{"path": "a", "b": 1}') == {"path": "a", "b": 1}


# --- what comes back -----------------------------------------------------------------------------


def test_validated_arguments_are_deeply_frozen() -> None:
    args = taking(dict[str, list[dict[str, int]]]).validate({"x": {"a": [{"b": 1}]}})
    for change in (
        lambda: args.update(x=1),
        lambda: args["x"].clear(),
        lambda: args["x"]["a"].append(1),
        lambda: args["x"]["a"][0].pop("b"),
    ):
        with pytest.raises(FrozenError):
            change()


def test_what_the_body_gets_shares_nothing_with_the_arguments() -> None:
    made = taking(dict[str, list[int]])
    args = made.validate({"x": {"a": [1]}})
    first, second = made.kwargs(args), made.kwargs(args)
    first["x"]["a"].append(2)
    assert second == {"x": {"a": [1]}}
    assert args == {"x": {"a": [1]}}
    assert type(taking(Any).kwargs(args)["x"]["a"]) is list


def test_what_was_sent_is_never_changed() -> None:
    sent = {"x": {"a": [1]}}
    taking(dict[str, list[str]]).validate(sent)
    assert sent == {"x": {"a": [1]}}


@pytest.mark.parametrize("wrap", [MappingProxyType, FrozenDict, dict])
def test_any_mapping_will_do_and_may_hold_python_values(wrap: Any) -> None:
    args = taking(Any).validate(wrap({"x": {"day": date(2024, 5, 1), "who": Passenger("a"), "pair": (1, 2)}}))
    assert args == {"x": {"day": "2024-05-01", "who": {"name": "a", "age": 30}, "pair": [1, 2]}}
    assert taking(Any).validate({"x": MappingProxyType({"a": 1})}) == {"x": {"a": 1}}


# --- hostile input -------------------------------------------------------------------------------

DEEP = "[" * 1000 + "]" * 1000
LOOP: dict[str, Any] = {}
LOOP["x"] = LOOP
HOSTILE: list[tuple[Any, str]] = [
    ("[1]", r"expected an object with the arguments, got \[1\]"),
    ("null", "expected an object with the arguments, got null"),
    ('"text"', 'expected an object with the arguments, got "text"'),
    (None, "expected an object with the arguments, got null"),
    ([1], r"expected an object with the arguments, got \[1\]"),
    ('{"x": 1', "not valid JSON: "),
    ("{'x': 1}", "not valid JSON: "),
    ('{"x": NaN}', "not valid JSON: "),
    ('{"x": -Infinity}', "not valid JSON: "),
    ('{"x": 1e999}', "number out of range"),
    ('{"x": ' + "9" * 5000 + "}", "integer value out of range"),
    ('{"x": "\\ud800"}', "not valid JSON: "),
    ('{"x": "\ud800"}', "not valid JSON: "),
    (b'{"x": "\xff"}', "utf-8"),
    ({"x": "\ud800"}, "surrogates not allowed"),
    ({"x": math.nan}, "contains nan, which is not a JSON number"),
    ({"x": [-math.inf]}, "contains -inf, which is not a JSON number"),
    ({"x": object()}, "object has no JSON form"),
    ({"x": 10**6000}, "integer"),
    ({"x": {(1, 2): 3}}, "dict"),
    (LOOP, "nested too deeply"),
    ('{"x": ' + DEEP + "}", "nested too deeply"),
]


@pytest.mark.parametrize(("sent", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_json_object_is_refused_in_words(sent: Any, message: str) -> None:
    for made in (taking(Any), taking(int), taking(list[Any] | None)):
        with pytest.raises(InvalidArguments) as caught:
            made.validate(sent)
        str(caught.value).encode()  # the text goes into the next request
    with pytest.raises(InvalidArguments, match=message):
        taking(Any).validate(sent)


def test_an_object_that_cannot_show_itself_is_refused_all_the_same() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert problems(taking(int), Mute())[""].startswith("expected an object with the arguments, got <")


def test_of_duplicate_keys_the_last_counts_for_gates_and_body_alike() -> None:
    made = taking(int)
    assert made.validate('{"x": 1, "x": 2}') == {"x": 2}
    assert made.kwargs_from_json('{"x": 1, "x": 2}') == {"x": 2}


class Chain(msgspec.Struct):
    next: Chain | None = None
    value: int = 0


def test_an_error_far_inside_a_recursive_type_is_found_in_time() -> None:
    depth = 60
    text = '{"x": ' + '{"next": ' * depth + '{"value": "x"}' + "}" * depth + "}"
    assert list(problems(taking(Chain), text)) == ["x" + ".next" * depth + ".value"]


# --- canonical forms -----------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path.resolve()
    (home / "real").mkdir()
    (home / "link").symlink_to(home / "real")
    monkeypatch.chdir(home)
    return home


@pytest.mark.parametrize(
    ("hint", "sent", "seen"),
    [
        (Path, "x/../.env", "{}/.env"),
        (Path, "link/.env", "{}/real/.env"),
        (Path, "~/.env", "{}/~/.env"),
        (Path, "", "{}"),
        (Path | None, "link", "{}/real"),
        (Path | None, None, None),
        (list[Path], ["link", "a"], ["{}/real", "{}/a"]),
        (dict[str, Path], {"link": "link"}, {"link": "{}/real"}),
        (dict[str, list[Path | None]], {"a": ["link", None]}, {"a": ["{}/real", None]}),
        (set[Path], ["link", "real"], ["{}/real"]),
        (Annotated[Path, Meta(description="where")], "link", "{}/real"),
    ],
)
def test_paths_become_absolute_and_free_of_links_wherever_they_stand(place: Path, hint: Any, sent: Any, seen: Any) -> None:
    made = taking(hint)
    args = made.validate({"x": sent})
    assert args == json.loads(json.dumps({"x": seen}).replace("{}", str(place)))
    assert made.validate(args) == args
    assert not made.direct


def test_the_body_gets_the_path_the_gate_saw_even_if_a_link_has_moved_since(place: Path) -> None:
    made = taking(Path)
    args = made.validate('{"x": "real/file"}')
    (place / "real").rmdir()
    (place / "real").symlink_to("/etc")
    assert made.kwargs(args) == {"x": place / "real" / "file"}


def test_paths_inside_structs_are_canonical_too(place: Path) -> None:
    @dataclass
    class Copy:
        source: Path
        targets: list[Path]

    made = taking(Copy)
    args = made.validate({"x": {"source": "link", "targets": ["../x"]}})
    assert args == {"x": {"source": f"{place}/real", "targets": [f"{place.parent}/x"]}}
    assert made.kwargs(args) == {"x": Copy(place / "real", [place.parent / "x"])}


def test_a_canonical_function_settles_an_argument_after_validation() -> None:
    @tool(canonical={"city": str.lower, "tags": sorted})
    def go(city: str, tags: list[str], n: int = 1) -> None: ...

    args = go.validate({"city": "BERN", "tags": ["b", 1], "n": "2"})
    assert args == {"city": "bern", "tags": ["1", "b"], "n": 2}
    assert go.validate(args) == args
    assert not go.direct


def test_a_canonical_function_that_fails_refuses_the_call() -> None:
    def must_be_known(city: str) -> str:
        raise LookupError(f"no city named {city}")

    @tool(canonical={"city": must_be_known, "n": lambda n: "many"})
    def go(city: str, n: int) -> None: ...

    assert problems(go, {"city": "Ys", "n": 1}) == {"city": "no city named Ys"}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda n: "many", 'expected an integer, got "many"'),
        (lambda n: math.inf, "contains inf"),
        (lambda n: object(), "object has no JSON form"),
    ],
)
def test_a_canonical_value_must_fit_the_type_like_any_other(make: Any, complaint: str) -> None:
    @tool(canonical={"n": make})
    def go(n: int) -> None: ...

    assert complaint in "".join(problems(go, {"n": 1}).values())


def test_a_canonical_function_cannot_change_what_it_was_not_given() -> None:
    # It gets a copy of its own, so it may even work in place.
    def shrink(tags: list[str]) -> list[str]:
        tags.pop()
        return tags

    @tool(canonical={"tags": shrink})
    def go(tags: list[str]) -> None: ...

    sent = {"tags": ["a", "b"]}
    assert go.validate(sent) == {"tags": ["a"]}
    assert sent == {"tags": ["a", "b"]}


# --- the shim ------------------------------------------------------------------------------------


def test_prepare_arguments_repairs_what_a_model_got_wrong_before_it_is_checked() -> None:
    def rename(raw: dict[str, Any]) -> Mapping[str, Any]:
        assert type(raw) is dict
        if "file_path" in raw:
            raw["path"] = raw.pop("file_path")
        return raw

    @tool(prepare_arguments=rename)
    def read(path: str) -> None: ...

    assert read.validate('{"file_path": "a"}') == {"path": "a"}
    assert read.validate({"path": "a"}) == {"path": "a"}
    assert not read.direct
    assert read.kwargs_from_json('{"file_path": "a"}') == {"path": "a"}
    assert problems(read, "[1]") == {"": "expected an object with the arguments, got [1]"}


@pytest.mark.parametrize(
    ("shim", "complaint"),
    [
        (lambda raw: raw["missing"], "'missing'"),
        (lambda raw: None, "expected an object with the arguments, got null"),
        (lambda raw: {"x": object()}, "object has no JSON form"),
    ],
)
def test_a_shim_that_fails_refuses_the_call(shim: Any, complaint: str) -> None:
    @tool(prepare_arguments=shim)
    def read(x: int) -> None: ...

    assert problems(read, '{"x": 1}') == {"": complaint}


# --- what only `kwargs` can meet -----------------------------------------------------------------


def test_arguments_that_were_never_validated_are_refused_by_the_body_decoder() -> None:
    with pytest.raises(InvalidArguments):
        taking(int).kwargs({"x": "a"})
