"""The tool pipeline: the one way to a tool's body, whoever asks for it.

look up → validate (with `prepare_arguments` and canonical paths) → 11 → 12 → body → 13. A call the model asked for, a
nested `ctx.call_tool`, a sub-agent's and a resumed one all come through `look_up`, `check`, `execute` and `settle`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from time import perf_counter
from types import CoroutineType
from typing import Any, NamedTuple

import msgspec

from .calls import Batch, Call, Inside, NestedResult, RecordEnds, Suspend, nested_call, say_edited, shortened
from .decisions import Block, Interrupt
from .detach import contained, forget, in_thread, Rest, result_of
from .errors import Aborted, HookFailed, describe
from .events import ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from .gating import shape_and_gate, why_missing
from .hooks.dispatch import Ruling, dispatch
from .intents import begin_once, cut_short, finish_once, hold_to_record
from .observing import entered, left
from .seams import BY_NAME, CallOutcome, RunInfo
from .state import RunState
from .tools import InvalidArguments, Tool, ToolContext, ToolResult, as_result

AFTER = BY_NAME["after_tool_call"]
LATE = "Operation aborted. What the tool did by then is not known."
PASSES_AFTER = frozenset({"ran", "failed", "timed_out", "answered", "uncertain"})


# --- announcing ----------------------------------------------------------------------------------


async def announce(run: RunState, call: Call) -> None:
    if run.events.takers["tool_execution_start"]:
        run.announced.append(call)
        event = ToolExecutionStart(call_id=call.id, name=call.name, args=call.part.args, **run.event_fields(call.parent_id))
        await run.emit(event)


async def conclude(run: RunState, call: Call) -> None:
    """Say, once, what became of a call. It is settled now."""
    assert call.outcome is not None
    if call.concluded:
        return
    call.concluded = call.outcome != "pending"
    call.updates_open = False
    if run.events.takers["tool_execution_end"]:
        event = ToolExecutionEnd(
            call_id=call.id, name=call.name, result=call.result, outcome=call.outcome, is_error=call.result.is_error,
            **run.event_fields(call.parent_id),
        )  # fmt: skip
        await run.emit(event)


# --- lookup to gate ------------------------------------------------------------------------------


def look_up(run: RunState, call: Call) -> bool:
    """Find the call's tool. True if its arguments must be checked before it may run.

    False: it is settled (there is no such tool), or nobody looks at its arguments and the body decodes them itself.
    """
    tool = call.tool
    if tool is None:
        tool = call.tool = run.enabled.get(call.name)
    if tool is None:
        call.settle("not_found", why_missing(run, call.name))
        return False
    hooks = run.hooks
    if hooks.prepare_tool_call or hooks.before_tool_call or hooks.after_tool_call or not tool.direct:
        return True
    if run.journal is not None and run.journal.past_call(call.id) is not None:
        return True  # what hooks decided about it is on record
    run.calls[call.id] = call
    return False


async def admit(run: RunState, call: Call, batch: Batch) -> None:
    """Look up, validate and gate. Afterwards the call is settled, or may run."""
    try:
        if look_up(run, call):
            await check(run, call, batch)
    except Aborted:
        call.settle("aborted", "Operation aborted")
    except RecordEnds:  # of this call; those beside it may be on record
        call.outcome = "pending"


async def check(run: RunState, call: Call, batch: Batch) -> None:
    """Validate the arguments, then seams 11 and 12. Afterwards the call is settled, or may run with `call.args`."""
    tool = call.tool
    assert tool is not None
    try:
        args = call.original_args = tool.validate(call.part.arguments)
    except InvalidArguments as error:
        call.settle("invalid", str(error))
        return
    await shape_and_gate(run, call, batch, args)
    if call.outcome is None:
        run.calls[call.id] = call


# --- the body ------------------------------------------------------------------------------------


async def execute(run: RunState, call: Call) -> None:
    """Run the body of a call that the gates let pass, and settle it. Never raises for what the tool did."""
    tool = call.tool
    assert tool is not None
    kwargs: dict[str, Any] = {}
    if run.aborted:
        call.settle("aborted", "Operation aborted")
    else:
        try:  # before its intent is on record: a call whose arguments are wrong has not begun
            kwargs = tool.kwargs_from_json(call.part.arguments) if call.args is None else tool.kwargs(call.args)
        except InvalidArguments as error:
            call.settle("invalid", str(error))
    if call.outcome is not None:
        await settle(run, call)
        return
    if run.journal is not None and not await begin_once(run, call):
        if run.journal.rehearsal:
            await _go_over_inner_calls(run, call)
        await settle(run, call)
        return
    call.raise_if_left()
    outer_scope = run.scope  # what waits may be another tool, which has called this one
    began = perf_counter() if run.hooks.after_tool_call else 0.0  # only they are told how long it took
    leaves = entered(run, call) if run.observed is not None else None
    try:
        run.tools_run += 1
        call.begun = True
        value = _start(run, call, tool, kwargs)
        if type(value) is _Going:
            run.enter_guarded(begun_before_abort=True)
            value = await value.rest
        result = as_result(value)
        if run.cancelling and run.came_too_late():
            call.settle("aborted", LATE)
            run.survived()
        else:
            call.result, call.outcome = result, "failed" if result.is_error else "ran"
    except _Late as late:
        call.settle("timed_out", f"Tool {call.name} gave no result within {late.args[0]:g} s. What it did by then is not known.")
    except Suspend as suspend:
        call.waits_inside(suspend)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        _body_failed(run, call, error)
    if call.inside is not None and call.inside.waiting and not run.aborted:
        call.waits_inside(Suspend(call.inside.waiting, None))
    if run.scope:
        run.leave_guarded(outer_scope)
    if began:
        call.duration = perf_counter() - began
    if leaves:
        left(leaves)
    if not call.concluded and not settle_unseen(run, call):  # concluded: given up after an abort, this is a late result
        await settle(run, call)


class _Going(NamedTuple):
    """A body that has begun and has to be waited for."""

    rest: Awaitable[Any]


def _start(run: RunState, call: Call, tool: Tool, kwargs: dict[str, Any]) -> Any:
    """Begin a body. Returns what it gives, or `_Going` if it waits for something."""
    if call.resume_with is not None:
        return _Going(call.resume_with())
    first = (_tool_context(run, call),) if tool.takes_context else ()
    timeout = tool.timeout or run.limits.tool_timeout
    if timeout is not None or not tool.is_async:
        return _Going(_in_time(tool, first, kwargs, timeout))
    body = tool.unguarded(*first, **kwargs) if first else tool.unguarded(**kwargs)
    if run.batching or type(body) is not CoroutineType:
        return _Going(body)  # in a task of its own, which can be left behind
    try:
        awaited = body.send(None)
    except StopIteration as done:  # most bodies of small tools end here
        return done.value
    return _Going(_rest(run, Rest(body, awaited, lambda: run.abandon)))


async def _rest(run: RunState, rest: Rest) -> Any:
    value = await rest
    if run.cancelled_from_outside() and not run.is_aside:  # the tool swallowed the caller's cancellation
        raise asyncio.CancelledError
    return value


def _body_failed(run: RunState, call: Call, error: BaseException) -> None:
    if run.was_aborted_by(error):
        call.settle("aborted", LATE)
        return
    if isinstance(error, asyncio.CancelledError) and run.cancelled_from_outside():
        raise error
    call.settle("failed", describe(error))


class _Late(Exception):
    """Holds the seconds that a body had."""


async def _in_time(tool: Tool, first: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None) -> Any:
    """A body with a time limit, or a sync one, which runs in a thread. A late result is discarded.

    One that gives an awaitable, such as an async body in a sync wrapper, is done when that is.
    """
    work: asyncio.Future[Any]
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + timeout
    if tool.is_async:
        work = contained(tool.unguarded(*first, **kwargs))
    else:
        work = in_thread(tool.unguarded, *first, **kwargs)
    try:
        while True:
            done, _ = await asyncio.wait({work}, timeout=None if end is None else end - loop.time())
            if not done:
                raise _Late(timeout or 0.0)
            if not hasattr(value := result_of(work), "__await__"):
                return value
            work = contained(value)
    except BaseException:  # also one that comes from elsewhere, just as it ends
        work.cancel()
        forget(work)
        raise


def _tool_context(run: RunState, call: Call) -> ToolContext:
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    call.updates_open = True

    async def call_tool(name: str, args: Any) -> Any:
        call.inside = call.inside or Inside()
        return await nested(run, call, name, args, call.inside)

    def update(partial: Any) -> None:
        result = as_result(partial)  # what is no result is the tool's mistake, and raised there
        if threading.get_ident() == thread:
            _updated(run, call, result)
        else:
            loop.call_soon_threadsafe(_updated, run, call, result)

    return ToolContext(
        call_id=call.id, tool_name=call.name, run=RunInfo(run, call.parent_id or run.parent_call_id),
        call_tool=call_tool, update=update, idempotency_key=f"{run.run_id}:{call.id}",
    )  # fmt: skip


# --- after the body ------------------------------------------------------------------------------


async def settle(run: RunState, call: Call) -> None:
    """Seam 13, what the core itself adds to a result, and the event that says what became of the call."""
    if run.journal is not None and not call.compared:
        await hold_to_record(run, call)
    raw = call.result
    if not call.recalled and (run.hooks.after_tool_call or call.edits or run.limits.max_result_chars is not None):
        await _finish(run, call)
    if run.journal is not None:
        finish_once(run, call, raw)
    await conclude(run, call)


def settle_unseen(run: RunState, call: Call) -> bool:
    """`settle` where nobody has a say or listens: True if that was the case, and it is done."""
    if (
        run.hooks.after_tool_call
        or call.edits
        or run.limits.max_result_chars is not None
        or run.journal is not None
        or run.events.takers["tool_execution_end"]
    ):
        return False
    call.concluded = call.outcome != "pending"
    call.updates_open = False
    return True


async def _finish(run: RunState, call: Call) -> None:
    tool = call.tool
    if tool is not None and call.outcome in PASSES_AFTER and (hooks := run.hooks.for_tool("after_tool_call", tool.name)):
        if call.context is None:  # settled before there was anything to look at
            return
        outcome = _outcome(run, call, call.result, partial=False)
        try:
            ruling = await dispatch(run, AFTER, hooks, outcome)
        except HookFailed as error:
            call.failure = error
            call.result = ToolResult(f"The result is withheld: {error}", is_error=True)
            return
        except Aborted:
            call.settle("aborted", "Operation aborted before its result could be checked. The tool ran.")
            return
        _apply_after(run, call, ruling)
    if call.edits and call.outcome != "invalid" and call.args != call.original_args:
        call.result = say_edited(call)
    limit = run.limits.max_result_chars
    if limit is not None and not call.whole and len(call.result.text) > limit:
        call.result = msgspec.structs.replace(call.result, content=shortened(call.result.content, limit))


def _outcome(run: RunState, call: Call, result: ToolResult, partial: bool) -> CallOutcome:
    assert call.context is not None
    return CallOutcome(
        call.context.run, call=call.context, outcome=call.outcome or "ran", content=result.content, details=result.details,
        structured_content=result.structured_content, is_error=result.is_error, usage=result.usage, terminate=result.terminate,
        duration=call.duration, partial=partial,
    )  # fmt: skip


def _apply_after(run: RunState, call: Call, ruling: Ruling) -> None:
    if isinstance(ruling.verdict, Block):
        call.result = ToolResult(f"The result is withheld: {ruling.verdict.reason}", is_error=True)
        return
    if isinstance(ruling.verdict, Interrupt):
        run.interrupted_by(ruling.verdict)
    if ruling.changes:
        new = ruling.context
        # The structured form of a text that was rewritten would still hold what was taken out of it.
        kept = "content" not in ruling.changes or "structured_content" in ruling.changes
        call.result = ToolResult(
            new.content, new.details, new.structured_content if kept else None, new.is_error, new.terminate, new.usage
        )


def _updated(run: RunState, call: Call, result: ToolResult) -> None:
    """A tool reports progress. What comes after its result is ignored, and what is judged and caused by judging is withheld."""
    caused = run.is_shaping and run.hooks.for_tool("after_tool_call", call.name)  # judged, it would cause more
    if call.updates_open and not caused and run.events.takers["tool_execution_update"]:
        run.report(lambda: _checked_update(run, call, result))


async def _checked_update(run: RunState, call: Call, result: ToolResult) -> ToolExecutionUpdate | None:
    """A progress report, as far as the hooks at 13 let it pass."""
    assert call.tool is not None
    hooks = run.hooks.for_tool("after_tool_call", call.tool.name)
    if hooks:
        if call.context is None or run.aborted:  # whatever has been put down by then, an abort waits for nobody to judge it
            return None
        try:
            ruling = await dispatch(run, AFTER, hooks, _outcome(run, call, result, partial=True))
        except (HookFailed, Aborted):
            return None
        if isinstance(ruling.verdict, Block | Interrupt):
            return None
        if ruling.changes:
            result = ToolResult(ruling.context.content, ruling.context.details)
    return ToolExecutionUpdate(call_id=call.id, name=call.name, partial=result, **run.event_fields(call.parent_id))


async def nested(run: RunState, parent: Call, name: str, args: Any, inside: Inside) -> NestedResult:
    """A call from inside a tool: the same pipeline, with events that carry the parent's id. Never raises for a refusal."""
    if parent.outcome is not None:
        return NestedResult(f"Not run: {parent.name} has ended.", is_error=True, outcome="cancelled", call_id=parent.id)
    inside.begin()
    try:
        call = nested_call(f"{parent.id}/{inside.made}", name, args, parent.id, parent.message)
        call.left = parent.left
        call.raise_if_left()
        result = await run_nested(run, call)
    finally:
        inside.end()
    if call.outcome == "pending":
        await inside.suspend(call.pending())
    run.enter_guarded(begun_before_abort=True)  # the body that called goes on, and an abort must reach it
    parent.failure = parent.failure or call.failure
    return result


async def _go_over_inner_calls(run: RunState, call: Call) -> None:
    """The recorded calls that a body made, which does not run now: other hooks are asked about them too."""
    for inner_id, name, args in run.journal.inner_calls(call.id):
        await run_nested(run, nested_call(inner_id, name, args, call.id, call.message))


async def run_nested(run: RunState, call: Call) -> NestedResult:
    """Look up, gate and run such a call. A failure that must end the run is left in `call.failure`."""
    batch = Batch(call.message, run.context, len(run.context), lone=call.name)
    await announce(run, call)
    if run.journal is None or not await cut_short(run, call, batch):
        await admit(run, call, batch)
    await (execute if call.outcome is None else settle)(run, call)
    result = call.result
    if result.usage is not None:
        run.add_usage(result.usage, "")
    return NestedResult(
        result.content, result.details, result.structured_content, result.is_error, result.terminate, result.usage,
        outcome=call.outcome or "failed", call_id=call.id,
    )  # fmt: skip
