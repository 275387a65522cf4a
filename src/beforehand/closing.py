"""How a turn closes (14, `turn_end`, 15), and how runs end badly."""

from __future__ import annotations

import msgspec

from .decisions import Continue, End, Verdict
from .errors import Aborted, HookFailed
from .events import MessageEnd, MessageStart, StopReason, TurnEnd
from .hooks.beside import dispatch_beside
from .hooks.dispatch import dispatch
from .messages import AssistantMessage, Message, ToolMessage, UserMessage, clean
from .respond import ON_MESSAGE, same_role
from .seams import BY_NAME, FinishedTurn, IncomingMessage
from .state import RunState

FINISH, AFTER = BY_NAME["finish_turn"], BY_NAME["after_turn"]


_FAILED = ("error", "aborted", "blocked", "interrupted")


class Turn(msgspec.Struct, eq=False, gc=False):
    """What one turn has come to so far."""

    message: AssistantMessage | None = None
    results: tuple[ToolMessage, ...] = ()
    tools_go_on: bool = False
    resend: bool = False
    go_on: bool = False
    stop: StopReason | None = None
    closed: bool = False


async def ask_finish(run: RunState, turn: Turn) -> Verdict | None:
    """Seam 14."""
    return (await dispatch(run, FINISH, run.hooks.finish_turn, _finished(run, turn))).verdict


def close_turn(run: RunState, turn: Turn, verdict: Verdict | None) -> None:
    """What the turn comes to, with what seam 14 said about it."""
    failed = turn.stop in _FAILED
    if isinstance(verdict, End) and not failed:
        turn.stop, run.reason = "ended", verdict.reason
    elif isinstance(verdict, Continue) and not failed:
        turn.go_on = True
    if run.resend:
        if not failed and turn.stop is None:
            _count_resend(run, turn)
        run.resend = False
    run.askers = ()
    if run.aborted and turn.stop is None:
        turn.stop = "aborted"
    turn.closed = True


def _count_resend(run: RunState, turn: Turn) -> None:
    """One more resend, unless the run or every hook that asks for it has had as many as it may."""
    most, each = run.limits.max_resends, run.limits.max_resends_per_hook
    run.resent = made = run.resent or {}
    askers = dict.fromkeys(run.askers)
    within = [who for who in askers if each is None or made.get(who, 0) < each]
    if most is not None and run.resends >= most:
        turn.stop, run.reason = "resend_limit", f"{most} resends were made, the most a run may have (Limits.max_resends)"
        return
    if askers and not within:
        names = " and ".join([f"hook {name!r} ({where})" for name, where in askers])
        turn.stop = "resend_limit"
        run.reason = f"{each} resends were made for {names}, the most a hook may have (Limits.max_resends_per_hook)"
        return
    for who in within:
        made[who] = made.get(who, 0) + 1
    run.resends += 1
    turn.resend = True


async def turn_end(run: RunState, turn: Turn) -> None:
    """`turn_end` and seam 15."""
    if run.events.takers["turn_end"]:
        await run.emit(TurnEnd(message=turn.message, tool_results=turn.results, **run.event_fields()))
    if asked := run.hooks.after_turn:
        await dispatch(run, AFTER, asked, _finished(run, turn))


def _finished(run: RunState, turn: Turn) -> FinishedTurn:
    new = run.history.view(run.first_message)
    return FinishedTurn(run.info, run.turn, turn.message, turn.results, run.context_value(), new)


# --- how runs end badly --------------------------------------------------------------------------


TURN_ERROR = "[Turn error] "
"""How a row begins that tells the model of a failure of ours, and no other message of origin "hook"."""
MAX_TURN_ERROR = 2000


async def store_failure(run: RunState, why: str) -> AssistantMessage:
    """Put a failure or a blocked request on record. It has no content, so it is never sent."""
    run.messages_made += 1
    message = AssistantMessage(
        (), "error", model=run.model.name, provider=run.model.provider, id=f"{run.run_id[:12]}-{run.messages_made}",
        thinking_level=run.thinking_level, error=clean(why), origin="hook",
    )  # fmt: skip
    await _store(run, message)
    return message


async def store_turn_error(run: RunState, why: str) -> AssistantMessage | None:
    """Put a failure into the history as a row that the model reads at its next turn.

    Seam 10 judges it like any message. What may not stand there becomes a record that is never sent, and is returned.
    """
    row = UserMessage(TURN_ERROR + clean(why)[:MAX_TURN_ERROR], origin="hook")
    judged = await _judged(run, row) if run.hooks.on_message else row
    if judged is None:
        return await store_failure(run, why)
    if judged is not row:
        run.attempts.rows.append(judged)
    await _store(run, judged)
    return None


async def _judged(run: RunState, row: UserMessage) -> Message | None:
    context = IncomingMessage(run.info, row, "hook", 0, run.history.view())
    try:
        ruling = await dispatch_beside(run, ON_MESSAGE, run.hooks.on_message, context, adopt=same_role(row))
    except (HookFailed, Aborted):
        return None
    return None if ruling.verdict is not None else ruling.context.message


async def _store(run: RunState, message: Message) -> None:
    if run.events.takers["message_start"]:
        await run.emit(MessageStart(message=message, origin="hook", **run.event_fields()))
    run.store(message)
    if run.events.takers["message_end"]:
        await run.emit(MessageEnd(message=message, origin="hook", **run.event_fields()))


def store_left(run: RunState) -> None:
    """What hooks queued and no request took is appended at the end, so that it is not lost."""
    if run.journal is not None:
        run.journal.ends(run)
    for message in run.hook_queue:
        run.store(message)
    run.hook_queue = []


async def end_failed_turn(run: RunState, turn: Turn, ask: bool) -> None:
    """The rest of a turn that was cut short: 14 (after an abort), `turn_end`, 15. Hooks that fail here change nothing more."""
    for step in (ask_finish, turn_end):
        if step is ask_finish and not (ask and run.hooks.finish_turn):
            continue
        try:
            await step(run, turn)
        except (HookFailed, Aborted) as error:
            if isinstance(error, HookFailed) and run.error is None:
                run.stop_reason, run.error = "error", error
