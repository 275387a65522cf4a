"""Other hooks, put to the recorded values of past runs: what would have changed, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Context, Deny, Edit, End, Hook, Interrupt, Queue, Replace, UserMessage, hook,
    ToolContext, tool,
)  # fmt: skip
from beforehand.backtest import Backtest, backtest
from beforehand.hooks.registry import HookSet
from beforehand.journal import Journal
from beforehand.testing import ScriptedModel, text, tool_call

ran: list[int] = []


@tool
def pay(amount: int, to: str = "Ada") -> str:
    """Pay somebody."""
    ran.append(amount)
    return f"paid {amount} to {to}, card 4000-1234"


@tool
async def look(what: str) -> str:
    """Look something up."""
    return f"saw {what}"


@hook.before_tool_call(tools=["pay"])
def not_too_much(call: Any) -> Block | None:
    return Block("too much") if call.args["amount"] > 100 else None


@hook.after_tool_call
def no_card(outcome: Any) -> Replace | None:
    return Replace(content=outcome.text.replace("4000-1234", "***")) if "4000" in outcome.text else None


HOOKS = (not_too_much, no_card)


def conversation(calls: int) -> list[Any]:
    """Turns of two calls each: a payment of 1, 2, 3, ... (every tenth above the limit) and a look."""
    turns: list[Any] = []
    for i in range(1, calls // 2 + 1):
        amount = i if i % 10 else 1000 + i
        turns.append([tool_call("pay", {"amount": amount}), tool_call("look", {"what": f"thing {i}"})])
    return [*turns, text("done")]


async def recorded(path: Path, turns: list[Any], hooks: Any = HOOKS, prompt: str = "go", **options: Any) -> Journal:
    agent = Agent(
        model=ScriptedModel(turns), tools=[pay, look], hooks=hooks, journal=path, durability="normal", instructions="Be kind.",
        **options,
    )  # fmt: skip
    await agent.run(prompt, run_id="r1", limits=agent.plan.limits.with_(max_turns=None))
    return agent.plan.journal  # type: ignore[no-any-return]


async def put(journal: Journal, *hooks: Hook) -> Backtest:
    return await backtest(journal, lambda loop: HookSet(hooks, loop))


async def test_the_same_hooks_change_nothing_and_run_nothing(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", conversation(500))
    ran.clear()

    report = await put(journal, *HOOKS)

    assert report.differences == ()
    assert report.runs == 1
    assert report.values >= 500
    assert report.unreadable == ()
    assert ran == []


async def test_one_new_rule_changes_exactly_the_calls_it_should(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", conversation(500))

    @hook.before_tool_call(tools=["pay"])
    def nothing_with_a_seven(call: Any) -> Block | None:
        return Block("no sevens") if "7" in str(call.args["amount"]) else None

    report = await put(journal, *HOOKS, nothing_with_a_seven)

    amounts = [json.loads(d.about)["amount"] for d in report.differences if d.kind == "newly_blocked"]
    # Above 100 both sets refuse, and of equal refusals the first counts: no change.
    assert amounts == [i for i in range(1, 101) if "7" in str(i) and i % 10]
    assert len(report.differences) == len(amounts)
    assert {d.hook for d in report.differences} == {"nothing_with_a_seven"}


async def test_a_rule_that_is_gone_allows_what_it_had_refused(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", conversation(60))

    report = await put(journal, no_card)

    assert report.counts["newly_allowed"] == len(report.differences) == 3
    assert {(d.seam, d.decided, d.would) for d in report.differences} == {("before_tool_call", "Block(too much)", "let pass")}
    assert [json.loads(d.about) for d in report.differences] == [{"amount": 1000 + i, "to": "Ada"} for i in (10, 20, 30)]


async def test_a_result_is_judged_as_the_tool_gave_it_if_that_was_kept(tmp_path: Path) -> None:
    @hook.after_tool_call
    def other_mask(outcome: Any) -> Replace | None:
        return Replace(content=outcome.text.replace("4000-1234", "[card]")) if "4000" in outcome.text else None

    kept = await recorded(tmp_path / "raw.db", conversation(4), journal_raw=True)
    report = await put(kept, not_too_much, other_mask)
    assert report.counts["rewritten_differently"] == len(report.differences) == 2

    without = await recorded(tmp_path / "runs.db", conversation(4))
    assert (await put(without, not_too_much, other_mask)).differences == ()  # what it would mask was masked before it was kept


@pytest.mark.parametrize(
    ("make", "seam", "kind"),
    [
        (lambda: hook.before_run(lambda s: Block("no")), "before_run", "newly_blocked"),
        (lambda: hook.before_turn(lambda t: End("enough") if t.number == 2 else None), "before_turn", "newly_blocked"),
        (lambda: hook.before_run(lambda s: Replace(messages=s.messages * 2)), "before_run", "rewritten_differently"),
        (
            lambda: hook.prepare_request(lambda p: Replace(context=Context("Be rude.", p.context.messages, p.context.tools))),
            "prepare_request", "rewritten_differently",
        ),
        (lambda: hook.transform_context(lambda v: Replace(messages=[*v.messages, UserMessage("psst")])), "transform_context",
         "rewritten_differently"),
        (lambda: hook.authorize_request(lambda o: Block("no") if "kind" in o.request.system else None), "authorize_request",
         "newly_blocked"),
        (lambda: hook.authorize_request(lambda o: Answer("me")), "authorize_request", "rewritten_differently"),
        (lambda: hook.on_chunk(lambda c: Interrupt("no") if "done" in c.pending else None), "on_chunk", "newly_blocked"),
        (lambda: hook.on_chunk(lambda c: Replace(text=c.pending.upper()) if c.kind == "text" else None), "on_chunk",
         "rewritten_differently"),
        (lambda: hook.on_message(lambda m: Queue("hm") if m.origin == "model" else None), "on_message", "effects_differ"),
        (lambda: hook.on_message(lambda m: Interrupt("no") if m.origin == "tool" else None), "on_message", "newly_blocked"),
        (lambda: hook.prepare_tool_call(tools=["pay"])(lambda d: Replace(args={**d.args, "amount": 1})), "prepare_tool_call",
         "rewritten_differently"),
        (lambda: hook.before_tool_call(lambda c: Ask("may I?")), "before_tool_call", "newly_blocked"),
        (lambda: hook.before_tool_call(lambda c: Answer("mock")), "before_tool_call", "rewritten_differently"),
        (lambda: hook.after_tool_call(lambda o: Replace(is_error=True)), "after_tool_call", "rewritten_differently"),
        (lambda: hook.finish_turn(lambda t: End("enough")), "finish_turn", "newly_blocked"),
    ],
)  # fmt: skip
async def test_every_gate_and_shape_seam_is_asked(
    make: Callable[[], Hook], seam: str, kind: str, tmp_path: Path
) -> None:
    journal = await recorded(tmp_path / "runs.db", conversation(4), hooks=())

    report = await put(journal, make())

    found = {(d.seam, d.kind) for d in report.differences}
    assert found == {(seam, kind)}
    assert report.unreadable == ()


async def test_a_hook_that_fails_now_would_have_blocked(tmp_path: Path) -> None:
    journal = await recorded(tmp_path / "runs.db", conversation(2), hooks=())

    @hook.on_message
    def broken(message: Any) -> None:
        raise ValueError("the policy service is down")

    report = await put(journal, broken)

    assert report.counts["newly_blocked"] == len(report.differences) > 0
    assert "the policy service is down" in report.differences[0].would


async def test_approvals_and_edits_on_record_are_gone_over_as_they_were(tmp_path: Path) -> None:
    @hook.before_tool_call(tools=["pay"])
    def ask(call: Any) -> Ask:
        return Ask("pay?")

    def answer(pending: Any) -> Any:
        return {1: Approve(), 2: Deny("no"), 3: Edit({"amount": 30})}.get(pending.args["amount"], Approve())

    turns = [[tool_call("pay", {"amount": i}) for i in (1, 2, 3)], text("done")]
    journal = await recorded(tmp_path / "runs.db", turns, hooks=[ask], on_ask=answer)

    assert (await put(journal, ask)).differences == ()
    assert (await put(journal)).counts["newly_allowed"] >= 3


@pytest.mark.parametrize("value", [{"a": 1}, [1, 2], 7, None, "text"], ids=str)
async def test_an_answer_is_compared_by_what_it_comes_to(value: Any, tmp_path: Path) -> None:
    def answering(value: Any) -> Hook:
        return Hook(seam="before_tool_call", tools=("pay",), fn=lambda call: Answer(value), name="answers")

    journal = await recorded(tmp_path / "runs.db", conversation(2), hooks=[answering(value)])

    assert (await put(journal, answering(value))).differences == ()
    assert (await put(journal, answering("something else"))).counts["rewritten_differently"] == 1


# --- arguments that hooks shape -------------------------------------------------------------------


@tool
async def scale(n: int = 0, unit: str = "kg") -> str:
    return f"{n} {unit}"


@tool
async def outer(ctx: ToolContext, n: int = 3) -> str:
    """Makes a call of its own."""
    return (await ctx.call_tool("scale", {"n": n})).text  # type: ignore[no-any-return]


def shape(make: Callable[[Any], dict[str, Any]]) -> Hook:
    return Hook(seam="prepare_tool_call", tools=("scale",), fn=lambda c: Replace(args=make(c.args)), name="shapes")


SHAPERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "a clamp": lambda args: {**args, "n": min(args["n"], 5)},
    "not idempotent": lambda args: {**args, "n": args["n"] + 1},
    "leaves out what has a default": lambda args: {"n": args.get("n", 0) + 1},
}  # fmt: skip
GATE = Hook(seam="before_tool_call", fn=lambda call: None, name="gate")
ASKS = Hook(seam="before_tool_call", tools=("scale",), fn=lambda call: Ask("?") if call.args["n"] != 7 else None, name="asks")
STOPS = Hook(seam="before_tool_call", fn=lambda call: Block("no") if call.args["n"] > 50 else None, name="stops")


async def scaled(path: Path, hooks: Any, older: bool = False) -> Journal:
    """Calls of the model with other arguments, all and none of them given, and one from inside a tool."""
    given = [{}, {"n": 50}, {"n": 8 if older else "8"}, {"n": 60, "unit": "t"}]
    calls = [tool_call("scale", args, id=f"c{i}") for i, args in enumerate(given)]
    journal = await recorded_of(Agent(
        model=ScriptedModel([[*calls, tool_call("outer", {}, id="o")], text("done")]), tools=[scale, outer], hooks=hooks,
        journal=path, durability="normal", on_ask=lambda asked: Edit({"n": 6}),
    ))  # fmt: skip
    return written_by_an_older_version(journal, path) if older else journal


def written_by_an_older_version(journal: Journal, path: Path) -> Journal:
    """The same run without what the hooks at 11 were given."""
    records = [(r.kind, r.at, r.data, r.body) for r in journal.records("r1")]
    of_11 = [k == "ruling" and data["seam"] == "prepare_tool_call" and data.pop("args", None) for k, _, data, _ in records]
    assert any(of_11)
    kept = [(k, at, msgspec.json.encode(data) if cut else body) for (k, at, data, body), cut in zip(records, of_11, strict=True)]
    older = Journal(path.with_name("older.db"), durability="normal")
    older.append(older.open_run("r1", kept[0]), kept[1:])
    return older


@pytest.mark.parametrize("make", SHAPERS.values(), ids=SHAPERS)
@pytest.mark.parametrize("gates", [(), (GATE,), (ASKS,), (STOPS,)], ids=["", "a gate", "edited by a person", "some are refused"])
async def test_arguments_are_shaped_as_they_were(make: Callable[[Any], Any], gates: tuple[Hook, ...], tmp_path: Path) -> None:
    journal = await scaled(tmp_path / "runs.db", [shape(make), *gates])

    assert (await put(journal, shape(make), *gates)).differences == ()


@pytest.mark.parametrize("gates", [(), (GATE,), (ASKS,)], ids=["", "a gate", "edited by a person"])
async def test_a_clamp_that_is_taken_away_is_a_difference(gates: tuple[Hook, ...], tmp_path: Path) -> None:
    journal = await scaled(tmp_path / "runs.db", [shape(SHAPERS["a clamp"]), *gates])

    report = await put(journal, *gates)

    assert {(d.kind, d.seam) for d in report.differences} == {("rewritten_differently", "prepare_tool_call")}
    edited = {("c0", 6), ("c1", 6), ("c2", 6), ("c3", 6), ("o/1", 6)} if gates == (ASKS,) else set()
    assert {(d.call_id, json.loads(d.about)["n"]) for d in report.differences} == {("c1", 50), ("c2", 8), ("c3", 60)} | edited


async def test_in_older_records_the_arguments_are_those_of_the_models_reply(tmp_path: Path) -> None:
    make = SHAPERS["a clamp"]
    journal = await scaled(tmp_path / "runs.db", [shape(make)], older=True)

    assert (await put(journal, shape(make))).differences == ()
    found = [(d.call_id, json.loads(d.about)) for d in (await put(journal)).differences]
    assert found == [("c1", {"n": 50, "unit": "kg"}), ("c2", {"n": 8, "unit": "kg"}), ("c3", {"n": 60, "unit": "t"})]


# --- runs of sub-agents ---------------------------------------------------------------------------


def adds(seam: str, name: str = "adds") -> Hook:
    """A hook that rewrites whatever it gets, at one of the seams that a sub-agent does not inherit."""
    made = {
        "before_run": lambda c: Replace(messages=[*c.messages, UserMessage("more")]),
        "prepare_request": lambda c: Replace(context=Context(c.context.system + "!", c.context.messages, c.context.tools)),
        "transform_context": lambda c: Replace(messages=[*c.messages, UserMessage("note")]),
        "finish_turn": lambda c: End("enough") if c.tool_results == () else None,
        "prepare_next_turn": lambda c: Replace(add_messages=[UserMessage("next")]),
    }[seam]
    return Hook(seam=seam, fn=made, name=name)


def blocks(name: str, amount: int, **options: Any) -> Hook:
    def block(call: Any) -> Block | None:
        return Block(f"{name} says no") if call.name == "pay" and call.args["amount"] == amount else None

    return Hook(seam="before_tool_call", fn=block, name=name, **options)


async def with_sub_agent(path: Path, hooks: Any, own: Any = (), inherit: bool = True) -> Journal:
    child = Agent(
        model=ScriptedModel([[tool_call("pay", {"amount": n}) for n in (1, 2, 3)], text("paid")]), tools=[pay], hooks=own
    )
    turns = [[tool_call("pay", {"amount": 1}), tool_call("clerk", {"prompt": "pay"})], text("done")]
    tools = [pay, child.as_tool("clerk", "Pays.", inherit=inherit)]
    options = {"journal": path, "durability": "normal", "journal_raw": True}
    return await recorded_of(Agent(model=ScriptedModel(turns), hooks=hooks, tools=tools, **options))


async def recorded_of(agent: Agent) -> Journal:
    await agent.run("go", run_id="r1")
    return agent.plan.journal  # type: ignore[no-any-return]


NOT_INHERITED = ["before_run", "prepare_request", "transform_context", "finish_turn", "prepare_next_turn"]


@pytest.mark.parametrize("seam", NOT_INHERITED)
async def test_a_sub_agents_run_is_not_judged_by_hooks_that_it_never_had(seam: str, tmp_path: Path) -> None:
    journal = await with_sub_agent(tmp_path / "runs.db", [adds(seam)])

    assert (await put(journal, adds(seam))).differences == ()
    assert {d.run_id for d in (await put(journal)).differences} == {"r1"}


@pytest.mark.parametrize("own", [*NOT_INHERITED, "before_tool_call", "prepare_tool_call", "after_tool_call", "authorize_request"])
async def test_what_a_sub_agents_own_hooks_decided_stands(own: str, tmp_path: Path) -> None:
    of_child = {
        "before_tool_call": blocks("own", 2),
        "prepare_tool_call": Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={**c.args, "to": "Eve"}), name="own"),
        "after_tool_call": Hook(seam="after_tool_call", fn=lambda c: Replace(content="paid"), name="own"),
        "authorize_request": Hook(seam="authorize_request", fn=lambda c: Block("no") if c.run.turn == 2 else None, name="own"),
    }
    journal = await with_sub_agent(tmp_path / "runs.db", HOOKS, [of_child.get(own) or adds(own, "own")])

    assert (await put(journal, *HOOKS)).differences == ()


async def test_other_hooks_of_its_parent_would_have_held_in_a_sub_agent_too(tmp_path: Path) -> None:
    journal = await with_sub_agent(tmp_path / "runs.db", [blocks("first", 1)], [blocks("own", 2)])

    report = await put(journal, blocks("second", 3))

    found = [(d.kind, json.loads(d.about)["amount"], d.run_id == "r1") for d in report.differences]
    assert sorted(found) == [("newly_allowed", 1, False), ("newly_allowed", 1, True), ("newly_blocked", 3, False)]
    assert (await put(journal, blocks("first", 1), blocks("again", 2))).counts == {
        "newly_blocked": 0, "newly_allowed": 0, "refused_differently": 1, "rewritten_differently": 0, "effects_differ": 0,
    }  # fmt: skip


async def test_a_sub_agent_that_inherits_nothing_is_not_judged(tmp_path: Path) -> None:
    journal = await with_sub_agent(tmp_path / "runs.db", [blocks("first", 1)], inherit=False)

    assert {d.run_id for d in (await put(journal)).differences} == {"r1"}
    assert {d.run_id for d in (await put(journal, blocks("first", 1), blocks("second", 3))).differences} == set()


# --- records that are not whole -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["intent", "outcome", "reply", "ruling", "request", "message", "turn"])
async def test_a_run_that_was_cut_off_is_gone_over_as_far_as_it_came(kind: str, tmp_path: Path) -> None:
    whole = await recorded(tmp_path / "whole.db", conversation(6))
    records = whole.records("r1")
    for place in [i for i, record in enumerate(records) if record.kind == kind]:
        cut = Journal(tmp_path / f"cut{place}.db", durability="normal")
        first, *rest = [(r.kind, r.at, r.body) for r in records[: place + 1]]
        head = cut.open_run("r1", first)
        if rest:
            cut.append(head, rest)

        report = await put(cut, *HOOKS)

        assert report.unreadable == ()
        assert report.differences == ()
        cut.close()


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_what_ran_beside_a_call_that_waits_is_gone_over(place: int, mode: str, tmp_path: Path) -> None:
    ask = hook.before_tool_call(tools=["pay"])(lambda call: Ask("pay?"))
    plainly = hook.prepare_tool_call(tools=["look"])(lambda draft: Replace(args={"what": draft.args["what"].strip()}))
    never = hook.before_tool_call(lambda call: Block("never"))
    blank = hook.after_tool_call(lambda outcome: Replace(content=""))
    batch = [tool_call("look", {"what": f" {n}"}, id=f"c{n}") for n in range(3)]
    batch[place] = tool_call("pay", {"amount": 1}, id=f"c{place}")
    journal = await recorded(tmp_path / "runs.db", [batch], hooks=[ask, plainly], tool_mode=mode)

    assert (await put(journal, ask, plainly)).differences == ()
    report = await put(journal, plainly, never, blank)

    looked = [f"c{n}" for n in range(3) if n != place]
    assert sorted([(d.seam, d.call_id, d.kind) for d in report.differences]) == sorted([
        ("before_tool_call", f"c{place}", "refused_differently"),
        *[("before_tool_call", call, "newly_blocked") for call in looked],
        *[("after_tool_call", call, "rewritten_differently") for call in looked],
    ])  # fmt: skip


async def test_the_calls_inside_a_tool_that_was_cut_off_are_gone_over_as_far_as_they_came(tmp_path: Path) -> None:
    @tool
    async def twice(ctx: ToolContext, amount: int) -> str:
        """Pay it in two parts."""
        return "".join([(await ctx.call_tool("pay", {"amount": part})).text for part in (amount, 1000)])

    agent = Agent(
        model=ScriptedModel([[tool_call("twice", {"amount": n}) for n in (1, 2)], text("done")]), tools=[twice, pay],
        hooks=HOOKS, journal=tmp_path / "whole.db", durability="normal",
    )  # fmt: skip
    await agent.run("go", run_id="r1")
    records = agent.plan.journal.records("r1")
    never = hook.before_tool_call(tools=["pay"])(lambda call: Block("never"))
    asked = [i for i, r in enumerate(records) if r.kind == "ruling" and r.data["seam"] == "before_tool_call"]
    assert len(asked) == 4

    for place in range(asked[0], len(records)):
        cut = Journal(tmp_path / f"cut{place}.db", durability="normal")
        first, *rest = [(r.kind, r.at, r.body) for r in records[: place + 1]]
        cut.append(cut.open_run("r1", first), rest)

        report = await put(cut, never)

        assert report.unreadable == ()
        judged = [d.call_id for d in report.differences if d.seam == "before_tool_call"]
        assert sorted(judged) == sorted([records[i].data["call"] for i in asked if i <= place])
        cut.close()


async def test_a_damaged_run_is_named_and_the_others_are_gone_over(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = await recorded(path, conversation(4))
    agent = Agent(model=ScriptedModel(conversation(4)), tools=[pay, look], hooks=HOOKS, journal=journal)
    await agent.run("go", run_id="r2")
    journal.db.execute("UPDATE records SET body = ? WHERE id >> 32 = 1 AND kind = 'intent'", (b"{}",))

    report = await put(journal, *HOOKS)

    assert report.runs == 1
    (problem,) = report.unreadable
    assert problem.startswith("run r1: ")
    assert "was changed" in problem


# --- the command ---------------------------------------------------------------------------------


def command(*arguments: str, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "beforehand", "backtest", *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True,
        check=False, timeout=120,
    )  # fmt: skip


RULE = {
    "target": "tool", "label": "nobody pays 42", "event": "before", "tools": ["pay"], "args": {"/amount": {"equals": 42}},
    "actions": [{"type": "block", "reason": "not 42"}],
}  # fmt: skip


async def test_the_command_says_what_a_rule_file_would_have_changed(tmp_path: Path) -> None:
    await recorded(tmp_path / "runs.db", conversation(100), hooks=())
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([RULE]))

    done = command("--journal", str(tmp_path / "runs.db"), "--hooks", str(rules))
    strict = command("--journal", str(tmp_path / "runs.db"), "--hooks", str(rules), "--expect-no-change", "--json")

    assert done.returncode == 0, done.stderr
    assert "newly blocked: 1" in done.stdout
    assert "not 42" in done.stdout
    assert "rules.json" in done.stdout
    assert strict.returncode == 1
    *differences, counts = [json.loads(line) for line in strict.stdout.splitlines()]
    assert [d["kind"] for d in differences] == ["newly_blocked"]
    assert counts["newly_blocked"] == 1


async def test_a_signed_journal_is_gone_over_with_its_key_and_without_it_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = tmp_path / "runs.db", "0123456789abcdef"
    (await recorded(path, conversation(10), hooks=(), journal_key=key.encode())).close()
    (tmp_path / "rules.json").write_text(json.dumps([RULE]))
    arguments = ("--journal", str(path), "--hooks", str(tmp_path / "rules.json"))
    monkeypatch.setenv("JOURNAL_KEY", key)

    done, without = command(*arguments, "--key-env", "JOURNAL_KEY"), command(*arguments)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 run, ")
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr == f"error: {path} is signed: give the key it was made with (--key-env NAME on the command line)\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no terminals to open there")
async def test_who_looks_on_sees_how_far_it_is_and_others_are_told_what_changed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(tmp_path / "runs.db", conversation(10), hooks=())
    (tmp_path / "rules.json").write_text(json.dumps([RULE]))
    arguments = ("--journal", str(tmp_path / "runs.db"), "--hooks", str(tmp_path / "rules.json"))
    ours, terminal = os.openpty()
    monkeypatch.setenv("TERM", "xterm")

    looked_at = command(*arguments, stderr=terminal)
    os.close(terminal)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    unseen = command(*arguments)

    assert "going over the runs" in shown
    assert "100%" in shown
    assert (looked_at.returncode, looked_at.stdout) == (0, unseen.stdout)
    assert unseen.stderr == ""


async def test_the_command_is_content_where_nothing_changes(tmp_path: Path) -> None:
    await recorded(tmp_path / "runs.db", conversation(10), hooks=())
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([RULE]))

    done = command("--journal", str(tmp_path / "runs.db"), "--hooks", str(rules), "--expect-no-change")
    later = command("--journal", str(tmp_path / "runs.db"), "--hooks", str(rules), "--since", "2999-01-01")

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("no change\n")
    assert later.stdout.startswith("0 runs")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--journal", "nowhere.db", "--hooks", "rules.json"), "nowhere.db"),
        (("--journal", "rules.json", "--hooks", "rules.json"), "is not a journal that can be read"),
        (("--journal", "runs.db", "--hooks", "rules.json", "--since", "yesterday"), "--since 'yesterday' is no time"),
        (("--journal", "runs.db", "--hooks", "nothing.json"), "nothing.json"),
    ],
)
async def test_what_cannot_be_done_is_said_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(tmp_path / "runs.db", conversation(2), hooks=())
    (tmp_path / "rules.json").write_text(json.dumps([RULE]))
    monkeypatch.chdir(tmp_path)

    done = command(*arguments)

    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
