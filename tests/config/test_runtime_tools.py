"""Tools that the runtime brings when a project file declares them, and the spare sandboxes that are closed with the agent."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from sandbox.sandboxed import children

from beforehand import Agent, ConfigError, HookFailed, Loop, tool
from beforehand.decisions import Approve, Deny
from beforehand.sandbox import close_spares
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call
from beforehand.workspace import Approvals, Authority, Workspace

HOOKED = 'workspace = "agent"\n[pre_llm_hook]\nsource = "lib/x.py:transform"\n'
PLACE = 'workspace = "agent"\n'
CALLS_ANOTHER = (
    "async def transform(i):\n    return {**i['request'], 'system': await adf.sys_lambda(source='lib/y.py')}\n"
)  # fmt: skip
SIX = "def main(a):\n    return 6 * 7"


def declared(*names, more=""):
    return "".join([f'[[tools]]\nname = "{name}"\n{more}' for name in names])


def results(model):
    return [m.text for m in model.requests[-1].messages if m.role == "tool"]


async def answers(folder, *calls, tools=(), **more):
    """What the model reads of these calls, one after the other."""
    model = ScriptedModel([*calls, text("done")])
    async with Agent.from_project(folder.root, model=model, tools=tools, **more) as agent:
        await agent.run("go")
    return results(model)


CODE = tool_call("sys_code", {"code": SIX, "language": "python"})
NESTED = tool_call("sys_code", {"code": "async def main(a):\n    return await adf.sys_lambda(source='lib/y.py')",
                                "language": "python"})  # fmt: skip
FILE = tool_call("sys_lambda", {"source": "lib/y.py"})


async def test_code_of_the_model_is_off_unless_it_is_declared(folder):
    folder.toml(HOOKED)
    agent = Agent.from_project(folder.root, model=ScriptedModel([]))
    assert agent.plan.tools == ()
    folder.toml(HOOKED + declared("sys_lambda", "sys_code", more="enabled = false\n"))
    assert Agent.from_project(folder.root, model=ScriptedModel([])).plan.tools == ()
    first, _ = await answers(folder, CODE, FILE)
    assert "42" not in first


async def test_declared_tools_run_code_and_files_of_the_workspace(folder):
    folder.lambda_("def main(a):\n    return {'found': a['n'] + 1}", "y.py")
    folder.toml(PLACE + declared("sys_code", "sys_lambda"))
    assert [t.name for t in Agent.from_project(folder.root, model=ScriptedModel([])).plan.tools] == ["sys_lambda", "sys_code"]
    asked = tool_call("sys_lambda", {"source": "lib/y.py", "args": {"n": 1}})
    assert await answers(folder, CODE, asked) == ["42", '{"found":2}']


async def test_the_hooks_own_calls_of_lambdas_do_not_depend_on_the_tool(folder):
    folder.lambda_(CALLS_ANOTHER)
    folder.lambda_("def main(a):\n    return 'nested'", "y.py")
    for said in ("", declared("sys_lambda", more="enabled = false\n"), declared("sys_lambda"), declared("sys_code")):
        folder.toml(HOOKED + said)
        model = ScriptedModel([FILE, text("done")])
        result = await Agent.from_project(folder.root, model=model).run("go")
        assert [r.system for r in model.requests] == ["nested", "nested"]
        has_it = said == declared("sys_lambda")
        assert [m.outcome for m in result.messages if m.role == "tool"] == ["ran" if has_it else "not_found"]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("", "NOT_FOUND: there is no method and no tool 'sys_lambda' here"),
        (declared("sys_lambda", more="enabled = false\n"), "DISABLED: 'sys_lambda' is not enabled"),
        (declared("sys_lambda", more="restricted = true\n"), "REQUIRES_AUTHORIZED_CODE: 'sys_lambda' is restricted"),
        (declared("sys_lambda"), "nested"),
        (declared("sys_lambda") + "[code_execution]\nsys_lambda = false\n", "DISABLED: adf.sys_lambda is switched off"),
    ],
)
async def test_code_of_the_model_calls_lambdas_as_far_as_the_model_itself_may(folder, said, read):
    folder.lambda_("def main(a):\n    return 'nested'", "y.py")
    folder.toml(PLACE + declared("sys_code") + said)
    (found,) = await answers(folder, NESTED)
    assert read in found


async def test_what_counts_for_the_code_is_what_the_file_says_at_the_time(folder):
    folder.lambda_("async def main(a):\n    return await adf.sys_lambda(source='lib/z.py')", "y.py")
    folder.lambda_("def main(a):\n    return 'reached'", "z.py")
    said = PLACE + "[recovery]\nauto_retry = false\n" + declared("sys_lambda")
    folder.toml(said)
    model = ScriptedModel([FILE, FILE, FILE, text("done")])
    agent = Agent.from_project(folder.root, model=model)
    edits = iter([said, said + "[code_execution]\nsys_lambda = false\n", "workspace = 7\n"])
    talk = agent.conversation()
    talk.on("tool_execution_start", lambda event: folder.toml(next(edits)))
    result = await talk.run("go", check=False)
    first, second, third = [m.text for m in result.messages if m.role == "tool"]
    assert first == "reached"
    assert "DISABLED: adf.sys_lambda is switched off" in second
    assert "beforehand.toml:1:1: workspace: expected a string" in third
    assert isinstance(result.error, HookFailed)


async def test_code_of_the_model_ends_at_the_limit_of_execution(folder):
    folder.toml(PLACE + "[limits]\nexecution_timeout_ms = 300\n" + declared("sys_code"))
    loops = tool_call("sys_code", {"code": "def main(a):\n    while True:\n        pass", "language": "python"})
    (found,) = await answers(folder, loops)
    assert "FN_ERROR: sys_code.py:main: gave no answer within 0.3 s" in found


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_is_asked_before_the_model_runs_an_authorised_file(folder, approved):
    folder.lambda_("async def main(a):\n    return await adf.authorize_file(path='lib/x.py')", "y.py")
    Authority(folder.root / "agent").authorize("lib/y.py")
    folder.toml(PLACE + declared("sys_lambda", more="restricted = true\n"))
    asked = []

    def on_ask(pending):
        asked.append(pending.prompt)
        return Approve() if approved else Deny("no")

    (found,) = await answers(folder, FILE, on_ask=on_ask)
    assert asked == ["Run lib/y.py with the authority its owner gave it?"]
    assert ('"path":"lib/x.py"' in found) is approved


async def test_an_approval_of_another_process_counts(folder, tmp_path):
    """The run is begun by one agent and gone on with by another, which has asked nobody."""
    folder.lambda_("async def main(a):\n    return await adf.authorize_file(path='lib/x.py')", "y.py")
    Authority(folder.root / "agent").authorize("lib/y.py")
    folder.toml(PLACE + declared("sys_lambda"))
    journal = str(tmp_path / "runs.db")
    async with Agent.from_project(folder.root, model=ScriptedModel([FILE]), journal=journal) as first:
        waiting = await first.run("go")
    (pending,) = waiting.pending
    model = ScriptedModel([text("done")])
    async with Agent.from_project(folder.root, model=model, journal=journal) as other:
        await other.resume(waiting.run_id, {pending.call_id: Approve()})
    assert '"path":"lib/x.py"' in results(model)[0]


def test_code_without_a_workspace_is_a_mistake_with_its_line(folder):
    folder.toml('model = "openai:m"\n' + declared("sys_code"))
    why = r"beforehand.toml:3:1: tools\[0\].name: 'sys_code' runs code in a workspace, and the field 'workspace' is missing"
    with pytest.raises(ConfigError, match=why):
        Agent.from_project(folder.root)


def test_a_tool_of_the_same_name_in_python_is_the_one_that_is_declared(folder):
    @tool
    def sys_code(code: str) -> str:
        """Mine."""
        return code

    folder.toml('model = "openai:m"\n' + declared("sys_code"))
    assert Agent.from_project(folder.root, tools=[sys_code]).plan.tools == (sys_code,)


@pytest.mark.parametrize("authorised", [True, False])
async def test_what_is_kept_for_authorised_code_is_there_for_it_alone(folder, authorised):
    folder.lambda_(
        "async def transform(i):\n    code = 'def main(a):\\n    return 7'\n"
        "    return {**i['request'], 'system': str(await adf.sys_code(code=code, language='python'))}\n"
    )
    if authorised:
        Authority(folder.root / "agent").authorize("lib/x.py")
    folder.toml(HOOKED + "[recovery]\nauto_retry = false\n" + declared("sys_code", more="enabled = false\nrestricted = true\n"))
    model = ScriptedModel([text("hello")])
    result = await Agent.from_project(folder.root, model=model).run("go", check=False)
    assert [(r.system, r.tools) for r in model.requests] == ([("7", ())] if authorised else [])
    assert authorised or "REQUIRES_AUTHORIZED_CODE" in str(result.error)


# --- loops ---


async def test_tools_for_messages_between_loops_are_there_once_declared_and_gone_once_switched_off(folder):
    folder.toml('model = "openai:m"\n' + declared("loop_send"))
    agent = Agent.from_project(folder.root)
    assert [t.name for t in agent.plan.tools] == ["loop_send"]
    loop = '[[loops]]\nname = "helper"\n'
    folder.toml('model = "openai:m"\n' + loop)
    assert [t.name for t in Agent.from_project(folder.root).plan.tools] == ["loop_send", "loop_list"]
    folder.toml('model = "openai:m"\n' + loop + 'tools = ["loop_*"]\n' + declared("loop_send", more="enabled = false\n"))
    agent = Agent.from_project(folder.root)
    assert [t.name for t in agent.plan.tools] == ["loop_list"]
    assert [t.name for t in agent.loop("helper").plan.tools] == ["loop_list"]
    assert [t.name for t in agent.loop(Loop("later")).plan.tools] == ["loop_list"]


async def test_a_declared_tool_reaches_a_loop_that_is_made_while_the_agent_is_at_work(folder):
    folder.toml(declared("loop_send"))
    send = tool_call("loop_send", {"to": "helper", "message": "look"})
    model = FunctionModel(lambda r: send if r.messages[-1].text == "go" else text("ok"))
    agent = Agent.from_project(folder.root, model=model)
    talk = agent.conversation()
    talk.loop(Loop("helper"))
    await talk.run("go")
    await talk.wait_for_loops()
    assert talk.loop("helper").messages[0].text == "[from loop:main] look"


def test_a_loop_that_lists_code_which_nobody_has_declared_is_told_where(folder):
    folder.toml('model = "openai:m"\n[[loops]]\nname = "helper"\ntools = ["sys_code"]\n')
    with pytest.raises(ConfigError, match=r"loop 'helper': tools= names 'sys_code'.*declare it in \[\[tools\]\]"):
        Agent.from_project(folder.root)


@pytest.mark.parametrize(("tools", "read"), [('["sys_code"]', "NOT_FOUND"), ('["sys_code", "sys_lambda"]', "nested")])
async def test_code_in_a_loop_calls_lambdas_only_if_the_loop_has_that_tool(folder, tools, read):
    """A hook there has its own way to them in either case."""
    folder.lambda_(CALLS_ANOTHER)
    folder.lambda_("def main(a):\n    return 'nested'", "y.py")
    folder.toml(HOOKED + declared("sys_code", "sys_lambda") + f'[[loops]]\nname = "helper"\ntools = {tools}\n')
    model = ScriptedModel([NESTED, text("done")])
    async with Agent.from_project(folder.root, model=model) as agent:
        await agent.loop("helper").run("go")
    assert model.requests[0].system == "nested"
    assert read in results(model)[0]


# --- the workspace ---


async def test_questions_that_the_agents_approvals_keep_are_answered_by_authorised_code(folder):
    folder.lambda_(
        "async def transform(i):\n    if i['request']['messages'][-1]['content'] == 'approve':\n"
        "        await adf.task_resolve(task_id='c1', action='approve')\n    return i['request']\n"
    )
    Authority(folder.root / "agent").authorize("lib/x.py")
    paid = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    folder.toml(HOOKED + declared("pay", more="restricted = true\n"))
    asked = asyncio.Event()
    model = FunctionModel(lambda r: tool_call("pay", {"amount": 3}, id="c1") if r.messages[-1].text == "go" else text("ok"))
    agent = Agent.from_project(folder.root, model=model, tools=[pay], on_ask=Approvals(lambda *_: asked.set()))
    waiting = asyncio.ensure_future(agent.run("go"))
    await asked.wait()
    assert paid == []
    async with asyncio.timeout(30):
        await agent.run("approve")
        await waiting
    assert paid == [3]


async def test_a_block_in_python_keeps_the_gates_of_the_file(folder):
    folder.lambda_("async def main(i):\n    await adf.pay(amount=1)\n    return i['request']", "y.py")

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError("not reached")

    for said, why in (
        (declared("pay", more="restricted = true\n"), "REQUIRES_AUTHORIZED_CODE"),
        (declared("pay", more="enabled = false\n"), "DISABLED"),
    ):
        folder.toml(PLACE + "[recovery]\nauto_retry = false\n" + said)
        model = ScriptedModel([text("never")])
        agent = Agent.from_project(folder.root, model=model, tools=[pay], pre_llm_hook={"source": "lib/y.py"})
        with pytest.raises(HookFailed, match=why):
            await agent.run("go")
        assert model.requests == []


async def test_a_workspace_that_is_handed_over_counts_instead_of_the_files(folder, tmp_path):
    other = tmp_path / "other"
    (other / "lib").mkdir(parents=True)
    (other / "lib" / "x.py").write_text("def transform(i):\n    return {**i['request'], 'system': 'other'}\n")
    folder.toml(HOOKED)
    for place in (other, str(other), Workspace(other)):
        model = ScriptedModel([text("hello")])
        await Agent.from_project(folder.root, model=model, workspace=place).run("hello")
        assert model.requests[0].system == "other"


# --- closing ---


def workers():
    """The processes this one has started that still run."""
    found = set()
    for pid in children():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has been collected just now
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found


@pytest.mark.parametrize("with_block", [True, False])
async def test_closing_the_agent_ends_the_spare_sandboxes_of_the_projects_hook(folder, with_block):
    await close_spares()
    before = workers()
    folder.toml(HOOKED if not with_block else PLACE)
    block = {"pre_llm_hook": {"source": "lib/x.py:transform"}} if with_block else {}
    model = ScriptedModel([text("hello"), text("hello")])
    async with Agent.from_project(folder.root, model=model, **block) as agent:
        await agent.run("hello")
        async with asyncio.timeout(30):
            while not workers() - before:  # noqa: ASYNC110 - the worker that waits for the next call is being started
                await asyncio.sleep(0.005)
    assert workers() <= before
