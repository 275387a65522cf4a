"""What was decided in a run and in the runs of sub-agents that were made inside its calls, and how often rules fired there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..events import DecisionRecord
from .codec import read_decision
from .past import INSIDE, Past
from .pastrecords import read_past


def decisions_in(journal: Any, run_id: str, past: Past) -> list[DecisionRecord]:
    """Every decision of a run in order, those of the runs inside its calls included."""
    children = journal.children(run_id)
    around = {"run_id": run_id, "loop": past.start["loop"]}
    found: list[DecisionRecord] = []
    # Calls that wait, or were cut short, come last: nothing on record says that they are over.
    waiting = [call_id for call_id, call in past.calls.items() if call.outcome is None] if children else []
    for seam, call_id, written in [*past.decisions, *[(INSIDE, call_id, {}) for call_id in waiting]]:
        if seam != INSIDE:
            found.append(read_decision(written, **around, seam=seam, call_id=call_id))
        elif (child := f"{run_id}/{call_id}") in children:
            found += [d for d in decisions_in(journal, child, read_past(journal.records(child))) if d not in found]
    return found


def decisions_inside(journal: Any, run_id: str, past: Past) -> dict[str, list[DecisionRecord]]:
    """What was decided in the runs of sub-agents, by the call in which they were made: of calls that are over."""
    children = journal.children(run_id)
    over = [call_id for call_id, call in past.calls.items() if call.outcome is not None] if children else []
    return {
        call_id: decisions_in(journal, child, read_past(journal.records(child)))
        for call_id in over if (child := f"{run_id}/{call_id}") in children
    }  # fmt: skip


def fired_inside(journal: Any, run_id: str, past: Past, tools: Sequence[Any]) -> list[tuple[Any, Mapping[str, int]]]:
    """The rules of sub-agents with how often they had fired in calls that are over. `tools` are those of the run's agent."""
    agents = _agents_with_rules(tools)
    children = journal.children(run_id) if agents else {}
    found: list[tuple[Any, Mapping[str, int]]] = []
    for call_id, call in past.calls.items():
        plan, child = agents.get(call.name or ""), f"{run_id}/{call_id}"
        if plan is None or call.outcome is None or child not in children:
            continue
        then = read_past(journal.records(child))
        if plan.hooks.rules is not None:
            found.append((plan.hooks.rules, then.fired))
        found += fired_inside(journal, child, then, plan.tools)
    return found


def _agents_with_rules(tools: Sequence[Any]) -> dict[str, Any]:
    """The plans of the agents among these tools that have rules, or such agents among their own tools."""
    plans = {tool.name: plan for tool in tools if (plan := getattr(tool.unguarded, "_plan", None)) is not None}
    return {name: plan for name, plan in plans.items() if plan.hooks.rules is not None or _agents_with_rules(plan.tools)}
