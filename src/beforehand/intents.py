"""Calls of a run that keeps a journal: the intent is durable before the body runs, and what came of it is recorded.

A run that goes on after its process has ended finds here what has happened already. A call that had begun and has no
outcome may have taken effect: it runs again only if its tool says that this is safe.
"""

from __future__ import annotations

from .calls import Call
from .decisions import Interrupt
from .errors import JournalError
from .hooks.dispatch import repeat_effects
from .state import RunState
from .tools import ToolResult

UNCERTAIN = (
    "The process ended while {name} was running. Whether it took effect is not known, and it was not run again. "
    "Find out before you repeat it."
)



async def begin_once(run: RunState, call: Call) -> bool:
    """Before a tool's body: True if it may run now. False: it has run before, or may have, and the call is settled.

    The intent to run it is durable when this returns. Where that fails the body must not run, and the run ends.
    """
    journal, tool = run.journal, call.tool
    assert tool is not None
    if (outcome := journal.past_outcome(run, call.id)) is not None:
        call.outcome, call.result = outcome
        run.tools_run += outcome[0] in ("ran", "failed", "timed_out")
        if journal.rehearsal:  # other hooks are to see what it gave
            call.edits = 0
        else:
            call.recalled = True
            _what_hooks_wanted(run, call)
        return False
    await journal.go_live(run)
    policy, by = replay_policy(run, call)
    intent = journal.past_intent(call.id)
    if intent is not None:
        run.tools_run += 1
        if (said := journal.settlement(call.id)) is not None:
            call.outcome, call.result = "failed" if said.is_error else "ran", said
            return False
        if policy != "safe":
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


def _what_hooks_wanted(run: RunState, call: Call) -> None:
    """What hooks at 13 asked for beside the result, when they saw it."""
    past = run.journal.past_ruling(run, "after_tool_call", call.id)
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
