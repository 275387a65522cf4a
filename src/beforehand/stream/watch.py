"""A rule, what it finds, and what is compiled for it and for all rules of a set together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from time import perf_counter

from ..frozen import EMPTY_DICT, Frozen, FrozenDict

from . import engine
from .alarm import Alarm, alarm
from .prefix import Parts, frontier, knotted, parts, without_looks
from .regex import Alt, Node, PatternError, parse, show


MANY = 64
"""After so many places at which a rule matched to no avail, it is time to ask whether it can match at all, and for how long."""


class Rule(Frozen, frozen=True):
    """What to look for.

    `pattern`: RE2 syntax. `id`: comes back in every `Match`.
    `group`: what is replaced, and therefore kept back: the whole match (0), a group by number or name, or
    the first of several that took part. A group that took no part, or matched nothing, stands for the whole match.
    `keywords`: a match counts only if one of them, in upper or lower case, is in it or in the `max_hold`
    characters before its end. They add precision, not speed: a rule without them is no slower.
    """

    pattern: str
    id: str = ""
    keywords: tuple[str, ...] = ()
    group: int | str | tuple[int | str, ...] = 0


class Match(Frozen, frozen=True):
    """What a rule found. Offsets count characters from the start of the channel's text.

    `index` is the rule's place in its set; `span` is the part that is replaced, `text` the whole match;
    `groups[0]` is the group 1, `named` holds those with a name (`None`: took no part).
    `forced`: the match was still open when `max_hold` characters were being kept back. It may not
    have become one; `text` ends where the text ended, and there are no groups.
    """

    rule: Rule
    index: int
    start: int
    end: int
    span: tuple[int, int]
    text: str
    groups: tuple[str | None, ...] = ()
    named: FrozenDict = EMPTY_DICT
    forced: bool = False


class Ruler:
    """Byte positions as character offsets. It remembers one place and counts from there."""

    def __init__(self) -> None:
        self.byte, self.char, self.narrow = 0, 0, True

    def between(self, data: bytes, low: int, high: int) -> int:
        return high - low if self.narrow else len(engine.decode(data[low:high]))

    def at(self, data: bytes, byte: int) -> int:
        if byte >= self.byte:
            return self.char + self.between(data, self.byte, byte)
        return self.char - self.between(data, byte, self.byte)

    def move(self, data: bytes, byte: int) -> None:
        self.byte, self.char = byte, self.at(data, byte)

    def cut(self, data: bytes, size: int) -> bytes:
        """`data` without its first `size` bytes, which are whole characters."""
        self.move(data, size)
        self.byte, data = 0, data[size:]
        self.narrow = data.isascii()
        return data


class Watch:
    """A rule made ready. Positions here are bytes of UTF-8.

    `ahead` is the rule on a text followed by `END`: a match that ends behind it waits for more. It is
    compiled at once, because in a stream all rules may need theirs at the same moment.
    """

    def __init__(self, rule: Rule, index: int) -> None:
        self.rule, self.index = rule, index
        self._node = parse(rule.pattern)
        self._captures = _captures(rule.pattern, self._node)
        self._groups = tuple([self._number(g) for g in (rule.group if isinstance(rule.group, tuple) else (rule.group,))])
        self.simple = not self._groups or self._groups[0] == 0
        kept = frozenset() if 0 in self._groups else frozenset(self._groups)
        self.parts: Parts = parts(self._node, kept)
        self.alarm: Alarm = alarm(self._node, kept)
        self.lead, self.reach, self.weak = self.alarm.lead, self.alarm.reach, self.alarm.weak
        self._knotted = knotted(self._node)
        self.ahead = self._ahead()
        self._keywords = tuple([word.lower() for word in rule.keywords])

    def _number(self, group: int | str) -> int:
        number = self._captures.names.get(group) if isinstance(group, str) else group
        if number is None or not 0 <= number <= self._captures.count:
            has = f"it has {self._captures.count} groups"
            raise PatternError(self.rule.pattern, None, f"there is no group {group!r} to replace", has)
        return number

    # The others are compiled when first needed. They have the shape of the rule's own pattern, which
    # was compiled in a fraction of their memory, so that cannot fail.

    @cached_property
    def plain(self) -> engine.Search:
        """The rule on a text that is complete."""
        return engine.search(show(self._node, capture=self._knotted))

    def _ahead(self) -> engine.Search:
        pattern = show(frontier(self._node), capture=False)
        find = engine.search(pattern)
        if not self._knotted:
            return find
        waiting = engine.search(rf"(?:{pattern})\z")

        def run(data: bytes, low: int, high: int) -> tuple[int, int]:
            start, stop = find(data, low, high)
            if stop < high:
                stop = high if waiting(data, start, high)[0] == start else self.plain(data, start, high - 1)[1]
            return start, stop

        return run

    @cached_property
    def began(self) -> engine.Search:
        """Whether the part to keep back can have begun: `Parts.began`."""
        return engine.search(show(self.parts.began, capture=False))

    @cached_property
    def rest(self) -> engine.Search:
        """Where it can begin: `Parts.rest`, with more text to come."""
        return engine.search(show(frontier(self.parts.rest), capture=False))

    def counts(self, data: bytes, start: int, end: int, reach: int) -> bool:
        """Whether a match has one of the rule's keywords in it, or in the `reach` characters up to its end."""
        if not self._keywords:
            return True
        own = engine.decode(data[start:end])
        text = own.lower()
        if any(word in text for word in self._keywords):
            return True
        more = reach - len(own)
        text = (engine.decode(engine.back(data, start, more))[-more:] + own).lower() if more > 0 else ""
        return any(word in text for word in self._keywords)

    def first(
        self, run: engine.Search, data: bytes, low: int, high: int, end: int, reach: int, until: float = engine.NEVER
    ) -> tuple[int, int]:
        """Where `run` finds the rule in `data[low:high]`, passing over matches that are empty or do not count.

        One that goes beyond `end` waits for more text. `(end, end + 1)` when there is none before `end`. Each search takes
        time that grows with the text alone, but in the worst text there are as many as it has characters: raises `TooSlow`
        when the clock (`time.perf_counter`) passes `until`.
        """
        tries = 0
        while True:
            start, stop = run(data, low, high)
            if not 0 <= start < end:
                return end, end + 1
            if stop > end or (stop > start and self.counts(data, start, stop, reach)):
                return start, stop
            low = start + 1
            tries += 1
            if not tries % MANY:
                if high == end and not self._may_count(data, low, end, reach):
                    return end, end + 1
                if perf_counter() > until:
                    raise engine.TooSlow(self.rule.id or self.rule.pattern)

    def _may_count(self, data: bytes, low: int, end: int, reach: int) -> bool:
        """Whether a match from `low` on can have a keyword: a question that is cheaper than to ask each of them."""
        if not self._keywords or not all(word.isascii() for word in self._keywords):
            return True
        text = engine.decode(engine.back(data, low, reach) + data[low:end]).lower()
        return any(word in text for word in self._keywords)

    def part(self, data: bytes, start: int, stop: int) -> tuple[int, int]:
        """What is replaced of a match from `start` to `stop`."""
        if self.simple:
            return start, stop
        return self._part(self._captures.spans(data, start, len(data)))

    def _part(self, spans: engine.Spans) -> tuple[int, int]:
        return next((spans[g] for g in self._groups if spans[g][1] > spans[g][0]), spans[0])

    def match(self, data: bytes, start: int, high: int, ruler: Ruler) -> Match:
        """The match at `start`, which is known to be there."""
        spans = self._captures.spans(data, start, high)
        texts = tuple([engine.decode(data[low:high]) if low >= 0 else None for low, high in spans])
        part = self._part(spans)
        (first, last), part = [(ruler.at(data, low), ruler.at(data, high)) for low, high in (spans[0], part)]
        named = FrozenDict((name, texts[number]) for name, number in self._captures.names.items())
        return Match(self.rule, self.index, first, last, part, texts[0] or "", texts[1:], named)

    def forced(self, data: bytes, start: int, kept: int, ruler: Ruler) -> Match:
        """All of `data` from `start` on as a match, of which the text from `kept` on is replaced."""
        end = ruler.at(data, len(data))
        text = engine.decode(data[start:])
        return Match(self.rule, self.index, ruler.at(data, start), end, (ruler.at(data, kept), end), text, forced=True)


class Watches:
    """The rules of a set, and what looks for all of them at once.

    `tight` rules have an alarm of limited length, `loose` ones another, `weak` ones none worth the name.
    `tight_alarms` and `loose_alarms` find those of one kind, `alarms` both. `begun` finds one of those that are to be
    kept back (the rules are `early`) and that the end of the text cuts off. They are `None` where there is nothing to find.

    `overlap`: how many characters of the text before are looked at again for alarms that are cut off and
    not kept back. `memory`: how many before its alarm a match can begin or a keyword count, `None`: no limit.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.all = tuple([Watch(rule, index) for index, rule in enumerate(rules)])
        self.weak = tuple([w for w in self.all if w.weak])
        self.rest = tuple([w for w in self.all if not w.weak])
        self.tight = tuple([w for w in self.rest if w.alarm.length is not None])
        self.loose = tuple([w for w in self.rest if w.alarm.length is None])
        self.tight_alarms = _any_of([w.alarm.node for w in self.tight])
        self.loose_alarms = _any_of([w.alarm.node for w in self.loose])
        self.alarms = _any_of([w.alarm.node for w in self.rest]) if self.loose else self.tight_alarms
        self.early = tuple([w for w in self.rest if w.alarm.early])
        self.begun = _any_of([frontier(w.alarm.node, marked=False) for w in self.early], r"\z")
        late = [w for w in self.rest if not w.alarm.early]
        self.late = _any_of([frontier(w.alarm.node, marked=False) for w in late], r"\z")
        self.overlap = max([w.alarm.length or 0 for w in self.rest if not w.alarm.early], default=0)
        leads = [None if w.rule.keywords else w.alarm.lead for w in self.all]
        self.memory = None if None in leads else max((n for n in leads if n is not None), default=0)
        self._size = 4 * max([w.alarm.length or 0 for w in self.tight], default=0)
        pieces = [frontier(without_looks(w.alarm.node), marked=False) for w in self.tight]
        self._which = engine.which([show(piece, capture=False) for piece in pieces])

    def ringing(self, data: bytes, start: int) -> Iterable[Watch]:
        """The tight rules whose alarm is at `start`, or may be when more text has come."""
        found = self._which(data[start : start + self._size])
        return [self.tight[i] for i in found] if found else self.tight


def _any_of(nodes: list[Node], end: str = "") -> engine.Search | None:
    return engine.search(f"(?:{show(Alt(tuple(nodes)), capture=False)}){end}") if nodes else None


def _captures(pattern: str, node: Node) -> engine.Captures:
    try:
        return engine.Captures(show(node))
    except engine.Refused as refused:
        said = str(refused)
    if "too large" in said:
        raise PatternError(pattern, None, "it is too large for RE2", "shorten its counted repeats") from None
    if "repetition size" in said:
        nested = "its nested repeats multiply to more than 1000"
        raise PatternError(pattern, None, nested, "shorten or open one of them ({n,})") from None
    where = pattern.find(said.partition(": ")[2]) if ": " in said else -1
    raise PatternError(pattern, where if where >= 0 else None, f"RE2 says: {said}") from None
