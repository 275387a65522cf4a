"""Which firings of rules count when a run goes on: those that came to something on record, each for the rule that fired."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Hook, tool
from beforehand.errors import HookFailed
from beforehand.testing import FunctionModel, error, text, tool_call

from combinations.cuts import World, every_cut
from journal.cutting import all_records, cut, parents

BLOCK = [{"type": "block", "reason": "no"}]
COVER = [{"type": "replace", "with": "***"}]
JUDGED = {"target": "tool", "event": "before", "tools": ["work"]}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "request": ("authorize_request", {"target": "request", "actions": BLOCK}),
    "message": ("on_message", {"target": "chat", "roles": ["assistant"], "regex": "secret", "actions": COVER}),
    "stream": ("on_message", {"target": "stream", "regex": "secret", "actions": COVER}),
    "call": ("before_tool_call", {**JUDGED, "actions": BLOCK}),
    "shaped call": ("before_tool_call", {**JUDGED, "actions": [{"type": "replace", "argument": "q", "with": "y"}, *BLOCK]}),
    "hidden tool": ("before_provider_call", {"target": "request", "actions": [{"type": "hide-tools", "tools": ["work"]}]}),
    "turn": ("before_turn", {"target": "turn", "event": "before", "actions": [{"type": "end", "reason": "no"}]}),
}
"""A rule that lets no secret pass, and a seam at which a hook after it may keep that from coming to anything."""


def rules(path: Path, *written: dict[str, Any]) -> Path:
    path.mkdir(exist_ok=True)
    (path / "rules.json").write_text(json.dumps(written))
    return path


@tool
async def work(q: str = "") -> str:
    return "secret work"


@tool
async def other() -> str:
    return "another secret"


def calling(*names: str, down: Any = ()) -> FunctionModel:
    """Calls these tools one after the other. Where `down` says so, there is no reply, once."""
    failing = {*down}

    def reply(request: Any) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        if done in failing:
            failing.remove(done)
            return error("down")
        return tool_call(names[done], {}, id=f"c{done}") if done < len(names) else text("over")

    return FunctionModel(reply)


def failing_once(seam: str) -> tuple[list[bool], Any, Any]:
    """A hook that fails once at this seam, whether it still is to, and what the model says for there to be a secret."""
    failing = [True]

    def fail(context: Any) -> None:
        if failing and (seam != "on_message" or context.message.role == "assistant"):
            failing.clear()
            raise OSError("down")

    def reply(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return text("over")
        return text("a secret") if seam == "on_message" else tool_call("work", {"q": "x"}, id="w")

    return failing, fail, reply


def results(run: Any) -> list[str]:
    return [message.text for message in run.messages if message.role == "tool"]


@pytest.mark.parametrize("kind", ["request", "message", "stream"])
async def test_what_a_rule_fired_in_a_sub_agent_counts_from_when_it_came_to_something(tmp_path: Path, kind: str) -> None:
    """Of two sub-agents side by side it fires in the second one, which is with a slow hook while the first one goes on."""
    seam, rule = KINDS[kind]
    regex = "^a secret$" if kind == "request" else "secret"  # the caller's own request has none
    limited = rules(tmp_path / "rules", {**rule, "label": "limited", "maxTriggers": 1, "regex": regex})

    def agent(place: Path, slow: bool) -> Agent:
        fired, over = asyncio.Event(), asyncio.Event()

        async def wait(context: Any) -> None:
            if slow and context.run.run_id == "R/A":
                await fired.wait()

        async def tell(context: Any) -> None:
            if context.run.run_id == "R/A":
                over.set()

        async def think(context: Any) -> None:
            if slow and context.run.run_id == "R/B" and (kind == "request" or context.message.role == "assistant"):
                fired.set()
                await over.wait()

        hooks = [Hook(seam="before_turn", fn=wait, where="h"), Hook(seam="after_turn", fn=tell, where="h")]
        inner = Agent(model=FunctionModel(lambda request: text("a secret")), hooks=hooks).as_tool("sub", "It works.")
        calls = [tool_call("sub", {"prompt": "a secret" if kind == "request" else "go"}, id=id) for id in "AB"]
        model = FunctionModel(lambda request: text("over") if request.messages[-1].role == "tool" else calls)
        thinking = Hook(seam=seam, fn=think, name="think", order=9, where="h")
        return Agent(model=model, tools=[inner], hooks=[limited, thinking], journal=World(place).journal)

    whole = await agent(tmp_path / "whole.db", True).run("go", run_id="R")
    assert ["secret" in result for result in results(whole)] == [True, False]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in range(2, len(records)):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = await agent(tmp_path / f"{k}.db", False).resume("R", check=False)
        passed = sum("secret" in result for result in results(again))
        assert passed == 1, f"cut after record {k}: {records[k - 1].kind} of {records[k - 1].run_id}"


@pytest.mark.parametrize("same", [False, True], ids=["a new process", "the same process"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_rule_fires_again_for_what_another_hook_has_failed_over(tmp_path: Path, kind: str, same: bool) -> None:
    """Whoever goes on with the run asks both hooks again, and the first firing came to nothing."""
    seam, rule = KINDS[kind]
    limited = rules(tmp_path / "rules", {**rule, "label": "limited", "maxTriggers": 1})
    _, fail, reply = failing_once(seam)

    def agent() -> Agent:
        later = Hook(seam=seam, fn=fail, name="later", order=9, where="h", on_error="abort")
        journal = World(tmp_path / "runs.db").journal
        return Agent(model=FunctionModel(reply), tools=[work], hooks=[limited, later], journal=journal)

    first = agent()
    with pytest.raises(HookFailed, match="later"):
        await first.run("go", run_id="R")
    resumed = first if same else agent()
    result = await resumed.resume("R")
    assert not [message.text for message in result.messages if "secret" in message.text]
    assert [rule["firings"] for rule in resumed.get_json_hooks()] == [1]


@pytest.mark.parametrize("same", [False, True], ids=["a new process", "the same process"])
async def test_a_rule_fires_again_for_what_only_closed_a_turn_that_failed(tmp_path: Path, same: bool) -> None:
    """A hook failed over one call, and the result of the one beside it was put into the history: that is taken back."""
    rule = {"target": "chat", "roles": ["tool"], "regex": "secret", "maxTriggers": 1, "actions": COVER}
    limited = rules(tmp_path / "rules", rule)
    failing = [True]

    def fail(call: Any) -> None:
        if failing:
            failing.clear()
            raise OSError("down")

    def agent() -> Agent:
        calls = [tool_call("other", {}, id="o"), tool_call("work", {}, id="w")]
        model = FunctionModel(lambda request: text("over") if request.messages[-1].role == "tool" else calls)
        later = Hook(seam="before_tool_call", fn=fail, name="later", tools=("work",), where="h", on_error="abort")
        return Agent(model=model, tools=[work, other], hooks=[limited, later], journal=World(tmp_path / "runs.db").journal)

    first = agent()
    with pytest.raises(HookFailed, match="later"):
        await first.run("go", run_id="R")
    assert results(await (first if same else agent()).resume("R")) == ["another ***", "secret work"]


@pytest.mark.parametrize("same", [False, True], ids=["a new process", "the same process"])
@pytest.mark.parametrize("kind", ["message", "stream"])
async def test_a_rule_fires_again_in_a_reply_that_was_cut(tmp_path: Path, kind: str, same: bool) -> None:
    _, rule = KINDS[kind]
    limited = rules(tmp_path / "rules", {**rule, "label": "limited", "maxTriggers": 1})
    replies = [[text("a secret, " * 3), error("down")], text("a secret")]

    def agent() -> Agent:
        journal = World(tmp_path / "runs.db").journal
        return Agent(model=FunctionModel(lambda request: replies.pop(0)), hooks=[limited], journal=journal)

    first = agent()
    cut_short = await first.run("go", run_id="R", check=False)
    assert cut_short.stop_reason == "error"
    assert cut_short.messages[-1].text.startswith("a ***")
    result = await (first if same else agent()).resume("R")
    assert result.text == "a ***"


@pytest.mark.parametrize("recorded", [False, True], ids=["without a journal", "on record"])
@pytest.mark.parametrize("kind", ["request", "message", "stream", "hidden tool", "turn"])
async def test_a_rule_that_guards_fires_again_for_a_turn_that_is_tried_again(tmp_path: Path, kind: str, recorded: bool) -> None:
    """Another hook has failed over what the rule had refused: that came to nothing, and the same is asked about anew."""
    seam, rule = KINDS[kind]
    limited = rules(tmp_path / "rules", {**rule, "label": "limited", "maxTriggers": 1})
    failing, fail, reply = failing_once(seam)

    world = World(tmp_path / "runs.db")
    later = Hook(seam=seam, fn=fail, name="later", order=9, where="h")
    agent = Agent(
        model=FunctionModel(reply), tools=[work], hooks=[limited, later], journal=world.journal if recorded else None,
        recovery=world.recovery(auto_retry=True),
    )  # fmt: skip
    result = await agent.run("go")
    assert not failing
    assert not [message.text for message in result.messages if "secret" in message.text]
    assert [rule["firings"] for rule in agent.get_json_hooks()] == [1]


@pytest.mark.parametrize(
    ("actions", "text_then"), [(COVER, "a ***"), ([{"type": "queue-message", "role": "user", "message": "mind"}], "a secret")],
    ids=["guards", "only queues"],
)  # fmt: skip
async def test_a_turn_that_was_tried_again_goes_on_as_it_went_wherever_it_was_cut(
    tmp_path: Path, actions: list[dict[str, Any]], text_then: str
) -> None:
    """What a rule that only queues had queued in the turn that failed stays, so that has fired."""
    _, rule = KINDS["message"]
    limited = rules(tmp_path / "rules", {**rule, "actions": actions, "label": "limited", "maxTriggers": 1})

    def make(world: World) -> Agent:
        def fail(context: Any) -> None:
            if context.message.role == "assistant" and context.run.turn == 1:
                raise OSError("down")

        later = Hook(seam="on_message", fn=fail, name="later", order=9, where="h")
        model = FunctionModel(lambda request: text("a secret"))
        return Agent(model=model, hooks=[limited, later], journal=world.journal, recovery=world.recovery(auto_retry=True))

    whole, _ = await every_cut(tmp_path, make)
    assert (whole.stop_reason, whole.text) == ("completed", text_then)
    assert [message.text for message in whole.messages].count("mind") == (0 if actions is COVER else 1)


async def test_earlier_turns_count_where_a_later_one_is_tried_again(tmp_path: Path) -> None:
    """Without a journal, too: the rule refused a call in a turn that is over."""
    limited = rules(tmp_path / "rules", {**KINDS["call"][1], "label": "limited", "maxTriggers": 1})
    failing = [True]

    def fail(turn: Any) -> None:
        if turn.number == 2 and failing:
            failing.clear()
            raise OSError("down")

    later = Hook(seam="before_turn", fn=fail, name="later", where="h")
    recovery = World(tmp_path / "runs.db").recovery(auto_retry=True)
    agent = Agent(model=calling("work", "work"), tools=[work], hooks=[limited, later], recovery=recovery)
    result = await agent.run("go")
    assert not failing
    assert results(result) == ["no", "secret work"]


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
async def test_rules_of_files_of_one_name_count_apart(tmp_path: Path, order: tuple[str, str]) -> None:
    """One of them has fired by the time the process ends, and the other one has not."""
    rules(tmp_path / "one", {**JUDGED, "maxTriggers": 1, "actions": BLOCK})
    rules(tmp_path / "two", {**JUDGED, "tools": ["other"], "maxTriggers": 1, "actions": BLOCK})

    def agent(*down: int) -> Agent:
        model = calling("other", "work", "other", down=down)
        folders = [tmp_path / name for name in order]
        return Agent(model=model, tools=[work, other], hooks=folders, journal=World(tmp_path / "runs.db").journal)

    await agent(1).run("go", run_id="R", check=False)
    assert results(await agent().resume("R")) == ["no", "no", "another secret"]


async def test_a_limited_rule_counts_on_where_it_has_moved_and_another_in_its_place_does_not(tmp_path: Path) -> None:
    fired = {**JUDGED, "tools": ["other"], "maxTriggers": 1, "actions": BLOCK}
    rules(tmp_path / "rules", fired)

    def agent(*down: int) -> Agent:
        model = calling("other", "work", "other", down=down)
        return Agent(model=model, tools=[work, other], hooks=[tmp_path / "rules"], journal=World(tmp_path / "runs.db").journal)

    await agent(1).run("go", run_id="R", check=False)
    rules(tmp_path / "rules", {**JUDGED, "maxTriggers": 1, "actions": BLOCK}, fired)
    assert results(await agent().resume("R")) == ["no", "no", "another secret"]


OF_ONE_NAME: dict[str, list[dict[str, Any]]] = {
    "calls": [
        {**JUDGED, "actions": [{"type": "replace", "argument": "q", "with": "y"}, {"type": "ask", "prompt": "May it?"}]},
        {**JUDGED, "args": {"/q": {"equals": "never"}}, "actions": [{"type": "replace", "argument": "q", "with": "z"}, *BLOCK]},
    ],
    "requests": [
        {"target": "request", "actions": [{"type": "set-options", "options": {"temperature": 0}}]},
        {
            "target": "request", "regex": "never",
            "actions": [{"type": "hide-tools", "tools": ["work"]}, {"type": "set-options", "options": {"stop": []}}, *BLOCK],
        },
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", OF_ONE_NAME)
async def test_of_two_rules_with_one_label_that_which_fired_has_fired_wherever_the_run_is_cut(tmp_path: Path, kind: str) -> None:
    folder = rules(tmp_path / "rules", *[{**rule, "label": "guard"} for rule in OF_ONE_NAME[kind]])

    def agent(place: Path) -> Agent:
        journal = World(place).journal
        return Agent(model=calling("work"), tools=[work], hooks=[folder], journal=journal, on_ask=lambda pending: Approve())

    assert results(await agent(tmp_path / "whole.db").run("go", run_id="R")) == ["secret work"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in range(2, len(records)):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        (result,) = results(await agent(tmp_path / f"{k}.db").resume("R"))
        assert result == "secret work" or records[k - 1].kind == "intent", f"cut after record {k}: {result}"
