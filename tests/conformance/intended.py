"""What we want instead, where we do not do what was recorded.

Each function turns a recording into the one that our run must equal, entry for entry. So a listed deviation is no licence:
whatever the function leaves alone is compared as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from conformance.compare import Says
from conformance.recording import Entry, Recording, load

Edit = Callable[[Recording], None]


# --- finding one's way in a recording --------------------------------------------------------------


def place(trace: list[Entry], after: int = 0, **fields: Any) -> int:
    """The index of the first entry at or after `after` that has these fields."""
    return next(i for i in range(after, len(trace)) if all(trace[i].get(k, ...) == v for k, v in fields.items()))


def stored(recording: Recording, **fields: Any) -> Iterator[Entry]:
    """Everywhere a message with these fields appears: in events, requests and the transcript."""
    for message in [*recording.trace, *recording.transcript, *[m for request in recording.requests for m in request["messages"]]]:
        if all(message.get(k, ...) == v for k, v in fields.items()):
            yield message


def rewrite(value: Any, change: Callable[[str], Any]) -> Any:
    """`value` with every string in it changed."""
    if isinstance(value, dict):
        return {k: rewrite(v, change) for k, v in value.items()}
    if isinstance(value, list):
        return [rewrite(v, change) for v in value]
    return change(value) if isinstance(value, str) else value


def relabel(recording: Recording, old: str, new: str) -> None:
    recording.trace = rewrite(recording.trace, lambda text: new if text == old else text)


# --- aborts ----------------------------------------------------------------------------------------


def no_request_after_the_abort(recording: Recording) -> None:
    """The turn in which the abort came is the last: nothing of the request that pi makes then happens."""
    trace = recording.trace
    end = place(trace, after=place(trace, action="abort"), event="turn_end")
    made = [entry for entry in trace[:end] if entry.get("hook") == "finishTurn"][-1]["newMessages"]
    recording.trace = [*trace[: end + 1], {"event": "agent_end", "messages": made}, trace[-1]]
    recording.requests.pop()
    del recording.transcript[1 + len(made) :]
    recording.final_state["errorMessage"] = None


def _aborted_result(call_id: str) -> Entry:
    return {"role": "toolResult", "text": "Operation aborted", "toolCallId": call_id, "toolName": "write", "isError": True}


def _announced_and_aborted(call_id: str) -> list[Entry]:
    about = {"id": call_id, "name": "write"}
    return [
        {"event": "tool_execution_start", **about, "args": {"path": "a.txt"}, "pending": [call_id]},
        {"event": "tool_execution_end", **about, "result": {"text": "Operation aborted"}, "isError": True, "pending": []},
    ]


def _with_results_of_the_others(recording: Recording, one_by_one: bool) -> None:
    """Calls c2 and c3 are announced, and get a result that says they were aborted."""
    no_request_after_the_abort(recording)
    trace = recording.trace
    after_end = place(trace, event="tool_execution_end") + 1
    after_result = after_end + 2
    messages = {c: [{"event": kind, **_aborted_result(c)} for kind in ("message_start", "message_end")] for c in ("c2", "c3")}
    if one_by_one:
        trace[after_result:after_result] = [e for c in messages for e in [*_announced_and_aborted(c), *messages[c]]]
    else:
        trace[after_result:after_result] = [e for c in messages for e in messages[c]]
        trace[after_end:after_end] = [e for c in messages for e in _announced_and_aborted(c)]
    finish, end = place(trace, hook="finishTurn"), place(trace, event="turn_end")
    for i, key in ((finish, "toolResults"), (finish, "newMessages"), (end, "toolResults"), (end + 1, "messages")):
        trace[i][key] = [*trace[i][key], "toolResult:c2:error", "toolResult:c3:error"]
    trace[finish]["context_roles"] += ["toolResult", "toolResult"]
    recording.transcript += [_aborted_result("c2"), _aborted_result("c3")]


def aborted_one_by_one(recording: Recording) -> None:
    _with_results_of_the_others(recording, one_by_one=True)


def aborted_together(recording: Recording) -> None:
    _with_results_of_the_others(recording, one_by_one=False)


def aborted_before_the_request(recording: Recording) -> None:
    """The turn ends without a reply, and no record of one is stored."""
    trace = recording.trace
    lost = min(i for i, entry in enumerate(trace) if "provider" in entry or entry.get("role") == "assistant")
    turn = {"stopReason": None, "toolResults": [], "newMessages": ["user"], "context_roles": ["system", "user"]}
    recording.trace = [
        *trace[:lost],
        {"hook": "finishTurn", **turn},
        {"event": "turn_end", "message": None, "toolResults": []},
        {"event": "agent_end", "messages": ["user"]},
        trace[-1],
    ]
    recording.requests.clear()
    del recording.transcript[2:]
    recording.final_state["errorMessage"] = None


# --- listeners, and hooks that do what they may not --------------------------------------------------


def as_if_nobody_had_listened(recording: Recording) -> None:
    """The same run without the failing listener is recorded too."""
    undisturbed = load("001-hook-order-one-tool")
    assert (recording.script, recording.tools) == (undisturbed.script, undisturbed.tools)
    for part in ("trace", "requests", "transcript", "tool_runs", "final_state"):
        setattr(recording, part, getattr(undisturbed, part))


def refused(*words: str) -> Edit:
    """The gate has failed: call c1 does not run, and its result says why in these words."""

    def edit(recording: Recording) -> None:
        recording.trace = [e for e in recording.trace if "tool" not in e and e.get("hook") != "afterToolCall"]
        _change_result(recording, Says(*words), is_error=True)
        relabel(recording, "toolResult:c1", "toolResult:c1:error")
        recording.tool_runs["write"] = 0

    return edit


def _change_result(recording: Recording, text: str, is_error: bool) -> None:
    """Give c1 another result, wherever it is mentioned."""
    for message in stored(recording, role="toolResult", toolCallId="c1"):
        message |= {"text": text, "isError": is_error}
    for entry in recording.trace:
        if entry.get("id") == "c1" and "result" in entry:
            entry |= {"result": {"text": text}, "isError": is_error}


def refused_and_the_message_untouched(recording: Recording) -> None:
    refused("ToolCall.arguments is frozen")(recording)
    recording.requests = rewrite(recording.requests, lambda text: "a.txt" if text == "mutated" else text)
    recording.transcript = rewrite(recording.transcript, lambda text: "a.txt" if text == "mutated" else text)


# --- tools ---------------------------------------------------------------------------------------


def an_empty_result(recording: Recording) -> None:
    _change_result(recording, "", is_error=False)
    relabel(recording, "toolResult:c1:error", "toolResult:c1")


def nested_ids_from_the_parents(recording: Recording) -> None:
    """The first call made inside c1 is c1.1 and not n1."""
    parent = ""
    for i, entry in enumerate(recording.trace):
        parent = entry["id"] if entry.get("event") == "tool_execution_start" else parent
        recording.trace[i] = rewrite(entry, _renaming(parent))
    for message in stored(recording, role="toolResult"):
        message["text"] = _renaming(message["toolCallId"])(message["text"])


def _renaming(parent: str) -> Callable[[str], str]:
    return lambda text: f"{parent}/1" if text == "n1" else text.replace('"id":"n1"', f'"id":"{parent}/1"')


def truncated_in_our_words(recording: Recording) -> None:
    text = Says("write", "was not run", "length limit")
    for message in stored(recording, role="toolResult"):
        message["text"] = text
    for entry in recording.trace:
        if "result" in entry:
            entry["result"] = {"text": text}


# --- requests and replies --------------------------------------------------------------------------


def tools_with_the_request(recording: Recording) -> None:
    """No message announces tools; each request carries those that the run has then."""
    recording.trace = [e for e in recording.trace if not (e.get("event", "").startswith("message_") and "toolsAdded" in e)]
    for entry in recording.trace:
        for key in ("roles", "context_roles"):
            if key in entry:
                entry[key] = ["system", *[role for role in entry[key] if role != "system"]]
        for key in ("newMessages", "messages"):
            if key in entry:
                entry[key] = [label for label in entry[key] if label != "system"]
    tools = recording.transcript[0]["toolsAdded"]
    for request in recording.requests:
        first, *rest = request["messages"]
        declared = [tools, *[m["toolsAdded"] for m in rest if m["role"] == "system"]]
        request["messages"] = [first | {"toolsAdded": declared[-1]}, *[m for m in rest if m["role"] != "system"]]
    recording.transcript[1:] = [m for m in recording.transcript[1:] if m["role"] != "system"]


def no_calls_in_a_failed_reply(recording: Recording) -> None:
    recording.trace = [e for e in recording.trace if e.get("update") != "toolcall_delta"]
    for message in stored(recording, role="assistant", stopReason="error"):
        message.pop("tool_calls", None)


def every_failure_of_a_model_is_the_same(recording: Recording) -> None:
    """Whatever a model raises ends the turn as a failed reply does: the record is a reply's, and the turn is finished."""
    for message in stored(recording, role="assistant", stopReason="error"):
        message["thinkingLevel"] = "off"
    ends = [i for i, entry in enumerate(recording.trace) if entry.get("event") == "turn_end"]
    for turn, i in reversed(list(enumerate(ends, 1))):
        finish = {"stopReason": "error", "toolResults": [], "newMessages": ["user", "assistant:error"]}
        recording.trace.insert(i, {"hook": "finishTurn", **finish, "context_roles": ["system", *["user", "assistant"] * turn]})


def cut_is_an_error(recording: Recording) -> None:
    """The reply that never ended is a failed one, and the run is over."""
    trace = recording.trace
    call = place(trace, provider=1)
    record = {
        "role": "assistant", "text": "", "stopReason": "error", "model": "cheap", "thinkingLevel": "off",
        "errorMessage": Says("ended without a stop reason"),
    }  # fmt: skip
    trace[call] |= {"reasoning": None, "apiKey": None, "roles": ["system", "user"]}
    trace[call + 1 :] = [
        {"event": "message_start", **record},
        {"event": "message_end", **record},
        {
            "hook": "finishTurn", "stopReason": "error", "toolResults": [], "newMessages": ["user", "assistant:error"],
            "context_roles": ["system", "user", "assistant"],
        },
        {"event": "turn_end", "message": "assistant:error", "toolResults": []},
        {"event": "agent_end", "messages": ["user", "assistant:error"]},
        {"settled": 'prompt("go")', "ok": True, "isStreaming": False},
    ]  # fmt: skip
    model = {"model": "cheap", "provider": "scripted", "reasoning": None, "apiKey": None}
    recording.requests.append({"call": 1, **model, "messages": list(recording.transcript)})
    recording.transcript.append(record)
    recording.final_state |= {"isStreaming": False, "errorMessage": record["errorMessage"]}


# --- calls at the wrong moment ---------------------------------------------------------------------


def busy_in_our_words(recording: Recording) -> None:
    """A second run is refused; there is no reset to be refused."""
    recording.trace = [e for e in recording.trace if "error" not in e or "settled" in e]
    for entry in recording.trace:
        if entry.get("ok") is False:
            entry["error"] = Says("already processing a prompt", "steer()", "follow_up()")


def continued_after_the_failure(recording: Recording) -> None:
    """continue() makes the failed request again, and gets the reply that the next prompt gets in pi; that one gets another."""
    recording.script.append({"text": "more", "stop": "stop"})
    trace, [failed, answered] = recording.trace, recording.requests
    refusal, prompt = place(trace, settled="continue()"), place(trace, action='prompt("again")')
    *before, said = answered["messages"]
    fine = recording.transcript[-1]
    more = {**fine, "text": "more"}
    continued = [
        _with(e, roles=_without(3), context_roles=_without(3), newMessages=_without(0), messages=_without(0))
        for e in [*trace[prompt + 1 : -1], {**trace[-1], "settled": "continue()"}]
        if e.get("role") != "user"
    ]
    asked = [
        _with(e, roles=_one_reply_longer, context_roles=_one_reply_longer, provider=_always(3), text=_more, delta=_more)
        for e in trace[prompt:]
    ]
    recording.trace = [*trace[:refusal], *continued, *asked]
    recording.transcript[-2:] = [fine, said, more]
    recording.requests = [
        failed, {**answered, "messages": before}, {**answered, "call": 3, "messages": [*before, fine, said]},
    ]  # fmt: skip


def _with(entry: Entry, **changes: Callable[[Any], Any]) -> Entry:
    return {key: changes[key](value) if key in changes else value for key, value in entry.items()}


def _without(index: int) -> Callable[[list[str]], list[str]]:
    return lambda values: [value for i, value in enumerate(values) if i != index]


def _one_reply_longer(roles: list[str]) -> list[str]:
    return [*roles[:3], "assistant", *roles[3:]]


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _more(text: str) -> str:
    return "more" if text == "fine" else text


INTENDED: dict[str, Edit] = {
    "009-terminate-without-block": refused("Replace(terminate=True)", "a hook at before_tool_call may return", "Block(reason)"),
    "022-throw-listener": as_if_nobody_had_listened,
    "024-args-mutation": refused("dict is frozen"),
    "025-args-mutation-toolcall": refused_and_the_message_untouched,
    "036-prepareRequest-context-replace": tools_with_the_request,
    "045-nested-runToolCall": nested_ids_from_the_parents,
    "062-abort-during-tool": no_request_after_the_abort,
    "064-abort-parallel-two": no_request_after_the_abort,
    "065-abort-sequential-first": aborted_one_by_one,
    "066-abort-in-beforeToolCall": aborted_together,
    "068-abort-in-prepareRequest": aborted_before_the_request,
    "069-abort-and-hook-throws": aborted_before_the_request,
    "070-abort-in-afterToolCall": no_request_after_the_abort,
    "072-provider-error-mid-stream": no_calls_in_a_failed_reply,
    "073-provider-throws": every_failure_of_a_model_is_the_same,
    "074-error-then-continue-and-prompt": continued_after_the_failure,
    "076-length-stop-with-tools": truncated_in_our_words,
    "082-prompt-while-running": busy_in_our_words,
    "086-tools-changed-mid-run": tools_with_the_request,
    "097-result-undefined": an_empty_result,
    "098-throw-listener-tool-end": as_if_nobody_had_listened,
    "100-abort-in-finishTurn": no_request_after_the_abort,
    "101-abort-with-queued-steering": no_request_after_the_abort,
    "104-prepareNextTurn-tools-replace": tools_with_the_request,
}
"""For each listed deviation, what we want."""

EITHER_WAY: dict[str, Edit] = {"094-stream-without-terminal-event": cut_is_an_error}
"""Recordings that bind nobody where they differ from this; so these are no deviations."""
