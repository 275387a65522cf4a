"""What `@tool` makes of a function, and what it refuses to make a tool of."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta

from beforehand.errors import FrozenError, ToolDefinitionError
from beforehand.messages import ToolSpec
from beforehand.tools import Tool, ToolContext, tool

if TYPE_CHECKING:
    from beforehand.tools import Mode as Unimportable  # a name that does not exist when the program runs


class Seat(msgspec.Struct):
    name: str
    age: int = 3


class Node(msgspec.Struct):
    value: int
    next: Node | None = None


def _context(deps: Any = None) -> ToolContext[Any]:
    async def call_tool(name: str, args: Any) -> Any:
        return name, args

    return ToolContext(call_id="c", tool_name="t", run=deps, call_tool=call_tool, update=lambda _: None, idempotency_key="k")


# --- what a tool knows ---------------------------------------------------------------------------


def test_a_plain_decorator_takes_everything_from_the_function() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two
        numbers.

        And say so at length.
        """
        return a + b

    assert isinstance(add, Tool)
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert (add.replay, add.mode, add.timeout, add.canonical) == ("never", None, None, {})
    assert (add.is_async, add.takes_context, add.direct) == (False, False, True)
    assert add.spec == ToolSpec("add", "Add two numbers.", add.parameters)
    assert add.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert add.unguarded(1) == 3
    file, _, line = add.where.rpartition(":")
    assert Path(file).samefile(__file__)
    assert line.isdigit()


def test_options_win_over_what_the_function_says() -> None:
    @tool(name="sum-up", description="Other", replay="safe", mode="sequential", timeout=2.5, canonical={"a": abs})
    async def add(a: int) -> int:
        """Add."""
        return a

    assert (add.name, add.description, add.replay, add.mode, add.timeout) == ("sum-up", "Other", "safe", "sequential", 2.5)
    assert add.canonical == {"a": abs}
    assert add.is_async
    assert not add.direct


def test_a_tool_made_from_a_given_callable_takes_options_too() -> None:
    assert tool(lambda: 7, name="seven").unguarded() == 7


def test_calling_a_tool_says_how_to_call_it() -> None:
    @tool
    def add(a: int) -> int:
        return a

    with pytest.raises(TypeError, match=r"'add' is not called directly.*ctx\.call_tool\('add'.*\.unguarded"):
        add(a=1)


@pytest.mark.parametrize("change", [lambda t: setattr(t, "replay", "safe"), lambda t: delattr(t, "name")])
def test_a_tool_cannot_be_changed(change: Callable[[Tool], None]) -> None:
    @tool
    def add(a: int = 1) -> int:
        return a

    with pytest.raises(FrozenError):
        change(add)
    with pytest.raises(FrozenError):
        add.parameters["properties"]["a"]["type"] = "string"
    with pytest.raises(FrozenError):
        add.canonical["a"] = abs  # type: ignore[index]
    assert {add: 1}[add] == 1  # and so it can be a key


def test_a_tool_shows_its_name_and_where_it_is() -> None:
    @tool
    def add(a: int) -> int:
        return a

    assert repr(add) == f"<Tool add ({add.where})>"


@dataclass
class Order:
    seats: list[Seat]
    note: str = ""


class Leaf(msgspec.Struct):
    """A leaf."""

    x: int


SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (str, {"type": "string"}),
    (bool, {"type": "boolean"}),
    (Any, {}),
    (Path, {"type": "string"}),
    (Path | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    (date, {"type": "string", "format": "date"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (datetime | None, {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}),
    (Annotated[datetime, Meta(description="d")], {"type": "string", "description": "d", "format": "date-time"}),
    (Annotated[datetime, Meta(tz=True)], {"type": "string", "format": "date-time"}),
    (
        Annotated[dict[str, str], Meta(examples=[{"title": "a"}])],
        {"type": "object", "additionalProperties": {"type": "string"}, "examples": [{"title": "a"}]},
    ),
    (
        Annotated[Leaf, Meta(description="what")],
        {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "description": "what"},
    ),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
    (Literal["a", "b"], {"enum": ["a", "b"]}),
    (Annotated[int, Meta(ge=1, description="how many")], {"type": "integer", "minimum": 1, "description": "how many"}),
    (
        Order,
        {
            "type": "object",
            "properties": {
                "seats": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 3}},
                        "required": ["name"],
                    },
                },
                "note": {"type": "string", "default": ""},
            },
            "required": ["seats"],
        },
    ),
]


@pytest.mark.parametrize(("hint", "schema"), SCHEMAS, ids=lambda v: str(v)[:30])
def test_a_type_hint_becomes_a_schema_without_references_and_titles(hint: Any, schema: dict[str, Any]) -> None:
    def body(x: Any) -> None: ...

    body.__annotations__["x"] = hint
    assert tool(body).parameters["properties"]["x"] == schema


def test_a_type_that_contains_itself_keeps_one_reference() -> None:
    @tool
    def walk(start: Node) -> None: ...

    next_ = {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None}
    node = {"type": "object", "properties": {"value": {"type": "integer"}, "next": next_}, "required": ["value"]}
    assert walk.parameters["properties"]["start"] == node
    assert walk.parameters["$defs"] == {"Node": node}
    assert walk.kwargs(walk.validate('{"start": {"value": 1, "next": {"value": "2"}}}')) == {"start": Node(1, Node(2))}


def test_parameters_may_be_named_like_keywords_of_json_schema() -> None:
    @tool
    def odd(title: str, default: Seat, properties: int, discriminator: int = 1) -> None: ...

    properties = odd.parameters["properties"]
    assert list(properties) == ["title", "default", "properties", "discriminator"]
    assert properties["default"]["type"] == "object"


GOOGLE = """Book.

    Args:
        train (str): which
            train
        seats: how many: 1 or more

    Returns:
        nothing: at all
    """
NUMPY = """Book.

    Parameters
    ----------
    train : str
        which
        train
    seats
        how many: 1 or more

    Returns
    -------
    nothing
        at all
    """
REST = """Book.

    :param str train: which
        train
    :param seats: how many: 1 or more
    :returns: nothing
    """


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_a_docstring_says_what_the_parameters_mean(doc: str) -> None:
    def book(train: str, seats: int, nothing: Annotated[int, Meta(description="by hint")] = 0) -> None: ...

    book.__doc__ = doc
    properties = tool(book).parameters["properties"]
    assert properties["train"]["description"] == "which train"
    assert properties["seats"]["description"] == "how many: 1 or more"
    assert properties["nothing"]["description"] == "by hint"
    assert tool(book).description == "Book."


@pytest.mark.parametrize("doc", ["\nArgs:\n    n: how many", ":param n: how many", "Parameters\n----------\nn\n    how many"])
def test_a_docstring_of_sections_only_is_no_description(doc: str) -> None:
    def book(n: int) -> None: ...

    book.__doc__ = doc
    assert tool(book).description == ""
    assert tool(book).parameters["properties"]["n"]["description"] == "how many"


def test_a_hint_wins_over_the_docstring() -> None:
    @tool
    def book(n: Annotated[int, Meta(description="by hint")]) -> None:
        """Book.

        Args:
            n: by docstring
        """

    assert book.parameters["properties"]["n"]["description"] == "by hint"


def test_two_defaults_are_never_one_object() -> None:
    @tool
    def collect(into: list[int] = []) -> list[int]:  # noqa: B006 - the case at hand
        return into

    first, second = collect.kwargs_from_json("{}"), collect.kwargs_from_json("{}")
    first["into"].append(1)
    assert second == {"into": []}
    assert collect.parameters["properties"]["into"]["default"] == []


def test_a_relative_default_path_means_the_directory_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    def listing(where: Path = Path("here")) -> None: ...

    monkeypatch.chdir(tmp_path)
    assert listing.validate("") == {"where": str(tmp_path.resolve() / "here")}
    assert listing.parameters["properties"]["where"] == {"type": "string", "default": "here"}


# --- bodies of every kind ------------------------------------------------------------------------


class Asynchronous:
    """Does it."""

    async def __call__(self, x: int) -> int:
        return x

    async def method(self, x: int) -> int:
        return x

    def sync(self, x: int) -> int:
        return x


async def coroutine(x: int) -> int:
    return x


def synchronous(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("body", "name", "is_async"),
    [
        (coroutine, "coroutine", True),
        (synchronous, "synchronous", False),
        (Asynchronous(), "Asynchronous", True),
        (Asynchronous().method, "method", True),
        (Asynchronous().sync, "sync", False),
        (functools.partial(coroutine), "coroutine", True),
        (functools.partial(functools.partial(synchronous)), "synchronous", False),
        (functools.partial(Asynchronous()), "Asynchronous", True),
        (functools.partial(Asynchronous().method), "method", True),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_every_kind_of_callable_is_known_as_what_it_is(body: Any, name: str, is_async: bool) -> None:
    made = tool(body)
    assert (made.name, made.is_async) == (name, is_async)
    assert list(made.parameters["properties"]) == ["x"]
    assert made.unguarded is body


def test_a_callable_object_is_described_by_its_class_where_its_call_says_nothing() -> None:
    assert tool(Asynchronous()).description == "Does it."
    assert tool(functools.partial(Asynchronous())).description == "Does it."
    assert tool(coroutine).description == ""


def test_what_a_partial_has_settled_is_hidden_from_the_model() -> None:
    def fetch(root: str, path: str, token: str = "") -> str:
        return f"{root}{path}{token}"

    made = tool(functools.partial(fetch, "/r", token="s3cret"))
    assert list(made.parameters["properties"]) == ["path"]
    assert "s3cret" not in json.dumps(made.parameters)
    assert made.unguarded(**made.kwargs(made.validate('{"path": "/p"}'))) == "/r/ps3cret"


def test_a_decorated_function_is_known_by_what_it_wraps() -> None:
    def logged(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return wrapper

    @tool
    @logged
    def add(a: int) -> int:
        """Add."""
        return a

    assert (add.name, add.description, list(add.parameters["properties"])) == ("add", "Add.", ["a"])
    assert add.unguarded(a=1) == 1


class Desk:
    def __init__(self, city: str) -> None:
        self.city = city

    @tool
    def book(self, train: str) -> str:
        """Book a seat."""
        return f"{train} from {self.city}"

    @tool
    async def ask(self, ctx: ToolContext, question: str) -> str:
        return f"{question} in {self.city} for {ctx.call_id}"

    @tool
    @staticmethod
    def fare(km: int) -> int:
        return km * 2

    @staticmethod
    @tool
    def discount(km: int) -> int:
        return km

    @tool
    @staticmethod
    async def wait(seconds: int) -> int:
        return seconds

    @tool
    @classmethod
    async def open(cls, hours: int) -> str:
        return f"{cls.__name__} {hours}"

    @tool
    def leave(self: Desk, at: int) -> str:
        return f"{self.city} {at}"

    @tool
    @classmethod
    def kind(cls, loud: bool) -> str:
        return f"{cls.__name__} {loud}"

    elsewhere = tool(synchronous)


class Branch(Desk):
    @tool
    def book(self, train: str) -> str:
        return f"branch: {super().book.unguarded(train=train)}"


def test_a_method_is_bound_to_the_object_it_is_taken_from() -> None:
    desk, other = Desk("Bern"), Desk("Chur")
    assert isinstance(desk.book, Tool)
    assert list(desk.book.parameters["properties"]) == ["train"]
    assert desk.book.unguarded(train="IC 1") == "IC 1 from Bern"
    assert other.book.unguarded(train="IC 1") == "IC 1 from Chur"
    assert Branch("Brig").book.unguarded(train="IC 1") == "branch: IC 1 from Brig"
    desk.book.check()


def test_self_may_have_a_hint() -> None:
    assert list(Desk.leave.parameters["properties"]) == ["at"]
    assert Desk("Bern").leave.unguarded(at=5) == "Bern 5"


async def test_static_and_class_methods_may_be_async() -> None:
    assert (Desk.wait.is_async, Desk.open.is_async, Desk.kind.is_async) == (True, True, False)
    assert (Desk.wait.name, Desk.open.name) == ("wait", "open")
    assert await Desk.wait.unguarded(seconds=1) == 1
    assert await Desk.open.unguarded(hours=1) == "Desk 1"


async def test_a_method_may_take_a_context_after_self() -> None:
    ask = Desk("Bern").ask
    assert ask.takes_context
    assert ask.is_async
    assert list(ask.parameters["properties"]) == ["question"]
    assert await ask.unguarded(_context(), question="who?") == "who? in Bern for c"


def test_static_and_class_methods_need_no_object() -> None:
    for source in (Desk, Desk("Bern")):
        assert source.fare.unguarded(km=2) == 4
        assert source.discount.unguarded(km=2) == 2
        assert list(source.discount.parameters["properties"]) == list(source.fare.parameters["properties"]) == ["km"]
        assert source.kind.unguarded(loud=True) == "Desk True"
        assert list(source.kind.parameters["properties"]) == ["loud"]
        source.kind.check()
    assert Branch("Brig").kind.unguarded(loud=False) == "Branch False"


def test_a_tool_that_is_no_method_is_itself_inside_a_class() -> None:
    assert Desk("Bern").elsewhere is Desk.elsewhere
    Desk.elsewhere.check()


def test_a_method_without_its_object_does_not_pass_the_check() -> None:
    assert list(Desk.book.parameters["properties"]) == ["train"]
    with pytest.raises(ToolDefinitionError, match=r"tool 'book' \(.*test_tool_decorator\.py:\d+\) is a method: take it from"):
        Desk.book.check()


# --- the context ---------------------------------------------------------------------------------


def _plain(ctx: ToolContext, x: int) -> None: ...
def _parametrised(ctx: ToolContext[int], x: int) -> None: ...
def _quoted(ctx: "ToolContext", x: int) -> None: ...  # noqa: UP037 - the case at hand
def _annotated(ctx: Annotated[ToolContext, "note"], x: int) -> None: ...
def _positional_only(ctx: ToolContext, /, x: int) -> None: ...


@pytest.mark.parametrize(
    "body",
    [_plain, _parametrised, _quoted, _annotated, _positional_only, functools.partial(_plain)],
    ids=["plain", "parametrised", "quoted", "annotated", "positional", "partial"],
)
def test_a_first_parameter_for_the_context_is_no_argument(body: Any) -> None:
    made = tool(body)
    assert made.takes_context
    assert list(made.parameters["properties"]) == ["x"]


def test_the_context_is_recognised_by_name_where_it_was_imported_for_types_only() -> None:
    source = "from __future__ import annotations\ndef body(ctx: tools.ToolContext[Deps], x: int): ...\n"
    scope: dict[str, Any] = {}
    exec(source, scope)  # noqa: S102 - a module in which the name does not exist
    assert tool(scope["body"]).takes_context


def test_a_foreign_class_of_the_same_name_is_no_context() -> None:
    class ToolContext(msgspec.Struct):
        x: int

    @tool
    def body(ctx: ToolContext) -> None: ...

    assert not body.takes_context
    assert list(body.parameters["properties"]) == ["ctx"]


def test_postponed_annotations_may_name_local_classes() -> None:
    class Local(msgspec.Struct):
        x: int

    class Shelf:
        class Inner(msgspec.Struct):
            y: int

        @tool
        def put(self, inner: Inner, local: Local) -> None: ...

    @tool
    def take(local: list[Local]) -> None: ...

    assert take.kwargs(take.validate('{"local": [{"x": "1"}]}')) == {"local": [Local(1)]}
    args = Shelf().put.validate('{"inner": {"y": 1}, "local": {"x": 2}}')
    assert Shelf().put.kwargs(args) == {"inner": Shelf.Inner(1), "local": Local(2)}


def _closed_over() -> Any:
    class Hidden(msgspec.Struct):
        x: int

    def body(hidden: Hidden) -> Any:
        return Hidden

    return body


def _plain_factory() -> Any:
    def body(seat: Seat) -> None: ...

    return body


def test_postponed_annotations_may_name_what_a_function_closes_over() -> None:
    body = _closed_over()
    made = tool(body)
    assert made.kwargs(made.validate('{"hidden": {"x": 1}}')) == {"hidden": body(None)(1)}


def test_postponed_annotations_never_mean_a_name_of_whoever_makes_the_tool() -> None:
    class Seat(msgspec.Struct):
        other: int

    made = tool(_plain_factory())
    assert Seat.__struct_fields__ == ("other",)
    assert list(made.parameters["properties"]["seat"]["properties"]) == ["name", "age"]


# --- refusals ------------------------------------------------------------------------------------


def _no_hint(a: int, b) -> None: ...  # type: ignore[no-untyped-def]
def _star(*numbers: int) -> None: ...
def _slash(a: int, /) -> None: ...
def _complex(z: complex) -> None: ...
def _raw(z: msgspec.Raw) -> None: ...
def _callback(f: list[Callable[[int], int]]) -> None: ...
def _union(p: Path | int) -> None: ...
def _late(a: int, ctx: ToolContext) -> None: ...
def _by_name(*, ctx: ToolContext) -> None: ...
def _unknown_name(a: Unimportable) -> None: ...
def _broken_annotation(a: 1 / 0) -> None: ...  # type: ignore[valid-type]
def _sentinel(a: int = object()) -> None: ...  # type: ignore[assignment]
def _wrong_default(a: int = "x") -> None: ...  # type: ignore[assignment]
def _endless(a: float = float("inf")) -> None: ...
def _mangled(__a: int) -> None: ...


def _yields(a: int) -> Any:
    yield a


async def _yields_async(a: int) -> Any:
    yield a


async def _async_helper(x: Any) -> Any:
    return x


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (_no_hint, {}, "'_no_hint'.*parameter 'b' has no type hint: annotate it"),
    (_star, {}, r"\*numbers cannot be passed.*use a list parameter"),
    (_slash, {}, "parameter 'a' is positional-only.*remove the `/`"),
    (_complex, {}, "parameter 'z': complex cannot be made from JSON"),
    (_raw, {}, "parameter 'z': raw"),
    (_callback, {}, "parameter 'f': Callable cannot be made from JSON"),
    (_union, {}, "parameter 'p': Type unions"),
    (_late, {}, "parameter 'ctx' takes the context: make it the first parameter"),
    (_by_name, {}, "parameter 'ctx' gets the context by position"),
    (_unknown_name, {}, "parameter 'a': the name 'Unimportable' in its annotation cannot be found"),
    (_broken_annotation, {}, "parameter 'a': its annotation cannot be read: division by zero"),
    (_sentinel, {}, "parameter 'a': object has no JSON form"),
    (_wrong_default, {}, "parameter 'a': Expected `int`, got `str`"),
    (_endless, {}, "parameter 'a': its default contains inf"),
    (_mangled, {}, "a parameter name cannot be used"),
    (_yields, {}, r"yields: return the result instead.*ctx\.update"),
    (_yields_async, {}, "yields"),
    (int.__add__, {"name": "add"}, "parameter 'self' is positional-only"),
    (dict.fromkeys, {"parameters": {"type": "object"}, "name": "d"}, "positional-only|cannot be read"),
    (next, {}, "has a signature that cannot be read"),
    (lambda: None, {}, "tool '<lambda>'.*pass `name=`"),
    (synchronous, {"name": ""}, "needs a name of 1 to 64"),
    (synchronous, {"name": "a b"}, "needs a name of 1 to 64"),
    (synchronous, {"name": "a\n"}, "needs a name of 1 to 64"),
    (synchronous, {"name": "x" * 65}, "needs a name of 1 to 64"),
    (synchronous, {"name": 3}, "needs a name of 1 to 64"),
    (synchronous, {"replay": "always"}, "has replay='always': use .never. or .safe."),
    (synchronous, {"mode": "serial"}, "has mode='serial'"),
    (synchronous, {"timeout": 0}, "has timeout=0: use a number of seconds greater than 0"),
    (synchronous, {"timeout": -1.0}, "has timeout=-1.0"),
    (synchronous, {"timeout": "5"}, "has timeout='5'"),
    (synchronous, {"timeout": True}, "has timeout=True"),
    (synchronous, {"timeout": float("nan")}, "has timeout=nan"),
    (synchronous, {"canonical": {"y": abs}}, "has canonical={'y'.*no such argument"),
    (synchronous, {"canonical": ["x"]}, r"has canonical=\['x'\]: use {argument: function}"),
    (synchronous, {"canonical": {"x": 1}}, "that is not a plain function"),
    (synchronous, {"canonical": {"x": _async_helper}}, "that is not a plain function"),
    (synchronous, {"prepare_arguments": _async_helper}, "has prepare_arguments that is not a plain function"),
    (synchronous, {"retries": 3}, "has an unknown option 'retries': use name, description"),
    (synchronous, {"parameters": [1]}, "no JSON Schema: expected a dict, not list"),
    (synchronous, {"parameters": {"type": "array"}}, 'without "type": "object"'),
    (synchronous, {"parameters": {}}, 'without "type": "object"'),
    (synchronous, {"parameters": {"type": "object", "properties": []}}, "expected an object"),
    (synchronous, {"parameters": {"type": "object", "properties": {"y": {}}}}, "without a parameter for 'y'"),
    (Desk, {}, "is not a function"),
    ("text", {}, "is not a function"),
    (tool(synchronous), {}, "is a tool already"),
]


@pytest.mark.parametrize(("body", "options", "complaint"), REFUSED, ids=[c[:40] for _, _, c in REFUSED])
def test_a_tool_that_could_never_work_is_refused_where_it_is_defined(body: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ToolDefinitionError, match=complaint) as caught:
        tool(**options)(body)
    assert "\n" not in str(caught.value).replace("\\n", "")
    if hasattr(body, "__code__"):
        assert f"(/{Path(__file__).as_posix().lstrip('/')}:{body.__code__.co_firstlineno})" in str(caught.value)


def test_unset_stands_for_an_argument_that_was_not_given() -> None:
    @tool
    def patch(name: str | msgspec.UnsetType = msgspec.UNSET) -> None: ...

    assert patch.validate("{}") == {}
    assert patch.kwargs(patch.validate("{}")) == {"name": msgspec.UNSET}
    assert patch.kwargs(patch.validate('{"name": "x"}')) == {"name": "x"}


@dataclass
class Basket:
    items: list[str] = field(default_factory=list)


def test_a_struct_as_default_is_made_anew() -> None:
    @tool
    def fill(basket: Basket = Basket(["a"])) -> None: ...  # noqa: B008 - the case at hand

    first = fill.kwargs_from_json("{}")["basket"]
    first.items.append("b")
    assert fill.kwargs_from_json("{}") == {"basket": Basket(["a"])}


def test_importing_tools_loads_neither_pydantic_nor_a_json_schema_library() -> None:
    script = "import sys, beforehand.tools; print(*[m for m in ('pydantic', 'jsonschema_rs') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# --- what a body gets ----------------------------------------------------------------------------


async def test_a_context_passes_on_what_it_was_given() -> None:
    class Run:
        deps: ClassVar = {"db": 1}
        signal: ClassVar = object()

    seen: list[Any] = []

    async def call_tool(name: str, args: Any) -> Any:
        return "called", name, args

    ctx: ToolContext[dict[str, int]] = ToolContext(
        call_id="c1", tool_name="book", run=Run, call_tool=call_tool, update=seen.append, idempotency_key="k1"
    )
    assert (ctx.call_id, ctx.tool_name, ctx.run, ctx.idempotency_key) == ("c1", "book", Run, "k1")
    assert ctx.deps is Run.deps
    assert ctx.signal is Run.signal
    assert await ctx.call_tool("other", {"x": 1}) == ("called", "other", {"x": 1})
    ctx.update("half")
    assert seen == ["half"]
    with pytest.raises(AttributeError):
        ctx.extra = 1  # type: ignore[attr-defined]
