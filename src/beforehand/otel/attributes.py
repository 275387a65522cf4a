"""What spans say of runs, requests, results and decisions: the names, and the values in the types that spans take."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ..errors import describe
from ..events import DecisionRecord, ToolExecutionEnd
from ..messages import Usage, clean
from ..observer import RequestBegin, RequestEnd, RunBegin, RunEnd

MAX_NAME, MAX_TEXT = 256, 2_048
"""Characters of a name, and of a reason or an error's text. Models and hooks write them, and a span is no place for a novel."""

FAILED_STOPS = frozenset({"error", "aborted", "blocked", "interrupted"})
EXPLAINED = frozenset({"blocked", "steered", "cancelled", "not_found", "truncated", "aborted", "timed_out"})
"""Outcomes whose result is not the tool's, but says why there is none."""


def short(text: str, most: int = MAX_NAME) -> str:
    """Text that any exporter can encode, of a bounded length."""
    text = clean(text[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def run_attributes(run: RunBegin) -> dict[str, Any]:
    found: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent" if run.kind == "run" else "compact",
        "gen_ai.provider.name": run.provider,
        "gen_ai.request.model": run.model,
        "gen_ai.agent.name": short(run.agent),
        "gen_ai.conversation.id": short(run.conversation_id),
        "beforehand.run.id": short(run.run_id),
    }
    if run.loop != "main":
        found["beforehand.loop"] = short(run.loop)
    if run.resumed:
        found["beforehand.run.resumed"] = True
    if run.parent_call_id is not None:
        found["beforehand.parent_call_id"] = short(run.parent_call_id)
    return found


def run_end_attributes(begin: RunBegin, end: RunEnd) -> dict[str, Any]:
    """What the run came to. Usage and cost are those since it began, or was resumed."""
    fields = Usage.__struct_fields__
    found = usage_attributes(Usage(*[getattr(end.usage, name) - getattr(begin.usage, name) for name in fields]))
    if begin.kind == "run":
        found["beforehand.run.turns"] = end.turns
    if end.stop_reason is not None:
        found["beforehand.run.stop_reason"] = end.stop_reason
    if end.reason:
        found["beforehand.run.reason"] = short(end.reason, MAX_TEXT)
    if end.cost != begin.cost:
        found["beforehand.run.cost"] = end.cost - begin.cost
    return found


def request_attributes(begin: RequestBegin, conversation_id: str) -> dict[str, Any]:
    options = begin.request.options
    found: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": begin.provider,
        "gen_ai.request.model": begin.model,
        "gen_ai.conversation.id": short(conversation_id),
        "beforehand.request.kind": begin.kind,
    }
    if begin.streams:
        found["gen_ai.request.stream"] = True
    for name in ("max_tokens", "temperature", "top_p"):
        if (value := getattr(options, name)) is not None:
            found[f"gen_ai.request.{name}"] = value
    if options.stop:
        found["gen_ai.request.stop_sequences"] = options.stop
    return found | server_attributes(begin.endpoint)


def server_attributes(endpoint: str) -> dict[str, Any]:
    """Host and port of a URL, and nothing else of it. Of what is no URL, nothing."""
    try:
        url = urlsplit(endpoint)
        port = url.port or {"https": 443, "http": 80}.get(url.scheme)
    except ValueError:
        return {}
    if not url.hostname or port is None:
        return {}
    return {"server.address": url.hostname, "server.port": port}


def reply_attributes(end: RequestEnd) -> dict[str, Any]:
    found = usage_attributes(end.usage)
    if end.stop_reason is not None:
        found["gen_ai.response.finish_reasons"] = (end.stop_reason,)
    if end.waited is not None:
        found["gen_ai.response.time_to_first_chunk"] = end.waited
    return found


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Tokens, where any were counted."""
    if not usage.input_tokens and not usage.output_tokens:
        return {}
    found = {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
    if usage.cache_read_tokens:
        found["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        found["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        found["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
    return found


def tool_attributes(name: str, call_id: str, description: str | None) -> dict[str, Any]:
    found = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": short(name),
        "gen_ai.tool.call.id": short(call_id),
        "gen_ai.tool.type": "function",
    }
    if description:
        found["gen_ai.tool.description"] = short(description, MAX_TEXT)
    return found


def outcome_attributes(event: ToolExecutionEnd, rulings: list[DecisionRecord]) -> dict[str, Any]:
    """What became of a call, and for one that did not run, who decided that and what the model was told."""
    found: dict[str, Any] = {"beforehand.tool.outcome": event.outcome, "beforehand.tool.is_error": event.is_error}
    if event.outcome in EXPLAINED and event.result.text:
        found["beforehand.tool.reason"] = short(event.result.text, MAX_TEXT)
    by = decided_by(event.outcome, rulings)
    if by is not None:
        found["beforehand.tool.decided_by"] = short(by.hook)
        found["beforehand.tool.verdict"] = by.verdict
    return found


_DECIDING = {
    "blocked": ("Block", "failed", "Interrupt", "Ask"),
    "steered": ("Steer",),
    "answered": ("Answer",),
    "pending": ("Ask",),
}
"""By outcome, the verdicts that lead to it, strongest first."""


def decided_by(outcome: str, rulings: list[DecisionRecord]) -> DecisionRecord | None:
    for verdict in _DECIDING.get(outcome, ()):
        for record in rulings:
            if record.verdict == verdict:
                return record
    return None


def decision_attributes(record: DecisionRecord) -> dict[str, Any]:
    done = record.reversible
    found: dict[str, Any] = {
        "beforehand.decision.hook": short(record.hook),
        "beforehand.decision.where": short(record.where),
        "beforehand.decision.seam": record.seam,
        "beforehand.decision.verdict": record.verdict,
        "beforehand.decision.duration": record.duration,
        "beforehand.decision.reversible.requests_sent": done.requests_sent,
        "beforehand.decision.reversible.characters_released": done.characters_released,
        "beforehand.decision.reversible.tools_run": done.tools_run,
    }
    if record.reason is not None:
        found["beforehand.decision.reason"] = short(record.reason, MAX_TEXT)
    if record.digest is not None:
        found["beforehand.decision.digest"] = record.digest
    if record.effects:
        found["beforehand.decision.effects"] = record.effects
    if record.on_error != "closed":
        found["beforehand.decision.on_error"] = record.on_error
    if record.call_id is not None:
        found["gen_ai.tool.call.id"] = short(record.call_id)
    return found


def error_type(error: BaseException) -> str:
    return type(error).__name__


def error_text(error: BaseException) -> str:
    return short(describe(error), MAX_TEXT)
