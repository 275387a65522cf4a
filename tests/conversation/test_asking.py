"""`Ask`: a run that waits for a person, suspended and resumed in the same process, or answered inline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Deny, Edit, Hook, Limits, NothingToContinue, PendingApproval, Replace, Steer, ToolResult,
    UnknownAnswer, UserMessage, tool,
)  # fmt: skip
from beforehand.testing import ScriptedModel, error, text, tool_call

from conversation.checks import assert_continuable, assert_valid

APPROVAL = Hook(
    seam="before_tool_call", fn=lambda c: Ask(f"Pay {c.args['n']}?", options=("yes", "no")), tools=("pay",), name="approval"
)


class Till:
    """A tool that pays, and what was paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    @tool
    async def pay(self, n: int) -> str:
        self.paid.append(n)
        return f"paid {n}"


@tool
async def look() -> str:
    return "looked"


def waiting_talk(*calls: Any, more: Any = (), mode: str = "parallel", **options: Any) -> tuple[Any, ScriptedModel, Till]:
    till = Till()
    model = ScriptedModel([list(calls), text("end"), text("after that")])
    hooks = [APPROVAL, *more]
    talk = Agent(model=model, tools=[till.pay, look], hooks=hooks, tool_mode=mode, **options).conversation()
    return talk, model, till


def pay(n: int) -> Any:
    return tool_call("pay", {"n": n}, id=f"c{n}")


# --- suspended ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_a_run_that_waits_says_what_for_and_has_neither_run_the_call_nor_asked_the_model(mode: str) -> None:
    talk, model, till = waiting_talk(pay(1), mode=mode)
    result = await talk.run("go")

    assert (result.stop_reason, len(model.requests), till.paid) == ("suspended", 1, [])
    (pending,) = result.pending
    assert isinstance(pending, PendingApproval)
    assert (pending.call_id, pending.name, dict(pending.args)) == ("c1", "pay", {"n": 1})
    assert (pending.prompt, pending.options, pending.hook) == ("Pay 1?", ("yes", "no"), "approval")
    assert pending.args_digest
    assert talk.pending == result.pending
    assert not talk.is_running


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_an_approved_call_runs_and_the_same_run_goes_on(mode: str) -> None:
    talk, model, till = waiting_talk(pay(1), mode=mode)
    first = await talk.run("go")
    result = await talk.resume({"c1": Approve()})

    assert till.paid == [1]
    assert (result.stop_reason, result.text, result.run_id) == ("completed", "end", first.run_id)
    assert [m.text for m in result.messages] == ["go", "", "paid 1", "end"]
    assert [m.text for m in model.requests[1].messages] == ["go", "", "paid 1"]
    assert talk.pending == ()


async def test_hooks_are_not_asked_again_about_an_approved_call() -> None:
    asked: list[str] = []
    count = Hook(seam="before_tool_call", fn=lambda c: asked.append(c.call_id))
    shape = Hook(seam="prepare_tool_call", fn=lambda c: asked.append(f"shape {c.call_id}"))
    talk, _, _ = waiting_talk(pay(1), more=[count, shape])
    await talk.run("go")
    await talk.resume({"c1": Approve()})

    assert asked == ["shape c1", "c1"]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_several_calls_wait_at_once_and_each_gets_its_own_answer(mode: str) -> None:
    talk, model, till = waiting_talk(pay(1), pay(2), pay(3), pay(4), mode=mode)
    result = await talk.run("go")
    assert [p.call_id for p in result.pending] == ["c1", "c2", "c3", "c4"]
    await talk.resume({"c4": Edit({"n": 40}), "c2": Deny("too dear"), "c1": Approve()})

    told = [m.text for m in model.requests[1].messages[-4:]]
    assert sorted(till.paid) == [1, 40]
    assert told[0] == "paid 1"
    assert told[1] == "too dear"
    assert told[2].startswith("Nobody approved")
    assert told[3].startswith("paid 40")
    assert_valid(talk.messages)


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_free_siblings_run_at_once_and_no_result_is_lost(position: int, mode: str) -> None:
    calls = [tool_call("look", id=f"f{n}") for n in range(2)]
    calls.insert(position, pay(1))
    ran: list[str] = []
    talk, model, till = waiting_talk(*calls, mode=mode)
    talk.on("tool_execution_end", lambda e: ran.append(f"{e.call_id} {e.outcome}"))
    await talk.run("go")
    assert sorted(ran) == ["c1 pending", "f0 ran", "f1 ran"]
    result = await talk.resume({"c1": Approve()})

    ids = [call.id for call in talk.messages[1].tool_calls]
    assert [m.tool_call_id for m in model.requests[1].messages if m.role == "tool"] == ids
    assert till.paid == [1]
    assert result.text == "end"
    assert_valid(talk.messages)


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_hooks_at_the_end_of_the_turn_see_every_result_of_a_batch_that_waited(mode: str) -> None:
    seen: list[Any] = []
    end = Hook(seam="finish_turn", fn=lambda t: seen.append([r.tool_call_id for r in t.tool_results]))
    talk, _, _ = waiting_talk(tool_call("look", id="f"), pay(1), tool_call("look", id="g"), more=[end], mode=mode)
    await talk.run("go")
    assert seen == []
    await talk.resume({"c1": Approve()})

    assert seen == [["f", "c1", "g"], []]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("both", [False, True])
async def test_a_batch_that_waited_terminates_only_if_every_result_of_it_says_so(both: bool, mode: str) -> None:
    @tool
    async def early() -> ToolResult:
        return ToolResult("early", terminate=both)

    @tool(name="pay")
    async def pay_and_stop(n: int) -> ToolResult:
        return ToolResult("paid", terminate=True)

    model = ScriptedModel([[tool_call("early"), pay(1)], text("asked again")])
    talk = Agent(model=model, tools=[early, pay_and_stop], hooks=[APPROVAL], tool_mode=mode).conversation()
    await talk.run("go")
    await talk.resume({"c1": Approve()})

    assert len(model.requests) == (1 if both else 2)


async def test_an_edited_call_is_validated_shaped_and_gated_again_and_shows_its_origin() -> None:
    seen: list[Any] = []
    gates = [
        Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={"n": min(c.args["n"], 50)})),
        Hook(seam="before_tool_call", fn=lambda c: seen.append((c.args["n"], c.original_args["n"]))),
        Hook(seam="before_tool_call", fn=lambda c: Block("not 13") if c.args["n"] == 13 else None),
    ]
    talk, model, till = waiting_talk(pay(100), more=gates)
    result = await talk.run("go")
    (pending,) = result.pending
    assert (dict(pending.args), dict(pending.original_args)) == ({"n": 50}, {"n": 100})
    await talk.resume({"c100": Edit({"n": "13"})})

    assert till.paid == []
    assert seen == [(50, 100), (13, 100)]
    told = model.requests[1].messages[-1].text
    assert told.startswith("not 13\n[A person changed the arguments of this call on purpose, to ")


async def test_a_person_is_asked_again_if_hooks_made_something_else_of_what_he_wrote() -> None:
    clamp = Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={"n": min(c.args["n"], 50)}))
    talk, _, till = waiting_talk(pay(10), more=[clamp])
    await talk.run("go")
    result = await talk.resume({"c10": Edit({"n": 500})})

    assert (result.stop_reason, till.paid) == ("suspended", [])
    assert dict(result.pending[0].args) == {"n": 50}
    await talk.resume({"c10": Approve()})
    assert till.paid == [50]


async def test_an_answer_for_a_call_nobody_asked_about_is_an_error_and_the_run_goes_on_waiting() -> None:
    talk, _, till = waiting_talk(pay(1))
    await talk.run("go")
    with pytest.raises(UnknownAnswer, match="c1"):
        await talk.resume({"c1": Approve(), "c2": Approve()})
    assert till.paid == []
    assert [p.call_id for p in talk.pending] == ["c1"]

    await talk.resume({"c1": Approve()})
    assert till.paid == [1]


async def test_a_run_can_be_resumed_once() -> None:
    talk, _, till = waiting_talk(pay(1))
    await talk.run("go")
    await talk.resume({"c1": Approve()})
    with pytest.raises(NothingToContinue):
        await talk.resume({"c1": Approve()})
    assert till.paid == [1]


async def test_there_is_nothing_to_resume_where_nothing_waits() -> None:
    talk = Agent(model=ScriptedModel([text("one")])).conversation()
    with pytest.raises(NothingToContinue):
        await talk.resume({})
    await talk.run("go")
    with pytest.raises(NothingToContinue):
        await talk.resume({})


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_a_new_prompt_instead_of_an_answer_refuses_what_waits_and_keeps_the_rest(mode: str) -> None:
    talk, model, till = waiting_talk(tool_call("look", id="f"), pay(1), mode=mode)
    await talk.run("go")
    result = await talk.run("never mind")

    assert till.paid == []
    assert talk.pending == ()
    assert [m.text for m in result.messages] == ["never mind", "end"]
    sent = [m.text for m in model.requests[1].messages]
    assert sent[:3] == ["go", "", "looked"]
    assert sent[3].startswith("Nobody approved")
    assert sent[4] == "never mind"
    assert_valid(talk.messages)
    with pytest.raises(NothingToContinue):
        await talk.resume({"c1": Approve()})


async def test_listeners_hear_the_end_of_a_call_that_was_given_up_before_anything_else() -> None:
    talk, _, _ = waiting_talk(pay(1))
    await talk.run("go")
    heard: list[Any] = []
    talk.subscribe(lambda e: heard.append((e.type, getattr(e, "outcome", None))))
    await talk.run("never mind")

    assert heard[0] == ("tool_execution_end", "blocked")
    assert heard[1][0] == "message_start"


async def test_a_call_may_be_asked_about_in_every_turn() -> None:
    till = Till()
    model = ScriptedModel([pay(1), pay(2), text("end")])
    talk = Agent(model=model, tools=[till.pay], hooks=[APPROVAL]).conversation()
    await talk.run("go")
    second = await talk.resume({"c1": Approve()})
    assert [p.call_id for p in second.pending] == ["c2"]
    result = await talk.resume({"c2": Approve()})

    assert till.paid == [1, 2]
    assert [m.text for m in result.messages] == ["go", "", "paid 1", "", "paid 2", "end"]


async def test_each_leg_of_a_run_that_waited_has_its_own_start_and_end() -> None:
    talk, _, _ = waiting_talk(pay(1))
    events: list[Any] = []
    talk.subscribe(lambda e: events.append((e.type, getattr(e, "stop_reason", None))))
    await talk.run("go")
    assert events[-1] == ("agent_end", "suspended")
    assert "turn_end" not in [name for name, _ in events]
    events.clear()
    await talk.resume({"c1": Approve()})

    assert events[0] == ("agent_start", None)
    assert events[-1] == ("agent_end", "completed")
    assert [name for name, _ in events].count("turn_end") == 2


async def test_a_resumed_run_can_be_read_as_a_stream_equal_to_what_listeners_hear() -> None:
    talk, _, till = waiting_talk(pay(1))
    await talk.run("go")
    heard: list[Any] = []
    talk.subscribe(heard.append)
    streamed = [event async for event in talk.stream_resume({"c1": Approve()})]

    assert streamed == heard
    assert till.paid == [1]
    assert talk.result.text == "end"


async def test_a_stream_that_was_never_read_resumes_nothing() -> None:
    talk, _, till = waiting_talk(pay(1))
    await talk.run("go")
    await talk.stream_resume({"c1": Approve()}).aclose()  # type: ignore[attr-defined]
    assert till.paid == []
    await talk.resume({"c1": Approve()})

    assert till.paid == [1]


async def test_a_run_may_suspend_in_the_middle_of_a_stream() -> None:
    talk, _, till = waiting_talk(pay(1))
    streamed = [event async for event in talk.stream("go")]

    assert streamed[-1].stop_reason == "suspended"
    assert [p.call_id for p in talk.pending] == ["c1"]
    await talk.resume({"c1": Approve()})
    assert till.paid == [1]


async def test_words_said_while_a_run_waits_are_taken_when_it_goes_on() -> None:
    talk, model, _ = waiting_talk(pay(1))
    await talk.run("go")
    talk.steer("thank you")
    await talk.resume({"c1": Approve()})

    assert [m.text for m in model.requests[1].messages] == ["go", "", "paid 1", "thank you"]


async def test_an_abort_in_a_resumed_run_works_like_in_any_other() -> None:
    reached = asyncio.Event()

    @tool(name="pay")
    async def slow(n: int) -> str:
        reached.set()
        await talk_holder[0].wait()
        return "stopped"

    model = ScriptedModel([[pay(1), pay(2)], text("never")])
    talk = Agent(model=model, tools=[slow], hooks=[APPROVAL]).conversation()
    talk_holder = [asyncio.Event()]
    await talk.run("go")
    running = asyncio.create_task(talk.resume({"c1": Approve(), "c2": Deny()}))
    await reached.wait()
    talk.abort()
    talk_holder[0].set()
    result = await running

    assert (result.stop_reason, len(model.requests)) == ("aborted", 1)
    await assert_continuable(talk, model)


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_an_abort_while_another_call_runs_leaves_nothing_that_waits(mode: str) -> None:
    till, reached = Till(), asyncio.Event()

    @tool
    async def slow() -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([[pay(1), tool_call("slow", id="s")], text("after that")])
    limits = Limits(abort_grace=0.01)
    talk = Agent(model=model, tools=[till.pay, slow], hooks=[APPROVAL], tool_mode=mode, limits=limits).conversation()
    running = asyncio.create_task(talk.run("go"))
    await reached.wait()
    talk.abort()
    result = await running

    assert (result.stop_reason, result.pending, talk.pending, till.paid) == ("aborted", (), (), [])
    assert [(m.tool_call_id, m.outcome) for m in result.messages if m.role == "tool"] == [("c1", "aborted"), ("s", "aborted")]
    await assert_continuable(talk, model)


async def test_a_model_failure_after_an_approved_call_keeps_its_result_and_the_call_is_not_made_again() -> None:
    till = Till()
    model = ScriptedModel([pay(1), error("down"), text("end")])
    talk = Agent(model=model, tools=[till.pay], hooks=[APPROVAL]).conversation()
    await talk.run("go")
    failed = await talk.resume({"c1": Approve()}, check=False)
    result = await talk.continue_run() if talk.messages[-1].role == "tool" else await talk.run("again")

    assert failed.stop_reason == "error"
    assert till.paid == [1]
    assert "paid 1" in [m.text for m in model.requests[2].messages]
    assert result.text == "end"


# --- the rank of Ask ------------------------------------------------------------------------------

LOWER_AND_HIGHER: dict[str, tuple[Any, str, list[int]]] = {
    # other verdict at the same call: what becomes of it with an approval
    "block": (Block("no"), "no", []),
    "steer": (Steer("elsewhere"), "elsewhere", []),
    "answer": (Answer("made up"), "made up", []),
    "allow": (None, "paid 1", [1]),
}


@pytest.mark.parametrize("other", list(LOWER_AND_HIGHER))
@pytest.mark.parametrize("first", [False, True])
async def test_an_approval_answers_the_question_and_nothing_else(other: str, first: bool) -> None:
    verdict, told, paid = LOWER_AND_HIGHER[other]
    till = Till()
    beside = Hook(seam="before_tool_call", fn=lambda c: verdict)
    model = ScriptedModel([pay(1), text("end")])
    hooks = [beside, APPROVAL] if first else [APPROVAL, beside]
    asked: list[Any] = []

    def on_ask(pending: Any) -> Approve:
        asked.append(pending)
        return Approve()

    await Agent(model=model, tools=[till.pay], hooks=hooks, on_ask=on_ask).run("go")

    assert till.paid == paid
    assert model.requests[1].messages[-1].text == told
    assert len(asked) == (0 if other == "block" else 1)


@pytest.mark.parametrize(("verdict", "told"), [(Steer("elsewhere"), "elsewhere"), (Answer("made up"), "made up")], ids=repr)
@pytest.mark.parametrize("inline", [False, True], ids=["resumed", "on_ask"])
async def test_an_edited_call_does_not_pass_another_hooks_verdict_either(verdict: Any, told: str, inline: bool) -> None:
    beside = Hook(seam="before_tool_call", fn=lambda c: verdict)
    talk, model, till = waiting_talk(pay(1), more=[beside], on_ask=(lambda pending: Edit({"n": 2})) if inline else None)
    await talk.run("go")
    if not inline:
        await talk.resume({"c1": Edit({"n": 2})})

    assert till.paid == []
    assert told in model.requests[1].messages[-1].text


@pytest.mark.parametrize("inline", [False, True], ids=["resumed", "on_ask"])
async def test_a_steer_that_counts_after_an_approval_cancels_the_siblings_that_have_not_run(inline: bool) -> None:
    steer = Hook(seam="before_tool_call", fn=lambda c: Steer("elsewhere") if c.args["n"] == 2 else None, tools=("pay",))
    talk, model, till = waiting_talk(
        tool_call("look"), pay(1), pay(2), pay(3), more=[steer], on_ask=(lambda pending: Approve()) if inline else None
    )
    result = await talk.run("go")
    if not inline:
        await talk.resume({pending.call_id: Approve() for pending in result.pending})

    looked, one, two, three = [m.text for m in model.requests[1].messages[-4:]]
    assert till.paid == []
    assert two == "elsewhere"
    assert one.startswith("Cancelled")
    assert three.startswith("Cancelled")
    assert looked.startswith("Cancelled") if inline else looked == "looked", "what has run has run"


# --- inline ---------------------------------------------------------------------------------------

INLINE: dict[str, tuple[Any, list[int], str]] = {
    "approve": (Approve(), [1], "paid 1"),
    "deny": (Deny("too dear"), [], "too dear"),
    "edit": (Edit({"n": 2}), [2], "paid 2"),
    "none": (None, [], "Nobody approved"),
    "true": (True, [], "bool"),
    "text": ("yes", [], "str"),
    "class": (Approve, [], "not Approve, Deny or Edit"),
    "block": (Block("no"), [], "Block"),
}


@pytest.mark.parametrize("answer", list(INLINE))
@pytest.mark.parametrize("kind", ["sync", "async", "object"])
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_a_handler_of_any_kind_answers_and_what_is_no_answer_refuses(answer: str, kind: str, mode: str) -> None:
    returned, paid, told = INLINE[answer]

    async def async_handler(pending: Any) -> Any:
        await asyncio.sleep(0)
        return returned

    class Handler:
        async def __call__(self, pending: Any) -> Any:
            return returned

    handler: Any = {"sync": lambda pending: returned, "async": async_handler, "object": Handler()}[kind]
    talk, model, till = waiting_talk(pay(1), on_ask=handler, mode=mode)
    result = await talk.run("go")

    assert till.paid == paid
    assert told in model.requests[1].messages[-1].text
    assert result.stop_reason == "completed"


@pytest.mark.parametrize(
    "problem", [RuntimeError("the phone is dead"), TimeoutError("nobody home"), SystemExit(1)], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_handler_that_raises_refuses_that_call_with_the_reason(problem: BaseException, kind: str) -> None:
    def handler(pending: Any) -> Approve:
        if pending.call_id == "c1":
            raise problem
        return Approve()

    async def async_handler(pending: Any) -> Approve:
        return handler(pending)

    talk, model, till = waiting_talk(pay(1), pay(2), on_ask=handler if kind == "sync" else async_handler)
    result = await talk.run("go")

    first, second = model.requests[1].messages[-2:]
    assert type(problem).__name__ in first.text
    assert second.text == "paid 2"
    assert till.paid == [2]
    assert result.stop_reason == "completed"


async def test_a_handler_is_asked_about_one_call_at_a_time_in_order() -> None:
    steps: list[str] = []

    async def handler(pending: Any) -> Approve:
        steps.append(f"asked {pending.call_id}")
        await asyncio.sleep(0)
        steps.append(f"answered {pending.call_id}")
        return Approve()

    talk, _, till = waiting_talk(pay(1), pay(2), on_ask=handler)
    await talk.run("go")

    assert steps == ["asked c1", "answered c1", "asked c2", "answered c2"]
    assert till.paid == [1, 2]


async def test_a_person_may_take_longer_than_any_time_limit() -> None:
    limits = Limits(hook_timeout=0.2, tool_timeout=0.2)

    @tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return ""

    async def slow_person(pending: PendingApproval) -> Approve:
        """Answers when a call of another agent has met the same limit, twice."""
        model = ScriptedModel([tool_call("wait"), tool_call("wait"), text("enough")])
        waited = await Agent(model=model, tools=[wait], limits=limits).run("go")
        assert "gave no result within 0.2 s" in waited.messages[2].text
        return Approve()

    async def asks(call: Any) -> Ask:
        return Ask("May it?")

    till, gate = Till(), Hook(seam="before_tool_call", fn=asks, name="asks")
    model = ScriptedModel([pay(1), text("end")])
    result = await Agent(model=model, tools=[till.pay], hooks=[gate], on_ask=slow_person, limits=limits).run("go")
    assert (result.messages[2].text, till.paid) == ("paid 1", [1])


async def test_a_handler_that_edits_for_ever_is_stopped_and_the_call_refused() -> None:
    asked: list[Any] = []
    count_up = Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={"n": c.args["n"] + 1}))

    def handler(pending: Any) -> Edit:
        asked.append(pending)
        return Edit({"n": pending.args["n"]})

    talk, _, till = waiting_talk(pay(1), more=[count_up], on_ask=handler)
    result = await talk.run("go")

    assert till.paid == []
    assert 1 < len(asked) < 20
    assert result.stop_reason == "completed"


async def test_a_prompt_in_a_history_that_was_left_waiting_elsewhere_is_repaired() -> None:
    talk, _, _ = waiting_talk(pay(1))
    await talk.run("go")
    model = ScriptedModel([text("end")])
    other = Agent(model=model, tools=[look]).conversation(talk.messages)
    await other.run(UserMessage("where were we?"))

    assert [m.role for m in model.requests[0].messages] == ["user", "assistant", "tool", "user"]
    assert model.requests[0].messages[2].is_error  # type: ignore[union-attr]
