"""Target `stream`: rules about the text of a reply while it arrives, as few stages of the stream guard as possible.

A *stage* is one hook at `on_chunk`: all neighbouring rules with one order, policy and loops. What they do to each other
inside it is in `passes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET

from beforehand.decisions import Decision, Effect, Hold, Interrupt, Replace
from beforehand.hooks.hook import Hook
from beforehand.seams import Chunk

from .match import MAX_HOLD, UNLIMITED
from .passes import KINDS, TEXT_CHUNKS, Channel, Key, Pass, Refused, StreamRule, chunks_of, passes_of
from .rule import Rule

class Broken(Exception):
    """The text of a channel does not go on where it stopped."""


def stage_hooks(rules: Sequence[Rule]) -> list[Hook]:
    """The stages for these rules, which are in order. Neighbours with the same order, policy and loops share one."""
    hooks = []
    for group in _neighbours([r for r in rules if chunks_of(r) & TEXT_CHUNKS], _stage_key):
        hook = group[0].hook("on_chunk", Stage(group), kind=StageHook)
        hooks.append(msgspec.structs.replace(hook, timeout=None))
    return hooks


def _stage_key(rule: Rule) -> Any:
    d = rule.definition
    return d.order, d.on_error, d.loops


def _neighbours(rules: Sequence[Rule], key: Callable[[Rule], Any]) -> list[list[Rule]]:
    groups: list[list[Rule]] = []
    for rule in rules:
        if groups and key(groups[-1][0]) == key(rule):
            groups[-1].append(rule)
        else:
            groups.append([rule])
    return groups


# --- the stage -----------------------------------------------------------------------------------


class StageHook(Hook, kw_only=True, eq=False):
    """A stage as a hook; its `fn` is the `Stage`.

    The dispatcher writes down `name` and `where` of a hook right after it has spoken, so those are the ones of the rule
    that did. Before that they tell which rules these are.
    """

    @property  # type: ignore[misc]  # a field elsewhere
    def name(self) -> str:
        stage = cast(Stage, self.fn)
        return stage.name if stage.speaking is None else stage.speaking.name

    @name.setter
    def name(self, value: str) -> None:
        """`Hook` writes its own when it is made; this one has its rules'."""

    @property  # type: ignore[misc]
    def where(self) -> str:
        stage = cast(Stage, self.fn)
        return stage.where if stage.speaking is None else stage.speaking.where

    @where.setter
    def where(self, value: str) -> None:
        """As with `name`."""

    def watch(self, run: Any, message_id: str, kind: str, call_id: str | None) -> Channel | None:
        """What tells the guard cheaply that no rule has anything to say. `None`: no rule looks at such text.

        The stage has this channel as long as whoever asked holds on to it.
        """
        return cast(Stage, self.fn).channel(run, (run.run_id, message_id, kind, call_id))


class Stage:
    """Several stream rules as one hook at `on_chunk`."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        ready = [StreamRule(rule) for rule in rules]
        names = ", ".join([rule.name for rule in rules])
        self.name = names if len(names) <= 80 else f"{names[:77]}..."
        self.where = rules[0].where + (f" and {len(rules) - 1} more" if len(rules) > 1 else "")
        self.speaking: Rule | None = None
        self.rules = tuple(ready)
        self._passes: dict[str, list[Pass]] = {}
        shared: dict[tuple[int, ...], list[Pass]] = {}
        for kind, name in KINDS.items():
            here = [rule for rule in ready if name in rule.chunks]
            key = tuple([id(rule) for rule in here])
            if key not in shared:
                shared[key] = passes_of(here)
            self._passes[kind] = shared[key]
        self._channels: WeakValueDictionary[Key, Channel] = WeakValueDictionary()
        self._last: Channel | None = None

    def channel(self, run: Any, key: Key) -> Channel | None:
        """The channel of this key, which is forgotten when nobody holds on to it."""
        channel = self._channels.get(key)
        passes = self._passes[key[2]]
        if channel is None and passes:
            channel = Channel(key, passes, _share(run, sum([each.holds for each in passes])))
            self._channels[key] = self._last = channel
        return channel

    def __call__(self, chunk: Chunk) -> Any:
        self.speaking = None
        channel = self.channel(chunk.run, (chunk.run.run_id, chunk.message_id, chunk.kind, chunk.call_id))
        if channel is None:
            return None
        text, final = chunk.delta, chunk.final
        if channel.first and chunk.released:
            raise Broken("has lost its place in this stream: who asks it has to hold on to what `watch` returned")
        if channel.kept + len(text) != len(chunk.pending):
            raise Broken(f"kept back {channel.kept} characters and got {len(text)} more, but {len(chunk.pending)} are pending")
        channel.chunk = chunk
        channel.text = text
        try:
            text = channel.feed(text, final)
        except Refused as refused:
            return self._interrupted(refused, channel)
        held = channel.held[0] if channel.single else "".join(reversed(channel.held))
        channel.kept = len(held)
        channel.first = False
        if final:
            self._last = None
        if channel.changed or channel.decisions:
            self.speaking = channel.by
            return _answer(channel, text, held)
        channel.chunk = None
        return Hold(channel.kept) if held else None

    def _interrupted(self, refused: Refused, channel: Channel) -> list[Decision]:
        """The interrupt, with what the other rules that refuse this text have to say. Wishes to resend combine by OR."""
        for rule in self.rules:
            if rule is not refused.by and channel.type in rule.chunks and rule.fires_too(refused.text):
                rule.fire(channel, None if rule.rule.finder is None else rule.rule.finder.first(refused.text))
        self.speaking = refused.by.rule
        verdicts = [d for d in channel.decisions if isinstance(d, Interrupt)]
        own = verdicts[0]
        if any(verdict.resend for verdict in verdicts):
            own = msgspec.structs.replace(own, resend=True)
        return [own, *[d for d in channel.decisions if isinstance(d, Effect)]]


def _share(run: Any, holding: int) -> int:
    """The characters one pass may keep back: all passes of a stage together may not exceed the run's `max_hold`."""
    limits = getattr(run, "limits", None)
    most = MAX_HOLD if limits is None else limits.max_hold
    return (UNLIMITED if most is None else most) // max(1, holding)


def _answer(channel: Channel, shown: str, held: str) -> Any:
    """What the stage says about a chunk at which something has happened: no more than it must, as every decision is recorded."""
    verdict: Decision | None = None
    chunk, channel.chunk = channel.chunk, None
    if channel.changed and shown + held != chunk.pending:
        verdict = Replace(text=shown + held, hold=len(held))
    elif held:
        verdict = Hold(len(held))
    effects = channel.decisions
    channel.changed, channel.decisions = False, []
    return [verdict, *effects] if verdict is not None else effects or None


def has_finish(rule: Rule) -> bool:
    """Whether the end of a reply concerns this rule. A `regex` has no text to look at there."""
    return "finish" in chunks_of(rule) and rule.finder is None and rule.definition.regex is UNSET
