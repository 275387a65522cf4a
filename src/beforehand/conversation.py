"""The stateful shell: the history and the queues of one talk with an agent, and the run under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal

from .batch import Suspension, abandon
from .channel import Channel
from .compaction import Compacted, compact
from .decisions import HumanAnswer
from .emitter import Emitter
from .errors import JournalError, NothingToContinue, Stop, UnknownAnswer, UsageError
from .eventstream import EventStream
from .limits import Limits
from .loop import run_loop
from .observing import begin, end
from .history import History
from .messages import AssistantMessage, CustomMessage, Message, SystemMessage, ToolMessage, is_sendable
from .plan import Loop, Plan
from .prompts import Prompt, as_messages
from .recovery import Attempts
from .results import RunResult, result_of
from .state import RunState

Around = Callable[[Coroutine[Any, Any, RunResult]], Coroutine[Any, Any, RunResult]]
"""Wraps a run under way."""

CANCELLED = "No result: the run was cancelled while this call was under way. Whether it ran is not known."


class Conversation(Channel):
    """One talk: `run` it, steer it while it runs, continue it. Made by `agent.conversation()`.

    Runs follow one another; a second one at the same time is a `ConversationBusy` error. The plan (tools, hooks, model)
    is captured when a run starts. `id` names the talk in traces; without one it is made when somebody asks for it.
    """

    _attempts: Attempts | None = None  # made when a recovery counts them
    _loops: Any = None  # made when somebody asks for one

    def __init__(
        self, plan: Plan, messages: Iterable[Message] = (), listeners: Emitter | None = None,
        steering_mode: str = "one-at-a-time", follow_up_mode: str = "one-at-a-time", id: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(messages, listeners, steering_mode, follow_up_mode, id)
        self.plan = plan
        self._recorded: tuple[str, int, int] | None = None
        """The last recorded run, where in the history it began and where it ended."""
        self._leaving: asyncio.Task[None] | None = None
        self.result: RunResult | None = None

    # --- running ---

    async def run(
        self, prompt: Prompt, *, check: bool = True, run_id: str | None = None, deps: Any = None, limits: Limits | None = None
    ) -> RunResult:
        """Say something and let the agent work until it stops. `check=False` returns errors as `result.error`."""
        return await self._start(as_messages(prompt), check, self._new_run(run_id, deps, limits))

    async def continue_run(self, *, check: bool = True, deps: Any = None, limits: Limits | None = None) -> RunResult:
        """Go on without a new prompt: answer what is open, or take what is queued. `NothingToContinue` if there is nothing."""
        await self._let_leave()
        prompts, poll = self._what_continues()
        run = self._new_run(None, deps, limits)
        run.poll_first = poll
        return await self._start(prompts, check, run)

    async def resume(self, answers: Mapping[str, HumanAnswer], *, check: bool = True) -> RunResult:
        """Go on with a suspended run. A waiting call without an answer is refused; an unknown call id is an error."""
        await self._let_leave()
        self._check_answers(answers)
        return await self._resume(answers, check)

    def stream(
        self,
        prompt: Prompt,
        *,
        run_id: str | None = None,
        deps: Any = None,
        limits: Limits | None = None,
        events: Iterable[str] = (),
        around: Around | None = None,
    ) -> EventStream:
        """`run` as an async iterator of events. Leaving the loop aborts the run; its error is raised at the end.

        `events` names opt-in events to be included. The result is in the conversation's `result` afterwards.
        `around` wraps the run.
        """
        run = self._new_run(run_id, deps, limits)

        def start() -> Coroutine[Any, Any, RunResult]:
            going = self._start(as_messages(prompt), True, run)
            return going if around is None else around(going)

        return self._stream(run, start, events)

    def stream_resume(self, answers: Mapping[str, HumanAnswer], *, events: Iterable[str] = ()) -> EventStream:
        """`resume` as an async iterator of events."""
        self._check_answers(answers)
        waiting = self._suspended
        assert waiting is not None
        if self.plan.journal is not None:
            return self.stream_recorded(waiting.run_id, answers, deps=waiting.deps, strict=waiting.strict, events=events)
        return self._stream(waiting, lambda: self._resume(answers, True), events)

    # --- recorded runs ---

    async def of_recorded(self, run_id: str) -> Conversation:
        """Where a recorded run belongs: this talk, or one of its inner loops. `ConfigError` for a loop that is not there."""
        from . import durable

        name = await durable.loop_of(self.plan, run_id)
        return self if name == "main" else self.loop(name)

    async def resume_recorded(
        self, run_id: str, answers: Mapping[str, HumanAnswer] | None = None, *, check: bool = True, deps: Any = None,
        strict: bool = False, prompts: Sequence[Message] = (),
    ) -> RunResult:  # fmt: skip
        """Go on with a run from its record, in a conversation that has said nothing yet: see `Agent.resume`.

        `prompts` are those that it was begun with, where somebody still has them: the record may not.
        """
        return await self.go_on(self._again(deps), run_id, answers, check=check, strict=strict, prompts=prompts)

    def stream_recorded(
        self, run_id: str, answers: Mapping[str, HumanAnswer] | None = None, *, deps: Any = None, strict: bool = False,
        events: Iterable[str] = (), around: Around | None = None,
    ) -> EventStream:  # fmt: skip
        """`resume_recorded` as an async iterator of events, from where the record ends. `around` wraps the run."""
        run = self._again(deps)

        def start() -> Coroutine[Any, Any, RunResult]:
            going = self.go_on(run, run_id, answers, strict=strict)
            return going if around is None else around(going)

        return self._stream(run, start, events)

    def _again(self, deps: Any) -> RunState:
        """A run that will go over its past, with an empty history: the record holds what came before it."""
        self._free()
        run = self._new_run(None, deps, None)
        run.start_from(History())
        run.goes_over = True
        return run

    async def go_on(
        self, run: RunState, run_id: str, answers: Mapping[str, HumanAnswer] | None, *, check: bool = True, strict: bool = False,
        prompts: Sequence[Message] = (), give_up: bool = False,
    ) -> RunResult:  # fmt: skip
        """Let `run` become the recorded run `run_id`, and go on with it. To `give_up` one that waits, come to where it does."""
        from . import durable

        with self._coming(run):
            recorded = await durable.take_up(self.plan, run, run_id, answers, strict, prompts, give_up)
        self._suspended, self._history = run if run.pending else None, run.history
        if recorded.result is not None:
            self._is_idle()
            self.result = recorded.result
            if check and self.result.error is not None:
                raise self.result.error
            return self.result
        return await self._execute(run, recorded.prompts, None, None, check=check)

    async def compact(self, *, keep: int = 8, deps: Any = None) -> Compacted:
        """Replace all but about the last `keep` messages by a summary. On any failure the history stays as it is."""
        if not isinstance(keep, int) or isinstance(keep, bool) or keep < 0:
            raise UsageError(f"compact(keep={keep!r}): expected a number of messages, at least 0")
        await self._let_leave()
        if self._suspended is not None:
            raise UsageError("this conversation waits for answers: resume() it, or run() a new prompt, before compacting")
        run = self._new_run(None, deps, None)
        self._begin(run, "compaction")
        try:
            done = await compact(run, keep)
        except (Stop, asyncio.CancelledError) as error:
            if not run.was_aborted_by(error):
                raise
            return Compacted(None, reason="aborted")
        finally:
            self._end(run)
        if done.messages is not None:
            self._history, self._recorded = History(done.messages), None  # no recorded run ends in this
        return done

    # --- inner loops ---

    def loop(self, which: str | Loop) -> Conversation:
        """This talk's inner loop of that name, always the same one; a `Loop` makes one. `ConfigError` if that cannot be."""
        loop: Conversation = self._group().open(which)
        return loop

    async def wait_for_loops(self) -> None:
        """Return once no loop that a message has woken is at work any more."""
        if self._loops is not None:
            await self._loops.settle()

    def stop_loops(self) -> None:
        """Cancel the runs of loops that messages have woken. What waits for them stays queued."""
        if self._loops is not None:
            self._loops.stop()

    def _going_on(self) -> list[RunState]:
        """The runs that go on in this talk and in its loops."""
        talks = [self] if self._loops is None else [self, *self._loops.opened()]
        return [talk._running for talk in talks if talk._running is not None]

    def _group(self) -> Any:
        if self._loops is None:
            assert self.plan.open_loops is not None
            self._loops = self.plan.open_loops(self)
        return self._loops

    # --- inside ---

    def _new_run(self, run_id: str | None, deps: Any, limits: Limits | None) -> RunState:
        run = RunState(self.plan, self._history, self._events, self._queues)
        if run_id is not None:
            run.set_id(run_id)
        if limits is not None:
            run.use_limits(limits)
        run.deps = deps
        if self.plan.shadow is not None:
            from .shadow import Shadow

            run.shadow = Shadow(self.plan.shadow.current)
            run.hooks = run.shadow.visiting(run.hooks)
        if self.plan.recovery is not None:
            run.attempts = self._attempts = self._attempts or Attempts()
        if self._loops is not None or self.plan.loops:
            run.place = self._group().place()
        return run

    def _what_continues(self) -> tuple[list[Message], bool]:
        """The prompts to go on with, and whether steering is polled beside them."""
        self._free()
        if self._suspended is not None:
            raise NothingToContinue("calls of this conversation wait for a person: use resume(answers)")
        if self._history.open_calls:
            return [], True  # the model is told that their outcome is not known
        last = next((m for m in reversed(self._history.view()) if is_sendable(m) or isinstance(m, CustomMessage)), None)
        if last is None or isinstance(last, SystemMessage):
            raise NothingToContinue("No messages to continue from: use run(prompt)")
        if not isinstance(last, AssistantMessage):
            return [], True
        batch = self._queues.next_steering() or self._queues.next_follow_up()
        if not batch:
            raise NothingToContinue(
                "the last message is the assistant's and nothing is queued: use run(prompt), steer() or follow_up()"
            )
        return batch, False

    def _check_answers(self, answers: Mapping[str, HumanAnswer]) -> None:
        self._free()
        if self._suspended is None:
            raise NothingToContinue("no run of this conversation is waiting for answers")
        if not isinstance(answers, Mapping):
            raise UsageError(
                f"resume() takes a mapping from call ids to Approve(), Deny(...) or Edit(...), not a {type(answers).__name__}"
            )
        waiting = [pending.call_id for pending in self._suspended.pending]
        for call_id, answer in answers.items():
            if call_id not in waiting:
                raise UnknownAnswer(f"no call {call_id!r} is waiting; waiting are {', '.join(waiting)}")
            if not isinstance(answer, HumanAnswer):
                raise UsageError(f"an answer is Approve(), Deny(...) or Edit(...), not a {type(answer).__name__}")

    async def _resume(self, answers: Mapping[str, HumanAnswer], check: bool) -> RunResult:
        run = self._suspended
        if run is None:
            raise NothingToContinue("the waiting run has been resumed already")
        if self.plan.journal is not None:
            return await self.go_on(self._again(run.deps), run.run_id, answers, check=check, strict=run.strict)
        self._suspended = None
        waiting: Suspension = run.suspension
        run.prepare_to_resume()
        return await self._execute(run, [], waiting, answers, check=check)

    async def _start(self, prompts: Sequence[Message], check: bool, run: RunState) -> RunResult:
        await self._let_leave()
        self._free()
        if self._suspended is not None:
            await self._give_up_waiting(run)
        if run.history is not self._history or run.first_message != len(self._history):
            run.start_from(self._history)
        return await self._execute(run, prompts, None, None, check=check)

    async def _give_up_waiting(self, run: RunState) -> None:
        """A new prompt while calls wait: nobody will approve them now, so each gets its refusal before `run` begins."""
        if self.plan.journal is not None and self._suspended is not None and self._suspended.journal is None:
            taken_up = self._suspended  # where its record ends: nobody has gone over that
            again = self._again(taken_up.deps)
            await self.go_on(again, taken_up.run_id, None, check=False, give_up=True)
            if again.aborted:
                run.abort(again.signal.reason)
        if self._suspended is not None:  # else a hook that is new has refused what waited
            with self._coming(run):
                await self._refuse_waiting(self._suspended)

    async def _refuse_waiting(self, old: RunState) -> None:
        if old.journal is not None:
            from . import durable

            await durable.hold_waiting(old)
        self._suspended = None
        waiting = old.suspension
        old.prepare_to_resume()
        if self._events.observers:
            begin(old, self._events, self.id, resumed=True)
        try:
            await self._abandon(old, waiting)
        finally:
            if old.observed is not None:
                end(old)

    async def _abandon(self, old: RunState, waiting: Suspension) -> None:
        if old.journal is None:
            await abandon(old, waiting)
            return
        from . import durable

        async with durable.until_its_end(old, "a new prompt came instead of an answer"):
            await abandon(old, waiting)
        self._recorded = None if old.lasting is not None else (old.run_id, old.first_message, len(self._history))

    def _begin(self, run: RunState, kind: Literal["run", "compaction"] = "run", resumed: bool = False) -> None:
        if self._running is not run:
            self._free()
        run.begin_in(asyncio.current_task())
        self._running = run
        if self._events.observers:
            begin(run, self._events, self.id, kind, resumed=resumed)

    def _end(self, run: RunState) -> None:
        if run.observed is not None:
            end(run)
        run.finished()
        if run.lasting is not None:
            self._history = run.lasting
        self._is_idle()

    async def _execute(
        self,
        run: RunState,
        prompts: Sequence[Message],
        waiting: Suspension | None,
        answers: Mapping[str, HumanAnswer] | None,
        *,
        check: bool,
    ) -> RunResult:
        self._begin(run, resumed=waiting is not None or run.journal is not None)
        try:
            if self.plan.journal is None:
                await run_loop(run, prompts, waiting, answers)
            else:
                await self._record(run, prompts)
        except BaseException:
            # Somebody cancels us from outside, or we are broken: leave a history that can be continued.
            store = run.store if run.journal is None else run.history.append  # a recorded run can still go on as it was
            for call in list(run.history.open_calls.values()):
                store(ToolMessage(call.id, call.name, CANCELLED, is_error=True))
            raise
        finally:
            self._end(run)
        if run.stop_reason == "suspended":
            self._suspended = run
        self.result = result_of(run)
        if run.error is not None:
            run.error.result = self.result
            if check:
                raise run.error
        return self.result

    async def _record(self, run: RunState, prompts: Sequence[Message]) -> None:
        """The run, with everything about it in the journal."""
        from . import durable

        if run.journal is None:
            try:
                await durable.begin_record(run, prompts, durable.base_of(self._history, run.first_message, self._recorded))
            except JournalError as error:
                run.stop_reason, run.error = "error", error
                return
        async with durable.until_its_end(run):
            await run_loop(run, prompts)
        # The next run begins with what a summary has left: no recorded run ends in that.
        self._recorded = None if run.lasting is not None else (run.run_id, run.first_message, len(self._history))

    def _stream(self, run: RunState, start: Callable[[], Coroutine[Any, Any, RunResult]], events: Iterable[str]) -> EventStream:
        def left(task: asyncio.Task[None]) -> None:
            self._leaving = task

        return EventStream(run, start, self._events, tuple(events), left)

    async def _let_leave(self) -> None:
        """A run whose reader has left is being aborted: let it end before anything else begins."""
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            await leaving
