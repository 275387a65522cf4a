"""Gates that are new when a run goes on: they are asked about every call that has not begun, whatever others have said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Deny, Edit, Hook, HookFailed, Queue, Replace, Steer, ToolContext, UserMessage, tool,
)  # fmt: skip
from beforehand.backtest import backtest
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal, verify
from beforehand.testing import FunctionModel, text, tool_call

from journal.cutting import all_records, cut

NEVER = Block("never since today")
CANCELLED = "Cancelled: the person steered the turn away at the call of pay."


def gate(name: str, verdict: Any, **options: Any) -> Hook:
    """One that decides this about every call. `verdict.asked` are the calls."""
    return Hook(seam="before_tool_call", fn=verdict, name=name, **options)


class Says:
    """A hook that always decides the same, and remembers about what."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.asked: list[Any] = []

    def __call__(self, call: Any) -> Any:
        self.asked.append(dict(call.args))
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


class Bank:
    """An agent that pays Ann and Bob in one reply, and what it has paid."""

    def __init__(self, path: Path, *hooks: Hook, within: str = "", **options: Any) -> None:
        self.paid: list[str] = []

        @tool
        async def pay(to: str) -> str:
            self.paid.append(to)
            return f"paid {to}"

        @tool(replay="safe")
        async def teller(ctx: ToolContext) -> str:
            return (await ctx.call_tool("pay", {"to": "ann"})).text

        def replies(request: Any) -> Any:
            if any(message.role == "tool" for message in request.messages):
                return text("done")
            both = [tool_call("pay", {"to": to}, id=to) for to in ("ann", "bob")]
            return both if not within else tool_call(within, {"prompt": "go"} if within == "child" else {}, id="w")

        child = Agent(model=FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else [
            tool_call("pay", {"to": "ann"}, id="ann")
        ]), tools=[pay])  # fmt: skip
        self.agent = Agent(
            model=FunctionModel(replies), tools=[pay, teller, child.as_tool("child", "Pays.")], hooks=hooks,
            journal=Journal(path, durability="normal"), **options,
        )  # fmt: skip

    async def __aenter__(self) -> Bank:
        return self

    async def __aexit__(self, *_: object) -> None:
        assert verify(self.agent.plan.journal) == []
        await self.agent.aclose()


ASKS = gate("asks", Says(Ask("May it?")))
YES = {"ann": Approve(), "bob": Approve()}


@pytest.mark.parametrize(
    ("verdict", "told", "paid"),
    [
        (NEVER, ["never since today"] * 2, []), (Steer("elsewhere"), ["elsewhere", CANCELLED], []),
        (Answer("as if"), ["as if"] * 2, []), (None, ["paid ann", "paid bob"], ["ann", "bob"]),
    ],
)  # fmt: skip
async def test_a_new_gate_is_asked_about_a_call_that_waits_for_a_person(
    tmp_path: Path, verdict: Any, told: list[str], paid: list[str]
) -> None:
    """An approval lifts the question and no other hook's verdict."""
    async with Bank(tmp_path / "runs.db", ASKS) as bank:
        assert (await bank.agent.run("go", run_id="R")).stop_reason == "suspended"
    new = Says(verdict)
    async with Bank(tmp_path / "runs.db", gate("new", new), ASKS) as bank:
        result = await bank.agent.resume("R", YES)
        assert (await bank.agent.resume("R")).messages == result.messages
    assert bank.paid == paid
    assert [m.text for m in result.messages if m.role == "tool"] == told
    assert new.asked[0] == {"to": "ann"}


@pytest.mark.parametrize("within", ["teller", "child"])
async def test_a_new_gate_is_asked_about_a_call_that_waits_inside_another(tmp_path: Path, within: str) -> None:
    async with Bank(tmp_path / "runs.db", gate("asks", Says(Ask("May it?")), tools=["pay"]), within=within) as bank:
        (waits,) = (await bank.agent.run("go", run_id="R")).pending
    new = Says(NEVER)
    hooks = [gate("asks", Says(Ask("May it?")), tools=["pay"]), gate("new", new, tools=["pay"])]
    async with Bank(tmp_path / "runs.db", *hooks, within=within) as bank:
        result = await bank.agent.resume("R", {waits.call_id: Approve()})
    assert (result.text, bank.paid, new.asked) == ("done", [], [{"to": "ann"}])


async def test_a_gate_that_has_been_asked_is_not_new_any_more(tmp_path: Path) -> None:
    async with Bank(tmp_path / "runs.db", ASKS) as bank:
        await bank.agent.run("go", run_id="R")
    new = Says(None)
    async with Bank(tmp_path / "runs.db", ASKS, gate("new", new)) as bank:
        assert (await bank.agent.resume("R", YES)).text == "done"
    assert new.asked == [{"to": "ann"}, {"to": "bob"}]
    records = all_records(tmp_path / "runs.db")
    for length in range(next(r.n for r in records if r.data.get("hooks") == ["new"]), len(records)):
        known = {r.data["call"] for r in records[:length] if r.data.get("hooks") == ["new"]}
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        again = Says(Block("asked twice"))
        async with Bank(tmp_path / f"{length}.db", ASKS, gate("new", again)) as bank:
            assert (await bank.agent.resume("R")).text == "done"
        assert {call["to"] for call in again.asked} == {"ann", "bob"} - known


async def test_a_new_gate_is_asked_about_what_a_person_made_of_a_call_and_not_about_what_it_was(tmp_path: Path) -> None:
    async with Bank(tmp_path / "runs.db", ASKS) as bank:
        await bank.agent.run("go", run_id="R")
    new = Says(None)
    async with Bank(tmp_path / "runs.db", ASKS, gate("new", new)) as bank:
        await bank.agent.resume("R", {"ann": Edit({"to": "eve"}), "bob": Deny("no")})
    assert bank.paid == ["eve"]
    assert {"to": "eve"} in new.asked


async def test_a_new_gate_that_fails_is_asked_again(tmp_path: Path) -> None:
    async with Bank(tmp_path / "runs.db", ASKS) as bank:
        await bank.agent.run("go", run_id="R")
    broken = gate("new", Says(RuntimeError("broken")), on_error="abort")
    async with Bank(tmp_path / "runs.db", ASKS, broken) as bank:
        with pytest.raises(HookFailed):
            await bank.agent.resume("R", YES)
        assert bank.paid == []
    new = Says(NEVER)
    async with Bank(tmp_path / "runs.db", ASKS, gate("new", new, on_error="abort")) as bank:
        result = await bank.agent.resume("R")
    assert (bank.paid, result.text) == ([], "done")
    assert new.asked == [{"to": "ann"}, {"to": "bob"}]


@pytest.mark.parametrize("new_one", [True, False])
async def test_a_call_that_gates_had_let_pass_runs_as_they_saw_it(tmp_path: Path, new_one: bool) -> None:
    """The process ended before it began. A hook at 11 that is new would make another call of it, which they would refuse."""
    knows = Hook(seam="before_tool_call", fn=lambda c: Block("not him") if c.args["to"] == "mallory" else None, name="knows")
    async with Bank(tmp_path / "whole.db", knows) as bank:
        await bank.agent.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    first = next(r.n for r in records if r.kind == "ruling" and r.data["seam"] == "before_tool_call")
    cut(records[:first], {"R": None}, tmp_path / "cut.db").close()
    shapes = Hook(seam="prepare_tool_call", fn=lambda call: Replace(args={"to": "mallory"}), name="shapes")
    new = Says(None)
    async with Bank(tmp_path / "cut.db", knows, shapes, *([gate("new", new)] if new_one else [])) as bank:
        result = await bank.agent.resume("R")
    assert bank.paid == ["ann"]
    assert [m.text for m in result.messages if m.role == "tool"] == ["paid ann", "not him"]
    assert new.asked == ([{"to": "ann"}, {"to": "mallory"}] if new_one else [])


async def cut_after_first_gate(path: Path, *hooks: Hook) -> None:
    """The process ends when gates have let the payment to Ann pass, and before it has begun."""
    whole = path.with_suffix(".whole")
    async with Bank(whole, *hooks) as bank:
        await bank.agent.run("go", run_id="R")
    records = all_records(whole)
    cut(records[: next(r.n for r in records if r.data.get("call") == "ann")], {"R": None}, path).close()


async def test_a_new_gate_that_failed_is_heard_when_the_process_ends_once_more(tmp_path: Path) -> None:
    """What it says when it is asked again counts, also for whoever goes on after that."""
    old = gate("old", Says(None))
    for verdict in (NEVER, Ask("May it?")):
        path = tmp_path / f"{verdict.__class__.__name__}.db"
        await cut_after_first_gate(path, old)
        async with Bank(path, old, gate("new", Says(RuntimeError("broken")), on_error="abort")) as bank:
            with pytest.raises(HookFailed):
                await bank.agent.resume("R")
        began = len(all_records(path))
        new = gate("new", Says(verdict), on_error="abort")
        async with Bank(path, old, new) as bank:
            await bank.agent.resume("R")
        records = all_records(path)
        for length in range(began, len(records)):
            cut(records[:length], {"R": None}, path.with_suffix(f".{length}")).close()
            async with Bank(path.with_suffix(f".{length}"), old, new) as bank:
                await bank.agent.resume("R")
            assert bank.paid == [], length


async def test_what_a_new_gate_said_of_a_call_is_not_taken_for_what_it_says_once_a_person_has_changed_it(tmp_path: Path) -> None:
    asks = gate("asks", lambda call: Ask("May it?") if call.args["to"] == "ann" else None)
    async with Bank(tmp_path / "runs.db", asks) as bank:
        await bank.agent.run("go", run_id="R")
    hooks = [asks, gate("new", lambda call: Block("not her") if call.args["to"] == "eve" else None)]
    began = len(all_records(tmp_path / "runs.db"))
    async with Bank(tmp_path / "runs.db", *hooks) as bank:
        whole = await bank.agent.resume("R", {"ann": Edit({"to": "eve"})})
    assert bank.paid == []
    records = all_records(tmp_path / "runs.db")
    for length in range(began + 1, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        async with Bank(tmp_path / f"{length}.db", *hooks) as bank:
            assert (await bank.agent.resume("R")).messages == whole.messages, length
        assert bank.paid == [], length


@pytest.mark.parametrize("within", ["", "teller"])
async def test_what_a_new_shaper_made_of_a_call_that_a_person_changed_is_not_taken_for_a_word_on_what_it_was(
    tmp_path: Path, within: str
) -> None:
    asks = gate("asks", lambda call: Ask("May it?") if call.args["to"] == "ann" else None, tools=("pay",))
    async with Bank(tmp_path / "runs.db", asks, within=within) as bank:
        (waits, *_) = (await bank.agent.run("go", run_id="R")).pending
    began = len(all_records(tmp_path / "runs.db"))
    shaped: list[str] = []

    def shape(draft: Any) -> Any:
        shaped.append(draft.args["to"])
        return Replace(args={"to": f"{draft.args['to']} Smith"}) if draft.args["to"] == "eve" else None

    hooks = [asks, Hook(seam="prepare_tool_call", fn=shape, name="shape", tools=("pay",))]
    async with Bank(tmp_path / "runs.db", *hooks, within=within) as bank:
        whole = await bank.agent.resume("R", {waits.call_id: Edit({"to": "eve"})})
    assert bank.paid[0] == "eve Smith" and shaped[0] == "eve"
    records = all_records(tmp_path / "runs.db")
    ruled = next(r.n for r in records[began:] if r.kind == "ruling" and r.data["seam"] == "prepare_tool_call")
    begun = next(r.n for r in records[ruled:] if r.kind == "intent")
    for length in [n for n in range(ruled, len(records)) if n != begun]:
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        shaped.clear()
        async with Bank(tmp_path / f"{length}.db", *hooks, within=within) as bank:
            result = await bank.agent.resume("R")
        assert "eve" not in shaped and "ann" not in shaped, length
        assert bank.paid.count("eve Smith") == (length < begun), length
        assert "Not run" not in str(result.messages) and result.text == whole.text, length


async def test_what_gates_said_of_a_call_that_a_person_changed_is_a_ruling_of_its_own(tmp_path: Path) -> None:
    asked: list[str] = []

    def decide(call: Any) -> Any:
        asked.append(call.args["to"])
        return {"ann": Ask("May it?"), "eve": Queue("eve is new")}.get(call.args["to"])

    async with Bank(tmp_path / "runs.db", gate("asks", decide)) as bank:
        await bank.agent.run("go", run_id="R")
    began = len(all_records(tmp_path / "runs.db"))
    async with Bank(tmp_path / "runs.db", gate("asks", decide)) as bank:
        whole = await bank.agent.resume("R", {"ann": Edit({"to": "eve"})})
        report = await backtest(bank.agent.plan.journal, lambda loop: HookSet([gate("asks", decide)], loop))
    assert [m.text for m in whole.messages if m.role == "assistant"] == ["", "eve is new", "done"]
    assert report.differences == ()
    records = all_records(tmp_path / "runs.db")
    ruled = next(r.n for r in records[began:] if r.kind == "ruling" and r.data["seam"] == "before_tool_call")
    for length in range(ruled, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        asked.clear()
        async with Bank(tmp_path / f"{length}.db", gate("asks", decide)) as bank:
            result = await bank.agent.resume("R")
        assert asked == [], length
        assert [m.text for m in result.messages if m.role == "assistant"] == ["", "eve is new", "done"], length
async def test_what_gates_said_of_a_call_that_a_person_changed_is_not_asked_again_where_none_is_new(tmp_path: Path) -> None:
    """Nor is it taken for a part of what they said of the call as it was."""
    says = Says(None)

    def told(call: Any) -> Any:
        says(call)
        return [Queue(UserMessage(f"about {call.args['to']}")), *([Ask("May it?")] if call.args["to"] == "ann" else [])]

    async with Bank(tmp_path / "runs.db", gate("asks", told)) as bank:
        await bank.agent.run("go", run_id="R")
    async with Bank(tmp_path / "runs.db", gate("asks", told)) as bank:
        whole = await bank.agent.resume("R", {"ann": Edit({"to": "eve"})})
    assert [message.text for message in whole.messages if message.role == "user"] == ["go", "about ann", "about eve", "about bob"]
    records = all_records(tmp_path / "runs.db")
    again = next(r.n for r in records if r.kind == "ruling" and r.data["args"] == {"to": "eve"})
    for length in range(again, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        says.asked.clear()
        async with Bank(tmp_path / f"{length}.db", gate("asks", told)) as bank:
            messages = (await bank.agent.resume("R")).messages
        assert says.asked == [], length
        assert [m.text for m in messages if m.role == "user"] == [m.text for m in whole.messages if m.role == "user"], length


@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call"])
async def test_nobody_is_asked_about_a_call_that_ran_when_those_who_failed_over_it_were_gone(tmp_path: Path, seam: Any) -> None:
    fails = Says(RuntimeError("broken"))
    hook = Hook(seam=seam, fn=fails, name="fails", on_error="abort")
    async with Bank(tmp_path / "runs.db", hook) as bank:
        with pytest.raises(HookFailed):
            await bank.agent.run("go", run_id="R")
    async with Bank(tmp_path / "runs.db") as bank:
        whole = await bank.agent.resume("R")
    assert bank.paid == ["ann", "bob"]
    records = all_records(tmp_path / "runs.db")
    fails.asked.clear()
    for length in range(1 + next(r.n for r in records if r.data.get("call") == "bob" and r.kind == "intent"), len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        async with Bank(tmp_path / f"{length}.db", hook) as bank:
            assert (await bank.agent.resume("R")).messages == whole.messages, length
        assert (bank.paid, fails.asked) == ([], []), length


async def test_a_call_that_a_person_changed_does_not_run_as_it_was_where_a_hook_had_answered_too(tmp_path: Path) -> None:
    """What the hook gave is not on record, so the hooks are asked again, and they have been about what it was changed to."""
    hooks = [
        gate(name, lambda call, said=said: said if call.args["to"] == "ann" else None)
        for name, said in (("asks", Ask("May it?")), ("mocks", Answer("as if")))
    ]  # fmt: skip
    hooks.append(Hook(seam="after_tool_call", fn=lambda outcome: None, name="sees"))
    async with Bank(tmp_path / "runs.db", *hooks) as bank:
        await bank.agent.run("go", run_id="R")
    began = len(all_records(tmp_path / "runs.db"))
    async with Bank(tmp_path / "runs.db", *hooks) as bank:
        await bank.agent.resume("R", {"ann": Edit({"to": "eve"})})
    records = all_records(tmp_path / "runs.db")
    for length in range(began + 1, next(r.n for r in records[began:] if r.kind == "intent")):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        async with Bank(tmp_path / f"{length}.db", *hooks) as bank:
            await bank.agent.resume("R")
        assert bank.paid == ["eve"], length


@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call"])
@pytest.mark.parametrize(("verdict", "said"), [(NEVER, "never since today"), (Answer("as if"), "as if")])
async def test_nobody_is_asked_about_a_call_that_was_settled_when_those_who_failed_over_it_were_gone(
    tmp_path: Path, seam: Any, verdict: Any, said: str
) -> None:
    fails = Says(RuntimeError("broken"))
    hook, others = Hook(seam=seam, fn=fails, name="fails", on_error="abort"), gate("others", Says(verdict))
    async with Bank(tmp_path / "runs.db", hook) as bank:
        with pytest.raises(HookFailed):
            await bank.agent.run("go", run_id="R")
    async with Bank(tmp_path / "runs.db", others) as bank:
        whole = await bank.agent.resume("R")
    assert [m.text for m in whole.messages if m.role == "tool"] == [said] * 2
    records = all_records(tmp_path / "runs.db")
    last = [r.n for r in records if r.kind == "outcome" and r.data["call"] == "bob"][-1]
    fails.asked.clear()
    for length in range(last, len(records)):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        async with Bank(tmp_path / f"{length}.db", hook, others) as bank:
            assert (await bank.agent.resume("R")).messages == whole.messages, length
        assert (bank.paid, fails.asked) == ([], []), length


@pytest.mark.parametrize("name", ["guard", "<lambda>"])
async def test_a_new_gate_is_asked_that_has_the_name_of_one_that_was_there(tmp_path: Path, name: str) -> None:
    """Two functions have one name, or none."""
    old, new = gate(name, Says(None)), gate(name, Says(NEVER))
    await cut_after_first_gate(tmp_path / "runs.db", old)
    for hooks in ([new, old], [old, new]):
        path = tmp_path / f"{hooks.index(new)}.db"
        cut(all_records(tmp_path / "runs.db"), {"R": None}, path).close()
        async with Bank(path, *hooks) as bank:
            await bank.agent.resume("R")
        assert bank.paid == []


async def test_a_third_gate_of_a_name_is_new_where_two_have_been_asked(tmp_path: Path) -> None:
    guards = [gate("guard", Says(None)), gate("guard", Says(Ask("May it?")))]
    await cut_after_first_gate(tmp_path / "runs.db", guards[0])
    async with Bank(tmp_path / "runs.db", *guards) as bank:
        assert (await bank.agent.resume("R")).stop_reason == "suspended"
    async with Bank(tmp_path / "runs.db", gate("guard", Says(NEVER)), *guards) as bank:
        await bank.agent.resume("R", YES)
    assert bank.paid == []


def rules(folder: Path, *written: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "a.json").write_text(json.dumps([{"target": "tool", "event": "before", "regex": "ann|bob", **r} for r in written]))
    return folder


LOGS: dict[str, Any] = {"actions": [{"type": "log", "message": "seen"}]}
BLOCKS: dict[str, Any] = {"actions": [{"type": "block", "reason": "no"}]}


@pytest.mark.parametrize("now", [[BLOCKS, LOGS], [LOGS, BLOCKS], [BLOCKS]])
async def test_a_new_rule_without_a_label_is_asked_wherever_it_stands_in_its_file(tmp_path: Path, now: Any) -> None:
    """Its name tells where it stands, and that may have been another one's place."""
    folder = tmp_path / "rules"
    await cut_after_first_gate(tmp_path / "runs.db", rules(folder, LOGS))  # type: ignore[arg-type]
    async with Bank(tmp_path / "runs.db", rules(folder, *now)) as bank:  # type: ignore[arg-type]
        await bank.agent.resume("R")
    assert bank.paid == []


async def test_how_often_a_new_rule_has_fired_counts_across_another_resume(tmp_path: Path) -> None:
    folder, old = tmp_path / "rules", {**LOGS, "label": "old"}
    await cut_after_first_gate(tmp_path / "runs.db", rules(folder, old))  # type: ignore[arg-type]
    began = len(all_records(tmp_path / "runs.db"))
    source = rules(folder, old, {**BLOCKS, "label": "new", "maxTriggers": 1})
    async with Bank(tmp_path / "runs.db", source) as bank:  # type: ignore[arg-type]
        whole = await bank.agent.resume("R")
    assert bank.paid == ["bob"]
    records = all_records(tmp_path / "runs.db")
    for length in range(began + 1, next(r.n for r in records if r.kind == "intent")):
        cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
        async with Bank(tmp_path / f"{length}.db", source) as bank:  # type: ignore[arg-type]
            assert (await bank.agent.resume("R")).messages == whole.messages, length


async def test_a_gate_without_a_name_is_new_once(tmp_path: Path) -> None:
    """Whoever goes on after that finds that it was asked, though it was not there when the run began."""
    said = Says([Queue(UserMessage("seen"))])
    async with Bank(tmp_path / "runs.db", ASKS) as bank:
        await bank.agent.run("go", run_id="R")
    async with Bank(tmp_path / "runs.db", ASKS, gate("<lambda>", said)) as bank:
        whole = await bank.agent.resume("R", YES)
    assert said.asked == [{"to": "ann"}, {"to": "bob"}]
    records = all_records(tmp_path / "runs.db")
    for length in range(next(r.n for r in records if r.data.get("hooks") == ["<lambda>"]), len(records)):
        known = {r.data["call"] for r in records[:length] if r.data.get("hooks") == ["<lambda>"]}
        path = tmp_path / f"{length}.db"
        cut(records[:length], {"R": None}, path).close()
        said.asked.clear()
        async with Bank(path, ASKS, gate("<lambda>", said)) as bank:
            again = await bank.agent.resume("R")
        assert {call["to"] for call in said.asked} == {"ann", "bob"} - known, length
        assert sum(m.text == "seen" for m in again.messages) == sum(m.text == "seen" for m in whole.messages), length


async def test_a_gate_without_a_name_that_was_away_when_others_let_a_call_pass_is_asked_about_it(tmp_path: Path) -> None:
    """It was there when the run began, and not when that call came."""
    passes, refuses = gate("<lambda>", Says(None)), gate("<lambda>", lambda call: NEVER)
    async with Bank(tmp_path / "whole.db", passes, refuses) as bank:
        await bank.agent.run("go", run_id="R")
    records = all_records(tmp_path / "whole.db")
    cut(records[: next(r.n for r in records if r.kind == "reply")], {"R": None}, tmp_path / "began.db").close()
    async with Bank(tmp_path / "began.db", passes) as bank:
        await bank.agent.resume("R")
    assert bank.paid == ["ann", "bob"]
    records = all_records(tmp_path / "began.db")
    cut(records[: next(r.n for r in records if r.data.get("call") == "ann")], {"R": None}, tmp_path / "cut.db").close()
    async with Bank(tmp_path / "cut.db", refuses) as bank:
        await bank.agent.resume("R")
    assert bank.paid == []


@pytest.mark.parametrize(("to", "steered"), [("ann", True), ("eve", False)])
@pytest.mark.parametrize("asker", [True, False])
async def test_a_person_who_writes_the_same_arguments_again_does_not_lift_what_a_hook_said_that_is_gone(
    tmp_path: Path, to: str, steered: bool, asker: bool
) -> None:
    steers = gate("steers", Says(Steer("elsewhere")))
    async with Bank(tmp_path / "runs.db", ASKS, steers) as bank:
        await bank.agent.run("go", run_id="R")
    began = len(all_records(tmp_path / "runs.db"))
    hooks = [ASKS] if asker else []
    async with Bank(tmp_path / "runs.db", *hooks) as bank:
        whole = await bank.agent.resume("R", {"ann": Edit({"to": to}), "bob": Deny("no")})
    assert bank.paid == ([] if steered else [to])
    assert next(m.text for m in whole.messages if m.role == "tool").startswith("elsewhere" if steered else "paid eve")
    records = all_records(tmp_path / "runs.db")
    assert [r.kind for r in records[began:]].count("answer") == 2
    for length in range(began + 2, len(records)):
        if records[length - 1].kind != "intent":  # whether that had happened is not known then
            cut(records[:length], {"R": None}, tmp_path / f"{length}.db").close()
            async with Bank(tmp_path / f"{length}.db", *hooks) as bank:
                assert (await bank.agent.resume("R")).messages == whole.messages, length


async def test_a_hook_that_is_there_says_anew_what_it_says_of_arguments_that_a_person_wrote_again(tmp_path: Path) -> None:
    async with Bank(tmp_path / "runs.db", ASKS, gate("steers", Says(Steer("elsewhere")))) as bank:
        await bank.agent.run("go", run_id="R")
    async with Bank(tmp_path / "runs.db", ASKS, gate("steers", Says(None))) as bank:
        await bank.agent.resume("R", {"ann": Edit({"to": "ann"}), "bob": Deny("no")})
    assert bank.paid == ["ann"]
