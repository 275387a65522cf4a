"""Replacing old messages by a summary: pair-aware, behind seam 17, and never before the summary exists."""

from __future__ import annotations


import msgspec

from .decisions import Answer, Block
from .errors import BeforehandError
from .hooks.dispatch import dispatch
from .history import estimate_tokens
from .messages import AssistantMessage, Message, Options, Request, ToolCall, ToolMessage, UserMessage
from .request import ask_directly
from .seams import BY_NAME, Compaction
from .state import RunState

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


def cut_point(messages: list[Message], keep: int) -> int:
    """Where to cut so that about `keep` messages stay and no call is parted from its result."""
    cut = max(0, len(messages) - keep)
    while 0 < cut < len(messages) and isinstance(messages[cut], ToolMessage):
        cut -= 1
    return cut


async def compact(run: RunState, keep: int, threshold: int | None = None) -> Compacted:
    """Summarise all but about the last `keep` messages. Raises what the summary's request raises; nothing is lost then."""
    messages = list(run.history.view())
    cut = cut_point(messages, keep)
    old, kept = tuple(messages[:cut]), tuple(messages[cut:])
    if not old:
        return Compacted(None, reason=f"there is nothing before the last {keep} messages")
    ruling = None
    if hooks := run.hooks.before_compaction:
        context = Compaction(run.info, old, kept, estimate_tokens(old), threshold)
        ruling = await dispatch(run, BEFORE, hooks, context)
        if isinstance(ruling.verdict, Block):
            return Compacted(None, reason=ruling.verdict.reason or "a hook blocked it")
    if run.aborted:
        return Compacted(None, reason="aborted")
    summary = (
        str(ruling.verdict.value) if ruling is not None and isinstance(ruling.verdict, Answer) else await _summarise(run, old)
    )
    if not summary.strip():
        raise BeforehandError("the summary came out empty: nothing was replaced")
    return Compacted([UserMessage(SUMMARY_HEADING + summary, origin="hook"), *kept], old)


async def _summarise(run: RunState, old: tuple[Message, ...]) -> str:
    text = "\n\n".join(_as_text(message) for message in old)
    request = Request(SUMMARY_INSTRUCTIONS, (UserMessage(text),), (), Options())
    return await ask_directly(run, request, "compaction")


def _as_text(message: Message) -> str:
    lines = [message.text] if message.text else []
    if isinstance(message, AssistantMessage):
        lines += [f"(calls {part.name} with {part.arguments})" for part in message.content if isinstance(part, ToolCall)]
    name = f"tool {message.tool_name}" if isinstance(message, ToolMessage) else message.role
    return f"{name}: " + "\n".join(lines)
