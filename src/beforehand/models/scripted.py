"""Models that say what a test tells them to: no network, no key, and every request on record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from ..errors import ModelError, ServerError
from ..frozen import Frozen
from ..messages import NO_USAGE, MessageStop, Request, Usage
from .base import NO_CALL_INFO, CallInfo, Finish, Model, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta

_to_json = msgspec.json.Encoder().encode


class Say(Frozen):
    """Text or reasoning, in the given chunks."""

    chunks: tuple[str, ...]
    thinking: bool = False


class CallTool(Frozen):
    """A tool call. `chunks` are the pieces its arguments arrive in."""

    name: str
    chunks: tuple[str, ...]
    id: str | None = None


class Fail(Frozen):
    """The reply fails here."""

    error: ModelError


class Delay(Frozen):
    """The model takes its time."""

    seconds: float


class End(Frozen):
    """How the reply ends. Without one it ends as the parts suggest."""

    stop_reason: MessageStop | None
    usage: Usage = NO_USAGE
    cut: bool = False


ResponsePart: TypeAlias = Say | CallTool | Fail | Delay | End
Response: TypeAlias = ResponsePart | Sequence[ResponsePart]


def text(content: str, chunks: Sequence[str] | None = None) -> Say:
    """Visible text, in one chunk unless `chunks` gives the pieces (which then are the content)."""
    return Say(tuple(chunks) if chunks is not None else (content,))


def thinking(content: str, chunks: Sequence[str] | None = None) -> Say:
    """Reasoning text."""
    return Say(tuple(chunks) if chunks is not None else (content,), thinking=True)


def tool_call(name: str, args: Any = None, id: str | None = None, chunks: Sequence[str] | None = None) -> CallTool:
    """A tool call. `args` is a dict, or a string to send as it is (broken JSON included)."""
    raw = args if isinstance(args, str) else _to_json({} if args is None else args).decode()
    return CallTool(name, tuple(chunks) if chunks is not None else (raw,), id)


def error(problem: str | ModelError) -> Fail:
    """A failure at this point of the reply: a `ServerError` with this text, or the given error."""
    return Fail(problem if isinstance(problem, ModelError) else ServerError(problem))


def delay(seconds: float) -> Delay:
    """Wait before going on."""
    return Delay(seconds)


def finish(stop_reason: MessageStop | None = None, usage: Usage = NO_USAGE) -> End:
    """End with this stop reason and usage."""
    return End(stop_reason, usage)


def cut() -> End:
    """The stream ends without a stop reason, as if the line had been cut."""
    return End(None, cut=True)


def deltas(response: Response) -> list[ModelEvent | Delay | Fail]:
    """A scripted response as what the model sends, one after another, with its pauses and failures in place."""
    if type(response) is CallTool and len(response.chunks) == 1:  # what most scripts are made of
        return [ToolCallDelta(0, response.id, response.name, response.chunks[0]), _CALLS]
    sent: list[ModelEvent | Delay | Fail] = []
    index = 0
    ending: End | None = None
    for part in (response,) if isinstance(response, ResponsePart) else response:
        if isinstance(part, CallTool):
            first, *more = part.chunks or ("",)
            sent.append(ToolCallDelta(index, part.id, part.name, first))
            sent += [ToolCallDelta(index, arguments=piece) for piece in more]
            index += 1
        elif isinstance(part, Say):
            sent += [ThinkingDelta(chunk) if part.thinking else TextDelta(chunk) for chunk in part.chunks]
        elif isinstance(part, Delay | Fail):
            sent.append(part)
        elif isinstance(part, End):
            ending = part
        else:
            raise TypeError(
                f"a scripted response holds a {type(part).__name__}: "
                "use text(), thinking(), tool_call(), error(), delay() or finish()"
            )
    if ending is None:
        sent.append(_CALLS if index else _STOP)
    elif not ending.cut:
        sent.append(Finish(ending.stop_reason or ("tool_calls" if index else "stop"), ending.usage))
    return sent


_STOP, _CALLS = Finish("stop"), Finish("tool_calls")


class _Sent(msgspec.Struct, eq=False):
    """The deltas of one reply. An async generator would do, but costs a registration with the event loop each time."""

    deltas: Iterator[ModelEvent | Delay | Fail]

    def __aiter__(self) -> _Sent:
        return self

    async def __anext__(self) -> ModelEvent:
        for delta in self.deltas:
            kind = type(delta)
            if kind is Delay:
                await asyncio.sleep(delta.seconds)  # type: ignore[union-attr]
            elif kind is Fail:
                raise delta.error  # type: ignore[union-attr]
            else:
                return delta  # type: ignore[return-value]
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.deltas = iter(())


class FunctionModel(Model):
    """Answers each request with what `fn(request)` returns: a response part or a list of them. `fn` may be async.

    `requests` holds every request received.
    """

    def __init__(
        self,
        fn: Callable[[Request], Any],
        *,
        name: str = "function",
        provider: str = "scripted",
        context_tokens: int | None = None,
    ) -> None:
        self.fn = fn
        self.name, self.provider, self.context_tokens = name, provider, context_tokens
        self.endpoint = "in-process"
        self.requests: list[Request] = []
        self.keys: list[str | None] = []

    def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        self.keys.append(call.key)
        response = self.fn(request)
        return self._later(response) if hasattr(response, "__await__") else _Sent(iter(deltas(response)))

    async def _later(self, response: Awaitable[Response]) -> AsyncIterator[ModelEvent]:
        async for delta in _Sent(iter(deltas(await response))):
            yield delta


class ScriptedModel(FunctionModel):
    """Gives the scripted responses one after another, whatever is asked.

    A request beyond the script fails with a `ModelError` that says so.
    """

    def __init__(
        self,
        responses: Sequence[Response] = (),
        *,
        name: str = "scripted",
        provider: str = "scripted",
        context_tokens: int | None = None,
    ) -> None:
        super().__init__(self._next, name=name, provider=provider, context_tokens=context_tokens)
        self.responses = list(responses)

    def _next(self, request: Request) -> Response:
        number = len(self.requests)
        if number > len(self.responses):
            raise ModelError(f"the script has {len(self.responses)} responses, and this is request {number}")
        return self.responses[number - 1]
