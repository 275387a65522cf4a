"""What people say about recorded runs from outside: answers to questions, and what became of calls that were cut short.

Saying it only records it. Somebody then resumes the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable

from .decisions import HumanAnswer
from .durable import Recorded, load, logs_of, places_of, record_answer
from .errors import RunBusy, UnknownAnswer, UsageError
from .journal.aside import is_made_again
from .journal.reading import is_given_up
from .journal.store import Held, Store
from .tools import ToolResult

GIVEN_BACK_SECONDS = 5.0
"""How long it may take until somebody gives back the lease of a run that has come to wait, or about which he has answered."""

GIVEN_UP = "the call it was made in is over, and nobody goes on with it"


async def answer_waiting(journal: Store, run_id: str, call_id: str, answer: HumanAnswer, by: str) -> str:
    """Record an answer to a waiting call, bound to the digest of the arguments that were shown. Durable when this returns.

    The call may be one of a sub-agent, named by its own run or by the outer one. Returns the id of the run to resume.
    Raises `UnknownAnswer` for a call that does not wait, or not any more, and `RunBusy` while somebody goes on with the run.
    """
    run_id, call_id = await journal.reading(outermost, journal, run_id, call_id)
    async with _held(hold_waiting(journal, run_id)):
        recorded = await journal.reading(load, journal, run_id)
        pending = recorded.past.pending
        if call_id not in pending:
            raise UnknownAnswer(_why_not(recorded, call_id))
        if await journal.reading(is_given_up, journal, run_id):
            raise UnknownAnswer(f"no call {call_id!r} of run {run_id} is waiting: {GIVEN_UP}")
        await record_answer(journal, run_id, call_id, pending[call_id]["args_digest"], answer, by)
    return run_id


async def settle_call(journal: Store, run_id: str, call_id: str, result: ToolResult, by: str) -> str:
    """Record what became of a call whose process ended while it ran: the run takes `result` as its outcome when it goes on.

    A lambda that has been told that this is not known makes the same call again as long as it fails over it, and is given
    `result` then.

    Like an answer it is recorded in the runs around as well, and lets a worker go on that has given the run up. Returns the
    id of the run to resume. Raises `UsageError` for any other call, and `RunBusy` while somebody goes on with the run.
    """
    places = await journal.reading(_places_around, journal, run_id, call_id)
    outermost, (owner, inner) = places[0][0], places[-1]
    await journal.reading(_check_open, journal, owner, inner)  # who comes too late hears why, though the run may still be held
    async with _held(journal.hold(outermost)):
        await journal.reading(_check_open, journal, owner, inner)
        for log, named in await logs_of(journal, places):
            log.add("settled", {"call": named, "result": result, "by": by})
            await log.write(durable=True)
    return outermost


def _check_open(journal: Store, run_id: str, call_id: str) -> None:
    """`UsageError` for a call that has not begun, or of which is known what became."""
    past = load(journal, run_id).past
    call = past.calls.get(call_id)
    if call is None or call.intent is None:
        begun = [name for name, c in past.calls.items() if c.intent is not None and c.outcome is None]
        hint = f"; without an outcome: {', '.join(begun)}" if begun else ""
        raise UsageError(f"no call {call_id!r} of run {run_id} has begun{hint}")
    if call.outcome is not None and not (call.outcome["outcome"] == "uncertain" and is_made_again(past, call_id)):
        raise UsageError(f"call {call_id} of run {run_id} has an outcome: {_too_late(call.outcome['outcome'])}")
    if call.settled is not None:
        raise UsageError(f"call {call_id} of run {run_id} has been settled already")
    if is_given_up(journal, run_id):
        raise UsageError(f"call {call_id} of run {run_id} can no longer be settled: {GIVEN_UP}")
    if past.suspended is not None:
        raise UsageError(f"call {call_id} of run {run_id} waits for a person inside: answer that (`beforehand approvals`)")


def _too_late(outcome: str) -> str:
    return "the run went on without knowing it, and told the model so (uncertain)" if outcome == "uncertain" else outcome


def _places_around(journal: Store, run_id: str, call_id: str) -> list[tuple[str, str]]:
    """A call as all runs know it that are around it, the outermost first."""
    while (around := _around(journal, run_id)) is not None:
        run_id, call_id = around[0], f"{around[1]}/{call_id}"
    return places_of(journal, run_id, call_id)


def _around(journal: Store, run_id: str) -> tuple[str, str] | None:
    """The run in one of whose calls this one was made, and that call."""
    parent_call = journal.first(run_id).data.get("parent_call")
    parent = run_id.removesuffix(f"/{parent_call}") if parent_call is not None else run_id
    return None if parent == run_id or not journal.has(parent) else (parent, parent_call)


@contextlib.asynccontextmanager
async def _held(holding: Awaitable[Held]) -> AsyncIterator[None]:
    """Nobody else goes on with the run, or says something about it, meanwhile."""
    lease = await holding
    try:
        yield
    finally:
        lease.release()


async def hold_waiting(journal: Store, run_id: str) -> Held:
    """The lease of a run that waits. Its worker gives it back a moment after it has recorded that it does, and so does
    somebody else who answers at the same time. Raises `RunBusy` while somebody goes on with the run.
    """
    deadline = time.monotonic() + GIVEN_BACK_SECONDS
    while True:
        try:
            return await journal.hold(run_id)
        except RunBusy:
            kind = await journal.reading(last_kind, journal, run_id)
            if time.monotonic() > deadline or kind not in ("suspended", "answer"):
                raise
        await asyncio.sleep(0.02)


def last_kind(journal: Store, run_id: str) -> str:
    """Of what kind a run's last record is."""
    return journal.records(run_id, after=journal.head(run_id).records - 1)[-1].kind


def outermost(journal: Store, run_id: str, call_id: str) -> tuple[str, str]:
    """A waiting call as the outermost run that waits for it knows it."""
    while (around := _around(journal, run_id)) is not None:
        parent, named = around[0], f"{around[1]}/{call_id}"
        if named not in load(journal, parent).past.suspended_calls:
            break
        run_id, call_id = parent, named
    return run_id, call_id


def _why_not(recorded: Recorded, call_id: str) -> str:
    past, run_id = recorded.past, recorded.run_id
    known = past.calls.get(call_id)
    if known is not None and known.answers and past.suspended is not None:
        given = known.answers[-1]
        return f"call {call_id} of run {run_id} has been answered already ({given['answer']['is'].lower()}, by {given['by']})"
    waiting = f"waiting are {', '.join(past.pending)}" if past.pending else "none is waiting"
    return f"no call {call_id!r} of run {run_id} is waiting; {waiting}"
