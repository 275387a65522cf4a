"""Seams 11 and 12: what a call becomes, whether it may run, and the person who may be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from .calls import Batch, Call
from .decisions import DEFAULT_BLOCK_REASON, Answer, Approve, Ask, Block, Deny, Edit, HumanAnswer, Interrupt, Steer
from .errors import Aborted, HookFailed, JournalError, describe, nearest
from .frozen import FrozenDict
from .hooks.check import Refused
from .hooks.dispatch import Ruling, dispatch
from .hooks.group import narrowed
from .hooks.hook import UNSEEN, Hook
from .intents import replay_policy
from .seams import BY_NAME, CallDraft, PendingCall, RunInfo
from .state import RunState
from .tools import InvalidArguments, Tool, ToolResult, as_result

MAX_EDITS = 5

PREPARE, GATE = BY_NAME["prepare_tool_call"], BY_NAME["before_tool_call"]


def why_missing(run: RunState, name: str) -> str:
    """What the model reads that has called a tool which there is none of. Hooks can show it one, and not grant it."""
    if name in run.advertised:
        return f"Tool {name} is not enabled."
    near = nearest(name, run.enabled)
    return f"Tool {name} not found.{f' Did you mean {near}?' if near else ''}"


async def shape_and_gate(
    run: RunState, call: Call, batch: Batch, args: FrozenDict, approved: str | None = None, said: Ruling | None = None
) -> None:  # fmt: skip
    """Seams 11 and 12 for validated arguments. `approved` is the digest a person has already said yes to.

    What was `said` of the same arguments before a person wrote them again stands, where those who said it are gone.
    """
    tool = call.tool
    assert tool is not None
    hooks = run.hooks
    info = run.info if call.parent_id is None else RunInfo(run, call.parent_id)
    shared = (call.name, tool, args, call.part.arguments, call.id, batch.message, batch.context, batch.names)
    try:
        if (shapers := hooks.for_tool("prepare_tool_call", tool.name)) or _ruled(run, call, "prepare_tool_call"):
            ruling = await dispatch(run, PREPARE, shapers, CallDraft(info, *shared), adopt=_revalidate(tool))
            if ruling.verdict is not None:
                _refuse(call, ruling)
                return
            args = ruling.context.args
        call.args = args
        call.context = PendingCall(info, call.name, tool, args, *shared[3:], original_args=call.original_args)
        gates = hooks.for_tool("before_tool_call", tool.name)
        if gates or run.shadow is not None or said is not None or _ruled(run, call, "before_tool_call"):
            asked = narrowed(gates, call.context) if hooks.grouped else gates
            ruling = await dispatch(run, GATE, asked, call.context)
            if run.journal is not None and (new := run.journal.not_asked(call, asked)):
                ruling = await _ask_new(run, call, [hook for hook in new if hook.where != UNSEEN], ruling)
            if said is not None and said.context.args_digest == call.context.args_digest:
                here = hooks.names_at("before_tool_call")
                ruling = ruling.beside(GATE, [(verdict, hook) for verdict, hook in said.heard if hook.name not in here], {})
            await _apply_gate(run, call, batch, ruling, approved)
    except HookFailed as error:  # on_error="abort"
        call.failure = error
        call.settle("blocked", str(error))


async def _ask_new(run: RunState, call: Call, gates: Sequence[Hook], ruling: Ruling) -> Ruling:
    """A call that was ruled on before the process ended, and has not begun, passes gates that are new since then as well."""
    if not gates or (ruling.verdict is not None and not isinstance(ruling.verdict, Ask)):
        return ruling
    run.journal.joins(call)
    if run.shadow is not None:
        run.shadow.joins(run, ruling)
    return ruling.beside(GATE, (await dispatch(run, GATE, gates, ruling.context)).heard, {})


def _ruled(run: RunState, call: Call, seam: str) -> bool:
    """Whether hooks have ruled about this call, though none is here today: what they decided still holds."""
    past = None if run.journal is None else run.journal.past_call(call.id)
    return past is not None and bool(past.rulings.get(seam))


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
    if run.aborted:
        call.settle("aborted", "Operation aborted")
    elif isinstance(verdict, Block):
        _refuse(call, ruling)
    elif isinstance(verdict, Interrupt):
        run.interrupted_by(verdict)
        call.settle("blocked", verdict.reason or DEFAULT_BLOCK_REASON)
    elif isinstance(verdict, Steer):
        batch.steered_by = call.name
        call.settle("steered", verdict.feedback)
    elif isinstance(verdict, Answer):
        _answer(call, verdict, ruling)
    elif isinstance(verdict, Ask):
        assert call.context is not None
        call.rest = ruling.without(GATE, Ask)
        if approved == call.context.args_digest:
            await _apply_gate(run, call, batch, call.rest, None)
        else:
            call.asked, call.asked_by = verdict, ruling.by.name if ruling.by else ""
            await _ask(run, call, batch)


def _answer(call: Call, verdict: Answer, ruling: Ruling) -> None:
    try:
        call.result = as_result(verdict.value)
        call.outcome = "answered"
    except TypeError as error:
        name = ruling.by.name if ruling.by else "a hook"
        call.settle("blocked", f"hook {name!r} answered for the tool with something that is no result: {error}")


# --- asking a person -----------------------------------------------------------------------------


async def _ask(run: RunState, call: Call, batch: Batch) -> None:
    handler = run.plan.on_ask
    if run.journal is not None:
        answer = run.journal.past_answer(call.id, call.pending()[0].args_digest)
        if answer is not None:
            await apply_answer(run, call, batch, answer)
            return
        past = run.journal.past_call(call.id)
        if past is not None and (past.intent is not None or past.outcome is not None):
            return  # somebody has let it begin, with what it was then, or an abort came while it waited
        await _put_question(run, call)
    if handler is None:
        if call.parent_id is not None and not _can_wait_inside(run, call):
            assert call.asked is not None
            inside = "nobody can be asked from inside a tool or a lambda"
            reason = f"This nested call needs a person's approval ({call.asked.prompt}), and {inside}"
            if run.journal is not None:
                reason += ' that may not be repeated (it is not replay="safe")'
            call.settle("blocked", f"{reason}: it was not run.")
        else:
            call.outcome = "pending"
            call.result = ToolResult("Waiting for a person's approval.", is_error=True)
        return
    outer_scope = run.scope
    try:
        answer = handler(call.pending()[0])
        if hasattr(answer, "__await__"):
            run.enter_guarded()
            answer = await answer
            run.leave_guarded(outer_scope)
            run.survived()
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        aborted = run.was_aborted_by(error)
        run.leave_guarded(outer_scope)
        if aborted:
            raise Aborted("aborted while a person was asked") from None
        if isinstance(error, asyncio.CancelledError) and run.cancelled_from_outside():
            raise
        call.settle("blocked", f"Nobody could be asked for approval ({describe(error)}): the call was not run.")
        return
    call.raise_if_left()  # the answer came too late, and is none
    if run.journal is not None and isinstance(answer, HumanAnswer):
        await _record_answer(run, call, answer)
    if call.failure is None:
        await apply_answer(run, call, batch, answer)


async def _put_question(run: RunState, call: Call) -> None:
    """Record the question, before anybody is asked it."""
    await run.journal.go_live(run)
    run.journal.ask(call.pending()[0])


async def _record_answer(run: RunState, call: Call, answer: HumanAnswer) -> None:
    try:
        await run.journal.answered(call.id, call.pending()[0].args_digest, answer, "on_ask")
    except JournalError as error:
        call.settle("aborted", f"Not run: {error}")
        call.failure = error


def _can_wait_inside(run: RunState, call: Call) -> bool:
    """Whether a nested call can wait for a person: the calls around it are all made again then, which must be safe."""
    if run.journal is None or call.message is None:  # a lambda's call has no message, and never waits
        return False
    around = call.parent_id
    while around is not None:
        parent = run.calls.get(around)
        if parent is None or replay_policy(run, parent)[0] != "safe":
            return False
        around = parent.parent_id
    return True


async def apply_answer(run: RunState, call: Call, batch: Batch, answer: Any) -> None:
    """Go on with a call a person has spoken about. Anything but `Approve`, `Deny` or `Edit` is a refusal."""
    call.outcome = None
    if isinstance(answer, Approve):
        if call.rest is not None:  # the person has lifted the question, and no other hook's verdict
            await _apply_gate(run, call, batch, call.rest, None)
        return
    if isinstance(answer, Deny):
        call.settle("blocked", answer.reason or "A person declined this call.")
        return
    if not isinstance(answer, Edit):
        given = (
            "Nobody approved this call"
            if answer is None
            else f"The answer was a {type(answer).__name__}, not Approve, Deny or Edit"
        )
        call.settle("blocked", f"{given}: it was not run.")
        return
    assert call.tool is not None
    try:
        args = call.tool.validate(answer.args)
    except InvalidArguments as error:
        call.settle("invalid", f"A person changed this call to arguments that the tool does not take: {error}")
        return
    call.args = args
    call.edits += 1
    if call.edits > MAX_EDITS:
        call.settle("blocked", f"This call was changed {MAX_EDITS} times by a person and by hooks in turn: it was not run.")
        return
    digest = msgspec.structs.replace(call.context, args=args).args_digest if call.context else None
    await shape_and_gate(run, call, batch, args, approved=digest, said=call.rest)
