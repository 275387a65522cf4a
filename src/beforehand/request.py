"""From the conversation to a request that may leave: repair, seams 3 to 8, and the size check between them.

`prepare_request` runs the shape seams, `authorize` the gate that every outgoing request passes, whatever its kind.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from .decisions import Answer, Block
from .draft import Outgoing
from .errors import Aborted, ConfigError, RequestTooLarge, RunError, describe
from .frozen import canonical
from .hooks.beside import dispatch_beside
from .hooks.check import Refused
from .hooks.dispatch import Ruling, dispatch
from .history import History, HistoryView, estimate_tokens
from .messages import (
    AssistantMessage, Image, Message, MessageStop, Options, Part, Request, Text, Thinking, ToolCall, ToolMessage, clean,
    is_sendable,
)  # fmt: skip
from .models.base import NO_CALL_INFO, CallInfo, Finish, ImageDelta, Model, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from .observing import WatchedStream
from .seams import BY_NAME, KeyRequest, MessagesView, OutgoingRequest, ProviderCall, RequestKind, RequestPlan
from .state import RunState
from .validity import invalid_messages

PREPARE, TRANSFORM, CONVERT, PROVIDER, KEY, AUTHORIZE = (
    BY_NAME[n]
    for n in (
        "prepare_request",
        "transform_context",
        "convert_to_llm",
        "before_provider_call",
        "get_api_key",
        "authorize_request",
    )
)

NOTHING: frozenset[str] = frozenset()
UNKNOWN_OUTCOME = "No result was recorded for this call: whether it ran is not known."


async def prepare_request(run: RunState) -> Outgoing:
    """Seams 3 to 7. Raises `HookFailed`, `RequestTooLarge` or `Aborted`; nothing has left then."""
    if run.context.open_calls or run.context.orphans:
        repair(run)
    hooks = run.hooks
    system, model, level = run.system, run.model, run.thinking_level
    messages: Sequence[Message] = run.context.view()
    tools, specs = run.tools, run.tool_specs
    if hooks.prepare_request:
        plan = RequestPlan(run.info, run.context_value(), model, level)
        ruling = await dispatch(run, PREPARE, hooks.prepare_request, plan, adopt=adopt_update(run))
        once = ruling.changes.get("once", False)
        if not once:
            apply_update(run, ruling.changes)
        plan = ruling.context
        model, level, messages, system = plan.model, plan.thinking_level, plan.context.messages, plan.context.system
        tools, specs = (run.tools, run.tool_specs) if not once else _tools_of(plan.context.tools)
    if hooks.transform_context or hooks.convert_to_llm:
        messages = await _convert(run, messages, model)
    elif (hooks.prepare_request or run.context.unsendable) and not _all_sendable(messages):
        messages = _sendable(messages)
    if run.plan.dynamic:
        system = await _with_dynamic(run, system)
    options = run.options if run.options.thinking_level == level else msgspec.structs.replace(run.options, thinking_level=level)
    request = Request(system, messages, specs, options)
    if hooks.before_provider_call:
        context = ProviderCall(run.info, request, model, tuple(tools))
        request = (await dispatch(run, PROVIDER, hooks.before_provider_call, context)).context.request
        run.advertised = NOTHING if request.tools is specs else frozenset([t.name for t in request.tools]) - tools.keys()
    window = model.context_tokens if run.limits.context_tokens is None else run.limits.context_tokens
    if window is not None:
        _check_size(request, model, window)
    info = await call_info(run, model) if hooks.get_api_key or run.events.watches_wire else NO_CALL_INFO
    if run.aborted:
        raise Aborted(run.signal.reason or "aborted")
    if tools is not run.enabled:
        run.enable(tools)
    return Outgoing(request, model, info, level, not model.streams)


def _tools_of(tools: Sequence[Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
    return {tool.name: tool for tool in tools}, tuple(tool.spec for tool in tools)


async def _with_dynamic(run: RunState, system: str) -> str:
    """The system text of this request: the fixed part, which hooks at 3 have seen, and what the dynamic instructions add."""
    texts = [system] if system else []
    if run.journal is not None and (past := run.journal.past_text()) is not None:
        return "\n\n".join([*texts, past]) if past else system
    for instruction in run.plan.dynamic:
        try:
            text = await _instruction(run, instruction)
        except RunError as error:
            if run.journal is not None:
                run.journal.text(error)
            raise
        if text is not None and not isinstance(text, str):
            raise ConfigError(
                f"the dynamic instructions {getattr(instruction, '__name__', instruction)!r} returned a {type(text).__name__}: "
                "expected a string"
            )
        if text:
            texts.append(clean(text))
    if run.journal is not None:
        run.journal.text("\n\n".join(texts[1:] if system else texts))
    return "\n\n".join(texts)


async def _instruction(run: RunState, instruction: Any) -> Any:
    try:
        text = instruction(run.info)
        if hasattr(text, "__await__"):
            run.enter_guarded()
            text = await text
            run.survived()
        return text
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if run.was_aborted_by(error):
            raise Aborted("aborted while the instructions were made") from None
        if isinstance(error, asyncio.CancelledError) and run.cancelled_from_outside():
            raise
        name = getattr(instruction, "__name__", type(instruction).__name__)
        raise RunError(f"the instructions {name!r} raised {describe(error)}") from (
            error if isinstance(error, Exception) else None
        )
    finally:
        run.leave_guarded()


async def _convert(run: RunState, messages: Sequence[Message], model: Model) -> Sequence[Message]:
    """Seams 4 and 5. Without a hook at 5 that replaces them, what no model can read is dropped."""
    if asked := run.hooks.transform_context:
        messages = (
            await dispatch(run, TRANSFORM, asked, MessagesView(run.info, messages, model), adopt=_paired)
        ).context.messages
    if asked := run.hooks.convert_to_llm:
        ruling = await dispatch(run, CONVERT, asked, MessagesView(run.info, messages, model), adopt=_convertible)
        if ruling.changes:
            converted: Sequence[Message] = ruling.context.messages
            return converted
    return messages if _all_sendable(messages) else _sendable(messages)


def _all_sendable(messages: Sequence[Message]) -> bool:
    """Whether that is known without a look at each of them."""
    return isinstance(messages, HistoryView) and messages.all_sendable


def _sendable(messages: Sequence[Message]) -> Sequence[Message]:
    return tuple([m for m in messages if is_sendable(m)])


def _paired(fields: dict[str, Any]) -> dict[str, Any]:
    """Messages for a request, where every call must still have its result and every result its call."""
    messages = fields["messages"]
    why = None if isinstance(messages, HistoryView) else invalid_messages([m for m in messages if is_sendable(m)], True)
    if why is not None:
        raise Refused(f"returned messages that cannot be sent: {why}")
    return fields


def _convertible(fields: dict[str, Any]) -> dict[str, Any]:
    messages = fields["messages"]
    why = None if _all_sendable(messages) else invalid_messages(messages, True)
    if why is not None:
        raise Refused(f"returned messages that cannot be sent: {why}")
    return fields


def overhead(system: str, tools: Sequence[Any], options: Options) -> int:
    """Tokens, as estimated, of what a request holds beside its messages, and of the answer that it leaves room for."""
    size = len(system) // 4 + (len(msgspec.json.encode(tools)) // 4 if tools else 0)
    if options.provider_params:  # nobody knows what an endpoint makes of them, so they count like text
        size += len(canonical(options.provider_params)) // 4
    return size + (options.max_tokens or 0)


def _check_size(request: Request, model: Model, window: int) -> None:
    size = estimate_tokens(request.messages) + overhead(request.system, request.tools, request.options)
    if size > window:
        raise RequestTooLarge(
            f"the request is about {size} tokens (answer included), but {model.name} takes {window}: "
            "compact the conversation, shorten it at transform_context, or raise Limits.context_tokens"
        )


async def call_info(run: RunState, model: Model, asking: Any = None) -> CallInfo:
    """The key for this request (seam 7), and who watches the wire. Neither is part of the request."""
    key = None
    if asked := others(run.hooks.get_api_key, asking):
        ruling = await dispatch(run, KEY, asked, KeyRequest(run.info, model.provider, model.endpoint))
        key = ruling.changes.get("key")
    return CallInfo(key, run.wire_event if run.events.watches_wire else None)


# --- sticky updates (3 and 16) -------------------------------------------------------------------


def adopt_update(run: RunState) -> Any:
    """For seams 3 and 16: a model given by name is loaded, and what cannot be loaded is the hook's failure."""

    def adopt(fields: dict[str, Any]) -> dict[str, Any]:
        model = fields.get("model")
        if isinstance(model, str):
            try:
                fields["model"] = run.plan.resolve_model(model)
            except ConfigError as error:
                raise Refused(f"returned Replace(model={model!r}): {error}") from None
        elif "model" in fields and not isinstance(model, Model):
            raise Refused(
                f'returned Replace(model=...) with a {type(model).__name__}: expected a model or a name such as "openai:NAME"'
            )
        if "context" in fields:
            _paired({"messages": fields["context"].messages})
        return fields

    return adopt


def apply_update(run: RunState, changes: dict[str, Any]) -> None:
    if "context" in changes:
        run.use_context(changes["context"])
    if "model" in changes:
        run.model = changes["model"]
    if "thinking_level" in changes:
        run.thinking_level = changes["thinking_level"]


# --- the gate ------------------------------------------------------------------------------------


async def authorize(run: RunState, outgoing: Outgoing, kind: RequestKind, hooks: Sequence[Any] | None = None) -> Ruling | None:
    """Seam 8, for every request that would leave. `None`: it may go. Otherwise the ruling says Block or Answer."""
    asked = run.hooks.authorize_request if hooks is None else hooks
    if not asked:
        return None
    model = outgoing.model
    context = OutgoingRequest(run.info, outgoing.request, model.endpoint, model, kind)
    ruling = await dispatch_beside(run, AUTHORIZE, asked, context)
    if run.aborted:
        raise Aborted(run.signal.reason or "aborted")
    return ruling if isinstance(ruling.verdict, Block | Answer) else None


def send(run: RunState, outgoing: Outgoing, kind: RequestKind = "turn") -> AsyncIterator[ModelEvent]:
    """Let the request leave. Only for requests that `authorize` let pass."""
    if run.aborted:  # while its record was waited for
        return _Failing(Aborted(run.signal.reason or "aborted"))
    run.requests_sent += 1
    if run.observed is not None:
        return WatchedStream(run, outgoing, kind)
    try:
        return outgoing.model.stream(outgoing.request, outgoing.info)
    except Exception as error:  # an adapter that looks at the request before it begins to stream
        return _Failing(error)


class _Failing(AsyncIterator[ModelEvent]):
    """A stream that has failed before it began."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def __anext__(self) -> ModelEvent:
        raise self._error


def others(hooks: Sequence[Any], asking: Any) -> Sequence[Any]:
    return hooks if asking is None else [h for h in hooks if h is not asking and h.fn is not asking]


def answer_message(value: Any) -> AssistantMessage:
    """What `Answer` at seam 8 gives, as a reply of origin "hook"."""
    if isinstance(value, AssistantMessage):
        return msgspec.structs.replace(value, origin="hook")
    return AssistantMessage((Text(value),), origin="hook")


async def replay(message: AssistantMessage) -> AsyncIterator[ModelEvent]:
    """A finished message as the deltas a model would have sent."""
    for index, part in enumerate(message.content):
        if isinstance(part, Text):
            yield TextDelta(part.text)
        elif isinstance(part, Thinking):
            yield ThinkingDelta(part.text, part.signature)
        elif isinstance(part, ToolCall):
            yield ToolCallDelta(index, part.id or None, part.name, part.arguments)
        elif isinstance(part, Image):
            yield ImageDelta(part)
    natural: MessageStop = "tool_calls" if message.tool_calls else "stop"
    yield Finish(message.stop_reason if message.stop_reason in ("length", "refusal") else natural)


# --- repair --------------------------------------------------------------------------------------


def repair(run: RunState) -> None:
    """Put every result behind its call, give every call without one a result that says so and each an id of its own, and drop
    results that answer no call."""
    context = run.context
    if not context.orphans and _only_tail_missing(context):
        for call in list(context.open_calls.values()):
            run.store(_unknown(run, call))
        return
    mended: list[Message] = []
    due: list[tuple[str, ToolCall]] = []
    used: dict[str, int] = {}
    for message in _with_results_moved_up(run, context.view()):
        if isinstance(message, ToolMessage):
            at = next((i for i, (was, _) in enumerate(due) if was == message.tool_call_id), None)
            if at is None:
                why = f"a result for {message.tool_call_id}, which no call before it has, is not sent"
                run.note("Repaired", why, message.tool_call_id)
                continue
            _, call = due.pop(at)
            if call.id != message.tool_call_id:
                message = msgspec.structs.replace(message, tool_call_id=call.id)
        else:
            mended += [_unknown(run, call) for _, call in due]
            due = []
            if isinstance(message, AssistantMessage) and message.tool_calls:
                message, due = _with_own_ids(run, message, used)
        mended.append(message)
    run.separate([*mended, *(_unknown(run, call) for _, call in due)])


def _with_results_moved_up(run: RunState, messages: Sequence[Message]) -> list[Message]:
    """The messages with each result that comes after something else, as when a person has written meanwhile, behind its call."""
    groups: list[list[Message]] = [[]]  # a message, and the results behind it
    due: dict[str, list[list[Message]]] = {}  # of each id as often as the last reply with it has it
    for message in messages:
        if not isinstance(message, ToolMessage):
            groups.append([message])
            if isinstance(message, AssistantMessage):
                times = Counter(call.id for call in message.tool_calls)
                due.update({call_id: [groups[-1]] * number for call_id, number in times.items()})
            continue
        group = waiting.pop() if (waiting := due.get(message.tool_call_id)) else groups[-1]
        if group is not groups[-1]:
            why = f"the result of call {message.tool_call_id} came after other messages, and is sent right behind the call"
            run.note("Repaired", why, message.tool_call_id)
        group.append(message)
    return [message for group in groups for message in group]


def _with_own_ids(
    run: RunState, message: AssistantMessage, used: dict[str, int]
) -> tuple[AssistantMessage, list[tuple[str, ToolCall]]]:  # fmt: skip
    """A reply with a suffix on each call id that another call has had, and its calls beside the ids they had.

    `used` has the ids so far, each with its last suffix: always the same ones, whenever a history is mended.
    """
    calls: list[tuple[str, ToolCall]] = []
    content: list[Part] = []
    for part in message.content:
        if isinstance(part, ToolCall):
            was = part.id
            while part.id in used or (part.id != was and part.id in run.context.call_ids):
                used[was] += 1
                part = msgspec.structs.replace(part, id=f"{was}-{used[was]}")
            if part.id != was:
                run.note("Renamed", f"call id {was!r} is already in use, so this call is {part.id!r}", part.id)
            used[part.id] = 1
            calls.append((was, part))
        content.append(part)
    same = all(was == call.id for was, call in calls)
    return message if same else msgspec.structs.replace(message, content=tuple(content)), calls


def _only_tail_missing(history: History) -> bool:
    """Whether the open calls all belong to the last reply, so that their results can simply be appended."""
    for message in reversed(history.view()):
        if isinstance(message, AssistantMessage):
            return sum(call.id in history.open_calls for call in message.tool_calls) == len(history.open_calls)
        if not isinstance(message, ToolMessage):
            return False
    return False


def _unknown(run: RunState, call: ToolCall) -> ToolMessage:
    run.note("Repaired", f"call {call.id} ({call.name}) had no result; the model is told that its outcome is not known", call.id)
    return ToolMessage(call.id, call.name, UNKNOWN_OUTCOME, is_error=True)
