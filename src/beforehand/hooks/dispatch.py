"""The one dispatcher: asks the hooks of a seam, in order, and says what they decided.

It never learns whether a hook is a Python function, a rule or a lambda. What it guarantees at every seam: hooks are
asked in order; replacements chain, field by field; of refusals the strongest counts and none can be lifted; anything
else than a declared decision, an exception or a late answer counts as a failure and is treated as the hook's
`on_error` says; and every decision and failure leaves a record.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from types import CoroutineType
from typing import Any, NamedTuple

import msgspec

from ..decisions import Block, Effect, Hold, Interrupt, Queue, Replace, Resend, Verdict
from ..detach import contained, forget, in_thread, result_of
from ..errors import Aborted, HookFailed, describe
from ..events import DecisionMade, DecisionRecord
from ..keys import hidden, of_environment
from ..queues import from_hook
from ..seams import SeamSpec, Seen, digest_of
from ..state import RunState
from .check import EndsRun, Late, Refused, split
from .hook import UNSEEN, Hook

logger = logging.getLogger("beforehand")

Adopt = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns the fields of a `Replace` into those to use, or raises `ValueError` saying why they cannot be used."""


Times = list[tuple[Hook, int]]
"""The hooks that were asked, and the microseconds that each took."""


class Ruling(NamedTuple):
    """What the hooks of a seam decided: the context with every replacement made, the fields replaced, the refusal.

    `heard` are all refusals, in the order they were given.
    """

    context: Any
    changes: dict[str, Any]
    verdict: Verdict | None = None
    by: Hook | None = None
    heard: tuple[tuple[Verdict, Hook], ...] = ()

    def without(self, spec: SeamSpec, kind: type[Verdict]) -> Ruling:
        """What is left once this kind of refusal has been dealt with."""
        return _weighed(spec, self.context, self.changes, [(v, h) for v, h in self.heard if type(v) is not kind])

    def beside(self, spec: SeamSpec, heard: Sequence[tuple[Verdict, Hook]], changes: dict[str, Any]) -> Ruling:
        """What it comes to if other hooks, asked after these, have decided this."""
        return _weighed(spec, self.context, {**self.changes, **changes}, [*self.heard, *heard])


def dispatch(
    run: RunState, spec: SeamSpec, hooks: Sequence[Hook], context: Any, adopt: Adopt | None = None
) -> Coroutine[Any, Any, Ruling]:
    """Ask `hooks` about `context`. Raises `HookFailed` where a failure must end the run, `Aborted` on an abort."""
    if run.journal is None and run.shadow is None:
        return ask(run, spec, hooks, context, adopt)
    return _witnessed(run, spec, hooks, context, adopt)


async def ask(
    run: RunState, spec: SeamSpec, hooks: Sequence[Hook], context: Any, adopt: Adopt | None, times: Times | None = None
) -> Ruling:
    """Ask them one after the other. `times`, if given, takes those that were asked and how long each took."""
    changes: dict[str, Any] = {}
    heard: list[tuple[Verdict, Hook]] = []
    outer_scope, default_timeout, slow = run.scope, run.limits.hook_timeout, run.slow_hook if times is None else -1.0
    run.enter_guarded()
    began = perf_counter()
    for hook in hooks:
        verdict: Verdict | None = None
        try:
            timeout = hook.timeout or default_timeout
            returned = hook.fn(context) if timeout is None else call_in_time(hook, context, timeout)
            if returned is not None and (type(returned) is CoroutineType or hasattr(returned, "__await__")):
                returned = await (returned if timeout is not None or run.waits_for is None else run.waits_for(hook, returned))
                if run.own_cancels:
                    run.survived()
            if returned is not None:
                took = perf_counter() - began
                run.leave_guarded(outer_scope)
                verdict = await _settle(run, spec, hook, context, returned, changes, adopt, took)
                began = perf_counter() - took  # what listeners do with the record is not the hook's time
                run.enter_guarded()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            aborted = run.was_aborted_by(error)
            run.leave_guarded(outer_scope)
            if aborted:
                raise Aborted("aborted while a hook was being asked") from None
            verdict = await _failed(run, spec, hook, context, error, perf_counter() - began)
            run.enter_guarded()
        ended = perf_counter()
        if ended - began > slow:
            _took(run, hook, ended - began, times)
        began = ended
        if verdict is not None:
            if type(verdict) is Replace:
                context = _replaced(context, verdict, changes)
            else:
                heard.append((verdict, hook))
                if type(verdict) in spec.stops:
                    break
    run.leave_guarded(outer_scope)
    return _weighed(spec, context, changes, heard) if heard else Ruling(context, changes)


def _weighed(spec: SeamSpec, context: Any, changes: dict[str, Any], heard: list[tuple[Verdict, Hook]]) -> Ruling:
    """The strongest refusal counts, the first of equals. Of interrupts, wishes to resend combine by OR."""
    if not heard:
        return Ruling(context, changes)
    verdict, by = min(heard, key=lambda said: _rank(spec, said[0]))
    if type(verdict) is Interrupt and any(type(v) is Interrupt and v.resend for v, _ in heard):
        verdict = msgspec.structs.replace(verdict, resend=True)
    return Ruling(context, changes, verdict, by, tuple(heard))


def _rank(spec: SeamSpec, verdict: Verdict) -> int:
    """0 is strongest. A `Block` that stands for a failed hook counts at every seam."""
    return 0 if type(verdict) is Block else spec.ranks.index(type(verdict))


async def _settle(
    run: RunState, spec: SeamSpec, hook: Hook, context: Any, returned: Any, changes: dict[str, Any], adopt: Adopt | None,
    took: float,
) -> Verdict | None:  # fmt: skip
    """Check what a hook returned, make its effects happen, record it. Raises what makes it a failure."""
    verdict, effects = split(spec, returned)
    console = getattr(returned, "console", None)
    if not effects and (verdict is None or type(verdict) is Hold):
        return verdict  # "not yet" decides nothing: the text comes again
    if type(verdict) is Replace:
        if hook.final:
            raise Refused("returned Replace, but final=True hooks judge the final value and may not replace it")
        if adopt is not None:
            verdict = Replace(**adopt(verdict.fields()))
    for effect in effects:
        apply_effect(run, effect)
    if getattr(verdict, "resend", False) or (effects and any([type(effect) is Resend for effect in effects])):
        run.askers += ((hook.name, hook.where),)
    await record(run, spec, hook, context, verdict, effects, took, console)
    return verdict


def apply_effect(run: RunState, effect: Effect) -> None:
    if type(effect) is Queue:
        run.hook_queue.append(from_hook(effect.message))
    else:
        run.resend = True


def _replaced(context: Any, verdict: Replace, changes: dict[str, Any]) -> Any:
    given = verdict.fields()
    if "add_messages" in given:  # the one field that gathers: nobody's message is lost to a later hook
        given["add_messages"] = (*changes.get("add_messages", ()), *given["add_messages"])
    changes.update(given)
    known = {name: value for name, value in given.items() if name in context.__struct_fields__}
    return msgspec.structs.replace(context, **known) if known else context


_KEY_LIKE = re.compile(r"[A-Za-z0-9_\-+/=.]{16,}|\b(?:sk|pk|key|tok\w*)[-_][\w-]+")
"""What could be a key in the text of a hook that failed to provide one."""


# --- with a journal, or hooks in the shadow -------------------------------------------------------


class Gone(NamedTuple):
    """A hook that decided then and is not registered now."""

    name: str
    where: str


async def _witnessed(run: RunState, spec: SeamSpec, hooks: Sequence[Hook], context: Any, adopt: Adopt | None) -> Ruling:
    """The ruling of a run that keeps a journal or has hooks in the shadow."""
    if spec.name == "on_chunk":  # chunks are recorded with their reply, and compared when it is whole
        return await ask(run, spec, hooks, context, adopt)
    if getattr(context, "partial", False):
        try:
            return await ask(run, spec, hooks, context, adopt)
        finally:
            if run.journal is not None:
                run.journal.progressed(run, context.call_id)
    before = len(run.decisions)
    ruling, recalled, failed = Ruling(context, {}), False, None
    try:
        if run.journal is None:
            ruling = await ask(run, spec, hooks, context, adopt)
        else:
            ruling, recalled = await _ask_or_recall(run, spec, hooks, context, adopt)
    except HookFailed as error:
        recalled, failed = run.journal is not None and not run.journal.live, error
    if run.shadow is not None and recalled == run.shadow.again:
        call_id = context.call_id if spec.by_tool else None
        made = [d for d in run.decisions[before:] if d.seam == spec.name and (call_id is None or d.call_id == call_id)]
        await run.shadow.judge(run, spec, context, (ruling, made, failed), adopt)
    if failed is not None:
        raise failed
    return ruling


async def _ask_or_recall(
    run: RunState, spec: SeamSpec, hooks: Sequence[Hook], context: Any, adopt: Adopt | None
) -> tuple[Ruling, bool]:
    """What the hooks have decided about this before, if that is on record; else ask them, and record what they decide."""
    journal, call_id = run.journal, context.call_id if spec.by_tool else None
    beside = call_id is None and run.is_aside  # about what a hook does meanwhile, and so not on the run's own line
    past = None if beside else journal.past_ruling(run, spec.name, call_id)
    names = [hook.name for hook in hooks if hook.where != UNSEEN]
    if past is None:
        if not names and run.shadow is None:
            return Ruling(context, {}), False  # it only came past here for what hooks had decided that are gone
        if not beside:
            await journal.go_live(run)
    elif not past.again:
        return _recalled(run, spec, hooks, context, past), True
    elif past.failed is not None:
        repeat_effects(run, past)
        raise past.failed
    elif spec.value is None and journal.is_answered():
        repeat_effects(run, past)
        return Ruling(context, {}), True  # nobody needs a key for a request that is past
    times: Times = []
    try:
        ruling = await ask(run, spec, hooks, context, adopt, times)
    except BaseException as error:
        journal.ruled(run, spec.name, call_id, names, error, _microseconds(times), context)
        raise
    if past is None:
        journal.ruled(run, spec.name, call_id, names, ruling, _microseconds(times), context)
    else:
        journal.ruled_again(spec.name, call_id)
    return ruling, False


def _microseconds(times: Times) -> list[int]:
    return [took for hook, took in times if hook.where != UNSEEN]


def repeat_effects(run: RunState, past: Any) -> None:
    """What a recorded ruling had for effects, and the records of its decisions."""
    for effect in past.effects:
        apply_effect(run, effect)
    if past.decisions:
        run.decisions += past.decisions
        run.askers += tuple([(d.hook, d.where) for d in past.decisions if "Resend" in d.effects])
    if past.heard:
        run.askers += tuple([(name, where) for verdict, name, where in past.heard if getattr(verdict, "resend", False)])


def _recalled(run: RunState, spec: SeamSpec, hooks: Sequence[Hook], context: Any, past: Any) -> Ruling:
    repeat_effects(run, past)
    if not past.changes and not past.heard:
        return Ruling(context, {})
    heard = [
        (verdict, next((h for h in hooks if (h.name, h.where) == (name, where)), Gone(name, where)))
        for verdict, name, where in past.heard
    ]
    known = {name: value for name, value in past.changes.items() if name in context.__struct_fields__}
    context = msgspec.structs.replace(context, **known) if known else context
    return _weighed(spec, context, past.changes, heard)  # type: ignore[arg-type]


# --- failure -------------------------------------------------------------------------------------


async def _failed(run: RunState, spec: SeamSpec, hook: Hook, context: Any, error: BaseException, took: float) -> Verdict | None:
    """What a failing hook amounts to: nothing (`on_error="open"`), a refusal, or the end of the run."""
    if isinstance(error, asyncio.CancelledError) and run.cancelled_from_outside():
        raise error
    if isinstance(error, EndsRun):
        raise error.failure
    why = explain(error) if spec.value is not None else _KEY_LIKE.sub("***", hidden(explain(error), of_environment()))
    console = getattr(error, "console", None)
    if hook.on_error == "open":
        logger.warning("hook %r at %s (%s) %s; it fails open, so the run goes on", hook.name, spec.name, hook.where, why)
        await record(run, spec, hook, context, Failure("failed_open", why), (), took, console)
        return None
    await record(run, spec, hook, context, Failure("failed", why), (), took, console)
    if run.aborted and spec.guards == "run" and spec.kind != "save":
        raise Aborted(why)  # a hook whose own work was cut by the abort, most likely
    if hook.on_error == "closed" and spec.guards != "run":
        return Block(f"hook {hook.name!r} failed, so this was not let pass: it {why}")
    shown = error if isinstance(error, Exception) and spec.value is not None else None
    failure = HookFailed(hook.name, spec.name, hook.where, why)
    failure.acted = getattr(error, "acted", False)
    if run.plan.recovery is not None and spec.value is not None:
        failure.judged = context
    raise failure from shown


async def fail(run: RunState, spec: SeamSpec, hook: Hook, context: Any, why: str) -> None:
    """Treat a hook as failed for what it did after it had answered. Raises, unless the hook fails open."""
    await _failed(run, spec, hook, context, Refused(why), 0.0)


def explain(error: BaseException) -> str:
    """What went wrong with a hook, as the end of a sentence that begins with its name."""
    if isinstance(error, Refused):
        return str(error)
    return f"raised {describe(error)}"


async def call_in_time(hook: Hook, context: Seen, timeout: float) -> Any:
    """Call a hook with a time limit: async ones in a task, sync ones in a thread. A late answer is discarded."""
    if hook.is_async:
        work: asyncio.Future[Any] = contained(hook.fn(context))
    else:
        work = in_thread(hook.fn, context)
    until = perf_counter() + timeout + getattr(hook.fn, "grace", 0.0)  # whoever keeps the time itself says what came of it
    run = context.run._run
    answer = await within(run, until - perf_counter(), work, timeout)
    if hasattr(answer, "__await__"):  # a sync callable that hands over something to wait for
        answer = await within(run, until - perf_counter(), contained(answer), timeout)
    return answer


async def within(run: RunState, seconds: float, work: asyncio.Future[Any], allowed: float) -> Any:
    """What `work` gives, if it does in so many seconds; else it is left behind, and that is the hook's failure (`Late`)."""
    try:
        await run.deliver_until(work, max(seconds, 0))
        if not work.done():
            raise Late(f"gave no answer within {allowed:g} s")
        return result_of(work)
    except BaseException:  # also one that comes from elsewhere, just as it ends
        work.cancel()
        forget(work)
        raise


_slow_hooks: set[tuple[str, str]] = set()


def _took(run: RunState, hook: Hook, seconds: float, times: Times | None) -> None:
    """A hook was slow, or the journal wants to know how long each one took, those that decided nothing too."""
    if times is not None:
        times.append((hook, round(seconds * 1e6)))
    if seconds > run.slow_hook:
        _warn_slow(hook, seconds)


def _warn_slow(hook: Hook, took: float) -> None:
    if (hook.name, hook.where) not in _slow_hooks:
        _slow_hooks.add((hook.name, hook.where))
        logger.warning(
            "hook %r at %s (%s) took %.0f ms; hooks run on every call, keep them quick",
            hook.name, hook.seam, hook.where, took * 1e3,
        )  # fmt: skip


# --- records -------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """What stands in a record in place of a decision, and why."""

    verdict: str
    why: str


async def record(
    run: RunState, spec: SeamSpec, hook: Hook, context: Any, verdict: Verdict | Failure | None, effects: tuple[Effect, ...],
    took: float, console: str | None = None,
) -> None:  # fmt: skip
    """Write down one decision or failure, and tell whoever listens."""
    reason: str | None
    if isinstance(verdict, Failure):
        name, reason = verdict
    else:
        name = type(verdict).__name__ if verdict is not None else "+".join([type(e).__name__ for e in effects])
        reason = getattr(verdict, "reason", None) or getattr(verdict, "feedback", None) or getattr(verdict, "prompt", None)
    info = context.run
    entry = DecisionRecord(
        hook=hook.name, where=hook.where, seam=spec.name, verdict=name, reason=reason, duration=took,
        digest=None if spec.value is None else digest_of(spec.value(context)), reversible=run.irreversible, run_id=run.run_id,
        loop=run.loop, turn=run.turn, call_id=getattr(context, "call_id", None), parent_call_id=info.parent_call_id,
        effects=tuple([type(e).__name__ for e in effects]), on_error=hook.on_error, console=console or None,
    )  # fmt: skip
    run.decisions.append(entry)
    if run.journal is not None:
        about = context.call_id if spec.by_tool else run.question
        run.journal.decided(spec.name, about, entry, effects, getattr(context, "partial", False))
    if run.events.takers["decision"]:
        await run.emit(DecisionMade(record=entry, **run.event_fields(info.parent_call_id)))
