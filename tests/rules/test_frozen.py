"""Return, don't mutate: nothing that a hook, a listener or a caller is handed can be changed, however deep it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from beforehand import (
    AssistantMessage, Context, CustomMessage, FrozenError, Hook, Image, Options, Queue, Replace, Request, SystemMessage, Text,
    ToolCall, ToolContext, ToolMessage, ToolResult, Usage, UserMessage, tool,
)  # fmt: skip
from beforehand.frozen import FrozenDict, FrozenList
from beforehand.history import HistoryView
from beforehand.seams import BY_NAME
from beforehand.testing import finish, text, thinking, tool_call
from seams.refusals import REFUSALS
from seams.stage import Stage, first

SEAMS = list(BY_NAME)
DEEP = {"list": [1, {"in": ["deep"]}], "dict": {"in": {"deeper": []}}}
EMPTY_HANDED = (str, int, float, bool, bytes, type(None), type, msgspec.UnsetType)
HANDLES = ("model", "tool", "tools", "signal", "unguarded", "deps")
"""What is no value but a thing to work with."""


def parts_of(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What is directly inside a value, with where."""
    if isinstance(value, dict):
        yield from ((f"{path}[{k!r}]", v) for k, v in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from ((f"{path}[{i}]", v) for i, v in enumerate(value))
    elif isinstance(value, msgspec.Struct):
        # What is computed anew at each reading, such as the list of a message's calls, belongs to the reader.
        computed = [
            n
            for n in dir(type(value))
            if isinstance(getattr(type(value), n), property) and getattr(value, n) is getattr(value, n)
        ]
        yield from ((f"{path}.{n}", getattr(value, n)) for n in (*value.__struct_fields__, *computed) if n not in HANDLES)
    elif type(value).__name__ == "RunInfo":
        names = [n for n in dir(type(value)) if isinstance(getattr(type(value), n), property) and n not in HANDLES]
        yield from ((f"{path}.{n}", getattr(value, n)) for n in names)


def inside(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """A value and everything in it."""
    assert depth < 20, f"{path} has no bottom"
    yield path, value
    for where, part in parts_of(value, path):
        yield from inside(part, where, depth + 1)


DICT_WRITES: dict[str, Callable[[Any], Any]] = {
    "d[k] = v": lambda d: d.__setitem__("k", 1), "del d[k]": lambda d: d.__delitem__(next(iter(d), "k")),
    "update": lambda d: d.update(k=1), "pop": lambda d: d.pop("k", None), "popitem": lambda d: d.popitem(),
    "clear": lambda d: d.clear(), "setdefault": lambda d: d.setdefault("k", 1), "|=": lambda d: d.__ior__({"k": 1}),
}  # fmt: skip
LIST_WRITES: dict[str, Callable[[Any], Any]] = {
    "append": lambda x: x.append(1), "extend": lambda x: x.extend([1]), "insert": lambda x: x.insert(0, 1),
    "pop": lambda x: x.pop(), "remove": lambda x: x.remove(1), "clear": lambda x: x.clear(),
    "sort": lambda x: x.sort(), "reverse": lambda x: x.reverse(), "x[0] = v": lambda x: x.__setitem__(0, 1),
    "del x[0]": lambda x: x.__delitem__(0), "x[:] = v": lambda x: x.__setitem__(slice(None), []),
    "+=": lambda x: x.__iadd__([1]), "*=": lambda x: x.__imul__(2),
}  # fmt: skip


def check_frozen(value: Any, path: str) -> int:
    """Try every way to write to a value and to all that is in it. Returns how many values were tried."""
    tried = 0
    for where, part in inside(value, path):
        if isinstance(part, msgspec.Struct) or type(part).__name__ == "RunInfo":
            for name in getattr(part, "__struct_fields__", ("run_id", "turn", "new_name")):
                with pytest.raises(TypeError):
                    setattr(part, name, None)
                with pytest.raises((TypeError, AttributeError)):
                    delattr(part, name)
        elif isinstance(part, FrozenDict | FrozenList):
            for write in (DICT_WRITES if isinstance(part, dict) else LIST_WRITES).values():
                with pytest.raises(TypeError):
                    write(part)
        elif isinstance(part, HistoryView):
            for name in ("append", "extend", "insert", "clear", "pop"):
                assert not hasattr(part, name), where
            with pytest.raises(TypeError):
                part[0] = None  # type: ignore[index]
        else:
            assert isinstance(part, (*EMPTY_HANDED, tuple)), f"{where} is a {type(part).__name__}, which can be changed"
        tried += 1
    return tried


@tool
async def keep(data: dict[str, Any], ctx_free: list[int] | None = None) -> ToolResult:
    """Keep some data."""
    return ToolResult([Text("kept")], details=DEEP, structured_content=DEEP, usage=Usage(1, 1))


def rich_stage(*hooks: Hook, **stage: Any) -> Stage:
    """A stage where every kind of message and every nested value occurs."""
    return Stage(
        *hooks, tools=[keep],
        replies=[
            [thinking("Hm."), text("Let me see."), tool_call("keep", {"data": DEEP}), finish(usage=Usage(10, 5))],
            text("All done."), text("A summary."),
        ],
        messages=[
            SystemMessage("Be good."), UserMessage([Text("See"), Image(url="data:,")]),  # type: ignore[arg-type]
            AssistantMessage([Text("I call."), ToolCall("old-1", "keep", '{"data": {"a": [1]}}')]),  # type: ignore[arg-type]
            ToolMessage("old-1", "keep", [Text("kept")], details=DEEP), CustomMessage("note", [Text("Mind.")], details=DEEP),  # type: ignore[arg-type]
            AssistantMessage((Text("Done."),)),
        ],
        options=Options(provider_params=DEEP, stop=["."]),  # type: ignore[arg-type]
        **stage,
    )  # fmt: skip


@pytest.mark.parametrize("seam", SEAMS)
async def test_nothing_in_a_context_can_be_changed(seam: str) -> None:
    contexts: list[Any] = []
    stage = rich_stage(Hook(seam=seam, fn=contexts.append))
    await stage.run([CustomMessage("note", details=DEEP), UserMessage([Text("Begin")])])  # type: ignore[arg-type]
    if seam == "before_compaction":
        await stage.talk.compact(keep=2)
    assert contexts, "the seam was passed"
    assert stage.result.stop_reason == "completed"
    for context in contexts:
        assert check_frozen(context, seam) > 3


async def test_nothing_in_a_result_can_be_changed() -> None:
    stage = rich_stage(Hook(seam="before_tool_call", fn=lambda _: Queue("A note.")))
    await stage.run()
    assert check_frozen(stage.result, "result") > 50


async def test_nothing_in_an_event_can_be_changed() -> None:
    stage = rich_stage(Hook(seam="before_tool_call", fn=lambda _: Queue("A note.")))
    await stage.run([CustomMessage("note", details=DEEP), UserMessage("Begin")])
    assert {event.type for event in stage.events} >= {
        "message_start",
        "tool_execution_start",
        "tool_execution_end",
        "decision",
        "agent_end",
    }
    for event in stage.events:
        check_frozen(event, event.type)


async def test_the_messages_of_a_conversation_cannot_be_changed() -> None:
    stage = rich_stage()
    await stage.run()
    assert check_frozen(stage.talk.messages, "messages") > 20


@pytest.mark.parametrize("seam", SEAMS)
async def test_a_hook_that_edits_in_place_fails_and_is_told_to_return_a_decision(seam: str) -> None:
    def guard(context: Any) -> None:
        context.run = None

    _, said = await REFUSALS[seam](Hook(seam=seam, fn=guard), True)
    assert "guard" in said
    assert ("FrozenError" if seam == "get_api_key" else "return a decision instead") in said, (
        "what is raised about a key is never quoted"
    )


def test_the_error_of_a_write_says_what_is_frozen_and_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"UserMessage\.content is frozen: return a decision"):
        UserMessage("Begin").content = "Other"  # type: ignore[misc]
    assert issubclass(FrozenError, TypeError)


# --- what a hook keeps a reference to ------------------------------------------------------------


async def test_a_value_that_a_hook_returned_and_changes_later_stays_as_it_was_judged() -> None:
    """Behind the gate nothing changes any more, also not through a list that an earlier hook still holds."""
    messages: list[Any] = [UserMessage("Judged")]
    tools: list[Any] = []
    judged: list[list[str]] = []

    def shape(call: Any) -> Replace:
        return Replace(request=Request("", messages, tools))  # type: ignore[arg-type]

    def gate(outgoing: Any) -> None:
        judged.append([m.text for m in outgoing.request.messages])
        messages.append(UserMessage("Smuggled"))

    stage = await Stage(first("before_provider_call", shape), first("authorize_request", gate)).run()
    assert (judged, stage.asked(0)) == ([["Judged"]], [("user", "Judged")])


async def test_the_gate_of_a_request_cannot_change_it_through_what_it_is_handed() -> None:
    def shape(call: Any) -> Replace:
        return Replace(request=Request("", [UserMessage("Judged")], []))  # type: ignore[arg-type]

    def gate(outgoing: Any) -> None:
        check_frozen(outgoing, "authorize_request")

    stage = await Stage(first("before_provider_call", shape), first("authorize_request", gate)).run()
    assert (stage.result.stop_reason, stage.asked(0)) == ("completed", [("user", "Judged")])


async def test_arguments_that_a_hook_returned_and_changes_later_stay_as_they_were_judged() -> None:
    args: dict[str, Any] = {"n": 2}
    judged: list[int] = []

    def gate(call: Any) -> None:
        judged.append(call.args["n"])
        args["n"] = 3

    stage = await Stage(first("prepare_tool_call", Replace(args=args)), first("before_tool_call", gate)).run()
    assert (judged, stage.bodies) == ([2], [2])


async def test_a_result_that_a_hook_returned_and_changes_later_stays_as_it_was() -> None:
    details: dict[str, Any] = {"seen": [1]}
    content: list[Any] = [Text("Other")]

    def later(turn: Any) -> None:
        details["seen"].append(2)
        content.append(Text(" and more"))

    stage = await Stage(first("after_tool_call", Replace(details=details, content=content)), first("finish_turn", later)).run()
    assert (stage.results[0].details, stage.results[0].text) == ({"seen": [1]}, "Other")


@pytest.mark.parametrize("seam", ["before_run", "on_message", "prepare_next_turn"])
async def test_a_message_that_a_hook_made_and_changes_later_stays_as_it_was_stored(seam: str) -> None:
    content: list[Any] = [Text("Stored")]
    message = UserMessage(content)  # type: ignore[arg-type]
    decision = {
        "before_run": Replace(messages=[message]),
        "on_message": Replace(message=message),
        "prepare_next_turn": Replace(add_messages=[message]),
    }
    stage = await Stage(first(seam, decision[seam])).run()
    content.append(Text(" and more"))
    assert ("user", "Stored") in stage.history


async def test_a_queued_message_that_its_hook_changes_later_stays_as_it_was() -> None:
    content: list[Any] = [Text("Stored")]

    def gate(call: Any) -> Queue:
        return Queue(UserMessage(content))  # type: ignore[arg-type]

    stage = await Stage(
        first("before_tool_call", gate), first("after_tool_call", lambda _: content.append(Text(" and more")))
    ).run()
    assert ("user", "Stored") in stage.history


async def test_a_context_that_a_hook_made_and_changes_later_stays_as_it_was() -> None:
    messages: list[Any] = [UserMessage("Planned")]

    def plan(plan: Any) -> Replace:
        return Replace(context=Context("", messages, plan.context.tools))

    stage = await Stage(
        first("prepare_request", plan), first("authorize_request", lambda _: messages.append(UserMessage("Smuggled")))
    ).run()
    assert stage.asked(0) == [("user", "Planned")]


async def test_a_prompt_that_its_caller_changes_later_stays_as_it_was_stored() -> None:
    content: list[Any] = [Text("Begin")]
    details: dict[str, Any] = {"seen": [1]}
    stage = await Stage().run([CustomMessage("note", details=details), UserMessage(content)])  # type: ignore[arg-type]
    content.append(Text(" and more"))
    details["seen"].append(2)
    assert stage.history[1] == ("user", "Begin")
    assert stage.talk.messages[0].details == {"seen": [1]}


# --- a tool's own copy ---------------------------------------------------------------------------


@pytest.mark.parametrize("hooked", [True, False])
async def test_a_tool_gets_ordinary_values_of_its_own_and_may_change_them(hooked: bool) -> None:
    got: list[Any] = []

    @tool
    async def change(data: dict[str, list[int]], more: list[dict[str, int]]) -> str:
        assert (type(data), type(data["a"]), type(more), type(more[0])) == (dict, list, list, dict)
        data["a"].append(9)
        more.clear()
        got.append((data, more))
        return "changed"

    seen: list[Any] = []
    hooks = [
        Hook(seam="before_tool_call", fn=lambda call: seen.append((call, dict(call.args)))),
        Hook(seam="after_tool_call", fn=lambda outcome: seen.append((outcome, dict(outcome.args)))),
    ]
    args = {"data": {"a": [1]}, "more": [{"b": 2}]}
    stage = await Stage(*(hooks if hooked else []), tools=[change], replies=[tool_call("change", args), text("All done.")]).run()
    assert got == [({"a": [1, 9]}, [])]
    assert [(dict(context.args), before) for context, before in seen] == ([(args, args)] * 2 if hooked else [])
    assert stage.talk.messages[1].tool_calls[0].args == args
    assert stage.heard("tool_execution_start")[0].args == args


async def test_two_tools_of_one_batch_share_nothing() -> None:
    got: list[list[int]] = []

    @tool
    async def add(data: list[int]) -> str:
        data.append(9)
        got.append(data)
        return "added"

    fixed = Replace(args={"data": [1]})
    stage = Stage(
        Hook(seam="prepare_tool_call", fn=lambda _: fixed),
        tools=[add],
        replies=[[tool_call("add", {"data": []})] * 2, text("All done.")],
    )
    await stage.run()
    assert got == [[1, 9], [1, 9]]
    assert got[0] is not got[1]


async def test_what_a_nested_call_was_given_stays_as_it_was_judged() -> None:
    """The caller may change its own dict while the gate of the nested call is being asked."""
    judged: list[Any] = []
    inner: list[Any] = []

    @tool
    async def kept(data: list[int]) -> str:
        inner.append(data)
        return "kept"

    @tool
    async def outer(ctx: ToolContext) -> str:
        given.append({"data": [1]})
        return str((await ctx.call_tool("kept", given[0])).text)

    given: list[dict[str, Any]] = []

    def gate(call: Any) -> None:
        judged.append(list(call.args["data"]))
        given[0]["data"].append(2)

    hook = Hook(seam="before_tool_call", fn=gate, tools=("kept",))
    await Stage(hook, tools=[kept, outer], replies=[tool_call("outer"), text("All done.")]).run()
    assert (judged, inner) == ([[1]], [[1]])
