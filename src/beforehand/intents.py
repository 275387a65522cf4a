"""Calls of a run that keeps a journal: the intent is durable before the body runs, and what came of it is recorded.

A run that goes on after its process has ended finds here what has happened already. A call that had begun and has no
outcome may have taken effect: it runs again only if its tool says that this is safe.
"""

from __future__ import annotations

from typing import Any

from .calls import Call
from .contexts import digest_of
from .decisions import Interrupt
from .errors import JournalError
from .hooks.dispatch import repeat_effects
from .messages import ToolCall
from .state import RunState
from .tools import ToolResult

UNCERTAIN = (
    "The process ended while {name} was running. Whether it took effect is not known, and it was not run again. "
    "Find out before you repeat it."
)
CHANGED = (
    "Not run: this call of {name} is not the one that is on record in its place, which was {then}. Code or hooks have changed "
    "since, or the tool that makes this call does not make the same calls when it is repeated."
)


async def begin_once(run: RunState, call: Call) -> bool:
    """Before a tool's body: True if it may run now. False: it has run before, or may have, and the call is settled.

    The intent to run it is durable when this returns. Where that fails the body must not run, and the run ends.
    """
    journal, tool = run.journal, call.tool
    assert tool is not None
    past = journal.past_call(call.id)
    if past is not None and (changed := _not_as_recorded(call, past)):
        call.settle("uncertain", changed)
        return False
    if (outcome := journal.past_outcome(run, call.id)) is not None:
        call.outcome, call.result = outcome
        if journal.rehearsal:  # other hooks are to see what it gave
            run.tools_run += past.intent is not None
            call.edits = 0
        else:
            call.recalled = True
            _recall(run, call.id, past)
        return False
    await journal.go_live(run)
    policy, by = replay_policy(run, call)
    intent = journal.past_intent(call.id)
    if intent is not None:
        if (said := journal.settlement(call.id)) is not None:
            run.tools_run += 1
            call.outcome, call.result = "failed" if said.is_error else "ran", said
            return False
        if policy != "safe":
            run.tools_run += 1
            run.note("Uncertain", f"{call.name} was running when the process ended; it is not run again", call.id)
            call.settle("uncertain", UNCERTAIN.format(name=call.name))
            return False
        run.note("Repeated", f"{call.name} was running when the process ended; it may be run again ({by} says so)", call.id)
    try:
        await journal.intent(run, call, policy, by)
    except JournalError as error:
        call.settle("aborted", f"Not run: {error}")
        call.failure = error
        return False
    return True


def _not_as_recorded(call: Call, past: Any) -> str | None:
    """Why a recorded call is not this one, if it is not. Then nothing of it can be used, and nothing may run in its place."""
    recorded = past.intent or past.outcome
    if recorded is None:
        return None
    if recorded["name"] != call.name:
        return CHANGED.format(name=call.name, then=recorded["name"])
    if past.intent is not None and call.args is not None and digest_of(call.args) != past.intent["digest"]:
        return CHANGED.format(name=call.name, then="the same tool with other arguments")
    return None


def _recall(run: RunState, call_id: str, past: Any) -> None:
    """What a call that is over had counted, decided and asked for, and so did the calls made inside it."""
    run.tools_run += past.intent is not None and past.outcome["outcome"] != "invalid"
    run.hook_queue += run.journal.past_queue(past)
    for note in past.notes:
        run.note(note["verdict"], note["reason"], call_id, **{name: note[name] for name in ("hook", "where", "seam")})
    for inner_id in past.inner:
        inner = run.journal.past_call(inner_id)
        if inner.outcome is None:
            continue
        for seam in ("prepare_tool_call", "before_tool_call"):
            _what_hooks_wanted(run, inner_id, seam)
        outcome, result = run.journal.past_outcome(run, inner_id)
        if inner.intent is not None:
            part = ToolCall(inner_id, inner.outcome["name"])
            run.calls[inner_id] = Call(part, inner_id, part.name, call_id, outcome=outcome, result=result)
        _recall(run, inner_id, inner)
        if result.usage is not None:
            run.add_usage(result.usage, "")
    run.decisions += [d for d in run.journal.inside.get(call_id, ()) if d not in run.decisions]
    _what_hooks_wanted(run, call_id, "after_tool_call")


def _what_hooks_wanted(run: RunState, call_id: str, seam: str) -> None:
    """What hooks decided about a call that is over, and asked for beside it."""
    past = run.journal.past_ruling(run, seam, call_id)
    if past is None:
        return
    repeat_effects(run, past)
    for verdict, _, _ in past.heard:
        if isinstance(verdict, Interrupt):
            run.interrupted_by(verdict)


def replay_policy(run: RunState, call: Call) -> tuple[str, str]:
    """Whether a call may be made again after its outcome was lost, and who says so: the tool, or the agent's owner."""
    assert call.tool is not None
    if call.name in run.plan.never_again:
        return "never", "owner"
    return ("safe" if call.tool.replay == "safe" else "never"), "tool"


def finish_once(run: RunState, call: Call, raw: ToolResult) -> None:
    """What became of a call is settled: record it. `raw` is what the body gave, before the hooks at 13."""
    if call.outcome == "pending" or call.recalled:
        return
    run.journal.outcome(run, call, raw)
