"""A hook that can never work is refused, and one that may go wrong is warned about, before anything runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from beforehand import Agent, Answer, Block, End, Hook, HookDefinitionError, Interrupt, Queue, Replace, hook
from beforehand.testing import ScriptedModel


def register(*hooks: Any) -> Agent:
    return Agent(model=ScriptedModel([]), hooks=hooks)


def blocks(call: Any) -> Block | None: ...


def blocks_with_a_note(call: Any) -> Sequence[Block | Queue]: ...


def ends(turn: Any) -> End: ...


async def answers(call: Any) -> Answer | Block: ...


@pytest.mark.parametrize(
    ("fn", "seam", "right"),
    [
        (blocks, "prepare_tool_call", "before_tool_call"),
        (blocks, "after_turn", "before_run"),
        (ends, "authorize_request", "finish_turn"),
        (answers, "prepare_request", "before_tool_call"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_hook_that_says_it_returns_what_its_seam_does_not_take_is_refused(fn: Any, seam: str, right: str) -> None:
    with pytest.raises(HookDefinitionError) as caught:
        register(Hook(seam=seam, fn=fn))
    for part in (fn.__name__, "test_at_registration.py", seam, "may return"):
        assert part in str(caught.value)
    assert register(Hook(seam=right, fn=fn)).hooks, "the control: where it is declared it is welcome"


def test_a_return_type_that_a_seam_takes_in_part_or_that_says_nothing_is_no_reason_to_refuse() -> None:
    def says_nothing(context: Any): ...  # type: ignore[no-untyped-def]

    def unknown(context: Any) -> Missing: ...  # type: ignore[name-defined]  # noqa: F821

    def replaces_or_blocks(context: Any) -> Replace | Block: ...

    assert len(register(*[Hook(seam="prepare_request", fn=fn) for fn in (says_nothing, unknown, replaces_or_blocks)]).hooks) == 3
    assert register(Hook(seam="before_tool_call", fn=blocks_with_a_note)).hooks


@hook.before_tool_call
def without_a_reason(call: Any) -> Block | None:
    if call.args["n"] > 1:
        return Block()
    return None


@hook.before_tool_call
def with_a_reason(call: Any) -> Block | None:
    return Block("Book tourist instead.") if call.args["n"] > 1 else None


@hook.prepare_tool_call
def wrong_field(call: Any) -> Any:
    return Replace(content="Other")


@hook.prepare_tool_call
def wrong_decision(call: Any) -> Any:
    return [Queue("A note."), Interrupt("Halt.")]


@pytest.mark.parametrize(
    ("made", "warning"),
    [
        (without_a_reason, "without a reason"),
        (wrong_field, "Replace(content=)"),
        (wrong_decision, "Interrupt"),
        (with_a_reason, None),
    ],
    ids=lambda value: getattr(value, "name", "") or str(value),
)
def test_what_can_be_seen_to_go_wrong_is_warned_about_with_file_and_line(made: Hook, warning: str | None, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "beforehand"):
        register(made)
    if warning is None:
        assert caplog.text == ""
    else:
        [record] = caplog.records
        assert warning in record.getMessage()
        assert made.name in record.getMessage()
        first_line = made.fn.__code__.co_firstlineno
        line = int(record.getMessage().split("test_at_registration.py:")[1].split(")")[0])
        assert first_line < line <= first_line + 5, "the line of the return, not of the decorator"


def test_all_hooks_are_checked_before_any_is_used() -> None:
    def fine(call: Any) -> None: ...

    def none_at_all() -> None: ...

    with pytest.raises(HookDefinitionError, match="none_at_all"):
        register(Hook(seam="before_tool_call", fn=fine), Hook(seam="before_tool_call", fn=none_at_all))


def test_a_hook_that_may_fail_open_is_said_so_when_it_is_registered(caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "beforehand"):
        register(Hook(seam="before_tool_call", fn=lambda _: None, name="guard", on_error="open"))
    assert "guard" in caplog.text
    assert "open" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "beforehand"):
        register(Hook(seam="before_tool_call", fn=lambda _: None, name="guard"))
    assert caplog.text == ""


def test_a_hook_made_of_a_hook_is_refused() -> None:
    with pytest.raises(HookDefinitionError, match="already"):
        hook.before_tool_call(with_a_reason)
