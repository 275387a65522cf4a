"""What follows a failed turn: a row that the model can read, and a bounded number of new attempts.

Which kind of failure it was is told by the type of the error and never by its text, so nothing that a hook says can
lead to a provider's, a key's or an image's recovery.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from .closing import AFTER, FINISH, TURN_ERROR, store_turn_error
from .contexts import digest_of
from .errors import (
    AuthenticationError, BadRequest, ContextTooLong, HookFailed, JournalError, ModelError, NetworkError, RateLimited,
    RequestTooLarge, RunError, ServerError, ToolMismatch,
)  # fmt: skip
from .events import DecisionMade, DecisionRecord
from .frozen import canonical
from .history import HistoryView
from .messages import MESSAGE_TYPES, AssistantMessage, Message, Request, UserMessage
from .models.base import Model
from .remedies import calls_as_text, has_call, has_image, without_images
from .seams import Context, Seen
from .state import RunState
from .waits import STREAMING

logger = logging.getLogger("beforehand")

Turns = Callable[[RunState, list[Message]], Awaitable[None]]

ErrorClass = Literal["hook", "authentication", "transient", "image", "tool_mismatch", "structural"]

RETRIED_SEAMS = frozenset({
    "before_turn", "prepare_request", "transform_context", "convert_to_llm", "before_provider_call", "get_api_key",
    "authorize_request", "on_chunk", "on_message", "prepare_next_turn",
})  # fmt: skip
"""Where asking again can help. At the others a reply stands already, or the hook's owner wanted the run to end."""

REMEDIES: dict[ErrorClass, str] = {
    "image": "the request is tried once without its images; the history keeps them",
    "tool_mismatch": "the request is tried once with its tool calls told as text; the history keeps them",
}
"""Failures after which another request is made at once, from other messages. Each once in a run."""


class Attempts(msgspec.Struct):
    """A conversation's failures in a row. A reply of the model ends the row."""

    failures: int = 0
    last: tuple[str, str, str] | None = None
    rows: list[Message] = msgspec.field(default_factory=list)
    """Our own rows about failures, as hooks at 10 have written them anew: their text does not tell them."""


def classify(run: RunState, error: RunError) -> ErrorClass:
    """What kind of failure this is, by its type and by what was sent. The first that fits, in this order."""
    if isinstance(error, HookFailed):
        return "hook"
    if isinstance(error, AuthenticationError) or getattr(error, "lasting", False):
        return "authentication"
    if isinstance(error, RateLimited | ServerError | NetworkError):
        return "transient"
    mismatch = isinstance(error, ToolMismatch)
    if isinstance(error, BadRequest) and not mismatch and any(map(has_image, run.context.view())):
        return "image"
    if mismatch and any(map(has_call, run.context.view())):
        return "tool_mismatch"
    return "structural"


async def recover(run: RunState, incoming: list[Message], turns: Turns) -> None:
    """As long as the run has failed and may be tried again: wait, then take its turns up again.

    `incoming` are the messages that the failed turn has not taken in. The last failure is in `run.error` afterwards.
    """
    attempts: Attempts = run.attempts
    since, remedied = run.first_message, set[ErrorClass]()
    most: int = run.plan.recovery.max_attempts  # type: ignore[union-attr]
    while run.error is not None:
        error, showed = run.error, _showed_text(run)
        kind = classify(run, error)
        if _answered(run, since):
            attempts.failures, attempts.last = 0, None
        attempts.failures += 1
        repeats = _repeats(run, attempts, error)
        if kind in ("hook", "structural") and not _is_told(run):
            if run.journal is not None and getattr(error, "seam", None) in (FINISH.name, AFTER.name):
                await run.journal.failed(run, error, None, ())  # it closed a turn that was aborted, and nothing says so yet
            await store_turn_error(run, str(error))
        since = len(run.history)
        remedy = kind in REMEDIES and kind not in remedied and run.plan.recovery.auto_retry  # type: ignore[union-attr]
        if run.journal is not None and (again := run.journal.past_retry(run)) is not None:
            _went_on(run, attempts, again)
            most = again.get("of", most)
        elif remedy:
            await _note(run, f"{kind}_retry", REMEDIES[kind])
        else:
            wait = await _may_retry(run, kind, error, attempts.failures, showed, repeats)
            if wait is None:
                return
            if not await _waited(run, wait):
                run.stop_reason, run.error = "aborted", None
                return
        if run.journal is not None:
            run.journal.refill(run)  # what the attempt takes, if that is on record: it is in the queues again
        if remedy:
            remedied.add(kind)
            messages = run.context.view()
            run.separate(without_images(messages) if kind == "image" else calls_as_text(messages))
            incoming[:] = [_told_as_text()] if kind == "tool_mismatch" else []
        elif kind != "transient":
            incoming[:] = [*(m for m in incoming if _still_due(run, m)), _notice(attempts.failures, most)]
        if run.plan.hooks.rules is not None:
            run.plan.hooks.rules.taken_back(run.run_id, guards=True)
        if run.journal is not None and run.journal.live:
            run.journal.retried(run, _announced(run), attempts.failures, most, attempts.last)
        run.stop_reason, run.error, run.reason = None, None, None
        run.poll_first, run.resend, run.askers = True, False, ()
        await turns(run, incoming)
    if _answered(run, since):
        attempts.failures, attempts.last = 0, None
    if run.journal is None:
        count_firings(run)


def count_firings(run: RunState) -> None:
    """No failure of a later turn takes back what rules have fired by now. A journal says so for each decision by itself."""
    if run.plan.hooks.rules is not None:
        run.plan.hooks.rules.recorded(run.run_id)


def _went_on(run: RunState, attempts: Attempts, again: dict[str, Any]) -> None:
    """It is on record that the turn was tried again: nobody waits for that a second time."""
    run.note(again["verdict"], again["reason"], seam="recovery")
    attempts.failures, attempts.last = again["failures"], None if again["last"] is None else tuple(again["last"])


def _announced(run: RunState) -> DecisionRecord:
    return next(entry for entry in reversed(run.decisions) if entry.seam == "recovery")


async def _may_retry(
    run: RunState, kind: ErrorClass, error: RunError, failures: int, showed: bool, repeats: bool
) -> float | None:  # fmt: skip
    """Seconds to wait before the next attempt, or `None`: there is none, and the record says why."""
    rules = run.plan.recovery
    assert rules is not None
    why = None
    if not rules.auto_retry or kind == "authentication" or isinstance(error, JournalError):
        return None
    if isinstance(error, HookFailed) and (error.seam not in RETRIED_SEAMS or _wanted_the_end(run)):
        return None
    if showed:
        why = "text of the failed reply has been shown, and it is not said twice"
    elif isinstance(error, HookFailed) and error.acted:
        why = "the hook's code had called tools by then, and trying again would call them again"
    elif isinstance(error, RequestTooLarge | ContextTooLong):
        why = "only a shorter request would help"
    elif run.limits.max_turns is not None and run.turn >= run.limits.max_turns:
        why = f"{run.turn} turns were made"
    if why is None and failures > rules.max_attempts:
        await _note(run, "recovery_exhausted", f"{rules.max_attempts} attempts in a row failed: {error}")
        return None
    if why is None and repeats:
        why = "the same input gave the same error again, so trying on would change nothing"
    wait = rules.delay(failures)
    asked = getattr(error, "retry_after", None)
    if why is None and asked is not None and asked > rules.max_delay_ms / 1e3:
        why = f"the endpoint asks for {asked:g} s of patience, and the longest delay is {rules.max_delay_ms / 1e3:g} s"
    if why is not None:
        await _note(run, "recovery_stopped", f"{why}: {error}")
        return None
    wait = max(wait, asked or 0.0)
    name = "provider_retry_scheduled" if kind == "transient" else "turn_error_retry_scheduled"
    await _note(run, name, f"attempt {failures} of {rules.max_attempts} in {wait:.3g} s: {error}")
    return wait


async def _waited(run: RunState, seconds: float) -> bool:
    """Wait. False if the run is aborted, which ends the waiting at once."""
    assert run.plan.recovery is not None
    if run.aborted:
        return False
    run.scope = STREAMING
    try:
        await run.plan.recovery.sleep(seconds)
    except BaseException as error:
        if not run.was_aborted_by(error):
            raise
    finally:
        run.leave_guarded()
    return not run.aborted


def _wanted_the_end(run: RunState) -> bool:
    """Whether the hook that failed last says `on_error="abort"`."""
    failed = next((entry for entry in reversed(run.decisions) if entry.verdict == "failed"), None)
    return failed is not None and failed.on_error == "abort"


async def _note(run: RunState, verdict: str, reason: str) -> None:
    logger.warning("run %s, loop %s: %s: %s", run.run_id, run.loop, verdict, reason[:500])
    run.note(verdict, reason, seam="recovery")
    if run.events.takers["decision"]:
        await run.emit(DecisionMade(record=run.decisions[-1], **run.event_fields()))


# --- what the model reads ------------------------------------------------------------------------


def is_notice(message: Message) -> bool:
    """Whether this is a row of ours about a failure, and not part of the talk."""
    if type(message) is not UserMessage or message.origin != "hook":
        return False
    return type(message.content) is str and message.content.startswith(TURN_ERROR)


def _notice(attempt: int, most: int) -> UserMessage:
    text = f"{TURN_ERROR}structural recovery retry {attempt} of {most}: the turn failed before an answer, and is tried again."
    return UserMessage(text, origin="hook")


def _still_due(run: RunState, message: Message) -> bool:
    """Whether the next attempt begins with this message too: no notice of an earlier one, and nothing taken out of a queue."""
    if message.origin in ("steer", "follow_up"):
        here = any(message is waiting for waiting in (*run.queues.steering, *run.queues.follow_up))
        return here or (run.journal is not None and run.journal.is_recorded_prompt(message))
    return not is_notice(message)


def _told_as_text() -> UserMessage:
    """A request must not end with a reply, which is what the results have become part of."""
    text = f"{TURN_ERROR}the endpoint refused the tool calls so far as unmatched. They are told as text above; go on from them."
    return UserMessage(text, origin="hook")


def _is_told(run: RunState) -> bool:
    """Whether the failure stands in the history already: as a row, or as the record that took its place."""
    last = run.history[len(run.history) - 1] if len(run.history) > run.first_message else None
    if type(last) is AssistantMessage:
        return last.stop_reason == "error" and last.origin == "hook"
    return last is not None and (is_notice(last) or last in run.attempts.rows)


def _answered(run: RunState, since: int) -> bool:
    """Whether the model has given a whole reply since."""
    return any(
        type(m) is AssistantMessage and m.origin == "model" and m.stop_reason not in ("error", "aborted")
        for m in run.history.view(since)
    )


def _showed_text(run: RunState) -> bool:
    """Whether the reply that failed had begun to be shown."""
    last = run.history[len(run.history) - 1] if len(run.history) > run.first_message else None
    return type(last) is AssistantMessage and last.stop_reason == "error" and bool(last.content)


# --- the same failure again ----------------------------------------------------------------------


def _repeats(run: RunState, attempts: Attempts, error: RunError) -> bool:
    """Whether this is the last failure over again: same source, same input, same error. Remembers it for the next.

    Not where time plays a part (a time limit, a network): there the same call may succeed later.
    """
    passing = isinstance(error, RateLimited | ServerError | NetworkError) or isinstance(error.__cause__, OSError)
    if isinstance(error, HookFailed):
        judged, error.judged = error.judged, None
        this = (f"{error.hook} {error.seam} {error.where}", _digest(run, judged), error.why)
    else:
        words = f"{error.status} {_NUMBERED.sub('#', str(error))}" if isinstance(error, ModelError) else str(error)
        this = (type(error).__name__, _digest(run, run.context_value()), words)
    same = this == attempts.last
    attempts.last = None if passing else this
    return same and not passing


_NUMBERED = re.compile(r"\S*\d\S*")
"""Endpoints give each refusal an id, and some put it into the text."""


def _digest(run: RunState, judged: Any) -> str:
    """A digest of what was judged, without our own rows about failures and what differs for each attempt."""
    return digest_of([run.loop, run.model.name, _plain(judged, run.attempts.rows)])


_OF_ONE_ATTEMPT = ("run", "number", "message_id", "call_id")


def _plain(value: Any, rows: Sequence[Message]) -> Any:
    if isinstance(value, Seen):
        names = [name for name in value.__struct_fields__ if name not in _OF_ONE_ATTEMPT]
        return {name: _plain(getattr(value, name), rows) for name in names}
    if isinstance(value, Context):
        return [value.system, _plain(value.messages, rows), [tool.name for tool in value.tools]]
    if isinstance(value, Request):
        return [value.system, _plain(value.messages, rows), value.tools, value.options]
    if isinstance(value, AssistantMessage):  # each reply has ids and a usage of its own
        return [value.thinking, value.text, [(call.name, call.arguments) for call in value.tool_calls]]
    if isinstance(value, HistoryView) or (isinstance(value, Sequence) and any(isinstance(v, MESSAGE_TYPES) for v in value)):
        return [canonical(m).decode() for m in value if not (is_notice(m) or m in rows or _is_record(m))]
    if isinstance(value, Model):
        return value.name
    return canonical(value).decode("utf-8", "replace")


def _is_record(message: Message) -> bool:
    return type(message) is AssistantMessage and not message.content and message.stop_reason == "error"
