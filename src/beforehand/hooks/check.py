"""Is this something the seam may be told? Everything a hook returns passes here before it counts."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..decisions import Answer, Ask, Block, Decision, Effect, End, Hold, Interrupt, Queue, Replace, Steer, Verdict
from ..errors import RunError
from ..frozen import freeze
from ..history import HistoryView
from ..messages import MESSAGE_TYPES, THINKING_LEVELS, AssistantMessage, Image, Request, Text, Usage, clean, sealed, storable
from ..seams import Context, SeamSpec
from ..tools import Tool
from ..validity import invalid_request, sealed_request


class Refused(Exception):
    """What a hook returned is not one of the things its seam takes. The text completes "hook X ..."."""


class Late(Refused, TimeoutError):
    """A hook gave no answer in time. Unlike other failures, the same call may succeed the next time."""


class EndsRun(Exception):
    """Raised by a hook inside which another hook has failed whose failure must end the run, whatever this one's may."""

    def __init__(self, failure: RunError) -> None:
        super().__init__(str(failure))
        self.failure = failure


def split(spec: SeamSpec, returned: Any) -> tuple[Verdict | None, tuple[Effect, ...]]:
    """The verdict and the effects in what a hook returned. Raises `Refused`."""
    if isinstance(returned, Decision):
        decisions: Sequence[Any] = (returned,)
    elif isinstance(returned, list | tuple):
        decisions = returned
    else:
        raise _undeclared(spec, returned)
    verdict: Verdict | None = None
    effects: list[Effect] = []
    for decision in decisions:
        kind = type(decision)
        if kind in spec.effects:
            effects.append(_check_effect(decision))
        elif kind in spec.verdicts:
            if verdict is not None:
                raise Refused(f"returned two verdicts, {type(verdict).__name__} and {kind.__name__}: a hook gives at most one")
            verdict = _check_verdict(spec, decision)
        else:
            raise _undeclared(spec, decision)
    return verdict, tuple(effects)


def _undeclared(spec: SeamSpec, returned: Any) -> Refused:
    if spec.value is None:  # a key that was returned the wrong way must not be shown
        given = f"a {type(returned).__name__}"
    else:
        given = _short(returned) if isinstance(returned, Decision) else f"the {type(returned).__name__} {_short(returned)}"
    forms = spec.forms()
    may = f"may return None, {', '.join(forms)}" if forms else "may return nothing but None"
    return Refused(f"returned {given}, but a hook at {spec.name} {may}")


def _check_effect(effect: Effect) -> Effect:
    if type(effect) is not Queue:
        return effect
    if isinstance(effect.message, str):
        return Queue(clean(effect.message))
    if not isinstance(effect.message, MESSAGE_TYPES):
        raise Refused(f"returned Queue with a {type(effect.message).__name__}: expected a string or a message")
    try:
        return Queue(sealed(effect.message))
    except ValueError as error:
        raise Refused(f"returned Queue with a message that {error}") from None


def _check_verdict(spec: SeamSpec, verdict: Any) -> Verdict:
    kind = type(verdict)
    if kind is Replace:
        return _check_replace(spec, verdict)
    for field, types_ in _PLAIN.get(kind, {}).items():
        value = getattr(verdict, field)
        if not isinstance(value, types_):
            names = " or ".join("None" if t is types.NoneType else t.__name__ for t in types_)
            raise Refused(f"returned {kind.__name__} with {field}={value!r}: expected {names}")
    if kind is Hold and (isinstance(verdict.n, bool) or verdict.n < 0):
        raise Refused(f"returned Hold({verdict.n!r}): expected a number of characters, at least 0")
    if kind is Interrupt and verdict.keep not in ("nothing", "aborted"):
        raise Refused(f'returned Interrupt with keep={verdict.keep!r}: expected "nothing" or "aborted"')
    if kind is Ask and not isinstance(verdict.options, tuple):
        verdict = Ask(verdict.prompt, tuple(verdict.options))
    if kind is Answer:
        expected = _ANSWERS.get(spec.name)
        if expected is not None and not isinstance(verdict.value, expected):
            names = " or ".join(t.__name__ for t in expected)
            raise Refused(f"returned Answer with a {type(verdict.value).__name__}: an answer at {spec.name} is a {names}")
        if spec.guards == "compaction" and not verdict.value.strip():
            raise Refused("returned Answer with an empty summary: expected the text that stands for the old messages")
        return Answer(_answer_value(verdict.value))
    return _cleaned(verdict)


def _cleaned(verdict: Verdict) -> Verdict:
    """The verdict with texts that can be sent and stored."""
    for field in _TEXTS.get(type(verdict), ()):
        given = getattr(verdict, field)
        texts = tuple(map(storable, given)) if isinstance(given, tuple) else storable(given)
        if texts != given:
            verdict = msgspec.structs.replace(verdict, **{field: texts})
    return verdict


_TEXTS: dict[type, tuple[str, ...]] = {
    Block: ("reason",), End: ("reason",), Ask: ("prompt", "options"), Steer: ("feedback",), Interrupt: ("reason",),
}  # fmt: skip

_ANSWERS: dict[str, tuple[type, ...]] = {"authorize_request": (str, AssistantMessage), "before_compaction": (str,)}

_PLAIN: dict[type, dict[str, tuple[type, ...]]] = {
    Block: {"reason": (str, types.NoneType), "terminate": (bool,)},
    End: {"reason": (str, types.NoneType)},
    Ask: {"prompt": (str,), "options": (tuple, list)},
    Steer: {"feedback": (str,)},
    Hold: {"n": (int,)},
    Interrupt: {"reason": (str, types.NoneType), "resend": (bool,)},
}


def _check_replace(spec: SeamSpec, verdict: Replace) -> Replace:
    allowed = spec.verdicts[Replace]
    given = verdict.fields()
    for name in given:
        if name not in allowed:
            raise Refused(f"returned Replace({name}=...), but a hook at {spec.name} may replace only {', '.join(allowed)}")
    if not given or given.keys() == {"once"} or given.keys() == {"hold"}:
        raise Refused(f"returned a Replace without a value: a hook at {spec.name} may replace {', '.join(allowed)}")
    return Replace(**{name: _CHECKS[name](value) for name, value in given.items()})


def _answer_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    return _sealed(value, "message") if isinstance(value, AssistantMessage) else freeze(value)


# --- the fields of Replace: each check returns the value to use, frozen, or raises Refused ---


def _expect(name: str, what: str, *kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise Refused(f"returned Replace({name}={_short(value)}): expected {what}")
        return value

    return check


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def _messages(name: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if isinstance(value, HistoryView):
            return value
        if not isinstance(value, list | tuple):
            raise Refused(f"returned Replace({name}={_short(value)}): expected a list of messages")
        for i, message in enumerate(value):
            if not isinstance(message, MESSAGE_TYPES):
                raise Refused(
                    f"returned Replace({name}=...) whose item {i} is {_short(message)}: "
                    "expected a message such as UserMessage(...)"
                )
        return tuple([_sealed(message, name) for message in value])

    return check


def _sealed(message: Any, name: str) -> Any:
    try:
        return sealed(message)
    except ValueError as error:
        raise Refused(f"returned Replace({name}=...) with a message that {error}") from None


def _message(value: Any) -> Any:
    if not isinstance(value, MESSAGE_TYPES):
        raise Refused(f"returned Replace(message={_short(value)}): expected a message such as UserMessage(...)")
    return _sealed(value, "message")


def _request(value: Any) -> Any:
    if not isinstance(value, Request):
        raise Refused(f"returned Replace(request={_short(value)}): expected a Request")
    why = invalid_request(value)
    if why is not None:
        raise Refused(f"returned a request that cannot be sent: {why}")
    return sealed_request(value)


def _context(value: Any) -> Any:
    if not isinstance(value, Context):
        raise Refused(f"returned Replace(context={_short(value)}): expected a Context")
    if not isinstance(value.system, str):
        raise Refused(f"returned a context whose system text is a {type(value.system).__name__}: expected a string")
    tools = tuple(value.tools) if isinstance(value.tools, list | tuple) else (value.tools,)
    for tool in tools:
        if not isinstance(tool, Tool):
            raise Refused(f"returned a context whose tools hold {_short(tool)}: expected tools made with @tool")
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise Refused(f"returned a context with two tools named {next(n for n in names if names.count(n) > 1)!r}")
    return Context(clean(value.system), _messages("context")(value.messages), tools)


def _content(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple) and all(isinstance(p, Text | Image) for p in value):
        return tuple([Text(clean(p.text)) if isinstance(p, Text) else p for p in value])
    raise Refused(f"returned Replace(content={_short(value)}): expected a string or a list of Text and Image parts")


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise Refused(f"returned Replace(text={_short(value)}): expected a string")
    return clean(value)


def _args(value: Any) -> Any:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise Refused(f"returned Replace(args={_short(value)}): expected an object of argument names and values")
    return freeze(value)


def _thinking(value: Any) -> Any:
    if value not in THINKING_LEVELS:
        raise Refused(f"returned Replace(thinking_level={_short(value)}): expected one of {', '.join(THINKING_LEVELS)}")
    return value


def _terminate(value: Any) -> Any:
    if not isinstance(value, bool | None):
        raise Refused(f"returned Replace(terminate={_short(value)}): expected True, False or None")
    return bool(value)


def _key(value: Any) -> Any:
    # The value is never shown: it may be most of a real key.
    if value is not None and not isinstance(value, str):
        raise Refused(f"returned Replace(key=...) with a {type(value).__name__}: expected a string or None")
    return value


def _hold(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"returned Replace(hold={_short(value)}): expected a number of characters, at least 0")
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "messages": _messages("messages"),
    "add_messages": _messages("add_messages"),
    "context": _context,
    "model": lambda value: value,  # the run resolves it, and says what it cannot load
    "thinking_level": _thinking,
    "once": _expect("once", "True or False", bool),
    "request": _request,
    "key": _key,
    "text": _text,
    "hold": _hold,
    "message": _message,
    "args": _args,
    "content": _content,
    "details": freeze,
    "structured_content": freeze,
    "is_error": _expect("is_error", "True or False", bool),
    "usage": _expect("usage", "a Usage or None", Usage, types.NoneType),
    "terminate": _terminate,
}
