"""What counts as a difference: what two sets of hooks made of one value, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from .contexts import digest_of
from .decisions import Answer, Block, Continue, Replace
from .errors import HookFailed
from .events import DecisionRecord
from .frozen import canonical
from .history import HistoryView
from .hooks.dispatch import Ruling
from .messages import LOST, AssistantMessage, Request
from .models.base import Model
from .seams import Context, SeamSpec
from .tools import as_result

Kind = Literal["newly_blocked", "newly_allowed", "refused_differently", "rewritten_differently", "effects_differ"]
KINDS: tuple[Kind, ...] = ("newly_blocked", "newly_allowed", "refused_differently", "rewritten_differently", "effects_differ")


GONE = "(not on record)"
"""Stands for a value that hooks have rewritten, where the record holds only what became of it."""


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
    def touched(self) -> bool:
        """Whether the value is not what it was any more, or was not to be."""
        return self.refused or bool(self.ruling.changes)

    @property
    def withheld(self) -> bool:
        """Whether the value was kept from whoever would have had it: a hook failed over it."""
        return self.failed is not None or isinstance(self.ruling.verdict, Block)

    def was_given_another(self, spec: SeamSpec, context: Any) -> bool:
        """Whether the hooks had their say about another value than the one in `context`, which is what became of it."""
        given = next((d.digest for d in self.decisions if d.digest is not None), None)
        return given is not None and spec.value is not None and given != digest_of(spec.value(context))

    @property
    def as_far_as_known(self) -> Made:
        """The same, if the value had been what they made of it."""
        return self._replace(ruling=self.ruling._replace(changes={}))

    def before_it(self, context: Any) -> Any:
        """The context with nothing in it where it has what they made of it."""
        return msgspec.structs.replace(context, **dict.fromkeys(self.ruling.changes, GONE))

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
    def has_failed(self) -> bool:
        """Whether a hook failed: what its error says may be different each time."""
        return any([d.verdict == "failed" for d in self.decisions])

    @property
    def kept(self) -> str:
        """The same without what an error says, which often quotes the value. The reasons are the hooks' own words."""
        said = str(self)
        whys = [d.reason for d in self.decisions if d.verdict in ("failed", "failed_open")]
        for why in [*whys, self.failed.why if self.failed is not None else None]:
            said = said.replace(why, kind_of(why)) if why else said
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


class Words(NamedTuple):
    """What was decided and what would be, in words. `kept` are those that hold nothing of the value itself."""

    decided: str
    would: str
    kept: tuple[str, str]

    @classmethod
    def of(cls, mine: Made, theirs: Made) -> Words:
        return cls(str(mine), str(theirs), (mine.kept, theirs.kept))


def kind_of(why: str) -> str:
    """What kind of failure it was: "raised ValueError", of "raised ValueError: ..."."""
    return why.partition(":")[0]


def whose(made: Made, decisions: Sequence[DecisionRecord]) -> DecisionRecord | None:
    """Of these decisions the one that counts: a failure, the strongest refusal, else what changed the value or came last."""
    by = made.failed.hook if made.failed is not None else made.ruling.by.name if made.ruling.by is not None else None
    if by is not None:
        return next((d for d in reversed(decisions) if d.hook == by), None)
    changed = [d for d in decisions if d.verdict == "Replace"] if made.ruling.changes else ()
    return next(reversed(changed or decisions), None)


def compare(mine: Made, theirs: Made) -> Kind | None:
    if mine.refused != theirs.refused:
        return "newly_blocked" if theirs.refused else "newly_allowed"
    if mine.refused:
        failed = (mine.failed and mine.failed.why) == (theirs.failed and theirs.failed.why)
        same = failed and mine.ruling.verdict == theirs.ruling.verdict
        return None if same or (mine.has_failed and theirs.has_failed and mine.kept == theirs.kept) else "refused_differently"
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
