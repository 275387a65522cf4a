"""Pydantic models as parameter types, when pydantic is installed."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

pydantic = pytest.importorskip("pydantic")

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, field_validator  # noqa: E402 - only if it is there

from beforehand.errors import ToolDefinitionError  # noqa: E402
from beforehand.tools import InvalidArguments, as_result, tool  # noqa: E402


class Person(BaseModel):
    name: str = Field(description="who")
    age: int = Field(ge=0, default=30)


class Trip(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date
    people: list[Person]
    class_: str = Field(alias="class", default="first")

    @field_validator("class_")
    @classmethod
    def known(cls, value: str) -> str:
        if value not in ("first", "tourist"):
            raise ValueError("no such class")
        return value


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Copy(BaseModel):
    source: Path
    targets: dict[str, list[Path]] = {}


@tool
def plan(trip: Trip, others: list[Person] = [], guide: Person | None = None) -> None:  # noqa: B006 - defaults are copied
    """Plan a trip."""


GOOD = '{"trip": {"day": "2024-05-01", "people": [{"name": "Ann", "age": 4}], "class": "tourist"}}'


def test_a_model_is_checked_completed_and_handed_to_the_body() -> None:
    args = plan.validate(GOOD)
    assert args == {
        "trip": {"day": "2024-05-01", "people": [{"name": "Ann", "age": 4}], "class": "tourist"},
        "others": [],
        "guide": None,
    }
    assert plan.validate(args) == args
    kwargs = plan.kwargs(args)
    assert kwargs["trip"] == Trip(day=date(2024, 5, 1), people=[Person(name="Ann", age=4)], **{"class": "tourist"})
    assert not plan.direct
    assert plan.kwargs_from_json(GOOD) == kwargs


def test_the_schema_of_a_model_stands_where_it_is_used() -> None:
    properties = plan.parameters["properties"]
    assert "$defs" not in plan.parameters
    assert properties["others"]["items"]["properties"]["name"] == {"type": "string", "description": "who"}
    assert properties["trip"]["properties"]["people"]["items"] == properties["others"]["items"]


def test_a_model_that_contains_itself_keeps_its_reference() -> None:
    @tool
    def grow(tree: Tree) -> None: ...

    assert grow.parameters["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    args = grow.validate({"tree": {"value": 1, "children": [{"value": "2"}]}})
    assert args == {"tree": {"value": 1, "children": [{"value": 2, "children": []}]}}


def test_all_errors_of_a_model_are_reported_with_their_paths() -> None:
    with pytest.raises(InvalidArguments) as caught:
        plan.validate('{"trip": {"people": [{"age": -1}], "class": "bus"}, "others": [{"name": "a", "age": "x"}], "more": 1}')
    errors = dict(caught.value.errors)
    assert errors["trip.day"] == errors["trip.people[0].name"] == "missing"
    assert errors["trip.people[0].age"].endswith(", got -1")
    assert errors["trip.class"] == 'value error, no such class, got "bus"'
    assert errors["others[0].age"].endswith('got "x"')
    assert errors["more"].startswith("unknown")
    assert len(errors) == 6


def test_something_that_is_no_object_is_refused_for_a_model() -> None:
    with pytest.raises(InvalidArguments) as caught:
        plan.validate({"trip": 1, "guide": "Ann"})
    errors = dict(caught.value.errors)
    assert errors.keys() == {"trip", "guide"}
    assert errors["guide"] == 'expected an object or null, got "Ann"'


def test_the_errors_of_an_optional_model_are_its_own() -> None:
    with pytest.raises(InvalidArguments) as caught:
        plan.validate({"trip": {"day": "2024-05-01", "people": []}, "guide": {"age": 3}})
    assert caught.value.errors == (("guide.name", "missing"),)


def test_paths_inside_a_model_are_canonical_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path.resolve()

    @tool
    def copy(what: Copy) -> None: ...

    args = copy.validate({"what": {"source": "x/../.env", "targets": {"a": ["./b"]}}})
    assert args == {"what": {"source": f"{home}/.env", "targets": {"a": [f"{home}/b"]}}}
    assert copy.kwargs(args) == {"what": Copy(source=home / ".env", targets={"a": [home / "b"]})}
    assert copy.validate(args) == args


class Site(BaseModel):
    url: AnyUrl
    visits: dict[date, int] = {}
    tags: set[str] = set()
    sizes: tuple[frozenset[int], ...] = ()


def test_types_of_pydantic_and_sets_have_a_json_form_that_stays() -> None:
    @tool
    def visit(site: Site) -> None: ...

    args = visit.validate(
        {"site": {"url": "http://a.example", "tags": list("hgfedcba"), "sizes": [[10, "2"]], "visits": {"2024-05-01": 1}}}
    )
    assert args["site"] == {
        "url": "http://a.example/", "visits": {"2024-05-01": 1}, "tags": list("abcdefgh"), "sizes": [[2, 10]],
    }  # fmt: skip
    assert list(args["site"]) == ["url", "visits", "tags", "sizes"]
    assert visit.validate(args) == args
    assert visit.kwargs(args)["site"].tags == set("abcdefgh")


def test_a_number_that_json_does_not_have_is_refused_inside_a_model_too() -> None:
    class Reading(BaseModel):
        value: float

    def log(reading: Reading) -> None: ...

    log.__annotations__["reading"] = Reading
    with pytest.raises(InvalidArguments, match="contains nan, which is not a JSON number"):
        tool(log).validate('{"reading": {"value": "nan"}}')


def test_a_model_as_default_is_made_anew() -> None:
    @tool
    def greet(who: Person = Person(name="Ann")) -> None: ...  # noqa: B008 - the case at hand

    first = greet.kwargs(greet.validate("{}"))["who"]
    first.name = "Bob"
    assert greet.kwargs(greet.validate("{}")) == {"who": Person(name="Ann")}
    assert greet.parameters["properties"]["who"]["default"] == {"name": "Ann", "age": 30}


def test_a_pydantic_dataclass_is_refused_because_its_checks_would_not_run() -> None:
    from pydantic.dataclasses import dataclass

    @dataclass
    class Even:
        n: int

    def count(even: Even) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"Even is a pydantic dataclass.*make it a BaseModel"):
        tool(count)


def test_a_model_is_a_result_too_with_its_paths_as_they_are() -> None:
    assert as_result(Copy(source=Path("x/../y"))).text == '{"source":"x/../y","targets":{}}'
    result = as_result(Trip(day=date(2024, 5, 1), people=[], **{"class": "first"}))
    assert result.text == '{"day":"2024-05-01","people":[],"class":"first"}'
    assert result.structured_content == {"day": "2024-05-01", "people": [], "class": "first"}
