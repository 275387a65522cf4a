"""A person's answers: given in another process, counted once, bound to what was shown."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Deny, Edit, Hook, Limits, PendingApproval, Replace, RunResult, Steer, ToolContext, tool,
)  # fmt: skip
from beforehand.answering import answer_waiting
from beforehand.errors import RunBusy, RunChanged, ServerError, UnknownAnswer, UsageError
from beforehand.journal import Journal, verify
from beforehand.journal.reading import waiting
from beforehand.testing import FunctionModel, error, text, tool_call

from journal.cutting import all_records, cut, parents


def journal(folder: Path) -> Journal:
    return Journal(folder / "runs.db", durability="normal")


def ask(*names: str) -> Hook:
    return Hook(seam="before_tool_call", fn=lambda call: Ask(f"May {call.name} run?"), tools=names, name="gate")


class Shop:
    """Tools that count, made anew for each process."""

    def __init__(self) -> None:
        self.did: list[str] = []

        @tool
        async def transfer(amount: int, to: str = "a") -> str:
            self.did.append(f"transfer {amount} {to}")
            return f"sent {amount} to {to}"

        @tool
        async def listing() -> str:
            self.did.append("list")
            return "three files"

        self.tools = [transfer, listing]


def after(*calls: Any, then: str = "done") -> FunctionModel:
    """A model that makes these calls first, and says `then` once they have results."""
    return FunctionModel(lambda request: text(then) if request.messages[-1].role == "tool" else list(calls))


def results(result: RunResult) -> dict[str, str]:
    return {m.tool_call_id: m.text for m in result.messages if m.role == "tool"}


class Process:
    """What one process has: an agent of the same definition, with tools that count by themselves."""

    def __init__(self, folder: Path, model: Any, hooks: list[Hook], extra: list[Any] | None = None, **options: Any) -> None:
        self.shop = Shop()
        self.agent = Agent(model=model, tools=[*self.shop.tools, *(extra or [])], hooks=hooks, journal=journal(folder), **options)

    @property
    def did(self) -> list[str]:
        return self.shop.did


# --- F30, and what the answer is bound to ---------------------------------------------------------

CLAMP = Hook(
    seam="prepare_tool_call",
    fn=lambda c: Replace(args={**c.args, "amount": min(c.args["amount"], 50)}),
    name="clamp",
    tools=["transfer"],
)


async def test_f30_the_person_sees_what_will_run_and_that_is_what_runs(tmp_path: Path) -> None:
    model = after(tool_call("transfer", {"amount": 100}, id="c"))
    first = Process(tmp_path, model, [CLAMP, ask("transfer")])
    (shown,) = (await first.agent.run("go", run_id="R")).pending
    assert (dict(shown.args)["amount"], dict(shown.original_args)["amount"]) == (50, 100)
    second = Process(tmp_path, model, [CLAMP, ask("transfer")])
    result = await second.agent.resume("R", {"c": Approve()})
    assert (first.did, second.did, results(result)) == ([], ["transfer 50 a"], {"c": "sent 50 to a"})


async def test_a_question_that_an_edit_leads_back_to_is_put_again_and_can_be_answered(tmp_path: Path) -> None:
    """The hooks at 11 make of what a person wrote what had been asked about, and the hooks at 12 ask about it once more."""
    model, hooks = after(tool_call("transfer", {"amount": 100}, id="c")), [CLAMP, ask("transfer")]
    await Process(tmp_path, model, hooks).agent.run("go", run_id="R")
    (again,) = (await Process(tmp_path, model, hooks).agent.resume("R", {"c": Edit({"amount": 70})})).pending
    assert dict(again.args)["amount"] == 50
    assert [question.pending.call_id for question in waiting(journal(tmp_path))] == ["c"]
    third = Process(tmp_path, model, hooks)
    result = await third.agent.resume("R", {"c": Approve()})
    assert (result.stop_reason, third.did) == ("completed", ["transfer 50 a"])


async def test_f30_a_hook_that_is_gone_does_not_let_the_original_arguments_run(tmp_path: Path) -> None:
    model = after(tool_call("transfer", {"amount": 100}, id="c"))
    await Process(tmp_path, model, [CLAMP, ask("transfer")]).agent.run("go", run_id="R")
    later = Process(tmp_path, model, [])
    await later.agent.resume("R", {"c": Approve()})
    assert later.did == ["transfer 50 a"], "what was decided and shown, though the hook that decided it is gone"


async def test_a_denied_call_does_not_run_though_the_hook_that_asked_is_gone(tmp_path: Path) -> None:
    model = after(tool_call("transfer", {"amount": 100}, id="c"))
    await Process(tmp_path, model, [ask("transfer")]).agent.run("go", run_id="R")
    later = Process(tmp_path, model, [])
    result = await later.agent.resume("R", {"c": Deny("too much")})
    assert (later.did, results(result)) == ([], {"c": "too much"})


async def test_code_that_makes_other_arguments_of_an_approved_call_is_asked_about_anew(tmp_path: Path) -> None:
    """A path that was approved, and leads elsewhere by the time of the approval."""
    (tmp_path / "a").write_text("harmless")
    (tmp_path / "b").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    removed: list[Path] = []

    @tool
    async def remove(path: Path) -> str:
        removed.append(path)
        return "removed"

    model = after(tool_call("remove", {"path": str(tmp_path / "link")}, id="c"))
    agent = Agent(model=model, tools=[remove], hooks=[ask("remove")], journal=journal(tmp_path))
    (shown,) = (await agent.run("go", run_id="R")).pending
    assert dict(shown.args)["path"] == str(tmp_path / "a")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    result = await agent.resume("R", {"c": Approve()})
    assert (removed, result.stop_reason) == ([], "suspended")
    assert dict(result.pending[0].args)["path"] == str(tmp_path / "b")
    assert (await agent.resume("R", {"c": Deny()})).stop_reason == "completed"
    assert removed == []
    await agent.aclose()


async def test_hooks_that_have_changed_are_reported_and_strict_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = after(tool_call("transfer", {"amount": 100}, id="c"))
    await Process(tmp_path, model, [CLAMP, ask("transfer")]).agent.run("go", run_id="R")
    later = Process(tmp_path, model, [ask("transfer")])
    with pytest.raises(RunChanged, match="hook clamp at prepare_tool_call is gone"):
        await later.agent.resume("R", {"c": Approve()}, strict=True)
    assert later.did == []
    assert (await later.agent.resume("R")).pending, "the answer did not count for a run that was refused"
    assert (await later.agent.resume("R", {"c": Approve()})).stop_reason == "completed"
    assert "hook clamp at prepare_tool_call is gone" in caplog.text


# --- F32, F41, F47: a batch -----------------------------------------------------------------------


async def test_f32_f41_f47_every_waiting_call_is_listed_and_the_others_have_run(tmp_path: Path) -> None:
    calls = [tool_call("transfer", {"amount": n}, id=f"t{n}") for n in (1, 2, 3)]
    model = after(calls[0], tool_call("listing", id="l"), *calls[1:])
    first = Process(tmp_path, model, [ask("transfer")])
    result = await first.agent.run("go", run_id="R")
    assert [p.call_id for p in result.pending] == ["t1", "t2", "t3"]
    assert first.did == ["list"]
    second = Process(tmp_path, model, [ask("transfer")])
    done = await second.agent.resume("R", {"t1": Approve(), "t2": Deny("no"), "t3": Edit({"amount": 30})})
    assert sorted(second.did) == ["transfer 1 a", "transfer 30 a"], "the free one does not run again"
    assert list(results(done)) == ["t1", "l", "t2", "t3"]
    assert done.text == "done"
    request = model.requests[-1]
    assert [m.tool_call_id for m in request.messages if m.role == "tool"] == ["t1", "l", "t2", "t3"]


async def test_an_answer_that_is_missing_is_a_refusal_and_one_that_is_unknown_is_an_error(tmp_path: Path) -> None:
    model = after(*[tool_call("transfer", {"amount": n}, id=f"t{n}") for n in (1, 2)])
    first = Process(tmp_path, model, [ask("transfer")])
    await first.agent.run("go", run_id="R")
    with pytest.raises(UnknownAnswer, match=r"no call 't9' of run R is waiting; waiting are t1, t2"):
        await first.agent.resume("R", {"t1": Approve(), "t9": Approve()})
    with pytest.raises(UsageError, match="an answer is"):
        await first.agent.resume("R", {"t1": True})  # type: ignore[dict-item]
    assert (await first.agent.resume("R")).stop_reason == "suspended", "nobody has said anything yet"
    assert first.did == []
    result = await first.agent.resume("R", {"t1": Approve()})
    assert first.did == ["transfer 1 a"]
    assert "Nobody approved" in results(result)["t2"]
    with pytest.raises(UnknownAnswer):
        await first.agent.resume("R", {"t1": Approve()})
    assert first.did == ["transfer 1 a"]


# --- F33: across processes, with and without what the caller passes -------------------------------

PROGRAM = """
import asyncio, json, sys
from beforehand import Agent, Approve, Ask, Hook, ToolContext, tool
from beforehand.testing import FunctionModel, text, tool_call

@tool
async def deploy(ctx: ToolContext) -> str:
    with open(sys.argv[2], "a") as file:
        file.write("deployed\\n")
    return f"deployed for {ctx.deps}"

model = FunctionModel(lambda r: text(r.messages[-1].text) if r.messages[-1].role == "tool" else tool_call("deploy", id="c"))
gate = Hook(seam="before_tool_call", fn=lambda c: Ask("?"), name="gate")
agent = Agent(model=model, tools=[deploy], hooks=[gate], journal=sys.argv[1])
deps = json.loads(sys.argv[4])
if sys.argv[3] == "run":
    result = asyncio.run(agent.run("go", run_id="R", deps=deps))
else:
    result = asyncio.run(agent.resume("R", {"c": Approve()}, deps=deps))
print(result.stop_reason, result.text)
"""


@pytest.mark.parametrize("deps", [None, "ann"])
def test_f33_an_approval_holds_in_another_process_with_and_without_deps(tmp_path: Path, deps: str | None) -> None:
    def process(what: str) -> str:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "runs.db"), str(tmp_path / "did"), what, json.dumps(deps)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    assert process("run") == "suspended"
    assert process("resume") == f"completed deployed for {deps}"
    assert (tmp_path / "did").read_text() == "deployed\n"


# --- F35: an edit ---------------------------------------------------------------------------------


async def test_f35_an_edit_is_validated_gated_again_and_the_model_is_told(tmp_path: Path) -> None:
    no_bs = Hook(seam="before_tool_call", fn=lambda c: Block("not to b") if c.args["to"] == "b" else None, name="no b")
    model = after(*[tool_call("transfer", {"amount": n}, id=f"t{n}") for n in (1, 2, 3)])
    first = Process(tmp_path, model, [ask("transfer"), no_bs])
    await first.agent.run("go", run_id="R")
    later = Process(tmp_path, model, [ask("transfer"), no_bs])
    answers = {"t1": Edit({"amount": 10, "to": "c"}), "t2": Edit({"amount": 2, "to": "b"}), "t3": Edit({"amount": "lots"})}
    said = results(await later.agent.resume("R", answers))
    assert later.did == ["transfer 10 c"]
    assert "A person changed the arguments of this call on purpose" in said["t1"]
    assert "Do not repeat the original call" in said["t1"]
    assert said["t2"].startswith("not to b\n[A person changed the arguments of this call on purpose, to ")
    assert "arguments that the tool does not take" in said["t3"]


@pytest.mark.parametrize("verdict", [Block("no"), Answer("made up"), Steer("elsewhere")], ids=lambda v: type(v).__name__)
async def test_f35_the_model_is_told_of_an_edit_whatever_hooks_make_of_it(tmp_path: Path, verdict: Any) -> None:
    def make() -> Process:
        other = Hook(seam="before_tool_call", fn=lambda call: verdict if call.args["amount"] == 5 else None, name="other")
        return Process(tmp_path, after(tool_call("transfer", {"amount": 1}, id="c")), [ask("transfer"), other])

    await make().agent.run("go", run_id="R")
    later = make()
    told = results(await later.agent.resume("R", {"c": Edit({"amount": 5})}))["c"]
    assert later.did == []
    assert '[A person changed the arguments of this call on purpose, to {"amount": 5, "to": "a"}.' in told
    assert "ran with" not in told


async def test_an_edit_that_changes_nothing_is_not_told_as_a_change(tmp_path: Path) -> None:
    def make() -> Process:
        return Process(tmp_path, after(tool_call("transfer", {"amount": 1}, id="c")), [ask("transfer")])

    await make().agent.run("go", run_id="R")
    assert results(await make().agent.resume("R", {"c": Edit({"amount": 1})})) == {"c": "sent 1 to a"}


NO_JSON = {
    "not a number": {"amount": float("nan")}, "infinite": {"amount": float("inf")}, "half a character": {"amount": "\ud800"},
    "an object": {"amount": object()}, "nothing": None, "no mapping": [("amount", 5)], "a text that is no JSON": "amount: 5",
}  # fmt: skip
NO_JSON["in itself"] = {"amount": NO_JSON}


@pytest.mark.parametrize("args", NO_JSON)
@pytest.mark.parametrize("way", ["resume", "another process", "on_ask"])
async def test_an_edit_that_json_cannot_hold_is_refused_and_does_not_become_another(tmp_path: Path, args: str, way: str) -> None:
    sent = []

    def make(on_ask: Any = None) -> Agent:
        @tool
        async def send(amount: Any) -> str:
            sent.append(amount)
            return "sent"

        model = after(tool_call("send", {"amount": 1}, id="c"))
        return Agent(model=model, tools=[send], hooks=[ask("send")], journal=journal(tmp_path), on_ask=on_ask)

    edit = Edit(NO_JSON[args])
    if way == "on_ask":
        result = await make(lambda pending: edit).run("go", run_id="R")
    else:
        agent = make()
        await agent.run("go", run_id="R")
        if way == "another process":
            await answer_waiting(agent.plan.journal, "R", "c", edit, by="ann")
        result = await make().resume("R", {"c": edit} if way == "resume" else None)
    assert (result.stop_reason, sent) == ("completed", [])
    assert "arguments that the tool does not take" in results(result)["c"]


@pytest.mark.parametrize("answers", [[("c", Approve())], "c", Approve(), []], ids=repr)
async def test_answers_that_are_no_mapping_are_an_error_and_the_call_waits_on(tmp_path: Path, answers: Any) -> None:
    process = Process(tmp_path, after(tool_call("transfer", {"amount": 1}, id="c")), [ask("transfer")])
    await process.agent.run("go", run_id="R")
    with pytest.raises(UsageError, match="a mapping from call ids"):
        await process.agent.resume("R", answers)
    assert results(await process.agent.resume("R", {"c": Approve()})) == {"c": "sent 1 to a"}


# --- F36, F43: sub-agents -------------------------------------------------------------------------


def with_child(folder: Path, did: list[str], levels: int = 1) -> Agent:
    """An agent whose sub-agent (of so many levels) has a gated tool that nobody else has."""

    @tool
    async def wipe(disk: str) -> str:
        did.append(disk)
        return f"wiped {disk}"

    inner = Agent(model=after(tool_call("wipe", {"disk": "a"}, id="w"), then="child done"), tools=[wipe], hooks=[ask("wipe")])
    for level in range(1, levels):
        inner = Agent(model=after(tool_call(f"down{level}", {"prompt": "go"}, id=f"d{level}"), then="middle done"),
                      tools=[inner.as_tool(f"down{level}", "Helps.")])  # fmt: skip
    model = after(tool_call("child", {"prompt": "go"}, id="c"))
    return Agent(model=model, tools=[inner.as_tool("child", "Helps.")], journal=journal(folder))


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize(
    ("answer", "done"), [(Approve(), ["a"]), (Deny("no"), []), (Edit({"disk": "b"}), ["b"])], ids=["approve", "deny", "edit"]
)
async def test_f36_f43_a_sub_agents_question_is_answered_in_another_process(
    tmp_path: Path, answer: Any, done: list[str], levels: int
) -> None:
    did: list[str] = []
    result = await with_child(tmp_path, did, levels).run("go", run_id="R")
    (pending,) = result.pending
    middle = "".join(f"d{n}/" for n in range(levels - 1, 0, -1))
    assert pending.call_id == f"c/{middle}w"
    agent = with_child(tmp_path, did, levels)
    result = await agent.resume("R", {pending.call_id: answer})
    assert (did, result.stop_reason, result.text) == (done, "completed", "done")
    assert verify(agent.plan.journal) == []
    assert (await with_child(tmp_path, did, levels).resume("R")).text == "done"
    assert did == done


async def test_a_sub_agents_run_is_resumed_through_the_run_it_belongs_to(tmp_path: Path) -> None:
    did: list[str] = []
    agent = with_child(tmp_path, did)
    await agent.run("go", run_id="R")
    with pytest.raises(UsageError, match="resume R, which goes on with it"):
        await agent.resume("R/c", {"w": Approve()})
    assert did == []


# --- F38, F39, F46 --------------------------------------------------------------------------------


async def test_f38_a_hook_that_lets_everything_pass_does_not_turn_a_pause_into_an_error(tmp_path: Path) -> None:
    passing = [
        Hook(seam=seam, fn=lambda c: None, name=f"pass {seam}") for seam in ("before_tool_call", "after_tool_call", "on_message")
    ]
    model = after(tool_call("transfer", {"amount": 1}, id="c"))
    process = Process(tmp_path, model, [*passing, ask("transfer")])
    assert (await process.agent.run("go", run_id="R")).stop_reason == "suspended"
    assert (await process.agent.resume("R", {"c": Approve()})).text == "done"


async def test_f39_three_rounds_of_review_do_each_piece_of_work_once(tmp_path: Path) -> None:
    def round_of(request: Any) -> Any:
        n = sum(m.role == "tool" for m in request.messages) // 2
        return text("done") if n == 3 else [tool_call("listing", id=f"l{n}"), tool_call("transfer", {"amount": n}, id=f"t{n}")]

    did: list[str] = []
    process = Process(tmp_path, FunctionModel(round_of), [ask("transfer")])
    result = await process.agent.run("go", run_id="R")
    for n in range(3):
        did += process.did
        assert [p.call_id for p in result.pending] == [f"t{n}"]
        process = Process(tmp_path, FunctionModel(round_of), [ask("transfer")])
        result = await process.agent.resume("R", {f"t{n}": Approve()})
    assert sorted(did + process.did) == ["list"] * 3 + [f"transfer {n} a" for n in range(3)]
    assert result.text == "done"


async def test_f46_an_answer_is_not_used_up_by_a_request_that_fails_after_the_tool(tmp_path: Path) -> None:
    down = True

    def reply(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return error("down") if down else text("done")
        return tool_call("transfer", {"amount": 1}, id="c")

    first = Process(tmp_path, FunctionModel(reply), [ask("transfer")])
    await first.agent.run("go", run_id="R")
    second = Process(tmp_path, FunctionModel(reply), [ask("transfer")])
    with pytest.raises(ServerError, match="down"):
        await second.agent.resume("R", {"c": Approve()})
    assert second.did == ["transfer 1 a"]
    down = False
    third = Process(tmp_path, FunctionModel(reply), [ask("transfer")])
    result = await third.agent.resume("R")
    assert (third.did, result.text, result.stop_reason) == ([], "done", "completed")
    assert results(result) == {"c": "sent 1 to a"}


@pytest.mark.parametrize("inside", [False, True])
async def test_a_question_that_an_abort_has_ended_is_not_put_again_wherever_the_record_ends(tmp_path: Path, inside: bool) -> None:
    reached = asyncio.Event()

    @tool(replay="safe")
    async def slow() -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    def process(folder: Path) -> Process:
        child = Agent(model=after(tool_call("transfer", {"amount": 1}, id="k")), tools=Shop().tools, hooks=[ask("transfer")])
        asks = tool_call("child", {"prompt": "x"}, id="c") if inside else tool_call("transfer", {"amount": 1}, id="c")
        hooks = [ask("transfer"), Hook(seam="finish_turn", fn=lambda turn: None), Hook(seam="after_turn", fn=lambda turn: None)]
        model = after(asks, tool_call("slow", id="s"))
        return Process(
            folder, model, hooks, [slow, child.as_tool("child", "Asks.")], limits=Limits(abort_grace=0.01), tool_mode="sequential"
        )

    first = process(tmp_path)
    talk = first.agent.conversation()
    running = asyncio.create_task(talk.run("go", run_id="R"))
    await reached.wait()
    talk.abort()
    assert ((await running).stop_reason, waiting(first.agent.plan.journal)) == ("aborted", [])
    records, of = all_records(tmp_path / "runs.db"), parents(tmp_path / "runs.db")
    over = next(k for k, r in enumerate(records, 1) if (r.kind, r.run_id, r.data.get("call")) == ("outcome", "R", "c"))
    for k in range(over, len(records) + 1):
        (tmp_path / str(k)).mkdir()
        cut(records[:k], of, tmp_path / str(k) / "runs.db").close()
        again = process(tmp_path / str(k))
        result = await again.agent.resume("R")
        assert (result.pending, again.did) == ((), []), k
        assert results(result)["c"] == "Operation aborted", k
        assert waiting(again.agent.plan.journal) == [], k


async def test_a_sub_agents_question_that_was_given_up_is_not_listed_and_takes_no_answer(tmp_path: Path) -> None:
    child = Agent(model=after(tool_call("transfer", {"amount": 1}, id="k")), tools=Shop().tools, hooks=[ask("transfer")])
    model = FunctionModel(lambda r: text("done") if len(r.messages) > 1 else tool_call("child", {"prompt": "x"}, id="c"))
    process = Process(tmp_path, model, [], [child.as_tool("child", "Asks.")])
    talk, store = process.agent.conversation(), process.agent.plan.journal
    await talk.run("go", run_id="R")
    assert [(question.run_id, question.call_id) for question in waiting(store)] == [("R", "c/k")]
    await talk.run("never mind")
    assert waiting(store) == []
    for run_id, call_id in (("R", "c/k"), ("R/c", "k")):
        with pytest.raises(UnknownAnswer, match="is waiting"):
            await answer_waiting(store, run_id, call_id, Approve(), by="ann")
    assert [r.kind for r in store.records("R/c") if r.kind == "answer"] == []


# --- questions inside nested calls ----------------------------------------------------------------


def nesting(replay: Any, did: list[str]) -> Any:
    @tool(replay=replay)
    async def script(ctx: ToolContext) -> str:
        first = await ctx.call_tool("listing", {})
        second = await ctx.call_tool("transfer", {"amount": 5})
        did.append("script")
        return f"{first.text}; {second.text}"

    return script


@pytest.mark.parametrize(
    ("answer", "said"),
    [(Approve(), "three files; sent 5 to a"), (Deny("no"), "three files; no")],
)  # fmt: skip
async def test_a_question_inside_a_safe_tool_waits_for_another_process(tmp_path: Path, answer: Any, said: str) -> None:
    model = after(tool_call("script", id="s"))
    did: list[str] = []
    first = Process(tmp_path, model, [ask("transfer")], [nesting("safe", did)])
    result = await first.agent.run("go", run_id="R")
    assert [(p.call_id, p.parent_call_id) for p in result.pending] == [("s/1", "s")] or [p.call_id for p in result.pending] == [
        "s/2"
    ]
    second = Process(tmp_path, model, [ask("transfer")], [nesting("safe", did)])
    done = await second.agent.resume("R", {result.pending[0].call_id: answer})
    assert results(done) == {"s": said}
    assert first.did == ["list"]
    assert second.did == (["transfer 5 a"] if isinstance(answer, Approve) else [])
    assert did == ["script"]


async def test_a_question_inside_a_tool_that_may_not_be_repeated_is_refused_with_that_reason(tmp_path: Path) -> None:
    process = Process(tmp_path, after(tool_call("script", id="s")), [ask("transfer")], [nesting("never", [])])
    result = await process.agent.run("go", run_id="R")
    assert result.stop_reason == "completed"
    assert 'replay="safe"' in results(result)["s"]
    assert process.did == ["list"]


async def test_a_question_inside_a_tool_that_may_not_be_repeated_can_be_answered_inline(tmp_path: Path) -> None:
    asked: list[PendingApproval] = []

    async def on_ask(pending: PendingApproval) -> Approve:
        asked.append(pending)
        return Approve()

    process = Process(tmp_path, after(tool_call("script", id="s")), [ask("transfer")], [nesting("never", [])], on_ask=on_ask)
    result = await process.agent.run("go", run_id="R")
    assert results(result) == {"s": "three files; sent 5 to a"}
    assert [p.call_id for p in asked] == ["s/2"]
    kinds = [(r.kind, r.data.get("by")) for r in process.agent.plan.journal.records("R") if r.kind in ("ask", "answer")]
    assert kinds == [("ask", None), ("answer", "on_ask")]


def chain(replays: dict[str, Any], did: list[str]) -> list[Any]:
    """Tools each of which calls the next, and the last one `transfer`."""

    def link(name: str, replay: Any, then: str) -> Any:
        async def body(ctx: ToolContext) -> str:
            did.append(name)
            return (await ctx.call_tool(then, {"amount": 5} if then == "transfer" else {})).text

        return tool(name=name, description="Calls another.", replay=replay)(body)

    names = [*replays, "transfer"]
    return [link(name, replay, then) for (name, replay), then in zip(replays.items(), names[1:], strict=True)]


UNSAFE = [
    {"a": "never", "b": "safe"}, {"a": "safe", "b": "never"}, {"a": "never", "b": "safe", "c": "safe"},
    {"a": "safe", "b": "never", "c": "safe"},
]  # fmt: skip


@pytest.mark.parametrize("replays", UNSAFE, ids=lambda r: "-".join(r.values()))
async def test_a_question_below_any_tool_that_may_not_be_repeated_is_refused_at_once(
    tmp_path: Path, replays: dict[str, Any]
) -> None:
    process = Process(tmp_path, after(tool_call("a", id="c")), [ask("transfer")], chain(replays, []))
    result = await process.agent.run("go", run_id="R")
    assert (result.stop_reason, result.pending, process.did) == ("completed", (), [])
    assert 'not replay="safe"' in results(result)["c"]


@pytest.mark.parametrize("replays", UNSAFE, ids=lambda r: "-".join(r.values()))
async def test_a_question_below_a_tool_that_may_not_be_repeated_is_answered_inline_at_any_depth(
    tmp_path: Path, replays: dict[str, Any]
) -> None:
    model = after(tool_call("a", id="c"))
    process = Process(tmp_path, model, [ask("transfer")], chain(replays, []), on_ask=lambda pending: Approve())
    result = await process.agent.run("go", run_id="R")
    assert (results(result), process.did) == ({"c": "sent 5 to a"}, ["transfer 5 a"])


async def test_a_question_below_safe_tools_only_waits_at_any_depth(tmp_path: Path) -> None:
    def process() -> Process:
        safe = {"a": "safe", "b": "safe", "c": "safe"}
        return Process(tmp_path, after(tool_call("a", id="c")), [ask("transfer")], chain(safe, []))

    (pending,) = (await process().agent.run("go", run_id="R")).pending
    assert (pending.call_id, pending.parent_call_id) == ("c/1/1/1", "c/1/1")
    later = process()
    assert results(await later.agent.resume("R", {pending.call_id: Approve()})) == {"c": "sent 5 to a"}
    assert later.did == ["transfer 5 a"]


# --- a sub-agent that the owner does not let be repeated ------------------------------------------


def owned(folder: Path, path: Path, did: list[str], levels: int) -> Agent:
    """`with_child`, where the project's owner has lowered the sub-agent's tool."""
    (folder / "beforehand.toml").write_text('[[tools]]\nname = "child"\nreplay = "never"\n')
    plan = with_child(folder / "unused", did, levels).plan
    return Agent.from_project(folder, model=plan.model, tools=plan.tools, journal=Journal(path, durability="normal"))


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize(("answer", "done"), [(Approve(), ["a"]), (Deny("no"), []), (Edit({"disk": "b"}), ["b"])], ids=str)
async def test_a_question_in_a_sub_agent_that_the_owner_lowered_is_answered_in_another_process(
    tmp_path: Path, answer: Any, done: list[str], levels: int
) -> None:
    (tmp_path / "unused").mkdir()
    did: list[str] = []
    first = owned(tmp_path, tmp_path / "runs.db", did, levels)
    result = await first.run("go", run_id="R")
    await first.aclose()
    later = owned(tmp_path, tmp_path / "runs.db", did, levels)
    result = await later.resume("R", {result.pending[0].call_id: answer})
    assert (result.stop_reason, results(result), did) == (
        "completed",
        {"c": "child done" if levels == 1 else "middle done"},
        done,
    )
    assert [d.verdict for d in result.decisions if d.call_id == "c"] == []
    intents = [r.data for r in later.plan.journal.records("R") if r.kind == "intent"]
    assert {(i["replay"], i["by"]) for i in intents} == {("never", "owner")}
    assert verify(later.plan.journal) == []
    await later.aclose()


async def test_a_sub_agent_that_the_owner_lowered_goes_on_from_its_question_and_from_nowhere_else(tmp_path: Path) -> None:
    """Cut anywhere after the approval: it goes on while its own run still waited, and is uncertain once that was under way."""
    (tmp_path / "unused").mkdir()
    whole = owned(tmp_path, tmp_path / "whole.db", [], 1)
    pending = (await whole.run("go", run_id="R")).pending
    await whole.resume("R", {pending[0].call_id: Approve()})
    await whole.aclose()
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    answered = max(i for i, r in enumerate(records) if r.kind == "answer")
    told = next(i for i, r in enumerate(records) if r.kind == "outcome" and r.run_id == "R")
    under_way = [i for i, r in enumerate(records) if r.kind == "resumed" and r.run_id == "R/c"]
    for end in range(answered, told):
        did: list[str] = []
        cut(records[: end + 1], of, tmp_path / f"{end}.db").close()
        again = owned(tmp_path, tmp_path / f"{end}.db", did, 1)
        result = await again.resume("R")
        outcome = next(m.outcome for m in result.messages if m.role == "tool")
        goes_on = end < under_way[0]
        assert (outcome, did) == (("ran", ["a"]) if goes_on else ("uncertain", [])), f"{records[end].run_id} {records[end].kind}"
        await again.aclose()
    assert under_way[0] > answered + 1


async def test_a_tool_that_has_taken_a_waiting_sub_agents_name_does_not_begin_in_its_place(tmp_path: Path) -> None:
    did: list[str] = []

    @tool(replay="never")
    async def child(prompt: str) -> str:
        did.append(prompt)
        return "begun anew"

    first = with_child(tmp_path, did)
    (pending,) = (await first.run("go", run_id="R")).pending
    await first.aclose()
    later = Agent(model=first.plan.model, tools=[child], journal=journal(tmp_path))
    result = await later.resume("R", {pending.call_id: Approve()})
    assert did == []
    assert "Whether it took effect is not known" in results(result)["c"]


async def test_a_talk_whose_resumption_is_refused_still_waits_and_remembers(tmp_path: Path) -> None:
    shop, store = Shop(), journal(tmp_path)
    model = FunctionModel(lambda r: tool_call("listing") if r.messages[-1].text == "list" else text(f"{len(r.messages)}"))
    agent = Agent(model=model, tools=shop.tools, hooks=[ask("listing")], journal=store)
    talk = agent.conversation()
    await talk.run("hello")
    (waiting,) = (await talk.run("list", run_id="R")).pending
    said = list(talk.messages)
    lease = await store.hold("R")
    with pytest.raises(RunBusy):
        await talk.resume({waiting.call_id: Approve()})
    lease.release()
    assert list(talk.messages) == said
    assert (await talk.resume({waiting.call_id: Approve()})).text == "5", "the model was shown all that had been said"
    assert shop.did == ["list"]
    await agent.aclose()


async def test_a_run_that_another_process_went_on_with_is_not_given_up_by_a_new_prompt(tmp_path: Path) -> None:
    shop = Shop()
    model = FunctionModel(lambda r: tool_call("listing") if r.messages[-1].text == "list" else text(f"{len(r.messages)}"))
    agent = Agent(model=model, tools=shop.tools, hooks=[ask("listing")], journal=journal(tmp_path))
    talk = agent.conversation()
    (waiting,) = (await talk.run("list", run_id="R")).pending
    other = Agent(model=model, tools=shop.tools, hooks=[ask("listing")], journal=journal(tmp_path))
    finished = await other.resume("R", {waiting.call_id: Approve()})
    recorded = journal(tmp_path).records("R")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"run R has been answered or gone on with elsewhere: `await talk\.resume\(\{\}\)`"):
            await talk.run("next")
    assert journal(tmp_path).records("R") == recorded
    assert await talk.resume({}) == finished
    assert (await talk.run("next", run_id="S")).text == "5"
    assert (await other.resume("S")).text == "5"
    assert shop.did == ["list"]
    await agent.aclose()
    await other.aclose()


async def test_a_new_prompt_that_finds_the_waiting_run_busy_gives_nothing_up(tmp_path: Path) -> None:
    store = journal(tmp_path)
    model = FunctionModel(lambda r: tool_call("listing") if r.messages[-1].text == "list" else text(f"{len(r.messages)}"))
    agent = Agent(model=model, tools=Shop().tools, hooks=[ask("listing")], journal=store)
    talk = agent.conversation()
    await talk.run("list", run_id="R")
    lease = await store.hold("R")
    with pytest.raises(RunBusy):
        await talk.run("next")
    lease.release()
    assert [m.role for m in talk.messages] == ["user", "assistant"], "the call waits as before"
    assert (await talk.run("next")).text == "4"
    assert talk.messages[2].text == "Nobody approved this call: it was not run."
    await agent.aclose()
