"""Hooks are asked by `order`, then in the order in which they were registered; `final` ones last."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Hook, HookDefinitionError, Interrupt, hook
from beforehand.seams import BY_NAME
from beforehand.testing import ScriptedModel, text
from seams.refusals import OLD
from seams.stage import ONLY_TEXT, Stage, play


def watching(log: list[str], name: str, seam: str = "before_tool_call", **options: Any) -> Hook:
    return Hook(seam=seam, fn=lambda _: log.append(name), name=name, **options)


@pytest.mark.parametrize("seam", BY_NAME)
async def test_at_every_seam_hooks_are_asked_by_order_then_as_registered(seam: str) -> None:
    log: list[str] = []
    hooks = [
        watching(log, "third", seam), watching(log, "fourth", seam), watching(log, "first", seam, order=-1),
        watching(log, "last", seam, order=10), watching(log, "second", seam, order=-1),
    ]  # fmt: skip
    stage = Stage(
        *hooks,
        messages=OLD,
        replies=[text("A summary."), *ONLY_TEXT] if seam == "before_compaction" else [*Stage().model.responses],
    )
    await (stage.talk.compact(keep=2) if seam == "before_compaction" else stage.run())
    assert log[:5] == ["first", "second", "third", "fourth", "last"]
    assert log == log[:5] * (len(log) // 5)


async def test_marked_hooks_come_in_the_same_order_however_they_are_registered() -> None:
    for places in permutations(range(3)):
        log: list[str] = []
        marks = [("early", {"order": -1}), ("plain", {}), ("late", {"order": 1})]
        await play(*[watching(log, marks[i][0], **marks[i][1]) for i in places])
        assert log == ["early", "plain", "late"]


async def test_final_hooks_come_last_whatever_their_order_and_keep_it_among_themselves() -> None:
    log: list[str] = []
    await play(
        watching(log, "final late", "before_run", final=True),
        watching(log, "final early", "before_run", final=True, order=-9),
        watching(log, "late", "before_run", order=9),
        watching(log, "early", "before_run"),
    )
    assert log == ["early", "late", "final early", "final late"]


async def test_a_hook_given_twice_is_asked_once() -> None:
    log: list[str] = []
    one = watching(log, "one")
    await play(one, watching(log, "two"), one)
    assert log == ["one", "two"]


async def test_the_methods_of_an_object_come_in_the_order_in_which_they_are_written() -> None:
    log: list[str] = []

    class Guards:
        @hook.before_tool_call
        def second(self, call: Any) -> None:
            log.append("second")

        @hook.before_tool_call(order=-1)
        def first(self, call: Any) -> None:
            log.append("first")

        @hook.before_tool_call
        def aaa_third(self, call: Any) -> None:
            log.append("third")

    stage = Stage(Guards())  # type: ignore[arg-type]
    await stage.run()
    assert log == ["first", "second", "third"]
    assert [h.name for h in stage.agent.hooks] == ["second", "first", "aaa_third"], "listed as registered"


async def test_hooks_from_a_file_come_in_the_order_in_which_it_names_them(tmp_path: Path) -> None:
    file = tmp_path / "guards.py"
    file.write_text(
        "from beforehand import Queue, hook\n"
        "@hook.before_tool_call\ndef b(call): return Queue('b')\n"
        "@hook.before_tool_call\ndef a(call): return Queue('a')\n"
    )
    stage = Stage(str(file))  # type: ignore[arg-type]
    await stage.run()
    assert [d.hook for d in stage.result.decisions] == ["b", "a"]


async def test_hooks_confined_to_tools_keep_their_place_among_the_others() -> None:
    log: list[str] = []
    await play(
        watching(log, "all"),
        watching(log, "for look", tools=("lo*",)),
        watching(log, "for others", tools=("other", "l?k")),
        watching(log, "early", order=-1),
    )
    assert log == ["early", "all", "for look"]


async def test_hooks_confined_to_other_loops_are_not_asked() -> None:
    log: list[str] = []
    await play(watching(log, "everywhere"), watching(log, "main", loops=("ma*",)), watching(log, "elsewhere", loops=("inner*",)))
    assert log == ["everywhere", "main"]


@pytest.mark.parametrize(
    "options",
    [
        {"order": "first"},
        {"order": True},
        {"tools": "look"},
        {"timeout": 0},
        {"timeout": -1},
        {"on_error": "ignore"},
        {"loops": "main"},
    ],
    ids=str,
)
def test_an_option_that_can_never_work_is_refused_where_the_hook_is_made(options: dict[str, Any]) -> None:
    [name] = options
    with pytest.raises(HookDefinitionError, match=name) as caught:
        Hook(seam="before_tool_call", fn=lambda _: None, name="guard", **options)
    assert "guard" in str(caught.value)
    assert "test_order.py" in str(caught.value), "it says where the hook is"


@pytest.mark.parametrize(
    ("seam", "options", "why"),
    [
        ("before_run", {"tools": ("look",)}, "about no tool"),
        ("on_chunk", {"hold": True}, "on_message"),
        ("prepare_request", {"final": True}, "only replaces"),
        ("before_toolcall", {}, "before_tool_call"),
    ],
)
def test_an_option_at_the_wrong_seam_is_refused_where_the_hook_is_made(seam: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(HookDefinitionError, match=why):
        Hook(seam=seam, fn=lambda _: None, **options)


def test_a_misspelt_seam_or_option_of_a_decorator_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(HookDefinitionError, match="did you mean 'before_tool_call'"):
        hook.before_tool_cal  # noqa: B018
    with pytest.raises(HookDefinitionError, match="ordre"):
        hook.before_tool_call(ordre=1)  # type: ignore[call-overload]


def no_parameter() -> None: ...


def two_parameters(one: Any, two: Any) -> None: ...


def by_keyword(*, call: Any) -> None: ...


@pytest.mark.parametrize("fn", [no_parameter, two_parameters, by_keyword])
def test_a_function_that_cannot_take_the_context_is_refused_when_the_agent_is_made(fn: Any) -> None:
    with pytest.raises(HookDefinitionError, match=fn.__name__):
        Agent(model=ScriptedModel([]), hooks=[Hook(seam="before_tool_call", fn=fn)])


def test_what_is_no_hook_is_refused_when_the_agent_is_made() -> None:
    for wrong in (lambda call: None, object(), 3, Interrupt("Halt."), Hook):
        with pytest.raises(HookDefinitionError, match="is not a hook"):
            Agent(model=ScriptedModel([]), hooks=[wrong])
