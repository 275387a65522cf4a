"""Hooks that are new when a run goes on, beside those that were there: they are asked about what has not happened yet."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from ..seams import SeamSpec
from ..state import RunState
from .dispatch import Adopt, Ruling, dispatch
from .hook import UNSEEN, Hook


def dispatch_beside(
    run: RunState, spec: SeamSpec, hooks: Sequence[Hook], context: Any, adopt: Adopt | None = None
) -> Coroutine[Any, Any, Ruling]:
    """`dispatch`, in front of what cannot be taken back: a message in the history, a request, a summary in place of messages.

    What others had let pass in a process that ended before it happened, those that are new judge as these had left it.
    """
    if run.journal is None or run.journal.live:
        return dispatch(run, spec, hooks, context, adopt)
    return _with_new(run, spec, hooks, context, adopt)


async def _with_new(run: RunState, spec: SeamSpec, hooks: Sequence[Hook], context: Any, adopt: Adopt | None) -> Ruling:
    ruling = await dispatch(run, spec, hooks, context, adopt)
    if not run.journal.live and (
        new := run.journal.not_asked_on_line(spec.name, [hook for hook in hooks if hook.where != UNSEEN])
    ):
        ruling = await dispatch(run, spec, new, ruling.context, adopt)
    return ruling
