"""The tool pipeline: one function for every call, whoever asked for it.

lookup → validate (with `prepare_arguments` and canonical paths) → 11 → 12 → body → 13. A call the model asked for, a
nested `ctx.call_tool`, a sub-agent's and a resumed one all come through `prepare`, `execute` and `finish`.
"""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import msgspec

from .decisions import (
    DEFAULT_BLOCK_REASON, Answer, Approve, Ask, Block, Deny, Edit, Interrupt, PendingApproval, Steer,
)  # fmt: skip
from .errors import Aborted, HookFailed, Stop
from .events import Outcome, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from .frozen import EMPTY_DICT, FrozenDict, freeze
from .hooks.check import Refused
from .hooks.dispatch import Ruling, dispatch, in_thread
from .messages import AssistantMessage, Message, Text, ToolCall, text_of
from .seams import BY_NAME, CallDraft, CallOutcome, CallRecord, PendingCall, RunInfo
from .state import RunState
from .tools import InvalidArguments, Tool, ToolContext, ToolResult, as_result

PREPARE, GATE, AFTER = BY_NAME["prepare_tool_call"], BY_NAME["before_tool_call"], BY_NAME["after_tool_call"]
PASSES_AFTER = frozenset({"ran", "failed", "timed_out", "answered"})
MAX_EDITS = 5
"""How often a person may change one call before it is refused."""


class Suspend(Stop):
    """Raised by a tool body that waits for a person (a sub-agent's): `resume(answers)` goes on with it."""

    def __init__(self, pending: Sequence[PendingApproval], resume: Any) -> None:
        super().__init__("waiting for a person")
        self.pending, self.resume = tuple(pending), resume


class Call:
    """One call on its way through the pipeline. `outcome` is `None` until it is settled."""

    __slots__ = (
        "args", "asked", "asked_by", "concluded", "context", "duration", "edited", "failure", "id", "name", "original_args", "outcome",
        "parent_id", "part", "result", "resume_with", "suspended", "tool", "updates_open",
    )  # fmt: skip

    def __init__(self, part: ToolCall, parent_id: str | None = None) -> None:
        self.part, self.parent_id = part, parent_id
        self.id, self.name = part.id, part.name
        self.tool: Tool | None = None
        self.args: FrozenDict | None = None
        self.original_args: FrozenDict = EMPTY_DICT
        self.context: PendingCall | None = None
        self.outcome: Outcome | None = None
        self.result: ToolResult = _NOTHING
        self.duration = 0.0
        self.asked: Ask | None = None
        self.asked_by = ""
        self.edited = False
        self.failure: HookFailed | None = None
        self.suspended: Suspend | None = None
        self.resume_with: Any = None
        self.updates_open = False
        self.concluded = False

    def settle(self, outcome: Outcome, text: str, terminate: bool = False) -> None:
        """This call will not run: the model reads `text` as an error."""
        self.outcome = outcome
        self.result = ToolResult(text, is_error=True, terminate=terminate)

    def pending(self) -> tuple[PendingApproval, ...]:
        """What a person is asked about this call."""
        if self.suspended is not None:
            return self.suspended.pending
        assert self.asked is not None and self.args is not None and self.context is not None
        return (
            PendingApproval(
                call_id=self.id, name=self.name, args=self.args, prompt=self.asked.prompt, options=self.asked.options,
                original_args=self.original_args, args_digest=self.context.args_digest, hook=self.asked_by, parent_call_id=self.parent_id,
            ),
        )  # fmt: skip


_NOTHING = ToolResult()


class Batch:
    """What the calls of one reply have in common."""

    __slots__ = ("context", "message", "names", "steered_by")

    def __init__(self, message: AssistantMessage | None, context: Sequence[Message], names: tuple[str, ...]) -> None:
        self.message, self.context, self.names = message, context, names
        self.steered_by: str | None = None


# --- announcing ----------------------------------------------------------------------------------


async def announce(run: RunState, call: Call) -> None:
    if run.events.takers["tool_execution_start"]:
        event = ToolExecutionStart(call_id=call.id, name=call.name, args=call.part.args, **run.event_fields(call.parent_id))
        await run.emit(event)


async def conclude(run: RunState, call: Call) -> None:
    """Say, once, what became of a call. It is settled now."""
    assert call.outcome is not None
    if call.concluded:
        return
    call.concluded = call.outcome != "pending"
    call.updates_open = False
    run.calls[call.id] = CallRecord(call.id, call.name, call.outcome)
    if run.events.takers["tool_execution_end"]:
        event = ToolExecutionEnd(
            call_id=call.id, name=call.name, result=call.result, outcome=call.outcome, is_error=call.result.is_error,
            **run.event_fields(call.parent_id),
        )  # fmt: skip
        await run.emit(event)


# --- lookup to gate ------------------------------------------------------------------------------


async def prepare(run: RunState, call: Call, batch: Batch) -> None:
    """Everything before the body. Afterwards the call is settled, or may run with `call.args`.

    `call.args` stays `None` where nobody looks at them: the body then decodes the JSON text itself.
    """
    tool = call.tool = run.tools.get(call.name)
    if tool is None:
        call.settle("not_found", _not_found(run, call.name))
        return
    hooks = run.plan.hooks
    shapers, gates = hooks.at_tool("prepare_tool_call", tool.name), hooks.at_tool("before_tool_call", tool.name)
    if not shapers and not gates and tool.direct and not hooks.at_tool("after_tool_call", tool.name):
        return
    try:
        args = call.original_args = tool.validate(call.part.arguments)
    except InvalidArguments as error:
        call.settle("invalid", str(error))
        return
    await _shape_and_gate(run, call, batch, args)


async def _shape_and_gate(run: RunState, call: Call, batch: Batch, args: FrozenDict, approved: str | None = None) -> None:
    """Seams 11 and 12 for validated arguments. `approved` is the digest a person has already said yes to."""
    tool = call.tool
    assert tool is not None
    hooks = run.plan.hooks
    info = run.info if call.parent_id is None else RunInfo(run, call.parent_id)
    shared = (call.name, tool, args, call.part.arguments, call.id, batch.message, batch.context, batch.names)
    try:
        if shapers := hooks.at_tool("prepare_tool_call", tool.name):
            ruling = await dispatch(run, PREPARE, shapers, CallDraft(info, *shared), adopt=_revalidate(tool))
            if ruling.verdict is not None:
                _refuse(call, ruling)
                return
            args = ruling.context.args
        call.args = args
        call.context = PendingCall(info, call.name, tool, args, *shared[3:], original_args=call.original_args)
        if gates := hooks.at_tool("before_tool_call", tool.name):
            await _apply_gate(run, call, batch, await dispatch(run, GATE, gates, call.context), approved)
    except HookFailed as error:  # on_error="abort"
        call.failure = error
        call.settle("blocked", str(error))


def _revalidate(tool: Tool) -> Any:
    def adopt(fields: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"args": tool.validate(fields["args"])}
        except InvalidArguments as error:
            raise Refused(f"returned arguments that the tool does not take: {error}") from None

    return adopt


def _refuse(call: Call, ruling: Ruling) -> None:
    verdict = ruling.verdict
    assert isinstance(verdict, Block)
    call.settle("blocked", verdict.reason or DEFAULT_BLOCK_REASON, verdict.terminate)


async def _apply_gate(run: RunState, call: Call, batch: Batch, ruling: Ruling, approved: str | None) -> None:
    verdict = ruling.verdict
    if run.signal.aborted:
        call.settle("aborted", "Operation aborted")
    elif isinstance(verdict, Block):
        _refuse(call, ruling)
    elif isinstance(verdict, Interrupt):
        run.interrupt = run.interrupt or verdict
        call.settle("blocked", verdict.reason or DEFAULT_BLOCK_REASON)
    elif isinstance(verdict, Steer):
        batch.steered_by = call.name
        call.settle("steered", verdict.feedback)
    elif isinstance(verdict, Answer):
        _answer(call, verdict, ruling)
    elif isinstance(verdict, Ask):
        assert call.context is not None
        if approved != call.context.args_digest:
            call.asked, call.asked_by = verdict, ruling.by.name if ruling.by else ""
            await _ask(run, call, batch)


def _answer(call: Call, verdict: Answer, ruling: Ruling) -> None:
    try:
        call.result = as_result(verdict.value)
        call.outcome = "answered"
    except TypeError as error:
        name = ruling.by.name if ruling.by else "a hook"
        call.settle("blocked", f"hook {name!r} answered for the tool with something that is no result: {error}")


def _not_found(run: RunState, name: str) -> str:
    near = difflib.get_close_matches(name, run.tools, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Tool {name} not found.{hint}"


# --- asking a person -----------------------------------------------------------------------------


async def _ask(run: RunState, call: Call, batch: Batch) -> None:
    handler = run.plan.on_ask
    if handler is None:
        if call.parent_id is not None:
            call.settle("blocked", f"This nested call needs a person's approval ({call.asked.prompt}), and nobody can be asked from "  # type: ignore[union-attr]
                        "inside a tool: it was not run.")  # fmt: skip
        else:
            call.outcome = "pending"
            call.result = ToolResult("Waiting for a person's approval.", is_error=True)
        return
    try:
        answer = handler(call.pending()[0])
        if hasattr(answer, "__await__"):
            run.enter_guarded()
            try:
                answer = await answer
            finally:
                run.leave_guarded()
    except (Exception, asyncio.CancelledError, Stop) as error:
        if run.was_aborted_by(error):
            raise Aborted("aborted while a person was asked") from None
        if not isinstance(error, Exception) and run.cancelled_from_outside():
            raise
        call.settle("blocked", f"Nobody could be asked for approval ({type(error).__name__}: {error}): the call was not run.")
        return
    await apply_answer(run, call, batch, answer)


async def apply_answer(run: RunState, call: Call, batch: Batch, answer: Any) -> None:
    """Go on with a call a person has spoken about. Anything but `Approve`, `Deny` or `Edit` is a refusal."""
    call.outcome = None
    if isinstance(answer, Approve):
        return
    if isinstance(answer, Deny):
        call.settle("blocked", answer.reason or "A person declined this call.")
        return
    if not isinstance(answer, Edit):
        call.settle("blocked", "Nobody approved this call: it was not run." if answer is None else
                    f"The approval was answered with a {type(answer).__name__}, not Approve, Deny or Edit: the call was not run.")  # fmt: skip
        return
    assert call.tool is not None
    try:
        args = call.tool.validate(answer.args)
    except InvalidArguments as error:
        call.settle("invalid", f"A person changed this call to arguments that the tool does not take: {error}")
        return
    call.edited = True
    digest = msgspec.structs.replace(call.context, args=args).args_digest if call.context else None
    await _shape_and_gate(run, call, batch, args, approved=digest)


# --- the body ------------------------------------------------------------------------------------


async def execute(run: RunState, call: Call) -> None:
    """Run the body of a call that the gates let pass, then seam 13. Never raises for what the tool did."""
    tool = call.tool
    assert tool is not None
    if run.signal.aborted:
        call.settle("aborted", "Operation aborted")
        return
    began = perf_counter()
    try:
        kwargs = tool.kwargs_from_json(call.part.arguments) if call.args is None else tool.kwargs(call.args)
        run.tools_run += 1
        run.calls[call.id] = CallRecord(call.id, call.name)
        call.updates_open = True
        timeout = tool.timeout if tool.timeout is not None else run.limits.tool_timeout
        if call.resume_with is not None:
            run.enter_guarded()
            value = await call.resume_with()
        elif timeout is not None or not tool.is_async:
            value = await _in_time(run, call, tool, kwargs, timeout)
        else:
            fn = tool.unguarded
            body = fn(_tool_context(run, call), **kwargs) if tool.takes_context else fn(**kwargs)
            run.enter_guarded()
            value = await body
        result = as_result(value)
        call.result, call.outcome = result, "failed" if result.is_error else "ran"
    except InvalidArguments as error:
        call.settle("invalid", str(error))
    except _Late as late:
        call.settle("timed_out", f"Tool {call.name} gave no result within {late.seconds:g} s. What it did by then is not known.")
    except Suspend as suspend:
        call.suspended, call.outcome = suspend, "pending"
        call.result = ToolResult("Waiting for a person's approval.", is_error=True)
    except (Exception, SystemExit, asyncio.CancelledError, Stop) as error:
        _body_failed(run, call, error)
    finally:
        run.leave_guarded()
    call.duration = perf_counter() - began


def _body_failed(run: RunState, call: Call, error: BaseException) -> None:
    if run.was_aborted_by(error):
        call.settle("aborted", "Operation aborted. What the tool did by then is not known.")
        return
    if isinstance(error, asyncio.CancelledError) and run.cancelled_from_outside():
        raise error
    text = str(error)
    call.settle("failed", f"{type(error).__name__}: {text}" if text else type(error).__name__)


class _Late(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


async def _in_time(run: RunState, call: Call, tool: Tool, kwargs: dict[str, Any], timeout: float | None) -> Any:
    """A body with a time limit, or a sync one, which runs in a thread. A late result is discarded."""
    first = (_tool_context(run, call),) if tool.takes_context else ()
    work: asyncio.Future[Any]
    if tool.is_async:
        work = asyncio.ensure_future(tool.unguarded(*first, **kwargs))
    else:
        work = in_thread(tool.unguarded, *first, **kwargs)
    run.enter_guarded()
    try:
        done, _ = await asyncio.wait({work}, timeout=timeout)
        if not done:
            raise _Late(timeout or 0.0)
        value = work.result()
        return await value if hasattr(value, "__await__") else value
    finally:
        if not work.done():
            work.cancel()


def _tool_context(run: RunState, call: Call) -> ToolContext:
    loop = asyncio.get_running_loop()
    counter = iter(range(1, 1 << 30))

    async def call_tool(name: str, args: Any) -> Any:
        return await nested(run, call, name, args, next(counter))

    def update(partial: Any) -> None:
        loop.call_soon_threadsafe(_updated, run, call, partial)

    return ToolContext(
        call_id=call.id, tool_name=call.name, run=RunInfo(run, call.parent_id or run.parent_call_id), call_tool=call_tool, update=update,
        idempotency_key=f"{run.run_id}:{call.id}",
    )  # fmt: skip


# --- after the body ------------------------------------------------------------------------------


async def finish(run: RunState, call: Call) -> None:
    """Seam 13, and what the core itself adds to a result."""
    tool = call.tool
    if tool is not None and call.outcome in PASSES_AFTER and (hooks := run.plan.hooks.at_tool("after_tool_call", tool.name)):
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
    if call.edited and call.outcome in PASSES_AFTER:
        call.result = _say_edited(call)
    limit = run.limits.max_result_chars
    if limit is not None and isinstance(call.result.content, str) and len(call.result.content) > limit:
        cut = f"{call.result.content[:limit]}\n[cut: {len(call.result.content) - limit} of {len(call.result.content)} characters left out]"
        call.result = msgspec.structs.replace(call.result, content=cut)


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
        run.interrupt = run.interrupt or ruling.verdict
    if ruling.changes:
        new = ruling.context
        # The structured form of a text that was rewritten would still hold what was taken out of it.
        kept = "content" not in ruling.changes or "structured_content" in ruling.changes
        call.result = ToolResult(
            new.content, new.details, new.structured_content if kept else None, new.is_error, new.terminate, new.usage
        )


def _say_edited(call: Call) -> ToolResult:
    note = f"[A person changed the arguments of this call on purpose. It ran with {json.dumps(call.args, ensure_ascii=False)}. Do not repeat the original call.]"
    content = call.result.content
    if isinstance(content, str):
        return msgspec.structs.replace(call.result, content=f"{content}\n{note}" if content else note)
    return msgspec.structs.replace(call.result, content=(*content, Text(note)))


def _updated(run: RunState, call: Call, partial: Any) -> None:
    """A tool reports progress. What comes after its result is ignored."""
    if not call.updates_open or not run.events.takers["tool_execution_update"]:
        return
    run.outbox.append(lambda: _checked_update(run, call, partial))
    run.wake_up()


async def _checked_update(run: RunState, call: Call, partial: Any) -> ToolExecutionUpdate | None:
    """A progress report, as far as the hooks at 13 let it pass."""
    result = as_result(partial)
    assert call.tool is not None
    hooks = run.plan.hooks.at_tool("after_tool_call", call.tool.name)
    if hooks:
        if call.context is None:
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


# --- nested calls --------------------------------------------------------------------------------


class NestedResult(ToolResult, kw_only=True):
    """What `ctx.call_tool` returns: the result, what became of the call, and its id."""

    outcome: Outcome
    call_id: str


async def nested(run: RunState, parent: Call, name: str, args: Any, number: int) -> NestedResult:
    """A call from inside a tool: the same pipeline, with events that carry the parent's id. Never raises for a refusal."""
    arguments = args if isinstance(args, str) else json.dumps(args, default=str)
    call = Call(ToolCall(f"{parent.id}.{number}", name, arguments), parent.id)
    batch = Batch(None, run.context.view(), (name,))
    await announce(run, call)
    await prepare(run, call, batch)
    if call.outcome is None:
        await execute(run, call)
    await finish(run, call)
    await conclude(run, call)
    if call.failure is not None:
        parent.failure = parent.failure or call.failure
    result = call.result
    return NestedResult(
        result.content, result.details, result.structured_content, result.is_error, result.terminate, result.usage,
        outcome=call.outcome or "failed", call_id=call.id,
    )  # fmt: skip


__all__ = ["Batch", "Call", "NestedResult", "Suspend", "announce", "conclude", "execute", "finish", "freeze", "nested", "prepare", "text_of"]
