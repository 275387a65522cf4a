"""Field cases F48, F50 to F52, F54, F55, F56: guards that are slow, broken, of another colour, out of order or short-sighted."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from typing import Any

import pytest

from beforehand import (
    Agent, Approve, Ask, AssistantMessage, Block, CustomMessage, Hook, HookFailed, Limits, PendingApproval, Replace, Text,
    UserMessage, tool,
)  # fmt: skip
from beforehand.seams import SEAMS
from beforehand.testing import ScriptedModel, text, tool_call

from field.entries import Colour, Enter, say
from pipeline.virtual_time import in_virtual_time

# --- F48: a person takes as long as a person takes -----------------------------------------------


def test_f48_a_permission_answer_may_take_minutes_and_the_next_question_works_too() -> None:
    asked: list[int] = []

    @tool(timeout=5)
    async def deploy(n: int) -> str:
        return f"deployed {n}"

    async def approval(call: Any) -> Ask:
        return Ask("Deploy?")

    async def on_ask(pending: PendingApproval) -> Approve:
        asked.append(pending.args["n"])
        await asyncio.sleep(400)  # virtual seconds
        return Approve()

    gate = Hook(seam="before_tool_call", fn=approval, timeout=1.0)
    model = ScriptedModel(
        [[tool_call("deploy", {"n": 1}), tool_call("deploy", {"n": 2})], tool_call("deploy", {"n": 3}), text("done")]
    )
    limits = Limits(hook_timeout=1.0, tool_timeout=5.0)

    result = in_virtual_time(Agent(model=model, tools=[deploy], hooks=[gate], on_ask=on_ask, limits=limits).run("go"))

    assert asked == [1, 2, 3]
    assert [m.text for m in result.messages if m.role == "tool"] == ["deployed 1", "deployed 2", "deployed 3"]


def test_f48_a_limit_of_ones_own_on_the_answer_refuses_that_call_only() -> None:
    @tool
    async def deploy(n: int) -> str:
        return f"deployed {n}"

    async def on_ask(pending: PendingApproval) -> Approve:
        async with asyncio.timeout(60):
            await asyncio.sleep(400 if pending.args["n"] == 1 else 1)  # virtual seconds
        return Approve()

    gate = Hook(seam="before_tool_call", fn=lambda c: Ask("Deploy?"))
    model = ScriptedModel([[tool_call("deploy", {"n": 1}), tool_call("deploy", {"n": 2})], text("done")])

    result = in_virtual_time(Agent(model=model, tools=[deploy], hooks=[gate], on_ask=on_ask).run("go"))

    refused, approved = [m for m in result.messages if m.role == "tool"]
    assert refused.is_error
    assert "TimeoutError" in refused.text
    assert approved.text == "deployed 2"


# --- F50, F51: a guard that cannot answer ---------------------------------------------------------


def policy_is_down(context: Any) -> None:
    raise ConnectionError("policy service is down")


EXPECTED_WHEN_DOWN = {
    # on_error: the body ran, the model was asked again, what the model read
    "closed": (False, True, "policy service is down"),
    "open": (True, True, "deployed"),
    "abort": (False, False, "policy service is down"),
}


@pytest.mark.parametrize("seam", ["prepare_tool_call", "before_tool_call"])
@pytest.mark.parametrize("on_error", list(EXPECTED_WHEN_DOWN))
async def test_f50_each_guard_says_whether_its_failure_denies_allows_or_aborts(
    seam: str, on_error: Any, mode: str, enter: Enter, colour: Colour
) -> None:
    ran = []

    @tool
    async def deploy() -> str:
        ran.append(1)
        return "deployed"

    model = ScriptedModel([tool_call("deploy"), text("end")])
    guard = Hook(seam=seam, fn=colour(policy_is_down), on_error=on_error, name="policy")
    result = await enter(Agent(model=model, tools=[deploy], hooks=[guard], tool_mode=mode))

    runs, asked_again, told = EXPECTED_WHEN_DOWN[on_error]
    assert bool(ran) is runs
    assert (len(model.requests) == 2) is asked_again
    assert told in next(m for m in result.messages if m.role == "tool").text
    assert (result.stop_reason == "error") is (not asked_again)
    if not asked_again:
        assert isinstance(result.error, HookFailed)
        assert (result.error.hook, result.error.seam) == ("policy", seam)
    (record,) = result.decisions
    assert record.verdict == ("failed_open" if on_error == "open" else "failed")
    assert "policy service is down" in str(record.reason)
    assert record.on_error == on_error


async def test_f52_a_guard_whose_endpoint_refuses_connections_can_fail_open_and_the_record_says_not_checked(
    mode: str, enter: Enter
) -> None:
    async def ask_the_guard(context: Any) -> None:
        await asyncio.open_connection(*endpoint)

    def asking(on_error: Any) -> tuple[Agent, list[int]]:
        ran: list[int] = []

        @tool
        async def deploy() -> str:
            ran.append(1)
            return "deployed"

        guard = Hook(seam="before_tool_call", fn=ask_the_guard, on_error=on_error, name="tried out")
        model = ScriptedModel([tool_call("deploy"), text("end")])
        return Agent(model=model, tools=[deploy], hooks=[guard], tool_mode=mode), ran

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can begin to
        endpoint = taken.getsockname()
        opens, ran_open = asking("open")
        (unchecked,) = (await enter(opens)).decisions
        closes, ran_closed = asking("closed")
        (denied,) = (await enter(closes)).decisions

    assert ran_open == [1]
    assert (unchecked.hook, unchecked.verdict, unchecked.on_error) == ("tried out", "failed_open", "open")
    assert "ConnectionRefusedError" in str(unchecked.reason)
    assert ran_closed == []
    assert (denied.verdict, denied.on_error) == ("failed", "closed")


async def test_f50_without_a_choice_a_failing_guard_denies(enter: Enter, colour: Colour) -> None:
    @tool
    async def deploy() -> str:
        raise AssertionError("the body ran")

    model = ScriptedModel([tool_call("deploy"), text("end")])
    guard = Hook(seam="before_tool_call", fn=colour(policy_is_down))
    result = await enter(Agent(model=model, tools=[deploy], hooks=[guard]))

    assert "policy service is down" in model.requests[1].messages[-1].text
    assert result.stop_reason == "completed"


@pytest.mark.parametrize("on_error", list(EXPECTED_WHEN_DOWN))
async def test_f50_a_result_whose_check_fails_is_withheld_unless_the_guard_fails_open(
    on_error: Any, mode: str, enter: Enter, colour: Colour
) -> None:
    @tool
    async def fetch() -> str:
        return "DNI 12345678Z"

    model = ScriptedModel([tool_call("fetch"), text("end")])
    guard = Hook(seam="after_tool_call", fn=colour(policy_is_down), on_error=on_error)
    result = await enter(Agent(model=model, tools=[fetch], hooks=[guard], tool_mode=mode))

    stored = next(m for m in result.messages if m.role == "tool")
    assert ("12345678Z" in stored.text) is (on_error == "open")
    assert stored.is_error is (on_error != "open")
    assert len(model.requests) == (1 if on_error == "abort" else 2)


def never_released() -> Any:
    """A guard that hangs, as a coroutine."""

    async def hang(context: Any) -> None:
        await asyncio.Event().wait()

    return hang


BROKEN: dict[str, tuple[Any, float | None, str]] = {
    "raises": (policy_is_down, None, "policy service is down"),
    "hangs": (never_released(), 0.01, "gave no answer within 0.01 s"),
    "exits": (lambda c: (_ for _ in ()).throw(SystemExit(1)), None, "SystemExit"),
    "returns_a_dict": (lambda c: {"block": True}, None, "{'block': True}"),
    "returns_false": (lambda c: False, None, "False"),
    "returns_text": (lambda c: "no!", None, "no!"),
    "returns_the_class": (lambda c: Block, None, "Block"),
    "decides_for_another_seam": (lambda c: Replace(text="x"), None, "Replace"),
    "gives_two_verdicts": (lambda c: [Block("a"), Ask("b")], None, "two verdicts"),
    "gives_a_reason_that_is_no_text": (lambda c: Block(42), None, "42"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("how", list(BROKEN))
async def test_f51_a_guard_that_crashes_hangs_or_talks_nonsense_never_means_allow(how: str, mode: str, enter: Enter) -> None:
    fn, timeout, explanation = BROKEN[how]

    @tool
    async def deploy() -> str:
        raise AssertionError("the body ran")

    model = ScriptedModel([tool_call("deploy"), text("end")])
    guard = Hook(seam="before_tool_call", fn=fn, timeout=timeout, name="policy")
    result = await enter(Agent(model=model, tools=[deploy], hooks=[guard], tool_mode=mode))

    told = model.requests[1].messages[-1]
    assert told.is_error
    assert "policy" in told.text
    assert explanation in told.text
    assert result.stop_reason == "completed"
    assert [d.verdict for d in result.decisions] == ["failed"]


async def test_f51_a_sync_guard_that_hangs_is_given_up_and_its_late_answer_changes_nothing(enter: Enter) -> None:
    release, answered = threading.Event(), threading.Event()

    @tool
    async def deploy() -> str:
        raise AssertionError("the body ran")

    def hang(call: Any) -> None:
        release.wait(30)
        answered.set()

    model = ScriptedModel([tool_call("deploy"), text("end")])
    guard = Hook(seam="before_tool_call", fn=hang, timeout=0.01, name="policy")
    result = await enter(Agent(model=model, tools=[deploy], hooks=[guard]))
    before = list(result.messages)
    release.set()
    assert await asyncio.to_thread(answered.wait, 30)

    assert "gave no answer within 0.01 s" in model.requests[1].messages[-1].text
    assert list(result.messages) == before


@pytest.mark.parametrize("how", ["raises", "hangs", "returns_a_dict"])
async def test_f51_a_broken_guard_in_front_of_a_request_stops_the_run_before_it_leaves(how: str, enter: Enter) -> None:
    fn, timeout, explanation = BROKEN[how]
    model = ScriptedModel([text("never")])

    result = await enter(Agent(model=model, hooks=[Hook(seam="authorize_request", fn=fn, timeout=timeout, name="policy")]))

    assert model.requests == []
    assert isinstance(result.error, HookFailed)
    assert "policy" in str(result.error)
    assert explanation in str(result.error)


# --- F54: order -----------------------------------------------------------------------------------


@pytest.mark.parametrize("permutation", list(itertools.permutations(["early", "middle", "late"])), ids="-".join)
@pytest.mark.parametrize("seam", [spec.name for spec in SEAMS if spec.name not in ("before_compaction",)])
async def test_f54_hooks_with_an_order_are_asked_in_that_order_however_they_were_registered(
    seam: str, permutation: tuple[str, ...]
) -> None:
    asked: list[str] = []
    order = {"early": -5, "middle": 0, "late": 7}

    @tool
    async def echo() -> str:
        return "echo"

    def note(name: str) -> Hook:
        return Hook(seam=seam, fn=lambda context: asked.append(name), order=order[name], name=name)

    model = ScriptedModel([tool_call("echo"), text("end")])
    await Agent(model=model, tools=[echo], hooks=[note(name) for name in permutation]).run("go")

    assert asked
    assert asked == ["early", "middle", "late"] * (len(asked) // 3)


@pytest.mark.parametrize("permutation", list(itertools.permutations(["one", "two", "judge"])), ids="-".join)
@pytest.mark.parametrize("seam", [spec.name for spec in SEAMS if "gate" in spec.kind and spec.name != "before_compaction"])
async def test_f54_final_hooks_come_last_and_equal_order_means_order_of_registration(
    seam: str, permutation: tuple[str, ...]
) -> None:
    asked: list[str] = []

    @tool
    async def echo() -> str:
        return "echo"

    def note(name: str) -> Hook:
        return Hook(seam=seam, fn=lambda context: asked.append(name), final=name == "judge", order=-1 if name == "judge" else 0)

    model = ScriptedModel([tool_call("echo"), text("end")])
    await Agent(model=model, tools=[echo], hooks=[note(name) for name in permutation]).run("go")

    expected = [name for name in permutation if name != "judge"] + ["judge"]
    assert asked
    assert asked == expected * (len(asked) // 3)


@pytest.mark.parametrize("permutation", list(itertools.permutations([0, 1, 2])), ids=str)
async def test_f54_the_order_decides_what_chained_replacements_come_to(permutation: tuple[int, ...], enter: Enter) -> None:
    @tool
    async def echo() -> str:
        return "x"

    def append(n: int) -> Hook:
        return Hook(seam="after_tool_call", fn=lambda outcome: Replace(content=f"{outcome.content}{n}"), order=n)

    model = ScriptedModel([tool_call("echo"), text("end")])
    await enter(Agent(model=model, tools=[echo], hooks=[append(n) for n in permutation]))

    assert model.requests[1].messages[-1].text == "x012"


# --- F55: colours ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seam", [spec.name for spec in SEAMS if spec.name != "before_compaction"])
async def test_f55_a_hook_of_any_colour_is_called_and_awaited_at_every_seam(seam: str, enter: Enter, colour: Colour) -> None:
    seen: list[Any] = []

    @tool
    async def echo() -> str:
        return "echo"

    context_type = next(spec.context for spec in SEAMS if spec.name == seam)
    model = ScriptedModel([tool_call("echo"), text("end")])
    result = await enter(Agent(model=model, tools=[echo], hooks=[Hook(seam=seam, fn=colour(seen.append))]))

    assert result.stop_reason == "completed"
    assert seen
    assert all(isinstance(context, context_type) for context in seen)


async def test_f55_a_hook_of_any_colour_is_awaited_before_a_compaction(colour: Colour) -> None:
    seen: list[Any] = []
    model = ScriptedModel([text("one"), text("two"), text("summary")])
    talk = Agent(model=model, hooks=[Hook(seam="before_compaction", fn=colour(seen.append))]).conversation()
    await talk.run("a")
    await talk.run("b")

    await talk.compact(keep=2)

    assert len(seen) == 1


async def test_f55_hooks_of_different_colours_at_one_seam_are_asked_in_order(enter: Enter) -> None:
    asked: list[str] = []

    @tool
    async def echo() -> str:
        return "echo"

    async def second(call: Any) -> None:
        asked.append("second begins")
        await asyncio.sleep(0)
        asked.append("second ends")

    hooks = [
        Hook(seam="before_tool_call", fn=lambda call: asked.append("first")),
        Hook(seam="before_tool_call", fn=second),
        Hook(seam="before_tool_call", fn=lambda call: asked.append("third")),
    ]
    await enter(Agent(model=ScriptedModel([tool_call("echo"), text("end")]), tools=[echo], hooks=hooks))

    assert asked == ["first", "second begins", "second ends", "third"]


# --- F56: how far a guard can see -----------------------------------------------------------------

HISTORY = (
    UserMessage("write to bob@example.com"),
    AssistantMessage((Text("Done."),)),
    UserMessage("thanks"),
    AssistantMessage((Text("You are welcome."),)),
)

FAR_SIGHTED: dict[str, Any] = {
    "before_run": lambda c: c.history,
    "before_turn": lambda c: c.history,
    "prepare_request": lambda c: c.context.messages,
    "transform_context": lambda c: c.messages,
    "convert_to_llm": lambda c: c.messages,
    "before_provider_call": lambda c: c.request.messages,
    "authorize_request": lambda c: c.request.messages,
    "on_message": lambda c: c.history,
}


@pytest.mark.parametrize("seam", list(FAR_SIGHTED))
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])
async def test_f56_a_guard_sees_the_whole_history_before_the_request_leaves(seam: str, streamed: bool, colour: Colour) -> None:
    model = ScriptedModel([text("never")])

    def guard(context: Any) -> None:
        if any("bob@example.com" in message.text for message in FAR_SIGHTED[seam](context)):
            raise PermissionError("there is an address in this conversation")

    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=colour(guard))]).conversation(HISTORY)
    result = await say(talk, "what now?", streamed=streamed)

    assert model.requests == []
    assert isinstance(result.error, HookFailed)
    assert "there is an address" in str(result.error)


@pytest.mark.parametrize("seam", ["authorize_request", "before_run"])
async def test_f56_a_guard_can_block_for_what_the_first_message_says(seam: str, colour: Colour) -> None:
    model = ScriptedModel([text("never")])

    def guard(context: Any) -> Block | None:
        return Block("address") if any("bob@" in m.text for m in FAR_SIGHTED[seam](context)) else None

    talk = Agent(model=model, hooks=[Hook(seam=seam, fn=colour(guard))]).conversation(HISTORY)
    result = await talk.run("what now?")

    assert model.requests == []
    assert (result.stop_reason, result.reason) == ("blocked", "address")


async def test_f56_the_last_gate_sees_what_a_hook_before_it_put_into_the_request(enter: Enter, colour: Colour) -> None:
    model = ScriptedModel([text("never")])

    def inject(view: Any) -> Replace:
        return Replace(messages=[UserMessage("bob@example.com"), *view.messages])

    def guard(outgoing: Any) -> Block | None:
        return Block("address") if any("bob@" in m.text for m in outgoing.request.messages) else None

    hooks = [Hook(seam="authorize_request", fn=colour(guard)), Hook(seam="transform_context", fn=colour(inject))]
    result = await enter(Agent(model=model, hooks=hooks))

    assert model.requests == []
    assert result.reason == "address"


async def test_f56_a_custom_message_that_no_model_reads_does_not_trip_the_last_gate(colour: Colour) -> None:
    model = ScriptedModel([text("fine")])

    def guard(outgoing: Any) -> Block | None:
        return Block("address") if any("bob@" in m.text for m in outgoing.request.messages) else None

    talk = Agent(model=model, hooks=[Hook(seam="authorize_request", fn=colour(guard))]).conversation(
        [CustomMessage("contact", "bob@example.com"), UserMessage("hello")]
    )
    result = await talk.run("what now?")

    assert result.text == "fine"
    assert [m.text for m in model.requests[0].messages] == ["hello", "what now?"]
