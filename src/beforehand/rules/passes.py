"""What stream rules do to a text inside one stage: passes, one after the other, in the order of the rules.

- A rule without `regex` is a pass that fires for every chunk that reaches it.
- A rule with `regex` that only observes (log, queue) is a pass that keeps nothing back.
- Neighbouring rules that refuse are one pass, and so are neighbouring rules that replace: what begins first is replaced
  first, and of several at one place that of the earlier rule counts. Rules that refuse and rules that replace never share
  a pass, so that nothing can be replaced away from under a refusal that stands before it.

A rule with `maxTriggers` has a pass of its own, which is open to everything once the rule is spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beforehand.decisions import Decision
from beforehand.stream.patterns import Match, Scanner

from . import schema
from .match import MAX_HOLD, PATIENCE, Finder
from .rule import OBSERVING, Rule, acts_of, run_acts
from .templates import Template

KINDS = {"text": "content", "thinking": "reasoning", "tool_call": "tool_call_delta"}
"""The kinds of text at `on_chunk`, and the rules' names for them."""

TEXT_CHUNKS = frozenset(KINDS.values())

Key = tuple[str, str, str, str | None]
"""What tells channels apart: run, message, kind of text, call."""


def chunks_of(rule: Rule) -> frozenset[str]:
    return frozenset(rule.definition.chunks) or TEXT_CHUNKS | {"finish"}  # type: ignore[attr-defined]


class StreamRule:
    """What one rule does when it fires on a stream."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.chunks = chunks_of(rule)
        self._acts = acts_of(rule, (*OBSERVING, schema.InterruptAction))
        replaces = rule.of_type(schema.ReplaceAction)
        self.replacement = Template(replaces[-1].with_) if replaces else None
        self.refuses = bool(rule.of_type(schema.InterruptAction))

    @property
    def kind(self) -> str:
        if self.rule.finder is None:
            return "each chunk"
        return "refuse" if self.refuses else "replace" if self.replacement else "observe"

    def fingerprint(self) -> str:
        return self.rule.fingerprint()

    def fire(self, channel: Channel, match: Match | None) -> dict[str, Any]:
        """Count, and do the actions. Returns the variables."""
        self.rule.count("on_chunk", channel.chunk)
        channel.by = self.rule
        variables = self.rule.variables(channel.variables(match is not None), match)
        channel.decisions += run_acts(self._acts, variables)
        return variables

    def replaced(self, variables: dict[str, Any]) -> str:
        """What stands in the place of a match."""
        return "" if self.replacement is None else self.replacement.fill(variables)

    def fires_too(self, text: str) -> bool:
        """Whether this rule, too, refuses a text that another one has refused."""
        rule = self.rule
        return self.refuses and not rule.counter.spent() and (rule.finder is None or rule.finder.first(text) is not None)


class Channel:
    """One channel on its way through a stage: what each pass keeps back, and what was decided about the present chunk.

    `hold` is what one pass may keep back, `kept` what all of them do; `changed` says that the text is no longer the model's.
    """

    __slots__ = (
        "__weakref__", "broken", "by", "call_id", "changed", "chunk", "decisions", "first", "forced", "halfway", "held", "hold",
        "kept", "kind", "passes", "scanner", "scanners", "single", "text", "type",
    )  # fmt: skip

    def __init__(self, key: Key, passes: Sequence[Pass], hold: int) -> None:
        self.hold = hold
        _, _, self.kind, self.call_id = key
        self.type = KINDS[self.kind]
        self.passes = tuple(enumerate(passes))
        self.single = len(passes) == 1
        self.held = [""] * len(passes)
        self.scanners: list[Scanner | None] = [None] * len(passes)
        self.scanner: Scanner | None = None
        self.forced: list[tuple[int, int] | None] = [None] * len(passes)
        self.kept = 0
        self.changed, self.first = False, True
        self.text = ""
        self.by: Rule | None = None
        self.chunk: Any = None
        self.decisions: list[Decision] = []
        self.halfway: tuple[int, str, Look | None] | None = None
        self.broken: Exception | None = None

    def quiet(self, delta: str, pending: int) -> int | None:
        """What the guard asks first: how much to keep back of a chunk that no rule has anything to say about.

        Where one has, or fails, that is where `feed` goes on for the same chunk.
        """
        if pending != self.kept or self.halfway is not None or self.broken is not None:
            return None
        text = delta
        try:
            if self.scanner is not None:  # as below, for what most channels are
                matches, self.kept = self.scanner.feed(text)
                if not matches:
                    self.held[0] = self.scanner.pending
                    return self.kept
                self.halfway, self.kept = (0, text, (matches, self.kept)), pending
                return None
            for number, each in self.passes:
                look = each.look(number, self, text)
                if look is None or look[0]:
                    self.halfway = number, text, look
                    return None
                text = each.let_pass(number, self, text, look[1])
                if not text:
                    break
        except Exception as error:
            self.broken = error
            return None
        self.first = False
        self.kept = len(self.held[0]) if self.single else sum(map(len, self.held))
        if self.single and self.passes[0][1].steady:
            self.scanner = self.scanners[0]
        return self.kept

    def feed(self, text: str, final: bool) -> str:
        """New text through all passes. What comes out at the end; what they decided is in `decisions`."""
        if self.broken is not None:
            raise self.broken
        start, look = 0, None
        if self.halfway is not None:
            (start, text, look), self.halfway = self.halfway, None
        for number, each in self.passes[start:]:
            if text or final:
                text = each.feed(number, self, text, final, look)
            look = None
        return text

    def variables(self, matched: bool) -> dict[str, Any]:
        """What templates can show of the chunk."""
        chunk = self.chunk
        found: dict[str, Any] = {"type": self.type, "text": self.text}
        # As in the wire's chunks, the id of a call comes with its first piece. A match may have begun in any.
        if chunk.call_id is not None and (matched or self.first):
            found["toolCallId"] = chunk.call_id
        return found


# --- passes --------------------------------------------------------------------------------------

Look = tuple[list[Match], int]
"""What a pass finds in new text: the matches that are decided, and how much of the end has to be kept back."""

NOTHING: Look = ([], 0)


class Refused(Exception):
    """A rule interrupts because of `text`."""

    def __init__(self, by: StreamRule, text: str) -> None:
        super().__init__(by.rule.reason)
        self.by, self.text = by, text


class ChunkPass:
    """A rule without `regex`: it fires for every chunk."""

    holds = steady = False

    def __init__(self, rule: StreamRule) -> None:
        self.rule = rule

    def look(self, number: int, channel: Channel, text: str) -> Look | None:
        return NOTHING if self.rule.rule.counter.spent() else None

    def let_pass(self, number: int, channel: Channel, text: str, hold: int) -> str:
        return text

    def feed(self, number: int, channel: Channel, text: str, final: bool, look: Look | None = None) -> str:
        if not text or self.rule.rule.counter.spent():
            return text
        channel.text = text
        variables = self.rule.fire(channel, None)
        if self.rule.refuses:
            raise Refused(self.rule, text)
        if self.rule.replacement is None:
            return text
        channel.changed = True
        return self.rule.replaced(variables)


class PatternPass:
    """Rules with `regex` that share a set of patterns."""

    def __init__(self, rules: Sequence[StreamRule], kind: str) -> None:
        self.kind = kind
        self.holds = kind != "observe"
        finders = [(rule, rule.rule.finder) for rule in rules if rule.rule.finder is not None]
        self._owners = [rule for rule, finder in finders for _ in finder.rules]
        self._accepts = [finder.accept for _, finder in finders for _ in finder.rules]
        self._finder = (
            finders[0][1] if len(finders) == 1 else Finder([pattern for _, finder in finders for pattern in finder.rules])
        )
        self._finder.patterns(MAX_HOLD)  # now, so that the first chunk need not wait
        self._limit = rules[0].rule.counter if rules[0].rule.counter.limit is not None else None  # such a rule is alone
        self.steady = self.holds and self._limit is None

    def look(self, number: int, channel: Channel, text: str, final: bool = False) -> Look | None:
        """`None`: the rule is spent, so there is nothing to look for, and what is kept back may go."""
        if self._limit is not None and self._limit.spent():
            return NOTHING if not channel.held[number] else None
        scanner = channel.scanners[number]
        if scanner is None:
            scanner = channel.scanners[number] = self._finder.patterns(channel.hold).scanner(PATIENCE)
        return scanner.feed(text, final)

    def let_pass(self, number: int, channel: Channel, text: str, hold: int) -> str:
        """What may go on of a text in which nothing was found."""
        if not self.holds:
            return text
        before = channel.held[number]
        if before:
            text = before + text
        if hold:
            channel.held[number] = text[-hold:]
            return text[:-hold]
        if before:
            channel.held[number] = ""
        return text

    def feed(self, number: int, channel: Channel, text: str, final: bool, look: Look | None = None) -> str:
        if self._limit is not None and self._limit.spent():
            return self._open(number, channel, text)
        found = look or self.look(number, channel, text, final)
        matches, hold = found or NOTHING
        if self.kind == "observe":
            for match in matches:
                if self._counts(number, channel, match):
                    self._owners[match.index].fire(channel, match)
        elif matches:
            before, scanner = channel.held[number], channel.scanners[number]
            start = scanner.position - len(text) - len(before)  # type: ignore[union-attr]  # it has just looked
            parts = self._decide(number, channel, before + text, start, matches)
            if parts is not None:
                whole = before + text
                channel.held[number] = whole[len(whole) - hold :]
                channel.changed = True
                return parts[: len(parts) - hold]
        return self.let_pass(number, channel, text, hold)

    def _open(self, number: int, channel: Channel, text: str) -> str:
        """The rule is spent: whatever it keeps back may go."""
        text, channel.held[number], channel.scanners[number] = channel.held[number] + text, "", None
        return text

    def _decide(self, number: int, channel: Channel, text: str, start: int, matches: list[Match]) -> str | None:
        """The text, which begins at offset `start`, with its matches rewritten: `None` if none of them changes it."""
        parts: list[str] = []
        at = start
        for match in matches:
            low, high = match.span
            owner = self._owners[match.index]
            if self.kind == "refuse":
                if self._counts(number, channel, match):
                    owner.fire(channel, match)
                    raise Refused(owner, match.text)
            elif self._goes_on(number, channel, match):
                parts.append(text[at - start : low - start])  # its replacement is out already
                at = high
            elif self._accepted(match) and not owner.rule.counter.spent():
                parts += [text[at - start : low - start], owner.replaced(owner.fire(channel, match))]
                at = high
        return "".join(parts) + text[at - start :] if parts else None

    def _counts(self, number: int, channel: Channel, match: Match) -> bool:
        if self._goes_on(number, channel, match) or not self._accepted(match):
            return False
        return not self._owners[match.index].rule.counter.spent()

    def _accepted(self, match: Match) -> bool:
        """A match that was too long to wait for counts: that is the safe side."""
        accept = self._accepts[match.index]
        return match.forced or accept is None or accept(match)

    def _goes_on(self, number: int, channel: Channel, match: Match) -> bool:
        """Whether this is more of a match that was reported when it had grown too long to be kept back."""
        key = (match.index, match.start)
        more = channel.forced[number] == key
        if match.forced:
            channel.forced[number] = key
        return more


Pass = ChunkPass | PatternPass


def passes_of(rules: Sequence[StreamRule]) -> list[Pass]:
    """The passes for rules in order."""
    passes: list[Pass] = []
    waiting: list[StreamRule] = []

    def close() -> None:
        if waiting:
            passes.append(PatternPass(tuple(waiting), waiting[0].kind))
            waiting.clear()

    for rule in rules:
        kind = rule.kind
        alone = kind in ("each chunk", "observe") or rule.rule.counter.limit is not None
        if waiting and (alone or waiting[0].kind != kind):
            close()
        if kind == "each chunk":
            passes.append(ChunkPass(rule))
        else:
            waiting.append(rule)
            if alone:
                close()
    close()
    return passes
