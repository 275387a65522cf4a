"""What a run tells its journal, and what the journal tells a run that goes on.

The functions of the loop call this where something is decided or done. While a run goes over its past, the same calls
give back what is recorded; where the record ends, the run is live again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..contexts import digest_of
from ..decisions import Effect, HumanAnswer, PendingApproval, Queue
from ..emitter import Emitter
from ..errors import HookFailed, JournalError, RunChanged, RunError
from ..events import AgentStart, DecisionRecord, MessageRetracted
from ..keys import place_of
from ..messages import LOST, NO_USAGE, Message, Usage
from ..queues import Queues
from ..tools import ToolResult
from .buffer import Buffer
from .codec import Made, write_answer, write_decision, write_error, write_made, write_ruling
from .details import kept, kept_all
from .past import Past
from .queries import Head
from .recall import JOINED
from .shortened import shortened_of
from .shown import Shown
from .store import Store
from .stored import Stored
from .waiting import Waiting, each

PASSED_OVER = frozenset({"ruling", "note"})
"""What may be left of a run's past where it goes live: hooks that are gone now had decided it."""

PROGRESS = "progress"
"""Stands for seam 13 where its hooks are asked about progress of a call."""


class RunLog(Stored):
    """The journal's side of one run. `head` is where its records end, `past` what is still to be gone over."""

    def __init__(self, journal: Store, head: Head, past: Past | None = None) -> None:
        super().__init__(past, head)
        self.journal = journal
        self.under_way: set[str] = set()
        """Calls whose body may be running: they have an intent and no outcome yet."""
        self._buffer = Buffer(journal, head)
        self.add, self.write, self.before_telling = self._buffer.add, self._buffer.write, self._buffer.write_if_possible
        self._calls = 0 if past is None else sum(1 for call in past.calls.values() if call.outcome is not None)
        """How many calls have their outcome."""
        self.waiting: Any = None
        """What waits in the conversation's queues, from the beginning on."""
        self._listeners: Emitter | None = None
        self._hooks: Any = None
        """Those of today. While it goes over its past the run comes past the seams, too, at which those are gone that decided."""
        self._open: dict[tuple[str, str | None], list[Made]] = {}
        self._of_chunks: list[dict[str, Any]] = []
        self._shown = Shown(self.add)
        self.released = self._shown.released

    # --- going over the past ---

    def begin(self, run: Any) -> None:
        """The run starts. While it goes over its past nobody hears of it: they have heard it before."""
        run.journal = self
        run.store = self.storing(run.store)
        self.waiting = Waiting(run.queues, run.run_id, self.add, self.intake.keep, self.past)
        self.intake.number_of = self.waiting.number_of
        if self.past is not None:
            self._listeners, run.events = run.events, Emitter()
            ruled = {item.data["seam"] for item in self.line if item.kind == "ruling"}
            self._hooks, run.hooks = run.hooks, run.hooks.visiting(ruled)
            # What is said from now on belongs after the past.
            run.queues = Queues(run.queues.steering_mode, run.queues.follow_up_mode)
            self.refill(run)

    @property
    def will_be_heard(self) -> bool:
        return not self.live and self._listeners is not None and self._listeners.heard

    def _queued(self, number: int | None, written: Any) -> Message:
        message = super()._queued(number, written)
        return (self.waiting.here(number) if message.text == LOST else None) or message

    def requeue(self, run: Any, taken: Sequence[int | None] = ()) -> None:
        """Nothing on record takes anything more: what waited then waits again, and what was said since waits behind it.

        `taken` are the numbers of what the turn has that is under way: who takes queued messages back comes too late for it.
        """
        if run.queues is not self.waiting.queues:
            left = [*self._left, *each(run.queues)]
            for message in left:
                if (number := self._number_of(message)) is not None:
                    self.waiting.queues.number(message, run.run_id, number)
            assert self.past is not None
            back = self.past.cleared.difference(taken)
            self.waiting.requeue([m for m in left if self._number_of(m) not in back])
            run.queues = self.waiting.queues

    async def go_live(self, run: Any) -> None:
        """The record ends here: from now on the run decides and acts."""
        if self.live:
            return
        self.intake.check(self.head.run_id, self.past)
        left = next((item.kind for item in self.line if item.kind not in PASSED_OVER), None)
        if left is not None:
            raise RunChanged(
                f"the run does not go as it is recorded: its record goes on (with a {left}), and what it wants to do now is not "
                "there, so its tools, hooks or instructions are not those it began with"
            )
        self._take_over(run)
        self.live = True
        run.has_gone_over()
        assert self._listeners is not None and self.past is not None
        run.events, run.hooks = self._listeners, self._hooks
        self.requeue(run)
        if run.events.takers["agent_start"]:
            await run.emit(AgentStart(**run.event_fields()))
        for message_id, chars in self.past.shown.items():
            self.add("retracted", {"message": message_id, "chars": chars})
            if run.events.takers["message_retracted"]:
                await run.emit(MessageRetracted(message_id=message_id, chars=chars, **run.event_fields()))

    # --- turns ---

    def turn(self, run: Any, cause: str | None, incoming: Sequence[Message]) -> None:
        """A turn begins with these messages. Those from the queues are recorded: nothing else would bring them back."""
        self.intake.begins(incoming)
        if self._next("turn") is None:
            first = {} if cause is not None else {"incoming": len(incoming)}
            self.add("turn", {"number": run.turn, "cause": cause, **first, **self.waiting.taken_first(incoming, cause)})

    def took(self, messages: Sequence[Message]) -> None:
        """The first turn took these messages from the queue, after its prompts."""
        self.intake.begins(messages)
        if self._next("took") is None:
            self.add("took", self.waiting.taken(messages))

    # --- rulings ---

    def decided(
        self, seam: str, about: str | None, entry: DecisionRecord, effects: tuple[Effect, ...], partial: bool = False
    ) -> None:
        """A hook decided or failed. It is recorded with the ruling it belongs to, `about` a call, its progress (`partial`), or a
        lambda's question."""
        if seam == "on_chunk":
            self._of_chunks.append(write_decision(entry, call_id=entry.call_id))
        else:
            made = (entry, [self.from_hooks.write(effect) for effect in effects])
            self._open.setdefault((PROGRESS if partial else seam, about), []).append(made)

    def queued(self, seam: str, about: str | None, message: Message, partial: bool = False) -> None:
        """Code that a hook or a tool runs has queued a message: an effect of the ruling, or of the tool's outcome."""
        made = (None, [self.from_hooks.write(Queue(message))])
        self._open.setdefault((PROGRESS if partial else seam, about), []).append(made)

    def progressed(self, run: Any, call_id: str) -> None:
        """Hooks at 13 have been asked about progress of a call. What they decided is on record by itself: progress is judged
        beside the result, and that ruling may be on record by then."""
        if made := self._open.pop((PROGRESS, call_id), None):
            about = {"seam": "after_tool_call", "turn": run.turn, "hooks": [], "took": [], "call": call_id, "partial": True}
            self.add("ruling", {**about, **write_made(made)})

    def ruled(
        self, run: Any, seam: str, call_id: str | None, names: list[str], ruling: Any, times: list[int], given: Any
    ) -> None:
        """The hooks of a seam have been asked about what was `given`. `ruling` is what one raised, where that ended the run.

        `times` are the microseconds of those that were asked: after a refusal that is final at once, the rest is not.
        """
        beside = call_id is None and run.is_aside  # about what a lambda asks meanwhile, and so not on the run's own line
        made = self._open.pop((seam, run.question if call_id is None else call_id), ())
        data: dict[str, Any] = {"seam": seam, "turn": run.turn, "hooks": names, "took": times}
        if call_id is not None:
            data["call"] = call_id
        failed = ruling if isinstance(ruling, BaseException) else None
        if call_id is None and not beside and self._asked_again is not None and self._asked_again[0] == seam:
            data["instead"] = self._asked_again[1]
        if (seam == "before_tool_call" or (seam in JOINED and not beside)) and call_id in self._joins:
            data["joins"] = self._joins.pop(call_id)
        if seam == "before_tool_call" and failed is None:
            data["args"] = ruling.context.args
            if ruling.context.original_args is not ruling.context.args:
                data["original_args"] = ruling.context.original_args
        made_by_code = call_id is not None and "/" in call_id  # no reply says what such a call is
        if made_by_code and seam != "after_tool_call":
            data["name"] = given.name
            if (maker := self.names.maker(call_id)) is not None:  # type: ignore[arg-type]
                data["lambda"] = maker
        if seam == "prepare_tool_call" and (failed is not None or ruling.changes or ruling.heard or made_by_code):
            data["args"] = given.args  # as they were: what follows knows only what became of them
        if seam == "prepare_next_turn":
            data["cause"] = given.cause  # that a turn follows is settled
        if seam == "get_api_key":
            data["again"] = True  # a key is never written down
        if made:
            data |= write_made(made)
        if failed is not None:
            data["again"] = True
            if isinstance(failed, HookFailed):
                data["failed"] = write_error(failed)
            else:  # cut short from outside: what they say when they are asked again stands in its place
                data["over"] = True
        else:
            data |= write_ruling(run, seam, ruling, self.intake.keep, self.journal.raw)
            if self.intake.passes(seam, ruling):
                data["prompts"] = kept_all(ruling.context.messages)
        in_reply = self._receiving and seam == "on_message"
        data |= self.firings.with_ruling(run, data, (run.question or seam) if beside else call_id, in_reply)
        if not beside and (lambdas := self.names.ruled(run, call_id)):
            data["lambdas"] = lambdas
        if beside:
            data["beside"] = run.question or True
        self.add("ruling", data)

    def ruled_again(self, seam: str, call_id: str | None) -> None:
        """The hooks of a seam have been asked about what is on record already: nothing is added to it."""
        self._open.pop((seam, call_id), None)
        self._joins.pop(call_id, None)

    def note(self, record: DecisionRecord) -> None:
        """The core mended something. It will again, so a run that goes over its past does not record it twice.

        What it mended in a reply comes back with the reply.
        """
        self._summing = self._summing and record.seam != "compaction"
        if self.live or (record.seam == "compaction" and not self._noted):
            more = {"of": "reply"} if self._receiving else {}
            if record.seam != "repair":
                more["seam"] = record.seam
            self.add("note", {"turn": record.turn, "call": record.call_id, **more, **write_decision(record)})

    # --- requests ---

    def text(self, text: str | RunError) -> None:
        self.add("instructions", {"text": text} if isinstance(text, str) else {"error": write_error(text)})

    async def request(self, run: Any, request: Any, model: Any, kind: str, digest: str) -> None:
        """A request is about to leave."""
        self.add("request", {
            "turn": run.turn, "kind": kind, "model": model.name, "provider": model.provider, "endpoint": place_of(model.endpoint),
            "digest": digest, "messages": len(request.messages), "tools": [tool.name for tool in request.tools],
        })  # fmt: skip
        await self.write()

    def replied(self, run: Any, reply: Any) -> None:
        """What came of it, once it is in the history."""
        released = run.characters_released - self._released_before
        self._receiving = self._answered = False
        self._shown.forget()
        data: dict[str, Any] = {"turn": run.turn, "stored": reply.message is not None, "released": released}
        if reply.error is not None:
            data["error"] = write_error(reply.error)
        if reply.interrupt is not None:
            data["interrupt"] = reply.interrupt
        if reply.aborted:
            data["aborted"] = True
        if reply.wasted is not NO_USAGE:
            data["usage"], data["model"] = reply.wasted, reply.model
        if run.hook_queue:
            data["queue"] = kept_all(run.hook_queue)
        if run.resend:
            data["resend"] = True
        if run.askers:  # an interrupt that wants a resend names them before the run does
            data["askers"] = run.askers
        if self._of_chunks:
            data["decisions"], self._of_chunks = self._of_chunks, []
        data |= self.firings.with_reply(run, reply.error is not None)
        if lambdas := self.names.ruled(run, None):
            data["lambdas"] = lambdas
        self.add("reply", data)

    def retracted(self, message_id: str, chars: int) -> None:
        if chars and self.live:
            self._shown.record()
            self.add("retracted", {"message": message_id, "chars": chars})

    def direct(self, asked: dict[str, Any], answer: str | Exception, usage: Usage) -> None:
        """How a question beside the conversation was answered, and what that cost. `asked`: its kind, model, digest, by whom."""
        said = {"text": answer} if isinstance(answer, str) else {"error": write_error(answer)}
        self.add("direct", {**asked, **said, "usage": usage})

    def compacting(self, cut: int, tokens: int) -> None:
        """The first `cut` messages are to become a summary, since the next request would have so many tokens."""
        self.add("compacting", {"messages": cut, "tokens": tokens})

    def retried(self, run: Any, note: DecisionRecord, failures: int, most: int, last: tuple[str, str, str] | None) -> None:
        """A failed turn is tried again. `note` says how that was announced, the rest how many failed in a row, and on what."""
        data = {"verdict": note.verdict, "reason": note.reason, "failures": failures, "of": most, "last": last}
        self.add("retried", data | self.firings.with_retry(run))

    # --- calls ---

    async def intent(self, run: Any, call: Any, replay: str, by: str) -> None:
        """A tool is about to run. Durable when this returns."""
        args = call.final_args
        data = {
            "turn": run.turn, "call": call.id, "name": call.name, "args": args, "digest": digest_of(args), "replay": replay,
            "by": by, "key": f"{run.run_id}:{call.id}",
        }  # fmt: skip
        if call.parent_id is not None:
            data["parent"] = call.parent_id
        if call.made_by:
            data["lambda"] = call.made_by
        self.add("intent", data)
        self.under_way.add(call.id)  # by now: who stops the run as this is written would leave behind that it may have run
        try:
            await self.write(durable=True)
        except BaseException:
            self.under_way.discard(call.id)
            raise
        self.waiting.begins(call.id)

    def outcome(self, run: Any, call: Any, raw: ToolResult | None) -> None:
        """What became of a call, once it is settled: for good, or until a person has answered."""
        self.waiting.ended(call.id)
        if call.outcome == "pending":
            return
        self.under_way.discard(call.id)
        past = self.past_call(call.id)
        if past is not None and past.outcome is not None:
            return
        data: dict[str, Any] = {
            "turn": run.turn, "call": call.id, "name": call.name, "outcome": call.outcome, "result": kept(call.result),
            "duration": call.duration, "spent": call.spent,
        }  # fmt: skip
        if call.parent_id is not None:
            data["parent"] = call.parent_id
        if queued := self._open.pop(("lambda", call.id), ()):
            data["queued"] = [effect for _, effects in queued for effect in effects]
        if self.journal.raw and raw is not None and raw is not call.result:
            data["raw"] = kept(raw)
        data |= self.firings.with_outcome(run, call)
        self._results[call.id] = call.result
        self._calls += 1
        self.add("outcome", data)

    # --- people ---

    def ask(self, pending: PendingApproval) -> None:
        """A call waits for a person."""
        call = self.past_call(pending.call_id)
        if call is None or not any(asked["args_digest"] == pending.args_digest for asked in call.asks):
            self.add("ask", pending)

    async def answered(self, call_id: str, args_digest: str, answer: HumanAnswer, by: str) -> None:
        """A person has answered. Durable when this returns."""
        self.add("answer", {"call": call_id, "digest": args_digest, "answer": write_answer(answer), "by": by})
        await self.write(durable=True)

    # --- the end ---

    async def failed(self, run: Any, error: Exception, cause: str | None, incoming: Sequence[Message]) -> None:
        """The run cannot go on for now. What follows only closes it, unless it was tried again then.

        If its turn had not begun yet, nothing else says why it was to follow, and which messages it was to take.
        """
        if not self.past_failure():
            try:
                await self.go_live(run)
            except RunChanged:
                if isinstance(error, HookFailed):  # one that is asked each time, since no record can hold what it gives
                    raise error from None
                raise
            if not isinstance(error, JournalError):
                why = {} if cause is None else {"cause": cause}
                self.add("failed", {**write_error(error), **why, **self.waiting.taken_first(incoming, None)})
        self.intake.over()

    async def give_up(self) -> None:
        """The run is cut short from outside: what was put down, or shown, is written if that is possible."""
        self._shown.record()
        await self._buffer.write_if_possible()

    async def ended(self, run: Any) -> None:
        """The run is over, or waits for a person. Durable when this returns."""
        self.waiting.close()
        if run.stop_reason == "suspended":
            self.add("suspended", {
                "turn": run.turn, "calls": self._calls, "pending": run.pending, "usage": run.usage, "cost": run.usage_cost,
                **shortened_of(run),
            })  # fmt: skip
        else:
            data: dict[str, Any] = {
                "stop_reason": run.stop_reason or "completed", "reason": run.reason, "usage": run.usage, "cost": run.usage_cost,
                "turns": run.turn, "calls": self._calls, "decisions": len(run.decisions), **self.intake.first,
                **shortened_of(run),
            }  # fmt: skip
            if run.error is not None:
                data["error"] = write_error(run.error)
            self.add("end", data)
        await self.write(durable=True)
