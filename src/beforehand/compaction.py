"""Replacing old messages by a summary: pair-aware, behind seam 17, and never before the summary exists.

`compact` does it when a person asks, `keep_in_bounds` when the next request would be longer than `Limits.compact_at`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

import msgspec

from .decisions import Answer, Block
from .direct import ask_directly
from .errors import Aborted, BeforehandError, HookFailed, Stop, describe
from .events import DecisionMade, HistoryCompacted
from .hooks.beside import dispatch_beside
from .history import estimate_tokens, size_of
from .messages import AssistantMessage, Message, Options, Request, ToolCall, ToolMessage, UserMessage, clean
from .request import overhead
from .seams import BY_NAME, Compaction
from .state import RunState

logger = logging.getLogger("beforehand")

BEFORE = BY_NAME["before_compaction"]

SUMMARY_INSTRUCTIONS = (
    "Summarise the conversation below for the assistant that will continue it. Keep every fact, decision, name, number, "
    "open question and promise that may still matter, and what tools have already done. Write only the summary."
)
SUMMARY_HEADING = "Summary of the conversation so far:\n\n"


class Compacted(msgspec.Struct):
    """What a compaction did. `messages` is the new history, `None` if nothing was replaced, for the given `reason`."""

    messages: list[Message] | None
    removed: tuple[Message, ...] = ()
    reason: str | None = None


def cut_point(messages: Sequence[Message], keep: int) -> int:
    """Where to cut so that about `keep` messages stay and no call is parted from its result, wherever that stands."""
    due: dict[str, list[int]] = {}  # of each id as often as the last reply with it has it
    pairs: list[tuple[int, int]] = []
    for i, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            times = Counter(call.id for call in message.tool_calls)
            due.update({call_id: [i] * number for call_id, number in times.items()})
        elif isinstance(message, ToolMessage) and (waiting := due.get(message.tool_call_id)):
            pairs.append((waiting.pop(), i))
    cut = max(0, len(messages) - keep)
    for call, result in reversed(pairs):
        if call < cut <= result:
            cut = call
    return cut


async def compact(run: RunState, keep: int) -> Compacted:
    """Summarise all but about the last `keep` messages. Raises what the summary's request raises; nothing is lost then."""
    messages = run.history.view()
    cut = cut_point(messages, keep)
    if not cut:
        return Compacted(None, reason=f"there is nothing before the last {keep} messages")
    done = await _replace(run, messages, cut, None)
    await _announce(run, done)
    return done


async def _replace(run: RunState, messages: Sequence[Message], cut: int, threshold: int | None) -> Compacted:
    """The messages with all before `cut` replaced by a summary."""
    old, kept = tuple(messages[:cut]), tuple(messages[cut:])
    ruling = None
    if hooks := run.hooks.before_compaction:
        ruling = await dispatch_beside(run, BEFORE, hooks, Compaction(run.info, old, kept, estimate_tokens(old), threshold))
        if isinstance(ruling.verdict, Block):
            return Compacted(None, reason=ruling.verdict.reason or "a hook blocked it")
    if run.aborted:
        return Compacted(None, reason="aborted")
    summary = (
        str(ruling.verdict.value) if ruling is not None and isinstance(ruling.verdict, Answer) else await _summarise(run, old)
    )
    if not summary.strip():
        raise BeforehandError("the summary came out empty: nothing was replaced")
    return Compacted([UserMessage(clean(SUMMARY_HEADING + summary), origin="hook"), *kept], old)


async def _announce(run: RunState, done: Compacted) -> None:
    if done.messages is not None and run.events.takers["compacted"]:
        await run.emit(HistoryCompacted(
            message=done.messages[0], removed=done.removed, kept=len(done.messages) - 1, tokens=estimate_tokens(done.removed),
            **run.event_fields(),
        ))  # fmt: skip


async def _summarise(run: RunState, old: tuple[Message, ...]) -> str:
    window = run.model.context_tokens if run.limits.context_tokens is None else run.limits.context_tokens
    text = _transcript([_as_text(message) for message in old], None if window is None else window * 3)
    request = Request(SUMMARY_INSTRUCTIONS, (UserMessage(text),), (), Options())
    return await ask_directly(run, request, "compaction")


def _transcript(texts: list[str], most: int | None) -> str:
    """All texts in one, in at most so many characters (a quarter of a token each): long ones give up their ends first."""
    whole = "\n\n".join(texts)
    if most is None or len(whole) <= most:
        return whole
    share = max(most // len(texts) - 40, 40)
    cut = [t if len(t) <= share else f"{t[:share]} [{len(t) - share} more characters]" for t in texts]
    return "\n\n".join(cut)[-most:]


def _as_text(message: Message) -> str:
    lines = [message.text] if message.text else []
    if isinstance(message, AssistantMessage):
        lines += [f"(calls {part.name} with {part.arguments})" for part in message.content if isinstance(part, ToolCall)]
    name = f"tool {message.tool_name}" if isinstance(message, ToolMessage) else message.role
    return f"{name}: " + "\n".join(lines)


# --- by itself -----------------------------------------------------------------------------------


async def keep_in_bounds(run: RunState) -> None:
    """Summarise old messages if the next request would be longer than `run.compact_at`. Before seam 3.

    Where that fails the messages stay, the record says so, and it is not tried again before they have grown by a quarter
    of the threshold. Only an abort, and a hook that aborts the run, are raised.
    """
    assert run.compact_at is not None and run.limits.compact_at is not None
    threshold = run.limits.compact_at
    messages = run.context.view()
    extra = overhead(run.system, run.tool_specs, run.options)
    size = estimate_tokens(messages) + extra
    past = None if run.journal is None else run.journal.past_compaction()
    if past is not None:  # it is on record whether there was anything to do, whatever the tools have become since then
        cut, size = past
    elif size >= run.compact_at:
        cut = _tail(messages, max(threshold - extra, 0) // 4)
        if run.journal is not None:
            run.journal.compacting(cut, size)
    else:
        return
    if not size:
        return
    if estimate_tokens(messages[:cut]) < threshold // 8:
        done = Compacted(None, reason="what could be summarised is too little to make a difference")
    else:
        done = await _tried(run, messages, cut, threshold)
    if done.messages is None:
        await _note(run, "failed", f"about {size} tokens, and not compacted: {done.reason}")
    else:
        size = estimate_tokens(done.messages) + extra
        run.shorten(done.messages, done.removed)
        await _announce(run, done)
        await _note(run, "compacted", f"{len(done.removed)} messages became a summary; about {size} tokens are left")
    run.compact_at = max(threshold, size + threshold // 4)


def _tail(messages: Sequence[Message], tokens: int) -> int:
    """Where to cut so that what stays has about so many tokens, and is never nothing."""
    size, keep = 0, 0
    for message in reversed(messages):
        size += size_of(message)
        if keep and size // 4 > tokens:
            break
        keep += 1
    return cut_point(messages, keep)


async def _tried(run: RunState, messages: Sequence[Message], cut: int, threshold: int) -> Compacted:
    try:
        done = await _replace(run, messages, cut, threshold)
    except HookFailed as error:
        if run.decisions[-1].on_error == "abort":
            raise
        done = Compacted(None, reason=str(error))
    except Exception as error:
        done = Compacted(None, reason=str(error) if isinstance(error, BeforehandError) else describe(error))
    except (Stop, asyncio.CancelledError) as error:
        if not run.was_aborted_by(error):
            raise
        raise Aborted("aborted while old messages were summarised") from None
    if run.aborted:
        raise Aborted(run.signal.reason or "aborted")
    return done


async def _note(run: RunState, verdict: str, reason: str) -> None:
    if verdict == "failed":
        logger.warning("run %s, loop %s: %s", run.run_id, run.loop, reason)
    run.note(verdict, reason, seam="compaction")
    if run.events.takers["decision"]:
        await run.emit(DecisionMade(record=run.decisions[-1], **run.event_fields()))
