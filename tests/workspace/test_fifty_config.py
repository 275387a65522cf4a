"""The lines of the fifty behaviours that are about configuration, each a test with its number. Here from a project file."""

import json

import pytest

from beforehand import Agent, ConfigError, HookFailed, Limits, Loop, tool
from beforehand.config import ProjectFileError, read_project
from beforehand.messages import Options
from beforehand.testing import FunctionModel, ScriptedModel, text
from beforehand.workspace import Authority

MARKS = "def transform(input):\n    return {**input['request'], 'system': 'seen in ' + input['loop']['name']}\n"
NO_OP_TS = "export function transform({ request }) { return request }"


class Project:
    """A folder with a project file and a workspace, whose parts a test can change at any time."""

    def __init__(self, root):
        self.root = root
        (root / "agent" / "lib").mkdir(parents=True)
        self.hook("def transform(input):\n    return input['request']\n")
        self.says({"source": "lib/x.py:transform"})

    def hook(self, code, name="x.py"):
        (self.root / "agent" / "lib" / name).write_text(code)

    def says(self, block, **others):
        block = {} if block is None else {"pre_llm_hook": block}
        whole = {"model": "openai:m", "workspace": "agent", "recovery": {"auto_retry": False}, **block, **others}
        (self.root / "beforehand.json").write_text(json.dumps(whole))

    def agent(self, *replies, **more):
        self.model = ScriptedModel([text(reply) for reply in replies]) if replies else FunctionModel(lambda r: text("hello"))
        return Agent.from_project(self.root, model=self.model, **more)


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


async def systems(agent, *loops):
    """The system text of a request in each of these loops, made here if nobody has declared them: "" where the hook did not
    run."""
    found = []
    for name in loops:
        declared = any(loop.name == name for loop in agent.plan.loops)
        talk = agent.conversation() if name == "main" else agent.loop(name if declared else Loop(name))
        await talk.run("hello")
        found.append(agent.plan.model.requests[-1].system)
    return found


async def fails(agent, why):
    result = await agent.run("hello", check=False)
    assert result.stop_reason == "error"
    assert isinstance(result.error, HookFailed)
    assert why in str(result.error)
    assert agent.plan.model.requests == []


def wrong(project, block):
    """The mistakes of a block, as a file and as an argument say them: field and sentence."""
    project.says(block)
    with pytest.raises(ProjectFileError) as of_file:
        read_project(project.root)
    with pytest.raises(ConfigError) as of_argument:
        Agent(model=ScriptedModel([]), workspace=project.root / "agent", pre_llm_hook=block)
    said = [f"{p.field}: {p.message}" for p in of_file.value.problems]
    assert str(of_argument.value) == "; ".join(said)
    return said


async def test_02_a_hook_whose_source_is_missing_fails_the_call(project):
    agent = project.agent()
    (project.root / "agent" / "lib" / "x.py").unlink()
    await fails(agent, "lib/x.py")


async def test_02_a_hook_whose_source_is_missing_from_the_start_makes_no_agent(project):
    project.says({"source": "lib/none.py:transform"})
    with pytest.raises(ConfigError, match=r"beforehand.json:1:.*pre_llm_hook.source: .*its file cannot be read"):
        project.agent()


async def test_02_a_hook_whose_function_is_missing_fails_the_call(project):
    project.says({"source": "lib/x.py:other"})
    await fails(project.agent(), "other")


async def test_05_a_hook_that_exceeds_its_timeout_fails_the_call(project):
    project.hook("def transform(input):\n    while True:\n        pass\n")
    project.says({"source": "lib/x.py:transform", "timeout_ms": 1000})
    await fails(project.agent(), "gave no answer within 1 s")


async def test_06_a_timeout_is_capped_by_the_limit_of_execution(project):
    project.hook("export async function transform({ request }) { await new Promise((r) => setTimeout(r, 1500)); return request }",
                 "x.ts")  # fmt: skip
    project.says({"source": "lib/x.ts:transform", "timeout_ms": 5000}, limits={"execution_timeout_ms": 1000})
    await fails(project.agent(), "gave no answer within 1 s")


@pytest.mark.parametrize("given", ["by the agent", "for one run", "by replace"])
@pytest.mark.parametrize("made", ["from the file", "from an argument", "in Python"])
async def test_06_a_limit_of_execution_that_is_said_in_python_caps_the_timeout_too(project, made, given):
    project.hook("def transform(input):\n    while True:\n        pass\n")
    block, limits = {"source": "lib/x.py:transform", "timeout_ms": 5000}, Limits(execution_timeout_ms=200)
    project.says(block)
    whole = {"limits": limits} if given == "by the agent" else {}
    if made == "in Python":
        agent = Agent(model=ScriptedModel([]), workspace=project.root / "agent", pre_llm_hook=block, **whole)
    else:
        agent = project.agent(**whole, **({"pre_llm_hook": block} if made == "from an argument" else {}))
    if given == "by replace":
        agent = agent.replace(limits=limits)
    result = await agent.run("hello", check=False, limits=limits if given == "for one run" else None)
    assert "gave no answer within 0.2 s" in str(result.error)
    assert agent.plan.model.requests == []


async def test_06_the_limit_of_one_run_is_not_the_next_ones(project):
    project.hook("import asyncio\nasync def transform(input):\n    await asyncio.sleep(0.3)\n    return input['request']\n")
    agent = project.agent()
    for limits, reason in ((Limits(execution_timeout_ms=100), "error"), (None, "completed"), (Limits(), "completed")):
        assert (await agent.run("hello", check=False, limits=limits)).stop_reason == reason


async def test_06_a_limit_of_execution_can_be_raised_in_the_file_while_the_agent_lives(project):
    project.hook("def transform(input):\n    while True:\n        pass\n")
    block = {"source": "lib/x.py:transform"}
    project.says(block, limits={"execution_timeout_ms": 100})
    agent = project.agent()
    await fails(agent, "gave no answer within 0.1 s")
    project.says(block, limits={"execution_timeout_ms": 200})
    await fails(agent, "gave no answer within 0.2 s")


@pytest.mark.parametrize(
    ("timeout", "limit", "effective"),
    [(None, None, 60), (5000, None, 5), (None, 2000, 2), (5000, 2000, 2), (300000, None, 60), (300000, 900000, 300),
     (None, 900000, 300)],
)  # fmt: skip
def test_06_the_effective_timeout_is_the_least_of_three(project, timeout, limit, effective):
    block = {"source": "lib/x.py", **({} if timeout is None else {"timeout_ms": timeout})}
    project.says(block, **({} if limit is None else {"limits": {"execution_timeout_ms": limit}}))
    settings = read_project(project.root).settings
    assert settings.pre_llm_hook.timeout(settings.limits.of_runs()) == effective


@pytest.mark.parametrize("value", [0, -1, 1.5, "60000", True, None])
def test_06_the_limit_of_execution_is_a_positive_whole_number(project, value):
    project.says(None, limits={"execution_timeout_ms": value})
    with pytest.raises(ProjectFileError, match=r"limits.execution_timeout_ms: expected a whole number of at least 1, got"):
        read_project(project.root)


@pytest.mark.parametrize(
    ("loops", "said"),
    [
        ({"loops": ["a", "main"]}, "pre_llm_hook.loops[1]: 'main' is no inner loop: take it out and write include_main = true"),
        ({"loops": ["a", "b", "a"]}, "pre_llm_hook.loops[2]: 'a' is in the list already"),
        ({"loops": []}, "pre_llm_hook.loops: expected a list that is not empty"),
        ({}, "pre_llm_hook: the field 'loops' is missing"),
        ({"loops": "a"}, "pre_llm_hook.loops: expected a list, got 'a'"),
        ({"loops": None}, "pre_llm_hook.loops: expected a list, got null"),
        ({"loops": ["A"]}, "pre_llm_hook.loops[0]: expected a loop's name"),
        ({"loops": ["a" * 33]}, "pre_llm_hook.loops[0]: expected a loop's name"),
        ({"loops": ["-a"]}, "pre_llm_hook.loops[0]: expected a loop's name"),
        ({"loops": ["a\n"]}, "pre_llm_hook.loops[0]: expected a loop's name"),
        ({"loops": [1]}, "pre_llm_hook.loops[0]: expected a loop's name"),
        ({"loops": [f"l{i}" for i in range(65)]}, "pre_llm_hook.loops: expected at most 64 of them, got 65"),
        ({"loops": ["a"], "include_main": "yes"}, "pre_llm_hook.include_main: expected true or false, got 'yes'"),
    ],
)
def test_33_the_scope_loops_takes_inner_loops_by_name(project, loops, said):
    found = wrong(project, {"source": "lib/x.py", "scope": "loops", **loops})
    assert len(found) == 1
    assert found[0].startswith(said)


def test_33_sixty_four_loops_are_accepted(project):
    project.says({"source": "lib/x.py", "scope": "loops", "loops": [f"l{i}" for i in range(64)]})
    assert len(read_project(project.root).settings.pre_llm_hook.loops) == 64


@pytest.mark.parametrize("scope", ["all", "main", None])
@pytest.mark.parametrize("field", [{"loops": ["a"]}, {"include_main": True}, {"include_main": False}])
def test_34_other_scopes_take_no_loops(project, scope, field):
    block = {"source": "lib/x.py", **({} if scope is None else {"scope": scope}), **field}
    (name,) = field
    assert wrong(project, block) == [
        f'pre_llm_hook.{name}: {name!r} goes with scope = "loops", and the scope here is "{scope or "all"}"'
    ]


async def test_34_an_empty_list_of_loops_is_no_exception(project):
    assert wrong(project, {"source": "lib/x.py", "scope": "main", "loops": []})


MALFORMED = [
    {"source": "lib/x.py", "scope": "loops", "loops": ["researcher"], "timeout_ms": 5},
    {"source": "lib/x.py", "scope": "loops", "loops": ["researcher", "main"]},
    {"source": " ", "scope": "loops", "loops": ["researcher"]},
    {"source": "lib/x.txt", "scope": "loops", "loops": ["researcher"]},
    {"scope": "loops", "loops": ["researcher"]},
    {"source": "lib/x.py", "scope": "loops", "loops": ["researcher"], "timeout": 5000},
    [], "lib/x.py", None, True,
]  # fmt: skip


@pytest.mark.parametrize("block", MALFORMED, ids=str)
async def test_35_a_malformed_hook_fails_calls_it_is_not_for(project, block):
    project.says({"source": "lib/x.py:transform", "scope": "loops", "loops": ["researcher"]})
    agent = project.agent()
    project.says(None, pre_llm_hook=block)
    await fails(agent, "pre_llm_hook")
    with pytest.raises(HookFailed):
        await systems(agent, "writer")


async def test_35_a_project_file_that_cannot_be_read_fails_every_call(project):
    project.says(None)
    for broken in ("{", "", '{"pre_llm_hook": {}, "pre_llm_hook": {}}', "\ufeff{}"):
        project.says(None)
        agent = project.agent()
        (project.root / "beforehand.json").write_text(broken)
        await fails(agent, "beforehand.json:1:")
    project.says(None)
    agent = project.agent()
    (project.root / "beforehand.json").unlink()
    await fails(agent, "cannot be read")


async def test_36_a_loop_named_before_it_exists_is_hooked_when_it_runs_and_main_is_not(project):
    project.hook(MARKS)
    project.says({"source": "lib/x.py:transform", "scope": "loops", "loops": ["researcher", "reviewer"]})
    said = await systems(project.agent(), "researcher", "reviewer", "main", "writer")
    assert said == ["seen in researcher", "seen in reviewer", "", ""]


async def test_37_loops_with_main_hook_main_under_its_name(project):
    project.hook(MARKS)
    project.says({"source": "lib/x.py:transform", "scope": "loops", "loops": ["researcher"], "include_main": True})
    said = await systems(project.agent(), "main", "researcher", "writer")
    assert said == ["seen in main", "seen in researcher", ""]


@pytest.mark.parametrize("scope", [{"scope": "all"}, {}])
async def test_38_all_loops_are_hooked_and_so_are_those_to_come(project, scope):
    project.hook(MARKS)
    project.says({"source": "lib/x.py:transform", **scope})
    assert await systems(project.agent(), "main", "made-later") == ["seen in main", "seen in made-later"]


async def test_38_the_scope_main_is_main_alone(project):
    project.hook(MARKS)
    project.says({"source": "lib/x.py:transform", "scope": "main"})
    assert await systems(project.agent(), "main", "made-later") == ["seen in main", ""]


@pytest.mark.parametrize("name", ["x.py", "x.ts", "x.js"])
async def test_44_a_source_without_a_function_calls_main(project, name):
    project.hook(
        "def main(input):\n    return {**input['request'], 'system': 'by main'}\n"
        if name == "x.py"
        else "export function main({ request }) { return { ...request, system: 'by main' } }",
        name,
    )
    project.says({"source": f" lib/{name} "})
    agent = project.agent()
    await agent.run("hello")
    assert project.model.requests[0].system == "by main"


async def test_44_only_an_identifier_after_the_last_colon_is_a_function(project):
    (project.root / "agent" / "lib" / "a:b.py").write_text(MARKS.replace("transform", "main"))
    for source in ("lib/a:b.py", "lib/a:b.py:main"):
        project.says({"source": source})
        assert await systems(project.agent(), "main") == ["seen in main"]
    for source in ("lib/x.py:2", "lib/x.py:", "lib/x.py:a-b", "lib/x.py:a b"):
        assert wrong(project, {"source": source}) == [
            f"pre_llm_hook.source: {source!r} names no lambda: its file must end in .py, .ts or .js"
        ]


@pytest.mark.parametrize("name", ["x.py", "x.ts"])
async def test_45_a_hook_that_does_nothing_passes_with_every_option_unset(project, name):
    project.hook(NO_OP_TS if name == "x.ts" else "def transform(input):\n    return input['request']\n", name)
    project.says({"source": f"lib/{name}:transform"})
    agent = project.agent()
    await agent.run("hello")
    assert project.model.requests[0].options == Options()


async def test_46_a_hook_added_to_the_file_runs_at_the_next_request(project):
    project.hook(MARKS)
    project.says(None)
    agent = project.agent("one", "two", "three", "four", "five")
    talk = agent.conversation()
    await talk.run("hello")
    project.says({"source": "lib/x.py:transform"})
    await talk.run("hello")
    project.hook(MARKS.replace("seen", "read"), "y.py")
    project.says({"source": "lib/y.py:transform"})
    await talk.run("hello")
    project.says({"source": "lib/y.py:transform", "scope": "loops", "loops": ["a"]})
    await talk.run("hello")
    project.says(None)
    await talk.run("hello")
    assert [r.system for r in project.model.requests] == ["", "seen in main", "read in main", "", ""]


async def test_46_a_broken_edit_fails_that_request_and_a_correction_mends_it(project):
    project.hook(MARKS)
    agent = project.agent("one", "two")
    talk = agent.conversation()
    project.says({"source": "lib/x.py:transform", "scope": "mian"})
    failed = await talk.run("hello", check=False)
    assert failed.stop_reason == "error"
    assert "beforehand.json:1:" in str(failed.error)
    assert "'mian' is not one of 'all', 'loops', 'main', did you mean 'main'?" in str(failed.error)
    assert project.model.requests == []
    project.says({"source": "lib/x.py:transform"})
    await talk.run("hello")
    assert [r.system for r in project.model.requests] == ["seen in main"]


USES = {
    "py": "async def transform(i):\n    return {**i['request'], 'system': await adf.pay(amount=1)}\n",
    "ts": "export async function transform({request}) { return {...request, system: await adf.pay({amount: 1})} }\n",
}


@pytest.mark.parametrize("language", ["py", "ts"])
async def test_48_a_hook_has_the_tools_of_the_loop_it_runs_in(project, language):
    """Those on the loop's list without the restricted ones; in main those of the agent."""
    paid = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    @tool
    async def read() -> str:
        """Read."""
        return ""

    project.hook(USES[language], f"pay.{language}")
    loops = [{"name": "treasurer", "tools": ["pay"]}, {"name": "reader", "tools": ["read"]}]
    project.says({"source": f"lib/pay.{language}:transform"}, loops=loops)
    agent = project.agent(tools=[pay, read])
    assert await systems(agent, "main", "treasurer") == ["paid", "paid"]
    for name in ("reader", "made-later"):
        with pytest.raises(HookFailed, match="NOT_FOUND: there is no method and no tool 'pay' here"):
            await systems(agent, name)
    assert (paid, len(project.model.requests)) == ([1, 1], 2)


async def test_48_a_restricted_tool_is_no_loops_and_so_no_hooks_there(project):
    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError("not reached")

    project.hook(USES["py"])
    loops = [{"name": "treasurer", "tools": ["pay"]}]
    project.says({"source": "lib/x.py:transform"}, loops=loops, tools=[{"name": "pay", "restricted": True}])
    Authority(project.root / "agent").authorize("lib/x.py")
    agent = project.agent(tools=[pay])
    with pytest.raises(HookFailed, match="NOT_FOUND"):
        await systems(agent, "treasurer")
    assert project.model.requests == []


@pytest.mark.parametrize("value", [999, 300001, 1.5, 0, -5000, "5000", True, None, 1e300])
def test_50_a_timeout_out_of_range_is_rejected(project, value):
    said = wrong(project, {"source": "lib/x.py", "timeout_ms": value})
    assert len(said) == 1
    assert said[0].startswith("pre_llm_hook.timeout_ms: expected a whole number from 1000 to 300000, got ")


@pytest.mark.parametrize("value", [1000, 300000])
def test_50_the_bounds_themselves_are_accepted(project, value):
    project.says({"source": "lib/x.py:transform", "timeout_ms": value})
    assert read_project(project.root).settings.pre_llm_hook.timeout_ms == value
    assert project.agent().hooks[0].name == "pre_llm_hook"
