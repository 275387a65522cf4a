"""Requests beside the conversation: a summary, a lambda's own question. They pass seams 7 and 8 and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from .contexts import digest_of, request_value
from .decisions import Answer
from .draft import Outgoing, without_keys
from .errors import InvalidResponse, NetworkError, RequestBlocked
from .hooks.dispatch import repeat_effects
from .messages import NO_USAGE, Request
from .models.base import Finish, Model, TextDelta
from .request import answer_message, authorize, call_info, others, send
from .seams import RequestKind
from .state import RunState


async def ask_directly(run: RunState, request: Request, kind: RequestKind) -> str:
    """A request of our own beside the conversation (a summary): passes seams 7 and 8 and nothing else."""
    outgoing = Outgoing(request, run.model, await call_info(run, run.model))
    answer = await _answered_at_the_gate(run, outgoing, kind, run.hooks.authorize_request)
    if answer is not None:
        return answer
    if run.journal is not None:
        if (past := run.journal.past_direct(run)) is not None:
            return str(past)
        await run.journal.go_live(run)
    return await _text_from(run, outgoing, kind, {})


async def ask_aside(
    run: RunState, request: Request, by: tuple[str, str], asking: Any, model: Model, left: Callable[[], bool]
) -> str:
    """A lambda's own question: passes seams 7 and 8, without the hook on whose behalf it is made. `asking` is its function.

    `by` says which question of which lambda it is, and what that is known as. One that has been answered in a process that is
    gone is not asked again. One whose lambda has `left` is not sent, whatever hook has swallowed the cancellation.
    """
    if run.journal is not None:
        past = run.journal.past_aside(run, by[0], model.name, digest_of(request_value(request)))
        if past is not None:
            repeat_effects(run, past.ruling)
            if past.error is not None:
                raise past.error
            return str(past.text)
    outgoing = Outgoing(request, model, await call_info(run, model, asking))
    answer = await _answered_at_the_gate(run, outgoing, "direct", others(run.hooks.authorize_request, asking))
    if left():
        raise asyncio.CancelledError
    asked = {"by": by[0], "lambda": by[1]}
    return await _text_from(run, outgoing, "direct", asked) if answer is None else answer


async def _answered_at_the_gate(run: RunState, outgoing: Outgoing, kind: RequestKind, hooks: Sequence[Any]) -> str | None:
    """What a hook at 8 answers itself; `None`: the request may leave. Raises `RequestBlocked`."""
    ruling = await authorize(run, outgoing, kind, hooks)
    if ruling is None:
        return None
    if isinstance(ruling.verdict, Answer):
        return answer_message(ruling.verdict.value).text
    raise RequestBlocked(f"the {kind} request was blocked: {getattr(ruling.verdict, 'reason', None) or 'no reason given'}")


async def _text_from(run: RunState, outgoing: Outgoing, kind: RequestKind, by: dict[str, str]) -> str:
    """Send a request and read the text of its answer. `by` says for the record who asks."""
    request, model, asked = outgoing.request, outgoing.model, {}
    if run.journal is not None:
        digest = digest_of(request_value(request))
        asked = {"turn": run.turn, "kind": kind, "model": model.name, "digest": digest, **by}
        await run.journal.request(run, request, model, kind, digest)
    texts: list[str] = []
    stop, usage = None, NO_USAGE
    outer_scope = run.scope
    run.enter_streaming()
    try:
        async for event in send(run, outgoing, kind):
            if type(event) is TextDelta:
                texts.append(event.text)
            elif type(event) is Finish:
                stop, usage = event.stop_reason, event.usage
                run.add_usage(usage, model.name)
        if stop is None:
            raise NetworkError(f"the reply of {model.name} ended without a stop reason: it was cut")
        if kind == "compaction" and stop != "stop":
            raise InvalidResponse(f"the summary is not whole: {model.name} ended it with {stop!r}")
    except Exception as error:
        told = without_keys(error, outgoing)
        if run.journal is not None:
            run.journal.direct(asked, told, usage)
        if told is error:
            raise
        raise told from None
    finally:
        run.leave_guarded(outer_scope)
    if run.journal is not None:
        run.journal.direct(asked, "".join(texts), usage)
    return "".join(texts)
