"""Target `stream`: rules about the text of a reply while it arrives, as few stages of the stream guard as possible.

A *stage* is one hook at `on_chunk`: all neighbouring rules with one order, policy and loops. What they do to each other
inside it is in `passes.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from beforehand.decisions import Decision, Effect, Hold, Interrupt, Replace
from beforehand.hooks.hook import Hook
from beforehand.seams import Chunk

from .match import MAX_HOLD, UNLIMITED
from .passes import KINDS, TEXT_CHUNKS, Channel, Key, Pass, Refused, StreamRule, chunks_of, passes_of
from .rule import Rule, RulesHook

MOST_STREAMS = 4096
"""Channels a stage remembers. Those of replies that were cut are forgotten when newer ones need the room."""


class Broken(Exception):
    """The text of a channel does not go on where it stopped."""


def stage_hooks(rules: Sequence[Rule]) -> list[Hook]:
    """The stages for these rules, which are in order. Neighbours with the same order, policy and loops share one."""
    hooks = []
    for group in _neighbours([r for r in rules if chunks_of(r) & TEXT_CHUNKS], _stage_key):
        kind = Hook if len(group) == 1 else RulesHook
        hook = group[0].hook("on_chunk", Stage(group), kind=kind)
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


class Stage:
    """Several stream rules as one hook at `on_chunk`."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        ready = [StreamRule(rule) for rule in rules]
        names = ", ".join([rule.name for rule in rules])
        self.name = names if len(names) <= 80 else f"{names[:77]}..."
        self.where = f"{rules[0].where} and {len(rules) - 1} more"
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
        self._channels: OrderedDict[Key, Channel] = OrderedDict()
        self._last: Channel | None = None
        self._last_run: Any = None

    def __call__(self, chunk: Chunk) -> Any:
        last = self._last  # nearly every chunk goes on where the one before stopped
        if last is not None and chunk.run is self._last_run and last.is_of(chunk):
            channel = last
        elif self._passes[chunk.kind]:
            channel = self._find(chunk)
        else:
            return None
        text, final = chunk.delta, chunk.final
        if channel.kept + len(text) != len(chunk.pending):
            raise Broken(f"kept back {channel.kept} characters and got {len(text)} more, but {len(chunk.pending)} are pending")
        channel.chunk = chunk
        channel.text = text
        try:
            for number, each in channel.passes:
                if text or final:
                    text = each.feed(number, channel, text, final)
        except Refused as refused:
            self._forget(channel)
            return self._interrupted(refused, channel)
        held = channel.held[0] if channel.single else "".join(reversed(channel.held))
        channel.kept = len(held)
        if final:
            self._forget(channel)
        else:
            channel.first = False
            self._last, self._last_run = channel, chunk.run
        if channel.changed or channel.decisions:
            self.speaking = channel.by
            return _answer(channel, text, held)
        channel.chunk = None
        return Hold(channel.kept) if held else None

    def _find(self, chunk: Chunk) -> Channel:
        key = (chunk.run.run_id, chunk.message_id, chunk.kind, chunk.call_id)
        channel = self._channels.get(key)
        if channel is not None:
            self._channels.move_to_end(key)
            return channel
        if chunk.released or len(chunk.pending) != len(chunk.delta):
            raise Broken("has lost its place in this stream: too many others are under way")
        passes = self._passes[chunk.kind]
        channel = self._channels[key] = Channel(key, passes, _share(chunk, sum([each.holds for each in passes])))
        if len(self._channels) > MOST_STREAMS:
            self._channels.popitem(last=False)
        return channel

    def _forget(self, channel: Channel) -> None:
        self._channels.pop(channel.key, None)
        self._last = self._last_run = None

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


def _share(chunk: Chunk, holding: int) -> int:
    """The characters one pass may keep back: all passes of a stage together may not exceed the run's `max_hold`."""
    limits = getattr(chunk.run, "limits", None)
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
