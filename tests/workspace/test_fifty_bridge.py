"""Behaviours of the format this bridge follows, each under the number it has in our list of fifty.

Here are those about the sandbox, the bridge and authority.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest
from sandbox.sandboxed import children

from beforehand import Agent, HookFailed, hook, tool
from beforehand.sandbox import close_spares
from beforehand.settings import CodeExecution, ToolSettings
from beforehand.testing import ScriptedModel, text, tool_call
from beforehand.workspace import Gates, Lambda, Workspace, code_tools

both = pytest.mark.parametrize("language", ["py", "ts"])

PASSES = {"py": "return input['request']", "ts": "return input.request"}


def policy(place, language, body):
    """`lib/policy.*:transform` with this body; the request goes through unchanged."""
    if language == "py":
        lines = "\n    ".join([*body.splitlines(), PASSES["py"]])
        (place / "lib" / "policy.py").write_text(f"async def transform(input):\n    {lines}\n")
    else:
        (place / "lib" / "policy.ts").write_text(f"export async function transform(input) {{ {body}; {PASSES['ts']} }}")
    return f"lib/policy.{language}:transform"


def agent_with(source, workspace, model=None, **settings):
    gate = Lambda(source, seam="before_provider_call", workspace=workspace, timeout=60)
    return Agent(model=model or ScriptedModel([text("done")]), hooks=[gate, *settings.pop("hooks", [])], **settings)


def records(result, verdict):
    return [d.reason for d in result.decisions if d.verdict == verdict]


def workers():
    """The processes this one has started that still run."""
    found = set()
    for pid in children():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has been collected just now
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found


@both
async def test_07_an_abort_while_the_hook_runs_sends_nothing_and_a_delayed_write_never_lands(place, language):
    source = policy(place, language, {
        "py": "await adf.emit_event(event_type='custom.begun')\nimport asyncio\nawait asyncio.sleep(0.3)\n"
              "await adf.fs_write(path='late.txt', content='x')",
        "ts": "await adf.emit_event({event_type: 'custom.begun'}); await new Promise((r) => setTimeout(r, 300));"
              "await adf.fs_write({path: 'late.txt', content: 'x'})",
    }[language])  # fmt: skip
    begun = asyncio.Event()
    workspace = Workspace(place, on_event=lambda name, payload: begun.set())
    model = ScriptedModel([text("done")])
    before = workers()
    async with agent_with(source, workspace, model) as agent:
        talk = agent.conversation()
        running = asyncio.ensure_future(talk.run("Hi"))
        await begun.wait()
        talk.abort()
        loop = asyncio.get_running_loop()
        aborted_at = loop.time()
        result = await running
        assert loop.time() - aborted_at < 1
    assert result.stop_reason == "aborted"
    assert model.requests == []
    assert workers() <= before  # nobody is left who could write
    assert not (place / "late.txt").exists()


@both
async def test_21_a_global_set_by_the_hook_is_gone_in_the_next_round(place, language):
    source = policy(place, language, {
        "py": "await adf.emit_event(event_type='custom.seen', payload=count)\ncount.append(1)",
        "ts": "await adf.emit_event({event_type: 'custom.seen', payload: [...(globalThis.count ?? [])]}); "
              "globalThis.count = [1]",
    }[language])  # fmt: skip
    if language == "py":
        file = place / "lib" / "policy.py"
        file.write_text("count = []\n" + file.read_text())
    seen = []

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    workspace = Workspace(place, on_event=lambda name, payload: seen.append(payload))
    model = ScriptedModel([tool_call("look"), text("done")])
    async with agent_with(source, workspace, model, tools=[look]) as agent:
        await agent.run("Hi")
    assert seen == [[], []]


@both
async def test_22_a_hook_that_invokes_the_model_makes_two_requests_and_is_not_asked_again(place, language):
    source = policy(place, language, {
        "py": "text = await adf.model_invoke(prompt='Which language is this?', system='One word.', max_tokens=5)\n"
              "await adf.sys_set_meta(key='calls', delta=1)\nawait adf.sys_set_meta(key='text', value=text)",
        "ts": "const text = await adf.model_invoke({prompt: 'Which language is this?', system: 'One word.', max_tokens: 5});"
              "await adf.sys_set_meta({key: 'calls', delta: 1}); await adf.sys_set_meta({key: 'text', value: text})",
    }[language])  # fmt: skip
    seen = []
    look = hook.authorize_request(lambda outgoing: seen.append(outgoing.kind))
    workspace = Workspace(place)
    model = ScriptedModel([text("English"), text("done")])
    async with agent_with(source, workspace, model, hooks=[look]) as agent:
        result = await agent.run("Hi")
    assert [r.messages[-1].text for r in model.requests] == ["Which language is this?", "Hi"]
    assert (model.requests[0].system, model.requests[0].options.max_tokens) == ("One word.", 5)
    assert seen == ["direct", "turn"]
    assert workspace.get_meta() == {"calls": 1, "text": "English"}
    assert result.text == "done"


@both
async def test_39_nested_lambdas_work_while_the_tool_sys_lambda_is_not_enabled(place, language):
    source = policy(place, language, {
        "py": "await adf.sys_set_meta(key='found', value=await adf.sys_lambda(source='lib/find.py'))",
        "ts": "await adf.sys_set_meta({key: 'found', value: await adf.sys_lambda({source: 'lib/find.py'})})",
    }[language])  # fmt: skip
    (place / "lib" / "find.py").write_text("def main(a):\n    print('looking')\n    return {'n': 1}")
    workspace = Workspace(place, gates=Gates.of(tools=[ToolSettings(name="sys_lambda", enabled=False)]))
    model = ScriptedModel([tool_call("sys_lambda", {"source": "lib/find.py"}), text("done")])
    async with agent_with(source, workspace, model) as agent:
        result = await agent.run("Hi")
    assert workspace.get_meta() == {"found": {"n": 1}}
    assert [m.outcome for m in result.messages if m.role == "tool"] == ["not_found"]


@both
async def test_40_nested_lambdas_are_disabled_where_the_gate_is_off(place, language):
    source = policy(place, language, {
        "py": "await adf.sys_lambda(source='lib/find.py')", "ts": "await adf.sys_lambda({source: 'lib/find.py'})",
    }[language])  # fmt: skip
    (place / "lib" / "find.py").write_text("def main(a):\n    return 1")
    workspace = Workspace(place, gates=Gates.of(CodeExecution(sys_lambda=False)))
    code = code_tools(workspace)
    model = ScriptedModel([text("done")])
    async with agent_with(source, workspace, model, tools=code.tools, hooks=code.hooks) as agent:
        with pytest.raises(HookFailed, match="DISABLED"):
            await agent.run("Hi")
    assert model.requests == []


@both
@pytest.mark.parametrize("authorized", [False, True])
async def test_41_a_restricted_tool_runs_for_authorised_code_alone(place, language, authorized):
    source = policy(place, language, {
        "py": "await adf.sys_set_meta(key='paid', value=await adf.pay(amount=3))",
        "ts": "await adf.sys_set_meta({key: 'paid', value: await adf.pay({amount: 3})})",
    }[language])  # fmt: skip
    paid = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    workspace = Workspace(place, gates=Gates.of(tools=[ToolSettings(name="pay", restricted=True)]))
    if authorized:
        workspace.authority.authorize(f"lib/policy.{language}")
    model = ScriptedModel([text("done")])
    async with agent_with(source, workspace, model, tools=[pay]) as agent:
        result = await agent.run("Hi", check=False)
    assert paid == ([3] if authorized else [])
    if not authorized:
        assert "REQUIRES_AUTHORIZED_CODE" in str(result.error)
        assert model.requests == []


@both
async def test_41_any_write_takes_the_authority_away(place, language):
    source = policy(place, language, "")
    workspace = Workspace(place)
    workspace.authority.authorize(f"lib/policy.{language}")
    policy(place, language, {"py": "await adf.authorize_file(path='lib/policy.py')",
                             "ts": "await adf.authorize_file({path: 'lib/policy.ts'})"}[language])  # fmt: skip
    async with agent_with(source, workspace) as agent:
        with pytest.raises(HookFailed, match="REQUIRES_AUTHORIZED_CODE"):
            await agent.run("Hi")


@both
@pytest.mark.parametrize("authorized", [False, True])
async def test_42_an_authorised_lambda_is_called_by_authorised_ones_alone(place, language, authorized):
    source = policy(place, language, {
        "py": "await adf.sys_lambda(source='lib/keys.ts')", "ts": "await adf.sys_lambda({source: 'lib/keys.ts'})",
    }[language])  # fmt: skip
    (place / "lib" / "keys.ts").write_text("export const main = () => adf.sys_set_meta({key: 'reached', value: true})")
    workspace = Workspace(place)
    workspace.authority.authorize("lib/keys.ts")
    if authorized:
        workspace.authority.authorize(f"lib/policy.{language}")
    async with agent_with(source, workspace) as agent:
        result = await agent.run("Hi", check=False)
    assert workspace.get_meta() == ({"reached": True} if authorized else {})
    if not authorized:
        assert "REQUIRES_AUTHORIZED_CALLER" in str(result.error)


async def test_42_authority_does_not_pass_to_what_an_authorised_lambda_calls(place):
    source = policy(place, "py", "await adf.sys_lambda(source='lib/plain.py')")
    (place / "lib" / "plain.py").write_text("async def main(a):\n    return await adf.authorize_file(path='lib/plain.py')")
    workspace = Workspace(place)
    workspace.authority.authorize("lib/policy.py")
    async with agent_with(source, workspace) as agent:
        with pytest.raises(HookFailed, match="REQUIRES_AUTHORIZED_CODE"):
            await agent.run("Hi")


async def test_42_calls_side_by_side_have_an_authority_each(place):
    """An authorised lambda calls an authorised and a plain one at the same time; only the first may authorise."""
    source = policy(
        place,
        "ts",
        """
        const files = ['lib/a.py', 'lib/b.py', 'lib/a.py', 'lib/b.py', 'lib/a.py', 'lib/b.py'];
        const found = await Promise.allSettled(files.map((source) => adf.sys_lambda({source})));
        await adf.sys_set_meta({key: 'found', value: found.map((f) => f.value ?? f.reason.message)})""",
    )
    steps = ["await adf.fs_read(path='lib/a.py')", "await adf.authorize_file(path='lib/c.py')", "return 'did'"]
    body = "\n    ".join(["async def main(a):", *steps])
    (place / "lib" / "a.py").write_text(body)
    (place / "lib" / "b.py").write_text(body + "\n")
    (place / "lib" / "c.py").write_text("def main(a):\n    pass")
    workspace = Workspace(place)
    for path in ("lib/policy.ts", "lib/a.py"):
        workspace.authority.authorize(path)
    async with agent_with(source, workspace) as agent:
        await agent.run("Hi")
    found = workspace.get_meta()["found"]
    assert found[::2] == ["did"] * 3
    assert all("REQUIRES_AUTHORIZED_CODE" in f for f in found[1::2])


ENDS = {
    "succeeds": {"py": "", "ts": ""},
    "raises": {"py": "raise ValueError('x')", "ts": "throw new Error('x')"},
    "calls another": {
        "py": "await adf.sys_lambda(source='lib/other.ts')",
        "ts": "await adf.sys_lambda({source: 'lib/other.ts'})",
    },
}


@both
@pytest.mark.parametrize("how", ENDS)
async def test_47_the_workers_that_have_run_the_hook_end_while_the_agent_lives_on(place, language, how):
    await close_spares()
    before, at_work = workers(), set()
    notes = {
        "py": "await adf.emit_event(event_type='custom.at_work')\n",
        "ts": "await adf.emit_event({event_type: 'custom.at_work'});",
    }
    source = policy(place, language, notes[language] + ENDS[how][language])
    (place / "lib" / "other.ts").write_text(f"export async function main() {{ {notes['ts']} }}")
    workspace = Workspace(place, on_event=lambda name, payload: at_work.update(workers() - before))
    async with agent_with(source, workspace) as agent:
        await agent.run("Hi", check=False)
        assert at_work
        async with asyncio.timeout(30):
            while at_work & workers():  # noqa: ASYNC110 - they have been killed, and the kernel clears them away
                await asyncio.sleep(0.005)


@both
@pytest.mark.parametrize("how", ENDS)
async def test_47_no_worker_is_left_when_the_hook_is_done_and_the_agent_closed(place, language, how):
    await close_spares()
    before = workers()
    source = policy(place, language, ENDS[how][language])
    (place / "lib" / "other.ts").write_text("export function main() {}")
    async with agent_with(source, Workspace(place)) as agent:
        await agent.run("Hi", check=False)
        await agent.run("Hi again", check=False)
        async with asyncio.timeout(30):
            while not workers() - before:  # noqa: ASYNC110 - the worker that waits for the next call is being started
                await asyncio.sleep(0.005)
    assert workers() <= before


def test_47_no_worker_is_left_after_run_sync(place):
    before = workers()
    agent_with(policy(place, "ts", ""), Workspace(place)).run_sync("Hi")
    assert workers() <= before


@both
async def test_49_a_nested_lambda_that_fails_and_is_not_caught_sends_nothing(place, language):
    source = policy(place, language, {
        "py": "input['request']['system'] = (await adf.sys_lambda(source='lib/find.ts'))['text']",
        "ts": "input.request.system = (await adf.sys_lambda({source: 'lib/find.ts'})).text",
    }[language])  # fmt: skip
    (place / "lib" / "find.ts").write_text("export function main() { throw new Error('no index') }")
    model = ScriptedModel([text("done")])
    async with agent_with(source, Workspace(place), model) as agent:
        with pytest.raises(HookFailed, match=r"FN_ERROR: lib/find\.ts:1: raised Error: no index"):
            await agent.run("Hi")
    assert model.requests == []
