"""Tools whose parameters are written out as a JSON Schema."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

import pytest

from beforehand.errors import FrozenError, ToolDefinitionError
from beforehand.tools import InvalidArguments, Tool, ToolContext, tool


def taking(schema: Any, *, required: bool = True, more: dict[str, Any] | None = None) -> Tool:
    """A tool with one property `x` of this schema."""

    def body(**arguments: Any) -> dict[str, Any]:
        return arguments

    whole = {"type": "object", "properties": {"x": schema}, **({"required": ["x"]} if required else {}), **(more or {})}
    return tool(parameters=whole)(body)


def problems(made: Tool, arguments: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidArguments) as caught:
        made.validate(arguments)
    return list(caught.value.errors)


def test_the_schema_is_offered_as_written_but_frozen_and_apart_from_the_original() -> None:
    schema = {"type": "object", "title": "T", "properties": {"q": {"type": "string"}}}

    @tool(parameters=schema)
    async def search(ctx: ToolContext, q: str = "") -> str:
        """Search."""
        return q

    assert search.parameters == schema
    schema["properties"]["q"]["type"] = "integer"  # type: ignore[index]
    assert search.parameters["properties"]["q"] == {"type": "string"}
    with pytest.raises(FrozenError):
        search.parameters["properties"]["q"]["type"] = "integer"
    assert search.takes_context
    assert not search.direct
    assert search.kwargs_from_json('{"q": 1}') == {"q": "1"}


ACCEPTED: list[tuple[Any, Any, Any]] = [
    ({"type": "integer"}, "5", 5),
    ({"type": "integer"}, 5.0, 5),
    ({"type": "integer"}, "5.0", 5),
    ({"type": "number"}, "5", 5),
    ({"type": "number"}, "5.5", 5.5),
    ({"type": "number"}, 5.0, 5.0),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "False", False),
    ({"type": "boolean"}, 1, True),
    ({"type": "string"}, 5, "5"),
    ({"type": "string"}, True, "true"),
    ({"type": ["string", "integer"]}, "5", "5"),
    ({"type": ["integer", "null"]}, "5", 5),
    ({"type": ["integer", "null"]}, None, None),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", "5"),
    ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
    ({"anyOf": [{"type": "integer"}, {"minimum": 1}]}, "5", "5"),
    ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, "5", 5),
    ({"$ref": "#/$defs/count"}, "5", 5),
    ({"anyOf": [{"$ref": "#/$defs/count"}, {"type": "null"}]}, "5", 5),
    ({"$ref": "#/$defs/pair"}, {"a": "5"}, {"a": 5}),
    ({"type": ["integer", "string"]}, True, "true"),
    ({"anyOf": [True, {"type": "integer"}]}, "5", "5"),
    ({"type": ["integer", "string"]}, 5.5, "5.5"),
    ({"type": ["number", "string"]}, 5.5, 5.5),
    ({"type": "integer"}, str(10**400), 10**400),
    ({"type": "array", "items": {"type": "integer"}}, ["1", 2], [1, 2]),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, ["1", 2], [1, "2"]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "1"}, {"a": 1}),
    ({"type": "object", "properties": {"a": {"default": [1]}}}, {}, {"a": [1]}),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": None}, {}),
    ({"type": "object", "properties": {"a": {"type": "string", "default": None}}}, {}, {}),
    ({"type": "object", "properties": {"a": {"type": "string", "default": "d"}}}, {"a": None}, {"a": "d"}),
    ({"type": "object", "properties": {"a": {}}}, {"a": None}, {"a": None}),
    ({"type": "object", "properties": {"a": {"type": ["integer", "null"]}}}, {"a": None}, {"a": None}),
    ({"enum": ["a", 1]}, 1, 1),
    ({}, {"a": [None]}, {"a": [None]}),
    (True, "x", "x"),
    ({"allOf": [{"type": "string"}, {"minLength": 1}]}, 5, "5"),
    ({"type": "object", "properties": {"a": {"allOf": [{"type": "string"}]}}}, {"a": None}, {}),
    ({"type": "integer"}, str(10**30), 10**30),
]


@pytest.mark.parametrize(("schema", "sent", "seen"), ACCEPTED, ids=[json.dumps(s)[:50] for s, *_ in ACCEPTED])
def test_scalars_are_brought_to_the_types_of_the_schema(schema: Any, sent: Any, seen: Any) -> None:
    made = taking(schema, more={"$defs": {"count": {"type": "integer"}, "pair": {"properties": {"a": {"type": "integer"}}}}})
    made.check()
    args = made.validate(json.dumps({"x": sent}))
    assert args == {"x": seen}
    assert type(args["x"]) is type(seen) or isinstance(seen, dict | list)
    assert made.validate(args) == args
    fresh = made.kwargs(args)
    assert fresh == args
    assert type(fresh) is dict


REFUSED: list[tuple[dict[str, Any], Any, list[tuple[str, str]]]] = [
    ({"type": "integer"}, "five", [("x", 'expected an integer, got "five"')]),
    ({"type": "integer"}, 5.5, [("x", "expected an integer, got 5.5")]),
    ({"type": "boolean"}, 2, [("x", "expected true or false, got 2")]),
    ({"additionalProperties": {"type": "integer"}}, {"a": None}, [("x.a", "expected an integer, got null")]),
    ({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}, 1, [
        ("x", "fits none, or more than one, of the forms the schema allows, got 1")]),
    ({"type": "integer"}, True, [("x", "expected an integer, got true")]),
    ({"type": "integer"}, None, [("x", "expected an integer, got null")]),
    ({"type": "string"}, {}, [("x", "expected a string, got {}")]),
    ({"type": "string"}, None, [("x", "expected a string, got null")]),
    ({"type": "number"}, "nan", [("x", 'expected a number, got "nan"')]),
    ({"type": ["integer", "null"]}, "a", [("x", 'expected an integer or null, got "a"')]),
    ({"type": "string", "pattern": "^a", "maxLength": 2}, "bcd", [
        ("x", 'expected text of length 2 or less, got "bcd"'), ("x", 'expected text matching ^a, got "bcd"')]),
    ({"type": "integer", "minimum": 2}, "1", [("x", "expected a number of at least 2, got 1")]),
    ({"multipleOf": 3}, 4, [("x", "expected a multiple of 3, got 4")]),
    ({"uniqueItems": True}, [1, 1], [("x", "expected items that all differ, got [1,1]")]),
    ({"enum": ["a", "b"]}, "c", [("x", 'expected "a" or "b", got "c"')]),
    ({"const": 3}, 4, [("x", "expected 3, got 4")]),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a", [("x", 'expected an integer or null, got "a"')]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 1, [
        ("x", "fits none, or more than one, of the forms the schema allows, got 1")]),
    ({"not": {"type": "integer"}}, 1, [("x", '{"type":"integer"} is not allowed for 1')]),
    ({"not": {"enum": ["v" * 200]}}, "v" * 200, [("x", "does not satisfy 'not' of the schema, got \"" + "v" * 56 + "...")]),
    ({"type": "array", "items": {"type": "object", "required": ["a"], "additionalProperties": False}}, [{}, {"b": 1}], [
        ("x[0].a", "missing"), ("x[1].a", "missing"), ("x[1].b", "unknown")]),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1, "c": 2}, [("x.b", "unknown"), ("x.c", "unknown")]),
    ({"properties": {"a": False}}, {"a": 1}, [("x.a", "unknown")]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "sent", "expected"), REFUSED, ids=[json.dumps(s)[:50] for s, *_ in REFUSED])
def test_every_violation_is_reported_with_its_path(schema: Any, sent: Any, expected: list[tuple[str, str]]) -> None:
    assert sorted(problems(taking(schema), json.dumps({"x": sent}))) == sorted(expected)


def test_a_missing_and_an_unknown_argument_are_reported_together() -> None:
    made = taking({"type": "integer"}, more={"additionalProperties": False})
    assert sorted(problems(made, {"y": 1})) == [("x", "missing"), ("y", "unknown")]


def test_a_tool_without_parameters_takes_none() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    made = tool(lambda **rest: rest, name="nothing", parameters=schema)
    assert made.validate("") == {}
    assert problems(made, {"a": 1, "b": 2}) == [("a", "unknown"), ("b", "unknown")]


def test_a_body_with_a_schema_needs_no_hints() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}

    @tool(parameters=schema)
    def bare(x, **rest): ...  # type: ignore[no-untyped-def]

    @tool(parameters=schema)
    def elsewhere(x: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert bare.validate({"x": "1", "y": 2}) == {"x": 1, "y": 2}
    assert elsewhere.validate({"x": "1"}) == {"x": 1}


def test_a_builtin_function_needs_only_a_schema() -> None:
    schema = {"type": "object", "properties": {"reverse": {"type": "boolean"}}}
    made = tool(functools.partial(sorted, [1, 3, 2]), parameters=schema)
    assert (made.name, made.where) == ("sorted", "functools.partial")
    assert made.unguarded(**made.kwargs(made.validate({"reverse": "true"}))) == [3, 2, 1]


def test_what_the_body_cannot_take_is_refused_even_if_the_schema_allows_it() -> None:
    @tool(parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
    def narrow(ctx: ToolContext, a: int, b: int = 1) -> None: ...

    closed = tool(narrow.unguarded, parameters={**narrow.parameters, "required": ["a"], "additionalProperties": False})
    assert sorted(problems(closed, {"c": 1})) == [("a", "missing"), ("c", "unknown")], "once each"
    assert sorted(problems(narrow, {"c": 1})) == [("a", "missing"), ("c", "unknown")]
    assert narrow.validate({"a": "1", "b": 2}) == {"a": 1, "b": 2}

    @tool(parameters={"type": "object"})
    def wide(ctx: ToolContext, **rest: Any) -> None: ...

    assert problems(wide, {"ctx": 1}) == [("ctx", "unknown")]
    assert wide.validate({"a": 1}) == {"a": 1}


def test_a_default_of_the_schema_is_never_shared() -> None:
    made = taking({"type": "array", "default": []}, required=False)
    made.kwargs(made.validate("{}"))["x"].append(1)
    assert made.kwargs(made.validate("{}")) == {"x": []}
    assert made.parameters["properties"]["x"]["default"] == []


def test_the_shim_and_canonical_forms_work_with_a_schema_too() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}

    @tool(parameters=schema, canonical={"x": str.lower}, prepare_arguments=lambda raw: {"x": raw.get("y", raw.get("x"))})
    def body(x: str) -> None: ...

    assert body.validate({"y": "ABC"}) == {"x": "abc"}
    assert body.validate({"x": "ABC"}) == {"x": "abc"}


def test_an_argument_that_is_absent_has_no_canonical_form() -> None:
    @tool(parameters={"type": "object", "properties": {"x": {"type": "string"}}}, canonical={"x": str.lower})
    def body(x: str = "") -> None: ...

    assert body.validate("") == {}


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"type": "objekt"}, r"broken JSON Schema: .*objekt.* \(at properties/x/type\)"),
    ({"pattern": "("}, "broken JSON Schema: .*regex"),
    ({"$ref": "#/$defs/nowhere"}, "broken JSON Schema: .*nowhere"),
    ({"$ref": "http://127.0.0.1:9/schema.json"}, "broken JSON Schema: .*checking arguments must not send requests"),
]


@pytest.mark.parametrize(("schema", "complaint"), BROKEN, ids=[c for _, c in BROKEN])
def test_a_broken_schema_is_found_by_the_check_and_no_call_gets_past_it(schema: dict[str, Any], complaint: str) -> None:
    made = taking(schema)
    with pytest.raises(ToolDefinitionError, match=r"tool 'body' \(.*:\d+\) has a " + complaint) as caught:
        made.check()
    assert "\n" not in str(caught.value)
    assert "(at )" not in str(caught.value)
    with pytest.raises(InvalidArguments):
        made.validate('{"x": "a"}')


def test_references_that_go_round_in_circles_refuse_the_call() -> None:
    made = taking({"$ref": "#/$defs/a"}, more={"$defs": {"a": {"$ref": "#/$defs/a"}}})
    with pytest.raises(InvalidArguments):
        made.validate('{"x": 1}')


def test_a_schema_that_is_no_json_is_refused_where_it_is_defined() -> None:
    with pytest.raises(ToolDefinitionError, match="tool 'body'"):
        taking({"enum": [object()]})


@pytest.mark.parametrize("sent", ["[1]", "{", '{"x": NaN}', '{"x": "\\ud800"}', b"\xff", {"x": float("nan")}, {"x": "\ud800"}])
def test_what_is_no_json_object_is_refused(sent: Any) -> None:
    with pytest.raises(InvalidArguments):
        taking({}).validate(sent)


def test_the_schema_library_is_loaded_by_the_first_use_only() -> None:
    script = (
        "import sys\n"
        "from beforehand.tools import tool\n"
        "@tool(parameters={'type': 'object'})\n"
        "def body(**rest): ...\n"
        "before = 'jsonschema_rs' in sys.modules\n"
        "body.validate('{}')\n"
        "print(before, 'jsonschema_rs' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
