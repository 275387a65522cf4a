"""Lines of the fifty testable behaviours of `pre_llm_hook` that are about the call and what surrounds it.

Each test has its line's number in its name. The hook is a lambda before the provider call, run in its sandbox.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from beforehand import (
    Agent, AssistantMessage, HookFailed, Image, Limits, Loop, Recovery, RequestTooLarge, Text, ToolCall, ToolMessage, UserMessage,
    tool,
)  # fmt: skip
from beforehand.hooks.check import Refused
from beforehand.messages import Options, Request
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call
from beforehand.workspace import Lambda, Workspace
from beforehand.workspace.codec import read_request

both = pytest.mark.parametrize("language", ["py", "ts"])
RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@tool
async def read(path: str) -> str:
    """Read a file."""
    RAN.append(f"read {path}")
    return "contents"


@tool
async def pay(amount: int) -> str:
    """Pay."""
    RAN.append(f"pay {amount}")
    return "paid"


def hooked(place: Any, source: str, language: str = "py", **options: Any) -> Any:
    """The lambda `main` of this text before each provider call."""
    (place / "lib" / f"x.{language}").write_text(source)
    workspace = options.pop("workspace", place)
    return Lambda(f"lib/x.{language}", seam="before_provider_call", workspace=workspace, timeout=60, **options)


def in_language(language: str, py: str, ts: str) -> str:
    return py if language == "py" else ts


FAILS_ONCE = """
async def main(c):
    if await adf.sys_set_meta(key='calls', delta=1) == 1:
        raise ValueError('broken')
    await adf.sys_set_meta(key='seen', value=c['request']['messages'])
    return c['request']
"""


def fails(why: str) -> str:
    return f"def main(c):\n    raise ValueError({why!r})"


class Waits:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def no_call(place: Any, source: str, language: str = "py") -> HookFailed:
    """Run with this hook; check that no request left; return why."""
    model = ScriptedModel([text("never")])
    with pytest.raises(HookFailed) as caught:
        await Agent(model=model, tools=[read], hooks=[hooked(place, source, language)]).run("hi")
    assert model.requests == []
    return caught.value


# --- what a hook returns -------------------------------------------------------------------------


@both
async def test_01_a_hook_that_throws_lets_no_request_leave(place, language):
    source = in_language(language, fails("broken"), "export function main() { throw new Error('broken') }")
    assert "broken" in str(await no_call(place, source, language))


@both
@pytest.mark.parametrize("value", ["[]", "null", '"text"', "7"])
async def test_03_a_hook_that_returns_no_object_lets_no_request_leave(place, language, value):
    py = f"def main(c):\n    return {'None' if value == 'null' else value}"
    failure = await no_call(place, in_language(language, py, f"export function main() {{ return {value} }}"), language)
    assert failure.why.startswith("returned a request that cannot be sent: $ ")


@both
async def test_04_the_outer_object_is_no_request(place, language):
    source = in_language(language, "def main(c):\n    return c", "export function main(outer) { return outer }")
    failure = await no_call(place, source, language)
    assert failure.why.startswith("returned a request that cannot be sent: $.request does not belong there")


CHANGED = "def main(c):\n    r = c['request']\n    {change}\n    return r"
USE = "{{'type': 'tool_use', 'id': '{id}', 'name': 'read', 'input': {{}}}}"
RESULT = "{{'type': 'tool_result', 'tool_use_id': '{id}', 'content': 'x'}}"


def messages(*pairs: tuple[str, str]) -> str:
    said = ", ".join(f"{{'role': '{role}', 'content': [{blocks}]}}" for role, blocks in pairs)
    return f"r['messages'] = r['messages'] + [{said}]"


use, result_of = USE.format, RESULT.format

WRONG: dict[str, str] = {
    "25 a use without its result": messages(("assistant", use(id="a")), ("user", "{'type': 'text', 'text': 'go on'}")),
    "25 a use at the end": messages(("assistant", use(id="a"))),
    "26 a result before its use": messages(("user", result_of(id="a")), ("assistant", use(id="a"))),
    "26 a result without a use": messages(("user", result_of(id="a"))),
    "27 two uses with one id": messages(
        ("assistant", use(id="a")), ("user", result_of(id="a")), ("assistant", use(id="a")), ("user", result_of(id="a"))
    ),
    "28 two tools with one name": "r['tools'] = r['tools'] + r['tools']",
    "29 options with an unknown key": "r['options'] = {'topK': 1}",
    "29 options that are missing": "r.pop('options')",
    "29 options that are a list": "r['options'] = []",
    "30 temperature 2.1": "r['options'] = {'temperature': 2.1}",
    "30 temperature below 0": "r['options'] = {'temperature': -0.1}",
    "30 topP 1.1": "r['options'] = {'topP': 1.1}",
    "30 maxTokens 0": "r['options'] = {'maxTokens': 0}",
    "30 maxTokens null": "r['options'] = {'maxTokens': None}",
    "30 maxTokens 1.5": "r['options'] = {'maxTokens': 1.5}",
    "31 role system": "r['messages'] = r['messages'] + [{'role': 'system', 'content': 'x'}]",
    "31 an unknown block": messages(("user", "{'type': 'hologram', 'text': 'x'}")),
    "31 a result said by the assistant": messages(("assistant", use(id="a")), ("assistant", result_of(id="a"))),
    "31 a use said by the user": messages(("user", use(id="a")), ("user", result_of(id="a"))),
    "43 a signal of its own": "r['signal'] = {}",
    "43 a streaming callback of its own": "r['onText'] = 'x'",
}


def wrong(number: int) -> Any:
    return pytest.mark.parametrize("what", [what for what in WRONG if what.startswith(str(number))])


async def refused(place: Any, what: str, path: str) -> None:
    """No request leaves, and the failure names the place in what was returned."""
    failure = await no_call(place, CHANGED.format(change=WRONG[what]))
    assert "returned a request that cannot be sent" in failure.why
    assert path in failure.why


@wrong(25)
async def test_25_a_result_that_leaves_a_use_without_a_result_is_refused(place, what):
    await refused(place, what, "$.messages")


@wrong(26)
async def test_26_a_result_before_its_use_is_refused(place, what):
    await refused(place, what, "$.messages")


@wrong(27)
async def test_27_two_uses_with_one_id_is_refused(place, what):
    await refused(place, what, "$.messages")


@wrong(28)
async def test_28_two_tools_with_one_name_is_refused(place, what):
    await refused(place, what, "$.tools")


@wrong(29)
async def test_29_options_that_are_unknown_or_missing_is_refused(place, what):
    await refused(place, what, "$")


@wrong(30)
async def test_30_an_option_out_of_its_range_is_refused(place, what):
    await refused(place, what, "$.options.")


@wrong(31)
async def test_31_a_role_or_a_block_that_cannot_be_there_is_refused(place, what):
    await refused(place, what, "$.messages[")


@wrong(43)
async def test_43_a_field_that_is_the_runtimes_is_refused(place, what):
    await refused(place, what, "$")


def a_cycle() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


class Instance:
    pass


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), a_cycle(), Instance(), {1: 2}, b"x"],
    ids=lambda v: "an object" if isinstance(v, Instance) else repr(v),
)
def test_32_what_is_no_json_is_refused(value):
    returned = {
        "system": "",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [],
        "options": {"providerParams": {"a": value}},
    }
    with pytest.raises(Refused):
        read_request(returned, Request("", (UserMessage("hi"),), (), Options()))


async def test_32_json_turns_a_number_that_is_none_into_null_which_is_refused(place):
    source = "export function main({request}) { return {...request, options: {temperature: NaN}} }"
    assert "options.temperature" in str(await no_call(place, source, "ts"))


# --- tools, history, rounds ----------------------------------------------------------------------


async def test_08_a_tool_that_only_a_hook_advertises_does_not_run(place):
    source = CHANGED.format(
        change="r['tools'] = r['tools'] + [{'name': 'pay', 'description': 'Pay.', 'input_schema': {'type': 'object'}}]"
    )
    model = ScriptedModel([tool_call("pay", {"amount": 1}), text("end")])
    result = await Agent(model=model, tools=[read], hooks=[hooked(place, source)]).run("hi")
    assert [t.name for t in model.requests[0].tools] == ["read", "pay"]
    assert RAN == []
    assert (result.messages[2].outcome, result.messages[2].is_error) == ("not_found", True)
    assert result.messages[2].text == "Tool pay is not enabled."


async def test_08_what_no_hook_advertises_is_not_there_at_all(place):
    advertise = "r['tools'] = r['tools'] + [{'name': 'pay', 'description': 'Pay.', 'input_schema': {'type': 'object'}}]"
    source = CHANGED.format(change=f"if len(r['messages']) == 1:\n        {advertise}")
    model = ScriptedModel([[tool_call("pay", {}), tool_call("buy", {})], tool_call("pay", {}), text("end")])
    result = await Agent(model=model, tools=[read], hooks=[hooked(place, source)]).run("hi")
    told = [m.text for m in result.messages if m.role == "tool"]
    assert told == ["Tool pay is not enabled.", "Tool buy not found.", "Tool pay not found."]


async def test_09_a_tool_that_a_hook_hides_runs_through_its_normal_checks(place):
    source = CHANGED.format(change="r['tools'] = []")
    model = ScriptedModel([tool_call("read", {"path": "a"}), tool_call("read", {"file": "a"}), text("end")])
    result = await Agent(model=model, tools=[read], hooks=[hooked(place, source)]).run("hi")
    assert model.requests[0].tools == ()
    assert RAN == ["read a"]
    assert [m.outcome for m in result.messages if m.role == "tool"] == ["ran", "invalid"]


@both
async def test_10_the_history_holds_the_original_and_the_model_reads_the_rewrite(place, language):
    source = in_language(
        language,
        CHANGED.format(change="r['messages'][0]['content'] = 'rewritten'"),
        "export function main({request}) { request.messages[0].content = 'rewritten'; return request }",
    )
    model = ScriptedModel([text("hello")])
    talk = Agent(model=model, hooks=[hooked(place, source, language)]).conversation()
    await talk.run("original")
    assert [m.text for m in model.requests[0].messages] == ["rewritten"]
    assert [m.text for m in talk.messages] == ["original", "hello"]


@both
async def test_20_with_one_round_of_tools_the_hook_runs_exactly_twice(place, language):
    source = in_language(
        language,
        "async def main(c):\n    await adf.sys_set_meta(key='calls', delta=1)\n    return c['request']",
        "export async function main(c) { await adf.sys_set_meta({key: 'calls', delta: 1}); return c.request }",
    )
    workspace, model = Workspace(place), ScriptedModel([tool_call("read", {"path": "a"}), text("end")])
    await Agent(model=model, tools=[read], hooks=[hooked(place, source, language, workspace=workspace)]).run("hi")
    assert workspace.get_meta() == {"calls": 2}


# --- what a failure leads to, and what it does not -------------------------------------------------


PAST = [
    UserMessage((Text("look"), Image(url="http://127.0.0.1/p.png"))),
    AssistantMessage((ToolCall("c", "read", "{}"),), "tool_calls"),
    ToolMessage("c", "read", "contents"), AssistantMessage((Text("seen"),)),
]  # fmt: skip


async def leads_nowhere_else(place: Any, caplog: Any, words: str) -> None:
    """A hook that fails with these words is tried again as a hook, once, and leads to no other recovery."""
    waits, model = Waits(), ScriptedModel([text("never")])
    agent = Agent(model=model, tools=[read], hooks=[hooked(place, fails(words))], recovery=Recovery(sleep=waits, max_attempts=1))
    talk = agent.conversation(PAST)
    with caplog.at_level(logging.INFO, logger="beforehand"):
        result = await talk.run("hi", check=False)
    assert isinstance(result.error, HookFailed)
    assert words in str(result.error)
    assert model.requests == []
    assert list(talk.messages[: len(PAST)]) == PAST, "no tool block is gone, and no image"
    noted = [d.verdict for d in result.decisions if d.hook == "beforehand"]
    assert noted == ["turn_error_retry_scheduled", "recovery_exhausted"]
    for other in ("provider_retry", "image_retry", "Repaired", "authentication"):
        assert other not in caplog.text
    assert "provider" not in "".join(m.text for m in talk.messages if "retry" in m.text)


async def test_11_a_hook_that_speaks_of_an_api_key_is_no_failed_authentication(place, caplog):
    await leads_nowhere_else(place, caplog, "invalid api key")


async def test_12_a_hook_that_speaks_of_a_mismatch_takes_no_tool_block_away(place, caplog):
    await leads_nowhere_else(place, caplog, "tool_result mismatch")


async def test_13_a_hook_that_fails_leaves_the_images_and_is_not_tried_without_them(place, caplog):
    await leads_nowhere_else(place, caplog, "image_url could not be loaded")


async def test_14_a_hook_that_speaks_of_a_timeout_is_no_failure_of_the_provider(place, caplog):
    await leads_nowhere_else(place, caplog, "timeout")


async def test_15_a_failed_hook_leaves_one_row_and_everything_before_it_as_it_was(place):
    agent = Agent(model=ScriptedModel(), hooks=[hooked(place, fails("broken"))], recovery=Recovery(auto_retry=False))
    talk = agent.conversation(PAST)
    await talk.run("hi", check=False)
    assert list(talk.messages[:-1]) == [*PAST, UserMessage("hi")]
    assert talk.messages[-1].role == "user"
    assert talk.messages[-1].text.startswith("[Turn error] ")


async def test_16_after_the_delay_the_hook_runs_again_and_then_one_request_leaves(place):
    waits, model, workspace = Waits(), ScriptedModel([text("hello")]), Workspace(place)
    recovery = Recovery(sleep=waits, max_attempts=1, base_delay_ms=2000, jitter=0)
    result = await Agent(model=model, hooks=[hooked(place, FAILS_ONCE, workspace=workspace)], recovery=recovery).run("hi")
    assert (result.text, waits.seconds, len(model.requests)) == ("hello", [2.0], 1)
    assert workspace.get_meta()["calls"] == 2


async def test_17_the_notice_of_a_retry_says_turn_error_and_nothing_of_a_provider(place):
    workspace = Workspace(place)
    recovery = Recovery(sleep=Waits(), max_attempts=1)
    await Agent(
        model=ScriptedModel([text("hello")]), hooks=[hooked(place, FAILS_ONCE, workspace=workspace)], recovery=recovery
    ).run("hi")
    seen = msgspec.json.encode(workspace.get_meta()["seen"][1:]).decode()
    assert "[Turn error] structural recovery retry 1 of 1" in seen
    assert "provider" not in seen.replace("before_provider_call", "")


async def test_18_without_auto_retry_nothing_is_tried_again(place):
    waits = Waits()
    recovery = Recovery(sleep=waits, auto_retry=False)
    result = await Agent(model=ScriptedModel(), hooks=[hooked(place, fails("broken"))], recovery=recovery).run("hi", check=False)
    assert (result.stop_reason, waits.seconds) == ("error", [])


async def test_19_when_all_attempts_have_failed_the_run_ends_and_the_log_says_so(place, caplog):
    source = "async def main(c):\n    raise ValueError(str(await adf.sys_set_meta(key='calls', delta=1)))"
    waits = Waits()
    agent = Agent(model=ScriptedModel(), hooks=[hooked(place, source)], recovery=Recovery(sleep=waits, max_attempts=2, jitter=0))
    with caplog.at_level(logging.WARNING, logger="beforehand"):
        result = await agent.run("hi", check=False)
    assert (result.stop_reason, waits.seconds) == ("error", [15.0, 30.0])
    assert "recovery_exhausted" in caplog.text


# --- compaction, repair, size --------------------------------------------------------------------


async def test_23_the_request_for_a_summary_is_not_the_hooks(place):
    workspace = Workspace(place)
    source = "async def main(c):\n    await adf.sys_set_meta(key='calls', delta=1)\n    return c['request']"
    model = FunctionModel(lambda r: text("SUMMARY" if r.system.startswith("Summarise") else "hello"))
    past = [m for n in range(8) for m in (UserMessage(f"{n} " + "x" * 400), AssistantMessage((Text("ok"),)))]
    agent = Agent(model=model, hooks=[hooked(place, source, workspace=workspace)], limits=Limits(compact_at=500))
    talk = agent.conversation(past)
    await talk.run("hi")
    assert [r.system.startswith("Summarise") for r in model.requests] == [True, False]
    assert workspace.get_meta() == {"calls": 1}
    assert "SUMMARY" in talk.messages[0].text


ORPHANS: dict[str, list[Any]] = {
    "a use without a result": [UserMessage("go"), AssistantMessage((ToolCall("c", "read"),), "tool_calls"), UserMessage("and?")],
    "a use at the end": [UserMessage("go"), AssistantMessage((ToolCall("c", "read"),), "tool_calls")],
    "a result without a use": [UserMessage("go"), ToolMessage("c", "read", "x"), AssistantMessage((Text("ok"),))],
    "a result that comes first": [ToolMessage("c", "read", "x"), UserMessage("go"), AssistantMessage((Text("ok"),))],
    "a result that comes late": [
        UserMessage("go"), AssistantMessage((ToolCall("c", "read"),), "tool_calls"), UserMessage("and?"),
        ToolMessage("c", "read", "x"),
    ],
    "an id that an earlier call had": [
        UserMessage("go"), AssistantMessage((ToolCall("c", "read"),), "tool_calls"), ToolMessage("c", "read", "x"),
        UserMessage("and?"), AssistantMessage((ToolCall("c", "read"),), "tool_calls"), ToolMessage("c", "read", "y"),
    ],
    "two calls of one id in a reply": [
        UserMessage("go"), AssistantMessage((ToolCall("c", "read"), ToolCall("c", "read")), "tool_calls"),
        ToolMessage("c", "read", "x"), ToolMessage("c", "read", "y"),
    ],
    "an earlier call of the same id without a result": [
        UserMessage("go"), AssistantMessage((ToolCall("c", "read"),), "tool_calls"), UserMessage("and?"),
        AssistantMessage((ToolCall("c", "read"),), "tool_calls"), ToolMessage("c", "read", "y"),
    ],
    "one of two results": [
        UserMessage("go"), AssistantMessage((ToolCall("c", "read"), ToolCall("d", "read")), "tool_calls"),
        ToolMessage("d", "read", "x"), UserMessage("and?"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", list(ORPHANS))
async def test_24_a_hook_sees_messages_that_have_been_repaired(place, what):
    workspace, model = Workspace(place), ScriptedModel([text("hello")])
    source = "async def main(c):\n    await adf.sys_set_meta(key='seen', value=c['request']['messages'])\n    return c['request']"
    talk = Agent(model=model, hooks=[hooked(place, source, workspace=workspace)]).conversation(ORPHANS[what])
    result = await talk.run("hi")

    waiting: list[str] = []
    ids: list[str] = []
    for message in workspace.get_meta()["seen"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert results or not waiting, "the results of a call come right after it"
        for answered in results:
            waiting.remove(answered)
        waiting += [b["id"] for b in blocks if b["type"] == "tool_use"]
        ids += [b["id"] for b in blocks if b["type"] == "tool_use"]
    assert waiting == []
    assert len(ids) == len(set(ids))
    assert {d.verdict for d in result.decisions} & {"Repaired", "Renamed"}
    assert list(talk.messages[: len(ORPHANS[what])]) == ORPHANS[what], "the history keeps what it was given"
    assert len(model.requests) == 1


async def test_a_hook_that_makes_the_request_grow_past_the_window_lets_no_request_leave(place):
    """Not a line of its own: the original measures the request before the hook."""
    source = CHANGED.format(change="r['messages'][0]['content'] = 'x' * 10000")
    model = ScriptedModel([text("never")], context_tokens=1000)
    with pytest.raises(RequestTooLarge, match="about 25"):
        await Agent(model=model, hooks=[hooked(place, source)]).run("hi")
    assert model.requests == []
    source = CHANGED.format(change="r['options'] = {'maxTokens': 1000}")
    with pytest.raises(RequestTooLarge):
        await Agent(model=model, hooks=[hooked(place, source)]).run("hi")
    assert model.requests == []


async def test_45_a_no_op_hook_passes_after_a_call_without_a_name(place):
    model = ScriptedModel([tool_call("", {}), text("end")])
    agent = Agent(model=model, tools=[read], hooks=[hooked(place, "def main(c):\n    return c['request']")])
    result = await agent.run("hi")
    assert [m.outcome for m in result.messages if m.role == "tool"] == ["not_found"]
    assert (result.text, len(model.requests)) == ("end", 2)


@both
async def test_45_a_no_op_hook_passes_whatever_the_size_of_the_pictures(place, language):
    source = in_language(language, "def main(c):\n    return c['request']", "export function main(c) { return c.request }")
    model, photo = ScriptedModel([text("end")]), Image(data="A" * 6_000_000)
    result = await Agent(model=model, hooks=[hooked(place, source, language)]).run(UserMessage((Text("look"), photo)))
    assert result.text == "end"
    assert model.requests[0].messages[0].content[1] == photo


async def test_a_hook_may_not_add_more_than_its_bound_to_a_request(place):
    failure = await no_call(place, CHANGED.format(change="r['system'] = 'x' * 4200000"))
    assert "bytes of JSON, more than 4,194,304" in failure.why


async def test_every_result_stays_with_its_call_where_ids_are_used_again(place):
    model = ScriptedModel([text("hello"), text("again")])
    talk = Agent(model=model).conversation(ORPHANS["an id that an earlier call had"])
    for prompt in ("one", "two"):
        result = await talk.run(prompt)
        told = [(m.tool_call_id, m.text) for m in model.requests[-1].messages if m.role == "tool"]
        assert told == [("c", "x"), ("c-2", "y")]
        assert [d.reason for d in result.decisions] == ["call id 'c' is already in use, so this call is 'c-2'"]


# --- loops ---------------------------------------------------------------------------------------

NOTES_LOOP = "async def main(c):\n    await adf.sys_set_meta(key=c['loop']['name'], delta=1)\n    return c['request']"


async def asked_in(place: Any, loops: Any) -> dict[str, int]:
    """How often the hook ran in which loop, after one run each of main, a declared loop and one made later."""
    workspace = Workspace(place)
    agent = Agent(
        model=FunctionModel(lambda r: text("ok")), hooks=[hooked(place, NOTES_LOOP, workspace=workspace, loops=loops)],
        loops=[Loop("reviewer")],
    )  # fmt: skip
    await agent.run("hi")
    await agent.loop("reviewer").run("hi")
    await agent.loop(Loop("researcher")).run("hi")
    return workspace.get_meta()


async def test_36_a_hook_of_a_loop_that_is_not_made_yet_runs_there_and_not_in_main(place):
    assert await asked_in(place, ["researcher"]) == {"researcher": 1}


async def test_37_a_hook_of_loops_and_of_main_runs_in_main_under_that_name(place):
    assert await asked_in(place, ["main", "researcher"]) == {"main": 1, "researcher": 1}


async def test_38_a_hook_of_all_loops_runs_in_one_that_is_made_later(place):
    assert await asked_in(place, None) == {"main": 1, "reviewer": 1, "researcher": 1}


@both
async def test_48_a_hook_of_a_loop_cannot_use_a_tool_the_loop_does_not_have(place, language):
    source = in_language(
        language,
        "async def main(c):\n    await adf.pay(amount=1)\n    return c['request']",
        "export async function main(c) { await adf.pay({amount: 1}); return c.request }",
    )
    model = ScriptedModel([text("never")])
    agent = Agent(model=model, tools=[read, pay], hooks=[hooked(place, source, language)], loops=[Loop("helper", tools=["read"])])
    result = await agent.loop("helper").run("hi", check=False)
    assert isinstance(result.error, HookFailed)
    assert (RAN, model.requests) == ([], [])


async def test_48_the_model_of_a_loop_cannot_either(place):
    model = ScriptedModel([tool_call("pay", {"amount": 1}), text("end")])
    agent = Agent(model=model, tools=[read, pay], hooks=[hooked(place, NOTES_LOOP)], loops=[Loop("helper", tools=["read"])])
    result = await agent.loop("helper").run("hi")
    assert (RAN, result.messages[2].outcome) == ([], "not_found")


# --- what stays the runtime's --------------------------------------------------------------------


async def test_43_deltas_and_the_abort_of_a_hooked_request_are_the_runtimes(place):
    shown: list[str] = []
    hanging = asyncio.Event()

    async def reply(request: Any) -> Any:
        if request.messages[-1].text == "hang":
            hanging.set()
            await asyncio.Event().wait()
        return text("", ["hel", "lo"])

    source = CHANGED.format(change="r['system'] = 'Be kind.'")
    talk = Agent(model=FunctionModel(reply), hooks=[hooked(place, source)]).conversation()
    talk.on("message_update", lambda e: shown.append(e.delta))
    await talk.run("hi")
    assert shown == ["hel", "lo"]
    running = asyncio.ensure_future(talk.run("hang"))
    await hanging.wait()
    talk.abort()
    assert (await running).stop_reason == "aborted"
