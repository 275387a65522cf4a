"""Calls of a run that keeps a journal: the intent is durable before the body runs, and what came of it is recorded.

A run that goes on after its process has ended finds here what has happened already. A call that had begun and has no
outcome may have taken effect: it runs again only if its tool says that this is safe.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from .calls import Batch, Call
from .contexts import digest_of
from .decisions import Interrupt
from .errors import JournalError
from .frozen import freeze
from .hooks.dispatch import Gone, Ruling, repeat_effects
from .messages import ToolCall
from .seams import BY_NAME, PendingCall, RunInfo
from .state import RunState
from .tools import InvalidArguments, Tool, ToolResult, tool

UNCERTAIN = (
    "The process ended while {name} was running. Whether it took effect is not known, and it was not run again. "
    "Find out before you repeat it."
)
CHANGED = (
    "Not run: this call of {name} is not the one that is on record in its place, which was {then}. Code or hooks have changed "
    "since, or the tool or the lambda that makes this call does not make the same calls when it is repeated."
)
OTHERWISE = "the same tool with other arguments"
UNKNOWN = " Whether the one on record took effect is not known."


# --- before a call is looked up ------------------------------------------------------------------


async def cut_short(run: RunState, call: Call, batch: Batch) -> bool:
    """Whether this call had begun in a process that has ended, and cannot run again. It is settled then.

    This comes before look-up, validation and gates: they say whether a call may begin, and this one has. "There is no such
    tool" or "the arguments are wrong" would make a model try another way, and do a second time what may be done already.
    If another call is on record in its place, nothing of that is used.
    """
    journal = run.journal
    past = journal.past_call(call.id)
    if past is None or journal.rehearsal:
        return False
    call.tool = call.tool or run.enabled.get(call.name)
    if await _stands_for_another(run, call, past):
        return call.outcome is not None
    if past.intent is None or past.outcome is not None:
        return False
    if call.tool is not None and past.settled is None and await _may_go_on(run, call):
        return False
    call.compared = True
    _as_it_began(run, call, batch, past)
    await journal.go_live(run)
    _lost(run, call, past)
    return True


async def hold_to_record(run: RunState, call: Call) -> None:
    """A call was settled on the way to its body. If it had begun before, what the record says of it counts instead."""
    call.compared = True
    past = run.journal.past_call(call.id)
    if past is None:
        return
    # What the hook gave that answered may not be on record, nor what the tool said of arguments that it does not take.
    as_then = past.outcome is not None and past.outcome["outcome"] == call.outcome
    known = (call.outcome == "answered" and past.outcome is not None) or (run.journal.rehearsal and as_then)
    if not known and (past.intent is None or run.journal.rehearsal):
        return
    if not known:
        _repeat_rulings(run, call.id, past)
    if not _is_over(run, call, past):
        await run.journal.go_live(run)
        _lost(run, call, past)


def _as_it_began(run: RunState, call: Call, batch: Batch, past: Any) -> None:
    """Make `call` what it was when it began, so that the hooks at 13 see what it did."""
    original = past.unshaped()
    _repeat_rulings(run, call.id, past)
    call.tool = call.tool or _gone(call.name)
    call.args = freeze(past.intent["args"])
    call.original_args = call.args if original is None else freeze(original)
    call.edits = sum(answer["answer"]["is"] == "Edit" for answer in past.answers)
    info = run.info if call.parent_id is None else RunInfo(run, call.parent_id)
    call.context = PendingCall(
        info, call.name, call.tool, call.args, call.part.arguments, call.id, batch.message, batch.context, batch.names,
        original_args=call.original_args,
    )  # fmt: skip
    run.calls[call.id] = call


def _gone(name: str) -> Tool:
    """Stands for a tool that had this name, and is not there any more."""

    @tool(name=name, description="", parameters={"type": "object"})
    async def gone(**_: Any) -> str:
        raise NotImplementedError(name)

    return gone


def _repeat_rulings(run: RunState, call_id: str, past: Any) -> None:
    """What hooks had decided before a call began: once, and again after each edit by a person."""
    seams = ("prepare_tool_call", "before_tool_call")
    run.journal.has_begun(call_id)
    while any([past.rulings.get(seam) for seam in seams]):
        for seam in seams:
            if past.rulings.get(seam):
                _what_hooks_wanted(run, call_id, seam)


def _lost(run: RunState, call: Call, past: Any) -> None:
    """Settle a call whose outcome was lost: as a person has said, else as uncertain. What came of those made inside it holds."""
    run.tools_run += 1
    repeat_effects(run, run.journal.past_progress(run, past, call.id))
    _recall_inside(run, call.id, past)
    if (said := run.journal.settlement(call.id)) is not None:
        call.outcome, call.result = "failed" if said.is_error else "ran", said
        return
    why = ""
    if call.tool is not None and past.intent["replay"] == "never" and _policy_now(run, call)[0] == "safe":
        why = ": it began as one that may not be run twice"
    run.note("Uncertain", f"{call.name} was running when the process ended; it is not run again{why}", call.id)
    call.settle("uncertain", UNCERTAIN.format(name=call.name))


async def _may_go_on(run: RunState, call: Call) -> bool:
    """Whether its body may run again, or waits for a person in a sub-agent: nothing was under way there, and it goes on."""
    assert call.tool is not None
    if replay_policy(run, call)[0] == "safe":
        return True
    if not hasattr(call.tool.unguarded, "inherits"):  # as every sub-agent's tool has; another begins anew
        return False
    store, child = run.plan.journal, f"{run.run_id}/{call.id}"
    if not await store.reading(store.has, child):
        return False
    records = await store.reading(store.records, child)
    return [r.kind for r in records if r.kind in ("suspended", "resumed", "end")][-1:] == ["suspended"]


# --- before its body -----------------------------------------------------------------------------


async def begin_once(run: RunState, call: Call) -> bool:
    """Before a tool's body: True if it may run now. False: it has run before, or may have, and the call is settled.

    The intent to run it is durable when this returns. Where that fails the body must not run, and the run ends.
    """
    journal = run.journal
    call.compared = True
    past = journal.past_call(call.id)
    if past is not None and _is_over(run, call, past):
        return False
    if journal.rehearsal:  # it has no end on record, and those beside it and inside it may have one
        call.outcome = "pending"
        return False
    await journal.go_live(run)
    policy, by = replay_policy(run, call)
    if past is not None and past.intent is not None:
        if call.args is not None and digest_of(call.args) != past.intent["digest"]:  # what the tool takes has changed
            _lost(run, call, past)
            return False
        if policy == "safe":
            run.note("Repeated", f"{call.name} was running when the process ended; it may be run again ({by} says so)", call.id)
            journal.waiting.repeats(call.id)
    try:
        await journal.intent(run, call, policy, by)
    except JournalError as error:
        call.settle("aborted", f"Not run: {error}")
        call.failure = error
        return False
    if run.aborted:  # meanwhile
        call.settle("aborted", "Operation aborted")
    return call.outcome is None


def _is_over(run: RunState, call: Call, past: Any) -> bool:
    """Give a call the outcome that it has on record, if it has one."""
    raw = past.outcome is not None and "raw" in past.outcome
    outcome = run.journal.past_outcome(run, call.id)
    if outcome is None:
        return False
    call.outcome, call.result = outcome
    if run.journal.rehearsal:  # other hooks are to see what it gave
        run.tools_run += past.intent is not None
        repeat_effects(run, run.journal.past_progress(run, past, call.id))
        if not raw:  # what the core adds after hooks at 13 is in the result on record already
            run.journal.finished(call, run.limits.max_result_chars)
    else:
        call.recalled = True
        _recall(run, call.id, past)
    return True


async def _stands_for_another(run: RunState, call: Call, past: Any) -> bool:
    """Whether another call is on record in this one's place. If that had begun, nothing runs in its place: this one is settled.

    Code makes the calls inside a tool or a lambda, and need not make the same ones when it is repeated. What a reply asks for
    is on record with the reply, but what its tool makes of the arguments may have changed before it began.
    """
    begun = _began(past)
    if call.parent_id is None and begun:
        return False
    then = None if past.name in (None, call.name) else past.name
    if then is None and _same_arguments(call, past):
        return False
    then = then or OTHERWISE
    if begun:
        call.compared = True
        call.settle("uncertain", _not_run(call, past, then))
        return True
    await run.journal.go_live(run)
    past.forget_decisions()
    run.note("Changed", f"hooks are asked anew about this call of {call.name}: what they were asked about was {then}", call.id)
    return True


def is_on_record(run: RunState, call: Call) -> bool:
    """Whether it is this very call that had begun under its id in a process that has ended."""
    past = run.journal.past_call(call.id)
    return past is not None and _began(past) and past.name == call.name and _same_arguments(call, past)


def stands_in_the_way(run: RunState, call: Call, before: Iterable[str]) -> str | None:
    """Why a new call of a lambda cannot begin, while those `before` are on record and have not been made again.

    It may be one of them, made in another way: then it has happened already. Only what may be repeated anyway can begin.
    """
    repeatable = replay_policy(run, call)[0] == "safe"
    for call_id in before:
        past = run.journal.past_call(call_id)
        if past.intent is not None and past.intent["replay"] == "never" and not (repeatable and past.name != call.name):
            return _not_run(call, past, past.name if past.name != call.name else OTHERWISE)
    return None


def has_begun(run: RunState, call_id: str) -> bool:
    """Whether there is a call under this id that had begun in a process that has ended."""
    past = None if run.journal is None else run.journal.past_call(call_id)
    return past is not None and _began(past)


def _not_run(call: Call, past: Any, then: str) -> str:
    return CHANGED.format(name=call.name, then=then) + (UNKNOWN if past.outcome is None else "")


def _began(past: Any) -> bool:
    return past.intent is not None or past.outcome is not None


def _same_arguments(call: Call, past: Any) -> bool:
    """Whether the arguments are those on record, as they were before hooks shaped them. Of a call that ran: or as they ran."""
    known, made = past.unshaped(), [call.part.args]
    if known is None:
        return True  # nothing says so
    if call.tool is not None:
        with contextlib.suppress(InvalidArguments):
            made.append(call.tool.validate(call.part.arguments))
    if not _began(past):
        return len(made) == 1 or digest_of(known) == digest_of(made[-1])  # what is not valid does not come to its hooks
    recorded = {digest_of(known), past.intent["digest"]} if past.intent is not None else {digest_of(known)}
    return not recorded.isdisjoint([digest_of(args) for args in made])


def _recall(run: RunState, call_id: str, past: Any) -> None:
    """What a call that is over had counted, decided and asked for, and so did the calls made inside it."""
    run.tools_run += past.intent is not None and past.outcome["outcome"] != "invalid"
    run.hook_queue += run.journal.past_queue(past)
    repeat_effects(run, run.journal.past_progress(run, past, call_id))
    for note in past.notes:
        run.note(note["verdict"], note["reason"], call_id, True, **{name: note[name] for name in ("hook", "where", "seam")})
    _recall_inside(run, call_id, past)
    run.decisions += [d for d in run.journal.inside.get(call_id, ()) if d not in run.decisions]
    _what_hooks_wanted(run, call_id, "after_tool_call")


def _recall_inside(run: RunState, call_id: str, past: Any) -> None:
    """The same of the calls that were made inside a call."""
    for inner_id in past.inner:
        inner = run.journal.past_call(inner_id)
        if inner.outcome is None:
            continue
        _repeat_rulings(run, inner_id, inner)
        outcome, result = run.journal.past_outcome(run, inner_id)
        if inner.intent is not None:
            part = ToolCall(inner_id, inner.outcome["name"])
            run.calls[inner_id] = Call(part, inner_id, part.name, call_id, outcome=outcome, result=result)
        _recall(run, inner_id, inner)
        if result.usage is not None:
            run.add_usage(result.usage, "")


def _what_hooks_wanted(run: RunState, call_id: str, seam: str) -> None:
    """What hooks decided about a call that is over, and asked for beside it."""
    past = run.journal.past_ruling(run, seam, call_id)
    if past is None:
        return
    repeat_effects(run, past)
    heard = [(verdict, Gone(*by)) for verdict, *by in past.heard]
    ruling = Ruling(None, {}).beside(BY_NAME[seam], heard, {})  # type: ignore[arg-type]
    if isinstance(ruling.verdict, Interrupt):  # one beside a block interrupts nothing
        run.interrupted_by(ruling.verdict)


def replay_policy(run: RunState, call: Call) -> tuple[str, str]:
    """Whether a call may be made again after its outcome was lost, and who says so: the tool, or the agent's owner.

    A call that has begun keeps what was said of it then, if that was "never".
    """
    now = _policy_now(run, call)
    past = None if run.journal is None else run.journal.past_call(call.id)
    if now[0] == "safe" and past is not None and past.intent is not None and past.intent["replay"] == "never":
        return "never", past.intent["by"]
    return now


def _policy_now(run: RunState, call: Call) -> tuple[str, str]:
    assert call.tool is not None
    if call.name in run.plan.never_again:
        return "never", "owner"
    return ("safe" if call.tool.replay == "safe" else "never"), "tool"


def finish_once(run: RunState, call: Call, raw: ToolResult) -> None:
    """What became of a call is settled: record it. `raw` is what the body gave, before the hooks at 13."""
    if call.recalled:
        return
    run.journal.outcome(run, call, raw)
