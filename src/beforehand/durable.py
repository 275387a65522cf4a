"""Runs that keep a journal: how their record begins, how a run goes on from it, and what a finished one came to."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from .decisions import Deny, HumanAnswer, PendingApproval
from .errors import ConfigError, JournalError, RunChanged, UnknownAnswer, UsageError
from .history import History
from .hooks.group import each_of
from .hooks.hook import UNSEEN, Hook
from .hooks.registry import HookSet
from .ids import run_id_problem
from .journal.codec import message_of, read, read_error
from .journal.details import kept, kept_all
from .journal.families import decisions_in, decisions_inside, fired_inside
from .journal.fingerprint import differences, of_tool, prints_of
from .journal.log import RunLog
from .journal.opening import RunExists
from .journal.past import Past
from .journal.pastrecords import MALFORMED, read_past, unreadable
from .journal.queries import Head
from .journal.sqlite import encode, now
from .journal.shortened import read_shortened
from .journal.store import Store
from .journal.trusted import history_before, trusted
from .journal.waiting import begin_waiting
from .journal.withheld import Keep, give, was_withheld, withheld
from .limits import Limits
from .messages import Message, Usage
from .results import RunResult, text_of_run
from .state import RunState

logger = logging.getLogger("beforehand")

NOBODY = "Nobody approved this call: it was not run."
MOVED_ON = "run {} has been answered or gone on with elsewhere: `await talk.resume({{}})` takes that over, then a prompt follows"


# --- beginning -----------------------------------------------------------------------------------


async def begin_record(run: RunState, prompts: Sequence[Message], base: Mapping[str, Any]) -> None:
    """Open the record of a run: what it was started with. `base` says which history it continues."""
    journal: Store = run.plan.journal
    start = {
        "agent": run.plan.name, "loop": run.loop, "model": run.model.name, "provider": run.model.provider,
        "tools": {tool.name: of_tool(tool) for tool in run.plan.tools}, "hooks": prints_of(each_hook(run.hooks)),
        "prompts": list(map(_keeping(run, "before_run", "on_message"), prompts)), "base": base,
        "limits": msgspec.to_builtins(run.limits), "poll_first": run.poll_first,
        "system": run.plan.system, "tool_mode": "sequential" if run.sequential else "parallel",
        "queue_modes": [run.queues.steering_mode, run.queues.follow_up_mode],
    }  # fmt: skip
    if "after" not in base:  # the runs of a conversation have the same tools
        start["specs"] = [tool.spec for tool in run.plan.tools]
    if run.plan.hooks.rules is not None and (fired := {key: n for key, n in run.plan.hooks.rules.counts().items() if n}):
        start["fired"] = fired
    if run.plan.recovery is not None and run.attempts.failures:
        start["attempts"] = [run.attempts.failures, run.attempts.last]
    if run.parent_call_id is not None:
        start["parent_call"] = run.parent_call_id
    parent = run.parent_run_id
    if parent is None:
        _check_id(run.run_id)
    if waiting := begin_waiting(run.queues, run.run_id, prompts):
        start["queued"] = list(map(_keeping(run, "on_message"), waiting))
    entry = ("run", now(), encode(start))
    try:
        await journal.ready()
        head, run.lease = await journal.begin(run.run_id, entry, parent)
    except RunExists:
        run.queues.numbers = None
        raise UsageError(
            f"a run {run.run_id!r} is in {journal.path} already: resume it with agent.resume(...), or take another run_id"
        ) from None
    log = RunLog(journal, head)
    _intake(run, log, start["prompts"])
    log.begin(run)


def _keeping(run: RunState, *seams: str) -> Keep:
    """How to write messages that the run's hooks at these seams are still to judge: not what they say, if there are any."""
    judges = [hook for seam in seams for hook in getattr(run.hooks, seam) if hook.where != UNSEEN]
    return withheld if judges and not run.plan.journal.raw else kept


def _intake(run: RunState, log: RunLog, prompts: Sequence[Any]) -> None:
    log.intake.keep = _keeping(run, "on_message")
    log.intake.hidden = any(map(was_withheld, prompts))


def each_hook(hooks: HookSet) -> list[Hook]:
    """The hooks of a set one by one, without those that only hold a place for a shadow."""
    return [hook for hook in each_of(hooks.hooks) if hook.where != UNSEEN]


def _check_id(run_id: Any) -> None:
    if (why := run_id_problem(run_id)) is not None:
        raise UsageError(f"run_id={run_id!r}{why}")


def base_of(history: History, length: int, before: tuple[str, int, int] | None) -> dict[str, Any]:
    """What to say of the history that a run continues: which recorded run it follows, or all of its messages."""
    if before is not None and before[2] == length:
        return {"after": before[0], "added": before[2] - before[1]}
    return {"messages": kept_all(history.view()[:length])}


@contextlib.asynccontextmanager
async def until_its_end(run: RunState, given_up: str | None = None) -> AsyncIterator[None]:
    """Around a run: how it ended is durable, and others may go on with it. `given_up` says why one that waited will not."""
    try:
        yield
        if given_up is not None:
            run.stop_reason, run.reason = "ended", given_up
            run.journal.add("withdrawn", {"why": given_up})
        await run.journal.ended(run)
    except JournalError as error:
        if run.error is None:
            run.stop_reason, run.error = "error", error
    except BaseException:
        await run.journal.give_up()
        raise
    finally:
        run.lease.release()


async def hold_waiting(run: RunState) -> None:
    """Hold a run that waits for a person, to give it up. Raises `RunBusy`, or `UsageError` where its record has moved on."""
    journal: Store = run.journal.journal
    lease = await journal.hold(run.run_id)
    try:
        there = await journal.reading(journal.head, run.run_id)
        if there.records != run.journal.head.records:
            raise UsageError(MOVED_ON.format(run.run_id))
    except BaseException:
        lease.release()
        raise
    run.lease = lease


# --- going on ------------------------------------------------------------------------------------


class Recorded(msgspec.Struct):
    """A run as it is on record: where its chain ends, and its past. `result` is set where there is nothing to go on with."""

    journal: Store
    head: Head
    past: Past
    run_id: str
    result: RunResult | None = None

    @property
    def finished(self) -> bool:
        """Whether there is nothing to go on with. A run that ended in an error goes on with what failed."""
        return self.past.end is not None and self.past.end.get("error") is None

    @property
    def waits(self) -> bool:
        """Whether it waits for a person, and nobody has answered anything yet."""
        return self.past.suspended is not None and len(self.past.pending) == len(self.past.suspended["pending"])

    def before(self) -> list[Message]:
        """The history it began with."""
        return history_before(self.journal, self.past.start, checked=True)

    def left(self) -> tuple[list[Message], tuple[Message, ...]]:
        """The history that the conversation goes on from, and the messages whose place a summary has taken."""
        whole = [*self.before(), *self.past.messages]
        shortened = (self.past.end or self.past.suspended or {}).get("shortened")
        return (whole, ()) if shortened is None else read_shortened(shortened, whole)

    @property
    def prompts(self) -> list[Message]:
        """What it was begun with, before hooks at 1."""
        return [message_of(m) for m in self.past.start["prompts"]]

    @property
    def limits(self) -> Limits:
        return read(self.past.start["limits"], Limits)  # type: ignore[no-any-return]


def load(journal: Store, run_id: str, go_on: bool = True) -> Recorded:
    """A run from its records, as it would `go_on` or as it went.

    Raises `UnknownRun`, and `JournalUnreadable` if they are not as they were written.

    What a loss of power has left behind its end is dropped, and that is recorded and logged.
    """
    head, records = journal.head(run_id), journal.records(run_id)
    behind = len(records) > head.records and journal.head(run_id).records == head.records  # else somebody adds to it just now
    if behind and (dropped := journal.drop_torn(head)) is not None:
        logger.warning("run %s: %s", run_id, dropped)
        head, records = journal.head(run_id), journal.records(run_id)
    return Recorded(journal, head, read_past(trusted(journal, head, records), go_on), run_id)


async def loop_of(plan: Any, run_id: str) -> str:
    """The name of the loop in which a recorded run was made. Raises `UnknownRun`."""
    journal = journal_of(plan)
    await journal.ready()
    first = await journal.reading(journal.first, run_id)
    try:
        return str(first.data["loop"])
    except MALFORMED as error:
        raise unreadable(first, error) from None


async def take_up(
    plan: Any, run: RunState, run_id: str, answers: Mapping[str, HumanAnswer] | None, strict: bool, prompts: Sequence[Message],
    give_up: bool = False,
) -> Recorded:  # fmt: skip
    """Make `run` the recorded run, ready to go over its past and on. With nothing to go on with, `result` is set instead.

    So it is of one that waits for a person, unless its agent has a handler to ask, or it is to `give_up` waiting.
    `prompts`, if any, are told by somebody who still has them.
    """
    run.strict = strict
    journal = journal_of(plan)
    await journal.ready()
    lease = await journal.hold(run_id)
    try:
        recorded = await journal.reading(load, journal, run_id)
        if run.parent_call_id is None and (call_id := recorded.past.start.get("parent_call")) is not None:
            outer = run_id.removesuffix(f"/{call_id}")
            raise UsageError(f"run {run_id} was made inside a call: resume {outer}, which goes on with it")
        if (loop := recorded.past.start["loop"]) != run.loop:
            raise UsageError(f"run {run_id} was made in loop {loop!r}, and this is {run.loop!r}: resume it with agent.resume()")
        if give_up and not recorded.waits:
            raise UsageError(MOVED_ON.format(run_id))
        stays = plan.on_ask is None and not give_up
        if strict and not recorded.finished and not (stays and answers is None and recorded.waits):
            refuse_changes(recorded, run.plan.tools, run.hooks)  # before answers count for a run that does not go on
        await record_answers(recorded, answers)
        if recorded.finished or (stays and recorded.waits):
            left, removed = await journal.reading(recorded.left)
            recorded.result = await journal.reading(recorded_result, recorded, removed)
            for message in left:
                run.history.append(message)
            run.set_id(run_id)
            run.pending = recorded.result.pending
            if run.parent_call_id is not None and run.plan.hooks.rules is not None:  # its caller goes on, and goes on counting
                run.plan.hooks.rules.restore_counts(recorded.past.fired)
            lease.release()
        else:
            for message in await journal.reading(recorded.before):
                run.history.append(message)
            run.first_message = len(run.history)
            give(recorded.past, msgspec.json.decode(encode(kept_all(prompts))))
            await _begin_again(run, recorded)
            run.lease = lease
        return recorded
    except BaseException:
        lease.release()
        raise


def refuse_changes(recorded: Recorded, tools: Sequence[Any], hooks: HookSet) -> None:
    """`RunChanged` where tools or hooks are not those that a run began with."""
    if changed := differences(recorded.past.start, tools, each_hook(hooks)):
        raise RunChanged(f"run {recorded.run_id} cannot go on as it began: {'; '.join(changed)}")


async def _begin_again(run: RunState, recorded: Recorded) -> None:
    past = recorded.past
    changed, more = differences(past.start, run.plan.tools, each_hook(run.hooks)), {}
    if changed:
        more = {"hooks": prints_of(each_hook(run.hooks))}
        logger.warning("run %s goes on, but not as it began: %s", recorded.run_id, "; ".join(changed))
    run.set_id(recorded.run_id)
    run.use_limits(recorded.limits)
    run.poll_first = past.start["poll_first"]
    if run.plan.recovery is not None:
        failures, last = past.start.get("attempts", (0, None))
        run.attempts.failures, run.attempts.last = failures, None if last is None else tuple(last)
    run.queues.steering_mode, run.queues.follow_up_mode = past.start["queue_modes"]
    log = RunLog(recorded.journal, recorded.head, past)
    log.inside = await recorded.journal.reading(decisions_inside, recorded.journal, recorded.run_id, past)
    of_agents = await recorded.journal.reading(fired_inside, recorded.journal, recorded.run_id, past, run.plan.tools)
    if run.plan.hooks.rules is not None:
        run.plan.hooks.rules.taken_back(run.run_id)
    for rules, fired in of_agents:
        rules.restore_counts(fired)
    _intake(run, log, past.start["prompts"])
    log.add("resumed", {"pid": os.getpid(), "changed": changed, **more})
    await log.write()
    log.begin(run)


async def record_answers(recorded: Recorded, answers: Mapping[str, HumanAnswer] | None) -> None:
    """Record what people answered. With `None`, what has no answer stays open; else it is refused."""
    pending = recorded.past.pending
    if answers is not None and not isinstance(answers, Mapping):
        raise UsageError(f"answers= takes a mapping from call ids to people's answers, not a {type(answers).__name__}")
    for call_id, answer in (answers or {}).items():
        if call_id not in pending:
            waiting = f"waiting are {', '.join(pending)}" if pending else "none is waiting"
            raise UnknownAnswer(f"no call {call_id!r} of run {recorded.run_id} is waiting; {waiting}")
        if not isinstance(answer, HumanAnswer):
            raise UsageError(f"an answer is Approve(), Deny(...) or Edit(...), not a {type(answer).__name__}")
    if answers is None or not pending:
        return
    for call_id, asked in pending.items():
        await record_answer(recorded.journal, recorded.run_id, call_id, asked["args_digest"], answers.get(call_id), "resume")
    again = await recorded.journal.reading(load, recorded.journal, recorded.run_id)
    recorded.past, recorded.head = again.past, again.head


async def record_answer(
    journal: Store, run_id: str, call_id: str, digest: str, answer: HumanAnswer | None, by: str
) -> None:
    """Record one answer: in the run that asked, and in those around it, so that none of them waits for it any more."""
    given, who = (Deny(NOBODY), "nobody") if answer is None else (answer, by)
    for log, inner in await logs_of(journal, await journal.reading(places_of, journal, run_id, call_id)):
        await log.answered(inner, digest, given, who)


async def logs_of(journal: Store, places: Sequence[tuple[str, str]]) -> list[tuple[RunLog, str]]:
    """Where to record what is said of a call in all runs that know it, the innermost first. Raises `JournalUnreadable`.

    Nothing is added to a run whose records were changed: its end would be signed anew.
    """
    return [(RunLog(journal, (await journal.reading(load, journal, owner)).head), named) for owner, named in reversed(places)]


def places_of(journal: Store, run_id: str, call_id: str) -> list[tuple[str, str]]:
    """The runs that know a call, and its id there, from `run_id` inwards. A sub-agent's call is named "outer/inner"."""
    place = call_id.find("/")
    while place >= 0:
        child = f"{run_id}/{call_id[:place]}"
        if journal.has(child):
            return [(run_id, call_id), *places_of(journal, child, call_id[place + 1 :])]
        place = call_id.find("/", place + 1)
    return [(run_id, call_id)]


# --- what a recorded run came to -----------------------------------------------------------------


def recorded_result(recorded: Recorded, removed: tuple[Message, ...]) -> RunResult:
    """The result of a run that is over, or waits, from its record. `removed`: what a summary has taken the place of."""
    past = recorded.past
    end = past.end or past.suspended or {}
    decisions = tuple(decisions_in(recorded.journal, recorded.run_id, past))
    pending = () if past.suspended is None else tuple([read(p, PendingApproval) for p in past.suspended["pending"]])
    turns = end.get("turns", end.get("turn", 0))
    error = None if end.get("error") is None else read_error(end["error"])
    return RunResult(
        text=text_of_run(past.messages), messages=tuple(past.messages), usage=read(end.get("usage", {}), Usage),
        stop_reason=end.get("stop_reason", "suspended"), decisions=decisions, error=error, pending=pending,
        run_id=recorded.run_id, turns=turns, cost=end.get("cost", 0.0), reason=end.get("reason"),
        removed=removed,
    )  # fmt: skip


def journal_of(plan: Any) -> Store:
    """The journal an agent keeps. `ConfigError` if it keeps none."""
    if plan.journal is None:
        raise ConfigError('this agent keeps no journal: make it with Agent(journal="runs.db") to resume its runs')
    return plan.journal  # type: ignore[no-any-return]
