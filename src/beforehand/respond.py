"""From the model's deltas to a stored message: seams 9 and 10, and what became of a reply that was cut.

The reader, the stored message, `result.text` and the next request hold the same text, because all of them get what the
guard lets pass and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from .decisions import Interrupt
from .draft import Draft, OpenCall, Outgoing, Reply, free_id, with_free_ids, without_keys
from .errors import Aborted, HookFailed, InvalidResponse, ModelError, NetworkError, RunError, Stop, describe
from .events import ChunkKind, MessageEnd, MessageRetracted, MessageStart, MessageUpdate
from .hooks.check import Refused
from .hooks.dispatch import dispatch, fail
from .hooks.hook import Hook
from .messages import AssistantMessage, Message, ToolCall, clean
from .models.base import Finish, ImageDelta, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from .seams import BY_NAME, IncomingMessage
from .state import RunState
from .stream.guard import Guard, Interrupted
from .waits import IDLE, STREAMING

ON_CHUNK = BY_NAME["on_chunk"]
ON_MESSAGE = BY_NAME["on_message"]


async def receive_reply(run: RunState, events: AsyncIterator[ModelEvent], by: Outgoing) -> Reply:
    """Take in one reply, store it and tell of it. Never raises for what the model, a hook or an abort did: the reply says so.

    What came of the request is with the journal before anybody is told: a process that ends while they listen has been answered.
    """
    draft = Draft(run.next_message_id(), by, by.whole)
    guard: Any = None
    if run.hooks.on_chunk or run.shadow is not None:
        guard = _guard(run, run.hooks.on_chunk, draft)
    if run.hooks.on_message and any([hook.hold for hook in run.hooks.on_message]):
        draft.withheld = []
    complete = None
    try:
        await _receive(run, draft, guard, events)
        message = complete = draft.message(draft.stop_reason or "stop")
        if run.shadow is not None:
            guard.compare(None)
        if run.hooks.on_message:
            message = await _judge(run, draft, message, run.hooks.on_message)
        reply = _keep(run, message)
    except Interrupted as stop:
        run.scope = IDLE
        if run.shadow is not None and complete is None:
            guard.compare(stop.verdict)
        await _close(events)
        reply = await _interrupted(run, draft, stop.verdict, judged=complete is not None)
    except (Exception, asyncio.CancelledError, Stop) as error:
        run.scope = IDLE
        if run.shadow is not None and isinstance(error, HookFailed) and error.seam == ON_CHUNK.name:
            guard.compare(error)
        await _close(events)
        reply = await _cut(run, draft, error)
    if run.journal is not None:
        run.journal.replied(run, reply)
    if reply.message is not None and run.events.takers["message_end"]:
        if run.journal is not None:
            await run.journal.before_telling()
        await run.emit(MessageEnd(message=reply.message, origin=reply.message.origin, **run.event_fields()))
    return reply


def _guard(run: RunState, hooks: tuple[Hook, ...], draft: Draft) -> Any:
    guard = Guard(
        hooks, run.info, draft.id, max_hold=run.limits.max_hold,
        ask=lambda hook, chunk: dispatch(run, ON_CHUNK, (hook,), chunk),
        fail=lambda hook, chunk, why: fail(run, ON_CHUNK, hook, chunk, why),
    )  # fmt: skip
    return guard if run.shadow is None else run.shadow.twin(run, guard, draft.id, run.limits.max_hold)


async def _close(events: AsyncIterator[ModelEvent]) -> None:
    """Close the connection. A provider that fails while closing has nothing more to say."""
    close = getattr(events, "aclose", None)
    if close is not None:
        try:
            await close()
        except Exception:  # noqa: S110 - the reply is already decided
            pass


# --- while it arrives ----------------------------------------------------------------------------


async def _receive(run: RunState, draft: Draft, guard: Guard | None, events: AsyncIterator[ModelEvent]) -> None:
    whole = draft.by.whole
    early = None if whole else guard
    gather = whole or (guard is None and draft.withheld is None)  # text that nobody has to judge on the way
    run.scope = STREAMING
    async for event in events:
        run.scope = IDLE
        if run.outbox:
            await run.deliver()
        if not draft.started:
            draft.started = True
            if run.events.takers["message_start"]:
                await _start(run, draft)
        kind = type(event)
        if kind is ToolCallDelta:
            call = draft.calls.get(event.index) or _open_call(run, draft, event)  # type: ignore[union-attr,arg-type]
            piece = event.arguments  # type: ignore[union-attr]
            if piece:
                call.shown.append(piece if early is None else await early.feed("tool_call", piece, call.id))
        elif kind is TextDelta or kind is ThinkingDelta:
            channel: ChunkKind = "text" if kind is TextDelta else "thinking"
            if kind is ThinkingDelta and event.signature:  # type: ignore[union-attr]
                draft.signature = event.signature  # type: ignore[union-attr]
            if gather and (whole or not run.events.takers["message_update"]):
                draft.add(channel, event.text)  # type: ignore[union-attr]
                if not whole:
                    draft.count(run, channel, event.text)  # type: ignore[union-attr]
            else:
                await _text(run, draft, early, channel, event.text)  # type: ignore[union-attr]
        elif kind is Finish:
            draft.stop_reason, draft.usage = event.stop_reason, event.usage  # type: ignore[union-attr]
        elif kind is ImageDelta:
            draft.parts.append(("image", event.image))  # type: ignore[union-attr]
        else:
            raise InvalidResponse(f"the model {draft.by.model!r} yielded a {kind.__name__}, which is no model event")
        if run.aborted:  # by a listener or a hook, while the next piece was not being waited for
            raise Aborted("aborted")
        run.scope = STREAMING
    run.scope = IDLE
    if run.outbox:
        await run.deliver()
    if draft.stop_reason is None:
        raise NetworkError(f"the reply of {draft.by.model.name} ended without a stop reason: it was cut")
    if guard is not None or whole or (draft.calls and run.events.takers["message_update"]):
        await _finish_channels(run, draft, guard, whole)


async def _start(run: RunState, draft: Draft) -> None:
    message = msgspec.structs.replace(draft.message("stop"), content=())
    await run.emit(MessageStart(message=message, origin=message.origin, **run.event_fields()))


async def _text(run: RunState, draft: Draft, guard: Guard | None, kind: ChunkKind, text: str) -> None:
    if guard is not None:
        text = await guard.feed(kind, text)
    if text:
        await _show(run, draft, kind, text)


async def _show(run: RunState, draft: Draft, kind: ChunkKind, text: str) -> None:
    draft.add(kind, text)
    await _release(run, draft, kind, text)


def _open_call(run: RunState, draft: Draft, event: ToolCallDelta) -> OpenCall:
    wanted = event.id or f"call_{len(run.history)}_{len(draft.calls) + 1}"
    free = free_id(run, wanted, [call.id for call in draft.calls.values()] if draft.calls else ())
    call = draft.calls[event.index] = OpenCall(free, clean(event.name or ""))
    draft.parts.append(("call", call))
    return call


async def _finish_channels(run: RunState, draft: Draft, guard: Guard | None, whole: bool) -> None:
    """Let the stages decide on what they still hold, then show each call's arguments in one piece."""
    if whole:
        await _show_whole(run, draft, guard)
    elif guard is not None:
        for kind, call_id in guard.open_channels():
            if call_id is None:
                await _text_end(run, draft, guard, kind)
    for call in draft.calls.values():
        if guard is not None:
            rest = await guard.feed("tool_call", "".join(call.shown) if whole else "", call.id, final=True)
            call.shown = [rest] if whole else [*call.shown, rest]
        await _release(run, draft, "tool_call", "".join(call.shown), call.id)


async def _text_end(run: RunState, draft: Draft, guard: Guard, kind: Any) -> None:
    text = await guard.feed(kind, "", final=True)
    if text:
        draft.add_last(kind, text)
        await _release(run, draft, kind, text)


async def _show_whole(run: RunState, draft: Draft, guard: Guard | None) -> None:
    """A reply that came in one piece: every stage is asked once for each part, with the whole text."""
    parts, draft.parts, draft.raw = draft.parts, [], False
    for kind, value in parts:
        if kind != "text" and kind != "thinking":
            draft.parts.append((kind, value))
            continue
        text = "".join(value)
        if guard is not None:
            text = await guard.feed(kind, text, final=True)
        if text:
            await _show(run, draft, kind, text)  # type: ignore[arg-type]


# --- once it is complete -------------------------------------------------------------------------


async def _judge(run: RunState, draft: Draft, message: AssistantMessage, hooks: tuple[Hook, ...]) -> AssistantMessage:
    """Seam 10 for a reply. Text that was shown and no longer stands is retracted, and the new text shown."""
    context = IncomingMessage(run.info, message, message.origin, draft.released, run.history.view())
    ruling = await dispatch(run, ON_MESSAGE, hooks, context, adopt=same_role(message))
    if ruling.verdict is not None:
        raise Interrupted(ruling.verdict)  # type: ignore[arg-type]
    new: AssistantMessage = ruling.context.message
    if new is not message:
        new = with_free_ids(run, new)
    same = _readable(new) == _readable(message)
    withheld, draft.withheld = draft.withheld, None
    if withheld is None and not same:
        await _retract(run, draft)
    if withheld is not None or not same:
        for kind, text, call_id in withheld if withheld is not None and same else _readable(new):
            await _release(run, draft, kind, text, call_id)
    return new


def _readable(message: AssistantMessage) -> list[tuple[ChunkKind, str, str | None]]:
    """What a reader is shown of a reply, channel by channel."""
    channels: list[tuple[ChunkKind, str, str | None]] = [("thinking", message.thinking, None), ("text", message.text, None)]
    return channels + [("tool_call", call.arguments, call.id) for call in message.tool_calls]


async def _release(run: RunState, draft: Draft, kind: ChunkKind, text: str, call_id: str | None = None) -> None:
    """Show text, or keep it for the hook that wants to see the whole message first."""
    if draft.withheld is not None:
        draft.withheld.append((kind, text, call_id))
        return
    draft.count(run, kind, text)
    if text and run.events.takers["message_update"]:
        await run.emit(MessageUpdate(message_id=draft.id, kind=kind, delta=text, call_id=call_id, **run.event_fields()))


async def _retract(run: RunState, draft: Draft) -> None:
    if run.journal is not None:
        run.journal.retracted(draft.id, draft.released)
    if run.events.takers["message_retracted"]:
        await run.emit(MessageRetracted(message_id=draft.id, chars=draft.released, **run.event_fields()))
    draft.released = 0


def same_role(message: Message) -> Any:
    def adopt(fields: dict[str, Any]) -> dict[str, Any]:
        new: Message = fields["message"]
        if type(new) is not type(message):
            raise Refused(f"returned Replace(message=...) with a {new.role} message for a {message.role} one: the role stays")
        if isinstance(message, AssistantMessage) and isinstance(new, AssistantMessage) and new.id != message.id:
            new = msgspec.structs.replace(new, id=message.id)
        return {"message": new}

    return adopt


def _keep(run: RunState, message: AssistantMessage) -> Reply:
    run.store(message)
    run.add_usage(message.usage, message.model)
    return Reply(message)


# --- when it was cut -----------------------------------------------------------------------------


async def _interrupted(run: RunState, draft: Draft, interrupt: Interrupt, judged: bool) -> Reply:
    """A hook stopped it: what was shown is retracted, or kept and marked. `judged`: it was seam 10 that stopped it."""
    message = None
    if interrupt.keep == "aborted" and draft.withheld is None:
        message = draft.message("aborted", interrupt.reason or "interrupted")
        if not judged:
            message = await _judge_partial(run, draft, message)
    if message is not None and message.content:
        if draft.calls and judged:  # the arguments were shown, and no longer stand
            await _retract(run, draft)
            for kind, text, _ in _readable(message):
                await _release(run, draft, kind, text)
        reply = _keep(run, message)
    else:
        await _retract(run, draft)
        reply = _nothing_kept(run, draft)
    reply.interrupt = interrupt
    return reply


async def _cut(run: RunState, draft: Draft, error: BaseException) -> Reply:
    """An abort or a failure: what had been shown by then is kept and marked, what was held back is dropped."""
    if run.outbox and isinstance(error, Exception):
        await run.deliver()
    if draft.withheld is not None:
        draft.parts, draft.withheld = [], None
    elif isinstance(error, HookFailed) and error.seam == ON_MESSAGE.name:  # nobody has let this message pass
        draft.parts = []
        await _retract(run, draft)
    if run.was_aborted_by(error):
        return await _aborted(run, draft)
    if not isinstance(error, Exception):
        if draft.content(False) and not run.hooks.on_message:
            run.store(draft.message("aborted", "cancelled"))  # the caller cancels: keep what was shown, waiting for nothing
        raise error
    told = without_keys(error, draft.by)
    failure: RunError
    if isinstance(told, RunError):
        failure, failure.__cause__ = told, None
    else:  # where the model is may stand in this one
        failure = without_keys(ModelError(f"the model {draft.by.model!r} raised {describe(told)}"), draft.by)
        failure.__cause__ = told
    message = await _judge_partial(run, draft, draft.message("error", str(failure)))
    if not draft.started and run.events.takers["message_start"]:
        await run.emit(MessageStart(message=message, origin=message.origin, **run.event_fields()))
    reply = _keep(run, message)
    reply.error = failure
    return reply


async def _aborted(run: RunState, draft: Draft) -> Reply:
    message = await _judge_partial(run, draft, draft.message("aborted", run.signal.reason or "Request was aborted"))
    if message.content:
        reply = _keep(run, message)
    else:
        if draft.started:
            await _retract(run, draft)
        reply = _nothing_kept(run, draft)
    reply.aborted = True
    return reply


def _nothing_kept(run: RunState, draft: Draft) -> Reply:
    """Nothing of the reply stands, and what the model has charged for it counts all the same."""
    run.add_usage(draft.usage, draft.by.model.name)
    return Reply(None, wasted=draft.usage, model=draft.by.model.name)


async def _judge_partial(run: RunState, draft: Draft, message: AssistantMessage) -> AssistantMessage:
    """Seam 10 for a reply that was cut. If it must not stand, what was shown is retracted and its content dropped."""
    hooks = run.hooks.on_message
    if not hooks or not message.content:
        return message
    try:
        judged = await _judge(run, draft, message, hooks)
        kept = tuple([part for part in judged.content if not isinstance(part, ToolCall)])  # what was cut asks for nothing
        return msgspec.structs.replace(judged, content=kept, stop_reason=message.stop_reason, error=message.error)
    except (Interrupted, HookFailed, Aborted):
        await _retract(run, draft)
        return msgspec.structs.replace(message, content=())
