"""Messages, decisions and results as JSON, and back as they were.

Messages that stand in the history are named by their place there, so that a hook that hands back the whole history with
a note costs a note. What JSON cannot hold (a model or a tool made on the spot) is `Opaque`: a ruling with such a value
cannot be used again, so its hooks are asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from .. import errors
from ..contexts import Context
from ..decisions import (
    Answer, Approve, Ask, Block, Continue, Deny, Edit, Effect, End, HumanAnswer, Interrupt, Queue, Resend, Steer, Verdict,
)  # fmt: skip
from ..errors import HookFailed, RunError
from ..events import DecisionRecord, Irreversible
from ..frozen import FrozenDict, freeze
from ..keys import holds_key
from ..messages import (
    LOST, AssistantMessage, CustomMessage, Message, Options, Request, SystemMessage, ToolMessage, ToolSpec, Usage, UserMessage,
    sealed,
)  # fmt: skip
from ..schema import Rejected, read_object, to_json
from ..tools import ToolResult, as_result
from .body import text_of
from .details import given_back, kept, read_details, write_details
from .withheld import Keep, is_withheld, judged_later, let_pass, lost

_Stored: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage | CustomMessage


class Opaque(Exception):
    """A value that no record can hold."""


def _frozen(kind: type, value: Any) -> Any:
    if kind is FrozenDict:
        return freeze(value)
    raise NotImplementedError


def read(value: Any, kind: Any) -> Any:
    """A decoded record's value as one of our own types."""
    return msgspec.convert(value, kind, dec_hook=_frozen)


def message_of(value: Any) -> Message:
    """A message from its decoded JSON."""
    return sealed(given_back(read(lost(value) if is_withheld(value) else value, _Stored)))


def result_of(value: Any) -> ToolResult:
    """A tool's result from its decoded JSON."""
    result: ToolResult = read(value, ToolResult)
    return as_result(given_back(result))


# --- messages by their place in the history ------------------------------------------------------


def write_messages(messages: Sequence[Message], known: Sequence[Message]) -> list[Any]:
    """Messages as a list of `[first, last + 1]` places in `known`, and of messages that do not stand there."""
    if messages is known:
        return [[0, len(known)]]
    places = {id(message): i for i, message in enumerate(known)}
    written: list[Any] = []
    for message in messages:
        place = places.get(id(message))
        if place is None:
            written.append(kept(message))
        elif written and isinstance(written[-1], list) and written[-1][1] == place:
            written[-1][1] = place + 1
        else:
            written.append([place, place + 1])
    return written


def read_messages(written: Sequence[Any], known: Sequence[Message]) -> tuple[Message, ...]:
    """The messages that `write_messages` wrote."""
    messages: list[Message] = []
    for item in written:
        if isinstance(item, list):
            messages += known[item[0] : item[1]]
        else:
            messages.append(message_of(item))
    return tuple(messages)


# --- what a ruling replaced ----------------------------------------------------------------------


def write_changes(changes: dict[str, Any], run: Any) -> dict[str, Any]:
    """The fields of a ruling's `Replace`s as JSON-shaped data. Raises `Opaque`."""
    return {name: _write_field(name, value, run) for name, value in changes.items() if name != "key"}


def _write_field(name: str, value: Any, run: Any) -> Any:
    if name == "messages" or name == "add_messages":
        return write_messages(value, run.context.view())
    if name == "context":
        return {
            "system": value.system, "messages": write_messages(value.messages, run.context.view()),
            "tools": [_tool_name(tool, run) for tool in value.tools],
        }  # fmt: skip
    if name == "request":
        if holds_key(value.options.provider_params):
            raise Opaque("its provider_params hold what is named like a key, and a key is never written down")
        return {
            "system": value.system, "messages": write_messages(value.messages, run.context.view()), "tools": value.tools,
            "options": value.options,
        }  # fmt: skip
    if name == "model":
        return _model_name(value, run)
    if name == "details":
        return write_details(value)
    return kept(value)


def _tool_name(tool: Any, run: Any) -> str:
    if tool not in run.plan.tools:
        raise Opaque(f"the tool {tool.name!r} is not one of the agent's")
    return str(tool.name)


def _model_name(model: Any, run: Any) -> str | None:
    if model is run.plan.model:
        return None
    name = f"{model.provider}:{model.name}"
    try:
        if run.plan.resolve_model(name) is model:
            return name
    except Exception:  # noqa: S110 - then it is not one that a name gives
        pass
    raise Opaque(f"the model {model!r} is not one that a name gives")


def read_changes(written: dict[str, Any], run: Any) -> dict[str, Any]:
    """What `write_changes` wrote, for the same moment of the same run."""
    return {name: _read_field(name, value, run) for name, value in written.items()}


def _read_field(name: str, value: Any, run: Any) -> Any:
    if name == "messages" or name == "add_messages":
        return read_messages(value, run.context.view())
    if name == "context":
        tools = {tool.name: tool for tool in run.plan.tools}
        return Context(
            value["system"], read_messages(value["messages"], run.context.view()),
            tuple([tools[tool] for tool in value["tools"] if tool in tools]),
        )  # fmt: skip
    if name == "request":
        messages = read_messages(value["messages"], run.context.view())
        return Request(value["system"], messages, read(value["tools"], tuple[ToolSpec, ...]), read(value["options"], Options))
    if name == "model":
        return run.plan.model if value is None else run.plan.resolve_model(value)
    if name == "message":
        return message_of(value)
    if name == "usage":
        return None if value is None else read(value, Usage)
    if name == "content":
        return result_of({"content": value}).content
    if name == "details":
        return read_details(value)
    return freeze(value)


def write_ruling(run: Any, seam: str, ruling: Any, keep: Keep, raw: bool) -> dict[str, Any]:
    """What the hooks of a seam decided; "again", where no record can hold that. Without `raw` nothing that others take out."""
    written: dict[str, Any] = {}
    try:
        if changes := ruling.changes if raw else let_pass(seam, ruling, keep):
            written["changes"] = write_changes(changes, run)
        if ruling.heard:
            withheld = not raw and judged_later(run, seam, ruling.context)
            written["heard"] = [(write_verdict(verdict, withheld), hook.name, hook.where) for verdict, hook in ruling.heard]
    except Opaque:
        return {"again": True}
    return written


# --- verdicts, effects, records, answers ---------------------------------------------------------

_VERDICTS: dict[str, type[Verdict]] = {cls.__name__: cls for cls in (Block, Ask, Steer, Interrupt, End, Continue)}
_ANSWERS: dict[str, type] = {cls.__name__: cls for cls in (Approve, Deny, Edit)}


def write_verdict(verdict: Verdict, withheld: bool = False) -> dict[str, Any]:
    """A refusal, or an answer in place of one: `withheld`, if hooks at 13 are still to judge it. Raises `Opaque`."""
    name = type(verdict).__name__
    if isinstance(verdict, Answer):
        value = verdict.value
        if withheld:
            return {"is": name, "withheld": True}
        if isinstance(value, AssistantMessage):
            return {"is": name, "message": value}
        try:
            return {"is": name, "result": kept(as_result(value))}
        except TypeError as error:
            raise Opaque(str(error)) from None
    return {"is": name, **{field: getattr(verdict, field) for field in verdict.__struct_fields__}}


def read_verdict(written: dict[str, Any]) -> Verdict:
    fields = dict(written)
    name = fields.pop("is")
    if name == "Answer":
        if "message" in fields:
            return Answer(message_of(fields["message"]))
        if is_withheld(fields):
            return Answer(LOST)
        result = result_of(fields["result"])
        return Answer(result.content if result == ToolResult(result.content) else result)
    return read(fields, _VERDICTS[name])  # type: ignore[no-any-return]


def write_effect(effect: Effect) -> dict[str, Any]:
    return {"is": "Queue", "message": kept(effect.message)} if isinstance(effect, Queue) else {"is": "Resend"}


def read_effect(written: dict[str, Any]) -> Effect:
    if written["is"] == "Resend":
        return Resend()
    message = written["message"]
    return Queue(message if isinstance(message, str) else message_of(message))


def write_decision(record: DecisionRecord, call_id: str | None = None) -> dict[str, Any]:
    """A decision's record without what the record around it says already; `call_id` is given where that says nothing of it."""
    written: dict[str, Any] = {} if call_id is None else {"call_id": call_id}
    written |= {f: getattr(record, f) for f in _DECISION_FIELDS if getattr(record, f) not in (None, ())}
    if record.on_error == "closed":
        del written["on_error"]
    seen = record.reversible
    return {**written, "reversible": [seen.requests_sent, seen.characters_released, seen.tools_run]}


_DECISION_FIELDS = tuple(
    f for f in DecisionRecord.__struct_fields__ if f not in ("reversible", "run_id", "loop", "turn", "seam", "call_id")
)


def read_decision(written: dict[str, Any], **around: Any) -> DecisionRecord:
    """A decision's record; `around` are its run_id, loop, turn, seam and call_id."""
    fields = {"reason": None, "digest": None, **around, **written, "reversible": Irreversible(*written["reversible"])}
    fields["effects"] = tuple(fields.get("effects", ()))
    return DecisionRecord(**fields)


Made: TypeAlias = tuple[DecisionRecord | None, list[dict[str, Any]]]
"""One decision, with its effects as they are written. Code that has queued a message has decided nothing."""


def write_made(made: Sequence[Made]) -> dict[str, Any]:
    written: dict[str, Any] = {"decisions": [write_decision(entry) for entry, _ in made if entry is not None]}
    if effects := [effect for _, given in made for effect in given]:
        written["effects"] = effects
    return written


def write_answer(answer: HumanAnswer) -> dict[str, Any]:
    fields = {f: getattr(answer, f) for f in answer.__struct_fields__}
    if isinstance(answer, Edit):
        fields["args"] = _edited(answer.args)
    return {"is": type(answer).__name__, **fields}


def _edited(args: Any) -> Any:
    """The arguments that a person wrote. What JSON cannot hold becomes what every tool refuses, not what one might take."""
    try:
        return read_object(to_json(args))
    except Exception as error:
        why = "; ".join([said for _, said in error.problems]) if isinstance(error, Rejected) else text_of(error)
        return msgspec.json.encode(f"no arguments: {why}").decode()


def read_answer(written: dict[str, Any]) -> HumanAnswer:
    fields = dict(written)
    return read(fields, _ANSWERS[fields.pop("is")])  # type: ignore[no-any-return]


# --- failures ------------------------------------------------------------------------------------

_ERROR_FIELDS = ("hook", "seam", "where", "why", "status", "retry_after", "lasting")


def write_error(error: BaseException) -> dict[str, Any]:
    """A failure: its type, its text, and what tells which kind of failure it was."""
    more = {field: value for field in _ERROR_FIELDS if (value := getattr(error, field, None)) is not None}
    return {"type": type(error).__name__, "text": text_of(error), **more}


def read_error(written: Mapping[str, Any]) -> RunError:
    """A failure as it was recorded. One of a type that is gone is a plain `RunError`."""
    cls = getattr(errors, written["type"], RunError)
    if cls is HookFailed and "hook" in written:
        return HookFailed(written["hook"], written["seam"], written["where"], written["why"])
    if not (isinstance(cls, type) and issubclass(cls, RunError)) or cls is HookFailed:
        return RunError(written["text"])
    error = cls(written["text"])
    for field in ("status", "retry_after", "lasting"):
        if field in written:
            setattr(error, field, written[field])
    return error
