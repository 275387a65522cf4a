"""Requests of a run that keeps a journal: recorded before they leave, and not sent again once their reply is recorded."""

from __future__ import annotations

from typing import Any

import msgspec

from .contexts import digest_of, request_value
from .draft import Outgoing, Reply
from .messages import AssistantMessage
from .request import replay, send
from .respond import receive_reply
from .state import RunState


async def ask_once(run: RunState, outgoing: Outgoing) -> Reply:
    """The reply to a request: the recorded one, or the model's, whom nobody has asked this before."""
    journal = run.journal
    if (past := journal.past_reply(run)) is not None:
        run.requests_sent += 1
        return await _take_up(run, past)
    await journal.go_live(run)
    await journal.request(run, outgoing.request, outgoing.model, "turn", digest_of(request_value(outgoing.request)))
    return await _receive(run, send(run, outgoing), outgoing, sent=True)


async def take_answer(run: RunState, message: AssistantMessage, outgoing: Outgoing) -> Reply:
    """A hook's answer in place of the model's reply: it passes the guards like any other, once."""
    outgoing = msgspec.structs.replace(outgoing, whole=True, origin="hook")
    if run.journal is None:
        return await receive_reply(run, replay(message), outgoing)
    if (past := run.journal.past_reply(run)) is not None:
        return await _take_up(run, past)
    await run.journal.go_live(run)
    return await _receive(run, replay(message), outgoing, sent=False)


async def _receive(run: RunState, events: Any, outgoing: Outgoing, sent: bool) -> Reply:
    run.journal.receiving(run, sent)
    return await receive_reply(run, events, outgoing)


async def _take_up(run: RunState, past: Any) -> Reply:
    """A recorded reply, as if it had just come in."""
    run.messages_made += 1
    run.characters_released += past.released
    run.hook_queue, run.resend, run.askers = past.queue, past.resend, past.askers
    message = past.message
    if run.shadow is not None and run.shadow.again:
        await run.shadow.read_again(run, past)
    if message is not None:
        run.store(message)
        run.add_usage(message.usage, message.model)
    else:
        run.add_usage(past.wasted, past.model)
    return Reply(message, past.interrupt, past.error, past.aborted)
