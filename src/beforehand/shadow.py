"""Hooks that are asked and never obeyed: what another set of hooks would have decided, beside what was decided.

The set in the shadow gets the same values at the same seams. Nothing it returns has an effect; where it would have made a
difference, that is recorded. `backtest.py` does the same over runs that are on record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from .comparing import GONE, Kind, Made, Words, compare, kind_of, whose
from .contexts import digest_of
from .decisions import Interrupt
from .detach import contained
from .emitter import Emitter
from .errors import HookFailed
from .events import DecisionRecord
from .frozen import Frozen, canonical
from .hooks.check import Late
from .hooks.dispatch import Gone, Ruling, ask, fail, within
from .hooks.group import narrowed
from .hooks.hook import Hook
from .hooks.registry import HookSet
from .messages import LOST, AssistantMessage
from .seams import BY_NAME, IncomingMessage, RunStart, SeamSpec, TurnStart
from .stream.guard import Guard, Interrupted

logger = logging.getLogger("beforehand")

ON_CHUNK, ON_MESSAGE = BY_NAME["on_chunk"], BY_NAME["on_message"]

class Watch:
    """A hook in the shadow at work. `refused` says that its sandbox has asked for something that takes effect."""

    refused = False


WATCHING: ContextVar[Watch | None] = ContextVar("beforehand_watching", default=None)
"""Set while hooks in the shadow are asked: a sandbox gives them no way to do anything."""


@contextmanager
def only_watching() -> Iterator[Watch]:
    watch = Watch()
    token = WATCHING.set(watch)
    try:
        yield watch
    finally:
        WATCHING.reset(token)


PATIENCE, NO_PATIENCE = 5.0, 0.05
"""Seconds that a run waits for a hook in the shadow which has no timeout, and for one that was late before."""

class Difference(Frozen, kw_only=True):
    """One value about which the hooks in the shadow decide otherwise.

    `decided` and `would` say, in a few words, what the run's hooks and those in the shadow made of it; `hook` is the one
    in the shadow that made the difference, if one did; `about` begins with the value, `digest` is that of the whole.

    The journal and the log get it without values: hooks may take out of one what must not be kept.
    """

    kind: Kind
    seam: str
    run_id: str
    loop: str
    turn: int
    call_id: str | None
    decided: str
    would: str
    hook: str | None
    where: str | None
    about: str
    digest: str | None = None


class Shadow:
    """The hooks in the shadow of one run. `again` says that the run is on record, and goes over its past only.

    Of a reply, a prompt and most results the record holds what hooks have made of it, and not what they were given. Such a value
    is put to other hooks as it is; hooks that are `same` (by seam) are taken to decide as they did, and what a record does
    not hold at all is counted in `unknown`. `rules` are those among them that may fire only so often.

    `own` names the hooks ("name at seam") that a recorded sub-agent had of itself: what they decided stands, as do its
    seams at which a parent's hooks have no say. Those in the shadow are in the place of its parent's.
    """

    def __init__(
        self, hooks: HookSet, heard: Callable[[Difference], None] | None = None, again: bool = False,
        own: frozenset[str] | None = None, same: frozenset[str] = frozenset(), rules: Any = None,
    ) -> None:  # fmt: skip
        self.hooks, self.again, self.own, self.same, self._rules = hooks, again, own, same, rules
        self._heard = heard
        self.differences: list[Difference] = []
        self.judged = self.unknown = 0
        self.late: set[Any] = set()
        """The hooks that gave no answer in time (`Hook.identity`)."""
        self._before: dict[str, Made] = {}
        """What gates had made of a call, by call, beside whom others have their say that are new."""

    def visiting(self, hooks: HookSet, also: Iterable[str] = ()) -> HookSet:
        """The run's own hooks, with a place holder at each seam where only the shadow has one (and at these `also`)."""
        seams = {hook.seam for hook in self.hooks.hooks if hook.spec.kind != "save"} - {"on_chunk", "get_api_key"} | {*also}
        return hooks.visiting(seams)

    def inside(self, shadow: Shadow | None, hooks: HookSet) -> Shadow:
        """The shadow of a sub-agent's run: these in the place of what its `hooks` have inherited, beside its own `shadow`.

        Without one of its own, what its own hooks decide stands, and what those decide that are nobody's shadow's further out.
        """
        if shadow is not None:
            return Shadow(shadow.hooks.inheriting(self.hooks), own=self.own)
        inherited = {hook.identity for hook in hooks.inherited}
        own = [f"{hook.name} at {hook.seam}" for hook in hooks.hooks if hook.identity not in inherited]
        return Shadow(HookSet((), hooks.loop).inheriting(self.hooks), own=frozenset(own) | (self.own or frozenset()))

    def joins(self, run: Any, ruling: Ruling) -> None:
        """Gates that are new are asked now about a call on which others have ruled: the shadow is compared with all of them."""
        call = ruling.context
        made = [d for d in run.decisions if (d.seam, d.call_id, d.digest) == ("before_tool_call", call.call_id, call.args_digest)]
        self._before[call.call_id] = Made(ruling, made)

    async def judge(
        self, run: Any, spec: SeamSpec, context: Any,
        decided: tuple[Ruling, Sequence[DecisionRecord], HookFailed | None], adopt: Any = None, altered: bool = False,
    ) -> None:  # fmt: skip
        """Ask the hooks in the shadow about a value, and note where they differ from what was `decided` (see `Made`).

        `altered`: the value is what was made of it, and what it was made of is not on record.
        """
        if spec.kind == "save" or (self.own is not None and not spec.inherited) or (self.again and spec.value is None):
            return
        mine, given, hooks = Made(*decided), context, getattr(self.hooks, spec.name)
        if self.again and _is_lost(context):
            self._gone(run, spec, mine, hooks)
            return
        self._count_as_then(run)
        if spec.by_tool and hooks:
            call = context.call if spec.name == "after_tool_call" else context
            hooks = self.hooks.for_tool(spec.name, call.tool.name)
            if self.hooks.grouped and spec.name == "before_tool_call":
                hooks = narrowed(hooks, context)
        if spec.name == "before_tool_call" and (first := self._before.pop(context.call_id, None)) is not None:
            mine = Made(first.ruling.beside(spec, mine.ruling.heard, {}), [*first.decisions, *mine.decisions], mine.failed)
        altered |= self.again and spec.name == "after_tool_call" and context.call_id in run.journal.added_to
        another = altered or (self.again and mine.was_given_another(spec, context))
        if another and spec.name in self.same:
            self.judged += 1
            return
        if another and spec.name in _MADE_ON_RECORD:
            if spec.name == "after_tool_call" and mine.withheld:
                self._gone(run, spec, mine, hooks, context.call_id)
                return
            if hooks:
                mine = mine.as_far_as_known
            else:
                given = mine.before_it(context)
        self.judged += 1
        aside = Aside(self, run)
        theirs = Made(Ruling(given, {}), aside.decisions)
        if hooks:
            with only_watching() as watch:
                try:
                    theirs = Made(await ask(aside, spec, hooks, context, adopt), aside.decisions)  # type: ignore[arg-type]
                except HookFailed as error:
                    theirs = Made(theirs.ruling, aside.decisions, error)
            if watch.refused and spec.name in self.same:
                return
        theirs = theirs.beside(spec, mine, self.own) if self.own else theirs
        kind = compare(mine, theirs)
        if kind is not None:
            self._note(run, spec, kind, context, Words.of(mine, theirs), whose(theirs, aside.decisions))

    def _count_as_then(self, run: Any) -> None:
        """Rules of a past run that fire only so often have fired as often as they had then."""
        if self._rules is not None:
            self._rules.set_counts(run.journal.counts)

    def _note(
        self, run: Any, spec: SeamSpec, kind: Kind, context: Any, words: Words, by: DecisionRecord | None,
        call: str | None = None,
    ) -> None:  # fmt: skip
        value = None if context is None or spec.value is None else spec.value(context)
        about = "" if value is None or spec.name in _LONG else canonical(value).decode(errors="replace")[:200]
        difference = Difference(
            kind=kind, seam=spec.name, run_id=run.run_id, loop=run.loop, turn=run.turn, call_id=getattr(context, "call_id", call),
            decided=words.decided, would=words.would, hook=by.hook if by else None, where=by.where if by else None,
            about=about, digest=None if value is None else digest_of(value),
        )  # fmt: skip
        self.differences.append(difference)
        decided, would = words.kept
        logger.info("shadow: %s at %s: decided %s, would be %s", kind, spec.name, decided, would)
        if self._heard is not None:
            self._heard(difference)
        if run.journal is not None and not self.again:
            run.journal.add("shadow", msgspec.structs.replace(difference, decided=decided, would=would, about=""))

    # --- streams ---

    def twin(self, run: Any, guard: Guard, message_id: str, max_hold: int | None) -> TwinGuard:
        """The guard of a reply, with the shadow's beside it."""
        return TwinGuard(self, run, guard, message_id, max_hold)

    async def read_again(self, run: Any, reply: Any) -> None:
        """A recorded reply: its text as the stages let it pass, then the whole message. What they held back is not on record."""
        self._count_as_then(run)
        message, ruled, chunks = reply.message, reply.ruling, self._made_of_chunks(reply)
        as_shown = not chunks.touched and not _was_altered(message, ruled)
        if "on_chunk" not in self.same or as_shown:
            if chunks.refused or (chunks.touched and not self.hooks.on_chunk):
                self._gone(run, ON_CHUNK, chunks, self.hooks.on_chunk)
            elif message is not None:
                await self._feed(run, message, chunks)
        if message is not None and (message.content or message.stop_reason not in ("error", "aborted")):
            if ruled is not None or self.hooks.on_message:
                context = IncomingMessage(run.info, message, message.origin, 0, run.history.view())
                mine = _made_of(ruled, context)
                await self.judge(run, ON_MESSAGE, context, mine, altered=mine.touched)
        elif ruled is not None and (mine := _made_of(ruled, None)).refused:
            self._gone(run, ON_MESSAGE, mine, self.hooks.on_message)

    def _made_of_chunks(self, reply: Any) -> Made:
        """What stages made of a reply, of which the record tells only who decided."""
        made = [d for d in reply.decisions if d.seam == "on_chunk" and f"{d.hook} at on_chunk" not in (self.own or ())]
        said = {d.verdict: d for d in reversed(made)}
        ruling, failed = Ruling(None, {"text": GONE} if said.keys() & {"Replace", "Drop"} else {}), said.get("failed")
        if (stop := said.get("Interrupt")) is not None:
            ruling = ruling._replace(verdict=Interrupt(stop.reason))
        return Made(ruling, made, failed and HookFailed(failed.hook, failed.seam, failed.where, failed.reason or ""))

    def _gone(self, run: Any, spec: SeamSpec, mine: Made, hooks: Sequence[Hook], call_id: str | None = None) -> None:
        """Note what would be otherwise about a value that is not on record: it is sure where no hook would be asked."""
        if spec.name in self.same:
            return
        if hooks:
            self.unknown += 1
            return
        theirs = Made(Ruling(None, {}), ())
        theirs = theirs.beside(spec, mine, self.own) if self.own else theirs
        kind = compare(mine, theirs)
        if kind is not None:
            self._note(run, spec, kind, None, Words.of(mine, theirs), None, call_id)

    async def _feed(self, run: Any, message: AssistantMessage, made: Made) -> None:
        twin = self.twin(run, Guard((), run.info, message.id, ask=_never, fail=_never, max_hold=None), message.id, None)
        channels: list[tuple[str, str, str | None]] = [("thinking", message.thinking, None), ("text", message.text, None)]
        channels += [("tool_call", call.arguments, call.id) for call in message.tool_calls]
        for kind, text, call_id in channels:
            if text:
                await twin.feed(kind, text, call_id, final=True)
        twin.compare(None, made.effects)


def _is_lost(context: Any) -> bool:
    """Whether it is about a message that hooks were asked about, and that is not on record."""
    about: Sequence[Any] = (getattr(context, "message", None),)
    if isinstance(context, RunStart | TurnStart):
        about = context.messages if isinstance(context, RunStart) else context.incoming
    return any([message is not None and message.text == LOST for message in about])


class TwinGuard:
    """Two guards over one stream: what the first lets pass is shown, what the second would have is only compared."""

    def __init__(self, shadow: Shadow, run: Any, guard: Guard, message_id: str, max_hold: int | None) -> None:
        self._shadow, self._run, self._guard = shadow, run, guard
        self._aside = Aside(shadow, run)
        self._theirs: Guard | None = None
        if shadow.hooks.on_chunk:
            self._theirs = Guard(
                shadow.hooks.on_chunk, run.info, message_id, max_hold=max_hold,
                ask=lambda hook, chunk: ask(self._aside, ON_CHUNK, (hook,), chunk, None),  # type: ignore[arg-type]
                fail=lambda hook, chunk, why: fail(self._aside, ON_CHUNK, hook, chunk, why),  # type: ignore[arg-type]
            )  # fmt: skip
        self._stopped: str | None = None
        self._kept: str | None = None
        self._shown: dict[Any, list[str]] = {}
        self._would: dict[Any, list[str]] = {}
        self._before = len(run.decisions)

    async def feed(self, kind: Any, delta: str, call_id: str | None = None, final: bool = False) -> str:
        channel = kind, call_id
        if self._stopped is None:
            would = delta
            if self._theirs is not None:
                try:
                    with only_watching():
                        would = await self._theirs.feed(kind, delta, call_id, final)
                except Interrupted as stop:
                    self._stopped, would = f"Interrupt({stop.verdict.reason or ''})", ""
                except HookFailed as error:
                    self._stopped, would = f"failed: {error.why}", ""
                    self._kept = f"failed: {kind_of(error.why)}"
            self._would.setdefault(channel, []).append(would)
        shown = await self._guard.feed(kind, delta, call_id, final)
        self._shown.setdefault(channel, []).append(shown)
        return shown

    def open_channels(self) -> list[tuple[str, str | None]]:
        return self._guard.open_channels()

    def compare(self, stopped: Any, effects: Iterable[str] | None = None) -> None:
        """The reply is over: note where the shadow would have let other text pass, or had other `effects` than these.

        How often an effect is asked for depends on the pieces, so it counts once.
        """
        kind: Kind | None = None
        decided = was = "shown"
        if isinstance(stopped, HookFailed):
            decided, was = f"failed: {stopped.why}", f"failed: {kind_of(stopped.why)}"
        elif stopped is not None:
            decided = was = f"Interrupt({stopped.reason or ''})"
        would = self._stopped or "shown"
        kept = was, self._kept or would
        if (stopped is None) != (self._stopped is None):
            kind = "newly_allowed" if self._stopped is None else "newly_blocked"
        elif stopped is None:
            mine, theirs = ({c: "".join(t) for c, t in texts.items()} for texts in (self._shown, self._would))
            if mine != theirs:
                kind = "rewritten_differently"
                channel = next(c for c in mine if mine[c] != theirs.get(c))
                texts = mine[channel], theirs.get(channel, "")
                decided, would = (repr(text)[:200] for text in texts)
                same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
                kept = f"{len(texts[0])} characters", f"{len(texts[1])} characters, others from {same} on"
            else:
                made = [d for d in self._run.decisions[self._before :] if d.seam == ON_CHUNK.name]
                mine_too = set(Made(Ruling(None, {}), made).effects if effects is None else effects)
                theirs_too = set(Made(Ruling(None, {}), self._aside.decisions).effects)
                if mine_too != theirs_too:
                    kind = "effects_differ"
                    decided, would = (" + ".join(sorted(effects)) or "let pass" for effects in (mine_too, theirs_too))
                    kept = decided, would
        if kind is not None:
            last = next(reversed(self._aside.decisions), None)
            self._shadow._note(self._run, ON_CHUNK, kind, None, Words(decided, would, kept), last)


def _was_altered(message: AssistantMessage | None, ruled: Any) -> bool:
    """Whether a reply is on record otherwise than its pieces came to: it was cut, or hooks at 10 had a say."""
    return (message is not None and message.stop_reason in ("error", "aborted")) or (ruled is not None and bool(ruled.changes))


def _made_of(ruled: Any, context: Any) -> Made:
    """What a recorded ruling made of a reply."""
    ruling = Ruling(context, {})
    if ruled is None:
        return Made(ruling, ())
    heard = [(verdict, Gone(name, where)) for verdict, name, where in ruled.heard]
    return Made(ruling.beside(ON_MESSAGE, heard, ruled.changes), ruled.decisions, ruled.failed)  # type: ignore[arg-type]


_MADE_ON_RECORD = frozenset({"on_message", "after_tool_call"})
"""Seams of which the record holds what the hooks made of a value, and not always the value."""

_LONG = frozenset({"on_chunk", "before_provider_call", "authorize_request", "transform_context", "convert_to_llm"})
"""Seams whose value is too long to be shown, or none by itself."""


class Aside:
    """A run as hooks in the shadow see it: the real one, but what they would do to it stays here."""

    def __init__(self, shadow: Shadow, run: Any) -> None:
        self._run, self._late = run, shadow.late
        self.journal = self.shadow = None
        self.events = Emitter()
        self.decisions: list[DecisionRecord] = []
        self.hook_queue: list[Any] = []
        self.resend = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    async def waits_for(self, hook: Hook, answer: Any) -> Any:
        """The answer of a hook that has no timeout: what is never obeyed does not hold up a run."""
        seconds = NO_PATIENCE if hook.identity in self._late else PATIENCE
        try:
            return await within(self._run, seconds, contained(answer), seconds)
        except Late:
            self._late.add(hook.identity)
            raise


async def _never(*_: Any) -> Any:
    raise AssertionError("no stage, nothing to ask")
