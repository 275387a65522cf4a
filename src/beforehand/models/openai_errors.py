"""What an OpenAI-compatible endpoint says when it does not answer, as one of our typed errors.

The status decides, then the `code` and `type` fields; free text is read only where an endpoint sends no code at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from ..errors import (
    AuthenticationError,
    BadRequest,
    ContextTooLong,
    InvalidResponse,
    ModelError,
    RateLimited,
    ServerError,
    ToolMismatch,
)
from .http import Failure, Secrets, shown
from .openai_wire import UNDECODABLE

_decode = msgspec.json.Decoder().decode

_CONTEXT = {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "model_max_length_exceeded"}
_CONTEXT_WORDS = ("context length", "context window", "context size", "too many tokens", "token count", "prompt is too long")
_MISMATCH_WORDS = (
    "tool_call_id", "tool_calls", "tool_use", "tool_result", "role 'tool'", 'role "tool"', "function calls and responses",
    "function response parts",
)  # fmt: skip
"""No endpoint has a code for this."""
_AUTHENTICATION = {"invalid_api_key", "authentication_error", "permission_error", "permission_denied", "invalid_authentication"}
_RATE = {"rate_limit_exceeded", "rate_limit_error", "too_many_requests", "insufficient_quota", "billing_hard_limit_reached"}
_SERVER = {"server_error", "internal_error", "internal_server_error", "api_error", "overloaded_error", "service_unavailable"}
_LASTING = {"insufficient_quota", "billing_hard_limit_reached"}  # waiting does not help
_REQUEST = {"invalid_request_error", "invalid_request", "bad_request_error", "not_found_error", "model_not_found"}
# They name no reason:
_GENERIC = {
    "invalid_request_error", "bad_request_error", "badrequesterror", "error", "bad_request", "invalid_argument",
    "invalid_parameter_error",
}  # fmt: skip


class Place(NamedTuple):
    """Where a failure happened, for its message: what was asked, and what must not be repeated."""

    endpoint: str
    model: str
    secrets: Secrets


class _Said(NamedTuple):
    """What an error body says: its codes as they came (`named`) and in lower case, numeric ones apart."""

    message: str
    named: tuple[str, ...] = ()
    status: int | None = None

    @property
    def codes(self) -> set[str]:
        return {name.lower() for name in self.named}


def from_status(place: Place, status: int, headers: Mapping[str, str], body: bytes, retry_after: float | None) -> Failure:
    """The failure that an answer with an error status means."""
    if 300 <= status < 400:
        return Failure(_redirected(place, status, headers.get("location", "")), False)
    said = _read(body)
    error = _build(place, status, said, f"answered {status}")
    error.retry_after = retry_after
    if isinstance(error, AuthenticationError | ContextTooLong) or said.codes & _LASTING:
        return Failure(error, False)
    advice = headers.get("x-should-retry")
    return Failure(error, advice == "true" if advice in ("true", "false") else status in (408, 409, 429) or status >= 500)


def from_payload(place: Place, payload: Any, status: int = 200) -> Failure:
    """The failure that an error object inside a successful answer means; `status` is that of the answer."""
    said = _said(payload)
    meant = _status_of(said) if said.status is None else said.status
    error = _build(place, meant, said, "reported an error in its reply")
    error.status = status
    return Failure(error, isinstance(error, RateLimited | ServerError) and not said.codes & _LASTING)


def is_error(payload: Any) -> bool:
    """Whether a decoded answer without choices is an error report."""
    if not isinstance(payload, dict):
        return False
    if payload.get("error"):
        return True
    return "choices" not in payload and ("message" in payload or "detail" in payload or payload.get("object") == "error")


def not_a_reply(place: Place, status: int, content_type: str, body: bytes, why: str) -> Failure:
    """The failure that a successful answer means which is not a reply."""
    came = shown(body[:4096].decode("utf-8", "replace"), place.secrets)
    kind = shown(content_type or "no content type", place.secrets)
    hint = "check base_url (does it end in /v1?) and what stands between" if body else "check the server's own log"
    error = InvalidResponse(f"{place.endpoint} answered {status} with {why} ({kind}): {came or 'nothing'}; {hint}", status=status)
    return Failure(error, False)


def _redirected(place: Place, status: int, location: str) -> BadRequest:
    location = place.secrets.hide(location)
    try:
        host = urlsplit(location).hostname or urlsplit(place.endpoint).hostname
    except ValueError:
        host = None
    to = f"redirects to {shown(host or '', place.secrets)}" if location and host else "redirects without saying where"
    return BadRequest(
        f"{place.endpoint} answered {status}: it {to}; redirects are not followed, since they leave the authorised endpoint: "
        "set base_url to the address that answers",
        status=status,
    )


def _read(body: bytes) -> _Said:
    try:
        payload = _decode(body)
    except UNDECODABLE:
        return _Said(body[:4096].decode("utf-8", "replace"))
    said = _said(payload)
    return said if said.message else said._replace(message=body[:4096].decode("utf-8", "replace"))


def _said(payload: Any) -> _Said:
    """Reads `{"error": {...}}`, `{"error": "text"}`, `{"message": ...}`, `{"detail": ...}` and lists of one of these."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    source = payload.get("error") or payload if isinstance(payload, dict) else payload
    if not isinstance(source, dict):
        return _Said(source if isinstance(source, str) else _text(source))
    message = source.get("message") or source.get("detail") or source.get("msg") or ""
    named: list[str] = []
    status = None
    for value in (source.get("code"), source.get("type"), source.get("status")):
        if isinstance(value, int) or (isinstance(value, str) and value.isdecimal() and len(value) < 9):
            status = int(value) if status is None and 400 <= int(value) < 600 else status
        elif isinstance(value, str) and value:
            named.append(value)
    return _Said(message if isinstance(message, str) else _text(message), tuple(named), status)


def _text(value: Any) -> str:
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _status_of(said: _Said) -> int:
    """The status an error object would have come with, had the endpoint not said 200 before. 500 if nothing tells."""
    codes = said.codes
    if codes & _AUTHENTICATION:
        return 401
    if codes & _RATE:
        return 429
    if codes & _SERVER:
        return 500
    if codes & (_CONTEXT | _REQUEST):
        return 400
    return 500


def _build(place: Place, status: int, said: _Said, how: str) -> ModelError:
    """The error that `status` and what was said stand for; `how` it was said opens the message."""
    named = shown(", ".join(said.named), place.secrets)
    message = shown(said.message, place.secrets) or "no explanation"
    message = message if message.endswith("..") else message.removesuffix(".")
    line = f"{place.endpoint} {how}{f' [{named}]' if named else ''}: {message}"
    if status == 413 or (400 <= status < 500 and status != 429 and _is_context(said)):
        return ContextTooLong(f"{line}; shorten or compact the conversation", status=status)
    if status in (401, 403) or (status < 500 and said.codes & _AUTHENTICATION):
        return AuthenticationError(f"{line}; check the key: api_key=, OPENAI_API_KEY or a get_api_key hook", status=status)
    if status == 429:
        lasting = bool(said.codes & _LASTING)
        limited = RateLimited(f"{line}; {'the quota is used up' if lasting else 'send less at once, or wait'}", status=status)
        limited.lasting = lasting
        return limited
    if status >= 500:
        return ServerError(f"{line}; try again later", status=status)
    if status == 404:
        return BadRequest(f"{line}; check base_url and the model name {place.model!r}", status=status)
    if status in (400, 422) and _is_mismatch(said):
        return ToolMismatch(f"{line}; the tool calls and results of the request need mending", status=status)
    return BadRequest(f"{line}; the request needs changing", status=status)


def _is_context(said: _Said) -> bool:
    return _means(said, _CONTEXT, _CONTEXT_WORDS)


def _is_mismatch(said: _Said) -> bool:
    return _means(said, set(), _MISMATCH_WORDS)


def _means(said: _Said, codes: set[str], words: Iterable[str]) -> bool:
    """Whether one of the codes was named, or one of the words said where no code tells of another reason."""
    if said.codes & codes:
        return True
    if said.codes - _GENERIC:  # it named another reason
        return False
    return any(word in said.message.lower() for word in words)
