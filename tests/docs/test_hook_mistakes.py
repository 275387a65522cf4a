"""The table of common mistakes in docs/hooks.md: each of them, made, gives the words that stand there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Block, End, Hook, HookDefinitionError, HookFailed, Replace, RunResult, UserMessage, hook, tool,
)  # fmt: skip
from beforehand.testing import ScriptedModel, text, tool_call

from .pages import ROOT

PAGE = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Common mistakes")[2]
ROWS = [cells.split(" | ") for cells in re.findall(r"^\| (.+) \|$", TABLE, re.MULTILINE)[1:]]

CALL = "before_tool_call"


@tool
async def book(train: int) -> str:
    """Book."""
    return "booked"


def agent(*hooks: Any) -> Agent:
    return Agent(model=ScriptedModel([tool_call("book", {"train": 1}), text("ok")]), tools=[book], hooks=hooks)


async def told(made: Hook) -> str:
    """What the model is told of the call, or what the run ends with."""
    result: RunResult = await agent(made).run(UserMessage("go"), check=False)
    return str(result.error) if result.error else result.messages[2].text


def guard(call: Any, context: Any = None) -> None:
    """A function, not a hook."""


def guard_with_two_parameters() -> Hook:
    @hook.before_tool_call
    def guard(call, context):  # type: ignore[no-untyped-def]
        """A guard that wants more than it is given."""

    return guard


def says_block(turn: Any) -> Block:
    return Block("no")


def edits(call: Any) -> None:
    call.args["train"] = 1


def misspelt(outcome: Any) -> Replace:
    return Replace(contents="x")  # type: ignore[call-arg]


def cut(view: Any) -> Replace | None:
    return Replace(messages=view.messages[-1:]) if len(view.messages) > 2 else None


def by_hand(seam: str, value: Any) -> Hook:
    return Hook(seam=seam, fn=lambda context: value, name="guard")


AT_REGISTRATION: dict[str, Callable[[], Any]] = {
    "there is no seam 'before_tol_call': did you mean 'before_tool_call'?": lambda: hook.before_tol_call,
    "@hook.before_tool_call has no option 'tols'": lambda: hook.before_tool_call(tols=["book"]),  # type: ignore[call-overload]
    "tools='book_ticket' must be a list of names or globs": lambda: hook.before_tool_call(tools="book_ticket")(guard),
    "tools= confines hooks at prepare_tool_call, before_tool_call and after_tool_call; before_turn is about no tool":
        lambda: hook.before_turn(tools=["book"])(guard),
    "final=True hooks judge the final value and may not replace it, but transform_context only replaces":
        lambda: hook.transform_context(final=True)(guard),
    "takes (call, context), but is called with one argument, the PendingCall: write def guard(call): ...":
        lambda: agent(guard_with_two_parameters()),
    "hooks=[... guard ...] is not a hook: decorate it with @hook.<seam>": lambda: agent(guard),
    "says that it returns Block, but a hook at before_turn may return End(reason)":
        lambda: agent(hook.before_turn(says_block)),
}  # fmt: skip

WHEN_ASKED: dict[str, Hook] = {
    "returned Block(reason='no', terminate=False), but a hook at before_turn may return None, End(reason)":
        by_hand("before_turn", Block("no")),
    "Unexpected keyword argument 'contents'": hook.after_tool_call(misspelt),
    "returned the dict {'block': True}, but a hook at before_tool_call may return None, Block(reason), ...":
        by_hand(CALL, {"block": True}),
    "returned a str, but a hook at get_api_key may return None, Replace(key=)": by_hand("get_api_key", "sk-something"),
    "returned two verdicts, Block and Answer: a hook gives at most one": by_hand(CALL, [Block("no"), Answer("yes")]),
    "FrozenError: this dict is frozen: return a decision instead of editing in place": hook.before_tool_call(edits),
    "returned arguments that the tool does not take": by_hand("prepare_tool_call", Replace(args={"train": "many"})),
    "returned messages that cannot be sent: message 0 is a result for": hook.transform_context(cut),
}  # fmt: skip


@pytest.mark.parametrize("words", AT_REGISTRATION)
def test_a_mistake_that_can_be_seen_at_registration_is_an_error_there(words: str) -> None:
    with pytest.raises(HookDefinitionError) as caught:
        AT_REGISTRATION[words]()
    assert words in str(caught.value)


@pytest.mark.parametrize("words", WHEN_ASKED)
async def test_any_other_mistake_is_a_failure_of_the_hook_when_it_is_asked(words: str) -> None:
    assert words.removesuffix("...") in await told(WHEN_ASKED[words])


async def test_a_block_without_a_reason_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    def silent(call: Any) -> Block:
        return Block()

    made = agent(hook.before_tool_call(silent))
    assert "blocks without a reason" in caplog.text
    assert (await made.run("go")).messages[2].text == "Tool execution was blocked"


def test_a_wrong_decision_that_stands_in_a_return_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(turn):  # type: ignore[no-untyped-def]
        return Block("no")

    agent(hook.before_turn(wrong))
    assert "returns Block, which will be refused" in caplog.text


def test_the_table_holds_these_and_no_others() -> None:
    shown = [row[1] for row in ROWS]
    assert shown[:-1] == [f"`{words}`" for words in (*AT_REGISTRATION, *WHEN_ASKED)]
    assert "`Tool execution was blocked`" in shown[-1]
    assert "`blocks without a reason`" in shown[-1]


async def test_the_other_seams_fail_with_the_run() -> None:
    failing = by_hand("before_run", End("no"))
    with pytest.raises(HookFailed, match="a hook at before_run may return None, Replace"):
        await agent(failing).run("go")
