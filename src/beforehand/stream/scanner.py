"""The matcher for one stream of text.

1. Every rule has an *alarm*, a short piece that each of its matches holds. One search looks for the
   alarms of all rules in the new text. Nothing else happens in most chunks, save that an alarm which
   may just have begun is kept back.
2. A rule whose alarm went off is *open*: it is searched with its frontier pattern, which finds the
   first place where it matches or, with more text, could. It is closed when there is no such place.
3. Of the rules that match, the one whose part to replace begins first wins. It is decided, unless the part of another rule,
   one that waits for more text or whose alarm has just begun, could begin before it.
4. Kept back is the text from the first place where the part to replace of any open rule can begin.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from time import perf_counter

from msgspec import structs

from ..errors import UsageError

from . import engine
from .prefix import END
from .watch import Match, Ruler, Watch, Watches

Found = tuple[int, int, int, int]
"""The first place of a rule and where its match ends (behind the text: it waits for more), and the part to replace, if known."""

LARGE = 10_000
"""Characters in a piece of text that can be searched in no time, whatever they are."""

OVERRUN = 16
"""How many times `max_hold` a match that was forced is followed before it is given up."""


class Scanner:
    """Finds the matches in text that arrives in pieces. Made by `PatternSet.scanner`; not to be shared.

    `position`: characters fed so far. `pending`: the last of them, which must not be shown yet.
    `examined`: bytes given to RE2 so far, a measure of the work.
    """

    def __init__(self, watches: Watches, max_hold: int, patience: float = engine.NEVER) -> None:
        self.position, self.pending, self.examined = 0, "", 0
        self._watches, self._max_hold, self._patience = watches, max_hold, patience
        self._until = engine.NEVER
        self._memory = max_hold if watches.memory is None else watches.memory
        self._data = b""  # the end of the text: what is kept back, and before it what a match may have begun in
        self._ahead = b""  # the same with END after it, made when it is needed
        self._ruler = Ruler()
        self._old = 0  # where the newest piece begins
        self._edge = 0  # no search begins before this: 1 once text was cut off, so that \A stays false
        self._from = 0  # where the last part that was replaced ended: the next one begins here or later
        self._ends: list[int] = []  # where the parts that were replaced ended
        self._since: dict[Watch, int] = {}  # where matches of a rule can begin, once a part of it was taken
        self._anew = 0  # and where those of all the others can
        self._shown = 0  # what may have been shown
        self._heard = 0  # where the search for alarms goes on
        self._rang = False  # an alarm has gone off in the newest piece, and would again
        self._open = dict.fromkeys(watches.weak, 0)  # each with a place before which it cannot match
        self._holders: set[Watch] = set()  # those of them that had text kept back
        self._overrun: tuple[Watch, int] | None = None  # a match that was forced and may go on, and its start
        self._roomy = 1024  # above this it is worth a look whether text can be forgotten
        self._ended = False

    def feed(self, text: str, final: bool = False) -> tuple[list[Match], int]:
        """Take the next piece of the text; `final` when it is the last.

        Returns the matches that are decided by now, in order, and how many characters at the end of
        the text so far must be kept back. No later match replaces anything before those.

        When more than `max_hold` would have to be kept back, a match that only waits for a possible one
        from further left is taken. Else the rule that asks for it is reported with a forced `Match`, and
        nothing is kept back. Should its match go on after that, what comes is kept back and reported in
        the same way, until the match ends or is `OVERRUN * max_hold` long.
        """
        if self._ended:
            raise UsageError("this text has ended: take a new scanner for the next one")
        self._ended = final
        if len(text) > LARGE:
            self._until = perf_counter() + self._patience
        self.position += len(text)
        self._old = len(self._data)
        self._data += text.encode("utf-8", "surrogatepass")
        self._ahead = b""
        if self._ruler.narrow and not text.isascii():
            self._ruler.narrow = False
        alarms = self._watches.alarms
        if alarms is not None:  # most of the time none went off
            end = len(self._data)
            start, stop = alarms(self._data, self._heard, end)
            self.examined += (end if start < 0 else stop) - self._heard
            if start >= 0:
                self._rang = True
                self._listen(None if self._watches.loose else (start, stop))
        matches: list[Match] = []
        if self._overrun is not None and self._follow(self._overrun, final, matches):
            self._overrun = None
        if self._open and self._overrun is None:
            self._settle(final, matches)
        hold = 0 if final else self._hold(matches)
        if hold:
            self.pending = (self.pending + text)[-hold:]
        elif self.pending:
            self.pending = ""
        if len(self._data) > self._roomy:
            self._trim()
        return matches, hold

    def _listen(self, first: tuple[int, int] | None) -> None:
        """Open the rules whose alarm ends in the new text. `first`: where the first tight one is, if that is known."""
        for start in self._hits(self._watches.tight_alarms, first):
            for watch in self._watches.ringing(self._data, start):
                self._wake(watch, start)
        for start in self._hits(self._watches.loose_alarms) if self._watches.loose else ():
            for watch in self._watches.loose:
                self._wake(watch, start)
            break  # an alarm without end may begin at every letter: the first place will do

    def _hits(self, alarms: engine.Search | None, first: tuple[int, int] | None = None) -> Iterator[int]:
        data, end, low, old = self._data, len(self._data), self._heard, self._old
        while alarms is not None:
            if first is None:
                start, stop = alarms(data, low, end)
                self.examined += (end if start < 0 else stop) - low
            else:
                (start, stop), first = first, None
            if start < 0:
                return
            if stop >= old:  # what ended there may have had to wait for the next character
                yield start
            low = start + 1

    def _wake(self, watch: Watch, start: int) -> None:
        """Open a rule that has its alarm at `start`, from the first place where a match that has not had its alarm can begin."""
        lead, reach, end = watch.lead, watch.reach, len(self._data)
        if lead is None or reach is None or not self._ruler.narrow:
            lead, reach = self._bytes(lead), self._bytes(reach)
        place = start - lead if start - lead < end - reach else end - reach
        if place < self._heard - lead:
            place = self._heard - lead
        known = self._open.get(watch)
        if known is None or place < known:
            self._open[watch] = place

    def _settle(self, final: bool, matches: list[Match]) -> None:
        """Append what is decided. Afterwards every open rule stands at the first place where it could match."""
        end = len(self._data)
        found: dict[Watch, Found] = {}
        while True:
            winner: Watch | None = None
            for watch, low in self._open.items():
                at = found.get(watch)
                if at is None or -1 < at[2] < self._from:
                    at = found[watch] = self._candidate(watch, low, final)
                if at[1] <= end and (winner is None or (at[2], watch.index) < (found[winner][2], winner.index)):
                    winner = watch
            if winner is None or (not final and self._must_wait(winner, found)):
                break
            matches.append(winner.match(self._data, found[winner][0], end, self._ruler))
            self._move(found[winner][3])
        self._open = {w: at[0] for w, at in found.items() if at[0] < end or w.weak}

    def _candidate(self, watch: Watch, low: int, final: bool) -> Found:
        """The first place of a rule whose part has not been taken by another."""
        while True:
            start, stop = self._first(watch, low, final)
            if stop > len(self._data):
                return start, stop, -1, -1
            part, ended = watch.part(self._data, start, stop)
            if part >= self._from:
                return start, stop, part, ended
            low = self._since[watch] = self._ends[bisect_right(self._ends, part)]

    def _first(self, watch: Watch, low: int, final: bool) -> tuple[int, int]:
        """The first match of a rule, or the first place that waits for more text to become one."""
        data, end = self._data, len(self._data)
        since = self._from if watch.simple else self._since.get(watch, self._anew)
        if low < since:
            low = since
        if low < self._edge or low < self._old - self._max_hold:
            low = max(low, self._floor(watch))
        if final:
            run, high = watch.plain, end
        else:
            run, high, data = watch.ahead, end + 1, self._ahead or self._with_end()
        found = watch.first(run, data, low, high, end, self._max_hold, self._until)
        self.examined += (found[1] if found[1] < end else end) - low if low < end else 0
        return found

    def _must_wait(self, winner: Watch, found: dict[Watch, Found]) -> bool:
        """Whether a part that begins before the winner's could still come of more text. Opens the rules it may be of."""
        end, low = len(self._data), max(self._from, self._shown)
        place = found[winner][2], winner.index
        if self._watches.begun is not None:
            begun, _ = self._watches.begun(self._data, low, end)
            self.examined += end - low
            for watch in self._watches.early if 0 <= begun <= place[0] else ():
                if watch not in found and (begun, watch.index) < place:
                    lowest = max(self._heard - self._bytes(watch.lead), end - self._bytes(watch.reach))
                    at = self._candidate(watch, lowest, False)
                    if at[0] < end:
                        self._open[watch], found[watch] = at[0], at
        return any([at[0] < end < at[1] and (self._kept(w, at[0], low), w.index) < place for w, at in found.items()])

    def _hold(self, matches: list[Match]) -> int:
        """How many characters have to be kept back. Appends what the bound makes of it when they are too many."""
        while True:
            place, owner = self._first_kept()
            if place == len(self._data):
                self._shown = place
                return 0
            hold = self._ruler.between(self._data, place, len(self._data))
            if hold <= self._max_hold:
                self._shown = place
                return hold
            self._cut_short(place, owner, matches)

    def _first_kept(self) -> tuple[int, Watch | None]:
        """The first place that must not be shown yet, and the open rule that says so (`None`: an alarm has begun)."""
        end = len(self._data)
        place, owner = end, None
        low = self._shown if self._shown > self._from else self._from
        overlap = self._watches.overlap if self._ruler.narrow else 4 * self._watches.overlap
        heard = max(self._edge, end - overlap)
        if self._rang and self._watches.late is not None:
            start, _ = self._watches.late(self._data, heard, end)
            self.examined += end - heard
            heard = start if start >= 0 else end
            self._rang = False
        if heard > self._heard < self._from and self._watches.begun is not None:  # it may have begun in what was replaced
            start, _ = self._watches.begun(self._data, self._heard, end)
            heard = min(heard, start) if start >= 0 else heard
        if self._watches.begun is not None:
            start, _ = self._watches.begun(self._data, low, end)
            self.examined += end - low
            if 0 <= start < end:
                place, heard = start, min(heard, start)
        self._heard = heard
        if self._overrun is not None:
            return self._from, self._overrun[0]
        if self._open or self._holders:
            self._holders = set()
        for watch, start in self._open.items():
            kept = self._kept(watch, start, low)
            if kept < end:
                self._holders.add(watch)
                if kept < place or (kept == place and owner is not None and watch.index < owner.index):
                    place, owner = kept, watch
        return place, owner

    def _kept(self, watch: Watch, start: int, low: int) -> int:
        """Where the part that an open rule may replace can begin at the earliest."""
        data, end = self._ahead or self._with_end(), len(self._data)
        if start >= end or watch.parts.whole:
            return start if start > low else low
        self.examined += end - start
        began, _ = watch.began(data, start, end + 1)
        if not 0 <= began < end:
            return end
        low = min(end, max(low, start + watch.parts.lead[0]))
        self.examined += end - low
        return watch.rest(data, low, end + 1)[0]

    def _cut_short(self, place: int, owner: Watch | None, matches: list[Match]) -> None:
        """Keep back less: take a match that only waits for rivals, or else report the text from `place` on as one."""
        end = len(self._data)
        if self._overrun is not None:
            owner, start = self._overrun
        elif owner is not None:
            start, stop, _, ended = self._candidate(owner, self._open[owner], False)
            if stop <= end:
                matches.append(owner.match(self._data, start, end, self._ruler))
                self._move(ended)
                self._settle(False, matches)
                return
        else:
            start, early = place, self._watches.early
            owner = next((w for w in early if w.rest(self._with_end(), place, end + 1)[0] == place), early[0])
        self._overrun = owner, start
        matches.append(owner.forced(self._data, start, place, self._ruler))
        self._begin_anew(end)
        self._open = dict.fromkeys(self._watches.weak, end)

    def _follow(self, overrun: tuple[Watch, int], final: bool, matches: list[Match]) -> bool:
        """Whether a match that was forced is over. While it goes on there can be no other."""
        (watch, start), end = overrun, len(self._data)
        run, data, high = (watch.plain, self._data, end) if final else (watch.ahead, self._with_end(), end + 1)
        place, stop = run(data, start, high)
        self.examined += end - start
        if place == start and stop > end and end - start <= OVERRUN * self._bytes(self._max_hold):
            return False
        if place == start and self._from < stop <= end:
            match = watch.match(self._data, start, end, self._ruler)
            kept = (max(match.span[0], self._ruler.at(self._data, self._from)), match.span[1])
            if kept[0] < kept[1]:
                matches.append(structs.replace(match, span=kept))
            self._begin_anew(stop)
        return True

    def _move(self, stop: int) -> None:
        """A part that is replaced ended here: the next one begins here or later."""
        self._from = stop
        self._ends.append(stop)
        self._ruler.move(self._data, stop)

    def _begin_anew(self, place: int) -> None:
        """From here on nothing is known of what was before."""
        self._move(place)
        self._since, self._anew = {}, place

    def _with_end(self) -> bytes:
        self._ahead = self._ahead or self._data + END
        return self._ahead

    def _bytes(self, characters: int | None) -> int:
        """The most bytes that so many characters can take here."""
        return len(self._data) if characters is None else characters if self._ruler.narrow else 4 * characters

    def _floor(self, watch: Watch | None = None) -> int:
        """What began longer ago is given up: `max_hold`, and as much again for a rule that has text kept back."""
        return max(self._edge, self._old - self._bytes(self._max_hold) * (2 if watch in self._holders else 1))

    def _trim(self) -> None:
        """Forget the text that nothing can come back to, if that is a good deal."""
        end = len(self._data)
        self._roomy = end + 512 + end // 4
        oldest = max(min(self._shown, self._heard, *self._open.values()), end - 2 * self._bytes(self._max_hold))
        size = oldest - self._bytes(self._memory) - 1
        if self._overrun is not None:
            size = min(size, self._overrun[1] - 1)
        while size > 0 and self._data[size] & 0xC0 == 0x80:
            size -= 1
        if size <= 0:
            return
        self._data, self._ahead, self._edge = self._ruler.cut(self._data, size), b"", 1
        self._from, self._shown, self._heard = [max(1, x - size) for x in (self._from, self._shown, self._heard)]
        self._open = {w: place - size for w, place in self._open.items()}
        self._since = {w: place - size for w, place in self._since.items() if place > size}
        self._ends, self._anew = [place - size for place in self._ends if place > size], max(1, self._anew - size)
        if self._overrun is not None:
            self._overrun = self._overrun[0], self._overrun[1] - size
        end -= size
        self._roomy = end + 512 + end // 4


def rewrite(
    scanner: Scanner, chunk: str, final: bool = False, *, replace: Callable[[Match], str]
) -> tuple[str, list[Match]]:
    """Feed a piece of text and return what may be shown now, with the replaced part of each match rewritten.

    Joined together, what it returns for the pieces of a text is the text with its matches rewritten.
    To refuse instead, look at the matches first: stop at the first one whose rule refuses, and show
    of what is returned nothing (or only what is before it). Nothing of its replaced part was shown before.
    """
    text, at = scanner.pending + chunk, scanner.position - len(scanner.pending)
    start, parts = at, []
    matches, hold = scanner.feed(chunk, final)
    for match in matches:
        parts += [text[at - start : match.span[0] - start], replace(match)]
        at = match.span[1]
    return "".join(parts) + text[at - start : len(text) - hold], matches
