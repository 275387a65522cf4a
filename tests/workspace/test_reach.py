"""What a lambda does with the run through its bridge: tools, the model, messages, approvals. And what it cannot."""

import asyncio
import threading

import pytest

from beforehand import (
    Agent, Answer, Approve, Ask, Block, Deny, HookFailed, Interrupt, Limits, Loop, Model, PendingApproval, Replace, ToolContext,
    hook, tool,
)  # fmt: skip
from beforehand.models.base import TextDelta
from beforehand.sandbox import SandboxLimits
from beforehand.settings import CodeExecution, ToolSettings
from beforehand.testing import ScriptedModel, cut, text, tool_call
from beforehand.workspace import Approvals, Gates, Lambda, Workspace, code_tools

both = pytest.mark.parametrize("language", ["py", "ts"])


@tool
async def find_train(to: str, day: int = 1) -> dict:
    """Find a train."""
    return {"to": to, "day": day, "trains": [1, 2]}


def write(place, name, body):
    (place / "lib" / name).write_text(body)
    return f"lib/{name}"


def request_lambda(place, body, workspace=None, timeout=60, **options):
    """A TypeScript lambda before the request, whose body may use `adf` and `keep(value)`, which stores a value."""
    write(place, "x.ts", "const keep = (value: unknown) => adf.sys_set_meta({key: 'kept', value});\n"
          f"export async function main(input) {{ {body}; return input.request }}")  # fmt: skip
    return Lambda("lib/x.ts", seam="before_provider_call", workspace=workspace or Workspace(place), timeout=timeout, **options)


def code_of(call):
    """The code a call is refused with, kept; true if it is not refused."""
    return f"try {{ await {call}; await keep(true) }} catch (e) {{ await keep(e.code) }}"


def kept(place):
    return Workspace(place).get_meta().get("kept")


async def run(hooks, tools=(), model=None, **settings):
    """One run of an agent. Its result; events of tools in `result_events`."""
    async with Agent(model=model or ScriptedModel([text("done")]), hooks=hooks, tools=tools, **settings) as agent:
        talk = agent.conversation()
        events = []
        for name in ("tool_execution_start", "tool_execution_end", "decision"):
            talk.on(name, events.append)
        return await talk.run("Hi", check=False), events


def noted(result, verdict):
    return [d for d in result.decisions if d.verdict == verdict]


# --- tools ---------------------------------------------------------------------------------------


@both
async def test_a_lambda_calls_a_tool_by_its_name_and_gets_its_data(place, language):
    workspace = Workspace(place)
    if language == "ts":
        gate = request_lambda(place, "await keep(await adf.find_train({to: 'Kyiv'}))", workspace)
    else:
        found = "await adf.sys_set_meta(key='kept', value=await adf.find_train(to='Kyiv'))"
        write(place, "x.py", f"async def main(input):\n    {found}\n    return input['request']")
        gate = Lambda("lib/x.py", seam="before_provider_call", workspace=workspace, timeout=60)
    result, events = await run([gate], [find_train])
    assert kept(place) == {"to": "Kyiv", "day": 1, "trains": [1, 2]}
    assert [(e.type, e.call_id, e.parent_call_id) for e in events if e.type != "decision"] == [
        ("tool_execution_start", "lambda_1/1", "lambda_1"), ("tool_execution_end", "lambda_1/1", "lambda_1"),
    ]  # fmt: skip
    assert result.text == "done"


async def test_a_call_made_while_a_call_is_judged_names_that_call_as_its_parent(place):
    write(place, "gate.ts", "export async function main(call) { await adf.find_train({to: 'Kyiv'}) }")
    gate = Lambda("lib/gate.ts", seam="before_tool_call", workspace=place, tools=["book"], timeout=60)

    @tool
    async def book() -> str:
        """Book."""
        return "booked"

    seen = []
    look = hook.before_tool_call(lambda call: seen.append((call.call_id, call.run.parent_call_id)))
    model = ScriptedModel([tool_call("book", id="call_book"), text("done")])
    result, events = await run([look, gate], [book, find_train], model)
    assert seen == [("call_book", None), ("call_book/lambda_1/1", "call_book")]
    assert {e.parent_call_id for e in events if e.call_id == "call_book/lambda_1/1"} == {"call_book"}
    assert [m.text for m in result.messages if m.role == "tool"] == ["booked"]


GATES = {
    "prepare_tool_call": (hook.prepare_tool_call(lambda call: Replace(args={**call.args, "to": "Lviv"})), "Lviv"),
    "after_tool_call": (hook.after_tool_call(lambda outcome: Replace(content='{"to": "hidden"}')), "hidden"),
    "before_tool_call": (hook.before_tool_call(lambda call: Answer({"to": "mocked"})), "mocked"),
}


@pytest.mark.parametrize("seam", GATES)
async def test_a_tool_call_of_a_lambda_passes_the_seams_11_to_13(place, seam):
    other, expected = GATES[seam]
    await run([request_lambda(place, "await keep(await adf.find_train({to: 'Kyiv'}))"), other], [find_train])
    assert kept(place)["to"] == expected


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("block", "BLOCKED: not today"),
        ("bad arguments", "INVALID_INPUT"),
        ("raises", "TOOL_ERROR"),
        ("unknown", "NOT_FOUND: there is no method and no tool 'made_up' here"),
    ],
)
async def test_a_tool_call_that_gave_no_result_is_an_exception_with_a_code(place, how, code):
    @tool
    async def broken() -> None:
        """Fail."""
        raise ValueError("the line is cut")

    call = {"raises": "adf.broken({})", "unknown": "adf.made_up({})", "bad arguments": "adf.find_train({day: 'x'})"}.get(
        how, "adf.find_train({to: 'Kyiv'})"
    )
    gate = request_lambda(place, f"try {{ await {call} }} catch (e) {{ await keep(e.message) }}")
    refuse = hook.before_tool_call(lambda call: Block("not today") if how == "block" else None)
    result, _ = await run([gate, refuse], [find_train, broken])
    assert code in kept(place)
    assert result.text == "done"


async def test_a_lambda_that_does_not_catch_a_refused_call_lets_nothing_pass(place):
    model = ScriptedModel([text("done")])
    gate = request_lambda(place, "await adf.find_train({to: 'Kyiv'})")
    result, _ = await run([gate, hook.before_tool_call(lambda call: Block("not today"))], [find_train], model)
    assert isinstance(result.error, HookFailed)
    assert "BLOCKED: not today" in str(result.error)
    assert model.requests == []


async def test_a_failed_gate_that_must_end_the_run_ends_it_although_the_lambda_catches(place):
    @hook.before_tool_call(on_error="abort")
    def broken(call):
        raise ValueError("no")

    model = ScriptedModel([text("done")])
    gate = request_lambda(place, "try { await adf.find_train({to: 'Kyiv'}) } catch {}", on_error="open")
    result, _ = await run([gate, broken], [find_train], model)
    assert isinstance(result.error, HookFailed)
    assert result.error.hook == "broken"
    assert model.requests == []


@pytest.mark.parametrize("on_error", ["closed", "open"])
@pytest.mark.parametrize("caught", [True, False])
async def test_an_interrupt_at_a_call_of_a_lambda_lets_no_request_leave(place, on_error, caught):
    model = ScriptedModel([text("done")])
    call = "await adf.find_train({to: 'Kyiv'})"
    gate = request_lambda(place, f"try {{ {call} }} catch {{}}" if caught else call, on_error=on_error)
    result, _ = await run([gate, hook.before_tool_call(lambda call: Interrupt("stop here"))], [find_train], model)
    assert "interrupted: stop here" in str(result.error)
    assert model.requests == []


async def test_the_bridges_own_names_win_over_tools_of_the_same_name(place):
    called = []

    @tool
    async def fs_read(path: str) -> str:
        """Read."""
        called.append(path)
        return "the tool"

    (place / "a.txt").write_text("the file")
    await run([request_lambda(place, "await keep((await adf.fs_read({path: 'a.txt'})).content)")], [fs_read])
    assert (kept(place), called) == ("the file", [])


TOOLS = {
    "free": ({}, True),
    "not enabled": ({"enabled": False}, "DISABLED"),
    "not enabled, restricted": ({"enabled": False, "restricted": True}, "REQUIRES_AUTHORIZED_CODE"),
    "restricted": ({"restricted": True}, "REQUIRES_AUTHORIZED_CODE"),
    "hidden": ({"visible": False}, True),
}


@pytest.mark.parametrize("said", TOOLS)
@pytest.mark.parametrize("authorized", [False, True])
async def test_the_table_of_tools_holds_for_code(place, said, authorized):
    settings, expected = TOOLS[said]
    gates = Gates.of(tools=[ToolSettings(name="find_train", **settings)], registry=[find_train])
    workspace = Workspace(place, gates=gates)
    gate = request_lambda(place, code_of("adf.find_train({to: 'x'})"), workspace)
    if authorized:
        workspace.authority.authorize("lib/x.ts")
        expected = True if settings.get("restricted") else expected
    await run([gate])
    assert kept(place) == expected


async def test_a_restricted_method_of_the_bridge_can_be_a_tool_of_the_table(place):
    workspace = Workspace(place, gates=Gates.of(tools=[ToolSettings(name="fs_write", restricted=True)]))
    gate = request_lambda(place, code_of("adf.fs_write({path: 'a', content: ''})"), workspace)
    await run([gate])
    assert kept(place) == "REQUIRES_AUTHORIZED_CODE"


def test_a_restricted_method_that_does_not_exist_is_refused_at_once():
    from beforehand import ConfigError

    with pytest.raises(ConfigError, match="did you mean 'model_invoke'"):
        Gates.of(CodeExecution(restricted_methods=("model_invok",)))


async def test_protected_files_are_for_authorised_code_alone(place):
    (place / "a.txt").write_text("old")
    workspace = Workspace(place)
    workspace.authority.protect("a.txt", "read_only")
    body = code_of("adf.fs_write({path: 'a.txt', content: 'new'})")
    gate = request_lambda(place, body, workspace)
    await run([gate])
    assert (kept(place), (place / "a.txt").read_text()) == ("PROTECTION_DENIED", "old")
    workspace.authority.authorize("lib/x.ts")
    await run([gate])
    assert (place / "a.txt").read_text() == "new"


# --- going round ---------------------------------------------------------------------------------


async def test_a_gate_that_calls_a_tool_for_every_call_is_refused_when_asked_about_its_own(place):
    write(place, "gate.ts", "export async function main(call) { await adf.find_train({to: 'Kyiv'}) }")
    gate = Lambda("lib/gate.ts", seam="before_tool_call", workspace=place, timeout=60)
    model = ScriptedModel([tool_call("find_train", {"to": "Rome"}), text("done")])
    result, _ = await run([gate], [find_train], model)
    (message,) = [m for m in result.messages if m.role == "tool"]
    assert message.outcome == "blocked"
    assert "CIRCULAR_CALL" in message.text


async def test_a_gate_may_let_its_own_calls_pass(place):
    write(place, "gate.ts", "export async function main(call) {\n"
          "  if (call.run.parent_call_id === null) await adf.find_train({to: 'Kyiv'}) }")  # fmt: skip
    gate = Lambda("lib/gate.ts", seam="before_tool_call", workspace=place, timeout=60)
    model = ScriptedModel([tool_call("find_train", {"to": "Rome"}), text("done")])
    result, _ = await run([gate], [find_train], model)
    assert [m.outcome for m in result.messages if m.role == "tool"] == ["ran"]


async def test_two_gates_that_call_tools_about_each_others_calls_do_not_go_round_for_ever(place):
    for name in ("a.ts", "b.ts"):
        write(place, name, "export async function main(call) { await adf.find_train({to: 'Kyiv'}) }")
    gates = [Lambda(f"lib/{n}", seam="before_tool_call", workspace=place, timeout=60) for n in ("a.ts", "b.ts")]
    model = ScriptedModel([tool_call("find_train", {"to": "Rome"}), text("done")])
    result, _ = await run(gates, [find_train], model)
    assert [m.outcome for m in result.messages if m.role == "tool"] == ["blocked"]


async def test_two_hooks_before_requests_that_ask_the_model_do_not_go_round_for_ever(place):
    for name in ("a.ts", "b.ts"):
        write(place, name, "export async function main(outgoing) { await adf.model_invoke({prompt: 'Good?'}) }")
    gates = [Lambda(f"lib/{n}", seam="authorize_request", workspace=place, timeout=60) for n in ("a.ts", "b.ts")]
    model = ScriptedModel([text("done")])
    result, _ = await run(gates, model=model)
    assert "CIRCULAR_CALL" in str(result.error)
    assert model.requests == []


async def test_calls_side_by_side_are_no_circle(place):
    gate = request_lambda(place, "await keep(await Promise.all([1, 2, 3].map((day) => adf.find_train({to: 'x', day}))))")
    result, events = await run([gate], [find_train])
    assert [train["day"] for train in kept(place)] == [1, 2, 3]
    assert len({e.call_id for e in events if e.type == "tool_execution_end"}) == 3
    assert result.text == "done"


# --- the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seam", ["authorize_request", "get_api_key"])
async def test_a_lambda_that_asks_the_model_at_7_or_8_is_not_asked_about_its_own_request(place, seam):
    returns = "{type: 'replace', key: 'k'}" if seam == "get_api_key" else "null"
    write(place, "x.ts", f"export async function main() {{ await adf.model_invoke({{prompt: 'Good?'}}); return {returns} }}")
    model = ScriptedModel([text("yes"), text("done")])
    result, _ = await run([Lambda("lib/x.ts", seam=seam, workspace=place, timeout=60)], model=model)
    assert result.text == "done"
    assert [r.messages[-1].text for r in model.requests] == ["Good?", "Hi"]


async def test_a_request_of_a_lambda_can_be_refused_and_answered_like_any_other(place):
    model = ScriptedModel([text("done")])
    body = "try { await keep(await adf.model_invoke({prompt: 'Q'})) } catch (e) { await keep(e.message) }"

    def judge(verdict):
        return hook.authorize_request(lambda outgoing: verdict if outgoing.kind == "direct" else None)

    await run([request_lambda(place, body), judge(Block("no model for code"))], model=model)
    assert "BLOCKED" in kept(place) and "no model for code" in kept(place)
    await run([request_lambda(place, body), judge(Answer("from the cache"))], model=ScriptedModel([text("done")]))
    assert kept(place) == "from the cache"


async def test_usage_of_a_lambdas_request_counts_for_the_run(place):
    model = ScriptedModel([text("yes"), text("done")])
    result, _ = await run([request_lambda(place, "await adf.model_invoke({prompt: 'Q'})")], model=model)
    plain, _ = await run([], model=ScriptedModel([text("done")]))
    assert result.usage.output_tokens >= plain.usage.output_tokens
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    "argument",
    ["{}", "{prompt: 'a', messages: []}", "{messages: []}", "{prompt: 3}", "{prompt: 'a', temperature: 3}",
     "{prompt: 'a', model: 'x:y'}", "{messages: [{role: 'system', content: 'x'}]}"],
)  # fmt: skip
async def test_a_wrong_question_for_the_model_is_refused_with_its_place(place, argument):
    model = ScriptedModel([text("done")])
    gate = request_lambda(place, code_of(f"adf.model_invoke({argument})"))
    await run([gate], model=model)
    assert kept(place) == "INVALID_INPUT"
    assert len(model.requests) == 1


@pytest.mark.parametrize("reply", [ValueError("gone"), [text("half an ans"), cut()]], ids=["it fails", "its line is cut"])
async def test_a_model_that_fails_is_an_exception_with_a_code(place, reply):
    model = ScriptedModel([reply, text("done")])
    await run([request_lambda(place, code_of("adf.model_invoke({prompt: 'Q'})"))], model=model)
    assert kept(place) == "MODEL_ERROR"


async def test_an_abort_cuts_a_lambdas_request_to_the_model(place):
    asked = asyncio.Event()

    @hook.authorize_request
    async def wait(outgoing):
        asked.set()
        await asyncio.Event().wait()

    model = ScriptedModel([text("done")])
    gate = request_lambda(place, "await adf.model_invoke({prompt: 'Q'})")
    async with Agent(model=model, hooks=[gate, wait]) as agent:
        talk = agent.conversation()
        running = asyncio.ensure_future(talk.run("Hi"))
        await asked.wait()
        talk.abort()
        result = await asyncio.wait_for(running, 30)
    assert result.stop_reason == "aborted"
    assert model.requests == []
    assert [d.reason for d in noted(result, "Cut")] != []


# --- messages ------------------------------------------------------------------------------------


async def test_an_injected_message_is_in_the_next_request_and_on_record(place):
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([tool_call("look"), text("done")])
    body = "if (input.request.messages.length === 1) await adf.loop_inject({content: 'Mind the gap.', category: 'safety'})"
    result, _ = await run([request_lambda(place, body)], [look], model)
    assert "Mind the gap." not in [m.text for m in model.requests[0].messages]
    assert [(m.role, m.text) for m in model.requests[1].messages][-1] == ("user", "Mind the gap.")
    (note,) = noted(result, "Injected")
    assert "category 'safety'" in note.reason and "Mind the gap." in note.reason


async def test_an_injected_message_that_no_request_takes_is_kept_in_the_history(place):
    result, _ = await run([request_lambda(place, "await adf.loop_inject({content: 'Later.'})")])
    assert [m.text for m in result.messages] == ["Hi", "done", "Later."]


@pytest.mark.parametrize(
    "argument",
    ["{content: ''}", "{content: 'x'.repeat(48001)}", "{content: 'x', role: 'system'}", "{content: 'x', key: 3}", "{}"],
)
async def test_what_cannot_be_injected_is_refused(place, argument):
    gate = request_lambda(place, code_of(f"adf.loop_inject({argument})"))
    result, _ = await run([gate])
    assert kept(place) == "INVALID_INPUT"
    assert [m.text for m in result.messages] == ["Hi", "done"]


async def test_the_longest_message_can_be_injected(place):
    result, _ = await run([request_lambda(place, "await adf.loop_inject({content: 'x'.repeat(48000)})")])
    assert len(result.messages[-1].text) == 48_000


# --- people --------------------------------------------------------------------------------------

asks = hook.before_tool_call(lambda call: Ask("Really?"))
ASKING = "try { await keep((await adf.find_train({to: 'Kyiv'})).to) } catch (e) { await keep(e.message) }"


@pytest.mark.parametrize(("answer", "expected"), [(Approve(), "Kyiv"), (Deny("not now"), "BLOCKED: not now")])
async def test_a_person_is_asked_about_a_call_of_a_lambda(place, answer, expected):
    asked = []

    def on_ask(pending):
        asked.append((pending.name, dict(pending.args), pending.parent_call_id))
        return answer

    await run([request_lambda(place, ASKING), asks], [find_train], on_ask=on_ask)
    assert asked == [("find_train", {"to": "Kyiv", "day": 1}, "lambda_1")]
    assert kept(place) == expected


async def test_a_call_of_a_lambda_in_an_inner_loop_asks_nobody(place):
    asked = []

    def yes(question):
        asked.append(question.call_id)
        return Approve()

    body = "try { await keep((await adf.find_train({to: 'Kyiv'})).to) } catch (e) { await keep(e.message) }"
    gate = request_lambda(place, body)
    loop = Loop("researcher", tools=["find_train"])
    async with Agent(
        model=ScriptedModel([text("done")] * 2), tools=[find_train], hooks=[gate, asks], on_ask=yes, loops=[loop]
    ) as agent:  # fmt: skip
        await agent.loop("researcher").run("go")
        assert kept(place).startswith("BLOCKED: ")
        assert "an inner loop has nobody to ask" in kept(place)
        assert asked == []
        await agent.run("go")
        assert (kept(place), asked) == ("Kyiv", ["lambda_1/1"])


async def test_where_nobody_can_be_asked_the_call_is_refused_and_says_so(place):
    result, _ = await run([request_lambda(place, ASKING), asks], [find_train])
    assert "nobody can be asked from inside a tool or a lambda" in kept(place)
    assert result.stop_reason == "completed"


async def test_the_lambdas_time_goes_on_while_a_person_thinks_and_the_question_is_withdrawn_and_recorded(place):
    called, withdrawn = [], asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        called.append(1)
        return "paid"

    async def on_ask(pending):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            withdrawn.set()
            raise

    model = ScriptedModel([text("done")])
    gate = request_lambda(place, "await adf.pay({})", timeout=3)
    result, events = await run([gate, asks], [pay], model, on_ask=on_ask)
    assert withdrawn.is_set()
    assert isinstance(result.error, HookFailed) and "gave no answer within 3 s" in str(result.error)
    assert (called, model.requests) == ([], [])
    (note,) = noted(result, "Withdrawn")
    assert (note.hook, note.call_id) == ("lib/x.ts:main", "lambda_1/1")
    (end,) = [e for e in events if e.type == "tool_execution_end"]
    assert (end.outcome, "before a person had answered" in end.result.text) == ("aborted", True)


async def test_a_yes_that_comes_after_the_lambdas_time_is_none(place):
    called = []

    @tool
    async def pay() -> str:
        """Pay."""
        called.append(1)
        return "paid"

    def on_ask(pending):  # as one that reads from a terminal does
        threading.Event().wait(3)
        return Approve()

    gate = request_lambda(place, "await adf.pay({})", timeout=3)
    result, events = await run([gate, asks], [pay], on_ask=on_ask)
    assert isinstance(result.error, HookFailed)
    assert called == []
    assert [d.call_id for d in noted(result, "Withdrawn")] == ["lambda_1/1"]
    (end,) = [e for e in events if e.type == "tool_execution_end"]
    assert (end.outcome, "before a person had answered" in end.result.text) == ("aborted", True)


async def test_what_became_of_a_late_lambdas_calls_is_recorded_though_the_event_loop_is_late_as_well(place):
    @tool
    async def holds_everything_up() -> str:
        """Keep the event loop past the lambda's time."""
        threading.Event().wait(3.3)
        await asyncio.Event().wait()
        return ""

    gate = request_lambda(place, "console.log('begun'); await adf.holds_everything_up({})", timeout=3)
    result, _ = await run([gate], [holds_everything_up])
    assert isinstance(result.error, HookFailed) and "lib/x.ts:main: gave no answer within 3 s" in str(result.error)
    assert [d.call_id for d in noted(result, "Cut")] == ["lambda_1/1"]
    assert [d.console for d in noted(result, "failed")] == ["begun\n"]


async def test_no_call_of_a_lambda_begins_once_the_run_is_over_that_its_caller_has_cancelled(place):
    """The cancellation is on its way to the call, and the gate that lets it pass is quicker."""
    called, answered = [], asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        called.append(1)
        return "paid"

    @hook.before_tool_call(tools=["pay"])
    async def lets_pass(call):
        going.cancel()
        try:
            await asyncio.wait({going})
        finally:
            answered.set()

    gate = request_lambda(place, "await adf.pay({})")
    async with Agent(model=ScriptedModel([]), hooks=[gate, lets_pass], tools=[pay]) as agent:
        going = asyncio.create_task(agent.conversation().run("Hi"))
        await asyncio.wait({going})
        await answered.wait()
    assert (going.cancelled(), called) == (True, [])


@pytest.mark.parametrize("who", ["person", "gate"])
async def test_a_call_whose_lambda_has_ended_does_not_begin_though_the_cancellation_is_swallowed(place, who):
    reached, told, called = asyncio.Event(), asyncio.Event(), []

    @tool
    async def pay() -> str:
        """Pay."""
        called.append(1)
        return "paid"

    @tool
    async def until_reached() -> str:
        """Wait until somebody judges the payment."""
        await reached.wait()
        return ""

    async def lets_pass(pending):
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return Approve() if who == "person" else None

    judge = asks if who == "person" else hook.before_tool_call(lets_pass)
    judge = hook.before_tool_call(tools=["pay"])(judge.fn)
    gate = request_lambda(place, "adf.pay({}).catch(() => 0); await adf.until_reached({})")

    @hook.authorize_request
    async def later(request):
        await told.wait()

    model = ScriptedModel([text("done")])
    async with Agent(model=model, hooks=[gate, judge, later], tools=[pay, until_reached], on_ask=lets_pass) as agent:
        talk = agent.conversation()
        talk.on("decision", lambda event: event.record.verdict in ("Withdrawn", "Cut", "Late") and told.set())
        result = await asyncio.wait_for(talk.run("Hi"), 30)
    assert called == []
    verdict = "Withdrawn" if who == "person" else "Cut"
    assert [(d.verdict, d.call_id) for d in result.decisions if d.verdict in ("Withdrawn", "Cut", "Late")] == [
        (verdict, "lambda_1/1")
    ]


@pytest.mark.parametrize("how", ["it swallows the cancellation", "it tidies up", "it has a task of its own"])
async def test_what_a_call_of_a_lambda_that_has_ended_calls_itself_does_not_begin(place, how):
    begun, cancelled, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
    called, judged, tasks = [], [], []

    @tool
    async def pay() -> str:
        """Pay."""
        called.append(1)
        return "paid"

    @tool
    async def until_begun() -> str:
        """Wait until the other has begun."""
        await begun.wait()
        return ""

    @tool
    async def outer(ctx: ToolContext) -> str:
        """Pay at the end."""

        async def payment():
            try:
                await cancelled.wait()
                await ctx.call_tool("pay", {})
            finally:
                over.set()

        begun.set()
        if how == "it has a task of its own":
            tasks.append(asyncio.ensure_future(payment()))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            if how == "it swallows the cancellation":
                await payment()
                return ""
            raise
        finally:
            if how == "it tidies up":
                await payment()
        return ""

    @hook.before_tool_call(tools=["pay"])
    def judge(call):
        judged.append(call.call_id)

    @hook.authorize_request
    async def later(request):
        await over.wait()

    gate = request_lambda(place, "adf.outer({}).catch(() => 0); await adf.until_begun({})")
    result, events = await asyncio.wait_for(run([gate, judge, later], [pay, outer, until_begun]), 30)
    assert (result.stop_reason, called, judged) == ("completed", [], [])
    assert {e.call_id for e in events if e.type == "tool_execution_start"} == {"lambda_1/1", "lambda_1/2"}


async def test_a_question_of_a_lambda_that_has_ended_is_not_sent_though_the_cancellation_is_swallowed(place):
    reached, swallowed = asyncio.Event(), asyncio.Event()

    @tool
    async def until_reached() -> str:
        """Wait until somebody judges the question."""
        await reached.wait()
        return ""

    @hook.authorize_request
    async def lets_pass(request):
        if request.request.messages[-1].text == "aside":
            reached.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.set()
        else:
            await swallowed.wait()

    gate = request_lambda(place, "adf.model_invoke({prompt: 'aside'}).catch(() => 0); await adf.until_reached({})")
    model = ScriptedModel([text("done"), text("asked")])
    result, _ = await run([gate, lets_pass], [until_reached], model)
    assert result.text == "done"
    assert [request.messages[-1].text for request in model.requests] == ["Hi"]


async def test_a_question_is_withdrawn_and_recorded_when_the_run_is_aborted(place):
    asked = asyncio.Event()

    async def on_ask(pending):
        asked.set()
        await asyncio.Event().wait()

    gate = request_lambda(place, "await adf.find_train({to: 'x'})")
    async with Agent(model=ScriptedModel([text("done")]), hooks=[gate, asks], tools=[find_train], on_ask=on_ask) as agent:
        talk = agent.conversation()
        running = asyncio.ensure_future(talk.run("Hi"))
        await asked.wait()
        talk.abort()
        result = await asyncio.wait_for(running, 30)
    assert result.stop_reason == "aborted"
    assert len(noted(result, "Withdrawn")) == 1


async def test_a_call_that_finishes_after_the_lambda_is_recorded_as_such(place):
    begun, go, told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Finish whatever happens."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        await go.wait()
        return "done all the same"

    gate = request_lambda(place, "await adf.stubborn({})")

    @hook.after_turn
    async def wait(turn):
        go.set()
        await told.wait()

    async with Agent(model=ScriptedModel([text("done")]), hooks=[gate, wait], tools=[stubborn]) as agent:
        talk = agent.conversation()
        talk.on("decision", lambda event: event.record.verdict == "Late" and told.set())
        running = asyncio.ensure_future(talk.run("Hi"))
        await begun.wait()
        talk.abort()
        result = await asyncio.wait_for(running, 30)
    assert ["finished although the run was aborted" in d.reason for d in noted(result, "Late")] == [True]


@pytest.mark.parametrize("how", ["the run is aborted", "the lambda ends"])
@pytest.mark.parametrize("asker", ["a hook", "code of the model"])
async def test_a_call_that_goes_on_after_the_run_is_in_its_result(place, how, asker):
    begun, go, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Finish whatever happens, after everything else."""
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                pass
        finished.set()
        return "done all the same"

    @tool
    async def wait_for_it() -> str:
        """Until the other has begun."""
        await begun.wait()
        return "begun"

    body = "await adf.stubborn({})" if "run" in how else "adf.stubborn({}); await adf.wait_for_it({})"
    replies, more = [text("done")], {"tools": [stubborn, wait_for_it]}
    if asker == "a hook":
        more["hooks"] = [request_lambda(place, body)]
    else:
        more["tools"] += code_tools(Workspace(place)).tools
        replies.insert(0, tool_call("sys_code", {"code": f"export async function main() {{ {body} }}"}))
    async with Agent(model=ScriptedModel(replies), **more) as agent:
        talk, heard = agent.conversation(), []
        talk.on("tool_execution_start", lambda event: heard.append(event.call_id))
        talk.on("tool_execution_end", lambda event: heard.remove(event.call_id))
        running = asyncio.ensure_future(talk.run("Hi"))
        await begun.wait()
        if "run" in how:
            talk.abort()
        result = await asyncio.wait_for(running, 30)
        without_end = [*heard]
        go.set()
        await finished.wait()
    assert without_end == [], "each has its end before the run has its own"
    assert result.stop_reason == ("aborted" if "run" in how else "completed")
    (note,) = noted(result, "LeftBehind")
    assert "(stubborn) goes on although " in note.reason
    assert noted(result, "Late") == []


async def test_authorised_code_answers_what_waits(place):
    workspace = Workspace(place, approvals=(approvals := Approvals()))
    answer = "{task_id: 'c1', action: 'approve', modified_args: {to: 'Rome'}}"
    write(place, "boss.ts", f"export async function main(input) {{ await adf.task_resolve({answer}); return input.request }}")
    workspace.authority.authorize("lib/boss.ts")
    boss = Lambda("lib/boss.ts", seam="before_provider_call", workspace=workspace, timeout=60)
    waiting = asyncio.Event()
    approvals._notify = lambda task_id, pending: waiting.set()
    model = ScriptedModel([tool_call("find_train", {"to": "Kyiv"}, id="c1"), text("done")])
    async with Agent(model=model, tools=[find_train], hooks=[asks], on_ask=approvals) as agent:
        running = asyncio.ensure_future(agent.run("Hi"))
        await waiting.wait()
        assert list(approvals.waiting) == ["c1"]
        answered, _ = await run([boss])
        result = await running
    assert [d.reason for d in noted(answered, "TaskResolved")] == ["approve c1"]
    assert '"to":"Rome"' in result.messages[2].text
    assert approvals.waiting == {}
    again, _ = await run([boss])
    assert "NOT_FOUND: no question waits" in str(again.error)


async def test_code_that_is_not_authorised_answers_nothing(place):
    workspace = Workspace(place, approvals=Approvals())
    gate = request_lambda(place, code_of("adf.task_resolve({task_id: 'c', action: 'deny'})"), workspace)
    await run([gate])
    assert kept(place) == "REQUIRES_AUTHORIZED_CODE"


async def test_a_call_that_was_still_judged_when_the_run_was_aborted_is_on_record_as_not_run(place):
    asked = asyncio.Event()

    @hook.before_tool_call
    async def slow(call):
        asked.set()
        await asyncio.Event().wait()

    async with Agent(
        model=ScriptedModel([text("done")]), hooks=[request_lambda(place, "await adf.find_train({to: 'x'})"), slow],
        tools=[find_train],
    ) as agent:  # fmt: skip
        talk = agent.conversation()
        running = asyncio.ensure_future(talk.run("Hi"))
        await asked.wait()
        talk.abort()
        result = await asyncio.wait_for(running, 30)
    assert [d.reason for d in noted(result, "Cut")] == [
        "call lambda_1/1 (find_train) was not run because the run was aborted."
    ]  # fmt: skip


async def test_questions_of_one_name_wait_side_by_side_and_each_is_answered_once():
    told, both = [], asyncio.Event()

    async def notify(task_id, pending):
        told.append(task_id)
        if len(told) == 2:
            both.set()

    approvals = Approvals(notify)
    pending = PendingApproval(call_id="c1", name="pay", args={}, prompt="Pay?")
    first, second = (asyncio.ensure_future(approvals(pending)) for _ in range(2))
    await both.wait()
    assert told == list(approvals.waiting) == ["c1", "c1#2"]
    assert approvals.resolve("c1#2", Deny("no")) is True
    assert approvals.resolve("c1#2", Approve()) is False
    assert approvals.resolve("c2", Approve()) is False
    assert await second == Deny("no")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert approvals.waiting == {}


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("{task_id: 'c1', action: 'maybe'}", "INVALID_INPUT"),
        ("{task_id: 'c1', action: 'deny', reason: 3}", "INVALID_INPUT"),
        ("{task_id: 'c1', action: 'deny', modified_args: {}}", "INVALID_INPUT"),
        ("{task_id: 'c1', action: 'approve', modified_args: 3}", "INVALID_INPUT"),
        ("{task_id: 3, action: 'deny'}", "NOT_FOUND"),
        ("{task_id: 'c1', action: 'deny', reason: 'no'}", "NOT_FOUND"),
        ("{task_id: 'c1', action: 'approve'}", "NOT_FOUND"),
        ("{action: 'approve'}", "INVALID_INPUT"),
    ],
)
async def test_an_answer_that_will_not_do_is_refused(place, argument, code):
    workspace = Workspace(place, approvals=Approvals())
    gate = request_lambda(place, code_of(f"adf.task_resolve({argument})"), workspace)
    workspace.authority.authorize("lib/x.ts")
    await run([gate])
    assert kept(place) == code


async def test_where_nothing_keeps_approvals_there_is_nothing_to_answer(place):
    workspace = Workspace(place)
    gate = request_lambda(place, code_of("adf.task_resolve({task_id: 'c1', action: 'deny'})"), workspace)
    workspace.authority.authorize("lib/x.ts")
    await run([gate])
    assert kept(place) == "DISABLED"


async def test_code_of_an_inner_loop_answers_nothing_and_has_that_loops_tools_alone(place):
    workspace = Workspace(place, gates=Gates.of(registry=[find_train]), approvals=Approvals())
    body = "const codes = [];\n" + "".join(
        f"try {{ await {call}; codes.push('ran') }} catch (e) {{ codes.push(e.code) }}\n"
        for call in ("adf.task_resolve({task_id: 'c', action: 'deny'})", "adf.sys_lambda({source: 'lib/y.py'})",
                     "adf.find_train({to: 'Kyiv'})")
    ) + "await keep(codes)"  # fmt: skip
    write(place, "y.py", "def main(a):\n    return 1")
    gate = request_lambda(place, body, workspace)
    workspace.authority.authorize("lib/x.ts")
    async with Agent(model=ScriptedModel([text("done")] * 2), hooks=[gate], loops=[Loop("researcher")]) as agent:
        await agent.loop("researcher").run("go")
        assert kept(place) == ["DISABLED", "ran", "NOT_FOUND"]
        await agent.run("go")
        assert kept(place) == ["NOT_FOUND", "ran", "ran"]


ODD_NAMES = ("get-weather", "2fa", "class")
"""Names that models may call and Python cannot write."""


def named(name):
    @tool(name=name)
    async def odd(day: int = 1) -> str:
        """Do something."""
        return f"{name} on day {day}"

    return odd


@pytest.mark.parametrize(
    ("others", "found"), [((), "get-weather on day 2"), (("get_weather",), "get_weather on day 2")], ids=["alone", "beside"]
)
async def test_tools_may_have_names_that_python_cannot_write(place, others, found):
    write(place, "x.py", "async def main(c):  # not: adf.class, adf.import\n"
          "    await adf.sys_set_meta(key='kept', value=await adf.get_weather(day=2))\n    return c['request']")  # fmt: skip
    gate = Lambda("lib/x.py", seam="before_provider_call", workspace=place, timeout=60)
    result, _ = await run([gate], [named(name) for name in (*ODD_NAMES, *others)])
    assert (result.error, kept(place)) == (None, found)


async def test_what_is_said_of_a_tool_holds_however_its_name_is_written(place):
    write(place, "x.py", "async def main(c):\n    try:\n        await adf.get_weather()\n"
          "    except Exception as error:\n        await adf.sys_set_meta(key='kept', value=str(error)[:24])\n"
          "    return c['request']")  # fmt: skip
    workspace = Workspace(place, gates=Gates.of(tools=[ToolSettings(name="get-weather", restricted=True)]))
    gate = Lambda("lib/x.py", seam="before_provider_call", workspace=workspace, timeout=60)
    await run([gate], [named("get-weather")])
    assert kept(place) == "REQUIRES_AUTHORIZED_CODE"


# --- attacks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["_authorized", "_protection_override"])
async def test_a_forged_privilege_is_taken_out_and_recorded(place, flag):
    seen = []
    look = hook.prepare_tool_call(lambda call: seen.append(call.raw_args))
    workspace = Workspace(place, gates=Gates.of(tools=[ToolSettings(name="secret", restricted=True)]))
    body = f"await adf.find_train({{to: 'x', {flag}: true}});" + code_of(f"adf.secret({{{flag}: true}})")

    @tool
    async def secret() -> str:
        """Tell."""
        return "secret"

    result, _ = await run([request_lambda(place, body, workspace), look], [find_train, secret])
    assert kept(place) == "REQUIRES_AUTHORIZED_CODE"
    assert seen == ['{"to": "x"}']
    assert [flag in d.reason for d in noted(result, "Stripped")] == [True, True]


async def test_keys_that_change_objects_in_javascript_stay_keys(place):
    @tool
    async def evil() -> dict:
        """Try to change every object."""
        return {"__proto__": {"polluted": True}, "constructor": {"prototype": {"polluted": True}}}

    body = "const v = await adf.evil({}); await keep([({}).polluted ?? null, Object.keys(v), [].polluted ?? null])"
    await run([request_lambda(place, body)], [evil])
    assert kept(place) == [None, ["__proto__", "constructor"], None]


@both
async def test_a_giant_result_of_a_tool_is_refused_and_the_lambda_lives_on(place, language):
    @tool
    async def giant() -> str:
        """Give much."""
        return "x" * 5_000_000

    if language == "ts":
        gate = request_lambda(place, "try { await adf.giant({}) } catch (e) { await keep(e.message) }")
    else:
        write(place, "x.py", "async def main(i):\n    try:\n        await adf.giant()\n    except Exception as e:\n"
              "        await adf.sys_set_meta(key='kept', value=str(e))\n    return i['request']")  # fmt: skip
        gate = Lambda("lib/x.py", seam="before_provider_call", workspace=place, timeout=60)
    result, _ = await run([gate], [giant])
    assert "LIMIT: the answer has 5,000,0" in kept(place)
    assert result.text == "done"


async def test_code_reads_the_whole_of_a_result_that_is_shortened_for_the_model(place):
    @tool
    async def long() -> str:
        """Give much."""
        return "x" * 1000

    body = "await keep([(await adf.long({})).length, (await adf.long({_full: true})).length])"
    await run([request_lambda(place, body)], [long], limits=Limits(max_result_chars=10))
    assert kept(place)[0] < 100
    assert kept(place)[1] == 1000


async def test_work_in_the_background_is_refused(place):
    call = "adf.find_train({to: 'x', _async: true})"
    await run([request_lambda(place, f"try {{ await {call} }} catch (e) {{ await keep(e.message) }}")], [find_train])
    assert "INVALID_INPUT" in kept(place) and "await it" in kept(place)


async def test_a_tool_of_a_lambda_may_call_tools_itself(place):
    @tool
    async def plan(ctx: ToolContext) -> str:
        """Plan."""
        return (await ctx.call_tool("find_train", {"to": "Kyiv"})).structured_content["to"]

    result, events = await run([request_lambda(place, "await keep(await adf.plan({}))")], [plan, find_train])
    assert kept(place) == "Kyiv"
    assert [e.parent_call_id for e in events if e.type == "tool_execution_start"] == ["lambda_1", "lambda_1/1"]
    assert result.text == "done"


async def test_a_tool_call_that_hangs_is_cut_with_the_lambda_and_the_run_can_be_aborted_afterwards(place):
    ended = asyncio.Event()

    @tool
    async def hang() -> None:
        """Wait."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    model = ScriptedModel([text("done")])
    gate = request_lambda(place, "await adf.hang({})", timeout=3, on_error="open")
    waiting = asyncio.Event()

    @hook.authorize_request
    async def wait(outgoing):
        waiting.set()
        await asyncio.Event().wait()

    async with Agent(model=model, hooks=[gate, wait], tools=[hang], limits=Limits(abort_grace=0)) as agent:
        talk = agent.conversation()
        running = asyncio.ensure_future(talk.run("Hi"))
        await waiting.wait()
        await ended.wait()
        talk.abort()
        result = await asyncio.wait_for(running, 30)
    assert result.stop_reason == "aborted"
    assert len(noted(result, "failed_open")) == 1
    assert [d.reason for d in noted(result, "Cut")] != []


async def test_a_tool_that_cancels_its_own_task_is_an_error_for_the_lambda_and_not_for_the_run(place):
    @tool
    async def odd() -> None:
        """Cancel myself."""
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    result, _ = await run([request_lambda(place, code_of("adf.odd({})"))], [odd])
    assert kept(place) == "TOOL_ERROR"
    assert result.text == "done"


async def test_listeners_hear_one_event_at_a_time_though_a_lambda_has_several_calls_under_way(place):
    under_way, most, all_sent = 0, 0, asyncio.Event()

    async def listen(event):
        nonlocal under_way, most
        if event.type == "tool_execution_start":
            under_way += 1
            most = max(most, under_way)
            await all_sent.wait()
            await asyncio.sleep(0)
            under_way -= 1

    calls = [f"adf.find_train({{to: 'x', day: {day}}})" for day in (1, 2, 3)] + ["adf.emit_event({event_type: 'custom.sent'})"]
    workspace = Workspace(place, on_event=lambda name, payload: all_sent.set())
    await run([request_lambda(place, f"await Promise.all([{', '.join(calls)}])", workspace)], [find_train], listeners=[listen])
    assert most == 1


@pytest.mark.parametrize("calls_on", [False, True])
async def test_what_a_late_lambda_left_behind_does_not_keep_an_abort_from_the_run(place, calls_on):
    """The run reads a reply. A tool that ignored its cancellation still works, and ends, or tries to call another tool."""
    ended, go, streaming, called = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def pause() -> None:
        """Wait for ever."""
        called.set()
        await asyncio.Event().wait()

    @tool
    async def stubborn(ctx: ToolContext) -> str:
        """Go on whatever happens."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        await go.wait()
        asyncio.current_task().add_done_callback(lambda _: ended.set())
        if calls_on:
            await ctx.call_tool("pause", {})
        return "done"

    class Endless(Model):
        """Begins a reply and never ends it."""

        name, provider, endpoint = "endless", "test", "in-process"

        async def stream(self, request, info=None):
            yield TextDelta("Once ")
            streaming.set()
            await asyncio.Event().wait()

    gate = request_lambda(place, "await adf.stubborn({})", timeout=2, on_error="open")
    agent = Agent(model=Endless(), hooks=[gate], tools=[stubborn, pause], limits=Limits(abort_grace=None))
    async with agent:
        talk = agent.conversation()
        told = []
        talk.on("tool_execution_end", lambda event: told.append(event.call_id))
        running = asyncio.ensure_future(talk.run("Hi"))
        await streaming.wait()
        go.set()
        await ended.wait()
        talk.abort()
        result = await asyncio.wait_for(running, 30)
    assert (result.stop_reason, called.is_set(), told) == ("aborted", False, ["lambda_1/1"])


# --- console -------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_lambda_writes_beside_a_key_is_kept_nowhere(place, language, fails, caplog):
    caplog.set_level("DEBUG")
    key = "correct-horse-battery"
    decision = str({"type": "replace", "key": key} | ({"more": 1} if fails else {}))
    if language == "py":
        write(place, "x.py", f"def main(c):\n    print('{key}')\n    return {decision}")
    else:
        write(place, "x.ts", f"export const main = (c) => {{ console.log('{key}'); return {decision} }}")
    hooks = [Lambda(f"lib/x.{language}", seam="get_api_key", workspace=place, timeout=60)]
    result, _ = await run(hooks)
    assert [(d.verdict, d.console) for d in result.decisions] == [("failed" if fails else "Replace", None)]
    assert key not in caplog.text


@both
@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_lambda_writes_is_in_its_record(place, language, fails):
    if language == "py":
        end = "raise ValueError('x')" if fails else "return {'type': 'block', 'reason': 'no'}"
        write(place, "x.py", f"def main(c):\n    print('judging', c['name'])\n    {end}")
    else:
        end = "throw new Error('x')" if fails else "return {type: 'block', reason: 'no'}"
        write(place, "x.ts", f"export function main(c) {{ console.log('judging', c.name); {end} }}")
    gate = Lambda(f"lib/x.{language}", seam="before_tool_call", workspace=place, timeout=60)
    model = ScriptedModel([tool_call("find_train", {"to": "x"}), text("done")])
    result, _ = await run([gate], [find_train], model)
    assert [(d.verdict, d.console) for d in result.decisions] == [("failed" if fails else "Block", "judging find_train\n")]


async def test_what_a_lambda_wrote_before_it_was_late_is_in_its_record_shortened(place):
    write(place, "x.ts", "export function main(c) { console.log('x'.repeat(100)); for (;;); }")
    limits = SandboxLimits(console=10)
    gate = Lambda("lib/x.ts", seam="before_tool_call", workspace=place, timeout=4, limits=limits)
    model = ScriptedModel([tool_call("find_train", {"to": "x"}), text("done")])
    result, _ = await run([gate], [find_train], model)
    (record,) = result.decisions
    assert "gave no answer within 4 s" in record.reason
    assert record.console.startswith("x" * 10 + "\n[")


# --- code of the model ---------------------------------------------------------------------------


AGAIN = "export const main = () => adf.sys_code({code: String(1)})"


async def run_code(place, name, args, workspace=None, tools=(), hooks=True, **settings):
    code = code_tools(workspace or Workspace(place), limits=SandboxLimits(wall_time=60))
    model = ScriptedModel([tool_call(name, args, id="c1"), text("done")])
    result, events = await run(list(code.hooks) if hooks else [], [*code.tools, *tools], model, **settings)
    return next(m for m in result.messages if m.role == "tool"), events


async def test_the_model_runs_a_file_of_the_workspace(place):
    write(place, "sum.py", "def add(a):\n    print('adding')\n    return {'sum': a['x'] + a['y']}")
    message, _ = await run_code(place, "sys_lambda", {"source": "lib/sum.py:add", "args": {"x": 1, "y": 2}})
    assert message.text == '{"sum":3}\n\nOutput:\nadding\n'
    assert not message.is_error


@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_the_model_runs_code_of_its_own_whose_calls_pass_the_gates(place, language):
    code = {
        "python": "async def main(a):\n    return (await adf.find_train(to='Kyiv'))['to']",
        "typescript": "export const main = async () => (await adf.find_train({to: 'Kyiv'})).to",
    }[language]
    message, events = await run_code(place, "sys_code", {"code": code, "language": language}, tools=[find_train])
    assert message.text == "Kyiv"
    assert [(e.call_id, e.parent_call_id) for e in events if e.type == "tool_execution_start"] == [
        ("c1", None), ("c1/lambda_1/1", "c1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("sys_lambda", {"source": "lib/none.py"}, "No such file"),
        ("sys_lambda", {"source": "../x.py"}, "stay inside"),
        ("sys_lambda", {"source": "lib/x.py:none"}, "NOT_FOUND"),
        ("sys_lambda", {"source": "lib/x.py:broken"}, "FN_ERROR"),
        ("sys_code", {"code": f"export const main = () => adf.sys_code({{code: {AGAIN!r}}})"}, "CIRCULAR_CALL"),
        ("sys_code", {"code": "export const main = () => adf.authorize_file({path: 'lib/x.py'})"}, "REQUIRES_AUTHORIZED_CODE"),
        ("sys_code", {"code": "export const main = () => Deno.readTextFileSync('/etc/passwd')"}, "NotCapable"),
    ],
)
async def test_what_the_models_code_cannot_do_is_told_to_the_model(place, name, args, why):
    write(place, "x.py", "def broken(a):\n    return 1 / 0")
    message, _ = await run_code(place, name, args)
    assert message.is_error
    assert why in message.text


@pytest.mark.parametrize(("answer", "reached"), [(Approve(), True), (Deny("no"), False), (None, False)])
async def test_a_person_is_asked_before_the_model_runs_an_authorised_file(place, answer, reached):
    workspace = Workspace(place, gates=Gates.of(tools=[ToolSettings(name="secret", restricted=True)]))
    write(place, "keys.ts", "export const main = () => adf.secret({})")
    workspace.authority.authorize("lib/keys.ts")
    told, prompts = [], []

    @tool
    async def secret() -> str:
        """Tell."""
        told.append(1)
        return "secret"

    def on_ask(pending):
        prompts.append(pending.prompt)
        return answer

    message, _ = await run_code(place, "sys_lambda", {"source": "lib/keys.ts"}, workspace, [secret], on_ask=on_ask)
    assert prompts == ["Run lib/keys.ts with the authority its owner gave it?"]
    assert bool(told) is reached
    assert message.is_error is not reached


async def test_an_authorised_file_is_refused_where_the_hook_that_asks_is_missing(place):
    workspace = Workspace(place)
    write(place, "keys.ts", "export const main = () => 1")
    workspace.authority.authorize("lib/keys.ts")
    message, _ = await run_code(place, "sys_lambda", {"source": "lib/keys.ts"}, workspace, hooks=False)
    assert "REQUIRES_AUTHORIZED_CALLER" in message.text


@pytest.mark.parametrize("seam", ["transform_context", "before_tool_call", "after_tool_call"])
async def test_a_call_of_a_lambda_has_its_end_though_an_abort_gives_no_grace(place, seam):
    begun, heard = asyncio.Event(), []

    @tool
    async def hang() -> None:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()

    write(place, "gate.py", "async def main(c):\n    await adf.hang()")
    only = {"tools": ["find_train"]} if "tool" in seam else {}
    gate = Lambda("lib/gate.py", seam=seam, workspace=place, timeout=60, **only)
    model = ScriptedModel([tool_call("find_train", {"to": "Kyiv"}, id="c"), text("never")])
    async with Agent(model=model, hooks=[gate], tools=[hang, find_train], limits=Limits(abort_grace=0)) as agent:
        talk = agent.conversation()
        talk.on("tool_execution_start", lambda event: heard.append(event.call_id))
        talk.on("tool_execution_end", lambda event: heard.remove(event.call_id))
        running = asyncio.ensure_future(talk.run("Hi"))
        await begun.wait()
        talk.abort()
        assert (await asyncio.wait_for(running, 60)).stop_reason == "aborted"
    assert heard == []


async def test_a_lambda_that_has_woken_a_loop_calls_tools_there_too(place):
    body = """
  if (input.loop.name === "main") await adf.loop_send({to: "finder", message: "Find one."})
  await adf.find_train({to: "Kyiv"})"""
    gate = request_lambda(place, body)
    model, finder = ScriptedModel([text("done"), text("done")]), Loop("finder", tools=["find_train"])
    async with Agent(model=model, hooks=[gate], tools=[find_train], loops=[finder]) as agent:
        talk = agent.conversation()
        await talk.run("Hi")
        await talk.wait_for_loops()
        assert [m.text for m in talk.loop("finder").messages] == ["[from loop:main] Find one.", "done"]
