"""Pattern rules over text that arrives in pieces, decided as over the whole of it.

The law: what is shown, piece by piece, is the whole text with the rules applied, however it was cut.
It holds as long as no stretch that may become a match grows beyond `max_hold` characters; see `Scanner.feed` for then.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

from ..errors import ConfigError

from . import engine
from .regex import PatternError
from .scanner import Scanner, rewrite
from .watch import Match, Ruler, Rule, Watch, Watches

__all__ = ["Match", "PatternError", "PatternSet", "Rule", "Scanner", "rewrite"]


class PatternSet:
    """Rules compiled together. Immutable, and safe to share between streams and threads.

    Raises `PatternError` for the first pattern RE2 does not take. `max_hold`: the most characters of
    a stream that are kept back, and the longest stretch of it that a match can take up.
    """

    def __init__(self, rules: Iterable[Rule], *, max_hold: int = 4096) -> None:
        if max_hold < 1:
            raise ConfigError(f"max_hold is {max_hold}: at least one character has to be kept back to find anything")
        self.rules = tuple(rules)
        self.max_hold = max_hold
        self._watches = Watches(self.rules)

    def scanner(self, patience: float = engine.NEVER) -> Scanner:
        """A matcher for one channel of one stream. `patience`: the most seconds it may take over one large piece (`TooSlow`)."""
        return Scanner(self._watches, self.max_hold, patience)

    def scan_whole(self, text: str, until: float = engine.NEVER) -> list[Match]:
        """The matches in a text that is complete: the definition of what a stream has to come to.

        From left to right the first part that a rule would replace wins, on ties that of the earlier rule. The next part
        may begin where it ended; what lies around it in its match is nobody's, and others search it too. A rule whose
        part has been taken is searched anew from there. A place where a rule prefers to match nothing is passed over.
        Raises `TooSlow` when the clock (`time.perf_counter`) passes `until`.

        With many rules `scanner().feed(text, True)` finds the same faster.
        """
        data, ruler, matches = engine.encode(text), Ruler(), []
        ruler.narrow = text.isascii()
        end = len(data)

        def first(watch: Watch, low: int) -> tuple[int, int, int]:
            """Where it matches, and the part that is replaced."""
            start, stop = watch.first(watch.plain, data, low, end, end, self.max_hold, until)
            return (start, *watch.part(data, start, stop)) if start < end else (end, end, end)

        found = {w: first(w, 0) for w in self._watches.all}
        while found:
            if perf_counter() > until:
                raise engine.TooSlow("a text with many matches")
            winner = min(found, key=lambda w: (found[w][1], w.index))
            start, place, stop = found[winner]
            if place >= end:
                break
            matches.append(winner.match(data, start, end, ruler))
            ruler.move(data, stop)
            found |= {w: first(w, stop) for w, (_, place, _) in found.items() if place < stop}
        return matches
