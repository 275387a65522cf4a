"""The calls of one reply: in parallel or in sequence, each with exactly one result, stored in the order they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from .calls import Batch, Call
from .decisions import HumanAnswer, Interrupt
from .errors import Aborted, HookFailed, RunError
from .events import MessageEnd, MessageStart
from .gating import apply_answer
from .hooks.beside import dispatch_beside
from .hooks.hook import Hook
from .messages import AssistantMessage, ToolCall, ToolMessage
from .respond import ON_MESSAGE, same_role
from .seams import IncomingMessage
from .state import RunState
from .intents import cut_short
from .toolcall import LATE, admit, announce, conclude, execute, look_up, settle
from .tools import Tool

TRUNCATED = (
    "Tool {name} was not run: the reply was cut at its length limit, so the arguments may be incomplete. "
    "Ask again, with shorter arguments or fewer calls at once."
)

LEFT = ". What the tool did by then is not known."


class Results(msgspec.Struct):
    """What became of a batch. `suspended` holds it while it waits for a person; `failure` must end the run."""

    messages: list[ToolMessage]
    terminate: bool = False
    suspended: Suspension | None = None
    failure: RunError | None = None


class Suspension(msgspec.Struct):
    """A batch that waits: its calls, of which those with outcome "pending" need an answer."""

    batch: Batch
    calls: list[Call]
    stored: list[ToolMessage]
    failure: RunError | None = None

    def waiting(self) -> dict[str, Any]:
        """Each waiting call by the ids it can be answered under."""
        return {pending.call_id: call for call in self.calls if call.outcome == "pending" for pending in call.pending()}


def calls_of(message: AssistantMessage, tools: Mapping[str, Tool]) -> list[Call]:
    """The calls that a reply asks for, each with its tool if there is one of that name."""
    return [
        Call(part, part.id, part.name, None, message, tools.get(part.name)) for part in message.content if type(part) is ToolCall
    ]


async def run_calls(run: RunState, message: AssistantMessage, calls: list[Call]) -> Results:
    """Run the calls of a reply and store their results."""
    batch = Batch(message, run.context, len(run.context))
    if message.stop_reason == "length":
        return await _all_truncated(run, calls)
    if run.sequential and _in_sequence(run, calls):
        return await _sequential(run, batch, calls)
    for call in calls:
        if run.events.takers["tool_execution_start"] or look_up(run, call) or call.outcome is not None:
            await _preflight(run, batch, call)
    if batch.steered_by is not None or run.aborted:
        for call in calls:
            if call.outcome is None:
                _cancel(run, batch, call)
                await settle(run, call)
    heard = run.events.heard or (run.journal is not None and run.journal.will_be_heard)
    if len(calls) == 1 and not heard:  # nobody watches, so the body can run in the run's own task
        if calls[0].outcome is None:
            await execute(run, calls[0])
    else:
        await _run_bodies(run, calls)
    return await _store_all(run, batch, calls, Results([]))


async def resume_calls(run: RunState, waiting: Suspension, answers: Mapping[str, HumanAnswer]) -> Results:
    """Go on with a batch that waited, now that a person has answered. A call without an answer is refused."""
    to_run = [call for call in waiting.calls if call.outcome == "pending" and await _may_run(run, waiting.batch, call, answers)]
    if waiting.batch.steered_by is not None:  # an approval lifted the question, and what another hook said counts now
        for call in to_run:
            if call.outcome is None:
                _cancel(run, waiting.batch, call)
                await settle(run, call)
    if _in_sequence(run, to_run):
        for call in to_run:
            await _run_bodies(run, [call])
    else:
        await _run_bodies(run, to_run)
    return await _store_all(run, waiting.batch, waiting.calls, Results(waiting.stored, failure=waiting.failure))


async def _may_run(run: RunState, batch: Batch, call: Call, answers: Mapping[str, HumanAnswer]) -> bool:
    """Apply a person's answer to a waiting call. False: it is settled, or waits for another answer."""
    if call.suspended is not None:
        call.outcome = None
        _continue_inside(call, {p.call_id: answers.get(p.call_id) for p in call.suspended.pending})
    else:
        try:
            await apply_answer(run, call, batch, answers.get(call.id))
        except Aborted:
            call.settle("aborted", "Operation aborted")
    if call.outcome is None:
        run.calls[call.id] = call
    elif call.outcome != "pending":
        await settle(run, call)
    return call.outcome is None


def _continue_inside(call: Call, answers: dict[str, Any]) -> None:
    """A sub-agent waits inside this call: its body becomes "go on with that run"."""
    suspend = call.suspended
    assert suspend is not None and call.tool is not None
    call.suspended = None
    call.resume_with = lambda: suspend.resume(answers)


def _in_sequence(run: RunState, calls: list[Call]) -> bool:
    if run.plan.tool_mode == "sequential":
        return True
    return any((tool := run.enabled.get(call.name)) is not None and tool.mode == "sequential" for call in calls)


# --- before the bodies ---------------------------------------------------------------------------


async def _preflight(run: RunState, batch: Batch, call: Call) -> None:
    """Announce, validate and gate one call. One that will not run is settled at once."""
    if run.events.takers["tool_execution_start"]:
        await announce(run, call)
    if run.journal is not None and await cut_short(run, call, batch):
        pass  # nothing that is said today can undo that it has begun
    elif run.aborted or batch.steered_by is not None:
        _cancel(run, batch, call)
    else:
        await admit(run, call, batch)
    if call.outcome is not None:
        await settle(run, call)


def _cancel(run: RunState, batch: Batch, call: Call) -> None:
    if run.aborted:
        call.settle("aborted", "Operation aborted")
    else:
        call.settle("cancelled", f"Cancelled: the person steered the turn away at the call of {batch.steered_by}.")


async def _all_truncated(run: RunState, calls: list[Call]) -> Results:
    results = Results([])
    for call in calls:
        await announce(run, call)
        call.settle("truncated", TRUNCATED.format(name=call.name))
        await conclude(run, call)
        await _store(run, call, _result_message(run, call, results), results)
    return results


async def _sequential(run: RunState, batch: Batch, calls: list[Call]) -> Results:
    """Each call to its end before the next begins. Once a call waits for a person, later results wait with it."""
    results = Results([])
    waits = False
    for call in calls:
        await _preflight(run, batch, call)
        await _run_bodies(run, [call])
        waits = waits or call.outcome == "pending"
        if not waits:
            await _store(run, call, _result_message(run, call, results), results)
    return await _store_all(run, batch, calls, results)


# --- the bodies ----------------------------------------------------------------------------------


async def _run_bodies(run: RunState, calls: Sequence[Call]) -> None:
    """Run the bodies of those that may run, all at once and each in a task.

    The run's own task stays free to deliver events in order and to notice an abort.
    """
    calls = [call for call in calls if call.outcome is None]
    if not calls:
        return
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(execute(run, call)): call for call in calls}
    run.tasks, run.batching, run.abandon = set(tasks), True, False
    for task in tasks:
        task.add_done_callback(run.wake_up)
    try:
        while True:
            await run.deliver()
            if run.abandon or all(task.done() for task in tasks):
                break
            run.wake = loop.create_future()
            if not run.outbox and not all(task.done() for task in tasks):
                await run.wake
    except BaseException:
        run.cancelled = True
        raise
    finally:
        run.batching, run.wake, run.tasks = False, None, set()
        for task in tasks:
            task.cancel()
    await _collect(run, tasks)
    await run.deliver()


async def _collect(run: RunState, tasks: dict[asyncio.Task[None], Call]) -> None:
    """Take what the tasks raised; a body that ignores its cancellation is left behind, its call is aborted."""
    raised: BaseException | None = None
    for task, call in tasks.items():
        if not task.done() or call.outcome is None:
            call.settle("aborted", LATE)
            await conclude(run, call)
        if task.done() and not task.cancelled() and task.exception() is not None:
            raised = raised or task.exception()
    if run.aborted:
        run.cancelling = False
    if raised is not None:
        raise raised


async def end_left_behind(run: RunState) -> None:
    """The run is over, and whoever watches hears the end of calls that are still made in code that it has left behind."""
    for call in reversed(run.announced):
        if not call.concluded:
            call.settle("aborted", f"The run ended first{LEFT if call.begun else ': it was not run.'}")
            await conclude(run, call)


# --- the results ---------------------------------------------------------------------------------


async def _store_all(run: RunState, batch: Batch, calls: list[Call], results: Results) -> Results:
    """Store every result that is not stored yet, unless a call still waits: then the whole batch does. Not after an abort."""
    results.terminate = True
    for call in calls:
        if call.outcome == "pending" and run.aborted:
            call.settle("aborted", "Operation aborted")
            await settle(run, call)
        if call.outcome == "pending":
            if run.journal is not None:
                await run.journal.go_live(run)  # what is on record ends here
            return Results(results.messages, suspended=Suspension(batch, calls, results.messages, results.failure))
        if not call.result.terminate:
            results.terminate = False
    for call in calls[len(results.messages) :] if results.messages else calls:
        message = _result_message(run, call, results)
        if run.hooks.on_message or run.events.heard:
            await _store(run, call, message, results)
        else:
            run.store(message)
            results.messages.append(message)
    return results


def _result_message(run: RunState, call: Call, results: Results) -> ToolMessage:
    result = call.result
    if call.failure is not None:
        results.failure = results.failure or call.failure
    if result.usage is not None:
        run.add_usage(result.usage, "")
    return ToolMessage(call.id, call.name, result.content, result.is_error, result.details, result.usage, "tool", call.outcome)


async def _store(run: RunState, call: Call, message: ToolMessage, results: Results) -> None:
    """Put a result into the history. Whatever a hook at 10 does, the call gets exactly one."""
    if run.hooks.on_message:
        message = await _judge(run, call, message, run.hooks.on_message, results)
    if run.events.takers["message_start"]:
        await run.emit(MessageStart(message=message, origin="tool", **run.event_fields()))
    run.store(message)
    results.messages.append(message)
    if run.events.takers["message_end"]:
        await run.emit(MessageEnd(message=message, origin="tool", **run.event_fields()))


async def _judge(run: RunState, call: Call, message: ToolMessage, hooks: tuple[Hook, ...], results: Results) -> ToolMessage:
    context = IncomingMessage(run.info, message, "tool", 0, run.history.view())
    try:
        ruling = await dispatch_beside(run, ON_MESSAGE, hooks, context, adopt=same_role(message))
    except HookFailed as error:
        results.failure = results.failure or error
        return ToolMessage(call.id, call.name, f"The result is withheld: {error}", is_error=True)
    except Aborted:
        return ToolMessage(
            call.id, call.name, "The result is withheld: the run was aborted before it could be checked.", is_error=True
        )
    if isinstance(ruling.verdict, Interrupt):
        run.interrupted_by(ruling.verdict)
        reason = ruling.verdict.reason
        return ToolMessage(call.id, call.name, f"The result is withheld: {reason or 'a hook interrupted it'}", is_error=True)
    new: ToolMessage = ruling.context.message
    if (new.tool_call_id, new.tool_name) != (call.id, call.name):
        new = msgspec.structs.replace(new, tool_call_id=call.id, tool_name=call.name)
    return new


async def abandon(run: RunState, waiting: Suspension) -> None:
    """Nobody will answer any more: every waiting call is refused, and the batch gets its results."""
    for call in waiting.calls:
        if call.outcome == "pending":
            call.settle("blocked", "Nobody approved this call: it was not run.")
            await conclude(run, call)
    await _store_all(run, waiting.batch, waiting.calls, Results(waiting.stored, failure=waiting.failure))
