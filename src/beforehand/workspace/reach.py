"""The part of the bridge that reaches into the run: tools, the model, the queue of messages, and waiting approvals."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from ..calls import Call, NestedResult
from ..decisions import Approve, Deny, Edit, HumanAnswer
from ..detach import in_thread
from ..direct import ask_aside
from ..errors import ConfigError, HookFailed, RequestBlocked
from ..frozen import thaw
from ..messages import Options, Request, UserMessage, clean
from ..sandbox import BridgeRefused
from ..sandbox.values import decode_json
from ..seams import BY_NAME
from ..settings import GRANTED
from ..toolcall import conclude, run_nested
from ..tools import Tool
from ..waits import asking, within
from .caller import Caller, OnRecord
from .codec import from_adf
from .gates import Gates
from .shape import Malformed

ENDED = "The lambda that made this call ended first. What the tool did by then is not known."
UNASKED = "The lambda that made this call ended before a person had answered: it was not run."
UNBEGUN = "The lambda that made this call ended first: it was not run."

# --- tools ---------------------------------------------------------------------------------------

_CODES = {"not_found": "NOT_FOUND", "invalid": "INVALID_INPUT", "blocked": "BLOCKED", "steered": "BLOCKED", "pending": "BLOCKED"}
"""How an outcome that is no result reads in code; any other is a TOOL_ERROR."""


def tool_names(caller: Caller | None, gates: Gates) -> tuple[str, ...]:
    """The tools code may name, whether or not it may call them."""
    if caller is None:
        return ()
    extra = gates.registry if caller.run.loop == "main" else ()
    return (*caller.run.enabled, *extra, *gates.tools)


def find_tool(caller: Caller, gates: Gates, name: str, authorized: bool) -> Tool:
    """The tool that code may call by this name: one that the run has, or the owner keeps for code. Raises `BridgeRefused`."""
    run = caller.run
    gates.check_tool(name, authorized)
    tool = run.enabled.get(name) or (gates.registry.get(name) if run.loop == "main" else None)
    if tool is None:
        raise BridgeRefused("NOT_FOUND", f"there is no method and no tool {name!r} here")
    return tool


async def call_tool(caller: Caller, gates: Gates, name: str, argument: Mapping[str, Any], authorized: bool) -> Any:
    """Call a tool through the pipeline, like any nested call. Its result: data where it gave some, else its text."""
    tool = find_tool(caller, gates, name, authorized)
    call = await caller.next_call(tool, {k: v for k, v in argument.items() if k != "_full"})
    call.whole, call.left = argument.get("_full") is True, caller.errand()
    result = await caller.do(_through_the_pipeline(caller, call, authorized), f"call {call.id} ({name})", call.left)
    caller.failure = caller.failure or call.failure
    if result.is_error:
        raise BridgeRefused(_CODES.get(result.outcome, "TOOL_ERROR"), result.text[:2000])
    return _value(result)


async def _through_the_pipeline(caller: Caller, call: Call, authorized: bool) -> NestedResult:
    call.within = within.get()
    if authorized:
        GRANTED.set(call.id)  # in this task alone: nobody is asked about a restricted tool then
    try:
        return await run_nested(caller.run, call)
    except asyncio.CancelledError:  # the lambda has ended; whoever watches still hears what became of the call
        caller.stopped()
        shown = f"call {call.id} ({call.name})"
        if call.begun:
            await caller.note("Cut", f"{shown} was cancelled because {caller.ended}. What it did by then is not known.", call.id)
        elif call.asked is not None:
            await caller.note("Withdrawn", f"{call.asked_by} had asked a person about {shown}, but {caller.ended}.", call.id)
        else:
            await caller.note("Cut", f"{shown} was not run because {caller.ended}.", call.id)
        inner = [c for c in caller.run.calls.values() if c.id.startswith(f"{call.id}/") and not c.within]
        for cut in (*reversed(inner), call):  # those that it has made itself, too
            if cut.outcome is None:
                cut.settle("aborted", ENDED if cut.begun else UNASKED if cut.asked else UNBEGUN)
            await conclude(caller.run, cut)
        raise OnRecord from None


def _value(result: NestedResult) -> Any:
    """Data as data; text that is JSON as what it says, as the format this bridge follows has it; other text as it is."""
    if result.structured_content is not None:
        return thaw(result.structured_content)
    text = result.text
    try:
        return decode_json(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


# --- the model -----------------------------------------------------------------------------------


async def model_invoke(caller: Caller, argument: Mapping[str, Any]) -> str:
    """Ask the model beside the conversation: seams 7 and 8, and never the hook that asks."""
    run = caller.run
    # Beside the event loop, as there may be any number of messages.
    request = await in_thread(_request, argument) if "messages" in argument else _request(argument)
    model = run.model
    if "model" in argument:
        try:
            model = run.plan.resolve_model(str(argument["model"]))
        except ConfigError as error:
            raise BridgeRefused("INVALID_INPUT", str(error)) from None
    left, by = caller.errand(), caller.next_ask(request, model)

    async def ask() -> str:
        asking.set((run, by))  # in the task of this question alone
        return await ask_aside(run, request, (by, caller.known_as), caller.asking, model, left)

    try:
        return await caller.do(ask(), "adf.model_invoke", left)
    except RequestBlocked as error:
        raise BridgeRefused("BLOCKED", str(error)) from None
    except HookFailed as error:
        caller.failure = caller.failure or error
        raise BridgeRefused("BLOCKED", str(error)) from None
    except BridgeRefused:
        raise
    except Exception as error:
        raise BridgeRefused("MODEL_ERROR", f"{type(error).__name__}: {error}"[:500]) from None


_OPTIONS = {
    "max_tokens": "maxTokens", "temperature": "temperature", "top_p": "topP", "provider_params": "providerParams",
}  # fmt: skip


def _request(argument: Mapping[str, Any]) -> Request:
    if ("messages" in argument) == ("prompt" in argument):
        raise BridgeRefused("INVALID_INPUT", "adf.model_invoke takes messages, or a prompt (and a system text)")
    messages = argument.get("messages", [{"role": "user", "content": argument.get("prompt")}])
    options = {name: argument[key] for key, name in _OPTIONS.items() if key in argument}
    value = {"system": argument.get("system", ""), "messages": messages, "tools": [], "options": options}
    try:
        return from_adf(value, Request("", (), (), Options()))
    except Malformed as error:
        raise BridgeRefused("INVALID_INPUT", f"adf.model_invoke: {error}") from None


# --- messages for the next request ---------------------------------------------------------------


async def loop_inject(caller: Caller, argument: Mapping[str, Any], gates: Gates) -> Any:
    """Queue a message of the user for the next request of this loop. `category` and `key` label its record."""
    content, role = argument["content"], argument.get("role", "user")
    most = 3 * gates.max_result_tokens
    if not isinstance(content, str) or not content.strip():
        raise BridgeRefused("INVALID_INPUT", "'content' must be a text that is not empty")
    if len(content) > most:
        raise BridgeRefused("INVALID_INPUT", f"'content' has {len(content):,} characters, more than {most:,}")
    if role != "user":
        raise BridgeRefused("INVALID_INPUT", f"'role' is {role!r}: only messages of the user can be injected")
    labels = {name: argument[name] for name in ("category", "key") if name in argument}
    for name, label in labels.items():
        if not isinstance(label, str) or not 0 < len(label) <= 200:
            raise BridgeRefused("INVALID_INPUT", f"{name!r} must be a text of at most 200 characters")
    run = caller.run
    message = UserMessage(clean(content), origin="hook")
    run.hook_queue.append(message)
    if run.journal is not None:
        spec = BY_NAME.get(caller.seam)
        about = caller.call_id if spec is None or spec.by_tool else caller.question
        run.journal.queued(caller.seam, about, message, caller.update)
        if caller.update:  # nobody is asked again about the progress of a call that is over
            run.journal.progressed(run, caller.call_id)
    named = "".join(f", {name} {label!r}" for name, label in labels.items())
    await caller.note("Injected", f"a message of {len(content)} characters{named}: {content[:200]}")
    return {"queued": True}


# --- approvals -----------------------------------------------------------------------------------


class Approvals:
    """Questions that wait for an answer. As `Agent(on_ask=...)` it keeps each until somebody calls `resolve`, or
    authorised code `adf.task_resolve`.

    `notify(task_id, pending)` is told of each question. One that is no longer waited for is gone.
    """

    def __init__(self, notify: Any = None) -> None:
        self._notify = notify
        self._waiting: dict[str, tuple[Any, asyncio.Future[HumanAnswer]]] = {}

    async def __call__(self, pending: Any) -> HumanAnswer:
        task_id, number = pending.call_id, 1
        while task_id in self._waiting:
            number += 1
            task_id = f"{pending.call_id}#{number}"
        answer: asyncio.Future[HumanAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[task_id] = (pending, answer)
        try:
            if self._notify is not None:
                told = self._notify(task_id, pending)
                if hasattr(told, "__await__"):
                    await told
            return await answer
        finally:
            del self._waiting[task_id]

    @property
    def waiting(self) -> dict[str, Any]:
        """What is asked, by task id."""
        return {task_id: pending for task_id, (pending, answer) in self._waiting.items() if not answer.done()}

    def resolve(self, task_id: str, answer: HumanAnswer) -> bool:
        """Answer a question. False if nothing waits under this id (any more): it is answered once."""
        _, future = self._waiting.get(task_id, (None, None))
        if future is None or future.done():
            return False
        future.set_result(answer)
        return True


async def task_resolve(caller: Caller, approvals: Approvals | None, argument: Mapping[str, Any]) -> Any:
    if caller.run.loop != "main":
        raise BridgeRefused("DISABLED", "adf.task_resolve is not for inner loops")
    if approvals is None:
        raise BridgeRefused("DISABLED", "nothing here keeps approvals: give the workspace Approvals, and the agent as on_ask")
    task_id, action, reason = argument["task_id"], argument["action"], argument.get("reason")
    if reason is not None and not isinstance(reason, str):
        raise BridgeRefused("INVALID_INPUT", "'reason' must be a text")
    answer: HumanAnswer
    if action == "approve":
        args = argument.get("modified_args")
        if args is not None and not isinstance(args, Mapping):
            raise BridgeRefused("INVALID_INPUT", "'modified_args' must be an object")
        answer = Approve() if args is None else Edit(dict(args))
    elif action == "deny" and "modified_args" not in argument:
        answer = Deny(reason)
    else:
        raise BridgeRefused("INVALID_INPUT", f"action is {action!r}: expected approve (with modified_args?) or deny")
    if not isinstance(task_id, str) or not approvals.resolve(task_id, answer):
        raise BridgeRefused("NOT_FOUND", f"no question waits under {task_id!r}")
    await caller.note("TaskResolved", f"{action} {task_id}" + (f": {reason}" if reason else ""))
    return {"task_id": task_id, "action": action}


__all__ = ["Approvals", "call_tool", "find_tool", "loop_inject", "model_invoke", "task_resolve", "tool_names"]
