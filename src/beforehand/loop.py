"""The turn loop, as functions over a `RunState`.

A run is turns until nothing asks for another. What one turn does, in order, is `_turn`; what ends it is `close_turn`;
whether another follows is `_next_cause`. `docs/seams.md` draws the same picture.
"""

from __future__ import annotations

from collections.abc import Sequence

from .batch import Results, Suspension, calls_of, end_left_behind, resume_calls, run_calls
from .closing import AFTER, Turn, ask_finish, close_turn, end_failed_turn, store_failure, store_left, store_turn_error, turn_end
from .compaction import keep_in_bounds
from .decisions import Answer, Block, Interrupt
from .errors import Aborted, BeforehandError, HookFailed, RunChanged, RunError, UsageError
from .events import AgentEnd, AgentStart, MessageEnd, MessageStart, StopReason, TurnStart
from .hooks.beside import dispatch_beside
from .hooks.dispatch import dispatch
from .messages import Message
from .recovery import count_firings, is_notice, recover
from .replies import ask_once, take_answer
from .request import adopt_update, answer_message, apply_update, authorize, prepare_request, send
from .respond import ON_MESSAGE, receive_reply, same_role
from .seams import BY_NAME, Cause, IncomingMessage, NextTurn, RunStart
from .seams import TurnStart as BeforeTurn
from .state import RunState

BEFORE_RUN, BEFORE_TURN, NEXT = (BY_NAME[n] for n in ("before_run", "before_turn", "prepare_next_turn"))


async def run_loop(run: RunState, prompts: Sequence[Message], waiting: Suspension | None = None, answers: object = None) -> None:
    """Do one run, with these prompts or from a batch that waited. What became of it is in `run` afterwards."""
    try:
        if waiting is None and (asked := run.hooks.before_run):
            ruling = await dispatch(run, BEFORE_RUN, asked, RunStart(run.info, tuple(prompts), run.history.view()))
            if ruling.verdict is not None:
                run.stop_reason, run.reason = "blocked", ruling.verdict.reason  # type: ignore[attr-defined]
                return
            prompts = ruling.context.messages
    except RunError as error:
        run.stop_reason, run.error = "error", error
        return
    except Aborted:
        run.stop_reason = "aborted"
        return
    if run.events.takers["agent_start"]:
        await run.emit(AgentStart(**run.event_fields()))
    incoming = list(prompts)
    await _turns(run, incoming, waiting, answers)
    if run.plan.recovery is not None:
        await recover(run, incoming, _turns)
    if run.stop_reason != "suspended":
        store_left(run)
    if run.journal is not None:
        await run.journal.go_live(run)
    if run.announced and run.stop_reason != "suspended":
        await end_left_behind(run)
    await run.deliver()
    if run.events.takers["agent_end"]:
        messages = tuple(run.history.view(run.first_message))
        await run.emit(AgentEnd(messages=messages, stop_reason=run.stop_reason or "completed", **run.event_fields()))


async def _turns(run: RunState, incoming: list[Message], waiting: Suspension | None = None, answers: object = None) -> None:
    """Turns until one says stop. Failures between and before requests end here, with a record in the history.

    What is left in `incoming` afterwards did not come so far as to be judged at seam 10.
    """
    turn, run.unprepared = run.unprepared or Turn(), None
    cause = None if turn.message is None else _next_cause(run, turn) or "continue"
    try:
        while True:
            if waiting is not None:
                turn = Turn(waiting.batch.message)
                _take_results(run, turn, await resume_calls(run, waiting, answers))  # type: ignore[arg-type]
                waiting = None
            else:
                if cause is not None:
                    if run.hooks.prepare_next_turn:
                        await _ask_next(run, turn, cause)
                    incoming += _queued(run, cause)
                turn = Turn()
                if run.hooks.before_turn and not await _ask_before(run, incoming):
                    return
                await _turn(run, turn, incoming, cause)
            if run.stop_reason == "suspended":
                return
            close_turn(run, turn, await ask_finish(run, turn) if run.hooks.finish_turn else None)
            if run.hooks.after_turn or run.events.takers["turn_end"]:
                await turn_end(run, turn)
            if turn.stop is None and run.aborted:
                turn.stop = "aborted"
            if turn.stop is not None:
                run.stop_reason = turn.stop
                return
            if run.journal is not None:
                run.journal.refill(run)
            elif run.plan.recovery is not None:
                count_firings(run)
            cause = _next_cause(run, turn)
            if cause is None:
                run.stop_reason = _natural_end(turn)
                return
            if run.limits.max_turns is not None and run.turn >= run.limits.max_turns:
                run.stop_reason, run.reason = "max_turns", f"{run.turn} turns were made"
                return
    except Aborted:  # between turns, before a request, or while a turn that had failed was closed
        run.stop_reason, run.error = "aborted", None
        if not turn.closed:
            await end_failed_turn(run, turn, ask=True)
    except (RunChanged, UsageError):  # not the run that is on record, or it cannot go on: no turn has failed
        raise
    except BeforehandError as error:
        failure = error if isinstance(error, RunError) else _wrapped(error)
        run.stop_reason, run.error = "error", failure
        if run.journal is not None:
            await run.journal.failed(run, failure, cause, incoming)
        turn.closed, run.unprepared = True, turn if turn.message is not None else None
        record = await (store_failure if run.plan.recovery is None else store_turn_error)(run, str(failure))
        if not (isinstance(failure, HookFailed) and failure.seam == AFTER.name):
            await end_failed_turn(run, Turn(record), ask=False)


def _wrapped(error: BeforehandError) -> RunError:
    failure = RunError(str(error))
    failure.__cause__ = error
    return failure


def _natural_end(turn: Turn) -> StopReason:
    if turn.message is not None and turn.message.stop_reason == "length" and not turn.results:
        return "length"
    return "completed"


def _next_cause(run: RunState, turn: Turn) -> Cause | None:
    """Why another turn follows, if one does. Queued messages satisfy a wish to go on."""
    if run.journal is not None and (recorded := run.journal.past_cause()) is not None:
        return recorded  # type: ignore[no-any-return]
    if turn.tools_go_on:
        return "tools"
    if run.queues.steering:
        return "steering"
    if run.queues.follow_up:
        return "follow_up"
    return "continue" if turn.go_on or turn.resend else None


async def _ask_next(run: RunState, turn: Turn, cause: Cause) -> None:
    """Seam 16. The messages it adds enter the next turn before queued ones."""
    context = NextTurn(
        run.info, run.turn, turn.message, turn.results, run.context_value(), run.history.view(run.first_message),
        cause=cause, model=run.model, thinking_level=run.thinking_level,
    )  # fmt: skip
    ruling = await dispatch(run, NEXT, run.hooks.prepare_next_turn, context, adopt=adopt_update(run))
    _check_abort(run)
    apply_update(run, ruling.changes)
    if run.journal is not None:
        run.journal.from_hooks.arrange(run.hook_queue)
    run.hook_queue[:0] = ruling.changes.get("add_messages", ())


def _queued(run: RunState, cause: Cause) -> list[Message]:
    """What waits for the next turn: hooks' messages, then steering, else a follow-up if that is why it happens."""
    queues = run.queues
    if queues.steering:
        return run.hook_queue + queues.next_steering()
    return run.hook_queue + queues.next_follow_up() if cause == "follow_up" else list(run.hook_queue)


async def _ask_before(run: RunState, incoming: list[Message]) -> bool:
    """Seam 2. False if a hook ended the run."""
    context = BeforeTurn(run.info, run.turn + 1, run.history.view(), tuple(incoming))
    ruling = await dispatch(run, BEFORE_TURN, run.hooks.before_turn, context)
    if ruling.verdict is not None:
        run.stop_reason, run.reason = "ended", ruling.verdict.reason  # type: ignore[attr-defined]
        return False
    _check_abort(run)
    return True


async def _take_all_in(run: RunState, incoming: list[Message], cause: Cause | None) -> Interrupt | None:
    """The messages that the turn begins with. Returns the interrupt that a hook answered one of them with."""
    while incoming:
        await _take_in(run, incoming[0])
        del incoming[0]
    if cause is None and run.poll_first and run.queues.steering:
        polled = run.queues.next_steering()
        if run.journal is not None:
            run.journal.took(polled)
        for message in polled:
            await _take_in(run, message)
    if run.journal is not None:
        run.journal.taken_in(run)
    for message in tuple(run.hook_queue):  # what a hook queued about the messages just taken in
        await _take_in(run, message)
    return run.interrupt


async def _take_in(run: RunState, message: Message) -> None:
    """Seam 10 for a message that comes in, then the history. An interrupt keeps it out and ends the turn."""
    if run.interrupt is not None:
        return
    origin = message.origin
    queued = message
    if asked := run.hooks.on_message:
        context = IncomingMessage(run.info, message, origin, 0, run.history.view())
        ruling = await dispatch_beside(run, ON_MESSAGE, asked, context, adopt=same_role(message))
        if isinstance(ruling.verdict, Interrupt):
            run.interrupt = ruling.verdict
            run.took(queued)
            return
        message = ruling.context.message
        if message is not queued and run.plan.recovery is not None and is_notice(queued):
            run.attempts.rows.append(message)
    if run.events.takers["message_start"]:
        await run.emit(MessageStart(message=message, origin=origin, **run.event_fields()))
    run.store(message)
    run.took(queued)
    if run.events.takers["message_end"]:
        await run.emit(MessageEnd(message=message, origin=origin, **run.event_fields()))


# --- one turn ------------------------------------------------------------------------------------


async def _turn(run: RunState, turn: Turn, incoming: list[Message], cause: Cause | None) -> None:
    """From the incoming messages to the tool results. A reply that failed or was cut sets `turn.stop`."""
    run.turn += 1
    run.interrupt = None
    if run.journal is not None:
        run.journal.turn(run, cause, incoming)
    if run.events.takers["turn_start"]:
        await run.emit(TurnStart(number=run.turn, **run.event_fields()))
    if incoming or run.hook_queue or cause is None:
        interrupt = await _take_all_in(run, incoming, cause)
        if interrupt is not None:
            _interrupted(run, turn, interrupt)
            return
    if run.aborted:
        _check_abort(run)
    if run.compact_at is not None:
        await keep_in_bounds(run)
    outgoing = await prepare_request(run)
    ruling = await authorize(run, outgoing, "turn") if run.hooks.authorize_request else None
    if ruling is None:
        if run.journal is None:
            reply = await receive_reply(run, send(run, outgoing), outgoing)
        else:
            reply = await ask_once(run, outgoing)
    elif isinstance(ruling.verdict, Answer):
        reply = await take_answer(run, answer_message(ruling.verdict.value), outgoing)
    else:
        assert isinstance(ruling.verdict, Block)
        reason = ruling.verdict.reason or "the request was blocked"
        turn.message = await store_failure(run, f"blocked by {ruling.by.name if ruling.by else 'a hook'}: {reason}")
        turn.stop, run.reason = "blocked", reason
        return
    turn.message = reply.message
    if reply.error is not None:
        turn.stop, run.error = "error", reply.error
    elif reply.aborted:
        turn.stop = "aborted"
    elif reply.interrupt is not None:
        _interrupted(run, turn, reply.interrupt)
    elif reply.message is not None and (calls := calls_of(reply.message, run.enabled)):
        _take_results(run, turn, await run_calls(run, reply.message, calls))
    if turn.stop is None and run.aborted:
        turn.stop = "aborted"


def _take_results(run: RunState, turn: Turn, results: Results) -> None:
    turn.results, turn.tools_go_on = tuple(results.messages), not results.terminate
    if results.failure is not None:
        raise results.failure
    if results.suspended is not None:
        turn.results = ()
        run.suspension = results.suspended
        run.pending = tuple([p for call in results.suspended.calls if call.outcome == "pending" for p in call.pending()])
        run.stop_reason = "suspended"
        return
    if run.aborted:
        turn.stop = "aborted"
    elif run.interrupt is not None:
        _interrupted(run, turn, run.interrupt)


def _interrupted(run: RunState, turn: Turn, interrupt: Interrupt) -> None:
    """An interrupt ends the run, unless someone wants the model to be asked again."""
    run.reason = interrupt.reason
    turn.tools_go_on = False
    if (interrupt.resend or run.resend) and (len(run.context) or run.hook_queue):
        run.resend = True
    else:
        turn.stop = "interrupted"


def _check_abort(run: RunState) -> None:
    if run.aborted:
        raise Aborted(run.signal.reason or "aborted")
