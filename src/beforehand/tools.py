"""Tools: `@tool` makes a `Tool` from a function. It knows how to check arguments and what to call; it never calls.

A tool's body is reachable only through the pipeline in `toolcall.py`, so that no call goes around the gates. The one way
round is spelled `tool.unguarded`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypedDict, Unpack, overload

import msgspec

from .errors import ToolDefinitionError
from .frozen import EMPTY_DICT, Frozen, FrozenDict, freeze, thaw
from .messages import Content, Image, Text, ToolSpec, Usage, text_of
from .schema import HintSchema, InvalidArguments, JsonSchema, Rejected, Schema, plain, read_object, sendable, to_json
from .schema.signature import (
    Signature, caller, doc_of, is_async, is_generator, is_method, name_of, read_signature, where_of,
)  # fmt: skip

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")  # its default is for type checkers; typing has none before Python 3.13

__all__ = ["InvalidArguments", "Tool", "ToolContext", "ToolResult", "as_result", "tool"]

Replay = Literal["never", "safe"]
Mode = Literal["parallel", "sequential"]

_ALLOWED_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


# --- results -------------------------------------------------------------------------------------


class ToolResult(Frozen, frozen=True):
    """What a call gave. The model reads `content`; `details` and `structured_content` are for people and programs.

    `is_error` marks a failure the model should react to; `terminate` asks for no further request, and counts if every
    result of the batch asks. A body may return one, or anything `as_result` takes.
    """

    content: Content = ""
    details: Any = None
    structured_content: Any = None
    is_error: bool = False
    terminate: bool = False
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The visible text of the content."""
        return text_of(self.content)


def as_result(value: Any) -> ToolResult:
    """What a body returned, as a result.

    A `ToolResult` is kept (its parts frozen), text is the content, `None` is an empty result, parts are content. Anything else
    becomes JSON text, and mappings, lists and structs also `structured_content`. As in JSON everywhere, a float that is
    not finite becomes null. Raises TypeError, with what the tool returned and what it may return, for the rest.
    """
    if isinstance(value, str):
        return ToolResult(sendable(value))
    if value is None:
        return ToolResult()
    try:
        if type(value) is int:  # the commonest of the rest, and its JSON text is its own
            return ToolResult(str(value))
        if isinstance(value, ToolResult):
            return _settled(value)
        parts = value if isinstance(value, list | tuple) else (value,)
        if parts and all(isinstance(p, Text | Image) for p in parts):
            return ToolResult(_content(parts))
        if isinstance(value, bytes | bytearray | memoryview):
            raise TypeError("decode it to text, or make it an Image")
        text = msgspec.json.encode(plain(value)).decode()
        data = msgspec.json.decode(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"the tool returned {type(value).__name__}, which is no result ({error}): return text, None, a ToolResult, Text or "
            "Image parts, or data made of dicts, lists, numbers, structs, dataclasses or models"
        ) from None
    return ToolResult(text, structured_content=freeze(data) if isinstance(data, dict | list) else None)


def _settled(result: ToolResult) -> ToolResult:
    structured = result.structured_content
    return msgspec.structs.replace(
        result,
        content=_content(result.content),
        details=freeze(result.details),
        structured_content=None if structured is None else freeze(msgspec.json.decode(msgspec.json.encode(plain(structured)))),
    )


def _content(value: Any) -> Content:
    if isinstance(value, str):
        return sendable(value)
    parts = value if isinstance(value, list | tuple) else (value,)
    for part in parts:
        if not isinstance(part, Text | Image):
            raise TypeError(f"its content holds {type(part).__name__}: use text, or a list of Text and Image")
    return tuple([Text(sendable(p.text)) if isinstance(p, Text) else p for p in parts])


# --- the context a body may ask for --------------------------------------------------------------


class ToolContext(Generic[Deps]):
    """What a body gets if its first parameter is annotated `ToolContext`, or `ToolContext[MyDeps]` to have `deps` typed."""

    __slots__ = ("_call_id", "_call_tool", "_idempotency_key", "_run", "_tool_name", "_update")

    def __init__(
        self,
        *,
        call_id: str,
        tool_name: str,
        run: Any,
        call_tool: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
        update: Callable[[Any], None],
        idempotency_key: str,
    ) -> None:
        self._call_id, self._tool_name, self._run = call_id, tool_name, run
        self._call_tool, self._update, self._idempotency_key = call_tool, update, idempotency_key

    @property
    def call_id(self) -> str:
        """The id of this call. Nested calls carry it as their parent's."""
        return self._call_id

    @property
    def tool_name(self) -> str:
        """The name this call was made under."""
        return self._tool_name

    @property
    def run(self) -> Any:
        """The `RunInfo` of the run: ids, turn, usage, elapsed time, cost."""
        return self._run

    @property
    def deps(self) -> Deps:
        """What the caller of the run passed as `deps`."""
        deps: Deps = self._run.deps
        return deps

    @property
    def signal(self) -> Any:
        """Set when the run is aborted. A long sync body should look at it; an async one is cancelled some time after."""
        return self._run.signal

    @property
    def idempotency_key(self) -> str:
        """The same for each attempt at this call, also after a crash: hand it to systems that must not act twice."""
        return self._idempotency_key

    async def call_tool(self, name: str, args: Mapping[str, Any]) -> Any:
        """Call another tool of the agent, through the same checks and gates as a call by the model.

        Returns its result with `is_error` and `outcome`; a refusal is such a result, never an exception.
        """
        return await self._call_tool(name, args)

    def update(self, partial: Any) -> None:
        """Show progress: `partial` is anything a body may return. Not stored, and ignored once the body is done."""
        self._update(partial)


# --- tools ---------------------------------------------------------------------------------------


class Tool(Frozen, kw_only=True, frozen=True, eq=False):
    """A tool an agent can offer: a name, a schema, and a body that only the pipeline reaches. Made by `tool`.

    `where` is the body's "file:line". `direct` says that arguments can be decoded straight from JSON text.
    `replay="safe"` lets a call whose outcome is unknown after a crash run again. `timeout` is in seconds.
    """

    name: str
    description: str
    parameters: FrozenDict
    spec: ToolSpec
    unguarded: Callable[..., Any]
    """The body itself. Calling it goes around every hook, limit and record: do so on purpose or not at all."""
    where: str
    is_async: bool
    takes_context: bool
    direct: bool
    replay: Replay = "never"
    mode: Mode | None = None
    timeout: float | None = None
    canonical: Mapping[str, Callable[[Any], Any]] = EMPTY_DICT
    prepare_arguments: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None
    _schema: Schema
    _decode_text: Callable[[str], dict[str, Any] | None] | None = None
    _receiver: bool = False

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            f"tool {self.name!r} is not called directly: give it to an agent, use `ctx.call_tool({self.name!r}, ...)` inside "
            "another tool, or `.unguarded` to go around every gate on purpose"
        )

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """The tool bound to `instance`, for a body defined as a method; any other tool is itself."""
        if not self._receiver or (instance is None and not isinstance(self.unguarded, classmethod)):
            return self
        return msgspec.structs.replace(self, unguarded=self.unguarded.__get__(instance, owner), _receiver=False)

    def __repr__(self) -> str:
        return f"<Tool {self.name} ({self.where})>"

    def check(self) -> None:
        """Look for what only using the tool would show. Raises ToolDefinitionError."""
        if self._receiver:
            raise _refusal(self.name, self.where, "is a method: take it from an instance, as in `Class(...).method`")
        try:
            self._schema.check()
        except ValueError as error:
            raise _refusal(self.name, self.where, f"has a broken JSON Schema: {error}") from None

    def validate(self, arguments: str | Mapping[str, Any]) -> FrozenDict:
        """The final arguments: coerced, complete, canonical, JSON-shaped and deeply frozen.

        `arguments` is JSON text ("" means none) or a mapping. What comes back is stable: validating it again changes nothing,
        as long as `prepare_arguments` and `canonical` take their own results. Raises InvalidArguments with every problem.
        """
        try:
            text = to_json(arguments)
            if self.prepare_arguments is not None:
                text = to_json(self.prepare_arguments(read_object(text)))
            args = self._schema.accept(text)
            return self._canonicalise(args) if self.canonical else args
        except Rejected as error:
            raise InvalidArguments(self.name, error.problems, arguments) from error.__cause__
        except RecursionError:
            raise InvalidArguments(self.name, [("", "nested too deeply")], arguments) from None
        except Exception as error:  # from the owner's shim; arguments nobody could check are refused, not passed
            raise InvalidArguments(self.name, [("", str(error) or type(error).__name__)], arguments) from error

    def kwargs(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Fresh Python values for the body, of the types it declares, from what `validate` returned."""
        try:
            return self._schema.decode(args)
        except Exception as error:  # only for arguments that `validate` has not seen
            raise InvalidArguments(self.name, [("", str(error) or type(error).__name__)], args) from error

    def kwargs_from_json(self, arguments: str) -> dict[str, Any]:
        """`kwargs(validate(arguments))` in one step, where no one needs to see the arguments between. Only if `direct`."""
        if self._decode_text is not None and type(arguments) is str:
            values = self._decode_text(arguments)
            if values is not None:
                return values
        return self.kwargs(self.validate(arguments))

    def _canonicalise(self, args: FrozenDict) -> FrozenDict:
        changed, problems = dict(args), []
        for name, make in self.canonical.items():
            if name in args:
                try:
                    changed[name] = plain(make(thaw(args[name])))
                except Exception as error:  # the owner's function; an argument without canonical form is refused
                    problems.append((name, str(error) or type(error).__name__))
        if problems:
            raise Rejected(problems)
        return self._schema.accept(to_json(changed))


def _refusal(name: str, where: str, problem: str) -> ToolDefinitionError:
    return ToolDefinitionError(f"tool {name!r} ({where}) {problem}")


# --- the decorator -------------------------------------------------------------------------------


class ToolOptions(TypedDict, total=False):
    """What `tool` can be told; see there."""

    name: str | None
    description: str | None
    replay: Replay
    mode: Mode | None
    timeout: float | None
    canonical: Mapping[str, Callable[[Any], Any]]
    prepare_arguments: Callable[[dict[str, Any]], Mapping[str, Any]] | None
    parameters: Mapping[str, Any] | None


@overload
def tool(body: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(body: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a tool from a function, a method, a partial or a callable object: `@tool`, or `@tool(name=..., ...)`.

    The schema comes from the type hints, the description from the docstring's first paragraph, and what each parameter
    means from `Annotated[..., msgspec.Meta(description=...)]` or the docstring. Options:

    - `name`, `description`: instead of the function's own;
    - `replay`: "safe" if a call may run twice, "never" (default) if not;
    - `mode`: "sequential" makes a batch with this tool run one by one;
    - `timeout`: seconds;
    - `canonical`: {argument: function} that brings a valid value to the one form that gates, approvals and the body see;
    - `prepare_arguments`: gets the raw arguments as a dict and returns them repaired, before they are checked;
    - `parameters`: a JSON Schema to use instead of type hints. The body then gets plain JSON data.

    Raises ToolDefinitionError for a tool that could never work.
    """
    if body is not None:
        return _define(body, options, caller(1))
    return lambda body: _define(body, options, caller(1))


def _define(body: Any, options: ToolOptions, frame: Any) -> Tool:
    name, where = options.get("name"), where_of(body)
    name = name_of(body) if name is None else name
    try:
        _check(body, name, options)
        receiver = isinstance(body, classmethod) or is_method(body)
        call = body.__func__ if isinstance(body, classmethod | staticmethod) else body
        hinted = options.get("parameters") is None
        signature = read_signature(call, skip_first=receiver, context=ToolContext, hints_needed=hinted, frame=frame)
        schema = _schema(signature, options.get("parameters"))
        canonical = FrozenDict(options.get("canonical") or {})
        unknown = sorted(canonical.keys() - schema.parameters.get("properties", {}).keys())
        if unknown:
            raise TypeError(f"has canonical={{{unknown[0]!r}: ...}}, but no such argument")
    except TypeError as error:
        raise _refusal(str(name), where, str(error)) from None
    written, parameters = options.get("description"), freeze(schema.parameters)
    description = doc_of(call) if written is None else written
    direct = isinstance(schema, HintSchema) and schema.direct and not canonical and not options.get("prepare_arguments")
    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        spec=ToolSpec(name, description, parameters),
        unguarded=call if isinstance(body, staticmethod) else body,
        where=where,
        is_async=is_async(body),
        takes_context=signature.takes_context,
        direct=direct,
        replay=options.get("replay", "never"),
        mode=options.get("mode"),
        timeout=options.get("timeout"),
        canonical=canonical,
        prepare_arguments=options.get("prepare_arguments"),
        _schema=schema,
        _decode_text=schema.decode_text if isinstance(schema, HintSchema) and direct else None,
        _receiver=receiver,
    )


def _schema(signature: Signature, written: Mapping[str, Any] | None) -> Schema:
    if written is None:
        return HintSchema(signature.params, signature.extra, signature.reserved)
    names = {p.name for p in signature.params}
    needed = {p.name for p in signature.params if p.is_required}
    return JsonSchema(written, names, needed, signature.reserved, open=signature.extra is not None)


def _check(body: Any, name: Any, options: Mapping[str, Any]) -> None:
    """Refuse with TypeError what is wrong before a single parameter is looked at."""
    if isinstance(body, Tool):
        raise TypeError("is a tool already: make another from its `.unguarded`")
    if inspect.isclass(body) or not (callable(body) or isinstance(body, classmethod | staticmethod)):
        raise TypeError("is not a function, a method or a callable object")
    if is_generator(body):
        raise TypeError("yields: return the result instead, and show progress with `ctx.update`")
    if not isinstance(name, str) or not _ALLOWED_NAME(name):
        raise TypeError('needs a name of 1 to 64 letters, digits, "_" or "-": pass `name=`')
    unknown = sorted(options.keys() - ToolOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"has an unknown option {unknown[0]!r}: use {', '.join(ToolOptions.__annotations__)}")
    if options.get("replay", "never") not in ("never", "safe"):
        raise TypeError(f'has replay={options["replay"]!r}: use "never" or "safe"')
    if options.get("mode") not in (None, "parallel", "sequential"):
        raise TypeError(f'has mode={options["mode"]!r}: use "parallel" or "sequential"')
    timeout = options.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0):
        raise TypeError(f"has timeout={timeout!r}: use a number of seconds greater than 0")
    canonical = options.get("canonical") or {}
    if not isinstance(canonical, Mapping):
        raise TypeError(f"has canonical={canonical!r}: use {{argument: function}}")
    helpers = {f"canonical[{n!r}]": f for n, f in canonical.items()}
    helpers["prepare_arguments"] = options.get("prepare_arguments") or str
    for label, helper in helpers.items():
        if not callable(helper) or is_async(helper):
            raise TypeError(f"has {label} that is not a plain function")
