"""Hooks that are asked and never obeyed: what another set of hooks would have decided, beside what was decided.

The set in the shadow gets the same values at the same seams. Nothing it returns has an effect; where it would have made a
difference, that is recorded. `backtest.py` does the same over runs that are on record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from .contexts import digest_of
from .decisions import Answer, Continue, Replace
from .detach import contained
from .emitter import Emitter
from .errors import HookFailed
from .events import DecisionRecord
from .frozen import Frozen, canonical
from .hooks.check import Late
from .hooks.dispatch import UNSEEN, Ruling, ask, fail, within
from .hooks.group import narrowed
from .hooks.hook import Hook
from .history import HistoryView
from .hooks.registry import HookSet
from .messages import LOST, AssistantMessage, Request
from .models.base import Model
from .seams import BY_NAME, Context, IncomingMessage, RunStart, SeamSpec
from .stream.guard import Guard, Interrupted
from .tools import as_result

logger = logging.getLogger("beforehand")

Kind = Literal["newly_blocked", "newly_allowed", "refused_differently", "rewritten_differently", "effects_differ"]
KINDS: tuple[Kind, ...] = ("newly_blocked", "newly_allowed", "refused_differently", "rewritten_differently", "effects_differ")

ON_CHUNK, ON_MESSAGE = BY_NAME["on_chunk"], BY_NAME["on_message"]

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


class Words(NamedTuple):
    """What was decided and what would be, in words. `kept` are those that hold nothing of the value itself."""

    decided: str
    would: str
    kept: tuple[str, str]


class Shadow:
    """The hooks in the shadow of one run. `again` says that the run is on record, and goes over its past only.

    `own` names the hooks ("name at seam") that a recorded sub-agent had of itself: what they decided stands, as do its
    seams at which a parent's hooks have no say. Those in the shadow are in the place of its parent's.
    """

    def __init__(
        self, hooks: HookSet, heard: Callable[[Difference], None] | None = None, again: bool = False,
        own: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        self.hooks, self.again, self.own = hooks, again, own
        self._heard = heard
        self.differences: list[Difference] = []
        self.judged = 0
        self.late: set[Any] = set()
        """The hooks that gave no answer in time (`Hook.identity`)."""

    def visiting(self, hooks: HookSet, also: Iterable[str] = ()) -> HookSet:
        """The run's own hooks, with a place holder at each seam where only the shadow has one (and at these `also`)."""
        seams = {*also, *[hook.seam for hook in self.hooks.hooks]} - {"on_chunk", "get_api_key"}
        holders = [Hook(seam=name, fn=_silent, name="shadow", where=UNSEEN) for name in BY_NAME if name in seams]
        return HookSet([*hooks.hooks, *[h for h in holders if not getattr(hooks, h.seam)]], hooks.loop) if holders else hooks

    async def judge(
        self, run: Any, spec: SeamSpec, context: Any,
        decided: tuple[Ruling, Sequence[DecisionRecord], HookFailed | None], adopt: Any = None,
    ) -> None:  # fmt: skip
        """Ask the hooks in the shadow about a value, and note where they differ from what was `decided` (see `Made`)."""
        if self.own is not None and not spec.inherited:
            return
        if self.again and _is_lost(context):
            return
        self.judged += 1
        hooks = getattr(self.hooks, spec.name)
        if spec.by_tool and hooks:
            call = context.call if spec.name == "after_tool_call" else context
            hooks = self.hooks.for_tool(spec.name, call.tool.name)
            if self.hooks.grouped and spec.name == "before_tool_call":
                hooks = narrowed(hooks, context)
        aside = Aside(self, run)
        theirs = Made(Ruling(context, {}), aside.decisions)
        if hooks:
            try:
                theirs = Made(await ask(aside, spec, hooks, context, adopt), aside.decisions)  # type: ignore[arg-type]
            except HookFailed as error:
                theirs = Made(theirs.ruling, aside.decisions, error)
        mine = Made(*decided)
        theirs = theirs.beside(spec, mine, self.own) if self.own else theirs
        kind = _compare(mine, theirs)
        if kind is not None:
            self._note(run, spec, kind, context, Words(str(mine), str(theirs), (mine.kept, theirs.kept)), aside.decisions)

    def _note(
        self, run: Any, spec: SeamSpec, kind: Kind, context: Any, words: Words, by: Sequence[DecisionRecord]
    ) -> None:
        last = by[-1] if by else None
        value = None if context is None or spec.value is None else spec.value(context)
        about = "" if value is None or spec.name in _LONG else canonical(value).decode(errors="replace")[:200]
        difference = Difference(
            kind=kind, seam=spec.name, run_id=run.run_id, loop=run.loop, turn=run.turn, call_id=getattr(context, "call_id", None),
            decided=words.decided, would=words.would, hook=last.hook if last else None, where=last.where if last else None,
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

    async def read_again(self, run: Any, message: AssistantMessage) -> None:
        """A recorded reply: its text as the stages let it pass, then the whole message. What they held back is not on record."""
        twin = self.twin(run, Guard((), run.info, message.id, ask=_never, fail=_never, max_hold=None), message.id, None)
        channels: list[tuple[str, str, str | None]] = [("thinking", message.thinking, None), ("text", message.text, None)]
        channels += [("tool_call", call.arguments, call.id) for call in message.tool_calls]
        for kind, text, call_id in channels:
            if text:
                await twin.feed(kind, text, call_id, final=True)
        twin.compare(None)
        if self.hooks.on_message and (message.content or message.stop_reason not in ("error", "aborted")):
            context = IncomingMessage(run.info, message, message.origin, 0, run.history.view())
            await self.judge(run, ON_MESSAGE, context, (Ruling(context, {}), (), None))


def _is_lost(context: Any) -> bool:
    """Whether it is about a message that hooks were asked about, and that is not on record."""
    about = context.messages if isinstance(context, RunStart) else (getattr(context, "message", None),)
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
                    would = await self._theirs.feed(kind, delta, call_id, final)
                except Interrupted as stop:
                    self._stopped, would = f"Interrupt({stop.verdict.reason or ''})", ""
                except HookFailed as error:
                    self._stopped, would = f"failed: {error.why}", ""
                    self._kept = f"failed: {_kind_of(error.why)}"
            self._would.setdefault(channel, []).append(would)
        shown = await self._guard.feed(kind, delta, call_id, final)
        self._shown.setdefault(channel, []).append(shown)
        return shown

    def open_channels(self) -> list[tuple[str, str | None]]:
        return self._guard.open_channels()

    def compare(self, stopped: Any) -> None:
        """The reply is over: note where the shadow would have let other text pass."""
        kind: Kind | None = None
        decided = "shown" if stopped is None else f"Interrupt({stopped.reason or ''})"
        would = self._stopped or "shown"
        kept = decided, self._kept or would
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
        if kind is not None:
            self._shadow._note(self._run, ON_CHUNK, kind, None, Words(decided, would, kept), self._aside.decisions)


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
            return await within(seconds, contained(answer), seconds)
        except Late:
            self._late.add(hook.identity)
            raise


def _silent(_: Any) -> None:
    return None


async def _never(*_: Any) -> Any:
    raise AssertionError("no stage, nothing to ask")


# --- what counts as a difference -----------------------------------------------------------------


class Made(NamedTuple):
    """What a set of hooks made of a value: the ruling, their decisions, and the failure that ended it."""

    ruling: Ruling
    decisions: Sequence[DecisionRecord]
    failed: HookFailed | None = None

    @property
    def refused(self) -> bool:
        verdict = self.ruling.verdict
        return self.failed is not None or (verdict is not None and not isinstance(verdict, Answer | Continue | Replace))

    @property
    def effects(self) -> list[str]:
        return sorted(effect for decision in self.decisions for effect in decision.effects)

    def value(self, field: str) -> Any:
        """What a field came to: as replaced, or as it was."""
        return self.ruling.changes.get(field, getattr(self.ruling.context, field, None))

    def beside(self, spec: SeamSpec, whole: Made, own: frozenset[str]) -> Made:
        """This, with what those hooks have decided that are named in `own`, as it is in the `whole`."""
        decisions = [d for d in whole.decisions if f"{d.hook} at {spec.name}" in own]
        heard = [(verdict, hook) for verdict, hook in whole.ruling.heard if f"{hook.name} at {spec.name}" in own]
        rewritten = any([d.verdict == "Replace" for d in decisions])  # whose part it was is not on record
        ruling = self.ruling.beside(spec, heard, whole.ruling.changes if rewritten else {})
        failed = whole.failed if whole.failed is not None and f"{whole.failed.hook} at {spec.name}" in own else None
        return Made(ruling, [*self.decisions, *decisions], self.failed or failed)

    @property
    def kept(self) -> str:
        """The same without what an error says, which often quotes the value. The reasons are the hooks' own words."""
        said = str(self)
        whys = [d.reason for d in self.decisions if d.verdict in ("failed", "failed_open")]
        for why in [*whys, self.failed.why if self.failed is not None else None]:
            said = said.replace(why, _kind_of(why)) if why else said
        return said

    def __str__(self) -> str:
        if self.failed is not None:
            return f"failed: {self.failed.why}"
        parts = []
        verdict = self.ruling.verdict
        if verdict is not None:
            reasons = [getattr(verdict, f, None) for f in ("reason", "prompt", "feedback")]
            parts.append(f"{type(verdict).__name__}({next(filter(None, reasons), '')})")
        if self.ruling.changes:
            parts.append(f"Replace({', '.join(self.ruling.changes)})")
        return " + ".join([*parts, *self.effects]) or "let pass"


def _kind_of(why: str) -> str:
    """What kind of failure it was: "raised ValueError", of "raised ValueError: ..."."""
    return why.partition(":")[0]


def _compare(mine: Made, theirs: Made) -> Kind | None:
    if mine.refused != theirs.refused:
        return "newly_blocked" if theirs.refused else "newly_allowed"
    if mine.refused:
        same = (mine.failed and mine.failed.why) == (theirs.failed and theirs.failed.why)
        same = same and mine.ruling.verdict == theirs.ruling.verdict
        return None if same else "refused_differently"
    if _plain(mine.ruling.verdict) != _plain(theirs.ruling.verdict) and not _both_answer(mine, theirs):
        return "rewritten_differently"
    for field in {**mine.ruling.changes, **theirs.ruling.changes}:
        if _plain(mine.value(field)) != _plain(theirs.value(field)):
            return "rewritten_differently"
    return None if mine.effects == theirs.effects else "effects_differ"


def _both_answer(mine: Made, theirs: Made) -> bool:
    """Whether both answer, and what the one gave is not on record."""
    return mine.ruling.verdict == Answer(LOST) and isinstance(theirs.ruling.verdict, Answer)


def _as_result(value: Any) -> Any:
    try:
        return as_result(value)
    except TypeError:  # no result: the call is refused
        return value


def _plain(value: Any) -> bytes:
    """A value to compare: a model by its name, a history as the messages in it, an answer as the result it comes to."""
    if isinstance(value, Answer):
        value = value.value if isinstance(value.value, AssistantMessage) else _as_result(value.value)
    if isinstance(value, Model):
        return f"{value.provider}:{value.name}".encode()
    if isinstance(value, Context):
        return canonical([value.system, list(value.messages), [tool.name for tool in value.tools]])
    if isinstance(value, Request):
        return canonical([value.system, list(value.messages), value.tools, value.options])
    return canonical(list(value) if isinstance(value, HistoryView) else value)
