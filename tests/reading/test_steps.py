"""A run as steps: who asked, who decided and why, what ran, and what could not be taken back by then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Approve, Block, Deny, Edit, Interrupt, Steer, hook
from beforehand.errors import JournalUnreadable, ServerError
from beforehand.journal import Journal
from beforehand.journal.steps import STEPS, Step, steps
from beforehand.testing import ScriptedModel, error, tool_call
from reading.recorded import HOOKS, counted, look, looks, pay, pays, teller, text

COMMON = {"n", "at", "seconds", "turn", "kind", "call"}


async def told(agent: Agent, **options: Any) -> list[Step]:
    await agent.run("go", run_id="r", **options)
    return list(steps(agent.plan.journal.records("r")))


def of(told: list[Step], kind: str, call: str | None = None) -> list[dict[str, Any]]:
    return [step.flat() for step in told if step.kind == kind and (call is None or step.call == call)]


async def test_a_decision_says_who_what_why_how_long_and_what_was_done_by_then(tmp_path: Path) -> None:
    (made,) = of(await told(teller(tmp_path / "r.db", pays(901), text("No."))), "decision")
    assert (made["hook"], made["seam"], made["verdict"], made["call"]) == ("not_too_much", "before_tool_call", "Block", "p1")
    assert made["reason"] == "more than anybody may pay"
    assert made["done"] == {"requests": 1, "characters": 0, "tools": 0}
    assert made["ahead"] == "the tool runs"
    assert made["duration"] >= 0
    assert "recorded.py:" in made["where"]


async def test_what_hooks_said_of_progress_is_told_apart_from_what_they_said_of_the_result(tmp_path: Path) -> None:
    run = list(steps((await counted(tmp_path / "r.db")).records("r")))
    (made,) = of(run, "decision", "c1")
    assert (made["seam"], made["verdict"], made["partial"]) == ("after_tool_call", "Replace", True)
    assert "ahead" not in made  # the model reads the result, which stays as it is
    assert [(p["seam"], p["hooks"]) for p in of(run, "passed", "c1")] == [("after_tool_call", ["half_is_no_result"])]
    for step in run:
        assert set(step.flat()) <= {*_names(STEPS[step.kind]), *COMMON}, step.kind


async def test_hooks_that_let_a_value_pass_are_named(tmp_path: Path) -> None:
    run = await told(teller(tmp_path / "r.db", pays(5), text("Done.")))
    assert [(p["seam"], p["hooks"]) for p in of(run, "passed", "p1")] == [
        ("prepare_tool_call", ["at_most_five_hundred"]), ("before_tool_call", ["not_too_much", "watches"]),
    ]  # fmt: skip


async def test_one_that_decides_is_not_among_those_that_let_it_pass(tmp_path: Path) -> None:
    run = await told(teller(tmp_path / "r.db", pays(901), text("No.")))
    assert [p["hooks"] for p in of(run, "passed", "p1") if p["seam"] == "before_tool_call"] == [["watches"]]


async def test_hooks_after_a_refusal_that_is_final_at_once_were_not_asked(tmp_path: Path) -> None:
    @hook.on_message
    def stops(message: Any) -> Interrupt | None:
        return Interrupt("not this") if message.origin == "model" else None

    @hook.on_message
    def later(message: Any) -> None: ...

    agent = Agent(model=ScriptedModel([text("hello")]), hooks=[stops, later], journal=tmp_path / "r.db")
    run = await told(agent)
    (skipped,) = of(run, "skipped")
    assert (skipped["seam"], skipped["hooks"]) == ("on_message", ["later"])


async def test_a_hook_that_failed_was_asked_and_those_after_it_were_not(tmp_path: Path) -> None:
    @hook.before_turn
    def first(turn: Any) -> None: ...

    @hook.before_turn
    def breaks(turn: Any) -> None:
        raise ValueError("broken")

    @hook.before_turn
    def last(turn: Any) -> None: ...

    agent = Agent(model=ScriptedModel([text("hello")]), hooks=[first, breaks, last], journal=tmp_path / "r.db")
    run = await told(agent, check=False)
    assert [p["hooks"] for p in of(run, "passed")] == [["first"]]
    assert [p["hooks"] for p in of(run, "skipped")] == [["last"]]
    assert [(d["hook"], d["verdict"]) for d in of(run, "decision")] == [("breaks", "failed")]
    assert of(run, "failed")[0]["error"].startswith("HookFailed: hook 'breaks' at before_turn")


@pytest.mark.parametrize(
    ("verdict", "outcome", "reason"),
    [(Block("no"), "blocked", "no"), (Steer("other way"), "steered", "other way"), (Interrupt("stop"), "blocked", "stop")],
)
async def test_an_outcome_says_who_refused_and_why(tmp_path: Path, verdict: Any, outcome: str, reason: str) -> None:
    @hook.before_tool_call
    def gate(call: Any) -> Any:
        return verdict

    agent = Agent(model=ScriptedModel([looks("a"), text("b")]), tools=[look], hooks=[gate], journal=tmp_path / "r.db")
    (said,) = of(await told(agent), "outcome")
    assert (said["outcome"], said["by"], said["reason"]) == (outcome, "gate", reason)


async def test_a_call_cancelled_with_a_steered_one_names_who_steered(tmp_path: Path) -> None:
    @hook.before_tool_call(tools=["pay"])
    def gate(call: Any) -> Any:
        return Steer("other way")

    agent = Agent(
        model=ScriptedModel([[looks("a"), pays(1)], text("b")]), tools=[look, pay], hooks=[gate], journal=tmp_path / "r.db"
    )
    (said,) = of(await told(agent), "outcome", "l1")
    assert (said["outcome"], said["by"]) == ("cancelled", "gate")


async def test_a_gate_that_failed_is_who_refused(tmp_path: Path) -> None:
    @hook.before_tool_call
    def gate(call: Any) -> Any:
        raise RuntimeError("the policy service is down")

    agent = Agent(model=ScriptedModel([looks("a"), text("b")]), tools=[look], hooks=[gate], journal=tmp_path / "r.db")
    (said,) = of(await told(agent), "outcome")
    assert (said["outcome"], said["by"]) == ("blocked", "gate")
    assert "policy service is down" in said["reason"]


async def test_what_the_model_asked_what_ran_and_what_it_reads(tmp_path: Path) -> None:
    run = await told(teller(tmp_path / "r.db", pays(5), text("Done.")))
    assert [s["args"] for s in of(run, "asks", "p1")] == [{"amount": 5}]
    (begins,) = of(run, "begins", "p1")
    assert (begins["args"], begins["replay"], begins["by"], begins["key"]) == ({"amount": 5}, "never", "tool", "r:p1")
    (outcome,) = of(run, "outcome", "p1")
    assert (outcome["outcome"], outcome["text"]) == ("ran", "paid 5, account ***")
    assert [m["text"] for m in of(run, "message", "p1")] == ["paid 5, account ***"]
    assert [s["text"] for s in of(run, "says")] == ["Done."]


async def test_arguments_that_are_no_json_are_shown_as_they_came(tmp_path: Path) -> None:
    agent = teller(tmp_path / "r.db", tool_call("pay", '{"amount": ', id="p1"), text("Oh."))
    (asked,) = of(await told(agent), "asks")
    assert (asked["text"], "args" in asked) == ('{"amount": ', False)


async def test_questions_answers_and_the_arguments_the_model_wrote(tmp_path: Path) -> None:
    agent = teller(tmp_path / "r.db", pays(800), text("Done."))
    await agent.run("go", run_id="r")
    await agent.resume("r", {"p1": Approve()})
    run = list(steps(agent.plan.journal.records("r")))
    (asked,) = of(run, "ask")
    assert (asked["args"], asked["original_args"], asked["prompt"]) == ({"amount": 500}, {"amount": 800}, "Pay 500?")
    (answer,) = of(run, "answer")
    assert (answer["answer"], answer["by"], answer["digest"]) == ("approve", "resume", asked["digest"])
    assert [s["calls"] for s in of(run, "suspended")] == [["p1"]]
    assert len(of(run, "resumed")) == 1
    assert [d["changed"] for d in of(run, "decision", "p1") if d["seam"] == "prepare_tool_call"] == [["args"]]


@pytest.mark.parametrize(("answer", "by"), [(Deny("too much"), "a person"), (None, "nobody")])
async def test_a_call_that_a_person_declined_was_refused_by_a_person(tmp_path: Path, answer: Any, by: str) -> None:
    agent = teller(tmp_path / "r.db", pays(200), text("Done."))
    await agent.run("go", run_id="r")
    await agent.resume("r", {} if answer is None else {"p1": answer})
    (outcome,) = of(list(steps(agent.plan.journal.records("r"))), "outcome")
    assert (outcome["outcome"], outcome["by"]) == ("blocked", by)


async def test_an_edit_is_told_with_its_arguments(tmp_path: Path) -> None:
    agent = teller(tmp_path / "r.db", pays(200), text("Done."))
    await agent.run("go", run_id="r")
    await agent.resume("r", {"p1": Edit({"amount": 3})})
    run = list(steps(agent.plan.journal.records("r")))
    assert [(a["answer"], a["args"]) for a in of(run, "answer")] == [("edit", {"amount": 3})]
    assert [b["args"] for b in of(run, "begins")] == [{"amount": 3}]


async def test_a_resumption_says_what_has_changed_since(tmp_path: Path) -> None:
    agent = teller(tmp_path / "r.db", pays(200), text("Done."))
    await agent.run("go", run_id="r")
    await agent.replace(hooks=HOOKS[:-1], tools=[pay]).resume("r", {"p1": Approve()})
    (resumed,) = of(list(steps(agent.plan.journal.records("r"))), "resumed")
    assert resumed["changed"] == ["tool look is gone", "hook at_most_five_hundred at prepare_tool_call is gone"]


async def test_a_request_that_failed_says_how(tmp_path: Path) -> None:
    run = await told(teller(tmp_path / "r.db", error(ServerError("down"))), check=False)
    assert [r["error"] for r in of(run, "reply")] == ["ServerError: down"]
    assert of(run, "end")[0]["stop_reason"] == "error"


def test_the_owners_word_is_told_apart_from_the_tools(tmp_path: Path) -> None:
    intent = b'{"turn":1,"call":"c","name":"look","args":{},"digest":"d","replay":"never","by":"owner","key":"r:c"}'
    journal = Journal(tmp_path / "r.db")
    head = journal.open_run("r", ("run", 1, _START))
    journal.append(head, [("intent", 2, intent)])
    assert of(list(steps(journal.records("r"))), "begins")[0]["by"] == "owner"


_START = b'{"agent":"a","model":"m","provider":"p","tools":{},"hooks":{},"prompts":[],"base":{"messages":[]}}'


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "r.db")
    journal.append(journal.open_run("r", ("run", 1, _START)), [("outcome", 2, b'{"call": 7}')])
    with pytest.raises(JournalUnreadable, match=r"run r, record 2 \(outcome\) cannot be read"):
        list(steps(journal.records("r")))


async def test_the_steps_up_to_any_record_are_those_of_the_whole_up_to_there(tmp_path: Path) -> None:
    agent = teller(tmp_path / "r.db", [pays(5), looks("a")], [pays(901, "p2"), pays(200, "p3")], text("Done."))
    await agent.run("go", run_id="r")
    await agent.resume("r", {"p3": Approve()})
    records = agent.plan.journal.records("r")
    whole = list(steps(records))
    assert {record.n for record in records} >= {step.n for step in whole}
    for n in range(1, len(records) + 1):
        assert list(steps(records[:n])) == [step for step in whole if step.n <= n]


async def test_every_step_has_the_fields_that_are_documented(tmp_path: Path) -> None:
    agent = teller(tmp_path / "r.db", [pays(5), looks("a")], [pays(901, "p2"), pays(200, "p3")], error(ServerError("down")))
    await agent.run("go", run_id="r")
    await agent.resume("r", {"p3": Deny("no")}, check=False)
    documented = {kind: set(_names(fields)) | COMMON for kind, fields in STEPS.items()}
    seen = list(steps(agent.plan.journal.records("r")))
    assert len({step.kind for step in seen}) >= 14
    for step in seen:
        assert set(step.flat()) <= documented[step.kind], step.kind


def _names(fields: str) -> list[str]:
    """The names in "cause, took (texts), done: what it means"."""
    listed = re.sub(r"\([^)]*\)", "", fields.partition(":")[0])
    return [name.strip() for name in listed.split(",")]
