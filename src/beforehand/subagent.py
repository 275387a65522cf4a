"""An agent as another agent's tool: its parent's gates hold inside, an abort reaches it, and its questions come up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .conversation import Conversation
from .decisions import Deny, PendingApproval
from .emitter import Emitter
from .innerloops import no_channel, supervise
from .results import RunResult
from .plan import AROUND, HookSource
from .prompts import as_messages
from .state import RunState
from .calls import Suspend
from .tools import Tool, ToolContext, ToolResult, tool


def delegate(agent: Any, name: str, description: str, *, inherit: bool, events: bool) -> Tool:
    """The tool that hands `prompt` to `agent` and returns what it says."""

    async def run(ctx: ToolContext, prompt: str) -> ToolResult:
        parent: RunState = ctx.run._run
        child = _Child(agent, parent, ctx.call_id, inherit, events)
        return await child.work(await child.begin(prompt))

    def inside() -> tuple[Any, Any]:
        from .durable import each_hook

        return agent.plan.tools, each_hook(agent.plan.hooks.current)

    run.__dict__["inherits"] = inherit  # `beforehand hooks` lists those that waive it
    run.__dict__["_inside"] = inside  # a run that goes on sees whether they have changed
    run.__dict__["_plan"] = agent.plan  # and lets its rules count on
    # With a journal the child's run is recorded too, and goes on from its record: to call it again repeats nothing.
    return tool(name=name, description=description, replay="safe")(run)


class _Child:
    """A sub-agent's conversation inside one call of its parent."""

    def __init__(self, agent: Any, parent: RunState, call_id: str, inherit: bool, events: bool) -> None:
        self.parent, self.call_id, self.inherit = parent, call_id, inherit
        plan = agent.plan
        hooks = plan.hooks
        self.shadow = parent.shadow if inherit else None
        if inherit:
            hooks = HookSource(plan.hooks.current.inheriting(parent.hooks), _counters(plan.hooks, parent.plan.hooks))
        on_ask = no_channel if parent.plan.on_ask is no_channel else plan.on_ask or parent.plan.on_ask
        self.calling = calling = parent.calls.get(call_id)
        if on_ask is None and calling is not None and calling.parent_id is not None:
            on_ask = _nobody  # a nested call cannot wait, so neither can what happens inside it
        plan = msgspec.structs.replace(plan, hooks=hooks, on_ask=on_ask, journal=parent.plan.journal)
        heard_by = [parent.emit] if events and parent.events.heard else ()
        listeners = Emitter(heard_by, parent=agent._listeners, observers=parent.events.observers)
        self.talk = _ChildConversation(plan, listeners, call_id, parent.run_id, self.shadow)
        self.counted_cost = 0.0

    async def begin(self, prompt: str) -> Any:
        """The child's run. If it has begun in a process that is gone, it goes on from its record."""
        journal, run_id = self.parent.plan.journal, f"{self.parent.run_id}/{self.call_id}"
        if journal is None:
            return self.talk.run(prompt, check=False, deps=self.parent.deps)
        if await journal.reading(journal.has, run_id):
            return self.talk.resume_recorded(run_id, check=False, deps=self.parent.deps, prompts=as_messages(prompt))
        return self.talk.run(prompt, check=False, run_id=run_id, deps=self.parent.deps)

    async def work(self, going: Any) -> ToolResult:
        """Let the child run on; the parent's abort aborts it. Raises `Suspend` when it waits for a person."""
        stop_watching = self.parent.signal.on_abort(self._abort)
        try:
            result: RunResult = await supervise(self.talk, going)
        finally:
            stop_watching()
        more, self.counted_cost = result.cost - self.counted_cost, result.cost
        self.parent.usage_cost += more
        if self.calling is not None:
            self.calling.spent += more
        self.parent.decisions.extend(d for d in result.decisions if d not in self.parent.decisions)
        if self.shadow is not None:
            self.shadow.differences += [d for d in result.shadow if d not in self.shadow.differences]
        if result.stop_reason == "suspended":
            # Children number their calls alike, so their ids carry the call they happen in.
            pending = [
                msgspec.structs.replace(p, call_id=f"{self.call_id}/{p.call_id}", parent_call_id=p.parent_call_id or self.call_id)
                for p in result.pending
            ]
            raise Suspend(pending, self.resume)
        return as_tool_result(result)

    def _abort(self) -> None:
        self.talk.abort("the calling agent was aborted")
        self.talk.stop_loops()

    async def resume(self, answers: Mapping[str, Any]) -> ToolResult:
        own = {call_id.removeprefix(f"{self.call_id}/"): answer for call_id, answer in answers.items() if answer is not None}
        return await self.work(self.talk.resume(own, check=False))


class _Counters:
    """How often the rules of a sub-agent have fired, and those it has from its caller, so that its own record says it at once."""

    def __init__(self, own: HookSource, around: HookSource) -> None:
        self._own, self._around = own, around

    def counts(self) -> dict[str, int]:
        own, around = self._own.rules, self._around.rules
        found: dict[str, int] = {} if own is None else own.counts()
        return found if around is None else {**found, **{AROUND + key: n for key, n in around.counts().items()}}

    def recorded(self, run_id: str, about: str | None = None) -> None:
        for rules in (self._own.rules, self._around.rules):
            if rules is not None:
                rules.recorded(run_id, about)

    def taken_back(self, run_id: str, guards: bool = False) -> None:
        for rules in (self._own.rules, self._around.rules):
            if rules is not None:
                rules.taken_back(run_id, guards)

    def restore_counts(self, counts: Mapping[str, int]) -> None:
        if self._own.rules is not None:
            self._own.rules.restore_counts({key: n for key, n in counts.items() if not key.startswith(AROUND)})
        if self._around.rules is not None:
            outer = {key.removeprefix(AROUND): n for key, n in counts.items() if key.startswith(AROUND)}
            self._around.rules.restore_counts(outer)


def _counters(own: HookSource, around: HookSource) -> _Counters | None:
    return None if own.rules is None and around.rules is None else _Counters(own, around)


def _nobody(pending: PendingApproval) -> Deny:
    return Deny(f"This call needs a person's approval ({pending.prompt}), and nobody can be asked from inside a nested call.")


class _ChildConversation(Conversation):
    """A conversation whose runs say inside which call they happen."""

    def __init__(self, plan: Any, listeners: Emitter, call_id: str, parent_run_id: str, shadow: Any) -> None:
        super().__init__(plan, (), listeners)
        self._call_id, self._parent_run_id, self._shadow = call_id, parent_run_id, shadow

    def _new_run(self, run_id: str | None, deps: Any, limits: Any) -> RunState:
        run = super()._new_run(run_id, deps, limits)
        run.parent_call_id, run.parent_run_id = self._call_id, self._parent_run_id
        if self._shadow is not None:
            run.shadow = self._shadow.inside(run.shadow, self.plan.hooks.current)
            run.hooks = run.shadow.visiting(run.hooks)
        return run


def as_tool_result(result: RunResult) -> ToolResult:
    """A sub-agent's result as its caller's model reads it: the text, or why there is none."""
    if result.stop_reason in ("completed", "ended"):
        return ToolResult(result.text, usage=result.usage)
    why = str(result.error) if result.error is not None else result.reason or result.stop_reason
    text = f"The sub-agent stopped ({result.stop_reason}): {why}"
    return ToolResult(f"{text}\n{result.text}" if result.text else text, is_error=True, usage=result.usage)
