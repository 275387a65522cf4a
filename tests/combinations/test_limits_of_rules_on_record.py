"""Which firings of rules count when a run goes on: each for the rule that fired, wherever that stands by then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, tool
from beforehand.testing import FunctionModel, error, text, tool_call

from combinations.cuts import World
from journal.cutting import all_records, cut, parents

BLOCK = [{"type": "block", "reason": "no"}]
JUDGED = {"target": "tool", "event": "before", "tools": ["work"]}


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


def results(run: Any) -> list[str]:
    return [message.text for message in run.messages if message.role == "tool"]


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
